/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "console.h"

#include <unistd.h>

void
console_close_line (Console *console)
{
  if (console->line_open)
    fputs (console->line_end, console->err);
  console->line_open = FALSE;
}

void
console_say_args (Console *console, const char *kind, const char *format, va_list arguments)
{
  g_autofree char *text = g_strdup_vprintf (format, arguments);
  g_autofree char *line = g_strconcat (kind, g_strdelimit (text, "\n\r", ' '), NULL);

  g_mutex_lock (&console->lock);
  console_close_line (console);
  /* The answer may end without a newline, and shares the terminal. */
  if (console->answer_last != 0 && console->answer_last != '\n' && isatty (STDOUT_FILENO)) {
    fputc ('\n', console->err);
    console->answer_last = '\n';
  }
  if (console->print != NULL)
    console->print (line, console->user_data);
  else
    fprintf (console->err, "%s\n", line);
  g_mutex_unlock (&console->lock);
}

void
console_say (Console *console, const char *kind, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  console_say_args (console, kind, format, arguments);
  va_end (arguments);
}

gboolean
console_is_screen (int fd)
{
  const char *kind = g_getenv ("TERM");

  return isatty (fd) && kind != NULL && *kind != '\0' && !g_str_equal (kind, "dumb");
}

void
console_note_answer (Console *console, GstBuffer *buffer)
{
  gsize size = gst_buffer_get_size (buffer);

  if (size > 0)
    gst_buffer_extract (buffer, size - 1, &console->answer_last, 1);
}

gboolean
console_end_answer (Console *console)
{
  if (console->answer_last == 0 || console->answer_last == '\n')
    return TRUE;
  console->answer_last = '\n';
  return fputc ('\n', stdout) != EOF && fflush (stdout) == 0;
}
