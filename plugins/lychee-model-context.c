/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-model-context.h"

#include "lychee-element.h"

GST_DEBUG_CATEGORY_STATIC (lychee_model_context_debug);
#define GST_CAT_DEFAULT lychee_model_context_debug

/* One element at a time looks for a model, else two of them would find none and load it twice.
 * Recursive, because posting have-context comes back to the posting element. */
static GRecMutex context_lock;

static void
init_debug (void)
{
  static gsize once = 0;

  if (g_once_init_enter (&once)) {
    GST_DEBUG_CATEGORY_INIT (
        lychee_model_context_debug, "lycheemodel", 0, "Sharing of a model between elements");
    g_once_init_leave (&once, 1);
  }
}

void
lychee_model_slot_install_property (GObjectClass *klass, guint property_id)
{
  init_debug ();
  g_object_class_install_property (klass, property_id,
      g_param_spec_string ("model", "Model",
          "Path of the model, a GGUF file. Elements of a pipeline that name the same file share "
          "one copy of it. Unset: the model of the elements before and after this one, else the "
          "pipeline's, else the file that the environment variable LYCHEE_MODEL names, else the "
          "default model",
          NULL, G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY));
}

void
lychee_model_slot_set_path (LycheeModelSlot *slot, GstElement *element, const char *path)
{
  GST_OBJECT_LOCK (element);
  g_free (slot->path);
  slot->path = path != NULL && *path != '\0' ? g_strdup (path) : NULL;
  GST_OBJECT_UNLOCK (element);
}

/* (transfer full) (nullable) */
char *
lychee_model_slot_dup_path (LycheeModelSlot *slot, GstElement *element)
{
  char *path;

  GST_OBJECT_LOCK (element);
  path = g_strdup (slot->path);
  GST_OBJECT_UNLOCK (element);
  return path;
}

/* For the element's finalize. */
void
lychee_model_slot_clear (LycheeModelSlot *slot)
{
  g_clear_object (&slot->model);
  g_clear_pointer (&slot->path, g_free);
  g_clear_pointer (&slot->refused, g_free);
}

/* (transfer full) (nullable) */
LycheeModel *
lychee_model_slot_ref_model (LycheeModelSlot *slot, GstElement *element)
{
  LycheeModel *model;

  GST_OBJECT_LOCK (element);
  model = slot->model != NULL ? g_object_ref (slot->model) : NULL;
  GST_OBJECT_UNLOCK (element);
  return model;
}

/* Takes the model out of @context if it is the one that @path asks for. (transfer full) */
static LycheeModel *
model_from_context (GstContext *context, const char *path)
{
  const GstStructure *structure;
  LycheeModel *model = NULL;
  const char *context_path;

  if (context == NULL || !gst_context_has_context_type (context, LYCHEE_MODEL_CONTEXT_TYPE))
    return NULL;
  structure = gst_context_get_structure (context);
  context_path = gst_structure_get_string (structure, "path");
  if (path != NULL && g_strcmp0 (path, context_path) != 0)
    return NULL;
  gst_structure_get (structure, "model", LYCHEE_TYPE_MODEL, &model, NULL);
  return model;
}

static GstContext *
context_new (LycheeModel *model, const char *path)
{
  GstContext *context = gst_context_new (LYCHEE_MODEL_CONTEXT_TYPE, FALSE);

  gst_structure_set (gst_context_writable_structure (context), "model", LYCHEE_TYPE_MODEL, model,
      "path", G_TYPE_STRING, path, NULL);
  return context;
}

static gboolean
query_pad (GstElement *element, GstPad *pad, gpointer query)
{
  /* FALSE ends the iteration: somebody answered. */
  return !gst_pad_peer_query (pad, query);
}

/* Asks the elements that @element is linked to in one direction. (transfer full) (nullable) */
static LycheeModel *
model_from_neighbours (GstElement *element, GstPadDirection direction, const char *path)
{
  GstQuery *query = gst_query_new_context (LYCHEE_MODEL_CONTEXT_TYPE);
  GstContext *context = NULL;
  LycheeModel *model = NULL;

  if (path != NULL)
    gst_structure_set (gst_query_writable_structure (query), "path", G_TYPE_STRING, path, NULL);
  if (direction == GST_PAD_SRC)
    gst_element_foreach_src_pad (element, query_pad, query);
  else
    gst_element_foreach_sink_pad (element, query_pad, query);
  gst_query_parse_context (query, &context);
  model = model_from_context (context, path);
  gst_query_unref (query);
  return model;
}

/* (transfer full) (nullable) */
static LycheeModel *
model_from_own_context (GstElement *element, const char *path)
{
  GstContext *context = gst_element_get_context (element, LYCHEE_MODEL_CONTEXT_TYPE);
  LycheeModel *model = model_from_context (context, path);

  g_clear_pointer (&context, gst_context_unref);
  return model;
}

static char *
absolute_path (const char *path)
{
  return path != NULL ? g_canonicalize_filename (path, NULL) : NULL;
}

static void
post_progress (GstElement *element, GstProgressType type, const char *format, const char *what)
{
  char *text = g_strdup_printf (format, what);

  gst_element_post_message (
      element, gst_message_new_progress (GST_OBJECT_CAST (element), type, "model", text));
  g_free (text);
}

/* Loads a model, and says so on the bus: it may take a while. (transfer full) (nullable) */
static LycheeModel *
load (GstElement *element, const char *path, GError **error)
{
  LycheeModel *model;

  GST_INFO_OBJECT (element, "loads model %s", path);
  post_progress (element, GST_PROGRESS_TYPE_START, "Loading the model %s", path);
  model = lychee_model_new_from_file (path, error);
  if (model != NULL)
    post_progress (element, GST_PROGRESS_TYPE_COMPLETE, "The model %s is loaded", path);
  else
    post_progress (element, GST_PROGRESS_TYPE_ERROR, "The model %s cannot be loaded", path);
  return model;
}

/* Own context, downstream, upstream, the application, and last a fresh one, which the others are
 * told of. (transfer full) (nullable) */
static LycheeModel *
find_or_load (GstElement *element, const char *path, GError **error)
{
  LycheeModel *model;
  GstMessage *message;
  GstContext *context;
  const char *environment;
  char *file;

  if ((model = model_from_own_context (element, path)) != NULL ||
      (model = model_from_neighbours (element, GST_PAD_SRC, path)) != NULL ||
      (model = model_from_neighbours (element, GST_PAD_SINK, path)) != NULL) {
    GST_INFO_OBJECT (element, "shares model %s", lychee_model_get_path (model));
    return model;
  }

  message = gst_message_new_need_context (GST_OBJECT_CAST (element), LYCHEE_MODEL_CONTEXT_TYPE);
  if (path != NULL)
    gst_structure_set (
        (GstStructure *) gst_message_get_structure (message), "path", G_TYPE_STRING, path, NULL);
  gst_element_post_message (element, message);
  if ((model = model_from_own_context (element, path)) != NULL) {
    GST_INFO_OBJECT (element, "was given model %s", lychee_model_get_path (model));
    return model;
  }

  environment = g_getenv ("LYCHEE_MODEL");
  if (path != NULL)
    file = g_strdup (path);
  else if (environment != NULL && *environment != '\0')
    file = absolute_path (environment);
  else
    file = g_strdup (LYCHEE_DEFAULT_MODEL);

  model = load (element, file, error);
  if (model != NULL) {
    context = context_new (model, file);
    gst_element_set_context (element, context);
    gst_element_post_message (
        element, gst_message_new_have_context (GST_OBJECT_CAST (element), context));
  } else if (path == NULL) {
    g_prefix_error (error, "No model was named (property “model”, environment variable "
                           "LYCHEE_MODEL), and the default one cannot be used: ");
  }
  g_free (file);
  return model;
}

/**
 * lychee_model_slot_open:
 * @slot: the element's slot
 * @element: the element, on its way to READY
 *
 * Finds the model that the slot's path names in the pipeline, or loads it. On failure an error
 * message was posted.
 */
gboolean
lychee_model_slot_open (LycheeModelSlot *slot, GstElement *element)
{
  GError *error = NULL;
  LycheeModel *model, *old;
  char *given = lychee_model_slot_dup_path (slot, element);
  char *path = absolute_path (given);

  init_debug ();
  g_rec_mutex_lock (&context_lock);
  model = find_or_load (element, path, &error);
  GST_OBJECT_LOCK (element);
  old = slot->model;
  slot->model = model;
  GST_OBJECT_UNLOCK (element);
  g_rec_mutex_unlock (&context_lock);

  g_clear_object (&old);
  g_free (given);
  g_free (path);
  if (model == NULL) {
    lychee_element_post_error (element, error, NULL);
    g_clear_error (&error);
    return FALSE;
  }
  return TRUE;
}

/* On the way from READY to NULL. */
void
lychee_model_slot_close (LycheeModelSlot *slot, GstElement *element)
{
  LycheeModel *model;

  GST_OBJECT_LOCK (element);
  model = g_steal_pointer (&slot->model);
  GST_OBJECT_UNLOCK (element);
  g_clear_object (&model);
}

/**
 * lychee_model_slot_answer_query:
 * @slot: the element's slot
 * @element: the element
 * @query: any query
 *
 * Answers a context query from the model of the slot. An element whose path is set but that is not
 * READY yet loads it now, so that naming a model on one element is enough.
 *
 * Returns: %FALSE when the query is another, or this element has no answer: pass it on
 */
gboolean
lychee_model_slot_answer_query (LycheeModelSlot *slot, GstElement *element, GstQuery *query)
{
  const char *type, *wanted;
  char *given, *path;
  LycheeModel *model;
  GstContext *context;
  gboolean answered = FALSE;

  if (GST_QUERY_TYPE (query) != GST_QUERY_CONTEXT || !gst_query_parse_context_type (query, &type) ||
      g_strcmp0 (type, LYCHEE_MODEL_CONTEXT_TYPE) != 0)
    return FALSE;

  wanted = gst_structure_get_string (gst_query_get_structure (query), "path");
  given = lychee_model_slot_dup_path (slot, element);
  path = absolute_path (given);
  model = lychee_model_slot_ref_model (slot, element);

  if (model == NULL && path != NULL && (wanted == NULL || g_str_equal (wanted, path))) {
    g_rec_mutex_lock (&context_lock);
    model = model_from_own_context (element, path);
    if (model == NULL)
      model = load (element, path, NULL); /* it reports that itself when READY */
    if (model != NULL) {
      context = context_new (model, path);
      gst_element_set_context (element, context);
      gst_element_post_message (
          element, gst_message_new_have_context (GST_OBJECT_CAST (element), context));
    }
    g_rec_mutex_unlock (&context_lock);
  }

  if (model != NULL) {
    char *model_path = absolute_path (lychee_model_get_path (model));

    if (wanted == NULL || g_strcmp0 (wanted, model_path) == 0) {
      context = context_new (model, model_path);
      gst_query_set_context (query, context);
      gst_context_unref (context);
      answered = TRUE;
    }
    g_free (model_path);
    g_object_unref (model);
  }
  g_free (given);
  g_free (path);
  return answered;
}

/**
 * lychee_model_find:
 * @element: an element that can do without a model, and so loads none
 * @id: (nullable): the model's id, as caps have it
 *
 * Returns: (transfer full) (nullable): the model of that id, if the application gave it to @element
 *   or one of the elements before and after it has it
 */
LycheeModel *
lychee_model_find (GstElement *element, const char *id)
{
  LycheeModel *model;

  init_debug ();
  for (guint i = 0; i < 3 && id != NULL; i++) {
    model = i == 0 ? model_from_own_context (element, NULL)
                   : model_from_neighbours (element, i == 1 ? GST_PAD_SINK : GST_PAD_SRC, NULL);
    if (model != NULL && g_str_equal (lychee_model_get_id (model), id))
      return model;
    g_clear_object (&model);
  }
  return NULL;
}

/* When streaming ends: the next stream's caps are judged afresh. */
void
lychee_model_slot_forget_caps (LycheeModelSlot *slot, GstElement *element)
{
  GST_OBJECT_LOCK (element);
  g_clear_pointer (&slot->refused, g_free);
  GST_OBJECT_UNLOCK (element);
}

/* Whether @id is refused for the first time: caps that were refused come again with each buffer. */
static gboolean
note_refused (LycheeModelSlot *slot, GstElement *element, const char *id)
{
  gboolean first;

  GST_OBJECT_LOCK (element);
  first = slot->refused == NULL || !g_str_equal (slot->refused, id);
  g_free (slot->refused);
  slot->refused = g_strdup (id);
  GST_OBJECT_UNLOCK (element);
  return first;
}

/**
 * lychee_model_slot_check_caps:
 * @slot: the element's slot
 * @element: the element
 * @pad: its sink pad
 * @caps: what arrives there
 *
 * Compares the caps' model with the element's. Where they differ, an error message that names both
 * was posted.
 */
gboolean
lychee_model_slot_check_caps (
    LycheeModelSlot *slot, GstElement *element, GstPad *pad, GstCaps *caps)
{
  const char *id = gst_structure_get_string (gst_caps_get_structure (caps, 0), "model");
  LycheeModel *model = lychee_model_slot_ref_model (slot, element);
  const char *own_id = model != NULL ? lychee_model_get_id (model) : NULL;
  gboolean equal = own_id != NULL && g_strcmp0 (id, own_id) == 0;

  if (id == NULL)
    id = "(none)";
  if (!equal && note_refused (slot, element, id)) {
    /* The caps have only the id; who made them can say which file that is. */
    LycheeModel *other = model_from_neighbours (element, GST_PAD_SINK, NULL);
    const char *path = other != NULL && g_strcmp0 (lychee_model_get_id (other), id) == 0
                           ? lychee_model_get_path (other)
                           : "a file that is not known here";

    GST_ELEMENT_ERROR (element, CORE, NEGOTIATION,
        ("The elements of this pipeline use different models: what arrives was made with model %s "
         "(%s), this element has model %s (%s).",
            id, path, own_id != NULL ? own_id : "(none)",
            model != NULL ? lychee_model_get_path (model) : "none"),
        ("caps %" GST_PTR_FORMAT " on pad %s", caps, GST_PAD_NAME (pad)));
    g_clear_object (&other);
  }
  g_clear_object (&model);
  return equal;
}
