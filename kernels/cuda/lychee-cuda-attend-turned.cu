/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attention for few queries: keys that get positions when they are read. */

#include "lychee-cuda-attend.cuh"

int
lychee_cuda_attend_turned (const LycheeCudaAttend *p, cudaStream_t stream)
{
  if (p->type == LYCHEE_CUDA_BF16 || p->turn.n_rot > p->head_dim || p->turn.n_rot % 2 != 0)
    return (int) cudaErrorInvalidValue;
  return lychee_with_form_and_dim (p->type, p->head_dim, [=] (auto form, auto dim) {
    if constexpr (std::is_same<decltype (form), __nv_bfloat16>::value)
      return (int) cudaErrorInvalidValue;
    else
      return launch<decltype (form), decltype (dim)::value, true> (p, stream);
  });
}
