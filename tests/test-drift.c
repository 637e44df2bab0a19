/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Changes of subject, by a model whose tokens mean nothing but themselves: a subject is a set of
 * tokens that come again and again. */

#include "lychee-chunker.h"
#include "lychee-drift.h"
#include "lychee-forward.h"
#include "lychee-model-private.h"
#include "tiny-model.h"

#include <math.h>
#include <string.h>

static LycheeModel *model;

/* Ids of the subjects, which have no common token. */
#define SUBJECT_SIZE 10
#define FIRST_ID 100

static gint32
draw (GRand *rand, guint subject)
{
  return FIRST_ID + subject * SUBJECT_SIZE + g_rand_int_range (rand, 0, SUBJECT_SIZE);
}

static LycheeDrift *
new_drift (guint n, guint change, guint n_after)
{
  LycheeDrift *drift = lychee_drift_new (model, 32, 0);
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);

  for (guint i = 0; i < n; i++)
    lychee_drift_push (drift, draw (rand, i >= change));
  return drift;
}

static void
test_measure (void)
{
  g_autoptr (LycheeDrift) same = new_drift (200, 200, 32);
  g_autoptr (LycheeDrift) other = new_drift (200, 168, 32);
  float a = lychee_drift_measure (same, 32), b = lychee_drift_measure (other, 32);

  g_assert_cmpfloat (a, >=, 0);
  g_assert_cmpfloat (b, <=, 2);
  g_assert_cmpfloat (b, >, a + 0.4);
  /* Nearer to the change is more. */
  g_assert_cmpfloat (lychee_drift_measure (other, 16), <, b);
}

static void
test_measure_unknown (void)
{
  g_autoptr (LycheeDrift) drift = lychee_drift_new (model, 32, 0);

  for (guint i = 0; i < 20; i++)
    lychee_drift_push (drift, 100 + i);
  g_assert_true (isnan (lychee_drift_measure (drift, 0)));
  g_assert_true (isnan (lychee_drift_measure (drift, LYCHEE_DRIFT_MIN_AFTER - 1)));
  g_assert_false (isnan (lychee_drift_measure (drift, LYCHEE_DRIFT_MIN_AFTER)));
  g_assert_false (isnan (lychee_drift_measure (drift, 12)));
  g_assert_true (isnan (lychee_drift_measure (drift, 13)));
  lychee_drift_reset (drift);
  g_assert_true (isnan (lychee_drift_measure (drift, 0)));
}

/* Ids that the model does not have, or that mean nothing. */
static void
test_measure_foreign (void)
{
  static const gint32 ids[] = { -1, G_MININT32, G_MAXINT32, 0 };

  for (guint i = 0; i < G_N_ELEMENTS (ids); i++) {
    g_autoptr (LycheeDrift) drift = lychee_drift_new (model, 32, 0);

    for (guint j = 0; j < 200; j++)
      lychee_drift_push (drift, ids[i]);
    g_assert_true (isnan (lychee_drift_measure (drift, 32)));
  }
}

/* The same tokens give the same, whatever was before a reset. */
static void
test_reset (void)
{
  g_autoptr (LycheeDrift) a = new_drift (150, 120, 32), b = new_drift (77, 10, 32);
  g_autoptr (GRand) rand = g_rand_new_with_seed (3);

  lychee_drift_rate (b, 1.5f);
  lychee_drift_reset (b);
  for (guint i = 0; i < 150; i++)
    lychee_drift_push (b, draw (rand, i >= 120));
  g_assert_cmpfloat (lychee_drift_measure (a, 30), ==, lychee_drift_measure (b, 30));
  g_assert_cmpfloat (lychee_drift_rate (a, 1), ==, lychee_drift_rate (b, 1));
}

static void
test_rate (void)
{
  g_autoptr (LycheeDrift) drift = lychee_drift_new (model, 32, 0);
  float rate = 0;

  g_assert_true (isnan (lychee_drift_rate (drift, NAN)));
  for (guint i = 0; i < 10000; i++)
    rate = lychee_drift_rate (drift, i % 2 == 0 ? 0.4f : 0.6f);
  g_assert_cmpfloat_with_epsilon (rate, 1, 0.1);
  g_assert_cmpfloat (lychee_drift_rate (drift, 0.8f), >, 2.4);
  g_assert_cmpfloat (lychee_drift_rate (drift, 0.2f), <, -2.4);
}

/* Chunks of talk: words of a subject, with a mark after each nth if @sentence. */

typedef struct {
  const char *name;
  LycheeDetector detector;
  guint sentence; /* words of a sentence; 0: no marks */
  double threshold;
  guint lookahead;
  guint n_found; /* changes, of one */
  guint n_wrong; /* others, at most */
  guint within;  /* tokens off the true place at most */
  LycheeEmbedding embedding;
} TalkCase;

#define STRUCTURE LYCHEE_DETECTOR_STRUCTURE
#define SEMANTIC LYCHEE_DETECTOR_SEMANTIC
#define BOTH LYCHEE_DETECTOR_BOTH

static const TalkCase talk_cases[] = {
  { "structure", STRUCTURE, 10, 1.75, 32, 0, 0, 0 },
  { "semantic", SEMANTIC, 0, 1.75, 32, 1, 1, 8 },
  { "semantic/marks", SEMANTIC, 10, 1.75, 32, 1, 1, 8 },
  { "both", BOTH, 0, 1.75, 32, 1, 1, 8 },
  { "both/marks", BOTH, 10, 1.75, 32, 1, 1, 10 },
  { "both/lookahead-16", BOTH, 0, 1.75, 16, 1, 1, 8 },
  { "both/lookahead-100", BOTH, 0, 1.75, 100, 1, 1, 40 },
  { "both/threshold", BOTH, 0, 50, 32, 0, 0, 0 },
  { "shallow", BOTH, 0, 1.75, 32, 1, 2, 8, LYCHEE_EMBEDDING_SHALLOW },
  { "shallow/lookahead-100", SEMANTIC, 10, 1.75, 100, 1, 2, 40, LYCHEE_EMBEDDING_SHALLOW },
};

#define N_SUBJECTS 2
#define SUBJECT_TOKENS 200

static GPtrArray *
talk (LycheeChunker *chunker, guint n_subjects, guint sentence, guint seed, GString *text)
{
  GPtrArray *chunks = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);

  for (guint i = 0; i < n_subjects * SUBJECT_TOKENS; i++) {
    const char *word = sentence == 0                  ? " word"
                       : i % sentence == 0            ? " Word"
                       : i % sentence + 1 == sentence ? "."
                                                      : " word";
    LycheeChunkerToken token = { draw (rand, i / SUBJECT_TOKENS), word, strlen (word), NULL,
      LYCHEE_TIME_NONE, LYCHEE_TIME_NONE, FALSE };

    g_string_append (text, word);
    lychee_chunker_push (chunker, &token, chunks);
  }
  return chunks;
}

static void
check_chunks (GPtrArray *chunks, const char *text, guint n_tokens, guint min, guint max)
{
  g_autoptr (GString) all = g_string_new (NULL);
  guint n = 0;

  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = chunks->pdata[i];

    g_assert_cmpuint (chunk->number, ==, i);
    g_assert_cmpuint (chunk->n_ids, <=, max);
    if (chunk->boundary != LYCHEE_BOUNDARY_PARAGRAPH &&
        chunk->boundary != LYCHEE_BOUNDARY_SPEAKER && chunk->boundary != LYCHEE_BOUNDARY_END)
      g_assert_cmpuint (chunk->n_ids, >=, min);
    g_string_append (all, chunk->text);
    n += chunk->n_ids;
  }
  g_assert_cmpuint (n, ==, n_tokens);
  g_assert_cmpstr (all->str, ==, text);
}

static LycheeChunker *
new_chunker_full (
    LycheeDetector detector, double threshold, guint lookahead, LycheeEmbedding embedding)
{
  return g_object_new (LYCHEE_TYPE_CHUNKER, "model", model, "detector", detector, "threshold",
      threshold, "lookahead", lookahead, "embedding", embedding, NULL);
}

static LycheeChunker *
new_chunker (LycheeDetector detector, double threshold, guint lookahead)
{
  return new_chunker_full (detector, threshold, lookahead, LYCHEE_EMBEDDING_TABLE);
}

static void
test_talk (gconstpointer data)
{
  const TalkCase *c = data;
  g_autoptr (LycheeChunker) chunker =
      new_chunker_full (c->detector, c->threshold, c->lookahead, c->embedding);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GPtrArray) chunks = talk (chunker, N_SUBJECTS, c->sentence, 1, text);
  guint place = 0, n_found = 0, n_wrong = 0;

  g_assert_cmpuint (lychee_chunker_get_n_open (chunker), <=,
      c->lookahead + 16 + 8 + 16 + 9 +
          (c->embedding == LYCHEE_EMBEDDING_SHALLOW ? LYCHEE_DRIFT_BATCH : 0));
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, text->str, N_SUBJECTS * SUBJECT_TOKENS, 8, 16);
  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = chunks->pdata[i];
    guint off;

    place += chunk->n_ids;
    /* Drift is known but at the beginning and the end, and without a model. */
    if (place >= 8 && place + 8 <= N_SUBJECTS * SUBJECT_TOKENS && c->detector != STRUCTURE)
      g_assert_false (isnan (chunk->drift));
    if (chunk->boundary != LYCHEE_BOUNDARY_DRIFT)
      continue;
    g_test_message ("drift %.2f at %u", chunk->drift, place);
    off = place % SUBJECT_TOKENS;
    if (c->sentence > 0 && c->detector == BOTH)
      g_assert_cmpuint (place % c->sentence, ==, 0);
    if (MIN (off, SUBJECT_TOKENS - off) <= c->within)
      n_found++;
    else
      n_wrong++;
  }
  g_assert_cmpuint (n_found, ==, c->n_found);
  g_assert_cmpuint (n_wrong, <=, c->n_wrong);
}

/* The first layers alone compute what they compute among all, and their states are what the next
 * layer's keys are made of. */
static void
test_shallow_pass (void)
{
  const LycheeHparams *hp = lychee_model_get_hparams (model);
  LycheeExecutor *executor = lychee_executor_get (1);
  g_autoptr (LycheeForward) deep = lychee_forward_new (model, executor);
  g_autoptr (LycheeForward) shallow = lychee_forward_new_shallow (model, executor, 1);
  g_autoptr (LycheeCache) whole =
      lychee_cache_new (hp->n_layers, hp->n_kv_heads, hp->head_dim, 64, G_MAXUINT64);
  g_autoptr (LycheeCache) part =
      lychee_cache_new (1, hp->n_kv_heads, hp->head_dim, 64, G_MAXUINT64);
  gsize n_bytes = lychee_cache_get_token_bytes (part) * 5;
  g_autofree guint16 *a = g_malloc (lychee_cache_get_token_bytes (whole) * 5);
  g_autofree guint16 *b = g_malloc (n_bytes);
  g_autofree float *states = g_new (float, 5 * hp->n_embd);
  const gint32 ids[] = { 101, 120, 7, 101, 110 };
  const float *found;

  g_assert_true (lychee_forward_run (deep, whole, ids, 5, LYCHEE_OUTPUT_NONE, NULL, NULL, NULL));
  g_assert_true (
      lychee_forward_run (shallow, part, ids, 5, LYCHEE_OUTPUT_STATES, &found, NULL, NULL));
  memcpy (states, found, 5 * hp->n_embd * sizeof *states);
  lychee_cache_read (whole, 0, 5, a);
  lychee_cache_read (part, 0, 5, b);
  g_assert_cmpmem (a, n_bytes, b, n_bytes); /* its layer is the first */

  /* One by one, and in context: the same token is another state. */
  lychee_cache_truncate (part, 0);
  for (guint i = 0; i < 5; i++) {
    g_assert_true (
        lychee_forward_run (shallow, part, ids + i, 1, LYCHEE_OUTPUT_STATES, &found, NULL, NULL));
    for (guint d = 0; d < hp->n_embd; d++)
      g_assert_cmpfloat_with_epsilon (found[d], states[i * hp->n_embd + d], 1e-3);
  }
  g_assert_true (memcmp (states, states + 3 * hp->n_embd, hp->n_embd * sizeof *states) != 0);
  lychee_executor_unref (executor);
}

/* Tokens wait for their layers; unknown ones mean nothing there either. */
static void
test_shallow_waits (void)
{
  g_autoptr (LycheeDrift) drift = lychee_drift_new (model, 32, 1);

  for (guint i = 0; i < LYCHEE_DRIFT_BATCH + 5; i++)
    lychee_drift_push (drift, FIRST_ID + i);
  g_assert_cmpuint (lychee_drift_get_n_waiting (drift), ==, 5);
  lychee_drift_settle (drift);
  g_assert_cmpuint (lychee_drift_get_n_waiting (drift), ==, 0);
  g_assert_false (isnan (lychee_drift_measure (drift, 8)));
  lychee_drift_reset (drift);
  for (guint i = 0; i < 1000; i++)
    lychee_drift_push (drift, i % 2 == 0 ? -1 : G_MAXINT32);
  lychee_drift_settle (drift);
  g_assert_true (isnan (lychee_drift_measure (drift, 32)));
}

/* Without a model there is only structure, as ever. */
static void
test_no_model (void)
{
  g_autoptr (LycheeChunker) with = new_chunker (STRUCTURE, 1.75, 32);
  g_autoptr (LycheeChunker) without = lychee_chunker_new (8, 16);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GPtrArray) a = talk (with, 2, 7, 1, text), b = talk (without, 2, 7, 1, text);

  g_assert_cmpuint (a->len, ==, b->len);
  for (guint i = 0; i < a->len; i++) {
    const LycheeChunk *x = a->pdata[i], *y = b->pdata[i];

    g_assert_cmpuint (x->n_ids, ==, y->n_ids);
    g_assert_true (isnan (x->drift) && isnan (y->drift));
  }
}

/* A change of speaker ends a chunk, has its drift, and nobody's words are another's. */
static void
test_speakers (gconstpointer data)
{
  LycheeDetector detector = GPOINTER_TO_INT (data);
  g_autoptr (LycheeChunker) chunker = new_chunker (detector, 1.75, 32);
  g_autoptr (GPtrArray) chunks =
      g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
  g_autoptr (GRand) rand = g_rand_new_with_seed (5);
  g_autoptr (GString) text = g_string_new (NULL);
  guint place = 0, n_turns = 0;

  for (guint i = 0; i < 300; i++) {
    char speaker[] = "A";
    LycheeChunkerToken token = { draw (rand, 0), " word", 5, speaker, i, 1, i % 60 == 0 };

    *speaker += i / 20 % 3;
    g_string_append (text, " word");
    lychee_chunker_push (chunker, &token, chunks);
    *speaker = 'x';
  }
  lychee_chunker_drain (chunker, chunks);
  check_chunks (chunks, text->str, 300, 8, 16);
  for (guint i = 0; i < chunks->len; i++) {
    const LycheeChunk *chunk = chunks->pdata[i];

    g_assert_cmpint (chunk->speaker[0], ==, 'A' + place / 20 % 3);
    g_assert_cmpuint (chunk->pts, ==, place);
    g_assert_cmpuint (chunk->duration, ==, chunk->n_ids);
    place += chunk->n_ids;
    if (place % 20 != 0 || place == 300)
      continue;
    n_turns++;
    if (chunk->boundary != LYCHEE_BOUNDARY_DRIFT)
      g_assert_cmpint (chunk->boundary, ==,
          place % 60 == 0 ? LYCHEE_BOUNDARY_PARAGRAPH : LYCHEE_BOUNDARY_SPEAKER);
    if (place + 8 <= 300)
      g_assert_false (isnan (chunk->drift));
  }
  g_assert_cmpuint (n_turns, ==, 14);
}

/* The chunk before an end that has to be leaves the last one its minimum. */
static void
test_minimum_before_end (void)
{
  for (guint at = 17; at < 40; at++) {
    g_autoptr (LycheeChunker) chunker = new_chunker (BOTH, 1.75, 32);
    g_autoptr (GPtrArray) chunks =
        g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);
    guint n = 0;

    for (guint i = 0; i < 200; i++) {
      LycheeChunkerToken token = { FIRST_ID, " word", 5, i < at ? "A" : "B", LYCHEE_TIME_NONE,
        LYCHEE_TIME_NONE, FALSE };

      lychee_chunker_push (chunker, &token, chunks);
    }
    for (guint i = 0; i < chunks->len && n < at; i++) {
      g_assert_cmpuint (((LycheeChunk *) chunks->pdata[i])->n_ids, >=, 8);
      n += ((LycheeChunk *) chunks->pdata[i])->n_ids;
    }
    g_assert_cmpuint (n, ==, at);
  }
}

/* What was said before a silence still tells what is new after it; a reset forgets. */
static void
test_drain_and_reset (void)
{
  g_autoptr (LycheeChunker) chunker = new_chunker (BOTH, 1.75, 32);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GPtrArray) first = talk (chunker, 2, 0, 1, text), again = NULL, after = NULL;
  guint n_open = lychee_chunker_get_n_open (chunker);

  g_assert_cmpuint (n_open, >, 0);
  lychee_chunker_drain (chunker, first);
  g_assert_cmpuint (lychee_chunker_get_n_open (chunker), ==, 0);
  after = talk (chunker, 1, 0, 1, text);
  g_assert_false (isnan (((LycheeChunk *) after->pdata[0])->drift));
  lychee_chunker_drain (chunker, after);

  lychee_chunker_reset (chunker);
  again = talk (chunker, 2, 0, 1, text);
  lychee_chunker_drain (chunker, again);
  g_assert_cmpuint (first->len, ==, again->len);
  for (guint i = 0; i < first->len; i++) {
    const LycheeChunk *x = first->pdata[i], *y = again->pdata[i];

    g_assert_cmpuint (x->n_ids, ==, y->n_ids);
    g_assert_cmpint (x->boundary, ==, y->boundary);
    g_assert_true (x->drift == y->drift || (isnan (x->drift) && isnan (y->drift)));
  }
}

/* Any text and any tokens, under each detector: every id once, all text, bounded. */
static void
test_random (gconstpointer data)
{
  static const char *const pieces[] = { "a", " the", "Word", ".", ",", "?", "\"", "。", "、", "漢",
    "か", "ー", "ก", "เ", "่", "🙂", "\n", "\n\n", " ", "1.5", "—", "\xE6", "\xBC\xA2", "" };
  LycheeDetector detector = GPOINTER_TO_INT (data);
  g_autoptr (GRand) rand = g_rand_new_with_seed (9);

  for (guint round = 0; round < 20; round++) {
    guint max = g_rand_int_range (rand, 1, 20), min = g_rand_int_range (rand, 1, max + 3);
    guint lookahead = g_rand_int_range (rand, 8, 40), n = g_rand_int_range (rand, 0, 400),
          n_ids = 0;
    g_autoptr (LycheeChunker) chunker = g_object_new (LYCHEE_TYPE_CHUNKER, "model", model,
        "detector", detector, "lookahead", lookahead, "min-tokens", min, "max-tokens", max,
        "threshold", g_rand_double_range (rand, 0, 2), NULL);
    g_autoptr (GPtrArray) chunks =
        g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_chunk_unref);

    for (guint i = 0; i < n; i++) {
      const char *piece = pieces[g_rand_int_range (rand, 0, G_N_ELEMENTS (pieces))];
      LycheeChunkerToken token = { g_rand_int_range (rand, -5, 400), piece, strlen (piece),
        g_rand_int_range (rand, 0, 20) == 0 ? "B" : "A", LYCHEE_TIME_NONE, LYCHEE_TIME_NONE,
        g_rand_int_range (rand, 0, 40) == 0 };

      lychee_chunker_push (chunker, &token, chunks);
      g_assert_cmpuint (lychee_chunker_get_n_open (chunker), <=, lookahead + 2 * max + 16 + 9);
      if (g_rand_int_range (rand, 0, 100) == 0)
        lychee_chunker_drain (chunker, chunks);
      if (g_rand_int_range (rand, 0, 20) == 0)
        lychee_chunker_hasten (chunker, g_rand_int_range (rand, 0, 40), chunks);
    }
    lychee_chunker_drain (chunker, chunks);
    for (guint i = 0; i < chunks->len; i++) {
      const LycheeChunk *chunk = chunks->pdata[i];

      g_assert_cmpuint (chunk->n_ids, <=, max);
      g_assert_cmpuint (chunk->n_ids, >, 0);
      g_assert_true (g_utf8_validate (chunk->text, -1, NULL));
      n_ids += chunk->n_ids;
    }
    g_assert_cmpuint (n_ids, ==, n);
  }
}

static void
test_properties (void)
{
  g_autoptr (LycheeChunker) chunker = g_object_new (LYCHEE_TYPE_CHUNKER, "model", model, NULL);
  g_autoptr (LycheeModel) same = NULL;
  LycheeDetector detector;
  double threshold;
  guint lookahead;

  g_object_get (chunker, "model", &same, "detector", &detector, "threshold", &threshold,
      "lookahead", &lookahead, NULL);
  g_assert_true (same == model);
  g_assert_cmpint (detector, ==, BOTH);
  g_assert_cmpfloat (threshold, ==, 1.75);
  g_assert_cmpuint (lookahead, ==, 32);
}

int
main (int argc, char **argv)
{
  g_autofree char *dir = NULL, *path = NULL;
  g_autoptr (GError) error = NULL;
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  int status;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-drift-XXXXXX", NULL);
  path = lychee_tiny_model_write (&tiny, dir, "tiny.gguf");
  model = lychee_model_new_from_file (path, &error);
  g_assert_no_error (error);
  g_assert_cmpuint (lychee_model_get_n_vocab (model), >, FIRST_ID + N_SUBJECTS * SUBJECT_SIZE);

  g_test_add_func ("/drift/measure", test_measure);
  g_test_add_func ("/drift/measure/unknown", test_measure_unknown);
  g_test_add_func ("/drift/measure/foreign", test_measure_foreign);
  g_test_add_func ("/drift/reset", test_reset);
  g_test_add_func ("/drift/rate", test_rate);
  for (guint i = 0; i < G_N_ELEMENTS (talk_cases); i++) {
    g_autofree char *name = g_strconcat ("/drift/talk/", talk_cases[i].name, NULL);

    g_test_add_data_func (name, &talk_cases[i], test_talk);
  }
  g_test_add_func ("/drift/no-model", test_no_model);
  g_test_add_data_func ("/drift/speakers/semantic", GINT_TO_POINTER (SEMANTIC), test_speakers);
  g_test_add_data_func ("/drift/speakers/both", GINT_TO_POINTER (BOTH), test_speakers);
  g_test_add_func ("/drift/minimum-before-end", test_minimum_before_end);
  g_test_add_func ("/drift/drain-and-reset", test_drain_and_reset);
  g_test_add_data_func ("/drift/random/semantic", GINT_TO_POINTER (SEMANTIC), test_random);
  g_test_add_data_func ("/drift/random/both", GINT_TO_POINTER (BOTH), test_random);
  g_test_add_func ("/drift/shallow/pass", test_shallow_pass);
  g_test_add_func ("/drift/shallow/waits", test_shallow_waits);
  g_test_add_func ("/drift/properties", test_properties);
  status = g_test_run ();
  g_object_unref (model);
  lychee_test_remove_dir (dir);
  return status;
}
