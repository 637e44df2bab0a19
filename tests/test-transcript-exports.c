/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transcript-fixture.h"

/* What meeting services and programs export, and what only looks like it. The shapes are those of
 * public documentation and of programs that read them; what is said in them is made up. */

#define CSV LYCHEE_TRANSCRIPT_FORMAT_CSV
#define LINES LYCHEE_TRANSCRIPT_FORMAT_LINES
#define SCC LYCHEE_TRANSCRIPT_FORMAT_SCC
#define SUBRIP LYCHEE_TRANSCRIPT_FORMAT_SUBRIP
#define TEXT LYCHEE_TRANSCRIPT_FORMAT_TEXT
#define WEBVTT LYCHEE_TRANSCRIPT_FORMAT_WEBVTT

static const struct {
  const char *name;
  LycheeTranscriptFormat format;
  const char *input;
  const char *expected;
} cases[] = {
  /* Tables */
  { "csv/quoted", CSV,
      "\xef\xbb\xbfSpeaker,Start,End,Text\r\nAnn Lee,0:00:01,0:00:03,\"Hello, all\nand "
      "\"\"more\"\"\"\r\n"
      "Bob,0:00:03.5,0:00:05,Hi\r\n",
      "1.000-3.000 Ann Lee|Ann Lee: Hello, all/and \"more\"\n3.500-5.000 Bob|Bob: Hi\n" },
  { "csv/semicolons", CSV,
      "Sprecher;Startzeit;Endzeit;Text\nAnn;12,5;14,25;Also, ja; so ist es\nAnn;15;16;Gut\n",
      "12.500-14.250 Ann|Ann: Also, ja; so ist es\n15.000-16.000 Ann|Gut\n" },
  { "csv/sep", CSV, "sep=;\n\"Name\";\"Start time\";\"Sentence\"\n\"Ann\";\"00:01\";\"Yes\"\n",
      "1.000-1.500 Ann|Ann: Yes\n" },
  { "csv/not-quoted", CSV,
      "start,end,text\n1.0,2.0,well, yes, so\n3.0,4.0,\"No,\" she said, \"no\"\n",
      "1.000-2.000 |well, yes, so\n3.000-4.000 |No,\" she said, \"no\n" },
  { "csv/quote-unclosed", CSV, "start,end,text\n1.0,2.0,\"Oh\n3.0,4.0,no\n5.0,6.0,\"end\n",
      "1.000-2.000 |\"Oh\n3.000-4.000 |no\n5.000-6.000 |\"end\n" },
  { "csv/no-row", CSV, "Start,Speaker,Text\n0:01,Ann,one\nAfter the break\n\n,,\n0:05,Bob,two\n",
      "1.000-1.500 Ann|Ann: one\n?-? |After the break\n5.000-5.500 Bob|Bob: two\n" },
  { "csv/empty", CSV, "Start,Speaker,Text\n0:01,Ann,\n0:05,Bob,two\n",
      "5.000-5.500 Bob|Bob: two\n" },
  { "csv/no-times", CSV, "Speaker,Transcript\nAnn,one\nBob,\"two, three\"\n",
      "?-? Ann|Ann: one\n?-? Bob|Bob: two, three\n" },
  { "csv/other-columns", CSV,
      "#,Speaker Name,Confidence,Start (ms),Duration "
      "(ms),Utterance\n1,Ann,0.9,1500,1000,one\n2,2,0.8,"
      "3000,500,two\n",
      "1.500-2.500 Ann|Ann: one\n3.000-3.500 Speaker 2|Speaker 2: two\n" },
  { "csv/chat", CSV, "Time,From,To,Message\n10:15:03 AM,ann,all,one\n1:00:00 PM,bob,all,two\n",
      "36903.000-36903.500 ann|ann: one\n46800.000-46800.500 bob|bob: two\n" },
  { "csv/dates", CSV,
      "Timestamp,Speaker,Text\n2026-03-01T10:00:00Z,Ann,one\n2026-03-01T10:00:05Z,Bob,two\n",
      "0.000-0.500 Ann|Ann: one\n5.000-5.500 Bob|Bob: two\n" },
  { "csv/ranges", CSV,
      "Timecode,Speaker,Text\n00:00:01 - 00:00:03,Ann,one\n00:00:03 - 00:00:05,Bob,two\n",
      "1.000-3.000 Ann|Ann: one\n3.000-5.000 Bob|Bob: two\n" },
  { "csv/words", CSV, "word,start,end,speaker\nSo,0.1,0.2,A\nyes.,0.3,0.5,A\nNo.,0.9,1.1,B\n",
      "0.100-0.500 A|A: So yes.\n0.900-1.100 B|B: No.\n" },
  { "csv/japanese", CSV, "話者,開始時間,発言\n田中,0:01,はい、そうです。\n",
      "1.000-1.500 田中|田中: はい、そうです。\n" },
  { "csv/preamble", TEXT, "Weekly, with all\nHeld on Friday\nSpeaker,Start,Text\nAnn,0:01,one\n",
      "?-? |Weekly, with all\n?-? |Held on Friday\n1.000-1.500 Ann|Ann: one\n" },
  { "csv/twice", CSV, "Start,Speaker,Text\n0:01,Ann,one\nStart,Text,Speaker\n0:02,two,Ann\n",
      "1.000-1.500 Ann|Ann: one\n2.000-2.500 Ann|two\n" },
  { "tsv/whisper", CSV,
      "start\tend\ttext\n0\t2500\t\"Well,\" she said.\n2500\t6000\tAnd so it was.\n",
      "0.000-2.500 |\"Well,\" she said.\n2.500-6.000 |And so it was.\n" },
  { "tsv/audacity", CSV, "0.000000\t2.500000\tone\n\\\t100.0\t200.0\n2.500000\t4.000000\ttwo\n",
      "0.000-2.500 |one\n2.500-4.000 |two\n" },

  /* Meeting services */
  { "webex", WEBVTT,
      "WEBVTT\n\n1 \"Ann Lee\" (116)\n00:00:01.000 --> 00:00:03.000\ngood morning\n\n2 \"Bob\"\n"
      "00:00:03.000 --> 00:00:05.000\nhi\n\n3 \"\" (0)\n00:00:05.000 --> 00:00:06.000\nwho\n",
      "1.000-3.000 Ann Lee|Ann Lee: good morning\n3.000-5.000 Bob|Bob: hi\n5.000-6.000 |who\n" },
  { "webex/said", WEBVTT,
      "WEBVTT\n\n00:01.000 --> 00:02.000\na\n\n2 \"tickets\" please\n00:03.000 --> 00:04.000\nb\n",
      "1.000-2.000 |a//2 \"tickets\" please\n3.000-4.000 |b\n" },
  { "zoom/cloud", WEBVTT,
      "WEBVTT\n\n1\n00:00:01.000 --> 00:00:02.000\nAnn Lee: one\n\n2\n00:00:03.000 --> "
      "00:00:04.000\n"
      "Bob: two\n\n3\n00:00:05.000 --> 00:00:06.000\nAnn Lee: three\n",
      "1.000-2.000 Ann Lee|Ann Lee: one\n3.000-4.000 Bob|Bob: two\n5.000-6.000 Ann Lee|Ann Lee: "
      "three\n" },
  { "zoom/chat", TEXT,
      "10:15:03\t From Ann Lee to Everyone:\tone: two\n10:15:09\t From iPhone (2) to "
      "Everyone:\thi\n10:15:20\t From Ann Lee to Bob(Direct Message):\tlater\n",
      "36903.000-? Ann Lee|Ann Lee: one: two\n36909.000-? iPhone (2)|iPhone (2): hi\n"
      "36920.000-? Ann Lee|Ann Lee: (to Bob) later\n" },
  { "zoom/chat-below", TEXT,
      "10:15:03 From Ann Lee to Everyone:\n\tone\n\ttwo\n10:15:09 From bob to Ann Lee(Direct "
      "Message):\n\tReplying to \"one\"\n\n\tyes\n",
      "36903.000-? Ann Lee|Ann Lee: one\n?-? Ann Lee|two\n36909.000-? bob|bob: (to Ann Lee) "
      "Replying "
      "to \"one\"\n?-? bob|yes\n" },
  { "zoom/chat-old", TEXT,
      "10:15:03\t From  Ann Lee : one\n10:15:09\t From  bob  to  Everyone : two\n",
      "36903.000-? Ann Lee|Ann Lee: one\n36909.000-? bob|bob: two\n" },
  { "zoom/chat-cloud", TEXT, "00:58:04\tann:\tone\nmore\n00:58:20\tBob:\ttwo\n",
      "3484.000-? ann|ann: one\n?-? ann|more\n3500.000-? Bob|Bob: two\n" },
  { "zoom/captions", TEXT, "[Ann Lee] 10:15:03\nGood morning.\n\n[Bob] 10:15:10\nHi there.\n",
      "36903.000-? Ann Lee|Ann Lee: Good morning.\n36910.000-? Bob|Bob: Hi there.\n" },
  { "otter", TEXT, "Ann Lee  0:05\nGood morning.\n\nSpeaker 2  1:02:15\nHi there.\n",
      "5.000-? Ann Lee|Ann Lee: Good morning.\n3735.000-? Speaker 2|Speaker 2: Hi there.\n" },
  { "meet", TEXT,
      "00:00:00\n\nAnn Lee: One.\nBob Ray: Two.\n\n00:05:00\n\nBob Ray: Three.\nAnn Lee: Four.\n",
      "0.000-? Ann Lee|Ann Lee: One.\n?-? Bob Ray|Bob Ray: Two.\n300.000-? Bob Ray|Bob Ray: "
      "Three.\n?-? Ann Lee|Ann Lee: Four.\n" },
  { "name-above-time", TEXT, "Ann Lee\n00:05\nGood morning.\nAll well?\n\nBob\n00:15\nHi there.\n",
      "5.000-? Ann Lee|Ann Lee: Good morning.\n?-? Ann Lee|All well?\n15.000-? Bob|Bob: Hi "
      "there.\n" },
  { "short-times", TEXT, "0:05 Ann Lee: One\n0:15 Bob: Two\n61:02 Ann Lee: Three\n",
      "5.000-? Ann Lee|Ann Lee: One\n15.000-? Bob|Bob: Two\n3662.000-? Ann Lee|Ann Lee: Three\n" },

  /* Subtitles of a line each, and others */
  { "microdvd", LINES, "{0}{50}{y:i}One|/two\n{60}{}Three\n",
      "0.000-2.085 |One/two\n2.502-3.002 |Three\n" },
  { "microdvd/rate", LINES, "{1}{1}25\n{25}{50}One\n{DEFAULT}{}{C:$ff}\n{75}{100}25\n",
      "1.000-2.000 |One\n3.000-4.000 |25\n" },
  { "mpl2", LINES, "[12][34]One|/two\n[40][60]Three\n",
      "1.200-3.400 |One/two\n4.000-6.000 |Three\n" },
  { "lrc", LINES,
      "[ti:A song]\n[offset:+500]\n[00:12.00]One\n[00:15.30][00:40.100]Twice <00:16.00>sung\n"
      "[00:20.00]\n\n[00:30.00]\nBelow\n",
      "11.500-12.000 |One\n14.800-15.400 |Twice sung\n29.500-30.000 |Below\n39.600-40.200 |Twice "
      "sung\n" },
  { "not-lrc", TEXT, "[00:00:01] Ann: One\n[00:00:05] Bob: Two\n[01:02:50] Ann: Three\n",
      "1.000-? Ann|Ann: One\n5.000-? Bob|Bob: Two\n3770.000-? Ann|Ann: Three\n" },
  { "subviewer", SUBRIP,
      "[INFORMATION]\n[TITLE]Talk\n[END INFORMATION]\n[SUBTITLE]\n[COLF]&HFFFFFF,[SIZE]18\n"
      "00:00:41.00,00:00:44.40\nOne[br]two\n\n00:00:45.00,00:00:46.00\nThree\n",
      "41.000-44.400 |One/two\n45.000-46.000 |Three\n" },
  { "scc/pop-on", SCC,
      "Scenarist_SCC V1.0\n\n00:00:01;00\t9420 9420 9470 9470 c845 4c4c 4f80 13d0 13d0 9137 9137 "
      "4580 "
      "92a1 92a1 942f 942f\n\n00:00:03;00\t942c 942c\n",
      "1.467-3.000 |HELLO/♪É\n" },
  { "scc/roll-up", SCC,
      "Scenarist_SCC V1.0\n\n00:00:01;00\t9425 9425 94ad 94ad 9470 9470 c145 "
      "4c4c\n\n00:00:03;00\t94ad "
      "94ad 9470 9470 4f80\n",
      "1.200-3.000 |AELL\n3.133-3.633 |O\n" },
};

static void
test_case (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);
  const char *input = cases[i].input;
  gsize length = strlen (input);
  ReadOptions options = { 0 };
  g_autofree char *whole = describe_transcript (input, length, length, 1, &options);

  g_assert_cmpstr (whole, ==, cases[i].expected);
  g_assert_cmpint (lychee_transcript_recognise (input, length), ==,
      cases[i].format == TEXT ? lychee_transcript_recognise (input, length) : cases[i].format);
  for (gsize first = 1; first < length && !g_test_failed (); first++) {
    g_autofree char *pieces = describe_transcript (input, length, first, 1 + first % 9, &options);

    g_assert_cmpstr (pieces, ==, cases[i].expected);
  }
}

/* What must stay as it is: every line a cue, without times, that nobody in particular says. */
static const struct {
  const char *name;
  const char *text;
} texts[] = {
  { "prose",
      "It was late, and we went home.\nSpeaker, text and start of the speech were announced.\nAt "
      "10:30 the train came. Time, text and speaker: all was forgotten.\n" },
  { "prose-commas", "Text, start\nwith commas, like this, and that\n" },
  { "minutes", "Minutes of the spring meeting\n10:00 Opening by the chair\n10:30 Pump, pipes and "
               "hoses\n11:15 "
               "Any other business\nPresent\nAnn Lee, Bob Ray\n1. The fee is raised.\n2. The hedge "
               "is cut.\n" },
  { "agenda", "09:00 Welcome: who is here\n09:30 Budget: what is left\n10:00 Coffee\n" },
  { "markdown",
      "| Start | Speaker | Text |\n|---|---|---|\n| 0:01 | Ann | one |\n| 0:05 | Bob | two |\n" },
  { "c", "/* {0}{50} */\nstatic int time, text, speaker;\nfor (i = 0; i < n; i++)\nx[1][2] = "
         "y[3][4];\n" },
  { "python", "import time, text\nstart, end, text = row\nprint (start, end, text)\n" },
  { "latex", "\\frac{1}{2} of it\n{12}{34 of that\n" },
  { "citations", "[12][34] have shown this.\n[3][5] have not.\n" },
  { "citation-first", "[1][2]\nwhat was found there\n" },
  { "footnotes", "[1] One, as in [2].\n[2] Two.\n" },
  { "irc", "10:15 <ann> hello\n10:16 <bob> hi\n" },
  { "chat", "ann, 10:15\nhello there, all\nbob, 10:16\nhi, ann\n" },
  { "sales", "name,email,message\nAnn,a@example.org,hello\nBob,b@example.org,hi\n" },
  { "temperatures", "time,temperature,comment\n10:00,12,cold\n11:00,14,warmer\n" },
  { "texts-of-others", "id,text\n1,one\n2,two\n" },
  { "weak-words", "author,body\nann,one\nbob,two\n" },
  { "log", "time=10:15:03 level=info text=started\ntime=10:15:04 level=info text=stopped\n" },
  { "ini", "[INFORMATION]\nname=a\n[SUBTITLE]\nsize=18\n" },
  { "numbers", "0.5\t1.5\nthe first\n2.5\t3.5\nthe second\n" },
  { "from", "From here on: nothing.\nFrom Ann to Bob: a letter.\n" },
  { "names", "Ann Lee\nwas here.\n\nBob\nwas not.\n" },
  { "tags", "[re: budget]\nis what it was about.\n" },
};

static void
test_text (gconstpointer data)
{
  guint i = GPOINTER_TO_UINT (data);
  const char *text = texts[i].text;
  gsize length = strlen (text);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  ReadOptions options = { .raw = TRUE };
  g_autoptr (GPtrArray) cues = read_transcript (text, length, length, 1, &options, NULL);
  guint n = 0;

  for (guint k = 0; lines[k] != NULL; k++) {
    g_autofree char *line = g_strstrip (g_strdup (lines[k]));
    LycheeCue *cue;

    if (*line == '\0')
      continue;
    g_assert_cmpuint (n, <, cues->len);
    cue = g_ptr_array_index (cues, n++);
    g_assert_cmpstr (cue->text, ==, line);
    g_assert_null (cue->speaker);
    g_assert_cmpuint (cue->start, ==, LYCHEE_TIME_NONE);
    if (g_test_failed ())
      return;
  }
  g_assert_cmpuint (n, ==, cues->len);
}

/* Files that have a transcript inside, perhaps, but no text. */
static void
test_documents (void)
{
  static const struct {
    const char *bytes;
    gsize length;
    const char *document;
  } documents[] = {
    { "PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0", 14, "Word" },
    { "%PDF-1.7\n%", 10, "PDF" },
    { "{\\rtf1\\ansi Ann: Hello.\\par}", 28, "Rich Text" },
    { "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", 10, "Office" },
    { "\x1f\x8b\x08\0\0\0\0\0", 8, "compressed" },
  };

  for (guint i = 0; i < G_N_ELEMENTS (documents); i++)
    for (gsize piece = 1; piece <= documents[i].length; piece++) {
      ReadOptions options = { 0 };
      ReadResult result = { 0 };
      g_autoptr (GPtrArray) cues = read_transcript (
          documents[i].bytes, documents[i].length, piece, piece, &options, &result);

      g_assert_true (result.report.binary);
      g_assert_nonnull (result.report.document);
      g_assert_nonnull (strstr (result.report.document, documents[i].document));
      g_assert_cmpint (
          lychee_transcript_recognise (documents[i].bytes, documents[i].length), ==, 0);
      g_free (result.language);
    }
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();

  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *path = g_strconcat ("/transcript-exports/", cases[i].name, NULL);

    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_case);
  }
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++) {
    g_autofree char *path = g_strconcat ("/transcript-exports/text/", texts[i].name, NULL);

    g_test_add_data_func (path, GUINT_TO_POINTER (i), test_text);
  }
  g_test_add_func ("/transcript-exports/documents", test_documents);
  return g_test_run ();
}
