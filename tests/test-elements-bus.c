/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What a bus watch sees: in each case every message that is promised, as often as it is, with its
 * fields, and no other. docs/guide.md promises the element messages. */

#include "test-elements-common.h"

#include <string.h>

#define MANY G_MAXUINT
#define LINES 20
#define CHAIN(indexer, decoder)                                                                    \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "system-prompt=\"\" " indexer " ! lycheedecoder name=d max-tokens=4 " decoder

typedef struct {
  GstMessageType type;
  const char *what; /* name of an element message or context, kind of progress, part of a text */
  guint least, most;
  const char *fields; /* of an element message */
} Promise;

#define SESSION                                                                                    \
  {                                                                                                \
    GST_MESSAGE_ELEMENT, "lychee-session", 1, 1,                                                   \
        "context trained stretch weights cache index available"                                    \
  }
#define PROGRESS                                                                                   \
  {                                                                                                \
    GST_MESSAGE_ELEMENT, "lychee-progress", 1, MANY, "tokens chunks rate seconds"                  \
  }
#define FORGOTTEN                                                                                  \
  {                                                                                                \
    GST_MESSAGE_ELEMENT, "lychee-forgotten", 1, MANY, "tokens from"                                \
  }
#define BEHIND                                                                                     \
  {                                                                                                \
    GST_MESSAGE_ELEMENT, "lychee-behind", 2, MANY, "behind tokens rate"                            \
  }
#define ANSWER(n)                                                                                  \
  {                                                                                                \
    GST_MESSAGE_ELEMENT, "lychee-answer", n, n,                                                    \
        "id kind prompt text finish time from to truncated transcript-tokens prompt-tokens "       \
        "answer-tokens seconds-to-first seconds evidence"                                          \
  }
#define LOADED                                                                                     \
  { GST_MESSAGE_PROGRESS, "start", 1, 1 }, { GST_MESSAGE_PROGRESS, "continue", 1, 1 },             \
      { GST_MESSAGE_PROGRESS, "complete", 1, 1 },                                                  \
  {                                                                                                \
    GST_MESSAGE_HAVE_CONTEXT, "lychee.model", 1, MANY                                              \
  }
#define WARNING(text)                                                                              \
  {                                                                                                \
    GST_MESSAGE_WARNING, text, 1, 1                                                                \
  }
/* After an error the stream may still end, with nothing to answer from. */
#define MAYBE_EMPTY                                                                                \
  { GST_MESSAGE_ELEMENT, "lychee-answer", 0, 1 },                                                  \
  {                                                                                                \
    GST_MESSAGE_WARNING, "nothing was said", 0, 1                                                  \
  }
#define INFO(text)                                                                                 \
  {                                                                                                \
    GST_MESSAGE_INFO, text, 1, 1                                                                   \
  }
#define ERROR(text)                                                                                \
  {                                                                                                \
    GST_MESSAGE_ERROR, text, 1, 1                                                                  \
  }

typedef struct {
  const char *name;
  const char *launch;
  void (*act) (Chain *chain);
  Promise promises[12];
} Case;

static void
say_lines (Chain *chain, guint n)
{
  for (guint i = 0; i < n; i++) {
    g_autofree char *line = g_strdup_printf ("This is line %u of the talk.", i);

    /* What follows an error is refused. */
    if (test_chain_say (chain, line, i) != GST_FLOW_OK)
      break;
  }
}

static void
end (Chain *chain)
{
  gst_harness_push_event (chain->harness, gst_event_new_eos ());
}

static void
talk (Chain *chain)
{
  say_lines (chain, LINES);
  end (chain);
}

/* A CUDA module that cannot be used: the processor computes, and somebody is told why. */
static void
talk_without_module (Chain *chain)
{
  g_autofree char *path = test_write_file ("no-module", "this is no module");

  g_setenv ("LYCHEE_CUDA_MODULE", path, TRUE);
  talk (chain);
  g_unsetenv ("LYCHEE_CUDA_MODULE");
}

static void
talk_long (Chain *chain)
{
  say_lines (chain, 100);
  end (chain);
}

static char *
ask (Chain *chain, const char *prompt, const char *options)
{
  g_autoptr (GstElement) decoder = test_chain_get (chain, "d");
  GstStructure *structure = options != NULL ? gst_structure_from_string (options, NULL) : NULL;
  char *id = NULL;

  g_signal_emit_by_name (decoder, "ask", prompt, structure, &id);
  g_clear_pointer (&structure, gst_structure_free);
  return id;
}

static void
ask_three (Chain *chain)
{
  say_lines (chain, LINES);
  for (guint i = 0; i < 3; i++) {
    g_autofree char *id = ask (chain, "What is said?", NULL);

    g_assert_nonnull (id);
  }
  end (chain);
}

static void
ask_nonsense (Chain *chain)
{
  say_lines (chain, LINES);
  g_assert_null (ask (chain, "What?", "x, temperature=(string)hot"));
  end (chain);
}

static void
ask_too_late (Chain *chain)
{
  talk (chain);
  g_assert_true (test_chain_wait_eos (chain));
  gst_element_set_state (chain->harness->element, GST_STATE_READY);
  g_assert_null (ask (chain, "What?", NULL));
}

static void
ask_too_much (Chain *chain)
{
  g_autoptr (GString) prompt = g_string_new (NULL);
  g_autofree char *id = NULL;

  for (guint i = 0; i < 100; i++)
    g_string_append (prompt, "Who said what? ");
  say_lines (chain, LINES);
  id = ask (chain, prompt->str, NULL);
  g_assert_nonnull (id);
  end (chain);
}

static void
say_bad_bytes (Chain *chain)
{
  g_assert_cmpint (test_chain_say (chain, "This is \xff\xfe bad.", 0), ==, GST_FLOW_OK);
  talk (chain);
}

/* In time, late, and in time again. */
static void
say_late (Chain *chain)
{
  gst_harness_use_testclock (chain->harness);
  gst_harness_set_live (chain->harness, TRUE);
  gst_harness_set_src_caps_str (chain->harness, TEST_TEXT_CAPS);
  for (guint i = 0; i < 30; i++) {
    gst_harness_set_time (chain->harness, (i + (i < 10 ? 1 : i < 20 ? 15 : 16)) * GST_SECOND);
    test_chain_say_much (chain, i >= 20 ? i + 15 : i, 1);
  }
  end (chain);
}

static void
push_bytes (Chain *chain, const char *text)
{
  GstSegment segment;

  gst_segment_init (&segment, GST_FORMAT_BYTES);
  gst_harness_push_event (chain->harness, gst_event_new_stream_start ("bus"));
  gst_harness_push_event (chain->harness, gst_event_new_segment (&segment));
  gst_harness_push (chain->harness, test_text_buffer (text, -1, -1, -1));
  end (chain);
}

static void
parse_disorder (Chain *chain)
{
  push_bytes (chain, "1\n00:00:05,000 --> 00:00:04,000\nFirst.\n\n"
                     "2\n00:00:01,000 --> 00:00:02,000\nSecond.\n\n");
}

static void
parse_latin (Chain *chain)
{
  push_bytes (chain, "1\n00:00:01,000 --> 00:00:02,000\nDie T\xfcr ist gr\xfcn und sch\xf6n, "
                     "sagt der B\xe4"
                     "cker.\n\n");
}

static void
parse_document (Chain *chain)
{
  push_bytes (chain, "%PDF-1.7\n1 0 obj\n(Ann: Good morning.) Tj\n");
}

static void
parse_program (Chain *chain)
{
  static const char program[] = "\x7f"
                                "ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\x3e\0\1\0\0\0\x80\x10\xff\xfe";
  GstSegment segment;
  char bytes[4096];

  for (guint i = 0; i < sizeof bytes; i++)
    bytes[i] = program[i % sizeof program];
  gst_segment_init (&segment, GST_FORMAT_BYTES);
  gst_harness_push_event (chain->harness, gst_event_new_stream_start ("bus"));
  gst_harness_push_event (chain->harness, gst_event_new_segment (&segment));
  gst_harness_push (chain->harness, test_text_buffer (bytes, sizeof bytes, -1, -1));
  end (chain);
}

static const Case cases[] = {
  { "answer", CHAIN ("", ""), talk, { LOADED, SESSION, PROGRESS, ANSWER (1) } },
  { "questions", CHAIN ("", ""), ask_three, { LOADED, SESSION, PROGRESS, ANSWER (4) } },
  { "nothing-said", CHAIN ("", ""), end,
      { LOADED, SESSION, PROGRESS, ANSWER (1), WARNING ("nothing was said") } },
  { "stretched", CHAIN ("max-context=4096", ""), talk,
      { LOADED, SESSION, PROGRESS, ANSWER (1), INFO ("YaRN") } },
  { "auto-fallback", CHAIN ("backend=auto", ""), talk_without_module,
      { LOADED, SESSION, PROGRESS, ANSWER (1), INFO ("The processor computes. The CUDA module") } },
  { "stop-reading", CHAIN ("max-context=300 reserve=100", ""), talk_long,
      { LOADED, SESSION, PROGRESS, ANSWER (1), WARNING ("what follows is left out"),
          WARNING ("were left out.") } },
  { "forget-oldest", CHAIN ("max-context=300 reserve=100 overflow=forget-oldest", ""), talk_long,
      { LOADED, SESSION, PROGRESS, FORGOTTEN, ANSWER (1), WARNING ("the oldest part of it") } },
  { "overflow-error", CHAIN ("max-context=300 reserve=100 overflow=error", ""), talk_long,
      { LOADED, SESSION, PROGRESS, { GST_MESSAGE_ELEMENT, "lychee-answer", 0, 1 },
          ERROR ("The transcript cannot be read") } },
  { "no-room", CHAIN ("max-context=20 reserve=10", ""), talk,
      { LOADED, SESSION, { GST_MESSAGE_ELEMENT, "lychee-progress", 0, MANY }, MAYBE_EMPTY,
          ERROR ("not even its beginning fits") } },
  { "behind", CHAIN ("", ""), say_late, { LOADED, SESSION, PROGRESS, BEHIND, ANSWER (1) } },
  { "not-saved", CHAIN ("location=/nowhere/x.lychee", ""), talk,
      { LOADED, SESSION, PROGRESS, ANSWER (1), WARNING ("The session could not be saved") } },
  { "bad-options", CHAIN ("", ""), ask_nonsense,
      { LOADED, SESSION, PROGRESS, ANSWER (1), WARNING ("temperature") } },
  { "asked-too-late", CHAIN ("", ""), ask_too_late,
      { LOADED, SESSION, PROGRESS, ANSWER (1), WARNING ("“What?” was not asked") } },
  { "question-fails", CHAIN ("max-context=1200 reserve=100", ""), ask_too_much,
      { LOADED, SESSION, PROGRESS, ANSWER (2), WARNING ("There is no answer") } },
  { "bad-bytes", CHAIN ("", ""), say_bad_bytes,
      { LOADED, SESSION, PROGRESS, ANSWER (1), WARNING ("The text is not all UTF-8") } },
  { "no-model",
      "lycheetokenizer model=DIR/nowhere.gguf ! lycheechunker ! lycheeindexer ! lycheedecoder "
      "name=d",
      end,
      { { GST_MESSAGE_PROGRESS, "start", 1, 1 }, { GST_MESSAGE_PROGRESS, "continue", 0, 1 },
          { GST_MESSAGE_PROGRESS, "error", 1, 1 }, { GST_MESSAGE_ELEMENT, "lychee-progress", 0, 1 },
          MAYBE_EMPTY, { GST_MESSAGE_HAVE_CONTEXT, "lychee.model", 0, MANY },
          ERROR ("nowhere.gguf") } },
  { "repaired", "lycheetranscriptparse", parse_disorder,
      { WARNING ("The transcript was repaired") } },
  { "guessed", "lycheetranscriptparse", parse_latin, { WARNING ("which is a guess") } },
  { "document", "lycheetranscriptparse", parse_document, { ERROR ("a PDF document: open it") } },
  { "no-text", "lycheetranscriptparse", parse_program, { ERROR ("This is no transcript") } },
};

/* What @promise is about, in @message. (transfer full) (nullable) */
static char *
describe (GstMessage *message)
{
  g_autoptr (GError) error = NULL;

  switch (GST_MESSAGE_TYPE (message)) {
  case GST_MESSAGE_ERROR:
    gst_message_parse_error (message, &error, NULL);
    return g_strdup (error->message);
  case GST_MESSAGE_WARNING:
    gst_message_parse_warning (message, &error, NULL);
    return g_strdup (error->message);
  case GST_MESSAGE_INFO:
    gst_message_parse_info (message, &error, NULL);
    return g_strdup (error->message);
  case GST_MESSAGE_PROGRESS: {
    g_autofree char *code = NULL;
    GstProgressType type;
    GEnumClass *klass = g_type_class_ref (GST_TYPE_PROGRESS_TYPE);
    char *nick;

    gst_message_parse_progress (message, &type, &code, NULL);
    g_assert_cmpstr (code, ==, "model");
    nick = g_strdup (g_enum_get_value (klass, type)->value_nick);
    g_type_class_unref (klass);
    return nick;
  }
  case GST_MESSAGE_HAVE_CONTEXT: {
    GstContext *context = NULL;
    char *type;

    gst_message_parse_have_context (message, &context);
    type = g_strdup (gst_context_get_context_type (context));
    gst_context_unref (context);
    return type;
  }
  default:
    return g_strdup (gst_structure_get_name (gst_message_get_structure (message)));
  }
}

static gboolean
keeps (const Promise *promise, GstMessageType type, const char *what)
{
  gboolean text = (type & (GST_MESSAGE_ERROR | GST_MESSAGE_WARNING | GST_MESSAGE_INFO)) != 0;

  return promise->type == type &&
         (text ? strstr (what, promise->what) != NULL : g_str_equal (what, promise->what));
}

static void
note_message (const Case *c, guint *seen, GstMessage *message)
{
  g_autofree char *what = describe (message);

  for (guint i = 0; c->promises[i].what != NULL; i++) {
    const Promise *promise = &c->promises[i];
    g_auto (GStrv) fields = NULL;

    if (!keeps (promise, GST_MESSAGE_TYPE (message), what))
      continue;
    seen[i]++;
    fields = g_strsplit (promise->fields != NULL ? promise->fields : "", " ", -1);
    for (char **field = fields; *field != NULL; field++)
      if (!gst_structure_has_field (gst_message_get_structure (message), *field))
        g_error ("%s: %s has no field %s", c->name, what, *field);
    return;
  }
  g_error ("%s: not promised: %s “%s”", c->name, GST_MESSAGE_TYPE_NAME (message), what);
}

static void
test_case (gconstpointer data)
{
  const Case *c = data;
  const GstMessageType types = GST_MESSAGE_ERROR | GST_MESSAGE_WARNING | GST_MESSAGE_INFO |
                               GST_MESSAGE_ELEMENT | GST_MESSAGE_PROGRESS |
                               GST_MESSAGE_HAVE_CONTEXT;
  guint seen[G_N_ELEMENTS (c->promises)] = { 0 };
  gboolean fails = FALSE, failed = FALSE;
  GstMessage *message;
  Chain chain;

  for (guint i = 0; c->promises[i].what != NULL; i++)
    fails |= c->promises[i].type == GST_MESSAGE_ERROR;
  test_chain_init_without_caps (&chain, c->launch);
  if (g_str_has_prefix (c->launch, "lycheetokenizer") && c->act != say_late)
    gst_harness_set_src_caps_str (chain.harness, TEST_TEXT_CAPS);
  gst_harness_set_drop_buffers (chain.harness, TRUE);
  c->act (&chain);
  if (!fails && c->act != ask_too_late)
    g_assert_true (test_chain_wait_eos (&chain));
  while (fails && !failed) {
    message = gst_bus_timed_pop_filtered (chain.bus, TEST_TIMEOUT, types);
    g_assert_nonnull (message);
    failed = GST_MESSAGE_TYPE (message) == GST_MESSAGE_ERROR;
    note_message (c, seen, message);
    gst_message_unref (message);
  }
  /* Saving is the last that may be said. */
  gst_element_set_state (chain.harness->element, GST_STATE_NULL);
  while ((message = test_pop (chain.bus, types)) != NULL) {
    note_message (c, seen, message);
    gst_message_unref (message);
  }
  for (guint i = 0; c->promises[i].what != NULL; i++)
    if (seen[i] < c->promises[i].least || seen[i] > c->promises[i].most)
      g_error ("%s: “%s” came %u times", c->name, c->promises[i].what, seen[i]);
  test_chain_clear (&chain);
}

/* Each element message that the guide lists is in some case, with the fields that it lists. */
static void
test_guide (void)
{
  g_autofree char *path = g_test_build_filename (G_TEST_DIST, "..", "docs", "guide.md", NULL);
  g_autofree char *text = NULL;
  g_auto (GStrv) lines = NULL;
  guint n = 0;

  g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
  lines = g_strsplit (text, "\n", -1);
  for (char **line = lines; *line != NULL; line++) {
    g_auto (GStrv) cells = NULL, words = NULL;
    const char *fields = NULL;

    if (!g_str_has_prefix (*line, "| `lychee-") || strstr (*line, "` | `lychee") == NULL)
      continue;
    cells = g_strsplit (*line, " | ", -1);
    g_assert_cmpuint (g_strv_length (cells), ==, 4);
    words = g_strsplit (cells[0], "`", -1);
    for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
      for (const Promise *promise = cases[i].promises; promise->what != NULL; promise++)
        if (promise->fields != NULL && g_str_equal (promise->what, words[1]))
          fields = promise->fields;
    if (fields == NULL)
      g_error ("no case has the message %s, which the guide promises", words[1]);
    n++;
  }
  g_assert_cmpuint (n, ==, 5);
}

/* How often each level is logged. */
typedef struct {
  GMutex lock;
  guint n[GST_LEVEL_COUNT];
  gboolean foreign; /* something of ours went into a category of another's */
} Log;

static void
count_line (GstDebugCategory *category, GstDebugLevel level, const char *file, const char *function,
    int line, GObject *object, GstDebugMessage *message, gpointer user_data)
{
  const char *name = gst_debug_category_get_name (category);
  Log *log = user_data;

  g_mutex_lock (&log->lock);
  if (g_str_has_prefix (name, "lychee"))
    log->n[level]++;
  else
    log->foreign |= strstr (file, "lychee") != NULL && level > GST_LEVEL_WARNING;
  g_mutex_unlock (&log->lock);
}

static void
log_talk (Log *log, guint lines, guint tokens)
{
  g_autoptr (GstElement) decoder = NULL;
  Chain chain;

  memset (log->n, 0, sizeof log->n);
  test_chain_init (&chain, CHAIN ("", ""), TEST_TEXT_CAPS);
  gst_harness_set_drop_buffers (chain.harness, TRUE);
  decoder = test_chain_get (&chain, "d");
  g_object_set (decoder, "max-tokens", tokens, NULL);
  say_lines (&chain, lines);
  end (&chain);
  g_assert_true (test_chain_wait_eos (&chain));
  g_clear_object (&decoder);
  test_chain_clear (&chain);
}

/* The levels are those that the guide tells of: a long transcript logs no more up to DEBUG than a
 * short one, a long answer no more up to LOG. */
static void
test_levels (void)
{
  Log log = { 0 };
  guint few[GST_LEVEL_COUNT];

#ifdef __SANITIZE_ADDRESS__
  g_test_skip ("GStreamer never frees the lists of log functions that it replaces");
  return;
#endif
  g_mutex_init (&log.lock);
  gst_debug_set_active (TRUE);
  gst_debug_remove_log_function (gst_debug_log_default);
  gst_debug_add_log_function (count_line, &log, NULL);
  gst_debug_set_default_threshold (GST_LEVEL_TRACE);
  log_talk (&log, 10, 4);
  memcpy (few, log.n, sizeof few);
  log_talk (&log, 40, 4);
  for (guint level = GST_LEVEL_ERROR; level <= GST_LEVEL_DEBUG; level++)
    g_assert_cmpuint (log.n[level], ==, few[level]);
  g_assert_cmpuint (few[GST_LEVEL_INFO], >, 0);
  g_assert_cmpuint (log.n[GST_LEVEL_LOG], >=, few[GST_LEVEL_LOG] + 30);
  memcpy (few, log.n, sizeof few);
  log_talk (&log, 40, 30);
  for (guint level = GST_LEVEL_ERROR; level <= GST_LEVEL_LOG; level++)
    g_assert_cmpuint (log.n[level], ==, few[level]);
  g_assert_cmpuint (log.n[GST_LEVEL_TRACE], >=, few[GST_LEVEL_TRACE] + 10);
  g_assert_false (log.foreign);
  gst_debug_set_default_threshold (GST_LEVEL_NONE);
  gst_debug_remove_log_function (count_line);
  gst_debug_set_active (FALSE);
  g_mutex_clear (&log.lock);
}

static void
add_tests (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *name = g_strconcat ("/bus/", cases[i].name, NULL);

    g_test_add_data_func (name, &cases[i], test_case);
  }
  g_test_add_func ("/bus/guide", test_guide);
  g_test_add_func ("/bus/log-levels", test_levels);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
