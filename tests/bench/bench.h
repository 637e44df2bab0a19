/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "lychee-chunker.h"
#include "lychee-forward.h"
#include "lychee-model-tokenizer.h"

G_BEGIN_DECLS

/* What every command of lychee-bench shares. */
typedef struct {
  char *model_path; /* --model, else $LYCHEE_MODEL, else the default model; until it is loaded */
  gint threads;     /* --threads, 0: one a core */
  gboolean json;    /* --json: one object a line */
} Bench;

/* Parses the common options and @entries out of @argv; exits with a message on error. */
void bench_parse (
    Bench *bench, const GOptionEntry *entries, const char *summary, int *argc, char ***argv);
/* (transfer full); exits with a message on error. */
LycheeModel *bench_load (Bench *bench);
/* "0,2048" -> guint array; exits with a message on error. */
GArray *bench_parse_numbers (const char *option, const char *list);
/* Whether --prefill, dense where it is NULL, is sparse; exits with a message on error. */
gboolean bench_parse_prefill (const char *mode);
G_NORETURN void bench_fail (const char *format, ...) G_GNUC_PRINTF (1, 2);
/* Milliseconds on a monotonic clock. */
double bench_now (void);

/* A cache for @model with room for @max_tokens. */
LycheeCache *bench_new_cache (LycheeModel *model, guint max_tokens);
/* Keeps its rows as --cache-type=@type says, NULL: as f16. */
void bench_set_cache_type (LycheeCache *cache, const char *type);
/* With sinks and window as they are by default. */
void bench_enable_index (LycheeModel *model, LycheeCache *cache);
/* Fills @cache up to @depth: tokens really computed at the start, then their keys and values
 * repeated with noise. For timing only. */
void bench_fill (LycheeModel *model, LycheeForward *forward, LycheeCache *cache, guint depth);

/* Milliseconds a token, of all threads together, that loading what sparse attention would read from
 * an indexed @cache takes: the median over @n_tokens, which are appended. */
double bench_bound (LycheeModel *model, LycheeForward *forward, LycheeCache *cache,
    const LycheeAttentionOptions *options, guint n_tokens);

/* The chunks of a text (transfer full); its ids are appended to @ids. */
GPtrArray *bench_chunk (LycheeTokenizer *tokenizer, LycheeChunker *chunker, const char *text,
    gsize length, GArray *ids);

int bench_tokens (int argc, char **argv);
int bench_logits (int argc, char **argv);
int bench_perplexity (int argc, char **argv);
int bench_decode (int argc, char **argv);
int bench_ingest (int argc, char **argv);
int bench_index (int argc, char **argv);
int bench_evidence (int argc, char **argv);
int bench_chunks (int argc, char **argv);
int bench_fidelity (int argc, char **argv);
int bench_needle (int argc, char **argv);

G_END_DECLS
