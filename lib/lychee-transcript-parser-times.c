/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Times as programs and people write them: with a comma or a point, without hours, without
 * milliseconds, with spaces, with frames. */

#define SECOND G_GUINT64_CONSTANT (1000000000)
/* Far beyond any transcript, and far from where sums overflow: 100 years. */
#define MAX_SECONDS G_GUINT64_CONSTANT (3153600000)

/* Letters out of nowhere between two times. */
#define MAX_STRANGE 4

typedef struct {
  guint64 time;
  guint n_groups; /* numbers between colons */
  gboolean fraction;
  gboolean negative;
} Time;

/* Over what shows nothing, and what stands for bytes that could not be read. */
static const char *
skip_spaces (const char *at)
{
  for (; *at != '\0' && *at != '\n'; at = g_utf8_next_char (at)) {
    gunichar c = g_utf8_get_char (at);

    if (!g_unichar_isspace (c) && g_unichar_type (c) != G_UNICODE_FORMAT && c != 0xfffd)
      break;
  }
  return at;
}

/* Over a colon, as it is or as wide as a Chinese character. */
static const char *
skip_colon (const char *at)
{
  static const char wide[] = "\xef\xbc\x9a";

  if (*at == ':')
    return at + 1;
  return strncmp (at, wide, sizeof wide - 1) == 0 ? at + sizeof wide - 1 : NULL;
}

/* Likewise over what is before a fraction. */
static const char *
skip_point (const char *at)
{
  static const char *const wide[] = { "\xef\xbc\x8c", "\xef\xbc\x8e" };

  if (*at == '.' || *at == ',')
    return at + 1;
  for (guint i = 0; i < G_N_ELEMENTS (wide); i++)
    if (g_str_has_prefix (at, wide[i]))
      return at + strlen (wide[i]);
  return NULL;
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
    const char *next = skip_colon (skip_spaces (at));

    if (next == NULL)
      break;
    next = skip_spaces (next);
    if (!parse_digits (&next, &numbers[time->n_groups]))
      break;
    time->n_groups++;
    at = next;
  }
  if (skip_point (at) != NULL) {
    const char *next = skip_spaces (skip_point (at));

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

/* What is said behind the settings of where a cue is shown, "" where nothing is: a word or two
 * behind settings is a broken one rather than speech, as long as it could be one. */
const char *
lychee_transcript_skip_settings (const char *rest)
{
  static const char *const names[] = {
    "align:", "line:", "position:", "region:", "size:", "vertical:"
  };
  const char *at = rest + strspn (rest, " \t");
  const char *speech = at;
  gboolean known = FALSE;
  guint n_words = 0;

  while (*at != '\0') {
    gsize length = strcspn (at, " \t");
    const char *colon = memchr (at, ':', length);
    gboolean name = FALSE;

    for (guint i = 0; i < G_N_ELEMENTS (names); i++)
      name |= g_str_has_prefix (at, names[i]);
    known |= name;
    if (colon == NULL || !g_ascii_isalpha (*at) || (colon + 1 == at + length && !name))
      break;
    at += length;
    at += strspn (at, " \t");
    if (name && colon + 1 == at - 1) { /* "align: center" */
      at += strcspn (at, " \t");
      at += strspn (at, " \t");
    }
    if (known)
      speech = at;
  }
  if (*at == '\0')
    return at;
  for (; known && *at != '\0' && n_words <= 2; n_words++) {
    gsize length = strcspn (at, " \t");

    for (gsize i = 0; i < length; i++)
      if (!g_ascii_islower (at[i]) && !g_ascii_isdigit (at[i]) && strchr ("-+%:.,", at[i]) == NULL)
        return speech;
    at += length;
    at += strspn (at, " \t");
  }
  return known && *at == '\0' ? at : speech;
}

/* What is between two times. */
typedef enum {
  LINK_NONE,
  LINK_LOOSE,  /* a dash, a comma, a wide gap */
  LINK_ARROW,  /* what editors, translators and automatic correction make of an arrow */
  LINK_PROPER, /* "-->" */
} Link;

/* Moves on over all that is neither letter nor digit; and over a few letters that spoilt bytes can
 * have become, where there is a proper arrow. */
static Link
parse_link (const char **text)
{
  /* Arrows, angles and brackets that are one in writing. */
  static const gunichar arrows[] = { '>', 0x2192, 0x21d2, 0x203a, 0x27f6, 0x2794, 0x279c, 0x27a1,
    0x226b, 0x300b, 0x3009, 0xbb, 0xff1e };
  const char *at = *text;
  Link link = LINK_NONE;
  guint n_spaces = 0;
  guint n_strange = 0;

  while (*at != '\0' && *at != '\n') {
    gunichar c = g_utf8_get_char (at);

    if (g_str_has_prefix (at, "-->") || g_str_has_prefix (at, "--&gt;"))
      link = LINK_PROPER;
    if (g_str_has_prefix (at, "&gt;")) {
      link = MAX (link, LINK_ARROW);
      at += 4;
      n_spaces = 0;
      continue;
    }
    if (g_ascii_isalnum (*at) || (link > LINK_LOOSE && c == '-' && g_ascii_isdigit (at[1])))
      break;
    if (g_unichar_isalnum (c) && ++n_strange > MAX_STRANGE)
      break;
    for (guint i = 0; i < G_N_ELEMENTS (arrows); i++)
      if (c == arrows[i])
        link = MAX (link, LINK_ARROW);
    n_spaces = g_unichar_isspace (c) ? n_spaces + 1 : 0;
    if (n_spaces > 1 || c == '\t' || c == ',' || c == '~' || c == 0x2026 || c == 0xff5e ||
        g_unichar_type (c) == G_UNICODE_DASH_PUNCTUATION)
      link = MAX (link, LINK_LOOSE);
    at = g_utf8_next_char (at);
  }
  *text = at;
  return n_strange > 0 && link != LINK_PROPER ? LINK_NONE : link;
}

static gboolean
is_clock (const Time *time)
{
  return time->n_groups > 1 || time->fraction;
}

/* So exact that nobody says it. */
static gboolean
is_exact (const Time *time)
{
  return time->n_groups > 1 && time->fraction;
}

/* Whether a time was meant: digits and what stands between them, with a fault or two. */
static gboolean
looks_like_time (const char *text, gsize length)
{
  guint n_digits = 0;
  guint n_others = 0;
  guint n_colons = 0;
  guint n_letters = 0;
  gboolean after_space = TRUE; /* before the letters */

  for (const char *at = text; at < text + length; at = g_utf8_next_char (at)) {
    gunichar c = g_utf8_get_char (at);
    gboolean letter = g_unichar_isalpha (c);
    const char *next = g_utf8_next_char (at);

    if (letter && n_letters++ == 0)
      after_space = at == text || at[-1] == ' ';
    /* A word, or letters in a row. */
    if (letter && (n_letters > 2 || (after_space && (next >= text + length || *next == ' '))))
      return FALSE;
    if (!letter)
      n_letters = 0;
    n_digits += g_ascii_isdigit (*at);
    n_colons += c == ':' || c == 0xff1a;
    n_others += c >= 128 || strchr ("0123456789:., \t-", *at) == NULL;
  }
  return n_colons > 0 && n_digits >= 2 && n_others * 3 <= n_digits;
}

/* Takes what is in a time's place, @text, which could not be read. FALSE where it is speech. */
static gboolean
pass_broken_time (const char **text)
{
  const char *at = skip_spaces (*text);
  gsize length = strcspn (at, " \t");
  const char *behind = skip_spaces (at + length);

  if (*at == '\0' || looks_like_time (at, length) || *behind == '\0' ||
      *lychee_transcript_skip_settings (behind) == '\0') {
    *text = behind;
    return TRUE;
  }
  return FALSE;
}

/* A line with an arrow, one of whose times at least is broken. */
static gboolean
parse_broken (const char *line, guint64 *start, guint64 *end, const char **rest)
{
  const char *arrow = strstr (line, "-->");
  const char *left = skip_spaces (line);
  const char *right;
  const char *at;
  Time time;

  right = arrow != NULL ? arrow + 3 : NULL;
  if (arrow == NULL) {
    arrow = strstr (line, "--&gt;");
    if (arrow == NULL)
      return FALSE;
    right = arrow + 6;
  }
  *start = LYCHEE_TIME_NONE;
  *end = LYCHEE_TIME_NONE;
  *rest = right;

  at = left;
  if (parse (&at, &time) && is_clock (&time) && skip_spaces (at) == arrow) {
    *start = time.time;
    return pass_broken_time (rest);
  }
  if (left != arrow && !looks_like_time (left, arrow - left)) {
    /* Nothing but marks: who wrote it meant a cue to begin. */
    for (at = line; *at != '\0'; at = g_utf8_next_char (at))
      if (g_unichar_isalnum (g_utf8_get_char (at)))
        return FALSE;
    *rest = at;
    return TRUE;
  }
  at = right;
  if (parse (&at, &time) && is_clock (&time) && (*at == '\0' || g_ascii_isspace (*at))) {
    *end = time.time;
    *rest = at;
    return TRUE;
  }
  if (left == arrow)
    return *skip_spaces (right) == '\0';
  /* What comes then may be said. */
  pass_broken_time (rest);
  return TRUE;
}

/* Past a cue's number, which some put before the times. */
static const char *
skip_number (const char *line)
{
  const char *at = line;
  const char *next;
  guint64 number;
  Time time;

  if (!parse_digits (&at, &number))
    return line;
  if (*at == '.' || *at == ')')
    at++;
  next = skip_spaces (at);
  at = next;
  return at > line && g_ascii_isspace (at[-1]) && parse (&at, &time) && time.n_groups > 1 ? next
                                                                                          : line;
}

/* Past what is left of a time behind a fault in its fraction, as in "00:00:01.0x2"; a word that
 * nobody put a space before is none. */
static const char *
skip_remnant (const char *at)
{
  gsize length = strcspn (at, " \t");
  guint n_letters = 0;
  gboolean digits = FALSE;

  for (gsize i = 0; i < length; i++) {
    n_letters += g_ascii_isalpha (at[i]);
    digits |= g_ascii_isdigit (at[i]);
    if ((guchar) at[i] >= 128)
      return at;
  }
  return length <= 3 && n_letters <= 1 && (digits || n_letters == 0) ? at + length : at;
}

/* A line is one of times if a time begins it, behind a number at most, and then comes an arrow and
 * another: what is before an arrow in speech begins with a word. The less the arrow is one, the
 * more must the times look like no speech. A broken time is one that has digits and no words. In
 * brackets, as recognisers print them on a terminal, times need be less exact. */
gboolean
lychee_transcript_parse_times (const char *line, guint64 *start, guint64 *end, const char **rest)
{
  const char *at = skip_spaces (line);
  char close = *at == '[' ? ']' : *at == '(' ? ')' : '\0';
  Time first = { 0 };
  Time second = { 0 };
  Link link;
  gboolean both;

  if (close != '\0')
    at = skip_spaces (at + 1);
  if (!g_ascii_isdigit (*at) && !(*at == '-' && g_ascii_isdigit (at[1])))
    return parse_broken (line, start, end, rest);
  if (close == '\0')
    at = skip_number (at);
  if (!parse (&at, &first))
    return parse_broken (line, start, end, rest);
  link = parse_link (&at);
  if (link == LINK_NONE || !parse (&at, &second))
    return parse_broken (line, start, end, rest);
  if (close != '\0') {
    if (*skip_spaces (at) != close)
      return FALSE;
    at = skip_spaces (at) + 1;
  } else if (*at != '\0' && *at != '<' && !g_unichar_isspace (g_utf8_get_char (at))) {
    if (second.n_groups != 3 || !second.fraction) /* "00:0x" */
      return parse_broken (line, start, end, rest);
    at = skip_remnant (at);
  }

  if (link == LINK_PROPER)
    both = is_clock (&first) || is_clock (&second);
  else if (close == ']' && first.n_groups > 1 && second.n_groups > 1)
    both = TRUE;
  else if (link == LINK_ARROW)
    both =
        (is_exact (&first) || first.n_groups == 3) && (is_exact (&second) || second.n_groups == 3);
  else
    both = is_exact (&first) && is_exact (&second);
  if (!both)
    return parse_broken (line, start, end, rest);
  *start = first.time;
  *end = second.time;
  *rest = at;
  return TRUE;
}
