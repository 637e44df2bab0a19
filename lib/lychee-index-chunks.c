/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The index with granularity chunk: LycheeCluster (arXiv 2603.08453) as published, but that its
 * clusters split.
 *
 * An item is a chunk, and its key the mean of its keys, at unit length. Fine clusters of about four
 * items, made by spherical k-means, lie under at most 64 coarse units; both have a centroid c of
 * unit length and a radius r, the largest distance of an item from it, so that for each item x
 * beneath, q.x <= q.c + |q| r (Cauchy and Schwarz): units are opened best bound first, and no more
 * once the next bound cannot win. What is not read is dropped.
 *
 * A unit's block is never changed once it is published: copies of an index share it. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-chunks-private.h"

#include <math.h>

#define MAX_CLUSTERS 24 /* of a unit that may still split */
#define CUT_ROWS 16     /* rows of an item, where a longer run is cut */
#define PASSES 6

typedef struct {
  guint count;
  guint32 first[LYCHEE_CHUNKS_MAX_ITEMS + 1];
  guint8 n_rows[LYCHEE_CHUNKS_MAX_ITEMS + 1];
  gboolean touched;
  guint16 scale, radius;
  float center[256];
} Cluster;

/* A unit taken apart, to be changed. */
typedef struct {
  GArray *clusters; /* Cluster */
  float base[256];
  float center[256], radius;
} Unit;

static gsize
units_size (guint dim, guint capacity)
{
  return capacity * (sizeof (LycheeChunkBlock *) + 3 * sizeof (float) + 2 * dim);
}

LycheeChunkBlock *
lychee_chunk_block_ref (LycheeChunkBlock *block)
{
  g_atomic_int_inc (&block->refs);
  return block;
}

void
lychee_chunk_block_unref (LycheeChunkBlock *block)
{
  if (g_atomic_int_dec_and_test (&block->refs))
    g_free (block);
}

void
lychee_chunks_reserve (LycheeChunkIndex *chunks, guint dim, guint capacity)
{
  chunks->capacity = capacity;
  chunks->block = g_renew (LycheeChunkBlock *, chunks->block, capacity);
  chunks->scale = g_renew (float, chunks->scale, capacity);
  chunks->radius = g_renew (float, chunks->radius, capacity);
  chunks->base_scale = g_renew (float, chunks->base_scale, capacity);
  chunks->code = g_renew (gint8, chunks->code, (gsize) capacity * dim);
  chunks->base = g_renew (gint8, chunks->base, (gsize) capacity * dim);
}

LycheeChunkIndex *
lychee_chunks_copy (const LycheeIndex *index)
{
  const LycheeChunkIndex *from = index->chunks;
  LycheeChunkIndex *copy = g_new0 (LycheeChunkIndex, 1);
  guint dim = index->params.head_dim;

  if (from->capacity == 0)
    return copy;
  lychee_chunks_reserve (copy, dim, from->capacity);
  copy->n = from->n;
  memcpy (copy->scale, from->scale, from->n * sizeof (float));
  memcpy (copy->radius, from->radius, from->n * sizeof (float));
  memcpy (copy->base_scale, from->base_scale, from->n * sizeof (float));
  memcpy (copy->code, from->code, (gsize) from->n * dim);
  memcpy (copy->base, from->base, (gsize) from->n * dim);
  for (guint i = 0; i < from->n; i++) {
    copy->block[i] = lychee_chunk_block_ref (from->block[i]);
  }
  return copy;
}

LycheeChunkIndex *
lychee_chunks_new (void)
{
  return g_new0 (LycheeChunkIndex, 1);
}

void
lychee_chunks_free (LycheeChunkIndex *chunks)
{
  if (!chunks)
    return;
  for (guint i = 0; i < chunks->n; i++)
    lychee_chunk_block_unref (chunks->block[i]);
  g_free (chunks->block);
  g_free (chunks->scale);
  g_free (chunks->radius);
  g_free (chunks->base_scale);
  g_free (chunks->code);
  g_free (chunks->base);
  g_free (chunks);
}

gsize
lychee_chunks_get_bytes (const LycheeIndex *index)
{
  const LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim;
  gsize bytes = sizeof *chunks + units_size (dim, chunks->capacity);

  for (guint i = 0; i < chunks->n; i++)
    bytes += lychee_chunk_block_size (
        dim, chunks->block[i]->n_clusters, chunks->block[i]->n_items, chunks->block[i]->id_bytes);
  return bytes;
}

void
lychee_chunks_get_stats (const LycheeIndex *index, LycheeIndexStats *stats)
{
  stats->n_coarse = index->chunks->n;
  stats->depth = index->chunks->n > 0 ? 3 : 0;
  for (guint i = 0; i < index->chunks->n; i++)
    stats->n_leaves += index->chunks->block[i]->n_clusters;
}

/* Vectors */

static float
dot (const float *x, const float *y, guint n)
{
  LycheeLanes sums = { 0 };

  for (guint i = 0; i < n; i += 8)
    sums += *(const LycheeLanes *) (x + i) * *(const LycheeLanes *) (y + i);
  return lychee_sum_lanes (&sums);
}

/* To unit length; nothing stays nothing. */
static void
normalise (float *x, guint n)
{
  float most = lychee_largest (x, n), length;

  if (most == 0)
    return;
  for (guint d = 0; d < n; d++) /* so that squares neither vanish nor overflow */
    x[d] /= most;
  length = sqrtf (lychee_square (x, n));
  for (guint d = 0; d < n; d++)
    x[d] /= length;
}

/* The key of the item of @n rows from @first on. */
static void
item_key (const LycheeIndex *index, const LycheeRows *rows, guint32 first, guint n, float *x)
{
  guint dim = index->params.head_dim;
  const guint16 *row[LYCHEE_CHUNKS_MAX_ROWS];

  for (guint i = 0; i < n; i++)
    row[i] = lychee_rows_key (rows, dim, first + i);
  memset (x, 0, dim * sizeof *x);
  lychee_cpu_kernels_for (index->kernels, rows->form)->sum_rows (row, n, dim, x, NULL);
  normalise (x, dim);
}

/* Units, open and closed */

static void
unit_decode (const LycheeIndex *index, const LycheeChunkBlock *block, guint i, const float *base,
    float *center)
{
  guint dim = index->params.head_dim, half = dim / 2, n = block->n_clusters;
  const guint8 *code = block->data + 5 * n + (gsize) i * half;
  float step;

  index->kernels->f16_to_f32 ((const guint16 *) (gconstpointer) block->data + i, &step, 1);
  for (guint d = 0; d < half; d++) {
    center[d] = base[d] + step * ((code[d] & 15) - 8);
    center[half + d] = base[half + d] + step * ((code[d] >> 4) - 8);
  }
}

static void
unit_read (const LycheeIndex *index, guint at, Unit *unit)
{
  const LycheeChunkIndex *chunks = index->chunks;
  const LycheeChunkBlock *block = chunks->block[at];
  guint dim = index->params.head_dim, n = block->n_clusters;
  const guint16 *scale = (const guint16 *) (gconstpointer) block->data;
  const guint8 *count = block->data + 4 * n;
  const guint8 *item = block->data + n * (5 + dim / 2);

  lychee_code_decode (chunks->base + (gsize) at * dim, chunks->base_scale[at], dim, unit->base);
  g_array_set_size (unit->clusters, n);
  for (guint i = 0; i < n; i++) {
    Cluster *cluster = &g_array_index (unit->clusters, Cluster, i);

    cluster->count = count[i];
    cluster->touched = FALSE;
    cluster->scale = scale[i];
    cluster->radius = scale[n + i];
    unit_decode (index, block, i, unit->base, cluster->center);
    for (guint j = 0; j < cluster->count; j++, item += block->id_bytes + 1) {
      cluster->first[j] = lychee_node_id (item, block->id_bytes, 0);
      cluster->n_rows[j] = item[block->id_bytes];
    }
  }
}

/* The center of a cluster from its rows; as it will be decoded, and the radius around that. */
static void
cluster_encode (const LycheeIndex *index, const LycheeRows *rows, const float *base,
    Cluster *cluster, guint8 *code)
{
  guint dim = index->params.head_dim, half = dim / 2;
  float x[LYCHEE_CHUNKS_MAX_ITEMS][256], difference[256], step, factor, radius = 0;

  memset (difference, 0, sizeof difference);
  for (guint i = 0; i < cluster->count; i++) {
    item_key (index, rows, cluster->first[i], cluster->n_rows[i], x[i]);
    for (guint d = 0; d < dim; d++)
      difference[d] += x[i][d];
  }
  normalise (difference, dim);
  for (guint d = 0; d < dim; d++)
    difference[d] -= base[d];
  step = lychee_largest (difference, dim) / 7;
  index->kernels->f32_to_f16 (&step, &cluster->scale, 1);
  index->kernels->f16_to_f32 (&cluster->scale, &step, 1);
  factor = step > 0 ? 1 / step : 0;
  for (guint d = 0; d < dim; d++) {
    gint c = lychee_round (CLAMP (difference[d] * factor, -7.f, 7.f));

    cluster->center[d] = base[d] + step * c;
    if (d < half)
      code[d] = (guint8) (c + 8);
    else
      code[d - half] |= (guint8) ((c + 8) << 4);
  }
  for (guint i = 0; i < cluster->count; i++)
    radius = MAX (radius, sqrtf (lychee_distance (x[i], cluster->center, dim)));
  /* It is a bound: more than a half float's rounding can take away. */
  radius *= 1.0005f;
  index->kernels->f32_to_f16 (&radius, &cluster->radius, 1);
}

/* Writes @unit as unit @at, in place of @old, whose codes those that are not touched keep. */
static void
unit_write (
    LycheeIndex *index, const LycheeRows *rows, Unit *unit, guint at, const LycheeChunkBlock *old)
{
  LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim, half = dim / 2, n = unit->clusters->len, n_items = 0;
  guint id_bytes, n_rows = 0;
  guint32 largest = 0;
  float radius = 0;
  guint16 *scale;
  guint8 *code, *item;
  LycheeChunkBlock *block;

  for (guint i = 0; i < n; i++) {
    const Cluster *cluster = &g_array_index (unit->clusters, Cluster, i);

    n_items += cluster->count;
    for (guint j = 0; j < cluster->count; j++) {
      largest = MAX (largest, cluster->first[j]);
      n_rows += cluster->n_rows[j];
    }
  }
  id_bytes = largest < 1u << 16 ? 2 : largest < 1u << 24 ? 3 : 4;
  block = g_malloc (lychee_chunk_block_size (dim, n, n_items, id_bytes));
  block->refs = 1;
  block->n_clusters = (guint16) n;
  block->id_bytes = (guint8) id_bytes;
  block->n_items = n_items;
  block->n_rows = n_rows;
  scale = (guint16 *) (gpointer) block->data;
  code = block->data + 5 * n;
  item = code + (gsize) n * half;
  memset (unit->center, 0, sizeof unit->center);
  for (guint i = 0; i < n; i++) {
    Cluster *cluster = &g_array_index (unit->clusters, Cluster, i);

    if (cluster->touched)
      cluster_encode (index, rows, unit->base, cluster, code + (gsize) i * half);
    else /* those that are not touched are where they were */
      memcpy (code + (gsize) i * half, old->data + 5 * old->n_clusters + (gsize) i * half, half);
    scale[i] = cluster->scale;
    scale[n + i] = cluster->radius;
    block->data[4 * n + i] = (guint8) cluster->count;
    for (guint j = 0; j < cluster->count; j++) {
      for (guint b = 0; b < id_bytes; b++)
        *item++ = (guint8) (cluster->first[j] >> 8 * b);
      *item++ = cluster->n_rows[j];
    }
    for (guint d = 0; d < dim; d++)
      unit->center[d] += cluster->count * cluster->center[d];
  }

  normalise (unit->center, dim);
  lychee_code_encode (unit->center, dim, chunks->code + (gsize) at * dim, &chunks->scale[at]);
  lychee_code_decode (chunks->code + (gsize) at * dim, chunks->scale[at], dim, unit->center);
  for (guint i = 0; i < n; i++) {
    const Cluster *cluster = &g_array_index (unit->clusters, Cluster, i);
    float r;

    index->kernels->f16_to_f32 (&cluster->radius, &r, 1);
    radius = MAX (radius, r + sqrtf (lychee_distance (cluster->center, unit->center, dim)));
  }
  chunks->radius[at] = radius * 1.0005f;
  chunks->block[at] = block;
}

/* Sets the base of unit @at to the middle of its clusters: all of them have to be encoded anew. */
static void
unit_rebase (LycheeIndex *index, Unit *unit, guint at)
{
  LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim;
  float base[256] = { 0 };

  for (guint i = 0; i < unit->clusters->len; i++) {
    Cluster *cluster = &g_array_index (unit->clusters, Cluster, i);

    cluster->touched = TRUE;
    for (guint d = 0; d < dim; d++)
      base[d] += cluster->center[d] / unit->clusters->len;
  }
  lychee_code_encode (base, dim, chunks->base + (gsize) at * dim, &chunks->base_scale[at]);
  lychee_code_decode (chunks->base + (gsize) at * dim, chunks->base_scale[at], dim, unit->base);
}

/* Spherical 2-means over @n unit vectors; side[i] says where each belongs. Both sides get a quarter
 * at least. */
static void
split (const float *x, gsize stride, guint n, guint dim, guint8 *side)
{
  float center[2][256] = { 0 }, *leaning = g_newa (float, n);
  guint n_right = 0, least = MAX (1, n / 4);

  /* Seeds: the one least like the first, and the one least like that. */
  memcpy (center[0], x, dim * sizeof *x);
  for (guint seed = 0; seed < 2; seed++) {
    guint far = 0;

    for (guint i = 1; i < n; i++)
      if (dot (x + i * stride, center[0], dim) < dot (x + far * stride, center[0], dim))
        far = i;
    memcpy (center[1], center[0], sizeof center[1]);
    memcpy (center[0], x + far * stride, dim * sizeof *x);
  }
  for (guint pass = 0; pass < PASSES; pass++) {
    n_right = 0;
    for (guint i = 0; i < n; i++) {
      leaning[i] = dot (x + i * stride, center[1], dim) - dot (x + i * stride, center[0], dim);
      side[i] = leaning[i] > 0;
      n_right += side[i];
    }
    if (n_right == 0 || n_right == n)
      break;
    memset (center, 0, sizeof center);
    for (guint i = 0; i < n; i++)
      for (guint d = 0; d < dim; d++)
        center[side[i]][d] += x[i * stride + d];
    normalise (center[0], dim);
    normalise (center[1], dim);
  }
  /* Too few on a side: those that lean that way most, the later first. */
  for (; n_right < least || n_right > n - least;) {
    guint8 to = n_right < least;
    guint best = n;

    for (guint i = 0; i < n; i++)
      if (side[i] != to &&
          (best == n || (to ? leaning[i] >= leaning[best] : leaning[i] <= leaning[best])))
        best = i;
    side[best] = to;
    n_right += to ? 1 : -1;
  }
}

static void
split_cluster (LycheeIndex *index, const LycheeRows *rows, Unit *unit, guint i)
{
  guint dim = index->params.head_dim, n, left = 0;
  Cluster both = g_array_index (unit->clusters, Cluster, i), *first, *second;
  float x[LYCHEE_CHUNKS_MAX_ITEMS + 1][256];
  guint8 side[LYCHEE_CHUNKS_MAX_ITEMS + 1];

  n = both.count;
  for (guint j = 0; j < n; j++)
    item_key (index, rows, both.first[j], both.n_rows[j], x[j]);
  split (x[0], G_N_ELEMENTS (x[0]), n, dim, side);
  g_array_set_size (unit->clusters, unit->clusters->len + 1);
  first = &g_array_index (unit->clusters, Cluster, i);
  second = &g_array_index (unit->clusters, Cluster, unit->clusters->len - 1);
  *second = (Cluster){ .touched = TRUE };
  memset (first->center, 0, sizeof first->center);
  for (guint j = 0; j < n; j++) {
    Cluster *to = side[j] ? second : first;
    guint at = side[j] ? second->count++ : left++;

    to->first[at] = both.first[j];
    to->n_rows[at] = both.n_rows[j];
    for (guint d = 0; d < dim; d++)
      to->center[d] += x[j][d];
  }
  first->count = left;
  first->touched = TRUE;
  normalise (first->center, dim);
  normalise (second->center, dim);
  index->splits++;
}

static void
unit_clear (Unit *unit)
{
  g_array_unref (unit->clusters);
}

static void
unit_init (Unit *unit)
{
  unit->clusters = g_array_new (FALSE, FALSE, sizeof (Cluster));
}

static guint
add_unit (LycheeIndex *index)
{
  LycheeChunkIndex *chunks = index->chunks;

  if (chunks->n == chunks->capacity)
    lychee_chunks_reserve (chunks, index->params.head_dim, chunks->capacity + 4);
  return chunks->n++;
}

static void
split_unit (LycheeIndex *index, const LycheeRows *rows, Unit *unit, guint at)
{
  guint dim = index->params.head_dim, n = unit->clusters->len, left = 0, sibling;
  g_autofree guint8 *side = g_new (guint8, n);
  Unit other;

  unit_init (&other);
  split (g_array_index (unit->clusters, Cluster, 0).center, sizeof (Cluster) / sizeof (float), n,
      dim, side);
  for (guint i = 0; i < n; i++) {
    Cluster cluster = g_array_index (unit->clusters, Cluster, i);

    if (side[i])
      g_array_append_val (other.clusters, cluster);
    else
      g_array_index (unit->clusters, Cluster, left++) = cluster;
  }
  g_array_set_size (unit->clusters, left);
  sibling = add_unit (index);
  unit_rebase (index, unit, at);
  unit_rebase (index, &other, sibling);
  unit_write (index, rows, unit, at, NULL);
  unit_write (index, rows, &other, sibling, NULL);
  unit_clear (&other);
  index->splits++;
}

static void
append_item (LycheeIndex *index, const LycheeRows *rows, guint32 first, guint n)
{
  LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim, at = 0, near = 0;
  float x[256], z[LYCHEE_CHUNKS_MAX_UNITS], nothing[LYCHEE_CHUNKS_MAX_UNITS] = { 0 }, best;
  LycheeQueries query = { 1, dim, 1, x };
  Cluster *cluster;
  LycheeChunkBlock *old = NULL;
  Unit unit;

  item_key (index, rows, first, n, x);
  unit_init (&unit);
  if (chunks->n == 0) {
    Cluster one = { .count = 1, .first = { first }, .n_rows = { (guint8) n } };

    memcpy (one.center, x, dim * sizeof *x);
    g_array_append_val (unit.clusters, one);
    at = add_unit (index);
    unit_rebase (index, &unit, at);
    unit_write (index, rows, &unit, at, NULL);
    unit_clear (&unit);
    return;
  }
  index->kernels->score_leaves (
      &query, chunks->code, chunks->scale, nothing, chunks->n, z, LYCHEE_CHUNKS_MAX_UNITS);
  at = lychee_find_largest (z, chunks->n);
  old = chunks->block[at];
  unit_read (index, at, &unit);
  best = -G_MAXFLOAT;
  for (guint i = 0; i < unit.clusters->len; i++) {
    float likeness = dot (x, g_array_index (unit.clusters, Cluster, i).center, dim);

    if (likeness > best) {
      best = likeness;
      near = i;
    }
  }
  cluster = &g_array_index (unit.clusters, Cluster, near);
  cluster->first[cluster->count] = first;
  cluster->n_rows[cluster->count++] = (guint8) n;
  cluster->touched = TRUE;
  if (cluster->count > LYCHEE_CHUNKS_MAX_ITEMS)
    split_cluster (index, rows, &unit, near);
  if (unit.clusters->len > MAX_CLUSTERS && chunks->n < LYCHEE_CHUNKS_MAX_UNITS)
    split_unit (index, rows, &unit, at);
  else
    unit_write (index, rows, &unit, at, old);
  lychee_chunk_block_unref (old);
  unit_clear (&unit);
}

void
lychee_chunks_append (LycheeIndex *index, const LycheeRows *rows, guint first, guint n)
{
  while (n > 0) {
    guint length = n <= LYCHEE_CHUNKS_MAX_ROWS ? n : CUT_ROWS;

    append_item (index, rows, first, length);
    first += length;
    n -= length;
  }
}

void
lychee_chunks_cut (LycheeIndex *index, const LycheeRows *rows, guint begin, guint end)
{
  LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim;

  for (guint at = 0; at < chunks->n; at++) {
    gboolean changed = FALSE;
    LycheeChunkBlock *old = chunks->block[at];
    Unit unit;

    unit_init (&unit);
    unit_read (index, at, &unit);
    for (guint i = 0; i < unit.clusters->len; i++) {
      Cluster *cluster = &g_array_index (unit.clusters, Cluster, i);
      guint kept = 0;

      for (guint j = 0; j < cluster->count; j++) {
        guint first = MAX (cluster->first[j], begin);
        guint stop = MIN (cluster->first[j] + cluster->n_rows[j], end);
        guint n = first < stop ? stop - first : 0;

        if (n < cluster->n_rows[j])
          changed = TRUE;
        cluster->first[kept] = first;
        cluster->n_rows[kept] = (guint8) n;
        kept += n > 0;
      }
      cluster->count = kept;
      if (kept > 0)
        continue;
      g_array_remove_index_fast (unit.clusters, i--);
    }
    if (unit.clusters->len == 0) {
      guint last = --chunks->n;

      lychee_chunk_block_unref (old);
      chunks->block[at] = chunks->block[last];
      chunks->scale[at] = chunks->scale[last];
      chunks->radius[at] = chunks->radius[last];
      chunks->base_scale[at] = chunks->base_scale[last];
      memmove (chunks->code + (gsize) at * dim, chunks->code + (gsize) last * dim, dim);
      memmove (chunks->base + (gsize) at * dim, chunks->base + (gsize) last * dim, dim);
      at--;
    } else if (changed) {
      /* Clusters may have moved to others' places: none keeps its code. */
      unit_rebase (index, &unit, at);
      unit_write (index, rows, &unit, at, NULL);
      lychee_chunk_block_unref (old);
    }
    unit_clear (&unit);
  }
}

void
lychee_chunks_foreach (const LycheeIndex *index, LycheeChunksFunc func, gpointer data)
{
  const LycheeChunkIndex *chunks = index->chunks;
  guint dim = index->params.head_dim;
  Unit unit;

  unit_init (&unit);
  for (guint at = 0; at < chunks->n; at++) {
    unit_read (index, at, &unit);
    lychee_code_decode (chunks->code + (gsize) at * dim, chunks->scale[at], dim, unit.center);
    for (guint i = 0; i < unit.clusters->len; i++) {
      const Cluster *cluster = &g_array_index (unit.clusters, Cluster, i);
      LycheeChunksItem item = { .unit = at,
        .cluster = i,
        .unit_center = unit.center,
        .unit_radius = chunks->radius[at],
        .center = cluster->center };

      index->kernels->f16_to_f32 (&cluster->radius, &item.radius, 1);
      for (guint j = 0; j < cluster->count; j++) {
        item.first = cluster->first[j];
        item.n = cluster->n_rows[j];
        func (&item, data);
      }
    }
  }
  unit_clear (&unit);
}
