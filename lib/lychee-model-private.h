/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-model.h"

#include <ggml.h>

G_BEGIN_DECLS

/* The weights of a layer; @..._b are biases, NULL where the model has none. Their data lies in the
 * mapped file. */
typedef struct {
  struct ggml_tensor *attn_norm;
  struct ggml_tensor *q, *k, *v, *o;
  struct ggml_tensor *q_b, *k_b, *v_b, *o_b;
  struct ggml_tensor *ffn_norm;
  struct ggml_tensor *gate, *up, *down;
} LycheeLayer;

typedef struct {
  guint n_layers;
  guint n_embd;
  guint n_ff;
  guint n_heads;
  guint n_kv_heads;
  guint head_dim;
  guint n_vocab;
  guint n_context; /* positions that the model was trained for */
  float norm_eps;
  /* As ggml_rope_ext() takes them. */
  guint n_rot;
  float rope_freq_base;
  float rope_freq_scale;
  float rope_ext_factor;
  float rope_attn_factor;
  guint rope_n_context; /* positions before the file's own scaling */
} LycheeHparams;

const LycheeHparams *lychee_model_get_hparams (LycheeModel *model);
const LycheeLayer *lychee_model_get_layer (LycheeModel *model, guint layer);
struct ggml_tensor *lychee_model_get_embedding (LycheeModel *model);
struct ggml_tensor *lychee_model_get_output_norm (LycheeModel *model);
struct ggml_tensor *lychee_model_get_output (LycheeModel *model);
struct ggml_tensor *lychee_model_get_rope_factors (LycheeModel *model); /* (nullable) */

G_END_DECLS
