/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-private.h"

#include <string.h>

/**
 * LycheeTranscriptParser:
 *
 * Reads transcripts of any format, in any encoding, in pieces of any size.
 *
 * Bytes go in with [method@Lychee.TranscriptParser.push]; cues come out as soon as they are whole
 * and no other can come before them; [method@Lychee.TranscriptParser.finish] gives the rest. Where
 * the input is cut into pieces makes no difference.
 *
 * Nothing that is said is left out for a fault in what is around it: the cue whose times cannot be
 * read, that ends before it begins, or that comes after a later one, has its text and a sane time.
 * [method@Lychee.TranscriptParser.get_report] tells what was repaired.
 *
 * A cue's text is as the file has it, with its markup; [class@Lychee.Hygiene] takes that out.
 *
 * ## Encoding
 *
 * A byte order mark decides; then whether the bytes are UTF-8; then what the caller asked for; then
 * the encoding of the locale, if that is a legacy one; then what the bytes look like. A few faulty
 * bytes do not make UTF-8 another encoding: each becomes U+FFFD. While a stream goes on, that is
 * decided when the first faulty byte comes, from what came before and a stretch behind it.
 * [class@Lychee.TranscriptSurvey] looks at the whole input first.
 *
 * ## What is speech
 *
 * Where a damaged file can be read in two ways, the one is taken that loses no words:
 *
 * - A line of times begins with a time, behind a number at most, or has only marks and digits
 * before its arrow; "from 00:01 --> 00:02" is said. Another arrow, a dash, a comma or a gap does in
 * its place between times so exact that nobody says them. The line begins a cue also where an empty
 *   line is missing; the words behind its times are the cue's first.
 * - The line before the times is the cue's number where it counts on. It is the cue's name where
 *   others have names, or where it looks like what programs write; else it is said.
 * - A cue whose times cannot be read begins where the one before it ends.
 * - Text before the first cue is said, a moment before it; a style sheet ends with its last brace.
 * - JSON that is broken or ends too early is read as what it was meant to be, as far as it goes;
 * the report tells where. JSON without words is a transcript of nothing.
 * - Plain text that turns out to be a file of another kind, with text before it, is read on as
 * that.
 *
 * ## Order
 *
 * Cues come out in order of the time they begin at. How long one is held for others that may have
 * to go before it is set by [method@Lychee.TranscriptParser.set_patience]; a survey finds out how
 * long is enough.
 *
 * |[<!-- language="C" -->
 * g_autoptr (LycheeTranscriptParser) parser = lychee_transcript_parser_new (0, NULL);
 * g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
 *
 * while ((n = read (fd, buffer, sizeof buffer)) > 0)
 *   lychee_transcript_parser_push (parser, buffer, n, cues);
 * lychee_transcript_parser_finish (parser, cues);
 * ]|
 */

/* Text without a line's end that is looked at to see the format. */
#define DETECTION_LENGTH (64 * 1024)
#define DEFAULT_PATIENCE_TIME G_GUINT64_CONSTANT (2000000000)
#define DEFAULT_PATIENCE_BYTES (16 * 1024 * 1024)
/* Bytes held back behind the first that is not UTF-8, to see what they are: a screenful. */
#define ENCODING_PATIENCE 1024

struct _LycheeTranscriptParser {
  GObject parent;

  LycheeTranscriptFormat requested;
  char *encoding;
  guint64 patience_time;
  gsize patience_bytes;
  LycheeTranscriptSurvey *survey;

  LycheeTranscriptDecoder *decoder;
  LycheeTranscriptFormat format;
  LycheeTranscriptReader *reader;
  LycheeTranscriptOutput output;
  LycheeTranscriptReport report;
  GString *text; /* decoded, not read yet */
  GString *line;
  guint n_returns; /* carriage returns behind the line */
};

G_DEFINE_FINAL_TYPE (LycheeTranscriptParser, lychee_transcript_parser, G_TYPE_OBJECT)

G_DEFINE_ENUM_TYPE (LycheeTranscriptFormat, lychee_transcript_format,
    { LYCHEE_TRANSCRIPT_FORMAT_AUTO, "Found out by reading", "auto" },
    { LYCHEE_TRANSCRIPT_FORMAT_SUBRIP, "SubRip (SRT)", "subrip" },
    { LYCHEE_TRANSCRIPT_FORMAT_WEBVTT, "WebVTT", "webvtt" },
    { LYCHEE_TRANSCRIPT_FORMAT_ASS, "ASS and SSA", "ass" },
    { LYCHEE_TRANSCRIPT_FORMAT_JSON, "JSON, of several kinds", "json" },
    { LYCHEE_TRANSCRIPT_FORMAT_TEXT, "Plain text", "text" },
    { LYCHEE_TRANSCRIPT_FORMAT_XML, "TTML, YouTube's timed text and SAMI", "xml" },
    { LYCHEE_TRANSCRIPT_FORMAT_CSV, "CSV, TSV: a table with titles", "csv" },
    { LYCHEE_TRANSCRIPT_FORMAT_LINES, "MicroDVD, MPL2, LRC", "lines" },
    { LYCHEE_TRANSCRIPT_FORMAT_SCC, "Scenarist's closed captions (SCC)", "scc" })

static void
begin (LycheeTranscriptParser *self)
{
  const char *encoding;
  gboolean guessed;

  self->report = (LycheeTranscriptReport){ 0 };
  self->output.report = &self->report;
  self->output.order = lychee_transcript_order_new (&self->report);
  self->decoder = lychee_transcript_decoder_new (self->encoding, ENCODING_PATIENCE);
  self->format = self->requested;
  if (self->survey != NULL) {
    encoding = lychee_transcript_survey_get_encoding (self->survey, &guessed);
    lychee_transcript_decoder_preset (self->decoder, encoding, guessed);
    lychee_transcript_order_set_patience (self->output.order,
        lychee_transcript_survey_get_disorder (self->survey), self->patience_bytes);
  } else {
    lychee_transcript_order_set_patience (
        self->output.order, self->patience_time, self->patience_bytes);
  }
}

static void
end (LycheeTranscriptParser *self)
{
  if (self->reader != NULL)
    self->reader->free (self->reader);
  self->reader = NULL;
  g_clear_pointer (&self->output.order, lychee_transcript_order_free);
  g_clear_pointer (&self->decoder, lychee_transcript_decoder_free);
  g_clear_pointer (&self->output.language, g_free);
  g_string_truncate (self->text, 0);
  g_string_truncate (self->line, 0);
  self->n_returns = 0;
}

static void
lychee_transcript_parser_init (LycheeTranscriptParser *self)
{
  self->text = g_string_new (NULL);
  self->line = g_string_new (NULL);
  self->patience_time = DEFAULT_PATIENCE_TIME;
  self->patience_bytes = DEFAULT_PATIENCE_BYTES;
}

static void
lychee_transcript_parser_finalize (GObject *object)
{
  LycheeTranscriptParser *self = LYCHEE_TRANSCRIPT_PARSER (object);

  end (self);
  g_string_free (self->text, TRUE);
  g_string_free (self->line, TRUE);
  g_free (self->encoding);
  g_clear_object (&self->survey);
  G_OBJECT_CLASS (lychee_transcript_parser_parent_class)->finalize (object);
}

static void
lychee_transcript_parser_class_init (LycheeTranscriptParserClass *klass)
{
  G_OBJECT_CLASS (klass)->finalize = lychee_transcript_parser_finalize;
}

/**
 * lychee_transcript_parser_new:
 * @format: the format, or %LYCHEE_TRANSCRIPT_FORMAT_AUTO
 * @encoding: (nullable): the encoding of input that is not UTF-8, a name that iconv knows; others
 *   are as %NULL
 *
 * Returns: (transfer full): a parser
 */
LycheeTranscriptParser *
lychee_transcript_parser_new (LycheeTranscriptFormat format, const char *encoding)
{
  LycheeTranscriptParser *self = g_object_new (LYCHEE_TYPE_TRANSCRIPT_PARSER, NULL);

  self->requested = format;
  self->encoding = g_strdup (encoding);
  begin (self);
  return self;
}

/**
 * lychee_transcript_parser_set_patience:
 * @parser: a parser that has read nothing yet
 * @time: nanoseconds by which a later cue must begin after one for that to be handed out
 * @bytes: the most that is held; what does not fit goes out, in order or not
 *
 * Sets how long cues are held to be put in order: 2 s and 16 MiB, unless set. With a survey, the
 * time is what the transcript needs.
 */
void
lychee_transcript_parser_set_patience (LycheeTranscriptParser *parser, guint64 time, gsize bytes)
{
  g_return_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser));

  parser->patience_time = time;
  parser->patience_bytes = bytes;
  lychee_transcript_parser_reset (parser);
}

/**
 * lychee_transcript_parser_set_survey:
 * @parser: a parser that has read nothing yet
 * @survey: (nullable): of the same transcript, ended
 *
 * Lets the parser know what the whole transcript is like.
 */
void
lychee_transcript_parser_set_survey (LycheeTranscriptParser *parser, LycheeTranscriptSurvey *survey)
{
  g_return_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser));

  g_set_object (&parser->survey, survey);
  lychee_transcript_parser_reset (parser);
}

/**
 * lychee_transcript_parser_reset:
 * @parser: a parser
 *
 * Forgets all that was read: the next bytes are the first of a transcript.
 */
void
lychee_transcript_parser_reset (LycheeTranscriptParser *parser)
{
  g_return_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser));

  end (parser);
  begin (parser);
}

static void
start_reader (LycheeTranscriptParser *self, LycheeTranscriptFormat format)
{
  gboolean detected = self->requested == LYCHEE_TRANSCRIPT_FORMAT_AUTO;

  self->format = format;
  switch (format) {
  case LYCHEE_TRANSCRIPT_FORMAT_SUBRIP:
  case LYCHEE_TRANSCRIPT_FORMAT_WEBVTT:
    self->reader = lychee_transcript_reader_new_cues (
        &self->output, format == LYCHEE_TRANSCRIPT_FORMAT_WEBVTT);
    break;
  case LYCHEE_TRANSCRIPT_FORMAT_ASS:
    self->reader = lychee_transcript_reader_new_ass (&self->output);
    break;
  case LYCHEE_TRANSCRIPT_FORMAT_JSON:
    self->reader = lychee_transcript_reader_new_json (&self->output);
    break;
  case LYCHEE_TRANSCRIPT_FORMAT_XML:
    self->reader = lychee_transcript_reader_new_xml (&self->output);
    break;
  case LYCHEE_TRANSCRIPT_FORMAT_CSV:
    self->reader = lychee_transcript_reader_new_table (&self->output);
    break;
  case LYCHEE_TRANSCRIPT_FORMAT_LINES:
    self->reader = lychee_transcript_reader_new_lines (&self->output);
    break;
  case LYCHEE_TRANSCRIPT_FORMAT_SCC:
    self->reader = lychee_transcript_reader_new_scc (&self->output);
    break;
  default:
    self->reader = lychee_transcript_reader_new_text (&self->output, detected);
    break;
  }
}

static void
give_line (LycheeTranscriptParser *self)
{
  self->reader->push (self->reader, self->line->str, self->line->len);
  if (self->reader->becomes != LYCHEE_TRANSCRIPT_FORMAT_AUTO) {
    LycheeTranscriptFormat format = self->reader->becomes;

    self->reader->free (self->reader);
    start_reader (self, format);
    self->reader->push (self->reader, self->line->str, self->line->len);
  }
  g_string_truncate (self->line, 0);
}

static void
give_long_line (LycheeTranscriptParser *self)
{
  while (self->line->len > LYCHEE_LINE_MAX_LENGTH) {
    gsize cut = lychee_transcript_cut (self->line->str, self->line->len, LYCHEE_LINE_MAX_LENGTH);
    g_autofree char *rest = g_strndup (self->line->str + cut, self->line->len - cut);

    g_string_truncate (self->line, cut);
    give_line (self);
    g_string_append (self->line, rest);
  }
}

/* Lines end in a newline, with or without carriage returns before it, or in a carriage return. */
static void
give_lines (LycheeTranscriptParser *self, const char *text)
{
  while (*text != '\0') {
    gsize length = strcspn (text, "\r\n");

    if (length > 0) {
      for (; self->n_returns > 0; self->n_returns--)
        give_line (self);
      g_string_append_len (self->line, text, length);
      give_long_line (self);
      text += length;
    } else if (*text++ == '\r') {
      self->n_returns++;
    } else {
      self->n_returns = 0;
      give_line (self);
    }
  }
}

static void
read_text (LycheeTranscriptParser *self, gboolean at_end)
{
  LycheeTranscriptFormat format = self->format;

  if (self->reader == NULL) {
    if (format == LYCHEE_TRANSCRIPT_FORMAT_AUTO)
      format = lychee_transcript_detect (
          self->text->str, self->text->len, at_end || self->text->len > DETECTION_LENGTH);
    if (format == LYCHEE_TRANSCRIPT_FORMAT_AUTO)
      return;
    start_reader (self, format);
  }
  if (self->reader->takes_text)
    self->reader->push (self->reader, self->text->str, self->text->len);
  else
    give_lines (self, self->text->str);
  g_string_truncate (self->text, 0);
}

/**
 * lychee_transcript_parser_push:
 * @parser: a parser
 * @data: (array length=length) (element-type guint8): the next bytes
 * @length: how many
 * @cues: (element-type Lychee.Cue): where cues are appended, transfer full
 *
 * Reads on.
 */
void
lychee_transcript_parser_push (
    LycheeTranscriptParser *parser, const void *data, gsize length, GPtrArray *cues)
{
  guint n_before;

  g_return_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser));
  g_return_if_fail (data != NULL || length == 0);
  g_return_if_fail (cues != NULL);

  n_before = cues->len;
  parser->output.cues = cues;
  lychee_transcript_decoder_push (parser->decoder, data, length, parser->text);
  if (parser->text->len > 0)
    read_text (parser, FALSE);
  parser->report.cues += cues->len - n_before;
}

/* Gives all that the order holds; @n_before: how many cues there were before the reader gave its.
 */
static void
give_ordered (LycheeTranscriptParser *self, guint n_before)
{
  lychee_transcript_order_drain (self->output.order, self->output.cues);
  self->report.cues += self->output.cues->len - n_before;
}

/**
 * lychee_transcript_parser_release:
 * @parser: a parser
 * @cues: (element-type Lychee.Cue): where cues are appended, transfer full
 *
 * Gives the cues that are held although they are whole; the transcript goes on. One that comes
 * later and belongs before them is out of order.
 */
void
lychee_transcript_parser_release (LycheeTranscriptParser *parser, GPtrArray *cues)
{
  guint n_before;

  g_return_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser));
  g_return_if_fail (cues != NULL);

  n_before = cues->len;
  parser->output.cues = cues;
  if (parser->reader != NULL && parser->reader->release != NULL)
    parser->reader->release (parser->reader);
  give_ordered (parser, n_before);
}

/**
 * lychee_transcript_parser_finish:
 * @parser: a parser
 * @cues: (element-type Lychee.Cue): where cues are appended, transfer full
 *
 * Ends the transcript: gives all cues that were held. What the parser found stays known until it is
 * reset, which must be done before more is pushed.
 */
void
lychee_transcript_parser_finish (LycheeTranscriptParser *parser, GPtrArray *cues)
{
  guint n_before;

  g_return_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser));
  g_return_if_fail (cues != NULL);

  n_before = cues->len;
  parser->output.cues = cues;
  lychee_transcript_decoder_finish (parser->decoder, parser->text);
  read_text (parser, TRUE);
  if (parser->reader != NULL) {
    if (!parser->reader->takes_text && (parser->line->len > 0 || parser->n_returns > 0))
      give_line (parser);
    parser->n_returns = 0;
    parser->reader->finish (parser->reader);
  }
  give_ordered (parser, n_before);
}

/**
 * lychee_transcript_parser_get_format:
 * @parser: a parser
 *
 * Returns: the format, %LYCHEE_TRANSCRIPT_FORMAT_AUTO where it is not known yet
 */
LycheeTranscriptFormat
lychee_transcript_parser_get_format (LycheeTranscriptParser *parser)
{
  g_return_val_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser), LYCHEE_TRANSCRIPT_FORMAT_AUTO);

  return parser->format;
}

/**
 * lychee_transcript_parser_get_language:
 * @parser: a parser
 *
 * Returns: (nullable): the language as the transcript names it, until the parser is reset
 */
const char *
lychee_transcript_parser_get_language (LycheeTranscriptParser *parser)
{
  g_return_val_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser), NULL);

  return parser->output.language;
}

/**
 * lychee_transcript_parser_get_report: (skip)
 * @parser: a parser
 *
 * Returns: what the parser met with since it was new or reset
 */
LycheeTranscriptReport
lychee_transcript_parser_get_report (LycheeTranscriptParser *parser)
{
  LycheeTranscriptReport report = { 0 };

  g_return_val_if_fail (LYCHEE_IS_TRANSCRIPT_PARSER (parser), report);

  report = parser->report;
  lychee_transcript_decoder_report (parser->decoder, &report);
  return report;
}

void
lychee_transcript_parser_preset_encoding (
    LycheeTranscriptParser *parser, const char *encoding, gboolean guessed)
{
  lychee_transcript_decoder_preset (parser->decoder, encoding, guessed);
}

guint64
lychee_transcript_parser_get_disorder (LycheeTranscriptParser *parser)
{
  return lychee_transcript_order_get_disorder (parser->output.order);
}

guint64
lychee_transcript_parser_get_end_time (LycheeTranscriptParser *parser)
{
  return lychee_transcript_order_get_end_time (parser->output.order);
}
