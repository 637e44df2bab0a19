/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* CUDA's runtime and cuBLAS for tests: see emulator.h. */

#include <time.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "cublas_v2.h"
#include "cuda_bf16.h"

/* What is done when a stream is waited for, and what when it is put there. */
struct Item {
  std::function<void ()> work, begin;
};
typedef std::vector<Item> Items;

struct LycheeEmulatorGraph {
  Items items;
  int device;
};
struct LycheeEmulatorEvent {
  LycheeEmulatorStream *stream;
  double time;
};
struct LycheeEmulatorStream {
  std::recursive_mutex lock;
  Items items;
  LycheeEmulatorGraph *capturing;
  int device;
};

static std::mutex streams_lock;
static std::set<LycheeEmulatorStream *> streams;
static std::mutex pinned_lock;
static std::map<const char *, size_t> pinned; /* begin -> size */
/* Of a thread: */
static thread_local int last_error, device;
static thread_local LycheeEmulatorStream *captures;

namespace lychee_emulator {
size_t memory_free (size_t *total);
size_t get_block_shared ();

int
fail (int code)
{
  if (code != cudaSuccess)
    last_error = code;
  return code;
}

int
get_device ()
{
  return device;
}

int
enqueue (void *stream, std::function<void ()> work, std::function<void ()> begin)
{
  LycheeEmulatorStream *s = (LycheeEmulatorStream *) stream;

  if (!s) {
    if (begin)
      begin ();
    work ();
    return cudaSuccess;
  }
  if (s->device != device)
    return fail (cudaErrorInvalidResourceHandle);
  std::lock_guard<std::recursive_mutex> guard (s->lock);
  if (begin && !s->capturing)
    begin ();
  (s->capturing ? s->capturing->items : s->items)
      .push_back (Item{ std::move (work), std::move (begin) });
  return cudaSuccess;
}
}

using namespace lychee_emulator;

/* A device would refuse, and end the capture: which is a fault of who calls. */
static void
forbid_capture (const char *function)
{
  if (captures)
    fault ("%s is called in a thread that captures a stream", function);
}

static bool
is_pinned (const void *memory, size_t size)
{
  std::lock_guard<std::mutex> guard (pinned_lock);
  auto found = pinned.upper_bound ((const char *) memory);

  if (found == pinned.begin ())
    return false;
  --found;
  return (const char *) memory + size <= found->first + found->second;
}

static void
finish (LycheeEmulatorStream *stream)
{
  std::lock_guard<std::recursive_mutex> guard (stream->lock);
  Items items;

  if (stream->capturing)
    fault ("a stream is waited for while it captures");
  items.swap (stream->items);
  for (Item &item : items)
    item.work ();
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
  return fail (*n < 0 ? cudaErrorInsufficientDriver : *n == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t
cudaRuntimeGetVersion (int *version)
{
  *version = 12040;
  return cudaSuccess;
}

cudaError_t
cudaDriverGetVersion (int *version)
{
  *version = n_devices () == -1 ? 0 : n_devices () < -1 ? 12000 : 12080;
  return cudaSuccess;
}

cudaError_t
cudaSetDevice (int to)
{
  if (to < 0 || to >= n_devices ())
    return fail (cudaErrorInvalidDevice);
  device = to;
  return cudaSuccess;
}

cudaError_t
cudaGetDeviceProperties (cudaDeviceProp *properties, int of)
{
  size_t total;

  if (of < 0 || of >= n_devices ())
    return fail (cudaErrorInvalidDevice);
  memory_free (&total);
  memset (properties, 0, sizeof *properties);
  strcpy (properties->name, "emulated device");
  properties->totalGlobalMem = total;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlockOptin = get_block_shared ();
  properties->sharedMemPerMultiprocessor = get_block_shared ();
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
  forbid_capture ("cudaMalloc");
  *memory = device_malloc (size, device);
  return fail (*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Waits for all streams, which nobody may while one of them captures: a device would fail, and end
 * the capture. */
static void
finish_all (const char *function)
{
  std::lock_guard<std::mutex> guard (streams_lock);

  for (LycheeEmulatorStream *stream : streams) {
    std::lock_guard<std::recursive_mutex> inner (stream->lock);

    if (stream->capturing)
      fault ("%s waits for the device while a stream captures", function);
    finish (stream);
  }
}

cudaError_t
cudaDeviceSynchronize (void)
{
  finish_all ("cudaDeviceSynchronize");
  return cudaSuccess;
}

cudaError_t
cudaFree (void *memory)
{
  if (!memory)
    return cudaSuccess;
  finish_all ("cudaFree");
  device_free (memory);
  return cudaSuccess;
}

cudaError_t
cudaMallocHost (void **memory, size_t size)
{
  forbid_capture ("cudaMallocHost");
  *memory = malloc (size);
  if (!*memory)
    return fail (cudaErrorMemoryAllocation);
  memset (*memory, 0xff, size);
  std::lock_guard<std::mutex> guard (pinned_lock);
  pinned[(const char *) *memory] = size;
  return cudaSuccess;
}

cudaError_t
cudaFreeHost (void *memory)
{
  forbid_capture ("cudaFreeHost");
  if (!memory)
    return cudaSuccess;
  {
    std::lock_guard<std::mutex> guard (pinned_lock);

    if (pinned.erase ((const char *) memory) == 0)
      fault ("%p is freed, and is no pinned memory", memory);
  }
  free (memory);
  return cudaSuccess;
}

static void
check_copy (const char *function, const void *to, const void *from, size_t size,
    cudaMemcpyKind kind, int on)
{
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;

  if (size == 0)
    return;
  if (to_device)
    check_device_memory (to, size, on, function);
  else if (is_device_memory (to))
    fault ("%s: %p is not the host's", function, to);
  if (from_device)
    check_device_memory (from, size, on, function);
  else if (is_device_memory (from))
    fault ("%s: %p is not the host's", function, from);
}

cudaError_t
cudaMemcpy (void *to, const void *from, size_t size, cudaMemcpyKind kind)
{
  forbid_capture ("cudaMemcpy");
  check_copy ("cudaMemcpy", to, from, size, kind, device);
  if (size) // C forbids NULL even for nothing, CUDA does not
    memcpy (to, from, size);
  return cudaSuccess;
}

cudaError_t
cudaMemset (void *memory, int value, size_t size)
{
  forbid_capture ("cudaMemset");
  check_device_memory (memory, size, device, "cudaMemset");
  if (size)
    memset (memory, value, size);
  return cudaSuccess;
}

/* FNV-1a, by words */
static uint64_t
hash (const void *memory, size_t size)
{
  uint64_t sum = 0xcbf29ce484222325u, word;

  for (size_t i = 0; i < size; i += sizeof word) {
    word = 0;
    memcpy (&word, (const char *) memory + i, size - i < sizeof word ? size - i : sizeof word);
    sum = (sum ^ word) * 0x100000001b3u;
  }
  return sum;
}

cudaError_t
cudaMemcpyAsync (void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream)
{
  const char *function = "cudaMemcpyAsync";
  const void *host = kind == cudaMemcpyHostToDevice   ? from
                     : kind == cudaMemcpyDeviceToHost ? to
                                                      : nullptr;
  bool fixed = is_pinned (host, size);
  int on = device;
  auto copy = [=] {
    check_copy (function, to, from, size, kind, on);
    if (fixed && !is_pinned (host, size))
      fault ("%s: %p was freed before it was copied", function, host);
    memcpy (to, from, size);
  };

  if (size == 0)
    return cudaSuccess;
  check_copy (function, to, from, size, kind, on);
  if (kind == cudaMemcpyHostToDevice) {
    auto sums = std::make_shared<std::deque<uint64_t> > ();

    if (captures && !fixed)
      fault ("%s: %p is captured, and is not pinned", function, from);
    return enqueue (
        stream,
        [=] {
          if (hash (from, size) != sums->front ())
            fault ("%s: what is copied was changed before it was (%zu bytes)", function, size);
          sums->pop_front ();
          copy ();
        },
        [=] { sums->push_back (hash (from, size)); });
  }
  if (kind == cudaMemcpyDeviceToHost) {
    if (!fixed)
      fault ("%s: %p is not pinned: the host would wait", function, to);
    /* Who looks before the copy was waited for sees that it is not there. */
    return enqueue (stream, copy, [=] { memset (to, 0xff, size); });
  }
  return enqueue (stream, copy);
}

cudaError_t
cudaMemsetAsync (void *memory, int value, size_t size, cudaStream_t stream)
{
  check_device_memory (memory, size, device, "cudaMemsetAsync");
  return enqueue (stream, [=] { memset (memory, value, size); });
}

cudaError_t
cudaStreamCreateWithFlags (cudaStream_t *stream, unsigned flags)
{
  std::lock_guard<std::mutex> guard (streams_lock);

  *stream = new LycheeEmulatorStream ();
  (*stream)->device = device;
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
    __atomic_store_n (&n, 0, __ATOMIC_RELAXED);
  else if (__atomic_add_fetch (&n, 1, __ATOMIC_RELAXED) > strtoul (variable, nullptr, 10))
    return fail (cudaErrorLaunchFailure);
  return cudaSuccess;
}

cudaError_t
cudaStreamBeginCapture (cudaStream_t stream, cudaStreamCaptureMode mode)
{
  std::lock_guard<std::recursive_mutex> guard (stream->lock);

  if (stream->capturing || captures || getenv ("LYCHEE_EMULATED_NO_CAPTURE"))
    return fail (cudaErrorInvalidValue);
  stream->capturing = new LycheeEmulatorGraph ();
  stream->capturing->device = stream->device;
  captures = stream;
  return cudaSuccess;
}

cudaError_t
cudaStreamEndCapture (cudaStream_t stream, cudaGraph_t *graph)
{
  std::lock_guard<std::recursive_mutex> guard (stream->lock);

  *graph = stream->capturing;
  stream->capturing = nullptr;
  if (captures != stream) /* another thread's */
    fault ("a capture is ended that this thread has not begun");
  captures = nullptr;
  return cudaSuccess;
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
  Items items = exec->items;

  if (exec->device != stream->device)
    return fail (cudaErrorInvalidValue);
  return enqueue (
      stream,
      [items] {
        for (auto &item : items)
          item.work ();
      },
      [items] {
        for (auto &item : items)
          if (item.begin)
            item.begin ();
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
  forbid_capture ("cudaEventSynchronize");
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
  int code = last_error;

  last_error = cudaSuccess;
  return code;
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
  case cudaErrorInvalidResourceHandle:
    return "invalid resource handle";
  default:
    return "an error";
  }
}

/* cuBLAS */

struct LycheeEmulatorBlas {
  cudaStream_t stream;
  int device;
  bool has_workspace; /* of its own */
};

cublasStatus_t
cublasCreate (cublasHandle_t *handle)
{
  forbid_capture ("cublasCreate");
  *handle = new LycheeEmulatorBlas ();
  (*handle)->device = device;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasDestroy (cublasHandle_t handle)
{
  finish_all ("cublasDestroy");
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetStream (cublasHandle_t handle, cudaStream_t stream)
{
  handle->stream = stream;
  handle->has_workspace = false; /* as cuBLAS does */
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetWorkspace (cublasHandle_t handle, void *workspace, size_t size)
{
  check_aligned (workspace, 256, "cublasSetWorkspace");
  check_device_memory (workspace, size, handle->device, "cublasSetWorkspace");
  handle->has_workspace = true;
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
  if (!handle->has_workspace)
    fault ("cublasGemmEx: the handle has no workspace of its own");
  if (handle->device != device)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  int failed = enqueue (handle->stream, [=] {
    auto count = [] (int rows, int stride, int own) { return (size_t) (rows - 1) * stride + own; };
    size_t n_a = ta == CUBLAS_OP_N ? count (k, lda, m) : count (m, lda, k);
    size_t n_b = tb == CUBLAS_OP_N ? count (n, ldb, k) : count (k, ldb, n);
    std::vector<float> column (k);

    check_device_memory (a, n_a * 2, handle->device, "cublasGemmEx, A");
    check_device_memory (b, n_b * 2, handle->device, "cublasGemmEx, B");
    check_device_memory (c, count (n, ldc, m) * 4, handle->device, "cublasGemmEx, C");

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
  return failed ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
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

static struct FillTable {
  FillTable ()
  {
    for (uint32_t i = 0; i < 1 << 16; i++)
      half_table[i] = decode_half (i);
  }
} fill_table;

float
lychee_emulator_half_to_float (uint16_t bits)
{
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
