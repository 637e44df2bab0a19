/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "console.h"

#include <fcntl.h>
#include <unistd.h>

gboolean
console_has_output (const char *program)
{
  if (fcntl (STDOUT_FILENO, F_GETFD) >= 0)
    return TRUE;
  fprintf (stderr, "%s: error: standard output is closed, and the answer goes there\n", program);
  return FALSE;
}

void
console_close_line (Console *console)
{
  if (console->line_open)
    fputs (console->line_end, console->err);
  console->line_open = FALSE;
}

void
console_say (Console *console, const char *kind, const char *format, ...)
{
  va_list arguments;
  g_autofree char *text = NULL;

  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);

  g_mutex_lock (&console->lock);
  console_close_line (console);
  /* The answer may end without a newline, and shares the terminal. */
  if (console->answer_last != 0 && console->answer_last != '\n' && isatty (STDOUT_FILENO)) {
    fputc ('\n', console->err);
    console->answer_last = '\n';
  }
  fprintf (console->err, "%s%s\n", kind, g_strdelimit (text, "\n\r", ' '));
  g_mutex_unlock (&console->lock);
}

void
console_note_answer (Console *console, GstBuffer *buffer)
{
  gsize size = gst_buffer_get_size (buffer);

  if (size > 0)
    gst_buffer_extract (buffer, size - 1, &console->answer_last, 1);
}
