/* The wires that store_load speaks: torch's TCPStore (2.x), redis's, and rlaunch's own to a space of its store. Each request of a client
 * is answered before its next; only torch's SET has no answer. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum wire { TORCH, REDIS, JOB, GENERATION };
enum what { SET = 1, GET = 3, ADD = 4, WAIT = 6, FENCE = 100 };

#define VALUE 64

static enum wire wire;
static char out[1024], in[8192];
/* How many clients there are: all of them take part in a fence. */
static int clients;
/* Numbers of each client's requests on the wire of rlaunch. */
static uint64_t *asked;

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

static char *put(char *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

static char *put32(char *at, uint32_t number)
{
    return put(at, &number, 4);
}

static char *put64(char *at, uint64_t number)
{
    return put(at, &number, 8);
}

static char *text64(char *at, const char *bytes, uint64_t len)
{
    return put(put64(at, len), bytes, len);
}

static char *text32(char *at, const char *bytes, uint32_t len)
{
    return put(put32(at, len), bytes, len);
}

static char *ask_torch(char *end, enum what what, const char *key, const char *value)
{
    *end++ = (char)what;
    if (what == WAIT)
        end = put64(end, 1);
    end = text64(end, key, strlen(key));
    if (what == ADD)
        end = put64(end, 1);
    return what == SET ? text64(end, value, VALUE) : end;
}

static char *ask_redis(char *end, enum what what, const char *key, const char *value)
{
    size_t len = strlen(key);
    if (what == GET)
        return end + sprintf(end, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", len, key);
    if (what == ADD)
        return end + sprintf(end, "*3\r\n$6\r\nINCRBY\r\n$%zu\r\n%s\r\n$1\r\n1\r\n", len, key);
    if (what != SET)
        exit(5);
    return end + sprintf(end, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%d\r\n%.*s\r\n", len, key, VALUE, VALUE, value);
}

/* common/protocol/src/wire/frozen/client: length, kind, number, space, operation. */
static char *ask_own(char *end, int i, enum what what, const char *key, const char *value)
{
    static const char operations[] = {[SET] = 3, [GET] = 1, [ADD] = 5, [WAIT] = 10, [FENCE] = 19};
    char *length = end;
    end = put64(put(put32(end, 0), "\1", 1), ++asked[i]);
    *end++ = wire == GENERATION;
    *end++ = operations[what];
    if (what == WAIT)
        end = put32(end, 1);
    end = text32(end, key, strlen(key));
    if (what == ADD)
        end = put64(end, 1);
    if (what == SET)
        end = text32(end, value, VALUE);
    if (what == FENCE)
        end = put32(put32(put32(put32(put32(put32(end, 1), 0), clients - 1), 1), i), i);
    if (what == WAIT || what == FENCE)
        end = put64(end, UINT64_MAX);
    put32(length, end - length - 4);
    return end;
}

/* Client number i asks on its connection. */
static void ask(int fd, int i, enum what what, const char *key)
{
    char value[VALUE], *end;
    memset(value, 'v', sizeof value);
    if (wire == TORCH)
        end = ask_torch(out, what, key, value);
    else if (wire == REDIS)
        end = ask_redis(out, what, key, value);
    else
        end = ask_own(out, i, what, key, value);
    send_all(fd, out, end - out);
}

static int64_t answer_torch(int fd, enum what what)
{
    uint64_t number = 0;
    if (what == SET)
        return 0;
    receive(fd, &number, what == WAIT ? 1 : 8);
    if (what == GET) {
        if (number > sizeof in)
            exit(6);
        receive(fd, in, number);
    }
    return (int64_t)number;
}

/* One answer is under way, so what comes at once is of it; its end is that of a line, and that of a value. */
static int64_t answer_redis(int fd, enum what what)
{
    size_t have = 0, whole = 1;
    int64_t number = 0;
    while (have < whole) {
        ssize_t got = read(fd, in + have, sizeof in - 1 - have);
        if (got <= 0)
            exit(3);
        have += got;
        in[have] = 0;
        char *end = strchr(in, '\n');
        if (in[0] == '-')
            exit(5);
        number = atoll(in + 1);
        whole = !end ? have + 1 : (size_t)(end + 1 - in) + (what == GET ? number + 2 : 0);
    }
    return number;
}

static int64_t answer_own(int fd, enum what what)
{
    uint32_t len;
    int64_t number = 0;
    receive(fd, &len, 4);
    if (len < 10 || len > sizeof in)
        exit(6);
    receive(fd, in, len);
    /* Kind and number, then the result: a flag, the length and the value; a number; or done. */
    if (in[0] != 1 || in[9] != (what == GET ? 3 : what == ADD ? 5 : 1)) {
        fprintf(stderr, "store_load: it was refused\n");
        exit(7);
    }
    if (what == GET)
        return len - 15;
    if (what == ADD)
        memcpy(&number, in + 10, 8);
    return number;
}

static int64_t answer(int fd, enum what what)
{
    return wire == TORCH ? answer_torch(fd, what) : wire == REDIS ? answer_redis(fd, what) : answer_own(fd, what);
}

static int connected(int family, const void *to, socklen_t len)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, to, len)) {
        perror("store_load: connect");
        exit(2);
    }
    return fd;
}

/* Connects to the unix socket at `path`, or to MASTER_ADDR:MASTER_PORT. */
static int connect_one(const char *path, int i)
{
    int fd, one = 1;
    if (path) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        strncpy(to.sun_path, path, sizeof to.sun_path - 1);
        fd = connected(AF_UNIX, &to, sizeof to);
    } else {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("MASTER_PORT")))};
        if (inet_pton(AF_INET, getenv("MASTER_ADDR"), &to.sin_addr) != 1)
            exit(2);
        fd = connected(AF_INET, &to, sizeof to);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (wire == TORCH)
        send_all(fd, "\0\xce\xf7\x85\x3c", 5);
    if (wire >= JOB)
        send_all(fd, out, put32(put32(put(out, "rlaunch\n", 8), 1), i) - out);
    return fd;
}

/* The greeting of a server, which a client need not wait for. */
static void welcomed(int fd)
{
    if (wire >= JOB)
        receive(fd, in, 16);
}
