/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* How fast the CPU kernels are on one thread, against a plain read of the same memory:
 *
 *   kernel-bench [SET...]
 *
 * KERNEL_BENCH_HUGE=1 asks for huge pages, which show in the gathers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lychee-cpu-kernels.h"

#define BUFFER_BYTES ((gsize) 32 << 20)

static guint32 seed = 1;

static guint32
next_random (void)
{
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return seed;
}

static double
read_memory (const void *memory, gsize bytes)
{
  typedef guint64 Line __attribute__ ((vector_size (64)));
  const Line *line = memory;
  Line sum[4] = { { 0 } };

  for (gsize i = 0; i + 4 <= bytes / sizeof *line; i += 4)
    for (guint j = 0; j < 4; j++)
      sum[j] ^= line[i + j];
  sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
  return (double) sum[0][0];
}

typedef struct {
  const LycheeCpuKernels *kernels;
  LycheeQueries queries;
  LycheeSoftmax softmax;
  const guint16 *memory;
  const guint16 **rows;
  guint n_rows;
  gsize value_offset;
  float *floats, *z;
  gint8 *bytes;
} Bench;

static volatile double sink;

static void
run_read (Bench *bench)
{
  sink = read_memory (bench->memory, BUFFER_BYTES);
}

static void
run_attend (Bench *bench)
{
  bench->kernels->attend (&bench->queries, bench->memory,
      bench->memory + (gsize) bench->n_rows * bench->queries.head_dim, bench->n_rows, NULL,
      &bench->softmax);
}

static void
run_gather (Bench *bench)
{
  bench->kernels->attend_gather (
      &bench->queries, bench->rows, bench->value_offset, bench->n_rows, &bench->softmax);
}

static void
run_groups (Bench *bench)
{
  bench->kernels->attend_groups (&bench->queries, bench->floats,
      bench->floats + (gsize) bench->n_rows * bench->queries.head_dim, bench->z, bench->n_rows,
      &bench->softmax);
}

static void
run_nodes (Bench *bench)
{
  bench->kernels->score_nodes (&bench->queries, bench->floats,
      bench->floats + (gsize) bench->n_rows * bench->queries.head_dim, bench->z, bench->n_rows,
      bench->z + bench->n_rows, bench->n_rows);
}

static void
run_leaves (Bench *bench)
{
  bench->kernels->score_leaves (&bench->queries, bench->bytes, bench->z, bench->z, bench->n_rows,
      bench->z + bench->n_rows, bench->n_rows);
}

static void
run_dots (Bench *bench)
{
  bench->kernels->dot_rows (
      bench->rows, bench->n_rows, bench->queries.q, 2, bench->queries.head_dim, bench->z);
}

static void
run_sums (Bench *bench)
{
  bench->kernels->sum_rows (
      bench->rows, bench->n_rows, bench->queries.head_dim, bench->softmax.o, NULL);
}

static void
run_from_f32 (Bench *bench)
{
  bench->kernels->f32_to_f16 (
      bench->floats, (guint16 *) bench->bytes, (gsize) bench->n_rows * bench->queries.head_dim);
}

/* Shortest time of some runs, in seconds. */
static double
measure (void (*run) (Bench *), Bench *bench)
{
  double best = 1e9;
  gint64 end = g_get_monotonic_time () + 200000;
  guint repeat = 1;

  do {
    gint64 start = g_get_monotonic_time (), used;

    for (guint i = 0; i < repeat; i++)
      run (bench);
    used = g_get_monotonic_time () - start;
    if (used < 200)
      repeat *= 4;
    else
      best = MIN (best, used * 1e-6 / repeat);
  } while (g_get_monotonic_time () < end);
  return best;
}

static int
compare_doubles (const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return (x > y) - (x < y);
}

/* Median of calls, each over other rows out of the @n_all at hand, in seconds. */
static double
measure_scattered (Bench *bench, gsize n_all)
{
  double seconds[301];

  for (guint turn = 0; turn < G_N_ELEMENTS (seconds); turn++) {
    gint64 start;

    for (guint i = 0; i < bench->n_rows; i++)
      bench->rows[i] = bench->memory + next_random () % n_all * bench->queries.head_dim;
    start = g_get_monotonic_time ();
    run_gather (bench);
    seconds[turn] = (double) (g_get_monotonic_time () - start) * 1e-6;
  }
  qsort (seconds, G_N_ELEMENTS (seconds), sizeof *seconds, compare_doubles);
  return seconds[G_N_ELEMENTS (seconds) / 2];
}

static void
report (const Bench *bench, const char *what, double seconds, double bytes)
{
  double flops = 4.0 * bench->queries.n_queries * bench->queries.head_dim * bench->n_rows;

  g_print ("%-10s %-26s q %4u d %3u n %6u  %8.2f ns/row %6.1f GB/s %7.1f Gflop/s\n",
      bench->kernels ? bench->kernels->name : "-", what, bench->queries.n_queries,
      bench->queries.head_dim, bench->n_rows, seconds * 1e9 / bench->n_rows, bytes / seconds * 1e-9,
      flops / seconds * 1e-9);
}

static void
bench_set (const LycheeCpuKernels *kernels, const guint16 *memory, float *floats)
{
  static const struct {
    guint n_queries, head_dim, n_rows; /* 0: all memory */
  } dense[] = {
    { 3, 64, 0 },
    { 3, 64, 1024 },
    { 1, 64, 0 },
    { 8, 64, 0 },
    { 4, 128, 0 },
    { 4, 80, 0 },
    { 4, 256, 0 },
    { 9, 64, 4096 },
    { 12, 64, 4096 },
    { 36, 64, 4096 },
    { 48, 128, 4096 },
    { 48, 256, 4096 },
    { 1536, 64, 1024 },
  };
  g_autofree float *q = g_new (float, 2000 * 256);
  g_autofree float *o = g_new (float, 2000 * 256);
  g_autofree float *ml = g_new (float, 4000);
  g_autofree const guint16 **rows = g_new (const guint16 *, 1024);
  Bench bench = { .kernels = kernels, .memory = memory, .rows = rows, .floats = floats };

  for (guint i = 0; i < 2000 * 256; i++)
    q[i] = (float) (gint32) next_random () * 0x1p-31f;
  bench.queries.q = q;
  bench.softmax = (LycheeSoftmax){ ml, ml + 2000, o };

  for (guint i = 0; i < G_N_ELEMENTS (dense); i++) {
    gsize row_bytes = 4 * (gsize) dense[i].head_dim;

    bench.queries.n_queries = dense[i].n_queries;
    bench.queries.head_dim = dense[i].head_dim;
    bench.queries.scale = 1 / sqrtf (dense[i].head_dim);
    bench.n_rows = dense[i].n_rows ? dense[i].n_rows : BUFFER_BYTES / row_bytes;
    lychee_softmax_init (&bench.softmax, dense[i].n_queries, dense[i].head_dim);
    report (&bench, "attend", measure (run_attend, &bench), (double) bench.n_rows * row_bytes);
  }

  for (guint head_dim = 64; head_dim <= 128; head_dim *= 2) {
    gsize n_all = BUFFER_BYTES / 4 / head_dim;

    bench.queries.n_queries = 3;
    bench.queries.head_dim = head_dim;
    bench.n_rows = 1024;
    bench.value_offset = n_all * head_dim;
    lychee_softmax_init (&bench.softmax, 3, head_dim);
    for (guint i = 0; i < bench.n_rows; i++)
      rows[i] = memory + next_random () % n_all * head_dim;
    report (&bench, "attend_gather in cache", measure (run_gather, &bench),
        (double) bench.n_rows * 4 * head_dim);
    report (&bench, "attend_gather", measure_scattered (&bench, n_all),
        (double) bench.n_rows * 4 * head_dim);
  }

  bench.queries.head_dim = 64;
  bench.queries.scale = 0.125f;
  bench.n_rows = 512;
  bench.z = floats + 512 * 64 * 4;
  bench.bytes = (gint8 *) (bench.z + 2000 * 520);
  lychee_softmax_init (&bench.softmax, 3, 64);
  report (&bench, "attend_groups", measure (run_groups, &bench), 512. * 512);
  report (&bench, "score_nodes", measure (run_nodes, &bench), 512. * 512);
  report (&bench, "score_leaves", measure (run_leaves, &bench), 512. * 64);
  report (&bench, "dot_rows", measure (run_dots, &bench), 512. * 128);
  report (&bench, "sum_rows", measure (run_sums, &bench), 512. * 128);
  report (&bench, "f32_to_f16", measure (run_from_f32, &bench), 512. * 384);
  bench.queries.n_queries = 36;
  report (&bench, "score_leaves", measure (run_leaves, &bench), 512. * 64);
}

int
main (int argc, char **argv)
{
  guint16 *memory = aligned_alloc ((gsize) 2 << 20, BUFFER_BYTES);
  float *floats = aligned_alloc (64, BUFFER_BYTES);
  const LycheeCpuKernels *const *list = lychee_cpu_kernels_list ();
  Bench bench = { .memory = memory, .n_rows = BUFFER_BYTES / 256 };

  if (g_getenv ("KERNEL_BENCH_HUGE"))
    madvise (memory, BUFFER_BYTES, MADV_HUGEPAGE);
  for (gsize i = 0; i < BUFFER_BYTES / 2; i++)
    memory[i] = (guint16) (0x3000 | (next_random () & 0x8bff));
  for (gsize i = 0; i < BUFFER_BYTES / 4; i++)
    floats[i] = (float) (gint32) next_random () * 0x1p-31f;

  report (&bench, "read", measure (run_read, &bench), (double) BUFFER_BYTES);
  for (guint i = 0; list[i]; i++) {
    gboolean wanted = argc == 1 && list[i] != lychee_cpu_kernels_get_reference ();

    for (int a = 1; a < argc; a++)
      wanted |= g_str_equal (argv[a], list[i]->name);
    if (wanted)
      bench_set (list[i], memory, floats);
  }
  free (memory);
  free (floats);
  return 0;
}
