/* pool.h -- kernels of pooling over packed planes in f32 or f64. */
#ifndef MOTH_KERNEL_POOL_H
#define MOTH_KERNEL_POOL_H

#include "kernel/conv/window.h"

typedef struct moth_pool {
  moth_window w;
  int64_t planes;
  bool count_padding; /* mean: divide by the window's size, padding included */
  int64_t divisor;    /* ... or by this number, unless it is 0 */
} moth_pool;

/* All functions poll and return a status; dtype is MOTH_F32 or MOTH_F64. index has flat positions
** in the plane, or -1 for a window without elements. */
int moth_max_pool(moth_ctx *ctx, int dtype, const moth_pool *p, const void *x, void *y,
                  int64_t *index);
int moth_mean_pool(moth_ctx *ctx, int dtype, const moth_pool *p, const void *x, void *y);
int moth_mean_pool_back(moth_ctx *ctx, int dtype, const moth_pool *p, const void *dy, void *dx);

/* Adaptive windows, from in[] elements to out[] results: on each axis, result i covers the elements
** from floor(i in / out) to ceil((i + 1) in / out) - 1. */
typedef struct moth_shares {
  int64_t planes, in[2], out[2];
} moth_shares;
int moth_max_shares(moth_ctx *ctx, int dtype, const moth_shares *p, const void *x, void *y,
                    int64_t *index);
int moth_mean_shares(moth_ctx *ctx, int dtype, const moth_shares *p, const void *x, void *y);
int moth_mean_shares_back(moth_ctx *ctx, int dtype, const moth_shares *p, const void *dy,
                          void *dx);

/* Scatter: plane[index[i]] += dy[i], for planes of `area` elements, initially 0. Gather: y[i] =
** x[index[i]]. A position outside its plane is an error. */
int moth_pool_scatter(moth_ctx *ctx, int dtype, int64_t planes, int64_t n, int64_t area,
                      const void *dy, const int64_t *index, void *dx);
int moth_pool_gather(moth_ctx *ctx, int dtype, int64_t planes, int64_t n, int64_t area,
                     const void *x, const int64_t *index, void *y);

#endif
