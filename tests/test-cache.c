/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* LycheeCache: what is written is read, forks share and do not see each other, limits hold. */

#include "lychee-cache-private.h"

#include <string.h>

#define N_LAYERS 3
#define N_HEADS 2
#define DIM 8

static LycheeCache *
new_cache (guint max_tokens, guint64 max_bytes)
{
  return lychee_cache_new (N_LAYERS, N_HEADS, DIM, max_tokens, max_bytes);
}

/* A value that tells where it belongs, and who wrote it. */
static guint16
mark (guint layer, guint value, guint head, guint token, guint i, guint writer)
{
  return layer * 7919 + value * 104729 + head * 1299709 + token * 31 + i * 3 + writer * 15485863;
}

static void
append (LycheeCache *cache, guint n, guint writer)
{
  guint first = lychee_cache_get_length (cache);
  g_autoptr (GError) error = NULL;

  lychee_cache_reserve (cache, n, &error);
  g_assert_no_error (error);
  for (guint layer = 0; layer < N_LAYERS; layer++)
    for (guint head = 0; head < N_HEADS; head++) {
      LycheeRows rows;

      lychee_cache_get_rows (cache, layer, head, &rows);
      for (guint t = first; t < first + n; t++) {
        guint16 *k = lychee_cache_get_writable (cache, layer, head, t);

        for (guint i = 0; i < DIM; i++) {
          k[i] = mark (layer, 0, head, t, i, writer);
          k[rows.value_offset + i] = mark (layer, 1, head, t, i, writer);
        }
      }
    }
  lychee_cache_commit (cache, n);
}

static void
check (LycheeCache *cache, guint first, guint n, guint writer)
{
  g_autofree guint16 *data = g_malloc (n * lychee_cache_get_token_bytes (cache));
  const guint16 *at = data;

  lychee_cache_read (cache, first, n, data);
  for (guint layer = 0; layer < N_LAYERS; layer++)
    for (guint value = 0; value < 2; value++)
      for (guint head = 0; head < N_HEADS; head++)
        for (guint t = first; t < first + n; t++)
          for (guint i = 0; i < DIM; i++)
            g_assert_cmpuint (*at++, ==, mark (layer, value, head, t, i, writer));
  for (guint layer = 0; layer < N_LAYERS; layer++)
    for (guint head = 0; head < N_HEADS; head++) {
      LycheeRows rows;

      lychee_cache_get_rows (cache, layer, head, &rows);
      for (guint t = first; t < first + n; t++) {
        const guint16 *k =
            rows.pages[t >> rows.page_shift] + (t & ((1u << rows.page_shift) - 1)) * DIM;

        g_assert_cmpuint (k[1], ==, mark (layer, 0, head, t, 1, writer));
        g_assert_cmpuint (k[rows.value_offset + 2], ==, mark (layer, 1, head, t, 2, writer));
      }
    }
}

static LycheeChunk *
new_chunk (guint n, guint64 number)
{
  g_autofree gint32 *ids = g_new0 (gint32, n);

  return lychee_chunk_new (ids, n, "text", NULL, 0, 0, LYCHEE_BOUNDARY_WORD, 0, number);
}

static void
test_append (void)
{
  g_autoptr (LycheeCache) cache = new_cache (10000, 0);

  g_assert_cmpuint (lychee_cache_get_length (cache), ==, 0);
  g_assert_cmpuint (lychee_cache_get_bytes (cache), ==, 0);
  g_assert_cmpuint (lychee_cache_get_token_bytes (cache), ==, N_LAYERS * N_HEADS * 2 * DIM * 2);
  for (guint i = 0; i < 50; i++)
    append (cache, i * 3 % 40 + 1, 1);
  check (cache, 0, lychee_cache_get_length (cache), 1);
  check (cache, 250, 20, 1);
  g_assert_cmpuint (lychee_cache_get_bytes (cache), ==,
      (lychee_cache_get_length (cache) + 255) / 256 * 256 * lychee_cache_get_token_bytes (cache));
}

/* Beyond the length there is nothing, and reading it says so. */
static void
test_read_beyond (void)
{
  g_autoptr (LycheeCache) cache = new_cache (100, 0);
  g_autofree guint16 *data = g_malloc (4 * lychee_cache_get_token_bytes (cache));

  append (cache, 2, 1);
  memset (data, 0xff, 4 * lychee_cache_get_token_bytes (cache));
  lychee_cache_read (cache, 1, 4, data);
  g_assert_cmpuint (data[0], ==, mark (0, 0, 0, 1, 0, 1));
  g_assert_cmpuint (data[DIM], ==, 0);
  g_assert_cmpuint (data[4 * DIM - 1], ==, 0);
}

static void
test_fork (gconstpointer data)
{
  guint n = GPOINTER_TO_UINT (data);
  g_autoptr (LycheeCache) cache = new_cache (10000, 0);
  g_autoptr (LycheeCache) fork = NULL, second = NULL;

  if (n > 0)
    append (cache, n, 1);
  fork = lychee_cache_fork (cache, NULL);
  g_assert_cmpuint (lychee_cache_get_length (fork), ==, n);
  append (cache, 300, 1);
  append (fork, 500, 2);
  second = lychee_cache_fork (fork, NULL);
  append (second, 10, 3);
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, n + 300);
  check (cache, 0, n + 300, 1);
  if (n > 0)
    check (fork, 0, n, 1);
  check (fork, n, 500, 2);
  check (second, n, 500, 2);
  check (second, n + 500, 10, 3);
  g_clear_object (&cache);
  if (n > 0)
    check (fork, 0, n, 1);
}

static void
test_full (void)
{
  g_autoptr (LycheeCache) cache = new_cache (300, 0);
  g_autoptr (GError) error = NULL;

  append (cache, 290, 1);
  g_assert_false (lychee_cache_reserve (cache, 11, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_FULL);
  g_assert_nonnull (strstr (error->message, "290 of 300"));
  g_clear_error (&error);
  append (cache, 10, 1);
  g_assert_false (lychee_cache_reserve (cache, 1, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_FULL);
  check (cache, 0, 300, 1);
}

/* The limit holds for a cache and its forks together, and what is given back can be taken again. */
static void
test_memory (void)
{
  gsize page = 256 * N_LAYERS * N_HEADS * 2 * DIM * 2;
  g_autoptr (LycheeCache) cache = new_cache (10000, 3 * page + 10);
  g_autoptr (LycheeCache) fork = NULL;
  g_autoptr (GError) error = NULL;

  append (cache, 300, 1);
  g_assert_cmpuint (lychee_cache_get_bytes (cache), ==, 2 * page);
  fork = lychee_cache_fork (cache, &error);
  g_assert_no_error (error);
  g_assert_null (lychee_cache_fork (cache, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY);
  g_clear_error (&error);
  g_assert_false (lychee_cache_reserve (cache, 1000, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY);
  g_assert_nonnull (strstr (error->message, "max-memory"));
  g_clear_error (&error);
  g_assert_cmpuint (lychee_cache_get_bytes (cache), ==, 2 * page);
  append (cache, 212, 1); /* to the end of the second page, and no further */
  g_assert_cmpuint (lychee_cache_get_bytes (cache), ==, 2 * page);
  g_clear_object (&fork);
  append (cache, 256, 1);
  check (cache, 0, 768, 1);
  g_assert_cmpuint (lychee_cache_get_bytes (cache), ==, 3 * page);
}

static void
test_truncate (void)
{
  g_autoptr (LycheeCache) cache = new_cache (10000, 0);
  g_autoptr (LycheeCache) fork = NULL;

  append (cache, 700, 1);
  fork = lychee_cache_fork (cache, NULL);
  lychee_cache_truncate (cache, 300);
  g_assert_cmpuint (lychee_cache_get_length (cache), ==, 300);
  append (cache, 500, 2);
  check (cache, 0, 300, 1);
  check (cache, 300, 500, 2);
  check (fork, 0, 700, 1);
  lychee_cache_truncate (cache, 512);
  append (cache, 1, 3);
  check (cache, 300, 212, 2);
  check (cache, 512, 1, 3);
  lychee_cache_truncate (cache, 0);
  g_assert_cmpuint (lychee_cache_get_bytes (cache), ==, 0);
  append (cache, 5, 4);
  check (cache, 0, 5, 4);
}

static void
test_chunks (void)
{
  g_autoptr (LycheeCache) cache = new_cache (10000, 0);
  g_autoptr (LycheeCache) fork = NULL;
  guint position;

  append (cache, 20, 1);
  for (guint i = 0; i < 10; i++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (10, i);

    append (cache, 10, 1);
    lychee_cache_add_chunk (cache, chunk, 20 + 10 * i);
  }
  fork = lychee_cache_fork (cache, NULL);
  lychee_cache_truncate (cache, 55);
  g_assert_cmpuint (lychee_cache_get_n_chunks (cache), ==, 3);
  g_assert_cmpuint (lychee_cache_get_n_chunks (fork), ==, 10);
  {
    g_autoptr (LycheeChunk) chunk = lychee_cache_get_chunk (fork, 9, &position);

    g_assert_cmpuint (chunk->number, ==, 9);
    g_assert_cmpuint (position, ==, 110);
    g_assert_null (lychee_cache_get_chunk (cache, 3, NULL));
  }
}

static void
add_chunk (LycheeCache *cache, guint64 number)
{
  g_autoptr (LycheeChunk) chunk = new_chunk (10, number);

  append (cache, 10, 1);
  lychee_cache_add_chunk (cache, chunk, lychee_cache_get_length (cache) - 10);
}

static void
assert_chunks (LycheeCache *cache, const guint *numbers, guint n)
{
  guint n_places;
  g_autofree guint *places = lychee_cache_list_chunks (cache, &n_places);

  g_assert_cmpuint (lychee_cache_get_n_chunks (cache), ==, n);
  g_assert_cmpuint (n_places, ==, n);
  for (guint i = 0; i < n; i++) {
    guint position;
    g_autoptr (LycheeChunk) chunk = lychee_cache_get_chunk (cache, i, &position);

    g_assert_cmpuint (chunk->number, ==, numbers[i]);
    g_assert_cmpuint (position, ==, 10 * i);
    g_assert_cmpuint (places[2 * i], ==, 10 * i);
    g_assert_cmpuint (places[2 * i + 1], ==, 10 * (i + 1));
    g_assert_cmpuint (lychee_cache_get_item_end (cache, 10 * i + 4, 3), ==, 10 * (i + 1));
  }
}

/* Forks share the list of their chunks for as long as it is the same. */
static void
test_chunks_part (void)
{
  g_autoptr (LycheeCache) cache = new_cache (10000, 0);
  g_autoptr (LycheeCache) fork = NULL, other = NULL;

  for (guint i = 0; i < 3; i++)
    add_chunk (cache, i);
  fork = lychee_cache_fork (cache, NULL);
  add_chunk (cache, 3);
  add_chunk (fork, 30);
  add_chunk (cache, 4);
  assert_chunks (cache, (const guint[]){ 0, 1, 2, 3, 4 }, 5);
  assert_chunks (fork, (const guint[]){ 0, 1, 2, 30 }, 4);

  other = lychee_cache_fork (cache, NULL);
  lychee_cache_truncate (cache, 20);
  add_chunk (cache, 20);
  assert_chunks (cache, (const guint[]){ 0, 1, 20 }, 3);
  assert_chunks (other, (const guint[]){ 0, 1, 2, 3, 4 }, 5);
  lychee_cache_truncate (fork, 15);
  assert_chunks (fork, (const guint[]){ 0 }, 1);
  g_clear_object (&other);
  lychee_cache_truncate (cache, 10);
  add_chunk (cache, 21);
  assert_chunks (cache, (const guint[]){ 0, 21 }, 2);
}

static gpointer
fork_and_check (gpointer data)
{
  LycheeCache *cache = data;

  for (guint i = 0; i < 50; i++) {
    g_autoptr (LycheeCache) fork = lychee_cache_fork (cache, NULL);
    guint n = lychee_cache_get_length (fork);

    append (fork, 7, 2);
    check (fork, n, 7, 2);
    if (n > 0)
      check (fork, n - 1, 1, 1);
    lychee_cache_get_bytes (cache);
    n = lychee_cache_get_n_chunks (fork);
    for (guint j = 0; j < n; j++) {
      guint position;
      g_autoptr (LycheeChunk) chunk = lychee_cache_get_chunk (fork, j, &position);

      g_assert_cmpuint (chunk->number, ==, j);
      g_assert_cmpuint (position, ==, 13 * j);
    }
  }
  return NULL;
}

/* Forks taken while another thread appends. */
static void
test_threads (void)
{
  g_autoptr (LycheeCache) cache = new_cache (10000, 0);
  GThread *threads[2];

  for (guint i = 0; i < 2; i++)
    threads[i] = g_thread_new ("fork", fork_and_check, cache);
  for (guint i = 0; i < 300; i++) {
    g_autoptr (LycheeChunk) chunk = new_chunk (13, i);

    append (cache, 13, 1);
    lychee_cache_add_chunk (cache, chunk, i * 13);
  }
  for (guint i = 0; i < 2; i++)
    g_thread_join (threads[i]);
  check (cache, 0, 3900, 1);
}

int
main (int argc, char **argv)
{
  const guint lengths[] = { 0, 1, 255, 256, 257, 512, 600 };

  g_test_init (&argc, &argv, NULL);
  g_test_add_func ("/cache/append", test_append);
  g_test_add_func ("/cache/read-beyond", test_read_beyond);
  for (guint i = 0; i < G_N_ELEMENTS (lengths); i++) {
    g_autofree char *name = g_strdup_printf ("/cache/fork/%u", lengths[i]);

    g_test_add_data_func (name, GUINT_TO_POINTER (lengths[i]), test_fork);
  }
  g_test_add_func ("/cache/full", test_full);
  g_test_add_func ("/cache/memory", test_memory);
  g_test_add_func ("/cache/truncate", test_truncate);
  g_test_add_func ("/cache/chunks", test_chunks);
  g_test_add_func ("/cache/chunks/part", test_chunks_part);
  g_test_add_func ("/cache/threads", test_threads);
  return g_test_run ();
}
