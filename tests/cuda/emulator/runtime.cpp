/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* CUDA's runtime and cuBLAS for tests: see emulator.h. */

#include <time.h>

#include <mutex>
#include <set>
#include <vector>

#include "cublas_v2.h"
#include "cuda_bf16.h"

typedef std::vector<std::function<void ()> > Work;

struct LycheeEmulatorGraph {
  Work work;
};
struct LycheeEmulatorEvent {
  LycheeEmulatorStream *stream;
  double time;
};
struct LycheeEmulatorStream {
  std::recursive_mutex lock;
  Work work;
  LycheeEmulatorGraph *capturing;
};

static std::mutex streams_lock;
static std::set<LycheeEmulatorStream *> streams;

namespace lychee_emulator {
size_t memory_free (size_t *total);

int
enqueue (void *stream, std::function<void ()> work)
{
  LycheeEmulatorStream *s = (LycheeEmulatorStream *) stream;

  if (!s) {
    work ();
    return cudaSuccess;
  }
  std::lock_guard<std::recursive_mutex> guard (s->lock);
  (s->capturing ? s->capturing->work : s->work).push_back (std::move (work));
  return cudaSuccess;
}
}

using namespace lychee_emulator;

static void
finish (LycheeEmulatorStream *stream)
{
  std::lock_guard<std::recursive_mutex> guard (stream->lock);
  Work work;

  if (stream->capturing)
    fault ("a stream is waited for while it captures");
  work.swap (stream->work);
  for (auto &w : work)
    w ();
}

static int
n_devices ()
{
  const char *variable = getenv ("LYCHEE_EMULATED_DEVICES");

  return variable ? atoi (variable) : 1;
}

extern "C" {

cudaError_t
cudaGetDeviceCount (int *n)
{
  *n = n_devices ();
  return *n < 0 ? cudaErrorInsufficientDriver : *n == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t
cudaSetDevice (int device)
{
  return device < n_devices () ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t
cudaGetDeviceProperties (cudaDeviceProp *properties, int device)
{
  size_t total;

  memory_free (&total);
  memset (properties, 0, sizeof *properties);
  strcpy (properties->name, "emulated device");
  properties->totalGlobalMem = total;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 227 << 10;
  properties->l2CacheSize = 50 << 20;
  return cudaSuccess;
}

cudaError_t
cudaMemGetInfo (size_t *free, size_t *total)
{
  *free = memory_free (total);
  return cudaSuccess;
}

cudaError_t
cudaMalloc (void **memory, size_t size)
{
  *memory = device_malloc (size);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Waits for all streams, but those that capture; returns whether there are any of these. */
static bool
finish_all (void)
{
  std::lock_guard<std::mutex> guard (streams_lock);
  bool capturing = false;

  for (LycheeEmulatorStream *stream : streams) {
    std::lock_guard<std::recursive_mutex> inner (stream->lock);

    capturing |= stream->capturing != nullptr;
    if (!stream->capturing)
      finish (stream);
  }
  return capturing;
}

cudaError_t
cudaDeviceSynchronize (void)
{
  /* A device would fail, and end the capture of whoever captures. */
  if (finish_all ())
    fault ("the device is waited for while a stream captures");
  return cudaSuccess;
}

cudaError_t
cudaFree (void *memory)
{
  if (!memory)
    return cudaSuccess;
  finish_all ();
  device_free (memory);
  return cudaSuccess;
}

cudaError_t
cudaMallocHost (void **memory, size_t size)
{
  *memory = malloc (size);
  if (*memory)
    memset (*memory, 0xff, size);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t
cudaFreeHost (void *memory)
{
  free (memory);
  return cudaSuccess;
}

cudaError_t
cudaMemcpy (void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
  if (size) // C forbids NULL even for nothing, CUDA does not
    memcpy (to, from, size);
  return cudaSuccess;
}

cudaError_t
cudaMemset (void *memory, int value, size_t size)
{
  if (size)
    memset (memory, value, size);
  return cudaSuccess;
}

cudaError_t
cudaMemcpyAsync (void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream)
{
  return enqueue (stream, [=] { cudaMemcpy (to, from, size, kind); });
}

cudaError_t
cudaMemsetAsync (void *memory, int value, size_t size, cudaStream_t stream)
{
  return enqueue (stream, [=] { cudaMemset (memory, value, size); });
}

cudaError_t
cudaStreamCreateWithFlags (cudaStream_t *stream, unsigned flags)
{
  std::lock_guard<std::mutex> guard (streams_lock);

  *stream = new LycheeEmulatorStream ();
  streams.insert (*stream);
  return cudaSuccess;
}

cudaError_t
cudaStreamDestroy (cudaStream_t stream)
{
  finish (stream);
  std::lock_guard<std::mutex> guard (streams_lock);
  streams.erase (stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize (cudaStream_t stream)
{
  static unsigned long n; /* since the variable was set */
  const char *variable = getenv ("LYCHEE_EMULATED_FAULT_AFTER");

  finish (stream);
  if (!variable)
    n = 0;
  else if (__atomic_add_fetch (&n, 1, __ATOMIC_RELAXED) > strtoul (variable, nullptr, 10))
    return cudaErrorLaunchFailure;
  return cudaSuccess;
}

cudaError_t
cudaStreamBeginCapture (cudaStream_t stream, cudaStreamCaptureMode mode)
{
  if (stream->capturing || getenv ("LYCHEE_EMULATED_NO_CAPTURE"))
    return cudaErrorInvalidValue;
  stream->capturing = new LycheeEmulatorGraph ();
  return cudaSuccess;
}

cudaError_t
cudaStreamEndCapture (cudaStream_t stream, cudaGraph_t *graph)
{
  *graph = stream->capturing;
  stream->capturing = nullptr;
  return *graph ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t
cudaGraphInstantiate (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
  *exec = new LycheeEmulatorGraph (*graph);
  return cudaSuccess;
}

cudaError_t
cudaGraphLaunch (cudaGraphExec_t exec, cudaStream_t stream)
{
  Work work = exec->work;

  return enqueue (stream, [work] {
    for (auto &w : work)
      w ();
  });
}

cudaError_t
cudaGraphDestroy (cudaGraph_t graph)
{
  delete graph;
  return cudaSuccess;
}

cudaError_t
cudaGraphExecDestroy (cudaGraphExec_t exec)
{
  delete exec;
  return cudaSuccess;
}

cudaError_t
cudaEventCreate (cudaEvent_t *event)
{
  *event = new LycheeEmulatorEvent ();
  return cudaSuccess;
}

cudaError_t
cudaEventRecord (cudaEvent_t event, cudaStream_t stream)
{
  event->stream = stream;
  return enqueue (stream, [event] {
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    event->time = t.tv_sec * 1e3 + t.tv_nsec / 1e6;
  });
}

cudaError_t
cudaEventSynchronize (cudaEvent_t event)
{
  if (event->stream)
    finish (event->stream);
  return cudaSuccess;
}

cudaError_t
cudaEventElapsedTime (float *ms, cudaEvent_t from, cudaEvent_t to)
{
  *ms = (float) (to->time - from->time);
  return cudaSuccess;
}

cudaError_t
cudaEventDestroy (cudaEvent_t event)
{
  delete event;
  return cudaSuccess;
}

cudaError_t
cudaGetLastError (void)
{
  return cudaSuccess;
}

const char *
cudaGetErrorString (cudaError_t error)
{
  switch (error) {
  case cudaSuccess:
    return "no error";
  case cudaErrorMemoryAllocation:
    return "out of memory";
  case cudaErrorLaunchFailure:
    return "unspecified launch failure";
  case cudaErrorNoDevice:
    return "no CUDA-capable device is detected";
  case cudaErrorInsufficientDriver:
    return "CUDA driver version is insufficient for CUDA runtime version";
  case cudaErrorInvalidConfiguration:
    return "invalid configuration argument";
  default:
    return "an error";
  }
}

/* cuBLAS */

struct LycheeEmulatorBlas {
  cudaStream_t stream;
};

cublasStatus_t
cublasCreate (cublasHandle_t *handle)
{
  *handle = new LycheeEmulatorBlas ();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasDestroy (cublasHandle_t handle)
{
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetStream (cublasHandle_t handle, cudaStream_t stream)
{
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetWorkspace (cublasHandle_t handle, void *workspace, size_t size)
{
  check_aligned (workspace, 256, "cublasSetWorkspace");
  return CUBLAS_STATUS_SUCCESS;
}

static float
element (const void *matrix, cudaDataType_t type, size_t at)
{
  if (type == CUDA_R_16F)
    return __half2float (((const __half *) matrix)[at]);
  return __bfloat162float (((const __nv_bfloat16 *) matrix)[at]);
}

cublasStatus_t
cublasGemmEx (cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
    int k, const void *alpha, const void *a, cudaDataType_t a_type, int lda, const void *b,
    cudaDataType_t b_type, int ldb, const void *beta, void *c, cudaDataType_t c_type, int ldc,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
  float x = *(const float *) alpha, y = *(const float *) beta;

  if (a_type != b_type || (a_type != CUDA_R_16F && a_type != CUDA_R_16BF) || c_type != CUDA_R_32F ||
      compute != CUBLAS_COMPUTE_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m < 1 || n < 1 || k < 1 || lda < (ta == CUBLAS_OP_N ? m : k) ||
      ldb < (tb == CUBLAS_OP_N ? k : n) || ldc < m)
    return CUBLAS_STATUS_INVALID_VALUE;
  enqueue (handle->stream, [=] {
    std::vector<float> column (k);

    for (int j = 0; j < n; j++) {
      for (int l = 0; l < k; l++)
        column[l] =
            element (b, b_type, tb == CUBLAS_OP_N ? (size_t) j * ldb + l : (size_t) l * ldb + j);
      for (int i = 0; i < m; i++) {
        float *to = (float *) c + (size_t) j * ldc + i, sum = 0;

        for (int l = 0; l < k; l++)
          sum += column[l] * element (a, a_type,
                                 ta == CUBLAS_OP_N ? (size_t) l * lda + i : (size_t) i * lda + l);
        *to = x * sum + (y == 0 ? 0 : y * *to);
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
}

/* Half floats */

static float half_table[1 << 16];

static float
decode_half (uint32_t bits)
{
  uint32_t sign = bits >> 15, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float x;

  if (exponent == 31)
    x = mantissa ? NAN : INFINITY;
  else if (exponent == 0)
    x = ldexpf ((float) mantissa, -24);
  else
    x = ldexpf ((float) (mantissa + 1024), (int) exponent - 25);
  return sign ? -x : x;
}

float
lychee_emulator_half_to_float (uint16_t bits)
{
  static std::once_flag once;

  std::call_once (once, [] {
    for (uint32_t i = 0; i < 1 << 16; i++)
      half_table[i] = decode_half (i);
  });
  return half_table[bits];
}

uint16_t
lychee_emulator_float_to_half (float f)
{
  uint32_t bits, sign, rest, shift;
  int exponent;

  memcpy (&bits, &f, sizeof bits);
  sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000)
    return 0x7fff;
  if (bits >= 0x477ff000) /* rounds to more than 65504 */
    return (uint16_t) (sign | 0x7c00);
  exponent = (int) (bits >> 23) - 112;
  if (exponent <= 0) {
    if (exponent < -10)
      return (uint16_t) sign;
    rest = (bits & 0x7fffff) | 0x800000;
    shift = (uint32_t) (14 - exponent);
  } else {
    rest = bits - (112u << 23);
    shift = 13;
  }
  uint32_t half = 1u << (shift - 1), low = rest & (2 * half - 1), kept = rest >> shift;
  if (low > half || (low == half && kept & 1))
    kept++;
  return (uint16_t) (sign | kept);
}
