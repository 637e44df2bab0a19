/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

/* What the programs here do alike: a pipeline over a transcript, errors in one line, Ctrl-C. */
typedef struct {
  const char *name; /* of the program */
  GMainLoop *loop;
  GstElement *pipeline;
  int status;      /* to exit with */
  gboolean failed; /* an element said why */
  guint watch, interrupts[2];
  /* In the main loop: an element message. (nullable) */
  void (*on_message) (GstMessage *message, gpointer user_data);
  gpointer user_data;
} Program;

/* Prints "NAME: error: ..." and makes it the exit status. */
void program_fail (Program *program, const char *format, ...) G_GNUC_PRINTF (2, 3);

/* Reads the command line, GStreamer's options too. FALSE: it was said what is wrong with it. */
gboolean program_parse (
    Program *program, const char *summary, const GOptionEntry *options, int *argc, char ***argv);
/* Makes the pipeline: @file, or else @source (a launch line that gives text), and behind it @rest.
 * The element "source" reads the file. FALSE: it was said why not. */
gboolean program_open (Program *program, const char *file, const char *source, const char *rest);
/* Plays until the end, an error or Ctrl-C, and returns the exit status. */
int program_run (Program *program);
void program_close (Program *program);

/* (transfer full) */
GstElement *program_get (Program *program, const char *element);
void program_add_probe (Program *program, const char *element, const char *pad,
    GstPadProbeType type, GstPadProbeCallback callback, gpointer user_data);

/* "01:02:03", or with milliseconds as WebVTT has it; "--:--:--" where there is none. (transfer
 * full) */
char *program_format_time (GstClockTime time, gboolean milliseconds);
