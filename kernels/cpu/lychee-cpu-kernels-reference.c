/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The plain reference: one key, one query at a time, nothing clever. */

#include <math.h>

#include "lychee-cpu-kernels-private.h"
#include "lychee-cpu-turn.h"

static float
element (const guint16 *row, guint d, LycheeRowForm form)
{
  if (form == LYCHEE_ROW_F16)
    return lychee_f16_to_f32_scalar (row[d]);
  row += d / LYCHEE_Q8_VALUES * LYCHEE_Q8_UNITS;
  return lychee_f16_to_f32_scalar (*row) * ((const gint8 *) (row + 1))[d % LYCHEE_Q8_VALUES];
}

static float
dot_row (const float *q, const guint16 *row, guint head_dim, LycheeRowForm form)
{
  float sum = 0;

  for (guint d = 0; d < head_dim; d++)
    sum += q[d] * element (row, d, form);
  return sum;
}

static float
dot_f32 (const float *q, const float *row, guint head_dim)
{
  float sum = 0;

  for (guint d = 0; d < head_dim; d++)
    sum += q[d] * row[d];
  return sum;
}

/* Enters a logit into the running softmax of a query; returns the weight of its value. */
static float
enter_logit (float logit, float *m, float *l, float *o, guint head_dim)
{
  float weight;

  if (logit == -INFINITY)
    return 0;
  if (!(logit <= *m)) { /* larger, or NaN */
    float factor = expf (*m - logit);

    for (guint d = 0; d < head_dim; d++)
      o[d] *= factor;
    *l *= factor;
    *m = logit;
  }
  weight = expf (logit - *m);
  *l += weight;
  return weight;
}

static float
get_logit (const LycheeQueries *queries, float dot)
{
  float logit = queries->scale * dot;

  return queries->cap > 0 ? lychee_cap_logit (logit, queries->cap) : logit;
}

static void
attend_row (const LycheeQueries *queries, guint i, const guint16 *k, const guint16 *v,
    LycheeRowForm form, LycheeSoftmax *softmax)
{
  guint head_dim = queries->head_dim;
  float *o = softmax->o + (gsize) i * head_dim;
  float logit = get_logit (queries, dot_row (queries->q + (gsize) i * head_dim, k, head_dim, form));
  float weight = enter_logit (logit, softmax->m + i, softmax->l + i, o, head_dim);

  for (guint d = 0; d < head_dim; d++)
    o[d] += weight * element (v, d, form);
}

static void
attend_rows (const LycheeQueries *queries, const guint16 *k, const guint16 *v, guint n_keys,
    const guint32 *visible, LycheeRowForm form, LycheeSoftmax *softmax)
{
  for (guint i = 0; i < queries->n_queries; i++) {
    guint n = visible ? MIN (visible[i], n_keys) : n_keys;

    for (guint t = 0; t < n; t++) {
      gsize at = (gsize) t * lychee_row_size (form, queries->head_dim);

      attend_row (queries, i, k + at, v + at, form, softmax);
    }
  }
}

static void
gather_rows (const LycheeQueries *queries, const guint16 *const *rows, gsize value_offset,
    guint n_keys, LycheeRowForm form, LycheeSoftmax *softmax)
{
  for (guint i = 0; i < queries->n_queries; i++)
    for (guint t = 0; t < n_keys; t++)
      attend_row (queries, i, rows[t], rows[t] + value_offset, form, softmax);
}

static void
attend_groups (const LycheeQueries *queries, const float *k, const float *v, const float *log_n,
    guint n, LycheeSoftmax *softmax)
{
  guint head_dim = queries->head_dim;

  for (guint i = 0; i < queries->n_queries; i++) {
    const float *q = queries->q + (gsize) i * head_dim;
    float *o = softmax->o + (gsize) i * head_dim;

    for (guint t = 0; t < n; t++) {
      gsize at = (gsize) t * head_dim;
      float logit = get_logit (queries, dot_f32 (q, k + at, head_dim)) + log_n[t];
      float weight = enter_logit (logit, softmax->m + i, softmax->l + i, o, head_dim);

      for (guint d = 0; d < head_dim; d++)
        o[d] += weight * v[at + d];
    }
  }
}

static void
add_values (guint n_queries, guint head_dim, const float *weight, gsize stride, const float *factor,
    const gint8 *value, const float *value_scale, guint n, float *o)
{
  for (guint i = 0; i < n_queries; i++)
    for (guint t = 0; t < n; t++) {
      float x = factor[i] * weight[i * stride + t] * value_scale[t];

      for (guint d = 0; d < head_dim; d++)
        o[(gsize) i * head_dim + d] += x * value[(gsize) t * head_dim + d];
    }
}

static void
weigh_nodes (guint n_queries, const float *z, gsize stride, const float *count, guint n,
    float *weight, float *most, float *density)
{
  for (guint t = 0; t < n; t++)
    density[t] = 0;
  for (guint i = 0; i < n_queries; i++, z += stride, weight += stride) {
    float sum = 0;

    most[i] = -INFINITY;
    for (guint t = 0; t < n; t++)
      most[i] = z[t] > most[i] ? z[t] : most[i];
    for (guint t = 0; t < n; t++)
      sum += weight[t] = expf (z[t] - most[i]);
    if (sum > 0 && sum <= n * 1.001f)
      for (guint t = 0; t < n; t++)
        density[t] += weight[t] / sum;
  }
  for (guint t = 0; t < n; t++)
    density[t] /= count[t];
}

static guint
select_nodes (const float *density, const float *count, guint n, guint target, guint32 *chosen)
{
  guint n_chosen = 0;
  double held = 0;

  while (n_chosen < n && held < target) {
    guint last = n_chosen > 0 ? chosen[n_chosen - 1] : n, best = n;

    for (guint t = 0; t < n; t++)
      if (last == n || density[t] < density[last] || (density[t] == density[last] && t > last))
        best = best == n || density[t] > density[best] ? t : best;
    chosen[n_chosen++] = best;
    held += count[best];
  }
  return n_chosen;
}

static void
score_nodes (const LycheeQueries *queries, const float *centroid, const float *variance,
    const float *log_n, guint n, float *z, gsize z_stride)
{
  guint head_dim = queries->head_dim;

  for (guint i = 0; i < queries->n_queries; i++) {
    const float *q = queries->q + (gsize) i * head_dim;

    for (guint t = 0; t < n; t++) {
      gsize at = (gsize) t * head_dim;
      float x = queries->scale * dot_f32 (q, centroid + at, head_dim) + log_n[t];

      if (variance) {
        float sum = 0;

        for (guint d = 0; d < head_dim; d++)
          sum += q[d] * q[d] * variance[at + d];
        x += queries->scale * sqrtf (sum < 0 ? 0 : sum);
      }
      z[i * z_stride + t] = x;
    }
  }
}

static void
score_leaves (const LycheeQueries *queries, const gint8 *centroid, const float *centroid_scale,
    const float *log_n, guint n, float *z, gsize z_stride)
{
  guint head_dim = queries->head_dim;

  for (guint i = 0; i < queries->n_queries; i++) {
    const float *q = queries->q + (gsize) i * head_dim;

    for (guint t = 0; t < n; t++) {
      const gint8 *c = centroid + (gsize) t * head_dim;
      float sum = 0;

      for (guint d = 0; d < head_dim; d++)
        sum += q[d] * c[d];
      z[i * z_stride + t] = queries->scale * centroid_scale[t] * sum + log_n[t];
    }
  }
}

static void
score_packed (const LycheeQueries *queries, const guint8 *const *code, const float *code_scale,
    guint n, float *z, gsize z_stride)
{
  guint head_dim = queries->head_dim, half = head_dim / 2;

  for (guint i = 0; i < queries->n_queries; i++) {
    const float *q = queries->q + (gsize) i * head_dim;

    for (guint t = 0; t < n; t++) {
      float sum = 0;

      for (guint d = 0; d < half; d++)
        sum += q[d] * ((code[t][d] & 15) - 8) + q[half + d] * ((code[t][d] >> 4) - 8);
      z[i * z_stride + t] += queries->scale * code_scale[t] * sum;
    }
  }
}

static void
dot_any (const guint16 *const *rows, guint n_rows, const float *centers, guint n_centers,
    guint head_dim, LycheeRowForm form, float *dots)
{
  for (guint t = 0; t < n_rows; t++)
    for (guint c = 0; c < n_centers; c++)
      dots[(gsize) t * n_centers + c] =
          dot_row (centers + (gsize) c * head_dim, rows[t], head_dim, form);
}

static void
sum_any (const guint16 *const *rows, guint n_rows, guint head_dim, LycheeRowForm form, float *sum,
    float *squares)
{
  if (squares)
    *squares = 0;
  for (guint t = 0; t < n_rows; t++)
    for (guint d = 0; d < head_dim; d++) {
      float x = element (rows[t], d, form);

      sum[d] += x;
      if (squares)
        *squares += x * x;
    }
}

/* What takes rows, once for each form. */
#define DEFINE_FORM(name, form)                                                                    \
  static void attend_##name (const LycheeQueries *queries, const guint16 *k, const guint16 *v,     \
      guint n_keys, const guint32 *visible, LycheeSoftmax *softmax)                                \
  {                                                                                                \
    attend_rows (queries, k, v, n_keys, visible, form, softmax);                                   \
  }                                                                                                \
  static void attend_gather_##name (const LycheeQueries *queries, const guint16 *const *rows,      \
      gsize value_offset, guint n_keys, LycheeSoftmax *softmax)                                    \
  {                                                                                                \
    gather_rows (queries, rows, value_offset, n_keys, form, softmax);                              \
  }                                                                                                \
  static void dot_rows_##name (const guint16 *const *rows, guint n_rows, const float *centers,     \
      guint n_centers, guint head_dim, float *dots)                                                \
  {                                                                                                \
    dot_any (rows, n_rows, centers, n_centers, head_dim, form, dots);                              \
  }                                                                                                \
  static void sum_rows_##name (                                                                    \
      const guint16 *const *rows, guint n_rows, guint head_dim, float *sum, float *squares)        \
  {                                                                                                \
    sum_any (rows, n_rows, head_dim, form, sum, squares);                                          \
  }                                                                                                \
  static void read_row_##name (const guint16 *row, guint head_dim, float *to)                      \
  {                                                                                                \
    for (guint d = 0; d < head_dim; d++)                                                           \
      to[d] = element (row, d, form);                                                              \
  }                                                                                                \
  static void turn_rows_##name (const guint16 *const *rows, guint n_rows, guint head_dim,          \
      guint n_pairs, gboolean halves, const float *const *low, const float *const *high,           \
      guint16 *to)                                                                                 \
  {                                                                                                \
    float x[256];                                                                                  \
                                                                                                   \
    for (guint i = 0; i < n_rows; i++) {                                                           \
      read_row_##name (rows[i], head_dim, x);                                                      \
      turn_floats (x, n_pairs, halves, low[i], high[i]);                                           \
      for (guint d = 0; d < head_dim; d++)                                                         \
        *to++ = lychee_f32_to_f16_scalar (x[d]);                                                   \
    }                                                                                              \
  }

DEFINE_FORM (f16, LYCHEE_ROW_F16)
DEFINE_FORM (q8_0, LYCHEE_ROW_Q8_0)

static void
f32_to_f16 (const float *from, guint16 *to, gsize n)
{
  for (gsize i = 0; i < n; i++)
    to[i] = lychee_f32_to_f16_scalar (from[i]);
}

static void
f16_to_f32 (const guint16 *from, float *to, gsize n)
{
  for (gsize i = 0; i < n; i++)
    to[i] = lychee_f16_to_f32_scalar (from[i]);
}

static void
write_row_f16 (const float *from, guint head_dim, guint16 *row)
{
  f32_to_f16 (from, row, head_dim);
}

static void
turn_keys (float *keys, guint n_keys, guint head_dim, guint n_pairs, gboolean halves,
    const float *const *low, const float *const *high)
{
  for (guint i = 0; i < n_keys; i++)
    turn_floats (keys + (gsize) i * head_dim, n_pairs, halves, low[i], high[i]);
}

#define KERNELS(form)                                                                              \
  .attend = attend_##form, .attend_gather = attend_gather_##form, .attend_groups = attend_groups,  \
  .add_values = add_values, .weigh_nodes = weigh_nodes, .select_nodes = select_nodes,              \
  .score_nodes = score_nodes, .score_leaves = score_leaves, .score_packed = score_packed,          \
  .dot_rows = dot_rows_##form, .sum_rows = sum_rows_##form, .read_row = read_row_##form,           \
  .f32_to_f16 = f32_to_f16, .f16_to_f32 = f16_to_f32, .turn_rows = turn_rows_##form,               \
  .turn_keys = turn_keys

static const LycheeCpuKernels q8_0 = {
  .name = "reference",
  .write_row = lychee_q8_encode,
  KERNELS (q8_0),
};

const LycheeCpuKernels lychee_cpu_kernels_reference = {
  .name = "reference",
  .q8_0 = &q8_0,
  .write_row = write_row_f16,
  KERNELS (f16),
};
