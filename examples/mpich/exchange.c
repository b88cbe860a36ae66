/* Every rank sends a block to the next around a ring, and then a hundred times to each other at once. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 16384, ROUNDS = 100 };

int main(int argc, char **argv) {
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank) MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token += rank;
    MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (!rank) MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);

    int *out = malloc(sizeof(int) * BLOCK * size), *in = malloc(sizeof(int) * BLOCK * size);
    for (int i = 0; i < BLOCK * size; i++) out[i] = rank;
    double started = MPI_Wtime();
    for (int round = 0; round < ROUNDS; round++)
        MPI_Alltoall(out, BLOCK, MPI_INT, in, BLOCK, MPI_INT, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - started;
    int wrong = 0;
    for (int i = 0; i < BLOCK * size; i++) wrong |= in[i] != i / BLOCK;
    if (!rank)
        printf("%d ranks add up to %d; %.1f MB/s each\n", size, token,
               1e-6 * sizeof(int) * BLOCK * (size - 1) * ROUNDS / seconds);
    MPI_Finalize();
    return wrong;
}
