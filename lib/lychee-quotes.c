/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-quotes.h"

#include "lychee-answer-private.h"
#include "lychee-chunk-private.h"
#include "lychee-text-join.h"
#include "lychee-text-properties.h"

#include <string.h>
#include <unicode/ubrk.h>

/* Letters of a sentence that is quoted, seven words or so: shorter ones take the places of those
 * that say what was decided ("Third item, ticket prices."). */
#define LEAST_WIDTH 34
/* What is longer is cut where chunks begin, into pieces of at most so much. */
#define MOST_BYTES 400
#define PIECE_BYTES 200

/* The text of the chunks in one, lines joined. */
typedef struct {
  const LycheeQuotable *chunks;
  guint n_chunks;
  GString *text;
  gsize *begin;   /* [n_chunks + 1] where their texts begin in it */
  gsize *behind;  /* [n_chunks] how much of the chunk's own text is not in it: a speaker's name */
  GArray *ends;   /* of gsize, ascending: where sentences end */
  guint newlines; /* at the end of the text */
} Joined;

typedef struct {
  gsize begin, end;
  double weight;
  gboolean cut; /* not all of it */
} Sentence;

/* How much of a chunk's text stands before what was said: the name of a speaker who begins. */
static gsize
count_name (const LycheeChunk *chunk)
{
  const char *text = chunk->text, *p = text;

  while (lychee_text_is_space (g_utf8_get_char (p)) && *p)
    p = g_utf8_next_char (p);
  if (!chunk->speaker || !lychee_text_names_speaker (p, strlen (p), chunk->speaker))
    return 0;
  p += strlen (chunk->speaker);
  if (*p == ':' || g_utf8_get_char (p) == 0xFF1A)
    p = g_utf8_next_char (p);
  return p - text;
}

/* Puts the text in, lines joined; where a paragraph ends, so does a sentence. */
static void
append_text (Joined *joined, const char *text)
{
  for (const char *p = text; *p; p = g_utf8_next_char (p)) {
    gunichar c = g_utf8_get_char (p);

    if (!lychee_text_is_newline (c)) {
      if (!lychee_text_is_space (c))
        joined->newlines = 0;
      g_string_append_len (joined->text, p, g_utf8_next_char (p) - p);
      continue;
    }
    if (++joined->newlines == 2)
      g_array_append_val (joined->ends, joined->text->len);
    /* As many bytes as before: places in a chunk's text stay what they are. */
    for (const char *q = p; q < g_utf8_next_char (p); q++)
      g_string_append_c (joined->text, ' ');
  }
}

static void
join (Joined *joined, const LycheeQuotable *chunks, guint n)
{
  *joined = (Joined){ chunks, n, g_string_new (NULL), g_new (gsize, n + 1), g_new (gsize, n),
    g_array_new (FALSE, FALSE, sizeof (gsize)), 0 };
  for (guint i = 0; i < n; i++) {
    const LycheeChunk *chunk = chunks[i].chunk;
    gsize name = count_name (chunk);

    if (i > 0 && (name > 0 || g_strcmp0 (chunk->speaker, chunks[i - 1].chunk->speaker) != 0))
      g_array_append_val (joined->ends, joined->text->len);
    joined->begin[i] = joined->text->len;
    joined->behind[i] = name;
    append_text (joined, chunk->text + name);
  }
  joined->begin[n] = joined->text->len;
}

static void
joined_clear (Joined *joined)
{
  g_string_free (joined->text, TRUE);
  g_free (joined->begin);
  g_free (joined->behind);
  g_array_unref (joined->ends);
}

/* Adds where sentences end in begin .. end, which ends one. Without ICU's data: nowhere else. */
static void
split_sentences (Joined *joined, UBreakIterator *sentences, gsize begin, gsize end, GArray *ends)
{
  UErrorCode status = U_ZERO_ERROR;
  UText text = UTEXT_INITIALIZER;
  int32_t at;

  if (sentences && end > begin) {
    utext_openUTF8 (&text, joined->text->str + begin, end - begin, &status);
    ubrk_setUText (sentences, &text, &status);
    for (at = ubrk_first (sentences); U_SUCCESS (status) && at != UBRK_DONE;
         at = ubrk_next (sentences)) {
      gsize place = begin + at;

      if (at > 0 && place < end)
        g_array_append_val (ends, place);
    }
    utext_close (&text);
  }
  g_array_append_val (ends, end);
}

/* Adds the places of chunks in begin .. end, so that no part is longer than it need be. */
static void
split_long (const Joined *joined, gsize begin, gsize end, GArray *ends)
{
  gsize last = 0;
  gboolean is_long = end - begin > MOST_BYTES;

  for (guint i = 0; i < joined->n_chunks && is_long; i++) {
    gsize at = joined->begin[i + 1];

    if (at <= begin)
      continue;
    if (MIN (at, end) - begin > PIECE_BYTES && last > begin) {
      g_array_append_val (ends, last);
      begin = last;
    }
    if (at >= end)
      break;
    last = at;
  }
  g_array_append_val (ends, end);
}

static GArray *
find_ends (Joined *joined)
{
  UErrorCode status = U_ZERO_ERROR;
  UBreakIterator *sentences = ubrk_open (UBRK_SENTENCE, "", NULL, 0, &status);
  g_autoptr (GArray) all = g_array_new (FALSE, FALSE, sizeof (gsize));
  GArray *ends = g_array_new (FALSE, FALSE, sizeof (gsize));
  gsize begin = 0;

  g_array_append_val (joined->ends, joined->text->len);
  for (guint i = 0; i < joined->ends->len; i++) {
    split_sentences (joined, U_SUCCESS (status) ? sentences : NULL, begin,
        g_array_index (joined->ends, gsize, i), all);
    begin = g_array_index (joined->ends, gsize, i);
  }
  if (sentences)
    ubrk_close (sentences);
  begin = 0;
  for (guint i = 0; i < all->len; i++) {
    split_long (joined, begin, g_array_index (all, gsize, i), ends);
    begin = g_array_index (all, gsize, i);
  }
  return ends;
}

/* Without the space around it. */
static void
trim (const Joined *joined, Sentence *sentence)
{
  const char *text = joined->text->str;

  while (sentence->begin < sentence->end &&
         lychee_text_is_space (g_utf8_get_char (text + sentence->begin)))
    sentence->begin = g_utf8_next_char (text + sentence->begin) - text;
  while (sentence->end > sentence->begin) {
    const char *last = g_utf8_prev_char (text + sentence->end);

    if (!lychee_text_is_space (g_utf8_get_char (last)))
      break;
    sentence->end = last - text;
  }
}

/* Whether it is as long as so many letters; a wide character says as much as three. */
static gboolean
is_wide (const Joined *joined, const Sentence *sentence, guint least)
{
  const char *end = joined->text->str + sentence->end;
  guint width = 0;

  for (const char *p = joined->text->str + sentence->begin; p < end && width < least;
       p = g_utf8_next_char (p))
    width += g_unichar_iszerowidth (g_utf8_get_char (p)) ? 0
             : g_unichar_iswide (g_utf8_get_char (p))    ? 3
                                                         : 1;
  return width >= least;
}

/* The first chunk that has something of what is behind @at. */
static guint
find_chunk (const Joined *joined, gsize at)
{
  guint i = 0;

  while (i + 1 < joined->n_chunks && joined->begin[i + 1] <= at)
    i++;
  return i;
}

static double
weigh (const Joined *joined, const Sentence *sentence)
{
  double weight = 0;

  for (guint i = find_chunk (joined, sentence->begin);
       i < joined->n_chunks && joined->begin[i] < sentence->end; i++) {
    gsize begin = joined->begin[i], end = joined->begin[i + 1];
    gsize both = MIN (end, sentence->end) - MAX (begin, sentence->begin);

    if (end > begin && joined->chunks[i].weight > 0)
      weight += joined->chunks[i].weight * both / (end - begin);
  }
  return weight;
}

/* Whole ones first, the heaviest first; of equals the earlier. */
static int
by_weight (gconstpointer a, gconstpointer b)
{
  const Sentence *x = a, *y = b;

  if (x->cut != y->cut)
    return x->cut ? 1 : -1;
  if (x->weight != y->weight)
    return x->weight > y->weight ? -1 : 1;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int
by_place (gconstpointer a, gconstpointer b)
{
  const Sentence *x = a, *y = b;

  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* When what stands at @at was said: of the cue that it is in, where the chunk knows of it. */
static guint64
find_time (const Joined *joined, guint i, gsize at)
{
  LycheeChunk *chunk = joined->chunks[i].chunk;
  guint n_parts;
  const LycheeChunkPart *parts = lychee_chunk_get_parts (chunk, &n_parts);
  gsize byte = at - joined->begin[i] + joined->behind[i];
  guint64 time = chunk->pts;

  for (guint p = 0; p < n_parts && parts[p].byte <= byte; p++)
    time = parts[p].pts;
  return time;
}

static LycheeEvidence *
make_quote (const Joined *joined, const Sentence *sentence)
{
  guint first = find_chunk (joined, sentence->begin), last = find_chunk (joined, sentence->end - 1);
  const LycheeQuotable *from = &joined->chunks[first], *to = &joined->chunks[last];
  guint64 end = to->position + to->chunk->n_ids;
  LycheeEvidence quote = { .position = from->position,
    .n_tokens = (guint) (end - from->position),
    .start = find_time (joined, first, sentence->begin),
    .end = to->chunk->pts != LYCHEE_TIME_NONE ? lychee_chunk_get_end (to->chunk) : LYCHEE_TIME_NONE,
    .speaker = from->chunk->speaker,
    .weight = sentence->weight };
  g_autofree char *text =
      g_strndup (joined->text->str + sentence->begin, sentence->end - sentence->begin);

  quote.text = text;
  return lychee_evidence_new_quote (&quote);
}

/* The sentences of at least @width letters that have a weight. (transfer full) */
static GArray *
list_sentences (
    const Joined *joined, const GArray *ends, gboolean cut_begin, gboolean cut_end, guint width)
{
  GArray *sentences = g_array_new (FALSE, FALSE, sizeof (Sentence));
  gsize begin = 0;

  for (guint i = 0; i < ends->len; i++) {
    gsize end = g_array_index (ends, gsize, i);
    Sentence sentence = { begin, end, 0,
      (cut_begin && begin == 0) || (cut_end && end == joined->text->len) };

    begin = end;
    trim (joined, &sentence);
    if (!is_wide (joined, &sentence, width))
      continue;
    sentence.weight = weigh (joined, &sentence);
    if (sentence.weight > 0)
      g_array_append_val (sentences, sentence);
  }
  return sentences;
}

void
lychee_quotes_choose (const LycheeQuotable *chunks, guint n_chunks, gboolean cut_begin,
    gboolean cut_end, guint n, GPtrArray *quotes)
{
  g_autoptr (GArray) ends = NULL, sentences = NULL;
  Joined joined;

  join (&joined, chunks, n_chunks);
  ends = find_ends (&joined);
  sentences = list_sentences (&joined, ends, cut_begin, cut_end, LEAST_WIDTH);
  if (sentences->len == 0) {
    g_array_unref (sentences);
    sentences = list_sentences (&joined, ends, cut_begin, cut_end, 1);
  }
  g_array_sort (sentences, by_weight);
  g_array_set_size (sentences, MIN (n, sentences->len));
  g_array_sort (sentences, by_place);
  for (guint i = 0; i < sentences->len; i++)
    g_ptr_array_add (quotes, make_quote (&joined, &g_array_index (sentences, Sentence, i)));
  joined_clear (&joined);
}

char *
lychee_time_format (guint64 time)
{
  guint64 seconds = time / G_GUINT64_CONSTANT (1000000000);

  return g_strdup_printf ("%02u:%02u:%02u", (guint) (seconds / 3600), (guint) (seconds / 60 % 60),
      (guint) (seconds % 60));
}

char *
lychee_quote_to_line (const LycheeEvidence *quote)
{
  GString *line = g_string_new (NULL);

  if (quote->start != LYCHEE_TIME_NONE) {
    g_autofree char *time = lychee_time_format (quote->start);

    g_string_append_printf (line, "[%s] ", time);
  }
  if (quote->speaker && *quote->speaker && !g_str_equal (quote->speaker, ">>"))
    g_string_append_printf (line, "%s: ", quote->speaker);
  g_string_append (line, quote->text);
  g_string_append_c (line, '\n');
  return g_string_free (line, FALSE);
}
