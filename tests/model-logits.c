/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "model-logits.h"

#include <glib/gstdio.h>
#include <string.h>

char *
test_model_put (const char *dir, const char *name, const void *data, gsize size)
{
  char *path = g_build_filename (dir, name, NULL);

  /* Thousands of them: none has to outlive a power cut. In place, GLib does not cut what is longer.
   */
  g_unlink (path);
  g_assert_true (g_file_set_contents_full (path, data, size, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
  return path;
}

void
test_model_ids (gint32 *ids, guint n, guint n_vocab)
{
  for (guint i = 0; i < n; i++)
    ids[i] = (i * 7919 + i * i * 31 + 5) % n_vocab;
}

LycheeModel *
test_model_load (const char *path)
{
  g_autoptr (GError) error = NULL;
  LycheeModel *model = lychee_model_new_from_file (path, &error);

  g_assert_no_error (error);
  g_assert_nonnull (model);
  return model;
}

void
test_model_expect_error (const char *path, gint code, const char *named)
{
  g_autoptr (GError) error = NULL;
  LycheeModel *model = lychee_model_new_from_file (path, &error);

  g_assert_null (model);
  g_assert_nonnull (error);
  if (!g_error_matches (error, LYCHEE_MODEL_ERROR, code) || !strstr (error->message, named) ||
      !strstr (error->message, path))
    g_error ("wanted code %d and “%s”, got %s %d: %s", code, named,
        g_quark_to_string (error->domain), error->code, error->message);
}

LycheeCache *
test_model_cache (LycheeModel *model, guint max_tokens)
{
  return lychee_cache_new (lychee_model_get_n_layers (model), lychee_model_get_n_kv_heads (model),
      lychee_model_get_head_dim (model), max_tokens, 0);
}

float *
test_model_logits_for (
    LycheeModel *model, const gint32 *ids, guint n, guint step, guint threads, guint n_context)
{
  g_autoptr (LycheeExecutor) executor = lychee_executor_get (threads);
  g_autoptr (LycheeForward) forward = lychee_forward_new (model, executor);
  g_autoptr (LycheeCache) cache = test_model_cache (model, n);
  g_autoptr (GError) error = NULL;
  guint n_vocab = lychee_model_get_n_vocab (model);
  float *result = g_new (float, (gsize) n *n_vocab);

  lychee_cache_set_rope_context (cache, n_context);
  for (guint first = 0; first < n; first += step) {
    guint now = MIN (step, n - first);
    const float *logits;

    lychee_forward_run (forward, cache, ids + first, now, LYCHEE_OUTPUT_ALL, &logits, NULL, &error);
    g_assert_no_error (error);
    memcpy (result + (gsize) first * n_vocab, logits, (gsize) now * n_vocab * sizeof *logits);
  }
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, n);
  return result;
}

float *
test_model_logits (LycheeModel *model, const gint32 *ids, guint n, guint step, guint threads)
{
  return test_model_logits_for (model, ids, n, step, threads, 0);
}
