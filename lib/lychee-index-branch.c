/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Branches: what an index's tree keeps of children, in arrays that kernels take whole. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-private.h"

#include <math.h>

#define LEAST_BRANCH 4 /* a branch that splits gives a quarter of its children at least */

static gsize
branch_block_size (guint dim, guint level, guint capacity)
{
  gsize bytes = sizeof (gpointer) + 4 * sizeof (float) + dim;

  if (level == 1)
    bytes += sizeof (float) + sizeof (guint16) + dim;
  return capacity * bytes;
}

/* Gives it memory for @capacity children, rounded up a little: more or less than it has. */
static void
branch_reserve (LycheeIndex *index, LycheeBranch *branch, guint capacity)
{
  guint dim = index->params.head_dim, n = branch->n;
  LycheeBranch old = *branch;
  guint8 *p;

  capacity = (capacity + 3) & ~3u;
  index->bytes += branch_block_size (dim, branch->level, capacity) -
                  branch_block_size (dim, branch->level, branch->capacity);
  branch->capacity = capacity;
  branch->block = p = g_malloc (branch_block_size (dim, branch->level, capacity));
  branch->child = (gpointer) p;
  p += capacity * sizeof (gpointer);
  branch->scale = (gpointer) p;
  branch->count = branch->scale + capacity;
  branch->log_count = branch->count + capacity;
  p = (gpointer) (branch->log_count + capacity);
  if (branch->level == 1) {
    branch->n_leaves = (gpointer) p;
    p += capacity * sizeof *branch->n_leaves;
  }
  /* So far, and the codes, what a search reads: fetched as one. */
  branch->code = (gpointer) p;
  branch->minus_half = (gpointer) (branch->code + (gsize) capacity * dim);
  if (branch->level == 1) {
    branch->value_scale = branch->minus_half + capacity;
    branch->value_code = (gpointer) (branch->value_scale + capacity);
  }
  if (n > 0) {
    memcpy (branch->child, old.child, n * sizeof *old.child);
    memcpy (branch->scale, old.scale, n * sizeof (float));
    memcpy (branch->minus_half, old.minus_half, n * sizeof (float));
    memcpy (branch->count, old.count, n * sizeof (float));
    memcpy (branch->log_count, old.log_count, n * sizeof (float));
    memcpy (branch->code, old.code, (gsize) n * dim);
    if (branch->level == 1) {
      memcpy (branch->value_scale, old.value_scale, n * sizeof (float));
      memcpy (branch->value_code, old.value_code, (gsize) n * dim);
      memcpy (branch->n_leaves, old.n_leaves, n * sizeof *old.n_leaves);
    }
  }
  g_free (old.block);
}

LycheeBranch *
lychee_branch_new (LycheeIndex *index, guint level, guint capacity)
{
  LycheeBranch *branch = g_new0 (LycheeBranch, 1);

  index->bytes += sizeof *branch;
  branch->level = level;
  branch->changed = TRUE;
  branch_reserve (index, branch, capacity);
  return branch;
}

/* Without its children. */
void
lychee_branch_free_shell (LycheeIndex *index, LycheeBranch *branch)
{
  index->bytes -=
      sizeof *branch + branch_block_size (index->params.head_dim, branch->level, branch->capacity);
  g_free (branch->block);
  g_free (branch);
}

LycheeBranch *
lychee_branch_copy (const LycheeIndex *index, const LycheeBranch *branch)
{
  /* Only to let branch_reserve lay it out; bytes are those of the original. */
  LycheeIndex shell = { .params = index->params };
  LycheeBranch *copy = g_new0 (LycheeBranch, 1);

  copy->level = branch->level;
  branch_reserve (&shell, copy, branch->capacity);
  memcpy (copy->block, branch->block,
      branch_block_size (index->params.head_dim, branch->level, branch->capacity));
  copy->n = branch->n;
  copy->n_rows = branch->n_rows;
  copy->fresh = branch->fresh;
  copy->changed = branch->changed;
  for (guint i = 0; i < branch->n; i++)
    if (branch->level == 1)
      lychee_node_ref (branch->child[i]);
    else
      copy->child[i] = lychee_branch_copy (index, branch->child[i]);
  return copy;
}

void
lychee_branch_free (LycheeBranch *branch)
{
  if (!branch)
    return;
  for (guint i = 0; i < branch->n; i++)
    if (branch->level == 1)
      lychee_node_unref (branch->child[i]);
    else
      lychee_branch_free (branch->child[i]);
  g_free (branch->block);
  g_free (branch);
}

gsize
lychee_node_bytes (const LycheeIndex *index, const LycheeNode *node)
{
  return lychee_node_get_size (
      index->params.head_dim, node->n_rows, node->n_leaves, node->id_bytes);
}

gsize
lychee_branch_get_bytes (const LycheeIndex *index, const LycheeBranch *branch)
{
  gsize bytes = 0;

  if (!branch)
    return 0;
  bytes =
      sizeof *branch + branch_block_size (index->params.head_dim, branch->level, branch->capacity);
  for (guint i = 0; i < branch->n; i++)
    bytes += branch->level == 1 ? lychee_node_bytes (index, branch->child[i])
                                : lychee_branch_get_bytes (index, branch->child[i]);
  return bytes;
}

void
lychee_tree_get_stats (const LycheeBranch *branch, LycheeIndexStats *stats)
{
  if (!branch)
    return;
  stats->depth = MAX (stats->depth, branch->level + 2);
  for (guint i = 0; i < branch->n; i++)
    if (branch->level == 1) {
      stats->n_coarse++;
      stats->n_leaves += branch->n_leaves[i];
    } else {
      lychee_tree_get_stats (branch->child[i], stats);
    }
}

void
lychee_branch_set (LycheeIndex *index, LycheeBranch *branch, guint i, const LycheeSummary *summary)
{
  guint dim = index->params.head_dim;
  gint32 squares = 0;

  branch->child[i] = summary->child;
  branch->scale[i] = summary->scale;
  branch->count[i] = summary->n_rows;
  branch->log_count[i] = logf (summary->n_rows);
  memcpy (branch->code + (gsize) i * dim, summary->code, dim);
  for (guint d = 0; d < dim; d++)
    squares += summary->code[d] * summary->code[d];
  branch->minus_half[i] = -0.5f * summary->scale * summary->scale * squares;
  if (branch->level == 1) {
    branch->value_scale[i] = summary->value_scale;
    memcpy (branch->value_code + (gsize) i * dim, summary->value_code, dim);
    branch->n_leaves[i] = ((const LycheeNode *) summary->child)->n_leaves;
  }
}

void
lychee_branch_add (LycheeIndex *index, LycheeBranch *branch, const LycheeSummary *summary)
{
  if (branch->n == branch->capacity)
    branch_reserve (index, branch, branch->n + 1);
  lychee_branch_set (index, branch, branch->n++, summary);
}

/* Copies what @from keeps of its child @j over what @to keeps of its child @i. */
void
lychee_branch_move (
    const LycheeIndex *index, LycheeBranch *to, guint i, const LycheeBranch *from, guint j)
{
  guint dim = index->params.head_dim;

  to->child[i] = from->child[j];
  to->scale[i] = from->scale[j];
  to->minus_half[i] = from->minus_half[j];
  to->count[i] = from->count[j];
  to->log_count[i] = from->log_count[j];
  memmove (to->code + (gsize) i * dim, from->code + (gsize) j * dim, dim);
  if (to->level == 1) {
    to->value_scale[i] = from->value_scale[j];
    memmove (to->value_code + (gsize) i * dim, from->value_code + (gsize) j * dim, dim);
    to->n_leaves[i] = from->n_leaves[j];
  }
}

/* The weighted mean of its children's means, in 8 bits. */
void
lychee_branch_summarise (const LycheeIndex *index, LycheeBranch *branch, LycheeSummary *summary)
{
  guint dim = index->params.head_dim;
  g_autofree float *mean = g_new0 (float, dim);

  for (guint i = 0; i < branch->n; i++) {
    float weight = branch->count[i] / branch->n_rows * branch->scale[i];
    const gint8 *code = branch->code + (gsize) i * dim;

    for (guint d = 0; d < dim; d++)
      mean[d] += weight * code[d];
  }
  summary->child = branch;
  summary->n_rows = branch->n_rows;
  lychee_code_encode (mean, dim, summary->code, &summary->scale);
}

void
lychee_branch_count (LycheeBranch *branch)
{
  guint64 n_rows = 0;

  for (guint i = 0; i < branch->n; i++)
    n_rows += (guint64) branch->count[i];
  branch->n_rows = (guint) n_rows;
}

typedef struct {
  float nearer;
  guint at;
} Leaning;

static int
by_leaning (gconstpointer a, gconstpointer b)
{
  const Leaning *x = a, *y = b;

  if (x->nearer != y->nearer)
    return x->nearer < y->nearer ? -1 : 1;
  return x->at < y->at ? -1 : 1;
}

/* 2-means over the children, each as heavy as its rows; returns the new sibling. */
LycheeBranch *
lychee_branch_split (LycheeIndex *index, LycheeBranch *branch)
{
  guint dim = index->params.head_dim, n = branch->n, least = n / LEAST_BRANCH, n_right = 0,
        kept = 0;
  g_autofree float *mean = g_new (float, (gsize) n *dim);
  g_autofree float *center = g_new0 (float, 2 * dim);
  g_autofree Leaning *order = g_new (Leaning, n);
  g_autofree guint8 *side = g_new0 (guint8, n);
  LycheeBranch *sibling;

  for (guint i = 0; i < n; i++) {
    lychee_code_decode (
        branch->code + (gsize) i * dim, branch->scale[i], dim, mean + (gsize) i * dim);
    for (guint d = 0; d < dim; d++)
      center[d] += mean[(gsize) i * dim + d] / n;
  }
  for (guint seed = 0; seed < 2; seed++) {
    guint far = 0;
    float most = -1;

    for (guint i = 0; i < n; i++) {
      float x = lychee_distance (mean + (gsize) i * dim, center, dim);

      if (x > most) {
        most = x;
        far = i;
      }
    }
    if (seed == 1)
      memcpy (center + dim, center, dim * sizeof *center);
    memcpy (center, mean + (gsize) far * dim, dim * sizeof *center);
  }
  for (guint pass = 0; pass < 6; pass++) {
    float weight[2] = { 0 };

    n_right = 0;
    for (guint i = 0; i < n; i++) {
      const float *x = mean + (gsize) i * dim;

      order[i] =
          (Leaning){ lychee_distance (x, center, dim) - lychee_distance (x, center + dim, dim), i };
      side[i] = order[i].nearer > 0;
      n_right += side[i];
    }
    if (n_right == 0 || n_right == n)
      break;
    memset (center, 0, 2 * dim * sizeof *center);
    for (guint i = 0; i < n; i++)
      weight[side[i]] += branch->count[i];
    for (guint i = 0; i < n; i++)
      for (guint d = 0; d < dim; d++)
        center[side[i] * dim + d] +=
            mean[(gsize) i * dim + d] * (branch->count[i] / weight[side[i]]);
  }
  if (n_right < least || n_right > n - least) {
    n_right = n_right == 0 || n_right == n ? n / 2 : CLAMP (n_right, least, n - least);
    qsort (order, n, sizeof *order, by_leaning);
    for (guint i = 0; i < n; i++)
      side[order[i].at] = i >= n - n_right;
  }
  sibling = lychee_branch_new (index, branch->level, n_right);
  for (guint i = 0; i < n; i++)
    if (side[i])
      lychee_branch_move (index, sibling, sibling->n++, branch, i);
    else
      lychee_branch_move (index, branch, kept++, branch, i);
  branch->n = kept;
  branch_reserve (index, branch, kept);
  lychee_branch_count (branch);
  lychee_branch_count (sibling);
  branch->changed = sibling->changed = TRUE;
  branch->fresh = 0;
  index->splits++;
  return sibling;
}
