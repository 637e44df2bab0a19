/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Whole pipelines, from a file to an answer: one model for all, errors where they belong, seeks and
 * state changes in the middle, and nothing left behind. */

#include "test-elements-common.h"

#include "tiny-model.h"

#include <glib/gstdio.h>
#include <string.h>

#define SOURCE(file) "filesrc location=DIR/" file " ! subparse subtitle-encoding=UTF-8 "
#define READ "! lycheetokenizer name=t ! lycheechunker ! lycheeindexer name=i system-prompt=\"\" "
#define ANSWER "! lycheedecoder name=d max-tokens=20 "
#define SINK "! fakesink name=s sync=false signal-handoffs=true "

static void
set_model (GstElement *pipeline, const char *name, const char *model)
{
  GstElement *element = gst_bin_get_by_name (GST_BIN (pipeline), name);

  g_assert_nonnull (element);
  g_object_set (element, "model", model, NULL);
  gst_object_unref (element);
}

static void
play (GstElement *pipeline)
{
  g_assert_cmpint (
      gst_element_set_state (pipeline, GST_STATE_PLAYING), !=, GST_STATE_CHANGE_FAILURE);
}

static void
stop (GstElement *pipeline)
{
  g_assert_cmpint (gst_element_set_state (pipeline, GST_STATE_NULL), ==, GST_STATE_CHANGE_SUCCESS);
  test_unref_last (pipeline);
}

typedef struct {
  guint answers;
  guint models; /* that were loaded */
  guint loading, loaded;
  guint errors;
  guint warnings;
  double percent; /* of the last progress */
  char *text;     /* of the last answer */
  char *finish;
  gboolean eos;
  GError *error; /* the first */
} Outcome;

static void
outcome_clear (Outcome *outcome)
{
  g_free (outcome->text);
  g_free (outcome->finish);
  g_clear_error (&outcome->error);
  memset (outcome, 0, sizeof *outcome);
}

static void
note_message (Outcome *outcome, GstMessage *message)
{
  const GstStructure *structure = gst_message_get_structure (message);

  switch (GST_MESSAGE_TYPE (message)) {
  case GST_MESSAGE_ERROR:
    if (outcome->errors++ == 0)
      gst_message_parse_error (message, &outcome->error, NULL);
    break;
  case GST_MESSAGE_WARNING:
    outcome->warnings++;
    break;
  case GST_MESSAGE_HAVE_CONTEXT: {
    GstContext *context;

    gst_message_parse_have_context (message, &context);
    outcome->models += gst_structure_has_field (gst_context_get_structure (context), "model");
    gst_context_unref (context);
    break;
  }
  case GST_MESSAGE_PROGRESS: {
    GstProgressType type;

    gst_message_parse_progress (message, &type, NULL, NULL);
    outcome->loading += type == GST_PROGRESS_TYPE_START;
    outcome->loaded += type == GST_PROGRESS_TYPE_COMPLETE;
    break;
  }
  case GST_MESSAGE_EOS:
    outcome->eos = TRUE;
    break;
  case GST_MESSAGE_ELEMENT:
    if (gst_structure_has_name (structure, "lychee-progress"))
      gst_structure_get_double (structure, "percent", &outcome->percent);
    if (gst_structure_has_name (structure, "lychee-answer")) {
      g_free (outcome->text);
      g_free (outcome->finish);
      outcome->text = g_strdup (gst_structure_get_string (structure, "text"));
      outcome->finish = g_strdup (gst_structure_get_string (structure, "finish"));
      outcome->answers++;
    }
    break;
  default:
    break;
  }
}

static void
run_until (GstElement *pipeline, Outcome *outcome, gboolean eos)
{
  GstBus *bus = gst_element_get_bus (pipeline);
  GstMessage *message;

  while (!(eos && outcome->eos) && outcome->errors == 0) {
    message = gst_bus_timed_pop (bus, TEST_TIMEOUT);
    g_assert_nonnull (message);
    note_message (outcome, message);
    gst_message_unref (message);
  }
  gst_object_unref (bus);
}

/* Until end of stream or an error. What follows an error is not waited for. */
static void
run (GstElement *pipeline, Outcome *outcome)
{
  run_until (pipeline, outcome, TRUE);
}

/* A stream without anything in it may end before a thread has found that the model is none. */
static void
run_to_error (GstElement *pipeline, Outcome *outcome)
{
  run_until (pipeline, outcome, FALSE);
}

/* What is on the bus by now. */
static void
note_all (GstElement *pipeline, Outcome *outcome)
{
  GstBus *bus = gst_element_get_bus (pipeline);
  GstMessage *message;

  while ((message = gst_bus_pop (bus)) != NULL) {
    note_message (outcome, message);
    gst_message_unref (message);
  }
  gst_object_unref (bus);
}

static void
collect (GstElement *pipeline, GString *text)
{
  GstElement *sink = gst_bin_get_by_name (GST_BIN (pipeline), "s");

  g_signal_connect (sink, "handoff", G_CALLBACK (test_append_handoff), text);
  gst_object_unref (sink);
}

static void
test_file (gconstpointer data)
{
  const char *contents = data;
  char *own = contents == NULL ? test_srt (30) : g_strdup (contents);
  char *path = test_write_file ("talk", own);
  gboolean srt = contents == NULL;
  GString *text = g_string_new (NULL);
  GstElement *pipeline;
  Outcome outcome = { 0 };

  pipeline = test_pipeline (
      srt ? SOURCE ("talk") READ ANSWER SINK
          : "filesrc location=DIR/talk blocksize=7 ! text/x-raw,format=utf8 " READ ANSWER SINK);
  set_model (pipeline, "t", test_model ());
  collect (pipeline, text);
  play (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpuint (outcome.answers, ==, 1);
  test_assert_same_answer (text->str, outcome.text);
  g_assert_cmpstr (outcome.finish, ==, "length");
  g_assert_cmpfloat (outcome.percent, ==, 100);
  g_assert_cmpuint (outcome.loading, ==, 1);
  g_assert_cmpuint (outcome.loaded, ==, 1);
  /* The model was named on one element, and loaded once. */
  g_assert_cmpuint (outcome.models, ==, 1);
  outcome_clear (&outcome);
  stop (pipeline);
  g_string_free (text, TRUE);
  g_free (own);
  g_free (path);
}

/* Whichever element names it, and where the environment does. */
static void
test_share (gconstpointer data)
{
  const char *names = data;
  char *srt = test_srt (3), *path = test_write_file ("share.srt", srt);
  GstElement *pipeline = test_pipeline (SOURCE ("share.srt") READ ANSWER SINK);
  Outcome outcome = { 0 };

  if (*names == '\0')
    g_setenv ("LYCHEE_MODEL", test_model (), TRUE);
  for (; *names != '\0'; names++)
    set_model (pipeline, (char[]){ *names, '\0' }, test_model ());
  play (pipeline);
  run (pipeline, &outcome);
  g_unsetenv ("LYCHEE_MODEL");
  g_assert_no_error (outcome.error);
  g_assert_cmpuint (outcome.models, ==, 1);
  outcome_clear (&outcome);
  stop (pipeline);
  g_free (srt);
  g_free (path);
}

/* An application that has a model gives it. */
static void
test_given_by_application (void)
{
  char *srt = test_srt (3), *path = test_write_file ("given.srt", srt);
  GstElement *pipeline = test_pipeline (SOURCE ("given.srt") READ ANSWER SINK);
  GstContext *context = gst_context_new ("lychee.model", TRUE);
  LycheeModel *model = test_get_model ();
  guint refs = G_OBJECT (model)->ref_count;
  Outcome outcome = { 0 };

  gst_structure_set (gst_context_writable_structure (context), "model", LYCHEE_TYPE_MODEL, model,
      "path", G_TYPE_STRING, lychee_model_get_path (model), NULL);
  gst_element_set_context (pipeline, context);
  gst_context_unref (context);
  play (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpuint (outcome.models, ==, 0);
  g_assert_cmpuint (outcome.answers, ==, 1);
  outcome_clear (&outcome);
  stop (pipeline);
  g_assert_cmpuint (G_OBJECT (model)->ref_count, ==, refs);
  g_free (srt);
  g_free (path);
}

/* Two branches, each with a model of its own. */
static void
test_two_models (void)
{
  char *srt = test_srt (5), *path = test_write_file ("two.srt", srt);
  GstElement *pipeline = test_pipeline (SOURCE (
      "two.srt") "! tee name=tee "
                 "tee. ! queue ! lycheetokenizer model=MODEL ! lycheechunker ! lycheeindexer "
                 "model=MODEL system-prompt=\"\" ! lycheedecoder model=MODEL max-tokens=5 ! "
                 "fakesink "
                 "tee. ! queue ! lycheetokenizer model=OTHER ! lycheechunker ! lycheeindexer "
                 "model=OTHER system-prompt=\"\" ! lycheedecoder model=OTHER max-tokens=5 ! "
                 "fakesink");
  Outcome outcome = { 0 };

  play (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpuint (outcome.answers, ==, 2);
  g_assert_cmpuint (outcome.models, ==, 2);
  outcome_clear (&outcome);
  stop (pipeline);
  g_free (srt);
  g_free (path);
}

/* Two questions to one cache, answered at the same time. */
static void
test_two_decoders (void)
{
  char *srt = test_srt (20), *path = test_write_file ("tee.srt", srt);
  GstElement *pipeline = test_pipeline (
      SOURCE ("tee.srt") READ "! tee name=tee "
                              "tee. ! queue ! lycheedecoder name=d prompt=Who? "
                              "max-tokens=30 ! fakesink name=s signal-handoffs=true "
                              "tee. ! queue ! lycheedecoder name=e prompt=Who? max-tokens=30 ! "
                              "fakesink name=r signal-handoffs=true");
  GString *text = g_string_new (NULL), *other = g_string_new (NULL);
  GstElement *sink = gst_bin_get_by_name (GST_BIN (pipeline), "r");
  Outcome outcome = { 0 };

  set_model (pipeline, "i", test_model ());
  collect (pipeline, text);
  g_signal_connect (sink, "handoff", G_CALLBACK (test_append_handoff), other);
  gst_object_unref (sink);
  play (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpuint (outcome.answers, ==, 2);
  g_assert_cmpuint (text->len, >, 0);
  g_assert_cmpstr (text->str, ==, other->str);
  outcome_clear (&outcome);
  stop (pipeline);
  g_string_free (text, TRUE);
  g_string_free (other, TRUE);
  g_free (srt);
  g_free (path);
}

/* Model files that cannot be used: one message of the right kind, and the pipeline does not start.
 */
typedef struct {
  const char *name;
  const char *contents; /* NULL: no such file */
  gsize length;
  GQuark (*domain) (void);
  int code;
} BadModel;

static const BadModel bad_models[] = {
  { "missing", NULL, 0, gst_resource_error_quark, GST_RESOURCE_ERROR_NOT_FOUND },
  { "not-gguf", "This is not a model, only text that is long enough for a header.", 64,
      gst_stream_error_quark, GST_STREAM_ERROR_WRONG_TYPE },
  { "empty", "", 0, gst_stream_error_quark, -1 },
  { "big-endian", "GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, gst_stream_error_quark,
      GST_STREAM_ERROR_WRONG_TYPE },
};

static void
test_bad_model (gconstpointer data)
{
  const BadModel *bad = data;
  char *path = g_build_filename (test_dir (), bad->name, NULL);
  GstElement *pipeline = test_pipeline ("fakesrc num-buffers=0 " READ ANSWER SINK);
  Outcome outcome = { 0 };

  if (bad->contents != NULL)
    g_assert_true (g_file_set_contents (path, bad->contents, bad->length, NULL));
  for (const char *names = "tid"; *names != '\0'; names++)
    set_model (pipeline, (char[]){ *names, '\0' }, path);
  play (pipeline);
  run_to_error (pipeline, &outcome);
  note_all (pipeline, &outcome);
  g_assert_cmpuint (outcome.errors, ==, 1);
  g_test_message ("%s", outcome.error->message);
  g_assert_cmpuint (outcome.error->domain, ==, bad->domain ());
  if (bad->code >= 0)
    g_assert_cmpint (outcome.error->code, ==, bad->code);
  g_assert_nonnull (strstr (outcome.error->message, path));
  outcome_clear (&outcome);
  stop (pipeline);
  g_free (path);
}

static void
test_truncated_model (void)
{
  GstElement *pipeline = test_pipeline ("fakesrc num-buffers=0 " READ ANSWER SINK);
  char *path = g_build_filename (test_dir (), "truncated.gguf", NULL), *contents;
  Outcome outcome = { 0 };
  gsize length;

  g_assert_true (g_file_get_contents (test_model (), &contents, &length, NULL));
  g_assert_true (g_file_set_contents (path, contents, length - 1000, NULL));
  set_model (pipeline, "d", path);
  play (pipeline);
  run_to_error (pipeline, &outcome);
  note_all (pipeline, &outcome);
  g_assert_cmpuint (outcome.errors, ==, 1);
  g_assert_error (outcome.error, GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT);
  outcome_clear (&outcome);
  stop (pipeline);
  g_free (path);
  g_free (contents);
}

/* No model was named, and there is none where the default one would be. */
static void
test_no_model_named (void)
{
  GstElement *pipeline = test_pipeline ("fakesrc num-buffers=0 " READ ANSWER SINK);
  Outcome outcome = { 0 };

  g_setenv ("LYCHEE_MODEL", "/nonexistent/model.gguf", TRUE);
  play (pipeline);
  g_unsetenv ("LYCHEE_MODEL");
  run_to_error (pipeline, &outcome);
  note_all (pipeline, &outcome);
  g_assert_cmpuint (outcome.errors, ==, 1);
  g_assert_error (outcome.error, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND);
  g_assert_nonnull (strstr (outcome.error->message, "/nonexistent/model.gguf"));
  g_assert_nonnull (strstr (outcome.error->message, "LYCHEE_MODEL"));
  outcome_clear (&outcome);
  stop (pipeline);
}

static void
test_models_differ (void)
{
  char *srt = test_srt (5), *path = test_write_file ("other.srt", srt);
  GstElement *pipeline = test_pipeline (SOURCE ("other.srt") READ ANSWER SINK);
  Outcome outcome = { 0 };

  set_model (pipeline, "t", test_other_model ());
  set_model (pipeline, "i", test_model ());
  set_model (pipeline, "d", test_model ());
  play (pipeline);
  run (pipeline, &outcome);
  g_assert_error (outcome.error, GST_CORE_ERROR, GST_CORE_ERROR_NEGOTIATION);
  g_assert_nonnull (strstr (outcome.error->message, test_model ()));
  g_assert_nonnull (strstr (outcome.error->message, test_other_model ()));
  outcome_clear (&outcome);
  stop (pipeline);
  g_free (srt);
  g_free (path);
}

/* A file without words: the pipeline ends, with a warning and an answer that is empty. */
static void
test_empty_file (void)
{
  char *path = test_write_file ("empty.txt", "");
  GstElement *pipeline =
      test_pipeline ("filesrc location=DIR/empty.txt ! text/x-raw,format=utf8 " READ ANSWER SINK);
  Outcome outcome = { 0 };

  set_model (pipeline, "d", test_model ());
  play (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpuint (outcome.answers, ==, 1);
  g_assert_cmpuint (outcome.warnings, ==, 1);
  g_assert_cmpstr (outcome.text, ==, "");
  g_assert_cmpstr (outcome.finish, ==, "empty");
  outcome_clear (&outcome);
  stop (pipeline);
  g_free (path);
}

/* In the middle */

typedef struct {
  GMutex lock;
  GCond cond;
  guint seen;
} Pieces;

static void
on_piece (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer user_data)
{
  Pieces *pieces = user_data;

  g_mutex_lock (&pieces->lock);
  pieces->seen++;
  g_cond_signal (&pieces->cond);
  g_mutex_unlock (&pieces->lock);
}

static void
wait_for_pieces (Pieces *pieces, guint n)
{
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  g_mutex_lock (&pieces->lock);
  while (pieces->seen < n)
    g_assert_true (g_cond_wait_until (&pieces->cond, &pieces->lock, until));
  g_mutex_unlock (&pieces->lock);
}

static GstElement *
endless (Pieces *pieces, const char *extra)
{
  char *srt = test_srt (20), *path = test_write_file ("endless.srt", srt);
  char *line = g_strconcat (SOURCE ("endless.srt"), READ,
      "! lycheedecoder name=d model=MODEL max-tokens=0 ", extra, SINK, NULL);
  GstElement *pipeline = test_pipeline (line);
  GstElement *sink = gst_bin_get_by_name (GST_BIN (pipeline), "s");

  memset (pieces, 0, sizeof *pieces);
  g_mutex_init (&pieces->lock);
  g_cond_init (&pieces->cond);
  g_signal_connect (sink, "handoff", G_CALLBACK (on_piece), pieces);
  gst_object_unref (sink);
  g_free (line);
  g_free (srt);
  g_free (path);
  return pipeline;
}

static void
pieces_clear (Pieces *pieces)
{
  g_mutex_clear (&pieces->lock);
  g_cond_clear (&pieces->cond);
}

static void
seek_to_start (GstElement *pipeline)
{
  g_assert_true (gst_element_seek_simple (
      pipeline, GST_FORMAT_TIME, GST_SEEK_FLAG_FLUSH | GST_SEEK_FLAG_KEY_UNIT, 0));
}

/* The answer of before is over, and the whole transcript is read and answered again. */
static void
test_seek (gconstpointer data)
{
  guint times = GPOINTER_TO_UINT (data);
  Pieces pieces;
  GstElement *pipeline = endless (&pieces, "");
  GstElement *decoder = gst_bin_get_by_name (GST_BIN (pipeline), "d");
  Outcome outcome = { 0 };
  GstStructure *stats = NULL;
  guint tokens = 0, read = 0;
  g_autofree Hold *holds = g_new0 (Hold, times);

  /* Each answer is held in its middle until the seek: it must not end before. */
  test_hold_decoder (&holds[0], decoder, 3);
  play (pipeline);
  for (guint i = 0; i < times; i++) {
    test_hold_wait (&holds[i]);
    if (i + 1 == times)
      g_object_set (decoder, "max-tokens", 20, NULL);
    else
      test_hold_decoder (&holds[i + 1], decoder, 3);
    seek_to_start (pipeline);
    test_hold_clear (&holds[i]);
  }
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpuint (outcome.answers, ==, times + 1);
  g_assert_cmpstr (outcome.finish, ==, "length");
  g_object_get (decoder, "stats", &stats, NULL);
  gst_structure_get (
      stats, "answers", G_TYPE_UINT, &tokens, "transcript-tokens", G_TYPE_UINT, &read, NULL);
  g_assert_cmpuint (tokens, ==, times + 1);
  g_assert_cmpuint (read, >, 300);
  gst_structure_free (stats);
  gst_object_unref (decoder);
  outcome_clear (&outcome);
  stop (pipeline);
  pieces_clear (&pieces);
}

/* After the end, when nothing runs any more. */
static void
test_seek_after_eos (void)
{
  char *srt = test_srt (10), *path = test_write_file ("again.srt", srt), *first;
  GstElement *pipeline = test_pipeline (SOURCE ("again.srt") READ ANSWER SINK);
  Outcome outcome = { 0 };

  set_model (pipeline, "d", test_model ());
  play (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  first = g_strdup (outcome.text);
  outcome_clear (&outcome);
  seek_to_start (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpstr (outcome.text, ==, first);
  outcome_clear (&outcome);
  stop (pipeline);
  g_free (first);
  g_free (srt);
  g_free (path);
}

static void
test_stop (gconstpointer data)
{
  GstState to = GPOINTER_TO_INT (data);
  Pieces pieces;
  GstElement *pipeline = endless (&pieces, "! queue ");

  play (pipeline);
  wait_for_pieces (&pieces, 3);
  g_assert_cmpint (gst_element_set_state (pipeline, to), ==, GST_STATE_CHANGE_SUCCESS);
  /* And once more: it begins as if nothing had been. */
  g_mutex_lock (&pieces.lock);
  pieces.seen = 0;
  g_mutex_unlock (&pieces.lock);
  play (pipeline);
  wait_for_pieces (&pieces, 3);
  stop (pipeline);
  pieces_clear (&pieces);
}

/* Paused, the sink takes nothing; the answer goes on where it was. */
static void
test_pause (void)
{
  Pieces pieces;
  GstElement *pipeline = endless (&pieces, "");
  GstElement *decoder = gst_bin_get_by_name (GST_BIN (pipeline), "d");
  Outcome outcome = { 0 };

  g_object_set (decoder, "max-tokens", 200, NULL);
  gst_object_unref (decoder);
  play (pipeline);
  wait_for_pieces (&pieces, 3);
  gst_element_set_state (pipeline, GST_STATE_PAUSED);
  g_assert_cmpint (
      gst_element_get_state (pipeline, NULL, NULL, TEST_TIMEOUT), ==, GST_STATE_CHANGE_SUCCESS);
  play (pipeline);
  run (pipeline, &outcome);
  g_assert_no_error (outcome.error);
  g_assert_cmpstr (outcome.finish, ==, "length");
  outcome_clear (&outcome);
  stop (pipeline);
  pieces_clear (&pieces);
}

/* Nothing is left behind */

static void
run_to_the_end (void)
{
  test_file (NULL);
}

static void
stop_in_the_middle (void)
{
  test_stop (GINT_TO_POINTER (GST_STATE_NULL));
}

static void
seek_in_the_middle (void)
{
  test_seek (GUINT_TO_POINTER (1));
}

/* How many references the model that all tests share has: an element that keeps one is not alive.
 */
static void
test_leaks (gconstpointer data)
{
  void (*what) (void) = data;
  GstTracer *tracer = test_find_leaks_tracer ();
  GstStructure *live = NULL;
  const GValue *list;
  guint before;

  if (tracer == NULL) {
    g_test_skip ("there is no leaks tracer in this GStreamer");
    return;
  }
  before = test_count_live (tracer);
  g_signal_emit_by_name (tracer, "activity-start-tracking");
  what ();
  g_signal_emit_by_name (tracer, "activity-get-checkpoint", &live);
  g_signal_emit_by_name (tracer, "activity-stop-tracking");

  g_assert_nonnull (live);
  list = gst_structure_get_value (live, "objects-created-list");
  guint created = gst_value_list_get_size (list);
  list = gst_structure_get_value (live, "objects-removed-list");
  guint removed = gst_value_list_get_size (list);
  g_assert_cmpuint (created, >, 50);
  g_assert_cmpuint (removed, >, 50);
  gst_structure_free (live);

  test_assert_none_left (tracer, before);
  gst_object_unref (tracer);
}

/* gst-inspect-1.0 shows what an element's choices mean, and not what C calls them. */
static void
test_choices (void)
{
  GList *features = gst_registry_get_feature_list_by_plugin (gst_registry_get (), "lychee");
  guint n_choices = 0;

  for (GList *at = features; at; at = at->next) {
    GstElement *element;
    g_autofree GParamSpec **properties = NULL;
    guint n = 0;

    if (!GST_IS_ELEMENT_FACTORY (at->data))
      continue;
    element = gst_element_factory_create (at->data, NULL);
    g_assert_nonnull (element);
    properties = g_object_class_list_properties (G_OBJECT_GET_CLASS (element), &n);
    for (guint i = 0; i < n; i++)
      if (G_IS_PARAM_SPEC_ENUM (properties[i])) {
        GEnumClass *class = G_PARAM_SPEC_ENUM (properties[i])->enum_class;

        for (guint j = 0; j < class->n_values; j++, n_choices++) {
          g_assert_false (g_str_has_prefix (class->values[j].value_name, "LYCHEE_"));
          g_assert_cmpstr (class->values[j].value_name, !=, "");
        }
      }
    test_unref_last (element);
  }
  gst_plugin_feature_list_free (features);
  g_assert_cmpuint (n_choices, >, 20);
}

static void
add_tests (void)
{
  g_test_add_data_func ("/pipeline/file/srt", NULL, test_file);
  g_test_add_data_func ("/pipeline/file/text",
      "Ann: Good morning, café people.\n\nBob: We have 30 tables and ÄÖÜ, 漢字 and 🦓 to "
      "talk "
      "of.\n",
      test_file);
  g_test_add_data_func ("/pipeline/share/tokenizer", "t", test_share);
  g_test_add_data_func ("/pipeline/share/indexer", "i", test_share);
  g_test_add_data_func ("/pipeline/share/decoder", "d", test_share);
  g_test_add_data_func ("/pipeline/share/all", "tid", test_share);
  g_test_add_data_func ("/pipeline/share/environment", "", test_share);
  g_test_add_func ("/pipeline/share/application", test_given_by_application);
  g_test_add_func ("/pipeline/two-models", test_two_models);
  g_test_add_func ("/pipeline/two-decoders", test_two_decoders);
  for (guint i = 0; i < G_N_ELEMENTS (bad_models); i++) {
    char *path = g_strconcat ("/pipeline/bad-model/", bad_models[i].name, NULL);

    g_test_add_data_func (path, &bad_models[i], test_bad_model);
    g_free (path);
  }
  g_test_add_func ("/pipeline/bad-model/truncated", test_truncated_model);
  g_test_add_func ("/pipeline/bad-model/none-named", test_no_model_named);
  g_test_add_func ("/pipeline/other-model", test_models_differ);
  g_test_add_func ("/pipeline/empty-file", test_empty_file);
  g_test_add_data_func ("/pipeline/seek/once", GUINT_TO_POINTER (1), test_seek);
  g_test_add_data_func ("/pipeline/seek/often", GUINT_TO_POINTER (5), test_seek);
  g_test_add_func ("/pipeline/seek/after-eos", test_seek_after_eos);
  g_test_add_data_func ("/pipeline/stop/ready", GINT_TO_POINTER (GST_STATE_READY), test_stop);
  g_test_add_data_func ("/pipeline/stop/null", GINT_TO_POINTER (GST_STATE_NULL), test_stop);
  g_test_add_func ("/pipeline/pause", test_pause);
  g_test_add_func ("/pipeline/choices", test_choices);
  g_test_add_data_func ("/pipeline/leaks/end", run_to_the_end, test_leaks);
  g_test_add_data_func ("/pipeline/leaks/stop", stop_in_the_middle, test_leaks);
  g_test_add_data_func ("/pipeline/leaks/seek", seek_in_the_middle, test_leaks);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
