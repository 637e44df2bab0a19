/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-enums.h"
#include "lychee-model.h"
#include "lychee-types.h"

G_BEGIN_DECLS

#define LYCHEE_TYPE_CHUNKER (lychee_chunker_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeChunker, lychee_chunker, LYCHEE, CHUNKER, GObject)

/* Properties: "min-tokens" (guint, 8), "max-tokens" (guint, 16), "threshold" (double, 1.75), and of
 * construction only "model" (LycheeModel; without it, structure alone counts), "detector"
 * (LycheeDetector, both), "embedding" (LycheeEmbedding, table), "lookahead" (guint, 32). */
LYCHEE_API LycheeChunker *lychee_chunker_new (guint min_tokens, guint max_tokens);

/**
 * LycheeChunkerToken:
 * @id: token id
 * @text: the bytes that it stands for (may be part of a character, may be empty); @text_length long
 * @speaker: (nullable): who speaks
 * @pts: when its text is said, or %LYCHEE_TIME_NONE
 * @duration: how long, or %LYCHEE_TIME_NONE
 * @paragraph: the source starts a paragraph (a new topic, a long silence) with this token
 */
typedef struct {
  gint32 id;
  const char *text;
  gsize text_length;
  const char *speaker;
  guint64 pts;
  guint64 duration;
  gboolean paragraph;
} LycheeChunkerToken;

/* Gives a token to the chunker; appends to @chunks (GPtrArray of LycheeChunk, transfer full) every
 * chunk that is now settled. No chunk is longer than max-tokens; none is shorter than min-tokens
 * except at a paragraph, a speaker change or the end. */
LYCHEE_API void lychee_chunker_push (
    LycheeChunker *chunker, const LycheeChunkerToken *token, GPtrArray *chunks);
/* Closes the open tokens into chunks with boundary END. */
LYCHEE_API void lychee_chunker_drain (LycheeChunker *chunker, GPtrArray *chunks);
/* Closes chunks until the first @n_tokens open tokens are in one, at the best places there are. */
LYCHEE_API void lychee_chunker_hasten (LycheeChunker *chunker, guint n_tokens, GPtrArray *chunks);
/* Forgets the open tokens; chunk numbers start at 0 again. */
LYCHEE_API void lychee_chunker_reset (LycheeChunker *chunker);
LYCHEE_API guint lychee_chunker_get_n_open (LycheeChunker *chunker);

G_END_DECLS
