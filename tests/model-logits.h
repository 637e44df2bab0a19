/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-forward.h"

G_BEGIN_DECLS

/* What tests of models share. All abort the test on failure. */

/* Writes a file; its path (transfer full). */
char *test_model_put (const char *dir, const char *name, const void *data, gsize size);
LycheeModel *test_model_load (const char *path);
/* That loading fails with @code, and a message that has @named and the path in it. */
void test_model_expect_error (const char *path, gint code, const char *named);
LycheeCache *test_model_cache (LycheeModel *model, guint max_tokens);
/* Ids that use the whole vocabulary, the same every time. */
void test_model_ids (gint32 *ids, guint n, guint n_vocab);
/* Logits of every position, computed in passes of @step tokens on @threads threads, for a context
 * of @n_context (0: as trained); [n][n_vocab] (transfer full). */
float *test_model_logits_for (
    LycheeModel *model, const gint32 *ids, guint n, guint step, guint threads, guint n_context);
float *test_model_logits (
    LycheeModel *model, const gint32 *ids, guint n, guint step, guint threads);

G_END_DECLS
