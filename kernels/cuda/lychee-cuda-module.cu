/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The module: the device and its memory, and what the library finds by its one symbol. */

#include "lychee-cuda-private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the kernels are compiled for at least: asynchronous copies, bfloat16 on tensor cores. */
#define LEAST_MAJOR 8

int
lychee_cuda_fail (LycheeCudaError *error, LycheeCudaStatus status, const char *format, ...)
{
  va_list args;

  error->status = status;
  va_start (args, format);
  vsnprintf (error->message, sizeof error->message, format, args);
  va_end (args);
  return (int) status;
}

int
lychee_cuda_check (int code, const char *what, LycheeCudaError *error)
{
  if (code == (int) cudaSuccess)
    return 0;
  cudaGetLastError (); /* errors that do not stick are forgotten */
  return lychee_cuda_fail (error,
      code == (int) cudaErrorMemoryAllocation ? LYCHEE_CUDA_NO_MEMORY : LYCHEE_CUDA_FAILED,
      "%s: %s", what, cudaGetErrorString ((cudaError_t) code));
}

static int
open_device (int ordinal, LycheeCudaDevice **device, LycheeCudaError *error)
{
  cudaDeviceProp properties;
  int n = 0, code = (int) cudaGetDeviceCount (&n);

  if (code == (int) cudaErrorInsufficientDriver) { /* also where there is none at all */
    int driver = 0, runtime = 0;

    cudaDriverGetVersion (&driver);
    cudaRuntimeGetVersion (&runtime);
    cudaGetLastError ();
    if (driver == 0)
      return lychee_cuda_fail (
          error, LYCHEE_CUDA_UNAVAILABLE, "there is no NVIDIA driver on this machine");
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNAVAILABLE,
        "the NVIDIA driver is one for CUDA %d.%d, and Lychee was built with CUDA %d.%d: install a "
        "later driver",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  if (code != (int) cudaSuccess) {
    cudaGetLastError ();
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNAVAILABLE, "there is no usable CUDA device: %s",
        cudaGetErrorString ((cudaError_t) code));
  }
  if (ordinal < 0 || ordinal >= n)
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNAVAILABLE,
        "there is no CUDA device %d: they are numbered 0 to %d", ordinal, n - 1);
  if (lychee_cuda_check ((int) cudaSetDevice (ordinal), "the CUDA device cannot be used", error) ||
      lychee_cuda_check ((int) cudaGetDeviceProperties (&properties, ordinal),
          "the CUDA device cannot be used", error)) {
    error->status = LYCHEE_CUDA_UNAVAILABLE;
    return error->status;
  }
  if (properties.major < LEAST_MAJOR)
    return lychee_cuda_fail (error, LYCHEE_CUDA_UNAVAILABLE,
        "the CUDA device %d, %s, has compute capability %d.%d, and %d.0 is needed", ordinal,
        properties.name, properties.major, properties.minor, LEAST_MAJOR);
  *device = new LycheeCudaDevice ();
  (*device)->ordinal = ordinal;
  (*device)->n_processors = properties.multiProcessorCount;
  (*device)->shared = properties.sharedMemPerMultiprocessor;
  (*device)->block_shared = properties.sharedMemPerBlockOptin;
  snprintf (
      (*device)->name, sizeof (*device)->name, "%s (CUDA device %d)", properties.name, ordinal);
  return 0;
}

static void
close_device (LycheeCudaDevice *device)
{
  delete device;
}

static const char *
get_name (LycheeCudaDevice *device)
{
  return device->name;
}

static int
get_memory (LycheeCudaDevice *device, size_t *free, size_t *total, LycheeCudaError *error)
{
  lychee_cuda_use (device);
  return lychee_cuda_check ((int) cudaMemGetInfo (free, total), "cudaMemGetInfo", error);
}

static int
alloc (LycheeCudaDevice *device, size_t size, void **memory, LycheeCudaError *error)
{
  lychee_cuda_use (device);
  return lychee_cuda_check (
      (int) cudaMalloc (memory, size), "the CUDA device gives no more memory", error);
}

static void
free_memory (LycheeCudaDevice *device, void *memory)
{
  std::lock_guard<std::mutex> guard (device->whole);

  lychee_cuda_use (device);
  cudaFree (memory);
}

static const LycheeCudaApi api = {
  LYCHEE_CUDA_ABI,
  open_device,
  close_device,
  get_name,
  get_memory,
  alloc,
  free_memory,
  lychee_cuda_has_head_dim,
  lychee_cuda_model_new,
  lychee_cuda_model_free,
  lychee_cuda_model_get_bytes,
  lychee_cuda_model_set,
  lychee_cuda_worker_new,
  lychee_cuda_worker_free,
  lychee_cuda_worker_upload,
  lychee_cuda_worker_place,
  lychee_cuda_worker_set_weights,
  lychee_cuda_worker_add_weights,
  lychee_cuda_worker_run,
};

extern "C" const LycheeCudaApi *
lychee_cuda_get_api (void)
{
  return &api;
}
