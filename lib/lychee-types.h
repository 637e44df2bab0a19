/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib-object.h>

G_BEGIN_DECLS

/* Marks what the shared library exports; everything else is hidden. */
#ifndef LYCHEE_API
#define LYCHEE_API __attribute__ ((visibility ("default"))) extern
#endif

/**
 * LYCHEE_TIME_NONE:
 *
 * No time is known. The same value as GST_CLOCK_TIME_NONE; times are in nanoseconds.
 */
#define LYCHEE_TIME_NONE ((guint64) -1)

/**
 * LycheeBoundary:
 * @LYCHEE_BOUNDARY_NONE: nothing marks the place: the chunk was full in the middle of a word
 * @LYCHEE_BOUNDARY_WORD: between two words
 * @LYCHEE_BOUNDARY_CLAUSE: after a clause mark (comma, colon, dash)
 * @LYCHEE_BOUNDARY_SENTENCE: after a sentence terminal, in any script
 * @LYCHEE_BOUNDARY_SPEAKER: the speaker changes
 * @LYCHEE_BOUNDARY_PARAGRAPH: an empty line, or the source said so
 * @LYCHEE_BOUNDARY_DRIFT: the subject changes (semantic drift), with or without punctuation
 * @LYCHEE_BOUNDARY_END: the stream ended, was silent, or was flushed out
 *
 * What marks the end of a chunk, weakest first.
 */
typedef enum {
  LYCHEE_BOUNDARY_NONE,
  LYCHEE_BOUNDARY_WORD,
  LYCHEE_BOUNDARY_CLAUSE,
  LYCHEE_BOUNDARY_SENTENCE,
  LYCHEE_BOUNDARY_SPEAKER,
  LYCHEE_BOUNDARY_PARAGRAPH,
  LYCHEE_BOUNDARY_DRIFT,
  LYCHEE_BOUNDARY_END,
} LycheeBoundary;

#define LYCHEE_TYPE_BOUNDARY (lychee_boundary_get_type ())
LYCHEE_API GType lychee_boundary_get_type (void);
/* The nick: "sentence"; a static string, NULL where @boundary is none of these. */
LYCHEE_API const char *lychee_boundary_to_string (LycheeBoundary boundary);

/**
 * LycheeToken:
 * @id: token id in the model's vocabulary
 * @length: bytes of source text that it stands for (0 for the later parts of a character that was
 *   split over several tokens: the first part carries the whole character's bytes)
 * @offset: byte offset of that text; what it counts from is said where a token is handed out
 *
 * A token, and the text that it stands for.
 */
typedef struct {
  gint32 id;
  guint32 length;
  guint64 offset;
} LycheeToken;

#define LYCHEE_TYPE_CHUNK (lychee_chunk_get_type ())

/**
 * LycheeChunk:
 * @ids: (array length=n_ids): the token ids
 * @n_ids: how many
 * @text: the source text of the chunk, valid UTF-8
 * @speaker: (nullable): who speaks
 * @pts: time of the first word in nanoseconds, or %LYCHEE_TIME_NONE
 * @duration: to the end of the last word, or %LYCHEE_TIME_NONE
 * @boundary: what marks its end
 * @drift: semantic drift at its end (1 - cos), or NaN where none was computed
 * @number: counts chunks from 0
 *
 * A run of tokens cut at a natural place: the unit of prefill, index update and citation.
 * Immutable once made, reference counted (atomically).
 */
typedef struct {
  const gint32 *ids;
  guint n_ids;
  const char *text;
  const char *speaker;
  guint64 pts;
  guint64 duration;
  LycheeBoundary boundary;
  float drift;
  guint64 number;
} LycheeChunk;

LYCHEE_API GType lychee_chunk_get_type (void);
LYCHEE_API LycheeChunk *lychee_chunk_new (const gint32 *ids, guint n_ids, const char *text,
    const char *speaker, guint64 pts, guint64 duration, LycheeBoundary boundary, float drift,
    guint64 number);
LYCHEE_API LycheeChunk *lychee_chunk_ref (LycheeChunk *chunk);
LYCHEE_API void lychee_chunk_unref (LycheeChunk *chunk);
LYCHEE_API guint64 lychee_chunk_get_end (const LycheeChunk *chunk);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeChunk, lychee_chunk_unref)

G_END_DECLS
