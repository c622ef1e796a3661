/* fft.h -- Fourier transforms of many packed signals in f32 or f64. A complex number is two
** numbers.
**
** A real signal of n numbers has n / 2 + 1 coefficients: the others are their complex conjugates.
*/
#ifndef MOTH_KERNEL_FFT_H
#define MOTH_KERNEL_FFT_H

#include "base/context.h"

enum { MOTH_FFT_COMPLEX, MOTH_FFT_TO_HALF, MOTH_FFT_FROM_HALF };

typedef struct moth_fft {
  int kind;
  int64_t n, outer, inner; /* signals of n numbers, whose neighbors are `inner` apart */
  bool inverse;            /* the exponents are positive */
  bool twice;              /* coefficients whose conjugate is omitted are multiplied by 2 */
  double scale;
} moth_fft;

/* Polls; returns a status. A context caches the plans used last, outside its memory limit: several
** plans of together 64 MiB, or a single larger one. */
int moth_fft_run(moth_ctx *ctx, int dtype, const moth_fft *f, const void *x, void *y);

void moth_fft_forget(moth_ctx *ctx); /* frees all plans */

#endif
