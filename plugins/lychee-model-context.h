/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-model.h"

G_BEGIN_DECLS

/* The GstContext by which the elements of a pipeline share one model. Its structure has
 * "model" (LycheeModel) and "path" (string, as the model was opened). */
#define LYCHEE_MODEL_CONTEXT_TYPE "lychee.model"

/* What an element that needs a model holds: zero-initialised, all under the element's object
 * lock. */
typedef struct {
  char *path;         /* its "model" property: (nullable) */
  LycheeModel *model; /* from READY to NULL */
  char *refused;      /* the model id that an error was posted about: one is enough */
} LycheeModelSlot;

void lychee_model_slot_install_property (GObjectClass *klass, guint property_id);
void lychee_model_slot_set_path (LycheeModelSlot *slot, GstElement *element, const char *path);
char *lychee_model_slot_dup_path (LycheeModelSlot *slot, GstElement *element);
void lychee_model_slot_clear (LycheeModelSlot *slot);

gboolean lychee_model_slot_open (LycheeModelSlot *slot, GstElement *element);
void lychee_model_slot_close (LycheeModelSlot *slot, GstElement *element);
LycheeModel *lychee_model_slot_ref_model (LycheeModelSlot *slot, GstElement *element);
gboolean lychee_model_slot_answer_query (
    LycheeModelSlot *slot, GstElement *element, GstQuery *query);

LycheeModel *lychee_model_find (GstElement *element, const char *id);

void lychee_model_slot_forget_caps (LycheeModelSlot *slot, GstElement *element);
gboolean lychee_model_slot_check_caps (
    LycheeModelSlot *slot, GstElement *element, GstPad *pad, GstCaps *caps);

G_END_DECLS
