/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-hygiene-private.h"

#include "lychee-transcript-parser-private.h"

#include <string.h>

/**
 * LycheeHygiene:
 *
 * Makes of a transcript's cues what was said, by whom.
 *
 * Cues go in as a [class@Lychee.TranscriptParser] or a recogniser gives them, in order; what comes
 * out is plain text with a speaker. Each step is a property, and on:
 *
 * - "partials": a recogniser's hypothesis gives way to the next one that begins at the same time,
 *   and is settled when [method@Lychee.Hygiene.end_hypothesis] is called or a later one begins.
 * - "markup": tags, override blocks such as `{\an8}`, `\h` and `\N` are taken out, entities
 *   decoded, once. Text that is spelled like a control token of a language model stays text.
 * - "rolling": captions that roll up show each line two or three times, and those that slide from
 *   word to word each word as often as there are words; each is kept once. What tells them from
 * real repetitions is that they stay on the screen without a gap.
 * - "duplicates": of cues with the same text at the same time, the first is kept.
 * - "speakers": labels and marks in the text (`Ann:`, `>>`, `[SPEAKER_01]`) become the speaker of
 *   the cue, which is cut where they are. In text the speaker has one form, `Ann: `, and one whose
 *   name is not known `>> `; "speaker-labels" says where it stands.
 * - "loops": of a sentence, or some in turn, that a recogniser repeats over and over, the first is
 *   kept.
 */

/* Repetitions from which on a cue is a loop, and not said again: of a sentence, of a word or two;
 * and of some cues in turn, as in a refrain. */
#define LOOP_LENGTH 4
#define SHORT_LOOP_LENGTH 8
#define TURNS_LOOP_LENGTH 6
#define SHORT_TURNS_LOOP_LENGTH 12
#define LOOP_PERIOD 4
#define N_RECENT 8
#define UNNAMED ">>"

/* A cue that begins as the one before ended: said again, or shown again. */
typedef struct {
  LycheeCue *cue;
  gsize shown; /* bytes */
  gboolean line_start;
} Doubtful;

struct _LycheeHygiene {
  GObject parent;

  gboolean markup;
  gboolean speakers;
  gboolean rolling;
  gboolean loops;
  gboolean duplicates;
  gboolean partials;
  LycheeSpeakerLabels labels;
  LycheeTranscriptSurvey *survey;

  LycheeHygieneReport report;
  LycheeCue *hypothesis; /* NULL where none is open */
  LycheeSpeakerEvidence *evidence;
  LycheeRolling *roll;
  GArray *doubtful;            /* of Doubtful */
  LycheeCue *recent[N_RECENT]; /* cues with the time of the last one */
  guint n_recent;
  char *speaker;       /* of text that has no label */
  char *event_speaker; /* as upstream says */
  gboolean continues;  /* the next text goes on in the middle of a line */
  GPtrArray *said;     /* the last cues, LOOP_PERIOD of them at most */
  GPtrArray *repeats;  /* of the last @period of them, held back */
  guint period;        /* 0: nothing repeats */
  guint n_repeats;     /* cues */
  char *labelled;      /* whom the last label in the text named */
  gboolean any;
};

enum {
  PROP_MARKUP = 1,
  PROP_SPEAKERS,
  PROP_SPEAKER_LABELS,
  PROP_ROLLING,
  PROP_LOOPS,
  PROP_DUPLICATES,
  PROP_PARTIALS,
};

G_DEFINE_FINAL_TYPE (LycheeHygiene, lychee_hygiene, G_TYPE_OBJECT)

G_DEFINE_ENUM_TYPE (LycheeSpeakerLabels, lychee_speaker_labels,
    { LYCHEE_SPEAKER_LABELS_NONE, "No cue", "none" },
    { LYCHEE_SPEAKER_LABELS_CHANGE, "Where the speaker changes, or the source has a label",
        "change" },
    { LYCHEE_SPEAKER_LABELS_ALWAYS, "Every cue whose speaker is known", "always" })

static gboolean *
field_of (LycheeHygiene *self, guint id)
{
  switch (id) {
  case PROP_MARKUP:
    return &self->markup;
  case PROP_SPEAKERS:
    return &self->speakers;
  case PROP_ROLLING:
    return &self->rolling;
  case PROP_LOOPS:
    return &self->loops;
  case PROP_DUPLICATES:
    return &self->duplicates;
  case PROP_PARTIALS:
    return &self->partials;
  default:
    return NULL;
  }
}

static void
lychee_hygiene_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  LycheeHygiene *self = LYCHEE_HYGIENE (object);

  if (id == PROP_SPEAKER_LABELS)
    self->labels = g_value_get_enum (value);
  else if (field_of (self, id) != NULL)
    *field_of (self, id) = g_value_get_boolean (value);
  else
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
}

static void
lychee_hygiene_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  LycheeHygiene *self = LYCHEE_HYGIENE (object);

  if (id == PROP_SPEAKER_LABELS)
    g_value_set_enum (value, self->labels);
  else if (field_of (self, id) != NULL)
    g_value_set_boolean (value, *field_of (self, id));
  else
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
}

static void
begin (LycheeHygiene *self)
{
  LycheeHygieneEvidence *known =
      self->survey != NULL ? lychee_transcript_survey_get_evidence (self->survey) : NULL;

  self->evidence = lychee_speaker_evidence_new ();
  self->roll = lychee_rolling_new ();
  if (known != NULL)
    lychee_rolling_set_known (self->roll, known->rolling);
}

static void
end (LycheeHygiene *self)
{
  g_clear_pointer (&self->hypothesis, lychee_cue_free);
  g_clear_pointer (&self->evidence, lychee_speaker_evidence_free);
  g_clear_pointer (&self->roll, lychee_rolling_free);
  for (guint i = 0; i < self->doubtful->len; i++)
    lychee_cue_free (g_array_index (self->doubtful, Doubtful, i).cue);
  g_array_set_size (self->doubtful, 0);
  for (guint i = 0; i < self->n_recent; i++)
    lychee_cue_free (self->recent[i]);
  self->n_recent = 0;
  g_clear_pointer (&self->speaker, g_free);
  g_clear_pointer (&self->event_speaker, g_free);
  g_ptr_array_set_size (self->said, 0);
  g_ptr_array_set_size (self->repeats, 0);
  self->period = 0;
  self->n_repeats = 0;
  g_clear_pointer (&self->labelled, g_free);
  self->continues = FALSE;
  self->report = (LycheeHygieneReport){ 0 };
}

static void
lychee_hygiene_init (LycheeHygiene *self)
{
  self->said = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  self->repeats = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  self->doubtful = g_array_new (FALSE, FALSE, sizeof (Doubtful));
  begin (self);
}

static void
lychee_hygiene_finalize (GObject *object)
{
  LycheeHygiene *self = LYCHEE_HYGIENE (object);

  end (self);
  g_ptr_array_unref (self->said);
  g_ptr_array_unref (self->repeats);
  g_array_unref (self->doubtful);
  g_clear_object (&self->survey);
  G_OBJECT_CLASS (lychee_hygiene_parent_class)->finalize (object);
}

static void
install_switch (
    GObjectClass *object_class, guint id, const char *name, const char *nick, const char *blurb)
{
  g_object_class_install_property (object_class, id,
      g_param_spec_boolean (
          name, nick, blurb, TRUE, G_PARAM_READWRITE | G_PARAM_CONSTRUCT | G_PARAM_STATIC_STRINGS));
}

static void
lychee_hygiene_class_init (LycheeHygieneClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);

  object_class->finalize = lychee_hygiene_finalize;
  object_class->set_property = lychee_hygiene_set_property;
  object_class->get_property = lychee_hygiene_get_property;

  /**
   * LycheeHygiene:markup:
   *
   * Take markup out of the text: tags, override blocks, escapes; decode entities, once.
   */
  install_switch (object_class, PROP_MARKUP, "markup", "Markup",
      "Take out tags, override blocks and escapes, and decode entities");
  /**
   * LycheeHygiene:speakers:
   *
   * Find out from labels and marks in the text who speaks.
   */
  install_switch (object_class, PROP_SPEAKERS, "speakers", "Speakers",
      "Find out from labels and marks in the text (Ann:, >>, [SPEAKER_01]) who speaks");
  /**
   * LycheeHygiene:rolling:
   *
   * Keep once what rolling captions show again.
   */
  install_switch (object_class, PROP_ROLLING, "rolling", "Rolling captions",
      "Keep once the lines that rolling captions show again");
  /**
   * LycheeHygiene:loops:
   *
   * Keep once what a recogniser repeats over and over.
   */
  install_switch (object_class, PROP_LOOPS, "loops", "Loops",
      "Keep once the sentences that a recogniser repeats over and over");
  /**
   * LycheeHygiene:duplicates:
   *
   * Keep once the cues that are there twice, with the same time.
   */
  install_switch (object_class, PROP_DUPLICATES, "duplicates", "Duplicates",
      "Keep once the cues that are there twice, with the same time");
  /**
   * LycheeHygiene:partials:
   *
   * Replace a recogniser's hypotheses by their last.
   */
  install_switch (object_class, PROP_PARTIALS, "partials", "Partial hypotheses",
      "Replace a recogniser's hypotheses by their last");
  /**
   * LycheeHygiene:speaker-labels:
   *
   * Which cues begin with the speaker's name.
   */
  g_object_class_install_property (object_class, PROP_SPEAKER_LABELS,
      g_param_spec_enum ("speaker-labels", "Speaker labels",
          "Which cues begin with the speaker's name", LYCHEE_TYPE_SPEAKER_LABELS,
          LYCHEE_SPEAKER_LABELS_CHANGE,
          G_PARAM_READWRITE | G_PARAM_CONSTRUCT | G_PARAM_STATIC_STRINGS));
}

/**
 * lychee_hygiene_new:
 *
 * Returns: (transfer full): a hygiene that does all it can
 */
LycheeHygiene *
lychee_hygiene_new (void)
{
  return g_object_new (LYCHEE_TYPE_HYGIENE, NULL);
}

/**
 * lychee_hygiene_set_survey:
 * @hygiene: a hygiene that has seen nothing yet
 * @survey: (nullable): of the same transcript, ended
 *
 * Lets the hygiene know what the whole transcript is like: what is a speaker's name in it, and
 * whether its captions roll.
 */
void
lychee_hygiene_set_survey (LycheeHygiene *hygiene, LycheeTranscriptSurvey *survey)
{
  g_return_if_fail (LYCHEE_IS_HYGIENE (hygiene));

  g_set_object (&hygiene->survey, survey);
  lychee_hygiene_reset (hygiene);
}

/* Puts the speaker into the text, as far as that is wanted, and hands the cue out. */
static void
give (LycheeHygiene *self, LycheeCue *cue, GPtrArray *cues)
{
  gboolean labelled = (cue->flags & LYCHEE_CUE_LABELLED) != 0;
  gboolean change = g_strcmp0 (cue->speaker, self->labelled) != 0;
  gboolean wanted;

  switch (self->labels) {
  case LYCHEE_SPEAKER_LABELS_ALWAYS:
    wanted = TRUE;
    break;
  case LYCHEE_SPEAKER_LABELS_CHANGE:
    wanted = labelled || change;
    break;
  default:
    wanted = FALSE;
    break;
  }
  if (cue->speaker == NULL)
    wanted = FALSE;
  if (wanted && !self->continues) {
    gboolean named = strcmp (cue->speaker, UNNAMED) != 0;
    char *text = g_strconcat (
        cue->speaker, named ? ":" : "", *cue->text != '\0' ? " " : "", cue->text, NULL);

    g_free (cue->text);
    cue->text = text;
  }
  if (wanted)
    cue->flags |= LYCHEE_CUE_LABELLED;
  else
    cue->flags &= ~LYCHEE_CUE_LABELLED;
  self->continues = (cue->flags & LYCHEE_CUE_CONTINUES) != 0;
  if (change) {
    g_free (self->labelled);
    self->labelled = g_strdup (cue->speaker);
  }
  if (*cue->text != '\0')
    g_ptr_array_add (cues, cue);
  else
    lychee_cue_free (cue);
}

static guint
count_words (const char *text)
{
  guint n = 0;
  gboolean inside = FALSE;

  for (; *text != '\0'; text = g_utf8_next_char (text)) {
    gunichar c = g_utf8_get_char (text);
    gboolean space = g_unichar_isspace (c);

    n += (!space && !inside) || g_unichar_iswide (c);
    inside = !space;
  }
  return n;
}

static gboolean
says_same (const LycheeCue *a, const LycheeCue *b)
{
  return strcmp (a->text, b->text) == 0 && g_strcmp0 (a->speaker, b->speaker) == 0;
}

static const LycheeCue *
get_said (LycheeHygiene *self, guint ago)
{
  return g_ptr_array_index (self->said, self->said->len - ago);
}

/* Hands out a cue that may be the first of a loop. */
static void
give_said (LycheeHygiene *self, LycheeCue *cue, GPtrArray *cues)
{
  if (self->said->len == LOOP_PERIOD)
    g_ptr_array_remove_index (self->said, 0);
  g_ptr_array_add (self->said, lychee_cue_copy (cue));
  give (self, cue, cues);
}

/* Ends a run of cues that repeat others: few of them were said, many are a loop. */
static void
end_run (LycheeHygiene *self, GPtrArray *cues)
{
  g_autoptr (GPtrArray) repeats = self->repeats;

  self->repeats = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  g_ptr_array_set_free_func (repeats, NULL);
  for (guint i = 0; i < repeats->len; i++)
    give_said (self, g_ptr_array_index (repeats, i), cues);
  self->period = 0;
  self->n_repeats = 0;
}

/* How often the last @period cues are said where that is a loop. */
static guint
get_loop_length (LycheeHygiene *self, guint period)
{
  guint n_words = 0;

  for (guint i = 1; i <= period; i++)
    n_words += count_words (get_said (self, i)->text);
  if (period == 1)
    return n_words <= 2 ? SHORT_LOOP_LENGTH : LOOP_LENGTH;
  return n_words <= 2 * period ? SHORT_TURNS_LOOP_LENGTH : TURNS_LOOP_LENGTH;
}

static void
pass_loops (LycheeHygiene *self, LycheeCue *cue, GPtrArray *cues)
{
  if (!self->loops) {
    give (self, cue, cues);
    return;
  }
  self->report.loops += lychee_hygiene_collapse (cue->text);
  if (self->period > 0 &&
      !says_same (cue, get_said (self, self->period - self->n_repeats % self->period)))
    end_run (self, cues);
  for (guint ago = 1; self->period == 0 && *cue->text != '\0' && ago <= self->said->len; ago++)
    if (says_same (cue, get_said (self, ago)))
      self->period = ago;
  if (self->period == 0) {
    give_said (self, cue, cues);
    return;
  }
  self->n_repeats++;
  g_ptr_array_add (self->repeats, cue);
  if (self->n_repeats + self->period >= get_loop_length (self, self->period) * self->period) {
    self->report.loops += self->repeats->len;
    g_ptr_array_set_size (self->repeats, 0);
  }
}

/* A piece of @cue, from one label to the next. */
static LycheeCue *
piece_of (const LycheeCue *cue, gsize start, gsize end)
{
  LycheeCue *piece;

  while (end > start && cue->text[end] != '\0' && g_ascii_isspace (cue->text[end - 1]))
    end--;
  piece = lychee_cue_new (cue->text + start, end - start, NULL, cue->start, cue->end);
  piece->flags = cue->flags & ~LYCHEE_CUE_CONTINUES;
  return piece;
}

static void
pass_speakers (LycheeHygiene *self, LycheeCue *cue, gboolean line_start, GPtrArray *cues)
{
  g_autoptr (LycheeCue) whole = cue;
  g_autoptr (GArray) labels = NULL;
  LycheeHygieneEvidence *known =
      self->survey != NULL ? lychee_transcript_survey_get_evidence (self->survey) : NULL;
  gsize length = strlen (cue->text);
  gsize from = 0;
  LycheeCue *piece = NULL;

  if (cue->speaker != NULL || !self->speakers) {
    if (cue->speaker == NULL)
      cue->speaker = g_strdup (self->event_speaker);
    pass_loops (self, g_steal_pointer (&whole), cues);
    return;
  }
  labels = lychee_hygiene_find_labels (cue->text, line_start);
  if (known == NULL)
    lychee_speaker_evidence_learn (self->evidence, labels);
  for (guint i = 0; i <= labels->len; i++) {
    const LycheeLabel *label = i < labels->len ? &g_array_index (labels, LycheeLabel, i) : NULL;
    gsize stop = label != NULL ? label->start : length;

    if (label != NULL &&
        !lychee_speaker_evidence_accepts (
            known != NULL ? known->speakers : self->evidence, label, known != NULL))
      continue;
    if (stop > from || piece != NULL) {
      gboolean labelled = piece != NULL;

      g_clear_pointer (&piece, lychee_cue_free);
      piece = piece_of (cue, from, stop);
      piece->speaker = g_strdup (self->speaker != NULL ? self->speaker : self->event_speaker);
      if (labelled)
        piece->flags |= LYCHEE_CUE_LABELLED;
      if (from > 0)
        piece->flags &= ~LYCHEE_CUE_PARAGRAPH;
      if (label == NULL)
        piece->flags |= cue->flags & LYCHEE_CUE_CONTINUES;
      if (labelled || !lychee_transcript_is_blank (piece->text, strlen (piece->text)))
        pass_loops (self, g_steal_pointer (&piece), cues);
      g_clear_pointer (&piece, lychee_cue_free);
    }
    if (label == NULL)
      break;
    self->report.speakers++;
    g_free (self->speaker);
    self->speaker = g_strdup (label->name != NULL ? label->name : UNNAMED);
    from = label->end;
    piece = piece_of (cue, from, from); /* a label has been: its text is to come */
  }
}

/* Whether a cue with the same beginning and text has been. */
static gboolean
is_duplicate (LycheeHygiene *self, const LycheeCue *cue)
{
  if (cue->start == LYCHEE_TIME_NONE)
    return FALSE;
  if (self->n_recent > 0 && self->recent[0]->start != cue->start) {
    for (guint i = 0; i < self->n_recent; i++)
      lychee_cue_free (self->recent[i]);
    self->n_recent = 0;
  }
  for (guint i = 0; i < self->n_recent; i++)
    if (strcmp (self->recent[i]->text, cue->text) == 0 &&
        g_strcmp0 (self->recent[i]->speaker, cue->speaker) == 0)
      return TRUE;
  if (self->n_recent < N_RECENT)
    self->recent[self->n_recent++] = lychee_cue_copy (cue);
  return FALSE;
}

/* The cues that were in doubt do not roll, or do, as the next one does. */
static void
settle_doubtful (LycheeHygiene *self, gboolean rolls, GPtrArray *cues)
{
  for (guint i = 0; i < self->doubtful->len; i++) {
    Doubtful doubtful = g_array_index (self->doubtful, Doubtful, i);
    char *text = doubtful.cue->text;

    if (rolls) {
      const char *rest = text + doubtful.shown;

      while (g_ascii_isspace (*rest))
        rest++;
      memmove (text, rest, strlen (rest) + 1);
      self->report.rolling++;
    }
    if (*text != '\0')
      pass_speakers (self, doubtful.cue, doubtful.line_start, cues);
    else
      lychee_cue_free (doubtful.cue);
  }
  g_array_set_size (self->doubtful, 0);
}

/* A cue, or one voice of it, without markup. */
static void
pass_part (LycheeHygiene *self, LycheeCue *cue, gboolean line_start, GPtrArray *cues)
{
  gboolean changed = FALSE;
  gboolean left = TRUE;

  if (self->duplicates && is_duplicate (self, cue)) {
    self->report.duplicates++;
    lychee_cue_free (cue);
    return;
  }
  if (self->rolling) {
    Doubtful doubtful = { cue, 0, line_start };

    left = lychee_rolling_reduce (self->roll, cue, &changed, &doubtful.shown);
    self->report.rolling += changed;
    if (doubtful.shown > 0) {
      g_array_append_val (self->doubtful, doubtful);
      return;
    }
    settle_doubtful (self, changed, cues);
  }
  if (left)
    pass_speakers (self, cue, line_start, cues);
  else
    lychee_cue_free (cue);
}

static void
pass_markup (LycheeHygiene *self, LycheeCue *cue, GPtrArray *cues)
{
  g_autoptr (GPtrArray) parts = NULL;
  gboolean line_start = !self->continues;

  if (!self->markup) {
    pass_part (self, cue, line_start, cues);
    return;
  }
  parts = g_ptr_array_new ();
  lychee_hygiene_strip (cue, parts, &self->report);
  for (guint i = 0; i < parts->len; i++) {
    LycheeCue *part = g_ptr_array_index (parts, i);

    if (i + 1 < parts->len)
      part->flags &= ~LYCHEE_CUE_CONTINUES;
    pass_part (self, part, line_start || i > 0, cues);
  }
  lychee_cue_free (cue);
}

/* The hypothesis is final: nothing will replace it. */
static void
settle_hypothesis (LycheeHygiene *self, GPtrArray *cues)
{
  if (self->hypothesis != NULL)
    pass_markup (self, g_steal_pointer (&self->hypothesis), cues);
}

/* Whether one of the texts begins as the other does: half of the shorter one, at least. */
static gboolean
begins_alike (const char *a, const char *b)
{
  gsize shorter = MIN (strlen (a), strlen (b));
  gsize same = 0;

  while (same < shorter && g_ascii_tolower (a[same]) == g_ascii_tolower (b[same]))
    same++;
  return same * 2 >= shorter && same > 0;
}

/* Whether @cue says what @hypothesis said, better. */
static gboolean
replaces (const LycheeCue *cue, const LycheeCue *hypothesis)
{
  if (cue->start == LYCHEE_TIME_NONE || hypothesis->start == LYCHEE_TIME_NONE)
    return TRUE;
  return cue->start == hypothesis->start && begins_alike (cue->text, hypothesis->text);
}

/**
 * lychee_hygiene_push:
 * @hygiene: a hygiene
 * @cue: (transfer full): the next cue
 * @cues: (element-type Lychee.Cue): where cues are appended, transfer full
 *
 * Takes a cue; gives those that are settled. Of one there may be several, one for each speaker, or
 * none.
 */
void
lychee_hygiene_push (LycheeHygiene *hygiene, LycheeCue *cue, GPtrArray *cues)
{
  gboolean partial;

  g_return_if_fail (LYCHEE_IS_HYGIENE (hygiene));
  g_return_if_fail (cue != NULL);
  g_return_if_fail (cues != NULL);

  partial = (cue->flags & LYCHEE_CUE_PARTIAL) != 0;
  if (!hygiene->partials) {
    pass_markup (hygiene, cue, cues);
    return;
  }
  if (hygiene->hypothesis != NULL && replaces (cue, hygiene->hypothesis)) {
    g_clear_pointer (&hygiene->hypothesis, lychee_cue_free);
    hygiene->report.partials++;
  }
  settle_hypothesis (hygiene, cues);
  if (partial)
    hygiene->hypothesis = cue;
  else
    pass_markup (hygiene, cue, cues);
}

/**
 * lychee_hygiene_end_hypothesis:
 * @hygiene: a hygiene
 * @cues: (element-type Lychee.Cue): where cues are appended, transfer full
 *
 * The last hypothesis is final.
 */
void
lychee_hygiene_end_hypothesis (LycheeHygiene *hygiene, GPtrArray *cues)
{
  g_return_if_fail (LYCHEE_IS_HYGIENE (hygiene));
  g_return_if_fail (cues != NULL);

  settle_hypothesis (hygiene, cues);
  settle_doubtful (hygiene, FALSE, cues);
}

/**
 * lychee_hygiene_set_speaker:
 * @hygiene: a hygiene
 * @speaker: (nullable): who speaks from now on, where the text does not tell
 * @cues: (element-type Lychee.Cue): where cues are appended, transfer full
 */
void
lychee_hygiene_set_speaker (LycheeHygiene *hygiene, const char *speaker, GPtrArray *cues)
{
  g_return_if_fail (LYCHEE_IS_HYGIENE (hygiene));
  g_return_if_fail (cues != NULL);

  settle_hypothesis (hygiene, cues);
  settle_doubtful (hygiene, FALSE, cues);
  g_free (hygiene->event_speaker);
  hygiene->event_speaker = g_strdup (speaker);
  g_clear_pointer (&hygiene->speaker, g_free);
}

/**
 * lychee_hygiene_drain:
 * @hygiene: a hygiene
 * @cues: (element-type Lychee.Cue): where cues are appended, transfer full
 *
 * Gives all that is held.
 */
void
lychee_hygiene_drain (LycheeHygiene *hygiene, GPtrArray *cues)
{
  g_return_if_fail (LYCHEE_IS_HYGIENE (hygiene));
  g_return_if_fail (cues != NULL);

  settle_hypothesis (hygiene, cues);
  settle_doubtful (hygiene, FALSE, cues);
  end_run (hygiene, cues);
}

/**
 * lychee_hygiene_reset:
 * @hygiene: a hygiene
 *
 * Forgets all cues.
 */
void
lychee_hygiene_reset (LycheeHygiene *hygiene)
{
  g_return_if_fail (LYCHEE_IS_HYGIENE (hygiene));

  end (hygiene);
  begin (hygiene);
}

/**
 * lychee_hygiene_get_report: (skip)
 * @hygiene: a hygiene
 *
 * Returns: what was cleaned since it was new or reset
 */
LycheeHygieneReport
lychee_hygiene_get_report (LycheeHygiene *hygiene)
{
  LycheeHygieneReport none = { 0 };

  g_return_val_if_fail (LYCHEE_IS_HYGIENE (hygiene), none);

  return hygiene->report;
}

LycheeHygieneEvidence *
lychee_hygiene_evidence_new (void)
{
  LycheeHygieneEvidence *evidence = g_new0 (LycheeHygieneEvidence, 1);

  evidence->speakers = lychee_speaker_evidence_new ();
  evidence->rolling = lychee_rolling_new ();
  evidence->parts = g_ptr_array_new_with_free_func ((GDestroyNotify) lychee_cue_free);
  return evidence;
}

void
lychee_hygiene_evidence_free (LycheeHygieneEvidence *evidence)
{
  lychee_speaker_evidence_free (evidence->speakers);
  lychee_rolling_free (evidence->rolling);
  g_ptr_array_unref (evidence->parts);
  g_free (evidence);
}

void
lychee_hygiene_evidence_learn (LycheeHygieneEvidence *evidence, const LycheeCue *cue)
{
  LycheeHygieneReport report = { 0 };
  gboolean changed;

  g_ptr_array_set_size (evidence->parts, 0);
  lychee_hygiene_strip (cue, evidence->parts, &report);
  for (guint i = 0; i < evidence->parts->len; i++) {
    LycheeCue *part = g_ptr_array_index (evidence->parts, i);
    g_autoptr (GArray) labels = lychee_hygiene_find_labels (part->text, TRUE);

    lychee_speaker_evidence_learn (evidence->speakers, labels);
    lychee_rolling_reduce (evidence->rolling, part, &changed, NULL);
  }
}
