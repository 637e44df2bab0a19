/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Keys and values in the forms that pages hold them in (lychee-cuda.h): elements of them as
 * float32, and tiles of rows in shared memory, of 16 bits, as tensor cores take them. */

#include "lychee-cuda-device.cuh"

/* Stands for the type of elements where rows are of Q8_0. */
struct LycheeQ8 {};

/* A form: @Type is what its elements are in tiles; a row is @row_size bytes and, in a place of
 * their own, @scales_size of scales. */
template <typename F> struct LycheeForm {
  typedef F Type;
  static const LycheeCudaType type =
      std::is_same<F, __half>::value ? LYCHEE_CUDA_F16 : LYCHEE_CUDA_BF16;
  static LYCHEE_CUDA_CONST bool
  takes (int)
  {
    return true;
  }
  static LYCHEE_CUDA_CONST int
  row_size (int dim)
  {
    return 2 * dim;
  }
  static LYCHEE_CUDA_CONST int
  scales_size (int)
  {
    return 0;
  }
};

template <> struct LycheeForm<LycheeQ8> {
  typedef __half Type;
  static const LycheeCudaType type = LYCHEE_CUDA_Q8_0;
  static LYCHEE_CUDA_CONST bool
  takes (int dim)
  {
    return dim % LYCHEE_CUDA_BLOCK_VALUES == 0;
  }
  static LYCHEE_CUDA_CONST int
  row_size (int dim)
  {
    return dim;
  }
  static LYCHEE_CUDA_CONST int
  scales_size (int dim)
  {
    return 2 * lychee_cuda_scales (dim);
  }
};

/* What @launch returns for the form as a type, or an error. */
template <typename Launch>
static int
lychee_with_form (LycheeCudaType type, int head_dim, Launch launch)
{
  switch (type) {
  case LYCHEE_CUDA_F16:
    return launch (__half ());
  case LYCHEE_CUDA_BF16:
    return launch (__nv_bfloat16 ());
  case LYCHEE_CUDA_Q8_0:
    if (LycheeForm<LycheeQ8>::takes (head_dim))
      return launch (LycheeQ8 ());
    break;
  case LYCHEE_CUDA_F32:
    break;
  }
  return (int) cudaErrorInvalidValue;
}

/* And with both as constants. */
template <typename Launch>
static int
lychee_with_form_and_dim (LycheeCudaType type, int head_dim, Launch launch)
{
  return lychee_with_form (type, head_dim, [=] (auto form) {
    return lychee_with_head_dim (head_dim, [=] (auto dim) {
      if constexpr (LycheeForm<decltype (form)>::takes (decltype (dim)::value))
        return launch (form, dim);
      else
        return (int) cudaErrorInvalidValue;
    });
  });
}

/* The part of a page that holds a head's keys, or values. */
static __device__ __forceinline__ const char *
lychee_find_part (
    const void *page, size_t layer_offset, int kv_head, int value, LycheeCudaType type, int dim)
{
  return static_cast<const char *> (page) + layer_offset +
         (size_t) (2 * kv_head + value) * lychee_cuda_part_size (type, dim);
}

/* The scale of element @d. */
static __device__ __forceinline__ float
lychee_get_scale (const char *part, int row, int d, int dim)
{
  const __half *scales =
      reinterpret_cast<const __half *> (part + (size_t) LYCHEE_CUDA_PAGE_TOKENS * dim);

  return __half2float (scales[row * lychee_cuda_scales (dim) + d / LYCHEE_CUDA_BLOCK_VALUES]);
}

/* Element @d of a row of a part. */
template <typename F>
static __device__ __forceinline__ float
lychee_get_element (const char *part, int row, int d, int dim)
{
  if constexpr (std::is_same<F, LycheeQ8>::value)
    return lychee_get_scale (part, row, d, dim) *
           (float) reinterpret_cast<const signed char *> (part)[(size_t) row * dim + d];
  else
    return LycheeElement<F>::get (reinterpret_cast<const F *> (part)[(size_t) row * dim + d]);
}

/* 8 elements from @d on, a multiple of 8. */
template <typename F>
static __device__ __forceinline__ void
lychee_get_8 (const char *part, int row, int d, int dim, float *x)
{
  if constexpr (std::is_same<F, LycheeQ8>::value) {
    uint2 bits = lychee_load<uint2> (part + (size_t) row * dim + d);
    float scale = lychee_get_scale (part, row, d, dim);
    signed char of[8];

    memcpy (of, &bits, sizeof of);
#pragma unroll
    for (int i = 0; i < 8; i++)
      x[i] = scale * (float) of[i];
  } else {
    uint4 bits = lychee_load<uint4> (part + ((size_t) row * dim + d) * sizeof (F));
    F of[8];

    memcpy (of, &bits, sizeof of);
#pragma unroll
    for (int i = 0; i < 8; i++)
      x[i] = LycheeElement<F>::get (of[i]);
  }
}

/* Rows of keys or of values in shared memory, [KEYS][stride], and those of the next tile, which are
 * on their way. What is kept as it is read goes into one of two tiles; where @STAGED, rows come as
 * they lie in memory, and there is one tile that they are made into. */
template <typename F, int D, int KEYS, bool STAGED> struct LycheeTile {
  typedef LycheeForm<F> Form;
  typedef typename Form::Type Type;
  static const int stride = D + 8; /* no bank conflicts */
  static const int row_size = Form::row_size (D), scales_size = Form::scales_size (D);
  static const int row_pieces = row_size / 16;
  static const int pieces = row_pieces + (scales_size > 0); /* that a row is copied in */
  static const int tile_size = KEYS * stride * 2;
  static const int size =
      STAGED ? tile_size + 2 * KEYS * (row_size + scales_size) : 2 * tile_size; /* bytes */
  unsigned char *memory;

  __device__ __forceinline__ Type *
  get (int tile) const
  {
    return reinterpret_cast<Type *> (memory + (STAGED ? 0 : tile % 2 * tile_size));
  }
  __device__ __forceinline__ unsigned char *
  get_row (int tile, int key) const
  {
    return STAGED ? memory + tile_size + (tile % 2 * KEYS + key) * row_size
                  : memory + tile % 2 * tile_size + key * stride * 2;
  }
  __device__ __forceinline__ unsigned char *
  get_scales (int tile, int key) const
  {
    return memory + tile_size + 2 * KEYS * row_size + (tile % 2 * KEYS + key) * scales_size;
  }

  /* Has a piece of a row copied; zeros, where it is not @there. */
  __device__ __forceinline__ void
  fetch (int tile, int key, int piece, const char *part, int row, bool there) const
  {
    if constexpr (scales_size > 0)
      if (piece == row_pieces) {
        lychee_copy_async_some (scales_size, get_scales (tile, key),
            part + LYCHEE_CUDA_PAGE_TOKENS * row_size + row * scales_size, there);
        return;
      }
    lychee_copy_async (get_row (tile, key) + 16 * piece, part + row * row_size + 16 * piece, there);
  }

  /* An element of a row as it lies there; where @STAGED. */
  __device__ __forceinline__ float
  get_element (int tile, int key, int d) const
  {
    if constexpr (scales_size > 0)
      return __half2float (reinterpret_cast<const __half *> (
                 get_scales (tile, key))[d / LYCHEE_CUDA_BLOCK_VALUES]) *
             (float) reinterpret_cast<const signed char *> (get_row (tile, key))[d];
    else
      return LycheeElement<F>::get (reinterpret_cast<const F *> (get_row (tile, key))[d]);
  }
  __device__ __forceinline__ void
  set_element (int tile, int key, int d, float x) const
  {
    get (tile)[key * stride + d] = LycheeElement<Type>::make (x);
  }

  /* Makes rows of Q8_0 what they stand for; all threads. */
  __device__ __forceinline__ void
  unpack (int tile, int n_threads) const
  {
    for (int i = threadIdx.x; i < KEYS * (D / 8); i += n_threads) {
      int key = i / (D / 8), d = i % (D / 8) * 8;
      uint2 bits = lychee_load<uint2> (get_row (tile, key) + d);
      float scale = __half2float (
          reinterpret_cast<const __half *> (get_scales (tile, key))[d / LYCHEE_CUDA_BLOCK_VALUES]);
      signed char from[8];
      __half to[8];
      uint4 all;

      memcpy (from, &bits, sizeof from);
#pragma unroll
      for (int j = 0; j < 8; j++)
        to[j] = __float2half_rn (scale * (float) from[j]);
      memcpy (&all, to, sizeof all);
      *reinterpret_cast<uint4 *> (get (0) + key * stride + d) = all;
    }
  }
};

/* The keys and values of a block's tiles, in memory that lies aligned to 16 bytes. With @TURN keys
 * are not read as they are kept. */
template <typename F, int D, int KEYS, bool TURN> struct LycheeTiles {
  static const bool blocks = std::is_same<F, LycheeQ8>::value;
  typedef LycheeTile<F, D, KEYS, blocks || TURN> Keys;
  typedef LycheeTile<F, D, KEYS, blocks> Values;
  static const int stride = Keys::stride, size = Keys::size + Values::size;
  Keys k;
  Values v;

  __device__ __forceinline__ explicit LycheeTiles (unsigned char *memory)
      : k{ memory }, v{ memory + Keys::size }
  {}

  /* Has the rows of a tile copied: @find (key): which row it is, or -1. @offset: bytes from a
   * page's begin to the head's keys. */
  template <typename Find>
  __device__ __forceinline__ void
  fetch (int tile, const void *const *pages, size_t offset, int n_threads, Find find) const
  {
    for (int i = threadIdx.x; i < KEYS * Keys::pieces; i += n_threads) {
      int key = i / Keys::pieces, piece = i % Keys::pieces, row = find (key);
      bool there = row >= 0;
      const char *part =
          static_cast<const char *> (pages[there ? row >> LYCHEE_CUDA_PAGE_SHIFT : 0]) + offset;

      row = there ? row & (LYCHEE_CUDA_PAGE_TOKENS - 1) : 0;
      k.fetch (tile, key, piece, part, row, there);
      v.fetch (tile, key, piece, part + lychee_cuda_part_size (Keys::Form::type, D), row, there);
    }
    lychee_commit_copies ();
  }

  /* A tile whose rows are there, for all threads, and of which nobody reads the one before any
   * more, becomes what can be read. @turn (k, tile): makes the keys so, with @TURN. */
  template <typename Turn>
  __device__ __forceinline__ void
  finish (int tile, int n_threads, Turn turn) const
  {
    if constexpr (TURN)
      turn (k, tile);
    else if constexpr (blocks)
      k.unpack (tile, n_threads);
    if constexpr (blocks)
      v.unpack (tile, n_threads);
    if constexpr (TURN || blocks)
      __syncthreads ();
  }
};
