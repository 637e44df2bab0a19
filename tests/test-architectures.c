/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Every architecture that LycheeModel runs: right to the logit against a float64 reference, its
 * files split, cut and altered. */

#include "lychee-architecture.h"
#include "lychee-forward.h"
#include "lychee-model-private.h"
#include "model-logits.h"
#include "reference-forward.h"
#include "tiny-model.h"

#include <gguf.h>
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

static char *dir;

typedef struct {
  const char *name;
  LycheeTinyModel tiny;
  guint n_tokens;
  double tolerance;
  guint step;      /* 0: as many as go into a pass */
  guint n_context; /* 0: as trained */
} Case;

#define TINY(...)                                                                                  \
  {                                                                                                \
    .seed = 7, .n_layers = 2, .n_embd = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16,         \
    .n_ff = 96, .n_context = 2048, .type = GGML_TYPE_F32, .tied = FALSE, .rope_freq_base = 10000,  \
    __VA_ARGS__                                                                                    \
  }
/* Seven layers, of which the sixth sees everything. */
#define GEMMA(...)                                                                                 \
  TINY (.architecture = "gemma3", .n_layers = 7, .rope_freq_base = 1000000, .window = 24,          \
      .tied = TRUE, __VA_ARGS__)
/* Every other layer sees everything; caps where they are felt. */
#define GEMMA2(...)                                                                                \
  TINY (.architecture = "gemma2", .n_layers = 4, .window = 24, .tied = TRUE,                       \
      .attention_cap = 1.5f, .logit_cap = 5, __VA_ARGS__)
#define PHI(...) TINY (.architecture = "phi3", .n_rot = 12, __VA_ARGS__)

_Pragma ("GCC diagnostic ignored \"-Woverride-init\"") static const Case cases[] = {
  { "plain", TINY (.seed = 7), 40, 1e-4 },
  { "one-token", TINY (.seed = 7), 1, 1e-4 },
  { "tied", TINY (.tied = TRUE), 40, 1e-3 },
  { "factors", TINY (.rope_factors = TRUE), 40, 1e-4 },
  { "biases", TINY (.biases = TRUE), 40, 1e-4 },
  { "no-groups", TINY (.n_kv_heads = 4), 40, 1e-4 },
  { "one-kv-head", TINY (.n_kv_heads = 1), 40, 1e-4 },
  { "head-80", TINY (.head_dim = 80), 40, 1e-4 },
  { "head-128", TINY (.head_dim = 128, .n_layers = 1), 24, 1e-4 },
  { "head-256", TINY (.head_dim = 256, .n_layers = 1), 24, 1e-4 },
  { "odd-sizes", TINY (.n_embd = 48, .n_heads = 6, .n_kv_heads = 3, .head_dim = 24, .n_ff = 104),
      33, 1e-4 },
  { "base", TINY (.rope_freq_base = 500000), 40, 1e-4 },
  { "long", TINY (.n_layers = 1), 700, 1e-4 },
  { "fused", TINY (.fused = TRUE), 40, 1e-4 },
  { "fused-biases", TINY (.fused = TRUE, .biases = TRUE), 40, 1e-4 },
  { "fused-q8_0", TINY (.fused = TRUE, .type = GGML_TYPE_Q8_0, .head_dim = 32), 40, 0.2 },
  { "partial-rotary", TINY (.n_rot = 12), 40, 1e-4 },
  { "linear", TINY (.scaling = "linear", .scaling_factor = 4), 40, 1e-4 },
  { "yarn", TINY (.scaling = "yarn", .scaling_factor = 4, .n_original = 512), 40, 1e-4 },
  { "stretched", TINY (.n_context = 64), 160, 1e-4, .n_context = 256 },
  { "stretched-not-far", TINY (.n_context = 64), 80, 1e-4, .n_context = 80 },
  { "stretched-factors", TINY (.n_context = 64, .rope_factors = TRUE), 80, 1e-4, .n_context = 256 },
  { "stretched-linear", TINY (.n_context = 64, .scaling = "linear", .scaling_factor = 2), 80, 1e-4,
      .n_context = 256 },
  { "stretched-yarn",
      TINY (.n_context = 64, .scaling = "yarn", .scaling_factor = 4, .n_original = 16), 80, 1e-4,
      .n_context = 128 },
  /* Activations are rounded too: ggml multiplies f16 matrices in f16. */
  { "f16", TINY (.type = GGML_TYPE_F16), 40, 2e-2 },
  { "q8_0", TINY (.type = GGML_TYPE_Q8_0, .head_dim = 32), 40, 0.2 },
  { "qwen2", TINY (.architecture = "qwen2", .tied = TRUE), 40, 1e-3 },
  { "qwen2-yarn",
      TINY (.architecture = "qwen2", .scaling = "yarn", .scaling_factor = 4, .n_original = 512), 40,
      1e-4 },
  { "qwen3", TINY (.architecture = "qwen3", .head_dim = 32), 40, 1e-4 },
  { "gemma2", GEMMA2 (.head_dim = 32), 60, 1e-3 },
  { "gemma2-steps", GEMMA2 (.head_dim = 32), 60, 1e-3, .step = 5 },
  { "gemma2-single", GEMMA2 (.n_kv_heads = 1), 60, 1e-3, .step = 1 },
  { "gemma2-caps-as-ever", GEMMA2 (.attention_cap = 0, .logit_cap = 0), 40, 1e-3 },
  { "gemma2-stretched", GEMMA2 (.n_context = 64), 100, 1e-3, .n_context = 256 },
  { "gemma3", GEMMA (.head_dim = 32), 60, 1e-3 },
  { "gemma3-steps", GEMMA (.head_dim = 32), 60, 1e-3, .step = 5 },
  { "gemma3-single", GEMMA (.head_dim = 32), 60, 1e-3, .step = 1 },
  { "gemma3-one-kv-head", GEMMA (.n_kv_heads = 1, .window = 7), 60, 1e-3, .step = 13 },
  { "gemma3-window-1", GEMMA (.window = 1), 40, 1e-3 },
  { "gemma3-long", GEMMA (.window = 130, .n_layers = 6), 300, 1e-3 },
  { "gemma3-long-window", GEMMA (.window = 600, .n_layers = 6), 620, 1e-3, .step = 4 },
  { "gemma3-no-window", GEMMA (.window = 0), 40, 1e-3 },
  { "gemma3-linear", GEMMA (.scaling = "linear", .scaling_factor = 8), 60, 1e-3 },
  { "gemma3-stretched", GEMMA (.n_context = 64), 100, 1e-3, .n_context = 256 },
  { "gemma3-cap", GEMMA (.logit_cap = 5), 40, 1e-3 },
  { "phi3", PHI (.seed = 7), 40, 1e-4 },
  { "phi3-short", PHI (.scaling = "longrope", .n_original = 512, .n_context = 512), 40, 1e-4 },
  { "phi3-long", PHI (.scaling = "longrope", .n_original = 512), 40, 1e-4 },
  { "phi3-short-asked", PHI (.scaling = "longrope", .n_original = 512), 40, 1e-4,
      .n_context = 500 },
  { "phi3-stretched", PHI (.scaling = "longrope", .n_original = 16, .n_context = 64), 100, 1e-4,
      .n_context = 256 },
  { "granite", TINY (.architecture = "granite", .tied = TRUE), 40, 1e-3 },
};

static void
test_reference (gconstpointer data)
{
  const Case *c = data;
  g_autofree char *path = lychee_tiny_model_write (&c->tiny, dir, "reference.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autofree gint32 *ids = g_new (gint32, c->n_tokens);
  g_autofree double *wanted = NULL;
  g_autofree float *whole = NULL;
  guint n_vocab;

  test_model_ids (ids, c->n_tokens, lychee_model_get_n_vocab (model));
  wanted = reference_forward (path, ids, c->n_tokens, TRUE, c->n_context, &n_vocab);
  g_assert_cmpuint (n_vocab, ==, lychee_model_get_n_vocab (model));
  whole = test_model_logits_for (
      model, ids, c->n_tokens, c->step > 0 ? c->step : LYCHEE_FORWARD_MAX_TOKENS, 1, c->n_context);
  for (gsize i = 0; i < (gsize) c->n_tokens * n_vocab; i++)
    if (!(fabs (whole[i] - wanted[i]) <= c->tolerance))
      g_error ("position %u, id %u: %g, should be %g", (guint) (i / n_vocab), (guint) (i % n_vocab),
          whole[i], wanted[i]);
}

/* One small model of each architecture. */
static const struct {
  const char *name;
  LycheeTinyModel tiny;
} kinds[] = {
  { "llama", TINY (.n_layers = 1) },
  { "qwen2", TINY (.architecture = "qwen2", .n_layers = 1) },
  { "qwen3", TINY (.architecture = "qwen3", .n_layers = 1) },
  { "gemma2", GEMMA2 (.n_layers = 2) },
  { "gemma3", GEMMA (.n_layers = 2) },
  { "phi3", PHI (.n_layers = 1, .scaling = "longrope", .n_original = 512) },
  { "granite", TINY (.architecture = "granite", .n_layers = 1) },
};

/* There is a case above for everything that the library says it supports. */
static void
test_all (void)
{
  g_autofree char *list = lychee_architecture_list ();
  guint n = 1;

  for (const char *at = strstr (list, "), "); at; at = strstr (at + 1, "), "))
    n++;
  g_assert_cmpuint (n, ==, G_N_ELEMENTS (kinds));
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    g_assert_nonnull (lychee_architecture_find (kinds[i].name));
}

/* What is done to a tensor. */
typedef enum { MISSING, WRONG_SHAPE, WRONG_TYPE, N_HARMS } Harm;

/* Writes @good again with one tensor harmed, and the keys of @keys (nullable, freed) in place of
 * its own. */
static char *
harm (const char *good, gint64 which, Harm what, struct gguf_context *keys)
{
  char *path = g_build_filename (dir, "harmed.gguf", NULL);
  struct ggml_context *tensors = NULL;
  struct gguf_init_params params = { .no_alloc = false, .ctx = &tensors };
  struct gguf_context *gguf = gguf_init_from_file (good, params);
  struct gguf_context *out = gguf_init_empty ();

  gguf_set_kv (out, gguf);
  if (keys)
    gguf_set_kv (out, keys);
  for (gint64 i = 0; i < gguf_get_n_tensors (gguf); i++) {
    struct ggml_tensor copy = *ggml_get_tensor (tensors, gguf_get_tensor_name (gguf, i));
    guint last = copy.ne[1] > 1 ? 1 : 0;

    if (i == which && what == MISSING)
      continue;
    if (i == which && what == WRONG_TYPE)
      copy.type = GGML_TYPE_I32;
    if (i == which && what == WRONG_SHAPE) {
      copy.ne[last] -= 8;
      for (guint d = last + 1; d < GGML_MAX_DIMS; d++)
        copy.nb[d] = copy.nb[d - 1] * copy.ne[d - 1];
    }
    gguf_add_tensor (out, &copy);
  }
  g_assert_true (gguf_write_to_file (out, path, false));
  gguf_free (out);
  gguf_free (gguf);
  ggml_free (tensors);
  if (keys)
    gguf_free (keys);
  return path;
}

/* Writes the model with the keys of @keys (nullable, freed) in place of its own, and without one
 * tensor (nullable). */
static char *
rewrite (const LycheeTinyModel *tiny, struct gguf_context *keys, const char *without)
{
  g_autofree char *good = lychee_tiny_model_write (tiny, dir, "good.gguf");
  struct gguf_init_params params = { .no_alloc = true };
  struct gguf_context *gguf = gguf_init_from_file (good, params);
  gint64 which = without ? gguf_find_tensor (gguf, without) : -1;

  g_assert_true (!without || which >= 0);
  gguf_free (gguf);
  return harm (good, which, MISSING, keys);
}

/* The error names what would have worked. */
static void
test_unsupported (void)
{
  const LycheeTinyModel tiny = TINY (.n_layers = 1);
  struct gguf_context *keys = gguf_init_empty ();
  g_autofree char *path = NULL;

  gguf_set_val_str (keys, "general.architecture", "mamba");
  path = rewrite (&tiny, keys, NULL);
  test_model_expect_error (path, LYCHEE_MODEL_ERROR_UNSUPPORTED, "mamba");
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++)
    test_model_expect_error (path, LYCHEE_MODEL_ERROR_UNSUPPORTED, kinds[i].name);
}

/* Cut anywhere, the file is an error and nothing worse; with any byte of its header changed, an
 * error or a model that runs or says why not. */
static void
test_hostile (gconstpointer data)
{
  guint kind = GPOINTER_TO_UINT (data);
  g_autofree char *path = lychee_tiny_model_write (&kinds[kind].tiny, dir, "whole.gguf");
  g_autofree char *bytes = NULL;
  g_autoptr (GRand) rand = g_rand_new_with_seed (kind);
  gsize size;

  g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
  for (gsize n = 1; n < size; n = n < 12000 ? n + 37 : n + 5003) {
    g_autofree char *cut = test_model_put (dir, "cut.gguf", bytes, n);
    g_autoptr (GError) error = NULL;

    g_assert_null (lychee_model_new_from_file (cut, &error));
    if (n < 4) {
      g_assert_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_FORMAT);
    } else {
      g_assert_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_TRUNCATED);
      g_assert_nonnull (strstr (error->message, "get it again"));
    }
    g_assert_null (strchr (error->message, '\n'));
  }
  for (guint i = 0; i < 300; i++) {
    /* Keys and the tensor table lie around the vocabulary. */
    guint at = g_rand_int_range (rand, 4, i % 2 ? 1200 : MIN (size, 12000));
    char was = bytes[at];
    g_autofree char *altered = NULL;
    g_autoptr (LycheeModel) model = NULL;
    gint32 ids[8];

    bytes[at] = i % 3 == 0 ? (char) 0xff : (char) g_rand_int (rand);
    altered = test_model_put (dir, "altered.gguf", bytes, size);
    model = lychee_model_new_from_file (altered, NULL);
    bytes[at] = was;
    if (model) {
      test_model_ids (ids, 8, lychee_model_get_n_vocab (model));
      g_free (test_model_logits (model, ids, 8, 8, 1));
    }
  }
}

/* An error that has one of the names in it; or, where that @may be, a model that runs. */
static void
expect_named (const char *path, gboolean may, const char *name, const char *other)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeModel) model = lychee_model_new_from_file (path, &error);

  if (model) {
    gint32 ids[8];

    if (!may)
      g_error ("“%s” was taken for good", name);
    test_model_ids (ids, 8, lychee_model_get_n_vocab (model));
    g_free (test_model_logits (model, ids, 8, 8, 1));
  } else if (!strstr (error->message, name) && !(other && strstr (error->message, other))) {
    g_error ("“%s” is not named by: %s", name, error->message);
  }
}

/* Each tensor missing, of another shape, of a type that is no number for weights. */
static void
test_tensors (gconstpointer data)
{
  guint kind = GPOINTER_TO_UINT (data);
  g_autofree char *good = lychee_tiny_model_write (&kinds[kind].tiny, dir, "good.gguf");
  struct gguf_init_params params = { .no_alloc = true };
  struct gguf_context *gguf = gguf_init_from_file (good, params);

  for (gint64 i = 0; i < gguf_get_n_tensors (gguf); i++)
    for (guint what = 0; what < N_HARMS; what++) {
      const char *name = gguf_get_tensor_name (gguf, i);
      /* Without an output matrix the embedding is that, too; a bias or factors may not be there. */
      gboolean may = what == MISSING &&
                     (g_str_equal (name, "output.weight") || g_str_has_suffix (name, ".bias"));
      g_autofree char *path = harm (good, i, what, NULL);

      /* The embedding says how large the vocabulary is, and one matrix stands for three. */
      const char *other = g_str_equal (name, "token_embd.weight") ? "output.weight"
                          : strstr (name, "attn_qkv")             ? "attn_q.weight"
                                                                  : NULL;

      expect_named (path, may, name, other);
    }
  gguf_free (gguf);
}

/* Each number of the architecture 0, one, far too large, negative or none at all: an error that
 * names it or the tensor that does not go with it, or a model that runs. */
static void
test_numbers (gconstpointer data)
{
  static const guint32 whole[] = { 0, 1, 7, 0x7fffffff, 0xffffffff };
  static const float real[] = { 0, -1, NAN, INFINITY, 1e38f };
  guint kind = GPOINTER_TO_UINT (data);
  g_autofree char *good = lychee_tiny_model_write (&kinds[kind].tiny, dir, "good.gguf");
  g_autofree char *prefix = g_strdup_printf ("%s.", kinds[kind].name);
  struct gguf_init_params params = { .no_alloc = true };
  struct gguf_context *gguf = gguf_init_from_file (good, params);

  for (gint64 i = 0; i < gguf_get_n_kv (gguf); i++) {
    const char *key = gguf_get_key (gguf, i), *name = strrchr (key, '.') + 1;
    enum gguf_type type = gguf_get_kv_type (gguf, i);

    if (!g_str_has_prefix (key, prefix) || (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_FLOAT32))
      continue;
    for (guint j = 0; j < G_N_ELEMENTS (whole); j++) {
      struct gguf_context *keys = gguf_init_empty ();
      g_autofree char *path = NULL;

      if (type == GGUF_TYPE_UINT32)
        gguf_set_val_u32 (keys, key, whole[j]);
      else
        gguf_set_val_f32 (keys, key, real[j]);
      path = harm (good, -1, MISSING, keys);
      expect_named (path, TRUE, name, "tensor “");
    }
  }
  gguf_free (gguf);
}

typedef struct {
  const char *name;
  LycheeTinyModel tiny;
  /* What is altered: a key's value, or a tensor that is taken out. */
  const char *key;
  float number;
  gboolean is_float;
  const char *tensor;
  gint code;
  const char *named;
} Broken;

static const Broken broken[] = {
  { "qwen3-norm", TINY (.architecture = "qwen3"), .tensor = "blk.1.attn_k_norm.weight",
      .code = LYCHEE_MODEL_ERROR_INVALID, .named = "blk.1.attn_k_norm.weight" },
  { "gemma3-post-norm", GEMMA (.n_layers = 2), .tensor = "blk.1.post_ffw_norm.weight",
      .code = LYCHEE_MODEL_ERROR_INVALID, .named = "blk.1.post_ffw_norm.weight" },
  { "gemma3-window", GEMMA (.n_layers = 2), .key = "gemma3.attention.sliding_window", .number = 2,
      .is_float = TRUE, .code = LYCHEE_MODEL_ERROR_INVALID, .named = "sliding_window" },
  { "gemma2-cap", GEMMA2 (.n_layers = 2), .key = "gemma2.attn_logit_softcapping", .number = -50,
      .is_float = TRUE, .code = LYCHEE_MODEL_ERROR_INVALID, .named = "attn_logit_softcapping" },
  { "phi3-gate", PHI (.n_layers = 1), .key = "phi3.feed_forward_length", .number = 48,
      .code = LYCHEE_MODEL_ERROR_INVALID, .named = "ffn_down" },
  { "phi3-half-a-longrope", PHI (.scaling = "longrope", .n_original = 512),
      .tensor = "rope_factors_short.weight", .code = LYCHEE_MODEL_ERROR_INVALID,
      .named = "rope_factors_short.weight" },
  { "phi3-rotary", PHI (.n_layers = 1), .key = "phi3.rope.dimension_count", .number = 13,
      .code = LYCHEE_MODEL_ERROR_INVALID, .named = "rope.dimension_count" },
  { "phi3-heads", PHI (.n_layers = 1), .key = "phi3.attention.head_count_kv", .number = 1,
      .code = LYCHEE_MODEL_ERROR_INVALID, .named = "blk.0.attn_qkv.weight" },
  { "granite-scale", TINY (.architecture = "granite"), .key = "granite.logit_scale", .number = NAN,
      .is_float = TRUE, .code = LYCHEE_MODEL_ERROR_INVALID, .named = "logit_scale" },
  { "granite-negative", TINY (.architecture = "granite"), .key = "granite.residual_scale",
      .number = -1, .is_float = TRUE, .code = LYCHEE_MODEL_ERROR_INVALID,
      .named = "residual_scale" },
};

static void
test_broken (gconstpointer data)
{
  const Broken *b = data;
  struct gguf_context *keys = gguf_init_empty ();
  g_autofree char *path = NULL;

  if (b->key && b->is_float)
    gguf_set_val_f32 (keys, b->key, b->number);
  else if (b->key)
    gguf_set_val_u32 (keys, b->key, b->number);
  path = rewrite (&b->tiny, keys, b->tensor);
  test_model_expect_error (path, b->code, b->named);
}

/* A list says which layers have a window; one that is too short is an error. */
static void
test_window_list (void)
{
  const LycheeTinyModel tiny = GEMMA (.n_layers = 4);
  const gboolean wanted[] = { FALSE, TRUE, TRUE, FALSE };
  const gint8 flags[] = { 0, 1, 1, 0 };

  for (guint n = 3; n <= 4; n++) {
    struct gguf_context *keys = gguf_init_empty ();
    g_autoptr (LycheeModel) model = NULL;
    g_autofree char *path = NULL;

    gguf_set_arr_data (keys, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, flags, n);
    path = rewrite (&tiny, keys, NULL);
    if (n == 3) {
      test_model_expect_error (path, LYCHEE_MODEL_ERROR_INVALID, "sliding_window_pattern");
      continue;
    }
    model = test_model_load (path);
    g_assert_cmpmem (lychee_model_get_local_layers (model), sizeof wanted, wanted, sizeof wanted);
  }
}

/* Layers with a window have no index, and sparse attention that selects everything is dense. */
static void
test_local_sparse (void)
{
  LycheeCacheIndexing indexing = { .sinks = 16, .window = 64 };
  const LycheeTinyModel tiny = GEMMA (.window = 100);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "local.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  guint n = 600, n_vocab = lychee_model_get_n_vocab (model);
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (1);
  g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
  g_autoptr (LycheeCache) cache = test_model_cache (model, n), fork = NULL;
  g_autoptr (GError) error = NULL;
  g_autofree gint32 *ids = g_new (gint32, n);
  g_autofree float *dense = NULL;
  LycheeAttentionOptions options = {
    .sparse = TRUE, .budget = n - 1, .rest = TRUE, .beam = 100, .audit = 1
  };
  LycheeAttentionStats stats;
  const float *logits;

  test_model_ids (ids, n, n_vocab);
  dense = test_model_logits (model, ids, n, 12, 1);
  lychee_model_describe_indexing (model, &indexing);
  lychee_cache_enable_index (cache, &indexing);
  for (guint at = 0; at < n - 1;) {
    guint now = MIN (12, n - 1 - at);

    lychee_forward_run (forward, cache, ids + at, now, LYCHEE_OUTPUT_NONE, NULL, NULL, &error);
    g_assert_no_error (error);
    at += now;
  }
  fork = lychee_cache_fork (cache, &error);
  g_assert_no_error (error);
  g_clear_object (&cache);
  for (guint layer = 0; layer < tiny.n_layers; layer++) {
    LycheeIndex *index = lychee_cache_get_index (fork, layer, 0);

    if (layer != 5)
      g_assert_null (index);
    else
      g_assert_cmpuint (lychee_index_get_end (index), >, n - 1 - indexing.window - 48);
  }
  g_assert_cmpuint (lychee_cache_get_index_bytes (fork), >, 0);
  lychee_attention_set_options (lychee_forward_get_attention (forward), &options);
  lychee_attention_reset_stats (lychee_forward_get_attention (forward));
  lychee_forward_run (forward, fork, ids + n - 1, 1, LYCHEE_OUTPUT_LAST, &logits, NULL, &error);
  g_assert_no_error (error);
  lychee_attention_get_stats (lychee_forward_get_attention (forward), &stats);
  g_assert_cmpuint (stats.sparse, ==, tiny.n_kv_heads);
  g_assert_cmpuint (stats.local, ==, 6 * tiny.n_kv_heads);
  g_assert_cmpuint (stats.dense, ==, 0);
  g_assert_cmpuint (stats.audits, ==, tiny.n_kv_heads);
  for (guint i = 0; i < n_vocab; i++)
    g_assert_cmpfloat_with_epsilon (logits[i], dense[(gsize) (n - 1) * n_vocab + i], 2e-3);
  lychee_cache_truncate (fork, 300);
  g_assert_cmpuint (
      lychee_index_get_end (lychee_cache_get_index (fork, 5, 0)), <=, 300 - indexing.window);
}

static void
test_stretch (void)
{
  const LycheeTinyModel tiny = TINY (.n_context = 512);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "stretch.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  LycheeRope rope;

  g_assert_cmpfloat (lychee_model_get_stretch (model, 0), ==, 1);
  g_assert_cmpfloat (lychee_model_get_stretch (model, 100), ==, 1);
  g_assert_cmpfloat (lychee_model_get_stretch (model, 512), ==, 1);
  g_assert_cmpfloat (lychee_model_get_stretch (model, 1280), ==, 2.5);
  lychee_model_get_rope (model, FALSE, 512, &rope);
  g_assert_cmpfloat (rope.freq_scale, ==, 1);
  g_assert_cmpfloat (rope.ext_factor, ==, 0);
  lychee_model_get_rope (model, FALSE, 1280, &rope);
  g_assert_cmpfloat_with_epsilon (rope.freq_scale, 0.4, 1e-6);
  g_assert_cmpfloat (rope.ext_factor, ==, 1);
}

/* Split files. */

static void
test_split (void)
{
  const LycheeTinyModel tiny = TINY (.n_layers = 2);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "one.gguf");
  g_autofree char *first = lychee_tiny_model_split (path, 3);
  g_autoptr (LycheeModel) whole = test_model_load (path), parts = test_model_load (first);
  guint n_vocab = lychee_model_get_n_vocab (whole);
  g_autofree float *a = NULL, *b = NULL;
  gint32 ids[20];

  test_model_ids (ids, 20, n_vocab);
  a = test_model_logits (whole, ids, 20, 20, 1);
  b = test_model_logits (parts, ids, 20, 20, 1);
  g_assert_cmpmem (a, 20 * n_vocab * sizeof *a, b, 20 * n_vocab * sizeof *b);
}

static void
test_split_broken (void)
{
  const LycheeTinyModel tiny = TINY (.n_layers = 2), other = TINY (.n_layers = 1);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "many.gguf");
  g_autofree char *first = lychee_tiny_model_split (path, 3);
  g_autofree char *second = g_build_filename (dir, "many-00002-of-00003.gguf", NULL);
  g_autofree char *third = g_build_filename (dir, "many-00003-of-00003.gguf", NULL);
  g_autofree char *renamed = g_build_filename (dir, "renamed.gguf", NULL);
  g_autofree char *whole = NULL, *stranger = NULL, *part = NULL;
  gsize size;

  /* Not the first one. */
  test_model_expect_error (second, LYCHEE_MODEL_ERROR_INVALID, "-00001-of-00003.gguf");
  /* Another name. */
  g_assert_true (g_file_get_contents (first, &whole, &size, NULL));
  g_assert_true (g_file_set_contents (renamed, whole, size, NULL));
  test_model_expect_error (renamed, LYCHEE_MODEL_ERROR_INVALID, "-00001-of-00003.gguf");
  /* One is missing, which the message names. */
  g_assert_true (g_file_get_contents (third, &part, &size, NULL));
  g_assert_cmpint (g_unlink (third), ==, 0);
  {
    g_autoptr (GError) error = NULL;

    g_assert_null (lychee_model_new_from_file (first, &error));
    g_assert_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_OPEN);
    g_assert_nonnull (strstr (error->message, third));
    g_assert_nonnull (strstr (error->message, "Part 3 of 3 is not beside"));
  }
  /* One is cut. */
  g_assert_true (g_file_set_contents (third, part, size - 100, NULL));
  {
    g_autoptr (GError) error = NULL;

    g_assert_null (lychee_model_new_from_file (first, &error));
    g_assert_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_TRUNCATED);
    g_assert_nonnull (strstr (error->message, third));
    g_assert_nonnull (strstr (error->message, "get it again"));
  }
  /* One is no part, or has too few tensors. */
  stranger = lychee_tiny_model_write (&other, dir, "many-00003-of-00003.gguf");
  {
    g_autoptr (GError) error = NULL;

    g_assert_null (lychee_model_new_from_file (first, &error));
    g_assert_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID);
    g_assert_nonnull (strstr (error->message, "part 3 of 3"));
  }
  {
    g_autofree char *small = lychee_tiny_model_write (&other, dir, "few.gguf");
    g_autofree char *few = lychee_tiny_model_split (small, 3);
    g_autofree char *last = g_build_filename (dir, "few-00003-of-00003.gguf", NULL);

    g_assert_cmpint (g_rename (last, third), ==, 0);
  }
  test_model_expect_error (first, LYCHEE_MODEL_ERROR_INVALID, "split.tensors.count");
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-architectures-XXXXXX", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *name = g_strdup_printf ("/architectures/reference/%s", cases[i].name);

    g_test_add_data_func (name, &cases[i], test_reference);
  }
  g_test_add_func ("/architectures/all", test_all);
  g_test_add_func ("/architectures/unsupported", test_unsupported);
  for (guint i = 0; i < G_N_ELEMENTS (kinds); i++) {
    g_autofree char *name = g_strdup_printf ("/architectures/hostile/%s", kinds[i].name);

    g_autofree char *tensors = g_strdup_printf ("/architectures/tensors/%s", kinds[i].name);
    g_autofree char *numbers = g_strdup_printf ("/architectures/numbers/%s", kinds[i].name);

    g_test_add_data_func (name, GUINT_TO_POINTER (i), test_hostile);
    g_test_add_data_func (tensors, GUINT_TO_POINTER (i), test_tensors);
    g_test_add_data_func (numbers, GUINT_TO_POINTER (i), test_numbers);
  }
  for (guint i = 0; i < G_N_ELEMENTS (broken); i++) {
    g_autofree char *name = g_strdup_printf ("/architectures/broken/%s", broken[i].name);

    g_test_add_data_func (name, &broken[i], test_broken);
  }
  g_test_add_func ("/architectures/window-list", test_window_list);
  g_test_add_func ("/architectures/local-sparse", test_local_sparse);
  g_test_add_func ("/architectures/stretch", test_stretch);
  g_test_add_func ("/architectures/split", test_split);
  g_test_add_func ("/architectures/split-broken", test_split_broken);
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
