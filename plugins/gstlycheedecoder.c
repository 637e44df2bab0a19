/* SPDX-License-Identifier: LGPL-2.1-or-later */

/**
 * SECTION:element-lycheedecoder
 * @title: lycheedecoder
 *
 * Answers a question about a transcript, or sums it up, from the keys and values that lycheeindexer
 * keeps of it.
 *
 * When the transcript ends, #lycheedecoder:prompt is put to the model, and the answer goes
 * downstream while it is made: a buffer for each piece of text, always whole UTF-8 characters, with
 * the time of the end of the transcript as timestamp. End of stream follows when the answer is
 * complete. The answer is made in a thread of its own over a snapshot of the cache; a flush, a seek
 * or a change of state stops it within a token. Several decoders behind a tee share one cache.
 *
 * A transcript without words is an error (#GST_STREAM_ERROR_WRONG_TYPE).
 *
 * ## Messages
 * An element message `lychee-answer` when an answer has ended, before end of stream goes
 * downstream:
 *
 * * `text` (string): all of it
 * * `prompt` (string): what was asked
 * * `finish` (string): `stop`: the model ended it; `length`: #lycheedecoder:max-tokens or the
 *   context did; `cancelled`: a flush, a seek, shutdown or downstream did; `repetition`: it was
 *   going round in circles
 * * `transcript-tokens`, `prompt-tokens`, `answer-tokens` (uint): how many
 * * `seconds-to-first`, `seconds` (double): from asking to the first token, and to the end
 * * `truncated` (boolean): whether the transcript did not fit and its end was left out
 *
 * ## Example launch line
 * |[
 * gst-launch-1.0 filesrc location=talk.srt ! subparse subtitle-encoding=UTF-8 ! lycheetokenizer !
 *     lycheechunker ! lycheeindexer ! lycheedecoder prompt="Who is speaking?" ! fdsink
 * ]|
 */

#include "gstlycheedecoder.h"

#include <string.h>

#include "lychee-element.h"
#include "lychee-kv-memory.h"
#include "lychee-meta.h"
#include "lychee-model-context.h"
#include "lychee-settings.h"
#include "lychee-session.h"

GST_DEBUG_CATEGORY_STATIC (lychee_decoder_debug);
#define GST_CAT_DEFAULT lychee_decoder_debug

#define DEFAULT_PROMPT "Summarize this transcript in a few sentences."
#define DEFAULT_MAX_TOKENS 256

static const char *const settings_names[] = { "threads", "backend", "cuda-device", "attention",
  "budget", "beam", "rest", "prefill", "audit", NULL };

static const char *const sampler_names[] = { "temperature", "top-k", "top-p", "min-p",
  "repetition-penalty", "seed", NULL };

enum {
  PROP_0,
  PROP_MODEL,
  PROP_PROMPT,
  PROP_MAX_TOKENS,
  PROP_STATS,
  PROP_SETTINGS,
  PROP_SAMPLER = PROP_SETTINGS + G_N_ELEMENTS (settings_names),
};

/* What an answer is about: all that the answering thread needs, taken when it is asked for. */
typedef struct {
  LycheeCache *cache;
  LycheeChatFormat format;
  guint64 tokens;
  GstClockTime end; /* of the last word, or none */
  gboolean truncated;
} Transcript;

typedef struct {
  Transcript transcript;
  GCancellable *cancellable;
  guint generation;
  GstEvent *eos;
  GstClockTime pts;
  /* of the answering thread */
  guint64 offset;
  GstFlowReturn flow;
} Job;

struct _GstLycheeDecoder {
  GstElement parent;

  GstPad *sinkpad;
  GstPad *srcpad;
  LycheeKVAllocator *allocator;

  /* under the object lock */
  LycheeModelSlot slot;
  char *prompt;
  guint max_tokens;
  LycheeSettings settings;
  LycheeSampler *sampler; /* holds its settings */

  /* Under lock, which is never held while something is pushed or posted. */
  GMutex lock;
  GCond idle;
  gboolean active;   /* the source pad is */
  gboolean flushing; /* between flush start and flush stop, or the sink pad is inactive */
  guint generation;  /* goes up with each flush and shutdown; an answer of an earlier one is over */
  Job *asked;        /* for the task to take */
  GCancellable *cancellable; /* of the answer under way; NULL when there is none */
  GstFlowReturn srcresult;
  GstStructure *stats;
  guint n_answers;
  guint n_cancelled;

  /* of the streaming thread */
  Transcript transcript;
  GstSegment segment; /* of the source pad */
  gboolean flushed;   /* the next segment tells whether the transcript goes on */
};

static GstStaticPadTemplate sink_template =
    GST_STATIC_PAD_TEMPLATE ("sink", GST_PAD_SINK, GST_PAD_ALWAYS,
        GST_STATIC_CAPS ("application/x-lychee-kv(" LYCHEE_CAPS_FEATURE_MEMORY_KV "), "
                         "layers = (int) [ 1, MAX ], kv-heads = (int) [ 1, MAX ], "
                         "head-dim = (int) [ 1, MAX ], type = (string) f16"));

static GstStaticPadTemplate src_template = GST_STATIC_PAD_TEMPLATE (
    "src", GST_PAD_SRC, GST_PAD_ALWAYS, GST_STATIC_CAPS ("text/x-raw, format = (string) utf8"));

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
static GstFlowReturn gst_lychee_decoder_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer);
static gboolean gst_lychee_decoder_sink_event (GstPad *pad, GstObject *parent, GstEvent *event);
static gboolean gst_lychee_decoder_query (GstPad *pad, GstObject *parent, GstQuery *query);
static gboolean gst_lychee_decoder_sink_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active);
static gboolean gst_lychee_decoder_src_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active);

static void
gst_lychee_decoder_class_init (GstLycheeDecoderClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GstElementClass *element_class = GST_ELEMENT_CLASS (klass);
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS;

  object_class->finalize = gst_lychee_decoder_finalize;
  object_class->set_property = gst_lychee_decoder_set_property;
  object_class->get_property = gst_lychee_decoder_get_property;
  element_class->change_state = gst_lychee_decoder_change_state;

  lychee_model_slot_install_property (object_class, PROP_MODEL);

  /**
   * lycheedecoder:prompt:
   *
   * What to ask about the transcript. A change holds for the next answer.
   */
  g_object_class_install_property (object_class, PROP_PROMPT,
      g_param_spec_string ("prompt", "Prompt", "What to ask about the transcript when it has ended",
          DEFAULT_PROMPT, flags | GST_PARAM_MUTABLE_PLAYING));

  /**
   * lycheedecoder:max-tokens:
   *
   * Most tokens of an answer.
   */
  g_object_class_install_property (object_class, PROP_MAX_TOKENS,
      g_param_spec_uint ("max-tokens", "Maximum tokens",
          "Most tokens of an answer; 0: as many as the context has room for", 0, G_MAXUINT,
          DEFAULT_MAX_TOKENS, flags | GST_PARAM_MUTABLE_PLAYING));

  /* How tokens are chosen: see LycheeSampler. */
  lychee_settings_install (
      object_class, LYCHEE_TYPE_SAMPLER, PROP_SAMPLER, sampler_names, GST_PARAM_MUTABLE_PLAYING);

  /* How the transcript is read for an answer: see LycheeSession. */
  lychee_settings_install (
      object_class, LYCHEE_TYPE_SESSION, PROP_SETTINGS, settings_names, GST_PARAM_MUTABLE_PLAYING);

  /**
   * lycheedecoder:stats:
   *
   * `answers` and `cancelled` (uint): answers that have ended, and how many of them before their
   * end. Of the last one: `transcript-tokens`, `prompt-tokens`, `answer-tokens` (uint),
   * `seconds-to-first`, `seconds`, `tokens-per-second` (double), `cache-bytes` (uint64): keys and
   * values of the transcript, `truncated` (boolean). And what its attention did, where a query is
   * one token, layer and KV head: `dense-queries`, `dense-fallbacks` (sparse was asked for and the
   * transcript shorter than the budget), `sparse-queries`, `rows-visible` (keys that dense
   * attention would have read for these), `rows-read`, `rows-estimated`, `nodes-scored`,
   * `index-bytes` (uint64); with #lycheedecoder:audit, `audits` (uint64), `missed-mass`, `error`
   * (double).
   */
  g_object_class_install_property (object_class, PROP_STATS,
      g_param_spec_boxed ("stats", "Statistics",
          "How many answers were given, and the figures of the last one", GST_TYPE_STRUCTURE,
          G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));

  gst_element_class_add_static_pad_template (element_class, &sink_template);
  gst_element_class_add_static_pad_template (element_class, &src_template);
  gst_element_class_set_static_metadata (element_class, "Lychee decoder", "Converter/Text",
      "Answers from the KV cache of a transcript", "The Lychee authors");
}

static void
transcript_clear (Transcript *transcript)
{
  g_clear_object (&transcript->cache);
  transcript->format = LYCHEE_CHAT_FORMAT_UNKNOWN;
  transcript->tokens = 0;
  transcript->end = GST_CLOCK_TIME_NONE;
  transcript->truncated = FALSE;
}

static void
job_free (Job *job)
{
  transcript_clear (&job->transcript);
  g_object_unref (job->cancellable);
  gst_clear_event (&job->eos);
  g_free (job);
}

static void
gst_lychee_decoder_init (GstLycheeDecoder *self)
{
  g_mutex_init (&self->lock);
  g_cond_init (&self->idle);
  self->prompt = g_strdup (DEFAULT_PROMPT);
  self->max_tokens = DEFAULT_MAX_TOKENS;
  lychee_settings_init (&self->settings, PROP_SETTINGS, settings_names);
  self->sampler = lychee_sampler_new ();
  self->allocator = lychee_kv_allocator_new ();
  self->flushing = TRUE;
  self->stats = gst_structure_new (
      "lychee-decoder-stats", "answers", G_TYPE_UINT, 0, "cancelled", G_TYPE_UINT, 0, NULL);
  transcript_clear (&self->transcript);
  gst_segment_init (&self->segment, GST_FORMAT_TIME);

  self->sinkpad = gst_pad_new_from_static_template (&sink_template, "sink");
  gst_pad_set_chain_function (self->sinkpad, gst_lychee_decoder_chain);
  gst_pad_set_event_function (self->sinkpad, gst_lychee_decoder_sink_event);
  gst_pad_set_query_function (self->sinkpad, gst_lychee_decoder_query);
  gst_pad_set_activatemode_function (self->sinkpad, gst_lychee_decoder_sink_activate_mode);
  gst_element_add_pad (GST_ELEMENT (self), self->sinkpad);

  self->srcpad = gst_pad_new_from_static_template (&src_template, "src");
  gst_pad_set_query_function (self->srcpad, gst_lychee_decoder_query);
  gst_pad_set_activatemode_function (self->srcpad, gst_lychee_decoder_src_activate_mode);
  gst_pad_use_fixed_caps (self->srcpad);
  gst_element_add_pad (GST_ELEMENT (self), self->srcpad);
}

static void
gst_lychee_decoder_finalize (GObject *object)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (object);

  g_clear_pointer (&self->asked, job_free);
  g_clear_object (&self->cancellable);
  transcript_clear (&self->transcript);
  lychee_model_slot_clear (&self->slot);
  g_clear_object (&self->sampler);
  gst_clear_object (&self->allocator);
  gst_structure_free (self->stats);
  lychee_settings_clear (&self->settings);
  g_free (self->prompt);
  g_mutex_clear (&self->lock);
  g_cond_clear (&self->idle);
  G_OBJECT_CLASS (parent_class)->finalize (object);
}

static void
gst_lychee_decoder_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (object);

  if (id == PROP_MODEL) {
    lychee_model_slot_set_path (&self->slot, GST_ELEMENT (self), g_value_get_string (value));
    return;
  }

  GST_OBJECT_LOCK (self);
  switch (id) {
  case PROP_PROMPT:
    g_free (self->prompt);
    /* It goes into a message, which must be text. */
    self->prompt =
        g_value_get_string (value) ? g_utf8_make_valid (g_value_get_string (value), -1) : NULL;
    break;
  case PROP_MAX_TOKENS:
    self->max_tokens = g_value_get_uint (value);
    break;
  default:
    if (id >= PROP_SAMPLER)
      g_object_set_property (G_OBJECT (self->sampler), pspec->name, value);
    else if (!lychee_settings_set (&self->settings, id, value))
      G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
  GST_OBJECT_UNLOCK (self);
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
    g_mutex_lock (&self->lock);
    g_value_set_boxed (value, self->stats);
    g_mutex_unlock (&self->lock);
    return;
  }

  GST_OBJECT_LOCK (self);
  switch (id) {
  case PROP_PROMPT:
    g_value_set_string (value, self->prompt);
    break;
  case PROP_MAX_TOKENS:
    g_value_set_uint (value, self->max_tokens);
    break;
  default:
    if (id >= PROP_SAMPLER)
      g_object_get_property (G_OBJECT (self->sampler), pspec->name, value);
    else if (!lychee_settings_get (&self->settings, id, value))
      G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
  GST_OBJECT_UNLOCK (self);
}

/* The answering thread */

/* Whether nothing has stopped the job since it was asked. */
static gboolean
job_is_wanted (GstLycheeDecoder *self, Job *job)
{
  gboolean wanted;

  g_mutex_lock (&self->lock);
  wanted = job->generation == self->generation;
  g_mutex_unlock (&self->lock);
  return wanted;
}

typedef struct {
  GstLycheeDecoder *self;
  Job *job;
} Piece;

static gboolean
push_piece (const char *text, gpointer user_data)
{
  GstLycheeDecoder *self = ((Piece *) user_data)->self;
  Job *job = ((Piece *) user_data)->job;
  gsize length = strlen (text);
  GstBuffer *buffer;

  if (!job_is_wanted (self, job)) {
    job->flow = GST_FLOW_FLUSHING;
    return FALSE;
  }
  /* Only a model that says NUL comes to this. */
  if (length == 0)
    return TRUE;
  buffer = gst_buffer_new_memdup (text, length);
  GST_BUFFER_PTS (buffer) = job->pts;
  GST_BUFFER_OFFSET (buffer) = job->offset;
  if (job->offset == 0)
    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
  job->offset += length;
  GST_BUFFER_OFFSET_END (buffer) = job->offset;
  job->flow = gst_pad_push (self->srcpad, buffer);
  return job->flow == GST_FLOW_OK;
}

static void
note_stats (GstLycheeDecoder *self, Job *job, LycheeAnswer *answer, LycheeSession *session)
{
  GVariant *attention = g_variant_ref_sink (lychee_session_get_stats (session));
  GVariantIter iter;
  const char *key;
  GVariant *entry;

  double seconds = lychee_answer_get_seconds (answer) - lychee_answer_get_seconds_to_first (answer);

  g_mutex_lock (&self->lock);
  self->n_answers++;
  if (lychee_answer_get_finish (answer) == LYCHEE_FINISH_CANCELLED)
    self->n_cancelled++;
  gst_structure_free (self->stats);
  /* The first token's time is that of reading the question. */
  self->stats = gst_structure_new ("lychee-decoder-stats", "answers", G_TYPE_UINT, self->n_answers,
      "cancelled", G_TYPE_UINT, self->n_cancelled, "transcript-tokens", G_TYPE_UINT,
      (guint) job->transcript.tokens, "prompt-tokens", G_TYPE_UINT,
      lychee_answer_get_prompt_tokens (answer), "answer-tokens", G_TYPE_UINT,
      lychee_answer_get_answer_tokens (answer), "seconds-to-first", G_TYPE_DOUBLE,
      lychee_answer_get_seconds_to_first (answer), "seconds", G_TYPE_DOUBLE,
      lychee_answer_get_seconds (answer), "tokens-per-second", G_TYPE_DOUBLE,
      lychee_answer_get_answer_tokens (answer) > 1 && seconds > 0
          ? (lychee_answer_get_answer_tokens (answer) - 1) / seconds
          : 0.0,
      "truncated", G_TYPE_BOOLEAN, job->transcript.truncated, NULL);
  g_variant_iter_init (&iter, attention);
  while (g_variant_iter_loop (&iter, "{&sv}", &key, &entry)) {
    if (g_variant_is_of_type (entry, G_VARIANT_TYPE_UINT64))
      gst_structure_set (self->stats, key, G_TYPE_UINT64, g_variant_get_uint64 (entry), NULL);
    else if (g_variant_is_of_type (entry, G_VARIANT_TYPE_DOUBLE))
      gst_structure_set (self->stats, key, G_TYPE_DOUBLE, g_variant_get_double (entry), NULL);
  }
  g_mutex_unlock (&self->lock);
  g_variant_unref (attention);
}

static void
post_answer (GstLycheeDecoder *self, Job *job, const char *prompt, LycheeAnswer *answer)
{
  gst_element_post_message (GST_ELEMENT (self),
      gst_message_new_element (GST_OBJECT (self),
          gst_structure_new ("lychee-answer", "text", G_TYPE_STRING,
              lychee_answer_get_text (answer), "prompt", G_TYPE_STRING, prompt, "finish",
              G_TYPE_STRING, lychee_finish_to_string (lychee_answer_get_finish (answer)),
              "transcript-tokens", G_TYPE_UINT, (guint) job->transcript.tokens, "prompt-tokens",
              G_TYPE_UINT, lychee_answer_get_prompt_tokens (answer), "answer-tokens", G_TYPE_UINT,
              lychee_answer_get_answer_tokens (answer), "seconds-to-first", G_TYPE_DOUBLE,
              lychee_answer_get_seconds_to_first (answer), "seconds", G_TYPE_DOUBLE,
              lychee_answer_get_seconds (answer), "truncated", G_TYPE_BOOLEAN,
              job->transcript.truncated, NULL)));
}

/* Makes the answer, pushes it and what follows it, and says how it went. */
static GstFlowReturn
gst_lychee_decoder_answer (GstLycheeDecoder *self, Job *job)
{
  LycheeModel *model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  Piece piece = { self, job };
  GError *error = NULL;
  LycheeSampler *sampler;
  LycheeSession *session;
  LycheeQuestion *question;
  LycheeAnswer *answer;
  char *prompt;
  guint max_tokens;

  GST_OBJECT_LOCK (self);
  prompt = g_strdup (self->prompt != NULL ? self->prompt : "");
  max_tokens = self->max_tokens;
  sampler = lychee_sampler_copy (self->sampler);
  GST_OBJECT_UNLOCK (self);

  GST_INFO_OBJECT (
      self, "answers “%s” from %" G_GUINT64_FORMAT " tokens", prompt, job->transcript.tokens);
  session = lychee_settings_new_session (
      &self->settings, self, model, job->transcript.cache, job->transcript.format);
  question = g_object_new (
      LYCHEE_TYPE_QUESTION, "prompt", prompt, "sampler", sampler, "max-tokens", max_tokens, NULL);
  answer = lychee_session_ask (session, question, push_piece, &piece, job->cancellable, &error);
  g_object_unref (question);
  g_object_unref (sampler);
  g_object_unref (model);

  if (answer != NULL) {
    note_stats (self, job, answer, session);
    /* Before end of stream: who stops at that has it then. */
    post_answer (self, job, prompt, answer);
    g_object_unref (answer);
    if (job->flow == GST_FLOW_NOT_LINKED || job->flow < GST_FLOW_EOS)
      GST_ELEMENT_FLOW_ERROR (self, job->flow);
  } else {
    lychee_element_post_error (GST_ELEMENT (self), error, "There is no answer");
    g_clear_error (&error);
    job->flow = GST_FLOW_ERROR;
  }
  g_object_unref (session);
  g_free (prompt);

  if (job->flow != GST_FLOW_FLUSHING && job_is_wanted (self, job))
    gst_pad_push_event (self->srcpad, g_steal_pointer (&job->eos));
  return job->flow;
}

static void
gst_lychee_decoder_loop (gpointer user_data)
{
  GstPad *pad = user_data;
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (GST_PAD_PARENT (pad));
  GstFlowReturn flow;
  Job *job;

  g_mutex_lock (&self->lock);
  job = g_steal_pointer (&self->asked);
  g_mutex_unlock (&self->lock);

  flow = job != NULL ? gst_lychee_decoder_answer (self, job) : GST_FLOW_OK;

  g_mutex_lock (&self->lock);
  if (job != NULL && job->generation == self->generation) {
    self->srcresult = flow;
    g_clear_object (&self->cancellable);
  }
  /* Under the lock: the next question, which starts it again, comes after or before. */
  if (self->asked == NULL)
    gst_pad_pause_task (pad);
  g_cond_broadcast (&self->idle);
  g_mutex_unlock (&self->lock);
  g_clear_pointer (&job, job_free);
}

/* The other threads */

/* With the lock: ends the answer under way within a token, and the one that is asked for. */
static void
stop_answer (GstLycheeDecoder *self)
{
  self->generation++;
  if (self->cancellable != NULL)
    g_cancellable_cancel (self->cancellable);
  g_clear_object (&self->cancellable);
  g_clear_pointer (&self->asked, job_free);
  g_cond_broadcast (&self->idle);
}

/* What comes after an answer has to wait for its end. FALSE when there is no use in waiting. */
static gboolean
wait_for_answer (GstLycheeDecoder *self)
{
  gboolean running;

  g_mutex_lock (&self->lock);
  while (self->cancellable != NULL && self->active && !self->flushing)
    g_cond_wait (&self->idle, &self->lock);
  running = self->active && !self->flushing;
  g_mutex_unlock (&self->lock);
  return running;
}

/* End of the transcript: has the task answer. Takes @eos. */
static gboolean
gst_lychee_decoder_ask (GstLycheeDecoder *self, GstEvent *eos)
{
  Job *job;
  gboolean running;

  if (self->transcript.tokens == 0) {
    GST_ELEMENT_ERROR (self, STREAM, WRONG_TYPE,
        ("The transcript is empty: nothing was read, so there is nothing to answer from."), (NULL));
    return gst_pad_push_event (self->srcpad, eos);
  }

  job = g_new0 (Job, 1);
  job->transcript = self->transcript;
  g_object_ref (job->transcript.cache);
  job->cancellable = g_cancellable_new ();
  job->eos = eos;
  job->pts = self->segment.start;
  if (GST_CLOCK_TIME_IS_VALID (job->transcript.end))
    job->pts = MAX (job->pts, job->transcript.end);

  g_mutex_lock (&self->lock);
  running = self->active && !self->flushing;
  if (running) {
    job->generation = self->generation;
    self->cancellable = g_object_ref (job->cancellable);
    self->asked = job;
    gst_pad_start_task (self->srcpad, gst_lychee_decoder_loop, self->srcpad, NULL);
  }
  g_mutex_unlock (&self->lock);
  if (!running)
    job_free (job);
  return running;
}

static GstFlowReturn
gst_lychee_decoder_chain (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);
  LycheeKVMeta *meta = lychee_buffer_get_kv_meta (buffer);
  GstClockTime end = GST_BUFFER_PTS (buffer);
  GstFlowReturn ret;

  g_mutex_lock (&self->lock);
  ret = self->active && !self->flushing ? self->srcresult : GST_FLOW_FLUSHING;
  g_mutex_unlock (&self->lock);

  if (ret == GST_FLOW_OK && meta == NULL) {
    GST_ELEMENT_ERROR (self, STREAM, FORMAT,
        ("Keys and values arrive without the cache that they are in."),
        ("no LycheeKVMeta on %" GST_PTR_FORMAT, buffer));
    ret = GST_FLOW_ERROR;
  }
  if (ret == GST_FLOW_OK) {
    Transcript *transcript = &self->transcript;

    if (transcript->cache != meta->cache)
      transcript_clear (transcript);
    g_set_object (&transcript->cache, meta->cache);
    transcript->format = meta->format;
    transcript->tokens = meta->transcript_tokens;
    if (GST_CLOCK_TIME_IS_VALID (end) && GST_BUFFER_DURATION_IS_VALID (buffer))
      end += GST_BUFFER_DURATION (buffer);
    if (GST_CLOCK_TIME_IS_VALID (end) &&
        (!GST_CLOCK_TIME_IS_VALID (transcript->end) || end > transcript->end))
      transcript->end = end;
  }
  gst_buffer_unref (buffer);
  return ret;
}

static gboolean
gst_lychee_decoder_set_caps (GstLycheeDecoder *self, GstCaps *caps)
{
  GstCaps *src_caps;
  gboolean ret;

  if (!lychee_model_slot_check_caps (&self->slot, GST_ELEMENT (self), self->sinkpad, caps))
    return FALSE;
  src_caps = gst_static_pad_template_get_caps (&src_template);
  ret = gst_pad_set_caps (self->srcpad, src_caps);
  gst_caps_unref (src_caps);
  return ret;
}

/* The answer comes after the end of the transcript, so its segment has no end. */
static gboolean
gst_lychee_decoder_segment (GstLycheeDecoder *self, GstEvent *event)
{
  const GstSegment *segment;
  GstEvent *own;

  gst_event_parse_segment (event, &segment);
  if (self->flushed && !lychee_segment_goes_on (segment, self->transcript.end))
    transcript_clear (&self->transcript);
  self->flushed = FALSE;

  if (segment->format == GST_FORMAT_TIME && segment->rate > 0) {
    self->segment = *segment;
    self->segment.stop = GST_CLOCK_TIME_NONE;
    self->segment.duration = GST_CLOCK_TIME_NONE;
  } else {
    gst_segment_init (&self->segment, GST_FORMAT_TIME);
  }
  own = gst_event_new_segment (&self->segment);
  gst_event_set_seqnum (own, gst_event_get_seqnum (event));
  gst_event_unref (event);
  return gst_pad_push_event (self->srcpad, own);
}

static gboolean
gst_lychee_decoder_flush (GstLycheeDecoder *self, GstEvent *event)
{
  gboolean ret;

  if (GST_EVENT_TYPE (event) == GST_EVENT_FLUSH_START) {
    /* Downstream first: a push that waits there returns. Then the task ends, and stays paused. */
    ret = gst_pad_push_event (self->srcpad, event);
    g_mutex_lock (&self->lock);
    self->flushing = TRUE;
    stop_answer (self);
    g_mutex_unlock (&self->lock);
    gst_pad_pause_task (self->srcpad);
  } else {
    ret = gst_pad_push_event (self->srcpad, event);
    g_mutex_lock (&self->lock);
    self->flushing = FALSE;
    self->srcresult = GST_FLOW_OK;
    g_mutex_unlock (&self->lock);
    self->flushed = TRUE;
  }
  return ret;
}

static gboolean
gst_lychee_decoder_sink_event (GstPad *pad, GstObject *parent, GstEvent *event)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);
  GstCaps *caps;
  gboolean ret;

  GST_LOG_OBJECT (self, "%" GST_PTR_FORMAT, event);

  if (GST_EVENT_TYPE (event) == GST_EVENT_FLUSH_START ||
      GST_EVENT_TYPE (event) == GST_EVENT_FLUSH_STOP)
    return gst_lychee_decoder_flush (self, event);

  if (GST_EVENT_IS_SERIALIZED (event) && !wait_for_answer (self)) {
    gst_event_unref (event);
    return FALSE;
  }

  switch (GST_EVENT_TYPE (event)) {
  case GST_EVENT_STREAM_START:
    /* Which cache what comes belongs to is said by each buffer; until one comes there is none. */
    transcript_clear (&self->transcript);
    g_mutex_lock (&self->lock);
    self->srcresult = GST_FLOW_OK;
    g_mutex_unlock (&self->lock);
    break;
  case GST_EVENT_CAPS:
    gst_event_parse_caps (event, &caps);
    ret = gst_lychee_decoder_set_caps (self, caps);
    gst_event_unref (event);
    return ret;
  case GST_EVENT_SEGMENT:
    return gst_lychee_decoder_segment (self, event);
  case GST_EVENT_EOS:
    return gst_lychee_decoder_ask (self, event);
  case GST_EVENT_GAP:
    /* A sink that waits for the clock would slow the reading of a file down to its own time. */
    gst_event_unref (event);
    return TRUE;
  case GST_EVENT_CUSTOM_DOWNSTREAM:
    if (gst_event_has_name (event, "lychee-truncated")) {
      self->transcript.truncated = TRUE;
      gst_event_unref (event);
      return TRUE;
    }
    break;
  default:
    break;
  }
  return gst_pad_event_default (pad, parent, event);
}

static gboolean
gst_lychee_decoder_query (GstPad *pad, GstObject *parent, GstQuery *query)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);

  if (lychee_model_slot_answer_query (&self->slot, GST_ELEMENT (self), query))
    return TRUE;
  if (GST_QUERY_TYPE (query) == GST_QUERY_ALLOCATION && pad == self->sinkpad) {
    gst_query_add_allocation_param (query, GST_ALLOCATOR (self->allocator), NULL);
    gst_query_add_allocation_meta (query, LYCHEE_KV_META_API_TYPE, NULL);
    return TRUE;
  }
  return gst_pad_query_default (pad, parent, query);
}

/* The order of these two is that of GStreamer's queue: say that it is over, wait until it is. */
static gboolean
gst_lychee_decoder_src_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);

  if (mode != GST_PAD_MODE_PUSH)
    return FALSE;
  g_mutex_lock (&self->lock);
  self->active = active;
  if (active)
    self->srcresult = GST_FLOW_OK;
  else
    stop_answer (self);
  g_mutex_unlock (&self->lock);
  return active || gst_pad_stop_task (pad);
}

static gboolean
gst_lychee_decoder_sink_activate_mode (
    GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (parent);

  if (mode != GST_PAD_MODE_PUSH)
    return FALSE;
  g_mutex_lock (&self->lock);
  self->flushing = !active;
  if (!active)
    g_cond_broadcast (&self->idle);
  g_mutex_unlock (&self->lock);
  if (!active) {
    GST_PAD_STREAM_LOCK (pad);
    transcript_clear (&self->transcript);
    gst_segment_init (&self->segment, GST_FORMAT_TIME);
    self->flushed = FALSE;
    GST_PAD_STREAM_UNLOCK (pad);
  }
  return TRUE;
}

static GstStateChangeReturn
gst_lychee_decoder_change_state (GstElement *element, GstStateChange transition)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (element);
  GstStateChangeReturn ret;

  if (transition == GST_STATE_CHANGE_NULL_TO_READY &&
      !lychee_model_slot_open (&self->slot, element))
    return GST_STATE_CHANGE_FAILURE;

  ret = GST_ELEMENT_CLASS (parent_class)->change_state (element, transition);

  if (transition == GST_STATE_CHANGE_PAUSED_TO_READY)
    lychee_model_slot_forget_caps (&self->slot, element);
  else if (transition == GST_STATE_CHANGE_READY_TO_NULL)
    lychee_model_slot_close (&self->slot, element);
  return ret;
}
