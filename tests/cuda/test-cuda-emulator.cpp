/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The emulator itself: what works, and that the faults which it is there to find are found. */

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include <cublas_v2.h>

#include "cuda-test.h"
#include "lychee-cuda-device.cuh"

using test::Array;

/* Each thread gives its value to its neighbour through shared memory. */
__global__ void
neighbour_kernel (int *to, int barrier)
{
  LYCHEE_SHARED (int, values, 64);

  values[threadIdx.x] = (int) threadIdx.x;
  if (barrier)
    __syncthreads ();
  to[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

__global__ void
fresh_kernel (float *to)
{
  LYCHEE_SHARED (float, values, 33);

  if (threadIdx.x > 0)
    values[threadIdx.x] = 1;
  __syncthreads ();
  to[threadIdx.x] = values[threadIdx.x];
}

__global__ void
beyond_shared_kernel (int n)
{
  LYCHEE_SHARED (int, values, 32);

  for (int i = 0; i < n; i++)
    values[i] = i;
}

__global__ void
beyond_device_kernel (int *to, int n)
{
  if (threadIdx.x == 0)
    for (int i = 0; i < n; i++)
      to[i] = i;
}

__global__ void
beyond_dynamic_kernel (int n)
{
  LYCHEE_DYNAMIC_SHARED (memory);

  memory[n - 1] = 1;
}

/* Static shared memory, besides what is asked for. */
__global__ void
both_kernel (int *to)
{
  LYCHEE_SHARED (int, values, 1024);
  LYCHEE_DYNAMIC_SHARED (memory);

  values[threadIdx.x] = 1;
  memory[threadIdx.x] = 1;
  to[threadIdx.x] = values[threadIdx.x] + memory[threadIdx.x];
}

/* Addresses within parameters, as most kernels have them. */
struct Params {
  int n;
  const float *from;
  float *to;
};

__global__ void
params_kernel (Params p)
{
  if ((int) threadIdx.x < p.n)
    p.to[threadIdx.x] = p.from[threadIdx.x];
}

__global__ void
vector_kernel (const float *from, float *to, int offset)
{
  float4 x = lychee_load<float4> (from + offset);

  to[threadIdx.x] = x.x + x.w;
}

__global__ void
divergent_kernel (int how)
{
  if (how == 1 && threadIdx.x < 32) /* some never arrive */
    return;
  if (how == 2 && threadIdx.x < 32) /* at another one */
    __syncthreads ();
  else
    __syncthreads ();
}

__global__ void
divergent_warp_kernel (int *to, int how)
{
  int x = (int) threadIdx.x;

  if (how == 1 && x == 3)
    return;
  if (how == 2 && x == 3)
    x = __shfl_sync (LYCHEE_ALL_LANES, x, 0);
  else if (how == 3)
    x = __shfl_sync (0xffffu, x, 20); /* of a lane that is not in the mask */
  else
    x = __shfl_xor_sync (LYCHEE_ALL_LANES, x, 1);
  to[threadIdx.x] = x;
}

/* Copies are read before they were waited for. */
__global__ void
async_kernel (const float *from, float *to, int wait)
{
  LYCHEE_SHARED (float4, values, 1);

  lychee_copy_async (values, from, true);
  lychee_commit_copies ();
  if (wait)
    lychee_wait_copies ();
  to[0] = values[0].y;
}

__global__ void
warp_kernel (float *to, int *flags)
{
  float x = (float) threadIdx.x;

  to[threadIdx.x] = lychee_warp_sum (x) + 1000 * lychee_warp_max (x);
  flags[threadIdx.x] = __any_sync (LYCHEE_ALL_LANES, threadIdx.x == 5) +
                       2 * __all_sync (LYCHEE_ALL_LANES, threadIdx.x == 5) +
                       4 * __popc (__ballot_sync (LYCHEE_ALL_LANES, threadIdx.x % 32 < 7));
}

__global__ void
grid_kernel (int *to)
{
  int block = (int) (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  int thread = (int) (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));

  atomicAdd (&to[block * 24 + thread], block + thread);
}

__global__ void
scan_kernel (int *to)
{
  LYCHEE_SHARED (int, scratch, 32);
  int total, before = lychee_block_scan ((int) threadIdx.x + 1, scratch, &total);

  to[threadIdx.x] = before == (int) (threadIdx.x * (threadIdx.x + 1) / 2) ? total : -1;
}

static void
test_works ()
{
  for (unsigned seed = 0; seed < 20; seed++) {
    Array<int> to (64), flags (64), grid (2 * 3 * 4 * 24), sums (96);
    Array<float> wide (64);

    lychee_emulator::set_seed (seed);
    lychee_launch (neighbour_kernel, 1, 64, 0, nullptr, to.data, 1);
    for (int i = 0; i < 64; i++)
      CHECK (to.get ()[i] == (i + 1) % 64);
    lychee_launch (warp_kernel, 1, 64, 0, nullptr, wide.data, flags.data);
    for (int i = 0; i < 64; i++) {
      CHECK (wide.get ()[i] == (i < 32 ? 496 + 31000 : 1520 + 63000));
      CHECK (flags.get ()[i] == (i < 32 ? 1 : 0) + 28);
    }
    cudaMemset (grid.data, 0, grid.n * sizeof (int));
    lychee_launch (grid_kernel, dim3 (2, 3, 4), dim3 (2, 3, 4), 0, nullptr, grid.data);
    for (int i = 0; i < (int) grid.n; i++)
      CHECK (grid.get ()[i] == i / 24 + i % 24);
    lychee_launch (scan_kernel, 1, 96, 0, nullptr, sums.data);
    for (int i = 0; i < 96; i++)
      CHECK (sums.get ()[i] == 96 * 97 / 2);
  }
  test::result ("barriers, warp operations, grids and atomics, in 20 orders");
}

/* A stream does nothing before it is waited for, and a graph whatever its memory says then. */
static void
test_streams ()
{
  Array<int> to (64);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  int value = 8;

  cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
  cudaMemcpyAsync (to.data, &value, sizeof value, cudaMemcpyHostToDevice, stream);
  cudaStreamSynchronize (stream);
  CHECK (to.get ()[0] == 8);
  cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal);
  lychee_launch (neighbour_kernel, 1, 64, 0, stream, to.data, 1);
  cudaStreamEndCapture (stream, &graph);
  cudaGraphInstantiate (&exec, graph, 0);
  CHECK (to.get ()[0] == 8);
  cudaGraphLaunch (exec, stream);
  cudaStreamSynchronize (stream);
  CHECK (to.get ()[0] == 1);
  cudaGraphLaunch (exec, stream);
  cudaGraphLaunch (exec, stream);
  cudaStreamSynchronize (stream);
  cudaGraphExecDestroy (exec);
  cudaGraphDestroy (graph);
  cudaStreamDestroy (stream);
  test::result ("streams and graphs");
}

static void
test_refused ()
{
  Array<int> to (64);

  CHECK (lychee_launch (neighbour_kernel, 1, 2048, 0, nullptr, to.data, 1) != 0);
  CHECK (lychee_launch (neighbour_kernel, 0, 64, 0, nullptr, to.data, 1) != 0);
  CHECK (lychee_launch (neighbour_kernel, dim3 (1, 70000), 64, 0, nullptr, to.data, 1) != 0);
  CHECK (lychee_launch (beyond_dynamic_kernel, 1, 1, 50 << 10, nullptr, 4) != 0);
  lychee_allow_shared (beyond_dynamic_kernel, 100 << 10);
  CHECK (lychee_launch (beyond_dynamic_kernel, 1, 1, 50 << 10, nullptr, 4) == 0);
  CHECK (lychee_launch (beyond_dynamic_kernel, 1, 1, 300 << 10, nullptr, 4) != 0);
  CHECK (lychee_launch (neighbour_kernel, 1, dim3 (1, 1, 65), 0, nullptr, to.data, 1) != 0);
  CHECK (lychee_launch (neighbour_kernel, dim3 (1, 1, 65536), 64, 0, nullptr, to.data, 1) != 0);
  CHECK (lychee_allow_shared (scan_kernel, 300 << 10) != 0);
  setenv ("LYCHEE_EMULATED_SHARED", "101376", 1); /* a smaller device */
  CHECK (lychee_allow_shared (scan_kernel, 100 << 10) != 0);
  CHECK (lychee_allow_shared (scan_kernel, 99 << 10) == 0);
  unsetenv ("LYCHEE_EMULATED_SHARED");
  cudaGetLastError ();
  test::result ("launches that no device takes");
}

/* What failed is said again by whatever looks for errors next, as by the runtime. */
static void
test_errors ()
{
  Array<int> to (64);
  void *memory;

  setenv ("LYCHEE_EMULATED_MEMORY", "1", 1);
  CHECK (cudaMalloc (&memory, 1 << 20) == cudaErrorMemoryAllocation);
  unsetenv ("LYCHEE_EMULATED_MEMORY");
  CHECK (
      lychee_launch (neighbour_kernel, 1, 64, 0, nullptr, to.data, 1) == cudaErrorMemoryAllocation);
  CHECK (lychee_launch (neighbour_kernel, 1, 64, 0, nullptr, to.data, 1) == 0);
  CHECK (cudaSetDevice (1) == cudaErrorInvalidDevice);
  CHECK (cudaGetLastError () == cudaErrorInvalidDevice);
  CHECK (cudaGetLastError () == cudaSuccess);
  test::result ("an error that nobody asked for shows");
}

/* Streams and memory are of the device that was a thread's own when they were made. */
static void
test_devices ()
{
  cudaStream_t stream;

  setenv ("LYCHEE_EMULATED_DEVICES", "2", 1);
  CHECK (cudaSetDevice (1) == 0);
  cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
  {
    Array<int> to (64);
    int refused = 0;

    CHECK (lychee_launch (neighbour_kernel, 1, 64, 0, stream, to.data, 1) == 0);
    cudaStreamSynchronize (stream);
    std::thread other ([&] { /* which begins with the first device */
      refused = lychee_launch (neighbour_kernel, 1, 64, 0, stream, to.data, 1);
    });
    other.join ();
    CHECK (refused == cudaErrorInvalidResourceHandle);
  }
  cudaStreamDestroy (stream);
  CHECK (cudaSetDevice (0) == 0);
  unsetenv ("LYCHEE_EMULATED_DEVICES");
  test::result ("a stream of another device");
}

/* A race shows in some order. */
static void
test_order ()
{
  bool differs = false;

  for (unsigned seed = 1; seed < 10; seed++) {
    Array<int> to (64);

    lychee_emulator::set_seed (seed);
    lychee_launch (neighbour_kernel, 1, 64, 0, nullptr, to.data, 0);
    for (int i = 0; i < 64; i++)
      differs |= to.get ()[i] != (i + 1) % 64;
  }
  CHECK (differs);
  test::result ("a missing barrier shows");

  Array<float> values (33);
  lychee_launch (fresh_kernel, 1, 33, 0, nullptr, values.data);
  CHECK (isnan (values.get ()[0]) && values.get ()[1] == 1);
  test::result ("shared memory that nobody wrote shows");

  Array<float> never (3);
  CHECK (isnan (never.get ()[2]));
  test::result ("device memory that nobody wrote shows");

  Array<float> from (std::vector<float>{ 1, 2, 3, 4 }), to (1);
  lychee_launch (async_kernel, 1, 1, 0, nullptr, from.data, to.data, 1);
  CHECK (to.get ()[0] == 2);
  lychee_launch (async_kernel, 1, 1, 0, nullptr, from.data, to.data, 0);
  CHECK (isnan (to.get ()[0]));
  test::result ("an asynchronous copy that nobody waited for shows");
}

/* Runs @what in a process of its own; whether it was ended for a fault. */
template <typename What>
static bool
dies (What what)
{
  int status = 0;
  pid_t child = fork ();

  if (child == 0) {
    if (!freopen ("/dev/null", "w", stderr))
      _exit (0);
    what ();
    _exit (0);
  }
  waitpid (child, &status, 0);
  return !(WIFEXITED (status) && WEXITSTATUS (status) == 0);
}

static void
test_faults ()
{
  Array<int> to (64);
  Array<float> from (8), wide (64);

  for (int how = 0; how < 3; how++)
    CHECK (dies ([&] { lychee_launch (divergent_kernel, 1, 64, 0, nullptr, how); }) == (how > 0));
  test::result ("divergent barriers");
  for (int how = 0; how < 4; how++)
    CHECK (dies ([&] {
      lychee_launch (divergent_warp_kernel, 1, how == 3 ? 16 : 32, 0, nullptr, to.data, how);
    }) == (how > 0));
  test::result ("divergent warp operations");
  for (int n : { 32, 33, 40 })
    CHECK (dies ([&] { lychee_launch (beyond_shared_kernel, 1, 1, 0, nullptr, n); }) == (n > 32));
  test::result ("writes beyond shared memory");
  for (int n : { 100, 101 })
    CHECK (
        dies ([&] { lychee_launch (beyond_dynamic_kernel, 1, 1, 100, nullptr, n); }) == (n > 100));
  test::result ("writes beyond dynamic shared memory");
  for (int n : { 64, 65 })
    CHECK (dies ([&] { lychee_launch (beyond_device_kernel, 1, 1, 0, nullptr, to.data, n); }) ==
           (n > 64));
  test::result ("writes beyond device memory");
  for (int offset : { 0, 1, 2, 4 })
    CHECK (dies ([&] {
      lychee_launch (vector_kernel, 1, 1, 0, nullptr, from.data, wide.data, offset);
    }) == (offset % 4 != 0));
  test::result ("vectors that are not aligned");
  CHECK (dies ([&] { cudaFree (to.data + 1); }));
  test::result ("memory that is freed and is none");
  for (int n : { 44 << 10, 45 << 10 }) /* with 4 KiB that are static */
    CHECK (
        dies ([&] { lychee_launch (both_kernel, 1, 1, n, nullptr, to.data); }) == (n > 44 << 10));
  test::result ("more static and dynamic shared memory than there is");
}

/* Addresses that a kernel cannot follow. */
static void
test_addresses ()
{
  Array<float> from (8), wide (64);
  std::vector<float> host (8);
  float *freed;

  cudaMalloc (reinterpret_cast<void **> (&freed), 32);
  cudaFree (freed);
  for (const float *at : { (const float *) from.data, (const float *) nullptr,
           (const float *) from.data + 8, (const float *) host.data (), (const float *) freed })
    CHECK (dies ([&] {
      lychee_launch (
          params_kernel, 1, 8, 0, nullptr, Params{ at == from.data ? 8 : 0, at, wide.data });
    }) == (at == host.data () || at == freed));
  test::result ("parameters that are addresses of the host's, or of memory that was freed");

  /* Also when it was freed after the graph was made. */
  for (int frees : { 0, 1 })
    CHECK (dies ([&] {
      cudaStream_t stream;
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      void *memory;

      cudaMalloc (&memory, 32);
      cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
      cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal);
      lychee_launch (params_kernel, 1, 8, 0, stream,
          Params{ 8, static_cast<const float *> (memory), wide.data });
      cudaStreamEndCapture (stream, &graph);
      cudaGraphInstantiate (&exec, graph, 0);
      if (frees)
        cudaFree (memory);
      cudaGraphLaunch (exec, stream);
      cudaStreamSynchronize (stream);
    }) == (frees > 0));
  test::result ("graphs with addresses of memory that was freed");

  for (int other : { 0, 1 })
    CHECK (dies ([&] {
      float *memory;

      setenv ("LYCHEE_EMULATED_DEVICES", "2", 1);
      cudaSetDevice (other);
      cudaMalloc (reinterpret_cast<void **> (&memory), 32);
      cudaSetDevice (0);
      lychee_launch (params_kernel, 1, 8, 0, nullptr, Params{ 8, memory, wide.data });
    }) == (other > 0));
  test::result ("memory of another device");
}

enum CopyFault {
  NO_FAULT,
  CHANGED,       /* the source, too early */
  PINNED_FREED,  /* likewise */
  BEYOND,        /* an allocation */
  TO_HOST,       /* where it should be the device */
  TO_UNPINNED,   /* the host would wait */
  UNPINNED_GRAPH /* of which nobody knows how long it is there */
};

static void
copy_with (CopyFault fault)
{
  Array<int> to (16);
  std::vector<int> host (17, 3);
  cudaStream_t stream;
  cudaGraph_t graph;
  void *pinned;

  cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
  cudaMallocHost (&pinned, 64);
  memset (pinned, 1, 64);
  if (fault == UNPINNED_GRAPH)
    cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal);
  cudaMemcpyAsync (fault == TO_HOST ? (void *) host.data () : to.data,
      fault == PINNED_FREED ? pinned : host.data (), fault == BEYOND ? 68 : 64,
      cudaMemcpyHostToDevice, stream);
  if (fault == UNPINNED_GRAPH)
    cudaStreamEndCapture (stream, &graph);
  if (fault == CHANGED)
    host[15] = 4;
  if (fault == PINNED_FREED)
    cudaFreeHost (pinned);
  if (fault == TO_UNPINNED)
    cudaMemcpyAsync (host.data (), to.data, 64, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize (stream);
}

static void
test_copies ()
{
  Array<int> from (std::vector<int>{ 5 });
  cudaStream_t stream;
  void *pinned;

  for (int fault = NO_FAULT; fault <= UNPINNED_GRAPH; fault++)
    if (dies ([&] { copy_with ((CopyFault) fault); }) != (fault != NO_FAULT))
      test::fail ("fault %d", fault);
  test::result ("copies that are changed, freed, too long, to the wrong side, or not pinned");

  cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
  cudaMallocHost (&pinned, sizeof (int));
  *static_cast<int *> (pinned) = 4; /* of the token before */
  cudaMemcpyAsync (pinned, from.data, sizeof (int), cudaMemcpyDeviceToHost, stream);
  CHECK (*static_cast<int *> (pinned) == -1);
  cudaStreamSynchronize (stream);
  CHECK (*static_cast<int *> (pinned) == 5);
  cudaFreeHost (pinned);
  cudaStreamDestroy (stream);
  test::result ("a copy that is read before it was waited for shows");
}

/* While a stream captures, its thread must not do what a graph cannot hold; and no thread may wait
 * for the device. */
static void
test_capture ()
{
  static void (*const calls[]) () = {
    [] {}, /* is none */
    [] { cudaDeviceSynchronize (); },
    [] {
      void *memory;

      cudaMalloc (&memory, 4);
    },
    [] {
      void *memory;

      cudaMallocHost (&memory, 4);
    },
    [] {
      int x = 0;

      cudaMemcpy (&x, &x, 4, cudaMemcpyHostToHost);
    },
    [] {
      cublasHandle_t blas;

      cublasCreate (&blas);
    },
  };
  const size_t n = sizeof calls / sizeof *calls;

  for (size_t i = 0; i < n; i++)
    for (int captures : { 0, 1 })
      CHECK (dies ([&] {
        cudaStream_t stream;

        cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
        if (captures)
          cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal);
        calls[i]();
      }) == (captures && i > 0));
  test::result ("calls that are forbidden in a thread that captures");

  for (int waits : { 0, 1 })
    CHECK (dies ([&] {
      cudaStream_t stream;
      void *memory;

      cudaMalloc (&memory, 4);
      cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
      cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal);
      std::thread ([&] {
        void *own;

        cudaMalloc (&own, 4); /* waits for nothing */
        if (waits)
          cudaFree (memory);
      }).join ();
    }) == (waits > 0));
  test::result ("a thread that waits for the device while another one captures");
}

/* A workspace that setting the stream took away. */
static void
test_blas ()
{
  Array<uint16_t> a (64), b (64);
  Array<float> c (64);
  Array<char> workspace (256);

  for (int late : { 0, 1 })
    CHECK (dies ([&] {
      float one = 1, zero = 0;
      cublasHandle_t blas;
      cudaStream_t stream;

      cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
      cublasCreate (&blas);
      if (!late)
        cublasSetStream (blas, stream);
      cublasSetWorkspace (blas, workspace.data, 256);
      if (late)
        cublasSetStream (blas, stream);
      cublasGemmEx (blas, CUBLAS_OP_T, CUBLAS_OP_N, 8, 8, 8, &one, a.data, CUDA_R_16F, 8, b.data,
          CUDA_R_16F, 8, &zero, c.data, CUDA_R_32F, 8, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      cudaStreamSynchronize (stream);
    }) == (late > 0));
  test::result ("products without a workspace of their own");
}

int
main ()
{
  test_works ();
  test_streams ();
  test_refused ();
  test_errors ();
  test_devices ();
  test_order ();
  test_faults ();
  test_addresses ();
  test_copies ();
  test_capture ();
  test_blas ();
  return test::finish ();
}
