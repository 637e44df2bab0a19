/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* Cuts text into the words that byte-level BPE then merges within, one character at a time and
 * without ever looking back: each kind is the published regular expression of a model family,
 * written as a state machine over Unicode properties. */

/**
 * LycheePretokenizerKind:
 * @LYCHEE_PRETOKENIZER_GPT2:
 *   `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
 * @LYCHEE_PRETOKENIZER_SMOLLM: every `\p{N}` is a word; what lies between two is text of its own,
 *   cut as GPT-2 does
 * @LYCHEE_PRETOKENIZER_LLAMA3: `'s|'t|'re|'ve|'m|'ll|'d` in either case, then
 *   `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
 * @LYCHEE_PRETOKENIZER_QWEN2: as Llama 3, but `\p{N}` in place of `\p{N}{1,3}`
 * @LYCHEE_PRETOKENIZER_QWEN35: as Qwen 2, but with `[\p{L}\p{M}]` in place of `\p{L}`
 * @LYCHEE_PRETOKENIZER_SEED_CODER: as Qwen 2, but without the `[\r\n]*`
 * @LYCHEE_PRETOKENIZER_MINICPM5: every `\p{N}{1,3}` is a word; what lies between two is text of its
 *   own, cut as Llama 3 does
 * @LYCHEE_PRETOKENIZER_DEEPSEEK_CODER: every `[\r\n]` is a word; of what lies between, every
 *   `\s?\p{L}+`, then `\s?\p{P}+` of the rest, then the rest between these; in each of these what
 * is of U+0800 to U+9FA5 or U+AC00 to U+D7FF is apart from the rest, and every `\p{N}` a word
 * @LYCHEE_PRETOKENIZER_GPT4O: with U for `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, L for
 *   `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`, and C for `('s|'t|'re|'ve|'m|'ll|'d)?` in either case,
 *   `[^\r\n\p{L}\p{N}]?U*L+C|[^\r\n\p{L}\p{N}]?U+L*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|`
 *   `\s*[\r\n]+|\s+(?!\S)|\s+`
 * @LYCHEE_PRETOKENIZER_TEKKEN: as GPT-4o, but without C, and with `\p{N}` in place of `\p{N}{1,3}`
 */
typedef enum {
  LYCHEE_PRETOKENIZER_GPT2,
  LYCHEE_PRETOKENIZER_SMOLLM,
  LYCHEE_PRETOKENIZER_LLAMA3,
  LYCHEE_PRETOKENIZER_QWEN2,
  LYCHEE_PRETOKENIZER_QWEN35,
  LYCHEE_PRETOKENIZER_SEED_CODER,
  LYCHEE_PRETOKENIZER_MINICPM5,
  LYCHEE_PRETOKENIZER_DEEPSEEK_CODER,
  LYCHEE_PRETOKENIZER_GPT4O,
  LYCHEE_PRETOKENIZER_TEKKEN,
} LycheePretokenizerKind;

/* The most words that one character can complete, and that the end of the text can. */
#define LYCHEE_PRETOKENIZER_MAX_ENDS 4

/* Only @kind need be set; the rest all zero is a fresh one. Offsets count bytes from the start of
 * the first word that is not yet complete. */
typedef struct {
  LycheePretokenizerKind kind;
  guint state;
  gunichar previous; /* the last character */
  gsize length;      /* bytes pending */
  gsize last;        /* where the last character of a run of spaces starts; of GPT-4o's words, where
                        the last letter or mark without case ends, and before an apostrophe where
                        the word ends */
  gsize newline;     /* where the last newline of a run of spaces ends, 0 for none */
  guint n_digits;
  guint capital; /* whether the last character was one */
  guint eastern; /* DeepSeek-Coder: whether what is pending is of the ranges that are apart */
} LycheePretokenizer;

/* Takes one character of @n_bytes bytes. Gives the ends of the words that no further text can
 * change, ascending, as byte offsets from the start of what was pending before, and how many; what
 * lies after the last one is pending now. */
guint lychee_pretokenizer_push (
    LycheePretokenizer *self, gunichar c, guint n_bytes, gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS]);
/* The text ends: the same, and nothing is pending afterwards. */
guint lychee_pretokenizer_finish (
    LycheePretokenizer *self, gsize ends[LYCHEE_PRETOKENIZER_MAX_ENDS]);

G_END_DECLS
