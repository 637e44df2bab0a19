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
/* Seconds since 1970, of dates from 2001 to 2096. */
#define MIN_DATE 1e9
#define MAX_DATE 4e9
#define MAX_TURNS 32768

typedef struct {
  char *text;
  char *speaker;
  LycheeJsonTime start;
  LycheeJsonTime end;
  gboolean punctuation;
  gboolean verbatim;
  gboolean fragment;
} Word;

struct _LycheeJsonWords {
  GArray *array; /* of Word */
};

typedef struct {
  LycheeJsonTime start;
  char *speaker;
} Turn;

struct _LycheeJsonTurns {
  GArray *array; /* of Turn, in order of their times, the speaker another than before */
};

/* "PT1H2M3.5S" (ISO 8601) */
static gboolean
parse_duration (const char *text, double *seconds)
{
  static const char units[] = "DHMS";
  static const double factors[] = { 86400, 3600, 60, 1 };
  const char *at = text + 1;

  *seconds = 0;
  if (*text != 'P' || *at == '\0')
    return FALSE;
  while (*at != '\0') {
    const char *unit;
    char *end;
    double value;

    at += *at == 'T';
    value = g_ascii_strtod (at, &end);
    unit = *end != '\0' ? strchr (units, *end) : NULL;
    if (end == at || unit == NULL)
      return FALSE;
    *seconds += value * factors[unit - units];
    at = end + 1;
  }
  return TRUE;
}

static gboolean
parse_date (const char *text, double *seconds)
{
  g_autoptr (GTimeZone) utc = NULL;
  g_autoptr (GDateTime) date = NULL;

  if (strlen (text) < 16 || text[4] != '-' || text[7] != '-' || strchr ("T ", text[10]) == NULL)
    return FALSE;
  utc = g_time_zone_new_utc ();
  date = g_date_time_new_from_iso8601 (text, utc);
  if (date == NULL)
    return FALSE;
  *seconds = g_date_time_to_unix (date) + g_date_time_get_microsecond (date) / 1e6;
  return TRUE;
}

gboolean
lychee_json_time_parse (const char *text, LycheeJsonUnit unit, LycheeJsonTime *time)
{
  char *end;
  const char *at = text;
  guint64 clock;

  *time = (LycheeJsonTime){ .unit = LYCHEE_JSON_SECONDS };
  if (parse_date (text, &time->value)) {
    time->unit = LYCHEE_JSON_DATE;
  } else if (strchr (text, ':') != NULL) {
    if (!lychee_transcript_parse_time (&at, &clock))
      return FALSE;
    time->value = clock / 1e9;
  } else if (!parse_duration (text, &time->value)) {
    time->value = g_ascii_strtod (text, &end);
    if (end == text || !isfinite (time->value))
      return FALSE;
    time->unit = g_str_has_prefix (end, "ms")                   ? LYCHEE_JSON_MILLISECONDS
                 : unit != LYCHEE_JSON_UNKNOWN                  ? unit
                 : *end == 's' || strpbrk (text, ".eE") != NULL ? LYCHEE_JSON_SECONDS
                                                                : LYCHEE_JSON_UNKNOWN;
  }
  time->value = CLAMP (time->value, 0, MAX_TIME * 1e9);
  time->known = TRUE;
  return TRUE;
}

void
lychee_json_time_make_relative (LycheeJsonTime *time, LycheeJsonOrigin *origin)
{
  double seconds = time->value;

  if (time->unit == LYCHEE_JSON_MILLISECONDS ||
      (time->unit == LYCHEE_JSON_UNKNOWN && seconds >= MIN_DATE * 1000))
    seconds /= 1000;
  if (time->unit != LYCHEE_JSON_DATE && (origin->relative || time->unit == LYCHEE_JSON_TICKS ||
                                            seconds < MIN_DATE || seconds > MAX_DATE)) {
    origin->relative = TRUE;
    return;
  }
  if (!origin->known)
    origin->seconds = seconds;
  origin->known = TRUE;
  time->value = MAX (seconds - origin->seconds, 0);
  time->unit = LYCHEE_JSON_SECONDS;
}

static double
to_seconds (const LycheeJsonTime *time, gboolean milliseconds)
{
  double seconds = time->value;

  if (time->unit == LYCHEE_JSON_TICKS)
    seconds /= 1e7;
  else if (time->unit == LYCHEE_JSON_MILLISECONDS ||
           (time->unit == LYCHEE_JSON_UNKNOWN && milliseconds))
    seconds /= 1000;
  return MIN (seconds, MAX_TIME);
}

LycheeJsonTime
lychee_json_time_add (const LycheeJsonTime *start, const LycheeJsonTime *duration)
{
  LycheeJsonTime end = *start;

  if (start->unit == duration->unit || duration->unit == LYCHEE_JSON_UNKNOWN) {
    end.value += duration->value;
  } else {
    end.value = to_seconds (start, FALSE) + to_seconds (duration, FALSE);
    end.unit = LYCHEE_JSON_SECONDS;
  }
  return end;
}

static void
clear_turn (gpointer data)
{
  g_free (((Turn *) data)->speaker);
}

LycheeJsonTurns *
lychee_json_turns_new (void)
{
  LycheeJsonTurns *turns = g_new0 (LycheeJsonTurns, 1);

  turns->array = g_array_new (FALSE, FALSE, sizeof (Turn));
  g_array_set_clear_func (turns->array, clear_turn);
  return turns;
}

void
lychee_json_turns_free (LycheeJsonTurns *turns)
{
  g_array_unref (turns->array);
  g_free (turns);
}

/* The turns that begin until @time, as written. */
static guint
count_turns (LycheeJsonTurns *turns, const LycheeJsonTime *time, gboolean milliseconds)
{
  double seconds = to_seconds (time, milliseconds);
  guint from = 0;
  guint to = turns->array->len;

  while (from < to) {
    guint middle = from + (to - from) / 2;

    if (to_seconds (&g_array_index (turns->array, Turn, middle).start, milliseconds) <= seconds)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

void
lychee_json_turns_add (LycheeJsonTurns *turns, const LycheeJsonTime *start, const char *speaker)
{
  guint at = count_turns (turns, start, FALSE);
  Turn turn = { *start, NULL };

  if (turns->array->len >= MAX_TURNS ||
      (at > 0 && strcmp (g_array_index (turns->array, Turn, at - 1).speaker, speaker) == 0))
    return;
  turn.speaker = g_strdup (speaker);
  g_array_insert_val (turns->array, at, turn);
}

gboolean
lychee_json_turns_is_empty (LycheeJsonTurns *turns)
{
  return turns->array->len == 0;
}

/* (nullable): who had begun to speak last, at @seconds. */
static const char *
find_speaker (LycheeJsonTurns *turns, double seconds, gboolean milliseconds)
{
  LycheeJsonTime time = { seconds, LYCHEE_JSON_SECONDS, TRUE };
  guint n = count_turns (turns, &time, milliseconds);

  return n > 0 ? g_array_index (turns->array, Turn, n - 1).speaker : NULL;
}

void
lychee_json_turns_apply (LycheeJsonTurns *turns, GPtrArray *cues, gboolean milliseconds)
{
  for (guint i = 0; i < cues->len && !lychee_json_turns_is_empty (turns); i++) {
    LycheeCue *cue = g_ptr_array_index (cues, i);

    if (cue->speaker == NULL && cue->start != LYCHEE_TIME_NONE) {
      guint64 end = cue->end != LYCHEE_TIME_NONE && cue->end > cue->start ? cue->end : cue->start;

      cue->speaker = g_strdup (
          find_speaker (turns, (cue->start + (end - cue->start) / 2) / 1e9, milliseconds));
    }
  }
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
    word->punctuation, word->verbatim, word->fragment };

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

void
lychee_json_words_set_speakers (
    LycheeJsonWords *words, LycheeJsonTurns *turns, gboolean milliseconds)
{
  for (guint i = 0; i < words->array->len && !lychee_json_turns_is_empty (turns); i++) {
    Word *word = get_word (words, i);

    if (word->speaker == NULL && word->start.known) {
      double start = to_seconds (&word->start, milliseconds);
      double end = word->end.known ? to_seconds (&word->end, milliseconds) : start;

      word->speaker = g_strdup (find_speaker (turns, (start + MAX (start, end)) / 2, milliseconds));
    } else if (word->speaker == NULL && word->punctuation && i > 0) {
      word->speaker = g_strdup (get_word (words, i - 1)->speaker);
    }
  }
}

/* How many speak, up to two; @speaker: the first. */
static guint
count_speakers (LycheeJsonWords *words, const char **speaker)
{
  *speaker = NULL;
  for (guint i = 0; i < words->array->len; i++) {
    const char *name = get_word (words, i)->speaker;

    if (name != NULL && *speaker != NULL && strcmp (name, *speaker) != 0)
      return 2;
    if (*speaker == NULL)
      *speaker = name;
  }
  return *speaker != NULL;
}

const char *
lychee_json_words_get_speaker (LycheeJsonWords *words)
{
  const char *speaker;

  return count_speakers (words, &speaker) == 1 ? speaker : NULL;
}

static gboolean
is_letter (gunichar c)
{
  return g_unichar_isalnum (c) || g_unichar_ismark (c);
}

static gsize
count_letters (const char *text)
{
  gsize n = 0;

  for (; *text != '\0'; text = g_utf8_next_char (text))
    n += is_letter (g_utf8_get_char (text));
  return n;
}

/* Over the letters of @word in @text, and what is attached behind them; NULL where they are others.
 */
static const char *
pass_word (const char *text, const char *word)
{
  for (; *word != '\0'; word = g_utf8_next_char (word)) {
    gunichar c = g_utf8_get_char (word);

    if (!is_letter (c))
      continue;
    while (*text != '\0' && !is_letter (g_utf8_get_char (text)))
      text = g_utf8_next_char (text);
    if (*text == '\0' || g_unichar_tolower (g_utf8_get_char (text)) != g_unichar_tolower (c))
      return NULL;
    text = g_utf8_next_char (text);
  }
  for (; *text != '\0'; text = g_utf8_next_char (text)) {
    gunichar c = g_utf8_get_char (text);

    if (g_unichar_isspace (c) || is_letter (c))
      break;
  }
  return text;
}

/* Cuts @text where the words are in it, and puts the pieces in their place. FALSE where it does not
 * consist of the same letters. */
static gboolean
take_text (LycheeJsonWords *words, const char *text)
{
  g_autofree const char **ends = g_new (const char *, words->array->len);
  const char *at = text;
  guint n = 0;

  for (guint i = 0; i < words->array->len; i++) {
    at = pass_word (at, get_word (words, i)->text);
    if (at == NULL)
      return FALSE;
    ends[i] = at;
  }
  if (count_letters (at) > 0)
    return FALSE;
  for (guint i = 0; i < words->array->len; i++) {
    Word word = *get_word (words, i);

    if (ends[i] == text) { /* a mark that the word before has taken */
      if (n > 0 && word.end.known && !lychee_transcript_is_blank (word.text, strlen (word.text)))
        get_word (words, n - 1)->end = word.end;
      clear_word (&word);
      continue;
    }
    g_free (word.text);
    word.text = g_strndup (text, ends[i] - text);
    word.verbatim = TRUE;
    word.punctuation = FALSE;
    text = ends[i];
    *get_word (words, n++) = word;
  }
  g_array_set_clear_func (words->array, NULL);
  g_array_set_size (words->array, n);
  g_array_set_clear_func (words->array, clear_word);
  return n > 0;
}

gboolean
lychee_json_words_replace (LycheeJsonWords *words, const char *text, gboolean untimed)
{
  const char *speaker;
  gboolean turns = count_speakers (words, &speaker) > 1;
  gsize n_letters = 0;

  if (!turns && !(untimed && words->array->len >= MIN_SPLIT_WORDS))
    return FALSE;
  for (guint i = 1; i < words->array->len && turns; i++)
    if (get_word (words, i)->speaker == NULL)
      get_word (words, i)->speaker = g_strdup (get_word (words, i - 1)->speaker);
  if (take_text (words, text))
    return TRUE;
  for (guint i = 0; i < words->array->len; i++)
    n_letters += count_letters (get_word (words, i)->text);
  return n_letters * 10 >= count_letters (text) * 9;
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

/* Whether @word, which may be a part of one, is not of the same as the one before. */
static gboolean
begins_word (const Word *before, const Word *word)
{
  const char *end = strchr (before->text, '\0');

  return g_unichar_isspace (g_utf8_get_char (word->text)) ||
         g_unichar_iswide (g_utf8_get_char (word->text)) ||
         (end > before->text && g_unichar_isspace (g_utf8_get_char (g_utf8_prev_char (end))));
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
  if (word->fragment && !begins_word (before, word))
    return FALSE;
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
