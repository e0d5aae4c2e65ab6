/* spawn_floor N PROGRAM
 *
 * The floor of the launch rows: the least that any launcher does to start N processes whose output it wants to see and to
 * wait for them. vfork, one shared /dev/null as stdin, a pipe each for stdout and stderr, one epoll set, waitpid. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void watch(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int n = atoi(argv[1]), open_pipes = 2 * n, failed = 0;
    pid_t *pids = calloc((size_t)n, sizeof *pids);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    int set = epoll_create1(EPOLL_CLOEXEC);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < n; i++) {
        int out[2], err[2];
        if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
            return 3;
        pid_t pid = vfork();
        if (pid == 0) {
            dup2(null, 0);
            dup2(out[1], 1);
            dup2(err[1], 2);
            execv(argv[2], argv + 2);
            _exit(127);
        }
        if (pid < 0)
            return 3;
        pids[i] = pid;
        close(out[1]);
        close(err[1]);
        watch(set, out[0]);
        watch(set, err[0]);
    }
    static char bytes[65536];
    struct epoll_event events[256];
    while (open_pipes) {
        int ready = epoll_wait(set, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (read(fd, bytes, sizeof bytes) > 0)
                continue;
            /* Taken out before it is closed: a copy that a vfork child has not dropped yet would keep it in the set. */
            epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
            close(fd);
            open_pipes--;
        }
    }
    for (int i = 0; i < n; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        failed |= status != 0;
    }
    return failed;
}
