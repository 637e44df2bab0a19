/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json-words.h"

#include "lychee-transcript-parser-private.h"

#include <math.h>
#include <string.h>

/* A cue that is made of words: until a sentence ends, the speaker changes, or for so long. */
#define MAX_CUE_WORDS 48
#define MAX_UNTIMED_WORDS 1024
#define MAX_CUE_TIME 12.0
#define MAX_PAUSE 1.0
/* A text of fewer words than these stays whole; a longer one is cut into sentences by the times of
 * its words. */
#define MIN_SPLIT_WORDS 64
#define MAX_TIME 1e9

typedef struct {
  char *text;
  char *speaker;
  LycheeJsonTime start;
  LycheeJsonTime end;
  gboolean punctuation;
  gboolean verbatim;
} Word;

struct _LycheeJsonWords {
  GArray *array; /* of Word */
};

gboolean
lychee_json_time_parse (const char *text, gboolean milliseconds, LycheeJsonTime *time)
{
  char *end;
  const char *at = text;
  guint64 clock;

  *time = (LycheeJsonTime){ 0 };
  if (strchr (text, ':') != NULL) {
    if (!lychee_transcript_parse_time (&at, &clock))
      return FALSE;
    time->value = clock / 1e9;
    time->unit = LYCHEE_JSON_SECONDS;
  } else {
    time->value = g_ascii_strtod (text, &end);
    if (end == text || !isfinite (time->value))
      return FALSE;
    time->unit = milliseconds || g_str_has_prefix (end, "ms")   ? LYCHEE_JSON_MILLISECONDS
                 : *end == 's' || strpbrk (text, ".eE") != NULL ? LYCHEE_JSON_SECONDS
                                                                : LYCHEE_JSON_UNKNOWN;
  }
  time->value = CLAMP (time->value, 0, MAX_TIME * 1000);
  time->known = TRUE;
  return TRUE;
}

static double
to_seconds (const LycheeJsonTime *time, gboolean milliseconds)
{
  gboolean thousandth =
      time->unit == LYCHEE_JSON_MILLISECONDS || (time->unit == LYCHEE_JSON_UNKNOWN && milliseconds);

  return MIN (thousandth ? time->value / 1000 : time->value, MAX_TIME);
}

/* Whole numbers are milliseconds if, as seconds, a text would be said for far too long. */
static void
look_at_unit (const LycheeJsonTime *start, const LycheeJsonTime *end, const char *text,
    gboolean *milliseconds)
{
  double duration = end->value - start->value;

  if (start->known && end->known && start->unit == LYCHEE_JSON_UNKNOWN &&
      end->unit == LYCHEE_JSON_UNKNOWN && duration >= 60 &&
      duration > 15.0 * g_utf8_strlen (text, -1))
    *milliseconds = TRUE;
}

LycheeCue *
lychee_json_cue_new (const char *text, const char *speaker, const LycheeJsonTime *start,
    const LycheeJsonTime *end, gboolean *milliseconds)
{
  LycheeCue *cue;

  look_at_unit (start, end, text, milliseconds);
  while (g_ascii_isspace (*text))
    text++;
  cue = lychee_cue_new (text, -1, speaker, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE);
  g_strchomp (cue->text);
  if (start->known)
    cue->start = (guint64) (to_seconds (start, *milliseconds) * 1e9 + 0.5);
  if (end->known)
    cue->end = (guint64) (to_seconds (end, *milliseconds) * 1e9 + 0.5);
  return cue;
}

static void
clear_word (gpointer data)
{
  Word *word = data;

  g_free (word->text);
  g_free (word->speaker);
}

LycheeJsonWords *
lychee_json_words_new (void)
{
  LycheeJsonWords *words = g_new0 (LycheeJsonWords, 1);

  words->array = g_array_new (FALSE, FALSE, sizeof (Word));
  g_array_set_clear_func (words->array, clear_word);
  return words;
}

void
lychee_json_words_free (LycheeJsonWords *words)
{
  g_array_unref (words->array);
  g_free (words);
}

static Word *
get_word (LycheeJsonWords *words, guint i)
{
  return &g_array_index (words->array, Word, i);
}

guint
lychee_json_words_get_n (LycheeJsonWords *words)
{
  return words->array->len;
}

void
lychee_json_words_add (LycheeJsonWords *words, const LycheeJsonWord *word)
{
  Word copy = { g_strdup (word->text), g_strdup (word->speaker), word->start, word->end,
    word->punctuation, word->verbatim };

  g_array_append_val (words->array, copy);
}

void
lychee_json_words_append (LycheeJsonWords *words, LycheeJsonWords *more)
{
  g_array_append_vals (words->array, more->array->data, more->array->len);
  g_array_set_clear_func (more->array, NULL);
  g_array_set_size (more->array, 0);
  g_array_set_clear_func (more->array, clear_word);
}

void
lychee_json_words_inherit (LycheeJsonWords *words, const char *speaker)
{
  for (guint i = 0; i < words->array->len && speaker != NULL; i++)
    if (get_word (words, i)->speaker == NULL)
      get_word (words, i)->speaker = g_strdup (speaker);
}

void
lychee_json_words_get_span (LycheeJsonWords *words, LycheeJsonTime *start, LycheeJsonTime *end)
{
  for (guint i = 0; i < words->array->len && !start->known; i++)
    *start = get_word (words, i)->start;
  for (guint i = words->array->len; i > 0 && !end->known; i--)
    *end = get_word (words, i - 1)->end;
}

void
lychee_json_words_set_span (
    LycheeJsonWords *words, const LycheeJsonTime *start, const LycheeJsonTime *end)
{
  for (guint i = 0; i < words->array->len; i++)
    if (get_word (words, i)->start.known)
      return;
  if (words->array->len > 0) {
    get_word (words, 0)->start = *start;
    get_word (words, words->array->len - 1)->end = *end;
  }
}

/* Letters and digits alone, in lower case. */
static char *
normalise (const char *text)
{
  GString *plain = g_string_new (NULL);

  for (; *text != '\0'; text = g_utf8_next_char (text)) {
    gunichar c = g_utf8_get_char (text);

    if (g_unichar_isalnum (c) || g_unichar_ismark (c))
      g_string_append_unichar (plain, g_unichar_tolower (c));
  }
  return g_string_free (plain, FALSE);
}

gboolean
lychee_json_words_give_times (LycheeJsonWords *words, const char *text, const char *speaker)
{
  g_auto (GStrv) tokens = NULL;
  guint n = words->array->len;
  guint at = 0;

  if (n < MIN_SPLIT_WORDS)
    return FALSE;
  tokens = g_regex_split_simple ("\\s+", text, 0, 0);
  for (guint pass = 0; pass < 2; pass++) {
    at = 0;
    for (guint i = 0; tokens[i] != NULL; i++) {
      g_autofree char *token = normalise (tokens[i]);
      g_autofree char *word = NULL;

      if (*token == '\0')
        continue;
      word = at < n ? normalise (get_word (words, at)->text) : NULL;
      if (g_strcmp0 (word, token) != 0)
        return TRUE; /* not the same words: those that have times */
      if (pass == 1) {
        g_free (get_word (words, at)->text);
        get_word (words, at)->text = g_strdup (tokens[i]);
        get_word (words, at)->verbatim = FALSE;
      }
      at++;
    }
    if (at != n)
      return TRUE;
  }
  return TRUE;
}

/* Whether a space belongs between two words: not in scripts that are written without. */
static gboolean
needs_space (const GString *text, const Word *word)
{
  gunichar before;
  gunichar after;

  if (text->len == 0 || word->punctuation || word->verbatim)
    return FALSE;
  before = g_utf8_get_char (g_utf8_prev_char (text->str + text->len));
  after = g_utf8_get_char (word->text);
  if (g_unichar_isspace (before) || g_unichar_isspace (after))
    return FALSE;
  return !(g_unichar_iswide (before) && g_unichar_get_script (before) != G_UNICODE_SCRIPT_HANGUL) ||
         !(g_unichar_iswide (after) && g_unichar_get_script (after) != G_UNICODE_SCRIPT_HANGUL);
}

static gboolean
ends_sentence (const char *text)
{
  const char *at = strchr (text, '\0');

  while (at > text) {
    gunichar c;

    at = g_utf8_prev_char (at);
    c = g_utf8_get_char (at);
    if (strchr ("\"')]} \n", (char) MIN (c, 127)) != NULL || c == 0x201d || c == 0x2019 ||
        c == 0x300d)
      continue;
    return c == '.' || c == '?' || c == '!' || c == 0x3002 || c == 0xff1f || c == 0xff01 ||
           c == 0x2026 || c == 0x0964 || c == 0x061f;
  }
  return FALSE;
}

static const char *
speaker_of (const Word *word, const char *speaker)
{
  return word->speaker != NULL ? word->speaker : speaker;
}

/* Whether a cue ends before word @i, if it begins with word @first. */
static gboolean
ends_before (LycheeJsonWords *words, guint first, guint i, const char *speaker, gboolean ms)
{
  const Word *begin = get_word (words, first);
  const Word *before = get_word (words, i - 1);
  const Word *word = get_word (words, i);

  if (word->punctuation)
    return FALSE;
  if (i - first >= MAX_UNTIMED_WORDS)
    return TRUE;
  if (g_strcmp0 (speaker_of (before, speaker), speaker_of (word, speaker)) != 0)
    return TRUE;
  if (!word->start.known)
    return FALSE;
  if (ends_sentence (before->text) || i - first >= MAX_CUE_WORDS)
    return TRUE;
  return (before->end.known &&
             to_seconds (&word->start, ms) - to_seconds (&before->end, ms) > MAX_PAUSE) ||
         (begin->start.known &&
             to_seconds (&word->start, ms) - to_seconds (&begin->start, ms) > MAX_CUE_TIME);
}

static LycheeCue *
join (LycheeJsonWords *words, guint first, guint end, const char *speaker, gboolean *milliseconds)
{
  g_autoptr (GString) text = g_string_new (NULL);
  LycheeJsonTime from = { 0 };
  LycheeJsonTime to = { 0 };

  for (guint i = first; i < end; i++) {
    const Word *word = get_word (words, i);

    if (needs_space (text, word))
      g_string_append_c (text, ' ');
    g_string_append (text, word->text);
    if (!from.known)
      from = word->start;
    if (word->end.known)
      to = word->end;
  }
  return lychee_json_cue_new (
      text->str, speaker_of (get_word (words, first), speaker), &from, &to, milliseconds);
}

void
lychee_json_words_group (LycheeJsonWords *words, const char *speaker, gboolean *milliseconds,
    gboolean all, GPtrArray *cues)
{
  guint first = 0;
  guint n = words->array->len;

  for (guint i = 0; i < n; i++)
    look_at_unit (&get_word (words, i)->start, &get_word (words, i)->end, get_word (words, i)->text,
        milliseconds);
  for (guint i = 1; i < n; i++)
    if (ends_before (words, first, i, speaker, *milliseconds)) {
      g_ptr_array_add (cues, join (words, first, i, speaker, milliseconds));
      first = i;
    }
  if (all && first < n) {
    g_ptr_array_add (cues, join (words, first, n, speaker, milliseconds));
    first = n;
  }
  g_array_remove_range (words->array, 0, first);
}
