/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-index.h"
#include "lychee-session.h"
#include "lychee-tokenizer.h"
#include "lychee-types.h"

#include <math.h>

static void
test_boundary_strings (void)
{
  static const char *const nicks[] = { "none", "word", "clause", "sentence", "speaker", "paragraph",
    "drift", "end" };

  for (guint i = 0; i < G_N_ELEMENTS (nicks); i++)
    g_assert_cmpstr (lychee_boundary_to_string ((LycheeBoundary) i), ==, nicks[i]);
  g_assert_null (lychee_boundary_to_string ((LycheeBoundary) G_N_ELEMENTS (nicks)));
  g_assert_null (lychee_boundary_to_string ((LycheeBoundary) -1));
}

static void
test_boundary_enum (void)
{
  GEnumClass *enum_class = g_type_class_ref (LYCHEE_TYPE_BOUNDARY);

  g_assert_cmpstr (g_type_name (LYCHEE_TYPE_BOUNDARY), ==, "LycheeBoundary");
  g_assert_cmpuint (enum_class->n_values, ==, LYCHEE_BOUNDARY_END + 1);
  g_assert_cmpint (
      g_enum_get_value_by_nick (enum_class, "clause")->value, ==, LYCHEE_BOUNDARY_CLAUSE);
  g_type_class_unref (enum_class);
}

static void
test_chunk_copies (void)
{
  gint32 ids[] = { 5, -1, G_MAXINT32 };
  char text[] = "h\xC3\xA9llo", speaker[] = "Ann";
  g_autoptr (LycheeChunk) chunk =
      lychee_chunk_new (ids, 3, text, speaker, 10, 20, LYCHEE_BOUNDARY_CLAUSE, 0.25f, G_MAXUINT64);

  ids[0] = 0;
  text[0] = speaker[0] = 'x';
  g_assert_cmpuint (chunk->n_ids, ==, 3);
  g_assert_cmpint (chunk->ids[0], ==, 5);
  g_assert_cmpint (chunk->ids[1], ==, -1);
  g_assert_cmpint (chunk->ids[2], ==, G_MAXINT32);
  g_assert_cmpstr (chunk->text, ==, "h\xC3\xA9llo");
  g_assert_cmpstr (chunk->speaker, ==, "Ann");
  g_assert_cmpuint (chunk->pts, ==, 10);
  g_assert_cmpuint (chunk->duration, ==, 20);
  g_assert_cmpint (chunk->boundary, ==, LYCHEE_BOUNDARY_CLAUSE);
  g_assert_cmpfloat (chunk->drift, ==, 0.25f);
  g_assert_cmpuint (chunk->number, ==, G_MAXUINT64);
}

static void
test_chunk_empty (void)
{
  g_autoptr (LycheeChunk) chunk = lychee_chunk_new (
      NULL, 0, NULL, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, LYCHEE_BOUNDARY_END, NAN, 0);

  g_assert_cmpuint (chunk->n_ids, ==, 0);
  g_assert_cmpstr (chunk->text, ==, "");
  g_assert_null (chunk->speaker);
  g_assert_true (isnan (chunk->drift));
  g_assert_cmpuint (chunk->pts, ==, LYCHEE_TIME_NONE);
}

static void
test_chunk_end (void)
{
  static const struct {
    guint64 pts, duration, end;
  } cases[] = {
    { 10, 20, 30 },
    { 10, LYCHEE_TIME_NONE, 10 },
    { LYCHEE_TIME_NONE, 20, LYCHEE_TIME_NONE },
    { LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE },
  };

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (LycheeChunk) chunk = lychee_chunk_new (
        NULL, 0, "", NULL, cases[i].pts, cases[i].duration, LYCHEE_BOUNDARY_END, NAN, 0);

    g_assert_cmpuint (lychee_chunk_get_end (chunk), ==, cases[i].end);
  }
}

static void
test_chunk_empty_speaker (void)
{
  g_autoptr (LycheeChunk) chunk =
      lychee_chunk_new (NULL, 0, "", "", 0, 0, LYCHEE_BOUNDARY_END, NAN, 0);

  g_assert_cmpstr (chunk->speaker, ==, "");
}

static void
test_chunk_invalid_text (void)
{
  g_test_expect_message ("Lychee", G_LOG_LEVEL_CRITICAL, "*g_utf8_validate*");
  g_assert_null (lychee_chunk_new (NULL, 0, "\xC3", NULL, 0, 0, LYCHEE_BOUNDARY_END, NAN, 0));
  g_test_assert_expected_messages ();
}

static void
test_chunk_boxed (void)
{
  LycheeChunk *chunk = lychee_chunk_new (NULL, 0, "text", NULL, 0, 0, LYCHEE_BOUNDARY_END, NAN, 0);
  GValue value = G_VALUE_INIT, copy = G_VALUE_INIT;

  g_value_init (&value, LYCHEE_TYPE_CHUNK);
  g_value_init (&copy, LYCHEE_TYPE_CHUNK);
  g_value_take_boxed (&value, chunk);
  g_value_copy (&value, &copy);
  /* Immutable: a copy is a reference. */
  g_assert_true (g_value_get_boxed (&copy) == chunk);
  g_value_unset (&value);
  g_assert_cmpstr (((LycheeChunk *) g_value_get_boxed (&copy))->text, ==, "text");
  g_value_unset (&copy);
}

static gpointer
ref_and_unref (gpointer chunk)
{
  for (guint i = 0; i < 100000; i++)
    lychee_chunk_unref (lychee_chunk_ref (chunk));
  lychee_chunk_unref (chunk);
  return NULL;
}

static void
test_chunk_threads (void)
{
  LycheeChunk *chunk = lychee_chunk_new (NULL, 0, "text", NULL, 0, 0, LYCHEE_BOUNDARY_END, NAN, 0);
  GThread *threads[4];

  for (guint i = 0; i < G_N_ELEMENTS (threads); i++)
    threads[i] = g_thread_new ("ref", ref_and_unref, lychee_chunk_ref (chunk));
  for (guint i = 0; i < G_N_ELEMENTS (threads); i++)
    g_thread_join (threads[i]);
  g_assert_cmpstr (chunk->text, ==, "text");
  lychee_chunk_unref (chunk);
}

/* What users see of an error's domain. */
static void
test_error_domains (void)
{
  g_assert_cmpstr (g_quark_to_string (LYCHEE_MODEL_ERROR), ==, "lychee-model-error-quark");
  g_assert_cmpstr (g_quark_to_string (LYCHEE_TOKENIZER_ERROR), ==, "lychee-tokenizer-error-quark");
  g_assert_cmpstr (g_quark_to_string (LYCHEE_CACHE_ERROR), ==, "lychee-cache-error-quark");
  g_assert_cmpstr (g_quark_to_string (LYCHEE_SESSION_ERROR), ==, "lychee-session-error-quark");
  g_assert_cmpstr (g_quark_to_string (LYCHEE_INDEX_ERROR), ==, "lychee-index-error-quark");
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  g_test_add_func ("/types/boundary/strings", test_boundary_strings);
  g_test_add_func ("/types/boundary/enum", test_boundary_enum);
  g_test_add_func ("/types/chunk/copies", test_chunk_copies);
  g_test_add_func ("/types/chunk/empty", test_chunk_empty);
  g_test_add_func ("/types/chunk/end", test_chunk_end);
  g_test_add_func ("/types/chunk/empty-speaker", test_chunk_empty_speaker);
  g_test_add_func ("/types/chunk/invalid-text", test_chunk_invalid_text);
  g_test_add_func ("/types/chunk/boxed", test_chunk_boxed);
  g_test_add_func ("/types/error-domains", test_error_domains);
  g_test_add_func ("/types/chunk/threads", test_chunk_threads);
  return g_test_run ();
}
