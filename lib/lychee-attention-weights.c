/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-attention.h"

#include <math.h>

/* Keys at a time. */
#define KEYS 16
/* What is so far below the largest logit has next to no weight. */
#define LEAST_LOGIT -12.0f

/* Keys of @n rows, and where they count. */
static void
weigh_keys (const LycheeAttentionWeights *w, const LycheeQueries *queries, guint group,
    const LycheeSoftmax *softmax, const guint16 *const *keys, const guint32 *bins, guint n,
    float *dots, float *sum)
{
  guint n_queries = queries->n_queries;

  lychee_cpu_kernels_get ()->dot_rows (keys, n, queries->q, n_queries, queries->head_dim, dots);
  for (guint i = 0; i < n; i++)
    for (guint j = 0; j < n_queries; j++) {
      float logit = queries->scale * dots[i * n_queries + j];
      float z = (queries->cap > 0 ? lychee_cap_logit (logit, queries->cap) : logit) - softmax->m[j];

      if (z > LEAST_LOGIT)
        sum[(gsize) (j % group) * w->n_bins + bins[i]] += expf (z) / softmax->l[j];
    }
}

void
lychee_attention_weigh (const LycheeAttentionWeights *w, const LycheeQueries *queries, guint group,
    const LycheeRows *rows, const LycheeSoftmax *softmax, guint begin, const guint32 *found,
    guint n_found, float *sum)
{
  g_autofree float *dots = g_new (float, (gsize) KEYS * queries->n_queries);
  guint end = w->first + w->n_rows, n_run, n = 0, mask = (1u << rows->page_shift) - 1;
  const guint16 *keys[KEYS];
  guint32 bins[KEYS];

  begin = CLAMP (begin, w->first, end);
  n_run = end - begin;
  for (guint i = 0; i < n_run + n_found; i++) {
    guint row = i < n_run ? begin + i : found[i - n_run];

    if (row < w->first || row >= end)
      continue;
    bins[n] = w->bins[row - w->first];
    keys[n] = rows->pages[row >> rows->page_shift] + (gsize) (row & mask) * queries->head_dim;
    if (++n < KEYS)
      continue;
    weigh_keys (w, queries, group, softmax, keys, bins, n, dots, sum);
    n = 0;
  }
  if (n > 0)
    weigh_keys (w, queries, group, softmax, keys, bins, n, dots, sum);
}
