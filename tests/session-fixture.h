/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-session-cache.h"
#include "tiny-model.h"

#include <glib/gstdio.h>
#include <string.h>

/* What the tests of sessions do alike. */

/* A model of random weights, whose file is gone. (transfer full) */
static inline LycheeModel *
load_tiny_model (const LycheeTinyModel *tiny)
{
  g_autoptr (GError) error = NULL;
  g_autofree char *dir = g_dir_make_tmp ("lychee-test-XXXXXX", &error), *path = NULL;
  LycheeModel *model;

  g_assert_no_error (error);
  path = lychee_tiny_model_write (tiny, dir, "model.gguf");
  model = lychee_model_new_from_file (path, &error);
  g_assert_no_error (error);
  g_unlink (path);
  g_rmdir (dir);
  return model;
}

/* Chunk @number, of @n tokens, is said in second @number. */
static inline LycheeChunk *
new_chunk (guint64 number, guint n)
{
  g_autofree gint32 *ids = g_new (gint32, n);

  for (guint i = 0; i < n; i++)
    ids[i] = (number * 37 + i * 11) % 200 + 3;
  return lychee_chunk_new (ids, n, "words", NULL, number * G_GUINT64_CONSTANT (1000000000),
      G_GUINT64_CONSTANT (1000000000), LYCHEE_BOUNDARY_WORD, 0, number);
}

/* Chunks @first .. @end - 1, of @n tokens each. */
static inline void
append_chunks (LycheeSession *session, guint first, guint end, guint n)
{
  for (guint i = first; i < end; i++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (i, n);
    g_autoptr (GError) error = NULL;

    lychee_session_append (session, chunk, NULL, &error);
    g_assert_no_error (error);
  }
}

/* A LycheeTextFunc that puts an answer together, in a GString. */
static inline gboolean
collect (const char *text, gpointer user_data)
{
  g_assert_cmpuint (strlen (text), >, 0);
  g_assert_true (g_utf8_validate (text, -1, NULL));
  g_string_append (user_data, text);
  return TRUE;
}

/* What the session answers to the same question each time. */
static inline char *
ask_text (LycheeSession *session, guint max_tokens)
{
  g_autoptr (LycheeQuestion) question =
      g_object_new (LYCHEE_TYPE_QUESTION, "prompt", "Well?", "max-tokens", max_tokens, NULL);
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeAnswer) answer =
      lychee_session_ask (session, question, NULL, NULL, NULL, &error);

  g_assert_no_error (error);
  return g_strdup (lychee_answer_get_text (answer));
}

/* A counter of the session's stats. */
static inline guint64
get_count (LycheeSession *session, const char *name)
{
  g_autoptr (GVariant) stats = lychee_session_get_stats (session);
  guint64 n = 0;

  g_assert_true (g_variant_lookup (stats, name, "t", &n));
  return n;
}
