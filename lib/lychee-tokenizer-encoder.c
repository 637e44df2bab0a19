/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-merge.h"
#include "lychee-tokenizer-vocab.h"
#include "lychee-tokenizer-private.h"

/* A word is cut here at the latest, as if the text had ended, so that a stream without an end of
 * word takes neither all memory nor ever longer. No language has such words. */
#define MAX_WORD (1u << 20)
#define SPACE_MARK 0x2581

/* A character of the pending text whose source has another length than its UTF-8 here. */
typedef struct {
  gsize at;
  guint8 n_bytes;
  guint8 n_source;
} Odd;

struct _LycheeEncoder {
  LycheeTokenizer *tokenizer;
  const LycheeVocab *vocab;
  LycheeUtf8 utf8;
  LycheeMatcher *matcher; /* NULL where no token is looked for in the text */
  LycheePretokenizer pretokenizer;
  LycheeMerger *merger;
  GByteArray *word;    /* the pending text: UTF-8, whole characters */
  GByteArray *scratch; /* a word in the vocabulary's spelling */
  GArray *odd;         /* of Odd, ascending; in @word */
  guint64 offset;      /* of the source of @word */
  gunichar previous;   /* SentencePiece: the last character of @word */
  gboolean started;    /* SentencePiece: the space before the text is there */
  guint64 n_replaced;
  guint64 n_dropped;
  GArray *tokens; /* of the call that is being answered */
};

LycheeEncoder *
lychee_encoder_new (LycheeTokenizer *tokenizer, LycheeTokenizerFlags flags)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), NULL);

  LycheeEncoder *encoder = g_new0 (LycheeEncoder, 1);
  const LycheeVocab *vocab = lychee_tokenizer_get_vocab (tokenizer);
  const LycheeTrie *trie =
      flags & LYCHEE_TOKENIZER_SPECIAL ? &vocab->special : &vocab->user_defined;

  encoder->tokenizer = g_object_ref (tokenizer);
  encoder->vocab = vocab;
  encoder->merger = lychee_merger_new ();
  encoder->word = g_byte_array_new ();
  encoder->scratch = g_byte_array_new ();
  encoder->odd = g_array_new (FALSE, FALSE, sizeof (Odd));
  encoder->pretokenizer.kind = vocab->pretokenizer;
  if (!lychee_trie_is_empty (trie)) {
    encoder->matcher = g_new0 (LycheeMatcher, 1);
    encoder->matcher->trie = trie;
  }
  return encoder;
}

void
lychee_encoder_free (LycheeEncoder *encoder)
{
  if (encoder == NULL)
    return;
  lychee_merger_free (encoder->merger);
  g_byte_array_unref (encoder->word);
  g_byte_array_unref (encoder->scratch);
  g_array_unref (encoder->odd);
  g_free (encoder->matcher);
  g_object_unref (encoder->tokenizer);
  g_free (encoder);
}

static void
emit (LycheeEncoder *encoder, gint32 id, guint64 offset, guint64 length)
{
  LycheeToken token = { id, (guint32) length, offset };
  g_array_append_val (encoder->tokens, token);
}

/* Where in the source a place in the pending text is. Places are asked for in ascending order. */
typedef struct {
  gsize at;
  guint i_odd;
  guint64 offset;
} Cursor;

/* Moves to @at, or where that is inside a character to the end of it. */
static void
cursor_move (Cursor *cursor, const LycheeEncoder *encoder, gsize at)
{
  const guint8 *word = encoder->word->data;

  while (at < encoder->word->len && lychee_utf8_is_continuation (word[at]))
    at++;
  cursor->offset += at - cursor->at;
  cursor->at = at;
  for (; cursor->i_odd < encoder->odd->len; cursor->i_odd++) {
    const Odd *odd = &g_array_index (encoder->odd, Odd, cursor->i_odd);
    if (odd->at >= at)
      break;
    cursor->offset += odd->n_source;
    cursor->offset -= odd->n_bytes;
  }
}

/* Token @id stands for the pending text up to @end. */
static void
emit_until (LycheeEncoder *encoder, Cursor *cursor, gint32 id, gsize end)
{
  guint64 offset = cursor->offset;
  cursor_move (cursor, encoder, end);
  emit (encoder, id, offset, cursor->offset - offset);
}

/* Text that is no piece: its bytes one by one. What has no token for its bytes becomes the unknown
 * token, or where that too is missing, or one that only a template may write, is left out. */
static void
emit_bytes (LycheeEncoder *encoder, Cursor *cursor, gsize start, gsize end)
{
  const LycheeVocab *vocab = encoder->vocab;
  const guint8 *word = encoder->word->data;

  for (gsize i = start; i < end; i++) {
    gint32 id = vocab->byte_tokens[word[i]];
    if (id >= 0) {
      emit_until (encoder, cursor, id, i + 1);
    } else if (vocab->unknown >= 0 &&
               (vocab->sentencepiece || !lychee_vocab_is_control (vocab, vocab->unknown))) {
      /* One for the character. */
      if (!lychee_utf8_is_continuation (word[i]))
        emit_until (encoder, cursor, vocab->unknown, i + 1);
    } else {
      encoder->n_dropped++;
      cursor_move (cursor, encoder, i + 1);
    }
  }
}

/* The token whose text is this whole word, or -1. */
static gint32
find_whole (LycheeEncoder *encoder, const guint8 *word, gsize length)
{
  const LycheeVocab *vocab = encoder->vocab;

  if (length > vocab->max_piece)
    return -1;
  g_byte_array_set_size (encoder->scratch, 0);
  for (gsize i = 0; i < length; i++) {
    char spelling[2];
    guint n = lychee_vocab_spell_byte (word[i], spelling);
    g_byte_array_append (encoder->scratch, (const guint8 *) spelling, n);
  }
  guint32 id = lychee_strings_find (&vocab->pieces, encoder->scratch->data, encoder->scratch->len);
  return id != LYCHEE_PIECE_NONE && lychee_vocab_is_text (vocab, id) ? (gint32) id : -1;
}

static void
encode_word (LycheeEncoder *encoder, Cursor *cursor, gsize start, gsize end)
{
  const guint8 *word = encoder->word->data + start;
  guint32 n_merged;

  if (encoder->vocab->ignore_merges) {
    gint32 id = find_whole (encoder, word, end - start);
    if (id >= 0) {
      emit_until (encoder, cursor, id, end);
      return;
    }
  }
  const LycheeMerged *merged =
      lychee_merger_run (encoder->merger, encoder->vocab, word, (guint32) (end - start), &n_merged);
  for (guint32 i = 0; i < n_merged; i++) {
    gsize next = start + merged[i].n_bytes;
    if (lychee_vocab_is_text (encoder->vocab, merged[i].piece))
      emit_until (encoder, cursor, (gint32) merged[i].piece, next);
    else
      emit_bytes (encoder, cursor, start, next);
    start = next;
  }
}

/* Encodes the words of the pending text that end at @ends. */
static void
encode_words (LycheeEncoder *encoder, const gsize *ends, guint n_ends)
{
  Cursor cursor = { 0, 0, encoder->offset };
  gsize start = 0;

  if (n_ends == 0)
    return;
  for (guint i = 0; i < n_ends; i++) {
    encode_word (encoder, &cursor, start, ends[i]);
    start = ends[i];
  }
  encoder->offset = cursor.offset;
  if (start == encoder->word->len) {
    g_byte_array_set_size (encoder->word, 0);
    g_array_set_size (encoder->odd, 0);
    return;
  }
  g_byte_array_remove_range (encoder->word, 0, start);
  g_array_remove_range (encoder->odd, 0, cursor.i_odd);
  for (guint i = 0; i < encoder->odd->len; i++)
    g_array_index (encoder->odd, Odd, i).at -= start;
}

/* The pending text ends here. */
static void
end_text (LycheeEncoder *encoder)
{
  gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS];
  guint n_ends;

  if (encoder->vocab->sentencepiece) {
    ends[0] = encoder->word->len;
    n_ends = encoder->word->len > 0;
  } else {
    n_ends = lychee_pretokenizer_finish (&encoder->pretokenizer, ends);
  }
  encode_words (encoder, ends, n_ends);
}

static guint
append_character (LycheeEncoder *encoder, gunichar c, guint n_source)
{
  char utf8[6];
  guint n_bytes = g_unichar_to_utf8 (c, utf8);

  if (n_bytes != n_source) {
    Odd odd = { encoder->word->len, (guint8) n_bytes, (guint8) n_source };
    g_array_append_val (encoder->odd, odd);
  }
  g_byte_array_append (encoder->word, (const guint8 *) utf8, n_bytes);
  return n_bytes;
}

static void
push_sentencepiece (LycheeEncoder *encoder, gunichar c, guint n_source)
{
  if (encoder->word->len > 0 &&
      lychee_map_find (&encoder->vocab->neighbours, (guint64) encoder->previous << 32 | c) == NULL)
    end_text (encoder);
  append_character (encoder, c, n_source);
  encoder->previous = c;
}

/* SentencePiece: what is not a control token follows, for the first time since the start or one. */
static void
start_text (LycheeEncoder *encoder)
{
  if (!encoder->started && encoder->vocab->add_space_prefix)
    push_sentencepiece (encoder, SPACE_MARK, 0);
  encoder->started = TRUE;
}

/* One character of plain text. */
static void
push_text (LycheeEncoder *encoder, gunichar c, guint n_source)
{
  if (encoder->vocab->sentencepiece) {
    start_text (encoder);
    push_sentencepiece (encoder, c, n_source);
  } else {
    gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS];
    guint n_bytes = append_character (encoder, c, n_source);
    guint n_ends = lychee_pretokenizer_push (&encoder->pretokenizer, c, n_bytes, ends);
    encode_words (encoder, ends, n_ends);
  }
  if (encoder->word->len >= MAX_WORD)
    end_text (encoder);
}

/* LycheeMatcherFunc */
static void
matched (gpointer user_data, gint32 id, guint n_source, const LycheeUtf8Char *c)
{
  LycheeEncoder *encoder = user_data;

  if (id < 0) {
    push_text (encoder, c->c, n_source);
    return;
  }
  if (lychee_vocab_is_control (encoder->vocab, (guint32) id)) {
    end_text (encoder);
    encoder->started = FALSE;
  } else {
    start_text (encoder);
    end_text (encoder);
  }
  emit (encoder, id, encoder->offset, n_source);
  encoder->offset += n_source;
}

static void
push_character (LycheeEncoder *encoder, LycheeUtf8Char c)
{
  if (c.broken)
    encoder->n_replaced += c.n_source;
  /* Before looking for tokens, as SentencePiece does: two spaces may be one that is user-defined.
   */
  if (c.c == ' ' && encoder->vocab->sentencepiece)
    c.c = SPACE_MARK;
  if (encoder->matcher != NULL)
    lychee_matcher_push (encoder->matcher, &c, matched, encoder);
  else
    push_text (encoder, c.c, c.n_source);
}

void
lychee_encoder_push (LycheeEncoder *encoder, const char *text, gsize length, GArray *tokens)
{
  g_return_if_fail (encoder != NULL);
  g_return_if_fail (text != NULL || length == 0);
  g_return_if_fail (tokens != NULL && g_array_get_element_size (tokens) == sizeof (LycheeToken));

  encoder->tokens = tokens;
  for (gsize i = 0; i < length; i++) {
    LycheeUtf8Char characters[2];
    guint n = lychee_utf8_push (&encoder->utf8, (guint8) text[i], characters);
    for (guint j = 0; j < n; j++)
      push_character (encoder, characters[j]);
  }
  encoder->tokens = NULL;
}

void
lychee_encoder_finish (LycheeEncoder *encoder, GArray *tokens)
{
  LycheeUtf8Char last;

  g_return_if_fail (encoder != NULL);
  g_return_if_fail (tokens != NULL && g_array_get_element_size (tokens) == sizeof (LycheeToken));

  encoder->tokens = tokens;
  if (lychee_utf8_finish (&encoder->utf8, &last) > 0)
    push_character (encoder, last);
  if (encoder->matcher != NULL)
    lychee_matcher_finish (encoder->matcher, matched, encoder);
  end_text (encoder);
  encoder->started = FALSE;
  encoder->tokens = NULL;
}

void
lychee_encoder_reset (LycheeEncoder *encoder)
{
  g_return_if_fail (encoder != NULL);

  encoder->utf8 = (LycheeUtf8){ 0 };
  if (encoder->matcher != NULL) {
    const LycheeTrie *trie = encoder->matcher->trie;
    *encoder->matcher = (LycheeMatcher){ .trie = trie };
  }
  encoder->pretokenizer = (LycheePretokenizer){ .kind = encoder->vocab->pretokenizer };
  g_byte_array_set_size (encoder->word, 0);
  g_array_set_size (encoder->odd, 0);
  encoder->offset = 0;
  encoder->started = FALSE;
  encoder->n_replaced = 0;
  encoder->n_dropped = 0;
}

guint64
lychee_encoder_get_n_replaced (LycheeEncoder *encoder)
{
  g_return_val_if_fail (encoder != NULL, 0);
  return encoder->n_replaced;
}

guint64
lychee_encoder_get_n_dropped (LycheeEncoder *encoder)
{
  g_return_val_if_fail (encoder != NULL, 0);
  return encoder->n_dropped;
}
