/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Rotary embedding of kept keys: turn_rows and turn_keys of LycheeCpuKernels. In plain arithmetic,
 * and, where this is included behind the vector operations, in vectors. */

/* Pairs of @x are turned by the angle whose cosines and sines are those of @low and @high. */
static inline void
turn_floats (float *x, guint n_pairs, gboolean halves, const float *low, const float *high)
{
  /* neighbours have each number twice, and the sine of the first of a pair is negative */
  guint n = halves ? n_pairs : 2 * n_pairs, step = halves ? 1 : 2;

  for (guint i = 0; i < n_pairs; i++) {
    guint a = i * step, b = halves ? i + n_pairs : a + 1, at = halves ? a : b;
    float c = low[at] * high[at] - low[n + at] * high[n + at];
    float s = low[n + at] * high[at] + low[at] * high[n + at];
    float first = x[a], second = x[b];

    x[a] = first * c - second * s;
    x[b] = second * c + first * s;
  }
}

#ifdef VL
static inline __attribute__ ((always_inline)) void
store_row (void *row, guint i, guint type, VF x)
{
  if (type == F16)
    v_store_f16 ((guint16 *) row + i, x);
  else
    v_store ((float *) row + i, x);
}

static inline __attribute__ ((always_inline)) void
turn_row (const void *row, guint type, guint head_dim, guint n_pairs, gboolean halves,
    const float *low, const float *high, void *to, guint to_type)
{
  guint n = halves ? n_pairs : 2 * n_pairs, d = 0;

  if (G_UNLIKELY (n % VL != 0)) {
    float x[ROW_MAX];

    for (d = 0; d < head_dim; d += VL)
      v_store (x + d, load_row (row, d, type));
    turn_floats (x, n_pairs, halves, low, high);
    for (d = 0; d < head_dim; d += VL)
      store_row (to, d, to_type, v_load (x + d));
    return;
  }
  for (; d < n; d += VL) {
    VF lc = v_load (low + d), ls = v_load (low + n + d);
    VF hc = v_load (high + d), hs = v_load (high + n + d);
    VF c = v_sub (v_mul (lc, hc), v_mul (ls, hs)), s = v_fma (ls, hc, v_mul (lc, hs));
    VF x = load_row (row, d, type), y;

    if (halves) {
      y = load_row (row, d + n, type);
      store_row (to, d, to_type, v_sub (v_mul (x, c), v_mul (y, s)));
      store_row (to, d + n, to_type, v_fma (y, c, v_mul (x, s)));
    } else {
      store_row (to, d, to_type, v_fma (x, c, v_mul (v_swap (x), s)));
    }
  }
  for (d = 2 * n_pairs; d < head_dim; d += VL)
    store_row (to, d, to_type, load_row (row, d, type));
}

static inline __attribute__ ((always_inline)) void
turn_any (const guint16 *const *rows, guint type, guint n_rows, guint head_dim, guint n_pairs,
    gboolean halves, const float *const *low, const float *const *high, guint16 *to)
{
  for (guint i = 0; i < n_rows; i++, to += head_dim)
    if (halves)
      turn_row (rows[i], type, head_dim, n_pairs, TRUE, low[i], high[i], to, F16);
    else
      turn_row (rows[i], type, head_dim, n_pairs, FALSE, low[i], high[i], to, F16);
}
#endif
