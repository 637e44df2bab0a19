/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Dense attention for many queries: FlashAttention 2 (Dao 2023), split over keys where there are
 * too few queries to occupy a device. A block takes 64 queries (tokens and heads of a group) of one
 * KV head, a warp 16 of them. */

#include "lychee-cuda-rows.cuh"

#define WARPS 4
#define THREADS (WARPS * 32)
#define ROWS (WARPS * 16)

template <typename F, int D> struct Shape {
  static const int keys = D <= 128 ? 64 : 32;
  typedef LycheeTiles<F, D, keys, false> Tiles;
  static const int stride = Tiles::stride;
  static const int shared = ROWS * stride * 2 + Tiles::size;
};

template <typename F, int D>
__global__ void
__launch_bounds__ (THREADS, 1) chunk_kernel (LycheeCudaAttend p)
{
  typedef Shape<F, D> S;
  typedef typename LycheeForm<F>::Type T;
  typedef LycheeElement<T> E;
  LYCHEE_DYNAMIC_SHARED (memory);
  T *q_tile = reinterpret_cast<T *> (memory); /* [ROWS][stride] */
  const typename S::Tiles tiles (memory + ROWS * S::stride * sizeof (T));
  const int head = p.step->head, skip = p.step->skip;
  const size_t offset =
      p.layer_offset + 2 * blockIdx.y * lychee_cuda_part_size (LycheeForm<F>::type, D);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  int group = p.n_heads / p.n_kv_heads, n_rows = p.n_tokens * group, row0 = blockIdx.x * ROWS;
  int first = p.step->first - p.step->skip; /* here everything is counted by places */
  int last_row = min (row0 + ROWS, n_rows) - 1;
  int begin = p.window > 0 ? max (0, first + row0 / group + 1 - p.window) : 0;
  int end = first + last_row / group + 1;
  int size = ((end - begin + p.n_splits - 1) / p.n_splits + S::keys - 1) / S::keys * S::keys;
  size_t at = ((size_t) blockIdx.z * p.n_kv_heads + blockIdx.y) * n_rows;
  float m[2] = { -INFINITY, -INFINITY }, l[2] = { 0, 0 }, o[D / 8][4];
  int own[2], position[2];

  begin = min (begin + (int) blockIdx.z * size, end);
  end = min (begin + size, end);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    own[i] = row0 + warp * 16 + g + 8 * i;
    position[i] = first + own[i] / group;
  }
#pragma unroll
  for (int j = 0; j < D / 8; j++)
    o[j][0] = o[j][1] = o[j][2] = o[j][3] = 0;

  /* Has tile @tile copied. */
  auto fetch = [&] (int tile) {
    int from = begin + tile * S::keys;

    tiles.fetch (tile, p.pages, offset, THREADS,
        [=] (int key) { return from + key < end ? lychee_cuda_row (from + key, head, skip) : -1; });
  };
  if (begin < end) {
    fetch (0);
    for (int i = threadIdx.x; i < ROWS * D; i += THREADS) {
      int row = row0 + i / D;
      float x = 0;

      if (row < n_rows)
        x = p.q[((size_t) (row / group) * p.n_heads + blockIdx.y * group + row % group) * D +
                i % D];
      q_tile[i / D * S::stride + i % D] = E::make (x);
    }
  }
  for (int tile = 0; begin + tile * S::keys < end; tile++) {
    const T *k = tiles.k.get (tile), *v = tiles.v.get (tile);
    int at_key = begin + tile * S::keys;
    float s[S::keys / 8][4];

    lychee_wait_copies ();
    __syncthreads ();
    if (at_key + S::keys < end)
      fetch (tile + 1);
    tiles.finish (tile, THREADS, [] (auto &, int) {});
#pragma unroll
    for (int j = 0; j < S::keys / 8; j++)
      s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll 1 /* or registers spill; the products hide the loop */
    for (int d = 0; d < D; d += 16) {
      unsigned a[4], b[4];

      lychee_ldmatrix_x4 (a, q_tile + (warp * 16 + lane % 16) * S::stride + d + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < S::keys / 8; j += 2) {
        lychee_ldmatrix_x4 (
            b, k + (8 * j + lane / 16 * 8 + lane % 8) * S::stride + d + lane / 8 % 2 * 8);
        lychee_mma<T> (s[j], a, b);
        lychee_mma<T> (s[j + 1], a, b + 2);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float most = -INFINITY, sum = 0, before = m[i], base, lower;

#pragma unroll
      for (int j = 0; j < S::keys / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          int row = at_key + 8 * j + 2 * t + c;
          bool seen =
              row < end && row <= position[i] && (p.window == 0 || row > position[i] - p.window);

          s[j][2 * i + c] = seen ? s[j][2 * i + c] * p.scale * LYCHEE_LOG2E : -INFINITY;
          most = fmaxf (most, s[j][2 * i + c]);
        }
      most = fmaxf (most, __shfl_xor_sync (LYCHEE_ALL_LANES, most, 1));
      most = fmaxf (most, __shfl_xor_sync (LYCHEE_ALL_LANES, most, 2));
      m[i] = fmaxf (m[i], most);
      base = m[i] == -INFINITY ? 0 : m[i];
      lower = exp2f (before - base);
#pragma unroll
      for (int j = 0; j < S::keys / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          s[j][2 * i + c] = exp2f (s[j][2 * i + c] - base);
          sum += s[j][2 * i + c];
        }
      sum += __shfl_xor_sync (LYCHEE_ALL_LANES, sum, 1);
      sum += __shfl_xor_sync (LYCHEE_ALL_LANES, sum, 2);
      l[i] = l[i] * lower + sum;
#pragma unroll
      for (int j = 0; j < D / 8; j++) {
        o[j][2 * i] *= lower;
        o[j][2 * i + 1] *= lower;
      }
    }
    /* Logits lie in registers just as the product with the values wants its left side. */
#pragma unroll
    for (int j = 0; j < S::keys / 8; j += 2) {
      unsigned a[4], b[4];

      a[0] = lychee_pack<T> (E::make (s[j][0]), E::make (s[j][1]));
      a[1] = lychee_pack<T> (E::make (s[j][2]), E::make (s[j][3]));
      a[2] = lychee_pack<T> (E::make (s[j + 1][0]), E::make (s[j + 1][1]));
      a[3] = lychee_pack<T> (E::make (s[j + 1][2]), E::make (s[j + 1][3]));
#pragma unroll
      for (int d = 0; d < D / 8; d += 2) {
        lychee_ldmatrix_x4_trans (
            b, v + (8 * j + lane / 8 % 2 * 8 + lane % 8) * S::stride + 8 * d + lane / 16 * 8);
        lychee_mma<T> (o[d], a, b);
        lychee_mma<T> (o[d + 1], a, b + 2);
      }
    }
  }

#pragma unroll
  for (int i = 0; i < 2; i++)
    if (own[i] < n_rows) {
      if (t == 0) {
        p.m[at + own[i]] = m[i];
        p.l[at + own[i]] = l[i];
      }
      if (l[i] > 0)
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
          float *to = p.o + (at + own[i]) * D + 8 * j + 2 * t;

          to[0] = o[j][2 * i];
          to[1] = o[j][2 * i + 1];
        }
    }
}

template <typename F, int D>
static int
launch (const LycheeCudaAttend *p, cudaStream_t stream)
{
  int n_rows = p->n_tokens * (p->n_heads / p->n_kv_heads);
  dim3 grid ((n_rows + ROWS - 1) / ROWS, p->n_kv_heads, p->n_splits);
  int status = lychee_allow_shared (chunk_kernel<F, D>, Shape<F, D>::shared);

  if (status)
    return status;
  return lychee_launch (chunk_kernel<F, D>, grid, THREADS, Shape<F, D>::shared, stream, *p);
}

size_t
lychee_cuda_attend_chunk_shared (LycheeCudaType type, int head_dim)
{
  size_t shared = 0;

  lychee_with_form_and_dim (type, head_dim, [&] (auto form, auto dim) {
    shared = Shape<decltype (form), decltype (dim)::value>::shared;
    return 0;
  });
  return shared;
}

int
lychee_cuda_attend_chunk (const LycheeCudaAttend *p, cudaStream_t stream)
{
  if (p->n_tokens == 0)
    return 0;
  if (p->n_splits < 1 || p->selection || p->separate || p->turn.range > 0 ||
      p->n_heads % p->n_kv_heads != 0)
    return (int) cudaErrorInvalidValue;
  return lychee_with_form_and_dim (p->type, p->head_dim, [=] (auto form, auto dim) {
    return launch<decltype (form), decltype (dim)::value> (p, stream);
  });
}
