/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any bytes as text, cut anywhere: the ids are those of the whole, and all of the text is in its
 * tokens. Input: the vocabulary, flags, how to cut; then the text. */

#include "fuzz.h"

#include "../tokenizer-fixture.h"

static LycheeTokenizer *tokenizers[4];

static LycheeTokenizer *
new_bpe (const char *pre)
{
  g_autoptr (Fixture) fixture = fixture_new ();

  fixture_train (fixture, 200);
  fixture_add (fixture, "<|im_end|>", CONTROL, 0);
  return tokenizer_from_gguf (fixture_to_gguf (fixture, "gpt2", pre));
}

static LycheeTokenizer *
new_sentencepiece (gboolean byte_tokens)
{
  g_autoptr (Fixture) fixture = fixture_new_sentencepiece (byte_tokens, 1);

  return tokenizer_from_gguf (fixture_to_gguf (fixture, "llama", "default"));
}

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  tokenizers[0] = new_bpe ("gpt-2");
  tokenizers[1] = new_bpe ("llama-bpe");
  tokenizers[2] = new_sentencepiece (TRUE);
  tokenizers[3] = new_sentencepiece (FALSE);
  return 0;
}

static void
check_tokens (LycheeTokenizer *tokenizer, GArray *tokens, gsize length, guint64 n_dropped)
{
  gsize end = 0;

  for (guint i = 0; i < tokens->len; i++) {
    const LycheeToken *token = token_at (tokens, i);

    g_assert_cmpint (token->id, >=, 0);
    g_assert_cmpuint (token->id, <, lychee_tokenizer_get_n_vocab (tokenizer));
    g_assert_cmpuint (token->offset, >=, end);
    end = token->offset + token->length;
  }
  g_assert_cmpuint (end, <=, length);
  if (n_dropped == 0 && length > 0)
    g_assert_cmpuint (end, ==, length);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (LycheeEncoder) encoder = NULL;
  g_autoptr (LycheeDecoder) decoder = NULL;
  g_autoptr (GArray) whole = new_ids (), ids = NULL, tokens = new_tokens ();
  g_autoptr (GString) decoded = g_string_new (NULL);
  g_autofree gsize *cuts = NULL;
  LycheeTokenizerFlags flags;
  LycheeTokenizer *tokenizer;
  guint n_cuts = 0, step;
  const char *text;

  if (size < 2)
    return 0;
  tokenizer = tokenizers[data[0] & 3];
  flags = data[0] & 4 ? LYCHEE_TOKENIZER_SPECIAL : LYCHEE_TOKENIZER_NONE;
  step = data[1] % 13 + 1;
  text = (const char *) data + 2;
  size = MIN (size - 2, 8192);

  lychee_tokenizer_encode (tokenizer, text, size, flags, whole);
  cuts = g_new (gsize, size / step + 1);
  for (gsize at = step; at < size; at += step)
    cuts[n_cuts++] = at;
  ids = encode_cut (tokenizer, text, size, cuts, n_cuts, flags);
  assert_same_ids ("", ids, whole);

  encoder = lychee_encoder_new (tokenizer, flags);
  lychee_encoder_push (encoder, text, size, tokens);
  lychee_encoder_finish (encoder, tokens);
  check_tokens (tokenizer, tokens, size, lychee_encoder_get_n_dropped (encoder));

  decoder = lychee_decoder_new (tokenizer);
  for (guint i = 0; i < whole->len; i++)
    lychee_decoder_push (decoder, g_array_index (whole, gint32, i), decoded);
  lychee_decoder_finish (decoder, decoded);
  /* NUL is a character here. */
  for (gsize i = 0; i < decoded->len; i++)
    if (decoded->str[i] == '\0')
      decoded->str[i] = ' ';
  g_assert_true (g_utf8_validate (decoded->str, decoded->len, NULL));
  return 0;
}
