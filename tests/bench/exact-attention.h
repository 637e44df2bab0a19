/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-index.h"

G_BEGIN_DECLS

/* Attention to all keys, in float64 from logits in float32: what an answer is measured against. */
typedef struct {
  guint n_queries, n_keys, head_dim;
  float *logits;   /* [n_queries][n_keys] scale q.k */
  double *weights; /* [n_queries][n_keys] their softmax */
  double *output;  /* [n_queries][head_dim] */
} ExactAttention;

ExactAttention *exact_attention_new (
    const LycheeQueries *queries, const LycheeRows *rows, guint n_keys);
void exact_attention_free (ExactAttention *exact);

/* The weight of @rows together, mean over the queries. */
double exact_attention_get_mass (const ExactAttention *exact, const guint32 *rows, guint n_rows);
/* |o - o'| / |o|, mean over the queries; 0 where both are zero. @output: [n_queries][head_dim]. */
double exact_attention_get_error (const ExactAttention *exact, const float *output);

/* The logits alone (transfer full). */
float *attention_logits (const LycheeQueries *queries, const LycheeRows *rows, guint n_keys);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExactAttention, exact_attention_free)

G_END_DECLS
