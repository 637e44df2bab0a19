/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any tokens, speakers, paragraphs and drains, under each detector: every id once and in order,
 * text valid, chunks and memory bounded. Input: settings; then for each token a byte of what it is
 * and its text. */

#include "fuzz.h"

#include "lychee-chunker.h"
#include "lychee-text-join.h"
#include "tiny-model.h"

#include <string.h>

static LycheeModel *model;

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *dir = g_dir_make_tmp ("lychee-fuzz-XXXXXX", NULL);
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "tiny.gguf");

  model = lychee_model_new_from_file (path, NULL);
  g_assert_nonnull (model);
  lychee_test_remove_dir (dir);
  return 0;
}

static void
check_chunks (GPtrArray *chunks, guint max, gint32 *next)
{
  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = chunks->pdata[i];

    g_assert_cmpuint (chunk->n_ids, >, 0);
    g_assert_cmpuint (chunk->n_ids, <=, max);
    g_assert_true (g_utf8_validate (chunk->text, -1, NULL));
    for (guint j = 0; j < chunk->n_ids; j++)
      g_assert_cmpint (chunk->ids[j], ==, (*next)++);
  }
  g_ptr_array_set_size (chunks, 0);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  static const char *const speakers[] = { NULL, "A", "B", "" };
  g_autoptr (GPtrArray) chunks =
      g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  g_autoptr (LycheeChunker) chunker = NULL;
  guint min, max, lookahead;
  gint32 id = 0, next = 0;
  gsize at = 4, before = 0;

  if (size < 5)
    return 0;
  size = MIN (size, 4096);
  max = data[1] % 40 + 1;
  min = data[2] % 40 + 1;
  lookahead = 8 + data[3] % 40;
  chunker = g_object_new (LYCHEE_TYPE_CHUNKER, "model", data[0] & 4 ? NULL : model, "detector",
      data[0] % 3, "min-tokens", min, "max-tokens", max, "lookahead", lookahead, "threshold",
      (data[0] >> 4) / 8.0, NULL);
  while (at < size) {
    guint8 what = data[at++];
    gsize length = MIN (what & 15, size - at);
    LycheeChunkerToken token = { id++, (const char *) data + at, length, speakers[what >> 4 & 3],
      what & 1 ? (guint64) id * 10 : LYCHEE_TIME_NONE, what & 2 ? (guint64) id : LYCHEE_TIME_NONE,
      (what & 0xF0) == 0xF0 };

    lychee_text_get_separator (
        (const char *) data + before, at - before, token.text, token.text_length);
    before = at;
    at += length;
    lychee_chunker_push (chunker, &token, chunks);
    g_assert_cmpuint (
        lychee_chunker_get_n_open (chunker), <=, lookahead + max + MIN (min, max) + 16 + 9);
    if (what == 0xC0)
      lychee_chunker_drain (chunker, chunks);
    if (what >> 4 == 0xB)
      lychee_chunker_hasten (chunker, (what & 15) * 4, chunks);
    check_chunks (chunks, max, &next);
  }
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, max, &next);
  g_assert_cmpint (next, ==, id);
  return 0;
}
