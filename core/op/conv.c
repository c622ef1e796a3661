/* conv.c -- convolution (conv2d, conv1d), its gradients and its transpose.
**
** y = conv2d(x, w) is linear in x and in w. With dy the gradient of y, conv2d_input(dy, w) is that
** of x and conv2d_weight(x, dy) that of w; the gradients of these two are again among the three.
*/
#include "conv.h"

#include "conv_fit.h"
#include "view.h"

#define STEPS(a)                                                                        \
  .stride = INT2((a)->stride), .padding = (a)->padding, .dilation = INT2((a)->dilation), \
  .groups = (a)->groups

/* -- conv2d -- */

static int conv2d_shape(const conv2d_args *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_fit(a->input, a->weight, a->bias, HOW(a, 2), &c);
  return status ? status : moth_conv_result(&c, a->input, y);
}

static int conv2d_cpu(const conv2d_args *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_fit(a->input, a->weight, a->bias, HOW(a, 2), &c);
  return status ? status : moth_convolve(FORWARD, &c, a->input, a->weight, a->bias, out[0]);
}

static int conv2d_grad(const conv2d_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  if (moth_wants(g, a->weight))
    moth_flow(g, a->weight,
              GRAD(g, conv2d_weight, .input = a->input, .output = g->dy,
                   .kernel_size = INT2(&a->weight->l.shape[2]), STEPS(a)));
  moth_spent(g, a->input);
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              GRAD(g, conv2d_input, .input = g->dy, .weight = a->weight,
                   .size = INT2(&x->shape[x->ndim - 2]), STEPS(a)));
  if (moth_wants(g, a->bias)) moth_flow(g, a->bias, moth_sum_to_channels(g, g->dy, 2));
  return g->status;
}

MOTH_OP(conv2d, CONV2D,
  .doc = "Convolution of images with filters (cross-correlation, as everywhere in deep learning): "
         "(N, O, OH, OW) with OH = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1.",
  .examples =
    "moth.randn(2, 3, 8, 8), moth.randn(4, 3, 3, 3)\n"
    "moth.randn(2, 3, 7, 8), moth.randn(4, 3, 3, 2), moth.randn(4), {stride = {2, 1},"
    " padding = 1, dilation = {1, 2}}\n"
    "moth.randn(4, 5, 5), moth.randn(6, 2, 3, 3), {groups = 2}\n"
    "moth.randn(2, 3, 4, 4), moth.randn(2, 3, 1, 1), moth.randn(2)\n"
    "moth.randn(2, 3, 6, 5), moth.randn(4, 3, 2, 4), {padding = 'same', dilation = {3, 1}}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:weight weight:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD)

/* -- the gradient of the images -- */

static int conv2d_input_shape(const conv2d_input_args *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_input_fit(a->input, a->weight, a->size, HOW(a, 2), &c);
  return status ? status : moth_conv_images(&c, a->input, y);
}

static int conv2d_input_cpu(const conv2d_input_args *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_input_fit(a->input, a->weight, a->size, HOW(a, 2), &c);
  return status ? status : moth_convolve(INPUT, &c, a->input, a->weight, NULL, out[0]);
}

static int conv2d_input_grad(const conv2d_input_args *a, moth_grad *g) {
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, GRAD(g, conv2d, .input = g->dy, .weight = a->weight, STEPS(a)));
  if (moth_wants(g, a->weight))
    moth_flow(g, a->weight,
              GRAD(g, conv2d_weight, .input = g->dy, .output = a->input,
                   .kernel_size = INT2(&a->weight->l.shape[2]), STEPS(a)));
  return g->status;
}

MOTH_OP(conv2d_input, CONV2D_INPUT,
  .doc = "The gradient of conv2d's images.",
  .examples =
    "moth.randn(2, 4, 6, 6), moth.randn(4, 3, 3, 3), 8\n"
    "moth.randn(2, 4, 4, 8), moth.randn(4, 3, 3, 2), {7, 8}, {stride = {2, 1}, padding = 1,"
    " dilation = {1, 2}}\n"
    "moth.randn(6, 3, 3), moth.randn(6, 2, 3, 3), 5, {groups = 2}\n"
    "moth.randn(4, 5, 5), moth.randn(4, 3, 2, 4), 5, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:weight weight:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN)

/* -- the gradient of the filters -- */

static int conv2d_weight_shape(const conv2d_weight_args *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_weight_fit(a->input, a->output, a->kernel_size, HOW(a, 2), &c);
  return status ? status : moth_conv_filters(&c, y);
}

static int conv2d_weight_cpu(const conv2d_weight_args *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_weight_fit(a->input, a->output, a->kernel_size, HOW(a, 2), &c);
  return status ? status : moth_convolve(WEIGHT, &c, a->input, a->output, NULL, out[0]);
}

static int conv2d_weight_grad(const conv2d_weight_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              GRAD(g, conv2d_input, .input = a->output, .weight = g->dy,
                   .size = INT2(&x->shape[x->ndim - 2]), STEPS(a)));
  if (moth_wants(g, a->output))
    moth_flow(g, a->output, GRAD(g, conv2d, .input = a->input, .weight = g->dy, STEPS(a)));
  return g->status;
}

MOTH_OP(conv2d_weight, CONV2D_WEIGHT,
  .doc = "The gradient of conv2d's filters.",
  .examples =
    "moth.randn(2, 3, 8, 8), moth.randn(2, 4, 6, 6), 3\n"
    "moth.randn(2, 3, 7, 8), moth.randn(2, 4, 4, 8), {3, 2}, {stride = {2, 1}, padding = 1,"
    " dilation = {1, 2}}\n"
    "moth.randn(4, 5, 5), moth.randn(6, 3, 3), 3, {groups = 2}\n"
    "moth.randn(4, 5, 5), moth.randn(6, 5, 5), {2, 4}, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:output output:input",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN)

/* -- made of these -- */

static int conv_transpose2d_compose(const conv_transpose2d_args *a, moth_tensor **out) {
  const conv_how how = {2, NUMBERS, a->groups, a->padding, a->stride, a->dilation};
  conv_turned t;
  moth_tensor *y = NULL;
  int status = moth_conv_turned_fit(a->input, a->weight, a->bias, &how, a->output_padding, &t);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, conv2d_input, .input = a->input, .weight = a->weight,
                       .size = INT2(t.size), .stride = INT2(a->stride),
                       .padding = {NUMBERS, INT2(t.padding)}, .dilation = INT2(a->dilation),
                       .groups = a->groups);
  return status ? status : moth_conv_turned_finish(&t, y, a->bias, 2, out);
}

MOTH_OP_COMPOSES(conv_transpose2d, CONV_TRANSPOSE2D,
  .doc = "Transposed convolution: the gradient of conv2d as an op of its own, which enlarges "
         "images.",
  .examples =
    "moth.randn(2, 3, 4, 4), moth.randn(3, 2, 3, 3)\n"
    "moth.randn(2, 4, 4, 3), moth.randn(4, 2, 3, 2), moth.randn(4), {stride = 2, padding = 1,"
    " output_padding = {1, 0}, groups = 2, dilation = {2, 1}}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

/* -- in one dimension: images of height one -- */

static int flatten_height(moth_tensor *y, moth_tensor **out) { /* takes y */
  int64_t height = -2;
  int status = MOTH_CALL(y->ctx, out, squeeze, .input = y, .dim = {&height, 1});
  moth_tensor_release(y);
  return status;
}

/* x and w := input and weight with a height of one before their last dimension. Owned, also after
** an error. */
static int heighten(moth_tensor *input, moth_tensor *weight, const char *names, moth_tensor **x,
                    moth_tensor **w) {
  moth_ctx *ctx = input->ctx;
  if (input->l.ndim != 2 && input->l.ndim != 3)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "(N, C, L) or (C, L) is needed, got %s",
                     moth_str(input));
  if (weight->l.ndim != 3)
    return moth_fail(ctx, MOTH_E_SHAPE, "weight", "%s is needed, got %s", names, moth_str(weight));
  int status = MOTH_CALL(ctx, x, unsqueeze, .input = input, .dim = -2);
  return status ? status : MOTH_CALL(ctx, w, unsqueeze, .input = weight, .dim = -2);
}

static int conv1d_compose(const conv1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *w = NULL, *y = NULL;
  int status = heighten(a->input, a->weight, "(O, C / groups, K)", &x, &w);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, conv2d, .input = x, .weight = w, .bias = a->bias,
                       .stride = {1, a->stride[0]},
                       .padding = {a->padding.choice, {0, a->padding.at[0]}},
                       .dilation = {1, a->dilation[0]}, .groups = a->groups);
  moth_tensor_release(x);
  moth_tensor_release(w);
  return status ? status : flatten_height(y, out);
}

MOTH_OP_COMPOSES(conv1d, CONV1D,
  .doc = "Convolution of sequences with filters.",
  .examples =
    "moth.randn(2, 3, 8), moth.randn(4, 3, 3)\n"
    "moth.randn(4, 9), moth.randn(6, 2, 3), moth.randn(6), {stride = 2, padding = 1,"
    " dilation = 2, groups = 2}\n"
    "moth.randn(2, 3, 8), moth.randn(4, 3, 4), {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

static int conv_transpose1d_compose(const conv_transpose1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *w = NULL, *y = NULL;
  int status = heighten(a->input, a->weight, "(C, O / groups, K)", &x, &w);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, conv_transpose2d, .input = x, .weight = w, .bias = a->bias,
                       .stride = {1, a->stride[0]}, .padding = {0, a->padding[0]},
                       .output_padding = {0, a->output_padding[0]}, .groups = a->groups,
                       .dilation = {1, a->dilation[0]});
  moth_tensor_release(x);
  moth_tensor_release(w);
  return status ? status : flatten_height(y, out);
}

MOTH_OP_COMPOSES(conv_transpose1d, CONV_TRANSPOSE1D,
  .doc = "Transposed convolution of sequences: the gradient of conv1d as an op of its own.",
  .examples =
    "moth.randn(2, 3, 5), moth.randn(3, 2, 3)\n"
    "moth.randn(4, 5), moth.randn(4, 2, 3), moth.randn(4), {stride = 3, padding = 1,"
    " output_padding = 2, groups = 2, dilation = 2}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

const moth_op *const moth_conv_ops[] = {
  &moth_op_conv2d, &moth_op_conv2d_input, &moth_op_conv2d_weight, &moth_op_conv_transpose2d,
  &moth_op_conv1d, &moth_op_conv_transpose1d, NULL,
};
