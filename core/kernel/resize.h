/* resize.h -- resize of planes: each axis has weighted sums of a few taps, which are the same for
** all planes.
*/
#ifndef MOTH_KERNEL_RESIZE_H
#define MOTH_KERNEL_RESIZE_H

#include "base/context.h"
#include "resize_taps.h"

typedef struct moth_resize {
  int64_t planes, in[2], out[2];
  int mode;
  bool align; /* align_corners */
  double scale[2]; /* enlargement; 0: out / in */
} moth_resize;

/* y from x, and dx from dy, in MOTH_F32 or MOTH_F64. Both functions poll. */
int moth_resize_forward(moth_ctx *ctx, int dtype, const moth_resize *r, const void *x, void *y);
int moth_resize_back(moth_ctx *ctx, int dtype, const moth_resize *r, const void *dy, void *dx);

#endif
