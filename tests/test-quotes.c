/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Answers in the transcript's own words. */

#include "lychee-chunk-private.h"
#include "lychee-quotes.h"
#include "session-fixture.h"

#define SECOND G_GUINT64_CONSTANT (1000000000)

static LycheeModel *model;

/* Choosing */

typedef struct {
  const char *speaker, *text;
  double weight;
} Said;

typedef struct {
  const char *name;
  Said said[6];
  guint n;
  const char *expected; /* lines */
  gboolean cut_begin, cut_end;
} Case;

static const Case cases[] = {
  { "one of several",
      { { NULL, "We met at nine in the old hall. The pump is broken again. ", 0.1 },
          { NULL, "Nobody knows who has the key to it.", 0.9 } },
      1, "[00:00:01] Nobody knows who has the key to it.\n" },
  { "over chunks, and lines",
      { { NULL, "It was late. The ferry that we\nwere waiting ", 0.3 },
          { NULL, "for did not come\nuntil the morning. So we slept.", 0.3 } },
      1, "[00:00:00] The ferry that we were waiting for did not come until the morning.\n" },
  { "in the order in which they were said",
      { { NULL, "The first one is about the roof. ", 0.2 },
          { NULL, "The second one is about the door. ", 0.1 },
          { NULL, "The third one is about the wall.", 0.7 } },
      2,
      "[00:00:00] The first one is about the roof.\n"
      "[00:00:02] The third one is about the wall.\n" },
  { "speakers, without their names in the words",
      { { "Ann", "Ann: We could take the train to the coast", 0.5 },
          { "Ben", "\nBen: And who of us is to pay for the train?", 0.4 },
          { "Ben", " I have no idea, to be honest.", 0.1 } },
      2,
      "[00:00:00] Ann: We could take the train to the coast\n"
      "[00:00:01] Ben: And who of us is to pay for the train?\n" },
  { "a colon of the east",
      { { "\u6797",
          "\u6797\uFF1A\u9031\u672B\u306B\u6D77\u306B\u884C\u304D\u307E\u3057\u3087\u3046\u3002"
          "\u306F\u3044\u3002",
          1 } },
      3,
      "[00:00:00] \u6797: "
      "\u9031\u672B\u306B\u6D77\u306B\u884C\u304D\u307E\u3057\u3087\u3046\u3002\n" },
  { "speakers whose names are not known",
      { { ">>", ">> The bus leaves at seven in the morning.", 1 } }, 1,
      "[00:00:00] The bus leaves at seven in the morning.\n" },
  { "too short to say much",
      { { NULL, "Lovely. Right. We take the train to the coast, then. Go on.", 1 } }, 9,
      "[00:00:00] We take the train to the coast, then.\n" },
  { "and nothing else is said", { { NULL, "Lovely. Go on, then.", 1 } }, 9,
      "[00:00:00] Lovely.\n[00:00:00] Go on, then.\n" },
  { "a paragraph ends a sentence",
      { { NULL, "What the meeting was about\n", 0.5 },
          { NULL, "\nThe meeting was about the bees.", 0.6 } },
      1, "[00:00:01] The meeting was about the bees.\n" },
  { "what nobody turns to is not quoted",
      { { NULL, "Some words that are not wanted. ", 0 },
          { NULL, "Some words that are wanted.", 1 } },
      2, "[00:00:01] Some words that are wanted.\n" },
  { "none asked for", { { NULL, "Some words that could be quoted.", 1 } }, 0, "" },
  { "what is not all there is for want of others",
      { { NULL, "and that was the end of it. We all went home by the last bus. And then we", 1 } },
      1, "[00:00:00] We all went home by the last bus.\n", TRUE, TRUE },
  { "and there are none", { { NULL, "and that was the end of it", 1 } }, 1,
      "[00:00:00] and that was the end of it\n", TRUE, FALSE },
  { "space alone", { { NULL, " \n\n \n", 1 } }, 2, "" },
};

static LycheeChunk *
new_said (const Said *said, guint i)
{
  const gint32 ids[] = { 3, 4, 5 };

  return lychee_chunk_new (ids, G_N_ELEMENTS (ids), said->text, said->speaker, i * SECOND, SECOND,
      LYCHEE_BOUNDARY_WORD, 0, i);
}

static void
test_choose (void)
{
  for (guint c = 0; c < G_N_ELEMENTS (cases); c++) {
    const Case *test = &cases[c];
    g_autoptr (GPtrArray) quotes =
        g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_evidence_unref);
    g_autoptr (GString) lines = g_string_new (NULL);
    LycheeQuotable chunks[G_N_ELEMENTS (test->said)];
    guint n = 0;

    for (; n < G_N_ELEMENTS (test->said) && test->said[n].text; n++)
      chunks[n] =
          (LycheeQuotable){ new_said (&test->said[n], n), 10 + 3 * n, test->said[n].weight };
    lychee_quotes_choose (chunks, n, test->cut_begin, test->cut_end, test->n, quotes);
    for (guint i = 0; i < quotes->len; i++) {
      g_autofree char *line = lychee_quote_to_line (quotes->pdata[i]);

      g_string_append (lines, line);
    }
    g_test_message ("%s", test->name);
    g_assert_cmpstr (lines->str, ==, test->expected);
    for (guint i = 0; i < n; i++)
      lychee_chunk_unref (chunks[i].chunk);
  }
}

/* A sentence begins when its cue does, and has the tokens of the chunks that it is in. */
static void
test_places (void)
{
  const gint32 ids[] = { 3, 4, 5, 6, 7, 8 };
  const char *text = "That was that. Then we talked about the weather of the week.";
  const LycheeChunkPart part = { 7 * SECOND, 3, strlen ("That was that. ") };
  LycheeChunk *chunk = lychee_chunk_new_in_parts (ids, G_N_ELEMENTS (ids), text, NULL, 5 * SECOND,
      4 * SECOND, LYCHEE_BOUNDARY_SENTENCE, 0, 0, &part, 1);
  const LycheeQuotable quotable = { chunk, 40, 0.5 };
  g_autoptr (GPtrArray) quotes =
      g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_evidence_unref);
  const LycheeEvidence *quote;

  lychee_quotes_choose (&quotable, 1, FALSE, FALSE, 1, quotes);
  g_assert_cmpuint (quotes->len, ==, 1);
  quote = quotes->pdata[0];
  g_assert_cmpuint (quote->start, ==, 7 * SECOND);
  g_assert_cmpuint (quote->end, ==, 9 * SECOND);
  g_assert_cmpuint (quote->position, ==, 40);
  g_assert_cmpuint (quote->n_tokens, ==, 6);
  g_assert_cmpfloat_with_epsilon (quote->weight,
      0.5 * strlen ("Then we talked about the weather of the week.") / strlen (text), 1e-9);
  lychee_chunk_unref (chunk);
}

static const char *const words[] = { "boat", "Mr.", "river", "said,", "late.", "why?",
  "\u00E9t\u00E9", "and", "\u6D77\u3002", "3.5", "no!", "\u2026", "\"yes.\"", "\u0915\u0964", "\n",
  "\n\n" };

/* Whatever is said, with and without marks: quotes are pieces of it, in order, apart from each
 * other and none much longer than it may be. */
static void
test_random (void)
{
  for (guint round = 0; round < 300; round++) {
    guint n = g_test_rand_int_range (1, 40), n_quotes = g_test_rand_int_range (0, 12);
    gboolean marks = g_test_rand_bit ();
    g_autoptr (GString) all = g_string_new (NULL);
    g_autofree LycheeQuotable *chunks = g_new (LycheeQuotable, n);
    g_autoptr (GPtrArray) quotes =
        g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_evidence_unref);
    const char *at;
    double weight = 0, left = 1;

    for (guint i = 0; i < n; i++) {
      g_autoptr (GString) text = g_string_new (NULL);
      Said said = { NULL, NULL, 0 };

      for (guint w = 0; w < 10; w++)
        g_string_append_printf (
            text, "%s ", marks ? words[g_test_rand_int_range (0, G_N_ELEMENTS (words))] : "again");
      said.text = text->str;
      chunks[i] = (LycheeQuotable){ new_said (&said, i), 3 * i,
        g_test_rand_bit () ? left * g_test_rand_double () / 4 : 0 };
      left -= chunks[i].weight;
      g_string_append (all, text->str);
    }
    g_strdelimit (all->str, "\n", ' ');
    lychee_quotes_choose (chunks, n, FALSE, FALSE, n_quotes, quotes);
    g_assert_cmpuint (quotes->len, <=, n_quotes);
    at = all->str;
    for (guint i = 0; i < quotes->len; i++) {
      const LycheeEvidence *quote = quotes->pdata[i];

      g_assert_true (g_utf8_validate (quote->text, -1, NULL));
      at = strstr (at, quote->text);
      g_assert_nonnull (at);
      at += strlen (quote->text);
      if (!marks)
        g_assert_cmpuint (strlen (quote->text), <=, 400);
      g_assert_cmpfloat (quote->weight, >, 0);
      g_assert_cmpuint (quote->position % 3, ==, 0);
      weight += quote->weight;
    }
    g_assert_cmpfloat (weight, <=, 1 + 1e-9);
    for (guint i = 0; i < n; i++)
      lychee_chunk_unref (chunks[i].chunk);
  }
}

/* Asking */

#define N_TURNS 48

/* Turn @i is said in second 2 i, by one of two. */
static char *
turn (guint i)
{
  return g_strdup_printf ("Number %u is what we talk about in turn %u, although nobody here has "
                          "ever known the reason why.",
      i * 7 % 50, i);
}

static LycheeSession *
new_session (void)
{
  LycheeSession *session = lychee_session_new (model);
  g_autoptr (GError) error = NULL;

  for (guint i = 0; i < N_TURNS; i++) {
    g_autofree char *text = turn (i);

    lychee_session_append_text (
        session, text, i % 3 ? "Ann" : "Ben", 2 * i * SECOND, (2 * i + 1) * SECOND, NULL, &error);
    g_assert_no_error (error);
  }
  lychee_session_flush (session, NULL, &error);
  g_assert_no_error (error);
  return session;
}

static LycheeQuestion *
new_question (guint quotes)
{
  return g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "Which number?", "quotes", quotes, NULL);
}

/* The answer is its evidence, line by line, said as it was and when it was, from all parts. */
static void
test_answer (void)
{
  g_autoptr (LycheeSession) session = new_session ();
  const guint counts[] = { 1, 2, 7, 12, 1000 };

  for (guint c = 0; c < G_N_ELEMENTS (counts); c++) {
    g_autoptr (LycheeQuestion) question = new_question (counts[c]);
    g_autoptr (GString) told = g_string_new (NULL), lines = g_string_new (NULL);
    g_autoptr (GError) error = NULL;
    g_autoptr (LycheeAnswer) answer =
        lychee_session_ask (session, question, collect, told, NULL, &error);
    g_autoptr (LycheeAnswer) again = lychee_session_ask (session, question, NULL, NULL, NULL, NULL);
    GPtrArray *evidence = lychee_answer_get_evidence (answer);
    guint64 last = 0;
    guint halves[2] = { 0 };

    g_assert_no_error (error);
    g_assert_cmpint (lychee_answer_get_finish (answer), ==, LYCHEE_FINISH_STOP);
    g_assert_cmpuint (evidence->len, >, 0);
    g_assert_cmpuint (evidence->len, <=, counts[c]);
    for (guint i = 0; i < evidence->len; i++) {
      const LycheeEvidence *quote = evidence->pdata[i];
      g_autofree char *line = lychee_quote_to_line (quote), *said = NULL;

      said = turn ((guint) (quote->start / (2 * SECOND)));
      g_assert_cmpstr (quote->text, ==, said);
      g_assert_cmpstr (quote->speaker, ==, quote->start / (2 * SECOND) % 3 ? "Ann" : "Ben");
      g_assert_true (i == 0 || quote->start > last);
      last = quote->start;
      halves[last >= N_TURNS * SECOND]++;
      g_string_append (lines, line);
    }
    if (counts[c] > 2)
      g_assert_true (halves[0] > 0 && halves[1] > 0);
    g_assert_cmpstr (lychee_answer_get_text (answer), ==, lines->str);
    g_assert_cmpstr (told->str, ==, lines->str);
    g_assert_cmpstr (lychee_answer_get_text (again), ==, lines->str);
    g_assert_cmpuint (lychee_answer_get_answer_tokens (answer), ==, 0);
  }
}

/* Where there is but one chunk, no question turns to it more than any. */
static void
test_one (void)
{
  static const char *const said[] = { "My father works on that farm.", "Yes." };

  for (guint i = 0; i < G_N_ELEMENTS (said); i++) {
    g_autoptr (LycheeSession) session = lychee_session_new (model);
    g_autoptr (LycheeQuestion) question = new_question (16);
    g_autoptr (GError) error = NULL;
    g_autoptr (LycheeAnswer) answer = NULL;
    g_autofree char *line = g_strdup_printf ("[00:00:03] Ben: %s\n", said[i]);

    lychee_session_append_text (session, said[i], "Ben", 3 * SECOND, 4 * SECOND, NULL, &error);
    g_assert_no_error (error);
    lychee_session_flush (session, NULL, &error);
    g_assert_no_error (error);
    answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (lychee_answer_get_text (answer), ==, line);
  }
}

static void
test_range (void)
{
  g_autoptr (LycheeSession) session = new_session ();
  g_autoptr (LycheeQuestion) question = new_question (6);
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeAnswer) answer = NULL;
  GPtrArray *evidence;

  lychee_question_set_range (question, 20 * SECOND, 60 * SECOND);
  answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
  g_assert_no_error (error);
  evidence = lychee_answer_get_evidence (answer);
  g_assert_cmpuint (evidence->len, >, 1);
  for (guint i = 0; i < evidence->len; i++) {
    const LycheeEvidence *quote = evidence->pdata[i];

    g_assert_true (quote->end > 20 * SECOND && quote->start < 60 * SECOND);
  }
}

static gboolean
take_one (const char *text, gpointer user_data)
{
  g_string_append (user_data, text);
  return FALSE;
}

/* What was told so far is the answer to a question that is given up. */
static void
test_give_up (void)
{
  g_autoptr (LycheeSession) session = new_session ();
  g_autoptr (LycheeQuestion) question = new_question (12);
  g_autoptr (GCancellable) cancellable = g_cancellable_new ();
  g_autoptr (GString) told = g_string_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeAnswer) answer =
      lychee_session_ask (session, question, take_one, told, NULL, &error);
  g_autoptr (LycheeAnswer) none = NULL;

  g_assert_no_error (error);
  g_assert_cmpint (lychee_answer_get_finish (answer), ==, LYCHEE_FINISH_CANCELLED);
  g_assert_cmpstr (lychee_answer_get_text (answer), ==, told->str);
  g_assert_cmpuint (told->len, >, 0);

  g_cancellable_cancel (cancellable);
  none = lychee_session_ask (session, question, NULL, NULL, cancellable, &error);
  g_assert_no_error (error);
  g_assert_cmpint (lychee_answer_get_finish (none), ==, LYCHEE_FINISH_CANCELLED);
  g_assert_cmpstr (lychee_answer_get_text (none), ==, "");
}

static void
count_quotes (LycheeQuestion *question, LycheeAnswer *so_far, gpointer user_data)
{
  guint *most = user_data, n = lychee_answer_get_evidence (so_far)->len;

  g_assert_cmpuint (n, >=, *most);
  *most = n;
}

static void
test_progress (void)
{
  g_autoptr (LycheeSession) session = new_session ();
  g_autoptr (LycheeQuestion) question = new_question (8);
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeAnswer) answer = NULL;
  guint most = 0;

  g_signal_connect (question, "progress", G_CALLBACK (count_quotes), &most);
  answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (most, ==, lychee_answer_get_evidence (answer)->len);
}

/* All that was said. (transfer full) */
static char *
join_turns (void)
{
  GString *all = g_string_new (NULL);

  for (guint i = 0; i < N_TURNS; i++) {
    g_autofree char *text = turn (i);

    g_string_append_printf (all, "%s ", text);
  }
  return g_string_free (all, FALSE);
}

/* With ever less memory: all of them, or an error that says so. */
static void
test_no_memory (void)
{
  g_autofree char *all = join_turns ();
  guint n_good = 0, n_bad = 0;

  for (guint64 bytes = 100000; bytes < 1600000; bytes += 75000) {
    g_autoptr (LycheeSession) session = g_object_new (
        LYCHEE_TYPE_SESSION, "model", model, "max-memory", bytes, "reserve", 60, NULL);
    g_autoptr (LycheeQuestion) question = new_question (4);
    g_autoptr (LycheeAnswer) answer = NULL;
    g_autoptr (GError) error = NULL;
    guint i = 0;

    for (; i < N_TURNS; i++) {
      g_autofree char *said = turn (i), *text = g_strconcat (said, " ", NULL);

      if (!lychee_session_append_text (
              session, text, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, NULL, NULL))
        break;
    }
    if (i < N_TURNS || !lychee_session_flush (session, NULL, NULL))
      continue;
    answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
    if (answer) {
      GPtrArray *evidence = lychee_answer_get_evidence (answer);

      g_assert_cmpuint (evidence->len, >, 0);
      for (guint e = 0; e < evidence->len; e++)
        g_assert_nonnull (strstr (all, ((const LycheeEvidence *) evidence->pdata[e])->text));
      n_good++;
    } else {
      g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY);
      n_bad++;
    }
  }
  g_assert_cmpuint (n_good, >, 0);
  g_test_message ("%u good, %u without memory", n_good, n_bad);
}

int
main (int argc, char **argv)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  int result;

  g_test_init (&argc, &argv, NULL);
  tiny.n_context = 4096;
  model = load_tiny_model (&tiny);
  g_test_add_func ("/quotes/choose", test_choose);
  g_test_add_func ("/quotes/places", test_places);
  g_test_add_func ("/quotes/random", test_random);
  g_test_add_func ("/quotes/answer", test_answer);
  g_test_add_func ("/quotes/one", test_one);
  g_test_add_func ("/quotes/range", test_range);
  g_test_add_func ("/quotes/give-up", test_give_up);
  g_test_add_func ("/quotes/progress", test_progress);
  g_test_add_func ("/quotes/no-memory", test_no_memory);
  result = g_test_run ();
  g_object_unref (model);
  return result;
}
