/* scan.cu -- cumulative sums, products, recurrences, maxima and minima along a dimension, as in
** core/op/scan.c.
**
** A scan is a struct with `state` (the state of a run of elements), load(at, i), store(at, state)
** and join(a, b) for neighbouring runs; `at` is an offset in packed tensors, `i` the index along
** the dimension. A recurrence is a scan, too: its states are functions y -> f y + x, and join
** composes them (Blelloch, "Prefix sums and their applications"). */
#include "../../core/op/scan.h"

#include "lib/reduce.cuh"

/* Packed tensors as (outer, n, inner), scanned along n. A row is cut into `chunks`; parts has the
** state of each, [row][chunk]. */
struct rows_plan {
  int64_t rows, n, inner, chunk;
  int chunks;
  bool from_end;
};

HD int64_t place_of(const rows_plan &p, int64_t row, int64_t i) {
  const int64_t j = p.from_end ? p.n - 1 - i : i;
  return (row / p.inner * p.n + j) * p.inner + row % p.inner;
}

/* The state of all threads of a block up to this one; *all: the state of the whole block. */
template <class F>
static __device__ inline typename F::state scan_block(const F &f, typename F::state mine,
                                                      typename F::state *all) {
  __shared__ typename F::state kept[BLOCK / WARP];
  const int warp = (int)threadIdx.x / WARP;
  mine = scan_lanes(f, mine);
  __syncthreads(); /* all threads have read the values of an earlier call */
  if (threadIdx.x % WARP == WARP - 1) kept[warp] = mine;
  __syncthreads();
  typename F::state before = kept[0];
  *all = kept[0];
  for (int i = 1; i < BLOCK / WARP; i++) {
    if (i == warp) before = *all;
    *all = f.join(*all, kept[i]);
  }
  return warp ? f.join(before, mine) : mine;
}

/* Each block scans a chunk of a row. totals: only the chunk's state is stored. */
template <class F>
static __global__ void scan_rows(F f, rows_plan p, typename F::state *parts, bool totals) {
  const int64_t row = blockIdx.x, chunk = blockIdx.y, first = chunk * p.chunk;
  const int64_t last = first + p.chunk < p.n ? first + p.chunk : p.n;
  typename F::state before = {}, all;
  bool begins = totals || chunk == 0;
  if (!begins) before = parts[row * p.chunks + chunk - 1];
  for (int64_t tile = first; tile < last; tile += BLOCK) {
    const int64_t i = tile + threadIdx.x, mine = i < last ? i : last - 1;
    const int64_t at = place_of(p, row, mine);
    typename F::state r = scan_block(f, f.load(at, mine), &all);
    if (!begins) {
      r = f.join(before, r);
      all = f.join(before, all);
    }
    if (!totals && i < last) f.store(at, r);
    before = all; /* after a partial tile it is invalid, but a partial tile is the last */
    begins = false;
    if (totals && i == last - 1) parts[row * p.chunks + chunk] = r;
  }
}

/* Scans the states of the chunks. */
template <class F>
static __global__ void scan_parts(F f, int64_t rows, int chunks, typename F::state *parts) {
  const int64_t row = thread_number();
  if (row >= rows) return;
  parts += row * chunks;
  for (int i = 1; i < chunks; i++) parts[i] = f.join(parts[i - 1], parts[i]);
}

/* Each thread scans a row: for adjacent or short rows. */
template <class F> static __global__ void scan_columns(F f, rows_plan p) {
  const int64_t row = thread_number();
  if (row >= p.rows) return;
  int64_t at = place_of(p, row, 0);
  const int64_t step = p.from_end ? -p.inner : p.inner;
  typename F::state r = f.load(at, 0);
  f.store(at, r);
  for (int64_t i = 1; i < p.n; i++) {
    at += step;
    r = f.join(r, f.load(at, i));
    f.store(at, r);
  }
}

template <class F>
static int scan(moth_ctx *ctx, const F &f, const moth_tensor *x, int64_t dim, bool from_end) {
  rows_plan p = {1, 1, 1, 0, 1, from_end};
  typedef typename F::state state;
  if (x->l.numel == 0) return MOTH_OK;
  const int along = (int)(dim < 0 ? dim + x->l.ndim : dim);
  for (int d = 0; d < x->l.ndim; d++) {
    if (d == along) p.n = x->l.shape[d];
    else p.rows *= x->l.shape[d];
    if (d > along) p.inner *= x->l.shape[d];
  }
  if (p.n <= 8 || p.inner >= WARP || (p.rows >= 65536 && p.n <= 256))
    return launch(ctx, x, scan_columns<F>, blocks_for(p.rows), BLOCK, 0, f, p);
  int64_t wanted = p.n / 4096, most = 512 / p.rows;
  if (wanted > most) wanted = most;
  if (wanted < 1) wanted = 1;
  p.chunk = ((p.n + wanted - 1) / wanted + BLOCK - 1) / BLOCK * BLOCK;
  p.chunks = (int)((p.n + p.chunk - 1) / p.chunk);
  const dim3 grid = grid_for(p.rows, p.chunks);
  if (p.chunks == 1) return launch(ctx, x, scan_rows<F>, grid, BLOCK, 0, f, p, (state *)NULL,
                                  false);
  moth_tensor *kept = device_scratch(x, p.rows * p.chunks * (int64_t)sizeof(state));
  if (!kept) return moth_status(ctx);
  state *parts = (state *)(void *)moth_address(kept);
  int status = launch(ctx, x, scan_rows<F>, grid, BLOCK, 0, f, p, parts, true);
  if (!status)
    status = launch(ctx, x, scan_parts<F>, blocks_for(p.rows), BLOCK, 0, f, p.rows, p.chunks,
                    parts);
  if (!status) status = launch(ctx, x, scan_rows<F>, grid, BLOCK, 0, f, p, parts, false);
  moth_tensor_release(kept);
  return status;
}

/* -- sums and products: integers in 64 bits, wrapping -- */

template <class T> struct running {
  typedef total_of<T> state;
  const T *x;
  results to;
  bool times;
  MEMBER state load(int64_t at, int64_t) const { return (state)get(x + at); }
  MEMBER void store(int64_t at, state r) const { put_result(to, at, r); }
  MEMBER state join(state a, state b) const {
    if constexpr (is_real<T>) return times ? a * b : a + b;
    else return (state)(times ? (uint64_t)a * (uint64_t)b : (uint64_t)a + (uint64_t)b);
  }
};

template <class T> struct running_product {
  typedef ranged_product<total_of<T>> state;
  const T *x;
  results to;
  MEMBER state load(int64_t at, int64_t) const {
    return ranged<total_of<T>>((total_of<T>)get(x + at), 0);
  }
  MEMBER void store(int64_t at, state r) const { put_result(to, at, ranged_value(r)); }
  MEMBER state join(state a, state b) const { return ranged_times<total_of<T>>(a, b); }
};

static int running_into(moth_tensor *y, const moth_tensor *input, int64_t dim, bool times,
                        bool from_end) {
  const int to = moth_compute_dtype(y->l.dtype), from = moth_is_float(to) ? to : (int)MOTH_I64;
  const bool direct = to == from;
  moth_layout l = y->l;
  l.dtype = (uint8_t)from;
  moth_tensor *owned, *packed = NULL, *work = y;
  const moth_tensor *x = computed_as(input, from, &owned);
  if (x) packed = moth_packed(x);
  if (!direct) work = moth_tensor_new(y->ctx, &l);
  int status = packed && work ? MOTH_OK : moth_status(y->ctx);
  auto run = [&](auto t) {
    typedef typename decltype(t)::of T;
    const results to = {moth_address(work), work->l.dtype};
    if constexpr (is_real<T>)
      if (times)
        return scan(y->ctx, running_product<T>{data<T>(packed), to}, packed, dim, from_end);
    return scan(y->ctx, running<T>{data<T>(packed), to, times}, packed, dim, from_end);
  };
  if (!status)
    status = from == MOTH_I64 ? run(type<int64_t>()) : with_float(packed->l.dtype, run);
  if (!status && !direct) status = moth_copy_into(y, work);
  if (!direct) moth_tensor_release(work);
  moth_tensor_release(packed);
  moth_tensor_release(owned);
  return status;
}

MOTH_CUDA(cumsum) { return running_into(out[0], a->input, a->dim, false, false); }
MOTH_CUDA(cumsum_back) { return running_into(out[0], a->input, a->dim, false, true); }
MOTH_CUDA(cumprod) { return running_into(out[0], a->input, a->dim, true, false); }

/* -- recurrences -- */

template <class T> struct recurring {
  struct state {
    real_of<T> factor, sum;
  };
  const T *x, *factor;
  T *y;
  MEMBER state load(int64_t at, int64_t i) const {
    return state{i ? get(factor + at) : (real_of<T>)0, get(x + at)};
  }
  MEMBER void store(int64_t at, state r) const { put(y + at, r.sum); }
  MEMBER state join(state a, state b) const {
    return state{a.factor * b.factor, b.sum + b.factor * a.sum};
  }
};

MOTH_CUDA(recur) {
  moth_tensor *x = moth_packed(a->input), *factor = moth_packed(a->factor), *y = out[0];
  int status = x && factor ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(y->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      const recurring<T> f = {data<T>(x), data<T>(factor), data<T>(y)};
      return scan(a->ctx, f, x, a->dim, a->from_end);
    });
  moth_tensor_release(x);
  moth_tensor_release(factor);
  return status;
}

/* -- cummax, cummin: the last of equal values; NaN wins -- */

template <class T> struct record_so_far {
  struct state {
    real_of<T> v;
    int64_t at;
  };
  const T *x;
  T *y;
  int64_t *positions;
  bool least;
  MEMBER state load(int64_t at, int64_t i) const { return state{get(x + at), i}; }
  MEMBER void store(int64_t at, state r) const {
    put(y + at, r.v);
    positions[at] = r.at;
  }
  MEMBER state join(state a, state b) const {
    if (b.v != b.v) return b;
    return a.v == a.v && (least ? b.v <= a.v : b.v >= a.v) ? b : a;
  }
};

static int record_into(moth_tensor **out, const moth_tensor *input, int64_t dim, bool least) {
  moth_tensor *x = moth_packed(input);
  if (!x) return moth_status(input->ctx);
  int status = with_numbers(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const record_so_far<T> f = {data<T>(x), data<T>(out[0]), data<int64_t>(out[1]), least};
    return scan(x->ctx, f, x, dim, false);
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(cummax) { return record_into(out, a->input, a->dim, false); }
MOTH_CUDA(cummin) { return record_into(out, a->input, a->dim, true); }
