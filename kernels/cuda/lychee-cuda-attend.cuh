/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Attention for few queries, dense and sparse: "split-k" decoding with online softmax (Milakov and
 * Gimelshein 2018; Dao et al., Flash-Decoding, 2023), and the merging of splits.
 *
 * A block takes 8 queries of one KV head over one split of the keys, so that the heads of a group
 * share each read of a key. The products run on tensor cores with 16 rows, of which 8 are the
 * queries and 8 what rounding them to 16 bits lost: for one query group the tensor cores would be
 * half empty anyway, and logits and weights are exact to about 22 bits. */

#include "lychee-cuda-packed.cuh"

#define ROWS 8
#define WARPS 4
#define THREADS (WARPS * 32)
#define MAX_RESIDENT 4 /* more blocks of a processor at a time read no faster */

template <typename F, int D, bool TURN> struct Shape {
  static const int keys = D <= 128 ? 64 : 32; /* of a tile */
  typedef LycheeTiles<F, D, keys, TURN> Tiles;
  static const int stride = Tiles::stride;
  static const int p_stride = keys + 8;
  static const int warp_keys = keys / WARPS;
  static const int n_tiles = warp_keys / 8;               /* of 8 keys a warp in q k */
  static const int o_tiles = (D / 8 + WARPS - 1) / WARPS; /* of 8 dims a warp in p v */
  static const int shared = 2 * ROWS * (stride + p_stride) * 2 + Tiles::size +
                            3 * (TURN ? 2 : 1) * keys * 4 + 2 * WARPS * ROWS * 4;
  /* What any device of compute capability 8.0 or later gives a block, less what is static. */
  static_assert (shared <= (98 << 10), "shared memory");
};

/* The queries of a block. */
struct Rows {
  int kv_head, group, first_token, n_rows, row;
  int sequence, offset;         /* whose first token is the offset'th one of the pass's there */
  int job, job_row, block_rows; /* in the arrays of a search */
  size_t at, total;             /* in the arrays of splits */
};

__device__ __forceinline__ bool
find_rows (const LycheeCudaAttend &p, Rows *r)
{
  int n_blocks = (p.n_tokens + p.block_tokens - 1) / p.block_tokens;
  int tiles, block, n_tokens;

  r->kv_head = blockIdx.y;
  r->group = p.n_heads / p.n_kv_heads;
  r->block_rows = p.block_tokens * r->group;
  tiles = (r->block_rows + ROWS - 1) / ROWS;
  block = blockIdx.z / tiles;
  r->first_token = block * p.block_tokens;
  n_tokens = min (p.block_tokens, p.n_tokens - r->first_token);
  r->sequence = p.separate ? r->first_token : 0;
  r->offset = p.separate ? 0 : r->first_token;
  r->row = blockIdx.z % tiles * ROWS;
  r->n_rows = min (ROWS, n_tokens * r->group - r->row);
  r->job = r->kv_head * n_blocks + block;
  r->job_row = r->job * r->block_rows + r->row;
  r->at = ((size_t) r->kv_head * p.n_tokens + r->first_token) * r->group + r->row;
  r->total = (size_t) p.n_heads * p.n_tokens;
  return r->n_rows > 0;
}

/* Where the keys of a split lie: a list of up to three runs. */
struct Keys {
  int begin, end;              /* of the split, in the list */
  int n_sinks, n_rows, recent; /* rows 0 .., selected ones, and from place @recent on */
  int head, skip;
  const int *selected;
};

__device__ __forceinline__ Keys
find_keys (const LycheeCudaAttend &p, const Rows &r, int keys)
{
  LycheeCudaStep step = p.step[r.sequence];
  int first = step.first - step.skip + r.offset; /* place of the block's first token */
  int end = first + (r.row + r.n_rows - 1) / r.group + 1, n, size;
  Keys k;

  k.head = step.head;
  k.skip = step.skip;
  k.n_sinks = k.n_rows = 0;
  k.selected = nullptr;
  if (p.selection) {
    LycheeCudaSelection s = p.selection[r.job];

    k.n_sinks = s.n_sinks;
    k.n_rows = s.n_rows;
    k.recent = s.recent - step.skip;
    k.selected = p.selected + (size_t) r.job * p.budget;
  } else {
    k.recent = p.window > 0 ? max (0, first + r.row / r.group + 1 - p.window) : 0;
  }
  n = k.n_sinks + k.n_rows + end - k.recent;
  size = ((n + p.n_splits - 1) / p.n_splits + keys - 1) / keys * keys;
  k.begin = min ((int) blockIdx.x * size, n);
  k.end = min (k.begin + size, n);
  return k;
}

__device__ __forceinline__ int
get_row (const Keys &k, int i)
{
  if (i >= k.end)
    return -1;
  if (i < k.n_sinks)
    return i;
  i -= k.n_sinks;
  return i < k.n_rows ? k.selected[i] : lychee_cuda_row (k.recent + i - k.n_rows, k.head, k.skip);
}

/* The values of coarse nodes, by weights that the search left. */
template <int D>
__device__ __forceinline__ void
attend_rest (const LycheeCudaAttend &p, const Rows &r, float *sums /* [ROWS][D + 1] */)
{
  const LycheeCudaHead head = p.heads[(size_t) r.sequence * p.head_stride + r.kv_head];
  const int words = D / 4, own = (words + 31) / 32;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, split = blockIdx.x - p.n_splits;
  int n = p.selection[r.job].n_rest, size = (n + p.n_rest_splits - 1) / p.n_rest_splits;
  int begin = min (split * size, n), end = min (begin + size, n);
  float o[ROWS][own][4], l[ROWS];

  for (int q = 0; q < ROWS; q++) {
    l[q] = 0;
    for (int w = 0; w < own; w++)
      for (int j = 0; j < 4; j++)
        o[q][w][j] = 0;
  }
  for (int node = begin + warp; node < end; node += WARPS) {
    const LycheeCudaNode *record = head.nodes[node];
    const unsigned *value = reinterpret_cast<const unsigned *> (record + 1) + words;
    unsigned bits[own];

#pragma unroll
    for (int w = 0; w < own; w++)
      bits[w] = lane + 32 * w < words ? value[lane + 32 * w] : 0;
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
      float weight = q < r.n_rows ? p.weight[(size_t) (r.job_row + q) * p.max_nodes + node] : 0;
      float factor = weight * record->value_scale;

      l[q] += weight;
#pragma unroll
      for (int w = 0; w < own; w++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          o[q][w][j] += factor * (float) (signed char) (bits[w] >> 8 * j & 255);
    }
  }
  /* The warps one after the other: always the same sum. */
  for (int turn = 0; turn < WARPS; turn++) {
    if (warp == turn)
#pragma unroll
      for (int q = 0; q < ROWS; q++) {
#pragma unroll
        for (int w = 0; w < own; w++)
          if (lane + 32 * w < words)
#pragma unroll
            for (int j = 0; j < 4; j++) {
              float *to = sums + q * (D + 1) + (lane + 32 * w) * 4 + j;

              *to = (turn > 0 ? *to : 0) + o[q][w][j];
            }
        if (lane == 0)
          sums[q * (D + 1) + D] = (turn > 0 ? sums[q * (D + 1) + D] : 0) + l[q];
      }
    __syncthreads ();
  }
  size_t at = (size_t) blockIdx.x * r.total + r.at;
  for (int i = threadIdx.x; i < r.n_rows * D; i += THREADS)
    p.o[at * D + i] = sums[i / D * (D + 1) + i % D];
  if ((int) threadIdx.x < r.n_rows) {
    p.m[at + threadIdx.x] =
        end > begin ? p.most[r.job_row + threadIdx.x] * LYCHEE_LOG2E : -INFINITY;
    p.l[at + threadIdx.x] = sums[threadIdx.x * (D + 1) + D];
  }
}

/* The keys of a tile, turned to @positions [n_keys]. */
template <int D, typename Tile>
__device__ __forceinline__ void
turn_keys (const Tile &keys, int tile, const LycheeCudaTurn &turn, const int *positions, int n_keys)
{
  for (int i = threadIdx.x; i < n_keys * (D / 2); i += THREADS) {
    int key = i / (D / 2), first, second;
    bool rotates = lychee_find_pair (turn.n_rot, turn.neox, i % (D / 2), &first, &second);
    float2 x = { keys.get_element (tile, key, first), keys.get_element (tile, key, second) };

    if (rotates)
      x = lychee_turn_pair (turn, positions[key], i % (D / 2), x);
    keys.set_element (tile, key, first, x.x);
    keys.set_element (tile, key, second, x.y);
  }
}

/* The position of what get_row () finds. */
__device__ __forceinline__ int
get_position (const Keys &k, const LycheeDistances &d, int i)
{
  if (i >= k.end)
    return 0;
  if (i < k.n_sinks)
    return lychee_position_of_sink (d, i);
  i -= k.n_sinks;
  if (i < k.n_rows)
    return lychee_position_of_selected (d, i, k.selected[i] - k.skip);
  return lychee_position_of_place (d, k.recent + i - k.n_rows);
}

/* With @TURN keys stand nowhere, and get positions here. */
template <typename F, int D, bool TURN>
__global__ void
__launch_bounds__ (THREADS, 1) attend_kernel (LycheeCudaAttend p)
{
  typedef Shape<F, D, TURN> S;
  typedef typename LycheeForm<F>::Type T;
  typedef LycheeElement<T> E;
  LYCHEE_DYNAMIC_SHARED (memory);
  T *q_tile = reinterpret_cast<T *> (memory); /* [2 ROWS][stride] queries, and what they lost */
  T *p_tile = q_tile + 2 * ROWS * S::stride;  /* [2 ROWS][p_stride] weights, likewise */
  unsigned char *tile_memory = reinterpret_cast<unsigned char *> (p_tile + 2 * ROWS * S::p_stride);
  const typename S::Tiles tiles (tile_memory);
  int *ids = reinterpret_cast<int *> (tile_memory + S::Tiles::size);    /* [3][keys] */
  int *positions = TURN ? ids + 3 * S::keys : ids;                      /* [3][keys] */
  float *row_max = reinterpret_cast<float *> (positions + 3 * S::keys); /* [WARPS][ROWS] */
  float *row_sum = row_max + WARPS * ROWS;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float m = -INFINITY, l = 0, o[S::o_tiles][4];
  LycheeDistances distances;
  Rows r;

  if (!find_rows (p, &r))
    return;
  if ((int) blockIdx.x >= p.n_splits) {
    attend_rest<D> (p, r, reinterpret_cast<float *> (memory));
    return;
  }
  Keys keys = find_keys (p, r, S::keys);
  const void *const *pages = p.pages + (size_t) r.sequence * p.page_stride;
  const size_t offset =
      p.layer_offset + 2 * r.kv_head * lychee_cuda_part_size (LycheeForm<F>::type, D);
  size_t at = (size_t) blockIdx.x * r.total + r.at;
  int n_tiles = (keys.end - keys.begin + S::keys - 1) / S::keys;
  int own_row = p.step[r.sequence].first + r.offset + (r.row + g) / r.group;
  /* Of a window, places count; a token's own lies behind what was forgotten. */
  int oldest =
      p.window > 0 ? lychee_cuda_row (own_row - keys.skip - p.window + 1, keys.head, keys.skip) : 0;

  if (n_tiles == 0) {
    if ((int) threadIdx.x < r.n_rows) {
      p.m[at + threadIdx.x] = -INFINITY;
      p.l[at + threadIdx.x] = 0;
    }
    return;
  }
  for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
    int q = i / D, d = i % D, row = r.row + q;
    float x = 0;

    if (q < r.n_rows)
      x = p.q[((size_t) (r.first_token + row / r.group) * p.n_heads + r.kv_head * r.group +
                  row % r.group) *
                  D +
              d];
    T high = E::make (x);
    q_tile[q * S::stride + d] = high;
    q_tile[(q + ROWS) * S::stride + d] = E::make (x - E::get (high));
  }
  if constexpr (TURN) {
    LYCHEE_SHARED (int, n_far, 1);
    LycheeCudaStep step = p.step[r.sequence];
    int place = step.first - step.skip;

    distances = lychee_distances_begin (p.turn, place + r.offset, place, step.n_tokens);
    lychee_distances_select (
        &distances, keys.selected, keys.n_rows, keys.n_sinks, keys.skip, n_far);
  }
  for (int i = threadIdx.x; i < 2 * S::keys; i += THREADS) {
    ids[i] = get_row (keys, keys.begin + i);
    if constexpr (TURN)
      positions[i] = get_position (keys, distances, keys.begin + i);
  }
#pragma unroll
  for (int j = 0; j < S::o_tiles; j++)
    o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0;
  __syncthreads ();
  tiles.fetch (0, pages, offset, THREADS, [=] (int key) { return ids[key]; });

  for (int tile = 0; tile < n_tiles; tile++) {
    const int *tile_ids = ids + tile % 3 * S::keys, *next_ids = ids + (tile + 1) % 3 * S::keys;
    const T *k = tiles.k.get (tile), *v = tiles.v.get (tile);
    float s[S::n_tiles][4], most = -INFINITY, sum = 0, before = m, base;

    lychee_wait_copies ();
    __syncthreads (); /* the tile is there, and nobody reads the one before any more */
    if (tile + 1 < n_tiles)
      tiles.fetch (tile + 1, pages, offset, THREADS, [=] (int key) { return next_ids[key]; });
    if (tile + 2 < n_tiles && (int) threadIdx.x < S::keys) {
      int ahead = (tile + 2) % 3 * S::keys + threadIdx.x;
      int i = keys.begin + (tile + 2) * S::keys + threadIdx.x;

      ids[ahead] = get_row (keys, i);
      if constexpr (TURN)
        positions[ahead] = get_position (keys, distances, i);
    }
    tiles.finish (tile, THREADS, [&] (auto &own, int which) {
      turn_keys<D> (own, which, p.turn, positions + which % 3 * S::keys, S::keys);
    });

    /* Logits of this warp's keys. */
#pragma unroll
    for (int j = 0; j < S::n_tiles; j++)
      s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      unsigned a[4], b[4];

      lychee_ldmatrix_x4 (a, q_tile + lane % 16 * S::stride + d + lane / 16 * 8);
      if (S::n_tiles == 2) {
        lychee_ldmatrix_x4 (b, k + (warp * S::warp_keys + lane / 16 * 8 + lane % 8) * S::stride +
                                   d + lane / 8 % 2 * 8);
        lychee_mma<T> (s[0], a, b);
        lychee_mma<T> (s[S::n_tiles - 1], a, b + 2);
      } else {
        lychee_ldmatrix_x2 (
            b, k + (warp * S::warp_keys + lane % 8) * S::stride + d + lane / 8 % 2 * 8);
        lychee_mma<T> (s[0], a, b);
      }
    }
#pragma unroll
    for (int j = 0; j < S::n_tiles; j++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        int row = tile_ids[warp * S::warp_keys + 8 * j + 2 * t + c];
        bool seen = row >= oldest && row >= 0 && row <= own_row;

        s[j][c] = seen ? (s[j][c] + s[j][c + 2]) * p.scale * LYCHEE_LOG2E : -INFINITY;
        most = fmaxf (most, s[j][c]);
      }
    most = fmaxf (most, __shfl_xor_sync (LYCHEE_ALL_LANES, most, 1));
    most = fmaxf (most, __shfl_xor_sync (LYCHEE_ALL_LANES, most, 2));
    if (t == 0)
      row_max[warp * ROWS + g] = most;
    __syncthreads ();
#pragma unroll
    for (int w = 0; w < WARPS; w++)
      m = fmaxf (m, row_max[w * ROWS + g]);
    base = m == -INFINITY ? 0 : m;
#pragma unroll
    for (int j = 0; j < S::n_tiles; j++) {
      float x = exp2f (s[j][0] - base), y = exp2f (s[j][1] - base);
      T high_x = E::make (x), high_y = E::make (y);
      int column = warp * S::warp_keys + 8 * j + 2 * t;

      sum += x + y;
      *reinterpret_cast<unsigned *> (p_tile + g * S::p_stride + column) =
          lychee_pack<T> (high_x, high_y);
      *reinterpret_cast<unsigned *> (p_tile + (g + ROWS) * S::p_stride + column) =
          lychee_pack<T> (E::make (x - E::get (high_x)), E::make (y - E::get (high_y)));
    }
    sum += __shfl_xor_sync (LYCHEE_ALL_LANES, sum, 1);
    sum += __shfl_xor_sync (LYCHEE_ALL_LANES, sum, 2);
    if (t == 0)
      row_sum[warp * ROWS + g] = sum;
    __syncthreads ();

    /* Values: each warp takes every fourth tile of 8 dims, over all keys. */
    float lower = exp2f (before - base);
    l *= lower;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
      l += row_sum[w * ROWS + g];
#pragma unroll
    for (int j = 0; j < S::o_tiles; j++)
#pragma unroll
      for (int c = 0; c < 4; c++)
        o[j][c] *= lower;
#pragma unroll
    for (int key = 0; key < S::keys; key += 16) {
      unsigned a[4], b[2];

      lychee_ldmatrix_x4 (a, p_tile + lane % 16 * S::p_stride + key + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < S::o_tiles; j++)
        if (warp + WARPS * j < D / 8) {
          lychee_ldmatrix_x2_trans (b, v + (key + lane % 16) * S::stride + (warp + WARPS * j) * 8);
          lychee_mma<T> (o[j], a, b);
        }
    }
  }

  if (g < r.n_rows) {
#pragma unroll
    for (int j = 0; j < S::o_tiles; j++)
      if (warp + WARPS * j < D / 8) {
        float *to = p.o + (at + g) * D + (warp + WARPS * j) * 8 + 2 * t;

        to[0] = o[j][0] + o[j][2];
        to[1] = o[j][1] + o[j][3];
      }
    if (warp == 0 && t == 0) {
      p.m[at + g] = m;
      p.l[at + g] = l;
    }
  }
}

template <typename F, int D, bool TURN>
static int
launch (const LycheeCudaAttend *p, cudaStream_t stream)
{
  int group = p->n_heads / p->n_kv_heads;
  int n_blocks = (p->n_tokens + p->block_tokens - 1) / p->block_tokens;
  int tiles = (p->block_tokens * group + ROWS - 1) / ROWS;
  dim3 grid (p->n_splits + (p->selection ? p->n_rest_splits : 0), p->n_kv_heads, n_blocks * tiles);
  int status = lychee_allow_shared (attend_kernel<F, D, TURN>, Shape<F, D, TURN>::shared);

  if (status)
    return status;
  return lychee_launch (
      attend_kernel<F, D, TURN>, grid, THREADS, Shape<F, D, TURN>::shared, stream, *p);
}
