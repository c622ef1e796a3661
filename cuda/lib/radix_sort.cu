/* radix_sort.cu -- stable sorting of integers (radix_sort.cuh). A short list is ranked by comparing
** each number with all others. Longer lists, and rows of keys, use a radix sort of four bits at a
** time, from the lowest on: each pass counts digits by tile, scans all counts, and moves the keys
** (Satish, Harris and Garland, "Designing Efficient Sorting Algorithms for Manycore GPUs", 2009).
*/
#include "radix_sort.cuh"

/* -- rows -- */

static __device__ inline int digit_of(uint64_t key, int shift) {
  return (int)(key >> shift & (RADIX_DIGITS - 1));
}

/* Counts each digit among a thread's elements; then replaces the counts, digit by digit, by the
** sums over the preceding threads. digit(k): the digit of the k-th element, or -1 if there is none.
** total: the counts of the tile. */
template <class F>
static __device__ inline void count_digits(F digit, uint16_t *count, int *total) {
  for (int d = 0; d < RADIX_DIGITS; d++) count[d * BLOCK + threadIdx.x] = 0;
  for (int k = 0; k < RADIX_EACH; k++) {
    const int d = digit(k);
    if (d >= 0) count[d * BLOCK + threadIdx.x]++;
  }
  __syncthreads();
  for (int d = threadIdx.x / WARP; d < RADIX_DIGITS; d += BLOCK / WARP) { /* a warp for each digit
                                                                          */
    const int lane = threadIdx.x % WARP;
    int before = 0;
    for (int k = lane; k < BLOCK; k += WARP) {
      const int mine = count[d * BLOCK + k], sum = scan_lanes(adds<int>(), mine);
      count[d * BLOCK + k] = (uint16_t)(before + sum - mine);
      before += __shfl_sync(0xffffffffu, sum, WARP - 1);
    }
    if (lane == 0) total[d] = before;
  }
  __syncthreads();
}

/* starts: [row][digit][tile] */
static __global__ void digit_counts(int64_t n, int64_t tiles, int shift, const uint64_t *key,
                                    int64_t *starts) {
  __shared__ uint16_t count[RADIX_DIGITS * BLOCK];
  __shared__ int total[RADIX_DIGITS];
  const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int64_t first = row * n + tile * RADIX_TILE + threadIdx.x, end = (row + 1) * n;
  count_digits([=](int k) {
    const int64_t i = first + k * BLOCK;
    return i < end ? digit_of(key[i], shift) : -1;
  }, count, total);
  if (threadIdx.x < RADIX_DIGITS)
    starts[(row * RADIX_DIGITS + threadIdx.x) * tiles + tile] = total[threadIdx.x];
}

/* at[i] := the sum of the preceding counts, at[n] := the sum of all; by one block. A row's counts
** sum to its length, so their offsets begin at the row's start. */
static __global__ void __launch_bounds__(1024) scan_counts(int64_t n, int64_t *at) {
  __shared__ int64_t warps[WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int64_t before = 0;
  for (int64_t first = 0; first < n; first += (int64_t)blockDim.x * RADIX_EACH) {
    const int64_t own = first + (int64_t)threadIdx.x * RADIX_EACH;
    int64_t count[RADIX_EACH], mine = 0, all = 0;
    for (int k = 0; k < RADIX_EACH; k++) mine += count[k] = own + k < n ? at[own + k] : 0;
    int64_t sum = scan_lanes(adds<int64_t>(), mine);
    if (lane == WARP - 1) warps[warp] = sum;
    __syncthreads();
    for (int k = 0; k < (int)blockDim.x / WARP; k++) {
      if (k < warp) sum += warps[k];
      all += warps[k];
    }
    sum += before - mine;
    for (int k = 0; k < RADIX_EACH && own + k < n; sum += count[k++]) at[own + k] = sum;
    before += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) at[n] = before;
}

/* The index of a tile's i-th key in shared memory: no two runs of RADIX_EACH begin in one bank. */
static __device__ inline int apart(int i) { return i + i / RADIX_EACH; }

/* Keys are first sorted within a tile, so that keys with the same digit are written contiguously.
** from: NULL in the first pass, where each key is at its original position. */
template <class From>
static __global__ void move_keys(int64_t n, int64_t tiles, int shift, const uint64_t *key,
                                 const From *from, const int64_t *starts, uint64_t *to_key,
                                 From *to_from) {
  __shared__ uint64_t keys[RADIX_TILE + BLOCK];
  __shared__ uint16_t count[RADIX_DIGITS * BLOCK], place[RADIX_TILE];
  __shared__ int total[RADIX_DIGITS], below[RADIX_DIGITS];
  __shared__ int64_t begin[RADIX_DIGITS];
  const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int64_t first = row * n + tile * RADIX_TILE, left = (row + 1) * n - first;
  const int t = (int)threadIdx.x, all = left < RADIX_TILE ? (int)left : RADIX_TILE;
  for (int i = t; i < all; i += BLOCK) keys[apart(i)] = key[first + i];
  __syncthreads();
  const auto digit = [&](int k) {
    const int i = t * RADIX_EACH + k;
    return i < all ? digit_of(keys[apart(i)], shift) : -1;
  };
  count_digits(digit, count, total);
  if (t < RADIX_DIGITS) {
    int before = 0;
    for (int d = 0; d < t; d++) before += total[d];
    below[t] = before;
    begin[t] = starts[(row * RADIX_DIGITS + t) * tiles + tile] - before;
  }
  __syncthreads();
  for (int k = 0; k < RADIX_EACH; k++) {
    const int d = digit(k);
    if (d >= 0) place[below[d] + count[d * BLOCK + t]++] = (uint16_t)(t * RADIX_EACH + k);
  }
  __syncthreads();
  for (int i = t; i < all; i += BLOCK) {
    const int own = place[i];
    const uint64_t moved = keys[apart(own)];
    const int64_t to = begin[digit_of(moved, shift)] + i;
    to_key[to] = moved;
    to_from[to] = from ? from[first + own] : (From)(first + own - row * n);
  }
}

int scan_list(moth_ctx *ctx, const moth_tensor *like, int64_t n, int64_t *at) {
  return launch(ctx, like, scan_counts, 1, n > 1 << 14 ? 1024 : BLOCK, 0, n, at);
}

template <class From>
int radix_sort(moth_ctx *ctx, const moth_tensor *like, const radix<From> &r, int bits, int *last) {
  const int64_t tiles = radix_tiles(r.n), counts = radix_counts(r.rows, r.n);
  const dim3 grid = grid_for(r.rows * tiles);
  const uint64_t *key = r.key;
  const From *from = NULL;
  int status = MOTH_OK, to = 0;
  for (int shift = 0; !status && (shift == 0 || shift < bits); shift += 4, to = !to) {
    status = launch(ctx, like, digit_counts, grid, BLOCK, 0, r.n, tiles, shift, key, r.starts);
    if (!status) status = scan_list(ctx, like, counts, r.starts);
    if (!status)
      status = launch(ctx, like, move_keys<From>, grid, BLOCK, 0, r.n, tiles, shift, key, from,
                      r.starts, r.keys[to], r.from[to]);
    key = r.keys[to];
    from = r.from[to];
  }
  *last = !to;
  return status;
}

template int radix_sort(moth_ctx *, const moth_tensor *, const radix<uint32_t> &, int, int *);
template int radix_sort(moth_ctx *, const moth_tensor *, const radix<int64_t> &, int, int *);

/* -- lists -- */

enum { ORDER_SHORT = 4096 };

static __global__ void list_short(int64_t n, const int64_t *in, int64_t *key, int64_t *from) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t own = in[i];
  int64_t rank = 0;
  for (int64_t j = 0; j < n; j++) rank += in[j] < own || (in[j] == own && j < i);
  key[rank] = own;
  from[rank] = i;
}

static int list_long(moth_ctx *ctx, const moth_tensor *keys, int64_t range, sorted_list *o) {
  const int64_t n = keys->l.numel;
  sorted_list spare = {list_new(keys, n), list_new(keys, n)};
  moth_tensor *starts = list_new(keys, radix_counts(1, n) + 1);
  int status = spare.key && spare.from && starts ? MOTH_OK : moth_status(ctx);
  int bits = 0, last = 0;
  while (bits < 63 && range >> bits > 0) bits++;
  if (!status) {
    const radix<int64_t> r = {1, n, data<uint64_t>(keys),
                              {data<uint64_t>(o->key), data<uint64_t>(spare.key)},
                              {data<int64_t>(o->from), data<int64_t>(spare.from)},
                              data<int64_t>(starts)};
    status = radix_sort(ctx, keys, r, bits, &last);
  }
  if (last) {
    const sorted_list done = spare;
    spare = *o;
    *o = done;
  }
  moth_tensor_release(starts);
  sorted_list_free(&spare);
  return status;
}

int sort_list(moth_ctx *ctx, const moth_tensor *keys, int64_t range, sorted_list *o) {
  const int64_t n = keys->l.numel;
  *o = sorted_list{list_new(keys, n), list_new(keys, n)};
  if (!o->key || !o->from) return moth_status(ctx);
  if (n == 0) return MOTH_OK;
  if (n > ORDER_SHORT) return list_long(ctx, keys, range, o);
  return launch(ctx, keys, list_short, blocks_for(n), BLOCK, 0, n,
                (const int64_t *)data<int64_t>(keys), data<int64_t>(o->key),
                data<int64_t>(o->from));
}
