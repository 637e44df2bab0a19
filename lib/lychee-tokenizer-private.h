/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-tokenizer.h"
#include <gguf.h>

G_BEGIN_DECLS

/* Makes a tokenizer from the `tokenizer.ggml.*` keys; copies what it needs, so that @gguf may be
 * freed afterwards. Every key's type and every array's length are checked before use. Errors of
 * LYCHEE_TOKENIZER_ERROR name the key. @warning (out) (optional) (nullable) (transfer full): set
 * where something had to be assumed (an unknown or missing tokenizer.ggml.pre), naming it. */
LycheeTokenizer *lychee_tokenizer_new_from_gguf (
    const struct gguf_context *gguf, char **warning, GError **error);

/* What encoder and decoder read; lives as long as @tokenizer. */
const struct _LycheeVocab *lychee_tokenizer_get_vocab (LycheeTokenizer *tokenizer);
/* With LYCHEE_TOKENIZER_SPECIAL control tokens give their spelling. */
LycheeDecoder *lychee_decoder_new_with_flags (
    LycheeTokenizer *tokenizer, LycheeTokenizerFlags flags);

G_END_DECLS
