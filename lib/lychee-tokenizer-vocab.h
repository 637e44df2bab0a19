/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-pretokenizer.h"
#include "lychee-tokenizer-map.h"
#include "lychee-tokenizer-matcher.h"
#include <gguf.h>

G_BEGIN_DECLS

/* The vocabulary of a model as its GGUF file has it, checked and made quick to look things up in.
 * Two kinds: byte-level BPE (tokenizer.ggml.model "gpt2"), whose merges are listed by rank, and
 * SentencePiece's BPE ("llama"), whose pieces have scores. */

/* Values of tokenizer.ggml.token_type. */
typedef enum {
  LYCHEE_PIECE_NORMAL = 1,
  LYCHEE_PIECE_UNKNOWN = 2,
  LYCHEE_PIECE_CONTROL = 3,
  LYCHEE_PIECE_USER_DEFINED = 4,
  LYCHEE_PIECE_UNUSED = 5,
  LYCHEE_PIECE_BYTE = 6,
} LycheePieceType;

#define LYCHEE_PIECE_NONE LYCHEE_STRINGS_NONE

typedef struct _LycheeVocab {
  gboolean sentencepiece;
  guint n_vocab;
  /* By id: the vocabulary's own spelling. From n_vocab on: pieces that only merges name. */
  LycheeStrings pieces;
  guint8 *types;   /* [n_vocab], of LycheePieceType */
  guint8 *is_end;  /* [n_vocab] */
  guint32 *ranks;  /* [n_vocab], SentencePiece only: 0 for the highest score */
  gsize max_piece; /* bytes of the longest spelling */
  /* What the tokens stand for: token i is text[text_starts[i]] up to text[text_starts[i + 1]]. */
  guint8 *text;
  gsize *text_starts;
  /* Byte-level BPE: the piece of each byte, and (left piece << 32 | right piece) to rank and
   * merged piece. */
  guint32 byte_pieces[256];
  LycheeMap merges;
  /* SentencePiece: (character << 32 | next character) of every two that are side by side in some
   * piece. Between two others no merge can ever reach. */
  LycheeMap neighbours;
  /* The token that stands for one byte, or -1. */
  gint32 byte_tokens[256];
  gint32 bos, eos, eot, unknown; /* -1 for none */
  gboolean add_bos;
  gboolean add_space_prefix;
  /* A word that is a token is taken as it is, whatever merges would make of it. */
  gboolean ignore_merges;
  LycheePretokenizerKind pretokenizer;
  LycheeTrie special;      /* control, unknown and user-defined tokens */
  LycheeTrie user_defined; /* SentencePiece: what it never takes apart */
} LycheeVocab;

/* As lychee_tokenizer_new_from_gguf (). */
LycheeVocab *lychee_vocab_new (const struct gguf_context *gguf, char **warning, GError **error);
void lychee_vocab_free (LycheeVocab *vocab);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeVocab, lychee_vocab_free)

/* What the token stands for. */
static inline const guint8 *
lychee_vocab_get_text (const LycheeVocab *vocab, gint32 id, gsize *length)
{
  *length = vocab->text_starts[id + 1] - vocab->text_starts[id];
  return vocab->text + vocab->text_starts[id];
}

static inline gboolean
lychee_vocab_is_control (const LycheeVocab *vocab, guint32 id)
{
  return vocab->types[id] == LYCHEE_PIECE_CONTROL || vocab->types[id] == LYCHEE_PIECE_UNKNOWN;
}

/* Whether plain text may become piece @id: it is a token, and not one that only a template may
 * write. */
static inline gboolean
lychee_vocab_is_text (const LycheeVocab *vocab, guint32 id)
{
  return id < vocab->n_vocab && !lychee_vocab_is_control (vocab, id);
}

/* Byte-level BPE: the rank and the result of merging two neighbours. */
static inline gboolean
lychee_vocab_find_merge (
    const LycheeVocab *vocab, guint32 left, guint32 right, guint32 *rank, guint32 *merged)
{
  const LycheeMapEntry *entry = lychee_map_find (&vocab->merges, (guint64) left << 32 | right);
  if (entry == NULL)
    return FALSE;
  *rank = entry->a;
  *merged = entry->b;
  return TRUE;
}

/* SentencePiece: the piece spelt @text that text may be merged into, or LYCHEE_PIECE_NONE. */
guint32 lychee_vocab_find_piece (const LycheeVocab *vocab, const guint8 *text, gsize length);

/* Byte-level BPE's spelling of a byte (1 or 2 bytes of UTF-8); gives the length. */
guint lychee_vocab_spell_byte (guint8 byte, char spelling[2]);

G_END_DECLS
