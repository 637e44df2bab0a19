/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Search of an index with granularity token: DESIGN section 4. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-private.h"

#include <math.h>
#include <string.h>

/* By default nodes are opened until they hold so many rows, of which there is not much to gain
 * beyond: for small budgets that is more, and costs little. */
#define OPEN_ROWS 1024
#define OPEN_BEAM 4

/* Memory that grows to what searches need and is used again. */
typedef struct {
  gpointer data;
  gsize size;
} Buffer;

typedef struct {
  const LycheeBranch *branch;
  guint child;
  gboolean opened;
} NodePlace;

/* A coarse node that is opened. */
typedef struct {
  guint place;
  guint end; /* of its leaves, which begin where those of the one before it end */
} Run;

typedef struct {
  guint place;        /* of its coarse node */
  guint16 first, end; /* rows in the node, in the order of its leaves */
  guint16 read;
} LeafPlace;

typedef struct {
  /* All coarse nodes, in the order of the tree: */
  Buffer z;      /* float [n_queries][n_coarse] */
  Buffer places; /* NodePlace */
  Buffer runs;   /* Run, those that are opened */
  /* The leaves of these: */
  Buffer leaves;    /* LeafPlace */
  Buffer leaf_z;    /* float [n_queries][n_leaves] */
  Buffer code;      /* gint8 [n_leaves][head_dim] */
  Buffer scale;     /* float */
  Buffer log_count; /* float */
  /* Either, while they are ranked: */
  Buffer weight; /* guint32, rows */
  Buffer share;  /* float */
  Buffer key;    /* guint64 */
  Buffer spare;  /* guint64 */
  /* What is found: */
  Buffer rows, rest_k, rest_v, rest_log_n;
  guint n_queries, n_coarse, n_opened, n_leaves;
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
  g_free (scratch->z.data);
  g_free (scratch->places.data);
  g_free (scratch->runs.data);
  g_free (scratch->leaves.data);
  g_free (scratch->leaf_z.data);
  g_free (scratch->code.data);
  g_free (scratch->scale.data);
  g_free (scratch->log_count.data);
  g_free (scratch->weight.data);
  g_free (scratch->share.data);
  g_free (scratch->key.data);
  g_free (scratch->spare.data);
  g_free (scratch->rows.data);
  g_free (scratch->rest_k.data);
  g_free (scratch->rest_v.data);
  g_free (scratch->rest_log_n.data);
  g_free (scratch);
  g_free (selection);
}

/* e^x for x <= 0, 2e-6 relative; nothing to speak of below -87. Vectorises. */
static inline float
exp_negative (float x)
{
  float t, f, p;
  union {
    float f;
    guint32 i;
  } power;

  x = x > -87.f ? x : -87.f;
  power.f = x * 1.44269504f + 12582912.f; /* rounds to a whole power of 2 */
  t = power.f - 12582912.f;
  f = (x - t * 0.693145752f) - t * 1.42860677e-6f;
  p = 1.f + f * (1.f + f * (0.5f + f * (0.16666667f + f * (0.041666667f + f * 0.0083333f))));
  power.i = (power.i << 23) + 0x3f800000;
  return p * power.f;
}

/* A key that orders by density first; of equals, the one that comes first is larger. */
static inline guint64
density_key (float density, guint i)
{
  union {
    float f;
    guint32 i;
  } bits = { density > 0 ? density : 0 };

  return (guint64) bits.i << 32 | (G_MAXUINT32 - i);
}

#define N_BUCKETS 256

/* How far below the densest, in eighths of octaves. */
static inline guint
density_bucket (guint64 key, float most)
{
  union {
    float f;
    guint32 i;
  } bits = { most };

  return MIN ((bits.i - (guint32) (key >> 32)) >> 20, N_BUCKETS - 1);
}

static inline guint
key_index (guint64 key)
{
  return G_MAXUINT32 - (guint32) key;
}

/* Brings the k largest keys to the front (in any order but that the k-th comes last) and returns k,
 * the least with which their weights reach @target, or n. A quickselect by weight without branches
 * in its loop. */
static guint
select_densest (guint64 *key, guint64 *spare, guint n, const guint32 *weight, guint64 target)
{
  guint low = 0, high = n;
  guint64 held = 0; /* of key[0 .. low) */

  while (high - low > 12) {
    guint64 a = key[low], b = key[(low + high) / 2], c = key[high - 1];
    guint64 pivot = MAX (MIN (a, b), MIN (MAX (a, b), c));
    guint left = low, right = 0, at = 0;
    guint64 sum = 0;

    for (guint i = low; i < high; i++) {
      guint64 k = key[i];
      gboolean before = k > pivot;

      key[left] = k;
      spare[right] = k;
      at = k == pivot ? right : at;
      sum += before ? weight[key_index (k)] : 0;
      left += before;
      right += !before;
    }
    spare[at] = spare[0];
    spare[0] = pivot;
    memcpy (key + left, spare, right * sizeof *key);
    if (held + sum >= target) {
      high = left;
      continue;
    }
    held += sum + weight[key_index (pivot)];
    low = left + 1;
    if (held >= target)
      return low;
  }
  for (; low < high; low++) {
    guint best = low;
    guint64 swap = key[low];

    if (held >= target)
      return low;
    for (guint i = low + 1; i < high; i++)
      best = key[i] > key[best] ? i : best;
    key[low] = key[best];
    key[best] = swap;
    held += weight[key_index (key[low])];
  }
  return low;
}

/* Ranks @n groups by their share of the queries' attention per row (the score of DESIGN section 4,
 * less its logarithm, which changes no order), and selects as many as hold @target rows: their keys
 * are then in front. Eighths of octaves below the densest are counted first, so that only what lies
 * in the last one of them has to be sorted out. */
static guint
rank (const LycheeIndex *index, Scratch *scratch, const float *z, guint n, const guint32 *weight,
    guint64 target)
{
  float *share = need (&scratch->share, n, sizeof *share);
  guint64 *key = need (&scratch->key, n, sizeof *key);
  guint64 *spare = need (&scratch->spare, n, sizeof *spare);
  guint64 held[N_BUCKETS] = { 0 }, before = 0;
  guint front = 0, last = 0, bucket;
  float most = 0;

  index->kernels->share_nodes (scratch->n_queries, z, n, n, share);
  for (guint i = 0; i < n; i++)
    share[i] /= weight[i];
  for (guint i = 0; i < n; i++)
    most = share[i] > most ? share[i] : most;
  for (guint i = 0; i < n; i++) {
    spare[i] = density_key (share[i], i);
    held[density_bucket (spare[i], most)] += weight[i];
  }
  for (bucket = 0; bucket < N_BUCKETS - 1 && before + held[bucket] < target; bucket++)
    before += held[bucket];
  for (guint i = 0; i < n; i++) {
    guint at = density_bucket (spare[i], most);
    guint64 k = spare[i];

    key[front] = k;
    front += at < bucket;
    spare[last] = k; /* no place that is still to be looked at */
    last += at == bucket;
  }
  memcpy (key + front, spare, last * sizeof *key);
  return front + select_densest (key + front, spare, last, weight, target - MIN (target, before));
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

static inline void
prefetch (gconstpointer p, gsize size)
{
  for (gsize i = 0; i < size; i += 64)
    __builtin_prefetch ((const guint8 *) p + i);
}

/* The logits, places and weights of all coarse nodes from the @at-th on. */
static guint
score_coarse (const LycheeIndex *index, const LycheeBranch *branch, const LycheeQueries *queries,
    guint at, Scratch *scratch)
{
  NodePlace *places = scratch->places.data;
  guint32 *weight = scratch->weight.data;

  if (branch->level > 1) {
    for (guint i = 0; i < branch->n; i++) {
      const LycheeBranch *next = i + 1 < branch->n ? branch->child[i + 1] : NULL;

      if (next && next->level == 1)
        prefetch (next->code, (gsize) next->n * queries->head_dim);
      at = score_coarse (index, branch->child[i], queries, at, scratch);
    }
    return at;
  }
  index->kernels->score_leaves (queries, branch->code, branch->scale, branch->log_count, branch->n,
      (float *) scratch->z.data + at, scratch->n_coarse);
  for (guint i = 0; i < branch->n; i++)
    weight[at + i] = (guint32) branch->count[i];
  for (guint i = 0; i < branch->n; i++)
    places[at + i] = (NodePlace){ branch, i, 0 };
  return at + branch->n;
}

static const LycheeNode *
place_node (const NodePlace *place)
{
  return place->branch->child[place->child];
}

/* Scores the leaves of the @n coarse nodes in front of the keys. */
static void
open_nodes (const LycheeIndex *index, Scratch *scratch, const LycheeQueries *queries, guint n)
{
  guint dim = queries->head_dim, n_leaves = 0, at = 0;
  const guint64 *key = scratch->key.data;
  NodePlace *places = scratch->places.data;
  const float *z = scratch->z.data;
  float *leaf_z, *scale, *log_count;
  guint32 *weight;
  Run *runs = need (&scratch->runs, n, sizeof *runs);
  LeafPlace *leaves;
  gint8 *code;

  for (guint i = 0; i < n; i++) {
    NodePlace *place = &places[key_index (key[i])];
    guint n_rows = (guint) place->branch->count[place->child];

    place->opened = TRUE;
    prefetch (
        place->branch->child[place->child], lychee_node_get_size (dim, n_rows, n_rows / 12, 2));
  }
  for (guint i = 0; i < n; i++) {
    runs[i].place = key_index (key[i]);
    n_leaves += place_node (&places[runs[i].place])->n_leaves;
    runs[i].end = n_leaves;
  }
  scratch->n_opened = n;
  scratch->n_leaves = n_leaves;
  leaves = need (&scratch->leaves, n_leaves, sizeof *leaves);
  leaf_z = need (&scratch->leaf_z, (gsize) n_leaves * queries->n_queries, sizeof *leaf_z);
  code = need (&scratch->code, (gsize) n_leaves * dim, sizeof *code);
  scale = need (&scratch->scale, n_leaves, sizeof *scale);
  log_count = need (&scratch->log_count, n_leaves, sizeof *log_count);
  weight = need (&scratch->weight, n_leaves, sizeof *weight);
  for (guint i = 0; i < n; i++) {
    const LycheeNode *node = place_node (&places[runs[i].place]);
    const guint8 *count = lychee_node_get_counts (node);
    guint row = 0;

    lychee_code_unpack (lychee_node_get_codes (node), node->n_leaves, dim, code + (gsize) at * dim);
    index->kernels->f16_to_f32 (lychee_node_get_scales (node), scale + at, node->n_leaves);
    for (guint leaf = 0; leaf < node->n_leaves; leaf++, at++) {
      leaves[at] = (LeafPlace){ runs[i].place, (guint16) row, (guint16) (row + count[leaf]), 0 };
      log_count[at] = lychee_log_counts[count[leaf]];
      weight[at] = count[leaf];
      row += count[leaf];
    }
  }
  index->kernels->score_leaves (queries, code, scale, log_count, n_leaves, leaf_z, n_leaves);
  /* The codes are differences from the coarse mean, whose logit is known. */
  for (guint h = 0; h < queries->n_queries; h++, z += scratch->n_coarse, leaf_z += n_leaves)
    for (guint i = 0, leaf = 0; i < n; i++) {
      const NodePlace *place = &places[runs[i].place];
      float mean_z = z[runs[i].place] - place->branch->log_count[place->child];

      for (; leaf < runs[i].end; leaf++)
        leaf_z[leaf] += mean_z;
    }
}

static void
copy_ids (const LycheeNode *node, const guint8 *ids, guint first, guint n, guint32 *to)
{
  if (node->id_bytes == 2) {
    ids += 2 * first;
    for (guint i = 0; i < n; i++)
      to[i] = ids[2 * i] | (guint32) ids[2 * i + 1] << 8;
  } else {
    for (guint i = 0; i < n; i++)
      to[i] = lychee_node_id (ids, node->id_bytes, first + i);
  }
}

/* Reads the @n leaves in front of the keys, the last one in part if the budget ends in it. */
static guint
read_leaves (const LycheeIndex *index, Scratch *scratch, guint n, guint budget)
{
  const guint64 *key = scratch->key.data;
  const NodePlace *places = scratch->places.data;
  LeafPlace *leaves = scratch->leaves.data;
  guint32 *rows = scratch->rows.data;
  guint n_read = 0;

  for (guint i = 0; i < n; i++) {
    LeafPlace *leaf = &leaves[key_index (key[i])];
    const LycheeNode *node = place_node (&places[leaf->place]);

    leaf->read = (guint16) MIN ((guint) (leaf->end - leaf->first), budget - n_read);
    copy_ids (node, lychee_node_get_ids (node, index->params.head_dim), leaf->first, leaf->read,
        rows + n_read);
    n_read += leaf->read;
  }
  return n_read;
}

/* x[i] = exp (x[i] - the largest) * factor[i]; returns the largest. */
static float
weigh (float *restrict x, const float *restrict factor, guint n)
{
  float lanes[8], most;
  guint i;

  for (guint j = 0; j < 8; j++)
    lanes[j] = -G_MAXFLOAT;
  for (i = 0; i + 8 <= n; i += 8)
    for (guint j = 0; j < 8; j++)
      lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  for (; i < n; i++)
    lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  most = lanes[0];
  for (guint j = 1; j < 8; j++)
    most = lanes[j] > most ? lanes[j] : most;
  for (i = 0; i < n; i++)
    x[i] = exp_negative (x[i] - most) * factor[i];
  return most;
}

/* Lowers the logits of opened nodes to what was not read of them: the sum over their leaves, in the
 * part that is left. Returns how many coarse nodes have rows left. */
static guint
lower_logits (Scratch *scratch)
{
  const LeafPlace *leaves = scratch->leaves.data;
  const Run *runs = scratch->runs.data;
  guint n_leaves = scratch->n_leaves, n_read = 0;
  float *z = scratch->z.data, *leaf_z = scratch->leaf_z.data;
  float *left = need (&scratch->share, n_leaves, sizeof *left);

  for (guint i = 0; i < n_leaves; i++) {
    guint n = leaves[i].end - leaves[i].first;

    left[i] = (float) (n - leaves[i].read) / n;
  }
  for (guint h = 0; h < scratch->n_queries; h++, z += scratch->n_coarse, leaf_z += n_leaves) {
    float most = weigh (leaf_z, left, n_leaves);

    for (guint i = 0, leaf = 0; i < scratch->n_opened; i++) {
      float sum = 0;

      for (; leaf < runs[i].end; leaf++)
        sum += leaf_z[leaf];
      z[runs[i].place] = sum > 0 ? logf (sum) + most : -INFINITY;
    }
  }
  for (guint i = 0, leaf = 0; i < scratch->n_opened; i++) {
    float sum = 0;

    for (; leaf < runs[i].end; leaf++)
      sum += left[leaf];
    n_read += sum == 0;
  }
  return scratch->n_coarse - n_read;
}

/* The unread rows of coarse nodes as means: of an opened one, the mean key of what was not read of
 * its leaves. */
static void
expand_rest (const LycheeIndex *index, LycheeSelection *selection)
{
  Scratch *scratch = selection->scratch;
  guint dim = index->params.head_dim, n_rest = 0, n_coarse = scratch->n_coarse;
  const NodePlace *places = scratch->places.data;
  const LeafPlace *leaves = scratch->leaves.data;
  const Run *runs = scratch->runs.data;
  const float *scale = scratch->scale.data;
  const gint8 *code = scratch->code.data;
  float *k = selection->rest_k = need (&scratch->rest_k, (gsize) n_coarse * dim, sizeof *k);
  float *v = selection->rest_v = need (&scratch->rest_v, (gsize) n_coarse * dim, sizeof *v);
  float *log_n = selection->rest_log_n = need (&scratch->rest_log_n, n_coarse, sizeof *log_n);

  for (guint run = 0, i = 0; run < scratch->n_opened; run++) {
    const NodePlace *place = &places[runs[run].place];
    const LycheeBranch *branch = place->branch;
    guint n = 0;

    memset (k, 0, dim * sizeof *k);
    for (; i < runs[run].end; i++) {
      guint left = leaves[i].end - leaves[i].first - leaves[i].read;

      n += left;
      for (guint d = 0; d < dim && left > 0; d++)
        k[d] += left * scale[i] * code[(gsize) i * dim + d];
    }
    if (n == 0)
      continue;
    for (guint d = 0; d < dim; d++)
      k[d] = k[d] / n + branch->scale[place->child] * branch->code[(gsize) place->child * dim + d];
    lychee_code_decode (
        branch->value_code + (gsize) place->child * dim, branch->value_scale[place->child], dim, v);
    log_n[n_rest++] = logf (n);
    k += dim;
    v += dim;
  }
  for (guint j = 0; j < n_coarse; j++) {
    const LycheeBranch *branch = places[j].branch;
    guint i = places[j].child;

    if (places[j].opened)
      continue;
    lychee_code_decode (branch->code + (gsize) i * dim, branch->scale[i], dim, k);
    lychee_code_decode (branch->value_code + (gsize) i * dim, branch->value_scale[i], dim, v);
    log_n[n_rest++] = branch->log_count[i];
    k += dim;
    v += dim;
  }
  selection->n_rest = n_rest;
}

void
lychee_tree_search (
    const LycheeIndex *index, const LycheeIndexQuery *query, LycheeSelection *selection)
{
  Scratch *scratch = selection->scratch;
  guint total = index->end - index->begin, n_coarse, n_opened = 0, n_chosen;
  LycheeQueries queries = { query->n_queries, index->params.head_dim, index->params.scale,
    query->q };
  double open = query->beam > 0 ? (double) query->beam * query->budget
                                : OPEN_ROWS + (double) OPEN_BEAM * query->budget;

  selection->n_rows = selection->n_rest = 0;
  selection->nodes_scored = selection->rows_estimated = 0;
  scratch->n_coarse = scratch->n_opened = scratch->n_leaves = 0;
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

  scratch->n_coarse = n_coarse = count_coarse (index->root);
  need (&scratch->z, (gsize) n_coarse * query->n_queries, sizeof (float));
  need (&scratch->weight, n_coarse, sizeof (guint32));
  need (&scratch->places, n_coarse, sizeof (NodePlace));
  score_coarse (index, index->root, &queries, 0, scratch);
  if (query->budget > 0) {
    n_opened = rank (index, scratch, scratch->z.data, n_coarse, scratch->weight.data,
        (guint64) ceil (MIN (open, total)));
    open_nodes (index, scratch, &queries, n_opened);
    n_chosen = rank (index, scratch, scratch->leaf_z.data, scratch->n_leaves, scratch->weight.data,
        query->budget);
    selection->n_rows = read_leaves (index, scratch, n_chosen, query->budget);
  }
  selection->nodes_scored = n_coarse + scratch->n_leaves;
  if (!query->rest)
    return;
  selection->rows_estimated = total - selection->n_rows;
  if (query->logits)
    selection->n_rest = lower_logits (scratch);
  else
    expand_rest (index, selection);
}

static guint
attend_rest (const LycheeIndex *index, const LycheeBranch *branch, const LycheeQueries *queries,
    guint at, const Scratch *scratch, LycheeSoftmax *softmax)
{
  if (branch->level > 1) {
    for (guint i = 0; i < branch->n; i++)
      at = attend_rest (index, branch->child[i], queries, at, scratch, softmax);
    return at;
  }
  prefetch (branch->value_code, (gsize) branch->n * queries->head_dim);
  index->kernels->attend_logits (queries, (const float *) scratch->z.data + at, scratch->n_coarse,
      branch->value_code, branch->value_scale, branch->n, softmax);
  return at + branch->n;
}

void
lychee_tree_attend_rest (const LycheeIndex *index, const LycheeIndexQuery *query,
    const LycheeSelection *selection, LycheeSoftmax *softmax)
{
  LycheeQueries queries = { query->n_queries, index->params.head_dim, index->params.scale,
    query->q };

  if (selection->n_rest > 0)
    attend_rest (index, index->root, &queries, 0, selection->scratch, softmax);
}
