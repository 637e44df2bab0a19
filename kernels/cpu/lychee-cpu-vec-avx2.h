/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* AVX2, FMA, F16C: 8 floats a vector, 16 registers. */
#include <immintrin.h>

#define VL 8
#define Q_BLOCK 3
#define V_BLOCK 4
#define MANY_FROM 9
#define V_NAME "avx2"
#define V_KERNELS lychee_cpu_kernels_avx2

typedef __m256 VF;
typedef gint32 VBits __attribute__ ((vector_size (32)));

static inline VF
v_zero (void)
{
  return _mm256_setzero_ps ();
}

static inline VF
v_set1 (float x)
{
  return _mm256_set1_ps (x);
}

static inline VF
v_load (const float *p)
{
  return _mm256_loadu_ps (p);
}

static inline void
v_store (float *p, VF a)
{
  _mm256_storeu_ps (p, a);
}

static inline VF
v_load_f16 (const guint16 *p)
{
  return _mm256_cvtph_ps (_mm_loadu_si128 ((const __m128i *) p));
}

static inline void
v_store_f16 (guint16 *p, VF a)
{
  _mm_storeu_si128 (
      (__m128i *) p, _mm256_cvtps_ph (a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline VF
v_load_i8 (const gint8 *p)
{
  return _mm256_cvtepi32_ps (_mm256_cvtepi8_epi32 (_mm_loadl_epi64 ((const __m128i *) p)));
}

/* A half float in all lanes. */
static inline VF
v_half (const guint16 *p)
{
  return _mm256_set1_ps (_cvtsh_ss (*p));
}

static inline VF
v_add (VF a, VF b)
{
  return _mm256_add_ps (a, b);
}

static inline VF
v_sub (VF a, VF b)
{
  return _mm256_sub_ps (a, b);
}

static inline VF
v_mul (VF a, VF b)
{
  return _mm256_mul_ps (a, b);
}

/* a b + c */
static inline VF
v_fma (VF a, VF b, VF c)
{
  return _mm256_fmadd_ps (a, b, c);
}

/* @b where either is NaN. */
static inline VF
v_max (VF a, VF b)
{
  return _mm256_max_ps (a, b);
}

/* Neighbours in each other's place. */
static inline VF
v_swap (VF a)
{
  return _mm256_permute_ps (a, 0xb1);
}

static inline VF
v_sqrt (VF a)
{
  return _mm256_sqrt_ps (a);
}

static inline VF
v_round (VF a)
{
  return _mm256_round_ps (a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline float
v_first (VF a)
{
  return _mm256_cvtss_f32 (a);
}

static inline float
v_reduce_add (VF a)
{
  __m128 s = _mm_add_ps (_mm256_castps256_ps128 (a), _mm256_extractf128_ps (a, 1));

  s = _mm_add_ps (s, _mm_movehl_ps (s, s));
  return _mm_cvtss_f32 (_mm_add_ss (s, _mm_shuffle_ps (s, s, 1)));
}

static inline float
v_reduce_max (VF a)
{
  __m128 s = _mm_max_ps (_mm256_castps256_ps128 (a), _mm256_extractf128_ps (a, 1));

  s = _mm_max_ps (s, _mm_movehl_ps (s, s));
  return _mm_cvtss_f32 (_mm_max_ss (s, _mm_shuffle_ps (s, s, 1)));
}

/* out[0..3] = the sums of the lanes of a, b, c, d: a 4 x 4 transposition inside each half. */
static inline void
v_reduce4 (VF a, VF b, VF c, VF d, float *out)
{
  VF ab = _mm256_add_ps (_mm256_unpacklo_ps (a, b), _mm256_unpackhi_ps (a, b));
  VF cd = _mm256_add_ps (_mm256_unpacklo_ps (c, d), _mm256_unpackhi_ps (c, d));
  VF s = _mm256_add_ps (_mm256_shuffle_ps (ab, cd, 0x44), _mm256_shuffle_ps (ab, cd, 0xee));

  _mm_storeu_ps (out, _mm_add_ps (_mm256_castps256_ps128 (s), _mm256_extractf128_ps (s, 1)));
}

/* p 2^n, 0 where x < -87; n is whole and, where x is not below that, at least -126. */
static inline VF
v_exp_scale (VF p, VF n, VF x)
{
  __m256i e =
      _mm256_slli_epi32 (_mm256_add_epi32 (_mm256_cvtps_epi32 (n), _mm256_set1_epi32 (127)), 23);
  VF keep = _mm256_cmp_ps (x, _mm256_set1_ps (-87.0f), _CMP_NLT_UQ);

  return _mm256_and_ps (_mm256_mul_ps (p, _mm256_castsi256_ps (e)), keep);
}

/* Transposes 8 rows of 8. */
static inline void
v_transpose (VF r[VL])
{
  VF t[8], u[8];

  for (guint i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps (r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps (r[i], r[i + 1]);
  }
  for (guint i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps (t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps (t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps (t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps (t[i + 1], t[i + 3], 0xee);
  }
  for (guint c = 0; c < 4; c++) {
    r[c] = _mm256_permute2f128_ps (u[c], u[4 + c], 0x20);
    r[4 + c] = _mm256_permute2f128_ps (u[c], u[4 + c], 0x31);
  }
}
