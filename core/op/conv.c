/* conv.c -- convolution (conv2d, conv1d), its gradients and its transpose.
**
** y = conv2d(x, w) is linear in x and in w. With dy the gradient of y, conv2d_input(dy, w) is that
** of x and conv2d_weight(x, dy) that of w; the gradients of these two are again among the three.
*/
#include "conv.h"

#include "../kernel/conv.h"
#include "conv_fit.h"

#define STEPS(a)                                                                        \
  .stride = INT2((a)->stride), .padding = (a)->padding, .dilation = INT2((a)->dilation), \
  .groups = (a)->groups

/* -- geometry -- */

#define WEIGHT_SIZES "(O, C / groups, KH, KW)"

/* w := the window of the images, which have only a layout here; `blame` gave the kernel. "same"
** puts the odd one of an uneven border at the far side. */
static int conv_window(moth_window *w, const moth_tensor *image, const char *blame,
                       const int64_t kernel[2], const int64_t stride[2],
                       const moth_int2_or_enum *padding, const int64_t dilation[2]) {
  moth_ctx *ctx = image->ctx;
  *w = (moth_window){.kernel = INT2(kernel), .stride = INT2(stride), .dilation = INT2(dilation)};
  if (padding->choice == NUMBERS) memcpy(w->padding, padding->at, sizeof w->padding);
  if (padding->choice == SAME) {
    int status = moth_window_check(ctx, w, blame);
    if (status) return status;
    if (stride[0] != 1 || stride[1] != 1)
      return moth_fail(ctx, MOTH_E_DOMAIN, "padding", "'same' needs stride 1, got %s",
                       moth_str_ints(ctx, 2, stride));
    for (int i = 0; i < 2; i++) {
      int64_t border = dilation[i] * (kernel[i] - 1);
      w->padding[i] = border / 2;
      w->extra[i] = border % 2;
    }
  }
  return moth_window_fit(w, image, blame, false);
}

/* -- running -- */

static int run(int what, const void *geometry, const moth_tensor *a, const moth_tensor *b,
               const moth_tensor *bias, moth_tensor *y) {
  const moth_conv *c = geometry;
  moth_ctx *ctx = y->ctx;
  const int dtype = a->l.dtype;
  if (what == INPUT) return moth_conv_input(ctx, dtype, c, moth_at(a), moth_at(b), moth_at(y));
  if (what == WEIGHT) return moth_conv_weight(ctx, dtype, c, moth_at(a), moth_at(b), moth_at(y));
  return moth_conv_forward(ctx, dtype, c, moth_at(a), moth_at(b), bias ? moth_at(bias) : NULL,
                           moth_at(y));
}

/* -- conv2d -- */

static int conv2d_fit(const conv2d_args *a, moth_conv *c) {
  int64_t x[4];
  const int64_t *w = a->weight->l.shape;
  int status = check_weight(a->weight, 2, WEIGHT_SIZES);
  if (!status) status = with_batch(a->input, "input", 2, "C, H, W", x);
  if (!status) status = check_groups(a->ctx, a->groups, w[0], a->weight);
  if (status) return status;
  if (x[1] / a->groups != w[1] || x[1] % a->groups)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "the filters %s want %lld channels%s, got %s", moth_str(a->weight),
                     (long long)w[1], a->groups == 1 ? "" : " for each group",
                     moth_str(a->input));
  *c = (moth_conv){.n = x[0], .channels = x[1], .filters = w[0], .groups = a->groups};
  status = conv_window(&c->w, a->input, "weight", w + 2, a->stride, &a->padding, a->dilation);
  return status ? status : check_bias(a->bias, w[0]);
}

static int conv2d_shape(const conv2d_args *a, moth_layout *y) {
  moth_conv c;
  int status = conv2d_fit(a, &c);
  if (!status)
    take_batch(y, a->input, 2, (int64_t[4]){c.n, c.filters, c.w.out[0], c.w.out[1]});
  return status;
}

static int conv2d_cpu(const conv2d_args *a, moth_tensor **out) {
  moth_conv c;
  int status = conv2d_fit(a, &c);
  return status ? status : convolve(run, FORWARD, &c, a->input, a->weight, a->bias, out[0]);
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
  if (moth_wants(g, a->bias)) moth_flow(g, a->bias, sum_to_channels(g, g->dy, 2));
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

static int conv2d_input_fit(const conv2d_input_args *a, moth_conv *c) {
  int64_t dy[4];
  const int64_t *w = a->weight->l.shape;
  int status = check_weight(a->weight, 2, WEIGHT_SIZES);
  if (!status) status = with_batch(a->input, "input", 2, "O, OH, OW", dy);
  if (!status) status = check_groups(a->ctx, a->groups, w[0], a->weight);
  if (status) return status;
  *c = (moth_conv){.n = dy[0], .filters = w[0], .groups = a->groups};
  if (moth_mul_overflow(w[1], a->groups, &c->channels))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "groups", "%lld groups are too many",
                     (long long)a->groups);
  moth_tensor image = {.ctx = a->ctx, .l = a->input->l}; /* only a layout */
  take_batch(&image.l, a->input, 2, (int64_t[4]){c->n, c->channels, a->size[0], a->size[1]});
  status = conv_window(&c->w, &image, "size", w + 2, a->stride, &a->padding, a->dilation);
  if (!status && (dy[1] != w[0] || dy[2] != c->w.out[0] || dy[3] != c->w.out[1]))
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s is not what the filters %s make of %s",
                       moth_str(a->input), moth_str(a->weight), moth_str(&image));
  return status;
}

static int conv2d_input_shape(const conv2d_input_args *a, moth_layout *y) {
  moth_conv c;
  int status = conv2d_input_fit(a, &c);
  if (!status) take_batch(y, a->input, 2, (int64_t[4]){c.n, c.channels, a->size[0], a->size[1]});
  return status;
}

static int conv2d_input_cpu(const conv2d_input_args *a, moth_tensor **out) {
  moth_conv c;
  int status = conv2d_input_fit(a, &c);
  return status ? status : convolve(run, INPUT, &c, a->input, a->weight, NULL, out[0]);
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

static int conv2d_weight_fit(const conv2d_weight_args *a, moth_conv *c) {
  int64_t x[4], dy[4];
  int status = with_batch(a->input, "input", 2, "C, H, W", x);
  if (!status) status = with_batch(a->output, "output", 2, "O, OH, OW", dy);
  if (!status) status = check_groups(a->ctx, a->groups, dy[1], a->output);
  if (!status) status = check_groups(a->ctx, a->groups, x[1], a->input);
  if (status) return status;
  *c = (moth_conv){.n = x[0], .channels = x[1], .filters = dy[1], .groups = a->groups};
  status = conv_window(&c->w, a->input, "kernel_size", a->kernel_size, a->stride, &a->padding,
                       a->dilation);
  bool same = a->input->l.ndim == a->output->l.ndim && x[0] == dy[0];
  if (!status && (!same || dy[2] != c->w.out[0] || dy[3] != c->w.out[1]))
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "output", "%s is not what a kernel of %s makes of %s",
                       moth_str(a->output), moth_str_ints(a->ctx, 2, a->kernel_size),
                       moth_str(a->input));
  return status;
}

static int conv2d_weight_shape(const conv2d_weight_args *a, moth_layout *y) {
  moth_conv c;
  int status = conv2d_weight_fit(a, &c);
  if (status) return status;
  y->ndim = 4;
  y->shape[0] = c.filters;
  y->shape[1] = c.channels / c.groups;
  memcpy(y->shape + 2, a->kernel_size, 2 * sizeof *y->shape);
  return MOTH_OK;
}

static int conv2d_weight_cpu(const conv2d_weight_args *a, moth_tensor **out) {
  moth_conv c;
  int status = conv2d_weight_fit(a, &c);
  return status ? status : convolve(run, WEIGHT, &c, a->input, a->output, NULL, out[0]);
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
  moth_ctx *ctx = a->ctx;
  int64_t x[4];
  const int64_t *w = a->weight->l.shape;
  int status = check_weight(a->weight, 2, WEIGHT_SIZES);
  if (!status) status = with_batch(a->input, "input", 2, "C, H, W", x);
  if (!status) status = check_groups(ctx, a->groups, w[0], a->weight);
  if (!status && x[1] != w[0])
    status = moth_fail(ctx, MOTH_E_SHAPE, "input", "the filters %s want %lld channels, got %s",
                       moth_str(a->weight), (long long)w[0], moth_str(a->input));
  if (!status) status = check_bias(a->bias, w[1] * a->groups);
  if (status) return status;
  moth_window w2 = {.kernel = INT2(w + 2), .stride = INT2(a->stride), .padding = INT2(a->padding),
                    .dilation = INT2(a->dilation)};
  status = moth_window_check(ctx, &w2, "weight");
  transposed t;
  if (!status)
    status = transposed_fit(a->input, 2, x + 2, w + 2, a->stride, a->padding, a->output_padding,
                            a->dilation, &t);
  moth_tensor *y = NULL;
  if (!status)
    status = MOTH_CALL(ctx, &y, conv2d_input, .input = a->input, .weight = a->weight,
                       .size = INT2(t.size), .stride = INT2(a->stride),
                       .padding = {NUMBERS, INT2(t.padding)}, .dilation = INT2(a->dilation),
                       .groups = a->groups);
  return status ? status : transposed_finish(&t, y, a->bias, 2, out);
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
