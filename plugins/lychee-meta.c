/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-meta.h"

#include <string.h>

/* All three describe what is in the buffer: an element that changes that and knows nothing of us
 * must not keep them, as GstBaseTransform keeps a meta without tags. GStreamer's own tag, memory,
 * would say so too, but deep copies drop what has it. */
static const char *tags[] = { "lychee", NULL };

/* Whether a transform is a copy, and of the whole buffer or only of a part. */
static gboolean
is_copy (GQuark type, gpointer data, gboolean *whole)
{
  const GstMetaTransformCopy *copy = data;

  if (!GST_META_TRANSFORM_IS_COPY (type))
    return FALSE;
  *whole = !copy->region;
  return TRUE;
}

/* LycheeTextMeta */

GType
lychee_text_meta_api_get_type (void)
{
  static gsize type = 0;

  if (g_once_init_enter (&type))
    g_once_init_leave (&type, gst_meta_api_type_register (LYCHEE_TEXT_META_API_NAME, tags));
  return type;
}

static gboolean
text_meta_init (GstMeta *meta, gpointer params, GstBuffer *buffer)
{
  memset ((guint8 *) meta + sizeof (GstMeta), 0, sizeof (LycheeTextMeta) - sizeof (GstMeta));
  return TRUE;
}

static void
text_meta_free (GstMeta *meta, GstBuffer *buffer)
{
  LycheeTextMeta *self = (LycheeTextMeta *) meta;

  g_clear_pointer (&self->text, g_free);
  g_clear_pointer (&self->speaker, g_free);
  g_clear_pointer (&self->tokens, g_free);
}

static gboolean
text_meta_transform (GstBuffer *to, GstMeta *meta, GstBuffer *buffer, GQuark type, gpointer data)
{
  LycheeTextMeta *self = (LycheeTextMeta *) meta;
  gboolean whole;

  if (!is_copy (type, data, &whole))
    return FALSE;
  if (whole) {
    lychee_buffer_add_text_meta (
        to, self->text, self->text_length, self->speaker, self->tokens, self->n_tokens);
    return TRUE;
  }

  /* A part that begins and ends between ids keeps their tokens and their text. */
  const GstMetaTransformCopy *copy = data;
  gsize size = copy->size;
  gsize all = (gsize) self->n_tokens * sizeof (gint32);

  if (size == (gsize) -1 && copy->offset <= all)
    size = all - copy->offset;
  if (copy->offset % sizeof (gint32) != 0 || size % sizeof (gint32) != 0 || size == 0 ||
      copy->offset > all || size > all - copy->offset)
    return FALSE;

  guint first = copy->offset / sizeof (gint32);
  guint n = size / sizeof (gint32);
  guint64 start = self->tokens[first].offset;
  guint64 end = start;
  LycheeToken *tokens = g_memdup2 (self->tokens + first, n * sizeof (LycheeToken));

  for (guint i = 0; i < n; i++) {
    end = MAX (end, tokens[i].offset + tokens[i].length);
    tokens[i].offset -= start;
  }
  lychee_buffer_add_text_meta (to, self->text + start, end - start, self->speaker, tokens, n);
  g_free (tokens);
  return TRUE;
}

const GstMetaInfo *
lychee_text_meta_get_info (void)
{
  static const GstMetaInfo *info = NULL;

  if (g_once_init_enter ((GstMetaInfo **) &info)) {
    const GstMetaInfo *new_info = gst_meta_register (LYCHEE_TEXT_META_API_TYPE, "LycheeTextMeta",
        sizeof (LycheeTextMeta), text_meta_init, text_meta_free, text_meta_transform);
    g_once_init_leave ((GstMetaInfo **) &info, (GstMetaInfo *) new_info);
  }
  return info;
}

/**
 * lychee_buffer_add_text_meta:
 * @buffer: (transfer none): a writable buffer of @n_tokens ids
 * @text: (array length=text_length): copied
 * @speaker: (nullable): copied
 * @tokens: (array length=n_tokens): copied; offsets count from the start of @text
 *
 * Returns: (transfer none): the meta that was added
 */
LycheeTextMeta *
lychee_buffer_add_text_meta (GstBuffer *buffer, const char *text, gsize text_length,
    const char *speaker, const LycheeToken *tokens, guint n_tokens)
{
  LycheeTextMeta *self;

  g_return_val_if_fail (GST_IS_BUFFER (buffer), NULL);

  self = (LycheeTextMeta *) gst_buffer_add_meta (buffer, lychee_text_meta_get_info (), NULL);
  self->text = g_malloc (text_length + 1);
  if (text_length > 0)
    memcpy (self->text, text, text_length);
  self->text[text_length] = '\0';
  self->text_length = text_length;
  self->speaker = g_strdup (speaker);
  self->tokens = g_memdup2 (tokens, n_tokens * sizeof (LycheeToken));
  self->n_tokens = n_tokens;
  return self;
}

LycheeTextMeta *
lychee_buffer_get_text_meta (GstBuffer *buffer)
{
  return (LycheeTextMeta *) gst_buffer_get_meta (buffer, LYCHEE_TEXT_META_API_TYPE);
}

/* LycheeChunkMeta */

GType
lychee_chunk_meta_api_get_type (void)
{
  static gsize type = 0;

  if (g_once_init_enter (&type))
    g_once_init_leave (&type, gst_meta_api_type_register (LYCHEE_CHUNK_META_API_NAME, tags));
  return type;
}

static gboolean
chunk_meta_init (GstMeta *meta, gpointer params, GstBuffer *buffer)
{
  ((LycheeChunkMeta *) meta)->chunk = NULL;
  return TRUE;
}

static void
chunk_meta_free (GstMeta *meta, GstBuffer *buffer)
{
  g_clear_pointer (&((LycheeChunkMeta *) meta)->chunk, lychee_chunk_unref);
}

static gboolean
chunk_meta_transform (GstBuffer *to, GstMeta *meta, GstBuffer *buffer, GQuark type, gpointer data)
{
  gboolean whole;

  /* A part of a chunk is not that chunk. */
  if (!is_copy (type, data, &whole) || !whole)
    return FALSE;
  lychee_buffer_add_chunk_meta (to, ((LycheeChunkMeta *) meta)->chunk);
  return TRUE;
}

const GstMetaInfo *
lychee_chunk_meta_get_info (void)
{
  static const GstMetaInfo *info = NULL;

  if (g_once_init_enter ((GstMetaInfo **) &info)) {
    const GstMetaInfo *new_info = gst_meta_register (LYCHEE_CHUNK_META_API_TYPE, "LycheeChunkMeta",
        sizeof (LycheeChunkMeta), chunk_meta_init, chunk_meta_free, chunk_meta_transform);
    g_once_init_leave ((GstMetaInfo **) &info, (GstMetaInfo *) new_info);
  }
  return info;
}

/**
 * lychee_buffer_add_chunk_meta:
 * @buffer: (transfer none): a writable buffer of the chunk's ids
 * @chunk: (transfer none): the chunk, of which a reference is taken
 *
 * Returns: (transfer none): the meta that was added
 */
LycheeChunkMeta *
lychee_buffer_add_chunk_meta (GstBuffer *buffer, LycheeChunk *chunk)
{
  LycheeChunkMeta *self;

  g_return_val_if_fail (GST_IS_BUFFER (buffer), NULL);
  g_return_val_if_fail (chunk != NULL, NULL);

  self = (LycheeChunkMeta *) gst_buffer_add_meta (buffer, lychee_chunk_meta_get_info (), NULL);
  self->chunk = lychee_chunk_ref (chunk);
  return self;
}

LycheeChunkMeta *
lychee_buffer_get_chunk_meta (GstBuffer *buffer)
{
  return (LycheeChunkMeta *) gst_buffer_get_meta (buffer, LYCHEE_CHUNK_META_API_TYPE);
}

/* LycheeKVMeta */

GType
lychee_kv_meta_api_get_type (void)
{
  static gsize type = 0;

  if (g_once_init_enter (&type))
    g_once_init_leave (&type, gst_meta_api_type_register (LYCHEE_KV_META_API_NAME, tags));
  return type;
}

static gboolean
kv_meta_init (GstMeta *meta, gpointer params, GstBuffer *buffer)
{
  memset ((guint8 *) meta + sizeof (GstMeta), 0, sizeof (LycheeKVMeta) - sizeof (GstMeta));
  return TRUE;
}

static void
kv_meta_free (GstMeta *meta, GstBuffer *buffer)
{
  LycheeKVMeta *self = (LycheeKVMeta *) meta;

  g_clear_object (&self->cache);
  g_clear_pointer (&self->chunk, lychee_chunk_unref);
}

static gboolean
kv_meta_transform (GstBuffer *to, GstMeta *meta, GstBuffer *buffer, GQuark type, gpointer data)
{
  LycheeKVMeta *self = (LycheeKVMeta *) meta;
  gboolean whole;

  if (!is_copy (type, data, &whole) || !whole)
    return FALSE;
  lychee_buffer_add_kv_meta (
      to, self->cache, self->chunk, self->position, self->format, self->transcript_tokens);
  return TRUE;
}

const GstMetaInfo *
lychee_kv_meta_get_info (void)
{
  static const GstMetaInfo *info = NULL;

  if (g_once_init_enter ((GstMetaInfo **) &info)) {
    const GstMetaInfo *new_info = gst_meta_register (LYCHEE_KV_META_API_TYPE, "LycheeKVMeta",
        sizeof (LycheeKVMeta), kv_meta_init, kv_meta_free, kv_meta_transform);
    g_once_init_leave ((GstMetaInfo **) &info, (GstMetaInfo *) new_info);
  }
  return info;
}

/**
 * lychee_buffer_add_kv_meta:
 * @buffer: (transfer none): a writable buffer of the K and V of @chunk
 * @cache: (transfer none): where they lie; a reference is taken
 * @chunk: (transfer none): a reference is taken
 * @position: position of the chunk's first token in @cache
 * @format: chat format of the beginning of @cache
 * @transcript_tokens: tokens of the transcript up to the end of @chunk
 *
 * Returns: (transfer none): the meta that was added
 */
LycheeKVMeta *
lychee_buffer_add_kv_meta (GstBuffer *buffer, LycheeCache *cache, LycheeChunk *chunk,
    guint position, LycheeChatFormat format, guint64 transcript_tokens)
{
  LycheeKVMeta *self;

  g_return_val_if_fail (GST_IS_BUFFER (buffer), NULL);
  g_return_val_if_fail (LYCHEE_IS_CACHE (cache), NULL);
  g_return_val_if_fail (chunk != NULL, NULL);

  self = (LycheeKVMeta *) gst_buffer_add_meta (buffer, lychee_kv_meta_get_info (), NULL);
  self->cache = g_object_ref (cache);
  self->chunk = lychee_chunk_ref (chunk);
  self->position = position;
  self->format = format;
  self->transcript_tokens = transcript_tokens;
  return self;
}

LycheeKVMeta *
lychee_buffer_get_kv_meta (GstBuffer *buffer)
{
  return (LycheeKVMeta *) gst_buffer_get_meta (buffer, LYCHEE_KV_META_API_TYPE);
}
