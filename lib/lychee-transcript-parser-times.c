/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Times as programs and people write them: with a comma or a point, without hours, without
 * milliseconds, with spaces, with frames. */

#define SECOND G_GUINT64_CONSTANT (1000000000)
/* Far beyond any transcript, and far from where sums overflow: 100 years. */
#define MAX_SECONDS G_GUINT64_CONSTANT (3153600000)

typedef struct {
  guint64 time;
  guint n_groups; /* numbers between colons */
  gboolean fraction;
  gboolean negative;
} Time;

static const char *
skip_spaces (const char *at)
{
  while (*at == ' ' || *at == '\t' || (guchar) *at == 0xc2) {
    if ((guchar) *at == 0xc2) { /* a no-break space */
      if ((guchar) at[1] != 0xa0)
        break;
      at++;
    }
    at++;
  }
  return at;
}

static gboolean
parse_digits (const char **text, guint64 *number)
{
  const char *at = *text;

  *number = 0;
  for (; g_ascii_isdigit (*at); at++)
    *number = MIN (*number * 10 + (*at - '0'), G_GUINT64_CONSTANT (1000000000000));
  if (at == *text)
    return FALSE;
  *text = at;
  return TRUE;
}

/* Digits behind the point as nanoseconds. */
static guint64
parse_fraction (const char **text)
{
  guint64 fraction = 0;
  guint64 digit = SECOND / 10;
  const char *at = *text;

  for (; g_ascii_isdigit (*at); at++, digit /= 10)
    fraction += digit * (*at - '0');
  *text = at;
  return fraction;
}

static gboolean
parse (const char **text, Time *time)
{
  const char *at = skip_spaces (*text);
  guint64 numbers[4];
  guint64 seconds = 0;
  guint64 fraction = 0;

  *time = (Time){ 0 };
  if (*at == '-' && g_ascii_isdigit (at[1])) {
    time->negative = TRUE;
    at++;
  }
  if (!parse_digits (&at, &numbers[0]))
    return FALSE;
  time->n_groups = 1;
  while (time->n_groups < G_N_ELEMENTS (numbers)) {
    const char *next = skip_spaces (at);

    if (*next != ':')
      break;
    next = skip_spaces (next + 1);
    if (!parse_digits (&next, &numbers[time->n_groups]))
      break;
    time->n_groups++;
    at = next;
  }
  if (*at == '.' || *at == ',') {
    const char *next = skip_spaces (at + 1);

    if (g_ascii_isdigit (*next)) {
      fraction = parse_fraction (&next);
      time->fraction = TRUE;
      at = next;
    }
  }
  if (time->n_groups == 4) {
    /* Milliseconds behind a colon; two digits are frames, of which there are about 25. */
    fraction = numbers[3] < 100 && at[-3] == ':' ? MIN (numbers[3], 24) * (SECOND / 25)
                                                 : MIN (numbers[3], 999) * (SECOND / 1000);
    time->n_groups = 3;
  }
  for (guint i = 0; i < time->n_groups; i++)
    seconds = MIN (seconds * 60 + numbers[i], MAX_SECONDS);
  time->time = time->negative ? 0 : seconds * SECOND + fraction;
  *text = at;
  return TRUE;
}

gboolean
lychee_transcript_parse_time (const char **text, guint64 *time)
{
  Time parsed;

  if (!parse (text, &parsed))
    return FALSE;
  *time = parsed.time;
  return TRUE;
}

/* The arrow between two times, and what is behind it; NULL where there is none. */
static const char *
find_arrow (const char *line, const char **behind, gboolean *proper)
{
  /* What editors and automatic correction make of it. */
  static const char *const arrows[] = { "-->", "->", "- >", "–>", "—>", "→", "--&gt;" };

  *proper = TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (arrows); i++) {
    const char *arrow = strstr (line, arrows[i]);

    if (arrow != NULL) {
      *behind = arrow + strlen (arrows[i]);
      if (i == 2)
        while (arrow > line && arrow[-1] == '-')
          arrow--;
      return arrow;
    }
    *proper = FALSE;
  }
  return NULL;
}

/* Whether a time was meant: digits and what stands between them, with a fault or two. */
static gboolean
looks_like_time (const char *text, gsize length)
{
  guint n_digits = 0;
  guint n_others = 0;
  guint n_colons = 0;

  for (gsize i = 0; i < length; i++) {
    n_digits += g_ascii_isdigit (text[i]);
    n_colons += text[i] == ':';
    n_others += strchr ("0123456789:., \t-", text[i]) == NULL;
  }
  return n_colons > 0 && n_digits >= 2 && n_others * 3 <= n_digits;
}

static gboolean
is_clock (const Time *time)
{
  return time->n_groups > 1 || time->fraction;
}

gboolean
lychee_transcript_parse_times (const char *line, guint64 *start, guint64 *end, const char **rest)
{
  const char *arrow;
  const char *behind;
  const char *left = line;
  const char *right;
  gboolean proper;
  Time first = { 0 };
  Time second = { 0 };
  gboolean has_first;
  gboolean has_second;

  if (strchr (line, '>') == NULL && strstr (line, "→") == NULL && strstr (line, "--&gt;") == NULL)
    return FALSE;
  arrow = find_arrow (line, &behind, &proper);
  if (arrow == NULL)
    return FALSE;

  has_first = parse (&left, &first);
  if (has_first && skip_spaces (left) < arrow && !is_clock (&first)) /* a number before it */
    has_first = parse (&left, &first);
  if (has_first && skip_spaces (left) < arrow)
    has_first = FALSE;
  right = behind;
  has_second = parse (&right, &second);
  if (has_second && *right != '\0' && !g_ascii_isspace (*right) && *right != '<' &&
      !(second.n_groups == 3 && second.fraction)) { /* "00:0x" */
    has_second = FALSE;
    right += strcspn (right, " \t");
  }

  if (has_first && has_second && (is_clock (&first) || is_clock (&second))) {
    *start = first.time;
    *end = second.time;
    *rest = right;
    return TRUE;
  }
  /* One of them is broken. What looks like neither is text with an arrow in it. */
  if (!proper)
    return FALSE;
  if (has_first && is_clock (&first)) {
    *start = first.time;
    *end = LYCHEE_TIME_NONE;
    *rest = right;
    return TRUE;
  }
  if (has_second && is_clock (&second) && arrow - line <= 24) {
    *start = LYCHEE_TIME_NONE;
    *end = second.time;
    *rest = right;
    return TRUE;
  }
  if (looks_like_time (line, arrow - line)) {
    *start = LYCHEE_TIME_NONE;
    *end = LYCHEE_TIME_NONE;
    *rest = strchr (behind, '\0');
    return TRUE;
  }
  return FALSE;
}
