/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-ask.h"

LycheeAsk *
lychee_ask_new (LycheeAskKind kind, LycheeQuestion *question)
{
  LycheeAsk *ask = g_new0 (LycheeAsk, 1);

  g_atomic_ref_count_init (&ask->refs);
  ask->kind = kind;
  ask->question = question;
  ask->last = GST_CLOCK_TIME_NONE;
  ask->time = GST_CLOCK_TIME_NONE;
  return ask;
}

LycheeAsk *
lychee_ask_ref (LycheeAsk *ask)
{
  g_atomic_ref_count_inc (&ask->refs);
  return ask;
}

void
lychee_ask_unref (LycheeAsk *ask)
{
  if (!g_atomic_ref_count_dec (&ask->refs))
    return;
  g_free (ask->id);
  g_object_unref (ask->question);
  g_clear_object (&ask->snapshot);
  g_free (ask);
}

const char *
lychee_ask_get_kind_name (LycheeAsk *ask)
{
  static const char *const names[] = { "question", "summary", "final" };

  return names[ask->kind];
}

typedef struct {
  LycheeAsk *ask;
  LycheeSampler *sampler;
  GError *error;
} Options;

static void G_GNUC_PRINTF (2, 3) refuse (Options *options, const char *format, ...)
{
  va_list arguments;

  va_start (arguments, format);
  options->error =
      g_error_new_valist (GST_LIBRARY_ERROR, GST_LIBRARY_ERROR_SETTINGS, format, arguments);
  va_end (arguments);
}

/* Whether @converted is the same number as @value: GLib cuts off what does not fit in its type. */
static gboolean
is_same_number (const GValue *value, const GValue *converted)
{
  GValue back = G_VALUE_INIT, one = G_VALUE_INIT, other = G_VALUE_INIT;
  gboolean same;

  g_value_init (&back, G_VALUE_TYPE (value));
  g_value_init (&one, G_TYPE_DOUBLE);
  g_value_init (&other, G_TYPE_DOUBLE);
  same = g_value_transform (converted, &back) && g_value_transform (value, &one) &&
         g_value_transform (&back, &other) &&
         g_value_get_double (&one) == g_value_get_double (&other);
  g_value_unset (&back);
  g_value_unset (&one);
  g_value_unset (&other);
  return same;
}

/* Numbers have many types in a structure, and none of ours is negative. */
static gboolean
convert_number (const GValue *value, GValue *to)
{
  GValue number = G_VALUE_INIT;
  double size;

  g_value_init (&number, G_TYPE_DOUBLE);
  if (!g_value_transform (value, &number))
    return FALSE;
  size = g_value_get_double (&number);
  /* What is too large for any number of ours cannot even be tried. GST_CLOCK_TIME_NONE is not. */
  if (!(size >= 0) || (size >= 0x1p64 && !G_VALUE_HOLDS_UINT64 (value)))
    return FALSE;
  return g_value_transform (value, to) && is_same_number (value, to);
}

/* @value as a value of @type. */
static gboolean
convert (const GValue *value, GType type, GValue *to)
{
  g_value_init (to, type);
  if (type == G_TYPE_STRV && GST_VALUE_HOLDS_ARRAY (value)) {
    guint n = gst_value_array_get_size (value);
    char **strings = g_new0 (char *, n + 1);

    g_value_take_boxed (to, strings);
    for (guint i = 0; i < n; i++) {
      const GValue *item = gst_value_array_get_value (value, i);

      if (!G_VALUE_HOLDS_STRING (item) || g_value_get_string (item) == NULL)
        return FALSE;
      strings[i] = g_value_dup_string (item);
    }
    return TRUE;
  }
  if (type == G_TYPE_STRV && G_VALUE_HOLDS_STRING (value)) {
    const char *strings[] = { g_value_get_string (value), NULL };

    g_value_set_boxed (to, strings);
    return TRUE;
  }
  /* GLib makes a string of anything. */
  if (type == G_TYPE_STRING && !G_VALUE_HOLDS_STRING (value))
    return FALSE;
  if (type == G_TYPE_STRING || type == G_TYPE_BOOLEAN)
    return g_value_transform (value, to);
  return convert_number (value, to);
}

static gboolean
set_property (Options *options, GObject *object, GParamSpec *pspec, const GValue *value)
{
  GValue converted = G_VALUE_INIT;
  gboolean ok = convert (value, pspec->value_type, &converted);

  /* It would be put right without a word. */
  ok = ok && !g_param_value_validate (pspec, &converted);
  if (ok) {
    g_object_set_property (object, pspec->name, &converted);
  } else {
    g_autofree char *text = gst_value_serialize (value);

    refuse (options, "“%s” of a question cannot be %s", pspec->name, text);
  }
  g_value_unset (&converted);
  return ok;
}

static gboolean
set_last (Options *options, const GValue *value)
{
  GValue converted = G_VALUE_INIT;
  gboolean ok = convert (value, G_TYPE_UINT64, &converted);

  if (ok)
    options->ask->last = g_value_get_uint64 (&converted);
  else
    refuse (options, "“last” of a question must be a number of nanoseconds");
  g_value_unset (&converted);
  return ok;
}

static gboolean
set_option (GQuark field, const GValue *value, gpointer user_data)
{
  Options *options = user_data;
  LycheeAsk *ask = options->ask;
  const char *name = g_quark_to_string (field);
  GParamSpec *pspec;

  if (g_str_equal (name, "id")) {
    if (!G_VALUE_HOLDS_STRING (value) || g_value_get_string (value) == NULL) {
      refuse (options, "“id” of a question must be a string");
      return FALSE;
    }
    g_free (ask->id);
    ask->id = g_utf8_make_valid (g_value_get_string (value), -1);
    return TRUE;
  }
  if (g_str_equal (name, "last"))
    return set_last (options, value);
  pspec = g_object_class_find_property (G_OBJECT_GET_CLASS (ask->question), name);
  if (pspec != NULL && pspec->value_type != LYCHEE_TYPE_SAMPLER)
    return set_property (options, G_OBJECT (ask->question), pspec, value);
  pspec = g_object_class_find_property (G_OBJECT_GET_CLASS (options->sampler), name);
  if (pspec != NULL)
    return set_property (options, G_OBJECT (options->sampler), pspec, value);
  refuse (options,
      "A question has no “%s”: it takes prompt, id, from, to, last, max-tokens, evidence, "
      "contrast, quotes, language, system-prompt, stop and the settings of the sampler",
      name);
  return FALSE;
}

gboolean
lychee_ask_set_options (LycheeAsk *ask, const GstStructure *structure, GError **error)
{
  LycheeSampler *given = lychee_question_get_sampler (ask->question);
  Options options = { ask, given != NULL ? lychee_sampler_copy (given) : lychee_sampler_new (),
    NULL };
  gboolean ok = gst_structure_foreach (structure, set_option, &options);

  if (ok)
    lychee_question_set_sampler (ask->question, options.sampler);
  else
    g_propagate_error (error, options.error);
  g_object_unref (options.sampler);
  return ok;
}

GstClockTime
lychee_cache_get_end_time (LycheeCache *cache)
{
  for (guint i = lychee_cache_get_n_chunks (cache); i > 0; i--) {
    g_autoptr (LycheeChunk) chunk = lychee_cache_get_chunk (cache, i - 1, NULL);

    if (chunk != NULL && chunk->pts != LYCHEE_TIME_NONE)
      return lychee_chunk_get_end (chunk);
  }
  return GST_CLOCK_TIME_NONE;
}

gboolean
lychee_ask_take_snapshot (
    LycheeAsk *ask, LycheeCache *cache, LycheeChatFormat format, GstClockTime start, GError **error)
{
  GstClockTime end = GST_CLOCK_TIME_NONE;
  LycheeCache *snapshot;

  if (ask->snapshot == NULL)
    ask->time = start;
  if (cache == NULL)
    return TRUE;
  snapshot = lychee_cache_fork (cache, error);
  if (snapshot == NULL)
    return FALSE;
  g_clear_object (&ask->snapshot);
  ask->snapshot = snapshot;
  ask->time = start;
  ask->format = format;
  end = lychee_cache_get_end_time (ask->snapshot);
  if (!GST_CLOCK_TIME_IS_VALID (end))
    return TRUE;
  if (!GST_CLOCK_TIME_IS_VALID (start) || end > start)
    ask->time = end;
  if (GST_CLOCK_TIME_IS_VALID (ask->last))
    lychee_question_set_range (
        ask->question, end > ask->last ? end - ask->last : 0, GST_CLOCK_TIME_NONE);
  return TRUE;
}
