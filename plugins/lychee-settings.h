/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-session-cache.h"

G_BEGIN_DECLS

/* Properties of LycheeSession that an element offers under the same names, with the same ranges,
 * defaults and words. The element keeps their values until there is a session to give them to. */
typedef struct {
  const char *const *names; /* NULL-terminated */
  guint first_id;
  GValue *values; /* as many as names */
} LycheeSettings;

/* Installs the properties @names of @owner (LycheeSession, or another class) with ids from
 * @first_id on. @mutable: GST_PARAM_MUTABLE_READY, or GST_PARAM_MUTABLE_PLAYING where a change
 * holds for the next answer. */
void lychee_settings_install (GObjectClass *klass, GType owner, guint first_id,
    const char *const *names, GParamFlags mutable);
void lychee_settings_init (LycheeSettings *settings, guint first_id, const char *const *names);
void lychee_settings_clear (LycheeSettings *settings);
/* FALSE if @id is none of them. Under the element's object lock. */
gboolean lychee_settings_set (LycheeSettings *settings, guint id, const GValue *value);
gboolean lychee_settings_get (LycheeSettings *settings, guint id, GValue *value);
/* (transfer full): a session with these values. @cache: (nullable). @format: the "template" where
 * that setting names none. Takes the object lock of @lock_of meanwhile. */
LycheeSession *lychee_settings_new_session (LycheeSettings *settings, gpointer lock_of,
    LycheeModel *model, LycheeCache *cache, LycheeChatFormat format);

G_END_DECLS
