/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * SECTION:element-lycheetranscriptparse
 * @title: lycheetranscriptparse
 *
 * Reads transcripts: SubRip, WebVTT, ASS and SSA, the JSON of speech recognisers, plain text; in
 * any encoding, however broken.
 *
 * Each cue is a buffer of UTF-8 with its times, and a LycheeTextMeta where it is known who speaks.
 * A line of plain text is a cue without times, and ends in a newline. Nothing that is said is left
 * out: what is wrong around it is repaired, of which a warning message tells at the end.
 *
 * What is not said is taken out: markup, lines that rolling captions show again, loops of a
 * recogniser. Each kind has a property, and a counter in #lycheetranscriptparse:stats.
 *
 * Input can be bytes, pushed or pulled. If the source can be read twice, the whole transcript is
 * looked over first: its encoding is known for certain, and its cues come in order of time. In a
 * live stream a cue is held for #lycheetranscriptparse:max-reorder. Input can also be text with
 * times, from a speech recogniser or another parser, in need of the same hygiene; the events
 * `rstranscribe/final-transcript` and `rstranscribe/speaker-change` are honoured.
 *
 * ## Example launch line
 * |[
 * gst-launch-1.0 filesrc location=talk.vtt ! lycheetranscriptparse ! lycheetokenizer !
 *     lycheechunker ! lycheeindexer ! lycheedecoder ! fdsink
 * ]|
 */

#include "gstlycheetranscriptparse-private.h"

#include <string.h>

#include "lychee-meta.h"

GST_DEBUG_CATEGORY (lychee_transcript_parse_debug);
#define GST_CAT_DEFAULT lychee_transcript_parse_debug

#define DEFAULT_MAX_REORDER (2 * GST_SECOND)
/* What may be held where the end of the input can be waited for, and where it cannot. */
#define FILE_BYTES (64 * 1024 * 1024)
#define COLLECTED_BYTES (32 * 1024 * 1024)
#define STREAM_BYTES (1024 * 1024)

enum {
  PROP_0,
  PROP_FORMAT,
  PROP_ENCODING,
  PROP_MAX_REORDER,
  PROP_STATS,
  /* of the hygiene */
  PROP_MARKUP,
  PROP_SPEAKERS,
  PROP_SPEAKER_LABELS,
  PROP_ROLLING,
  PROP_LOOPS,
  PROP_DUPLICATES,
  PROP_PARTIALS,
};

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE ("sink", GST_PAD_SINK,
    GST_PAD_ALWAYS,
    GST_STATIC_CAPS ("application/x-lychee-transcript; application/x-subtitle; "
                     "application/x-subtitle-vtt; text/vtt; application/x-ass; application/x-ssa; "
                     "application/json; text/plain; "
                     "text/x-raw, format = (string) { utf8, pango-markup }"));

static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE (
    "src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS ("text/x-raw, format = (string) utf8"));

#define gst_lychee_transcript_parse_parent_class parent_class
G_DEFINE_TYPE_WITH_CODE (GstLycheeTranscriptParse, gst_lychee_transcript_parse, GST_TYPE_ELEMENT,
    GST_DEBUG_CATEGORY_INIT (
        lychee_transcript_parse_debug, "lycheetranscriptparse", 0, "Transcript parser"))
/* Before subparse, so that what finds elements by rank finds this one. */
GST_ELEMENT_REGISTER_DEFINE (lycheetranscriptparse, "lycheetranscriptparse", GST_RANK_PRIMARY + 1,
    GST_TYPE_LYCHEE_TRANSCRIPT_PARSE)

static void gst_lychee_transcript_parse_finalize (GObject *object);
static void gst_lychee_transcript_parse_set_property (
    GObject *object, guint id, const GValue *value, GParamSpec *pspec);
static void gst_lychee_transcript_parse_get_property (
    GObject *object, guint id, GValue *value, GParamSpec *pspec);
static GstStateChangeReturn gst_lychee_transcript_parse_change_state (
    GstElement *element, GstStateChange transition);
static GstFlowReturn gst_lychee_transcript_parse_chain (
    GstPad *pad, GstObject *parent, GstBuffer *buffer);
static gboolean gst_lychee_transcript_parse_sink_event (
    GstPad *pad, GstObject *parent, GstEvent *event);

static void
install_switch (
    GObjectClass *object_class, guint id, const char *name, const char *nick, const char *blurb)
{
  g_object_class_install_property (object_class, id,
      g_param_spec_boolean (name, nick, blurb, TRUE,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));
}

static void
install_hygiene_properties (GObjectClass *object_class)
{
  install_switch (object_class, PROP_MARKUP, "markup", "Markup",
      "Take out tags, override blocks and escapes, and decode entities");
  install_switch (object_class, PROP_SPEAKERS, "speakers", "Speakers",
      "Find out from labels and marks in the text (Ann:, >>, [SPEAKER_01]) who speaks");
  install_switch (object_class, PROP_ROLLING, "rolling", "Rolling captions",
      "Keep once the lines that rolling captions show again");
  install_switch (object_class, PROP_LOOPS, "loops", "Loops",
      "Keep once the sentences that a recogniser repeats over and over");
  install_switch (object_class, PROP_DUPLICATES, "duplicates", "Duplicates",
      "Keep once the cues that are there twice, with the same time");
  install_switch (object_class, PROP_PARTIALS, "partials", "Partial hypotheses",
      "Replace a recogniser's hypotheses by their last");

  /**
   * lycheetranscriptparse:speaker-labels:
   *
   * Which buffers' text begins with the speaker's name, as in "Ann: Good morning".
   */
  g_object_class_install_property (object_class, PROP_SPEAKER_LABELS,
      g_param_spec_enum ("speaker-labels", "Speaker labels",
          "Which cues begin with the speaker's name", LYCHEE_TYPE_SPEAKER_LABELS,
          LYCHEE_SPEAKER_LABELS_CHANGE,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));
}

static void
gst_lychee_transcript_parse_class_init (GstLycheeTranscriptParseClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GstElementClass *element_class = GST_ELEMENT_CLASS (klass);

  object_class->finalize = gst_lychee_transcript_parse_finalize;
  object_class->set_property = gst_lychee_transcript_parse_set_property;
  object_class->get_property = gst_lychee_transcript_parse_get_property;
  element_class->change_state = gst_lychee_transcript_parse_change_state;

  g_object_class_install_property (object_class, PROP_FORMAT,
      g_param_spec_enum ("format", "Format",
          "Format of the transcript (auto: as its content shows)", LYCHEE_TYPE_TRANSCRIPT_FORMAT,
          LYCHEE_TRANSCRIPT_FORMAT_AUTO,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheetranscriptparse:encoding:
   *
   * The encoding of input that has no byte order mark and is not UTF-8, a name that iconv knows:
   * windows-1251, Shift_JIS. Unset, it is the locale's, if that is not UTF-8; else it is guessed
   * from the bytes.
   */
  g_object_class_install_property (object_class, PROP_ENCODING,
      g_param_spec_string ("encoding", "Encoding",
          "Encoding of input that is not UTF-8 (unset: the locale's, or guessed)", NULL,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheetranscriptparse:max-reorder:
   *
   * In a stream, a cue is held until another begins so much later, for one that belongs before it.
   * A file is always put in order as a whole.
   */
  g_object_class_install_property (object_class, PROP_MAX_REORDER,
      g_param_spec_uint64 ("max-reorder", "Maximum reorder time",
          "In a stream, nanoseconds that a cue may come too late and still be put in order", 0,
          G_MAXUINT64, DEFAULT_MAX_REORDER,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));

  /**
   * lycheetranscriptparse:stats:
   *
   * What was read and repaired: `format`, `encoding`, `encoding-guessed`, `bytes`, `cues`,
   * `replaced`, `controls`, `empty`, `untimed`, `backward`, `reordered`, `late`, `restarts`; what
   * the hygiene did: `markup`, `entities`, `speakers`, `rolling`, `loops`, `duplicates`,
   * `partials`.
   */
  g_object_class_install_property (object_class, PROP_STATS,
      g_param_spec_boxed ("stats", "Statistics", "What was read and repaired", GST_TYPE_STRUCTURE,
          G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));

  install_hygiene_properties (object_class);

  gst_element_class_add_static_pad_template (element_class, &sink_template);
  gst_element_class_add_static_pad_template (element_class, &src_template);
  gst_element_class_set_static_metadata (element_class, "Lychee transcript parser",
      "Codec/Parser/Subtitle",
      "Reads transcripts (SRT, WebVTT, ASS, JSON, plain text), however broken",
      "The Lychee authors");
  gst_type_mark_as_plugin_api (LYCHEE_TYPE_TRANSCRIPT_FORMAT, 0);
  gst_type_mark_as_plugin_api (LYCHEE_TYPE_SPEAKER_LABELS, 0);
}

static void
gst_lychee_transcript_parse_init (GstLycheeTranscriptParse *self)
{
  self->max_reorder = DEFAULT_MAX_REORDER;
  self->hygiene = lychee_hygiene_new ();
  self->parsed = g_ptr_array_new ();
  self->clean = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  self->position = GST_CLOCK_TIME_NONE;
  self->end_time = GST_CLOCK_TIME_NONE;
  gst_segment_init (&self->segment, GST_FORMAT_TIME);
  self->segment_pending = TRUE;
  self->discont = TRUE;

  self->sinkpad = gst_pad_new_from_static_template (&sink_template, "sink");
  gst_pad_set_activate_function (self->sinkpad, gst_lychee_transcript_parse_activate);
  gst_pad_set_activatemode_function (self->sinkpad, gst_lychee_transcript_parse_activate_mode);
  gst_pad_set_chain_function (self->sinkpad, gst_lychee_transcript_parse_chain);
  gst_pad_set_event_function (self->sinkpad, gst_lychee_transcript_parse_sink_event);
  gst_element_add_pad (GST_ELEMENT (self), self->sinkpad);

  self->srcpad = gst_pad_new_from_static_template (&src_template, "src");
  gst_pad_set_event_function (self->srcpad, gst_lychee_transcript_parse_src_event);
  gst_pad_set_query_function (self->srcpad, gst_lychee_transcript_parse_src_query);
  gst_pad_use_fixed_caps (self->srcpad);
  gst_element_add_pad (GST_ELEMENT (self), self->srcpad);
}

static void
gst_lychee_transcript_parse_finalize (GObject *object)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (object);

  g_clear_object (&self->parser);
  g_clear_object (&self->survey);
  g_clear_pointer (&self->collected, g_byte_array_unref);
  g_object_unref (self->hygiene);
  g_ptr_array_unref (self->parsed);
  g_ptr_array_unref (self->clean);
  g_free (self->encoding);
  G_OBJECT_CLASS (parent_class)->finalize (object);
}

static void
gst_lychee_transcript_parse_set_property (
    GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (object);

  switch (id) {
  case PROP_FORMAT:
    GST_OBJECT_LOCK (self);
    self->format = g_value_get_enum (value);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_ENCODING:
    GST_OBJECT_LOCK (self);
    g_free (self->encoding);
    self->encoding = g_value_dup_string (value);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_MAX_REORDER:
    GST_OBJECT_LOCK (self);
    self->max_reorder = g_value_get_uint64 (value);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_MARKUP:
  case PROP_SPEAKERS:
  case PROP_SPEAKER_LABELS:
  case PROP_ROLLING:
  case PROP_LOOPS:
  case PROP_DUPLICATES:
  case PROP_PARTIALS:
    g_object_set_property (G_OBJECT (self->hygiene), pspec->name, value);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static GstStructure *
get_stats (GstLycheeTranscriptParse *self)
{
  GstStructure *stats;
  GEnumClass *formats = g_type_class_ref (LYCHEE_TYPE_TRANSCRIPT_FORMAT);
  LycheeTranscriptReport report;
  LycheeHygieneReport hygiene;
  GEnumValue *format;
  guint64 n_bytes;

  GST_OBJECT_LOCK (self);
  report = self->report;
  hygiene = self->hygiene_report;
  format = g_enum_get_value (formats, self->found_format);
  n_bytes = self->n_bytes;
  GST_OBJECT_UNLOCK (self);

  stats = gst_structure_new ("lychee-transcript-stats", "format", G_TYPE_STRING, format->value_nick,
      "encoding", G_TYPE_STRING, report.encoding != NULL ? report.encoding : "ASCII",
      "encoding-guessed", G_TYPE_BOOLEAN, report.guessed, "bytes", G_TYPE_UINT64, n_bytes, "cues",
      G_TYPE_UINT64, report.cues, "replaced", G_TYPE_UINT64, report.replaced, "controls",
      G_TYPE_UINT64, report.controls, "empty", G_TYPE_UINT64, report.empty, "untimed",
      G_TYPE_UINT64, report.untimed, "backward", G_TYPE_UINT64, report.backward, "reordered",
      G_TYPE_UINT64, report.reordered, "late", G_TYPE_UINT64, report.late, "restarts",
      G_TYPE_UINT64, report.restarts, "markup", G_TYPE_UINT64, hygiene.markup, "entities",
      G_TYPE_UINT64, hygiene.entities, "speakers", G_TYPE_UINT64, hygiene.speakers, "rolling",
      G_TYPE_UINT64, hygiene.rolling, "loops", G_TYPE_UINT64, hygiene.loops, "duplicates",
      G_TYPE_UINT64, hygiene.duplicates, "partials", G_TYPE_UINT64, hygiene.partials, NULL);
  g_type_class_unref (formats);
  return stats;
}

static void
gst_lychee_transcript_parse_get_property (
    GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (object);

  switch (id) {
  case PROP_FORMAT:
    GST_OBJECT_LOCK (self);
    g_value_set_enum (value, self->format);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_ENCODING:
    GST_OBJECT_LOCK (self);
    g_value_set_string (value, self->encoding);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_MAX_REORDER:
    GST_OBJECT_LOCK (self);
    g_value_set_uint64 (value, self->max_reorder);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_STATS:
    g_value_take_boxed (value, get_stats (self));
    break;
  case PROP_MARKUP:
  case PROP_SPEAKERS:
  case PROP_SPEAKER_LABELS:
  case PROP_ROLLING:
  case PROP_LOOPS:
  case PROP_DUPLICATES:
  case PROP_PARTIALS:
    g_object_get_property (G_OBJECT (self->hygiene), pspec->name, value);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

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
  self->discont = TRUE;
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
  GstClockTime max_reorder;

  if (self->parser != NULL)
    return;
  GST_OBJECT_LOCK (self);
  format = self->format;
  encoding = g_strdup (self->encoding);
  max_reorder = self->max_reorder;
  GST_OBJECT_UNLOCK (self);
  self->parser = lychee_transcript_parser_new (format, encoding);
  if (self->survey != NULL || self->is_file)
    lychee_transcript_parser_set_patience (self->parser, G_MAXUINT64, FILE_BYTES);
  else
    lychee_transcript_parser_set_patience (self->parser, max_reorder, STREAM_BYTES);
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
    GstCaps *caps = gst_static_pad_template_get_caps (&src_template);

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

static GstFlowReturn
parse_data (GstLycheeTranscriptParse *self, const guint8 *data, gsize size)
{
  ensure_parser (self);
  lychee_transcript_parser_push (self->parser, data, size, self->parsed);
  return push_parsed (self);
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
  if (report.guessed)
    GST_ELEMENT_WARNING (self, STREAM, DECODE,
        ("The transcript is not UTF-8, and was read as %s, which is a guess: set the property "
         "encoding if that is wrong.",
            report.encoding),
        (NULL));
}

GstFlowReturn
gst_lychee_transcript_parse_finish (GstLycheeTranscriptParse *self)
{
  GstFlowReturn ret = parse_collected (self);

  if (self->parser != NULL)
    lychee_transcript_parser_finish (self->parser, self->parsed);
  if (ret == GST_FLOW_OK)
    ret = push_parsed (self);
  lychee_hygiene_drain (self->hygiene, self->clean);
  if (ret == GST_FLOW_OK)
    ret = push_clean (self);
  note_stats (self);
  warn (self);
  return ret;
}

/* Push mode. */

gboolean
gst_lychee_transcript_parse_check_encoding (GstLycheeTranscriptParse *self)
{
  g_autofree char *encoding = NULL;

  GST_OBJECT_LOCK (self);
  encoding = g_strdup (self->encoding);
  GST_OBJECT_UNLOCK (self);
  if (encoding == NULL || *encoding == '\0' || lychee_transcript_encoding_is_known (encoding))
    return TRUE;
  GST_ELEMENT_ERROR (self, LIBRARY, SETTINGS,
      ("The encoding \"%s\" is not known here: \"iconv --list\" names those that are.", encoding),
      (NULL));
  return FALSE;
}

static GstFlowReturn
gst_lychee_transcript_parse_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (parent);
  GstFlowReturn ret;

  if (GST_BUFFER_IS_DISCONT (buffer))
    self->discont = TRUE;
  ret = self->input == INPUT_BYTES ? gst_lychee_transcript_parse_bytes (self, buffer)
                                   : parse_cue (self, buffer);
  gst_buffer_unref (buffer);
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
  self->segment_pending = TRUE;
  self->seqnum = gst_event_get_seqnum (event);
}

static gboolean
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
    if (gst_structure_has_name (structure, "rstranscribe/final-transcript"))
      lychee_hygiene_end_hypothesis (self->hygiene, self->clean);
    else if (gst_structure_has_name (structure, "rstranscribe/speaker-change"))
      lychee_hygiene_set_speaker (
          self->hygiene, gst_structure_get_string (structure, "speaker"), self->clean);
    push_clean (self);
    break;
  default:
    break;
  }
  return gst_pad_event_default (pad, parent, event);
}

static GstStateChangeReturn
gst_lychee_transcript_parse_change_state (GstElement *element, GstStateChange transition)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (element);
  GstStateChangeReturn ret;

  if (transition == GST_STATE_CHANGE_NULL_TO_READY &&
      !gst_lychee_transcript_parse_check_encoding (self))
    return GST_STATE_CHANGE_FAILURE;

  ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);

  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    gst_lychee_transcript_parse_reset (self);
    g_clear_object (&self->survey);
    lychee_hygiene_set_survey (self->hygiene, NULL);
    gst_segment_init (&self->segment, GST_FORMAT_TIME);
    self->segment_pending = TRUE;
    self->upstream_timed = FALSE;
    self->stream_started = FALSE;
    self->caps_sent = FALSE;
    self->language_sent = FALSE;
    self->warned = FALSE;
    self->is_file = FALSE;
    self->input = INPUT_BYTES;
    self->seqnum = GST_SEQNUM_INVALID;
    GST_OBJECT_LOCK (self);
    self->position = GST_CLOCK_TIME_NONE;
    self->end_time = GST_CLOCK_TIME_NONE;
    GST_OBJECT_UNLOCK (self);
  }
  return ret;
}
