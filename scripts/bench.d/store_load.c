/* store_load WIRE OPERATION CLIENTS SECONDS: so many clients of a store, each with one request under way, from one thread.
 *
 * WIRE is torch or redis, at MASTER_ADDR:MASTER_PORT, or at the unix socket STORE_SOCKET if that is set; or job or generation, which
 * are the spaces of rlaunch's own store at RLAUNCH_SOCKET. OPERATION is get, add, barrier (of torch's: each client adds, waits, and
 * the last one sets) or fence (of rlaunch's: of as many ranks as there are clients; those but rank 0 only wait to be ended). It says
 *   here
 * and after a line on stdin they connect, each adds once, and it says
 *   ready CONNECTS_PER_SECOND
 * Another line lets them begin. At the end it says
 *   done OPERATIONS P50_us P99_us
 * where a barrier or fence of all clients is one operation, and stays connected until stdin ends. */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include "rank.h"
#include "store_wires.h"

#define MOST 4000000

static float took[MOST];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static long barriers(const int *fds, double end)
{
    long done = 0;
    for (; now() < end && done < MOST; done++) {
        char came[64], all[64];
        double start = now();
        snprintf(came, sizeof came, "came/%ld", done);
        snprintf(all, sizeof all, "all/%ld", done);
        for (int i = 0; i < clients; i++)
            ask(fds[i], i, ADD, came);
        int last = -1;
        for (int i = 0; i < clients; i++) {
            if (answer(fds[i], ADD) == clients)
                last = i;
            else
                ask(fds[i], i, WAIT, all);
        }
        if (last < 0)
            exit(8);
        ask(fds[last], last, SET, all);
        for (int i = 0; i < clients; i++)
            answer(fds[i], i == last ? SET : WAIT);
        took[done] = (float)(now() - start);
    }
    return done;
}

static long fences(const int *fds, double end)
{
    long done = 0;
    for (; now() < end && done < MOST; done++) {
        char name[64];
        double start = now();
        snprintf(name, sizeof name, "fence/%ld", done);
        for (int i = 0; i < clients; i++)
            ask(fds[i], i, FENCE, name);
        for (int i = 0; i < clients; i++)
            answer(fds[i], FENCE);
        took[done] = (float)(now() - start);
    }
    return done;
}

static long operations(const int *fds, double end, enum what what)
{
    int set = epoll_create1(EPOLL_CLOEXEC), left = clients;
    double *began = calloc(clients, sizeof *began);
    long done = 0;
    for (int i = 0; i < clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(set, EPOLL_CTL_ADD, fds[i], &event);
    }
    for (int i = 0; i < clients; i++) {
        began[i] = now();
        ask(fds[i], i, what, what == ADD ? "counter" : "key");
    }
    while (left) {
        struct epoll_event events[1024];
        int count = epoll_wait(set, events, 1024, 20000);
        if (count <= 0)
            exit(9);
        for (int j = 0; j < count; j++) {
            int i = events[j].data.u32;
            answer(fds[i], what);
            double at = now();
            took[done < MOST ? done : MOST - 1] = (float)(at - began[i]);
            done++;
            if (at >= end) {
                left--;
                continue;
            }
            began[i] = at;
            ask(fds[i], i, what, what == ADD ? "counter" : "key");
        }
    }
    return done;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static enum wire wire_of(const char *name)
{
    static const char *const names[] = {"torch", "redis", "job", "generation"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return i;
    exit(2);
}

static void connect_all(int *fds)
{
    const char *path = getenv(wire >= JOB ? "RLAUNCH_SOCKET" : "STORE_SOCKET");
    double start = now();
    for (int i = 0; i < clients; i++)
        fds[i] = connect_one(path, i);
    /* The server has processed all requests when it has answered each. */
    for (int i = 0; i < clients; i++)
        ask(fds[i], i, ADD, "warm");
    for (int i = 0; i < clients; i++) {
        welcomed(fds[i]);
        answer(fds[i], ADD);
    }
    printf("ready %.0f\n", clients / (now() - start));
    fflush(stdout);
    ask(fds[0], 0, SET, "key");
    answer(fds[0], SET);
    ask(fds[0], 0, GET, "key");
    if (answer(fds[0], GET) != VALUE)
        exit(7);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    wire = wire_of(argv[1]);
    clients = atoi(argv[3]);
    int is_fence = !strcmp(argv[2], "fence");
    while (is_fence && own_rank() > 0)
        pause();
    struct rlimit room;
    getrlimit(RLIMIT_NOFILE, &room);
    room.rlim_cur = room.rlim_max;
    setrlimit(RLIMIT_NOFILE, &room);
    int *fds = calloc(clients, sizeof *fds);
    asked = calloc(clients, sizeof *asked);
    puts("here");
    fflush(stdout);
    if (!fgets(in, sizeof in, stdin))
        return is_fence;
    connect_all(fds);
    if (!fgets(in, sizeof in, stdin))
        return is_fence;
    double end = now() + atof(argv[4]);
    long done = is_fence                      ? fences(fds, end)
                : !strcmp(argv[2], "barrier") ? barriers(fds, end)
                                              : operations(fds, end, !strcmp(argv[2], "add") ? ADD : GET);
    long kept = done < MOST ? done : MOST;
    qsort(took, kept, sizeof *took, by_size);
    printf("done %ld %.1f %.1f\n", done, took[kept / 2] * 1e6, took[kept * 99 / 100] * 1e6);
    fflush(stdout);
    /* The reader of this line measures the server before the end. */
    while (fgets(in, sizeof in, stdin)) {
    }
    /* The others of a fence are ended by a failure. */
    return is_fence;
}
