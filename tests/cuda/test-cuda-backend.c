/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The CUDA backend, on an emulated device, against the CPU backend: whole passes and answers of
 * models of all kinds, dense and sparse; memory; and what a user can get wrong. */

#include "backend-fixture.h"
#include "lychee-index-private.h"
#include "lychee-question.h"
#include "lychee-session-cache.h"

#include <string.h>

typedef struct {
  const char *name;
  const char *architecture;
  guint head_dim, n_heads, n_kv_heads;
  enum ggml_type type;
  gboolean tied, rope_factors, biases, fused;
  guint n_rot, window;
  const char *scaling;
  LycheeRowForm form;
  double tolerance;
} Kind;

static const Kind kinds[] = {
  { "plain", NULL, 64, 3, 1, GGML_TYPE_F16, .tolerance = 1e-3 },
  { "tied, factors, biases", NULL, 80, 4, 2, GGML_TYPE_F16, TRUE, TRUE, TRUE, .tolerance = 1e-3 },
  { "float32", NULL, 96, 2, 2, GGML_TYPE_F32, .tolerance = 2e-3 },
  { "q8_0", NULL, 128, 4, 1, GGML_TYPE_Q8_0, .tolerance = 2e-2 },
  { "bf16", NULL, 64, 4, 2, GGML_TYPE_BF16, .tolerance = 1e-2 },
  { "half rotated", NULL, 64, 4, 2, GGML_TYPE_F16, .n_rot = 32, .tolerance = 1e-3 },
  { "yarn", NULL, 64, 4, 2, GGML_TYPE_F16, .scaling = "yarn", .tolerance = 1e-3 },
  { "linear", NULL, 64, 4, 2, GGML_TYPE_F16, .scaling = "linear", .tolerance = 1e-3 },
  { "qwen2", "qwen2", 64, 4, 2, GGML_TYPE_F16, .biases = TRUE, .tolerance = 1e-3 },
  { "qwen3", "qwen3", 128, 4, 2, GGML_TYPE_F16, .tolerance = 1e-3 },
  { "gemma3", "gemma3", 256, 2, 1, GGML_TYPE_F16, .window = 64, .tolerance = 1e-2 },
  { "phi3", "phi3", 96, 4, 4, GGML_TYPE_F16, .fused = TRUE, .tolerance = 1e-3 },
  { "granite", "granite", 64, 4, 2, GGML_TYPE_F16, .tolerance = 1e-3 },
  /* A value that lies between two bytes is here the one and there the other. */
  { "kept-as-q8_0", NULL, 64, 4, 2, GGML_TYPE_F16, .form = LYCHEE_ROW_Q8_0, .tolerance = 3e-3 },
  { "kept-as-q8_0, 96", "phi3", 96, 4, 4, GGML_TYPE_F16, .fused = TRUE, .form = LYCHEE_ROW_Q8_0,
      .tolerance = 3e-3 },
  { "kept-as-q8_0, 128", NULL, 128, 4, 1, GGML_TYPE_F16, .form = LYCHEE_ROW_Q8_0,
      .tolerance = 3e-3 },
  { "kept-as-q8_0, a window", "gemma3", 256, 2, 1, GGML_TYPE_F16, .window = 64,
      .form = LYCHEE_ROW_Q8_0, .tolerance = 1e-2 },
};

static LycheeModel *
load_kind (const Kind *k)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;

  tiny.architecture = k->architecture;
  tiny.head_dim = k->head_dim;
  tiny.n_heads = k->n_heads;
  tiny.n_kv_heads = k->n_kv_heads;
  tiny.type = k->type;
  tiny.tied = k->tied;
  tiny.rope_factors = k->rope_factors;
  tiny.biases = k->biases;
  tiny.fused = k->fused;
  tiny.n_rot = k->n_rot;
  tiny.window = k->window;
  tiny.scaling = k->scaling;
  tiny.scaling_factor = 2;
  tiny.n_layers = k->window ? 6 : 2; /* a period of windows */
  return load (&tiny, "kind.gguf");
}

/* A chunk, then token by token, then several with the logits of all. */
static void
test_kinds (gconstpointer data)
{
  const Kind *k = data;
  g_autoptr (LycheeModel) model = load_kind (k);
  Side cpu = { new_worker (LYCHEE_BACKEND_CPU, model), new_cache_with (model, 0, k->form) };
  Side cuda = { new_worker (LYCHEE_BACKEND_CUDA, model), new_cache_with (model, 0, k->form) };
  guint n_vocab = lychee_model_get_n_vocab (model), at = 0;
  const guint steps[] = { 70, 1, 1, 1, 9, 1 };
  gint32 ids[256];

  make_ids (ids, G_N_ELEMENTS (ids), 7);
  for (guint i = 0; i < G_N_ELEMENTS (steps); i++) {
    LycheeOutput output = steps[i] == 9 ? LYCHEE_OUTPUT_ALL : LYCHEE_OUTPUT_LAST;
    double away;

    run (&cpu, ids + at, steps[i], output);
    run (&cuda, ids + at, steps[i], output);
    at += steps[i];
    away = distance (
        cuda.logits, cpu.logits, (output == LYCHEE_OUTPUT_ALL ? steps[i] : 1) * (gsize) n_vocab);
    g_test_message ("%u tokens: logits differ by %.2e", steps[i], away);
    g_assert_cmpfloat (away, <, k->tolerance);
  }
  g_assert_cmpuint (lychee_cache_get_length (cuda.cache), ==, at);
  lychee_worker_free (cpu.worker);
  lychee_worker_free (cuda.worker);
  g_object_unref (cpu.cache);
  g_object_unref (cuda.cache);
}

/* Keys and values come out as the processor makes them. */
static void
test_rows (gconstpointer data)
{
  LycheeRowForm form = GPOINTER_TO_INT (data);
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "rows.gguf");
  Side cpu = { new_worker (LYCHEE_BACKEND_CPU, model), new_cache_with (model, 0, form) };
  Side cuda = { new_worker (LYCHEE_BACKEND_CUDA, model), new_cache_with (model, 0, form) };
  gsize n = 300 * lychee_cache_get_token_bytes (cpu.cache) / 2;
  g_autofree guint16 *wanted = g_new (guint16, n);
  g_autofree guint16 *got = g_new (guint16, n);
  g_autofree float *a = g_new (float, 2 * n); /* blocks have more values than units */
  g_autofree float *b = g_new (float, 2 * n);
  gint32 ids[300];

  make_ids (ids, 300, 3);
  run (&cpu, ids, 300, LYCHEE_OUTPUT_NONE);
  run (&cuda, ids, 200, LYCHEE_OUTPUT_NONE);
  run (&cuda, ids + 200, 100, LYCHEE_OUTPUT_NONE);
  g_assert_null (cuda.logits);
  lychee_cache_read (cpu.cache, 0, 300, wanted);
  lychee_cache_read (cuda.cache, 0, 300, got);
  if (form == LYCHEE_ROW_Q8_0) {
    const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ()->q8_0;

    n = n / LYCHEE_Q8_UNITS * LYCHEE_Q8_VALUES;
    for (gsize i = 0; i < n / LYCHEE_Q8_VALUES; i++) {
      kernels->read_row (wanted + i * LYCHEE_Q8_UNITS, LYCHEE_Q8_VALUES, a + i * LYCHEE_Q8_VALUES);
      kernels->read_row (got + i * LYCHEE_Q8_UNITS, LYCHEE_Q8_VALUES, b + i * LYCHEE_Q8_VALUES);
    }
  } else {
    ggml_fp16_to_fp32_row (wanted, a, n);
    ggml_fp16_to_fp32_row (got, b, n);
  }
  g_test_message ("rows differ by %.2e", distance (b, a, n));
  g_assert_cmpfloat (distance (b, a, n), <, form == LYCHEE_ROW_Q8_0 ? 3e-3 : 1e-3);
  lychee_worker_free (cpu.worker);
  lychee_worker_free (cuda.worker);
  g_object_unref (cpu.cache);
  g_object_unref (cuda.cache);
}

/* Sparse answers over a long transcript: the index on the device says what the host's does. The
 * transcript is read by the processor, so that both begin with the same. */
static const struct {
  const char *name;
  LycheeGranularity granularity;
  LycheeRowForm form;
} sparse_cases[] = {
  { "tokens", LYCHEE_GRANULARITY_TOKEN, LYCHEE_ROW_F16 },
  { "chunks", LYCHEE_GRANULARITY_CHUNK, LYCHEE_ROW_F16 },
  { "q8_0", LYCHEE_GRANULARITY_TOKEN, LYCHEE_ROW_Q8_0 },
};

static void
test_sparse (gconstpointer data)
{
  LycheeGranularity granularity = sparse_cases[GPOINTER_TO_UINT (data)].granularity;
  LycheeRowForm form = sparse_cases[GPOINTER_TO_UINT (data)].form;
  gboolean chunks = granularity == LYCHEE_GRANULARITY_CHUNK;
  /* Of chunks more, for there to be several units. Of tokens so many that none of those that follow
   * is one whose query the processor's index is shown: the device's is shown none. */
  guint first = chunks ? 1200 : 11 * LYCHEE_INDEX_QUERY_STEP;
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "sparse.gguf");
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = 160, .rest = TRUE, .audit = 16 };
  Side reader = { new_worker (LYCHEE_BACKEND_CPU, model),
    new_cache_with (model, granularity, form) };
  Side cpu = { new_worker (LYCHEE_BACKEND_CPU, model), NULL };
  Side cuda = { new_worker (LYCHEE_BACKEND_CUDA, model), NULL };
  guint n_vocab = lychee_model_get_n_vocab (model), n_rows, n_far = 0;
  double away;
  LycheeAttentionStats wanted, got;
  g_autofree gint32 *ids = g_new (gint32, 1800);

  make_ids (ids, 1800, 5);
  for (guint at = 0; at < first; at += first / 8)
    run (&reader, ids + at, first / 8, LYCHEE_OUTPUT_NONE);
  cpu.cache = lychee_cache_fork (reader.cache, NULL);
  cuda.cache = lychee_cache_fork (reader.cache, NULL);
  lychee_worker_set_options (cpu.worker, &options);
  lychee_worker_set_options (cuda.worker, &options);
  n_rows = 0;
  for (guint i = 0; i < (chunks ? 24 : 44); i++) { /* the index grows meanwhile */
    guint n = i == (chunks ? 10 : 20) ? 20 : 1;    /* a chunk, sparse too */

    run (&cpu, ids + first + n_rows, n, LYCHEE_OUTPUT_LAST);
    run (&cuda, ids + first + n_rows, n, LYCHEE_OUTPUT_LAST);
    n_rows += n;
    away = distance (cuda.logits, cpu.logits, n_vocab);
    g_test_message ("step %u: logits differ by %.2e", i, away);
    n_far += away > 3e-3;
    g_assert_cmpfloat (away, <, 0.1);
  }
  /* Leaves that are as good as equally dense fall here and there: other rows are read then. */
  g_assert_cmpuint (n_far, <=, 4);
  lychee_worker_take_stats (cpu.worker, &wanted);
  lychee_worker_take_stats (cuda.worker, &got);
  /* All upkeep but the first was the device's, of tokens. */
  g_assert_cmpuint (lychee_cache_get_index (cuda.cache, 1, 0)->placed, >=, chunks ? 0 : 32);
  g_assert_cmpuint (got.sparse, ==, wanted.sparse);
  g_assert_cmpuint (got.dense, ==, wanted.dense);
  g_assert_cmpuint (got.rows_visible, ==, wanted.rows_visible);
  g_assert_cmpuint (got.rows_read, ==, wanted.rows_read);
  g_assert_cmpuint (got.rows_estimated, ==, wanted.rows_estimated);
  g_assert_cmpuint (got.audits, ==, wanted.audits);
  g_assert_cmpfloat (fabs (got.missed_mass - wanted.missed_mass), <, 0.02 * wanted.audits);
  g_assert_cmpfloat (fabs (got.error - wanted.error), <, 0.02 * wanted.audits);
  /* Near ties of nodes fall here and there; of chunks, the device scores all clusters. */
  if (chunks)
    g_assert_cmpuint (got.nodes_scored, >=, wanted.nodes_scored);
  else
    g_assert_cmpfloat (
        fabs ((double) got.nodes_scored - wanted.nodes_scored), <, 0.01 * wanted.nodes_scored);
  lychee_worker_free (reader.worker);
  lychee_worker_free (cpu.worker);
  lychee_worker_free (cuda.worker);
  g_object_unref (reader.cache);
  g_object_unref (cpu.cache);
  g_object_unref (cuda.cache);
}

/* What rows get of attention adds up to what it does on the processor, dense and sparse, over
 * several passes, of which some are left out. */
static void
test_weights (void)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "weights.gguf");
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = 160, .rest = TRUE };
  const guint n_rows = 380, n_bins = n_rows / 10, n_heads = lychee_model_get_n_heads (model);
  const guint n_layers = lychee_model_get_n_layers (model);
  g_autofree guint32 *bins = g_new (guint32, n_rows);
  g_autofree gint32 *ids = g_new (gint32, 512);
  float *sums[2][2]; /* side, dense or sparse */
  LycheeAttentionWeights weights = { 20, n_rows, bins, n_bins, 0, n_layers, NULL };
  Side reader = { new_worker (LYCHEE_BACKEND_CPU, model), new_cache (model) };
  gsize n_sums = (gsize) n_layers * n_heads * n_bins;

  for (guint i = 0; i < n_rows; i++)
    bins[i] = i / 10;
  make_ids (ids, 512, 6);
  run (&reader, ids, 400, LYCHEE_OUTPUT_NONE);
  for (guint side = 0; side < 2; side++) {
    Side s = { new_worker (side ? LYCHEE_BACKEND_CUDA : LYCHEE_BACKEND_CPU, model),
      lychee_cache_fork (reader.cache, NULL) };
    g_autoptr (GError) error = NULL;

    for (guint sparse = 0; sparse < 2; sparse++) {
      sums[side][sparse] = g_new0 (float, n_sums);
      weights.sum = sums[side][sparse];
      options.sparse = sparse;
      lychee_worker_set_options (s.worker, &options);
      lychee_worker_set_weights (s.worker, &weights);
      run (&s, ids + 400 + 30 * sparse, 20, LYCHEE_OUTPUT_LAST);
      for (guint i = 0; i < 4; i++) {
        lychee_worker_pause_weights (s.worker, i % 2 == 0);
        run (&s, ids + 420 + 30 * sparse + i, 1, LYCHEE_OUTPUT_LAST);
      }
    }
    lychee_worker_collect_weights (s.worker, &error);
    g_assert_no_error (error);
    lychee_worker_set_weights (s.worker, NULL);
    run (&s, ids, 1, LYCHEE_OUTPUT_LAST);
    lychee_worker_free (s.worker);
    g_object_unref (s.cache);
  }
  for (guint sparse = 0; sparse < 2; sparse++) {
    double all = 0;

    for (gsize i = 0; i < n_sums; i++)
      all += sums[0][sparse][i];
    /* 22 tokens, of which the rows that are looked at get a share. */
    g_assert_cmpfloat (all, >, 22 * n_layers * n_heads * 0.1);
    g_assert_cmpfloat (
        distance (sums[1][sparse], sums[0][sparse], n_sums), <, sparse ? 0.05 : 5e-3);
    g_free (sums[0][sparse]);
    g_free (sums[1][sparse]);
  }
  lychee_worker_free (reader.worker);
  g_object_unref (reader.cache);
}

/* A cache that is cut and grows anew, and forks of it, see the rows that they hold. */
static void
test_truncate (void)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "truncate.gguf");
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = 128, .rest = TRUE };
  Side cpu = { new_worker (LYCHEE_BACKEND_CPU, model), new_cache (model) };
  Side cuda = { new_worker (LYCHEE_BACKEND_CUDA, model), new_cache (model) };
  Side *sides[] = { &cpu, &cuda };
  guint n_vocab = lychee_model_get_n_vocab (model);
  g_autofree gint32 *ids = g_new (gint32, 1024);

  make_ids (ids, 1024, 9);
  for (guint s = 0; s < 2; s++) {
    g_autoptr (LycheeCache) whole = NULL;

    run (sides[s], ids, 300, LYCHEE_OUTPUT_NONE);
    whole = sides[s]->cache;
    sides[s]->cache = lychee_cache_fork (whole, NULL);
    run (sides[s], ids + 500, 40, LYCHEE_OUTPUT_NONE);
    lychee_cache_truncate (sides[s]->cache, 270);
    run (sides[s], ids + 600, 30, LYCHEE_OUTPUT_NONE);
    lychee_worker_set_options (sides[s]->worker, &options);
    for (guint i = 0; i < 8; i++)
      run (sides[s], ids + 700 + i, 1, LYCHEE_OUTPUT_LAST);
  }
  g_assert_cmpfloat (distance (cuda.logits, cpu.logits, n_vocab), <, 3e-2);
  for (guint s = 0; s < 2; s++) {
    lychee_worker_free (sides[s]->worker);
    g_object_unref (sides[s]->cache);
  }
}

/* Tokens that are chosen on the device are those that the sampler chooses from the same logits. */
static void
test_choosing (void)
{
  static const struct {
    double temperature, top_p, min_p, penalty;
    guint top_k;
  } settings[] = {
    { 0, 1, 0, 1.1, 0 },
    { 1, 1, 0, 1, 0 },
    { 0.8, 0.9, 0.02, 1.2, 40 },
    { 3, 1, 0, 1, 5 },
  };
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "choosing.gguf");
  guint n_vocab = lychee_model_get_n_vocab (model);
  gint32 first[40];

  make_ids (first, G_N_ELEMENTS (first), 4);
  for (guint i = 0; i < G_N_ELEMENTS (settings); i++) {
    Side plain = { new_worker (LYCHEE_BACKEND_CUDA, model), new_cache (model) };
    Side choosing = { new_worker (LYCHEE_BACKEND_CUDA, model), new_cache (model) };
    g_autoptr (LycheeSampler) sampler =
        g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", settings[i].temperature, "top-p",
            settings[i].top_p, "min-p", settings[i].min_p, "top-k", settings[i].top_k,
            "repetition-penalty", settings[i].penalty, "seed", (guint64) 7 + i, NULL);
    g_autoptr (LycheeSampler) same = lychee_sampler_copy (sampler);
    const gint32 *ids = first;
    gint32 next;
    guint n = G_N_ELEMENTS (first);

    for (guint step = 0; step < 10; step++) {
      g_autoptr (GError) error = NULL;
      gint32 wanted, id;

      run (&plain, ids, n, LYCHEE_OUTPUT_LAST);
      wanted = lychee_sampler_sample (same, plain.logits, n_vocab);
      lychee_worker_run_choosing (
          choosing.worker, choosing.cache, ids, n, sampler, &id, NULL, &error);
      g_assert_no_error (error);
      g_assert_cmpint (id, ==, wanted);
      next = id;
      ids = &next;
      n = 1;
    }
    lychee_worker_free (plain.worker);
    lychee_worker_free (choosing.worker);
    g_object_unref (plain.cache);
    g_object_unref (choosing.cache);
  }
}

/* Greedy generation chooses the same tokens, but where two are as good as equal. */
static void
test_generation (gconstpointer data)
{
  LycheeRowForm form = GPOINTER_TO_INT (data);
  LycheeTinyModel tiny = plain_model ();

  for (guint seed = 1; seed <= (form == LYCHEE_ROW_F16 ? 2 : 1); seed++) {
    g_autoptr (LycheeModel) model = NULL;
    Side cpu, cuda;
    gint32 ids[90];
    guint n_vocab, n_close = 0;

    tiny.seed = seed;
    model = load (&tiny, "generation.gguf");
    n_vocab = lychee_model_get_n_vocab (model);
    cpu = (Side){ new_worker (LYCHEE_BACKEND_CPU, model), new_cache_with (model, 0, form) };
    cuda = (Side){ new_worker (LYCHEE_BACKEND_CUDA, model), new_cache_with (model, 0, form) };
    make_ids (ids, G_N_ELEMENTS (ids), seed);
    run (&cpu, ids, G_N_ELEMENTS (ids), LYCHEE_OUTPUT_LAST);
    run (&cuda, ids, G_N_ELEMENTS (ids), LYCHEE_OUTPUT_LAST);
    for (guint i = 0; i < 24; i++) {
      float gap, ignored;
      gint32 id = find_largest (cpu.logits, n_vocab, &gap);

      if (gap < 0.02)
        n_close++;
      else
        g_assert_cmpint (find_largest (cuda.logits, n_vocab, &ignored), ==, id);
      run (&cpu, &id, 1, LYCHEE_OUTPUT_LAST);
      run (&cuda, &id, 1, LYCHEE_OUTPUT_LAST);
    }
    g_assert_cmpuint (n_close, <, 8);
    lychee_worker_free (cpu.worker);
    lychee_worker_free (cuda.worker);
    g_object_unref (cpu.cache);
    g_object_unref (cuda.cache);
  }
}

#define N_STEPS 14

/* Sequences that are decoded at the same time share passes, and each gets what it gets alone. */
static void
test_together (gconstpointer sparse)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeBackend) backend = NULL;
  LycheeAttentionOptions options = { .sparse = sparse != NULL, .budget = 128, .rest = TRUE };
  Side reader;
  Decoding all[N_TOGETHER] = { { NULL } };
  guint n_vocab, n_compared, n_decoding;
  guint64 n_shared;
  gint32 ids[600];

  g_setenv ("LYCHEE_CUDA_PATIENCE", "60000000", TRUE); /* nobody goes on without the others */
  model = load (&tiny, "together.gguf");
  n_vocab = lychee_model_get_n_vocab (model);
  reader = (Side){ new_worker (LYCHEE_BACKEND_CUDA, model), new_cache (model) };
  g_unsetenv ("LYCHEE_CUDA_PATIENCE");
  backend = lychee_backend_new (LYCHEE_BACKEND_CUDA, model, 1, 0, NULL);
  make_ids (ids, G_N_ELEMENTS (ids), 21);
  for (guint i = 0; i < N_TOGETHER; i++) {
    Side alone = { new_worker (LYCHEE_BACKEND_CUDA, model), NULL };

    run (&reader, ids + 130 * i, 130, LYCHEE_OUTPUT_NONE);
    all[i] = (Decoding){ .model = model,
      .cache = lychee_cache_fork (reader.cache, NULL),
      .options = &options,
      .ids = ids + 400 + 30 * i,
      .n_steps = N_STEPS,
      .backend = backend };
    alone.cache = lychee_cache_fork (reader.cache, NULL);
    lychee_worker_set_options (alone.worker, &options);
    for (guint step = 0; step < N_STEPS; step++) {
      run (&alone, all[i].ids + step, 1, LYCHEE_OUTPUT_LAST);
      all[i].wanted[step] = find_largest (alone.logits, n_vocab, &all[i].gap[step]);
    }
    lychee_worker_free (alone.worker);
    g_object_unref (alone.cache);
  }
  lychee_backend_get_sharing (backend, &n_decoding, &n_shared);
  g_assert_cmpuint (n_decoding, ==, 0);
  g_assert_cmpuint (n_shared, ==, 0);
  n_compared = decode_together (all, 0.02);
  for (guint i = 0; i < N_TOGETHER; i++) {
    g_assert_cmpuint (lychee_cache_get_length (all[i].cache), ==, 130 * (i + 1) + N_STEPS);
    g_object_unref (all[i].cache);
  }
  lychee_backend_get_sharing (backend, &n_decoding, &n_shared);
  g_test_message ("%u tokens compared, %" G_GUINT64_FORMAT " shared", n_compared, n_shared);
  g_assert_cmpuint (n_decoding, ==, 0);
  g_assert_cmpuint (n_compared, >, N_TOGETHER * N_STEPS / 2);
  /* Those that bring their index up to date let the others go on. */
  g_assert_cmpuint (n_shared, >, N_TOGETHER * N_STEPS / 2);
  lychee_worker_free (reader.worker);
  g_object_unref (reader.cache);
}

static LycheeChunk *
new_chunk (guint number)
{
  gint32 ids[12];

  make_ids (ids, 12, number + 100);
  return lychee_chunk_new (ids, 12, "words", NULL, number * G_GUINT64_CONSTANT (1000000000),
      G_GUINT64_CONSTANT (1000000000), LYCHEE_BOUNDARY_WORD, 0, number);
}

/* Sessions use it, two at a time, and say so. */
static void
test_session (void)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "session.gguf");
  g_autoptr (LycheeSession) session = g_object_new (LYCHEE_TYPE_SESSION, "model", model, "backend",
      LYCHEE_BACKEND_CUDA, "budget", 128, "prefill", LYCHEE_ATTENTION_SPARSE, "reserve", 100, NULL);
  g_autoptr (LycheeSession) other = NULL;
  g_autoptr (LycheeQuestion) question = lychee_question_new ("What was decided?");
  LycheeSession *sessions[2];
  g_autoptr (GError) error = NULL;

  for (guint i = 0; i < 14; i++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (i);

    lychee_session_append (session, chunk, NULL, &error);
    g_assert_no_error (error);
  }
  /* As a decoder does, which is given the indexer's cache. */
  other = g_object_new (
      LYCHEE_TYPE_SESSION, "model", model, "backend", LYCHEE_BACKEND_AUTO, "budget", 128, NULL);
  lychee_session_set_cache (other, lychee_session_get_cache (session));
  lychee_question_set_max_tokens (question, 5);
  sessions[0] = session;
  sessions[1] = other;
  for (guint i = 0; i < 2; i++) {
    g_autoptr (GVariant) stats = NULL;
    g_autoptr (LycheeAnswer) said =
        lychee_session_ask (sessions[i], question, NULL, NULL, NULL, &error);
    const char *name;
    guint64 n_sparse;

    g_assert_no_error (error);
    g_assert_cmpuint (strlen (lychee_answer_get_text (said)), >, 0);
    g_assert_cmpuint (lychee_answer_get_evidence (said)->len, >, 0);
    stats = lychee_session_get_stats (sessions[i]);
    g_assert_true (g_variant_lookup (stats, "backend", "&s", &name));
    g_assert_true (g_str_has_suffix (name, "(CUDA device 0)"));
    g_assert_true (g_variant_lookup (stats, "sparse-queries", "t", &n_sparse));
    g_assert_cmpuint (n_sparse, >, 0);
  }
}

/* Whether the device's memory and presence can be feigned. With a model of its own, for the device
 * is held as long as a model is on it. */
static gboolean
is_emulated (void)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "any.gguf");
  g_autoptr (LycheeBackend) backend = lychee_backend_new (LYCHEE_BACKEND_CUDA, model, 1, 0, NULL);

  return backend && g_str_has_prefix (lychee_backend_get_name (backend), "emulated");
}

static void
expect_error (LycheeModel *model, guint device, int code, const char *part)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeBackend) cuda =
      lychee_backend_new (LYCHEE_BACKEND_CUDA, model, 1, device, &error);
  g_autoptr (LycheeBackend) automatic = NULL;

  g_assert_null (cuda);
  g_assert_error (error, LYCHEE_BACKEND_ERROR, code);
  g_test_message ("%s", error->message);
  if (!strstr (error->message, part))
    g_error ("“%s” does not say “%s”", error->message, part);
  automatic = lychee_backend_new (LYCHEE_BACKEND_AUTO, model, 1, device, NULL);
  g_assert_cmpint (lychee_backend_get_kind (automatic), ==, LYCHEE_BACKEND_CPU);
  g_assert_nonnull (strstr (lychee_backend_get_note (automatic), part));
}

static void
test_errors (void)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "errors.gguf");
  g_autoptr (LycheeModel) small = NULL;

  if (!is_emulated ()) {
    g_test_skip ("this is a real device");
    return;
  }
  tiny.head_dim = 16;
  small = load (&tiny, "small.gguf");
  expect_error (small, 0, LYCHEE_BACKEND_ERROR_UNSUPPORTED, "16 dimensions");
  expect_error (model, 7, LYCHEE_BACKEND_ERROR_UNAVAILABLE, "device 7");
  g_setenv ("LYCHEE_EMULATED_DEVICES", "-1", TRUE);
  expect_error (model, 0, LYCHEE_BACKEND_ERROR_UNAVAILABLE, "no NVIDIA driver");
  g_setenv ("LYCHEE_EMULATED_DEVICES", "-2", TRUE);
  expect_error (model, 0, LYCHEE_BACKEND_ERROR_UNAVAILABLE, "a later driver");
  g_setenv ("LYCHEE_EMULATED_DEVICES", "0", TRUE);
  expect_error (model, 0, LYCHEE_BACKEND_ERROR_UNAVAILABLE, "no CUDA-capable");
  g_unsetenv ("LYCHEE_EMULATED_DEVICES");
  g_setenv ("LYCHEE_EMULATED_MEMORY", "200000", TRUE);
  expect_error (model, 0, LYCHEE_BACKEND_ERROR_NO_MEMORY, "GB");
  g_unsetenv ("LYCHEE_EMULATED_MEMORY");
}

/* All that a device other than the first one computes with is that device's own, whichever thread
 * asks for it. */
static void
test_second_device (void)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeQuestion) question = lychee_question_new ("What was decided?");
  g_autofree char *wanted = NULL;

  if (!is_emulated ()) {
    g_test_skip ("this is a real device");
    return;
  }
  lychee_question_set_max_tokens (question, 4);
  model = load (&tiny, "second.gguf");
  g_setenv ("LYCHEE_EMULATED_DEVICES", "2", TRUE);
  for (guint device = 0; device < 2; device++) {
    g_autoptr (LycheeSession) session = g_object_new (LYCHEE_TYPE_SESSION, "model", model,
        "backend", LYCHEE_BACKEND_CUDA, "cuda-device", device, "budget", 128, "reserve", 100, NULL);
    g_autoptr (LycheeAnswer) said = NULL;
    g_autoptr (GVariant) stats = NULL;
    g_autoptr (GError) error = NULL;
    const char *name;

    for (guint i = 0; i < 14; i++) {
      g_autoptr (LycheeChunk) chunk = new_chunk (i);

      lychee_session_append (session, chunk, NULL, &error);
      g_assert_no_error (error);
    }
    said = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
    g_assert_no_error (error);
    stats = lychee_session_get_stats (session);
    g_assert_true (g_variant_lookup (stats, "backend", "&s", &name));
    g_assert_true (g_str_has_suffix (name, device ? "(CUDA device 1)" : "(CUDA device 0)"));
    if (device == 0)
      wanted = g_strdup (lychee_answer_get_text (said));
    else
      g_assert_cmpstr (lychee_answer_get_text (said), ==, wanted);
  }
  g_clear_object (&model); /* and what the devices have of it */
  g_unsetenv ("LYCHEE_EMULATED_DEVICES");
}

/* A transcript that outgrows the device is an error, and everything before it is still there. */
static void
test_no_memory (void)
{
  LycheeTinyModel tiny = plain_model ();
  g_autoptr (LycheeModel) model = load (&tiny, "memory.gguf");
  Side cuda;
  g_autoptr (GError) error = NULL;
  gint32 ids[256];
  guint length;

  if (!is_emulated ()) {
    g_test_skip ("this is a real device");
    return;
  }
  cuda = (Side){ new_worker (LYCHEE_BACKEND_CUDA, model), new_cache (model) };
  make_ids (ids, 256, 1);
  run (&cuda, ids, 200, LYCHEE_OUTPUT_NONE);
  g_setenv ("LYCHEE_EMULATED_MEMORY", "1", TRUE);
  length = lychee_cache_get_length (cuda.cache);
  while (lychee_worker_run (
      cuda.worker, cuda.cache, ids, 100, LYCHEE_OUTPUT_NONE, NULL, NULL, &error)) {
    g_assert_cmpuint (lychee_cache_get_length (cuda.cache), <, 1000);
    length = lychee_cache_get_length (cuda.cache);
  }
  g_assert_error (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_NO_MEMORY);
  g_test_message ("%s", error->message);
  g_assert_cmpuint (lychee_cache_get_length (cuda.cache), ==, length);
  g_unsetenv ("LYCHEE_EMULATED_MEMORY");
  run (&cuda, ids, 100, LYCHEE_OUTPUT_LAST);
  g_assert_cmpuint (lychee_cache_get_length (cuda.cache), ==, length + 100);
  lychee_worker_free (cuda.worker);
  g_object_unref (cuda.cache);
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-cuda-XXXXXX", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++) {
    g_autofree char *name = g_strdup_printf ("/cuda/backend/%s", kinds[i].name);

    g_test_add_data_func (name, &kinds[i], test_kinds);
  }
  g_test_add_data_func ("/cuda/backend/rows/f16", GINT_TO_POINTER (LYCHEE_ROW_F16), test_rows);
  g_test_add_data_func ("/cuda/backend/rows/q8_0", GINT_TO_POINTER (LYCHEE_ROW_Q8_0), test_rows);
  for (guint i = 0; i < G_N_ELEMENTS (sparse_cases); i++) {
    g_autofree char *name = g_strdup_printf ("/cuda/backend/sparse/%s", sparse_cases[i].name);

    g_test_add_data_func (name, GUINT_TO_POINTER (i), test_sparse);
  }
  g_test_add_func ("/cuda/backend/weights", test_weights);
  g_test_add_func ("/cuda/backend/truncate", test_truncate);
  g_test_add_func ("/cuda/backend/choosing", test_choosing);
  g_test_add_data_func (
      "/cuda/backend/generation/f16", GINT_TO_POINTER (LYCHEE_ROW_F16), test_generation);
  g_test_add_data_func (
      "/cuda/backend/generation/q8_0", GINT_TO_POINTER (LYCHEE_ROW_Q8_0), test_generation);
  g_test_add_data_func ("/cuda/backend/together/dense", NULL, test_together);
  g_test_add_data_func ("/cuda/backend/together/sparse", "sparse", test_together);
  g_test_add_func ("/cuda/backend/session", test_session);
  g_test_add_func ("/cuda/backend/errors", test_errors);
  g_test_add_func ("/cuda/backend/no-memory", test_no_memory);
  g_test_add_func ("/cuda/backend/second-device", test_second_device);
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
