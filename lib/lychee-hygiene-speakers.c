/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-hygiene-private.h"

#include <string.h>

/* Who speaks, as the text says it: "Ann Lee: Good morning", ">> Good morning", ">> ANN: Good
 * morning", "[SPEAKER_01] Good morning".
 *
 * "[Ann] Good morning" where most lines begin so.
 *
 * A colon is no proof: "Note: this", "10:30", "https://…", "He said: go". A label looks like a
 * name; and it comes again, or others do. */

#define MAX_NAME_WORDS 5
#define MAX_NAME_LENGTH 60 /* characters */
#define MAX_NAMES 4096
/* Lines that must have been seen before their share of labels means something. */
#define MIN_LINES 3

/* What stands before colons and is nobody, in lower case. */
static const char *const not_names[] = {
  "note",
  "notes",
  "nb",
  "n.b",
  "ps",
  "p.s",
  "warning",
  "caution",
  "attention",
  "example",
  "examples",
  "for example",
  "e.g",
  "i.e",
  "remember",
  "reminder",
  "summary",
  "agenda",
  "topic",
  "topics",
  "date",
  "time",
  "place",
  "location",
  "subject",
  "re",
  "fwd",
  "from",
  "to",
  "cc",
  "title",
  "chapter",
  "part",
  "section",
  "step",
  "tip",
  "tips",
  "hint",
  "important",
  "update",
  "edit",
  "source",
  "sources",
  "translation",
  "subtitle",
  "subtitles",
  "caption",
  "captions",
  "transcript",
  "transcribed by",
  "transcription",
  "language",
  "kind",
  "duration",
  "attendees",
  "present",
  "participants",
  "absent",
  "apologies",
  "action item",
  "action items",
  "action",
  "actions",
  "decision",
  "decisions",
  "todo",
  "to do",
  "conclusion",
  "introduction",
  "background",
  "url",
  "link",
  "links",
  "http",
  "https",
  "www",
  "email",
  "e-mail",
  "phone",
  "tel",
  "fax",
  "address",
  "price",
  "total",
  "result",
  "results",
  "reason",
  "fact",
  "problem",
  "solution",
  "idea",
  "bottom line",
  "first",
  "second",
  "third",
  "finally",
  "also",
  "and",
  "but",
  "so",
  "or",
  "well",
  "yes",
  "no",
  "ok",
  "okay",
  "look",
  "listen",
  "however",
  "again",
  "today",
  "tomorrow",
  "yesterday",
  "monday",
  "tuesday",
  "wednesday",
  "thursday",
  "friday",
  "saturday",
  "sunday",
  "pros",
  "cons",
  "music",
  "applause",
  "laughter",
  "laughs",
  "laughing",
  "cheering",
  "cheers",
  "inaudible",
  "unintelligible",
  "indistinct",
  "crosstalk",
  "silence",
  "pause",
  "noise",
  "background noise",
  "foreign",
  "sighs",
  "coughs",
  "musik",
  "applaus",
  "gelächter",
  "lachen",
  "musique",
  "rires",
  "applaudissements",
  "música",
  "risas",
  "aplausos",
  "risate",
  "musica",
  "applausi",
  "音乐",
  "音楽",
  "掌声",
  "拍手",
  "笑",
  "笑声",
  "музыка",
  "смех",
  "аплодисменты",
  "hinweis",
  "achtung",
  "anmerkung",
  "beispiel",
  "thema",
  "datum",
  "nota",
  "ejemplo",
  "fecha",
  "tema",
  "attention",
  "exemple",
  "remarque",
  "sujet",
  "注意",
  "注",
  "备注",
  "例如",
  "例",
  "时间",
  "日期",
  "地点",
  "主题",
  "議題",
  "日時",
  "場所",
  "примечание",
  "внимание",
  "например",
  "тема",
  "дата",
};

/* What may be small within a name. */
static const char *const particles[] = { "de", "da", "di", "del", "della", "van", "von", "der",
  "den", "du", "la", "le", "el", "al", "bin", "ibn", "ben", "of", "the", "and", "y", "e", "af",
  "av", "zu", "dos", "das" };

static const char *const roles[] = { "speaker", "spk", "spkr", "person", "participant", "voice",
  "interviewer", "interviewee", "moderator", "host", "guest", "narrator", "sprecher", "sprecherin",
  "locutor", "hablante", "intervenant", "говорящий", "спикер", "s" };

static gboolean
is_one_of (const char *word, const char *const *list, guint n)
{
  for (guint i = 0; i < n; i++)
    if (strcmp (word, list[i]) == 0)
      return TRUE;
  return FALSE;
}

/* "Speaker 1", "SPEAKER_01", "S2", "Host"; @lower: in lower case. */
static gboolean
is_role (const char *lower)
{
  gsize length = strlen (lower);
  gsize digits = 0;
  g_autofree char *role = NULL;

  while (digits < length && g_ascii_isdigit (lower[length - 1 - digits]))
    digits++;
  length -= digits;
  while (length > 0 && strchr (" _-#", lower[length - 1]) != NULL)
    length--;
  role = g_strndup (lower, length);
  if (strcmp (role, "s") == 0)
    return digits > 0;
  return is_one_of (role, roles, G_N_ELEMENTS (roles));
}

static gboolean
may_be_in_name (gunichar c)
{
  return g_unichar_isalnum (c) || g_unichar_ismark (c) || c == ' ' || c == 0xa0 ||
         (c > 0 && c < 128 && strchr (".-'_&,()#/", (char) c) != NULL) || c == 0x2019 ||
         c == 0xb7 || c == 0x30fb;
}

/* How much a word looks like part of a name. */
static gboolean
judge_word (const char *word, gboolean first, guint *n_upper, guint *n_lower, guint *n_caseless)
{
  g_autofree char *lower = NULL;
  const char *at = word;
  gunichar c;

  while (*at == '(' || *at == '\'' || *at == '#')
    at++;
  c = g_utf8_get_char (at);
  if (*at == '\0')
    return TRUE;
  if (g_unichar_islower (c)) {
    lower = g_utf8_strdown (at, -1);
    if (first || !is_one_of (lower, particles, G_N_ELEMENTS (particles)))
      return FALSE;
    return TRUE;
  }
  for (; *at != '\0'; at = g_utf8_next_char (at)) {
    c = g_utf8_get_char (at);
    if (g_unichar_isupper (c) || g_unichar_istitle (c))
      (*n_upper)++;
    else if (g_unichar_islower (c))
      (*n_lower)++;
    else if (g_unichar_isalpha (c))
      (*n_caseless)++;
  }
  return TRUE;
}

/* Whether @name, what is before a colon, can be one, and how clearly. */
static gboolean
judge_name (const char *name, LycheeLabelStrength *strength)
{
  g_autofree char *lower = g_utf8_strdown (name, -1);
  g_auto (GStrv) words = NULL;
  guint n_upper = 0;
  guint n_lower = 0;
  guint n_caseless = 0;
  guint n_words = 0;

  if (*name == '\0' || g_utf8_strlen (name, -1) > MAX_NAME_LENGTH)
    return FALSE;
  for (const char *at = name; *at != '\0'; at = g_utf8_next_char (at))
    if (!may_be_in_name (g_utf8_get_char (at)))
      return FALSE;
  if (is_one_of (lower, not_names, G_N_ELEMENTS (not_names)))
    return FALSE;
  if (is_role (lower)) {
    *strength = LYCHEE_LABEL_STRONG;
    return TRUE;
  }
  words = g_strsplit (name, " ", -1);
  for (guint i = 0; words[i] != NULL; i++) {
    if (*words[i] == '\0')
      continue;
    if (!judge_word (words[i], n_words == 0, &n_upper, &n_lower, &n_caseless))
      return FALSE;
    n_words++;
  }
  if (n_words > MAX_NAME_WORDS || n_upper + n_caseless == 0)
    return FALSE;
  if (n_caseless > 0 && n_upper == 0) {
    *strength = LYCHEE_LABEL_WEAK;
    return g_utf8_strlen (name, -1) <= 20;
  }
  *strength = n_lower == 0 && n_upper >= 2 ? LYCHEE_LABEL_STRONG : LYCHEE_LABEL_NORMAL;
  return TRUE;
}

static const char *
skip_spaces (const char *at)
{
  while (*at == ' ' || *at == '\t')
    at++;
  return at;
}

/* "[SPEAKER_01]", "[Ann Lee]:", "(ANN):", perhaps "[Ann Lee] " */
static gboolean
read_bracketed (const char **text, LycheeLabel *label)
{
  const char *at = *text;
  const char *close;
  const char *behind;
  g_autofree char *name = NULL;
  g_autofree char *lower = NULL;

  if (*at != '[' && *at != '(')
    return FALSE;
  close = at + strcspn (at, "])\n");
  if (*close != (*at == '[' ? ']' : ')') || close - at > 4 * MAX_NAME_LENGTH)
    return FALSE;
  name = g_strstrip (g_strndup (at + 1, close - at - 1));
  lower = g_utf8_strdown (name, -1);
  behind = close + 1;
  if (*behind == ':' ||
      (*at == '[' && is_role (lower) && g_ascii_isdigit (lower[strlen (lower) - 1]))) {
    if (!judge_name (name, &label->strength))
      return FALSE;
    behind += *behind == ':';
    label->strength = LYCHEE_LABEL_STRONG;
  } else {
    /* "[Music]", which is said by nobody, is often alone. */
    if (*at != '[' || (*behind != ' ' && *behind != '\t') ||
        strchr ("\n[", *skip_spaces (behind)) != NULL || !judge_name (name, &label->strength))
      return FALSE;
    label->strength = LYCHEE_LABEL_BRACKET;
  }
  label->name = g_steal_pointer (&name);
  *text = skip_spaces (behind);
  return TRUE;
}

/* "Ann Lee: ", "**Ann:** ", "田中：" */
static gboolean
read_name (const char **text, LycheeLabel *label)
{
  const char *at = *text;
  const char *start;
  const char *stop;
  const char *behind;
  gboolean wide = FALSE;
  g_autofree char *name = NULL;
  guint n = 0;

  while (*at == '*')
    at++;
  start = at;
  for (; n <= MAX_NAME_LENGTH; n++, at = g_utf8_next_char (at)) {
    gunichar c = g_utf8_get_char (at);

    if (c == ':' || c == 0xff1a) {
      wide = c == 0xff1a;
      break;
    }
    if (c == '*' && at[1] == '*' && at[2] == ':')
      break;
    if (!may_be_in_name (c))
      return FALSE;
  }
  if (n == 0 || n > MAX_NAME_LENGTH)
    return FALSE;
  stop = at;
  while (*at == '*')
    at++;
  behind = g_utf8_next_char (at);
  while (start > *text && *behind == '*') /* only if there were some before */
    behind++;
  if (!wide && *behind != '\0' && !g_ascii_isspace (*behind))
    return FALSE;
  name = g_strstrip (g_strndup (start, stop - start));
  if (!judge_name (name, &label->strength))
    return FALSE;
  label->name = g_steal_pointer (&name);
  *text = skip_spaces (behind);
  return TRUE;
}

/* "Q. Where were you?", as courts' reporters write. */
static gboolean
read_letter (const char **text, LycheeLabel *label)
{
  const char *at = *text;

  if ((*at != 'Q' && *at != 'A') || at[1] != '.' || (at[2] != ' ' && at[2] != '\t'))
    return FALSE;
  label->strength = LYCHEE_LABEL_LETTER;
  label->name = g_strndup (at, 1);
  *text = skip_spaces (at + 2);
  return TRUE;
}

/* ">>", ">>>"; not what is before it, if that is part of it. */
static gboolean
read_turn (const char **text, gboolean at_line_start)
{
  const char *at = *text;

  while (*at == '>')
    at++;
  if (at - *text < 2 || at - *text > 4)
    return FALSE;
  if (!at_line_start && *at != ' ')
    return FALSE;
  *text = skip_spaces (at);
  return TRUE;
}

static void
clear_label (gpointer data)
{
  g_free (((LycheeLabel *) data)->name);
}

/* The labels in @text, in order; @at_line_start: a line begins with it. Free with g_array_unref. */
GArray *
lychee_hygiene_find_labels (const char *text, gboolean at_line_start)
{
  GArray *labels = g_array_new (FALSE, FALSE, sizeof (LycheeLabel));
  const char *at = text;

  g_array_set_clear_func (labels, clear_label);
  while (*at != '\0') {
    const char *start = at;
    LycheeLabel label = { .strength = LYCHEE_LABEL_STRONG };
    gboolean found = FALSE;

    if (at_line_start) {
      start = at = skip_spaces (at);
      /* The dash of a dialogue. */
      if (*at == '-' && (at[1] == ' ' || at[1] == '>'))
        at = skip_spaces (at + 1);
    }
    if (*at == '>' && read_turn (&at, at_line_start)) {
      const char *behind = at;

      found = TRUE;
      /* What looks like a name behind the mark of a turn is one, but for brackets alone. */
      if (read_bracketed (&at, &label) && label.strength == LYCHEE_LABEL_BRACKET) {
        g_clear_pointer (&label.name, g_free);
        at = behind;
      } else if (label.name == NULL) {
        read_name (&at, &label);
      }
      label.strength = LYCHEE_LABEL_STRONG;
    } else if (at_line_start) {
      found = read_bracketed (&at, &label) || read_letter (&at, &label) || read_name (&at, &label);
    }
    if (found) {
      label.start = start - text;
      label.end = at - text;
      g_array_append_val (labels, label);
      if (*at == '\0')
        break;
    }
    /* On to the next line, or the next mark behind a space. */
    while (*at != '\0' && *at != '\n' && !(at[0] == ' ' && at[1] == '>' && at[2] == '>'))
      at++;
    at_line_start = *at == '\n';
    at += *at != '\0';
  }
  return labels;
}

struct _LycheeSpeakerEvidence {
  GHashTable *counts;    /* name -> how often */
  GHashTable *bracketed; /* names in brackets without a colon */
  guint64 n_lines;
  guint64 n_labelled;
  guint64 n_bracketed;
};

LycheeSpeakerEvidence *
lychee_speaker_evidence_new (void)
{
  LycheeSpeakerEvidence *evidence = g_new0 (LycheeSpeakerEvidence, 1);

  evidence->counts = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  evidence->bracketed = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
  return evidence;
}

void
lychee_speaker_evidence_free (LycheeSpeakerEvidence *evidence)
{
  g_hash_table_unref (evidence->counts);
  g_hash_table_unref (evidence->bracketed);
  g_free (evidence);
}

static guint
count_name (LycheeSpeakerEvidence *evidence, const char *name)
{
  return GPOINTER_TO_UINT (g_hash_table_lookup (evidence->counts, name));
}

void
lychee_speaker_evidence_learn (LycheeSpeakerEvidence *evidence, GArray *labels)
{
  LycheeLabelStrength first =
      labels->len > 0 ? g_array_index (labels, LycheeLabel, 0).strength : LYCHEE_LABEL_LETTER;

  evidence->n_lines++;
  evidence->n_labelled += first > LYCHEE_LABEL_BRACKET;
  evidence->n_bracketed += first == LYCHEE_LABEL_BRACKET;
  for (guint i = 0; i < labels->len; i++) {
    const LycheeLabel *label = &g_array_index (labels, LycheeLabel, i);
    const char *name = label->name;
    guint count;

    if (name == NULL)
      continue;
    if (label->strength == LYCHEE_LABEL_BRACKET) {
      if (g_hash_table_size (evidence->bracketed) < MAX_NAMES)
        g_hash_table_add (evidence->bracketed, g_strdup (name));
      continue;
    }
    count = count_name (evidence, name);
    if (count > 0 || g_hash_table_size (evidence->counts) < MAX_NAMES)
      g_hash_table_replace (
          evidence->counts, g_strdup (name), GUINT_TO_POINTER (MIN (count + 1, G_MAXINT)));
  }
}

gboolean
lychee_speaker_evidence_recurs (LycheeSpeakerEvidence *evidence, const LycheeLabel *label)
{
  if (label->strength == LYCHEE_LABEL_LETTER)
    return count_name (evidence, "Q") >= 2 && count_name (evidence, "A") >= 2;
  if (label->strength == LYCHEE_LABEL_BRACKET)
    return evidence->n_bracketed >= MIN_LINES && evidence->n_bracketed * 2 >= evidence->n_lines &&
           g_hash_table_size (evidence->bracketed) >= 2;
  return label->name == NULL || label->strength == LYCHEE_LABEL_STRONG ||
         count_name (evidence, label->name) >= 2;
}

/* @complete: nothing more is to be learned. */
gboolean
lychee_speaker_evidence_accepts (
    LycheeSpeakerEvidence *evidence, const LycheeLabel *label, gboolean complete)
{
  gboolean usual = evidence->n_labelled * 2 >= evidence->n_lines;

  if (lychee_speaker_evidence_recurs (evidence, label))
    return TRUE;
  if (label->strength <= LYCHEE_LABEL_BRACKET)
    return FALSE;
  if (complete)
    return usual && (evidence->n_labelled >= 2 || label->strength >= LYCHEE_LABEL_NORMAL);
  /* It may come again. */
  return label->strength == LYCHEE_LABEL_NORMAL || (usual && evidence->n_lines >= MIN_LINES);
}
