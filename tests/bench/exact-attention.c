/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "exact-attention.h"

#include "lychee-index-private.h"

#include <math.h>

#define BLOCK_ROWS 256

float *
attention_logits (const LycheeQueries *queries, const LycheeRows *rows, guint n_keys)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  guint n = queries->n_queries;
  g_autofree float *dots = g_new (float, BLOCK_ROWS *n);
  float *logits = g_new (float, (gsize) n *n_keys);

  for (guint at = 0; at < n_keys; at += BLOCK_ROWS) {
    guint n_block = MIN (BLOCK_ROWS, n_keys - at);
    const guint16 *keys[BLOCK_ROWS];

    for (guint i = 0; i < n_block; i++)
      keys[i] = lychee_rows_key (rows, queries->head_dim, at + i);
    kernels->dot_rows (keys, n_block, queries->q, n, queries->head_dim, dots);
    for (guint i = 0; i < n_block; i++)
      for (guint h = 0; h < n; h++) {
        float logit = queries->scale * dots[i * n + h];

        logits[(gsize) h * n_keys + at + i] =
            queries->cap > 0 ? lychee_cap_logit (logit, queries->cap) : logit;
      }
  }
  return logits;
}

ExactAttention *
exact_attention_new (const LycheeQueries *queries, const LycheeRows *rows, guint n_keys)
{
  const LycheeCpuKernels *kernels = lychee_cpu_kernels_get ();
  ExactAttention *exact = g_new (ExactAttention, 1);
  guint n = queries->n_queries, d = queries->head_dim;

  *exact = (ExactAttention){ n, n_keys, d, attention_logits (queries, rows, n_keys),
    g_new (double, (gsize) n *n_keys), g_new0 (double, (gsize) n *d) };
  for (guint h = 0; h < n; h++) {
    const float *logits = exact->logits + (gsize) h * n_keys;
    double *weights = exact->weights + (gsize) h * n_keys;
    double max = -INFINITY, sum = 0;

    for (guint i = 0; i < n_keys; i++)
      max = MAX (max, logits[i]);
    for (guint i = 0; i < n_keys; i++)
      sum += weights[i] = exp (logits[i] - max);
    for (guint i = 0; i < n_keys; i++)
      weights[i] /= sum;
  }
  for (guint i = 0; i < n_keys; i++) {
    float value[256];

    kernels->f16_to_f32 (lychee_rows_key (rows, d, i) + rows->value_offset, value, d);
    for (guint h = 0; h < n; h++) {
      double weight = exact->weights[(gsize) h * n_keys + i];
      double *output = exact->output + (gsize) h * d;

      for (guint j = 0; j < d; j++)
        output[j] += weight * value[j];
    }
  }
  return exact;
}

void
exact_attention_free (ExactAttention *exact)
{
  g_free (exact->logits);
  g_free (exact->weights);
  g_free (exact->output);
  g_free (exact);
}

double
exact_attention_get_mass (const ExactAttention *exact, const guint32 *rows, guint n_rows)
{
  double mass = 0;

  for (guint h = 0; h < exact->n_queries; h++)
    for (guint i = 0; i < n_rows; i++)
      mass += exact->weights[(gsize) h * exact->n_keys + rows[i]];
  return mass / exact->n_queries;
}

double
exact_attention_get_error (const ExactAttention *exact, const float *output)
{
  const double *truth = exact->output;
  double error = 0;

  for (guint h = 0; h < exact->n_queries; h++) {
    double difference = 0, square = 0;

    for (guint j = 0; j < exact->head_dim; j++, truth++, output++) {
      difference += (*truth - *output) * (*truth - *output);
      square += *truth * *truth;
    }
    if (difference > 0)
      error += sqrt (difference / square);
  }
  return error / exact->n_queries;
}
