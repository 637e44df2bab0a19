/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-transcript-parser-json-words.h"
#include "lychee-transcript-parser-private.h"

G_BEGIN_DECLS

/* The cues of an outermost object, held until it ends: what is behind them may say who speaks, or
 * the same once more and who. There is a limit to how much is held. */

typedef struct _LycheeJsonHeld LycheeJsonHeld;

LycheeJsonHeld *lychee_json_held_new (LycheeTranscriptOutput *output);
void lychee_json_held_free (LycheeJsonHeld *held);
/* How many cues there have been. */
guint64 lychee_json_held_get_n (LycheeJsonHeld *held);
/* Takes the cue. @milliseconds, here and below: whether whole numbers are. */
void lychee_json_held_add (LycheeJsonHeld *held, LycheeCue *cue, gboolean milliseconds);
/* What was found out too late for the cues from number @from on. */
void lychee_json_held_amend (
    LycheeJsonHeld *held, guint64 from, const char *speaker, gboolean partial);
/* Who speaks from when on. */
LycheeJsonTurns *lychee_json_held_get_turns (LycheeJsonHeld *held);
/* If @cues are all that is held, once more and with who says it: forgets what is held. */
void lychee_json_held_yield_to (LycheeJsonHeld *held, GPtrArray *cues);
/* Hands out what is held; the object goes on. */
void lychee_json_held_give (LycheeJsonHeld *held, gboolean milliseconds);
void lychee_json_held_end (LycheeJsonHeld *held, gboolean milliseconds);

G_END_DECLS
