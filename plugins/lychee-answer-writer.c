/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-answer-writer.h"

#include <json-glib/json-glib.h>
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

static gboolean add_field (GQuark field, const GValue *value, gpointer builder);

static void
add_value (JsonBuilder *builder, const GValue *value)
{
  if (GST_VALUE_HOLDS_ARRAY (value)) {
    json_builder_begin_array (builder);
    for (guint i = 0; i < gst_value_array_get_size (value); i++)
      add_value (builder, gst_value_array_get_value (value, i));
    json_builder_end_array (builder);
  } else if (GST_VALUE_HOLDS_STRUCTURE (value)) {
    json_builder_begin_object (builder);
    gst_structure_foreach (gst_value_get_structure (value), add_field, builder);
    json_builder_end_object (builder);
  } else if (G_VALUE_HOLDS_STRING (value) && g_value_get_string (value) != NULL) {
    json_builder_add_string_value (builder, g_value_get_string (value));
  } else if (G_VALUE_HOLDS_BOOLEAN (value)) {
    json_builder_add_boolean_value (builder, g_value_get_boolean (value));
  } else if (G_VALUE_HOLDS_UINT (value)) {
    json_builder_add_int_value (builder, g_value_get_uint (value));
  } else if (G_VALUE_HOLDS_UINT64 (value) && g_value_get_uint64 (value) <= G_MAXINT64) {
    json_builder_add_int_value (builder, g_value_get_uint64 (value));
  } else if (G_VALUE_HOLDS_DOUBLE (value)) {
    json_builder_add_double_value (builder, g_value_get_double (value));
  } else {
    /* No string, and no time. */
    json_builder_add_null_value (builder);
  }
}

static gboolean
add_field (GQuark field, const GValue *value, gpointer builder)
{
  json_builder_set_member_name (builder, g_quark_to_string (field));
  add_value (builder, value);
  return TRUE;
}

char *
lychee_structure_to_json (const GstStructure *structure, const char *type)
{
  g_autoptr (JsonBuilder) builder = json_builder_new ();
  g_autoptr (JsonNode) root = NULL;

  json_builder_begin_object (builder);
  json_builder_set_member_name (builder, "version");
  json_builder_add_int_value (builder, LYCHEE_ANSWER_JSON_VERSION);
  json_builder_set_member_name (builder, "type");
  json_builder_add_string_value (builder, type);
  gst_structure_foreach (structure, add_field, builder);
  json_builder_end_object (builder);
  root = json_builder_get_root (builder);
  return json_to_string (root, FALSE);
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
  return writer;
}

void
lychee_answer_writer_free (LycheeAnswerWriter *writer)
{
  lychee_ask_unref (writer->ask);
  g_string_free (writer->pending, TRUE);
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
    put_text (writer, writer->pending->str, end);
    g_string_erase (writer->pending, 0, end);
  }
}

static int
compare_times (gconstpointer a, gconstpointer b)
{
  guint64 one = *(const guint64 *) a, other = *(const guint64 *) b;

  return one < other ? -1 : one > other;
}

/* The times of the evidence, in their order, each once: " [00:12:31] [01:02:03]". */
static void
append_marks (GString *text, const GstStructure *description)
{
  const GValue *evidence = gst_structure_get_value (description, "evidence");
  g_autoptr (GArray) times = g_array_new (FALSE, FALSE, sizeof (guint64));
  guint64 before = G_MAXUINT64;

  for (guint i = 0; evidence != NULL && i < gst_value_array_get_size (evidence); i++) {
    guint64 start = GST_CLOCK_TIME_NONE;

    gst_structure_get_uint64 (
        gst_value_get_structure (gst_value_array_get_value (evidence, i)), "start", &start);
    if (GST_CLOCK_TIME_IS_VALID (start)) {
      start /= GST_SECOND;
      g_array_append_val (times, start);
    }
  }
  g_array_sort (times, compare_times);
  for (guint i = 0; i < times->len; i++) {
    guint64 seconds = g_array_index (times, guint64, i);

    if (seconds != before)
      g_string_append_printf (text, " [%02" G_GUINT64_FORMAT ":%02u:%02u]", seconds / 3600,
          (guint) (seconds / 60 % 60), (guint) (seconds % 60));
    before = seconds;
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
    if (writer->marks)
      append_marks (writer->pending, description);
    put_text (writer, writer->pending->str, writer->pending->len);
  }
  g_string_truncate (writer->pending, 0);
}
