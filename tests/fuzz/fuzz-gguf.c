/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A model's file with bytes changed: it is refused with an error, or can be used. Input: changes,
 * each a place (four bytes, little endian, modulo the file's length), a length, and the bytes to
 * put there; a length of 255 cuts the file there. Or a whole file, which begins with GGUF. */

#define _GNU_SOURCE /* memfd_create() */
#include "fuzz.h"

#include "lychee-model-private.h"
#include "tiny-model.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *base;
static gsize base_size;

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  LycheeTinyModel tiny = {
    .seed = 1,
    .n_layers = 1,
    .n_embd = 16,
    .n_heads = 2,
    .n_kv_heads = 1,
    .head_dim = 8,
    .n_ff = 16,
    .n_context = 64,
    .type = GGML_TYPE_F32,
    .tied = TRUE,
    .rope_freq_base = 10000,
  };
  g_autofree char *dir = g_dir_make_tmp ("lychee-fuzz-XXXXXX", NULL);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "tiny.gguf");

  g_assert_true (g_file_get_contents (path, &base, &base_size, NULL));
  lychee_test_remove_dir (dir);
  return 0;
}

static void
use (LycheeModel *model)
{
  static const char text[] = "the hat, and \xc3\xa9t\xc3\xa9 <|im_end|> \xff 12";
  LycheeTokenizer *tokenizer = lychee_model_get_tokenizer (model);
  g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  struct ggml_tensor *table = lychee_model_get_tensors (model)->embedding;
  volatile guint8 sum = 0;
  g_autofree char *decoded = NULL;

  lychee_tokenizer_encode (tokenizer, text, -1, LYCHEE_TOKENIZER_SPECIAL, ids);
  for (guint i = 0; i < ids->len; i++)
    g_assert_cmpuint (g_array_index (ids, guint32, i), <, lychee_model_get_n_vocab (model));
  decoded = lychee_tokenizer_decode (
      tokenizer, (const gint32 *) ids->data, ids->len, LYCHEE_TOKENIZER_NONE);
  g_assert_true (g_utf8_validate (decoded, -1, NULL));
  /* All of a tensor is in the file. */
  for (gsize i = 0; i < ggml_nbytes (table); i += 64)
    sum += ((const guint8 *) table->data)[i];
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autofree char *file = NULL, *path = NULL;
  g_autoptr (GError) error = NULL;
  g_autoptr (LycheeModel) model = NULL;
  gsize length = base_size;
  int fd;

  if (size >= 4 && memcmp (data, "GGUF", 4) == 0) {
    length = size;
    file = g_memdup2 (data, size);
  } else {
    file = g_memdup2 (base, base_size);
    while (size >= 6 && length > 0) {
      gsize place = (data[0] | data[1] << 8 | data[2] << 16) % length;
      gsize n = data[4] == 255 ? 0 : MIN (MIN (data[4] % 17, size - 5), length - place);

      if (data[4] == 255)
        length = place;
      memcpy (file + place, data + 5, n);
      data += 5 + n;
      size -= 5 + n;
    }
  }

  fd = memfd_create ("lychee-fuzz", 0);
  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (write (fd, file, length), ==, (gssize) length);
  path = g_strdup_printf ("/proc/self/fd/%d", fd);
  model = lychee_model_new_from_file (path, &error);
  g_assert_true ((model != NULL) == (error == NULL));
  if (model != NULL)
    use (model);
  g_clear_object (&model);
  close (fd);
  return 0;
}
