/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The parts of lycheedecoder that need no element: how answers are written, when summaries are due,
 * and how answers let the reading go first. */

#include "lychee-answer-queue.h"
#include "lychee-answer-writer.h"
#include "lychee-rolling.h"

#include <math.h>
#include <string.h>

typedef struct {
  GPtrArray *texts;
  guint64 offset;
} Written;

static void
put (GstBuffer *buffer, gpointer user_data)
{
  Written *written = user_data;
  gsize size = gst_buffer_get_size (buffer);
  char *text = g_malloc0 (size + 1);

  g_assert_cmpuint (size, >, 0);
  g_assert_cmpuint (gst_buffer_extract (buffer, 0, text, size), ==, size);
  g_assert_true (g_utf8_validate (text, size, NULL));
  g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, 5 * GST_SECOND);
  g_assert_cmpuint (GST_BUFFER_OFFSET (buffer), ==, written->offset);
  written->offset += size;
  g_assert_cmpuint (GST_BUFFER_OFFSET_END (buffer), ==, written->offset);
  g_assert_cmpint (
      GST_BUFFER_FLAG_IS_SET (buffer, GST_BUFFER_FLAG_DISCONT), ==, written->texts->len == 0);
  g_ptr_array_add (written->texts, text);
  gst_buffer_unref (buffer);
}

/* What a writer makes of pieces, joined by "|". @times: seconds of the evidence, -1: none. */
static char *
write_pieces (
    const char *const *pieces, gboolean json, LycheeStream stream, const int *times, guint n_times)
{
  LycheeAsk *ask = lychee_ask_new (LYCHEE_ASK_QUESTION, lychee_question_new ("What?"));
  LycheeAnswerWriter *writer;
  GstStructure *description;
  GValue evidence = G_VALUE_INIT;
  Written written = { g_ptr_array_new_with_free_func (g_free), 0 };
  char *joined;

  ask->id = g_strdup ("7");
  ask->time = 5 * GST_SECOND;
  description = lychee_answer_describe (ask, NULL, "stop", NULL);
  g_value_init (&evidence, GST_TYPE_ARRAY);
  for (guint i = 0; i < n_times; i++) {
    GValue value = G_VALUE_INIT;

    g_value_init (&value, GST_TYPE_STRUCTURE);
    g_value_take_boxed (
        &value, gst_structure_new ("evidence", "start", G_TYPE_UINT64,
                    times[i] < 0 ? GST_CLOCK_TIME_NONE : (guint) times[i] * GST_SECOND, NULL));
    gst_value_array_append_and_take_value (&evidence, &value);
  }
  gst_structure_take_value (description, "evidence", &evidence);

  writer = lychee_answer_writer_new (ask, json, stream, n_times > 0, put, &written);
  for (guint i = 0; pieces[i] != NULL; i++)
    lychee_answer_writer_push (writer, pieces[i]);
  lychee_answer_writer_finish (writer, description);
  lychee_answer_writer_free (writer);

  g_ptr_array_add (written.texts, NULL);
  joined = g_strjoinv ("|", (char **) written.texts->pdata);
  g_ptr_array_unref (written.texts);
  gst_structure_free (description);
  lychee_ask_unref (ask);
  return joined;
}

typedef struct {
  LycheeStream stream;
  const char *pieces[12];
  const char *expected;
} Text;

static void
test_text (gconstpointer data)
{
  const Text *test = data;
  g_autofree char *written = write_pieces (test->pieces, FALSE, test->stream, NULL, 0);

  g_assert_cmpstr (written, ==, test->expected);
}

static const Text texts[] = {
  { LYCHEE_STREAM_TOKEN, { "One", " two", ".", NULL }, "One| two|." },
  { LYCHEE_STREAM_TOKEN, { NULL }, "" },
  { LYCHEE_STREAM_ANSWER, { "One", " two", ". Three.", NULL }, "One two. Three." },
  { LYCHEE_STREAM_ANSWER, { NULL }, "" },
  /* A sentence is over when the next one begins: only then is it known that it is. */
  { LYCHEE_STREAM_SENTENCE, { "One", " two", ".", " Three", "?", " F", "our", NULL },
      "One two. |Three? |Four" },
  { LYCHEE_STREAM_SENTENCE, { "It is 3", ".", "5 m", ". Yes.", NULL }, "It is 3.5 m. |Yes." },
  { LYCHEE_STREAM_SENTENCE, { "A. B. C. D", NULL }, "A. B. C. |D" },
  { LYCHEE_STREAM_SENTENCE, { "一つ", "。", "二つ", "？", "三", NULL }, "一つ。|二つ？|三" },
  { LYCHEE_STREAM_SENTENCE, { "List:\n", "- one\n", "- two", NULL }, "List:\n|- one\n|- two" },
  { LYCHEE_STREAM_SENTENCE, { "¿Qué?", " «No», d", "ijo.", NULL }, "¿Qué? |«No», dijo." },
  { LYCHEE_STREAM_SENTENCE, { "no end", NULL }, "no end" },
};

typedef struct {
  int times[5];
  guint n;
  LycheeStream stream;
  const char *expected;
} Marks;

static const Marks marks[] = {
  { { 751, 3 }, 2, LYCHEE_STREAM_TOKEN, "Yes|.| [00:00:03] [00:12:31]" },
  { { 751, 3 }, 2, LYCHEE_STREAM_ANSWER, "Yes. [00:00:03] [00:12:31]" },
  { { 36061, 36061 }, 2, LYCHEE_STREAM_SENTENCE, "Yes. [10:01:01]" },
  { { -1, 0 }, 2, LYCHEE_STREAM_SENTENCE, "Yes. [00:00:00]" },
  { { -1 }, 1, LYCHEE_STREAM_SENTENCE, "Yes." },
};

static void
test_marks (gconstpointer data)
{
  static const char *const pieces[] = { "Yes", ".", NULL };
  const Marks *test = data;
  g_autofree char *written = write_pieces (pieces, FALSE, test->stream, test->times, test->n);

  g_assert_cmpstr (written, ==, test->expected);
}

/* Each time stands behind the first sentence that rests on it. */
static void
test_sentence_marks (void)
{
  static const struct {
    int times[2]; /* so far */
    const char *piece;
  } steps[] = { { { 5, -1 }, "One" }, { { 5, -1 }, ". Two" }, { { 9, 5 }, ", and. T" },
    { { 9, 5 }, "hree. F" }, { { 9, 5 }, "our" } };
  LycheeAsk *ask = lychee_ask_new (LYCHEE_ASK_QUESTION, lychee_question_new ("What?"));
  g_autoptr (GstStructure) description = gst_structure_new_empty ("answer");
  Written written = { g_ptr_array_new_with_free_func (g_free) };
  LycheeAnswerWriter *writer =
      lychee_answer_writer_new (ask, FALSE, LYCHEE_STREAM_SENTENCE, TRUE, put, &written);
  g_autofree char *joined = NULL;

  ask->time = 5 * GST_SECOND;
  for (guint i = 0; i < G_N_ELEMENTS (steps); i++) {
    LycheeEvidence evidence[2] = { { 0 } };
    g_autoptr (GPtrArray) so_far = g_ptr_array_new ();

    for (guint j = 0; j < 2; j++) {
      evidence[j].start = steps[i].times[j] < 0 ? GST_CLOCK_TIME_NONE
                                                : (GstClockTime) steps[i].times[j] * GST_SECOND;
      g_ptr_array_add (so_far, &evidence[j]);
    }
    lychee_answer_writer_note_evidence (writer, so_far);
    lychee_answer_writer_push (writer, steps[i].piece);
  }
  lychee_answer_writer_finish (writer, description);
  lychee_answer_writer_free (writer);
  g_ptr_array_add (written.texts, NULL);
  joined = g_strjoinv ("|", (char **) written.texts->pdata);
  g_assert_cmpstr (joined, ==, "One. [00:00:05] |Two, and. [00:00:09] |Three. |Four");
  g_ptr_array_unref (written.texts);
  lychee_ask_unref (ask);
}

static void
test_json (void)
{
  static const char *const pieces[] = { "\"Yes\"\n", "é", NULL };
  static const int times[] = { 2, -1 };
  g_autofree char *token = write_pieces (pieces, TRUE, LYCHEE_STREAM_TOKEN, times, 2);
  g_autofree char *answer = write_pieces (pieces, TRUE, LYCHEE_STREAM_ANSWER, times, 2);

  g_assert_true (g_str_has_prefix (token,
      "{\"version\":1,\"type\":\"text\",\"id\":\"7\",\"text\":\"\\\"Yes\\\"\\n\"}\n|"
      "{\"version\":1,\"type\":\"text\",\"id\":\"7\",\"text\":\"é\"}\n|"
      "{\"version\":1,\"type\":\"answer\",\"id\":\"7\",\"kind\":\"question\",\"prompt\":\"What?"
      "\","));
  g_assert_nonnull (strstr (token, "\"time\":5000000000,\"from\":null,\"to\":null"));
  g_assert_nonnull (strstr (token, "\"evidence\":[{\"start\":2000000000},{\"start\":null}]"));
  g_assert_true (g_str_has_prefix (answer, "{\"version\":1,\"type\":\"answer\""));
  g_assert_null (strchr (answer, '|'));
}

/* Numbers have the digits that mean something, whatever the locale. */
static void
test_json_numbers (void)
{
  static const struct {
    const char *name;
    double value;
    const char *written;
  } numbers[] = {
    { "seconds", 8.556648, "8.557" },
    { "seconds-to-first", 0.0004, "0" },
    { "seconds", 86399.9994, "86399.999" },
    { "seconds", 2, "2" },
    { "weight", 1 / 3.0, "0.333333" },
    { "weight", 1, "1" },
    { "weight", NAN, "null" },
    { "weight", INFINITY, "null" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (numbers); i++) {
    GstStructure *structure =
        gst_structure_new ("x", numbers[i].name, G_TYPE_DOUBLE, numbers[i].value, NULL);
    g_autofree char *json = lychee_structure_to_json (structure, "t");
    g_autofree char *expected = g_strdup_printf (
        "{\"version\":1,\"type\":\"t\",\"%s\":%s}", numbers[i].name, numbers[i].written);

    g_assert_cmpstr (json, ==, expected);
    gst_structure_free (structure);
  }
}

/* Each step: the transcript goes on at a time with so many tokens, and what is due then. */
typedef struct {
  int time;
  guint tokens;
  int from, to; /* -1: nothing is due */
} Step;

static void
run_steps (LycheeRolling *rolling, const Step *steps, guint n)
{
  for (guint i = 0; i < n; i++) {
    GstClockTime from, to;
    gboolean due = lychee_rolling_advance (rolling, steps[i].time * GST_SECOND,
        (steps[i].time + 1) * GST_SECOND, steps[i].tokens, &from, &to);

    g_test_message ("step %u", i);
    g_assert_cmpint (due, ==, steps[i].to >= 0);
    if (due) {
      g_assert_cmpuint (from, ==, steps[i].from * GST_SECOND);
      g_assert_cmpuint (to, ==, steps[i].to * GST_SECOND);
    }
  }
}

static void
test_rolling_interval (void)
{
  static const Step steps[] = {
    { 0, 10, -1, -1 },
    { 9, 20, -1, -1 },
    { 10, 30, 0, 10 },
    { 11, 40, -1, -1 },
    { 25, 50, 10, 20 },
    { 29, 60, -1, -1 },
    { 71, 70, 20, 70 },
    { 60, 80, -1, -1 }, /* out of order */
    { 80, 90, 70, 80 },
  };
  LycheeRolling rolling = { .interval = 10 * GST_SECOND };

  lychee_rolling_restart (&rolling, 0, 0);
  run_steps (&rolling, steps, G_N_ELEMENTS (steps));
  /* It begins where the segment does, else with the first word. */
  lychee_rolling_restart (&rolling, GST_CLOCK_TIME_NONE, 0);
  run_steps (
      &rolling, (const Step[]){ { 100, 5, -1, -1 }, { 109, 5, -1, -1 }, { 110, 5, 100, 110 } }, 3);
}

static void
test_rolling_tokens (void)
{
  static const Step steps[] = {
    { 0, 50, -1, -1 },
    { 1, 99, -1, -1 },
    { 2, 105, 0, 3 },
    { 3, 200, -1, -1 },
    { 4, 205, 3, 5 },
    { 5, 30, -1, -1 }, /* cut by a seek */
    { 6, 131, 5, 7 },
  };
  LycheeRolling rolling = { .tokens = 100 };

  lychee_rolling_restart (&rolling, 0, 0);
  run_steps (&rolling, steps, G_N_ELEMENTS (steps));
}

static void
test_rolling_both (void)
{
  static const Step steps[] = {
    { 0, 150, 0, 1 },
    { 5, 160, -1, -1 },
    { 12, 170, 1, 11 },
    { 13, 270, 11, 14 },
  };
  LycheeRolling rolling = { .tokens = 100, .interval = 10 * GST_SECOND };

  lychee_rolling_restart (&rolling, 0, 0);
  run_steps (&rolling, steps, G_N_ELEMENTS (steps));
}

static void
test_rolling_never (void)
{
  LycheeRolling rolling = { 0 };
  GstClockTime from, to;

  lychee_rolling_restart (&rolling, 0, 0);
  g_assert_false (
      lychee_rolling_advance (&rolling, GST_SECOND * 3600, GST_SECOND * 3600, 1000000, &from, &to));
}

/* An answer without an end, and how far it is. */
typedef struct {
  LycheeAnswerQueue *queue;
  GstPad *src, *sink;
  GMutex lock;
  GCond changed;
  guint n_pieces;
  gboolean over;
} Endless;

static Endless endless;

static void
make_pieces (LycheeJob *job, gpointer user_data)
{
  while (lychee_job_goes_on (job)) {
    g_mutex_lock (&endless.lock);
    endless.n_pieces++;
    g_cond_broadcast (&endless.changed);
    g_mutex_unlock (&endless.lock);
    lychee_job_put (job, gst_buffer_new_memdup ("x", 1));
  }
  lychee_job_end (job);
  g_mutex_lock (&endless.lock);
  endless.over = TRUE;
  g_cond_broadcast (&endless.changed);
  g_mutex_unlock (&endless.lock);
}

static gboolean
activate (GstPad *pad, GstObject *parent, GstPadMode mode, gboolean active)
{
  return lychee_answer_queue_set_active (endless.queue, active);
}

static GstFlowReturn
take_piece (GstPad *pad, GstObject *parent, GstBuffer *buffer)
{
  gst_buffer_unref (buffer);
  return GST_FLOW_OK;
}

static void
endless_begin (void)
{
  g_autoptr (LycheeAsk) ask = lychee_ask_new (LYCHEE_ASK_QUESTION, lychee_question_new ("What?"));
  GstCaps *caps = gst_caps_new_empty_simple ("text/x-raw");
  GstSegment segment;

  endless = (Endless){ .src = gst_pad_new ("src", GST_PAD_SRC),
    .sink = gst_pad_new ("sink", GST_PAD_SINK) };
  g_mutex_init (&endless.lock);
  g_cond_init (&endless.changed);
  endless.queue = lychee_answer_queue_new (endless.src, make_pieces, NULL);
  gst_pad_set_activatemode_function (endless.src, activate);
  gst_pad_set_chain_function (endless.sink, take_piece);
  g_assert_cmpint (gst_pad_link (endless.src, endless.sink), ==, GST_PAD_LINK_OK);
  gst_pad_set_active (endless.sink, TRUE);
  gst_pad_set_active (endless.src, TRUE);
  lychee_answer_queue_set_playing (endless.queue, TRUE);
  gst_segment_init (&segment, GST_FORMAT_TIME);
  lychee_answer_queue_push_event (endless.queue, gst_event_new_stream_start ("x"));
  lychee_answer_queue_push_event (endless.queue, gst_event_new_caps (caps));
  lychee_answer_queue_push_event (endless.queue, gst_event_new_segment (&segment));
  gst_caps_unref (caps);
  g_assert_true (lychee_answer_queue_ask (endless.queue, ask, FALSE, 0));
}

static void
endless_end (void)
{
  gst_pad_set_active (endless.src, FALSE);
  gst_pad_set_active (endless.sink, FALSE);
  lychee_answer_queue_free (endless.queue);
  gst_object_unref (endless.src);
  gst_object_unref (endless.sink);
  g_mutex_clear (&endless.lock);
  g_cond_clear (&endless.changed);
}

#define TIMEOUT (60 * G_USEC_PER_SEC)
#define A_DAY (24 * 60 * 60 * (gint64) G_USEC_PER_SEC)

static void
wait_pieces (guint n)
{
  gint64 until = g_get_monotonic_time () + TIMEOUT;

  g_mutex_lock (&endless.lock);
  while (endless.n_pieces < n)
    g_assert_true (g_cond_wait_until (&endless.changed, &endless.lock, until));
  g_mutex_unlock (&endless.lock);
}

static guint
count_pieces (void)
{
  guint n;

  g_mutex_lock (&endless.lock);
  n = endless.n_pieces;
  g_mutex_unlock (&endless.lock);
  return n;
}

static guint64
count_pauses (void)
{
  guint waiting, running;
  guint64 pauses;

  lychee_answer_queue_count (endless.queue, &waiting, &running, &pauses);
  return pauses;
}

static void
wait_pauses (guint64 n)
{
  gint64 until = g_get_monotonic_time () + TIMEOUT;

  while (count_pauses () < n) {
    g_assert_cmpint (g_get_monotonic_time (), <, until);
    g_thread_yield ();
  }
}

/* While chunks wait, one piece for four of them; where none do, or nothing is heard of them for too
 * long, as many as there are. */
static void
test_backlog (void)
{
  guint n, pauses;

  endless_begin ();
  lychee_answer_queue_set_patience (endless.queue, A_DAY);
  wait_pieces (5);
  g_assert_cmpuint (count_pauses (), ==, 0);
  lychee_answer_queue_note_backlog (endless.queue, 9);
  wait_pauses (1);
  n = count_pieces ();
  for (guint i = 1; i < 6; i++) {
    for (guint j = 0; j < 3; j++)
      lychee_answer_queue_note_backlog (endless.queue, 9);
    g_assert_cmpuint (count_pieces (), ==, n);
    lychee_answer_queue_note_backlog (endless.queue, 9);
    wait_pauses (i + 1);
    g_assert_cmpuint (count_pieces (), ==, ++n);
  }
  lychee_answer_queue_note_backlog (endless.queue, 0);
  wait_pieces (n + 10);
  g_assert_cmpuint (count_pauses (), ==, 6);

  /* Nothing is heard. */
  lychee_answer_queue_note_backlog (endless.queue, 9);
  wait_pauses (7);
  n = count_pieces ();
  lychee_answer_queue_set_patience (endless.queue, 1);
  wait_pieces (n + 10);

  /* Cancelled meanwhile. */
  lychee_answer_queue_set_patience (endless.queue, A_DAY);
  pauses = count_pauses ();
  lychee_answer_queue_note_backlog (endless.queue, 9);
  wait_pauses (pauses + 1);
  g_assert_cmpuint (lychee_answer_queue_cancel (endless.queue, NULL), ==, 1);
  g_mutex_lock (&endless.lock);
  while (!endless.over)
    g_cond_wait (&endless.changed, &endless.lock);
  g_mutex_unlock (&endless.lock);
  endless_end ();
}

int
main (int argc, char **argv)
{
  gst_init (&argc, &argv);
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    g_autofree char *name = g_strdup_printf ("/answers/text/%u", i);

    g_test_add_data_func (name, &texts[i], test_text);
  }
  g_test_add_func ("/answers/sentence-marks", test_sentence_marks);
  for (guint i = 0; i < G_N_ELEMENTS (marks); i++) {
    g_autofree char *name = g_strdup_printf ("/answers/marks/%u", i);

    g_test_add_data_func (name, &marks[i], test_marks);
  }
  g_test_add_func ("/answers/backlog", test_backlog);
  g_test_add_func ("/answers/json", test_json);
  g_test_add_func ("/answers/json/numbers", test_json_numbers);
  g_test_add_func ("/answers/rolling/interval", test_rolling_interval);
  g_test_add_func ("/answers/rolling/tokens", test_rolling_tokens);
  g_test_add_func ("/answers/rolling/both", test_rolling_both);
  g_test_add_func ("/answers/rolling/never", test_rolling_never);
  return g_test_run ();
}
