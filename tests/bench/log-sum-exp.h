/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* For programs with GLib and without it. */

#include <math.h>

/* ln of the sum of all exp (x_i). What is not a number is left out, as the library does. */
static inline double
log_sum_exp (const float *x, unsigned int n)
{
  double max = -INFINITY, sum = 0;

  for (unsigned int i = 0; i < n; i++)
    max = x[i] > max ? x[i] : max;
  for (unsigned int i = 0; i < n; i++)
    sum += isnan (x[i]) ? 0 : exp (x[i] - max);
  return max + log (sum);
}
