/* conv3d.h -- convolution of packed volumes, and its two gradients, by convolutions of images. */
#ifndef MOTH_KERNEL_CONV3D_H
#define MOTH_KERNEL_CONV3D_H

#include "conv.h"

/* Like the functions of conv.h, for windows with three axes and f32, f64 and bf16 operands. */
int moth_conv3d_forward(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x,
                        const void *weight, const void *bias, void *y);
int moth_conv3d_input(moth_ctx *ctx, int dtype, const moth_conv *c, const void *dy,
                      const void *weight, void *dx);
int moth_conv3d_weight(moth_ctx *ctx, int dtype, const moth_conv *c, const void *x,
                       const void *dy, void *dweight);

#endif
