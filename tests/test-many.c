/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Many sessions over one model: each is as if it were alone, they take turns, and what each one
 * needs is known. */

#include "lychee-cache-private.h"
#include "session-fixture.h"
#include "tiny-model.h"

#define SESSIONS 16
#define CHUNKS 30

static char *dir;
static LycheeModel *model;

typedef struct {
  LycheeSession *session;
  guint number;
  gint n_read; /* atomic: chunks */
  char *answer;
} Live;

static Live live[SESSIONS];
static gint n_finished; /* atomic */
static gint least;      /* chunks that the last session had read when the first had read all */

static void
read_chunk (LycheeSession *session, guint number, guint i)
{
  gint32 ids[12];
  g_autoptr (LycheeChunk) chunk = NULL;
  g_autoptr (GError) error = NULL;

  for (guint j = 0; j < G_N_ELEMENTS (ids); j++)
    ids[j] = (number * 29 + i * 37 + j * 11) % 200 + 3;
  chunk =
      lychee_chunk_new (ids, G_N_ELEMENTS (ids), "words", NULL, i, 1, LYCHEE_BOUNDARY_WORD, 0, i);
  lychee_session_append (session, chunk, NULL, &error);
  g_assert_no_error (error);
}

static gpointer
run (gpointer data)
{
  Live *l = data;

  for (guint i = 0; i < CHUNKS; i++) {
    read_chunk (l->session, l->number, i);
    g_atomic_int_inc (&l->n_read);
    if (i == CHUNKS / 2)
      g_free (ask_text (l->session, 10));
  }
  if (g_atomic_int_add (&n_finished, 1) == 0) {
    gint n = CHUNKS;

    for (guint i = 0; i < SESSIONS; i++)
      n = MIN (n, g_atomic_int_get (&live[i].n_read));
    g_atomic_int_set (&least, n);
  }
  l->answer = ask_text (l->session, 10);
  return NULL;
}

/* All at once: each reads its chunks and asks. */
static void
run_all (void)
{
  GThread *threads[SESSIONS];

  n_finished = 0;
  for (guint i = 0; i < SESSIONS; i++)
    live[i] = (Live){ g_object_new (LYCHEE_TYPE_SESSION, "model", model, "budget", 200, NULL), i };
  for (guint i = 0; i < SESSIONS; i++)
    threads[i] = g_thread_new ("session", run, &live[i]);
  for (guint i = 0; i < SESSIONS; i++)
    g_thread_join (threads[i]);
}

static void
clear_all (void)
{
  for (guint i = 0; i < SESSIONS; i++) {
    g_free (live[i].answer);
    g_object_unref (live[i].session);
  }
}

static void
test_many (void)
{
  /* Has its class made before there are threads: ThreadSanitizer does not see how they learn of it.
   */
  g_autoptr (LycheeQuestion) first = lychee_question_new ("Well?");

  /* First come, first served: of those that wait for their turn none is left far behind. Where the
   * system does not let one come to that, they try again. */
  run_all ();
  for (guint i = 0; i < 5 && least <= CHUNKS / 4; i++) {
    clear_all ();
    run_all ();
  }
  g_assert_cmpint (least, >, CHUNKS / 4);
  for (guint i = 0; i < SESSIONS; i++) {
    g_autoptr (LycheeSession) alone =
        g_object_new (LYCHEE_TYPE_SESSION, "model", model, "budget", 200, NULL);
    g_autofree char *answer = NULL;

    for (guint j = 0; j < CHUNKS; j++)
      read_chunk (alone, i, j);
    answer = ask_text (alone, 10);
    g_assert_cmpstr (live[i].answer, ==, answer);
    g_assert_cmpuint (
        get_count (live[i].session, "cache-bytes"), ==, get_count (alone, "cache-bytes"));
    g_assert_cmpuint (
        get_count (live[i].session, "index-bytes"), ==, get_count (alone, "index-bytes"));
  }
  clear_all ();
}

/* Forks of one session share what it has read: together they may use little more than one, and each
 * goes on by itself. */
static void
test_forks (void)
{
  const guint64 limit = 2000000;
  g_autoptr (LycheeSession) session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", model, "reserve", 100, "max-memory", limit, NULL);
  LycheeSession *forks[SESSIONS];

  for (guint i = 0; i < 60; i++)
    read_chunk (session, 0, i);
  g_assert_cmpuint (get_count (session, "cache-bytes") * SESSIONS, >, limit);
  for (guint i = 0; i < SESSIONS; i++) {
    g_autoptr (GError) error = NULL;

    forks[i] = lychee_session_fork (session, &error);
    g_assert_no_error (error);
    read_chunk (forks[i], i, 60);
  }
  for (guint i = 0; i < SESSIONS; i++) {
    g_free (ask_text (forks[i], 10));
    g_object_unref (forks[i]);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS FALSE /* their own memory is many times ours */
#else
#define COUNTS TRUE
#endif

/* Bytes of memory that the process has; 0: nothing says so. */
static guint64
get_resident (void)
{
  g_autofree char *text = NULL;
  guint64 sum = 0;

  if (!g_file_get_contents ("/proc/self/status", &text, NULL, NULL))
    return 0;
  for (const char *at = text; at; at = strchr (at, '\n')) {
    at += *at == '\n';
    if (g_str_has_prefix (at, "VmRSS:") || g_str_has_prefix (at, "VmSwap:"))
      sum += g_ascii_strtoull (strchr (at, ':') + 1, NULL, 10) * 1024;
  }
  return sum;
}

static LycheeSession *
new_reader (LycheeModel *wide, guint number)
{
  LycheeSession *session = g_object_new (LYCHEE_TYPE_SESSION, "model", wide, "budget", 200, NULL);

  for (guint i = 0; i < 50; i++)
    read_chunk (session, number, i);
  g_free (ask_text (session, 3));
  return session;
}

/* What sessions say that they take, added up, is what the process takes for them. */
static void
test_memory (void)
{
  const char *preload = g_getenv ("LD_PRELOAD");
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL;
  g_autoptr (LycheeModel) wide = NULL;
  g_autoptr (LycheeSession) first = NULL;
  LycheeSession *sessions[SESSIONS];
  guint64 before, grown, told = 0;

  if (!COUNTS || (preload && strstr (preload, "vgpreload")) || get_resident () == 0) {
    g_test_skip ("memory is not that of the sessions here, or nothing tells what it is");
    return;
  }
  tiny.n_layers = 8;
  tiny.n_kv_heads = 4;
  tiny.head_dim = 64; /* a page is 2 MB */
  path = lychee_tiny_model_write (&tiny, dir, "wide.gguf");
  wide = lychee_model_new_from_file (path, NULL);
  g_assert_nonnull (wide);
  first = new_reader (wide, 0); /* what all share is there after it */
  before = get_resident ();
  for (guint i = 0; i < SESSIONS; i++)
    sessions[i] = new_reader (wide, i);
  grown = get_resident () - before;
  for (guint i = 0; i < SESSIONS; i++) {
    told += get_count (sessions[i], "cache-bytes") + get_count (sessions[i], "index-bytes") +
            get_count (sessions[i], "buffer-bytes");
    g_object_unref (sessions[i]);
  }
  g_test_message ("%.1f MB told, %.1f MB grown", told / 1e6, grown / 1e6);
  g_assert_cmpuint (told, >, SESSIONS * 4000000);
  g_assert_cmpuint (told, >, grown / 10 * 8);
  g_assert_cmpuint (told, <, grown / 10 * 13);
}

int
main (int argc, char **argv)
{
  g_autofree char *path = NULL;
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-many-XXXXXX", NULL);
  path = lychee_test_write_tiny_model (dir, 1, NULL);
  model = lychee_model_new_from_file (path, NULL);
  g_assert_nonnull (model);
  g_test_add_func ("/many/memory", test_memory); /* first: in a process that has freed little */
  g_test_add_func ("/many/sessions", test_many);
  g_test_add_func ("/many/forks", test_forks);
  result = g_test_run ();
  g_object_unref (model);
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
