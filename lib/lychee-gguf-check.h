/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Checks all of a GGUF file's header against the file: ggml's reader trusts counts and lengths more
 * than a file from anywhere deserves, and does not say which key or tensor is wrong. After TRUE
 * gguf_init_from_buffer() reads it safely, and every tensor lies inside the file.
 * @header_size: (out): bytes before the tensor data: metadata and tensor table.
 * Errors: LYCHEE_MODEL_ERROR, naming the key or tensor (not the file: the caller does). */
gboolean lychee_gguf_check (const guint8 *data, gsize size, gsize *header_size, GError **error);

G_END_DECLS
