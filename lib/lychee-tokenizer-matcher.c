/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-matcher.h"
#include <string.h>

static guint64
edge_key (guint32 node, gunichar c)
{
  return (guint64) node << 32 | c;
}

static LycheeTrieNode *
get_node (const LycheeTrie *trie, guint32 node)
{
  return &g_array_index (trie->nodes, LycheeTrieNode, node);
}

void
lychee_trie_init (LycheeTrie *trie)
{
  LycheeTrieNode root = { -1, FALSE };
  lychee_map_init (&trie->edges, 0);
  trie->nodes = g_array_new (FALSE, FALSE, sizeof (LycheeTrieNode));
  g_array_append_val (trie->nodes, root);
}

void
lychee_trie_clear (LycheeTrie *trie)
{
  lychee_map_clear (&trie->edges);
  g_clear_pointer (&trie->nodes, g_array_unref);
}

gboolean
lychee_trie_is_empty (const LycheeTrie *trie)
{
  return trie->nodes->len == 1;
}

gboolean
lychee_trie_add (LycheeTrie *trie, const void *text, gsize length, gint32 id)
{
  const char *p = text, *end = p + length;
  guint32 node = 0;

  if (length == 0 || length > 4 * LYCHEE_MATCHER_MAX || !g_utf8_validate_len (p, length, NULL) ||
      g_utf8_strlen (p, length) > LYCHEE_MATCHER_MAX)
    return FALSE;
  for (; p < end; p = g_utf8_next_char (p)) {
    guint64 key = edge_key (node, g_utf8_get_char (p));
    const LycheeMapEntry *edge = lychee_map_find (&trie->edges, key);
    if (edge != NULL) {
      node = edge->a;
      continue;
    }
    LycheeTrieNode fresh = { -1, FALSE };
    get_node (trie, node)->inner = TRUE;
    node = trie->nodes->len;
    g_array_append_val (trie->nodes, fresh);
    lychee_map_add (&trie->edges, key, node, 0);
  }
  if (get_node (trie, node)->id < 0)
    get_node (trie, node)->id = id;
  return TRUE;
}

/* Gives out the best match, or where there is none the first character, and starts again with what
 * comes after it. */
static void
give_out (LycheeMatcher *matcher, LycheeMatcherFunc func, gpointer user_data)
{
  guint n = MAX (matcher->n_best, 1), n_source = 0;
  LycheeUtf8Char first = matcher->held[matcher->head];
  gint32 id = matcher->n_best > 0 ? matcher->best : -1;

  for (guint i = 0; i < n; i++)
    n_source += matcher->held[matcher->head + i].n_source;
  matcher->head += n;
  matcher->n_held -= n;
  matcher->n_walked = 0;
  matcher->node = 0;
  matcher->n_best = 0;
  func (user_data, id, n_source, &first);
}

static void
walk (LycheeMatcher *matcher, LycheeMatcherFunc func, gpointer user_data)
{
  while (matcher->n_walked < matcher->n_held) {
    gunichar c = matcher->held[matcher->head + matcher->n_walked].c;
    const LycheeMapEntry *edge =
        lychee_map_find (&matcher->trie->edges, edge_key (matcher->node, c));
    if (edge == NULL) {
      give_out (matcher, func, user_data);
      continue;
    }
    const LycheeTrieNode *node = get_node (matcher->trie, edge->a);
    matcher->node = edge->a;
    matcher->n_walked++;
    if (node->id >= 0) {
      matcher->best = node->id;
      matcher->n_best = matcher->n_walked;
    }
    if (!node->inner)
      give_out (matcher, func, user_data);
  }
}

void
lychee_matcher_push (
    LycheeMatcher *matcher, const LycheeUtf8Char *c, LycheeMatcherFunc func, gpointer user_data)
{
  if (matcher->head + matcher->n_held == G_N_ELEMENTS (matcher->held)) {
    memmove (
        matcher->held, matcher->held + matcher->head, matcher->n_held * sizeof (LycheeUtf8Char));
    matcher->head = 0;
  }
  matcher->held[matcher->head + matcher->n_held++] = *c;
  walk (matcher, func, user_data);
}

void
lychee_matcher_finish (LycheeMatcher *matcher, LycheeMatcherFunc func, gpointer user_data)
{
  while (matcher->n_held > 0) {
    give_out (matcher, func, user_data);
    walk (matcher, func, user_data);
  }
}
