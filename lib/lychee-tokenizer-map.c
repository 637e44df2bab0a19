/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-tokenizer-map.h"
#include <string.h>

static guint64
new_seed (void)
{
  return (guint64) g_random_int () << 32 | g_random_int ();
}

/* A power of two that leaves half of it free. */
static gsize
table_size (gsize n_expected)
{
  gsize size = 16;
  while (size / 2 < n_expected)
    size *= 2;
  return size;
}

static void
allocate_entries (LycheeMap *map, gsize size)
{
  map->entries = g_new (LycheeMapEntry, size);
  map->mask = size - 1;
  for (gsize i = 0; i < size; i++)
    map->entries[i].key = LYCHEE_MAP_NO_KEY;
}

void
lychee_map_init (LycheeMap *map, gsize n_expected)
{
  map->seed = new_seed ();
  map->n_used = 0;
  allocate_entries (map, table_size (n_expected));
}

void
lychee_map_clear (LycheeMap *map)
{
  g_clear_pointer (&map->entries, g_free);
}

gboolean
lychee_map_add (LycheeMap *map, guint64 key, guint32 a, guint32 b)
{
  if (map->n_used * 2 > map->mask) {
    g_autofree LycheeMapEntry *old = map->entries;
    gsize n_old = map->mask + 1;
    allocate_entries (map, n_old * 2);
    map->n_used = 0;
    for (gsize i = 0; i < n_old; i++)
      if (old[i].key != LYCHEE_MAP_NO_KEY)
        lychee_map_add (map, old[i].key, old[i].a, old[i].b);
  }
  gsize at = lychee_map_mix (key ^ map->seed) & map->mask;
  for (; map->entries[at].key != LYCHEE_MAP_NO_KEY; at = (at + 1) & map->mask)
    if (map->entries[at].key == key)
      return FALSE;
  map->entries[at] = (LycheeMapEntry){ key, a, b };
  map->n_used++;
  return TRUE;
}

static guint64
hash_bytes (guint64 seed, const guint8 *text, gsize length)
{
  guint64 hash = seed ^ length;
  while (length >= 8) {
    guint64 word;
    memcpy (&word, text, 8);
    hash = lychee_map_mix (hash ^ word);
    text += 8;
    length -= 8;
  }
  guint64 rest = 0;
  memcpy (&rest, text, length);
  return lychee_map_mix (hash ^ rest);
}

void
lychee_strings_init (LycheeStrings *strings, gsize n_expected)
{
  gsize zero = 0;
  gsize size = table_size (n_expected);
  strings->bytes = g_byte_array_new ();
  strings->starts = g_array_sized_new (FALSE, FALSE, sizeof (gsize), n_expected + 1);
  g_array_append_val (strings->starts, zero);
  strings->slots = g_new0 (guint32, size);
  strings->mask = size - 1;
  strings->seed = new_seed ();
}

void
lychee_strings_clear (LycheeStrings *strings)
{
  g_clear_pointer (&strings->bytes, g_byte_array_unref);
  g_clear_pointer (&strings->starts, g_array_unref);
  g_clear_pointer (&strings->slots, g_free);
}

guint
lychee_strings_get_n (const LycheeStrings *strings)
{
  return strings->starts->len - 1;
}

/* The slot of a string: its own, or the free one where it belongs. */
static gsize
find_slot (const LycheeStrings *strings, const guint8 *text, gsize length)
{
  gsize at = hash_bytes (strings->seed, text, length) & strings->mask;
  for (; strings->slots[at] != 0; at = (at + 1) & strings->mask) {
    gsize other_length;
    const guint8 *other = lychee_strings_get (strings, strings->slots[at] - 1, &other_length);
    if (other_length == length && (length == 0 || memcmp (other, text, length) == 0))
      break;
  }
  return at;
}

guint32
lychee_strings_add (LycheeStrings *strings, const void *text, gsize length, gboolean replace)
{
  guint32 number = lychee_strings_get_n (strings);
  if ((gsize) number * 2 > strings->mask) {
    g_autofree guint32 *old = strings->slots;
    gsize n_old = strings->mask + 1;
    strings->slots = g_new0 (guint32, n_old * 2);
    strings->mask = n_old * 2 - 1;
    for (gsize i = 0; i < n_old; i++)
      if (old[i] != 0) {
        gsize old_length;
        const guint8 *old_text = lychee_strings_get (strings, old[i] - 1, &old_length);
        strings->slots[find_slot (strings, old_text, old_length)] = old[i];
      }
  }
  gsize at = find_slot (strings, text, length);
  if (length > 0)
    g_byte_array_append (strings->bytes, text, length);
  gsize end = strings->bytes->len;
  g_array_append_val (strings->starts, end);
  if (strings->slots[at] == 0 || replace)
    strings->slots[at] = number + 1;
  return number;
}

guint32
lychee_strings_find (const LycheeStrings *strings, const void *text, gsize length)
{
  gsize at = find_slot (strings, text, length);
  return strings->slots[at] == 0 ? LYCHEE_STRINGS_NONE : strings->slots[at] - 1;
}
