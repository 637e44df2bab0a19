/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Loading a model without blocking. */
#include "lychee-model.h"

static void
load (GTask *task, gpointer source, gpointer path, GCancellable *cancellable)
{
  GError *error = NULL;
  LycheeModel *model = lychee_model_new_from_file (path, &error);

  if (model)
    g_task_return_pointer (task, model, g_object_unref);
  else
    g_task_return_error (task, error);
}

/**
 * lychee_model_new_async:
 * @path: a GGUF file
 * @cancellable: (nullable): a cancellable
 * @callback: (nullable) (scope async) (closure user_data): called when it is loaded
 * @user_data: for @callback
 *
 * Loads a model as [ctor@Model.new_from_file] does, without blocking. @callback is called in the
 * thread-default main context of the moment, and at once when @cancellable is cancelled. May be
 * called in any thread.
 */
void
lychee_model_new_async (
    const char *path, GCancellable *cancellable, GAsyncReadyCallback callback, gpointer user_data)
{
  GTask *task;

  g_return_if_fail (path != NULL);
  g_return_if_fail (cancellable == NULL || G_IS_CANCELLABLE (cancellable));

  task = g_task_new (NULL, cancellable, callback, user_data);
  g_task_set_source_tag (task, lychee_model_new_async);
  g_task_set_name (task, "lychee_model_new_async");
  g_task_set_task_data (task, g_strdup (path), g_free);
  g_task_set_return_on_cancel (task, TRUE);
  g_task_run_in_thread (task, load);
  g_object_unref (task);
}

/**
 * lychee_model_new_finish: (constructor)
 * @result: what the callback was given
 * @error: return location for an error
 *
 * Ends [func@Model.new_async].
 *
 * Returns: (transfer full): the model; %NULL as from [ctor@Model.new_from_file], or with
 *   %G_IO_ERROR_CANCELLED
 */
LycheeModel *
lychee_model_new_finish (GAsyncResult *result, GError **error)
{
  g_return_val_if_fail (g_task_is_valid (result, NULL), NULL);

  return g_task_propagate_pointer (G_TASK (result), error);
}
