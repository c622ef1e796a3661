/* conv.c -- convolution (conv2d, conv1d), its gradients and transposed convolution. conv_buffers.h
** holds the code shared with conv3d.c.
*/
#include "conv.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#define DIMS 2
#include "conv_buffers.h"
#include "one_dimension.h"

MOTH_OP(conv2d, CONV2D,
  .doc = "2D convolution (cross-correlation) of images with filters: (N, O, OH, OW) with OH = "
         "floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1.",
  .examples =
    "moth.randn(2, 3, 8, 8), moth.randn(4, 3, 3, 3)\n"
    "moth.randn(2, 3, 7, 8), moth.randn(4, 3, 3, 2), moth.randn(4), {stride = {2, 1},"
    " padding = 1, dilation = {1, 2}}\n"
    "moth.randn(4, 5, 5), moth.randn(6, 2, 3, 3), {groups = 2}\n"
    "moth.randn(2, 3, 4, 4), moth.randn(2, 3, 1, 1), moth.randn(2)\n"
    "moth.randn(2, 3, 6, 5), moth.randn(4, 3, 2, 4), {padding = 'same', dilation = {3, 1}}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:weight weight:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

MOTH_OP(conv2d_input, CONV2D_INPUT,
  .doc = "The gradient of conv2d for its input.",
  .examples =
    "moth.randn(2, 4, 6, 6), moth.randn(4, 3, 3, 3), 8\n"
    "moth.randn(2, 4, 4, 8), moth.randn(4, 3, 3, 2), {7, 8}, {stride = {2, 1}, padding = 1,"
    " dilation = {1, 2}}\n"
    "moth.randn(6, 3, 3), moth.randn(6, 2, 3, 3), 5, {groups = 2}\n"
    "moth.randn(4, 5, 5), moth.randn(4, 3, 2, 4), 5, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:weight weight:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "conv2d")

MOTH_OP(conv2d_weight, CONV2D_WEIGHT,
  .doc = "The gradient of conv2d for its weight.",
  .examples =
    "moth.randn(2, 3, 8, 8), moth.randn(2, 4, 6, 6), 3\n"
    "moth.randn(2, 3, 7, 8), moth.randn(2, 4, 4, 8), {3, 2}, {stride = {2, 1}, padding = 1,"
    " dilation = {1, 2}}\n"
    "moth.randn(4, 5, 5), moth.randn(6, 3, 3), 3, {groups = 2}\n"
    "moth.randn(4, 5, 5), moth.randn(6, 5, 5), {2, 4}, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:output output:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "conv2d")

MOTH_OP_COMPOSES(conv_transpose2d, CONV_TRANSPOSE2D,
  .doc = "2D transposed convolution: the gradient of conv2d for its input, used as a layer that "
         "enlarges images: OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + "
         "1.",
  .examples =
    "moth.randn(2, 3, 4, 4), moth.randn(3, 2, 3, 3)\n"
    "moth.randn(2, 4, 4, 3), moth.randn(4, 2, 3, 2), moth.randn(4), {stride = 2, padding = 1,"
    " output_padding = {1, 0}, groups = 2, dilation = {2, 1}}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

/* -- in one dimension: images of height one -- */

/* x and w := input and weight with a height of 1 before their last dimension. The caller owns both,
** also after an error. */
static int both_with_height(moth_tensor *input, moth_tensor *weight, const char *names,
                            moth_tensor **x, moth_tensor **w) {
  int status = with_height(input, x);
  if (status) return status;
  if (weight->l.ndim != 3)
    return moth_fail(input->ctx, MOTH_E_SHAPE, "weight", "%s is needed, got %s", names,
                     moth_str(weight));
  return heighten(weight, w);
}

static int conv1d_compose(const conv1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *w = NULL, *y = NULL;
  int status = both_with_height(a->input, a->weight, "(O, C / groups, K)", &x, &w);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, conv2d, .input = x, .weight = w, .bias = a->bias,
                       .stride = {1, a->stride[0]},
                       .padding = {a->padding.choice, {0, a->padding.at[0]}},
                       .dilation = {1, a->dilation[0]}, .groups = a->groups);
  moth_tensor_release(x);
  moth_tensor_release(w);
  return status ? status : without_height(a->ctx, &y, 1, out);
}

MOTH_OP_COMPOSES(conv1d, CONV1D,
  .doc = "1D convolution (cross-correlation) of sequences with filters: (N, O, OL) with OL = "
         "floor((L + 2 padding - dilation (K - 1) - 1) / stride) + 1.",
  .examples =
    "moth.randn(2, 3, 8), moth.randn(4, 3, 3)\n"
    "moth.randn(4, 9), moth.randn(6, 2, 3), moth.randn(6), {stride = 2, padding = 1,"
    " dilation = 2, groups = 2}\n"
    "moth.randn(2, 3, 8), moth.randn(4, 3, 4), {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

static int conv_transpose1d_compose(const conv_transpose1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *w = NULL, *y = NULL;
  int status = both_with_height(a->input, a->weight, "(C, O / groups, K)", &x, &w);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, conv_transpose2d, .input = x, .weight = w, .bias = a->bias,
                       .stride = {1, a->stride[0]}, .padding = {0, a->padding[0]},
                       .output_padding = {0, a->output_padding[0]}, .groups = a->groups,
                       .dilation = {1, a->dilation[0]});
  moth_tensor_release(x);
  moth_tensor_release(w);
  return status ? status : without_height(a->ctx, &y, 1, out);
}

MOTH_OP_COMPOSES(conv_transpose1d, CONV_TRANSPOSE1D,
  .doc = "1D transposed convolution: the gradient of conv1d for its input, used as a layer that "
         "enlarges sequences: OL = (L - 1) stride - 2 padding + dilation (K - 1) + output_padding "
         "+ 1.",
  .examples =
    "moth.randn(2, 3, 5), moth.randn(3, 2, 3)\n"
    "moth.randn(4, 5), moth.randn(4, 2, 3), moth.randn(4), {stride = 3, padding = 1,"
    " output_padding = 2, groups = 2, dilation = 2}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

const moth_op *const moth_conv_ops[] = {
  &moth_op_conv2d, &moth_op_conv2d_input, &moth_op_conv2d_weight, &moth_op_conv_transpose2d,
  &moth_op_conv1d, &moth_op_conv_transpose1d, NULL,
};
