/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "program.h"

#include "console.h"

#include <signal.h>
#include <stdio.h>

#include <glib-unix.h>

void
program_fail (Program *program, const char *format, ...)
{
  va_list arguments;
  g_autofree char *text = NULL;

  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  fprintf (stderr, "%s: error: %s\n", program->name, g_strdelimit (text, "\n\r", ' '));
  program->status = 1;
}

gboolean
program_parse (
    Program *program, const char *summary, const GOptionEntry *options, int *argc, char ***argv)
{
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);
  g_autoptr (GError) error = NULL;

  g_option_context_set_summary (context, summary);
  g_option_context_add_main_entries (context, options, NULL);
  g_option_context_add_group (context, gst_init_get_option_group ());
  if (g_option_context_parse (context, argc, argv, &error))
    return TRUE;
  program_fail (program, "%s", error->message);
  return FALSE;
}

static gboolean
on_bus (GstBus *bus, GstMessage *message, gpointer user_data)
{
  Program *program = user_data;
  g_autoptr (GError) error = NULL;

  switch (GST_MESSAGE_TYPE (message)) {
  case GST_MESSAGE_ERROR:
    /* What follows the first, such as that the stream stopped, comes of it. */
    if (program->failed)
      break;
    program->failed = TRUE;
    gst_message_parse_error (message, &error, NULL);
    program_fail (program, "%s: %s", GST_MESSAGE_SRC_NAME (message), error->message);
    g_main_loop_quit (program->loop);
    break;
  case GST_MESSAGE_WARNING:
    gst_message_parse_warning (message, &error, NULL);
    fprintf (stderr, "%s: warning: %s: %s\n", program->name, GST_MESSAGE_SRC_NAME (message),
        error->message);
    break;
  case GST_MESSAGE_ELEMENT:
    if (program->on_message != NULL)
      program->on_message (message, program->user_data);
    break;
  case GST_MESSAGE_EOS:
    g_main_loop_quit (program->loop);
    break;
  default:
    break;
  }
  return G_SOURCE_CONTINUE;
}

static gboolean
on_interrupt (gpointer user_data)
{
  Program *program = user_data;

  program->status = 130;
  g_main_loop_quit (program->loop);
  return G_SOURCE_CONTINUE;
}

gboolean
program_open (Program *program, const char *file, const char *source, const char *rest)
{
  g_autofree char *description = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (GstBus) bus = NULL;

  if (!console_has_output (program->name)) {
    program->status = 1;
    return FALSE;
  }
  if (file != NULL && !g_file_test (file, G_FILE_TEST_IS_REGULAR)) {
    program_fail (program, "%s: %s", file,
        g_file_test (file, G_FILE_TEST_EXISTS) ? "not a file" : "no such file");
    return FALSE;
  }
  /* What speaks does not wait, while the model is being loaded for one. */
  description =
      file != NULL
          ? g_strconcat ("filesrc name=source ! lycheetranscriptparse ! ", rest, NULL)
          : g_strconcat (source, " ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! ",
                rest, NULL);
  program->pipeline =
      gst_parse_launch_full (description, NULL, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  if (program->pipeline == NULL) {
    program_fail (program, "%s%s", error->message,
        g_error_matches (error, GST_PARSE_ERROR, GST_PARSE_ERROR_NO_SUCH_ELEMENT)
            ? " (is the plugin's folder in GST_PLUGIN_PATH?)"
            : "");
    return FALSE;
  }
  gst_object_ref_sink (program->pipeline);
  if (file != NULL) {
    GstElement *element = program_get (program, "source");

    g_object_set (element, "location", file, NULL);
    gst_object_unref (element);
  }
  program->loop = g_main_loop_new (NULL, FALSE);
  bus = gst_element_get_bus (program->pipeline);
  program->watch = gst_bus_add_watch (bus, on_bus, program);
  program->interrupts[0] = g_unix_signal_add (SIGINT, on_interrupt, program);
  program->interrupts[1] = g_unix_signal_add (SIGTERM, on_interrupt, program);
  return TRUE;
}

int
program_run (Program *program)
{
  /* Where this fails, there is an error message on the bus. */
  gst_element_set_state (program->pipeline, GST_STATE_PLAYING);
  g_main_loop_run (program->loop);
  return program->status;
}

void
program_close (Program *program)
{
  if (program->pipeline == NULL)
    return;
  gst_element_set_state (program->pipeline, GST_STATE_NULL);
  g_source_remove (program->watch);
  g_source_remove (program->interrupts[0]);
  g_source_remove (program->interrupts[1]);
  g_main_loop_unref (program->loop);
  gst_clear_object (&program->pipeline);
}

GstElement *
program_get (Program *program, const char *element)
{
  return gst_bin_get_by_name (GST_BIN (program->pipeline), element);
}

void
program_add_probe (Program *program, const char *element, const char *pad, GstPadProbeType type,
    GstPadProbeCallback callback, gpointer user_data)
{
  GstElement *of = program_get (program, element);
  GstPad *at = gst_element_get_static_pad (of, pad);

  gst_pad_add_probe (at, type, callback, user_data, NULL);
  gst_object_unref (at);
  gst_object_unref (of);
}

char *
program_format_time (GstClockTime time, gboolean milliseconds)
{
  guint64 seconds = time / GST_SECOND;

  if (!GST_CLOCK_TIME_IS_VALID (time))
    return g_strdup ("--:--:--");
  if (milliseconds)
    return g_strdup_printf ("%02u:%02u:%02u.%03u", (guint) (seconds / 3600),
        (guint) (seconds / 60 % 60), (guint) (seconds % 60),
        (guint) (time % GST_SECOND / GST_MSECOND));
  return g_strdup_printf ("%02u:%02u:%02u", (guint) (seconds / 3600), (guint) (seconds / 60 % 60),
      (guint) (seconds % 60));
}
