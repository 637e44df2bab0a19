/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-backend.h"
#include "lychee-cache.h"

G_BEGIN_DECLS

/* Finds the chunks that an answer rests on, from the attention of its tokens and the question's.
 *
 * Attention by itself says little: most of it goes to the same places whatever is asked. So each
 * head's attention, as a distribution over the transcript's chunks, is held against that of a
 * question about nothing in particular: a chunk's score is what it adds to the divergence of the
 * two (Kullback and Leibler 1951), summed up over the heads of the layers in the middle, with that
 * of the answer at a tenth. How often the right turn is found is in docs/benchmarks.md, what else
 * was tried in docs/experiments.md. */
typedef struct _LycheeEvidenceFinder LycheeEvidenceFinder;

/* Whose attention adds up. */
typedef enum {
  LYCHEE_EVIDENCE_NOTHING, /* a question about nothing in particular */
  LYCHEE_EVIDENCE_QUESTION,
  LYCHEE_EVIDENCE_ANSWER,
  LYCHEE_EVIDENCE_N_SOURCES,
} LycheeEvidenceSource;

/* One answer token in so many is looked at. */
#define LYCHEE_EVIDENCE_STEP 4
#define LYCHEE_EVIDENCE_NOTHING_PROMPT "What is said here, by whom, and when?"

/* Over the chunks that @cache has now. */
LycheeEvidenceFinder *lychee_evidence_finder_new (LycheeCache *cache, guint n_heads);
void lychee_evidence_finder_free (LycheeEvidenceFinder *finder);

/* For the passes of @worker that follow. */
void lychee_evidence_finder_watch (
    LycheeEvidenceFinder *finder, LycheeWorker *worker, LycheeEvidenceSource source);

/* After lychee_worker_collect_weights (): the share of each chunk, 0 of those that the question
 * turns to less than any does. (transfer full) */
double *lychee_evidence_finder_get_weights (LycheeEvidenceFinder *finder);
/* Likewise: appends to @evidence, of LycheeEvidence, the @n best
 * chunks, or fewer. */
void lychee_evidence_finder_get (LycheeEvidenceFinder *finder, guint n, GPtrArray *evidence);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeEvidenceFinder, lychee_evidence_finder_free)

G_END_DECLS
