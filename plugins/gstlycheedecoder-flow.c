/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "gstlycheedecoder-private.h"

#include "lychee-drain.h"
#include "lychee-element.h"
#include "lychee-meta.h"
#include "lychee-question-private.h"
#include "lychee-reading.h"

static void
ask_for_summary (GstLycheeDecoder *self, GstClockTime from, GstClockTime to, guint64 tokens)
{
  LycheeAsk *ask = gst_lychee_decoder_new_ask (self, LYCHEE_ASK_SUMMARY);
  guint64 since = self->rolling.since;

  /* One that has not begun is part of this one. */
  if (self->summary != NULL && lychee_answer_queue_withdraw (self->queue, self->summary)) {
    from = self->summary_from;
    since = self->summary_since;
  }
  if (GST_CLOCK_TIME_IS_VALID (to))
    lychee_question_set_range (ask->question, from, to);
  else /* what has no times has places */
    lychee_question_set_tokens (ask->question, since, tokens);
  gst_lychee_decoder_submit (self, ask, NULL);
  g_clear_pointer (&self->summary, lychee_ask_unref);
  self->summary = ask;
  self->summary_from = from;
  self->summary_since = since;
}

/* The transcript goes on at @time: now what was before is whole. */
static void
advance (GstLycheeDecoder *self, GstClockTime time, GstClockTime end)
{
  GstClockTime from, to;
  guint64 tokens;

  GST_OBJECT_LOCK (self);
  self->rolling.interval = self->interval;
  self->rolling.tokens = self->interval_tokens;
  tokens = self->tokens;
  GST_OBJECT_UNLOCK (self);
  if (lychee_rolling_advance (&self->rolling, time, end, tokens, &from, &to))
    ask_for_summary (self, from, to, tokens);
}

void
gst_lychee_decoder_forget_transcript (GstLycheeDecoder *self)
{
  GST_OBJECT_LOCK (self);
  g_clear_object (&self->cache);
  self->tokens = 0;
  self->truncated = FALSE;
  GST_OBJECT_UNLOCK (self);
}

/* That nothing came for a while is of use downstream where there is a clock to keep up with; a sink
 * that waits for the clock would slow the reading of a file down to its own time. */
static void
push_gap (GstLycheeDecoder *self, GstClockTime time, GstClockTime duration)
{
  if (self->live && GST_CLOCK_TIME_IS_VALID (time))
    lychee_answer_queue_push_event (self->queue, gst_event_new_gap (time, duration));
}

GstFlowReturn
gst_lychee_decoder_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);
  LycheeKVMeta *meta = lychee_buffer_get_kv_meta (buffer);
  GstFlowReturn ret = lychee_answer_queue_get_result (self->queue);

  if (ret == GST_FLOW_OK && meta == NULL) {
    GST_ELEMENT_ERROR (self, STREAM, FORMAT,
        ("Keys and values arrive without the cache that they are in."),
        ("no LycheeKVMeta on %" GST_PTR_FORMAT, buffer));
    ret = GST_FLOW_ERROR;
  }
  if (ret == GST_FLOW_OK) {
    GstClockTime time = GST_BUFFER_PTS (buffer), end = time;
    gboolean first;

    if (GST_CLOCK_TIME_IS_VALID (end) && GST_BUFFER_DURATION_IS_VALID (buffer))
      end += GST_BUFFER_DURATION (buffer);
    GST_OBJECT_LOCK (self);
    first = self->cache == NULL;
    g_set_object (&self->cache, meta->cache);
    self->format = meta->format;
    self->tokens = meta->transcript_tokens;
    GST_OBJECT_UNLOCK (self);
    if (first)
      gst_lychee_decoder_limit_drains (self);
    advance (self, time, end);
    push_gap (self, time, GST_BUFFER_DURATION (buffer));
  }
  gst_buffer_unref (buffer);
  return ret;
}

/* What downstream takes: the first of ours that it does. */
static GstFlowReturn
gst_lychee_decoder_set_caps (GstLycheeDecoder *self, GstCaps *caps)
{
  GstCaps *own, *possible;
  GstFlowReturn ret;
  gboolean json;

  if (!lychee_model_slot_check_caps (&self->slot, GST_ELEMENT (self), self->sinkpad, caps))
    return lychee_model_slot_is_flushing (&self->slot) ? GST_FLOW_FLUSHING
                                                       : GST_FLOW_NOT_NEGOTIATED;
  own = gst_pad_get_pad_template_caps (self->srcpad);
  possible = gst_pad_peer_query_caps (self->srcpad, own);
  gst_caps_unref (own);
  if (gst_caps_is_empty (possible)) {
    gst_caps_unref (possible);
    ret = lychee_answer_queue_get_result (self->queue);
    return ret == GST_FLOW_FLUSHING ? ret : GST_FLOW_NOT_NEGOTIATED;
  }
  possible = gst_caps_fixate (gst_caps_truncate (possible));
  json = gst_structure_has_name (gst_caps_get_structure (possible, 0), "application/x-json");
  GST_OBJECT_LOCK (self);
  self->json = json;
  GST_OBJECT_UNLOCK (self);
  GST_DEBUG_OBJECT (self, "downstream takes %" GST_PTR_FORMAT, possible);
  ret = lychee_answer_queue_push_event (self->queue, gst_event_new_caps (possible));
  gst_caps_unref (possible);
  return ret;
}

/* The answer comes after the end of the transcript, so its segment has no end. */
static GstFlowReturn
gst_lychee_decoder_segment (GstLycheeDecoder *self, GstEvent *event)
{
  const GstSegment *segment;
  GstSegment own;
  GstEvent *own_event;
  GstClockTime latency;

  gst_event_parse_segment (event, &segment);
  /* After a seek, the indexer has cut the cache to the new place, or will send another one. */
  if (self->flushed && !lychee_segment_goes_back (segment))
    gst_lychee_decoder_forget_transcript (self);

  gst_segment_init (&own, GST_FORMAT_TIME);
  if (segment->format == GST_FORMAT_TIME && segment->rate > 0) {
    own = *segment;
    own.stop = GST_CLOCK_TIME_NONE;
    own.duration = GST_CLOCK_TIME_NONE;
  }
  GST_OBJECT_LOCK (self);
  self->start = own.start;
  GST_OBJECT_UNLOCK (self);
  if (self->flushed || self->cache == NULL)
    lychee_rolling_restart (&self->rolling, own.start, self->tokens);
  self->flushed = FALSE;
  self->live = lychee_reading_is_live (self->sinkpad, &latency);

  own_event = gst_event_new_segment (&own);
  gst_event_set_seqnum (own_event, gst_event_get_seqnum (event));
  gst_event_unref (event);
  return lychee_answer_queue_push_event (self->queue, own_event);
}

/* End of the transcript: all of it is asked about, or what no summary was about yet. */
static GstFlowReturn
gst_lychee_decoder_end (GstLycheeDecoder *self, GstEvent *event)
{
  g_autoptr (LycheeAsk) ask = gst_lychee_decoder_new_ask (self, LYCHEE_ASK_FINAL);

  gst_lychee_decoder_end_drains (self);
  if (*lychee_question_get_prompt (ask->question) != '\0')
    gst_lychee_decoder_submit (self, ask, NULL);
  return lychee_answer_queue_push_event (self->queue, event);
}

static GstFlowReturn
gst_lychee_decoder_gap (GstLycheeDecoder *self, GstEvent *event)
{
  GstClockTime time, duration;

  gst_event_parse_gap (event, &time, &duration);
  push_gap (self, time, duration);
  if (GST_CLOCK_TIME_IS_VALID (time) && GST_CLOCK_TIME_IS_VALID (duration))
    time += duration;
  advance (self, time, time);
  gst_event_unref (event);
  return GST_FLOW_OK;
}

GstFlowReturn
gst_lychee_decoder_sink_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);
  GstCaps *caps;
  GstFlowReturn ret;

  GST_LOG_OBJECT (self, "%" GST_PTR_FORMAT, event);
  lychee_model_slot_note_event (&self->slot, GST_ELEMENT (self), event);

  switch (GST_EVENT_TYPE (event)) {
  case GST_EVENT_FLUSH_START:
    GST_DEBUG_OBJECT (self, "flush: all answers end");
    lychee_answer_queue_flush_start (self->queue, event);
    return GST_FLOW_OK;
  case GST_EVENT_FLUSH_STOP:
    self->flushed = TRUE;
    lychee_answer_queue_flush_stop (self->queue, event);
    return GST_FLOW_OK;
  case GST_EVENT_STREAM_START:
    /* Which cache what comes belongs to is said by each buffer; until one comes there is none. */
    gst_lychee_decoder_forget_transcript (self);
    lychee_answer_queue_forget_result (self->queue);
    break;
  case GST_EVENT_CAPS:
    gst_event_parse_caps (event, &caps);
    ret = gst_lychee_decoder_set_caps (self, caps);
    gst_event_unref (event);
    return ret;
  case GST_EVENT_SEGMENT:
    return gst_lychee_decoder_segment (self, event);
  case GST_EVENT_EOS:
    return gst_lychee_decoder_end (self, event);
  case GST_EVENT_GAP:
    return gst_lychee_decoder_gap (self, event);
  case GST_EVENT_CUSTOM_DOWNSTREAM:
  case GST_EVENT_CUSTOM_DOWNSTREAM_OOB:
    /* The elements before this one handed on what they held when it passed them. */
    if (gst_lychee_decoder_take_event (
            self, event, GST_EVENT_TYPE (event) == GST_EVENT_CUSTOM_DOWNSTREAM))
      return GST_FLOW_OK;
    if (gst_event_has_name (event, LYCHEE_BACKLOG_EVENT)) {
      guint chunks = 0;

      gst_structure_get_uint (gst_event_get_structure (event), "chunks", &chunks);
      lychee_answer_queue_note_backlog (self->queue, chunks);
      gst_event_unref (event);
      return GST_FLOW_OK;
    }
    if (gst_event_has_name (event, LYCHEE_DRAIN_EVENT)) {
      gst_lychee_decoder_end_drain (self, event);
      return GST_FLOW_OK;
    }
    if (gst_event_has_name (event, "lychee-truncated")) {
      GST_OBJECT_LOCK (self);
      self->truncated = TRUE;
      GST_OBJECT_UNLOCK (self);
      gst_event_unref (event);
      return GST_FLOW_OK;
    }
    break;
  default:
    break;
  }
  if (GST_EVENT_IS_SERIALIZED (event))
    return lychee_answer_queue_push_event (self->queue, event);
  return gst_pad_event_default (pad, parent, event) ? GST_FLOW_OK : GST_FLOW_ERROR;
}

gboolean
gst_lychee_decoder_src_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);

  /* An answer is as late as the model is slow, and to leave out words would not help that. */
  if (GST_EVENT_TYPE (event) == GST_EVENT_QOS) {
    gst_event_unref (event);
    return TRUE;
  }
  return gst_lychee_decoder_take_event (self, event, FALSE) ||
         gst_pad_event_default (pad, parent, event);
}

/* Has keys and values kept where this element computes: on a CUDA device, or on the host. */
static void
gst_lychee_decoder_propose_allocation (GstLycheeDecoder *self, GstQuery *query)
{
  if (self->allocator == NULL) {
    LycheeModel *model = NULL;
    LycheeHolder *holder = NULL;
    g_autoptr (GError) error = NULL;
    LycheeBackendType backend;
    guint device;

    g_object_get (self, "backend", &backend, "cuda-device", &device, NULL);
    if (backend != LYCHEE_BACKEND_CPU)
      model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
    if (model != NULL)
      holder = lychee_holder_new (model, backend, device, &error);
    g_clear_object (&model);
    if (error != NULL) /* it will be an error when something is asked */
      GST_INFO_OBJECT (self, "%s", error->message);
    self->allocator = lychee_kv_allocator_new (holder);
  }
  gst_query_add_allocation_param (query, GST_ALLOCATOR (self->allocator), NULL);
  gst_query_add_allocation_meta (query, LYCHEE_KV_META_API_TYPE, NULL);
}

gboolean
gst_lychee_decoder_sink_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);

  if (lychee_model_slot_answer_query (&self->slot, GST_ELEMENT (self), query))
    return TRUE;
  if (GST_QUERY_TYPE (query) == GST_QUERY_ALLOCATION) {
    gst_lychee_decoder_propose_allocation (self, query);
    return TRUE;
  }
  return gst_pad_query_default (pad, parent, query);
}

/* An answer's time is that of its question: how long the model will take is not known, so it is no
 * part of the latency. What is asked waits as long as it has to, so the latency has no upper limit.
 */
static gboolean
gst_lychee_decoder_latency (GstLycheeDecoder *self, GstQuery *query)
{
  GstClockTime min;
  gboolean live;

  if (!gst_pad_peer_query (self->sinkpad, query))
    return FALSE;
  gst_query_parse_latency (query, &live, &min, NULL);
  gst_query_set_latency (query, live, min, GST_CLOCK_TIME_NONE);
  return TRUE;
}

gboolean
gst_lychee_decoder_src_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);

  if (lychee_model_slot_answer_query (&self->slot, GST_ELEMENT (self), query))
    return TRUE;
  if (GST_QUERY_TYPE (query) == GST_QUERY_LATENCY)
    return gst_lychee_decoder_latency (self, query);
  return gst_pad_query_default (pad, parent, query);
}

gboolean
gst_lychee_decoder_src_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active)
{
  return mode == GST_PAD_MODE_PUSH &&
         lychee_answer_queue_set_active (GST_LYCHEE_DECODER (parent)->queue, active);
}
