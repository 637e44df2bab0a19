/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-answer-queue.h"

#include <string.h>

#define SEPARATOR "\n\n"
/* While reading is behind, so many chunks are read for each piece of an answer. */
#define CHUNKS_A_PIECE 4

struct _LycheeJob {
  gatomicrefcount refs;
  LycheeAnswerQueue *queue;
  LycheeAsk *ask;
  GCancellable *cancellable;

  /* under the queue's lock */
  gboolean interleave;
  gint64 until;     /* it does not begin before; monotonic */
  gboolean dropped; /* what comes of it goes nowhere */
  gboolean spoke;   /* something of it was pushed */
  gboolean done;
  GQueue output; /* of GstBuffer */
};

/* Of these one is set. */
typedef struct {
  GstEvent *event;
  LycheeJob *job;
} Item;

/* In PAUSED, sinks get what they need to preroll, and no more is generated. */
typedef enum {
  PACE_PREROLL, /* until the first buffer */
  PACE_PAUSED,
  PACE_PLAYING,
} Pace;

struct _LycheeAnswerQueue {
  GstPad *srcpad; /* of the element that has the queue */
  LycheeAnswerFunc answer;
  gpointer user_data;

  GMutex lock; /* never held while something is pushed or posted */
  GCond changed;
  gboolean active;
  gboolean flushing;
  Pace pace;
  GstFlowReturn result;
  gboolean segment;      /* one was pushed */
  gboolean ended;        /* so was an end of stream: nothing can be pushed any more */
  GstClockTime position; /* of the last buffer */
  gboolean spoke;        /* an answer was pushed that another one must not run into */
  GQueue items;          /* of Item, in the order in which they go downstream */
  GQueue waiting;        /* of LycheeJob, to be made; they are in items too */
  GPtrArray *running;    /* of LycheeJob, those being made */
  GPtrArray *workers;    /* of GThread */
  guint max_workers;
  guint backlog;       /* chunks that wait to be read */
  guint64 n_backlogs;  /* how often that was said */
  gint64 backlog_time; /* when, monotonic */
  gint64 patience;     /* microseconds */
  guint64 n_pauses;
};

static LycheeJob *
job_ref (LycheeJob *job)
{
  g_atomic_ref_count_inc (&job->refs);
  return job;
}

static void
job_unref (LycheeJob *job)
{
  if (!g_atomic_ref_count_dec (&job->refs))
    return;
  g_queue_clear_full (&job->output, (GDestroyNotify) gst_buffer_unref);
  lychee_ask_unref (job->ask);
  g_object_unref (job->cancellable);
  g_free (job);
}

static void
item_free (Item *item)
{
  gst_clear_event (&item->event);
  g_clear_pointer (&item->job, job_unref);
  g_free (item);
}

static void
add_item (LycheeAnswerQueue *queue, GstEvent *event, LycheeJob *job)
{
  Item *item = g_new0 (Item, 1);

  item->event = event;
  item->job = job;
  g_queue_push_tail (&queue->items, item);
  g_cond_broadcast (&queue->changed);
}

LycheeAnswerQueue *
lychee_answer_queue_new (GstPad *srcpad, LycheeAnswerFunc answer, gpointer user_data)
{
  LycheeAnswerQueue *queue = g_new0 (LycheeAnswerQueue, 1);

  queue->srcpad = srcpad;
  queue->answer = answer;
  queue->user_data = user_data;
  g_mutex_init (&queue->lock);
  g_cond_init (&queue->changed);
  g_queue_init (&queue->items);
  g_queue_init (&queue->waiting);
  queue->running = g_ptr_array_new ();
  queue->workers = g_ptr_array_new ();
  queue->max_workers = 1;
  queue->patience = G_USEC_PER_SEC;
  queue->position = GST_CLOCK_TIME_NONE;
  return queue;
}

/* The source pad is not active any more. */
void
lychee_answer_queue_free (LycheeAnswerQueue *queue)
{
  g_queue_clear_full (&queue->items, (GDestroyNotify) item_free);
  g_ptr_array_unref (queue->running);
  g_ptr_array_unref (queue->workers);
  g_mutex_clear (&queue->lock);
  g_cond_clear (&queue->changed);
  g_free (queue);
}

/* With the lock: what is asked and pushed is taken. */
static gboolean
is_open (LycheeAnswerQueue *queue)
{
  return queue->active && !queue->flushing;
}

/* Cancelling */

/* With the lock: ends the jobs for which @id is the name (NULL: any). Those that wait are moved to
 * @ended: they must be told with report_ended(), without the lock. */
static guint
cancel_jobs (LycheeAnswerQueue *queue, const char *id, gboolean drop, GQueue *ended)
{
  guint n = 0;

  for (GList *l = queue->waiting.head, *next; l != NULL; l = next) {
    LycheeJob *job = l->data;

    next = l->next;
    if (id != NULL && g_strcmp0 (id, job->ask->id) != 0)
      continue;
    job->dropped = drop;
    g_cancellable_cancel (job->cancellable);
    g_queue_unlink (&queue->waiting, l);
    g_queue_push_tail_link (ended, l);
    n++;
  }
  for (guint i = 0; i < queue->running->len; i++) {
    LycheeJob *job = g_ptr_array_index (queue->running, i);

    if (id != NULL && g_strcmp0 (id, job->ask->id) != 0)
      continue;
    job->dropped |= drop;
    g_cancellable_cancel (job->cancellable);
    n++;
  }
  g_cond_broadcast (&queue->changed);
  return n;
}

static void
job_is_done (LycheeAnswerQueue *queue, LycheeJob *job)
{
  g_mutex_lock (&queue->lock);
  job->done = TRUE;
  g_ptr_array_remove_fast (queue->running, job);
  g_cond_broadcast (&queue->changed);
  g_mutex_unlock (&queue->lock);
  job_unref (job);
}

static void
report_ended (LycheeAnswerQueue *queue, GQueue *ended)
{
  LycheeJob *job;

  while ((job = g_queue_pop_head (ended)) != NULL) {
    queue->answer (job, queue->user_data);
    job_is_done (queue, job);
  }
}

/* With the lock: forgets what was to go downstream. Sticky events stay on the pad, as GStreamer's
 * queue has it; a segment and an end do not survive a flush. */
static void
drop_items (LycheeAnswerQueue *queue, gboolean keep_sticky)
{
  Item *item;

  while ((item = g_queue_pop_head (&queue->items)) != NULL) {
    if (keep_sticky && item->event != NULL && GST_EVENT_IS_STICKY (item->event) &&
        GST_EVENT_TYPE (item->event) != GST_EVENT_SEGMENT &&
        GST_EVENT_TYPE (item->event) != GST_EVENT_EOS)
      gst_pad_store_sticky_event (queue->srcpad, item->event);
    item_free (item);
  }
}

/* The task that pushes */

/* With the lock: @buffer of @job, or what is pushed ahead of it: answers in one text are set apart.
 */
static GstMiniObject *
set_apart (LycheeAnswerQueue *queue, LycheeJob *job, GstBuffer *buffer)
{
  GstBuffer *separator = NULL;

  if (!job->interleave && !job->spoke && queue->spoke) {
    separator = gst_buffer_new_memdup (SEPARATOR, strlen (SEPARATOR));
    GST_BUFFER_PTS (separator) = GST_BUFFER_PTS (buffer);
    g_queue_push_head (&job->output, buffer);
    buffer = separator;
  }
  job->spoke = TRUE;
  queue->spoke |= !job->interleave;
  return GST_MINI_OBJECT_CAST (buffer);
}

/* With the lock: what has to come before any buffer, wherever it is: after a flush, somebody may
 * ask before there is a segment. @none: whether none will come before the next event, an end or the
 * like. */
static GstMiniObject *
take_setup (LycheeAnswerQueue *queue, gboolean *none)
{
  for (GList *l = queue->items.head; l != NULL; l = l->next) {
    GstEvent *event = ((Item *) l->data)->event;

    if (event == NULL)
      continue;
    if (GST_EVENT_TYPE (event) != GST_EVENT_STREAM_START &&
        GST_EVENT_TYPE (event) != GST_EVENT_CAPS && GST_EVENT_TYPE (event) != GST_EVENT_SEGMENT) {
      *none = TRUE;
      break;
    }
    gst_event_ref (event);
    item_free (l->data);
    g_queue_delete_link (&queue->items, l);
    return GST_MINI_OBJECT_CAST (event);
  }
  return NULL;
}

/* With the lock: the next thing to push, or NULL while there is none. An event waits for all that
 * was asked before it. */
static GstMiniObject *
take_next (LycheeAnswerQueue *queue)
{
  gboolean none = FALSE;
  GstMiniObject *setup = queue->segment ? NULL : take_setup (queue, &none);
  GList *l = queue->items.head;

  if (setup != NULL)
    return setup;
  while (l != NULL) {
    Item *item = l->data;
    GList *next = l->next;
    GstBuffer *buffer;

    if (item->event != NULL) {
      GstEvent *event;

      if (l != queue->items.head)
        return NULL;
      event = g_steal_pointer (&item->event);
      item_free (g_queue_pop_head (&queue->items));
      return GST_MINI_OBJECT_CAST (event);
    }
    while ((queue->segment || none) && (buffer = g_queue_pop_head (&item->job->output)) != NULL) {
      g_cond_broadcast (&queue->changed);
      if (queue->result == GST_FLOW_OK && queue->segment && !queue->ended)
        return set_apart (queue, item->job, buffer);
      gst_buffer_unref (buffer);
    }
    if (item->job->done && item->job->output.length == 0) {
      g_queue_delete_link (&queue->items, l);
      item_free (item);
    } else if (!item->job->interleave) {
      return NULL;
    }
    l = next;
  }
  return NULL;
}

/* With the lock, after a push that failed: nobody wants more. What follows is events only. */
static void
note_failure (LycheeAnswerQueue *queue, GstFlowReturn result)
{
  GQueue ended = G_QUEUE_INIT;

  queue->result = result;
  cancel_jobs (queue, NULL, TRUE, &ended);
  g_mutex_unlock (&queue->lock);
  report_ended (queue, &ended);
  if (result == GST_FLOW_NOT_LINKED || result < GST_FLOW_EOS) {
    GstElement *element = gst_pad_get_parent_element (queue->srcpad);

    if (element != NULL) {
      GST_ELEMENT_FLOW_ERROR (element, result);
      gst_object_unref (element);
    }
  }
  g_mutex_lock (&queue->lock);
}

static void
queue_loop (gpointer user_data)
{
  LycheeAnswerQueue *queue = user_data;
  GstMiniObject *next = NULL;

  g_mutex_lock (&queue->lock);
  while (is_open (queue) && (next = take_next (queue)) == NULL)
    g_cond_wait (&queue->changed, &queue->lock);
  if (next == NULL) {
    /* Under the lock, so that a start comes before or after. */
    gst_pad_pause_task (queue->srcpad);
    g_mutex_unlock (&queue->lock);
    return;
  }

  if (GST_IS_EVENT (next)) {
    if (GST_EVENT_TYPE (next) == GST_EVENT_SEGMENT)
      queue->segment = TRUE;
    else if (GST_EVENT_TYPE (next) == GST_EVENT_EOS)
      queue->ended = TRUE;
    else if (GST_EVENT_TYPE (next) == GST_EVENT_STREAM_START)
      queue->spoke = queue->ended = FALSE;
    g_mutex_unlock (&queue->lock);
    gst_pad_push_event (queue->srcpad, GST_EVENT_CAST (next));
    g_mutex_lock (&queue->lock);
  } else {
    GstFlowReturn result;

    queue->position = GST_BUFFER_PTS (next);
    if (queue->pace == PACE_PREROLL)
      queue->pace = PACE_PAUSED;
    g_mutex_unlock (&queue->lock);
    result = gst_pad_push (queue->srcpad, GST_BUFFER_CAST (next));
    g_mutex_lock (&queue->lock);
    if (result != GST_FLOW_OK && is_open (queue))
      note_failure (queue, result);
  }
  g_mutex_unlock (&queue->lock);
}

/* The threads that make answers */

/* With the lock: the job that a worker may take up, or NULL, and until when it waits for one. */
static LycheeJob *
take_job (LycheeAnswerQueue *queue, gint64 *until)
{
  LycheeJob *job = g_queue_peek_head (&queue->waiting);

  *until = 0;
  if (job == NULL || queue->pace == PACE_PAUSED || queue->running->len >= queue->max_workers)
    return NULL;
  if (job->until > g_get_monotonic_time ()) {
    *until = job->until;
    return NULL;
  }
  return g_queue_pop_head (&queue->waiting);
}

static gpointer
work (gpointer user_data)
{
  LycheeAnswerQueue *queue = user_data;
  LycheeJob *job;
  gint64 until;

  g_mutex_lock (&queue->lock);
  while (queue->active) {
    if ((job = take_job (queue, &until)) == NULL) {
      if (until > 0)
        g_cond_wait_until (&queue->changed, &queue->lock, until);
      else
        g_cond_wait (&queue->changed, &queue->lock);
      continue;
    }
    g_ptr_array_add (queue->running, job);
    g_mutex_unlock (&queue->lock);
    queue->answer (job, queue->user_data);
    job_is_done (queue, job);
    g_mutex_lock (&queue->lock);
  }
  g_mutex_unlock (&queue->lock);
  return NULL;
}

LycheeAsk *
lychee_job_get_ask (LycheeJob *job)
{
  return job->ask;
}

GCancellable *
lychee_job_get_cancellable (LycheeJob *job)
{
  return job->cancellable;
}

void
lychee_job_set_interleave (LycheeJob *job, gboolean interleave)
{
  g_mutex_lock (&job->queue->lock);
  job->interleave = interleave;
  g_mutex_unlock (&job->queue->lock);
}

/* With the lock: lets the reading go first where it is behind. It need not catch up: where it never
 * does, answers are slow. */
static void
yield (LycheeJob *job)
{
  LycheeAnswerQueue *queue = job->queue;
  guint64 until = queue->n_backlogs + CHUNKS_A_PIECE;

  queue->n_pauses += queue->backlog > 0;
  while (queue->backlog > 0 && queue->n_backlogs < until &&
         !g_cancellable_is_cancelled (job->cancellable)) {
    gint64 end = queue->backlog_time + queue->patience;

    if (!g_cond_wait_until (&queue->changed, &queue->lock, end) &&
        queue->backlog_time + queue->patience <= end)
      queue->backlog = 0;
  }
}

gboolean
lychee_job_goes_on (LycheeJob *job)
{
  LycheeAnswerQueue *queue = job->queue;

  g_mutex_lock (&queue->lock);
  yield (job);
  /* Not ahead of downstream by more than a buffer: who does not listen need not be told. */
  while ((queue->pace == PACE_PAUSED || job->output.length > 0) &&
         !g_cancellable_is_cancelled (job->cancellable))
    g_cond_wait (&queue->changed, &queue->lock);
  g_mutex_unlock (&queue->lock);
  return !g_cancellable_is_cancelled (job->cancellable);
}

void
lychee_job_put (LycheeJob *job, GstBuffer *buffer)
{
  LycheeAnswerQueue *queue = job->queue;

  g_mutex_lock (&queue->lock);
  if (job->dropped) {
    gst_buffer_unref (buffer);
  } else {
    g_queue_push_tail (&job->output, buffer);
    g_cond_broadcast (&queue->changed);
  }
  g_mutex_unlock (&queue->lock);
}

void
lychee_job_end (LycheeJob *job)
{
  g_mutex_lock (&job->queue->lock);
  g_ptr_array_remove_fast (job->queue->running, job);
  g_mutex_unlock (&job->queue->lock);
}

/* From outside */

gboolean
lychee_answer_queue_set_active (LycheeAnswerQueue *queue, gboolean active)
{
  GQueue ended = G_QUEUE_INIT;
  GPtrArray *workers;
  gboolean ret;

  if (active) {
    g_mutex_lock (&queue->lock);
    queue->active = TRUE;
    queue->flushing = FALSE;
    queue->pace = PACE_PREROLL;
    queue->result = GST_FLOW_OK;
    queue->segment = queue->ended = FALSE;
    queue->spoke = FALSE;
    queue->position = GST_CLOCK_TIME_NONE;
    queue->backlog = 0;
    ret = gst_pad_start_task (queue->srcpad, queue_loop, queue, NULL);
    g_mutex_unlock (&queue->lock);
    return ret;
  }

  g_mutex_lock (&queue->lock);
  queue->active = FALSE;
  cancel_jobs (queue, NULL, TRUE, &ended);
  workers = queue->workers;
  queue->workers = g_ptr_array_new ();
  g_mutex_unlock (&queue->lock);

  report_ended (queue, &ended);
  ret = gst_pad_stop_task (queue->srcpad);
  for (guint i = 0; i < workers->len; i++)
    g_thread_join (g_ptr_array_index (workers, i));
  g_ptr_array_unref (workers);

  g_mutex_lock (&queue->lock);
  drop_items (queue, FALSE);
  g_mutex_unlock (&queue->lock);
  return ret;
}

void
lychee_answer_queue_set_playing (LycheeAnswerQueue *queue, gboolean playing)
{
  g_mutex_lock (&queue->lock);
  if (playing) {
    queue->pace = PACE_PLAYING;
  } else {
    queue->pace = PACE_PAUSED;
    /* A sink that has nothing waits for something before it is paused. */
    if (queue->segment && is_open (queue)) {
      GstClockTime position = GST_CLOCK_TIME_IS_VALID (queue->position) ? queue->position : 0;
      Item *item = g_new0 (Item, 1);

      item->event = gst_event_new_gap (position, GST_CLOCK_TIME_NONE);
      g_queue_push_head (&queue->items, item);
    }
  }
  g_cond_broadcast (&queue->changed);
  g_mutex_unlock (&queue->lock);
}

gboolean
lychee_answer_queue_flush_start (LycheeAnswerQueue *queue, GstEvent *event)
{
  GQueue ended = G_QUEUE_INIT;
  gboolean ret;

  /* Downstream first: a push that waits there returns. */
  ret = gst_pad_push_event (queue->srcpad, event);
  g_mutex_lock (&queue->lock);
  queue->flushing = TRUE;
  cancel_jobs (queue, NULL, TRUE, &ended);
  g_mutex_unlock (&queue->lock);
  report_ended (queue, &ended);
  gst_pad_pause_task (queue->srcpad);
  return ret;
}

gboolean
lychee_answer_queue_flush_stop (LycheeAnswerQueue *queue, GstEvent *event)
{
  gboolean ret = gst_pad_push_event (queue->srcpad, event);

  g_mutex_lock (&queue->lock);
  drop_items (queue, TRUE);
  queue->flushing = FALSE;
  queue->result = GST_FLOW_OK;
  queue->segment = queue->ended = FALSE;
  queue->spoke = FALSE;
  queue->position = GST_CLOCK_TIME_NONE;
  queue->backlog = 0;
  if (queue->pace == PACE_PAUSED)
    queue->pace = PACE_PREROLL;
  g_cond_broadcast (&queue->changed);
  if (queue->active)
    gst_pad_start_task (queue->srcpad, queue_loop, queue, NULL);
  g_mutex_unlock (&queue->lock);
  return ret;
}

GstFlowReturn
lychee_answer_queue_get_result (LycheeAnswerQueue *queue)
{
  GstFlowReturn result;

  g_mutex_lock (&queue->lock);
  result = is_open (queue) ? queue->result : GST_FLOW_FLUSHING;
  g_mutex_unlock (&queue->lock);
  return result;
}

void
lychee_answer_queue_forget_result (LycheeAnswerQueue *queue)
{
  g_mutex_lock (&queue->lock);
  queue->result = GST_FLOW_OK;
  g_mutex_unlock (&queue->lock);
}

void
lychee_answer_queue_note_backlog (LycheeAnswerQueue *queue, guint chunks)
{
  g_mutex_lock (&queue->lock);
  queue->backlog = chunks;
  queue->n_backlogs++;
  queue->backlog_time = g_get_monotonic_time ();
  g_cond_broadcast (&queue->changed);
  g_mutex_unlock (&queue->lock);
}

void
lychee_answer_queue_set_patience (LycheeAnswerQueue *queue, gint64 patience)
{
  g_mutex_lock (&queue->lock);
  queue->patience = patience;
  g_cond_broadcast (&queue->changed);
  g_mutex_unlock (&queue->lock);
}

void
lychee_answer_queue_set_max_workers (LycheeAnswerQueue *queue, guint n)
{
  g_mutex_lock (&queue->lock);
  queue->max_workers = n;
  g_cond_broadcast (&queue->changed);
  g_mutex_unlock (&queue->lock);
}

GstFlowReturn
lychee_answer_queue_push_event (LycheeAnswerQueue *queue, GstEvent *event)
{
  gboolean open;

  g_mutex_lock (&queue->lock);
  open = is_open (queue);
  if (open)
    add_item (queue, event, NULL);
  g_mutex_unlock (&queue->lock);
  if (!open)
    gst_event_unref (event);
  return open ? GST_FLOW_OK : GST_FLOW_FLUSHING;
}

gboolean
lychee_answer_queue_ask (
    LycheeAnswerQueue *queue, LycheeAsk *ask, gboolean interleave, gint64 until)
{
  LycheeJob *job;
  gboolean open;

  g_mutex_lock (&queue->lock);
  open = is_open (queue) && queue->result == GST_FLOW_OK;
  if (open) {
    job = g_new0 (LycheeJob, 1);
    g_atomic_ref_count_init (&job->refs);
    job->queue = queue;
    job->ask = lychee_ask_ref (ask);
    job->cancellable = g_cancellable_new ();
    job->interleave = interleave;
    job->until = until;
    g_queue_push_tail (&queue->waiting, job_ref (job));
    add_item (queue, NULL, job);
    if (queue->workers->len < queue->max_workers &&
        queue->workers->len < queue->running->len + queue->waiting.length)
      g_ptr_array_add (queue->workers, g_thread_new ("lychee-answer", work, queue));
  }
  g_mutex_unlock (&queue->lock);
  return open;
}

void
lychee_answer_queue_release (
    LycheeAnswerQueue *queue, guint32 drain, LycheeRenewFunc renew, gpointer user_data)
{
  g_mutex_lock (&queue->lock);
  /* Of those that wait nobody else reads what is asked. */
  for (GList *l = queue->waiting.head; l != NULL; l = l->next) {
    LycheeJob *job = l->data;

    if (drain != 0 ? job->ask->drain != drain : job->until == 0)
      continue;
    if (renew != NULL) {
      renew (job->ask, user_data);
      job->interleave = job->ask->json;
    }
    job->until = 0;
  }
  g_cond_broadcast (&queue->changed);
  g_mutex_unlock (&queue->lock);
}

void
lychee_answer_queue_limit (LycheeAnswerQueue *queue, gint64 until)
{
  g_mutex_lock (&queue->lock);
  for (GList *l = queue->waiting.head; l != NULL; l = l->next) {
    LycheeJob *job = l->data;

    job->until = MIN (job->until, until);
  }
  g_cond_broadcast (&queue->changed);
  g_mutex_unlock (&queue->lock);
}

/* With the lock: (nullable): the first that waits for ever from @l on. */
static GList *
find_waiting_for_ever (GList *l)
{
  while (l != NULL && ((LycheeJob *) l->data)->until != LYCHEE_ANSWER_FOR_EVER)
    l = l->next;
  return l;
}

gboolean
lychee_answer_queue_wait (LycheeAnswerQueue *queue, gint64 until)
{
  gboolean waits, late = FALSE;

  g_mutex_lock (&queue->lock);
  while ((waits = find_waiting_for_ever (queue->waiting.head) != NULL) && !late)
    late = !g_cond_wait_until (&queue->changed, &queue->lock, until);
  g_mutex_unlock (&queue->lock);
  return waits;
}

void
lychee_answer_queue_set_drain (LycheeAnswerQueue *queue, guint32 drain)
{
  g_mutex_lock (&queue->lock);
  for (GList *l = queue->waiting.head; (l = find_waiting_for_ever (l)) != NULL; l = l->next)
    ((LycheeJob *) l->data)->ask->drain = drain;
  g_mutex_unlock (&queue->lock);
}

guint
lychee_answer_queue_cancel (LycheeAnswerQueue *queue, const char *id)
{
  GQueue ended = G_QUEUE_INIT;
  guint n;

  g_mutex_lock (&queue->lock);
  n = cancel_jobs (queue, id, FALSE, &ended);
  g_mutex_unlock (&queue->lock);
  report_ended (queue, &ended);
  return n;
}

gboolean
lychee_answer_queue_withdraw (LycheeAnswerQueue *queue, LycheeAsk *ask)
{
  LycheeJob *job = NULL;

  g_mutex_lock (&queue->lock);
  for (GList *l = queue->waiting.head; l != NULL && job == NULL; l = l->next)
    if (((LycheeJob *) l->data)->ask == ask)
      job = l->data;
  if (job != NULL)
    g_queue_remove (&queue->waiting, job);
  g_mutex_unlock (&queue->lock);
  if (job != NULL)
    job_is_done (queue, job);
  return job != NULL;
}

void
lychee_answer_queue_count (
    LycheeAnswerQueue *queue, guint *waiting, guint *running, guint64 *pauses)
{
  g_mutex_lock (&queue->lock);
  *waiting = queue->waiting.length;
  *running = queue->running->len;
  *pauses = queue->n_pauses;
  g_mutex_unlock (&queue->lock);
}
