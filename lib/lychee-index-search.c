/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Search of an index with granularity token (docs/architecture.md). */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-private.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Memory that grows to what searches need and is used again. */
typedef struct {
  gpointer data;
  gsize size;
} Buffer;

/* A branch of level 1, and which of all coarse nodes its first child is. */
typedef struct {
  const LycheeBranch *branch;
  guint first;
} BranchPlace;

/* A coarse node that is opened. */
typedef struct {
  const LycheeNode *node;
  const LycheeBranch *branch;
  guint child, place; /* in the branch; among all coarse nodes */
  guint first, n_leaves;
  guint unread; /* rows */
} Run;

#define NODES_AHEAD 12 /* opened nodes that are being fetched */
#define STEP 8         /* leaves are taken so many at a time, beyond the end of a node's */

typedef struct {
  Buffer branches; /* BranchPlace */
  Buffer chosen;   /* guint32, what was selected last */
  Buffer density;  /* float */
  /* All coarse nodes, in the order of the tree, rows a query each: */
  Buffer z;      /* float, logits */
  Buffer count;  /* float, rows */
  Buffer weight; /* float, exp of the logit less the query's most; in the end of what is unread */
  Buffer runs;   /* Run, those that are opened */
  /* The leaves of these: */
  Buffer leaf_run;               /* guint32 */
  Buffer leaf_code;              /* const guint8 *, 4 bits */
  Buffer leaf_ids;               /* const guint8 * */
  Buffer leaf_half;              /* guint16, scales */
  Buffer leaf_scale;             /* float */
  Buffer leaf_count;             /* float, rows */
  Buffer leaf_spread;            /* float */
  Buffer leaf_z;                 /* float [n_queries][leaf_stride] */
  Buffer leaf_weight, leaf_rank; /* the same; of what is unread in the end */
  Buffer leaf_read; /* guint32, rows to read of those that were chosen, in their order */
  /* Of each query: */
  Buffer most, leaf_most; /* float */
  Buffer unread;          /* float, the sum of its weights in the end */
  /* What is found: */
  Buffer rows, rest_k, rest_v, rest_log_n;
  guint n_queries, n_branches, n_coarse, n_opened, n_leaves, leaf_stride;
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
  g_free (scratch->branches.data);
  g_free (scratch->chosen.data);
  g_free (scratch->density.data);
  g_free (scratch->z.data);
  g_free (scratch->count.data);
  g_free (scratch->weight.data);
  g_free (scratch->runs.data);
  g_free (scratch->leaf_run.data);
  g_free (scratch->leaf_code.data);
  g_free (scratch->leaf_ids.data);
  g_free (scratch->leaf_half.data);
  g_free (scratch->leaf_scale.data);
  g_free (scratch->leaf_count.data);
  g_free (scratch->leaf_spread.data);
  g_free (scratch->leaf_z.data);
  g_free (scratch->leaf_weight.data);
  g_free (scratch->leaf_rank.data);
  g_free (scratch->leaf_read.data);
  g_free (scratch->most.data);
  g_free (scratch->leaf_most.data);
  g_free (scratch->unread.data);
  g_free (scratch->rows.data);
  g_free (scratch->rest_k.data);
  g_free (scratch->rest_v.data);
  g_free (scratch->rest_log_n.data);
  g_free (scratch);
  g_free (selection);
}

gsize
lychee_selection_get_bytes (const LycheeSelection *selection)
{
  const Buffer *buffers = selection->scratch; /* up to the numbers */
  gsize bytes = sizeof *selection + sizeof (Scratch);

  for (guint i = 0; i < G_STRUCT_OFFSET (Scratch, n_queries) / sizeof (Buffer); i++)
    bytes += buffers[i].size;
  return bytes;
}

/* What is searched of a branch. */
static inline void
prefetch_branch (const LycheeBranch *branch, guint dim)
{
  lychee_prefetch (branch->block,
      (gsize) ((const guint8 *) branch->code - (guint8 *) branch->block) + (gsize) branch->n * dim);
}

/* Lists the branches of level 1. */
static void
list_branches (Scratch *scratch, const LycheeBranch *branch)
{
  if (branch->level > 1) {
    for (guint i = 0; i < branch->n; i++)
      lychee_prefetch (branch->child[i], sizeof *branch);
    for (guint i = 0; i < branch->n; i++)
      list_branches (scratch, branch->child[i]);
    return;
  }
  if ((scratch->n_branches + 1) * sizeof (BranchPlace) > scratch->branches.size) {
    scratch->branches.size = 2 * scratch->branches.size + 16 * sizeof (BranchPlace);
    scratch->branches.data = g_realloc (scratch->branches.data, scratch->branches.size);
  }
  ((BranchPlace *) scratch->branches.data)[scratch->n_branches++] =
      (BranchPlace){ branch, scratch->n_coarse };
  scratch->n_coarse += branch->n;
}

/* What a logit that has ln of a count in it becomes where logits are capped. */
static inline float
cap_counted (float z, float log_count, float cap)
{
  return log_count + lychee_cap_logit (z - log_count, cap);
}

/* The logits, weights and densities of all coarse nodes. */
static void
score_coarse (const LycheeIndex *index, const LycheeQueries *queries, Scratch *scratch)
{
  const BranchPlace *branches = scratch->branches.data;
  guint n = scratch->n_coarse;
  float *z = need (&scratch->z, (gsize) n * queries->n_queries, sizeof *z);
  float *count = need (&scratch->count, n, sizeof *count);
  float *weight = need (&scratch->weight, (gsize) n * queries->n_queries, sizeof *z);

  prefetch_branch (branches[0].branch, queries->head_dim);
  for (guint i = 0; i < scratch->n_branches; i++) {
    const LycheeBranch *branch = branches[i].branch;

    if (i + 1 < scratch->n_branches)
      prefetch_branch (branches[i + 1].branch, queries->head_dim);
    index->kernels->score_leaves (queries, branch->code, branch->scale, branch->log_count,
        branch->n, z + branches[i].first, n);
    memcpy (count + branches[i].first, branch->count, branch->n * sizeof *count);
    /* Beside: those of leaves begin with the others. */
    for (guint h = 0; queries->cap > 0 && h < queries->n_queries; h++)
      for (guint j = 0; j < branch->n; j++) {
        gsize at = (gsize) h * n + branches[i].first + j;

        weight[at] = cap_counted (z[at], branch->log_count[j], queries->cap);
      }
  }
  index->kernels->weigh_nodes (queries->n_queries, queries->cap > 0 ? weight : z, n, count, n,
      weight, need (&scratch->most, queries->n_queries, sizeof *z),
      need (&scratch->density, n, sizeof *z));
}

/* Finds the coarse nodes that were chosen; returns how many leaves they have. */
static guint
find_nodes (Scratch *scratch, guint n)
{
  const BranchPlace *branches = scratch->branches.data;
  const guint32 *chosen = scratch->chosen.data;
  Run *runs = need (&scratch->runs, n, sizeof *runs);
  guint n_all = 0;

  for (guint i = 0, at = 0; i < n; i++) {
    const LycheeBranch *branch;
    guint child, n_rows, n_leaves;

    if (chosen[i] < branches[at].first) /* the last one is out of order */
      at = 0;
    while (chosen[i] - branches[at].first >= branches[at].branch->n)
      at++;
    branch = branches[at].branch;
    child = chosen[i] - branches[at].first;
    n_rows = (guint) branch->count[child];
    n_leaves = branch->n_leaves[child];
    runs[i] = (Run){ branch->child[child], branch, child, chosen[i], n_all, n_leaves, n_rows };
    n_all += n_leaves;
  }
  scratch->n_opened = n;
  return n_all;
}

/* All but the rows' numbers, most of which nobody asks for. */
static inline void
prefetch_node (const Run *run, guint dim)
{
  lychee_prefetch (run->node, lychee_node_get_size (dim, 0, run->n_leaves, 2));
}

/* The leaves' densities: of what they would weigh LYCHEE_LEAF_SPREADS nearer to each query. */
static void
rank_leaves (const LycheeIndex *index, Scratch *scratch, const LycheeQueries *queries)
{
  guint n = scratch->n_leaves, stride = scratch->leaf_stride, n_queries = queries->n_queries;
  float *rank = need (&scratch->leaf_rank, (gsize) stride * n_queries, sizeof *rank);
  const float *spread = scratch->leaf_spread.data, *z = scratch->leaf_z.data;

  for (guint h = 0; h < n_queries; h++) {
    const float *q = queries->q + (gsize) h * queries->head_dim;
    float times =
        LYCHEE_LEAF_SPREADS * queries->scale * sqrtf (lychee_square (q, queries->head_dim));

    for (guint leaf = 0; leaf < n; leaf++)
      rank[(gsize) h * stride + leaf] = z[(gsize) h * stride + leaf] + times * spread[leaf];
  }
  /* In @unread nobody is interested yet. */
  index->kernels->weigh_nodes (n_queries, rank, stride, scratch->leaf_count.data, n, rank,
      need (&scratch->unread, n_queries, sizeof *rank), need (&scratch->density, n, sizeof *rank));
}

/* Lists the leaves of a node, with the logits that their difference from its mean key is to be
 * added to. STEP are written at a time: what is beyond the node's leaves is nonsense that the next
 * node's take the place of. */
static inline void
list_leaves (Scratch *scratch, guint dim, guint which)
{
  const Run *of = (const Run *) scratch->runs.data + which;
  const LycheeNode *node = of->node;
  const guint8 *counts = lychee_node_get_counts (node), *spreads = lychee_node_get_spreads (node);
  const guint16 *scales = lychee_node_get_scales (node);
  guintptr codes = (guintptr) lychee_node_get_codes (node);
  const guint8 *node_ids = lychee_node_get_ids (node, dim);
  guint stride = scratch->leaf_stride, half = dim / 2;

  for (guint leaf = 0; leaf < of->n_leaves; leaf += STEP) {
    guint to = of->first + leaf;
    guint32 *run = (guint32 *) scratch->leaf_run.data + to;
    guintptr *code = (guintptr *) scratch->leaf_code.data + to;
    const guint8 **ids = (const guint8 **) scratch->leaf_ids.data + to;
    float *count = (float *) scratch->leaf_count.data + to;
    float *spread = (float *) scratch->leaf_spread.data + to;
    float log_count[STEP];

    memcpy ((guint16 *) scratch->leaf_half.data + to, scales + leaf, STEP * sizeof *scales);
    for (guint j = 0; j < STEP; j++)
      run[j] = which;
    for (guint j = 0; j < STEP; j++)
      code[j] = codes + (leaf + j) * half;
    for (guint j = 0; j < STEP; j++)
      count[j] = counts[leaf + j];
    for (guint j = 0; j < STEP; j++) {
      spread[j] = lychee_spreads[spreads[leaf + j]];
      log_count[j] = lychee_log_counts[counts[leaf + j]];
      ids[j] = node_ids;
      node_ids += counts[leaf + j] * node->id_bytes;
    }
    for (guint h = 0; h < scratch->n_queries; h++) {
      float mean_z = ((const float *) scratch->z.data)[(gsize) h * scratch->n_coarse + of->place] -
                     of->branch->log_count[of->child];
      float *row = (float *) scratch->leaf_z.data + (gsize) h * stride + to;

      for (guint j = 0; j < STEP; j++)
        row[j] = log_count[j] + mean_z;
    }
  }
}

/* Scores the leaves of the @n coarse nodes that were chosen. */
static void
open_nodes (const LycheeIndex *index, Scratch *scratch, const LycheeQueries *queries, guint n,
    gboolean rest)
{
  guint dim = queries->head_dim, n_queries = queries->n_queries, n_leaves = find_nodes (scratch, n);
  guint stride = (n_leaves + 2 * STEP - 1) / STEP * STEP;
  const Run *runs = scratch->runs.data;
  const guint8 **code = need (&scratch->leaf_code, stride, sizeof *code);
  guint16 *half_scale = need (&scratch->leaf_half, stride, sizeof *half_scale);
  float *scale = need (&scratch->leaf_scale, stride, sizeof *scale);
  float *count = need (&scratch->leaf_count, stride, sizeof *count);
  float *leaf_z = need (&scratch->leaf_z, (gsize) stride * n_queries, sizeof *leaf_z);

  scratch->n_leaves = n_leaves;
  scratch->leaf_stride = stride;
  need (&scratch->leaf_run, stride, sizeof (guint32));
  need (&scratch->leaf_ids, stride, sizeof (const guint8 *));
  need (&scratch->leaf_spread, stride, sizeof (float));
  for (guint i = 0; i < MIN (n, NODES_AHEAD); i++)
    prefetch_node (&runs[i], dim);
  for (guint i = 0; i < n; i++) {
    if (i + NODES_AHEAD < n)
      prefetch_node (&runs[i + NODES_AHEAD], dim);
    list_leaves (scratch, dim, i);
  }
  index->kernels->f16_to_f32 (half_scale, scale, n_leaves);
  index->kernels->score_packed (queries, code, scale, n_leaves, leaf_z, stride);
  for (guint h = 0; queries->cap > 0 && h < n_queries; h++)
    for (guint leaf = 0; leaf < n_leaves; leaf++) {
      float *to = leaf_z + (gsize) h * stride + leaf;

      *to = cap_counted (*to, lychee_log_counts[(guint) count[leaf]], queries->cap);
    }
  index->kernels->weigh_nodes (n_queries, leaf_z, stride, count, n_leaves,
      need (&scratch->leaf_weight, (gsize) stride * n_queries, sizeof *leaf_z),
      need (&scratch->leaf_most, n_queries, sizeof *leaf_z),
      need (&scratch->density, n_leaves, sizeof *leaf_z));
  /* If what is not read is lost, the weights themselves are the better order. */
  if (rest)
    rank_leaves (index, scratch, queries);
}

static guint
choose (const LycheeIndex *index, Scratch *scratch, const Buffer *count, guint n, guint target)
{
  return index->kernels->select_nodes (
      scratch->density.data, count->data, n, target, need (&scratch->chosen, n, sizeof (guint32)));
}

static inline void
copy_ids (const guint8 *ids, guint id_bytes, guint n, guint32 *to)
{
  typedef guint16 Short __attribute__ ((vector_size (16), aligned (1), may_alias));
  typedef guint32 Long __attribute__ ((vector_size (32), aligned (4), may_alias));

  if (id_bytes != 2 || n < 8 || G_BYTE_ORDER != G_LITTLE_ENDIAN) {
    for (guint i = 0; i < n; i++)
      to[i] = lychee_node_id (ids, id_bytes, i);
    return;
  }
  for (guint i = 0; i + 8 < n; i += 8)
    *(Long *) (to + i) = __builtin_convertvector((*(const Short *) (ids + 2 * i)), Long);
  *(Long *) (to + n - 8) = __builtin_convertvector((*(const Short *) (ids + 2 * (n - 8))), Long);
}

/* Of the @n leaves that were chosen all rows are read, but of the last one if the budget ends in
 * it. Returns how many, and has the rows' numbers fetched. */
static guint
take_leaves (Scratch *scratch, guint n, guint budget)
{
  const guint32 *chosen = scratch->chosen.data, *run = scratch->leaf_run.data;
  const guint8 *const *ids = scratch->leaf_ids.data;
  const float *count = scratch->leaf_count.data;
  guint32 *read = need (&scratch->leaf_read, n, sizeof *read);
  Run *runs = scratch->runs.data;
  guint n_read = 0;

  for (guint i = 0; i < n; i++) {
    guint leaf = chosen[i];
    Run *of = &runs[run[leaf]];

    read[i] = MIN ((guint) count[leaf], budget - n_read);
    of->unread -= read[i];
    lychee_prefetch (ids[leaf], read[i] * of->node->id_bytes);
    n_read += read[i];
  }
  return n_read;
}

static void
list_rows (Scratch *scratch, guint n)
{
  const guint32 *chosen = scratch->chosen.data, *run = scratch->leaf_run.data;
  const guint32 *read = scratch->leaf_read.data;
  const guint8 *const *ids = scratch->leaf_ids.data;
  const Run *runs = scratch->runs.data;
  guint32 *to = scratch->rows.data;

  for (guint i = 0; i < n; to += read[i], i++)
    copy_ids (ids[chosen[i]], runs[run[chosen[i]]].node->id_bytes, read[i], to);
}

static float
sum_floats (const float *x, guint n)
{
  LycheeLanes sums = { 0 };
  float sum = 0;
  guint i;

  for (i = 0; i + 8 <= n; i += 8)
    sums += *(const LycheeLanes *) (x + i);
  for (; i < n; i++)
    sum += x[i];
  return lychee_sum_lanes (&sums) + sum;
}

/* The sum of @n numbers, which @x has room for a vector after. */
static inline float
sum_few (const float *x, guint n)
{
  static const gint32 keep[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
  LycheeLanes sums = { 0 };

  for (guint i = 0; i < n; i += 8) {
    LycheeBits bits =
        *(const LycheeBits *) (x + i) & *(const LycheeBits *) (keep + 8 - MIN (n - i, 8));

    sums += (LycheeLanes) bits;
  }
  return lychee_sum_lanes (&sums);
}

/* Lowers the weights of opened nodes to what was not read of them: the sum over their leaves, of
 * the
 * @n_chosen ones in the part that is left; all weights relative to the larger of the largest logits
 * of nodes and of leaves. Returns how many coarse nodes have rows left. */
static guint
lower_weights (Scratch *scratch, guint n_chosen)
{
  const Run *runs = scratch->runs.data;
  const float *leaf_most = scratch->leaf_most.data, *count = scratch->leaf_count.data;
  const guint32 *chosen = scratch->chosen.data, *read = scratch->leaf_read.data;
  guint n = scratch->n_coarse, n_opened = scratch->n_opened, n_read = 0;
  float *weight = scratch->weight.data, *most = scratch->most.data;
  float *leaf_weight = scratch->leaf_weight.data;
  float *unread = need (&scratch->unread, scratch->n_queries, sizeof *unread);

  for (guint h = 0; h < scratch->n_queries; h++, weight += n, leaf_weight += scratch->leaf_stride) {
    float factor = 1;

    if (n_opened > 0) {
      if (leaf_most[h] > most[h]) {
        float lower = expf (most[h] - leaf_most[h]);

        for (guint i = 0; i < n; i++)
          weight[i] *= lower;
        most[h] = leaf_most[h];
      } else {
        factor = expf (leaf_most[h] - most[h]);
      }
      for (guint i = 0; i < n_chosen; i++) {
        float *of = &leaf_weight[chosen[i]];

        *of *= (count[chosen[i]] - (float) read[i]) / count[chosen[i]];
      }
      for (guint i = 0; i < n_opened; i++)
        weight[runs[i].place] = sum_few (leaf_weight + runs[i].first, runs[i].n_leaves) * factor;
    }
    unread[h] = sum_floats (weight, n);
  }
  for (guint i = 0; i < n_opened; i++)
    n_read += runs[i].unread == 0;
  return n - n_read;
}

/* The unread rows of coarse nodes as means: of an opened one, the mean key of what was not read of
 * its leaves. */
static void
expand_rest (const LycheeIndex *index, LycheeSelection *selection, guint n_chosen)
{
  Scratch *scratch = selection->scratch;
  guint dim = index->params.head_dim, n_rest = 0, n_coarse = scratch->n_coarse, leaf = 0;
  const BranchPlace *branches = scratch->branches.data;
  const guint8 *const *code = scratch->leaf_code.data;
  float *count = scratch->leaf_count.data;
  const guint32 *chosen = scratch->chosen.data, *read = scratch->leaf_read.data;
  const float *scale = scratch->leaf_scale.data;
  const Run *runs = scratch->runs.data;
  guint8 *opened = need (&scratch->density, n_coarse, sizeof *opened);
  float *k = selection->rest_k = need (&scratch->rest_k, (gsize) n_coarse * dim, sizeof *k);
  float *v = selection->rest_v = need (&scratch->rest_v, (gsize) n_coarse * dim, sizeof *v);
  float *log_n = selection->rest_log_n = need (&scratch->rest_log_n, n_coarse, sizeof *log_n);

  for (guint i = 0; i < n_chosen; i++)
    count[chosen[i]] -= read[i];
  memset (opened, 0, n_coarse);
  for (guint i = 0; i < scratch->n_opened; i++) {
    const LycheeBranch *branch = runs[i].branch;
    guint child = runs[i].child, end = leaf + runs[i].n_leaves;

    opened[runs[i].place] = 1;
    if (runs[i].unread == 0) {
      leaf = end;
      continue;
    }
    memset (k, 0, dim * sizeof *k);
    for (; leaf < end; leaf++) {
      float weight = count[leaf] * scale[leaf] / runs[i].unread;
      gint8 bytes[256];

      lychee_code_unpack (code[leaf], 1, dim, bytes);
      for (guint d = 0; d < dim; d++)
        k[d] += weight * bytes[d];
    }
    for (guint d = 0; d < dim; d++)
      k[d] += branch->scale[child] * branch->code[(gsize) child * dim + d];
    lychee_code_decode (
        branch->value_code + (gsize) child * dim, branch->value_scale[child], dim, v);
    log_n[n_rest++] = logf (runs[i].unread);
    k += dim;
    v += dim;
  }
  for (guint at = 0; at < scratch->n_branches; at++) {
    const LycheeBranch *branch = branches[at].branch;

    for (guint i = 0; i < branch->n; i++) {
      if (opened[branches[at].first + i])
        continue;
      lychee_code_decode (branch->code + (gsize) i * dim, branch->scale[i], dim, k);
      lychee_code_decode (branch->value_code + (gsize) i * dim, branch->value_scale[i], dim, v);
      log_n[n_rest++] = branch->log_count[i];
      k += dim;
      v += dim;
    }
  }
  selection->n_rest = n_rest;
}

void
lychee_tree_search (
    const LycheeIndex *index, const LycheeIndexQuery *query, LycheeSelection *selection)
{
  Scratch *scratch = selection->scratch;
  guint total = index->end - index->begin, n_chosen = 0;
  LycheeQueries queries = { query->n_queries, index->params.head_dim, index->params.scale, query->q,
    index->params.cap };
  double open = query->beam > 0 ? (double) query->beam * query->budget
                                : LYCHEE_OPEN_ROWS (queries.head_dim) +
                                      (double) LYCHEE_OPEN_BEAM * query->budget;

  selection->n_rows = selection->n_rest = 0;
  selection->nodes_scored = selection->rows_estimated = 0;
  scratch->n_branches = scratch->n_coarse = scratch->n_opened = scratch->n_leaves = 0;
  scratch->n_queries = query->n_queries;
  selection->rows = need (&scratch->rows, MIN (query->budget, total), sizeof *selection->rows);
  if (total <= query->budget) {
    for (guint i = 0; i < total; i++)
      selection->rows[i] = index->begin + i;
    selection->n_rows = total;
    return;
  }
  if (index->chunks) {
    lychee_chunks_search (index, query, selection);
    return;
  }

  list_branches (scratch, index->root);
  score_coarse (index, &queries, scratch);
  if (query->budget > 0) {
    n_chosen = choose (
        index, scratch, &scratch->count, scratch->n_coarse, (guint) ceil (MIN (open, total)));
    open_nodes (index, scratch, &queries, n_chosen, query->rest);
    n_chosen = choose (index, scratch, &scratch->leaf_count, scratch->n_leaves, query->budget);
    selection->n_rows = take_leaves (scratch, n_chosen, query->budget);
  }
  selection->nodes_scored = scratch->n_coarse + scratch->n_leaves;
  if (query->rest) {
    selection->rows_estimated = total - selection->n_rows;
    if (query->logits)
      selection->n_rest = lower_weights (scratch, n_chosen);
    else
      expand_rest (index, selection, n_chosen);
  }
  list_rows (scratch, n_chosen);
}

/* Adds to a query's softmax groups with weights that sum up to @sum, relative to exp (@most), but
 * for their values; returns what to multiply the weights with for these. */
static float
enter_weights (float most, float sum, float *m, float *l, float *o, guint head_dim)
{
  float logit, larger, lower;

  if (sum < FLT_MIN) /* next to nothing, and 1 / sum would be infinite */
    return 0;
  logit = most + logf (sum);
  larger = *m > logit ? *m : logit;
  lower = *m == -INFINITY ? 0 : expf (*m - larger);
  *m = larger;
  *l = *l * lower + expf (logit - larger);
  for (guint d = 0; d < head_dim; d++)
    o[d] *= lower;
  return expf (logit - larger) / sum;
}

#define REST_QUERIES 64 /* that are added at a time */

void
lychee_tree_attend_rest (const LycheeIndex *index, const LycheeIndexQuery *query,
    const LycheeSelection *selection, LycheeSoftmax *softmax)
{
  const Scratch *scratch = selection->scratch;
  const BranchPlace *branches = scratch->branches.data;
  const float *most = scratch->most.data, *unread = scratch->unread.data;
  guint dim = index->params.head_dim, n = scratch->n_coarse;

  if (selection->n_rest == 0)
    return;
  lychee_prefetch (branches[0].branch->value_code, (gsize) branches[0].branch->n * dim);
  for (guint first = 0, n_queries; first < query->n_queries; first += n_queries) {
    const float *weight = (const float *) scratch->weight.data + (gsize) first * n;
    float factor[REST_QUERIES], *o = softmax->o + (gsize) first * dim;

    n_queries = MIN (query->n_queries - first, REST_QUERIES);
    for (guint h = 0; h < n_queries; h++)
      factor[h] = enter_weights (most[first + h], unread[first + h], softmax->m + first + h,
          softmax->l + first + h, o + (gsize) h * dim, dim);
    for (guint i = 0; i < scratch->n_branches; i++) {
      const LycheeBranch *branch = branches[i].branch;

      if (i + 1 < scratch->n_branches)
        lychee_prefetch (
            branches[i + 1].branch->value_code, (gsize) branches[i + 1].branch->n * dim);
      index->kernels->add_values (n_queries, dim, weight + branches[i].first, n, factor,
          branch->value_code, branch->value_scale, branch->n, o);
    }
  }
}
