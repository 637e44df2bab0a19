/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

#define LYCHEE_TOKENIZER_ERROR (lychee_tokenizer_error_quark ())

/**
 * LycheeTokenizerError:
 * @LYCHEE_TOKENIZER_ERROR_INVALID: the vocabulary is missing, or contradicts itself
 * @LYCHEE_TOKENIZER_ERROR_UNSUPPORTED: a kind of vocabulary that this library does not read
 */
typedef enum {
  LYCHEE_TOKENIZER_ERROR_INVALID,
  LYCHEE_TOKENIZER_ERROR_UNSUPPORTED,
} LycheeTokenizerError;

LYCHEE_API GQuark lychee_tokenizer_error_quark (void);

/**
 * LycheeTokenizerFlags:
 * @LYCHEE_TOKENIZER_NONE: text is text; `<|im_end|>` in it is seven ordinary characters and more
 * @LYCHEE_TOKENIZER_SPECIAL: control and user-defined tokens written in the text become those
 * tokens
 */
typedef enum {
  LYCHEE_TOKENIZER_NONE = 0,
  LYCHEE_TOKENIZER_SPECIAL = 1 << 0,
} LycheeTokenizerFlags;

#define LYCHEE_TYPE_TOKENIZER (lychee_tokenizer_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (LycheeTokenizer, lychee_tokenizer, LYCHEE, TOKENIZER, GObject)

/* Immutable once made: every function that takes a tokenizer may be called from any thread. */

/* All of @text at once. Appends gint32 ids to @ids (GArray of gint32). */
LYCHEE_API void lychee_tokenizer_encode (LycheeTokenizer *tokenizer, const char *text,
    gssize length, LycheeTokenizerFlags flags, GArray *ids);
/* (transfer full): bytes may be invalid UTF-8 only where ids are: those are replaced by U+FFFD. */
LYCHEE_API char *lychee_tokenizer_decode (
    LycheeTokenizer *tokenizer, const gint32 *ids, gsize n_ids, LycheeTokenizerFlags flags);
LYCHEE_API guint lychee_tokenizer_get_n_vocab (LycheeTokenizer *tokenizer);
/* -1 where the vocabulary has none. */
LYCHEE_API gint32 lychee_tokenizer_get_bos (LycheeTokenizer *tokenizer);
LYCHEE_API gint32 lychee_tokenizer_get_eos (LycheeTokenizer *tokenizer);
LYCHEE_API gboolean lychee_tokenizer_get_add_bos (LycheeTokenizer *tokenizer);
/* Ends an answer: EOS, EOT, <|im_end|>, <|eot_id|>, <end_of_turn>, ... */
LYCHEE_API gboolean lychee_tokenizer_is_end (LycheeTokenizer *tokenizer, gint32 id);
LYCHEE_API gboolean lychee_tokenizer_is_control (LycheeTokenizer *tokenizer, gint32 id);
/* The id of a token by its exact vocabulary text, or -1. */
LYCHEE_API gint32 lychee_tokenizer_lookup (LycheeTokenizer *tokenizer, const char *piece);

/* Incremental encoding: pushing a text in any pieces, cut anywhere (inside a character too), and
 * finishing gives the ids of the whole text. Tokens are handed out as soon as no further text can
 * change them. Not thread safe. Offsets of the LycheeToken count bytes of all text pushed since
 * new or reset. A word (a run without a place to cut) that passes 1 MiB is cut there, so that
 * memory is bounded. */
typedef struct _LycheeEncoder LycheeEncoder;
LYCHEE_API LycheeEncoder *lychee_encoder_new (
    LycheeTokenizer *tokenizer, LycheeTokenizerFlags flags);
LYCHEE_API void lychee_encoder_free (LycheeEncoder *encoder);
LYCHEE_API void lychee_encoder_push (
    LycheeEncoder *encoder, const char *text, gsize length, GArray *tokens /* of LycheeToken */);
/* Encodes what is held back; the encoder is then as new, but offsets go on. */
LYCHEE_API void lychee_encoder_finish (LycheeEncoder *encoder, GArray *tokens);
/* Forgets what is held back; offsets start at 0. */
LYCHEE_API void lychee_encoder_reset (LycheeEncoder *encoder);
/* Bytes that were replaced by U+FFFD because they were not UTF-8, since new or reset. */
LYCHEE_API guint64 lychee_encoder_get_n_replaced (LycheeEncoder *encoder);
/* Bytes that were left out because the vocabulary has no token for them (SmolLM2 has none for some
 * ASCII control characters, and nor do its other readers), since new or reset. */
LYCHEE_API guint64 lychee_encoder_get_n_dropped (LycheeEncoder *encoder);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeEncoder, lychee_encoder_free)

/* Incremental decoding: each call appends whole UTF-8 characters only to @text; the start of one
 * is held back until its rest comes. Control tokens give no text. Not thread safe. */
typedef struct _LycheeDecoder LycheeDecoder;
LYCHEE_API LycheeDecoder *lychee_decoder_new (LycheeTokenizer *tokenizer);
LYCHEE_API void lychee_decoder_free (LycheeDecoder *decoder);
LYCHEE_API void lychee_decoder_push (LycheeDecoder *decoder, gint32 id, GString *text);
/* What never became a whole character comes out as U+FFFD. */
LYCHEE_API void lychee_decoder_finish (LycheeDecoder *decoder, GString *text);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeDecoder, lychee_decoder_free)

G_END_DECLS
