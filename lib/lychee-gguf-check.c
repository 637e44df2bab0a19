/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The format: ggml's docs/gguf.md, version 3 (2 is the same for our purpose). */

#include "lychee-gguf-check.h"

#include "lychee-model.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <gguf.h>
#include <string.h>

typedef struct {
  const guint8 *data;
  gsize size;
  gsize at;
  GError **error;
} Reader;

static gboolean G_GNUC_PRINTF (3, 4)
    fail (Reader *r, LycheeModelError code, const char *format, ...)
{
  va_list args;
  char *message;

  va_start (args, format);
  message = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error_literal (r->error, LYCHEE_MODEL_ERROR, code, message);
  g_free (message);
  return FALSE;
}

static gboolean
need (Reader *r, guint64 n, const char *what)
{
  if (n <= r->size - r->at)
    return TRUE;
  return fail (r, LYCHEE_MODEL_ERROR_TRUNCATED, "its %" G_GSIZE_FORMAT " bytes end inside %s",
      r->size, what);
}

static gboolean
read_u32 (Reader *r, guint32 *value, const char *what)
{
  if (!need (r, 4, what))
    return FALSE;
  memcpy (value, r->data + r->at, 4);
  *value = GUINT32_FROM_LE (*value);
  r->at += 4;
  return TRUE;
}

static gboolean
read_u64 (Reader *r, guint64 *value, const char *what)
{
  if (!need (r, 8, what))
    return FALSE;
  memcpy (value, r->data + r->at, 8);
  *value = GUINT64_FROM_LE (*value);
  r->at += 8;
  return TRUE;
}

/* @string: (out) (optional) (transfer full) */
static gboolean
read_string (Reader *r, char **string, const char *what)
{
  guint64 length;

  if (!read_u64 (r, &length, what) || !need (r, length, what))
    return FALSE;
  if (string && memchr (r->data + r->at, 0, length))
    return fail (r, LYCHEE_MODEL_ERROR_INVALID, "the name of %s has a NUL in it", what);
  if (string)
    *string = g_strndup ((const char *) r->data + r->at, length);
  r->at += length;
  return TRUE;
}

static gsize
scalar_size (guint32 type)
{
  switch (type) {
  case GGUF_TYPE_UINT8:
  case GGUF_TYPE_INT8:
  case GGUF_TYPE_BOOL:
    return 1;
  case GGUF_TYPE_UINT16:
  case GGUF_TYPE_INT16:
    return 2;
  case GGUF_TYPE_UINT32:
  case GGUF_TYPE_INT32:
  case GGUF_TYPE_FLOAT32:
    return 4;
  case GGUF_TYPE_UINT64:
  case GGUF_TYPE_INT64:
  case GGUF_TYPE_FLOAT64:
    return 8;
  default:
    return 0;
  }
}

static gboolean
skip_value (Reader *r, guint32 type, const char *what)
{
  guint64 n = 1;

  if (type == GGUF_TYPE_ARRAY) {
    if (!read_u32 (r, &type, what) || !read_u64 (r, &n, what))
      return FALSE;
    if (type != GGUF_TYPE_STRING && scalar_size (type) == 0)
      return fail (
          r, LYCHEE_MODEL_ERROR_INVALID, "%s is an array of an unknown type (%u)", what, type);
  }
  if (type == GGUF_TYPE_STRING) {
    /* Each takes 8 bytes at least: a false count ends here at once, not after 2^60 steps. */
    if (n > (r->size - r->at) / 8)
      return need (r, G_MAXUINT64, what);
    while (n-- > 0)
      if (!read_string (r, NULL, what))
        return FALSE;
    return TRUE;
  }
  if (scalar_size (type) == 0)
    return fail (r, LYCHEE_MODEL_ERROR_INVALID, "%s has an unknown type (%u)", what, type);
  if (n > (r->size - r->at) / scalar_size (type))
    return need (r, G_MAXUINT64, what);
  r->at += n * scalar_size (type);
  return TRUE;
}

static gboolean
check_keys (Reader *r, guint64 n, guint32 *alignment)
{
  g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);

  for (guint64 i = 0; i < n; i++) {
    g_autofree char *what = g_strdup_printf ("key number %" G_GUINT64_FORMAT, i + 1);
    g_autofree char *key = NULL;
    guint32 type;

    if (!read_string (r, &key, what))
      return FALSE;
    g_free (what);
    what = g_strdup_printf ("key “%s”", key);
    if (*key == '\0' || !g_utf8_validate (key, -1, NULL))
      return fail (r, LYCHEE_MODEL_ERROR_INVALID,
          "the name of key number %" G_GUINT64_FORMAT " is not text", i + 1);
    if (g_hash_table_contains (seen, key))
      return fail (r, LYCHEE_MODEL_ERROR_INVALID, "%s occurs twice", what);
    if (!read_u32 (r, &type, what))
      return FALSE;
    if (g_str_equal (key, "general.alignment")) {
      if (type != GGUF_TYPE_UINT32)
        return fail (r, LYCHEE_MODEL_ERROR_INVALID, "%s is not a 32-bit number", what);
      if (!read_u32 (r, alignment, what))
        return FALSE;
      if (*alignment == 0 || (*alignment & (*alignment - 1)) != 0 || *alignment > 1u << 20)
        return fail (r, LYCHEE_MODEL_ERROR_INVALID, "%s is %u, which is no power of two up to 2^20",
            what, *alignment);
    } else if (!skip_value (r, type, what)) {
      return FALSE;
    }
    g_hash_table_add (seen, g_steal_pointer (&key));
  }
  return TRUE;
}

/* @offset: where the tensor's data should begin; moved past it. */
static gboolean
check_tensor (Reader *r, guint64 i, guint32 alignment, GHashTable *seen, guint64 *offset)
{
  g_autofree char *what = g_strdup_printf ("tensor number %" G_GUINT64_FORMAT, i + 1);
  g_autofree char *name = NULL;
  guint64 ne[GGML_MAX_DIMS] = { 1, 1, 1, 1 }, at, n_elements = 1, bytes;
  guint32 n_dims, type;
  gsize type_size;
  gint64 block;

  if (!read_string (r, &name, what))
    return FALSE;
  g_free (what);
  what = g_strdup_printf ("tensor “%s”", name);
  if (*name == '\0' || strlen (name) >= GGML_MAX_NAME || !g_utf8_validate (name, -1, NULL))
    return fail (r, LYCHEE_MODEL_ERROR_INVALID,
        "the name of tensor number %" G_GUINT64_FORMAT " is empty, longer than %d bytes or no text",
        i + 1, GGML_MAX_NAME - 1);
  if (g_hash_table_contains (seen, name))
    return fail (r, LYCHEE_MODEL_ERROR_INVALID, "%s occurs twice", what);
  if (!read_u32 (r, &n_dims, what))
    return FALSE;
  if (n_dims == 0 || n_dims > GGML_MAX_DIMS)
    return fail (r, LYCHEE_MODEL_ERROR_INVALID, "%s has %u dimensions", what, n_dims);
  for (guint d = 0; d < n_dims; d++) {
    if (!read_u64 (r, &ne[d], what))
      return FALSE;
    if (ne[d] == 0 || ne[d] > G_MAXINT32 || n_elements > G_MAXINT64 / ne[d])
      return fail (r, LYCHEE_MODEL_ERROR_INVALID, "dimension %u of %s is %" G_GUINT64_FORMAT, d + 1,
          what, ne[d]);
    n_elements *= ne[d];
  }
  if (!read_u32 (r, &type, what))
    return FALSE;
  if (type >= GGML_TYPE_COUNT || ggml_type_size (type) == 0 || ggml_blck_size (type) == 0)
    return fail (r, LYCHEE_MODEL_ERROR_UNSUPPORTED,
        "%s has the type %u, which ggml does not know: a newer ggml may read it", what, type);
  type_size = ggml_type_size (type);
  block = ggml_blck_size (type);
  if (ne[0] % block != 0)
    return fail (r, LYCHEE_MODEL_ERROR_INVALID,
        "%s has rows of %" G_GUINT64_FORMAT " elements, which is no multiple of %s's blocks of %d",
        what, ne[0], ggml_type_name (type), (int) block);
  if (n_elements / block > G_MAXINT64 / type_size)
    return fail (r, LYCHEE_MODEL_ERROR_INVALID, "%s is too large", what);
  bytes = n_elements / block * type_size;
  if (!read_u64 (r, &at, what))
    return FALSE;
  if (at != *offset)
    return fail (r, LYCHEE_MODEL_ERROR_INVALID,
        "%s is said to be at offset %" G_GUINT64_FORMAT
        ", and the tensors before it end at %" G_GUINT64_FORMAT,
        what, at, *offset);
  if (bytes > r->size || at > r->size)
    return fail (r, LYCHEE_MODEL_ERROR_TRUNCATED,
        "its %" G_GSIZE_FORMAT " bytes end before the end of %s, which is %" G_GUINT64_FORMAT
        " bytes long at offset %" G_GUINT64_FORMAT,
        r->size, what, bytes, at);
  *offset = (at + bytes + alignment - 1) & ~(guint64) (alignment - 1);
  g_hash_table_insert (seen, g_steal_pointer (&name), GSIZE_TO_POINTER (at + bytes));
  return TRUE;
}

gboolean
lychee_gguf_check (const guint8 *data, gsize size, gsize *header_size, GError **error)
{
  Reader r = { data, size, 0, error };
  g_autoptr (GHashTable) tensors = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  guint32 version, alignment = GGUF_DEFAULT_ALIGNMENT;
  guint64 n_tensors, n_keys, offset = 0;
  GHashTableIter iter;
  gpointer name, end;

  if (size < 4 || memcmp (data, GGUF_MAGIC, 4) != 0)
    return fail (
        &r, LYCHEE_MODEL_ERROR_FORMAT, size == 0 ? "the file is empty" : "this is not a GGUF file");
  r.at = 4;
  if (!read_u32 (&r, &version, "the header"))
    return FALSE;
  if (version != 0 && (version & 0xffff) == 0)
    return fail (&r, LYCHEE_MODEL_ERROR_FORMAT,
        "the GGUF file is of the other byte order (big-endian): convert it for this machine");
  if (version < 2 || version > GGUF_VERSION)
    return fail (&r, LYCHEE_MODEL_ERROR_FORMAT,
        "the GGUF file is of version %u, and versions 2 and %d are known", version, GGUF_VERSION);
  if (!read_u64 (&r, &n_tensors, "the header") || !read_u64 (&r, &n_keys, "the header"))
    return FALSE;
  /* A key takes 13 bytes at least, an entry of the tensor table 32. */
  if (n_keys > size / 13)
    return fail (&r, LYCHEE_MODEL_ERROR_TRUNCATED,
        "it announces %" G_GUINT64_FORMAT " keys, more than fit into its %" G_GSIZE_FORMAT " bytes",
        n_keys, size);
  if (n_tensors > size / 32)
    return fail (&r, LYCHEE_MODEL_ERROR_TRUNCATED,
        "it announces %" G_GUINT64_FORMAT " tensors, more than fit into its %" G_GSIZE_FORMAT
        " bytes",
        n_tensors, size);

  if (!check_keys (&r, n_keys, &alignment))
    return FALSE;
  for (guint64 i = 0; i < n_tensors; i++)
    if (!check_tensor (&r, i, alignment, tensors, &offset))
      return FALSE;

  if (n_tensors > 0) /* there is nothing to align otherwise */
    r.at = (r.at + alignment - 1) & ~(gsize) (alignment - 1);
  if (r.at > size)
    return fail (&r, LYCHEE_MODEL_ERROR_TRUNCATED,
        "its %" G_GSIZE_FORMAT " bytes end before its tensors", size);
  g_hash_table_iter_init (&iter, tensors);
  while (g_hash_table_iter_next (&iter, &name, &end))
    if (GPOINTER_TO_SIZE (end) > size - r.at)
      return fail (&r, LYCHEE_MODEL_ERROR_TRUNCATED,
          "its %" G_GSIZE_FORMAT " bytes end inside tensor “%s”, and should be %" G_GUINT64_FORMAT
          " or more",
          size, (char *) name, (guint64) (r.at + GPOINTER_TO_SIZE (end)));
  *header_size = r.at;
  return TRUE;
}
