/* round_floor RANKS: the least time that a round can take. One process watches RANKS other processes, each blocked in a read of its socket.
 * The decider is another process, with a socket to the first one. One rank is killed. The decider is asked, all ranks are ordered to leave,
 * and all report that they have left. The decider is asked again, and all ranks are ordered to begin. Prints the microseconds from before
 * the kill to the beginning of the last rank. There are no frames, no checks, no store and no environment: the rest is the kernel's share,
 * which is the floor of the `rounds` row. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEATH 0xffffffffu

static long now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

static void must(int is_good, const char *what)
{
    if (!is_good) {
        perror(what);
        exit(1);
    }
}

static pid_t child(void)
{
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

/* Answers each byte by one. */
static void decide(int socket)
{
    char word;
    while (read(socket, &word, 1) == 1)
        must(write(socket, &word, 1) == 1, "the decider cannot answer");
    _exit(0);
}

/* 'L': leave, answered by one byte; 'B': begin, answered by when. */
static void play(int socket)
{
    char word;
    while (read(socket, &word, 1) == 1) {
        long at = now_us();
        if (word == 'L')
            must(write(socket, &word, 1) == 1, "a rank cannot answer");
        else
            must(write(socket, &at, sizeof at) == sizeof at, "a rank cannot say when");
    }
    _exit(0);
}

static void ask(int decider)
{
    char word = 'd';
    must(write(decider, &word, 1) == 1 && read(decider, &word, 1) == 1, "the decider is gone");
}

static void order(const int *sockets, int ranks, char word)
{
    for (int rank = 1; rank < ranks; rank++)
        must(write(sockets[rank], &word, 1) == 1, "no order can be sent to a rank");
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 0;
    if (ranks < 2 || ranks > 100000) {
        fprintf(stderr, "usage: round_floor RANKS (at least 2)\n");
        return 2;
    }
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t decider = child();
    if (decider == 0)
        decide(pair[1]);
    int *sockets = calloc(ranks, sizeof *sockets);
    pid_t *pids = calloc(ranks, sizeof *pids);
    int set = epoll_create1(EPOLL_CLOEXEC);
    for (int rank = 0; rank < ranks; rank++) {
        int ends[2];
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
        pids[rank] = child();
        if (pids[rank] == 0) {
            for (int other = 0; other < rank; other++)
                close(sockets[other]);
            close(ends[0]);
            play(ends[1]);
        }
        close(ends[1]);
        sockets[rank] = ends[0];
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = rank};
        must(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0, "epoll_ctl");
    }
    int death = syscall(SYS_pidfd_open, pids[0], 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = DEATH};
    must(death >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, death, &event) == 0, "pidfd_open");
    usleep(100000);

    long began = now_us(), last = 0;
    kill(pids[0], SIGKILL);
    int ready = 0, back = 0;
    while (back < ranks - 1) {
        struct epoll_event events[256];
        int count = epoll_wait(set, events, 256, -1);
        for (int i = 0; i < count; i++) {
            unsigned who = events[i].data.u32;
            if (who == DEATH) {
                epoll_ctl(set, EPOLL_CTL_DEL, death, NULL);
                ask(pair[0]);
                order(sockets, ranks, 'L');
            } else if (who == 0) {
                epoll_ctl(set, EPOLL_CTL_DEL, sockets[0], NULL);
            } else if (ready < ranks - 1) {
                char word;
                must(read(sockets[who], &word, 1) == 1, "a rank is gone");
                if (++ready == ranks - 1) {
                    ask(pair[0]);
                    order(sockets, ranks, 'B');
                }
            } else {
                long at;
                must(read(sockets[who], &at, sizeof at) == sizeof at, "a rank is gone");
                last = at > last ? at : last;
                back++;
            }
        }
    }
    printf("%ld\n", last - began);
    for (int rank = 0; rank < ranks; rank++)
        kill(pids[rank], SIGKILL);
    kill(decider, SIGKILL);
    while (wait(NULL) > 0) {
    }
    return 0;
}
