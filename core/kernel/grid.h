/* grid.h -- kernels of grid_sample over packed f32 or f64. */
#ifndef MOTH_KERNEL_GRID_H
#define MOTH_KERNEL_GRID_H

#include "base/context.h"
#include "grid_taps.h"

typedef struct moth_gridded {
  moth_grid g;
  int64_t samples, channels, points; /* images (samples, channels, plane); points: of the result */
  int64_t plane;                     /* elements of an image or of a volume */
  const void *grid;                  /* (samples, points, sides) */
} moth_gridded;

/* Computes the taps of n points: positions, or -1 outside, and sets of weights,
** [set][MOTH_GRID_TAPS][MOTH_GRID_RUN], in the dtype of the points. A set is for values, or for the
** derivative along a side. Taps after the n-th point have valid positions, but no meaning. */
enum { MOTH_GRID_RUN = 32 };
typedef void moth_grid_find(const moth_grid *g, int64_t n, const void *grid, bool derivatives,
                            int32_t (*at)[MOTH_GRID_RUN], void *weights);
moth_grid_find *moth_grid_finder(int dtype, const moth_grid *g, bool derivatives);

/* y (samples, channels, points) := x at the grid points. */
int moth_grid_sample(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *x, void *y);
/* dx := the gradient of the images. */
int moth_grid_back(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *dy, void *dx);
/* dgrid := the gradient of the grid. */
int moth_grid_points_back(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *x,
                          const void *dy, void *dgrid);
/* The K taps of each point: weights of the dtype, and positions. weight or `at` may be NULL. */
int moth_grid_list(moth_ctx *ctx, int dtype, const moth_gridded *s, void *weight, int64_t *at);

#endif
