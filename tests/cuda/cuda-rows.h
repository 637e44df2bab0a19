/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "cuda-test.h"
#include "lychee-cuda-kernels.h"

namespace test {

static const char *__attribute__ ((unused)) name_type (LycheeCudaType type)
{
  return type == LYCHEE_CUDA_F16 ? "f16" : type == LYCHEE_CUDA_BF16 ? "bf16" : "q8_0";
}

/* Whether heads of @dim can be kept so. */
static bool __attribute__ ((unused)) has_form (LycheeCudaType type, int dim)
{
  return type != LYCHEE_CUDA_Q8_0 || dim % LYCHEE_CUDA_BLOCK_VALUES == 0;
}

/* The scale of a block of values, and the byte of one of them: lib's lychee_q8_encode (). */
static uint16_t __attribute__ ((unused)) find_scale (const float *x)
{
  float most = 0;

  for (int i = 0; i < LYCHEE_CUDA_BLOCK_VALUES; i++)
    most = fabsf (x[i]) > most ? fabsf (x[i]) : most;
  return to_bits (false, most / 127);
}

static int8_t __attribute__ ((unused)) find_byte (float x, uint16_t scale)
{
  float step = from_bits (false, scale), y = step > 0 ? nearbyintf (x * (1 / step)) : 0;

  return (int8_t) (y > 127 ? 127 : y < -127 ? -127 : y);
}

/* Pages of device memory as lychee-cuda.h has them, of @n_parts each: keys and values in turn, of
 * one head after the other. */
struct Parts {
  LycheeCudaType type;
  int dim;
  size_t size; /* of a part, bytes */
  std::vector<std::vector<uint8_t> > host;
  std::vector<Array<uint8_t> *> pages;
  Array<const void *> *table = nullptr;

  Parts (LycheeCudaType type_, int dim_, int n_parts, int n_rows)
      : type (type_), dim (dim_), size (lychee_cuda_part_size (type_, dim_))
  {
    for (int at = 0; at < n_rows; at += LYCHEE_CUDA_PAGE_TOKENS)
      host.push_back (std::vector<uint8_t> (size * (size_t) n_parts, 0xff));
  }
  Parts (const Parts &) = delete;
  Parts &operator= (const Parts &) = delete;
  ~Parts ()
  {
    for (Array<uint8_t> *page : pages)
      delete page;
    delete table;
  }
  /* To the device. */
  void
  upload ()
  {
    std::vector<const void *> addresses;

    for (const std::vector<uint8_t> &page : host) {
      pages.push_back (new Array<uint8_t> (page));
      addresses.push_back (pages.back ()->data);
    }
    table = new Array<const void *> (addresses);
  }
  /* And back. */
  void
  download ()
  {
    for (size_t i = 0; i < pages.size (); i++)
      host[i] = pages[i]->get ();
  }
  uint8_t *
  find (int part, int row)
  {
    return host[(size_t) row / LYCHEE_CUDA_PAGE_TOKENS].data () + (size_t) part * size;
  }
  void
  put (int part, int row, const float *x)
  {
    uint8_t *to = find (part, row);
    size_t at = (size_t) (row % LYCHEE_CUDA_PAGE_TOKENS);

    for (int d = 0; d < dim; d++)
      if (type == LYCHEE_CUDA_Q8_0) {
        uint16_t scale = find_scale (x + d / LYCHEE_CUDA_BLOCK_VALUES * LYCHEE_CUDA_BLOCK_VALUES);

        to[at * (size_t) dim + d] = (uint8_t) find_byte (x[d], scale);
        memcpy (find_scale_at (to, at, d), &scale, sizeof scale);
      } else {
        uint16_t bits = to_bits (type == LYCHEE_CUDA_BF16, x[d]);

        memcpy (to + (at * (size_t) dim + d) * 2, &bits, sizeof bits);
      }
  }
  /* Rows first .. n_rows - 1 of all parts, random. */
  void
  fill (Random &random, int n_parts, int n_rows, float key_scale = 1)
  {
    for (int row = 0; row < n_rows; row++)
      for (int part = 0; part < n_parts; part++)
        put (part, row, random.normals ((size_t) dim, part % 2 ? 1 : key_scale).data ());
  }
  double
  get (int part, int row, int d)
  {
    uint8_t *from = find (part, row);
    size_t at = (size_t) (row % LYCHEE_CUDA_PAGE_TOKENS);
    uint16_t bits;

    if (type == LYCHEE_CUDA_Q8_0) {
      memcpy (&bits, find_scale_at (from, at, d), sizeof bits);
      return (double) from_bits (false, bits) * (int8_t) from[at * (size_t) dim + d];
    }
    memcpy (&bits, from + (at * (size_t) dim + d) * 2, sizeof bits);
    return from_bits (type == LYCHEE_CUDA_BF16, bits);
  }

private:
  uint8_t *
  find_scale_at (uint8_t *part, size_t row, int d) const
  {
    return part + (size_t) LYCHEE_CUDA_PAGE_TOKENS * dim +
           (row * (size_t) lychee_cuda_scales (dim) + d / LYCHEE_CUDA_BLOCK_VALUES) * 2;
  }
};

}
