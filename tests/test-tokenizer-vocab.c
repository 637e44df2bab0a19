/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a file may say of its vocabulary, and what it may lie about. */
#include "tokenizer-fixture.h"
#include <math.h>

#define KEY "tokenizer.ggml."

typedef void (*Change) (struct gguf_context *gguf);

typedef struct {
  const char *name;
  const char *model;
  Change change;
  gint code;         /* of LycheeTokenizerError, or -1 where the file is taken */
  const char *named; /* in the error */
} Case;

static Fixture *
make_fixture (void)
{
  Fixture *f = fixture_new ();
  fixture_add (f, "<unk>", UNKNOWN, 0);
  fixture_add (f, "<s>", CONTROL, 0);
  fixture_add (f, "<|im_end|>", CONTROL, 0);
  fixture_train (f, 40);
  return f;
}

static void
set_strings (struct gguf_context *gguf, const char *key, const char *const *strings, gsize n)
{
  gguf_set_arr_str (gguf, key, (const char **) strings, n);
}

static void
nothing (struct gguf_context *gguf)
{}

static void
no_model (struct gguf_context *gguf)
{
  gguf_remove_key (gguf, KEY "model");
}

static void
model_no_string (struct gguf_context *gguf)
{
  gguf_set_val_u32 (gguf, KEY "model", 1);
}

static void
model_other (struct gguf_context *gguf)
{
  gguf_set_val_str (gguf, KEY "model", "rwkv");
}

static void
pre_no_string (struct gguf_context *gguf)
{
  gguf_set_val_bool (gguf, KEY "pre", true);
}

static void
no_tokens (struct gguf_context *gguf)
{
  gguf_remove_key (gguf, KEY "tokens");
}

static void
tokens_empty (struct gguf_context *gguf)
{
  set_strings (gguf, KEY "tokens", NULL, 0);
}

static void
tokens_no_array (struct gguf_context *gguf)
{
  gguf_set_val_str (gguf, KEY "tokens", "a");
}

static void
tokens_of_numbers (struct gguf_context *gguf)
{
  const gint32 numbers[] = { 1, 2, 3 };
  gguf_set_arr_data (gguf, KEY "tokens", GGUF_TYPE_INT32, numbers, 3);
}

static void
no_types (struct gguf_context *gguf)
{
  gguf_remove_key (gguf, KEY "token_type");
}

static void
types_too_few (struct gguf_context *gguf)
{
  const gint32 types[] = { 1, 2, 3 };
  gguf_set_arr_data (gguf, KEY "token_type", GGUF_TYPE_INT32, types, 3);
}

static void
types_of_strings (struct gguf_context *gguf)
{
  static const char *const strings[] = { "a", "b" };
  set_strings (gguf, KEY "token_type", strings, 2);
}

static void
types_wild (struct gguf_context *gguf)
{
  gsize n = gguf_get_arr_n (gguf, gguf_find_key (gguf, KEY "tokens"));
  g_autofree gint32 *types = g_new (gint32, n);
  for (gsize i = 0; i < n; i++)
    types[i] = i % 3 == 0 ? G_MININT32 : i % 3 == 1 ? 77 : 0;
  gguf_set_arr_data (gguf, KEY "token_type", GGUF_TYPE_INT32, types, n);
}

static void
types_all_control (struct gguf_context *gguf)
{
  gsize n = gguf_get_arr_n (gguf, gguf_find_key (gguf, KEY "tokens"));
  g_autofree gint32 *types = g_new (gint32, n);
  for (gsize i = 0; i < n; i++)
    types[i] = CONTROL;
  gguf_set_arr_data (gguf, KEY "token_type", GGUF_TYPE_INT32, types, n);
}

static void
types_all_user_defined (struct gguf_context *gguf)
{
  gsize n = gguf_get_arr_n (gguf, gguf_find_key (gguf, KEY "tokens"));
  g_autofree gint32 *types = g_new (gint32, n);
  for (gsize i = 0; i < n; i++)
    types[i] = USER_DEFINED;
  gguf_set_arr_data (gguf, KEY "token_type", GGUF_TYPE_INT32, types, n);
}

static void
no_merges (struct gguf_context *gguf)
{
  gguf_remove_key (gguf, KEY "merges");
}

static void
merges_empty (struct gguf_context *gguf)
{
  set_strings (gguf, KEY "merges", NULL, 0);
}

static void
merges_no_array (struct gguf_context *gguf)
{
  gguf_set_val_f32 (gguf, KEY "merges", 1);
}

static void
merge_one_piece (struct gguf_context *gguf)
{
  static const char *const merges[] = { "t h", "th" };
  set_strings (gguf, KEY "merges", merges, 2);
}

static void
merge_empty (struct gguf_context *gguf)
{
  static const char *const merges[] = { "" };
  set_strings (gguf, KEY "merges", merges, 1);
}

static void
merge_empty_side (struct gguf_context *gguf)
{
  static const char *const merges[] = { "t " };
  set_strings (gguf, KEY "merges", merges, 1);
}

static void
merges_unknown (struct gguf_context *gguf)
{
  static const char *const merges[] = { "t h", "th e", "nowhere ever", "t h", "the t", "a \xff",
    "\u2603 \u2603", "m e", "me e", "mee t" };
  set_strings (gguf, KEY "merges", merges, G_N_ELEMENTS (merges));
}

/* A rank that is better than those of the merges that lead to it. */
static void
merges_backwards (struct gguf_context *gguf)
{
  static const char *const merges[] = { "meet ing", "mee t", "in g", "me e", "i n", "m e" };
  set_strings (gguf, KEY "merges", merges, G_N_ELEMENTS (merges));
}

static void
tokens_odd (struct gguf_context *gguf)
{
  static const char *const tokens[] = { "", "", "a", "a", "b", "\xff\xfe", "\xe6\x97", "ab", "ab",
    "\u0120", "\u2603", " ", "<|im_end|>", "<|im_end|>" };
  static const gint32 types[] = { 3, 4, 1, 3, 1, 3, 1, 1, 1, 1, 1, 1, 3, 4 };
  static const char *const merges[] = { "a b", "ab a" };
  set_strings (gguf, KEY "tokens", tokens, G_N_ELEMENTS (tokens));
  set_strings (gguf, KEY "merges", merges, G_N_ELEMENTS (merges));
  gguf_set_arr_data (gguf, KEY "token_type", GGUF_TYPE_INT32, types, G_N_ELEMENTS (types));
  gguf_set_arr_data (gguf, KEY "scores", GGUF_TYPE_FLOAT32,
      (const float[G_N_ELEMENTS (tokens)]){ 0 }, G_N_ELEMENTS (tokens));
}

static void
token_long (struct gguf_context *gguf)
{
  g_autofree char *text = g_strnfill (300000, 'a');
  const char *const tokens[] = { "a", text, "aa" };
  const gint32 types[] = { 1, 3, 1 };
  static const char *const merges[] = { "a a" };
  set_strings (gguf, KEY "tokens", tokens, 3);
  set_strings (gguf, KEY "merges", merges, 1);
  gguf_set_arr_data (gguf, KEY "token_type", GGUF_TYPE_INT32, types, 3);
  gguf_set_arr_data (gguf, KEY "scores", GGUF_TYPE_FLOAT32, (const float[3]){ 0 }, 3);
}

static void
bos_too_large (struct gguf_context *gguf)
{
  gguf_set_val_u32 (gguf, KEY "bos_token_id", 1000000);
}

static void
eos_negative (struct gguf_context *gguf)
{
  gguf_set_val_i32 (gguf, KEY "eos_token_id", -2);
}

static void
eos_string (struct gguf_context *gguf)
{
  gguf_set_val_str (gguf, KEY "eos_token_id", "</s>");
}

static void
eot_huge (struct gguf_context *gguf)
{
  gguf_set_val_u64 (gguf, KEY "eot_token_id", G_GUINT64_CONSTANT (1) << 40);
}

static void
unknown_float (struct gguf_context *gguf)
{
  gguf_set_val_f32 (gguf, KEY "unknown_token_id", 0);
}

static void
ids_none (struct gguf_context *gguf)
{
  gguf_set_val_u32 (gguf, KEY "bos_token_id", G_MAXUINT32);
  gguf_set_val_i32 (gguf, KEY "eos_token_id", -1);
  gguf_set_val_u64 (gguf, KEY "eot_token_id", G_MAXUINT64);
}

static void
add_bos_number (struct gguf_context *gguf)
{
  gguf_set_val_u32 (gguf, KEY "add_bos_token", 1);
}

static void
no_scores (struct gguf_context *gguf)
{
  gguf_remove_key (gguf, KEY "scores");
}

static void
scores_too_many (struct gguf_context *gguf)
{
  g_autofree float *scores = g_new0 (float, 100000);
  gguf_set_arr_data (gguf, KEY "scores", GGUF_TYPE_FLOAT32, scores, 100000);
}

static void
scores_double (struct gguf_context *gguf)
{
  const double scores[] = { 0, 1 };
  gguf_set_arr_data (gguf, KEY "scores", GGUF_TYPE_FLOAT64, scores, 2);
}

static void
scores_odd (struct gguf_context *gguf, float odd)
{
  gsize n = gguf_get_arr_n (gguf, gguf_find_key (gguf, KEY "tokens"));
  g_autofree float *scores = g_new0 (float, n);
  scores[n - 1] = odd;
  scores[n - 2] = -odd;
  gguf_set_arr_data (gguf, KEY "scores", GGUF_TYPE_FLOAT32, scores, n);
}

static void
scores_nan (struct gguf_context *gguf)
{
  scores_odd (gguf, NAN);
}

static void
scores_infinite (struct gguf_context *gguf)
{
  scores_odd (gguf, INFINITY);
}

static void
space_prefix_string (struct gguf_context *gguf)
{
  gguf_set_val_str (gguf, KEY "add_space_prefix", "yes");
}

#define INVALID LYCHEE_TOKENIZER_ERROR_INVALID
#define UNSUPPORTED LYCHEE_TOKENIZER_ERROR_UNSUPPORTED

static const Case cases[] = {
  { "good", "gpt2", nothing, -1, NULL },
  { "no-model", "gpt2", no_model, INVALID, KEY "model" },
  { "model-no-string", "gpt2", model_no_string, INVALID, KEY "model" },
  { "model-other", "gpt2", model_other, UNSUPPORTED, "rwkv" },
  { "pre-no-string", "gpt2", pre_no_string, INVALID, KEY "pre" },
  { "no-tokens", "gpt2", no_tokens, INVALID, KEY "tokens" },
  { "tokens-empty", "gpt2", tokens_empty, INVALID, KEY "tokens" },
  { "tokens-no-array", "gpt2", tokens_no_array, INVALID, KEY "tokens" },
  { "tokens-of-numbers", "gpt2", tokens_of_numbers, INVALID, KEY "tokens" },
  { "tokens-odd", "gpt2", tokens_odd, -1, NULL },
  { "token-long", "gpt2", token_long, -1, NULL },
  { "no-types", "gpt2", no_types, -1, NULL },
  { "types-too-few", "gpt2", types_too_few, INVALID, KEY "token_type" },
  { "types-of-strings", "gpt2", types_of_strings, INVALID, KEY "token_type" },
  { "types-wild", "gpt2", types_wild, -1, NULL },
  { "types-all-control", "gpt2", types_all_control, -1, NULL },
  { "types-all-user-defined", "gpt2", types_all_user_defined, -1, NULL },
  { "no-merges", "gpt2", no_merges, INVALID, KEY "merges" },
  { "merges-empty", "gpt2", merges_empty, -1, NULL },
  { "merges-no-array", "gpt2", merges_no_array, INVALID, KEY "merges" },
  { "merge-one-piece", "gpt2", merge_one_piece, INVALID, KEY "merges: element 1" },
  { "merge-empty", "gpt2", merge_empty, INVALID, KEY "merges: element 0" },
  { "merge-empty-side", "gpt2", merge_empty_side, INVALID, KEY "merges: element 0" },
  { "merges-unknown", "gpt2", merges_unknown, -1, NULL },
  { "merges-backwards", "gpt2", merges_backwards, -1, NULL },
  { "bos-too-large", "gpt2", bos_too_large, INVALID, KEY "bos_token_id" },
  { "eos-negative", "gpt2", eos_negative, INVALID, KEY "eos_token_id" },
  { "eos-string", "gpt2", eos_string, INVALID, KEY "eos_token_id" },
  { "eot-huge", "gpt2", eot_huge, INVALID, KEY "eot_token_id" },
  { "unknown-float", "gpt2", unknown_float, INVALID, KEY "unknown_token_id" },
  { "ids-none", "gpt2", ids_none, -1, NULL },
  { "add-bos-number", "gpt2", add_bos_number, INVALID, KEY "add_bos_token" },
  { "sentencepiece-good", "llama", nothing, -1, NULL },
  { "sentencepiece-no-scores", "llama", no_scores, INVALID, KEY "scores" },
  { "sentencepiece-scores-too-many", "llama", scores_too_many, INVALID, KEY "scores" },
  { "sentencepiece-scores-double", "llama", scores_double, INVALID, KEY "scores" },
  { "sentencepiece-scores-nan", "llama", scores_nan, INVALID, KEY "scores" },
  { "sentencepiece-scores-infinite", "llama", scores_infinite, -1, NULL },
  { "sentencepiece-space-prefix", "llama", space_prefix_string, INVALID, KEY "add_space_prefix" },
  { "sentencepiece-tokens-odd", "llama", tokens_odd, -1, NULL },
  { "sentencepiece-token-long", "llama", token_long, -1, NULL },
  { "sentencepiece-no-types", "llama", no_types, -1, NULL },
  { "sentencepiece-types-wild", "llama", types_wild, -1, NULL },
  { "sentencepiece-types-all-control", "llama", types_all_control, -1, NULL },
  { "sentencepiece-types-all-user-defined", "llama", types_all_user_defined, -1, NULL },
};

static void
test_case (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (Fixture) f = make_fixture ();
  struct gguf_context *gguf = fixture_to_gguf (f, c->model, "gpt-2");
  g_autoptr (GError) error = NULL;
  g_autofree char *warning = NULL;

  c->change (gguf);
  g_autoptr (LycheeTokenizer) tokenizer = lychee_tokenizer_new_from_gguf (gguf, &warning, &error);
  gguf_free (gguf);
  g_assert_null (warning);
  if (c->code >= 0) {
    g_assert_null (tokenizer);
    g_assert_error (error, LYCHEE_TOKENIZER_ERROR, c->code);
    g_assert_nonnull (strstr (error->message, c->named));
    return;
  }
  g_assert_no_error (error);

  /* Whatever it says, text goes in, ids are in range, and text comes out. */
  guint n_vocab = lychee_tokenizer_get_n_vocab (tokenizer);
  for (guint special = 0; special < 2; special++) {
    g_autoptr (GArray) ids = new_ids ();
    lychee_tokenizer_encode (tokenizer, fixture_corpus, -1, special, ids);
    lychee_tokenizer_encode (tokenizer, "\xff\xc3 abab<|im_end|> \u2603", -1, special, ids);
    for (guint i = 0; i < ids->len; i++)
      g_assert_cmpuint ((guint) g_array_index (ids, gint32, i), <, n_vocab);
    g_autofree char *text = lychee_tokenizer_decode (
        tokenizer, (const gint32 *) (gpointer) ids->data, ids->len, special);
    g_assert_true (g_utf8_validate (text, -1, NULL));
    check_cuts (tokenizer, fixture_corpus, 60, special);
  }
  for (guint id = 0; id < n_vocab; id++) {
    const gint32 one = (gint32) id;
    g_autofree char *text = lychee_tokenizer_decode (tokenizer, &one, 1, LYCHEE_TOKENIZER_SPECIAL);
    g_assert_true (g_utf8_validate (text, -1, NULL));
  }
}

static void
test_pre (void)
{
  static const struct {
    const char *pre;
    gboolean known;
  } pres[] = {
    { "gpt-2", TRUE },
    { "smollm", TRUE },
    { "llama-bpe", TRUE },
    { "qwen2", TRUE },
    { "a-new-one", FALSE },
    { "", FALSE },
    { NULL, FALSE },
  };
  g_autoptr (Fixture) f = make_fixture ();

  for (guint i = 0; i < G_N_ELEMENTS (pres); i++) {
    struct gguf_context *gguf = fixture_to_gguf (f, "gpt2", pres[i].pre);
    g_autofree char *warning = g_strdup ("unset");
    g_autoptr (GError) error = NULL;
    g_free (g_steal_pointer (&warning));
    g_autoptr (LycheeTokenizer) tokenizer = lychee_tokenizer_new_from_gguf (gguf, &warning, &error);
    g_assert_no_error (error);
    g_assert_nonnull (tokenizer);
    if (pres[i].known) {
      g_assert_null (warning);
    } else {
      g_assert_nonnull (strstr (warning, KEY "pre"));
      if (pres[i].pre != NULL)
        g_assert_nonnull (strstr (warning, pres[i].pre));
    }
    /* Nobody need take the warning. */
    g_autoptr (LycheeTokenizer) other = lychee_tokenizer_new_from_gguf (gguf, NULL, NULL);
    g_assert_nonnull (other);
    gguf_free (gguf);
  }
}

static void
test_metadata (void)
{
  g_autoptr (Fixture) f = make_fixture ();
  gint32 eot = fixture_add (f, "<|eot_id|>", NORMAL, 0);
  gint32 turn = fixture_add (f, "<end_of_turn>", CONTROL, 0);
  gint32 own = fixture_add (f, "<|done|>", CONTROL, 0);
  g_autoptr (LycheeTokenizer) bare = tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", "smollm"));
  struct gguf_context *gguf = fixture_to_gguf (f, "gpt2", "smollm");
  gguf_set_val_u32 (gguf, KEY "bos_token_id", 1);
  gguf_set_val_u16 (gguf, KEY "eos_token_id", 5);
  gguf_set_val_i64 (gguf, KEY "eot_token_id", own);
  gguf_set_val_bool (gguf, KEY "add_bos_token", true);
  g_autoptr (LycheeTokenizer) full = tokenizer_from_gguf (gguf);

  g_assert_cmpint (lychee_tokenizer_get_bos (bare), ==, -1);
  g_assert_cmpint (lychee_tokenizer_get_eos (bare), ==, -1);
  g_assert_false (lychee_tokenizer_get_add_bos (bare));
  g_assert_cmpuint (lychee_tokenizer_get_n_vocab (bare), ==, f->tokens->len);
  g_assert_false (lychee_tokenizer_is_end (bare, own));
  g_assert_false (lychee_tokenizer_is_end (bare, 5));

  g_assert_cmpint (lychee_tokenizer_get_bos (full), ==, 1);
  g_assert_cmpint (lychee_tokenizer_get_eos (full), ==, 5);
  g_assert_true (lychee_tokenizer_get_add_bos (full));
  g_assert_true (lychee_tokenizer_is_end (full, own));
  g_assert_true (lychee_tokenizer_is_end (full, 5));

  /* By name; also where the file does not say that it is a control token. */
  g_assert_true (lychee_tokenizer_is_end (bare, 2));
  g_assert_true (lychee_tokenizer_is_end (bare, eot));
  g_assert_true (lychee_tokenizer_is_control (bare, eot));
  g_assert_true (lychee_tokenizer_is_end (bare, turn));
  g_assert_false (lychee_tokenizer_is_end (bare, 1));
  g_assert_false (lychee_tokenizer_is_end (bare, -1));
  g_assert_false (lychee_tokenizer_is_end (bare, G_MAXINT32));

  g_assert_true (lychee_tokenizer_is_control (bare, 1));
  g_assert_false (lychee_tokenizer_is_control (bare, 9));
  g_assert_false (lychee_tokenizer_is_control (bare, -1));
  g_assert_false (lychee_tokenizer_is_control (bare, G_MAXINT32));

  g_assert_cmpint (lychee_tokenizer_lookup (bare, "<|im_end|>"), ==, 2);
  g_assert_cmpint (lychee_tokenizer_lookup (bare, "A"), ==, fixture_id (f, "A"));
  g_assert_cmpint (lychee_tokenizer_lookup (bare, "<|im_end|"), ==, -1);
  g_assert_cmpint (lychee_tokenizer_lookup (bare, ""), ==, -1);
}

/* Two tokens of one spelling: text becomes the last, both decode. */
static void
test_duplicates (void)
{
  g_autoptr (Fixture) f = make_fixture ();
  gint32 second = fixture_add (f, "A", NORMAL, 0);
  g_autoptr (LycheeTokenizer) tokenizer =
      tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", "gpt-2"));
  g_autoptr (GArray) ids = new_ids ();
  const gint32 both[] = { 3 + 'A', second };

  lychee_tokenizer_encode (tokenizer, "A", -1, LYCHEE_TOKENIZER_NONE, ids);
  g_assert_cmpuint (ids->len, ==, 1);
  g_assert_cmpint (g_array_index (ids, gint32, 0), ==, second);
  g_autofree char *text = lychee_tokenizer_decode (tokenizer, both, 2, LYCHEE_TOKENIZER_NONE);
  g_assert_cmpstr (text, ==, "AA");
}

/* Where the file is silent the family decides; without a BOS there is none to add. */
static void
test_add_bos (void)
{
  static const struct {
    const char *model;
    const char *pre;
    int says; /* -1: nothing */
    gboolean has_bos;
    gboolean adds;
  } rows[] = {
    { "gpt2", "llama-bpe", -1, TRUE, TRUE },
    { "gpt2", "llama-bpe", 0, TRUE, FALSE },
    { "gpt2", "llama-bpe", -1, FALSE, FALSE },
    { "gpt2", "gpt-2", -1, TRUE, FALSE },
    { "gpt2", "qwen2", 1, TRUE, TRUE },
    { "gpt2", "qwen2", 1, FALSE, FALSE },
    { "llama", NULL, -1, TRUE, TRUE },
    { "llama", NULL, 0, TRUE, FALSE },
  };
  g_autoptr (Fixture) f = make_fixture ();

  for (guint i = 0; i < G_N_ELEMENTS (rows); i++) {
    struct gguf_context *gguf = fixture_to_gguf (f, rows[i].model, rows[i].pre);
    if (rows[i].has_bos)
      gguf_set_val_u32 (gguf, KEY "bos_token_id", 1);
    if (rows[i].says >= 0)
      gguf_set_val_bool (gguf, KEY "add_bos_token", rows[i].says);
    g_autoptr (LycheeTokenizer) tokenizer = tokenizer_from_gguf (gguf);
    g_assert_cmpint (lychee_tokenizer_get_add_bos (tokenizer), ==, rows[i].adds);
  }
}

int
main (int argc, char *argv[])
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strdup_printf ("/tokenizer-vocab/%s", cases[i].name);
    g_test_add_data_func (path, &cases[i], test_case);
  }
  g_test_add_func ("/tokenizer-vocab/pre", test_pre);
  g_test_add_func ("/tokenizer-vocab/metadata", test_metadata);
  g_test_add_func ("/tokenizer-vocab/duplicates", test_duplicates);
  g_test_add_func ("/tokenizer-vocab/add-bos", test_add_bos);
  return g_test_run ();
}
