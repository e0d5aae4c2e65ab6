/* store_load get|add|barrier CLIENTS SECONDS: so many clients of torch 2.x's store at MASTER_ADDR:MASTER_PORT, each with one request
 * under way, from one thread. It says
 *   here
 * and after a line on stdin they connect, each adds once, and it says
 *   ready CONNECTS_PER_SECOND
 * Another line lets them begin. At the end it says
 *   done OPERATIONS P50_us P99_us
 * where a barrier of all clients (each adds, waits, and the last one sets) is one operation, and stays connected until stdin ends. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 4000000

enum { SET = 1, GET = 3, ADD = 4, WAIT = 6 };

static char out[1024], in[8192];
static float took[MOST];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void receive(int fd, void *to, size_t len)
{
    for (size_t have = 0; have < len;) {
        ssize_t got = read(fd, (char *)to + have, len - have);
        if (got <= 0) {
            fprintf(stderr, "store_load: cut off\n");
            exit(3);
        }
        have += got;
    }
}

static void send_all(int fd, const char *bytes, size_t len)
{
    if (write(fd, bytes, len) != (ssize_t)len)
        exit(4);
}

static size_t text(char *at, const char *bytes, uint64_t len)
{
    memcpy(at, &len, 8);
    memcpy(at + 8, bytes, len);
    return 8 + len;
}

static void ask(int fd, int what, const char *key)
{
    char *end = out;
    *end++ = (char)what;
    if (what == WAIT) {
        memcpy(end, &(uint64_t){1}, 8);
        end += 8;
    }
    end += text(end, key, strlen(key));
    if (what == ADD) {
        memcpy(end, &(int64_t){1}, 8);
        end += 8;
    }
    if (what == SET) {
        char value[64];
        memset(value, 'v', sizeof value);
        end += text(end, value, sizeof value);
    }
    send_all(fd, out, end - out);
}

static int64_t answer(int fd, int what)
{
    uint64_t number = 0;
    receive(fd, &number, what == WAIT ? 1 : 8);
    if (what == GET) {
        if (number > sizeof in)
            exit(6);
        receive(fd, in, number);
    }
    return (int64_t)number;
}

static int connect_one(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (connect(fd, (const void *)to, sizeof *to)) {
        perror("store_load: connect");
        exit(2);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    send_all(fd, "\0\xce\xf7\x85\x3c", 5);
    return fd;
}

static long barriers(const int *fds, int clients, double end)
{
    long done = 0;
    for (; now() < end && done < MOST; done++) {
        char came[64], all[64];
        double start = now();
        snprintf(came, sizeof came, "came/%ld", done);
        snprintf(all, sizeof all, "all/%ld", done);
        for (int i = 0; i < clients; i++)
            ask(fds[i], ADD, came);
        int last = -1;
        for (int i = 0; i < clients; i++) {
            if (answer(fds[i], ADD) == clients)
                last = i;
            else
                ask(fds[i], WAIT, all);
        }
        if (last < 0)
            exit(8);
        ask(fds[last], SET, all);
        for (int i = 0; i < clients; i++)
            if (i != last)
                answer(fds[i], WAIT);
        took[done] = (float)(now() - start);
    }
    return done;
}

static long operations(const int *fds, int clients, double end, int what)
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
        ask(fds[i], what, what == ADD ? "counter" : "key");
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
            ask(fds[i], what, what == ADD ? "counter" : "key");
        }
    }
    return done;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const char *addr = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    if (argc != 4 || !addr || !port)
        return 2;
    int clients = atoi(argv[2]);
    struct rlimit room;
    getrlimit(RLIMIT_NOFILE, &room);
    room.rlim_cur = room.rlim_max;
    setrlimit(RLIMIT_NOFILE, &room);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    if (inet_pton(AF_INET, addr, &to.sin_addr) != 1)
        return 2;
    int *fds = calloc(clients, sizeof *fds);
    puts("here");
    fflush(stdout);
    if (!fgets(in, sizeof in, stdin))
        return 0;
    double start = now();
    for (int i = 0; i < clients; i++)
        fds[i] = connect_one(&to);
    /* It has taken all of them in when it has answered each. */
    for (int i = 0; i < clients; i++)
        ask(fds[i], ADD, "warm");
    for (int i = 0; i < clients; i++)
        answer(fds[i], ADD);
    printf("ready %.0f\n", clients / (now() - start));
    fflush(stdout);
    ask(fds[0], SET, "key");
    ask(fds[0], GET, "key");
    if (answer(fds[0], GET) != 64)
        return 7;
    if (!fgets(in, sizeof in, stdin))
        return 0;
    double end = now() + atof(argv[3]);
    int what = !strcmp(argv[1], "add") ? ADD : GET;
    long done = strcmp(argv[1], "barrier") ? operations(fds, clients, end, what) : barriers(fds, clients, end);
    long kept = done < MOST ? done : MOST;
    qsort(took, kept, sizeof *took, by_size);
    printf("done %ld %.1f %.1f\n", done, took[kept / 2] * 1e6, took[kept * 99 / 100] * 1e6);
    fflush(stdout);
    /* Whoever reads this has a look at the server first. */
    while (fgets(in, sizeof in, stdin)) {
    }
    return 0;
}
