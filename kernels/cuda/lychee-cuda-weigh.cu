/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the transcript's rows got of a layer's attention, added up by chunks: what evidence is found
 * by (lib/lychee-evidence.c). The sums are whole numbers, so that they do not depend on the order.
 */

#include "lychee-cuda-rows.cuh"

#define THREADS 128
#define KEYS 64   /* of a tile */
#define QUERIES 8 /* that are looked at together */
#define MAX_TILES 64
#define MAX_GROUP 64

/* Row @i of those that a block of tokens read and that count; -1: there are not so many. */
static __device__ __forceinline__ int
get_row (const LycheeCudaWeigh &p, int job, const LycheeCudaStep &step, int i)
{
  LycheeCudaSelection s;
  int end = p.first + p.n_rows, recent;

  if (!p.selection)
    return i < p.n_rows ? p.first + i : -1;
  s = p.selection[job];
  if (i < s.n_rows) {
    int row = p.selected[(size_t) job * p.budget + i];

    return row >= p.first && row < end ? row : -2;
  }
  recent = max (p.first, s.recent);
  i += recent - s.n_rows;
  return i < min (end, step.first) ? i : -1;
}

/* How many rows get_row () may have. */
static __device__ __forceinline__ int
count_rows (const LycheeCudaWeigh &p, int job, const LycheeCudaStep &step)
{
  LycheeCudaSelection s;

  if (!p.selection)
    return p.n_rows;
  s = p.selection[job];
  return s.n_rows + max (0, min (p.first + p.n_rows, step.first) - max (p.first, s.recent));
}

template <typename F, int D>
__global__ void
__launch_bounds__ (THREADS, 1) weigh_kernel (LycheeCudaWeigh p)
{
  LYCHEE_SHARED (float, q, QUERIES *D);
  LYCHEE_SHARED (float, log_mass, QUERIES);
  LYCHEE_SHARED (int, rows, KEYS);
  LYCHEE_DYNAMIC_SHARED (memory);
  float *weight = reinterpret_cast<float *> (memory); /* [KEYS][group] */
  int kv_head = blockIdx.y, group = p.n_heads / p.n_kv_heads, part = threadIdx.x % 8;
  int n_blocks = gridDim.z, first_token = blockIdx.z * p.block_tokens;
  int n_queries = min (p.block_tokens, p.n_tokens - first_token) * group;
  int job = kv_head * n_blocks + blockIdx.z;
  LycheeCudaStep step = *p.step;
  int n_rows = count_rows (p, job, step);

  for (int base = blockIdx.x * KEYS; base < n_rows; base += gridDim.x * KEYS) {
    __syncthreads ();
    for (int i = threadIdx.x; i < KEYS; i += THREADS)
      rows[i] = base + i < n_rows ? get_row (p, job, step, base + i) : -1;
    for (int i = threadIdx.x; i < KEYS * group; i += THREADS)
      weight[i] = 0;
    for (int query = 0; query < n_queries; query += QUERIES) {
      int n = min (QUERIES, n_queries - query);

      __syncthreads ();
      for (int i = threadIdx.x; i < n * D; i += THREADS) {
        int row = query + i / D;

        q[i] =
            p.q[((size_t) (first_token + row / group) * p.n_heads + kv_head * group + row % group) *
                    D +
                i % D];
      }
      if ((int) threadIdx.x < n)
        log_mass[threadIdx.x] =
            p.log_mass[((size_t) kv_head * p.n_tokens + first_token) * group + query + threadIdx.x];
      __syncthreads ();
      for (int key = threadIdx.x / 8; key < KEYS; key += THREADS / 8) {
        int row = rows[key], there = row >= 0;
        /* The first page may have been forgotten. */
        const char *keys = lychee_find_part (p.pages[there ? row >> LYCHEE_CUDA_PAGE_SHIFT : 0],
            p.layer_offset, kv_head, 0, LycheeForm<F>::type, D);
        float x[(D + 63) / 64 * 8] = {};

#pragma unroll
        for (int c = 0; c < (D + 63) / 64; c++)
          if (there && 8 * (part + 8 * c) < D)
            lychee_get_8<F> (
                keys, row & (LYCHEE_CUDA_PAGE_TOKENS - 1), 8 * (part + 8 * c), D, x + 8 * c);
        for (int i = 0; i < n; i++) {
          float sum = 0;

#pragma unroll
          for (int c = 0; c < (D + 63) / 64; c++)
            if (8 * (part + 8 * c) < D)
#pragma unroll
              for (int j = 0; j < 8; j++)
                sum += x[8 * c + j] * q[i * D + 8 * (part + 8 * c) + j];
          sum = lychee_sum_8 (sum);
          if (part == 0 && there)
            weight[key * group + (query + i) % group] += expf (p.scale * sum - log_mass[i]);
        }
      }
    }
    __syncthreads ();
    /* Rows ascend and chunks are runs of them: few sums leave the block. */
    for (int head = threadIdx.x; head < group; head += THREADS) {
      unsigned long long *to = p.sums + (size_t) (kv_head * group + head) * p.n_bins;
      float sum = 0;
      int bin = -1;

      for (int key = 0; key <= KEYS; key++) {
        int row = key < KEYS ? rows[key] : -1;
        int own = row >= 0 ? (int) p.bins[row - p.first] : -1;

        if (own != bin) {
          /* What is not a number counts nothing. */
          if (bin >= 0 && sum > 0 && sum < 1e6f)
            atomicAdd (&to[bin], (unsigned long long) (sum * LYCHEE_CUDA_WEIGHT_ONE));
          sum = 0;
          bin = own;
        }
        if (own >= 0)
          sum += weight[key * group + head];
      }
    }
  }
}

int
lychee_cuda_weigh (const LycheeCudaWeigh *p, cudaStream_t stream)
{
  int group, most = (p->selection ? p->budget + KEYS : p->n_rows);
  int tiles = (most + KEYS - 1) / KEYS;

  if (p->n_tokens == 0 || p->n_rows == 0)
    return 0;
  if (p->block_tokens < 1 || p->n_kv_heads < 1 || p->n_heads % p->n_kv_heads != 0 ||
      p->n_heads / p->n_kv_heads > MAX_GROUP)
    return (int) cudaErrorInvalidValue;
  group = p->n_heads / p->n_kv_heads;
  dim3 grid (tiles < MAX_TILES ? tiles : MAX_TILES, p->n_kv_heads,
      (p->n_tokens + p->block_tokens - 1) / p->block_tokens);
  return lychee_with_form_and_dim (p->type, p->head_dim, [=] (auto form, auto dim) {
    return lychee_launch (weigh_kernel<decltype (form), decltype (dim)::value>, grid, THREADS,
        KEYS * group * sizeof (float), stream, *p);
  });
}
