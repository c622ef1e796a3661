/* lu.cuh -- LU factorizations with LAPACK's pivoting: the first of equally large elements. A block
** factors a matrix that fits a tile in shared memory; factor.cu factors larger ones. */
#ifndef MOTH_CUDA_LU_CUH
#define MOTH_CUDA_LU_CUH

#include "linalg.cuh"

template <class T> struct largest_row { /* its row; the first of equal values */
  struct state {
    T size;
    int32_t row;
  };
  MEMBER void take(state &r, T v, int32_t row) const {
    const T size = v < 0 ? -v : v;
    if (size > r.size) r = state{size, row};
  }
  MEMBER state join(state a, state b) const {
    return b.size > a.size || (b.size == a.size && b.row < a.row) ? b : a;
  }
};

/* Eliminates `cols` columns of y, which has m rows and at most WARP columns, and leaves L and U in
** it. `swaps` gets the row that each step swapped with; rows count from `first` rows above y.
** `order` is permuted the same way. Returns the column of the first pivot of 0, with the same
** offset and counted from 1; 0: there was none. A warp processes a row, a thread of it a column. */
template <int WARPS, class T>
static __device__ inline int factor_panel(const matrix<T> &y, int32_t m, int width, int steps,
                                          int32_t first, int32_t *swaps, int32_t *order) {
  typedef typename largest_row<T>::state state;
  const largest_row<T> largest;
  __shared__ state kept[WARPS];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int code = 0;
  state best = {-1, 0};
  for (int32_t r = threadIdx.x; r < m; r += WARPS * WARP) largest.take(best, y(r, 0), r);
  best = join_lanes(largest, best);
  for (int j = 0; j < steps; j++) {
    if (lane == j) kept[warp] = best; /* found by that thread in the previous step */
    __syncthreads();
    best = kept[0];
    for (int i = 1; i < WARPS; i++) best = largest.join(best, kept[i]);
    const int32_t other = best.row;
    if (best.size == 0 && !code) code = first + j + 1;
    const T down = lane < width ? y(j, lane) : 0, up = lane < width ? y(other, lane) : 0;
    const T pivot = __shfl_sync(0xffffffffu, up, j);
    __syncthreads(); /* all threads have both rows */
    if (warp == 0 && lane < width) y(j, lane) = up;
    if (threadIdx.x == 0) {
      const int32_t row = order[j];
      swaps[j] = first + other;
      order[j] = order[other];
      order[other] = row;
    }
    best = state{-1, j + 1};
    for (int32_t r = j + 1 + warp; r < m; r += WARPS) {
      T v = r == other ? down : lane < width ? y(r, lane) : 0;
      T by = __shfl_sync(0xffffffffu, v, j);
      if (pivot != 0) by /= pivot;
      if (lane == j) v = by;
      if (lane > j) v -= by * up;
      if (lane < width) y(r, lane) = v;
      if (lane == j + 1) largest.take(best, v, r);
    }
  }
  __syncthreads();
  return code;
}

/* d := the factors of x, at most a tile. Returns the first pivot of 0, or -1 if x is not finite. */
template <class T>
static __device__ inline int factor_tile(tile<T> &d, const matrix<T> &x, int m, int n,
                                         int32_t *swaps, int32_t *order) {
  bool bad = false;
  for (int e = threadIdx.x; e < m * n; e += BLOCK) {
    const T v = x(e / n, e % n);
    d[e / n][e % n] = v;
    bad = bad || v - v != 0;
  }
  if (threadIdx.x < TILE) order[threadIdx.x] = threadIdx.x;
  if (__syncthreads_or(bad)) return -1;
  const matrix<T> y = {&d[0][0], TILE + 1, 1};
  return factor_panel<BLOCK / WARP>(y, m, n, m < n ? m : n, 0, swaps, order);
}

template <class T> struct lu_of {
  matrices<T> x, y; /* y: packed */
  int64_t m, n, k, count; /* k: min(m, n) */
  int32_t *codes; /* for each matrix the first pivot that is 0, from 1; -1: not finite */
  int32_t *swaps; /* k for each matrix */
  int32_t *order; /* m for each matrix: the original index of each row */
  int64_t *pivots; /* swaps, as a result; or NULL */
  int32_t *info;  /* codes, or 0 for a matrix that is not finite; or NULL */
  bool refuses;   /* if singular: y := NaN */
  moth_kernel_error *kernel_error; /* reports singular matrices; or NULL */
};

/* Prepares the factorization of A, or of A transposed, into y. Codes, swaps and order are stored in
** *scratch; the caller releases it. */
template <class T>
static lu_of<T> lu_for(const moth_tensor *A, const moth_tensor *y, bool transposed,
                       moth_tensor **scratch) {
  const moth_layout &l = A->l;
  lu_of<T> p = {};
  p.x = matrices_of<T>(A, l, transposed);
  p.y = matrices_of<T>(y, l, false);
  p.m = l.shape[l.ndim - 2];
  p.n = l.shape[l.ndim - 1];
  p.k = p.m < p.n ? p.m : p.n;
  p.count = count_of(l);
  *scratch = scratch_of(A->ctx, l.device, MOTH_I32, p.count * (1 + p.k + p.m));
  p.codes = *scratch ? data<int32_t>(*scratch) : NULL;
  p.swaps = p.codes + p.count;
  p.order = p.swaps + p.count * p.k;
  return p;
}

/* Factors x into p.y; lu_finish then writes the results and reports singular matrices. */
template <class T> MOTH_LOCAL int lu_large(moth_ctx *ctx, const moth_queue *q, const lu_of<T> &p);
template <class T> MOTH_LOCAL int lu_finish(moth_ctx *ctx, int device, lu_of<T> p, bool reports);

#endif
