/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-model.h"

#include <ggml.h>
#include <gguf.h>

G_BEGIN_DECLS

/* A GGUF file, mapped into memory, or the parts of one that was split ("-00001-of-00003.gguf"):
 * checked as a whole before anything is read, so that all that it announces is there. Errors are
 * of LYCHEE_MODEL_ERROR and name the key or tensor. */
typedef struct _LycheeGguf LycheeGguf;

/* @path: the file, or the first of its parts; the others lie beside it. */
LycheeGguf *lychee_gguf_open (const char *path, GError **error);
void lychee_gguf_free (LycheeGguf *gguf);

/* The keys, which all lie in the first part. */
const struct gguf_context *lychee_gguf_get_keys (LycheeGguf *gguf);
/* `general.architecture`, always there. */
const char *lychee_gguf_get_architecture (LycheeGguf *gguf);
/* Hash of metadata and tensor tables (transfer full). */
char *lychee_gguf_get_id (LycheeGguf *gguf);
/* Bytes of all parts. */
guint64 lychee_gguf_get_size (LycheeGguf *gguf);
/* (nullable): its data lies in the mapped file. */
struct ggml_tensor *lychee_gguf_get_tensor (LycheeGguf *gguf, const char *name);

/* Keys of the architecture ("block_count" is `llama.block_count`). Each reader checks the type:
 * ggml aborts on a wrong one. @value keeps what it has where the key is missing and not @required.
 */
gboolean lychee_gguf_get_uint (
    LycheeGguf *gguf, const char *key, gboolean required, guint *value, GError **error);
/* Finite and not negative. */
gboolean lychee_gguf_get_float (
    LycheeGguf *gguf, const char *key, gboolean required, float *value, GError **error);
/* A list of truth values, true or whole numbers, at least @n of them; @found says whether it was
 * there and a list. */
gboolean lychee_gguf_get_flags (
    LycheeGguf *gguf, const char *key, gboolean *flags, guint n, gboolean *found, GError **error);
/* (transfer full) (nullable): the text of a key, by its whole name, which may be missing or of any
 * type. */
char *lychee_gguf_get_string (LycheeGguf *gguf, const char *name);

/* Sets an error of LYCHEE_MODEL_ERROR. FALSE, always. */
gboolean lychee_model_fail (GError **error, LycheeModelError code, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeGguf, lychee_gguf_free)

G_END_DECLS
