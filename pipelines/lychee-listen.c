/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Listens to a microphone or an audio file, and answers a question about what was said when it
 * ends. Standard output gets the answer only; what is heard goes to standard error as it is
 * recognised. pipelines/listen sets everything up and starts this. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

/* From sound to text. */
#define EARS                                                                                       \
  "audioconvert ! audioresample ! audio/x-raw,format=S16LE,rate=16000,channels=1 ! pocketsphinx"
/* What pocketsphinx hears a word of before it has a first guess. */
#define GUESS_DELAY (200 * GST_MSECOND)

typedef struct {
  Program program; /* its console's lock is for what follows, too: streaming threads change it */
  gboolean interrupted;
  gboolean answered;
  char *reason; /* why there is no answer */
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

  g_mutex_lock (&run->program.console.lock);
  if (GST_BUFFER_PTS_IS_VALID (buffer))
    run->heard = GST_BUFFER_PTS (buffer) +
                 (GST_BUFFER_DURATION_IS_VALID (buffer) ? GST_BUFFER_DURATION (buffer) : 0);
  g_mutex_unlock (&run->program.console.lock);
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
  g_mutex_lock (&run->program.console.lock);
  if (run->begin == GST_CLOCK_TIME_NONE)
    run->begin = run->end = run->heard;
  if (!GST_BUFFER_PTS_IS_VALID (buffer)) {
    GST_BUFFER_PTS (buffer) = run->begin;
    GST_BUFFER_DURATION (buffer) = run->end - run->begin;
  }
  console_close_line (&run->program.console);
  fprintf (run->program.console.err, "[%u:%02u] %s\n", (guint) (run->begin / GST_SECOND / 60),
      (guint) (run->begin / GST_SECOND % 60), g_strstrip (text));
  run->begin = GST_CLOCK_TIME_NONE;
  g_mutex_unlock (&run->program.console.lock);
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
  g_mutex_lock (&run->program.console.lock);
  if (run->begin == GST_CLOCK_TIME_NONE)
    run->begin = run->heard > GUESS_DELAY ? run->heard - GUESS_DELAY : 0;
  run->end = run->heard;
  if (run->terminal) {
    fprintf (run->program.console.err, "\r... %s\033[K", text);
    run->program.console.line_open = TRUE;
  }
  g_mutex_unlock (&run->program.console.lock);
}

static gboolean
on_posted (GstMessage *message, gpointer user_data)
{
  if (!gst_message_has_name (message, "pocketsphinx"))
    return FALSE;
  note_guess (user_data, gst_message_get_structure (message));
  return TRUE;
}

static GstPadProbeReturn
on_answer (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Run *run = user_data;

  g_mutex_lock (&run->program.console.lock);
  if (run->program.console.answer_last == 0)
    fputc ('\n', run->program.console.err);
  console_note_answer (&run->program.console, GST_PAD_PROBE_INFO_BUFFER (info));
  g_mutex_unlock (&run->program.console.lock);
  return GST_PAD_PROBE_OK;
}

static gboolean
on_message (GstMessage *message, gpointer user_data)
{
  Run *run = user_data;
  g_autoptr (GError) error = NULL;

  if (gst_message_has_name (message, "lychee-answer")) {
    g_free (run->reason);
    run->reason =
        g_strdup (gst_structure_get_string (gst_message_get_structure (message), "reason"));
    run->answered = TRUE;
    return TRUE;
  }
  if (GST_MESSAGE_TYPE (message) != GST_MESSAGE_WARNING)
    return FALSE;
  gst_message_parse_warning (message, &error, NULL);
  /* What waits for sound would wait for ever. */
  if (!g_error_matches (error, GST_PARSE_ERROR, GST_PARSE_ERROR_DELAYED_LINK))
    return FALSE;
  program_fail (&run->program, "%s: there is no sound in it", run->program.file);
  g_main_loop_quit (run->program.loop);
  return TRUE;
}

/* The first time ends the sound, and what was heard is asked about; the second ends the program. */
static gboolean
on_interrupt (gpointer user_data)
{
  Run *run = user_data;

  if (run->interrupted)
    return FALSE;
  run->interrupted = TRUE;
  console_say (&run->program.console, "", "listened; now the answer (Ctrl-C again: stop)");
  gst_element_send_event (run->program.pipeline, gst_event_new_eos ());
  return TRUE;
}

/* The recogniser writes much to standard error, where people want to see what this program says:
 * that gets a stream of its own. With --verbose, what all others say is there, too. */
static void
open_err (Program *program)
{
  int fd = dup (STDERR_FILENO);
  FILE *own = fd >= 0 ? fdopen (fd, "w") : NULL;

  if (own == NULL)
    return;
  setvbuf (own, NULL, _IONBF, 0);
  program->console.err = own;
  if (!program->verbose && g_getenv ("GST_DEBUG") == NULL &&
      freopen ("/dev/null", "w", stderr) == NULL)
    console_say (
        &program->console, "lychee-listen: warning: ", "/dev/null: %s", g_strerror (errno));
}

static void
listen_and_answer (Run *run)
{
  Program *program = &run->program;
  g_autoptr (GstElement) decoder = NULL;

  if (!program_open (program,
          program->file != NULL ? "filesrc name=source ! decodebin" : "autoaudiosrc",
          EARS " name=ears ! queue max-size-time=0 max-size-bytes=0 max-size-buffers=0"
               " ! lycheetokenizer ! lycheechunker ! lycheeindexer ! lycheedecoder name=decoder"
               " ! fdsink name=output"))
    return;
  decoder = program_get (program, "decoder");
  g_object_set (decoder, "prompt", program->prompt, "max-tokens", program->max_tokens, "quotes",
      program->quotes, NULL);
  program_add_probe (program, "ears", "sink", GST_PAD_PROBE_TYPE_BUFFER, on_sound, run);
  program_add_probe (program, "ears", "src", GST_PAD_PROBE_TYPE_BUFFER, on_utterance, run);
  program_add_probe (program, "output", "sink", GST_PAD_PROBE_TYPE_BUFFER, on_answer, run);
  if (program->file == NULL)
    console_say (&program->console, "", "Speak. Ctrl-C ends it and asks.");
  program_run (program);
  program_stop (program);
  if (!console_end_answer (&program->console) && program->status == 0)
    program_fail (program, "standard output: %s", g_strerror (errno));
  if (program->status == 0 && (run->reason != NULL || !run->answered))
    program_fail (
        program, "%s", run->reason != NULL ? run->reason : "the pipeline ended without an answer");
}

int
main (int argc, char **argv)
{
  gboolean only_print = FALSE;
  Run run = { .begin = GST_CLOCK_TIME_NONE,
    .terminal = console_is_screen (STDERR_FILENO),
    .program = { .name = "lychee-listen",
        .default_prompt = PROGRAM_PROMPT,
        .takes_quotes = TRUE,
        .max_tokens = 256,
        .input = "the microphone",
        .console = { .line_end = "\r\033[K" },
        .on_posted = on_posted,
        .on_message = on_message,
        .on_interrupt = on_interrupt,
        .user_data = &run } };
  const GOptionEntry options[] = {
    { "print", 0, 0, G_OPTION_ARG_NONE, &only_print, "Print the pipeline and stop", NULL },
    { NULL },
  };

  if (program_parse (&run.program,
          "Listens to FILE, a recording, or without one to the microphone until Ctrl-C, and "
          "writes\n"
          "what matters of what was said, or with --prompt what a language model answers.",
          options, argc, argv) &&
      program_check (&run.program)) {
    program_print (
        &run.program, "autoaudiosrc", run.program.file != NULL ? "decodebin ! " EARS : EARS);
    if (!only_print) {
      open_err (&run.program);
      listen_and_answer (&run);
    }
  }
  g_free (run.reason);
  return program_close (&run.program);
}
