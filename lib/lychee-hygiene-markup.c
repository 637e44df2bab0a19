/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-hygiene-private.h"

#include <string.h>

/* Markup out of the text of cues: tags, override blocks, escapes, entities. What only looks like
 * markup stays: "3 < 5", "<|im_end|>", "a & b". */

#define MAX_TAG_LENGTH 1024
/* Where the end of a tag that is not well known is looked for. */
#define MAX_TAG_DISTANCE 512

typedef struct {
  const LycheeCue *cue;
  GPtrArray *parts;
  LycheeHygieneReport *report;
  GString *text;
  char *speaker;
  gboolean voices;    /* there has been one */
  gboolean drawing;   /* what follows is a drawing's coordinates */
  gboolean no_blocks; /* no brace closes one from here on */
  guint n_struck;     /* <s> that are open */
} Strip;

/* Whether anything is said: letters, digits, pictures; not dashes and the like alone. */
static gboolean
says_something (const char *text)
{
  for (; *text != '\0'; text = g_utf8_next_char (text)) {
    gunichar c = g_utf8_get_char (text);

    if (!g_unichar_isspace (c) && !g_unichar_iszerowidth (c) &&
        g_unichar_type (c) != G_UNICODE_DASH_PUNCTUATION)
      return TRUE;
  }
  return FALSE;
}

static gboolean
is_space (char c)
{
  return c == ' ' || c == '\t';
}

/* Takes out spaces at the ends of lines, double ones, and lines at the ends that are empty. */
static void
tidy (GString *text)
{
  char *to = text->str;
  gboolean after_space = TRUE;

  for (const char *from = text->str; *from != '\0'; from++) {
    if (is_space (*from) && after_space)
      continue;
    if (*from == '\n')
      while (to > text->str && is_space (to[-1]))
        to--;
    if (*from == '\n' && to == text->str)
      continue;
    after_space = is_space (*from) || *from == '\n';
    *to++ = is_space (*from) ? ' ' : *from;
  }
  while (to > text->str && (is_space (to[-1]) || to[-1] == '\n'))
    to--;
  g_string_truncate (text, to - text->str);
}

static void
end_part (Strip *strip)
{
  LycheeCue *part;
  gboolean space = strip->text->len > 0 && g_ascii_isspace (strip->text->str[strip->text->len - 1]);

  tidy (strip->text);
  if (strip->text->len > 0 && (!strip->voices || says_something (strip->text->str))) {
    part = lychee_cue_copy (strip->cue);
    g_free (part->text);
    if (space && (strip->cue->flags & LYCHEE_CUE_CONTINUES) != 0) /* what goes on needs it */
      g_string_append_c (strip->text, ' ');
    part->text = g_strdup (strip->text->str);
    part->markup = LYCHEE_CUE_MARKUP_NONE;
    if (strip->speaker != NULL) {
      g_free (part->speaker);
      part->speaker = g_strdup (strip->speaker);
    }
    g_ptr_array_add (strip->parts, part);
  }
  g_string_truncate (strip->text, 0);
}

static const struct {
  const char *name;
  const char *text;
} entities[] = {
  { "amp", "&" },
  { "lt", "<" },
  { "gt", ">" },
  { "quot", "\"" },
  { "apos", "'" },
  { "nbsp", " " },
  { "ensp", " " },
  { "emsp", " " },
  { "thinsp", " " },
  { "shy", "" },
  { "lrm", "\xe2\x80\x8e" },
  { "rlm", "\xe2\x80\x8f" },
  { "hellip", "…" },
  { "mdash", "—" },
  { "ndash", "–" },
  { "lsquo", "‘" },
  { "rsquo", "’" },
  { "ldquo", "“" },
  { "rdquo", "”" },
  { "laquo", "«" },
  { "raquo", "»" },
  { "iquest", "¿" },
  { "iexcl", "¡" },
  { "aacute", "á" },
  { "eacute", "é" },
  { "iacute", "í" },
  { "oacute", "ó" },
  { "uacute", "ú" },
  { "agrave", "à" },
  { "egrave", "è" },
  { "ccedil", "ç" },
  { "ntilde", "ñ" },
  { "auml", "ä" },
  { "ouml", "ö" },
  { "uuml", "ü" },
  { "Auml", "Ä" },
  { "Ouml", "Ö" },
  { "Uuml", "Ü" },
  { "szlig", "ß" },
  { "euro", "€" },
  { "pound", "£" },
  { "copy", "©" },
  { "deg", "°" },
  { "frac12", "½" },
};

/* Bytes before the first of @stops or the end. Unlike strcspn() it never looks at what comes
 * behind, also where a sanitizer checks its arguments: a cue may be megabytes long, and have as
 * many tags. */
static gsize
span_until (const char *at, const char *stops)
{
  gsize n = 0;

  while (at[n] != '\0' && strchr (stops, at[n]) == NULL)
    n++;
  return n;
}

/* Reads the entity at @at, which is an ampersand, onto @text. Returns its length, 0 where it is
 * none. */
static gsize
take_entity (const char *at, GString *text)
{
  gsize length = span_until (at + 1, "; \n\t<&") + 2;
  gunichar c = 0;
  char *end;

  if (length < 4 || length > 12 || at[length - 1] != ';')
    return 0;
  if (at[1] == '#') {
    gboolean hex = at[2] == 'x' || at[2] == 'X';
    const char *digits = at + (hex ? 3 : 2);

    if (!(hex ? g_ascii_isxdigit (*digits) : g_ascii_isdigit (*digits)))
      return 0;
    c = g_ascii_strtoull (digits, &end, hex ? 16 : 10);
    if (end != at + length - 1 || !g_unichar_validate (c) || c == 0 ||
        (c < 0x20 && c != '\n' && c != '\t'))
      return 0;
    g_string_append_unichar (text, c == 0xa0 ? ' ' : c);
    return length;
  }
  for (guint i = 0; i < G_N_ELEMENTS (entities); i++)
    if (strlen (entities[i].name) == length - 2 &&
        strncmp (at + 1, entities[i].name, length - 2) == 0) {
      g_string_append (text, entities[i].text);
      return length;
    }
  return 0;
}

/* What a voice's tag says behind its name and classes. */
static char *
name_of_voice (const char *text, gsize length)
{
  g_autofree char *raw = g_strndup (text, length);
  g_autoptr (GString) name = g_string_new (NULL);
  gboolean space = FALSE;

  for (const char *at = raw; *at != '\0';) {
    gsize entity = *at == '&' ? take_entity (at, name) : 0;

    if (entity > 0) {
      at += entity;
    } else if (g_ascii_isspace (*at)) {
      space = name->len > 0;
      at++;
    } else {
      if (space)
        g_string_append_c (name, ' ');
      space = FALSE;
      g_string_append_c (name, *at++);
    }
  }
  g_strstrip (name->str);
  return *name->str != '\0' ? g_strdup (name->str) : NULL;
}

static gboolean
is_known_tag (const char *name, gsize length)
{
  static const char *const names[] = { "i", "b", "u", "font", "c", "v", "ruby", "rt", "rp", "lang",
    "br", "p", "span", "em", "strong", "strike", "tt", "big", "small", "sub", "sup", "div" };

  for (guint i = 0; i < G_N_ELEMENTS (names); i++)
    if (strlen (names[i]) == length && g_ascii_strncasecmp (names[i], name, length) == 0)
      return TRUE;
  return FALSE;
}

/* Whether a tag that is not well known is one: it is if there is its end, or its beginning. */
static gboolean
is_balanced (Strip *strip, const char *name, gsize length, gboolean closing, const char *behind)
{
  g_autofree char *other = NULL;
  const char *found;

  if (closing) {
    if (strip->n_struck == 0)
      return FALSE;
    strip->n_struck--;
    return TRUE;
  }
  other = g_strdup_printf ("</%.*s>", (int) length, name);
  found = g_strstr_len (behind, MAX_TAG_DISTANCE, other);
  if (found == NULL)
    return FALSE;
  strip->n_struck++;
  return TRUE;
}

/* Handles the tag or comment at @at, which is "<". Returns its length, 0 where it is none. */
static gsize
take_tag (Strip *strip, const char *at)
{
  const char *comment_end =
      g_str_has_prefix (at, "<!--") ? g_strstr_len (at + 4, MAX_TAG_LENGTH, "-->") : NULL;
  gsize length = span_until (at + 1, "<>") + 2;
  gboolean closing = at[1] == '/';
  const char *name = at + 1 + closing;
  const char *end = at + length - 1;
  gsize name_length = 0;
  gsize class_length;
  gboolean voice;

  if (comment_end != NULL)
    return comment_end + 3 - at;
  if (length > MAX_TAG_LENGTH || *end != '>')
    return 0;
  if (closing && name == end)
    return length;
  if (g_ascii_isdigit (*name) && strspn (name, "0123456789:.") == (gsize) (end - name))
    return memchr (name, ':', end - name) != NULL ? length : 0; /* a time within the cue */
  while (name_length < 16 && (g_ascii_isalnum (name[name_length]) || name[name_length] == '-'))
    name_length++;
  if (name_length == 0 || !g_ascii_isalpha (*name))
    return 0;
  if (strchr (". \t\n/>", name[name_length]) == NULL)
    return 0;
  if (!is_known_tag (name, name_length) &&
      (!(strip->cue->markup == LYCHEE_CUE_MARKUP_WEBVTT ||
           (name_length == 1 && g_ascii_tolower (*name) == 's')) ||
          !is_balanced (strip, name, name_length, closing, end)))
    return 0;

  voice = name_length == 1 && (*name == 'v' || *name == 'V');
  if (voice) {
    strip->voices = TRUE;
    end_part (strip);
    g_clear_pointer (&strip->speaker, g_free);
    if (!closing) {
      class_length = span_until (name + 1, " \t\n>");
      strip->speaker = name_of_voice (name + 1 + class_length, end - (name + 1 + class_length));
      strip->report->speakers++;
    }
  } else if (name_length == 2 && g_ascii_strncasecmp (name, "br", 2) == 0) {
    g_string_append_c (strip->text, '\n');
  }
  return length;
}

/* Handles the block at @at, which is "{". Returns its length, 0 where it is none. */
static gsize
take_block (Strip *strip, const char *at)
{
  const char *end;
  const char *drawing;

  if (strip->no_blocks || (strip->cue->markup != LYCHEE_CUE_MARKUP_ASS && at[1] != '\\' &&
                              !(g_ascii_isalpha (at[1]) && at[2] == ':')))
    return 0;
  end = at + span_until (at, "}");
  if (*end == '\0') {
    strip->no_blocks = TRUE;
    return 0;
  }
  drawing = g_strstr_len (at, end - at, "\\p");
  if (drawing != NULL && g_ascii_isdigit (drawing[2]))
    strip->drawing = drawing[2] != '0';
  return end - at + 1;
}

/* Handles the escape at @at, which is a backslash. Returns its length, 0 where it is none. */
static gsize
take_escape (Strip *strip, const char *at)
{
  gboolean ass = strip->cue->markup == LYCHEE_CUE_MARKUP_ASS;

  /* "C:\Name" */
  if (!ass && strip->text->len >= 1 && strip->text->str[strip->text->len - 1] == ':')
    return 0;
  if (at[1] == 'N' || (ass && at[1] == 'n'))
    g_string_append_c (strip->text, '\n');
  else if (at[1] == 'h')
    g_string_append_c (strip->text, ' ');
  else
    return 0;
  return 2;
}

void
lychee_hygiene_strip (const LycheeCue *cue, GPtrArray *parts, LycheeHygieneReport *report)
{
  Strip strip = { .cue = cue, .parts = parts, .report = report };
  const char *special = cue->markup == LYCHEE_CUE_MARKUP_NONE  ? "&"
                        : cue->markup == LYCHEE_CUE_MARKUP_ASS ? "{\\"
                                                               : "<{\\&";
  const char *at = cue->text;

  strip.text = g_string_sized_new (strlen (cue->text));
  while (*at != '\0') {
    gsize run = span_until (at, special);
    gsize length = 0;

    if (!strip.drawing)
      g_string_append_len (strip.text, at, run);
    at += run;
    switch (*at) {
    case '<':
      length = take_tag (&strip, at);
      break;
    case '{':
      length = take_block (&strip, at);
      break;
    case '\\':
      length = take_escape (&strip, at);
      break;
    case '&':
      length = take_entity (at, strip.text);
      report->entities += length > 0;
      report->markup -= length > 0;
      break;
    default:
      continue;
    }
    report->markup += length > 0;
    if (length == 0 && !strip.drawing)
      g_string_append_c (strip.text, *at);
    at += MAX (length, 1);
  }
  end_part (&strip);
  g_free (strip.speaker);
  g_string_free (strip.text, TRUE);
}
