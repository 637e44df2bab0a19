/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdio.h>

#include <gst/gst.h>

/* What a program says beside an answer, which a sink writes to standard output: both may be the
 * same terminal. Any thread may say something. */
typedef struct {
  FILE *err;
  /* (nullable) Prints a line another way than to @err. */
  void (*print) (const char *line, gpointer user_data);
  gpointer user_data;
  const char *line_end; /* what ends an unfinished line, or takes it away */
  GMutex lock;          /* for what follows */
  gboolean line_open;   /* the terminal shows an unfinished line */
  char answer_last;     /* last byte of the answer, 0 before the first */
} Console;

/* Prints @kind and the text as one line. Names in it need not be UTF-8: it is printed as it is. */
void console_say (Console *console, const char *kind, const char *format, ...) G_GNUC_PRINTF (3, 4);
void console_say_args (Console *console, const char *kind, const char *format, va_list arguments)
    G_GNUC_PRINTF (3, 0);
/* Ends an unfinished line, so that what comes next starts its own. Call with the lock held. */
void console_close_line (Console *console);
/* Whether @fd is a terminal that can move its cursor: TERM=dumb says that it cannot. */
gboolean console_is_screen (int fd);
/* Notes a buffer of the answer. Call with the lock held. */
void console_note_answer (Console *console, GstBuffer *buffer);
/* When all is said: standard output ends in a newline whatever the model said. FALSE: it could not
 * be written; errno says why. */
gboolean console_end_answer (Console *console);
