/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What a search does with the logits of nodes: their weights, and which are the densest. Over the
 * vector operations of a lychee-cpu-vec-*.h. */

/* The vector of @row from @t on, the last ones -inf where it ends. */
static inline VF
load_part (const float *row, guint t, guint n)
{
  float part[VL];

  if (t + VL <= n)
    return v_load (row + t);
  for (guint i = 0; i < VL; i++)
    part[i] = t + i < n ? row[t + i] : -INFINITY;
  return v_load (part);
}

static void
weigh_nodes (guint n_queries, const float *z, gsize stride, const float *count, guint n,
    float *weight, float *most, float *density)
{
  guint whole = n / VL * VL;

  memset (density, 0, n * sizeof *density);
  for (guint i = 0; i < n_queries; i++, z += stride, weight += stride) {
    VF largest = v_set1 (-INFINITY), total = v_zero (), part;
    float rest[VL], sum;

    for (guint t = 0; t < n; t += VL)
      largest = v_max (load_part (z, t, n), largest);
    most[i] = v_reduce_max (largest);
    largest = v_set1 (most[i]);
    for (guint t = 0; t < whole; t += VL) {
      VF x = v_exp (v_sub (v_load (z + t), largest));

      v_store (weight + t, x);
      total = v_add (total, x);
    }
    if (whole < n) {
      VF x = v_exp (v_sub (load_part (z, whole, n), largest));

      v_store (rest, x);
      memcpy (weight + whole, rest, (n - whole) * sizeof *rest);
      total = v_add (total, x);
    }
    sum = v_reduce_add (total);
    if (!(sum > 0 && sum <= n * 1.001f))
      continue;
    part = v_set1 (1 / sum);
    for (guint t = 0; t < whole; t += VL)
      v_store (density + t, v_fma (v_load (weight + t), part, v_load (density + t)));
    for (guint t = whole; t < n; t++)
      density[t] += weight[t] * (1 / sum);
  }
  for (guint t = 0; t < n; t++)
    density[t] /= count[t];
}

typedef gint32 VBits __attribute__ ((vector_size (VL * 4)));

/* Bisects the bits of the densities, which are in the order of the numbers, for the least density
 * that is taken. */
static guint
select_nodes (
    const float *density, const float *count, guint n, guint target, guint32 *restrict chosen)
{
  gint32 low = G_MAXINT32, high = 0, bits; /* what is >= high is taken, and some of >= low */
  guint n_between = n, n_above = 0, n_chosen = 0, only = 0;
  double held = 0;

  for (guint i = 0; i < n; i++) {
    memcpy (&bits, density + i, sizeof bits);
    low = MIN (low, bits);
    high = MAX (high, bits);
  }
  for (high++; n_between > 1 && high - low > 1;) {
    gint32 middle = low + (high - low) / 2;
    VBits threshold = middle - (VBits){ 0 }, number = { 0 };
    VF rows_reached = v_zero ();
    guint i, n_reached = 0;
    float reached;

    for (i = 0; i + VL <= n; i += VL) {
      VBits x, rows;

      memcpy (&x, density + i, sizeof x);
      memcpy (&rows, count + i, sizeof rows);
      x = x >= threshold;
      number -= x;
      rows &= x;
      rows_reached = v_add (rows_reached, (VF) rows);
    }
    reached = v_reduce_add (rows_reached);
    for (guint j = 0; j < VL; j++)
      n_reached += number[j];
    for (; i < n; i++) {
      memcpy (&bits, density + i, sizeof bits);
      reached += bits >= middle ? count[i] : 0;
      n_reached += bits >= middle;
    }
    if (reached >= target) {
      low = middle;
      n_between = n_reached - n_above;
    } else {
      high = middle;
      n_between -= n_reached - n_above;
      n_above = n_reached;
      held = reached;
    }
  }
  for (guint i = 0; i < n; i++) {
    memcpy (&bits, density + i, sizeof bits);
    chosen[n_chosen] = i;
    n_chosen += bits >= high;
    only = (bits >= low) & (bits < high) ? i : only;
  }
  if (n_between == 1 && held < target)
    chosen[n_chosen++] = only;
  for (guint i = 0; i < n && n_between > 1 && held < target; i++) {
    memcpy (&bits, density + i, sizeof bits);
    if (bits >= low && bits < high) {
      chosen[n_chosen++] = i;
      held += count[i];
    }
  }
  return n_chosen;
}
