/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An index as bytes, in the byte order of the machine: what is read back finds the same, bit for
 * bit. What is derived is not written. Bytes may come from anywhere: nothing in them is believed
 * that could lead outside of memory. */
#include "lychee-index-private.h"

#include <math.h>

#define MAX_LEVEL 8
#define MAX_CHILDREN 4096

void
lychee_put_bytes (GByteArray *to, gconstpointer data, gsize size)
{
  g_byte_array_append (to, data, size);
}

gconstpointer
lychee_take_bytes (LycheeBytes *from, gsize size)
{
  const guint8 *data = from->at;

  if (size > (gsize) (from->end - from->at)) {
    from->at = from->end;
    return NULL;
  }
  from->at += size;
  return data;
}

gboolean
lychee_copy_bytes (LycheeBytes *from, gpointer to, gsize size)
{
  gconstpointer data = lychee_take_bytes (from, size);

  if (data)
    memcpy (to, data, size);
  return data != NULL;
}

typedef struct {
  guint32 granularity, head_dim;
  guint32 begin, end;
  guint64 n_made, splits, rebuilds, rows_rebuilt;
  guint32 has_root, has_seen;
} Head;

static void
write_branch (const LycheeIndex *index, const LycheeBranch *branch, GByteArray *to)
{
  guint32 head[] = { branch->level, branch->n, branch->fresh, branch->changed };
  guint n = branch->n, dim = index->params.head_dim;

  lychee_put_bytes (to, head, sizeof head);
  lychee_put_bytes (to, branch->scale, n * sizeof (float));
  lychee_put_bytes (to, branch->minus_half, n * sizeof (float));
  lychee_put_bytes (to, branch->code, (gsize) n * dim);
  if (branch->level == 1) {
    lychee_put_bytes (to, branch->value_scale, n * sizeof (float));
    lychee_put_bytes (to, branch->value_code, (gsize) n * dim);
  }
  for (guint i = 0; i < n; i++)
    if (branch->level > 1) {
      write_branch (index, branch->child[i], to);
    } else {
      const LycheeNode *node = branch->child[i];

      lychee_put_bytes (to, node, lychee_node_bytes (index, node));
    }
}

/* Whether what a search, a cut and an append take for granted of a node holds. */
static gboolean
check_node (const LycheeIndex *index, const LycheeNode *node, gsize size)
{
  guint dim = index->params.head_dim, n_rows = 0;
  const guint8 *counts, *ids;

  if (node->n_leaves == 0 || node->n_rows < node->n_leaves || node->id_bytes < 2 ||
      node->id_bytes > 4 || node->n_rows > index->params.coarse_capacity ||
      node->limit > index->params.coarse_capacity || size != lychee_node_bytes (index, node))
    return FALSE;
  counts = lychee_node_get_counts (node);
  for (guint i = 0; i < node->n_leaves; i++) {
    if (counts[i] == 0 || counts[i] > index->params.leaf_capacity)
      return FALSE;
    n_rows += counts[i];
  }
  if (n_rows != node->n_rows)
    return FALSE;
  ids = lychee_node_get_ids (node, dim);
  for (guint i = 0; i < n_rows; i++) {
    guint32 id = lychee_node_id (ids, node->id_bytes, i);

    if (id < index->begin || id >= index->end)
      return FALSE;
  }
  return TRUE;
}

/* (transfer full) (nullable) */
static LycheeNode *
read_node (const LycheeIndex *index, LycheeBytes *from)
{
  LycheeBytes ahead = *from;
  LycheeNode head, *node;
  gconstpointer data;
  gsize size;

  if (!lychee_copy_bytes (&ahead, &head, sizeof head) || head.n_leaves == 0 || head.id_bytes > 4)
    return NULL;
  size = lychee_node_bytes (index, &head);
  data = lychee_take_bytes (from, size);
  if (!data)
    return NULL;
  node = g_memdup2 (data, size);
  node->refs = 1;
  if (check_node (index, node, size))
    return node;
  g_free (node);
  return NULL;
}

/* (transfer full) (nullable) */
static LycheeBranch *
read_branch (LycheeIndex *index, LycheeBytes *from, guint level)
{
  guint dim = index->params.head_dim, n;
  LycheeBranch *branch;
  guint32 head[4];
  gboolean ok;

  if (!lychee_copy_bytes (from, head, sizeof head) || head[0] != level || head[1] == 0 ||
      head[1] > MAX_CHILDREN || head[1] > (gsize) (from->end - from->at) / dim)
    return NULL;
  n = head[1];
  branch = lychee_branch_new (index, level, n);
  ok = lychee_copy_bytes (from, branch->scale, n * sizeof (float)) &&
       lychee_copy_bytes (from, branch->minus_half, n * sizeof (float)) &&
       lychee_copy_bytes (from, branch->code, (gsize) n * dim) &&
       (level > 1 || (lychee_copy_bytes (from, branch->value_scale, n * sizeof (float)) &&
                         lychee_copy_bytes (from, branch->value_code, (gsize) n * dim)));
  for (guint i = 0; ok && i < n; i++) {
    gpointer child = level > 1 ? (gpointer) read_branch (index, from, level - 1)
                               : (gpointer) read_node (index, from);
    guint n_rows;

    ok = child != NULL;
    if (!ok)
      break;
    if (level > 1) {
      n_rows = ((LycheeBranch *) child)->n_rows;
    } else {
      n_rows = ((LycheeNode *) child)->n_rows;
      branch->n_leaves[i] = ((LycheeNode *) child)->n_leaves;
      index->bytes += lychee_node_bytes (index, child);
    }
    branch->child[i] = child;
    branch->count[i] = n_rows;
    branch->log_count[i] = logf ((float) n_rows);
    branch->n_rows += n_rows;
    branch->n++;
  }
  if (!ok) {
    lychee_branch_free (branch);
    return NULL;
  }
  branch->fresh = head[2];
  branch->changed = head[3] != 0;
  return branch;
}

void
lychee_index_write (const LycheeIndex *index, GByteArray *to)
{
  Head head = { .granularity = index->params.granularity,
    .head_dim = index->params.head_dim,
    .begin = index->begin,
    .end = index->end,
    .n_made = index->n_made,
    .splits = index->splits,
    .rebuilds = index->rebuilds,
    .rows_rebuilt = index->rows_rebuilt,
    .has_root = index->root != NULL,
    .has_seen = index->seen != NULL };

  lychee_put_bytes (to, &head, sizeof head);
  if (index->seen)
    lychee_put_bytes (to, index->seen, lychee_queries_seen_size (head.head_dim));
  if (index->chunks)
    lychee_chunks_write (index, to);
  else if (index->root)
    write_branch (index, index->root, to);
}

LycheeIndex *
lychee_index_read (const LycheeIndexParams *params, gconstpointer data, gsize size)
{
  LycheeBytes from = { data, (const guint8 *) data + size };
  g_autoptr (LycheeIndex) index = lychee_index_new (params);
  guint32 level;
  Head head;

  if (!lychee_copy_bytes (&from, &head, sizeof head) || head.granularity != params->granularity ||
      head.head_dim != params->head_dim || head.end < head.begin)
    return NULL;
  index->begin = head.begin;
  index->end = head.end;
  index->n_made = head.n_made;
  index->splits = head.splits;
  index->rebuilds = head.rebuilds;
  index->rows_rebuilt = head.rows_rebuilt;
  if (head.has_seen) { /* not in files of before 2026-11-30 */
    gsize seen_size = lychee_queries_seen_size (params->head_dim);
    gconstpointer seen = index->chunks ? NULL : lychee_take_bytes (&from, seen_size);

    if (!seen)
      return NULL;
    index->seen = g_memdup2 (seen, seen_size);
    index->bytes += seen_size;
  }
  if (index->chunks) {
    if (!lychee_chunks_read (index, &from))
      return NULL;
  } else if (head.has_root) {
    if ((gsize) (from.end - from.at) < sizeof level)
      return NULL;
    memcpy (&level, from.at, sizeof level);
    if (level < 1 || level > MAX_LEVEL)
      return NULL;
    index->root = read_branch (index, &from, level);
    if (!index->root || index->root->n_rows != head.end - head.begin)
      return NULL;
  } else if (head.begin != head.end) {
    return NULL;
  }
  return from.at == from.end ? g_steal_pointer (&index) : NULL;
}
