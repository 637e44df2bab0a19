/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transcript-fixture.h"

/* Automatic captions in the shapes that video sites, broadcasters and recognisers give them, made
 * from a text that is known: after parser and hygiene the words are those of the text, each as
 * often as it was said. The shapes are those of public documentation and bug reports: YouTube's two
 * lines that roll, with a cue of 10 ms for each line; the same without markup, as converted;
 * CEA-608's three lines; captions painted on word by word; a window of words that slides; Whisper's
 * highlighted words. */

/* Said twice, on purpose: "no no", "very very", a whole sentence, a line. */
static const char speech[] =
    "so good evening everybody and welcome to the second meeting of the harbour committee "
    ">> thank you thank you it is a very very full house tonight "
    ">> we have three things to settle the first is the old crane no no the first is the lights "
    "they went out in the storm and nobody has come to mend them nobody has come to mend them "
    ">> I called the company on Monday and again on Wednesday and they said next week "
    ">> next week next week it is always next week "
    ">> well I do not know what more to do "
    ">> I do not know either but the boats cannot come in when it is dark "
    "and the winter is long here as you all know it is long and it is dark "
    ">> then we buy lamps ourselves and send them the bill "
    ">> yes >> yes >> yes >> agreed "
    ">> the second thing is the crane it is eighty years old and the rust has eaten the hook "
    "a new one costs what we take in two summers so the question is who pays "
    ">> the fish market pays a third the town pays a third and we find the rest "
    ">> that is what we said last year that is what we said last year and here we are "
    ">> here we are indeed but this year there is money from the county "
    "twelve thousand if we ask before the end of March and I have the form with me "
    ">> then the third thing is short the summer feast is on the ninth of July "
    "we need a band a tent and somebody who can bake for four hundred people "
    ">> my sister bakes >> then your sister has the job thank you all and good night";

#define WORD_TIME 320
/* Words of a line: lines begin anywhere in what is said, with the word before, too. */
static guint line_words;

typedef struct {
  char **words;
  guint n;
} Speech;

/* Words @from to before @to, with @between between them. */
static char *
join (const Speech *s, guint from, guint to, const char *between)
{
  GString *out = g_string_new (NULL);

  for (guint i = from; i < MIN (to, s->n); i++)
    g_string_append_printf (out, "%s%s", i > from ? between : "", s->words[i]);
  return g_string_free (out, FALSE);
}

static void
append_time (GString *out, guint64 time, char point)
{
  g_string_append_printf (out, "%02u:%02u:%02u%c%03u", (guint) (time / 3600000),
      (guint) (time / 60000 % 60), (guint) (time / 1000 % 60), point, (guint) (time % 1000));
}

static void
append_cue (GString *out, guint64 start, guint64 end, const char *settings, const char *text)
{
  append_time (out, start, '.');
  g_string_append (out, " --> ");
  append_time (out, end, '.');
  g_string_append_printf (out, "%s\n%s\n\n", settings, text);
}

/* Marks as files have them: ">>" is an entity in WebVTT. */
static char *
escape (char *text)
{
  GString *out = g_string_new (text);

  g_string_replace (out, ">>", "&gt;&gt;", 0);
  g_free (text);
  return g_string_free (out, FALSE);
}

#define YOUTUBE " align:start position:0%"

/* A line, with the time of each word but the first. */
static char *
tag_words (const Speech *s, guint from)
{
  GString *out = g_string_new (NULL);

  for (guint i = from; i < MIN (from + line_words, s->n); i++) {
    if (i > from) {
      g_string_append_c (out, '<');
      append_time (out, (guint64) i * WORD_TIME, '.');
      g_string_append (out, "><c> ");
    }
    g_string_append (out, s->words[i]);
    if (i > from)
      g_string_append (out, "</c>");
  }
  return escape (g_string_free (out, FALSE));
}

static void
write_youtube (GString *out, const Speech *s)
{
  g_string_append (out, "WEBVTT\nKind: captions\nLanguage: en\n\n");
  for (guint i = 0; i < s->n; i += line_words) {
    guint64 start = (guint64) i * WORD_TIME, end = (guint64) (i + line_words) * WORD_TIME - 10;
    g_autofree char *before = i > 0 ? escape (join (s, i - line_words, i, " ")) : g_strdup (" ");
    g_autofree char *line = escape (join (s, i, i + line_words, " "));
    g_autofree char *tagged = tag_words (s, i);
    g_autofree char *both = g_strconcat (before, "\n", tagged, NULL);
    g_autofree char *held = g_strconcat (line, "\n ", NULL);

    append_cue (out, start, end, YOUTUBE, both);
    append_cue (out, end, end + 10, YOUTUBE, held);
  }
}

/* As yt-dlp and FFmpeg make SubRip of it. */
static void
write_converted (GString *out, const Speech *s)
{
  for (guint i = 0; i < s->n; i += line_words) {
    guint64 start = (guint64) i * WORD_TIME, end = (guint64) (i + line_words) * WORD_TIME - 10;
    g_autofree char *before = i > 0 ? join (s, i - line_words, i, " ") : g_strdup ("");
    g_autofree char *line = join (s, i, i + line_words, " ");
    g_autofree char *both = g_strconcat (before, i > 0 ? "\n" : "", line, NULL);

    g_string_append_printf (out, "%u\n", 2 * i / line_words + 1);
    append_cue (out, start, end, "", both);
    g_string_append_printf (out, "%u\n", 2 * i / line_words + 2);
    append_cue (out, end, end + 10, "", line);
  }
}

/* Lines once, each shown while the next one is, too: times overlap. */
static void
write_overlapping (GString *out, const Speech *s)
{
  g_string_append (out, "WEBVTT\n\n");
  for (guint i = 0; i < s->n; i += line_words) {
    g_autofree char *line = escape (join (s, i, i + line_words, " "));
    g_autofree char *text = g_strconcat ("<font color=\"#E5E5E5\">", line, "</font>", NULL);

    append_cue (out, (guint64) i * WORD_TIME, (guint64) (i + 2 * line_words) * WORD_TIME, "", text);
  }
}

/* @n lines; a new one pushes the first out. */
static void
write_rolling (GString *out, const Speech *s, guint n)
{
  g_string_append (out, "WEBVTT\n\n");
  for (guint i = 0; i < s->n; i += line_words) {
    GString *text = g_string_new (NULL);
    g_autofree char *shown = NULL;

    for (guint k = MIN (i / line_words, n - 1) + 1; k-- > 0;) {
      g_autofree char *line = join (s, i - k * line_words, i - k * line_words + line_words, " ");

      g_string_append_printf (text, "%s%s", text->len > 0 ? "\n" : "", line);
    }
    shown = escape (g_string_free (text, FALSE));
    append_cue (out, (guint64) i * WORD_TIME, (guint64) (i + line_words) * WORD_TIME, "", shown);
  }
}

static void
write_two_lines (GString *out, const Speech *s)
{
  write_rolling (out, s, 2);
}

static void
write_three_lines (GString *out, const Speech *s)
{
  write_rolling (out, s, 3);
}

/* A line grows by @step words, under the one before it or alone. */
static void
write_growing (GString *out, const Speech *s, guint step, gboolean before)
{
  g_string_append (out, "WEBVTT\n\n");
  for (guint i = 0, from = 0; i < s->n; i++) {
    guint line = i / line_words * line_words;
    g_autofree char *above = before && line > 0 ? join (s, line - line_words, line, " ") : NULL;
    g_autofree char *grown = join (s, line, i + 1, " ");
    g_autofree char *shown = escape (
        g_strconcat (above != NULL ? above : grown, above != NULL ? "\n" : NULL, grown, NULL));

    if ((i + 1 - line) % step != 0 && i + 1 - line < line_words && i + 1 < s->n)
      continue;
    append_cue (out, (guint64) from * WORD_TIME, (guint64) (i + 1) * WORD_TIME, "", shown);
    from = i + 1;
  }
}

static void
write_painted (GString *out, const Speech *s)
{
  write_growing (out, s, 1, FALSE);
}

static void
write_painted_by_two (GString *out, const Speech *s)
{
  write_growing (out, s, 2, FALSE);
}

static void
write_painted_under (GString *out, const Speech *s)
{
  write_growing (out, s, 1, TRUE);
}

/* The last @n words; a new word pushes the first out. */
static void
write_sliding (GString *out, const Speech *s, guint n)
{
  g_string_append (out, "WEBVTT\n\n");
  for (guint i = 0; i < s->n; i++) {
    g_autofree char *shown = escape (join (s, i >= n ? i + 1 - n : 0, i + 1, " "));

    append_cue (out, (guint64) i * WORD_TIME, (guint64) (i + 1) * WORD_TIME, "", shown);
  }
}

static void
write_sliding_three (GString *out, const Speech *s)
{
  write_sliding (out, s, 3);
}

static void
write_sliding_ten (GString *out, const Speech *s)
{
  write_sliding (out, s, 10);
}

/* The whole line for each word, which is marked in it. */
static void
write_highlighted (GString *out, const Speech *s)
{
  g_string_append (out, "WEBVTT\n\n");
  for (guint i = 0; i < s->n; i++) {
    guint line = i / line_words * line_words;
    g_autofree char *ahead = join (s, line, i, " ");
    g_autofree char *behind = join (s, i + 1, line + line_words, " ");
    g_autofree char *word = escape (g_strdup (s->words[i]));
    g_autofree char *left = escape (g_strdup (ahead));
    g_autofree char *right = escape (g_strdup (behind));
    g_autofree char *shown = g_strconcat (left, *left != '\0' ? " " : "", "<u>", word, "</u>",
        *right != '\0' ? " " : "", right, NULL);

    append_cue (out, (guint64) i * WORD_TIME, (guint64) (i + 1) * WORD_TIME, "", shown);
  }
}

/* A word a cue. */
static void
write_words (GString *out, const Speech *s)
{
  g_string_append (out, "WEBVTT\n\n");
  for (guint i = 0; i < s->n; i++) {
    g_autofree char *word = escape (g_strdup (s->words[i]));

    append_cue (out, (guint64) i * WORD_TIME, (guint64) (i + 1) * WORD_TIME, "", word);
  }
}

/* YouTube's JSON: an event a line, a segment a word, and events that only break lines. */
static void
write_json3 (GString *out, const Speech *s)
{
  g_string_append (out, "{\"wireMagic\": \"pb3\", \"events\": [\n");
  for (guint i = 0; i < s->n; i += line_words) {
    g_string_append_printf (out,
        "%s{\"tStartMs\": %u, \"dDurationMs\": %u, \"wWinId\": 1, \"segs\": [", i > 0 ? ",\n" : "",
        i * WORD_TIME, 2 * line_words * WORD_TIME);
    for (guint k = i; k < MIN (i + line_words, s->n); k++)
      g_string_append_printf (out, "%s{\"utf8\": \"%s%s\", \"tOffsetMs\": %u}", k > i ? ", " : "",
          k > i ? " " : "", s->words[k], (k - i) * WORD_TIME);
    g_string_append_printf (out,
        "]},\n{\"tStartMs\": %u, \"dDurationMs\": %u, \"wWinId\": 1, \"aAppend\": 1, "
        "\"segs\": [{\"utf8\": \"\\n\"}]}",
        (i + line_words) * WORD_TIME - 10, line_words * WORD_TIME);
  }
  g_string_append (out, "]}\n");
}

typedef struct {
  const char *name;
  void (*write) (GString *out, const Speech *s);
  /* Wrong words at most, of a file and of a stream, in which captions must show what they are. */
  guint file;
  guint stream;
  guint min, max; /* words of a line, with which it shows */
} Shape;

static const Shape shapes[] = {
  { "youtube", write_youtube, 0, 0, 5, 12 },
  { "converted", write_converted, 0, 0, 5, 12 },
  { "overlapping", write_overlapping, 0, 0, 5, 12 },
  { "two-lines", write_two_lines, 0, 0, 5, 12 },
  { "three-lines", write_three_lines, 0, 0, 5, 12 },
  { "painted", write_painted, 0, 0, 5, 12 },
  { "painted-by-two", write_painted_by_two, 0, 0, 5, 12 },
  { "painted-under", write_painted_under, 0, 0, 5, 12 },
  { "sliding-three", write_sliding_three, 0, 0, 7, 7 },
  { "sliding-ten", write_sliding_ten, 0, 0, 7, 7 },
  { "highlighted", write_highlighted, 0, 0, 7, 7 },
  { "words", write_words, 0, 0, 7, 7 },
  { "json3", write_json3, 0, 0, 5, 12 },
};

/* Words that are wrong, missing or too many. */
static guint
count_errors (char **said, char **found)
{
  guint n = g_strv_length (said), m = g_strv_length (found);
  g_autofree guint *row = g_new (guint, m + 1);

  for (guint k = 0; k <= m; k++)
    row[k] = k;
  for (guint i = 0; i < n; i++) {
    guint diagonal = row[0];

    row[0] = i + 1;
    for (guint k = 0; k < m; k++) {
      guint here = diagonal + !g_str_equal (said[i], found[k]);

      diagonal = row[k + 1];
      row[k + 1] = MIN (here, MIN (row[k], row[k + 1]) + 1);
    }
  }
  return row[m];
}

static void
test_lines (const Shape *shape)
{
  g_auto (GStrv) words = g_strsplit (speech, " ", -1);
  Speech s = { words, g_strv_length (words) };
  g_autoptr (GString) file = g_string_new (NULL);

  shape->write (file, &s);
  for (guint stream = 0; stream < 2; stream++) {
    ReadOptions options = { .stream = stream == 1 };
    ReadResult result = { 0 };
    g_autoptr (GPtrArray) cues =
        read_transcript (file->str, file->len, 4096, 4096, &options, &result);
    g_autoptr (GString) text = g_string_new (NULL);
    g_auto (GStrv) found = NULL;
    guint errors;

    for (guint i = 0; i < cues->len; i++) {
      const LycheeCue *cue = g_ptr_array_index (cues, i);

      g_string_append_printf (text, "%s%s", i > 0 ? " " : "", cue->text);
    }
    g_strdelimit (text->str, "\n", ' ');
    found = g_strsplit (text->str, " ", -1);
    errors = count_errors (words, found);
    g_test_message ("%s, %s, lines of %u: %u of %u words", shape->name, stream ? "stream" : "file",
        line_words, errors, s.n);
    if (errors > (stream ? shape->stream : shape->file))
      g_test_message ("%s", text->str);
    g_assert_cmpuint (errors, <=, stream ? shape->stream : shape->file);
    g_free (result.language);
  }
}

static void
test_shape (gconstpointer data)
{
  const Shape *shape = data;

  for (line_words = shape->min; line_words <= shape->max; line_words++)
    test_lines (shape);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    g_autofree char *path = g_strconcat ("/captions/", shapes[i].name, NULL);

    g_test_add_data_func (path, &shapes[i], test_shape);
  }
  return g_test_run ();
}
