/* grid_taps.h -- the elements that a grid point interpolates, and their weights, for the CPU and
** for GPU kernels. Positions are computed in f64 for all dtypes, once for all channels.
*/
#ifndef MOTH_KERNEL_GRID_TAPS_H
#define MOTH_KERNEL_GRID_TAPS_H

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define MOTH_GRID static __host__ __device__ __forceinline__
#define MOTH_GRID_CALL static __host__ __device__ __noinline__
#define MOTH_GRID_UNROLL _Pragma("unroll")
#else
#define MOTH_GRID static inline
#define MOTH_GRID_CALL static inline
#define MOTH_GRID_UNROLL
#endif

enum { MOTH_GRID_LINEAR, MOTH_GRID_NEAREST, MOTH_GRID_CUBIC };
enum { MOTH_GRID_ZEROS, MOTH_GRID_BORDER, MOTH_GRID_REFLECTION };
enum { MOTH_GRID_TAPS = 64 }; /* of a point, at most */

typedef struct moth_grid {
  int sides, mode, padding; /* 2 or 3 sides */
  bool align;
  int order[3];    /* order of the derivative along x, y, z */
  int64_t size[3]; /* width, height, depth */
} moth_grid;

/* Clips to 0 .. size - 1. Multiplies *derivative by the derivative of the clip. */
MOTH_GRID double moth_grid_clip(double at, int64_t size, double *derivative) {
  const double most = (double)(size - 1);
  if (!(at > 0)) {
    *derivative = 0;
    return at != at ? at : 0;
  }
  if (at < most) return at;
  *derivative = 0;
  return most;
}

/* On a GPU this is one function that all sides call, because the code of fmod is long. */
MOTH_GRID_CALL double moth_grid_rest(double far, double span) { return fmod(far, span); }

/* Reflects at both ends until the position is inside. */
MOTH_GRID double moth_grid_reflect(double at, int64_t size, bool align, double *derivative) {
  const double low = align ? 0 : -0.5, span = align ? (double)(size - 1) : (double)size;
  if (!(span > 0)) {
    *derivative = 0;
    return 0;
  }
  if (at < low) *derivative = -*derivative;
  const double far = fabs(at - low), rest = moth_grid_rest(far, span), turns = floor(far / span);
  if (turns - 2 * floor(0.5 * turns) == 0) return rest + low;
  *derivative = -*derivative;
  return span - rest + low;
}

MOTH_GRID double moth_grid_inside(const moth_grid *g, double at, int64_t size, double *derivative) {
  if (g->padding == MOTH_GRID_REFLECTION) at = moth_grid_reflect(at, size, g->align, derivative);
  return g->padding == MOTH_GRID_ZEROS ? at : moth_grid_clip(at, size, derivative);
}

/* Coefficients of the four taps along a side: cubic convolution (Keys 1981) with -0.75. */
#define MOTH_GRID_KEYS \
  {{0, -0.75, 1.5, -0.75}, {1, 0, -2.25, 1.25}, {0, 0.75, 1.5, -1.25}, {0, 0, -0.75, 0.75}}

/* The order-th derivative of c[0] + c[1] t + c[2] t^2 + c[3] t^3. */
MOTH_GRID double moth_grid_cubic(const double *c, double t, int order) {
  if (order == 0) return ((c[3] * t + c[2]) * t + c[1]) * t + c[0];
  if (order == 1) return (3 * c[3] * t + 2 * c[2]) * t + c[1];
  if (order == 2) return 6 * c[3] * t + 2 * c[2];
  return order == 3 ? 6 * c[3] : 0;
}

/* The position of an element, or -1 outside. NaN becomes position 0, so that its weight, also NaN,
** propagates. */
MOTH_GRID int64_t moth_grid_place(double at, int64_t size) {
  if (at != at) return 0;
  return at >= 0 && at < (double)size ? (int64_t)at : -1;
}

/* Computes the taps along one side: positions (-1 outside) and weights. Returns their number. */
MOTH_GRID int moth_grid_side(const moth_grid *g, int side, double where, int64_t *at, double *w) {
  const int64_t size = g->size[side];
  const int order = g->order[side];
  double derivative = g->align ? 0.5 * (double)(size - 1) : 0.5 * (double)size, by = 1;
  double x = g->align ? (where + 1) * 0.5 * (double)(size - 1)
                      : ((where + 1) * (double)size - 1) * 0.5;
  if (g->mode != MOTH_GRID_CUBIC) x = moth_grid_inside(g, x, size, &derivative);
  if (where != where) derivative = x = where;
  else if (!(fabs(x) < 1e15))
    x = -100;
  for (int k = 0; k < order; k++) by *= derivative;
  if (g->mode == MOTH_GRID_NEAREST) {
    at[0] = moth_grid_place(rint(x), size);
    w[0] = where != where ? where : order ? 0 : 1;
    return 1;
  }
  const double low = floor(x), t = x - low;
  if (g->mode == MOTH_GRID_LINEAR) {
    at[0] = moth_grid_place(low, size);
    at[1] = moth_grid_place(low + 1, size);
    w[0] = order == 0 ? 1 - t : order == 1 ? -by : 0;
    w[1] = order == 0 ? t : order == 1 ? by : 0;
    return 2;
  }
  const double taps[4][4] = MOTH_GRID_KEYS;
  MOTH_GRID_UNROLL
  for (int k = 0; k < 4; k++) {
    double ignored = 1;
    at[k] = moth_grid_place(rint(moth_grid_inside(g, low - 1 + k, size, &ignored)), size);
    w[k] = moth_grid_cubic(taps[k], t, order) * by;
  }
  return 4;
}

/* The number of taps of a point. */
MOTH_GRID int moth_grid_count(const moth_grid *g) {
  const int n = g->mode == MOTH_GRID_LINEAR ? 2 : g->mode == MOTH_GRID_NEAREST ? 1 : 4;
  return g->sides == 2 ? n * n : n * n * n;
}

/* Computes the taps of the point (x, y[, z]): positions in a plane or a volume (-1 outside), and
** weights. */
MOTH_GRID void moth_grid_taps(const moth_grid *g, const double *where, int64_t *at, double *w) {
  int64_t p[3][4] = {{0}, {0}, {0}};
  double by[3][4] = {{1}, {1}, {1}};
  int n[3] = {1, 1, 1}, k = 0;
  for (int side = 0; side < g->sides; side++)
    n[side] = moth_grid_side(g, side, where[side], p[side], by[side]);
  for (int c = 0; c < n[2]; c++)
    for (int b = 0; b < n[1]; b++)
      for (int a = 0; a < n[0]; a++, k++) {
        const bool in = p[0][a] >= 0 && p[1][b] >= 0 && p[2][c] >= 0;
        at[k] = in ? (p[2][c] * g->size[1] + p[1][b]) * g->size[0] + p[0][a] : -1;
        w[k] = in ? by[0][a] * by[1][b] * by[2][c] : 0;
      }
}

#endif
