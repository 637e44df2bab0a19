/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* 64-bit ARM: 4 floats a vector, 32 registers, half floats converted by the base set. */
#include <arm_neon.h>

#define VL 4
#define Q_BLOCK 6
#define V_BLOCK 4
#define MANY_FROM 9
#define V_NAME "neon"
#define V_KERNELS lychee_cpu_kernels_neon

typedef float32x4_t VF;
typedef gint32 VBits __attribute__ ((vector_size (16)));

static inline VF
v_zero (void)
{
  return vdupq_n_f32 (0);
}

static inline VF
v_set1 (float x)
{
  return vdupq_n_f32 (x);
}

static inline VF
v_load (const float *p)
{
  return vld1q_f32 (p);
}

static inline void
v_store (float *p, VF a)
{
  vst1q_f32 (p, a);
}

static inline VF
v_load_f16 (const guint16 *p)
{
  return vcvt_f32_f16 (vreinterpret_f16_u16 (vld1_u16 (p)));
}

static inline void
v_store_f16 (guint16 *p, VF a)
{
  vst1_u16 (p, vreinterpret_u16_f16 (vcvt_f16_f32 (a)));
}

static inline VF
v_load_i8 (const gint8 *p)
{
  guint32 packed;

  memcpy (&packed, p, sizeof packed);
  return vcvtq_f32_s32 (
      vmovl_s16 (vget_low_s16 (vmovl_s8 (vreinterpret_s8_u32 (vdup_n_u32 (packed))))));
}

/* A half float in all lanes. */
static inline VF
v_half (const guint16 *p)
{
  return vcvt_f32_f16 (vreinterpret_f16_u16 (vdup_n_u16 (*p)));
}

static inline VF
v_add (VF a, VF b)
{
  return vaddq_f32 (a, b);
}

static inline VF
v_sub (VF a, VF b)
{
  return vsubq_f32 (a, b);
}

static inline VF
v_mul (VF a, VF b)
{
  return vmulq_f32 (a, b);
}

/* a b + c */
static inline VF
v_fma (VF a, VF b, VF c)
{
  return vfmaq_f32 (c, a, b);
}

/* @b where either is NaN. */
static inline VF
v_max (VF a, VF b)
{
  return vbslq_f32 (vcgtq_f32 (a, b), a, b);
}

/* Neighbours in each other's place. */
static inline VF
v_swap (VF a)
{
  return vrev64q_f32 (a);
}

static inline VF
v_sqrt (VF a)
{
  return vsqrtq_f32 (a);
}

static inline VF
v_round (VF a)
{
  return vrndnq_f32 (a);
}

static inline float
v_first (VF a)
{
  return vgetq_lane_f32 (a, 0);
}

static inline float
v_reduce_add (VF a)
{
  return vaddvq_f32 (a);
}

static inline float
v_reduce_max (VF a)
{
  return vmaxvq_f32 (a);
}

/* out[0..3] = the sums of the lanes of a, b, c, d */
static inline void
v_reduce4 (VF a, VF b, VF c, VF d, float *out)
{
  vst1q_f32 (out, vpaddq_f32 (vpaddq_f32 (a, b), vpaddq_f32 (c, d)));
}

/* p 2^n, 0 where x < -87; n is whole and, where x is not below that, at least -126. */
static inline VF
v_exp_scale (VF p, VF n, VF x)
{
  int32x4_t e = vshlq_n_s32 (vaddq_s32 (vcvtq_s32_f32 (n), vdupq_n_s32 (127)), 23);
  uint32x4_t drop = vcltq_f32 (x, vdupq_n_f32 (-87.0f));

  return vreinterpretq_f32_u32 (
      vbicq_u32 (vreinterpretq_u32_f32 (vmulq_f32 (p, vreinterpretq_f32_s32 (e))), drop));
}

/* Transposes 4 rows of 4. */
static inline void
v_transpose (VF r[VL])
{
  float32x4x2_t ab = vtrnq_f32 (r[0], r[1]), cd = vtrnq_f32 (r[2], r[3]);

  r[0] = vcombine_f32 (vget_low_f32 (ab.val[0]), vget_low_f32 (cd.val[0]));
  r[1] = vcombine_f32 (vget_low_f32 (ab.val[1]), vget_low_f32 (cd.val[1]));
  r[2] = vcombine_f32 (vget_high_f32 (ab.val[0]), vget_high_f32 (cd.val[0]));
  r[3] = vcombine_f32 (vget_high_f32 (ab.val[1]), vget_high_f32 (cd.val[1]));
}
