/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-tokenizer-map.h"
#include "lychee-tokenizer-utf8.h"

G_BEGIN_DECLS

/* Finds tokens that are written out in a text (control tokens, where a chat template's text is
 * read): leftmost first, of several at one place the longest. Works character by character; holds
 * back only what may be the start of such a token. */

/* Characters of the longest token that is looked for. It bounds what is held back and the time per
 * character; real ones have under 50. */
#define LYCHEE_MATCHER_MAX 128

typedef struct {
  LycheeMap edges; /* node << 32 | character: the node it leads to */
  GArray *nodes;   /* of LycheeTrieNode; 0 is the root */
} LycheeTrie;

typedef struct {
  gint32 id; /* the token that ends here, or -1 */
  gboolean inner;
} LycheeTrieNode;

void lychee_trie_init (LycheeTrie *trie);
void lychee_trie_clear (LycheeTrie *trie);
gboolean lychee_trie_is_empty (const LycheeTrie *trie);
/* A text that is empty, too long or not UTF-8 is never found; then FALSE. Of two equal texts the
 * first one counts. */
gboolean lychee_trie_add (LycheeTrie *trie, const void *text, gsize length, gint32 id);

/* A match (@id, @n_source bytes of input), or with @id -1 one character that is none. */
typedef void (*LycheeMatcherFunc) (
    gpointer user_data, gint32 id, guint n_source, const LycheeUtf8Char *c);

/* All zero but @trie is a fresh one. */
typedef struct {
  const LycheeTrie *trie;
  LycheeUtf8Char held[2 * LYCHEE_MATCHER_MAX];
  guint head;
  guint n_held;
  guint n_walked; /* of those held, how many lead from the root to @node */
  guint32 node;
  guint n_best; /* the longest token so far, 0 for none */
  gint32 best;
} LycheeMatcher;

void lychee_matcher_push (
    LycheeMatcher *matcher, const LycheeUtf8Char *c, LycheeMatcherFunc func, gpointer user_data);
/* The text ends: gives out what is held back. */
void lychee_matcher_finish (LycheeMatcher *matcher, LycheeMatcherFunc func, gpointer user_data);

G_END_DECLS
