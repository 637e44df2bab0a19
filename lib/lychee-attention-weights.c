/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-attention-private.h"

#include <math.h>

/* Keys at a time. */
#define KEYS 16
/* What is so far below the largest logit has next to no weight. */
#define LEAST_LOGIT -12.0f

/* Rows that are weighed together. */
typedef struct {
  guint n;
  guint32 ids[KEYS], places[KEYS], bins[KEYS];
  const guint16 *keys[KEYS];
  float *dots; /* [KEYS][queries] */
} Batch;

static void
weigh_batch (LycheeAttention *a, const LycheeWeighing *w, const LycheeSoftmax *softmax,
    Batch *batch, float *sum)
{
  const LycheeQueries *queries = &w->queries;
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_for (a->kernels, w->rows->form);
  guint n_queries = queries->n_queries;
  const LycheeLoadedRows *loaded = NULL;

  if (loads_rows (a, w->layer)) {
    loaded = lychee_attention_load (
        a, w->layer, w->rows, batch->ids, batch->places, batch->n, w->thread);
    kernels = a->kernels;
  }
  for (guint i = 0; i < batch->n; i++)
    batch->keys[i] = loaded ? loaded->k + (gsize) i * queries->head_dim
                            : lychee_rows_key (w->rows, queries->head_dim, batch->ids[i]);
  kernels->dot_rows (batch->keys, batch->n, queries->q, n_queries, queries->head_dim, batch->dots);
  for (guint i = 0; i < batch->n; i++)
    for (guint j = 0; j < n_queries; j++) {
      float logit = queries->scale * batch->dots[i * n_queries + j];
      float z = (queries->cap > 0 ? lychee_cap_logit (logit, queries->cap) : logit) - softmax->m[j];

      if (z > LEAST_LOGIT)
        sum[(gsize) (j % a->group) * w->weights->n_bins + batch->bins[i]] +=
            expf (z) / softmax->l[j];
    }
  batch->n = 0;
}

void
lychee_attention_weigh (LycheeAttention *a, const LycheeWeighing *w, const LycheeSoftmax *softmax,
    guint begin, const guint32 *found, const guint32 *distances, guint n_found, float *sum)
{
  const LycheeAttentionWeights *weights = w->weights;
  g_autofree float *dots = g_new (float, (gsize) KEYS * w->queries.n_queries);
  guint end = weights->first + weights->n_rows, n_run;
  Batch batch = { .dots = dots };

  begin = CLAMP (begin, weights->first, end);
  n_run = end - begin;
  for (guint i = 0; i < n_run + n_found; i++) {
    guint row = i < n_run ? begin + i : found[i - n_run];
    guint place = row < a->head ? row : row - a->skip;

    if (row < weights->first || row >= end)
      continue;
    if (a->packed)
      place =
          i < n_run ? MIN (w->origin - place, lychee_attention_get_most (a)) : distances[i - n_run];
    batch.ids[batch.n] = row;
    batch.places[batch.n] = place;
    batch.bins[batch.n] = weights->bins[row - weights->first];
    if (++batch.n == KEYS)
      weigh_batch (a, w, softmax, &batch, sum);
  }
  if (batch.n > 0)
    weigh_batch (a, w, softmax, &batch, sum);
}
