/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "test-elements-common.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "tiny-model.h"

/* Seconds after which a test that hangs is killed; each use of the helpers winds it up again. */
#define WATCHDOG 240

static char *dir;
static char *model_path;
static char *other_path;
static LycheeModel *model;

const char *
test_dir (void)
{
  return dir;
}

const char *
test_model (void)
{
  return model_path;
}

const char *
test_other_model (void)
{
  return other_path;
}

LycheeModel *
test_get_model (void)
{
  if (model == NULL) {
    g_autoptr (GError) error = NULL;

    model = lychee_model_new_from_file (model_path, &error);
    g_assert_no_error (error);
  }
  return model;
}

/* All but the registry's features, which stay, and tasks, which a thread that has ended lets go of
 * a moment later. */
static void
trace_leaks (void)
{
  g_setenv ("GST_TRACERS",
      "leaks(filters=\"GstElement,GstPad,GstBus,GstAllocator,GstBuffer,GstMemory,GstEvent,"
      "GstMessage,GstQuery,GstCaps,GstContext,GstTagList\")",
      TRUE);
}

int
test_main (int argc, char **argv, void (*add) (void))
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  GstTracer *tracer;
  guint before;
  int status;

  trace_leaks ();
  gst_init (&argc, &argv);
  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-test-XXXXXX", NULL);
  g_assert_nonnull (dir);
  model_path = lychee_tiny_model_write (&tiny, dir, "tiny.gguf");
  tiny.n_layers = 3;
  other_path = lychee_tiny_model_write (&tiny, dir, "other.gguf");
  g_unsetenv ("LYCHEE_MODEL");

  tracer = test_find_leaks_tracer ();
  before = tracer != NULL ? test_count_live (tracer) : 0;
  alarm (WATCHDOG);
  add ();
  status = g_test_run ();
  alarm (0);
  if (status == 0 && tracer != NULL)
    test_assert_none_left (tracer, before);
  gst_clear_object (&tracer);

  g_clear_object (&model);
  lychee_test_remove_dir (dir);
  g_free (dir);
  g_free (model_path);
  g_free (other_path);
  return status;
}

char *
test_write_file (const char *name, const char *contents)
{
  char *path = g_build_filename (dir, name, NULL);

  g_assert_true (g_file_set_contents (path, contents, -1, NULL));
  return path;
}

char *
test_srt (guint n)
{
  GString *srt = g_string_new (NULL);

  for (guint i = 0; i < n; i++)
    g_string_append_printf (srt,
        "%u\n%02u:%02u:%02u,000 --> %02u:%02u:%02u,000\nThis is line %u of the talk.\n\n", i + 1,
        i / 3600, i / 60 % 60, i % 60, (i + 1) / 3600, (i + 1) / 60 % 60, (i + 1) % 60, i);
  return g_string_free (srt, FALSE);
}

static GstMeta *
meta_by_name (GstBuffer *buffer, const char *name)
{
  GType type = g_type_from_name (name);

  return type != 0 ? gst_buffer_get_meta (buffer, type) : NULL;
}

LycheeTextMeta *
test_text_meta (GstBuffer *buffer)
{
  return (LycheeTextMeta *) meta_by_name (buffer, LYCHEE_TEXT_META_API_NAME);
}

LycheeChunkMeta *
test_chunk_meta (GstBuffer *buffer)
{
  return (LycheeChunkMeta *) meta_by_name (buffer, LYCHEE_CHUNK_META_API_NAME);
}

LycheeKVMeta *
test_kv_meta (GstBuffer *buffer)
{
  return (LycheeKVMeta *) meta_by_name (buffer, LYCHEE_KV_META_API_NAME);
}

/* Puts the model's path where the description says MODEL. */
static char *
with_model (const char *description)
{
  GString *text = g_string_new (description);

  g_string_replace (text, "OTHER", other_path, 0);
  g_string_replace (text, "MODEL", model_path, 0);
  g_string_replace (text, "DIR", dir, 0);
  return g_string_free (text, FALSE);
}

void
test_chain_init_without_caps (Chain *chain, const char *description)
{
  char *line = with_model (description);
  GstElement *bin;
  GError *error = NULL;

  alarm (WATCHDOG);
  bin = gst_parse_bin_from_description (line, TRUE, &error);
  g_assert_no_error (error);
  gst_object_ref_sink (bin);
  chain->bus = gst_bus_new ();
  gst_element_set_bus (bin, chain->bus);
  chain->harness = gst_harness_new_with_element (bin, "sink", "src");
  gst_object_unref (bin);
  g_free (line);
}

void
test_chain_init (Chain *chain, const char *description, const char *caps)
{
  test_chain_init_without_caps (chain, description);
  gst_harness_set_src_caps_str (chain->harness, caps);
}

/* A thread that loads the model may still have an element for a moment; the last reference is to be
 * dropped in this thread. */
static void
wait_for_last (gpointer object)
{
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  while (GST_OBJECT_REFCOUNT (object) > 1) {
    g_assert_cmpint (g_get_monotonic_time (), <, until);
    g_thread_yield ();
  }
}

void
test_chain_clear (Chain *chain)
{
  GstElement *element = gst_object_ref (chain->harness->element);

  gst_harness_teardown (chain->harness);
  gst_element_set_bus (element, NULL);
  gst_bus_set_flushing (chain->bus, TRUE);
  gst_object_unref (chain->bus);
  for (GList *l = GST_BIN_CHILDREN (element); l != NULL; l = l->next)
    wait_for_last (l->data);
  g_assert_cmpint (GST_OBJECT_REFCOUNT (element), ==, 1);
  gst_object_unref (element);
}

GstElement *
test_chain_get (Chain *chain, const char *name)
{
  GstElement *element = gst_bin_get_by_name (GST_BIN (chain->harness->element), name);

  g_assert_nonnull (element);
  return element;
}

GstBuffer *
test_text_buffer (const char *text, gssize length, GstClockTime pts, GstClockTime duration)
{
  gsize size = length >= 0 ? (gsize) length : strlen (text);
  GstBuffer *buffer = size > 0 ? gst_buffer_new_memdup (text, size) : gst_buffer_new ();

  GST_BUFFER_PTS (buffer) = pts;
  GST_BUFFER_DURATION (buffer) = duration;
  return buffer;
}

GstFlowReturn
test_chain_say (Chain *chain, const char *text, guint second)
{
  return gst_harness_push (
      chain->harness, test_text_buffer (text, -1, second * GST_SECOND, GST_SECOND));
}

void
test_chain_say_much (Chain *chain, guint first, guint n)
{
  for (guint i = first; i < first + n; i++) {
    char *line = g_strdup_printf ("This is line %u of the talk.", i);

    g_assert_cmpint (test_chain_say (chain, line, i), ==, GST_FLOW_OK);
    g_free (line);
  }
}

void
test_chain_flush (Chain *chain)
{
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_flush_start ()));
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_flush_stop (TRUE)));
}

void
test_chain_segment (Chain *chain, GstClockTime start)
{
  GstSegment segment;

  gst_segment_init (&segment, GST_FORMAT_TIME);
  segment.start = segment.time = segment.position = start;
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_segment (&segment)));
}

GstMessage *
test_pop (GstBus *bus, GstMessageType types)
{
  return gst_bus_pop_filtered (bus, types);
}

GstMessage *
test_wait_error (GstBus *bus)
{
  GstMessage *message = gst_bus_timed_pop_filtered (bus, TEST_TIMEOUT, GST_MESSAGE_ERROR);

  g_assert_nonnull (message);
  return message;
}

GstMessage *
test_wait_element (GstBus *bus, const char *name)
{
  for (;;) {
    GstMessage *message =
        gst_bus_timed_pop_filtered (bus, TEST_TIMEOUT, GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR);

    g_assert_nonnull (message);
    if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_ERROR) {
      GError *error = NULL;

      gst_message_parse_error (message, &error, NULL);
      g_assert_no_error (error);
    }
    if (gst_message_has_name (message, name))
      return message;
    gst_message_unref (message);
  }
}

/* Takes @message. */
void
test_assert_error (GstMessage *message, GQuark domain, int code, const char *part_of_text)
{
  GError *error = NULL;

  g_assert_nonnull (message);
  if (GST_MESSAGE_TYPE (message) == GST_MESSAGE_WARNING)
    gst_message_parse_warning (message, &error, NULL);
  else
    gst_message_parse_error (message, &error, NULL);
  g_test_message ("%s", error->message);
  g_assert_error (error, domain, code);
  if (strstr (error->message, part_of_text) == NULL)
    g_error ("“%s” is not in “%s”", part_of_text, error->message);
  g_error_free (error);
  gst_message_unref (message);
}

void
test_append_handoff (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer user_data)
{
  GstMapInfo map;

  g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
  g_string_append_len (user_data, (const char *) map.data, map.size);
  gst_buffer_unmap (buffer, &map);
}

gboolean
test_chain_wait_eos (Chain *chain)
{
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  while (g_get_monotonic_time () < until) {
    GstEvent *event = gst_harness_pull_event (chain->harness);
    gboolean eos = event != NULL && GST_EVENT_TYPE (event) == GST_EVENT_EOS;

    gst_clear_event (&event);
    if (eos)
      return TRUE;
  }
  return FALSE;
}

void
test_chain_settle (Chain *chain, guint second)
{
  g_assert_true (gst_harness_push_event (
      chain->harness, gst_event_new_gap (second * GST_SECOND, GST_CLOCK_TIME_NONE)));
}

char *
test_chain_ask (Chain *chain, const char *prompt, const char *options)
{
  GstElement *decoder = test_chain_get (chain, "d");
  GstStructure *structure = options != NULL ? gst_structure_from_string (options, NULL) : NULL;
  char *id = NULL;

  g_assert_true (options == NULL || structure != NULL);
  g_signal_emit_by_name (decoder, "ask", prompt, structure, &id);
  g_clear_pointer (&structure, gst_structure_free);
  gst_object_unref (decoder);
  return id;
}

guint
test_chain_cancel (Chain *chain, const char *id)
{
  GstElement *decoder = test_chain_get (chain, "d");
  guint n = 0;

  g_signal_emit_by_name (decoder, "cancel", id, &n);
  gst_object_unref (decoder);
  return n;
}

GstMessage *
test_chain_wait_answer (Chain *chain, const char *id, const char *finish)
{
  GstMessage *message = test_wait_element (chain->bus, "lychee-answer");

  if (id != NULL)
    g_assert_cmpstr (test_get_string (message, "id"), ==, id);
  if (finish != NULL)
    g_assert_cmpstr (test_get_string (message, "finish"), ==, finish);
  return message;
}

guint64
test_get_time (GstMessage *message, const char *name)
{
  guint64 time = 0;

  g_assert_true (gst_structure_get_uint64 (gst_message_get_structure (message), name, &time));
  return time;
}

void
test_chain_end (Chain *chain)
{
  g_assert_true (gst_harness_push_event (chain->harness, gst_event_new_eos ()));
  g_assert_true (test_chain_wait_eos (chain));
}

char *
test_chain_pull_text (Chain *chain, guint *n_buffers)
{
  GString *text = g_string_new (NULL);
  guint n = 0;
  GstBuffer *buffer;

  g_assert_true (test_chain_wait_eos (chain));
  while ((buffer = gst_harness_try_pull (chain->harness)) != NULL) {
    GstMapInfo map;

    g_assert_true (gst_buffer_map (buffer, &map, GST_MAP_READ));
    g_assert_true (g_utf8_validate ((const char *) map.data, map.size, NULL));
    g_assert_cmpuint (GST_BUFFER_OFFSET (buffer), ==, text->len);
    g_string_append_len (text, (const char *) map.data, map.size);
    gst_buffer_unmap (buffer, &map);
    gst_buffer_unref (buffer);
    n++;
  }
  if (n_buffers != NULL)
    *n_buffers = n;
  return g_string_free (text, FALSE);
}

void
test_assert_same_answer (const char *streamed, const char *told)
{
  g_assert_cmpstr (streamed, ==, told);
}

GstElement *
test_pipeline (const char *description)
{
  char *line = with_model (description);
  GError *error = NULL;
  GstElement *pipeline;

  alarm (WATCHDOG);
  pipeline = gst_parse_launch_full (line, NULL, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  g_assert_no_error (error);
  g_free (line);
  return gst_object_ref_sink (pipeline);
}

void
test_unref_last (gpointer object)
{
  wait_for_last (object);
  gst_object_unref (object);
}

char *
test_own_answer (
    guint first, guint n, const char *question, LycheeSampler *sampler, guint max_tokens)
{
  g_autoptr (GError) error = NULL;
  LycheeSession *session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", test_get_model (), "system-prompt", "", NULL);
  LycheeQuestion *asked;
  LycheeAnswer *answer;
  GstBuffer *buffer;
  Chain chain;
  char *text;

  test_chain_init (
      &chain, "lycheetokenizer model=MODEL ! lycheechunker detector=structure", TEST_TEXT_CAPS);
  test_chain_say_much (&chain, first, n);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    g_assert_true (lychee_session_append (session, test_chunk_meta (buffer)->chunk, NULL, &error));
    gst_buffer_unref (buffer);
  }
  test_chain_clear (&chain);
  asked = g_object_new (
      LYCHEE_TYPE_QUESTION, "prompt", question, "sampler", sampler, "max-tokens", max_tokens, NULL);
  answer = lychee_session_ask (session, asked, NULL, NULL, NULL, &error);
  g_assert_no_error (error);
  text = g_strdup (lychee_answer_get_text (answer));
  g_object_unref (answer);
  g_object_unref (asked);
  g_object_unref (session);
  return text;
}

guint
test_get_uint (GstMessage *message, const char *name)
{
  guint value = 0;

  g_assert_true (gst_structure_get_uint (gst_message_get_structure (message), name, &value));
  return value;
}

const char *
test_get_string (GstMessage *message, const char *name)
{
  return gst_structure_get_string (gst_message_get_structure (message), name);
}

static GstPadProbeReturn
on_piece (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Hold *hold = user_data;

  if (++hold->seen != hold->at)
    return GST_PAD_PROBE_OK;
  g_mutex_lock (&hold->lock);
  hold->held = TRUE;
  g_cond_broadcast (&hold->changed);
  /* Nobody tells of a pad that is deactivated. */
  while (!GST_PAD_IS_FLUSHING (pad) && !hold->released)
    g_cond_wait_until (&hold->changed, &hold->lock, g_get_monotonic_time () + 5000);
  hold->left = TRUE;
  g_cond_broadcast (&hold->changed);
  g_mutex_unlock (&hold->lock);
  return GST_PAD_PROBE_OK;
}

/* A flush may be over before the thread that is held looks again. */
static GstPadProbeReturn
on_flush (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Hold *hold = user_data;

  if (GST_EVENT_TYPE (GST_PAD_PROBE_INFO_EVENT (info)) != GST_EVENT_FLUSH_START)
    return GST_PAD_PROBE_OK;
  g_mutex_lock (&hold->lock);
  hold->released |= hold->held;
  g_cond_broadcast (&hold->changed);
  g_mutex_unlock (&hold->lock);
  return GST_PAD_PROBE_OK;
}

void
test_hold_at (Hold *hold, Chain *chain, guint at)
{
  GstElement *decoder = test_chain_get (chain, "d");

  test_hold_decoder (hold, decoder, at);
  gst_object_unref (decoder);
}

void
test_hold_decoder (Hold *hold, GstElement *decoder, guint at)
{
  memset (hold, 0, sizeof *hold);
  hold->at = at;
  g_mutex_init (&hold->lock);
  g_cond_init (&hold->changed);
  hold->pad = gst_element_get_static_pad (decoder, "src");
  hold->flush_probe =
      gst_pad_add_probe (hold->pad, GST_PAD_PROBE_TYPE_EVENT_FLUSH, on_flush, hold, NULL);
  hold->probe = gst_pad_add_probe (hold->pad, GST_PAD_PROBE_TYPE_BUFFER, on_piece, hold, NULL);
}

void
test_hold_wait (Hold *hold)
{
  gint64 until = g_get_monotonic_time () + TEST_TIMEOUT / 1000;

  g_mutex_lock (&hold->lock);
  while (!hold->held)
    g_assert_true (g_cond_wait_until (&hold->changed, &hold->lock, until));
  g_mutex_unlock (&hold->lock);
}

void
test_hold_clear (Hold *hold)
{
  gst_pad_remove_probe (hold->pad, hold->probe);
  test_hold_release (hold);
  g_mutex_lock (&hold->lock);
  while (hold->held && !hold->left)
    g_cond_wait (&hold->changed, &hold->lock);
  g_mutex_unlock (&hold->lock);
  gst_pad_remove_probe (hold->pad, hold->flush_probe);
  gst_object_unref (hold->pad);
  g_mutex_clear (&hold->lock);
  g_cond_clear (&hold->changed);
}

void
test_hold_release (Hold *hold)
{
  g_mutex_lock (&hold->lock);
  hold->released = TRUE;
  g_cond_broadcast (&hold->changed);
  g_mutex_unlock (&hold->lock);
}

GstTracer *
test_find_leaks_tracer (void)
{
  /* The plugin is there from now on, with what it registers; and what decodebin needs. */
  GstElement *element = gst_object_ref_sink (gst_element_factory_make ("lycheedecoder", NULL));
  GstPlugin *types = gst_plugin_load_by_name ("typefindfunctions");
  GList *tracers = gst_tracing_get_active_tracers ();
  GstTracer *leaks = NULL;

  gst_object_unref (element);
  gst_clear_object (&types);
  for (GList *l = tracers; l != NULL; l = l->next)
    if (g_str_equal (G_OBJECT_TYPE_NAME (l->data), "GstLeaksTracer"))
      leaks = gst_object_ref (l->data);
  g_list_free_full (tracers, gst_object_unref);
  return leaks;
}

/* Calls @func with each object that is alive; how many there are. */
static guint
list_live (GstTracer *tracer, void (*func) (const GstStructure *object))
{
  GstStructure *live = NULL;
  const GValue *list;
  guint n;

  g_signal_emit_by_name (tracer, "get-live-objects", &live);
  list = gst_structure_get_value (live, "live-objects-list");
  n = gst_value_list_get_size (list);
  for (guint i = 0; i < n && func != NULL; i++)
    func (gst_value_get_structure (gst_value_list_get_value (list, i)));
  gst_structure_free (live);
  return n;
}

static void
print_live (const GstStructure *object)
{
  g_autofree char *name = g_strdup_value_contents (gst_structure_get_value (object, "object"));

  g_test_message ("alive: %s", name);
}

guint
test_count_live (GstTracer *tracer)
{
  return list_live (tracer, NULL);
}

void
test_assert_none_left (GstTracer *tracer, guint before)
{
  guint n = test_count_live (tracer);

  if (n <= before)
    return;
  list_live (tracer, print_live);
  g_error ("%u objects are alive, and %u were before", n, before);
}
