/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-model-context.h"

#include "lychee-element.h"

GST_DEBUG_CATEGORY (lychee_model_context_debug);
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
  g_clear_pointer (&slot->load, lychee_model_load_unref);
  g_clear_pointer (&slot->path, g_free);
  g_clear_pointer (&slot->refused, g_free);
}

/* (transfer full) (nullable) */
static LycheeModelLoad *
ref_load (LycheeModelSlot *slot, GstElement *element)
{
  LycheeModelLoad *load;

  GST_OBJECT_LOCK (element);
  load = slot->load != NULL ? lychee_model_load_ref (slot->load) : NULL;
  GST_OBJECT_UNLOCK (element);
  return load;
}

/* Waits while it is being loaded, until the slot is flushing. (transfer full) (nullable): where it
 * cannot be loaded, an error message was posted */
LycheeModel *
lychee_model_slot_ref_model (LycheeModelSlot *slot, GstElement *element)
{
  g_autoptr (LycheeModelLoad) load = ref_load (slot, element);

  return load != NULL ? lychee_model_load_wait (load, &slot->flushing) : NULL;
}

/* Whether nobody has to wait for it. */
gboolean
lychee_model_slot_is_loaded (LycheeModelSlot *slot, GstElement *element)
{
  g_autoptr (LycheeModelLoad) load = ref_load (slot, element);
  g_autoptr (LycheeModel) model = load != NULL ? lychee_model_load_peek (load) : NULL;

  return model != NULL;
}

/* From a flush or a shutdown on nobody waits for the model, until that is over. */
static void
set_flushing (LycheeModelSlot *slot, GstElement *element, gboolean flushing)
{
  g_autoptr (LycheeModelLoad) load = ref_load (slot, element);

  g_atomic_int_set (&slot->flushing, flushing);
  if (load != NULL)
    lychee_model_load_wake (load);
}

gboolean
lychee_model_slot_is_flushing (LycheeModelSlot *slot)
{
  return g_atomic_int_get (&slot->flushing);
}

/* Takes the model out of @context if it is the one that @path asks for. (transfer full) */
static LycheeModelLoad *
load_from_context (GstContext *context, const char *path)
{
  const GstStructure *structure;
  g_autoptr (LycheeModel) model = NULL;
  LycheeModelLoad *load = NULL;
  const char *context_path;

  if (context == NULL || !gst_context_has_context_type (context, LYCHEE_MODEL_CONTEXT_TYPE))
    return NULL;
  structure = gst_context_get_structure (context);
  context_path = gst_structure_get_string (structure, "path");
  if (path != NULL && g_strcmp0 (path, context_path) != 0)
    return NULL;
  if (gst_structure_get (structure, "load", LYCHEE_TYPE_MODEL_LOAD, &load, NULL)) {
    if (lychee_model_load_is_over (load))
      g_clear_pointer (&load, lychee_model_load_unref);
  } else if (gst_structure_get (structure, "model", LYCHEE_TYPE_MODEL, &model, NULL) &&
             model != NULL) {
    load = lychee_model_load_new (
        model, context_path != NULL ? context_path : lychee_model_get_path (model));
  }
  return load;
}

static gboolean
query_pad (GstElement *element, GstPad *pad, gpointer query)
{
  /* FALSE ends the iteration: somebody answered. */
  return !gst_pad_peer_query (pad, query);
}

/* Asks the elements that @element is linked to in one direction. (transfer full) (nullable) */
static LycheeModelLoad *
load_from_neighbours (GstElement *element, GstPadDirection direction, const char *path)
{
  GstQuery *query = gst_query_new_context (LYCHEE_MODEL_CONTEXT_TYPE);
  GstContext *context = NULL;
  LycheeModelLoad *load;

  if (path != NULL)
    gst_structure_set (gst_query_writable_structure (query), "path", G_TYPE_STRING, path, NULL);
  if (direction == GST_PAD_SRC)
    gst_element_foreach_src_pad (element, query_pad, query);
  else
    gst_element_foreach_sink_pad (element, query_pad, query);
  gst_query_parse_context (query, &context);
  load = load_from_context (context, path);
  gst_query_unref (query);
  return load;
}

/* (transfer full) (nullable) */
static LycheeModelLoad *
load_from_own_context (GstElement *element, const char *path)
{
  GstContext *context = gst_element_get_context (element, LYCHEE_MODEL_CONTEXT_TYPE);
  LycheeModelLoad *load = load_from_context (context, path);

  g_clear_pointer (&context, gst_context_unref);
  return load;
}

static char *
absolute_path (const char *path)
{
  return path != NULL ? g_canonicalize_filename (path, NULL) : NULL;
}

/* Own context, downstream, upstream, the application, and last a fresh one, which the others are
 * told of. (transfer full) */
static LycheeModelLoad *
find_or_load (GstElement *element, const char *path)
{
  LycheeModelLoad *load;
  GstMessage *message;
  const char *environment, *whence = NULL;
  char *file;

  if ((load = load_from_own_context (element, path)) != NULL ||
      (load = load_from_neighbours (element, GST_PAD_SRC, path)) != NULL ||
      (load = load_from_neighbours (element, GST_PAD_SINK, path)) != NULL) {
    GST_INFO_OBJECT (element, "shares model %s", lychee_model_load_get_path (load));
    return load;
  }

  message = gst_message_new_need_context (GST_OBJECT_CAST (element), LYCHEE_MODEL_CONTEXT_TYPE);
  if (path != NULL)
    gst_structure_set (
        (GstStructure *) gst_message_get_structure (message), "path", G_TYPE_STRING, path, NULL);
  gst_element_post_message (element, message);
  if ((load = load_from_own_context (element, path)) != NULL) {
    GST_INFO_OBJECT (element, "was given model %s", lychee_model_load_get_path (load));
    return load;
  }

  environment = g_getenv ("LYCHEE_MODEL");
  if (path != NULL) {
    file = g_strdup (path);
  } else if (environment != NULL && *environment != '\0') {
    file = absolute_path (environment);
    whence = "The environment variable LYCHEE_MODEL names the model";
  } else {
    file = g_strdup (LYCHEE_DEFAULT_MODEL);
    whence = "No model was named (property “model”, environment variable LYCHEE_MODEL), and the "
             "default one cannot be used";
  }
  load = lychee_model_load_start (element, file, whence);
  g_free (file);
  return load;
}

static void
open_slot (LycheeModelSlot *slot, GstElement *element)
{
  LycheeModelLoad *load, *old;
  char *given = lychee_model_slot_dup_path (slot, element);
  char *path = absolute_path (given);

  init_debug ();
  g_rec_mutex_lock (&context_lock);
  load = find_or_load (element, path);
  GST_OBJECT_LOCK (element);
  old = slot->load;
  slot->load = lychee_model_load_ref (load);
  GST_OBJECT_UNLOCK (element);
  g_rec_mutex_unlock (&context_lock);

  lychee_model_load_add_user (load, element);
  lychee_model_load_unref (load);
  g_clear_pointer (&old, lychee_model_load_unref);
  g_free (given);
  g_free (path);
}

static void
close_slot (LycheeModelSlot *slot, GstElement *element)
{
  LycheeModelLoad *load;

  GST_OBJECT_LOCK (element);
  load = g_steal_pointer (&slot->load);
  GST_OBJECT_UNLOCK (element);
  if (load == NULL)
    return;
  lychee_model_load_remove_user (load, element);
  lychee_model_load_unref (load);
}

/**
 * lychee_model_slot_before_change:
 * @slot: the element's slot
 * @element: the element
 * @transition: a change of its state, before its parent class makes it
 *
 * On the way to READY, finds the model that the slot's path names in the pipeline, or has it
 * loaded: a thread does that, and an error message tells where it fails. On the way back from
 * PAUSED nobody waits for it any more.
 */
void
lychee_model_slot_before_change (
    LycheeModelSlot *slot, GstElement *element, GstStateChange transition)
{
  if (transition == GST_STATE_CHANGE_NULL_TO_READY)
    open_slot (slot, element);
  else if (transition == GST_STATE_CHANGE_READY_TO_PAUSED)
    set_flushing (slot, element, FALSE);
  else if (transition == GST_STATE_CHANGE_PAUSED_TO_READY)
    set_flushing (slot, element, TRUE);
}

/* After its parent class made it. The next stream's caps are judged afresh. */
void
lychee_model_slot_after_change (
    LycheeModelSlot *slot, GstElement *element, GstStateChange transition)
{
  if (transition == GST_STATE_CHANGE_READY_TO_NULL) {
    close_slot (slot, element);
  } else if (transition == GST_STATE_CHANGE_PAUSED_TO_READY) {
    GST_OBJECT_LOCK (element);
    g_clear_pointer (&slot->refused, g_free);
    GST_OBJECT_UNLOCK (element);
  }
}

/* A flush at the sink pad ends the waiting for the model. */
void
lychee_model_slot_note_event (LycheeModelSlot *slot, GstElement *element, GstEvent *event)
{
  if (GST_EVENT_TYPE (event) == GST_EVENT_FLUSH_START)
    set_flushing (slot, element, TRUE);
  else if (GST_EVENT_TYPE (event) == GST_EVENT_FLUSH_STOP)
    set_flushing (slot, element, FALSE);
}

/**
 * lychee_model_slot_answer_query:
 * @slot: the element's slot
 * @element: the element
 * @query: any query
 *
 * Answers a context query from the model of the slot. An element whose path is set but that is not
 * READY yet has it loaded now, so that naming a model on one element is enough.
 *
 * Returns: %FALSE when the query is another, or this element has no answer: pass it on
 */
gboolean
lychee_model_slot_answer_query (LycheeModelSlot *slot, GstElement *element, GstQuery *query)
{
  const char *type, *wanted;
  char *given, *path;
  LycheeModelLoad *load;
  GstContext *context;
  gboolean answered = FALSE;

  if (GST_QUERY_TYPE (query) != GST_QUERY_CONTEXT || !gst_query_parse_context_type (query, &type) ||
      g_strcmp0 (type, LYCHEE_MODEL_CONTEXT_TYPE) != 0)
    return FALSE;

  wanted = gst_structure_get_string (gst_query_get_structure (query), "path");
  given = lychee_model_slot_dup_path (slot, element);
  path = absolute_path (given);
  load = ref_load (slot, element);

  if (load == NULL && path != NULL && (wanted == NULL || g_str_equal (wanted, path))) {
    g_rec_mutex_lock (&context_lock);
    load = load_from_own_context (element, path);
    if (load == NULL)
      load = lychee_model_load_start (element, path, NULL);
    g_rec_mutex_unlock (&context_lock);
  }

  if (load != NULL) {
    char *own_path = absolute_path (lychee_model_load_get_path (load));

    if (wanted == NULL || g_str_equal (wanted, own_path)) {
      context = lychee_model_load_new_context (load);
      gst_query_set_context (query, context);
      gst_context_unref (context);
      answered = TRUE;
    }
    g_free (own_path);
    lychee_model_load_unref (load);
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
  init_debug ();
  for (guint i = 0; i < 3 && id != NULL; i++) {
    g_autoptr (LycheeModelLoad) load =
        i == 0 ? load_from_own_context (element, NULL)
               : load_from_neighbours (element, i == 1 ? GST_PAD_SINK : GST_PAD_SRC, NULL);
    g_autoptr (LycheeModel) model = load != NULL ? lychee_model_load_peek (load) : NULL;

    if (model != NULL && g_str_equal (lychee_model_get_id (model), id))
      return g_steal_pointer (&model);
  }
  return NULL;
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
 * was posted; where the element's cannot be loaded, that one.
 */
gboolean
lychee_model_slot_check_caps (
    LycheeModelSlot *slot, GstElement *element, GstPad *pad, GstCaps *caps)
{
  const char *id = gst_structure_get_string (gst_caps_get_structure (caps, 0), "model");
  g_autoptr (LycheeModel) model = lychee_model_slot_ref_model (slot, element);

  if (model == NULL)
    return FALSE;
  if (id == NULL)
    id = "(none)";
  if (g_str_equal (id, lychee_model_get_id (model)))
    return TRUE;
  if (note_refused (slot, element, id)) {
    /* The caps have only the id; who made them can say which file that is. */
    g_autoptr (LycheeModelLoad) load = load_from_neighbours (element, GST_PAD_SINK, NULL);
    g_autoptr (LycheeModel) other = load != NULL ? lychee_model_load_peek (load) : NULL;
    const char *path = other != NULL && g_strcmp0 (lychee_model_get_id (other), id) == 0
                           ? lychee_model_get_path (other)
                           : "a file that is not known here";

    GST_ELEMENT_ERROR (element, CORE, NEGOTIATION,
        ("The elements of this pipeline use different models: what arrives was made with model %s "
         "(%s), this element has model %s (%s).",
            id, path, lychee_model_get_id (model), lychee_model_get_path (model)),
        ("caps %" GST_PTR_FORMAT " on pad %s", caps, GST_PAD_NAME (pad)));
  }
  return FALSE;
}
