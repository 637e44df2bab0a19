/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-model.h"

G_BEGIN_DECLS

/* A model that a thread is loading, or has loaded: what the elements of a pipeline share. Loading
 * itself cannot be interrupted, but who waits for it can: then nobody is there when it ends. */
typedef struct _LycheeModelLoad LycheeModelLoad;

#define LYCHEE_TYPE_MODEL_LOAD (lychee_model_load_get_type ())
GType lychee_model_load_get_type (void);

/* Has @path loaded in a thread, and tells @element and the pipeline of it. @whence: what an error
 * begins with, where it is not who asked that named the file; static (nullable). (transfer full) */
LycheeModelLoad *lychee_model_load_start (
    GstElement *element, const char *path, const char *whence);
/* A model that somebody else loaded. (transfer full) */
LycheeModelLoad *lychee_model_load_new (LycheeModel *model, const char *path);
LycheeModelLoad *lychee_model_load_ref (LycheeModelLoad *load);
void lychee_model_load_unref (LycheeModelLoad *load);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeModelLoad, lychee_model_load_unref)

const char *lychee_model_load_get_path (LycheeModelLoad *load);
/* An element needs it from now on: that it fails is said in an error message, once. */
void lychee_model_load_add_user (LycheeModelLoad *load, GstElement *element);
void lychee_model_load_remove_user (LycheeModelLoad *load, GstElement *element);
/* Whether it failed, and all who were told of it have stopped: to be tried again. */
gboolean lychee_model_load_is_over (LycheeModelLoad *load);

/* The model if it is there by now; or once it is there, NULL where it cannot be loaded or @flushing
 * (atomic) is set, after which lychee_model_load_wake() is called. (transfer full) (nullable) */
LycheeModel *lychee_model_load_peek (LycheeModelLoad *load);
LycheeModel *lychee_model_load_wait (LycheeModelLoad *load, gint *flushing);
void lychee_model_load_wake (LycheeModelLoad *load);

/* The context by which a load is shared. (transfer full) */
GstContext *lychee_model_load_new_context (LycheeModelLoad *load);

G_END_DECLS
