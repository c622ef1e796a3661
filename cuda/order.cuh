/* order.cuh -- a list of numbers put in order, equal ones in the order in which they came: what
** lets additions at the same place follow each other always alike.
**
** A short list is ranked by comparing each number with all others. A longer one is sorted by 4 bits
** at a time from the lowest on, each pass a count per block, a scan over all counts and a move
** (Satish, Harris and Garland, "Designing Efficient Sorting Algorithms for Manycore GPUs", 2009).
*/
#ifndef MOTH_CUDA_ORDER_CUH
#define MOTH_CUDA_ORDER_CUH

#include "numbers.cuh"

/* Keys in ascending order, and which place of the list each came from. Owned by the caller. */
struct ordered {
  moth_tensor *key, *from;
};

static inline void ordered_free(ordered *o) {
  moth_tensor_release(o->key);
  moth_tensor_release(o->from);
  *o = ordered{NULL, NULL};
}

/* A list of n elements where `like` lies, with values left to chance. Owned, NULL: error set. */
static inline moth_tensor *list_new(const moth_tensor *like, int64_t n, int dtype = MOTH_I64) {
  moth_layout l;
  memset(&l, 0, sizeof l);
  l.ndim = 1;
  l.dtype = (uint8_t)dtype;
  l.device = like->l.device;
  l.shape[0] = n;
  return moth_tensor_new(like->ctx, &l);
}

enum { ORDER_EACH = 8, ORDER_TILE = BLOCK * ORDER_EACH, ORDER_BINS = 16, ORDER_SHORT = 4096 };

/* at[i] := the sum of those before it, at[n] := the sum of all; by one block. */
static __global__ void scan_counts(int64_t n, int64_t *at) {
  __shared__ int64_t warp[BLOCK / WARP];
  const int lane = threadIdx.x % WARP, w = threadIdx.x / WARP;
  int64_t before = 0;
  for (int64_t first = 0; first < n; first += BLOCK) {
    const int64_t i = first + threadIdx.x, own = i < n ? at[i] : 0;
    int64_t sum = own;
    for (int by = 1; by < WARP; by *= 2) {
      const int64_t left = __shfl_up_sync(0xffffffffu, sum, by);
      if (lane >= by) sum += left;
    }
    if (lane == WARP - 1) warp[w] = sum;
    __syncthreads();
    int64_t all = 0;
    for (int k = 0; k < BLOCK / WARP; k++) {
      if (k < w) sum += warp[k];
      all += warp[k];
    }
    if (i < n) at[i] = before + sum - own;
    before += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) at[n] = before;
}

static __global__ void order_short(int64_t n, const int64_t *in, int64_t *key, int64_t *from) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t own = in[i];
  int64_t rank = 0;
  for (int64_t j = 0; j < n; j++) rank += in[j] < own || (in[j] == own && j < i);
  key[rank] = own;
  from[rank] = i;
}

/* Counts the digits of each thread's run of a tile, bin by bin, and where each thread's begin. */
static __device__ inline void tile_counts(int64_t n, int shift, const int64_t *key,
                                          uint16_t *count, int *total) {
  const int64_t first = (int64_t)blockIdx.x * ORDER_TILE + threadIdx.x * ORDER_EACH;
  for (int b = 0; b < ORDER_BINS; b++) count[b * BLOCK + threadIdx.x] = 0;
  for (int64_t i = first; i < first + ORDER_EACH && i < n; i++)
    count[(key[i] >> shift & (ORDER_BINS - 1)) * BLOCK + threadIdx.x]++;
  __syncthreads();
  for (int b = threadIdx.x / WARP; b < ORDER_BINS; b += BLOCK / WARP) { /* a warp for each bin */
    const int lane = threadIdx.x % WARP;
    int before = 0;
    for (int k = 0; k < BLOCK; k += WARP) {
      const int own = count[b * BLOCK + k + lane];
      int sum = own;
      for (int by = 1; by < WARP; by *= 2) {
        const int left = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum += left;
      }
      count[b * BLOCK + k + lane] = (uint16_t)(before + sum - own);
      before += __shfl_sync(0xffffffffu, sum, WARP - 1);
    }
    if (lane == 0) total[b] = before;
  }
  __syncthreads();
}

static __global__ void order_count(int64_t n, int shift, const int64_t *key, int64_t *starts) {
  __shared__ uint16_t count[ORDER_BINS * BLOCK];
  __shared__ int total[ORDER_BINS];
  tile_counts(n, shift, key, count, total);
  if (threadIdx.x < ORDER_BINS)
    starts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = total[threadIdx.x];
}

/* from: NULL in the first pass, when each stands at its own place. */
static __global__ void order_move(int64_t n, int shift, const int64_t *key, const int64_t *from,
                                  const int64_t *starts, int64_t *to_key, int64_t *to_from) {
  __shared__ uint16_t count[ORDER_BINS * BLOCK];
  __shared__ int total[ORDER_BINS];
  tile_counts(n, shift, key, count, total);
  const int64_t first = (int64_t)blockIdx.x * ORDER_TILE + threadIdx.x * ORDER_EACH;
  for (int64_t i = first; i < first + ORDER_EACH && i < n; i++) {
    const int b = (int)(key[i] >> shift & (ORDER_BINS - 1));
    const int64_t at = starts[(int64_t)b * gridDim.x + blockIdx.x] +
                       count[b * BLOCK + threadIdx.x]++;
    to_key[at] = key[i];
    to_from[at] = from ? from[i] : i;
  }
}

/* One pass after another between two pairs of lists; o has the result. */
static inline int order_long(moth_ctx *ctx, const moth_tensor *keys, int64_t range, ordered *o) {
  const int64_t n = keys->l.numel, tiles = (n + ORDER_TILE - 1) / ORDER_TILE;
  const dim3 grid((unsigned)tiles);
  ordered spare = {list_new(keys, n), list_new(keys, n)};
  moth_tensor *starts = list_new(keys, tiles * ORDER_BINS + 1);
  const int64_t *in = data<int64_t>(keys), *from = NULL;
  int status = spare.key && spare.from && starts ? MOTH_OK : moth_status(ctx);
  for (int shift = 0; !status && (shift == 0 || (shift < 63 && range >> shift > 0)); shift += 4) {
    int64_t *count = data<int64_t>(starts);
    status = launch(ctx, keys, order_count, grid, BLOCK, 0, n, shift, in, count);
    if (!status) status = launch(ctx, keys, scan_counts, 1, BLOCK, 0, tiles * ORDER_BINS, count);
    if (!status)
      status = launch(ctx, keys, order_move, grid, BLOCK, 0, n, shift, in, from,
                      (const int64_t *)count, data<int64_t>(spare.key),
                      data<int64_t>(spare.from));
    const ordered done = spare;
    spare = *o;
    *o = done;
    in = data<int64_t>(o->key);
    from = data<int64_t>(o->from);
  }
  moth_tensor_release(starts);
  ordered_free(&spare);
  return status;
}

/* o := the numbers of a packed list, all in [0, range], in order. Must be freed, even after an
** error. */
static inline int order_list(moth_ctx *ctx, const moth_tensor *keys, int64_t range, ordered *o) {
  const int64_t n = keys->l.numel;
  *o = ordered{list_new(keys, n), list_new(keys, n)};
  if (!o->key || !o->from) return moth_status(ctx);
  if (n == 0) return MOTH_OK;
  if (n > ORDER_SHORT) return order_long(ctx, keys, range, o);
  return launch(ctx, keys, order_short, blocks_for(n), BLOCK, 0, n,
                (const int64_t *)data<int64_t>(keys), data<int64_t>(o->key),
                data<int64_t>(o->from));
}

#endif
