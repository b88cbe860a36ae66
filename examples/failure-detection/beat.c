/* Every rank passes a block on around a ring, all the time, and all agree on a sum: whoever is missing is missed at once. The
 * first rank says every quarter of a second that things go on. Runs for so many seconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 1024 };

int main(int argc, char **argv) {
    int rank, size;
    double until = argc > 1 ? atof(argv[1]) : 10, now = 0, said = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double started = MPI_Wtime();
    static int out[BLOCK], in[BLOCK];
    for (long step = 1; now < until; step++) {
        MPI_Sendrecv(out, BLOCK, MPI_INT, (rank + 1) % size, 0, in, BLOCK, MPI_INT, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* The greatest of all clocks, so that all ranks end after the same step. */
        now = MPI_Wtime() - started;
        MPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (!rank && now >= said + 0.25) {
            printf("beat %ld\n", step);
            fflush(stdout);
            said = now;
        }
    }
    return MPI_Finalize();
}
