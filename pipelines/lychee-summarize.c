/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Summarises a transcript, or answers another question about it, with the pipeline that it prints.
 * Standard output gets the answer only, written by the pipeline's own fdsink; all else goes to
 * standard error. pipelines/summarize sets everything up and starts this. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib-unix.h>
#include <glib/gstdio.h>
#include <gst/gst.h>

#include "console.h"

/* A small model that is asked for a summary makes one up; asked for what was said, it looks. */
#define DEFAULT_PROMPT "What did the speakers talk about, and what did they decide?"
#define DEFAULT_MAX_TOKENS 256
/* Progress for a log rather than a terminal: seconds between two lines. */
#define LOG_INTERVAL 5.0
/* Bytes that are read at once: in a file of few blocks, the place in it tells nothing. */
#define BLOCK_SIZE 4096

typedef struct {
  GMainLoop *loop;
  GstElement *parse;
  guint64 file_size;
  int exit_status;
  gboolean interrupted;
  gboolean verbose;

  Console console; /* its lock is for what follows, too: streaming threads change it */
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
  gint64 place = 0;
  g_autoptr (GString) text = g_string_new (NULL);

  gst_structure_get (progress, "tokens", G_TYPE_UINT, &tokens, "rate", G_TYPE_DOUBLE, &rate,
      "seconds", G_TYPE_DOUBLE, &seconds, NULL);
  g_string_printf (text, "reading: %u tokens, %.0f tokens/s", tokens, rate);
  if (run->file_size >= 4 * BLOCK_SIZE &&
      gst_element_query_position (run->parse, GST_FORMAT_BYTES, &place)) {
    g_string_append_printf (
        text, ", %d %% of the file", (int) (100 * CLAMP ((double) place / run->file_size, 0, 1)));
  }

  g_mutex_lock (&run->console.lock);
  run->read_tokens = tokens;
  run->read_seconds = seconds;
  run->read_rate = rate;
  if (run->terminal) {
    fprintf (stderr, "\r%s\033[K", text->str);
    run->console.line_open = TRUE;
  } else if (seconds - run->last_logged >= LOG_INTERVAL) {
    fprintf (stderr, "%s\n", text->str);
    run->last_logged = seconds;
  }
  g_mutex_unlock (&run->console.lock);
}

/* Before anything is read: what memory it will take. */
static void
print_memory (Run *run, const GstStructure *session)
{
  guint64 weights = 0, cache = 0, index = 0, available = 0;

  gst_structure_get (session, "weights", G_TYPE_UINT64, &weights, "cache", G_TYPE_UINT64, &cache,
      "index", G_TYPE_UINT64, &index, "available", G_TYPE_UINT64, &available, NULL);
  if (available < G_MAXUINT64)
    console_say (&run->console, "memory: ",
        "%.0f MB for the model, at most %.0f MB for what is read; %.0f MB are available",
        weights / 1e6, (cache + index) / 1e6, available / 1e6);
}

static GstBusSyncReply
on_message_sync (GstBus *bus, GstMessage *message, gpointer user_data)
{
  if (gst_message_has_name (message, "lychee-progress")) {
    show_progress (user_data, gst_message_get_structure (message));
    gst_message_unref (message);
    return GST_BUS_DROP;
  }
  if (gst_message_has_name (message, "lychee-session"))
    print_memory (user_data, gst_message_get_structure (message));
  return GST_BUS_PASS;
}

/* The answer on its way to standard output: the first of it ends the progress. */
static GstPadProbeReturn
on_answer (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Run *run = user_data;

  g_mutex_lock (&run->console.lock);
  if (!run->answer_begun) {
    run->answer_begun = TRUE;
    if (run->terminal) {
      console_close_line (&run->console);
    } else {
      fprintf (
          stderr, "reading: %u tokens, %.0f tokens/s, done\n", run->read_tokens, run->read_rate);
    }
    fputc ('\n', stderr);
  }
  console_note_answer (&run->console, GST_PAD_PROBE_INFO_BUFFER (info));
  g_mutex_unlock (&run->console.lock);
  return GST_PAD_PROBE_OK;
}

static gboolean
on_message (GstBus *bus, GstMessage *message, gpointer user_data)
{
  Run *run = user_data;
  g_autoptr (GError) error = NULL;
  g_autofree char *debug = NULL;

  switch (GST_MESSAGE_TYPE (message)) {
  case GST_MESSAGE_ERROR:
    gst_message_parse_error (message, &error, &debug);
    console_say (&run->console, "lychee-summarize: error: ", "%s: %s",
        GST_MESSAGE_SRC_NAME (message), error->message);
    if (run->verbose && debug != NULL) {
      console_say (&run->console, "  ", "%s", debug);
    }
    run->exit_status = 1;
    g_main_loop_quit (run->loop);
    break;
  case GST_MESSAGE_WARNING:
    gst_message_parse_warning (message, &error, &debug);
    /* An empty transcript has no answer, which is an error here. */
    if (g_error_matches (error, GST_STREAM_ERROR, GST_STREAM_ERROR_WRONG_TYPE)) {
      break;
    }
    console_say (&run->console, "lychee-summarize: warning: ", "%s: %s",
        GST_MESSAGE_SRC_NAME (message), error->message);
    if (run->verbose && debug != NULL) {
      console_say (&run->console, "  ", "%s", debug);
    }
    break;
  case GST_MESSAGE_INFO:
    gst_message_parse_info (message, &error, NULL);
    console_say (&run->console, "lychee-summarize: ", "%s: %s", GST_MESSAGE_SRC_NAME (message),
        error->message);
    break;
  case GST_MESSAGE_ELEMENT:
    if (gst_message_has_name (message, "lychee-answer")) {
      g_clear_pointer (&run->answer, gst_structure_free);
      run->answer = gst_structure_copy (gst_message_get_structure (message));
    }
    break;
  case GST_MESSAGE_EOS:
    g_main_loop_quit (run->loop);
    break;
  default:
    break;
  }
  return G_SOURCE_CONTINUE;
}

static gboolean
on_interrupt (gpointer user_data)
{
  Run *run = user_data;

  run->interrupted = TRUE;
  g_main_loop_quit (run->loop);
  return G_SOURCE_REMOVE; /* a second time, the signal ends the program as it always does */
}

/* Why there is no answer, or NULL. */
static const char *
get_reason (Run *run)
{
  return run->answer != NULL ? gst_structure_get_string (run->answer, "reason") : NULL;
}

/* The transcript's own words, from where the answer was found: a small model makes things up. */
static void
print_evidence (Run *run)
{
  const GValue *evidence = gst_structure_get_value (run->answer, "evidence");
  guint n = evidence != NULL ? gst_value_array_get_size (evidence) : 0;

  if (n > 0)
    console_say (&run->console, "\n",
        "What the transcript says there (small models make things up: compare):");
  for (guint i = 0; i < n; i++) {
    const GstStructure *piece = gst_value_get_structure (gst_value_array_get_value (evidence, i));
    g_autofree char *text = g_strdup (gst_structure_get_string (piece, "text"));
    guint64 start = GST_CLOCK_TIME_NONE;
    guint seconds;

    gst_structure_get_uint64 (piece, "start", &start);
    seconds = GST_CLOCK_TIME_IS_VALID (start) ? start / GST_SECOND : 0;
    if (GST_CLOCK_TIME_IS_VALID (start))
      console_say (&run->console, "  ", "[%02u:%02u:%02u] “%s”", seconds / 3600, seconds / 60 % 60,
          seconds % 60, g_strstrip (text));
    else
      console_say (&run->console, "  ", "“%s”", g_strstrip (text));
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
  const char *finish = gst_structure_get_string (run->answer, "finish");

  gst_structure_get (run->answer, "transcript-tokens", G_TYPE_UINT, &transcript_tokens,
      "answer-tokens", G_TYPE_UINT, &answer_tokens, "seconds-to-first", G_TYPE_DOUBLE, &to_first,
      "seconds", G_TYPE_DOUBLE, &seconds, "truncated", G_TYPE_BOOLEAN, &truncated, NULL);
  if (truncated) {
    console_say (&run->console, "lychee-summarize: warning: ",
        "the transcript is longer than the model's context: the answer knows its first %u tokens",
        transcript_tokens);
  }
  /* The first token's time is the question's; the rate is that of the others. */
  console_say (&run->console, "\n",
      "%u tokens read in %.1f s (%.0f tokens/s); first word after %.2f s; %u tokens of answer%s, "
      "%.0f tokens/s",
      run->read_tokens > 0 ? run->read_tokens : transcript_tokens, run->read_seconds,
      run->read_rate, to_first, answer_tokens,
      g_strcmp0 (finish, "length") == 0 ? " (cut at max-tokens)" : "",
      answer_tokens > 1 && seconds > to_first ? (answer_tokens - 1) / (seconds - to_first) : 0.0);
}

/* VALUE as gst-launch's syntax takes it, whatever is in it. */
static char *
quote_for_gst (const char *value)
{
  GString *quoted = g_string_new ("\"");

  for (; *value != '\0'; value++) {
    if (*value == '"' || *value == '\\') {
      g_string_append_c (quoted, '\\');
    }
    g_string_append_c (quoted, *value);
  }
  g_string_append_c (quoted, '"');
  return g_string_free (quoted, FALSE);
}

/* name=value as a word of a shell's command line: plain where that is safe. */
static char *
quote_for_shell (const char *name, const char *value)
{
  g_autofree char *for_gst = NULL;
  g_autofree char *word = NULL;

  if (*value != '\0' &&
      strspn (value, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "_./:,+-") == strlen (value)) {
    return g_strdup_printf ("%s=%s", name, value);
  }
  if (*value != '\0' && strpbrk (value, "\"\\$`!\n\t") == NULL) {
    return g_strdup_printf ("%s=\"%s\"", name, value);
  }
  for_gst = quote_for_gst (value);
  word = g_shell_quote (for_gst);
  return g_strdup_printf ("%s=%s", name, word);
}

/* Whether the file can be read, and holds text of some encoding: what is in it counts, not its
 * name. Prints a message where not. */
static gboolean
check_file (const char *path)
{
  char head[BLOCK_SIZE];
  size_t size, odd = 0;
  gboolean failed;
  FILE *file = g_fopen (path, "rb");

  size = file != NULL ? fread (head, 1, sizeof head, file) : 0;
  failed = file == NULL || ferror (file);
  if (failed)
    fprintf (stderr, "lychee-summarize: error: %s cannot be read: %s\n", path, g_strerror (errno));
  if (file != NULL)
    fclose (file);
  if (failed)
    return FALSE;
  /* Control characters that no text has; UTF-16 has NUL. */
  for (size_t i = 0; i < size; i++)
    odd +=
        head[i] != '\0' && (guchar) head[i] < ' ' && strchr ("\t\n\v\f\r\032\033", head[i]) == NULL;
  if (odd > size / 50) {
    fprintf (stderr,
        "lychee-summarize: error: %s does not look like a transcript: it is not text\n", path);
    return FALSE;
  }
  return TRUE;
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

int
main (int argc, char **argv)
{
  g_autofree char *prompt = NULL;
  int max_tokens = DEFAULT_MAX_TOKENS;
  gboolean only_print = FALSE;
  g_auto (GStrv) files = NULL;
  Run run = { .console = { .err = stderr, .line_end = "\n" }, .terminal = isatty (STDERR_FILENO) };
  /* The prompt is taken as it is, like a file's name: it is UTF-8 in any locale. */
  const GOptionEntry options[] = {
    { "prompt", 'p', 0, G_OPTION_ARG_FILENAME, &prompt, "What to ask (" DEFAULT_PROMPT ")",
        "TEXT" },
    { "max-tokens", 'n', 0, G_OPTION_ARG_INT, &max_tokens,
        "Longest answer, in tokens (" G_STRINGIFY (DEFAULT_MAX_TOKENS) "; 0: as fits)", "N" },
    { "print", 0, 0, G_OPTION_ARG_NONE, &only_print, "Print the pipeline and stop", NULL },
    { "verbose", 'v', 0, G_OPTION_ARG_NONE, &run.verbose, "Say more about errors", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &files, NULL, "FILE" },
    { NULL },
  };
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autofree char *location = NULL;
  g_autofree char *shell_location = NULL;
  g_autofree char *question = NULL;
  g_autofree char *shell_question = NULL;
  g_autofree char *description = NULL;
  g_autoptr (GstElement) pipeline = NULL;
  g_autoptr (GstElement) sink = NULL;
  g_autoptr (GstPad) pad = NULL;
  g_autoptr (GstBus) bus = NULL;
  guint watch;
  GStatBuf info;
  int output_flags;

  g_option_context_set_summary (context, "Reads a transcript (SRT, WebVTT, ASS, JSON, plain text) "
                                         "and writes what a language model answers.");
  g_option_context_add_main_entries (context, options, NULL);
  g_option_context_add_group (context, gst_init_get_option_group ());
  if (!g_option_context_parse (context, &argc, &argv, &error)) {
    fprintf (stderr, "lychee-summarize: error: %s\n", error->message);
    return 2;
  }
  if (files == NULL || g_strv_length (files) != 1) {
    fprintf (stderr, "lychee-summarize: error: name one transcript file\n");
    return 2;
  }
  if (max_tokens < 0) {
    fprintf (stderr, "lychee-summarize: error: --max-tokens must be 0 or more\n");
    return 2;
  }
  if (prompt == NULL) {
    prompt = g_strdup (DEFAULT_PROMPT);
  }
  if (!g_utf8_validate (prompt, -1, NULL) || *prompt == '\0') {
    fprintf (stderr, "lychee-summarize: error: the prompt must be UTF-8 text and not empty\n");
    return 2;
  }

  if (!console_has_output ("lychee-summarize")) {
    return 1;
  }
  if (g_stat (files[0], &info) != 0) {
    fprintf (stderr, "lychee-summarize: error: %s: %s\n", files[0], g_strerror (errno));
    return 1;
  }
  if (!S_ISREG (info.st_mode)) {
    fprintf (stderr, "lychee-summarize: error: %s is not a file\n", files[0]);
    return 1;
  }
  if (info.st_size == 0) {
    fprintf (stderr, "lychee-summarize: error: %s is empty\n", files[0]);
    return 1;
  }
  if (!check_file (files[0])) {
    return 1;
  }
  run.file_size = info.st_size;

  location = quote_for_gst (files[0]);
  shell_location = quote_for_shell ("location", files[0]);
  question = quote_for_gst (prompt);
  shell_question = quote_for_shell ("prompt", prompt);
  fprintf (stderr,
      "gst-launch-1.0 -q filesrc %s ! lycheetranscriptparse \\\n"
      "    ! lycheetokenizer ! lycheechunker ! lycheeindexer \\\n"
      "    ! lycheedecoder %s max-tokens=%d ! fdsink\n\n",
      shell_location, shell_question, max_tokens);
  if (only_print) {
    return 0;
  }
  description = g_strdup_printf ("filesrc location=%s ! lycheetranscriptparse name=parse"
                                 " ! lycheetokenizer ! lycheechunker ! lycheeindexer"
                                 " ! lycheedecoder prompt=%s max-tokens=%d ! fdsink name=output",
      location, question, max_tokens);

  pipeline = gst_parse_launch_full (description, NULL, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  if (pipeline == NULL) {
    fprintf (stderr, "lychee-summarize: error: %s%s\n", error->message,
        g_error_matches (error, GST_PARSE_ERROR, GST_PARSE_ERROR_NO_SUCH_ELEMENT)
            ? " (is the plugin's folder in GST_PLUGIN_PATH?)"
            : "");
    return 1;
  }
  gst_object_ref_sink (pipeline);

  g_mutex_init (&run.console.lock);
  run.loop = g_main_loop_new (NULL, FALSE);
  run.parse = gst_bin_get_by_name (GST_BIN (pipeline), "parse");
  sink = gst_bin_get_by_name (GST_BIN (pipeline), "output");
  pad = gst_element_get_static_pad (sink, "sink");
  gst_pad_add_probe (pad, GST_PAD_PROBE_TYPE_BUFFER, on_answer, &run, NULL);
  bus = gst_element_get_bus (pipeline);
  gst_bus_set_sync_handler (bus, on_message_sync, &run, NULL);
  watch = gst_bus_add_watch (bus, on_message, &run);
  g_unix_signal_add (SIGINT, on_interrupt, &run);
  g_unix_signal_add (SIGTERM, on_interrupt, &run);

  output_flags = append_to_output ();
  /* Where this fails, there is an error message on the bus. */
  gst_element_set_state (pipeline, GST_STATE_PLAYING);
  g_main_loop_run (run.loop);
  gst_element_set_state (pipeline, GST_STATE_NULL);
  gst_bus_set_sync_handler (bus, NULL, NULL, NULL);
  g_source_remove (watch);

  /* Standard output ends in a newline whatever the model said. */
  if (run.console.answer_last != 0 && run.console.answer_last != '\n') {
    fputc ('\n', stdout);
    run.console.answer_last = '\n';
    if (fflush (stdout) != 0 && run.exit_status == 0) {
      console_say (
          &run.console, "lychee-summarize: error: ", "standard output: %s", g_strerror (errno));
      run.exit_status = 1;
    }
  }
  if (run.interrupted) {
    console_say (&run.console, "lychee-summarize: ", "interrupted");
    run.exit_status = 130;
  } else if (get_reason (&run) != NULL) {
    /* Where it failed, the error has said so. */
    if (run.exit_status == 0) {
      console_say (&run.console, "lychee-summarize: error: ", "%s", get_reason (&run));
    }
    run.exit_status = 1;
  } else if (run.answer != NULL) {
    print_evidence (&run);
    print_figures (&run);
  } else if (run.exit_status == 0) {
    console_say (&run.console, "lychee-summarize: error: ", "the pipeline ended without an answer");
    run.exit_status = 1;
  }

  if (output_flags >= 0) {
    fcntl (STDOUT_FILENO, F_SETFL, output_flags);
  }
  g_clear_pointer (&run.answer, gst_structure_free);
  gst_clear_object (&run.parse);
  g_main_loop_unref (run.loop);
  g_mutex_clear (&run.console.lock);
  return run.exit_status;
}
