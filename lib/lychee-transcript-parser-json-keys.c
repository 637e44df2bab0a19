/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-json-keys.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LENGTH 32

typedef struct {
  const char *name;
  LycheeJsonKey key;
  LycheeJsonUnit unit;
} Entry;

#define KEY(name, key)                                                                             \
  {                                                                                                \
    name, LYCHEE_JSON_KEY_##key, LYCHEE_JSON_UNKNOWN                                               \
  }
#define TIME(name, key, unit)                                                                      \
  {                                                                                                \
    name, LYCHEE_JSON_KEY_##key, LYCHEE_JSON_##unit                                                \
  }

/* In order of their names. */
static const Entry entries[] = {
  KEY ("actionitems", IGNORED),
  KEY ("alternatives", ALTERNATIVES),
  KEY ("autohighlightsresult", IGNORED),
  KEY ("begin", START),
  TIME ("beginoffsetmillis", START, MILLISECONDS),
  KEY ("body", TEXT),
  KEY ("caption", TEXT),
  KEY ("chapters", IGNORED),
  KEY ("characters", IGNORED),
  KEY ("chars", IGNORED),
  KEY ("content", TEXT),
  KEY ("contentsafetylabels", IGNORED),
  TIME ("ddurationms", DURATION, MILLISECONDS),
  KEY ("display", TEXT),
  KEY ("displayname", NAME),
  KEY ("displaytext", TEXT),
  KEY ("dur", DURATION),
  KEY ("duration", DURATION),
  TIME ("durationinticks", DURATION, TICKS),
  TIME ("durationmilliseconds", DURATION, MILLISECONDS),
  TIME ("durationms", DURATION, MILLISECONDS),
  KEY ("elements", WORDS),
  KEY ("end", END),
  TIME ("endms", END, MILLISECONDS),
  KEY ("endoffset", END_OFFSET),
  TIME ("endoffsetmillis", END, MILLISECONDS),
  KEY ("endtime", END),
  TIME ("endtimems", END, MILLISECONDS),
  KEY ("endtimestamp", END),
  KEY ("endts", END),
  KEY ("entities", IGNORED),
  KEY ("final", FINAL),
  KEY ("from", START),
  KEY ("fullname", NAME),
  KEY ("highlights", IGNORED),
  KEY ("hypotheses", ALTERNATIVES),
  KEY ("iabcategoriesresult", IGNORED),
  KEY ("intents", IGNORED),
  KEY ("isfinal", FINAL),
  KEY ("ispartial", PARTIAL),
  KEY ("items", WORDS),
  KEY ("keywords", IGNORED),
  KEY ("keywordsresult", IGNORED),
  KEY ("lang", LANGUAGE),
  KEY ("language", LANGUAGE),
  KEY ("languagecode", LANGUAGE),
  KEY ("messagetype", TYPE),
  KEY ("name", NAME),
  KEY ("nanos", NANOS),
  KEY ("nbest", ALTERNATIVES),
  KEY ("offset", START),
  TIME ("offsetinticks", START, TICKS),
  TIME ("offsetmilliseconds", START, MILLISECONDS),
  KEY ("offsets", OFFSETS),
  KEY ("partial", PARTIAL),
  KEY ("participant", SPEAKER),
  KEY ("participantid", SPEAKER_ID),
  KEY ("participantrole", SPEAKER),
  KEY ("phones", IGNORED),
  KEY ("punctuatedword", WORD),
  KEY ("relative", SECONDS),
  KEY ("result", WORDS),
  KEY ("seconds", SECONDS),
  KEY ("segs", WORDS),
  KEY ("sentence", TEXT),
  KEY ("sentimentanalysisresults", IGNORED),
  KEY ("sentiments", IGNORED),
  KEY ("speaker", SPEAKER),
  KEY ("speakerdisplayname", SPEAKER_NAME),
  KEY ("speakerid", SPEAKER_ID),
  KEY ("speakerlabel", SPEAKER_ID),
  KEY ("speakername", SPEAKER_NAME),
  KEY ("speakertag", SPEAKER_ID),
  KEY ("spk", SPEAKER_ID),
  KEY ("spokenform", IGNORED),
  KEY ("start", START),
  TIME ("startms", START, MILLISECONDS),
  KEY ("startoffset", START_OFFSET),
  KEY ("starttime", START),
  TIME ("starttimems", START, MILLISECONDS),
  KEY ("starttimestamp", START),
  KEY ("stop", END),
  KEY ("summary", IGNORED),
  KEY ("text", TEXT),
  KEY ("timestamp", TIMESTAMP),
  KEY ("timestamps", TIMESTAMP),
  KEY ("to", END),
  KEY ("tokens", TOKENS),
  KEY ("topics", IGNORED),
  KEY ("transcript", TEXT),
  KEY ("translation", IGNORED),
  KEY ("translations", IGNORED),
  KEY ("ts", START),
  TIME ("tstartms", START, MILLISECONDS),
  KEY ("type", TYPE),
  KEY ("utf8", PIECE),
  KEY ("utterance", TEXT),
  KEY ("value", PIECE),
  KEY ("word", WORD),
  KEY ("wordalternatives", IGNORED),
  KEY ("words", WORDS),
  KEY ("wordsegments", WORDS),
  KEY ("writtenform", IGNORED),
};

static int
compare (const void *name, const void *entry)
{
  return strcmp (name, ((const Entry *) entry)->name);
}

LycheeJsonKey
lychee_json_key_lookup (const char *key, LycheeJsonUnit *unit)
{
  char name[MAX_LENGTH];
  gsize length = 0;
  const Entry *entry;

  *unit = LYCHEE_JSON_UNKNOWN;
  if (key == NULL)
    return LYCHEE_JSON_KEY_NONE;
  /* .NET's names and unit. */
  if (strcmp (key, "Offset") == 0 || strcmp (key, "Duration") == 0)
    *unit = LYCHEE_JSON_TICKS;
  for (; *key != '\0'; key++) {
    if (strchr ("_- ", *key) != NULL)
      continue;
    if (length == sizeof name - 1)
      return LYCHEE_JSON_KEY_NONE;
    name[length++] = g_ascii_tolower (*key);
  }
  name[length] = '\0';
  entry = bsearch (name, entries, G_N_ELEMENTS (entries), sizeof entries[0], compare);
  if (entry == NULL)
    return LYCHEE_JSON_KEY_NONE;
  if (entry->unit != LYCHEE_JSON_UNKNOWN)
    *unit = entry->unit;
  return entry->key;
}
