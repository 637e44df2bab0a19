/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Metas and memory that flow between the elements: what copies keep, and what mapping gives. */

#include <gst/gst.h>

#include <math.h>
#include <string.h>

#include "lychee-cache-private.h"
#include "lychee-kv-memory.h"
#include "lychee-meta.h"

static const char text[] = "Good morning";
static const LycheeToken tokens[] = { { 11, 4, 0 }, { 22, 3, 4 }, { 33, 5, 7 } };
static const gint32 ids[] = { 11, 22, 33 };

static GstBuffer *
token_buffer (const char *speaker)
{
  GstBuffer *buffer = gst_buffer_new_memdup (ids, sizeof ids);

  lychee_buffer_add_text_meta (buffer, text, strlen (text), speaker, tokens, G_N_ELEMENTS (tokens));
  return buffer;
}

static void
assert_text_meta (
    GstBuffer *buffer, const char *expected, const char *speaker, guint first, guint n)
{
  LycheeTextMeta *meta = lychee_buffer_get_text_meta (buffer);

  g_assert_nonnull (meta);
  g_assert_cmpmem (meta->text, meta->text_length, expected, strlen (expected));
  g_assert_cmpint (meta->text[meta->text_length], ==, 0);
  g_assert_cmpstr (meta->speaker, ==, speaker);
  g_assert_cmpuint (meta->n_tokens, ==, n);
  for (guint i = 0; i < n; i++) {
    g_assert_cmpint (meta->tokens[i].id, ==, tokens[first + i].id);
    g_assert_cmpuint (meta->tokens[i].length, ==, tokens[first + i].length);
    g_assert_cmpuint (meta->tokens[i].offset, ==, tokens[first + i].offset - tokens[first].offset);
  }
}

static void
test_text_survives (gconstpointer data)
{
  const char *speaker = data;
  GstBuffer *buffer = token_buffer (speaker);
  GstBuffer *copy = gst_buffer_copy (buffer);
  GstBuffer *deep = gst_buffer_copy_deep (buffer);

  gst_buffer_unref (buffer);
  assert_text_meta (copy, text, speaker, 0, 3);
  assert_text_meta (deep, text, speaker, 0, 3);
  gst_buffer_unref (copy);
  gst_buffer_unref (deep);
}

static void
test_text_region (void)
{
  static const struct {
    gsize offset, size;
    const char *text; /* NULL: not between tokens, so there is no meta */
    guint first, n;
  } cases[] = {
    { 0, 4, "Good", 0, 1 },
    { 4, 8, " morning", 1, 2 },
    { 4, 4, " mo", 1, 1 },
    { 8, 4, "rning", 2, 1 },
    { 0, 12, text, 0, 3 },
    { 8, -1, "rning", 2, 1 },
    { 2, 4, NULL, 0, 0 },
    { 0, 6, NULL, 0, 0 },
  };
  GstBuffer *buffer = token_buffer (NULL);

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    GstBuffer *part =
        gst_buffer_copy_region (buffer, GST_BUFFER_COPY_ALL, cases[i].offset, cases[i].size);

    if (cases[i].text != NULL)
      assert_text_meta (part, cases[i].text, NULL, cases[i].first, cases[i].n);
    else
      g_assert_null (lychee_buffer_get_text_meta (part));
    gst_buffer_unref (part);
  }
  gst_buffer_unref (buffer);
}

static LycheeChunk *
make_chunk (void)
{
  return lychee_chunk_new (ids, G_N_ELEMENTS (ids), text, "Ann", 5 * GST_SECOND, GST_SECOND,
      LYCHEE_BOUNDARY_SENTENCE, NAN, 7);
}

static void
test_chunk_survives (void)
{
  LycheeChunk *chunk = make_chunk ();
  GstBuffer *buffer = gst_buffer_new_memdup (ids, sizeof ids);
  GstBuffer *copy, *part;
  LycheeChunkMeta *meta;

  lychee_buffer_add_chunk_meta (buffer, chunk);
  copy = gst_buffer_copy_deep (buffer);
  part = gst_buffer_copy_region (buffer, GST_BUFFER_COPY_ALL, 0, 4);
  gst_buffer_unref (buffer);
  lychee_chunk_unref (chunk);

  meta = lychee_buffer_get_chunk_meta (copy);
  g_assert_nonnull (meta);
  g_assert_cmpstr (meta->chunk->text, ==, text);
  g_assert_cmpstr (meta->chunk->speaker, ==, "Ann");
  g_assert_cmpuint (meta->chunk->number, ==, 7);
  g_assert_cmpint (meta->chunk->boundary, ==, LYCHEE_BOUNDARY_SENTENCE);
  /* A part of a chunk is not that chunk. */
  g_assert_null (lychee_buffer_get_chunk_meta (part));
  gst_buffer_unref (copy);
  gst_buffer_unref (part);
}

#define N_LAYERS 2
#define N_KV_HEADS 2
#define HEAD_DIM 4

/* What a cache of the tests has at a place: all are different. */
static guint16
value_at (guint layer, guint part, guint head, guint token, guint i)
{
  return (((layer * 2 + part) * N_KV_HEADS + head) * HEAD_DIM + i) * 1024 + token;
}

static LycheeCache *
make_cache (guint n)
{
  LycheeCache *cache = lychee_cache_new (N_LAYERS, N_KV_HEADS, HEAD_DIM, 1024, 0);
  LycheeRows rows;

  g_assert_true (lychee_cache_reserve (cache, n, NULL));
  for (guint layer = 0; layer < N_LAYERS; layer++)
    for (guint head = 0; head < N_KV_HEADS; head++) {
      lychee_cache_get_rows (cache, layer, head, &rows);
      for (guint token = 0; token < n; token++) {
        guint16 *key = lychee_cache_get_writable (cache, layer, head, token);

        for (guint i = 0; i < HEAD_DIM; i++) {
          key[i] = value_at (layer, 0, head, token, i);
          key[rows.value_offset + i] = value_at (layer, 1, head, token, i);
        }
      }
    }
  lychee_cache_commit (cache, n);
  return cache;
}

static void
test_kv_survives (void)
{
  LycheeCache *cache = make_cache (10);
  LycheeChunk *chunk = make_chunk ();
  LycheeKVAllocator *allocator = lychee_kv_allocator_new (NULL);
  GstBuffer *buffer = gst_buffer_new ();
  GstBuffer *copy, *part;
  LycheeKVMeta *meta;

  gst_buffer_append_memory (buffer, lychee_kv_memory_new (allocator, cache, 2, 3));
  lychee_buffer_add_kv_meta (buffer, cache, chunk, 2, LYCHEE_CHAT_FORMAT_CHATML, 30);
  copy = gst_buffer_copy (buffer);
  part = gst_buffer_copy_region (buffer, GST_BUFFER_COPY_ALL, 0, 8);
  gst_buffer_unref (buffer);

  meta = lychee_buffer_get_kv_meta (copy);
  g_assert_nonnull (meta);
  g_assert_true (meta->cache == cache);
  g_assert_true (meta->chunk == chunk);
  g_assert_cmpuint (meta->position, ==, 2);
  g_assert_cmpint (meta->format, ==, LYCHEE_CHAT_FORMAT_CHATML);
  g_assert_cmpuint (meta->transcript_tokens, ==, 30);
  g_assert_null (lychee_buffer_get_kv_meta (part));
  gst_buffer_unref (copy);
  gst_buffer_unref (part);

  /* The metas' references are gone with them. */
  g_object_add_weak_pointer (G_OBJECT (cache), (gpointer *) &cache);
  g_object_unref (cache);
  g_assert_null (cache);
  lychee_chunk_unref (chunk);
  gst_object_unref (allocator);
}

/* KV memory */

typedef struct {
  LycheeCache *cache;
  LycheeKVAllocator *allocator;
  GstMemory *memory;
  guint16 *expected;
  gsize size;
} View;

static void
view_set_up (View *view, gconstpointer data)
{
  view->cache = make_cache (600);
  view->allocator = lychee_kv_allocator_new (NULL);
  /* Over the border of two pages. */
  view->memory = lychee_kv_memory_new (view->allocator, view->cache, 250, 12);
  view->size = 12 * lychee_cache_get_token_bytes (view->cache);
  view->expected = g_malloc (view->size);
  guint16 *to = view->expected;
  for (guint layer = 0; layer < N_LAYERS; layer++)
    for (guint part = 0; part < 2; part++)
      for (guint head = 0; head < N_KV_HEADS; head++)
        for (guint token = 250; token < 262; token++)
          for (guint i = 0; i < HEAD_DIM; i++)
            *to++ = value_at (layer, part, head, token, i);
  g_assert_cmpuint ((to - view->expected) * sizeof *to, ==, view->size);
}

static void
view_tear_down (View *view, gconstpointer data)
{
  gst_memory_unref (view->memory);
  g_assert_cmpint (GST_OBJECT_REFCOUNT (view->allocator), ==, 1);
  gst_object_unref (view->allocator);
  g_assert_cmpint (G_OBJECT (view->cache)->ref_count, ==, 1);
  g_object_unref (view->cache);
  g_free (view->expected);
}

static void
test_memory_read (View *view, gconstpointer data)
{
  GstMapInfo first, second;
  guint start, n;

  g_assert_true (lychee_is_kv_memory (view->memory));
  g_assert_true (lychee_kv_memory_get_cache (view->memory) == view->cache);
  g_assert_true (lychee_kv_memory_get_range (view->memory, &start, &n));
  g_assert_cmpuint (start, ==, 250);
  g_assert_cmpuint (n, ==, 12);
  g_assert_cmpuint (gst_memory_get_sizes (view->memory, NULL, NULL), ==, view->size);

  for (guint round = 0; round < 2; round++) {
    g_assert_true (gst_memory_map (view->memory, &first, GST_MAP_READ));
    g_assert_true (gst_memory_map (view->memory, &second, GST_MAP_READ));
    g_assert_true (first.data == second.data);
    g_assert_cmpmem (first.data, first.size, view->expected, view->size);
    gst_memory_unmap (view->memory, &first);
    g_assert_cmpmem (second.data, second.size, view->expected, view->size);
    gst_memory_unmap (view->memory, &second);
  }
}

static void
test_memory_write (View *view, gconstpointer data)
{
  GstMapInfo map;

  g_assert_false (gst_memory_map (view->memory, &map, GST_MAP_WRITE));
  g_assert_false (gst_memory_map (view->memory, &map, GST_MAP_READWRITE));
  g_assert_true (gst_memory_map (view->memory, &map, GST_MAP_READ));
  gst_memory_unmap (view->memory, &map);
}

/* Who wants to write gets a copy, and the cache is as it was. */
static void
test_memory_copy (View *view, gconstpointer data)
{
  GstBuffer *buffer = gst_buffer_new ();
  guint16 *after = g_malloc (view->size);
  GstMemory *copy;
  GstMapInfo map;

  copy = gst_memory_copy (view->memory, 16, 32);
  g_assert_false (lychee_is_kv_memory (copy));
  g_assert_true (gst_memory_map (copy, &map, GST_MAP_READ));
  g_assert_cmpmem (map.data, map.size, (guint8 *) view->expected + 16, 32);
  gst_memory_unmap (copy, &map);
  gst_memory_unref (copy);

  gst_buffer_append_memory (buffer, gst_memory_ref (view->memory));
  g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READWRITE));
  g_assert_cmpmem (map.data, map.size, view->expected, view->size);
  memset (map.data, 0xff, map.size);
  gst_buffer_unmap (buffer, &map);
  gst_buffer_unref (buffer);
  lychee_cache_read (view->cache, 250, 12, after);
  g_assert_cmpmem (after, view->size, view->expected, view->size);
  g_free (after);
}

static void
test_memory_share (View *view, gconstpointer data)
{
  GstMemory *a = gst_memory_share (view->memory, 16, 48);
  GstMemory *b = gst_memory_share (view->memory, 64, -1);
  GstMemory *inner = gst_memory_share (a, 8, 16);
  GstMapInfo map_a, map_b, map_inner;
  gsize offset = 0;
  guint first, n;

  g_assert_false (lychee_kv_memory_get_range (a, &first, &n));
  g_assert_true (lychee_kv_memory_get_cache (a) == view->cache);
  g_assert_true (gst_memory_map (a, &map_a, GST_MAP_READ));
  g_assert_true (gst_memory_map (b, &map_b, GST_MAP_READ));
  g_assert_true (gst_memory_map (inner, &map_inner, GST_MAP_READ));
  g_assert_cmpmem (map_a.data, map_a.size, (guint8 *) view->expected + 16, 48);
  g_assert_cmpmem (map_b.data, map_b.size, (guint8 *) view->expected + 64, view->size - 64);
  g_assert_cmpmem (map_inner.data, map_inner.size, (guint8 *) view->expected + 24, 16);
  g_assert_true (map_b.data == map_a.data + 48);
  gst_memory_unmap (a, &map_a);
  gst_memory_unmap (b, &map_b);
  gst_memory_unmap (inner, &map_inner);
  g_assert_false (gst_memory_map (a, &map_a, GST_MAP_WRITE));

  g_assert_true (gst_memory_is_span (a, b, &offset));
  g_assert_cmpuint (offset, ==, 16);
  g_assert_false (gst_memory_is_span (b, a, NULL));
  gst_memory_unref (a);
  gst_memory_unref (b);
  gst_memory_unref (inner);
}

/* Two views of tokens that follow each other are still two arrays. */
static void
test_memory_span (View *view, gconstpointer data)
{
  GstMemory *next = lychee_kv_memory_new (view->allocator, view->cache, 262, 5);

  g_assert_false (gst_memory_is_span (view->memory, next, NULL));
  gst_memory_unref (next);
}

static void
test_memory_cut_cache (View *view, gconstpointer data)
{
  GstMapInfo map;

  lychee_cache_truncate (view->cache, 255);
  g_assert_false (gst_memory_map (view->memory, &map, GST_MAP_READ));
}

static void
test_allocator_alloc (void)
{
  LycheeKVAllocator *allocator = lychee_kv_allocator_new (NULL);

  g_test_expect_message ("Lychee", G_LOG_LEVEL_WARNING, "*makes views only*");
  g_assert_null (gst_allocator_alloc (GST_ALLOCATOR (allocator), 100, NULL));
  g_test_assert_expected_messages ();
  gst_object_unref (allocator);
}

int
main (int argc, char **argv)
{
  /* The plugin must not be loaded beside what is linked here: its types would be there twice. */
  g_setenv ("GST_PLUGIN_PATH", "", TRUE);
  g_setenv ("GST_PLUGIN_SYSTEM_PATH", "", TRUE);
  gst_init (&argc, &argv);
  g_test_init (&argc, &argv, NULL);

  g_test_add_data_func ("/metas/text/copies", NULL, test_text_survives);
  g_test_add_data_func ("/metas/text/copies-speaker", "Ann", test_text_survives);
  g_test_add_func ("/metas/text/parts", test_text_region);
  g_test_add_func ("/metas/chunk/copies", test_chunk_survives);
  g_test_add_func ("/metas/kv/copies", test_kv_survives);
#define VIEW(path, function)                                                                       \
  g_test_add ("/memory/" path, View, NULL, view_set_up, function, view_tear_down)
  VIEW ("read", test_memory_read);
  VIEW ("write-refused", test_memory_write);
  VIEW ("copy", test_memory_copy);
  VIEW ("share", test_memory_share);
  VIEW ("span", test_memory_span);
  VIEW ("cut-cache", test_memory_cut_cache);
#undef VIEW
  g_test_add_func ("/memory/alloc-refused", test_allocator_alloc);
  return g_test_run ();
}
