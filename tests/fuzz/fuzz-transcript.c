/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The parser of transcripts, with its survey and the hygiene: the first byte says how the rest is
 * read. Whatever comes in, what comes out is valid, in order, and the same in any pieces. */

#include "fuzz.h"

#include "../transcript-fixture.h"

int
LLVMFuzzerInitialize (int *argc, char ***argv)
{
  return 0;
}

static const char *const encodings[] = { NULL, "windows-1251", "Shift_JIS", "UTF-16LE",
  "ISO-2022-JP", "GB18030", "nonsense", "UTF-8" };

static void
check_cue (const LycheeCue *cue)
{
  g_assert_true (g_utf8_validate (cue->text, -1, NULL));
  g_assert_true (cue->speaker == NULL || g_utf8_validate (cue->speaker, -1, NULL));
  g_assert_true (*cue->text != '\0');
  if (cue->start != LYCHEE_TIME_NONE && cue->end != LYCHEE_TIME_NONE)
    g_assert_cmpuint (cue->start, <=, cue->end);
}

int
LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
  ReadOptions options = { 0 };
  ReadResult result = { 0 };
  g_autoptr (GPtrArray) cues = NULL;
  g_autofree char *whole = NULL;
  g_autofree char *pieces = NULL;
  guint64 last = 0;
  const char *text = (const char *) data + 1;

  if (size < 1)
    return 0;
  options.format = data[0] % 10;
  options.encoding = encodings[data[0] / 10 % 8];
  options.stream = data[0] >= 128;
  size--;

  cues = read_transcript (text, size, size, 1, &options, &result);
  g_free (result.language);
  for (guint i = 0; i < cues->len; i++) {
    const LycheeCue *cue = g_ptr_array_index (cues, i);

    check_cue (cue);
    /* Only lines of plain text, which may come before subtitles, have the times that they say. */
    if (cue->start == LYCHEE_TIME_NONE || options.format == LYCHEE_TRANSCRIPT_FORMAT_AUTO ||
        options.format >= LYCHEE_TRANSCRIPT_FORMAT_JSON || options.stream)
      continue;
    g_assert_true (cue->start >= last || result.report.late > 0);
    last = cue->start;
  }
  whole = describe_transcript (text, size, size, 1, &options);
  pieces = describe_transcript (text, size, size % 7, 1 + size % 5, &options);
  g_assert_cmpstr (whole, ==, pieces);
  return 0;
}
