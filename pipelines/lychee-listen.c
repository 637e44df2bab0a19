/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Listens to a microphone or an audio file, and answers a question about what was said when it
 * ends. Standard output gets the answer only; what is heard goes to standard error as it is
 * recognised. pipelines/listen sets everything up and starts this. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib-unix.h>
#include <glib/gstdio.h>
#include <gst/gst.h>

#include "console.h"

#define DEFAULT_PROMPT "Summarize this transcript in a few sentences."
#define DEFAULT_MAX_TOKENS 256
/* What pocketsphinx hears a word of before it has a first guess. */
#define GUESS_DELAY (200 * GST_MSECOND)

/* The recogniser writes much to standard error: people see this instead. */
static FILE *err;

typedef struct {
  GMainLoop *loop;
  GstElement *pipeline;
  int exit_status;
  gboolean interrupted;
  gboolean verbose;
  gboolean answered;
  char *reason;     /* why there is no answer */
  const char *file; /* that it listens to */

  Console console; /* its lock is for what follows, too: streaming threads change it */
  gboolean terminal;
  GstClockTime heard; /* up to where the recogniser got sound */
  GstClockTime begin; /* of what it is hearing; NONE between two utterances */
  GstClockTime end;   /* when the last guess of it changed */
} Run;

/* What goes into the recogniser: its clock. */
static GstPadProbeReturn
on_sound (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Run *run = user_data;
  GstBuffer *buffer = GST_PAD_PROBE_INFO_BUFFER (info);

  g_mutex_lock (&run->console.lock);
  if (GST_BUFFER_PTS_IS_VALID (buffer))
    run->heard = GST_BUFFER_PTS (buffer) +
                 (GST_BUFFER_DURATION_IS_VALID (buffer) ? GST_BUFFER_DURATION (buffer) : 0);
  g_mutex_unlock (&run->console.lock);
  return GST_PAD_PROBE_OK;
}

/* What comes out of it: an utterance, final, without its time. */
static GstPadProbeReturn
on_utterance (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Run *run = user_data;
  GstBuffer *buffer = gst_buffer_make_writable (GST_PAD_PROBE_INFO_BUFFER (info));
  gsize size = gst_buffer_get_size (buffer);
  g_autofree char *text = g_malloc0 (size + 1);

  GST_PAD_PROBE_INFO_DATA (info) = buffer;
  gst_buffer_extract (buffer, 0, text, size);
  g_mutex_lock (&run->console.lock);
  if (run->begin == GST_CLOCK_TIME_NONE)
    run->begin = run->end = run->heard;
  if (!GST_BUFFER_PTS_IS_VALID (buffer)) {
    GST_BUFFER_PTS (buffer) = run->begin;
    GST_BUFFER_DURATION (buffer) = run->end - run->begin;
  }
  console_close_line (&run->console);
  fprintf (err, "[%u:%02u] %s\n", (guint) (run->begin / GST_SECOND / 60),
      (guint) (run->begin / GST_SECOND % 60), g_strstrip (text));
  run->begin = GST_CLOCK_TIME_NONE;
  g_mutex_unlock (&run->console.lock);
  return GST_PAD_PROBE_OK;
}

/* A guess, in the recogniser's thread: the terminal shows it until the next one or the utterance
 * replaces it; nothing else of it goes anywhere. */
static void
note_guess (Run *run, const GstStructure *guess)
{
  const char *text = gst_structure_get_string (guess, "hypothesis");
  gboolean final = FALSE;

  gst_structure_get_boolean (guess, "final", &final);
  if (final || text == NULL)
    return;
  g_mutex_lock (&run->console.lock);
  if (run->begin == GST_CLOCK_TIME_NONE)
    run->begin = run->heard > GUESS_DELAY ? run->heard - GUESS_DELAY : 0;
  run->end = run->heard;
  if (run->terminal) {
    fprintf (err, "\r... %s\033[K", text);
    run->console.line_open = TRUE;
  }
  g_mutex_unlock (&run->console.lock);
}

static GstBusSyncReply
on_message_sync (GstBus *bus, GstMessage *message, gpointer user_data)
{
  if (!gst_message_has_name (message, "pocketsphinx"))
    return GST_BUS_PASS;
  note_guess (user_data, gst_message_get_structure (message));
  gst_message_unref (message);
  return GST_BUS_DROP;
}

static GstPadProbeReturn
on_answer (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Run *run = user_data;

  g_mutex_lock (&run->console.lock);
  if (run->console.answer_last == 0)
    fputc ('\n', run->console.err);
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
    console_say (&run->console, "lychee-listen: error: ", "%s: %s", GST_MESSAGE_SRC_NAME (message),
        error->message);
    if (run->verbose && debug != NULL)
      console_say (&run->console, "  ", "%s", debug);
    run->exit_status = 1;
    g_main_loop_quit (run->loop);
    break;
  case GST_MESSAGE_WARNING:
    gst_message_parse_warning (message, &error, &debug);
    /* What waits for sound would wait for ever. */
    if (g_error_matches (error, GST_PARSE_ERROR, GST_PARSE_ERROR_DELAYED_LINK)) {
      console_say (&run->console, "lychee-listen: error: ", "%s has no sound in it", run->file);
      run->exit_status = 1;
      g_main_loop_quit (run->loop);
      break;
    }
    /* That nothing was said is an error here. */
    if (!g_error_matches (error, GST_STREAM_ERROR, GST_STREAM_ERROR_WRONG_TYPE))
      console_say (&run->console, "lychee-listen: warning: ", "%s: %s",
          GST_MESSAGE_SRC_NAME (message), error->message);
    break;
  case GST_MESSAGE_ELEMENT:
    if (gst_message_has_name (message, "lychee-answer")) {
      g_free (run->reason);
      run->reason =
          g_strdup (gst_structure_get_string (gst_message_get_structure (message), "reason"));
      run->answered = TRUE;
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

/* The first time ends the sound, and what was heard is asked about; the second ends the program. */
static gboolean
on_interrupt (gpointer user_data)
{
  Run *run = user_data;

  if (run->interrupted) {
    run->exit_status = 130;
    g_main_loop_quit (run->loop);
    return G_SOURCE_REMOVE;
  }
  run->interrupted = TRUE;
  console_say (&run->console, "", "listened; now the answer (Ctrl-C again: stop)");
  gst_element_send_event (run->pipeline, gst_event_new_eos ());
  return G_SOURCE_CONTINUE;
}

/* Keeps standard error for what this program says. With @everything, what all others say is there,
 * too. */
static void
open_err (gboolean everything)
{
  int fd = dup (STDERR_FILENO);
  FILE *own = fd >= 0 ? fdopen (fd, "w") : NULL;

  if (own == NULL)
    return;
  err = own;
  setvbuf (err, NULL, _IONBF, 0);
  if (!everything && g_getenv ("GST_DEBUG") == NULL && freopen ("/dev/null", "w", stderr) == NULL)
    fprintf (err, "lychee-listen: warning: /dev/null: %s\n", g_strerror (errno));
}

static gboolean
check_file (const char *path)
{
  GStatBuf info;

  if (g_stat (path, &info) != 0)
    fprintf (err, "lychee-listen: error: %s: %s\n", path, g_strerror (errno));
  else if (!S_ISREG (info.st_mode))
    fprintf (err, "lychee-listen: error: %s is not a file\n", path);
  else if (info.st_size == 0)
    fprintf (err, "lychee-listen: error: %s is empty\n", path);
  else
    return TRUE;
  return FALSE;
}

static void
add_probe (GstElement *pipeline, const char *name, const char *pad_name,
    GstPadProbeCallback callback, Run *run)
{
  g_autoptr (GstElement) element = gst_bin_get_by_name (GST_BIN (pipeline), name);
  g_autoptr (GstPad) pad = gst_element_get_static_pad (element, pad_name);

  gst_pad_add_probe (pad, GST_PAD_PROBE_TYPE_BUFFER, callback, run, NULL);
}

static GstElement *
build (const char *file, const char *prompt, int max_tokens, gboolean only_print, GError **error)
{
  static const char ears[] = "audioconvert ! audioresample ! "
                             "audio/x-raw,format=S16LE,rate=16000,channels=1 ! pocketsphinx";
  g_autofree char *quoted = file != NULL ? g_shell_quote (file) : NULL;
  g_autofree char *quoted_prompt = g_shell_quote (prompt);
  g_autofree char *description = NULL;
  GstElement *pipeline, *element;

  fprintf (err,
      "gst-launch-1.0 -q %s%s ! %s%s \\\n    ! lycheetokenizer ! lycheechunker ! lycheeindexer \\\n"
      "    ! lycheedecoder prompt=%s max-tokens=%d ! fdsink\n\n",
      file != NULL ? "filesrc location=" : "autoaudiosrc", file != NULL ? quoted : "",
      file != NULL ? "decodebin ! " : "", ears, quoted_prompt, max_tokens);
  if (only_print)
    return NULL;
  description = g_strdup_printf ("%s ! %s name=ears ! queue max-size-time=0 max-size-bytes=0 "
                                 "max-size-buffers=0 ! lycheetokenizer ! lycheechunker ! "
                                 "lycheeindexer ! lycheedecoder name=decoder ! fdsink name=output",
      file != NULL ? "filesrc name=file ! decodebin" : "autoaudiosrc", ears);
  pipeline = gst_parse_launch_full (description, NULL, GST_PARSE_FLAG_FATAL_ERRORS, error);
  if (pipeline == NULL)
    return NULL;
  element = gst_bin_get_by_name (GST_BIN (pipeline), "file");
  if (element != NULL)
    g_object_set (element, "location", file, NULL);
  gst_clear_object (&element);
  element = gst_bin_get_by_name (GST_BIN (pipeline), "decoder");
  g_object_set (element, "prompt", prompt, "max-tokens", max_tokens, NULL);
  gst_object_unref (element);
  return gst_object_ref_sink (pipeline);
}

int
main (int argc, char **argv)
{
  g_autofree char *prompt = NULL;
  int max_tokens = DEFAULT_MAX_TOKENS;
  gboolean only_print = FALSE;
  g_auto (GStrv) files = NULL;
  Run run = { .console = { .line_end = "\r\033[K" },
    .begin = GST_CLOCK_TIME_NONE,
    .terminal = isatty (STDERR_FILENO) };
  const GOptionEntry options[] = {
    { "prompt", 'p', 0, G_OPTION_ARG_FILENAME, &prompt, "What to ask (" DEFAULT_PROMPT ")",
        "TEXT" },
    { "max-tokens", 'n', 0, G_OPTION_ARG_INT, &max_tokens,
        "Longest answer, in tokens (" G_STRINGIFY (DEFAULT_MAX_TOKENS) "; 0: as fits)", "N" },
    { "print", 0, 0, G_OPTION_ARG_NONE, &only_print, "Print the pipeline and stop", NULL },
    { "verbose", 'v', 0, G_OPTION_ARG_NONE, &run.verbose, "Say more about errors", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &files, NULL, "[FILE]" },
    { NULL },
  };
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (GstBus) bus = NULL;
  guint watch;

  err = stderr;
  g_option_context_set_summary (context, "Listens to FILE, or without one to the microphone until "
                                         "Ctrl-C, and writes what a language model answers.");
  g_option_context_add_main_entries (context, options, NULL);
  g_option_context_add_group (context, gst_init_get_option_group ());
  if (!g_option_context_parse (context, &argc, &argv, &error)) {
    fprintf (err, "lychee-listen: error: %s\n", error->message);
    return 2;
  }
  if (prompt == NULL)
    prompt = g_strdup (DEFAULT_PROMPT);
  if ((files != NULL && g_strv_length (files) > 1) || max_tokens < 0 || *prompt == '\0' ||
      !g_utf8_validate (prompt, -1, NULL)) {
    fprintf (err, "lychee-listen: error: %s\n",
        max_tokens < 0 ? "--max-tokens must be 0 or more"
        : files != NULL && g_strv_length (files) > 1
            ? "one file at a time"
            : "the prompt must be UTF-8 text and not empty");
    return 2;
  }
  if (!console_has_output ("lychee-listen") || (files != NULL && !check_file (files[0])))
    return 1;
  run.file = files != NULL ? files[0] : "what is listened to";

  open_err (run.verbose);
  run.console.err = err;
  run.pipeline = build (files != NULL ? files[0] : NULL, prompt, max_tokens, only_print, &error);
  if (only_print)
    return 0;
  if (run.pipeline == NULL) {
    fprintf (err, "lychee-listen: error: %s%s\n", error->message,
        g_error_matches (error, GST_PARSE_ERROR, GST_PARSE_ERROR_NO_SUCH_ELEMENT)
            ? " (pipelines/listen installs what is missing)"
            : "");
    return 1;
  }

  g_mutex_init (&run.console.lock);
  run.loop = g_main_loop_new (NULL, FALSE);
  add_probe (run.pipeline, "ears", "sink", on_sound, &run);
  add_probe (run.pipeline, "ears", "src", on_utterance, &run);
  add_probe (run.pipeline, "output", "sink", on_answer, &run);
  bus = gst_element_get_bus (run.pipeline);
  gst_bus_set_sync_handler (bus, on_message_sync, &run, NULL);
  watch = gst_bus_add_watch (bus, on_message, &run);
  g_unix_signal_add (SIGINT, on_interrupt, &run);
  g_unix_signal_add (SIGTERM, on_interrupt, &run);
  if (files == NULL)
    fputs ("Speak. Ctrl-C ends it and asks.\n", err);

  /* Where this fails, there is an error message on the bus. */
  gst_element_set_state (run.pipeline, GST_STATE_PLAYING);
  g_main_loop_run (run.loop);
  gst_element_set_state (run.pipeline, GST_STATE_NULL);
  gst_bus_set_sync_handler (bus, NULL, NULL, NULL);
  g_source_remove (watch);

  if (run.console.answer_last != 0 && run.console.answer_last != '\n')
    fputs ("\n", stdout);
  if (run.exit_status == 0 && (run.reason != NULL || !run.answered)) {
    console_say (&run.console, "lychee-listen: error: ", "%s",
        run.reason != NULL ? run.reason : "the pipeline ended without an answer");
    run.exit_status = 1;
  }
  gst_object_unref (run.pipeline);
  g_main_loop_unref (run.loop);
  g_mutex_clear (&run.console.lock);
  g_free (run.reason);
  return run.exit_status;
}
