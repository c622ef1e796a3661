/* depthwise.h -- depthwise f32 convolution: loops over planes with borders, without matrix
** products.
*/
#ifndef MOTH_KERNEL_DEPTHWISE_H
#define MOTH_KERNEL_DEPTHWISE_H

#include "conv.h"

bool moth_is_depthwise(const moth_conv *c);
/* Like the functions of conv.h, but only for shapes for which moth_is_depthwise returns true. */
int moth_depthwise_forward(moth_ctx *ctx, const moth_conv *c, const float *x, const float *weight,
                           const float *bias, float *y);
int moth_depthwise_input(moth_ctx *ctx, const moth_conv *c, const float *dy, const float *weight,
                         float *dx);
int moth_depthwise_weight(moth_ctx *ctx, const moth_conv *c, const float *x, const float *dy,
                          float *dweight);

#endif
