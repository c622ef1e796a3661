/* real.h -- floating-point kernels are written for f32 and f64; f16 and bf16 are converted to f32.
**
**     moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
**     int status = x && y ? compute(x, y) : a->ctx->error.code;
**     moth_tensor_release(x);
**     return moth_real_done(y, out[0], status);
*/
#ifndef MOTH_KERNEL_REAL_H
#define MOTH_KERNEL_REAL_H

#include "tensor/loop.h"

/* Returns x packed in f32 or f64: x itself, retained, if it already is. The caller owns the result;
** NULL: an error is set. */
moth_tensor *moth_real(const moth_tensor *x);
/* The buffer for a contiguous result y: y itself, retained, or an f32 tensor of its shape. */
moth_tensor *moth_real_out(moth_tensor *y);
/* Sets a contiguous y to 0. */
int moth_real_clear(moth_tensor *y);
/* Raises if x has another compute type than `like`; x may be NULL. For ops that accept f32 together
** with half types although their kernels have one type. */
int moth_real_alike(const char *arg, const moth_tensor *x, const moth_tensor *like);
/* Copies work to y unless it is y, and releases work. Returns status. */
int moth_real_done(moth_tensor *work, moth_tensor *y, int status);

#endif
