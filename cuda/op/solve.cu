/* solve.cu -- systems of linear equations, inverses and determinants, as in core/op/solve.c.
**
** For a matrix that fits a tile, one block factors and solves in one launch. Larger matrices use
** the factors of lu.cuh, and triangular systems are solved one tile of rows after another. */
#include "../../core/op/solve.h"

#include "lib/lu.cuh"

/* -- triangular systems: each launch subtracts what the previous one has solved -- */

template <class T> struct system_of {
  matrices<T> x, b, y;  /* x y = b; an identity b is not read */
  const int32_t *order; /* the row of b for each row, n for each matrix x, all packed; or NULL */
  int64_t n, columns, across; /* across: number of column tiles */
  bool upper, unit;
};

template <class T>
static __device__ inline void load_sides(tile<T> &t, const matrix<T> &b, const int32_t *order,
                                         int64_t row, int64_t col, int rows, int cols) {
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r >= rows || c >= cols) continue;
    const int64_t from = order ? order[row + r] : row + r;
    t[r][c] = b.at ? b(from, col + c) : (T)(from == col + c);
  }
  __syncthreads();
}

template <class T> static __global__ void solve_step(system_of<T> p, int64_t step) {
  __shared__ tile<T> a, b, t;
  const int64_t tiles = tiles_of(p.n), i = blockIdx.x / (p.across * (tiles - step));
  const int64_t below = blockIdx.x / p.across % (tiles - step), col = blockIdx.x % p.across * TILE;
  const int64_t row = (p.upper ? tiles - 1 - step - below : step + below) * TILE;
  const matrix<T> x = p.x[i], y = p.y[i].from(0, col);
  const int rows = of_tile(p.n - row), cols = of_tile(p.columns - col);
  if (step == 0) {
    const int64_t own = (x.at - p.x.first.at) / p.n; /* rows of the preceding matrices */
    load_sides(t, p.b[i], p.order ? p.order + own : NULL, row, col, rows, cols);
  } else {
    const int64_t done = (p.upper ? tiles - step : step - 1) * TILE;
    const int depth = of_tile(p.n - done);
    load_tile(t, y.from(row, 0), rows, cols);
    load_tile(a, x.from(row, done), rows, depth);
    load_tile(b, y.from(done, 0), depth, cols);
    subtract_product(a, b, rows, depth, cols, t);
  }
  if (below == 0) {
    load_tile(a, x.from(row, row), rows, rows);
    substitute(a, p.upper, p.unit, rows, t, cols);
  }
  store_tile(t, y.from(row, 0), rows, cols);
}

template <class T>
static int solve_steps(moth_ctx *ctx, const moth_queue *q, const system_of<T> &p, int64_t count) {
  const int64_t tiles = tiles_of(p.n);
  int status = MOTH_OK;
  for (int64_t step = 0; step < tiles && !status; step++)
    status = launch_on(ctx, q, solve_step<T>, grid_for(count * p.across * (tiles - step)), BLOCK,
                       0, p, step);
  return status;
}

/* X A = B is solved as A' X' = B'. */
MOTH_CUDA(linalg_solve_triangular) {
  const moth_layout &l = out[0]->l;
  const bool transposed = !a->left, upper = (a->upper != 0) != transposed;
  const int64_t n = a->A->l.shape[a->A->l.ndim - 1];
  const int64_t columns = l.shape[l.ndim - (transposed ? 2 : 1)];
  if (l.numel == 0) return MOTH_OK;
  return with_real(l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const system_of<T> p = {matrices_of<T>(a->A, l, transposed),
                            matrices_of<T>(a->B, l, transposed),
                            matrices_of<T>(out[0], l, transposed),
                            NULL,
                            n,
                            columns,
                            tiles_of(columns),
                            upper,
                            a->unitriangular != 0};
    return solve_steps(a->ctx, moth_queue_of(a->ctx, l.device), p, count_of(l));
  });
}

/* -- determinants, by a warp and in f64 -- */

struct determinant {
  double value, sign, log;
};

template <class T>
static __device__ inline determinant det_of(const matrix<T> &y, int64_t n, const int32_t *swaps) {
  determinant d = {1, 1, 0};
  unsigned odd = 0;
  for (int64_t from = 0; from < n; from += WARP) {
    const int64_t j = from + threadIdx.x;
    const double mine = j < n ? (double)y(j, j) : 1, size = log(fabs(mine));
    odd += __popc(__ballot_sync(0xffffffffu, j < n && swaps[j] != j));
    for (int s = 0; s < WARP; s++) {
      const double v = __shfl_sync(0xffffffffu, mine, s);
      d.value *= v;
      d.sign *= v > 0 ? 1 : v < 0 ? -1 : 0;
      d.log += __shfl_sync(0xffffffffu, size, s);
    }
  }
  if (odd % 2) d.value = -d.value, d.sign = -d.sign;
  return d;
}

/* Replaces pivots of 0 by tiny ones, whose effect on det(A) A^-1 cancels. */
template <class T> static __device__ inline void fill_pivots(const matrix<T> &y, int64_t n) {
  T most = 0;
  for (int64_t j = threadIdx.x; j < n; j += WARP) {
    const T v = y(j, j) < 0 ? -y(j, j) : y(j, j);
    most = v > most ? v : most;
  }
  most = join_lanes(largest_of<T>(), most);
  const T tiny = (most > 0 ? most : 1) * (T)(sizeof(T) == 8 ? 0x1p-60 : 0x1p-30);
  for (int64_t j = threadIdx.x; j < n; j += WARP)
    if (y(j, j) == 0) y(j, j) = tiny;
  __syncwarp();
}

template <class T> struct dets_of { /* the requested outputs; the others are NULL */
  T *value, *sign, *log;
  double *scale; /* for factors with replaced pivots */
};

/* Writes d if the factors are finite; otherwise NaN. */
template <class T>
static __device__ inline void put_det(const dets_of<T> &to, int64_t i, determinant d, bool finite) {
  if (threadIdx.x) return;
  if (to.value) to.value[i] = finite ? (T)d.value : (T)NAN;
  if (to.sign) to.sign[i] = finite ? (T)d.sign : (T)NAN;
  if (to.log) to.log[i] = finite ? (T)d.log : (T)NAN;
  if (to.scale) to.scale[i] = d.value;
}

template <class T> static __global__ void det_small(matrices<T> xs, int n, dets_of<T> to) {
  __shared__ tile<T> d;
  __shared__ int32_t swaps[TILE], order[TILE];
  const bool finite = factor_tile(d, xs[blockIdx.x], n, n, swaps, order) >= 0;
  if (threadIdx.x >= WARP) return;
  const matrix<T> y = {&d[0][0], TILE + 1, 1};
  put_det(to, blockIdx.x, finite ? det_of(y, n, swaps) : determinant{}, finite);
}

template <class T> static __global__ void det_large(lu_of<T> p, dets_of<T> to) {
  const matrix<T> y = p.y[blockIdx.x];
  const bool finite = p.codes[blockIdx.x] >= 0;
  if (finite && to.scale) fill_pivots(y, p.n);
  put_det(to, blockIdx.x, finite ? det_of(y, p.n, p.swaps + blockIdx.x * p.n) : determinant{},
          finite);
}

static int determinants(const moth_tensor *A, moth_tensor *value, moth_tensor *sign,
                        moth_tensor *logarithm) {
  const moth_layout &l = A->l;
  const int64_t n = l.shape[l.ndim - 1], count = count_of(l);
  if (count == 0) return MOTH_OK;
  return with_real(l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const dets_of<T> to = {value ? data<T>(value) : NULL, sign ? data<T>(sign) : NULL,
                           logarithm ? data<T>(logarithm) : NULL, NULL};
    const moth_queue *q = moth_queue_of(A->ctx, l.device);
    if (n <= TILE)
      return launch_on(A->ctx, q, det_small<T>, grid_for(count), BLOCK, 0,
                       matrices_of<T>(A, l, false), (int)n, to);
    moth_tensor *y = q ? moth_tensor_new(A->ctx, &l) : NULL, *scratch = NULL;
    int status = MOTH_OK;
    if (y) {
      const lu_of<T> p = lu_for<T>(A, y, false, &scratch);
      status = scratch ? lu_large(A->ctx, q, p) : moth_status(A->ctx);
      if (!status) status = launch_on(A->ctx, q, det_large<T>, grid_for(count), WARP, 0, p, to);
    } else {
      status = moth_status(A->ctx);
    }
    moth_tensor_release(scratch);
    moth_tensor_release(y);
    return status;
  });
}

MOTH_CUDA(linalg_det) { return determinants(a->A, out[0], NULL, NULL); }
MOTH_CUDA(linalg_slogdet) { return determinants(a->A, NULL, out[0], out[1]); }

/* -- solutions -- */

struct options {
  bool transposed;    /* solve X A = B as A' X' = B' */
  bool cofactors; /* compute det(A) A^-T, which exists for each matrix */
  bool reports;   /* singular matrices are errors */
  int32_t *info;  /* where each matrix was found singular; or NULL */
};

template <class T>
static __global__ void solve_small(system_of<T> p, options how, moth_kernel_error *kernel_error) {
  __shared__ tile<T> d, t;
  __shared__ int32_t swaps[TILE], order[TILE];
  __shared__ double scale;
  const int64_t i = blockIdx.x / p.across, col = blockIdx.x % p.across * TILE;
  const int n = (int)p.n, cols = of_tile(p.columns - col);
  const int code = factor_tile(d, p.x[i], n, n, swaps, order);
  if (threadIdx.x < WARP && how.cofactors && code >= 0) {
    const matrix<T> y = {&d[0][0], TILE + 1, 1};
    fill_pivots(y, n);
    const determinant found = det_of(y, n, swaps);
    if (threadIdx.x == 0) scale = found.value;
  }
  load_sides(t, p.b[i], code < 0 ? NULL : order, 0, col, n, cols);
  const bool gone = code < 0 || (code && !how.cofactors);
  if (!gone) {
    substitute(d, false, true, n, t, cols);
    substitute(d, true, false, n, t, cols);
  }
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r < n && c < cols)
      p.y[i](r, col + c) = gone ? (T)NAN : how.cofactors ? (T)(scale * t[r][c]) : t[r][c];
  }
  if (threadIdx.x || col) return;
  if (how.info) how.info[i] = code > 0 ? code : 0;
  if (kernel_error && code > 0) report(kernel_error, KERNEL_ERROR_SINGULAR, 0, 0);
}

template <class T>
static __global__ void scaled_by(matrices<T> y, int64_t n, int64_t count, const double *scale) {
  if (thread_number() >= count * n * n) return;
  const matrix_place at(thread_number(), n, n);
  T &v = y[at.i](at.row, at.col);
  v = (T)(scale[at.i] * v);
}

template <class T>
static int solve_large(const moth_tensor *A, const moth_layout &over, system_of<T> s,
                       const options &how) {
  moth_ctx *ctx = A->ctx;
  const moth_queue *q = moth_queue_of(ctx, over.device);
  const int64_t count = count_of(over);
  moth_tensor *y = q ? moth_tensor_new(ctx, &A->l) : NULL, *scratch = NULL;
  moth_tensor *scales = how.cofactors && y ? scratch_of(ctx, over.device, MOTH_F64, count) : NULL;
  int status = y && (scales || !how.cofactors) ? MOTH_OK : moth_status(ctx);
  if (!status) {
    lu_of<T> p = lu_for<T>(A, y, how.transposed, &scratch);
    p.info = how.info;
    p.refuses = !how.cofactors;
    status = scratch ? lu_large(ctx, q, p) : moth_status(ctx);
    if (!status) status = lu_finish(ctx, over.device, p, how.reports);
    q = status ? NULL : moth_queue_of(ctx, over.device);
    const dets_of<T> to = {NULL, NULL, NULL, scales ? data<double>(scales) : NULL};
    if (scales && q) status = launch_on(ctx, q, det_large<T>, grid_for(count), WARP, 0, p, to);
    s.x = matrices_of<T>(y, over, false);
    s.order = p.order;
    if (q && !status) status = solve_steps(ctx, q, s, count);
    s.order = NULL;
    s.b = s.y;
    s.upper = true;
    s.unit = false;
    if (q && !status) status = solve_steps(ctx, q, s, count);
    if (scales && q && !status)
      status = launch_on(ctx, q, scaled_by<T>, blocks_for(count * s.n * s.n), BLOCK, 0, s.y, s.n,
                         count, to.scale);
    if (!q) status = moth_status(ctx);
  }
  moth_tensor_release(scales);
  moth_tensor_release(scratch);
  moth_tensor_release(y);
  return status;
}

/* B is NULL for the identity. */
static int solve(const moth_tensor *A, const moth_tensor *B, const moth_tensor *y,
                 const options &how) {
  const moth_layout &l = y->l;
  const int64_t n = A->l.shape[A->l.ndim - 1];
  const int64_t columns = l.shape[l.ndim - (how.transposed ? 2 : 1)];
  return with_real(l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    system_of<T> s = {matrices_of<T>(A, l, how.transposed), {},
                      matrices_of<T>(y, l, how.transposed != how.cofactors), NULL, n, columns,
                      tiles_of(columns), false, true};
    if (B) s.b = matrices_of<T>(B, l, how.transposed);
    if (n > TILE) return solve_large(A, l, s, how);
    const moth_queue *q = moth_queue_of(A->ctx, l.device);
    return launch_on(A->ctx, q, solve_small<T>, grid_for(count_of(l) * s.across), BLOCK, 0, s, how,
                     q && how.reports ? q->kernel_error : NULL);
  });
}

MOTH_CUDA(linalg_solve) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor b = *a->B, y = *out[0];
  if (y.l.ndim < a->A->l.ndim) /* B has vectors */
    for (moth_layout *l : {&b.l, &y.l}) l->shape[l->ndim] = l->stride[l->ndim] = 1, l->ndim++;
  return solve(a->A, &b, &y, options{!a->left, false, true, NULL});
}

MOTH_CUDA(linalg_inv) {
  return out[0]->l.numel ? solve(a->A, NULL, out[0], options{false, false, true, NULL}) : MOTH_OK;
}

MOTH_CUDA(linalg_inv_ex) {
  const int64_t n = out[1]->l.numel;
  int32_t *info = data<int32_t>(out[1]);
  if (out[0]->l.numel)
    return solve(a->A, NULL, out[0], options{false, false, a->check_errors != 0, info});
  return n ? launch(a->ctx, out[1], clear_codes, blocks_for(n), BLOCK, 0, n, info) : MOTH_OK;
}

MOTH_CUDA(linalg_cofactor) {
  return out[0]->l.numel ? solve(a->A, NULL, out[0], options{false, true, false, NULL}) : MOTH_OK;
}
