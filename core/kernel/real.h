/* real.h -- floating-point kernels are written for f32 and f64; f16 and bf16 pass through f32.
**
**   moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
**   int status = x && y ? compute(x, y) : a->ctx->error.code;
**   moth_tensor_release(x);
**   return moth_real_done(y, out[0], status);
*/
#ifndef MOTH_KERNEL_REAL_H
#define MOTH_KERNEL_REAL_H

#include "tensor/loop.h"

/* x packed and in f32 or f64: x itself, retained, if it is that already. Owned; NULL: error set. */
moth_tensor *moth_real(const moth_tensor *x);
/* Where to compute a contiguous result: y itself, retained, or an f32 tensor of its shape. */
moth_tensor *moth_real_out(moth_tensor *y);
/* A contiguous y becomes 0. */
int moth_real_clear(moth_tensor *y);
/* Refuses x, which may be NULL, where it computes in another type than `like`: for ops that take
** f32 beside half types, whose kernels believe in one type all the same. */
int moth_real_alike(const char *arg, const moth_tensor *x, const moth_tensor *like);
/* Copies work into y if it is not y, and releases it; passes on the status. */
int moth_real_done(moth_tensor *work, moth_tensor *y, int status);

#endif
