/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "gstlycheeindexer-private.h"

#include "lychee-element.h"

#include <string.h>

/* What the session will be: how long, how large, and what that does to the model. */
static void
post_session (GstLycheeIndexer *self)
{
  g_autoptr (GVariant) stats = lychee_session_get_stats (self->session);
  guint trained = lychee_model_get_n_context (lychee_session_get_model (self->session));
  guint64 weights = 0, cache = 0, index = 0, available = 0;
  const char *positions = "absolute";
  guint context = 0;
  double stretch = 1;

  g_variant_lookup (stats, "context", "u", &context);
  g_variant_lookup (stats, "stretch", "d", &stretch);
  g_variant_lookup (stats, "positions", "&s", &positions);
  g_variant_lookup (stats, "memory-weights", "t", &weights);
  g_variant_lookup (stats, "memory-cache", "t", &cache);
  g_variant_lookup (stats, "memory-index", "t", &index);
  g_variant_lookup (stats, "memory-available", "t", &available);
  GST_INFO_OBJECT (self, "a context of %u tokens, trained for %u", context, trained);
  gst_element_post_message (GST_ELEMENT (self),
      gst_message_new_element (GST_OBJECT (self),
          gst_structure_new ("lychee-session", "context", G_TYPE_UINT, context, "trained",
              G_TYPE_UINT, trained, "stretch", G_TYPE_DOUBLE, stretch, "positions", G_TYPE_STRING,
              positions, "weights", G_TYPE_UINT64, weights, "cache", G_TYPE_UINT64, cache, "index",
              G_TYPE_UINT64, index, "available", G_TYPE_UINT64, available, NULL)));
  if (stretch > 1)
    GST_ELEMENT_INFO (self, LIBRARY, SETTINGS,
        ("A context of %u tokens is more than the %u that the model was trained for: YaRN "
         "stretches "
         "its positions by %.3g.",
            context, trained, stretch),
        (NULL));
}

static char *
dup_location (GstLycheeIndexer *self)
{
  char *location;

  GST_OBJECT_LOCK (self);
  location = g_strdup (self->location);
  GST_OBJECT_UNLOCK (self);
  return location;
}

void
gst_lychee_indexer_count_read (GstLycheeIndexer *self)
{
  LycheeCache *cache = lychee_session_get_cache (self->session);
  LycheeReading *reading = &self->reading;
  LycheeChunk *chunk;

  reading->tokens = reading->chunks = reading->bytes = 0;
  reading->end = GST_CLOCK_TIME_NONE;
  for (; (chunk = lychee_cache_get_chunk (cache, reading->chunks, NULL)) != NULL;
       reading->chunks++) {
    GstClockTime end = lychee_chunk_get_end (chunk);

    reading->tokens += chunk->n_ids;
    reading->bytes += strlen (chunk->text);
    if (chunk == self->saved)
      reading->end = GST_CLOCK_TIME_NONE;
    else if (GST_CLOCK_TIME_IS_VALID (end) &&
             (!GST_CLOCK_TIME_IS_VALID (reading->end) || end > reading->end))
      reading->end = end;
    lychee_chunk_unref (chunk);
  }
}

/* Goes on with the saved session, if there is one. */
static gboolean
resume_session (GstLycheeIndexer *self)
{
  g_autofree char *location = dup_location (self);
  g_autoptr (GError) error = NULL;

  self->resume = FALSE;
  if (location == NULL || !g_file_test (location, G_FILE_TEST_EXISTS))
    return TRUE;
  if (!lychee_session_load (self->session, location, NULL, &error)) {
    lychee_element_post_error (GST_ELEMENT (self), error, "The session cannot be resumed");
    return FALSE;
  }
  gst_lychee_indexer_count_read (self);
  self->resumed = self->reading.chunks > 0;
  GST_INFO_OBJECT (self, "resumed %" G_GUINT64_FORMAT " tokens, up to %" GST_TIME_FORMAT,
      self->reading.tokens, GST_TIME_ARGS (self->reading.end));
  return TRUE;
}

/* What cannot be saved is said, and goes on. */
void
gst_lychee_indexer_save_session (GstLycheeIndexer *self)
{
  g_autofree char *location = dup_location (self);
  g_autoptr (GError) error = NULL;

  if (location == NULL || self->session == NULL || !self->unsaved)
    return;
  self->unsaved = FALSE;
  if (!lychee_session_save (self->session, location, NULL, &error))
    lychee_element_post_warning (GST_ELEMENT (self), error, "The session could not be saved");
}

/* How keys and values are kept, as caps have it: a saved session has its own. */
const char *
gst_lychee_indexer_get_cache_type (GstLycheeIndexer *self)
{
  LycheeCacheType type;

  g_object_get (self->session != NULL ? (gpointer) self->session : self, "cache-type", &type, NULL);
  return type == LYCHEE_CACHE_TYPE_Q8_0 ? "q8_0" : "f16";
}

gboolean
gst_lychee_indexer_ensure_session (GstLycheeIndexer *self)
{
  LycheeModel *model;

  if (self->session != NULL)
    return TRUE;
  model = lychee_model_slot_ref_model (&self->slot, GST_ELEMENT (self));
  if (model == NULL)
    return FALSE;
  self->session =
      lychee_settings_new_session (&self->settings, self, model, NULL, LYCHEE_CHAT_FORMAT_AUTO);
  g_object_unref (model);
  if (self->resume && !resume_session (self)) {
    g_clear_object (&self->session);
    return FALSE;
  }
  if (self->cut && self->resumed) /* the seek was before there was anything to cut */
    gst_lychee_indexer_cut (self, self->segment.start);
  g_object_get (self->session, "template", &self->format, NULL);
  if (self->resumed)
    gst_pad_mark_reconfigure (self->srcpad); /* the type of its cache may be another */
  post_session (self);
  return TRUE;
}
