/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Brings a model's weights onto a device: dequantised once, by ggml, a few rows at a time. */

#include "lychee-cuda-weights.h"

#include <math.h>

#define PIECE (1u << 20) /* elements that are dequantised at a time, at least a row */

typedef struct {
  LycheeCuda *cuda;
  LycheeCudaModel *model;
  LycheeCudaBatch *batch;
} Weights;

static void
weights_free (gpointer data)
{
  Weights *weights = data;

  lychee_cuda_batch_free (weights->batch);
  weights->cuda->api->model_free (weights->model);
  lychee_cuda_unref (weights->cuda);
  g_free (weights);
}

/* The tensor of a layer, or of no layer; NULL where the model has none. */
static struct ggml_tensor *
get_tensor (LycheeModel *model, guint layer, LycheeCudaTensor which)
{
  const LycheeLayer *l = lychee_model_get_layer (model, layer);
  const LycheeTensors *t = lychee_model_get_tensors (model);
  struct ggml_tensor *const tensors[LYCHEE_CUDA_N_TENSORS] = {
    [LYCHEE_CUDA_Q] = l->q,
    [LYCHEE_CUDA_K] = l->k,
    [LYCHEE_CUDA_V] = l->v,
    [LYCHEE_CUDA_O] = l->o,
    [LYCHEE_CUDA_GATE] = l->gate,
    [LYCHEE_CUDA_UP] = l->up,
    [LYCHEE_CUDA_DOWN] = l->down,
    [LYCHEE_CUDA_ATTN_NORM] = l->attn_norm,
    [LYCHEE_CUDA_FFN_NORM] = l->ffn_norm,
    [LYCHEE_CUDA_Q_B] = l->q_b,
    [LYCHEE_CUDA_K_B] = l->k_b,
    [LYCHEE_CUDA_V_B] = l->v_b,
    [LYCHEE_CUDA_O_B] = l->o_b,
    [LYCHEE_CUDA_GATE_B] = l->gate_b,
    [LYCHEE_CUDA_UP_B] = l->up_b,
    [LYCHEE_CUDA_DOWN_B] = l->down_b,
    [LYCHEE_CUDA_Q_NORM] = l->q_norm,
    [LYCHEE_CUDA_K_NORM] = l->k_norm,
    [LYCHEE_CUDA_ATTN_POST_NORM] = l->attn_post_norm,
    [LYCHEE_CUDA_FFN_POST_NORM] = l->ffn_post_norm,
    [LYCHEE_CUDA_EMBEDDING] = t->embedding,
    [LYCHEE_CUDA_OUTPUT] = t->output == t->embedding ? NULL : t->output,
    [LYCHEE_CUDA_OUTPUT_NORM] = t->output_norm,
    [LYCHEE_CUDA_OUTPUT_B] = t->output_b,
  };

  return tensors[which];
}

static gboolean
set_tensor (Weights *weights, guint layer, LycheeCudaTensor which, const struct ggml_tensor *tensor,
    float *values, GError **error)
{
  gsize columns = tensor->ne[0], n_rows = tensor->ne[1];
  gsize most = MAX (1, PIECE / columns);
  LycheeCudaError local = { 0 };

  for (gsize row = 0; row < n_rows; row += most) {
    gsize n = MIN (most, n_rows - row);

    /* A slice of a fused tensor has rows of its own stride. */
    for (gsize i = 0; i < n; i++) {
      const guint8 *data = (const guint8 *) tensor->data + (row + i) * tensor->nb[1];

      if (tensor->type == GGML_TYPE_F32)
        memcpy (values + i * columns, data, columns * sizeof *values);
      else
        ggml_get_type_traits (tensor->type)->to_float (data, values + i * columns, columns);
    }
    if (weights->cuda->api->model_set (
            weights->model, layer, which, row * columns, n * columns, values, &local) != 0) {
      lychee_cuda_set_error (error, &local, "The model cannot be brought onto the CUDA device");
      return FALSE;
    }
  }
  return TRUE;
}

static gboolean
set_all (Weights *weights, LycheeModel *model, GError **error)
{
  const LycheeHparams *hp = lychee_model_get_hparams (model);
  gsize widest = MAX (MAX (hp->n_embd, hp->n_ff), MAX (hp->n_heads * hp->head_dim, hp->n_vocab));
  g_autofree float *values = g_new (float, MAX (PIECE, widest));

  for (guint layer = 0; layer < hp->n_layers; layer++)
    for (guint which = 0; which < LYCHEE_CUDA_N_TENSORS; which++) {
      const struct ggml_tensor *tensor;

      if (which >= LYCHEE_CUDA_N_LAYER_TENSORS && layer > 0)
        continue;
      tensor = get_tensor (model, layer, which);
      if (tensor && !set_tensor (weights, layer, which, tensor, values, error))
        return FALSE;
    }
  return TRUE;
}

/* What matrices and activations are kept in: f16 is closer, but the files that are in bf16, and
 * models of gemma's kind, have numbers beyond its range. */
static LycheeCudaType
choose_type (LycheeModel *model)
{
  if (lychee_model_get_layer (model, 0)->q->type == GGML_TYPE_BF16 ||
      lychee_model_get_description (model)->activation == LYCHEE_ACTIVATION_GELU)
    return LYCHEE_CUDA_BF16;
  return LYCHEE_CUDA_F16;
}

static Weights *
load (LycheeCuda *cuda, LycheeModel *model, GError **error)
{
  const LycheeHparams *hp = lychee_model_get_hparams (model);
  const LycheeArchitecture *architecture = lychee_model_get_description (model);
  const LycheeTensors *tensors = lychee_model_get_tensors (model);
  g_autofree guint8 *local = g_new0 (guint8, hp->n_layers);
  guint8 present[LYCHEE_CUDA_N_TENSORS] = { 0 };
  LycheeCudaHparams hparams = {
    .n_layers = hp->n_layers,
    .n_embd = hp->n_embd,
    .n_ff = hp->n_ff,
    .n_heads = hp->n_heads,
    .n_kv_heads = hp->n_kv_heads,
    .head_dim = hp->head_dim,
    .n_vocab = hp->n_vocab,
    .type = choose_type (model),
    .activation =
        architecture->activation == LYCHEE_ACTIVATION_GELU ? LYCHEE_CUDA_GELU : LYCHEE_CUDA_SILU,
    .norm_eps = hp->norm_eps,
    .embedding_scale = hp->embedding_scale,
    .attention_scale = hp->attention_scale > 0 ? hp->attention_scale : 1 / sqrtf (hp->head_dim),
    .residual_scale = hp->residual_scale,
    .logit_scale = hp->logit_scale,
    .logit_cap = hp->logit_cap,
    .window = hp->window,
    .local = local,
    .n_rot = hp->n_rot,
    .neox = architecture->rope_halves,
    .tied = tensors->output == tensors->embedding,
  };
  LycheeCudaError cuda_error = { 0 };
  LycheeCudaModel *on_device;
  Weights *weights;

  for (guint i = 0; i < hp->n_layers; i++) {
    local[i] = lychee_model_get_layer (model, i)->local;
    for (guint which = 0; which < LYCHEE_CUDA_N_TENSORS; which++)
      present[which] |= get_tensor (model, i, which) != NULL;
  }
  if (cuda->api->model_new (cuda->device, &hparams, present, &on_device, &cuda_error) != 0) {
    lychee_cuda_set_error (error, &cuda_error, "The model cannot run on the CUDA device");
    return NULL;
  }
  weights = g_new (Weights, 1);
  *weights = (Weights){ lychee_cuda_ref (cuda), on_device,
    lychee_cuda_batch_new (cuda, on_device, hp->n_rot / 2 + 1) };
  if (set_all (weights, model, error))
    return weights;
  weights_free (weights);
  return NULL;
}

LycheeCudaModel *
lychee_cuda_weights_get (
    LycheeCuda *cuda, LycheeModel *model, LycheeCudaBatch **batch, GError **error)
{
  static GMutex lock;
  g_autofree char *key = g_strdup_printf ("lychee-cuda-weights-%u", cuda->ordinal);
  Weights *weights;

  g_mutex_lock (&lock);
  weights = g_object_get_data (G_OBJECT (model), key);
  if (!weights) {
    weights = load (cuda, model, error);
    if (weights)
      g_object_set_data_full (G_OBJECT (model), key, weights, weights_free);
  }
  g_mutex_unlock (&lock);
  if (weights)
    *batch = weights->batch;
  return weights ? weights->model : NULL;
}
