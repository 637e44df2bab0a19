/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-answer-writer.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>
#include <unicode/ubrk.h>
#include <unicode/utext.h>

GType
lychee_stream_get_type (void)
{
  static gsize type = 0;
  static const GEnumValue values[] = {
    { LYCHEE_STREAM_TOKEN, "As soon as there is a whole character more", "token" },
    { LYCHEE_STREAM_SENTENCE, "Sentences", "sentence" },
    { LYCHEE_STREAM_ANSWER, "Whole answers", "answer" },
    { 0, NULL, NULL },
  };

  if (g_once_init_enter (&type))
    g_once_init_leave (&type, g_enum_register_static ("LycheeStream", values));
  return type;
}

/* Describing */

static void
take_structure (GValue *array, GstStructure *structure)
{
  GValue value = G_VALUE_INIT;

  g_value_init (&value, GST_TYPE_STRUCTURE);
  g_value_take_boxed (&value, structure);
  gst_value_array_append_and_take_value (array, &value);
}

static void
describe_evidence (GstStructure *structure, GPtrArray *evidence)
{
  GValue array = G_VALUE_INIT;

  g_value_init (&array, GST_TYPE_ARRAY);
  for (guint i = 0; evidence != NULL && i < evidence->len; i++) {
    LycheeEvidence *e = g_ptr_array_index (evidence, i);

    take_structure (
        &array, gst_structure_new ("evidence", "start", G_TYPE_UINT64, e->start, "end",
                    G_TYPE_UINT64, e->end, "speaker", G_TYPE_STRING, e->speaker, "text",
                    G_TYPE_STRING, e->text, "weight", G_TYPE_DOUBLE, e->weight, "position",
                    G_TYPE_UINT64, e->position, "tokens", G_TYPE_UINT, e->n_tokens, NULL));
  }
  gst_structure_take_value (structure, "evidence", &array);
}

GstStructure *
lychee_answer_describe (
    LycheeAsk *ask, LycheeAnswer *answer, const char *finish, const char *reason)
{
  guint64 from, to;
  GstStructure *structure;

  lychee_question_get_range (ask->question, &from, &to);
  if (finish == NULL)
    finish = lychee_finish_to_string (lychee_answer_get_finish (answer));
  structure = gst_structure_new ("lychee-answer", "id", G_TYPE_STRING, ask->id, "kind",
      G_TYPE_STRING, lychee_ask_get_kind_name (ask), "prompt", G_TYPE_STRING,
      lychee_question_get_prompt (ask->question), "text", G_TYPE_STRING,
      answer != NULL ? lychee_answer_get_text (answer) : "", "finish", G_TYPE_STRING, finish,
      "reason", G_TYPE_STRING, reason, "time", G_TYPE_UINT64, ask->time, "from", G_TYPE_UINT64,
      from, "to", G_TYPE_UINT64, to, "truncated", G_TYPE_BOOLEAN,
      ask->truncated || (answer != NULL && lychee_answer_get_truncated (answer)),
      "transcript-tokens", G_TYPE_UINT,
      answer != NULL ? lychee_answer_get_transcript_tokens (answer) : 0, "prompt-tokens",
      G_TYPE_UINT, answer != NULL ? lychee_answer_get_prompt_tokens (answer) : 0, "answer-tokens",
      G_TYPE_UINT, answer != NULL ? lychee_answer_get_answer_tokens (answer) : 0,
      "seconds-to-first", G_TYPE_DOUBLE,
      answer != NULL ? lychee_answer_get_seconds_to_first (answer) : 0.0, "seconds", G_TYPE_DOUBLE,
      answer != NULL ? lychee_answer_get_seconds (answer) : 0.0, NULL);
  describe_evidence (structure, answer != NULL ? lychee_answer_get_evidence (answer) : NULL);
  return structure;
}

/* JSON */

/* Numbers are written here: json-glib writes 17 digits of them. */
static void append_fields (GString *json, const GstStructure *structure);

static void
append_string (GString *json, const char *text)
{
  g_autoptr (JsonNode) node = json_node_init_string (json_node_alloc (), text);
  g_autofree char *quoted = json_to_string (node, FALSE);

  g_string_append (json, quoted);
}

/* Seconds to the thousandth, as good as they are measured; shares and what else there is to the
 * millionth. */
static void
append_double (GString *json, const char *name, double value)
{
  double unit = strstr (name, "seconds") != NULL ? 1e3 : 1e6;
  char digits[G_ASCII_DTOSTR_BUF_SIZE];

  if (isfinite (value))
    g_string_append (
        json, g_ascii_formatd (digits, sizeof digits, "%.15g", round (value * unit) / unit));
  else
    g_string_append (json, "null");
}

static void
append_value (GString *json, const char *name, const GValue *value)
{
  if (GST_VALUE_HOLDS_ARRAY (value)) {
    g_string_append_c (json, '[');
    for (guint i = 0; i < gst_value_array_get_size (value); i++) {
      if (i > 0)
        g_string_append_c (json, ',');
      append_value (json, name, gst_value_array_get_value (value, i));
    }
    g_string_append_c (json, ']');
  } else if (GST_VALUE_HOLDS_STRUCTURE (value)) {
    g_string_append_c (json, '{');
    append_fields (json, gst_value_get_structure (value));
    g_string_append_c (json, '}');
  } else if (G_VALUE_HOLDS_STRING (value) && g_value_get_string (value) != NULL) {
    append_string (json, g_value_get_string (value));
  } else if (G_VALUE_HOLDS_BOOLEAN (value)) {
    g_string_append (json, g_value_get_boolean (value) ? "true" : "false");
  } else if (G_VALUE_HOLDS_UINT (value)) {
    g_string_append_printf (json, "%u", g_value_get_uint (value));
  } else if (G_VALUE_HOLDS_UINT64 (value) && g_value_get_uint64 (value) <= G_MAXINT64) {
    g_string_append_printf (json, "%" G_GUINT64_FORMAT, g_value_get_uint64 (value));
  } else if (G_VALUE_HOLDS_DOUBLE (value)) {
    append_double (json, name, g_value_get_double (value));
  } else {
    /* No string, and no time. */
    g_string_append (json, "null");
  }
}

static void
append_fields (GString *json, const GstStructure *structure)
{
  for (gint i = 0; i < gst_structure_n_fields (structure); i++) {
    const char *name = gst_structure_nth_field_name (structure, i);

    if (json->str[json->len - 1] != '{')
      g_string_append_c (json, ',');
    append_string (json, name);
    g_string_append_c (json, ':');
    append_value (json, name, gst_structure_get_value (structure, name));
  }
}

char *
lychee_structure_to_json (const GstStructure *structure, const char *type)
{
  GString *json = g_string_new (NULL);

  g_string_append_printf (json, "{\"version\":%d,\"type\":", LYCHEE_ANSWER_JSON_VERSION);
  append_string (json, type);
  append_fields (json, structure);
  g_string_append_c (json, '}');
  return g_string_free (json, FALSE);
}

/* Writing */

struct _LycheeAnswerWriter {
  LycheeAsk *ask;
  gboolean json;
  LycheeStream stream;
  gboolean marks;
  LycheePutFunc put;
  gpointer user_data;

  guint64 offset;
  gboolean begun;
  GString *pending; /* text that is not yet a whole sentence, or answer */
  GArray *times;    /* of guint64: seconds of the evidence so far */
  GArray *marked;   /* likewise: those that were written */
};

LycheeAnswerWriter *
lychee_answer_writer_new (LycheeAsk *ask, gboolean json, LycheeStream stream, gboolean marks,
    LycheePutFunc put, gpointer user_data)
{
  LycheeAnswerWriter *writer = g_new0 (LycheeAnswerWriter, 1);

  writer->ask = lychee_ask_ref (ask);
  writer->json = json;
  writer->stream = stream;
  writer->marks = marks;
  writer->put = put;
  writer->user_data = user_data;
  writer->pending = g_string_new (NULL);
  writer->times = g_array_new (FALSE, FALSE, sizeof (guint64));
  writer->marked = g_array_new (FALSE, FALSE, sizeof (guint64));
  return writer;
}

void
lychee_answer_writer_free (LycheeAnswerWriter *writer)
{
  lychee_ask_unref (writer->ask);
  g_string_free (writer->pending, TRUE);
  g_array_unref (writer->times);
  g_array_unref (writer->marked);
  g_free (writer);
}

static void
put_bytes (LycheeAnswerWriter *writer, const char *bytes, gsize length)
{
  GstBuffer *buffer;

  if (length == 0)
    return;
  buffer = gst_buffer_new_memdup (bytes, length);
  GST_BUFFER_PTS (buffer) = writer->ask->time;
  GST_BUFFER_OFFSET (buffer) = writer->offset;
  if (!writer->begun)
    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
  writer->begun = TRUE;
  writer->offset += length;
  GST_BUFFER_OFFSET_END (buffer) = writer->offset;
  writer->put (buffer, writer->user_data);
}

static void
put_json (LycheeAnswerWriter *writer, const GstStructure *structure, const char *type)
{
  char *json = lychee_structure_to_json (structure, type);
  char *line = g_strconcat (json, "\n", NULL);

  put_bytes (writer, line, strlen (line));
  g_free (line);
  g_free (json);
}

static void
put_text (LycheeAnswerWriter *writer, const char *text, gsize length)
{
  GstStructure *structure;
  char *copy;

  if (length == 0)
    return;
  if (!writer->json) {
    put_bytes (writer, text, length);
    return;
  }
  copy = g_strndup (text, length);
  structure = gst_structure_new (
      "lychee-text", "id", G_TYPE_STRING, writer->ask->id, "text", G_TYPE_STRING, copy, NULL);
  put_json (writer, structure, "text");
  gst_structure_free (structure);
  g_free (copy);
}

/* Where the last sentence of @text ends that something follows. */
static gsize
end_of_sentences (const GString *text)
{
  UErrorCode status = U_ZERO_ERROR;
  UText source = UTEXT_INITIALIZER;
  UBreakIterator *breaks;
  gsize end = 0;
  int32_t place;

  utext_openUTF8 (&source, text->str, text->len, &status);
  breaks = ubrk_open (UBRK_SENTENCE, "", NULL, 0, &status);
  if (U_SUCCESS (status)) {
    ubrk_setUText (breaks, &source, &status);
    while (U_SUCCESS (status) && (place = ubrk_next (breaks)) != UBRK_DONE &&
           (gsize) place < text->len)
      end = place;
  }
  if (breaks != NULL)
    ubrk_close (breaks);
  utext_close (&source);
  return end;
}

static int
compare_times (gconstpointer a, gconstpointer b)
{
  guint64 one = *(const guint64 *) a, other = *(const guint64 *) b;

  return one < other ? -1 : one > other;
}

static void
add_time (GArray *times, guint64 start)
{
  if (!GST_CLOCK_TIME_IS_VALID (start))
    return;
  start /= GST_SECOND;
  g_array_append_val (times, start);
}

/* Those of @times that were not written before, in their order, each once:
 * " [00:12:31] [01:02:03]". */
static void
append_marks (LycheeAnswerWriter *writer, GString *text, GArray *times)
{
  g_array_sort (times, compare_times);
  for (guint i = 0; i < times->len; i++) {
    guint64 seconds = g_array_index (times, guint64, i);
    gboolean marked = FALSE;

    for (guint j = 0; j < writer->marked->len && !marked; j++)
      marked = g_array_index (writer->marked, guint64, j) == seconds;
    if (marked)
      continue;
    g_array_append_val (writer->marked, seconds);
    g_string_append_printf (text, " [%02" G_GUINT64_FORMAT ":%02u:%02u]", seconds / 3600,
        (guint) (seconds / 60 % 60), (guint) (seconds % 60));
  }
}

void
lychee_answer_writer_note_evidence (LycheeAnswerWriter *writer, GPtrArray *evidence)
{
  g_array_set_size (writer->times, 0);
  for (guint i = 0; i < evidence->len; i++)
    add_time (writer->times, ((LycheeEvidence *) g_ptr_array_index (evidence, i))->start);
}

/* Puts @length bytes of whole sentences, and behind the last of them the times that they are the
 * first to rest on. */
static void
put_sentences (LycheeAnswerWriter *writer, const char *text, gsize length)
{
  g_autoptr (GString) marked = NULL;
  gsize end = length;

  if (!writer->marks || writer->json || length == 0) {
    put_text (writer, text, length);
    return;
  }
  while (end > 0 && g_ascii_isspace (text[end - 1]))
    end--;
  marked = g_string_new_len (text, end);
  append_marks (writer, marked, writer->times);
  g_string_append_len (marked, text + end, length - end);
  put_text (writer, marked->str, marked->len);
}

void
lychee_answer_writer_push (LycheeAnswerWriter *writer, const char *text)
{
  gsize end;

  if (writer->stream == LYCHEE_STREAM_TOKEN) {
    put_text (writer, text, strlen (text));
    return;
  }
  g_string_append (writer->pending, text);
  if (writer->stream == LYCHEE_STREAM_SENTENCE) {
    end = end_of_sentences (writer->pending);
    put_sentences (writer, writer->pending->str, end);
    g_string_erase (writer->pending, 0, end);
  }
}

void
lychee_answer_writer_finish (LycheeAnswerWriter *writer, const GstStructure *description)
{
  if (writer->json) {
    /* The whole text is in the last object. */
    if (writer->stream != LYCHEE_STREAM_ANSWER)
      put_text (writer, writer->pending->str, writer->pending->len);
    put_json (writer, description, "answer");
  } else {
    if (writer->marks) {
      const GValue *evidence = gst_structure_get_value (description, "evidence");

      g_array_set_size (writer->times, 0);
      for (guint i = 0; evidence != NULL && i < gst_value_array_get_size (evidence); i++) {
        guint64 start = GST_CLOCK_TIME_NONE;

        gst_structure_get_uint64 (
            gst_value_get_structure (gst_value_array_get_value (evidence, i)), "start", &start);
        add_time (writer->times, start);
      }
      append_marks (writer, writer->pending, writer->times);
    }
    put_text (writer, writer->pending->str, writer->pending->len);
  }
  g_string_truncate (writer->pending, 0);
}
