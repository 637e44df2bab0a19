/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* 2-means over rows of keys, the way the index sorts them: deterministic, a bounded number of
 * passes, always two parts that are not too unequal. */
#pragma GCC optimize("O3", "no-trapping-math") /* comparisons in vectors */
#include "lychee-index-private.h"

#include <string.h>

#define PASSES 6

LycheeSorter *
lychee_sorter_new (const LycheeIndex *index, const LycheeRows *rows, guint size)
{
  LycheeSorter *sorter = g_new0 (LycheeSorter, 1);

  sorter->kernels = lychee_cpu_kernels_for (index->kernels, rows->form);
  sorter->rows = rows;
  sorter->head_dim = index->params.head_dim;
  sorter->size = size;
  sorter->id = g_new (guint32, size);
  sorter->key = g_new (const guint16 *, size);
  sorter->norm = g_new (float, size);
  sorter->dot = g_new (float, size);
  sorter->id_spare = g_new (guint32, size);
  sorter->key_spare = g_new (const guint16 *, size);
  sorter->norm_spare = g_new (float, size);
  sorter->side = g_new (guint8, size);
  sorter->vector = g_new (float, 5 * sorter->head_dim);
  sorter->metric = g_new (float, LYCHEE_QUERIES_SEEN * sorter->head_dim);
  sorter->n_metric = lychee_index_get_metric (index, sorter->metric);
  return sorter;
}

void
lychee_sorter_free (LycheeSorter *sorter)
{
  g_free (sorter->id);
  g_free (sorter->key);
  g_free (sorter->norm);
  g_free (sorter->dot);
  g_free (sorter->id_spare);
  g_free (sorter->key_spare);
  g_free (sorter->norm_spare);
  g_free (sorter->side);
  g_free (sorter->vector);
  g_free (sorter->metric);
  g_free (sorter);
}

void
lychee_sorter_set (LycheeSorter *sorter, guint at, guint32 row)
{
  sorter->id[at] = row;
  sorter->key[at] = lychee_rows_key (sorter->rows, sorter->head_dim, row);
  sorter->kernels->read_row (sorter->key[at], sorter->head_dim, sorter->vector);
  sorter->norm[at] = lychee_square (sorter->vector, sorter->head_dim);
}

/* The row farthest from @center; the first of equals. */
static guint
farthest (LycheeSorter *sorter, guint at, guint n, const float *center)
{
  guint best = 0;
  float most = -G_MAXFLOAT;

  sorter->kernels->dot_rows (sorter->key + at, n, center, 1, sorter->head_dim, sorter->dot);
  for (guint i = 0; i < n; i++) {
    float distance = sorter->norm[at + i] - 2 * sorter->dot[i];

    if (distance > most) {
      most = distance;
      best = i;
    }
  }
  return best;
}

/* Puts the rows of side 0 first, both parts in their old order. */
static void
partition (LycheeSorter *sorter, guint at, guint n)
{
  guint left = 0, right = 0;

  for (guint i = 0; i < n; i++) {
    if (sorter->side[i]) {
      sorter->id_spare[right] = sorter->id[at + i];
      sorter->key_spare[right] = sorter->key[at + i];
      sorter->norm_spare[right++] = sorter->norm[at + i];
    } else {
      sorter->id[at + left] = sorter->id[at + i];
      sorter->key[at + left] = sorter->key[at + i];
      sorter->norm[at + left++] = sorter->norm[at + i];
    }
  }
  memcpy (sorter->id + at + left, sorter->id_spare, right * sizeof *sorter->id);
  memcpy (sorter->key + at + left, sorter->key_spare, right * sizeof *sorter->key);
  memcpy (sorter->norm + at + left, sorter->norm_spare, right * sizeof *sorter->norm);
}

/* Adds to the vector from one mean to another the parts in the metric's directions: its product
 * with a row is then that of the metric. */
static void
lean (const LycheeSorter *sorter, const float *from, float *line)
{
  guint dim = sorter->head_dim;

  for (guint i = 0; i < sorter->n_metric; i++) {
    const float *u = sorter->metric + (gsize) i * dim;
    float part = lychee_dot (u, from, dim);

    for (guint d = 0; d < dim; d++)
      line[d] += part * u[d];
  }
}

typedef struct {
  float dot;
  guint32 at;
} Projected;

static int
by_projection (gconstpointer a, gconstpointer b)
{
  const Projected *x = a, *y = b;

  if (x->dot != y->dot)
    return x->dot < y->dot ? -1 : 1;
  return x->at < y->at ? -1 : 1;
}

/* Cuts along the line between the means so that side 0 has @n_left rows. */
static void
cut (LycheeSorter *sorter, guint n, guint n_left)
{
  g_autofree Projected *order = g_new (Projected, n);

  for (guint i = 0; i < n; i++)
    order[i] = (Projected){ sorter->dot[i], i };
  qsort (order, n, sizeof *order, by_projection);
  for (guint i = 0; i < n; i++)
    sorter->side[order[i].at] = i >= n_left;
}

guint
lychee_sorter_split (LycheeSorter *sorter, guint at, guint n, guint least)
{
  guint dim = sorter->head_dim, n_right = 0, min = MAX (1, n / least);
  float *total = sorter->vector, *a = total + dim, *b = a + dim, *line = b + dim, *sum = line + dim;
  const guint16 **right = sorter->key_spare;

  g_return_val_if_fail (n > 1, n);
  memset (total, 0, dim * sizeof *total);
  sorter->kernels->sum_rows (sorter->key + at, n, dim, total, NULL);
  for (guint d = 0; d < dim; d++)
    line[d] = total[d] / n;
  /* Seeds: the row farthest from the mean, and the row farthest from that one. */
  sorter->kernels->read_row (sorter->key[at + farthest (sorter, at, n, line)], dim, a);
  sorter->kernels->read_row (sorter->key[at + farthest (sorter, at, n, a)], dim, b);
  memset (sorter->side, 0, n);
  for (guint pass = 0; pass < PASSES; pass++) {
    float limit = 0;
    guint changes = 0;

    for (guint d = 0; d < dim; d++)
      sum[d] = line[d] = b[d] - a[d];
    lean (sorter, sum, line);
    for (guint d = 0; d < dim; d++)
      sum[d] = (a[d] + b[d]) / 2;
    limit = lychee_dot (line, sum, dim);
    sorter->kernels->dot_rows (sorter->key + at, n, line, 1, dim, sorter->dot);
    n_right = 0;
    for (guint i = 0; i < n; i++) {
      guint8 side = sorter->dot[i] > limit;

      changes += side ^ sorter->side[i];
      sorter->side[i] = side;
      right[n_right] = sorter->key[at + i];
      n_right += side;
    }
    if (n_right == 0 || n_right == n || !changes)
      break;
    memset (sum, 0, dim * sizeof *sum);
    sorter->kernels->sum_rows (right, n_right, dim, sum, NULL);
    for (guint d = 0; d < dim; d++) {
      b[d] = sum[d] / n_right;
      a[d] = (total[d] - sum[d]) / (n - n_right);
    }
  }
  sorter->visits += n;
  if (n_right < min || n_right > n - min) {
    /* All alike (or as good as): halves keep the tree shallow whatever the keys are. */
    if (n_right == 0 || n_right == n)
      n_right = n / 2;
    n_right = CLAMP (n_right, min, n - min);
    cut (sorter, n, n - n_right);
  }
  partition (sorter, at, n);
  return n - n_right;
}
