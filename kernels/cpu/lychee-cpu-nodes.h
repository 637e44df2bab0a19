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

    for (guint t = 0; t < whole; t += VL)
      largest = v_max (v_load (z + t), largest);
    if (whole < n)
      largest = v_max (load_part (z, whole, n), largest);
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

/* The counts of those that are at least as dense as @threshold, else 0; adds 1 to their lanes of
 * @number. */
static inline VF
reach (const float *density, const float *count, VBits threshold, VBits *number)
{
  VBits x, rows;

  memcpy (&x, density, sizeof x);
  memcpy (&rows, count, sizeof rows);
  x = x >= threshold;
  *number -= x;
  return (VF) (rows & x);
}

/* Writes which of the densities from @t on, a vector of them at most, are in [low, high) to @to,
 * and returns how many. May write a whole vector where there is one. */
static inline guint
pick (const float *density, guint t, guint n, gint32 low, gint32 high, guint32 *to)
{
  guint n_picked = 0;

#ifdef V_PICK
  if (t + VL <= n) {
    VBits x;

    memcpy (&x, density + t, sizeof x);
    return v_pick (t, (x >= low) & (x < high), to);
  }
#endif
  for (guint end = MIN (t + VL, n); t < end; t++) {
    gint32 bits;

    memcpy (&bits, density + t, sizeof bits);
    to[n_picked] = t;
    n_picked += (bits >= low) & (bits < high);
  }
  return n_picked;
}

/* Bisects the bits of the densities, which are in the order of the numbers, for the least density
 * that is taken. */
static guint
select_nodes (
    const float *density, const float *count, guint n, guint target, guint32 *restrict chosen)
{
  gint32 low = 0, high, bits; /* what is >= high is taken, and some of >= low */
  guint whole = n / VL * VL, n_between = n, n_above = 0, n_chosen = 0;
  VF largest = v_zero ();
  double held = 0;
  float most;

  for (guint t = 0; t < whole; t += VL)
    largest = v_max (v_load (density + t), largest);
  most = v_reduce_max (largest);
  for (guint t = whole; t < n; t++)
    most = density[t] > most ? density[t] : most;
  memcpy (&high, &most, sizeof high);
  for (high++; n_between > 1 && high - low > 1;) {
    gint32 middle = low + (high - low) / 2;
    VBits threshold = middle - (VBits){ 0 }, number = { 0 };
    VF partial[4] = { v_zero (), v_zero (), v_zero (), v_zero () };
    guint i = 0, n_reached;
    float reached;

    /* Additions wait for one another: four at a time. */
    for (; i + 4 * VL <= n; i += 4 * VL)
      for (guint j = 0; j < 4; j++)
        partial[j] = v_add (
            partial[j], reach (density + i + j * VL, count + i + j * VL, threshold, &number));
    for (; i + VL <= n; i += VL)
      partial[0] = v_add (partial[0], reach (density + i, count + i, threshold, &number));
    reached = v_reduce_add (v_add (v_add (partial[0], partial[1]), v_add (partial[2], partial[3])));
    n_reached = (guint) v_reduce_add (__builtin_convertvector(number, VF));
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
  for (guint t = 0; t < n; t += VL)
    n_chosen += pick (density, t, n, high, G_MAXINT32, chosen + n_chosen);
  for (guint t = 0; t < n && held < target; t += VL) {
    guint32 some[VL];
    guint n_some = pick (density, t, n, low, high, some);

    for (guint i = 0; i < n_some && held < target; i++) {
      chosen[n_chosen++] = some[i];
      held += count[some[i]];
    }
  }
  return n_chosen;
}
