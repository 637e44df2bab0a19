/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <math.h>
#include <string.h>

#include "lychee-cpu-kernels.h"

G_BEGIN_DECLS

extern const LycheeCpuKernels lychee_cpu_kernels_reference;
extern const LycheeCpuKernels lychee_cpu_kernels_generic;
extern const LycheeCpuKernels lychee_cpu_kernels_avx2;
extern const LycheeCpuKernels lychee_cpu_kernels_avx512;
extern const LycheeCpuKernels lychee_cpu_kernels_neon;

/* What the set avx512vnni has in place of avx512's. */
void lychee_vnni_score_packed (const LycheeQueries *queries, const guint8 *const *code,
    const float *code_scale, guint n, float *z, gsize z_stride);

static inline guint32
lychee_float_bits (float f)
{
  guint32 u;
  memcpy (&u, &f, sizeof u);
  return u;
}

static inline float
lychee_bits_float (guint32 u)
{
  float f;
  memcpy (&f, &u, sizeof f);
  return f;
}

/* IEEE half to float. No subnormal float is ever an operand, so that flush-to-zero modes set by
 * others in the process cannot change the result. */
static inline float
lychee_f16_to_f32_scalar (guint16 h)
{
  guint32 sign = (guint32) (h & 0x8000) << 16;
  guint32 bits = (guint32) (h & 0x7fff) << 13;
  guint32 exponent = bits & 0x0f800000;

  if (exponent == 0x0f800000) { /* infinity; NaN, made quiet as processors do */
    bits |= 0x7f800000 | (bits & 0x007fffff ? 0x00400000 : 0);
  } else if (exponent == 0) { /* zero, subnormal: (1 + mantissa) 2^-14 - 2^-14 */
    bits = lychee_float_bits (
        lychee_bits_float (bits + (113u << 23)) - lychee_bits_float (113u << 23));
  } else {
    bits += 112u << 23;
  }
  return lychee_bits_float (bits | sign);
}

/* Float to IEEE half, to nearest, ties to even; too large becomes infinity. */
static inline guint16
lychee_f32_to_f16_scalar (float f)
{
  guint32 bits = lychee_float_bits (f);
  guint32 sign = (bits >> 16) & 0x8000;
  guint32 h;

  bits &= 0x7fffffff;
  if (bits > 0x7f800000) { /* NaN: quiet, upper payload kept */
    h = 0x7e00 | ((bits >> 13) & 0x3ff);
  } else if (bits >= 0x47800000) { /* 2^16 and above */
    h = 0x7c00;
  } else if (bits < 0x38800000) { /* below 2^-14: the sum with 0.5 has a half's subnormal ulp */
    h = lychee_float_bits (lychee_bits_float (bits) + 0.5f) - 0x3f000000;
  } else { /* rounding may carry into the exponent, up to infinity, which is right */
    h = (bits + 0xfff + ((bits >> 13) & 1) - (112u << 23)) >> 13;
  }
  return (guint16) (h | sign);
}

/* Blocks of q8_0. The scale is the half float that the file will have, and the bytes are the
 * nearest for that one. */
static inline void
lychee_q8_encode (const float *from, guint head_dim, guint16 *to)
{
  for (guint at = 0; at < head_dim; at += LYCHEE_Q8_VALUES, to += LYCHEE_Q8_UNITS) {
    gint8 *bytes = (gint8 *) (to + 1);
    const float *x = from + at;
    float most = 0, scale, inverse;
    guint bad = 0;

    for (guint i = 0; i < LYCHEE_Q8_VALUES; i++) {
      float size = lychee_bits_float (lychee_float_bits (x[i]) & 0x7fffffff);

      bad |= !(size < INFINITY);
      most = size > most ? size : most;
    }
    *to = bad ? 0x7e00 : lychee_f32_to_f16_scalar (most / 127);
    scale = lychee_f16_to_f32_scalar (*to);
    inverse = scale > 0 && !bad ? 1 / scale : 0;
    for (guint i = 0; i < LYCHEE_Q8_VALUES; i++) {
      /* To nearest: 1.5 2^23 has no bits for a fraction. */
      float y = bad ? 0 : (x[i] * inverse + 12582912.0f) - 12582912.0f;

      bytes[i] = (gint8) (y > 127 ? 127 : y < -127 ? -127 : y);
    }
  }
}

G_END_DECLS
