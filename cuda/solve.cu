/* solve.cu -- systems of linear equations, as core/op/solve.c has them: solve_triangular. What is
** not here the engine computes on the CPU.
*/
#include "../core/op/solve.h"

#include "matrices.cuh"

/* x y = b, of n rows; a block goes down, or up, the tiles of TILE columns of b. */
template <class T>
static __global__ void solve_tiles(matrices<T> xs, matrices<T> bs, matrices<T> ys, int64_t n,
                                   int64_t columns, int64_t across, bool upper, bool unit) {
  __shared__ tile<T> a, b, t;
  const int64_t i = blockIdx.x / across, col = blockIdx.x % across * TILE;
  const int64_t tiles = tiles_of(n);
  const matrix<T> x = xs[i], y = ys[i].from(0, col);
  const int cols = of_tile(columns - col);
  for (int64_t step = 0; step < tiles; step++) {
    const int64_t row = (upper ? tiles - 1 - step : step) * TILE;
    const int rows = of_tile(n - row);
    load_tile(t, bs[i].from(row, col), rows, cols);
    for (int64_t done = 0; done < step; done++) {
      const int64_t at = (upper ? tiles - 1 - done : done) * TILE;
      const int depth = of_tile(n - at);
      load_tile(a, x.from(row, at), rows, depth);
      load_tile(b, y.from(at, 0), depth, cols);
      subtract_product(a, b, rows, depth, cols, t);
    }
    load_tile(a, x.from(row, row), rows, rows);
    substitute(a, upper, unit, rows, t, cols);
    store_tile(t, y.from(row, 0), rows, cols);
  }
}

/* X A = B is A' X' = B'. */
MOTH_CUDA(linalg_solve_triangular) {
  const moth_layout &l = out[0]->l;
  const bool turned = !a->left, upper = (a->upper != 0) != turned;
  const int64_t n = a->A->l.shape[a->A->l.ndim - 1], count = count_of(l);
  const int64_t columns = l.shape[l.ndim - (turned ? 2 : 1)], across = tiles_of(columns);
  if (out[0]->l.numel == 0) return MOTH_OK;
  return with_real(l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], solve_tiles<T>, grid_for(count * across), BLOCK, 0,
                  matrices_of<T>(a->A, l, turned), matrices_of<T>(a->B, l, turned),
                  matrices_of<T>(out[0], l, turned), n, columns, across, upper,
                  a->unitriangular != 0);
  });
}
