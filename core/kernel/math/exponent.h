/* exponent.h -- splits numbers into mantissas and powers of two. */
#ifndef MOTH_KERNEL_EXPONENT_H
#define MOTH_KERNEL_EXPONENT_H

#include "base/threads.h"

/* x = mantissa 2^exponent, for n packed f32 or f64. The mantissa is in [1/2, 1). If x is 0 or not
** finite, the mantissa is x and the exponent 0. */
int moth_exponents_of(moth_ctx *ctx, int64_t n, int dtype, const void *x, void *mantissa,
                      int32_t *exponent);

#endif
