/* picture_warp.h -- pictures in another perspective. */
#ifndef MOTH_KERNEL_PICTURE_WARP_H
#define MOTH_KERNEL_PICTURE_WARP_H

#include "base/context.h"

typedef struct moth_warp {
  int64_t images, channels, in[2], out[2];
  int64_t step[4];    /* between images, channels, rows and pixels of x, in elements */
  double at[9];       /* pixel (x, y) reads (a x + b y + c, d x + e y + f) / (g x + h y + i) */
  bool nearest;       /* else bilinear */
  const double *fill; /* the value outside, `nfill` numbers: one, or one for each channel */
  int64_t nfill;      /* 0: 0 */
} moth_warp;

/* y, contiguous, from x, both in MOTH_U8 or MOTH_F32. Polls. */
int moth_picture_warp(moth_ctx *ctx, int dtype, const moth_warp *w, const void *x, void *y);

#endif
