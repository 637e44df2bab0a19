/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The format: ggml's docs/gguf.md. Splitting is llama.cpp's gguf-split: `split.no`, `split.count`
 * and `split.tensors.count` in each part, all other keys in the first. */

#include "lychee-gguf.h"

#include "lychee-gguf-check.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ID_LENGTH 16
#define MAX_PARTS 9999
/* As gguf-split names parts. */
#define PART_SUFFIX_LENGTH (sizeof "-00001-of-00002.gguf" - 1)

typedef struct {
  GMappedFile *file;
  struct gguf_context *gguf;
  struct ggml_context *tensors;
  gsize header_size;
} Part;

struct _LycheeGguf {
  Part *parts;
  guint n_parts;
  char *architecture;
};

gboolean
lychee_model_fail (GError **error, LycheeModelError code, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  if (error)
    *error = g_error_new_valist (LYCHEE_MODEL_ERROR, code, format, args);
  va_end (args);
  return FALSE;
}

static void
part_clear (Part *part)
{
  g_clear_pointer (&part->tensors, ggml_free);
  g_clear_pointer (&part->gguf, gguf_free);
  g_clear_pointer (&part->file, g_mapped_file_unref);
}

void
lychee_gguf_free (LycheeGguf *gguf)
{
  for (guint i = 0; i < gguf->n_parts; i++)
    part_clear (&gguf->parts[i]);
  g_free (gguf->parts);
  g_free (gguf->architecture);
  g_free (gguf);
}

static gboolean
part_open (Part *part, const char *path, GError **error)
{
  struct gguf_init_params params = { .no_alloc = true, .ctx = &part->tensors };
  g_autoptr (GError) local = NULL;
  const guint8 *data;
  gsize size;
  char *base;
  int fd;

  /* A pipe would be waited for, and a folder gives a riddle for a message. */
  if (g_file_test (path, G_FILE_TEST_EXISTS) && !g_file_test (path, G_FILE_TEST_IS_REGULAR))
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_OPEN,
        "Cannot open the model “%s”: it is %s, and a GGUF file is wanted", path,
        g_file_test (path, G_FILE_TEST_IS_DIR) ? "a directory" : "no regular file");
  fd = g_open (path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0)
    return lychee_model_fail (
        error, LYCHEE_MODEL_ERROR_OPEN, "Cannot open the model “%s”: %s", path, g_strerror (errno));
  part->file = g_mapped_file_new_from_fd (fd, FALSE, &local);
  g_close (fd, NULL);
  if (!part->file)
    return lychee_model_fail (
        error, LYCHEE_MODEL_ERROR_OPEN, "Cannot open the model “%s”: %s", path, local->message);
  data = (const guint8 *) g_mapped_file_get_contents (part->file);
  size = g_mapped_file_get_length (part->file);
  if (!lychee_gguf_check (data, size, &part->header_size, &local)) {
    gboolean cut = g_error_matches (local, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_TRUNCATED);

    g_propagate_prefixed_error (error, g_steal_pointer (&local), "Cannot use the model “%s”: %s",
        path, cut ? "it is incomplete, get it again: " : "");
    return FALSE;
  }
  part->gguf = gguf_init_from_buffer (data, size, params);
  if (!part->gguf)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "Cannot use the model “%s”: ggml cannot read it as GGUF (run with G_MESSAGES_DEBUG=Lychee "
        "to see why)",
        path);

  base = g_mapped_file_get_contents (part->file) + gguf_get_data_offset (part->gguf);
  for (gint64 i = 0; i < gguf_get_n_tensors (part->gguf); i++)
    ggml_get_tensor (part->tensors, gguf_get_tensor_name (part->gguf, i))->data =
        base + gguf_get_tensor_offset (part->gguf, i);
  return TRUE;
}

/* A whole number of any type and sign; FALSE: there is none. */
static gboolean
get_number (const struct gguf_context *gguf, gint64 id, gint64 *number)
{
  switch (gguf_get_kv_type (gguf, id)) {
  case GGUF_TYPE_UINT8:
    *number = gguf_get_val_u8 (gguf, id);
    return TRUE;
  case GGUF_TYPE_INT8:
    *number = gguf_get_val_i8 (gguf, id);
    return TRUE;
  case GGUF_TYPE_UINT16:
    *number = gguf_get_val_u16 (gguf, id);
    return TRUE;
  case GGUF_TYPE_INT16:
    *number = gguf_get_val_i16 (gguf, id);
    return TRUE;
  case GGUF_TYPE_UINT32:
    *number = gguf_get_val_u32 (gguf, id);
    return TRUE;
  case GGUF_TYPE_INT32:
    *number = gguf_get_val_i32 (gguf, id);
    return TRUE;
  case GGUF_TYPE_UINT64:
    *number = MIN (gguf_get_val_u64 (gguf, id), G_MAXINT64);
    return TRUE;
  case GGUF_TYPE_INT64:
    *number = gguf_get_val_i64 (gguf, id);
    return TRUE;
  default:
    return FALSE;
  }
}

static gint64
get_split (const Part *part, const char *key)
{
  gint64 id = gguf_find_key (part->gguf, key), number;

  return id >= 0 && get_number (part->gguf, id, &number) ? number : -1;
}

/* Opens the other parts of a file that was split; @path is the one that is open. */
static gboolean
open_parts (LycheeGguf *gguf, const char *path, GError **error)
{
  gint64 count = get_split (&gguf->parts[0], "split.count");
  gint64 n_wanted = get_split (&gguf->parts[0], "split.tensors.count"), n_tensors;
  gsize length = strlen (path);
  g_autofree char *suffix = NULL, *stem = NULL;

  if (count <= 1)
    return TRUE;
  if (count > MAX_PARTS)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "Cannot use the model “%s”: key “split.count” is out of range", path);
  if (get_split (&gguf->parts[0], "split.no") != 0)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "Cannot use the model “%s”: it is part %d of %d: open the first, whose name ends in "
        "-00001-of-%05d.gguf",
        path, (int) MIN (get_split (&gguf->parts[0], "split.no"), MAX_PARTS) + 1, (int) count,
        (int) count);
  suffix = g_strdup_printf ("-00001-of-%05d.gguf", (int) count);
  if (!g_str_has_suffix (path, suffix))
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "Cannot use the model “%s”: it is the first of %d parts, and its name must end in %s, so "
        "that the others are found beside it",
        path, (int) count, suffix);

  stem = g_strndup (path, length - PART_SUFFIX_LENGTH);
  gguf->parts = g_renew (Part, gguf->parts, count);
  memset (gguf->parts + 1, 0, (count - 1) * sizeof *gguf->parts);
  n_tensors = gguf_get_n_tensors (gguf->parts[0].gguf);
  for (gint64 i = 1; i < count; i++) {
    g_autofree char *name =
        g_strdup_printf ("%s-%05d-of-%05d.gguf", stem, (int) i + 1, (int) count);
    Part *part = &gguf->parts[gguf->n_parts++];
    GError *local = NULL;

    if (!part_open (part, name, &local)) {
      if (g_error_matches (local, LYCHEE_MODEL_ERROR, LYCHEE_MODEL_ERROR_OPEN))
        g_prefix_error (
            &local, "Part %d of %d is not beside the first: ", (int) i + 1, (int) count);
      g_propagate_error (error, local);
      return FALSE;
    }
    if (get_split (part, "split.no") != i || get_split (part, "split.count") != count)
      return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
          "Cannot use the model “%s”: its keys do not say that it is part %d of %d", name,
          (int) i + 1, (int) count);
    n_tensors += gguf_get_n_tensors (part->gguf);
  }
  if (n_wanted >= 0 && n_wanted != n_tensors)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "Cannot use the model “%s”: its parts have %" G_GINT64_FORMAT
        " tensors in all, and key “split.tensors.count” is %" G_GINT64_FORMAT,
        path, n_tensors, n_wanted);
  return TRUE;
}

LycheeGguf *
lychee_gguf_open (const char *path, GError **error)
{
  g_autoptr (LycheeGguf) gguf = g_new0 (LycheeGguf, 1);

  gguf->parts = g_new0 (Part, 1);
  gguf->n_parts = 1;
  if (!part_open (&gguf->parts[0], path, error) || !open_parts (gguf, path, error))
    return NULL;
  gguf->architecture = lychee_gguf_get_string (gguf, "general.architecture");
  if (!gguf->architecture) {
    lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "Cannot use the model “%s”: key “general.architecture” is missing", path);
    return NULL;
  }
  return g_steal_pointer (&gguf);
}

const struct gguf_context *
lychee_gguf_get_keys (LycheeGguf *gguf)
{
  return gguf->parts[0].gguf;
}

const char *
lychee_gguf_get_architecture (LycheeGguf *gguf)
{
  return gguf->architecture;
}

char *
lychee_gguf_get_id (LycheeGguf *gguf)
{
  g_autoptr (GChecksum) checksum = g_checksum_new (G_CHECKSUM_SHA256);

  for (guint i = 0; i < gguf->n_parts; i++)
    g_checksum_update (checksum, (const guint8 *) g_mapped_file_get_contents (gguf->parts[i].file),
        gguf->parts[i].header_size);
  return g_strndup (g_checksum_get_string (checksum), ID_LENGTH);
}

guint64
lychee_gguf_get_size (LycheeGguf *gguf)
{
  guint64 size = 0;

  for (guint i = 0; i < gguf->n_parts; i++)
    size += g_mapped_file_get_length (gguf->parts[i].file);
  return size;
}

struct ggml_tensor *
lychee_gguf_get_tensor (LycheeGguf *gguf, const char *name)
{
  struct ggml_tensor *tensor = NULL;

  for (guint i = 0; i < gguf->n_parts && !tensor; i++)
    tensor = ggml_get_tensor (gguf->parts[i].tensors, name);
  return tensor;
}

/* Keys. */

/* The key's id in the first part; -1: it is missing, which is an error where it is @required. */
static gint64
find_key (LycheeGguf *gguf, const char *key, gboolean required, char **name, GError **error)
{
  gint64 id;

  *name = g_strdup_printf ("%s.%s", gguf->architecture, key);
  id = gguf_find_key (gguf->parts[0].gguf, *name);
  if (id < 0 && required)
    lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID, "key “%s” is missing", *name);
  return id;
}

static gboolean
wrong_type (LycheeGguf *gguf, gint64 id, const char *wanted, GError **error)
{
  const struct gguf_context *keys = gguf->parts[0].gguf;

  return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID, "key “%s” is of type %s and not %s",
      gguf_get_key (keys, id), gguf_type_name (gguf_get_kv_type (keys, id)), wanted);
}

gboolean
lychee_gguf_get_uint (
    LycheeGguf *gguf, const char *key, gboolean required, guint *value, GError **error)
{
  g_autofree char *name = NULL;
  gint64 id = find_key (gguf, key, required, &name, error), n;

  if (id < 0)
    return !required;
  if (!get_number (gguf->parts[0].gguf, id, &n))
    return wrong_type (gguf, id, "a whole number", error);
  if (n < 0 || n > G_MAXINT32)
    return lychee_model_fail (
        error, LYCHEE_MODEL_ERROR_INVALID, "key “%s” has a value out of range", name);
  *value = n;
  return TRUE;
}

gboolean
lychee_gguf_get_float (
    LycheeGguf *gguf, const char *key, gboolean required, float *value, GError **error)
{
  const struct gguf_context *keys = gguf->parts[0].gguf;
  g_autofree char *name = NULL;
  gint64 id = find_key (gguf, key, required, &name, error);

  if (id < 0)
    return !required;
  if (gguf_get_kv_type (keys, id) == GGUF_TYPE_FLOAT32)
    *value = gguf_get_val_f32 (keys, id);
  else if (gguf_get_kv_type (keys, id) == GGUF_TYPE_FLOAT64)
    *value = gguf_get_val_f64 (keys, id);
  else
    return wrong_type (gguf, id, "a floating-point number", error);
  if (!isfinite (*value) || *value < 0)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID, "key “%s” is %g", name, *value);
  return TRUE;
}

gboolean
lychee_gguf_get_flags (
    LycheeGguf *gguf, const char *key, gboolean *flags, guint n, gboolean *found, GError **error)
{
  const struct gguf_context *keys = gguf->parts[0].gguf;
  g_autofree char *name = NULL;
  gint64 id = find_key (gguf, key, FALSE, &name, error);
  enum gguf_type type;

  *found = id >= 0 && gguf_get_kv_type (keys, id) == GGUF_TYPE_ARRAY;
  if (!*found)
    return TRUE;
  type = gguf_get_arr_type (keys, id);
  if (type != GGUF_TYPE_BOOL && type != GGUF_TYPE_INT32 && type != GGUF_TYPE_UINT32)
    return wrong_type (gguf, id, "a list of truth values", error);
  if (gguf_get_arr_n (keys, id) < n)
    return lychee_model_fail (error, LYCHEE_MODEL_ERROR_INVALID,
        "key “%s” has %" G_GSIZE_FORMAT " entries, and there are %u layers", name,
        gguf_get_arr_n (keys, id), n);
  for (guint i = 0; i < n; i++)
    flags[i] = type == GGUF_TYPE_BOOL ? ((const gint8 *) gguf_get_arr_data (keys, id))[i] != 0
                                      : ((const gint32 *) gguf_get_arr_data (keys, id))[i] != 0;
  return TRUE;
}

char *
lychee_gguf_get_string (LycheeGguf *gguf, const char *name)
{
  const struct gguf_context *keys = gguf->parts[0].gguf;
  gint64 id = gguf_find_key (keys, name);

  if (id < 0 || gguf_get_kv_type (keys, id) != GGUF_TYPE_STRING)
    return NULL;
  return g_utf8_make_valid (gguf_get_val_str (keys, id), -1);
}
