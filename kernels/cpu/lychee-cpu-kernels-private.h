/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <string.h>

#include "lychee-cpu-kernels.h"

G_BEGIN_DECLS

extern const LycheeCpuKernels lychee_cpu_kernels_reference;
extern const LycheeCpuKernels lychee_cpu_kernels_generic;
extern const LycheeCpuKernels lychee_cpu_kernels_avx2;
extern const LycheeCpuKernels lychee_cpu_kernels_avx512;
extern const LycheeCpuKernels lychee_cpu_kernels_neon;

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

G_END_DECLS
