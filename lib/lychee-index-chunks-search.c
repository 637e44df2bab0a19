/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Search of an index with granularity chunk, and its bytes. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-chunks-private.h"

#include <math.h>

typedef struct {
  guint unit, cluster;
  float score;
} Found;

/* score[j] = sum over queries of exp (z_hj + s |q_h| r_j - m_h): it grows with each query's bound,
 * so that of a unit is never below that of a cluster beneath it. */
static float
bound_score (const float *z, gsize stride, const float *lengths, const float *m, guint n_queries,
    float radius)
{
  float score = 0;

  for (guint h = 0; h < n_queries; h++)
    score += expf (MIN (z[h * stride] + lengths[h] * radius - m[h], 80.f));
  return score >= 0 ? score : 0; /* a query that is not a number */
}

static int
by_score (gconstpointer a, gconstpointer b)
{
  const Found *x = a, *y = b;

  if (x->score != y->score)
    return x->score > y->score ? -1 : 1;
  if (x->unit != y->unit)
    return x->unit < y->unit ? -1 : 1;
  return x->cluster < y->cluster ? -1 : 1;
}

static guint
cluster_rows (const LycheeChunkBlock *block, guint dim, guint cluster, guint32 *to, guint most)
{
  guint n = block->n_clusters, before = 0, read = 0;
  const guint8 *count = block->data + 4 * n, *item = block->data + n * (5 + dim / 2);

  for (guint i = 0; i < cluster; i++)
    before += count[i];
  item += (gsize) before * (block->id_bytes + 1);
  for (guint i = 0; i < count[cluster]; i++, item += block->id_bytes + 1) {
    guint32 first = lychee_node_id (item, block->id_bytes, 0);

    for (guint row = 0; row < item[block->id_bytes] && read < most; row++, read++)
      if (to)
        to[read] = first + row;
  }
  return read;
}

void
lychee_chunks_search (
    const LycheeIndex *index, const LycheeIndexQuery *query, LycheeSelection *selection)
{
  const LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim, n_queries = query->n_queries, n_units = chunks->n, read = 0;
  float s = index->params.scale, nothing[LYCHEE_CHUNKS_MAX_UNITS] = { 0 };
  LycheeQueries queries = { n_queries, dim, s, query->q };
  g_autofree float *z = g_new (float, (gsize) n_queries *LYCHEE_CHUNKS_MAX_UNITS);
  g_autofree float *base_z = g_new (float, (gsize) n_queries *LYCHEE_CHUNKS_MAX_UNITS);
  g_autofree float *lengths = g_new (float, n_queries), *m = g_new (float, n_queries);
  g_autoptr (GArray) found = g_array_new (FALSE, FALSE, sizeof (Found));
  Found units[LYCHEE_CHUNKS_MAX_UNITS];
  gboolean enough = FALSE;

  index->kernels->score_leaves (
      &queries, chunks->code, chunks->scale, nothing, n_units, z, LYCHEE_CHUNKS_MAX_UNITS);
  index->kernels->score_leaves (&queries, chunks->base, chunks->base_scale, nothing, n_units,
      base_z, LYCHEE_CHUNKS_MAX_UNITS);
  selection->nodes_scored = n_units;
  for (guint h = 0; h < n_queries; h++) {
    lengths[h] = s * sqrtf (lychee_square (query->q + (gsize) h * dim, dim));
    m[h] = -G_MAXFLOAT;
    for (guint i = 0; i < n_units; i++)
      m[h] = MAX (m[h], z[h * LYCHEE_CHUNKS_MAX_UNITS + i] + lengths[h] * chunks->radius[i]);
  }
  for (guint i = 0; i < n_units; i++)
    units[i] = (Found){ i, 0,
      bound_score (z + i, LYCHEE_CHUNKS_MAX_UNITS, lengths, m, n_queries, chunks->radius[i]) };
  qsort (units, n_units, sizeof *units, by_score);

  for (guint u = 0; u < n_units && !enough; u++) {
    guint at = units[u].unit, n = chunks->block[at]->n_clusters, held = 0;
    const LycheeChunkBlock *block = chunks->block[at];
    const guint16 *scales = (const guint16 *) (gconstpointer) block->data;
    g_autofree gint8 *code = g_new (gint8, (gsize) n * dim);
    g_autofree float *numbers = g_new0 (float, (gsize) n *(3 + n_queries));
    float *scale = numbers, *radius = scale + n, *zero = radius + n, *cluster_z = zero + n;

    lychee_code_unpack (block->data + 5 * n, n, dim, code);
    index->kernels->f16_to_f32 (scales, scale, 2 * n);
    index->kernels->score_leaves (&queries, code, scale, zero, n, cluster_z, n);
    for (guint h = 0; h < n_queries; h++)
      for (guint i = 0; i < n; i++)
        cluster_z[h * n + i] += base_z[h * LYCHEE_CHUNKS_MAX_UNITS + at];
    for (guint i = 0; i < n; i++) {
      Found one = { at, i, bound_score (cluster_z + i, n, lengths, m, n_queries, radius[i]) };

      g_array_append_val (found, one);
    }
    selection->nodes_scored += n;
    /* Pruned: no cluster of the units that are left can beat these. */
    if (u + 1 < n_units)
      for (guint i = 0; i < found->len && !enough; i++) {
        const Found *one = &g_array_index (found, Found, i);

        if (one->score > units[u + 1].score) {
          held += cluster_rows (chunks->block[one->unit], dim, one->cluster, NULL, G_MAXUINT);
          enough = held >= query->budget;
        }
      }
  }
  g_array_sort (found, by_score);
  for (guint i = 0; i < found->len && read < query->budget; i++) {
    const Found *one = &g_array_index (found, Found, i);

    read += cluster_rows (
        chunks->block[one->unit], dim, one->cluster, selection->rows + read, query->budget - read);
  }
  selection->n_rows = read;
}

void
lychee_chunks_write (const LycheeIndex *index, GByteArray *to)
{
  const LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim, n = chunks->n;

  lychee_put_bytes (to, &n, sizeof n);
  lychee_put_bytes (to, chunks->scale, n * sizeof (float));
  lychee_put_bytes (to, chunks->radius, n * sizeof (float));
  lychee_put_bytes (to, chunks->base_scale, n * sizeof (float));
  lychee_put_bytes (to, chunks->code, (gsize) n * dim);
  lychee_put_bytes (to, chunks->base, (gsize) n * dim);
  for (guint i = 0; i < n; i++) {
    const LycheeChunkBlock *block = chunks->block[i];

    lychee_put_bytes (to, block,
        lychee_chunk_block_size (dim, block->n_clusters, block->n_items, block->id_bytes));
  }
}

/* Whether what others take for granted of a block holds. */
static gboolean
check_block (const LycheeIndex *index, const LycheeChunkBlock *block)
{
  guint n = block->n_clusters, n_items = 0, n_rows = 0;
  const guint8 *count = block->data + 4 * n;
  const guint8 *item = block->data + (gsize) n * (5 + index->params.head_dim / 2);

  for (guint i = 0; i < n; i++) {
    if (count[i] == 0 || count[i] > LYCHEE_CHUNKS_MAX_ITEMS)
      return FALSE;
    n_items += count[i];
  }
  if (n == 0 || n_items != block->n_items)
    return FALSE;
  for (guint i = 0; i < n_items; i++, item += block->id_bytes + 1) {
    guint32 first = lychee_node_id (item, block->id_bytes, 0);
    guint rows = item[block->id_bytes];

    if (rows == 0 || rows > LYCHEE_CHUNKS_MAX_ROWS || first < index->begin || first >= index->end ||
        rows > index->end - first)
      return FALSE;
    n_rows += rows;
  }
  return n_rows == block->n_rows;
}

gboolean
lychee_chunks_read (LycheeIndex *index, LycheeBytes *from)
{
  LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim, n;

  if (!lychee_copy_bytes (from, &n, sizeof n) || n > LYCHEE_CHUNKS_MAX_UNITS)
    return FALSE;
  if (n == 0)
    return index->begin == index->end;
  lychee_chunks_reserve (chunks, dim, n);
  if (!lychee_copy_bytes (from, chunks->scale, n * sizeof (float)) ||
      !lychee_copy_bytes (from, chunks->radius, n * sizeof (float)) ||
      !lychee_copy_bytes (from, chunks->base_scale, n * sizeof (float)) ||
      !lychee_copy_bytes (from, chunks->code, (gsize) n * dim) ||
      !lychee_copy_bytes (from, chunks->base, (gsize) n * dim))
    return FALSE;
  while (chunks->n < n) {
    LycheeBytes ahead = *from;
    gconstpointer data;
    LycheeChunkBlock head, *block;
    gsize size;

    if (!lychee_copy_bytes (&ahead, &head, sizeof head) || head.id_bytes < 2 || head.id_bytes > 4 ||
        head.n_items > (gsize) (from->end - from->at))
      return FALSE;
    size = lychee_chunk_block_size (dim, head.n_clusters, head.n_items, head.id_bytes);
    data = lychee_take_bytes (from, size);
    if (!data)
      return FALSE;
    block = g_memdup2 (data, size);
    block->refs = 1;
    chunks->block[chunks->n++] = block;
    if (!check_block (index, block))
      return FALSE;
  }
  return TRUE;
}
