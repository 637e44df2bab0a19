/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-transcript-parser.h"

G_BEGIN_DECLS

/* The parts of the parser: bytes -> LycheeTranscriptDecoder -> text -> LycheeTranscriptReader, one
 * a format -> cues -> LycheeTranscriptOrder -> cues in order of time. */

/* Encodings: lychee-transcript-parser-encoding.c. */

typedef struct _LycheeTranscriptDecoder LycheeTranscriptDecoder;

/* Counts over bytes read as UTF-8. */
typedef struct {
  guint64 n_valid;  /* characters of two bytes or more */
  guint64 n_broken; /* maximal parts of a character that are none */
} LycheeUtf8Counts;

/* @patience: bytes that may be held back, from the first that is not UTF-8 on, to decide on the
 * encoding. */
LycheeTranscriptDecoder *lychee_transcript_decoder_new (const char *encoding, gsize patience);
void lychee_transcript_decoder_free (LycheeTranscriptDecoder *decoder);
/* What is known beforehand: a static name, as lychee_transcript_decoder_get_encoding() gives. */
void lychee_transcript_decoder_preset (
    LycheeTranscriptDecoder *decoder, const char *encoding, gboolean guessed);
/* Appends valid UTF-8 without NUL to @text. */
void lychee_transcript_decoder_push (
    LycheeTranscriptDecoder *decoder, const guint8 *data, gsize length, GString *text);
void lychee_transcript_decoder_finish (LycheeTranscriptDecoder *decoder, GString *text);
void lychee_transcript_decoder_report (
    LycheeTranscriptDecoder *decoder, LycheeTranscriptReport *report);

/* Over a whole input: its encoding, decided as the decoder would if it held back all. */
typedef struct _LycheeEncodingSurvey LycheeEncodingSurvey;
LycheeEncodingSurvey *lychee_encoding_survey_new (const char *encoding);
void lychee_encoding_survey_free (LycheeEncodingSurvey *survey);
void lychee_encoding_survey_push (LycheeEncodingSurvey *survey, const guint8 *data, gsize length);
/* (nullable): NULL where a byte order mark decides, or nothing needs to. */
const char *lychee_encoding_survey_end (LycheeEncodingSurvey *survey, gboolean *guessed);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeTranscriptDecoder, lychee_transcript_decoder_free)

/* Times: lychee-transcript-parser-times.c. */

/* Reads a time such as 01:02:03,450, 2:03.45 or 3.5 at @text and moves on; FALSE where there is
 * none. Negative times give 0. */
gboolean lychee_transcript_parse_time (const char **text, guint64 *time);
/* Whether @line, without a newline, is one that a cue's times are in. @start, @end: what could be
 * read of them, else LYCHEE_TIME_NONE; @rest: what follows. */
gboolean lychee_transcript_parse_times (
    const char *line, guint64 *start, guint64 *end, const char **rest);
/* Over what is about where the cue is shown, in @rest, which is behind a cue's times. */
const char *lychee_transcript_skip_settings (const char *rest);

/* Order: lychee-transcript-parser-order.c. */

typedef struct _LycheeTranscriptOrder LycheeTranscriptOrder;
LycheeTranscriptOrder *lychee_transcript_order_new (LycheeTranscriptReport *report);
void lychee_transcript_order_free (LycheeTranscriptOrder *order);
void lychee_transcript_order_set_patience (LycheeTranscriptOrder *order, guint64 time, gsize bytes);
/* Takes the cue; appends to @cues those that no later one can come before. */
void lychee_transcript_order_add (LycheeTranscriptOrder *order, LycheeCue *cue, GPtrArray *cues);
/* The cues that come do not belong among those that came. */
void lychee_transcript_order_restart (LycheeTranscriptOrder *order, GPtrArray *cues);
void lychee_transcript_order_drain (LycheeTranscriptOrder *order, GPtrArray *cues);
/* How much earlier than one before it a cue began, at most. */
guint64 lychee_transcript_order_get_disorder (LycheeTranscriptOrder *order);
guint64 lychee_transcript_order_get_end_time (LycheeTranscriptOrder *order);

/* Formats. */

typedef struct _LycheeTranscriptReader LycheeTranscriptReader;

/* What a reader gives cues and findings to. */
typedef struct {
  LycheeTranscriptOrder *order;
  GPtrArray *cues;
  LycheeTranscriptReport *report;
  char *language;
} LycheeTranscriptOutput;

struct _LycheeTranscriptReader {
  /* A line without its newline; or text, where a format is not one of lines. */
  void (*push) (LycheeTranscriptReader *reader, const char *text, gsize length);
  void (*finish) (LycheeTranscriptReader *reader);
  /* (nullable) Gives what is held although it looks whole: nothing may come behind it for long. */
  void (*release) (LycheeTranscriptReader *reader);
  void (*free) (LycheeTranscriptReader *reader);
  LycheeTranscriptOutput *output;
  gboolean takes_text;
  /* What text turned out to be at the last line, which the reader of that format is to read. */
  LycheeTranscriptFormat becomes;
};

LycheeTranscriptReader *lychee_transcript_reader_new_cues (
    LycheeTranscriptOutput *output, gboolean webvtt);
LycheeTranscriptReader *lychee_transcript_reader_new_text (
    LycheeTranscriptOutput *output, gboolean may_be_other);

LycheeTranscriptReader *lychee_transcript_reader_new_ass (LycheeTranscriptOutput *output);
LycheeTranscriptReader *lychee_transcript_reader_new_json (LycheeTranscriptOutput *output);
LycheeTranscriptReader *lychee_transcript_reader_new_xml (LycheeTranscriptOutput *output);
LycheeTranscriptReader *lychee_transcript_reader_new_table (LycheeTranscriptOutput *output);
LycheeTranscriptReader *lychee_transcript_reader_new_lines (LycheeTranscriptOutput *output);
LycheeTranscriptReader *lychee_transcript_reader_new_scc (LycheeTranscriptOutput *output);

/* What one line shows a text to be; AUTO where it shows nothing. */
LycheeTranscriptFormat lychee_transcript_format_of_line (const char *line);
/* AUTO where more text is needed; never so with @at_end. */
LycheeTranscriptFormat lychee_transcript_detect (const char *text, gsize length, gboolean at_end);
/* Likewise: whether it is one of these, else TEXT. */
LycheeTranscriptFormat lychee_transcript_detect_table (
    const char *text, gsize length, gboolean at_end);
LycheeTranscriptFormat lychee_transcript_detect_lines (
    const char *text, gsize length, gboolean at_end);
/* Whether @line has the titles of a table of what is said when, so many that it is nothing else. */
gboolean lychee_transcript_is_table_head (const char *line);

/* The longest text of one cue; what is longer goes on in further cues with the same times. */
#define LYCHEE_CUE_MAX_LENGTH (2 * 1024 * 1024)
/* The longest line; what is longer is given in pieces. */
#define LYCHEE_LINE_MAX_LENGTH (1024 * 1024)

/* Where to cut @text, of at most @max bytes: behind white space, else behind a mark that ends a
 * clause, else between two characters. */
gsize lychee_transcript_cut (const char *text, gsize length, gsize max);
/* Whether @text consists of spaces (and what shows nothing) alone. */
gboolean lychee_transcript_is_blank (const char *text, gsize length);
gboolean lychee_transcript_is_number (const char *text, gsize length, guint64 *number);

/* Between parser and survey. */
void lychee_transcript_parser_preset_encoding (
    LycheeTranscriptParser *parser, const char *encoding, gboolean guessed);
guint64 lychee_transcript_parser_get_disorder (LycheeTranscriptParser *parser);
guint64 lychee_transcript_parser_get_end_time (LycheeTranscriptParser *parser);
const char *lychee_transcript_survey_get_encoding (
    LycheeTranscriptSurvey *survey, gboolean *guessed);
guint64 lychee_transcript_survey_get_disorder (LycheeTranscriptSurvey *survey);

G_END_DECLS
