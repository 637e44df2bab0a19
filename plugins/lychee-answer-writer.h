/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <gst/gst.h>

#include "lychee-answer.h"
#include "lychee-ask.h"

G_BEGIN_DECLS

/* The version of the JSON objects that are written: docs/answer.schema.json. */
#define LYCHEE_ANSWER_JSON_VERSION 1

/* How much of an answer is in a buffer. */
typedef enum {
  LYCHEE_STREAM_TOKEN,
  LYCHEE_STREAM_SENTENCE,
  LYCHEE_STREAM_ANSWER,
} LycheeStream;

#define LYCHEE_TYPE_STREAM (lychee_stream_get_type ())
GType lychee_stream_get_type (void);

/* What is said of an answer, as the structure of an element message and, under the same names, as
 * JSON. @answer: (nullable): none was made. @finish: why it ended; NULL: as @answer says. @reason:
 * (nullable): in words, where there is no answer. (transfer full) */
GstStructure *lychee_answer_describe (
    LycheeAsk *ask, LycheeAnswer *answer, const char *finish, const char *reason);
/* One line, without the newline: an object with version, type and the fields of @structure.
 * (transfer full) */
char *lychee_structure_to_json (const GstStructure *structure, const char *type);

/* Takes a buffer. */
typedef void (*LycheePutFunc) (GstBuffer *buffer, gpointer user_data);

/* Makes buffers of an answer's pieces: text, or JSON, a line each. All have the time of the
 * question. */
typedef struct _LycheeAnswerWriter LycheeAnswerWriter;

/* @marks: text has the times of its evidence: with LYCHEE_STREAM_SENTENCE behind the first sentence
 * by whose end each was found, and at the end in any case. */
LycheeAnswerWriter *lychee_answer_writer_new (LycheeAsk *ask, gboolean json, LycheeStream stream,
    gboolean marks, LycheePutFunc put, gpointer user_data);
void lychee_answer_writer_free (LycheeAnswerWriter *writer);
/* What the answer rests on so far: LycheeEvidence. */
void lychee_answer_writer_note_evidence (LycheeAnswerWriter *writer, GPtrArray *evidence);
void lychee_answer_writer_push (LycheeAnswerWriter *writer, const char *text);
/* @description: of lychee_answer_describe(), whose evidence is marked. */
void lychee_answer_writer_finish (LycheeAnswerWriter *writer, const GstStructure *description);

G_DEFINE_AUTOPTR_CLEANUP_FUNC (LycheeAnswerWriter, lychee_answer_writer_free)

G_END_DECLS
