/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-model-load.h"

G_BEGIN_DECLS

/* The GstContext by which the elements of a pipeline share one model. Its structure has "path"
 * (string, as the model was opened) and "model" (LycheeModel), or, while that is being loaded,
 * "load" (LycheeModelLoad). */
#define LYCHEE_MODEL_CONTEXT_TYPE "lychee.model"

/* What an element that needs a model holds: zero-initialised, all under the element's object
 * lock. */
typedef struct {
  char *path;            /* its "model" property: (nullable) */
  LycheeModelLoad *load; /* from READY to NULL */
  char *refused;         /* the model id that an error was posted about: one is enough */
  gint flushing;         /* atomic, without the lock: nobody waits for the model */
} LycheeModelSlot;

void lychee_model_slot_install_property (GObjectClass *klass, guint property_id);
void lychee_model_slot_set_path (LycheeModelSlot *slot, GstElement *element, const char *path);
char *lychee_model_slot_dup_path (LycheeModelSlot *slot, GstElement *element);
void lychee_model_slot_clear (LycheeModelSlot *slot);

void lychee_model_slot_before_change (
    LycheeModelSlot *slot, GstElement *element, GstStateChange transition);
void lychee_model_slot_after_change (
    LycheeModelSlot *slot, GstElement *element, GstStateChange transition);
void lychee_model_slot_note_event (LycheeModelSlot *slot, GstElement *element, GstEvent *event);
gboolean lychee_model_slot_is_flushing (LycheeModelSlot *slot);
LycheeModel *lychee_model_slot_ref_model (LycheeModelSlot *slot, GstElement *element);
gboolean lychee_model_slot_is_loaded (LycheeModelSlot *slot, GstElement *element);
gboolean lychee_model_slot_answer_query (
    LycheeModelSlot *slot, GstElement *element, GstQuery *query);

LycheeModel *lychee_model_find (GstElement *element, const char *id);

gboolean lychee_model_slot_check_caps (
    LycheeModelSlot *slot, GstElement *element, GstPad *pad, GstCaps *caps);

G_END_DECLS
