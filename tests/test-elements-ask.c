/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheedecoder while the transcript runs: questions from all sides, how they are put and what is
 * said of them, what is cancelled and what goes on. */

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
  test_chain_settle (&chain, 5);
  for (guint i = 0; i < 3; i++)
    g_free (test_chain_ask (&chain, i == 1 ? "Who?" : "What?", NULL));
  for (guint i = 0; i < 3; i++) {
    GstMessage *message = test_chain_wait_answer (&chain, NULL, NULL);

    g_string_append_printf (
        expected, "%s%s", i > 0 ? "\n\n" : "", test_get_string (message, "text"));
    gst_message_unref (message);
  }
  test_chain_end (&chain);
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
    test_chain_settle (&chain, 5);
  g_assert_true (send (&chain, side, "lychee-ask, prompt=\"What?\", id=one, max-tokens=7"));
  message = test_chain_wait_answer (&chain, "one", "length");
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
  test_chain_end (&chain);
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
  g_assert_null (test_chain_ask (&chain, "What?", bad->options));
  test_assert_error (test_pop (chain.bus, GST_MESSAGE_WARNING), GST_LIBRARY_ERROR,
      GST_LIBRARY_ERROR_SETTINGS, bad->named);
  test_chain_end (&chain);
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
  test_chain_settle (&chain, 20);
  id = test_chain_ask (&chain, NULL,
      "x, prompt=\"Which?\", id=(string)\"a b\", max-tokens=(int)3, temperature=0.5, "
      "top-k=(uint)4, "
      "seed=(gint64)7, from=(guint64)5000000000, to=(int)2000000000, evidence=0, "
      "stop=<\"a\", \"b\">, language=de, system-prompt=\"Be brief.\"");
  g_assert_cmpstr (id, ==, "a b");
  message = test_chain_wait_answer (&chain, "a b", NULL);
  g_assert_cmpstr (test_get_string (message, "prompt"), ==, "Which?");
  g_assert_cmpuint (test_get_time (message, "from"), ==, 5 * GST_SECOND);
  g_assert_cmpuint (test_get_time (message, "to"), ==, 2 * GST_SECOND);
  gst_message_unref (message);
  g_free (id);

  /* The prompt of the signal goes before that of the options; ids are numbers otherwise. */
  id = test_chain_ask (
      &chain, "Who?", "x, prompt=\"Which?\", last=4e9, to=(guint64)18446744073709551615");
  message = test_chain_wait_answer (&chain, id, NULL);
  g_assert_cmpstr (test_get_string (message, "prompt"), ==, "Who?");
  g_assert_cmpuint (test_get_time (message, "from"), ==, 16 * GST_SECOND);
  g_assert_cmpuint (test_get_time (message, "to"), ==, GST_CLOCK_TIME_NONE);
  gst_message_unref (message);
  g_free (id);
  test_chain_end (&chain);
  test_chain_clear (&chain);
}

/* When all is over there is still somebody who asks, though nothing goes downstream any more. */
static void
test_too_late (gconstpointer settings)
{
  g_autofree char *description = g_strconcat (CHAIN, settings, NULL);
  g_autofree char *expected = test_own_answer (0, 5, "What?", NULL, 20);
  GstMessage *message;
  Chain chain;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 5);
  test_chain_end (&chain);
  for (guint i = 0; i < 2; i++) {
    g_autofree char *id = test_chain_ask (&chain, "What?", NULL);

    message = test_chain_wait_answer (&chain, id, "length");
    g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
    gst_message_unref (message);
  }
  g_assert_null (gst_harness_try_pull (chain.harness));
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR | GST_MESSAGE_WARNING));

  /* Until another one begins. */
  test_chain_flush (&chain);
  test_chain_segment (&chain, 0);
  test_chain_say_much (&chain, 0, 5);
  g_free (test_chain_ask (&chain, "What?", NULL));
  gst_buffer_unref (gst_harness_pull (chain.harness));
  test_chain_end (&chain);
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
  id = test_chain_ask (&chain, "What?", NULL);
  message = test_chain_wait_answer (&chain, id, "empty");
  g_assert_cmpstr (test_get_string (message, "text"), ==, "");
  g_assert_nonnull (strstr (test_get_string (message, "reason"), "nothing was said"));
  gst_message_unref (message);
  g_free (id);

  gst_element_set_state (chain.harness->element, GST_STATE_READY);
  g_assert_null (test_chain_ask (&chain, "What?", NULL));
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
  test_chain_settle (&chain, 5);
  g_free (test_chain_ask (&chain, question->str, NULL));
  g_free (test_chain_ask (&chain, "What?", NULL));
  test_assert_error (
      gst_bus_timed_pop_filtered (chain.bus, TEST_TIMEOUT, GST_MESSAGE_WARNING | GST_MESSAGE_ERROR),
      GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NO_SPACE_LEFT, "There is no answer");
  message = test_chain_wait_answer (&chain, "1", "failed");
  g_assert_nonnull (strstr (test_get_string (message, "reason"), "tokens"));
  gst_message_unref (message);
  gst_message_unref (test_chain_wait_answer (&chain, "2", "length"));
  test_chain_end (&chain);
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
  test_chain_settle (&chain, 5);
  for (guint i = 0; i < 5; i++)
    g_free (test_chain_ask (&chain, "What?", i == 4 ? "x, max-tokens=5" : NULL));
  test_hold_wait (&hold);

  /* The waiting one at once, though the first one cannot go on. */
  g_assert_cmpuint (test_chain_cancel (&chain, "2"), ==, 1);
  gst_message_unref (test_chain_wait_answer (&chain, "2", "cancelled"));
  g_assert_cmpuint (test_chain_cancel (&chain, "2"), ==, 0);
  g_assert_cmpuint (test_chain_cancel (&chain, "none"), ==, 0);
  /* The one under way, though downstream holds it. */
  g_assert_cmpuint (test_chain_cancel (&chain, "1"), ==, 1);
  gst_message_unref (test_chain_wait_answer (&chain, "1", "cancelled"));
  g_assert_cmpuint (test_chain_cancel (&chain, "3"), ==, 1);
  gst_message_unref (test_chain_wait_answer (&chain, "3", "cancelled"));
  g_assert_cmpuint (test_chain_cancel (&chain, "4"), ==, 1);
  gst_message_unref (test_chain_wait_answer (&chain, "4", "cancelled"));
  test_hold_release (&hold);
  gst_message_unref (test_chain_wait_answer (&chain, "5", "length"));

  test_hold_clear (&hold);
  test_hold_at (&hold, &chain, 1);
  g_free (test_chain_ask (&chain, "What?", NULL));
  g_free (test_chain_ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  g_assert_cmpuint (test_chain_cancel (&chain, NULL), ==, 2);
  for (guint i = 0; i < 2; i++)
    gst_message_unref (test_chain_wait_answer (&chain, NULL, "cancelled"));
  test_hold_release (&hold);
  test_chain_end (&chain);
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
  test_chain_settle (&chain, 5);
  for (guint i = 0; i < 4; i++)
    g_free (test_chain_ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  test_chain_flush (&chain);
  for (guint i = 0; i < 4; i++)
    gst_message_unref (test_chain_wait_answer (&chain, NULL, "cancelled"));
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
  test_chain_end (&chain);
  message = test_chain_wait_answer (&chain, "1", NULL);
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
  test_chain_end (&chain);
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
  test_chain_settle (&chain, 5);
  g_free (test_chain_ask (&chain, "What?", NULL));
  test_hold_wait (&hold);
  /* Answers that go downstream at once do not wait for it before. */
  gst_util_set_object_arg (G_OBJECT (decoder), "stream", "answer");
  g_free (test_chain_ask (&chain, "What?", NULL));
  message = test_chain_wait_answer (&chain, "2", NULL);
  g_assert_cmpstr (test_get_string (message, "text"), ==, expected);
  gst_message_unref (message);
  test_hold_release (&hold);
  message = test_chain_wait_answer (&chain, "1", NULL);
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
  test_chain_end (&chain);
  test_hold_clear (&hold);
  gst_object_unref (decoder);
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
    g_free (test_chain_ask (&chain, "What is said?", NULL));
    message = test_chain_wait_answer (&chain, NULL, NULL);
    tokens[i] = test_get_uint (message, "prompt-tokens");
    gst_message_unref (message);
    test_chain_end (&chain);
    test_chain_clear (&chain);
  }
  /* What the indexer found is that of the file. */
  g_assert_cmpuint (tokens[0], ==, tokens[1]);
  g_assert_cmpuint (tokens[0], !=, tokens[2]);
}

static void
add_tests (void)
{
  static const BadOptions bad[] = {
    { "x, nonsense=1", "“nonsense”" },
    { "x, max-tokens=-1", "“max-tokens”" },
    { "x, max-tokens=many", "“max-tokens”" },
    { "x, max-tokens=(guint64)4294967297", "“max-tokens”" },
    { "x, max-tokens=0.5", "“max-tokens”" },
    { "x, last=1e30", "“last”" },
    { "x, temperature=(float)-0.5", "“temperature”" },
    { "x, from=-1.5", "“from”" },
    { "x, last=-1", "“last”" },
    { "x, id=5", "“id”" },
    { "x, prompt=5", "“prompt”" },
    { "x, temperature=-0.5", "“temperature”" },
    { "x, sampler=a", "“sampler”" },
    { "x, stop=<1, 2>", "“stop”" },
  };

  g_test_add_func ("/ask/template", test_template);
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
  g_test_add_data_func ("/ask/too-late/text", "", test_too_late);
  g_test_add_data_func ("/ask/too-late/json", JSON, test_too_late);
  g_test_add_func ("/ask/failure", test_failure);
  g_test_add_func ("/ask/cancel", test_cancel);
  g_test_add_func ("/ask/flush", test_flush);
  g_test_add_data_func ("/ask/json/token", "stream=token ", test_json);
  g_test_add_data_func ("/ask/json/sentence", "stream=sentence ", test_json);
  g_test_add_data_func ("/ask/json/answer", "stream=answer ", test_json);
  g_test_add_func ("/ask/json/empty", test_json_empty);
  g_test_add_func ("/ask/parallel", test_parallel);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
