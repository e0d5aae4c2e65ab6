// An MPI program: what most programs do first, and with "barrier N" the microseconds of a barrier.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, sum = 0, times = argc > 2 && !strcmp(argv[1], "barrier") ? atoi(argv[2]) : 0;
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int n = 0; n < times; n++) MPI_Barrier(MPI_COMM_WORLD);
    if (times && rank == 0) printf("%.1f\n", (MPI_Wtime() - begin) / times * 1e6);
    MPI_Finalize();
    return 0;
}
