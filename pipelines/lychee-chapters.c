/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Chapters of a transcript as WebVTT: they end where the chunker finds that the subject changes,
 * and are called what the model calls them. */

#include <stdio.h>
#include <string.h>

#include "lychee-meta.h"
#include "program.h"

typedef struct {
  GstClockTime start, end;
  char *words; /* its first ones, where the model has no title */
  char *title;
} Chapter;

typedef struct {
  Program program;
  GstElement *decoder;
  GstClockTime shortest;
  GPtrArray *chapters; /* of Chapter; of the streaming thread until the end */
  gboolean open;       /* the last one goes on */
} Chapters;

static void
chapter_free (gpointer data)
{
  Chapter *chapter = data;

  g_free (chapter->words);
  g_free (chapter->title);
  g_free (chapter);
}

static void
add_chunk (Chapters *self, const LycheeChunk *chunk)
{
  Chapter *chapter;

  if (chunk->pts == LYCHEE_TIME_NONE)
    return;
  /* One that begins when the one before does would leave that no time. */
  if (!self->open && self->chapters->len > 0) {
    chapter = g_ptr_array_index (self->chapters, self->chapters->len - 1);
    self->open = chunk->pts < chapter->start + GST_MSECOND;
  }
  if (!self->open) {
    chapter = g_new0 (Chapter, 1);
    chapter->start = chunk->pts;
    chapter->words = g_strstrip (g_strdelimit (g_strdup (chunk->text), "\n\r", ' '));
    g_ptr_array_add (self->chapters, chapter);
    self->open = TRUE;
  }
  chapter = g_ptr_array_index (self->chapters, self->chapters->len - 1);
  /* Not lychee_chunk_get_end(): the program is installed without a path to the library. */
  chapter->end = chunk->pts + (chunk->duration != LYCHEE_TIME_NONE ? chunk->duration : 0);
  if (chunk->boundary == LYCHEE_BOUNDARY_DRIFT && chapter->end - chapter->start >= self->shortest)
    self->open = FALSE;
}

/* A last chapter that is too short belongs to the one before. */
static void
join_last (Chapters *self)
{
  guint n = self->chapters->len;
  Chapter *last, *before;

  if (n < 2)
    return;
  last = g_ptr_array_index (self->chapters, n - 1);
  before = g_ptr_array_index (self->chapters, n - 2);
  if (last->end - last->start >= self->shortest)
    return;
  before->end = last->end;
  g_ptr_array_set_size (self->chapters, n - 1);
}

/* At the end of the transcript, each chapter is asked about, ahead of the end of the stream. */
static void
ask_for_titles (Chapters *self)
{
  join_last (self);
  for (guint i = 0; i < self->chapters->len; i++) {
    Chapter *chapter = g_ptr_array_index (self->chapters, i);
    g_autofree char *name = g_strdup_printf ("%u", i);
    GstStructure *options = gst_structure_new ("ask", "id", G_TYPE_STRING, name, "from",
        G_TYPE_UINT64, chapter->start, "to", G_TYPE_UINT64, chapter->end, "max-tokens", G_TYPE_UINT,
        self->program.max_tokens, "evidence", G_TYPE_UINT, 0, "stop", G_TYPE_STRING, "\n", NULL);
    char *id = NULL;

    g_signal_emit_by_name (self->decoder, "ask", self->program.prompt, options, &id);
    gst_structure_free (options);
    g_free (id);
  }
}

static GstPadProbeReturn
on_transcript (GstPad *pad, GstPadProbeInfo *info, gpointer user_data)
{
  Chapters *self = user_data;

  if (info->type & GST_PAD_PROBE_TYPE_BUFFER) {
    LycheeKVMeta *meta = (LycheeKVMeta *) gst_buffer_get_meta (
        GST_PAD_PROBE_INFO_BUFFER (info), g_type_from_name (LYCHEE_KV_META_API_NAME));

    if (meta != NULL)
      add_chunk (self, meta->chunk);
  } else if (GST_EVENT_TYPE (GST_PAD_PROBE_INFO_EVENT (info)) == GST_EVENT_EOS) {
    ask_for_titles (self);
  }
  return GST_PAD_PROBE_OK;
}

/* A line of text without quotation marks around it, or NULL. (transfer full) */
static char *
clean_title (const char *text)
{
  char *title = g_strdup (text);

  title[strcspn (title, "\n\r")] = '\0';
  g_strstrip (title);
  while (*title != '\0' && strchr ("\"'*#. ", title[0]) != NULL)
    memmove (title, title + 1, strlen (title));
  while (*title != '\0' && strchr ("\"'*. ", title[strlen (title) - 1]) != NULL)
    title[strlen (title) - 1] = '\0';
  /* WebVTT's own arrow may not be in a cue. */
  if (*title == '\0' || strstr (title, "-->") != NULL)
    g_clear_pointer (&title, g_free);
  return title;
}

static gboolean
on_message (GstMessage *message, gpointer user_data)
{
  Chapters *self = user_data;
  const GstStructure *structure = gst_message_get_structure (message);
  guint i;

  if (!gst_message_has_name (message, "lychee-answer"))
    return FALSE;
  i = g_ascii_strtoull (gst_structure_get_string (structure, "id"), NULL, 10);
  if (i < self->chapters->len) {
    Chapter *chapter = g_ptr_array_index (self->chapters, i);

    chapter->title = clean_title (gst_structure_get_string (structure, "text"));
  }
  return TRUE;
}

static void
print_chapters (Chapters *self)
{
  printf ("WEBVTT\n");
  for (guint i = 0; i < self->chapters->len; i++) {
    Chapter *chapter = g_ptr_array_index (self->chapters, i);
    /* A chapter lasts until the next begins. */
    GstClockTime until = i + 1 < self->chapters->len
                             ? ((Chapter *) g_ptr_array_index (self->chapters, i + 1))->start
                             : chapter->end;
    g_autofree char *from = program_format_time (chapter->start, TRUE);
    /* A cue without a length is none. */
    g_autofree char *to = program_format_time (MAX (until, chapter->start + GST_MSECOND), TRUE);

    g_auto (GStrv) parts =
        g_strsplit (chapter->title != NULL ? chapter->title : chapter->words, "&", -1);
    g_autofree char *text = g_strjoinv ("&amp;", parts);

    printf ("\n%s --> %s\n%s\n", from, to, *text != '\0' ? g_strdelimit (text, "<>", ' ') : "...");
  }
}

static void
make_chapters (Chapters *self)
{
  Program *program = &self->program;

  if (!program_open (program, NULL,
          "lycheetokenizer ! lycheechunker detector=both ! lycheeindexer ! lycheedecoder name=d "
          "prompt=\"\" ! fakesink sync=false async=false"))
    return;
  self->decoder = program_get (program, "d");
  program_add_probe (program, "d", "sink",
      GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, on_transcript, self);
  program_run (program);
  program_stop (program);
  if (program->status == 0 && self->chapters->len == 0)
    program_fail (program, "%s: it has no times, so there are no chapters", program->file);
  if (program->status == 0)
    print_chapters (self);
  gst_object_unref (self->decoder);
}

int
main (int argc, char **argv)
{
  double shortest = 60;
  Chapters self = { .chapters = g_ptr_array_new_with_free_func (chapter_free),
    .program = { .name = "lychee-chapters",
        .default_prompt = "What is this part about? Answer with a title of at most six words.",
        .max_tokens = 24,
        .on_message = on_message,
        .user_data = &self } };
  const GOptionEntry options[] = {
    { "shortest", 's', 0, G_OPTION_ARG_DOUBLE, &shortest, "Shortest chapter, in seconds (60)",
        "SECONDS" },
    { NULL },
  };

  if (program_parse (&self.program,
          "Writes the chapters of a transcript as WebVTT: where the subject changes, with titles\n"
          "that a language model gives.",
          options, argc, argv) &&
      ((shortest >= 0 && shortest < 1e6) ||
          program_refuse (&self.program, "--shortest must be 0 or more")) &&
      program_check (&self.program)) {
    self.shortest = shortest * GST_SECOND;
    make_chapters (&self);
  }
  g_ptr_array_unref (self.chapters);
  return program_close (&self.program);
}
