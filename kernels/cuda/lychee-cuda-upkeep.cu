/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Upkeep of indexes with granularity token: where new rows go, and the sums from which the means of
 * the leaves that they go to are made. Codes, splits and rebuilds are the host's
 * (lib/lychee-index-tree.c). */

#include "lychee-cuda-rows.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define ROWS 16 /* that a block places: each code is read once for all of them */
#define SUM_THREADS 128

/* Element @d of the key of a row in an index. */
template <typename F>
static __device__ __forceinline__ float
get_key (const LycheeCudaAssign &p, int index, int row, int d)
{
  const char *keys = lychee_find_part (
      p.pages[row >> LYCHEE_CUDA_PAGE_SHIFT], 0, index, 0, LycheeForm<F>::type, p.head_dim);

  return lychee_get_element<F> (keys, row & (LYCHEE_CUDA_PAGE_TOKENS - 1), d, p.head_dim);
}

/* Byte @j of @bits as a number. */
static __device__ __forceinline__ float
code_at (unsigned bits, int j)
{
  return (float) (signed char) (bits >> 8 * j & 255);
}

/* The coarse node nearest to each row by its mean key, and in it the nearest leaf. Of equals it is
 * the first. */
template <typename F>
__global__ void
__launch_bounds__ (THREADS) assign_kernel (LycheeCudaAssign p)
{
  LYCHEE_SHARED (float, nearness, WARPS * 4 * ROWS);
  LYCHEE_SHARED (int, nodes, WARPS * 4 * ROWS);
  LYCHEE_SHARED (int, nearest, ROWS);
  LYCHEE_DYNAMIC_SHARED (memory);
  float *x = reinterpret_cast<float *> (memory); /* [ROWS][dim] */
  int index = blockIdx.y, row0 = blockIdx.x * ROWS, n = min (ROWS, p.n_rows - row0);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % 8, dim = p.head_dim;
  LycheeCudaHead head = p.heads[index];
  LycheeCudaPlace *to = p.places + (size_t) index * p.n_rows + row0;
  float best[2] = { -INFINITY, -INFINITY }; /* of rows part and part + 8 */
  int best_node[2] = { -1, -1 };

  if (head.n_nodes == 0) {
    if ((int) threadIdx.x < n)
      to[threadIdx.x] = LycheeCudaPlace{ -1, -1 };
    return;
  }
  for (int i = threadIdx.x; i < ROWS * dim; i += THREADS)
    x[i] = i / dim < n ? get_key<F> (p, index, p.first + row0 + i / dim, i % dim) : 0;
  __syncthreads ();

  for (int base = warp * 4; base < head.n_nodes; base += WARPS * 4) {
    int at = base + lane / 8;
    bool there = at < head.n_nodes;
    const LycheeCudaNode *node = head.nodes[there ? at : 0];
    const unsigned *code = reinterpret_cast<const unsigned *> (lychee_node_codes (node));
    unsigned bits[8];
    float squares = 0;

#pragma unroll
    for (int w = 0; w < 8; w++) {
      bits[w] = part + 8 * w < dim / 4 ? code[part + 8 * w] : 0;
      for (int j = 0; j < 4; j++)
        squares += code_at (bits[w], j) * code_at (bits[w], j);
    }
    squares = lychee_sum_8 (squares);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      float sum = 0, near;

#pragma unroll
      for (int w = 0; w < 8; w++)
        if (part + 8 * w < dim / 4) {
          float4 y = lychee_load<float4> (x + r * dim + 4 * (part + 8 * w));

          sum += y.x * code_at (bits[w], 0) + y.y * code_at (bits[w], 1) +
                 y.z * code_at (bits[w], 2) + y.w * code_at (bits[w], 3);
        }
      near = node->scale * lychee_sum_8 (sum) - 0.5f * node->scale * node->scale * squares;
      if (there && part == r % 8 && near > best[r / 8]) {
        best[r / 8] = near;
        best_node[r / 8] = at;
      }
    }
  }
  for (int i = 0; i < 2; i++) {
    int at = (threadIdx.x / 8) * ROWS + part + 8 * i;

    nearness[at] = best[i];
    nodes[at] = best_node[i];
  }
  __syncthreads ();
  if (threadIdx.x < ROWS) {
    float most = -INFINITY;
    int node = -1;

    for (int i = 0; i < WARPS * 4; i++) {
      float near = nearness[i * ROWS + threadIdx.x];
      int other = nodes[i * ROWS + threadIdx.x];

      if (other >= 0 && (node < 0 || near > most || (near == most && other < node))) {
        most = near;
        node = other;
      }
    }
    nearest[threadIdx.x] = node;
  }
  __syncthreads ();

  /* Leaves: a warp a row, 8 lanes a leaf. */
  for (int r = warp; r < n; r += WARPS) {
    float least = INFINITY;
    int leaf = -1;

    if (nearest[r] < 0) { /* keys that are not numbers */
      if (lane == 0)
        to[r] = LycheeCudaPlace{ -1, -1 };
      continue;
    }
    const LycheeCudaNode *node = head.nodes[nearest[r]];
    const signed char *mean = lychee_node_codes (node);
    const LycheeCudaLeaf *leaves = lychee_node_leaves (node, dim);
    const unsigned char *codes = lychee_node_leaf_codes (node, dim);
    int n_leaves = (int) node->n_leaves;

    for (int base = 0; base < n_leaves; base += 4) {
      int at = base + lane / 8;
      bool there = at < n_leaves;
      const unsigned char *code = codes + (size_t) (there ? at : 0) * (dim / 2);
      float scale = leaves[there ? at : 0].scale, sum = 0;

      for (int d = part; d < dim / 2; d += 8) {
        float low = x[r * dim + d] - node->scale * mean[d] - scale * ((int) (code[d] & 15) - 8);
        float high = x[r * dim + dim / 2 + d] - node->scale * mean[dim / 2 + d] -
                     scale * ((int) (code[d] >> 4) - 8);

        sum += low * low + high * high;
      }
      sum = lychee_sum_8 (sum);
      if (there && sum < least) {
        least = sum;
        leaf = at;
      }
    }
    for (int bits = 16; bits >= 8; bits >>= 1) {
      float other_least = __shfl_xor_sync (LYCHEE_ALL_LANES, least, bits);
      int other = __shfl_xor_sync (LYCHEE_ALL_LANES, leaf, bits);

      if (other >= 0 &&
          (leaf < 0 || other_least < least || (other_least == least && other < leaf))) {
        least = other_least;
        leaf = other;
      }
    }
    if (lane == 0)
      to[r] = LycheeCudaPlace{ leaf < 0 ? -1 : nearest[r], leaf };
  }
}

/* A block a new row; the first one of each leaf sums up the leaf: what it has, and what comes. */
template <typename F>
__global__ void
__launch_bounds__ (SUM_THREADS) leaf_sums_kernel (LycheeCudaAssign p)
{
  LYCHEE_SHARED (float, scratch, 32);
  int index = blockIdx.y, own = blockIdx.x, dim = p.head_dim, t = threadIdx.x, n = 0;
  const LycheeCudaPlace *places = p.places + (size_t) index * p.n_rows;
  float *to = p.sums + ((size_t) index * p.n_rows + own) * (dim + 2);
  LycheeCudaPlace place = places[own];
  float x = 0, y = 0, squares = 0;
  int before = 0;

  for (int i = t; i < own; i += SUM_THREADS)
    before |= places[i].node == place.node && places[i].leaf == place.leaf;
  if (__syncthreads_or (before) || place.node < 0)
    return;
  const LycheeCudaNode *node = p.heads[index].nodes[place.node];
  LycheeCudaLeaf leaf = lychee_node_leaves (node, dim)[place.leaf];
  const int *ids = lychee_node_ids (node, dim) + leaf.first;

  for (int i = 0; i < leaf.count + p.n_rows - own; i++) {
    int row = i < leaf.count ? ids[i] : p.first + own + i - leaf.count;
    LycheeCudaPlace other = i < leaf.count ? place : places[own + i - leaf.count];

    if (other.node != place.node || other.leaf != place.leaf)
      continue;
    n++;
    if (t < dim / 2) {
      float a = get_key<F> (p, index, row, 2 * t), b = get_key<F> (p, index, row, 2 * t + 1);

      x += a;
      y += b;
      squares += a * a + b * b;
    }
  }
  squares = lychee_block_sum (squares, scratch);
  if (t < dim / 2) {
    to[2 * t] = x;
    to[2 * t + 1] = y;
  }
  if (t == 0) {
    to[dim] = squares;
    to[dim + 1] = (float) n;
  }
}

static bool
is_valid (const LycheeCudaAssign *p)
{
  return p->head_dim % 16 == 0 && p->head_dim <= 256 && p->n_rows <= LYCHEE_CUDA_MAX_PLACED &&
         p->type != LYCHEE_CUDA_BF16; /* indexes are of what the host has, too */
}

int
lychee_cuda_assign (const LycheeCudaAssign *p, cudaStream_t stream)
{
  dim3 grid ((p->n_rows + ROWS - 1) / ROWS, p->n_indexes);

  if (p->n_rows == 0 || p->n_indexes == 0)
    return 0;
  if (!is_valid (p))
    return (int) cudaErrorInvalidValue;
  return lychee_with_form (p->type, p->head_dim, [=] (auto form) {
    return lychee_launch (assign_kernel<decltype (form)>, grid, THREADS,
        ROWS * p->head_dim * sizeof (float), stream, *p);
  });
}

int
lychee_cuda_leaf_sums (const LycheeCudaAssign *p, cudaStream_t stream)
{
  if (p->n_rows == 0 || p->n_indexes == 0)
    return 0;
  if (!is_valid (p))
    return (int) cudaErrorInvalidValue;
  return lychee_with_form (p->type, p->head_dim, [=] (auto form) {
    return lychee_launch (leaf_sums_kernel<decltype (form)>, dim3 (p->n_rows, p->n_indexes),
        SUM_THREADS, 0, stream, *p);
  });
}
