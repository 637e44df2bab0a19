/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Coarse nodes: packed in one block to be searched and shared, open to be changed; and the codes
 * that mean keys and values are kept in. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-private.h"

#include <math.h>
#include <string.h>

void
lychee_code_encode (const float *x, guint n, gint8 *code, float *scale)
{
  float factor;

  *scale = lychee_largest (x, n) / 127;
  factor = *scale > 0 ? 1 / *scale : 0;
  if (!isfinite (factor)) { /* less than a normal float can hold: as good as nothing */
    factor = 0;
    *scale = 0;
  }
  for (guint i = 0; i < n; i++)
    code[i] = (gint8) lychee_round (x[i] * factor);
}

guint8
lychee_spread_encode (float spread)
{
  return spread <= lychee_spreads[1] ? spread > 0 && spread > lychee_spreads[1] / 2
                                     : (guint8) MIN (lychee_round (120 + 8 * log2f (spread)), 255);
}

void
lychee_code_decode (const gint8 *code, float scale, guint n, float *x)
{
  for (guint i = 0; i < n; i++)
    x[i] = scale * code[i];
}

void
lychee_code_unpack (const guint8 *code, guint n, guint head_dim, gint8 *to)
{
  guint half = head_dim / 2;

  for (guint i = 0; i < n; i++, code += half, to += head_dim) {
    for (guint d = 0; d < half; d++)
      to[d] = (gint8) ((code[d] & 15) - 8);
    for (guint d = 0; d < half; d++)
      to[half + d] = (gint8) ((code[d] >> 4) - 8);
  }
}

gsize
lychee_node_get_size (guint head_dim, guint n_rows, guint n_leaves, guint id_bytes)
{
  gsize size = n_leaves * (4 + head_dim / 2) + (gsize) n_rows * id_bytes;

  return sizeof (LycheeNode) + MAX (size, LYCHEE_NODE_LEAST);
}

LycheeNode *
lychee_node_ref (LycheeNode *node)
{
  g_atomic_int_inc (&node->refs);
  return node;
}

void
lychee_node_unref (LycheeNode *node)
{
  if (g_atomic_int_dec_and_test (&node->refs))
    g_free (node);
}

const guint16 *
lychee_node_get_scales (const LycheeNode *node)
{
  return (const guint16 *) (gconstpointer) node->data;
}

const guint8 *
lychee_node_get_counts (const LycheeNode *node)
{
  return node->data + 2 * node->n_leaves;
}

const guint8 *
lychee_node_get_spreads (const LycheeNode *node)
{
  return node->data + 3 * node->n_leaves;
}

const guint8 *
lychee_node_get_codes (const LycheeNode *node)
{
  return node->data + 4 * node->n_leaves;
}

const guint8 *
lychee_node_get_ids (const LycheeNode *node, guint head_dim)
{
  return node->data + node->n_leaves * (4 + head_dim / 2);
}

LycheeOpenNode *
lychee_open_node_new (guint head_dim, guint leaf_capacity, guint max_rows)
{
  LycheeOpenNode *open = g_new0 (LycheeOpenNode, 1);

  open->head_dim = head_dim;
  open->stride = leaf_capacity + LYCHEE_APPEND_BATCH;
  open->max_leaves = max_rows;
  open->id = g_new (guint32, (gsize) max_rows * open->stride);
  open->count = g_new (guint, max_rows);
  open->touched = g_new (guint8, max_rows);
  open->sum = g_new0 (const float *, max_rows);
  open->spread = g_new (guint8, max_rows);
  open->mean = g_new (float, (gsize) max_rows *head_dim);
  open->code = g_new (guint8, (gsize) max_rows * head_dim / 2);
  open->scale = g_new (guint16, max_rows);
  return open;
}

void
lychee_open_node_free (LycheeOpenNode *open)
{
  g_free (open->id);
  g_free (open->count);
  g_free (open->touched);
  g_free (open->sum);
  g_free (open->spread);
  g_free (open->mean);
  g_free (open->code);
  g_free (open->scale);
  g_free (open);
}

void
lychee_open_node_read (LycheeOpenNode *open, const LycheeIndex *index, const LycheeNode *node,
    const gint8 *code, float scale)
{
  guint dim = open->head_dim, half = dim / 2, stride = open->stride, n = node->n_leaves;
  const guint8 *count = lychee_node_get_counts (node), *ids = lychee_node_get_ids (node, dim);

  open->n_leaves = n;
  open->n_rows = node->n_rows;
  open->fresh = node->fresh;
  open->built = node->built;
  open->limit = node->limit;
  memcpy (open->scale, lychee_node_get_scales (node), n * sizeof *open->scale);
  memcpy (open->spread, lychee_node_get_spreads (node), n);
  memcpy (open->code, lychee_node_get_codes (node), (gsize) n * half);
  memset (open->touched, 0, n);
  memset (open->sum, 0, n * sizeof *open->sum);
  for (guint leaf = 0, row = 0; leaf < n; leaf++) {
    const guint8 *residual = open->code + (gsize) leaf * half;
    float *mean = open->mean + (gsize) leaf * dim, step;

    index->kernels->f16_to_f32 (open->scale + leaf, &step, 1);
    for (guint d = 0; d < half; d++) {
      mean[d] = scale * code[d] + step * ((residual[d] & 15) - 8);
      mean[half + d] = scale * code[half + d] + step * ((residual[d] >> 4) - 8);
    }
    open->count[leaf] = count[leaf];
    for (guint i = 0; i < count[leaf]; i++, row++)
      open->id[(gsize) leaf * stride + i] = lychee_node_id (ids, node->id_bytes, row);
  }
}

void
lychee_open_node_encode (
    LycheeOpenNode *open, const LycheeIndex *index, guint leaf, const gint8 *code, float scale)
{
  guint dim = open->head_dim, half = dim / 2;
  const float *mean = open->mean + (gsize) leaf * dim;
  guint8 *residual = open->code + (gsize) leaf * half;
  float difference[256], step, factor;

  for (guint d = 0; d < dim; d++)
    difference[d] = mean[d] - scale * code[d];
  step = MIN (lychee_largest (difference, dim) / 7, 65504.f);
  index->kernels->f32_to_f16 (&step, open->scale + leaf, 1);
  index->kernels->f16_to_f32 (open->scale + leaf, &step, 1);
  factor = step > 0 ? 1 / step : 0;
  for (guint d = 0; d < dim; d++) /* the scale's own rounding can pass 7 by a little */
    difference[d] = CLAMP (difference[d] * factor, -7.f, 7.f);
  for (guint d = 0; d < half; d++)
    residual[d] = (guint8) ((lychee_round (difference[d]) + 8) |
                            (lychee_round (difference[half + d]) + 8) << 4);
}

LycheeNode *
lychee_open_node_pack (const LycheeOpenNode *open, const LycheeIndex *index)
{
  guint stride = open->stride, n = open->n_leaves, id_bytes;
  guint32 largest = 0;
  LycheeNode *node;
  guint8 *p;

  for (guint leaf = 0; leaf < n; leaf++)
    for (guint i = 0; i < open->count[leaf]; i++)
      largest = MAX (largest, open->id[(gsize) leaf * stride + i]);
  id_bytes = largest < 1u << 16 ? 2 : largest < 1u << 24 ? 3 : 4;
  node = g_malloc (lychee_node_get_size (open->head_dim, open->n_rows, n, id_bytes));
  *node = (LycheeNode){ .refs = 1,
    .n_rows = (guint16) open->n_rows,
    .n_leaves = (guint16) n,
    .fresh = (guint16) open->fresh,
    .built = (guint16) open->built,
    .limit = (guint16) open->limit,
    .id_bytes = (guint8) id_bytes };
  p = node->data;
  memcpy (p, open->scale, n * sizeof *open->scale);
  p += n * sizeof *open->scale;
  for (guint leaf = 0; leaf < n; leaf++)
    *p++ = (guint8) open->count[leaf];
  memcpy (p, open->spread, n);
  p += n;
  memcpy (p, open->code, (gsize) n * open->head_dim / 2);
  p += (gsize) n * open->head_dim / 2;
  for (guint leaf = 0; leaf < n; leaf++)
    for (guint i = 0; i < open->count[leaf]; i++) {
      guint32 id = open->id[(gsize) leaf * stride + i];

      for (guint b = 0; b < id_bytes; b++)
        *p++ = (guint8) (id >> 8 * b);
    }
  return node;
}
