/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-private.h"
#include "lychee-tokenizer-vocab.h"
#include <string.h>

/**
 * LycheeTokenizer:
 *
 * Turns text into the token ids of a model and back, with the vocabulary of the model's own GGUF
 * file.
 *
 * Two kinds of vocabulary are read. Byte-level BPE (`tokenizer.ggml.model` "gpt2") first cuts text
 * into words, by `tokenizer.ggml.pre`, and merges the bytes of each; SentencePiece's BPE ("llama")
 * merges characters by score and falls back to bytes. Ids are those of the models' own tokenizers,
 * but for two things that those do differently from each other too: text is never normalised, and
 * ordinary text never becomes a control token, whatever it spells.
 *
 * For text that comes in parts there are #LycheeEncoder and #LycheeDecoder:
 *
 * |[<!-- language="C" -->
 * g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, LYCHEE_TOKENIZER_NONE);
 * g_autoptr (GArray) tokens = g_array_new (FALSE, FALSE, sizeof (LycheeToken));
 *
 * while (read_some (&bytes, &n_bytes))
 *   lychee_encoder_push (encoder, bytes, n_bytes, tokens);
 * lychee_encoder_finish (encoder, tokens);
 * ]|
 *
 * A tokenizer is immutable, and may be used from any number of threads.
 */
struct _LycheeTokenizer {
  GObject parent_instance;
  LycheeVocab *vocab;
};

G_DEFINE_FINAL_TYPE (LycheeTokenizer, lychee_tokenizer, G_TYPE_OBJECT)
/* The formatter would take the name for an expression. */
/* clang-format off */
G_DEFINE_QUARK (lychee-tokenizer-error-quark, lychee_tokenizer_error)
/* clang-format on */

/* Text is encoded in parts of this size, so that tokens in two forms need not exist at once. */
#define PART (64u << 10)

static void
lychee_tokenizer_finalize (GObject *object)
{
  lychee_vocab_free (LYCHEE_TOKENIZER (object)->vocab);
  G_OBJECT_CLASS (lychee_tokenizer_parent_class)->finalize (object);
}

static void
lychee_tokenizer_class_init (LycheeTokenizerClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = lychee_tokenizer_finalize;
}

static void
lychee_tokenizer_init (LycheeTokenizer *tokenizer)
{}

LycheeTokenizer *
lychee_tokenizer_new_from_gguf (const struct gguf_context *gguf, char **warning, GError **error)
{
  g_return_val_if_fail (gguf != NULL, NULL);

  if (warning != NULL)
    *warning = NULL;
  LycheeVocab *vocab = lychee_vocab_new (gguf, warning, error);
  if (vocab == NULL)
    return NULL;
  LycheeTokenizer *tokenizer = g_object_new (LYCHEE_TYPE_TOKENIZER, NULL);
  tokenizer->vocab = vocab;
  return tokenizer;
}

const LycheeVocab *
lychee_tokenizer_get_vocab (LycheeTokenizer *tokenizer)
{
  return tokenizer->vocab;
}

static void
take_ids (GArray *tokens, GArray *ids)
{
  guint n = ids->len;
  g_array_set_size (ids, n + tokens->len);
  for (guint i = 0; i < tokens->len; i++)
    g_array_index (ids, gint32, n + i) = g_array_index (tokens, LycheeToken, i).id;
  g_array_set_size (tokens, 0);
}

void
lychee_tokenizer_encode (LycheeTokenizer *tokenizer, const char *text, gssize length,
    LycheeTokenizerFlags flags, GArray *ids)
{
  g_return_if_fail (LYCHEE_IS_TOKENIZER (tokenizer));
  g_return_if_fail (text != NULL || length == 0);
  g_return_if_fail (ids != NULL && g_array_get_element_size (ids) == sizeof (gint32));

  g_autoptr (LycheeEncoder) encoder = lychee_encoder_new (tokenizer, flags);
  g_autoptr (GArray) tokens = g_array_new (FALSE, FALSE, sizeof (LycheeToken));
  gsize n = length < 0 ? strlen (text) : (gsize) length;

  for (gsize at = 0; at < n; at += PART) {
    lychee_encoder_push (encoder, text + at, MIN (n - at, PART), tokens);
    take_ids (tokens, ids);
  }
  lychee_encoder_finish (encoder, tokens);
  take_ids (tokens, ids);
}

char *
lychee_tokenizer_decode (
    LycheeTokenizer *tokenizer, const gint32 *ids, gsize n_ids, LycheeTokenizerFlags flags)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), NULL);
  g_return_val_if_fail (ids != NULL || n_ids == 0, NULL);

  g_autoptr (LycheeDecoder) decoder = lychee_decoder_new_with_flags (tokenizer, flags);
  GString *text = g_string_sized_new (4 * n_ids);

  for (gsize i = 0; i < n_ids; i++)
    lychee_decoder_push (decoder, ids[i], text);
  lychee_decoder_finish (decoder, text);
  return g_string_free (text, FALSE);
}

guint
lychee_tokenizer_get_n_vocab (LycheeTokenizer *tokenizer)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), 0);
  return tokenizer->vocab->n_vocab;
}

gint32
lychee_tokenizer_get_bos (LycheeTokenizer *tokenizer)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), -1);
  return tokenizer->vocab->bos;
}

gint32
lychee_tokenizer_get_eos (LycheeTokenizer *tokenizer)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), -1);
  return tokenizer->vocab->eos;
}

gboolean
lychee_tokenizer_get_add_bos (LycheeTokenizer *tokenizer)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), FALSE);
  return tokenizer->vocab->add_bos && tokenizer->vocab->bos >= 0;
}

gboolean
lychee_tokenizer_is_end (LycheeTokenizer *tokenizer, gint32 id)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), FALSE);
  return id >= 0 && (guint) id < tokenizer->vocab->n_vocab && tokenizer->vocab->is_end[id];
}

gboolean
lychee_tokenizer_is_control (LycheeTokenizer *tokenizer, gint32 id)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), FALSE);
  return id >= 0 && (guint) id < tokenizer->vocab->n_vocab &&
         lychee_vocab_is_control (tokenizer->vocab, (guint32) id);
}

gint32
lychee_tokenizer_lookup (LycheeTokenizer *tokenizer, const char *piece)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), -1);
  g_return_val_if_fail (piece != NULL, -1);

  guint32 id = lychee_strings_find (&tokenizer->vocab->pieces, piece, strlen (piece));
  return id < tokenizer->vocab->n_vocab ? (gint32) id : -1;
}
