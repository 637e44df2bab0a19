/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <gio/gunixinputstream.h>
#include <gio/gunixoutputstream.h>
#include <glib-unix.h>
#include <glib/gstdio.h>

static void G_GNUC_PRINTF (3, 0)
    say_error (Program *program, int status, const char *format, va_list arguments)
{
  g_autofree char *kind = g_strconcat (program->name, ": error: ", NULL);

  console_say_args (&program->console, kind, format, arguments);
  program->status = status;
}

void
program_fail (Program *program, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  say_error (program, 1, format, arguments);
  va_end (arguments);
}

gboolean
program_refuse (Program *program, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  say_error (program, 2, format, arguments);
  va_end (arguments);
  return FALSE;
}

/* The command line */

static gboolean
take_files (Program *program, char **files)
{
  guint n = files != NULL ? g_strv_length (files) : 0;

  if (n > 1)
    return program_refuse (
        program, "one transcript at a time, and not “%s” and “%s”", files[0], files[1]);
  if (n == 1 && program->source != NULL)
    return program_refuse (program, "name a file or a --source, and not both");
  if (n == 0 && program->source == NULL && program->input == NULL)
    return program_refuse (program, "name a transcript file%s; --help says more",
        program->takes_source ? ", or a --source" : "");
  if (n == 1 && program->input_is_taken && g_str_equal (files[0], "-"))
    return program_refuse (program, "standard input is for questions: name a transcript file");
  program->file = n == 1 ? g_strdup (files[0]) : NULL;
  return TRUE;
}

static gboolean
take_question (Program *program, gboolean limited)
{
  if (program->quotes < -1)
    return program_refuse (program, "--quotes must be 0 or more");
  if (program->quotes == -1)
    program->quotes = program->takes_quotes && program->prompt == NULL ? PROGRAM_QUOTES : 0;
  if (program->prompt == NULL)
    program->prompt = g_strdup (program->quotes > 0 ? PROGRAM_MINUTES : program->default_prompt);
  if (program->prompt != NULL &&
      (*program->prompt == '\0' || !g_utf8_validate (program->prompt, -1, NULL)))
    return program_refuse (program, "--prompt must be UTF-8 text and not empty");
  if (limited && program->max_tokens < 0)
    return program_refuse (program, "--max-tokens must be 0 or more");
  return TRUE;
}

gboolean
program_parse (
    Program *program, const char *summary, const GOptionEntry *options, int argc, char **argv)
{
  g_autoptr (GOptionContext) context = g_option_context_new (NULL);
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) files = NULL;
  gboolean limited = program->max_tokens >= 0, only_version = FALSE;
  g_autofree char *question =
      program->takes_quotes
          ? g_strdup_printf (
                "Without --prompt it asks: %s\nand quotes; with --quotes 0 it asks: %s",
                PROGRAM_MINUTES, program->default_prompt)
          : g_strdup_printf ("Without --prompt it asks: %s", program->default_prompt);
  g_autofree char *how_long =
      g_strdup_printf ("Longest answer, in tokens (%d; 0: as fits)", program->max_tokens);
  /* The prompt is taken as it is, like a file's name: it is UTF-8 in any locale. */
  const GOptionEntry asking[] = {
    { "prompt", 'p', 0, G_OPTION_ARG_FILENAME, &program->prompt, "What to ask", "TEXT" },
    { NULL },
  };
  const GOptionEntry quoting[] = {
    { "quotes", 'q', 0, G_OPTION_ARG_INT, &program->quotes,
        "Quote so many sentences (" G_STRINGIFY (
            PROGRAM_QUOTES) "; to a question of your own, none)",
        "N" },
    { NULL },
  };
  const GOptionEntry limit[] = {
    { "max-tokens", 'n', 0, G_OPTION_ARG_INT, &program->max_tokens, how_long, "N" },
    { NULL },
  };
  const GOptionEntry source[] = {
    { "source", 0, 0, G_OPTION_ARG_STRING, &program->source,
        "Instead of FILE: elements that give text", "PIPELINE" },
    { NULL },
  };
  const GOptionEntry common[] = {
    { "model", 'm', 0, G_OPTION_ARG_FILENAME, &program->model,
        "Language model, a GGUF file (or: variable LYCHEE_MODEL)", "FILE" },
    { "prefill", 0, 0, G_OPTION_ARG_STRING, &program->prefill,
        "How to read the transcript: sparse (default) or dense", "MODE" },
    { "contrast", 0, 0, G_OPTION_ARG_DOUBLE, &program->contrast,
        "How closely answers keep to it, 0 to 10 (" G_STRINGIFY (
            PROGRAM_CONTRAST) "; 0: twice as fast)",
        "X" },
    { "verbose", 'v', 0, G_OPTION_ARG_NONE, &program->verbose, "Say more about errors", NULL },
    { "version", 0, 0, G_OPTION_ARG_NONE, &only_version, "Say which version this is", NULL },
    { G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &files, NULL,
        program->input != NULL ? "[FILE]" : "FILE" },
    { NULL },
  };

  setlocale (LC_CTYPE, ""); /* --help is written in its encoding */
  program->console.err = stderr;
  if (program->console.line_end == NULL)
    program->console.line_end = "\n";
  program->kept = -1;
  program->contrast = PROGRAM_CONTRAST;
  program->quotes = -1;
  g_mutex_init (&program->console.lock);
  g_option_context_set_summary (context, summary);
  if (options != NULL)
    g_option_context_add_main_entries (context, options, NULL);
  if (program->default_prompt != NULL) {
    g_option_context_set_description (context, question);
    g_option_context_add_main_entries (context, asking, NULL);
  }
  if (program->takes_quotes)
    g_option_context_add_main_entries (context, quoting, NULL);
  if (limited)
    g_option_context_add_main_entries (context, limit, NULL);
  if (program->takes_source)
    g_option_context_add_main_entries (context, source, NULL);
  g_option_context_add_main_entries (context, common, NULL);
  g_option_context_add_group (context, gst_init_get_option_group ());
  if (!g_option_context_parse (context, &argc, &argv, &error))
    return program_refuse (program, "%s", error->message);
  if (only_version) {
    printf ("%s %s\n", program->name, PACKAGE_VERSION);
    return FALSE;
  }
  if (program->prefill == NULL)
    program->prefill = g_strdup ("sparse");
  if (!g_str_equal (program->prefill, "sparse") && !g_str_equal (program->prefill, "dense"))
    return program_refuse (program, "--prefill must be sparse or dense");
  if (!(program->contrast >= 0 && program->contrast <= 10))
    return program_refuse (program, "--contrast must be 0 to 10");
  return take_files (program, files) && take_question (program, limited);
}

/* Why @path cannot be read, or NULL. */
static const char *
find_fault (const char *path)
{
  GStatBuf info;

  if (g_stat (path, &info) != 0)
    return errno == ENOENT ? "no such file" : g_strerror (errno);
  if (!S_ISREG (info.st_mode))
    return "not a file";
  if (g_access (path, R_OK) != 0)
    return g_strerror (errno);
  return info.st_size == 0 ? "the file is empty" : NULL;
}

/* Which model was named, or NULL. */
static const char *
get_model (Program *program)
{
  const char *variable = g_getenv ("LYCHEE_MODEL");

  if (program->model != NULL)
    return program->model;
  return variable != NULL && *variable != '\0' ? variable : NULL;
}

gboolean
program_check (Program *program)
{
  const char *model = get_model (program);
  const char *fault;

  /* Where there is no standard output, the next file that is opened would be taken for it. */
  if (fcntl (STDOUT_FILENO, F_GETFD) < 0)
    program_fail (program, "standard output is closed, and the answer goes there");
  else if (program->file != NULL && !g_str_equal (program->file, "-") &&
           (fault = find_fault (program->file)) != NULL)
    program_fail (program, "%s: %s", program->file, fault);
  else if (model != NULL && (fault = find_fault (model)) != NULL)
    program_fail (program, "the model %s: %s (%s names it)", model, fault,
        program->model != NULL ? "--model" : "LYCHEE_MODEL");
  return program->status == 0;
}

/* The pipeline */

static gboolean
is_ours (gpointer element)
{
  return g_str_has_prefix (G_OBJECT_TYPE_NAME (element), "GstLychee");
}

static void
say_of_element (Program *program, const char *what, GstMessage *message, const GError *error)
{
  g_autofree char *kind = g_strdup_printf ("%s: %s", program->name, what);
  gboolean no_model = get_model (program) == NULL && is_ours (GST_MESSAGE_SRC (message)) &&
                      g_error_matches (error, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_NOT_FOUND);

  console_say (&program->console, kind, "%s: %s%s", GST_MESSAGE_SRC_NAME (message), error->message,
      no_model ? " (--model names one)" : "");
}

/* Where in the source an error came from. */
static void
say_more (Program *program, const char *debug)
{
  if (program->verbose && debug != NULL)
    console_say (&program->console, "  ", "%s", debug);
}

static GstBusSyncReply
on_posted (GstBus *bus, GstMessage *message, gpointer user_data)
{
  Program *program = user_data;
  guint chunks = 0;

  if (gst_message_has_name (message, "lychee-progress") &&
      gst_structure_get_uint (gst_message_get_structure (message), "chunks", &chunks))
    g_atomic_int_set (&program->chunks, chunks);
  if (program->on_posted == NULL || !program->on_posted (message, program->user_data))
    return GST_BUS_PASS;
  gst_message_unref (message);
  return GST_BUS_DROP;
}

gboolean
program_tells_of_loading (GstMessage *message, gboolean *loading)
{
  g_autofree char *code = NULL;
  GstProgressType type;

  if (GST_MESSAGE_TYPE (message) != GST_MESSAGE_PROGRESS)
    return FALSE;
  gst_message_parse_progress (message, &type, &code, NULL);
  *loading = type == GST_PROGRESS_TYPE_START || type == GST_PROGRESS_TYPE_CONTINUE;
  return g_str_equal (code, "model");
}

static gboolean
on_message (GstBus *bus, GstMessage *message, gpointer user_data)
{
  Program *program = user_data;
  g_autoptr (GError) error = NULL;
  g_autofree char *debug = NULL;

  if (program->on_message != NULL && program->on_message (message, program->user_data))
    return G_SOURCE_CONTINUE;
  switch (GST_MESSAGE_TYPE (message)) {
  case GST_MESSAGE_ERROR:
    /* What follows the first, such as that the stream stopped, comes of it. */
    if (program->failed)
      break;
    program->failed = TRUE;
    gst_message_parse_error (message, &error, &debug);
    say_of_element (program, "error: ", message, error);
    say_more (program, debug);
    program->status = 1;
    g_main_loop_quit (program->loop);
    break;
  case GST_MESSAGE_WARNING:
    gst_message_parse_warning (message, &error, &debug);
    /* That nothing was said is an error here: program_check_words(). */
    if (g_error_matches (error, GST_STREAM_ERROR, GST_STREAM_ERROR_WRONG_TYPE) &&
        g_atomic_int_get (&program->chunks) == 0)
      break;
    say_of_element (program, "warning: ", message, error);
    say_more (program, debug);
    break;
  case GST_MESSAGE_INFO:
    gst_message_parse_info (message, &error, NULL);
    say_of_element (program, "", message, error);
    break;
  case GST_MESSAGE_EOS:
    program_check_words (program);
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

  if (program->on_interrupt != NULL && program->on_interrupt (program->user_data))
    return G_SOURCE_CONTINUE;
  program->status = 130;
  g_main_loop_quit (program->loop);
  /* A second time, the signal ends the program as it always does. */
  for (guint i = 0; i < G_N_ELEMENTS (program->interrupts); i++)
    if (program->interrupts[i] == g_source_get_id (g_main_current_source ()))
      program->interrupts[i] = 0;
  return G_SOURCE_REMOVE;
}

/* Standard input in a file without a name: a transcript is looked over before it is read. Returns
 * what to open, or NULL. (transfer full) */
static char *
keep_input (Program *program)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GInputStream) input = g_unix_input_stream_new (STDIN_FILENO, FALSE);
  g_autoptr (GOutputStream) output = NULL;
  g_autofree char *name = NULL;

  program->kept = g_file_open_tmp ("lychee-XXXXXX", &name, &error);
  if (program->kept >= 0) {
    g_unlink (name);
    output = g_unix_output_stream_new (program->kept, FALSE);
    if (g_output_stream_splice (output, input, G_OUTPUT_STREAM_SPLICE_NONE, NULL, &error) > 0)
      return g_strdup_printf ("/proc/self/fd/%d", program->kept);
  }
  program_fail (program, "standard input: %s", error != NULL ? error->message : "it is empty");
  return NULL;
}

/* Gives @value, as text, to the elements of ours that have such a property, and whose type's name
 * begins with @type. */
static void
set_in_all (Program *program, const char *type, const char *property, const char *value)
{
  g_autoptr (GstIterator) elements = gst_bin_iterate_recurse (GST_BIN (program->pipeline));
  GValue item = G_VALUE_INIT;

  while (gst_iterator_next (elements, &item) == GST_ITERATOR_OK) {
    GObject *element = g_value_get_object (&item);
    GParamSpec *pspec = g_object_class_find_property (G_OBJECT_GET_CLASS (element), property);

    if (g_str_has_prefix (G_OBJECT_TYPE_NAME (element), type) && pspec != NULL) {
      if (G_IS_PARAM_SPEC_STRING (pspec)) /* a file's name may not be UTF-8 */
        g_object_set (element, property, value, NULL);
      else
        gst_util_set_object_arg (element, property, value);
    }
    g_value_reset (&item);
  }
  g_value_unset (&item);
}

gboolean
program_open (Program *program, const char *read, const char *rest)
{
  char contrast[G_ASCII_DTOSTR_BUF_SIZE];
  g_autofree char *description = NULL;
  g_autofree char *location = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (GstBus) bus = NULL;

  if (g_strcmp0 (program->file, "-") == 0) {
    if ((location = keep_input (program)) == NULL)
      return FALSE;
  } else {
    location = g_strdup (program->file);
  }
  if (read != NULL)
    description = g_strconcat (read, " ! ", rest, NULL);
  else if (location != NULL)
    description =
        g_strconcat ("filesrc name=source ! lycheetranscriptparse name=parse ! ", rest, NULL);
  else
    /* What speaks does not wait, while the model is being loaded for one. */
    description = g_strconcat (program->source,
        " ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=0 ! ", rest, NULL);
  g_ascii_dtostr (contrast, sizeof contrast, program->contrast);
  program->pipeline =
      gst_parse_launch_full (description, NULL, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  if (program->pipeline == NULL) {
    program_fail (program, "%s%s", error->message,
        !g_error_matches (error, GST_PARSE_ERROR, GST_PARSE_ERROR_NO_SUCH_ELEMENT) ? ""
        : strstr (error->message, "lychee") != NULL
            ? " (is the plugin's folder in GST_PLUGIN_PATH?)"
            : " (the GStreamer plugin that has it is not installed)");
    return FALSE;
  }
  gst_object_ref_sink (program->pipeline);
  if (location != NULL) {
    g_autoptr (GstElement) element = program_get (program, "source");

    g_object_set (element, "location", location, NULL);
  }
  if (program->model != NULL)
    set_in_all (program, "GstLychee", "model", program->model);
  set_in_all (program, "GstLycheeIndexer", "prefill", program->prefill);
  set_in_all (program, "GstLycheeDecoder", "contrast", contrast);
  program->loop = g_main_loop_new (NULL, FALSE);
  bus = gst_element_get_bus (program->pipeline);
  gst_bus_set_sync_handler (bus, on_posted, program, NULL);
  program->watch = gst_bus_add_watch (bus, on_message, program);
  program->interrupts[0] = g_unix_signal_add (SIGINT, on_interrupt, program);
  program->interrupts[1] = g_unix_signal_add (SIGTERM, on_interrupt, program);
  return TRUE;
}

/* VALUE as gst-launch's syntax takes it, whatever is in it. */
static char *
quote_for_gst (const char *value)
{
  GString *quoted = g_string_new ("\"");

  for (; *value != '\0'; value++) {
    if (*value == '"' || *value == '\\') {
      g_string_append_c (quoted, '\\');
    }
    g_string_append_c (quoted, *value);
  }
  g_string_append_c (quoted, '"');
  return g_string_free (quoted, FALSE);
}

/* name=value as a word of a shell's command line: plain where that is safe. */
static char *
quote_for_shell (const char *name, const char *value)
{
  g_autofree char *for_gst = NULL;
  g_autofree char *word = NULL;

  if (*value != '\0' &&
      strspn (value, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "_./:,+-") == strlen (value)) {
    return g_strdup_printf ("%s=%s", name, value);
  }
  if (*value != '\0' && strpbrk (value, "\"\\$`!\n\t") == NULL) {
    return g_strdup_printf ("%s=\"%s\"", name, value);
  }
  for_gst = quote_for_gst (value);
  word = g_shell_quote (for_gst);
  return g_strdup_printf ("%s=%s", name, word);
}

void
program_print (Program *program, const char *without_file, const char *reader)
{
  char contrast[G_ASCII_DTOSTR_BUF_SIZE];
  gboolean named = program->file != NULL && !g_str_equal (program->file, "-");
  g_autofree char *location = named ? quote_for_shell ("filesrc location", program->file) : NULL;
  g_autofree char *prompt = quote_for_shell ("prompt", program->prompt);
  g_autofree char *model = program->model != NULL ? g_shell_quote (program->model) : NULL;
  g_autofree char *how = program->quotes > 0
                             ? g_strdup_printf ("quotes=%d", program->quotes)
                             : g_strdup_printf ("max-tokens=%d contrast=%s", program->max_tokens,
                                   g_ascii_dtostr (contrast, sizeof contrast, program->contrast));

  if (model != NULL)
    fprintf (stderr, "export LYCHEE_MODEL=%s\n", model);
  fprintf (stderr,
      "gst-launch-1.0 -q %s ! %s \\\n"
      "    ! lycheetokenizer ! lycheechunker ! lycheeindexer prefill=%s \\\n"
      "    ! lycheedecoder %s %s ! fdsink\n\n",
      named ? location : without_file, reader, program->prefill, prompt, how);
}

int
program_run (Program *program)
{
  /* Where this fails, there is an error message on the bus. */
  gst_element_set_state (program->pipeline, GST_STATE_PLAYING);
  g_main_loop_run (program->loop);
  return program->status;
}

gboolean
program_check_words (Program *program)
{
  if (program->status != 0 || g_atomic_int_get (&program->chunks) > 0)
    return TRUE;
  program_fail (program, "%s: nothing is said in it, so there is nothing to answer from",
      program->source != NULL            ? "the source"
      : program->file == NULL            ? program->input
      : g_str_equal (program->file, "-") ? "standard input"
                                         : program->file);
  return FALSE;
}

void
program_stop (Program *program)
{
  g_autoptr (GstBus) bus = NULL;

  if (program->watch == 0)
    return;
  gst_element_set_state (program->pipeline, GST_STATE_NULL);
  bus = gst_element_get_bus (program->pipeline);
  gst_bus_set_sync_handler (bus, NULL, NULL, NULL);
  g_clear_handle_id (&program->watch, g_source_remove);
  g_clear_handle_id (&program->interrupts[0], g_source_remove);
  g_clear_handle_id (&program->interrupts[1], g_source_remove);
}

int
program_close (Program *program)
{
  program_stop (program);
  /* What does not arrive is not done. */
  errno = 0;
  if ((fflush (stdout) != 0 || ferror (stdout) != 0) && program->status == 0)
    program_fail (program, "standard output: %s",
        errno != 0 ? g_strerror (errno) : "it could not be written");
  gst_clear_object (&program->pipeline);
  g_clear_pointer (&program->loop, g_main_loop_unref);
  if (program->kept >= 0)
    close (program->kept);
  g_free (program->file);
  g_free (program->source);
  g_free (program->prompt);
  g_free (program->model);
  g_free (program->prefill);
  g_mutex_clear (&program->console.lock);
  return program->status;
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
