/* qr.cu -- Q and R of matrices, as in core/op/factor.c, by Householder reflections: 1 - tau v v',
** where v begins with 1.
**
** A matrix of one tile is factored by one block. For a larger matrix, a block computes the
** reflections of each panel, which is as wide as a tile; other blocks apply them to the columns on
** its right, and at the end to Q. */
#include "../../core/op/factor.h"

#include "lib/linalg.cuh"

enum { REDUCED, COMPLETE, NO_Q };

/* -- reflections, by a block -- */

/* Squares of a column with extreme values would overflow or underflow. The column is scaled by a
** power of two; Q does not change by it. Returns the exponent; 0 if no scaling is needed. */
template <int WARPS, class T>
static __device__ inline int unit_of(const matrix<T> &y, int32_t m, int width,
                                     double (&most)[WARPS][WARP]) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, far = sizeof(T) == 8 ? 300 : 60;
  double all = 0;
  for (int32_t r = warp; r < m && lane < width; r += WARPS)
    all = fmax(all, fabs((double)y(r, lane)));
  most[warp][lane] = all;
  __syncthreads();
  for (int i = 0; i < WARPS; i++) all = fmax(all, most[i][lane]);
  int unit = all > 0 && isfinite(all) ? ilogb(all) : 0;
  if (abs(unit) < far) unit = 0;
  for (int32_t r = warp; unit && r < m; r += WARPS) y(r, lane) = scalbn(y(r, lane), -unit);
  __syncthreads();
  return unit;
}

/* y has m rows and at most WARP columns. It becomes R, and below the diagonal the elements of each
** v after its 1; `steps` reflections. A warp processes a row, and multiplies its new elements for
** the next step. */
template <int WARPS, class T>
static __device__ inline void reflections_of(const matrix<T> &y, int32_t m, int width, int steps,
                                             T *tau) {
  __shared__ double sums[WARPS][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int unit = unit_of<WARPS>(y, m, width, sums);
  double mine = 0; /* the dot product of column j and this column, below row j */
  for (int32_t r = 1 + warp; r < m; r += WARPS)
    if (lane < width) mine += (double)y(r, 0) * y(r, lane);
  for (int j = 0; j < steps; j++) {
    sums[warp][lane] = mine;
    __syncthreads();
    double sum = 0, below = 0;
    for (int i = 0; i < WARPS; i++) sum += sums[i][lane], below += sums[i][j];
    const double top = lane < width ? y(j, lane) : 0, alpha = y(j, j);
    __syncthreads(); /* all threads have read */
    const double beta = below > 0 ? -copysign(sqrt(alpha * alpha + below), alpha) : alpha;
    const double by = below > 0 ? (beta - alpha) / beta : 0;
    const T scale = below > 0 ? (T)(1 / (alpha - beta)) : 0;
    const T part = (T)(by * (top + scale * sum));
    if (warp == 0 && lane >= j && lane < width) y(j, lane) = lane == j ? (T)beta : (T)top - part;
    if (threadIdx.x == 0) tau[j] = (T)by;
    mine = 0;
    for (int32_t r = j + 1 + warp; r < m; r += WARPS) {
      T v = lane < width ? y(r, lane) : 0;
      const T x = __shfl_sync(0xffffffffu, v, j) * scale;
      if (lane == j) v = x;
      if (lane > j) v -= x * part;
      if (lane >= j && lane < width) y(r, lane) = v;
      const T next = __shfl_sync(0xffffffffu, v, (j + 1) % WARP);
      if (r > j + 1) mine += (double)next * v;
    }
  }
  __syncthreads();
  for (int32_t r = warp; unit && r <= lane && r < m; r += WARPS)
    y(r, lane) = scalbn(y(r, lane), unit);
  __syncthreads();
}

/* Applies the reflections v to the columns y, at most WARP of them, the first reflection first or
** last. */
template <int WARPS, class T>
static __device__ inline void reflect(const matrix<T> &v, const T *tau, int32_t m, int steps,
                                      bool last, const matrix<T> &y, int width) {
  __shared__ double sums[WARPS][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const bool here = lane < width;
  double mine = 0;
  int j = last ? steps - 1 : 0;
  if (steps == 0) return;
  for (int32_t r = j + 1 + warp; r < m; r += WARPS)
    if (here) mine += (double)v(r, j) * y(r, lane);
  for (int step = 0; step < steps; step++) {
    const int next = last ? j - 1 : j + 1;
    sums[warp][lane] = mine;
    __syncthreads();
    double sum = here ? y(j, lane) : 0;
    const T top = (T)sum;
    for (int i = 0; i < WARPS; i++) sum += sums[i][lane];
    __syncthreads(); /* all threads have read */
    const T part = (T)(tau[j] * sum);
    if (warp == 0 && here) y(j, lane) = top - part;
    const bool more = step + 1 < steps;
    mine = more && last && warp == 0 ? (double)v(j, next) * (top - part) : 0;
    for (int32_t r = j + 1 + warp; r < m && here; r += WARPS) {
      const T u = y(r, lane) - v(r, j) * part;
      y(r, lane) = u;
      if (more && r > next) mine += (double)v(r, next) * u;
    }
    j = next;
  }
  __syncthreads();
}

/* -- kernels -- */

template <class T> struct qr_of {
  matrices<T> x;
  T *y, *tau, *q, *r; /* packed; y: scratch buffer if there are many tiles; q: NULL if it is not
                      ** requested */
  int64_t m, n, k, columns, count; /* columns: of Q */
  int32_t *codes; /* -1: not finite */
  MEMBER matrix<T> y_of(int64_t i) const { return {y + i * m * n, n, 1}; }
  MEMBER matrix<T> q_of(int64_t i) const { return {q + i * m * columns, columns, 1}; }
};

template <class T> static __global__ void qr_small(qr_of<T> p) {
  __shared__ tile<T> d, e;
  __shared__ T tau[TILE];
  const int m = (int)p.m, n = (int)p.n, columns = (int)p.columns;
  const matrix<T> x = p.x[blockIdx.x], y = {&d[0][0], TILE + 1, 1}, q = {&e[0][0], TILE + 1, 1};
  bool bad = false;
  for (int at = threadIdx.x; at < m * n; at += BLOCK) {
    const T v = x(at / n, at % n);
    y(at / n, at % n) = v;
    bad = bad || v - v != 0;
  }
  for (int at = threadIdx.x; at < m * columns; at += BLOCK)
    q(at / columns, at % columns) = at / columns == at % columns;
  bad = __syncthreads_or(bad);
  if (!bad) {
    reflections_of<BLOCK / WARP>(y, m, n, (int)p.k, tau);
    if (p.q) reflect<BLOCK / WARP>(y, tau, m, (int)p.k, true, q, columns);
  }
  for (int at = threadIdx.x; at < columns * n; at += BLOCK) {
    const int row = at / n, col = at % n;
    p.r[blockIdx.x * p.columns * n + at] = bad ? (T)NAN : row > col ? 0 : y(row, col);
  }
  for (int at = threadIdx.x; at < m * columns && p.q; at += BLOCK)
    p.q_of(blockIdx.x)(at / columns, at % columns) = bad ? (T)NAN : q(at / columns, at % columns);
}

template <class T> static __global__ void qr_load(qr_of<T> p) {
  if (thread_number() >= p.count * p.m * p.n) return;
  const matrix_place at(thread_number(), p.m, p.n);
  const T v = p.x[at.i](at.row, at.col);
  p.y[thread_number()] = v;
  if (v - v != 0) atomicExch(&p.codes[at.i], -1);
}

template <class T>
static __global__ void __launch_bounds__(PANEL, 1) qr_panel(qr_of<T> p, int64_t from) {
  const int64_t i = blockIdx.x;
  const int width = of_tile(p.k - from);
  if (p.codes[i]) return;
  reflections_of<PANEL / WARP>(p.y_of(i).from(from, from), (int32_t)(p.m - from), width, width,
                               p.tau + i * p.k + from);
}

/* Applies a panel's reflections to y's columns on its right, or to the columns of Q. Q starts at
** the panel's last column: earlier columns have only zeros below. */
template <class T>
static __global__ void __launch_bounds__(PANEL, 1) qr_reflect(qr_of<T> p, int64_t from,
                                                              int64_t tiles, bool of_q) {
  const int64_t i = blockIdx.x / tiles;
  const int width = of_tile(p.k - from);
  const int64_t col = from + (of_q ? 0 : width) + blockIdx.x % tiles * TILE;
  if (p.codes[i]) return;
  const matrix<T> y = of_q ? p.q_of(i) : p.y_of(i);
  reflect<PANEL / WARP>(p.y_of(i).from(from, from), p.tau + i * p.k + from, (int32_t)(p.m - from),
                        width, of_q, y.from(from, col), of_tile((of_q ? p.columns : p.n) - col));
}

template <class T> static __global__ void qr_r(qr_of<T> p) {
  if (thread_number() >= p.count * p.columns * p.n) return;
  const matrix_place at(thread_number(), p.columns, p.n);
  p.r[thread_number()] = p.codes[at.i]       ? (T)NAN
                         : at.row > at.col ? 0
                                           : p.y_of(at.i)(at.row, at.col);
}

template <class T> static __global__ void qr_q(qr_of<T> p) {
  if (thread_number() >= p.count * p.m * p.columns) return;
  const matrix_place at(thread_number(), p.m, p.columns);
  p.q[thread_number()] = p.codes[at.i] ? (T)NAN : at.row == at.col;
}

template <class T> static int qr_large(moth_ctx *ctx, const moth_queue *q, const qr_of<T> &p) {
  const int64_t last = (tiles_of(p.k) - 1) * TILE;
  int status = launch_on(ctx, q, clear_codes, blocks_for(p.count), BLOCK, 0, p.count, p.codes);
  if (!status)
    status = launch_on(ctx, q, qr_load<T>, blocks_for(p.count * p.m * p.n), BLOCK, 0, p);
  for (int64_t from = 0; from <= last && !status; from += TILE) {
    const int64_t tiles = tiles_of(p.n - from - of_tile(p.k - from));
    status = launch_on(ctx, q, qr_panel<T>, grid_for(p.count), PANEL, 0, p, from);
    if (tiles && !status)
      status = launch_on(ctx, q, qr_reflect<T>, grid_for(p.count * tiles), PANEL, 0, p, from,
                         tiles, false);
  }
  if (!status)
    status = launch_on(ctx, q, qr_r<T>, blocks_for(p.count * p.columns * p.n), BLOCK, 0, p);
  if (p.q && !status)
    status = launch_on(ctx, q, qr_q<T>, blocks_for(p.count * p.m * p.columns), BLOCK, 0, p);
  for (int64_t from = last; from >= 0 && p.q && !status; from -= TILE) {
    const int64_t tiles = tiles_of(p.columns - from);
    status = launch_on(ctx, q, qr_reflect<T>, grid_for(p.count * tiles), PANEL, 0, p, from, tiles,
                       true);
  }
  return status;
}

MOTH_CUDA(linalg_qr) {
  const moth_layout &l = a->A->l, &r = out[1]->l;
  if (out[0]->l.numel + r.numel == 0) return MOTH_OK;
  return with_real(l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    qr_of<T> p = {};
    p.x = matrices_of<T>(a->A, l, false);
    p.m = l.shape[l.ndim - 2];
    p.n = l.shape[l.ndim - 1];
    p.k = p.m < p.n ? p.m : p.n;
    p.columns = r.shape[r.ndim - 2];
    p.count = count_of(l);
    p.q = a->mode == NO_Q ? NULL : data<T>(out[0]);
    p.r = data<T>(out[1]);
    const moth_queue *q = moth_queue_of(a->ctx, l.device);
    if (p.m <= TILE && p.n <= TILE)
      return launch_on(a->ctx, q, qr_small<T>, grid_for(p.count), BLOCK, 0, p);
    moth_tensor *scratch =
        q ? scratch_of(a->ctx, l.device, l.dtype, p.count * (p.m * p.n + p.k)) : NULL;
    moth_tensor *codes = scratch ? scratch_of(a->ctx, l.device, MOTH_I32, p.count) : NULL;
    int status = moth_status(a->ctx);
    if (codes) {
      p.y = data<T>(scratch);
      p.tau = p.y + p.count * p.m * p.n;
      p.codes = data<int32_t>(codes);
      status = qr_large(a->ctx, q, p);
    }
    moth_tensor_release(codes);
    moth_tensor_release(scratch);
    return status;
  });
}
