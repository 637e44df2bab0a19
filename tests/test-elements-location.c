/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheeindexer's location: a pipeline goes on where another one stopped. */

#include "test-elements-common.h"

#include "lychee-meta.h"
#include "tiny-model.h"

#include <glib/gstdio.h>

#define CHAIN                                                                                      \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "model=MODEL "                                                                                   \
  "system-prompt=\"\" "

/* How much a chain read that says @n lines after @first, with its session kept in @path. */
static guint64
read_with_location (const char *path, guint first, guint n, gboolean eos, guint64 *first_tokens)
{
  g_autofree char *description = g_strconcat (CHAIN " location=", path, NULL);
  guint64 tokens = 0;
  GstBuffer *buffer;
  Chain chain;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  if (n > 0)
    test_chain_say_much (&chain, first, n);
  if (eos)
    gst_harness_push_event (chain.harness, gst_event_new_eos ());
  *first_tokens = 0;
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    tokens = test_kv_meta (buffer)->transcript_tokens;
    if (*first_tokens == 0)
      *first_tokens = tokens;
    gst_buffer_unref (buffer);
  }
  test_chain_clear (&chain);
  return tokens;
}

/* A pipeline goes on where another one stopped, at its end or before; one that says nothing more
 * tells what there is. */
static void
test_location (void)
{
  g_autofree char *dir = g_dir_make_tmp ("lychee-indexer-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (dir, "session", NULL);
  guint64 first, saved, more;

  saved = read_with_location (path, 0, 6, TRUE, &first);
  g_assert_cmpuint (saved, >, 50);
  g_assert_cmpuint (first, <, saved);
  g_assert_cmpuint (read_with_location (path, 0, 0, TRUE, &first), ==, saved);
  g_assert_cmpuint (first, ==, saved);
  more = read_with_location (path, 6, 6, FALSE, &first);
  g_assert_cmpuint (first, ==, saved);
  g_assert_cmpuint (more, >, saved);
  g_assert_cmpuint (read_with_location (path, 0, 0, TRUE, &first), ==, more);
  g_unlink (path);
  g_rmdir (dir);
}

/* What a pipeline answers at its end that says @n lines, with its session kept in @path, and how it
 * keeps keys and values. */
static char *
answer_with_location (
    const char *model, const char *path, const char *cache_type, guint n, char **type)
{
  g_autofree char *line = g_strdup_printf (CHAIN
      " cache-type=%s location=%s ! lycheedecoder model=MODEL prompt=Well? max-tokens=12",
      cache_type, path);
  g_auto (GStrv) parts = g_strsplit (line, "MODEL", -1);
  g_autofree char *description = g_strjoinv (model, parts);
  g_autoptr (GString) answer = g_string_new (NULL);
  g_autoptr (GstElement) indexer = NULL;
  g_autoptr (GstPad) pad = NULL;
  g_autoptr (GstCaps) caps = NULL;
  GstBuffer *buffer = NULL;
  Chain chain;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, n);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  while (gst_harness_pull_until_eos (chain.harness, &buffer) && buffer) {
    GstMapInfo map;

    g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
    g_string_append_len (answer, (const char *) map.data, map.size);
    gst_buffer_unmap (buffer, &map);
    gst_buffer_unref (buffer);
  }
  indexer = test_chain_get (&chain, "i");
  pad = gst_element_get_static_pad (indexer, "src");
  caps = gst_pad_get_current_caps (pad);
  *type = g_strdup (gst_structure_get_string (gst_caps_get_structure (caps, 0), "type"));
  gst_clear_object (&indexer);
  test_chain_clear (&chain);
  return g_string_free (g_steal_pointer (&answer), FALSE);
}

/* A pipeline that goes on answers as the first one did, and keeps keys and values as that did,
 * whatever it was told; a file of q8_0 is about half as large. */
static void
test_location_types (void)
{
  const struct {
    const char *first, *second;
  } cases[] = { { "f16", "f16" }, { "f16", "q8_0" }, { "q8_0", "q8_0" }, { "q8_0", "f16" } };
  g_autofree char *dir = g_dir_make_tmp ("lychee-indexer-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (dir, "session", NULL), *model = NULL;
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  goffset sizes[G_N_ELEMENTS (cases)];

  tiny.head_dim = 64; /* of q8_0's blocks of 32 */
  model = lychee_tiny_model_write (&tiny, dir, "model.gguf");
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *type = NULL, *again = NULL, *answer = NULL, *resumed = NULL;
    GStatBuf status;

    answer = answer_with_location (model, path, cases[i].first, 6, &type);
    g_assert_cmpstr (type, ==, cases[i].first);
    g_assert_cmpstr (answer, !=, "");
    g_assert_cmpint (g_stat (path, &status), ==, 0);
    sizes[i] = status.st_size;
    resumed = answer_with_location (model, path, cases[i].second, 0, &again);
    g_assert_cmpstr (again, ==, cases[i].first);
    g_assert_cmpstr (resumed, ==, answer);
    g_unlink (path);
  }
  g_assert_cmpint (sizes[2] - 8192, <, sizes[0] * 6 / 10);
  g_unlink (model);
  g_rmdir (dir);
}

/* What is no session stays as it is, and is an error. */
static void
test_location_damaged (void)
{
  g_autofree char *dir = g_dir_make_tmp ("lychee-indexer-XXXXXX", NULL);
  g_autofree char *path = g_build_filename (dir, "session", NULL);
  g_autofree char *description = g_strconcat (CHAIN " location=", path, NULL);
  g_autofree char *text = NULL;
  GstFlowReturn ret = GST_FLOW_OK;
  Chain chain;

  g_assert_true (g_file_set_contents (path, "My notes.", -1, NULL));
  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  for (guint i = 0; i < 40 && ret == GST_FLOW_OK; i++)
    ret = test_chain_say (&chain, "This is a line of the talk.", i);
  g_assert_cmpint (ret, !=, GST_FLOW_OK);
  test_assert_error (
      test_wait_error (chain.bus), GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_READ, path);
  test_chain_clear (&chain);
  g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
  g_assert_cmpstr (text, ==, "My notes.");
  g_unlink (path);
  g_rmdir (dir);
}

static void
add_tests (void)
{
  g_test_add_func ("/location/resumed", test_location);
  g_test_add_func ("/location/types", test_location_types);
  g_test_add_func ("/location/damaged", test_location_damaged);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
