/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench index: what an index costs to keep and to search, as it grows. */

#include "bench.h"

#include "lychee-cache-private.h"
#include "lychee-cpu-kernels.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define REAL_TOKENS 512
#define STEP 16
#define SEARCHES 64

/* Microseconds that this thread has worked: what other programs do does not count. */
static double
worked (void)
{
  struct timespec t;

  clock_gettime (CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Real keys and values of one layer, of one head or of some side by side, repeated with noise. */
typedef struct {
  guint dim, n;
  float *rows; /* [n][2][dim] */
  GRand *rand;
} Source;

static void
source_init (Source *source, LycheeModel *model, LycheeForward *forward, guint layer, guint n_heads)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  g_autoptr (LycheeCache) cache = bench_new_cache (model, REAL_TOKENS);
  guint head_dim = lychee_model_get_head_dim (model);
  LycheeRows rows;

  bench_fill (model, forward, cache, REAL_TOKENS);
  source->dim = n_heads * head_dim;
  source->n = REAL_TOKENS;
  source->rows = g_new (float, (gsize) source->n * 2 * source->dim);
  source->rand = g_rand_new_with_seed (7);
  for (guint i = 0; i < source->n * n_heads; i++) {
    guint head = i % n_heads;
    float *to = source->rows + (gsize) (i / n_heads) * 2 * source->dim + head * head_dim;
    const guint16 *key = lychee_cache_get_writable (cache, layer, head, i / n_heads);

    lychee_cache_get_rows (cache, layer, head, &rows);
    kernels->f16_to_f32 (key, to, head_dim);
    kernels->f16_to_f32 (key + rows.value_offset, to + source->dim, head_dim);
  }
}

static void
source_write (Source *source, LycheeCache *cache, guint first, guint n)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  g_autoptr (GError) error = NULL;
  LycheeRows rows;

  if (!lychee_cache_reserve (cache, n, &error))
    bench_fail ("%s", error->message);
  lychee_cache_get_rows (cache, 0, 0, &rows);
  for (guint t = first; t < first + n; t++) {
    const float *from =
        source->rows + (gsize) g_rand_int_range (source->rand, 0, source->n) * 2 * source->dim;
    guint16 *to = lychee_cache_get_writable (cache, 0, 0, t);

    for (guint part = 0; part < 2; part++) {
      float row[256];

      for (guint i = 0; i < source->dim; i++)
        row[i] = from[part * source->dim + i] *
                 (0.7f + 0.6f * (g_rand_int (source->rand) >> 8) / (float) (1 << 24));
      kernels->f32_to_f16 (row, to + part * rows.value_offset, source->dim);
    }
  }
  lychee_cache_commit (cache, n);
}

/* Microseconds of a search with the queries of a group, which are keys themselves. */
static double
time_search (Source *source, LycheeCache *cache, LycheeIndex *index, guint group, guint budget)
{
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  g_autofree float *q = g_new (float, (gsize) group * source->dim);
  double total = 0;
  LycheeRows rows;

  lychee_cache_get_rows (cache, 0, 0, &rows);
  for (guint i = 0; i < SEARCHES; i++) {
    LycheeIndexQuery query = {
      .n_queries = group, .q = q, .budget = budget, .rest = TRUE, .logits = TRUE
    };
    double before;

    for (guint g = 0; g < group; g++) {
      guint at = g_rand_int_range (source->rand, 0, source->n);

      memcpy (q + (gsize) g * source->dim, source->rows + (gsize) at * 2 * source->dim,
          source->dim * sizeof *q);
    }
    before = worked ();
    lychee_index_search (index, &rows, &query, selection);
    total += worked () - before;
  }
  return total / SEARCHES;
}

int
bench_index (int argc, char **argv)
{
  Bench bench = { 0 };
  gint n_items = 131072, layer = 1, n_heads = 1, budget = LYCHEE_DEFAULT_BUDGET;
  gboolean by_chunk = FALSE;
  const GOptionEntry entries[] = { { "items", 'n', 0, G_OPTION_ARG_INT, &n_items,
                                       "tokens to index (default 131072)", "N" },
    { "layer", 'l', 0, G_OPTION_ARG_INT, &layer, "whose keys to take (default 1)", "N" },
    { "heads", 0, 0, G_OPTION_ARG_INT, &n_heads,
        "as many KV heads side by side, for an index of so many times the head size", "N" },
    { "budget", 'b', 0, G_OPTION_ARG_INT, &budget, "tokens that a search finds", "N" },
    { "chunks", 0, 0, G_OPTION_ARG_NONE, &by_chunk, "granularity chunk, 12 tokens each", NULL },
    { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = NULL;
  g_autoptr (LycheeForward) forward = NULL;
  g_autoptr (LycheeCache) cache = NULL;
  g_autoptr (LycheeIndex) index = NULL;
  g_autoptr (GError) error = NULL;
  LycheeIndexParams params;
  Source source;
  double spent = 0, longest = 0;
  guint step, since = 0, next = 1024, group;

  bench_parse (&bench, entries,
      "Streams keys of one layer and KV head, real ones repeated with noise, into an index, and "
      "prints "
      "what that costs whenever their number has doubled.",
      &argc, &argv);
  n_items = CLAMP (n_items, 1024, (gint) 1 << 23);
  model = bench_load (&bench);
  if (layer < 0 || layer >= (gint) lychee_model_get_n_layers (model))
    bench_fail ("--layer: the model has %u layers", lychee_model_get_n_layers (model));
  if (n_heads < 1 || n_heads > (gint) lychee_model_get_n_kv_heads (model) ||
      n_heads * lychee_model_get_head_dim (model) > 256)
    bench_fail ("--heads: the model has %u KV heads of size %u, and an index takes a size of 256",
        lychee_model_get_n_kv_heads (model), lychee_model_get_head_dim (model));
  executor = lychee_executor_get (bench.threads);
  forward = lychee_forward_new (model, executor);
  source_init (&source, model, forward, layer, n_heads);
  group = lychee_model_get_n_heads (model) / lychee_model_get_n_kv_heads (model);
  cache = lychee_cache_new (1, 1, source.dim, n_items + STEP, 0);
  params = (LycheeIndexParams){
    .granularity = by_chunk ? LYCHEE_GRANULARITY_CHUNK : LYCHEE_GRANULARITY_TOKEN,
    .head_dim = source.dim,
    .scale = 1 / sqrtf (source.dim),
  };
  index = lychee_index_new (&params);
  step = by_chunk ? 12 : STEP;
  if (!bench.json)
    printf (
        "   tokens | us a token  longest us |  %% of cache   depth  coarse  leaves | search us\n");
  for (guint at = 0; at + step <= (guint) n_items; at += step) {
    LycheeRows rows;
    double before, took;

    source_write (&source, cache, at, step);
    lychee_cache_get_rows (cache, 0, 0, &rows);
    before = worked ();
    if (!lychee_index_append (index, &rows, at, step, &error))
      bench_fail ("%s", error->message);
    took = worked () - before;
    spent += took;
    longest = MAX (longest, took);
    since += step;
    if (at + step >= next || at + 2 * step > (guint) n_items) {
      double share = 100.0 * lychee_index_get_bytes (index) /
                     ((double) (at + step) * lychee_cache_get_token_bytes (cache));
      double search = time_search (&source, cache, index, group, budget);
      LycheeIndexStats stats;

      lychee_index_get_stats (index, &stats);
      if (bench.json)
        printf (
            "{\"tokens\": %u, \"granularity\": \"%s\", \"head_dim\": %u, \"us_per_token\": %.3f, "
            "\"longest_append_us\": %.1f, \"percent_of_cache\": %.3f, \"depth\": %u, "
            "\"coarse\": %u, \"leaves\": %u, \"search_us\": %.2f, \"budget\": %d}\n",
            at + step, by_chunk ? "chunk" : "token", source.dim, spent / since, longest, share,
            stats.depth, stats.n_coarse, stats.n_leaves, search, budget);
      else
        printf ("%9u | %10.2f %11.1f | %10.2f %8u %7u %7u | %9.2f\n", at + step, spent / since,
            longest, share, stats.depth, stats.n_coarse, stats.n_leaves, search);
      fflush (stdout);
      spent = longest = 0;
      since = 0;
      next *= 2;
    }
  }
  g_rand_free (source.rand);
  g_free (source.rows);
  return 0;
}
