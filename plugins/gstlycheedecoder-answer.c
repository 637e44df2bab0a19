/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "gstlycheedecoder-private.h"

#include "lychee-drain.h"
#include "lychee-element.h"

/* So long an answer waits for the words that are on their way when it is asked for, in
 * microseconds: reading may be far behind. Where nothing has been read yet, so long from then on
 * that something has, or the model is loaded. */
#define DRAIN_LIMIT (2 * G_USEC_PER_SEC)

/* The threads that answer */

typedef struct {
  LycheeJob *job;
  LycheeAnswerWriter *writer;
} Answering;

static gboolean
push_piece (const char *text, gpointer user_data)
{
  Answering *answering = user_data;

  GST_TRACE ("answer %s: “%s”", lychee_job_get_ask (answering->job)->id, text);
  if (!lychee_job_goes_on (answering->job))
    return FALSE;
  lychee_answer_writer_push (answering->writer, text);
  return TRUE;
}

static void
put_buffer (GstBuffer *buffer, gpointer job)
{
  lychee_job_put (job, buffer);
}

static void
set_array (GstStructure *structure, const char *key, GVariant *numbers)
{
  GValue array = G_VALUE_INIT, value = G_VALUE_INIT;
  gsize n;
  const guint64 *number = g_variant_get_fixed_array (numbers, &n, sizeof *number);

  g_value_init (&array, GST_TYPE_ARRAY);
  g_value_init (&value, G_TYPE_UINT64);
  for (gsize i = 0; i < n; i++) {
    g_value_set_uint64 (&value, number[i]);
    gst_value_array_append_value (&array, &value);
  }
  gst_structure_take_value (structure, key, &array);
}

/* Counts an answer; of one that was made, what it cost is the last answer's figures. */
static void
note_answer (GstLycheeDecoder *self, const GstStructure *description, LycheeSession *session)
{
  static const char *const figures[] = { "transcript-tokens", "prompt-tokens", "answer-tokens",
    "seconds-to-first", "seconds", "truncated" };
  const char *finish = gst_structure_get_string (description, "finish");
  GstStructure *last = NULL;
  double first = 0, seconds = 0;
  guint tokens = 0;

  if (session != NULL) {
    GVariant *attention = lychee_session_get_stats (session);
    GVariantIter iter;
    const char *key;
    GVariant *entry;

    last = gst_structure_new_empty ("lychee-decoder-stats");
    for (guint i = 0; i < G_N_ELEMENTS (figures); i++)
      gst_structure_set_value (last, figures[i], gst_structure_get_value (description, figures[i]));
    gst_structure_get (description, "answer-tokens", G_TYPE_UINT, &tokens, "seconds-to-first",
        G_TYPE_DOUBLE, &first, "seconds", G_TYPE_DOUBLE, &seconds, NULL);
    /* The first token's time is that of reading the question. */
    gst_structure_set (last, "tokens-per-second", G_TYPE_DOUBLE,
        tokens > 1 && seconds > first ? (tokens - 1) / (seconds - first) : 0.0, NULL);
    g_variant_iter_init (&iter, attention);
    while (g_variant_iter_loop (&iter, "{&sv}", &key, &entry)) {
      if (g_variant_is_of_type (entry, G_VARIANT_TYPE_UINT64))
        gst_structure_set (last, key, G_TYPE_UINT64, g_variant_get_uint64 (entry), NULL);
      else if (g_variant_is_of_type (entry, G_VARIANT_TYPE_DOUBLE))
        gst_structure_set (last, key, G_TYPE_DOUBLE, g_variant_get_double (entry), NULL);
      else if (g_variant_is_of_type (entry, G_VARIANT_TYPE ("at")))
        set_array (last, key, entry);
    }
    g_variant_unref (attention);
  }

  GST_OBJECT_LOCK (self);
  self->n_answers++;
  if (g_str_equal (finish, "cancelled"))
    self->n_cancelled++;
  else if (g_str_equal (finish, "empty"))
    self->n_empty++;
  else if (g_str_equal (finish, "failed"))
    self->n_failed++;
  if (last != NULL) {
    g_clear_pointer (&self->last, gst_structure_free);
    self->last = last;
  }
  GST_OBJECT_UNLOCK (self);
}

/* The answer of the model. NULL with an error. */
static LycheeAnswer *
ask_model (GstLycheeDecoder *self, Answering *answering, LycheeSession **session, GError **error)
{
  LycheeModel *model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  LycheeAsk *ask = lychee_job_get_ask (answering->job);
  LycheeAnswer *answer;

  if (model == NULL) {
    g_set_error_literal (
        error, G_IO_ERROR, G_IO_ERROR_CANCELLED, "The model was not loaded when this ended");
    return NULL;
  }
  *session = lychee_settings_new_session (&self->settings, self, model, ask->snapshot, ask->format);
  g_object_unref (model);
  answer = lychee_session_ask (*session, ask->question, push_piece, answering,
      lychee_job_get_cancellable (answering->job), error);
  if (answer == NULL)
    g_clear_object (session);
  return answer;
}

/* Only at the end of the transcript does a failure end the stream: a question that cannot be
 * answered is no reason to stop listening. */
static void
report_failure (GstLycheeDecoder *self, LycheeAsk *ask, const GError *error)
{
  if (ask->kind == LYCHEE_ASK_FINAL || error->domain == LYCHEE_MODEL_ERROR)
    lychee_element_post_error (GST_ELEMENT (self), error, "There is no answer");
  else
    lychee_element_post_warning (GST_ELEMENT (self), error, "There is no answer");
}

/* Says how an answer ended: as its last piece, and on the bus. Before end of stream: who stops at
 * that has it then. Takes @description. */
static void
end_answer (GstLycheeDecoder *self, LycheeAnswerWriter *writer, GstStructure *description)
{
  lychee_answer_writer_finish (writer, description);
  gst_element_post_message (
      GST_ELEMENT (self), gst_message_new_element (GST_OBJECT (self), description));
}

static void
on_progress (LycheeQuestion *question, LycheeAnswer *so_far, gpointer writer)
{
  lychee_answer_writer_note_evidence (writer, lychee_answer_get_evidence (so_far));
}

static LycheeAnswerWriter *
new_writer (GstLycheeDecoder *self, LycheeJob *job)
{
  LycheeAsk *ask = lychee_job_get_ask (job);
  LycheeAnswerWriter *writer;
  LycheeStream stream;
  gboolean marks;

  GST_OBJECT_LOCK (self);
  stream = self->stream;
  marks = self->marks && lychee_question_get_quotes (ask->question) == 0; /* which have times */
  GST_OBJECT_UNLOCK (self);
  writer = lychee_answer_writer_new (ask, ask->json, stream, marks, put_buffer, job);
  /* What nobody is connected to costs nothing. The question is this job's own. */
  if (marks && !ask->json && stream == LYCHEE_STREAM_SENTENCE)
    g_signal_connect (ask->question, "progress", G_CALLBACK (on_progress), writer);
  return writer;
}

/* Notes what has been read up to now. */
static gboolean
take_snapshot (GstLycheeDecoder *self, LycheeAsk *ask, GError **error)
{
  g_autoptr (LycheeCache) cache = NULL;
  LycheeChatFormat format;
  GstClockTime start;

  GST_OBJECT_LOCK (self);
  g_set_object (&cache, self->cache);
  format = self->format;
  start = self->start;
  ask->truncated = self->truncated;
  GST_OBJECT_UNLOCK (self);
  return lychee_ask_take_snapshot (ask, cache, format, start, error);
}

/* The same later, when downstream has said what it takes, too. */
static void
renew_snapshot (LycheeAsk *ask, gpointer user_data)
{
  GstLycheeDecoder *self = user_data;
  g_autoptr (GError) error = NULL;

  GST_OBJECT_LOCK (self);
  ask->json = self->json;
  GST_OBJECT_UNLOCK (self);

  if (!take_snapshot (self, ask, &error))
    GST_WARNING_OBJECT (
        self, "answer %s goes by what was read before: %s", ask->id, error->message);
}

/* What an answer is begun to, or was cancelled. Nobody else has it. */
static LycheeAsk *
take_ask (GstLycheeDecoder *self, LycheeJob *job)
{
  LycheeAsk *ask = lychee_job_get_ask (job);

  /* It may be the first words that were waited for. */
  if (ask->snapshot == NULL && !g_cancellable_is_cancelled (lychee_job_get_cancellable (job))) {
    renew_snapshot (ask, self);
    lychee_job_set_interleave (job, ask->json);
  }
  return ask;
}

void
gst_lychee_decoder_make_answer (LycheeJob *job, gpointer user_data)
{
  GstLycheeDecoder *self = user_data;
  LycheeAsk *ask = take_ask (self, job);
  g_autoptr (LycheeAnswerWriter) writer = new_writer (self, job);
  Answering answering = { job, writer };
  g_autoptr (LycheeAnswer) answer = NULL;
  g_autoptr (LycheeSession) session = NULL;
  g_autoptr (GError) error = NULL;
  const char *finish = NULL, *reason = NULL;
  GstStructure *description;

  GST_INFO_OBJECT (self, "answer %s: “%s”, up to %" GST_TIME_FORMAT, ask->id,
      lychee_question_get_prompt (ask->question), GST_TIME_ARGS (ask->time));
  if (!lychee_job_goes_on (job)) {
    finish = "cancelled";
  } else if (ask->snapshot == NULL) {
    finish = "empty";
    reason = "The transcript is empty: nothing was said, so there is nothing to answer from.";
  } else if ((answer = ask_model (self, &answering, &session, &error)) == NULL) {
    finish = g_error_matches (error, LYCHEE_SESSION_ERROR, LYCHEE_SESSION_ERROR_EMPTY) ? "empty"
                                                                                       : "failed";
    reason = error->message;
  }
  description = lychee_answer_describe (ask, answer, finish, reason);
  GST_INFO_OBJECT (self, "%" GST_PTR_FORMAT, description);
  note_answer (self, description, session);
  if (g_strcmp0 (finish, "failed") == 0)
    report_failure (self, ask, error);
  else if (g_strcmp0 (finish, "empty") == 0 && ask->kind == LYCHEE_ASK_FINAL)
    GST_ELEMENT_WARNING (self, STREAM, WRONG_TYPE, ("%s", reason), (NULL));
  g_signal_handlers_disconnect_by_func (ask->question, on_progress, writer);
  lychee_job_end (job);
  end_answer (self, writer, description);
}

/* Asking, in any thread */

static void
name_ask (GstLycheeDecoder *self, LycheeAsk *ask)
{
  GST_OBJECT_LOCK (self);
  ask->json = self->json;
  self->n_asked++;
  if (ask->id == NULL)
    ask->id = g_strdup_printf ("%" G_GUINT64_FORMAT, self->n_asked);
  GST_OBJECT_UNLOCK (self);
}

/* Who sent a `lychee-drain`, among its fields. */
#define DRAIN_SENDER "lychee-decoder"

static GstEvent *
new_drain (GstLycheeDecoder *self)
{
  return gst_event_new_custom (GST_EVENT_CUSTOM_UPSTREAM,
      gst_structure_new (LYCHEE_DRAIN_EVENT, DRAIN_SENDER, G_TYPE_POINTER, self, NULL));
}

/* What was asked while the model was loaded, and nobody has said a word: what is on its way comes
 * within the limit, or before what turns round upstream then. */
static void
end_waiting (GstElement *element, gpointer user_data)
{
  GstLycheeDecoder *self = GST_LYCHEE_DECODER (element);
  g_autoptr (LycheeModel) model = lychee_model_slot_ref_model (&self->slot, element);
  gboolean waits = model != NULL &&
                   lychee_answer_queue_wait (self->queue, g_get_monotonic_time () + DRAIN_LIMIT);
  GstEvent *drain;
  guint32 number;

  /* Who asks from now on has this done again. */
  g_atomic_int_set (&self->ends_waiting, FALSE);
  if (!waits)
    return;
  drain = new_drain (self);
  number = gst_event_get_seqnum (drain);
  lychee_answer_queue_set_drain (self->queue, number);
  if (!gst_pad_push_event (self->sinkpad, drain))
    lychee_answer_queue_release (self->queue, number, renew_snapshot, self);
}

gboolean
gst_lychee_decoder_submit (GstLycheeDecoder *self, LycheeAsk *ask, GstEvent *drain)
{
  g_autoptr (GstEvent) event = drain;
  g_autoptr (GError) error = NULL;
  gboolean loaded = lychee_model_slot_is_loaded (&self->slot, GST_ELEMENT (self));
  gint64 until = 0;

  name_ask (self, ask);
  if (!take_snapshot (self, ask, &error)) {
    GstStructure *description = lychee_answer_describe (ask, NULL, "failed", error->message);

    note_answer (self, description, NULL);
    report_failure (self, ask, error);
    gst_element_post_message (
        GST_ELEMENT (self), gst_message_new_element (GST_OBJECT (self), description));
    return TRUE;
  }
  if (event != NULL) {
    ask->drain = gst_event_get_seqnum (event);
    until = ask->snapshot != NULL ? g_get_monotonic_time () + DRAIN_LIMIT : LYCHEE_ANSWER_FOR_EVER;
  }
  if (!lychee_answer_queue_ask (self->queue, ask, ask->json, until))
    return FALSE;
  if (event != NULL) {
    guint32 number = ask->drain;

    if (gst_pad_push_event (self->sinkpad, g_steal_pointer (&event)))
      return TRUE;
    /* While the model is loaded, upstream takes nothing: what was said meanwhile is yet to come. */
    if (loaded || until != LYCHEE_ANSWER_FOR_EVER)
      lychee_answer_queue_release (self->queue, number, NULL, NULL);
    else if (g_atomic_int_compare_and_exchange (&self->ends_waiting, FALSE, TRUE))
      gst_element_call_async (GST_ELEMENT (self), end_waiting, NULL, NULL);
  }
  return TRUE;
}

void
gst_lychee_decoder_limit_drains (GstLycheeDecoder *self)
{
  lychee_answer_queue_limit (self->queue, g_get_monotonic_time () + DRAIN_LIMIT);
}

void
gst_lychee_decoder_end_drain (GstLycheeDecoder *self, GstEvent *event)
{
  const GValue *sender = gst_structure_get_value (gst_event_get_structure (event), DRAIN_SENDER);

  /* That of another decoder is nobody's business downstream. */
  if (sender == NULL) {
    lychee_answer_queue_push_event (self->queue, event);
    return;
  }
  if (g_value_get_pointer (sender) == self)
    lychee_answer_queue_release (self->queue, gst_event_get_seqnum (event), renew_snapshot, self);
  gst_event_unref (event);
}

void
gst_lychee_decoder_end_drains (GstLycheeDecoder *self)
{
  lychee_answer_queue_release (self->queue, 0, renew_snapshot, self);
}

LycheeAsk *
gst_lychee_decoder_new_ask (GstLycheeDecoder *self, LycheeAskKind kind)
{
  LycheeQuestion *question;

  GST_OBJECT_LOCK (self);
  question = lychee_question_copy (self->question);
  if (kind == LYCHEE_ASK_SUMMARY)
    lychee_question_set_prompt (question, self->summary_prompt);
  GST_OBJECT_UNLOCK (self);
  return lychee_ask_new (kind, question);
}

static char *
ask_question (
    GstLycheeDecoder *self, const char *prompt, const GstStructure *options, gboolean in_order)
{
  g_autoptr (LycheeAsk) ask = gst_lychee_decoder_new_ask (self, LYCHEE_ASK_QUESTION);
  g_autoptr (GError) error = NULL;

  if (options != NULL && !lychee_ask_set_options (ask, options, &error)) {
    GST_ELEMENT_WARNING (self, LIBRARY, SETTINGS, ("%s.", error->message), (NULL));
    return NULL;
  }
  if (prompt != NULL)
    lychee_question_set_prompt (ask->question, prompt);
  if (!gst_lychee_decoder_submit (self, ask, in_order ? NULL : new_drain (self))) {
    GST_ELEMENT_WARNING (self, CORE, STATE_CHANGE,
        ("“%s” was not asked: the decoder answers while it is PAUSED or PLAYING and the stream "
         "goes on.",
            lychee_question_get_prompt (ask->question)),
        (NULL));
    return NULL;
  }
  return g_strdup (ask->id);
}

char *
gst_lychee_decoder_ask (GstLycheeDecoder *self, const char *prompt, const GstStructure *options)
{
  return ask_question (self, prompt, options, FALSE);
}

guint
gst_lychee_decoder_cancel (GstLycheeDecoder *self, const char *id)
{
  guint n = lychee_answer_queue_cancel (self->queue, id);

  GST_DEBUG_OBJECT (self, "cancelled %u answers (%s)", n, id != NULL ? id : "all");
  return n;
}

gboolean
gst_lychee_decoder_take_event (GstLycheeDecoder *self, GstEvent *event, gboolean in_order)
{
  const GstStructure *structure = gst_event_get_structure (event);

  if (gst_event_has_name (event, LYCHEE_ASK_EVENT))
    g_free (ask_question (self, NULL, structure, in_order));
  else if (gst_event_has_name (event, LYCHEE_CANCEL_EVENT))
    gst_lychee_decoder_cancel (self, gst_structure_get_string (structure, "id"));
  else
    return FALSE;
  gst_event_unref (event);
  return TRUE;
}
