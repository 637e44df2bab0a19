/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The elements and lychee_session_append_text(): the same cues give the same chunks. */

#include "test-elements-common.h"

#define MAX_CUES 8

typedef struct {
  const char *speaker; /* NULL: nobody known */
  const char *text;    /* NULL ends the list */
  int second;          /* -1: no time */
} Spoken;

typedef struct {
  const char *name;
  Spoken cues[MAX_CUES];
  const char *read; /* the running text */
} Case;

static const Case cases[] = {
  { "words", { { NULL, "the", 0 }, { NULL, "hat", 1 }, { NULL, ",", 2 }, { NULL, "said", 3 } },
      "the hat, said" },
  { "lines",
      { { NULL, "we went home early", 0 }, { NULL, "and then we slept", 1 },
          { NULL, "as we always do", 2 } },
      "we went home early\nand then we slept\nas we always do" },
  { "blocks", { { NULL, "the h", -1 }, { NULL, "at and the s", -1 }, { NULL, "and", -1 } },
      "the hat and the sand" },
  { "space-there", { { NULL, "the ", 0 }, { NULL, "hat", 1 }, { NULL, "\u3000hat", 2 } },
      "the hat\u3000hat" },
  { "chinese-words",
      { { NULL, "我们", 0 }, { NULL, "明天", 1 }, { NULL, "去", 2 }, { NULL, "。", 3 } },
      "我们明天去。" },
  { "japanese-lines",
      { { NULL, "今日は東京へ行きます。", 0 }, { NULL, "明日は大阪へ行きます。", 1 } },
      "今日は東京へ行きます。\n明日は大阪へ行きます。" },
  { "thai-words", { { NULL, "เรา", 0 }, { NULL, "ไป", 1 }, { NULL, "ตลาด", 2 } }, "เราไปตลาด" },
  { "speakers",
      { { "Ann", "Is it mended?", 0 }, { "Ann", "The pump, I mean.", 1 }, { "Bo", "No.", 2 },
          { "Ann", "Oh", 3 }, { "Ann", "dear.", 4 } },
      "Ann: Is it mended?\nThe pump, I mean.\nBo: No.\nAnn: Oh dear." },
  { "speakers-named-already",
      { { "Ann", "Ann: is it mended?", 0 }, { "Bo", "Bo: no.", 1 }, { "安", "安：是", 2 } },
      "Ann: is it mended?\nBo: no.\n安：是" },
  { "speakers-not-known",
      { { ">>", ">> is it mended?", 0 }, { NULL, "nobody says", 1 }, { "Ann", "no", 2 } },
      ">> is it mended?\nnobody says\nAnn: no" },
  { "speakers-without-times", { { "Ann", "ye", -1 }, { "Ann", "s", -1 }, { "Bo", "no", -1 } },
      "Ann: yes\nBo: no" },
  { "speakers-behind-line-end", { { "Ann", "yes\n", 0 }, { "Bo", "no", 1 } }, "Ann: yes\nBo: no" },
  { "more-than-a-chunk",
      { { "Ann", "We ought to mend the pump before the frost, said the caretaker last week.", 0 },
          { "Ann", "It held all winter, but the seal is worn and the water runs away.", 1 },
          { "Bo", "The council agreed: two hundred euros, no more.", 2 } },
      "Ann: We ought to mend the pump before the frost, said the caretaker last week.\n"
      "It held all winter, but the seal is worn and the water runs away.\n"
      "Bo: The council agreed: two hundred euros, no more." },
};

static guint64
time_of (int second)
{
  return second < 0 ? LYCHEE_TIME_NONE : second * (guint64) GST_SECOND;
}

/* The chunks that the elements make. (transfer full) */
static GPtrArray *
read_by_elements (const Case *c)
{
  GPtrArray *chunks = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  GstBuffer *buffer;
  Chain chain;

  test_chain_init (
      &chain, "lycheetokenizer model=MODEL ! lycheechunker detector=structure", TEST_TEXT_CAPS);
  for (const Spoken *cue = c->cues; cue->text; cue++) {
    const char *speaker = cue->speaker ? cue->speaker : "";

    gst_harness_push_event (chain.harness, gst_event_new_custom (GST_EVENT_CUSTOM_DOWNSTREAM,
                                               gst_structure_new ("rstranscribe/speaker-change",
                                                   "speaker", G_TYPE_STRING, speaker, NULL)));
    buffer = test_text_buffer (
        cue->text, -1, time_of (cue->second), cue->second < 0 ? GST_CLOCK_TIME_NONE : GST_SECOND);
    g_assert_cmpint (gst_harness_push (chain.harness, buffer), ==, GST_FLOW_OK);
  }
  g_assert_true (gst_harness_push_event (chain.harness, gst_event_new_eos ()));
  while ((buffer = gst_harness_try_pull (chain.harness)) != NULL) {
    g_ptr_array_add (chunks, lychee_chunk_ref (test_chunk_meta (buffer)->chunk));
    gst_buffer_unref (buffer);
  }
  test_chain_clear (&chain);
  return chunks;
}

static void
test_same (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeSession) session = lychee_session_new (test_get_model ());
  g_autoptr (GPtrArray) chunks = read_by_elements (c);
  LycheeCache *cache = lychee_session_get_cache (session);
  g_autoptr (GString) read = g_string_new (NULL);
  g_autoptr (GError) error = NULL;

  for (const Spoken *cue = c->cues; cue->text; cue++) {
    guint64 start = time_of (cue->second), end = cue->second < 0 ? start : start + GST_SECOND;

    lychee_session_append_text (session, cue->text, cue->speaker, start, end, NULL, &error);
    g_assert_no_error (error);
  }
  lychee_session_flush (session, NULL, &error);
  g_assert_no_error (error);

  g_assert_cmpuint (chunks->len, >, 0);
  g_assert_cmpuint (lychee_cache_get_n_chunks (cache), ==, chunks->len);
  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *theirs = chunks->pdata[i];
    g_autoptr (LycheeChunk) ours = lychee_cache_get_chunk (cache, i, NULL);

    g_assert_cmpmem (ours->ids, ours->n_ids * 4, theirs->ids, theirs->n_ids * 4);
    g_assert_cmpstr (ours->text, ==, theirs->text);
    g_assert_cmpstr (ours->speaker, ==, theirs->speaker);
    g_assert_cmpuint (ours->pts, ==, theirs->pts);
    g_assert_cmpuint (ours->duration, ==, theirs->duration);
    g_assert_cmpint (ours->boundary, ==, theirs->boundary);
    g_string_append (read, ours->text);
  }
  g_assert_cmpstr (read->str, ==, c->read);
}

static void
add (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *name = g_strconcat ("/library/", cases[i].name, NULL);

    g_test_add_data_func (name, &cases[i], test_same);
  }
}

int
main (int argc, char **argv)
{
  return test_main (argc, argv, add);
}
