/* conv.h -- convolution over packed f32 or f64, and its two gradients. */
#ifndef MOTH_KERNEL_CONV_H
#define MOTH_KERNEL_CONV_H

#include "window.h"

/* Images or volumes (n, channels, in) and filters (filters, channels / groups, kernel). Results are
** (n, filters, out). Each group of filters has its own group of channels. */
typedef struct moth_conv {
  moth_window w;
  int64_t n, channels, filters, groups;
} moth_conv;

/* An internal status in addition to those of moth.h: this method does not suit the shape or the
** machine, and nothing was computed. */
enum { MOTH_DECLINED = 1 << 16 };

/* y := x * weight + bias, where bias may be NULL; dx from dy and weight; dweight from x and dy. All
** functions poll and return a status. dtype MOTH_BF16: the operands are bf16, bias and results are
** f32. MOTH_DECLINED: convert the operands to f32 and call again. */
int moth_conv_forward(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x,
                      const void *weight, const void *bias, void *y);
int moth_conv_input(moth_ctx *ctx, int dtype, const moth_conv *c, const void *dy,
                    const void *weight, void *dx);
int moth_conv_weight(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x, const void *dy,
                     void *dweight);

/* im2col: images (n, channels, in) to columns (n, channels kernel, out); and col2im, which adds
** overlapping windows. */
int moth_columns(moth_ctx *ctx, int dtype, const moth_window *w, int64_t n, int64_t channels,
                 const void *x, void *columns);
int moth_columns_back(moth_ctx *ctx, int dtype, const moth_window *w, int64_t n, int64_t channels,
                      const void *columns, void *x);

#endif
