/* softmax.h -- kernels of softmax over packed f32 or f64 seen as (outer, n, inner), along n. */
#ifndef MOTH_KERNEL_SOFTMAX_H
#define MOTH_KERNEL_SOFTMAX_H

#include "../context.h"

typedef struct moth_strips {
  int64_t outer, n, inner;
} moth_strips;

/* How x looks from dimension `dim`; a 0-d tensor is one lane of one element. */
moth_strips moth_strips_of(const moth_layout *x, int32_t dim);

/* Each polls and returns a status. */
int moth_softmax(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm, const void *x,
                 void *y);
int moth_softmax_back(moth_ctx *ctx, int dtype, const moth_strips *l, bool logarithm,
                      const void *dy, const void *y, void *dx);
/* y[i] := log(sum(exp(x))) of row i of n elements. */
int moth_logsumexp(moth_ctx *ctx, int dtype, int64_t rows, int64_t n, const void *x, void *y);

#endif
