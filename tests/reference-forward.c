/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "reference-forward.h"

#include <ggml.h>
#include <gguf.h>
#include <math.h>
#include <string.h>

/* What the architectures do, written down apart from the library's table. */
typedef struct {
  const char *name;
  gboolean halves;                 /* element i is rotated with i + n_rot / 2 */
  gboolean gelu;                   /* by tanh; else SiLU */
  gboolean sqrt_embd;              /* embeddings times sqrt (n_embd) */
  guint every;                     /* each so-many-th layer sees everything, the others a window */
  double local_base;               /* of those with a window; 0: as the others */
  double attention_cap, logit_cap; /* where the file has none */
} Traits;

static const Traits traits[] = {
  { "llama", FALSE, FALSE, FALSE, 0, 0 },
  { "qwen2", TRUE, FALSE, FALSE, 0, 0 },
  { "qwen3", TRUE, FALSE, FALSE, 0, 0 },
  { "gemma2", TRUE, TRUE, TRUE, 2, 0, 50, 30 },
  { "gemma3", TRUE, TRUE, TRUE, 6, 10000 },
  { "phi3", TRUE, FALSE, FALSE, 0, 0 },
  { "granite", FALSE, FALSE, FALSE, 0, 0 },
};

typedef struct {
  struct gguf_context *gguf;
  struct ggml_context *tensors;
  const Traits *traits;
  guint n, n_context;
  guint n_layers, n_embd, n_ff, n_heads, n_kv, d, n_rot;
  double eps;
} File;

static gint64
find_key (File *f, const char *key)
{
  g_autofree char *name = g_strdup_printf ("%s.%s", f->traits->name, key);

  return gguf_find_key (f->gguf, name);
}

static guint
key_uint (File *f, const char *key, guint otherwise)
{
  gint64 id = find_key (f, key);

  return id < 0 ? otherwise : gguf_get_val_u32 (f->gguf, id);
}

static double
key_float (File *f, const char *key, double otherwise)
{
  gint64 id = find_key (f, key);

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

/* y[token] = rows first .. first + rows - 1 of the weight, times x[token], + bias */
static double *
project_rows (
    File *f, guint layer, const char *name, const double *x, guint columns, guint first, guint rows)
{
  g_autofree char *weight_name = g_strdup_printf ("%s.weight", name);
  g_autofree char *bias_name = g_strdup_printf ("%s.bias", name);
  g_autofree double *w = layer_values (f, layer, weight_name);
  g_autofree double *bias = layer_values (f, layer, bias_name);
  double *y = g_new (double, (gsize) f->n *rows);

  for (guint t = 0; t < f->n; t++)
    for (guint r = 0; r < rows; r++) {
      double sum = bias ? bias[first + r] : 0;

      for (guint c = 0; c < columns; c++)
        sum += w[(gsize) (first + r) * columns + c] * x[(gsize) t * columns + c];
      y[(gsize) t * rows + r] = sum;
    }
  return y;
}

static gboolean
has (File *f, guint layer, const char *name)
{
  g_autofree char *full = g_strdup_printf ("blk.%u.%s.weight", layer, name);

  return ggml_get_tensor (f->tensors, full) != NULL;
}

/* One of several matrices that a file may have as one: its rows begin at @first there. */
static double *
project (File *f, guint layer, const char *fused, const char *name, const double *x, guint columns,
    guint first, guint rows)
{
  return fused && has (f, layer, fused) ? project_rows (f, layer, fused, x, columns, first, rows)
                                        : project_rows (f, layer, name, x, columns, 0, rows);
}

/* Without weights, nothing is changed. */
static double *
rms_norm (const double *x, const double *weight, gsize n, guint size, double eps)
{
  double *y = g_new (double, n *size);

  for (gsize t = 0; t < n; t++) {
    double sum = 0;

    for (guint i = 0; i < size; i++)
      sum += x[t * size + i] * x[t * size + i];
    for (guint i = 0; i < size; i++)
      y[t * size + i] =
          weight ? x[t * size + i] / sqrt (sum / size + eps) * weight[i] : x[t * size + i];
  }
  return y;
}

/* What each pair is turned by per position, and what it is stretched by (@factor). Su et al. 2021:
 * base^(-2i / n_rot); YaRN, Peng et al. 2023: between that and its s-th part, by how often the pair
 * turns over the original context, and attention's temperature. */
static void
get_frequencies (File *f, gboolean is_local, double *frequency, double *factor)
{
  g_autofree double *factors = values (f, "rope_freqs.weight");
  guint trained = key_uint (f, "context_length", 0);
  guint original = key_uint (f, "rope.scaling.original_context_length", trained);
  guint context = f->n_context > 0 ? f->n_context : trained;
  gint64 type_id = find_key (f, "rope.scaling.type");
  const char *type = type_id < 0 ? "" : gguf_get_val_str (f->gguf, type_id);
  double scaling = key_float (f, "rope.scaling.factor", 1);
  double base = key_float (f, "rope.freq_base", 10000);
  double linear = g_str_equal (type, "linear") ? scaling : 1;
  double yarn = g_str_equal (type, "yarn") ? scaling : 1;
  double low, high;

  if (yarn == 1)
    original = trained / linear;
  if (context > trained)
    yarn *= (double) context / trained;
  if (is_local) { /* never stretched: nothing is farther than the window */
    context = trained;
    yarn = g_str_equal (type, "yarn") ? scaling : 1;
  }
  is_local = is_local && f->traits->local_base > 0;
  if (is_local) {
    base = f->traits->local_base;
    linear = yarn = 1;
  }
  *factor = is_local ? 1 : key_float (f, "rope.scaling.attn_factor", 1);
  if (g_str_equal (type, "longrope"))
    factors = values (f, context > key_uint (f, "rope.scaling.original_context_length", trained)
                             ? "rope_factors_long.weight"
                             : "rope_factors_short.weight");
  low = f->n_rot * log (original / (32 * 2 * G_PI)) / (2 * log (base));
  high = f->n_rot * log (original / (1 * 2 * G_PI)) / (2 * log (base));
  low = MAX (floor (low), 0);
  high = MIN (ceil (high), f->n_rot - 1);
  for (guint i = 0; i < f->n_rot / 2; i++) {
    double plain =
        pow (base, -2.0 * i / f->n_rot) / linear / (factors && !is_local ? factors[i] : 1);
    double ramp = CLAMP ((i - low) / MAX (high - low, 0.001), 0, 1);

    frequency[i] = yarn == 1 ? plain : plain / yarn * ramp + plain * (1 - ramp);
  }
  if (yarn != 1)
    *factor *= 1 + 0.1 * log (yarn);
}

static void
rotate (File *f, double *x, guint n_heads, gboolean is_local)
{
  g_autofree double *frequency = g_new (double, f->n_rot / 2);
  double factor;

  get_frequencies (f, is_local, frequency, &factor);
  for (guint t = 0; t < f->n; t++)
    for (guint h = 0; h < n_heads; h++)
      for (guint i = 0; i < f->n_rot / 2; i++) {
        double *head = x + ((gsize) t * n_heads + h) * f->d;
        double *a = f->traits->halves ? head + i : head + 2 * i;
        double *b = f->traits->halves ? head + i + f->n_rot / 2 : head + 2 * i + 1;
        double angle = t * frequency[i], x0 = *a, x1 = *b;

        *a = (x0 * cos (angle) - x1 * sin (angle)) * factor;
        *b = (x0 * sin (angle) + x1 * cos (angle)) * factor;
      }
}

static double
as_half (double x)
{
  return ggml_fp16_to_fp32 (ggml_fp32_to_fp16 (x));
}

/* @window: how many tokens each sees, its own included; 0: all. */
static double *
attend (File *f, const double *q, const double *k, const double *v, guint window)
{
  guint d = f->d, group = f->n_heads / f->n_kv;
  double *output = g_new0 (double, (gsize) f->n * f->n_heads * d);
  g_autofree double *p = g_new (double, f->n);
  double scale = key_float (f, "attention.scale", 1 / sqrt (d));
  double cap = key_float (f, "attn_logit_softcapping", f->traits->attention_cap);

  for (guint t = 0; t < f->n; t++)
    for (guint h = 0; h < f->n_heads; h++) {
      guint begin = window > 0 && t + 1 > window ? t + 1 - window : 0;
      double max = -INFINITY, sum = 0;

      for (guint j = begin; j <= t; j++) {
        p[j] = 0;
        for (guint i = 0; i < d; i++)
          p[j] += q[(t * f->n_heads + h) * d + i] * k[(j * f->n_kv + h / group) * d + i];
        p[j] *= scale;
        if (cap > 0)
          p[j] = cap * tanh (p[j] / cap);
        max = MAX (max, p[j]);
      }
      for (guint j = begin; j <= t; j++)
        sum += p[j] = exp (p[j] - max);
      for (guint j = begin; j <= t; j++)
        for (guint i = 0; i < d; i++)
          output[(t * f->n_heads + h) * d + i] += p[j] / sum * v[(j * f->n_kv + h / group) * d + i];
    }
  return output;
}

static void
add_to (double *x, const double *y, gsize n, double scale)
{
  for (gsize i = 0; i < n; i++)
    x[i] += scale * y[i];
}

/* ggml has GELU as a table over half floats. */
static double
activate (File *f, double x)
{
  if (!f->traits->gelu)
    return x / (1 + exp (-x));
  x = as_half (x);
  return as_half (0.5 * x * (1 + tanh (sqrt (2 / G_PI) * (x + 0.044715 * x * x * x))));
}

static void
run_layer (File *f, guint l, gboolean round_kv, double *x)
{
  guint window = key_uint (f, "attention.sliding_window", 0);
  gboolean is_local = window > 0 && f->traits->every > 0 && (l + 1) % f->traits->every != 0;
  guint n_q = f->n_heads * f->d, n_kv = f->n_kv * f->d;
  double scale = key_float (f, "residual_scale", 1);
  g_autofree double *attn_norm = layer_values (f, l, "attn_norm.weight");
  g_autofree double *ffn_norm = layer_values (f, l, "ffn_norm.weight");
  g_autofree double *q_norm = layer_values (f, l, "attn_q_norm.weight");
  g_autofree double *k_norm = layer_values (f, l, "attn_k_norm.weight");
  g_autofree double *attn_post = layer_values (f, l, "post_attention_norm.weight");
  g_autofree double *ffn_post = layer_values (f, l, "post_ffw_norm.weight");
  g_autofree double *a = rms_norm (x, attn_norm, f->n, f->n_embd, f->eps);
  g_autofree double *q0 = project (f, l, "attn_qkv", "attn_q", a, f->n_embd, 0, n_q);
  g_autofree double *k0 = project (f, l, "attn_qkv", "attn_k", a, f->n_embd, n_q, n_kv);
  g_autofree double *v = project (f, l, "attn_qkv", "attn_v", a, f->n_embd, n_q + n_kv, n_kv);
  g_autofree double *q = rms_norm (q0, q_norm, (gsize) f->n * f->n_heads, f->d, f->eps);
  g_autofree double *k = rms_norm (k0, k_norm, (gsize) f->n * f->n_kv, f->d, f->eps);
  g_autofree double *o = NULL, *o1 = NULL, *b = NULL, *gate = NULL, *up = NULL, *down = NULL,
                    *down1 = NULL, *y = NULL;

  rotate (f, q, f->n_heads, is_local);
  rotate (f, k, f->n_kv, is_local);
  for (gsize i = 0; round_kv && i < (gsize) f->n * n_kv; i++) {
    k[i] = as_half (k[i]);
    v[i] = as_half (v[i]);
  }
  y = attend (f, q, k, v, is_local ? window : 0);
  o = project (f, l, NULL, "attn_output", y, n_q, 0, f->n_embd);
  o1 = rms_norm (o, attn_post, f->n, f->n_embd, f->eps);
  add_to (x, o1, (gsize) f->n * f->n_embd, scale);

  b = rms_norm (x, ffn_norm, f->n, f->n_embd, f->eps);
  if (has (f, l, "ffn_gate")) {
    gate = project (f, l, NULL, "ffn_gate", b, f->n_embd, 0, f->n_ff);
    up = project (f, l, NULL, "ffn_up", b, f->n_embd, 0, f->n_ff);
  } else {
    gate = project (f, l, "ffn_up", NULL, b, f->n_embd, 0, f->n_ff);
    up = project (f, l, "ffn_up", NULL, b, f->n_embd, f->n_ff, f->n_ff);
  }
  for (gsize i = 0; i < (gsize) f->n * f->n_ff; i++)
    up[i] *= activate (f, gate[i]);
  down = project (f, l, NULL, "ffn_down", up, f->n_ff, 0, f->n_embd);
  down1 = rms_norm (down, ffn_post, f->n, f->n_embd, f->eps);
  add_to (x, down1, (gsize) f->n * f->n_embd, scale);
}

static void
open_file (File *f, const char *path)
{
  struct gguf_init_params params = { .no_alloc = false, .ctx = &f->tensors };
  const char *name;

  f->gguf = gguf_init_from_file (path, params);
  g_assert_nonnull (f->gguf);
  name = gguf_get_val_str (f->gguf, gguf_find_key (f->gguf, "general.architecture"));
  for (guint i = 0; i < G_N_ELEMENTS (traits); i++)
    if (g_str_equal (traits[i].name, name))
      f->traits = &traits[i];
  g_assert_nonnull (f->traits);
  f->n_embd = key_uint (f, "embedding_length", 0);
  f->n_heads = key_uint (f, "attention.head_count", 0);
  f->n_kv = key_uint (f, "attention.head_count_kv", 0);
  f->d = key_uint (f, "attention.key_length", 0);
  f->n_ff = key_uint (f, "feed_forward_length", 0);
  f->n_layers = key_uint (f, "block_count", 0);
  f->n_rot = key_uint (f, "rope.dimension_count", 0);
  f->eps = key_float (f, "attention.layer_norm_rms_epsilon", 0);
}

double *
reference_forward (const char *path, const gint32 *ids, guint n, gboolean round_kv, guint n_context,
    guint *n_vocab)
{
  File f = { .n = n, .n_context = n_context };
  g_autofree double *embedding = NULL, *norm = NULL, *output = NULL, *x = NULL, *normed = NULL;
  double *logits, scale, cap;

  open_file (&f, path);
  embedding = values (&f, "token_embd.weight");
  norm = values (&f, "output_norm.weight");
  output = values (&f, "output.weight");
  *n_vocab = ggml_get_tensor (f.tensors, "token_embd.weight")->ne[1];

  scale = f.traits->sqrt_embd ? sqrt (f.n_embd) : key_float (&f, "embedding_scale", 1);
  x = g_new0 (double, (gsize) n *f.n_embd);
  for (guint t = 0; t < n; t++)
    add_to (x + (gsize) t * f.n_embd, embedding + (gsize) ids[t] * f.n_embd, f.n_embd, scale);
  for (guint l = 0; l < f.n_layers; l++)
    run_layer (&f, l, round_kv, x);
  normed = rms_norm (x, norm, n, f.n_embd, f.eps);
  scale = 1 / key_float (&f, "logit_scale", 1);
  cap = key_float (&f, "final_logit_softcapping", f.traits->logit_cap);
  logits = g_new0 (double, (gsize) n **n_vocab);
  for (guint t = 0; t < n; t++)
    for (guint id = 0; id < *n_vocab; id++) {
      double *logit = &logits[(gsize) t * *n_vocab + id];

      for (guint i = 0; i < f.n_embd; i++)
        *logit += (output ? output : embedding)[(gsize) id * f.n_embd + i] *
                  normed[t * f.n_embd + i] * scale;
      if (cap > 0)
        *logit = cap * tanh (*logit / cap);
    }
  gguf_free (f.gguf);
  ggml_free (f.tensors);
  return logits;
}
