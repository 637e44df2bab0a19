/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gio/gio.h>
#include <gst/gst.h>

#include "lychee-ask.h"

G_BEGIN_DECLS

/* What lycheedecoder has to say, in order: events, and answers that grow while they are made.
 *
 * Worker threads make the answers; the source pad's task pushes what there is. So an answer can be
 * stopped while downstream waits, several can be made at a time, and neither holds up who asks or
 * who reads the transcript. The order of flush and deactivation is that of GStreamer's queue. */
typedef struct _LycheeAnswerQueue LycheeAnswerQueue;

/* An answer in the queue. */
typedef struct _LycheeJob LycheeJob;

/* Makes an answer, in a worker's thread: puts buffers until it is over or lychee_job_goes_on() says
 * FALSE. Or says that it was cancelled, in the thread of who did, where it had not begun. */
typedef void (*LycheeAnswerFunc) (LycheeJob *job, gpointer user_data);

LycheeAnswerQueue *lychee_answer_queue_new (
    GstPad *srcpad, LycheeAnswerFunc answer, gpointer user_data);
void lychee_answer_queue_free (LycheeAnswerQueue *queue);

/* For the source pad's activation, and for changes of the element's state. */
gboolean lychee_answer_queue_set_active (LycheeAnswerQueue *queue, gboolean active);
void lychee_answer_queue_set_playing (LycheeAnswerQueue *queue, gboolean playing);
/* For the sink pad's flush events, which this forwards. */
gboolean lychee_answer_queue_flush_start (LycheeAnswerQueue *queue, GstEvent *event);
gboolean lychee_answer_queue_flush_stop (LycheeAnswerQueue *queue, GstEvent *event);

/* What the last push returned; GST_FLOW_FLUSHING while nothing is taken. */
GstFlowReturn lychee_answer_queue_get_result (LycheeAnswerQueue *queue);
/* A new stream may succeed where the one before failed. */
void lychee_answer_queue_forget_result (LycheeAnswerQueue *queue);
/* Of a live transcript so many chunks wait to be read: as long as there are any, a piece of an
 * answer is made for some of them only. */
void lychee_answer_queue_note_backlog (LycheeAnswerQueue *queue, guint chunks);
/* So long without such news, in microseconds, means that none wait any more (1 s). */
void lychee_answer_queue_set_patience (LycheeAnswerQueue *queue, gint64 patience);
/* How many answers are made at a time. */
void lychee_answer_queue_set_max_workers (LycheeAnswerQueue *queue, guint n);

/* Behind all that was asked before. Takes @event. FLUSHING where nothing is taken. */
GstFlowReturn lychee_answer_queue_push_event (LycheeAnswerQueue *queue, GstEvent *event);
/* As @until: as long as nothing else ends it. */
#define LYCHEE_ANSWER_FOR_EVER G_MAXINT64
/* FALSE where nothing is taken. @interleave: its pieces may go between those of other answers.
 * @until (monotonic): its answer does not begin before that, or lychee_answer_queue_release().
 * Takes a reference of @ask. */
gboolean lychee_answer_queue_ask (
    LycheeAnswerQueue *queue, LycheeAsk *ask, gboolean interleave, gint64 until);
/* Lets the answers begin that wait for @drain, 0: for any, after @renew (nullable) for each of
 * them, after which `json` may be another. */
typedef void (*LycheeRenewFunc) (LycheeAsk *ask, gpointer user_data);
void lychee_answer_queue_release (
    LycheeAnswerQueue *queue, guint32 drain, LycheeRenewFunc renew, gpointer user_data);
/* None waits longer than to @until. */
void lychee_answer_queue_limit (LycheeAnswerQueue *queue, gint64 until);
/* Waits until @until as long as an answer waits for ever. Whether one still does. */
gboolean lychee_answer_queue_wait (LycheeAnswerQueue *queue, gint64 until);
/* Those that wait for ever wait for @drain. */
void lychee_answer_queue_set_drain (LycheeAnswerQueue *queue, guint32 drain);
/* Ends the answers with @id, or all of them (NULL); returns how many. */
guint lychee_answer_queue_cancel (LycheeAnswerQueue *queue, const char *id);
/* Takes @ask back if its answer has not begun, without a word. */
gboolean lychee_answer_queue_withdraw (LycheeAnswerQueue *queue, LycheeAsk *ask);
/* Answers that wait and that are made, and how often one waited for the reading. */
void lychee_answer_queue_count (
    LycheeAnswerQueue *queue, guint *waiting, guint *running, guint64 *pauses);

/* For the thread that makes the answer. */
LycheeAsk *lychee_job_get_ask (LycheeJob *job);
GCancellable *lychee_job_get_cancellable (LycheeJob *job);
/* Before anything is put: whether its pieces may go between those of others. */
void lychee_job_set_interleave (LycheeJob *job, gboolean interleave);
/* Waits while the element is paused or downstream is behind. FALSE: cancelled. */
gboolean lychee_job_goes_on (LycheeJob *job);
/* Takes @buffer; what is put after a cancellation still goes downstream, after a flush no more. */
void lychee_job_put (LycheeJob *job, GstBuffer *buffer);
/* Before it is said how the answer ended: there is nothing to cancel any more. */
void lychee_job_end (LycheeJob *job);

G_END_DECLS
