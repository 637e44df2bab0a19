/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-vocab.h"
#include "lychee-tokenizer.h"
#include <math.h>
#include <string.h>

#define KEY "tokenizer.ggml."
/* U+2581, SentencePiece's space. */
#define SPACE_MARK "\xe2\x96\x81"
/* Of all spellings and merges together; a real vocabulary has a few megabytes. */
#define MAX_TEXT (G_MAXUINT32 / 4)

/* What ends an answer in the chat formats in use, beside EOS and EOT. No ordinary text, so that a
 * file that forgot to mark one as a control token means one all the same. */
static const char *const end_names[] = {
  "<|im_end|>",
  "<|eot_id|>",
  "<|eom_id|>",
  "<|eot|>",
  "<|end|>",
  "<|return|>",
  "<|end_of_text|>",
  "<|endoftext|>",
  "<|end_of_turn|>",
  "<|endofturn|>",
  "<end_of_turn>",
  "<end_of_utterance>",
  "<turn|>",
  "<EOT>",
  "_<EOT>",
  "<eos>",
  "<｜end▁of▁sentence｜>",
};

typedef struct {
  const char *name;
  LycheePretokenizerKind kind;
  gboolean ignore_merges;
  gboolean add_bos; /* where the file does not say */
} PretokenizerName;

/* Values of tokenizer.ggml.pre. */
static const PretokenizerName pretokenizer_names[] = {
  { "gpt-2", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "phi-2", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "mpt", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "olmo", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "jais", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "granite-docling", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "mellum", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "trillion", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "a.x-4.0", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "gigachat", LYCHEE_PRETOKENIZER_GPT2, FALSE, FALSE },
  { "smollm", LYCHEE_PRETOKENIZER_SMOLLM, FALSE, FALSE },
  { "starcoder", LYCHEE_PRETOKENIZER_SMOLLM, FALSE, FALSE },
  { "refact", LYCHEE_PRETOKENIZER_SMOLLM, FALSE, FALSE },
  { "command-r", LYCHEE_PRETOKENIZER_SMOLLM, FALSE, FALSE },
  { "codeshell", LYCHEE_PRETOKENIZER_SMOLLM, FALSE, FALSE },
  { "exaone", LYCHEE_PRETOKENIZER_SMOLLM, FALSE, FALSE },
  { "minerva-7b", LYCHEE_PRETOKENIZER_SMOLLM, FALSE, FALSE },
  { "llama-bpe", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "llama3", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "llama-v3", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "falcon3", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "falcon-h1", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "lfm2", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "pixtral", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "midm-2.0", LYCHEE_PRETOKENIZER_LLAMA3, TRUE, TRUE },
  { "dbrx", LYCHEE_PRETOKENIZER_LLAMA3, FALSE, FALSE },
  { "smaug-bpe", LYCHEE_PRETOKENIZER_LLAMA3, FALSE, FALSE },
  { "qwen2", LYCHEE_PRETOKENIZER_QWEN2, FALSE, FALSE },
  { "deepseek-r1-qwen", LYCHEE_PRETOKENIZER_QWEN2, FALSE, FALSE },
  { "stablelm2", LYCHEE_PRETOKENIZER_QWEN2, FALSE, FALSE },
  { "megrez", LYCHEE_PRETOKENIZER_QWEN2, FALSE, FALSE },
  { "hunyuan", LYCHEE_PRETOKENIZER_QWEN2, FALSE, FALSE },
  { "solar-open", LYCHEE_PRETOKENIZER_QWEN2, FALSE, FALSE },
  { "kormo", LYCHEE_PRETOKENIZER_QWEN2, FALSE, FALSE },
  { "qwen35", LYCHEE_PRETOKENIZER_QWEN35, FALSE, FALSE },
  { "seed-coder", LYCHEE_PRETOKENIZER_SEED_CODER, FALSE, FALSE },
  { "minicpm5", LYCHEE_PRETOKENIZER_MINICPM5, TRUE, FALSE },
  { "deepseek-coder", LYCHEE_PRETOKENIZER_DEEPSEEK_CODER, FALSE, FALSE },
  { "gpt-4o", LYCHEE_PRETOKENIZER_GPT4O, FALSE, FALSE },
  { "llama4", LYCHEE_PRETOKENIZER_GPT4O, FALSE, FALSE },
  { "kanana2", LYCHEE_PRETOKENIZER_GPT4O, FALSE, FALSE },
  { "tekken", LYCHEE_PRETOKENIZER_TEKKEN, TRUE, TRUE },
};

static gboolean fail (GError **error, LycheeTokenizerError code, const char *format, ...)
    G_GNUC_PRINTF (3, 4);

static gboolean
fail (GError **error, LycheeTokenizerError code, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_propagate_error (error, g_error_new_valist (LYCHEE_TOKENIZER_ERROR, code, format, args));
  va_end (args);
  return FALSE;
}

/* The array @key of elements of @type. -1 and no error where it is missing. */
static gboolean
find_array (const struct gguf_context *gguf, const char *key, enum gguf_type type, gint64 *at,
    gsize *n, GError **error)
{
  *at = gguf_find_key (gguf, key);
  *n = 0;
  if (*at < 0)
    return TRUE;
  if (gguf_get_kv_type (gguf, *at) != GGUF_TYPE_ARRAY)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is not an array but %s", key,
        gguf_type_name (gguf_get_kv_type (gguf, *at)));
  enum gguf_type found = gguf_get_arr_type (gguf, *at);
  /* Signed and unsigned are one here: both are in use for token types. */
  if (found != type && !(type == GGUF_TYPE_INT32 && found == GGUF_TYPE_UINT32))
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is an array of %s, not of %s", key,
        gguf_type_name (found), gguf_type_name (type));
  *n = gguf_get_arr_n (gguf, *at);
  return TRUE;
}

/* NULL and no error where @key is missing. */
static gboolean
find_string (const struct gguf_context *gguf, const char *key, const char **value, GError **error)
{
  gint64 at = gguf_find_key (gguf, key);
  *value = NULL;
  if (at < 0)
    return TRUE;
  if (gguf_get_kv_type (gguf, at) != GGUF_TYPE_STRING)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is not a string but %s", key,
        gguf_type_name (gguf_get_kv_type (gguf, at)));
  *value = gguf_get_val_str (gguf, at);
  return TRUE;
}

/* @value is left as it is where @key is missing. */
static gboolean
find_bool (const struct gguf_context *gguf, const char *key, gboolean *value, GError **error)
{
  gint64 at = gguf_find_key (gguf, key);
  if (at < 0)
    return TRUE;
  if (gguf_get_kv_type (gguf, at) != GGUF_TYPE_BOOL)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is not a boolean but %s", key,
        gguf_type_name (gguf_get_kv_type (gguf, at)));
  *value = gguf_get_val_bool (gguf, at);
  return TRUE;
}

/* A token id; -1 where @key is missing or has all bits set, which files write for "none". */
static gboolean
find_id (
    const struct gguf_context *gguf, const char *key, guint n_vocab, gint32 *id, GError **error)
{
  gint64 at = gguf_find_key (gguf, key);
  guint64 value;

  *id = -1;
  if (at < 0)
    return TRUE;
  switch (gguf_get_kv_type (gguf, at)) {
  case GGUF_TYPE_UINT8:
    value = gguf_get_val_u8 (gguf, at);
    break;
  case GGUF_TYPE_UINT16:
    value = gguf_get_val_u16 (gguf, at);
    break;
  case GGUF_TYPE_UINT32:
    value = gguf_get_val_u32 (gguf, at);
    if (value == G_MAXUINT32)
      return TRUE;
    break;
  case GGUF_TYPE_INT8:
    value = (guint64) (gint64) gguf_get_val_i8 (gguf, at);
    break;
  case GGUF_TYPE_INT16:
    value = (guint64) (gint64) gguf_get_val_i16 (gguf, at);
    break;
  case GGUF_TYPE_INT32:
    value = (guint64) (gint64) gguf_get_val_i32 (gguf, at);
    break;
  case GGUF_TYPE_INT64:
    value = (guint64) gguf_get_val_i64 (gguf, at);
    break;
  case GGUF_TYPE_UINT64:
    value = gguf_get_val_u64 (gguf, at);
    break;
  default:
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is not a number but %s", key,
        gguf_type_name (gguf_get_kv_type (gguf, at)));
  }
  if (value == G_MAXUINT64)
    return TRUE;
  if (value >= n_vocab)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID,
        "%s is %" G_GINT64_FORMAT ", but there are %u tokens", key, (gint64) value, n_vocab);
  *id = (gint32) value;
  return TRUE;
}

/* GPT-2's spelling of bytes as printable characters: itself where it is one, else from U+0100 on
 * in order. */
static gunichar
spell_byte (guint8 byte)
{
  static const struct {
    guint8 first, last;
  } printable[] = { { '!', '~' }, { 0xa1, 0xac }, { 0xae, 0xff } };
  guint n_below = 0;

  for (guint i = 0; i < G_N_ELEMENTS (printable); i++) {
    if (byte >= printable[i].first && byte <= printable[i].last)
      return byte;
    if (byte > printable[i].last)
      n_below += printable[i].last - printable[i].first + 1u;
  }
  return 0x100 + byte - n_below;
}

guint
lychee_vocab_spell_byte (guint8 byte, char spelling[2])
{
  char buffer[6];
  guint length = g_unichar_to_utf8 (spell_byte (byte), buffer);
  memcpy (spelling, buffer, length);
  return length;
}

/* The bytes that a byte-level spelling stands for. A character that spells no byte is kept. */
static void
append_unspelt (GByteArray *out, const guint8 *spelling, gsize length, const gint16 *bytes)
{
  const char *p = (const char *) spelling, *end = p + length;
  while (p < end) {
    gunichar c = g_utf8_get_char_validated (p, end - p);
    gsize n = c >= 0x80000000 ? 1 : g_utf8_skip[(guint8) *p];
    if (c < 0x180 && bytes[c] >= 0) {
      guint8 byte = (guint8) bytes[c];
      g_byte_array_append (out, &byte, 1);
    } else {
      g_byte_array_append (out, (const guint8 *) p, n);
    }
    p += n;
  }
}

/* SentencePiece's spelling has U+2581 for a space. */
static void
append_unmarked (GByteArray *out, const guint8 *spelling, gsize length)
{
  for (gsize i = 0; i < length;) {
    if (length - i >= 3 && memcmp (spelling + i, SPACE_MARK, 3) == 0) {
      g_byte_array_append (out, (const guint8 *) " ", 1);
      i += 3;
    } else {
      g_byte_array_append (out, spelling + i++, 1);
    }
  }
}

static gboolean
read_tokens (LycheeVocab *vocab, const struct gguf_context *gguf, GError **error)
{
  const char *key = KEY "tokens";
  gint64 at;
  gsize n, total = 0;

  if (!find_array (gguf, key, GGUF_TYPE_STRING, &at, &n, error))
    return FALSE;
  if (n == 0)
    return fail (
        error, LYCHEE_TOKENIZER_ERROR_INVALID, at < 0 ? "%s is missing" : "%s is empty", key);
  if (n > G_MAXINT32 / 2)
    return fail (
        error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s has %" G_GSIZE_FORMAT " tokens", key, n);
  vocab->n_vocab = n;
  lychee_strings_init (&vocab->pieces, n);
  for (gsize i = 0; i < n; i++) {
    const char *spelling = gguf_get_arr_str (gguf, at, i);
    gsize length = strlen (spelling);
    total += length;
    if (total > MAX_TEXT)
      return fail (
          error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is more than %u bytes of text", key, MAX_TEXT);
    /* Of two tokens with one spelling the last is the one that text becomes. */
    lychee_strings_add (&vocab->pieces, spelling, length, TRUE);
    vocab->max_piece = MAX (vocab->max_piece, length);
  }
  return TRUE;
}

static gboolean
read_types (LycheeVocab *vocab, const struct gguf_context *gguf, GError **error)
{
  const char *key = KEY "token_type";
  gint64 at;
  gsize n;

  if (!find_array (gguf, key, GGUF_TYPE_INT32, &at, &n, error))
    return FALSE;
  if (at >= 0 && n != vocab->n_vocab)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID,
        "%s has %" G_GSIZE_FORMAT " elements for %u tokens", key, n, vocab->n_vocab);
  const gint32 *types = at < 0 ? NULL : gguf_get_arr_data (gguf, at);
  vocab->types = g_new (guint8, vocab->n_vocab);
  for (guint i = 0; i < vocab->n_vocab; i++) {
    vocab->types[i] = LYCHEE_PIECE_NORMAL;
    if (types != NULL && types[i] > LYCHEE_PIECE_NORMAL && types[i] <= LYCHEE_PIECE_BYTE)
      vocab->types[i] = (guint8) types[i];
  }
  return TRUE;
}

static gboolean
read_special (LycheeVocab *vocab, const struct gguf_context *gguf, GError **error)
{
  const struct {
    const char *key;
    gint32 *id;
  } ids[] = {
    { KEY "bos_token_id", &vocab->bos },
    { KEY "eos_token_id", &vocab->eos },
    { KEY "eot_token_id", &vocab->eot },
    { KEY "unknown_token_id", &vocab->unknown },
  };

  for (guint i = 0; i < G_N_ELEMENTS (ids); i++)
    if (!find_id (gguf, ids[i].key, vocab->n_vocab, ids[i].id, error))
      return FALSE;
  vocab->is_end = g_new0 (guint8, vocab->n_vocab);
  if (vocab->eos >= 0)
    vocab->is_end[vocab->eos] = TRUE;
  if (vocab->eot >= 0)
    vocab->is_end[vocab->eot] = TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (end_names); i++) {
    guint32 id = lychee_strings_find (&vocab->pieces, end_names[i], strlen (end_names[i]));
    if (id == LYCHEE_PIECE_NONE)
      continue;
    vocab->is_end[id] = TRUE;
    vocab->types[id] = LYCHEE_PIECE_CONTROL;
  }
  return find_bool (gguf, KEY "add_bos_token", &vocab->add_bos, error);
}

/* The piece spelt as @left and @right together; a new one where the vocabulary has none. */
static guint32
intern (LycheeVocab *vocab, const char *left, gsize n_left, const char *right, gsize n_right,
    GByteArray *scratch)
{
  g_byte_array_set_size (scratch, 0);
  g_byte_array_append (scratch, (const guint8 *) left, n_left);
  if (n_right > 0)
    g_byte_array_append (scratch, (const guint8 *) right, n_right);
  guint32 piece = lychee_strings_find (&vocab->pieces, scratch->data, scratch->len);
  if (piece == LYCHEE_PIECE_NONE)
    piece = lychee_strings_add (&vocab->pieces, scratch->data, scratch->len, TRUE);
  return piece;
}

static gboolean
read_merges (LycheeVocab *vocab, const struct gguf_context *gguf, GError **error)
{
  const char *key = KEY "merges";
  g_autoptr (GByteArray) scratch = g_byte_array_new ();
  gint64 at;
  gsize n, total = 0;

  if (!find_array (gguf, key, GGUF_TYPE_STRING, &at, &n, error))
    return FALSE;
  if (at < 0)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is missing", key);
  if (n > G_MAXINT32 / 2)
    return fail (
        error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s has %" G_GSIZE_FORMAT " elements", key, n);
  for (guint byte = 0; byte < 256; byte++) {
    char spelling[2];
    guint length = lychee_vocab_spell_byte ((guint8) byte, spelling);
    guint32 piece = intern (vocab, spelling, length, NULL, 0, scratch);
    vocab->byte_pieces[byte] = piece;
    vocab->byte_tokens[byte] = lychee_vocab_is_text (vocab, piece) ? (gint32) piece : -1;
  }
  lychee_map_clear (&vocab->merges);
  lychee_map_init (&vocab->merges, n);
  for (gsize i = 0; i < n; i++) {
    const char *left = gguf_get_arr_str (gguf, at, i);
    const char *space = *left == '\0' ? NULL : strchr (left + 1, ' ');
    if (space == NULL || space[1] == '\0')
      return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID,
          "%s: element %" G_GSIZE_FORMAT " is not two pieces", key, i);
    gsize n_left = space - left, n_right = strlen (space + 1);
    total += 2 * (n_left + n_right);
    if (total > MAX_TEXT)
      return fail (
          error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is more than %u bytes of text", key, MAX_TEXT);
    guint32 left_piece = intern (vocab, left, n_left, NULL, 0, scratch);
    guint32 right_piece = intern (vocab, space + 1, n_right, NULL, 0, scratch);
    guint32 merged = intern (vocab, left, n_left, space + 1, n_right, scratch);
    /* A merge that is listed twice has the better rank. */
    lychee_map_add (&vocab->merges, (guint64) left_piece << 32 | right_piece, (guint32) i, merged);
  }
  return TRUE;
}

static gboolean
choose_pretokenizer (
    LycheeVocab *vocab, const struct gguf_context *gguf, char **warning, GError **error)
{
  const char *key = KEY "pre", *name;

  if (!find_string (gguf, key, &name, error))
    return FALSE;
  for (guint i = 0; name != NULL && i < G_N_ELEMENTS (pretokenizer_names); i++) {
    const PretokenizerName *known = &pretokenizer_names[i];
    if (strcmp (name, known->name) == 0) {
      vocab->pretokenizer = known->kind;
      vocab->ignore_merges = known->ignore_merges;
      vocab->add_bos = known->add_bos;
      return TRUE;
    }
  }
  vocab->pretokenizer = LYCHEE_PRETOKENIZER_GPT2;
  if (warning != NULL && name != NULL)
    *warning = g_strdup_printf ("%s \"%s\" is not known: text is cut into words as GPT-2 does, "
                                "which may cost quality",
        key, name);
  else if (warning != NULL)
    *warning = g_strdup_printf ("%s is missing: text is cut into words as GPT-2 does, which may "
                                "cost quality",
        key);
  return TRUE;
}

static int
compare_scores (gconstpointer a, gconstpointer b, gpointer scores)
{
  float left = ((const float *) scores)[*(const guint32 *) a];
  float right = ((const float *) scores)[*(const guint32 *) b];
  return left > right ? -1 : left < right;
}

/* Scores as ranks: 0 is the best, equal ones share one. */
static gboolean
read_scores (LycheeVocab *vocab, const struct gguf_context *gguf, GError **error)
{
  const char *key = KEY "scores";
  gint64 at;
  gsize n;

  if (!find_array (gguf, key, GGUF_TYPE_FLOAT32, &at, &n, error))
    return FALSE;
  if (at < 0)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, "%s is missing", key);
  if (n != vocab->n_vocab)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID,
        "%s has %" G_GSIZE_FORMAT " elements for %u tokens", key, n, vocab->n_vocab);
  const float *scores = gguf_get_arr_data (gguf, at);
  g_autofree guint32 *order = g_new (guint32, n);
  for (gsize i = 0; i < n; i++) {
    if (isnan (scores[i]))
      return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID,
          "%s: element %" G_GSIZE_FORMAT " is not a number", key, i);
    order[i] = i;
  }
  g_qsort_with_data (order, n, sizeof *order, compare_scores, (gpointer) scores);
  vocab->ranks = g_new (guint32, n);
  guint32 rank = 0;
  for (gsize i = 0; i < n; i++) {
    if (i > 0 && scores[order[i]] < scores[order[i - 1]])
      rank++;
    vocab->ranks[order[i]] = rank;
  }
  return TRUE;
}

guint32
lychee_vocab_find_piece (const LycheeVocab *vocab, const guint8 *text, gsize length)
{
  if (length > vocab->max_piece)
    return LYCHEE_PIECE_NONE;
  guint32 id = lychee_strings_find (&vocab->pieces, text, length);
  if (id == LYCHEE_PIECE_NONE || lychee_vocab_is_control (vocab, id) ||
      vocab->types[id] == LYCHEE_PIECE_BYTE)
    return LYCHEE_PIECE_NONE;
  return id;
}

static void
find_sentencepiece_bytes (LycheeVocab *vocab)
{
  for (guint byte = 0; byte < 256; byte++) {
    char name[8];
    g_snprintf (name, sizeof name, "<0x%02X>", byte);
    guint32 id = lychee_strings_find (&vocab->pieces, name, strlen (name));
    vocab->byte_tokens[byte] = -1;
    if (id == LYCHEE_PIECE_NONE || lychee_vocab_is_control (vocab, id))
      continue;
    vocab->types[id] = LYCHEE_PIECE_BYTE;
    vocab->byte_tokens[byte] = (gint32) id;
  }
}

static void
find_neighbours (LycheeVocab *vocab)
{
  for (guint id = 0; id < vocab->n_vocab; id++) {
    gsize length;
    const char *p = (const char *) lychee_strings_get (&vocab->pieces, id, &length);
    const char *end = p + length;
    gunichar previous = 0;
    if (length == 0 || !g_utf8_validate_len (p, length, NULL))
      continue;
    for (gboolean first = TRUE; p < end; p = g_utf8_next_char (p), first = FALSE) {
      gunichar c = g_utf8_get_char (p);
      if (!first)
        lychee_map_add (&vocab->neighbours, (guint64) previous << 32 | c, 0, 0);
      previous = c;
    }
  }
}

/* What each token decodes to. */
static void
make_text (LycheeVocab *vocab)
{
  g_autoptr (GByteArray) text = g_byte_array_new ();
  gint16 bytes[0x180];
  gint16 byte_of_token;

  memset (bytes, 0xff, sizeof bytes);
  for (guint byte = 0; byte < 256; byte++)
    bytes[spell_byte ((guint8) byte)] = (gint16) byte;
  vocab->text_starts = g_new0 (gsize, (gsize) vocab->n_vocab + 1);
  for (guint id = 0; id < vocab->n_vocab; id++) {
    gsize length;
    const guint8 *spelling = lychee_strings_get (&vocab->pieces, id, &length);
    switch ((LycheePieceType) vocab->types[id]) {
    case LYCHEE_PIECE_UNKNOWN:
    case LYCHEE_PIECE_CONTROL:
    case LYCHEE_PIECE_USER_DEFINED:
      if (length > 0)
        g_byte_array_append (text, spelling, length);
      break;
    case LYCHEE_PIECE_NORMAL:
    case LYCHEE_PIECE_UNUSED:
    case LYCHEE_PIECE_BYTE:
      if (!vocab->sentencepiece) {
        append_unspelt (text, spelling, length, bytes);
        break;
      }
      byte_of_token = -1;
      if (vocab->types[id] == LYCHEE_PIECE_BYTE && length == 6 && g_ascii_isxdigit (spelling[3]) &&
          g_ascii_isxdigit (spelling[4]))
        byte_of_token = (gint16) (g_ascii_xdigit_value ((char) spelling[3]) << 4 |
                                  g_ascii_xdigit_value ((char) spelling[4]));
      if (byte_of_token >= 0 && byte_of_token < 256) {
        guint8 byte = (guint8) byte_of_token;
        g_byte_array_append (text, &byte, 1);
      } else {
        append_unmarked (text, spelling, length);
      }
      break;
    }
    vocab->text_starts[id + 1] = text->len;
  }
  vocab->text = g_byte_array_steal (text, NULL);
}

static void
make_tries (LycheeVocab *vocab)
{
  g_autoptr (GString) text = g_string_new (NULL);

  for (guint id = 0; id < vocab->n_vocab; id++) {
    gboolean user_defined = vocab->types[id] == LYCHEE_PIECE_USER_DEFINED;
    if (!lychee_vocab_is_control (vocab, id) && !user_defined)
      continue;
    gsize length;
    const char *spelling = (const char *) lychee_strings_get (&vocab->pieces, id, &length);
    g_string_truncate (text, 0);
    g_string_append_len (text, spelling, (gssize) length);
    /* The text that is looked through has its spaces marked. */
    if (vocab->sentencepiece)
      g_string_replace (text, " ", SPACE_MARK, 0);
    lychee_trie_add (&vocab->special, text->str, text->len, (gint32) id);
    if (user_defined && vocab->sentencepiece)
      lychee_trie_add (&vocab->user_defined, text->str, text->len, (gint32) id);
  }
}

static gboolean
read_vocab (LycheeVocab *vocab, const struct gguf_context *gguf, char **warning, GError **error)
{
  const char *model;

  if (!find_string (gguf, KEY "model", &model, error))
    return FALSE;
  if (model == NULL)
    return fail (error, LYCHEE_TOKENIZER_ERROR_INVALID, KEY "model is missing");
  vocab->sentencepiece = strcmp (model, "llama") == 0;
  if (!vocab->sentencepiece && strcmp (model, "gpt2") != 0)
    return fail (error, LYCHEE_TOKENIZER_ERROR_UNSUPPORTED,
        KEY "model \"%s\" is not supported; \"gpt2\" and \"llama\" are", model);

  if (!read_tokens (vocab, gguf, error) || !read_types (vocab, gguf, error))
    return FALSE;
  if (vocab->sentencepiece) {
    vocab->add_bos = TRUE;
    vocab->add_space_prefix = TRUE;
    if (!find_bool (gguf, KEY "add_space_prefix", &vocab->add_space_prefix, error) ||
        !read_scores (vocab, gguf, error))
      return FALSE;
  } else if (!choose_pretokenizer (vocab, gguf, warning, error)) {
    return FALSE;
  }
  if (!read_special (vocab, gguf, error))
    return FALSE;
  if (vocab->sentencepiece) {
    find_sentencepiece_bytes (vocab);
    find_neighbours (vocab);
  } else if (!read_merges (vocab, gguf, error)) {
    return FALSE;
  }
  make_text (vocab);
  make_tries (vocab);
  return TRUE;
}

LycheeVocab *
lychee_vocab_new (const struct gguf_context *gguf, char **warning, GError **error)
{
  g_autoptr (LycheeVocab) vocab = g_new0 (LycheeVocab, 1);
  g_autofree char *assumed = NULL;

  vocab->bos = vocab->eos = vocab->eot = vocab->unknown = -1;
  lychee_map_init (&vocab->merges, 0);
  lychee_map_init (&vocab->neighbours, 0);
  lychee_trie_init (&vocab->special);
  lychee_trie_init (&vocab->user_defined);
  if (!read_vocab (vocab, gguf, &assumed, error))
    return NULL;
  if (warning != NULL)
    *warning = g_steal_pointer (&assumed);
  return g_steal_pointer (&vocab);
}

void
lychee_vocab_free (LycheeVocab *vocab)
{
  if (vocab == NULL)
    return;
  lychee_strings_clear (&vocab->pieces);
  lychee_map_clear (&vocab->merges);
  lychee_map_clear (&vocab->neighbours);
  lychee_trie_clear (&vocab->special);
  lychee_trie_clear (&vocab->user_defined);
  g_free (vocab->types);
  g_free (vocab->is_end);
  g_free (vocab->ranks);
  g_free (vocab->text);
  g_free (vocab->text_starts);
  g_free (vocab);
}
