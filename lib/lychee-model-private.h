/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-architecture.h"
#include "lychee-cache-private.h"
#include "lychee-gguf.h"
#include "lychee-model-tokenizer.h"

#include <ggml.h>

G_BEGIN_DECLS

/* The weights of a layer; @..._b are biases, and what a model has not is NULL. Their data lies in
 * the mapped file. What the file has fused is here as the slices that it consists of. */
typedef struct {
  gboolean local; /* sees only the window */
  struct ggml_tensor *attn_norm;
  struct ggml_tensor *q, *k, *v, *o;
  struct ggml_tensor *q_b, *k_b, *v_b, *o_b;
  struct ggml_tensor *q_norm, *k_norm; /* [head_dim] */
  struct ggml_tensor *attn_post_norm;
  struct ggml_tensor *ffn_norm;
  struct ggml_tensor *gate, *up, *down;
  struct ggml_tensor *gate_b, *up_b, *down_b;
  struct ggml_tensor *ffn_post_norm;
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
  float embedding_scale;
  float attention_scale; /* of q.k */
  float attention_cap;   /* cap tanh (scale q.k / cap); 0: none */
  float residual_scale;  /* of what attention and feed-forward add */
  float logit_scale;
  float logit_cap; /* cap tanh (logit / cap); 0: none */
  guint window;    /* tokens that a local layer sees, its own included; 0: there is no such layer */
  /* Rotary embedding, as the file has it. */
  guint n_rot;
  float rope_base;
  float rope_linear; /* positions are divided by it */
  float rope_yarn;   /* factor of YaRN, 1: none */
  float rope_attn_factor;
  float rope_beta_fast, rope_beta_slow; /* of YaRN */
  guint rope_n_context;                 /* positions before the file's scaling */
  float rope_local_base;                /* of local layers */
  gboolean rope_local_scaled;           /* whether they are scaled as the others */
} LycheeHparams;

/* Rotary embedding of a layer, as ggml_rope_ext() takes it. */
typedef struct {
  int mode;
  guint n_rot;
  float freq_base;
  float freq_scale;
  float ext_factor;
  float attn_factor;
  float beta_fast, beta_slow;
  guint n_context;
  struct ggml_tensor *factors; /* (nullable): [n_rot / 2], frequencies are divided by them */
} LycheeRope;

/* The tensors outside of the layers. */
typedef struct {
  struct ggml_tensor *embedding;
  struct ggml_tensor *output_norm;
  struct ggml_tensor *output;
  struct ggml_tensor *output_b;               /* (nullable) */
  struct ggml_tensor *rope_factors;           /* (nullable): of all context lengths */
  struct ggml_tensor *rope_short, *rope_long; /* (nullable): up to rope_n_context, and beyond */
  struct ggml_tensor *rope_linear; /* (nullable): rope_factors times the linear scaling's factor */
} LycheeTensors;

/* What loading fills in; lychee-model-hparams.c and lychee-model-tensors.c do. */
typedef struct {
  LycheeGguf *gguf;
  const LycheeArchitecture *architecture;
  LycheeHparams hparams;
  LycheeTensors tensors;
  LycheeLayer *layers; /* [n_layers] */
  GPtrArray *memory;   /* what tensors that are not in the file as they are point to */
  GPtrArray *warnings; /* of char * */
} LycheeWeights;

void lychee_weights_warn (LycheeWeights *weights, const char *format, ...) G_GNUC_PRINTF (2, 3);
/* @rope_freq_base: instead of the file's, or 0. Makes @layers. */
gboolean lychee_weights_read_hparams (LycheeWeights *weights, float rope_freq_base, GError **error);
gboolean lychee_weights_read_tensors (LycheeWeights *weights, GError **error);

/* Bytes of the file or its parts. */
guint64 lychee_model_get_size (LycheeModel *model);
const LycheeArchitecture *lychee_model_get_description (LycheeModel *model);
const LycheeHparams *lychee_model_get_hparams (LycheeModel *model);
const LycheeTensors *lychee_model_get_tensors (LycheeModel *model);
const LycheeLayer *lychee_model_get_layer (LycheeModel *model, guint layer);
/* The rotary embedding of global or local layers for a context of @n_context tokens (0: as
 * trained). */
void lychee_model_get_rope (LycheeModel *model, gboolean local, guint n_context, LycheeRope *rope);
/* The same as what ggml_rope_ext() makes of it: by what each of the n_rot / 2 pairs turns a
 * position, and one more, what all are multiplied with. */
void lychee_model_get_frequencies (
    LycheeModel *model, gboolean local, guint n_context, double *frequency);
/* Sets what the model says of an index: scale and local layers. */
void lychee_model_describe_indexing (LycheeModel *model, LycheeCacheIndexing *indexing);
/* Lets local layers, if there are any, keep only their window. */
void lychee_model_limit_layers (LycheeModel *model, LycheeCache *cache);
/* [n_layers] */
const gboolean *lychee_model_get_local_layers (LycheeModel *model);

G_END_DECLS
