/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench decode --bound: what the memory alone takes of sparse attention. In place of the
 * attention, each head's search runs and the rows that it finds are loaded, with no arithmetic; the
 * weights' products in between make the caches as cold as they are otherwise. */

#include "bench.h"

#include "lychee-cache-private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AHEAD 24 /* rows that are prefetched, as many as are of use */

typedef guint64 Part __attribute__ ((vector_size (16), aligned (8)));

typedef struct {
  LycheeCache *cache;
  const LycheeAttentionOptions *options;
  LycheeSelection **selections; /* [n_kv_heads] */
  gint ns;                      /* atomic, of one token */
  gint sum;                     /* atomic, so that nobody finds the loads useless */
} Bound;

/* Differences of it are right, whatever it begins with. */
static guint
nanoseconds (void)
{
  struct timespec t;

  clock_gettime (CLOCK_MONOTONIC, &t);
  return (guint) ((guint64) t.tv_sec * 1000000000 + t.tv_nsec);
}

static const guint16 *
get_key (const LycheeRows *rows, guint head_dim, guint32 row)
{
  return rows->pages[row >> rows->page_shift] +
         (gsize) (row & ((1u << rows->page_shift) - 1)) * head_dim;
}

static inline void
load_row (const guint16 *row, gsize bytes, Part *sum)
{
  for (gsize b = 0; b < bytes; b += sizeof (Part))
    *sum ^= *(const Part *) ((const guint8 *) row + b);
}

static void
prefetch_row (const guint16 *row, gsize bytes)
{
  for (gsize b = 0; b < bytes; b += 64)
    __builtin_prefetch ((const guint8 *) row + b, 0, 2);
}

static void
load (guint layer, guint kv_head, const LycheeQueries *queries, const LycheeRows *rows,
    guint n_keys, float *output, gpointer user_data)
{
  Bound *bound = user_data;
  LycheeIndex *index = lychee_cache_get_index (bound->cache, layer, kv_head);
  guint sinks = lychee_cache_get_indexing (bound->cache)->sinks, n, begun;
  guint recent = MAX (lychee_index_get_end (index), sinks), certain = sinks + n_keys - recent;
  gsize offset = rows->value_offset, bytes = queries->head_dim * sizeof (guint16);
  LycheeSelection *selection = bound->selections[kv_head];
  LycheeIndexQuery query = {
    .n_queries = queries->n_queries,
    .q = queries->q,
    .budget = bound->options->budget > certain ? bound->options->budget - certain : 0,
    .rest = TRUE,
    .logits = TRUE,
  };
  g_autofree const guint16 **key = g_new (const guint16 *, query.budget + certain + 1);
  Part sum = { 0 };

  memset (output, 0, (gsize) queries->n_queries * queries->head_dim * sizeof *output);
  lychee_index_search (index, rows, &query, selection);
  begun = nanoseconds ();
  for (n = 0; n < sinks; n++)
    key[n] = get_key (rows, queries->head_dim, n);
  for (guint row = recent; row < n_keys; row++)
    key[n++] = get_key (rows, queries->head_dim, row);
  for (guint i = 0; i < selection->n_rows; i++)
    key[n++] = get_key (rows, queries->head_dim, selection->rows[i]);
  for (guint i = 0; i < n; i++) {
    if (i + AHEAD < n) {
      prefetch_row (key[i + AHEAD], bytes);
      prefetch_row (key[i + AHEAD] + offset, bytes);
    }
    load_row (key[i], bytes, &sum);
    load_row (key[i] + offset, bytes, &sum);
  }
  g_atomic_int_add (&bound->sum, (gint) (sum[0] ^ sum[1]));
  g_atomic_int_add (&bound->ns, (gint) (nanoseconds () - begun));
}

static int
compare_doubles (const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;

  return x < y ? -1 : x > y;
}

double
bench_bound (LycheeModel *model, LycheeForward *forward, LycheeCache *cache,
    const LycheeAttentionOptions *options, guint n_tokens)
{
  LycheeAttention *attention = lychee_forward_get_attention (forward);
  guint n_kv_heads = lychee_model_get_n_kv_heads (model);
  g_autofree LycheeSelection **selections = g_new (LycheeSelection *, n_kv_heads);
  g_autofree double *times = g_new (double, n_tokens);
  Bound bound = { .cache = cache, .options = options, .selections = selections };

  for (guint i = 0; i < n_kv_heads; i++)
    selections[i] = lychee_selection_new ();
  lychee_attention_set_func (attention, load, &bound);
  for (guint t = 0; t < n_tokens; t++) {
    gint32 id = t * 31 % lychee_model_get_n_vocab (model);
    g_autoptr (GError) error = NULL;

    bound.ns = 0;
    if (!lychee_forward_run (forward, cache, &id, 1, LYCHEE_OUTPUT_LAST, NULL, NULL, &error))
      bench_fail ("%s", error->message);
    times[t] = bound.ns / 1e6;
  }
  lychee_attention_set_func (attention, NULL, NULL);
  for (guint i = 0; i < n_kv_heads; i++)
    lychee_selection_free (selections[i]);
  qsort (times, n_tokens, sizeof *times, compare_doubles);
  return times[n_tokens / 2];
}
