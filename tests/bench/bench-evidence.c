/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lychee-bench evidence: how often the turn of a conversation that holds the answer is among the
 * evidence, and by how early in the conversation it was. A transcript has one turn a line; each
 * line of the questions is a question, a tab, and words that stand once in the transcript, in the
 * turn that answers it. */

#include "bench.h"

#include "lychee-session.h"

#include <stdio.h>
#include <string.h>

#define N_PARTS 5
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

/* Of the questions whose turns are in one part of the transcript. */
typedef struct {
  guint n, first, among;
} Count;

static void
add_count (Count *count, guint rank)
{
  count->n++;
  count->first += rank == 1;
  count->among += rank > 0;
}

static void
print_counts (const Count *all, const Count *fifths, guint n)
{
  printf ("%u questions: the right turn is first in %u, among %u in %u\n", all->n, all->first, n,
      all->among);
  for (guint i = 0; i < N_PARTS; i++)
    printf ("  in fifth %u of the transcript: %u questions, first in %u, among %u in %u\n", i + 1,
        fifths[i].n, fifths[i].first, n, fifths[i].among);
}

static void
print_counts_as_json (const Count *all, const Count *fifths, guint n, LycheeModel *model)
{
  printf ("{\"questions\": %u, \"first\": %u, \"among\": %u, \"evidence\": %u, \"model\": \"%s\", "
          "\"fifths\": [",
      all->n, all->first, all->among, n, lychee_model_get_id (model));
  for (guint i = 0; i < N_PARTS; i++)
    printf ("%s{\"questions\": %u, \"first\": %u, \"among\": %u}", i > 0 ? ", " : "", fifths[i].n,
        fifths[i].first, fifths[i].among);
  printf ("]}\n");
}

int
bench_evidence (int argc, char **argv)
{
  Bench bench = { NULL };
  g_autofree char *transcript = NULL, *questions = NULL, *text = NULL, *list = NULL;
  g_autofree char *prefill = NULL;
  gint max_tokens = 40, n = 3;
  gboolean sparse;
  const GOptionEntry entries[] = { { "transcript", 0, 0, G_OPTION_ARG_FILENAME, &transcript,
                                       "the transcript, one turn a line", "FILE" },
    { "questions", 0, 0, G_OPTION_ARG_FILENAME, &questions,
        "questions, each with words of the turn that answers it behind a tab", "FILE" },
    { "max-tokens", 0, 0, G_OPTION_ARG_INT, &max_tokens, "of an answer (40)", "N" },
    { "evidence", 0, 0, G_OPTION_ARG_INT, &n, "pieces of evidence (3)", "N" },
    { "prefill", 0, 0, G_OPTION_ARG_STRING, &prefill,
        "how the transcript is read, dense or sparse (default dense)", "MODE" },
    { NULL } };
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeSession) session = NULL;
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) turns = NULL, lines = NULL;
  Count all = { 0 }, fifths[N_PARTS] = { { 0 } };

  bench_parse (&bench, entries, "How often the right turn is among the evidence", &argc, &argv);
  if (!transcript || !questions)
    bench_fail ("name a --transcript and its --questions");
  sparse = bench_parse_prefill (prefill);
  if (!g_file_get_contents (transcript, &text, NULL, &error) ||
      !g_file_get_contents (questions, &list, NULL, &error))
    bench_fail ("%s", error->message);
  model = bench_load (&bench);
  session = g_object_new (LYCHEE_TYPE_SESSION, "model", model, "threads", (guint) bench.threads,
      "prefill", sparse ? LYCHEE_ATTENTION_SPARSE : LYCHEE_ATTENTION_DENSE, NULL);
  turns = g_strsplit (text, "\n", -1);
  lines = g_strsplit (list, "\n", -1);
  read_turns (session, turns);
  for (guint i = 0; lines[i]; i++) {
    g_auto (GStrv) parts = g_strsplit (lines[i], "\t", 2);
    g_autoptr (LycheeQuestion) question = NULL;
    g_autoptr (LycheeAnswer) answer = NULL;
    guint rank, turn;

    if (g_strv_length (parts) < 2)
      continue;
    question = g_object_new (LYCHEE_TYPE_QUESTION, "prompt", parts[0], "max-tokens",
        (guint) max_tokens, "evidence", (guint) n, NULL);
    answer = lychee_session_ask (session, question, NULL, NULL, NULL, &error);
    if (!answer)
      bench_fail ("%s", error->message);
    turn = find_turn (turns, parts[1]);
    rank = find_rank (answer, turn);
    add_count (&all, rank);
    add_count (&fifths[turn * N_PARTS / g_strv_length (turns)], rank);
    if (!bench.json)
      printf ("%u  %.2f s to first, %.1f ms a token  %s\n", rank,
          lychee_answer_get_seconds_to_first (answer),
          1e3 * (lychee_answer_get_seconds (answer) - lychee_answer_get_seconds_to_first (answer)) /
              MAX (lychee_answer_get_answer_tokens (answer), 1),
          parts[0]);
    fflush (stdout);
  }
  if (bench.json)
    print_counts_as_json (&all, fifths, n, model);
  else
    print_counts (&all, fifths, n);
  return 0;
}
