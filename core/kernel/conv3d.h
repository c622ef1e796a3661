/* conv3d.h -- convolution of packed volumes, and its two gradients, by convolutions of images. */
#ifndef MOTH_KERNEL_CONV3D_H
#define MOTH_KERNEL_CONV3D_H

#include "conv.h"

/* Volumes (n, channels, in) and filters (filters, channels / groups, kernel) give (n, filters,
** out); each group of filters sees its own group of channels. */
typedef struct moth_conv3d {
  moth_window3 w;
  int64_t n, channels, filters, groups;
} moth_conv3d;

/* As those of conv.h, for f32, f64 and bf16 operands. */
int moth_conv3d_forward(moth_ctx *ctx, int dtype, const moth_conv3d *c, const void *x,
                        const void *weight, const void *bias, void *y);
int moth_conv3d_input(moth_ctx *ctx, int dtype, const moth_conv3d *c, const void *dy,
                      const void *weight, void *dx);
int moth_conv3d_weight(moth_ctx *ctx, int dtype, const moth_conv3d *c, const void *x,
                       const void *dy, void *dweight);

#endif
