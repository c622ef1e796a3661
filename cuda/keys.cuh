/* keys.cuh -- numbers as unsigned ones in the same order, NaN being the greatest and -0 the same as
** 0; and rows of keys put in order, equal ones as they came.
**
** Short rows: a bitonic sort in shared memory, by one block. Longer ones: four bits after four from
** the lowest on, each time a count by tile, a scan of all counts and a move (Satish, Harris and
** Garland, "Designing Efficient Sorting Algorithms for Manycore GPUs").
*/
#ifndef MOTH_CUDA_KEYS_CUH
#define MOTH_CUDA_KEYS_CUH

#include "reduce.cuh"

/* -- keys -- */

HD uint64_t key_of(float v) {
  const uint32_t bits = bits_of(v + 0.0f); /* which makes 0 of -0 */
  return v != v ? UINT32_MAX : bits ^ (bits >> 31 ? UINT32_MAX : (uint32_t)1 << 31);
}
HD uint64_t key_of(double v) {
  const double sum = v + 0.0;
  uint64_t bits;
  memcpy(&bits, &sum, 8);
  return v != v ? UINT64_MAX : bits ^ (bits >> 63 ? UINT64_MAX : (uint64_t)1 << 63);
}
template <class V> HD uint64_t key_of(V v) { /* of integers */
  const uint64_t flip = (V)-1 < (V)0 ? (uint64_t)1 << (8 * sizeof(V) - 1) : 0;
  return ((uint64_t)v & (UINT64_MAX >> (64 - 8 * sizeof(V)))) ^ flip;
}

/* The greatest key of a type; of floats that of NaN. */
template <class T> HD uint64_t last_key() { return UINT64_MAX >> (64 - 8 * sizeof(real_of<T>)); }

/* How many of n keys in order are below v; or, if `right`, not above it. */
template <class At> HD int64_t rank_among(int64_t n, uint64_t v, bool right, At key) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (key(middle) < v || (right && key(middle) == v)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* -- what becomes of a row in order -- */

enum { ALL_OF_THEM = -2, MEDIAN = -1 };

/* Packed x as rows (outer, n, inner) along n. The first k of each go out, or one by its rank: of
** equals the first, and NaN over any median. */
template <class T> struct order_plan {
  const T *x;
  T *values; /* or NULL */
  int64_t *positions;
  int64_t rows, n, inner, k, rank;
  uint64_t flip; /* turns the order around */
};

template <class T> HD int64_t order_place(const order_plan<T> &p, int64_t n, int64_t row,
                                          int64_t i) {
  return (row / p.inner * n + i) * p.inner + row % p.inner;
}

template <class T, class At>
HD void order_out(const order_plan<T> &p, int64_t row, int64_t j, At key, const uint32_t *from) {
  int64_t i = j;
  if (p.rank != ALL_OF_THEM) {
    i = p.rank == MEDIAN ? (p.n - 1) / 2 : p.rank;
    if (is_real<T> && p.rank == MEDIAN && key(p.n - 1) == last_key<T>()) i = p.n - 1;
    i = rank_among(p.n, key(i), false, key);
  }
  const int64_t to = order_place(p, p.k, row, j);
  p.positions[to] = from[i];
  if (p.values) p.values[to] = p.x[order_place(p, p.n, row, from[i])];
}

/* -- short rows -- */

enum { SHORT_ROW = 2048 };

/* size: a power of two from n on */
template <class T> static __global__ void sort_short(order_plan<T> p, int size) {
  uint64_t *key = shared_memory<uint64_t>();
  uint32_t *from = (uint32_t *)(key + size);
  const int64_t row = blockIdx.x;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    key[i] = i < p.n ? key_of(get(p.x + order_place(p, p.n, row, i))) ^ p.flip : UINT64_MAX;
    from[i] = (uint32_t)i;
  }
  for (int run = 2; run <= size; run *= 2)
    for (int by = run / 2; by > 0; by /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
        const int a = 2 * i - (i & (by - 1)), b = a + by;
        const bool after = key[a] > key[b] || (key[a] == key[b] && from[a] > from[b]);
        if (after != ((a & run) == 0)) continue;
        const uint64_t k = key[a];
        const uint32_t f = from[a];
        key[a] = key[b], from[a] = from[b];
        key[b] = k, from[b] = f;
      }
    }
  __syncthreads();
  for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x)
    order_out(p, row, j, [=](int64_t i) { return key[i]; }, from);
}

/* -- long rows -- */

enum { EACH_SORTED = 8, SORT_TILE = BLOCK * EACH_SORTED, DIGITS = 16 };

template <class T>
static __global__ void make_keys(order_plan<T> p, uint64_t *key, uint32_t *from) {
  const int64_t at = thread_number();
  if (at >= p.rows * p.n) return;
  const int64_t row = at / p.n, i = at % p.n;
  key[at] = key_of(get(p.x + order_place(p, p.n, row, i))) ^ p.flip;
  from[at] = (uint32_t)i;
}

/* How often each digit comes in each thread's run of a tile; then, digit by digit, how often in
** those before it. total: of the tile. */
static __device__ inline void count_digits(const uint64_t *key, int64_t first, int64_t end,
                                           int shift, uint16_t *count, int *total) {
  const int64_t own = first + threadIdx.x * EACH_SORTED;
  for (int d = 0; d < DIGITS; d++) count[d * BLOCK + threadIdx.x] = 0;
  for (int64_t i = own; i < own + EACH_SORTED && i < end; i++)
    count[(key[i] >> shift & (DIGITS - 1)) * BLOCK + threadIdx.x]++;
  __syncthreads();
  for (int d = threadIdx.x / WARP; d < DIGITS; d += BLOCK / WARP) { /* a warp for each */
    const int lane = threadIdx.x % WARP;
    int before = 0;
    for (int k = lane; k < BLOCK; k += WARP) {
      const int mine = count[d * BLOCK + k];
      int sum = mine;
      for (int by = 1; by < WARP; by *= 2) {
        const int left = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum += left;
      }
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
  __shared__ uint16_t count[DIGITS * BLOCK];
  __shared__ int total[DIGITS];
  const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  count_digits(key, row * n + tile * SORT_TILE, (row + 1) * n, shift, count, total);
  if (threadIdx.x < DIGITS)
    starts[(row * DIGITS + threadIdx.x) * tiles + tile] = total[threadIdx.x];
}

/* at[i] := the sum of those before it, by one block. A row's counts add up to its length, so that
** they begin where the row does. */
static __global__ void digit_starts(int64_t n, int64_t *at) {
  __shared__ int64_t warps[BLOCK / WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int64_t before = 0;
  for (int64_t first = 0; first < n; first += BLOCK) {
    const int64_t i = first + threadIdx.x, mine = i < n ? at[i] : 0;
    int64_t sum = mine, all = 0;
    for (int by = 1; by < WARP; by *= 2) {
      const int64_t left = __shfl_up_sync(0xffffffffu, sum, by);
      if (lane >= by) sum += left;
    }
    if (lane == WARP - 1) warps[warp] = sum;
    __syncthreads();
    for (int k = 0; k < BLOCK / WARP; k++) {
      if (k < warp) sum += warps[k];
      all += warps[k];
    }
    if (i < n) at[i] = before + sum - mine;
    before += all;
    __syncthreads();
  }
}

static __global__ void move_keys(int64_t n, int64_t tiles, int shift, const uint64_t *key,
                                 const uint32_t *from, const int64_t *starts, uint64_t *to_key,
                                 uint32_t *to_from) {
  __shared__ uint16_t count[DIGITS * BLOCK];
  __shared__ int total[DIGITS];
  const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int64_t first = row * n + tile * SORT_TILE, end = (row + 1) * n;
  count_digits(key, first, end, shift, count, total);
  const int64_t own = first + threadIdx.x * EACH_SORTED;
  for (int64_t i = own; i < own + EACH_SORTED && i < end; i++) {
    const int d = (int)(key[i] >> shift & (DIGITS - 1));
    const int64_t to = starts[(row * DIGITS + d) * tiles + tile] + count[d * BLOCK + threadIdx.x]++;
    to_key[to] = key[i];
    to_from[to] = from[i];
  }
}

template <class T>
static __global__ void give_order(order_plan<T> p, const uint64_t *key, const uint32_t *from) {
  const int64_t at = thread_number();
  if (at >= p.rows * p.k) return;
  const int64_t row = at / p.k;
  key += row * p.n;
  order_out(p, row, at % p.k, [=](int64_t i) { return key[i]; }, from + row * p.n);
}

template <class T>
static int sort_long(moth_ctx *ctx, const moth_tensor *x, const order_plan<T> &p) {
  const int64_t all = p.rows * p.n, tiles = (p.n + SORT_TILE - 1) / SORT_TILE;
  const int64_t counts = p.rows * tiles * DIGITS;
  const dim3 grid((unsigned)(p.rows * tiles));
  moth_tensor *room = device_room(x, all * 24 + counts * 8);
  if (!room) return moth_status(ctx);
  uint64_t *key[2] = {data<uint64_t>(room), data<uint64_t>(room) + all};
  int64_t *starts = (int64_t *)(key[1] + all);
  uint32_t *from[2] = {(uint32_t *)(starts + counts), (uint32_t *)(starts + counts) + all};
  int now = 0;
  int status = launch(ctx, x, make_keys<T>, blocks_for(all), BLOCK, 0, p, key[0], from[0]);
  for (int shift = 0; shift < (int)sizeof(real_of<T>) * 8 && !status; shift += 4, now = !now) {
    status = launch(ctx, x, digit_counts, grid, BLOCK, 0, p.n, tiles, shift, key[now], starts);
    if (!status) status = launch(ctx, x, digit_starts, 1, BLOCK, 0, counts, starts);
    if (!status)
      status = launch(ctx, x, move_keys, grid, BLOCK, 0, p.n, tiles, shift, key[now], from[now],
                      starts, key[!now], from[!now]);
  }
  if (!status)
    status = launch(ctx, x, give_order<T>, blocks_for(p.rows * p.k), BLOCK, 0, p, key[now],
                    from[now]);
  moth_tensor_release(room);
  return status;
}

/* x tells where the work lies. */
template <class T>
static int put_in_order(moth_ctx *ctx, const moth_tensor *x, const order_plan<T> &p) {
  int size = 2;
  if (p.rows * p.k == 0) return MOTH_OK;
  if (p.n > UINT32_MAX)
    return moth_fail(ctx, MOTH_E_LIMIT, "input", "rows of up to 2^32 - 1 elements are sorted here");
  if (p.n > SHORT_ROW) return sort_long(ctx, x, p);
  while (size < p.n) size *= 2;
  const int threads = size / 2 < WARP ? (int)WARP : size / 2 > BLOCK ? (int)BLOCK : size / 2;
  return launch(ctx, x, sort_short<T>, dim3((unsigned)p.rows), threads, (size_t)size * 12, p, size);
}

#endif
