/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Packed positions: keys that are kept before rotation and turned when they are read, against plain
 * arithmetic; and sessions that read far more than their model was trained for. */

#include "lychee-attention.h"
#include "lychee-model-private.h"
#include "model-logits.h"
#include "session-fixture.h"
#include "tiny-model.h"

#include <math.h>
#include <string.h>

static char *dir;

/* Turning keys and queries */

#define PAIRS 12
#define DIM 32
#define RUN 150

static void
fill (GRand *rand, float *x, guint n)
{
  for (guint i = 0; i < n; i++)
    x[i] = g_rand_double_range (rand, -1, 1);
}

/* Frequencies as models have them, and a factor as YaRN has it. */
static void
set_frequencies (double *frequency, guint n_pairs)
{
  for (guint i = 0; i < n_pairs; i++)
    frequency[i] = pow (10000, -(double) i / n_pairs);
  frequency[n_pairs] = 1.1;
}

/* @x at @position, by what the model itself does. */
static void
rotate (const double *frequency, gboolean halves, double position, const float *x, double *to)
{
  for (guint i = 0; i < DIM; i++)
    to[i] = x[i];
  for (guint i = 0; i < PAIRS; i++) {
    guint a = halves ? i : 2 * i, b = halves ? i + PAIRS : 2 * i + 1;
    double c = cos (position * frequency[i]), s = sin (position * frequency[i]);

    to[a] = frequency[PAIRS] * (x[a] * c - x[b] * s);
    to[b] = frequency[PAIRS] * (x[a] * s + x[b] * c);
  }
}

static double
dot (const double *x, const double *y)
{
  double sum = 0;

  for (guint i = 0; i < DIM; i++)
    sum += x[i] * y[i];
  return sum;
}

static void
to_double (const float *from, double *to)
{
  for (guint i = 0; i < DIM; i++)
    to[i] = from[i];
}

/* A query and a key meet as if the model had put one so far behind the other, wherever that is. */
static void
test_turn (gconstpointer data)
{
  static const guint distances[] = { 0, 1, 15, 63, 64, 65, 1000, 8191, 8192 };
  static const gint64 positions[] = { 0, 17, 9000, 1000003, G_GINT64_CONSTANT (5000000000) };
  gboolean halves = GPOINTER_TO_INT (data);
  g_autoptr (GRand) rand = g_rand_new_with_seed (1);
  double frequency[PAIRS + 1];
  g_autoptr (LycheePacked) packed = NULL;
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  float q[DIM], k[DIM], rotated[DIM], turned[DIM], turn[2 * 2 * PAIRS];
  double at[DIM], own[DIM], x[DIM], y[DIM];

  set_frequencies (frequency, PAIRS);
  packed = lychee_packed_new (frequency, PAIRS, halves, DIM, 8192);
  g_assert_cmpuint (lychee_packed_turn_size (packed), <=, G_N_ELEMENTS (turn));
  fill (rand, q, DIM);
  fill (rand, k, DIM);
  for (guint p = 0; p < G_N_ELEMENTS (positions); p++) {
    rotate (frequency, halves, positions[p], q, at);
    for (guint i = 0; i < DIM; i++)
      rotated[i] = at[i];
    for (guint d = 0; d < G_N_ELEMENTS (distances); d++) {
      guint32 distance = distances[d];
      guint16 row[DIM], half[DIM];
      const guint16 *rows = half;
      float key[DIM];

      kernels->f32_to_f16 (k, half, DIM);
      lychee_packed_set_turn (packed, positions[p], 3, turn);
      lychee_packed_turn (packed, turn, rotated, 1, turned);
      lychee_packed_turn_rows (packed, LYCHEE_ROW_F16, &rows, &distance, 1, row);
      kernels->f16_to_f32 (row, key, DIM);
      to_double (turned, x);
      to_double (key, y);
      /* The model's query, three positions before the origin. */
      rotate (frequency, halves, (double) distance - 3, q, at);
      rotate (frequency, halves, 0, k, own);
      /* half floats */
      g_assert_cmpfloat_with_epsilon (dot (x, y), dot (at, own), 4e-3);
    }
  }
}

/* A rotated key is turned back to what it was, alone and in a run. */
static void
test_back (gconstpointer data)
{
  static const gint64 positions[] = { 0, 1, 63, 64, 9000, 1000003 };
  gboolean halves = GPOINTER_TO_INT (data);
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  double frequency[PAIRS + 1];
  g_autoptr (LycheePacked) packed = NULL;
  float k[RUN][DIM], rotated[RUN][DIM], one[DIM], turn[2 * 2 * PAIRS];

  set_frequencies (frequency, PAIRS);
  packed = lychee_packed_new (frequency, PAIRS, halves, DIM, 100);
  for (guint p = 0; p < G_N_ELEMENTS (positions); p++) {
    for (guint i = 0; i < RUN; i++) {
      double at[DIM];

      fill (rand, k[i], DIM);
      rotate (frequency, halves, positions[p] + i, k[i], at);
      for (guint d = 0; d < DIM; d++)
        rotated[i][d] = at[d];
    }
    lychee_packed_set_back (packed, positions[p] + RUN - 1, turn);
    lychee_packed_turn (packed, turn, rotated[RUN - 1], 1, one);
    lychee_packed_turn_back (packed, positions[p], RUN, rotated[0]);
    for (guint d = 0; d < DIM; d++) {
      g_assert_cmpfloat_with_epsilon (one[d], k[RUN - 1][d], 1e-5);
      for (guint i = 0; i < RUN; i++)
        g_assert_cmpfloat_with_epsilon (rotated[i][d], k[i][d], 1e-5);
    }
  }
}

/* What indexes are searched with is the mean over the distances. */
static void
test_aim (gconstpointer data)
{
  static const guint ranges[][2] = { { 0, 0 }, { 5, 5 }, { 64, 300 }, { 0, 4096 } };
  gboolean halves = GPOINTER_TO_INT (data);
  g_autoptr (GRand) rand = g_rand_new_with_seed (2);
  double frequency[PAIRS + 1];
  g_autoptr (LycheePacked) packed = NULL;
  float q[DIM], k[DIM], rotated[DIM], aimed[DIM], turn[2 * 2 * PAIRS];
  double at[DIM], own[DIM], plain[DIM], x[DIM];

  set_frequencies (frequency, PAIRS);
  packed = lychee_packed_new (frequency, PAIRS, halves, DIM, 8192);
  fill (rand, q, DIM);
  fill (rand, k, DIM);
  to_double (k, plain);
  rotate (frequency, halves, 70000, q, at);
  for (guint i = 0; i < DIM; i++)
    rotated[i] = at[i];
  for (guint r = 0; r < G_N_ELEMENTS (ranges); r++) {
    guint nearest = ranges[r][0], farthest = ranges[r][1];
    double mean = 0;

    for (guint d = nearest; d <= farthest; d++) {
      rotate (frequency, halves, d, q, at);
      rotate (frequency, halves, 0, k, own);
      mean += dot (at, own) / (farthest - nearest + 1);
    }
    lychee_packed_set_aim (packed, 70000, nearest, farthest, turn);
    lychee_packed_turn (packed, turn, rotated, 1, aimed);
    to_double (aimed, x);
    g_assert_cmpfloat_with_epsilon (dot (x, plain), mean, 1e-4);
  }
}

/* Where what is read stands */

typedef struct {
  guint n_places, n, near, most;
} PlacesCase;

static const PlacesCase places_cases[] = {
  { 500, 60, 100, 1000 },
  { 500, 60, 0, 1000 },
  { 500, 500, 64, 1000 }, /* all of it: as it is */
  { 500, 60, 600, 1000 }, /* nothing is far */
  { 10000, 900, 127, 128 },
  { 100000, 1000, 4000, 6000 },
  { 70, 0, 10, 20 },
};

static int
by_number (gconstpointer a, gconstpointer b)
{
  guint32 x = *(const guint32 *) a, y = *(const guint32 *) b;

  return x < y ? -1 : x > y;
}

static void
test_places (void)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);
  LycheePlaces places = { 0 };

  for (guint i = 0; i < G_N_ELEMENTS (places_cases); i++) {
    const PlacesCase *c = &places_cases[i];
    g_autofree guint32 *all = g_new (guint32, c->n_places), *sorted = NULL;
    g_autofree guint32 *distances = g_new (guint32, c->n + 1);
    guint origin = c->n_places + 5, farthest, next = c->near;

    for (guint j = 0; j < c->n_places; j++)
      all[j] = j;
    for (guint j = 0; j < c->n; j++) {
      guint with = g_rand_int_range (rand, j, c->n_places);
      guint32 place = all[j];

      all[j] = all[with];
      all[with] = place;
    }
    farthest = lychee_places_pack (&places, all, c->n, origin, c->near, c->most, distances);
    sorted = g_memdup2 (all, c->n * sizeof *all);
    if (c->n)
      qsort (sorted, c->n, sizeof *sorted, by_number);
    for (guint j = c->n; j-- > 0;) {
      guint own = origin - sorted[j], wanted = own <= c->near ? own : ++next, at = 0;

      while (all[at] != sorted[j])
        at++;
      g_assert_cmpuint (distances[at], ==, MIN (wanted, c->most));
      g_assert_cmpuint (distances[at], <=, own);
    }
    g_assert_cmpuint (farthest, ==, MIN (next, c->most));
  }
  lychee_places_clear (&places);
}

/* Attention */

#define SINKS 6
#define WINDOW 30
#define HEADS 4
#define KV_HEADS 2
#define GROUP (HEADS / KV_HEADS)

typedef struct {
  const char *name;
  guint range, budget, n_tokens;
} AttentionCase;

static const AttentionCase attention_cases[] = {
  { "short", 4096, 100, 600 },
  { "long", 256, 100, 1500 },
  { "just-long", 600, 200, 600 },
  { "budget-too-large", 128, 100, 700 },
};

/* A pass of tokens, whose queries and keys are turned to where they stand. */
static void
pass (LycheeAttention *attention, LycheeCache *cache, guint n, const double *frequency, GRand *rand,
    float *plain_q, float *output)
{
  guint first = lychee_cache_get_length (cache);
  g_autofree float *k = g_new (float, n *KV_HEADS *DIM), *v = g_new (float, n *KV_HEADS *DIM);
  g_autofree float *q = g_new (float, n *HEADS *DIM);

  g_assert_true (lychee_cache_reserve (cache, n, NULL));
  lychee_attention_prepare (attention, cache, n);
  fill (rand, k, n * KV_HEADS * DIM);
  fill (rand, v, n * KV_HEADS * DIM);
  fill (rand, plain_q, n * HEADS * DIM);
  for (guint i = 0; i < n * HEADS; i++) {
    double at[DIM];

    rotate (frequency, TRUE, first + i / HEADS, plain_q + (gsize) i * DIM, at);
    for (guint d = 0; d < DIM; d++)
      q[i * DIM + d] = at[d];
  }
  for (guint i = 0; i < n * KV_HEADS; i++) {
    double at[DIM];

    rotate (frequency, TRUE, first + i / KV_HEADS, k + (gsize) i * DIM, at);
    for (guint d = 0; d < DIM; d++)
      k[i * DIM + d] = at[d];
  }
  lychee_attention_store (attention, 0, k, v, 0, 1);
  lychee_attention_attend (attention, 0, q, 0);
  lychee_attention_merge (attention, 0, output, 0, 1);
  g_assert_true (lychee_attention_finish (attention, NULL));
  lychee_cache_commit (cache, n);
}

static void
read_row (const LycheeRows *rows, guint row, gboolean value, float *to)
{
  const guint16 *from =
      rows->pages[row >> rows->page_shift] + (row & ((1u << rows->page_shift) - 1)) * DIM;

  lychee_cpu_kernels_get_reference ()->f16_to_f32 (
      from + (value ? rows->value_offset : 0), to, DIM);
}

/* Which rows a token read is known by their weights: these, and its output, are those of a softmax
 * over them at the distances that they should have. */
static void
test_attention (gconstpointer data)
{
  const AttentionCase *c = data;
  g_autoptr (GRand) rand = g_rand_new_with_seed (4);
  LycheeCacheIndexing indexing = { LYCHEE_GRANULARITY_TOKEN, SINKS, WINDOW };
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = c->budget };
  LycheeAttention *attention = lychee_attention_new (1, HEADS, KV_HEADS, DIM, 1);
  g_autoptr (LycheeCache) cache = lychee_cache_new (1, KV_HEADS, DIM, c->n_tokens + 1, 0);
  g_autoptr (LycheePacked) packed = NULL;
  guint n = c->n_tokens;
  gboolean is_long = n + 1 > c->range;
  guint near = c->range / 2;
  g_autofree guint32 *bins = g_new (guint32, n);
  g_autofree float *sum = g_new0 (float, HEADS *n), *q = g_new (float, 16 * HEADS * DIM);
  g_autofree float *output = g_new (float, 16 * HEADS * DIM);
  double frequency[PAIRS + 1];

  set_frequencies (frequency, PAIRS);
  packed =
      lychee_packed_new (frequency, PAIRS, TRUE, DIM, lychee_attention_get_farthest (c->range));
  lychee_cache_enable_index (cache, &indexing);
  lychee_cache_set_packed (cache, TRUE);
  lychee_cache_set_bare (cache, 1);
  lychee_attention_set_packed (attention, packed, c->range);
  lychee_attention_set_options (attention, &options);
  for (guint at = 0; at < n; at += MIN (16, n - at))
    pass (attention, cache, MIN (16, n - at), frequency, rand, q, output);
  for (guint i = 0; i < n; i++)
    bins[i] = i;
  lychee_attention_set_weights (attention, &(LycheeAttentionWeights){ 0, n, bins, n, 0, 1, sum });
  pass (attention, cache, 1, frequency, rand, q, output);

  for (guint h = 0; h < HEADS; h++) {
    const float *weight = sum + (gsize) h * n;
    guint n_read = 0, read_far = 0, next = near;
    double total = 0, o[DIM] = { 0 };
    g_autofree double *wanted = g_new0 (double, n + 1);
    double query[DIM];
    LycheeRows rows;

    lychee_cache_get_rows (cache, 0, h / GROUP, &rows);
    for (guint row = n + 1; row-- > 0;) {
      guint distance = n + 16 - row;
      float k[DIM];
      double key[DIM];

      if (row < n && row >= SINKS && weight[row] == 0)
        continue;
      n_read++;
      if (is_long && distance > near) {
        distance = ++next;
        read_far++;
      }
      distance = MIN (distance, is_long ? c->range : G_MAXUINT);
      read_row (&rows, row, FALSE, k);
      rotate (frequency, TRUE, 0, k, key);
      rotate (frequency, TRUE, (double) distance - 16, q + (gsize) h * DIM, query);
      wanted[row] = exp (dot (query, key) / sqrt (DIM));
      total += wanted[row];
    }
    g_assert_cmpuint (n_read, >=, c->budget);
    g_assert_cmpuint (n_read, <=, c->budget + 1);
    g_assert_true (!is_long || c->n_tokens < c->range + 16 || read_far > SINKS);
    for (guint row = 0; row < n + 1; row++) {
      float v[DIM];

      if (row >= SINKS && row < n)
        g_assert_cmpfloat_with_epsilon (weight[row], wanted[row] / total, 2e-3 / c->budget);
      read_row (&rows, row, TRUE, v);
      for (guint d = 0; d < DIM; d++)
        o[d] += wanted[row] / total * v[d];
    }
    for (guint d = 0; d < DIM; d++)
      g_assert_cmpfloat_with_epsilon (output[h * DIM + d], o[d], 2e-3);
  }
  lychee_attention_free (attention);
}

/* Models */

#define TINY(...)                                                                                  \
  {                                                                                                \
    .seed = 7, .n_layers = 2, .n_embd = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16,         \
    .n_ff = 96, .n_context = 512, .type = GGML_TYPE_F32, .rope_freq_base = 10000, __VA_ARGS__      \
  }

typedef struct {
  const char *name;
  LycheeTinyModel tiny;
} ModelCase;

_Pragma ("GCC diagnostic ignored \"-Woverride-init\"") static const ModelCase model_cases[] = {
  { "llama", TINY (.n_layers = 2) },
  { "one-layer", TINY (.n_layers = 1) },
  { "yarn", TINY (.scaling = "yarn", .scaling_factor = 4, .n_original = 128) },
  { "factors", TINY (.rope_factors = TRUE) },
  { "qwen3", TINY (.architecture = "qwen3", .head_dim = 32) },
  { "gemma3", TINY (.architecture = "gemma3", .n_layers = 7, .window = 24, .tied = TRUE) },
  { "phi3", TINY (.architecture = "phi3", .n_rot = 12, .scaling = "longrope", .n_original = 128) },
};

/* What has positions only when it is read, and fits into those that the model knows, is as with
 * absolute ones. */
static void
test_model (gconstpointer data)
{
  const ModelCase *c = data;
  g_autofree char *path = lychee_tiny_model_write (&c->tiny, dir, "packed.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  guint n = 200, n_vocab = lychee_model_get_n_vocab (model);
  g_autofree gint32 *ids = g_new (gint32, n);
  g_autofree float *absolute = NULL;

  test_model_ids (ids, n, n_vocab);
  absolute = test_model_logits (model, ids, n, 100, 1);
  for (guint sparse = 0; sparse < 2; sparse++) {
    LycheeCacheIndexing indexing = { .sinks = 16, .window = 64 };
    LycheeAttentionOptions options = {
      .sparse = sparse, .budget = n - 1, .beam = 100, .rest = TRUE, .audit = 1
    };
    g_autoptr (LycheeExecutor) executor = lychee_executor_get (2);
    g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
    g_autoptr (LycheeCache) cache = test_model_cache (model, n);
    LycheeAttentionStats stats;
    const float *logits;

    lychee_model_describe_indexing (model, &indexing);
    lychee_cache_set_packed (cache, TRUE);
    lychee_cache_set_bare (cache, G_MAXUINT);
    lychee_cache_enable_index (cache, &indexing);
    lychee_attention_set_options (lychee_forward_get_attention (forward), &options);
    for (guint at = 0; at < n; at += MIN (n - at, at < 180 ? 30 : 1)) {
      guint now = MIN (n - at, at < 180 ? 30 : 1);

      if (at < 180 && at + now > 180)
        now = 180 - at;
      g_assert_true (lychee_forward_run (forward, cache, ids + at, now,
          at == 0 ? LYCHEE_OUTPUT_NONE : LYCHEE_OUTPUT_ALL, &logits, NULL, NULL));
      for (gsize i = 0; at > 0 && i < (gsize) now * n_vocab; i++)
        g_assert_cmpfloat_with_epsilon (logits[i], absolute[(gsize) at * n_vocab + i], 0.02);
    }
    lychee_attention_get_stats (lychee_forward_get_attention (forward), &stats);
    g_assert_true (sparse == (stats.sparse > 0));
    if (sparse)
      g_assert_cmpfloat (stats.error / stats.audits, <, 0.02);
  }
}

/* Sessions */

static LycheeSession *
new_session (LycheeModel *model, guint threads, guint64 max_memory)
{
  return g_object_new (LYCHEE_TYPE_SESSION, "model", model, "positions", LYCHEE_POSITIONS_PACKED,
      "backend", LYCHEE_BACKEND_CPU, "budget", 100, "threads", threads, "max-memory",
      max_memory > 0 ? max_memory : G_GUINT64_CONSTANT (1) << 30, "overflow",
      LYCHEE_OVERFLOW_FORGET_OLDEST, NULL);
}

/* Reads ten times what the model was trained for, densely as far as that goes, and answers; on any
 * number of threads, forked, saved and loaded the same. */
static void
test_session (void)
{
  const LycheeTinyModel tiny = TINY (.n_context = 256);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "session.gguf");
  g_autofree char *saved = g_build_filename (dir, "packed.lychee", NULL), *answer = NULL;
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeSession) session = new_session (model, 1, 0), fork = NULL, loaded = NULL;
  g_autoptr (LycheeSession) threaded = new_session (model, 3, 0);
  g_autoptr (GError) error = NULL;
  LycheeSession *others[3];
  LycheePositions positions;

  append_chunks (session, 0, 160, 16);
  g_assert_cmpuint (get_count (session, "tokens-forgotten"), ==, 0);
  g_assert_cmpuint (get_count (session, "dense-queries"), >, 0);
  g_assert_cmpuint (get_count (session, "sparse-queries"), >, 0);
  answer = ask_text (session, 30);
  append_chunks (threaded, 0, 160, 16);
  fork = lychee_session_fork (session, &error);
  g_assert_no_error (error);
  lychee_session_save (session, saved, NULL, &error);
  g_assert_no_error (error);
  loaded = g_object_new (
      LYCHEE_TYPE_SESSION, "model", model, "backend", LYCHEE_BACKEND_CPU, "budget", 100, NULL);
  lychee_session_load (loaded, saved, NULL, &error);
  g_assert_no_error (error);
  g_object_get (loaded, "positions", &positions, NULL);
  g_assert_cmpint (positions, ==, LYCHEE_POSITIONS_PACKED);
  others[0] = threaded;
  others[1] = fork;
  others[2] = loaded;
  for (guint i = 0; i < G_N_ELEMENTS (others); i++) {
    g_autofree char *same = ask_text (others[i], 30);

    g_assert_cmpstr (same, ==, answer);
  }
}

/* Memory is the limit that is left, and what is oldest is forgotten. */
static void
test_forget (void)
{
  const LycheeTinyModel tiny = TINY (.n_context = 256);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "forget.gguf"), *answer = NULL;
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeSession) session = new_session (model, 1, 2 * 1000 * 1000);

  append_chunks (session, 0, 500, 16);
  g_assert_cmpuint (get_count (session, "tokens-forgotten"), >, 0);
  answer = ask_text (session, 5);
  g_assert_nonnull (answer);
}

/* Evidence is looked for in what was read, where it was read. */
static void
test_evidence (void)
{
  const LycheeTinyModel tiny = TINY (.n_context = 256);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "evidence.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeSession) session = new_session (model, 1, 0);
  g_autoptr (LycheeQuestion) question =
      g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "Well?", "max-tokens", 3, "evidence", 3, NULL);
  g_autoptr (LycheeAnswer) answer = NULL;
  g_autoptr (GError) error = NULL;

  append_chunks (session, 0, 100, 16);
  answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (lychee_answer_get_evidence (answer)->len, ==, 3);
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-packed-XXXXXX", NULL);
  g_test_add_data_func ("/packed/turn/neighbours", GINT_TO_POINTER (FALSE), test_turn);
  g_test_add_data_func ("/packed/turn/halves", GINT_TO_POINTER (TRUE), test_turn);
  g_test_add_data_func ("/packed/back/neighbours", GINT_TO_POINTER (FALSE), test_back);
  g_test_add_data_func ("/packed/back/halves", GINT_TO_POINTER (TRUE), test_back);
  g_test_add_data_func ("/packed/aim/neighbours", GINT_TO_POINTER (FALSE), test_aim);
  g_test_add_data_func ("/packed/aim/halves", GINT_TO_POINTER (TRUE), test_aim);
  g_test_add_func ("/packed/places", test_places);
  for (guint i = 0; i < G_N_ELEMENTS (attention_cases); i++) {
    g_autofree char *name = g_strdup_printf ("/packed/attention/%s", attention_cases[i].name);

    g_test_add_data_func (name, &attention_cases[i], test_attention);
  }
  for (guint i = 0; i < G_N_ELEMENTS (model_cases); i++) {
    g_autofree char *name = g_strdup_printf ("/packed/model/%s", model_cases[i].name);

    g_test_add_data_func (name, &model_cases[i], test_model);
  }
  g_test_add_func ("/packed/session", test_session);
  g_test_add_func ("/packed/forget", test_forget);
  g_test_add_func ("/packed/evidence", test_evidence);
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
