/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A transcript runs, recorded or live, and whoever sits at the terminal asks about it. On a
 * terminal, the bottom line is for typing and the rest scrolls above it. */

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gio/gunixinputstream.h>
#include <json-glib/json-glib.h>

#include "program.h"

#define COMMANDS "/last MINUTES QUESTION: only about the end. /cancel: stop answering. /quit."

/* A question, from when it is asked. */
typedef struct {
  char *id;
  gsize told;    /* bytes of its answer that were printed */
  gboolean over; /* it was said how it ended */
} Asked;

typedef struct {
  Program program;
  GstElement *decoder;
  double speed;      /* 0: as fast as it is read */
  gboolean terminal; /* both standard input and output are one */
  gboolean screen;   /* and it can move its cursor */
  FILE *notes;       /* where all goes that is not about a question */
  GDataInputStream *input;
  GCancellable *reading;
  gboolean quitting;
  gboolean loading; /* said so */
  gboolean ended;
  GQueue later; /* lines of a standard input that is no terminal: asked at the end */

  GMutex lock; /* of the output, and what follows */
  GCond changed;
  gboolean stopping;
  gint64 begun; /* when the first line was said, monotonic; 0: not yet */
  GstClockTime first;
  GPtrArray *asked; /* of Asked, in their order */
  guint open;       /* so many of them are not over */
} Chat;

static void
asked_free (gpointer data)
{
  g_free (((Asked *) data)->id);
  g_free (data);
}

/* Printing */

/* With the lock. */
static void G_GNUC_PRINTF (3, 0)
    print (Chat *self, FILE *where, const char *format, va_list arguments)
{
  g_autofree char *text = g_strdup_vprintf (format, arguments);
  struct winsize size;

  if (self->screen && ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row >= 4)
    printf ("\0337\033[%u;1H\n%s\0338", size.ws_row - 1u, text);
  else
    fprintf (where, "%s\n", text);
  fflush (self->screen ? stdout : where);
}

/* With the lock: a line about a question. */
static void G_GNUC_PRINTF (2, 3) say (Chat *self, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  print (self, stdout, format, arguments);
  va_end (arguments);
}

/* Any other line. Without the lock. */
static void G_GNUC_PRINTF (2, 3) note (Chat *self, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  g_mutex_lock (&self->lock);
  print (self, self->notes, format, arguments);
  g_mutex_unlock (&self->lock);
  va_end (arguments);
}

/* What the program says of errors, among the other lines. */
static void
print_line (const char *line, gpointer user_data)
{
  note (user_data, "%s", line);
}

static void
begin_screen (Chat *self)
{
  struct winsize size;

  if (!self->screen || ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 4)
    return;
  /* All rows but the last scroll; the cursor stays in the last one. */
  printf ("\033[1;%ur\033[%u;1H> ", size.ws_row - 1u, size.ws_row);
  fflush (stdout);
  self->program.console.print = print_line;
  self->program.console.user_data = self;
}

static void
end_screen (Chat *self)
{
  self->program.console.print = NULL;
  if (self->screen)
    printf ("\033[r\033[999;1H\n");
}

/* The transcript, in the streaming thread */

/* Waits until it is time for what was said at @time. FALSE: nobody wants it any more. */
static gboolean
keep_pace (Chat *self, GstClockTime time)
{
  gboolean goes_on;

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
  goes_on = !self->stopping;
  g_mutex_unlock (&self->lock);
  return goes_on;
}

static GstPadProbeReturn
on_line (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Chat *self = user_data;
  GstMapInfo map;

  GstBuffer *buffer = GST_PAD_PROBE_INFO_BUFFER (info);

  if (GST_BUFFER_PTS_IS_VALID (buffer) && !keep_pace (self, GST_BUFFER_PTS (buffer)))
    return GST_PAD_PROBE_DROP;
  if (gst_buffer_map (buffer, &map, GST_MAP_READ)) {
    g_autofree char *text = g_utf8_make_valid ((const char *) map.data, map.size);
    g_autofree char *time = program_format_time (GST_BUFFER_PTS (buffer), FALSE);

    gst_buffer_unmap (buffer, &map);
    g_strstrip (g_strdelimit (text, "\n\r", ' '));
    if (*text != '\0')
      note (self, self->screen ? "\033[2m[%s] %s\033[m" : "[%s] %s", time, text);
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

/* Answers. Their sentences come in the decoder's thread, and how they ended on the bus, which may
 * overtake the last sentence. */

/* With the lock. */
static Asked *
find_asked (Chat *self, const char *id)
{
  for (guint i = 0; i < self->asked->len; i++) {
    Asked *asked = g_ptr_array_index (self->asked, i);

    if (g_strcmp0 (asked->id, id) == 0)
      return asked;
  }
  return NULL;
}

/* With the lock: prints the next piece of an answer. */
static void
say_piece (Chat *self, Asked *asked, const char *text)
{
  g_autofree char *line = g_strdup (text);

  asked->told += strlen (text);
  if (*g_strstrip (line) != '\0')
    say (self, "%s: %s", asked->id, line);
}

static void
on_answer (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer user_data)
{
  Chat *self = user_data;
  g_autoptr (JsonParser) parser = json_parser_new ();
  GstMapInfo map;
  JsonObject *object;
  Asked *asked;
  gboolean ok;

  if (!gst_buffer_map (buffer, &map, GST_MAP_READ))
    return;
  ok = json_parser_load_from_data (parser, (const char *) map.data, map.size, NULL);
  gst_buffer_unmap (buffer, &map);
  if (!ok)
    return;
  object = json_node_get_object (json_parser_get_root (parser));
  if (!g_str_equal (json_object_get_string_member (object, "type"), "text"))
    return;
  g_mutex_lock (&self->lock);
  asked = find_asked (self, json_object_get_string_member (object, "id"));
  if (asked != NULL && !asked->over)
    say_piece (self, asked, json_object_get_string_member (object, "text"));
  g_mutex_unlock (&self->lock);
}

/* With the lock. */
static void
say_evidence (Chat *self, const GstStructure *answer)
{
  const GValue *evidence = gst_structure_get_value (answer, "evidence");

  for (guint i = 0; evidence != NULL && i < gst_value_array_get_size (evidence); i++) {
    const GstStructure *piece = gst_value_get_structure (gst_value_array_get_value (evidence, i));
    g_autofree char *text = g_strdup (gst_structure_get_string (piece, "text"));
    g_autofree char *time = NULL;
    guint64 start = GST_CLOCK_TIME_NONE;

    gst_structure_get_uint64 (piece, "start", &start);
    time = program_format_time (start, FALSE);
    say (self, "    [%s] “%s”", time, g_strstrip (g_strdelimit (text, "\n\r", ' ')));
  }
}

/* With the lock: the one line that every question ends with. */
static void
say_outcome (Chat *self, Asked *asked, const GstStructure *answer)
{
  const char *finish = gst_structure_get_string (answer, "finish");
  const char *reason = gst_structure_get_string (answer, "reason");
  g_autofree char *time = NULL;
  guint64 until = GST_CLOCK_TIME_NONE;
  guint tokens = 0, transcript = 0;
  double seconds = 0;

  asked->over = TRUE;
  self->open--;
  gst_structure_get (answer, "answer-tokens", G_TYPE_UINT, &tokens, "transcript-tokens",
      G_TYPE_UINT, &transcript, "seconds", G_TYPE_DOUBLE, &seconds, "time", G_TYPE_UINT64, &until,
      NULL);
  time = program_format_time (until, FALSE);
  if (reason != NULL)
    say (self, "    (%s not answered: %s)", asked->id, reason);
  else if (tokens == 0 && g_str_equal (finish, "cancelled"))
    say (self, "    (%s cancelled)", asked->id);
  else
    /* On a slow machine reading may be far behind what is shown. */
    say (self, "    (%s %s: %u tokens in %.1f s, from %u of transcript%s%s)", asked->id,
        g_str_equal (finish, "stop")        ? "answered"
        : g_str_equal (finish, "length")    ? "cut at --max-tokens"
        : g_str_equal (finish, "cancelled") ? "cancelled"
                                            : "stopped, for it repeated itself",
        tokens, seconds, transcript, GST_CLOCK_TIME_IS_VALID (until) ? " up to " : "",
        GST_CLOCK_TIME_IS_VALID (until) ? time : "");
}

static void
end_question (Chat *self, const GstStructure *answer)
{
  const char *text = gst_structure_get_string (answer, "text");
  Asked *asked;

  g_mutex_lock (&self->lock);
  asked = find_asked (self, gst_structure_get_string (answer, "id"));
  if (asked != NULL && !asked->over) {
    if (text != NULL && strlen (text) > asked->told)
      say_piece (self, asked, text + asked->told);
    say_evidence (self, answer);
    say_outcome (self, asked, answer);
  }
  g_mutex_unlock (&self->lock);
}

/* Questions, in the main loop */

static void
quit (Chat *self)
{
  self->quitting = TRUE;
  g_main_loop_quit (self->program.loop);
}

/* When nothing is to come any more: no input, no answer. */
static void
quit_if_done (Chat *self)
{
  guint open;

  g_mutex_lock (&self->lock);
  open = self->open;
  g_mutex_unlock (&self->lock);
  if (self->input == NULL && self->ended && open == 0)
    quit (self);
}

static void
ask (Chat *self, const char *line)
{
  GstStructure *options = gst_structure_new_empty ("ask");
  Asked *asked = g_new0 (Asked, 1);
  char *id = NULL, *rest = NULL;
  double minutes = 0;

  if (g_str_has_prefix (line, "/last ")) {
    minutes = g_ascii_strtod (line + 6, &rest);
    gst_structure_set (options, "last", G_TYPE_UINT64, (guint64) (minutes * 60 * GST_SECOND), NULL);
    line = g_strchug (rest);
  }
  g_mutex_lock (&self->lock);
  asked->id = g_strdup_printf ("%u", self->asked->len + 1);
  g_ptr_array_add (self->asked, asked);
  self->open++;
  say (self, "%s? %s", asked->id, line);
  g_mutex_unlock (&self->lock);
  gst_structure_set (options, "id", G_TYPE_STRING, asked->id, NULL);
  g_signal_emit_by_name (self->decoder, "ask", line, options, &id);
  if (id == NULL) {
    gst_structure_set (options, "finish", G_TYPE_STRING, "failed", "reason", G_TYPE_STRING,
        "the pipeline takes no questions any more", NULL);
    end_question (self, options);
  }
  gst_structure_free (options);
  g_free (id);
}

/* Whether @line, "/last ...", has a number of minutes and a question. */
static gboolean
is_last (const char *line)
{
  char *rest;
  double minutes = g_ascii_strtod (line + strlen ("/last"), &rest);

  return minutes > 0 && minutes < 1e6 && g_ascii_isspace (*rest);
}

static void
refuse (Chat *self, const char *line, const char *why)
{
  g_mutex_lock (&self->lock);
  say (self, "(“%s” was not asked%s.)", line, why);
  g_mutex_unlock (&self->lock);
}

static void
take_line (Chat *self, char *line)
{
  guint n;

  g_strstrip (line);
  if (*line == '\0')
    return;
  if (g_str_equal (line, "/quit")) {
    quit (self);
  } else if (g_str_equal (line, "/cancel")) {
    g_signal_emit_by_name (self->decoder, "cancel", NULL, &n);
    if (n == 0)
      note (self, "(There is nothing to cancel.)");
  } else if (line[0] != '/' || (g_str_has_prefix (line, "/last ") && is_last (line))) {
    ask (self, line);
  } else if (g_str_has_prefix (line, "/last") && !g_ascii_isalnum (line[5])) {
    refuse (self, line, ": /last is followed by a number of minutes and a question");
  } else {
    note (self, "(“%s” is no command. %s)", line, COMMANDS);
  }
}

static void read_line (Chat *self);

static void
on_input (GObject *stream, GAsyncResult *result, gpointer user_data)
{
  Chat *self = user_data;
  g_autofree char *bytes =
      g_data_input_stream_read_line_finish (G_DATA_INPUT_STREAM (stream), result, NULL, NULL);
  g_autofree char *line = bytes != NULL ? g_utf8_make_valid (bytes, -1) : NULL;

  if (line == NULL) {
    g_clear_object (&self->input);
    if (self->terminal)
      quit (self);
    quit_if_done (self);
    return;
  }
  if (self->screen) {
    printf ("\033[999;1H\033[2K> ");
    fflush (stdout);
  }
  if (self->terminal || self->ended)
    take_line (self, line);
  else
    g_queue_push_tail (&self->later, g_steal_pointer (&line));
  read_line (self);
}

static void
read_line (Chat *self)
{
  g_data_input_stream_read_line_async (
      self->input, G_PRIORITY_DEFAULT, self->reading, on_input, self);
}

static void
take_later_lines (Chat *self)
{
  while (!self->quitting && self->later.length > 0) {
    g_autofree char *line = g_queue_pop_head (&self->later);

    take_line (self, line);
  }
}

static gboolean
on_message (GstMessage *message, gpointer user_data)
{
  Chat *self = user_data;
  guint64 behind = 0;
  gboolean loading;

  if (program_tells_of_loading (message, &loading) && loading && !self->loading) {
    self->loading = TRUE;
    note (self, "(The model is being loaded.)");
  }
  if (GST_MESSAGE_TYPE (message) != GST_MESSAGE_ELEMENT)
    return FALSE;
  if (gst_message_has_name (message, "lychee-answer")) {
    end_question (self, gst_message_get_structure (message));
  } else if (gst_message_has_name (message, "chat-ended")) {
    self->ended = TRUE;
    if (self->program.status == 0 && program_check_words (&self->program))
      note (self, "(The transcript has ended.)");
    take_later_lines (self);
  } else if (gst_message_has_name (message, "lychee-behind")) {
    gst_structure_get_uint64 (gst_message_get_structure (message), "behind", &behind);
    note (self, "(Reading is %.0f s behind.)", behind / 1e9);
  }
  quit_if_done (self);
  return TRUE;
}

/* After the pipeline: what became of the questions that it did not come to. */
static void
say_what_is_left (Chat *self)
{
  char *line;

  for (guint i = 0; i < self->asked->len; i++) {
    Asked *asked = g_ptr_array_index (self->asked, i);

    if (!asked->over)
      say (self, "    (%s %s)", asked->id,
          self->program.failed ? "not answered: the pipeline failed" : "cancelled");
  }
  while ((line = g_queue_pop_head (&self->later)) != NULL) {
    if (*g_strstrip (line) != '\0')
      refuse (self, line, "");
    g_free (line);
  }
}

static void
stop_waiting (Chat *self)
{
  g_mutex_lock (&self->lock);
  self->stopping = TRUE;
  g_cond_broadcast (&self->changed);
  g_mutex_unlock (&self->lock);
}

static void
begin_input (Chat *self)
{
  g_autoptr (GInputStream) stream = g_unix_input_stream_new (STDIN_FILENO, FALSE);

  self->reading = g_cancellable_new ();
  self->input = g_data_input_stream_new (stream);
  read_line (self);
}

static void
end_input (Chat *self)
{
  g_cancellable_cancel (self->reading);
  while (self->input != NULL)
    g_main_context_iteration (NULL, TRUE);
  g_object_unref (self->reading);
}

static void
run (Chat *self)
{
  Program *program = &self->program;
  g_autoptr (GstElement) sink = NULL;

  /* The queue never holds up what speaks. */
  if (!program_open (program, NULL,
          "identity name=line ! lycheetokenizer ! lycheechunker detector=structure ! queue "
          "max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! lycheeindexer ! lycheedecoder "
          "name=d prompt=\"\" stream=sentence ! application/x-json ! fakesink name=sink sync=false "
          "async=false signal-handoffs=true"))
    return;
  self->decoder = program_get (program, "d");
  g_object_set (self->decoder, "max-tokens", program->max_tokens, NULL);
  sink = program_get (program, "sink");
  g_signal_connect (sink, "handoff", G_CALLBACK (on_answer), self);
  program_add_probe (program, "line", "src", GST_PAD_PROBE_TYPE_BUFFER, on_line, self);
  program_add_probe (program, "d", "sink", GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_end, self);
  begin_screen (self);
  if (self->terminal)
    note (self, "Type a question. %s", COMMANDS);
  begin_input (self);
  program_run (program);
  self->quitting = TRUE;
  stop_waiting (self);
  end_input (self);
  program_stop (program);
  say_what_is_left (self);
  end_screen (self);
  gst_object_unref (self->decoder);
}

int
main (int argc, char **argv)
{
  Chat self = { .speed = 1,
    .terminal = isatty (STDIN_FILENO) && isatty (STDOUT_FILENO),
    .screen = isatty (STDIN_FILENO) && console_is_screen (STDOUT_FILENO),
    .notes = isatty (STDOUT_FILENO) ? stdout : stderr,
    .asked = g_ptr_array_new_with_free_func (asked_free),
    .program = { .name = "lychee-chat",
        .max_tokens = 128,
        .takes_source = TRUE,
        .input_is_taken = TRUE,
        .on_message = on_message,
        .user_data = &self } };
  const GOptionEntry options[] = {
    { "speed", 's', 0, G_OPTION_ARG_DOUBLE, &self.speed,
        "So many times the speed at which it was spoken (1; 0: at once)", "X" },
    { NULL },
  };

  g_mutex_init (&self.lock);
  g_cond_init (&self.changed);
  if (program_parse (&self.program,
          "A transcript runs, and you ask about it. Where standard input is no terminal,\n"
          "its lines are asked when the transcript has ended. Standard output gets questions\n"
          "and answers; all else goes to standard error, where that is not the same terminal.",
          options, argc, argv) &&
      ((self.speed >= 0 && self.speed < 1e6) ||
          program_refuse (&self.program, "--speed must be 0 or more")) &&
      program_check (&self.program))
    run (&self);
  g_ptr_array_unref (self.asked);
  g_mutex_clear (&self.lock);
  g_cond_clear (&self.changed);
  return program_close (&self.program);
}
