/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-contrast.h"

#include <math.h>

/* ln of the share of the largest probability that a candidate has at least. */
#define LEAST_SHARE (-2.9957323f) /* ln 0.05 */

struct _LycheeContrast {
  LycheeWorker *worker;
  LycheeCache *cache;
  const float *without; /* the worker's */
  guint n_vocab;
  double strength;
  float *mixed;
};

/* ln of the sum of exp (x_i), and the largest x. What is not a number is left out. */
static double
log_sum_exp (const float *x, guint n, float *max)
{
  double sum = 0;

  *max = -INFINITY;
  for (guint i = 0; i < n; i++)
    *max = x[i] > *max ? x[i] : *max;
  for (guint i = 0; i < n; i++)
    sum += isnan (x[i]) ? 0 : expf (x[i] - *max);
  return *max + log (sum);
}

void
lychee_contrast_mix (
    const float *with, const float *without, guint n, double strength, float *mixed)
{
  float max, ignored;
  double sum = log_sum_exp (with, n, &max), other_sum = log_sum_exp (without, n, &ignored);

  for (guint i = 0; i < n; i++) {
    double difference = (with[i] - sum) - (without[i] - other_sum);

    mixed[i] = with[i] >= max + LEAST_SHARE ? with[i] + strength * difference : -INFINITY;
  }
}

LycheeContrast *
lychee_contrast_new (LycheeSession *session, LycheeWorker *worker, LycheeCache *tail,
    const gint32 *ids, guint n, guint n_more, double strength, GCancellable *cancellable,
    GError **error)
{
  guint n_start;
  const gint32 *start = lychee_cache_get_start (tail, &n_start);
  LycheeAttentionOptions options = lychee_session_get_options (session, FALSE);
  LycheeContrast *contrast = g_new0 (LycheeContrast, 1);

  contrast->worker = worker;
  contrast->strength = strength;
  contrast->n_vocab = lychee_model_get_n_vocab (session->model);
  contrast->mixed = g_new (float, contrast->n_vocab);
  contrast->cache = lychee_cache_new_beside (tail, n_start + n + n_more);
  lychee_worker_set_options (worker, &options);
  if ((n_start > 0 && !lychee_session_prefill (session, worker, contrast->cache, start, n_start,
                          LYCHEE_OUTPUT_NONE, NULL, cancellable, error)) ||
      !lychee_session_prefill (session, worker, contrast->cache, ids, n, LYCHEE_OUTPUT_LAST,
          &contrast->without, cancellable, error))
    g_clear_pointer (&contrast, lychee_contrast_free);
  return contrast;
}

void
lychee_contrast_free (LycheeContrast *contrast)
{
  g_object_unref (contrast->cache);
  g_free (contrast->mixed);
  g_free (contrast);
}

gboolean
lychee_contrast_follow (
    LycheeContrast *contrast, gint32 id, GCancellable *cancellable, GError **error)
{
  return lychee_worker_run (contrast->worker, contrast->cache, &id, 1, LYCHEE_OUTPUT_LAST,
      &contrast->without, cancellable, error);
}

const float *
lychee_contrast_apply (LycheeContrast *contrast, const float *logits)
{
  lychee_contrast_mix (
      logits, contrast->without, contrast->n_vocab, contrast->strength, contrast->mixed);
  return contrast->mixed;
}
