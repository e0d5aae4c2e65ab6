/* watch SECONDS SIGNAL TARGET LAUNCHER PID...
 *
 * Sends SIGNAL to TARGET and measures from that moment until LAUNCHER and every PID are gone, by pidfds that were opened
 * before: nothing is forked, read or polled by time. Prints
 *   launcher_us all_us left
 * (-1: not within SECONDS; left: how many are still there). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    long limit = (long)(atof(argv[1]) * 1e6), launcher_at = -1, all_at = -1;
    int set = epoll_create1(EPOLL_CLOEXEC), left = 0;
    for (int i = 4; i < argc; i++) {
        int fd = (int)syscall(SYS_pidfd_open, atoi(argv[i]), 0);
        if (fd < 0)
            return 3;
        struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = (unsigned)i | (unsigned long)fd << 32}};
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
        left++;
    }
    struct epoll_event events[64];
    long start = now_us();
    if (kill(atoi(argv[3]), atoi(argv[2])))
        return 3;
    while (left) {
        long spent = now_us() - start;
        int ready = epoll_wait(set, events, 64, spent < limit ? (int)((limit - spent) / 1000 + 1) : 0);
        if (ready <= 0)
            break;
        long at = now_us() - start;
        for (int i = 0; i < ready; i++) {
            if ((events[i].data.u64 & 0xffffffff) == 4)
                launcher_at = at;
            epoll_ctl(set, EPOLL_CTL_DEL, (int)(events[i].data.u64 >> 32), NULL);
            left--;
        }
        if (!left)
            all_at = at;
    }
    printf("%ld %ld %d\n", launcher_at, all_at, left);
    return 0;
}
