/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Where a transcript becomes longer than what the model was trained for: up to there packed
 * positions are absolute ones, to the bit; then keys are turned back, once, and go on as if they
 * had been kept before rotation from the first one. */

#include "lychee-attention.h"
#include "lychee-model-private.h"
#include "model-logits.h"
#include "session-fixture.h"
#include "tiny-model.h"

#include <math.h>
#include <string.h>

static char *dir;

#define RANGE 256
#define BUDGET 100
#define TINY(...)                                                                                  \
  {                                                                                                \
    .seed = 11, .n_layers = 3, .n_embd = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 32,        \
    .n_ff = 96, .n_context = RANGE, .type = GGML_TYPE_F32, .rope_freq_base = 10000, __VA_ARGS__    \
  }

typedef struct {
  const char *name;
  LycheeTinyModel tiny;
  LycheeGranularity granularity;
  LycheeRowForm form;
} Case;

_Pragma ("GCC diagnostic ignored \"-Woverride-init\"") static const Case cases[] = {
  { "llama", TINY (.n_layers = 3) },
  { "yarn", TINY (.scaling = "yarn", .scaling_factor = 4, .n_original = 64) },
  { "qwen3", TINY (.architecture = "qwen3") },
  { "gemma3", TINY (.architecture = "gemma3", .n_layers = 7, .window = 24, .tied = TRUE) },
  { "phi3", TINY (.architecture = "phi3", .n_rot = 24, .scaling = "longrope", .n_original = 64) },
  { "chunks", TINY (.n_layers = 3), LYCHEE_GRANULARITY_CHUNK },
  { "q8_0", TINY (.n_layers = 3), LYCHEE_GRANULARITY_TOKEN, LYCHEE_ROW_Q8_0 },
};

/* A reader of a case. */
typedef struct {
  LycheeModel *model;
  LycheeExecutor *executor;
  LycheeForward *forward;
  LycheeCache *cache;
} Reader;

static void
reader_init (Reader *r, const Case *c, LycheeModel *model, guint budget, gboolean packed)
{
  LycheeCacheIndexing indexing = { c->granularity, .sinks = 16, .window = 32 };
  LycheeAttentionOptions options = { .sparse = TRUE, .budget = budget, .rest = TRUE };

  r->model = model;
  r->executor = lychee_executor_get (1);
  r->forward = lychee_forward_new (model, r->executor);
  r->cache = test_model_cache (model, 4096);
  lychee_cache_set_form (r->cache, c->form);
  lychee_model_limit_layers (model, r->cache);
  lychee_model_describe_indexing (model, &indexing);
  lychee_cache_set_packed (r->cache, packed);
  lychee_cache_enable_index (r->cache, &indexing);
  lychee_attention_set_options (lychee_forward_get_attention (r->forward), &options);
}

static void
reader_clear (Reader *r)
{
  g_clear_object (&r->cache);
  g_clear_pointer (&r->forward, lychee_forward_free);
  g_clear_pointer (&r->executor, lychee_executor_unref);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Reader, reader_clear)

/* Reads up to @end, @step at a time, into @cache; the last token's logits. */
static const float *
read_to (Reader *r, LycheeCache *cache, guint end, guint step)
{
  g_autofree gint32 *ids = g_new (gint32, end);
  const float *logits = NULL;

  test_model_ids (ids, end, lychee_model_get_n_vocab (r->model));
  while (lychee_cache_get_length (cache) < end) {
    guint at = lychee_cache_get_length (cache);
    g_autoptr (GError) error = NULL;

    lychee_forward_run (r->forward, cache, ids + at, MIN (step, end - at), LYCHEE_OUTPUT_LAST,
        &logits, NULL, &error);
    g_assert_no_error (error);
  }
  return logits;
}

static double
difference (const float *x, const float *y, guint n)
{
  double sum = 0, all = 0;

  for (guint i = 0; i < n; i++) {
    sum += (x[i] - y[i]) * (x[i] - y[i]);
    all += y[i] * y[i];
  }
  return sqrt (sum / all);
}

static LycheeModel *
load (const Case *c)
{
  g_autofree char *path = lychee_tiny_model_write (&c->tiny, dir, "positions.gguf");

  return test_model_load (path);
}

/* Up to the model's range nothing is different from absolute positions. */
static void
test_range (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load (c);
  gsize size = lychee_model_get_n_vocab (model) * sizeof (float);
  g_auto (Reader) packed = { 0 }, absolute = { 0 };
  guint range = lychee_model_get_n_context (model);

  reader_init (&packed, c, model, BUDGET, TRUE);
  reader_init (&absolute, c, model, BUDGET, FALSE);
  for (guint end = 30; end <= range; end = end < range ? MIN (end + 45, range) : end + 1) {
    const float *x = read_to (&packed, packed.cache, end, 15);

    g_assert_cmpmem (x, size, read_to (&absolute, absolute.cache, end, 15), size);
    g_assert_false (lychee_cache_is_bare (packed.cache));
  }
  read_to (&packed, packed.cache, range + 1, 1);
  g_assert_true (lychee_cache_is_bare (packed.cache));
  g_assert_false (lychee_cache_is_bare (absolute.cache));
}

/* How far what was turned back is from what was kept before rotation from the first token on, half
 * floats being what they are. */
static double
get_tolerance (const Case *c)
{
  return c->form == LYCHEE_ROW_Q8_0 ? 0.08 : 0.01;
}

/* Read without an index, all of it: the keys themselves. */
static void
test_keys (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load (c);
  guint n_vocab = lychee_model_get_n_vocab (model), range = lychee_model_get_n_context (model);
  g_auto (Reader) turned = { 0 }, bare = { 0 };

  reader_init (&turned, c, model, 4096, TRUE);
  reader_init (&bare, c, model, 4096, TRUE);
  lychee_cache_set_bare (bare.cache, G_MAXUINT);
  for (guint end = range - 20; end < range + 100; end += 11) {
    const float *x = read_to (&turned, turned.cache, end, end < range ? 30 : 4);

    g_assert_cmpfloat (
        difference (x, read_to (&bare, bare.cache, end, end < range ? 30 : 4), n_vocab), <,
        get_tolerance (c));
  }
}

/* Through the index: layer by layer they begin anew, while some are stale too, and what is found is
 * as good as with one that was over such keys from the first token on. A large part is read, so
 * that it is about what is found and not about luck. */
static void
test_index (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load (c);
  guint n_vocab = lychee_model_get_n_vocab (model), range = lychee_model_get_n_context (model);
  guint n_stale = 0, end = range + 1;
  g_auto (Reader) turned = { 0 }, whole = { 0 };

  reader_init (&turned, c, model, range - 20, TRUE);
  reader_init (&whole, c, model, 4096, TRUE);
  read_to (&turned, turned.cache, range, 30);
  read_to (&whole, whole.cache, range, 30);
  for (gboolean stale = TRUE; stale; end++) {
    const float *x = read_to (&turned, turned.cache, end, 1);

    g_assert_cmpfloat (difference (x, read_to (&whole, whole.cache, end, 1), n_vocab), <, 0.3);
    stale = FALSE;
    for (guint layer = 0; layer < lychee_model_get_n_layers (model); layer++)
      stale |= lychee_cache_get_index (turned.cache, layer, 0) &&
               lychee_cache_is_index_stale (turned.cache, layer);
    n_stale += stale;
    g_assert_cmpuint (n_stale, <, 20);
  }
  g_assert_true (n_stale > 0 || lychee_model_get_n_layers (model) == 7); /* one global layer */
  for (guint layer = 0; layer < lychee_model_get_n_layers (model); layer++) {
    LycheeIndex *index = lychee_cache_get_index (turned.cache, layer, 0);

    if (!index)
      continue;
    g_assert_cmpuint (lychee_index_get_begin (index), ==, 16);
    g_assert_cmpuint (lychee_index_get_end (index), >, range - 80);
  }
  g_assert_cmpfloat (difference (read_to (&turned, turned.cache, end + 60, 7),
                         read_to (&whole, whole.cache, end + 60, 7), n_vocab),
      <, 0.3);
}

/* A fork has what it had: before, between, and behind the turning; and goes on as the cache does.
 */
static void
test_forks (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load (c);
  guint n_vocab = lychee_model_get_n_vocab (model), range = lychee_model_get_n_context (model);
  static const gint offsets[] = { -5, 1, 2, 40 };
  LycheeCache *forks[G_N_ELEMENTS (offsets)];
  g_auto (Reader) r = { 0 };
  g_autofree float *wanted = NULL;

  reader_init (&r, c, model, BUDGET, TRUE);
  for (guint i = 0; i < G_N_ELEMENTS (offsets); i++) {
    read_to (&r, r.cache, range + offsets[i], 13);
    forks[i] = lychee_cache_fork (r.cache, NULL);
    g_assert_nonnull (forks[i]);
  }
  for (guint i = 0; i < G_N_ELEMENTS (offsets); i++) {
    g_auto (Reader) alone = { 0 };
    const float *x;

    reader_init (&alone, c, model, BUDGET, TRUE);
    for (guint j = 0; j <= i; j++)
      read_to (&alone, alone.cache, range + offsets[j], 13);
    x = read_to (&alone, alone.cache, range + 60, 1);
    wanted = g_memdup2 (x, n_vocab * sizeof *x);
    x = read_to (&r, forks[i], range + 60, 1);
    g_assert_cmpmem (x, n_vocab * sizeof *x, wanted, n_vocab * sizeof *x);
    g_clear_pointer (&wanted, g_free);
  }
  g_assert_true (lychee_cache_is_bare (forks[0]));
  for (guint i = 0; i < G_N_ELEMENTS (offsets); i++)
    g_object_unref (forks[i]);
}

/* Cut while some of its indexes are stale, and grown again: what is read is what there is. Cut to
 * nothing it is as it was at first. */
static void
test_cut (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load (c);
  guint n_vocab = lychee_model_get_n_vocab (model), range = lychee_model_get_n_context (model);
  gsize size = n_vocab * sizeof (float);
  g_auto (Reader) cut = { 0 }, whole = { 0 }, absolute = { 0 };

  if (lychee_model_get_hparams (model)->window > 0) {
    g_test_skip ("local layers are cut by the session");
    return;
  }
  reader_init (&cut, c, model, range - 20, TRUE);
  reader_init (&whole, c, model, 4096, TRUE);
  read_to (&cut, cut.cache, range, 30);
  read_to (&cut, cut.cache, range + 1, 1);
  lychee_cache_truncate (cut.cache, range - 70);
  lychee_cache_set_bare (whole.cache, G_MAXUINT);
  for (guint end = range - 60; end < range + 30; end += 6)
    g_assert_cmpfloat (difference (read_to (&cut, cut.cache, end, 3),
                           read_to (&whole, whole.cache, end, 3), n_vocab),
        <, 0.3);
  lychee_cache_truncate (cut.cache, 0);
  g_assert_false (lychee_cache_is_bare (cut.cache));
  reader_init (&absolute, c, model, range - 20, FALSE);
  g_assert_cmpmem (read_to (&cut, cut.cache, range, 30), size,
      read_to (&absolute, absolute.cache, range, 30), size);
}

/* What was forgotten before moves positions on, and the prompt's beginning with them. */
static void
test_forget (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeModel) model = load (c);
  guint n_vocab = lychee_model_get_n_vocab (model), range = lychee_model_get_n_context (model);
  g_auto (Reader) turned = { 0 }, bare = { 0 };
  Reader *readers[] = { &turned, &bare };
  gint32 ids[20];

  if (lychee_model_get_hparams (model)->window > 0) {
    g_test_skip ("local layers forget with the session");
    return;
  }
  test_model_ids (ids, G_N_ELEMENTS (ids), n_vocab);
  for (guint i = 0; i < G_N_ELEMENTS (readers); i++) {
    g_autoptr (LycheeCache) start = NULL;
    g_autoptr (GError) error = NULL;
    reader_init (readers[i], c, model, 4096, TRUE);
    if (i == 1)
      lychee_cache_set_bare (bare.cache, G_MAXUINT);
    /* Twice, so that positions are far from places. */
    for (guint times = 0; times < 2; times++) {
      guint to = 220 + times * 160, end = to - 60;

      read_to (readers[i], readers[i]->cache, to, 20);
      g_clear_object (&start);
      start = lychee_cache_new_like (readers[i]->cache, 40);
      lychee_cache_set_origin (start, end - G_N_ELEMENTS (ids));
      lychee_forward_run (readers[i]->forward, start, ids, G_N_ELEMENTS (ids), LYCHEE_OUTPUT_NONE,
          NULL, NULL, &error);
      g_assert_no_error (error);
      lychee_cache_forget (readers[i]->cache, start, end, &error);
      g_assert_no_error (error);
    }
  }
  g_assert_false (lychee_cache_is_bare (turned.cache));
  for (guint end = 400; end < 400 + range; end += 30)
    g_assert_cmpfloat (difference (read_to (&turned, turned.cache, end, 10),
                           read_to (&bare, bare.cache, end, 10), n_vocab),
        <, get_tolerance (c));
  g_assert_true (lychee_cache_is_bare (turned.cache));
}

/* Sessions that are saved on the way answer as if they had not been. */
static void
test_saved (void)
{
  g_autoptr (LycheeModel) model = load (&cases[0]);
  static const guint chunks[] = { 15, 16, 17, 18, 30 };

  for (guint i = 0; i < G_N_ELEMENTS (chunks); i++) {
    g_autofree char *path = g_build_filename (dir, "positions.lychee", NULL);
    g_autofree char *answer = NULL, *again = NULL;
    g_autoptr (LycheeSession) session = NULL, loaded = NULL;
    g_autoptr (GError) error = NULL;

    session =
        g_object_new (LYCHEE_TYPE_SESSION, "model", model, "backend", LYCHEE_BACKEND_CPU, "budget",
            BUDGET, "threads", 1, "system-prompt", "", "positions", LYCHEE_POSITIONS_PACKED, NULL);
    loaded = g_object_new (LYCHEE_TYPE_SESSION, "model", model, "backend", LYCHEE_BACKEND_CPU,
        "budget", BUDGET, "threads", 1, NULL);
    append_chunks (session, 0, chunks[i], 16);
    lychee_session_save (session, path, NULL, &error);
    g_assert_no_error (error);
    lychee_session_load (loaded, path, NULL, &error);
    g_assert_no_error (error);
    append_chunks (session, chunks[i], chunks[i] + 3, 16);
    append_chunks (loaded, chunks[i], chunks[i] + 3, 16);
    answer = ask_text (session, 20);
    again = ask_text (loaded, 20);
    g_assert_cmpstr (again, ==, answer);
  }
}

typedef struct {
  const char *name;
  LycheePositions asked;
  guint max_context;
  LycheePositions positions; /* that there are */
  double stretch;
} ChoiceCase;

static const ChoiceCase choice_cases[] = {
  { "unknown", LYCHEE_POSITIONS_AUTO, 0, LYCHEE_POSITIONS_PACKED, 1 },
  { "short", LYCHEE_POSITIONS_AUTO, RANGE / 2, LYCHEE_POSITIONS_ABSOLUTE, 1 },
  { "long", LYCHEE_POSITIONS_AUTO, 2 * RANGE, LYCHEE_POSITIONS_ABSOLUTE, 2 },
  { "absolute", LYCHEE_POSITIONS_ABSOLUTE, 0, LYCHEE_POSITIONS_ABSOLUTE, 1 },
  { "packed", LYCHEE_POSITIONS_PACKED, 2 * RANGE, LYCHEE_POSITIONS_PACKED, 1 },
};

/* A session says what its positions are, reads as far as they go, and says when they are packed. */
static void
test_choice (gconstpointer data)
{
  const ChoiceCase *c = data;
  g_autoptr (LycheeModel) model = load (&cases[0]);
  g_autoptr (LycheeSession) session = g_object_new (LYCHEE_TYPE_SESSION, "model", model, "backend",
      LYCHEE_BACKEND_CPU, "threads", 1, "budget", BUDGET, "reserve", 32, "overflow",
      LYCHEE_OVERFLOW_STOP_READING, "positions", c->asked, "max-context", c->max_context, NULL);
  gboolean is_packed = c->positions == LYCHEE_POSITIONS_PACKED;
  guint room = c->max_context > 0 ? c->max_context : is_packed ? G_MAXUINT : RANGE;
  g_autofree char *answer = NULL;

  for (guint n = 4; n <= 40; n += 36) {
    g_autoptr (GVariant) stats = NULL;
    LycheePositions positions;
    const char *name;
    double stretch;
    gboolean packed;

    append_chunks (session, n == 4 ? 0 : 4, n, 16);
    g_object_get (session, "positions", &positions, NULL);
    g_assert_cmpint (positions, ==, c->positions);
    stats = lychee_session_get_stats (session);
    g_assert_true (g_variant_lookup (stats, "positions", "&s", &name));
    g_assert_cmpstr (name, ==, is_packed ? "packed" : "absolute");
    g_assert_true (g_variant_lookup (stats, "stretch", "d", &stretch));
    g_assert_cmpfloat (stretch, ==, c->stretch);
    g_assert_true (g_variant_lookup (stats, "packed", "b", &packed));
    g_assert_true (packed == (is_packed && n == 40));
    if (n == 40)
      g_assert_true ((get_count (session, "tokens-left-out") > 0) == (n * 16 > room));
  }
  answer = ask_text (session, 8);
  g_assert_cmpstr (answer, !=, "");
}

static void
add (const char *name, GTestDataFunc func)
{
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strdup_printf ("/positions/%s/%s", name, cases[i].name);

    g_test_add_data_func (path, &cases[i], func);
  }
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-positions-XXXXXX", NULL);
  add ("range", test_range);
  add ("keys", test_keys);
  add ("index", test_index);
  add ("forks", test_forks);
  add ("cut", test_cut);
  add ("forget", test_forget);
  g_test_add_func ("/positions/saved", test_saved);
  for (guint i = 0; i < G_N_ELEMENTS (choice_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/positions/choice/%s", choice_cases[i].name);

    g_test_add_data_func (path, &choice_cases[i], test_choice);
  }
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
