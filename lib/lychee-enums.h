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

/**
 * LycheeCacheType:
 * @LYCHEE_CACHE_TYPE_F16: half floats
 * @LYCHEE_CACHE_TYPE_Q8_0: blocks of 32 values, 8 bits each and one scale: about half the memory of
 *   f16. Needs heads of a multiple of 32 dimensions
 *
 * How keys and values are kept.
 */
typedef enum {
  LYCHEE_CACHE_TYPE_F16,
  LYCHEE_CACHE_TYPE_Q8_0,
} LycheeCacheType;

#define LYCHEE_TYPE_CACHE_TYPE (lychee_cache_type_get_type ())
LYCHEE_API GType lychee_cache_type_get_type (void);

/**
 * LycheePositions:
 * @LYCHEE_POSITIONS_AUTO: packed where nobody says how long the transcript may become; else
 * absolute
 * @LYCHEE_POSITIONS_ABSOLUTE: a token's position is its place in the transcript; for more of them
 * than the model was trained for, YaRN stretches them
 * @LYCHEE_POSITIONS_PACKED: what is read of a transcript gets positions when it is read, never more
 * than the model was trained for: a transcript may have any length. Up to the model's positions all
 * is as with absolute ones; beyond, reading is always sparse
 *
 * How the model's positions go with a transcript's length.
 */
typedef enum {
  LYCHEE_POSITIONS_AUTO,
  LYCHEE_POSITIONS_ABSOLUTE,
  LYCHEE_POSITIONS_PACKED,
} LycheePositions;

#define LYCHEE_TYPE_POSITIONS (lychee_positions_get_type ())
LYCHEE_API GType lychee_positions_get_type (void);

/**
 * LycheeOverflow:
 * @LYCHEE_OVERFLOW_ERROR: reading more is an error
 * @LYCHEE_OVERFLOW_STOP_READING: what comes is left out
 * @LYCHEE_OVERFLOW_FORGET_OLDEST: the oldest is forgotten, as much as is needed and some more
 *
 * What happens when context or memory is used up. Answers say when something was left out or
 * forgotten.
 */
typedef enum {
  LYCHEE_OVERFLOW_ERROR,
  LYCHEE_OVERFLOW_STOP_READING,
  LYCHEE_OVERFLOW_FORGET_OLDEST,
} LycheeOverflow;

#define LYCHEE_TYPE_OVERFLOW (lychee_overflow_get_type ())
LYCHEE_API GType lychee_overflow_get_type (void);

/**
 * LycheeBackendType:
 * @LYCHEE_BACKEND_AUTO: a CUDA device where there is a usable one, else the processor
 * @LYCHEE_BACKEND_CPU: the processor
 * @LYCHEE_BACKEND_CUDA: a CUDA device, and an error where there is no usable one
 *
 * What computes.
 */
typedef enum {
  LYCHEE_BACKEND_AUTO,
  LYCHEE_BACKEND_CPU,
  LYCHEE_BACKEND_CUDA,
} LycheeBackendType;

#define LYCHEE_TYPE_BACKEND_TYPE (lychee_backend_type_get_type ())
LYCHEE_API GType lychee_backend_type_get_type (void);

#define LYCHEE_BACKEND_ERROR (lychee_backend_error_quark ())

/**
 * LycheeBackendError:
 * @LYCHEE_BACKEND_ERROR_UNAVAILABLE: there is no module, driver or device
 * @LYCHEE_BACKEND_ERROR_UNSUPPORTED: the device cannot run this model, or this kind of index
 * @LYCHEE_BACKEND_ERROR_NO_MEMORY: the device has not enough memory
 * @LYCHEE_BACKEND_ERROR_COMPUTE: the device failed; this process cannot use it any more
 *
 * Why a device cannot compute.
 */
typedef enum {
  LYCHEE_BACKEND_ERROR_UNAVAILABLE,
  LYCHEE_BACKEND_ERROR_UNSUPPORTED,
  LYCHEE_BACKEND_ERROR_NO_MEMORY,
  LYCHEE_BACKEND_ERROR_COMPUTE,
} LycheeBackendError;

#define LYCHEE_TYPE_BACKEND_ERROR (lychee_backend_error_get_type ())
LYCHEE_API GType lychee_backend_error_get_type (void);

/**
 * lychee_backend_error_quark:
 *
 * The domain of errors of the kind LycheeBackendError.
 *
 * Returns: a quark
 */
LYCHEE_API GQuark lychee_backend_error_quark (void);

/**
 * LycheeDetector:
 * @LYCHEE_DETECTOR_STRUCTURE: by what is written: paragraphs, speakers, sentences, clauses, words
 * @LYCHEE_DETECTOR_SEMANTIC: by what is said: where the subject changes most, between words
 * @LYCHEE_DETECTOR_BOTH: by what is written, and besides where the subject changes
 *
 * What a chunker looks for.
 */
typedef enum {
  LYCHEE_DETECTOR_STRUCTURE,
  LYCHEE_DETECTOR_SEMANTIC,
  LYCHEE_DETECTOR_BOTH,
} LycheeDetector;

#define LYCHEE_TYPE_DETECTOR (lychee_detector_get_type ())
LYCHEE_API GType lychee_detector_get_type (void);

/**
 * LycheeEmbedding:
 * @LYCHEE_EMBEDDING_TABLE: the token's row in the model's table: one vector whatever the context
 * @LYCHEE_EMBEDDING_SHALLOW: what the model's first layers make of it, among the tokens before it
 *
 * What stands for a token's meaning where a chunker looks for changes of subject.
 */
typedef enum {
  LYCHEE_EMBEDDING_TABLE,
  LYCHEE_EMBEDDING_SHALLOW,
} LycheeEmbedding;

#define LYCHEE_TYPE_EMBEDDING (lychee_embedding_get_type ())
LYCHEE_API GType lychee_embedding_get_type (void);

/**
 * LycheeChatFormat:
 * @LYCHEE_CHAT_FORMAT_AUTO: the one of the model's file; what a session still has where that is
 *   none of these
 * @LYCHEE_CHAT_FORMAT_PLAIN: no control tokens: base models
 * @LYCHEE_CHAT_FORMAT_CHATML: `<|im_start|>role ... <|im_end|>`
 * @LYCHEE_CHAT_FORMAT_LLAMA2: `[INST] <<SYS>> ... [/INST]`
 * @LYCHEE_CHAT_FORMAT_LLAMA3: `<|start_header_id|>role<|end_header_id|> ... <|eot_id|>`
 * @LYCHEE_CHAT_FORMAT_GEMMA: `<start_of_turn>role ... <end_of_turn>`
 * @LYCHEE_CHAT_FORMAT_MISTRAL: `[INST] ... [/INST]`
 * @LYCHEE_CHAT_FORMAT_QWEN3: chatml, where the model is told not to think aloud
 * @LYCHEE_CHAT_FORMAT_PHI3: `<|role|> ... <|end|>`
 * @LYCHEE_CHAT_FORMAT_PHI4: `<|im_start|>role<|im_sep|> ... <|im_end|>`
 * @LYCHEE_CHAT_FORMAT_GRANITE: `<|start_of_role|>role<|end_of_role|> ... <|end_of_text|>`
 *
 * How a model was trained to be spoken to.
 */
typedef enum {
  LYCHEE_CHAT_FORMAT_AUTO,
  LYCHEE_CHAT_FORMAT_PLAIN,
  LYCHEE_CHAT_FORMAT_CHATML,
  LYCHEE_CHAT_FORMAT_LLAMA2,
  LYCHEE_CHAT_FORMAT_LLAMA3,
  LYCHEE_CHAT_FORMAT_GEMMA,
  LYCHEE_CHAT_FORMAT_MISTRAL,
  LYCHEE_CHAT_FORMAT_QWEN3,
  LYCHEE_CHAT_FORMAT_PHI3,
  LYCHEE_CHAT_FORMAT_PHI4,
  LYCHEE_CHAT_FORMAT_GRANITE,
} LycheeChatFormat;

#define LYCHEE_TYPE_CHAT_FORMAT (lychee_chat_format_get_type ())
LYCHEE_API GType lychee_chat_format_get_type (void);

#define LYCHEE_CACHE_ERROR (lychee_cache_error_quark ())

/**
 * LycheeCacheError:
 * @LYCHEE_CACHE_ERROR_FULL: the positions that the model or the user allows are used up
 * @LYCHEE_CACHE_ERROR_NO_MEMORY: the memory limit is reached, or the system has no more
 *
 * Why no more fits into a cache.
 */
typedef enum {
  LYCHEE_CACHE_ERROR_FULL,
  LYCHEE_CACHE_ERROR_NO_MEMORY,
} LycheeCacheError;

#define LYCHEE_TYPE_CACHE_ERROR (lychee_cache_error_get_type ())
LYCHEE_API GType lychee_cache_error_get_type (void);
LYCHEE_API GQuark lychee_cache_error_quark (void);

G_END_DECLS
