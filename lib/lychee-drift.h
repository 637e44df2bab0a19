/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-model.h"

G_BEGIN_DECLS

/* Semantic drift of a stream of tokens: how far what is said after a place is from what is said
 * before it. Private to the library; not thread safe. */
typedef struct _LycheeDrift LycheeDrift;

/* Tokens before a place that count, and how many must be known behind it before its drift is
 * compared with others'. */
#define LYCHEE_DRIFT_BEFORE 96
#define LYCHEE_DRIFT_MIN_AFTER 8
/* Tokens that layers run over at a time. */
#define LYCHEE_DRIFT_BATCH 16

/* Up to @after tokens behind a place count. With @n_layers 0 a token's vector is from the table of
 * @model, else what its first @n_layers layers make of it. */
LycheeDrift *lychee_drift_new (LycheeModel *model, guint after, guint n_layers);
void lychee_drift_free (LycheeDrift *drift);
/* Forgets all tokens. */
void lychee_drift_reset (LycheeDrift *drift);

/* Adds a token at the end. An id that the model does not know means nothing. */
void lychee_drift_push (LycheeDrift *drift, gint32 id);
/* Layers run over some tokens at a time: how many at the end have no vector yet, and do not count;
 * and gives them theirs. */
guint lychee_drift_get_n_waiting (LycheeDrift *drift);
void lychee_drift_settle (LycheeDrift *drift);

/* 1 - cos of the mean vectors before and behind the place that has @n_after tokens behind it: 0
 * (the same) to 2 (the opposite); NaN where one of the sides has fewer than
 * LYCHEE_DRIFT_MIN_AFTER tokens, or says nothing. The place may be LYCHEE_DRIFT_BATCH tokens
 * further back than the @after of new, which counts. */
float lychee_drift_measure (LycheeDrift *drift, guint n_after);

/* By how many standard deviations @value is above what was usual up to now, itself included. Each
 * value is to be given once. NaN for NaN. */
float lychee_drift_rate (LycheeDrift *drift, float value);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeDrift, lychee_drift_free)

G_END_DECLS
