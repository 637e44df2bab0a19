/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-transcript-parser-json-words.h"

G_BEGIN_DECLS

/* What the members of recognisers' objects are, by their names. */

typedef enum {
  LYCHEE_JSON_KEY_NONE,
  LYCHEE_JSON_KEY_TEXT,
  LYCHEE_JSON_KEY_WORD,
  LYCHEE_JSON_KEY_PIECE, /* a text to be put behind the one before as it is */
  LYCHEE_JSON_KEY_START,
  LYCHEE_JSON_KEY_END,
  LYCHEE_JSON_KEY_DURATION,
  LYCHEE_JSON_KEY_START_OFFSET, /* a time, or a place in the text, where there is a time besides */
  LYCHEE_JSON_KEY_END_OFFSET,
  LYCHEE_JSON_KEY_SPEAKER_ID,
  LYCHEE_JSON_KEY_SPEAKER,
  LYCHEE_JSON_KEY_SPEAKER_NAME, /* better than the two before */
  LYCHEE_JSON_KEY_NAME,         /* of a speaker, in an object that is one */
  LYCHEE_JSON_KEY_LANGUAGE,
  LYCHEE_JSON_KEY_PARTIAL,
  LYCHEE_JSON_KEY_FINAL,
  LYCHEE_JSON_KEY_TYPE,
  LYCHEE_JSON_KEY_OFFSETS,   /* an object that has the times */
  LYCHEE_JSON_KEY_TIMESTAMP, /* an array of start and end, or of arrays of word, start and end */
  LYCHEE_JSON_KEY_SECONDS,   /* of an object that is a time */
  LYCHEE_JSON_KEY_NANOS,
  LYCHEE_JSON_KEY_WORDS,
  LYCHEE_JSON_KEY_TOKENS, /* words, or pieces of words, with their spaces */
  LYCHEE_JSON_KEY_ALTERNATIVES,
  LYCHEE_JSON_KEY_IGNORED, /* what a machine makes of a transcript, and other texts */
} LycheeJsonKey;

/* @key: (nullable). Case, dashes and underscores make no difference. @unit: of a time. */
LycheeJsonKey lychee_json_key_lookup (const char *key, LycheeJsonUnit *unit);

G_END_DECLS
