/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The part of cuBLAS that Lychee uses, for tests: plain loops in float32. */

#include "cuda_runtime.h"

typedef struct LycheeEmulatorBlas *cublasHandle_t;
typedef enum {
  CUBLAS_STATUS_SUCCESS,
  CUBLAS_STATUS_NOT_INITIALIZED,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;
typedef enum { CUBLAS_COMPUTE_32F = 68 } cublasComputeType_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1 } cublasGemmAlgo_t;

extern "C" {
cublasStatus_t cublasCreate (cublasHandle_t *handle);
cublasStatus_t cublasDestroy (cublasHandle_t handle);
cublasStatus_t cublasSetStream (cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace (cublasHandle_t handle, void *workspace, size_t size);
cublasStatus_t cublasGemmEx (cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
    int m, int n, int k, const void *alpha, const void *a, cudaDataType_t a_type, int lda,
    const void *b, cudaDataType_t b_type, int ldb, const void *beta, void *c, cudaDataType_t c_type,
    int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
}
