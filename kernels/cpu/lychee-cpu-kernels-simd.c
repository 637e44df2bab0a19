/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The vector kernels: this one source is compiled once per instruction set, over the few vector
 * operations that a lychee-cpu-vec-*.h defines.
 *
 * Attention goes through the keys in tiles. Of a tile first all logits are made, then each query's
 * softmax is updated once, then all values are added with the accumulators in registers. Up to
 * MANY_FROM - 1 queries, rows are converted as they are read, once per block of queries; dot
 * products are reduced four keys at a time. From MANY_FROM queries on, the tile is converted once
 * and its keys are transposed, and both products are register-blocked matrix products.
 *
 * How a call is cut into tiles and blocks depends on its sizes alone, so its result does as well.
 */

#include <math.h>

#include "lychee-cpu-kernels-private.h"

#if defined(LYCHEE_SIMD_AVX512)
#include "lychee-cpu-vec-avx512.h"
#elif defined(LYCHEE_SIMD_AVX2)
#include "lychee-cpu-vec-avx2.h"
#elif defined(LYCHEE_SIMD_NEON)
#include "lychee-cpu-vec-neon.h"
#else
#include "lychee-cpu-vec-generic.h"
#endif

#include "lychee-cpu-blocks.h"
#include "lychee-cpu-nodes.h"
#include "lychee-cpu-turn.h"

/* The size of the next block of @left things in blocks of up to @max, as even as can be. */
static inline guint
block_size (guint left, guint max)
{
  guint blocks = (left + max - 1) / max;

  return (left + blocks - 1) / blocks;
}

static void
product_tile (
    const float *q, guint n_q, guint head_dim, const float *kt, guint kt_stride, guint n, float *s)
{
  guint n_vectors = (n + VL - 1) / VL;

  for (guint at = 0, b; at < n_vectors; at += b) {
    b = block_size (n_vectors - at, V_BLOCK);
    products[n_q - 1][b - 1](q, head_dim, kt + at * VL, kt_stride, s + at * VL);
  }
}

static void
sum_tile (const float *p, const float *scale, const Tile *values, guint from, guint to, guint n_q,
    guint head_dim, float *o, const Tile *next, guint type)
{
  guint n_vectors = head_dim / VL;

  for (guint at = 0, b; at < n_vectors; at += b) {
    b = block_size (n_vectors - at, V_BLOCK);
    sums[type][n_q - 1][b - 1](p, scale, values, from, to, at * VL, head_dim, o, next);
  }
}

/* Where rows come from: a table of them, or one after the other. */
typedef struct {
  const guint16 *const *rows;
  gsize offset; /* bytes after rows[i] */
  const guint8 *base;
  gsize stride;
} Source;

#define ROWS_AT_ONCE (VL > 4 ? VL : 4)

/* Fills @tile with @n rows and repeats the last one up to @end. */
static inline void
fill_part (Tile *tile, const Source *source, guint first, guint n, guint end)
{
  guint t;

  if (source->rows) {
    for (t = 0; t < n; t++)
      tile->row[t] = (const guint8 *) source->rows[first + t] + source->offset;
  } else {
    const guint8 *row = source->base + (gsize) first * source->stride;

    for (t = 0; t < n; t++, row += source->stride)
      tile->row[t] = row;
  }
  for (; t < end; t++)
    tile->row[t] = tile->row[n - 1];
}

/* Up to a whole tile: for one that is prefetched, row by row of another. */
static inline void
fill_tile (Tile *tile, const Source *source, guint first, guint n)
{
  fill_part (tile, source, first, n, TILE);
}

/* Up to what the blocks take at once. */
static inline void
fill_rows (Tile *tile, const Source *source, guint first, guint n)
{
  fill_part (tile, source, first, n, (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * ROWS_AT_ONCE);
}

static inline void
read_elements (const void *row, guint head_dim, guint type, float *to)
{
  if (type == Q8)
    for (guint d = 0; d < head_dim; d += VL)
      v_store (to + d, load_row (row, d, Q8));
  else
    for (guint d = 0; d < head_dim; d += VL)
      v_store (to + d, load_row (row, d, F16));
}

/* kt[d][kt_stride] = the rows of @keys; @n is rounded up to whole vectors. */
static inline __attribute__ ((always_inline)) void
transpose_rows (const Tile *keys, guint n, guint head_dim, guint type, float *kt, guint kt_stride)
{
  for (guint t = 0; t < n; t += VL)
    for (guint d = 0; d < head_dim; d += VL) {
      VF r[VL];

      for (guint i = 0; i < VL; i++)
        r[i] = load_row (keys->row[t + i], d, type);
      v_transpose (r);
      for (guint i = 0; i < VL; i++)
        v_store (kt + (d + i) * kt_stride + t, r[i]);
    }
}

static void
transpose_tile (const Tile *keys, guint n, guint head_dim, guint type, float *kt, guint kt_stride)
{
  if (type == F16)
    transpose_rows (keys, n, head_dim, F16, kt, kt_stride);
  else if (type == F32)
    transpose_rows (keys, n, head_dim, F32, kt, kt_stride);
  else if (type == Q8)
    transpose_rows (keys, n, head_dim, Q8, kt, kt_stride);
  else
    transpose_rows (keys, n, head_dim, I8, kt, kt_stride);
}

/* Softmax. */

/* Turns the dot products s[0 .. n) of a query into exp (logit - m) and updates m and l. Returns
 * what to multiply the query's o with. Keys from @visible on are not seen: theirs becomes 0. */
static float
softmax_tile (float *s, guint visible, guint n, float scale, const float *add, float *m, float *l)
{
  guint end = (n + VL - 1) / VL * VL;
  VF vscale = v_set1 (scale), vmax = v_set1 (-INFINITY), vsum = v_zero (), vm;
  float tile_max, new_max, factor;

  for (guint t = 0; t < end; t += VL) {
    VF x = v_mul (v_load (s + t), vscale);

    v_store (s + t, add ? v_add (x, v_load (add + t)) : x);
  }
  for (guint t = visible; t < end; t++)
    s[t] = -INFINITY;
  for (guint t = 0; t < end; t += VL)
    vmax = v_max (v_load (s + t), vmax);

  tile_max = v_reduce_max (vmax);
  new_max = tile_max > *m ? tile_max : *m;
  if (G_UNLIKELY (new_max == -INFINITY)) {
    /* Nothing but -inf so far, or a NaN that the maximum passed over. */
    gboolean any = FALSE; /* GCC 12 vectorises the same loop over new_max itself wrongly */

    for (guint t = 0; t < visible; t++)
      any |= isnan (s[t]) != 0;
    if (!any) {
      memset (s, 0, end * sizeof *s);
      return 1.0f;
    }
    new_max = NAN;
  }
  factor = new_max == *m ? 1.0f : v_first (v_exp (v_set1 (*m - new_max)));

  vm = v_set1 (new_max);
  for (guint t = 0; t < end; t += VL) {
    VF p = v_exp (v_sub (v_load (s + t), vm));

    v_store (s + t, p);
    vsum = v_add (vsum, p);
  }
  *m = new_max;
  *l = *l * factor + v_reduce_add (vsum);
  return factor;
}

typedef struct {
  Source k, v;
  guint type;         /* F16, F32 or Q8 */
  const float *log_n; /* or NULL */
  const guint32 *visible;
} Keys;

/* Updates the softmax of @n_q <= Q_BLOCK queries from @first on with a tile of @n keys, the first
 * of which is key @at. @kt: the transposed keys, or NULL to take them as they are. */
static inline void
attend_block (const LycheeQueries *queries, const Keys *keys, guint at, guint n, guint first,
    guint n_q, const float *kt, guint kt_stride, const Tile *k_tile, const Tile *v_tile,
    guint v_type, const float *add, const Tile *next_k, const Tile *next_v, LycheeSoftmax *softmax)
{
  guint head_dim = queries->head_dim, least = n, most = n, visible[Q_BLOCK];
  const float *q = queries->q + (gsize) first * head_dim;
  float *o = softmax->o + (gsize) first * head_dim;
  float s[Q_BLOCK * TILE], factor[Q_BLOCK];
  const float one = 1.0f;

  if (keys->visible) {
    most = 0;
    for (guint i = 0; i < n_q; i++) {
      guint32 v = keys->visible[first + i];

      visible[i] = v <= at ? 0 : MIN (v - at, n);
      least = MIN (least, visible[i]);
      most = MAX (most, visible[i]);
    }
    if (most == 0)
      return;
  }

  if (kt)
    product_tile (q, n_q, head_dim, kt, kt_stride, most, s);
  else
    dots[keys->type][n_q - 1](q, head_dim, k_tile, most, s, next_k);
  for (guint i = 0; i < n_q; i++) {
    guint seen = keys->visible ? visible[i] : n;

    for (guint t = 0; queries->cap > 0 && t < seen; t++)
      s[i * TILE + t] =
          lychee_cap_logit (queries->scale * s[i * TILE + t], queries->cap) / queries->scale;
    factor[i] = seen == 0 ? 1.0f
                          : softmax_tile (s + i * TILE, seen, most, queries->scale, add,
                                softmax->m + first + i, softmax->l + first + i);
  }

  /* What only some of the queries see is added query by query: 0 times a value that a query must
   * not see would be NaN if the value is not finite. */
  sum_tile (s, factor, v_tile, 0, least, n_q, head_dim, o, next_v, v_type);
  if (least < most)
    for (guint i = 0; i < n_q; i++)
      if (visible[i] > least)
        sum_tile (s + i * TILE, &one, v_tile, least, visible[i], 1, head_dim,
            o + (gsize) i * head_dim, NULL, v_type);
}

static void
attend_few (const LycheeQueries *queries, const Keys *keys, guint n_keys, LycheeSoftmax *softmax)
{
  guint tile = keys->k.rows ? TILE_GATHER : TILE;
  Tile k_tiles[2], v_tiles[2];
  float log_n[TILE];

  fill_tile (&k_tiles[0], &keys->k, 0, MIN (n_keys, tile));
  fill_tile (&v_tiles[0], &keys->v, 0, MIN (n_keys, tile));
  if (keys->k
          .rows) /* no processor foresees these, and later tiles are prefetched by earlier ones */
    for (guint t = 0; t < MIN (n_keys, tile); t++) {
      prefetch_row (k_tiles[0].row[t], row_bytes (keys->type, queries->head_dim));
      prefetch_row (v_tiles[0].row[t], row_bytes (keys->type, queries->head_dim));
    }
  for (guint at = 0, turn = 0; at < n_keys; at += tile, turn ^= 1) {
    guint n = MIN (n_keys - at, tile);
    const Tile *next_k = NULL, *next_v = NULL;

    if (n_keys - at > tile) {
      guint n_next = MIN (n_keys - at - tile, tile);

      fill_tile (&k_tiles[turn ^ 1], &keys->k, at + tile, n_next);
      fill_tile (&v_tiles[turn ^ 1], &keys->v, at + tile, n_next);
      next_k = &k_tiles[turn ^ 1];
      next_v = &v_tiles[turn ^ 1];
    }
    if (keys->log_n) {
      memset (log_n, 0, sizeof log_n);
      memcpy (log_n, keys->log_n + at, n * sizeof *log_n);
    }
    for (guint first = 0, n_q; first < queries->n_queries; first += n_q) {
      n_q = block_size (queries->n_queries - first, Q_BLOCK);
      attend_block (queries, keys, at, n, first, n_q, NULL, 0, &k_tiles[turn], &v_tiles[turn],
          keys->type, keys->log_n ? log_n : NULL, first == 0 ? next_k : NULL,
          first == 0 ? next_v : NULL, softmax);
    }
  }
}

/* Keys and values from @from to @to, if there are so many: rows anywhere are foreseen by nothing
 * else. */
static inline void
prefetch_keys (const Keys *keys, guint from, guint to, guint n_keys, guint bytes)
{
  if (!keys->k.rows)
    return;
  for (guint t = from; t < MIN (to, n_keys); t++) {
    prefetch_row ((const guint8 *) keys->k.rows[t] + keys->k.offset, bytes);
    prefetch_row ((const guint8 *) keys->v.rows[t] + keys->v.offset, bytes);
  }
}

/* Transposed keys fit in 32 KiB. */
static inline guint
many_tile_size (guint head_dim)
{
  return head_dim <= ROW_SHORT ? TILE : TILE_LONG;
}

static void
attend_many (const LycheeQueries *queries, const Keys *keys, guint n_keys, LycheeSoftmax *softmax)
{
  float kt[ROW_SHORT * TILE] __attribute__ ((aligned (64)));
  float values[ROW_SHORT * TILE] __attribute__ ((aligned (64)));
  float log_n[TILE];
  guint head_dim = queries->head_dim, tile_size = many_tile_size (head_dim);
  guint bytes = row_bytes (keys->type, head_dim);

  prefetch_keys (keys, 0, tile_size, n_keys, bytes);
  for (guint at = 0; at < n_keys; at += tile_size) {
    guint n = MIN (n_keys - at, tile_size), next = at + tile_size;
    Tile k_tile, v_tile;

    fill_rows (&k_tile, &keys->k, at, n);
    fill_rows (&v_tile, &keys->v, at, n);
    transpose_tile (&k_tile, n, head_dim, keys->type, kt, tile_size);
    for (guint t = 0; t < n && keys->type != F32; t++) {
      float *row = values + t * head_dim;

      read_elements (v_tile.row[t], head_dim, keys->type, row);
      v_tile.row[t] = row;
    }
    if (keys->log_n) {
      memset (log_n, 0, sizeof log_n);
      memcpy (log_n, keys->log_n + at, n * sizeof *log_n);
    }
    for (guint first = 0, n_q; first < queries->n_queries; first += n_q) {
      n_q = block_size (queries->n_queries - first, Q_BLOCK);
      prefetch_keys (keys, next + tile_size * first / queries->n_queries,
          next + tile_size * (first + n_q) / queries->n_queries, n_keys, bytes);
      attend_block (queries, keys, at, n, first, n_q, kt, tile_size, NULL, &v_tile, F32,
          keys->log_n ? log_n : NULL, NULL, NULL, softmax);
    }
  }
}

static inline void
attend_keys (const LycheeQueries *queries, const Keys *keys, guint n_keys, LycheeSoftmax *softmax)
{
  if (n_keys == 0)
    return;
  if (queries->n_queries < MANY_FROM)
    attend_few (queries, keys, n_keys, softmax);
  else
    attend_many (queries, keys, n_keys, softmax);
}

/* Vectors longer than a row's last part: the next narrower set takes the call. */
#ifdef V_NARROWER
#define NARROWER(head_dim, method, ...)                                                            \
  if (G_UNLIKELY ((head_dim) % VL)) {                                                              \
    V_NARROWER.method (__VA_ARGS__);                                                               \
    return;                                                                                        \
  }
#else
#define NARROWER(head_dim, method, ...)
#endif

static void
attend (const LycheeQueries *queries, const guint16 *k, const guint16 *v, guint n_keys,
    const guint32 *visible, LycheeSoftmax *softmax)
{
  gsize stride = queries->head_dim * sizeof *k;
  Keys keys = { .k = { .base = (const guint8 *) k, .stride = stride },
    .v = { .base = (const guint8 *) v, .stride = stride },
    .type = F16,
    .visible = visible };

  NARROWER (queries->head_dim, attend, queries, k, v, n_keys, visible, softmax);
  attend_keys (queries, &keys, n_keys, softmax);
}

static void
attend_q8 (const LycheeQueries *queries, const guint16 *k, const guint16 *v, guint n_keys,
    const guint32 *visible, LycheeSoftmax *softmax)
{
  gsize stride = row_bytes (Q8, queries->head_dim);
  Keys keys = { .k = { .base = (const guint8 *) k, .stride = stride },
    .v = { .base = (const guint8 *) v, .stride = stride },
    .type = Q8,
    .visible = visible };

  attend_keys (queries, &keys, n_keys, softmax);
}

static void
attend_gather (const LycheeQueries *queries, const guint16 *const *rows, gsize value_offset,
    guint n_keys, LycheeSoftmax *softmax)
{
  Keys keys = { .k = { .rows = rows },
    .v = { .rows = rows, .offset = value_offset * sizeof **rows },
    .type = F16 };

  NARROWER (queries->head_dim, attend_gather, queries, rows, value_offset, n_keys, softmax);
  attend_keys (queries, &keys, n_keys, softmax);
}

static void
attend_gather_q8 (const LycheeQueries *queries, const guint16 *const *rows, gsize value_offset,
    guint n_keys, LycheeSoftmax *softmax)
{
  Keys keys = {
    .k = { .rows = rows }, .v = { .rows = rows, .offset = value_offset * sizeof **rows }, .type = Q8
  };

  attend_keys (queries, &keys, n_keys, softmax);
}

static void
attend_groups (const LycheeQueries *queries, const float *k, const float *v, const float *log_n,
    guint n, LycheeSoftmax *softmax)
{
  gsize stride = queries->head_dim * sizeof *k;
  Keys keys = { .k = { .base = (const guint8 *) k, .stride = stride },
    .v = { .base = (const guint8 *) v, .stride = stride },
    .type = F32,
    .log_n = log_n };

  NARROWER (queries->head_dim, attend_groups, queries, k, v, log_n, n, softmax);
  attend_keys (queries, &keys, n, softmax);
}

static void
add_values (guint n_queries, guint head_dim, const float *weight, gsize stride, const float *factor,
    const gint8 *value, const float *value_scale, guint n_groups, float *o)
{
  Source source = { .base = (const guint8 *) value, .stride = head_dim };
  float ones[Q_BLOCK];

  NARROWER (head_dim, add_values, n_queries, head_dim, weight, stride, factor, value, value_scale,
      n_groups, o);
  for (guint i = 0; i < Q_BLOCK; i++)
    ones[i] = 1;
  for (guint at = 0; at < n_groups; at += TILE) {
    guint n = MIN (n_groups - at, TILE), whole = n / VL * VL;
    Tile tile;

    fill_rows (&tile, &source, at, n);
    for (guint first = 0, n_q; first < n_queries; first += n_q) {
      float p[Q_BLOCK * TILE];

      n_q = block_size (n_queries - first, Q_BLOCK);
      for (guint i = 0; i < n_q; i++) {
        const float *row = weight + (first + i) * stride + at;
        VF times = v_set1 (factor[first + i]);

        for (guint t = 0; t < whole; t += VL)
          v_store (p + i * TILE + t,
              v_mul (v_mul (v_load (row + t), v_load (value_scale + at + t)), times));
        for (guint t = whole; t < n; t++)
          p[i * TILE + t] = row[t] * value_scale[at + t] * factor[first + i];
      }
      sum_tile (p, ones, &tile, 0, n, n_q, head_dim, o + (gsize) first * head_dim, NULL, I8);
    }
  }
}

/* Scores. */

typedef struct {
  Source rows;
  guint type;
  const float *row_scale; /* or NULL */
  const float *log_n;     /* or NULL: to be added to what z is */
  const float *variance;  /* or NULL */
} Nodes;

/* z of a tile of @n nodes and @n_q <= Q_BLOCK queries from the dot products in @s; @z is where the
 * first query's are to be. */
static void
score_block (const LycheeQueries *queries, const Nodes *nodes, guint at, guint n, guint first,
    guint n_q, float *s, float *z, gsize z_stride)
{
  guint head_dim = queries->head_dim, end = (n + VL - 1) / VL * VL, whole = n / VL * VL;
  const float *log_n = nodes->log_n ? nodes->log_n + at : NULL;
  const float *row_scale = nodes->row_scale ? nodes->row_scale + at : NULL;
  VF scale = v_set1 (queries->scale);

  if (nodes->variance) {
    float squares[Q_BLOCK * ROW_MAX], spread[Q_BLOCK * TILE];
    const float *q = queries->q + (gsize) first * head_dim;
    Source source = { .base = (const guint8 *) nodes->variance,
      .stride = head_dim * sizeof (float) };
    Tile tile;

    for (guint d = 0; d < n_q * head_dim; d += VL)
      v_store (squares + d, v_mul (v_load (q + d), v_load (q + d)));
    fill_rows (&tile, &source, at, n);
    dots[F32][n_q - 1](squares, head_dim, &tile, n, spread, NULL);
    for (guint i = 0; i < n_q; i++)
      for (guint t = 0; t < end; t += VL) {
        float *x = s + i * TILE + t;

        v_store (x, v_add (v_load (x), v_sqrt (v_max (v_zero (), v_load (spread + i * TILE + t)))));
      }
  }
  for (guint i = 0; i < n_q; i++, s += TILE, z += z_stride) {
    const float *add = log_n ? log_n : z; /* what is there already */

    for (guint t = 0; t < whole; t += VL) {
      VF factor = row_scale ? v_mul (scale, v_load (row_scale + t)) : scale;

      v_store (z + t, v_fma (v_load (s + t), factor, v_load (add + t)));
    }
    for (guint t = whole; t < n; t++)
      z[t] = s[t] * (row_scale ? queries->scale * row_scale[t] : queries->scale) + add[t];
  }
}

static void
score_few (
    const LycheeQueries *queries, const Nodes *nodes, guint n_nodes, float *z, gsize z_stride)
{
  guint head_dim = queries->head_dim;
  float s[Q_BLOCK * TILE];
  Tile tile;

  for (guint at = 0; at < n_nodes; at += TILE) {
    guint n = MIN (n_nodes - at, TILE);

    fill_rows (&tile, &nodes->rows, at, n);
    for (guint first = 0, n_q; first < queries->n_queries; first += n_q) {
      n_q = block_size (queries->n_queries - first, Q_BLOCK);
      dots[nodes->type][n_q - 1](
          queries->q + (gsize) first * head_dim, head_dim, &tile, n, s, NULL);
      score_block (queries, nodes, at, n, first, n_q, s, z + first * z_stride + at, z_stride);
    }
  }
}

static void
score_many (
    const LycheeQueries *queries, const Nodes *nodes, guint n_nodes, float *z, gsize z_stride)
{
  float kt[ROW_SHORT * TILE] __attribute__ ((aligned (64)));
  guint head_dim = queries->head_dim, tile_size = many_tile_size (head_dim);
  float s[Q_BLOCK * TILE];
  Tile tile;

  for (guint at = 0; at < n_nodes; at += tile_size) {
    guint n = MIN (n_nodes - at, tile_size);

    fill_rows (&tile, &nodes->rows, at, n);
    transpose_tile (&tile, n, head_dim, nodes->type, kt, tile_size);
    for (guint first = 0, n_q; first < queries->n_queries; first += n_q) {
      n_q = block_size (queries->n_queries - first, Q_BLOCK);
      product_tile (queries->q + (gsize) first * head_dim, n_q, head_dim, kt, tile_size, n, s);
      score_block (queries, nodes, at, n, first, n_q, s, z + first * z_stride + at, z_stride);
    }
  }
}

static void
score_nodes (const LycheeQueries *queries, const float *centroid, const float *variance,
    const float *log_n, guint n, float *z, gsize z_stride)
{
  Nodes nodes = { .rows = { .base = (const guint8 *) centroid,
                      .stride = queries->head_dim * sizeof *centroid },
    .type = F32,
    .log_n = log_n,
    .variance = variance };

  NARROWER (queries->head_dim, score_nodes, queries, centroid, variance, log_n, n, z, z_stride);
  if (queries->n_queries < MANY_FROM)
    score_few (queries, &nodes, n, z, z_stride);
  else
    score_many (queries, &nodes, n, z, z_stride);
}

static void
score_leaves (const LycheeQueries *queries, const gint8 *centroid, const float *centroid_scale,
    const float *log_n, guint n, float *z, gsize z_stride)
{
  Nodes nodes = { .rows = { .base = (const guint8 *) centroid, .stride = queries->head_dim },
    .type = I8,
    .row_scale = centroid_scale,
    .log_n = log_n };

  NARROWER (
      queries->head_dim, score_leaves, queries, centroid, centroid_scale, log_n, n, z, z_stride);
  if (queries->n_queries < MANY_FROM)
    score_few (queries, &nodes, n, z, z_stride);
  else
    score_many (queries, &nodes, n, z, z_stride);
}

/* 4-bit codes to 8-bit ones. */
static inline void
unpack_row (const guint8 *code, guint head_dim, gint8 *to)
{
  typedef guint8 Bytes __attribute__ ((vector_size (16)));
  guint half = head_dim / 2, d;

  for (d = 0; d + 16 <= half; d += 16) {
    Bytes x, low, high;

    memcpy (&x, code + d, sizeof x);
    low = (x & 15) - 8;
    high = (x >> 4) - 8;
    memcpy (to + d, &low, sizeof low);
    memcpy (to + half + d, &high, sizeof high);
  }
  for (; d < half; d++) {
    to[d] = (gint8) ((code[d] & 15) - 8);
    to[half + d] = (gint8) ((code[d] >> 4) - 8);
  }
}

static void
score_packed (const LycheeQueries *queries, const guint8 *const *code, const float *code_scale,
    guint n_nodes, float *z, gsize z_stride)
{
  guint head_dim = queries->head_dim;
  gint8 bytes[TILE * ROW_MAX];

  NARROWER (head_dim, score_packed, queries, code, code_scale, n_nodes, z, z_stride);
  for (guint at = 0; at < n_nodes; at += TILE) {
    guint n = MIN (n_nodes - at, TILE);
    Nodes nodes = { .rows = { .base = (const guint8 *) bytes, .stride = head_dim },
      .type = I8,
      .row_scale = code_scale + at };

    for (guint t = 0; t < n; t++)
      unpack_row (code[at + t], head_dim, bytes + t * head_dim);
    if (queries->n_queries < MANY_FROM)
      score_few (queries, &nodes, n, z + at, z_stride);
    else
      score_many (queries, &nodes, n, z + at, z_stride);
  }
}

/* Rows against centres, and sums of rows. */

static void
dot_any (const guint16 *const *rows, guint n_rows, const float *centers, guint n_centers,
    guint head_dim, guint type, float *dot_products)
{
  Source source = { .rows = rows };
  float s[Q_BLOCK * TILE];
  Tile tile;

  for (guint at = 0; at < n_rows; at += TILE) {
    guint n = MIN (n_rows - at, TILE);

    fill_rows (&tile, &source, at, n);
    for (guint first = 0, n_c; first < n_centers; first += n_c) {
      n_c = block_size (n_centers - first, Q_BLOCK);
      dots[type][n_c - 1](centers + (gsize) first * head_dim, head_dim, &tile, n, s, NULL);
      for (guint t = 0; t < n; t++) {
        float *to = dot_products + (gsize) (at + t) * n_centers + first;

        for (guint i = 0; i < n_c; i++)
          to[i] = s[i * TILE + t];
      }
    }
  }
}

static void
dot_rows (const guint16 *const *rows, guint n_rows, const float *centers, guint n_centers,
    guint head_dim, float *dot_products)
{
  NARROWER (head_dim, dot_rows, rows, n_rows, centers, n_centers, head_dim, dot_products);
  dot_any (rows, n_rows, centers, n_centers, head_dim, F16, dot_products);
}

static void
dot_rows_q8 (const guint16 *const *rows, guint n_rows, const float *centers, guint n_centers,
    guint head_dim, float *dot_products)
{
  dot_any (rows, n_rows, centers, n_centers, head_dim, Q8, dot_products);
}

static inline __attribute__ ((always_inline)) VF
sum_columns (const guint16 *const *rows, guint n_rows, guint type, float *total, guint at,
    guint n_v, gboolean square)
{
  VF acc[V_BLOCK], squares[V_BLOCK];

  for (guint j = 0; j < n_v; j++) {
    acc[j] = v_load (total + at + j * VL);
    squares[j] = v_zero ();
  }
  for (guint i = 0; i < n_rows; i++)
    for (guint j = 0; j < n_v; j++) {
      VF x = load_row (rows[i], at + j * VL, type);

      acc[j] = v_add (acc[j], x);
      if (square)
        squares[j] = v_fma (x, x, squares[j]);
    }
  for (guint j = 0; j < n_v; j++)
    v_store (total + at + j * VL, acc[j]);
  for (guint j = 1; j < n_v; j++)
    squares[0] = v_add (squares[0], squares[j]);
  return squares[0];
}

static inline __attribute__ ((always_inline)) float
sum_all (const guint16 *const *rows, guint n_rows, guint head_dim, guint type, float *total,
    gboolean square)
{
  VF squares = v_zero ();
  guint at = 0;

  for (; at + V_BLOCK * VL <= head_dim; at += V_BLOCK * VL)
    squares = v_add (squares, sum_columns (rows, n_rows, type, total, at, V_BLOCK, square));
  for (; at < head_dim; at += VL)
    squares = v_add (squares, sum_columns (rows, n_rows, type, total, at, 1, square));
  return square ? v_reduce_add (squares) : 0;
}

static void
sum_rows (const guint16 *const *rows, guint n_rows, guint head_dim, float *total, float *squares)
{
  NARROWER (head_dim, sum_rows, rows, n_rows, head_dim, total, squares);
  if (squares)
    *squares = sum_all (rows, n_rows, head_dim, F16, total, TRUE);
  else
    sum_all (rows, n_rows, head_dim, F16, total, FALSE);
}

static void
sum_rows_q8 (const guint16 *const *rows, guint n_rows, guint head_dim, float *total, float *squares)
{
  if (squares)
    *squares = sum_all (rows, n_rows, head_dim, Q8, total, TRUE);
  else
    sum_all (rows, n_rows, head_dim, Q8, total, FALSE);
}

static void
f32_to_f16 (const float *from, guint16 *to, gsize n)
{
  gsize i = 0;

  for (; i + VL <= n; i += VL)
    v_store_f16 (to + i, v_load (from + i));
  if (i < n) {
    float f[VL] = { 0 };
    guint16 h[VL];

    memcpy (f, from + i, (n - i) * sizeof *f);
    v_store_f16 (h, v_load (f));
    memcpy (to + i, h, (n - i) * sizeof *h);
  }
}

static void
f16_to_f32 (const guint16 *from, float *to, gsize n)
{
  gsize i = 0;

  for (; i + VL <= n; i += VL)
    v_store (to + i, v_load_f16 (from + i));
  if (i < n) {
    guint16 h[VL] = { 0 };
    float f[VL];

    memcpy (h, from + i, (n - i) * sizeof *h);
    v_store (f, v_load_f16 (h));
    memcpy (to + i, f, (n - i) * sizeof *f);
  }
}

static void
turn_rows (const guint16 *const *rows, guint n_rows, guint head_dim, guint n_pairs, gboolean halves,
    const float *const *low, const float *const *high, guint16 *to)
{
  NARROWER (head_dim, turn_rows, rows, n_rows, head_dim, n_pairs, halves, low, high, to);
  turn_any (rows, F16, n_rows, head_dim, n_pairs, halves, low, high, to);
}

static void
turn_rows_q8 (const guint16 *const *rows, guint n_rows, guint head_dim, guint n_pairs,
    gboolean halves, const float *const *low, const float *const *high, guint16 *to)
{
  turn_any (rows, Q8, n_rows, head_dim, n_pairs, halves, low, high, to);
}

static void
turn_keys (float *keys, guint n_keys, guint head_dim, guint n_pairs, gboolean halves,
    const float *const *low, const float *const *high)
{
  NARROWER (head_dim, turn_keys, keys, n_keys, head_dim, n_pairs, halves, low, high);
  for (guint i = 0; i < n_keys; i++, keys += head_dim)
    turn_row (keys, F32, head_dim, n_pairs, halves, low[i], high[i], keys, F32);
}

static void
read_row (const guint16 *row, guint head_dim, float *to)
{
  f16_to_f32 (row, to, head_dim);
}

static void
write_row (const float *from, guint head_dim, guint16 *row)
{
  f32_to_f16 (from, row, head_dim);
}

static void
read_row_q8 (const guint16 *row, guint head_dim, float *to)
{
  read_elements (row, head_dim, Q8, to);
}

/* What is the same whatever form rows have. */
#define ALIKE                                                                                      \
  .name = V_NAME, .attend_groups = attend_groups, .add_values = add_values,                        \
  .weigh_nodes = weigh_nodes, .select_nodes = select_nodes, .score_nodes = score_nodes,            \
  .score_leaves = score_leaves, .score_packed = score_packed, .f32_to_f16 = f32_to_f16,            \
  .f16_to_f32 = f16_to_f32, .turn_keys = turn_keys

static const LycheeCpuKernels q8_0 = {
  ALIKE,
  .attend = attend_q8,
  .attend_gather = attend_gather_q8,
  .dot_rows = dot_rows_q8,
  .sum_rows = sum_rows_q8,
  .turn_rows = turn_rows_q8,
  .read_row = read_row_q8,
  .write_row = lychee_q8_encode,
};

const LycheeCpuKernels V_KERNELS = {
  ALIKE,
  .q8_0 = &q8_0,
  .attend = attend,
  .attend_gather = attend_gather,
  .dot_rows = dot_rows,
  .sum_rows = sum_rows,
  .turn_rows = turn_rows,
  .read_row = read_row,
  .write_row = write_row,
};
