/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * SECTION:element-lycheetokenizer
 * @title: lycheetokenizer
 *
 * Turns text into the token ids of a language model.
 *
 * Input is what subtitle parsers, speech recognisers and plain text files give: a cue, a line, a
 * word or any piece of text a buffer. Pieces are one running text: a word or a character that is
 * split over two buffers gives the same ids as the whole. A buffer that has a timestamp is a cue of
 * its own: unless there is white space already, a newline goes between it and the text before it,
 * or where cues are single words, what their script has between words: a space, but nothing in
 * Chinese, Japanese or Thai and nothing before a full stop (see #lycheetokenizer:separator).
 * Buffers without a timestamp (blocks of a file) are joined as they are.
 *
 * Where another person speaks than before, as a LycheeTextMeta or `rstranscribe/speaker-change`
 * events tell, a new line begins with the name, "Ann: ", unless the text itself does (see
 * #lycheetokenizer:speaker-labels).
 *
 * Pango markup is reduced to its text; what is not valid markup is taken as text. Control tokens
 * that are spelled out in the text, such as `<|im_end|>`, stay text. NUL bytes are dropped, and
 * what is not UTF-8 becomes U+FFFD, of which a warning message tells at the end.
 *
 * Output are native-endian 32-bit integers. An id is handed on when no further text can change it,
 * so the last word of a cue comes after the next cue has begun, or on end of stream, gap,
 * discontinuity, a new segment or a custom event `lychee-drain` from either side, and in a live
 * stream after #lycheetokenizer:max-wait, which is part of the pipeline's latency; it still has the
 * timestamp of its own cue. A buffer never has ids of two cues. A LycheeTextMeta on each buffer has
 * the text and each token's place in it, and who speaks.
 *
 * ## Example launch line
 * |[
 * gst-launch-1.0 filesrc location=talk.srt ! subparse subtitle-encoding=UTF-8 ! lycheetokenizer !
 *     lycheechunker ! lycheeindexer ! lycheedecoder ! fdsink
 * ]|
 */

#include "gstlycheetokenizer.h"

#include <string.h>

#include "lychee-ask.h"
#include "lychee-drain.h"
#include "lychee-element.h"
#include "lychee-meta.h"
#include "lychee-model-context.h"
#include "lychee-model-tokenizer.h"
#include "lychee-text-join.h"
#include "lychee-wait.h"

GST_DEBUG_CATEGORY_STATIC (lychee_tokenizer_debug);
#define GST_CAT_DEFAULT lychee_tokenizer_debug

#define DEFAULT_SPEAKER_LABELS TRUE
#define DEFAULT_MAX_WAIT (500 * GST_MSECOND)

enum {
  PROP_0,
  PROP_MODEL,
  PROP_SEPARATOR,
  PROP_SPEAKER_LABELS,
  PROP_MAX_WAIT,
};

/* Where a stretch of the running text came from. */
typedef struct {
  guint64 end; /* first byte after it */
  GstClockTime pts;
  GstClockTime duration;
  char *speaker;
} Cue;

struct _GstLycheeTokenizer {
  GstElement parent;

  GstPad *sinkpad;
  GstPad *srcpad;

  /* under the object lock */
  LycheeModelSlot slot;
  char *separator; /* NULL: as the text asks for */
  gboolean speaker_labels;

  /* of the streaming thread */
  LycheeEncoder *encoder;
  GArray *tokens;     /* LycheeToken: settled, not pushed yet */
  GByteArray *text;   /* running text that no token has been pushed for */
  guint64 text_start; /* place of its first byte in the running text */
  guint64 text_end;
  GQueue cues;   /* Cue, oldest first; covers text */
  char *speaker; /* as events have it */
  LycheeTextJoiner *joiner;
  gboolean markup;
  gboolean discont;
  LycheeWait wait;
  GstClockTime held_since; /* of the text that no token has been pushed for */
};

static GstStaticPadTemplate sink_template =
    GST_STATIC_PAD_TEMPLATE ("sink", GST_PAD_SINK, GST_PAD_ALWAYS,
        GST_STATIC_CAPS ("text/x-raw, format = (string) { utf8, pango-markup }; text/plain"));

static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE (
    "src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS ("application/x-lychee-tokens"));

#define gst_lychee_tokenizer_parent_class parent_class
G_DEFINE_TYPE_WITH_CODE (GstLycheeTokenizer, gst_lychee_tokenizer, GST_TYPE_ELEMENT,
    GST_DEBUG_CATEGORY_INIT (lychee_tokenizer_debug, "lycheetokenizer", 0, "Text to token ids"))
GST_ELEMENT_REGISTER_DEFINE (
    lycheetokenizer, "lycheetokenizer", GST_RANK_NONE, GST_TYPE_LYCHEE_TOKENIZER)

static void gst_lychee_tokenizer_finalize (GObject *object);
static void gst_lychee_tokenizer_set_property (
    GObject *object, guint id, const GValue *value, GParamSpec *pspec);
static void gst_lychee_tokenizer_get_property (
    GObject *object, guint id, GValue *value, GParamSpec *pspec);
static GstStateChangeReturn gst_lychee_tokenizer_change_state (
    GstElement *element, GstStateChange transition);
static GstFlowReturn gst_lychee_tokenizer_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer);
static gboolean gst_lychee_tokenizer_sink_event (GstPad *pad, GstObject *parent, GstEvent *event);
static gboolean gst_lychee_tokenizer_src_event (GstPad *pad, GstObject *parent, GstEvent *event);
static gboolean gst_lychee_tokenizer_query (GstPad *pad, GstObject *parent, GstQuery *query);
static gboolean gst_lychee_tokenizer_src_query (GstPad *pad, GstObject *parent, GstQuery *query);
static void gst_lychee_tokenizer_hasten (GstElement *element);

static void
gst_lychee_tokenizer_class_init (GstLycheeTokenizerClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GstElementClass *element_class = GST_ELEMENT_CLASS (klass);

  object_class->finalize = gst_lychee_tokenizer_finalize;
  object_class->set_property = gst_lychee_tokenizer_set_property;
  object_class->get_property = gst_lychee_tokenizer_get_property;
  element_class->change_state = gst_lychee_tokenizer_change_state;

  lychee_model_slot_install_property (object_class, PROP_MODEL);

  /**
   * lycheetokenizer:separator:
   *
   * Text between two cues where neither the one ends nor the other begins with white space. Unset:
   * a newline; but where both are of one or two words, what their script has between words.
   */
  g_object_class_install_property (object_class, PROP_SEPARATOR,
      g_param_spec_string ("separator", "Separator",
          "Text to put between two buffers that have timestamps, unless there is white space. "
          "Unset: "
          "a newline between lines, and between single words what their script asks for",
          NULL, G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING));

  /**
   * lycheetokenizer:speaker-labels:
   *
   * Whether a line begins with the name of who speaks, where that changes and the text does not say
   * so itself. Without it, the model does not know who says what.
   */
  g_object_class_install_property (object_class, PROP_SPEAKER_LABELS,
      g_param_spec_boolean ("speaker-labels", "Speaker labels",
          "Begin a line with the speaker's name where the speaker changes", DEFAULT_SPEAKER_LABELS,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING));

  /**
   * lycheetokenizer:max-wait:
   *
   * In a live stream, how long a word waits at most for what is said after it.
   */
  g_object_class_install_property (object_class, PROP_MAX_WAIT,
      g_param_spec_uint64 ("max-wait", "Maximum wait",
          "In a live stream, nanoseconds that a word waits at most for the next; part of the "
          "latency (-1: for ever, which is not)",
          0, G_MAXUINT64, DEFAULT_MAX_WAIT,
          G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING));

  gst_element_class_add_static_pad_template (element_class, &sink_template);
  gst_element_class_add_static_pad_template (element_class, &src_template);
  gst_element_class_set_static_metadata (element_class, "Lychee tokenizer", "Filter/Converter/Text",
      "Turns text into the token ids of a language model", "The Lychee authors");
}

static void
gst_lychee_tokenizer_init (GstLycheeTokenizer *self)
{
  self->speaker_labels = DEFAULT_SPEAKER_LABELS;
  self->held_since = GST_CLOCK_TIME_NONE;
  self->joiner = lychee_text_joiner_new ();
  self->tokens = g_array_new (FALSE, FALSE, sizeof (LycheeToken));
  self->text = g_byte_array_new ();
  g_queue_init (&self->cues);

  self->sinkpad = gst_pad_new_from_static_template (&sink_template, "sink");
  gst_pad_set_chain_function (self->sinkpad, gst_lychee_tokenizer_chain);
  gst_pad_set_query_function (self->sinkpad, gst_lychee_tokenizer_query);
  gst_element_add_pad (GST_ELEMENT (self), self->sinkpad);
  lychee_wait_init (&self->wait, GST_ELEMENT (self), self->sinkpad, DEFAULT_MAX_WAIT,
      gst_lychee_tokenizer_hasten);

  self->srcpad = gst_pad_new_from_static_template (&src_template, "src");
  gst_pad_set_query_function (self->srcpad, gst_lychee_tokenizer_src_query);
  gst_pad_use_fixed_caps (self->srcpad);
  gst_pad_set_event_function (self->srcpad, gst_lychee_tokenizer_src_event);
  lychee_pad_set_event_function (
      self->sinkpad, self->srcpad, &self->slot, gst_lychee_tokenizer_sink_event);
  gst_element_add_pad (GST_ELEMENT (self), self->srcpad);
}

static void
cue_free (gpointer data)
{
  Cue *cue = data;

  g_free (cue->speaker);
  g_free (cue);
}

/* What is held now has been since @since; none: nothing is. */
static void
hold_since (GstLycheeTokenizer *self, GstClockTime since)
{
  self->held_since = since;
  lychee_wait_since (&self->wait, since);
}

/* Forgets all text: nothing that comes is joined to what was. */
static void
gst_lychee_tokenizer_reset (GstLycheeTokenizer *self)
{
  g_clear_pointer (&self->encoder, lychee_encoder_free);
  g_array_set_size (self->tokens, 0);
  g_byte_array_set_size (self->text, 0);
  g_queue_clear_full (&self->cues, cue_free);
  g_clear_pointer (&self->speaker, g_free);
  lychee_text_joiner_reset (self->joiner);
  self->text_start = 0;
  self->text_end = 0;
  self->discont = TRUE;
  hold_since (self, GST_CLOCK_TIME_NONE);
}

static void
gst_lychee_tokenizer_finalize (GObject *object)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (object);

  gst_lychee_tokenizer_reset (self);
  g_array_unref (self->tokens);
  g_byte_array_unref (self->text);
  lychee_text_joiner_free (self->joiner);
  lychee_model_slot_clear (&self->slot);
  lychee_wait_clear (&self->wait);
  g_free (self->separator);
  G_OBJECT_CLASS (parent_class)->finalize (object);
}

static void
gst_lychee_tokenizer_set_property (
    GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (object);

  switch (id) {
  case PROP_MODEL:
    lychee_model_slot_set_path (&self->slot, GST_ELEMENT (self), g_value_get_string (value));
    break;
  case PROP_SEPARATOR:
    GST_OBJECT_LOCK (self);
    g_free (self->separator);
    self->separator = g_value_dup_string (value);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_SPEAKER_LABELS:
    GST_OBJECT_LOCK (self);
    self->speaker_labels = g_value_get_boolean (value);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_MAX_WAIT:
    lychee_wait_set_max (&self->wait, g_value_get_uint64 (value));
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
gst_lychee_tokenizer_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (object);

  switch (id) {
  case PROP_MODEL:
    g_value_take_string (value, lychee_model_slot_dup_path (&self->slot, GST_ELEMENT (self)));
    break;
  case PROP_SEPARATOR:
    GST_OBJECT_LOCK (self);
    g_value_set_string (value, self->separator);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_SPEAKER_LABELS:
    GST_OBJECT_LOCK (self);
    g_value_set_boolean (value, self->speaker_labels);
    GST_OBJECT_UNLOCK (self);
    break;
  case PROP_MAX_WAIT:
    g_value_set_uint64 (value, lychee_wait_get_max (&self->wait));
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

/* The cue of a token is that of its last byte: a word that carries the space before it belongs to
 * its own cue, not to the one that the space was put after. */
static const Cue *
cue_of_token (GstLycheeTokenizer *self, const LycheeToken *token)
{
  Cue *cue = g_queue_peek_head (&self->cues);

  while (cue->end < token->offset + token->length && self->cues.length > 1) {
    cue_free (g_queue_pop_head (&self->cues));
    cue = g_queue_peek_head (&self->cues);
  }
  return cue;
}

/* Pushes tokens first .. end - 1, all of @cue. */
static GstFlowReturn
push_tokens (GstLycheeTokenizer *self, guint first, guint end, const Cue *cue)
{
  LycheeToken *tokens = &g_array_index (self->tokens, LycheeToken, first);
  guint n = end - first;
  gint32 *ids = g_new (gint32, n);
  guint64 start = MAX (tokens[0].offset, self->text_start);
  guint64 stop = start;
  GstBuffer *buffer;

  for (guint i = 0; i < n; i++) {
    ids[i] = tokens[i].id;
    stop = MAX (stop, tokens[i].offset + tokens[i].length);
    tokens[i].offset = tokens[i].offset > start ? tokens[i].offset - start : 0;
  }
  stop = MIN (stop, self->text_end);

  buffer = gst_buffer_new_wrapped (ids, n * sizeof (gint32));
  lychee_buffer_add_text_meta (buffer, (const char *) self->text->data + (start - self->text_start),
      stop - start, cue->speaker, tokens, n);
  GST_BUFFER_PTS (buffer) = cue->pts;
  GST_BUFFER_DURATION (buffer) = cue->duration;
  if (self->discont) {
    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
    self->discont = FALSE;
  }
  g_byte_array_remove_range (self->text, 0, stop - self->text_start);
  self->text_start = stop;

  GST_LOG_OBJECT (self, "%u tokens at %" GST_TIME_FORMAT, n, GST_TIME_ARGS (cue->pts));
  return gst_pad_push (self->srcpad, buffer);
}

/* Pushes what is settled, one buffer a cue. */
static GstFlowReturn
push_settled (GstLycheeTokenizer *self)
{
  GstFlowReturn ret = GST_FLOW_OK;
  guint i = 0;

  while (i < self->tokens->len && ret == GST_FLOW_OK) {
    const Cue *cue = cue_of_token (self, &g_array_index (self->tokens, LycheeToken, i));
    guint end = i + 1;

    while (end < self->tokens->len) {
      const LycheeToken *token = &g_array_index (self->tokens, LycheeToken, end);

      if (token->offset + token->length > cue->end)
        break;
      end++;
    }
    ret = push_tokens (self, i, end, cue);
    i = end;
  }
  g_array_set_size (self->tokens, 0);
  if (self->text->len == 0)
    hold_since (self, GST_CLOCK_TIME_NONE);
  return ret;
}

/* Hands on what is held back; what comes begins a new word. */
static GstFlowReturn
gst_lychee_tokenizer_drain (GstLycheeTokenizer *self)
{
  if (self->encoder == NULL)
    return GST_FLOW_OK;
  lychee_encoder_finish (self->encoder, self->tokens);
  return push_settled (self);
}

/* What is held has waited for long enough. */
static void
gst_lychee_tokenizer_hasten (GstElement *element)
{
  gst_lychee_tokenizer_drain (GST_LYCHEE_TOKENIZER (element));
}

static void
markup_text (GMarkupParseContext *context, const char *text, gsize length, gpointer user_data,
    GError **error)
{
  g_string_append_len (user_data, text, length);
}

/* (nullable): NULL where @text is not valid markup. */
static GString *
plain_text_of_markup (const char *text, gsize length)
{
  static const GMarkupParser parser = { .text = markup_text };
  GString *plain = g_string_sized_new (length);
  GMarkupParseContext *context =
      g_markup_parse_context_new (&parser, G_MARKUP_TREAT_CDATA_AS_TEXT, plain, NULL);
  gboolean valid = g_markup_parse_context_parse (context, "<markup>", -1, NULL) &&
                   g_markup_parse_context_parse (context, text, length, NULL) &&
                   g_markup_parse_context_parse (context, "</markup>", -1, NULL) &&
                   g_markup_parse_context_end_parse (context, NULL);

  g_markup_parse_context_free (context);
  if (!valid) {
    g_string_free (plain, TRUE);
    return NULL;
  }
  return plain;
}

/* A buffer's text: without NUL bytes (some sources count the one at the end), without markup. */
static GString *
text_of_buffer (GstLycheeTokenizer *self, const guint8 *data, gsize size)
{
  GString *text = g_string_sized_new (size);
  GString *plain;

  while (size > 0) {
    const guint8 *nul = memchr (data, '\0', size);
    gsize n = nul != NULL ? (gsize) (nul - data) : size;

    g_string_append_len (text, (const char *) data, n);
    n = MIN (n + 1, size);
    data += n;
    size -= n;
  }

  if (self->markup) {
    plain = plain_text_of_markup (text->str, text->len);
    if (plain != NULL) {
      g_string_free (text, TRUE);
      return plain;
    }
    GST_DEBUG_OBJECT (self, "not valid markup, taken as text: %s", text->str);
  }
  return text;
}

static void
append_text (GstLycheeTokenizer *self, const char *text, gsize length)
{
  g_byte_array_append (self->text, (const guint8 *) text, length);
  self->text_end += length;
  lychee_encoder_push (self->encoder, text, length, self->tokens);
}

/* Takes @text as a cue, which is joined to the ones before it if it has a time of its own. */
static void
append_cue (GstLycheeTokenizer *self, GstBuffer *buffer, GString *text)
{
  LycheeTextMeta *meta = lychee_buffer_get_text_meta (buffer);
  const char *speaker = meta != NULL && meta->speaker != NULL ? meta->speaker : self->speaker;
  Cue *before = g_queue_peek_tail (&self->cues), *cue;
  const char *between;
  gboolean labels;
  char *separator;

  GST_OBJECT_LOCK (self);
  labels = self->speaker_labels;
  separator = g_strdup (self->separator);
  GST_OBJECT_UNLOCK (self);
  between = lychee_text_joiner_add (
      self->joiner, text, speaker, GST_BUFFER_PTS_IS_VALID (buffer), labels, separator);
  if (before != NULL && *between != '\0') {
    append_text (self, between, strlen (between));
    before->end = self->text_end;
  }
  g_free (separator);

  cue = g_new0 (Cue, 1);
  cue->pts = GST_BUFFER_PTS (buffer);
  cue->duration = GST_BUFFER_DURATION (buffer);
  cue->speaker = speaker != NULL && *speaker != '\0' ? g_strdup (speaker) : NULL;
  cue->end = self->text_end + text->len;
  g_queue_push_tail (&self->cues, cue);
  append_text (self, text->str, text->len);
}

static gboolean
ensure_encoder (GstLycheeTokenizer *self)
{
  LycheeModel *model;

  if (self->encoder != NULL)
    return TRUE;
  model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  if (model == NULL)
    return FALSE;
  self->encoder = lychee_encoder_new (lychee_model_get_tokenizer (model), LYCHEE_TOKENIZER_NONE);
  g_object_unref (model);
  return TRUE;
}

static GstFlowReturn
gst_lychee_tokenizer_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (parent);
  GstFlowReturn ret = GST_FLOW_OK;
  GstMapInfo map;
  GString *text;

  if (!gst_pad_has_current_caps (self->srcpad) || !ensure_encoder (self)) {
    gst_buffer_unref (buffer);
    /* Shutting down takes the caps away too. */
    return GST_PAD_IS_FLUSHING (self->srcpad) || lychee_model_slot_is_flushing (&self->slot)
               ? GST_FLOW_FLUSHING
               : GST_FLOW_NOT_NEGOTIATED;
  }
  if (GST_BUFFER_IS_DISCONT (buffer)) {
    ret = gst_lychee_tokenizer_drain (self);
    self->discont = TRUE;
    if (ret != GST_FLOW_OK) {
      gst_buffer_unref (buffer);
      return ret;
    }
  }

  if (!gst_buffer_map (buffer, &map, GST_MAP_READ)) {
    GST_ELEMENT_ERROR (
        self, RESOURCE, READ, ("The text could not be read."), ("gst_buffer_map failed"));
    gst_buffer_unref (buffer);
    return GST_FLOW_ERROR;
  }
  text = text_of_buffer (self, map.data, map.size);
  gst_buffer_unmap (buffer, &map);

  if (text->len > 0) {
    guint64 old_end = self->text_end;
    GstClockTime now = lychee_wait_get_now (&self->wait);

    append_cue (self, buffer, text);
    ret = push_settled (self);
    if (self->text->len > 0 &&
        (self->text_start >= old_end || self->held_since == GST_CLOCK_TIME_NONE))
      hold_since (self, now);
  }
  g_string_free (text, TRUE);
  gst_buffer_unref (buffer);
  return ret;
}

/* @caps: NULL for plain text. */
static gboolean
gst_lychee_tokenizer_set_caps (GstLycheeTokenizer *self, GstCaps *caps)
{
  LycheeModel *model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  GstCaps *src_caps;
  gboolean ret;

  if (model == NULL)
    return FALSE;
  self->markup = caps != NULL &&
                 g_strcmp0 (gst_structure_get_string (gst_caps_get_structure (caps, 0), "format"),
                     "pango-markup") == 0;
  src_caps = gst_caps_new_simple (
      "application/x-lychee-tokens", "model", G_TYPE_STRING, lychee_model_get_id (model), NULL);
  ret = gst_pad_set_caps (self->srcpad, src_caps);
  gst_caps_unref (src_caps);
  g_object_unref (model);
  return ret;
}

static void
warn_of_replaced (GstLycheeTokenizer *self)
{
  guint64 n = self->encoder != NULL ? lychee_encoder_get_n_replaced (self->encoder) : 0;

  if (n > 0)
    GST_ELEMENT_WARNING (self, STREAM, DECODE,
        ("The text is not all UTF-8: %" G_GUINT64_FORMAT
         " bytes were read as U+FFFD, the replacement character.",
            n),
        (NULL));
}

static gboolean
gst_lychee_tokenizer_sink_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (parent);
  const GstStructure *structure;

  GST_LOG_OBJECT (self, "%" GST_PTR_FORMAT, event);

  switch (GST_EVENT_TYPE (event)) {
  case GST_EVENT_STREAM_START:
    gst_lychee_tokenizer_drain (self);
    gst_lychee_tokenizer_reset (self);
    break;
  case GST_EVENT_CAPS: {
    GstCaps *caps;
    gboolean ret;

    gst_event_parse_caps (event, &caps);
    gst_lychee_tokenizer_drain (self);
    ret = gst_lychee_tokenizer_set_caps (self, caps);
    gst_event_unref (event);
    return ret;
  }
  case GST_EVENT_SEGMENT:
    gst_lychee_tokenizer_drain (self);
    /* Some recognisers, pocketsphinx for one, send no caps. What they send is text, then. */
    if (!gst_pad_has_current_caps (self->srcpad))
      gst_lychee_tokenizer_set_caps (self, NULL);
    lychee_wait_note_segment (&self->wait);
    break;
  case GST_EVENT_GAP:
  case GST_EVENT_SEGMENT_DONE:
    gst_lychee_tokenizer_drain (self);
    break;
  case GST_EVENT_EOS:
    gst_lychee_tokenizer_drain (self);
    warn_of_replaced (self);
    break;
  case GST_EVENT_FLUSH_STOP:
    gst_lychee_tokenizer_reset (self);
    break;
  case GST_EVENT_CUSTOM_DOWNSTREAM:
    structure = gst_event_get_structure (event);
    if (gst_structure_has_name (structure, "rstranscribe/final-transcript") ||
        gst_structure_has_name (structure, LYCHEE_ASK_EVENT) ||
        gst_structure_has_name (structure, LYCHEE_DRAIN_EVENT)) {
      gst_lychee_tokenizer_drain (self);
    } else if (gst_structure_has_name (structure, "rstranscribe/speaker-change")) {
      gst_lychee_tokenizer_drain (self);
      g_free (self->speaker);
      self->speaker = g_strdup (gst_structure_get_string (structure, "speaker"));
    }
    break;
  default:
    break;
  }
  return gst_pad_event_default (pad, parent, event);
}

static gboolean
gst_lychee_tokenizer_src_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  return lychee_drain_src_event (pad, parent, GST_LYCHEE_TOKENIZER (parent)->sinkpad, TRUE, event);
}

static gboolean
gst_lychee_tokenizer_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (parent);

  return lychee_model_slot_answer_query (&self->slot, GST_ELEMENT (self), query) ||
         gst_pad_query_default (pad, parent, query);
}

static gboolean
gst_lychee_tokenizer_src_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (parent);

  if (GST_QUERY_TYPE (query) == GST_QUERY_LATENCY)
    return lychee_wait_query_latency (&self->wait, query);
  return gst_lychee_tokenizer_query (pad, parent, query);
}

static GstStateChangeReturn
gst_lychee_tokenizer_change_state (GstElement *element, GstStateChange transition)
{
  GstLycheeTokenizer *self = GST_LYCHEE_TOKENIZER (element);
  GstStateChangeReturn ret;

  lychee_model_slot_before_change (&self->slot, element, transition);
  ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);
  lychee_wait_change_state (&self->wait, transition);
  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY)
    gst_lychee_tokenizer_reset (self);
  lychee_model_slot_after_change (&self->slot, element, transition);
  return ret;
}
