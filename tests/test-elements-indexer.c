/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* lycheeindexer: the keys and values are those of the model, each buffer shows its own, and a
 * transcript that does not fit is not cut in silence. */

#include "test-elements-common.h"

#include "lychee-meta.h"
#include "tiny-model.h"
#include <glib/gstdio.h>

#include <string.h>

#define CHUNK_CAPS_OF(id) "application/x-lychee-chunks, model=(string)" id
#define CHAIN                                                                                      \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "model=MODEL "                                                                                   \
  "system-prompt=\"\" "

static GstCaps *
caps_of (Chain *chain)
{
  GstPad *pad = gst_element_get_static_pad (chain->harness->element, "src");
  GstCaps *caps = gst_pad_get_current_caps (pad);

  gst_object_unref (pad);
  g_assert_nonnull (caps);
  return caps;
}

static void
test_caps (gconstpointer data)
{
  const char *feature = data;
  LycheeModel *model = test_get_model ();
  Chain chain;
  GstCaps *caps, *expected;
  char *text;

  test_chain_init_without_caps (&chain, CHAIN);
  if (feature == NULL)
    gst_harness_set_sink_caps_str (chain.harness, "application/x-lychee-kv");
  gst_harness_set_src_caps_str (chain.harness, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 2);
  text = g_strdup_printf ("application/x-lychee-kv%s, model=(string)%s, layers=(int)%u, "
                          "kv-heads=(int)%u, head-dim=(int)%u, type=(string)f16",
      feature != NULL ? feature : "", lychee_model_get_id (model),
      lychee_model_get_n_layers (model), lychee_model_get_n_kv_heads (model),
      lychee_model_get_head_dim (model));
  expected = gst_caps_from_string (text);
  caps = caps_of (&chain);
  g_assert_cmpint (gst_caps_is_equal (caps, expected), ==, TRUE);
  g_assert_cmpuint (gst_harness_buffers_in_queue (chain.harness), >, 0);
  gst_caps_unref (caps);
  gst_caps_unref (expected);
  g_free (text);
  test_chain_clear (&chain);
}

/* Each buffer shows the keys and values of its chunk, and they are those that a session of our own
 * computes. */
static void
test_views (void)
{
  g_autoptr (GError) error = NULL;
  LycheeSession *session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", test_get_model (), "system-prompt", "", NULL);
  LycheeCache *own = lychee_session_get_cache (session);
  Chain chain;
  GstBuffer *buffer;
  guint64 tokens = 0;
  guint position;

  g_assert_true (lychee_session_begin (session, NULL, &error));
  position = lychee_cache_get_length (own);
  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 20);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  g_assert_cmpuint (gst_harness_buffers_in_queue (chain.harness), >, 10);

  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    LycheeKVMeta *meta = test_kv_meta (buffer);
    guint n = meta->chunk->n_ids;
    gsize size = n * lychee_cache_get_token_bytes (own);
    guint16 *expected = g_malloc (size);
    GstMapInfo map;

    tokens += n;
    g_assert_true (gst_memory_is_type (gst_buffer_peek_memory (buffer, 0), LYCHEE_KV_MEMORY_TYPE));
    g_assert_cmpuint (meta->position, ==, position);
    g_assert_cmpuint (meta->transcript_tokens, ==, tokens);
    g_assert_cmpint (meta->format, ==, LYCHEE_CHAT_FORMAT_CHATML);
    g_assert_cmpuint (GST_BUFFER_OFFSET (buffer), ==, position);
    position += n;
    g_assert_cmpuint (GST_BUFFER_OFFSET_END (buffer), ==, position);
    g_assert_cmpuint (GST_BUFFER_PTS (buffer), ==, meta->chunk->pts);
    g_assert_cmpuint (GST_BUFFER_DURATION (buffer), ==, meta->chunk->duration);

    g_assert_true (lychee_session_append (session, meta->chunk, NULL, &error));
    lychee_cache_read (own, position - n, n, expected);
    g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
    g_assert_cmpmem (map.data, map.size, expected, size);
    gst_buffer_unmap (buffer, &map);
    g_free (expected);
    gst_buffer_unref (buffer);
  }
  g_object_unref (session);
  test_chain_clear (&chain);
}

/* The last message at the end counts everything. */
static void
test_progress (void)
{
  Chain chain;
  GstMessage *message;
  GstBuffer *buffer;
  guint tokens = 0, chunks = 0, said_tokens = 0, said_chunks = 0;
  double rate = 0, seconds = 0;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 20);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    tokens += test_kv_meta (buffer)->chunk->n_ids;
    chunks++;
    gst_buffer_unref (buffer);
  }
  gst_message_unref (test_wait_element (chain.bus, "lychee-session"));
  while ((message = test_pop (chain.bus, GST_MESSAGE_ELEMENT)) != NULL) {
    g_assert_true (gst_message_has_name (message, "lychee-progress"));
    g_assert_true (gst_structure_get (gst_message_get_structure (message), "tokens", G_TYPE_UINT,
        &said_tokens, "chunks", G_TYPE_UINT, &said_chunks, "rate", G_TYPE_DOUBLE, &rate, "seconds",
        G_TYPE_DOUBLE, &seconds, NULL));
    gst_message_unref (message);
  }
  g_assert_cmpuint (said_tokens, ==, tokens);
  g_assert_cmpuint (said_chunks, ==, chunks);
  g_assert_cmpfloat (seconds, >, 0);
  g_assert_cmpfloat_with_epsilon (rate, tokens / seconds, 1e-6 * rate);
  test_chain_clear (&chain);
}

/* What the session will be is said at the start, and more than the model was trained for, twice. */
static void
test_session_message (gconstpointer data)
{
  gboolean stretched = GPOINTER_TO_INT (data);
  guint trained = lychee_model_get_n_context (test_get_model ());
  g_autofree char *launch =
      g_strdup_printf (CHAIN " max-context=%u", stretched ? 2 * trained : trained);
  Chain chain;
  GstMessage *message;
  guint context = 0, said_trained = 0;
  guint64 weights = 0, cache = 0, index = 0, available = 0;
  double stretch = 0;

  test_chain_init (&chain, launch, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 5);
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  message = test_wait_element (chain.bus, "lychee-session");
  g_assert_true (gst_structure_get (gst_message_get_structure (message), "context", G_TYPE_UINT,
      &context, "trained", G_TYPE_UINT, &said_trained, "stretch", G_TYPE_DOUBLE, &stretch,
      "weights", G_TYPE_UINT64, &weights, "cache", G_TYPE_UINT64, &cache, "index", G_TYPE_UINT64,
      &index, "available", G_TYPE_UINT64, &available, NULL));
  gst_message_unref (message);
  g_assert_cmpuint (context, ==, stretched ? 2 * trained : trained);
  g_assert_cmpuint (said_trained, ==, trained);
  g_assert_cmpfloat (stretch, ==, stretched ? 2 : 1);
  g_assert_cmpuint (weights, >, 0);
  g_assert_cmpuint (cache, >, index);
  g_assert_cmpuint (available, >, weights + cache + index);
  message = test_pop (chain.bus, GST_MESSAGE_INFO);
  g_assert_true ((message != NULL) == stretched);
  if (message) {
    g_autoptr (GError) info = NULL;

    gst_message_parse_info (message, &info, NULL);
    g_assert_nonnull (strstr (info->message, "YaRN"));
    gst_message_unref (message);
  }
  test_chain_clear (&chain);
}

/* What fits is kept, the rest is counted, and both are said. */
static void
test_too_long (gconstpointer data)
{
  const char *limits = data;
  char *description = g_strconcat (CHAIN, limits, NULL);
  guint64 tokens = 0, read = 0, left = 0;
  gboolean said = FALSE;
  Chain chain;
  GstBuffer *buffer;
  GstEvent *event;
  char *figure;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 40);
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    tokens += test_kv_meta (buffer)->chunk->n_ids;
    gst_buffer_unref (buffer);
  }
  g_assert_cmpuint (tokens, >, 0);
  figure = g_strdup_printf ("%" G_GUINT64_FORMAT " tokens were read, up to 0:00:", tokens);
  test_assert_error (test_pop (chain.bus, GST_MESSAGE_WARNING), GST_RESOURCE_ERROR,
      GST_RESOURCE_ERROR_NO_SPACE_LEFT, figure);
  g_free (figure);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_WARNING));

  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  while ((event = gst_harness_try_pull_event (chain.harness)) != NULL) {
    if (gst_event_has_name (event, "lychee-truncated")) {
      gst_structure_get (gst_event_get_structure (event), "tokens", G_TYPE_UINT64, &read,
          "left-out", G_TYPE_UINT64, &left, NULL);
      said = TRUE;
    }
    gst_event_unref (event);
  }
  g_assert_true (said);
  g_assert_cmpuint (read, ==, tokens);
  g_assert_cmpuint (left, >, 0);
  figure = g_strdup_printf ("the last %" G_GUINT64_FORMAT ", up to 0:00:40, were left out", left);
  test_assert_error (test_pop (chain.bus, GST_MESSAGE_WARNING), GST_RESOURCE_ERROR,
      GST_RESOURCE_ERROR_NO_SPACE_LEFT, figure);
  g_free (figure);
  g_free (description);
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  test_chain_clear (&chain);
}

/* Limits that leave no room for the first chunk are an error. */
static void
test_no_room (gconstpointer data)
{
  char *description = g_strconcat (CHAIN, (const char *) data, NULL);
  Chain chain;

  test_chain_init (&chain, description, TEST_TEXT_CAPS);
  g_assert_cmpint (
      test_chain_say (&chain, "This is the first line of the talk.", 0), ==, GST_FLOW_ERROR);
  test_assert_error (test_wait_error (chain.bus), GST_RESOURCE_ERROR,
      GST_RESOURCE_ERROR_NO_SPACE_LEFT, "cannot be read");
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  g_free (description);
  test_chain_clear (&chain);
}

static void
test_no_template (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  Chain chain;
  char *path;

  tiny.no_template = TRUE;
  path = lychee_tiny_model_write (&tiny, test_dir (), "no-template.gguf");
  test_chain_init (&chain,
      "lycheetokenizer model=DIR/no-template.gguf ! lycheechunker detector=structure ! "
      "lycheeindexer "
      "model=DIR/no-template.gguf",
      TEST_TEXT_CAPS);
  g_assert_cmpint (
      test_chain_say (&chain, "This is the first line of the talk.", 0), ==, GST_FLOW_ERROR);
  test_assert_error (
      test_wait_error (chain.bus), GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_SETTINGS, "template");
  test_chain_clear (&chain);

  test_chain_init (&chain,
      "lycheetokenizer model=DIR/no-template.gguf ! lycheechunker detector=structure ! "
      "lycheeindexer "
      "model=DIR/no-template.gguf template=chatml",
      TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 2);
  g_assert_cmpuint (gst_harness_buffers_in_queue (chain.harness), >, 0);
  test_chain_clear (&chain);
  g_free (path);
}

static void
test_other_model_refused (void)
{
  Chain chain;
  GstMessage *message;
  GError *error = NULL;

  test_chain_init (&chain,
      "lycheetokenizer model=OTHER ! lycheechunker detector=structure ! lycheeindexer model=MODEL",
      TEST_TEXT_CAPS);
  g_assert_cmpint (test_chain_say (&chain, "This is the first line of the talk.", 0), ==,
      GST_FLOW_NOT_NEGOTIATED);
  message = test_wait_error (chain.bus);
  gst_message_parse_error (message, &error, NULL);
  g_assert_nonnull (strstr (error->message, test_model ()));
  g_assert_nonnull (strstr (error->message, test_other_model ()));
  g_assert_nonnull (strstr (error->message, lychee_model_get_id (test_get_model ())));
  g_error_free (error);
  test_assert_error (message, GST_CORE_ERROR, GST_CORE_ERROR_NEGOTIATION, "use different models");
  /* Said once, however many buffers come. */
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  test_chain_clear (&chain);
}

static GstBuffer *
ids_buffer (gint32 first, guint n)
{
  gint32 *ids = g_new (gint32, n);

  for (guint i = 0; i < n; i++)
    ids[i] = first + i;
  return gst_buffer_new_wrapped (ids, n * sizeof (gint32));
}

static void
init_alone (Chain *chain)
{
  char *caps = g_strdup_printf (CHUNK_CAPS_OF ("%s"), lychee_model_get_id (test_get_model ()));

  test_chain_init (chain, "lycheeindexer model=MODEL system-prompt=\"\"", caps);
  g_free (caps);
}

/* Ids are enough: a chunk need not have a meta. */
static void
test_without_meta (void)
{
  Chain chain;
  GstBuffer *buffer;

  init_alone (&chain);
  g_assert_cmpint (gst_harness_push (chain.harness, ids_buffer (10, 12)), ==, GST_FLOW_OK);
  buffer = gst_harness_pull (chain.harness);
  g_assert_cmpuint (test_kv_meta (buffer)->chunk->n_ids, ==, 12);
  gst_buffer_unref (buffer);
  test_chain_clear (&chain);
}

static void
test_broken_ids (gconstpointer data)
{
  Chain chain;

  init_alone (&chain);
  g_assert_cmpint (
      gst_harness_push (chain.harness, ids_buffer (GPOINTER_TO_INT (data), 3)), ==, GST_FLOW_ERROR);
  test_assert_error (
      test_wait_error (chain.bus), GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT, "broken");
  test_chain_clear (&chain);
}

static void
test_half_an_id (void)
{
  Chain chain;

  init_alone (&chain);
  g_assert_cmpint (
      gst_harness_push (chain.harness, gst_buffer_new_memdup ("abcdef", 6)), ==, GST_FLOW_ERROR);
  test_assert_error (
      test_wait_error (chain.bus), GST_STREAM_ERROR, GST_STREAM_ERROR_FORMAT, "broken");
  test_chain_clear (&chain);
}

/* Which cache the next buffer is in, and where. */
static LycheeCache *
next_place (Chain *chain, guint64 *offset)
{
  GstBuffer *buffer = gst_harness_try_pull (chain->harness);
  LycheeCache *cache;

  g_assert_nonnull (buffer);
  cache = g_object_ref (test_kv_meta (buffer)->cache);
  *offset = GST_BUFFER_OFFSET (buffer);
  gst_buffer_unref (buffer);
  return cache;
}

static void
drop_buffers (Chain *chain)
{
  GstBuffer *buffer;

  while ((buffer = gst_harness_try_pull (chain->harness)) != NULL)
    gst_buffer_unref (buffer);
}

/* A seek back cuts the transcript, one forward goes on with it; so does no seek at all, and a new
 * stream begins another one. */
static void
test_new_transcript (gconstpointer data)
{
  const char *how = data;
  gboolean is_new = g_str_equal (how, "stream") || g_str_equal (how, "eos");
  guint second = g_str_equal (how, "forward") ? 60 : 0;
  LycheeCache *before, *after;
  guint64 first, offset;
  guint length;
  Chain chain;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 10);
  before = next_place (&chain, &first);
  drop_buffers (&chain);

  if (g_str_equal (how, "back") || g_str_equal (how, "forward")) {
    test_chain_flush (&chain);
    test_chain_segment (&chain, second * GST_SECOND);
  } else if (g_str_equal (how, "segment")) {
    test_chain_segment (&chain, 0);
    drop_buffers (&chain);
  } else {
    GstCaps *caps = gst_caps_from_string (TEST_TEXT_CAPS);

    if (g_str_equal (how, "eos"))
      gst_harness_push_event (chain.harness, gst_event_new_eos ());
    gst_harness_push_event (chain.harness, gst_event_new_stream_start ("another"));
    gst_harness_push_event (chain.harness, gst_event_new_caps (caps));
    gst_caps_unref (caps);
    test_chain_segment (&chain, 0);
    drop_buffers (&chain);
  }
  length = lychee_cache_get_length (before);
  test_chain_say_much (&chain, second, 10);
  after = next_place (&chain, &offset);
  g_assert_cmpint (before != after, ==, is_new);
  g_assert_cmpuint (offset, ==, is_new || g_str_equal (how, "back") ? first : length);
  g_object_unref (before);
  g_object_unref (after);
  test_chain_clear (&chain);
}

/* What was said before the place of a seek stays, and is not read again. */
static void
test_cut (void)
{
  Chain chain;
  GstBuffer *buffer;
  LycheeCache *cache = NULL;
  guint64 offset, kept = 0;
  guint n_chunks = 0;

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 10);
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    if (GST_BUFFER_PTS (buffer) < 5 * GST_SECOND) {
      kept = GST_BUFFER_OFFSET_END (buffer);
      n_chunks++;
    }
    gst_buffer_unref (buffer);
  }
  test_chain_flush (&chain);
  test_chain_segment (&chain, 5 * GST_SECOND);
  test_chain_say_much (&chain, 5, 2);
  cache = next_place (&chain, &offset);
  g_assert_cmpuint (n_chunks, >, 3);
  g_assert_cmpuint (offset, ==, kept);
  /* One that was pulled, perhaps others. */
  g_assert_cmpuint (lychee_cache_get_n_chunks (cache), >, n_chunks);
  g_assert_cmpuint (lychee_cache_get_n_chunks (cache), <=, n_chunks + 6);
  g_object_unref (cache);
  test_chain_clear (&chain);
}

/* What happens when no more fits is chosen. */
static void
test_overflow_error (void)
{
  Chain chain;
  GstFlowReturn ret = GST_FLOW_OK;

  test_chain_init (&chain, CHAIN "max-context=300 reserve=50 overflow=error", TEST_TEXT_CAPS);
  for (guint i = 0; i < 40 && ret == GST_FLOW_OK; i++)
    ret = test_chain_say (&chain, "This is a line of the talk.", i);
  g_assert_cmpint (ret, ==, GST_FLOW_ERROR);
  test_assert_error (test_wait_error (chain.bus), GST_RESOURCE_ERROR,
      GST_RESOURCE_ERROR_NO_SPACE_LEFT, "context of 300 tokens is full");
  test_chain_clear (&chain);
}

static void
test_overflow_forget (void)
{
  Chain chain;
  GstMessage *message;
  GstEvent *event;
  guint64 tokens = 0, before = 0, from = 0;
  guint n_messages = 0, n_warnings = 0, n_events = 0;

  test_chain_init (
      &chain, CHAIN "max-context=300 reserve=50 overflow=forget-oldest", TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 60);
  while ((message = test_pop (
              chain.bus, GST_MESSAGE_ELEMENT | GST_MESSAGE_WARNING | GST_MESSAGE_ERROR)) != NULL) {
    if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_WARNING) {
      test_assert_error (gst_message_ref (message), GST_RESOURCE_ERROR,
          GST_RESOURCE_ERROR_NO_SPACE_LEFT, "the oldest part");
      n_warnings++;
    } else if (gst_message_has_name (message, "lychee-forgotten")) {
      g_assert_true (gst_structure_get (gst_message_get_structure (message), "tokens",
          G_TYPE_UINT64, &tokens, "from", G_TYPE_UINT64, &from, NULL));
      g_assert_cmpuint (tokens, >, before);
      before = tokens;
      n_messages++;
    } else {
      g_assert_true (gst_message_has_name (message, "lychee-progress") ||
                     gst_message_has_name (message, "lychee-session"));
    }
    gst_message_unref (message);
  }
  g_assert_cmpuint (n_warnings, ==, 1);
  g_assert_cmpuint (n_messages, >, 3);
  g_assert_cmpuint (from, >, 40 * GST_SECOND);
  while ((event = gst_harness_try_pull_event (chain.harness)) != NULL) {
    n_events += gst_event_has_name (event, "lychee-truncated");
    gst_event_unref (event);
  }
  g_assert_cmpuint (n_events, ==, 1);
  test_chain_clear (&chain);
}

/* A live source is told how far behind its reader is, when it is, and when it is no more. */
static void
test_behind (gconstpointer data)
{
  gboolean live = data != NULL, over = FALSE;
  Chain chain;
  GstMessage *message;
  guint64 behind = 0;
  guint n = 0;

  test_chain_init_without_caps (&chain, CHAIN);
  gst_harness_use_testclock (chain.harness);
  gst_harness_set_live (chain.harness, live);
  gst_harness_set_upstream_latency (chain.harness, 2 * GST_SECOND);
  gst_harness_set_src_caps_str (chain.harness, TEST_TEXT_CAPS);
  /* Said in time, late, and in time again; words may wait for 5.5 s before they are read. */
  for (guint i = 0; i < 30; i++) {
    gst_harness_set_time (chain.harness, (i + (i < 10 ? 1 : i < 20 ? 15 : 16)) * GST_SECOND);
    test_chain_say_much (&chain, i >= 20 ? i + 15 : i, 1);
    while ((message = test_pop (chain.bus, GST_MESSAGE_ELEMENT)) != NULL) {
      if (gst_message_has_name (message, "lychee-behind")) {
        g_assert_true (
            gst_structure_get_uint64 (gst_message_get_structure (message), "behind", &behind));
        /* Every five seconds while it lasts, and once more. */
        n++;
        g_assert_cmpuint (i, >=, 10);
        if (behind >= 5 * GST_SECOND) {
          g_assert_false (over);
          g_assert_cmpuint (behind, <=, 10 * GST_SECOND);
        } else {
          g_assert_cmpuint (i, >=, 20);
          g_assert_cmpuint (n, >, 1);
          g_assert_false (over);
          over = TRUE;
        }
      }
      gst_message_unref (message);
    }
  }
  g_assert_cmpuint (n, >=, live ? 2 : 0);
  g_assert_true (over == live);
  g_assert_true (live || n == 0);
  test_chain_clear (&chain);
}

static void
test_allocator (gconstpointer data)
{
  gboolean proposed = GPOINTER_TO_INT (data);
  GstElement *loaded = gst_element_factory_make ("lycheeindexer", NULL);
  GstAllocator *allocator;
  GstMemory *memory;
  GstBuffer *buffer;
  Chain chain;

  /* The type is there when an allocator has been made. */
  gst_object_unref (gst_object_ref_sink (loaded));
  gst_object_unref (gst_object_ref_sink (gst_element_factory_make ("lycheedecoder", NULL)));
  allocator = gst_object_ref_sink (g_object_new (g_type_from_name ("LycheeKVAllocator"), NULL));
  test_chain_init_without_caps (&chain, CHAIN);
  if (proposed)
    gst_harness_set_propose_allocator (chain.harness, gst_object_ref (allocator), NULL);
  gst_harness_set_src_caps_str (chain.harness, TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 2);
  buffer = gst_harness_pull (chain.harness);
  memory = gst_buffer_peek_memory (buffer, 0);
  g_assert_true (gst_memory_is_type (memory, LYCHEE_KV_MEMORY_TYPE));
  g_assert_cmpint (memory->allocator == allocator, ==, proposed);
  gst_buffer_unref (buffer);
  test_chain_clear (&chain);
  gst_object_unref (allocator);
}

static void
add_tests (void)
{
  g_test_add_data_func ("/indexer/caps/views", "(memory:LycheeKV)", test_caps);
  g_test_add_data_func ("/indexer/caps/plain", NULL, test_caps);
  g_test_add_func ("/indexer/views", test_views);
  g_test_add_func ("/indexer/progress", test_progress);
  g_test_add_data_func ("/indexer/session", GINT_TO_POINTER (FALSE), test_session_message);
  g_test_add_data_func ("/indexer/session/stretched", GINT_TO_POINTER (TRUE), test_session_message);
  g_test_add_data_func ("/indexer/too-long/context", "max-context=300 reserve=50", test_too_long);
  g_test_add_data_func ("/indexer/too-long/memory", "max-memory=300000", test_too_long);
  g_test_add_data_func ("/indexer/no-room/context", "max-context=20 reserve=10", test_no_room);
  g_test_add_data_func ("/indexer/no-room/memory", "max-memory=1000", test_no_room);
  g_test_add_func ("/indexer/no-template", test_no_template);
  g_test_add_func ("/indexer/other-model", test_other_model_refused);
  g_test_add_func ("/indexer/without-meta", test_without_meta);
  g_test_add_data_func ("/indexer/broken/id-too-large", GINT_TO_POINTER (100000), test_broken_ids);
  g_test_add_data_func ("/indexer/broken/id-negative", GINT_TO_POINTER (-5), test_broken_ids);
  g_test_add_func ("/indexer/broken/half-an-id", test_half_an_id);
  g_test_add_data_func ("/indexer/transcript/back", "back", test_new_transcript);
  g_test_add_data_func ("/indexer/transcript/forward", "forward", test_new_transcript);
  g_test_add_data_func ("/indexer/transcript/segment", "segment", test_new_transcript);
  g_test_add_data_func ("/indexer/transcript/stream", "stream", test_new_transcript);
  g_test_add_data_func ("/indexer/transcript/eos", "eos", test_new_transcript);
  g_test_add_func ("/indexer/transcript/cut", test_cut);
  g_test_add_func ("/indexer/overflow/error", test_overflow_error);
  g_test_add_func ("/indexer/overflow/forget-oldest", test_overflow_forget);
  g_test_add_data_func ("/indexer/behind/live", "", test_behind);
  g_test_add_data_func ("/indexer/behind/not-live", NULL, test_behind);
  g_test_add_data_func ("/indexer/allocator/own", GINT_TO_POINTER (FALSE), test_allocator);
  g_test_add_data_func ("/indexer/allocator/proposed", GINT_TO_POINTER (TRUE), test_allocator);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
