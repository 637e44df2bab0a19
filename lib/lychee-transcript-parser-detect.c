/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json-keys.h"
#include "lychee-transcript-parser-private.h"

#include "lychee-hygiene-private.h"
#include "lychee-text-properties.h"

#include <string.h>

/* Which format a text is of, and other questions about a few bytes of it. */

gboolean
lychee_transcript_is_blank (const char *text, gsize length)
{
  const char *end = text + length;

  while (text < end) {
    gunichar c = g_utf8_get_char (text);

    if (!g_unichar_isspace (c) && !g_unichar_iszerowidth (c) && c != 0x3164 && c != 0x2800)
      return FALSE;
    text = g_utf8_next_char (text);
  }
  return TRUE;
}

gboolean
lychee_transcript_is_number (const char *text, gsize length, guint64 *number)
{
  gsize start = 0;

  while (start < length && (text[start] == ' ' || text[start] == '\t'))
    start++;
  while (length > start && (text[length - 1] == ' ' || text[length - 1] == '\t'))
    length--;
  if (length == start || length - start > 9)
    return FALSE;
  *number = 0;
  for (gsize i = start; i < length; i++) {
    if (!g_ascii_isdigit (text[i]))
      return FALSE;
    *number = *number * 10 + (text[i] - '0');
  }
  return TRUE;
}

gsize
lychee_transcript_cut (const char *text, gsize length, gsize max)
{
  gsize cut = MIN (length, max);
  gsize earliest = cut - cut / 4;

  if (cut == length)
    return cut;
  for (gsize i = cut; i > earliest; i--)
    if (text[i - 1] == ' ' || text[i - 1] == '\n' || text[i - 1] == '\t')
      return i;
  for (const char *at = text + cut; at > text + earliest; at--) {
    const char *before = g_utf8_find_prev_char (text, at);

    if (((guchar) *at & 0xc0) != 0x80 && before != NULL &&
        lychee_text_closes (g_utf8_get_char (before)))
      return at - text;
  }
  while (cut > 1 && ((guchar) text[cut] & 0xc0) == 0x80)
    cut--;
  return cut;
}

/* The first character behind @text that is no space, or NULL where there is none yet. */
static const char *
next_visible (const char *text, const char *end)
{
  while (text < end && g_ascii_isspace (*text))
    text++;
  return text < end ? text : NULL;
}

LycheeTranscriptFormat
lychee_transcript_format_of_line (const char *line)
{
  static const char *const ass[] = { "[Script Info", "[Events]", "[V4",
    "Dialogue:", "ScriptType:" };
  guint64 start;
  guint64 end;
  const char *rest;

  if (g_ascii_strncasecmp (line, "WEBVTT", 6) == 0 && !g_ascii_isalnum (line[6]))
    return LYCHEE_TRANSCRIPT_FORMAT_WEBVTT;
  if (g_ascii_strncasecmp (line, "Scenarist_SCC V", 15) == 0)
    return LYCHEE_TRANSCRIPT_FORMAT_SCC;
  for (guint i = 0; i < G_N_ELEMENTS (ass); i++)
    if (g_ascii_strncasecmp (line, ass[i], strlen (ass[i])) == 0)
      return LYCHEE_TRANSCRIPT_FORMAT_ASS;
  if (lychee_transcript_parse_times (line, &start, &end, &rest))
    return LYCHEE_TRANSCRIPT_FORMAT_SUBRIP;
  return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
}

/* Whether a line may come before one that shows the format. */
static gboolean
may_be_preamble (const char *line)
{
  /* What SubViewer says about itself. */
  static const char *const names[] = { "[INFORMATION]", "[TITLE]", "[AUTHOR]", "[SOURCE]", "[PRG]",
    "[FILEPATH]", "[DELAY]", "[CD TRACK]", "[COMMENT]", "[END INFORMATION]", "[SUBTITLE]",
    "[COLF]" };
  guint64 number;

  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (g_str_has_prefix (line, names[i]))
      return TRUE;
  return lychee_transcript_is_number (line, strlen (line), &number) || *line == ';' ||
         g_str_has_prefix (line, "!:") || g_str_has_prefix (line, "Format:") ||
         g_str_has_prefix (line, "Title:");
}

/* Over what some put in front of JSON: comments, and a call or an assignment that it is part of.
 * NULL where more text is needed to tell. */
static const char *
skip_before_json (const char *at, const char *end)
{
  const char *next = at;

  while (next != NULL && *next == '/') {
    const char *close = next[1] == '*' ? "*/" : "\n";

    if (next + 1 == end)
      return NULL;
    if (next[1] != '/' && next[1] != '*')
      return at;
    next = g_strstr_len (next + 2, end - next - 2, close);
    if (next != NULL)
      next = next_visible (next + strlen (close), end);
  }
  if (next == NULL)
    return NULL;
  if (g_ascii_isalpha (*next) || *next == '_') {
    const char *name = next;

    while (next < end && (g_ascii_isalnum (*next) || strchr ("_$. ", *next) != NULL))
      next++;
    if (next == end)
      return NULL;
    if (next - name > 64 || (*next != '(' && *next != '='))
      return at;
    next = next_visible (next + 1, end);
  }
  return next;
}

/* Whether a key without quotes is at @at, one of those that recognisers have: as detect_json(). */
static LycheeTranscriptFormat
detect_key (const char *at, const char *end, gboolean at_end)
{
  const char *stop = at;
  g_autofree char *key = NULL;
  LycheeJsonUnit unit;

  while (stop < end && stop - at < 32 && (g_ascii_isalnum (*stop) || *stop == '_'))
    stop++;
  if (stop == end)
    return at_end ? LYCHEE_TRANSCRIPT_FORMAT_TEXT : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  key = g_strndup (at, stop - at);
  return *stop == ':' && lychee_json_key_lookup (key, &unit) != LYCHEE_JSON_KEY_NONE
             ? LYCHEE_TRANSCRIPT_FORMAT_JSON
             : LYCHEE_TRANSCRIPT_FORMAT_TEXT;
}

/* What a bracket or brace at @at shows: JSON, TEXT, or AUTO where more is needed to tell. */
static LycheeTranscriptFormat
detect_json (const char *at, const char *end, gboolean at_end)
{
  char open = *at;
  const char *next = next_visible (at + 1, end);

  if (next == NULL) /* all that there is of it */
    return at_end ? LYCHEE_TRANSCRIPT_FORMAT_JSON : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  if (open == '{')
    return strchr ("\"'}", *next) != NULL ? LYCHEE_TRANSCRIPT_FORMAT_JSON
                                          : detect_key (next, end, at_end);
  switch (*next) {
  case '{':
    return LYCHEE_TRANSCRIPT_FORMAT_JSON;
  case '[': /* "[[inaudible]]" is none */
  case '(':
    next = next_visible (next + 1, end);
    if (next == NULL)
      return at_end ? LYCHEE_TRANSCRIPT_FORMAT_TEXT : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
    return strchr ("[{\"'-]", *next) != NULL || g_ascii_isdigit (*next)
               ? LYCHEE_TRANSCRIPT_FORMAT_JSON
               : LYCHEE_TRANSCRIPT_FORMAT_TEXT;
  case ']': /* nothing, and nothing behind it */
    if (next_visible (next + 1, end) != NULL)
      return LYCHEE_TRANSCRIPT_FORMAT_TEXT;
    return at_end ? LYCHEE_TRANSCRIPT_FORMAT_JSON : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  case '"': /* a list of texts; not a quotation in brackets */
    for (next++; next < end && *next != '"'; next++)
      next += *next == '\\' && next + 1 < end;
    next = next < end ? next_visible (next + 1, end) : NULL;
    if (next == NULL)
      return at_end ? LYCHEE_TRANSCRIPT_FORMAT_TEXT : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
    if (*next == ']') {
      next = next_visible (next + 1, end);
      if (next == NULL)
        return at_end ? LYCHEE_TRANSCRIPT_FORMAT_JSON : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
      return LYCHEE_TRANSCRIPT_FORMAT_TEXT;
    }
    return *next == ',' ? LYCHEE_TRANSCRIPT_FORMAT_JSON : LYCHEE_TRANSCRIPT_FORMAT_TEXT;
  default:
    return LYCHEE_TRANSCRIPT_FORMAT_TEXT;
  }
}

/* (transfer full) (nullable): the name of the outermost element of a text that begins with a tag,
 * in lower case; "" where there is none. NULL where more text is needed to tell. */
static char *
find_root (const char *at, const char *end)
{
  while (at != NULL && end - at >= 2 && *at == '<' && strchr ("?!", at[1]) != NULL) {
    const char *close = g_str_has_prefix (at, "<!--") ? "-->" : ">";

    at = g_strstr_len (at + 2, end - at - 2, close);
    if (at != NULL)
      at = next_visible (at + strlen (close), end);
  }
  if (at == NULL || end - at < 2)
    return NULL;
  if (*at != '<' || !g_ascii_isalpha (at[1]))
    return g_strdup ("");
  for (const char *stop = ++at; stop < end; stop++) {
    if (*stop == ':')
      at = stop + 1;
    else if (!g_ascii_isalnum (*stop) && strchr ("-_.", *stop) == NULL)
      return g_ascii_strdown (at, stop - at);
  }
  return NULL;
}

/* What a text that begins with a tag is; @known: it is one of subtitles. */
static LycheeTranscriptFormat
detect_xml (const char *at, const char *end, gboolean at_end, gboolean *known)
{
  static const char *const roots[] = { "tt", "transcript", "timedtext", "sami", "trans",
    "usfsubtitles", "transcription", NULL };
  g_autofree char *root = find_root (at, end);

  *known = FALSE;
  if (root == NULL)
    return at_end ? LYCHEE_TRANSCRIPT_FORMAT_TEXT : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  *known = g_strv_contains (roots, root);
  /* What is said in other documents is told from their tags at least. */
  return *known || strcmp (root, "html") == 0 ||
                 (*root != '\0' && g_ascii_strncasecmp (at, "<?xml", 5) == 0)
             ? LYCHEE_TRANSCRIPT_FORMAT_XML
             : LYCHEE_TRANSCRIPT_FORMAT_TEXT;
}

LycheeTranscriptFormat
lychee_transcript_detect (const char *text, gsize length, gboolean at_end)
{
  const char *end = text + length;
  const char *at = next_visible (text, end);
  const char *json;

  if (at == NULL)
    return at_end ? LYCHEE_TRANSCRIPT_FORMAT_TEXT : LYCHEE_TRANSCRIPT_FORMAT_AUTO;

  if (*at == '<') {
    gboolean known;
    LycheeTranscriptFormat format = detect_xml (at, end, at_end, &known);

    if (format != LYCHEE_TRANSCRIPT_FORMAT_TEXT)
      return format;
  }
  json = skip_before_json (at, end);
  if (json == NULL && !at_end)
    return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  if (json != NULL && (*json == '{' || *json == '[')) {
    LycheeTranscriptFormat format = detect_json (json, end, at_end);

    if (format != LYCHEE_TRANSCRIPT_FORMAT_TEXT)
      return format;
  }
  for (guint i = 0; i < 2; i++) {
    LycheeTranscriptFormat format = i == 0 ? lychee_transcript_detect_lines (at, end - at, at_end)
                                           : lychee_transcript_detect_table (at, end - at, at_end);

    if (format != LYCHEE_TRANSCRIPT_FORMAT_TEXT)
      return format;
  }
  while (at != NULL) {
    gsize n = strcspn (at, "\r\n");
    g_autofree char *line = NULL;
    LycheeTranscriptFormat format;

    if (at + n == end && !at_end)
      return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
    line = g_strndup (at, n);
    format = lychee_transcript_format_of_line (line);
    if (format != LYCHEE_TRANSCRIPT_FORMAT_AUTO)
      return format;
    if (!may_be_preamble (line))
      return LYCHEE_TRANSCRIPT_FORMAT_TEXT;
    at = next_visible (at + n, end);
  }
  return at_end ? LYCHEE_TRANSCRIPT_FORMAT_TEXT : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
}

/* Whether people speak by turns in @text, as far as labels show: two lines in five begin with one
 * that nothing else looks like, or that comes again. */
static gboolean
has_turns (const char *text)
{
  g_auto (GStrv) lines = g_strsplit_set (text, "\r\n", -1);
  LycheeSpeakerEvidence *evidence = lychee_speaker_evidence_new ();
  guint n_lines = 0;
  guint n_turns = 0;

  for (guint pass = 0; pass < 2; pass++)
    for (guint i = 0; lines[i] != NULL; i++) {
      g_autoptr (GArray) labels = NULL;

      if (lychee_transcript_is_blank (lines[i], strlen (lines[i])))
        continue;
      labels = lychee_hygiene_find_labels (lines[i], TRUE);
      if (pass == 0) {
        n_lines++;
        lychee_speaker_evidence_learn (evidence, labels);
      } else if (labels->len > 0) {
        const LycheeLabel *label = &g_array_index (labels, LycheeLabel, 0);

        n_turns += label->name != NULL && lychee_speaker_evidence_recurs (evidence, label);
      }
    }
  lychee_speaker_evidence_free (evidence);
  return n_turns >= 2 && n_turns * 5 >= n_lines * 2;
}

/* Whether cues begin in @text, two of them at least and with no more lines each than people put on
 * a screen: a page about subtitles shows an example or two. */
static gboolean
has_cues (const char *text)
{
  g_auto (GStrv) lines = g_strsplit_set (text, "\r\n", -1);
  guint n_lines = 0;
  guint n_cues = 0;
  guint64 start;
  guint64 end;
  const char *rest;

  for (guint i = 0; lines[i] != NULL; i++) {
    n_lines += !lychee_transcript_is_blank (lines[i], strlen (lines[i]));
    n_cues += lychee_transcript_parse_times (lines[i], &start, &end, &rest) &&
              start != LYCHEE_TIME_NONE && end != LYCHEE_TIME_NONE;
  }
  return n_cues >= 2 && n_cues * 8 >= n_lines;
}

/* Whether @text has the key or value @name. */
static gboolean
has_name (const char *text, const char *name)
{
  gsize length = strlen (name);
  const char *at = text;

  while ((at = strstr (at, name)) != NULL) {
    if (at > text && (at[-1] == '"' || at[-1] == '\'') && at[length] == at[-1])
      return TRUE;
    at += length;
  }
  return FALSE;
}

/* Whether JSON has what a recogniser writes. */
static gboolean
has_speech (const char *text)
{
  static const char *const texts[] = { "text", "word", "transcript", "punctuated_word", "body",
    "content", "utf8", "partial", "display", "sentence", "Display", "Content", "value" };
  static const char *const others[] = { "start", "start_time", "startTime", "start_ms", "tStartMs",
    "timestamp", "timestamps", "segments", "words", "offsets", "speaker", "partial", "offset",
    "offsetMilliseconds", "startOffset", "BeginOffsetMillis", "from", "ts", "Words", "Items" };
  gboolean found = FALSE;

  for (guint i = 0; i < G_N_ELEMENTS (texts) && !found; i++)
    found = has_name (text, texts[i]);
  for (guint i = 0; i < G_N_ELEMENTS (others) && found; i++)
    if (has_name (text, others[i]))
      return TRUE;
  return FALSE;
}

/**
 * lychee_transcript_recognise:
 * @data: (array length=length) (element-type guint8): the beginning of something
 * @length: its bytes
 *
 * Tells whether it is a transcript. Plain text is one if it shows who speaks.
 *
 * Returns: the format, %LYCHEE_TRANSCRIPT_FORMAT_AUTO where it does not look like a transcript
 */
LycheeTranscriptFormat
lychee_transcript_recognise (const void *data, gsize length)
{
  g_autoptr (LycheeTranscriptDecoder) decoder = NULL;
  g_autoptr (GString) text = NULL;
  LycheeTranscriptReport report = { 0 };
  LycheeTranscriptFormat format;
  gboolean known;

  g_return_val_if_fail (data != NULL || length == 0, LYCHEE_TRANSCRIPT_FORMAT_AUTO);

  decoder = lychee_transcript_decoder_new (NULL, length);
  text = g_string_new (NULL);
  lychee_transcript_decoder_push (decoder, data, length, text);
  lychee_transcript_decoder_finish (decoder, text);
  lychee_transcript_decoder_report (decoder, &report);
  if (report.binary)
    return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  format = lychee_transcript_detect (text->str, text->len, TRUE);
  if (format == LYCHEE_TRANSCRIPT_FORMAT_TEXT && has_cues (text->str))
    return LYCHEE_TRANSCRIPT_FORMAT_SUBRIP;
  if (format == LYCHEE_TRANSCRIPT_FORMAT_TEXT && !has_turns (text->str))
    return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  if (format == LYCHEE_TRANSCRIPT_FORMAT_XML) {
    detect_xml (
        next_visible (text->str, text->str + text->len), text->str + text->len, TRUE, &known);
    return known ? format : LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  }
  if (format == LYCHEE_TRANSCRIPT_FORMAT_JSON && !has_speech (text->str))
    return LYCHEE_TRANSCRIPT_FORMAT_AUTO;
  return format;
}

/**
 * lychee_transcript_parse_text:
 * @text: (array length=length): bytes
 * @length: how many
 *
 * Makes a cue of text that has its times elsewhere: without NUL, and with U+FFFD for what is not
 * UTF-8.
 *
 * Returns: (transfer full): a cue without times
 */
LycheeCue *
lychee_transcript_parse_text (const char *text, gsize length)
{
  g_autoptr (LycheeTranscriptDecoder) decoder = lychee_transcript_decoder_new (NULL, 0);
  g_autoptr (GString) clean = g_string_new (NULL);

  lychee_transcript_decoder_preset (decoder, "UTF-8", FALSE);
  lychee_transcript_decoder_push (decoder, (const guint8 *) text, length, clean);
  lychee_transcript_decoder_finish (decoder, clean);
  return lychee_cue_new (clean->str, clean->len, NULL, LYCHEE_TIME_NONE, LYCHEE_TIME_NONE);
}
