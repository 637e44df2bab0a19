/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Whole elements with backend=cuda, on the emulated device: they answer as on the processor, stop
 * when they are told to, and say what is wrong with the device once. */

#include "test-elements-common.h"

#include "tiny-model.h"

#include <string.h>

#define MODEL_FILE "DIR/cuda.gguf"
#define SHORT_FILE                                                                                 \
  "DIR/cuda-short.gguf" /* the transcript is longer than what it was trained for                   \
                         */
#define SHORT_CONTEXT 128
#define SMALL_FILE "DIR/cuda-small.gguf" /* its heads are not a device's */
#define MIXED_OF(file, indexer, between, decoder)                                                  \
  "lycheetokenizer model=" file " ! lycheechunker detector=structure ! "                           \
  "lycheeindexer name=i model=" file " system-prompt=\"\" backend=" indexer between " ! "          \
  "lycheedecoder name=d model=" file " prompt=\"What is said?\" backend=" decoder " "
#define MIXED(indexer, between, decoder) MIXED_OF (MODEL_FILE, indexer, between, decoder)
#define LINE(backend) MIXED (backend, "", backend)
#define N_LINES 8

static void
write_models (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;

  tiny.head_dim = 64;
  tiny.n_heads = 3;
  tiny.n_kv_heads = 1;
  tiny.type = GGML_TYPE_F16; /* as exact on the device as on the processor */
  g_free (lychee_tiny_model_write (&tiny, test_dir (), "cuda.gguf"));
  tiny.n_context = SHORT_CONTEXT;
  g_free (lychee_tiny_model_write (&tiny, test_dir (), "cuda-short.gguf"));
  tiny.head_dim = 16;
  g_free (lychee_tiny_model_write (&tiny, test_dir (), "cuda-small.gguf"));
}

static void
read_and_ask (Chain *chain)
{
  test_chain_say_much (chain, 0, N_LINES);
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_eos ()));
}

/* (transfer full): the message of the answer to the whole transcript, which holds no element */
static GstMessage *
answer (const char *line)
{
  GstMessage *message, *said;
  Chain chain;
  char *text;

  test_chain_init (&chain, line, TEST_TEXT_CAPS);
  read_and_ask (&chain);
  text = test_chain_pull_text (&chain, NULL);
  message = test_wait_element (chain.bus, "lychee-answer");
  test_assert_same_answer (text, test_get_string (message, "text"));
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR | GST_MESSAGE_WARNING));
  g_free (text);
  said = gst_message_new_element (NULL, gst_structure_copy (gst_message_get_structure (message)));
  gst_message_unref (message);
  test_chain_clear (&chain);
  return said;
}

typedef struct {
  const char *name, *cpu, *cuda;
} Pair;

/* What each one is there for; that all kinds of models compute the same is test-cuda-backend's. Few
 * tokens: one is read from each pass that is like the one before. */
static const Pair pairs[] = {
  /* The whole chain; and tokens that come out of a captured graph. */
  { "dense", LINE ("cpu") "max-tokens=6", LINE ("cuda") "max-tokens=6" },
  /* That the decoder's budget gets to the device's search, over an index of the indexer's. */
  { "sparse", LINE ("cpu") "max-tokens=4 budget=128", LINE ("cuda") "max-tokens=4 budget=128" },
  /* The decoder's sampling options. Logits differ in the last bits, so that with other seeds a
   * token may: see test-cuda-backend. */
  { "drawn", LINE ("cpu") "max-tokens=3 temperature=0.6 seed=10",
      LINE ("cuda") "max-tokens=3 temperature=0.6 seed=10" },
  /* The indexer's options: its granularity, the type of the cache, and positions. */
  { "chunks", MIXED ("cpu granularity=chunk", "", "cpu") "max-tokens=3 budget=128",
      MIXED ("cuda granularity=chunk", "", "cuda") "max-tokens=3 budget=128" },
  { "q8_0", MIXED ("cpu cache-type=q8_0", "", "cpu") "max-tokens=3",
      MIXED ("cuda cache-type=q8_0", "", "cuda") "max-tokens=3" },
  { "packed", MIXED_OF (SHORT_FILE, "cpu", "", "cpu") "max-tokens=3 budget=120",
      MIXED_OF (SHORT_FILE, "cuda", "", "cuda") "max-tokens=3 budget=120" },
  /* Keys and values that change sides, with what is automatic. */
  { "reads-elsewhere", LINE ("cpu") "max-tokens=3", MIXED ("cpu", "", "auto") "max-tokens=3" },
  { "answers-elsewhere", LINE ("cpu") "max-tokens=3", MIXED ("auto", "", "cpu") "max-tokens=3" },
};

/* Where keys and values are, of pipelines whose elements compute in different places: settled by
 * what the decoder proposes. */
typedef struct {
  const char *name, *line;
  gboolean on_device;
} Placing;

static const Placing placings[] = {
  { "cuda-cuda", MIXED ("cuda", "", "cuda") "max-tokens=1", TRUE },
  { "cpu-cuda", MIXED ("cpu", "", "cuda") "max-tokens=1", TRUE },
  { "cpu-auto", MIXED ("cpu", "", "auto") "max-tokens=1", TRUE },
  { "cuda-cpu", MIXED ("cuda", "", "cpu") "max-tokens=1", FALSE },
  { "cpu-cpu", MIXED ("cpu", "", "cpu") "max-tokens=1", FALSE },
  { "queue", MIXED ("cuda", " ! queue", "cuda") "max-tokens=1", TRUE },
  /* Two readers, which need not want the same. */
  { "tee",
      MIXED ("cuda", " ! tee name=t  t. ! queue ! fakesink async=false  t. ! queue",
          "cuda") "max-tokens=1",
      FALSE },
  { "q8_0", MIXED ("cpu cache-type=q8_0", "", "auto") "max-tokens=1", TRUE },
};

typedef struct {
  GPtrArray *buffers;
  GMutex lock;
} Seen;

static GstPadProbeReturn
keep_buffer (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Seen *seen = user_data;

  g_mutex_lock (&seen->lock);
  g_ptr_array_add (seen->buffers, gst_buffer_ref (GST_PAD_PROBE_INFO_BUFFER (info)));
  g_mutex_unlock (&seen->lock);
  return GST_PAD_PROBE_OK;
}

/* What mapping a buffer gives is what the cache has, in a copy too. */
static void
check_rows (GstBuffer *buffer)
{
  LycheeKVMeta *meta = test_kv_meta (buffer);
  gsize size = meta->chunk->n_ids * lychee_cache_get_token_bytes (meta->cache);
  g_autofree guint16 *wanted = g_malloc (size);
  GstBuffer *copy = gst_buffer_copy_deep (buffer);
  GstBuffer *both[2] = { buffer, copy };

  lychee_cache_read (meta->cache, meta->position, meta->chunk->n_ids, wanted);
  for (guint i = 0; i < 2; i++) {
    GstMapInfo map;

    g_assert_true (gst_buffer_map (both[i], &map, GST_MAP_READ));
    g_assert_cmpmem (map.data, map.size, wanted, size);
    gst_buffer_unmap (both[i], &map);
    g_assert_true (test_kv_meta (both[i])->cache == meta->cache);
  }
  g_assert_cmpint (
      gst_memory_is_type (gst_buffer_peek_memory (buffer, 0), LYCHEE_KV_MEMORY_TYPE), ==, TRUE);
  g_assert_cmpint (
      gst_memory_is_type (gst_buffer_peek_memory (copy, 0), LYCHEE_KV_MEMORY_TYPE), ==, FALSE);
  gst_buffer_unref (copy);
}

static void
test_same (gconstpointer data)
{
  const Pair *pair = data;
  GstMessage *cpu = answer (pair->cpu), *cuda = answer (pair->cuda);

  g_assert_cmpstr (test_get_string (cuda, "text"), ==, test_get_string (cpu, "text"));
  g_assert_cmpstr (test_get_string (cuda, "finish"), ==, "length");
  if (strstr (pair->cuda, SHORT_FILE))
    g_assert_cmpuint (test_get_uint (cuda, "transcript-tokens"), >, SHORT_CONTEXT);
  g_assert_cmpuint (
      test_get_uint (cuda, "transcript-tokens"), ==, test_get_uint (cpu, "transcript-tokens"));
  gst_message_unref (cpu);
  gst_message_unref (cuda);
}

static void
test_placing (gconstpointer data)
{
  const Placing *placing = data;
  Seen seen = { g_ptr_array_new_with_free_func ((GDestroyNotify) gst_buffer_unref) };
  g_autofree char *device = NULL;
  GstAllocator *allocator;
  GstElement *indexer;
  GstCaps *caps;
  GstPad *pad;
  Chain chain;
  guint64 held;

  g_mutex_init (&seen.lock);
  test_chain_init (&chain, placing->line, TEST_TEXT_CAPS);
  indexer = test_chain_get (&chain, "i");
  pad = gst_element_get_static_pad (indexer, "src");
  gst_pad_add_probe (pad, GST_PAD_PROBE_TYPE_BUFFER, keep_buffer, &seen, NULL);
  read_and_ask (&chain);
  gst_message_unref (test_wait_element (chain.bus, "lychee-answer"));
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR | GST_MESSAGE_WARNING));
  caps = gst_pad_get_current_caps (pad);
  g_assert_true (
      gst_caps_features_contains (gst_caps_get_features (caps, 0), LYCHEE_CAPS_FEATURE_MEMORY_KV));
  gst_caps_unref (caps);

  g_assert_cmpuint (seen.buffers->len, >, 4);
  for (guint i = 0; i < seen.buffers->len; i++)
    check_rows (seen.buffers->pdata[i]);
  allocator = gst_buffer_peek_memory (seen.buffers->pdata[0], 0)->allocator;
  g_object_get (allocator, "device", &device, "held", &held, NULL);
  if (placing->on_device) {
    LycheeKVMeta *last = test_kv_meta (seen.buffers->pdata[seen.buffers->len - 1]);

    g_assert_nonnull (device);
    g_assert_true (g_str_has_suffix (device, "(CUDA device 0)"));
    g_assert_cmpuint (held, ==, last->position + last->chunk->n_ids);
  } else {
    g_assert_cmpuint (held, ==, 0);
  }
  g_ptr_array_unref (seen.buffers);
  g_mutex_clear (&seen.lock);
  gst_object_unref (pad);
  gst_object_unref (indexer);
  test_chain_clear (&chain);
}

/* What the device cannot do is done by the processor, automatically, and the bus says why. */
static void
test_says_why (void)
{
  g_autoptr (GError) error = NULL;
  GstMessage *message;
  Chain chain;

  test_chain_init (
      &chain, MIXED_OF (SMALL_FILE, "auto", "", "auto") "max-tokens=1", TEST_TEXT_CAPS);
  read_and_ask (&chain);
  message = gst_bus_timed_pop_filtered (chain.bus, TEST_TIMEOUT, GST_MESSAGE_INFO);
  g_assert_nonnull (message);
  gst_message_parse_info (message, &error, NULL);
  g_test_message ("%s", error->message);
  g_assert_true (g_str_has_prefix (error->message, "The processor computes."));
  g_assert_nonnull (strstr (error->message, "16 dimensions"));
  gst_message_unref (message);
  gst_message_unref (test_wait_element (chain.bus, "lychee-answer"));
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR | GST_MESSAGE_WARNING));
  test_chain_clear (&chain);
}

static const char *const prompts[] = { "What is said?", "Who spoke?", "What was decided then?" };

/* The answers to the prompts, asked at once. (transfer full) */
static GHashTable *
answer_all (const char *line)
{
  GHashTable *texts = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
  char *ids[G_N_ELEMENTS (prompts)];
  GstElement *decoder;
  Chain chain;

  test_chain_init (&chain, line, TEST_TEXT_CAPS);
  decoder = test_chain_get (&chain, "d");
  test_chain_say_much (&chain, 0, N_LINES);
  g_assert_true (gst_harness_push_event (
      chain.harness, gst_event_new_gap (N_LINES * GST_SECOND, GST_CLOCK_TIME_NONE)));
  for (guint i = 0; i < G_N_ELEMENTS (prompts); i++) {
    g_signal_emit_by_name (decoder, "ask", prompts[i], NULL, &ids[i]);
    g_assert_nonnull (ids[i]);
  }
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  for (guint i = 0; i < G_N_ELEMENTS (prompts); i++) {
    GstMessage *message = test_wait_element (chain.bus, "lychee-answer");
    const char *id = test_get_string (message, "id"), *prompt = NULL;

    for (guint j = 0; j < G_N_ELEMENTS (prompts); j++)
      if (g_str_equal (id, ids[j]))
        prompt = prompts[j];
    g_assert_nonnull (prompt);
    g_assert_cmpstr (test_get_string (message, "finish"), ==, "length");
    g_hash_table_insert (texts, g_strdup (prompt), g_strdup (test_get_string (message, "text")));
    gst_message_unref (message);
  }
  for (guint i = 0; i < G_N_ELEMENTS (prompts); i++)
    g_free (ids[i]);
  gst_object_unref (decoder);
  test_chain_clear (&chain);
  return texts;
}

/* Several answers at a time are each what it is alone. */
static void
test_several (void)
{
  g_autoptr (GHashTable) alone = answer_all (LINE ("cpu") "max-tokens=5 prompt=\"\"");
  g_autoptr (GHashTable) together =
      answer_all (LINE ("cuda") "max-tokens=5 prompt=\"\" max-answers=3");

  g_assert_cmpuint (g_hash_table_size (together), ==, G_N_ELEMENTS (prompts));
  for (guint i = 0; i < G_N_ELEMENTS (prompts); i++)
    g_assert_cmpstr (
        g_hash_table_lookup (together, prompts[i]), ==, g_hash_table_lookup (alone, prompts[i]));
}

/* A device that has no room for keys and values: reading goes on without it. */
static void
test_placing_no_memory (void)
{
  Chain chain;

  test_chain_init (&chain, MIXED ("cpu", "", "cuda") "max-tokens=1 prompt=\"\"", TEST_TEXT_CAPS);
  test_chain_say_much (&chain, 0, 1);
  g_setenv ("LYCHEE_EMULATED_MEMORY", "1", TRUE);
  test_chain_say_much (&chain, 1, N_LINES);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  g_assert_true (test_chain_wait_eos (&chain));
  g_assert_null (test_pop (chain.bus, GST_MESSAGE_ERROR));
  g_unsetenv ("LYCHEE_EMULATED_MEMORY");
  test_chain_clear (&chain);
}

/* Flushed in mid-answer: what follows is as if nothing had been. */
static void
test_flush (void)
{
  GstMessage *message, *cpu = answer (LINE ("cpu") "max-tokens=4");
  GstElement *decoder;
  Chain chain;
  Hold hold;

  /* Without an end: what is held is what is pushed, while the answer goes on. */
  test_chain_init (&chain, LINE ("cuda") "max-tokens=0", TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 2);
  read_and_ask (&chain);
  test_hold_wait (&hold);
  test_chain_flush (&chain);
  message = test_wait_element (chain.bus, "lychee-answer");
  g_assert_cmpstr (test_get_string (message, "finish"), ==, "cancelled");
  gst_message_unref (message);
  test_hold_clear (&hold);
  decoder = test_chain_get (&chain, "d");
  g_object_set (decoder, "max-tokens", 4, NULL);
  gst_object_unref (decoder);
  test_chain_segment (&chain, 0);
  read_and_ask (&chain);
  message = test_wait_element (chain.bus, "lychee-answer");
  g_assert_cmpstr (test_get_string (message, "text"), ==, test_get_string (cpu, "text"));
  gst_message_unref (message);
  gst_message_unref (cpu);
  test_chain_clear (&chain);
}

/* Shut down in mid-answer. */
static void
test_null (void)
{
  Chain chain;
  Hold hold;

  test_chain_init (&chain, LINE ("cuda") "max-tokens=0", TEST_TEXT_CAPS);
  test_hold_at (&hold, &chain, 2);
  read_and_ask (&chain);
  test_hold_wait (&hold);
  g_assert_cmpint (
      gst_element_set_state (chain.harness->element, GST_STATE_NULL), ==, GST_STATE_CHANGE_SUCCESS);
  test_hold_clear (&hold);
  test_chain_clear (&chain);
}

/* One message says it, names the thing, and says the way out. */
static void
expect_error (Chain *chain, const char *part, const char *other)
{
  GstMessage *message = test_wait_error (chain->bus);
  g_autoptr (GError) error = NULL;

  gst_message_parse_error (message, &error, NULL);
  g_test_message ("%s", error->message);
  g_assert_nonnull (strstr (error->message, part));
  g_assert_nonnull (strstr (error->message, other));
  gst_message_unref (message);
  g_assert_null (test_pop (chain->bus, GST_MESSAGE_ERROR));
}

/* A model that does not fit is said before anything of it is there, and is no more than that. */
static void
test_no_memory (void)
{
  Chain chain;

  g_setenv ("LYCHEE_EMULATED_MEMORY", "200000", TRUE);
  test_chain_init (&chain, LINE ("cuda") "max-tokens=1", TEST_TEXT_CAPS);
  for (guint i = 0; i < N_LINES; i++)
    if (test_chain_say (&chain, "This is said.", i) != GST_FLOW_OK)
      break;
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  expect_error (&chain, "memory", "GB are free");
  test_chain_clear (&chain);
  g_unsetenv ("LYCHEE_EMULATED_MEMORY");
  gst_message_unref (answer (LINE ("cuda") "max-tokens=1"));
}

static void
test_no_device (void)
{
  Chain chain;

  g_setenv ("LYCHEE_EMULATED_DEVICES", "-1", TRUE);
  test_chain_init (&chain, LINE ("cuda") "max-tokens=1", TEST_TEXT_CAPS);
  for (guint i = 0; i < N_LINES; i++)
    if (test_chain_say (&chain, "This is said.", i) != GST_FLOW_OK)
      break;
  gst_harness_push_event (chain.harness, gst_event_new_eos ());
  expect_error (&chain, "CUDA device", "driver");
  test_chain_clear (&chain);
  /* Automatically, that is none. */
  gst_message_unref (answer (LINE ("auto") "max-tokens=1"));
  g_unsetenv ("LYCHEE_EMULATED_DEVICES");
}

/* The device fails in mid-answer. */
static void
test_failure (void)
{
  GstBuffer *buffer;
  Chain chain;
  guint n = 0;

  /* Beyond what reading takes, and before the answer ends. */
  g_setenv ("LYCHEE_EMULATED_FAULT_AFTER", "60", TRUE);
  test_chain_init (&chain, LINE ("cuda") "max-tokens=200", TEST_TEXT_CAPS);
  read_and_ask (&chain);
  expect_error (&chain, "CUDA device failed", "unspecified launch failure");
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    gst_buffer_unref (buffer);
    n++;
  }
  g_assert_cmpuint (n, >, 0);
  test_chain_clear (&chain);
  g_unsetenv ("LYCHEE_EMULATED_FAULT_AFTER");
  gst_message_unref (answer (LINE ("cuda") "max-tokens=1"));
}

static void
add (void)
{
  write_models ();
  for (guint i = 0; i < G_N_ELEMENTS (pairs); i++) {
    g_autofree char *name = g_strdup_printf ("/elements/cuda/%s", pairs[i].name);

    g_test_add_data_func (name, &pairs[i], test_same);
  }
  for (guint i = 0; i < G_N_ELEMENTS (placings); i++) {
    g_autofree char *name = g_strdup_printf ("/elements/cuda/placing/%s", placings[i].name);

    g_test_add_data_func (name, &placings[i], test_placing);
  }
  g_test_add_func ("/elements/cuda/placing/no-memory", test_placing_no_memory);
  g_test_add_func ("/elements/cuda/says-why", test_says_why);
  g_test_add_func ("/elements/cuda/several", test_several);
  g_test_add_func ("/elements/cuda/flush", test_flush);
  g_test_add_func ("/elements/cuda/null", test_null);
  g_test_add_func ("/elements/cuda/no-memory", test_no_memory);
  g_test_add_func ("/elements/cuda/no-device", test_no_device);
  g_test_add_func ("/elements/cuda/failure", test_failure);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add);
}
