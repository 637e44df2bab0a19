/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A worker's memory, and what goes to the device and comes from it beside passes. */

#include "lychee-cuda-worker.h"

#include <string.h>

#include <vector>

#define BLAS_WORKSPACE ((size_t) 32 << 20)

int
lychee_cuda_need (
    LycheeCudaWorker *w, LycheeCudaBuffer *buffer, size_t size, bool host, LycheeCudaError *error)
{
  int code;

  if (size <= buffer->size)
    return 0;
  if (buffer->size > 0)
    size += size / 2;
  std::lock_guard<std::mutex> guard (w->model->device->whole);
  if (buffer->data)
    host ? cudaFreeHost (buffer->data) : cudaFree (buffer->data);
  buffer->data = nullptr;
  buffer->size = 0;
  w->generation++; /* graphs have the address */
  code = (int) (host ? cudaMallocHost (&buffer->data, size) : cudaMalloc (&buffer->data, size));
  if (code)
    return lychee_cuda_check (code, "no memory for a pass on the CUDA device", error);
  buffer->size = size;
  buffer->host = host;
  return 0;
}

static std::vector<LycheeCudaBuffer *>
all_buffers (LycheeCudaWorker *w)
{
  return { &w->control, &w->x, &w->normed, &w->qkv, &w->q, &w->attended, &w->gate_up, &w->activated,
    &w->y, &w->turns[0], &w->turns[1], &w->turns[2], &w->turns[3], &w->low, &w->high, &w->aim,
    &w->rows, &w->logits, &w->counters, &w->m, &w->l, &w->o, &w->workspace, &w->selection,
    &w->selected, &w->z, &w->weight, &w->most, &w->count, &w->opened, &w->leaf_weight,
    &w->leaf_rank, &w->leaf_node, &w->leaf_count, &w->leaf_read, &w->density, &w->audit,
    &w->audit_mass, &w->control_host, &w->heads_host, &w->rows_host, &w->logits_host,
    &w->counters_host, &w->audit_host, &w->upload_host, &w->upload, &w->pieces, &w->table,
    &w->penalised, &w->tile_max, &w->masses, &w->counts, &w->members, &w->chosen, &w->chosen_host,
    &w->bins, &w->sums, &w->log_mass, &w->sums_host, &w->upkeep, &w->placed, &w->upkeep_host,
    &w->placed_host };
}

int
lychee_cuda_need_tokens (LycheeCudaWorker *w, int n_tokens, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t n = (size_t) n_tokens, n_q = (size_t) h.n_heads * h.head_dim;
  size_t n_kv = (size_t) h.n_kv_heads * h.head_dim, embd = (size_t) h.n_embd, ff = (size_t) h.n_ff;
  size_t rows = (size_t) h.n_layers * 2 * n * n_kv * 2;
  size_t counters = LYCHEE_CUDA_MAX_SEQUENCES * sizeof (LycheeCudaCounters);

  return lychee_cuda_need (w, &w->x, n * embd * 4, false, error) ||
         lychee_cuda_need (w, &w->normed, n * embd * 2, false, error) ||
         lychee_cuda_need (w, &w->qkv, n * (n_q + 2 * n_kv) * 4, false, error) ||
         lychee_cuda_need (w, &w->q, n * n_q * 4, false, error) ||
         lychee_cuda_need (w, &w->attended, n * n_q * 2, false, error) ||
         lychee_cuda_need (w, &w->gate_up, n * 2 * ff * 4, false, error) ||
         lychee_cuda_need (w, &w->activated, n * ff * 2, false, error) ||
         lychee_cuda_need (w, &w->y, n * embd * 4, false, error) ||
         lychee_cuda_need (w, &w->turns[0], n * (size_t) h.n_rot * 4, false, error) ||
         lychee_cuda_need (w, &w->turns[1], n * (size_t) h.n_rot * 4, false, error) ||
         lychee_cuda_need (w, &w->rows, rows, false, error) ||
         lychee_cuda_need (w, &w->rows_host, rows, true, error) ||
         lychee_cuda_need (w, &w->counters, counters, false, error) ||
         lychee_cuda_need (w, &w->counters_host, counters, true, error);
}

void
lychee_cuda_worker_free (LycheeCudaWorker *w)
{
  lychee_cuda_use (w->model->device);
  if (w->stream)
    cudaStreamSynchronize (w->stream);
  std::lock_guard<std::mutex> guard (w->model->device->whole);
  for (LycheeCudaGraph &graph : w->graphs)
    if (graph.exec)
      cudaGraphExecDestroy (graph.exec);
  if (w->blas)
    cublasDestroy (w->blas);
  for (LycheeCudaBuffer *buffer : all_buffers (w))
    if (buffer->data)
      buffer->host ? cudaFreeHost (buffer->data) : cudaFree (buffer->data);
  if (w->stream)
    cudaStreamDestroy (w->stream);
  if (w->uploads)
    cudaStreamDestroy (w->uploads);
  delete w;
}

int
lychee_cuda_worker_new (LycheeCudaModel *model, const unsigned long long *weights,
    LycheeCudaWorker **worker, LycheeCudaError *error)
{
  size_t table_size = LYCHEE_TABLE_SIZE * sizeof *weights;
  LycheeCudaWorker *w = new LycheeCudaWorker ();

  *worker = nullptr;
  w->model = model;
  lychee_cuda_use (model->device);
  /* Nothing here waits for the whole device, which nobody may while another worker captures. */
  if (lychee_cuda_check ((int) cudaStreamCreateWithFlags (&w->stream, cudaStreamNonBlocking),
          "no CUDA stream", error) ||
      lychee_cuda_check ((int) cudaStreamCreateWithFlags (&w->uploads, cudaStreamNonBlocking),
          "no CUDA stream", error) ||
      lychee_cuda_need (w, &w->table, table_size, false, error) ||
      lychee_cuda_check ((int) cudaMemcpyAsync (
                             w->table.data, weights, table_size, cudaMemcpyHostToDevice, w->stream),
          "the CUDA device failed in copying", error) ||
      lychee_cuda_check (/* the caller's memory is its own again */
          (int) cudaStreamSynchronize (w->stream), "the CUDA device failed in copying", error)) {
    lychee_cuda_worker_free (w);
    return error->status;
  }
  *worker = w;
  return 0;
}

int
lychee_cuda_need_blas (LycheeCudaWorker *w, LycheeCudaError *error)
{
  if (w->blas)
    return 0;
  if (lychee_cuda_need (w, &w->workspace, BLAS_WORKSPACE, false, error))
    return error->status;
  std::lock_guard<std::mutex> guard (w->model->device->whole);
  if (cublasCreate (&w->blas) != CUBLAS_STATUS_SUCCESS)
    w->blas = nullptr;
  /* In this order: setting the stream takes the workspace away. */
  else if (cublasSetStream (w->blas, w->stream) == CUBLAS_STATUS_SUCCESS &&
           cublasSetWorkspace (w->blas, w->workspace.data, BLAS_WORKSPACE) == CUBLAS_STATUS_SUCCESS)
    return 0;
  if (w->blas)
    cublasDestroy (w->blas);
  w->blas = nullptr;
  return lychee_cuda_fail (error, LYCHEE_CUDA_FAILED, "cuBLAS cannot be used on this device");
}

int
lychee_cuda_worker_upload (LycheeCudaWorker *w, int n, void *const *to, const void *const *from,
    const size_t *sizes, LycheeCudaError *error)
{
  size_t total = 0, at = 0, pieces_size = (size_t) n * sizeof (LycheeCudaPiece);
  LycheeCudaPiece *pieces;
  char *host;

  if (n == 0)
    return 0;
  lychee_cuda_use (w->model->device);
  for (int i = 0; i < n; i++)
    total += sizes[i];
  /* Offsets of pieces have 32 bits. */
  if (total > (size_t) 1 << 30 && n > 1)
    return lychee_cuda_worker_upload (w, n / 2, to, from, sizes, error) ||
           lychee_cuda_worker_upload (w, n - n / 2, to + n / 2, from + n / 2, sizes + n / 2, error);
  if (lychee_cuda_need (w, &w->upload_host, total + pieces_size, true, error) ||
      lychee_cuda_need (w, &w->upload, total + pieces_size, false, error))
    return error->status;
  host = lychee_cuda_get<char> (w->upload_host);
  pieces = reinterpret_cast<LycheeCudaPiece *> (host);
  at = pieces_size;
  for (int i = 0; i < n; i++) {
    memcpy (host + at, from[i], sizes[i]);
    pieces[i] = LycheeCudaPiece{ to[i], (unsigned) at, (unsigned) sizes[i] };
    at += sizes[i];
  }
  LycheeCudaScatter scatter = { n, lychee_cuda_get<LycheeCudaPiece> (w->upload), w->upload.data };
  if (lychee_cuda_check (
          (int) cudaMemcpyAsync (w->upload.data, host, at, cudaMemcpyHostToDevice, w->uploads),
          "the CUDA device failed in copying", error) ||
      lychee_cuda_check (
          lychee_cuda_scatter (&scatter, w->uploads), "the CUDA device failed in copying", error) ||
      lychee_cuda_check (
          (int) cudaStreamSynchronize (w->uploads), "the CUDA device failed in copying", error)) {
    cudaStreamSynchronize (w->uploads); /* what is copied from is used again */
    return error->status;
  }
  return 0;
}

int
lychee_cuda_worker_place (LycheeCudaWorker *w, const LycheeCudaUpkeep *upkeep,
    LycheeCudaPlaces *places, LycheeCudaError *error)
{
  const LycheeCudaHparams &h = w->model->hparams;
  size_t n_indexes = (size_t) h.n_layers * h.n_kv_heads, n = n_indexes * upkeep->n_rows;
  size_t heads_size = n_indexes * sizeof (LycheeCudaHead);
  size_t size = heads_size + (size_t) upkeep->n_pages * sizeof (void *);
  size_t places_size = n * sizeof (LycheeCudaPlace);
  size_t placed_size = places_size + n * ((size_t) h.head_dim + 2) * sizeof (float);
  const char *failed = "the CUDA device failed in upkeep";
  char *device, *host;

  lychee_cuda_use (w->model->device);
  if (lychee_cuda_need (w, &w->upkeep_host, size, true, error) ||
      lychee_cuda_need (w, &w->upkeep, size, false, error) ||
      lychee_cuda_need (w, &w->placed_host, placed_size, true, error) ||
      lychee_cuda_need (w, &w->placed, placed_size, false, error))
    return error->status;
  host = lychee_cuda_get<char> (w->upkeep_host);
  memcpy (host, upkeep->heads, heads_size);
  memcpy (host + heads_size, upkeep->pages, (size_t) upkeep->n_pages * sizeof (void *));
  device = lychee_cuda_get<char> (w->upkeep);
  LycheeCudaAssign assign = { upkeep->type, h.head_dim, (int) n_indexes, upkeep->n_rows,
    upkeep->first, reinterpret_cast<LycheeCudaHead *> (device),
    reinterpret_cast<void **> (device + heads_size), lychee_cuda_get<LycheeCudaPlace> (w->placed),
    reinterpret_cast<float *> (lychee_cuda_get<char> (w->placed) + places_size) };
  int status = lychee_cuda_check (
                   (int) cudaMemcpyAsync (device, host, size, cudaMemcpyHostToDevice, w->stream),
                   failed, error) ||
               lychee_cuda_check (lychee_cuda_assign (&assign, w->stream), failed, error) ||
               lychee_cuda_check (lychee_cuda_leaf_sums (&assign, w->stream), failed, error) ||
               lychee_cuda_check ((int) cudaMemcpyAsync (w->placed_host.data, w->placed.data,
                                      placed_size, cudaMemcpyDeviceToHost, w->stream),
                   failed, error);
  int finished = (int) cudaStreamSynchronize (w->stream);
  if (status || lychee_cuda_check (finished, failed, error))
    return error->status;
  places->places = lychee_cuda_get<LycheeCudaPlace> (w->placed_host);
  places->sums = reinterpret_cast<float *> (lychee_cuda_get<char> (w->placed_host) + places_size);
  return 0;
}

static size_t
count_sums (const LycheeCudaWorker *w)
{
  return (size_t) (w->weights.layer_end - w->weights.layer_begin) * w->model->hparams.n_heads *
         w->weights.n_bins;
}

int
lychee_cuda_worker_set_weights (
    LycheeCudaWorker *w, const LycheeCudaWeights *weights, LycheeCudaError *error)
{
  size_t bins_size = (size_t) weights->n_rows * sizeof *weights->bins, size;
  int code;

  lychee_cuda_use (w->model->device);
  w->weights = *weights;
  w->weights.n_rows = 0; /* until it is there */
  size = count_sums (w) * sizeof (unsigned long long);
  if (lychee_cuda_need (w, &w->bins, bins_size, false, error) ||
      lychee_cuda_need (w, &w->sums, size, false, error) ||
      lychee_cuda_need (w, &w->sums_host, size, true, error))
    return error->status;
  code = (int) cudaMemcpyAsync (
      w->bins.data, weights->bins, bins_size, cudaMemcpyHostToDevice, w->stream);
  if (!code)
    code = (int) cudaMemsetAsync (w->sums.data, 0, size, w->stream);
  /* The caller's memory is its own again, whatever comes. */
  int finished = (int) cudaStreamSynchronize (w->stream);
  if (!code)
    code = finished;
  if (lychee_cuda_check (code, "the CUDA device failed in copying", error))
    return error->status;
  w->weights.n_rows = weights->n_rows;
  return 0;
}

int
lychee_cuda_worker_add_weights (LycheeCudaWorker *w, float *sum, LycheeCudaError *error)
{
  size_t n = count_sums (w);
  const unsigned long long *host = lychee_cuda_get<unsigned long long> (w->sums_host);
  int code;

  lychee_cuda_use (w->model->device);
  code = (int) cudaMemcpyAsync (
      w->sums_host.data, w->sums.data, n * sizeof *host, cudaMemcpyDeviceToHost, w->stream);
  if (!code)
    code = (int) cudaStreamSynchronize (w->stream);
  if (lychee_cuda_check (code, "the CUDA device failed in copying", error))
    return error->status;
  for (size_t i = 0; i < n; i++)
    sum[i] += (float) host[i] / LYCHEE_CUDA_WEIGHT_ONE;
  return 0;
}
