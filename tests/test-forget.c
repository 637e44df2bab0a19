/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Attention over a cache that has forgotten its oldest tokens: against a plain softmax over what is
 * left. What was forgotten is poison: whoever still reads it, or counts it in a mean, is far off.
 */

#include "lychee-attention.h"

#include <math.h>
#include <string.h>

#define LAYERS 2
#define HEADS 4
#define KV_HEADS 2
#define DIM 16
#define GROUP (HEADS / KV_HEADS)
#define START 40 /* tokens of the prompt's beginning: more than sinks */
#define CHUNK 16

typedef struct {
  const char *name;
  LycheeGranularity granularity;
  guint budget; /* 0: dense */
  guint n_tokens, forget, window;
  double tolerance;
  gboolean made; /* keys are made when they are read */
} Case;

static const Case cases[] = {
  { "dense", LYCHEE_GRANULARITY_TOKEN, 0, 900, 500, 0, 1e-3 },
  { "dense/in-one-page", LYCHEE_GRANULARITY_TOKEN, 0, 200, 100, 0, 1e-3 },
  { "dense/all-but-the-last", LYCHEE_GRANULARITY_TOKEN, 0, 900, 896, 0, 1e-3 },
  { "local", LYCHEE_GRANULARITY_TOKEN, 0, 900, 600, 330, 1e-3 },
  { "dense/made", LYCHEE_GRANULARITY_TOKEN, 0, 900, 500, 0, 1e-3, TRUE },
  { "local/made", LYCHEE_GRANULARITY_TOKEN, 0, 900, 600, 330, 1e-3, TRUE },
  { "sparse/all-indexed/made", LYCHEE_GRANULARITY_TOKEN, 300, 1000, 992, 0, 1e-3, TRUE },
  { "sparse", LYCHEE_GRANULARITY_TOKEN, 300, 2000, 900, 0, 0.3 },
  { "sparse/all-indexed", LYCHEE_GRANULARITY_TOKEN, 300, 1000, 992, 0, 1e-3 },
  { "sparse/chunk", LYCHEE_GRANULARITY_CHUNK, 300, 2000, 912, 0, 3 },
};

typedef struct {
  const Case *c;
  LycheeAttention *attention;
  LycheeCache *cache;
  GRand *rand;
} Fixture;

static void
fill (GRand *rand, float *x, guint n, float offset)
{
  for (guint i = 0; i < n; i++)
    x[i] = offset + g_rand_double_range (rand, -1, 1);
}

/* A pass of @n tokens with random keys, values and queries. @q, @output: [n][HEADS][DIM] of the
 * last layer. */
static void
pass (Fixture *f, LycheeCache *cache, guint n, float poison, float *q, float *output)
{
  g_autofree float *k = g_new (float, n *KV_HEADS *DIM), *v = g_new (float, n *KV_HEADS *DIM);
  g_autoptr (GError) error = NULL;

  g_assert_true (lychee_cache_reserve (cache, n, &error));
  lychee_attention_prepare (f->attention, cache, n);
  for (guint layer = 0; layer < LAYERS; layer++) {
    fill (f->rand, k, n * KV_HEADS * DIM, poison);
    fill (f->rand, v, n * KV_HEADS * DIM, 100 * poison);
    fill (f->rand, q, n * HEADS * DIM, 0);
    lychee_attention_store (f->attention, layer, k, v, 0, 1);
    lychee_attention_attend (f->attention, layer, q, 0);
    lychee_attention_merge (f->attention, layer, output, 0, 1);
  }
  g_assert_true (lychee_attention_finish (f->attention, &error));
  lychee_cache_commit (cache, n);
}

static float
half_to_float (guint16 half)
{
  float x;

  lychee_cpu_kernels_get_reference ()->f16_to_f32 (&half, &x, 1);
  return x;
}

static const guint16 *
get_key (const LycheeRows *rows, guint row)
{
  return rows->pages[row >> rows->page_shift] + (row & ((1u << rows->page_shift) - 1)) * DIM;
}

/* A key that is made of the one that is kept depends on where it stands. */
static float
factor_of (guint place)
{
  return 1 + place % 2; /* exact in f16 */
}

static void
make_keys (guint layer, const guint32 *places, guint n, float *keys, gpointer user_data)
{
  (void) layer, (void) user_data;
  for (guint i = 0; i < n * DIM; i++)
    keys[i] *= factor_of (places[i / DIM]);
}

/* What token @token attends to with its queries, in the last layer. Rows are those of the cache. */
static void
attend_plainly (Fixture *f, guint token, const float *q, float *output)
{
  guint begin, n, local = f->c->window;
  LycheeRows rows;

  lychee_cache_get_hole (f->cache, &begin, &n);
  for (guint h = 0; h < HEADS; h++) {
    double o[DIM] = { 0 }, l = 0, most = -INFINITY;

    lychee_cache_get_rows (f->cache, LAYERS - 1, h / GROUP, &rows);
    for (guint twice = 0; twice < 2; twice++)
      for (guint row = 0; row <= token; row++) {
        guint place = row < begin ? row : row - n;
        const guint16 *key;
        double z = 0;

        if ((row >= begin && row < begin + n) || (local > 0 && place + local <= token - n))
          continue;
        key = get_key (&rows, row);
        for (guint d = 0; d < DIM; d++)
          z += half_to_float (key[d]) * q[h * DIM + d] / sqrt (DIM);
        if (f->c->made)
          z *= factor_of (place);
        if (twice == 0) {
          most = MAX (most, z);
          continue;
        }
        l += exp (z - most);
        for (guint d = 0; d < DIM; d++)
          o[d] += exp (z - most) * half_to_float (key[rows.value_offset + d]);
      }
    for (guint d = 0; d < DIM; d++)
      output[h * DIM + d] = o[d] / l;
  }
}

static void
assert_close (const float *got, const float *wanted, guint n, double tolerance)
{
  double distance = 0, length = 0;

  for (guint i = 0; i < n; i++) {
    distance += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    length += wanted[i] * wanted[i];
  }
  g_assert_cmpfloat (sqrt (distance / length), <, tolerance);
}

/* Has the weights of all that is held of the transcript noted, three bins in turn. */
static void
watch (Fixture *f, LycheeAttentionWeights *w, float *sum)
{
  static guint32 bins[4096];
  guint begin, n;

  lychee_cache_get_hole (f->cache, &begin, &n);
  for (guint i = 0; i < G_N_ELEMENTS (bins); i++)
    bins[i] = i % 3;
  memset (sum, 0, HEADS * 3 * sizeof *sum);
  *w = (LycheeAttentionWeights){ begin + n, lychee_cache_get_length (f->cache) - begin - n, bins, 3,
    LAYERS - 1, LAYERS, sum };
  lychee_attention_set_weights (f->attention, w);
}

static void
assert_weights (
    Fixture *f, const LycheeAttentionWeights *w, guint first, guint n_tokens, const float *q)
{
  guint begin, n;
  LycheeRows rows;

  lychee_cache_get_hole (f->cache, &begin, &n);
  for (guint h = 0; h < HEADS; h++) {
    double wanted[3] = { 0 };

    lychee_cache_get_rows (f->cache, LAYERS - 1, h / GROUP, &rows);
    for (guint t = 0; t < n_tokens; t++) {
      g_autofree double *weight = g_new0 (double, first + n_tokens);
      double all = 0;

      for (guint row = 0; row <= first + t; row++) {
        const guint16 *key;
        double z = 0;

        if (row >= begin && row < begin + n)
          continue;
        key = get_key (&rows, row);
        for (guint d = 0; d < DIM; d++)
          z += half_to_float (key[d]) * q[(t * HEADS + h) * DIM + d] / sqrt (DIM);
        all += weight[row] = exp (z);
      }
      for (guint i = 0; i < w->n_rows; i++)
        wanted[i % 3] += weight[w->first + i] / all;
    }
    for (guint i = 0; i < 3; i++)
      g_assert_cmpfloat_with_epsilon (w->sum[h * 3 + i], wanted[i], 1e-3 * n_tokens);
  }
}

static void
note_chunk (LycheeCache *cache, guint position, guint n)
{
  gint32 ids[64] = { 0 };
  g_autoptr (LycheeChunk) chunk =
      lychee_chunk_new (ids, n, "", NULL, 0, 0, LYCHEE_BOUNDARY_WORD, 0, 0);

  lychee_cache_add_chunk (cache, chunk, position);
}

static void
test_forget (gconstpointer data)
{
  const Case *c = data;
  const LycheeCacheIndexing indexing = { .granularity = c->granularity, .sinks = 16, .window = 64 };
  const gboolean local[LAYERS] = { c->window > 0, c->window > 0 };
  LycheeAttentionOptions options = { .sparse = c->budget > 0, .budget = c->budget, .rest = TRUE };
  Fixture f = { c, lychee_attention_new (LAYERS, HEADS, KV_HEADS, DIM, 1),
    lychee_cache_new (LAYERS, KV_HEADS, DIM, 4096, 0), g_rand_new_with_seed (3) };
  g_autoptr (LycheeCache) start = lychee_cache_new (LAYERS, KV_HEADS, DIM, START, 0), fork = NULL;
  g_autofree float *q = g_new (float, 64 * HEADS * DIM);
  g_autofree float *output = g_new (float, 64 * HEADS * DIM), *wanted = g_new (float, HEADS *DIM);
  g_autofree guint16 *before = g_new (guint16, 64 * LAYERS * KV_HEADS * 2 * DIM);
  g_autofree guint16 *after = g_new (guint16, 64 * LAYERS * KV_HEADS * 2 * DIM);
  g_autoptr (GError) error = NULL;
  LycheeAttentionWeights weights;
  float sum[HEADS * 3];
  guint64 bytes;
  guint end = START + c->forget, n_chunks;

  lychee_cache_enable_index (f.cache, &indexing);
  lychee_attention_set_options (f.attention, &options);
  if (c->made)
    lychee_attention_set_key_func (f.attention, make_keys, NULL);
  if (c->window > 0)
    lychee_attention_set_layers (f.attention, local, c->window, 0, 0);
  pass (&f, f.cache, START, 5, q, output);
  for (guint at = 0; at < c->n_tokens; at += CHUNK) {
    guint n = MIN (CHUNK, c->n_tokens - at);

    note_chunk (f.cache, START + at, n);
    pass (&f, f.cache, n, at < c->forget ? 5 : 0, q, output);
  }
  n_chunks = lychee_cache_get_n_chunks (f.cache);
  bytes = lychee_cache_get_bytes (f.cache);
  pass (&f, start, START, 0, q, output);
  fork = lychee_cache_fork (f.cache, &error);
  g_assert_no_error (error);
  lychee_cache_read (f.cache, 0, 64, before);

  /* The fork keeps all as it was; the cache has no more of it than it says. */
  g_assert_true (lychee_cache_forget (f.cache, start, end, &error));
  g_assert_no_error (error);
  lychee_cache_read (fork, 0, 64, after);
  g_assert_cmpmem (before, 64, after, 64);
  g_assert_cmpuint (lychee_cache_get_length (f.cache), ==, START + c->n_tokens);
  g_assert_cmpuint (lychee_cache_get_n_held (f.cache), ==, START + c->n_tokens - c->forget);
  g_assert_cmpuint (
      lychee_cache_get_n_chunks (f.cache), ==, n_chunks - (c->forget + CHUNK - 1) / CHUNK);
  if (c->forget > 2 * LYCHEE_CACHE_PAGE_TOKENS)
    g_assert_cmpuint (lychee_cache_get_bytes (f.cache), <, bytes);

  for (guint n = 1; n <= 33; n += 32) {
    guint first = lychee_cache_get_length (f.cache);

    watch (&f, &weights, sum);
    pass (&f, f.cache, n, 0, q, output);
    lychee_attention_set_weights (f.attention, NULL);
    if (c->tolerance < 0.01 && c->window == 0 && !c->made)
      assert_weights (&f, &weights, first, n, q);
    for (guint t = 0; t < n; t++) {
      attend_plainly (&f, first + t, q + t * HEADS * DIM, wanted);
      assert_close (output + t * HEADS * DIM, wanted, HEADS * DIM, c->tolerance);
    }
  }
  /* A second time, from a cache that is held by none. */
  end = lychee_cache_get_length (f.cache) - 40;
  g_assert_true (lychee_cache_forget (f.cache, start, end, &error));
  pass (&f, f.cache, 1, 0, q, output);
  attend_plainly (&f, lychee_cache_get_length (f.cache) - 1, q, wanted);
  assert_close (output, wanted, HEADS * DIM, 1e-3);

  g_rand_free (f.rand);
  g_object_unref (f.cache);
  lychee_attention_free (f.attention);
}

/* It goes on for as long as one likes: rows have numbers far beyond what is held. */
static void
test_long (void)
{
  const LycheeCacheIndexing indexing = {
    .granularity = LYCHEE_GRANULARITY_TOKEN, .sinks = 16, .window = 64
  };
  Case c = { "long", LYCHEE_GRANULARITY_TOKEN, 300, 0, 0, 0, 0.3 };
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = 300, .rest = TRUE };
  Fixture f = { &c, lychee_attention_new (LAYERS, HEADS, KV_HEADS, DIM, 1),
    lychee_cache_new (LAYERS, KV_HEADS, DIM, 1000, 0), g_rand_new_with_seed (4) };
  g_autoptr (LycheeCache) start = lychee_cache_new (LAYERS, KV_HEADS, DIM, START, 0);
  float q[64 * HEADS * DIM], output[64 * HEADS * DIM], wanted[HEADS * DIM];
  guint64 most = 0;

  lychee_cache_enable_index (f.cache, &indexing);
  lychee_attention_set_options (f.attention, &options);
  pass (&f, f.cache, START, 0, q, output);
  pass (&f, start, START, 0, q, output);
  for (guint n = 0; n < 10000; n += 32) {
    if (lychee_cache_get_n_held (f.cache) + 32 > 1000) {
      guint end = lychee_cache_get_length (f.cache) - 700;
      g_autoptr (LycheeCache) fork = n % 64 == 0 ? lychee_cache_fork (f.cache, NULL) : NULL;

      g_assert_true (lychee_cache_forget (f.cache, start, end, NULL));
      most = MAX (most, lychee_cache_get_index_bytes (f.cache));
    }
    pass (&f, f.cache, 32, 0, q, output);
  }
  g_assert_cmpuint (lychee_cache_get_bytes (f.cache), <=,
      6 * LYCHEE_CACHE_PAGE_TOKENS * lychee_cache_get_token_bytes (f.cache));
  g_assert_cmpuint (lychee_cache_get_index_bytes (f.cache), <, 2 * most);
  pass (&f, f.cache, 1, 0, q, output);
  attend_plainly (&f, lychee_cache_get_length (f.cache) - 1, q, wanted);
  assert_close (output, wanted, HEADS * DIM, 0.7);
  /* A cut does not go into what is not there. */
  lychee_cache_truncate (f.cache, 5000);
  g_assert_cmpuint (lychee_cache_get_n_held (f.cache), ==, START);
  pass (&f, f.cache, 32, 0, q, output);
  attend_plainly (&f, lychee_cache_get_length (f.cache) - 1, q + 31 * HEADS * DIM, wanted);
  assert_close (output + 31 * HEADS * DIM, wanted, HEADS * DIM, 1e-3);
  lychee_cache_truncate (f.cache, 0);
  g_assert_cmpuint (lychee_cache_get_n_held (f.cache), ==, 0);
  pass (&f, f.cache, 32, 0, q, output);
  attend_plainly (&f, 31, q + 31 * HEADS * DIM, wanted);
  assert_close (output + 31 * HEADS * DIM, wanted, HEADS * DIM, 1e-3);
  g_rand_free (f.rand);
  g_object_unref (f.cache);
  lychee_attention_free (f.attention);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strconcat ("/forget/", cases[i].name, NULL);

    g_test_add_data_func (path, &cases[i], test_forget);
  }
  g_test_add_func ("/forget/long", test_long);
  return g_test_run ();
}
