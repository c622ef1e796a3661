/* sort.cu -- elements sorted along a dimension, as in core/op/sort.c: sort, topk, kthvalue and
** median.
**
** Short rows: a bitonic sort in shared memory, by one block. The first k of longer rows, or the
** element of one rank: a block finds the k-th key eight bits at a time from the highest on; each
** round counts the keys that share the bits found so far (radix select; Alabi, Blanchard, Gordon
** and Steinbach, "Fast k-Selection Algorithms for Graphics Processing Units", 2012). It gathers the
** elements before that key, and sorts them. All other cases: radix_sort.cuh. */
#include "../../core/op/sort.h"

#include "lib/radix_sort.cuh"
#include "lib/sort_rows.cuh"

/* -- offsets of rows -- */

/* The offset of element 0 of a row; rows have n elements, p.inner apart. */
template <class T> HD int64_t row_start(const sort_plan<T> &p, int64_t n, int64_t row) {
  return p.inner == 1 ? row * n : row / p.inner * n * p.inner + row % p.inner;
}

template <class T> HD uint64_t key_at(const sort_plan<T> &p, int64_t start, int64_t i) {
  return key_of(get(p.x + start + i * p.inner)) ^ p.flip;
}

template <class T>
HD void order_put(const sort_plan<T> &p, int64_t row, int64_t j, int64_t from) {
  const int64_t to = row_start(p, p.k, row) + j * p.inner;
  p.positions[to] = from;
  if (p.values) p.values[to] = p.x[row_start(p, p.n, row) + from * p.inner];
}

/* Writes the j-th requested element of a sorted row. */
template <class T, class At>
HD void write_requested(const sort_plan<T> &p, int64_t row, int64_t j, At key,
                        const uint32_t *from) {
  int64_t i = j;
  if (p.rank != ALL_OF_THEM) {
    i = p.rank == MEDIAN ? (p.n - 1) / 2 : p.rank;
    if (is_real<T> && p.rank == MEDIAN && key(p.n - 1) == last_key<T>()) i = p.n - 1;
    i = rank_among(p.n, key(i), false, key);
  }
  order_put(p, row, j, from[i]);
}

/* -- short rows -- */

enum { SHORT_ROW = 2048 };

/* Sorts keys in shared memory by all threads of a block. size: a power of two. */
static __device__ inline void bitonic_sort(uint64_t *key, uint32_t *from, int size) {
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
}

template <class T> static __global__ void sort_short(sort_plan<T> p, int size) {
  uint64_t *key = shared_memory<uint64_t>();
  uint32_t *from = (uint32_t *)(key + size);
  const int64_t row = blockIdx.x, start = row_start(p, p.n, row);
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    key[i] = i < p.n ? key_at(p, start, i) : UINT64_MAX;
    from[i] = (uint32_t)i;
  }
  bitonic_sort(key, from, size);
  for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x)
    write_requested(p, row, j, [=](int64_t i) { return key[i]; }, from);
}

/* -- the first k elements, or the element of one rank -- */

enum { SELECT_MOST = 1024, SELECT_BINS = BLOCK };

struct selected {
  uint64_t key;  /* the k-th key in sorted order */
  int64_t equal; /* how many elements with this key are among the first k */
  bool all;      /* these are all elements with this key */
};

/* Finds the digit of the key with rank `wanted` (from 1) from the counts of all digits; subtracts
** the counts of smaller digits from *wanted. Returns the digit, and its count in *among. */
static __device__ inline int digit_of_rank(const unsigned *count, int64_t *wanted,
                                           unsigned *among) {
  __shared__ unsigned sums[BLOCK / WARP];
  __shared__ unsigned found[3];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const unsigned own = count[threadIdx.x];
  unsigned sum = scan_lanes(adds<unsigned>(), own);
  if (lane == WARP - 1) sums[warp] = sum;
  __syncthreads();
  for (int k = 0; k < warp; k++) sum += sums[k];
  if (sum >= *wanted && sum - own < *wanted) {
    found[0] = threadIdx.x;
    found[1] = sum - own;
    found[2] = own;
  }
  __syncthreads();
  const int digit = (int)found[0];
  *wanted -= found[1];
  *among = found[2];
  __syncthreads();
  return digit;
}

/* The key of rank `wanted`, from 1, in a row. */
template <class T>
static __device__ inline selected key_of_rank(const sort_plan<T> &p, int64_t start,
                                              int64_t wanted) {
  __shared__ unsigned count[SELECT_BINS];
  const int bits = 8 * (int)sizeof(real_of<T>);
  uint64_t found = 0;
  unsigned among = 0;
  for (int shift = bits - 8; shift >= 0; shift -= 8) {
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < p.n; i += BLOCK) {
      const uint64_t key = key_at(p, start, i);
      if (shift == bits - 8 || key >> (shift + 8) == found)
        atomicAdd(&count[key >> shift & (SELECT_BINS - 1)], 1u);
    }
    __syncthreads();
    found = found << 8 | (uint64_t)digit_of_rank(count, &wanted, &among);
  }
  return selected{found, wanted, wanted == among};
}

/* Appends the first `wanted` elements with the key, by position, to the lists. */
template <class T>
static __device__ inline void take_equals(const sort_plan<T> &p, int64_t start, uint64_t last,
                                          int64_t wanted, uint64_t *key, uint32_t *from) {
  __shared__ int warps[BLOCK / WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int64_t seen = 0;
  for (int64_t first = 0; first < p.n && seen < wanted; first += BLOCK) {
    const int64_t i = first + threadIdx.x;
    const bool equal = i < p.n && key_at(p, start, i) == last;
    const unsigned lanes = __ballot_sync(0xffffffffu, equal);
    if (lane == 0) warps[warp] = __popc(lanes);
    __syncthreads();
    int64_t rank = seen + __popc(lanes & ((1u << lane) - 1));
    for (int k = 0; k < BLOCK / WARP; k++) {
      if (k < warp) rank += warps[k];
      seen += warps[k];
    }
    if (equal && rank < wanted) {
      key[rank] = last;
      from[rank] = (uint32_t)i;
    }
    __syncthreads();
  }
}

/* size: a power of two, at least k. Elements are gathered in any order; the sort by key and
** position has only one result. */
template <class T> static __global__ void select_first(sort_plan<T> p, int size) {
  __shared__ unsigned taken;
  uint64_t *key = shared_memory<uint64_t>();
  uint32_t *from = (uint32_t *)(key + size);
  const int64_t row = blockIdx.x, start = row_start(p, p.n, row);
  const selected last = key_of_rank(p, start, p.k);
  if (threadIdx.x == 0) taken = 0;
  for (int i = (int)p.k + threadIdx.x; i < size; i += BLOCK) {
    key[i] = UINT64_MAX;
    from[i] = UINT32_MAX;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < p.n; i += BLOCK) {
    const uint64_t own = key_at(p, start, i);
    if (own > last.key || (own == last.key && !last.all)) continue;
    const unsigned at = atomicAdd(&taken, 1u);
    key[at] = own;
    from[at] = (uint32_t)i;
  }
  const int64_t before = p.k - last.equal;
  if (!last.all) take_equals(p, start, last.key, last.equal, key + before, from + before);
  bitonic_sort(key, from, size);
  for (int64_t j = threadIdx.x; j < p.k; j += BLOCK) order_put(p, row, j, from[j]);
}

template <class T> static __global__ void select_rank(sort_plan<T> p) {
  __shared__ unsigned first;
  const int64_t row = blockIdx.x, start = row_start(p, p.n, row);
  bool nan = false;
  if (is_real<T> && p.rank == MEDIAN)
    for (int64_t i = threadIdx.x; i < p.n; i += BLOCK)
      nan = nan || key_at(p, start, i) == last_key<T>();
  const int64_t rank = p.rank != MEDIAN ? p.rank : __syncthreads_or(nan) ? p.n - 1 : (p.n - 1) / 2;
  const uint64_t key = key_of_rank(p, start, rank + 1).key;
  if (threadIdx.x == 0) first = UINT32_MAX;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < p.n; i += BLOCK)
    if (key_at(p, start, i) == key) atomicMin(&first, (unsigned)i);
  __syncthreads();
  if (threadIdx.x == 0) order_put(p, row, 0, first);
}

/* A block reads a row five to nine times, so a few very long rows are faster with the radix sort by
** all blocks. */
template <class T> static inline bool may_select(const sort_plan<T> &p) {
  const bool few = p.rank != ALL_OF_THEM || p.k <= SELECT_MOST;
  return few && (p.n <= (int64_t)1 << 18 || p.rows >= 8);
}

/* -- long rows -- */

template <class T> static __global__ void make_keys(sort_plan<T> p, uint64_t *key) {
  const int64_t at = thread_number(), row = at / p.n;
  if (at < p.rows * p.n) key[at] = key_at(p, row_start(p, p.n, row), at - row * p.n);
}

template <class T>
static __global__ void give_order(sort_plan<T> p, const uint64_t *key, const uint32_t *from) {
  const int64_t at = thread_number();
  if (at >= p.rows * p.k) return;
  const int64_t row = at / p.k;
  key += row * p.n;
  write_requested(p, row, at % p.k, [=](int64_t i) { return key[i]; }, from + row * p.n);
}

template <class T>
static int sort_long(moth_ctx *ctx, const moth_tensor *x, const sort_plan<T> &p) {
  const int64_t all = p.rows * p.n, counts = radix_counts(p.rows, p.n) + 1;
  moth_tensor *scratch = device_scratch(x, all * 24 + counts * 8);
  if (!scratch) return moth_status(ctx);
  uint64_t *key[2] = {data<uint64_t>(scratch), data<uint64_t>(scratch) + all};
  int64_t *starts = (int64_t *)(key[1] + all);
  uint32_t *from[2] = {(uint32_t *)(starts + counts), (uint32_t *)(starts + counts) + all};
  const radix<uint32_t> r = {p.rows, p.n, key[1], {key[0], key[1]}, {from[0], from[1]}, starts};
  int last = 0;
  int status = launch(ctx, x, make_keys<T>, blocks_for(all), BLOCK, 0, p, key[1]);
  if (!status) status = radix_sort(ctx, x, r, 8 * (int)sizeof(real_of<T>), &last);
  if (!status)
    status = launch(ctx, x, give_order<T>, blocks_for(p.rows * p.k), BLOCK, 0, p, key[last],
                    from[last]);
  moth_tensor_release(scratch);
  return status;
}

static inline int power_of_two(int64_t n) {
  int size = 2;
  while (size < n) size *= 2;
  return size;
}

template <class T>
int sort_rows(moth_ctx *ctx, const moth_tensor *x, const sort_plan<T> &p) {
  const dim3 rows = grid_for(p.rows);
  if (p.rows * p.k == 0) return MOTH_OK;
  if (p.n >= UINT32_MAX)
    return moth_fail(ctx, MOTH_E_LIMIT, "input", "rows of less than 2^32 - 1 elements are sorted "
                     "here");
  if (p.n > SHORT_ROW && !may_select(p)) return sort_long(ctx, x, p);
  const int size = power_of_two(p.n > SHORT_ROW ? p.k : p.n);
  const size_t bytes = (size_t)size * 12;
  if (p.n > SHORT_ROW && p.rank != ALL_OF_THEM)
    return launch(ctx, x, select_rank<T>, rows, BLOCK, 0, p);
  if (p.n > SHORT_ROW) return launch(ctx, x, select_first<T>, rows, BLOCK, bytes, p, size);
  const int threads = size / 2 < WARP ? (int)WARP : size / 2 > BLOCK ? (int)BLOCK : size / 2;
  return launch(ctx, x, sort_short<T>, rows, threads, bytes, p, size);
}

#define MOTH_ORDERED(T) \
  template int sort_rows(moth_ctx *, const moth_tensor *, const sort_plan<T> &);
MOTH_ORDERED(uint8_t) MOTH_ORDERED(int8_t) MOTH_ORDERED(int16_t)
MOTH_ORDERED(int32_t) MOTH_ORDERED(int64_t) MOTH_ORDERED(f16)
MOTH_ORDERED(bf16) MOTH_ORDERED(float) MOTH_ORDERED(double)

/* -- the ops -- */

/* The first elements of each row in sorted order (values may be NULL), or each row's element of the
** given rank. */
static int sort_into(moth_tensor *values, moth_tensor *positions, const moth_tensor *input,
                     int64_t dim, bool descending, int64_t rank) {
  moth_ctx *ctx = input->ctx;
  const int along = (int)(dim < 0 ? dim + input->l.ndim : dim);
  moth_tensor *x = moth_packed(input);
  if (!x) return moth_status(ctx);
  int status = with_numbers(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    sort_plan<T> p = {data<T>(x), values ? data<T>(values) : NULL, data<int64_t>(positions),
                       1, 1, 1, 1, rank, descending ? last_key<T>() : 0};
    for (int d = 0; d < x->l.ndim; d++) {
      if (d == along) p.n = x->l.shape[d];
      else p.rows *= x->l.shape[d];
      if (d > along) p.inner *= x->l.shape[d];
    }
    if (p.rows && rank == ALL_OF_THEM) p.k = positions->l.numel / p.rows;
    return sort_rows(ctx, x, p);
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(sort) {
  return sort_into(out[0], out[1], a->input, a->dim, a->descending, ALL_OF_THEM);
}
MOTH_CUDA(argsort) {
  return sort_into(NULL, out[0], a->input, a->dim, a->descending, ALL_OF_THEM);
}
MOTH_CUDA(topk) {
  return sort_into(out[0], out[1], a->input, a->dim, a->largest, ALL_OF_THEM);
}
MOTH_CUDA(kthvalue) { return sort_into(out[0], out[1], a->input, a->dim, false, a->k - 1); }
MOTH_CUDA(median_dim) { return sort_into(out[0], out[1], a->input, a->dim, false, MEDIAN); }
