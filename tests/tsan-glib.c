/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Tells ThreadSanitizer of the synchronisation inside GLib and GStreamer, which are built without
 * it: loaded before them, this stands in front of their locks, reference counts and queues. Only in
 * a build with -Db_sanitize=thread. */

#include <dlfcn.h>

#include <gst/gst.h>

void __tsan_acquire (void *address);
void __tsan_release (void *address);

/* Several threads may find the same at once. */
#define REAL(name)                                                                                 \
  ({                                                                                               \
    static void *found;                                                                            \
    void *real = __atomic_load_n (&found, __ATOMIC_RELAXED);                                       \
    if (G_UNLIKELY (real == NULL)) {                                                               \
      real = dlsym (RTLD_NEXT, #name);                                                             \
      __atomic_store_n (&found, real, __ATOMIC_RELAXED);                                           \
    }                                                                                              \
    (__typeof__ (&name)) real;                                                                     \
  })

/* A lock: what was done before the last unlock is seen after this lock. */
#define LOCK(type, name)                                                                           \
  __attribute__ ((visibility ("default"))) void name (type *lock)                                  \
  {                                                                                                \
    REAL (name) (lock);                                                                            \
    __tsan_acquire (lock);                                                                         \
  }
#define UNLOCK(type, name)                                                                         \
  __attribute__ ((visibility ("default"))) void name (type *lock)                                  \
  {                                                                                                \
    __tsan_release (lock);                                                                         \
    REAL (name) (lock);                                                                            \
  }
#define TRYLOCK(type, name)                                                                        \
  __attribute__ ((visibility ("default"))) gboolean name (type *lock)                              \
  {                                                                                                \
    gboolean locked = REAL (name) (lock);                                                          \
    if (locked) {                                                                                  \
      __tsan_acquire (lock);                                                                       \
    }                                                                                              \
    return locked;                                                                                 \
  }

LOCK (GMutex, g_mutex_lock)
UNLOCK (GMutex, g_mutex_unlock)
TRYLOCK (GMutex, g_mutex_trylock)
LOCK (GRecMutex, g_rec_mutex_lock)
UNLOCK (GRecMutex, g_rec_mutex_unlock)
TRYLOCK (GRecMutex, g_rec_mutex_trylock)
LOCK (GRWLock, g_rw_lock_writer_lock)
UNLOCK (GRWLock, g_rw_lock_writer_unlock)
TRYLOCK (GRWLock, g_rw_lock_writer_trylock)
LOCK (GRWLock, g_rw_lock_reader_lock)
UNLOCK (GRWLock, g_rw_lock_reader_unlock)
TRYLOCK (GRWLock, g_rw_lock_reader_trylock)

__attribute__ ((visibility ("default"))) void
g_cond_wait (GCond *cond, GMutex *mutex)
{
  __tsan_release (mutex);
  REAL (g_cond_wait) (cond, mutex);
  __tsan_acquire (mutex);
}

__attribute__ ((visibility ("default"))) gboolean
g_cond_wait_until (GCond *cond, GMutex *mutex, gint64 end_time)
{
  gboolean woken;

  __tsan_release (mutex);
  woken = REAL (g_cond_wait_until) (cond, mutex, end_time);
  __tsan_acquire (mutex);
  return woken;
}

/* A reference count: who drops the last reference sees all that was done under the others. */
#define UNREF(argument, name)                                                                      \
  __attribute__ ((visibility ("default"))) void name (argument object)                             \
  {                                                                                                \
    __tsan_release ((void *) object);                                                              \
    __tsan_acquire ((void *) object);                                                              \
    REAL (name) (object);                                                                          \
  }

#undef g_object_unref
UNREF (gpointer, g_object_unref)
UNREF (gpointer, gst_object_unref)
UNREF (GstMiniObject *, gst_mini_object_unref)
UNREF (GBytes *, g_bytes_unref)
UNREF (GPtrArray *, g_ptr_array_unref)
UNREF (GHashTable *, g_hash_table_unref)

/* g_once_init_enter: what was set up once is seen by all. */
#undef g_once_init_enter
#undef g_once_init_leave
__attribute__ ((visibility ("default"))) gboolean
g_once_init_enter (volatile void *location)
{
  gboolean first = REAL (g_once_init_enter) (location);

  __tsan_acquire ((void *) location);
  return first;
}

__attribute__ ((visibility ("default"))) void
g_once_init_leave (volatile void *location, gsize result)
{
  __tsan_release ((void *) location);
  REAL (g_once_init_leave) (location, result);
}

/* A count: what was done before a reference was dropped is seen by who drops the last. */
__attribute__ ((visibility ("default"))) gboolean (g_atomic_ref_count_dec) (gatomicrefcount *count)
{
  gboolean last;

  __tsan_release (count);
  last = REAL (g_atomic_ref_count_dec) (count);
  if (last)
    __tsan_acquire (count);
  return last;
}

/* A queue: what was done before the push is seen after the pop. */
__attribute__ ((visibility ("default"))) void
g_async_queue_push (GAsyncQueue *queue, gpointer data)
{
  __tsan_release (queue);
  REAL (g_async_queue_push) (queue, data);
}

#define POP(name)                                                                                  \
  __attribute__ ((visibility ("default"))) gpointer name (GAsyncQueue *queue)                      \
  {                                                                                                \
    gpointer data = REAL (name) (queue);                                                           \
    __tsan_acquire (queue);                                                                        \
    return data;                                                                                   \
  }

POP (g_async_queue_pop)
POP (g_async_queue_try_pop)

__attribute__ ((visibility ("default"))) gpointer
g_async_queue_timeout_pop (GAsyncQueue *queue, guint64 timeout)
{
  gpointer data = REAL (g_async_queue_timeout_pop) (queue, timeout);

  __tsan_acquire (queue);
  return data;
}

/* A thread pool, an idle source and a timeout: what was done before something was given to one is
 * seen where that is called. Other sources call functions of other types. */
typedef struct {
  GCallback func;
  gpointer data;
  GDestroyNotify destroy;
} Call;

static void
call_in_pool (gpointer data, gpointer user_data)
{
  Call *call = user_data; /* the pool's, for good */

  __tsan_acquire (data);
  ((GFunc) call->func) (data, call->data);
}

__attribute__ ((visibility ("default"))) GThreadPool *
g_thread_pool_new (
    GFunc func, gpointer user_data, gint max_threads, gboolean exclusive, GError **error)
{
  static GPtrArray *calls; /* so that none is lost */
  static GMutex lock;
  Call *call = g_new0 (Call, 1);

  *call = (Call){ G_CALLBACK (func), user_data, NULL };
  g_mutex_lock (&lock);
  if (calls == NULL)
    calls = g_ptr_array_new ();
  g_ptr_array_add (calls, call);
  g_mutex_unlock (&lock);
  return REAL (g_thread_pool_new) (call_in_pool, call, max_threads, exclusive, error);
}

__attribute__ ((visibility ("default"))) gboolean
g_thread_pool_push (GThreadPool *pool, gpointer data, GError **error)
{
  __tsan_release (data);
  return REAL (g_thread_pool_push) (pool, data, error);
}

static gboolean
call_in_context (gpointer data)
{
  Call *call = data;

  __tsan_acquire (call);
  return ((GSourceFunc) call->func) (call->data);
}

static void
destroy_call (gpointer data)
{
  Call *call = data;

  __tsan_acquire (call);
  if (call->destroy != NULL)
    call->destroy (call->data);
  g_free (call);
}

__attribute__ ((visibility ("default"))) void
g_source_set_callback (GSource *source, GSourceFunc func, gpointer data, GDestroyNotify destroy)
{
  if (source->source_funcs == &g_idle_funcs || source->source_funcs == &g_timeout_funcs) {
    Call *call = g_new (Call, 1);

    *call = (Call){ G_CALLBACK (func), data, destroy };
    __tsan_release (call);
    REAL (g_source_set_callback) (source, call_in_context, call, destroy_call);
  } else {
    REAL (g_source_set_callback) (source, func, data, destroy);
  }
}
