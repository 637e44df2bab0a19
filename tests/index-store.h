/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the index's tests put into it: rows of half floats in pages, and the patterns of keys that
 * indices find hard. */

#include <math.h>
#include <string.h>

#include "lychee-cpu-kernels.h"
#include "lychee-index-private.h"

#define PAGE_SHIFT 5

/* Rows to index, and how they are made. */
typedef struct {
  guint dim, n;
  GPtrArray *pages;
  LycheeRows rows;
  GRand *rand;
} Store;

typedef enum {
  KEYS_RANDOM,
  KEYS_CLUSTERS,
  KEYS_EQUAL,
  KEYS_ZERO,
  KEYS_TWO_FAR,
  KEYS_GROWING,
  KEYS_SORTED,
  KEYS_OUTLIERS,
  KEYS_HUGE,
  KEYS_TINY,
} Keys;

static const struct {
  const char *name;
  Keys keys;
} patterns[] = {
  { "random", KEYS_RANDOM },
  { "clusters", KEYS_CLUSTERS },
  { "all-equal", KEYS_EQUAL },
  { "all-zero", KEYS_ZERO },
  { "two-far", KEYS_TWO_FAR },
  { "growing-norms", KEYS_GROWING },
  { "sorted", KEYS_SORTED },
  { "outliers", KEYS_OUTLIERS },
  { "huge", KEYS_HUGE },
  { "tiny", KEYS_TINY },
};

static inline Store *
store_new (guint dim, guint32 seed)
{
  Store *store = g_new0 (Store, 1);

  store->dim = dim;
  store->pages = g_ptr_array_new_with_free_func (g_free);
  store->rand = g_rand_new_with_seed (seed);
  store->rows = (LycheeRows){ NULL, PAGE_SHIFT, (gsize) dim << PAGE_SHIFT };
  return store;
}

static inline void
store_free (Store *store)
{
  g_ptr_array_unref (store->pages);
  g_rand_free (store->rand);
  g_free (store);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC (Store, store_free)

static inline float
gaussian (GRand *rand)
{
  return (
      float) (sqrt (-2 * log (1 - g_rand_double (rand))) * cos (2 * G_PI * g_rand_double (rand)));
}

static inline guint16 *
store_row (Store *store, guint row)
{
  while (store->pages->len <= row >> PAGE_SHIFT)
    g_ptr_array_add (store->pages, g_new0 (guint16, (gsize) store->dim << (PAGE_SHIFT + 1)));
  store->rows.pages = (const guint16 *const *) store->pages->pdata;
  store->n = MAX (store->n, row + 1);
  return (guint16 *) lychee_rows_key (&store->rows, store->dim, row);
}

static inline void
store_fill (Store *store, guint first, guint n, Keys keys)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get_reference ();
  g_autofree float *x = g_new (float, store->dim);

  for (guint row = first; row < first + n; row++) {
    guint16 *at = store_row (store, row);
    GRand *cluster = NULL;
    float scale = 1;

    if (keys == KEYS_CLUSTERS)
      cluster = g_rand_new_with_seed (1000 + g_rand_int_range (store->rand, 0, 12));
    for (guint d = 0; d < store->dim; d++) {
      float noise = gaussian (store->rand);

      switch (keys) {
      case KEYS_RANDOM:
        x[d] = noise;
        break;
      case KEYS_CLUSTERS:
        x[d] = 3 * gaussian (cluster) + 0.02f * noise;
        break;
      case KEYS_EQUAL:
        x[d] = 0.7f - d * 0.01f;
        break;
      case KEYS_ZERO:
        x[d] = 0;
        break;
      case KEYS_TWO_FAR:
        x[d] = (row % 2 ? 1000 : -1000) + (row % 7 ? 0 : noise);
        break;
      case KEYS_GROWING:
        x[d] = noise * expf (row * 0.004f);
        x[d] = CLAMP (x[d], -60000, 60000);
        break;
      case KEYS_SORTED:
        x[d] = d == 0 ? row * 0.25f : 0;
        break;
      case KEYS_OUTLIERS: /* each new one farther than all before */
        x[d] = row % 3 == 0 ? (d == row % store->dim ? row * 5.f : 0) : 0.01f * noise;
        break;
      case KEYS_HUGE:
        x[d] = g_rand_boolean (store->rand) ? 65504 : -65504;
        break;
      case KEYS_TINY:
        x[d] = noise * 1e-7f;
        break;
      }
      x[d] *= scale;
    }
    kernels->f32_to_f16 (x, at, store->dim);
    for (guint d = 0; d < store->dim; d++)
      x[d] = gaussian (store->rand) + (keys == KEYS_CLUSTERS ? at[0] % 13 : 0);
    kernels->f32_to_f16 (x, at + store->rows.value_offset, store->dim);
    if (cluster)
      g_rand_free (cluster);
  }
}

static inline void
store_read (Store *store, guint row, gboolean value, float *x)
{
  lychee_cpu_kernels_get_reference ()->f16_to_f32 (
      lychee_rows_key (&store->rows, store->dim, row) + (value ? store->rows.value_offset : 0), x,
      store->dim);
}

/* A thread that searches a snapshot, and frees it, while the original grows. */
typedef struct {
  LycheeIndex *copy;
  Store *store;
  guint n_searches;
  guint64 sum;
} Reader;

static inline gpointer
read_copy (gpointer data)
{
  Reader *reader = data;
  g_autoptr (LycheeSelection) selection = lychee_selection_new ();
  float q[64];

  for (guint i = 0; i < reader->n_searches; i++) {
    LycheeIndexQuery query = { 1, q, 128, 0, TRUE };

    for (guint d = 0; d < 64; d++)
      q[d] = (float) ((i * 7 + d * 13) % 17) - 8;
    lychee_index_search (reader->copy, &reader->store->rows, &query, selection);
    for (guint r = 0; r < selection->n_rows; r++)
      reader->sum += selection->rows[r] * (guint64) (r + 1);
  }
  lychee_index_free (reader->copy);
  return NULL;
}
