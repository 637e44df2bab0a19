/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/* Scenarist's closed captions: lines of a timecode and the words, in hexadecimal, that are sent
 * from then on, one a frame, as CEA-608 (47 CFR 15.119) has them: two characters of seven bits and
 * a parity bit, or a code.
 *
 * Captions pop on when they have been loaded whole, roll up line by line, or are painted on. Where
 * they stand and what they look like does not matter here: a row that moves is a new line. The
 * second channel, which has another language, and text mode are passed over. */

#define SECOND G_GUINT64_CONSTANT (1000000000)
/* What is painted on without an end. */
#define MAX_SHOWN 2048

typedef enum { POP_ON, ROLL_UP, PAINT_ON, OTHER } Mode;

typedef struct {
  LycheeTranscriptReader reader;
  Mode mode;
  gboolean second; /* what comes is for the second channel */
  guint last;      /* the code before, which is sent twice; 0: something else was */
  guint row;
  GString *loading; /* what pops on next */
  GString *shown;
  guint64 start; /* of what is shown */
  guint64 now;
} SccReader;

/* Where the set of characters is not ASCII. */
static const char basic[] = "*\\^_`{|}~\x7f";
static const char *const basic_as[] = { "á", "é", "í", "ó", "ú", "ç", "÷", "Ñ", "ñ", "█" };
static const char *const special[16] = { "®", "°", "½", "¿", "™", "¢", "£", "♪", "à", " ", "è", "â",
  "ê", "î", "ô", "û" };
/* These come behind a character that stands for them where they are not known. */
static const char *const extended[2][32] = {
  { "Á", "É", "Ó", "Ú", "Ü", "ü", "‘", "¡", "*", "'", "—", "©", "℠", "•", "“", "”", "À", "Â", "Ç",
      "È", "Ê", "Ë", "ë", "Î", "Ï", "ï", "Ô", "Ù", "ù", "Û", "«", "»" },
  { "Ã", "ã", "Í", "Ì", "ì", "Ò", "ò", "Õ", "õ", "{", "}", "\\", "^", "_", "|", "~", "Ä", "ä", "Ö",
      "ö", "ß", "¥", "¤", "│", "Å", "å", "Ø", "ø", "┌", "┐", "└", "┘" },
};

static void
give_shown (SccReader *self)
{
  LycheeTranscriptOutput *output = self->reader.output;

  g_strstrip (self->shown->str);
  if (*self->shown->str != '\0')
    lychee_transcript_order_add (output->order,
        /* What is shown to the end of the file has no end of its own. */
        lychee_cue_new (self->shown->str, -1, NULL, self->start,
            self->now > self->start ? self->now : LYCHEE_TIME_NONE),
        output->cues);
  g_string_truncate (self->shown, 0);
}

static GString *
written_to (SccReader *self)
{
  return self->mode == POP_ON ? self->loading : self->shown;
}

static void
append (SccReader *self, const char *text)
{
  GString *out = written_to (self);

  if (self->mode == OTHER || self->second)
    return;
  if (out->len > MAX_SHOWN)
    give_shown (self);
  if (out == self->shown && out->len == 0)
    self->start = self->now;
  g_string_append (out, text);
}

static void
delete_last (SccReader *self)
{
  GString *out = written_to (self);

  if (out->len > 0 && self->mode != OTHER && !self->second)
    g_string_truncate (out, g_utf8_prev_char (out->str + out->len) - out->str);
}

/* A new row, or another place in this one. */
static void
move_to (SccReader *self, guint row)
{
  GString *out = written_to (self);

  if (out->len > 0 && strchr (" \n", out->str[out->len - 1]) == NULL)
    append (self, row != self->row ? "\n" : " ");
  self->row = row;
}

static void
set_mode (SccReader *self, Mode mode)
{
  if (mode != self->mode && mode != POP_ON)
    give_shown (self);
  self->mode = mode;
}

static void
command (SccReader *self, guint code)
{
  switch (code) {
  case 0x20:
    set_mode (self, POP_ON);
    break;
  case 0x21:
    delete_last (self);
    break;
  case 0x25:
  case 0x26:
  case 0x27:
    set_mode (self, ROLL_UP);
    break;
  case 0x29:
    give_shown (self);
    set_mode (self, PAINT_ON);
    break;
  case 0x2a:
  case 0x2b:
    self->mode = OTHER;
    break;
  case 0x2c:
    give_shown (self);
    break;
  case 0x2d:
    if (self->mode == ROLL_UP)
      give_shown (self);
    break;
  case 0x2e:
    g_string_truncate (self->loading, 0);
    break;
  case 0x2f:
    give_shown (self);
    g_string_assign (self->shown, self->loading->str);
    g_string_truncate (self->loading, 0);
    self->start = self->now;
    self->mode = POP_ON;
    break;
  default:
    break;
  }
}

static void
read_word (SccReader *self, guint word)
{
  guint first = word >> 8 & 0x7f, second = word & 0x7f;

  if (first >= 0x20 || first < 0x10) {
    const guint characters[] = { first, second };

    self->last = 0;
    for (guint i = 0; i < 2; i++)
      if (characters[i] >= 0x20) {
        const char plain[] = { (char) characters[i], '\0' };
        const char *other = strchr (basic, plain[0]);

        append (self, other != NULL ? basic_as[other - basic] : plain);
      }
    return;
  }
  if (self->last == (first << 8 | second)) {
    self->last = 0;
    return;
  }
  self->last = first << 8 | second;
  self->second = (first & 0x08) != 0;
  if (self->second)
    return;
  if (second >= 0x40)
    move_to (self, first << 1 | (second >> 5 & 1));
  else if (first == 0x11 && second >= 0x30)
    append (self, special[second - 0x30]);
  else if (first == 0x11 && second >= 0x20)
    append (self, " "); /* a change of colour takes a place */
  else if ((first == 0x12 || first == 0x13) && second >= 0x20) {
    delete_last (self);
    append (self, extended[first - 0x12][second - 0x20]);
  } else if ((first == 0x14 || first == 0x15) && second >= 0x20)
    command (self, second);
}

/* "01:02:03:04", or with a semicolon before the frames, where the timecode keeps up with the clock:
 * else its seconds are of thirty frames of 29.97 a second. */
static gboolean
read_timecode (const char **line, guint64 *time)
{
  guint numbers[4];
  const char *at = *line;
  gboolean drop = FALSE;

  for (guint i = 0; i < 4; i++) {
    if (!g_ascii_isdigit (at[0]) || !g_ascii_isdigit (at[1]))
      return FALSE;
    numbers[i] = (at[0] - '0') * 10 + (at[1] - '0');
    at += 2;
    if (i < 3 && *at != ':' && !(i == 2 && strchr (";.,", *at) != NULL && *at != '\0'))
      return FALSE;
    drop |= i == 2 && *at != ':';
    at += i < 3;
  }
  *time = ((numbers[0] * 60 + numbers[1]) * 60 + numbers[2]) * SECOND;
  if (!drop)
    *time += *time / 1000;
  *time += numbers[3] * SECOND * 1001 / 30000;
  *line = at;
  return TRUE;
}

static void
scc_reader_push (LycheeTranscriptReader *reader, const char *line, gsize length)
{
  SccReader *self = (SccReader *) reader;
  guint64 start;

  line += strspn (line, " \t");
  if (!read_timecode (&line, &start))
    return;
  for (guint n = 0; *line != '\0'; n++) {
    guint word = 0, n_digits = 0;

    line += strspn (line, " \t");
    for (; g_ascii_isxdigit (*line); line++, n_digits++)
      word = word << 4 | (guint) g_ascii_xdigit_value (*line);
    self->now = start + n * SECOND * 1001 / 30000;
    if (n_digits == 4)
      read_word (self, word & 0xffff);
    else if (n_digits > 0 || *line != '\0')
      reader->output->report->replaced++;
    while (*line != '\0' && *line != ' ' && *line != '\t')
      line++;
  }
}

static void
scc_reader_finish (LycheeTranscriptReader *reader)
{
  SccReader *self = (SccReader *) reader;

  give_shown (self);
}

static void
scc_reader_free (LycheeTranscriptReader *reader)
{
  SccReader *self = (SccReader *) reader;

  g_string_free (self->loading, TRUE);
  g_string_free (self->shown, TRUE);
  g_free (self);
}

LycheeTranscriptReader *
lychee_transcript_reader_new_scc (LycheeTranscriptOutput *output)
{
  SccReader *self = g_new0 (SccReader, 1);

  self->reader.push = scc_reader_push;
  self->reader.finish = scc_reader_finish;
  self->reader.free = scc_reader_free;
  self->reader.output = output;
  self->loading = g_string_new (NULL);
  self->shown = g_string_new (NULL);
  return &self->reader;
}
