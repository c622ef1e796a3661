/* factor.cu -- cholesky and lu, as in core/op/factor.c; qr.cu has qr. All other factorizations run
** on the CPU.
**
** A matrix that fits a tile is factored by one block. A larger matrix is a loop over the tiles of
** the diagonal: a block factors the tile, the next launch divides the tiles below it, a third
** launch subtracts their products from the remaining matrix. */
#include "../../core/op/factor.h"

#include "lib/lu.cuh"

/* One factorization. y is n by n, and transposed if the upper triangle is requested, so that
** kernels see the lower one. codes: the row at which the factorization failed; 0: it succeeded. */
template <class T> struct cholesky_of {
  matrices<T> x, y;
  int64_t n, count;
  int32_t *codes;
  moth_kernel_error *kernel_error; /* of the last launch; NULL: only codes report errors */
};

/* The lower triangle of d := its factor. Returns the first leading minor that is not
** positive-definite, or 0. */
template <class T> static __device__ inline int cholesky_in(tile<T> &d, int n) {
  for (int j = 0; j < n; j++) {
    if (!(d[j][j] > 0)) return j + 1;
    const T root = sqrt(d[j][j]);
    __syncthreads();
    for (int r = j + threadIdx.x; r < n; r += BLOCK) d[r][j] = r == j ? root : d[r][j] / root;
    __syncthreads();
    for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
      const int r = e / TILE, c = e % TILE;
      if (r < n && c > j && c <= r) d[r][c] -= d[r][j] * d[c][j];
    }
    __syncthreads();
  }
  return 0;
}

template <class T> static __global__ void cholesky_small(cholesky_of<T> p) {
  __shared__ tile<T> d;
  const matrix<T> x = p.x[blockIdx.x], y = p.y[blockIdx.x];
  const int n = (int)p.n;
  bool bad = false;
  for (int e = threadIdx.x; e < n * n; e += BLOCK) {
    const int r = e / n, c = e % n;
    const T v = c <= r ? x(r, c) : 0;
    d[r][c] = v;
    bad = bad || v - v != 0;
  }
  bad = __syncthreads_or(bad);
  const int code = bad ? 1 : cholesky_in(d, n);
  for (int e = threadIdx.x; e < n * n; e += BLOCK)
    y(e / n, e % n) = code && e % n <= e / n ? (T)NAN : d[e / n][e % n];
  if (threadIdx.x) return;
  p.codes[blockIdx.x] = code;
  if (code && p.kernel_error) report(p.kernel_error, KERNEL_ERROR_DEFINITE, code, 0);
}

/* -- larger matrices -- */

template <class T> static __global__ void cholesky_load(cholesky_of<T> p) {
  if (thread_number() >= p.count * p.n * p.n) return;
  const matrix_place at(thread_number(), p.n, p.n);
  const T v = at.col <= at.row ? p.x[at.i](at.row, at.col) : 0;
  p.y[at.i](at.row, at.col) = v;
  if (v - v != 0) atomicExch(&p.codes[at.i], 1);
}

template <class T> static __global__ void cholesky_diagonal(cholesky_of<T> p, int64_t from) {
  __shared__ tile<T> d;
  if (p.codes[blockIdx.x]) return;
  const matrix<T> y = p.y[blockIdx.x].from(from, from);
  const int n = of_tile(p.n - from);
  load_tile(d, y, n, n);
  const int code = cholesky_in(d, n);
  if (code && threadIdx.x == 0) p.codes[blockIdx.x] = (int32_t)from + code;
  store_tile(d, y, n, n);
}

/* Y := Y L'^-1 for each tile Y below: solves L Y' = Y', on the transposed tile. */
template <class T>
static __global__ void cholesky_below(cholesky_of<T> p, int64_t from, int64_t tiles) {
  __shared__ tile<T> d, t;
  const int64_t i = blockIdx.x / tiles, row = from + (blockIdx.x % tiles + 1) * TILE;
  if (p.codes[i]) return;
  const matrix<T> y = p.y[i], below = y.from(row, from), transposed = {below.at, y.across, y.down};
  const int rows = of_tile(p.n - row);
  load_tile(d, y.from(from, from), TILE, TILE);
  load_tile(t, transposed, TILE, rows);
  substitute(d, false, false, TILE, t, rows);
  store_tile(t, transposed, TILE, rows);
}

template <class T>
static __global__ void cholesky_rest(cholesky_of<T> p, int64_t from, int64_t tiles) {
  __shared__ tile<T> a, b, t;
  const int64_t i = blockIdx.x / (tiles * tiles), left = from + TILE;
  const int64_t row = left + blockIdx.x / tiles % tiles * TILE;
  const int64_t col = left + blockIdx.x % tiles * TILE;
  if (p.codes[i] || col > row) return;
  const matrix<T> y = p.y[i], beside = {y.from(col, from).at, y.across, y.down};
  const int rows = of_tile(p.n - row), cols = of_tile(p.n - col);
  load_tile(a, y.from(row, from), rows, TILE);
  load_tile(b, beside, TILE, cols);
  load_tile(t, y.from(row, col), rows, cols);
  subtract_product(a, b, rows, TILE, cols, t);
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r < rows && c < cols && col + c <= row + r) y(row + r, col + c) = t[r][c];
  }
}

template <class T> static __global__ void cholesky_end(cholesky_of<T> p) {
  if (thread_number() >= p.count * p.n * p.n) return;
  const matrix_place at(thread_number(), p.n, p.n);
  const int code = p.codes[at.i];
  if (code && at.col <= at.row) p.y[at.i](at.row, at.col) = (T)NAN;
  if (code && p.kernel_error && !at.row && !at.col)
    report(p.kernel_error, KERNEL_ERROR_DEFINITE, code, 0);
}

template <class T>
static int cholesky_large(moth_ctx *ctx, int device, cholesky_of<T> p, bool reports) {
  const moth_queue *q = moth_queue_of(ctx, device);
  const dim3 each = blocks_for(p.count * p.n * p.n);
  int status = launch_on(ctx, q, clear_codes, blocks_for(p.count), BLOCK, 0, p.count, p.codes);
  if (!status) status = launch_on(ctx, q, cholesky_load<T>, each, BLOCK, 0, p);
  for (int64_t from = 0; from < p.n && !status; from += TILE) {
    const int64_t tiles = tiles_of(p.n - from) - 1;
    status = launch_on(ctx, q, cholesky_diagonal<T>, grid_for(p.count), BLOCK, 0, p, from);
    if (tiles && !status)
      status = launch_on(ctx, q, cholesky_below<T>, grid_for(p.count * tiles), BLOCK, 0, p, from,
                         tiles);
    if (tiles && !status)
      status = launch_on(ctx, q, cholesky_rest<T>, grid_for(p.count * tiles * tiles), BLOCK, 0, p,
                         from, tiles);
  }
  q = status ? NULL : moth_queue_of(ctx, device); /* get the queue again: `kernel_error` belongs to
                                                  ** one launch */
  if (!q) return moth_status(ctx);
  p.kernel_error = reports ? q->kernel_error : NULL;
  return launch_on(ctx, q, cholesky_end<T>, each, BLOCK, 0, p);
}

/* codes: the output for error codes, or NULL. */
static int cholesky(const linalg_cholesky_args *a, moth_tensor *y, moth_tensor *codes,
                    bool reports) {
  const moth_layout &l = a->A->l;
  const int64_t n = l.shape[l.ndim - 1], count = count_of(l);
  moth_tensor *own = codes ? NULL : scratch_of(a->ctx, l.device, MOTH_I32, count);
  const moth_queue *q = codes || own ? moth_queue_of(a->ctx, l.device) : NULL;
  int status = q ? MOTH_OK : moth_status(a->ctx);
  int32_t *at = q ? data<int32_t>(codes ? codes : own) : NULL;
  if (!status && count && !n)
    status = launch_on(a->ctx, q, clear_codes, blocks_for(count), BLOCK, 0, count, at);
  if (!status && count && n)
    status = with_real(l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      cholesky_of<T> p = {matrices_of<T>(a->A, l, a->upper), matrices_of<T>(y, l, a->upper), n,
                          count, at, NULL};
      if (n > TILE) return cholesky_large(a->ctx, l.device, p, reports);
      p.kernel_error = reports ? q->kernel_error : NULL;
      return launch_on(a->ctx, q, cholesky_small<T>, grid_for(count), BLOCK, 0, p);
    });
  moth_tensor_release(own);
  return status;
}

MOTH_CUDA(linalg_cholesky) { return cholesky(a, out[0], NULL, true); }
MOTH_CUDA(linalg_cholesky_ex) {
  const linalg_cholesky_args same = {.ctx = a->ctx, .A = a->A, .upper = a->upper};
  return cholesky(&same, out[0], out[1], a->check_errors);
}

/* -- lu, one tile -- */

template <class T> static __global__ void lu_small(lu_of<T> p) {
  __shared__ tile<T> d;
  __shared__ int32_t swaps[TILE], order[TILE];
  const int m = (int)p.m, n = (int)p.n;
  const bool finite = factor_tile(d, p.x[blockIdx.x], m, n, swaps, order) >= 0;
  const matrix<T> y = p.y[blockIdx.x];
  for (int e = threadIdx.x; e < m * n; e += BLOCK)
    y(e / n, e % n) = finite ? d[e / n][e % n] : (T)NAN;
  if (threadIdx.x < p.k)
    p.pivots[blockIdx.x * p.k + threadIdx.x] = finite ? swaps[threadIdx.x] : (int)threadIdx.x;
}

/* -- lu, larger matrices: panel by panel; a panel is as wide as a tile -- */

template <class T> static __global__ void lu_load(lu_of<T> p) {
  if (thread_number() >= p.count * p.m * p.n) return;
  const matrix_place at(thread_number(), p.m, p.n);
  const T v = p.x[at.i](at.row, at.col);
  p.y[at.i](at.row, at.col) = v;
  if (at.col == 0) p.order[at.i * p.m + at.row] = (int32_t)at.row;
  if (v - v != 0) atomicExch(&p.codes[at.i], -1);
}

template <class T>
static __global__ void __launch_bounds__(PANEL, 1) lu_panel(lu_of<T> p, int32_t from) {
  const int64_t i = blockIdx.x;
  const int before = p.codes[i], width = of_tile(p.k - from);
  if (before < 0) return;
  const int code = factor_panel<PANEL / WARP>(p.y[i].from(from, from), (int32_t)(p.m - from), width,
                                              width, from, p.swaps + i * p.k + from,
                                              p.order + i * p.m + from);
  if (threadIdx.x == 0 && !before) p.codes[i] = code;
}

/* Applies a panel's row swaps to all other columns; in columns to its right, the rows become rows
** of U. At most 2 TILE rows change: the rows of the panel's tile and the rows swapped with them. */
template <class T>
static __global__ void lu_swap_outside(lu_of<T> p, int64_t from, int64_t tiles) {
  __shared__ tile<T> d, t, s;
  __shared__ int32_t rows[2 * TILE], now[2 * TILE], with[TILE];
  const int64_t i = blockIdx.x / tiles, left = from / TILE, at = blockIdx.x % tiles;
  const int width = of_tile(p.k - from);
  const int64_t col = at < left ? at * TILE : from + width + (at - left) * TILE;
  const int cols = at < left ? (int)TILE : of_tile(p.n - col);
  const matrix<T> y = p.y[i];
  const int32_t *swaps = p.swaps + i * p.k + from;
  if (p.codes[i] < 0) return;
  if ((int)threadIdx.x < width) {
    const int j = threadIdx.x, other = swaps[j];
    int first = 0;
    while (swaps[first] != other) first++;
    with[j] = other < from + width ? (int)(other - from) : TILE + first;
    rows[j] = (int32_t)from + j;
    rows[TILE + j] = with[j] == TILE + j ? other : -1;
    now[j] = j;
    now[TILE + j] = TILE + j;
  }
  __syncthreads();
  for (int j = 0; j < width && threadIdx.x == 0; j++) {
    const int was = now[j];
    now[j] = now[with[j]];
    now[with[j]] = was;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r >= width || c >= cols) continue;
    t[r][c] = y(rows[now[r]], col + c);
    if (rows[TILE + r] >= 0) s[r][c] = y(rows[now[TILE + r]], col + c);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r < width && c < cols && rows[TILE + r] >= 0) y(rows[TILE + r], col + c) = s[r][c];
  }
  if (at >= left) {
    load_tile(d, y.from(from, from), width, width);
    substitute(d, false, true, width, t, cols);
  }
  store_tile(t, y.from(from, col), width, cols);
}

template <class T>
static __global__ void lu_rest(lu_of<T> p, int64_t from, int64_t down, int64_t across) {
  __shared__ tile<T> a, b, t;
  const int64_t i = blockIdx.x / (down * across), left = from + TILE;
  const int64_t row = left + blockIdx.x / across % down * TILE;
  const int64_t col = left + blockIdx.x % across * TILE;
  const int rows = of_tile(p.m - row), cols = of_tile(p.n - col);
  const matrix<T> y = p.y[i];
  if (p.codes[i] < 0) return;
  load_tile(a, y.from(row, from), rows, TILE);
  load_tile(b, y.from(from, col), TILE, cols);
  load_tile(t, y.from(row, col), rows, cols);
  subtract_product(a, b, rows, TILE, cols, t);
  store_tile(t, y.from(row, col), rows, cols);
}

template <class T> static __global__ void lu_end(lu_of<T> p) {
  if (thread_number() >= p.count * p.m * p.n) return;
  const matrix_place at(thread_number(), p.m, p.n);
  const int code = p.codes[at.i];
  if (code < 0 || (code && p.refuses)) p.y[at.i](at.row, at.col) = (T)NAN;
  if (at.col == 0 && at.row < p.k && p.pivots)
    p.pivots[at.i * p.k + at.row] = code < 0 ? at.row : p.swaps[at.i * p.k + at.row];
  if (at.row || at.col) return;
  if (p.info) p.info[at.i] = code > 0 ? code : 0;
  if (p.kernel_error && code > 0) report(p.kernel_error, KERNEL_ERROR_SINGULAR, 0, 0);
}

template <class T> int lu_large(moth_ctx *ctx, const moth_queue *q, const lu_of<T> &p) {
  int status = launch_on(ctx, q, clear_codes, blocks_for(p.count), BLOCK, 0, p.count, p.codes);
  if (!status)
    status = launch_on(ctx, q, lu_load<T>, blocks_for(p.count * p.m * p.n), BLOCK, 0, p);
  for (int64_t from = 0; from < p.k && !status; from += TILE) {
    const int64_t next = from + of_tile(p.k - from);
    const int64_t down = tiles_of(p.m - next), across = tiles_of(p.n - next);
    const int64_t beside = from / TILE + across;
    status = launch_on(ctx, q, lu_panel<T>, grid_for(p.count), PANEL, 0, p, (int32_t)from);
    if (beside && !status)
      status = launch_on(ctx, q, lu_swap_outside<T>, grid_for(p.count * beside), BLOCK, 0, p, from,
                         beside);
    if (down && across && !status)
      status = launch_on(ctx, q, lu_rest<T>, grid_for(p.count * down * across), BLOCK, 0, p, from,
                         down, across);
  }
  return status;
}

template <class T> int lu_finish(moth_ctx *ctx, int device, lu_of<T> p, bool reports) {
  const moth_queue *q = moth_queue_of(ctx, device); /* again: each launch has its own `kernel_error`
                                                    */
  if (q && reports) p.kernel_error = q->kernel_error;
  return launch_on(ctx, q, lu_end<T>, blocks_for(p.count * p.m * p.n), BLOCK, 0, p);
}

template int lu_large(moth_ctx *, const moth_queue *, const lu_of<float> &);
template int lu_large(moth_ctx *, const moth_queue *, const lu_of<double> &);
template int lu_finish(moth_ctx *, int, lu_of<float>, bool);
template int lu_finish(moth_ctx *, int, lu_of<double>, bool);

MOTH_CUDA(linalg_lu_factor) {
  const moth_layout &l = a->A->l;
  if (l.numel == 0) return MOTH_OK;
  return with_real(l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    moth_tensor *scratch = NULL;
    lu_of<T> p = lu_for<T>(a->A, out[0], false, &scratch);
    const moth_queue *q = scratch ? moth_queue_of(a->ctx, l.device) : NULL;
    p.pivots = data<int64_t>(out[1]);
    int status = MOTH_OK;
    if (p.m <= TILE && p.n <= TILE) {
      status = launch_on(a->ctx, q, lu_small<T>, grid_for(p.count), BLOCK, 0, p);
    } else {
      status = lu_large(a->ctx, q, p);
      if (!status) status = lu_finish(a->ctx, l.device, p, false);
    }
    moth_tensor_release(scratch);
    return status;
  });
}

static __global__ void order_rows(int64_t n, int64_t k, const int64_t *pivots, bool inverse,
                                  int64_t *order, moth_kernel_error *kernel_error) {
  pivots += blockIdx.x * k;
  order += blockIdx.x * n;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) order[i] = i;
  __syncthreads();
  for (int64_t j = 0; j < k && threadIdx.x == 0; j++) {
    const int64_t i = inverse ? k - 1 - j : j, other = pivots[i], row = order[i];
    if ((uint64_t)other < (uint64_t)n) order[i] = order[other], order[other] = row;
    else report(kernel_error, KERNEL_ERROR_INDEX, other, n);
  }
}

MOTH_CUDA(linalg_lu_order) {
  const moth_tensor *x = a->pivots;
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *p = x->l.dtype == MOTH_I64 ? moth_packed(x) : moth_cast(x, MOTH_I64);
  const moth_queue *q = p ? moth_queue_of(a->ctx, x->l.device) : NULL;
  const int status = q ? launch_on(a->ctx, q, order_rows, grid_for(out[0]->l.numel / a->rows),
                                   BLOCK, 0, a->rows, x->l.shape[x->l.ndim - 1], data<int64_t>(p),
                                   a->inverse != 0, data<int64_t>(out[0]), q->kernel_error)
                       : moth_status(a->ctx);
  moth_tensor_release(p);
  return status;
}
