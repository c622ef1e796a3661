/* softmax.h -- kernels of softmax over packed f32 or f64 viewed as (outer, n, inner), along n. The
** n elements of one (outer, inner) are a strip. */
#ifndef MOTH_KERNEL_SOFTMAX_H
#define MOTH_KERNEL_SOFTMAX_H

#include "base/context.h"

typedef struct moth_strips {
  int64_t outer, n, inner;
} moth_strips;

/* The shape (outer, n, inner) of x for dimension `dim`; a 0-d tensor is one strip of one
** element. */
moth_strips moth_strips_of(const moth_layout *x, int32_t dim);

/* All functions poll and return a status. */
int moth_softmax(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm, const void *x,
                 void *y);
int moth_softmax_back(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm,
                      const void *dy, const void *y, void *dx);
/* y[i] := log(sum(exp(x))) of row i of n elements. */
int moth_logsumexp(moth_ctx *ctx, int dtype, int64_t rows, int64_t n, const void *x, void *y);

/* The maximum of each strip, and log(sum(exp(x - maximum))). Two separate numbers are exact where
** the loss is small. */
int moth_softmax_parts(moth_ctx *ctx, int dtype, const moth_strips *l, const void *x, void *most,
                       void *rest);
/* dx := factor (softmax(x) - 1 at the target), with a factor for each strip; 0 where the factor is
** 0. */
int moth_entropy_back(moth_ctx *ctx, int dtype, const moth_strips *l, const void *x,
                      const void *const parts[2], const int64_t *target, const void *factor,
                      void *dx);

#endif
