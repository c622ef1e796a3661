/* depthwise.h -- depthwise f32 convolution: no matrix products, but loops over planes with their
** borders.
*/
#ifndef MOTH_KERNEL_DEPTHWISE_H
#define MOTH_KERNEL_DEPTHWISE_H

#include "conv.h"

bool moth_is_depthwise(const moth_conv *c);
/* Like those of conv.h; only for what moth_is_depthwise says. */
int moth_depthwise_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                           const float *bias, float *y);
int moth_depthwise_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                         float *dx);
int moth_depthwise_weight(moth_ctx *ctx, const moth_conv *c, const float *x, const float *dy,
                          float *dweight);

#endif
