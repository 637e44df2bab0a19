/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/check/gstharness.h>
#include <gst/gst.h>

#include "lychee-kv-memory.h"
#include "lychee-meta.h"
#include "lychee-session-cache.h"

G_BEGIN_DECLS

/* What the tests of the elements share. They load the plugin as an application does, so they find
 * its metas by name. */

/* Runs the tests that @add adds, with two tiny models at hand. */
int test_main (int argc, char **argv, void (*add) (void));

/* Paths of the models (transfer none). The other one has another id. */
const char *test_model (void);
const char *test_other_model (void);
const char *test_dir (void);
/* The first model, for comparison (transfer none). */
LycheeModel *test_get_model (void);

/* Writes @contents to a file in the tests' folder (transfer full). */
char *test_write_file (const char *name, const char *contents);
/* A SubRip file of @n cues, a second each (transfer full). */
char *test_srt (guint n);

LycheeTextMeta *test_text_meta (GstBuffer *buffer);
LycheeChunkMeta *test_chunk_meta (GstBuffer *buffer);
LycheeKVMeta *test_kv_meta (GstBuffer *buffer);

/* Elements without a pipeline, with a bus of their own. */
typedef struct {
  GstHarness *harness;
  GstBus *bus;
} Chain;

/* A launch line, in which MODEL and OTHER are the models and DIR the folder of the tests. */
void test_chain_init (Chain *chain, const char *description, const char *caps);
void test_chain_clear (Chain *chain);
/* The elements as they are, before any event. */
void test_chain_init_without_caps (Chain *chain, const char *description);
GstElement *test_chain_get (Chain *chain, const char *name);

GstBuffer *test_text_buffer (
    const char *text, gssize length, GstClockTime pts, GstClockTime duration);
/* Pushes a cue that takes a second. */
GstFlowReturn test_chain_say (Chain *chain, const char *text, guint second);
void test_chain_say_much (Chain *chain, guint first, guint n);
void test_chain_flush (Chain *chain);
void test_chain_segment (Chain *chain, GstClockTime start);

/* They wait, with a limit, for a message. (transfer full) */
GstMessage *test_wait_error (GstBus *bus);
GstMessage *test_wait_element (GstBus *bus, const char *name);
GstMessage *test_pop (GstBus *bus, GstMessageType types);
void test_assert_error (GstMessage *message, GQuark domain, int code, const char *part_of_text);

/* So that all that was said has been read. */
void test_chain_settle (Chain *chain, guint second);
/* The end of the stream, and all that follows from it. */
void test_chain_end (Chain *chain);
/* Of decoder "d": @options (nullable) is a structure; returns the answer's id (transfer full). */
char *test_chain_ask (Chain *chain, const char *prompt, const char *options);
guint test_chain_cancel (Chain *chain, const char *id);
/* Waits for the message of an answer, with that id and end where they are not NULL. (transfer full)
 */
GstMessage *test_chain_wait_answer (Chain *chain, const char *id, const char *finish);

/* Pulls buffers until end of stream and returns their text. (transfer full) */
char *test_chain_pull_text (Chain *chain, guint *n_buffers);
gboolean test_chain_wait_eos (Chain *chain);
/* For the signal "handoff" of a sink: puts its buffers' text together, in a GString. */
void test_append_handoff (GstElement *sink, GstBuffer *buffer, GstPad *pad, gpointer user_data);
/* What went downstream is what was told of it. */
void test_assert_same_answer (const char *streamed, const char *told);

GstElement *test_pipeline (const char *description);
/* Lets go of the last reference; a thread of GStreamer's that has just ended may have had one. */
void test_unref_last (gpointer object);

/* What a session of our own answers to lines @first .. @first + @n - 1. (transfer full) */
char *test_own_answer (
    guint first, guint n, const char *question, LycheeSampler *sampler, guint max_tokens);

/* Fields of a message, which it must have. */
guint test_get_uint (GstMessage *message, const char *name);
guint64 test_get_time (GstMessage *message, const char *name);
const char *test_get_string (GstMessage *message, const char *name);

/* A probe that holds the thread that pushes decoder "d"'s answers at one piece of them, until flush
 * start has passed the pad, it has been deactivated, or it is released. */
typedef struct {
  guint at; /* hold at this piece, counted from 1 */
  guint seen;
  GMutex lock;
  GCond changed;
  gboolean held, released, left;
  gulong probe, flush_probe;
  GstPad *pad;
} Hold;

void test_hold_at (Hold *hold, Chain *chain, guint at);
void test_hold_decoder (Hold *hold, GstElement *decoder, guint at);
void test_hold_wait (Hold *hold);
void test_hold_release (Hold *hold);
void test_hold_clear (Hold *hold);

/* GStreamer's leaks tracer, if there is one (transfer full), with the plugin loaded; and how many
 * objects are alive. That all tests together leave none is seen to by test_main(). */
GstTracer *test_find_leaks_tracer (void);
guint test_count_live (GstTracer *tracer);
void test_assert_none_left (GstTracer *tracer, guint before);

#define TEST_TEXT_CAPS "text/x-raw, format=(string)utf8"
#define TEST_TIMEOUT (60 * GST_SECOND)

G_END_DECLS
