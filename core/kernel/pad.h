/* pad.h -- padding: the source of each element, and the gradient. */
#ifndef MOTH_KERNEL_PAD_H
#define MOTH_KERNEL_PAD_H

#include "base/context.h"

enum { MOTH_PAD_CONSTANT, MOTH_PAD_REFLECT, MOTH_PAD_REPLICATE, MOTH_PAD_CIRCULAR };

typedef struct moth_pad {
  int32_t ndim, mode; /* at least one dimension */
  int64_t in[MOTH_MAX_DIMS], out[MOTH_MAX_DIMS];
  int64_t before[MOTH_MAX_DIMS]; /* negative: elements are cut off */
} moth_pad;

/* y := packed x with its border. Elements have `size` bytes; `fill` points to one element. */
int moth_pad_forward(moth_ctx *ctx, const moth_pad *p, int64_t size, const char *x,
                     const char *fill, char *y);
/* dx := for each element, the sum of dy over its copies. f32 or f64. */
int moth_pad_back(moth_ctx *ctx, const moth_pad *p, int dtype, const void *dy, void *dx);

#endif
