/* factor.cu -- factorizations of matrices, as core/op/factor.c has them: cholesky. What is not here
** the engine computes on the CPU.
**
** A matrix of one tile is for a block. Of larger ones, tile by tile of the diagonal: one block
** factors it, others divide the tiles below, others subtract their products from the rest.
*/
#include "../core/op/factor.h"

#include "matrices.cuh"

/* What a factorization is of: y, n by n, lies as a lower triangle is asked for; codes tell where it
** broke down, 0: nowhere. */
template <class T> struct cholesky_of {
  matrices<T> x, y;
  int64_t n, count;
  int32_t *codes;
  moth_trouble *trouble; /* of the last launch; NULL: codes are all that is told */
};

/* The lower triangle of d := its factor; the first leading block that is not positive-definite. */
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
  if (code && p.trouble) report(p.trouble, TROUBLE_DEFINITE, code, 0);
}

/* -- of many tiles -- */

static __global__ void clear_codes(int64_t n, int32_t *codes) {
  if (thread_number() < n) codes[thread_number()] = 0;
}

/* Element i of the stack, by matrix, row and column. */
template <class T> struct place {
  int64_t i, row, col;
  MEMBER place(const cholesky_of<T> &p, int64_t e)
      : i(e / (p.n * p.n)), row(e / p.n % p.n), col(e % p.n) {}
};

template <class T> static __global__ void cholesky_load(cholesky_of<T> p) {
  if (thread_number() >= p.count * p.n * p.n) return;
  const place<T> at(p, thread_number());
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

/* Y := Y L'^-1 for each tile Y below: L Y' = Y' is solved, as `turned`. */
template <class T>
static __global__ void cholesky_below(cholesky_of<T> p, int64_t from, int64_t tiles) {
  __shared__ tile<T> d, t;
  const int64_t i = blockIdx.x / tiles, row = from + (blockIdx.x % tiles + 1) * TILE;
  if (p.codes[i]) return;
  const matrix<T> y = p.y[i], below = y.from(row, from), turned = {below.at, y.across, y.down};
  const int rows = of_tile(p.n - row);
  load_tile(d, y.from(from, from), TILE, TILE);
  load_tile(t, turned, TILE, rows);
  substitute(d, false, false, TILE, t, rows);
  store_tile(t, turned, TILE, rows);
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
  const place<T> at(p, thread_number());
  const int code = p.codes[at.i];
  if (code && at.col <= at.row) p.y[at.i](at.row, at.col) = (T)NAN;
  if (code && p.trouble && !at.row && !at.col) report(p.trouble, TROUBLE_DEFINITE, code, 0);
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
  q = status ? NULL : moth_queue_of(ctx, device); /* asked anew: `trouble` belongs to one launch */
  if (!q) return moth_status(ctx);
  p.trouble = reports ? q->trouble : NULL;
  return launch_on(ctx, q, cholesky_end<T>, each, BLOCK, 0, p);
}

/* codes: NULL, or where they are wanted. */
static int cholesky(const linalg_cholesky_args *a, moth_tensor *y, moth_tensor *codes,
                    bool reports) {
  const moth_layout &l = a->A->l;
  const int64_t n = l.shape[l.ndim - 1], count = count_of(l);
  moth_layout as_codes = {.ndim = 1, .shape = {count}};
  as_codes.dtype = MOTH_I32;
  as_codes.device = l.device;
  moth_tensor *own = codes ? NULL : moth_tensor_new(a->ctx, &as_codes);
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
      p.trouble = reports ? q->trouble : NULL;
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
