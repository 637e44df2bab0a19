/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-types.h"

G_BEGIN_DECLS

/**
 * LycheeAttentionMode:
 * @LYCHEE_ATTENTION_DENSE: every token attends to all before it
 * @LYCHEE_ATTENTION_SPARSE: to those that the index finds, within a budget; the others are
 * estimated
 *
 * How attention reads the transcript.
 */
typedef enum {
  LYCHEE_ATTENTION_DENSE,
  LYCHEE_ATTENTION_SPARSE,
} LycheeAttentionMode;

#define LYCHEE_TYPE_ATTENTION_MODE (lychee_attention_mode_get_type ())
LYCHEE_API GType lychee_attention_mode_get_type (void);

/**
 * LycheeGranularity:
 * @LYCHEE_GRANULARITY_TOKEN: tokens, each by itself: the most faithful
 * @LYCHEE_GRANULARITY_CHUNK: whole chunks: LycheeCluster as published, with the smaller index (rest
 * and beam have no effect)
 *
 * What the index finds.
 */
typedef enum {
  LYCHEE_GRANULARITY_TOKEN,
  LYCHEE_GRANULARITY_CHUNK,
} LycheeGranularity;

#define LYCHEE_TYPE_GRANULARITY (lychee_granularity_get_type ())
LYCHEE_API GType lychee_granularity_get_type (void);

/**
 * LycheeRest:
 * @LYCHEE_REST_ESTIMATE: each group of unread tokens counts as its mean key and value
 * @LYCHEE_REST_DROP: it does not count
 *
 * What becomes of the tokens that sparse attention does not read.
 */
typedef enum {
  LYCHEE_REST_ESTIMATE,
  LYCHEE_REST_DROP,
} LycheeRest;

#define LYCHEE_TYPE_REST (lychee_rest_get_type ())
LYCHEE_API GType lychee_rest_get_type (void);

G_END_DECLS
