/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-chunk-private.h"

#include <math.h>
#include <string.h>

/* Chunks as they are made. */
typedef struct {
  LycheeChunk chunk;
  guint n_parts;
  const LycheeChunkPart *parts;
} Chunk;

G_DEFINE_ENUM_TYPE (LycheeBoundary, lychee_boundary,
    { LYCHEE_BOUNDARY_NONE, "In a word: the chunk was full", "none" },
    { LYCHEE_BOUNDARY_WORD, "Between words", "word" },
    { LYCHEE_BOUNDARY_CLAUSE, "After a clause mark", "clause" },
    { LYCHEE_BOUNDARY_SENTENCE, "After a sentence", "sentence" },
    { LYCHEE_BOUNDARY_SPEAKER, "Where the speaker changes", "speaker" },
    { LYCHEE_BOUNDARY_PARAGRAPH, "After a paragraph", "paragraph" },
    { LYCHEE_BOUNDARY_DRIFT, "Where the subject changes", "drift" },
    { LYCHEE_BOUNDARY_END, "Where the stream ended, paused or was flushed", "end" })

G_DEFINE_BOXED_TYPE (LycheeChunk, lychee_chunk, lychee_chunk_ref, lychee_chunk_unref)

/**
 * lychee_boundary_to_string:
 * @boundary: a boundary
 *
 * What to call @boundary in a message or a file.
 *
 * Returns: (nullable): the nick of @boundary ("sentence"), a static string; %NULL where @boundary
 * is none of the enumeration
 */
const char *
lychee_boundary_to_string (LycheeBoundary boundary)
{
  GEnumClass *enum_class = g_type_class_ref (LYCHEE_TYPE_BOUNDARY);
  GEnumValue *value = g_enum_get_value (enum_class, boundary);
  const char *nick = value != NULL ? value->value_nick : NULL;

  /* A static type's class stays, and with it the nick. */
  g_type_class_unref (enum_class);
  return nick;
}

/**
 * lychee_chunk_new:
 * @ids: (array length=n_ids) (nullable): token ids, copied
 * @n_ids: how many
 * @text: (nullable): the text of the chunk, valid UTF-8, copied; %NULL is the empty string
 * @speaker: (nullable): who speaks, copied
 * @pts: in nanoseconds, or %LYCHEE_TIME_NONE
 * @duration: in nanoseconds, or %LYCHEE_TIME_NONE
 * @boundary: what marks the end
 * @drift: semantic drift at the end, or NaN
 * @number: counts chunks from 0
 *
 * Makes a chunk of copies of what is given.
 *
 * Returns: (transfer full): a chunk with one reference
 */
LycheeChunk *
lychee_chunk_new (const gint32 *ids, guint n_ids, const char *text, const char *speaker,
    guint64 pts, guint64 duration, LycheeBoundary boundary, float drift, guint64 number)
{
  return lychee_chunk_new_in_parts (
      ids, n_ids, text, speaker, pts, duration, boundary, drift, number, NULL, 0);
}

LycheeChunk *
lychee_chunk_new_in_parts (const gint32 *ids, guint n_ids, const char *text, const char *speaker,
    guint64 pts, guint64 duration, LycheeBoundary boundary, float drift, guint64 number,
    const LycheeChunkPart *parts, guint n_parts)
{
  LycheeChunk *chunk;
  gsize ids_bytes, text_bytes, speaker_bytes, parts_bytes = n_parts * sizeof *parts;
  Chunk *whole;
  char *at;

  g_return_val_if_fail (ids != NULL || n_ids == 0, NULL);
  g_return_val_if_fail (text == NULL || g_utf8_validate (text, -1, NULL), NULL);

  if (text == NULL)
    text = "";
  ids_bytes = n_ids * sizeof (gint32);
  text_bytes = strlen (text) + 1;
  speaker_bytes = speaker != NULL ? strlen (speaker) + 1 : 0;

  /* One block: chunks are many, small, and live as long as their cache. */
  whole =
      g_atomic_rc_box_alloc (sizeof *whole + parts_bytes + ids_bytes + text_bytes + speaker_bytes);
  chunk = &whole->chunk;
  at = (char *) (whole + 1);
  whole->n_parts = n_parts;
  whole->parts = n_parts > 0 ? memcpy (at, parts, parts_bytes) : NULL;
  at += parts_bytes;
  if (ids_bytes > 0)
    memcpy (at, ids, ids_bytes);
  chunk->ids = (const gint32 *) (gpointer) at;
  at += ids_bytes;
  chunk->text = memcpy (at, text, text_bytes);
  at += text_bytes;
  chunk->speaker = speaker != NULL ? memcpy (at, speaker, speaker_bytes) : NULL;
  chunk->n_ids = n_ids;
  chunk->pts = pts;
  chunk->duration = duration;
  chunk->boundary = boundary;
  chunk->drift = drift;
  chunk->number = number;
  return chunk;
}

const LycheeChunkPart *
lychee_chunk_get_parts (LycheeChunk *chunk, guint *n_parts)
{
  const Chunk *whole = (const Chunk *) chunk;

  *n_parts = whole->n_parts;
  return whole->parts;
}

LycheeChunk *
lychee_chunk_new_beginning (LycheeChunk *chunk, guint64 time)
{
  const Chunk *whole = (const Chunk *) chunk;
  guint n = 0;
  g_autofree char *text = NULL;

  if (chunk->pts == LYCHEE_TIME_NONE || chunk->pts >= time)
    return NULL;
  while (n < whole->n_parts && whole->parts[n].pts < time)
    n++;
  if (n == whole->n_parts)
    return NULL;
  text = g_strndup (chunk->text, whole->parts[n].byte);
  return lychee_chunk_new_in_parts (chunk->ids, whole->parts[n].token, text, chunk->speaker,
      chunk->pts, whole->parts[n].pts - chunk->pts, LYCHEE_BOUNDARY_WORD, NAN, chunk->number,
      whole->parts, n);
}

/**
 * lychee_chunk_ref:
 * @chunk: a chunk
 *
 * Adds a reference; from any thread.
 *
 * Returns: (transfer full): @chunk
 */
LycheeChunk *
lychee_chunk_ref (LycheeChunk *chunk)
{
  g_return_val_if_fail (chunk != NULL, NULL);
  return g_atomic_rc_box_acquire (chunk);
}

/**
 * lychee_chunk_unref:
 * @chunk: (transfer full): a chunk
 *
 * Drops a reference; from any thread.
 */
void
lychee_chunk_unref (LycheeChunk *chunk)
{
  g_return_if_fail (chunk != NULL);
  g_atomic_rc_box_release (chunk);
}

/**
 * lychee_chunk_get_end:
 * @chunk: a chunk
 *
 * Gets when the last word ends; without a duration, when the first one begins.
 *
 * Returns: nanoseconds of stream time, or %LYCHEE_TIME_NONE where the chunk has no time
 */
guint64
lychee_chunk_get_end (const LycheeChunk *chunk)
{
  g_return_val_if_fail (chunk != NULL, LYCHEE_TIME_NONE);
  if (chunk->pts == LYCHEE_TIME_NONE || chunk->duration == LYCHEE_TIME_NONE)
    return chunk->pts;
  return chunk->pts + chunk->duration;
}
