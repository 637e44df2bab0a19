/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

G_BEGIN_DECLS

/* A hash table from 64-bit keys to a pair of numbers, in one block of memory: pairs of pieces to
 * merges, nodes and characters to nodes. Seeded, so that a file cannot choose collisions. */
typedef struct {
  guint64 key;
  guint32 a;
  guint32 b;
} LycheeMapEntry;

typedef struct {
  LycheeMapEntry *entries;
  guint64 seed;
  gsize mask;
  gsize n_used;
} LycheeMap;

/* No key of the library has this value. */
#define LYCHEE_MAP_NO_KEY G_MAXUINT64

/* @n_expected: entries to make room for; it grows beyond as needed. */
void lychee_map_init (LycheeMap *map, gsize n_expected);
void lychee_map_clear (LycheeMap *map);
/* Does nothing and returns FALSE where @key is there already. */
gboolean lychee_map_add (LycheeMap *map, guint64 key, guint32 a, guint32 b);

static inline guint64
lychee_map_mix (guint64 x)
{
  /* The finaliser of MurmurHash3: every bit of the key reaches every bit of the hash. */
  x ^= x >> 33;
  x *= G_GUINT64_CONSTANT (0xff51afd7ed558ccd);
  x ^= x >> 33;
  x *= G_GUINT64_CONSTANT (0xc4ceb9fe1a85ec53);
  return x ^ x >> 33;
}

static inline const LycheeMapEntry *
lychee_map_find (const LycheeMap *map, guint64 key)
{
  gsize at = lychee_map_mix (key ^ map->seed) & map->mask;
  while (map->entries[at].key != key) {
    if (map->entries[at].key == LYCHEE_MAP_NO_KEY)
      return NULL;
    at = (at + 1) & map->mask;
  }
  return &map->entries[at];
}

/* Strings, numbered from 0 in the order they were added, and the way back from string to number.
 * Strings may hold any bytes. */
typedef struct {
  GByteArray *bytes;
  GArray *starts; /* of gsize, one more than there are strings */
  guint32 *slots; /* number + 1, or 0 */
  guint64 seed;
  gsize mask;
} LycheeStrings;

#define LYCHEE_STRINGS_NONE G_MAXUINT32

void lychee_strings_init (LycheeStrings *strings, gsize n_expected);
void lychee_strings_clear (LycheeStrings *strings);
guint lychee_strings_get_n (const LycheeStrings *strings);
/* Always a new number. Of two equal strings @replace says which one find () gives. */
guint32 lychee_strings_add (
    LycheeStrings *strings, const void *text, gsize length, gboolean replace);
/* LYCHEE_STRINGS_NONE where there is none. */
guint32 lychee_strings_find (const LycheeStrings *strings, const void *text, gsize length);

static inline const guint8 *
lychee_strings_get (const LycheeStrings *strings, guint32 number, gsize *length)
{
  const gsize *starts = (const gsize *) (gpointer) strings->starts->data;
  *length = starts[number + 1] - starts[number];
  return strings->bytes->data + starts[number];
}

G_END_DECLS
