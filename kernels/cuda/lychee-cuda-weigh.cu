/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the transcript's rows got of a layer's attention, added up by chunks: what evidence is found
 * by (lib/lychee-evidence.c). The sums are whole numbers, so that they do not depend on the order.
 */

#include "lychee-cuda-packed.cuh"

#define THREADS 128
#define KEYS 64   /* of a tile */
#define QUERIES 8 /* that are looked at together */
#define MAX_TILES 64
#define MAX_GROUP 64

/* Row @i of those that a block of tokens read and that count; -1: there are not so many. @found:
 * whether it was selected. */
static __device__ __forceinline__ int
get_row (const LycheeCudaWeigh &p, int job, const LycheeCudaStep &step, int i, bool *found)
{
  LycheeCudaSelection s;
  int end = p.first + p.n_rows, recent;

  *found = false;
  if (!p.selection)
    return i < p.n_rows ? p.first + i : -1;
  s = p.selection[job];
  if (i < s.n_rows) {
    int row = p.selected[(size_t) job * p.budget + i];

    *found = true;
    return row >= p.first && row < end ? row : -2;
  }
  recent = max (p.first, s.recent);
  i += recent - s.n_rows;
  return i < min (end, step.first) ? i : -1;
}

/* What a lane has of a key and of queries: 8 elements of every 64; with @TURN every 8th pair, since
 * keys are turned to their positions. */
template <typename F, int D, bool TURN> struct Part {
  static const int n = TURN ? (D / 2 + 7) / 8 * 2 : (D + 63) / 64 * 8;
  float x[n] = {};

  __device__ __forceinline__ void
  load (const LycheeCudaTurn &turn, const char *keys, int row, int position, int part)
  {
    if constexpr (TURN) {
#pragma unroll
      for (int i = 0; i < n / 2; i++) {
        int first, second, pair = min (part + 8 * i, D / 2 - 1);
        bool rotates = lychee_find_pair (turn.n_rot, turn.neox, pair, &first, &second);
        float2 own = { lychee_get_element<F> (keys, row, first, D),
          lychee_get_element<F> (keys, row, second, D) };

        if (rotates)
          own = lychee_turn_pair (turn, position, pair, own);
        x[2 * i] = own.x;
        x[2 * i + 1] = own.y;
      }
    } else {
#pragma unroll
      for (int c = 0; c < n / 8; c++)
        if (8 * (part + 8 * c) < D)
          lychee_get_8<F> (keys, row, 8 * (part + 8 * c), D, x + 8 * c);
    }
  }
  __device__ __forceinline__ float
  multiply (const LycheeCudaTurn &turn, const float *q, int part) const
  {
    float sum = 0;

    if constexpr (TURN) {
#pragma unroll
      for (int i = 0; i < n / 2; i++) {
        int first, second, pair = part + 8 * i;

        if (pair < D / 2) {
          lychee_find_pair (turn.n_rot, turn.neox, pair, &first, &second);
          sum += x[2 * i] * q[first] + x[2 * i + 1] * q[second];
        }
      }
    } else {
#pragma unroll
      for (int c = 0; c < n / 8; c++)
        if (8 * (part + 8 * c) < D)
#pragma unroll
          for (int j = 0; j < 8; j++)
            sum += x[8 * c + j] * q[8 * (part + 8 * c) + j];
    }
    return lychee_sum_8 (sum);
  }
};

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

template <typename F, int D, bool TURN>
__global__ void
__launch_bounds__ (THREADS, 1) weigh_kernel (LycheeCudaWeigh p)
{
  LYCHEE_SHARED (float, q, QUERIES *D);
  LYCHEE_SHARED (float, log_mass, QUERIES);
  LYCHEE_SHARED (int, rows, KEYS);
  LYCHEE_SHARED (int, positions, KEYS);
  LYCHEE_DYNAMIC_SHARED (memory);
  float *weight = reinterpret_cast<float *> (memory); /* [KEYS][group] */
  int kv_head = blockIdx.y, group = p.n_heads / p.n_kv_heads, part = threadIdx.x % 8;
  int n_blocks = gridDim.z, first_token = blockIdx.z * p.block_tokens;
  int n_queries = min (p.block_tokens, p.n_tokens - first_token) * group;
  int job = kv_head * n_blocks + blockIdx.z;
  LycheeCudaStep step = *p.step;
  int n_rows = count_rows (p, job, step);
  LycheeDistances distances;

  if constexpr (TURN) {
    LYCHEE_SHARED (int, n_far, 1);
    int place = step.first - step.skip;

    distances = lychee_distances_begin (p.turn, place + first_token, place, step.n_tokens);
    if (p.selection)
      lychee_distances_select (&distances, p.selected + (size_t) job * p.budget,
          p.selection[job].n_rows, p.selection[job].n_sinks, step.skip, n_far);
  }
  for (int base = blockIdx.x * KEYS; base < n_rows; base += gridDim.x * KEYS) {
    __syncthreads ();
    for (int i = threadIdx.x; i < KEYS; i += THREADS) {
      bool found = false;
      int row = base + i < n_rows ? get_row (p, job, step, base + i, &found) : -1;
      int place = row < step.head ? row : row - step.skip;

      rows[i] = row;
      if constexpr (TURN)
        positions[i] = row < 0 ? 0
                       : found ? lychee_position_of_selected (distances, base + i, place)
                               : lychee_position_of_place (distances, place);
    }
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
        Part<F, D, TURN> own;

        if (there)
          own.load (p.turn, keys, row & (LYCHEE_CUDA_PAGE_TOKENS - 1), positions[key], part);
        for (int i = 0; i < n; i++) {
          float sum = own.multiply (p.turn, q + i * D, part);

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
    typedef decltype (form) F;
    const int D = decltype (dim)::value;
    size_t shared = KEYS * group * sizeof (float);

    if constexpr (std::is_same<F, __nv_bfloat16>::value)
      return (int) cudaErrorInvalidValue;
    else if (p->turn.range > 0)
      return lychee_launch (weigh_kernel<F, D, true>, grid, THREADS, shared, stream, *p);
    else
      return lychee_launch (weigh_kernel<F, D, false>, grid, THREADS, shared, stream, *p);
  });
}
