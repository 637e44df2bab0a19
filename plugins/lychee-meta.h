/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-cache.h"
#include "lychee-chat-template.h"

G_BEGIN_DECLS

/* The API names, for those who look a meta up without linking to this plugin:
 * gst_buffer_get_meta (buffer, g_type_from_name (LYCHEE_TEXT_META_API_NAME)). */
#define LYCHEE_TEXT_META_API_NAME "LycheeTextMetaAPI"
#define LYCHEE_CHUNK_META_API_NAME "LycheeChunkMetaAPI"
#define LYCHEE_KV_META_API_NAME "LycheeKVMetaAPI"

/**
 * LycheeTextMeta:
 * @text: the source bytes that the buffer's tokens stand for, all of them. Not always valid UTF-8:
 *   a character may be split over two buffers. A NUL byte follows that is not counted
 * @text_length: bytes in @text
 * @speaker: (nullable): who speaks
 * @tokens: one per id in the buffer, in order; offsets count from the start of @text
 * @n_tokens: how many
 *
 * What lycheetokenizer says about a buffer of token ids.
 */
typedef struct {
  GstMeta meta;
  char *text;
  gsize text_length;
  char *speaker;
  LycheeToken *tokens;
  guint n_tokens;
} LycheeTextMeta;

/**
 * LycheeChunkMeta:
 * @chunk: ids, text, speaker, times, boundary, drift and number of the chunk
 *
 * What lycheechunker says about a buffer of token ids that are one chunk.
 */
typedef struct {
  GstMeta meta;
  LycheeChunk *chunk;
} LycheeChunkMeta;

/**
 * LycheeKVMeta:
 * @cache: the cache that the buffer's memory is a view of. It goes on growing
 * @chunk: the chunk whose K and V these are
 * @position: position of the chunk's first token in @cache
 * @format: the chat format that the beginning of @cache was written in
 * @transcript_tokens: tokens of the transcript up to the end of this chunk
 *
 * What lycheeindexer says about a buffer of K and V.
 */
typedef struct {
  GstMeta meta;
  LycheeCache *cache;
  LycheeChunk *chunk;
  guint position;
  LycheeChatFormat format;
  guint64 transcript_tokens;
} LycheeKVMeta;

#define LYCHEE_TEXT_META_API_TYPE (lychee_text_meta_api_get_type ())
GType lychee_text_meta_api_get_type (void);
const GstMetaInfo *lychee_text_meta_get_info (void);
LycheeTextMeta *lychee_buffer_add_text_meta (GstBuffer *buffer, const char *text, gsize text_length,
    const char *speaker, const LycheeToken *tokens, guint n_tokens);
LycheeTextMeta *lychee_buffer_get_text_meta (GstBuffer *buffer);

#define LYCHEE_CHUNK_META_API_TYPE (lychee_chunk_meta_api_get_type ())
GType lychee_chunk_meta_api_get_type (void);
const GstMetaInfo *lychee_chunk_meta_get_info (void);
LycheeChunkMeta *lychee_buffer_add_chunk_meta (GstBuffer *buffer, LycheeChunk *chunk);
LycheeChunkMeta *lychee_buffer_get_chunk_meta (GstBuffer *buffer);

#define LYCHEE_KV_META_API_TYPE (lychee_kv_meta_api_get_type ())
GType lychee_kv_meta_api_get_type (void);
const GstMetaInfo *lychee_kv_meta_get_info (void);
LycheeKVMeta *lychee_buffer_add_kv_meta (GstBuffer *buffer, LycheeCache *cache, LycheeChunk *chunk,
    guint position, LycheeChatFormat format, guint64 transcript_tokens);
LycheeKVMeta *lychee_buffer_get_kv_meta (GstBuffer *buffer);

G_END_DECLS
