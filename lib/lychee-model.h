/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "lychee-types.h"

G_BEGIN_DECLS

#define LYCHEE_MODEL_ERROR (lychee_model_error_quark ())

/**
 * LycheeModelError:
 * @LYCHEE_MODEL_ERROR_OPEN: the file cannot be opened or read
 * @LYCHEE_MODEL_ERROR_FORMAT: not a GGUF file, of another byte order, or of an unknown version
 * @LYCHEE_MODEL_ERROR_TRUNCATED: the file ends before what it announces
 * @LYCHEE_MODEL_ERROR_INVALID: a key or tensor is missing, or contradicts another
 * @LYCHEE_MODEL_ERROR_UNSUPPORTED: an architecture or tensor type that this library does not run
 * @LYCHEE_MODEL_ERROR_COMPUTE: the forward pass failed
 *
 * Why a model cannot be loaded or run.
 */
typedef enum {
  LYCHEE_MODEL_ERROR_OPEN,
  LYCHEE_MODEL_ERROR_FORMAT,
  LYCHEE_MODEL_ERROR_TRUNCATED,
  LYCHEE_MODEL_ERROR_INVALID,
  LYCHEE_MODEL_ERROR_UNSUPPORTED,
  LYCHEE_MODEL_ERROR_COMPUTE,
} LycheeModelError;

#define LYCHEE_TYPE_MODEL_ERROR (lychee_model_error_get_type ())
LYCHEE_API GType lychee_model_error_get_type (void);
LYCHEE_API GQuark lychee_model_error_quark (void);

#define LYCHEE_TYPE_MODEL (lychee_model_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeModel, lychee_model, LYCHEE, MODEL, GObject)

LYCHEE_API LycheeModel *lychee_model_new_from_file (const char *path, GError **error);

LYCHEE_API LycheeModel *lychee_model_new_full (
    const char *path, double rope_freq_base, GError **error);

LYCHEE_API void lychee_model_new_async (
    const char *path, GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data);
LYCHEE_API LycheeModel *lychee_model_new_finish (GAsyncResult *result, GError **error);

LYCHEE_API const char *const *lychee_model_get_warnings (LycheeModel *model);
LYCHEE_API const char *lychee_model_get_id (LycheeModel *model);
LYCHEE_API const char *lychee_model_get_path (LycheeModel *model);
LYCHEE_API const char *lychee_model_get_name (LycheeModel *model);
LYCHEE_API const char *lychee_model_get_architecture (LycheeModel *model);
LYCHEE_API const char *lychee_model_get_chat_template (LycheeModel *model);
LYCHEE_API guint lychee_model_get_n_layers (LycheeModel *model);
LYCHEE_API guint lychee_model_get_n_heads (LycheeModel *model);
LYCHEE_API guint lychee_model_get_n_kv_heads (LycheeModel *model);
LYCHEE_API guint lychee_model_get_head_dim (LycheeModel *model);
LYCHEE_API guint lychee_model_get_n_vocab (LycheeModel *model);
LYCHEE_API guint lychee_model_get_n_context (LycheeModel *model);
/* How far YaRN has to stretch its positions for a context of so many tokens; 1: not at all. */
LYCHEE_API double lychee_model_get_stretch (LycheeModel *model, guint n_context);

G_END_DECLS
