/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-settings.h"

/* The default of an enumeration. A stream goes on with what it has, where a library's caller would
 * rather decide for itself. */
static int
get_default (GParamSpec *pspec)
{
  if (pspec->value_type == LYCHEE_TYPE_OVERFLOW)
    return LYCHEE_OVERFLOW_STOP_READING;
  return G_PARAM_SPEC_ENUM (pspec)->default_value;
}

/* A copy of a session's property for an element, to be set at any time. */
static GParamSpec *
copy_pspec (GParamSpec *p, GParamFlags mutable)
{
  const char *nick = g_param_spec_get_nick (p), *blurb = g_param_spec_get_blurb (p);
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | mutable;

  if (G_IS_PARAM_SPEC_UINT (p)) {
    GParamSpecUInt *s = G_PARAM_SPEC_UINT (p);

    return g_param_spec_uint (
        p->name, nick, blurb, s->minimum, s->maximum, s->default_value, flags);
  }
  if (G_IS_PARAM_SPEC_UINT64 (p)) {
    GParamSpecUInt64 *s = G_PARAM_SPEC_UINT64 (p);

    return g_param_spec_uint64 (
        p->name, nick, blurb, s->minimum, s->maximum, s->default_value, flags);
  }
  if (G_IS_PARAM_SPEC_DOUBLE (p)) {
    GParamSpecDouble *s = G_PARAM_SPEC_DOUBLE (p);

    return g_param_spec_double (
        p->name, nick, blurb, s->minimum, s->maximum, s->default_value, flags);
  }
  if (G_IS_PARAM_SPEC_ENUM (p)) {
    gst_type_mark_as_plugin_api (p->value_type, 0);
    return g_param_spec_enum (p->name, nick, blurb, p->value_type, get_default (p), flags);
  }
  return g_param_spec_string (p->name, nick, blurb, G_PARAM_SPEC_STRING (p)->default_value, flags);
}

void
lychee_settings_install (
    GObjectClass *klass, GType owner, guint first_id, const char *const *names, GParamFlags mutable)
{
  GObjectClass *owner_class = g_type_class_ref (owner);

  for (guint i = 0; names[i]; i++)
    g_object_class_install_property (klass, first_id + i,
        copy_pspec (g_object_class_find_property (owner_class, names[i]), mutable));
  g_type_class_unref (owner_class);
}

void
lychee_settings_init (LycheeSettings *settings, guint first_id, const char *const *names)
{
  GObjectClass *session_class = g_type_class_ref (LYCHEE_TYPE_SESSION);

  settings->names = names;
  settings->first_id = first_id;
  settings->values = g_new0 (GValue, g_strv_length ((char **) names));
  for (guint i = 0; names[i]; i++) {
    GParamSpec *pspec = g_object_class_find_property (session_class, names[i]);

    g_value_init (&settings->values[i], pspec->value_type);
    g_param_value_set_default (pspec, &settings->values[i]);
    if (G_IS_PARAM_SPEC_ENUM (pspec))
      g_value_set_enum (&settings->values[i], get_default (pspec));
  }
  g_type_class_unref (session_class);
}

void
lychee_settings_clear (LycheeSettings *settings)
{
  for (guint i = 0; settings->names[i]; i++)
    g_value_unset (&settings->values[i]);
  g_free (settings->values);
}

static GValue *
find_value (LycheeSettings *settings, guint id)
{
  guint n = g_strv_length ((char **) settings->names);

  if (id < settings->first_id || id >= settings->first_id + n)
    return NULL;
  return &settings->values[id - settings->first_id];
}

gboolean
lychee_settings_set (LycheeSettings *settings, guint id, const GValue *value)
{
  GValue *own = find_value (settings, id);

  if (own)
    g_value_copy (value, own);
  return own != NULL;
}

gboolean
lychee_settings_get (LycheeSettings *settings, guint id, GValue *value)
{
  GValue *own = find_value (settings, id);

  if (own)
    g_value_copy (own, value);
  return own != NULL;
}

typedef struct {
  const char **names;
  GValue *values;
  guint n;
} Properties;

static GValue *
add_property (Properties *properties, const char *name, GType type)
{
  properties->names[properties->n] = name;
  return g_value_init (&properties->values[properties->n++], type);
}

LycheeSession *
lychee_settings_new_session (LycheeSettings *settings, gpointer lock_of, LycheeModel *model,
    LycheeCache *cache, LycheeChatFormat format)
{
  guint n = g_strv_length ((char **) settings->names);
  Properties all = { g_new (const char *, n + 3), g_new0 (GValue, n + 3), 0 };
  GObject *session;

  g_value_set_object (add_property (&all, "model", LYCHEE_TYPE_MODEL), model);
  GST_OBJECT_LOCK (lock_of);
  for (guint i = 0; i < n; i++) {
    GValue *value = add_property (&all, settings->names[i], G_VALUE_TYPE (&settings->values[i]));

    g_value_copy (&settings->values[i], value);
    if (G_VALUE_TYPE (value) == LYCHEE_TYPE_CHAT_FORMAT &&
        g_value_get_enum (value) == LYCHEE_CHAT_FORMAT_AUTO)
      g_value_set_enum (value, format);
  }
  GST_OBJECT_UNLOCK (lock_of);

  session = g_object_new_with_properties (LYCHEE_TYPE_SESSION, all.n, all.names, all.values);
  for (guint i = 0; i < all.n; i++)
    g_value_unset (&all.values[i]);
  g_free (all.values);
  g_free (all.names);
  if (cache != NULL)
    lychee_session_set_cache (LYCHEE_SESSION (session), cache);
  return LYCHEE_SESSION (session);
}
