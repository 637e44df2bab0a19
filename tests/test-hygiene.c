/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transcript-fixture.h"

/* What a hygiene makes of cues. A cue is a line "start end text" with times in milliseconds, "|"
 * for newlines; "?" is a time that is not known. What comes out is as describe_cue() writes it. */
typedef struct {
  const char *name;
  const char *off; /* properties that are off, with commas; or "labels=none" */
  LycheeCueMarkup markup;
  const char *cues;
  const char *expected;
} Case;

#define SUBRIP LYCHEE_CUE_MARKUP_SUBRIP
#define WEBVTT LYCHEE_CUE_MARKUP_WEBVTT
#define ASS LYCHEE_CUE_MARKUP_ASS
#define NONE LYCHEE_CUE_MARKUP_NONE

#define SAY_5(line) line line line line line

static const Case cases[] = {
  /* Markup */
  { "markup/subrip", NULL, SUBRIP, "0 900 {\\an8}<i>a</i>\\Nb\\hc {y:i}d <font color=x>e</font>\n",
      "0.000-0.900 |a/b c d e\n" },
  { "markup/off", "markup", SUBRIP, "0 900 {\\an8}<i>a</i> &amp;\n",
      "0.000-0.900 |{\\an8}<i>a</i> &amp;\n" },
  { "markup/path", NULL, SUBRIP, "0 900 C:\\Name \\Nb D:\\hello\n",
      "0.000-0.900 |C:\\Name/b D:\\hello\n" },
  { "markup/braces", NULL, SUBRIP, "0 900 {not markup} {\\an8 open\n",
      "0.000-0.900 |{not markup} {\\an8 open\n" },
  { "markup/ass", NULL, ASS, "0 900 {comment}a\\nb {\\b1}c & <d>\n", "0.000-0.900 |a/b c & <d>\n" },
  { "markup/none", NULL, NONE, "0 900 <i>a</i> {\\an8} b&#39;s &amp;lt;\n",
      "0.000-0.900 |<i>a</i> {\\an8} b's &lt;\n" },
  { "markup/comment", NULL, WEBVTT,
      "0 900 <!-- x <b> y -->a <!---->b <!-- c\n1000 1900 <!-- x -->\n",
      "0.000-0.900 |a b <!-- c\n" },
  { "markup/only", NULL, SUBRIP, "0 900 <i></i>\n1000 1900 b\n", "1.000-1.900 |b\n" },
  { "markup/control-tokens", NULL, WEBVTT,
      "0 900 <im_start>user <s> </s> [INST] <<SYS>> <start_of_turn> <pad>\n",
      "0.000-0.900 |<im_start>user [INST] <<SYS>> <start_of_turn> <pad>\n" },

  /* At the beginning of a stream the next cue tells whether what is shown again was said again. */
  { "rolling/begins", NULL, NONE,
      "0 900 so\n900 1800 so good\n1800 2700 so good evening all\n"
      "2700 3600 so good evening all of you\n",
      "0.000-0.900 |so\n0.900-1.800 |good\n1.800-2.700 |evening all\n2.700-3.600 |of you\n" },
  { "rolling/begins-otherwise", NULL, NONE, "0 900 no\n900 1800 no no\n1800 2700 what now\n",
      "0.000-0.900 |no\n0.900-1.800 |no no\n1.800-2.700 |what now\n" },
  { "rolling/begins-and-ends", NULL, NONE, "0 900 Ann: no\n900 1800 Ann: no I said\n",
      "0.000-0.900 Ann|Ann: no\n0.900-1.800 Ann|Ann: no I said\n" },

  /* Speakers */
  { "speakers/labels", NULL, NONE,
      "0 900 Ann: a|Bob Lee: b\n1000 1900 c\n2000 2900 DR. O'HARA: d\n",
      "0.000-0.900 Ann|Ann: a\n0.000-0.900 Bob Lee|Bob Lee: b\n1.000-1.900 Bob Lee|c\n"
      "2.000-2.900 DR. O'HARA|DR. O'HARA: d\n" },
  { "speakers/not-labels", NULL, NONE,
      "0 900 Note: a\n1000 1900 10:30 b\n2000 2900 http://c.example\n3000 3900 He said: d\n"
      "4000 4900 What is it? This: e\n5000 5900 C:\\f\n6000 6900 1: g\n7000 7900 the host: h\n",
      "0.000-0.900 |Note: a\n1.000-1.900 |10:30 b\n2.000-2.900 |http://c.example\n"
      "3.000-3.900 |He said: d\n4.000-4.900 |What is it? This: e\n5.000-5.900 |C:\\f\n"
      "6.000-6.900 |1: g\n7.000-7.900 |the host: h\n" },
  { "speakers/marks", NULL, NONE,
      "0 900 >> a >> b\n1000 1900 >>> c\n2000 2900 >> ANN: d|>>Bob: e\n",
      "0.000-0.900 >>|>> a\n0.000-0.900 >>|>> b\n1.000-1.900 >>|>> c\n2.000-2.900 ANN|ANN: d\n"
      "2.000-2.900 Bob|Bob: e\n" },
  /* One that is called once: behind a mark, it cannot be anything else. */
  { "speakers/marks-once", NULL, NONE,
      "0 900 >> Zoë: a\n1000 1900 b\n2000 2900 c\n3000 3900 >> 李华: d\n4000 4900 e\n"
      "5000 5900 >> Note: f\n6000 6900 g\n7000 7900 h\n8000 8900 i\n",
      "0.000-0.900 Zoë|Zoë: a\n1.000-1.900 Zoë|b\n2.000-2.900 Zoë|c\n3.000-3.900 李华|李华: d\n"
      "4.000-4.900 李华|e\n5.000-5.900 >>|>> Note: f\n6.000-6.900 >>|g\n7.000-7.900 >>|h\n"
      "8.000-8.900 >>|i\n" },
  { "speakers/brackets", NULL, NONE,
      "0 900 [SPEAKER_01] a\n1000 1900 [Speaker 2]: b\n2000 2900 [Music]\n3000 3900 (Ann): c\n"
      "4000 4900 SPEAKER_00: d\n",
      "0.000-0.900 SPEAKER_01|SPEAKER_01: a\n1.000-1.900 Speaker 2|Speaker 2: b\n"
      "2.000-2.900 Speaker 2|[Music]\n3.000-3.900 Ann|Ann: c\n4.000-4.900 SPEAKER_00|SPEAKER_00: "
      "d\n" },
  { "speakers/names-in-brackets", NULL, NONE,
      "0 900 [Ann] a\n1000 1900 [Bob Lee] b|[Ann] c\n2000 2900 [Laughter]\n"
      "3000 3900 [Laughter] [Ann] d\n4000 4900 [Cat] e\n5000 5900 [Music] f\n",
      "0.000-0.900 |[Ann] a\n1.000-1.900 |[Bob Lee] b/[Ann] c\n2.000-2.900 |[Laughter]\n"
      "3.000-3.900 |[Laughter] [Ann] d\n4.000-4.900 Cat|Cat: e\n5.000-5.900 Cat|[Music] f\n" },
  { "speakers/sounds-in-brackets", NULL, NONE,
      "0 900 [Applause] a\n1000 1900 [Music] b\n2000 2900 [Thunder] c\n3000 3900 [Thunder] d\n"
      "4000 4900 [Ann sighs] e\n5000 5900 [Thunder] f\n",
      "0.000-0.900 |[Applause] a\n1.000-1.900 |[Music] b\n2.000-2.900 |[Thunder] c\n"
      "3.000-3.900 |[Thunder] d\n4.000-4.900 |[Ann sighs] e\n5.000-5.900 |[Thunder] f\n" },
  { "speakers/turn-and-brackets", NULL, NONE, "0 900 >> [Ann] a\n1000 1900 >> [Bob]: b\n",
      "0.000-0.900 >>|>> [Ann] a\n1.000-1.900 Bob|Bob: b\n" },
  { "speakers/dialogue", NULL, NONE, "0 900 - Ann: a|- Bob: b\n",
      "0.000-0.900 Ann|Ann: a\n"
      "0.000-0.900 Bob|Bob: b\n" },
  { "speakers/entities", NULL, WEBVTT, "0 900 &gt;&gt; a\n", "0.000-0.900 >>|>> a\n" },
  { "speakers/off", "speakers", WEBVTT, "0 900 Ann: a\n1000 1900 <v Bob>b\n",
      "0.000-0.900 |Ann: a\n1.000-1.900 Bob|Bob: b\n" },
  { "speakers/voices", NULL, WEBVTT,
      "0 900 <v Ann>a\n1000 1900 <v Ann>b\n2000 2900 <v Bob>c\n3000 3900 d\n",
      "0.000-0.900 Ann|Ann: a\n1.000-1.900 Ann|b\n2.000-2.900 Bob|Bob: c\n3.000-3.900 |d\n" },
  { "speakers/no-labels", "labels=none", WEBVTT, "0 900 <v Ann>a\n1000 1900 Bob: b\n",
      "0.000-0.900 Ann|a\n1.000-1.900 Bob|b\n" },
  { "speakers/always", "labels=always", WEBVTT, "0 900 <v Ann>a\n1000 1900 <v Ann>b\n",
      "0.000-0.900 Ann|Ann: a\n1.000-1.900 Ann|Ann: b\n" },
  { "speakers/arabic", NULL, NONE,
      "0 900 سارة: صباح الخير\n1000 1900 علي: أهلا\n2000 2900 سارة: نعم\n3000 3900 علي: حسنا\n",
      "0.000-0.900 |سارة: صباح الخير\n1.000-1.900 |علي: أهلا\n2.000-2.900 سارة|سارة: نعم\n"
      "3.000-3.900 علي|علي: حسنا\n" },

  /* Rolling captions */
  { "rolling/two-lines", NULL, NONE,
      "0 2000 one two three\n2000 2010 one two three\n2010 4000 one two three|no no\n"
      "4000 4010 no no\n4010 6000 no no|no no I said\n6000 6010 no no I said\n",
      "0.000-2.000 |one two three\n2.010-4.000 |no no\n4.010-6.000 |no no I said\n" },
  { "rolling/three-lines", NULL, NONE,
      "0 1000 it is a fine day\n1000 2000 it is a fine day|and we walk\n"
      "2000 3000 it is a fine day|and we walk|up to the lake\n"
      "3000 4000 and we walk|up to the lake|and back again now\n",
      "0.000-1.000 |it is a fine day\n1.000-2.000 |and we walk\n2.000-3.000 |up to the lake\n"
      "3.000-4.000 |and back again now\n" },
  { "rolling/extended", NULL, NONE,
      "0 1000 so we\n0 2000 so we go\n0 3000 so we go home\n3000 4000 then\n",
      "0.000-1.000 |so we\n0.000-2.000 |go\n0.000-3.000 |home\n3.000-4.000 |then\n" },
  { "rolling/chinese", NULL, NONE,
      "0 1000 大家早上好\n1000 2000 大家早上好今天开会\n2000 3000 大家早上好今天开会|请坐下\n",
      "0.000-1.000 |大家早上好\n1.000-2.000 |今天开会\n2.000-3.000 |请坐下\n" },
  { "rolling/sliding", NULL, NONE,
      "0 300 we\n300 600 we buy\n600 900 we buy the\n900 1200 we buy the lamps\n"
      "1200 1500 buy the lamps ourselves\n1500 1800 the lamps ourselves then\n"
      "1800 2100 lamps ourselves then we\n2100 2400 ourselves then we send\n"
      "2400 2700 then we send them\n",
      "0.000-0.300 |we\n0.300-0.600 |buy\n0.600-0.900 |the\n0.900-1.200 |lamps\n"
      "1.200-1.500 |ourselves\n1.500-1.800 |then\n1.800-2.100 |we\n2.100-2.400 |send\n"
      "2.400-2.700 |them\n" },
  { "rolling/grown-and-begins-alike", NULL, NONE,
      "0 300 so then\n300 600 so then we buy\n600 900 so then we buy the lamps\n"
      "900 1200 lamps\n1200 1500 lamps that last\n1500 1800 lamps that last and last\n"
      "1800 2100 last\n2100 2400 last a year\n",
      "0.000-0.300 |so then\n0.300-0.600 |we buy\n0.600-0.900 |the lamps\n0.900-1.200 |lamps\n"
      "1.200-1.500 |that last\n1.500-1.800 |and last\n1.800-2.100 |last\n2.100-2.400 |a year\n" },
  { "rolling/said-again", NULL, NONE,
      "0 900 what we have to do\n900 1900 we have to do it now\n1900 2900 now we have it\n",
      "0.000-0.900 |what we have to do\n0.900-1.900 |we have to do it now\n"
      "1.900-2.900 |now we have it\n" },
  { "rolling/not", NULL, NONE,
      "0 1000 no\n1000 2000 no\n2000 3000 no, no\n3000 4000 I do not know.\n4500 5000 I do not "
      "know. Maybe.\n",
      "0.000-1.000 |no\n1.000-2.000 |no\n2.000-3.000 |no, no\n3.000-4.000 |I do not know.\n"
      "4.500-5.000 |I do not know. Maybe.\n" },
  { "rolling/off", "rolling", NONE, "0 1000 one two three\n1000 2000 one two three|four\n",
      "0.000-1.000 |one two three\n1.000-2.000 |one two three/four\n" },

  /* Loops */
  { "loops/sentence", NULL, NONE, SAY_5 (SAY_5 ("0 0 Thank you for watching.\n")) "9000 9900 b\n",
      "0.000-0.000 |Thank you for watching.\n9.000-9.900 |b\n" },
  { "loops/twice-is-none", NULL, NONE,
      "0 900 We shall overcome.\n2000 2900 We shall overcome.\n4000 4900 We shall overcome.\n6000 "
      "6900 b\n",
      "0.000-0.900 |We shall overcome.\n2.000-2.900 |We shall overcome.\n4.000-4.900 |We shall "
      "overcome.\n6.000-6.900 |b\n" },
  { "loops/end", NULL, NONE, "0 900 We shall.\n2000 2900 We shall.\n",
      "0.000-0.900 |We shall.\n2.000-2.900 |We shall.\n" },
  { "loops/short", NULL, NONE,
      "0 900 No.\n2000 2900 No.\n4000 4900 No.\n6000 6900 No.\n8000 8900 b\n",
      "0.000-0.900 |No.\n2.000-2.900 |No.\n4.000-4.900 |No.\n6.000-6.900 |No.\n8.000-8.900 |b\n" },
  { "loops/inside", NULL, NONE,
      "0 900 So. " SAY_5 ("Go on then. ") SAY_5 ("Go on then. ") "Stop. no, no, no, no\n",
      "0.000-0.900 |So. Go on then. Stop. no, no, no, no\n" },
  { "loops/inside-chinese", NULL, NONE, "0 900 " SAY_5 ("谢谢大家") SAY_5 ("谢谢大家") "再见\n",
      "0.000-0.900 |谢谢大家再见\n" },
  { "loops/turns", NULL, NONE,
      SAY_5 (SAY_5 ("0 0 Thank you for watching.\n1 1 See you next time.\n")) "9000 9900 b\n",
      "0.000-0.000 |Thank you for watching.\n0.001-0.001 |See you next time.\n9.000-9.900 |b\n" },
  { "loops/turns-cut", NULL, NONE,
      SAY_5 (
          "0 0 One two three.\n1 1 Four five six.\n2 2 Seven eight.\n") "3 3 One two three.\n"
                                                                        "4 4 Four five six.\n5 5 "
                                                                        "Seven eight.\n6 6 One two "
                                                                        "three.\n9000 9900 b\n",
      "0.000-0.000 |One two three.\n0.001-0.001 |Four five six.\n0.002-0.002 |Seven eight.\n"
      "9.000-9.900 |b\n" },
  { "loops/refrain-is-none", "duplicates", NONE,
      SAY_5 ("0 0 Row, row your boat.\n1 1 Down the stream.\n") "9000 9900 b\n",
      SAY_5 (
          "0.000-0.000 |Row, row your boat.\n0.001-0.001 |Down the stream.\n") "9.000-9.900 |b\n" },
  { "loops/answers-are-none", "duplicates", NONE,
      SAY_5 ("0 0 Yes.\n1 1 No.\n") SAY_5 ("0 0 Yes.\n1 1 No.\n") "9000 9900 b\n",
      SAY_5 ("0.000-0.000 |Yes.\n0.001-0.001 |No.\n")
          SAY_5 ("0.000-0.000 |Yes.\n0.001-0.001 |No.\n") "9.000-9.900 |b\n" },
  { "loops/turns-go-on", NULL, NONE,
      "0 900 We go.\n1000 1900 They stay.\n2000 2900 We go.\n3000 3900 They stay.\n"
      "4000 4900 We go home.\n",
      "0.000-0.900 |We go.\n1.000-1.900 |They stay.\n2.000-2.900 |We go.\n3.000-3.900 |They stay.\n"
      "4.000-4.900 |We go home.\n" },
  { "loops/off", "loops,rolling,duplicates", NONE, SAY_5 ("0 900 a b c\n"),
      SAY_5 ("0.000-0.900 |a b c\n") },

  /* Duplicates */
  { "duplicates/one", NULL, ASS, "0 900 {\\blur2}a\n0 900 b\n0 900 {\\bord1}a\n1000 1900 a\n",
      "0.000-0.900 |a\n0.000-0.900 |b\n1.000-1.900 |a\n" },
  { "duplicates/off", "duplicates,rolling", NONE, "0 900 a\n0 900 b\n0 900 a\n",
      "0.000-0.900 |a\n0.000-0.900 |b\n0.000-0.900 |a\n" },
};

static LycheeCue *
read_cue (const char *line, LycheeCueMarkup markup)
{
  char *end;
  guint64 start = g_ascii_strtoull (line, &end, 10);
  guint64 stop = g_ascii_strtoull (end, &end, 10);
  LycheeCue *cue = lychee_cue_new (end + 1, -1, NULL, start * 1000000, stop * 1000000);

  g_strdelimit (cue->text, "|", '\n');
  cue->markup = markup;
  return cue;
}

static void
switch_off (LycheeHygiene *hygiene, const char *off)
{
  g_auto (GStrv) names = g_strsplit (off != NULL ? off : "", ",", -1);

  for (guint i = 0; names[i] != NULL; i++) {
    if (strcmp (names[i], "labels=none") == 0)
      g_object_set (hygiene, "speaker-labels", LYCHEE_SPEAKER_LABELS_NONE, NULL);
    else if (strcmp (names[i], "labels=always") == 0)
      g_object_set (hygiene, "speaker-labels", LYCHEE_SPEAKER_LABELS_ALWAYS, NULL);
    else
      g_object_set (hygiene, names[i], FALSE, NULL);
  }
}

static char *
describe (GPtrArray *cues)
{
  GString *out = g_string_new (NULL);

  for (guint i = 0; i < cues->len; i++)
    describe_cue (out, g_ptr_array_index (cues, i));
  g_ptr_array_set_size (cues, 0);
  return g_string_free (out, FALSE);
}

static void
test_case (gconstpointer data)
{
  const Case *c = data;
  g_autoptr (LycheeHygiene) hygiene = lychee_hygiene_new ();
  g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  g_auto (GStrv) lines = g_strsplit (c->cues, "\n", -1);
  g_autofree char *found = NULL;

  switch_off (hygiene, c->off);
  for (guint i = 0; lines[i] != NULL && *lines[i] != '\0'; i++)
    lychee_hygiene_push (hygiene, read_cue (lines[i], c->markup), cues);
  lychee_hygiene_drain (hygiene, cues);
  found = describe (cues);
  g_assert_cmpstr (found, ==, c->expected);
}

/* A hypothesis waits for a better one, or for what says that it is final. */
static void
test_partials (void)
{
  g_autoptr (LycheeHygiene) hygiene = lychee_hygiene_new ();
  g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  static const char *const lines[] = { "0 500 he", "0 900 hello wor", "0 1000 hello world",
    "2000 2500 next" };
  char *found;

  for (guint i = 0; i < G_N_ELEMENTS (lines); i++) {
    LycheeCue *cue = read_cue (lines[i], NONE);

    cue->flags = LYCHEE_CUE_PARTIAL;
    lychee_hygiene_push (hygiene, cue, cues);
    found = describe (cues);
    g_assert_cmpstr (found, ==, i == 3 ? "0.000-1.000 |hello world\n" : "");
    g_free (found);
  }
  lychee_hygiene_end_hypothesis (hygiene, cues);
  found = describe (cues);
  g_assert_cmpstr (found, ==, "2.000-2.500 |next\n");
  g_free (found);
  g_assert_cmpuint (lychee_hygiene_get_report (hygiene).partials, ==, 2);
}

/* Words that begin at the same time, and are not the same, are all kept. */
static void
test_not_partials (void)
{
  g_autoptr (LycheeHygiene) hygiene = lychee_hygiene_new ();
  g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  static const char *const lines[] = { "0 500 good", "0 500 morning", "400 900 all" };
  g_autofree char *found = NULL;

  for (guint i = 0; i < G_N_ELEMENTS (lines); i++) {
    LycheeCue *cue = read_cue (lines[i], NONE);

    cue->flags = LYCHEE_CUE_PARTIAL;
    lychee_hygiene_push (hygiene, cue, cues);
  }
  lychee_hygiene_drain (hygiene, cues);
  found = describe (cues);
  g_assert_cmpstr (found, ==, "0.000-0.500 |good\n0.000-0.500 |morning\n0.400-0.900 |all\n");
}

static void
test_speaker_event (void)
{
  g_autoptr (LycheeHygiene) hygiene = lychee_hygiene_new ();
  g_autoptr (GPtrArray) cues = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  g_autofree char *found = NULL;

  lychee_hygiene_push (hygiene, read_cue ("0 900 a", NONE), cues);
  lychee_hygiene_set_speaker (hygiene, "Ann", cues);
  lychee_hygiene_push (hygiene, read_cue ("1000 1900 b", NONE), cues);
  lychee_hygiene_push (hygiene, read_cue ("2000 2900 c", NONE), cues);
  lychee_hygiene_set_speaker (hygiene, NULL, cues);
  lychee_hygiene_push (hygiene, read_cue ("3000 3900 d", NONE), cues);
  lychee_hygiene_drain (hygiene, cues);
  found = describe (cues);
  g_assert_cmpstr (
      found, ==, "0.000-0.900 |a\n1.000-1.900 Ann|Ann: b\n2.000-2.900 Ann|c\n3.000-3.900 |d\n");
}

/* Rolling captions as YouTube writes them, of a text that repeats itself: each line is shown when
 * it is new, with the one before, alone for 10 ms, and again above the next. */
static void
test_rolling_file (void)
{
  static const char *const said[] = { "no", "no no", "I said no", "no", "I said no", "and",
    "and then", "and then we went", "home", "home" };
  g_autoptr (GString) vtt = g_string_new ("WEBVTT\nKind: captions\nLanguage: en\n\n");
  g_autoptr (GPtrArray) cues = NULL;
  ReadOptions options = { 0 };
  ReadResult result = { 0 };

  for (guint i = 0; i < G_N_ELEMENTS (said); i++) {
    const char *before = i > 0 ? said[i - 1] : " ";

    g_string_append_printf (vtt, "00:%02u.000 --> 00:%02u.990 align:start position:0%%\n%s\n",
        2 * i, 2 * i + 1, before);
    for (const char *at = said[i]; *at != '\0'; at++)
      if (*at == ' ')
        g_string_append_printf (vtt, "<00:00:%02u.500><c> ", 2 * i);
      else
        g_string_append_c (vtt, *at);
    g_string_append_printf (vtt,
        "\n\n00:%02u.990 --> 00:%02u.000 align:start position:0%%\n%s\n \n\n", 2 * i + 1, 2 * i + 2,
        said[i]);
  }
  cues = read_transcript (vtt->str, vtt->len, 100, 100, &options, &result);
  g_assert_cmpuint (cues->len, ==, G_N_ELEMENTS (said));
  for (guint i = 0; i < cues->len; i++) {
    const LycheeCue *cue = g_ptr_array_index (cues, i);

    g_assert_cmpstr (cue->text, ==, said[i]);
    g_assert_cmpuint (cue->start, ==, G_GUINT64_CONSTANT (2000000000) * i);
  }
  g_assert_cmpstr (result.language, ==, "en");
  g_assert_cmpuint (result.hygiene.rolling, >=, 2 * G_N_ELEMENTS (said) - 2);
  g_free (result.language);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strconcat ("/hygiene/", cases[i].name, NULL);

    g_test_add_data_func (path, &cases[i], test_case);
  }
  g_test_add_func ("/hygiene/partials/replaced", test_partials);
  g_test_add_func ("/hygiene/partials/kept", test_not_partials);
  g_test_add_func ("/hygiene/speakers/event", test_speaker_event);
  g_test_add_func ("/hygiene/rolling/file", test_rolling_file);
  return g_test_run ();
}
