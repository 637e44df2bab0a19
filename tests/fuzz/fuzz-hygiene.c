/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The hygiene, fed with cues as a recogniser might give them: each line is one, the first character
 * says what kind, and how long after the one before. */

#include "fuzz.h"

#include "../transcript-fixture.h"

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  return 0;
}

static void
push_line (LycheeHygiene *hygiene, const char *line, guint64 *time, GPtrArray *cues)
{
  guint8 kind = *line;
  LycheeCue *cue;

  if (kind == '!') {
    lychee_hygiene_end_hypothesis (hygiene, cues);
    return;
  }
  if (kind == '@') {
    lychee_hygiene_set_speaker (hygiene, line[1] != '\0' ? line + 1 : NULL, cues);
    return;
  }
  *time += (kind / 4 % 4) * G_GUINT64_CONSTANT (100000000);
  cue = lychee_cue_new (g_utf8_next_char (line), -1, NULL, *time, *time + 100000000);
  g_strdelimit (cue->text, "|", '\n');
  cue->markup = kind % 4;
  if (kind % 32 == 7)
    cue->flags |= LYCHEE_CUE_PARTIAL;
  if (kind % 32 == 9)
    cue->flags |= LYCHEE_CUE_CONTINUES;
  if (kind % 32 == 11)
    cue->start = cue->end = LYCHEE_TIME_NONE;
  lychee_hygiene_push (hygiene, cue, cues);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  g_autoptr (LycheeHygiene) hygiene = lychee_hygiene_new ();
  g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  g_autofree char *text = g_utf8_make_valid ((const char *) data, size);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  guint64 time = 0;

  if (size > 0)
    g_object_set (hygiene, "speaker-labels", data[0] % 3, NULL);
  for (guint i = 0; lines[i] != NULL; i++)
    if (*lines[i] != '\0')
      push_line (hygiene, lines[i], &time, cues);
  lychee_hygiene_drain (hygiene, cues);
  for (guint i = 0; i < cues->len; i++) {
    const LycheeCue *cue = g_ptr_array_index (cues, i);

    g_assert_true (g_utf8_validate (cue->text, -1, NULL));
    g_assert_true (*cue->text != '\0');
  }
  return 0;
}
