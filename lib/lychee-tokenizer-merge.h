/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-tokenizer-vocab.h"

G_BEGIN_DECLS

/* Byte-pair encoding of one word: of all neighbours that may merge, those of the best rank do
 * first, the leftmost of equal ones (Sennrich et al., arXiv 1508.07909, section 3.2). Short words
 * by looking through them, long ones with a priority queue: O(n log n) in the worst case. */

/* A piece of the result; @piece may be LYCHEE_PIECE_NONE or one that is no token. */
typedef struct {
  guint32 piece;
  guint32 n_bytes;
} LycheeMerged;

/* Working memory, to be used again and again. */
typedef struct _LycheeMerger LycheeMerger;
LycheeMerger *lychee_merger_new (void);
void lychee_merger_free (LycheeMerger *merger);
/* @word: [n_bytes], for SentencePiece whole characters. Gives the pieces, owned by @merger until
 * the next call, and their number. */
const LycheeMerged *lychee_merger_run (LycheeMerger *merger, const LycheeVocab *vocab,
    const guint8 *word, guint32 n_bytes, guint32 *n_merged);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeMerger, lychee_merger_free)

G_END_DECLS
