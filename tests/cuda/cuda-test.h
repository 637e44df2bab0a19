/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the tests of CUDA code share. No GLib: the same programs run on a machine with a device and
 * little else (tests/gpu-check). */

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

namespace test {

static int n_cases, n_failed, n_wrong;

/* Whether cases that differ from others by their size alone are wanted too: on a device they cost
 * nothing, and tests/gpu-check asks for them. */
static bool __attribute__ ((unused)) is_long ()
{
  return getenv ("LYCHEE_CUDA_LONG") != nullptr;
}

static void __attribute__ ((format (printf, 1, 2), unused)) fail (const char *format, ...)
{
  va_list args;

  if (n_wrong++ > 4) /* of a case */
    return;
  fputs ("# ", stdout);
  va_start (args, format);
  vprintf (format, args);
  va_end (args);
  fputc ('\n', stdout);
}

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition))                                                                              \
      test::fail ("%s:%d: %s", __FILE__, __LINE__, #condition);                                    \
  } while (0)

/* Ends a test case. */
static void __attribute__ ((format (printf, 1, 2), unused)) result (const char *format, ...)
{
  va_list args;

  printf ("%s %d - ", n_wrong ? "not ok" : "ok", ++n_cases);
  va_start (args, format);
  vprintf (format, args);
  va_end (args);
  fputc ('\n', stdout);
  fflush (stdout);
  n_failed += n_wrong > 0;
  n_wrong = 0;
}

static int __attribute__ ((unused)) finish ()
{
  printf ("1..%d\n", n_cases);
  return n_failed > 0;
}

/* splitmix64 (Steele, Lea and Flood 2014) */
struct Random {
  uint64_t state;

  explicit Random (uint64_t seed) : state (seed)
  {}
  uint64_t
  next ()
  {
    uint64_t x = state += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  int
  below (int n)
  {
    return (int) (next () % (uint64_t) n);
  }
  double
  uniform ()
  {
    return (double) (next () >> 11) / 9007199254740992.0;
  }
  float
  normal ()
  {
    double u = uniform () + 1e-12, v = uniform ();

    return (float) (sqrt (-2 * log (u)) * cos (6.283185307179586 * v));
  }
  std::vector<float>
  normals (size_t n, float scale = 1)
  {
    std::vector<float> x (n);

    for (float &y : x)
      y = scale * normal ();
    return x;
  }
  template <typename T>
  void
  shuffle (std::vector<T> &x)
  {
    for (size_t i = x.size (); i > 1; i--)
      std::swap (x[i - 1], x[(size_t) below ((int) i)]);
  }
};

static void __attribute__ ((unused)) must (int status, const char *what)
{
  if (status) {
    printf ("Bail out! %s: %s\n", what, cudaGetErrorString ((cudaError_t) status));
    exit (1);
  }
}

/* An array in device memory. Its length is exact, so that a step beyond it is seen. */
template <typename T> struct Array {
  T *data = nullptr;
  size_t n;

  explicit Array (size_t n_) : n (n_)
  {
    void *memory;

    must (cudaMalloc (&memory, n * sizeof (T)), "cudaMalloc");
    data = static_cast<T *> (memory);
    must (cudaMemset (memory, 0xff, n * sizeof (T)), "cudaMemset");
  }
  explicit Array (const std::vector<T> &from) : Array (from.size ())
  {
    put (from);
  }
  Array (const Array &) = delete;
  Array &operator= (const Array &) = delete;
  ~Array ()
  {
    cudaFree (data);
  }
  void
  put (const std::vector<T> &from)
  {
    must (cudaMemcpy (data, from.data (), from.size () * sizeof (T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  }
  std::vector<T>
  get () const
  {
    std::vector<T> to (n);

    must (cudaDeviceSynchronize (), "kernel");
    must (cudaMemcpy (to.data (), data, n * sizeof (T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return to;
  }
};

/* 16-bit elements by their bits. */
static uint16_t __attribute__ ((unused)) to_bits (bool bf16, float x)
{
  uint16_t bits;
  __half h = __float2half_rn (x);
  __nv_bfloat16 b = __float2bfloat16_rn (x);

  memcpy (&bits, bf16 ? (const void *) &b : (const void *) &h, sizeof bits);
  return bits;
}

static float __attribute__ ((unused)) from_bits (bool bf16, uint16_t bits)
{
  __half h;
  __nv_bfloat16 b;

  memcpy (&h, &bits, sizeof h);
  memcpy (&b, &bits, sizeof b);
  return bf16 ? __bfloat162float (b) : __half2float (h);
}

static std::vector<uint16_t> __attribute__ ((unused))
to_bits (bool bf16, const std::vector<float> &x)
{
  std::vector<uint16_t> bits (x.size ());

  for (size_t i = 0; i < x.size (); i++)
    bits[i] = to_bits (bf16, x[i]);
  return bits;
}

}
