/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * SECTION:element-lycheetranscriptparse
 * @title: lycheetranscriptparse
 *
 * Reads transcripts: SubRip, WebVTT, the JSON of speech recognisers, tables (CSV, TSV), plain text
 * and saved chats, TTML, ASS and SSA, MicroDVD, MPL2, LRC, SCC; in any encoding, however broken.
 *
 * Each cue is a buffer of UTF-8 with its times, and a LycheeTextMeta where it is known who speaks.
 * A line of plain text is a cue without times, and ends in a newline. Nothing that is said is left
 * out: what is wrong around it is repaired, of which a warning message tells at the end. What is no
 * text at all is an error.
 *
 * As from other parsers of subtitles, a cue with times does not end in a newline: in an `fdsink`
 * cues run together. To see them as lines or keep them, put `webvttenc` or `srtenc` before the
 * sink.
 *
 * What is not said is taken out: markup, lines that rolling captions show again, loops of a
 * recogniser. Each kind has a property, and a counter in #lycheetranscriptparse:stats.
 *
 * Input can be bytes, pushed or pulled. If the source can be read twice, the whole transcript is
 * looked over first: its encoding is known for certain, and its cues come in order of time. In a
 * live stream a cue is held for #lycheetranscriptparse:max-reorder at most, by its times or by the
 * clock, which is part of the pipeline's latency. Input can also be text with
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

GST_DEBUG_CATEGORY (lychee_transcript_parse_debug);
#define GST_CAT_DEFAULT lychee_transcript_parse_debug

#define DEFAULT_MAX_REORDER (2 * GST_SECOND)

enum {
  PROP_0,
  PROP_FORMAT,
  PROP_ENCODING,
  PROP_MAX_REORDER,
  PROP_STATS,
  PROP_HYGIENE, /* the first of the hygiene's */
};

static GstStaticPadTemplate sink_template = GST_STATIC_PAD_TEMPLATE ("sink", GST_PAD_SINK,
    GST_PAD_ALWAYS,
    GST_STATIC_CAPS ("application/x-lychee-transcript; application/x-subtitle; "
                     "application/x-subtitle-vtt; text/vtt; application/x-ass; application/x-ssa; "
                     "application/json; application/ttml+xml; "
                     "application/x-subtitle-sami; text/plain; "
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

/* The hygiene's properties are the element's, under the same names. */
static void
install_hygiene_properties (GObjectClass *object_class)
{
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY;
  GObjectClass *hygiene_class = g_type_class_ref (LYCHEE_TYPE_HYGIENE);
  guint n;
  g_autofree GParamSpec **pspecs = g_object_class_list_properties (hygiene_class, &n);

  for (guint i = 0; i < n; i++) {
    const char *name = pspecs[i]->name, *nick = g_param_spec_get_nick (pspecs[i]);
    const char *blurb = g_param_spec_get_blurb (pspecs[i]);
    const GValue *value = g_param_spec_get_default_value (pspecs[i]);

    g_object_class_install_property (object_class, PROP_HYGIENE + i,
        G_VALUE_HOLDS_BOOLEAN (value)
            ? g_param_spec_boolean (name, nick, blurb, g_value_get_boolean (value), flags)
            : g_param_spec_enum (
                  name, nick, blurb, G_VALUE_TYPE (value), g_value_get_enum (value), flags));
  }
  g_type_class_unref (hygiene_class);
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
   * Where the source is live, it is also held no longer than that when nothing comes at all, but
   * for a recogniser that tells which of its hypotheses are final, and for a sentence that is said
   * again, of which it is not known yet whether it becomes a loop. A file is always put in order as
   * a whole.
   */
  g_object_class_install_property (object_class, PROP_MAX_REORDER,
      g_param_spec_uint64 ("max-reorder", "Maximum reorder time",
          "In a stream, nanoseconds that a cue may come too late and still be put in order; live, "
          "part of the latency",
          0, G_MAXUINT64, DEFAULT_MAX_REORDER,
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
      "Reads transcripts (SRT, WebVTT, JSON, CSV, TTML, ASS, SCC, plain text), however broken",
      "The Lychee authors");
  gst_type_mark_as_plugin_api (LYCHEE_TYPE_TRANSCRIPT_FORMAT, 0);
  gst_type_mark_as_plugin_api (LYCHEE_TYPE_SPEAKER_LABELS, 0);
}

static void
gst_lychee_transcript_parse_init (GstLycheeTranscriptParse *self)
{
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
  lychee_wait_init (&self->wait, GST_ELEMENT (self), self->sinkpad, DEFAULT_MAX_REORDER,
      gst_lychee_transcript_parse_hasten);

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
  lychee_wait_clear (&self->wait);
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
    lychee_wait_set_max (&self->wait, g_value_get_uint64 (value));
    break;
  default:
    if (id >= PROP_HYGIENE)
      g_object_set_property (G_OBJECT (self->hygiene), pspec->name, value);
    else
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
    g_value_set_uint64 (value, lychee_wait_get_max (&self->wait));
    break;
  case PROP_STATS:
    g_value_take_boxed (value, get_stats (self));
    break;
  default:
    if (id >= PROP_HYGIENE)
      g_object_get_property (G_OBJECT (self->hygiene), pspec->name, value);
    else
      G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static gboolean
check_encoding (GstLycheeTranscriptParse *self)
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

static GstStateChangeReturn
gst_lychee_transcript_parse_change_state (GstElement *element, GstStateChange transition)
{
  GstLycheeTranscriptParse *self = GST_LYCHEE_TRANSCRIPT_PARSE (element);
  GstStateChangeReturn ret;

  if (transition == GST_STATE_CHANGE_NULL_TO_READY && !check_encoding (self))
    return GST_STATE_CHANGE_FAILURE;

  ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);

  lychee_wait_change_state (&self->wait, transition);
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
