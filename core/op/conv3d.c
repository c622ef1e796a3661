/* conv3d.c -- convolution of volumes (conv3d), its gradients and transposed convolution. As conv.c,
** with a depth dimension.
*/
#include "conv3d.h"

#define DIMS 3
#include "conv_buffers.h"

MOTH_OP(conv3d, CONV3D,
  .doc = "3D convolution (cross-correlation) of volumes with filters: (N, O, OD, OH, OW) with OH = "
         "floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1.",
  .examples =
    "moth.randn(2, 3, 4, 5, 5), moth.randn(4, 3, 3, 3, 3)\n"
    "moth.randn(2, 2, 5, 4, 6), moth.randn(3, 2, 3, 2, 2), moth.randn(3), {stride = {2, 1, 2},"
    " padding = {1, 0, 1}, dilation = {1, 2, 1}}\n"
    "moth.randn(4, 3, 4, 4), moth.randn(4, 2, 2, 3, 3), {groups = 2}\n"
    "moth.randn(2, 3, 4, 2, 3), moth.randn(2, 3, 2, 1, 1), moth.randn(2)\n"
    "moth.randn(2, 3, 2, 5, 4), moth.randn(2, 3, 2, 3, 3), moth.randn(2)\n"
    "moth.randn(1, 2, 4, 3, 4), moth.randn(2, 2, 2, 3, 4), {padding = 'same',"
    " dilation = {3, 1, 1}}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:weight weight:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

MOTH_OP(conv3d_input, CONV3D_INPUT,
  .doc = "The gradient of conv3d for its input.",
  .examples =
    "moth.randn(2, 3, 2, 3, 3), moth.randn(3, 2, 3, 3, 3), {4, 5, 5}\n"
    "moth.randn(2, 3, 3, 2, 4), moth.randn(3, 2, 3, 2, 2), {5, 4, 6}, {stride = {2, 1, 2},"
    " padding = {1, 0, 1}, dilation = {1, 2, 1}}\n"
    "moth.randn(4, 2, 2, 2), moth.randn(4, 2, 2, 3, 3), {3, 4, 4}, {groups = 2}\n"
    "moth.randn(2, 2, 3, 4), moth.randn(2, 2, 2, 1, 4), {2, 3, 4}, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:weight weight:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "conv3d")

MOTH_OP(conv3d_weight, CONV3D_WEIGHT,
  .doc = "The gradient of conv3d for its weight.",
  .examples =
    "moth.randn(2, 2, 4, 5, 5), moth.randn(2, 3, 2, 3, 3), 3\n"
    "moth.randn(2, 2, 5, 4, 6), moth.randn(2, 3, 3, 2, 4), {3, 2, 2}, {stride = {2, 1, 2},"
    " padding = {1, 0, 1}, dilation = {1, 2, 1}}\n"
    "moth.randn(4, 3, 4, 4), moth.randn(4, 2, 2, 2), {2, 3, 3}, {groups = 2}\n"
    "moth.randn(2, 2, 3, 4), moth.randn(3, 2, 3, 4), {2, 1, 4}, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:output output:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "conv3d")

MOTH_OP_COMPOSES(conv_transpose3d, CONV_TRANSPOSE3D,
  .doc = "3D transposed convolution: the gradient of conv3d for its input, used as a layer that "
         "enlarges volumes: OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + "
         "1.",
  .examples =
    "moth.randn(2, 3, 2, 3, 3), moth.randn(3, 2, 2, 3, 3)\n"
    "moth.randn(2, 4, 2, 3, 2), moth.randn(4, 1, 2, 3, 2), moth.randn(2), {stride = {1, 2, 2},"
    " padding = {0, 1, 0}, output_padding = {0, 1, 1}, groups = 2, dilation = {1, 2, 1}}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

const moth_op *const moth_conv3d_ops[] = {
  &moth_op_conv3d, &moth_op_conv3d_input, &moth_op_conv3d_weight, &moth_op_conv_transpose3d, NULL,
};
