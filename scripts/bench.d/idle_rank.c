/* idle_rank TOKEN DIR [stubborn]
 *
 * A rank that waits for ever. It makes a file in DIR, named by its rank, once its signals are set up. USR1 makes it exit 3; a
 * stubborn one ignores TERM, INT and HUP. TOKEN only stands in its command line, where the benchmark finds it whatever the PID
 * namespace says. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "rank.h"

static void leave(int sig)
{
    (void)sig;
    _exit(3);
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc < 3)
        return 2;
    signal(SIGUSR1, leave);
    if (argc > 3 && !strcmp(argv[3], "stubborn")) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
    }
    snprintf(path, sizeof path, "%s/%d", argv[2], own_rank());
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    if (fd < 0)
        return 3;
    close(fd);
    for (;;)
        pause();
}
