/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Scores of leaves by products of bytes (AVX-512 VNNI), in place of those of the set avx512: of few
 * queries, in half of the time. (What 8-bit codes would gain is lost with the third byte.)
 *
 * A query becomes whole numbers of 24 bits, as close as its floats are: q = step (2^16 high + 2^8
 * middle + low). A code is half a byte, code = byte - 8, so that
 *
 *     q . code = step (2^16 (high . byte - 8 sum high)
 *                      + (2^8 middle + low) . byte - 8 sum (2^8 middle + low))
 *
 * All sums are exact. Sixteen nodes are taken at a time, four in a vector, 16 bytes of each: what
 * is left to add up when their bytes are through are the four lanes of each. */

#include <immintrin.h>
#include <math.h>

#include "lychee-cpu-kernels-private.h"

#define NODES 16  /* at a time */
#define QUERIES 4 /* at a time */
#define FEW 8     /* queries at most */
#define OFFSET 8
#define PIECE 16     /* bytes of a node in a vector */
#define MOST 8323072 /* the largest whole number: 127 times 2^16 */
/* A query's largest element is between this and its inverse, so that there are steps. */
#define LEAST 1e-30f

typedef struct {
  gint8 high[256], middle[256], low[256];
  float step;
  gint32 sum_high, sum_low; /* the sums above, times 8 */
} Query;

/* The lowest byte of each number, as one with a sign. */
static inline __m512i
lowest (__m512i x)
{
  return _mm512_srai_epi32 (_mm512_slli_epi32 (x, 24), 24);
}

/* FALSE: the query has elements that are not finite, or all next to nothing. */
static gboolean
split_query (const float *q, guint head_dim, Query *to)
{
  __m512 most = _mm512_setzero_ps (), inverse;
  __m512i high = _mm512_setzero_si512 (), lower = _mm512_setzero_si512 ();
  __mmask16 bad = 0;
  float largest;

  for (guint d = 0; d < head_dim; d += 16) {
    __m512 x = _mm512_loadu_ps (q + d);

    bad |= _mm512_cmp_ps_mask (x, x, _CMP_UNORD_Q);
    most = _mm512_max_ps (most, _mm512_abs_ps (x));
  }
  largest = _mm512_reduce_max_ps (most);
  if (bad || !(largest > LEAST && largest < 1 / LEAST))
    return FALSE;
  to->step = largest / MOST;
  inverse = _mm512_set1_ps (MOST / largest);
  for (guint d = 0; d < head_dim; d += 16) {
    __m512i x = _mm512_cvtps_epi32 (_mm512_mul_ps (_mm512_loadu_ps (q + d), inverse)), byte;

    /* MOST / largest may be rounded up. */
    x = _mm512_min_epi32 (x, _mm512_set1_epi32 (MOST));
    x = _mm512_max_epi32 (x, _mm512_set1_epi32 (-MOST));
    byte = lowest (x);
    _mm_storeu_si128 ((__m128i *) (to->low + d), _mm512_cvtepi32_epi8 (byte));
    lower = _mm512_add_epi32 (lower, byte);
    x = _mm512_srai_epi32 (_mm512_sub_epi32 (x, byte), 8);
    byte = lowest (x);
    _mm_storeu_si128 ((__m128i *) (to->middle + d), _mm512_cvtepi32_epi8 (byte));
    lower = _mm512_add_epi32 (lower, _mm512_slli_epi32 (byte, 8));
    x = _mm512_srai_epi32 (_mm512_sub_epi32 (x, byte), 8);
    _mm_storeu_si128 ((__m128i *) (to->high + d), _mm512_cvtepi32_epi8 (x));
    high = _mm512_add_epi32 (high, x);
  }
  to->sum_high = _mm512_reduce_add_epi32 (high) * OFFSET;
  to->sum_low = _mm512_reduce_add_epi32 (lower) * OFFSET;
  return TRUE;
}

/* A piece of each of four nodes. */
static inline __m512i
load_pieces (const guint8 *const *node, guint first, guint at)
{
  __m512i x = _mm512_castsi128_si512 (_mm_loadu_si128 ((const __m128i *) (node[first] + at)));

  x = _mm512_inserti32x4 (x, _mm_loadu_si128 ((const __m128i *) (node[first + 4] + at)), 1);
  x = _mm512_inserti32x4 (x, _mm_loadu_si128 ((const __m128i *) (node[first + 8] + at)), 2);
  return _mm512_inserti32x4 (x, _mm_loadu_si128 ((const __m128i *) (node[first + 12] + at)), 3);
}

static inline __m512i
broadcast (const gint8 *piece)
{
  return _mm512_broadcast_i32x4 (_mm_loadu_si128 ((const __m128i *) piece));
}

/* Lane 4 i + j of the result: the sum of quarter i of x[j]. */
static inline __m512i
add_quarters (const __m512i x[4])
{
  __m512i ab =
      _mm512_add_epi32 (_mm512_unpacklo_epi32 (x[0], x[1]), _mm512_unpackhi_epi32 (x[0], x[1]));
  __m512i cd =
      _mm512_add_epi32 (_mm512_unpacklo_epi32 (x[2], x[3]), _mm512_unpackhi_epi32 (x[2], x[3]));

  return _mm512_add_epi32 (_mm512_unpacklo_epi64 (ab, cd), _mm512_unpackhi_epi64 (ab, cd));
}

typedef struct {
  __m512i high, middle, low;
} Sums;

/* Adds the products of @bytes with the elements of each query from @d on. */
static inline __attribute__ ((always_inline)) void
multiply (__m512i bytes, const Query *queries, guint n_q, guint d, Sums *sums)
{
  for (guint i = 0; i < n_q; i++) {
    sums[i].high = _mm512_dpbusd_epi32 (sums[i].high, bytes, broadcast (queries[i].high + d));
    sums[i].middle = _mm512_dpbusd_epi32 (sums[i].middle, bytes, broadcast (queries[i].middle + d));
    sums[i].low = _mm512_dpbusd_epi32 (sums[i].low, bytes, broadcast (queries[i].low + d));
  }
}

typedef struct {
  const guint8 *node[NODES]; /* the last one repeated after the end */
  const float *node_scale;
  guint n;
} Nodes;

static inline __attribute__ ((always_inline)) void
score (const Nodes *nodes, const Query *queries, guint n_q, guint head_dim, float scale, float *z,
    gsize z_stride)
{
  const __m512i low_half = _mm512_set1_epi8 (15);
  __mmask16 some = (__mmask16) ((1u << nodes->n) - 1);
  __m512 node_scale = _mm512_maskz_loadu_ps (some, nodes->node_scale);
  __m512i high[QUERIES][4], lower[QUERIES][4];

  for (guint j = 0; j < 4; j++) {
    Sums sums[QUERIES];

    for (guint i = 0; i < n_q; i++)
      sums[i].high = sums[i].middle = sums[i].low = _mm512_setzero_si512 ();
    for (guint d = 0; d < head_dim / 2; d += PIECE) {
      __m512i x = load_pieces (nodes->node, j, d);

      multiply (_mm512_and_si512 (x, low_half), queries, n_q, d, sums);
      multiply (_mm512_and_si512 (_mm512_srli_epi16 (x, 4), low_half), queries, n_q,
          head_dim / 2 + d, sums);
    }
    for (guint i = 0; i < n_q; i++) {
      high[i][j] = sums[i].high;
      lower[i][j] = _mm512_add_epi32 (_mm512_slli_epi32 (sums[i].middle, 8), sums[i].low);
    }
  }
  for (guint i = 0; i < n_q; i++) {
    __m512 more = _mm512_cvtepi32_ps (
        _mm512_sub_epi32 (add_quarters (high[i]), _mm512_set1_epi32 (queries[i].sum_high)));
    __m512 less = _mm512_cvtepi32_ps (
        _mm512_sub_epi32 (add_quarters (lower[i]), _mm512_set1_epi32 (queries[i].sum_low)));
    __m512 dot = _mm512_fmadd_ps (more, _mm512_set1_ps (65536), less);
    __m512 factor = _mm512_mul_ps (_mm512_set1_ps (scale * queries[i].step), node_scale);
    float *to = z + i * z_stride;

    _mm512_mask_storeu_ps (
        to, some, _mm512_fmadd_ps (dot, factor, _mm512_maskz_loadu_ps (some, to)));
  }
}

static inline __attribute__ ((always_inline)) void
score_any (const Nodes *nodes, const Query *queries, guint n_q, guint head_dim, float scale,
    float *z, gsize z_stride)
{
  switch (n_q) {
  case 1:
    score (nodes, queries, 1, head_dim, scale, z, z_stride);
    break;
  case 2:
    score (nodes, queries, 2, head_dim, scale, z, z_stride);
    break;
  case 3:
    score (nodes, queries, 3, head_dim, scale, z, z_stride);
    break;
  default:
    score (nodes, queries, QUERIES, head_dim, scale, z, z_stride);
    break;
  }
}

void
lychee_vnni_score_packed (const LycheeQueries *queries, const guint8 *const *code,
    const float *code_scale, guint n, float *z, gsize z_stride)
{
  guint head_dim = queries->head_dim;

  for (guint first = 0, n_q; first < queries->n_queries; first += n_q) {
    LycheeQueries some = *queries;
    Query split[QUERIES];
    gboolean good = queries->n_queries <= FEW && head_dim % (2 * PIECE) == 0;

    n_q = MIN (queries->n_queries - first, QUERIES);
    some.n_queries = n_q;
    some.q += (gsize) first * head_dim;
    for (guint i = 0; good && i < n_q; i++)
      good = split_query (some.q + (gsize) i * head_dim, head_dim, &split[i]);
    if (!good) {
      lychee_cpu_kernels_avx512.score_packed (
          &some, code, code_scale, n, z + first * z_stride, z_stride);
      continue;
    }
    for (guint at = 0; at < n; at += NODES) {
      Nodes nodes = { .node_scale = code_scale + at, .n = MIN (n - at, NODES) };

      for (guint i = 0; i < NODES; i++)
        nodes.node[i] = code[MIN (at + i, n - 1)];
      score_any (&nodes, split, n_q, head_dim, queries->scale, z + first * z_stride + at, z_stride);
    }
  }
}
