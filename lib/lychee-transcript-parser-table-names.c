/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-transcript-parser-table.h"

#include <string.h>

/* What the columns of a table are, by their names. */

typedef struct {
  const char *name;
  LycheeTableRole role;
  gboolean weak; /* there are tables of other things that have such a column */
} Entry;

#define TEXT(name)                                                                                 \
  {                                                                                                \
    name, LYCHEE_TABLE_TEXT, FALSE                                                                 \
  }
#define SPEAKER(name)                                                                              \
  {                                                                                                \
    name, LYCHEE_TABLE_SPEAKER, FALSE                                                              \
  }
#define START(name)                                                                                \
  {                                                                                                \
    name, LYCHEE_TABLE_START, FALSE                                                                \
  }
#define END(name)                                                                                  \
  {                                                                                                \
    name, LYCHEE_TABLE_END, FALSE                                                                  \
  }
#define WEAK(name, role)                                                                           \
  {                                                                                                \
    name, LYCHEE_TABLE_##role, TRUE                                                                \
  }

static const Entry entries[] = {
  TEXT ("text"),
  TEXT ("transcript"),
  TEXT ("transcription"),
  TEXT ("sentence"),
  TEXT ("utterance"),
  TEXT ("caption"),
  TEXT ("captions"),
  TEXT ("subtitle"),
  TEXT ("subtitles"),
  TEXT ("dialogue"),
  TEXT ("dialog"),
  TEXT ("speech"),
  TEXT ("spokenwords"),
  TEXT ("texto"),
  TEXT ("texte"),
  TEXT ("testo"),
  TEXT ("tekst"),
  TEXT ("transkript"),
  TEXT ("transkription"),
  TEXT ("transcripción"),
  TEXT ("transcrição"),
  TEXT ("trascrizione"),
  TEXT ("текст"),
  TEXT ("文本"),
  TEXT ("文字"),
  TEXT ("字幕"),
  TEXT ("テキスト"),
  TEXT ("発言"),
  TEXT ("発言内容"),
  TEXT ("텍스트"),
  WEAK ("content", TEXT),
  WEAK ("message", TEXT),
  WEAK ("body", TEXT),
  WEAK ("line", TEXT),
  WEAK ("phrase", TEXT),
  WEAK ("comment", TEXT),
  WEAK ("words", TEXT),
  WEAK ("inhalt", TEXT),
  WEAK ("nachricht", TEXT),
  WEAK ("contenu", TEXT),
  WEAK ("contenido", TEXT),
  WEAK ("mensaje", TEXT),
  WEAK ("内容", TEXT),
  WEAK ("word", WORD),
  SPEAKER ("speaker"),
  SPEAKER ("spk"),
  SPEAKER ("participant"),
  SPEAKER ("sprecher"),
  SPEAKER ("sprecherin"),
  SPEAKER ("orador"),
  SPEAKER ("hablante"),
  SPEAKER ("locutor"),
  SPEAKER ("locuteur"),
  SPEAKER ("intervenant"),
  SPEAKER ("oratore"),
  SPEAKER ("spreker"),
  SPEAKER ("спикер"),
  SPEAKER ("говорящий"),
  SPEAKER ("发言人"),
  SPEAKER ("说话人"),
  SPEAKER ("講者"),
  SPEAKER ("話者"),
  SPEAKER ("発言者"),
  SPEAKER ("화자"),
  WEAK ("name", SPEAKER),
  WEAK ("person", SPEAKER),
  WEAK ("who", SPEAKER),
  WEAK ("author", SPEAKER),
  WEAK ("user", SPEAKER),
  WEAK ("sender", SPEAKER),
  WEAK ("actor", SPEAKER),
  WEAK ("character", SPEAKER),
  WEAK ("role", SPEAKER),
  START ("start"),
  START ("begin"),
  START ("onset"),
  START ("beginn"),
  START ("anfang"),
  START ("startzeit"),
  START ("inicio"),
  START ("início"),
  START ("début"),
  START ("inizio"),
  START ("начало"),
  START ("开始"),
  START ("开始时间"),
  START ("開始"),
  START ("開始時間"),
  START ("시작"),
  WEAK ("in", START),
  WEAK ("time", START),
  WEAK ("timestamp", START),
  WEAK ("timecode", START),
  WEAK ("tc", START),
  WEAK ("ts", START),
  WEAK ("offset", START),
  WEAK ("zeit", START),
  WEAK ("zeitstempel", START),
  WEAK ("tiempo", START),
  WEAK ("temps", START),
  WEAK ("tempo", START),
  WEAK ("время", START),
  WEAK ("时间", START),
  WEAK ("時間", START),
  WEAK ("시간", START),
  END ("end"),
  END ("stop"),
  END ("finish"),
  END ("out"),
  END ("ende"),
  END ("endzeit"),
  END ("fin"),
  END ("fine"),
  END ("fim"),
  END ("конец"),
  END ("结束"),
  END ("结束时间"),
  END ("終了"),
  END ("終了時間"),
  END ("끝"),
  WEAK ("duration", DURATION),
  WEAK ("dur", DURATION),
  WEAK ("dauer", DURATION),
  WEAK ("duración", DURATION),
  WEAK ("durée", DURATION),
  WEAK ("durata", DURATION),
  /* Times, or who writes to whom. */
  WEAK ("from", FROM),
  WEAK ("to", TO),
};

/* What is put around those: "Cue start time (ms)", "speaker_name". */
static const char *const prefixes[] = { "segment", "cue", "utterance", "caption", "subtitle",
  "transcript", "audio", "video", "clip", "word", "turn" };
static const char *const suffixes[] = { "timestamp", "timecode", "time", "stamp", "offset", "tc",
  "point", "name", "label", "id", "tag", "text" };
static const struct {
  const char *name;
  LycheeJsonUnit unit;
} units[] = { { "milliseconds", LYCHEE_JSON_MILLISECONDS }, { "millis", LYCHEE_JSON_MILLISECONDS },
  { "msec", LYCHEE_JSON_MILLISECONDS }, { "ms", LYCHEE_JSON_MILLISECONDS },
  { "seconds", LYCHEE_JSON_SECONDS }, { "secs", LYCHEE_JSON_SECONDS },
  { "sec", LYCHEE_JSON_SECONDS }, { "s", LYCHEE_JSON_SECONDS } };

static const Entry *
find (const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS (entries); i++)
    if (strcmp (name, entries[i].name) == 0)
      return &entries[i];
  return NULL;
}

static gboolean
strip_suffix (char *name, const char *suffix)
{
  gsize length = strlen (name), n = strlen (suffix);

  if (length <= n || strcmp (name + length - n, suffix) != 0)
    return FALSE;
  name[length - n] = '\0';
  return TRUE;
}

/* As it is, or without one thing before it and one behind. */
static const Entry *
find_around (const char *name)
{
  const Entry *entry = find (name);

  for (guint i = 0; entry == NULL && i < G_N_ELEMENTS (suffixes); i++) {
    g_autofree char *inner = g_strdup (name);

    if (strip_suffix (inner, suffixes[i]))
      entry = find (inner);
  }
  for (guint i = 0; entry == NULL && i < G_N_ELEMENTS (prefixes); i++)
    if (g_str_has_prefix (name, prefixes[i]) && name[strlen (prefixes[i])] != '\0')
      entry = find_around (name + strlen (prefixes[i]));
  return entry;
}

LycheeTableRole
lychee_table_role_of (const char *title, LycheeJsonUnit *unit, gboolean *weak)
{
  g_autofree char *lower = g_utf8_strdown (title, -1);
  g_autoptr (GString) name = g_string_new (NULL);
  const Entry *entry;

  for (const char *at = lower; *at != '\0'; at = g_utf8_next_char (at)) {
    gunichar c = g_utf8_get_char (at);

    if (strchr ("([", *at) != NULL && strstr (at, ":") != NULL) /* "(hh:mm:ss)" */
      break;
    if (g_unichar_isalnum (c) || g_unichar_ismark (c))
      g_string_append_unichar (name, c);
    else if (strchr (" \t_-.()[]/#", *at) == NULL)
      return LYCHEE_TABLE_OTHER; /* a sentence */
  }
  *unit = LYCHEE_JSON_UNKNOWN;
  entry = find_around (name->str);
  for (guint i = 0; entry == NULL && i < G_N_ELEMENTS (units); i++)
    if (strip_suffix (name->str, units[i].name)) {
      entry = find_around (name->str);
      if (entry != NULL && entry->role < LYCHEE_TABLE_START)
        return LYCHEE_TABLE_OTHER;
      *unit = units[i].unit;
      break;
    }
  if (entry == NULL)
    return LYCHEE_TABLE_OTHER;
  *weak = entry->weak;
  return entry->role;
}
