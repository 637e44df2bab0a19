/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <mutex>

#include "lychee-cuda-kernels.h"

struct LycheeCudaDevice {
  /* Nobody may wait for the whole device, as freeing does, while somebody captures a stream: that
   * would end the capture. Held by either. */
  std::mutex whole;
  int ordinal;
  int n_processors;
  size_t shared, block_shared; /* of a processor, and of it what a block may have */
  char name[300];
};

/* Where a layer's weights lie; what a model has not is NULL. */
struct LycheeCudaLayer {
  void *qkv, *o, *gate_up, *down; /* of the model's type */
  float *attn_norm, *ffn_norm, *qkv_b, *o_b, *gate_up_b, *down_b;
  float *q_norm, *k_norm, *attn_post_norm, *ffn_post_norm;
  bool local;
};

struct LycheeCudaModel {
  LycheeCudaDevice *device;
  LycheeCudaHparams hparams; /* without its arrays */
  LycheeCudaLayer *layers;   /* [n_layers] */
  void *embedding, *output;
  float *output_norm, *output_b;
  void *memory; /* that all of these lie in */
  size_t bytes;
  float *staging;
  cudaStream_t stream; /* that weights are brought there in */
};

/* Begins what a thread has the device do. What failed before in this thread, of whatever other code
 * that uses CUDA, would else be the error of the first launch. */
static inline void
lychee_cuda_use (const LycheeCudaDevice *device)
{
  cudaSetDevice (device->ordinal);
  cudaGetLastError ();
}

/* Sets @error, and returns its status. */
int lychee_cuda_fail (LycheeCudaError *error, LycheeCudaStatus status, const char *format, ...)
    __attribute__ ((format (printf, 3, 4)));
/* 0 if @code is success. */
int lychee_cuda_check (int code, const char *what, LycheeCudaError *error);

static inline bool
lychee_cuda_is_matrix (LycheeCudaTensor tensor)
{
  return tensor < LYCHEE_CUDA_N_MATRICES || tensor == LYCHEE_CUDA_EMBEDDING ||
         tensor == LYCHEE_CUDA_OUTPUT;
}

int lychee_cuda_model_new (LycheeCudaDevice *device, const LycheeCudaHparams *hparams,
    const unsigned char *present, LycheeCudaModel **model, LycheeCudaError *error);
void lychee_cuda_model_free (LycheeCudaModel *model);
size_t lychee_cuda_model_get_bytes (LycheeCudaModel *model);
int lychee_cuda_model_set (LycheeCudaModel *model, int layer, LycheeCudaTensor tensor, size_t first,
    size_t n, const float *values, LycheeCudaError *error);

int lychee_cuda_worker_new (LycheeCudaModel *model, const unsigned long long *weights,
    LycheeCudaWorker **worker, LycheeCudaError *error);
void lychee_cuda_worker_free (LycheeCudaWorker *worker);
int lychee_cuda_worker_upload (LycheeCudaWorker *worker, int n, void *const *to,
    const void *const *from, const size_t *sizes, LycheeCudaError *error);
int lychee_cuda_worker_place (LycheeCudaWorker *worker, const LycheeCudaUpkeep *upkeep,
    LycheeCudaPlaces *places, LycheeCudaError *error);
int lychee_cuda_worker_set_weights (
    LycheeCudaWorker *worker, const LycheeCudaWeights *weights, LycheeCudaError *error);
int lychee_cuda_worker_add_weights (LycheeCudaWorker *worker, float *sum, LycheeCudaError *error);
int lychee_cuda_worker_run (LycheeCudaWorker *worker, const LycheeCudaPass *pass,
    LycheeCudaResult *result, LycheeCudaError *error);
