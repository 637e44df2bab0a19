/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tokenizer-fixture.h"

#define KEY "tokenizer.ggml."

/* BPE as SentencePiece defines it over the whole of a text without user-defined pieces. */
static void
reference_encode (Fixture *f, const char *text, gboolean prefix, GArray *ids)
{
  g_autoptr (GPtrArray) symbols = g_ptr_array_new_with_free_func (g_free);

  if (*text == '\0')
    return;
  if (prefix)
    g_ptr_array_add (symbols, g_strdup (MARK));
  for (const char *p = text; *p != '\0'; p = g_utf8_next_char (p))
    g_ptr_array_add (
        symbols, *p == ' ' ? g_strdup (MARK) : g_strndup (p, g_utf8_skip[(guint8) *p]));
  for (;;) {
    gint best = -1;
    float best_score = 0;
    for (guint i = 0; i + 1 < symbols->len; i++) {
      g_autofree char *pair =
          g_strconcat (g_ptr_array_index (symbols, i), g_ptr_array_index (symbols, i + 1), NULL);
      gint32 id = fixture_id (f, pair);
      if (id < 0 || g_array_index (f->types, gint32, id) != NORMAL)
        continue;
      float score = g_array_index (f->scores, float, id);
      if (best < 0 || score > best_score) {
        best = (gint) i;
        best_score = score;
      }
    }
    if (best < 0)
      break;
    merge_symbols (symbols, (guint) best);
  }
  for (guint i = 0; i < symbols->len; i++) {
    const char *symbol = g_ptr_array_index (symbols, i);
    gint32 id = fixture_id (f, symbol);
    for (; id < 0 && *symbol != '\0'; symbol++) {
      g_autofree char *name = g_strdup_printf ("<0x%02X>", (guint8) *symbol);
      gint32 byte = fixture_id (f, name);
      g_assert_cmpint (byte, >=, 0);
      g_array_append_val (ids, byte);
    }
    if (id >= 0)
      g_array_append_val (ids, id);
  }
}

static LycheeTokenizer *
make_tokenizer (Fixture *f, gboolean prefix)
{
  struct gguf_context *gguf = fixture_to_gguf (f, "llama", "default");
  gguf_set_val_bool (gguf, KEY "add_space_prefix", prefix);
  gguf_set_val_u32 (gguf, KEY "unknown_token_id", 0);
  return tokenizer_from_gguf (gguf);
}

/* Without two spaces together, which are user-defined. */
static char *
random_text (GRand *rand)
{
  GString *text = g_string_new (NULL);
  guint n = g_rand_int_range (rand, 1, 9);
  const char *corpus_end = strstr (fixture_corpus, "\n\n");

  for (guint j = 0; j < n; j++) {
    const char *from =
        fixture_corpus + g_rand_int_range (rand, 0, (gint32) (corpus_end - fixture_corpus));
    while (lychee_utf8_is_continuation ((guint8) *from))
      from--;
    for (guint k = g_rand_int_range (rand, 1, 12); k > 0 && from < corpus_end; k--) {
      g_string_append_unichar (text, g_utf8_get_char (from));
      from = g_utf8_next_char (from);
    }
    if (g_rand_int_range (rand, 0, 8) == 0)
      g_string_append (text, "\u00df\u4e2d ");
  }
  while (g_string_replace (text, "  ", " ", 0) > 0)
    ;
  return g_string_free (text, FALSE);
}

static void
test_reference (gconstpointer data)
{
  gboolean prefix = GPOINTER_TO_INT (data);
  g_autoptr (GRand) rand = g_rand_new_with_seed (21);

  for (guint32 seed = 0; seed < 8; seed++) {
    g_autoptr (Fixture) f = fixture_new_sentencepiece (TRUE, seed);
    g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer (f, prefix);
    for (guint i = 0; i < 60; i++) {
      g_autofree char *owned = random_text (rand);
      g_autoptr (GArray) ids = new_ids (), expected = new_ids ();
      reference_encode (f, owned, prefix, expected);
      lychee_tokenizer_encode (tokenizer, owned, -1, LYCHEE_TOKENIZER_NONE, ids);
      assert_same_ids (owned, ids, expected);
      check_decode (tokenizer, ids, owned, strlen (owned));
    }
  }
}

static void
test_cuts (void)
{
  static const char *const texts[] = {
    "",
    " ",
    "the meeting began at nine",
    "  and \n\n\n\n\n there  <b>they<b></s><s>  <",
    "\u65e5\u672c\u8a9e \u00df\u4e2d\U0001f600",
    "bad \xff\xe6\x97 bytes \xf0",
  };
  g_autoptr (Fixture) f = fixture_new_sentencepiece (TRUE, 3);

  for (guint prefix = 0; prefix < 2; prefix++) {
    g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer (f, prefix);
    for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
      check_cuts (tokenizer, texts[i], strlen (texts[i]), LYCHEE_TOKENIZER_NONE);
      check_cuts (tokenizer, texts[i], strlen (texts[i]), LYCHEE_TOKENIZER_SPECIAL);
    }
  }
}

/* What is user-defined is one token always, a control token only when asked for. */
static void
test_special (void)
{
  g_autoptr (Fixture) f = fixture_new_sentencepiece (TRUE, 4);
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer (f, FALSE);
  g_autoptr (GArray) ids = new_ids (), special = new_ids ();

  lychee_tokenizer_encode (tokenizer, "<b>\n\n\n\n", -1, LYCHEE_TOKENIZER_NONE, ids);
  g_assert_cmpuint (ids->len, ==, 3);
  g_assert_cmpint (g_array_index (ids, gint32, 0), ==, 4);
  g_assert_cmpint (g_array_index (ids, gint32, 1), ==, 3);
  g_array_set_size (ids, 0);
  lychee_tokenizer_encode (tokenizer, "  " MARK " ", -1, LYCHEE_TOKENIZER_NONE, ids);
  g_assert_cmpuint (ids->len, ==, 2);
  g_assert_cmpint (g_array_index (ids, gint32, 0), ==, 5);
  g_assert_cmpint (g_array_index (ids, gint32, 1), ==, 5);
  g_array_set_size (ids, 0);
  lychee_tokenizer_encode (tokenizer, "</s>", -1, LYCHEE_TOKENIZER_NONE, ids);
  for (guint i = 0; i < ids->len; i++)
    g_assert_false (lychee_tokenizer_is_control (tokenizer, g_array_index (ids, gint32, i)));
  lychee_tokenizer_encode (tokenizer, "</s>", -1, LYCHEE_TOKENIZER_SPECIAL, special);
  g_assert_cmpuint (special->len, ==, 1);
  g_assert_cmpint (g_array_index (special, gint32, 0), ==, 2);
}

/* Bytes of the source: the added space has none. */
static void
test_offsets (void)
{
  g_autoptr (Fixture) f = fixture_new_sentencepiece (TRUE, 5);

  for (guint prefix = 0; prefix < 2; prefix++) {
    g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer (f, prefix);
    g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, 0);
    g_autoptr (GArray) tokens = new_tokens ();
    static const char text[] = "the  budget <b>\u00df\xff 12";
    guint64 offset = 0;
    lychee_encoder_push (encoder, text, strlen (text), tokens);
    lychee_encoder_finish (encoder, tokens);
    for (guint i = 0; i < tokens->len; i++) {
      g_assert_cmpuint (token_at (tokens, i)->offset, ==, offset);
      offset += token_at (tokens, i)->length;
    }
    g_assert_cmpuint (offset, ==, strlen (text));
    g_assert_cmpuint (lychee_encoder_get_n_replaced (encoder), ==, 1);
  }
}

static void
test_no_bytes (void)
{
  g_autoptr (Fixture) f = fixture_new_sentencepiece (FALSE, 6);
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer (f, FALSE);
  g_autoptr (GArray) ids = new_ids ();

  lychee_tokenizer_encode (tokenizer, "\u4e2d\u6587", -1, LYCHEE_TOKENIZER_NONE, ids);
  g_assert_cmpuint (ids->len, ==, 2);
  g_assert_cmpint (g_array_index (ids, gint32, 0), ==, 0);
  g_assert_cmpint (g_array_index (ids, gint32, 1), ==, 0);
}

static void
test_linear (gconstpointer data)
{
  const char *unit = data;
  g_autoptr (Fixture) f = fixture_new_sentencepiece (TRUE, 7);
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer (f, TRUE);
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GArray) ids = new_ids ();
  double seconds;

  while (text->len < 1000000)
    g_string_append (text, unit);
  seconds = get_cpu_time ();
  lychee_tokenizer_encode (tokenizer, text->str, (gssize) text->len, 0, ids);
  seconds = get_cpu_time () - seconds;
  g_assert_cmpfloat (seconds, <, 60 * 5); /* under sanitizers, too */
  g_test_minimized_result (seconds, "%.3f s", seconds);
  check_decode (tokenizer, ids, text->str, text->len);
}

int
main (int argc, char *argv[])
{
  g_test_init (&argc, &argv, NULL);
  g_test_add_data_func ("/sentencepiece/reference/prefix", GINT_TO_POINTER (TRUE), test_reference);
  g_test_add_data_func (
      "/sentencepiece/reference/no-prefix", GINT_TO_POINTER (FALSE), test_reference);
  g_test_add_func ("/sentencepiece/cuts", test_cuts);
  g_test_add_func ("/sentencepiece/special", test_special);
  g_test_add_func ("/sentencepiece/offsets", test_offsets);
  g_test_add_func ("/sentencepiece/no-bytes", test_no_bytes);
  g_test_add_data_func ("/sentencepiece/linear/a", "a", test_linear);
  g_test_add_data_func ("/sentencepiece/linear/spaces", " ", test_linear);
  g_test_add_data_func ("/sentencepiece/linear/newlines", "\n", test_linear);
  g_test_add_data_func ("/sentencepiece/linear/emoji", "\U0001f600\u200d", test_linear);
  return g_test_run ();
}
