/* linalg.cuh -- shared by kernels of linear algebra: stacks of strided matrices, and functions on
** tiles in shared memory. Every order is fixed, so that results repeat. */
#ifndef MOTH_CUDA_LINALG_CUH
#define MOTH_CUDA_LINALG_CUH

#include "reduce.cuh"

enum { TILE = 32 }; /* rows and columns; a block of BLOCK threads processes a tile */
enum { PANEL = 512 }; /* threads of a block for a panel: all rows of a tile's number of columns */

template <class T> using tile = T[TILE][TILE + 1];

template <class T> struct matrix {
  T *at;
  int64_t down, across;
  MEMBER T &operator()(int64_t row, int64_t col) const { return at[row * down + col * across]; }
  MEMBER matrix from(int64_t row, int64_t col) const { return {&(*this)(row, col), down, across}; }
};

/* Matrix i of a stack whose batch dimensions were broadcast to `shape`. */
template <class T> struct matrices {
  matrix<T> first;
  int32_t batch;
  int64_t shape[MOTH_MAX_DIMS], step[MOTH_MAX_DIMS];
  MEMBER matrix<T> operator[](int64_t i) const {
    matrix<T> m = first;
    for (int32_t d = batch - 1; d >= 0; i /= shape[d--]) m.at += i % shape[d] * step[d];
    return m;
  }
};

/* The matrices of x, broadcast to the batch dimensions of the result `over`; transposed: each
** matrix is transposed. */
template <class T>
static inline matrices<T> matrices_of(const moth_tensor *x, const moth_layout &over,
                                      bool transposed) {
  const int32_t n = x->l.ndim, more = over.ndim - n;
  const int64_t *step = x->l.stride + n - 2;
  matrices<T> m = {{data<T>(x), step[transposed], step[!transposed]}, over.ndim - 2, {}, {}};
  for (int32_t d = 0; d < m.batch; d++) {
    m.shape[d] = over.shape[d];
    m.step[d] = d < more || x->l.shape[d - more] == 1 ? 0 : x->l.stride[d - more];
  }
  return m;
}

/* The number of matrices in the stack. */
static inline int64_t count_of(const moth_layout &l) {
  int64_t n = 1;
  for (int32_t d = 0; d < l.ndim - 2; d++) n *= l.shape[d];
  return n;
}

HD int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }
HD int of_tile(int64_t left) { return left < TILE ? (int)left : (int)TILE; }

template <class F> static inline int with_real(int dtype, F f) {
  return dtype == MOTH_F64 ? f(type<double>()) : f(type<float>());
}

/* Each matrix has a code: the position where its factorization failed, from 1; 0: it succeeded. */
static __global__ void clear_codes(int64_t n, int32_t *codes) {
  if (thread_number() < n) codes[thread_number()] = 0;
}

/* A new packed list on the device; NULL: error set. */
static moth_tensor *scratch_of(moth_ctx *ctx, int device, int dtype, int64_t n) {
  moth_layout l = {};
  l.ndim = 1;
  l.shape[0] = n;
  l.dtype = (uint8_t)dtype;
  l.device = (uint8_t)device;
  return moth_tensor_new(ctx, &l);
}

/* The matrix, row and column of element e of a stack of rows by cols matrices. */
struct matrix_place {
  int64_t i, row, col;
  MEMBER matrix_place(int64_t e, int64_t rows, int64_t cols)
      : i(e / (rows * cols)), row(e / cols % rows), col(e % cols) {}
};

/* -- in a block -- */

/* t := the rows by cols elements that begin at x; ends with a barrier. */
template <class T>
static __device__ inline void load_tile(tile<T> &t, const matrix<T> &x, int rows, int cols) {
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r < rows && c < cols) t[r][c] = x(r, c);
  }
  __syncthreads();
}
template <class T>
static __device__ inline void store_tile(const tile<T> &t, const matrix<T> &x, int rows, int cols) {
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r < rows && c < cols) x(r, c) = t[r][c];
  }
  __syncthreads();
}

/* Solves x z = y for z, for a triangular x of n rows; y, of `cols` columns, becomes z. */
template <class T>
static __device__ inline void substitute(const tile<T> &x, bool upper, bool unit, int n, tile<T> &y,
                                         int cols) {
  for (int step = 0; step < n; step++) {
    const int j = upper ? n - 1 - step : step;
    if (!unit && (int)threadIdx.x < cols) y[j][threadIdx.x] /= x[j][j];
    __syncthreads();
    for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
      const int r = e / TILE, c = e % TILE;
      if (r < n && c < cols && (upper ? r < j : r > j)) y[r][c] -= x[r][j] * y[j][c];
    }
    __syncthreads();
  }
}

/* y -= a b; y is rows by cols, and a has `n` columns. */
template <class T>
static __device__ inline void subtract_product(const tile<T> &a, const tile<T> &b, int rows,
                                               int depth, int cols, tile<T> &y) {
  for (int e = threadIdx.x; e < TILE * TILE; e += BLOCK) {
    const int r = e / TILE, c = e % TILE;
    if (r >= rows || c >= cols) continue;
    T sum = 0;
    for (int k = 0; k < depth; k++) sum += a[r][k] * b[k][c];
    y[r][c] -= sum;
  }
  __syncthreads();
}

#endif
