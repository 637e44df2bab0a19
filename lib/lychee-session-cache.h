/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-cache.h"
#include "lychee-session.h"

G_BEGIN_DECLS

/* What elements share: a session's cache. Apart from lychee-session.h, since programs have no use
 * for it. */

/* (transfer none) */
LYCHEE_API LycheeCache *lychee_session_get_cache (LycheeSession *session);
/* Has a session that nothing was done with read and answer over @cache, which may be another
 * session's; it then counts as that one's memory. */
LYCHEE_API void lychee_session_set_cache (LycheeSession *session, LycheeCache *cache);
/* lychee_session_truncate() of the chunks from chunk @first on: where the transcript was resumed,
 * and what is read behind it counts time anew. */
LYCHEE_API guint64 lychee_session_truncate_from (LycheeSession *session, guint first, guint64 time);

G_END_DECLS
