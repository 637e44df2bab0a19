/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What all kernels share: element types, tensor cores, asynchronous copies, reductions, launching.
 * Where LYCHEE_EMULATED is defined the same sources run on the processor
 * (tests/cuda/emulator). */

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <math.h>
#include <stdint.h>

#include <type_traits>

#include "lychee-cuda-kernels.h"

#define LYCHEE_LOG2E 1.44269504088896340736f
#define LYCHEE_ALL_LANES 0xffffffffu

#ifdef LYCHEE_EMULATED

/* An array in shared memory that the block's threads share. */
#define LYCHEE_SHARED(type, name, n)                                                               \
  type *name = static_cast<type *> (                                                               \
      lychee_emulator::shared (LYCHEE_HERE " " #name, (n) * sizeof (type), alignof (type)))
#define LYCHEE_DYNAMIC_SHARED(name)                                                                \
  unsigned char *name = static_cast<unsigned char *> (lychee_emulator::dynamic_shared ())

template <typename Kernel, typename... Args>
static inline int
lychee_launch (
    Kernel kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, const Args &...args)
{
  lychee_emulator::launch_kernel (kernel, grid, block, shared, stream, args...);
  return (int) cudaGetLastError ();
}

template <typename Kernel>
static inline int
lychee_allow_shared (Kernel kernel, size_t size)
{
  return lychee_emulator::allow_shared (reinterpret_cast<const void *> (kernel), size);
}

#else

#define LYCHEE_SHARED(type, name, n) __shared__ type name[n]
#define LYCHEE_DYNAMIC_SHARED(name) extern __shared__ __align__ (16) unsigned char name[]

/* clang-format off */
template <typename Kernel, typename... Args>
static inline int
lychee_launch (
    Kernel kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, const Args &...args)
{
  kernel<<<grid, block, shared, stream>>> (args...);
  return (int) cudaGetLastError ();
}
/* clang-format on */

/* More than 48 KiB of shared memory has to be asked for. */
template <typename Kernel>
static inline int
lychee_allow_shared (Kernel kernel, size_t size)
{
  return (int) cudaFuncSetAttribute (
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) size);
}

#endif

/* Element types: float32 outside, 16 bits in memory. */

template <typename T> struct LycheeElement;

template <> struct LycheeElement<__half> {
  static __device__ __forceinline__ float
  get (__half x)
  {
    return __half2float (x);
  }
  static __device__ __forceinline__ __half
  make (float x)
  {
    return __float2half_rn (x);
  }
};

template <> struct LycheeElement<__nv_bfloat16> {
  static __device__ __forceinline__ float
  get (__nv_bfloat16 x)
  {
    return __bfloat162float (x);
  }
  static __device__ __forceinline__ __nv_bfloat16
  make (float x)
  {
    return __float2bfloat16_rn (x);
  }
};

template <> struct LycheeElement<float> {
  static __device__ __forceinline__ float
  get (float x)
  {
    return x;
  }
  static __device__ __forceinline__ float
  make (float x)
  {
    return x;
  }
};

/* Two elements in a register, @x in the low half. */
template <typename T>
__device__ __forceinline__ unsigned
lychee_pack (T x, T y)
{
  union {
    T of[2];
    unsigned bits;
  } both = { { x, y } };

  return both.bits;
}

/* Tensor cores: c [16][8] += a [16][16] b [16][8], in float32. With g = lane / 4, t = lane % 4:
 *   a[0], a[1]: rows g, g + 8, columns 2t, 2t + 1; a[2], a[3]: the same, columns + 8
 *   b[0]: rows 2t, 2t + 1, column g; b[1]: rows + 8
 *   c[0], c[1]: row g, columns 2t, 2t + 1; c[2], c[3]: row g + 8 */
/* Source: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type". */

#ifdef LYCHEE_EMULATED

template <typename T>
static inline void
lychee_mma (float *c, const unsigned *a, const unsigned *b)
{
  struct Parts {
    float a[8], b[4];
  } own;
  int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;

  for (int i = 0; i < 12; i++) {
    unsigned bits = i < 8 ? a[i / 2] : b[i / 2 - 4];
    T x;

    bits = i % 2 ? bits >> 16 : bits & 0xffff;
    x.bits = (uint16_t) bits;
    (i < 8 ? own.a[i] : own.b[i - 8]) = LycheeElement<T>::get (x);
  }
  const Parts *all = lychee_emulator::exchange (LYCHEE_HERE, LYCHEE_ALL_LANES, own);
  for (int i = 0; i < 4; i++) {
    int column = 2 * t + i % 2, low = i / 2; /* row g or g + 8 */

    for (int k = 0; k < 16; k++) {
      const Parts &from_a = all[g * 4 + k % 8 / 2], &from_b = all[column * 4 + k % 8 / 2];

      c[i] += from_a.a[(k / 8 * 2 + low) * 2 + k % 2] * from_b.b[k / 8 * 2 + k % 2];
    }
  }
}

/* ldmatrix: n matrices of 8 rows of 8 elements; lane 8 i + j gives the address of row j of matrix
 * i, and gets of each the elements 2t, 2t + 1 of row g; with transposition, those of column g. */
static inline void
lychee_emulated_ldmatrix (unsigned *r, const void *row, int n, bool transpose, const char *where)
{
  int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;

  if (lane < 8 * n)
    lychee_emulator::check_aligned (row, 16, where);
  const void *const *rows = lychee_emulator::exchange (where, LYCHEE_ALL_LANES, row);
  for (int i = 0; i < n; i++) {
    uint16_t x[2];

    for (int j = 0; j < 2; j++)
      x[j] = transpose ? static_cast<const uint16_t *> (rows[8 * i + 2 * t + j])[g]
                       : static_cast<const uint16_t *> (rows[8 * i + g])[2 * t + j];
    r[i] = x[0] | (unsigned) x[1] << 16;
  }
}
#define lychee_ldmatrix_x4(r, row) lychee_emulated_ldmatrix (r, row, 4, false, LYCHEE_HERE)
#define lychee_ldmatrix_x2(r, row) lychee_emulated_ldmatrix (r, row, 2, false, LYCHEE_HERE)
#define lychee_ldmatrix_x4_trans(r, row) lychee_emulated_ldmatrix (r, row, 4, true, LYCHEE_HERE)
#define lychee_ldmatrix_x2_trans(r, row) lychee_emulated_ldmatrix (r, row, 2, true, LYCHEE_HERE)

/* Copies 16 bytes to shared memory, or writes zeros where !@there. */
#define lychee_copy_async(to, from, there)                                                         \
  lychee_emulator::copy_async (to, from, 16, there, LYCHEE_HERE)
/* The same of @size bytes: 4, 8 or 16. */
#define lychee_copy_async_some(size, to, from, there)                                              \
  lychee_emulator::copy_async (to, from, size, there, LYCHEE_HERE)
#define lychee_commit_copies() lychee_emulator::commit_copies ()
#define lychee_wait_copies() lychee_emulator::wait_copies (0)

/* A vector of several elements, which has to lie aligned. */
template <typename V>
static inline V
lychee_load (const void *from)
{
  V value;

  lychee_emulator::check_aligned (from, sizeof (V), __PRETTY_FUNCTION__);
  memcpy (&value, from, sizeof value);
  return value;
}

#else

template <typename T>
__device__ __forceinline__ void lychee_mma (float *c, const unsigned *a, const unsigned *b);

template <>
__device__ __forceinline__ void
lychee_mma<__half> (float *c, const unsigned *a, const unsigned *b)
{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void
lychee_mma<__nv_bfloat16> (float *c, const unsigned *a, const unsigned *b)
{
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ unsigned
lychee_shared_address (const void *pointer)
{
  return (unsigned) __cvta_generic_to_shared (pointer);
}

__device__ __forceinline__ void
lychee_ldmatrix_x4 (unsigned *r, const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(lychee_shared_address (row))
               : "memory");
}

__device__ __forceinline__ void
lychee_ldmatrix_x2 (unsigned *r, const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(lychee_shared_address (row))
               : "memory");
}

__device__ __forceinline__ void
lychee_ldmatrix_x4_trans (unsigned *r, const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(lychee_shared_address (row))
               : "memory");
}

__device__ __forceinline__ void
lychee_ldmatrix_x2_trans (unsigned *r, const void *row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(lychee_shared_address (row))
               : "memory");
}

__device__ __forceinline__ void
lychee_copy_async (void *to, const void *from, bool there)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(lychee_shared_address (to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}

#define lychee_copy_async_some(size, to, from, there)                                              \
  asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"                                     \
               :                                                                                   \
               : "r"(lychee_shared_address (to)), "l"(from), "r"((there) ? (size) : 0), "n"(size)  \
               : "memory")

__device__ __forceinline__ void
lychee_commit_copies ()
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ __forceinline__ void
lychee_wait_copies ()
{
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

template <typename V>
__device__ __forceinline__ V
lychee_load (const void *from)
{
  return *static_cast<const V *> (from);
}

#endif

/* Reductions over a warp, the result in every lane. */

__device__ __forceinline__ float
lychee_warp_sum (float x)
{
  for (int bits = 16; bits > 0; bits >>= 1)
    x += __shfl_xor_sync (LYCHEE_ALL_LANES, x, bits);
  return x;
}

__device__ __forceinline__ float
lychee_warp_max (float x)
{
  for (int bits = 16; bits > 0; bits >>= 1)
    x = fmaxf (x, __shfl_xor_sync (LYCHEE_ALL_LANES, x, bits));
  return x;
}

/* Over the block, the result in every thread; @scratch is [32], in shared memory. */
__device__ __forceinline__ float
lychee_block_sum (float x, float *scratch)
{
  int warp = threadIdx.x / 32, n_warps = (blockDim.x + 31) / 32;
  float sum = 0;

  x = lychee_warp_sum (x);
  __syncthreads ();
  if (threadIdx.x % 32 == 0)
    scratch[warp] = x;
  __syncthreads ();
  for (int i = 0; i < n_warps; i++)
    sum += scratch[i];
  return sum;
}

/* The sum of @x of the threads before this one, and in @total that of all; whole numbers.
 * @scratch is [32], in shared memory. */
template <typename T>
__device__ __forceinline__ T
lychee_block_scan (T x, T *scratch, T *total)
{
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
  T sum = x, before = 0, all = 0;

  for (int delta = 1; delta < 32; delta *= 2) {
    T other = __shfl_up_sync (LYCHEE_ALL_LANES, sum, delta);

    if (lane >= delta)
      sum += other;
  }
  __syncthreads ();
  if (lane == 31)
    scratch[warp] = sum;
  __syncthreads ();
  for (int i = 0; i < n_warps; i++) {
    if (i < warp)
      before += scratch[i];
    all += scratch[i];
  }
  *total = all;
  return before + sum - x;
}

/* The parts of an index record: see lychee-cuda.h. */

__device__ __forceinline__ const signed char *
lychee_node_codes (const LycheeCudaNode *node)
{
  return reinterpret_cast<const signed char *> (node + 1);
}

__device__ __forceinline__ const LycheeCudaLeaf *
lychee_node_leaves (const LycheeCudaNode *node, int dim)
{
  return reinterpret_cast<const LycheeCudaLeaf *> (lychee_node_codes (node) + 2 * dim);
}

__device__ __forceinline__ const unsigned char *
lychee_node_leaf_codes (const LycheeCudaNode *node, int dim)
{
  return reinterpret_cast<const unsigned char *> (lychee_node_leaves (node, dim) + node->n_leaves);
}

__device__ __forceinline__ const int *
lychee_node_ids (const LycheeCudaNode *node, int dim)
{
  return reinterpret_cast<const int *> (
      lychee_node_leaf_codes (node, dim) + (size_t) node->n_leaves * (dim / 2));
}

/* Sums over 8 neighbouring lanes. */
__device__ __forceinline__ float
lychee_sum_8 (float x)
{
  x += __shfl_xor_sync (LYCHEE_ALL_LANES, x, 4);
  x += __shfl_xor_sync (LYCHEE_ALL_LANES, x, 2);
  return x + __shfl_xor_sync (LYCHEE_ALL_LANES, x, 1);
}

/* What @launch returns for the head size as a constant, or an error: the sizes that there are
 * attention kernels for. */
template <typename Launch>
static int
lychee_with_head_dim (int head_dim, Launch launch)
{
  switch (head_dim) {
  case 64:
    return launch (std::integral_constant<int, 64> ());
  case 80:
    return launch (std::integral_constant<int, 80> ());
  case 96:
    return launch (std::integral_constant<int, 96> ());
  case 128:
    return launch (std::integral_constant<int, 128> ());
  case 256:
    return launch (std::integral_constant<int, 256> ());
  }
  return (int) cudaErrorInvalidValue;
}
