/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transcript-fixture.h"

#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* The JSON of recognisers. */
typedef struct {
  const char *name;
  const char *json;
  const char *expected;
} JsonCase;

static const JsonCase json_cases[] = {
  { "whisper",
      "{\"text\": \" Hello there. Bye.\", \"segments\": [{\"id\": 0, \"seek\": 0, \"start\": 0.0, "
      "\"end\": 1.5, \"text\": \" Hello there.\", \"tokens\": [50364, 2425], \"temperature\": "
      "0.0}, "
      "{\"start\": 2, \"end\": 3, \"text\": \" Bye.\"}], \"language\": \"en\"}",
      "0.000-1.500 |Hello there.\n2.000-3.000 |Bye.\n" },
  { "whisper-words",
      "{\"segments\": [{\"start\": 0.0, \"end\": 1.5, \"text\": \" Hello there.\", \"words\": "
      "[{\"word\": "
      "\" Hello\", \"start\": 0.0, \"end\": 0.5, \"probability\": 0.9}, {\"word\": \" there.\", "
      "\"start\": 0.5, \"end\": 1.5}]}], \"word_segments\": [{\"word\": \"Hello\", \"start\": 0.0, "
      "\"end\": 0.5, \"speaker\": \"SPEAKER_00\"}]}",
      "0.000-1.500 |Hello there.\n" },
  { "words-before-text",
      "{\"segments\": [{\"words\": [{\"word\": \"Hello\", \"start\": 0.2, \"end\": 0.5}, "
      "{\"word\": "
      "\"there.\", \"start\": 0.5, \"end\": 1.5}], \"text\": \"Hello there.\"}]}",
      "0.200-1.500 |Hello there.\n" },
  { "segments-speakers",
      "[{\"speaker\": \"Ann\", \"text\": \"One.\", \"start\": 0.5, \"end\": 1.5}, {\"speaker\": 1, "
      "\"text\": \"Two.\", \"start\": 2.5, \"end\": 3.5}]",
      "0.500-1.500 Ann|Ann: One.\n2.500-3.500 Speaker 1|Speaker 1: Two.\n" },
  { "word-list",
      "[{\"word\": \"Good\", \"start\": 0.0, \"end\": 0.3}, {\"word\": \"morning.\", \"start\": "
      "0.3, "
      "\"end\": 0.8}, {\"word\": \"It\", \"start\": 0.9, \"end\": 1.0}, {\"word\": \"rains\", "
      "\"start\": 1.0, \"end\": 1.5}, {\"word\": \"there\", \"start\": 4.0, \"end\": 4.5}]",
      "0.000-0.800 |Good morning.\n0.900-1.500 |It rains\n4.000-4.500 |there\n" },
  { "word-list-japanese",
      "{\"words\": [{\"word\": \"今日\", \"start\": 0.0, \"end\": 0.3}, {\"word\": \"は\", "
      "\"start\": 0.3, "
      "\"end\": 0.4}, {\"word\": \"雨。\", \"start\": 0.4, \"end\": 0.9}, {\"word\": \"そう\", "
      "\"start\": "
      "1.0, \"end\": 1.4}]}",
      "0.000-0.900 |今日は雨。\n1.000-1.400 |そう\n" },
  { "word-speakers",
      "{\"words\": [{\"word\": \"yes\", \"start\": 0.0, \"end\": 0.3, \"speaker\": \"A\"}, "
      "{\"word\": "
      "\"no\", \"start\": 0.3, \"end\": 0.4, \"speaker\": \"B\"}]}",
      "0.000-0.300 A|A: yes\n0.300-0.400 B|B: no\n" },
  { "lines",
      "{\"partial\": \"hel\"}\n{\"partial\": \"hello\"}\n{\"result\": [{\"conf\": 1.0, \"end\": "
      "0.6, "
      "\"start\": 0.1, \"word\": \"hello\"}], \"text\": \"hello\"}\n{\"partial\": \"\"}\n"
      "{\"start\": 2.0, \"end\": 3.0, \"text\": \"again\"}\n",
      "0.100-0.600 |hello\n2.000-3.000 |again\n" },
  { "lines-words",
      "{\"word\": \"one\", \"start\": 0.1, \"end\": 0.4}\n{\"word\": \"two.\", \"start\": 0.4, "
      "\"end\": "
      "0.8}\n{\"word\": \"three\", \"start\": 0.9, \"end\": 1.2}\n",
      "0.100-0.800 |one two.\n0.900-1.200 |three\n" },
  { "whisper-cpp",
      "{\"result\": {\"language\": \"en\"}, \"transcription\": [{\"timestamps\": {\"from\": "
      "\"00:00:00,000\", \"to\": \"00:00:02,500\"}, \"offsets\": {\"from\": 0, \"to\": 2500}, "
      "\"text\": "
      "\" One\", \"tokens\": [{\"text\": \"[_BEG_]\", \"offsets\": {\"from\": 0, \"to\": 0}}]}]}",
      "0.000-2.500 |One\n" },
  { "chunks",
      "{\"text\": \" One Two\", \"chunks\": [{\"timestamp\": [0.0, 1.5], \"text\": \" One\"}, "
      "{\"timestamp\": [2.5, null], \"text\": \" Two\"}]}",
      "0.000-1.500 |One\n2.500-3.000 |Two\n" },
  { "milliseconds",
      "{\"text\": \"Hi there.\", \"words\": [{\"text\": \"Hi\", \"start\": 250, \"end\": 650, "
      "\"speaker\": null}, {\"text\": \"there.\", \"start\": 730, \"end\": 1022}]}",
      "0.250-1.022 |Hi there.\n" },
  { "whole-seconds", "[{\"text\": \"Good morning to you all.\", \"start\": 1, \"end\": 4}]",
      "1.000-4.000 |Good morning to you all.\n" },
  { "alternatives",
      "{\"results\": [{\"alternatives\": [{\"transcript\": \"how old\", \"confidence\": 0.9, "
      "\"words\": "
      "[{\"startTime\": \"0.300s\", \"endTime\": \"0.600s\", \"word\": \"how\"}, {\"startTime\": "
      "\"0.600s\", \"endTime\": \"0.800s\", \"word\": \"old\"}]}, {\"transcript\": \"who "
      "old\"}]}]}",
      "0.300-0.800 |how old\n" },
  { "items",
      "{\"results\": {\"transcripts\": [{\"transcript\": \"Hi. Yes.\"}], \"items\": "
      "[{\"start_time\": "
      "\"0.0\", \"end_time\": \"0.5\", \"alternatives\": [{\"content\": \"Hi\"}], \"type\": "
      "\"pronunciation\"}, {\"alternatives\": [{\"content\": \".\"}], \"type\": \"punctuation\"}, "
      "{\"start_time\": \"0.9\", \"end_time\": \"1.5\", \"alternatives\": [{\"content\": "
      "\"Yes\"}], "
      "\"type\": \"pronunciation\"}, {\"alternatives\": [{\"content\": \".\"}], \"type\": "
      "\"punctuation\"}]}}",
      "0.000-0.500 |Hi.\n0.900-1.500 |Yes.\n" },
  { "utterances-and-words",
      "{\"utterances\": [{\"speaker\": \"A\", \"start\": 0.5, \"end\": 1.5, \"text\": \"Hi.\", "
      "\"words\": "
      "[{\"text\": \"Hi.\", \"start\": 0.5, \"end\": 1.5}]}], \"words\": [{\"text\": \"Hi.\", "
      "\"start\": "
      "0.5, \"end\": 1.5}], \"text\": \"Hi.\"}",
      "0.500-1.500 A|A: Hi.\n" },
  { "podcast",
      "{\"version\": \"1.0.0\", \"segments\": [{\"speaker\": \"Ann\", \"startTime\": 0.5, "
      "\"endTime\": 1.0, \"body\": \"Hi\"}]}",
      "0.500-1.000 Ann|Ann: Hi\n" },
  { "events",
      "{\"events\": [{\"tStartMs\": 0, \"dDurationMs\": 900, \"segs\": [{\"utf8\": \"one\"}, "
      "{\"utf8\": "
      "\" two\", \"tOffsetMs\": 300}]}, {\"tStartMs\": 900, \"aAppend\": 1, \"segs\": [{\"utf8\": "
      "\"\\n\"}]}, {\"tStartMs\": 1000, \"dDurationMs\": 500, \"segs\": [{\"utf8\": \"three\"}]}]}",
      "0.000-0.900 |one two\n1.000-1.500 |three\n" },
  { "only-text", "{\"text\": \"Hello there.\"}", "?-? |Hello there.\n" },
  { "escapes",
      "[{\"text\": \"caf\\u00e9 \\ud83d\\ude00 \\\"q\\\" \\/ a\\nb \\ud83d!\", \"start\": 0.5, "
      "\"end\": 1.5}]",
      "0.500-1.500 |café 😀 \"q\" / a/b \xef\xbf\xbd!\n" },
  { "cut-off",
      "{\"segments\": [{\"start\": 0.5, \"end\": 1.5, \"text\": \"a\"}, {\"start\": 2.5, \"end\": "
      "3.5, \"text\": \"b c",
      "0.500-1.500 |a\n2.500-3.500 |b c\n" },
  { "python",
      "{'text': 'a', 'segments': [{'start': 1.0, 'end': 2.0, 'text': \"it's a\"}, "
      "{'start': 3.0, 'end': None, 'text': 'b'}], 'x': True}",
      "1.000-2.000 |it's a\n3.000-3.500 |b\n" },
  { "call", "captions.show({\"segments\": [{\"start\": 1, \"end\": 2, \"text\": \"a\"}]});",
      "1.000-2.000 |a\n" },
  { "assignment", "var x = [{\"start\": 1, \"end\": 2, \"text\": \"a\"}];\n", "1.000-2.000 |a\n" },
  { "comments",
      "// it's \"x\"\n/* {\"text\": 'x'} **/\n{\"segments\": [ // x\n"
      "{\"start\": 1, /**/ \"end\": 2, \"text\": \"a // b\"}]}\n",
      "1.000-2.000 |a // b\n" },
  { "no-speech", "{\"a\": [1, 2, {\"b\": null}], \"c\": true}", "" },
};

static void
test_json (gconstpointer data)
{
  const JsonCase *c = data;
  ReadOptions options = { 0 };
  gsize length = strlen (c->json);
  g_autofree char *whole = describe_transcript (c->json, length, length, 1, &options);

  g_assert_cmpstr (whole, ==, c->expected);
  for (gsize first = 1; first < length && !g_test_failed (); first++) {
    g_autofree char *two = describe_transcript (c->json, length, first, 1 + first % 9, &options);

    g_assert_cmpstr (two, ==, c->expected);
  }
}

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
  { "turns", LYCHEE_TRANSCRIPT_FORMAT_TEXT, "Ann: One.\nBob: Two.\nAnn: Three.\nBob: Four.\n" },
  { "xml", NOT,
      "<?xml version=\"1.0\"?>\n<tt><p begin=\"00:00:01.000\">a</p>\n<!--\n-->\n</tt>\n" },
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

static const Format formats[] = {
  { "subrip", "UTF-8", write_subrip, "", "" },
  { "subrip-utf-16", "UTF-16", write_subrip, "", "" },
  { "webvtt", "UTF-8", write_webvtt, "WEBVTT\n\n", "" },
  { "ass", "UTF-8", write_ass, "[Script Info]\nScriptType: v4.00+\n\n[Events]\n", "" },
  { "json", "UTF-8", write_json, "{\"segments\": [", "]}" },
  { "text", "UTF-8", write_text, "", "" },
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
    gboolean shuffled = round % 2 == 1 && strcmp (format->name, "text") != 0;
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
  static const char *const pieces[] = { "<", "<s>", "{\\", "&", "{\\a}", "a:", ">> ", "<v x>", "a ",
    "\\N", "[", "<a", "&#", "- " };

  for (guint i = 0; i < G_N_ELEMENTS (pieces); i++) {
    g_autoptr (GString) vtt = g_string_new ("WEBVTT\n\n00:01.000 --> 00:02.000\n");
    g_autoptr (GPtrArray) cues = NULL;
    ReadOptions options = { .stream = TRUE };
    clock_t start = clock ();

    while (vtt->len < 400000)
      g_string_append (vtt, pieces[i]);
    cues = read_transcript (vtt->str, vtt->len, 4096, 4096, &options, NULL);
    g_test_message ("%s: %.0f ms", pieces[i], (clock () - start) * 1e3 / CLOCKS_PER_SEC);
    g_assert_cmpfloat ((clock () - start) / (double) CLOCKS_PER_SEC, <, 20);
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
  for (guint i = 0; i < G_N_ELEMENTS (json_cases); i++) {
    g_autofree char *path = g_strconcat ("/transcript-formats/json/", json_cases[i].name, NULL);

    g_test_add_data_func (path, &json_cases[i], test_json);
  }
  for (guint i = 0; i < G_N_ELEMENTS (formats); i++) {
    g_autofree char *path = g_strconcat ("/transcript-formats/words/", formats[i].name, NULL);

    g_test_add_data_func (path, &formats[i], test_words);
  }
  return g_test_run ();
}
