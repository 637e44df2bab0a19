/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The emulator itself: what works, and that the faults which it is there to find are found. */

#include <sys/wait.h>
#include <unistd.h>

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
  int value = 7;

  cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
  cudaMemcpyAsync (to.data, &value, sizeof value, cudaMemcpyHostToDevice, stream);
  value = 8; /* too early: the copy has not been made */
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
  test::result ("launches that no device takes");
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
  for (int captures : { 0, 1 })
    CHECK (dies ([&] {
      cudaStream_t stream;

      cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking);
      if (captures)
        cudaStreamBeginCapture (stream, cudaStreamCaptureModeThreadLocal);
      cudaDeviceSynchronize ();
    }) == (captures > 0));
  test::result ("a device that is waited for while a stream captures");
}

int
main ()
{
  test_works ();
  test_streams ();
  test_refused ();
  test_order ();
  test_faults ();
  return test::finish ();
}
