/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-model-load.h"

#include "lychee-element.h"
#include "lychee-model-context.h"

GST_DEBUG_CATEGORY_EXTERN (lychee_model_context_debug);
#define GST_CAT_DEFAULT lychee_model_context_debug

struct _LycheeModelLoad {
  gatomicrefcount refs;
  char *path;
  const char *whence; /* (nullable): what an error begins with */

  GMutex lock; /* not held while something is posted */
  GCond changed;
  gboolean ended; /* how it went is known: model and error do not change any more */
  gboolean done;  /* and said */
  LycheeModel *model;
  GError *error;
  gboolean reported;  /* how it went was said */
  gboolean cancelled; /* it was said that nobody wants it any more */
  guint n_users;
};

G_DEFINE_BOXED_TYPE (
    LycheeModelLoad, lychee_model_load, lychee_model_load_ref, lychee_model_load_unref)

LycheeModelLoad *
lychee_model_load_new (LycheeModel *model, const char *path)
{
  LycheeModelLoad *load = g_new0 (LycheeModelLoad, 1);

  g_atomic_ref_count_init (&load->refs);
  g_mutex_init (&load->lock);
  g_cond_init (&load->changed);
  load->path = g_strdup (path);
  load->model = model != NULL ? g_object_ref (model) : NULL;
  load->ended = load->done = load->reported = model != NULL;
  return load;
}

LycheeModelLoad *
lychee_model_load_ref (LycheeModelLoad *load)
{
  g_atomic_ref_count_inc (&load->refs);
  return load;
}

void
lychee_model_load_unref (LycheeModelLoad *load)
{
  if (!g_atomic_ref_count_dec (&load->refs))
    return;
  g_clear_object (&load->model);
  g_clear_error (&load->error);
  g_mutex_clear (&load->lock);
  g_cond_clear (&load->changed);
  g_free (load->path);
  g_free (load);
}

const char *
lychee_model_load_get_path (LycheeModelLoad *load)
{
  return load->path;
}

static void
post_progress (GstElement *element, GstProgressType type, const char *format, const char *path)
{
  char *text = g_strdup_printf (format, path);

  gst_element_post_message (
      element, gst_message_new_progress (GST_OBJECT_CAST (element), type, "model", text));
  g_free (text);
}

static void
post_start (GstElement *element, LycheeModelLoad *load)
{
  GST_INFO_OBJECT (element, "loads model %s", load->path);
  post_progress (element, GST_PROGRESS_TYPE_START, "Loading the model %s", load->path);
}

GstContext *
lychee_model_load_new_context (LycheeModelLoad *load)
{
  GstContext *context = gst_context_new (LYCHEE_MODEL_CONTEXT_TYPE, FALSE);
  GstStructure *structure = gst_context_writable_structure (context);
  g_autoptr (LycheeModel) model = lychee_model_load_peek (load);

  gst_structure_set (
      structure, "path", G_TYPE_STRING, load->path, "load", LYCHEE_TYPE_MODEL_LOAD, load, NULL);
  if (model != NULL)
    gst_structure_set (structure, "model", LYCHEE_TYPE_MODEL, model, NULL);
  return context;
}

/* How it went; once, in whichever thread. */
static void
post_end (GstElement *element, LycheeModelLoad *load)
{
  if (load->model != NULL) {
    gst_element_post_message (element, gst_message_new_have_context (GST_OBJECT_CAST (element),
                                           lychee_model_load_new_context (load)));
    GST_INFO_OBJECT (element, "loaded model %s", load->path);
    post_progress (element, GST_PROGRESS_TYPE_COMPLETE, "The model %s is loaded", load->path);
  } else {
    post_progress (element, GST_PROGRESS_TYPE_ERROR, "The model %s cannot be loaded", load->path);
    lychee_element_post_error (element, load->error, NULL);
  }
}

/* The thread that loads. What there is to say is said before anybody goes on. */
static void
run (GstElement *element, gpointer user_data)
{
  LycheeModelLoad *load = user_data;
  GError *error = NULL;
  LycheeModel *model;
  gboolean report;

  post_progress (element, GST_PROGRESS_TYPE_CONTINUE, "Reading %s", load->path);
  model = lychee_model_new_from_file (load->path, &error);
  if (model == NULL && load->whence != NULL)
    g_prefix_error (&error, "%s: ", load->whence);
  g_mutex_lock (&load->lock);
  load->model = model;
  load->error = error;
  load->ended = TRUE;
  report = load->n_users > 0;
  load->reported = report;
  g_mutex_unlock (&load->lock);
  if (report)
    post_end (element, load);

  g_mutex_lock (&load->lock);
  load->done = TRUE;
  g_cond_broadcast (&load->changed);
  g_mutex_unlock (&load->lock);
}

LycheeModelLoad *
lychee_model_load_start (GstElement *element, const char *path, const char *whence)
{
  LycheeModelLoad *load = lychee_model_load_new (NULL, path);
  GstContext *context = lychee_model_load_new_context (load);

  load->whence = whence;
  gst_element_set_context (element, context);
  gst_element_post_message (
      element, gst_message_new_have_context (GST_OBJECT_CAST (element), context));
  post_start (element, load);
  gst_element_call_async (
      element, run, lychee_model_load_ref (load), (GDestroyNotify) lychee_model_load_unref);
  return load;
}

void
lychee_model_load_add_user (LycheeModelLoad *load, GstElement *element)
{
  gboolean report, again;

  g_mutex_lock (&load->lock);
  load->n_users++;
  report = load->ended && !load->reported;
  load->reported |= report;
  again = load->cancelled && !load->ended;
  load->cancelled = FALSE;
  g_mutex_unlock (&load->lock);
  if (again)
    post_start (element, load);
  if (report)
    post_end (element, load);
}

void
lychee_model_load_remove_user (LycheeModelLoad *load, GstElement *element)
{
  gboolean cancelled;

  g_mutex_lock (&load->lock);
  cancelled = --load->n_users == 0 && !load->ended;
  load->cancelled |= cancelled;
  g_mutex_unlock (&load->lock);
  if (cancelled)
    post_progress (
        element, GST_PROGRESS_TYPE_CANCELED, "The model %s is not needed any more", load->path);
}

gboolean
lychee_model_load_is_over (LycheeModelLoad *load)
{
  gboolean over;

  g_mutex_lock (&load->lock);
  over = load->done && load->model == NULL && load->reported && load->n_users == 0;
  g_mutex_unlock (&load->lock);
  return over;
}

LycheeModel *
lychee_model_load_peek (LycheeModelLoad *load)
{
  LycheeModel *model;

  g_mutex_lock (&load->lock);
  model = load->model != NULL ? g_object_ref (load->model) : NULL;
  g_mutex_unlock (&load->lock);
  return model;
}

LycheeModel *
lychee_model_load_wait (LycheeModelLoad *load, gint *flushing)
{
  LycheeModel *model = NULL;

  g_mutex_lock (&load->lock);
  while (!load->done && !g_atomic_int_get (flushing))
    g_cond_wait (&load->changed, &load->lock);
  if (load->done && load->model != NULL)
    model = g_object_ref (load->model);
  g_mutex_unlock (&load->lock);
  return model;
}

void
lychee_model_load_wake (LycheeModelLoad *load)
{
  g_mutex_lock (&load->lock);
  g_cond_broadcast (&load->changed);
  g_mutex_unlock (&load->lock);
}
