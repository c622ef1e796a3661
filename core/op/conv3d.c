/* conv3d.c -- convolution of volumes (conv3d), its gradients and its transpose: as in conv.c, which
** says how the three belong together, with a depth.
*/
#include "conv3d.h"

#include "conv_fit.h"

#define STEPS(a)                                                                        \
  .stride = INT3((a)->stride), .padding = (a)->padding, .dilation = INT3((a)->dilation), \
  .groups = (a)->groups

/* -- conv3d -- */

static int conv3d_shape(const conv3d_args *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_fit(a->input, a->weight, a->bias, HOW(a, 3), &c);
  return status ? status : moth_conv_result(&c, a->input, y);
}

static int conv3d_cpu(const conv3d_args *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_fit(a->input, a->weight, a->bias, HOW(a, 3), &c);
  return status ? status : moth_convolve(FORWARD, &c, a->input, a->weight, a->bias, out[0]);
}

static int conv3d_grad(const conv3d_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  if (moth_wants(g, a->weight))
    moth_flow(g, a->weight,
              GRAD(g, conv3d_weight, .input = a->input, .output = g->dy,
                   .kernel_size = INT3(&a->weight->l.shape[2]), STEPS(a)));
  moth_spent(g, a->input);
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              GRAD(g, conv3d_input, .input = g->dy, .weight = a->weight,
                   .size = INT3(&x->shape[x->ndim - 3]), STEPS(a)));
  if (moth_wants(g, a->bias)) moth_flow(g, a->bias, moth_sum_to_channels(g, g->dy, 3));
  return g->status;
}

MOTH_OP(conv3d, CONV3D,
  .doc = "Convolution of volumes with filters (cross-correlation, as everywhere in deep learning): "
         "(N, O, OD, OH, OW) with OH = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1.",
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
  .flags = MOTH_OP_METHOD)

/* -- the gradient of the volumes -- */

static int conv3d_input_shape(const conv3d_input_args *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_input_fit(a->input, a->weight, a->size, HOW(a, 3), &c);
  return status ? status : moth_conv_images(&c, a->input, y);
}

static int conv3d_input_cpu(const conv3d_input_args *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_input_fit(a->input, a->weight, a->size, HOW(a, 3), &c);
  return status ? status : moth_convolve(INPUT, &c, a->input, a->weight, NULL, out[0]);
}

static int conv3d_input_grad(const conv3d_input_args *a, moth_grad *g) {
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, GRAD(g, conv3d, .input = g->dy, .weight = a->weight, STEPS(a)));
  if (moth_wants(g, a->weight))
    moth_flow(g, a->weight,
              GRAD(g, conv3d_weight, .input = g->dy, .output = a->input,
                   .kernel_size = INT3(&a->weight->l.shape[2]), STEPS(a)));
  return g->status;
}

MOTH_OP(conv3d_input, CONV3D_INPUT,
  .doc = "The gradient of conv3d's volumes.",
  .examples =
    "moth.randn(2, 3, 2, 3, 3), moth.randn(3, 2, 3, 3, 3), {4, 5, 5}\n"
    "moth.randn(2, 3, 3, 2, 4), moth.randn(3, 2, 3, 2, 2), {5, 4, 6}, {stride = {2, 1, 2},"
    " padding = {1, 0, 1}, dilation = {1, 2, 1}}\n"
    "moth.randn(4, 2, 2, 2), moth.randn(4, 2, 2, 3, 3), {3, 4, 4}, {groups = 2}\n"
    "moth.randn(2, 2, 3, 4), moth.randn(2, 2, 2, 1, 4), {2, 3, 4}, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:weight weight:input",
  .flags = MOTH_OP_HIDDEN)

/* -- the gradient of the filters -- */

static int conv3d_weight_shape(const conv3d_weight_args *a, moth_layout *y) {
  moth_conv c;
  int status = moth_conv_weight_fit(a->input, a->output, a->kernel_size, HOW(a, 3), &c);
  return status ? status : moth_conv_filters(&c, y);
}

static int conv3d_weight_cpu(const conv3d_weight_args *a, moth_tensor **out) {
  moth_conv c;
  int status = moth_conv_weight_fit(a->input, a->output, a->kernel_size, HOW(a, 3), &c);
  return status ? status : moth_convolve(WEIGHT, &c, a->input, a->output, NULL, out[0]);
}

static int conv3d_weight_grad(const conv3d_weight_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              GRAD(g, conv3d_input, .input = a->output, .weight = g->dy,
                   .size = INT3(&x->shape[x->ndim - 3]), STEPS(a)));
  if (moth_wants(g, a->output))
    moth_flow(g, a->output, GRAD(g, conv3d, .input = a->input, .weight = g->dy, STEPS(a)));
  return g->status;
}

MOTH_OP(conv3d_weight, CONV3D_WEIGHT,
  .doc = "The gradient of conv3d's filters.",
  .examples =
    "moth.randn(2, 2, 4, 5, 5), moth.randn(2, 3, 2, 3, 3), 3\n"
    "moth.randn(2, 2, 5, 4, 6), moth.randn(2, 3, 3, 2, 4), {3, 2, 2}, {stride = {2, 1, 2},"
    " padding = {1, 0, 1}, dilation = {1, 2, 1}}\n"
    "moth.randn(4, 3, 4, 4), moth.randn(4, 2, 2, 2), {2, 3, 3}, {groups = 2}\n"
    "moth.randn(2, 2, 3, 4), moth.randn(3, 2, 3, 4), {2, 1, 4}, {padding = 'same'}",
  .dtypes = MOTH_FLOATS,
  .saves = "input:output output:input",
  .flags = MOTH_OP_HIDDEN)

/* -- made of these -- */

static int conv_transpose3d_compose(const conv_transpose3d_args *a, moth_tensor **out) {
  const conv_how how = {3, NUMBERS, a->groups, a->padding, a->stride, a->dilation};
  conv_turned t;
  moth_tensor *y = NULL;
  int status = moth_conv_turned_fit(a->input, a->weight, a->bias, &how, a->output_padding, &t);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, conv3d_input, .input = a->input, .weight = a->weight,
                       .size = INT3(t.size), .stride = INT3(a->stride),
                       .padding = {NUMBERS, INT3(t.padding)}, .dilation = INT3(a->dilation),
                       .groups = a->groups);
  return status ? status : moth_conv_turned_finish(&t, y, a->bias, 3, out);
}

MOTH_OP_COMPOSES(conv_transpose3d, CONV_TRANSPOSE3D,
  .doc = "Transposed convolution: the gradient of conv3d as an op of its own, which enlarges "
         "volumes.",
  .examples =
    "moth.randn(2, 3, 2, 3, 3), moth.randn(3, 2, 2, 3, 3)\n"
    "moth.randn(2, 4, 2, 3, 2), moth.randn(4, 1, 2, 3, 2), moth.randn(2), {stride = {1, 2, 2},"
    " padding = {0, 1, 0}, output_padding = {0, 1, 1}, groups = 2, dilation = {1, 2, 1}}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

const moth_op *const moth_conv3d_ops[] = {
  &moth_op_conv3d, &moth_op_conv3d_input, &moth_op_conv3d_weight, &moth_op_conv_transpose3d, NULL,
};
