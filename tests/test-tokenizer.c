/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tokenizer-fixture.h"

#define N_MERGES 420

typedef struct {
  const char *pre;
  LycheePretokenizerKind kind;
} Pre;

static const Pre pres[] = {
  { "gpt-2", LYCHEE_PRETOKENIZER_GPT2 },
  { "smollm", LYCHEE_PRETOKENIZER_SMOLLM },
  { "llama-bpe", LYCHEE_PRETOKENIZER_LLAMA3 },
  { "qwen2", LYCHEE_PRETOKENIZER_QWEN2 },
};

static const char *const texts[] = {
  "",
  "a",
  "the meeting was at 9 and the budget is 1,234,567.89 then",
  "don't I'll we've YOU'RE O'Brien's 'rest ''",
  "  two spaces\tand a tab\n\nnew paragraph\r\nwindows  \n  end   ",
  "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d \u2026 \u00bd \ufb01 \u00a0x\u200bz",
  "\u65e5\u672c\u8a9e\u306e\u5b57\u5e55\u3002 \u0645\u0631\u062d\u0628\u0627\u060c "
  "\u0939\u093f\u0928\u094d\u0926\u0940",
  "\U0001f469\u200d\U0001f469\u200d\U0001f467 family \U0001f1eb\U0001f1f7 \U0001f44d\U0001f3fd",
  "<|im_start|>user\nhi<|im_end|><|im_<|im_start|>more|> <|im_start",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n",
};

/* The test vocabulary: control tokens, two of them with a common start, one user-defined. */
static Fixture *
make_fixture (void)
{
  Fixture *f = fixture_new ();
  fixture_add (f, "<|endoftext|>", CONTROL, 0);
  fixture_add (f, "<|im_start|>", CONTROL, 0);
  fixture_add (f, "<|im_end|>", CONTROL, 0);
  fixture_add (f, "<|im_start|>more|>", CONTROL, 0);
  fixture_add (f, "<unk>", UNKNOWN, 0);
  fixture_add (f, "<tool>", USER_DEFINED, 0);
  fixture_train (f, N_MERGES);
  return f;
}

static LycheeTokenizer *
make_tokenizer (const char *pre)
{
  g_autoptr (Fixture) f = make_fixture ();
  return tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", pre));
}

typedef struct {
  Fixture *f;
  GArray *ids;
  gboolean ignore_merges;
} Reference;

/* WordFunc. BPE as defined: merge the best pair, the leftmost of equals, until there is none. */
static void
reference_word (const char *word, gsize length, gpointer user_data)
{
  Reference *reference = user_data;
  g_autoptr (GPtrArray) symbols = spell_word (word, length);

  if (reference->ignore_merges) {
    g_ptr_array_add (symbols, NULL);
    g_autofree char *whole = g_strjoinv ("", (char **) symbols->pdata);
    g_ptr_array_set_size (symbols, (gint) symbols->len - 1);
    gint32 id = fixture_id (reference->f, whole);
    if (id >= 0) {
      g_array_append_val (reference->ids, id);
      return;
    }
  }
  for (;;) {
    guint best = 0, best_rank = G_MAXUINT;
    for (guint i = 0; i + 1 < symbols->len; i++) {
      g_autofree char *pair = g_strconcat (
          g_ptr_array_index (symbols, i), " ", g_ptr_array_index (symbols, i + 1), NULL);
      guint rank = GPOINTER_TO_UINT (g_hash_table_lookup (reference->f->ranks, pair)) - 1;
      if (rank < best_rank) {
        best = i;
        best_rank = rank;
      }
    }
    if (best_rank == G_MAXUINT)
      break;
    merge_symbols (symbols, best);
  }
  for (guint i = 0; i < symbols->len; i++) {
    gint32 id = fixture_id (reference->f, g_ptr_array_index (symbols, i));
    g_assert_cmpint (id, >=, 0);
    g_array_append_val (reference->ids, id);
  }
}

static GArray *
reference_encode (Fixture *f, const Pre *pre, const char *text, gsize length)
{
  Reference reference = { f, new_ids (), pre->kind == LYCHEE_PRETOKENIZER_LLAMA3 };
  for_each_word (pre->kind, text, length, reference_word, &reference);
  return reference.ids;
}

static void
test_reference (gconstpointer data)
{
  const Pre *pre = data;
  g_autoptr (Fixture) f = make_fixture ();
  g_autoptr (LycheeTokenizer) tokenizer =
      tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", pre->pre));
  g_autoptr (GRand) rand = g_rand_new_with_seed (11);
  const char *corpus_end = fixture_corpus + strlen (fixture_corpus);

  for (guint i = 0; i < 600; i++) {
    g_autoptr (GString) text = g_string_new (NULL);
    guint n = g_rand_int_range (rand, 1, 12);
    /* Pieces of the corpus, cut anywhere and put together anyhow. */
    for (guint j = 0; j < n; j++) {
      const char *from = fixture_corpus + g_rand_int_range (rand, 0, sizeof fixture_corpus - 1);
      while (lychee_utf8_is_continuation ((guint8) *from))
        from--;
      for (guint k = g_rand_int_range (rand, 1, 12); k > 0 && from < corpus_end; k--) {
        g_string_append_unichar (text, g_utf8_get_char (from));
        from = g_utf8_next_char (from);
      }
    }
    g_autoptr (GArray) ids = new_ids ();
    g_autoptr (GArray) expected = reference_encode (f, pre, text->str, text->len);
    lychee_tokenizer_encode (tokenizer, text->str, -1, LYCHEE_TOKENIZER_NONE, ids);
    assert_same_ids (text->str, ids, expected);
    check_decode (tokenizer, ids, text->str, text->len);
  }
}

/* Words of every length around the one from which a queue is used. */
static void
test_long_words (void)
{
  g_autoptr (Fixture) f = make_fixture ();
  g_autoptr (LycheeTokenizer) tokenizer =
      tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", "gpt-2"));
  g_autoptr (GRand) rand = g_rand_new_with_seed (12);
  static const char alphabet[] = "thaeingdo";

  for (guint length = 1; length < 300; length += length < 80 ? 1 : 37)
    for (guint i = 0; i < 4; i++) {
      g_autoptr (GString) text = g_string_new (NULL);
      while (text->len < length)
        g_string_append_c (text, i == 0 ? 'a' : alphabet[g_rand_int_range (rand, 0, 9)]);
      g_autoptr (GArray) ids = new_ids ();
      g_autoptr (GArray) expected = reference_encode (f, &pres[0], text->str, text->len);
      lychee_tokenizer_encode (tokenizer, text->str, -1, LYCHEE_TOKENIZER_NONE, ids);
      assert_same_ids (text->str, ids, expected);
    }
}

static void
test_cuts (gconstpointer data)
{
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer (((const Pre *) data)->pre);

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    check_cuts (tokenizer, texts[i], strlen (texts[i]), LYCHEE_TOKENIZER_NONE);
    check_cuts (tokenizer, texts[i], strlen (texts[i]), LYCHEE_TOKENIZER_SPECIAL);
  }
}

/* Bytes that are no text at all, cut anywhere. */
static void
test_cuts_garbage (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer ("smollm");
  g_autoptr (GRand) rand = g_rand_new_with_seed (13);
  char text[61] = "";

  for (guint i = 0; i < 40; i++) {
    for (guint j = 0; j + 1 < sizeof text; j++)
      text[j] = (char) (g_rand_boolean (rand) ? g_rand_int_range (rand, 0xc0, 0xf8)
                                              : g_rand_int_range (rand, 0x00, 0xc0));
    check_cuts (tokenizer, text, sizeof text - 1, LYCHEE_TOKENIZER_SPECIAL);
  }
}

/* A token is there as soon as nothing can change it. */
static void
test_prompt (void)
{
  static const struct {
    const char *text;
    guint n_tokens; /* before the end is known */
    LycheeTokenizerFlags flags;
  } cases[] = {
    { "the", 0, 0 },
    { "the ", 1, 0 },
    { "1", 1, 0 },
    { "'s", 2, 0 },
    { "<|im_end|>", 1, LYCHEE_TOKENIZER_SPECIAL },
    { "the<|im_end|>", 2, LYCHEE_TOKENIZER_SPECIAL },
    { "<|im_start|>", 0, LYCHEE_TOKENIZER_SPECIAL },
    { "<|im_start|>m", 0, LYCHEE_TOKENIZER_SPECIAL },
    { "<|im_start|>x", 1, LYCHEE_TOKENIZER_SPECIAL },
  };
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer ("smollm");

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, cases[i].flags);
    g_autoptr (GArray) tokens = new_tokens ();
    lychee_encoder_push (encoder, cases[i].text, strlen (cases[i].text), tokens);
    g_assert_cmpuint (tokens->len, ==, cases[i].n_tokens);
  }
}

/* "hi" without merges, so that every token is one byte or one control token. */
static LycheeTokenizer *
make_plain (gint32 *first_byte)
{
  g_autoptr (Fixture) f = fixture_new ();
  fixture_add (f, "<|im_start|>", CONTROL, 0);
  fixture_add (f, "<|im_end|>", CONTROL, 0);
  fixture_add (f, "<|im_start|>more|>", CONTROL, 0);
  fixture_add (f, "<tool>", USER_DEFINED, 0);
  fixture_add (f, "<caf\u00e9>", CONTROL, 0);
  fixture_add (f, "<unk>", UNKNOWN, 0);
  *first_byte = (gint32) f->tokens->len;
  fixture_train (f, 0);
  return tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", "gpt-2"));
}

/* Letters a to f for the special tokens in their order, else the byte itself. */
static char *
describe (GArray *tokens, gint32 first_byte)
{
  GString *text = g_string_new (NULL);
  for (guint i = 0; i < tokens->len; i++) {
    gint32 id = token_at (tokens, i)->id;
    if (id < first_byte)
      g_string_append_printf (text, "{%c}", 'a' + id);
    else
      g_string_append_c (text, (char) (id - first_byte));
  }
  return g_string_free (text, FALSE);
}

typedef struct {
  const char *name;
  const char *text;
  const char *special; /* what it is with LYCHEE_TOKENIZER_SPECIAL */
} SpecialCase;

static const SpecialCase special_cases[] = {
  { "alone", "<|im_start|>", "{a}" },
  { "in-text", "x<|im_end|>y", "x{b}y" },
  { "twice", "<|im_end|><|im_end|>", "{b}{b}" },
  { "longest", "<|im_start|>more|>", "{c}" },
  { "longest-fails", "<|im_start|>more|", "{a}more|" },
  { "longest-fails-into-another", "<|im_start|>more<|im_end|>", "{a}more{b}" },
  { "half", "<|im_st", "<|im_st" },
  { "start-again", "<<|im_end|>", "<{b}" },
  { "start-again-late", "<|im_e<|im_end|>", "<|im_e{b}" },
  { "user-defined", "a<tool>b", "a{d}b" },
  { "not-ascii", "<caf\u00e9>", "{e}" },
  { "unknown", "<unk>", "{f}" },
  { "case-matters", "<|IM_END|>", "<|IM_END|>" },
};

static void
test_special (gconstpointer data)
{
  const SpecialCase *c = data;
  gint32 first_byte;
  g_autoptr (LycheeTokenizer) tokenizer = make_plain (&first_byte);
  gsize length = strlen (c->text);

  for (gsize cut = 0; cut <= length; cut++) {
    for (guint special = 0; special < 2; special++) {
      g_autoptr (LycheeEncoder) encoder =
          lychee_encoder_new (tokenizer, special ? LYCHEE_TOKENIZER_SPECIAL : 0);
      g_autoptr (GArray) tokens = new_tokens ();
      lychee_encoder_push (encoder, c->text, cut, tokens);
      lychee_encoder_push (encoder, c->text + cut, length - cut, tokens);
      lychee_encoder_finish (encoder, tokens);
      g_autofree char *found = describe (tokens, first_byte);
      g_assert_cmpstr (found, ==, special ? c->special : c->text);
    }
  }
}

/* Merges that lead to the spelling of a control token do not make text into one. */
static void
test_no_control_from_merges (gconstpointer data)
{
  const char *pre = data;
  g_autoptr (Fixture) f = fixture_new ();
  fixture_add (f, "abc", CONTROL, 0);
  fixture_train (f, 0);
  fixture_add (f, "ab", NORMAL, 0);
  fixture_add_merge (f, "a", "b");
  fixture_add_merge (f, "ab", "c");
  g_autoptr (LycheeTokenizer) tokenizer = tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", pre));
  g_autoptr (GArray) ids = new_ids ();

  lychee_tokenizer_encode (tokenizer, "abc", -1, LYCHEE_TOKENIZER_NONE, ids);
  g_assert_cmpuint (ids->len, ==, 3);
  check_decode (tokenizer, ids, "abc", 3);
}

/* A whole word that is a token is taken as it is, though no merge leads to it; only where the
 * family does so. */
static void
test_ignore_merges (void)
{
  g_autoptr (Fixture) f = fixture_new ();
  fixture_train (f, 0);
  gint32 word = fixture_add (f, "\u0120word", NORMAL, 0);
  g_autoptr (LycheeTokenizer) llama =
      tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", "llama-bpe"));
  g_autoptr (LycheeTokenizer) qwen = tokenizer_from_gguf (fixture_to_gguf (f, "gpt2", "qwen2"));
  g_autoptr (GArray) a = new_ids (), b = new_ids ();

  lychee_tokenizer_encode (llama, "a word words", -1, LYCHEE_TOKENIZER_NONE, a);
  g_assert_cmpuint (a->len, ==, 8);
  g_assert_cmpint (g_array_index (a, gint32, 1), ==, word);
  lychee_tokenizer_encode (qwen, "a word words", -1, LYCHEE_TOKENIZER_NONE, b);
  g_assert_cmpuint (b->len, ==, 12);
}

typedef struct {
  const char *name;
  const char *bytes;
  gsize length;
  const char *text; /* what it is read as */
  guint n_replaced;
} Utf8Case;

#define BYTES(s) s, sizeof s - 1
#define R "\ufffd"
static const Utf8Case utf8_cases[] = {
  { "valid", BYTES ("\u00e9\u65e5\U0001f600"), "\u00e9\u65e5\U0001f600", 0 },
  { "limits", BYTES ("\xc2\x80\u07ff\u0800\uffff\U00010000\U0010ffff"),
      "\xc2\x80\u07ff\u0800\uffff\U00010000\U0010ffff", 0 },
  { "stray-continuation", BYTES ("a\x80z"), "a" R "z", 1 },
  { "two-strays", BYTES ("\xbf\x80"), R R, 2 },
  { "never", BYTES ("\xff\xfe\xc0\xc1\xf5"), R R R R R, 5 },
  { "broken-off-2", BYTES ("\xc3z"), R "z", 1 },
  { "broken-off-3", BYTES ("\xe6\x97z"), R "z", 2 },
  { "broken-off-4", BYTES ("\xf0\x9f\x98z"), R "z", 3 },
  { "broken-off-at-end", BYTES ("a\xf0\x9f\x98"), "a" R, 3 },
  { "broken-off-by-start", BYTES ("\xe6\x97\xc3\xa9"), R "\u00e9", 2 },
  { "overlong-2", BYTES ("\xc0\xaf"), R R, 2 },
  { "overlong-3", BYTES ("\xe0\x80\xaf"), R R R, 3 },
  { "overlong-4", BYTES ("\xf0\x80\x80\xaf"), R R R R, 4 },
  { "surrogate", BYTES ("\xed\xa0\x80"), R R R, 3 },
  { "too-large", BYTES ("\xf4\x90\x80\x80"), R R R R, 4 },
  { "replacement-itself", BYTES (R), R, 0 },
};

static void
test_utf8 (gconstpointer data)
{
  const Utf8Case *c = data;
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer ("smollm");
  g_autoptr (GArray) expected = new_ids (), ids = new_ids ();
  g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, LYCHEE_TOKENIZER_NONE);
  g_autoptr (GArray) tokens = new_tokens ();
  guint64 offset = 0;

  lychee_tokenizer_encode (tokenizer, c->text, -1, LYCHEE_TOKENIZER_NONE, expected);
  lychee_encoder_push (encoder, c->bytes, c->length, tokens);
  lychee_encoder_finish (encoder, tokens);
  for (guint i = 0; i < tokens->len; i++) {
    LycheeToken *token = token_at (tokens, i);
    g_array_append_val (ids, token->id);
    g_assert_cmpuint (token->offset, ==, offset);
    offset += token->length;
  }
  assert_same_ids (c->text, ids, expected);
  g_assert_cmpuint (offset, ==, c->length);
  g_assert_cmpuint (lychee_encoder_get_n_replaced (encoder), ==, c->n_replaced);
  check_decode (tokenizer, ids, c->text, strlen (c->text));
  check_cuts (tokenizer, c->bytes, c->length, LYCHEE_TOKENIZER_NONE);
}

static void
test_nul (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer ("smollm");
  static const char text[] = "a\0b\0\0 c";
  g_autoptr (GArray) ids = new_ids ();

  lychee_tokenizer_encode (tokenizer, text, sizeof text - 1, LYCHEE_TOKENIZER_NONE, ids);
  check_decode (tokenizer, ids, text, sizeof text - 1);
  check_cuts (tokenizer, text, sizeof text - 1, LYCHEE_TOKENIZER_NONE);
}

/* The source that each token stands for: a character's bytes all with its first token. */
static void
test_offsets (void)
{
  gint32 first_byte;
  g_autoptr (LycheeTokenizer) tokenizer = make_plain (&first_byte);
  g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, LYCHEE_TOKENIZER_SPECIAL);
  g_autoptr (GArray) tokens = new_tokens ();
  static const char text[] = "a\u00e9\U0001f600<tool>\xf0\x9fz";
  static const struct {
    guint64 offset;
    guint32 length;
  } expected[] = {
    { 0, 1 },                               /* a */
    { 1, 2 }, { 3, 0 },                     /* e with acute */
    { 3, 4 }, { 7, 0 }, { 7, 0 }, { 7, 0 }, /* grinning face */
    { 7, 6 },                               /* <tool> */
    { 13, 2 }, { 15, 0 }, { 15, 0 },        /* half a character, as three bytes of U+FFFD */
    { 15, 1 },                              /* z */
  };

  lychee_encoder_push (encoder, text, strlen (text), tokens);
  lychee_encoder_finish (encoder, tokens);
  g_assert_cmpuint (tokens->len, ==, G_N_ELEMENTS (expected));
  for (guint i = 0; i < tokens->len; i++) {
    g_assert_cmpuint (token_at (tokens, i)->offset, ==, expected[i].offset);
    g_assert_cmpuint (token_at (tokens, i)->length, ==, expected[i].length);
  }

  /* They go on after finish, and start again after reset. */
  g_array_set_size (tokens, 0);
  lychee_encoder_push (encoder, "b", 1, tokens);
  lychee_encoder_finish (encoder, tokens);
  g_assert_cmpuint (token_at (tokens, 0)->offset, ==, 16);
  lychee_encoder_push (encoder, "held <|im_st\xf0", 13, tokens);
  lychee_encoder_reset (encoder);
  g_assert_cmpuint (lychee_encoder_get_n_replaced (encoder), ==, 0);
  g_array_set_size (tokens, 0);
  lychee_encoder_push (encoder, "c", 1, tokens);
  lychee_encoder_finish (encoder, tokens);
  g_assert_cmpuint (tokens->len, ==, 1);
  g_assert_cmpuint (token_at (tokens, 0)->offset, ==, 0);
  g_assert_cmpint (token_at (tokens, 0)->id, ==, first_byte + 'c');
}

/* Bytes without a token are counted; without an unknown token they are left out. */
static void
test_missing_bytes (void)
{
  for (guint with_unknown = 0; with_unknown < 2; with_unknown++) {
    g_autoptr (Fixture) f = fixture_new ();
    fixture_add (f, "a", NORMAL, 0);
    fixture_add (f, "?", NORMAL, 0);
    struct gguf_context *gguf = fixture_to_gguf (f, "gpt2", "gpt-2");
    if (with_unknown)
      gguf_set_val_u32 (gguf, "tokenizer.ggml.unknown_token_id", 1);
    g_autoptr (LycheeTokenizer) tokenizer = tokenizer_from_gguf (gguf);
    g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, 0);
    g_autoptr (GArray) tokens = new_tokens ();

    lychee_encoder_push (encoder, "a\u00e9a", 4, tokens);
    lychee_encoder_finish (encoder, tokens);
    g_assert_cmpuint (tokens->len, ==, with_unknown ? 3 : 2);
    g_assert_cmpuint (lychee_encoder_get_n_dropped (encoder), ==, with_unknown ? 0 : 2);
    g_assert_cmpuint (token_at (tokens, tokens->len - 1)->offset, ==, 3);
    if (with_unknown) {
      g_assert_cmpint (token_at (tokens, 1)->id, ==, 1);
      g_assert_cmpuint (token_at (tokens, 1)->length, ==, 2);
    }
  }
}

static void
test_decode (void)
{
  gint32 first_byte;
  g_autoptr (LycheeTokenizer) tokenizer = make_plain (&first_byte);
  g_autoptr (LycheeDecoder) decoder = lychee_decoder_new (tokenizer);
  g_autoptr (GString) text = g_string_new (NULL);
  const gint32 ids[] = { 0, first_byte + 'h', 3, 1 };

  /* A character over two tokens, with a control token in between. */
  lychee_decoder_push (decoder, first_byte + 0xc3, text);
  g_assert_cmpstr (text->str, ==, "");
  lychee_decoder_push (decoder, 0, text);
  lychee_decoder_push (decoder, first_byte + 0xa9, text);
  g_assert_cmpstr (text->str, ==, "\u00e9");
  /* One that is never finished. */
  lychee_decoder_push (decoder, first_byte + 0xe6, text);
  lychee_decoder_push (decoder, first_byte + 'x', text);
  g_assert_cmpstr (text->str, ==, "\u00e9\ufffdx");
  lychee_decoder_push (decoder, first_byte + 0xe6, text);
  lychee_decoder_finish (decoder, text);
  g_assert_cmpstr (text->str, ==, "\u00e9\ufffdx\ufffd");
  lychee_decoder_finish (decoder, text);
  g_assert_cmpstr (text->str, ==, "\u00e9\ufffdx\ufffd");
  /* No such token. */
  lychee_decoder_push (decoder, -1, text);
  lychee_decoder_push (decoder, G_MAXINT32, text);
  g_assert_cmpstr (text->str, ==, "\u00e9\ufffdx\ufffd\ufffd\ufffd");

  g_autofree char *plain = lychee_tokenizer_decode (tokenizer, ids, 4, LYCHEE_TOKENIZER_NONE);
  g_autofree char *special = lychee_tokenizer_decode (tokenizer, ids, 4, LYCHEE_TOKENIZER_SPECIAL);
  g_autofree char *empty = lychee_tokenizer_decode (tokenizer, NULL, 0, 0);
  g_assert_cmpstr (plain, ==, "h<tool>");
  g_assert_cmpstr (special, ==, "<|im_start|>h<tool><|im_end|>");
  g_assert_cmpstr (empty, ==, "");
}

typedef struct {
  const char *name;
  char what;
  gsize n;
} LinearCase;

static const LinearCase linear_cases[] = {
  { "a", 'a', 1000000 },
  { "spaces", ' ', 1000000 },
  { "newlines", '\n', 1000000 },
  { "apostrophes", '\'', 1000000 },
  { "half-control-token", '<', 1000000 },
  { "emoji", 'E', 1000000 },
  { "words", 'W', 1000000 },
  { "beyond-the-longest-word", 'a', 2200000 },
};

/* A million bytes at once and byte by byte. Quadratic time would be hours. */
static void
test_linear (gconstpointer data)
{
  const LinearCase *c = data;
  static const char *const emoji[] = { "\U0001f600", "\u200d", "\U0001f44d\U0001f3fd",
    "\U0001f1eb\U0001f1f7", "\u2764\ufe0f" };
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer ("smollm");
  g_autoptr (GString) text = g_string_new (NULL);
  g_autoptr (GRand) rand = g_rand_new_with_seed (14);
  g_autoptr (GArray) whole = new_ids (), tokens = new_tokens ();
  g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, LYCHEE_TOKENIZER_SPECIAL);
  double seconds;

  while (text->len < c->n) {
    if (c->what == 'E')
      g_string_append (text, emoji[g_rand_int_range (rand, 0, G_N_ELEMENTS (emoji))]);
    else if (c->what == 'W')
      g_string_append_c (text, (char) g_rand_int_range (rand, 'a', 'z' + 1));
    else if (c->what == '<')
      g_string_append (text, "<|im_start|>mor");
    else
      g_string_append_c (text, c->what);
  }
  seconds = get_cpu_time ();
  lychee_tokenizer_encode (
      tokenizer, text->str, (gssize) text->len, LYCHEE_TOKENIZER_SPECIAL, whole);
  for (gsize i = 0; i < text->len; i++)
    lychee_encoder_push (encoder, text->str + i, 1, tokens);
  lychee_encoder_finish (encoder, tokens);
  seconds = get_cpu_time () - seconds;
  g_assert_cmpfloat (seconds, <, 60 * 5); /* under sanitizers, too */
  g_test_minimized_result (seconds, "%s: %.3f s", c->name, seconds);
  g_assert_cmpuint (tokens->len, ==, whole->len);
  for (guint i = 0; i < whole->len; i++)
    g_assert_cmpint (token_at (tokens, i)->id, ==, g_array_index (whole, gint32, i));
  if (c->what != '<') {
    check_decode (tokenizer, whole, text->str, text->len);
  }
}

static gpointer
encode_all (gpointer data)
{
  LycheeTokenizer *tokenizer = data;
  GArray *ids = new_ids ();
  for (guint i = 0; i < 200; i++)
    for (guint j = 0; j < G_N_ELEMENTS (texts); j++)
      lychee_tokenizer_encode (tokenizer, texts[j], -1, LYCHEE_TOKENIZER_SPECIAL, ids);
  return ids;
}

static void
test_threads (void)
{
  g_autoptr (LycheeTokenizer) tokenizer = make_tokenizer ("llama-bpe");
  g_autoptr (GArray) expected = encode_all (tokenizer);
  GThread *threads[4];

  for (guint i = 0; i < G_N_ELEMENTS (threads); i++)
    threads[i] = g_thread_new ("encode", encode_all, tokenizer);
  for (guint i = 0; i < G_N_ELEMENTS (threads); i++) {
    g_autoptr (GArray) ids = g_thread_join (threads[i]);
    assert_same_ids ("all", ids, expected);
  }
}

int
main (int argc, char *argv[])
{
  g_test_init (&argc, &argv, NULL);
  for (guint i = 0; i < G_N_ELEMENTS (pres); i++) {
    g_autofree char *reference = g_strdup_printf ("/tokenizer/reference/%s", pres[i].pre);
    g_autofree char *cuts = g_strdup_printf ("/tokenizer/cuts/%s", pres[i].pre);
    g_autofree char *control = g_strdup_printf ("/tokenizer/no-control/%s", pres[i].pre);
    g_test_add_data_func (reference, &pres[i], test_reference);
    g_test_add_data_func (cuts, &pres[i], test_cuts);
    g_test_add_data_func (control, pres[i].pre, test_no_control_from_merges);
  }
  for (guint i = 0; i < G_N_ELEMENTS (special_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/tokenizer/special/%s", special_cases[i].name);
    g_test_add_data_func (path, &special_cases[i], test_special);
  }
  for (guint i = 0; i < G_N_ELEMENTS (utf8_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/tokenizer/utf8/%s", utf8_cases[i].name);
    g_test_add_data_func (path, &utf8_cases[i], test_utf8);
  }
  for (guint i = 0; i < G_N_ELEMENTS (linear_cases); i++) {
    g_autofree char *path = g_strdup_printf ("/tokenizer/linear/%s", linear_cases[i].name);
    g_test_add_data_func (path, &linear_cases[i], test_linear);
  }
  g_test_add_func ("/tokenizer/long-words", test_long_words);
  g_test_add_func ("/tokenizer/cuts/garbage", test_cuts_garbage);
  g_test_add_func ("/tokenizer/prompt", test_prompt);
  g_test_add_func ("/tokenizer/ignore-merges", test_ignore_merges);
  g_test_add_func ("/tokenizer/nul", test_nul);
  g_test_add_func ("/tokenizer/offsets", test_offsets);
  g_test_add_func ("/tokenizer/missing-bytes", test_missing_bytes);
  g_test_add_func ("/tokenizer/decode", test_decode);
  g_test_add_func ("/tokenizer/threads", test_threads);
  return g_test_run ();
}
