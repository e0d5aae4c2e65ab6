/* crowd PROCESSES DESCRIPTORS
 *
 * So many idle processes with so many descriptors each, for programs that read all of /proc. Prints "up" when all are there. They end with
 * this one, which ends with its stdin and reaps them: thousands of zombies a round would use up the process ids. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int processes = atoi(argv[1]), descriptors = atoi(argv[2]), null = open("/dev/null", O_RDONLY);
    pid_t parent = getpid();
    setpgid(0, 0);
    for (int i = 3; i < descriptors; i++)
        dup2(null, i);
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("crowd: fork");
            return 1;
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            for (;;)
                pause();
        }
    }
    puts("up");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    while (wait(NULL) > 0)
        ;
    return 0;
}
