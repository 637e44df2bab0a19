/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Summarises a transcript, or answers another question about it, with the pipeline that it prints.
 * Standard output gets the answer only, written by the pipeline's own fdsink; all else goes to
 * standard error. pipelines/summarize sets everything up and starts this. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib/gstdio.h>

#include "program.h"

/* Progress for a log rather than a terminal: seconds between two lines. */
#define LOG_INTERVAL 5.0
/* Bytes that are read at once: in a file of few blocks, the place in it tells nothing. */
#define BLOCK_SIZE 4096

typedef struct {
  Program program; /* its console's lock is for what follows, too: streaming threads change it */
  GstElement *parse, *source;
  gboolean terminal;
  double last_logged;
  guint read_tokens;
  double read_seconds;
  double read_rate;
  gboolean answer_begun;
  GstStructure *answer;
} Run;

/* In the indexer's streaming thread, so that the last progress is seen before the first word of the
 * answer. */
static void
show_progress (Run *run, const GstStructure *progress)
{
  guint tokens = 0;
  double rate = 0;
  double seconds = 0;
  gint64 place = 0, size = 0;
  g_autoptr (GString) text = g_string_new (NULL);

  gst_structure_get (progress, "tokens", G_TYPE_UINT, &tokens, "rate", G_TYPE_DOUBLE, &rate,
      "seconds", G_TYPE_DOUBLE, &seconds, NULL);
  g_string_printf (text, "reading: %u tokens, %.0f tokens/s", tokens, rate);
  if (gst_element_query_duration (run->source, GST_FORMAT_BYTES, &size) && size >= 4 * BLOCK_SIZE &&
      gst_element_query_position (run->parse, GST_FORMAT_BYTES, &place)) {
    g_string_append_printf (
        text, ", %d %% of the file", (int) (100 * CLAMP ((double) place / size, 0, 1)));
  }

  g_mutex_lock (&run->program.console.lock);
  run->read_tokens = tokens;
  run->read_seconds = seconds;
  run->read_rate = rate;
  if (run->terminal) {
    fprintf (stderr, "\r%s\033[K", text->str);
    run->program.console.line_open = TRUE;
  } else if (seconds - run->last_logged >= LOG_INTERVAL) {
    fprintf (stderr, "%s\n", text->str);
    run->last_logged = seconds;
  }
  g_mutex_unlock (&run->program.console.lock);
}

/* Before anything is read: what memory it will take. */
static void
print_memory (Run *run, const GstStructure *session)
{
  guint64 weights = 0, cache = 0, index = 0, available = 0;

  gst_structure_get (session, "weights", G_TYPE_UINT64, &weights, "cache", G_TYPE_UINT64, &cache,
      "index", G_TYPE_UINT64, &index, "available", G_TYPE_UINT64, &available, NULL);
  if (available < G_MAXUINT64)
    console_say (&run->program.console, "memory: ",
        "%.0f MB for the model, at most %.0f MB for what is read; %.0f MB are available",
        weights / 1e6, (cache + index) / 1e6, available / 1e6);
}

static gboolean
on_posted (GstMessage *message, gpointer user_data)
{
  if (gst_message_has_name (message, "lychee-session"))
    print_memory (user_data, gst_message_get_structure (message));
  if (!gst_message_has_name (message, "lychee-progress"))
    return FALSE;
  show_progress (user_data, gst_message_get_structure (message));
  return TRUE;
}

/* The answer on its way to standard output: the first of it ends the progress. */
static GstPadProbeReturn
on_answer (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Run *run = user_data;

  g_mutex_lock (&run->program.console.lock);
  if (!run->answer_begun) {
    run->answer_begun = TRUE;
    if (run->terminal) {
      console_close_line (&run->program.console);
    } else {
      fprintf (
          stderr, "reading: %u tokens, %.0f tokens/s, done\n", run->read_tokens, run->read_rate);
    }
    fputc ('\n', stderr);
  }
  console_note_answer (&run->program.console, GST_PAD_PROBE_INFO_BUFFER (info));
  g_mutex_unlock (&run->program.console.lock);
  return GST_PAD_PROBE_OK;
}

static gboolean
on_message (GstMessage *message, gpointer user_data)
{
  Run *run = user_data;

  if (!gst_message_has_name (message, "lychee-answer"))
    return FALSE;
  g_clear_pointer (&run->answer, gst_structure_free);
  run->answer = gst_structure_copy (gst_message_get_structure (message));
  return TRUE;
}

/* The transcript's own words, from where the answer was found: a small model makes things up. */
static void
print_evidence (Run *run)
{
  const GValue *evidence = gst_structure_get_value (run->answer, "evidence");
  guint n = evidence != NULL ? gst_value_array_get_size (evidence) : 0;

  if (n > 0)
    console_say (&run->program.console, "\n",
        "What the transcript says there (small models make things up: compare):");
  for (guint i = 0; i < n; i++) {
    const GstStructure *piece = gst_value_get_structure (gst_value_array_get_value (evidence, i));
    g_autofree char *text = g_strdup (gst_structure_get_string (piece, "text"));
    g_autofree char *time = NULL;
    guint64 start = GST_CLOCK_TIME_NONE;

    gst_structure_get_uint64 (piece, "start", &start);
    time = program_format_time (start, FALSE);
    console_say (&run->program.console, "  ",
        GST_CLOCK_TIME_IS_VALID (start) ? "[%s] “%s”" : "%.0s“%s”", time, g_strstrip (text));
  }
}

static void
print_figures (Run *run)
{
  guint transcript_tokens = 0;
  guint answer_tokens = 0;
  double to_first = 0;
  double seconds = 0;
  gboolean truncated = FALSE;
  g_autofree char *answered = NULL;
  const char *finish = gst_structure_get_string (run->answer, "finish");

  gst_structure_get (run->answer, "transcript-tokens", G_TYPE_UINT, &transcript_tokens,
      "answer-tokens", G_TYPE_UINT, &answer_tokens, "seconds-to-first", G_TYPE_DOUBLE, &to_first,
      "seconds", G_TYPE_DOUBLE, &seconds, "truncated", G_TYPE_BOOLEAN, &truncated, NULL);
  if (truncated) {
    console_say (&run->program.console, "lychee-summarize: warning: ",
        "the transcript is longer than the model's context: the answer knows its first %u tokens",
        transcript_tokens);
  }
  if (run->program.quotes > 0)
    answered = g_strdup_printf ("first quote after %.2f s, all after %.2f s", to_first, seconds);
  else /* The first token's time is the question's; the rate is that of the others. */
    answered = g_strdup_printf ("first word after %.2f s; %u tokens of answer%s, %.0f tokens/s",
        to_first, answer_tokens, g_strcmp0 (finish, "length") == 0 ? " (cut at max-tokens)" : "",
        answer_tokens > 1 && seconds > to_first ? (answer_tokens - 1) / (seconds - to_first) : 0.0);
  console_say (&run->program.console, "\n", "%u tokens read in %.1f s (%.0f tokens/s); %s",
      run->read_tokens > 0 ? run->read_tokens : transcript_tokens, run->read_seconds,
      run->read_rate, answered);
}

/* fdsink writes from the beginning of a file that standard output was sent to, over what others
 * have put there. Returns the flags to put back. */
static int
append_to_output (void)
{
  int flags = fcntl (STDOUT_FILENO, F_GETFL);
  GStatBuf info;

  if (flags >= 0 && fstat (STDOUT_FILENO, &info) == 0 && S_ISREG (info.st_mode)) {
    fcntl (STDOUT_FILENO, F_SETFL, flags | O_APPEND);
  }
  return flags;
}

/* What is said when all is over, beside the answer. */
static void
say_outcome (Run *run)
{
  Program *program = &run->program;
  const char *reason =
      run->answer != NULL ? gst_structure_get_string (run->answer, "reason") : NULL;

  if (!console_end_answer (&program->console) && program->status == 0)
    program_fail (program, "standard output: %s", g_strerror (errno));
  if (program->status == 130) {
    console_say (&program->console, "lychee-summarize: ", "interrupted");
  } else if (run->answer != NULL && reason == NULL) {
    if (program->quotes == 0)
      print_evidence (run);
    print_figures (run);
  } else if (program->status == 0) { /* otherwise it has been said */
    program_fail (program, "%s", reason != NULL ? reason : "the pipeline ended without an answer");
  }
}

static void
summarize (Run *run)
{
  Program *program = &run->program;
  g_autoptr (GstElement) decoder = NULL;
  int output_flags;

  if (!program_open (program, NULL,
          "lycheetokenizer ! lycheechunker ! lycheeindexer ! lycheedecoder name=decoder"
          " ! fdsink name=output"))
    return;
  decoder = program_get (program, "decoder");
  run->source = program_get (program, "source");
  run->parse = program_get (program, "parse");
  g_object_set (decoder, "prompt", program->prompt, "max-tokens", program->max_tokens, "quotes",
      program->quotes, NULL);
  program_add_probe (program, "output", "sink", GST_PAD_PROBE_TYPE_BUFFER, on_answer, run);
  output_flags = append_to_output ();
  program_run (program);
  program_stop (program);
  say_outcome (run);
  if (output_flags >= 0)
    fcntl (STDOUT_FILENO, F_SETFL, output_flags);
  g_clear_pointer (&run->answer, gst_structure_free);
  gst_clear_object (&run->source);
  gst_clear_object (&run->parse);
}

int
main (int argc, char **argv)
{
  gboolean only_print = FALSE;
  Run run = { .terminal = console_is_screen (STDERR_FILENO),
    .program = { .name = "lychee-summarize",
        .default_prompt = PROGRAM_PROMPT,
        .takes_quotes = TRUE,
        .max_tokens = 256,
        .on_posted = on_posted,
        .on_message = on_message,
        .user_data = &run } };
  const GOptionEntry options[] = {
    { "print", 0, 0, G_OPTION_ARG_NONE, &only_print, "Print the pipeline and stop", NULL },
    { NULL },
  };

  if (program_parse (&run.program,
          "Reads a transcript (SRT, WebVTT, ASS, TTML, SAMI and other captions, CSV, JSON, chats,\n"
          "plain text; - is standard input) and writes what matters in it, in the words of those\n"
          "who said it, or with --prompt what a language model answers.",
          options, argc, argv) &&
      program_check (&run.program)) {
    program_print (&run.program, "fdsrc", "lycheetranscriptparse");
    if (!only_print)
      summarize (&run);
  }
  return program_close (&run.program);
}
