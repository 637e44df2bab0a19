/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Follows a file that somebody else writes, line by line, and prints a summary of what is new every
 * few minutes. Nothing here blocks: reading and answering go on side by side.
 *
 *     example-follow --interval 5 --model model.gguf meeting.txt */

#include <locale.h>
#include <string.h>

#include <glib-unix.h>
#include <lychee.h>

typedef struct {
  GMainLoop *loop;
  GCancellable *stop;
  LycheeSession *session;
  GFileInputStream *file;
  GFileMonitor *monitor;
  GString *line;      /* the beginning of one that is still being written */
  guint64 from;       /* the summary being made begins here */
  guint64 summarised; /* up to this time */
  gboolean news;      /* since then */
  gboolean answering;
  int left; /* summaries to print, or -1 */
  int max_tokens;
  int status;
} Follow;

/* Nanoseconds since the first call: the stream time of what is written now. */
static guint64
now (void)
{
  static gint64 begin;

  if (begin == 0)
    begin = g_get_monotonic_time ();
  return (guint64) (g_get_monotonic_time () - begin) * 1000;
}

static void
fail (Follow *f, const GError *error)
{
  if (!g_error_matches (error, G_IO_ERROR, G_IO_ERROR_CANCELLED)) {
    g_printerr ("example-follow: error: %s\n", error->message);
    f->status = 1;
  }
  g_main_loop_quit (f->loop);
}

static gboolean
show (const char *text, gpointer user_data)
{
  g_print ("%s", text);
  return TRUE;
}

static void
on_answer (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Follow *f = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeAnswer) answer = NULL;

  answer = lychee_session_ask_finish (f->session, result, &error);
  f->answering = FALSE;
  if (answer == NULL) {
    fail (f, error);
    return;
  }
  g_print ("\n");
  if (f->left > 0 && --f->left == 0)
    g_main_loop_quit (f->loop);
}

static void
on_flushed (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Follow *f = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (GDateTime) time = g_date_time_new_now_local ();
  g_autofree char *clock = time ? g_date_time_format (time, "%H:%M:%S") : NULL;
  g_autoptr (LycheeQuestion) question = NULL;

  if (!lychee_session_flush_finish (f->session, result, &error)) {
    fail (f, error);
    return;
  }
  g_print ("[%s] ", clock ? clock : "?");
  question = lychee_question_new ("Summarize what was said in two sentences.");
  lychee_question_set_range (question, f->from, LYCHEE_TIME_NONE);
  lychee_question_set_max_tokens (question, f->max_tokens);
  lychee_session_ask_async (f->session, question, show, NULL, NULL, f->stop, on_answer, f);
}

static gboolean
on_interval (gpointer user_data)
{
  Follow *f = user_data;

  if (!f->answering && f->news) {
    f->answering = TRUE;
    /* What comes before this one is asked is the next one's, too: nothing is left out. */
    f->from = f->summarised;
    f->summarised = now ();
    f->news = FALSE;
    lychee_session_flush_async (f->session, f->stop, on_flushed, f);
  }
  return G_SOURCE_CONTINUE;
}

static void
on_read (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Follow *f = user_data;
  g_autoptr (GError) error = NULL;

  if (!lychee_session_append_text_finish (f->session, result, &error))
    fail (f, error);
}

/* Gives the session all lines that are complete by now. */
static void
on_changed (GFileMonitor *monitor, GFile *file, GFile *other, GFileMonitorEvent event, Follow *f)
{
  char buffer[4096];
  gssize n;
  char *end;
  g_autoptr (GError) error = NULL;

  while (
      (n = g_input_stream_read (G_INPUT_STREAM (f->file), buffer, sizeof buffer, NULL, &error)) > 0)
    g_string_append_len (f->line, buffer, n);
  if (n < 0) {
    fail (f, error);
    return;
  }
  while ((end = memchr (f->line->str, '\n', f->line->len)) != NULL) {
    g_autofree char *line = g_strndup (f->line->str, end - f->line->str + 1);

    g_string_erase (f->line, 0, end - f->line->str + 1);
    f->news = TRUE;
    lychee_session_append_text_async (f->session, line, NULL, now (), now (), f->stop, on_read, f);
  }
}

static void
on_loaded (GObject *source, GAsyncResult *result, gpointer user_data)
{
  Follow *f = user_data;
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeModel) model = lychee_model_new_finish (result, &error);

  if (model == NULL) {
    fail (f, error);
    return;
  }
  /* A file may be followed for longer than the model can read: then the oldest is forgotten. */
  f->session = g_object_new (
      LYCHEE_TYPE_SESSION, "model", model, "overflow", LYCHEE_OVERFLOW_FORGET_OLDEST, NULL);
  g_signal_connect (f->monitor, "changed", G_CALLBACK (on_changed), f);
  on_changed (f->monitor, NULL, NULL, G_FILE_MONITOR_EVENT_CHANGED, f);
}

static gboolean
on_signal (gpointer user_data)
{
  Follow *f = user_data;

  g_cancellable_cancel (f->stop);
  g_main_loop_quit (f->loop);
  return G_SOURCE_CONTINUE;
}

int
main (int argc, char **argv)
{
  double interval = 5;
  int count = -1;
  g_autofree char *path = g_strdup (g_getenv ("LYCHEE_MODEL"));
  g_auto (GStrv) files = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (GFile) file = NULL;
  Follow f = { .max_tokens = 120 };
  const GOptionEntry options[] = {
    { "interval", 'i', 0, G_OPTION_ARG_DOUBLE, &interval, "Minutes between summaries (5)",
        "MINUTES" },
    { "count", 'c', 0, G_OPTION_ARG_INT, &count, "End after so many summaries", "N" },
    { "max-tokens", 'n', 0, G_OPTION_ARG_INT, &f.max_tokens, "Longest summary, in tokens (120)",
        "N" },
    { "model", 'm', 0, G_OPTION_ARG_FILENAME, &path,
        "Language model, a GGUF file (or: variable LYCHEE_MODEL)", "FILE" },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &files, NULL, "FILE" },
    { NULL },
  };
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);

  setlocale (LC_ALL, ""); /* g_print() writes in its encoding */
  g_option_context_add_main_entries (context, options, NULL);
  if (!g_option_context_parse (context, &argc, &argv, &error)) {
    g_printerr ("example-follow: error: %s\n", error->message);
    return 2;
  }
  if (path == NULL || *path == '\0' || files == NULL || g_strv_length (files) != 1 ||
      !(interval > 0) || f.max_tokens < 0) {
    g_printerr ("example-follow: error: %s\n",
        path == NULL || *path == '\0' ? "name a model: --model or LYCHEE_MODEL"
        : !(interval > 0)             ? "--interval must be more than 0"
        : f.max_tokens < 0            ? "--max-tokens must be 0 or more"
                                      : "name one file to follow; --help says more");
    return 2;
  }
  file = g_file_new_for_commandline_arg (files[0]);
  f.file = g_file_read (file, NULL, &error);
  f.monitor = f.file ? g_file_monitor_file (file, G_FILE_MONITOR_NONE, NULL, &error) : NULL;
  if (f.monitor == NULL) {
    g_printerr ("example-follow: error: %s\n", error->message);
    g_clear_object (&f.file);
    return 1;
  }
  g_file_monitor_set_rate_limit (f.monitor, 100);

  f.left = count;
  f.line = g_string_new (NULL);
  f.stop = g_cancellable_new ();
  f.loop = g_main_loop_new (NULL, FALSE);
  g_unix_signal_add (SIGINT, on_signal, &f);
  g_timeout_add ((guint) MAX (1, interval * 60000), on_interval, &f);
  lychee_model_new_async (path, f.stop, on_loaded, &f);
  g_main_loop_run (f.loop);

  /* What still runs has the last word before what it uses goes. */
  g_cancellable_cancel (f.stop);
  while (g_main_context_iteration (NULL, FALSE))
    ;
  g_main_loop_unref (f.loop);
  g_object_unref (f.stop);
  g_object_unref (f.monitor);
  g_object_unref (f.file);
  g_clear_object (&f.session);
  g_string_free (f.line, TRUE);
  return f.status;
}
