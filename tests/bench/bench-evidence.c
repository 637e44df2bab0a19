/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench evidence: how often the turn of a conversation that holds the answer is among the
 * evidence. A transcript has one turn a line; each line of the questions is a question, a tab, and
 * words that stand once in the transcript, in the turn that answers it. */

#include "bench.h"

#include "lychee-session.h"

#include <stdio.h>
#include <string.h>

#define SECOND G_GUINT64_CONSTANT (1000000000)

/* Each turn lasts a second, so that times tell turns. */
static void
read_turns (LycheeSession *session, char **turns)
{
  g_autoptr (GError) error = NULL;
  gint64 begun = g_get_monotonic_time ();

  for (guint i = 0; turns[i]; i++) {
    g_autofree char *line = g_strconcat (turns[i], "\n", NULL);

    if (*turns[i] && !lychee_session_append_text (
                         session, line, NULL, i * SECOND, (i + 1) * SECOND, NULL, &error))
      bench_fail ("%s", error->message);
  }
  if (!lychee_session_flush (session, NULL, &error))
    bench_fail ("%s", error->message);
  fprintf (stderr, "read in %.1f s\n", (g_get_monotonic_time () - begun) / 1e6);
}

static guint
find_turn (char **turns, const char *words)
{
  guint found = G_MAXUINT;

  for (guint i = 0; turns[i]; i++)
    if (strstr (turns[i], words)) {
      if (found != G_MAXUINT)
        bench_fail ("“%s” stands in the transcript more than once", words);
      found = i;
    }
  if (found == G_MAXUINT)
    bench_fail ("“%s” does not stand in the transcript", words);
  return found;
}

/* Which piece of evidence is of the turn, from 1 on; 0: none. */
static guint
find_rank (LycheeAnswer *answer, guint turn)
{
  GPtrArray *evidence = lychee_answer_get_evidence (answer);

  for (guint i = 0; i < evidence->len; i++) {
    LycheeEvidence *e = evidence->pdata[i];

    if (e->start < (turn + 1) * SECOND && e->end > turn * SECOND)
      return i + 1;
  }
  return 0;
}

int
bench_evidence (int argc, char **argv)
{
  Bench bench = { NULL };
  g_autofree char *transcript = NULL, *questions = NULL, *text = NULL, *list = NULL;
  gint max_tokens = 40, n = 3;
  const GOptionEntry entries[] = { { "transcript", 0, 0, G_OPTION_ARG_FILENAME, &transcript,
                                       "the transcript, one turn a line", "FILE" },
    { "questions", 0, 0, G_OPTION_ARG_FILENAME, &questions,
        "questions, each with words of the turn that answers it behind a tab", "FILE" },
    { "max-tokens", 0, 0, G_OPTION_ARG_INT, &max_tokens, "of an answer (40)", "N" },
    { "evidence", 0, 0, G_OPTION_ARG_INT, &n, "pieces of evidence (3)", "N" }, { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeSession) session = NULL;
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) turns = NULL, lines = NULL;
  guint first = 0, among = 0, n_questions = 0;

  bench_parse (&bench, entries, "How often the right turn is among the evidence", &argc, &argv);
  if (!transcript || !questions)
    bench_fail ("name a --transcript and its --questions");
  if (!g_file_get_contents (transcript, &text, NULL, &error) ||
      !g_file_get_contents (questions, &list, NULL, &error))
    bench_fail ("%s", error->message);
  model = bench_load (&bench);
  session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", model, "threads", (guint) bench.threads, NULL);
  turns = g_strsplit (text, "\n", -1);
  lines = g_strsplit (list, "\n", -1);
  read_turns (session, turns);
  for (guint i = 0; lines[i]; i++) {
    g_auto (GStrv) parts = g_strsplit (lines[i], "\t", 2);
    g_autoptr (LycheeQuestion) question = NULL;
    g_autoptr (LycheeAnswer) answer = NULL;
    guint rank;

    if (g_strv_length (parts) < 2)
      continue;
    question = g_object_new (LYCHEE_TYPE_QUESTION, "prompt", parts[0], "max-tokens",
        (guint) max_tokens, "evidence", (guint) n, NULL);
    answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
    if (!answer)
      bench_fail ("%s", error->message);
    rank = find_rank (answer, find_turn (turns, parts[1]));
    n_questions++;
    first += rank == 1;
    among += rank > 0;
    if (!bench.json)
      printf ("%u  %.2f s to first, %.1f ms a token  %s\n", rank,
          lychee_answer_get_seconds_to_first (answer),
          1e3 * (lychee_answer_get_seconds (answer) - lychee_answer_get_seconds_to_first (answer)) /
              MAX (lychee_answer_get_answer_tokens (answer), 1),
          parts[0]);
    fflush (stdout);
  }
  if (bench.json)
    printf ("{\"questions\": %u, \"first\": %u, \"among\": %u, \"evidence\": %d, \"model\": "
            "\"%s\"}\n",
        n_questions, first, among, n, lychee_model_get_id (model));
  else
    printf ("%u questions: the right turn is first in %u, among %d in %u\n", n_questions, first, n,
        among);
  return 0;
}
