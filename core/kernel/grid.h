/* grid.h -- kernels of grid_sample over packed f32 or f64. */
#ifndef MOTH_KERNEL_GRID_H
#define MOTH_KERNEL_GRID_H

#include "base/context.h"
#include "grid_taps.h"

typedef struct moth_gridded {
  moth_grid g;
  int64_t samples, channels, points; /* images (samples, channels, plane), points of the result */
  int64_t plane;                     /* elements of an image or a volume */
  const void *grid;                  /* (samples, points, sides) */
} moth_gridded;

/* Taps are found for a run of places at once: positions, -1 outside, and of each set (the values,
** or their slopes along each side) weights of the dtype, [set][MOTH_GRID_TAPS][MOTH_GRID_RUN]. What
** stands behind the n-th place may be read, and is of no use. */
enum { MOTH_GRID_RUN = 32 };
typedef void moth_grid_find(const moth_grid *g, int64_t n, const void *grid, bool slopes,
                            int32_t (*at)[MOTH_GRID_RUN], void *weights);
moth_grid_find *moth_grid_finder(int dtype, const moth_grid *g, bool slopes);

/* y (samples, channels, points) := x at the places. */
int moth_grid_sample(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *x, void *y);
/* dx := what arrives at the images. */
int moth_grid_back(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *dy, void *dx);
/* dgrid := what arrives at the places. */
int moth_grid_turn(moth_ctx *ctx, int dtype, const moth_gridded *s, const void *x, const void *dy,
                   void *dgrid);
/* Of each place the K taps: weights of the dtype, or positions; one of both may be NULL. */
int moth_grid_list(moth_ctx *ctx, int dtype, const moth_gridded *s, void *weight, int64_t *at);

#endif
