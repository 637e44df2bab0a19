/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-memory.h"

#include "lychee-forward.h"
#include "lychee-model-private.h"

#include <string.h>

/* What the index takes of the keys and values that it is over, as f16: 2.6 % with heads of 64
 * dimensions, less with larger ones (docs/benchmarks.md). */
#define INDEX_PART 0.03

/* The first number of the line that begins with @key (NULL: of the file) in @root/@path; @otherwise
 * where there is none. */
static guint64
read_number (const char *root, const char *path, const char *key, guint64 otherwise)
{
  g_autofree char *file = g_strconcat (root, path, NULL), *text = NULL;
  const char *at;
  char *end;
  guint64 n;

  if (!g_file_get_contents (file, &text, NULL, NULL))
    return otherwise;
  at = text;
  if (key) {
    while (at && !g_str_has_prefix (at, key)) {
      at = strchr (at, '\n');
      at = at ? at + 1 : NULL;
    }
    if (!at)
      return otherwise;
    at += strlen (key);
  }
  n = g_ascii_strtoull (at, &end, 10);
  return end > at ? n : otherwise;
}

typedef struct {
  const char *base; /* where the groups are mounted */
  const char *limit, *used;
  const char *files; /* the key in memory.stat of what is cached of files */
} GroupKind;

static const GroupKind v1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
  "memory.usage_in_bytes", "total_inactive_file" };
static const GroupKind v2 = { "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file" };

static guint64
left_in_group (const char *root, const GroupKind *kind, const char *path)
{
  g_autofree char *limit = g_strdup_printf ("%s%s/%s", kind->base, path, kind->limit);
  g_autofree char *used = g_strdup_printf ("%s%s/%s", kind->base, path, kind->used);
  g_autofree char *stat = g_strdup_printf ("%s%s/memory.stat", kind->base, path);
  guint64 max = read_number (root, limit, NULL, G_MAXUINT64), n, files;

  if (max == G_MAXUINT64) /* there is no such group, or it says "max" */
    return G_MAXUINT64;
  n = read_number (root, used, NULL, 0);
  files = read_number (root, stat, kind->files, 0);
  n -= MIN (n, files);
  return max - MIN (max, n);
}

/* A group's limit holds for all below it. In a container, the path may be one of outside: what is
 * mounted then is the group itself. */
static guint64
left_in_groups (const char *root, const GroupKind *kind, const char *path)
{
  g_autofree char *at = g_strdup (path);
  guint64 left = G_MAXUINT64;

  while (TRUE) {
    char *slash;
    guint64 here = left_in_group (root, kind, g_str_equal (at, "/") ? "" : at);

    left = MIN (left, here);
    slash = strrchr (at, '/');
    if (!slash)
      return left;
    *slash = '\0';
  }
}

guint64
lychee_memory_get_available (const char *root)
{
  guint64 kib = read_number (root, "/proc/meminfo", "MemAvailable:", G_MAXUINT64);
  guint64 available = kib == G_MAXUINT64 ? kib : kib * 1024;
  g_autofree char *file = g_strconcat (root, "/proc/self/cgroup", NULL), *text = NULL;
  g_auto (GStrv) lines = NULL;

  if (!g_file_get_contents (file, &text, NULL, NULL))
    return available;
  lines = g_strsplit (text, "\n", -1);
  for (char **line = lines; *line; line++) {
    g_auto (GStrv) parts = g_strsplit (*line, ":", 3); /* number, controllers, path */
    gboolean has_memory;
    guint64 left = G_MAXUINT64;

    if (g_strv_length (parts) != 3 || parts[2][0] != '/')
      continue;
    has_memory = g_regex_match_simple ("(^|,)memory(,|$)", parts[1], 0, 0);
    if (parts[1][0] == '\0')
      left = left_in_groups (root, &v2, parts[2]);
    else if (has_memory)
      left = left_in_groups (root, &v1, parts[2]);
    available = MIN (available, left);
  }
  return available;
}

/* Of @n tokens whose rows have @row bytes together: the memory of pages that they fill. */
static guint64
cache_memory (guint64 row, guint64 n)
{
  return lychee_cache_page_memory (row * LYCHEE_CACHE_PAGE_TOKENS) * n / LYCHEE_CACHE_PAGE_TOKENS;
}

void
lychee_memory_estimate (LycheeModel *model, guint n_tokens, gboolean whole, LycheeRowForm form,
    guint64 max_cache, LycheeMemoryNeed *need)
{
  const LycheeHparams *hp = lychee_model_get_hparams (model);
  const gboolean *local = lychee_model_get_local_layers (model);
  guint64 layer =
      (guint64) hp->n_kv_heads * lychee_row_size (form, hp->head_dim) * 2 * sizeof (guint16);
  guint64 indexed = (guint64) hp->n_kv_heads * hp->head_dim * 2 * sizeof (guint16) * n_tokens;
  guint n_indexed = 0, n_kept, n_local = n_tokens;

  for (guint i = 0; i < hp->n_layers; i++)
    n_indexed += !local[i];
  n_kept = n_indexed;
  if (whole)
    n_kept = hp->n_layers;
  else
    n_local = MIN (n_tokens, lychee_cache_get_local_tokens (hp->window, LYCHEE_FORWARD_MAX_TOKENS));
  need->weights = lychee_model_get_size (model);
  need->cache = cache_memory (layer * n_kept, n_tokens) +
                cache_memory (layer * (hp->n_layers - n_kept), n_local);
  need->index = INDEX_PART * n_indexed * indexed;
  /* They grow together until that is used up. */
  if (max_cache > 0 && need->cache + need->index > max_cache) {
    need->index = max_cache * ((double) need->index / (need->cache + need->index));
    need->cache = max_cache - need->index;
  }
}

guint64
lychee_memory_sum (const LycheeMemoryNeed *need)
{
  return need->weights + need->cache + need->index;
}
