/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transcript-fixture.h"

#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* What a transcript is recognised by, and what is none. */
#define CUES "00:00:01.000 --> 00:00:02.000\na\n\n00:00:03.000 --> 00:00:04.000\nb\n"
#define NOT LYCHEE_TRANSCRIPT_FORMAT_AUTO

static const struct {
  const char *name;
  LycheeTranscriptFormat format;
  const char *text;
} recognised[] = {
  { "webvtt", LYCHEE_TRANSCRIPT_FORMAT_WEBVTT, "WEBVTT\n\n" CUES },
  { "without-header", LYCHEE_TRANSCRIPT_FORMAT_SUBRIP, CUES },
  { "without-numbers", LYCHEE_TRANSCRIPT_FORMAT_SUBRIP, "00:00:01,000 --> 00:00:02,000\na\n" },
  { "text-behind-times", LYCHEE_TRANSCRIPT_FORMAT_SUBRIP,
      "00:00:01.000 --> 00:00:02.000 a\n00:00:03.000 --> 00:00:04.000 b\n" },
  { "text-before", LYCHEE_TRANSCRIPT_FORMAT_SUBRIP, "Made by hand.\n\n" CUES },
  { "sbv", LYCHEE_TRANSCRIPT_FORMAT_SUBRIP, "0:00:01.000,0:00:02.000\na\n" },
  { "terminal", LYCHEE_TRANSCRIPT_FORMAT_SUBRIP, "[00:00:01.000 --> 00:00:02.000]  a\n" },
  { "json", LYCHEE_TRANSCRIPT_FORMAT_JSON, "{\"segments\": [{\"start\": 1, \"text\": \"a\"}]}" },
  { "json-array", LYCHEE_TRANSCRIPT_FORMAT_JSON, "[{\"start\": 1, \"text\": \"a\"}]" },
  { "json-lines", LYCHEE_TRANSCRIPT_FORMAT_JSON, "{\"start\": 1, \"text\": \"a\"}\n{}\n" },
  { "python", LYCHEE_TRANSCRIPT_FORMAT_JSON, "{'text': 'a', 'segments': [{'start': 1.0}]}" },
  { "json-of-calls", LYCHEE_TRANSCRIPT_FORMAT_JSON,
      "{\"Transcript\": [{\"Content\": \"a\", \"BeginOffsetMillis\": 100}]}" },
  { "turns", LYCHEE_TRANSCRIPT_FORMAT_TEXT, "Ann: One.\nBob: Two.\nAnn: Three.\nBob: Four.\n" },
  { "ttml", LYCHEE_TRANSCRIPT_FORMAT_XML,
      "<?xml version=\"1.0\"?>\n<!-- x -->\n<tt:tt><p begin=\"00:00:01.000\">a</p>\n</tt:tt>\n" },
  { "sami", LYCHEE_TRANSCRIPT_FORMAT_XML, "<SAMI>\n<BODY>\n<SYNC Start=1><P>a\n" },
  { "xml", NOT, "<?xml version=\"1.0\"?>\n<note><p begin=\"00:00:01.000\">a</p></note>\n" },
  { "html", NOT, "<!DOCTYPE html>\n<p>00:00:01.000 --&gt; 00:00:02.000</p>\n" },
  { "c", NOT,
      "/* a -> b */\n#include <stdio.h>\n\nint\nmain (void)\n{\n  while (n --> 0)\n    p->x = 1;\n"
      "default:\n  return 0;\n}\n" },
  { "javascript", NOT, "// {\"text\": 1}\nvar text = [\"start\"];\nfor (;;) {}\n" },
  { "log", NOT,
      "2026-01-02 10:00:01,123 INFO start: a -> b\n2026-01-02 10:00:02,456 INFO stop: done\n"
      "10:00:03.000 10:00:04.000 x\n" },
  { "clock-log", NOT, "10:00:01.123 INFO: one\n10:00:02.456 INFO: two\n10:00:03.789 WARN: x\n" },
  { "csv", NOT, "start,end,name\n1.0,2.0,a\n00:01,00:02,b\n" },
  { "markdown", NOT,
      "# Subtitles\n\nA file of them looks like this:\n\n    00:00:01,000 --> 00:00:02,000\n    "
      "a\n\n"
      "* one\n* two\n\nNote: this is\nall that there\nis to be said.\n" },
  { "yaml", NOT, "name: a\nversion: 1\nsteps:\n  - run: make\n  - run: test\n" },
  { "headers", NOT, "From: a@example.org\nTo: b@example.org\nSubject: c\n\nHello.\n" },
  { "playlist", NOT, "#EXTM3U\n#EXTINF:10,\na.ts\n#EXTINF:10,\nb.ts\n" },
  { "json-of-others", NOT, "{\"name\": \"a\", \"text\": \"b\", \"version\": [1, 2]}" },
  { "prose", NOT, "It was late. We went home.\nHe said: stay.\n" },
  { "empty", NOT, "" },
};

static void
test_recognised (void)
{
  for (guint i = 0; i < G_N_ELEMENTS (recognised); i++) {
    LycheeTranscriptFormat format =
        lychee_transcript_recognise (recognised[i].text, strlen (recognised[i].text));

    if (format != recognised[i].format)
      g_test_message ("%s", recognised[i].name);
    g_assert_cmpint (format, ==, recognised[i].format);
  }
}

/* Bytes that are no text, and text that looks as if it were none. */
static void
test_binary (void)
{
  static const char *const encodings[] = { "UTF-8", "UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE",
    "windows-1251", "GB18030", "ISO-2022-JP" };
  static const char *const speech[] = { "Да, это так.", "是的，就是这样。", "はい、そうです。" };
  GRand *rand = g_rand_new_with_seed (1);

  for (guint kind = 0; kind < 4; kind++)
    for (gsize piece = 1; piece <= 8192; piece *= 8) {
      g_autoptr (LycheeTranscriptParser) parser =
          lychee_transcript_parser_new (LYCHEE_TRANSCRIPT_FORMAT_AUTO, NULL);
      g_autoptr (GPtrArray) cues =
          g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
      guint8 data[8192];

      for (gsize i = 0; i < sizeof data; i++) {
        gint16 sample = 3000 * (i / 2 % 37) - 9000;

        data[i] = kind == 0   ? 0
                  : kind == 1 ? (guint8) g_rand_int (rand)
                  : kind == 2 ? ((guint8 *) &sample)[i % 2]
                              : (i % 8 < 3 ? "\x7f\x10\x03"[i % 8] : 0);
      }
      for (gsize at = 0; at < sizeof data; at += piece)
        lychee_transcript_parser_push (parser, data + at, MIN (piece, sizeof data - at), cues);
      lychee_transcript_parser_finish (parser, cues);
      g_assert_true (lychee_transcript_parser_get_report (parser).binary);
      g_assert_cmpint (lychee_transcript_recognise (data, sizeof data), ==, NOT);
    }

  for (guint i = 0; i < G_N_ELEMENTS (encodings); i++) {
    const char *said = speech[i < 6 ? 0 : i - 5];
    g_autoptr (GString) text = g_string_new (NULL);
    g_autoptr (LycheeTranscriptParser) parser = NULL;
    g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
    g_autofree char *bytes = NULL;
    gsize length;

    for (guint k = 0; k < 40; k++)
      g_string_append_printf (
          text, "%u\n00:00:%02u,000 --> 00:00:%02u,500\n%s\n\n", k + 1, k, k, said);
    bytes = g_convert (text->str, text->len, encodings[i], "UTF-8", NULL, &length, NULL);
    g_assert_nonnull (bytes);
    parser = lychee_transcript_parser_new (LYCHEE_TRANSCRIPT_FORMAT_AUTO, NULL);
    lychee_transcript_parser_push (parser, bytes, length, cues);
    lychee_transcript_parser_finish (parser, cues);
    g_assert_false (lychee_transcript_parser_get_report (parser).binary);
  }
  g_rand_free (rand);
}

/* Properties: a talk of numbered words, written in each format, with damage around the words. */

#define N_WORDS 400

typedef struct {
  const char *name;
  const char *encoding;
  void (*write) (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text);
  const char *head;
  const char *tail;
} Format;

static void
append_time (GString *out, GRand *rand, guint64 time, char point)
{
  /* As others write it, sometimes. */
  if (g_rand_int_range (rand, 0, 8) == 0)
    g_string_append_printf (out, "%u:%u:%u%c%03u", (guint) (time / 3600000),
        (guint) (time / 60000 % 60), (guint) (time / 1000 % 60), point == ',' ? '.' : ',',
        (guint) (time % 1000));
  else
    g_string_append_printf (out, "%02u:%02u:%02u%c%03u", (guint) (time / 3600000),
        (guint) (time / 60000 % 60), (guint) (time / 1000 % 60), point, (guint) (time % 1000));
}

static void
append_newline (GString *out, GRand *rand)
{
  g_string_append (out, g_rand_int_range (rand, 0, 5) == 0 ? "\r\n" : "\n");
}

/* Decorations that do not change the words. */
static void
append_text (GString *out, GRand *rand, const char *text)
{
  static const char *const around[][2] = { { "", "" }, { "<i>", "</i>" }, { "{\\an8}", "" },
    { "<b>", "" }, { "<font color=\"#fff\">", "</font>" }, { " ", "  " } };
  guint k = g_rand_int_range (rand, 0, G_N_ELEMENTS (around));

  g_string_append (out, around[k][0]);
  for (; *text != '\0'; text++)
    if (*text == ' ' && g_rand_int_range (rand, 0, 6) == 0) {
      append_newline (out, rand);
      if (g_rand_int_range (rand, 0, 4) == 0)
        append_newline (out, rand); /* an empty line within the cue */
    } else {
      g_string_append_c (out, *text);
    }
  g_string_append (out, around[k][1]);
}

static void
write_subrip (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  if (g_rand_int_range (rand, 0, 10) != 0 || n == 0) {
    g_string_append_printf (out, "%u", n + 1);
    append_newline (out, rand);
  }
  append_time (out, rand, start, ',');
  g_string_append (out, g_rand_boolean (rand) ? " --> " : "-->");
  append_time (out, rand, end, ',');
  append_newline (out, rand);
  append_text (out, rand, text);
  append_newline (out, rand);
  append_newline (out, rand);
}

static void
write_webvtt (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  if (g_rand_int_range (rand, 0, 8) == 0)
    g_string_append (out, "NOTE this is\nnot said\n\n");
  append_time (out, rand, start, '.');
  g_string_append (out, " --> ");
  append_time (out, rand, end, '.');
  g_string_append (out, g_rand_boolean (rand) ? " align:start" : "");
  append_newline (out, rand);
  append_text (out, rand, text);
  append_newline (out, rand);
  append_newline (out, rand);
}

static void
write_ass (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  g_auto (GStrv) words = g_strsplit (text, " ", -1);
  g_autofree char *line = g_strjoinv (g_rand_boolean (rand) ? "\\N" : "\\h", words);

  g_string_append_printf (out,
      "Dialogue: 0,%u:%02u:%02u.%02u,%u:%02u:%02u.%02u,Default,,0,0,0,,{\\fad(1,1)}%s",
      (guint) (start / 3600000), (guint) (start / 60000 % 60), (guint) (start / 1000 % 60),
      (guint) (start / 10 % 100), (guint) (end / 3600000), (guint) (end / 60000 % 60),
      (guint) (end / 1000 % 60), (guint) (end / 10 % 100), line);
  append_newline (out, rand);
}

static void
write_json (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  g_string_append_printf (out, "%s{\"start\": %u.%03u, \"end\": %u.%03u, \"text\": \" %s\"}",
      n > 0 ? ",\n" : "", (guint) (start / 1000), (guint) (start % 1000), (guint) (end / 1000),
      (guint) (end % 1000), text);
}

static void
write_text (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  g_string_append (out, text);
  append_newline (out, rand);
  if (g_rand_int_range (rand, 0, 4) == 0)
    append_newline (out, rand);
}

/* As spreadsheets write it: what has anything special in it is quoted. */
static void
write_row (GString *out, GRand *rand, guint64 start, guint64 end, const char *text, char delimiter)
{
  gboolean quoted = g_rand_boolean (rand);

  g_string_append_printf (
      out, "%u.%03u%c", (guint) (start / 1000), (guint) (start % 1000), delimiter);
  if (g_rand_int_range (rand, 0, 6) > 0)
    g_string_append_printf (out, "%u.%03u", (guint) (end / 1000), (guint) (end % 1000));
  g_string_append_printf (out, "%c%s", delimiter, quoted ? "\"" : "");
  for (; *text != '\0'; text++)
    if (*text == ' ' && quoted && g_rand_int_range (rand, 0, 4) == 0)
      append_newline (out, rand);
    else
      g_string_append_c (out, *text);
  g_string_append (out, quoted ? "\"" : "");
  append_newline (out, rand);
}

static void
write_csv (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  write_row (out, rand, start, end, text, ',');
}

static void
write_tsv (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  write_row (out, rand, start, end, text, '\t');
}

static void
append_bars (GString *out, GRand *rand, const char *text)
{
  for (; *text != '\0'; text++)
    g_string_append_c (out, *text == ' ' && g_rand_int_range (rand, 0, 4) == 0 ? '|' : *text);
  append_newline (out, rand);
}

static void
write_microdvd (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  g_string_append_printf (out, "{%u}{%u}%s", (guint) (start / 40), (guint) (end / 40),
      g_rand_boolean (rand) ? "{y:i}" : "");
  append_bars (out, rand, text);
}

static void
write_mpl2 (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  g_string_append_printf (out, "[%u][%u]%s", (guint) (start / 100),
      (guint) (MAX (end, n < 2 ? start : 0) / 100), g_rand_boolean (rand) ? "/" : "");
  append_bars (out, rand, text);
}

static void
write_lrc (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  g_string_append_printf (out, "[%02u:%02u.%02u]%s", (guint) (start / 60000),
      (guint) (start / 1000 % 60), (guint) (start / 10 % 100), text);
  append_newline (out, rand);
}

/* Each byte as it is sent, with its parity. */
static void
append_pair (GString *out, guint first, guint second)
{
  g_string_append_printf (out, " %02x%02x",
      first | (__builtin_popcount (first) % 2 == 0 ? 0x80 : 0),
      second | (__builtin_popcount (second) % 2 == 0 ? 0x80 : 0));
}

static void
write_scc (GString *out, GRand *rand, guint n, guint64 start, guint64 end, const char *text)
{
  /* How a caption is begun: to pop on, roll up, or be painted on. */
  static const guint begin[] = { 0x20, 0x25, 0x29 };
  guint mode = n % 3;

  g_string_append_printf (out, "%02u:%02u:%02u;00\t", (guint) (start / 3600000),
      (guint) (start / 60000 % 60), (guint) (start / 1000 % 60));
  for (guint twice = 0; twice < 2; twice++)
    append_pair (out, 0x14, begin[mode]);
  if (mode == 1)
    append_pair (out, 0x14, 0x2d);
  append_pair (out, 0x14, 0x70); /* the last row */
  while (*text != '\0') {
    if (*text == ' ' && mode == 0 && g_rand_int_range (rand, 0, 4) == 0) {
      append_pair (out, 0x13, g_rand_boolean (rand) ? 0x70 : 0x50);
      text++;
      continue;
    }
    append_pair (out, text[0], text[1]);
    text += text[1] != '\0' ? 2 : 1;
  }
  if (mode == 0)
    append_pair (out, 0x14, 0x2f);
  append_newline (out, rand);
  append_newline (out, rand);
}

static const Format formats[] = {
  { "subrip", "UTF-8", write_subrip, "", "" },
  { "subrip-utf-16", "UTF-16", write_subrip, "", "" },
  { "webvtt", "UTF-8", write_webvtt, "WEBVTT\n\n", "" },
  { "ass", "UTF-8", write_ass, "[Script Info]\nScriptType: v4.00+\n\n[Events]\n", "" },
  { "json", "UTF-8", write_json, "{\"segments\": [", "]}" },
  { "text", "UTF-8", write_text, "", "" },
  { "csv", "UTF-8", write_csv, "start,end,text\n", "" },
  { "csv-utf-16", "UTF-16", write_csv, "Start Time (s),End Time (s),Transcript\n", "" },
  { "tsv", "UTF-8", write_tsv, "Begin\tEnd\tCaption\n", "" },
  { "microdvd", "UTF-8", write_microdvd, "{1}{1}25\n", "" },
  { "mpl2", "UTF-8", write_mpl2, "", "" },
  { "lrc", "UTF-8", write_lrc, "[ti:x]\n[length:9:00]\n", "" },
  { "scc", "UTF-8", write_scc, "Scenarist_SCC V1.0\n\n", "" },
};

/* Words "w0x" to "w399x" in cues; @order: how they are shuffled in the file. */
static GString *
write_talk (const Format *format, GRand *rand, gboolean shuffled)
{
  GString *out = g_string_new (format->head);
  g_autoptr (GPtrArray) texts = g_ptr_array_new_with_free_func (g_free);
  g_autofree guint *order = NULL;
  guint word = 0;

  while (word < N_WORDS) {
    guint stop = word + g_rand_int_range (rand, 1, 8);
    GString *text = g_string_new (NULL);

    for (; word < MIN (stop, N_WORDS); word++)
      g_string_append_printf (text, "%sw%ux", text->len > 0 ? " " : "", word);
    g_ptr_array_add (texts, g_string_free (text, FALSE));
  }
  order = g_new (guint, texts->len);
  for (guint i = 0; i < texts->len; i++)
    order[i] = i;
  for (guint i = 1; shuffled && i < texts->len; i++) {
    guint k = g_rand_int_range (rand, 0, i + 1);
    guint swap = order[i];

    order[i] = order[k];
    order[k] = swap;
  }
  for (guint i = 0; i < texts->len; i++) {
    guint64 start = 2000 * (guint64) order[i];
    /* Some end before they begin, some long after the next has begun. */
    gint64 duration = g_rand_int_range (rand, -1000, 9000);
    gint64 end = MAX ((gint64) start + duration, 0);

    format->write (out, rand, i, start, end, g_ptr_array_index (texts, order[i]));
  }
  g_string_append (out, format->tail);
  return out;
}

/* Every word once, in order, whatever is around. */
static void
test_words (gconstpointer data)
{
  const Format *format = data;
  GRand *rand = g_rand_new_with_seed (7);

  for (guint round = 0; round < 40 && !g_test_failed (); round++) {
    /* Text has no times; these begin with their first cues. */
    gboolean shuffled = round % 2 == 1 && strcmp (format->name, "text") != 0 &&
                        strcmp (format->name, "scc") != 0 && strcmp (format->name, "mpl2") != 0;
    g_autoptr (GString) talk = write_talk (format, rand, shuffled);
    gsize length;
    g_autofree char *bytes =
        g_convert (talk->str, talk->len, format->encoding, "UTF-8", NULL, &length, NULL);
    ReadOptions options = { 0 };
    g_autoptr (GPtrArray) cues =
        read_transcript (bytes, length, round, 1 + g_rand_int_range (rand, 0, 300), &options, NULL);
    guint word = 0;
    guint64 last = 0;

    for (guint i = 0; i < cues->len; i++) {
      const LycheeCue *cue = g_ptr_array_index (cues, i);
      g_auto (GStrv) words = g_strsplit_set (cue->text, " \n", -1);

      for (guint k = 0; words[k] != NULL; k++) {
        g_autofree char *expected = g_strdup_printf ("w%ux", word);

        if (*words[k] == '\0')
          continue;
        if (!g_test_failed ())
          g_assert_cmpstr (words[k], ==, expected);
        word++;
      }
      if (cue->start == LYCHEE_TIME_NONE)
        continue;
      g_assert_cmpuint (cue->start, >=, last);
      g_assert_cmpuint (cue->end, >, cue->start);
      g_assert_cmpuint (cue->end - cue->start, <=, G_GUINT64_CONSTANT (10000000000));
      last = cue->start;
    }
    g_assert_cmpuint (word, ==, N_WORDS);
  }
  g_rand_free (rand);
}

/* Size: a stream is read with what a few blocks take. */

static guint64
peak_memory (void)
{
  struct rusage usage;

  getrusage (RUSAGE_SELF, &usage);
  return (guint64) usage.ru_maxrss * 1024;
}

static void
test_million_cues (void)
{
  g_autoptr (LycheeTranscriptParser) parser = lychee_transcript_parser_new (0, NULL);
  g_autoptr (LycheeHygiene) hygiene = lychee_hygiene_new ();
  g_autoptr (GPtrArray) parsed = g_ptr_array_new ();
  g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  g_autoptr (GString) block = g_string_new (NULL);
  const guint n = SANITIZED ? 100000 : 1000000;
  guint64 before = peak_memory ();
  guint64 n_cues = 0;

  for (guint i = 0; i < n; i++) {
    guint s = i * 2;

    g_string_append_printf (block,
        "%u\n%02u:%02u:%02u,000 --> %02u:%02u:%02u,900\nword %u said\n\n", i + 1, s / 3600,
        s / 60 % 60, s % 60, s / 3600, s / 60 % 60, s % 60, i);
    if (block->len < 16384 && i + 1 < n)
      continue;
    lychee_transcript_parser_push (parser, block->str, block->len, parsed);
    if (i + 1 == n)
      lychee_transcript_parser_finish (parser, parsed);
    for (guint k = 0; k < parsed->len; k++)
      lychee_hygiene_push (hygiene, g_ptr_array_index (parsed, k), cues);
    n_cues += cues->len;
    g_ptr_array_set_size (parsed, 0);
    g_ptr_array_set_size (cues, 0);
    g_string_truncate (block, 0);
  }
  g_assert_cmpuint (n_cues, ==, n);
  /* A sanitizer keeps what was freed. */
  if (!SANITIZED)
    g_assert_cmpuint (peak_memory () - before, <, 16 * 1024 * 1024);
}

static void
test_megabyte_cue (void)
{
  g_autoptr (GString) srt = g_string_new ("1\n00:00:01,000 --> 00:00:02,000\n");
  g_autoptr (GPtrArray) cues = NULL;
  ReadOptions options = { 0 };
  gsize letters = 0;

  while (srt->len < 5 * 1024 * 1024) {
    g_string_append_printf (
        srt, "w%" G_GSIZE_FORMAT "x%s", srt->len, srt->len % 7 == 0 ? " < & " : " ");
    if (srt->len % 97 == 0)
      g_string_append_c (srt, '\n');
  }
  g_string_append (srt, "\n\n2\n00:00:03,000 --> 00:00:04,000\nlast\n");
  cues = read_transcript (srt->str, srt->len, 10, 65536, &options, NULL);
  g_assert_cmpuint (cues->len, >=, 2);
  g_assert_cmpuint (cues->len, <, 12);
  for (guint i = 0; i + 1 < cues->len; i++) {
    const LycheeCue *cue = g_ptr_array_index (cues, i);

    g_assert_cmpuint (cue->start, ==, 1000000000);
    for (const char *at = cue->text; *at != '\0'; at++)
      letters += *at == 'x';
  }
  for (const char *at = srt->str; *at != '\0'; at++)
    letters -= *at == 'x';
  g_assert_cmpuint (letters, ==, 0);
  g_assert_cmpstr (((LycheeCue *) g_ptr_array_index (cues, cues->len - 1))->text, ==, "last");
}

/* Text that would be slow if anything in it were looked for again and again: minutes of the
 * processor's time, where it takes less than a second. */
static void
test_hostile (void)
{
#define CUE "WEBVTT\n\n00:01.000 --> 00:02.000\n"
#define TABLE "start,end,text\n1,2,a\n"
#define STRING "[{\"text\": \""
  static const struct {
    const char *head;
    const char *piece;
  } texts[] = { { CUE, "<" }, { CUE, "<s>" }, { CUE, "{\\" }, { CUE, "&" }, { CUE, "{\\a}" },
    { CUE, "a:" }, { CUE, ">> " }, { CUE, "<v x>" }, { CUE, "a " }, { CUE, "\\N" }, { CUE, "[" },
    { CUE, "<a" }, { CUE, "&#" }, { CUE, "- " }, { STRING, "\"x\":" }, { STRING, "\"x" },
    { STRING, "\", a" }, { STRING, "\" " }, { STRING, ", \"a\":\"" }, { STRING, "}" }, { "[", "[" },
    { "[", "{\"a\":" }, { "{\"words\": [", "[\"a\", 1]," },
    { "{\"words\": [", "{\"text\":\"a\",\"start\":1,\"speaker\":2}," },
    { "{\"a\": [",
        "{\"speaker\":1,\"start\":9},{\"speaker\":2,\"start\":1},{\"text\":\"a\",\"start\":4}," },
    { "<tt>", "<" }, { "<tt>", "<p begin=\"1s\">" }, { "<tt>", "<a b=\"" }, { "<tt>", "<a>" },
    { "<tt>", "</a>" }, { "<tt>", "<!--" }, { "<tt>", "<![CDATA[a" },
    { "<tt><p begin=\"1s\">", "a=\"" }, { "<tt><p a", " b=\"<" },
    { "<transcript><text start=\"1\">", "&amp;" }, { TABLE, "\"" }, { TABLE, "1,2,\"a\n" },
    { TABLE, "1,2,\"a\"" }, { TABLE, "," }, { TABLE, "start,end,text\n" }, { TABLE, "\"\n" },
    { "{1}{2}a\n", "{y:" }, { "{1}{2}a\n", "|" }, { "[ti:a]\n[00:01.00]a\n", "[00:01.00]" },
    { "[ti:a]\n[00:01.00]a\n", "<1" }, { "Scenarist_SCC V1.0\n00:00:01:00", " 9420 c1c1" },
    { "10:15:03 From ", "a to " }, { "Ann\n", "0:05 Ann: a\n" }, { "Ann\n", "From a: " } };

  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    g_autoptr (GString) text = g_string_new (texts[i].head);
    g_autoptr (GPtrArray) cues = NULL;
    ReadOptions options = { .stream = TRUE };
    clock_t start = clock ();

    while (text->len < 400000)
      g_string_append (text, texts[i].piece);
    cues = read_transcript (text->str, text->len, 4096, 4096, &options, NULL);
    g_test_message ("%s: %.0f ms", texts[i].piece, (clock () - start) * 1e3 / CLOCKS_PER_SEC);
    g_assert_cmpfloat ((clock () - start) / (double) CLOCKS_PER_SEC, <, 20);
  }
}

/* Subtitles as XML, and what looks like it. */
static const struct {
  const char *name;
  const char *xml;
  const char *expected;
} xml_cases[] = {
  { "ttml",
      "<?xml version='1.0' encoding='UTF-8'?>\n<tt xmlns='http://www.w3.org/ns/ttml' "
      "xmlns:ttm='http://www.w3.org/ns/ttml#metadata' xml:lang='en'>\n<head><metadata>"
      "<ttm:title>Not said</ttm:title><ttm:agent xml:id='a1' type='person'><ttm:name>Ann Lee"
      "</ttm:name></ttm:agent></metadata><styling><style xml:id='s'/></styling></head>\n<body>"
      "<div>\n<p begin='00:00:01.000' end='00:00:02.500' ttm:agent='a1'>Good  <span "
      "style='s'>mor</span>ning,<br/>\n all.</p>\n<p xml:id='c2' begin='3s' dur='1500ms'>AT&amp;T "
      "&lt;3</p>\n<p begin='00:01:00:00' end='00:01:02:00'></p></div></body></tt>\n",
      "1.000-2.500 Ann Lee|Ann Lee: Good morning,/all.\n3.000-4.500 |AT&T <3\n" },
  { "ttml-ticks",
      "<tt:tt ttp:tickRate=\"10000000\" ttp:frameRate=\"25\"><tt:body><tt:div begin=\"1s\">"
      "<tt:p begin=\"5000000t\" end=\"20000000t\">one</tt:p><tt:p begin=\"50f\" end=\"75f\">two"
      "</tt:p><tt:p><tt:span begin=\"5s\" end=\"6s\">three</tt:span> <tt:span begin=\"6s\" "
      "end=\"7s\">four</tt:span></tt:p></tt:div></tt:body></tt:tt>",
      "1.500-3.000 |one\n3.000-4.000 |two\n6.000-7.000 |three\n7.000-8.000 |four\n" },
  { "youtube-1",
      "<?xml version=\"1.0\" encoding=\"utf-8\" ?><transcript><text start=\"0.5\" "
      "dur=\"1.2\">it&amp;#39;s "
      "me &amp;amp; you</text><text start=\"2\">so &amp;quot;it&amp;quot; is</text></transcript>",
      "0.500-1.700 |it's me & you\n2.000-3.200 |so \"it\" is\n" },
  { "youtube-3",
      "<?xml version=\"1.0\" encoding=\"utf-8\" ?><timedtext format=\"3\">\n<head>\n<ws "
      "id=\"0\"/>\n"
      "</head>\n<body>\n<w t=\"0\" id=\"1\" wp=\"1\" ws=\"1\"/>\n<p t=\"500\" d=\"2000\" "
      "w=\"1\"><s "
      "ac=\"0\">one</s><s t=\"300\" ac=\"0\"> two</s></p>\n<p t=\"2490\" d=\"10\" w=\"1\" "
      "a=\"1\">\n</p>\n"
      "<p t=\"2500\" d=\"500\" w=\"1\"><s>three</s></p>\n</body>\n</timedtext>\n",
      "0.500-2.500 |one two\n2.500-3.000 |three\n" },
  { "sami",
      "<SAMI>\n<HEAD><TITLE>Not said</TITLE>\n<STYLE TYPE=\"text/css\">\n<!--\nP {x: y;}\n-->\n"
      "</STYLE></HEAD>\n<BODY>\n<SYNC Start=1000><P Class=ENCC>\nGood morning,<br>all.\n"
      "<SYNC Start=2500><P Class=ENCC>&nbsp;\n<SYNC Start=3000>\n<P Class=ENCC>Yes.\n</BODY>\n"
      "</SAMI>\n",
      "1.000-2.500 |Good morning,/all.\n3.000-3.500 |Yes.\n" },
  { "transcriber",
      "<?xml version=\"1.0\"?>\n<!DOCTYPE Trans SYSTEM \"trans-14.dtd\">\n<Trans scribe=\"x\">\n"
      "<Speakers>\n<Speaker id=\"spk1\" name=\"Ann\" "
      "check=\"no\"/>\n</Speakers>\n<Episode><Section "
      "type=\"report\" startTime=\"0\" endTime=\"9\"><Turn speaker=\"spk1\" startTime=\"1.5\" "
      "endTime=\"5\">\n<Sync time=\"1.5\"/>\none\n<Event desc=\"b\" type=\"noise\"/>\ntwo\n<Sync "
      "time=\"3\"/>\nthree\n</Turn></Section></Episode></Trans>\n",
      "1.500-3.000 Ann|Ann: one two\n3.000-5.000 Ann|three\n" },
  { "broken",
      "<tt><body><p begin=\"1s\" end=\"2s\">a < b & <i>c</p>\n<p begin=\"3s end=\"4s\">d</p>\n<p "
      "begin=\"5s\" end=\"6s\">e\n<p begin=\"5s\" end=\"6s\"\n<p begin=\"1s\">f</p> <![CDATA[g & "
      "<h>",
      "1.000-2.000 |a < b & c\n1.000-1.500 |f\n3.000-3.500 |d\n5.000-6.000 |e\n?-? |g & <h>\n" },
  { "text-alone",
      "<?xml version=\"1.0\"?>\n<doc><title>x</title><line>One.</line>\n<line>Two."
      "</line></doc>\n",
      "?-? |One.\n?-? |Two.\n" },
  { "html",
      "<!DOCTYPE html>\n<html><head><title>x</title><script>if (a < b) y ();</script></head>"
      "<body><h1>Talk</h1><p>Ann: One.<p>Bob: <b>Two</b>.<br>Ann: Three.</body></html>\n",
      "?-? |Talk\n?-? Ann|Ann: One.\n?-? Bob|Bob: Two.\n?-? Ann|Ann: Three.\n" },
  { "nothing", "<?xml version=\"1.0\"?>\n<tt><body/></tt>\n", "" },
};

static void
test_xml (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);
  const char *xml = xml_cases[i].xml;
  gsize length = strlen (xml);
  ReadOptions options = { 0 };
  g_autofree char *whole = describe_transcript (xml, length, length, 1, &options);

  g_assert_cmpstr (whole, ==, xml_cases[i].expected);
  for (gsize first = 1; first < length && !g_test_failed (); first++) {
    g_autofree char *two = describe_transcript (xml, length, first, 1 + first % 9, &options);

    g_assert_cmpstr (two, ==, xml_cases[i].expected);
  }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();

  g_test_add_func ("/transcript-formats/million-cues", test_million_cues);
  g_test_add_func ("/transcript-formats/megabyte-cue", test_megabyte_cue);
  g_test_add_func ("/transcript-formats/hostile", test_hostile);
  g_test_add_func ("/transcript-formats/recognised", test_recognised);
  g_test_add_func ("/transcript-formats/binary", test_binary);
  for (guint i = 0; i < G_N_ELEMENTS (xml_cases); i++) {
    g_autofree char *path = g_strconcat ("/transcript-formats/xml/", xml_cases[i].name, NULL);

    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_xml);
  }
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++) {
    g_autofree char *path = g_strconcat ("/transcript-formats/words/", formats[i].name, NULL);

    g_test_add_data_func (path, &formats[i], test_words);
  }
  return g_test_run ();
}
