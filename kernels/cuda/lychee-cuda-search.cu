/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Search of an index with granularity token: what lib/lychee-index-search.c does, with the same
 * formulas and choices. Coarse nodes are scored by as many blocks as there is work for; what
 * follows is one kernel, a block a KV head: its steps are short, and each needs all of the one
 * before. */

#include "lychee-cuda-device.cuh"

#define THREADS 512
#define WARPS (THREADS / 32)
#define SCORE_THREADS 128
#define SCORE_NODES (SCORE_THREADS / 8) /* that a block scores at a time */
#define SCORE_BLOCKS 1024               /* of a launch, about */
#define MAP_BITS (1 << 17)              /* rows that are brought into order at a time */
#define MAP_WORDS (MAP_BITS / 32)
#define MAX_SHARED (96 << 10)

/* What all threads of a block know. */
struct Search {
  int job, kv_head, first_token, n_tokens, n_queries, dim;
  LycheeCudaHead head;
  const float *q;            /* [n_queries][dim], in shared memory */
  float *most, *inverse_sum; /* [n_queries], in shared memory */
  float *times;              /* the same: what a leaf's spread is multiplied by in its rank */
  int *scratch;              /* [32] */
  int *bins;                 /* [256] */
  int *found;                /* [2] */
  unsigned *map;             /* [MAP_WORDS] */
};

/* The queries of a job. */
static __device__ __forceinline__ Search
begin_search (const LycheeCudaSearch &p, int job, int n_blocks)
{
  Search s;

  s.job = job;
  s.kv_head = job / n_blocks;
  s.first_token = job % n_blocks * p.block_tokens;
  s.n_tokens = min (p.block_tokens, p.n_tokens - s.first_token);
  s.n_queries = s.n_tokens * (p.n_heads / p.n_kv_heads);
  s.dim = p.head_dim;
  s.head = p.heads[s.kv_head];
  return s;
}

/* What is read in any case; returns how many rows more may be, or -1 if all are read. */
static __device__ __forceinline__ int
find_budget (
    const LycheeCudaSearch &p, const Search &s, LycheeCudaSelection *selection, int *certain)
{
  LycheeCudaStep step = *p.step;
  int budget;

  selection->n_sinks = step.skip > 0 ? step.head : min (p.sinks, step.first);
  selection->recent = max (s.head.end, selection->n_sinks + step.skip);
  selection->n_rest = 0;
  *certain = selection->n_sinks + step.first - selection->recent;
  budget = max (0, p.budget - *certain);
  return s.head.end - s.head.begin <= budget ? -1 : budget;
}

static __device__ __forceinline__ void
load_queries (const LycheeCudaSearch &p, const Search &s, float *q)
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

/* Logits of coarse nodes: 8 lanes a node, each code read once for all queries. */
static __device__ __forceinline__ void
score_nodes (const LycheeCudaSearch &p, const Search &s)
{
  int part = threadIdx.x % 8, words = s.dim / 4;

  for (int base = blockIdx.x * SCORE_NODES; base < s.head.n_nodes;
       base += gridDim.x * SCORE_NODES) {
    int at = base + threadIdx.x / 8;
    bool there = at < s.head.n_nodes;
    const LycheeCudaNode *node = s.head.nodes[there ? at : 0];
    const unsigned *code = reinterpret_cast<const unsigned *> (lychee_node_codes (node));
    unsigned bits[8];

#pragma unroll
    for (int w = 0; w < 8; w++)
      bits[w] = part + 8 * w < words ? code[part + 8 * w] : 0;
    for (int q = 0; q < s.n_queries; q++) {
      float sum = 0;

#pragma unroll
      for (int w = 0; w < 8; w++)
        if (part + 8 * w < words) {
          float4 x = lychee_load<float4> (s.q + q * s.dim + 4 * (part + 8 * w));

          sum += x.x * (float) (signed char) (bits[w] & 255) +
                 x.y * (float) (signed char) (bits[w] >> 8 & 255) +
                 x.z * (float) (signed char) (bits[w] >> 16 & 255) +
                 x.w * (float) (signed char) (bits[w] >> 24);
        }
      sum = lychee_sum_8 (sum);
      if (part == 0 && there)
        p.z[((size_t) s.job * p.block_tokens * (p.n_heads / p.n_kv_heads) + q) * p.max_nodes + at] =
            p.scale * node->scale * sum + node->log_count;
    }
    if (part == 0 && there)
      p.count[(size_t) s.job * p.max_nodes + at] = (int) node->n_rows;
  }
}

__global__ void
__launch_bounds__ (SCORE_THREADS) score_kernel (LycheeCudaSearch p)
{
  LYCHEE_DYNAMIC_SHARED (memory);
  float *q = reinterpret_cast<float *> (memory);
  Search s = begin_search (p, blockIdx.y, gridDim.y / p.n_kv_heads);
  LycheeCudaSelection selection;
  int certain;

  if (find_budget (p, s, &selection, &certain) < 0)
    return;
  load_queries (p, s, q);
  s.q = q;
  score_nodes (p, s);
}

/* weight = exp (z - most), a warp a query; @z and @weight may be the same. */
static __device__ __forceinline__ void
weigh (const Search &s, const float *z, float *weight, int stride, int n)
{
  for (int q = threadIdx.x / 32; q < s.n_queries; q += WARPS) {
    float most = -INFINITY, sum = 0;

    for (int i = threadIdx.x % 32; i < n; i += 32)
      most = fmaxf (most, z[(size_t) q * stride + i]);
    most = lychee_warp_max (most);
    for (int i = threadIdx.x % 32; i < n; i += 32) {
      float x = expf (z[(size_t) q * stride + i] - most);

      weight[(size_t) q * stride + i] = x;
      sum += x;
    }
    sum = lychee_warp_sum (sum);
    if (threadIdx.x % 32 == 0) {
      s.most[q] = most;
      /* Nothing of a query whose logits are not numbers. */
      s.inverse_sum[q] = sum > 0 && sum <= n * 1.001f ? 1 / sum : 0;
    }
  }
  __syncthreads ();
}

/* Which part of the queries' attention each row of a node gets. */
static __device__ __forceinline__ void
find_densities (
    const Search &s, const float *weight, int stride, const int *count, int n, float *density)
{
  for (int i = threadIdx.x; i < n; i += THREADS) {
    float sum = 0;

    for (int q = 0; q < s.n_queries; q++)
      if (s.inverse_sum[q] > 0)
        sum += weight[(size_t) q * stride + i] * s.inverse_sum[q];
    density[i] = sum / count[i];
  }
  __syncthreads ();
}

/* The densest nodes that together hold @target rows, by radix selection: all whose density is
 * larger than the one whose bits are returned, and of those that are equal the first ones, as long
 * as they hold less than @left rows. Densities are not negative: their bits are in their order. */
static __device__ __forceinline__ unsigned
find_threshold (
    const Search &s, const float *density, const int *count, int n, int target, int *left)
{
  unsigned prefix = 0, mask = 0;

  for (int shift = 24; shift >= 0; shift -= 8) {
    int x = 0, before, total;

    if (threadIdx.x < 256)
      s.bins[threadIdx.x] = 0;
    if (threadIdx.x == 0)
      s.found[0] = -1;
    __syncthreads ();
    for (int i = threadIdx.x; i < n; i += THREADS) {
      unsigned bits = __float_as_uint (density[i]);

      if ((bits & mask) == prefix)
        atomicAdd (&s.bins[bits >> shift & 255], count[i]);
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

/* How many rows of entry @i are chosen, for 512 entries at a time; @ties counts those that were
 * equal to the threshold before. */
static __device__ __forceinline__ int
choose (const Search &s, const float *density, const int *count, int n, int i, unsigned threshold,
    int left, int *ties)
{
  unsigned bits = i < n ? __float_as_uint (density[i]) : 0;
  int rows = i < n ? count[i] : 0, tie = i < n && bits == threshold ? rows : 0, total;
  int before = *ties + lychee_block_scan (tie, s.scratch, &total);

  *ties += total;
  if (i >= n || bits < threshold)
    return 0;
  if (bits > threshold)
    return rows;
  return max (0, min (rows, left - before));
}

/* Lists the nodes that are opened, and where their leaves are to stand; returns their number. */
static __device__ __forceinline__ int
open_nodes (const LycheeCudaSearch &p, const Search &s, const float *density, unsigned threshold,
    int left, int *n_leaves)
{
  const int *count = p.count + (size_t) s.job * p.max_nodes;
  int *opened = p.opened + (size_t) s.job * p.max_nodes * 2;
  int ties = 0, n_opened = 0, n = 0;

  for (int base = 0; base < s.head.n_nodes; base += THREADS) {
    int i = base + threadIdx.x, total, leaves;
    int chosen = choose (s, density, count, s.head.n_nodes, i, threshold, left, &ties) > 0;
    int own = chosen ? (int) s.head.nodes[i]->n_leaves : 0;
    int place = n_opened + lychee_block_scan (chosen, s.scratch, &total);
    int leaf = n + lychee_block_scan (own, s.scratch, &leaves);

    if (chosen) {
      opened[2 * place] = i;
      opened[2 * place + 1] = leaf;
    }
    n_opened += total;
    n += leaves;
  }
  *n_leaves = n;
  __syncthreads ();
  return n_opened;
}

/* Logits of the leaves of nodes that are opened, a warp a node, 8 lanes a leaf. Codes are 4 bits:
 * differences from the node's mean, whose logit is known. */
static __device__ __forceinline__ void
score_leaves (const LycheeCudaSearch &p, const Search &s, const float *z, float *leaf_z,
    float *rank, int n_opened)
{
  const int *opened = p.opened + (size_t) s.job * p.max_nodes * 2;
  size_t at_leaf = (size_t) s.job * p.max_leaves;
  int lane = threadIdx.x % 32, part = lane % 8, words = s.dim / 8;

  for (int i = threadIdx.x / 32; i < n_opened; i += WARPS) {
    int place = opened[2 * i], first = opened[2 * i + 1];
    const LycheeCudaNode *node = s.head.nodes[place];
    const LycheeCudaLeaf *leaves = lychee_node_leaves (node, s.dim);
    const unsigned char *codes = lychee_node_leaf_codes (node, s.dim);

    for (int base = 0; base < (int) node->n_leaves; base += 4) {
      int at = base + lane / 8;
      bool there = at < (int) node->n_leaves;
      LycheeCudaLeaf leaf = leaves[there ? at : 0];
      const unsigned *code =
          reinterpret_cast<const unsigned *> (codes + (size_t) (there ? at : 0) * (s.dim / 2));
      unsigned bits[4];

#pragma unroll
      for (int w = 0; w < 4; w++)
        bits[w] = part + 8 * w < words ? code[part + 8 * w] : 0x88888888u;
      for (int q = 0; q < s.n_queries; q++) {
        float sum = 0;

#pragma unroll
        for (int w = 0; w < 4; w++)
          if (part + 8 * w < words) {
            const float *x = s.q + q * s.dim + 4 * (part + 8 * w);
            float4 low = lychee_load<float4> (x), high = lychee_load<float4> (x + s.dim / 2);
            unsigned b = bits[w];

            sum += low.x * ((int) (b & 15) - 8) + high.x * ((int) (b >> 4 & 15) - 8) +
                   low.y * ((int) (b >> 8 & 15) - 8) + high.y * ((int) (b >> 12 & 15) - 8) +
                   low.z * ((int) (b >> 16 & 15) - 8) + high.z * ((int) (b >> 20 & 15) - 8) +
                   low.w * ((int) (b >> 24 & 15) - 8) + high.w * ((int) (b >> 28) - 8);
          }
        sum = lychee_sum_8 (sum);
        if (part == 0 && there) {
          size_t to = (size_t) q * p.max_leaves + first + at;
          float x = logf (leaf.count) + z[(size_t) q * p.max_nodes + place] - node->log_count +
                    p.scale * leaf.scale * sum;

          leaf_z[to] = x;
          rank[to] = x + s.times[q] * leaf.spread;
        }
      }
      if (part == 0 && there) {
        p.leaf_node[at_leaf + first + at] = i;
        p.leaf_count[at_leaf + first + at] = leaf.count;
      }
    }
  }
  __syncthreads ();
}

/* The rows of the leaves, as far as they are chosen, in ascending order. */
static __device__ __forceinline__ void
list_rows (const LycheeCudaSearch &p, const Search &s, int n_leaves)
{
  const int *opened = p.opened + (size_t) s.job * p.max_nodes * 2;
  size_t at_leaf = (size_t) s.job * p.max_leaves;
  int *to = p.selected + (size_t) s.job * p.budget;
  int n = 0, own_words = MAP_WORDS / THREADS;

  for (int base = s.head.begin; base < s.head.end; base += MAP_BITS) {
    int total, sum = 0, at;

    for (int i = threadIdx.x; i < MAP_WORDS; i += THREADS)
      s.map[i] = 0;
    __syncthreads ();
    /* 8 threads a leaf: few have many rows, and most are not read. */
    for (int leaf = threadIdx.x / 8; leaf < n_leaves; leaf += THREADS / 8) {
      int read = p.leaf_read[at_leaf + leaf], i = p.leaf_node[at_leaf + leaf];

      if (read == 0)
        continue;
      const LycheeCudaNode *node = s.head.nodes[opened[2 * i]];
      const int *ids = lychee_node_ids (node, s.dim);

      ids += lychee_node_leaves (node, s.dim)[leaf - opened[2 * i + 1]].first;
      for (int r = threadIdx.x % 8; r < read; r += 8) {
        unsigned bit = (unsigned) (ids[r] - base);

        if (bit < MAP_BITS)
          atomicOr (&s.map[bit / 32], 1u << bit % 32);
      }
    }
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

/* Lowers the weights of opened nodes to what is left of their leaves; all weights relative to the
 * larger of the largest logits of nodes (@node_most) and of leaves. */
static __device__ __forceinline__ void
lower_weights (const LycheeCudaSearch &p, const Search &s, float *weight, const float *node_most,
    const float *leaf_weight, int n_opened)
{
  const int *opened = p.opened + (size_t) s.job * p.max_nodes * 2;
  size_t at_leaf = (size_t) s.job * p.max_leaves;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  for (int q = 0; q < s.n_queries; q++)
    if (s.most[q] > node_most[q]) {
      float lower = expf (node_most[q] - s.most[q]);

      for (int i = threadIdx.x; i < s.head.n_nodes; i += THREADS)
        weight[(size_t) q * p.max_nodes + i] *= lower;
    }
  __syncthreads ();
  for (int i = warp; i < n_opened; i += WARPS) {
    int place = opened[2 * i], first = opened[2 * i + 1];
    int n = (int) s.head.nodes[place]->n_leaves;

    for (int q = 0; q < s.n_queries; q++) {
      float sum = 0, factor = fminf (1, expf (s.most[q] - node_most[q]));

      for (int j = lane; j < n; j += 32) {
        int count = p.leaf_count[at_leaf + first + j], read = p.leaf_read[at_leaf + first + j];

        sum +=
            leaf_weight[(size_t) q * p.max_leaves + first + j] * ((float) (count - read) / count);
      }
      sum = lychee_warp_sum (sum);
      if (lane == 0)
        weight[(size_t) q * p.max_nodes + place] = sum * factor;
    }
  }
  __syncthreads ();
}

__global__ void
__launch_bounds__ (THREADS, 1) search_kernel (LycheeCudaSearch p)
{
  LYCHEE_SHARED (int, scratch, 32);
  LYCHEE_SHARED (int, bins, 256);
  LYCHEE_SHARED (int, found, 2);
  LYCHEE_DYNAMIC_SHARED (memory);
  int block_queries = p.block_tokens * (p.n_heads / p.n_kv_heads), certain, budget, total;
  int n_opened = 0, n_leaves = 0, n_rows = 0;
  LycheeCudaSelection selection;
  float *node_most;
  Search s;

  s = begin_search (p, blockIdx.x, gridDim.x / p.n_kv_heads);
  s.scratch = scratch;
  s.bins = bins;
  s.found = found;
  float *q = reinterpret_cast<float *> (memory);
  s.q = q;
  s.most = q + block_queries * s.dim;
  s.inverse_sum = s.most + block_queries;
  node_most = s.inverse_sum + block_queries;
  s.times = node_most + block_queries;
  s.map = reinterpret_cast<unsigned *> (s.times + block_queries);

  total = s.head.end - s.head.begin;
  budget = find_budget (p, s, &selection, &certain);
  if (budget < 0) {
    for (int i = threadIdx.x; i < total; i += THREADS)
      p.selected[(size_t) s.job * p.budget + i] = s.head.begin + i;
    n_rows = total;
  } else {
    float *z = p.z + (size_t) s.job * block_queries * p.max_nodes;
    float *weight = p.weight + (size_t) s.job * block_queries * p.max_nodes;
    float *leaf_weight = p.leaf_weight + (size_t) s.job * block_queries * p.max_leaves;
    float *leaf_rank = p.leaf_rank + (size_t) s.job * block_queries * p.max_leaves;
    float *density = p.density + (size_t) s.job * max (p.max_nodes, p.max_leaves);
    int *leaf_read = p.leaf_read + (size_t) s.job * p.max_leaves;
    const int *leaf_count = p.leaf_count + (size_t) s.job * p.max_leaves;
    const int *count = p.count + (size_t) s.job * p.max_nodes;

    load_queries (p, s, q);
    for (int i = threadIdx.x / 32; i < s.n_queries; i += WARPS) {
      float sum = 0;

      for (int d = threadIdx.x % 32; d < s.dim; d += 32)
        sum += q[i * s.dim + d] * q[i * s.dim + d];
      sum = lychee_warp_sum (sum);
      if (threadIdx.x % 32 == 0)
        s.times[i] = LYCHEE_LEAF_SPREADS * p.scale * sqrtf (sum);
    }
    __syncthreads ();
    weigh (s, z, weight, p.max_nodes, s.head.n_nodes);
    for (int i = threadIdx.x; i < s.n_queries; i += THREADS)
      node_most[i] = s.most[i];
    if (budget > 0) {
      float open = p.beam > 0 ? p.beam * budget
                              : LYCHEE_OPEN_ROWS (p.head_dim) + (float) LYCHEE_OPEN_BEAM * budget;
      int left, ties = 0;
      unsigned threshold;

      find_densities (s, weight, p.max_nodes, count, s.head.n_nodes, density);
      threshold = find_threshold (
          s, density, count, s.head.n_nodes, (int) ceilf (fminf (open, (float) total)), &left);
      n_opened = open_nodes (p, s, density, threshold, left, &n_leaves);
      score_leaves (p, s, z, leaf_weight, leaf_rank, n_opened);
      /* If what is not read is lost, the weights themselves are the better order. */
      if (p.rest) {
        weigh (s, leaf_rank, leaf_rank, p.max_leaves, n_leaves);
        find_densities (s, leaf_rank, p.max_leaves, leaf_count, n_leaves, density);
      }
      weigh (s, leaf_weight, leaf_weight, p.max_leaves, n_leaves);
      if (!p.rest)
        find_densities (s, leaf_weight, p.max_leaves, leaf_count, n_leaves, density);
      threshold = find_threshold (s, density, leaf_count, n_leaves, budget, &left);
      for (int base = 0; base < n_leaves; base += THREADS) {
        int i = base + threadIdx.x, all;
        int read = choose (s, density, leaf_count, n_leaves, i, threshold, left, &ties);

        if (i < n_leaves)
          leaf_read[i] = read;
        lychee_block_scan (read, s.scratch, &all);
        n_rows += all;
      }
      __syncthreads ();
      list_rows (p, s, n_leaves);
      if (p.rest)
        lower_weights (p, s, weight, node_most, leaf_weight, n_opened);
    } else {
      __syncthreads ();
    }
    for (int i = threadIdx.x; i < s.n_queries; i += THREADS)
      p.most[(size_t) s.job * block_queries + i] =
          n_opened > 0 ? fmaxf (node_most[i], s.most[i]) : node_most[i];
    if (p.rest)
      selection.n_rest = s.head.n_nodes;
    if (threadIdx.x == 0) {
      atomicAdd (&p.counters[0], (unsigned long long) (s.head.n_nodes + n_leaves));
      if (p.rest)
        atomicAdd (&p.counters[2], (unsigned long long) (total - n_rows) * s.n_tokens);
    }
  }
  if (threadIdx.x == 0) {
    selection.n_rows = n_rows;
    p.selection[s.job] = selection;
    atomicAdd (&p.counters[1], (unsigned long long) (certain + s.n_tokens + n_rows) * s.n_tokens);
  }
}

static size_t
get_shared (int dim, int queries)
{
  return (size_t) queries * (dim + 4) * sizeof (float) + MAP_WORDS * sizeof (unsigned);
}

int
lychee_cuda_search_block_tokens (int dim, int n_heads, int n_kv_heads)
{
  int tokens = 16;

  while (tokens > 1 && get_shared (dim, tokens * (n_heads / n_kv_heads)) > MAX_SHARED)
    tokens /= 2;
  return tokens;
}

int
lychee_cuda_search (const LycheeCudaSearch *p, cudaStream_t stream)
{
  int status, n_blocks = (p->n_tokens + p->block_tokens - 1) / p->block_tokens;
  int jobs = p->n_kv_heads * n_blocks, score_blocks, most;
  int queries = p->block_tokens * (p->n_heads / p->n_kv_heads);
  size_t shared = get_shared (p->head_dim, queries);

  if (p->n_tokens == 0)
    return 0;
  if (p->head_dim % 16 != 0 || p->head_dim > 256 || shared > MAX_SHARED)
    return (int) cudaErrorInvalidValue;
  status = lychee_allow_shared (search_kernel, MAX_SHARED);
  if (!status)
    status = lychee_allow_shared (score_kernel, MAX_SHARED);
  if (status)
    return status;
  score_blocks = (p->max_nodes + SCORE_NODES - 1) / SCORE_NODES;
  most = SCORE_BLOCKS / jobs > 1 ? SCORE_BLOCKS / jobs : 1;
  status = lychee_launch (score_kernel, dim3 (score_blocks < most ? score_blocks : most, jobs),
      SCORE_THREADS, queries * p->head_dim * sizeof (float), stream, *p);
  if (status)
    return status;
  return lychee_launch (search_kernel, jobs, THREADS, shared, stream, *p);
}
