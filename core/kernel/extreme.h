/* extreme.h -- argmax and argmin of packed f32 or f64 viewed as (outer, n, inner), along n. */
#ifndef MOTH_KERNEL_EXTREME_H
#define MOTH_KERNEL_EXTREME_H

#include "base/context.h"

/* y: outer * inner positions from 0. The first of equal values wins, NaN wins over all. n is from 1
** to INT32_MAX, unless inner is 1. */
int moth_extremes(moth_ctx *ctx, int dtype, int64_t outer, int64_t n, int64_t inner, bool least,
                  const void *x, int64_t *y);

#endif
