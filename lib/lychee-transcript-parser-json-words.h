/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-transcript-parser.h"

G_BEGIN_DECLS

/* Times as JSON has them, and lists of words with times. */

typedef enum {
  LYCHEE_JSON_UNKNOWN, /* a whole number: seconds or milliseconds */
  LYCHEE_JSON_SECONDS,
  LYCHEE_JSON_MILLISECONDS,
} LycheeJsonUnit;

typedef struct {
  double value;
  LycheeJsonUnit unit;
  gboolean known;
} LycheeJsonTime;

gboolean lychee_json_time_parse (const char *text, gboolean milliseconds, LycheeJsonTime *time);

typedef struct {
  const char *text;
  const char *speaker; /* (nullable) */
  LycheeJsonTime start;
  LycheeJsonTime end;
  gboolean punctuation; /* belongs to the word before */
  gboolean verbatim;    /* brings its spaces with it */
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
/* Puts the words of a text, which has punctuation, in the place of those that have times. FALSE
 * where they are not the same words, or so few that the text is better left whole. */
gboolean lychee_json_words_give_times (
    LycheeJsonWords *words, const char *text, const char *speaker);
/* Removes words from the beginning, as cues: sentences, or what is said without a pause. Without
 * @all, those that may go on stay. @milliseconds: in and out, whether whole numbers are. */
void lychee_json_words_group (LycheeJsonWords *words, const char *speaker, gboolean *milliseconds,
    gboolean all, GPtrArray *cues);

LycheeCue *lychee_json_cue_new (const char *text, const char *speaker, const LycheeJsonTime *start,
    const LycheeJsonTime *end, gboolean *milliseconds);

G_END_DECLS
