/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The part of CUDA's runtime and device functions that the kernels use, on the processor: see
 * emulator.h. */

#define LYCHEE_EMULATED 1

#include "emulator.h"

#define LYCHEE_EMULATOR_STRING_(x) #x
#define LYCHEE_EMULATOR_STRING(x) LYCHEE_EMULATOR_STRING_ (x)
#define LYCHEE_HERE __FILE__ ":" LYCHEE_EMULATOR_STRING (__LINE__)

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__ ((always_inline))
#define __launch_bounds__(...)

typedef lychee_emulator::Dim3 dim3;
#define threadIdx (lychee_emulator::thread ().index)
#define blockIdx (lychee_emulator::thread ().block_index)
#define blockDim (lychee_emulator::thread ().block_dim)
#define gridDim (lychee_emulator::thread ().grid_dim)

struct alignas (8) float2
{
  float x, y;
};
struct alignas (16) float4
{
  float x, y, z, w;
};
struct alignas (8) uint2
{
  unsigned x, y;
};
struct alignas (16) uint4
{
  unsigned x, y, z, w;
};

/* Barriers, shuffles, votes */
#define __syncthreads() lychee_emulator::sync_block (LYCHEE_HERE)
#define __syncthreads_or(value) lychee_emulator::sync_block_or (LYCHEE_HERE, value)
#define __syncwarp(...)                                                                            \
  ((void) lychee_emulator::exchange (LYCHEE_HERE, lychee_emulator_mask (__VA_ARGS__), (char) 0))
static inline unsigned
lychee_emulator_mask (unsigned mask = 0xffffffffu)
{
  return mask;
}
#define __shfl_sync(mask, value, lane) lychee_emulator::shuffle (LYCHEE_HERE, mask, value, lane)
#define __shfl_xor_sync(mask, value, bits)                                                         \
  lychee_emulator::shuffle (LYCHEE_HERE, mask, value, (threadIdx.x & 31) ^ (bits))
#define __shfl_up_sync(mask, value, delta)                                                         \
  lychee_emulator::shuffle (LYCHEE_HERE, mask, value,                                              \
      (threadIdx.x & 31) >= (unsigned) (delta) ? (threadIdx.x & 31) - (delta)                      \
                                               : (threadIdx.x & 31))
#define __shfl_down_sync(mask, value, delta)                                                       \
  lychee_emulator::shuffle (LYCHEE_HERE, mask, value,                                              \
      (threadIdx.x & 31) + (delta) < 32 ? (threadIdx.x & 31) + (delta) : (threadIdx.x & 31))
#define __ballot_sync(mask, value) lychee_emulator_ballot (LYCHEE_HERE, mask, (value) != 0)
#define __any_sync(mask, value) (__ballot_sync (mask, value) != 0)
#define __all_sync(mask, value) (__ballot_sync (mask, value) == (mask))
static inline unsigned
lychee_emulator_ballot (const char *where, unsigned mask, bool value)
{
  const bool *all = lychee_emulator::exchange (where, mask, value);
  unsigned bits = 0;

  for (unsigned i = 0; i < 32; i++)
    if (mask >> i & 1 && all[i])
      bits |= 1u << i;
  return bits;
}

/* Atomics: only one fibre runs at a time. */
template <typename T, typename U>
static inline T
atomicAdd (T *at, U value)
{
  T old = *at;

  *at = old + (T) value;
  return old;
}
template <typename T>
static inline T
atomicOr (T *at, T value)
{
  T old = *at;

  *at = old | value;
  return old;
}
template <typename T>
static inline T
atomicMax (T *at, T value)
{
  T old = *at;

  *at = old > value ? old : value;
  return old;
}

template <typename T>
static inline T
atomicMin (T *at, T value)
{
  T old = *at;

  *at = old < value ? old : value;
  return old;
}

static inline unsigned long long
__umul64hi (unsigned long long x, unsigned long long y)
{
  return (unsigned long long) ((unsigned __int128) x * y >> 64);
}
static inline float
__fmul_rn (float x, float y)
{
  return x * y;
}
static inline int
__popc (unsigned x)
{
  return __builtin_popcount (x);
}
static inline int
__ffs (int x)
{
  return __builtin_ffs (x);
}
static inline unsigned
__float_as_uint (float x)
{
  unsigned bits;

  memcpy (&bits, &x, sizeof bits);
  return bits;
}
static inline float
__uint_as_float (unsigned bits)
{
  float x;

  memcpy (&x, &bits, sizeof x);
  return x;
}
static inline float
rsqrtf (float x)
{
  return 1 / sqrtf (x);
}
template <typename T>
static inline T
__ldg (const T *at)
{
  return *at;
}
template <typename T, typename U>
static inline auto
min (T a, U b) -> decltype (a + b)
{
  return a < b ? a : b;
}
template <typename T, typename U>
static inline auto
max (T a, U b) -> decltype (a + b)
{
  return a > b ? a : b;
}

/* The runtime */
typedef int cudaError_t;
enum {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
  size_t sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int l2CacheSize;
};
typedef struct LycheeEmulatorStream *cudaStream_t;
typedef struct LycheeEmulatorGraph *cudaGraph_t;
typedef struct LycheeEmulatorGraph *cudaGraphExec_t;
typedef struct LycheeEmulatorEvent *cudaEvent_t;

extern "C" {
cudaError_t cudaGetDeviceCount (int *n);
cudaError_t cudaRuntimeGetVersion (int *version);
cudaError_t cudaDriverGetVersion (int *version);
cudaError_t cudaSetDevice (int device);
cudaError_t cudaGetDeviceProperties (cudaDeviceProp *properties, int device);
cudaError_t cudaMemGetInfo (size_t *free, size_t *total);
cudaError_t cudaMalloc (void **memory, size_t size);
cudaError_t cudaFree (void *memory);
cudaError_t cudaMallocHost (void **memory, size_t size);
cudaError_t cudaFreeHost (void *memory);
cudaError_t cudaMemcpy (void *to, const void *from, size_t size, cudaMemcpyKind kind);
cudaError_t cudaMemset (void *memory, int value, size_t size);
cudaError_t cudaMemcpyAsync (
    void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync (void *memory, int value, size_t size, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags (cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy (cudaStream_t stream);
cudaError_t cudaStreamSynchronize (cudaStream_t stream);
cudaError_t cudaStreamBeginCapture (cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture (cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate (
    cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch (cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy (cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy (cudaGraphExec_t exec);
cudaError_t cudaEventCreate (cudaEvent_t *event);
cudaError_t cudaEventRecord (cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize (cudaEvent_t event);
cudaError_t cudaEventElapsedTime (float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy (cudaEvent_t event);
cudaError_t cudaDeviceSynchronize (void);
cudaError_t cudaGetLastError (void);
const char *cudaGetErrorString (cudaError_t error);
}
