/* conv3d.c -- convolution of volumes (conv3d), its gradients and its transpose: as in conv.c, which
** says how the three belong together, with a depth.
*/
#include "conv3d.h"

#include "../kernel/conv3d.h"
#include "conv_fit.h"

#define STEPS(a)                                                                        \
  .stride = INT3((a)->stride), .padding = (a)->padding, .dilation = INT3((a)->dilation), \
  .groups = (a)->groups

/* -- geometry -- */

#define WEIGHT_SIZES "(O, C / groups, KD, KH, KW)"

/* w := the window of the volumes, which have only a layout here; `blame` gave the kernel. "same"
** puts the odd one of an uneven border at the far side. */
static int conv_window(moth_window3 *w, const moth_tensor *volume, const char *blame,
                       const int64_t kernel[3], const int64_t stride[3],
                       const moth_int3_or_enum *padding, const int64_t dilation[3]) {
  moth_ctx *ctx = volume->ctx;
  *w = (moth_window3){.kernel = INT3(kernel), .stride = INT3(stride), .dilation = INT3(dilation)};
  if (padding->choice == NUMBERS) memcpy(w->padding, padding->at, sizeof w->padding);
  if (padding->choice == SAME) {
    int status = moth_window3_check(ctx, w, blame);
    if (status) return status;
    if (stride[0] != 1 || stride[1] != 1 || stride[2] != 1)
      return moth_fail(ctx, MOTH_E_DOMAIN, "padding", "'same' needs stride 1, got %s",
                       moth_str_ints(ctx, 3, stride));
    for (int i = 0; i < 3; i++) {
      int64_t border = dilation[i] * (kernel[i] - 1);
      w->padding[i] = border / 2;
      w->extra[i] = border % 2;
    }
  }
  return moth_window3_fit(w, volume, blame, false);
}

/* -- running -- */

static int run(int what, const void *geometry, const moth_tensor *a, const moth_tensor *b,
               const moth_tensor *bias, moth_tensor *y) {
  const moth_conv3d *c = geometry;
  moth_ctx *ctx = y->ctx;
  const int dtype = a->l.dtype;
  if (what == INPUT) return moth_conv3d_input(ctx, dtype, c, moth_at(a), moth_at(b), moth_at(y));
  if (what == WEIGHT) return moth_conv3d_weight(ctx, dtype, c, moth_at(a), moth_at(b), moth_at(y));
  return moth_conv3d_forward(ctx, dtype, c, moth_at(a), moth_at(b), bias ? moth_at(bias) : NULL,
                             moth_at(y));
}

/* -- conv3d -- */

static int conv3d_fit(const conv3d_args *a, moth_conv3d *c) {
  int64_t x[5];
  const int64_t *w = a->weight->l.shape;
  int status = check_weight(a->weight, 3, WEIGHT_SIZES);
  if (!status) status = with_batch(a->input, "input", 3, "C, D, H, W", x);
  if (!status) status = check_groups(a->ctx, a->groups, w[0], a->weight);
  if (status) return status;
  if (x[1] / a->groups != w[1] || x[1] % a->groups)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "the filters %s want %lld channels%s, got %s", moth_str(a->weight),
                     (long long)w[1], a->groups == 1 ? "" : " for each group",
                     moth_str(a->input));
  *c = (moth_conv3d){.n = x[0], .channels = x[1], .filters = w[0], .groups = a->groups};
  status = conv_window(&c->w, a->input, "weight", w + 2, a->stride, &a->padding, a->dilation);
  return status ? status : check_bias(a->bias, w[0]);
}

static int conv3d_shape(const conv3d_args *a, moth_layout *y) {
  moth_conv3d c;
  int status = conv3d_fit(a, &c);
  if (!status)
    take_batch(y, a->input, 3, (int64_t[5]){c.n, c.filters, c.w.out[0], c.w.out[1], c.w.out[2]});
  return status;
}

static int conv3d_cpu(const conv3d_args *a, moth_tensor **out) {
  moth_conv3d c;
  int status = conv3d_fit(a, &c);
  return status ? status : convolve(run, FORWARD, &c, a->input, a->weight, a->bias, out[0]);
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
  if (moth_wants(g, a->bias)) moth_flow(g, a->bias, sum_to_channels(g, g->dy, 3));
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

static int conv3d_input_fit(const conv3d_input_args *a, moth_conv3d *c) {
  int64_t dy[5];
  const int64_t *w = a->weight->l.shape;
  int status = check_weight(a->weight, 3, WEIGHT_SIZES);
  if (!status) status = with_batch(a->input, "input", 3, "O, OD, OH, OW", dy);
  if (!status) status = check_groups(a->ctx, a->groups, w[0], a->weight);
  if (status) return status;
  *c = (moth_conv3d){.n = dy[0], .filters = w[0], .groups = a->groups};
  if (moth_mul_overflow(w[1], a->groups, &c->channels))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "groups", "%lld groups are too many",
                     (long long)a->groups);
  moth_tensor volume = {.ctx = a->ctx, .l = a->input->l}; /* only a layout */
  take_batch(&volume.l, a->input, 3,
             (int64_t[5]){c->n, c->channels, a->size[0], a->size[1], a->size[2]});
  status = conv_window(&c->w, &volume, "size", w + 2, a->stride, &a->padding, a->dilation);
  if (!status && (dy[1] != w[0] || memcmp(dy + 2, c->w.out, sizeof c->w.out)))
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s is not what the filters %s make of %s",
                       moth_str(a->input), moth_str(a->weight), moth_str(&volume));
  return status;
}

static int conv3d_input_shape(const conv3d_input_args *a, moth_layout *y) {
  moth_conv3d c;
  int status = conv3d_input_fit(a, &c);
  if (!status)
    take_batch(y, a->input, 3,
               (int64_t[5]){c.n, c.channels, a->size[0], a->size[1], a->size[2]});
  return status;
}

static int conv3d_input_cpu(const conv3d_input_args *a, moth_tensor **out) {
  moth_conv3d c;
  int status = conv3d_input_fit(a, &c);
  return status ? status : convolve(run, INPUT, &c, a->input, a->weight, NULL, out[0]);
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

static int conv3d_weight_fit(const conv3d_weight_args *a, moth_conv3d *c) {
  int64_t x[5], dy[5];
  int status = with_batch(a->input, "input", 3, "C, D, H, W", x);
  if (!status) status = with_batch(a->output, "output", 3, "O, OD, OH, OW", dy);
  if (!status) status = check_groups(a->ctx, a->groups, dy[1], a->output);
  if (!status) status = check_groups(a->ctx, a->groups, x[1], a->input);
  if (status) return status;
  *c = (moth_conv3d){.n = x[0], .channels = x[1], .filters = dy[1], .groups = a->groups};
  status = conv_window(&c->w, a->input, "kernel_size", a->kernel_size, a->stride, &a->padding,
                       a->dilation);
  bool same = a->input->l.ndim == a->output->l.ndim && x[0] == dy[0];
  if (!status && (!same || memcmp(dy + 2, c->w.out, sizeof c->w.out)))
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "output", "%s is not what a kernel of %s makes of %s",
                       moth_str(a->output), moth_str_ints(a->ctx, 3, a->kernel_size),
                       moth_str(a->input));
  return status;
}

static int conv3d_weight_shape(const conv3d_weight_args *a, moth_layout *y) {
  moth_conv3d c;
  int status = conv3d_weight_fit(a, &c);
  if (status) return status;
  y->ndim = 5;
  y->shape[0] = c.filters;
  y->shape[1] = c.channels / c.groups;
  memcpy(y->shape + 2, a->kernel_size, 3 * sizeof *y->shape);
  return MOTH_OK;
}

static int conv3d_weight_cpu(const conv3d_weight_args *a, moth_tensor **out) {
  moth_conv3d c;
  int status = conv3d_weight_fit(a, &c);
  return status ? status : convolve(run, WEIGHT, &c, a->input, a->output, NULL, out[0]);
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
  moth_ctx *ctx = a->ctx;
  int64_t x[5];
  const int64_t *w = a->weight->l.shape;
  int status = check_weight(a->weight, 3, WEIGHT_SIZES);
  if (!status) status = with_batch(a->input, "input", 3, "C, D, H, W", x);
  if (!status) status = check_groups(ctx, a->groups, w[0], a->weight);
  if (!status && x[1] != w[0])
    status = moth_fail(ctx, MOTH_E_SHAPE, "input", "the filters %s want %lld channels, got %s",
                       moth_str(a->weight), (long long)w[0], moth_str(a->input));
  if (!status) status = check_bias(a->bias, w[1] * a->groups);
  if (status) return status;
  moth_window3 w3 = {.kernel = INT3(w + 2), .stride = INT3(a->stride),
                     .padding = INT3(a->padding), .dilation = INT3(a->dilation)};
  status = moth_window3_check(ctx, &w3, "weight");
  transposed t;
  if (!status)
    status = transposed_fit(a->input, 3, x + 2, w + 2, a->stride, a->padding, a->output_padding,
                            a->dilation, &t);
  moth_tensor *y = NULL;
  if (!status)
    status = MOTH_CALL(ctx, &y, conv3d_input, .input = a->input, .weight = a->weight,
                       .size = INT3(t.size), .stride = INT3(a->stride),
                       .padding = {NUMBERS, INT3(t.padding)}, .dilation = INT3(a->dilation),
                       .groups = a->groups);
  return status ? status : transposed_finish(&t, y, a->bias, 3, out);
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
