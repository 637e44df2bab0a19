/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-vocab.h"
#include "lychee-tokenizer-private.h"

struct _LycheeDecoder {
  LycheeTokenizer *tokenizer;
  const LycheeVocab *vocab;
  LycheeTokenizerFlags flags;
  LycheeUtf8 utf8;
  gboolean started; /* SentencePiece: the space before the text is taken away */
};

LycheeDecoder *
lychee_decoder_new_with_flags (LycheeTokenizer *tokenizer, LycheeTokenizerFlags flags)
{
  g_return_val_if_fail (LYCHEE_IS_TOKENIZER (tokenizer), NULL);

  LycheeDecoder *decoder = g_new0 (LycheeDecoder, 1);
  decoder->tokenizer = g_object_ref (tokenizer);
  decoder->vocab = lychee_tokenizer_get_vocab (tokenizer);
  decoder->flags = flags;
  return decoder;
}

LycheeDecoder *
lychee_decoder_new (LycheeTokenizer *tokenizer)
{
  return lychee_decoder_new_with_flags (tokenizer, LYCHEE_TOKENIZER_NONE);
}

void
lychee_decoder_free (LycheeDecoder *decoder)
{
  if (decoder == NULL)
    return;
  g_object_unref (decoder->tokenizer);
  g_free (decoder);
}

static void
append_characters (GString *text, const LycheeUtf8Char *characters, guint n)
{
  for (guint i = 0; i < n; i++)
    g_string_append_unichar (text, characters[i].c);
}

static void
push_bytes (LycheeDecoder *decoder, const guint8 *bytes, gsize length, GString *text)
{
  for (gsize i = 0; i < length; i++) {
    LycheeUtf8Char characters[2];
    guint n = lychee_utf8_push (&decoder->utf8, bytes[i], characters);
    if (n == 1 && characters[0].c < 0x80)
      g_string_append_c (text, (char) characters[0].c);
    else
      append_characters (text, characters, n);
  }
}

void
lychee_decoder_push (LycheeDecoder *decoder, gint32 id, GString *text)
{
  g_return_if_fail (decoder != NULL);
  g_return_if_fail (text != NULL);

  const LycheeVocab *vocab = decoder->vocab;
  gsize length;

  if (id < 0 || (guint) id >= vocab->n_vocab) {
    /* No token at all: seen, not lost. */
    push_bytes (decoder, (const guint8 *) "\xef\xbf\xbd", 3, text);
    return;
  }
  if (lychee_vocab_is_control (vocab, (guint32) id) && !(decoder->flags & LYCHEE_TOKENIZER_SPECIAL))
    return;
  const guint8 *bytes = lychee_vocab_get_text (vocab, id, &length);
  if (vocab->sentencepiece && vocab->add_space_prefix && length > 0) {
    /* The counterpart of the space that encoding adds. */
    if (!decoder->started && bytes[0] == ' ') {
      bytes++;
      length--;
    }
    decoder->started = !lychee_vocab_is_control (vocab, (guint32) id);
  }
  push_bytes (decoder, bytes, length, text);
}

void
lychee_decoder_finish (LycheeDecoder *decoder, GString *text)
{
  LycheeUtf8Char last;

  g_return_if_fail (decoder != NULL);
  g_return_if_fail (text != NULL);

  append_characters (text, &last, lychee_utf8_finish (&decoder->utf8, &last));
  decoder->started = FALSE;
}
