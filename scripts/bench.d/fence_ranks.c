/* fence_ranks COUNT: as a rank of rlaunch, meets all other ranks in so many fences of the job's store. Rank 0 prints
 *   P50_us P99_us
 * of the time that a fence took. The first fences bring the ranks together and do not count. */
#include <time.h>
#include "rank.h"
#include "store_wires.h"

#define WARM 20

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const char *size = getenv("WORLD_SIZE");
    int count = argc > 1 ? atoi(argv[1]) : 0, rank = own_rank();
    if (!size || count < 1)
        return 2;
    wire = JOB;
    clients = atoi(size);
    asked = calloc(clients, sizeof *asked);
    double *took = calloc(count, sizeof *took);
    int fd = connect_one(getenv("RLAUNCH_SOCKET"), rank);
    welcomed(fd);
    for (int i = -WARM; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "fence/%d", i);
        double start = now();
        ask(fd, rank, FENCE, name);
        answer(fd, FENCE);
        if (i >= 0)
            took[i] = now() - start;
    }
    qsort(took, count, sizeof *took, by_size);
    if (rank == 0)
        printf("%.1f %.1f\n", took[count / 2] * 1e6, took[count * 99 / 100] * 1e6);
    return 0;
}
