/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-answer.h"
#include "lychee-chunker.h"

G_BEGIN_DECLS

/* A chunk that may be quoted from. */
typedef struct {
  LycheeChunk *chunk; /* not owned */
  guint64 position;   /* the first of its tokens, as in LycheeEvidence */
  double weight;      /* its share of the attention */
} LycheeQuotable;

/* Appends to @quotes, of LycheeEvidence, those @n sentences of the chunks that have most of the
 * attention, or fewer, in the order in which they were said. A sentence ends where Unicode's rules
 * end it (UAX 29), at a paragraph, and where another speaker begins; one that is very long, as in
 * speech without punctuation, also where chunks do. It has of its chunks' weights what it has of
 * their texts. What is too short to say much ("Lovely.") is quoted where there is nothing else.
 * @cut_begin, @cut_end: whether there is more of the first, the last sentence than is in the
 * chunks: if so, it is taken only for want of others. */
void lychee_quotes_choose (const LycheeQuotable *chunks, guint n_chunks, gboolean cut_begin,
    gboolean cut_end, guint n, GPtrArray *quotes);

/* "00:12:31" of nanoseconds. (transfer full) */
char *lychee_time_format (guint64 time);
/* "[00:12:31] Ann: We take the train.\n", without what is not known. (transfer full) */
char *lychee_quote_to_line (const LycheeEvidence *quote);

G_END_DECLS
