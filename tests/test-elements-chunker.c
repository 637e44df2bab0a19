/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheechunker: ids go through unchanged, cut into chunks that have the right times, and nothing
 * stays open when the stream has no more to say. */

#include "lychee-model-tokenizer.h"
#include "test-elements-common.h"

#include <math.h>
#include <string.h>

#define TOKEN_CAPS "application/x-lychee-tokens, model=(string)some-id"
#define CHAIN "lycheetokenizer model=MODEL ! lycheechunker name=c"

/* Pushes @n ids from @first on that take a second each, the first one at @second. */
static void
push_ids (Chain *chain, gint32 first, guint n, guint second)
{
  for (guint i = 0; i < n; i++) {
    gint32 id = first + i;
    GstBuffer *buffer = gst_buffer_new_memdup (&id, sizeof id);

    GST_BUFFER_PTS (buffer) = (second + i) * GST_SECOND;
    GST_BUFFER_DURATION (buffer) = GST_SECOND;
    g_assert_cmpint (gst_harness_push (chain->harness, buffer), ==, GST_FLOW_OK);
  }
}

/* The next chunk is @n ids from @first on, said from @second on, and number @number. */
static void
assert_chunk (
    Chain *chain, gint32 first, guint n, guint second, LycheeBoundary boundary, guint64 number)
{
  GstBuffer *buffer = gst_harness_try_pull (chain->harness);
  LycheeChunkMeta *meta;
  GstMapInfo map;

  g_assert_nonnull (buffer);
  meta = test_chunk_meta (buffer);
  g_assert_nonnull (meta);
  g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
  g_assert_cmpuint (map.size, ==, n * sizeof (gint32));
  g_assert_cmpmem (map.data, map.size, meta->chunk->ids, meta->chunk->n_ids * sizeof (gint32));
  for (guint i = 0; i < n; i++)
    g_assert_cmpint (((gint32 *) map.data)[i], ==, first + (gint32) i);
  gst_buffer_unmap (buffer, &map);
  g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, second * GST_SECOND);
  g_assert_cmpuint (GST_BUFFER_DURATION (buffer), ==, n * GST_SECOND);
  g_assert_cmpuint (GST_BUFFER_OFFSET (buffer), ==, number);
  g_assert_cmpuint (meta->chunk->number, ==, number);
  g_assert_cmpint (meta->chunk->boundary, ==, boundary);
  gst_buffer_unref (buffer);
}

#define assert_no_chunk(chain) g_assert_null (gst_harness_try_pull ((chain)->harness))

static void
test_caps (void)
{
  Chain chain;
  GstPad *pad;
  GstCaps *caps, *expected;

  test_chain_init (&chain, "lycheechunker", TOKEN_CAPS);
  pad = gst_element_get_static_pad (chain.harness->element, "src");
  caps = gst_pad_get_current_caps (pad);
  expected = gst_caps_from_string ("application/x-lychee-chunks, model=(string)some-id");
  g_assert_true (gst_caps_is_equal (caps, expected));
  gst_caps_unref (caps);
  gst_caps_unref (expected);
  gst_object_unref (pad);
  test_chain_clear (&chain);
}

static void
test_times (void)
{
  Chain chain;

  test_chain_init (&chain, "lycheechunker min-tokens=4 max-tokens=4", TOKEN_CAPS);
  push_ids (&chain, 100, 10, 5);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  assert_chunk (&chain, 100, 4, 5, LYCHEE_BOUNDARY_NONE, 0);
  assert_chunk (&chain, 104, 4, 9, LYCHEE_BOUNDARY_NONE, 1);
  assert_chunk (&chain, 108, 2, 13, LYCHEE_BOUNDARY_END, 2);
  assert_no_chunk (&chain);
  test_chain_clear (&chain);
}

/* All the text and all the ids, in chunks of the sizes that were asked for. */
static void
test_text (gconstpointer data)
{
  const guint *sizes = data;
  GString *text = g_string_new (NULL);
  GArray *ids = g_array_new (FALSE, FALSE, sizeof (gint32));
  GArray *expected = g_array_new (FALSE, FALSE, sizeof (gint32));
  GString *whole = g_string_new (NULL);
  GstClockTime last = 0;
  Chain chain;
  GstElement *chunker;
  GstBuffer *buffer;
  guint n = 0, n_left;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  chunker = test_chain_get (&chain, "c");
  g_object_set (chunker, "min-tokens", sizes[0], "max-tokens", sizes[1], NULL);
  gst_object_unref (chunker);
  test_chain_say_much (&chain, 0, 20);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());

  n_left = gst_harness_buffers_in_queue (chain.harness);
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    LycheeChunk *chunk = test_chunk_meta (buffer)->chunk;

    n_left--;
    g_assert_cmpuint (chunk->number, ==, n++);
    g_assert_cmpuint (chunk->n_ids, <=, sizes[1]);
    if (n_left > 0)
      g_assert_cmpuint (chunk->n_ids, >=, MIN (sizes[0], sizes[1]));
    g_assert_true (g_utf8_validate (chunk->text, -1, NULL));
    g_assert_cmpuint (GST_BUFFER_PTS (buffer), >=, last);
    last = GST_BUFFER_PTS (buffer);
    g_string_append (text, chunk->text);
    g_array_append_vals (ids, chunk->ids, chunk->n_ids);
    gst_buffer_unref (buffer);
  }

  for (guint i = 0; i < 20; i++)
    g_string_append_printf (whole, "%sThis is line %u of the talk.", i > 0 ? "\n" : "", i);
  g_assert_cmpstr (text->str, ==, whole->str);
  lychee_tokenizer_encode (lychee_model_get_tokenizer (test_get_model ()), whole->str, -1,
      LYCHEE_TOKENIZER_NONE, expected);
  g_assert_cmpmem (
      ids->data, ids->len * sizeof (gint32), expected->data, expected->len * sizeof (gint32));
  g_string_free (text, TRUE);
  g_string_free (whole, TRUE);
  g_array_unref (ids);
  g_array_unref (expected);
  test_chain_clear (&chain);
}

static void
test_drain (gconstpointer data)
{
  const char *how = data;
  Chain chain;

  test_chain_init (&chain, "lycheechunker", TOKEN_CAPS);
  push_ids (&chain, 100, 3, 0);
  assert_no_chunk (&chain);
  if (g_str_equal (how, "eos")) {
    gst_harness_push_event (chain.harness, gst_event_new_eos ());
  } else if (g_str_equal (how, "segment")) {
    test_chain_segment (&chain, 0);
  } else if (g_str_equal (how, "segment-done")) {
    gst_harness_push_event (
        chain.harness, gst_event_new_segment_done (GST_FORMAT_TIME, GST_SECOND));
  } else {
    gint32 id = 7;
    GstBuffer *buffer = gst_buffer_new_memdup (&id, sizeof id);

    GST_BUFFER_FLAG_SET (buffer, GST_BUFFER_FLAG_DISCONT);
    gst_harness_push (chain.harness, buffer);
  }
  assert_chunk (&chain, 100, 3, 0, LYCHEE_BOUNDARY_END, 0);
  test_chain_clear (&chain);
}

static GstEvent *
drain_event (void)
{
  return gst_event_new_custom (GST_EVENT_CUSTOM_UPSTREAM,
      gst_structure_new ("lychee-drain", "for", G_TYPE_STRING, "me", NULL));
}

/* Nobody upstream knows the event. */
static gboolean
know_nothing (GstPad *pad, GstObject *parent, GstEvent *event)
{
  gst_event_unref (event);
  return FALSE;
}

/* Whoever is downstream may ask for what waits; what they sent comes back behind it. With a
 * tokenizer, that is the word that it holds, too. */
static void
test_drain_from_downstream (gconstpointer description)
{
  gboolean text = strstr (description, "tokenizer") != NULL;
  GstEvent *event;
  GString *said = g_string_new (NULL);
  guint32 seqnum;
  gboolean back = FALSE;
  GstBuffer *buffer;
  Chain chain;

  test_chain_init (&chain, description, text ? TEST_TEXT_CAPS : TOKEN_CAPS);
  gst_pad_set_event_function (chain.harness->srcpad, know_nothing);
  if (text)
    test_chain_say (&chain, "the hat", 0);
  else
    push_ids (&chain, 100, 3, 0);
  assert_no_chunk (&chain);
  while ((event = gst_harness_try_pull_event (chain.harness)) != NULL)
    gst_event_unref (event);

  event = drain_event ();
  seqnum = gst_event_get_seqnum (event);
  g_assert_true (gst_harness_push_upstream_event (chain.harness, event));
  while (!back && (event = gst_harness_pull_event (chain.harness)) != NULL) {
    back = gst_event_has_name (event, "lychee-drain");
    if (back) {
      g_assert_cmpstr (gst_structure_get_string (gst_event_get_structure (event), "for"), ==, "me");
      g_assert_cmpuint (gst_event_get_seqnum (event), ==, seqnum);
    }
    gst_event_unref (event);
  }
  g_assert_true (back);
  if (text) {
    while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
      g_string_append (said, test_chunk_meta (buffer)->chunk->text);
      gst_buffer_unref (buffer);
    }
    g_assert_cmpstr (said->str, ==, "the hat");
  } else {
    assert_chunk (&chain, 100, 3, 0, LYCHEE_BOUNDARY_END, 0);
  }
  g_string_free (said, TRUE);

  /* After the end nothing comes. */
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  g_assert_false (gst_harness_push_upstream_event (chain.harness, drain_event ()));
  test_chain_clear (&chain);
}

/* Gaps add up from the last word on. */
static void
test_gap (void)
{
  Chain chain;

  test_chain_init (&chain, "lycheechunker silence=2000000000", TOKEN_CAPS);
  push_ids (&chain, 100, 3, 0);
  gst_harness_push_event (chain.harness, gst_event_new_gap (3 * GST_SECOND, GST_SECOND));
  assert_no_chunk (&chain);
  gst_harness_push_event (chain.harness, gst_event_new_gap (4 * GST_SECOND, GST_SECOND));
  assert_chunk (&chain, 100, 3, 0, LYCHEE_BOUNDARY_END, 0);
  test_chain_clear (&chain);
}

static void
test_gap_of_unknown_length (void)
{
  Chain chain;

  test_chain_init (&chain, "lycheechunker", TOKEN_CAPS);
  push_ids (&chain, 100, 3, 0);
  gst_harness_push_event (chain.harness, gst_event_new_gap (3 * GST_SECOND, GST_CLOCK_TIME_NONE));
  assert_chunk (&chain, 100, 3, 0, LYCHEE_BOUNDARY_END, 0);
  test_chain_clear (&chain);
}

static void
test_silence (void)
{
  Chain chain;

  test_chain_init (&chain, "lycheechunker silence=2000000000", TOKEN_CAPS);
  push_ids (&chain, 100, 3, 0);
  push_ids (&chain, 103, 1, 4); /* a second of silence: the same chunk */
  assert_no_chunk (&chain);
  push_ids (&chain, 200, 1, 7);
  GstBuffer *buffer = gst_harness_try_pull (chain.harness);
  g_assert_nonnull (buffer);
  LycheeChunk *chunk = test_chunk_meta (buffer)->chunk;
  g_assert_cmpuint (chunk->n_ids, ==, 4);
  g_assert_cmpint (chunk->boundary, ==, LYCHEE_BOUNDARY_PARAGRAPH);
  g_assert_cmpuint (GST_BUFFER_DURATION (buffer), ==, 5 * GST_SECOND);
  gst_buffer_unref (buffer);
  test_chain_clear (&chain);
}

/* What is open is lost; a seek back counts from 0 again, one forward does not. */
static void
test_flush (gconstpointer data)
{
  guint to = GPOINTER_TO_UINT (data);
  GstBuffer *buffer;
  Chain chain;

  test_chain_init (&chain, "lycheechunker min-tokens=4 max-tokens=4", TOKEN_CAPS);
  push_ids (&chain, 100, 14, 0);
  assert_chunk (&chain, 100, 4, 0, LYCHEE_BOUNDARY_NONE, 0);
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL)
    gst_buffer_unref (buffer);
  test_chain_flush (&chain);
  test_chain_segment (&chain, to * GST_SECOND);
  push_ids (&chain, 200, 4, to);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  if (to == 0) {
    assert_chunk (&chain, 200, 4, to, LYCHEE_BOUNDARY_END, 0);
  } else {
    buffer = gst_harness_try_pull (chain.harness);
    g_assert_cmpuint (test_chunk_meta (buffer)->chunk->number, >, 0);
    g_assert_cmpuint (test_chunk_meta (buffer)->chunk->n_ids, ==, 4);
    gst_buffer_unref (buffer);
  }
  assert_no_chunk (&chain);
  test_chain_clear (&chain);
}

static void
test_half_an_id (void)
{
  Chain chain;

  test_chain_init (&chain, "lycheechunker", TOKEN_CAPS);
  g_assert_cmpint (
      gst_harness_push (chain.harness, gst_buffer_new_memdup ("abcdef", 6)), ==, GST_FLOW_ERROR);
  test_assert_error (
      test_wait_error (chain.bus), GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT, "broken");
  test_chain_clear (&chain);
}

/* How much drift is known, with the model that the tokenizer has. */
static void
test_drift (gconstpointer data)
{
  const char *detector = data;
  gboolean structure = g_str_equal (detector, "structure");
  char *line = g_strdup_printf (CHAIN " detector=%s lookahead=8", detector);
  guint n = 0, n_drift = 0;
  GstBuffer *buffer;
  Chain chain;

  test_chain_init (&chain, line, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 20);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    n++;
    n_drift += !isnan (test_chunk_meta (buffer)->chunk->drift);
    gst_buffer_unref (buffer);
  }
  /* The first and last tokens have too few before or behind them. */
  g_assert_cmpuint (n_drift, ==, structure ? 0 : n - 1);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_WARNING));
  g_free (line);
  test_chain_clear (&chain);
}

/* Without a model, or with another one than the tokens are of. */
static void
test_drift_without_model (gconstpointer data)
{
  Chain chain;

  test_chain_init (&chain, data, TOKEN_CAPS);
  test_assert_error (test_pop (chain.bus, GST_MESSAGE_WARNING), GST_LIBRARY_ERROR,
      GST_LIBRARY_ERROR_SETTINGS, "structure alone");
  push_ids (&chain, 100, 40, 0);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  assert_chunk (&chain, 100, 16, 0, LYCHEE_BOUNDARY_NONE, 0);
  test_chain_clear (&chain);
}

static void
test_drift_not_wanted (void)
{
  Chain chain;

  test_chain_init (&chain, "lycheechunker detector=structure", TOKEN_CAPS);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_WARNING));
  test_chain_clear (&chain);
}

/* A meta that belongs to other ids. */
static void
test_wrong_meta (gconstpointer data)
{
  const gint32 wrong[] = { 1, 2, 3, 4 };
  gpointer wrong_ids = g_memdup2 (wrong, sizeof wrong);
  Chain tokenizer, chain;
  GstBuffer *buffer;

  test_chain_init (&tokenizer, "lycheetokenizer model=MODEL", TEST_TEXT_CAPS);
  test_chain_say (&tokenizer, "xyz", 0);
  gst_harness_push_event (tokenizer.harness, gst_event_new_eos ());
  buffer = gst_buffer_make_writable (gst_harness_pull (tokenizer.harness));
  gst_buffer_remove_all_memory (buffer);
  gst_buffer_append_memory (
      buffer, gst_memory_new_wrapped (0, wrong_ids, sizeof wrong, 0,
                  GPOINTER_TO_UINT (data) * sizeof (gint32), wrong_ids, g_free));
  test_chain_init (&chain, "lycheechunker", TOKEN_CAPS);
  g_assert_cmpint (gst_harness_push (chain.harness, buffer), ==, GST_FLOW_ERROR);
  test_assert_error (
      test_wait_error (chain.bus), GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT, "broken");
  test_chain_clear (&tokenizer);
  test_chain_clear (&chain);
}

static void
add_tests (void)
{
  static const guint usual[] = { 8, 16 }, small[] = { 1, 1 }, large[] = { 20, 64 },
                     crossed[] = { 16, 8 };

  g_test_add_func ("/chunker/caps", test_caps);
  g_test_add_func ("/chunker/times", test_times);
  g_test_add_data_func ("/chunker/text/usual", usual, test_text);
  g_test_add_data_func ("/chunker/text/small", small, test_text);
  g_test_add_data_func ("/chunker/text/large", large, test_text);
  g_test_add_data_func ("/chunker/text/min-over-max", crossed, test_text);
  g_test_add_data_func ("/chunker/drain/eos", "eos", test_drain);
  g_test_add_data_func ("/chunker/drain/segment", "segment", test_drain);
  g_test_add_data_func ("/chunker/drain/segment-done", "segment-done", test_drain);
  g_test_add_data_func ("/chunker/drain/discont", "discont", test_drain);
  g_test_add_data_func (
      "/chunker/drain/from-downstream", "lycheechunker", test_drain_from_downstream);
  g_test_add_data_func ("/chunker/drain/from-downstream-text", CHAIN, test_drain_from_downstream);
  g_test_add_func ("/chunker/gap/length", test_gap);
  g_test_add_func ("/chunker/gap/unknown-length", test_gap_of_unknown_length);
  g_test_add_func ("/chunker/silence", test_silence);
  g_test_add_data_func ("/chunker/flush/back", GUINT_TO_POINTER (0), test_flush);
  g_test_add_data_func ("/chunker/flush/forward", GUINT_TO_POINTER (60), test_flush);
  g_test_add_data_func ("/chunker/drift/structure", "structure", test_drift);
  g_test_add_data_func ("/chunker/drift/semantic", "semantic", test_drift);
  g_test_add_data_func ("/chunker/drift/both", "both", test_drift);
  g_test_add_data_func ("/chunker/drift/no-model", "lycheechunker", test_drift_without_model);
  g_test_add_func ("/chunker/drift/not-wanted", test_drift_not_wanted);
  g_test_add_func ("/chunker/broken/half-an-id", test_half_an_id);
  g_test_add_data_func ("/chunker/broken/other-ids", GUINT_TO_POINTER (3), test_wrong_meta);
  g_test_add_data_func ("/chunker/broken/fewer-ids", GUINT_TO_POINTER (2), test_wrong_meta);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
