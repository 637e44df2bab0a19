/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-transcript-parser.h"

G_BEGIN_DECLS

/* Times as JSON has them, lists of words with times, and who speaks when. */

typedef enum {
  LYCHEE_JSON_UNKNOWN, /* a whole number: seconds or milliseconds */
  LYCHEE_JSON_SECONDS,
  LYCHEE_JSON_MILLISECONDS,
  LYCHEE_JSON_TICKS, /* of 100 ns */
  LYCHEE_JSON_DATE,  /* seconds since 1970 */
} LycheeJsonUnit;

typedef struct {
  double value;
  LycheeJsonUnit unit;
  gboolean known;
} LycheeJsonTime;

/* What times that are dates count from: the first of them. */
typedef struct {
  double seconds; /* since 1970 */
  gboolean known;
  gboolean relative; /* there are times that are no dates */
} LycheeJsonOrigin;

/* @unit: of a plain number. Reads "12.5", "12.5s", "00:12.5", "PT12.5S", dates. */
gboolean lychee_json_time_parse (const char *text, LycheeJsonUnit unit, LycheeJsonTime *time);
/* A date, or a number that can only be one, becomes a time since the first. */
void lychee_json_time_make_relative (LycheeJsonTime *time, LycheeJsonOrigin *origin);
LycheeJsonTime lychee_json_time_add (const LycheeJsonTime *start, const LycheeJsonTime *duration);

/* Who speaks from when on. */
typedef struct _LycheeJsonTurns LycheeJsonTurns;
LycheeJsonTurns *lychee_json_turns_new (void);
void lychee_json_turns_free (LycheeJsonTurns *turns);
void lychee_json_turns_add (
    LycheeJsonTurns *turns, const LycheeJsonTime *start, const char *speaker);
gboolean lychee_json_turns_is_empty (LycheeJsonTurns *turns);
/* Gives cues without a speaker theirs. */
void lychee_json_turns_apply (LycheeJsonTurns *turns, GPtrArray *cues, gboolean milliseconds);

typedef struct {
  const char *text;
  const char *speaker; /* (nullable) */
  LycheeJsonTime start;
  LycheeJsonTime end;
  gboolean punctuation; /* belongs to the word before */
  gboolean verbatim;    /* brings its spaces with it */
  gboolean fragment;    /* may be part of a word; verbatim */
} LycheeJsonWord;

typedef struct _LycheeJsonWords LycheeJsonWords;

LycheeJsonWords *lychee_json_words_new (void);
void lychee_json_words_free (LycheeJsonWords *words);
guint lychee_json_words_get_n (LycheeJsonWords *words);
void lychee_json_words_add (LycheeJsonWords *words, const LycheeJsonWord *word);
void lychee_json_words_append (LycheeJsonWords *words, LycheeJsonWords *more);
/* Those that have no speaker have this one. */
void lychee_json_words_inherit (LycheeJsonWords *words, const char *speaker);
/* Fills in the times that are not known. */
void lychee_json_words_get_span (
    LycheeJsonWords *words, LycheeJsonTime *start, LycheeJsonTime *end);
/* The times of words that have none of their own. */
void lychee_json_words_set_span (
    LycheeJsonWords *words, const LycheeJsonTime *start, const LycheeJsonTime *end);
/* Those that have no speaker have the one of their time. */
void lychee_json_words_set_speakers (
    LycheeJsonWords *words, LycheeJsonTurns *turns, gboolean milliseconds);
/* (nullable): who says all of them */
const char *lychee_json_words_get_speaker (LycheeJsonWords *words);
/* Whether the words are better than @text, which is the same with its punctuation, as a whole: who
 * speaks changes within it, or, where it is @untimed, it is long. The words are those of the text
 * then. */
gboolean lychee_json_words_replace (LycheeJsonWords *words, const char *text, gboolean untimed);
/* Removes words from the beginning, as cues: sentences, or what is said without a pause. Without
 * @all, those that may go on stay. @milliseconds: in and out, whether whole numbers are. */
void lychee_json_words_group (LycheeJsonWords *words, const char *speaker, gboolean *milliseconds,
    gboolean all, GPtrArray *cues);

LycheeCue *lychee_json_cue_new (const char *text, const char *speaker, const LycheeJsonTime *start,
    const LycheeJsonTime *end, gboolean *milliseconds);

G_END_DECLS
