/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* A forward pass in float64, written for clarity and independent of the library: attention looks at
 * all keys, nothing is shared between tokens. @round_kv: keys and values are rounded to half
 * floats, as the library's cache keeps them. @n_context: for how many positions, 0 = as trained.
 * Returns logits [n_ids][n_vocab] (transfer full). */
double *reference_forward (const char *path, const gint32 *ids, guint n_ids, gboolean round_kv,
    guint n_context, guint *n_vocab);

G_END_DECLS
