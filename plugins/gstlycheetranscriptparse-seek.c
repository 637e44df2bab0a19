/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gstlycheetranscriptparse-private.h"

GST_DEBUG_CATEGORY_EXTERN (lychee_transcript_parse_debug);
#define GST_CAT_DEFAULT lychee_transcript_parse_debug

/* Pulling, seeking, and what is asked from downstream. A transcript is small: to seek, it is read
 * from the beginning, so that hygiene and speakers are as they would be without. */

/* So little is read at once that the place in the file tells how far downstream is. */
#define READ_SIZE 4096

/* Reads @buffer's bytes as the survey's next. */
static gboolean
survey_buffer (GstLycheeTranscriptParse *self, LycheeTranscriptSurvey *survey, GstBuffer *buffer,
    gboolean first)
{
  GstMapInfo map;
  gboolean is_text;

  if (!gst_buffer_map (buffer, &map, GST_MAP_READ))
    return FALSE;
  /* What is none may be a film, which nobody wants to be read to its end. */
  is_text = !first || gst_lychee_transcript_parse_begins_with_text (
                          self, map.data, MIN (map.size, READ_SIZE));
  if (is_text)
    lychee_transcript_survey_push (survey, map.data, map.size);
  gst_buffer_unmap (buffer, &map);
  return is_text;
}

static GstFlowReturn
survey (GstLycheeTranscriptParse *self)
{
  g_autoptr (LycheeTranscriptSurvey) found = gst_lychee_transcript_parse_new_survey (self);
  GstFlowReturn ret;

  do {
    guint64 offset = 0;

    for (;;) {
      GstBuffer *buffer = NULL;
      gsize size;

      ret = gst_pad_pull_range (self->sinkpad, offset, LYCHEE_TRANSCRIPT_BLOCK_SIZE, &buffer);
      if (ret != GST_FLOW_OK)
        break;
      size = gst_buffer_get_size (buffer);
      if (!survey_buffer (self, found, buffer, offset == 0))
        ret = GST_FLOW_ERROR;
      gst_buffer_unref (buffer);
      offset += size;
      if (ret != GST_FLOW_OK || size < LYCHEE_TRANSCRIPT_BLOCK_SIZE)
        break;
    }
    if (ret != GST_FLOW_OK && ret != GST_FLOW_EOS)
      return ret;
  } while (lychee_transcript_survey_end (found));

  self->survey = g_steal_pointer (&found);
  gst_lychee_transcript_parse_end_survey (self);
  return GST_FLOW_OK;
}

static void
end_of_segment (GstLycheeTranscriptParse *self)
{
  GstClockTime stop = self->segment.stop != GST_CLOCK_TIME_NONE ? self->segment.stop
                      : self->end_time != GST_CLOCK_TIME_NONE   ? self->end_time
                                                                : self->segment.position;
  GstEvent *event;

  gst_lychee_transcript_parse_send_events (self);
  if ((self->segment.flags & GST_SEGMENT_FLAG_SEGMENT) != 0) {
    GstMessage *message;

    /* A segment that follows without a flush has its running time from here on. */
    GST_OBJECT_LOCK (self);
    self->segment.position = stop;
    GST_OBJECT_UNLOCK (self);
    message = gst_message_new_segment_done (GST_OBJECT (self), GST_FORMAT_TIME, stop);

    event = gst_event_new_segment_done (GST_FORMAT_TIME, stop);
    if (self->seqnum != GST_SEQNUM_INVALID) {
      gst_message_set_seqnum (message, self->seqnum);
      gst_event_set_seqnum (event, self->seqnum);
    }
    gst_element_post_message (GST_ELEMENT (self), message);
  } else {
    event = gst_event_new_eos ();
    if (self->seqnum != GST_SEQNUM_INVALID)
      gst_event_set_seqnum (event, self->seqnum);
  }
  gst_pad_push_event (self->srcpad, event);
}

static void
loop (gpointer user_data)
{
  GstLycheeTranscriptParse *self = user_data;
  GstBuffer *buffer = NULL;
  GstFlowReturn ret = GST_FLOW_OK;

  if (self->survey == NULL)
    ret = survey (self);
  if (ret == GST_FLOW_OK) {
    gst_lychee_transcript_parse_send_events (self);
    ret = gst_pad_pull_range (self->sinkpad, self->offset, READ_SIZE, &buffer);
    if (ret == GST_FLOW_OK) {
      self->offset += gst_buffer_get_size (buffer);
      ret = gst_lychee_transcript_parse_bytes (self, buffer);
      gst_buffer_unref (buffer);
    } else if (ret == GST_FLOW_EOS) {
      ret = gst_lychee_transcript_parse_finish (self);
      if (ret == GST_FLOW_OK)
        ret = GST_FLOW_EOS;
    }
  }
  if (ret == GST_FLOW_OK)
    return;

  GST_DEBUG_OBJECT (self, "pausing: %s", gst_flow_get_name (ret));
  gst_pad_pause_task (self->sinkpad);
  if (ret == GST_FLOW_EOS) {
    end_of_segment (self);
  } else if (ret == GST_FLOW_NOT_LINKED || ret < GST_FLOW_EOS) {
    if (!self->refused)
      GST_ELEMENT_FLOW_ERROR (self, ret);
    gst_lychee_transcript_parse_send_events (self);
    gst_pad_push_event (self->srcpad, gst_event_new_eos ());
  }
}

/* Whether what is pushed to @pad reaches an element. Not so while decodebin puts elements together:
 * it opens the way when something is pushed to the first of them. */
static gboolean
reaches_element (GstPad *pad)
{
  GstPad *peer = gst_pad_get_peer (pad);

  /* Out of a bin: from the inner side of a ghost pad to the outer one. */
  while (peer != NULL && GST_IS_PROXY_PAD (peer) && !GST_IS_GHOST_PAD (peer)) {
    GstPad *ghost = GST_PAD (gst_proxy_pad_get_internal (GST_PROXY_PAD (peer)));

    gst_object_unref (peer);
    peer = ghost != NULL ? gst_pad_get_peer (ghost) : NULL;
    gst_clear_object (&ghost);
  }
  if (peer == NULL)
    return FALSE;
  gst_object_unref (peer);
  return TRUE;
}

gboolean
gst_lychee_transcript_parse_activate (GstPad *pad, GstObject *parent)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (parent);
  GstQuery *query = gst_query_new_scheduling ();
  gboolean pull = reaches_element (self->srcpad) && gst_pad_peer_query (pad, query) &&
                  gst_query_has_scheduling_mode_with_flags (
                      query, GST_PAD_MODE_PULL, GST_SCHEDULING_FLAG_SEEKABLE);

  gst_query_unref (query);
  return gst_pad_activate_mode (pad, pull ? GST_PAD_MODE_PULL : GST_PAD_MODE_PUSH, TRUE);
}

gboolean
gst_lychee_transcript_parse_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (parent);

  if (mode == GST_PAD_MODE_PUSH)
    return TRUE;
  if (mode != GST_PAD_MODE_PULL)
    return FALSE;
  GST_OBJECT_LOCK (self);
  self->pulling = active;
  GST_OBJECT_UNLOCK (self);
  return active ? gst_pad_start_task (pad, loop, self, NULL) : gst_pad_stop_task (pad);
}

/* Where a seek leads, FALSE where it is none that is possible here. */
static gboolean
seek_segment (GstLycheeTranscriptParse *self, GstEvent *event, GstSegment *segment)
{
  double rate;
  GstFormat format;
  GstSeekFlags flags;
  GstSeekType start_type, stop_type;
  gint64 start, stop;

  gst_event_parse_seek (event, &rate, &format, &flags, &start_type, &start, &stop_type, &stop);
  if (format != GST_FORMAT_TIME || rate <= 0)
    return FALSE;
  GST_OBJECT_LOCK (self);
  gst_segment_copy_into (&self->segment, segment);
  GST_OBJECT_UNLOCK (self);
  return gst_segment_do_seek (
      segment, rate, format, flags, start_type, start, stop_type, stop, NULL);
}

static void
begin_segment (GstLycheeTranscriptParse *self, const GstSegment *segment, guint32 seqnum)
{
  gst_lychee_transcript_parse_reset (self);
  GST_OBJECT_LOCK (self);
  gst_segment_copy_into (segment, &self->segment);
  self->position = segment->start;
  GST_OBJECT_UNLOCK (self);
  self->seqnum = seqnum;
  self->segment_pending = TRUE;
}

static gboolean
seek_pulling (GstLycheeTranscriptParse *self, GstEvent *event)
{
  GstSegment segment;
  GstSeekFlags flags;
  gboolean flush;
  guint32 seqnum = gst_event_get_seqnum (event);
  GstEvent *flushing;

  gst_event_parse_seek (event, NULL, NULL, &flags, NULL, NULL, NULL, NULL);
  flush = (flags & GST_SEEK_FLAG_FLUSH) != 0;
  if (flush) {
    flushing = gst_event_new_flush_start ();
    gst_event_set_seqnum (flushing, seqnum);
    gst_pad_push_event (self->sinkpad, gst_event_ref (flushing));
    gst_pad_push_event (self->srcpad, flushing);
  } else {
    gst_pad_pause_task (self->sinkpad);
  }
  GST_PAD_STREAM_LOCK (self->sinkpad);
  if (flush) {
    flushing = gst_event_new_flush_stop (TRUE);
    gst_event_set_seqnum (flushing, seqnum);
    gst_pad_push_event (self->sinkpad, gst_event_ref (flushing));
    gst_pad_push_event (self->srcpad, flushing);
  }
  if (seek_segment (self, event, &segment))
    begin_segment (self, &segment, seqnum);
  gst_pad_start_task (self->sinkpad, (GstTaskFunction) loop, self, NULL);
  GST_PAD_STREAM_UNLOCK (self->sinkpad);
  return TRUE;
}

/* Upstream goes back to its first byte; what is before the segment will be left out. */
static gboolean
seek_pushing (GstLycheeTranscriptParse *self, GstEvent *event)
{
  GstSegment segment;
  GstSeekFlags flags;
  guint32 seqnum = gst_event_get_seqnum (event);
  GstEvent *rewind;

  gst_event_parse_seek (event, NULL, NULL, &flags, NULL, NULL, NULL, NULL);
  if (!seek_segment (self, event, &segment))
    return FALSE;
  rewind = gst_event_new_seek (1.0, GST_FORMAT_BYTES, flags & GST_SEEK_FLAG_FLUSH,
      GST_SEEK_TYPE_SET, 0, GST_SEEK_TYPE_NONE, 0);
  gst_event_set_seqnum (rewind, seqnum);
  GST_OBJECT_LOCK (self);
  gst_segment_copy_into (&segment, &self->sought);
  self->is_sought = TRUE;
  GST_OBJECT_UNLOCK (self);
  if (gst_pad_push_event (self->sinkpad, rewind))
    return TRUE;
  GST_OBJECT_LOCK (self);
  self->is_sought = FALSE;
  GST_OBJECT_UNLOCK (self);
  return FALSE;
}

gboolean
gst_lychee_transcript_parse_src_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (parent);
  GstSegment segment;
  gboolean ret;

  if (GST_EVENT_TYPE (event) != GST_EVENT_SEEK || self->upstream_timed)
    return gst_pad_event_default (pad, parent, event);
  if (!seek_segment (self, event, &segment)) {
    GST_DEBUG_OBJECT (self, "cannot do %" GST_PTR_FORMAT, event);
    gst_event_unref (event);
    return FALSE;
  }
  ret = self->pulling ? seek_pulling (self, event) : seek_pushing (self, event);
  gst_event_unref (event);
  return ret;
}

static gboolean
is_seekable (GstLycheeTranscriptParse *self)
{
  GstQuery *query;
  gboolean seekable = FALSE;

  if (self->pulling)
    return TRUE;
  query = gst_query_new_seeking (GST_FORMAT_BYTES);
  if (gst_pad_peer_query (self->sinkpad, query))
    gst_query_parse_seeking (query, NULL, &seekable, NULL, NULL);
  gst_query_unref (query);
  return seekable;
}

gboolean
gst_lychee_transcript_parse_src_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (parent);
  GstClockTime position, end_time;
  guint64 n_bytes;
  GstFormat format;

  if (GST_QUERY_TYPE (query) == GST_QUERY_LATENCY)
    return lychee_wait_query_latency (&self->wait, query);
  if (self->upstream_timed)
    return gst_pad_query_default (pad, parent, query);

  GST_OBJECT_LOCK (self);
  position = self->position;
  end_time = self->end_time;
  n_bytes = self->n_bytes;
  GST_OBJECT_UNLOCK (self);

  switch (GST_QUERY_TYPE (query)) {
  case GST_QUERY_POSITION:
    gst_query_parse_position (query, &format, NULL);
    if (format == GST_FORMAT_BYTES) {
      gst_query_set_position (query, format, n_bytes);
      return TRUE;
    }
    if (format != GST_FORMAT_TIME)
      break;
    if (position == GST_CLOCK_TIME_NONE)
      return FALSE;
    gst_query_set_position (query, format, position);
    return TRUE;
  case GST_QUERY_DURATION:
    gst_query_parse_duration (query, &format, NULL);
    if (format != GST_FORMAT_TIME)
      break;
    if (end_time == GST_CLOCK_TIME_NONE || end_time == 0)
      return FALSE;
    gst_query_set_duration (query, format, end_time);
    return TRUE;
  case GST_QUERY_SEEKING:
    gst_query_parse_seeking (query, &format, NULL, NULL, NULL);
    if (format != GST_FORMAT_TIME)
      break;
    gst_query_set_seeking (query, format, is_seekable (self), 0,
        end_time != GST_CLOCK_TIME_NONE && end_time > 0 ? (gint64) end_time : -1);
    return TRUE;
  default:
    break;
  }
  return gst_pad_query_default (pad, parent, query);
}
