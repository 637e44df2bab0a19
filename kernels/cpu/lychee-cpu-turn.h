/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* turn_keys of LycheeCpuKernels: plain loops, which the compiler makes vectors of for whichever
 * instruction set it is that includes this. */

#define TURN_MAX_PAIRS 128

static __attribute__ ((optimize ("O3"))) void
turn_keys (float *keys, guint n, guint head_dim, guint n_pairs, gboolean halves,
    const float *const *low, const float *const *high)
{
  float c[TURN_MAX_PAIRS], s[TURN_MAX_PAIRS];

  for (guint k = 0; k < n; k++) {
    const float *l = low[k], *h = high[k];
    float *restrict x = keys + (gsize) k * head_dim;

    for (guint i = 0; i < n_pairs; i++) {
      c[i] = l[i] * h[i] - l[n_pairs + i] * h[n_pairs + i];
      s[i] = l[i] * h[n_pairs + i] + l[n_pairs + i] * h[i];
    }
    if (halves) {
      for (guint i = 0; i < n_pairs; i++) {
        float a = x[i], b = x[n_pairs + i];

        x[i] = a * c[i] - b * s[i];
        x[n_pairs + i] = a * s[i] + b * c[i];
      }
    } else {
      for (guint i = 0; i < n_pairs; i++) {
        float a = x[2 * i], b = x[2 * i + 1];

        x[2 * i] = a * c[i] - b * s[i];
        x[2 * i + 1] = a * s[i] + b * c[i];
      }
    }
  }
}
