/* picture.h -- kernels of moth.transforms: pictures resampled with antialiasing, warped, and
** normalized. Bytes are computed with integers.
*/
#ifndef MOTH_KERNEL_PICTURE_H
#define MOTH_KERNEL_PICTURE_H

#include "base/context.h"

enum { MOTH_PICTURE_BILINEAR, MOTH_PICTURE_BICUBIC };

typedef struct moth_picture {
  int64_t images, channels, in[2], out[2];
  int64_t step[4]; /* between images, channels, rows and pixels of x, in elements */
  int mode;
  bool antialias; /* of a smaller result: average over all pixels */
} moth_picture;

/* y, contiguous, from x. The pixels of a row of x are adjacent, or each has its channels adjacent.
** The rounding is that of PyTorch's and Pillow's: rows first, in bytes. Polls. */
int moth_picture_resize_bytes(moth_ctx *ctx, const moth_picture *p, const uint8_t *x, uint8_t *y);
/* The same for contiguous x in MOTH_F32 or MOTH_F64. */
int moth_picture_resize_real(moth_ctx *ctx, int dtype, const moth_picture *p, const void *x,
                             void *y);

/* y[i] := (x[i] * scale - mean) / deviation, rounded after each step. */
void moth_picture_normalize(int64_t n, int64_t step, const uint8_t *x, float scale, float mean,
                            float deviation, float *y);

#endif
