/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

/**
 * LycheeTranscriptFormat:
 * @LYCHEE_TRANSCRIPT_FORMAT_AUTO: what the content shows
 * @LYCHEE_TRANSCRIPT_FORMAT_SUBRIP: SubRip
 * @LYCHEE_TRANSCRIPT_FORMAT_WEBVTT: WebVTT
 * @LYCHEE_TRANSCRIPT_FORMAT_ASS: Advanced SubStation Alpha, and SSA
 * @LYCHEE_TRANSCRIPT_FORMAT_JSON: what speech recognisers write: segments, or words with times
 * @LYCHEE_TRANSCRIPT_FORMAT_TEXT: plain text, a cue a line
 * @LYCHEE_TRANSCRIPT_FORMAT_XML: TTML, other subtitles in XML, SAMI
 * @LYCHEE_TRANSCRIPT_FORMAT_CSV: a table with commas, semicolons or tabs, whose titles name text,
 *   times, speakers
 * @LYCHEE_TRANSCRIPT_FORMAT_LINES: subtitles of a line each: MicroDVD, MPL2, LRC
 * @LYCHEE_TRANSCRIPT_FORMAT_SCC: Scenarist's closed captions
 *
 * How a transcript is written down.
 */
typedef enum {
  LYCHEE_TRANSCRIPT_FORMAT_AUTO,
  LYCHEE_TRANSCRIPT_FORMAT_SUBRIP,
  LYCHEE_TRANSCRIPT_FORMAT_WEBVTT,
  LYCHEE_TRANSCRIPT_FORMAT_ASS,
  LYCHEE_TRANSCRIPT_FORMAT_JSON,
  LYCHEE_TRANSCRIPT_FORMAT_TEXT,
  LYCHEE_TRANSCRIPT_FORMAT_XML,
  LYCHEE_TRANSCRIPT_FORMAT_CSV,
  LYCHEE_TRANSCRIPT_FORMAT_LINES,
  LYCHEE_TRANSCRIPT_FORMAT_SCC,
} LycheeTranscriptFormat;

#define LYCHEE_TYPE_TRANSCRIPT_FORMAT (lychee_transcript_format_get_type ())
LYCHEE_API GType lychee_transcript_format_get_type (void);

/**
 * LycheeCueMarkup:
 * @LYCHEE_CUE_MARKUP_NONE: the text is plain
 * @LYCHEE_CUE_MARKUP_SUBRIP: the tags that players of SubRip know, and entities
 * @LYCHEE_CUE_MARKUP_WEBVTT: any tag, voices, entities
 * @LYCHEE_CUE_MARKUP_ASS: override blocks in braces
 *
 * What a cue's text is mixed with.
 */
typedef enum {
  LYCHEE_CUE_MARKUP_NONE,
  LYCHEE_CUE_MARKUP_SUBRIP,
  LYCHEE_CUE_MARKUP_WEBVTT,
  LYCHEE_CUE_MARKUP_ASS,
} LycheeCueMarkup;

/**
 * LycheeCueFlags:
 * @LYCHEE_CUE_PARAGRAPH: a paragraph begins with it: there is an empty line before, or the source
 *   marks a new topic
 * @LYCHEE_CUE_CONTINUES: its text goes on in the next cue, without a line's end: it was too long
 * @LYCHEE_CUE_PARTIAL: a recogniser's hypothesis that a later cue replaces
 * @LYCHEE_CUE_LABELLED: the text begins with the speaker's label
 */
typedef enum {
  LYCHEE_CUE_PARAGRAPH = 1 << 0,
  LYCHEE_CUE_CONTINUES = 1 << 1,
  LYCHEE_CUE_PARTIAL = 1 << 2,
  LYCHEE_CUE_LABELLED = 1 << 3,
} LycheeCueFlags;

#define LYCHEE_TYPE_CUE (lychee_cue_get_type ())

/**
 * LycheeCue:
 * @text: what is said, valid UTF-8; lines are parted by newlines
 * @speaker: (nullable): who says it
 * @start: when, in nanoseconds, or %LYCHEE_TIME_NONE
 * @end: until when, or %LYCHEE_TIME_NONE; never before @start
 * @markup: what @text is mixed with
 * @flags: #LycheeCueFlags
 *
 * A piece of a transcript that has a time of its own.
 */
typedef struct {
  char *text;
  char *speaker;
  guint64 start;
  guint64 end;
  LycheeCueMarkup markup;
  guint flags;
} LycheeCue;

LYCHEE_API GType lychee_cue_get_type (void);
LYCHEE_API LycheeCue *lychee_cue_new (
    const char *text, gssize length, const char *speaker, guint64 start, guint64 end);
LYCHEE_API LycheeCue *lychee_cue_copy (const LycheeCue *cue);
LYCHEE_API void lychee_cue_free (LycheeCue *cue);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeCue, lychee_cue_free)

/**
 * LycheeTranscriptReport:
 * @cues: cues handed out
 * @empty: cues without text, left out
 * @replaced: bytes or characters that the encoding does not have, read as U+FFFD
 * @controls: NUL and other control characters, left out
 * @untimed: times that could not be read
 * @backward: cues that ended before they began, or at once: their end is an estimate
 * @reordered: cues that came after a later one, and were put in order
 * @late: cues that came too late for that, and are out of order
 * @restarts: times that the numbering and the clock began anew, as in files put together
 * @encoding: (nullable): the encoding that was settled on, static; NULL where all was ASCII so far
 * @guessed: @encoding is a guess from the bytes
 * @binary: the beginning is no text, whatever the encoding: a program, sound, a compressed file
 * @document: (nullable): what kind of file that is, where it may have a transcript inside, static
 * @fault: (nullable): what is wrong where the syntax of the format, JSON, is broken first, static
 * @fault_line: the line of that place, from 1
 * @fault_column: its character in the line, from 1
 *
 * What a parser met with, so far.
 */
typedef struct {
  guint64 cues;
  guint64 empty;
  guint64 replaced;
  guint64 controls;
  guint64 untimed;
  guint64 backward;
  guint64 reordered;
  guint64 late;
  guint64 restarts;
  const char *encoding;
  gboolean guessed;
  gboolean binary;
  const char *document;
  const char *fault;
  guint64 fault_line;
  guint64 fault_column;
} LycheeTranscriptReport;

#define LYCHEE_TYPE_TRANSCRIPT_SURVEY (lychee_transcript_survey_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (
    LycheeTranscriptSurvey, lychee_transcript_survey, LYCHEE, TRANSCRIPT_SURVEY, GObject)

#define LYCHEE_TYPE_TRANSCRIPT_PARSER (lychee_transcript_parser_get_type ())
LYCHEE_API
G_DECLARE_FINAL_TYPE (
    LycheeTranscriptParser, lychee_transcript_parser, LYCHEE, TRANSCRIPT_PARSER, GObject)

/* Reading. @encoding: (nullable): the name of an encoding, for input that is not UTF-8. */
LYCHEE_API LycheeTranscriptParser *lychee_transcript_parser_new (
    LycheeTranscriptFormat format, const char *encoding);
LYCHEE_API gboolean lychee_transcript_encoding_is_known (const char *encoding);
LYCHEE_API void lychee_transcript_parser_set_patience (
    LycheeTranscriptParser *parser, guint64 time, gsize bytes);
LYCHEE_API void lychee_transcript_parser_set_survey (
    LycheeTranscriptParser *parser, LycheeTranscriptSurvey *survey);
LYCHEE_API void lychee_transcript_parser_push (
    LycheeTranscriptParser *parser, const void *data, gsize length, GPtrArray *cues);
LYCHEE_API void lychee_transcript_parser_release (LycheeTranscriptParser *parser, GPtrArray *cues);
LYCHEE_API void lychee_transcript_parser_finish (LycheeTranscriptParser *parser, GPtrArray *cues);
LYCHEE_API void lychee_transcript_parser_reset (LycheeTranscriptParser *parser);

/* Without a parser. */
LYCHEE_API LycheeTranscriptFormat lychee_transcript_recognise (const void *data, gsize length);
LYCHEE_API LycheeCue *lychee_transcript_parse_dialogue (const char *line, gsize length);
LYCHEE_API LycheeCue *lychee_transcript_parse_text (const char *text, gsize length);

/* What it found. */
LYCHEE_API LycheeTranscriptFormat lychee_transcript_parser_get_format (
    LycheeTranscriptParser *parser);
LYCHEE_API const char *lychee_transcript_parser_get_language (LycheeTranscriptParser *parser);
LYCHEE_API LycheeTranscriptReport lychee_transcript_parser_get_report (
    LycheeTranscriptParser *parser);

/* Looking a whole transcript over before it is read. */
LYCHEE_API LycheeTranscriptSurvey *lychee_transcript_survey_new (
    LycheeTranscriptFormat format, const char *encoding);
LYCHEE_API void lychee_transcript_survey_push (
    LycheeTranscriptSurvey *survey, const void *data, gsize length);
LYCHEE_API gboolean lychee_transcript_survey_end (LycheeTranscriptSurvey *survey);
LYCHEE_API guint64 lychee_transcript_survey_get_end_time (LycheeTranscriptSurvey *survey);

G_END_DECLS
