/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What the keys of a model file say of its shape. Every value is checked here, so that nothing
 * behind this has to. */

#include "lychee-model-private.h"

#include "lychee-attention.h"

#include <math.h>
#include <string.h>

#define DEFAULT_ROPE_BASE 10000.0f
/* YaRN's, of Peng et al. 2023, section 3.2. */
#define DEFAULT_BETA_FAST 32.0f
#define DEFAULT_BETA_SLOW 1.0f
#define MAX_LAYERS 1024
#define MAX_CONTEXT (1u << 24)
#define MAX_HEAD_DIM 256
#define MAX_HEADS 1024
#define MAX_GROUP LYCHEE_ATTENTION_MAX_GROUP

typedef struct {
  const char *key;
  gboolean required;
  guint *value;
} UintKey;

typedef struct {
  const char *key;
  float *value;
} FloatKey;

static gboolean
get_floats (LycheeWeights *w, const FloatKey *keys, guint n, GError **error)
{
  for (guint i = 0; i < n; i++)
    if (!lychee_gguf_get_float (w->gguf, keys[i].key, FALSE, keys[i].value, error))
      return FALSE;
  return TRUE;
}

static gboolean
read_rope (LycheeWeights *w, float rope_freq_base, GError **error)
{
  LycheeHparams *hp = &w->hparams;
  const char *architecture = w->architecture->name;
  g_autofree char *key = g_strdup_printf ("%s.rope.scaling.type", architecture);
  g_autofree char *scaling = lychee_gguf_get_string (w->gguf, key);
  float factor = 0;
  const FloatKey floats[] = {
    { "rope.freq_base", &hp->rope_base },
    { "rope.freq_base_swa", &hp->rope_local_base },
    { "rope.scale_linear", &factor }, /* what the next was called once */
    { "rope.scaling.factor", &factor },
    { "rope.scaling.attn_factor", &hp->rope_attn_factor },
    { "rope.scaling.yarn_beta_fast", &hp->rope_beta_fast },
    { "rope.scaling.yarn_beta_slow", &hp->rope_beta_slow },
  };

  hp->n_rot = hp->head_dim;
  hp->rope_linear = hp->rope_yarn = hp->rope_attn_factor = 1;
  hp->rope_beta_fast = DEFAULT_BETA_FAST;
  hp->rope_beta_slow = DEFAULT_BETA_SLOW;
  hp->rope_n_context = hp->n_context;
  hp->rope_local_base = w->architecture->local_rope_base;
  if (!lychee_gguf_get_uint (w->gguf, "rope.dimension_count", FALSE, &hp->n_rot, error) ||
      !lychee_gguf_get_uint (
          w->gguf, "rope.scaling.original_context_length", FALSE, &hp->rope_n_context, error) ||
      !get_floats (w, floats, G_N_ELEMENTS (floats), error))
    return FALSE;

  if (rope_freq_base > 0) {
    hp->rope_base = rope_freq_base;
  } else if (hp->rope_base <= 0) {
    hp->rope_base = DEFAULT_ROPE_BASE;
    lychee_weights_warn (w,
        "Key “%s.rope.freq_base” is missing: %g is assumed; set rope-freq-base if answers are "
        "nonsense",
        architecture, hp->rope_base);
  }
  hp->rope_local_scaled = hp->rope_local_base <= 0;
  if (hp->rope_local_scaled)
    hp->rope_local_base = hp->rope_base;
  if (hp->n_rot == 0 || hp->n_rot % 2 != 0 || hp->n_rot > hp->head_dim)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "key “%s.rope.dimension_count” is %u, and heads have %u dimensions", architecture,
        hp->n_rot, hp->head_dim);
  if (hp->rope_n_context == 0)
    hp->rope_n_context = hp->n_context;
  if (hp->rope_attn_factor <= 0)
    hp->rope_attn_factor = 1;
  if (factor <= 0 || g_strcmp0 (scaling, "none") == 0)
    return TRUE;
  if (!scaling || g_str_equal (scaling, "linear")) {
    hp->rope_linear = factor;
  } else if (g_str_equal (scaling, "yarn")) {
    hp->rope_yarn = factor;
    /* Some files give the context without it. */
    if (hp->rope_n_context * (double) factor <= MAX_CONTEXT)
      hp->n_context = MAX (hp->n_context, hp->rope_n_context * factor);
  } else if (!g_str_equal (scaling, "longrope")) { /* which is in tensors */
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "key “%s” asks for “%s”; linear, yarn and longrope are known", key, scaling);
  }
  return TRUE;
}

static gboolean
read_windows (LycheeWeights *w, GError **error)
{
  LycheeHparams *hp = &w->hparams;
  const LycheeArchitecture *a = w->architecture;
  guint window = a->window, period = a->window_period;
  gboolean found, *flags;

  if (!lychee_gguf_get_uint (w->gguf, "attention.sliding_window", FALSE, &window, error))
    return FALSE;
  if (a->window_period == 0) {
    if (window > 0 && window < hp->n_context)
      lychee_weights_warn (w,
          "Key “%s.attention.sliding_window” is %u, and is left aside: all layers see everything",
          a->name, window);
    return TRUE;
  }
  if (window == 0)
    return TRUE;
  flags = g_new (gboolean, hp->n_layers);
  if (!lychee_gguf_get_flags (
          w->gguf, "attention.sliding_window_pattern", flags, hp->n_layers, &found, error) ||
      (!found && !lychee_gguf_get_uint (
                     w->gguf, "attention.sliding_window_pattern", FALSE, &period, error))) {
    g_free (flags);
    return FALSE;
  }
  hp->window = window;
  for (guint i = 0; i < hp->n_layers; i++)
    w->layers[i].local = found ? flags[i] : period > 0 && (i + 1) % period != 0;
  g_free (flags);
  return TRUE;
}

static gboolean
read_scales (LycheeWeights *w, GError **error)
{
  LycheeHparams *hp = &w->hparams;
  const LycheeArchitecture *a = w->architecture;
  float logit_scale = 1;
  const FloatKey scales[] = {
    { "embedding_scale", &hp->embedding_scale }, { "attention.scale", &hp->attention_scale },
    { "residual_scale", &hp->residual_scale },
    { "logit_scale", &logit_scale }, /* logits are divided by it */
  };
  const FloatKey caps[] = {
    { "attn_logit_softcapping", &hp->attention_cap },
    { "final_logit_softcapping", &hp->logit_cap },
  };

  hp->embedding_scale = a->embedding_sqrt ? sqrtf (hp->n_embd) : 1;
  hp->residual_scale = 1;
  hp->attention_cap = a->attention_cap;
  hp->logit_cap = a->logit_cap;
  if (a->wide_layers > 0 && hp->n_layers == a->wide_layers)
    hp->attention_scale = 1 / sqrtf ((float) hp->n_embd / hp->n_heads);
  else
    hp->attention_scale = 1 / sqrtf (hp->head_dim);
  if (!get_floats (w, caps, G_N_ELEMENTS (caps), error))
    return FALSE;
  if (a->multipliers) {
    const LycheeHparams defaults = *hp;

    if (!get_floats (w, scales, G_N_ELEMENTS (scales), error))
      return FALSE;
    /* 0 stands for "as usual". */
    hp->embedding_scale = hp->embedding_scale > 0 ? hp->embedding_scale : defaults.embedding_scale;
    hp->attention_scale = hp->attention_scale > 0 ? hp->attention_scale : defaults.attention_scale;
    hp->residual_scale = hp->residual_scale > 0 ? hp->residual_scale : defaults.residual_scale;
  }
  hp->logit_scale = logit_scale > 0 ? 1 / logit_scale : 1;
  return TRUE;
}

static gboolean
check_shape (LycheeWeights *w, GError **error)
{
  LycheeHparams *hp = &w->hparams;
  const char *architecture = w->architecture->name;

  if (hp->n_layers == 0 || hp->n_layers > MAX_LAYERS || hp->n_embd == 0 || hp->n_ff == 0 ||
      hp->n_heads == 0 || hp->n_kv_heads == 0 || hp->n_heads % hp->n_kv_heads != 0 ||
      hp->n_context == 0 || hp->n_context > MAX_CONTEXT)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "the dimensions do not go together: %u layers (block_count), embedding_length %u, "
        "feed_forward_length %u, %u heads (attention.head_count), %u KV heads "
        "(attention.head_count_kv), context_length %u",
        hp->n_layers, hp->n_embd, hp->n_ff, hp->n_heads, hp->n_kv_heads, hp->n_context);
  if (hp->n_heads > MAX_HEADS)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "key “%s.attention.head_count” is %u; at most %d heads are supported", architecture,
        hp->n_heads, MAX_HEADS);
  if (hp->n_heads / hp->n_kv_heads > MAX_GROUP)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "%u heads share a KV head (attention.head_count / attention.head_count_kv); at most %d may",
        hp->n_heads / hp->n_kv_heads, MAX_GROUP);
  return TRUE;
}

static gboolean
read_head_size (LycheeWeights *w, GError **error)
{
  LycheeHparams *hp = &w->hparams;
  guint value_dim;

  hp->head_dim = hp->n_embd / hp->n_heads;
  if (!lychee_gguf_get_uint (w->gguf, "attention.key_length", FALSE, &hp->head_dim, error))
    return FALSE;
  value_dim = hp->head_dim;
  if (!lychee_gguf_get_uint (w->gguf, "attention.value_length", FALSE, &value_dim, error))
    return FALSE;
  if (value_dim != hp->head_dim || hp->head_dim % 8 != 0 || hp->head_dim == 0 ||
      hp->head_dim > MAX_HEAD_DIM)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "heads have %u dimensions (attention.key_length) and values %u (attention.value_length); "
        "supported are equal sizes that are multiples of 8 up to %d",
        hp->head_dim, value_dim, MAX_HEAD_DIM);
  return TRUE;
}

gboolean
lychee_weights_read_hparams (LycheeWeights *w, float rope_freq_base, GError **error)
{
  LycheeHparams *hp = &w->hparams;
  guint n_experts = 0;
  const UintKey uints[] = {
    { "block_count", TRUE, &hp->n_layers },
    { "embedding_length", TRUE, &hp->n_embd },
    { "feed_forward_length", TRUE, &hp->n_ff },
    { "attention.head_count", TRUE, &hp->n_heads },
    { "context_length", TRUE, &hp->n_context },
    { "expert_count", FALSE, &n_experts },
  };

  for (guint i = 0; i < G_N_ELEMENTS (uints); i++)
    if (!lychee_gguf_get_uint (w->gguf, uints[i].key, uints[i].required, uints[i].value, error))
      return FALSE;
  hp->n_kv_heads = hp->n_heads;
  if (!lychee_gguf_get_uint (w->gguf, "attention.head_count_kv", FALSE, &hp->n_kv_heads, error) ||
      !lychee_gguf_get_float (
          w->gguf, "attention.layer_norm_rms_epsilon", TRUE, &hp->norm_eps, error))
    return FALSE;
  if (n_experts > 0)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "key “%s.expert_count” is %u: mixtures of experts are not supported", w->architecture->name,
        n_experts);
  if (!check_shape (w, error) || !read_head_size (w, error))
    return FALSE;
  w->layers = g_new0 (LycheeLayer, hp->n_layers);
  return read_rope (w, rope_freq_base, error) && read_windows (w, error) && read_scales (w, error);
}
