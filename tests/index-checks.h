/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* An index with granularity token taken apart, and what has to hold of it: each row in exactly one
 * leaf, and all counts, means, spreads and bytes what they should be. */

#include "index-store.h"

static inline LycheeIndex *
index_new (guint dim, guint leaf, guint coarse)
{
  LycheeIndexParams params = {
    .head_dim = dim,
    .scale = 1 / sqrtf (dim),
    .leaf_capacity = leaf,
    .coarse_capacity = coarse,
  };

  return lychee_index_new (&params);
}

static inline void
append (LycheeIndex *index, Store *store, guint first, guint n)
{
  GError *error = NULL;

  g_assert_true (lychee_index_append (index, &store->rows, first, n, &error));
  g_assert_no_error (error);
}

/* The twin: what the index holds, taken apart, each mean with what it should be. */
typedef struct {
  guint n, n_rows, unread;
  float *mean;  /* decoded */
  float *value; /* decoded, coarse only */
} Group;

typedef struct {
  LycheeIndex *index;
  Store *store;
  guint8 *seen;
  gboolean fresh; /* all coarse means have to be up to date */
  guint n_nodes, n_leaves, n_seen;
} Walk;

static inline void
true_mean (Store *store, const guint32 *row, guint n, gboolean value, double *mean, double *most)
{
  g_autofree float *x = g_new (float, store->dim);

  memset (mean, 0, store->dim * sizeof *mean);
  *most = 0;
  for (guint i = 0; i < n; i++) {
    store_read (store, row[i], value, x);
    for (guint d = 0; d < store->dim; d++) {
      mean[d] += (double) x[d] / n;
      *most = MAX (*most, fabs (x[d]));
    }
  }
}

/* The leaf's spread is within a step of the true one, but for the rounding of large keys. */
static inline void
check_spread (
    Store *store, const guint32 *row, guint n, const double *mean, double most, guint8 spread)
{
  g_autofree float *x = g_new (float, store->dim);
  double squares = 0, got = lychee_spreads[spread], rounding = most * 2e-3 + 2e-5;

  for (guint i = 0; i < n; i++) {
    store_read (store, row[i], FALSE, x);
    for (guint d = 0; d < store->dim; d++)
      squares += (x[d] - mean[d]) * (x[d] - mean[d]);
  }
  squares = sqrt (squares / n / store->dim);
  g_assert_cmpfloat (got, >=, squares * 0.95 - rounding);
  g_assert_cmpfloat (got, <=, squares * 1.05 + rounding);
}

/* The decoded mean is within half a step of the true one, but for float's own rounding. */
static inline void
check_mean (const double *mean, const float *decoded, guint dim, double step, double most)
{
  for (guint d = 0; d < dim; d++)
    g_assert_cmpfloat (fabs (mean[d] - decoded[d]), <=, step * 0.505 + most * 2e-5 + 5e-7);
}

static inline void
walk_node (Walk *walk, const LycheeBranch *branch, guint i)
{
  const LycheeNode *node = branch->child[i];
  guint dim = walk->store->dim, at = 0;
  const guint8 *ids = lychee_node_get_ids (node, dim), *count = lychee_node_get_counts (node);
  const guint8 *spread = lychee_node_get_spreads (node);
  g_autofree guint32 *row = g_new (guint32, node->n_rows);
  g_autofree double *mean = g_new (double, dim);
  g_autofree float *base = g_new (float, dim), *decoded = g_new (float, dim);
  g_autofree gint8 *code = g_new (gint8, (gsize) node->n_leaves * dim);
  g_autofree float *scale = g_new (float, node->n_leaves);
  double most;

  walk->n_nodes++;
  walk->n_leaves += node->n_leaves;
  g_assert_cmpuint (node->n_rows, >, 0);
  g_assert_cmpuint (node->n_rows, <=, node->limit);
  g_assert_cmpuint (node->limit, <=, walk->index->params.coarse_capacity);
  g_assert_cmpuint (node->n_rows, ==, (guint) branch->count[i]);
  g_assert_cmpfloat (fabsf (branch->log_count[i] - logf (node->n_rows)), <, 1e-6f);
  for (guint j = 0; j < node->n_rows; j++) {
    row[j] = lychee_node_id (ids, node->id_bytes, j);
    g_assert_cmpuint (row[j], >=, walk->index->begin);
    g_assert_cmpuint (row[j], <, walk->index->end);
    g_assert_false (walk->seen[row[j]]);
    walk->seen[row[j]] = 1;
    walk->n_seen++;
  }

  lychee_code_decode (branch->code + (gsize) i * dim, branch->scale[i], dim, base);
  lychee_code_unpack (lychee_node_get_codes (node), node->n_leaves, dim, code);
  walk->index->kernels->f16_to_f32 (lychee_node_get_scales (node), scale, node->n_leaves);
  for (guint leaf = 0; leaf < node->n_leaves; leaf++) {
    g_assert_cmpuint (count[leaf], >, 0);
    g_assert_cmpuint (count[leaf], <=, walk->index->params.leaf_capacity);
    true_mean (walk->store, row + at, count[leaf], FALSE, mean, &most);
    for (guint d = 0; d < dim; d++)
      decoded[d] = base[d] + scale[leaf] * code[leaf * dim + d];
    check_mean (mean, decoded, dim, scale[leaf], most);
    check_spread (walk->store, row + at, count[leaf], mean, most, spread[leaf]);
    at += count[leaf];
  }
  g_assert_cmpuint (at, ==, node->n_rows);

  /* The coarse means may lag, by less than an eighth of the rows. */
  g_assert_cmpuint (node->fresh, <=, node->n_rows);
  g_assert_cmpuint (node->n_rows * 8, <, node->fresh * 9 + 1);
  if (walk->fresh)
    g_assert_cmpuint (node->fresh, ==, node->n_rows);
  if (node->fresh == node->n_rows) {
    true_mean (walk->store, row, node->n_rows, FALSE, mean, &most);
    check_mean (mean, base, dim, branch->scale[i], most);
    true_mean (walk->store, row, node->n_rows, TRUE, mean, &most);
    lychee_code_decode (branch->value_code + (gsize) i * dim, branch->value_scale[i], dim, decoded);
    /* Three times at most its sum went on from what was kept of it, since the node was built; fewer
     * rows have larger means, and so larger steps. */
    check_mean (mean, decoded, dim, 8 * branch->value_scale[i], most);
  }
}

static inline guint
walk_branch (Walk *walk, const LycheeBranch *branch)
{
  guint n_rows = 0, dim = walk->store->dim;

  g_assert_cmpuint (branch->n, >, 0);
  g_assert_cmpuint (branch->n, <=, LYCHEE_BRANCH_MAX);
  for (guint i = 0; i < branch->n; i++) {
    double squares = 0;

    for (guint d = 0; d < dim; d++)
      squares += pow ((double) branch->scale[i] * branch->code[(gsize) i * dim + d], 2);
    g_assert_cmpfloat (fabs (branch->minus_half[i] + squares / 2), <=, 1e-5 * squares + 1e-12);
    if (branch->level == 1) {
      walk_node (walk, branch, i);
      n_rows += (guint) branch->count[i];
    } else {
      const LycheeBranch *child = branch->child[i];

      g_assert_cmpuint (child->level, ==, branch->level - 1);
      g_assert_cmpuint (walk_branch (walk, child), ==, (guint) branch->count[i]);
      n_rows += (guint) branch->count[i];
    }
  }
  g_assert_cmpuint (branch->n_rows, ==, n_rows);
  return n_rows;
}

static inline void
check_index (LycheeIndex *index, Store *store, gboolean fresh)
{
  g_autofree guint8 *seen = g_new0 (guint8, index->end + 1);
  Walk walk = { index, store, seen, fresh };
  LycheeIndexStats stats;

  g_assert_cmpuint (lychee_index_get_bytes (index), ==,
      sizeof *index + lychee_branch_get_bytes (index, index->root) +
          (index->seen ? lychee_queries_seen_size (index->params.head_dim) : 0));
  if (!index->root) {
    g_assert_cmpuint (index->begin, ==, 0);
    g_assert_cmpuint (index->end, ==, 0);
    return;
  }
  g_assert_cmpuint (walk_branch (&walk, index->root), ==, index->end - index->begin);
  g_assert_cmpuint (walk.n_seen, ==, index->end - index->begin);
  lychee_index_get_stats (index, &stats);
  g_assert_cmpuint (stats.n_coarse, ==, walk.n_nodes);
  g_assert_cmpuint (stats.n_leaves, ==, walk.n_leaves);
  /* A branch that splits leaves a quarter of 64 children on each side: 16 at least. */
  g_assert_cmpuint (stats.depth, <=, 3 + (guint) (log (MAX (stats.n_coarse, 1)) / log (16)));
}
