/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* LycheeModel and its forward pass: against itself cut another way, and with every kind of broken
 * file. test-architectures.c compares it with a float64 reference. */

#include "lychee-forward.h"
#include "lychee-model.h"
#include "model-logits.h"
#include "tiny-model.h"

#include <gguf.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static char *dir;

/* However a text is cut into passes, the model says the same. */
static void
test_steps (gconstpointer data)
{
  guint step = GPOINTER_TO_UINT (data), n = 300, n_vocab;
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "steps.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autofree gint32 *ids = g_new (gint32, n);
  g_autofree float *whole = NULL, *parts = NULL;

  n_vocab = lychee_model_get_n_vocab (model);
  test_model_ids (ids, n, n_vocab);
  whole = test_model_logits (model, ids, n, 512, 1);
  parts = test_model_logits (model, ids, n, step, 1);
  for (gsize i = 0; i < (gsize) n * n_vocab; i++)
    g_assert_cmpfloat_with_epsilon (whole[i], parts[i], 5e-5);
}

static void
test_threads (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "threads.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  guint n = 600, n_vocab = lychee_model_get_n_vocab (model);
  g_autofree gint32 *ids = g_new (gint32, n);
  g_autofree float *one = NULL;

  test_model_ids (ids, n, n_vocab);
  one = test_model_logits (model, ids, n, 12, 1);
  for (guint threads = 2; threads <= 4; threads++) {
    g_autofree float *more = test_model_logits (model, ids, n, 12, threads);

    g_assert_cmpmem (one, n * n_vocab * sizeof *one, more, n * n_vocab * sizeof *more);
  }
}

/* Asking for the last token's logits only gives what asking for all gives. */
static void
test_last (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "last.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (2);
  g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
  g_autoptr (LycheeCache) cache = test_model_cache (model, 64);
  g_autoptr (GError) error = NULL;
  g_autofree float *all = NULL;
  guint n_vocab = lychee_model_get_n_vocab (model);
  const float *logits;
  gint32 ids[50];

  test_model_ids (ids, 50, n_vocab);
  all = test_model_logits (model, ids, 50, 50, 2);
  lychee_forward_run (forward, cache, ids, 30, LYCHEE_OUTPUT_NONE, &logits, NULL, &error);
  g_assert_no_error (error);
  g_assert_null (logits);
  lychee_forward_run (forward, cache, ids + 30, 20, LYCHEE_OUTPUT_LAST, &logits, NULL, &error);
  g_assert_no_error (error);
  for (guint i = 0; i < n_vocab; i++)
    g_assert_cmpfloat_with_epsilon (logits[i], all[49 * n_vocab + i], 5e-5);
}

/* No token sees what comes after it: another last token leaves all logits before it alone. Lengths
 * at and around the edges of pages and of the blocks of tokens that are answered together. */
static void
test_causal (void)
{
  const guint lengths[] = { 2, 3, 15, 16, 17, 33, 255, 256, 257, 300 };
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "causal.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  guint n_vocab = lychee_model_get_n_vocab (model);

  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++) {
    guint n = lengths[i];
    g_autofree gint32 *ids = g_new (gint32, n);
    g_autofree float *a = NULL, *b = NULL;
    gsize before = (gsize) (n - 1) * n_vocab;

    test_model_ids (ids, n, n_vocab);
    a = test_model_logits (model, ids, n, 512, 1);
    ids[n - 1] = (ids[n - 1] + 100) % n_vocab;
    b = test_model_logits (model, ids, n, 512, 1);
    g_assert_cmpmem (a, before * sizeof *a, b, before * sizeof *b);
    g_assert_cmpint (memcmp (a + before, b + before, n_vocab * sizeof *a), !=, 0);
  }
}

/* Sparse attention that selects everything is dense attention, up to rounding; several pieces of
 * the selection, sinks, window and the rest all take part. */
static void
test_sparse_is_dense (gconstpointer data)
{
  const LycheeCacheIndexing indexing = {
    .granularity = GPOINTER_TO_UINT (data), .sinks = 16, .window = 64
  };
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "sparse.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  guint n = 900, n_vocab = lychee_model_get_n_vocab (model);
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);
  g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
  g_autoptr (LycheeCache) cache = test_model_cache (model, n);
  g_autoptr (GError) error = NULL;
  g_autofree gint32 *ids = g_new (gint32, n);
  g_autofree float *dense = NULL;
  /* All but one token: the smallest budget that is not answered densely at the last position. */
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = n - 1, .rest = TRUE, .beam = 100 };
  LycheeAttentionStats stats;
  const float *logits;

  test_model_ids (ids, n, n_vocab);
  dense = test_model_logits (model, ids, n, 12, 1);
  lychee_cache_enable_index (cache, &indexing);
  for (guint at = 0; at < n - 1;) {
    guint now = MIN (12, n - 1 - at);

    lychee_forward_run (forward, cache, ids + at, now, LYCHEE_OUTPUT_NONE, NULL, NULL, &error);
    g_assert_no_error (error);
    at += now;
  }
  /* What has left the window is in the index, but for less than an upkeep's step. */
  for (guint layer = 0; layer < tiny.n_layers; layer++) {
    guint end = lychee_index_get_end (lychee_cache_get_index (cache, layer, 0));

    g_assert_cmpuint (end, <=, n - 1 - indexing.window);
    g_assert_cmpuint (end, >, n - 1 - indexing.window - 48);
    g_assert_cmpuint (lychee_index_get_begin (lychee_cache_get_index (cache, layer, 0)), ==, 16);
  }
  lychee_attention_set_options (lychee_forward_get_attention (forward), &options);
  lychee_attention_reset_stats (lychee_forward_get_attention (forward));
  lychee_forward_run (forward, cache, ids + n - 1, 1, LYCHEE_OUTPUT_LAST, &logits, NULL, &error);
  g_assert_no_error (error);
  lychee_attention_get_stats (lychee_forward_get_attention (forward), &stats);
  g_assert_cmpuint (stats.sparse, ==, tiny.n_layers * tiny.n_kv_heads);
  g_assert_cmpuint (stats.rows_read, >=, stats.sparse * (n - 20));
  for (guint i = 0; i < n_vocab; i++)
    g_assert_cmpfloat_with_epsilon (logits[i], dense[(gsize) (n - 1) * n_vocab + i], 2e-3);

  /* At the budget it is dense, bit for bit. */
  lychee_cache_truncate (cache, n - 1);
  options.budget = n;
  lychee_attention_set_options (lychee_forward_get_attention (forward), &options);
  lychee_attention_reset_stats (lychee_forward_get_attention (forward));
  lychee_forward_run (forward, cache, ids + n - 1, 1, LYCHEE_OUTPUT_LAST, &logits, NULL, &error);
  g_assert_no_error (error);
  lychee_attention_get_stats (lychee_forward_get_attention (forward), &stats);
  g_assert_cmpuint (stats.sparse, ==, 0);
  g_assert_cmpuint (stats.dense_fallback, >, 0);

  /* Cut back, the index ends before the window again. */
  lychee_cache_truncate (cache, 500);
  g_assert_cmpuint (
      lychee_index_get_end (lychee_cache_get_index (cache, 0, 0)), <=, 500 - indexing.window);
}

/* Weights that are not numbers: an error in the end, and no hang. */
static void
test_not_finite (void)
{
  const LycheeCacheIndexing indexing = { .sinks = 16, .window = 64 };
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL, *data = NULL, *broken = NULL;
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);
  g_autoptr (LycheeForward) forward = NULL;
  g_autoptr (LycheeCache) cache = NULL;
  g_autoptr (GError) error = NULL;
  gsize size;
  gint32 ids[12];
  guint before = 0;

  tiny.n_layers = 1;
  path = lychee_tiny_model_write (&tiny, dir, "finite.gguf");
  g_assert_true (g_file_get_contents (path, &data, &size, NULL));
  /* From the middle of the key weights on. */
  for (gsize i = size * 3 / 10; i + 4 <= size; i += 4)
    memcpy (data + (i & ~(gsize) 3), "\xff\xff\xff\x7f", 4);
  broken = test_model_put (dir, "nan.gguf", data, size);
  model = test_model_load (broken);
  forward = lychee_forward_new (model, executor);
  cache = test_model_cache (model, 600);
  lychee_cache_enable_index (cache, &indexing);
  test_model_ids (ids, 12, lychee_model_get_n_vocab (model));
  for (guint i = 0; i < 40 && !error; i++) {
    before = lychee_cache_get_length (cache);
    lychee_forward_run (forward, cache, ids, 12, LYCHEE_OUTPUT_NONE, NULL, NULL, &error);
  }
  g_assert_error (error, LYCHEE_INDEX_ERROR, LYCHEE_INDEX_ERROR_NOT_FINITE);
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, before);
}

static void
test_bad_id (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "id.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);
  g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
  g_autoptr (LycheeCache) cache = test_model_cache (model, 64);
  const gint32 bad[] = { -1, lychee_model_get_n_vocab (model), G_MAXINT32 };

  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    g_autoptr (GError) error = NULL;

    g_assert_false (
        lychee_forward_run (forward, cache, &bad[i], 1, LYCHEE_OUTPUT_LAST, NULL, NULL, &error));
    g_assert_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID);
    g_assert_cmpuint (lychee_cache_get_length (cache), ==, 0);
  }
}

static void
test_cancel (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "cancel.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (2);
  g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
  g_autoptr (LycheeCache) cache = test_model_cache (model, 64);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GError) error = NULL;
  gint32 ids[20];

  test_model_ids (ids, 20, lychee_model_get_n_vocab (model));
  g_cancellable_cancel (cancellable);
  g_assert_false (
      lychee_forward_run (forward, cache, ids, 20, LYCHEE_OUTPUT_LAST, NULL, cancellable, &error));
  g_assert_error (error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, 0);
  g_clear_error (&error);
  /* And it works again afterwards. */
  g_assert_true (
      lychee_forward_run (forward, cache, ids, 20, LYCHEE_OUTPUT_LAST, NULL, NULL, &error));
  g_assert_no_error (error);
}

static void
test_properties (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT, other = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL, *other_path = NULL;
  g_autoptr (LycheeModel) model = NULL, again = NULL, different = NULL;

  other.seed = 2;
  path = lychee_tiny_model_write (&tiny, dir, "a.gguf");
  other_path = lychee_tiny_model_write (&other, dir, "b.gguf");
  model = test_model_load (path);
  again = test_model_load (path);
  different = test_model_load (other_path);
  g_assert_cmpstr (lychee_model_get_id (model), ==, lychee_model_get_id (again));
  g_assert_cmpstr (lychee_model_get_id (model), !=, lychee_model_get_id (different));
  g_assert_cmpuint (strlen (lychee_model_get_id (model)), ==, 16);
  g_assert_cmpstr (lychee_model_get_name (model), ==, "tiny");
  g_assert_cmpstr (lychee_model_get_architecture (model), ==, "llama");
  g_assert_cmpstr (lychee_model_get_path (model), ==, path);
  g_assert_nonnull (lychee_model_get_chat_template (model));
  g_assert_cmpuint (lychee_model_get_n_layers (model), ==, 2);
  g_assert_cmpuint (lychee_model_get_n_heads (model), ==, 4);
  g_assert_cmpuint (lychee_model_get_n_kv_heads (model), ==, 2);
  g_assert_cmpuint (lychee_model_get_head_dim (model), ==, 16);
  g_assert_cmpuint (lychee_model_get_n_context (model), ==, 2048);
  g_assert_null (lychee_model_get_warnings (model)[0]);
}

static void
test_no_rope_base (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *with = NULL, *without = NULL;
  g_autoptr (LycheeModel) assumed = NULL, set = NULL, wanted = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree float *a = NULL, *b = NULL, *c = NULL;
  gint32 ids[20];
  guint n_vocab;

  tiny.rope_freq_base = 0;
  without = lychee_tiny_model_write (&tiny, dir, "without.gguf");
  tiny.rope_freq_base = 5000;
  with = lychee_tiny_model_write (&tiny, dir, "with.gguf");

  assumed = test_model_load (without);
  g_assert_nonnull (lychee_model_get_warnings (assumed)[0]);
  g_assert_nonnull (strstr (lychee_model_get_warnings (assumed)[0], "llama.rope.freq_base"));
  set = lychee_model_new_full (without, 5000, &error);
  g_assert_no_error (error);
  wanted = test_model_load (with);
  n_vocab = lychee_model_get_n_vocab (set);
  test_model_ids (ids, 20, n_vocab);
  a = test_model_logits (set, ids, 20, 20, 1);
  b = test_model_logits (wanted, ids, 20, 20, 1);
  c = test_model_logits (assumed, ids, 20, 20, 1);
  g_assert_cmpmem (a, 20 * n_vocab * sizeof *a, b, 20 * n_vocab * sizeof *b);
  g_assert_cmpint (memcmp (a, c, 20 * n_vocab * sizeof *a), !=, 0);
}

/* Broken files. */

static void
test_no_file (void)
{
  g_autofree char *path = g_build_filename (dir, "not-there.gguf", NULL);
  g_autofree char *empty = test_model_put (dir, "empty.gguf", "", 0);
  g_autofree char *text = test_model_put (dir, "text.gguf", "Hello, this is no model at all.", 31);
  g_autofree char *big_endian =
      test_model_put (dir, "big.gguf", "GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  g_autofree char *version =
      test_model_put (dir, "version.gguf", "GGUF\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  g_autofree char *magic = test_model_put (dir, "magic.gguf", "GGUF", 4);
  g_autofree char *nothing =
      test_model_put (dir, "nothing.gguf", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  g_autofree char *zero =
      test_model_put (dir, "zero.gguf", "GGUF\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  g_autofree char *fifo = g_build_filename (dir, "fifo.gguf", NULL);
  g_autofree char *many = test_model_put (
      dir, "many.gguf", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\377\377\377\377\377\377\377\177", 24);

  test_model_expect_error (path, LYCHEE_MODEL_ERROR_OPEN, "No such file");
  test_model_expect_error (dir, LYCHEE_MODEL_ERROR_OPEN, "directory");
  g_assert_cmpint (mkfifo (fifo, 0600), ==, 0);
  test_model_expect_error (fifo, LYCHEE_MODEL_ERROR_OPEN, "regular file");
  test_model_expect_error (zero, LYCHEE_MODEL_ERROR_FORMAT, "version 0");
  test_model_expect_error (empty, LYCHEE_MODEL_ERROR_FORMAT, "empty");
  test_model_expect_error (text, LYCHEE_MODEL_ERROR_FORMAT, "not a GGUF file");
  test_model_expect_error (big_endian, LYCHEE_MODEL_ERROR_FORMAT, "byte order");
  test_model_expect_error (version, LYCHEE_MODEL_ERROR_FORMAT, "version 1");
  test_model_expect_error (magic, LYCHEE_MODEL_ERROR_TRUNCATED, "header");
  test_model_expect_error (nothing, LYCHEE_MODEL_ERROR_INVALID, "general.architecture");
  test_model_expect_error (many, LYCHEE_MODEL_ERROR_TRUNCATED, "keys");
}

/* Cut anywhere, the file is an error and nothing worse. */
static void
test_truncated (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "whole.gguf");
  g_autofree char *data = NULL;
  gsize size;

  g_assert_true (g_file_get_contents (path, &data, &size, NULL));
  for (gsize n = 1; n < size; n = n < 12000 ? n + 7 : n + 1013) {
    g_autofree char *cut = test_model_put (dir, "cut.gguf", data, n);
    g_autoptr (GError) error = NULL;

    g_assert_null (lychee_model_new_from_file (cut, &error));
    g_assert_nonnull (error);
  }
  {
    g_autofree char *cut = test_model_put (dir, "cut.gguf", data, size - 100);

    test_model_expect_error (cut, LYCHEE_MODEL_ERROR_TRUNCATED, "tensor");
  }
}

/* Any byte of the header changed: an error or a model, never a crash. */
static void
test_altered (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL, *data = NULL;
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);
  gsize size;

  tiny.n_layers = 1;
  path = lychee_tiny_model_write (&tiny, dir, "good.gguf");
  g_assert_true (g_file_get_contents (path, &data, &size, NULL));
  for (guint i = 0; i < 1500; i++) {
    guint at = g_rand_int_range (rand, 4, MIN (size, 9000));
    char was = data[at];
    g_autofree char *altered = NULL;
    g_autoptr (LycheeModel) model = NULL;

    data[at] = i % 3 == 0 ? (char) 0xff : (char) g_rand_int (rand);
    altered = test_model_put (dir, "altered.gguf", data, size);
    model = lychee_model_new_from_file (altered, NULL);
    data[at] = was;
  }
}

typedef void (*Alter) (struct gguf_context *gguf, struct ggml_context *tensors);

static void
set_architecture (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_str (gguf, "general.architecture", "mamba");
}

static void
remove_layers (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_remove_key (gguf, "llama.block_count");
}

static void
more_layers (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_u32 (gguf, "llama.block_count", 3);
}

static void
layers_as_text (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_str (gguf, "llama.block_count", "two");
}

static void
no_heads (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_u32 (gguf, "llama.attention.head_count", 0);
}

static void
odd_groups (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_u32 (gguf, "llama.attention.head_count_kv", 3);
}

static void
wrong_width (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_u32 (gguf, "llama.feed_forward_length", 128);
}

static void
huge_head (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_u32 (gguf, "llama.attention.key_length", 512);
  gguf_set_val_u32 (gguf, "llama.attention.value_length", 512);
}

static void
experts (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_u32 (gguf, "llama.expert_count", 8);
}

static void
scaling (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_str (gguf, "llama.rope.scaling.type", "dynamic");
  gguf_set_val_f32 (gguf, "llama.rope.scaling.factor", 4);
}

static void
many_heads (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_u32 (gguf, "llama.attention.head_count", 65536);
  gguf_set_val_u32 (gguf, "llama.attention.head_count_kv", 65536);
}

static void
bad_eps (struct gguf_context *gguf, struct ggml_context *tensors)
{
  gguf_set_val_f32 (gguf, "llama.attention.layer_norm_rms_epsilon", NAN);
}

static void
rename_tensor (struct gguf_context *gguf, struct ggml_context *tensors)
{
  ggml_set_name (ggml_get_tensor (tensors, "blk.1.ffn_up.weight"), "blk.1.ffn_upp.weight");
}

static void
integers (struct gguf_context *gguf, struct ggml_context *tensors)
{
  ggml_get_tensor (tensors, "blk.0.attn_q.weight")->type = GGML_TYPE_I32;
}

static const struct {
  const char *name;
  Alter alter;
  gint code;
  const char *named;
} broken[] = {
  { "architecture", set_architecture, LYCHEE_MODEL_ERROR_UNSUPPORTED, "mamba" },
  { "missing-key", remove_layers, LYCHEE_MODEL_ERROR_INVALID, "llama.block_count" },
  { "missing-layer", more_layers, LYCHEE_MODEL_ERROR_INVALID, "blk.2." },
  { "key-type", layers_as_text, LYCHEE_MODEL_ERROR_INVALID, "llama.block_count" },
  { "no-heads", no_heads, LYCHEE_MODEL_ERROR_INVALID, "head_count" },
  { "odd-groups", odd_groups, LYCHEE_MODEL_ERROR_INVALID, "head_count_kv" },
  { "shape", wrong_width, LYCHEE_MODEL_ERROR_INVALID, "blk.0.ffn_" },
  { "head-size", huge_head, LYCHEE_MODEL_ERROR_UNSUPPORTED, "key_length" },
  { "many-heads", many_heads, LYCHEE_MODEL_ERROR_UNSUPPORTED, "head_count" },
  { "experts", experts, LYCHEE_MODEL_ERROR_UNSUPPORTED, "expert_count" },
  { "rope-scaling", scaling, LYCHEE_MODEL_ERROR_UNSUPPORTED, "dynamic" },
  { "epsilon", bad_eps, LYCHEE_MODEL_ERROR_INVALID, "layer_norm_rms_epsilon" },
  { "missing-tensor", rename_tensor, LYCHEE_MODEL_ERROR_INVALID, "blk.1.ffn_up.weight" },
  { "tensor-type", integers, LYCHEE_MODEL_ERROR_UNSUPPORTED, "blk.0.attn_q.weight" },
};

static void
test_broken (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *good = lychee_tiny_model_write (&tiny, dir, "good.gguf");
  g_autofree char *path = g_build_filename (dir, "broken.gguf", NULL);
  struct ggml_context *tensors = NULL;
  struct gguf_init_params params = { .no_alloc = false, .ctx = &tensors };
  struct gguf_context *gguf = gguf_init_from_file (good, params);
  struct gguf_context *out = gguf_init_empty ();

  gguf_set_kv (out, gguf);
  broken[i].alter (out, tensors);
  for (struct ggml_tensor *t = ggml_get_first_tensor (tensors); t;
       t = ggml_get_next_tensor (tensors, t))
    if (gguf_find_tensor (gguf, t->name) >= 0 || g_str_has_prefix (t->name, "blk."))
      gguf_add_tensor (out, t);
  g_assert_true (gguf_write_to_file (out, path, false));
  gguf_free (out);
  gguf_free (gguf);
  ggml_free (tensors);
  test_model_expect_error (path, broken[i].code, broken[i].named);
}

/* The real model, where the test run has one: the float32 reference that came with the project's
 * design, next-token logits of a few prompts (tests/data/smollm2-logits.txt). */
static void
test_real (void)
{
  const char *path = g_getenv ("LYCHEE_TEST_MODEL");
  g_autofree char *file = g_test_build_filename (G_TEST_DIST, "data", "smollm2-logits.txt", NULL);
  g_autoptr (LycheeModel) model = NULL;
  g_autofree char *text = NULL;
  g_auto (GStrv) lines = NULL;
  g_autofree float *logits = NULL;
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  guint n_vocab, n_checked = 0;

  if (!path || !g_file_test (path, G_FILE_TEST_EXISTS)) {
    g_test_skip ("LYCHEE_TEST_MODEL names no model");
    return;
  }
  model = test_model_load (path);
  n_vocab = lychee_model_get_n_vocab (model);
  g_assert_true (g_file_get_contents (file, &text, NULL, NULL));
  lines = g_strsplit (text, "\n", -1);
  for (char **line = lines; *line; line++) {
    g_auto (GStrv) words = g_strsplit (*line, " ", -1);

    if (g_strcmp0 (words[0], "ids") == 0) {
      g_array_set_size (ids, 0);
      for (guint i = 1; words[i]; i++) {
        gint32 id = atoi (words[i]);

        g_array_append_val (ids, id);
      }
      g_free (logits);
      logits = test_model_logits (model, (gint32 *) ids->data, ids->len, 512, 2);
    } else if (g_strcmp0 (words[0], "nll") == 0) {
      double wanted = g_ascii_strtod (words[1], NULL), nll = 0;

      for (guint i = 0; i + 1 < ids->len; i++) {
        const float *row = logits + (gsize) i * n_vocab;
        double sum = 0;

        for (guint v = 0; v < n_vocab; v++)
          sum += exp (row[v] - row[0]);
        nll += log (sum) + row[0] - row[g_array_index (ids, gint32, i + 1)];
      }
      nll /= ids->len - 1;
      g_assert_cmpfloat_with_epsilon (nll, wanted, 0.01 * wanted);
      n_checked++;
    } else if (g_strcmp0 (words[0], "best") == 0) {
      /* best POSITION ID LEAD: only where the lead leaves room for rounded activations */
      const float *row = logits + (gsize) atoi (words[1]) * n_vocab;
      guint best = 0;

      for (guint v = 1; v < n_vocab; v++)
        if (row[v] > row[best])
          best = v;
      if (g_ascii_strtod (words[3], NULL) >= 0.5) {
        g_assert_cmpuint (best, ==, atoi (words[2]));
        n_checked++;
      }
    }
  }
  g_assert_cmpuint (n_checked, >=, 6);
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-model-XXXXXX", NULL);
  for (guint step = 1; step <= 64; step = step * 2 + 1) {
    g_autofree char *name = g_strdup_printf ("/model/steps/%u", step);

    g_test_add_data_func (name, GUINT_TO_POINTER (step), test_steps);
  }
  g_test_add_func ("/model/threads", test_threads);
  g_test_add_func ("/model/last", test_last);
  g_test_add_func ("/model/causal", test_causal);
  g_test_add_data_func ("/model/sparse-is-dense/token", GUINT_TO_POINTER (LYCHEE_GRANULARITY_TOKEN),
      test_sparse_is_dense);
  g_test_add_data_func ("/model/sparse-is-dense/chunk", GUINT_TO_POINTER (LYCHEE_GRANULARITY_CHUNK),
      test_sparse_is_dense);
  g_test_add_func ("/model/not-finite", test_not_finite);
  g_test_add_func ("/model/bad-id", test_bad_id);
  g_test_add_func ("/model/cancel", test_cancel);
  g_test_add_func ("/model/properties", test_properties);
  g_test_add_func ("/model/no-rope-base", test_no_rope_base);
  g_test_add_func ("/model/no-file", test_no_file);
  g_test_add_func ("/model/truncated", test_truncated);
  g_test_add_func ("/model/altered", test_altered);
  for (guint i = 0; i < G_N_ELEMENTS (broken); i++) {
    g_autofree char *name = g_strdup_printf ("/model/broken/%s", broken[i].name);

    g_test_add_data_func (name, GUINT_TO_POINTER (i), test_broken);
  }
  g_test_add_func ("/model/real", test_real);
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
