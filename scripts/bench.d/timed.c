/* timed SECONDS [-i FILE] [-o FILE] -- COMMAND [ARG...]
 *
 * One sample of the benchmark: how long COMMAND took, seen from outside, and what it left behind. A separate small program,
 * because an interpreter that forks and polls would add half a millisecond to samples of one.
 *
 * It adopts orphans (subreaper), so processes that outlive COMMAND are counted and killed here. Prints one line:
 *   wall_ns cpu_us code left timed_out
 * where code is what a shell would show and left counts processes that are still there 50 ms after COMMAND's end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PIDS 65536

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    (void)sig;
    interrupted = 1;
}

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int parent_of(int pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *end = strrchr(text, ')'); /* a command may contain spaces and brackets */
    int parent = 0;
    if (end)
        sscanf(end + 2, "%*c %d", &parent);
    return parent;
}

/* Kills every descendant once and says how many. A process that is forked meanwhile is found by the next call. */
static int kill_descendants(void)
{
    static int pid[MAX_PIDS], parent[MAX_PIDS];
    static char ours[MAX_PIDS];
    int n = 0, grew = 1;
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (struct dirent *entry; (entry = readdir(proc)) && n < MAX_PIDS;) {
        int id = atoi(entry->d_name);
        if (id > 0) {
            pid[n] = id;
            parent[n] = parent_of(id);
            ours[n++] = 0;
        }
    }
    closedir(proc);
    while (grew) {
        grew = 0;
        for (int i = 0; i < n; i++) {
            if (ours[i])
                continue;
            int child = parent[i] == getpid();
            for (int j = 0; j < n && !child; j++)
                child = ours[j] && parent[i] == pid[j];
            if (child)
                ours[i] = 1, grew = 1;
        }
    }
    int killed = 0;
    for (int i = 0; i < n; i++)
        if (ours[i])
            killed += kill(pid[i], SIGKILL) == 0;
    return killed;
}

static void redirect(const char *file, int flags, int fd)
{
    int opened = open(file ? file : "/dev/null", flags, 0600);
    if (opened < 0) {
        perror(file);
        _exit(2);
    }
    dup2(opened, fd);
    close(opened);
}

/* Reaps for up to limit_ms; true once nothing of COMMAND is left. */
static int reap_all(long limit_ms)
{
    long long end = now_ns() + limit_ms * 1000000LL;
    for (;;) {
        pid_t got = waitpid(-1, NULL, WNOHANG | __WALL);
        if (got < 0 && errno == ECHILD)
            return 1;
        if (got <= 0) {
            if (now_ns() >= end)
                return 0;
            usleep(100);
        }
    }
}

int main(int argc, char **argv)
{
    const char *in = NULL, *out = NULL;
    int opt;
    if (argc < 4)
        return 2;
    double seconds = atof(argv[1]);
    argv++, argc--;
    while ((opt = getopt(argc, argv, "+i:o:")) != -1) {
        if (opt == 'i')
            in = optarg;
        else if (opt == 'o')
            out = optarg;
        else
            return 2;
    }
    char **command = argv + optind;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);

    /* Everything that can be done before the clock starts is done before: this process takes the descriptors that the
     * command shall have, and keeps its own answer on a copy of stdout. */
    int answer = fcntl(1, F_DUPFD_CLOEXEC, 10);
    redirect(in, O_RDONLY, 0);
    redirect(out, O_WRONLY | O_CREAT | O_TRUNC, 1);
    if (!getenv("BENCH_VERBOSE"))
        redirect(NULL, O_WRONLY, 2);

    long long start = now_ns();
    pid_t child = vfork();
    if (child == 0) {
        execvp(command[0], command);
        _exit(127);
    }
    if (child < 0)
        return 2;
    struct pollfd exits = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
    int timed_out = 0;
    long long deadline = start + (long long)(seconds * 1e9);
    for (;;) {
        long long left_ms = (deadline - now_ns()) / 1000000 + 1;
        int ready = interrupted ? 0 : poll(&exits, 1, left_ms > 0 ? (int)left_ms : 0);
        if (ready > 0)
            break;
        if (ready == 0 || interrupted) {
            timed_out = 1;
            break;
        }
    }
    long long wall = now_ns() - start;

    int status = 0, left = 0;
    if (timed_out) {
        do
            kill_descendants();
        while (!reap_all(200) && now_ns() < deadline + 10000000000LL);
    } else {
        waitpid(child, &status, 0);
        while (!reap_all(50)) {
            int found = kill_descendants();
            left = found > left ? found : left;
        }
    }
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    long long cpu = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    dprintf(answer, "%lld %lld %d %d %d\n", wall, cpu, code, left, timed_out);
    return 0;
}
