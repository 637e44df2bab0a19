/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-session-private.h"

G_BEGIN_DECLS

/* The same question put to the model without the transcript, beside an answer that is being
 * generated: what the model would have said anyway counts against it. Context-aware decoding (Shi
 * et al. 2023, arXiv 2305.14739), over the candidates of contrastive decoding (Li et al. 2022,
 * arXiv 2210.15097). Not thread safe. */
typedef struct _LycheeContrast LycheeContrast;

/* Reads the beginning that @tail has and the question's @ids, for an answer of at most @n_more
 * tokens. @worker: (transfer none): for this alone, as long as the contrast is there. @strength:
 * above 0. NULL with the errors of lychee_session_prefill (). */
LycheeContrast *lychee_contrast_new (LycheeSession *session, LycheeWorker *worker,
    LycheeCache *tail, const gint32 *ids, guint n, guint n_more, double strength,
    GCancellable *cancellable, GError **error);
void lychee_contrast_free (LycheeContrast *contrast);

/* Follows the answer by a token. FALSE with the errors of lychee_worker_run (). */
gboolean lychee_contrast_follow (
    LycheeContrast *contrast, gint32 id, GCancellable *cancellable, GError **error);
/* What to choose from instead of @logits, which are with the transcript: [n_vocab], until the next
 * call. (transfer none) */
const float *lychee_contrast_apply (LycheeContrast *contrast, const float *logits);

/* The formula alone. With p and q the softmax of @with and @without, [n] each, over those i whose
 * p_i is at least a twentieth of the largest
 *
 *     mixed_i = with_i + strength (ln p_i - ln q_i)
 *
 * and -infinity for the others: what is improbable does not become likely for being news. */
void lychee_contrast_mix (
    const float *with, const float *without, guint n, double strength, float *mixed);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeContrast, lychee_contrast_free)

G_END_DECLS
