/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Small vocabularies made on the spot, as a GGUF in memory, and what a tokenizer must make of them
 * by the definition, computed the slow way. */
#pragma once

#include "lychee-pretokenizer.h"
#include "lychee-tokenizer-private.h"
#include "lychee-tokenizer-utf8.h"
#include <string.h>
#include <time.h>

/* Not every program needs all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct {
  GPtrArray *tokens; /* of char * */
  GArray *types;     /* of gint32 */
  GArray *scores;    /* of float */
  GPtrArray *merges; /* of char *, "left right" */
  GHashTable *ids;   /* of tokens */
  GHashTable *ranks; /* of merges; rank + 1 */
} Fixture;

static const char fixture_corpus[] =
    "the meeting began at nine and the minutes of the last meeting were read and agreed. there "
    "were "
    "there they then them these those that this thing things nothing something anything everything "
    "budget budgets budgeted forget forgets getting letting setting sitting hitting and hand "
    "handed "
    "don't we'll they're I've the theatre other another mother brother together whether weather "
    "caf\u00e9 na\u00efve \u00e9t\u00e9 \u00e9t\u00e9s \u00e9cole \u65e5\u672c\u8a9e "
    "\u65e5\u672c\u306e\u65e5 "
    "\u0645\u0631\u062d\u0628\u0627 \u0645\u0631\u062d\u0628\u0627 \u0939\u093f\u0928\u094d\u0926 "
    "\U0001f600\U0001f600 \U0001f44d\U0001f3fd \U0001f600 12 123 1,234 2026 ---- ==== .... !! ?! "
    "aaaaaaaaaaaaaaaa aaaa aaaaaaaa aa          \n\n\n\n\n\n\n\n    \n\n\t\t\t\t  \r\n\r\n";

static Fixture *
fixture_new (void)
{
  Fixture *f = g_new0 (Fixture, 1);
  f->tokens = g_ptr_array_new_with_free_func (g_free);
  f->types = g_array_new (FALSE, FALSE, sizeof (gint32));
  f->scores = g_array_new (FALSE, FALSE, sizeof (float));
  f->merges = g_ptr_array_new_with_free_func (g_free);
  f->ids = g_hash_table_new (g_str_hash, g_str_equal);
  f->ranks = g_hash_table_new (g_str_hash, g_str_equal);
  return f;
}

static void
fixture_free (Fixture *f)
{
  g_hash_table_unref (f->ids);
  g_hash_table_unref (f->ranks);
  g_ptr_array_unref (f->tokens);
  g_ptr_array_unref (f->merges);
  g_array_unref (f->types);
  g_array_unref (f->scores);
  g_free (f);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Fixture, fixture_free)

static gint32
fixture_add (Fixture *f, const char *spelling, gint32 type, float score)
{
  char *own = g_strdup (spelling);
  gint32 id = (gint32) f->tokens->len;
  g_ptr_array_add (f->tokens, own);
  g_array_append_val (f->types, type);
  g_array_append_val (f->scores, score);
  g_hash_table_replace (f->ids, own, GINT_TO_POINTER (id));
  return id;
}

static gint32
fixture_id (Fixture *f, const char *spelling)
{
  gpointer id;
  return g_hash_table_lookup_extended (f->ids, spelling, NULL, &id) ? GPOINTER_TO_INT (id) : -1;
}

#define MARK "\xe2\x96\x81"

/* Pieces of random substrings of the corpus, with spaces in them too, and of random scores with
 * many equal ones: harder than real vocabularies, whose pieces have a space only at the start. */
static Fixture *
fixture_new_sentencepiece (gboolean byte_tokens, guint32 seed)
{
  Fixture *f = fixture_new ();
  g_autoptr (GRand) rand = g_rand_new_with_seed (seed);
  g_auto (GStrv) words = g_strsplit (fixture_corpus, " ", -1);
  g_autofree char *marked = g_strjoinv (MARK, words);
  glong n_chars = g_utf8_strlen (marked, -1);

  fixture_add (f, "<unk>", UNKNOWN, 0);
  fixture_add (f, "<s>", CONTROL, 0);
  fixture_add (f, "</s>", CONTROL, 0);
  fixture_add (f, "\n\n", USER_DEFINED, 0);
  fixture_add (f, "<b>", USER_DEFINED, 0);
  fixture_add (f, "  ", USER_DEFINED, 0);
  for (guint byte = 0; byte < 256 && byte_tokens; byte++) {
    g_autofree char *name = g_strdup_printf ("<0x%02X>", byte);
    fixture_add (f, name, BYTE, 0);
  }
  for (guint i = 0; i < 900; i++) {
    glong length = g_rand_int_range (rand, 1, i < 300 ? 3 : 7);
    glong at = g_rand_int_range (rand, 0, (gint32) (n_chars - length));
    g_autofree char *piece = g_utf8_substring (marked, at, at + length);
    if (fixture_id (f, piece) < 0)
      fixture_add (f, piece, NORMAL, -(float) g_rand_int_range (rand, 0, 200));
  }
  return f;
}

static void
fixture_add_merge (Fixture *f, const char *left, const char *right)
{
  char *merge = g_strconcat (left, " ", right, NULL);
  g_ptr_array_add (f->merges, merge);
  if (!g_hash_table_contains (f->ranks, merge))
    g_hash_table_insert (f->ranks, merge, GUINT_TO_POINTER (f->merges->len));
}

/* GPT-2's table of bytes, the way its first program made it. */
static void
append_byte (GString *spelling, guint8 byte)
{
  guint n = 0;
  for (guint b = 0; b < 256; b++) {
    gboolean itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    if (b == byte) {
      g_string_append_unichar (spelling, itself ? b : 256 + n);
      return;
    }
    n += !itself;
  }
}

static GPtrArray *
spell_word (const char *word, gsize length)
{
  GPtrArray *symbols = g_ptr_array_new_with_free_func (g_free);
  for (gsize i = 0; i < length; i++) {
    GString *symbol = g_string_new (NULL);
    append_byte (symbol, (guint8) word[i]);
    g_ptr_array_add (symbols, g_string_free (symbol, FALSE));
  }
  return symbols;
}

static void
merge_symbols (GPtrArray *symbols, guint at)
{
  char *merged =
      g_strconcat (g_ptr_array_index (symbols, at), g_ptr_array_index (symbols, at + 1), NULL);
  g_free (g_ptr_array_index (symbols, at));
  symbols->pdata[at] = merged;
  g_ptr_array_remove_index (symbols, at + 1);
}

typedef void (*WordFunc) (const char *word, gsize length, gpointer user_data);

static void
for_each_word (
    LycheePretokenizerKind kind, const char *text, gsize length, WordFunc func, gpointer user_data)
{
  LycheePretokenizer pretokenizer = { .kind = kind };
  gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS], start = 0;

  for (const char *p = text; p <= text + length; p = g_utf8_next_char (p)) {
    guint n = p < text + length ? lychee_pretokenizer_push (&pretokenizer, g_utf8_get_char (p),
                                      g_utf8_skip[(guint8) *p], ends)
                                : lychee_pretokenizer_finish (&pretokenizer, ends);
    for (guint i = 0; i < n; i++)
      func (text + start + (i == 0 ? 0 : ends[i - 1]), ends[i] - (i == 0 ? 0 : ends[i - 1]),
          user_data);
    start += n > 0 ? ends[n - 1] : 0;
    if (p == text + length)
      break;
  }
}

static void
add_symbols (const char *word, gsize length, gpointer words)
{
  g_ptr_array_add (words, spell_word (word, length));
}

/* Learns @n_merges merges from the corpus: the most frequent neighbours, again and again. */
static void
fixture_train (Fixture *f, guint n_merges)
{
  g_autoptr (GPtrArray) words = g_ptr_array_new_with_free_func ((GDestroyNotify) g_ptr_array_unref);

  for (guint byte = 0; byte < 256; byte++) {
    g_autoptr (GString) spelling = g_string_new (NULL);
    append_byte (spelling, (guint8) byte);
    fixture_add (f, spelling->str, NORMAL, 0);
  }
  for_each_word (
      LYCHEE_PRETOKENIZER_GPT2, fixture_corpus, strlen (fixture_corpus), add_symbols, words);
  for (guint i = 0; i < n_merges; i++) {
    g_autoptr (GHashTable) counts = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    guint best = 0;
    g_autofree char *best_pair = NULL;
    for (guint w = 0; w < words->len; w++) {
      GPtrArray *symbols = g_ptr_array_index (words, w);
      for (guint s = 0; s + 1 < symbols->len; s++) {
        char *pair = g_strconcat (
            g_ptr_array_index (symbols, s), " ", g_ptr_array_index (symbols, s + 1), NULL);
        guint count = GPOINTER_TO_UINT (g_hash_table_lookup (counts, pair)) + 1;
        if (count > best) {
          best = count;
          g_free (best_pair);
          best_pair = g_strdup (pair);
        }
        g_hash_table_replace (counts, pair, GUINT_TO_POINTER (count));
      }
    }
    if (best_pair == NULL)
      break;
    g_auto (GStrv) sides = g_strsplit (best_pair, " ", 2);
    g_autofree char *merged = g_strconcat (sides[0], sides[1], NULL);
    fixture_add_merge (f, sides[0], sides[1]);
    if (fixture_id (f, merged) < 0)
      fixture_add (f, merged, NORMAL, 0);
    for (guint w = 0; w < words->len; w++) {
      GPtrArray *symbols = g_ptr_array_index (words, w);
      for (guint s = 0; s + 1 < symbols->len; s++)
        if (strcmp (g_ptr_array_index (symbols, s), sides[0]) == 0 &&
            strcmp (g_ptr_array_index (symbols, s + 1), sides[1]) == 0)
          merge_symbols (symbols, s);
    }
  }
}

static struct gguf_context *
fixture_to_gguf (Fixture *f, const char *model, const char *pre)
{
  struct gguf_context *gguf = gguf_init_empty ();

  gguf_set_val_str (gguf, "tokenizer.ggml.model", model);
  if (pre != NULL)
    gguf_set_val_str (gguf, "tokenizer.ggml.pre", pre);
  gguf_set_arr_str (
      gguf, "tokenizer.ggml.tokens", (const char **) f->tokens->pdata, f->tokens->len);
  gguf_set_arr_data (
      gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, f->types->data, f->types->len);
  if (strcmp (model, "llama") == 0)
    gguf_set_arr_data (
        gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, f->scores->data, f->scores->len);
  else
    gguf_set_arr_str (
        gguf, "tokenizer.ggml.merges", (const char **) f->merges->pdata, f->merges->len);
  return gguf;
}

static LycheeTokenizer *
tokenizer_from_gguf (struct gguf_context *gguf)
{
  g_autoptr (GError) error = NULL;
  LycheeTokenizer *tokenizer = lychee_tokenizer_new_from_gguf (gguf, NULL, &error);
  g_assert_no_error (error);
  g_assert_nonnull (tokenizer);
  gguf_free (gguf);
  return tokenizer;
}

/* Seconds that the processor has worked for this thread: a busy machine does not count. */
static double
get_cpu_time (void)
{
  struct timespec t;

  clock_gettime (CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static GArray *
new_ids (void)
{
  return g_array_new (FALSE, FALSE, sizeof (gint32));
}

static GArray *
new_tokens (void)
{
  return g_array_new (FALSE, FALSE, sizeof (LycheeToken));
}

static inline LycheeToken *
token_at (GArray *tokens, guint i)
{
  return &g_array_index (tokens, LycheeToken, i);
}

/* Fails naming the text and the first place where the two differ. */
static void
assert_same_ids (const char *text, const GArray *found, const GArray *expected)
{
  const gint32 *a = (const gint32 *) (gpointer) found->data;
  const gint32 *b = (const gint32 *) (gpointer) expected->data;
  guint n = MIN (found->len, expected->len), i = 0;

  while (i < n && a[i] == b[i])
    i++;
  if (i == n && found->len == expected->len)
    return;
  g_autofree char *escaped = g_strescape (text, NULL);
  if (i < n)
    g_error ("\"%.80s\": token %u is %d, not %d", escaped, i, a[i], b[i]);
  g_error ("\"%.80s\": %u tokens, not %u", escaped, found->len, expected->len);
}

/* The ids of @text cut at @cuts (ascending), each part pushed on its own. */
static GArray *
encode_cut (LycheeTokenizer *tokenizer, const char *text, gsize length, const gsize *cuts,
    guint n_cuts, LycheeTokenizerFlags flags)
{
  g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, flags);
  g_autoptr (GArray) tokens = new_tokens ();
  GArray *ids = new_ids ();
  gsize done = 0;

  for (guint i = 0; i <= n_cuts; i++) {
    gsize end = i < n_cuts ? cuts[i] : length;
    lychee_encoder_push (encoder, text + done, end - done, tokens);
    done = end;
  }
  lychee_encoder_finish (encoder, tokens);
  for (guint i = 0; i < tokens->len; i++)
    g_array_append_val (ids, token_at (tokens, i)->id);
  return ids;
}

/* Every place to cut @text at, and some ways to cut it at several, give the ids of the whole. */
static void
check_cuts (LycheeTokenizer *tokenizer, const char *text, gsize length, LycheeTokenizerFlags flags)
{
  g_autoptr (GArray) whole = new_ids ();
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32) length);
  g_autofree gsize *cuts = g_new (gsize, length + 1);

  lychee_tokenizer_encode (tokenizer, text, (gssize) length, flags, whole);
  for (gsize cut = 0; cut <= length; cut++) {
    g_autoptr (GArray) ids = encode_cut (tokenizer, text, length, &cut, 1, flags);
    assert_same_ids (text, ids, whole);
  }
  for (guint i = 0; i < 50; i++) {
    guint n_cuts = 0;
    double density = g_rand_double (rand);
    for (gsize at = 0; at <= length; at++)
      if (i == 0 || g_rand_double (rand) < density)
        cuts[n_cuts++] = at;
    g_autoptr (GArray) ids = encode_cut (tokenizer, text, length, cuts, n_cuts, flags);
    assert_same_ids (text, ids, whole);
  }
}

/* Decoding @ids one by one gives @expected, in whole characters. */
static void
check_decode (LycheeTokenizer *tokenizer, const GArray *ids, const char *expected, gsize length)
{
  g_autoptr (LycheeDecoder) decoder = lychee_decoder_new (tokenizer);
  g_autoptr (GString) text = g_string_new (NULL);
  gsize done = 0;

  for (guint i = 0; i <= ids->len; i++) {
    if (i < ids->len)
      lychee_decoder_push (decoder, g_array_index (ids, gint32, i), text);
    else
      lychee_decoder_finish (decoder, text);
    for (; done < text->len; done += strlen (text->str + done) + 1)
      g_assert_true (g_utf8_validate (text->str + done, -1, NULL));
    done = text->len;
  }
  g_assert_cmpmem (text->str, text->len, expected, length);
}
