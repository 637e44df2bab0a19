/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The kernels of a search: scores of nodes, their weights, the choice among them, and what the
 * index's upkeep computes of rows; as test-kernels.c does the others. */

#include "kernels-cases.h"

static void
check_nodes (const Case *c, guint n_queries, guint n, gboolean with_variance)
{
  guint head_dim = c->head_dim;
  gsize stride = n + 3, n_z = (n_queries - 1) * stride + n;
  LycheeQueries queries = new_queries (n_queries, head_dim);
  float *centroid = random_floats (n * head_dim, -1, 1), *log_n = random_floats (n, 0, 5);
  float *variance = with_variance ? random_floats (n * head_dim, 0, 1) : NULL;
  float *z = random_floats (n_z, 77, 77);

  c->kernels->score_nodes (&queries, centroid, variance, log_n, n, z, stride);
  for (guint i = 0; i < n_queries; i++) {
    for (guint t = 0; t < n; t++) {
      double dot = 0, size = 0, spread = 0, want;

      for (guint d = 0; d < head_dim; d++) {
        double q = queries.q[i * head_dim + d], x = q * centroid[t * head_dim + d];

        dot += x;
        size += fabs (x);
        if (with_variance)
          spread += q * q * variance[t * head_dim + d];
      }
      want = queries.scale * (dot + sqrt (spread)) + log_n[t];
      assert_near ("z", z[i * stride + t], want,
          1e-6 * (queries.scale * (size + sqrt (spread)) + log_n[t]) + 1e-7);
    }
    if (i + 1 < n_queries)
      for (guint t = n; t < stride; t++)
        g_assert_true (z[i * stride + t] == 77);
  }
  free_memory ();
}

static void
test_nodes (gconstpointer data)
{
  for (guint i = 0; i < G_N_ELEMENTS (query_counts); i++)
    for (guint j = 0; j < G_N_ELEMENTS (key_counts); j++)
      for (guint with_variance = 0; with_variance < 2; with_variance++)
        if (query_counts[i] <= 9 || key_counts[j] <= 65)
          check_nodes (data, query_counts[i], key_counts[j], with_variance);
}

static void
test_leaves (gconstpointer data)
{
  const Case *c = data;
  guint head_dim = c->head_dim;

  for (guint a = 0; a < G_N_ELEMENTS (query_counts); a++)
    for (guint b = 0; b < G_N_ELEMENTS (key_counts); b++) {
      guint n_queries = query_counts[a], n = key_counts[b];
      gsize stride = n + 1;
      LycheeQueries queries = new_queries (n_queries, head_dim);
      gint8 *centroid = GUARDED (gint8, n * head_dim);
      float *scale = random_floats (n, 0.001, 0.02), *log_n = random_floats (n, 0, 5);
      float *z = GUARDED (float, (n_queries - 1) * stride + n);

      if (n_queries > 36 && n > 65)
        continue;
      for (guint i = 0; i < n * head_dim; i++)
        centroid[i] = i % 9 == 0 ? -128 : i % 9 == 1 ? 127 : (gint8) (uniform () * 127);
      c->kernels->score_leaves (&queries, centroid, scale, log_n, n, z, stride);
      for (guint i = 0; i < n_queries; i++)
        for (guint t = 0; t < n; t++) {
          double dot = 0, size = 0, factor = (double) queries.scale * scale[t];

          for (guint d = 0; d < head_dim; d++) {
            double x = (double) queries.q[i * head_dim + d] * centroid[t * head_dim + d];

            dot += x;
            size += fabs (x);
          }
          assert_near ("z", z[i * stride + t], factor * dot + log_n[t],
              1e-6 * (factor * size + log_n[t]) + 1e-7);
        }
      free_memory ();
    }
}

static void
test_packed (gconstpointer data)
{
  const Case *c = data;
  guint head_dim = c->head_dim, half = head_dim / 2;

  for (guint a = 0; a < G_N_ELEMENTS (query_counts); a++)
    for (guint b = 0; b < G_N_ELEMENTS (key_counts); b++) {
      guint n_queries = query_counts[a], n = key_counts[b];
      gsize stride = n + 1, size = (n_queries - 1) * stride + n;
      LycheeQueries queries = new_queries (n_queries, head_dim);
      guint8 *pool = GUARDED (guint8, (n + 1) * half);
      const guint8 **code = GUARDED (const guint8 *, n);
      float *scale = random_floats (n, 0.001, 0.02), *z = random_floats (size, -5, 5);
      g_autofree float *before = g_memdup2 (z, size * sizeof *z);

      if (n_queries > 36 && n > 65)
        continue;
      for (guint i = 0; i < (n + 1) * half; i++)
        pool[i] = (guint8) ((uniform () + 1) * 127.9);
      for (guint t = 0; t < n; t++)
        code[t] = pool + (gsize) ((uniform () + 1) / 2 * (n + 1)) * half;
      c->kernels->score_packed (&queries, code, scale, n, z, stride);
      for (guint i = 0; i < n_queries; i++)
        for (guint t = 0; t < stride && i * stride + t < size; t++) {
          double dot = 0, sizes = 0, factor = t < n ? (double) queries.scale * scale[t] : 0;

          for (guint d = 0; d < head_dim && t < n; d++) {
            gint byte = code[t][d % half], value = (d < half ? byte & 15 : byte >> 4) - 8;
            double x = (double) queries.q[i * head_dim + d] * value;

            dot += x;
            sizes += fabs (x);
          }
          assert_near ("z", z[i * stride + t], before[i * stride + t] + factor * dot,
              1e-6 * (factor * sizes + fabs (before[i * stride + t])) + 1e-7 * (t < n));
        }
      free_memory ();
    }
}

static void
test_dot_rows (gconstpointer data)
{
  const Case *c = data;
  guint head_dim = c->head_dim;

  for (guint a = 0; a < G_N_ELEMENTS (query_counts); a++)
    for (guint b = 0; b < G_N_ELEMENTS (key_counts); b++) {
      guint n_centers = query_counts[a], n = key_counts[b];
      guint16 *pool = random_halves ((n + 1) * head_dim);
      const guint16 **rows = GUARDED (const guint16 *, n);
      float *centers = random_floats (n_centers * head_dim, -1, 1);
      float *dots = GUARDED (float, n *n_centers);

      if (n_centers > 36 && n > 65)
        continue;
      for (guint t = 0; t < n; t++)
        rows[t] = pool + (gsize) ((uniform () + 1) / 2 * n) * head_dim;
      c->kernels->dot_rows (rows, n, centers, n_centers, head_dim, dots);
      for (guint t = 0; t < n; t++)
        for (guint i = 0; i < n_centers; i++) {
          double dot = 0, size = 0;

          for (guint d = 0; d < head_dim; d++) {
            double x = centers[i * head_dim + d] * half_value (rows[t][d]);

            dot += x;
            size += fabs (x);
          }
          assert_near ("dot", dots[t * n_centers + i], dot, 1e-6 * size);
        }
      free_memory ();
    }
}

/* The order is given, so the bits are. */
static void
test_sum_rows (gconstpointer data)
{
  const Case *c = data;
  guint head_dim = c->head_dim;

  for (guint b = 0; b < G_N_ELEMENTS (key_counts); b++) {
    guint n = key_counts[b];
    guint16 *pool = random_halves ((n + 1) * head_dim);
    const guint16 **rows = GUARDED (const guint16 *, n);
    float *sum = random_floats (head_dim, -1, 1), want[256], squares = -1;
    double want_squares = 0;

    for (guint t = 0; t < n; t++)
      rows[t] = pool + (gsize) ((uniform () + 1) / 2 * n) * head_dim;
    memcpy (want, sum, head_dim * sizeof *want);
    c->kernels->sum_rows (rows, n, head_dim, sum, b % 2 ? &squares : NULL);
    for (guint t = 0; t < n; t++)
      for (guint d = 0; d < head_dim; d++) {
        want[d] += (float) half_value (rows[t][d]);
        want_squares += half_value (rows[t][d]) * half_value (rows[t][d]);
      }
    g_assert_cmpmem (sum, head_dim * sizeof *sum, want, head_dim * sizeof *want);
    if (b % 2)
      g_assert_cmpfloat (fabs (squares - want_squares), <=, 2e-5 * want_squares);
    else
      g_assert_cmpfloat (squares, ==, -1);
    free_memory ();
  }
}

/* Weights, and the choice. */

static void
test_weights (gconstpointer data)
{
  const Case *c = data;

  for (guint i = 0; i < G_N_ELEMENTS (query_counts); i++)
    for (guint j = 0; j < G_N_ELEMENTS (key_counts); j++) {
      guint n_queries = query_counts[i], n = key_counts[j], stride = n + 5;
      gsize size = (gsize) (n_queries - 1) * stride + n;
      float *z = random_floats (size, -20, 20), *weight = random_floats (size, 7, 7);
      float *most = GUARDED (float, n_queries), *density = random_floats (n, 1, 1);
      float *count = GUARDED (float, n);
      g_autofree double *want = g_new0 (double, n + 1);

      for (guint t = 0; t < n; t++)
        count[t] = 1 + t % 200;
      if (n_queries > 1 && n > 0)
        z[stride] = NAN; /* a query that is broken gives no share to any */
      if (n > 1)
        z[1] = -150; /* as good as nothing */
      c->kernels->weigh_nodes (n_queries, z, stride, count, n, weight, most, density);
      for (guint q = 0; q < n_queries; q++) {
        double sum = 0;
        float largest = -INFINITY;

        for (guint t = 0; t < n; t++) {
          sum += exp (z[q * stride + t]);
          largest = z[q * stride + t] > largest ? z[q * stride + t] : largest;
        }
        g_assert_cmpfloat (most[q], ==, largest);
        for (guint t = 0; t < n; t++) {
          double x = exp ((double) z[q * stride + t] - largest);

          if (isnan (x))
            g_assert_true (isnan (weight[q * stride + t]));
          else
            assert_near ("weight", weight[q * stride + t], x, 4e-6 * x + 1e-37);
          if (!isnan (sum))
            want[t] += exp (z[q * stride + t]) / sum / count[t];
        }
        for (guint t = n; t < stride && q + 1 < n_queries; t++)
          g_assert_true (weight[q * stride + t] == 7);
      }
      for (guint t = 0; t < n; t++)
        g_assert_cmpfloat (fabs (density[t] - want[t]), <=, 8e-6 * want[t] + 1e-30);
      free_memory ();
    }
}

static gint
denser_first (gconstpointer a, gconstpointer b, gpointer density)
{
  const guint32 *x = a, *y = b;
  const float *d = density;

  if (d[*x] != d[*y])
    return d[*x] > d[*y] ? -1 : 1;
  return *x < *y ? -1 : 1;
}

/* Against a plain sort, with densities of many and of few sizes, and many alike. */
static void
test_select (gconstpointer data)
{
  const Case *c = data;
  static const guint sizes[] = { 1, 2, 3, 8, 15, 16, 17, 33, 100, 379, 1000 };
  static const double parts[] = { 0, 1e-9, 0.01, 0.1, 0.5, 0.9, 1, 2 };

  for (guint i = 0; i < G_N_ELEMENTS (sizes); i++)
    for (guint kind = 0; kind < 5; kind++)
      for (guint j = 0; j < G_N_ELEMENTS (parts); j++) {
        guint n = sizes[i], target, n_chosen, n_want = 0;
        float *density = GUARDED (float, n), *count = GUARDED (float, n);
        guint32 *chosen = GUARDED (guint32, n), *order = GUARDED (guint32, n);
        double total = 0, held = 0;

        for (guint t = 0; t < n; t++) {
          double x = (uniform () + 1) / 2;

          density[t] = kind == 0   ? (float) x
                       : kind == 1 ? (float) exp (-90 * x)
                       : kind == 2 ? floorf (3 * x)
                       : kind == 3 ? 0
                                   : (t % 7 ? (float) x : 0.25f);
          count[t] = floorf (1 + 90 * (uniform () + 1) / 2);
          total += count[t];
          order[t] = t;
        }
        target = (guint) ceil (parts[j] * total);
        g_qsort_with_data (order, n, sizeof *order, denser_first, density);
        for (; n_want < n && held < target; n_want++)
          held += count[order[n_want]];
        n_chosen = c->kernels->select_nodes (density, count, n, target, chosen);
        g_assert_cmpuint (n_chosen, ==, n_want);
        if (n_want > 0 && total >= target)
          g_assert_cmpuint (chosen[n_want - 1], ==, order[n_want - 1]);
        g_qsort_with_data (chosen, n_chosen, sizeof *chosen, denser_first, density);
        g_assert_cmpmem (chosen, n_chosen * sizeof *chosen, order, n_want * sizeof *order);
        free_memory ();
      }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  cases = g_ptr_array_new_with_free_func (g_free);
  mappings = g_ptr_array_new_with_free_func (free_mapping);

  add_cases ("weights", test_weights, FALSE);
  add_cases ("select", test_select, FALSE);
  add_cases ("nodes", test_nodes, TRUE);
  add_cases ("leaves", test_leaves, TRUE);
  add_cases ("packed", test_packed, TRUE);
  add_cases ("dot-rows", test_dot_rows, TRUE);
  add_cases ("sum-rows", test_sum_rows, TRUE);
  return g_test_run ();
}
