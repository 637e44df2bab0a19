/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attention for few queries: keys that are read as they are kept; and the merging of splits. */

#include "lychee-cuda-attend.cuh"

int
lychee_cuda_has_head_dim (int d)
{
  return lychee_with_head_dim (d, [] (auto) { return 0; }) == 0;
}

int
lychee_cuda_attend_blocks (int head_dim, size_t shared)
{
  int n = 0;

  lychee_with_head_dim (head_dim, [&] (auto dim) {
    /* A block costs a KiB besides. Those of Q8_0 are as large, or nearly. */
    n = (int) (shared / (Shape<__half, decltype (dim)::value, false>::shared + 1024));
    return 0;
  });
  return n < 1 ? 1 : n > MAX_RESIDENT ? MAX_RESIDENT : n;
}

int
lychee_cuda_attend (const LycheeCudaAttend *p, cudaStream_t stream)
{
  if (p->n_tokens == 0)
    return 0;
  if (p->n_splits < 1 || p->block_tokens < 1 || p->n_heads % p->n_kv_heads != 0 ||
      (p->separate && p->block_tokens != 1))
    return (int) cudaErrorInvalidValue;
  if (p->turn.range > 0)
    return lychee_cuda_attend_turned (p, stream);
  return lychee_with_form_and_dim (p->type, p->head_dim, [=] (auto form, auto dim) {
    return launch<decltype (form), decltype (dim)::value, false> (p, stream);
  });
}

/* A block a query. */
template <typename T> __global__ void __launch_bounds__ (256) merge_kernel (LycheeCudaMerge p)
{
  size_t row = blockIdx.x, total = gridDim.x;
  int group = p.n_heads / p.n_kv_heads, token = row / group % p.n_tokens;
  int head = row / group / p.n_tokens * group + row % group;
  float m = -INFINITY, l = 0, sum = 0;

  for (int s = 0; s < p.n_splits; s++)
    if (p.l[s * total + row] > 0)
      m = fmaxf (m, p.m[s * total + row]);
  for (int s = 0; s < p.n_splits; s++) {
    float part = p.l[s * total + row];

    if (s == p.n_exact && p.log_mass && threadIdx.x == 0)
      p.log_mass[row] = m / LYCHEE_LOG2E + logf (l);
    if (part > 0) {
      float weight = exp2f (p.m[s * total + row] - m);

      l += part * weight;
      if ((int) threadIdx.x < p.head_dim)
        sum += p.o[(s * total + row) * p.head_dim + threadIdx.x] * weight;
    }
  }
  if (p.n_exact >= p.n_splits && p.log_mass && threadIdx.x == 0)
    p.log_mass[row] = m / LYCHEE_LOG2E + logf (l);
  if ((int) threadIdx.x < p.head_dim)
    static_cast<T *> (p.output)[((size_t) token * p.n_heads + head) * p.head_dim + threadIdx.x] =
        LycheeElement<T>::make (l > 0 ? sum / l : 0);
}

int
lychee_cuda_merge (const LycheeCudaMerge *p, cudaStream_t stream)
{
  int rows = p->n_heads * p->n_tokens, threads = (p->head_dim + 31) / 32 * 32;

  if (rows == 0)
    return 0;
  if (p->head_dim > 256)
    return (int) cudaErrorInvalidValue;
  switch (p->type) {
  case LYCHEE_CUDA_F32:
    return lychee_launch (merge_kernel<float>, rows, threads, 0, stream, *p);
  case LYCHEE_CUDA_F16:
    return lychee_launch (merge_kernel<__half>, rows, threads, 0, stream, *p);
  case LYCHEE_CUDA_BF16:
    return lychee_launch (merge_kernel<__nv_bfloat16>, rows, threads, 0, stream, *p);
  case LYCHEE_CUDA_Q8_0:
    break;
  }
  return (int) cudaErrorInvalidValue;
}
