/* grid.cu -- grid_sample: a thread finds the taps of a place and uses them for some channels. The
** formulas are those of core/kernel/grid_taps.h; gradients are made of the ops here (grid_slope.c).
*/
#include "../core/op/grid.h"

#include "../core/kernel/grid_taps.h"
#include "walk.cuh"

enum { CHANNELS = 8 }; /* that a thread reads */

template <class T> struct grid_job {
  moth_grid g;
  int64_t samples, channels, points, plane;
  const T *grid; /* (samples, points, sides) */
};

template <class T>
static __device__ void taps_of(const grid_job<T> &j, int64_t i, int64_t *at, double *w) {
  double where[3];
  for (int k = 0; k < j.g.sides; k++) where[k] = (double)get(j.grid + i * j.g.sides + k);
  moth_grid_taps(&j.g, where, at, w);
}

template <class T>
static __global__ void sample_places(grid_job<T> j, int64_t parts, const T *x, T *y) {
  const int64_t i = thread_number();
  if (i >= j.samples * parts * j.points) return;
  const int64_t p = i % j.points, part = i / j.points % parts, n = i / j.points / parts;
  const int count = moth_grid_count(&j.g);
  int64_t at[MOTH_GRID_TAPS];
  double w[MOTH_GRID_TAPS];
  taps_of(j, n * j.points + p, at, w);
  const int64_t first = part * CHANNELS;
  const int64_t last = first + CHANNELS < j.channels ? first + CHANNELS : j.channels;
  for (int64_t c = n * j.channels + first; c < n * j.channels + last; c++) {
    real_of<T> sum = 0;
    for (int k = 0; k < count; k++)
      if (at[k] >= 0) sum += (real_of<T>)w[k] * get(x + c * j.plane + at[k]);
    put(y + c * j.points + p, sum);
  }
}

/* One of weight and position is NULL. */
template <class T>
static __global__ void list_taps(grid_job<T> j, T *weight, int64_t *position) {
  const int64_t i = thread_number();
  if (i >= j.samples * j.points) return;
  const int count = moth_grid_count(&j.g);
  int64_t at[MOTH_GRID_TAPS];
  double w[MOTH_GRID_TAPS];
  taps_of(j, i, at, w);
  for (int k = 0; k < count; k++) {
    if (weight) put(weight + i * count + k, (real_of<T>)w[k]);
    else position[i * count + k] = at[k] < 0 ? 0 : at[k];
  }
}

template <class A> static moth_grid grid_of(const A *a, const int64_t *sides, int n) {
  moth_grid g = {n, (int)a->mode, (int)a->padding_mode, a->align_corners != 0, {0, 0, 0},
                 {1, 1, 1}};
  for (int k = 0; k < n; k++) g.size[k] = sides[n - 1 - k];
  return g;
}

MOTH_CUDA(grid_sample) {
  const moth_layout *y = &out[0]->l;
  if (y->numel == 0) return MOTH_OK;
  moth_tensor *x = moth_packed(a->input), *grid = moth_packed(a->grid);
  int status = x && grid ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(y->dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      const int64_t *n = x->l.shape;
      const int sides = x->l.ndim - 2;
      grid_job<T> j = {grid_of(a, n + 2, sides), n[0], n[1], 1, 1, data<T>(grid)};
      for (int k = 0; k < sides; k++) j.points *= y->shape[2 + k], j.plane *= n[2 + k];
      const int64_t parts = (j.channels + CHANNELS - 1) / CHANNELS;
      return launch(a->ctx, out[0], sample_places<T>, blocks_for(j.samples * parts * j.points),
                    BLOCK, 0, j, parts, data<T>(x), data<T>(out[0]));
    });
  moth_tensor_release(x);
  moth_tensor_release(grid);
  return status;
}

template <class A>
static int list_run(const A *a, const int64_t *order, bool weights, moth_tensor *y) {
  if (y->l.numel == 0) return MOTH_OK;
  moth_tensor *grid = moth_packed(a->grid);
  if (!grid) return moth_status(a->ctx);
  const int status = with_float(grid->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    grid_job<T> j = {grid_of(a, a->size.at, (int)a->size.n), y->l.shape[0], 0, y->l.shape[1], 0,
                     data<T>(grid)};
    for (int k = 0; k < 3 && order; k++) j.g.order[k] = (int)order[k];
    return launch(a->ctx, y, list_taps<T>, blocks_for(j.samples * j.points), BLOCK, 0, j,
                  weights ? data<T>(y) : NULL, weights ? NULL : data<int64_t>(y));
  });
  moth_tensor_release(grid);
  return status;
}

MOTH_CUDA(grid_weights) { return list_run(a, a->order, true, out[0]); }
MOTH_CUDA(grid_positions) { return list_run(a, NULL, false, out[0]); }
