/* SPDX-License-Identifier: Apache-2.0
 * One rank of the comparison that run.sh makes, on Open MPI: all-reduces of floats in place, back to
 * back, every result checked. Prints one JSON line from rank 0.
 *
 * Usage: mpi_allreduce SECONDS BYTES...
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUND = 31, MOST_TIMES = 20000 };

static int rank, world;

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void fail(const char *what) {
  fprintf(stderr, "mpi_allreduce: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Refills, makes one call that does not count and `calls` that do. Each works on the result of the
 * one before, so the last result tells of all: small integers times powers of two, exact. */
static void run_round(float *data, long count, int calls, double *times) {
  for (long i = 0; i < count; ++i) data[i] = (float)(rank + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  double last = 0;
  for (int i = -1; i < calls; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double now = MPI_Wtime();
    if (i >= 0) times[i] = now - last;
    last = now;
  }
  double want = 0.5 * world * (world + 1);
  for (int i = 0; i < calls; ++i) want *= world;
  for (long i = 0; i < count; ++i)
    if (data[i] != (float)want) fail("a wrong sum");
}

static long agreed(double number, long least, long most) {
  long value = number < (double)least ? least : number > (double)most ? most : (long)number;
  MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  return value;
}

static void measure(long bytes, double seconds, int is_last) {
  const long count = bytes / (long)sizeof(float);
  float *data = malloc((size_t)bytes);
  double *times = malloc(sizeof(double) * (MOST_TIMES + ROUND));
  if (!data || !times) fail("no memory");
  run_round(data, count, 2, times);
  run_round(data, count, 2, times);
  const long wanted = agreed(seconds / times[1], 5, MOST_TIMES);
  const int calls = wanted < ROUND ? (int)wanted : ROUND;
  long taken = 0;
  for (; taken < wanted; taken += calls) run_round(data, count, calls, times + taken);
  MPI_Allreduce(MPI_IN_PLACE, times, (int)taken, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(times, (size_t)taken, sizeof(double), ascending);
  if (rank == 0) {
    printf("{\"bytes\": %ld, \"us\": {\"min\": %.3f, \"median\": %.3f, \"p99\": %.3f}}%s", bytes,
           1e6 * times[0], 1e6 * times[taken / 2], 1e6 * times[taken * 99 / 100],
           is_last ? "" : ", ");
  }
  free(data);
  free(times);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (argc < 3) fail("usage: mpi_allreduce SECONDS BYTES...");
  if (rank == 0) printf("{\"ranks\": %d, \"rows\": [", world);
  for (int i = 2; i < argc; ++i) measure(atol(argv[i]), atof(argv[1]), i + 1 == argc);
  if (rank == 0) printf("]}\n");
  MPI_Finalize();
  return 0;
}
