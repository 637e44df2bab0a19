/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>

#include "lychee-answer.h"
#include "lychee-enums.h"
#include "lychee-model.h"
#include "lychee-question.h"

G_BEGIN_DECLS

#define LYCHEE_SESSION_ERROR (lychee_session_error_quark ())

/**
 * LycheeSessionError:
 * @LYCHEE_SESSION_ERROR_EMPTY: there is no transcript to answer from
 * @LYCHEE_SESSION_ERROR_TEMPLATE: the model's chat template is not known: set "template"
 * @LYCHEE_SESSION_ERROR_NO_ROOM: question and answer do not fit into the context any more
 * @LYCHEE_SESSION_ERROR_CACHE: keys and values come from another model, as can be in a pipeline
 * @LYCHEE_SESSION_ERROR_WRITE: the file cannot be written
 * @LYCHEE_SESSION_ERROR_READ: the file cannot be opened or read
 * @LYCHEE_SESSION_ERROR_DAMAGED: the file is no saved session, or was cut short or altered
 * @LYCHEE_SESSION_ERROR_VERSION: another version, or another kind of machine, wrote the file
 * @LYCHEE_SESSION_ERROR_MODEL: the session was saved with another model
 *
 * Why a session cannot read or answer.
 */
typedef enum {
  LYCHEE_SESSION_ERROR_EMPTY,
  LYCHEE_SESSION_ERROR_TEMPLATE,
  LYCHEE_SESSION_ERROR_NO_ROOM,
  LYCHEE_SESSION_ERROR_CACHE,
  LYCHEE_SESSION_ERROR_WRITE,
  LYCHEE_SESSION_ERROR_READ,
  LYCHEE_SESSION_ERROR_DAMAGED,
  LYCHEE_SESSION_ERROR_VERSION,
  LYCHEE_SESSION_ERROR_MODEL,
} LycheeSessionError;

#define LYCHEE_TYPE_SESSION_ERROR (lychee_session_error_get_type ())
LYCHEE_API GType lychee_session_error_get_type (void);
LYCHEE_API GQuark lychee_session_error_quark (void);

#define LYCHEE_TYPE_SESSION (lychee_session_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeSession, lychee_session, LYCHEE, SESSION, GObject)

LYCHEE_API LycheeSession *lychee_session_new (LycheeModel *model);
LYCHEE_API LycheeModel *lychee_session_get_model (LycheeSession *session);
LYCHEE_API GPtrArray *lychee_session_get_chunks (LycheeSession *session);

LYCHEE_API GVariant *lychee_session_get_stats (LycheeSession *session);

LYCHEE_API gboolean lychee_session_begin (
    LycheeSession *session, GCancellable *cancellable, GError **error);

LYCHEE_API gboolean lychee_session_append (
    LycheeSession *session, LycheeChunk *chunk, GCancellable *cancellable, GError **error);

LYCHEE_API gboolean lychee_session_append_text (LycheeSession *session, const char *text,
    const char *speaker, guint64 start, guint64 end, GCancellable *cancellable, GError **error);
LYCHEE_API void lychee_session_append_text_async (LycheeSession *session, const char *text,
    const char *speaker, guint64 start, guint64 end, GCancellable *cancellable,
    GAsyncReadyCallback callback, gpointer user_data);
LYCHEE_API gboolean lychee_session_append_text_finish (
    LycheeSession *session, GAsyncResult *result, GError **error);
LYCHEE_API gboolean lychee_session_flush (
    LycheeSession *session, GCancellable *cancellable, GError **error);
LYCHEE_API void lychee_session_flush_async (LycheeSession *session, GCancellable *cancellable,
    GAsyncReadyCallback callback, gpointer user_data);
LYCHEE_API gboolean lychee_session_flush_finish (
    LycheeSession *session, GAsyncResult *result, GError **error);
LYCHEE_API guint64 lychee_session_truncate (LycheeSession *session, guint64 time);

LYCHEE_API LycheeSession *lychee_session_fork (LycheeSession *session, GError **error);
LYCHEE_API gboolean lychee_session_save (
    LycheeSession *session, const char *path, GCancellable *cancellable, GError **error);
LYCHEE_API gboolean lychee_session_load (
    LycheeSession *session, const char *path, GCancellable *cancellable, GError **error);

/**
 * LycheeTextFunc:
 * @text: a new piece of the answer: whole UTF-8 characters, never empty
 * @user_data: what was given with the function
 *
 * Called with each new piece of an answer.
 *
 * Returns: FALSE to stop: the answer is then %LYCHEE_FINISH_CANCELLED
 */
typedef gboolean (*LycheeTextFunc) (const char *text, gpointer user_data);

LYCHEE_API LycheeAnswer *lychee_session_ask (LycheeSession *session, LycheeQuestion *question,
    LycheeTextFunc func, gpointer user_data, GCancellable *cancellable, GError **error);
LYCHEE_API void lychee_session_ask_async (LycheeSession *session, LycheeQuestion *question,
    LycheeTextFunc func, gpointer func_data, GDestroyNotify func_destroy, GCancellable *cancellable,
    GAsyncReadyCallback callback, gpointer user_data);
LYCHEE_API LycheeAnswer *lychee_session_ask_finish (
    LycheeSession *session, GAsyncResult *result, GError **error);

G_END_DECLS
