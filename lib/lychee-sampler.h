/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

#define LYCHEE_TYPE_SAMPLER (lychee_sampler_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeSampler, lychee_sampler, LYCHEE, SAMPLER, GObject)

/* Properties: "temperature" (double, 0 = greedy), "top-k" (guint, 0 = off), "top-p" (double, 1 =
 * off), "min-p" (double, 0 = off), "repetition-penalty" (double, 1 = off), "repetition-window"
 * (guint, tokens), "seed" (guint64). Default: greedy with a repetition penalty that keeps small
 * models from looping. Same settings, seed, history and logits: same token, on every machine. */
LYCHEE_API LycheeSampler *lychee_sampler_new (void);
/* A copy with the same settings and a fresh state. */
LYCHEE_API LycheeSampler *lychee_sampler_copy (LycheeSampler *sampler);
/* Chooses a token from @logits (read only, @n_vocab of them), notes it, returns it. Logits that
 * are NaN are never chosen; -1 if none is finite. */
LYCHEE_API gint32 lychee_sampler_sample (
    LycheeSampler *sampler, const float *logits, guint n_vocab);
/* Notes a token that the repetition penalty is to know of without choosing it. */
LYCHEE_API void lychee_sampler_accept (LycheeSampler *sampler, gint32 id);
LYCHEE_API void lychee_sampler_reset (LycheeSampler *sampler);

G_END_DECLS
