/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gstlycheetranscriptparse-private.h"

#include <string.h>

#include "lychee-meta.h"

GST_DEBUG_CATEGORY_EXTERN (lychee_transcript_parse_debug);
#define GST_CAT_DEFAULT lychee_transcript_parse_debug

/* From what comes in to what goes out: bytes or cues, through the parser and the hygiene, as
 * buffers with their events. */

/* What may be held where the end of the input can be waited for, and where it cannot. */
#define FILE_BYTES (64 * 1024 * 1024)
#define COLLECTED_BYTES (32 * 1024 * 1024)
#define STREAM_BYTES (1024 * 1024)

static void
note_stats (GstLycheeTranscriptParse *self)
{
  GST_OBJECT_LOCK (self);
  if (self->parser != NULL) {
    self->report = lychee_transcript_parser_get_report (self->parser);
    self->found_format = lychee_transcript_parser_get_format (self->parser);
  }
  self->hygiene_report = lychee_hygiene_get_report (self->hygiene);
  GST_OBJECT_UNLOCK (self);
}

/* Forgets all text: what comes is the beginning of a transcript. */
void
gst_lychee_transcript_parse_reset (GstLycheeTranscriptParse *self)
{
  g_clear_object (&self->parser);
  g_clear_pointer (&self->collected, g_byte_array_unref);
  lychee_hygiene_reset (self->hygiene);
  for (guint i = 0; i < self->parsed->len; i++)
    lychee_cue_free (g_ptr_array_index (self->parsed, i));
  g_ptr_array_set_size (self->parsed, 0);
  g_ptr_array_set_size (self->clean, 0);
  self->offset = 0;
  self->refused = FALSE;
  self->finals = FALSE;
  self->discont = TRUE;
  lychee_wait_since (&self->wait, GST_CLOCK_TIME_NONE);
  GST_OBJECT_LOCK (self);
  self->n_bytes = 0;
  GST_OBJECT_UNLOCK (self);
}

LycheeTranscriptSurvey *
gst_lychee_transcript_parse_new_survey (GstLycheeTranscriptParse *self)
{
  LycheeTranscriptSurvey *survey;

  GST_OBJECT_LOCK (self);
  survey = lychee_transcript_survey_new (self->format, self->encoding);
  GST_OBJECT_UNLOCK (self);
  return survey;
}

/* The survey is done: the hygiene and queries know what it found. */
void
gst_lychee_transcript_parse_end_survey (GstLycheeTranscriptParse *self)
{
  lychee_hygiene_set_survey (self->hygiene, self->survey);
  GST_OBJECT_LOCK (self);
  self->end_time = lychee_transcript_survey_get_end_time (self->survey);
  if (self->end_time > 0)
    self->segment.duration = self->end_time;
  GST_OBJECT_UNLOCK (self);
  gst_element_post_message (
      GST_ELEMENT (self), gst_message_new_duration_changed (GST_OBJECT (self)));
}

static void
ensure_parser (GstLycheeTranscriptParse *self)
{
  LycheeTranscriptFormat format;
  g_autofree char *encoding = NULL;

  if (self->parser != NULL)
    return;
  GST_OBJECT_LOCK (self);
  format = self->format;
  encoding = g_strdup (self->encoding);
  GST_OBJECT_UNLOCK (self);
  self->parser = lychee_transcript_parser_new (format, encoding);
  if (self->survey != NULL || self->is_file)
    lychee_transcript_parser_set_patience (self->parser, G_MAXUINT64, FILE_BYTES);
  else
    lychee_transcript_parser_set_patience (
        self->parser, lychee_wait_get_max (&self->wait), STREAM_BYTES);
  if (self->survey != NULL)
    lychee_transcript_parser_set_survey (self->parser, self->survey);
}

/* Events that go before the first buffer. */
void
gst_lychee_transcript_parse_send_events (GstLycheeTranscriptParse *self)
{
  const char *language;

  if (!self->stream_started && self->pulling) {
    g_autofree char *id = gst_pad_create_stream_id (self->srcpad, GST_ELEMENT (self), NULL);
    GstEvent *event = gst_event_new_stream_start (id);

    gst_event_set_group_id (event, gst_util_group_id_next ());
    gst_pad_push_event (self->srcpad, event);
    self->stream_started = TRUE;
  }
  if (!self->caps_sent) {
    GstCaps *caps = gst_pad_get_pad_template_caps (self->srcpad);

    gst_pad_set_caps (self->srcpad, caps);
    gst_caps_unref (caps);
    self->caps_sent = TRUE;
  }
  if (self->segment_pending) {
    GstEvent *event = gst_event_new_segment (&self->segment);

    if (self->seqnum != GST_SEQNUM_INVALID)
      gst_event_set_seqnum (event, self->seqnum);
    gst_pad_push_event (self->srcpad, event);
    self->segment_pending = FALSE;
  }
  language = self->parser != NULL ? lychee_transcript_parser_get_language (self->parser) : NULL;
  if (language != NULL && !self->language_sent) {
    /* Codes have two or three letters, and may go on with a country. */
    gboolean code = strcspn (language, "-_") <= 3;
    g_autofree char *value =
        code ? g_ascii_strdown (language, strcspn (language, "-_")) : g_strdup (language);

    gst_pad_push_event (self->srcpad,
        gst_event_new_tag (
            gst_tag_list_new (code ? GST_TAG_LANGUAGE_CODE : GST_TAG_LANGUAGE_NAME, value, NULL)));
    self->language_sent = TRUE;
  }
}

static GstBuffer *
buffer_of_cue (GstLycheeTranscriptParse *self, LycheeCue *cue)
{
  gboolean timed = cue->start != LYCHEE_TIME_NONE;
  char *text;
  gsize length;
  GstBuffer *buffer;

  /* Lines of plain text are one running text, with its line ends. */
  text = timed ? g_steal_pointer (&cue->text)
               : g_strconcat (cue->flags & LYCHEE_CUE_PARAGRAPH ? "\n" : "", cue->text,
                     cue->flags & LYCHEE_CUE_CONTINUES ? "" : "\n", NULL);
  length = strlen (text);
  /* A NUL is behind the text, for those who look for one. */
  buffer = gst_buffer_new_wrapped_full (0, text, length + 1, 0, length, text, g_free);
  if (cue->speaker != NULL)
    lychee_buffer_add_text_meta (buffer, text, length, cue->speaker, NULL, 0);
  if (timed) {
    GST_BUFFER_PTS (buffer) = cue->start;
    if (cue->end != LYCHEE_TIME_NONE && cue->end >= cue->start)
      GST_BUFFER_DURATION (buffer) = cue->end - cue->start;
  }
  if (self->discont) {
    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
    self->discont = FALSE;
  }
  return buffer;
}

/* Whether a cue is within the segment; what is not was not asked for. */
static gboolean
is_in_segment (GstLycheeTranscriptParse *self, const LycheeCue *cue)
{
  guint64 end = cue->end != LYCHEE_TIME_NONE ? cue->end : cue->start;

  if (cue->start == LYCHEE_TIME_NONE)
    return TRUE;
  return gst_segment_clip (&self->segment, GST_FORMAT_TIME, cue->start, end, NULL, NULL);
}

static GstFlowReturn
push_clean (GstLycheeTranscriptParse *self)
{
  GstFlowReturn ret = GST_FLOW_OK;

  note_stats (self);
  for (guint i = 0; i < self->clean->len && ret == GST_FLOW_OK; i++) {
    LycheeCue *cue = g_ptr_array_index (self->clean, i);

    if (!is_in_segment (self, cue)) {
      if (cue->start != LYCHEE_TIME_NONE && self->segment.stop != GST_CLOCK_TIME_NONE &&
          cue->start >= self->segment.stop && !self->upstream_timed)
        ret = GST_FLOW_EOS;
      continue;
    }
    gst_lychee_transcript_parse_send_events (self);
    if (cue->start != LYCHEE_TIME_NONE) {
      GST_OBJECT_LOCK (self);
      self->position = cue->start;
      self->segment.position = cue->start;
      GST_OBJECT_UNLOCK (self);
    }
    ret = gst_pad_push (self->srcpad, buffer_of_cue (self, cue));
  }
  g_ptr_array_set_size (self->clean, 0);
  return ret;
}

/* Brings the cues that were parsed through the hygiene and downstream. */
static GstFlowReturn
push_parsed (GstLycheeTranscriptParse *self)
{
  for (guint i = 0; i < self->parsed->len; i++)
    lychee_hygiene_push (self->hygiene, g_ptr_array_index (self->parsed, i), self->clean);
  g_ptr_array_set_size (self->parsed, 0);
  return push_clean (self);
}

/* Refuses what @parser found to be no text: noise that is read as speech spoils all that comes of
 * it. */
static gboolean
is_text (GstLycheeTranscriptParse *self, LycheeTranscriptParser *parser)
{
  LycheeTranscriptReport report = lychee_transcript_parser_get_report (parser);

  if (!report.binary)
    return TRUE;
  for (guint i = 0; i < self->parsed->len; i++)
    lychee_cue_free (g_ptr_array_index (self->parsed, i));
  g_ptr_array_set_size (self->parsed, 0);
  if (!self->refused && report.document != NULL)
    GST_ELEMENT_ERROR (self, STREAM, WRONG_TYPE,
        ("This is no transcript as text, but %s: open it and save what is in it as plain text "
         "(.txt), or let the meeting service export the transcript as VTT, SRT or TXT.",
            report.document),
        (NULL));
  else if (!self->refused)
    GST_ELEMENT_ERROR (self, STREAM, WRONG_TYPE,
        ("This is no transcript: it begins with bytes that are no text in any encoding, as those "
         "of "
         "a program, a recording or a compressed file. Sound goes through a speech recogniser "
         "first; "
         "text in UTF-16 without a byte order mark needs encoding=UTF-16LE or UTF-16BE."),
        (NULL));
  self->refused = TRUE;
  return FALSE;
}

/* Whether @data, the beginning, is text; posts an error where it is not. */
gboolean
gst_lychee_transcript_parse_begins_with_text (
    GstLycheeTranscriptParse *self, const guint8 *data, gsize size)
{
  g_autoptr (LycheeTranscriptParser) parser = NULL;

  GST_OBJECT_LOCK (self);
  parser = lychee_transcript_parser_new (self->format, self->encoding);
  GST_OBJECT_UNLOCK (self);
  lychee_transcript_parser_push (parser, data, size, self->parsed);
  for (guint i = 0; i < self->parsed->len; i++)
    lychee_cue_free (g_ptr_array_index (self->parsed, i));
  g_ptr_array_set_size (self->parsed, 0);
  return is_text (self, parser);
}

static GstFlowReturn
parse_data (GstLycheeTranscriptParse *self, const guint8 *data, gsize size)
{
  ensure_parser (self);
  lychee_transcript_parser_push (self->parser, data, size, self->parsed);
  return is_text (self, self->parser) ? push_parsed (self) : GST_FLOW_ERROR;
}

/* Of a file that is pushed, all is collected until its end, and then read as if it had been pulled;
 * unless there is too much of it. */
static GstFlowReturn
collect_data (GstLycheeTranscriptParse *self, const guint8 *data, gsize size)
{
  GstFlowReturn ret;

  g_byte_array_append (self->collected, data, size);
  if (self->collected->len <= COLLECTED_BYTES)
    return GST_FLOW_OK;
  ret = parse_data (self, self->collected->data, self->collected->len);
  g_clear_pointer (&self->collected, g_byte_array_unref);
  return ret;
}

static GstFlowReturn
parse_collected (GstLycheeTranscriptParse *self)
{
  g_autoptr (GByteArray) data = g_steal_pointer (&self->collected);

  if (data == NULL)
    return GST_FLOW_OK;
  g_clear_object (&self->survey);
  self->survey = gst_lychee_transcript_parse_new_survey (self);
  do
    lychee_transcript_survey_push (self->survey, data->data, data->len);
  while (lychee_transcript_survey_end (self->survey));
  gst_lychee_transcript_parse_end_survey (self);
  return parse_data (self, data->data, data->len);
}

GstFlowReturn
gst_lychee_transcript_parse_bytes (GstLycheeTranscriptParse *self, GstBuffer *buffer)
{
  GstMapInfo map;
  GstFlowReturn ret;

  if (!gst_buffer_map (buffer, &map, GST_MAP_READ)) {
    GST_ELEMENT_ERROR (
        self, RESOURCE, READ, ("The transcript could not be read."), ("gst_buffer_map failed"));
    return GST_FLOW_ERROR;
  }
  GST_OBJECT_LOCK (self);
  self->n_bytes += map.size;
  GST_OBJECT_UNLOCK (self);
  ret = self->collected != NULL ? collect_data (self, map.data, map.size)
                                : parse_data (self, map.data, map.size);
  gst_buffer_unmap (buffer, &map);
  return ret;
}

static GstFlowReturn
parse_cue (GstLycheeTranscriptParse *self, GstBuffer *buffer)
{
  GstMapInfo map;
  LycheeCue *cue;
  LycheeTextMeta *meta = lychee_buffer_get_text_meta (buffer);

  if (!gst_buffer_map (buffer, &map, GST_MAP_READ)) {
    GST_ELEMENT_ERROR (
        self, RESOURCE, READ, ("The transcript could not be read."), ("gst_buffer_map failed"));
    return GST_FLOW_ERROR;
  }
  if (self->input == INPUT_DIALOGUE)
    cue = lychee_transcript_parse_dialogue ((const char *) map.data, map.size);
  else
    cue = lychee_transcript_parse_text ((const char *) map.data, map.size);
  gst_buffer_unmap (buffer, &map);

  if (self->input == INPUT_CUES && self->markup)
    cue->markup = LYCHEE_CUE_MARKUP_SUBRIP;
  if (meta != NULL && cue->speaker == NULL)
    cue->speaker = g_strdup (meta->speaker);
  if (GST_BUFFER_PTS_IS_VALID (buffer)) {
    cue->start = GST_BUFFER_PTS (buffer);
    if (GST_BUFFER_DURATION_IS_VALID (buffer))
      cue->end = cue->start + GST_BUFFER_DURATION (buffer);
    /* A recogniser may say the same again, better. */
    if (self->input == INPUT_CUES)
      cue->flags |= LYCHEE_CUE_PARTIAL;
  }
  g_ptr_array_add (self->parsed, cue);
  return push_parsed (self);
}

static void
append_count (GString *text, guint64 n, const char *one, const char *many)
{
  if (n > 0)
    g_string_append_printf (
        text, "%s%" G_GUINT64_FORMAT " %s", text->len > 0 ? "; " : "", n, n == 1 ? one : many);
}

/* Tells, once, what was repaired. */
static void
warn (GstLycheeTranscriptParse *self)
{
  LycheeTranscriptReport report = self->report;
  g_autoptr (GString) text = g_string_new (NULL);

  if (self->warned || self->parser == NULL)
    return;
  self->warned = TRUE;
  append_count (text, report.replaced, "byte is not of its encoding, and was read as U+FFFD",
      "bytes are not of its encoding, and were read as U+FFFD");
  append_count (
      text, report.controls, "control character was left out", "control characters were left out");
  append_count (text, report.untimed, "time could not be read, and is an estimate",
      "times could not be read, and are estimates");
  append_count (text, report.backward, "cue did not end after it began, and got an estimated end",
      "cues did not end after they began, and got estimated ends");
  append_count (text, report.reordered - MIN (report.late, report.reordered),
      "cue was out of order, and was put in its place",
      "cues were out of order, and were put in their places");
  append_count (text, report.late, "cue came too late to be put in order",
      "cues came too late to be put in order");
  append_count (text, report.restarts, "time the clock began anew, and went on instead",
      "times the clock began anew, and went on instead");
  if (text->len > 0)
    GST_ELEMENT_WARNING (
        self, STREAM, DECODE, ("The transcript was repaired: %s.", text->str), (NULL));
  if (report.fault != NULL)
    GST_ELEMENT_WARNING (self, STREAM, DECODE,
        ("The transcript is JSON that is broken at line %" G_GUINT64_FORMAT
         ", character %" G_GUINT64_FORMAT ": %s. What could be read of it was read.",
            report.fault_line, report.fault_column, report.fault),
        (NULL));
  if (report.guessed)
    GST_ELEMENT_WARNING (self, STREAM, DECODE,
        ("The transcript is not UTF-8, and was read as %s, which is a guess: set the property "
         "encoding if that is wrong.",
            report.encoding),
        (NULL));
}

/* Whether something could be read of what is broken. */
static gboolean
is_readable (GstLycheeTranscriptParse *self)
{
  LycheeTranscriptReport report = self->report;

  if (report.fault == NULL || report.cues > 0)
    return TRUE;
  GST_ELEMENT_ERROR (self, STREAM, DECODE,
      ("The transcript is JSON that is broken at line %" G_GUINT64_FORMAT
       ", character %" G_GUINT64_FORMAT ": %s. No words could be read of it: get or save it anew; "
       "text that only begins like JSON is read with format=text.",
          report.fault_line, report.fault_column, report.fault),
      (NULL));
  return FALSE;
}

GstFlowReturn
gst_lychee_transcript_parse_finish (GstLycheeTranscriptParse *self)
{
  GstFlowReturn ret = parse_collected (self);

  if (self->parser != NULL) {
    lychee_transcript_parser_finish (self->parser, self->parsed);
    if (!is_text (self, self->parser))
      return GST_FLOW_ERROR;
  }
  if (ret == GST_FLOW_OK)
    ret = push_parsed (self);
  lychee_hygiene_drain (self->hygiene, self->clean);
  if (ret == GST_FLOW_OK)
    ret = push_clean (self);
  note_stats (self);
  if (!is_readable (self))
    return GST_FLOW_ERROR;
  warn (self);
  return ret;
}

void
gst_lychee_transcript_parse_hasten (GstElement *element)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (element);

  lychee_wait_since (&self->wait, GST_CLOCK_TIME_NONE);
  if (self->parser != NULL)
    lychee_transcript_parser_release (self->parser, self->parsed);
  push_parsed (self);
  lychee_hygiene_end_hypothesis (self->hygiene, self->clean);
  push_clean (self);
}

/* The last cue of a live stream is handed on when none has come behind it for so long. Where the
 * recogniser says itself what is final, that is waited for. */
static void
wait_for_more (GstLycheeTranscriptParse *self)
{
  lychee_wait_since (
      &self->wait, self->finals ? GST_CLOCK_TIME_NONE : lychee_wait_get_now (&self->wait));
}

GstFlowReturn
gst_lychee_transcript_parse_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (parent);
  GstFlowReturn ret;

  if (GST_BUFFER_IS_DISCONT (buffer))
    self->discont = TRUE;
  ret = self->input == INPUT_BYTES ? gst_lychee_transcript_parse_bytes (self, buffer)
                                   : parse_cue (self, buffer);
  gst_buffer_unref (buffer);
  wait_for_more (self);
  return ret;
}

static gboolean
sink_caps (GstLycheeTranscriptParse *self, GstCaps *caps)
{
  const GstStructure *structure = gst_caps_get_structure (caps, 0);

  self->markup = g_strcmp0 (gst_structure_get_string (structure, "format"), "pango-markup") == 0;
  if (gst_structure_has_name (structure, "text/x-raw"))
    self->input = INPUT_CUES;
  else if (gst_structure_has_field (structure, "codec_data"))
    self->input = INPUT_DIALOGUE;
  else
    self->input = INPUT_BYTES;
  return TRUE;
}

/* Whether upstream could be read from the beginning again: its end is not far. */
static gboolean
upstream_is_file (GstLycheeTranscriptParse *self)
{
  GstQuery *query = gst_query_new_seeking (GST_FORMAT_BYTES);
  gboolean seekable = FALSE;

  if (gst_pad_peer_query (self->sinkpad, query))
    gst_query_parse_seeking (query, NULL, &seekable, NULL, NULL);
  gst_query_unref (query);
  return seekable;
}

static void
sink_segment (GstLycheeTranscriptParse *self, GstEvent *event)
{
  const GstSegment *segment;
  GstCaps *caps = gst_pad_get_current_caps (self->sinkpad);

  gst_event_parse_segment (event, &segment);
  self->upstream_timed = segment->format == GST_FORMAT_TIME;
  if (self->upstream_timed) {
    /* Plain text with times of its own is a recogniser's. */
    if (caps != NULL && gst_structure_has_name (gst_caps_get_structure (caps, 0), "text/plain"))
      self->input = INPUT_CUES;
    lychee_hygiene_drain (self->hygiene, self->clean);
    push_clean (self);
    gst_segment_copy_into (segment, &self->segment);
  } else {
    if (self->input == INPUT_CUES) /* blocks of a file */
      self->input = INPUT_BYTES;
    GST_OBJECT_LOCK (self);
    if (self->is_sought) {
      gst_segment_copy_into (&self->sought, &self->segment);
      self->position = self->sought.start;
    }
    self->is_sought = FALSE;
    GST_OBJECT_UNLOCK (self);
    self->is_file = upstream_is_file (self);
    if (self->is_file && self->collected == NULL && self->n_bytes == 0)
      self->collected = g_byte_array_new ();
  }
  gst_clear_caps (&caps);
  lychee_wait_note_segment (&self->wait);
  self->segment_pending = TRUE;
  self->seqnum = gst_event_get_seqnum (event);
}

gboolean
gst_lychee_transcript_parse_sink_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (parent);
  const GstStructure *structure;
  GstCaps *caps;
  gboolean ret = TRUE;

  GST_LOG_OBJECT (self, "%" GST_PTR_FORMAT, event);

  switch (GST_EVENT_TYPE (event)) {
  case GST_EVENT_STREAM_START:
    self->stream_started = TRUE;
    break;
  case GST_EVENT_CAPS:
    gst_event_parse_caps (event, &caps);
    ret = sink_caps (self, caps);
    gst_event_unref (event);
    return ret;
  case GST_EVENT_SEGMENT:
    sink_segment (self, event);
    gst_event_unref (event);
    return TRUE;
  case GST_EVENT_GAP:
    lychee_hygiene_drain (self->hygiene, self->clean);
    push_clean (self);
    gst_lychee_transcript_parse_send_events (self);
    break;
  case GST_EVENT_EOS:
    gst_lychee_transcript_parse_finish (self);
    gst_lychee_transcript_parse_send_events (self);
    break;
  case GST_EVENT_FLUSH_STOP:
    gst_lychee_transcript_parse_reset (self);
    self->segment_pending = TRUE; /* the one that was sought, or the next */
    break;
  case GST_EVENT_CUSTOM_DOWNSTREAM:
    structure = gst_event_get_structure (event);
    if (gst_structure_has_name (structure, "rstranscribe/final-transcript")) {
      self->finals = TRUE;
      lychee_wait_since (&self->wait, GST_CLOCK_TIME_NONE);
      lychee_hygiene_end_hypothesis (self->hygiene, self->clean);
    } else if (gst_structure_has_name (structure, "rstranscribe/speaker-change")) {
      lychee_hygiene_set_speaker (
          self->hygiene, gst_structure_get_string (structure, "speaker"), self->clean);
    }
    push_clean (self);
    break;
  default:
    break;
  }
  return gst_pad_event_default (pad, parent, event);
}
