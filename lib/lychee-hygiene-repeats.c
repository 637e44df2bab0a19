/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-hygiene-private.h"

#include <string.h>

/* What captions and recognisers repeat.
 *
 * Captions that roll up show a line when it is new, and again while the next ones come: each cue
 * begins with the last lines of the one before, which it follows without a gap. Ordinary captions
 * may look so now and then, where something was said twice; so a few words count only where many
 * cues of the transcript do. Captions that slide show the last words of the cue before, wherever
 * its lines begin, and a word or a few that are new. */

/* Cues of a longer text are no captions. */
#define MAX_LENGTH 4096
/* Between cues that follow without a gap. */
#define MAX_GAP G_GUINT64_CONSTANT (200000000)
/* A cue that is shown only to be gone: what makes up YouTube's captions, between their lines. */
#define FLASH G_GUINT64_CONSTANT (60000000)
/* Words that, shown again, are a rolling caption without other evidence. */
#define MIN_CLEAR_WORDS 3
#define MIN_CLEAR_LENGTH 12
/* Likewise, where they are not whole lines, and most of what is shown. */
#define MIN_CLEAR_SLIDING 4
/* Pairs of cues at the beginning of a stream that wait for the next to be understood. */
#define MAX_DOUBTFUL 4
/* What has been on the screen stays there through a pause, where captions roll. */
#define MAX_PAUSE G_GUINT64_CONSTANT (10000000000)
/* Bytes of a line, in a script without spaces, that a longer line may go on from. */
#define MIN_GROWTH 6

typedef struct {
  char *text;
  gsize start; /* in the cue's text */
  gboolean line_start;
} Word;

struct _LycheeRolling {
  GArray *shown; /* of Word: the cue before */
  guint64 start;
  guint64 end;
  guint64 n_pairs;   /* of cues that follow each other without a gap */
  guint64 n_rolling; /* those that look like rolling captions */
  guint32 history;   /* the last ones, a bit each */
  gboolean known;    /* of the whole transcript */
  gboolean is_rolling;
  gboolean stays_put; /* the cue before had all of the one before that, at its beginning */
};

static void
clear_word (gpointer data)
{
  g_free (((Word *) data)->text);
}

static GArray *
words_new (void)
{
  GArray *words = g_array_new (FALSE, FALSE, sizeof (Word));

  g_array_set_clear_func (words, clear_word);
  return words;
}

LycheeRolling *
lychee_rolling_new (void)
{
  LycheeRolling *rolling = g_new0 (LycheeRolling, 1);

  rolling->shown = words_new ();
  return rolling;
}

void
lychee_rolling_free (LycheeRolling *rolling)
{
  g_array_unref (rolling->shown);
  g_free (rolling);
}

void
lychee_rolling_set_known (LycheeRolling *rolling, LycheeRolling *known)
{
  rolling->known = TRUE;
  rolling->is_rolling = known->n_rolling >= 3 && known->n_rolling * 10 >= known->n_pairs * 3;
}

static gboolean
is_rolling (LycheeRolling *rolling)
{
  guint n = 0;

  if (rolling->known)
    return rolling->is_rolling;
  for (guint i = 0; i < 16; i++)
    n += rolling->history >> i & 1;
  return n >= 4;
}

static GArray *
split (const char *text)
{
  GArray *words = words_new ();
  gboolean line_start = TRUE;
  const char *at = text;

  while (*at != '\0') {
    gsize length = strcspn (at, " \t\n");
    Word word = { NULL, at - text, line_start };

    if (length > 0) {
      word.text = g_strndup (at, length);
      g_array_append_val (words, word);
      line_start = FALSE;
      at += length;
    } else {
      line_start |= *at == '\n';
      at++;
    }
  }
  return words;
}

static const Word *
get_word (GArray *words, guint i)
{
  return &g_array_index (words, Word, i);
}

/* Whether @longer goes on from @shorter, where words are not parted by spaces. */
static gboolean
grows (const char *shorter, const char *longer)
{
  gsize length = strlen (shorter);

  return length >= MIN_GROWTH && strlen (longer) > length &&
         memcmp (shorter, longer, length) == 0 &&
         g_unichar_iswide (g_utf8_get_char (g_utf8_prev_char (shorter + length)));
}

/* How many words of @words, from the first, are whole lines at the end of @shown. @bytes: where
 * what is new begins in the text. */
static guint
find_overlap (GArray *shown, GArray *words, gsize *bytes)
{
  for (guint k = MIN (shown->len, words->len); k > 0; k--) {
    guint from = shown->len - k;
    guint n = 0;
    const Word *last = get_word (words, k - 1);

    if (!get_word (shown, from)->line_start)
      continue;
    while (n < k && strcmp (get_word (shown, from + n)->text, get_word (words, n)->text) == 0)
      n++;
    *bytes = last->start + strlen (last->text);
    if (n == k - 1 && grows (get_word (shown, shown->len - 1)->text, last->text)) {
      *bytes = last->start + strlen (get_word (shown, shown->len - 1)->text);
      return k;
    }
    /* It ends with a line, or goes on from all that was shown. */
    if (n == k && (k == words->len || k == shown->len || get_word (words, k)->line_start))
      return k;
  }
  return 0;
}

/* Likewise, of words that are at the end of @shown and half of @words at least, without regard to
 * lines. */
static guint
find_sliding (GArray *shown, GArray *words, gsize *bytes)
{
  for (guint k = MIN (shown->len, words->len); k > 0 && k * 2 >= words->len; k--) {
    guint from = shown->len - k;
    guint n = 0;

    while (n < k && strcmp (get_word (shown, from + n)->text, get_word (words, n)->text) == 0)
      n++;
    if (n == k) {
      *bytes = get_word (words, k - 1)->start + strlen (get_word (words, k - 1)->text);
      return k;
    }
  }
  return 0;
}

/* Whether a cue of @n words, the first @overlap of which are the last that were shown, is a new
 * line that begins with what the one before ended with. Where lines have grown word by word, or
 * stood still, they do not slide; unless most of what was shown is still there. */
static gboolean
begins_line (LycheeRolling *rolling, guint overlap, guint n)
{
  return rolling->stays_put && (overlap == n || overlap * 2 < rolling->shown->len);
}

static gsize
length_of (GArray *words, guint n)
{
  gsize length = 0;

  for (guint i = 0; i < n; i++)
    length += strlen (get_word (words, i)->text);
  return length;
}

static guint64
duration_of (guint64 start, guint64 end)
{
  return end != LYCHEE_TIME_NONE && end >= start ? end - start : 0;
}

gboolean
lychee_rolling_reduce (LycheeRolling *rolling, LycheeCue *cue, gboolean *changed, gsize *doubtful)
{
  g_autoptr (GArray) words = NULL;
  gboolean follows;
  gboolean stays;
  gboolean sliding = FALSE;
  gboolean clear;
  gboolean adds;
  gboolean flash;
  gsize bytes = 0;
  guint overlap;

  *changed = FALSE;
  if (doubtful != NULL)
    *doubtful = 0;
  if (cue->start == LYCHEE_TIME_NONE || strlen (cue->text) > MAX_LENGTH) {
    g_array_set_size (rolling->shown, 0);
    return TRUE;
  }
  words = split (cue->text);
  follows = rolling->shown->len > 0 && cue->start >= rolling->start &&
            cue->start <= rolling->end + MAX_GAP;
  stays = follows || (rolling->shown->len > 0 && cue->start >= rolling->start &&
                         cue->start <= rolling->end + MAX_PAUSE && is_rolling (rolling));
  overlap = stays ? find_overlap (rolling->shown, words, &bytes) : 0;
  if (overlap == 0 && follows) {
    overlap = find_sliding (rolling->shown, words, &bytes);
    sliding = overlap > 0;
    if (sliding && begins_line (rolling, overlap, words->len)) {
      overlap = 0;
      sliding = FALSE;
      bytes = 0;
    }
  }
  adds = bytes < strlen (cue->text) && overlap > 0;
  flash = duration_of (cue->start, cue->end) <= FLASH ||
          duration_of (rolling->start, rolling->end) <= FLASH;
  /* What begins at the same time and is longer is the same, said to the end. */
  clear =
      overlap > 0 && ((adds && cue->start == rolling->start && overlap == rolling->shown->len) ||
                         (flash && !adds));
  if (!clear && overlap > 0 && adds && !rolling->known && follows) {
    if (sliding)
      clear = overlap >= MIN_CLEAR_SLIDING && overlap * 4 >= words->len * 3;
    else
      clear = overlap >= MIN_CLEAR_WORDS || length_of (words, overlap) >= MIN_CLEAR_LENGTH;
  }
  if (follows) {
    rolling->n_pairs++;
    rolling->n_rolling += overlap > 0;
    rolling->history =
        rolling->history << 1 | (overlap > 0 && (adds || flash || overlap >= MIN_CLEAR_SLIDING));
  }
  *changed = overlap > 0 && (clear || is_rolling (rolling)) && (follows || adds);
  if (doubtful != NULL && !*changed && overlap > 0 && follows && adds && !rolling->known &&
      rolling->n_pairs <= MAX_DOUBTFUL)
    *doubtful = bytes;

  rolling->stays_put = follows && overlap > 0 && overlap == rolling->shown->len;
  g_array_unref (rolling->shown);
  rolling->shown = g_array_ref (words);
  rolling->end = MAX (follows ? rolling->end : 0,
      cue->end != LYCHEE_TIME_NONE ? MAX (cue->end, cue->start) : cue->start);
  rolling->start = cue->start;
  if (!*changed)
    return TRUE;
  while (g_ascii_isspace (cue->text[bytes]))
    bytes++;
  memmove (cue->text, cue->text + bytes, strlen (cue->text + bytes) + 1);
  return *cue->text != '\0';
}

/* Loops within a text. */

/* Words of a phrase that may be said over and over. */
#define MAX_PERIOD 24
/* Times from which on that is a loop: of a phrase, of a word or two. */
#define MAX_SAID 6
#define MAX_SHORT_SAID 12

typedef struct {
  guint start;
  guint end;
  guint hash;
} Token;

/* Words, and characters of scripts without spaces. */
static GArray *
tokenize (const char *text)
{
  GArray *tokens = g_array_new (FALSE, FALSE, sizeof (Token));
  const char *at = text;

  while (*at != '\0') {
    const char *start = at;
    Token token = { 0 };

    if (g_unichar_isspace (g_utf8_get_char (at))) {
      at = g_utf8_next_char (at);
      continue;
    }
    do {
      token.hash = token.hash * 31 + g_utf8_get_char (at);
      at = g_utf8_next_char (at);
    } while (*at != '\0' && !g_unichar_isspace (g_utf8_get_char (at)) &&
             !g_unichar_iswide (g_utf8_get_char (at)) &&
             !g_unichar_iswide (g_utf8_get_char (start)));
    token.start = start - text;
    token.end = at - text;
    g_array_append_val (tokens, token);
  }
  return tokens;
}

static gboolean
is_same (const char *text, GArray *tokens, guint a, guint b, guint n)
{
  for (guint i = 0; i < n; i++) {
    const Token *one = &g_array_index (tokens, Token, a + i);
    const Token *other = &g_array_index (tokens, Token, b + i);

    if (one->hash != other->hash || one->end - one->start != other->end - other->start ||
        memcmp (text + one->start, text + other->start, one->end - one->start) != 0)
      return FALSE;
  }
  return TRUE;
}

/* How often the phrase of @period tokens at @i is said in a row. */
static guint
count_said (const char *text, GArray *tokens, guint i, guint period)
{
  guint said = 1;

  while (i + (said + 1) * period <= tokens->len &&
         is_same (text, tokens, i, i + said * period, period))
    said++;
  return said;
}

guint
lychee_hygiene_collapse (char *text)
{
  g_autoptr (GArray) tokens = NULL;
  char *to = text;
  const char *from = text;
  guint n_removed = 0;
  guint i = 0;

  if (strlen (text) < MAX_SAID * 2)
    return 0;
  tokens = tokenize (text);
  while (i < tokens->len) {
    guint period;
    guint said = 0;
    const char *stop;

    for (period = 1; period <= MAX_PERIOD; period++) {
      said = count_said (text, tokens, i, period);
      if (said >= (period <= 2 ? MAX_SHORT_SAID : MAX_SAID))
        break;
    }
    if (period > MAX_PERIOD) {
      i++;
      continue;
    }
    /* The text up to the end of the phrase said once, and no further. */
    stop = text + g_array_index (tokens, Token, i + period - 1).end;
    memmove (to, from, stop - from);
    to += stop - from;
    i += said * period;
    from = text + g_array_index (tokens, Token, i - 1).end;
    n_removed += said - 1;
  }
  if (n_removed > 0)
    memmove (to, from, strlen (from) + 1);
  return n_removed;
}
