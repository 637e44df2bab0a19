/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The tree of an index with granularity token: append, split, cut. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-private.h"

#include <math.h>
#include <string.h>

#define LEAST_LEAF 8  /* a leaf that splits gives at least an eighth of its rows, */
#define LEAST_NODE 16 /* a coarse node a sixteenth, */
#define BULK 1024     /* this many rows, if they at least double the index, are built at once */

typedef struct {
  LycheeIndex *index;
  const LycheeRows *rows;
  LycheeSorter *sorter;
  LycheeOpenNode *open;
  float *mean; /* [head_dim] */
} Writer;

static void
writer_init (Writer *writer, LycheeIndex *index, const LycheeRows *rows, guint size)
{
  guint dim = index->params.head_dim, most = index->params.coarse_capacity + LYCHEE_APPEND_BATCH;

  writer->index = index;
  writer->rows = rows;
  writer->sorter = lychee_sorter_new (index, rows, MAX (most, size));
  writer->open = lychee_open_node_new (dim, index->params.leaf_capacity, most);
  writer->mean = g_new (float, dim);
}

static void
writer_clear (Writer *writer)
{
  writer->index->rows_rebuilt += writer->sorter->visits;
  lychee_sorter_free (writer->sorter);
  lychee_open_node_free (writer->open);
  g_free (writer->mean);
}

/* Coarse nodes */

/* Rows beyond which the next coarse node splits: the indices of a model's heads, all of one length,
 * must not all split in the same append. */
static guint
next_limit (LycheeIndex *index)
{
  guint64 x = (index->n_made++ << 32 | index->params.seed) + 0x9e3779b97f4a7c15u;

  /* splitmix64's mixing (Steele, Lea and Flood 2014) */
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return index->params.coarse_capacity - (guint) (x % (index->params.coarse_capacity / 8 + 1));
}

static void
leaf_mean (Writer *writer, guint leaf)
{
  LycheeOpenNode *open = writer->open;
  float *mean = open->mean + (gsize) leaf * open->head_dim;
  const guint32 *id = open->id + (gsize) leaf * open->stride;
  guint n = open->count[leaf];
  float squares;

  if (open->sum[leaf]) {
    memcpy (mean, open->sum[leaf], open->head_dim * sizeof *mean);
    squares = open->sum[leaf][open->head_dim];
  } else {
    for (guint i = 0; i < n; i++)
      writer->sorter->key_spare[i] = lychee_rows_key (writer->rows, open->head_dim, id[i]);
    memset (mean, 0, open->head_dim * sizeof *mean);
    writer->sorter->kernels->sum_rows (
        writer->sorter->key_spare, n, open->head_dim, mean, &squares);
  }
  for (guint d = 0; d < open->head_dim; d++)
    mean[d] /= n;
  squares = squares / n - lychee_square (mean, open->head_dim);
  open->spread[leaf] = lychee_spread_encode (squares > 0 ? sqrtf (squares / open->head_dim) : 0);
}

/* Makes leaves of the sorter's rows at .. at + n - 1, added to the open node. */
static void
build_leaves (Writer *writer, guint at, guint n)
{
  LycheeOpenNode *open = writer->open;
  guint left;

  if (n <= writer->index->params.leaf_capacity) {
    guint leaf = open->n_leaves++;

    open->count[leaf] = n;
    open->touched[leaf] = TRUE;
    open->sum[leaf] = NULL;
    memcpy (open->id + (gsize) leaf * open->stride, writer->sorter->id + at, n * sizeof *open->id);
    return;
  }
  left = lychee_sorter_split (writer->sorter, at, n, LEAST_LEAF);
  build_leaves (writer, at, left);
  build_leaves (writer, at + left, n - left);
}

/* The least of the @n largest ids of the open node, which are all different. */
static guint32
find_newest (const LycheeOpenNode *open, const guint32 *id, guint n)
{
  guint32 least = 0, end = G_MAXUINT32; /* so many have ids from least on; fewer from end on */

  while (end - least > 1) {
    guint32 middle = least + (end - least) / 2;
    guint count = 0;

    for (guint i = 0; i < open->n_rows; i++)
      count += id[i] >= middle;
    if (count >= n)
      least = middle;
    else
      end = middle;
  }
  return least;
}

/* Brings the sum of the values in writer->mean up to date. What was summed before needs no reading:
 * ids grow, so what has come since are the newest rows. */
static void
sum_values (Writer *writer, const LycheeSummary *summary)
{
  LycheeOpenNode *open = writer->open;
  const guint16 **row = writer->sorter->key_spare;
  guint32 *id = writer->sorter->id_spare, newest = 0;
  guint dim = open->head_dim, n = 0;

  for (guint leaf = 0; leaf < open->n_leaves; leaf++) {
    memcpy (id + n, open->id + (gsize) leaf * open->stride, open->count[leaf] * sizeof *id);
    n += open->count[leaf];
  }
  memset (writer->mean, 0, dim * sizeof *writer->mean);
  if (open->fresh > 0 && open->fresh < n) {
    newest = find_newest (open, id, n - open->fresh);
    for (guint d = 0; d < dim; d++)
      writer->mean[d] = open->fresh * summary->value_scale * summary->value_code[d];
  }
  n = 0;
  for (guint i = 0; i < open->n_rows; i++)
    if (id[i] >= newest)
      row[n++] = lychee_rows_key (writer->rows, dim, id[i]) + writer->rows->value_offset;
  writer->sorter->kernels->sum_rows (row, n, dim, writer->mean, NULL);
}

/* Computes the coarse mean key and value, and all leaves' codes. */
static void
refresh_open (Writer *writer, LycheeSummary *summary)
{
  LycheeOpenNode *open = writer->open;
  LycheeIndex *index = writer->index;
  guint dim = open->head_dim;

  memset (writer->mean, 0, dim * sizeof *writer->mean);
  for (guint leaf = 0; leaf < open->n_leaves; leaf++) {
    const float *mean = open->mean + (gsize) leaf * dim;
    float weight = (float) open->count[leaf] / open->n_rows;

    leaf_mean (writer, leaf);
    for (guint d = 0; d < dim; d++)
      writer->mean[d] += weight * mean[d];
  }
  lychee_code_encode (writer->mean, dim, summary->code, &summary->scale);
  for (guint leaf = 0; leaf < open->n_leaves; leaf++)
    lychee_open_node_encode (open, index, leaf, summary->code, summary->scale);

  sum_values (writer, summary);
  for (guint d = 0; d < dim; d++)
    writer->mean[d] /= open->n_rows;
  lychee_code_encode (writer->mean, dim, summary->value_code, &summary->value_scale);
  open->fresh = open->n_rows;
}

/* The summaries that a build makes; their codes are [2][head_dim] each, in one array. */
typedef struct {
  GArray *summaries; /* LycheeSummary, code and value_code unset */
  GByteArray *codes;
} Built;

static void
built_init (Built *built)
{
  built->summaries = g_array_new (FALSE, FALSE, sizeof (LycheeSummary));
  built->codes = g_byte_array_new ();
}

static void
built_clear (Built *built)
{
  g_array_unref (built->summaries);
  g_byte_array_unref (built->codes);
}

static LycheeSummary *
built_get (Built *built, guint i, guint dim)
{
  LycheeSummary *summary = &g_array_index (built->summaries, LycheeSummary, i);

  summary->code = (gint8 *) built->codes->data + (gsize) i * 2 * dim;
  summary->value_code = summary->code + dim;
  return summary;
}

static void
build_node (Writer *writer, guint at, guint n, guint limit, Built *built)
{
  LycheeIndex *index = writer->index;
  LycheeOpenNode *open = writer->open;
  guint dim = open->head_dim;
  LycheeSummary *summary;

  g_array_set_size (built->summaries, built->summaries->len + 1);
  g_byte_array_set_size (built->codes, built->codes->len + 2 * dim);
  summary = built_get (built, built->summaries->len - 1, dim);
  open->n_leaves = 0;
  open->fresh = 0;
  open->n_rows = open->built = n;
  if (limit == 0)
    limit = next_limit (index);
  open->limit = MAX (n, limit);
  build_leaves (writer, at, n);
  refresh_open (writer, summary);
  summary->n_rows = n;
  summary->child = lychee_open_node_pack (open, index);
  index->bytes += lychee_node_bytes (index, summary->child);
}

static void
build_nodes (Writer *writer, guint at, guint n, gboolean split, Built *built)
{
  guint left;

  if (n <= writer->index->params.coarse_capacity && !split) {
    build_node (writer, at, n, 0, built);
    return;
  }
  left = lychee_sorter_split (writer->sorter, at, n, LEAST_NODE);
  build_nodes (writer, at, left, FALSE, built);
  build_nodes (writer, at + left, n - left, FALSE, built);
}

static void
load_open (Writer *writer)
{
  LycheeOpenNode *open = writer->open;
  guint n = 0;

  for (guint leaf = 0; leaf < open->n_leaves; leaf++)
    for (guint i = 0; i < open->count[leaf]; i++)
      lychee_sorter_set (writer->sorter, n++, open->id[(gsize) leaf * open->stride + i]);
}

/* Splits leaves that hold more than they may. */
static void
split_leaves (Writer *writer)
{
  LycheeOpenNode *open = writer->open;

  for (guint leaf = 0, n_leaves = open->n_leaves; leaf < n_leaves; leaf++) {
    guint n = open->count[leaf], last;

    if (n <= writer->index->params.leaf_capacity)
      continue;
    for (guint i = 0; i < n; i++)
      lychee_sorter_set (writer->sorter, i, open->id[(gsize) leaf * open->stride + i]);
    build_leaves (writer, 0, n);
    writer->index->splits++;
    /* The last of the new ones takes the place of the one that was split. */
    last = --open->n_leaves;
    open->count[leaf] = open->count[last];
    open->touched[leaf] = TRUE;
    open->sum[leaf] = NULL;
    memcpy (open->id + (gsize) leaf * open->stride, open->id + (gsize) last * open->stride,
        open->count[last] * sizeof *open->id);
  }
}

/* Writes the open node back as child @i. */
static void
close_node (Writer *writer, LycheeBranch *branch, guint i)
{
  LycheeIndex *index = writer->index;
  LycheeOpenNode *open = writer->open;
  guint dim = open->head_dim;
  LycheeNode *old = branch->child[i];
  LycheeSummary summary = { .n_rows = open->n_rows,
    .scale = branch->scale[i],
    .code = branch->code + (gsize) i * dim,
    .value_scale = branch->value_scale[i],
    .value_code = branch->value_code + (gsize) i * dim };

  /* The coarse means lag by an eighth of the rows at most; the leaves never do. */
  if (open->n_rows * 8 >= open->fresh * 9 || open->n_rows < open->fresh) {
    refresh_open (writer, &summary);
  } else {
    for (guint leaf = 0; leaf < open->n_leaves; leaf++)
      if (open->touched[leaf]) {
        leaf_mean (writer, leaf);
        lychee_open_node_encode (open, index, leaf, summary.code, summary.scale);
      }
  }
  summary.child = lychee_open_node_pack (open, index);
  index->bytes += lychee_node_bytes (index, summary.child) - lychee_node_bytes (index, old);
  lychee_branch_set (index, branch, i, &summary);
  lychee_node_unref (old);
}

static guint
find_nearest_leaf (const LycheeOpenNode *open, const float *x)
{
  guint nearest = 0;
  float least = G_MAXFLOAT;

  for (guint leaf = 0; leaf < open->n_leaves; leaf++) {
    float d = lychee_distance (x, open->mean + (gsize) leaf * open->head_dim, open->head_dim);

    if (d < least) {
      least = d;
      nearest = leaf;
    }
  }
  return nearest;
}

/* Rows on their way into the index. */
typedef struct {
  guint32 id;
  const float *x;   /* the key */
  const float *sum; /* of the leaf that it goes to, or NULL: is found from rows */
  gint32 leaf;      /* that it goes to; -1: is to be found */
} Row;

/* Has the keys of a leaf fetched: they lie anywhere. */
static void
fetch_leaf (const Writer *writer, guint leaf)
{
  const LycheeOpenNode *open = writer->open;
  const guint32 *id = open->id + (gsize) leaf * open->stride;

  for (guint i = 0; i < open->count[leaf] && !open->sum[leaf]; i++)
    lychee_prefetch (
        lychee_rows_key (writer->rows, open->head_dim, id[i]), open->head_dim * sizeof (guint16));
}

/* Puts rows into child @i of @branch. */
static void
node_append (Writer *writer, LycheeBranch *branch, guint i, const Row *row, guint n)
{
  LycheeIndex *index = writer->index;
  LycheeOpenNode *open = writer->open;
  LycheeNode *node = branch->child[i];
  guint dim = open->head_dim;
  gboolean split, grown;

  lychee_open_node_read (open, index, node, branch->code + (gsize) i * dim, branch->scale[i]);
  for (guint j = 0; j < n; j++) {
    gboolean placed = row[j].leaf >= 0 && (guint) row[j].leaf < open->n_leaves;
    guint leaf = placed ? (guint) row[j].leaf : find_nearest_leaf (open, row[j].x);

    open->id[(gsize) leaf * open->stride + open->count[leaf]++] = row[j].id;
    /* The first that goes to a leaf has its sum; one that was not placed makes it wrong. */
    if (!placed || !open->touched[leaf])
      open->sum[leaf] = placed ? row[j].sum : NULL;
    open->touched[leaf] = TRUE;
  }
  open->n_rows += n;
  branch->n_rows += n;
  branch->changed = TRUE;
  split = open->n_rows > open->limit;
  grown = open->n_rows * 2 >= open->built * 3;
  for (guint leaf = 0; leaf < open->n_leaves; leaf++)
    if (split || grown || open->touched[leaf])
      fetch_leaf (writer, leaf);

  if (split || grown) {
    Built built;

    built_init (&built);
    load_open (writer);
    if (split) {
      build_nodes (writer, 0, open->n_rows, TRUE, &built);
      index->splits++;
    } else {
      build_node (writer, 0, open->n_rows, open->limit, &built);
      index->rebuilds++;
    }
    index->bytes -= lychee_node_bytes (index, node);
    lychee_branch_set (index, branch, i, built_get (&built, 0, dim));
    for (guint k = 1; k < built.summaries->len; k++)
      lychee_branch_add (index, branch, built_get (&built, k, dim));
    lychee_node_unref (node);
    built_clear (&built);
    return;
  }
  split_leaves (writer);
  close_node (writer, branch, i);
}

/* The tree */

/* After children have changed: takes out empty branches, splits full ones, brings counts and means
 * up to date. */
static void
settle (LycheeIndex *index, LycheeBranch *branch)
{
  guint dim = index->params.head_dim;
  g_autofree gint8 *code = NULL;

  if (!branch->changed)
    return;
  branch->changed = FALSE;
  if (branch->level > 1) {
    code = g_new (gint8, dim);
    for (guint i = 0; i < branch->n; i++) {
      LycheeBranch *child = branch->child[i];

      if (!child->changed)
        continue;
      settle (index, child);
      if (child->n == 0) {
        lychee_branch_free_shell (index, child);
        lychee_branch_move (index, branch, i--, branch, --branch->n);
        continue;
      }
      if (child->n > LYCHEE_BRANCH_MAX) {
        LycheeBranch *sibling = lychee_branch_split (index, child);
        LycheeSummary summary = { .code = code };

        lychee_branch_summarise (index, sibling, &summary);
        sibling->fresh = 0;
        lychee_branch_add (index, branch, &summary);
        i--;
        continue;
      }
      if (child->n_rows * 8 >= child->fresh * 9 || child->n_rows < child->fresh) {
        LycheeSummary summary = { .code = code };

        lychee_branch_summarise (index, child, &summary);
        lychee_branch_set (index, branch, i, &summary);
        child->fresh = child->n_rows;
      } else {
        branch->count[i] = child->n_rows;
        branch->log_count[i] = logf (child->n_rows);
      }
    }
  }
  lychee_branch_count (branch);
}

static void
settle_root (LycheeIndex *index)
{
  LycheeBranch *root = index->root;

  settle (index, root);
  while (root->n > LYCHEE_BRANCH_MAX) {
    LycheeBranch *parent = lychee_branch_new (index, root->level + 1, 8);
    g_autofree gint8 *code = g_new (gint8, index->params.head_dim);
    LycheeSummary summary = { .code = code };

    root->changed = TRUE;
    root->fresh = 0;
    lychee_branch_summarise (index, root, &summary);
    lychee_branch_add (index, parent, &summary);
    index->root = root = parent;
    settle (index, root);
  }
  while (root->level > 1 && root->n == 1) {
    index->root = root->child[0];
    lychee_branch_free_shell (index, root);
    root = index->root;
  }
  if (root->n == 0) {
    lychee_branch_free_shell (index, root);
    index->root = NULL;
  }
}

static void
set_nodes (LycheeIndex *index, Built *built)
{
  guint dim = index->params.head_dim, n = built->summaries->len, level = 1, at = 0;
  guint n_branches = (n + LYCHEE_BRANCH_MAX * 3 / 4 - 1) / (LYCHEE_BRANCH_MAX * 3 / 4);
  g_autoptr (GPtrArray) branches = g_ptr_array_new ();
  g_autofree gint8 *code = g_new (gint8, dim);

  /* Neighbours in the order of a recursive bisection are alike: runs of them make good branches. */
  for (guint b = 0; b < n_branches; b++) {
    guint end = (guint) ((guint64) n * (b + 1) / n_branches);
    LycheeBranch *branch = lychee_branch_new (index, level, end - at);

    for (; at < end; at++)
      lychee_branch_add (index, branch, built_get (built, at, dim));
    lychee_branch_count (branch);
    g_ptr_array_add (branches, branch);
  }
  while (branches->len > 1) {
    g_autoptr (GPtrArray) above = g_ptr_array_new ();

    n = branches->len;
    n_branches = (n + LYCHEE_BRANCH_MAX * 3 / 4 - 1) / (LYCHEE_BRANCH_MAX * 3 / 4);
    level++;
    at = 0;
    for (guint b = 0; b < n_branches; b++) {
      guint end = (guint) ((guint64) n * (b + 1) / n_branches);
      LycheeBranch *branch = lychee_branch_new (index, level, end - at);

      for (; at < end; at++) {
        LycheeBranch *child = branches->pdata[at];
        LycheeSummary summary = { .code = code };

        lychee_branch_summarise (index, child, &summary);
        child->fresh = child->n_rows;
        child->changed = FALSE;
        lychee_branch_add (index, branch, &summary);
      }
      lychee_branch_count (branch);
      g_ptr_array_add (above, branch);
    }
    g_ptr_array_unref (branches);
    branches = g_steal_pointer (&above);
  }
  index->root = branches->pdata[0];
  index->root->changed = FALSE;
}

static void
drop_tree (LycheeIndex *index)
{
  index->bytes -= lychee_branch_get_bytes (index, index->root);
  g_clear_pointer (&index->root, lychee_branch_free);
}

static void
rebuild (Writer *writer, guint begin, guint end)
{
  LycheeIndex *index = writer->index;
  Built built;

  drop_tree (index);
  if (begin == end)
    return;
  built_init (&built);
  for (guint row = begin; row < end; row++)
    lychee_sorter_set (writer->sorter, row - begin, row);
  build_nodes (writer, 0, end - begin, FALSE, &built);
  set_nodes (index, &built);
  index->rebuilds++;
  built_clear (&built);
}

/* Coarse node @number in the order of the tree; less those that were passed by. */
static gboolean
find_node (LycheeBranch *branch, guint *number, LycheePlace *place)
{
  if (branch->level == 1) {
    *place = (LycheePlace){ .branch = branch, .child = *number };
    if (*number < branch->n)
      return TRUE;
    *number -= branch->n;
    return FALSE;
  }
  for (guint i = 0; i < branch->n; i++)
    if (find_node (branch->child[i], number, place))
      return TRUE;
  return FALSE;
}

/* FALSE: not all of @given are places of this index. */
static gboolean
take_places (LycheeIndex *index, const LycheeIndexPlaces *given, guint n, LycheePlace *places)
{
  for (guint i = 0; i < n; i++) {
    guint number = (guint) given->place[i].node;

    if (given->place[i].node < 0 || given->place[i].leaf < 0 ||
        !find_node (index->root, &number, &places[i]))
      return FALSE;
  }
  return TRUE;
}

/* @given: (nullable) */
static void
append_batch (Writer *writer, guint first, guint n, const LycheeIndexPlaces *given)
{
  LycheeIndex *index = writer->index;
  guint dim = index->params.head_dim;
  g_autofree float *x = g_new (float, (gsize) n *dim);
  LycheePlace places[LYCHEE_APPEND_BATCH];
  Row row[LYCHEE_APPEND_BATCH];

  for (guint i = 0; i < n; i++)
    writer->sorter->kernels->read_row (
        lychee_rows_key (writer->rows, dim, first + i), dim, x + (gsize) i * dim);
  if (!given || !take_places (index, given, n, places)) {
    given = NULL;
    lychee_tree_descend (index, x, n, places);
  }
  index->placed += given ? n : 0;
  for (guint i = 0; i < n; i++) {
    const LycheeBranch *branch = places[i].branch;
    guint child = places[i].child;

    lychee_prefetch (branch->child[child],
        lychee_node_get_size (dim, (guint) branch->count[child], branch->n_leaves[child], 2));
  }
  for (guint i = 0; i < n; i++) {
    LycheePlace place = places[i];
    guint together = 0;

    if (!place.branch)
      continue;
    for (guint j = i; j < n; j++)
      if (places[j].branch == place.branch && places[j].child == place.child) {
        row[together++] = (Row){
          .id = first + j,
          .x = x + (gsize) j * dim,
          .sum = given ? given->sums + (gsize) j * (dim + 2) : NULL,
          .leaf = given ? given->place[j].leaf : -1,
        };
        places[j].branch = NULL;
      }
    node_append (writer, place.branch, place.child, row, together);
  }
}

/* Marks all branches above changed ones. */
static gboolean
mark (LycheeBranch *branch)
{
  if (branch->level > 1)
    for (guint i = 0; i < branch->n; i++)
      branch->changed |= mark (branch->child[i]);
  return branch->changed;
}

void
lychee_tree_append (LycheeIndex *index, const LycheeRows *rows, guint first, guint n,
    const LycheeIndexPlaces *places)
{
  guint begin = index->root ? index->begin : first, held = first - begin;
  Writer writer;

  if (held == 0 || (n >= BULK && n >= held)) {
    writer_init (&writer, index, rows, held + n);
    rebuild (&writer, begin, first + n);
  } else {
    writer_init (&writer, index, rows, 0);
    for (guint i = 0, batch; i < n; i += batch) {
      batch = MIN (n - i, LYCHEE_APPEND_BATCH);
      append_batch (&writer, first + i, batch, places);
      mark (index->root);
      settle_root (index);
    }
  }
  writer_clear (&writer);
}

void
lychee_tree_rebuild (LycheeIndex *index, const LycheeRows *rows)
{
  Writer writer;

  writer_init (&writer, index, rows, index->end - index->begin);
  rebuild (&writer, index->begin, index->end);
  writer_clear (&writer);
}

static void
cut_branch (Writer *writer, LycheeBranch *branch, guint begin, guint end)
{
  LycheeIndex *index = writer->index;
  LycheeOpenNode *open = writer->open;
  guint dim = index->params.head_dim;

  branch->changed = TRUE;
  for (guint i = 0; i < branch->n; i++) {
    LycheeNode *node;
    const guint8 *ids;
    guint n_left = 0;

    if (branch->level > 1) {
      cut_branch (writer, branch->child[i], begin, end);
      continue;
    }
    node = branch->child[i];
    ids = lychee_node_get_ids (node, dim);
    for (guint row = 0; row < node->n_rows; row++) {
      guint32 id = lychee_node_id (ids, node->id_bytes, row);

      n_left += id >= begin && id < end;
    }
    if (n_left == node->n_rows)
      continue;
    if (n_left == 0) {
      index->bytes -= lychee_node_bytes (index, node);
      lychee_node_unref (node);
      lychee_branch_move (index, branch, i--, branch, --branch->n);
      continue;
    }
    lychee_open_node_read (open, index, node, branch->code + (gsize) i * dim, branch->scale[i]);
    open->n_rows = n_left;
    for (guint leaf = 0; leaf < open->n_leaves; leaf++) {
      guint32 *id = open->id + (gsize) leaf * open->stride;
      guint kept = 0, last;

      for (guint row = 0; row < open->count[leaf]; row++)
        if (id[row] >= begin && id[row] < end)
          id[kept++] = id[row];
      open->count[leaf] = kept;
      if (kept > 0)
        continue;
      last = --open->n_leaves;
      open->count[leaf] = open->count[last];
      memcpy (id, open->id + (gsize) last * open->stride, open->count[last] * sizeof *id);
      leaf--;
    }
    open->built = MIN (open->built, n_left);
    open->fresh = open->n_rows + 1; /* all of it is computed anew */
    close_node (writer, branch, i);
  }
}

void
lychee_tree_cut (LycheeIndex *index, const LycheeRows *rows, guint begin, guint end)
{
  LycheeIndexStats stats = { 0 };
  Writer writer;

  writer_init (&writer, index, rows, end > begin ? end - begin : 0);
  cut_branch (&writer, index->root, begin, end);
  settle_root (index);
  lychee_tree_get_stats (index->root, &stats);
  /* What is left may be many nodes with little in each. */
  if (stats.n_coarse > 4 &&
      end - begin < (guint64) stats.n_coarse * index->params.coarse_capacity / 8)
    rebuild (&writer, begin, end);
  writer_clear (&writer);
}

static void
refresh_branch (Writer *writer, LycheeBranch *branch)
{
  guint dim = writer->index->params.head_dim;

  branch->changed = TRUE;
  branch->fresh = branch->n_rows + 1;
  for (guint i = 0; i < branch->n; i++)
    if (branch->level > 1) {
      refresh_branch (writer, branch->child[i]);
    } else {
      lychee_open_node_read (writer->open, writer->index, branch->child[i],
          branch->code + (gsize) i * dim, branch->scale[i]);
      writer->open->fresh = writer->open->n_rows + 1;
      close_node (writer, branch, i);
    }
}

void
lychee_tree_refresh (LycheeIndex *index, const LycheeRows *rows)
{
  Writer writer;

  if (!index->root)
    return;
  writer_init (&writer, index, rows, 0);
  refresh_branch (&writer, index->root);
  settle_root (index);
  writer_clear (&writer);
}
