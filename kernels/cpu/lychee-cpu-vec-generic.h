/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The compiler's own vectors, 4 floats each: any processor, 64-bit x86 of any age among them. */
#include <math.h>

#define VL 4
#define Q_BLOCK 3
#define V_BLOCK 4
#define MANY_FROM 9
#define V_NAME "generic"
#define V_KERNELS lychee_cpu_kernels_generic

typedef float VF __attribute__ ((vector_size (16)));
typedef gint32 VBits __attribute__ ((vector_size (16)));
typedef guint32 VU __attribute__ ((vector_size (16)));
typedef gint32 VI __attribute__ ((vector_size (16)));
typedef guint16 VU16 __attribute__ ((vector_size (8)));
typedef gint8 VI8 __attribute__ ((vector_size (4)));

#ifdef __clang__
#define V_SHUFFLE(a, b, ...) __builtin_shufflevector (a, b, __VA_ARGS__)
#else
#define V_SHUFFLE(a, b, ...) __builtin_shuffle (a, b, (VI){ __VA_ARGS__ })
#endif

static inline VF
v_zero (void)
{
  return (VF){ 0, 0, 0, 0 };
}

static inline VF
v_set1 (float x)
{
  return (VF){ x, x, x, x };
}

static inline VF
v_load (const float *p)
{
  VF a;
  memcpy (&a, p, sizeof a);
  return a;
}

static inline void
v_store (float *p, VF a)
{
  memcpy (p, &a, sizeof a);
}

/* @a where the mask is set, else @b. */
static inline VF
v_select (VI mask, VF a, VF b)
{
  return (VF) ((mask & (VI) a) | (~mask & (VI) b));
}

/* As lychee_f16_to_f32_scalar(). */
static inline VF
v_load_f16 (const guint16 *p)
{
  VU16 packed;
  VU h, bits, sign, exponent;
  VF subnormal;

  memcpy (&packed, p, sizeof packed);
  h = __builtin_convertvector(packed, VU);
  sign = (h & 0x8000) << 16;
  bits = (h & 0x7fff) << 13;
  exponent = bits & 0x0f800000;
  subnormal = (VF) (bits + (113u << 23)) - v_set1 (lychee_bits_float (113u << 23));
  bits += 112u << 23;
  bits |= (VU) (exponent == 0x0f800000) & 0x7f800000;
  return (VF) (sign | (VU) v_select ((VI) (exponent == 0), subnormal, (VF) bits));
}

static inline void
v_store_f16 (guint16 *p, VF a)
{
  for (guint i = 0; i < VL; i++)
    p[i] = lychee_f32_to_f16_scalar (a[i]);
}

static inline VF
v_load_i8 (const gint8 *p)
{
  VI8 packed;
  memcpy (&packed, p, sizeof packed);
  return __builtin_convertvector(packed, VF);
}

/* A half float in all lanes. */
static inline VF
v_half (const guint16 *p)
{
  return v_set1 (lychee_f16_to_f32_scalar (*p));
}

static inline VF
v_add (VF a, VF b)
{
  return a + b;
}

static inline VF
v_sub (VF a, VF b)
{
  return a - b;
}

static inline VF
v_mul (VF a, VF b)
{
  return a * b;
}

/* a b + c, rounded once or twice as the processor has it */
static inline VF
v_fma (VF a, VF b, VF c)
{
  return a * b + c;
}

/* @b where either is NaN. */
static inline VF
v_max (VF a, VF b)
{
  return v_select ((VI) (a > b), a, b);
}

/* Neighbours in each other's place. */
static inline VF
v_swap (VF a)
{
  return V_SHUFFLE (a, a, 1, 0, 3, 2);
}

static inline VF
v_sqrt (VF a)
{
  return (VF){ sqrtf (a[0]), sqrtf (a[1]), sqrtf (a[2]), sqrtf (a[3]) };
}

/* For |a| < 2^22. */
static inline VF
v_round (VF a)
{
  VF magic = v_set1 (12582912.0f); /* 1.5 2^23: the sum has no bits for a fraction */

  return (a + magic) - magic;
}

static inline float
v_first (VF a)
{
  return a[0];
}

static inline float
v_reduce_add (VF a)
{
  return (a[0] + a[2]) + (a[1] + a[3]);
}

static inline float
v_reduce_max (VF a)
{
  float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];

  return x > y ? x : y;
}

/* Transposes 4 rows of 4. */
static inline void
v_transpose (VF r[VL])
{
  VF ab0 = V_SHUFFLE (r[0], r[1], 0, 4, 1, 5), ab1 = V_SHUFFLE (r[0], r[1], 2, 6, 3, 7);
  VF cd0 = V_SHUFFLE (r[2], r[3], 0, 4, 1, 5), cd1 = V_SHUFFLE (r[2], r[3], 2, 6, 3, 7);

  r[0] = V_SHUFFLE (ab0, cd0, 0, 1, 4, 5);
  r[1] = V_SHUFFLE (ab0, cd0, 2, 3, 6, 7);
  r[2] = V_SHUFFLE (ab1, cd1, 0, 1, 4, 5);
  r[3] = V_SHUFFLE (ab1, cd1, 2, 3, 6, 7);
}

/* out[0..3] = the sums of the lanes of a, b, c, d */
static inline void
v_reduce4 (VF a, VF b, VF c, VF d, float *out)
{
  VF r[VL] = { a, b, c, d };

  v_transpose (r);
  v_store (out, (r[0] + r[1]) + (r[2] + r[3]));
}

/* p 2^n, 0 where x < -87; n is whole and, where x is not below that, at least -126. */
static inline VF
v_exp_scale (VF p, VF n, VF x)
{
  VI drop = (VI) (x < v_set1 (-87.0f)), number = (VI) (n == n);
  VI e = __builtin_convertvector((VF) ((VI) n & ~drop & number), VI);

  return (VF) ((VI) (p * (VF) ((VU) (e + 127) << 23)) & ~drop);
}
