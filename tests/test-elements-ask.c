/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheedecoder while the transcript runs: questions from all sides, rolling summaries, what is
 * cancelled and what goes on, and all that downstream and the bus are promised. */

#include "test-elements-common.h"

#include <json-glib/json-glib.h>
#include <string.h>

#define READ                                                                                       \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "model=MODEL "                                                                                   \
  "system-prompt=\"\" "
/* Nothing is asked at the end. */
#define CHAIN READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=20 "
#define JSON "! capsfilter caps=application/x-json "
#define ENDLESS READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=0 "

/* So that all that was said has been read. */
static void
settle (Chain *chain, guint second)
{
  g_assert_true (gst_harness_push_event (
      chain->harness, gst_event_new_gap (second * GST_SECOND, GST_CLOCK_TIME_NONE)));
}

static char *
ask (Chain *chain, const char *prompt, const char *options)
{
  GstElement *decoder = test_chain_get (chain, "d");
  GstStructure *structure = options != NULL ? gst_structure_from_string (options, NULL) : NULL;
  char *id = NULL;

  g_assert_true (options == NULL || structure != NULL);
  g_signal_emit_by_name (decoder, "ask", prompt, structure, &id);
  g_clear_pointer (&structure, gst_structure_free);
  gst_object_unref (decoder);
  return id;
}

static guint
cancel (Chain *chain, const char *id)
{
  GstElement *decoder = test_chain_get (chain, "d");
  guint n = 0;

  g_signal_emit_by_name (decoder, "cancel", id, &n);
  gst_object_unref (decoder);
  return n;
}

static GstMessage *
wait_answer (Chain *chain, const char *id, const char *finish)
{
  GstMessage *message = test_wait_element (chain->bus, "lychee-answer");

  if (id != NULL)
    g_assert_cmpstr (test_get_string (message, "id"), ==, id);
  if (finish != NULL)
    g_assert_cmpstr (test_get_string (message, "finish"), ==, finish);
  return message;
}

static guint64
get_time (GstMessage *message, const char *name)
{
  guint64 time = 0;

  g_assert_true (gst_structure_get_uint64 (gst_message_get_structure (message), name, &time));
  return time;
}

static void
end (Chain *chain)
{
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_eos ()));
  g_assert_true (test_chain_wait_eos (chain));
}

/* Counts, at the decoder, what was sent upstream to fetch the last words. */
typedef struct {
  GMutex lock;
  GCond changed;
  guint seen;
  gboolean lose; /* none arrives */
} Drains;

static GstPadProbeReturn
on_drain (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Drains *drains = user_data;

  if (!gst_event_has_name (GST_PAD_PROBE_INFO_EVENT (info), "lychee-drain"))
    return GST_PAD_PROBE_OK;
  g_mutex_lock (&drains->lock);
  drains->seen++;
  g_cond_signal (&drains->changed);
  g_mutex_unlock (&drains->lock);
  return drains->lose ? GST_PAD_PROBE_DROP : GST_PAD_PROBE_OK;
}

static void
watch_drains (Chain *chain, Drains *drains)
{
  GstElement *decoder = test_chain_get (chain, "d");
  GstPad *pad = gst_element_get_static_pad (decoder, "sink");

  g_mutex_init (&drains->lock);
  g_cond_init (&drains->changed);
  gst_pad_add_probe (pad, GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_drain, drains, NULL);
  gst_object_unref (pad);
  gst_object_unref (decoder);
}

static void
wait_drains (Drains *drains, guint n)
{
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  g_mutex_lock (&drains->lock);
  while (drains->seen < n)
    g_assert_true (g_cond_wait_until (&drains->changed, &drains->lock, until));
  g_mutex_unlock (&drains->lock);
}

typedef enum {
  DRAIN_ARRIVES,
  DRAIN_IS_LOST,
  DRAIN_IS_LOST_AT_THE_END, /* as where the end was faster */
} DrainFate;

/* What was said last waits for what follows it, unless somebody asks. */
static void
test_last_words (gconstpointer data)
{
  DrainFate fate = GPOINTER_TO_INT (data);
  Drains drains = { .lose = fate != DRAIN_ARRIVES };
  GstMessage *message = NULL;
  Chain chain;

  test_chain_init (&chain,
      "lycheetokenizer model=MODEL ! lycheechunker detector=both ! lycheeindexer ! "
      "lycheedecoder name=d prompt=\"\" max-tokens=4",
      TEST_TEXT_CAPS);
  watch_drains (&chain, &drains);
  test_chain_say_much (&chain, 0, 5);
  g_assert_cmpint (test_chain_say (&chain, "The code of the door is", 5), ==, GST_FLOW_OK);
  /* On a machine that is busy with other things even what arrives may come after the limit. */
  do {
    g_clear_pointer (&message, gst_message_unref);
    g_free (ask (&chain, "What is the code?", "o, last=(guint64)1000000000"));
    if (fate == DRAIN_IS_LOST_AT_THE_END)
      end (&chain);
    message = test_wait_element (chain.bus, "lychee-answer");
  } while (fate == DRAIN_ARRIVES && get_time (message, "time") < 6 * GST_SECOND);
  if (fate == DRAIN_IS_LOST) {
    /* It does not wait for ever: what had been read is asked, or that is nothing. */
    g_assert_cmpuint (get_time (message, "time"), <, 6 * GST_SECOND);
  } else {
    g_assert_cmpuint (get_time (message, "time"), ==, 6 * GST_SECOND);
    g_assert_cmpuint (get_time (message, "from"), ==, 5 * GST_SECOND);
    g_assert_cmpstr (test_get_string (message, "finish"), !=, "empty");
    g_assert_cmpuint (test_get_uint (message, "transcript-tokens"), >, 4);
  }
  gst_message_unref (message);

  if (fate != DRAIN_IS_LOST_AT_THE_END) {
    wait_drains (&drains, 1);
    end (&chain);
  }
  test_chain_clear (&chain);
}

/* Each question sees what had been read when it was asked, in order, and the transcript goes on
 * meanwhile. */
static void
test_snapshots (void)
{
  static const guint moments[] = { 3, 6, 12 };
  char *ids[G_N_ELEMENTS (moments)];
  Drains drains = { 0 };
  Chain chain;
  Hold hold;
  guint said = 0;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 1);
  watch_drains (&chain, &drains);
  for (guint i = 0; i < G_N_ELEMENTS (moments); i++) {
    test_chain_say_much (&chain, said, moments[i] - said);
    said = moments[i];
    settle (&chain, said);
    ids[i] = ask (&chain, "What is said?", NULL);
    g_assert_nonnull (ids[i]);
    wait_drains (&drains, i + 1);
  }
  /* The first answer cannot go on; reading can. */
  test_hold_wait (&hold);
  test_chain_say_much (&chain, said, 10);
  test_hold_release (&hold);

  for (guint i = 0; i < G_N_ELEMENTS (moments); i++) {
    GstMessage *message = wait_answer (&chain, ids[i], NULL);

    g_assert_cmpstr (test_get_string (message, "kind"), ==, "question");
    g_assert_cmpstr (test_get_string (message, "prompt"), ==, "What is said?");
    g_assert_cmpuint (get_time (message, "time"), ==, moments[i] * GST_SECOND);
    g_assert_cmpstr (test_get_string (message, "reason"), ==, NULL);
    if (i == 0) {
      char *expected = test_own_answer (0, moments[i], "What is said?", NULL, 20);

      g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
      g_free (expected);
    }
    gst_message_unref (message);
    g_free (ids[i]);
  }
  end (&chain);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* In text, answers follow each other, set apart by an empty line. */
static void
test_text (void)
{
  Chain chain;
  GString *text = g_string_new (NULL);
  GstBuffer *buffer;
  GString *expected = g_string_new (NULL);

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 5);
  settle (&chain, 5);
  for (guint i = 0; i < 3; i++)
    g_free (ask (&chain, i == 1 ? "Who?" : "What?", NULL));
  for (guint i = 0; i < 3; i++) {
    GstMessage *message = wait_answer (&chain, NULL, NULL);

    g_string_append_printf (
        expected, "%s%s", i > 0 ? "\n\n" : "", test_get_string (message, "text"));
    gst_message_unref (message);
  }
  end (&chain);
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    GstMapInfo map;

    g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, 5 * GST_SECOND);
    g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
    g_string_append_len (text, (const char *) map.data, map.size);
    gst_buffer_unmap (buffer, &map);
    gst_buffer_unref (buffer);
  }
  g_assert_cmpstr (text->str, ==, expected->str);
  g_string_free (text, TRUE);
  g_string_free (expected, TRUE);
  test_chain_clear (&chain);
}

/* From everywhere */

typedef enum { FROM_BEFORE, FROM_BEFORE_OOB, FROM_BEHIND, TO_ELEMENT, TO_ELEMENT_DOWN } Side;

static gboolean
send (Chain *chain, Side side, const char *text)
{
  GstStructure *structure = gst_structure_from_string (text, NULL);
  GstElement *decoder = test_chain_get (chain, "d");
  gboolean ret = FALSE;

  switch (side) {
  case FROM_BEFORE:
    ret = gst_harness_push_event (
        chain->harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM, structure));
    break;
  case FROM_BEFORE_OOB:
    ret = gst_harness_push_event (
        chain->harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM_OOB, structure));
    break;
  case FROM_BEHIND:
    ret = gst_harness_push_upstream_event (
        chain->harness, gst_event_new_custom (GST_EVENT_CUSTOM_UPSTREAM, structure));
    break;
  case TO_ELEMENT:
    ret = gst_element_send_event (
        decoder, gst_event_new_custom (GST_EVENT_CUSTOM_UPSTREAM, structure));
    break;
  case TO_ELEMENT_DOWN:
    ret = gst_element_send_event (
        decoder, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM, structure));
    break;
  }
  gst_object_unref (decoder);
  return ret;
}

/* An event asks as the signal does, and is not seen by who is not meant. */
static void
test_event (gconstpointer data)
{
  Side side = GPOINTER_TO_INT (data);
  Chain chain;
  GstMessage *message;
  GstEvent *event;
  char *expected = test_own_answer (0, 5, "What?", NULL, 7);
  guint n_upstream;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  n_upstream = gst_harness_upstream_events_received (chain.harness);
  test_chain_say_much (&chain, 0, 5);
  /* A question in the stream comes behind all that was said before it. */
  if (side != FROM_BEFORE)
    settle (&chain, 5);
  g_assert_true (send (&chain, side, "lychee-ask, prompt=\"What?\", id=one, max-tokens=7"));
  message = wait_answer (&chain, "one", "length");
  g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
  g_assert_cmpuint (test_get_uint (message, "answer-tokens"), ==, 7);
  gst_message_unref (message);
  g_free (expected);

  g_assert_true (send (&chain, side, "lychee-cancel, id=one"));
  g_assert_cmpuint (gst_harness_upstream_events_received (chain.harness), ==, n_upstream);
  while ((event = gst_harness_try_pull_event (chain.harness)) != NULL) {
    g_assert_null (gst_event_has_name (event, "lychee-ask") ? event : NULL);
    gst_event_unref (event);
  }
  end (&chain);
  test_chain_clear (&chain);
}

/* Options */

typedef struct {
  const char *options;
  const char *named; /* in the warning */
} BadOptions;

static void
test_bad_options (gconstpointer data)
{
  const BadOptions *bad = data;
  Chain chain;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 5);
  g_assert_null (ask (&chain, "What?", bad->options));
  test_assert_error (test_pop (chain.bus, GST_MESSAGE_WARNING), GST_LIBRARY_ERROR,
      GST_LIBRARY_ERROR_SETTINGS, bad->named);
  end (&chain);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR | GST_MESSAGE_WARNING));
  test_chain_clear (&chain);
}

static void
test_options (void)
{
  Chain chain;
  GstMessage *message;
  char *id;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 20);
  settle (&chain, 20);
  id = ask (&chain, NULL,
      "x, prompt=\"Which?\", id=(string)\"a b\", max-tokens=(int)3, temperature=0.5, "
      "top-k=(uint)4, "
      "seed=(gint64)7, from=(guint64)5000000000, to=(int)2000000000, evidence=0, "
      "stop=<\"a\", \"b\">, language=de, system-prompt=\"Be brief.\"");
  g_assert_cmpstr (id, ==, "a b");
  message = wait_answer (&chain, "a b", NULL);
  g_assert_cmpstr (test_get_string (message, "prompt"), ==, "Which?");
  g_assert_cmpuint (get_time (message, "from"), ==, 5 * GST_SECOND);
  g_assert_cmpuint (get_time (message, "to"), ==, 2 * GST_SECOND);
  gst_message_unref (message);
  g_free (id);

  /* The prompt of the signal goes before that of the options; ids are numbers otherwise. */
  id = ask (&chain, "Who?", "x, prompt=\"Which?\", last=(guint64)4000000000");
  message = wait_answer (&chain, id, NULL);
  g_assert_cmpstr (test_get_string (message, "prompt"), ==, "Who?");
  g_assert_cmpuint (get_time (message, "from"), ==, 16 * GST_SECOND);
  g_assert_cmpuint (get_time (message, "to"), ==, GST_CLOCK_TIME_NONE);
  gst_message_unref (message);
  g_free (id);
  end (&chain);
  test_chain_clear (&chain);
}

/* Before anything was said there is nothing to answer from, and when nothing runs nobody answers.
 */
static void
test_too_early (void)
{
  Chain chain;
  GstMessage *message;
  char *id;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  id = ask (&chain, "What?", NULL);
  message = wait_answer (&chain, id, "empty");
  g_assert_cmpstr (test_get_string (message, "text"), ==, "");
  g_assert_nonnull (strstr (test_get_string (message, "reason"), "nothing was said"));
  gst_message_unref (message);
  g_free (id);

  gst_element_set_state (chain.harness->element, GST_STATE_READY);
  g_assert_null (ask (&chain, "What?", NULL));
  test_assert_error (test_pop (chain.bus, GST_MESSAGE_WARNING), GST_CORE_ERROR,
      GST_CORE_ERROR_STATE_CHANGE, "was not asked");
  test_chain_clear (&chain);
}

/* A question that cannot be answered ends neither the stream nor the other answers. */
static void
test_failure (void)
{
  GString *question = g_string_new (NULL);
  Chain chain;
  GstMessage *message;

  for (guint i = 0; i < 1000; i++)
    g_string_append (question, "Who said what? ");
  test_chain_init (&chain,
      READ "max-context=1024 ! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=20",
      TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 5);
  settle (&chain, 5);
  g_free (ask (&chain, question->str, NULL));
  g_free (ask (&chain, "What?", NULL));
  test_assert_error (
      gst_bus_timed_pop_filtered (chain.bus, TEST_TIMEOUT, GST_MESSAGE_WARNING | GST_MESSAGE_ERROR),
      GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NO_SPACE_LEFT, "There is no answer");
  message = wait_answer (&chain, "1", "failed");
  g_assert_nonnull (strstr (test_get_string (message, "reason"), "tokens"));
  gst_message_unref (message);
  gst_message_unref (wait_answer (&chain, "2", "length"));
  end (&chain);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  g_string_free (question, TRUE);
  test_chain_clear (&chain);
}

/* Cancelling */

/* The one under way, one that waits, all; the others go on, and each is told of once. */
static void
test_cancel (void)
{
  Chain chain;
  Hold hold;

  test_chain_init (&chain, ENDLESS, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 2);
  test_chain_say_much (&chain, 0, 5);
  settle (&chain, 5);
  for (guint i = 0; i < 5; i++)
    g_free (ask (&chain, "What?", i == 4 ? "x, max-tokens=5" : NULL));
  test_hold_wait (&hold);

  /* The waiting one at once, though the first one cannot go on. */
  g_assert_cmpuint (cancel (&chain, "2"), ==, 1);
  gst_message_unref (wait_answer (&chain, "2", "cancelled"));
  g_assert_cmpuint (cancel (&chain, "2"), ==, 0);
  g_assert_cmpuint (cancel (&chain, "none"), ==, 0);
  /* The one under way, though downstream holds it. */
  g_assert_cmpuint (cancel (&chain, "1"), ==, 1);
  gst_message_unref (wait_answer (&chain, "1", "cancelled"));
  g_assert_cmpuint (cancel (&chain, "3"), ==, 1);
  gst_message_unref (wait_answer (&chain, "3", "cancelled"));
  g_assert_cmpuint (cancel (&chain, "4"), ==, 1);
  gst_message_unref (wait_answer (&chain, "4", "cancelled"));
  test_hold_release (&hold);
  gst_message_unref (wait_answer (&chain, "5", "length"));

  test_hold_clear (&hold);
  test_hold_at (&hold, &chain, 1);
  g_free (ask (&chain, "What?", NULL));
  g_free (ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  g_assert_cmpuint (cancel (&chain, NULL), ==, 2);
  for (guint i = 0; i < 2; i++)
    gst_message_unref (wait_answer (&chain, NULL, "cancelled"));
  test_hold_release (&hold);
  end (&chain);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* A flush ends all of them, and each is told of. */
static void
test_flush (void)
{
  Chain chain;
  Hold hold;

  test_chain_init (&chain, ENDLESS, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 2);
  test_chain_say_much (&chain, 0, 5);
  settle (&chain, 5);
  for (guint i = 0; i < 4; i++)
    g_free (ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  test_chain_flush (&chain);
  for (guint i = 0; i < 4; i++)
    gst_message_unref (wait_answer (&chain, NULL, "cancelled"));
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* JSON */

static JsonObject *
parse_line (GstBuffer *buffer, JsonParser *parser)
{
  g_autoptr (GError) error = NULL;
  GstMapInfo map;
  JsonObject *object;

  g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
  g_assert_cmpint (map.data[map.size - 1], ==, '\n');
  g_assert_null (memchr (map.data, '\n', map.size - 1));
  json_parser_load_from_data (parser, (const char *) map.data, map.size, &error);
  g_assert_no_error (error);
  gst_buffer_unmap (buffer, &map);
  object = json_node_get_object (json_parser_get_root (parser));
  g_assert_cmpint (json_object_get_int_member (object, "version"), ==, 1);
  return object;
}

/* Each line is an object; pieces together are the text; the last one has what the message has. */
static void
test_json (gconstpointer data)
{
  char *description = g_strdup_printf (READ
      "! lycheedecoder name=d model=MODEL prompt=\"What?\" max-tokens=20 %s" JSON,
      (const char *) data);
  Chain chain;
  GstMessage *message;
  GstBuffer *buffer;
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autoptr (GString) text = g_string_new (NULL);
  guint n_pieces = 0, n_answers = 0;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 5);
  end (&chain);
  message = wait_answer (&chain, "1", NULL);
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    JsonObject *object = parse_line (buffer, parser);

    g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, 5 * GST_SECOND);
    g_assert_cmpstr (json_object_get_string_member (object, "id"), ==, "1");
    if (g_str_equal (json_object_get_string_member (object, "type"), "text")) {
      g_assert_cmpuint (n_answers, ==, 0);
      g_string_append (text, json_object_get_string_member (object, "text"));
      n_pieces++;
    } else {
      g_assert_cmpstr (json_object_get_string_member (object, "type"), ==, "answer");
      g_assert_cmpstr (json_object_get_string_member (object, "kind"), ==, "final");
      g_assert_cmpstr (
          json_object_get_string_member (object, "text"), ==, test_get_string (message, "text"));
      g_assert_cmpstr (json_object_get_string_member (object, "finish"), ==, "length");
      g_assert_true (json_object_get_null_member (object, "reason"));
      g_assert_true (json_object_get_null_member (object, "from"));
      g_assert_cmpint (json_object_get_int_member (object, "time"), ==, 5 * GST_SECOND);
      g_assert_cmpint (json_object_get_int_member (object, "answer-tokens"), ==, 20);
      g_assert_false (json_object_get_boolean_member (object, "truncated"));
      g_assert_nonnull (json_object_get_array_member (object, "evidence"));
      g_assert_cmpfloat (json_object_get_double_member (object, "seconds"), >, 0);
      n_answers++;
    }
    gst_buffer_unref (buffer);
  }
  g_assert_cmpuint (n_answers, ==, 1);
  if (strstr (description, "stream=answer") != NULL)
    g_assert_cmpuint (n_pieces, ==, 0);
  else
    g_assert_cmpstr (text->str, ==, test_get_string (message, "text"));
  gst_message_unref (message);
  g_free (description);
  test_chain_clear (&chain);
}

/* An answer that there is not is an object too. */
static void
test_json_empty (void)
{
  Chain chain;
  GstBuffer *buffer;
  g_autoptr (JsonParser) parser = json_parser_new ();
  JsonObject *object;

  test_chain_init (&chain, READ "! lycheedecoder name=d model=MODEL " JSON, TEST_TEXT_CAPS);
  end (&chain);
  buffer = gst_harness_pull (chain.harness);
  object = parse_line (buffer, parser);
  g_assert_cmpstr (json_object_get_string_member (object, "finish"), ==, "empty");
  g_assert_cmpstr (json_object_get_string_member (object, "text"), ==, "");
  g_assert_nonnull (json_object_get_string_member (object, "reason"));
  gst_buffer_unref (buffer);
  test_chain_clear (&chain);
}

/* Two at the same time: the second is made from beginning to end while downstream holds the first
 * in its middle, and neither changes the other. */
static void
test_parallel (void)
{
  Chain chain;
  Hold hold;
  GstElement *decoder;
  GstMessage *message;
  g_autoptr (JsonParser) parser = json_parser_new ();
  g_autofree char *expected = test_own_answer (0, 5, "What?", NULL, 20);
  guint begun = 0;

  test_chain_init (&chain, CHAIN "max-answers=2 " JSON, TEST_TEXT_CAPS);
  decoder = test_chain_get (&chain, "d");
  test_hold_at (&hold, &chain, 2);
  test_chain_say_much (&chain, 0, 5);
  settle (&chain, 5);
  g_free (ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  /* Answers that go downstream at once do not wait for it before. */
  gst_util_set_object_arg (G_OBJECT (decoder), "stream", "answer");
  g_free (ask (&chain, "What?", NULL));
  message = wait_answer (&chain, "2", NULL);
  g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
  gst_message_unref (message);
  test_hold_release (&hold);
  message = wait_answer (&chain, "1", NULL);
  g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
  gst_message_unref (message);

  for (guint n_answers = 0; n_answers < 2;) {
    GstBuffer *buffer = gst_harness_pull (chain.harness);
    JsonObject *object;

    g_assert_nonnull (buffer);
    object = parse_line (buffer, parser);
    begun |= 1 << g_ascii_strtoull (json_object_get_string_member (object, "id"), NULL, 10);
    n_answers += !g_str_equal (json_object_get_string_member (object, "type"), "text");
    gst_buffer_unref (buffer);
  }
  g_assert_cmpuint (begun, ==, 6);
  end (&chain);
  test_hold_clear (&hold);
  gst_object_unref (decoder);
  test_chain_clear (&chain);
}

/* Rolling summaries */

/* One for each interval, whatever lies in it, and one of all at the end. */
static void
test_interval (void)
{
  static const guint64 ends[] = { 10, 20, 60 };
  Chain chain;
  GstMessage *message;
  guint64 from = 0;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"All?\" summary-prompt=\"New?\" "
           "max-tokens=5 interval=10000000000",
      TEST_TEXT_CAPS);
  /* The second would make one with the first if that had not begun. */
  for (guint i = 0; i < 2; i++) {
    test_chain_say_much (&chain, 13 * i, 13);
    gst_message_unref (wait_answer (&chain, NULL, NULL));
  }
  /* Nothing is said for a while: one summary of what there was, and then an honest nothing. */
  settle (&chain, 61);
  gst_message_unref (wait_answer (&chain, NULL, NULL));
  settle (&chain, 75);
  message = wait_answer (&chain, NULL, NULL);
  g_assert_cmpuint (get_time (message, "from"), ==, 60 * GST_SECOND);
  g_assert_cmpuint (get_time (message, "to"), ==, 70 * GST_SECOND);
  gst_message_unref (message);
  end (&chain);
  message = wait_answer (&chain, NULL, NULL);
  g_assert_cmpstr (test_get_string (message, "kind"), ==, "final");
  g_assert_cmpstr (test_get_string (message, "prompt"), ==, "All?");
  gst_message_unref (message);
  test_chain_clear (&chain);

  /* The same once more, for what they say. */
  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" summary-prompt=\"New?\" max-tokens=5 "
           "interval=10000000000",
      TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 10);
  for (guint i = 0; i < G_N_ELEMENTS (ends); i++) {
    if (i < 2)
      test_chain_say_much (&chain, 10 + 10 * i, 10);
    else
      settle (&chain, 61);
    message = wait_answer (&chain, NULL, NULL);
    g_assert_cmpstr (test_get_string (message, "kind"), ==, "summary");
    g_assert_cmpstr (test_get_string (message, "prompt"), ==, "New?");
    g_assert_cmpuint (get_time (message, "from"), ==, from * GST_SECOND);
    g_assert_cmpuint (get_time (message, "to"), ==, ends[i] * GST_SECOND);
    gst_message_unref (message);
    from = ends[i];
  }
  end (&chain);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  test_chain_clear (&chain);
}

/* Where answers are slower than the interval, those that wait become one. */
static void
test_interval_merged (void)
{
  Chain chain;
  Hold hold;
  GstMessage *message;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=5 interval=5000000000",
      TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 1);
  test_chain_say_much (&chain, 0, 7);
  test_hold_wait (&hold);
  test_chain_say_much (&chain, 7, 30);
  test_hold_release (&hold);
  message = wait_answer (&chain, NULL, NULL);
  g_assert_cmpuint (get_time (message, "to"), ==, 5 * GST_SECOND);
  gst_message_unref (message);
  message = wait_answer (&chain, NULL, NULL);
  g_assert_cmpuint (get_time (message, "from"), ==, 5 * GST_SECOND);
  g_assert_cmpuint (get_time (message, "to"), ==, 35 * GST_SECOND);
  gst_message_unref (message);
  end (&chain);
  g_assert_null (gst_bus_pop_filtered (chain.bus, GST_MESSAGE_ERROR));
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* By tokens; each begins where the one before ended, also where some were merged. */
static void
test_interval_tokens (void)
{
  Chain chain;
  GstMessage *message;
  guint64 from = 0;
  guint n = 0;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=5 interval-tokens=100",
      TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 50);
  end (&chain);
  while ((message = gst_bus_pop_filtered (chain.bus, GST_MESSAGE_ELEMENT)) != NULL) {
    if (gst_message_has_name (message, "lychee-answer")) {
      g_assert_cmpstr (test_get_string (message, "kind"), ==, "summary");
      g_assert_cmpuint (get_time (message, "from"), ==, from);
      g_assert_cmpuint (get_time (message, "to"), >, from);
      from = get_time (message, "to");
      n++;
    }
    gst_message_unref (message);
  }
  g_assert_cmpuint (n, >=, 1);
  g_assert_cmpuint (n, <=, 13);
  g_assert_cmpuint (from, >, 30 * GST_SECOND);
  g_assert_cmpuint (from, <=, 50 * GST_SECOND);
  test_chain_clear (&chain);
}

/* Time */

/* Live or not, as upstream says; how long an answer waits has no limit. */
static void
test_latency (gconstpointer data)
{
  gboolean live = data != NULL;
  Chain chain;
  GstQuery *query = gst_query_new_latency ();
  GstClockTime min, max;
  gboolean is_live;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  if (live)
    gst_harness_set_live (chain.harness, TRUE);
  else
    gst_harness_set_live (chain.harness, FALSE);
  gst_harness_set_upstream_latency (chain.harness, 300 * GST_MSECOND);
  g_assert_true (gst_pad_peer_query (chain.harness->sinkpad, query));
  gst_query_parse_latency (query, &is_live, &min, &max);
  g_assert_cmpint (is_live, ==, live);
  /* Tokenizer and chunker hold words for a while. */
  g_assert_cmpuint (min, ==, live ? (300 + 500 + 5000) * GST_MSECOND : 0);
  g_assert_cmpuint (max, ==, GST_CLOCK_TIME_NONE);
  gst_query_unref (query);
  test_chain_clear (&chain);
}

/* That it is late is no reason for anybody to leave words out. */
static void
test_qos (void)
{
  Chain chain;
  guint n;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  n = gst_harness_upstream_events_received (chain.harness);
  g_assert_true (gst_harness_push_upstream_event (
      chain.harness, gst_event_new_qos (GST_QOS_TYPE_UNDERFLOW, 0.1, 10 * GST_SECOND, GST_SECOND)));
  g_assert_cmpuint (gst_harness_upstream_events_received (chain.harness), ==, n);
  test_chain_clear (&chain);
}

/* Segments and events go between the answers that were asked before and after them. */
static void
test_order (void)
{
  Chain chain;
  Hold hold;
  GstEvent *event;
  gboolean seen = FALSE;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 1);
  test_chain_say_much (&chain, 0, 5);
  settle (&chain, 5);
  g_free (ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  /* None of these waits. */
  g_assert_true (gst_harness_push_event (chain.harness,
      gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM, gst_structure_new_empty ("mark"))));
  test_chain_segment (&chain, 6 * GST_SECOND);
  while ((event = gst_harness_try_pull_event (chain.harness)) != NULL) {
    seen |= gst_event_has_name (event, "mark");
    gst_event_unref (event);
  }
  g_assert_false (seen);
  test_hold_release (&hold);
  gst_message_unref (wait_answer (&chain, "1", NULL));
  while (!seen) {
    event = gst_harness_pull_event (chain.harness);
    g_assert_nonnull (event);
    seen = gst_event_has_name (event, "mark");
    gst_event_unref (event);
  }
  event = gst_harness_pull_event (chain.harness);
  g_assert_cmpint (GST_EVENT_TYPE (event), ==, GST_EVENT_SEGMENT);
  gst_event_unref (event);
  end (&chain);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* In PAUSED, sinks are given something to preroll with, and no more is generated; then it goes on
 * as if nothing had been. */
static void
test_pause (gconstpointer data)
{
  char *description = g_strdup_printf (READ
      "! lycheedecoder name=d model=MODEL prompt=\"What?\" max-tokens=30 stream=%s",
      (const char *) data);
  Chain chain;
  Hold hold;
  GstElement *decoder;
  GstMessage *message;
  char *expected = test_own_answer (0, 5, "What?", NULL, 30);
  GstState state;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 2);
  decoder = test_chain_get (&chain, "d");
  test_chain_say_much (&chain, 0, 5);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  if (g_str_equal (data, "token"))
    test_hold_wait (&hold);
  gst_element_set_state (decoder, GST_STATE_PAUSED);
  test_hold_release (&hold);
  g_assert_cmpint (
      gst_element_get_state (decoder, &state, NULL, TEST_TIMEOUT), ==, GST_STATE_CHANGE_SUCCESS);
  gst_element_set_state (decoder, GST_STATE_PLAYING);
  g_assert_true (test_chain_wait_eos (&chain));
  message = wait_answer (&chain, NULL, NULL);
  g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
  gst_message_unref (message);
  gst_object_unref (decoder);
  g_free (expected);
  g_free (description);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* The decoder puts a question as its own template says, where it has one. */
static void
test_template (void)
{
  static const char *const templates[] = { "auto", "chatml", "plain" };
  guint tokens[G_N_ELEMENTS (templates)];

  for (guint i = 0; i < G_N_ELEMENTS (templates); i++) {
    g_autofree char *line = g_strconcat (CHAIN "template=", templates[i], NULL);
    GstMessage *message;
    Chain chain;

    test_chain_init (&chain, line, TEST_TEXT_CAPS);
    test_chain_say_much (&chain, 0, 3);
    g_free (ask (&chain, "What is said?", NULL));
    message = wait_answer (&chain, NULL, NULL);
    tokens[i] = test_get_uint (message, "prompt-tokens");
    gst_message_unref (message);
    end (&chain);
    test_chain_clear (&chain);
  }
  /* What the indexer found is that of the file. */
  g_assert_cmpuint (tokens[0], ==, tokens[1]);
  g_assert_cmpuint (tokens[0], !=, tokens[2]);
}

/* A text without times is summarised by its tokens, each part once. */
static void
test_interval_without_times (void)
{
  Chain chain;
  GstMessage *message;
  guint n = 0, all = 0;

  test_chain_init (&chain,
      READ "! lycheedecoder name=d model=MODEL prompt=\"\" max-tokens=5 interval-tokens=100",
      TEST_TEXT_CAPS);
  for (guint i = 0; i < 50; i++)
    g_assert_cmpint (
        gst_harness_push (chain.harness, test_text_buffer ("This is a line of the talk. ", -1,
                                             GST_CLOCK_TIME_NONE, GST_CLOCK_TIME_NONE)),
        ==, GST_FLOW_OK);
  end (&chain);
  while ((message = gst_bus_pop_filtered (chain.bus, GST_MESSAGE_ELEMENT)) != NULL) {
    if (gst_message_has_name (message, "lychee-answer")) {
      guint tokens = test_get_uint (message, "transcript-tokens");

      g_assert_cmpuint (tokens, >=, 100);
      g_assert_cmpuint (get_time (message, "to"), ==, GST_CLOCK_TIME_NONE);
      all += tokens;
      n++;
    } else if (gst_message_has_name (message, "lychee-progress")) {
      /* What no summary is about yet is less than is new for one. */
      g_assert_cmpuint (all, <=, test_get_uint (message, "tokens"));
    }
    gst_message_unref (message);
  }
  g_assert_cmpuint (n, >=, 2);
  test_chain_clear (&chain);
}

/* What the decoder is told of chunks that wait to be read. */
typedef struct {
  GstElement *decoder;
  guint n, most; /* of the streaming thread */
  gint over;     /* atomic: none waits any more */
} Backlog;

static GstPadProbeReturn
on_backlog (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Backlog *backlog = user_data;
  GstEvent *event = GST_PAD_PROBE_INFO_EVENT (info);
  guint chunks;

  if (!gst_event_has_name (event, "lychee-backlog"))
    return GST_PAD_PROBE_OK;
  g_assert_true (gst_structure_get_uint (gst_event_get_structure (event), "chunks", &chunks));
  backlog->n++;
  backlog->most = MAX (backlog->most, chunks);
  g_atomic_int_set (&backlog->over, chunks == 0);
  return GST_PAD_PROBE_OK;
}

static guint64
count_pauses (GstElement *decoder)
{
  GstStructure *stats = NULL;
  guint64 pauses = 0;

  g_object_get (decoder, "stats", &stats, NULL);
  g_assert_true (gst_structure_get_uint64 (stats, "pauses", &pauses));
  gst_structure_free (stats);
  return pauses;
}

/* Reading goes on when the answer has let it go first. */
static GstPadProbeReturn
on_read (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Backlog *backlog = user_data;
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  while (backlog->n > 0 && count_pauses (backlog->decoder) == 0) {
    g_assert_cmpint (g_get_monotonic_time (), <, until);
    g_thread_yield ();
  }
  return GST_PAD_PROBE_OK;
}

static gulong
add_probe (Chain *chain, const char *name, const char *pad_name, GstPadProbeType type,
    GstPadProbeCallback callback, gpointer data)
{
  GstElement *element = test_chain_get (chain, name);
  GstPad *pad = gst_element_get_static_pad (element, pad_name);
  gulong id = gst_pad_add_probe (pad, type, callback, data, NULL);

  gst_object_unref (pad);
  gst_object_unref (element);
  return id;
}

static GstPadProbeReturn
block (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  return GST_PAD_PROBE_OK;
}

/* A live transcript that waits to be read goes first: answers are told of it, and pause. For how
 * long is a matter of LycheeAnswerQueue. */
static void
test_backlog (void)
{
  Backlog backlog = { 0 };
  Drains drains = { 0 };
  Chain chain;
  GstElement *indexer;
  GstPad *pad;
  gulong blocked;
  Hold hold;

  test_chain_init_without_caps (&chain,
      "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! queue max-size-buffers=0 "
      "max-size-bytes=0 max-size-time=0 ! lycheeindexer name=i system-prompt=\"\" "
      "max-context=8192 ! lycheedecoder name=d prompt=\"\" max-tokens=0 temperature=2 top-k=0");
  gst_harness_set_live (chain.harness, TRUE);
  gst_harness_set_src_caps_str (chain.harness, TEST_TEXT_CAPS);
  gst_harness_set_drop_buffers (chain.harness, TRUE);
  backlog.decoder = test_chain_get (&chain, "d");
  test_chain_say_much (&chain, 0, 5);
  test_hold_at (&hold, &chain, 2);
  watch_drains (&chain, &drains);
  for (guint i = 0; i < 50; i++)
    g_free (ask (&chain, "What is said?", NULL));
  test_hold_wait (&hold);
  wait_drains (&drains, 50);

  /* All of the beginning was read before the answer began. */
  blocked = add_probe (&chain, "i", "sink", GST_PAD_PROBE_TYPE_BLOCK_DOWNSTREAM, block, NULL);
  add_probe (&chain, "d", "sink", GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_backlog, &backlog);
  add_probe (&chain, "d", "sink", GST_PAD_PROBE_TYPE_BUFFER, on_read, &backlog);
  test_chain_say_much (&chain, 5, 200);
  indexer = test_chain_get (&chain, "i");
  pad = gst_element_get_static_pad (indexer, "sink");
  gst_pad_remove_probe (pad, blocked);
  test_hold_release (&hold);
  while (!g_atomic_int_get (&backlog.over))
    g_thread_yield ();
  g_test_message ("told %u times of up to %u chunks, %" G_GUINT64_FORMAT " pauses", backlog.n,
      backlog.most, count_pauses (backlog.decoder));
  g_assert_cmpuint (backlog.n, >, 100);
  g_assert_cmpuint (backlog.most, >, 100);
  cancel (&chain, NULL);
  gst_object_unref (backlog.decoder);
  gst_object_unref (pad);
  gst_object_unref (indexer);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* What is asked before anything has been read, as while the model is loaded, waits for the first
 * words: nobody says that nothing was said. */
static void
test_first_words (void)
{
  Drains drains = { .lose = TRUE }; /* it is not for them that it waits */
  GstElement *indexer;
  GstMessage *message;
  GstPad *pad;
  gulong blocked;
  Chain chain;

  test_chain_init (&chain,
      "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! queue max-size-time=0 ! "
      "lycheeindexer name=i ! lycheedecoder name=d prompt=\"\" max-tokens=4",
      TEST_TEXT_CAPS);
  watch_drains (&chain, &drains);
  blocked = add_probe (&chain, "i", "sink", GST_PAD_PROBE_TYPE_BLOCK_DOWNSTREAM, block, NULL);
  test_chain_say_much (&chain, 0, 5);
  g_free (ask (&chain, "What is said?", NULL));
  indexer = test_chain_get (&chain, "i");
  pad = gst_element_get_static_pad (indexer, "sink");
  gst_pad_remove_probe (pad, blocked);
  message = wait_answer (&chain, "1", NULL);
  g_assert_cmpstr (test_get_string (message, "finish"), !=, "empty");
  g_assert_cmpuint (test_get_uint (message, "transcript-tokens"), >, 0);
  gst_message_unref (message);
  gst_object_unref (pad);
  gst_object_unref (indexer);
  end (&chain);
  test_chain_clear (&chain);
}

static void
add_tests (void)
{
  g_test_add_func ("/ask/backlog", test_backlog);
  g_test_add_func ("/ask/template", test_template);
  g_test_add_func ("/ask/first-words", test_first_words);
  g_test_add_data_func ("/ask/last-words", GINT_TO_POINTER (DRAIN_ARRIVES), test_last_words);
  g_test_add_data_func ("/ask/last-words/late", GINT_TO_POINTER (DRAIN_IS_LOST), test_last_words);
  g_test_add_data_func (
      "/ask/last-words/end", GINT_TO_POINTER (DRAIN_IS_LOST_AT_THE_END), test_last_words);
  static const BadOptions bad[] = {
    { "x, nonsense=1", "“nonsense”" },
    { "x, max-tokens=-1", "“max-tokens”" },
    { "x, max-tokens=many", "“max-tokens”" },
    { "x, from=-1.5", "“from”" },
    { "x, last=-1", "“last”" },
    { "x, id=5", "“id”" },
    { "x, prompt=5", "“prompt”" },
    { "x, temperature=-0.5", "“temperature”" },
    { "x, sampler=a", "“sampler”" },
    { "x, stop=<1, 2>", "“stop”" },
  };

  g_test_add_func ("/ask/snapshots", test_snapshots);
  g_test_add_func ("/ask/text", test_text);
  g_test_add_data_func ("/ask/event/before", GINT_TO_POINTER (FROM_BEFORE), test_event);
  g_test_add_data_func ("/ask/event/before-oob", GINT_TO_POINTER (FROM_BEFORE_OOB), test_event);
  g_test_add_data_func ("/ask/event/behind", GINT_TO_POINTER (FROM_BEHIND), test_event);
  g_test_add_data_func ("/ask/event/element", GINT_TO_POINTER (TO_ELEMENT), test_event);
  g_test_add_data_func ("/ask/event/element-down", GINT_TO_POINTER (TO_ELEMENT_DOWN), test_event);
  g_test_add_func ("/ask/options", test_options);
  for (guint i = 0; i < G_N_ELEMENTS (bad); i++) {
    char *name = g_strdup_printf ("/ask/bad-options/%u", i);

    g_test_add_data_func (name, &bad[i], test_bad_options);
    g_free (name);
  }
  g_test_add_func ("/ask/too-early", test_too_early);
  g_test_add_func ("/ask/failure", test_failure);
  g_test_add_func ("/ask/cancel", test_cancel);
  g_test_add_func ("/ask/flush", test_flush);
  g_test_add_data_func ("/ask/json/token", "stream=token ", test_json);
  g_test_add_data_func ("/ask/json/sentence", "stream=sentence ", test_json);
  g_test_add_data_func ("/ask/json/answer", "stream=answer ", test_json);
  g_test_add_func ("/ask/json/empty", test_json_empty);
  g_test_add_func ("/ask/parallel", test_parallel);
  g_test_add_func ("/ask/interval/time", test_interval);
  g_test_add_func ("/ask/interval/merged", test_interval_merged);
  g_test_add_func ("/ask/interval/tokens", test_interval_tokens);
  g_test_add_func ("/ask/interval/without-times", test_interval_without_times);
  g_test_add_data_func ("/ask/latency/live", "", test_latency);
  g_test_add_data_func ("/ask/latency/not-live", NULL, test_latency);
  g_test_add_func ("/ask/qos", test_qos);
  g_test_add_func ("/ask/order", test_order);
  g_test_add_data_func ("/ask/pause/token", "token", test_pause);
  g_test_add_data_func ("/ask/pause/answer", "answer", test_pause);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
