/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

/* Where in a chunk another cue begins: what was said from @pts on is its tokens from @token on, and
 * its text from @byte on. Saved sessions have them as they are here. */
typedef struct {
  guint64 pts;
  guint token;
  guint byte;
} LycheeChunkPart;

/* lychee_chunk_new() with @n_parts of these, ascending by place. (transfer full) */
LycheeChunk *lychee_chunk_new_in_parts (const gint32 *ids, guint n_ids, const char *text,
    const char *speaker, guint64 pts, guint64 duration, LycheeBoundary boundary, float drift,
    guint64 number, const LycheeChunkPart *parts, guint n_parts);
/* (transfer none) (nullable): the chunk's own */
const LycheeChunkPart *lychee_chunk_get_parts (LycheeChunk *chunk, guint *n_parts);
/* The beginning of @chunk, up to where something begins that was said at @time or later; NULL where
 * that is all of it, or none. (transfer full) */
LycheeChunk *lychee_chunk_new_beginning (LycheeChunk *chunk, guint64 time);

G_END_DECLS
