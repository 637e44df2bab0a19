/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "lychee-cuda-mirror.h"

#include "lychee-index-chunks-private.h"

#include <string.h>

/* Much is brought there in pieces: on its way it takes as much memory again. */
#define MOST_UPLOADED ((gsize) 64 << 20)

/* Blocks to be copied to the device. */
typedef struct {
  GPtrArray *to, *from;
  GArray *sizes;   /* of gsize */
  GPtrArray *made; /* memory that blocks lie in */
  gsize total;
} Upload;

static void
upload_init (Upload *upload)
{
  upload->to = g_ptr_array_new ();
  upload->from = g_ptr_array_new ();
  upload->sizes = g_array_new (FALSE, FALSE, sizeof (gsize));
  upload->made = g_ptr_array_new_with_free_func (g_free);
  upload->total = 0;
}

static void
upload_clear (Upload *upload)
{
  g_ptr_array_unref (upload->to);
  g_ptr_array_unref (upload->from);
  g_array_unref (upload->sizes);
  g_ptr_array_unref (upload->made);
}

static void
upload_add (Upload *upload, gpointer to, gconstpointer from, gsize size)
{
  g_ptr_array_add (upload->to, to);
  g_ptr_array_add (upload->from, (gpointer) from);
  g_array_append_val (upload->sizes, size);
  upload->total += size;
}

/* Copies them, and is empty again. */
static gboolean
upload_run (Upload *upload, LycheeCuda *cuda, LycheeCudaWorker *worker, GError **error)
{
  LycheeCudaError local = { 0 };
  int status = cuda->api->worker_upload (worker, upload->to->len, upload->to->pdata,
      (gconstpointer *) upload->from->pdata, (const gsize *) (gpointer) upload->sizes->data,
      &local);

  g_ptr_array_set_size (upload->to, 0);
  g_ptr_array_set_size (upload->from, 0);
  g_array_set_size (upload->sizes, 0);
  g_ptr_array_set_size (upload->made, 0);
  upload->total = 0;
  if (status == 0)
    return TRUE;
  lychee_cuda_set_error (error, &local, "The transcript cannot be brought onto the CUDA device");
  return FALSE;
}

/* Pages */

typedef struct {
  LycheeCuda *cuda;
  gsize size;
  gpointer memory;
} DevicePage;

static void
device_page_free (gconstpointer owner, gpointer data)
{
  DevicePage *page = data;

  lychee_cuda_free_page (page->cuda, page->size, page->memory);
  lychee_cuda_unref (page->cuda);
  g_free (page);
}

LycheeCudaType
lychee_cuda_mirror_get_type (LycheeCache *cache)
{
  return lychee_cache_get_form (cache) == LYCHEE_ROW_F16 ? LYCHEE_CUDA_F16 : LYCHEE_CUDA_Q8_0;
}

static gsize
get_page_size (LycheeCache *cache)
{
  return (gsize) lychee_cache_get_n_layers (cache) * lychee_cache_get_n_kv_heads (cache) * 2 *
         lychee_cuda_part_size (
             lychee_cuda_mirror_get_type (cache), lychee_cache_get_head_dim (cache));
}

/* Rows of q8_0 from @first on: on the device, values and scales lie apart. */
static void
upload_blocks (
    Upload *upload, guint dim, guint8 *to, const guint16 *from, guint first, guint n_rows)
{
  guint n_blocks = dim / LYCHEE_Q8_VALUES, n_scales = lychee_cuda_scales (dim);
  guint8 *values = g_malloc ((gsize) n_rows * (dim + n_scales * sizeof (guint16)));
  guint16 *scales = (guint16 *) (gpointer) (values + (gsize) n_rows * dim);

  g_ptr_array_add (upload->made, values);
  for (guint row = 0; row < n_rows; row++)
    for (guint i = 0; i < n_scales; i++) {
      scales[row * n_scales + i] = i < n_blocks ? *from : 0;
      if (i >= n_blocks)
        continue;
      memcpy (values + (gsize) row * dim + i * LYCHEE_Q8_VALUES, from + 1, LYCHEE_Q8_VALUES);
      from += LYCHEE_Q8_UNITS;
    }
  upload_add (upload, to + (gsize) first * dim, values, (gsize) n_rows * dim);
  upload_add (upload,
      to + LYCHEE_CACHE_PAGE_TOKENS * (gsize) dim + (gsize) first * n_scales * sizeof *scales,
      scales, (gsize) n_rows * n_scales * sizeof *scales);
}

/* Rows first .. end - 1 of a page. What local layers let go is not there, and not read. */
static void
upload_rows (Upload *upload, LycheeCache *cache, guint at, guint8 *to, guint first, guint end)
{
  LycheeRowForm form = lychee_cache_get_form (cache);
  guint dim = lychee_cache_get_head_dim (cache), n_layers = lychee_cache_get_n_layers (cache);
  guint n_parts = lychee_cache_get_n_kv_heads (cache) * 2;
  gsize part = lychee_cuda_part_size (lychee_cuda_mirror_get_type (cache), dim),
        row = lychee_row_size (form, dim);

  for (guint layer = 0; layer < n_layers; layer++, to += n_parts * part) {
    const guint16 *from = lychee_cache_get_part (cache, at, layer);

    if (!from)
      continue;
    if (form == LYCHEE_ROW_F16 && first == 0 && end == LYCHEE_CACHE_PAGE_TOKENS) {
      upload_add (upload, to, from, n_parts * part);
      continue;
    }
    from += first * row;
    for (guint i = 0; i < n_parts; i++, from += LYCHEE_CACHE_PAGE_TOKENS * row)
      if (form == LYCHEE_ROW_F16)
        upload_add (upload, to + i * part + first * row * sizeof *from, from,
            (end - first) * row * sizeof *from);
      else
        upload_blocks (upload, dim, to + i * part, from, first, end - first);
  }
}

static gboolean
mirror_page (LycheeCuda *cuda, LycheeCache *cache, guint at, guint n_rows, Upload *upload,
    gpointer *memory, GError **error)
{
  LycheePeer *peer = lychee_cache_get_peer (cache, at, cuda);
  gsize size = get_page_size (cache);
  DevicePage *page;

  *memory = NULL;
  if (!peer)
    return TRUE;
  if (!peer->data) {
    gpointer fresh = lychee_cuda_alloc_page (cuda, size, error);

    if (!fresh)
      return FALSE;
    page = g_new (DevicePage, 1);
    *page = (DevicePage){ lychee_cuda_ref (cuda), size, fresh };
    peer->free = device_page_free;
    peer->data = page;
    peer->rows = 0;
  }
  page = peer->data;
  *memory = page->memory;
  if (peer->rows >= n_rows)
    return TRUE;
  upload_rows (upload, cache, at, page->memory, peer->rows, n_rows);
  return TRUE;
}

gboolean
lychee_cuda_mirror_pages (LycheeCuda *cuda, LycheeCudaWorker *worker, LycheeCache *cache, guint n,
    GPtrArray *pages, GError **error)
{
  guint length = lychee_cache_get_length (cache);
  guint n_pages = (length + n + LYCHEE_CACHE_PAGE_TOKENS - 1) >> LYCHEE_CACHE_PAGE_SHIFT;
  gboolean ok = TRUE;
  Upload upload;

  G_STATIC_ASSERT (LYCHEE_CUDA_PAGE_TOKENS == LYCHEE_CACHE_PAGE_TOKENS);
  G_STATIC_ASSERT (LYCHEE_CUDA_BLOCK_UNITS == LYCHEE_Q8_UNITS);
  upload_init (&upload);
  g_ptr_array_set_size (pages, n_pages);
  /* Also while they are copied: another fork that shares a page must not take it to be there. */
  g_mutex_lock (&cuda->peers_lock);
  for (guint i = 0; ok && i < n_pages; i++) {
    guint begin = i << LYCHEE_CACHE_PAGE_SHIFT;

    ok = mirror_page (cuda, cache, i,
        length <= begin ? 0 : MIN (length - begin, LYCHEE_CACHE_PAGE_TOKENS), &upload,
        &pages->pdata[i], error);
    if (ok && upload.total > MOST_UPLOADED)
      ok = upload_run (&upload, cuda, worker, error);
  }
  ok = ok && upload_run (&upload, cuda, worker, error);
  for (guint i = 0; ok && i < n_pages; i++) {
    guint begin = i << LYCHEE_CACHE_PAGE_SHIFT;
    LycheePeer *peer = lychee_cache_get_peer (cache, i, cuda);

    if (peer && length > begin)
      peer->rows = MIN (length - begin, LYCHEE_CACHE_PAGE_TOKENS);
  }
  g_mutex_unlock (&cuda->peers_lock);
  upload_clear (&upload);
  return ok;
}

void
lychee_cuda_mirror_store (
    LycheeCuda *cuda, LycheeCache *cache, const guint16 *rows, guint n, guint at, guint n_rows)
{
  guint first = lychee_cache_get_length (cache), n_layers = lychee_cache_get_n_layers (cache);
  guint n_kv_heads = lychee_cache_get_n_kv_heads (cache);
  gsize size = lychee_row_size (lychee_cache_get_form (cache), lychee_cache_get_head_dim (cache));

  for (guint layer = 0; layer < n_layers; layer++)
    for (guint value = 0; value < 2; value++)
      for (guint head = 0; head < n_kv_heads; head++, rows += n_rows * size) {
        LycheeRows own;

        lychee_cache_get_rows (cache, layer, head, &own);
        for (guint t = 0; t < n; t++)
          memcpy (
              lychee_cache_get_writable (cache, layer, head, first + t) + value * own.value_offset,
              rows + (at + t) * size, size * sizeof *rows);
      }
  g_mutex_lock (&cuda->peers_lock);
  for (guint row = first; row < first + n; row++) {
    LycheePeer *peer = lychee_cache_get_peer (cache, row >> LYCHEE_CACHE_PAGE_SHIFT, cuda);

    peer->rows = (row & (LYCHEE_CACHE_PAGE_TOKENS - 1)) + 1;
  }
  g_mutex_unlock (&cuda->peers_lock);
}

/* The index */

/* A coarse node, or a unit of chunks, on the device; under the device's lock. */
typedef struct {
  gpointer node; /* a reference: while there is one, its address stays its own */
  void (*node_unref) (gpointer node);
  guint refs;
  gsize size;
  gpointer memory;
} Record;

static void
record_unref (LycheeCuda *cuda, Record *record)
{
  if (--record->refs > 0)
    return;
  g_hash_table_remove (cuda->records, record->node);
  lychee_cuda_free_record (cuda, record->size, record->memory);
  record->node_unref (record->node);
  g_free (record);
}

/* What the device has of one index: the records of its nodes, in the order of the tree. */
typedef struct {
  guint64 version;
  gboolean known;
  GPtrArray *records;
  gpointer list; /* on the device: their addresses */
  gsize list_size;
} Image;

typedef struct {
  LycheeCuda *cuda;
  guint n;
  Image *images; /* [layers x KV heads] */
} Images;

static void
images_free (gpointer data)
{
  Images *images = data;
  LycheeCuda *cuda = images->cuda;

  g_mutex_lock (&cuda->lock);
  for (guint i = 0; i < images->n; i++) {
    Image *image = &images->images[i];

    for (guint j = 0; image->records && j < image->records->len; j++)
      record_unref (cuda, image->records->pdata[j]);
    g_clear_pointer (&image->records, g_ptr_array_unref);
    if (image->list)
      lychee_cuda_free_record (cuda, image->list_size, image->list);
  }
  g_mutex_unlock (&cuda->lock);
  g_free (images->images);
  lychee_cuda_unref (cuda);
  g_free (images);
}

static Images *
get_images (LycheeCuda *cuda, LycheeCache *cache)
{
  g_autofree char *key = g_strdup_printf ("lychee-cuda-index-%u", cuda->ordinal);
  Images *images = g_object_get_data (G_OBJECT (cache), key);

  if (images)
    return images;
  images = g_new0 (Images, 1);
  images->cuda = lychee_cuda_ref (cuda);
  images->n = lychee_cache_get_n_layers (cache) * lychee_cache_get_n_kv_heads (cache);
  images->images = g_new0 (Image, images->n);
  g_object_set_data_full (G_OBJECT (cache), key, images, images_free);
  return images;
}

static gsize
record_size (const LycheeNode *node, guint dim)
{
  return sizeof (LycheeCudaNode) + 2 * dim + node->n_leaves * (sizeof (LycheeCudaLeaf) + dim / 2) +
         node->n_rows * sizeof (guint32);
}

/* Writes a record as lychee-cuda.h has it. */
static void
pack_record (const LycheeIndex *index, const LycheeBranch *branch, guint child, guint8 *to)
{
  guint dim = index->params.head_dim, row = 0;
  const LycheeNode *node = branch->child[child];
  const guint8 *counts = lychee_node_get_counts (node), *ids = lychee_node_get_ids (node, dim);
  LycheeCudaNode head = {
    .scale = branch->scale[child],
    .log_count = branch->log_count[child],
    .value_scale = branch->value_scale[child],
    .n_rows = node->n_rows,
    .n_leaves = node->n_leaves,
  };

  memcpy (to, &head, sizeof head);
  to += sizeof head;
  memcpy (to, branch->code + (gsize) child * dim, dim);
  memcpy (to + dim, branch->value_code + (gsize) child * dim, dim);
  to += 2 * dim;
  for (guint i = 0; i < node->n_leaves; i++) {
    LycheeCudaLeaf leaf = { .spread = lychee_spreads[lychee_node_get_spreads (node)[i]],
      .count = counts[i],
      .first = (guint16) row };

    index->kernels->f16_to_f32 (lychee_node_get_scales (node) + i, &leaf.scale, 1);
    memcpy (to, &leaf, sizeof leaf);
    to += sizeof leaf;
    row += counts[i];
  }
  memcpy (to, lychee_node_get_codes (node), (gsize) node->n_leaves * dim / 2);
  to += (gsize) node->n_leaves * dim / 2;
  for (guint i = 0; i < node->n_rows; i++, to += sizeof (guint32)) {
    guint32 id = lychee_node_id (ids, node->id_bytes, i);

    memcpy (to, &id, sizeof id);
  }
}

static gsize
unit_size (const LycheeChunkBlock *block, guint dim)
{
  return sizeof (LycheeCudaUnit) + 2 * dim +
         block->n_clusters * (sizeof (LycheeCudaCluster) + dim / 2) +
         block->n_items * sizeof (LycheeCudaItem);
}

/* The same for a unit of an index with granularity chunk. */
static void
pack_unit (const LycheeIndex *index, guint at, guint8 *to)
{
  const LycheeChunkIndex *chunks = index->chunks;
  const LycheeChunkBlock *block = chunks->block[at];
  guint dim = index->params.head_dim, n = block->n_clusters, first_item = 0;
  const guint16 *halves = (const guint16 *) (gconstpointer) block->data;
  const guint8 *counts = block->data + 4 * n, *codes = block->data + 5 * n;
  const guint8 *items = codes + (gsize) n * dim / 2;
  LycheeCudaUnit unit = {
    .scale = chunks->scale[at],
    .radius = chunks->radius[at],
    .base_scale = chunks->base_scale[at],
    .n_clusters = n,
    .n_items = block->n_items,
  };
  guint8 *to_items;

  memcpy (to, &unit, sizeof unit);
  to += sizeof unit;
  memcpy (to, chunks->code + (gsize) at * dim, dim);
  memcpy (to + dim, chunks->base + (gsize) at * dim, dim);
  to += 2 * dim;
  to_items = to + n * (sizeof (LycheeCudaCluster) + dim / 2);
  for (guint i = 0; i < n; i++, to += sizeof (LycheeCudaCluster)) {
    LycheeCudaCluster cluster = { .n_items = counts[i], .first_item = (guint16) first_item };

    index->kernels->f16_to_f32 (halves + i, &cluster.scale, 1);
    index->kernels->f16_to_f32 (halves + n + i, &cluster.radius, 1);
    for (guint j = 0; j < counts[i]; j++, items += block->id_bytes + 1) {
      LycheeCudaItem item = { lychee_node_id (items, block->id_bytes, 0), items[block->id_bytes] };

      memcpy (to_items, &item, sizeof item);
      to_items += sizeof item;
      cluster.n_rows += item.n_rows;
    }
    first_item += counts[i];
    memcpy (to, &cluster, sizeof cluster);
  }
  memcpy (to, codes, (gsize) n * dim / 2);
}

typedef struct {
  LycheeCuda *cuda;
  const LycheeIndex *index;
  const GPtrArray *old; /* (nullable) of Record */
  guint at;             /* in them: nodes mostly stay where they were */
  GPtrArray *records;
  GPtrArray *fresh;  /* of Record */
  GPtrArray *packed; /* what is to be copied for these */
} Walk;

/* Lists the record of @node, if there is one. With the device's lock. */
static gboolean
walk_known (Walk *w, gconstpointer node)
{
  Record *record = NULL;

  for (guint ahead = 0; w->old && ahead < 3 && w->at + ahead < w->old->len && !record; ahead++)
    if (((Record *) w->old->pdata[w->at + ahead])->node == node) {
      record = w->old->pdata[w->at + ahead];
      w->at += ahead + 1;
    }
  if (!record)
    record = g_hash_table_lookup (w->cuda->records, node);
  if (!record)
    return FALSE;
  record->refs++;
  g_ptr_array_add (w->records, record);
  return TRUE;
}

/* Makes the record of @node, whose reference it takes; the caller fills what is returned (transfer
 * none). (nullable) */
static guint8 *
walk_fresh (Walk *w, gpointer node, void (*node_unref) (gpointer node), gsize size, GError **error)
{
  Record *record;
  gpointer memory = NULL;

  if (size <= LYCHEE_CUDA_MAX_RECORD)
    memory = lychee_cuda_alloc_record (w->cuda, size, error);
  else
    g_set_error_literal (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNSUPPORTED,
        "The index is larger than the CUDA backend can hold: set backend to cpu");
  if (!memory) {
    node_unref (node);
    return NULL;
  }
  record = g_new (Record, 1);
  *record = (Record){ node, node_unref, 1, size, memory };
  g_hash_table_insert (w->cuda->records, node, record);
  g_ptr_array_add (w->records, record);
  g_ptr_array_add (w->fresh, record);
  g_ptr_array_add (w->packed, g_malloc (size));
  return w->packed->pdata[w->packed->len - 1];
}

static void
unref_node (gpointer node)
{
  lychee_node_unref (node);
}

static void
unref_block (gpointer block)
{
  lychee_chunk_block_unref (block);
}

static gboolean
walk_branch (Walk *w, const LycheeBranch *branch, GError **error)
{
  guint dim = w->index->params.head_dim;
  guint8 *packed;

  for (guint i = 0; branch && i < branch->n; i++) {
    LycheeNode *node = branch->child[i];

    if (branch->level > 1) {
      if (!walk_branch (w, branch->child[i], error))
        return FALSE;
      continue;
    }
    if (walk_known (w, node))
      continue;
    packed = walk_fresh (w, lychee_node_ref (node), unref_node, record_size (node, dim), error);
    if (!packed)
      return FALSE;
    pack_record (w->index, branch, i, packed);
  }
  return TRUE;
}

static gboolean
walk_units (Walk *w, GError **error)
{
  const LycheeChunkIndex *chunks = w->index->chunks;
  guint8 *packed;

  for (guint i = 0; i < chunks->n; i++) {
    LycheeChunkBlock *block = chunks->block[i];

    if (walk_known (w, block))
      continue;
    packed = walk_fresh (w, lychee_chunk_block_ref (block), unref_block,
        unit_size (block, w->index->params.head_dim), error);
    if (!packed)
      return FALSE;
    pack_unit (w->index, i, packed);
  }
  return TRUE;
}

/* What a search finds an index by: the addresses of its records, and of chunks where each one's
 * clusters begin. (transfer full) */
static gpointer
make_list (const LycheeIndex *index, const GPtrArray *records, gsize *size)
{
  const LycheeChunkIndex *chunks = index->chunks;
  gpointer *list;
  guint32 *first;

  *size = records->len * sizeof *list;
  if (chunks)
    *size += (chunks->n + 1) * sizeof *first;
  list = g_malloc (*size);
  for (guint i = 0; i < records->len; i++)
    list[i] = ((Record *) records->pdata[i])->memory;
  if (!chunks)
    return list;
  first = (guint32 *) (list + records->len);
  first[0] = 0;
  for (guint i = 0; i < chunks->n; i++)
    first[i + 1] = first[i] + chunks->block[i]->n_clusters;
  return list;
}

/* With the device's lock: lists an index's records anew, and what of them is to be copied. */
static gboolean
renew_image (LycheeCuda *cuda, const LycheeIndex *index, Image *image, GPtrArray *packed,
    Upload *upload, GError **error)
{
  g_autoptr (GPtrArray) records = g_ptr_array_new ();
  g_autoptr (GPtrArray) fresh = g_ptr_array_new ();
  guint before = packed->len;
  Walk walk = { cuda, index, image->records, 0, records, fresh, packed };
  gpointer list;
  gsize size;

  if (!(index->chunks ? walk_units (&walk, error) : walk_branch (&walk, index->root, error))) {
    for (guint i = 0; i < records->len; i++)
      record_unref (cuda, records->pdata[i]);
    return FALSE;
  }
  for (guint i = 0; i < fresh->len; i++) {
    Record *record = fresh->pdata[i];

    upload_add (upload, record->memory, packed->pdata[before + i], record->size);
  }
  for (guint i = 0; image->records && i < image->records->len; i++)
    record_unref (cuda, image->records->pdata[i]);
  g_clear_pointer (&image->records, g_ptr_array_unref);
  image->records = g_steal_pointer (&records);
  list = make_list (index, image->records, &size);
  g_ptr_array_add (packed, list);
  if (size > image->list_size) {
    gsize grown = MIN (MAX (size + size / 2, 512), LYCHEE_CUDA_MAX_RECORD);
    gpointer memory = size <= grown ? lychee_cuda_alloc_record (cuda, grown, error) : NULL;

    if (!memory) {
      if (size > grown)
        g_set_error (error, LYCHEE_BACKEND_ERROR, LYCHEE_BACKEND_ERROR_UNSUPPORTED,
            "The index has %u nodes: more than the CUDA backend can list", image->records->len);
      image->known = FALSE;
      return FALSE;
    }
    if (image->list)
      lychee_cuda_free_record (cuda, image->list_size, image->list);
    image->list = memory;
    image->list_size = grown;
  }
  if (size > 0)
    upload_add (upload, image->list, list, size);
  image->version = index->version;
  image->known = TRUE;
  return TRUE;
}

gboolean
lychee_cuda_mirror_find_indexes (LycheeCuda *cuda, LycheeCache *cache, LycheeCudaHead *heads)
{
  guint n_kv_heads = lychee_cache_get_n_kv_heads (cache);
  guint n = lychee_cache_get_n_layers (cache) * n_kv_heads;
  const Image *images = get_images (cuda, cache)->images;
  gboolean all = TRUE;

  g_mutex_lock (&cuda->lock);
  for (guint i = 0; all && i < n; i++) {
    const LycheeIndex *index = lychee_cache_get_index (cache, i / n_kv_heads, i % n_kv_heads);

    heads[i] = (LycheeCudaHead){ 0 };
    if (!index)
      continue;
    all = images[i].known && images[i].version == index->version && (index->root || index->chunks);
    if (all)
      heads[i] =
          (LycheeCudaHead){ images[i].list, images[i].records->len, index->begin, index->end, 0 };
  }
  g_mutex_unlock (&cuda->lock);
  return all;
}

gboolean
lychee_cuda_mirror_index (LycheeCuda *cuda, LycheeCudaWorker *worker, LycheeCache *cache,
    guint layer, LycheeCudaHead *heads, GError **error)
{
  guint n_kv_heads = lychee_cache_get_n_kv_heads (cache);
  Image *images = get_images (cuda, cache)->images + (gsize) layer * n_kv_heads;
  g_autoptr (GPtrArray) packed = g_ptr_array_new_with_free_func (g_free);
  gboolean ok = TRUE;
  Upload upload;

  upload_init (&upload);
  g_mutex_lock (&cuda->lock);
  for (guint head = 0; ok && head < n_kv_heads; head++) {
    const LycheeIndex *index = lychee_cache_get_index (cache, layer, head);

    if (!images[head].known || images[head].version != index->version)
      ok = renew_image (cuda, index, &images[head], packed, &upload, error);
    heads[head] = (LycheeCudaHead){
      .nodes = images[head].list,
      .n_nodes = ok ? images[head].records->len : 0,
      .begin = index->begin,
      .end = index->end,
    };
  }
  /* With the lock: another fork that shares a node must not take it to be there before it is. */
  if (!upload_run (&upload, cuda, worker, ok ? error : NULL) || !ok) {
    ok = FALSE;
    for (guint head = 0; head < n_kv_heads; head++)
      images[head].known = FALSE;
  }
  g_mutex_unlock (&cuda->lock);
  upload_clear (&upload);
  return ok;
}
