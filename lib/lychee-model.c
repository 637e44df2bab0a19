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

#include "lychee-attention.h"
#include "lychee-gguf-check.h"
#include "lychee-tokenizer-private.h"

#include <ggml-cpu.h>
#include <gguf.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#define DEFAULT_ROPE_FREQ_BASE 10000.0f
#define MAX_HEAD_DIM 256
#define MAX_HEADS 1024
/* Characters of a file's text that a message repeats. */
#define MAX_QUOTE 64
#define MAX_GROUP LYCHEE_ATTENTION_MAX_GROUP
#define ID_LENGTH 16

/* The formatter would take the name for an expression. */
/* clang-format off */
G_DEFINE_QUARK (lychee-model-error-quark, lychee_model_error)
/* clang-format on */

G_DEFINE_ENUM_TYPE (LycheeModelError, lychee_model_error,
    G_DEFINE_ENUM_VALUE (LYCHEE_MODEL_ERROR_OPEN, "open"),
    G_DEFINE_ENUM_VALUE (LYCHEE_MODEL_ERROR_FORMAT, "format"),
    G_DEFINE_ENUM_VALUE (LYCHEE_MODEL_ERROR_TRUNCATED, "truncated"),
    G_DEFINE_ENUM_VALUE (LYCHEE_MODEL_ERROR_INVALID, "invalid"),
    G_DEFINE_ENUM_VALUE (LYCHEE_MODEL_ERROR_UNSUPPORTED, "unsupported"),
    G_DEFINE_ENUM_VALUE (LYCHEE_MODEL_ERROR_COMPUTE, "compute"))

struct _LycheeModel {
  GObject parent_instance;

  char *path;
  char *id;
  char *name;
  char *architecture;
  char *chat_template;
  GPtrArray *warnings; /* of char *, NULL-terminated once loaded */
  LycheeTokenizer *tokenizer;

  GMappedFile *file;
  struct gguf_context *gguf;
  struct ggml_context *tensors;
  GPtrArray *converted; /* norms and biases that were not float32 in the file */

  LycheeHparams hparams;
  LycheeLayer *layers;
  struct ggml_tensor *embedding;
  struct ggml_tensor *output_norm;
  struct ggml_tensor *output;
  struct ggml_tensor *rope_factors;
};

G_DEFINE_FINAL_TYPE (LycheeModel, lychee_model, G_TYPE_OBJECT)

static void
lychee_model_init (LycheeModel *model)
{
  model->warnings = g_ptr_array_new_with_free_func (g_free);
  model->converted = g_ptr_array_new_with_free_func (g_free);
}

static void
lychee_model_finalize (GObject *object)
{
  LycheeModel *model = LYCHEE_MODEL (object);

  g_clear_object (&model->tokenizer);
  g_clear_pointer (&model->tensors, ggml_free);
  g_clear_pointer (&model->gguf, gguf_free);
  g_clear_pointer (&model->file, g_mapped_file_unref);
  g_ptr_array_unref (model->converted);
  g_ptr_array_unref (model->warnings);
  g_free (model->layers);
  g_free (model->path);
  g_free (model->id);
  g_free (model->name);
  g_free (model->architecture);
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

static void G_GNUC_PRINTF (2, 3) warn (LycheeModel *model, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  g_ptr_array_add (model->warnings, g_strdup_vprintf (format, args));
  va_end (args);
}

/* Keys. Each reader checks the key's type: ggml aborts on a wrong one. */

static char *
full_key (LycheeModel *model, const char *key)
{
  return strchr (key, '.') && g_str_has_prefix (key, "general.")
             ? g_strdup (key)
             : g_strdup_printf ("%s.%s", model->architecture, key);
}

static gboolean
missing (const char *key, GError **error)
{
  g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID, "key “%s” is missing", key);
  return FALSE;
}

static gboolean
wrong_type (LycheeModel *model, gint64 id, const char *wanted, GError **error)
{
  g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
      "key “%s” is of type %s and not %s", gguf_get_key (model->gguf, id),
      gguf_type_name (gguf_get_kv_type (model->gguf, id)), wanted);
  return FALSE;
}

/* @value keeps what it has if the key is missing and not @required. */
static gboolean
get_uint (LycheeModel *model, const char *key, gboolean required, guint *value, GError **error)
{
  g_autofree char *full = full_key (model, key);
  gint64 id = gguf_find_key (model->gguf, full);
  gint64 n;

  if (id < 0)
    return required ? missing (full, error) : TRUE;
  switch (gguf_get_kv_type (model->gguf, id)) {
  case GGUF_TYPE_UINT32:
    n = gguf_get_val_u32 (model->gguf, id);
    break;
  case GGUF_TYPE_INT32:
    n = gguf_get_val_i32 (model->gguf, id);
    break;
  case GGUF_TYPE_UINT64:
    n = gguf_get_val_u64 (model->gguf, id) > G_MAXINT32
            ? -1
            : (gint64) gguf_get_val_u64 (model->gguf, id);
    break;
  case GGUF_TYPE_UINT16:
    n = gguf_get_val_u16 (model->gguf, id);
    break;
  default:
    return wrong_type (model, id, "a whole number", error);
  }
  if (n < 0 || n > G_MAXINT32) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
        "key “%s” has a value out of range", full);
    return FALSE;
  }
  *value = n;
  return TRUE;
}

static gboolean
get_float (LycheeModel *model, const char *key, gboolean required, float *value, GError **error)
{
  g_autofree char *full = full_key (model, key);
  gint64 id = gguf_find_key (model->gguf, full);

  if (id < 0)
    return required ? missing (full, error) : TRUE;
  if (gguf_get_kv_type (model->gguf, id) == GGUF_TYPE_FLOAT32)
    *value = gguf_get_val_f32 (model->gguf, id);
  else if (gguf_get_kv_type (model->gguf, id) == GGUF_TYPE_FLOAT64)
    *value = gguf_get_val_f64 (model->gguf, id);
  else
    return wrong_type (model, id, "a floating-point number", error);
  if (!isfinite (*value) || *value < 0) {
    g_set_error (
        error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID, "key “%s” is %g", full, *value);
    return FALSE;
  }
  return TRUE;
}

/* (transfer full) (nullable): the text of a key that is optional and may be of any type. */
static char *
get_string (LycheeModel *model, const char *key)
{
  gint64 id = gguf_find_key (model->gguf, key);

  if (id < 0 || gguf_get_kv_type (model->gguf, id) != GGUF_TYPE_STRING)
    return NULL;
  return g_utf8_make_valid (gguf_get_val_str (model->gguf, id), -1);
}

static gboolean
read_rope (LycheeModel *model, GError **error)
{
  LycheeHparams *hp = &model->hparams;
  g_autofree char *key = full_key (model, "rope.scaling.type");
  g_autofree char *scaling = get_string (model, key);
  float factor = 0;

  hp->n_rot = hp->head_dim;
  hp->rope_freq_scale = 1;
  hp->rope_attn_factor = 1;
  hp->rope_n_context = hp->n_context;
  if (!get_uint (model, "rope.dimension_count", FALSE, &hp->n_rot, error) ||
      !get_float (model, "rope.freq_base", FALSE, &hp->rope_freq_base, error) ||
      !get_float (model, "rope.scale_linear", FALSE, &factor, error) ||
      !get_float (model, "rope.scaling.factor", FALSE, &factor, error) ||
      !get_float (model, "rope.scaling.attn_factor", FALSE, &hp->rope_attn_factor, error) ||
      !get_uint (model, "rope.scaling.original_context_length", FALSE, &hp->rope_n_context, error))
    return FALSE;
  if (hp->rope_freq_base <= 0) {
    hp->rope_freq_base = DEFAULT_ROPE_FREQ_BASE;
    warn (model,
        "Key “%s.rope.freq_base” is missing: %g is assumed; set rope-freq-base if answers are "
        "nonsense",
        model->architecture, hp->rope_freq_base);
  }
  if (hp->n_rot == 0 || hp->n_rot % 2 != 0 || hp->n_rot > hp->head_dim) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
        "key “%s.rope.dimension_count” is %u, and heads have %u dimensions", model->architecture,
        hp->n_rot, hp->head_dim);
    return FALSE;
  }
  if (hp->rope_n_context == 0)
    hp->rope_n_context = hp->n_context;
  if (factor > 0 && g_strcmp0 (scaling, "none") != 0) {
    if (!scaling || g_str_equal (scaling, "linear")) {
      hp->rope_freq_scale = 1 / factor;
    } else if (g_str_equal (scaling, "yarn")) {
      hp->rope_freq_scale = 1 / factor;
      hp->rope_ext_factor = 1;
    } else {
      g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
          "key “%s” asks for “%s”; linear and yarn are known", key, scaling);
      return FALSE;
    }
  }
  return TRUE;
}

static gboolean
read_hparams (LycheeModel *model, GError **error)
{
  LycheeHparams *hp = &model->hparams;
  guint n_experts = 0, value_dim;

  if (!get_uint (model, "block_count", TRUE, &hp->n_layers, error) ||
      !get_uint (model, "embedding_length", TRUE, &hp->n_embd, error) ||
      !get_uint (model, "feed_forward_length", TRUE, &hp->n_ff, error) ||
      !get_uint (model, "attention.head_count", TRUE, &hp->n_heads, error) ||
      !get_uint (model, "context_length", TRUE, &hp->n_context, error) ||
      !get_uint (model, "expert_count", FALSE, &n_experts, error) ||
      !get_float (model, "attention.layer_norm_rms_epsilon", TRUE, &hp->norm_eps, error))
    return FALSE;
  hp->n_kv_heads = hp->n_heads;
  if (!get_uint (model, "attention.head_count_kv", FALSE, &hp->n_kv_heads, error))
    return FALSE;

  if (n_experts > 0) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "key “%s.expert_count” is %u: mixtures of experts are not supported", model->architecture,
        n_experts);
    return FALSE;
  }
  if (hp->n_layers == 0 || hp->n_layers > 1024 || hp->n_embd == 0 || hp->n_ff == 0 ||
      hp->n_heads == 0 || hp->n_kv_heads == 0 || hp->n_heads % hp->n_kv_heads != 0 ||
      hp->n_context == 0 || hp->n_context > 1u << 24) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
        "the dimensions do not go together: %u layers (block_count), embedding_length %u, "
        "feed_forward_length %u, %u heads (attention.head_count), %u KV heads "
        "(attention.head_count_kv), context_length %u",
        hp->n_layers, hp->n_embd, hp->n_ff, hp->n_heads, hp->n_kv_heads, hp->n_context);
    return FALSE;
  }
  if (hp->n_heads > MAX_HEADS) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "key “%s.attention.head_count” is %u; at most %d heads are supported", model->architecture,
        hp->n_heads, MAX_HEADS);
    return FALSE;
  }
  if (hp->n_heads / hp->n_kv_heads > MAX_GROUP) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "%u heads share a KV head (attention.head_count / attention.head_count_kv); at most %d may",
        hp->n_heads / hp->n_kv_heads, MAX_GROUP);
    return FALSE;
  }
  hp->head_dim = hp->n_embd / hp->n_heads;
  if (!get_uint (model, "attention.key_length", FALSE, &hp->head_dim, error))
    return FALSE;
  value_dim = hp->head_dim;
  if (!get_uint (model, "attention.value_length", FALSE, &value_dim, error))
    return FALSE;
  if (value_dim != hp->head_dim || hp->head_dim % 8 != 0 || hp->head_dim == 0 ||
      hp->head_dim > MAX_HEAD_DIM) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "heads have %u dimensions (attention.key_length) and values %u (attention.value_length); "
        "supported are equal sizes that are multiples of 8 up to %d",
        hp->head_dim, value_dim, MAX_HEAD_DIM);
    return FALSE;
  }
  return read_rope (model, error);
}

/* Tensors. */

static struct ggml_tensor *
find_tensor (LycheeModel *model, const char *name, gboolean required, guint64 ne0, guint64 ne1,
    GError **error)
{
  struct ggml_tensor *tensor = ggml_get_tensor (model->tensors, name);

  if (!tensor) {
    if (required)
      g_set_error (
          error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID, "tensor “%s” is missing", name);
    return NULL;
  }
  if ((guint64) tensor->ne[0] != ne0 || (guint64) tensor->ne[1] != ne1 || tensor->ne[2] != 1 ||
      tensor->ne[3] != 1) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
        "tensor “%s” is of shape %d x %d x %d x %d, and the keys make it %d x %d", name,
        (int) tensor->ne[0], (int) tensor->ne[1], (int) tensor->ne[2], (int) tensor->ne[3],
        (int) ne0, (int) ne1);
    return NULL;
  }
  return tensor;
}

static gboolean
can_multiply (enum ggml_type type)
{
  const struct ggml_type_traits_cpu *traits = ggml_get_type_traits_cpu (type);

  return traits && traits->vec_dot && ggml_get_type_traits (type)->to_float;
}

/* A matrix of @rows rows of @columns. */
static gboolean
get_matrix (LycheeModel *model, struct ggml_tensor **tensor, const char *name, guint64 columns,
    guint64 rows, GError **error)
{
  *tensor = find_tensor (model, name, TRUE, columns, rows, error);
  if (!*tensor)
    return FALSE;
  /* float32 has no to_float: it is that already. */
  if ((*tensor)->type != GGML_TYPE_F32 && !can_multiply ((*tensor)->type)) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "tensor “%s” is of type %s, which this ggml cannot multiply", name,
        ggml_type_name ((*tensor)->type));
    return FALSE;
  }
  return TRUE;
}

/* A norm's weights or a bias: @n numbers, float32 in the end. */
static gboolean
get_vector (LycheeModel *model, struct ggml_tensor **tensor, const char *name, gboolean required,
    guint64 n, GError **error)
{
  g_autoptr (GError) local = NULL;
  const struct ggml_type_traits *traits;
  struct ggml_tensor *found = find_tensor (model, name, required, n, 1, &local);
  float *values;

  *tensor = found;
  if (local) {
    g_propagate_error (error, g_steal_pointer (&local));
    return FALSE;
  }
  if (!found || found->type == GGML_TYPE_F32)
    return TRUE;
  traits = ggml_get_type_traits (found->type);
  if (!traits->to_float) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "tensor “%s” is of type %s, which cannot be read as numbers", name,
        ggml_type_name (found->type));
    return FALSE;
  }
  values = g_new (float, n);
  traits->to_float (found->data, values, n);
  g_ptr_array_add (model->converted, values);
  found->type = GGML_TYPE_F32;
  found->data = values;
  found->nb[0] = sizeof (float);
  found->nb[1] = found->nb[2] = found->nb[3] = n * sizeof (float);
  return TRUE;
}

static gboolean
read_layer (LycheeModel *model, guint i, GError **error)
{
  const LycheeHparams *hp = &model->hparams;
  LycheeLayer *layer = &model->layers[i];
  guint64 n_q = (guint64) hp->n_heads * hp->head_dim;
  guint64 n_kv = (guint64) hp->n_kv_heads * hp->head_dim;
  const struct {
    struct ggml_tensor **tensor;
    const char *name;
    guint64 columns, rows;
  } matrices[] = {
    { &layer->q, "attn_q.weight", hp->n_embd, n_q },
    { &layer->k, "attn_k.weight", hp->n_embd, n_kv },
    { &layer->v, "attn_v.weight", hp->n_embd, n_kv },
    { &layer->o, "attn_output.weight", n_q, hp->n_embd },
    { &layer->gate, "ffn_gate.weight", hp->n_embd, hp->n_ff },
    { &layer->up, "ffn_up.weight", hp->n_embd, hp->n_ff },
    { &layer->down, "ffn_down.weight", hp->n_ff, hp->n_embd },
  };
  const struct {
    struct ggml_tensor **tensor;
    const char *name;
    gboolean required;
    guint64 n;
  } vectors[] = {
    { &layer->attn_norm, "attn_norm.weight", TRUE, hp->n_embd },
    { &layer->ffn_norm, "ffn_norm.weight", TRUE, hp->n_embd },
    { &layer->q_b, "attn_q.bias", FALSE, n_q },
    { &layer->k_b, "attn_k.bias", FALSE, n_kv },
    { &layer->v_b, "attn_v.bias", FALSE, n_kv },
    { &layer->o_b, "attn_output.bias", FALSE, hp->n_embd },
  };

  for (guint m = 0; m < G_N_ELEMENTS (matrices); m++) {
    g_autofree char *name = g_strdup_printf ("blk.%u.%s", i, matrices[m].name);

    if (!get_matrix (model, matrices[m].tensor, name, matrices[m].columns, matrices[m].rows, error))
      return FALSE;
  }
  for (guint v = 0; v < G_N_ELEMENTS (vectors); v++) {
    g_autofree char *name = g_strdup_printf ("blk.%u.%s", i, vectors[v].name);

    if (!get_vector (model, vectors[v].tensor, name, vectors[v].required, vectors[v].n, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
read_tensors (LycheeModel *model, GError **error)
{
  LycheeHparams *hp = &model->hparams;
  char *data = g_mapped_file_get_contents (model->file) + gguf_get_data_offset (model->gguf);
  struct ggml_tensor *embedding;
  gint64 n_tensors = gguf_get_n_tensors (model->gguf);

  for (gint64 i = 0; i < n_tensors; i++) {
    const char *name = gguf_get_tensor_name (model->gguf, i);

    ggml_get_tensor (model->tensors, name)->data = data + gguf_get_tensor_offset (model->gguf, i);
  }

  embedding = ggml_get_tensor (model->tensors, "token_embd.weight");
  hp->n_vocab = embedding ? embedding->ne[1] : 0;
  if (!get_matrix (model, &model->embedding, "token_embd.weight", hp->n_embd, hp->n_vocab, error) ||
      !get_vector (model, &model->output_norm, "output_norm.weight", TRUE, hp->n_embd, error))
    return FALSE;
  /* Without an output matrix of its own a model uses that of its embeddings. */
  model->output = model->embedding;
  if (ggml_get_tensor (model->tensors, "output.weight") &&
      !get_matrix (model, &model->output, "output.weight", hp->n_embd, hp->n_vocab, error))
    return FALSE;
  if (!get_vector (model, &model->rope_factors, "rope_freqs.weight", FALSE, hp->n_rot / 2, error))
    return FALSE;

  model->layers = g_new0 (LycheeLayer, hp->n_layers);
  for (guint i = 0; i < hp->n_layers; i++)
    if (!read_layer (model, i, error))
      return FALSE;
  return TRUE;
}

static gboolean
read_vocabulary (LycheeModel *model, GError **error)
{
  g_autofree char *warning = NULL;
  g_autoptr (GError) local = NULL;

  model->tokenizer = lychee_tokenizer_new_from_gguf (model->gguf, &warning, &local);
  if (!model->tokenizer) {
    /* To who loads a model, its vocabulary is a part of the file like others. */
    gboolean unsupported =
        g_error_matches (local, LYCHEE_TOKENIZER_ERROR, LYCHEE_TOKENIZER_ERROR_UNSUPPORTED);

    g_set_error_literal (error, LYCHEE_MODEL_ERROR,
        unsupported ? LYCHEE_MODEL_ERROR_UNSUPPORTED : LYCHEE_MODEL_ERROR_INVALID, local->message);
    return FALSE;
  }
  if (warning)
    warn (model, "%s", warning);
  if (lychee_tokenizer_get_n_vocab (model->tokenizer) > model->hparams.n_vocab) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
        "key “tokenizer.ggml.tokens” has %u entries, and tensor “token_embd.weight” only %u rows",
        lychee_tokenizer_get_n_vocab (model->tokenizer), model->hparams.n_vocab);
    return FALSE;
  }
  return TRUE;
}

static gboolean
load (LycheeModel *model, GError **error)
{
  const guint8 *data = (const guint8 *) g_mapped_file_get_contents (model->file);
  gsize size = g_mapped_file_get_length (model->file), header_size;
  struct gguf_init_params params = { .no_alloc = true, .ctx = &model->tensors };
  g_autofree char *hash = NULL;

  if (!lychee_gguf_check (data, size, &header_size, error))
    return FALSE;
  model->gguf = gguf_init_from_buffer (data, size, params);
  if (!model->gguf) {
    g_set_error_literal (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_INVALID,
        "ggml cannot read it as GGUF (run with G_MESSAGES_DEBUG=Lychee to see why)");
    return FALSE;
  }
  hash = g_compute_checksum_for_data (G_CHECKSUM_SHA256, data, header_size);
  model->id = g_strndup (hash, ID_LENGTH);

  model->architecture = get_string (model, "general.architecture");
  model->name = get_string (model, "general.name");
  model->chat_template = get_string (model, "tokenizer.chat_template");
  if (!model->architecture)
    return missing ("general.architecture", error);
  if (!g_str_equal (model->architecture, "llama")) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "its architecture is “%.*s”; supported is: llama (which llama 1 to 3, mistral and SmolLM "
        "are)",
        MAX_QUOTE, model->architecture);
    return FALSE;
  }
  return read_hparams (model, error) && read_tensors (model, error) &&
         read_vocabulary (model, error);
}

/**
 * lychee_model_new_from_file:
 * @path: a GGUF file
 * @error: return location for a %LYCHEE_MODEL_ERROR
 *
 * Loads a model. What had to be assumed about the file is in [method@Model.get_warnings].
 *
 * Returns: (transfer full) (nullable): the model
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
 * Loads a model whose file lacks `rope.freq_base`, or has a wrong one.
 *
 * Returns: (transfer full) (nullable): the model
 */
LycheeModel *
lychee_model_new_full (const char *path, double rope_freq_base, GError **error)
{
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (GError) local = NULL;

  g_return_val_if_fail (path != NULL, NULL);

  model = g_object_new (LYCHEE_TYPE_MODEL, NULL);
  model->path = g_strdup (path);
  model->hparams.rope_freq_base = rope_freq_base > 0 ? rope_freq_base : 0;
  /* A pipe would be waited for, and a folder gives a riddle for a message. */
  if (g_file_test (path, G_FILE_TEST_EXISTS) && !g_file_test (path, G_FILE_TEST_IS_REGULAR)) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_OPEN,
        "Cannot open the model “%s”: it is %s, and a GGUF file is wanted", path,
        g_file_test (path, G_FILE_TEST_IS_DIR) ? "a directory" : "no regular file");
    return NULL;
  }
  model->file = g_mapped_file_new (path, FALSE, &local);
  if (!model->file) {
    g_set_error (error, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_OPEN,
        "Cannot open the model “%s”: %s", path, local->message);
    return NULL;
  }
  if (!load (model, &local)) {
    g_propagate_prefixed_error (
        error, g_steal_pointer (&local), "Cannot use the model “%s”: ", path);
    return NULL;
  }
  if (rope_freq_base > 0)
    model->hparams.rope_freq_base = rope_freq_base;
  g_ptr_array_add (model->warnings, NULL);
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
  return (const char *const *) model->warnings->pdata;
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
  return model->architecture;
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

/**
 * lychee_model_get_tokenizer: (skip)
 * @model: a model
 *
 * The model's tokenizer.
 *
 * Returns: (transfer none): a tokenizer
 */
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
  return model->hparams.n_layers;
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
  return model->hparams.n_heads;
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
  return model->hparams.n_kv_heads;
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
  return model->hparams.head_dim;
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
  return model->hparams.n_vocab;
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
  return model->hparams.n_context;
}

const LycheeHparams *
lychee_model_get_hparams (LycheeModel *model)
{
  return &model->hparams;
}

const LycheeLayer *
lychee_model_get_layer (LycheeModel *model, guint layer)
{
  return &model->layers[layer];
}

struct ggml_tensor *
lychee_model_get_embedding (LycheeModel *model)
{
  return model->embedding;
}

struct ggml_tensor *
lychee_model_get_output_norm (LycheeModel *model)
{
  return model->output_norm;
}

struct ggml_tensor *
lychee_model_get_output (LycheeModel *model)
{
  return model->output;
}

struct ggml_tensor *
lychee_model_get_rope_factors (LycheeModel *model)
{
  return model->rope_factors;
}
