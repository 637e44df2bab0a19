/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* LycheeAttention, step by step as a graph's nodes call it: sparse attention that reads all is
 * dense attention, and nothing depends on how many threads share the steps. */

#include <math.h>
#include <string.h>

#include "lychee-attention.h"
#include "lychee-cpu-kernels.h"
#include "lychee-index-private.h"

#define N_LAYERS 2
#define N_HEADS 6
#define N_KV_HEADS 2
#define GROUP (N_HEADS / N_KV_HEADS)
#define DIM 64
#define SINKS 16
#define WINDOW 64
#define CHUNK 12

/* Queries, keys and values of a stream of tokens. */
typedef struct {
  guint n;
  float *q, *k, *v; /* [layers][n][heads][dim] */
} Stream;

static float *
random_rows (GRand *rand, gsize n, float size)
{
  float *x = g_new (float, n *DIM);

  for (gsize i = 0; i < n; i++) {
    /* Some directions are had by many rows. */
    guint direction = g_rand_int_range (rand, 0, 12);

    for (guint d = 0; d < DIM; d++)
      x[i * DIM + d] = size * (float) (g_rand_double_range (rand, -1, 1) + (d % 12 == direction));
  }
  return x;
}

static Stream *
stream_new (guint n)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (n);
  Stream *stream = g_new (Stream, 1);

  stream->n = n;
  stream->q = random_rows (rand, (gsize) N_LAYERS * n * N_HEADS, 2);
  stream->k = random_rows (rand, (gsize) N_LAYERS * n * N_KV_HEADS, 1);
  stream->v = random_rows (rand, (gsize) N_LAYERS * n * N_KV_HEADS, 1);
  return stream;
}

static void
stream_free (Stream *stream)
{
  g_free (stream->q);
  g_free (stream->k);
  g_free (stream->v);
  g_free (stream);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC (Stream, stream_free)

static const float *
get_rows (const Stream *stream, const float *rows, guint n_heads, guint layer, guint token)
{
  return rows + ((gsize) layer * stream->n + token) * n_heads * DIM;
}

/* One step of a pass, shared by threads. */
typedef struct {
  LycheeAttention *attention;
  const Stream *stream;
  guint step, layer, first, n_threads;
  gint next; /* atomic */
  float *output;
} Step;

static gpointer
take_part (gpointer data)
{
  Step *s = data;
  guint thread = g_atomic_int_add (&s->next, 1);

  if (s->step == 0)
    lychee_attention_store (s->attention, s->layer,
        get_rows (s->stream, s->stream->k, N_KV_HEADS, s->layer, s->first),
        get_rows (s->stream, s->stream->v, N_KV_HEADS, s->layer, s->first), thread, s->n_threads);
  else if (s->step == 1)
    lychee_attention_attend (s->attention, s->layer,
        get_rows (s->stream, s->stream->q, N_HEADS, s->layer, s->first), thread);
  else
    lychee_attention_merge (s->attention, s->layer, s->output, thread, s->n_threads);
  return NULL;
}

/* Answers tokens @first .. @first + @n - 1; @output is [layers][n][heads][dim]. */
static void
pass (LycheeAttention *attention, LycheeCache *cache, const Stream *stream, guint first, guint n,
    guint n_threads, float *output)
{
  g_autoptr (GError) error = NULL;

  g_assert_true (lychee_cache_reserve (cache, n, &error));
  lychee_attention_prepare (attention, cache, n);
  for (guint layer = 0; layer < N_LAYERS; layer++)
    for (guint step = 0; step < 3; step++) {
      Step s = { attention, stream, step, layer, first, n_threads, 0,
        output + (gsize) layer * n * N_HEADS * DIM };
      GThread *threads[8];

      for (guint i = 1; i < n_threads; i++)
        threads[i] = g_thread_new ("pass", take_part, &s);
      take_part (&s);
      for (guint i = 1; i < n_threads; i++)
        g_thread_join (threads[i]);
    }
  lychee_attention_finish (attention, &error);
  g_assert_no_error (error);
  lychee_cache_commit (cache, n);
}

typedef struct {
  LycheeGranularity granularity;
  LycheeAttentionOptions options;
  gboolean options_from_start; /* else for the last pass alone */
  guint n, n_last;             /* tokens; of these in the last pass */
} Case;

/* The indices were shown one query in 64, of each head in turn. */
static void
check_seen (LycheeCache *cache, const Stream *stream, guint n)
{
  guint step = LYCHEE_INDEX_QUERY_STEP, first = (SINKS + WINDOW + CHUNK + 16) / step + 1;

  for (guint i = 0; i < N_LAYERS * N_KV_HEADS; i++) {
    const LycheeIndex *index = lychee_cache_get_index (cache, i / N_KV_HEADS, i % N_KV_HEADS);

    for (guint number = MAX (first, n / step - MIN (n / step, LYCHEE_QUERIES_SEEN));
         index->seen && number < n / step; number++) {
      guint place = number % LYCHEE_QUERIES_SEEN, row = number * step + step - 1;
      const float *q = get_rows (stream, stream->q, N_HEADS, i / N_KV_HEADS, row) +
                       (gsize) (i % N_KV_HEADS * GROUP + number % GROUP) * DIM;
      guint16 half[DIM];

      index->kernels->f32_to_f16 (q, half, DIM);
      g_assert_cmpuint (index->seen->end[place], ==, row + 1);
      g_assert_cmpmem (half, sizeof half, index->seen->q + (gsize) place * DIM, sizeof half);
    }
  }
}

/* Streams all of it in chunks; returns what the last pass gave (transfer full). */
static float *
run_case (const Case *c, const Stream *stream, guint n_threads, LycheeAttentionStats *stats)
{
  const LycheeCacheIndexing indexing = {
    .granularity = c->granularity, .sinks = SINKS, .window = WINDOW
  };
  g_autoptr (LycheeCache) cache = lychee_cache_new (N_LAYERS, N_KV_HEADS, DIM, c->n, 0);
  LycheeAttention *attention = lychee_attention_new (N_LAYERS, N_HEADS, N_KV_HEADS, DIM, n_threads);
  float *output = g_new (float, (gsize) N_LAYERS *MAX (CHUNK, c->n_last) * N_HEADS * DIM);

  lychee_cache_enable_index (cache, &indexing);
  if (c->options_from_start)
    lychee_attention_set_options (attention, &c->options);
  for (guint at = 0, n; at < c->n - c->n_last; at += n) {
    n = MIN (CHUNK, c->n - c->n_last - at);
    pass (attention, cache, stream, at, n, n_threads, output);
  }
  lychee_attention_set_options (attention, &c->options);
  lychee_attention_reset_stats (attention);
  pass (attention, cache, stream, c->n - c->n_last, c->n_last, n_threads, output);
  lychee_attention_get_stats (attention, stats);
  check_seen (cache, stream, c->n);
  lychee_attention_free (attention);
  return output;
}

/* A row as the cache holds it. */
static void
read_row (const float *row, float *x)
{
  guint16 half[DIM];

  lychee_cpu_kernels_get_reference ()->f32_to_f16 (row, half, DIM);
  lychee_cpu_kernels_get_reference ()->f16_to_f32 (half, x, DIM);
}

/* Attention of the stream's last token over all, in float64. */
static void
attend_all (const Stream *stream, guint layer, guint head, double *output)
{
  const float *q = get_rows (stream, stream->q, N_HEADS, layer, stream->n - 1) + (gsize) head * DIM;
  g_autofree double *z = g_new0 (double, stream->n);
  gsize kv = (gsize) (head / GROUP) * DIM;
  double most = -INFINITY, sum = 0;
  float x[DIM];

  for (guint t = 0; t < stream->n; t++) {
    read_row (get_rows (stream, stream->k, N_KV_HEADS, layer, t) + kv, x);
    for (guint d = 0; d < DIM; d++)
      z[t] += (double) q[d] * x[d] / sqrt (DIM);
    most = MAX (most, z[t]);
  }
  memset (output, 0, DIM * sizeof *output);
  for (guint t = 0; t < stream->n; t++) {
    double weight = exp (z[t] - most);

    sum += weight;
    read_row (get_rows (stream, stream->v, N_KV_HEADS, layer, t) + kv, x);
    for (guint d = 0; d < DIM; d++)
      output[d] += weight * x[d];
  }
  for (guint d = 0; d < DIM; d++)
    output[d] /= sum;
}

/* The largest |o - o'| / |o| of the stream's last token. */
static double
get_error (const Stream *stream, const float *output)
{
  double error = 0;

  for (guint layer = 0; layer < N_LAYERS; layer++)
    for (guint head = 0; head < N_HEADS; head++, output += DIM) {
      double want[DIM], distance = 0, length = 0;

      attend_all (stream, layer, head, want);
      for (guint d = 0; d < DIM; d++) {
        distance += (output[d] - want[d]) * (output[d] - want[d]);
        length += want[d] * want[d];
      }
      error = MAX (error, sqrt (distance / length));
    }
  return error;
}

/* With a budget for all that is before the token, the index finds all, and that is dense attention
 * to 1e-5. */
static void
test_whole (gconstpointer data)
{
  guint n = 1100;
  g_autoptr (Stream) stream = stream_new (n);
  Case c = { GPOINTER_TO_UINT (data), { TRUE, n - 1, 0, TRUE }, FALSE, n, 1 };
  LycheeAttentionStats stats;
  g_autofree float *output = run_case (&c, stream, 1, &stats);

  g_assert_cmpuint (stats.sparse, ==, N_LAYERS * N_KV_HEADS);
  g_assert_cmpuint (stats.rows_read, ==, stats.sparse * n);
  g_assert_cmpuint (stats.rows_estimated, ==, 0);
  g_assert_cmpfloat (get_error (stream, output), <=, 1e-5);
}

/* What is not read is estimated, which is much better than to drop it. */
static void
test_rest (void)
{
  g_autoptr (Stream) stream = stream_new (1100);
  Case c = { LYCHEE_GRANULARITY_TOKEN, { TRUE, 256, 0, TRUE }, FALSE, 1100, 1 };
  LycheeAttentionStats stats;
  g_autofree float *rest = run_case (&c, stream, 1, &stats), *drop = NULL;

  g_assert_cmpuint (stats.rows_read + stats.rows_estimated, ==, stats.rows_visible);
  c.options.rest = FALSE;
  drop = run_case (&c, stream, 1, &stats);
  g_assert_cmpuint (stats.rows_estimated, ==, 0);
  g_test_message ("%.4f, dropped %.4f", get_error (stream, rest), get_error (stream, drop));
  g_assert_cmpfloat (get_error (stream, rest), <, get_error (stream, drop) / 2);
}

static const struct {
  const char *name;
  Case c;
} cases[] = {
  { "dense", { LYCHEE_GRANULARITY_TOKEN, { FALSE }, TRUE, 700, 1 } },
  { "dense-chunk", { LYCHEE_GRANULARITY_TOKEN, { FALSE }, TRUE, 700, 40 } },
  { "token", { LYCHEE_GRANULARITY_TOKEN, { TRUE, 256, 0, TRUE }, TRUE, 900, 1 } },
  { "token-chunk", { LYCHEE_GRANULARITY_TOKEN, { TRUE, 256, 0, TRUE }, TRUE, 900, 40 } },
  { "token-drop", { LYCHEE_GRANULARITY_TOKEN, { TRUE, 300, 3, FALSE }, TRUE, 900, 1 } },
  { "chunk", { LYCHEE_GRANULARITY_CHUNK, { TRUE, 256, 0, FALSE }, TRUE, 900, 1 } },
  { "chunk-chunk", { LYCHEE_GRANULARITY_CHUNK, { TRUE, 256, 0, FALSE }, TRUE, 900, 17 } },
};

/* The same bits, and the same counts, with any number of threads. */
static void
test_threads (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (Stream) stream = stream_new (c->n);
  LycheeAttentionStats one, more;
  g_autofree float *wanted = run_case (c, stream, 1, &one);

  g_assert_cmpuint (
      c->options.sparse ? one.sparse : one.dense, ==, c->n_last * N_LAYERS * N_KV_HEADS);
  for (guint n_threads = 2; n_threads <= 4; n_threads++) {
    g_autofree float *output = run_case (c, stream, n_threads, &more);
    gsize size = (gsize) N_LAYERS * c->n_last * N_HEADS * DIM * sizeof *output;

    g_assert_cmpmem (output, size, wanted, size);
    g_assert_cmpmem (&more, sizeof more, &one, sizeof one);
  }
}

/* Up to the budget, sparse attention is dense attention, bit for bit. */
static void
test_below_budget (void)
{
  g_autoptr (Stream) stream = stream_new (500);
  Case dense = { LYCHEE_GRANULARITY_TOKEN, { FALSE }, TRUE, 500, 1 };
  Case sparse = { LYCHEE_GRANULARITY_TOKEN, { TRUE, 500, 0, TRUE }, TRUE, 500, 1 };
  gsize size = (gsize) N_LAYERS * N_HEADS * DIM * sizeof (float);
  LycheeAttentionStats stats;
  g_autofree float *wanted = run_case (&dense, stream, 1, &stats);
  g_autofree float *output = run_case (&sparse, stream, 2, &stats);

  g_assert_cmpmem (output, size, wanted, size);
  g_assert_cmpuint (stats.sparse, ==, 0);
  g_assert_cmpuint (stats.dense_fallback, ==, N_LAYERS * N_KV_HEADS);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_data_func (
      "/attention/whole/token", GUINT_TO_POINTER (LYCHEE_GRANULARITY_TOKEN), test_whole);
  g_test_add_data_func (
      "/attention/whole/chunk", GUINT_TO_POINTER (LYCHEE_GRANULARITY_CHUNK), test_whole);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strdup_printf ("/attention/threads/%s", cases[i].name);

    g_test_add_data_func (path, &cases[i].c, test_threads);
  }
  g_test_add_func ("/attention/rest", test_rest);
  g_test_add_func ("/attention/below-budget", test_below_budget);
  return g_test_run ();
}
