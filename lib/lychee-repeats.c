/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-repeats.h"

typedef struct {
  gint32 id;
  guint same;    /* how many tokens up to this one are those that the answer ends with */
  guint n_words; /* up to this one */
} Token;

struct _LycheeRepeats {
  GArray *tokens;
};

LycheeRepeats *
lychee_repeats_new (void)
{
  LycheeRepeats *repeats = g_new (LycheeRepeats, 1);

  repeats->tokens = g_array_new (FALSE, FALSE, sizeof (Token));
  return repeats;
}

void
lychee_repeats_free (LycheeRepeats *repeats)
{
  g_array_unref (repeats->tokens);
  g_free (repeats);
}

static gboolean
has_letter (const char *said)
{
  for (; *said; said = g_utf8_next_char (said))
    if (g_unichar_isalpha (g_utf8_get_char (said)))
      return TRUE;
  return FALSE;
}

/* How many tokens at the end have LYCHEE_REPEATS_WORDS words; more than there are if all have
 * fewer. */
static guint
measure_end (const Token *tokens, guint n)
{
  guint length = 1;

  while (
      length < n && tokens[n - 1].n_words - tokens[n - 1 - length].n_words < LYCHEE_REPEATS_WORDS)
    length++;
  return length == n && tokens[n - 1].n_words < LYCHEE_REPEATS_WORDS ? n + 1 : length;
}

gboolean
lychee_repeats_note (LycheeRepeats *repeats, gint32 id, const char *said)
{
  guint last = repeats->tokens->len, length, times = 0, before = last;
  Token token = { id, 0, has_letter (said) };
  Token *tokens;
  gboolean circle = FALSE;

  if (last > 0)
    token.n_words += g_array_index (repeats->tokens, Token, last - 1).n_words;
  g_array_append_val (repeats->tokens, token);
  tokens = (Token *) repeats->tokens->data;
  length = measure_end (tokens, last + 1);

  /* From behind, for each takes up what its neighbour had at the token before. */
  for (guint i = last; i-- > 0;) {
    guint period = last - i;

    tokens[i].same = tokens[i].id != id ? 0 : i > 0 ? tokens[i - 1].same + 1 : 1;
    circle |= period <= LYCHEE_REPEATS_MAX_PERIOD &&
              tokens[i].same >= MAX (2 * period, LYCHEE_REPEATS_CIRCLE);
    /* One time does not reach into the next. */
    if (tokens[i].same >= length && before - i >= length) {
      times++;
      before = i;
    }
  }
  return circle || times >= 2;
}
