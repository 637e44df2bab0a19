/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-merge.h"
#include <string.h>

/* Words of at most so many symbols are looked through for the best pair at each step. */
#define SHORT_WORD 40
/* Memory for words longer than this is given back after them. */
#define KEPT_SYMBOLS 65536
#define END_OF_WORD G_MAXUINT32
#define NO_RANK G_MAXUINT32

typedef struct {
  guint32 piece;
  guint32 start; /* byte offset in the word */
  guint32 previous;
  guint32 next; /* END_OF_WORD for none; itself once merged into the one before */
} Symbol;

/* Two neighbours that may merge. Out of date as soon as either has changed: then @right is gone or
 * no longer next, or ends elsewhere than @end. */
typedef struct {
  guint64 order; /* rank << 32 | left: the smallest is next */
  guint32 right;
  guint32 end;
} Candidate;

struct _LycheeMerger {
  LycheeMerged *merged;
  Symbol *symbols;
  Candidate *heap;
  guint32 n_room; /* of symbols and merged; the heap has twice that */
  guint32 n_heap;
};

LycheeMerger *
lychee_merger_new (void)
{
  return g_new0 (LycheeMerger, 1);
}

static void
set_room (LycheeMerger *merger, guint32 n_room)
{
  g_free (merger->merged);
  g_free (merger->symbols);
  g_free (merger->heap);
  merger->merged = n_room == 0 ? NULL : g_new (LycheeMerged, n_room);
  merger->symbols = n_room == 0 ? NULL : g_new (Symbol, n_room);
  /* One for each pair of neighbours at first; each merge takes one and adds two at most. */
  merger->heap = n_room == 0 ? NULL : g_new (Candidate, 2 * (gsize) n_room);
  merger->n_room = n_room;
}

void
lychee_merger_free (LycheeMerger *merger)
{
  if (merger == NULL)
    return;
  set_room (merger, 0);
  g_free (merger);
}

/* The first symbol of @text: one byte, or for SentencePiece one character. */
static inline guint32
first_symbol (const LycheeVocab *vocab, const guint8 *text, guint32 n_bytes, guint32 *piece)
{
  guint32 n = 1;

  if (!vocab->sentencepiece) {
    *piece = vocab->byte_pieces[*text];
    return 1;
  }
  while (n < n_bytes && lychee_utf8_is_continuation (text[n]))
    n++;
  *piece = lychee_vocab_find_piece (vocab, text, n);
  return n;
}

/* @text, @n_bytes: the two together. */
static inline gboolean
find_merge (const LycheeVocab *vocab, guint32 left, guint32 right, const guint8 *text,
    guint32 n_bytes, guint32 *rank, guint32 *piece)
{
  if (!vocab->sentencepiece)
    return lychee_vocab_find_merge (vocab, left, right, rank, piece);
  *piece = lychee_vocab_find_piece (vocab, text, n_bytes);
  if (*piece == LYCHEE_PIECE_NONE)
    return FALSE;
  *rank = vocab->ranks[*piece];
  return TRUE;
}

static guint32
run_short (LycheeMerger *merger, const LycheeVocab *vocab, const guint8 *word, guint32 n_bytes)
{
  LycheeMerged *symbols = merger->merged;
  guint32 starts[SHORT_WORD], ranks[SHORT_WORD], pieces[SHORT_WORD];
  guint32 n = 0;

  for (guint32 at = 0; at < n_bytes; at += symbols[n++].n_bytes) {
    starts[n] = at;
    symbols[n].n_bytes = first_symbol (vocab, word + at, n_bytes - at, &symbols[n].piece);
  }
  for (guint32 i = 0; i + 1 < n; i++)
    if (!find_merge (vocab, symbols[i].piece, symbols[i + 1].piece, word + starts[i],
            symbols[i].n_bytes + symbols[i + 1].n_bytes, &ranks[i], &pieces[i]))
      ranks[i] = NO_RANK;
  while (n > 1) {
    guint32 best = 0;
    for (guint32 i = 1; i + 1 < n; i++)
      if (ranks[i] < ranks[best])
        best = i;
    if (ranks[best] == NO_RANK)
      break;
    symbols[best].piece = pieces[best];
    symbols[best].n_bytes += symbols[best + 1].n_bytes;
    n--;
    for (guint32 i = best + 1; i < n; i++) {
      symbols[i] = symbols[i + 1];
      starts[i] = starts[i + 1];
    }
    for (guint32 i = best + 1; i + 1 < n; i++) {
      ranks[i] = ranks[i + 1];
      pieces[i] = pieces[i + 1];
    }
    for (guint32 i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++)
      if (!find_merge (vocab, symbols[i].piece, symbols[i + 1].piece, word + starts[i],
              symbols[i].n_bytes + symbols[i + 1].n_bytes, &ranks[i], &pieces[i]))
        ranks[i] = NO_RANK;
  }
  return n;
}

static void
sift_down (LycheeMerger *merger, guint32 at)
{
  Candidate moving = merger->heap[at];

  for (;;) {
    gsize child = 2 * (gsize) at + 1;
    if (child >= merger->n_heap)
      break;
    if (child + 1 < merger->n_heap && merger->heap[child + 1].order < merger->heap[child].order)
      child++;
    if (merger->heap[child].order >= moving.order)
      break;
    merger->heap[at] = merger->heap[child];
    at = (guint32) child;
  }
  merger->heap[at] = moving;
}

static void
push_up (LycheeMerger *merger, Candidate candidate)
{
  guint32 at = merger->n_heap++;

  while (at > 0 && merger->heap[(at - 1) / 2].order > candidate.order) {
    merger->heap[at] = merger->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  merger->heap[at] = candidate;
}

static Candidate
pop (LycheeMerger *merger)
{
  Candidate top = merger->heap[0];
  merger->heap[0] = merger->heap[--merger->n_heap];
  if (merger->n_heap > 0)
    sift_down (merger, 0);
  return top;
}

static inline guint32
symbol_end (const LycheeMerger *merger, guint32 symbol, guint32 n_bytes)
{
  guint32 next = merger->symbols[symbol].next;
  return next == END_OF_WORD ? n_bytes : merger->symbols[next].start;
}

/* Fills in @candidate for @left and the symbol after it; FALSE where they do not merge. */
static gboolean
make_candidate (LycheeMerger *merger, const LycheeVocab *vocab, const guint8 *word, guint32 n_bytes,
    guint32 left, Candidate *candidate)
{
  const Symbol *symbol = &merger->symbols[left];
  guint32 rank, piece;

  if (symbol->next == END_OF_WORD)
    return FALSE;
  candidate->right = symbol->next;
  candidate->end = symbol_end (merger, symbol->next, n_bytes);
  if (!find_merge (vocab, symbol->piece, merger->symbols[symbol->next].piece, word + symbol->start,
          candidate->end - symbol->start, &rank, &piece))
    return FALSE;
  candidate->order = (guint64) rank << 32 | left;
  return TRUE;
}

static guint32
run_long (LycheeMerger *merger, const LycheeVocab *vocab, const guint8 *word, guint32 n_bytes)
{
  Symbol *symbols = merger->symbols;
  Candidate candidate;
  guint32 n = 0, n_merged = 0;

  for (guint32 at = 0; at < n_bytes; n++) {
    symbols[n] = (Symbol){ .start = at, .previous = n - 1, .next = n + 1 };
    at += first_symbol (vocab, word + at, n_bytes - at, &symbols[n].piece);
  }
  symbols[0].previous = END_OF_WORD;
  symbols[n - 1].next = END_OF_WORD;

  merger->n_heap = 0;
  for (guint32 i = 0; i < n; i++)
    if (make_candidate (merger, vocab, word, n_bytes, i, &candidate))
      merger->heap[merger->n_heap++] = candidate;
  for (guint32 i = merger->n_heap / 2; i-- > 0;)
    sift_down (merger, i);

  while (merger->n_heap > 0) {
    Candidate best = pop (merger);
    guint32 left = (guint32) best.order, rank;
    Symbol *symbol = &symbols[left];
    if (symbol->next != best.right || symbol_end (merger, best.right, n_bytes) != best.end)
      continue;
    find_merge (vocab, symbol->piece, symbols[best.right].piece, word + symbol->start,
        best.end - symbol->start, &rank, &symbol->piece);
    symbol->next = symbols[best.right].next;
    symbols[best.right].next = best.right;
    if (symbol->next != END_OF_WORD)
      symbols[symbol->next].previous = left;
    if (symbol->previous != END_OF_WORD &&
        make_candidate (merger, vocab, word, n_bytes, symbol->previous, &candidate))
      push_up (merger, candidate);
    if (make_candidate (merger, vocab, word, n_bytes, left, &candidate))
      push_up (merger, candidate);
  }
  for (guint32 i = 0; i != END_OF_WORD; i = symbols[i].next)
    merger->merged[n_merged++] = (LycheeMerged){
      symbols[i].piece,
      symbol_end (merger, i, n_bytes) - symbols[i].start,
    };
  return n_merged;
}

const LycheeMerged *
lychee_merger_run (LycheeMerger *merger, const LycheeVocab *vocab, const guint8 *word,
    guint32 n_bytes, guint32 *n_merged)
{
  if (merger->n_room < n_bytes || (merger->n_room > KEPT_SYMBOLS && n_bytes <= KEPT_SYMBOLS))
    set_room (merger, MAX (n_bytes, 1024));
  if (n_bytes == 0)
    *n_merged = 0;
  else if (n_bytes <= SHORT_WORD)
    *n_merged = run_short (merger, vocab, word, n_bytes);
  else
    *n_merged = run_long (merger, vocab, word, n_bytes);
  return merger->merged;
}
