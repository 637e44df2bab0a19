/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>
#include <string.h>

struct alignas (2) __half
{
  uint16_t bits;
};
struct alignas (2) __nv_bfloat16
{
  uint16_t bits;
};

/* Conversions to nearest even, as the device makes them. */
static inline float
__bfloat162float (__nv_bfloat16 x)
{
  uint32_t bits = (uint32_t) x.bits << 16;
  float f;

  memcpy (&f, &bits, sizeof f);
  return f;
}

static inline __nv_bfloat16
__float2bfloat16_rn (float f)
{
  uint32_t bits;

  memcpy (&bits, &f, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return __nv_bfloat16{ 0x7fff };
  bits += 0x7fff + (bits >> 16 & 1);
  return __nv_bfloat16{ (uint16_t) (bits >> 16) };
}

float lychee_emulator_half_to_float (uint16_t bits);
uint16_t lychee_emulator_float_to_half (float f);

static inline float
__half2float (__half x)
{
  return lychee_emulator_half_to_float (x.bits);
}

static inline __half
__float2half_rn (float f)
{
  return __half{ lychee_emulator_float_to_half (f) };
}
