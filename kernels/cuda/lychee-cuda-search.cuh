/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the searches of both granularities share: a block a job, whose steps each need all of the
 * one before. What they go over again and again lies in shared memory, as far as it fits. */

#include "lychee-cuda-device.cuh"

#define SEARCH_THREADS 512
#define SEARCH_WARPS (SEARCH_THREADS / 32)
#define SEARCH_MAP_BITS (1 << 17) /* rows that are brought into order at a time */
#define SEARCH_MAP_WORDS (SEARCH_MAP_BITS / 32)
#define SEARCH_MAX_SHARED (96 << 10)
#define SEARCH_SCORE_BLOCKS 1024 /* of a launch that scores, about */

/* Arrays of counts have rows in their lower half, and what else is known of an entry above. */
#define SEARCH_ROWS(count) ((count) &0xffff)

/* What all threads of a block know. */
struct LycheeSearch {
  int job, kv_head, first_token, n_tokens, n_queries, dim;
  int sequence;
  LycheeCudaHead head;
  const float *q; /* [n_queries][dim], in shared memory, as all that follows */
  float *most, *inverse_sum, *other_most, *length; /* [n_queries] */
  int *scratch;                                    /* [32] */
  int *bins;                                       /* [256] */
  int *found;                                      /* [2] */
  unsigned *map;                                   /* [SEARCH_MAP_WORDS] */
  float *pool;                                     /* what is not taken yet */
  int pool_left;
};

/* Room for @n elements of 4 bytes in shared memory, or where that is full in @otherwise. */
template <typename T>
static __device__ __forceinline__ T *
lychee_search_take (LycheeSearch *s, int n, T *otherwise)
{
  T *room = reinterpret_cast<T *> (s->pool);

  n = (n + 3) / 4 * 4;
  if (n > s->pool_left)
    return otherwise;
  s->pool += n;
  s->pool_left -= n;
  return room;
}

/* The queries of a job. */
static __device__ __forceinline__ LycheeSearch
lychee_search_begin (const LycheeCudaSearch &p, int job, int n_blocks)
{
  LycheeSearch s;

  s.job = job;
  s.kv_head = job / n_blocks;
  s.first_token = job % n_blocks * p.block_tokens;
  s.n_tokens = min (p.block_tokens, p.n_tokens - s.first_token);
  s.n_queries = s.n_tokens * (p.n_heads / p.n_kv_heads);
  s.dim = p.head_dim;
  s.sequence = p.separate ? s.first_token : 0;
  s.head = p.heads[(size_t) s.sequence * p.head_stride + s.kv_head];
  return s;
}

/* What is read in any case; returns how many rows more may be, or -1 if all are read. */
static __device__ __forceinline__ int
lychee_search_budget (
    const LycheeCudaSearch &p, const LycheeSearch &s, LycheeCudaSelection *selection, int *certain)
{
  LycheeCudaStep step = p.step[s.sequence];
  int budget;

  selection->n_sinks = step.skip > 0 ? step.head : min (p.sinks, step.first);
  selection->recent = max (s.head.end, selection->n_sinks + step.skip);
  selection->n_rest = 0;
  *certain = selection->n_sinks + step.first - selection->recent;
  budget = max (0, p.budget - *certain);
  return s.head.end - s.head.begin <= budget ? -1 : budget;
}

static __device__ __forceinline__ void
lychee_search_load_queries (const LycheeCudaSearch &p, const LycheeSearch &s, float *q)
{
  int group = p.n_heads / p.n_kv_heads;

  for (int i = threadIdx.x; i < s.n_queries * s.dim; i += blockDim.x) {
    int row = i / s.dim;

    q[i] =
        p.q[((size_t) (s.first_token + row / group) * p.n_heads + s.kv_head * group + row % group) *
                s.dim +
            i % s.dim];
  }
  __syncthreads ();
}

/* The same with 8 lanes: part of the product of a query with a code of 8 bits, of which lane @part
 * has words part, part + 8, ... in @bits. */
static __device__ __forceinline__ float
lychee_search_dot_8 (const float *q, const unsigned *bits, int part, int words)
{
  float sum = 0;

#pragma unroll
  for (int w = 0; w < 8; w++)
    if (part + 8 * w < words) {
      float4 x = lychee_load<float4> (q + 4 * (part + 8 * w));

      sum += x.x * (float) (signed char) (bits[w] & 255) +
             x.y * (float) (signed char) (bits[w] >> 8 & 255) +
             x.z * (float) (signed char) (bits[w] >> 16 & 255) +
             x.w * (float) (signed char) (bits[w] >> 24);
    }
  return lychee_sum_8 (sum);
}

/* And with a code of 4 bits, which are differences; the high halves are dims from dim / 2 on. */
static __device__ __forceinline__ float
lychee_search_dot_4 (const float *q, const unsigned *bits, int part, int dim)
{
  float sum = 0;

#pragma unroll
  for (int w = 0; w < 4; w++)
    if (part + 8 * w < dim / 8) {
      const float *x = q + 4 * (part + 8 * w);
      float4 low = lychee_load<float4> (x), high = lychee_load<float4> (x + dim / 2);
      unsigned b = bits[w];

      sum += low.x * ((int) (b & 15) - 8) + high.x * ((int) (b >> 4 & 15) - 8) +
             low.y * ((int) (b >> 8 & 15) - 8) + high.y * ((int) (b >> 12 & 15) - 8) +
             low.z * ((int) (b >> 16 & 15) - 8) + high.z * ((int) (b >> 20 & 15) - 8) +
             low.w * ((int) (b >> 24 & 15) - 8) + high.w * ((int) (b >> 28) - 8);
    }
  return lychee_sum_8 (sum);
}

/* Begins a block of the search itself: its memory, its queries, and their lengths times @times. */
static __device__ __forceinline__ void
lychee_search_lay_out (
    const LycheeCudaSearch &p, LycheeSearch *s, unsigned char *memory, int n_pool, float times)
{
  int block_queries = p.block_tokens * (p.n_heads / p.n_kv_heads);
  float *q = reinterpret_cast<float *> (memory);

  s->q = q;
  s->most = q + block_queries * s->dim;
  s->inverse_sum = s->most + block_queries;
  s->other_most = s->inverse_sum + block_queries;
  s->length = s->other_most + block_queries;
  s->map = reinterpret_cast<unsigned *> (s->length + block_queries);
  s->pool = reinterpret_cast<float *> (s->map + SEARCH_MAP_WORDS);
  s->pool_left = n_pool;
  lychee_search_load_queries (p, *s, q);
  for (int i = threadIdx.x / 32; i < s->n_queries; i += SEARCH_WARPS) {
    float sum = 0;

    for (int d = threadIdx.x % 32; d < s->dim; d += 32)
      sum += q[i * s->dim + d] * q[i * s->dim + d];
    sum = lychee_warp_sum (sum);
    if (threadIdx.x % 32 == 0)
      s->length[i] = times * sqrtf (sum);
  }
  __syncthreads ();
}

/* Bytes of shared memory but for the pool. */
static inline size_t
lychee_search_fixed (int dim, int queries)
{
  return (size_t) queries * (dim + 4) * sizeof (float) + SEARCH_MAP_WORDS * sizeof (unsigned);
}

/* Elements of the pool, for @wanted of them. */
static inline int
lychee_search_pool (int dim, int queries, size_t wanted)
{
  size_t most = (SEARCH_MAX_SHARED - lychee_search_fixed (dim, queries)) / sizeof (float);

  return (int) (wanted < most ? wanted : most) / 4 * 4;
}

/* The densest entries that together hold @target rows, by radix selection: all whose density is
 * larger than the one whose bits are returned, and of those that are equal the first ones, as long
 * as they hold less than @left rows. Densities are not negative: their bits are in their order. */
static __device__ __forceinline__ unsigned
lychee_search_threshold (
    const LycheeSearch &s, const float *density, const int *count, int n, int target, int *left)
{
  unsigned prefix = 0, mask = 0;

  for (int shift = 24; shift >= 0; shift -= 8) {
    int x = 0, before, total;

    if (threadIdx.x < 256)
      s.bins[threadIdx.x] = 0;
    if (threadIdx.x == 0)
      s.found[0] = -1;
    __syncthreads ();
    for (int i = threadIdx.x; i < n; i += SEARCH_THREADS) {
      unsigned bits = __float_as_uint (density[i]);

      if ((bits & mask) == prefix)
        atomicAdd (&s.bins[bits >> shift & 255], SEARCH_ROWS (count[i]));
    }
    __syncthreads ();
    if (threadIdx.x < 256)
      x = s.bins[255 - threadIdx.x];
    before = lychee_block_scan (x, s.scratch, &total);
    if (threadIdx.x < 256 && before < target && before + x >= target) {
      s.found[0] = 255 - (int) threadIdx.x;
      s.found[1] = target - before;
    }
    __syncthreads ();
    if (s.found[0] < 0) { /* there are not so many: all of them */
      *left = 0x7fffffff;
      return 0;
    }
    prefix |= (unsigned) s.found[0] << shift;
    mask |= 255u << shift;
    target = s.found[1];
    __syncthreads ();
  }
  *left = target;
  return prefix;
}

/* How many rows of entry @i are chosen, for as many entries at a time as there are threads; @ties
 * counts those that were equal to the threshold before. */
static __device__ __forceinline__ int
lychee_search_choose (const LycheeSearch &s, const float *density, const int *count, int n, int i,
    unsigned threshold, int left, int *ties)
{
  unsigned bits = i < n ? __float_as_uint (density[i]) : 0;
  int rows = i < n ? SEARCH_ROWS (count[i]) : 0, tie = i < n && bits == threshold ? rows : 0, total;
  int before = *ties + lychee_block_scan (tie, s.scratch, &total);

  *ties += total;
  if (i >= n || bits < threshold)
    return 0;
  if (bits > threshold)
    return rows;
  return max (0, min (rows, left - before));
}

/* The same for all entries: how many rows of each are read, and in all. */
static __device__ __forceinline__ int
lychee_search_read (
    const LycheeSearch &s, const float *density, const int *count, int n, int target, int *read)
{
  int left, ties = 0, n_rows = 0;
  unsigned threshold = lychee_search_threshold (s, density, count, n, target, &left);

  for (int base = 0; base < n; base += SEARCH_THREADS) {
    int i = base + threadIdx.x, all;
    int own = lychee_search_choose (s, density, count, n, i, threshold, left, &ties);

    if (i < n)
      read[i] = own;
    lychee_block_scan (own, s.scratch, &all);
    n_rows += all;
  }
  __syncthreads ();
  return n_rows;
}

/* Writes the rows that @mark has put into the map, in ascending order. @mark (base): sets the bits
 * of rows base .. base + SEARCH_MAP_BITS - 1. */
template <typename Mark>
static __device__ __forceinline__ void
lychee_search_list (const LycheeSearch &s, int *to, Mark mark)
{
  const int own_words = SEARCH_MAP_WORDS / SEARCH_THREADS;
  int n = 0;

  for (int base = s.head.begin; base < s.head.end; base += SEARCH_MAP_BITS) {
    int total, sum = 0, at;

    for (int i = threadIdx.x; i < SEARCH_MAP_WORDS; i += SEARCH_THREADS)
      s.map[i] = 0;
    __syncthreads ();
    mark (base);
    __syncthreads ();
    for (int i = 0; i < own_words; i++)
      sum += __popc (s.map[threadIdx.x * own_words + i]);
    at = n + lychee_block_scan (sum, s.scratch, &total);
    for (int i = 0; i < own_words; i++)
      for (unsigned bits = s.map[threadIdx.x * own_words + i]; bits; bits &= bits - 1)
        to[at++] = base + (threadIdx.x * own_words + i) * 32 + __ffs ((int) bits) - 1;
    n += total;
    __syncthreads ();
  }
}

static __device__ __forceinline__ void
lychee_search_mark (const LycheeSearch &s, int row, int base)
{
  unsigned bit = (unsigned) (row - base);

  if (bit < SEARCH_MAP_BITS)
    atomicOr (&s.map[bit / 32], 1u << bit % 32);
}

/* All rows, where there are no more than may be read. */
static __device__ __forceinline__ void
lychee_search_list_all (const LycheeCudaSearch &p, const LycheeSearch &s)
{
  for (int i = threadIdx.x; i < s.head.end - s.head.begin; i += SEARCH_THREADS)
    p.selected[(size_t) s.job * p.budget + i] = s.head.begin + i;
}

/* Says what was found; once a block. */
static __device__ __forceinline__ void
lychee_search_finish (const LycheeCudaSearch &p, const LycheeSearch &s,
    LycheeCudaSelection selection, int certain, int n_rows, int n_scored, int n_estimated)
{
  unsigned long long *counters = p.counters + 4 * s.sequence;

  if (threadIdx.x != 0)
    return;
  selection.n_rows = n_rows;
  p.selection[s.job] = selection;
  atomicAdd (&counters[0], (unsigned long long) n_scored);
  atomicAdd (&counters[1], (unsigned long long) (certain + s.n_tokens + n_rows) * s.n_tokens);
  atomicAdd (&counters[2], (unsigned long long) n_estimated * s.n_tokens);
}
