/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A transcript runs, recorded or live, and whoever sits at the terminal asks about it. On a
 * terminal, the bottom line is for typing and the rest scrolls above it. */

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <glib-unix.h>
#include <json-glib/json-glib.h>

#include "program.h"

#define HELP                                                                                       \
  "Type a question. /last MINUTES QUESTION: only about the end. /cancel: stop answering. /quit."

typedef struct {
  Program program;
  GstElement *decoder;
  double speed;      /* 0: as fast as it is read */
  gboolean terminal; /* both standard input and output are one */
  guint input;       /* source id, 0: at its end */

  GMutex lock; /* of the output, and what follows */
  GCond changed;
  gboolean stopping;
  gint64 begun; /* when the first line was said, monotonic; 0: not yet */
  GstClockTime first;
  guint pending; /* questions that are not answered */
  gboolean ended;
  GPtrArray *later; /* lines of a standard input that is no terminal: asked at the end */
} Chat;

/* Printing */

static void
begin_screen (Chat *self)
{
  struct winsize size;

  if (!self->terminal || ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 4)
    return;
  /* All rows but the last scroll; the cursor stays in the last one. */
  printf ("\033[1;%ur\033[%u;1H> ", size.ws_row - 1u, size.ws_row);
  fflush (stdout);
}

static void
end_screen (Chat *self)
{
  if (self->terminal)
    printf ("\033[r\033[999;1H\n");
}

static void G_GNUC_PRINTF (2, 3) say (Chat *self, const char *format, ...)
{
  va_list arguments;
  g_autofree char *text = NULL;
  struct winsize size;

  va_start (arguments, format);
  text = g_strdup_vprintf (format, arguments);
  va_end (arguments);
  g_mutex_lock (&self->lock);
  if (self->terminal && ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row >= 4)
    printf ("\0337\033[%u;1H\n%s\0338", size.ws_row - 1u, text);
  else
    printf ("%s\n", text);
  fflush (stdout);
  g_mutex_unlock (&self->lock);
}

/* The transcript, in the streaming thread */

/* Waits until it is time for what was said at @time. */
static void
keep_pace (Chat *self, GstClockTime time)
{
  g_mutex_lock (&self->lock);
  if (self->begun == 0) {
    self->begun = g_get_monotonic_time ();
    self->first = time;
  }
  if (self->speed > 0 && time > self->first) {
    gint64 due = self->begun + (gint64) ((time - self->first) / self->speed / 1000);

    while (!self->stopping && g_cond_wait_until (&self->changed, &self->lock, due)) {
    }
  }
  g_mutex_unlock (&self->lock);
}

static GstPadProbeReturn
on_line (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Chat *self = user_data;
  GstMapInfo map;

  GstBuffer *buffer = GST_PAD_PROBE_INFO_BUFFER (info);

  if (GST_BUFFER_PTS_IS_VALID (buffer))
    keep_pace (self, GST_BUFFER_PTS (buffer));
  if (gst_buffer_map (buffer, &map, GST_MAP_READ)) {
    g_autofree char *text = g_utf8_make_valid ((const char *) map.data, map.size);
    g_autofree char *time = program_format_time (GST_BUFFER_PTS (buffer), FALSE);

    gst_buffer_unmap (buffer, &map);
    g_strstrip (g_strdelimit (text, "\n\r", ' '));
    if (*text != '\0')
      say (self, self->terminal ? "\033[2m[%s] %s\033[m" : "[%s] %s", time, text);
  }
  return GST_PAD_PROBE_OK;
}

/* The transcript has ended and been read, but questions have not. */
static GstPadProbeReturn
on_end (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Chat *self = user_data;
  GstObject *pipeline = GST_OBJECT (self->program.pipeline);

  if (GST_EVENT_TYPE (GST_PAD_PROBE_INFO_EVENT (info)) != GST_EVENT_EOS)
    return GST_PAD_PROBE_OK;
  gst_element_post_message (self->program.pipeline,
      gst_message_new_element (pipeline, gst_structure_new_empty ("chat-ended")));
  return GST_PAD_PROBE_DROP;
}

/* Answers, in the decoder's thread: a line of JSON for each sentence */

static void
say_evidence (Chat *self, JsonObject *answer)
{
  JsonArray *evidence = json_object_get_array_member (answer, "evidence");

  for (guint i = 0; i < json_array_get_length (evidence); i++) {
    JsonObject *piece = json_array_get_object_element (evidence, i);
    g_autofree char *text = g_strdup (json_object_get_string_member (piece, "text"));
    g_autofree char *time =
        program_format_time (json_object_get_null_member (piece, "start")
                                 ? GST_CLOCK_TIME_NONE
                                 : (guint64) json_object_get_int_member (piece, "start"),
            FALSE);

    say (self, "    [%s] “%s”", time, g_strstrip (g_strdelimit (text, "\n\r", ' ')));
  }
}

static void
on_answer (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer user_data)
{
  Chat *self = user_data;
  g_autoptr (JsonParser) parser = json_parser_new ();
  GstMapInfo map;
  JsonObject *object;
  const char *id, *finish;
  gboolean ok;

  if (!gst_buffer_map (buffer, &map, GST_MAP_READ))
    return;
  ok = json_parser_load_from_data (parser, (const char *) map.data, map.size, NULL);
  gst_buffer_unmap (buffer, &map);
  if (!ok)
    return;
  object = json_node_get_object (json_parser_get_root (parser));
  id = json_object_get_string_member (object, "id");
  if (g_str_equal (json_object_get_string_member (object, "type"), "text")) {
    g_autofree char *text = g_strdup (json_object_get_string_member (object, "text"));

    if (*g_strstrip (text) != '\0')
      say (self, "%s: %s", id, text);
    return;
  }
  finish = json_object_get_string_member (object, "finish");
  if (!json_object_get_null_member (object, "reason"))
    say (self, "%s: (%s)", id, json_object_get_string_member (object, "reason"));
  else if (!g_str_equal (finish, "stop"))
    say (self, "%s: (%s)", id, g_str_equal (finish, "length") ? "cut at --max-tokens" : finish);
  say_evidence (self, object);
  say (self, "    %" G_GINT64_FORMAT " tokens in %.1f s, from %" G_GINT64_FORMAT " of transcript",
      json_object_get_int_member (object, "answer-tokens"),
      json_object_get_double_member (object, "seconds"),
      json_object_get_int_member (object, "transcript-tokens"));
}

/* Questions, in the main loop */

/* When nothing is to come any more: no input, no answer. */
static void
quit_if_done (Chat *self)
{
  if (self->input == 0 && self->ended && self->pending == 0)
    g_main_loop_quit (self->program.loop);
}

static void
ask (Chat *self, const char *line)
{
  GstStructure *options = NULL;
  char *id = NULL, *rest = NULL;

  if (g_str_has_prefix (line, "/last ")) {
    double minutes = g_ascii_strtod (line + 6, &rest);

    if (!(minutes > 0 && minutes < 1e6) || *g_strchug (rest) == '\0') {
      say (self, HELP);
      return;
    }
    options = gst_structure_new (
        "ask", "last", G_TYPE_UINT64, (guint64) (minutes * 60 * GST_SECOND), NULL);
    line = rest;
  }
  self->pending++;
  g_signal_emit_by_name (self->decoder, "ask", line, options, &id);
  if (id != NULL)
    say (self, "%s? %s", id, line);
  else
    self->pending--;
  g_clear_pointer (&options, gst_structure_free);
  g_free (id);
}

static void
take_line (Chat *self, char *line)
{
  guint n;

  g_strstrip (line);
  if (*line == '\0')
    return;
  if (g_str_equal (line, "/quit"))
    g_main_loop_quit (self->program.loop);
  else if (g_str_equal (line, "/cancel"))
    g_signal_emit_by_name (self->decoder, "cancel", NULL, &n);
  else if (line[0] != '/' || g_str_has_prefix (line, "/last "))
    ask (self, line);
  else
    say (self, HELP);
}

static gboolean
on_input (GIOChannel *channel, GIOCondition condition, gpointer user_data)
{
  Chat *self = user_data;
  g_autofree char *line = NULL;
  GIOStatus status = g_io_channel_read_line (channel, &line, NULL, NULL, NULL);

  if (status == G_IO_STATUS_AGAIN)
    return G_SOURCE_CONTINUE;
  if (status != G_IO_STATUS_NORMAL) {
    self->input = 0;
    if (self->terminal)
      g_main_loop_quit (self->program.loop);
    quit_if_done (self);
    return G_SOURCE_REMOVE;
  }
  if (self->terminal) {
    printf ("\033[999;1H\033[2K> ");
    fflush (stdout);
  }
  if (self->terminal || self->ended)
    take_line (self, line);
  else
    g_ptr_array_add (self->later, g_steal_pointer (&line));
  return G_SOURCE_CONTINUE;
}

static void
on_message (GstMessage *message, gpointer user_data)
{
  Chat *self = user_data;
  guint64 behind = 0;

  if (gst_message_has_name (message, "lychee-answer")) {
    self->pending -= self->pending > 0;
  } else if (gst_message_has_name (message, "chat-ended")) {
    self->ended = TRUE;
    say (self, "(The transcript has ended.)");
    for (guint i = 0; i < self->later->len; i++)
      take_line (self, g_ptr_array_index (self->later, i));
  } else if (gst_message_has_name (message, "lychee-behind")) {
    gst_structure_get_uint64 (gst_message_get_structure (message), "behind", &behind);
    say (self, "(Reading is %.0f s behind.)", behind / 1e9);
  }
  quit_if_done (self);
}

static void
stop_waiting (Chat *self)
{
  g_mutex_lock (&self->lock);
  self->stopping = TRUE;
  g_cond_broadcast (&self->changed);
  g_mutex_unlock (&self->lock);
}

static int
run (Chat *self, const char *file, const char *source, int max_tokens)
{
  GIOChannel *channel = g_io_channel_unix_new (STDIN_FILENO);
  g_autoptr (GstElement) sink = NULL;

  /* The queue never holds up what speaks. */
  if (program_open (&self->program, file, source,
          "identity name=line ! lycheetokenizer ! lycheechunker detector=structure ! queue "
          "max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! lycheeindexer ! lycheedecoder "
          "name=d prompt=\"\" stream=sentence ! application/x-json ! fakesink name=sink sync=false "
          "async=false signal-handoffs=true")) {
    self->decoder = program_get (&self->program, "d");
    g_object_set (self->decoder, "max-tokens", max_tokens, NULL);
    sink = program_get (&self->program, "sink");
    g_signal_connect (sink, "handoff", G_CALLBACK (on_answer), self);
    program_add_probe (&self->program, "line", "src", GST_PAD_PROBE_TYPE_BUFFER, on_line, self);
    program_add_probe (
        &self->program, "d", "sink", GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_end, self);
    begin_screen (self);
    say (self, HELP);
    self->input = g_io_add_watch (channel, G_IO_IN | G_IO_HUP | G_IO_ERR, on_input, self);
    program_run (&self->program);
    stop_waiting (self);
    program_close (&self->program);
    end_screen (self);
    if (self->input != 0)
      g_source_remove (self->input);
    gst_object_unref (self->decoder);
  }
  g_io_channel_unref (channel);
  return self->program.status;
}

int
main (int argc, char **argv)
{
  Chat self = { .program = { .name = "lychee-chat", .on_message = on_message }, .speed = 1 };
  g_autofree char *source = NULL;
  g_auto (GStrv) files = NULL;
  int max_tokens = 128;
  const GOptionEntry options[] = {
    { "speed", 's', 0, G_OPTION_ARG_DOUBLE, &self.speed,
        "So many times the speed at which it was spoken (1; 0: at once)", "X" },
    { "source", 0, 0, G_OPTION_ARG_STRING, &source,
        "Instead of FILE: elements that give text, such as a microphone and a speech recogniser",
        "PIPELINE" },
    { "max-tokens", 'n', 0, G_OPTION_ARG_INT, &max_tokens, "Longest answer, in tokens (128)", "N" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &files, NULL, "FILE" },
    { NULL },
  };
  guint n_files;

  if (!program_parse (&self.program,
          "A transcript runs, and you ask about it. Where standard input is no terminal, its lines "
          "are asked when the transcript has ended.",
          options, &argc, &argv))
    return 2;
  n_files = files != NULL ? g_strv_length (files) : 0;
  if (n_files + (source != NULL) != 1) {
    program_fail (&self.program, "name one transcript file, or a --source");
    return 2;
  }
  if (!(self.speed >= 0 && self.speed < 1e6) || max_tokens < 0) {
    program_fail (&self.program, "--speed and --max-tokens must be 0 or more");
    return 2;
  }
  self.terminal = isatty (STDIN_FILENO) && isatty (STDOUT_FILENO);
  self.later = g_ptr_array_new_with_free_func (g_free);
  self.program.user_data = &self;
  g_mutex_init (&self.lock);
  g_cond_init (&self.changed);
  run (&self, n_files > 0 ? files[0] : NULL, source, max_tokens);
  g_ptr_array_unref (self.later);
  g_mutex_clear (&self.lock);
  g_cond_clear (&self.changed);
  return self.program.status;
}
