/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What tests of backends share: a small model, and a worker of each kind over a cache of its own.
 */

#include "lychee-backend.h"
#include "lychee-cache-private.h"
#include "lychee-model-private.h"
#include "tiny-model.h"

#include <math.h>

static char *dir; /* of the test's models */

static inline LycheeModel *
load (const LycheeTinyModel *tiny, const char *name)
{
  g_autofree char *path = lychee_tiny_model_write (tiny, dir, name);
  g_autoptr (GError) error = NULL;
  LycheeModel *model = lychee_model_new_from_file (path, &error);

  g_assert_no_error (error);
  return model;
}

static inline LycheeTinyModel
plain_model (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;

  tiny.head_dim = 64;
  tiny.n_heads = 3;
  tiny.n_kv_heads = 1;
  tiny.type = GGML_TYPE_F16; /* as exact on the device as on the processor */
  return tiny;
}

static inline LycheeWorker *
new_worker (LycheeBackendType type, LycheeModel *model)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeBackend) backend = lychee_backend_new (type, model, 1, 0, &error);
  LycheeWorker *worker;

  g_assert_no_error (error);
  g_assert_cmpint (lychee_backend_get_kind (backend), ==, type);
  worker = lychee_worker_new (backend, &error);
  g_assert_no_error (error);
  return worker;
}

static inline LycheeCache *
new_cache_with (LycheeModel *model, LycheeGranularity granularity, LycheeRowForm form)
{
  LycheeCacheIndexing indexing = { granularity, 16, 64 };
  LycheeCache *cache = lychee_cache_new (lychee_model_get_n_layers (model),
      lychee_model_get_n_kv_heads (model), lychee_model_get_head_dim (model), 2048, 0);

  lychee_cache_set_form (cache, form);
  lychee_model_describe_indexing (model, &indexing);
  lychee_cache_enable_index (cache, &indexing);
  return cache;
}

static inline LycheeCache *
new_cache (LycheeModel *model)
{
  return new_cache_with (model, LYCHEE_GRANULARITY_TOKEN, LYCHEE_ROW_F16);
}

static inline void
make_ids (gint32 *ids, guint n, guint seed)
{
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);

  for (guint i = 0; i < n; i++)
    ids[i] = g_rand_int_range (rand, 3, 250);
}

/* |a - b| / |b| */
static inline double
distance (const float *a, const float *b, gsize n)
{
  double away = 0, length = 0;

  for (gsize i = 0; i < n; i++) {
    away += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  g_assert_true (isfinite (away));
  return sqrt (away / length);
}

typedef struct {
  LycheeWorker *worker;
  LycheeCache *cache;
  const float *logits;
} Side;

static inline void
run (Side *side, const gint32 *ids, guint n, LycheeOutput output)
{
  g_autoptr (GError) error = NULL;

  lychee_worker_run (side->worker, side->cache, ids, n, output, &side->logits, NULL, &error);
  g_assert_no_error (error);
}

static inline guint
find_largest (const float *x, guint n, float *gap)
{
  guint best = 0;

  for (guint i = 1; i < n; i++)
    if (x[i] > x[best])
      best = i;
  *gap = G_MAXFLOAT;
  for (guint i = 0; i < n; i++)
    if (i != best)
      *gap = MIN (*gap, x[best] - x[i]);
  return best;
}

#define N_TOGETHER 3
#define MAX_STEPS 14

/* One of several sequences that are decoded at the same time. */
typedef struct {
  LycheeModel *model;
  LycheeBackend *backend; /* that they share */
  LycheeCache *cache;
  const LycheeAttentionOptions *options;
  const gint32 *ids; /* [n_steps] */
  guint n_steps;
  gint32 chosen[MAX_STEPS], wanted[MAX_STEPS];
  float gap[MAX_STEPS]; /* to the next best */
} Decoding;

/* Decodes in a thread of its own: after two tokens, of which the first may have brought an index up
 * to date on its own, not before the others are there, who then wait for this one. */
static inline gpointer
decode (gpointer data)
{
  Decoding *d = data;
  g_autoptr (LycheeSampler) sampler =
      g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", 0.0, "repetition-penalty", 1.0, NULL);
  LycheeWorker *worker = new_worker (LYCHEE_BACKEND_CUDA, d->model);

  lychee_worker_set_options (worker, d->options);
  for (guint i = 0; i < d->n_steps; i++) {
    g_autoptr (GError) error = NULL;

    lychee_worker_run_choosing (
        worker, d->cache, d->ids + i, 1, sampler, &d->chosen[i], NULL, &error);
    g_assert_no_error (error);
    for (guint n = 0; i == 1 && n < N_TOGETHER; g_usleep (100)) {
      guint64 n_shared;

      lychee_backend_get_sharing (d->backend, &n, &n_shared);
    }
  }
  lychee_worker_free (worker);
  return NULL;
}

/* Decodes them all. Returns of how many tokens each is the one that is wanted: of those of which no
 * other is as good, but for @close. */
static inline guint
decode_together (Decoding *all, double close)
{
  GThread *threads[N_TOGETHER];
  guint n_compared = 0;

  for (guint i = 0; i < N_TOGETHER; i++)
    threads[i] = g_thread_new ("decoding", decode, &all[i]);
  for (guint i = 0; i < N_TOGETHER; i++) {
    g_thread_join (threads[i]);
    for (guint step = 0; step < all[i].n_steps; step++)
      if (all[i].gap[step] > close) { /* else two are as good as equal */
        g_assert_cmpint (all[i].chosen[step], ==, all[i].wanted[step]);
        n_compared++;
      }
  }
  return n_compared;
}
