/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-sampler.h"

G_BEGIN_DECLS

/* What the next token is chosen by, for a device that chooses the same one. */
typedef struct {
  gboolean greedy;
  float scale;   /* units of distance in a logit, see kernels/lychee-sampling.h */
  float penalty; /* 1: none */
  guint top_k;   /* 0: all */
  double top_p;  /* 1: all */
  guint64 min_weight;
  guint64 random;        /* that one of the sum of weights is drawn with */
  const gint32 *history; /* [n_history] tokens that are penalised, in any order */
  guint n_history;
} LycheeSampling;

/* Takes the random number that the token will have been drawn with: it has to be drawn, and noted
 * with lychee_sampler_accept (). */
void lychee_sampler_describe (LycheeSampler *sampler, LycheeSampling *sampling);
/* [LYCHEE_TABLE_SIZE] 2^-x for x from 0 to 1 */
const guint64 *lychee_sampler_get_weights (void);

G_END_DECLS
