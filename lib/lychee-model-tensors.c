/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The tensors of a model file: found, and their shapes and types checked. */

#include "lychee-model-private.h"

#include <ggml-cpu.h>
#include <string.h>

/* FALSE: it is not as the keys make it. It may be missing unless @required: NULL then. */
static gboolean
find_tensor (LycheeWeights *w, struct ggml_tensor **found, const char *name, gboolean required,
    guint64 ne0, guint64 ne1, GError **error)
{
  struct ggml_tensor *t = *found = lychee_gguf_get_tensor (w->gguf, name);

  if (!t)
    return !required ||
           lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID, "tensor “%s” is missing", name);
  if ((guint64) t->ne[0] != ne0 || (guint64) t->ne[1] != ne1 || t->ne[2] != 1 || t->ne[3] != 1)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "tensor “%s” is of shape %d x %d x %d x %d, and the keys make it %d x %d", name,
        (int) t->ne[0], (int) t->ne[1], (int) t->ne[2], (int) t->ne[3], (int) ne0, (int) ne1);
  return TRUE;
}

static gboolean
can_multiply (enum ggml_type type)
{
  const struct ggml_type_traits_cpu *traits = ggml_get_type_traits_cpu (type);

  return traits && traits->vec_dot && ggml_get_type_traits (type)->to_float;
}

/* A matrix of @rows rows of @columns. */
static gboolean
get_matrix (LycheeWeights *w, struct ggml_tensor **tensor, const char *name, gboolean required,
    guint64 columns, guint64 rows, GError **error)
{
  if (!find_tensor (w, tensor, name, required, columns, rows, error))
    return FALSE;
  /* float32 has no to_float: it is that already. */
  if (*tensor && (*tensor)->type != GGML_TYPE_F32 && !can_multiply ((*tensor)->type))
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "tensor “%s” is of type %s, which this ggml cannot multiply", name,
        ggml_type_name ((*tensor)->type));
  return TRUE;
}

/* A norm's weights or a bias: @n numbers, float32 in the end. */
static gboolean
get_vector (LycheeWeights *w, struct ggml_tensor **tensor, const char *name, gboolean required,
    guint64 n, GError **error)
{
  const struct ggml_type_traits *traits;
  struct ggml_tensor *t;
  float *values;

  if (!find_tensor (w, tensor, name, required, n, 1, error))
    return FALSE;
  t = *tensor;
  if (!t || t->type == GGML_TYPE_F32)
    return TRUE;
  traits = ggml_get_type_traits (t->type);
  if (!traits->to_float)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "tensor “%s” is of type %s, which cannot be read as numbers", name,
        ggml_type_name (t->type));
  values = g_new (float, n);
  traits->to_float (t->data, values, n);
  g_ptr_array_add (w->memory, values);
  t->type = GGML_TYPE_F32;
  t->data = values;
  t->nb[0] = sizeof (float);
  t->nb[1] = t->nb[2] = t->nb[3] = n * sizeof (float);
  return TRUE;
}

/* Rows first .. first + n - 1 of a matrix, or elements of a vector. Rows are whole blocks. */
static struct ggml_tensor *
slice (LycheeWeights *w, const struct ggml_tensor *from, guint64 first, guint64 n)
{
  struct ggml_tensor *t = g_memdup2 (from, sizeof *from);
  guint dimension = from->ne[1] > 1 ? 1 : 0;

  g_ptr_array_add (w->memory, t);
  t->data = (char *) from->data + first * from->nb[dimension];
  t->ne[dimension] = n;
  for (guint d = dimension + 1; d < GGML_MAX_DIMS; d++)
    t->nb[d] = t->nb[d - 1] * t->ne[d - 1];
  return t;
}

typedef struct {
  struct ggml_tensor **tensor;
  const char *name;
  guint64 columns, rows;
} Matrix;

typedef struct {
  struct ggml_tensor **tensor;
  const char *name;
  gboolean required;
  guint64 n;
} Vector;

static gboolean
get_matrices (LycheeWeights *w, guint layer, const Matrix *matrices, guint n, GError **error)
{
  for (guint i = 0; i < n; i++) {
    const Matrix *m = &matrices[i];
    g_autofree char *name = g_strdup_printf ("blk.%u.%s.weight", layer, m->name);

    if (!get_matrix (w, m->tensor, name, TRUE, m->columns, m->rows, error))
      return FALSE;
  }
  return TRUE;
}

static gboolean
get_vectors (LycheeWeights *w, guint layer, const Vector *vectors, guint n, GError **error)
{
  for (guint i = 0; i < n; i++) {
    const Vector *v = &vectors[i];
    g_autofree char *name = g_strdup_printf ("blk.%u.%s", layer, v->name);

    if (!get_vector (w, v->tensor, name, v->required, v->n, error))
      return FALSE;
  }
  return TRUE;
}

/* Queries, keys and values: three matrices or one. */
static gboolean
read_qkv (LycheeWeights *w, guint i, GError **error)
{
  const LycheeHparams *hp = &w->hparams;
  LycheeLayer *layer = &w->layers[i];
  guint64 n_q = (guint64) hp->n_heads * hp->head_dim;
  guint64 n_kv = (guint64) hp->n_kv_heads * hp->head_dim;
  const Matrix matrices[] = {
    { &layer->q, "attn_q", hp->n_embd, n_q },
    { &layer->k, "attn_k", hp->n_embd, n_kv },
    { &layer->v, "attn_v", hp->n_embd, n_kv },
  };
  const Vector biases[] = {
    { &layer->q_b, "attn_q.bias", FALSE, n_q },
    { &layer->k_b, "attn_k.bias", FALSE, n_kv },
    { &layer->v_b, "attn_v.bias", FALSE, n_kv },
  };
  g_autofree char *weight = g_strdup_printf ("blk.%u.attn_qkv.weight", i);
  g_autofree char *bias = g_strdup_printf ("blk.%u.attn_qkv.bias", i);
  struct ggml_tensor *fused, *fused_b;

  if (!get_matrix (w, &fused, weight, FALSE, hp->n_embd, n_q + 2 * n_kv, error) ||
      !get_vector (w, &fused_b, bias, FALSE, n_q + 2 * n_kv, error) ||
      !get_vectors (w, i, biases, G_N_ELEMENTS (biases), error))
    return FALSE;
  if (fused_b) {
    layer->q_b = slice (w, fused_b, 0, n_q);
    layer->k_b = slice (w, fused_b, n_q, n_kv);
    layer->v_b = slice (w, fused_b, n_q + n_kv, n_kv);
  }
  if (!fused)
    return get_matrices (w, i, matrices, G_N_ELEMENTS (matrices), error);
  layer->q = slice (w, fused, 0, n_q);
  layer->k = slice (w, fused, n_q, n_kv);
  layer->v = slice (w, fused, n_q + n_kv, n_kv);
  return TRUE;
}

static gboolean
read_feed_forward (LycheeWeights *w, guint i, GError **error)
{
  const LycheeHparams *hp = &w->hparams;
  LycheeLayer *layer = &w->layers[i];
  struct ggml_tensor *fused;
  const Matrix gate[] = { { &layer->gate, "ffn_gate", hp->n_embd, hp->n_ff },
    { &layer->up, "ffn_up", hp->n_embd, hp->n_ff } };
  const Matrix gate_up[] = { { &fused, "ffn_up", hp->n_embd, 2 * (guint64) hp->n_ff } };
  const Matrix down[] = { { &layer->down, "ffn_down", hp->n_ff, hp->n_embd } };

  if (!get_matrices (w, i, down, 1, error))
    return FALSE;
  if (!w->architecture->fused_gate)
    return get_matrices (w, i, gate, 2, error);
  if (!get_matrices (w, i, gate_up, 1, error))
    return FALSE;
  layer->gate = slice (w, fused, 0, hp->n_ff);
  layer->up = slice (w, fused, hp->n_ff, hp->n_ff);
  return TRUE;
}

static gboolean
read_layer (LycheeWeights *w, guint i, GError **error)
{
  const LycheeHparams *hp = &w->hparams;
  const LycheeArchitecture *a = w->architecture;
  LycheeLayer *layer = &w->layers[i];
  const Matrix o[] = { { &layer->o, "attn_output", (guint64) hp->n_heads * hp->head_dim,
      hp->n_embd } };
  const Vector vectors[] = {
    { &layer->attn_norm, "attn_norm.weight", TRUE, hp->n_embd },
    { &layer->o_b, "attn_output.bias", FALSE, hp->n_embd },
    { &layer->ffn_norm, "ffn_norm.weight", TRUE, hp->n_embd },
    { &layer->gate_b, "ffn_gate.bias", FALSE, hp->n_ff },
    { &layer->up_b, "ffn_up.bias", FALSE, hp->n_ff },
    { &layer->down_b, "ffn_down.bias", FALSE, hp->n_embd },
  };
  const Vector qk_norms[] = {
    { &layer->q_norm, "attn_q_norm.weight", TRUE, hp->head_dim },
    { &layer->k_norm, "attn_k_norm.weight", TRUE, hp->head_dim },
  };
  const Vector post_norms[] = {
    { &layer->attn_post_norm, "post_attention_norm.weight", TRUE, hp->n_embd },
    { &layer->ffn_post_norm, "post_ffw_norm.weight", TRUE, hp->n_embd },
  };

  return read_qkv (w, i, error) && get_matrices (w, i, o, 1, error) &&
         read_feed_forward (w, i, error) &&
         get_vectors (w, i, vectors, G_N_ELEMENTS (vectors), error) &&
         (!a->qk_norm || get_vectors (w, i, qk_norms, G_N_ELEMENTS (qk_norms), error)) &&
         (!a->post_norm || get_vectors (w, i, post_norms, G_N_ELEMENTS (post_norms), error));
}

/* For YaRN on top of linear scaling: frequencies are divided by both. */
static struct ggml_tensor *
make_linear_factors (LycheeWeights *w)
{
  guint n = w->hparams.n_rot / 2;
  struct ggml_tensor *t = g_new0 (struct ggml_tensor, 1);
  float *values = g_new (float, n);

  g_ptr_array_add (w->memory, t);
  g_ptr_array_add (w->memory, values);
  for (guint i = 0; i < n; i++)
    values[i] = w->hparams.rope_linear *
                (w->tensors.rope_factors ? ((float *) w->tensors.rope_factors->data)[i] : 1);
  t->type = GGML_TYPE_F32;
  t->data = values;
  t->ne[0] = n;
  t->ne[1] = t->ne[2] = t->ne[3] = 1;
  t->nb[0] = sizeof (float);
  t->nb[1] = t->nb[2] = t->nb[3] = n * sizeof (float);
  return t;
}

static gboolean
read_rope_factors (LycheeWeights *w, GError **error)
{
  LycheeTensors *t = &w->tensors;
  const Vector factors[] = {
    { &t->rope_factors, "rope_freqs.weight", FALSE, w->hparams.n_rot / 2 },
    { &t->rope_short, "rope_factors_short.weight", FALSE, w->hparams.n_rot / 2 },
    { &t->rope_long, "rope_factors_long.weight", FALSE, w->hparams.n_rot / 2 },
  };

  for (guint i = 0; i < G_N_ELEMENTS (factors); i++) {
    const Vector *v = &factors[i];

    if (!get_vector (w, v->tensor, v->name, v->required, v->n, error))
      return FALSE;
    for (guint64 j = 0; *v->tensor && j < v->n; j++)
      if (!(((float *) (*v->tensor)->data)[j] > 0))
        return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
            "tensor “%s” has a number that is not above 0", v->name);
  }
  if (!t->rope_short != !t->rope_long)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID, "tensor “%s” is missing",
        t->rope_long ? "rope_factors_short.weight" : "rope_factors_long.weight");
  if (w->hparams.rope_linear != 1)
    t->rope_linear = make_linear_factors (w);
  return TRUE;
}

gboolean
lychee_weights_read_tensors (LycheeWeights *w, GError **error)
{
  LycheeHparams *hp = &w->hparams;
  LycheeTensors *t = &w->tensors;
  struct ggml_tensor *embedding = lychee_gguf_get_tensor (w->gguf, "token_embd.weight");

  hp->n_vocab = embedding ? embedding->ne[1] : 0;
  if (!get_matrix (w, &t->embedding, "token_embd.weight", TRUE, hp->n_embd, hp->n_vocab, error) ||
      !get_vector (w, &t->output_norm, "output_norm.weight", TRUE, hp->n_embd, error) ||
      !get_matrix (w, &t->output, "output.weight", FALSE, hp->n_embd, hp->n_vocab, error) ||
      !get_vector (w, &t->output_b, "output.bias", FALSE, hp->n_vocab, error) ||
      !read_rope_factors (w, error))
    return FALSE;
  /* Without an output matrix of its own a model uses that of its embeddings. */
  if (!t->output)
    t->output = t->embedding;
  for (guint i = 0; i < hp->n_layers; i++)
    if (!read_layer (w, i, error))
      return FALSE;
  return TRUE;
}
