/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-charset.h"

#include <string.h>

#include <unicode/ucsdet.h>

/* Bytes that the guess is made from: those of lines that are not ASCII. */
#define SAMPLE_LENGTH 16384
/* Below this confidence (of 100) a guess is no better than the most common legacy encoding. */
#define MIN_CONFIDENCE 10
/* and below this one it may be of an encoding that ICU does not know. */
#define SURE 50
#define FALLBACK "windows-1252"
/* Fewer bytes do not tell whether they are text. */
#define BINARY_MIN 64

/**
 * lychee_transcript_encoding_is_known:
 * @encoding: the name of an encoding
 *
 * Returns: whether text of this encoding can be converted
 */
gboolean
lychee_transcript_encoding_is_known (const char *encoding)
{
  GIConv iconv;

  g_return_val_if_fail (encoding != NULL, FALSE);

  iconv = g_iconv_open ("UTF-8", encoding);
  if (iconv == (GIConv) -1)
    return FALSE;
  g_iconv_close (iconv);
  return TRUE;
}

const char *
lychee_charset_intern (const char *encoding)
{
  if (encoding == NULL || *encoding == '\0' || !lychee_transcript_encoding_is_known (encoding))
    return NULL;
  if (g_ascii_strcasecmp (encoding, "utf8") == 0 || g_ascii_strcasecmp (encoding, "utf-8") == 0)
    return "UTF-8";
  return g_intern_string (encoding);
}

/* By trial: the name tells little. */
gboolean
lychee_charset_extends_ascii (const char *encoding)
{
  /* Sequences that switch stateful encodings over are in it. */
  static const char ascii[] = "\033$B0!\033(B ~{VPND~} +AOk- 00:01 -->";
  gsize written = 0;
  g_autofree char *utf8 =
      g_convert (ascii, sizeof ascii - 1, "UTF-8", encoding, NULL, &written, NULL);

  return utf8 != NULL && written == sizeof ascii - 1 && memcmp (utf8, ascii, written) == 0;
}

guint
lychee_charset_get_unit (const char *encoding)
{
  g_autofree char *upper = g_ascii_strup (encoding, -1);

  if (strstr (upper, "UTF-16") != NULL || strstr (upper, "UTF16") != NULL ||
      strstr (upper, "UCS-2") != NULL || strstr (upper, "UCS2") != NULL)
    return 2;
  if (strstr (upper, "UTF-32") != NULL || strstr (upper, "UTF32") != NULL ||
      strstr (upper, "UCS-4") != NULL || strstr (upper, "UCS4") != NULL)
    return 4;
  return 1;
}

static const struct {
  const char *encoding;
  guint8 mark[4];
  guint length;
} marks[] = {
  { "UTF-32LE", { 0xff, 0xfe, 0, 0 }, 4 }, /* before UTF-16LE, whose mark it begins with */
  { "UTF-32BE", { 0, 0, 0xfe, 0xff }, 4 },
  { "UTF-16LE", { 0xff, 0xfe }, 2 },
  { "UTF-16BE", { 0xfe, 0xff }, 2 },
  { "UTF-8", { 0xef, 0xbb, 0xbf }, 3 },
};

const char *
lychee_charset_of_mark (const guint8 *data, gsize length, guint *mark)
{
  for (guint i = 0; i < G_N_ELEMENTS (marks); i++)
    if (length >= marks[i].length && memcmp (data, marks[i].mark, marks[i].length) == 0) {
      *mark = marks[i].length;
      return marks[i].encoding;
    }
  return NULL;
}

gboolean
lychee_charset_mark_may_follow (const guint8 *data, gsize length)
{
  if (length < 2)
    return TRUE;
  for (guint i = 0; i < G_N_ELEMENTS (marks); i++)
    if (length < marks[i].length && memcmp (data, marks[i].mark, length) == 0)
      return TRUE;
  return FALSE;
}

const char *
lychee_charset_of_zeros (const guint8 *data, gsize length)
{
  gsize pairs = length / 2;
  gsize zeros[2] = { 0, 0 };

  for (gsize i = 0; i < pairs * 2; i++)
    zeros[i % 2] += data[i] == 0;
  if (zeros[0] == 0 && zeros[1] * 4 >= pairs)
    return "UTF-16LE";
  if (zeros[1] == 0 && zeros[0] * 4 >= pairs)
    return "UTF-16BE";
  return NULL;
}

/* Spaces and what ends lines, pages, files and escape sequences. */
static gboolean
is_control (guint c)
{
  return (c < 0x20 && strchr ("\t\n\v\f\r\x1a\x1b", c) == NULL) || c == 0x7f || c == 0;
}

gboolean
lychee_charset_is_binary (const guint8 *data, gsize length)
{
  const char *utf16;
  LycheeUtf8 utf8 = { 0 };
  LycheeUtf8Counts counts = { 0 };
  gsize n_zeros[4] = { 0 };
  gsize n_controls = 0;
  gsize n_high = 0;
  guint mark;

  if (length < BINARY_MIN || lychee_charset_of_mark (data, length, &mark) != NULL)
    return FALSE;
  utf16 = lychee_charset_of_zeros (data, length);
  if (utf16 != NULL) {
    guint low = strcmp (utf16, "UTF-16LE") == 0 ? 0 : 1;

    for (gsize i = 0; i + 1 < length; i += 2)
      n_controls += data[i + !low] == 0 && is_control (data[i + low]);
    return n_controls * 8 > length / 2;
  }
  for (gsize i = 0; i < length; i++) {
    n_zeros[i % 4] += data[i] == 0;
    n_controls += is_control (data[i]);
    n_high += data[i] >= 0x80;
  }
  /* UTF-32, with its letters in one byte of four. */
  if ((n_zeros[0] == 0 && n_zeros[3] == length / 4) ||
      (n_zeros[3] == 0 && n_zeros[0] == (length + 3) / 4))
    return FALSE;
  if (n_controls * 10 > length * 3)
    return TRUE;
  lychee_charset_count (&utf8, data, length, &counts);
  return n_controls * 25 > length && n_high * 5 > length && !lychee_charset_is_utf8 (&counts);
}

const char *
lychee_charset_document (const guint8 *data, gsize length)
{
  static const struct {
    const char *magic;
    const char *document;
  } documents[] = {
    { "PK\x03\x04", "a zip file, such as a Word document (.docx)" },
    { "PK\x05\x06", "an empty zip file" },
    { "%PDF-", "a PDF document" },
    { "{\\rtf", "a document in Rich Text Format (.rtf)" },
    { "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (.doc)" },
    { "\x1f\x8b\x08", "a compressed file (.gz)" },
    { "\xfd"
      "7zXZ",
        "a compressed file (.xz)" },
    { "7z\xbc\xaf", "a compressed file (.7z)" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (documents); i++) {
    gsize n = strlen (documents[i].magic);

    if (length >= n && memcmp (data, documents[i].magic, n) == 0)
      return documents[i].document;
  }
  return NULL;
}

void
lychee_charset_count (LycheeUtf8 *utf8, const guint8 *data, gsize length, LycheeUtf8Counts *counts)
{
  for (gsize i = 0; i < length; i++) {
    LycheeUtf8Char c[2];
    guint n;

    if (data[i] < 0x80 && utf8->n_seen == 0)
      continue;
    n = lychee_utf8_push (utf8, data[i], c);
    for (guint k = 0; k < n; k++) {
      counts->n_broken += c[k].broken;
      counts->n_valid += !c[k].broken && c[k].n_source > 1;
    }
  }
}

/* In text of a legacy encoding, two bytes rarely happen to be a character of UTF-8: one in six at
 * most, in the Chinese ones. */
gboolean
lychee_charset_is_utf8 (const LycheeUtf8Counts *counts)
{
  return counts->n_broken == 0 || (counts->n_valid > 0 && counts->n_valid >= counts->n_broken);
}

/* Appends to @sample the lines that are not ASCII. */
static void
take_sample (GByteArray *sample, const guint8 *data, gsize length)
{
  gsize start = 0;

  while (start < length && sample->len < SAMPLE_LENGTH) {
    gsize end = start;
    gboolean ascii = TRUE;

    while (end < length && data[end] != '\n' && data[end] != '\r')
      ascii &= data[end++] < 0x80;
    if (!ascii)
      g_byte_array_append (
          sample, data + start, MIN (end - start + (end < length), SAMPLE_LENGTH - sample->len));
    start = end + 1;
  }
}

/* ISO-8859-1 and its like, in the wild, are what Windows made of them. */
static const char *
name_of_guess (const char *name)
{
  static const char *const names[][2] = {
    { "ISO-8859-1", "windows-1252" },
    { "ISO-8859-9", "windows-1254" },
    { "ISO-8859-8-I", "windows-1255" },
    { "ISO-8859-8", "windows-1255" },
    { "ISO-8859-7", "windows-1253" },
  };

  if (name == NULL || g_str_has_prefix (name, "UTF-") || g_str_has_prefix (name, "ISO-2022") ||
      g_str_has_prefix (name, "IBM"))
    return NULL;
  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (strcmp (name, names[i][0]) == 0)
      return names[i][1];
  return lychee_charset_intern (name);
}

/* Windows-1253 and ISO-8859-7 have the capital alpha with an accent, with which words begin, in
 * different places, where the other has a mark. */
static const char *
choose_greek (const guint8 *data, gsize length)
{
  gsize n_windows = 0, n_iso = 0;

  for (gsize i = 0; i + 1 < length; i++) {
    if (data[i + 1] < 0xc1) /* no letter */
      continue;
    n_windows += data[i] == 0xa2;
    n_iso += data[i] == 0xb6;
  }
  return n_iso > n_windows ? "ISO-8859-7" : "windows-1253";
}

/* Whether text is Thai (windows-874, of which ICU knows nothing): its letters stand in long rows,
 * some codes are none, and a vowel above or below, or a tone, is on a consonant. */
static gboolean
is_thai (const guint8 *data, gsize length)
{
  gsize n_high = 0, n_rows = 0, n_marks = 0, n_lost = 0, n_none = 0;

  for (gsize i = 0; i < length; i++) {
    guint8 c = data[i], before = i > 0 ? data[i - 1] : 0;
    gboolean mark = c == 0xd1 || (c >= 0xd4 && c <= 0xda) || (c >= 0xe7 && c <= 0xee);

    if (c < 0x80)
      continue;
    n_high++;
    n_rows += before < 0x80;
    n_none += c >= 0xfc || (c >= 0xdb && c <= 0xde) ||
              (c < 0xa0 && strchr ("\x80\x85", c) == NULL && !(c >= 0x91 && c <= 0x97));
    n_marks += mark;
    n_lost += mark && before >= 0x80 &&
              !((before >= 0xa1 && before <= 0xce) || before == 0xd1 ||
                  (before >= 0xd4 && before <= 0xd9));
  }
  return n_high >= 4 * n_rows && n_none * 100 <= n_high && n_marks * 20 >= n_high &&
         n_lost * 20 <= n_marks;
}

/* What the bytes look like; (nullable) NULL where that is not clear. */
static const char *
guess (const guint8 *data, gsize length)
{
  UErrorCode status = U_ZERO_ERROR;
  UCharsetDetector *detector = ucsdet_open (&status);
  const UCharsetMatch **matches;
  g_autoptr (GByteArray) sample = g_byte_array_new ();
  const char *found = NULL;
  int32_t n = 0, confidence = 0;

  take_sample (sample, data, length);
  ucsdet_setText (detector, (const char *) sample->data, sample->len, &status);
  matches = ucsdet_detectAll (detector, &n, &status);
  for (int32_t i = 0; U_SUCCESS (status) && i < n && found == NULL; i++) {
    confidence = ucsdet_getConfidence (matches[i], &status);
    if (confidence < MIN_CONFIDENCE)
      break;
    found = name_of_guess (ucsdet_getName (matches[i], &status));
  }
  if (g_strcmp0 (found, "windows-1253") == 0)
    found = choose_greek (sample->data, sample->len);
  else if (confidence < SURE && is_thai (sample->data, sample->len))
    found = lychee_charset_intern ("windows-874");
  if (detector != NULL)
    ucsdet_close (detector);
  return found;
}

const char *
lychee_charset_choose (const char *requested, const guint8 *data, gsize length, gboolean *guessed)
{
  const char *locale;
  const char *found;

  *guessed = FALSE;
  if (requested != NULL)
    return requested;
  if (!g_get_charset (&locale) && strstr (locale, "ANSI_X3.4") == NULL &&
      strcmp (locale, "US-ASCII") != 0) {
    found = lychee_charset_intern (locale);
    if (found != NULL)
      return found;
  }
  *guessed = TRUE;
  found = guess (data, length);
  return found != NULL ? found : FALLBACK;
}

struct _LycheeEncodingSurvey {
  const char *requested;
  guint8 head[64];
  gsize n_head;
  LycheeUtf8 utf8;
  LycheeUtf8Counts counts;
  GByteArray *line; /* the one that is being read, its beginning */
  gboolean ascii;   /* so is it so far */
  GByteArray *sample;
};

LycheeEncodingSurvey *
lychee_encoding_survey_new (const char *encoding)
{
  LycheeEncodingSurvey *survey = g_new0 (LycheeEncodingSurvey, 1);

  survey->requested = lychee_charset_intern (encoding);
  survey->line = g_byte_array_new ();
  survey->ascii = TRUE;
  survey->sample = g_byte_array_new ();
  return survey;
}

void
lychee_encoding_survey_free (LycheeEncodingSurvey *survey)
{
  g_byte_array_unref (survey->line);
  g_byte_array_unref (survey->sample);
  g_free (survey);
}

static void
end_line (LycheeEncodingSurvey *survey)
{
  if (!survey->ascii && survey->sample->len < SAMPLE_LENGTH)
    g_byte_array_append (survey->sample, survey->line->data, survey->line->len);
  g_byte_array_set_size (survey->line, 0);
  survey->ascii = TRUE;
}

void
lychee_encoding_survey_push (LycheeEncodingSurvey *survey, const guint8 *data, gsize length)
{
  gsize n = MIN (length, sizeof survey->head - survey->n_head);

  memcpy (survey->head + survey->n_head, data, n);
  survey->n_head += n;
  lychee_charset_count (&survey->utf8, data, length, &survey->counts);
  while (length > 0 && survey->sample->len < SAMPLE_LENGTH) {
    const guint8 *newline = memchr (data, '\n', length);
    gsize part = newline != NULL ? (gsize) (newline - data) + 1 : length;

    for (gsize i = 0; survey->ascii && i < part; i++)
      survey->ascii = data[i] < 0x80;
    if (survey->line->len < SAMPLE_LENGTH)
      g_byte_array_append (survey->line, data, MIN (part, SAMPLE_LENGTH));
    if (newline != NULL)
      end_line (survey);
    data += part;
    length -= part;
  }
}

const char *
lychee_encoding_survey_end (LycheeEncodingSurvey *survey, gboolean *guessed)
{
  LycheeUtf8Char c[1];
  guint mark;

  *guessed = FALSE;
  end_line (survey);
  survey->counts.n_broken += lychee_utf8_finish (&survey->utf8, c);
  if (lychee_charset_of_mark (survey->head, survey->n_head, &mark) != NULL)
    return NULL;
  if (survey->counts.n_broken == 0 && survey->counts.n_valid == 0)
    return NULL;
  if (lychee_charset_is_utf8 (&survey->counts))
    return "UTF-8";
  return lychee_charset_choose (
      survey->requested, survey->sample->data, survey->sample->len, guessed);
}
