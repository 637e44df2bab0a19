/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A seek back, in a transcript that was read and in one that was saved and resumed: what was said
 * before its place stays, what is said from there on is read once. */

#include "test-elements-common.h"

#include <glib/gstdio.h>

#define CHAIN                                                                                      \
  "lycheetokenizer model=MODEL ! lycheechunker detector=structure ! lycheeindexer name=i "         \
  "system-prompt=\"\" "

#define N_CUES 3
#define CUE_SECONDS 4

static const char *const sentences[] = {
  "The first of us says that the harvest was late this year.",
  "The second one answers that the rain came when nobody wanted it.",
  "Then the third has to go, and asks for the minutes to be sent.",
};

/* As recognisers give it: chunks lie over two cues. */
static const char *const speech[] = { "the first of us says that the harvest", "no",
  "and then the third has to go" };

/* Where the transcript is that is cut. */
typedef enum {
  READ,         /* by this pipeline */
  SAVED,        /* by another one; this one has heard nothing yet */
  SAVED_AND_ON, /* and this one has gone on */
} Where;

static const char *const where_names[] = { "read", "saved", "saved-and-on" };

typedef struct {
  Where where;
  const char *const *cues; /* [N_CUES] */
  guint second;            /* sought */
} Seek;

/* Says the cues from @first to before @end, and ends them. */
static void
say_cues (Chain *chain, const char *const *cues, guint first, guint end)
{
  for (guint i = first; i < end; i++)
    g_assert_cmpint (
        gst_harness_push (chain->harness,
            test_text_buffer (cues[i], -1, CUE_SECONDS * i * GST_SECOND, CUE_SECONDS * GST_SECOND)),
        ==, GST_FLOW_OK);
  g_assert_true (gst_harness_push_event (
      chain->harness, gst_event_new_gap (CUE_SECONDS * end * GST_SECOND, GST_CLOCK_TIME_NONE)));
}

/* The text of all that was read; without white space, which depends on where a stream begins. */
static char *
pull_read_text (Chain *chain)
{
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (LycheeCache) cache = NULL;
  GstBuffer *buffer;
  LycheeChunk *chunk;

  while ((buffer = gst_harness_try_pull (chain->harness)) != NULL) {
    g_set_object (&cache, test_kv_meta (buffer)->cache);
    gst_buffer_unref (buffer);
  }
  g_assert_nonnull (cache);
  for (guint i = 0; (chunk = lychee_cache_get_chunk (cache, i, NULL)) != NULL; i++) {
    for (const char *at = chunk->text; *at != '\0'; at++)
      if (!g_ascii_isspace (*at))
        g_string_append_c (text, *at);
    lychee_chunk_unref (chunk);
  }
  return g_string_free (g_steal_pointer (&text), FALSE);
}

static void
seek (Chain *chain, guint second)
{
  test_chain_flush (chain);
  test_chain_segment (chain, second * GST_SECOND);
}

static char *
new_path (void)
{
  char *path = g_build_filename (test_dir (), "session", NULL);

  g_unlink (path);
  return path;
}

/* A pipeline that keeps its session in @path. */
static void
begin (Chain *chain, const char *path)
{
  g_autofree char *description = g_strconcat (CHAIN "location=", path, NULL);

  test_chain_init (chain, description, TEST_TEXT_CAPS);
}

/* A seek into the middle of a cue has all of it said again, and it is read once. */
static void
test_seek (gconstpointer data)
{
  const Seek *c = data;
  guint saved = c->where == SAVED_AND_ON ? 2 : N_CUES;
  g_autofree char *path = new_path (), *expected = NULL, *text = NULL;
  Chain chain;

  begin (&chain, path);
  say_cues (&chain, c->cues, 0, N_CUES);
  expected = pull_read_text (&chain);
  if (c->where != READ) {
    test_chain_clear (&chain);
    g_unlink (path);
    begin (&chain, path);
    say_cues (&chain, c->cues, 0, saved);
    test_chain_clear (&chain);
    begin (&chain, path);
    if (c->where == SAVED_AND_ON)
      say_cues (&chain, c->cues, saved, N_CUES);
  }
  seek (&chain, c->second);
  say_cues (&chain, c->cues, c->second / CUE_SECONDS, N_CUES);
  text = pull_read_text (&chain);
  g_assert_cmpstr (text, ==, expected);
  test_chain_clear (&chain);
}

/* Where what follows a saved transcript counts time anew, as a second file does, a seek is about
 * that. */
static void
test_times_anew (void)
{
  g_autofree char *path = new_path (), *first = NULL, *second = NULL, *text = NULL;
  g_autofree char *expected = NULL;
  Chain chain;

  begin (&chain, path);
  say_cues (&chain, sentences, 0, N_CUES);
  first = pull_read_text (&chain);
  test_chain_clear (&chain);

  test_chain_init (&chain, CHAIN, TEST_TEXT_CAPS);
  say_cues (&chain, speech, 0, N_CUES);
  second = pull_read_text (&chain);
  test_chain_clear (&chain);
  expected = g_strconcat (first, second, NULL);

  begin (&chain, path);
  say_cues (&chain, speech, 0, N_CUES);
  text = pull_read_text (&chain);
  g_assert_cmpstr (text, ==, expected);
  for (guint to = 0; to < N_CUES; to++) {
    g_autofree char *again = NULL;

    seek (&chain, CUE_SECONDS * to + 1);
    say_cues (&chain, speech, to, N_CUES);
    again = pull_read_text (&chain);
    g_assert_cmpstr (again, ==, expected);
  }
  test_chain_clear (&chain);

  /* And it is saved as a whole. */
  begin (&chain, path);
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  g_free (text);
  text = pull_read_text (&chain);
  g_assert_cmpstr (text, ==, expected);
  test_chain_clear (&chain);
}

static void
add_tests (void)
{
  static const guint seconds[] = { 0, 1, 4, 5, 7, 8, 11 };
  static Seek seeks[G_N_ELEMENTS (where_names)][2][G_N_ELEMENTS (seconds)];

  for (guint i = 0; i < G_N_ELEMENTS (where_names); i++)
    for (guint j = 0; j < 2; j++)
      for (guint k = 0; k < G_N_ELEMENTS (seconds); k++) {
        g_autofree char *name = g_strdup_printf (
            "/seek/%s/%s/%u", where_names[i], j == 0 ? "sentences" : "speech", seconds[k]);

        seeks[i][j][k] = (Seek){ i, j == 0 ? sentences : speech, seconds[k] };
        g_test_add_data_func (name, &seeks[i][j][k], test_seek);
      }
  g_test_add_func ("/seek/times-anew", test_times_anew);
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add_tests);
}
