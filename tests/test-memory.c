/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What memory there is, what a session will need, and what is said when that is too much. */

#include "lychee-memory.h"

#include "lychee-cache.h"
#include "lychee-session-cache.h"
#include "model-logits.h"
#include "tiny-model.h"

#include <glib/gstdio.h>
#include <string.h>

static char *dir;

#define MIB ((guint64) 1 << 20)

typedef struct {
  const char *name;
  const char *files[12]; /* path, text, ... */
  guint64 available;
} Case;

static const Case cases[] = {
  { "nothing-known", { NULL }, G_MAXUINT64 },
  { "system", { "proc/meminfo", "MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:  2048 kB\n" },
      2 * MIB },
  { "no-such-line", { "proc/meminfo", "MemTotal: 99 kB\n" }, G_MAXUINT64 },
  { "not-a-number", { "proc/meminfo", "MemAvailable: much\n" }, G_MAXUINT64 },
  { "v2",
      { "proc/meminfo", "MemAvailable: 8192 kB\n", "proc/self/cgroup", "0::/a/b\n",
          "sys/fs/cgroup/a/b/memory.max", "4194304\n", "sys/fs/cgroup/a/b/memory.current",
          "2097152\n", "sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 1048576\n" },
      3 * MIB },
  { "v2-no-limit",
      { "proc/meminfo", "MemAvailable: 8192 kB\n", "proc/self/cgroup", "0::/a\n",
          "sys/fs/cgroup/a/memory.max", "max\n", "sys/fs/cgroup/a/memory.current", "2097152\n" },
      8 * MIB },
  { "v2-parent",
      { "proc/meminfo", "MemAvailable: 8192 kB\n", "proc/self/cgroup", "0::/a/b\n",
          "sys/fs/cgroup/a/b/memory.max", "max\n", "sys/fs/cgroup/a/memory.max", "1048576\n",
          "sys/fs/cgroup/a/memory.current", "1024\n" },
      MIB - 1024 },
  { "v2-container",
      { "proc/meminfo", "MemAvailable: 8192 kB\n", "proc/self/cgroup", "0::/../outside\n",
          "sys/fs/cgroup/memory.max", "2097152\n", "sys/fs/cgroup/memory.current", "1048576\n" },
      MIB },
  { "v2-used-up",
      { "proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "2097152\n",
          "sys/fs/cgroup/memory.current", "9999999\n" },
      0 },
  { "v1",
      { "proc/meminfo", "MemAvailable: 8192 kB\n", "proc/self/cgroup",
          "7:cpu,cpuacct:/x\n5:memory:/job\n1:name=systemd:/x\n",
          "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4194304\n",
          "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1048576\n" },
      3 * MIB },
  { "the-system-has-less",
      { "proc/meminfo", "MemAvailable: 1024 kB\n", "proc/self/cgroup", "0::/\n",
          "sys/fs/cgroup/memory.max", "4194304\n", "sys/fs/cgroup/memory.current", "0\n" },
      MIB },
  { "nonsense", { "proc/meminfo", "MemAvailable: 1024 kB\n", "proc/self/cgroup", ":::\n\n0:x\n" },
      MIB },
};

static void
test_available (gconstpointer data)
{
  const Case *c = data;
  g_autofree char *root = g_build_filename (dir, c->name, NULL);

  for (guint i = 0; c->files[i]; i += 2) {
    g_autofree char *path = g_build_filename (root, c->files[i], NULL);
    g_autofree char *folder = g_path_get_dirname (path);

    g_assert_cmpint (g_mkdir_with_parents (folder, 0700), ==, 0);
    g_assert_true (g_file_set_contents (path, c->files[i + 1], -1, NULL));
  }
  g_assert_cmpuint (lychee_memory_get_available (root), ==, c->available);
}

static void
test_estimate (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "estimate.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeCache) cache = test_model_cache (model, 1000);
  LycheeMemoryNeed need, all;
  GStatBuf st;

  lychee_memory_estimate (model, 1000, FALSE, LYCHEE_ROW_F16, 0, &need);
  g_assert_cmpint (g_stat (path, &st), ==, 0);
  g_assert_cmpuint (need.weights, ==, st.st_size);
  g_assert_cmpuint (need.cache, ==, 1000 * lychee_cache_get_token_bytes (cache));
  g_assert_cmpuint (need.index, >, need.cache / 100);
  g_assert_cmpuint (need.index, <, need.cache / 20);
  g_assert_cmpuint (lychee_memory_sum (&need), ==, need.weights + need.cache + need.index);
  /* With less room each has its share of it. */
  all = need;
  lychee_memory_estimate (model, 1000, FALSE, LYCHEE_ROW_F16, (all.cache + all.index) / 2, &need);
  g_assert_cmpuint (need.cache + need.index, ==, (all.cache + all.index) / 2);
  g_assert_cmpuint (need.index, >=, all.index / 2 - 1);
  g_assert_cmpuint (need.index, <=, all.index / 2 + 1);
  lychee_memory_estimate (model, 1000, FALSE, LYCHEE_ROW_F16, 5000, &need);
  g_assert_cmpuint (need.cache + need.index, ==, 5000);
}

/* A context that cannot fit is refused before anything is read, with the figures and what would
 * fit; the same with a limit, or as the model has it, is not. */
static void
test_too_much (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = NULL;
  g_autoptr (LycheeModel) model = NULL;
  g_autoptr (LycheeSession) session = NULL, limited = NULL, usual = NULL;
  g_autoptr (GError) error = NULL;

  tiny.n_heads = tiny.n_kv_heads = 64;
  tiny.head_dim = 256;
  path = lychee_tiny_model_write (&tiny, dir, "large.gguf");
  model = test_model_load (path);
  /* 2 TB */
  session = g_object_new (LYCHEE_TYPE_SESSION, "model", model, "max-context", 1u << 24, NULL);
  g_assert_false (lychee_session_begin (session, NULL, &error));
  g_assert_error (error, LYCHEE_CACHE_ERROR, LYCHEE_CACHE_ERROR_NO_MEMORY);
  g_assert_nonnull (strstr (error->message, "16777216 tokens"));
  g_assert_nonnull (strstr (error->message, "2199023 MB"));
  g_assert_nonnull (strstr (error->message, "max-context"));
  g_clear_error (&error);
  limited = g_object_new (
      LYCHEE_TYPE_SESSION, "model", model, "max-context", 1u << 24, "max-memory", 256 * MIB, NULL);
  g_assert_true (lychee_session_begin (limited, NULL, &error));
  g_assert_no_error (error);
  usual = lychee_session_new (model);
  g_assert_true (lychee_session_begin (usual, NULL, &error));
  g_assert_no_error (error);
}

static void
test_stats (void)
{
  LycheeTinyModel tiny = LYCHEE_TINY_MODEL_INIT;
  g_autofree char *path = lychee_tiny_model_write (&tiny, dir, "stats.gguf");
  g_autoptr (LycheeModel) model = test_model_load (path);
  g_autoptr (LycheeSession) session =
      g_object_new (LYCHEE_TYPE_SESSION, "model", model, "max-context", 3072, NULL);
  g_autoptr (GVariant) stats = lychee_session_get_stats (session);
  guint64 bytes;
  guint context;
  double stretch;

  g_assert_true (g_variant_lookup (stats, "context", "u", &context));
  g_assert_cmpuint (context, ==, 3072);
  g_assert_true (g_variant_lookup (stats, "stretch", "d", &stretch));
  g_assert_cmpfloat (stretch, ==, 1.5);
  g_assert_true (g_variant_lookup (stats, "memory-cache", "t", &bytes));
  g_assert_cmpuint (
      bytes, ==, 3072 * lychee_cache_get_token_bytes (lychee_session_get_cache (session)));
  g_assert_true (g_variant_lookup (stats, "memory-weights", "t", &bytes));
  g_assert_cmpuint (bytes, >, 0);
  g_assert_true (g_variant_lookup (stats, "memory-index", "t", &bytes));
  g_assert_true (g_variant_lookup (stats, "memory-available", "t", &bytes));
  g_assert_cmpuint (bytes, >, 0);
}

int
main (int argc, char **argv)
{
  int result;

  g_test_init (&argc, &argv, NULL);
  dir = g_dir_make_tmp ("lychee-memory-XXXXXX", NULL);
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++) {
    g_autofree char *name = g_strdup_printf ("/memory/available/%s", cases[i].name);

    g_test_add_data_func (name, &cases[i], test_available);
  }
  g_test_add_func ("/memory/estimate", test_estimate);
  g_test_add_func ("/memory/too-much", test_too_much);
  g_test_add_func ("/memory/stats", test_stats);
  result = g_test_run ();
  lychee_test_remove_dir (dir);
  g_free (dir);
  return result;
}
