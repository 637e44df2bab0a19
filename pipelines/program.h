/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "console.h"

/* What is asked where nobody says: a small model that is asked for a summary makes one up; asked
 * for what was said, it looks. */
#define PROGRAM_PROMPT "What did the speakers talk about, and what did they decide?"
/* What finds sums, dates and motions where sentences are quoted (docs/benchmarks.md). */
#define PROGRAM_MINUTES "Write the minutes of this meeting: what was decided?"
#define PROGRAM_QUOTES 16

/* How much what a model would say without the transcript counts against it (docs/benchmarks.md,
 * "Summaries"). */
#define PROGRAM_CONTRAST 0.5

/* What the programs here do alike: their options, a pipeline over a transcript, what they say of
 * what goes wrong, Ctrl-C, and the status that they end with: 0, 1 for a failure, 2 for a wrong
 * command line, 130 when interrupted. */
typedef struct {
  /* Set by the program, before all else: */
  const char *name;
  const char *default_prompt; /* NULL: there is no --prompt */
  int max_tokens;             /* the default, then the option; -1: there is no --max-tokens */
  gboolean takes_quotes;      /* --quotes */
  gboolean takes_source;      /* --source, elements that give text, instead of a file */
  const char *input;          /* what is read where no file is named; NULL: one must be */
  gboolean input_is_taken;    /* standard input is not for the transcript */
  /* (nullable) A message, in the thread that posts it, and in the main loop. TRUE: that was all. */
  gboolean (*on_posted) (GstMessage *message, gpointer user_data);
  gboolean (*on_message) (GstMessage *message, gpointer user_data);
  /* (nullable) Ctrl-C. TRUE: go on, for now. */
  gboolean (*on_interrupt) (gpointer user_data);
  gpointer user_data;

  /* The options */
  char *file; /* "-" is standard input */
  char *source, *prompt, *model, *prefill;
  double contrast;
  int quotes; /* sentences that are the answer; 0: the model writes it */
  gboolean verbose;

  Console console;
  GMainLoop *loop;
  GstElement *pipeline;
  int status;
  gboolean failed; /* an element said why */
  int chunks;      /* of the transcript that were read; atomic */
  int kept;        /* a file that keeps standard input, or -1 */
  guint watch, interrupts[2];
} Program;

/* Prints "NAME: error: ..." and makes 1 the status. */
void program_fail (Program *program, const char *format, ...) G_GNUC_PRINTF (2, 3);
/* The same for the command line, with 2. Returns FALSE. */
gboolean program_refuse (Program *program, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Reads the command line, GStreamer's options too. FALSE: there is nothing more to do. */
gboolean program_parse (
    Program *program, const char *summary, const GOptionEntry *options, int argc, char **argv);
/* Whether there is an output, and a file to read. FALSE: it was said why not. */
gboolean program_check (Program *program);
/* Makes the pipeline: @read, or else what reads a transcript from the file or the source; behind it
 * @rest. The element "source" reads the file. FALSE: it was said why not. */
gboolean program_open (Program *program, const char *read, const char *rest);
/* Prints a pipeline that answers at the end of the transcript, as a shell takes it: @reader makes
 * text of the file, or of what @without_file gives where that is none or standard input. */
void program_print (Program *program, const char *without_file, const char *reader);
/* Plays until the end, an error or Ctrl-C, and returns the status. */
int program_run (Program *program);
/* Whether @message tells that the model is being loaded from now on, or no more. */
gboolean program_tells_of_loading (GstMessage *message, gboolean *loading);
/* At the end of a transcript: FALSE, and said, where it had no words. */
gboolean program_check_words (Program *program);
/* After that, nothing of the pipeline is heard any more. */
void program_stop (Program *program);
/* Frees all, and returns the status. */
int program_close (Program *program);

/* (transfer full) */
GstElement *program_get (Program *program, const char *element);
void program_add_probe (Program *program, const char *element, const char *pad,
    GstPadProbeType type, GstPadProbeCallback callback, gpointer user_data);

/* "01:02:03", or with milliseconds as WebVTT has it; "--:--:--" where there is none. (transfer
 * full) */
char *program_format_time (GstClockTime time, gboolean milliseconds);
