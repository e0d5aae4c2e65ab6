/* store_floor [PATH]: the least that a server of torch's store can do: one epoll loop over TCP, or over a unix socket at PATH, a hash
 * table, no limits, no checks, no guard. The rest is the kernel's share, which is the floor of the `store` rows. Says its port (of
 * a unix socket 0) and serves until stdin ends. It knows what store_load asks of torch's: set, get, add, and a wait for one key; every
 * value is the last one that was set, of 64 bytes at least. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MANY 256

struct client {
    int fd;
    size_t have;
    char in[8192];
    struct client *next_waiter;
};

struct key {
    char name[64];
    int64_t number;
    int is_set;
    struct client *waiters;
    struct key *next;
};

static struct key *table[4096];
static char value[4096];
static uint64_t value_len = 64;

static struct key *find(const char *name, size_t len)
{
    unsigned hash = 0;
    for (size_t i = 0; i < len; i++)
        hash = hash * 31 + name[i];
    struct key **slot = &table[hash & 4095];
    for (struct key *key = *slot; key; key = key->next)
        if (!strncmp(key->name, name, len) && !key->name[len])
            return key;
    struct key *key = calloc(1, sizeof *key);
    memcpy(key->name, name, len);
    key->next = *slot;
    return *slot = key;
}

static uint64_t number_at(const char *at)
{
    uint64_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

static void send_all(int fd, const char *bytes, size_t len)
{
    if (write(fd, bytes, len) != (ssize_t)len)
        exit(4); /* A client has one request under way: there is room. */
}

static void set(const char *key_name, size_t key_len, uint64_t len)
{
    struct key *key = find(key_name, key_len);
    value_len = len < 64 ? 64 : len;
    key->is_set = 1;
    for (struct client *one = key->waiters; one; one = one->next_waiter)
        send_all(one->fd, "", 1);
    key->waiters = NULL;
}

/* Handles the request at `at`. Returns its length, or 0 if more bytes are needed. */
static size_t request(struct client *from, const char *at, size_t left, char *out, size_t *said)
{
    if (at[0] == 0)
        return left < 5 ? 0 : 5;
    size_t head = at[0] == 6 ? 17 : 9;
    if (left < head)
        return 0;
    uint64_t len = number_at(at + head - 8);
    if (left < head + len)
        return 0;
    const char *name = at + head;
    if (at[0] == 6) {
        struct key *key = find(name, len);
        if (key->is_set) {
            out[(*said)++] = 0;
        } else {
            from->next_waiter = key->waiters;
            key->waiters = from;
        }
        return head + len;
    }
    if (at[0] == 3) {
        memcpy(out + *said, &value_len, 8);
        memcpy(out + *said + 8, value, value_len);
        *said += 8 + value_len;
        return head + len;
    }
    if (left < head + len + 8)
        return 0;
    uint64_t operand = number_at(name + len);
    if (at[0] == 4) {
        int64_t sum = find(name, len)->number += (int64_t)operand;
        memcpy(out + *said, &sum, 8);
        *said += 8;
        return head + len + 8;
    }
    if (at[0] != 1)
        exit(9);
    if (left < head + len + 8 + operand)
        return 0;
    set(name, len, operand);
    return head + len + 8 + operand;
}

static void serve(struct client *from)
{
    ssize_t got = read(from->fd, from->in + from->have, sizeof from->in - from->have);
    if (got <= 0) {
        close(from->fd);
        free(from);
        return;
    }
    from->have += got;
    size_t done = 0, said = 0, used;
    char out[16384];
    while (done < from->have && (used = request(from, from->in + done, from->have - done, out, &said)))
        done += used;
    memmove(from->in, from->in + done, from->have - done);
    from->have -= done;
    if (said)
        send_all(from->fd, out, said);
}

/* Listens; says the port, or 0 for a unix socket. */
static int listen_at(const char *path)
{
    int listener = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un named = {.sun_family = AF_UNIX};
    socklen_t len = sizeof own;
    if (path)
        strncpy(named.sun_path, path, sizeof named.sun_path - 1);
    if (path ? bind(listener, (void *)&named, sizeof named) : bind(listener, (void *)&own, sizeof own))
        exit(2);
    if (listen(listener, 4096) || (!path && getsockname(listener, (void *)&own, &len)))
        exit(2);
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
    return listener;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : NULL;
    int one = 1, own = listen_at(path), set_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &own}, events[MANY];
    epoll_ctl(set_fd, EPOLL_CTL_ADD, own, &event);
    event.data.ptr = NULL;
    epoll_ctl(set_fd, EPOLL_CTL_ADD, 0, &event);
    memset(value, 'v', sizeof value);
    for (;;) {
        int count = epoll_wait(set_fd, events, MANY, -1);
        for (int i = 0; i < count; i++) {
            if (!events[i].data.ptr)
                return 0;
            if (events[i].data.ptr != &own) {
                serve(events[i].data.ptr);
                continue;
            }
            struct client *client = calloc(1, sizeof *client);
            client->fd = accept4(own, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (!path)
                setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            event.data.ptr = client;
            epoll_ctl(set_fd, EPOLL_CTL_ADD, client->fd, &event);
        }
    }
}
