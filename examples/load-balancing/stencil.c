/* Jacobi's method on a plane: every point becomes the mean of its four neighbours, step after step. Ranks have rows next to
 * each other. With an interval, every so many steps rows are dealt anew by how fast each rank was; without, they stay.
 *
 *   stencil ROWS COLUMNS STEPS [INTERVAL]
 *
 * Waiting ranks sleep instead of polling: under a limit of processor time, what is spent on waiting is missing afterwards. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_US = 50, UP = 1, DOWN = 2, ROWS_MOVE = 3 };

static int rank, size, columns;

static void wait_all(int count, MPI_Request *requests) {
    for (int done = 0;;) {
        MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
        if (done) return;
        usleep(WAIT_US);
    }
}

static void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (!memory) {
        fprintf(stderr, "stencil: failed to get memory: take fewer rows or columns\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

/* A part of the plane: its rows, and one more on either side from the neighbours. */
typedef struct {
    int first, rows;
    double *now, *next;
} Part;

static Part part_of(const int *bounds) {
    Part part = {.first = bounds[rank], .rows = bounds[rank + 1] - bounds[rank]};
    part.now = allocate((size_t)(part.rows + 2) * columns, sizeof(double));
    part.next = allocate((size_t)(part.rows + 2) * columns, sizeof(double));
    return part;
}

static void drop(Part *part) {
    free(part->now);
    free(part->next);
}

static void exchange(Part *part) {
    int up = rank ? rank - 1 : MPI_PROC_NULL, down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    double *rows = part->now;
    size_t last = (size_t)part->rows * columns;
    MPI_Request requests[4];
    MPI_Irecv(rows, columns, MPI_DOUBLE, up, DOWN, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(rows + last + columns, columns, MPI_DOUBLE, down, UP, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(rows + columns, columns, MPI_DOUBLE, up, UP, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(rows + last, columns, MPI_DOUBLE, down, DOWN, MPI_COMM_WORLD, &requests[3]);
    wait_all(4, requests);
}

static void compute(Part *part) {
    for (int row = 1; row <= part->rows; row++) {
        const double *at = part->now + (size_t)row * columns;
        double *to = part->next + (size_t)row * columns;
        /* The plane's edge is left out: it is zero, as all beyond it. */
        for (int column = 1; column < columns - 1; column++)
            to[column] = 0.25 * (at[column - 1] + at[column + 1] + at[column - columns] + at[column + columns]);
    }
    double *swap = part->now;
    part->now = part->next;
    part->next = swap;
}

/* Bounds of parts in proportion to speeds; every rank keeps a few rows, or nobody would ever learn that it is fast again. */
static void deal(int rows, const double *speeds, int *bounds) {
    double all = 0, sum = 0;
    int least = rows / size / 16 + 1;
    for (int i = 0; i < size; i++) all += speeds[i];
    bounds[0] = 0;
    for (int i = 0; i < size; i++) {
        sum += speeds[i];
        int bound = (int)lround(rows * sum / all), low = bounds[i] + least, high = rows - least * (size - 1 - i);
        bounds[i + 1] = bound < low ? low : bound > high ? high : bound;
    }
}

/* Sends every row to where it belongs now. Parts lie in the same order before and after, so each pair of ranks has at most one
 * stretch of rows in common. */
static Part move(Part *old, const int *before, const int *after) {
    Part new = part_of(after);
    MPI_Request *requests = allocate(2 * size, sizeof(MPI_Request));
    int count = 0;
    for (int other = 0; other < size; other++) {
        int from = before[rank] > after[other] ? before[rank] : after[other];
        int to = before[rank + 1] < after[other + 1] ? before[rank + 1] : after[other + 1];
        if (from < to)
            MPI_Isend(old->now + (size_t)(from - old->first + 1) * columns, (to - from) * columns, MPI_DOUBLE, other, ROWS_MOVE,
                      MPI_COMM_WORLD, &requests[count++]);
        from = after[rank] > before[other] ? after[rank] : before[other];
        to = after[rank + 1] < before[other + 1] ? after[rank + 1] : before[other + 1];
        if (from < to)
            MPI_Irecv(new.now + (size_t)(from - new.first + 1) * columns, (to - from) * columns, MPI_DOUBLE, other, ROWS_MOVE,
                      MPI_COMM_WORLD, &requests[count++]);
    }
    wait_all(count, requests);
    free(requests);
    drop(old);
    return new;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rows = argc > 3 ? atoi(argv[1]) : 0, steps = argc > 3 ? atoi(argv[3]) : 0, interval = argc > 4 ? atoi(argv[4]) : 0;
    columns = argc > 3 ? atoi(argv[2]) : 0;
    if (rows < 2 * size || columns < 3 || steps < 1 || interval < 0) {
        if (!rank) fprintf(stderr, "usage: stencil ROWS COLUMNS STEPS [INTERVAL]; at least two rows for each rank\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double *speeds = allocate(size, sizeof(double));
    int *bounds = allocate(size + 1, sizeof(int)), *anew = allocate(size + 1, sizeof(int)), moves = 0;
    for (int i = 0; i < size; i++) speeds[i] = 1;
    deal(rows, speeds, bounds);
    Part part = part_of(bounds);
    for (int row = 1; row <= part.rows; row++)
        for (int column = 1; column < columns - 1; column++)
            part.now[(size_t)row * columns + column] = (part.first + row) % 7 + column % 5;

    double started = MPI_Wtime(), since = started, spent = 0;
    for (int step = 1; step <= steps; step++) {
        exchange(&part);
        double before = MPI_Wtime();
        compute(&part);
        spent += MPI_Wtime() - before;
        if (interval && step % interval == 0 && step < steps) {
            /* A rank that waited can do more than it did, but less than its pace suggests: it computed all the faster for having
             * rested, where its share of a processor is a quota. Half-way between, step by step, gets there without swinging. */
            double speed = part.rows / (0.5 * (spent + MPI_Wtime() - since));
            MPI_Request request;
            MPI_Iallgather(&speed, 1, MPI_DOUBLE, speeds, 1, MPI_DOUBLE, MPI_COMM_WORLD, &request);
            wait_all(1, &request);
            deal(rows, speeds, anew);
            /* A difference of a few rows is chance, and moving costs, too. */
            int farthest = 0;
            for (int i = 1; i < size; i++) farthest = abs(anew[i] - bounds[i]) > farthest ? abs(anew[i] - bounds[i]) : farthest;
            if (farthest > rows / size / 10) {
                part = move(&part, bounds, anew);
                memcpy(bounds, anew, (size + 1) * sizeof(int));
                moves++;
            }
            spent = 0;
            since = MPI_Wtime();
        }
    }
    double sum = 0, total = 0;
    for (size_t i = columns; i < (size_t)(part.rows + 1) * columns; i++) sum += part.now[i];
    MPI_Request request;
    MPI_Ireduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD, &request);
    wait_all(1, &request);
    if (!rank) printf("{\"seconds\": %.3f, \"moves\": %d, \"sum\": %.6e}\n", MPI_Wtime() - started, moves, total);
    drop(&part);
    free(speeds);
    free(bounds);
    free(anew);
    return MPI_Finalize();
}
