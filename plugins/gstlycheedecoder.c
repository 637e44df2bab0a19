/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * SECTION:element-lycheedecoder
 * @title: lycheedecoder
 *
 * Answers questions about a transcript, while it runs and when it has ended, from the keys and
 * values that lycheeindexer keeps of it.
 *
 * ## Asking
 * #lycheedecoder::ask, or an event with a structure `lychee-ask` from either side, asks about what
 * has been read at that moment; the transcript goes on being read meanwhile. Answers are made one
 * after another, or #lycheedecoder:max-answers at a time. #lycheedecoder::cancel, or an event
 * `lychee-cancel` with an `id`, ends one or all of them. The fields of `lychee-ask`, all optional:
 *
 * * `prompt` (string): #lycheedecoder:prompt where it is not given
 * * `id` (string): a name for the answer; a number where it is not given
 * * `from`, `to`, `last` (number): only about this stretch of stream time, in nanoseconds; `last`:
 *   only about so much of the end
 * * `max-tokens`, `evidence`, `language`, `system-prompt`, `stop`, `temperature`, `top-k`, `top-p`,
 *   `min-p`, `repetition-penalty`, `seed`: as the properties of these names, for this question
 *
 * With #lycheedecoder:interval or #lycheedecoder:interval-tokens,
 * #lycheedecoder:summary-prompt is asked again and again about what is new. When the transcript
 * ends, #lycheedecoder:prompt is asked about all of it, and end of stream follows the answer. What
 * is asked after that has its answer in the message alone.
 *
 * A flush, a seek or a change of state to READY ends all answers within a token; PAUSED holds them
 * up. Several decoders behind a tee share one cache.
 *
 * ## Output
 * As downstream's caps say: text, or JSON. Buffers (#lycheedecoder:stream) have the time of the end
 * of what had been read when the question was asked, and are whole UTF-8 characters. In text, an
 * empty line stands between two answers. In JSON each buffer is one object and a newline:
 * `{"version":1,"type":"text","id":"1","text":"..."}` for a piece, and at the end of each answer
 * one of type `answer` with the fields of the message below; `docs/answer.schema.json` describes
 * them. Times are nanoseconds, null where there is none.
 *
 * ## Messages
 * An element message `lychee-answer` for each question, when its answer has ended:
 *
 * * `id`, `prompt`, `text` (string)
 * * `kind` (string): `question`, `summary` (a rolling one) or `final`
 * * `finish` (string): `stop`: the model ended it, or a stop string did; `length`:
 *   #lycheedecoder:max-tokens or the context did; `repetition`: it was going in circles,
 *   or said some twenty words for the third time; `cancelled`: #lycheedecoder::cancel, a flush, a
 *   seek, shutdown or downstream did; `empty`: nothing had been said to answer from, so nothing was
 *   made up; `failed`
 * * `reason` (string): in words, for the last two; otherwise %NULL
 * * `time` (uint64): the end of what had been read
 * * `from`, `to` (uint64): the range that was asked about, %GST_CLOCK_TIME_NONE: no limit
 * * `evidence` (array of structures): what the answer rests on, taken from the attention of its
 *   tokens: `start`, `end` (uint64), `speaker` (string or %NULL), `text` (string), `weight`
 *   (double), `position` (uint64, of its first token), `tokens` (uint)
 * * `truncated` (boolean): whether something of the transcript was left out or forgotten
 * * `transcript-tokens`, `prompt-tokens`, `answer-tokens` (uint): how many
 * * `seconds-to-first`, `seconds` (double): from asking to the first token, and to the end
 *
 * ## Example launch line
 * |[
 * gst-launch-1.0 filesrc location=talk.srt ! subparse subtitle-encoding=UTF-8 ! lycheetokenizer !
 *     lycheechunker ! lycheeindexer ! lycheedecoder interval=300000000000 ! application/x-json !
 *     fdsink
 * ]|
 */

#include "gstlycheedecoder-private.h"

#include "lychee-element.h"

GST_DEBUG_CATEGORY (lychee_decoder_debug);

#define DEFAULT_PROMPT "Summarize this transcript in a few sentences."
#define DEFAULT_SUMMARY_PROMPT "Summarize this part of the transcript in a few sentences."
#define DEFAULT_MAX_TOKENS 256
#define DEFAULT_MAX_ANSWERS 1

static const char *const settings_names[] = { "template", "threads", "backend", "cuda-device",
  "attention", "budget", "beam", "rest", "prefill", "audit", NULL };

static const char *const sampler_names[] = { "temperature", "top-k", "top-p", "min-p",
  "repetition-penalty", "seed", NULL };

static const char *const question_names[] = { "system-prompt", "language", "evidence", "contrast",
  "quotes", NULL };

enum {
  PROP_0,
  PROP_MODEL,
  PROP_PROMPT,
  PROP_SUMMARY_PROMPT,
  PROP_INTERVAL,
  PROP_INTERVAL_TOKENS,
  PROP_MAX_TOKENS,
  PROP_MAX_ANSWERS,
  PROP_STOP,
  PROP_STREAM,
  PROP_MARKS,
  PROP_STATS,
  PROP_SETTINGS,
  PROP_SAMPLER = PROP_SETTINGS + G_N_ELEMENTS (settings_names),
  PROP_QUESTION = PROP_SAMPLER + G_N_ELEMENTS (sampler_names),
};

enum { SIGNAL_ASK, SIGNAL_CANCEL, N_SIGNALS };

static guint signals[N_SIGNALS];

static GstStaticPadTemplate sink_template =
    GST_STATIC_PAD_TEMPLATE ("sink", GST_PAD_SINK, GST_PAD_ALWAYS,
        GST_STATIC_CAPS ("application/x-lychee-kv(" LYCHEE_CAPS_FEATURE_MEMORY_KV "), "
                         "layers = (int) [ 1, MAX ], kv-heads = (int) [ 1, MAX ], "
                         "head-dim = (int) [ 1, MAX ], type = (string) { f16, q8_0 }"));

static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE ("src", GST_PAD_SRC,
    GST_PAD_ALWAYS, GST_STATIC_CAPS ("text/x-raw, format = (string) utf8; application/x-json"));

#define gst_lychee_decoder_parent_class parent_class
G_DEFINE_TYPE_WITH_CODE (GstLycheeDecoder, gst_lychee_decoder, GST_TYPE_ELEMENT,
    GST_DEBUG_CATEGORY_INIT (
        lychee_decoder_debug, "lycheedecoder", 0, "Keys and values to answers"))
GST_ELEMENT_REGISTER_DEFINE (lycheedecoder, "lycheedecoder", GST_RANK_NONE, GST_TYPE_LYCHEE_DECODER)

static void gst_lychee_decoder_finalize (GObject *object);
static void gst_lychee_decoder_set_property (
    GObject *object, guint id, const GValue *value, GParamSpec *pspec);
static void gst_lychee_decoder_get_property (
    GObject *object, guint id, GValue *value, GParamSpec *pspec);
static GstStateChangeReturn gst_lychee_decoder_change_state (
    GstElement *element, GstStateChange transition);
static gboolean gst_lychee_decoder_send_event (GstElement *element, GstEvent *event);

static void
install_asking (GObjectClass *object_class)
{
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING;

  /**
   * lycheedecoder:prompt:
   *
   * What to ask about the transcript. A change holds for the next answer.
   */
  g_object_class_install_property (object_class, PROP_PROMPT,
      g_param_spec_string ("prompt", "Prompt",
          "What to ask about the transcript when it has ended, and where a question has no prompt "
          "of its own; empty: nothing at the end",
          DEFAULT_PROMPT, flags));

  /**
   * lycheedecoder:summary-prompt:
   *
   * What to ask about the part that is new, see #lycheedecoder:interval.
   */
  g_object_class_install_property (object_class, PROP_SUMMARY_PROMPT,
      g_param_spec_string ("summary-prompt", "Summary prompt",
          "What to ask after each interval about what is new", DEFAULT_SUMMARY_PROMPT, flags));

  /**
   * lycheedecoder:interval:
   *
   * A rolling summary each time that so much of the transcript has passed, in nanoseconds of stream
   * time. Where answers are slower than that, one that has not begun makes room for the next, which
   * is then about both parts.
   */
  g_object_class_install_property (object_class, PROP_INTERVAL,
      g_param_spec_uint64 ("interval", "Interval",
          "Stream time from one rolling summary to the next, in nanoseconds; 0: none", 0,
          G_MAXUINT64, 0, flags));

  /**
   * lycheedecoder:interval-tokens:
   *
   * A rolling summary each time that so much of the transcript is new, in tokens.
   */
  g_object_class_install_property (object_class, PROP_INTERVAL_TOKENS,
      g_param_spec_uint64 ("interval-tokens", "Interval in tokens",
          "Tokens of the transcript from one rolling summary to the next; 0: none", 0, G_MAXUINT64,
          0, flags));

  /**
   * lycheedecoder:max-tokens:
   *
   * Most tokens of an answer.
   */
  g_object_class_install_property (object_class, PROP_MAX_TOKENS,
      g_param_spec_uint ("max-tokens", "Maximum tokens",
          "Most tokens of an answer; 0: as many as the context has room for", 0, G_MAXUINT,
          DEFAULT_MAX_TOKENS, flags));

  /**
   * lycheedecoder:max-answers:
   *
   * How many answers are made at the same time. They take turns with the processor's cores, and
   * share the model and the transcript. In text, one still follows the other; in JSON their pieces
   * alternate.
   */
  g_object_class_install_property (object_class, PROP_MAX_ANSWERS,
      g_param_spec_uint ("max-answers", "Maximum answers",
          "Answers that are made at the same time; others wait", 1, 64, DEFAULT_MAX_ANSWERS,
          flags));

  /**
   * lycheedecoder:stop:
   *
   * An answer ends before the first of these strings that it would say.
   */
  g_object_class_install_property (object_class, PROP_STOP,
      gst_param_spec_array ("stop", "Stop", "An answer ends before any of these strings",
          g_param_spec_string ("string", "String", "A string to stop at", NULL, flags), flags));
}

static void
install_output (GObjectClass *object_class)
{
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING;

  /**
   * lycheedecoder:stream:
   *
   * How much of an answer is in a buffer.
   */
  gst_type_mark_as_plugin_api (LYCHEE_TYPE_STREAM, 0);
  g_object_class_install_property (object_class, PROP_STREAM,
      g_param_spec_enum ("stream", "Stream", "How much of an answer is in a buffer",
          LYCHEE_TYPE_STREAM, LYCHEE_STREAM_TOKEN, flags));

  /**
   * lycheedecoder:marks:
   *
   * Whether text has the times of its evidence: `[00:12:31]`. With #lycheedecoder:stream as
   * `sentence` each stands behind the first sentence by whose end it was found, otherwise they
   * stand at the end. Where #lycheedecoder:quotes are the answer, each has its time anyway.
   */
  g_object_class_install_property (object_class, PROP_MARKS,
      g_param_spec_boolean (
          "marks", "Marks", "Put the times of its evidence into text", FALSE, flags));

  /**
   * lycheedecoder:stats:
   *
   * `answers`, `cancelled`, `empty`, `failed` (uint): answers that have ended, and how many of them
   * without an end of their own, for want of anything said, or for an error; `waiting`, `running`
   * (uint): those that have not; `pauses` (uint64): how often a piece of one waited for a live
   * transcript to be read first. Of the last one: `transcript-tokens`, `prompt-tokens`,
   * `answer-tokens` (uint), `seconds-to-first`, `seconds`, `tokens-per-second` (double),
   * `cache-bytes` (uint64): keys and values of the transcript, `truncated` (boolean). And what its
   * attention did, where a query is one token, layer and KV head: `dense-queries`,
   * `dense-fallbacks` (sparse was asked for and the transcript shorter than the budget),
   * `sparse-queries`, `rows-visible` (keys that dense attention would have read for these),
   * `rows-read`, `rows-estimated`, `nodes-scored`, `index-bytes`, `index-leaves`, `index-coarse`,
   * `index-depth` (uint64), `index-coarse-of-layers` (an array of uint64, one a layer); with
   * #lycheedecoder:audit, `audits` (uint64), `missed-mass`, `error`,
   * and seconds of all threads in its parts, `seconds-upkeep`, `seconds-search`, `seconds-read`,
   * `seconds-rest`, `seconds-merge` (double).
   */
  g_object_class_install_property (object_class, PROP_STATS,
      g_param_spec_boxed ("stats", "Statistics",
          "How many answers were given, and the figures of the last one", GST_TYPE_STRUCTURE,
          G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
}

static void
gst_lychee_decoder_class_init (GstLycheeDecoderClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GstElementClass *element_class = GST_ELEMENT_CLASS (klass);

  object_class->finalize = gst_lychee_decoder_finalize;
  object_class->set_property = gst_lychee_decoder_set_property;
  object_class->get_property = gst_lychee_decoder_get_property;
  element_class->change_state = gst_lychee_decoder_change_state;
  element_class->send_event = gst_lychee_decoder_send_event;

  lychee_model_slot_install_property (object_class, PROP_MODEL);
  install_asking (object_class);
  install_output (object_class);

  /* How tokens are chosen: see LycheeSampler. */
  lychee_settings_install (
      object_class, LYCHEE_TYPE_SAMPLER, PROP_SAMPLER, sampler_names, GST_PARAM_MUTABLE_PLAYING);

  /* How the transcript is read for an answer: see LycheeSession. */
  lychee_settings_install (
      object_class, LYCHEE_TYPE_SESSION, PROP_SETTINGS, settings_names, GST_PARAM_MUTABLE_PLAYING);

  /* How questions are put: see LycheeQuestion. */
  lychee_settings_install (
      object_class, LYCHEE_TYPE_QUESTION, PROP_QUESTION, question_names, GST_PARAM_MUTABLE_PLAYING);

  /**
   * lycheedecoder::ask:
   * @self: the element
   * @prompt: (nullable): what to ask; %NULL: what @options or #lycheedecoder:prompt say
   * @options: (nullable): the fields of `lychee-ask`, under any name
   *
   * Asks about what has been said up to now. The answer goes downstream, and a message
   * `lychee-answer` follows when it has ended.
   *
   * Returns: (transfer full) (nullable): the answer's id; %NULL, and a warning message that says
   *   why, where @options are wrong or the element is not PAUSED or PLAYING
   */
  signals[SIGNAL_ASK] = g_signal_new_class_handler ("ask", G_TYPE_FROM_CLASS (klass),
      G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION, G_CALLBACK (gst_lychee_decoder_ask), NULL, NULL, NULL,
      G_TYPE_STRING, 2, G_TYPE_STRING, GST_TYPE_STRUCTURE);

  /**
   * lycheedecoder::cancel:
   * @self: the element
   * @id: (nullable): of the answer; %NULL: all answers
   *
   * Ends an answer within a token. What was said of it stays.
   *
   * Returns: how many answers were ended
   */
  signals[SIGNAL_CANCEL] = g_signal_new_class_handler ("cancel", G_TYPE_FROM_CLASS (klass),
      G_SIGNAL_RUN_LAST | G_SIGNAL_ACTION, G_CALLBACK (gst_lychee_decoder_cancel), NULL, NULL, NULL,
      G_TYPE_UINT, 1, G_TYPE_STRING);

  gst_element_class_add_static_pad_template (element_class, &sink_template);
  gst_element_class_add_static_pad_template (element_class, &src_template);
  gst_element_class_set_static_metadata (element_class, "Lychee decoder", "Converter/Text",
      "Answers from the KV cache of a transcript", "The Lychee authors");
}

static void
gst_lychee_decoder_init (GstLycheeDecoder *self)
{
  LycheeSampler *sampler = lychee_sampler_new ();

  self->question = g_object_new (LYCHEE_TYPE_QUESTION, "prompt", DEFAULT_PROMPT, "max-tokens",
      DEFAULT_MAX_TOKENS, "sampler", sampler, NULL);
  g_object_unref (sampler);
  self->summary_prompt = g_strdup (DEFAULT_SUMMARY_PROMPT);
  self->max_answers = DEFAULT_MAX_ANSWERS;
  lychee_settings_init (&self->settings, PROP_SETTINGS, settings_names);
  self->start = GST_CLOCK_TIME_NONE;
  lychee_rolling_restart (&self->rolling, GST_CLOCK_TIME_NONE, 0);

  self->sinkpad = gst_pad_new_from_static_template (&sink_template, "sink");
  gst_pad_set_chain_function (self->sinkpad, gst_lychee_decoder_chain);
  gst_pad_set_event_full_function (self->sinkpad, gst_lychee_decoder_sink_event);
  gst_pad_set_query_function (self->sinkpad, gst_lychee_decoder_sink_query);
  gst_element_add_pad (GST_ELEMENT (self), self->sinkpad);

  self->srcpad = gst_pad_new_from_static_template (&src_template, "src");
  gst_pad_set_event_function (self->srcpad, gst_lychee_decoder_src_event);
  gst_pad_set_query_function (self->srcpad, gst_lychee_decoder_src_query);
  gst_pad_set_activatemode_function (self->srcpad, gst_lychee_decoder_src_activate_mode);
  gst_pad_use_fixed_caps (self->srcpad);
  gst_element_add_pad (GST_ELEMENT (self), self->srcpad);
  self->queue = lychee_answer_queue_new (self->srcpad, gst_lychee_decoder_make_answer, self);
}

static void
gst_lychee_decoder_finalize (GObject *object)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (object);

  lychee_answer_queue_free (self->queue);
  g_clear_pointer (&self->summary, lychee_ask_unref);
  g_clear_object (&self->cache);
  lychee_model_slot_clear (&self->slot);
  g_clear_object (&self->question);
  gst_clear_object (&self->allocator);
  g_clear_pointer (&self->last, gst_structure_free);
  lychee_settings_clear (&self->settings);
  g_free (self->summary_prompt);
  G_OBJECT_CLASS (parent_class)->finalize (object);
}

static void
set_stop (LycheeQuestion *question, const GValue *array)
{
  g_autoptr (GStrvBuilder) strings = g_strv_builder_new ();
  g_auto (GStrv) strv = NULL;

  for (guint i = 0; i < gst_value_array_get_size (array); i++) {
    const char *string = g_value_get_string (gst_value_array_get_value (array, i));

    if (string != NULL)
      g_strv_builder_add (strings, string);
  }
  strv = g_strv_builder_end (strings);
  lychee_question_set_stop (question, (const char *const *) strv);
}

static void
get_stop (LycheeQuestion *question, GValue *array)
{
  const char *const *strings = lychee_question_get_stop (question);

  for (guint i = 0; strings != NULL && strings[i] != NULL; i++) {
    GValue value = G_VALUE_INIT;

    g_value_init (&value, G_TYPE_STRING);
    g_value_set_string (&value, strings[i]);
    gst_value_array_append_and_take_value (array, &value);
  }
}

static void
gst_lychee_decoder_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (object);

  if (id == PROP_MODEL) {
    lychee_model_slot_set_path (&self->slot, GST_ELEMENT (self), g_value_get_string (value));
    return;
  }
  if (id == PROP_MAX_ANSWERS)
    lychee_answer_queue_set_max_workers (self->queue, g_value_get_uint (value));

  GST_OBJECT_LOCK (self);
  switch (id) {
  case PROP_SUMMARY_PROMPT:
    g_free (self->summary_prompt);
    self->summary_prompt = g_value_dup_string (value);
    break;
  case PROP_INTERVAL:
    self->interval = g_value_get_uint64 (value);
    break;
  case PROP_INTERVAL_TOKENS:
    self->interval_tokens = g_value_get_uint64 (value);
    break;
  case PROP_MAX_ANSWERS:
    self->max_answers = g_value_get_uint (value);
    break;
  case PROP_STOP:
    set_stop (self->question, value);
    break;
  case PROP_STREAM:
    self->stream = g_value_get_enum (value);
    break;
  case PROP_MARKS:
    self->marks = g_value_get_boolean (value);
    break;
  case PROP_PROMPT:
  case PROP_MAX_TOKENS:
    g_object_set_property (G_OBJECT (self->question), pspec->name, value);
    break;
  default:
    if (id >= PROP_QUESTION)
      g_object_set_property (G_OBJECT (self->question), pspec->name, value);
    else if (id >= PROP_SAMPLER)
      g_object_set_property (
          G_OBJECT (lychee_question_get_sampler (self->question)), pspec->name, value);
    else if (!lychee_settings_set (&self->settings, id, value))
      G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
  GST_OBJECT_UNLOCK (self);
}

/* (transfer full) */
static GstStructure *
gst_lychee_decoder_get_stats (GstLycheeDecoder *self)
{
  GstStructure *stats;
  guint waiting, running;
  guint64 pauses;

  lychee_answer_queue_count (self->queue, &waiting, &running, &pauses);
  GST_OBJECT_LOCK (self);
  stats = self->last != NULL ? gst_structure_copy (self->last)
                             : gst_structure_new_empty ("lychee-decoder-stats");
  gst_structure_set (stats, "answers", G_TYPE_UINT, self->n_answers, "cancelled", G_TYPE_UINT,
      self->n_cancelled, "empty", G_TYPE_UINT, self->n_empty, "failed", G_TYPE_UINT, self->n_failed,
      "waiting", G_TYPE_UINT, waiting, "running", G_TYPE_UINT, running, "pauses", G_TYPE_UINT64,
      pauses, NULL);
  GST_OBJECT_UNLOCK (self);
  return stats;
}

static void
gst_lychee_decoder_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (object);

  if (id == PROP_MODEL) {
    g_value_take_string (value, lychee_model_slot_dup_path (&self->slot, GST_ELEMENT (self)));
    return;
  }
  if (id == PROP_STATS) {
    g_value_take_boxed (value, gst_lychee_decoder_get_stats (self));
    return;
  }

  GST_OBJECT_LOCK (self);
  switch (id) {
  case PROP_SUMMARY_PROMPT:
    g_value_set_string (value, self->summary_prompt);
    break;
  case PROP_INTERVAL:
    g_value_set_uint64 (value, self->interval);
    break;
  case PROP_INTERVAL_TOKENS:
    g_value_set_uint64 (value, self->interval_tokens);
    break;
  case PROP_MAX_ANSWERS:
    g_value_set_uint (value, self->max_answers);
    break;
  case PROP_STOP:
    get_stop (self->question, value);
    break;
  case PROP_STREAM:
    g_value_set_enum (value, self->stream);
    break;
  case PROP_MARKS:
    g_value_set_boolean (value, self->marks);
    break;
  case PROP_PROMPT:
  case PROP_MAX_TOKENS:
    g_object_get_property (G_OBJECT (self->question), pspec->name, value);
    break;
  default:
    if (id >= PROP_QUESTION)
      g_object_get_property (G_OBJECT (self->question), pspec->name, value);
    else if (id >= PROP_SAMPLER)
      g_object_get_property (
          G_OBJECT (lychee_question_get_sampler (self->question)), pspec->name, value);
    else if (!lychee_settings_get (&self->settings, id, value))
      G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
  GST_OBJECT_UNLOCK (self);
}

/* To the element itself, whatever its pads are doing. */
static gboolean
gst_lychee_decoder_send_event (GstElement *element, GstEvent *event)
{
  return gst_lychee_decoder_take_event (GST_LYCHEE_DECODER (element), event, FALSE) ||
         GST_ELEMENT_CLASS (parent_class)->send_event (element, event);
}

static GstStateChangeReturn
gst_lychee_decoder_change_state (GstElement *element, GstStateChange transition)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (element);
  GstStateChangeReturn ret;

  lychee_model_slot_before_change (&self->slot, element, transition);
  switch (transition) {
  case GST_STATE_CHANGE_PAUSED_TO_PLAYING:
    lychee_answer_queue_set_playing (self->queue, TRUE);
    break;
  case GST_STATE_CHANGE_PLAYING_TO_PAUSED:
    lychee_answer_queue_set_playing (self->queue, FALSE);
    break;
  default:
    break;
  }

  ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);

  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    gst_lychee_decoder_forget_transcript (self);
    GST_OBJECT_LOCK (self);
    self->start = GST_CLOCK_TIME_NONE;
    self->n_asked = 0;
    GST_OBJECT_UNLOCK (self);
    g_clear_pointer (&self->summary, lychee_ask_unref);
    gst_clear_object (&self->allocator);
    lychee_rolling_restart (&self->rolling, GST_CLOCK_TIME_NONE, 0);
    self->flushed = FALSE;
  }
  lychee_model_slot_after_change (&self->slot, element, transition);
  return ret;
}
