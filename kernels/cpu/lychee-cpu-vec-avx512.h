/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* AVX-512 F, BW, VL, DQ: 16 floats a vector, 32 registers. */
#include <immintrin.h>

#define VL 16
#define Q_BLOCK 6   /* queries a register block */
#define V_BLOCK 4   /* vectors a register block */
#define MANY_FROM 9 /* from how many queries on a tile is converted and transposed first */
#define V_NAME "avx512"
#define V_KERNELS lychee_cpu_kernels_avx512
/* Rows that are no multiple of 16 long are left to narrower vectors. */
#define V_NARROWER lychee_cpu_kernels_avx2

typedef __m512 VF;
typedef gint32 VBits __attribute__ ((vector_size (64)));

static inline VF
v_zero (void)
{
  return _mm512_setzero_ps ();
}

static inline VF
v_set1 (float x)
{
  return _mm512_set1_ps (x);
}

static inline VF
v_load (const float *p)
{
  return _mm512_loadu_ps (p);
}

static inline void
v_store (float *p, VF a)
{
  _mm512_storeu_ps (p, a);
}

static inline VF
v_load_f16 (const guint16 *p)
{
  return _mm512_cvtph_ps (_mm256_loadu_si256 ((const __m256i *) p));
}

static inline void
v_store_f16 (guint16 *p, VF a)
{
  _mm256_storeu_si256 (
      (__m256i *) p, _mm512_cvtps_ph (a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline VF
v_load_i8 (const gint8 *p)
{
  return _mm512_cvtepi32_ps (_mm512_cvtepi8_epi32 (_mm_loadu_si128 ((const __m128i *) p)));
}

/* A half float in all lanes. */
static inline VF
v_half (const guint16 *p)
{
  return _mm512_set1_ps (_cvtsh_ss (*p));
}

static inline VF
v_add (VF a, VF b)
{
  return _mm512_add_ps (a, b);
}

static inline VF
v_sub (VF a, VF b)
{
  return _mm512_sub_ps (a, b);
}

static inline VF
v_mul (VF a, VF b)
{
  return _mm512_mul_ps (a, b);
}

/* a b + c */
static inline VF
v_fma (VF a, VF b, VF c)
{
  return _mm512_fmadd_ps (a, b, c);
}

/* @b where either is NaN. */
static inline VF
v_max (VF a, VF b)
{
  return _mm512_max_ps (a, b);
}

/* Neighbours in each other's place. */
static inline VF
v_swap (VF a)
{
  return _mm512_permute_ps (a, 0xb1);
}

static inline VF
v_sqrt (VF a)
{
  return _mm512_sqrt_ps (a);
}

static inline float
v_first (VF a)
{
  return _mm512_cvtss_f32 (a);
}

static inline float
v_reduce_add (VF a)
{
  return _mm512_reduce_add_ps (a);
}

static inline float
v_reduce_max (VF a)
{
  return _mm512_reduce_max_ps (a);
}

/* out[0..3] = the sums of the lanes of a, b, c, d: a 4 x 4 transposition inside each quarter. */
static inline void
v_reduce4 (VF a, VF b, VF c, VF d, float *out)
{
  VF ab = _mm512_add_ps (_mm512_unpacklo_ps (a, b), _mm512_unpackhi_ps (a, b));
  VF cd = _mm512_add_ps (_mm512_unpacklo_ps (c, d), _mm512_unpackhi_ps (c, d));
  VF s = _mm512_add_ps (_mm512_shuffle_ps (ab, cd, 0x44), _mm512_shuffle_ps (ab, cd, 0xee));
  __m256 h = _mm256_add_ps (_mm512_castps512_ps256 (s), _mm512_extractf32x8_ps (s, 1));

  _mm_storeu_ps (out, _mm_add_ps (_mm256_castps256_ps128 (h), _mm256_extractf128_ps (h, 1)));
}

/* p 2^n, 0 where x < -87; n is whole and, where x is not below that, at least -126. */
static inline VF
v_exp_scale (VF p, VF n, VF x)
{
  __mmask16 keep = _mm512_cmp_ps_mask (x, _mm512_set1_ps (-87.0f), _CMP_NLT_UQ);

  return _mm512_maskz_scalef_ps (keep, p, n);
}

static inline VF
v_round (VF a)
{
  return _mm512_roundscale_ps (a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Transposes 16 rows of 16. */
static inline void
v_transpose (VF r[VL])
{
  VF t[16], u[16];

  for (guint i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps (r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps (r[i], r[i + 1]);
  }
  for (guint i = 0; i < 16; i += 4) {
    u[i] = _mm512_shuffle_ps (t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps (t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps (t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps (t[i + 1], t[i + 3], 0xee);
  }
  /* u[4 g + c], quarter k: column 4 k + c of rows 4 g .. 4 g + 3 */
  for (guint c = 0; c < 4; c++) {
    t[c] = _mm512_shuffle_f32x4 (u[c], u[4 + c], 0x88);
    t[4 + c] = _mm512_shuffle_f32x4 (u[c], u[4 + c], 0xdd);
    t[8 + c] = _mm512_shuffle_f32x4 (u[8 + c], u[12 + c], 0x88);
    t[12 + c] = _mm512_shuffle_f32x4 (u[8 + c], u[12 + c], 0xdd);
  }
  for (guint c = 0; c < 4; c++) {
    r[c] = _mm512_shuffle_f32x4 (t[c], t[8 + c], 0x88);
    r[8 + c] = _mm512_shuffle_f32x4 (t[c], t[8 + c], 0xdd);
    r[4 + c] = _mm512_shuffle_f32x4 (t[4 + c], t[12 + c], 0x88);
    r[12 + c] = _mm512_shuffle_f32x4 (t[4 + c], t[12 + c], 0xdd);
  }
}

/* Writes first + the numbers of the lanes in which @mask is set to @to, and nonsense after them, a
 * whole vector in all; returns how many there are. */
#define V_PICK
static inline guint
v_pick (guint first, VBits mask, guint32 *to)
{
  const __m512i lanes = _mm512_setr_epi32 (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __mmask16 set = _mm512_movepi32_mask ((__m512i) mask);

  _mm512_storeu_si512 (to, _mm512_maskz_compress_epi32 (
                               set, _mm512_add_epi32 (lanes, _mm512_set1_epi32 ((gint32) first))));
  return (guint) __builtin_popcount (set);
}
