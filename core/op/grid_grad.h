/* grid_grad.h -- declarations shared by grid.c and grid_grad.c. */
#ifndef MOTH_OP_GRID_GRAD_H
#define MOTH_OP_GRID_GRAD_H

#include "grid.h"
#include "index.h"
#include "join.h"
#include "reduce.h"

typedef struct grid_how {
  moth_ctx *ctx;
  int64_t mode, padding;
  bool align;
} grid_how;

/* The gradients of grid_sample composed of ops; differentiable any number of times. */
int moth_grid_grads(const grid_sample_args *a, moth_grad *g);

#endif
