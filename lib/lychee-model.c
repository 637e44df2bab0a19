/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * LycheeModel:
 *
 * The weights and hyper-parameters of a language model, read from a GGUF file.
 *
 * A model is immutable once loaded, so that any number of sessions, in any threads, share it. The
 * weights stay in the file, mapped into memory. Everything in the file is checked before it is
 * used; what is wrong is an error of %LYCHEE_MODEL_ERROR that names the key or tensor.
 */

#include "lychee-model-private.h"

#include <math.h>

#include "lychee-tokenizer-private.h"

#include <string.h>

/* Characters of a file's text that a message repeats. */
#define MAX_QUOTE 64

/* The formatter would take the name for an expression. */
/* clang-format off */
/**
 * lychee_model_error_quark:
 *
 * The domain of errors of the kind LycheeModelError.
 *
 * Returns: a quark
 */
G_DEFINE_QUARK (lychee-model-error-quark, lychee_model_error)
/* clang-format on */

G_DEFINE_ENUM_TYPE (LycheeModelError, lychee_model_error,
    { LYCHEE_MODEL_ERROR_OPEN, "The file cannot be opened", "open" },
    { LYCHEE_MODEL_ERROR_FORMAT, "The file is no GGUF file", "format" },
    { LYCHEE_MODEL_ERROR_TRUNCATED, "The file is cut off", "truncated" },
    { LYCHEE_MODEL_ERROR_INVALID, "What the file says cannot be", "invalid" },
    { LYCHEE_MODEL_ERROR_UNSUPPORTED, "The model is of an unknown kind", "unsupported" },
    { LYCHEE_MODEL_ERROR_COMPUTE, "The model cannot be computed", "compute" })

struct _LycheeModel {
  GObject parent_instance;

  char *path;
  char *id;
  char *name;
  char *chat_template;
  LycheeTokenizer *tokenizer;
  LycheeWeights weights; /* its warnings are NULL-terminated once loaded */
  gboolean *local;       /* [n_layers] */
};

G_DEFINE_FINAL_TYPE (LycheeModel, lychee_model, G_TYPE_OBJECT)

static void
lychee_model_init (LycheeModel *model)
{
  model->weights.warnings = g_ptr_array_new_with_free_func (g_free);
  model->weights.memory = g_ptr_array_new_with_free_func (g_free);
}

static void
lychee_model_finalize (GObject *object)
{
  LycheeModel *model = LYCHEE_MODEL (object);

  g_clear_object (&model->tokenizer);
  g_clear_pointer (&model->weights.gguf, lychee_gguf_free);
  g_ptr_array_unref (model->weights.memory);
  g_ptr_array_unref (model->weights.warnings);
  g_free (model->weights.layers);
  g_free (model->local);
  g_free (model->path);
  g_free (model->id);
  g_free (model->name);
  g_free (model->chat_template);
  G_OBJECT_CLASS (lychee_model_parent_class)->finalize (object);
}

/* ggml speaks through a log of its own; what matters comes back as an error. */
static void
forward_log (enum ggml_log_level level, const char *text, void *user_data)
{
  g_debug ("ggml: %s", text);
}

static void
lychee_model_class_init (LycheeModelClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = lychee_model_finalize;
  ggml_log_set (forward_log, NULL);
}

void
lychee_weights_warn (LycheeWeights *weights, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_ptr_array_add (weights->warnings, g_strdup_vprintf (format, args));
  va_end (args);
}

static gboolean
read_vocabulary (LycheeModel *model, GError **error)
{
  g_autofree char *warning = NULL;
  g_autoptr (GError) local = NULL;
  guint n_vocab = model->weights.hparams.n_vocab;

  model->tokenizer =
      lychee_tokenizer_new_from_gguf (lychee_gguf_get_keys (model->weights.gguf), &warning, &local);
  if (!model->tokenizer) {
    /* To who loads a model, its vocabulary is a part of the file like others. */
    gboolean unsupported =
        g_error_matches (local, LYCHEE_TOKENIZER_ERROR, LYCHEE_TOKENIZER_ERROR_UNSUPPORTED);

    g_set_error_literal (error, LYCHEE_MODEL_ERROR,
        unsupported ? LYCHEE_MODEL_ERROR_UNSUPPORTED : LYCHEE_MODEL_ERROR_INVALID, local->message);
    return FALSE;
  }
  if (warning)
    lychee_weights_warn (&model->weights, "%s", warning);
  if (lychee_tokenizer_get_n_vocab (model->tokenizer) > n_vocab)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "key “tokenizer.ggml.tokens” has %u entries, and tensor “token_embd.weight” only %u rows",
        lychee_tokenizer_get_n_vocab (model->tokenizer), n_vocab);
  return TRUE;
}

static gboolean
load (LycheeModel *model, float rope_freq_base, GError **error)
{
  LycheeWeights *w = &model->weights;
  const char *architecture = lychee_gguf_get_architecture (w->gguf);

  model->id = lychee_gguf_get_id (w->gguf);
  model->name = lychee_gguf_get_string (w->gguf, "general.name");
  model->chat_template = lychee_gguf_get_string (w->gguf, "tokenizer.chat_template");
  w->architecture = lychee_architecture_find (architecture);
  if (!w->architecture) {
    g_autofree char *list = lychee_architecture_list ();

    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "its architecture is “%.*s”; supported are: %s", MAX_QUOTE, architecture, list);
  }
  if (!lychee_weights_read_hparams (w, rope_freq_base, error) ||
      !lychee_weights_read_tensors (w, error))
    return FALSE;
  model->local = g_new (gboolean, w->hparams.n_layers);
  for (guint i = 0; i < w->hparams.n_layers; i++)
    model->local[i] = w->layers[i].local;
  return read_vocabulary (model, error);
}

/**
 * lychee_model_new_from_file:
 * @path: a GGUF file
 * @error: return location for a %LYCHEE_MODEL_ERROR
 *
 * Loads a model. Of a model that was split into several files, @path is the first. What had to be
 * assumed about the file is in [method@Model.get_warnings]. May be called in any thread.
 *
 * Returns: (transfer full): the model; %NULL with any code of %LYCHEE_MODEL_ERROR but COMPUTE
 */
LycheeModel *
lychee_model_new_from_file (const char *path, GError **error)
{
  return lychee_model_new_full (path, 0, error);
}

/**
 * lychee_model_new_full:
 * @path: a GGUF file
 * @rope_freq_base: base frequency of the rotary embedding instead of the file's, or 0
 * @error: return location for a %LYCHEE_MODEL_ERROR
 *
 * Loads a model whose file lacks `rope.freq_base`, or has a wrong one. May be called in any thread.
 *
 * Returns: (transfer full): the model; %NULL as from [ctor@Model.new_from_file]
 */
LycheeModel *
lychee_model_new_full (const char *path, double rope_freq_base, GError **error)
{
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (GError) local = NULL;

  g_return_val_if_fail (path != NULL, NULL);

  model = g_object_new (LYCHEE_TYPE_MODEL, NULL);
  model->path = g_strdup (path);
  model->weights.gguf = lychee_gguf_open (path, error);
  if (!model->weights.gguf)
    return NULL;
  if (!load (model, rope_freq_base, &local)) {
    g_propagate_prefixed_error (
        error, g_steal_pointer (&local), "Cannot use the model “%s”: ", path);
    return NULL;
  }
  g_ptr_array_add (model->weights.warnings, NULL);
  return g_steal_pointer (&model);
}

/**
 * lychee_model_get_warnings:
 * @model: a model
 *
 * What had to be assumed about the file.
 *
 * Returns: (transfer none) (array zero-terminated=1): sentences; maybe none
 */
const char *const *
lychee_model_get_warnings (LycheeModel *model)
{
  return (const char *const *) model->weights.warnings->pdata;
}

/**
 * lychee_model_get_id:
 * @model: a model
 *
 * What tells this model from all others: a hash of the file's metadata and tensor table. Elements
 * have it in their caps, as `model`.
 *
 * Returns: (transfer none): 16 hexadecimal digits
 */
const char *
lychee_model_get_id (LycheeModel *model)
{
  return model->id;
}

/**
 * lychee_model_get_path:
 * @model: a model
 *
 * The file that the model was loaded from.
 *
 * Returns: (transfer none): the path as it was given
 */
const char *
lychee_model_get_path (LycheeModel *model)
{
  return model->path;
}

/**
 * lychee_model_get_name:
 * @model: a model
 *
 * What the file calls the model.
 *
 * Returns: (transfer none) (nullable): a name for people, such as "SmolLM2 135M Instruct"
 */
const char *
lychee_model_get_name (LycheeModel *model)
{
  return model->name;
}

/**
 * lychee_model_get_architecture:
 * @model: a model
 *
 * The family that the model belongs to.
 *
 * Returns: (transfer none): `general.architecture` of the file, such as "llama"
 */
const char *
lychee_model_get_architecture (LycheeModel *model)
{
  return model->weights.architecture->name;
}

/**
 * lychee_model_get_chat_template:
 * @model: a model
 *
 * The chat template that the model was trained with.
 *
 * Returns: (transfer none) (nullable): Jinja, as the file has it
 */
const char *
lychee_model_get_chat_template (LycheeModel *model)
{
  return model->chat_template;
}

LycheeTokenizer *
lychee_model_get_tokenizer (LycheeModel *model)
{
  return model->tokenizer;
}

/**
 * lychee_model_get_n_layers:
 * @model: a model
 *
 * How many transformer blocks the model has.
 *
 * Returns: layers
 */
guint
lychee_model_get_n_layers (LycheeModel *model)
{
  return model->weights.hparams.n_layers;
}

/**
 * lychee_model_get_n_heads:
 * @model: a model
 *
 * How many query heads a layer has.
 *
 * Returns: heads
 */
guint
lychee_model_get_n_heads (LycheeModel *model)
{
  return model->weights.hparams.n_heads;
}

/**
 * lychee_model_get_n_kv_heads:
 * @model: a model
 *
 * How many key and value heads a layer has: each serves as many query heads as the quotient says.
 *
 * Returns: heads
 */
guint
lychee_model_get_n_kv_heads (LycheeModel *model)
{
  return model->weights.hparams.n_kv_heads;
}

/**
 * lychee_model_get_head_dim:
 * @model: a model
 *
 * How long a key is.
 *
 * Returns: components of a head's key, value or query
 */
guint
lychee_model_get_head_dim (LycheeModel *model)
{
  return model->weights.hparams.head_dim;
}

/**
 * lychee_model_get_n_vocab:
 * @model: a model
 *
 * How many tokens the vocabulary has.
 *
 * Returns: tokens
 */
guint
lychee_model_get_n_vocab (LycheeModel *model)
{
  return model->weights.hparams.n_vocab;
}

/**
 * lychee_model_get_n_context:
 * @model: a model
 *
 * How much the model was trained to see at once.
 *
 * Returns: tokens
 */
guint
lychee_model_get_n_context (LycheeModel *model)
{
  return model->weights.hparams.n_context;
}

const LycheeHparams *
lychee_model_get_hparams (LycheeModel *model)
{
  return &model->weights.hparams;
}

guint64
lychee_model_get_size (LycheeModel *model)
{
  return lychee_gguf_get_size (model->weights.gguf);
}

const LycheeArchitecture *
lychee_model_get_description (LycheeModel *model)
{
  return model->weights.architecture;
}

const LycheeTensors *
lychee_model_get_tensors (LycheeModel *model)
{
  return &model->weights.tensors;
}

const LycheeLayer *
lychee_model_get_layer (LycheeModel *model, guint layer)
{
  return &model->weights.layers[layer];
}

const gboolean *
lychee_model_get_local_layers (LycheeModel *model)
{
  return model->local;
}

void
lychee_model_describe_indexing (LycheeModel *model, LycheeCacheIndexing *indexing)
{
  indexing->scale = model->weights.hparams.attention_scale;
  indexing->cap = model->weights.hparams.attention_cap;
  indexing->local = model->local;
}

void
lychee_model_limit_layers (LycheeModel *model, LycheeCache *cache)
{
  if (model->weights.hparams.window > 0)
    lychee_cache_limit_layers (cache, model->local, model->weights.hparams.window);
}

/**
 * lychee_model_get_stretch:
 * @n_context: positions that are wanted, 0 = as many as the model was trained for
 *
 * Beyond what a model was trained for, its rotary embedding is stretched by YaRN (Peng et al.
 * 2023), which keeps what is near as it is, and squeezes what is far into the distances that it
 * knows.
 *
 * Returns: the factor that @n_context positions need; 1: the model is used as it was trained
 */
double
lychee_model_get_stretch (LycheeModel *model, guint n_context)
{
  guint trained = model->weights.hparams.n_context;

  return n_context > trained ? (double) n_context / trained : 1;
}

void
lychee_model_get_rope (LycheeModel *model, gboolean local, guint n_context, LycheeRope *rope)
{
  const LycheeHparams *hp = &model->weights.hparams;
  const LycheeTensors *t = &model->weights.tensors;
  double stretch = lychee_model_get_stretch (model, n_context);
  gboolean is_long = (n_context > 0 ? n_context : hp->n_context) > hp->rope_n_context;

  *rope = (LycheeRope){
    .mode = model->weights.architecture->rope_halves ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL,
    .n_rot = hp->n_rot,
    .freq_base = local ? hp->rope_local_base : hp->rope_base,
    .freq_scale = 1,
    .attn_factor = 1,
    .beta_fast = hp->rope_beta_fast,
    .beta_slow = hp->rope_beta_slow,
    .n_context = hp->rope_n_context,
  };
  if (local) /* a window is never longer than what the model was trained for */
    stretch = 1;
  if (local && !hp->rope_local_scaled)
    return;
  rope->attn_factor = hp->rope_attn_factor;
  rope->factors = t->rope_factors;
  if (t->rope_long)
    rope->factors = is_long ? t->rope_long : t->rope_short;
  rope->freq_scale = 1 / hp->rope_linear;
  if (hp->rope_yarn == 1 && stretch == 1)
    return;
  /* With YaRN ggml multiplies attn_factor by 1 + 0.1 ln (factor), as the paper has it. */
  rope->ext_factor = 1;
  rope->freq_scale = 1 / (hp->rope_yarn * stretch);
  if (hp->rope_yarn == 1)
    rope->n_context = hp->n_context;
  if (t->rope_linear) {
    rope->factors = t->rope_linear;
    rope->n_context = hp->n_context / hp->rope_linear;
  }
}

/* Where a number of turns over the context is reached: YaRN (Peng et al., arXiv 2309.00071), as
 * ggml_rope_ext() has it. */
static double
find_dim (const LycheeRope *rope, double turns)
{
  return rope->n_rot * log (rope->n_context / (turns * 2 * G_PI)) / (2 * log (rope->freq_base));
}

void
lychee_model_get_frequencies (
    LycheeModel *model, gboolean local, guint n_context, double *frequency)
{
  const float *factors;
  double low, high;
  LycheeRope rope;

  lychee_model_get_rope (model, local, n_context, &rope);
  factors = rope.factors ? rope.factors->data : NULL;
  low = MAX (0, floor (find_dim (&rope, rope.beta_fast)));
  high = MIN (rope.n_rot - 1, ceil (find_dim (&rope, rope.beta_slow)));
  for (guint i = 0; i < rope.n_rot / 2; i++) {
    double plain = pow (rope.freq_base, -2.0 * i / rope.n_rot) / (factors ? factors[i] : 1);
    double mix = 0;

    if (rope.ext_factor != 0)
      mix = (1 - CLAMP ((i - low) / MAX (0.001, high - low), 0, 1)) * rope.ext_factor;
    frequency[i] = plain * (rope.freq_scale * (1 - mix) + mix);
  }
  frequency[rope.n_rot / 2] =
      rope.attn_factor * (rope.ext_factor != 0 ? 1 + 0.1 * log (1 / rope.freq_scale) : 1);
}
