/* grid_slope.h -- what grid.c and grid_slope.c share. */
#ifndef MOTH_OP_GRID_SLOPE_H
#define MOTH_OP_GRID_SLOPE_H

#include "grid.h"
#include "index.h"
#include "join.h"
#include "reduce.h"

typedef struct grid_how {
  moth_ctx *ctx;
  int64_t mode, padding;
  bool align;
} grid_how;

/* The gradients of grid_sample written with ops, to be differentiated any number of times. */
int moth_grid_slopes(const grid_sample_args *a, moth_grad *g);

#endif
