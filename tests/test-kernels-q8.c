/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The kernels over rows of the form q8_0, every set of them: against sums in float64 over what the
 * rows say. */

#include "lychee-cpu-kernels.h"

#include <math.h>
#include <string.h>

#define MAX_KEYS 300
#define MAX_QUERIES 36
#define MAX_DIM 256

static const guint head_dims[] = { 32, 64, 96, 128, 256 };
static const guint query_counts[] = { 1, 4, 9, MAX_QUERIES };
static const guint key_counts[] = { 1, 17, 65, MAX_KEYS };

typedef struct {
  const LycheeCpuKernels *set; /* for f16 */
  guint dim;
} Case;

/* Keys and values as they lie in a page, and as floats. */
typedef struct {
  guint16 *rows; /* [K then V][MAX_KEYS][row] */
  gsize row_size, value_offset;
  float *k, *v;                 /* [MAX_KEYS][dim] */
  const guint16 *any[MAX_KEYS]; /* rows in another order */
  guint order[MAX_KEYS];
  float *q; /* [MAX_QUERIES][dim] */
} Data;

static float
draw (GRand *rand)
{
  return (float) g_rand_double_range (rand, -3, 3);
}

static void
data_init (Data *data, const Case *c)
{
  const LycheeCpuKernels *kernels = c->set->q8_0;
  g_autofree float *x = g_new (float, c->dim);
  GRand *rand = g_rand_new_with_seed (c->dim);

  data->row_size = lychee_row_size (LYCHEE_ROW_Q8_0, c->dim);
  g_assert_cmpuint (data->row_size * 2, ==, c->dim / 32 * 34);
  data->value_offset = MAX_KEYS * data->row_size;
  data->rows = g_new (guint16, 2 * data->value_offset);
  data->k = g_new (float, MAX_KEYS * c->dim);
  data->v = g_new (float, MAX_KEYS * c->dim);
  data->q = g_new (float, MAX_QUERIES * c->dim);
  for (guint i = 0; i < MAX_QUERIES * c->dim; i++)
    data->q[i] = draw (rand);
  for (guint i = 0; i < 2 * MAX_KEYS; i++) {
    guint16 *row = data->rows + i * data->row_size;
    float *to = (i < MAX_KEYS ? data->k : data->v) + (gsize) (i % MAX_KEYS) * c->dim;

    for (guint d = 0; d < c->dim; d++)
      x[d] = draw (rand);
    kernels->write_row (x, c->dim, row);
    kernels->read_row (row, c->dim, to);
  }
  for (guint i = 0; i < MAX_KEYS; i++) {
    data->order[i] = (i * 7 + 3) % MAX_KEYS;
    data->any[i] = data->rows + data->order[i] * data->row_size;
  }
  g_rand_free (rand);
}

static void
data_clear (Data *data)
{
  g_free (data->rows);
  g_free (data->k);
  g_free (data->v);
  g_free (data->q);
}

/* A value is the nearest that its block has; the reference reads the same bits. */
static void
test_rows (gconstpointer user_data)
{
  const Case *c = user_data;
  const LycheeCpuKernels *plain = lychee_cpu_kernels_get_reference ()->q8_0;
  const float sizes[] = { 0, 1e-12f, 1e-6f, 1e-3f, 1, 1000, 8e6f };
  GRand *rand = g_rand_new_with_seed (3);

  for (guint s = 0; s < G_N_ELEMENTS (sizes); s++) {
    float x[MAX_DIM], y[MAX_DIM], z[MAX_DIM];
    guint16 row[MAX_DIM];

    for (guint d = 0; d < c->dim; d++)
      x[d] = draw (rand) * sizes[s] / 3;
    c->set->q8_0->write_row (x, c->dim, row);
    c->set->q8_0->read_row (row, c->dim, y);
    plain->read_row (row, c->dim, z);
    g_assert_cmpmem (y, c->dim * sizeof *y, z, c->dim * sizeof *z);
    for (guint at = 0; at < c->dim; at += 32) {
      float most = 0;

      for (guint d = at; d < at + 32; d++)
        most = MAX (most, fabsf (x[d]));
      /* Half a step, and what the scale, a half float, is off: the largest is cut off by that. A
       * half float has nothing below 6e-8. */
      for (guint d = at; d < at + 32; d++)
        g_assert_cmpfloat (fabsf (x[d] - y[d]), <=, most / 127 * 0.57f + 127 * 6e-8f);
    }
  }
  for (guint bad = 0; bad < 3; bad++) {
    const float values[] = { NAN, INFINITY, -INFINITY };
    float x[MAX_DIM] = { 1, 2, 3 };
    guint16 row[MAX_DIM];

    x[c->dim - 1] = values[bad];
    c->set->q8_0->write_row (x, c->dim, row);
    /* The scale of the block says it. */
    g_assert_cmpuint (row[(c->dim / 32 - 1) * 17] & 0x7c00, ==, 0x7c00);
    if (c->dim > 32)
      g_assert_cmpuint (row[0] & 0x7c00, !=, 0x7c00);
  }
  g_rand_free (rand);
}

/* @order: (nullable) */
static void
attend_plainly (const Data *data, const float *q, guint dim, const guint *order, guint n, double *o)
{
  double most = -INFINITY, l = 0;

  memset (o, 0, dim * sizeof *o);
  for (guint twice = 0; twice < 2; twice++)
    for (guint i = 0; i < n; i++) {
      gsize at = (gsize) (order ? order[i] : i) * dim;
      double z = 0;

      for (guint d = 0; d < dim; d++)
        z += (double) q[d] * data->k[at + d];
      z /= sqrt (dim);
      if (twice == 0) {
        most = MAX (most, z);
        continue;
      }
      l += exp (z - most);
      for (guint d = 0; d < dim; d++)
        o[d] += exp (z - most) * data->v[at + d];
    }
  for (guint d = 0; d < dim; d++)
    o[d] /= l;
}

static void
assert_attended (const Data *data, const LycheeQueries *queries, const LycheeSoftmax *state,
    const guint *order, guint n_keys, const guint32 *visible)
{
  guint dim = queries->head_dim;

  for (guint i = 0; i < queries->n_queries; i++) {
    double wanted[MAX_DIM];

    attend_plainly (
        data, queries->q + (gsize) i * dim, dim, order, visible ? visible[i] : n_keys, wanted);
    for (guint d = 0; d < dim; d++)
      g_assert_cmpfloat_with_epsilon (state->o[i * dim + d] / state->l[i], wanted[d], 2e-5);
  }
}

static void
test_attend (gconstpointer user_data)
{
  const Case *c = user_data;
  const LycheeCpuKernels *kernels = c->set->q8_0;
  float m[MAX_QUERIES], l[MAX_QUERIES];
  g_autofree float *o = g_new (float, MAX_QUERIES * c->dim);
  LycheeSoftmax state = { m, l, o };
  Data data;

  data_init (&data, c);
  for (guint i = 0; i < G_N_ELEMENTS (query_counts); i++)
    for (guint j = 0; j < G_N_ELEMENTS (key_counts); j++) {
      guint n = key_counts[j];
      LycheeQueries queries = { query_counts[i], c->dim, 1 / sqrtf (c->dim), data.q, .cap = 0 };
      guint32 visible[MAX_QUERIES];

      for (guint q = 0; q < MAX_QUERIES; q++)
        visible[q] = 1 + (q * 5) % n;
      for (guint turn = 0; turn < 2; turn++) {
        lychee_softmax_init (&state, queries.n_queries, c->dim);
        kernels->attend (&queries, data.rows, data.rows + data.value_offset, n,
            turn == 1 ? visible : NULL, &state);
        assert_attended (&data, &queries, &state, NULL, n, turn == 1 ? visible : NULL);
      }
      lychee_softmax_init (&state, queries.n_queries, c->dim);
      kernels->attend_gather (&queries, data.any, data.value_offset, n, &state);
      assert_attended (&data, &queries, &state, data.order, n, NULL);
    }
  data_clear (&data);
}

static void
test_sums (gconstpointer user_data)
{
  const Case *c = user_data;
  const LycheeCpuKernels *kernels = c->set->q8_0;
  g_autofree float *dots = g_new (float, MAX_KEYS *MAX_QUERIES);
  Data data;

  data_init (&data, c);
  for (guint j = 0; j < G_N_ELEMENTS (key_counts); j++) {
    guint n = key_counts[j], n_centers = 5;
    float sum[MAX_DIM] = { 0 }, squares;
    double all = 0;

    kernels->dot_rows (data.any, n, data.q, n_centers, c->dim, dots);
    kernels->sum_rows (data.any, n, c->dim, sum, &squares);
    for (guint i = 0; i < n; i++) {
      const float *key = data.k + (gsize) data.order[i] * c->dim;

      for (guint center = 0; center < n_centers; center++) {
        double wanted = 0;

        for (guint d = 0; d < c->dim; d++)
          wanted += (double) key[d] * data.q[center * c->dim + d];
        g_assert_cmpfloat_with_epsilon (dots[i * n_centers + center], wanted, 1e-3);
      }
      for (guint d = 0; d < c->dim; d++)
        all += (double) key[d] * key[d];
    }
    g_assert_cmpfloat_with_epsilon (squares / all, 1, 1e-5);
    for (guint d = 0; d < c->dim; d++) {
      double wanted = 0;

      for (guint i = 0; i < n; i++)
        wanted += data.k[data.order[i] * c->dim + d];
      g_assert_cmpfloat_with_epsilon (sum[d], wanted, 1e-3);
    }
  }
  data_clear (&data);
}

int
main (int argc, char **argv)
{
  const LycheeCpuKernels *const *list = lychee_cpu_kernels_list ();
  g_autoptr (GPtrArray) cases = g_ptr_array_new_with_free_func (g_free);

  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; list[i]; i++)
    for (guint j = 0; j < G_N_ELEMENTS (head_dims); j++) {
      Case *c = g_new (Case, 1);
      const struct {
        const char *name;
        GTestDataFunc func;
      } tests[] = { { "rows", test_rows }, { "attend", test_attend }, { "sums", test_sums } };

      *c = (Case){ list[i], head_dims[j] };
      g_ptr_array_add (cases, c);
      for (guint k = 0; k < G_N_ELEMENTS (tests); k++) {
        g_autofree char *path =
            g_strdup_printf ("/kernels-q8/%s/%s/%u", tests[k].name, list[i]->name, head_dims[j]);

        g_test_add_data_func (path, c, tests[k].func);
      }
    }
  return g_test_run ();
}
