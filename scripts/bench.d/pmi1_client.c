// A client of PMI-1 without a library: puts a key, meets all others at a barrier, and gets the keys of all.
// PMI_FD (Hydra) or PMI_PORT and PMI_ID (rlaunch). With "idle PLACE" it puts nothing, leaves a file in PLACE, and sleeps; with "alone PLACE"
// it does so without PMI.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd, rank, size;
static char held[1 << 16];
static size_t has;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void say(const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (write(fd, text, len) != len) fail("write");
}

// Reads one line.
static void receive(char *line, size_t most) {
    for (;;) {
        char *end = memchr(held, '\n', has);
        if (end) {
            size_t len = end - held;
            if (len >= most) fail("a long line");
            memcpy(line, held, len);
            line[len] = 0;
            has -= len + 1;
            memmove(held, end + 1, has);
            return;
        }
        ssize_t came = read(fd, held + has, sizeof held - has);
        if (came <= 0) fail("read");
        has += came;
    }
}

static void expect(const char *begin, char *line, size_t most) {
    receive(line, most);
    if (strncmp(line, begin, strlen(begin))) {
        fprintf(stderr, "'%s' instead of '%s'\n", line, begin);
        exit(1);
    }
}

static void reach(void) {
    char line[2048];
    const char *given = getenv("PMI_FD"), *port = getenv("PMI_PORT");
    if (given) {
        fd = atoi(given);
        rank = atoi(getenv("PMI_RANK"));
        size = atoi(getenv("PMI_SIZE"));
        return;
    }
    if (!port || !getenv("PMI_ID")) fail("neither PMI_FD nor PMI_PORT");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(strrchr(port, ':') + 1)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    say("cmd=initack pmiid=%s\n", getenv("PMI_ID"));
    for (int n = 0; n < 4; n++) {
        receive(line, sizeof line);
        sscanf(line, "cmd=set size=%d", &size);
        sscanf(line, "cmd=set rank=%d", &rank);
    }
}

static void stay(const char *place) {
    char file[1024];
    snprintf(file, sizeof file, "%s/%d", place, getpid());
    close(open(file, O_CREAT | O_WRONLY, 0600));
    for (;;) pause();
}

int main(int argc, char **argv) {
    char line[2048], name[512], value[64];
    int is_idle = argc > 2 && !strcmp(argv[1], "idle");
    if (argc > 2 && !strcmp(argv[1], "alone")) stay(argv[2]);
    reach();
    say("cmd=init pmi_version=1 pmi_subversion=1\n");
    expect("cmd=response_to_init", line, sizeof line);
    say("cmd=get_my_kvsname\n");
    expect("cmd=my_kvsname", line, sizeof line);
    char *given = strstr(line, " kvsname=");
    if (!given || sscanf(given, " kvsname=%511s", name) != 1) fail("no kvsname");
    if (!is_idle) {
        say("cmd=put kvsname=%s key=addr-%d value=%064d\n", name, rank, rank);
        expect("cmd=put_result rc=0", line, sizeof line);
    }
    say("cmd=barrier_in\n");
    expect("cmd=barrier_out", line, sizeof line);
    if (is_idle) stay(argv[2]);
    for (int of = 0; of < size; of++) {
        say("cmd=get kvsname=%s key=addr-%d\n", name, of);
        expect("cmd=get_result rc=0", line, sizeof line);
        char *found = strstr(line, "value=");
        snprintf(value, sizeof value, "%d", of);
        if (!found || atoi(found + strlen("value=")) != of) fail("another value");
    }
    say("cmd=finalize\n");
    expect("cmd=finalize_ack", line, sizeof line);
    return 0;
}
