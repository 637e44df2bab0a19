/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The register blocks of the vector kernels: a few queries times a few keys or values at a time,
 * with all accumulators in registers. Over the vector operations of a lychee-cpu-vec-*.h. */

#define TILE 64 /* keys a tile, and the stride of logits */
#define TILE_GATHER                                                                                \
  32 /* the same for rows anywhere: nothing is computed while the first one is fetched */
#define TILE_LONG 32 /* the same for many queries and rows longer than ROW_SHORT */
#define ROW_SHORT 128
#define ROW_MAX 256

/* Element types of rows. */
enum { F16, F32, I8, Q8, N_TYPES };

typedef struct {
  const void *row[TILE]; /* the last one repeated after the end */
} Tile;

static inline __attribute__ ((always_inline)) VF
load_q8 (const guint16 *row, guint i)
{
  row += i / LYCHEE_Q8_VALUES * LYCHEE_Q8_UNITS;
  return v_mul (v_load_i8 ((const gint8 *) (row + 1) + i % LYCHEE_Q8_VALUES), v_half (row));
}

static inline __attribute__ ((always_inline)) VF
load_row (const void *row, guint i, guint type)
{
  switch (type) {
  case F16:
    return v_load_f16 ((const guint16 *) row + i);
  case F32:
    return v_load ((const float *) row + i);
  case Q8:
    return load_q8 (row, i);
  default:
    return v_load_i8 ((const gint8 *) row + i);
  }
}

/* Bytes of @n elements of a row. */
static inline guint
row_bytes (guint type, guint n)
{
  return type == F16   ? 2 * n
         : type == F32 ? 4 * n
         : type == Q8  ? n * 2 * LYCHEE_Q8_UNITS / LYCHEE_Q8_VALUES
                       : n;
}

/* Into the second level of the cache: what is on its way into the first holds one of its few line
 * buffers until it has come, and loads of rows that are there already would wait for them. (Rows
 * all over 755 MB, 3 queries: 42 ns a row instead of 53.) */
static inline void
prefetch_row (const void *row, guint bytes)
{
  for (guint b = 0; b < bytes; b += 64)
    __builtin_prefetch ((const guint8 *) row + b, 0, 2);
}

/* Relative error below 2e-7 on [-87, 0]; 0 below, NaN for NaN. exp (x) = 2^n exp (r) with |r| <=
 * ln (2) / 2, and exp (r) by a polynomial of degree 6. */
static inline VF
v_exp (VF x)
{
  VF n = v_round (v_mul (x, v_set1 (1.44269504f)));
  VF r = v_fma (n, v_set1 (-0.693145752f), x); /* exact: the constant has 15 bits */
  VF p;

  r = v_fma (n, v_set1 (-1.42860677e-6f), r);
  p = v_fma (r, v_set1 (1.0f / 720), v_set1 (1.0f / 120));
  p = v_fma (p, r, v_set1 (1.0f / 24));
  p = v_fma (p, r, v_set1 (1.0f / 6));
  p = v_fma (p, r, v_set1 (0.5f));
  p = v_fma (p, r, v_set1 (1.0f));
  p = v_fma (p, r, v_set1 (1.0f));
  return v_exp_scale (p, n, x);
}

/* Products over a tile of rows. */

/* s[query][key] = q[query] . row[key], key < n rounded up to 4. */
#define DOT_ARGS                                                                                   \
  const float *q, guint head_dim, const Tile *keys, guint n, float *s, const Tile *next
typedef void (*DotFunc) (DOT_ARGS);

static inline __attribute__ ((always_inline)) void
dot (DOT_ARGS, guint n_q, guint type)
{
  guint bytes = row_bytes (type, head_dim);

  for (guint t = 0; t < n; t += 4) {
    const void *const *row = keys->row + t;
    VF acc[Q_BLOCK][4];

    if (next)
      for (guint j = 0; j < 4; j++)
        prefetch_row (next->row[t + j], bytes);

    for (guint i = 0; i < n_q; i++)
      for (guint j = 0; j < 4; j++)
        acc[i][j] = v_zero ();
    for (guint d = 0; d < head_dim; d += VL)
      for (guint j = 0; j < 4; j++) {
        VF k = load_row (row[j], d, type);

        for (guint i = 0; i < n_q; i++)
          acc[i][j] = v_fma (v_load (q + i * head_dim + d), k, acc[i][j]);
      }
    for (guint i = 0; i < n_q; i++)
      v_reduce4 (acc[i][0], acc[i][1], acc[i][2], acc[i][3], s + i * TILE + t);
  }
}

/* The same from transposed float keys kt[d][kt_stride], for @n_k vectors of keys. */
#define PRODUCT_ARGS const float *q, guint head_dim, const float *kt, guint kt_stride, float *s
typedef void (*ProductFunc) (PRODUCT_ARGS);

static inline __attribute__ ((always_inline)) void
product (PRODUCT_ARGS, guint n_q, guint n_k)
{
  VF acc[Q_BLOCK][V_BLOCK];

  for (guint i = 0; i < n_q; i++)
    for (guint j = 0; j < n_k; j++)
      acc[i][j] = v_zero ();
  for (guint d = 0; d < head_dim; d++) {
    VF k[V_BLOCK];

    for (guint j = 0; j < n_k; j++)
      k[j] = v_load (kt + d * kt_stride + j * VL);
    for (guint i = 0; i < n_q; i++) {
      VF b = v_set1 (q[i * head_dim + d]);

      for (guint j = 0; j < n_k; j++)
        acc[i][j] = v_fma (b, k[j], acc[i][j]);
    }
  }
  for (guint i = 0; i < n_q; i++)
    for (guint j = 0; j < n_k; j++)
      v_store (s + i * TILE + j * VL, acc[i][j]);
}

/* o[query][..] = scale[query] o[query][..] + the sum over keys [from, to) of p[query][key] v[key],
 * for @n_v vectors of each row from element @at on. */
#define SUM_ARGS                                                                                   \
  const float *p, const float *scale, const Tile *values, guint from, guint to, guint at,          \
      guint head_dim, float *o, const Tile *next
typedef void (*SumFunc) (SUM_ARGS);

static inline __attribute__ ((always_inline)) void
sum (SUM_ARGS, guint n_q, guint n_v, guint type)
{
  VF acc[Q_BLOCK][V_BLOCK];
  guint bytes = row_bytes (type, n_v * VL), offset = row_bytes (type, at);

  for (guint i = 0; i < n_q; i++)
    for (guint j = 0; j < n_v; j++)
      acc[i][j] = v_mul (v_set1 (scale[i]), v_load (o + i * head_dim + at + j * VL));
  for (guint t = from; t < to; t++) {
    VF v[V_BLOCK];

    if (next)
      prefetch_row ((const guint8 *) next->row[t] + offset, bytes);
    for (guint j = 0; j < n_v; j++)
      v[j] = load_row (values->row[t], at + j * VL, type);
    for (guint i = 0; i < n_q; i++) {
      VF b = v_set1 (p[i * TILE + t]);

      for (guint j = 0; j < n_v; j++)
        acc[i][j] = v_fma (b, v[j], acc[i][j]);
    }
  }
  for (guint i = 0; i < n_q; i++)
    for (guint j = 0; j < n_v; j++)
      v_store (o + i * head_dim + at + j * VL, acc[i][j]);
}

/* The register blocks, one function each. */
#define DEFINE_DOT(type, n_q)                                                                      \
  static void dot_##type##_##n_q (DOT_ARGS)                                                        \
  {                                                                                                \
    dot (q, head_dim, keys, n, s, next, n_q, type);                                                \
  }
#define DEFINE_PRODUCT(n_q, n_k)                                                                   \
  static void product_##n_q##_##n_k (PRODUCT_ARGS)                                                 \
  {                                                                                                \
    product (q, head_dim, kt, kt_stride, s, n_q, n_k);                                             \
  }
#define DEFINE_SUM(type, n_q, n_v)                                                                 \
  static void sum_##type##_##n_q##_##n_v (SUM_ARGS)                                                \
  {                                                                                                \
    sum (p, scale, values, from, to, at, head_dim, o, next, n_q, n_v, type);                       \
  }
#define DEFINE_FOR_Q(n_q)                                                                          \
  DEFINE_DOT (F16, n_q)                                                                            \
  DEFINE_DOT (F32, n_q)                                                                            \
  DEFINE_DOT (I8, n_q)                                                                             \
  DEFINE_DOT (Q8, n_q)                                                                             \
  DEFINE_PRODUCT (n_q, 1)                                                                          \
  DEFINE_PRODUCT (n_q, 2)                                                                          \
  DEFINE_PRODUCT (n_q, 3)                                                                          \
  DEFINE_PRODUCT (n_q, 4)                                                                          \
  DEFINE_SUM (F16, n_q, 1)                                                                         \
  DEFINE_SUM (F16, n_q, 2)                                                                         \
  DEFINE_SUM (F16, n_q, 3)                                                                         \
  DEFINE_SUM (F16, n_q, 4)                                                                         \
  DEFINE_SUM (F32, n_q, 1)                                                                         \
  DEFINE_SUM (F32, n_q, 2)                                                                         \
  DEFINE_SUM (F32, n_q, 3)                                                                         \
  DEFINE_SUM (F32, n_q, 4)                                                                         \
  DEFINE_SUM (I8, n_q, 1)                                                                          \
  DEFINE_SUM (I8, n_q, 2)                                                                          \
  DEFINE_SUM (I8, n_q, 3)                                                                          \
  DEFINE_SUM (I8, n_q, 4)                                                                          \
  DEFINE_SUM (Q8, n_q, 1)                                                                          \
  DEFINE_SUM (Q8, n_q, 2)                                                                          \
  DEFINE_SUM (Q8, n_q, 3)                                                                          \
  DEFINE_SUM (Q8, n_q, 4)

DEFINE_FOR_Q (1)
DEFINE_FOR_Q (2)
DEFINE_FOR_Q (3)
#if Q_BLOCK == 6
DEFINE_FOR_Q (4)
DEFINE_FOR_Q (5)
DEFINE_FOR_Q (6)
#define FOR_Q(macro, ...)                                                                          \
  macro (__VA_ARGS__, 1), macro (__VA_ARGS__, 2), macro (__VA_ARGS__, 3), macro (__VA_ARGS__, 4),  \
      macro (__VA_ARGS__, 5), macro (__VA_ARGS__, 6)
#else
#define FOR_Q(macro, ...) macro (__VA_ARGS__, 1), macro (__VA_ARGS__, 2), macro (__VA_ARGS__, 3)
#endif

#define DOT_NAME(type, n_q) dot_##type##_##n_q
#define PRODUCT_NAMES(name, n_q)                                                                   \
  {                                                                                                \
    name##_##n_q##_1, name##_##n_q##_2, name##_##n_q##_3, name##_##n_q##_4                         \
  }

static const DotFunc dots[N_TYPES][Q_BLOCK] = {
  { FOR_Q (DOT_NAME, F16) },
  { FOR_Q (DOT_NAME, F32) },
  { FOR_Q (DOT_NAME, I8) },
  { FOR_Q (DOT_NAME, Q8) },
};
static const ProductFunc products[Q_BLOCK][V_BLOCK] = { FOR_Q (PRODUCT_NAMES, product) };
static const SumFunc sums[N_TYPES][Q_BLOCK][V_BLOCK] = {
  { FOR_Q (PRODUCT_NAMES, sum_F16) },
  { FOR_Q (PRODUCT_NAMES, sum_F32) },
  { FOR_Q (PRODUCT_NAMES, sum_I8) },
  { FOR_Q (PRODUCT_NAMES, sum_Q8) },
};
