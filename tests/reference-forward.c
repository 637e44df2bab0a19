/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "reference-forward.h"

#include <ggml.h>
#include <gguf.h>
#include <math.h>
#include <string.h>

typedef struct {
  struct gguf_context *gguf;
  struct ggml_context *tensors;
} File;

static guint
key_uint (File *f, const char *key)
{
  gint64 id = gguf_find_key (f->gguf, key);

  g_assert_cmpint (id, >=, 0);
  return gguf_get_val_u32 (f->gguf, id);
}

static double
key_float (File *f, const char *key, double otherwise)
{
  gint64 id = gguf_find_key (f->gguf, key);

  return id < 0 ? otherwise : gguf_get_val_f32 (f->gguf, id);
}

/* (transfer full) (nullable): a tensor's numbers. */
static double *
values (File *f, const char *name)
{
  struct ggml_tensor *t = ggml_get_tensor (f->tensors, name);
  g_autofree float *single = NULL;
  double *result;
  gint64 n;

  if (!t)
    return NULL;
  n = ggml_nelements (t);
  single = g_new (float, n);
  if (t->type == GGML_TYPE_F32)
    memcpy (single, t->data, n * sizeof *single);
  else
    ggml_get_type_traits (t->type)->to_float (t->data, single, n);
  result = g_new (double, n);
  for (gint64 i = 0; i < n; i++)
    result[i] = single[i];
  return result;
}

static double *
layer_values (File *f, guint layer, const char *name)
{
  g_autofree char *full = g_strdup_printf ("blk.%u.%s", layer, name);

  return values (f, full);
}

/* y[token] = weight [rows][columns] x[token] + bias */
static double *
project (
    File *f, guint layer, const char *name, const double *x, guint n, guint columns, guint rows)
{
  g_autofree char *weight_name = g_strdup_printf ("%s.weight", name);
  g_autofree char *bias_name = g_strdup_printf ("%s.bias", name);
  g_autofree double *w = layer_values (f, layer, weight_name);
  g_autofree double *bias = layer_values (f, layer, bias_name);
  double *y = g_new (double, (gsize) n *rows);

  for (guint t = 0; t < n; t++)
    for (guint r = 0; r < rows; r++) {
      double sum = bias ? bias[r] : 0;

      for (guint c = 0; c < columns; c++)
        sum += w[(gsize) r * columns + c] * x[(gsize) t * columns + c];
      y[(gsize) t * rows + r] = sum;
    }
  return y;
}

static double *
rms_norm (const double *x, const double *weight, guint n, guint size, double eps)
{
  double *y = g_new (double, (gsize) n *size);

  for (guint t = 0; t < n; t++) {
    double sum = 0;

    for (guint i = 0; i < size; i++)
      sum += x[t * size + i] * x[t * size + i];
    for (guint i = 0; i < size; i++)
      y[t * size + i] = x[t * size + i] / sqrt (sum / size + eps) * weight[i];
  }
  return y;
}

/* Su et al. 2021: pairs (2i, 2i + 1) turned by position base^(-2i / n_rot) / factor[i]. */
static void
rotate (double *x, guint n, guint n_heads, guint d, guint n_rot, double base, const double *factors)
{
  for (guint t = 0; t < n; t++)
    for (guint h = 0; h < n_heads; h++)
      for (guint i = 0; i < n_rot / 2; i++) {
        double *pair = x + ((gsize) t * n_heads + h) * d + 2 * i;
        double angle = t * pow (base, -2.0 * i / n_rot) / (factors ? factors[i] : 1);
        double a = pair[0], b = pair[1];

        pair[0] = a * cos (angle) - b * sin (angle);
        pair[1] = a * sin (angle) + b * cos (angle);
      }
}

static void
round_to_half (double *x, gsize n)
{
  for (gsize i = 0; i < n; i++)
    x[i] = ggml_fp16_to_fp32 (ggml_fp32_to_fp16 (x[i]));
}

static double *
attend (
    const double *q, const double *k, const double *v, guint n, guint n_heads, guint n_kv, guint d)
{
  double *output = g_new0 (double, (gsize) n *n_heads *d);
  g_autofree double *p = g_new (double, n);

  for (guint t = 0; t < n; t++)
    for (guint h = 0; h < n_heads; h++) {
      guint kv = h / (n_heads / n_kv);
      double max = -INFINITY, sum = 0;

      for (guint j = 0; j <= t; j++) {
        p[j] = 0;
        for (guint i = 0; i < d; i++)
          p[j] += q[(t * n_heads + h) * d + i] * k[(j * n_kv + kv) * d + i];
        p[j] /= sqrt (d);
        max = MAX (max, p[j]);
      }
      for (guint j = 0; j <= t; j++)
        sum += p[j] = exp (p[j] - max);
      for (guint j = 0; j <= t; j++)
        for (guint i = 0; i < d; i++)
          output[(t * n_heads + h) * d + i] += p[j] / sum * v[(j * n_kv + kv) * d + i];
    }
  return output;
}

static void
add_to (double *x, const double *y, gsize n)
{
  for (gsize i = 0; i < n; i++)
    x[i] += y[i];
}

double *
reference_forward (const char *path, const gint32 *ids, guint n, gboolean round_kv, guint *n_vocab)
{
  File f = { 0 };
  struct gguf_init_params params = { .no_alloc = false, .ctx = &f.tensors };
  guint n_embd, n_heads, n_kv, d, n_ff, n_layers, n_rot;
  g_autofree double *embedding = NULL, *factors = NULL, *norm = NULL, *output = NULL, *x = NULL,
                    *normed = NULL;
  double eps, base, *logits;

  f.gguf = gguf_init_from_file (path, params);
  g_assert_nonnull (f.gguf);
  n_embd = key_uint (&f, "llama.embedding_length");
  n_heads = key_uint (&f, "llama.attention.head_count");
  n_kv = key_uint (&f, "llama.attention.head_count_kv");
  d = key_uint (&f, "llama.attention.key_length");
  n_ff = key_uint (&f, "llama.feed_forward_length");
  n_layers = key_uint (&f, "llama.block_count");
  n_rot = key_uint (&f, "llama.rope.dimension_count");
  eps = key_float (&f, "llama.attention.layer_norm_rms_epsilon", 0);
  base = key_float (&f, "llama.rope.freq_base", 10000);
  embedding = values (&f, "token_embd.weight");
  factors = values (&f, "rope_freqs.weight");
  norm = values (&f, "output_norm.weight");
  output = values (&f, "output.weight");
  *n_vocab = ggml_get_tensor (f.tensors, "token_embd.weight")->ne[1];

  x = g_new (double, (gsize) n *n_embd);
  for (guint t = 0; t < n; t++)
    memcpy (x + (gsize) t * n_embd, embedding + (gsize) ids[t] * n_embd, n_embd * sizeof *x);
  for (guint l = 0; l < n_layers; l++) {
    g_autofree double *attn_norm = layer_values (&f, l, "attn_norm.weight");
    g_autofree double *ffn_norm = layer_values (&f, l, "ffn_norm.weight");
    g_autofree double *a = rms_norm (x, attn_norm, n, n_embd, eps);
    g_autofree double *q = project (&f, l, "attn_q", a, n, n_embd, n_heads * d);
    g_autofree double *k = project (&f, l, "attn_k", a, n, n_embd, n_kv * d);
    g_autofree double *v = project (&f, l, "attn_v", a, n, n_embd, n_kv * d);
    g_autofree double *o = NULL, *b = NULL, *gate = NULL, *up = NULL, *down = NULL, *y = NULL;

    rotate (q, n, n_heads, d, n_rot, base, factors);
    rotate (k, n, n_kv, d, n_rot, base, factors);
    if (round_kv) {
      round_to_half (k, (gsize) n * n_kv * d);
      round_to_half (v, (gsize) n * n_kv * d);
    }
    y = attend (q, k, v, n, n_heads, n_kv, d);
    o = project (&f, l, "attn_output", y, n, n_heads * d, n_embd);
    add_to (x, o, (gsize) n * n_embd);
    b = rms_norm (x, ffn_norm, n, n_embd, eps);
    gate = project (&f, l, "ffn_gate", b, n, n_embd, n_ff);
    up = project (&f, l, "ffn_up", b, n, n_embd, n_ff);
    for (gsize i = 0; i < (gsize) n * n_ff; i++)
      up[i] *= gate[i] / (1 + exp (-gate[i]));
    down = project (&f, l, "ffn_down", up, n, n_ff, n_embd);
    add_to (x, down, (gsize) n * n_embd);
  }
  normed = rms_norm (x, norm, n, n_embd, eps);
  logits = g_new0 (double, (gsize) n **n_vocab);
  for (guint t = 0; t < n; t++)
    for (guint id = 0; id < *n_vocab; id++)
      for (guint i = 0; i < n_embd; i++)
        logits[(gsize) t * *n_vocab + id] +=
            (output ? output : embedding)[(gsize) id * n_embd + i] * normed[t * n_embd + i];
  gguf_free (f.gguf);
  ggml_free (f.tensors);
  return logits;
}
