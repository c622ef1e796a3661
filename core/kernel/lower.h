/* lower.h -- the fast f32 convolution: images lowered along the width only, and tiles. */
#ifndef MOTH_KERNEL_LOWER_H
#define MOTH_KERNEL_LOWER_H

#include "conv.h"
#include "tile.h"

/* Like those of conv.h. MOTH_NOT_LOWERED: the shape does not suit, nothing was done. */
#define MOTH_NOT_LOWERED 2
int moth_lower_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                       const float *bias, float *y);
int moth_lower_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                     float *dx);
int moth_lower_weight(moth_ctx *ctx, const moth_conv *c, const float *x, const float *dy,
                      float *dweight);

/* The windows first..last-1 of a row whose tap at `left` from the window's start is inside. */
static inline void moth_window_seen(const moth_window *w, int64_t left, int64_t *first,
                                    int64_t *last) {
  int64_t step = w->stride[1], room = w->in[1] - left;
  int64_t end = room > 0 ? (room + step - 1) / step : 0;
  *first = left < 0 ? (step - 1 - left) / step : 0;
  *last = end < w->out[1] ? end : w->out[1];
  if (*first > *last) *first = *last;
}

#endif
