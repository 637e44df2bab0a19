/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Search of an index with granularity token. */
#pragma GCC optimize("O3")
#include "lychee-index-private.h"

#include <math.h>
#include <string.h>

#define DEFAULT_BEAM 4

/* Memory that grows to what searches need and is used again. */
typedef struct {
  gpointer data;
  gsize size;
} Buffer;

typedef struct {
  Buffer z;         /* float [n_queries][nodes] */
  Buffer leaf_z;    /* float [n_queries][leaves] */
  Buffer exps;      /* float [nodes or leaves] */
  Buffer density;   /* float */
  Buffer weight;    /* float, rows of a node or leaf */
  Buffer order;     /* guint32 */
  Buffer places;    /* NodePlace [nodes] */
  Buffer leaves;    /* LeafPlace [leaves] */
  Buffer code;      /* gint8 [leaves][head_dim] */
  Buffer scale;     /* float [leaves] */
  Buffer log_count; /* float [leaves] */
  Buffer unread;    /* float [leaves] */
  Buffer rows, rest_k, rest_v, rest_log_n;
} Scratch;

static gpointer
need (Buffer *buffer, gsize n, gsize size)
{
  if (n * size > buffer->size) {
    buffer->size = MAX (n * size, buffer->size + buffer->size / 2);
    g_free (buffer->data);
    buffer->data = g_malloc (buffer->size);
  }
  return buffer->data;
}

LycheeSelection *
lychee_selection_new (void)
{
  LycheeSelection *selection = g_new0 (LycheeSelection, 1);

  selection->scratch = g_new0 (Scratch, 1);
  return selection;
}

void
lychee_selection_free (LycheeSelection *selection)
{
  Scratch *scratch;

  if (!selection)
    return;
  scratch = selection->scratch;
  for (Buffer *buffer = (Buffer *) scratch; buffer < (Buffer *) (scratch + 1); buffer++)
    g_free (buffer->data);
  g_free (scratch);
  g_free (selection);
}

/* e^x for x <= 0, 2e-7 relative; 0 below -87. Vectorises. */
static inline float
exp_negative (float x)
{
  float t, f, p;
  union {
    float f;
    guint32 i;
  } power;

  x = x > -87.f ? x : -87.f;
  t = x * 1.44269504f + 12582912.f; /* round to the nearest whole power of 2 */
  power.f = t;
  t -= 12582912.f;
  f = (x - t * 0.693145752f) - t * 1.42860677e-6f;
  p = 1.f + f * (1.f + f * (0.5f + f * (0.16666667f + f * (0.041665795f + f * 0.00833f))));
  power.i = (power.i << 23) + 0x3f800000;
  return p * power.f;
}

/* density[j] = sum over queries of softmax_j (z), by row: the score of DESIGN section 4 without its
 * monotonous logarithm; @n_per is what it is divided by. */
static void
densities (const float *z, gsize stride, guint n_queries, guint n, const float *rows, float *exps,
    float *density)
{
  memset (density, 0, n * sizeof *density);
  for (guint h = 0; h < n_queries; h++) {
    const float *row = z + h * stride;
    float most = -G_MAXFLOAT, sums[16] = { 0 }, sum = 0;
    guint j;

    for (j = 0; j < n; j++)
      most = row[j] > most ? row[j] : most;
    for (j = 0; j < n; j++)
      exps[j] = exp_negative (row[j] - most);
    for (j = 0; j + 16 <= n; j += 16)
      for (guint k = 0; k < 16; k++)
        sums[k] += exps[j + k];
    for (; j < n; j++)
      sum += exps[j];
    for (guint k = 0; k < 16; k++)
      sum += sums[k];
    sum = 1 / sum;
    for (j = 0; j < n; j++)
      density[j] += exps[j] * sum;
  }
  for (guint j = 0; j < n; j++) {
    float d = density[j] / rows[j];

    density[j] = d >= 0 ? d : 0; /* not a number: a broken query */
  }
}

static inline gboolean
before (const float *density, guint32 a, guint32 b)
{
  return density[a] > density[b] || (density[a] == density[b] && a < b);
}

/* Orders @order so that its first k are the densest and hold, together, @target rows or more, with
 * the k-th the least dense of them; returns the smallest such k. Linear on average: a quickselect
 * by weight. */
static guint
select_densest (guint32 *order, guint n, const float *density, const float *weight, float target)
{
  guint low = 0, high = n;
  float held = 0; /* rows in order[0 .. low) */

  for (guint i = 0; i < n; i++)
    order[i] = i;
  while (high - low > 1) {
    guint32 a = order[low], b = order[(low + high) / 2], c = order[high - 1], pivot, swap;
    guint middle = low, end = high - 1;
    float sum = 0;

    /* the median of three, put last */
    pivot = before (density, a, b) ? (before (density, b, c)      ? b
                                         : before (density, a, c) ? c
                                                                  : a)
                                   : (before (density, a, c)      ? a
                                         : before (density, b, c) ? c
                                                                  : b);
    if (pivot == a)
      order[low] = c;
    else if (pivot == b)
      order[(low + high) / 2] = c;
    order[end] = pivot;
    for (guint i = low; i < end; i++)
      if (before (density, order[i], pivot)) {
        swap = order[i];
        order[i] = order[middle];
        order[middle++] = swap;
        sum += weight[swap];
      }
    order[end] = order[middle];
    order[middle] = pivot;
    if (held + sum >= target) {
      high = middle;
    } else if (held + sum + weight[pivot] >= target) {
      return middle + 1;
    } else {
      held += sum + weight[pivot];
      low = middle + 1;
    }
  }
  if (low < high)
    held += weight[order[low++]];
  return low;
}

typedef struct {
  const LycheeBranch *branch;
  guint child;
} NodePlace;

typedef struct {
  guint node;  /* in places */
  guint leaf;  /* in the node */
  guint first; /* row in the node */
  guint n, read;
} LeafPlace;

/* All coarse nodes, their logits and their places. */
static guint
score_coarse (const LycheeIndex *index, const LycheeBranch *branch, const LycheeQueries *queries,
    guint at, float *z, gsize stride, float *weight, NodePlace *places)
{
  if (branch->level > 1) {
    for (guint i = 0; i < branch->n; i++)
      at = score_coarse (index, branch->child[i], queries, at, z, stride, weight, places);
    return at;
  }
  index->kernels->score_leaves (
      queries, branch->code, branch->scale, branch->log_count, branch->n, z + at, stride);
  memcpy (weight + at, branch->count, branch->n * sizeof *weight);
  for (guint i = 0; i < branch->n; i++)
    places[at + i] = (NodePlace){ branch, i };
  return at + branch->n;
}

static guint
count_coarse (const LycheeBranch *branch)
{
  guint n = 0;

  if (branch->level == 1)
    return branch->n;
  for (guint i = 0; i < branch->n; i++)
    n += count_coarse (branch->child[i]);
  return n;
}

void
lychee_tree_search (
    const LycheeIndex *index, const LycheeIndexQuery *query, LycheeSelection *selection)
{
  Scratch *scratch = selection->scratch;
  guint dim = index->params.head_dim, n_queries = query->n_queries, total, n_coarse, n_opened;
  guint n_leaves = 0, n_chosen, at = 0, n_read = 0, n_rest = 0, budget = query->budget;
  LycheeQueries queries = { n_queries, dim, index->params.scale, query->q };
  float *z, *weight, *density, *exps, *leaf_z, *unread, *scale, *log_count;
  float beam = query->beam > 0 ? query->beam : DEFAULT_BEAM;
  NodePlace *places;
  LeafPlace *leaves;
  guint32 *order, *rows;
  gint8 *code;
  gsize stride;

  selection->n_rows = selection->n_rest = 0;
  selection->nodes_scored = selection->rows_estimated = 0;
  if (!index->root)
    return;
  total = index->end - index->begin;
  rows = selection->rows = need (&scratch->rows, MIN (budget, total), sizeof *rows);
  if (total <= budget) {
    for (guint i = 0; i < total; i++)
      rows[i] = index->begin + i;
    selection->n_rows = total;
    return;
  }

  n_coarse = count_coarse (index->root);
  stride = n_coarse;
  z = need (&scratch->z, n_queries * stride, sizeof *z);
  weight = need (&scratch->weight, n_coarse, sizeof *weight);
  places = need (&scratch->places, n_coarse, sizeof *places);
  exps = need (&scratch->exps, n_coarse, sizeof *exps);
  density = need (&scratch->density, n_coarse, sizeof *density);
  order = need (&scratch->order, n_coarse, sizeof *order);
  score_coarse (index, index->root, &queries, 0, z, stride, weight, places);
  densities (z, stride, n_queries, n_coarse, weight, exps, density);
  n_opened = budget > 0 ? select_densest (order, n_coarse, density, weight, beam * budget) : 0;
  selection->nodes_scored = n_coarse;

  /* The leaves of the opened nodes. */
  for (guint i = 0; i < n_opened; i++) {
    const NodePlace *place = &places[order[i]];

    n_leaves += ((const LycheeNode *) place->branch->child[place->child])->n_leaves;
  }
  leaves = need (&scratch->leaves, n_leaves, sizeof *leaves);
  code = need (&scratch->code, (gsize) n_leaves * dim, sizeof *code);
  scale = need (&scratch->scale, n_leaves, sizeof *scale);
  log_count = need (&scratch->log_count, n_leaves, sizeof *log_count);
  unread = need (&scratch->unread, n_leaves + n_coarse, sizeof *unread);
  leaf_z = need (&scratch->leaf_z, (gsize) n_queries * n_leaves, sizeof *leaf_z);
  for (guint i = 0; i < n_opened; i++) {
    const NodePlace *place = &places[order[i]];
    const LycheeNode *node = place->branch->child[place->child];
    const guint8 *count = lychee_node_get_counts (node);
    guint row = 0;

    lychee_code_unpack (lychee_node_get_codes (node), node->n_leaves, dim, code + (gsize) at * dim);
    index->kernels->f16_to_f32 (lychee_node_get_scales (node), scale + at, node->n_leaves);
    for (guint leaf = 0; leaf < node->n_leaves; leaf++, at++) {
      leaves[at] = (LeafPlace){ order[i], leaf, row, count[leaf], 0 };
      log_count[at] = logf (count[leaf]);
      unread[at] = count[leaf];
      row += count[leaf];
    }
  }
  index->kernels->score_leaves (&queries, code, scale, log_count, n_leaves, leaf_z, n_leaves);
  selection->nodes_scored += n_leaves;
  for (guint h = 0; h < n_queries; h++)
    for (guint i = 0; i < n_leaves; i++) {
      const NodePlace *place = &places[leaves[i].node];

      leaf_z[(gsize) h * n_leaves + i] +=
          z[h * stride + leaves[i].node] - place->branch->log_count[place->child];
    }

  /* Read the densest until the budget is full, the last one in part. */
  exps = need (&scratch->exps, n_leaves, sizeof *exps);
  density = need (&scratch->density, n_leaves, sizeof *density);
  order = need (&scratch->order, n_leaves, sizeof *order);
  densities (leaf_z, n_leaves, n_queries, n_leaves, unread, exps, density);
  n_chosen = n_leaves > 0 ? select_densest (order, n_leaves, density, unread, budget) : 0;
  for (guint i = 0; i < n_chosen && n_read < budget; i++) {
    LeafPlace *place = &leaves[order[i]];
    const NodePlace *where = &places[place->node];
    const LycheeNode *node = where->branch->child[where->child];
    const guint8 *ids = lychee_node_get_ids (node, dim);

    place->read = MIN (place->n, budget - n_read);
    for (guint row = 0; row < place->read; row++)
      rows[n_read++] = lychee_node_id (ids, node->id_bytes, place->first + row);
  }
  selection->n_rows = n_read;
  if (!query->rest)
    return;
  selection->rows_estimated = total - n_read;

  /* The rest: a coarse node's unread rows at the mean key of its leaves that were not read, with
   * the whole node's mean value. Nothing is read for it, and nothing subtracted. */
  {
    float *rest_k = need (&scratch->rest_k, (gsize) n_coarse * dim, sizeof *rest_k);
    float *rest_v = need (&scratch->rest_v, (gsize) n_coarse * dim, sizeof *rest_v);
    float *rest_log_n = need (&scratch->rest_log_n, n_coarse, sizeof *rest_log_n);
    guint leaf = 0;
    guint8 *opened = need (&scratch->exps, n_coarse, sizeof *opened);

    memset (opened, 0, n_coarse);
    for (guint i = 0; i < n_leaves; i++)
      opened[leaves[i].node] = 1;
    while (leaf < n_leaves) {
      const NodePlace *place = &places[leaves[leaf].node];
      guint node = leaves[leaf].node, i = place->child, n = 0;
      float *k = rest_k + (gsize) n_rest * dim;

      memset (k, 0, dim * sizeof *k);
      for (; leaf < n_leaves && leaves[leaf].node == node; leaf++) {
        guint left = leaves[leaf].n - leaves[leaf].read;
        float factor = left * scale[leaf];

        if (left == 0)
          continue;
        n += left;
        for (guint d = 0; d < dim; d++)
          k[d] += factor * code[(gsize) leaf * dim + d];
      }
      if (n == 0)
        continue;
      for (guint d = 0; d < dim; d++)
        k[d] = k[d] / n + place->branch->scale[i] * place->branch->code[(gsize) i * dim + d];
      lychee_code_decode (place->branch->value_code + (gsize) i * dim,
          place->branch->value_scale[i], dim, rest_v + (gsize) n_rest * dim);
      rest_log_n[n_rest++] = logf ((float) n);
    }
    for (guint j = 0; j < n_coarse; j++) {
      const LycheeBranch *branch = places[j].branch;
      guint i = places[j].child;

      if (opened[j])
        continue;
      lychee_code_decode (
          branch->code + (gsize) i * dim, branch->scale[i], dim, rest_k + (gsize) n_rest * dim);
      lychee_code_decode (branch->value_code + (gsize) i * dim, branch->value_scale[i], dim,
          rest_v + (gsize) n_rest * dim);
      rest_log_n[n_rest++] = branch->log_count[i];
    }
    selection->rest_k = rest_k;
    selection->rest_v = rest_v;
    selection->rest_log_n = rest_log_n;
    selection->n_rest = n_rest;
  }
}
