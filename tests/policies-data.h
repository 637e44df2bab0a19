/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What test-policies.c puts before the policies, and how it answers by hand, in float64. */

#include "policies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_SHIFT 5
#define SINKS 16
#define WINDOW 64
#define MAX_DIM 64

/* Keys and values of one head, and queries that share them. */
typedef struct {
  guint n, dim, group;
  LycheeRows rows;
  guint16 *memory;
  const guint16 **pages;
  double *k, *v; /* [n][dim] */
  float *q;      /* [group][dim] */
  LycheeQueries queries;
  guint *item_ends; /* a chunk every 8 to 16 tokens */
  guint n_item_ends;
} Data;

static inline double
half_to_double (guint16 half)
{
  int exponent = half >> 10 & 31;
  double mantissa = half & 1023;
  double size = exponent ? ldexp (1024 + mantissa, exponent - 25) : ldexp (mantissa, -24);

  return half & 0x8000 ? -size : size;
}

/* A number that is about normally distributed. */
static inline float
next_normal (GRand *rand)
{
  double sum = -6;

  for (guint i = 0; i < 12; i++)
    sum += g_rand_double (rand);
  return sum;
}

/* Keys gather around some directions, as a model's do. */
static inline Data *
data_new (guint n, guint dim, guint group, guint32 seed)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get_reference ();
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  Data *data = g_new0 (Data, 1);
  guint page_rows = 1u << PAGE_SHIFT, n_pages = (n + page_rows - 1) / page_rows;
  gsize page_size = (gsize) 2 * page_rows * dim;
  float centers[8][MAX_DIM], row[MAX_DIM];

  data->n = n;
  data->dim = dim;
  data->group = group;
  data->memory = g_new0 (guint16, n_pages * page_size);
  data->pages = g_new (const guint16 *, n_pages);
  data->k = g_new (double, (gsize) n *dim);
  data->v = g_new (double, (gsize) n *dim);
  data->q = g_new (float, group *dim);
  for (guint i = 0; i < n_pages; i++)
    data->pages[i] = data->memory + i * page_size;
  data->rows = (LycheeRows){ data->pages, PAGE_SHIFT, (gsize) page_rows * dim };
  for (guint c = 0; c < 8; c++)
    for (guint j = 0; j < dim; j++)
      centers[c][j] = 2 * next_normal (rand);
  for (guint i = 0; i < n; i++) {
    guint16 *key = (guint16 *) lychee_rows_key (&data->rows, dim, i);
    const float *center = centers[g_rand_int_range (rand, 0, 8)];

    for (guint part = 0; part < 2; part++) {
      guint16 *to = key + part * data->rows.value_offset;
      double *copy = (part ? data->v : data->k) + (gsize) i * dim;

      for (guint j = 0; j < dim; j++)
        row[j] = (part ? 0 : center[j]) + next_normal (rand);
      kernels->f32_to_f16 (row, to, dim);
      for (guint j = 0; j < dim; j++)
        copy[j] = half_to_double (to[j]);
    }
  }
  for (guint i = 0; i < group * dim; i++)
    data->q[i] = next_normal (rand);
  data->queries = (LycheeQueries){ group, dim, 1 / sqrtf (dim), data->q };
  data->item_ends = g_new (guint, n);
  for (guint end = 0; end < n;) {
    end += g_rand_int_range (rand, 8, 17);
    data->item_ends[data->n_item_ends++] = end;
  }
  return data;
}

static inline void
data_free (Data *data)
{
  g_free (data->memory);
  g_free (data->pages);
  g_free (data->k);
  g_free (data->v);
  g_free (data->q);
  g_free (data->item_ends);
  g_free (data);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC (Data, data_free)

static inline PolicyState *
state_new (const Policy *policy, const Data *data)
{
  PolicySpec spec = { data->dim, data->queries.scale, SINKS, WINDOW, 7, data->item_ends,
    data->n_item_ends };

  return policy_state_new (policy, &spec);
}

/* By hand, in float64 */

static inline double
logit (const Data *data, guint head, guint row)
{
  double dot = 0;

  for (guint j = 0; j < data->dim; j++)
    dot += data->q[head * data->dim + j] * data->k[(gsize) row * data->dim + j];
  return dot * data->queries.scale;
}

/* Attention of @head over @n of the rows: weights (nullable) [n] and output (nullable) [dim]. */
static inline void
attend (const Data *data, guint head, const guint32 *rows, guint n, double *weights, double *output)
{
  double max = -INFINITY, sum = 0;

  for (guint i = 0; i < n; i++)
    max = MAX (max, logit (data, head, rows[i]));
  for (guint i = 0; i < n; i++)
    sum += exp (logit (data, head, rows[i]) - max);
  for (guint j = 0; output && j < data->dim; j++)
    output[j] = 0;
  for (guint i = 0; i < n; i++) {
    double weight = exp (logit (data, head, rows[i]) - max) / sum;

    if (weights)
      weights[i] = weight;
    for (guint j = 0; output && j < data->dim; j++)
      output[j] += weight * data->v[(gsize) rows[i] * data->dim + j];
  }
}

static inline guint32 *
all_rows (guint n)
{
  guint32 *rows = g_new (guint32, n);

  for (guint i = 0; i < n; i++)
    rows[i] = i;
  return rows;
}

/* The rule of policies.h, slowly: shares of a row of each unit. */
static inline double *
plain_shares (const double *z, guint n_queries, guint n, const guint *sizes)
{
  double *shares = g_new0 (double, n);

  for (guint h = 0; h < n_queries; h++) {
    double sum = 0;

    for (guint i = 0; i < n; i++)
      sum += sizes[i] * exp (z[h * n + i]);
    for (guint i = 0; i < n; i++)
      shares[i] += exp (z[h * n + i]) / sum;
  }
  return shares;
}

static inline guint
find_best (const double *shares, guint n, const gboolean *taken)
{
  guint best = n;

  for (guint i = 0; i < n; i++)
    if (!taken[i] && (best == n || shares[i] > shares[best]))
      best = i;
  return best;
}

static inline int
compare_rows (gconstpointer a, gconstpointer b)
{
  guint32 x = *(const guint32 *) a, y = *(const guint32 *) b;

  return x < y ? -1 : x > y;
}

static inline void
assert_same_rows (guint32 *a, guint n_a, guint32 *b, guint n_b)
{
  g_assert_cmpuint (n_a, ==, n_b);
  qsort (a, n_a, sizeof *a, compare_rows);
  qsort (b, n_b, sizeof *b, compare_rows);
  g_assert_cmpmem (a, n_a * sizeof *a, b, n_b * sizeof *b);
}
