/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "gstlycheeindexer-private.h"

#include <math.h>
#include <string.h>

#include "lychee-element.h"
#include "lychee-meta.h"

/* The property of a queue that tells how many buffers wait in it. */
#define LEVEL "current-level-buffers"

/* Chooses the caps and the allocator that downstream can take. */
static gboolean
gst_lychee_indexer_negotiate (GstLycheeIndexer *self)
{
  LycheeModel *model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  LycheeKVAllocator *allocator = NULL;
  GstCaps *caps, *plain;
  GstQuery *query;
  gboolean ret;

  if (model == NULL)
    return FALSE;
  plain = gst_caps_new_simple ("application/x-lychee-kv", "model", G_TYPE_STRING,
      lychee_model_get_id (model), "layers", G_TYPE_INT, (int) lychee_model_get_n_layers (model),
      "kv-heads", G_TYPE_INT, (int) lychee_model_get_n_kv_heads (model), "head-dim", G_TYPE_INT,
      (int) lychee_model_get_head_dim (model), "type", G_TYPE_STRING,
      gst_lychee_indexer_get_cache_type (self), NULL);
  g_object_unref (model);
  caps = gst_caps_copy (plain);
  gst_caps_set_features (caps, 0, gst_caps_features_new (LYCHEE_CAPS_FEATURE_MEMORY_KV, NULL));
  if (gst_pad_is_linked (self->srcpad) && !gst_pad_peer_query_accept_caps (self->srcpad, caps) &&
      gst_pad_peer_query_accept_caps (self->srcpad, plain))
    gst_caps_replace (&caps, plain);
  gst_caps_unref (plain);

  ret = gst_pad_set_caps (self->srcpad, caps);
  query = gst_query_new_allocation (caps, FALSE);
  if (ret && gst_pad_peer_query (self->srcpad, query)) {
    for (guint i = 0; i < gst_query_get_n_allocation_params (query) && allocator == NULL; i++) {
      GstAllocator *proposed = NULL;

      gst_query_parse_nth_allocation_param (query, i, &proposed, NULL);
      if (proposed != NULL && LYCHEE_IS_KV_ALLOCATOR (proposed))
        allocator = LYCHEE_KV_ALLOCATOR (proposed);
      else
        gst_clear_object (&proposed);
    }
  }
  gst_query_unref (query);
  gst_caps_unref (caps);

  GST_DEBUG_OBJECT (
      self, "%s allocator", allocator != NULL ? "takes downstream's" : "makes its own");
  gst_clear_object (&self->allocator);
  self->allocator = allocator != NULL ? allocator : lychee_kv_allocator_new (NULL);
  return ret;
}

/* The chunk that @buffer is: its meta's, or one made of its ids where it has none. (transfer full)
 * (nullable) */
static LycheeChunk *
chunk_of_buffer (GstLycheeIndexer *self, GstBuffer *buffer)
{
  LycheeChunkMeta *meta = lychee_buffer_get_chunk_meta (buffer);
  LycheeChunk *chunk = NULL;
  GstMapInfo map;

  if (meta != NULL)
    return lychee_chunk_ref (meta->chunk);
  if (!gst_buffer_map (buffer, &map, GST_MAP_READ))
    return NULL;
  if (map.size % sizeof (gint32) == 0 && map.size / sizeof (gint32) <= G_MAXUINT)
    chunk = lychee_chunk_new ((const gint32 *) map.data, map.size / sizeof (gint32), "", NULL,
        GST_BUFFER_PTS (buffer), GST_BUFFER_DURATION (buffer), LYCHEE_BOUNDARY_NONE, NAN,
        self->reading.chunks);
  gst_buffer_unmap (buffer, &map);
  return chunk;
}

static gboolean
ids_are_valid (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  guint n_vocab = lychee_model_get_n_vocab (lychee_session_get_model (self->session));

  for (guint i = 0; i < chunk->n_ids; i++)
    if (chunk->ids[i] < 0 || (guint) chunk->ids[i] >= n_vocab)
      return FALSE;
  return TRUE;
}

static void
leave_out (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  GstClockTime end = lychee_chunk_get_end (chunk);

  self->left_tokens += chunk->n_ids;
  self->left_chunks++;
  if (GST_CLOCK_TIME_IS_VALID (end))
    self->left_end = end;
}

/* Tells downstream, for the answers that follow. */
static void
push_truncated (GstLycheeIndexer *self)
{
  gst_pad_push_event (self->srcpad,
      gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
          gst_structure_new ("lychee-truncated", "tokens", G_TYPE_UINT64, self->reading.tokens,
              "left-out", G_TYPE_UINT64, self->left_tokens, NULL)));
}

/* Says at once that the transcript does not fit; what was left out in the end is said at the end.
 * FALSE: nothing fits. */
static gboolean
begin_to_leave_out (GstLycheeIndexer *self)
{
  char *until;

  if (self->reading.tokens == 0) {
    self->failed = TRUE;
    GST_ELEMENT_ERROR (self, RESOURCE, NO_SPACE_LEFT,
        ("The transcript cannot be read: not even its beginning fits. Raise max-context or "
         "max-memory."),
        (NULL));
    return FALSE;
  }
  until = lychee_format_time (self->reading.end);
  self->full = TRUE;
  GST_ELEMENT_WARNING (self, RESOURCE, NO_SPACE_LEFT,
      ("The transcript is longer than what fits: %" G_GUINT64_FORMAT
       " tokens were read, up to %s; what follows is left out.",
          self->reading.tokens, until),
      (NULL));
  g_free (until);
  push_truncated (self);
  return TRUE;
}

static void
say_what_was_left_out (GstLycheeIndexer *self)
{
  char *from = lychee_format_time (self->reading.end);
  char *until = lychee_format_time (self->left_end);

  GST_ELEMENT_WARNING (self, RESOURCE, NO_SPACE_LEFT,
      ("The transcript did not fit: %" G_GUINT64_FORMAT " of its %" G_GUINT64_FORMAT
       " tokens were read, up to %s; the last %" G_GUINT64_FORMAT ", up to %s, were left out.",
          self->reading.tokens, self->reading.tokens + self->left_tokens, from, self->left_tokens,
          until),
      (NULL));
  g_free (from);
  g_free (until);
}

/* That the beginning was forgotten: the first time as a warning, and always as a message. */
static void
say_what_was_forgotten (GstLycheeIndexer *self)
{
  g_autoptr (LycheeChunk) first =
      lychee_cache_get_chunk (lychee_session_get_cache (self->session), 0, NULL);
  g_autoptr (GVariant) stats = lychee_session_get_stats (self->session);
  GstClockTime from = first != NULL ? first->pts : GST_CLOCK_TIME_NONE;
  guint64 forgotten = 0;

  g_variant_lookup (stats, "tokens-forgotten", "t", &forgotten);
  if (!self->forgot) {
    char *time = lychee_format_time (from);

    GST_ELEMENT_WARNING (self, RESOURCE, NO_SPACE_LEFT,
        ("The transcript is longer than what fits: from now on the oldest part of it is "
         "forgotten, now what was said before %s.",
            time),
        (NULL));
    g_free (time);
    self->forgot = TRUE;
    push_truncated (self);
  }
  gst_element_post_message (
      GST_ELEMENT (self), gst_message_new_element (GST_OBJECT (self),
                              gst_structure_new ("lychee-forgotten", "tokens", G_TYPE_UINT64,
                                  forgotten, "from", G_TYPE_UINT64, from, NULL)));
}

static GstFlowReturn
push_view (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  guint position = lychee_cache_get_length (cache) - chunk->n_ids;
  GstBuffer *buffer = gst_buffer_new ();

  gst_buffer_append_memory (
      buffer, lychee_kv_memory_new (self->allocator, cache, position, chunk->n_ids));
  GST_BUFFER_PTS (buffer) = chunk->pts;
  GST_BUFFER_DURATION (buffer) = chunk->duration;
  GST_BUFFER_OFFSET (buffer) = position;
  GST_BUFFER_OFFSET_END (buffer) = position + chunk->n_ids;
  if (self->discont) {
    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
    self->discont = FALSE;
  }
  lychee_buffer_add_kv_meta (buffer, cache, chunk, position, self->format, self->reading.tokens);
  return gst_pad_push (self->srcpad, buffer);
}

/* How many chunks wait in the queue before this element. */
static guint
count_waiting (GstLycheeIndexer *self)
{
  GstPad *peer = gst_pad_get_peer (self->sinkpad);
  GstElement *element = peer != NULL ? gst_pad_get_parent_element (peer) : NULL;
  guint n = 0;

  if (element != NULL && g_object_class_find_property (G_OBJECT_GET_CLASS (element), LEVEL) != NULL)
    g_object_get (element, LEVEL, &n, NULL);
  gst_clear_object (&element);
  gst_clear_object (&peer);
  return n;
}

/* Of a live transcript, tells those who answer to let the reading go first. */
static void
push_backlog (GstLycheeIndexer *self)
{
  guint n = self->live && !self->full ? count_waiting (self) : 0;

  if (n == 0 && !self->behind)
    return;
  self->behind = n > 0;
  gst_pad_push_event (
      self->srcpad, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
                        gst_structure_new (LYCHEE_BACKLOG_EVENT, "chunks", G_TYPE_UINT, n, NULL)));
}

/* Whether @chunk is the last one that @cache has: else it was left out. */
static gboolean
is_last_chunk (LycheeCache *cache, LycheeChunk *chunk)
{
  guint n = lychee_cache_get_n_chunks (cache);
  g_autoptr (LycheeChunk) last = n > 0 ? lychee_cache_get_chunk (cache, n - 1, NULL) : NULL;

  return last == chunk;
}

/* Says why the processor computes where something faster was there but cannot: once. */
static void
tell_backend (GstLycheeIndexer *self)
{
  g_autoptr (GVariant) stats = NULL;
  const char *note = "";

  if (self->told)
    return;
  self->told = TRUE;
  stats = lychee_session_get_stats (self->session);
  g_variant_lookup (stats, "backend-note", "&s", &note);
  if (*note != '\0')
    GST_ELEMENT_INFO (self, RESOURCE, SETTINGS, ("%s", note), (NULL));
}

/* A line's end before what is said after a silence has the time of what was said before it. */
static gboolean
has_words (LycheeChunk *chunk)
{
  const char *at = chunk->text;

  while (g_unichar_isspace (g_utf8_get_char (at)))
    at = g_utf8_next_char (at);
  return *at != '\0';
}

static void
update_latency (GstLycheeIndexer *self)
{
  g_atomic_int_set (&self->latency_stale, FALSE);
  self->live = lychee_reading_is_live (self->sinkpad, &self->latency);
}

/* Counts a chunk that has been read. */
static void
note_chunk (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  GstClockTime end = lychee_chunk_get_end (chunk);

  self->unsaved = TRUE;
  self->reading.tokens += chunk->n_ids;
  self->reading.bytes += strlen (chunk->text);
  self->reading.chunks++;
  if (!GST_CLOCK_TIME_IS_VALID (end))
    return;
  if (!GST_CLOCK_TIME_IS_VALID (self->reading.end) || end > self->reading.end)
    self->reading.end = end;
  if (g_atomic_int_get (&self->latency_stale))
    update_latency (self);
  if (self->live && has_words (chunk))
    lychee_reading_lateness (&self->reading, GST_ELEMENT (self),
        gst_segment_to_running_time (&self->segment, GST_FORMAT_TIME, end), self->latency);
}

/* Tells downstream what was loaded, by its last chunk. @next (nullable): what follows it. */
static GstFlowReturn
push_resumed (GstLycheeIndexer *self, LycheeChunk *next)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  g_autoptr (LycheeChunk) last =
      lychee_cache_get_chunk (cache, lychee_cache_get_n_chunks (cache) - 1, NULL);

  /* At the end of a stream that said nothing. */
  if (gst_pad_check_reconfigure (self->srcpad) && !gst_lychee_indexer_negotiate (self))
    return GST_FLOW_NOT_NEGOTIATED;
  self->resumed = FALSE;
  if (next != NULL && GST_CLOCK_TIME_IS_VALID (next->pts) && GST_CLOCK_TIME_IS_VALID (last->pts) &&
      next->pts < last->pts) {
    GST_INFO_OBJECT (self, "what follows what was saved counts time anew");
    self->saved = lychee_chunk_ref (last);
    self->reading.end = GST_CLOCK_TIME_NONE;
  }
  return push_view (self, last);
}

static GstFlowReturn
read_chunk (GstLycheeIndexer *self, LycheeChunk *chunk)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  guint n_chunks = lychee_cache_get_n_chunks (cache);
  GError *error = NULL;
  GCancellable *cancellable;
  GstFlowReturn ret = GST_FLOW_ERROR;
  gint64 begun = g_get_monotonic_time ();
  gboolean ok;

  GST_OBJECT_LOCK (self);
  cancellable = g_object_ref (self->cancellable);
  GST_OBJECT_UNLOCK (self);
  ok = lychee_session_append (self->session, chunk, cancellable, &error);
  g_object_unref (cancellable);
  self->reading.busy += g_get_monotonic_time () - begun;

  if (ok && !is_last_chunk (cache, chunk)) {
    if (begin_to_leave_out (self)) {
      leave_out (self, chunk);
      ret = GST_FLOW_OK;
    }
  } else if (ok) {
    tell_backend (self);
    note_chunk (self, chunk);
    GST_LOG_OBJECT (self,
        "chunk %" G_GUINT64_FORMAT ": %u tokens in %.1f ms, %" G_GUINT64_FORMAT " in all",
        self->reading.chunks, chunk->n_ids, (g_get_monotonic_time () - begun) / 1e3,
        self->reading.tokens);
    if (lychee_cache_get_n_chunks (cache) <= n_chunks)
      say_what_was_forgotten (self);
    lychee_reading_progress (&self->reading, GST_ELEMENT (self), self->sinkpad, FALSE);
    ret = push_view (self, chunk);
    if (ret == GST_FLOW_OK)
      push_backlog (self);
  } else if (g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) {
    ret = GST_FLOW_FLUSHING;
  } else {
    self->failed = TRUE;
    lychee_element_post_error (GST_ELEMENT (self), error, "The transcript cannot be read");
  }
  g_clear_error (&error);
  return ret;
}

/* Which chunk is the first behind what was saved, where that has times of its own; else 0. */
static guint
get_first_own (GstLycheeIndexer *self)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  guint n = self->saved != NULL ? lychee_cache_get_n_chunks (cache) : 0;

  for (; n > 0; n--) {
    g_autoptr (LycheeChunk) chunk = lychee_cache_get_chunk (cache, n - 1, NULL);

    if (chunk == self->saved)
      break;
  }
  return n;
}

void
gst_lychee_indexer_cut (GstLycheeIndexer *self, GstClockTime time)
{
  gint64 busy = self->reading.busy;

  if (self->session == NULL)
    return;
  self->unsaved = TRUE;
  lychee_session_truncate_from (self->session, get_first_own (self), time);
  lychee_reading_init (&self->reading);
  self->reading.busy = busy;
  gst_lychee_indexer_count_read (self);
  self->resumed &= self->reading.chunks > 0;
  self->full = FALSE;
  self->failed = FALSE;
  self->left_tokens = self->left_chunks = 0;
  self->left_end = GST_CLOCK_TIME_NONE;
  self->discont = TRUE;
  GST_INFO_OBJECT (self, "cut to %" G_GUINT64_FORMAT " tokens, up to %" GST_TIME_FORMAT,
      self->reading.tokens, GST_TIME_ARGS (self->reading.end));
}

GstFlowReturn
gst_lychee_indexer_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (parent);
  GstFlowReturn ret = GST_FLOW_OK;
  LycheeChunk *chunk;

  if (!gst_pad_has_current_caps (self->sinkpad) || !gst_lychee_indexer_ensure_session (self) ||
      (gst_pad_check_reconfigure (self->srcpad) && !gst_lychee_indexer_negotiate (self))) {
    gst_buffer_unref (buffer);
    /* Shutting down makes the negotiation fail too. */
    return GST_PAD_IS_FLUSHING (self->srcpad) || lychee_model_slot_is_flushing (&self->slot)
               ? GST_FLOW_FLUSHING
               : GST_FLOW_NOT_NEGOTIATED;
  }

  chunk = chunk_of_buffer (self, buffer);
  if (self->cut && chunk != NULL && GST_CLOCK_TIME_IS_VALID (chunk->pts)) {
    /* Somebody who was speaking at the place of a seek is heard again from where they began. */
    if (chunk->pts < self->segment.start)
      gst_lychee_indexer_cut (self, chunk->pts);
    self->cut = FALSE;
  }
  if (chunk == NULL || !ids_are_valid (self, chunk)) {
    GST_ELEMENT_ERROR (self, STREAM, FORMAT,
        ("What arrives here as a chunk is broken: it has ids that the model does not know."),
        ("%" GST_PTR_FORMAT, buffer));
    ret = GST_FLOW_ERROR;
  } else if (self->resumed && (ret = push_resumed (self, chunk)) != GST_FLOW_OK) {
    GST_DEBUG_OBJECT (self, "downstream takes nothing: %s", gst_flow_get_name (ret));
  } else if (self->full) {
    leave_out (self, chunk);
    push_backlog (self);
  } else if (self->failed) {
    ret = GST_FLOW_ERROR;
  } else if (chunk->n_ids > 0) {
    ret = read_chunk (self, chunk);
  }
  g_clear_pointer (&chunk, lychee_chunk_unref);
  gst_buffer_unref (buffer);
  return ret;
}

static void
gst_lychee_indexer_finish (GstLycheeIndexer *self)
{
  self->eos = TRUE;
  /* Nothing may have come since the start. */
  if (self->resume && gst_pad_has_current_caps (self->srcpad) &&
      gst_lychee_indexer_ensure_session (self) && self->resumed)
    push_resumed (self, NULL);
  gst_lychee_indexer_save_session (self);
  lychee_reading_progress (&self->reading, GST_ELEMENT (self), self->sinkpad, TRUE);
  if (!self->full)
    return;
  say_what_was_left_out (self);
  push_truncated (self);
}

static void
gst_lychee_indexer_segment (GstLycheeIndexer *self, const GstSegment *segment)
{
  if (self->flushed && !lychee_segment_goes_on (segment, self->reading.end)) {
    if (lychee_segment_goes_back (segment)) {
      gst_lychee_indexer_cut (self, segment->start);
      self->cut = TRUE;
    } else
      gst_lychee_indexer_reset (self);
  }
  self->flushed = FALSE;
  self->eos = FALSE;
  self->segment = *segment;
  update_latency (self);
}

static void
gst_lychee_indexer_stream_start (GstLycheeIndexer *self, GstEvent *event)
{
  const char *id;

  gst_event_parse_stream_start (event, &id);
  if (self->eos || g_strcmp0 (id, self->stream_id) != 0)
    gst_lychee_indexer_reset (self);
  g_free (self->stream_id);
  self->stream_id = g_strdup (id);
}

gboolean
gst_lychee_indexer_sink_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeIndexer *self = GST_LYCHEE_INDEXER (parent);

  GST_LOG_OBJECT (self, "%" GST_PTR_FORMAT, event);

  switch (GST_EVENT_TYPE (event)) {
  case GST_EVENT_STREAM_START:
    gst_lychee_indexer_stream_start (self, event);
    break;
  case GST_EVENT_CAPS: {
    GstCaps *caps;
    gboolean ret;

    gst_event_parse_caps (event, &caps);
    ret = lychee_model_slot_check_caps (&self->slot, GST_ELEMENT (self), pad, caps) &&
          gst_lychee_indexer_negotiate (self);
    gst_event_unref (event);
    return ret;
  }
  case GST_EVENT_SEGMENT: {
    const GstSegment *segment;

    gst_event_parse_segment (event, &segment);
    gst_lychee_indexer_segment (self, segment);
    break;
  }
  case GST_EVENT_EOS:
    gst_lychee_indexer_finish (self);
    break;
  case GST_EVENT_FLUSH_START:
    gst_lychee_indexer_cancel_reading (self);
    break;
  case GST_EVENT_FLUSH_STOP:
    gst_lychee_indexer_allow_reading (self);
    self->flushed = TRUE;
    self->discont = TRUE;
    break;
  default:
    break;
  }
  return gst_pad_event_default (pad, parent, event);
}
