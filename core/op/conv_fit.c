/* conv_fit.c -- checks shapes and arguments of convolutions in two and three dimensions, and runs
** the steps around their kernels.
*/
#include "conv_fit.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/conv/conv3d.h"
#include "kernel/real.h"
#include "arith.h"
#include "pad.h"
#include "reduce.h"
#include "view.h"

/* -- sizes -- */

/* Names of the sizes in error messages, for images and volumes. */
static const char *const input_sizes[] = {[2] = "C, H, W", [3] = "C, D, H, W"};
static const char *const result_sizes[] = {[2] = "O, OH, OW", [3] = "O, OD, OH, OW"};
static const char *const weight_sizes[] = {
  [2] = "(O, C / groups, KH, KW)", [3] = "(O, C / groups, KD, KH, KW)"};

/* Reads the sizes of a tensor. A single image gets a batch of 1. */
static int with_batch(const moth_tensor *x, const char *arg, int dims, const char *const *names,
                      int64_t *size) {
  const moth_layout *l = &x->l;
  if (l->ndim != dims + 1 && l->ndim != dims + 2)
    return moth_fail(x->ctx, MOTH_E_SHAPE, arg, "(N, %s) or (%s) is needed, got %s", names[dims],
                     names[dims], moth_str(x));
  size[0] = 1;
  memcpy(size + (dims + 2 - l->ndim), l->shape, (size_t)l->ndim * sizeof *size);
  for (int i = 1; i < dims + 2; i++)
    if (size[i] < 1)
      return moth_fail(x->ctx, MOTH_E_SHAPE, arg, "only the batch may be empty, got %s",
                       moth_str(x));
  return MOTH_OK;
}

/* y := the sizes. The batch is left out if `like` has none. */
static int take_batch(moth_layout *y, const moth_tensor *like, int64_t n, int64_t channels,
                      int dims, const int64_t *size) {
  int64_t *to = y->shape;
  y->ndim = like->l.ndim;
  if (y->ndim == dims + 2) *to++ = n;
  *to++ = channels;
  memcpy(to, size, (size_t)dims * sizeof *size);
  return MOTH_OK;
}

int moth_conv_result(const moth_conv *c, const moth_tensor *x, moth_layout *y) {
  return take_batch(y, x, c->n, c->filters, c->w.axes, c->w.out);
}

int moth_conv_images(const moth_conv *c, const moth_tensor *dy, moth_layout *y) {
  return take_batch(y, dy, c->n, c->channels, c->w.axes, c->w.in);
}

int moth_conv_filters(const moth_conv *c, moth_layout *y) {
  y->ndim = c->w.axes + 2;
  y->shape[0] = c->filters;
  y->shape[1] = c->channels / c->groups;
  memcpy(y->shape + 2, c->w.kernel, (size_t)c->w.axes * sizeof *y->shape);
  return MOTH_OK;
}

/* -- checks -- */

static int check_groups(const moth_tensor *shown, int64_t groups, int64_t filters) {
  moth_ctx *ctx = shown->ctx;
  if (groups < 1)
    return moth_fail(ctx, MOTH_E_DOMAIN, "groups", "a number from 1 on is needed, got %lld",
                     (long long)groups);
  if (filters % groups)
    return moth_fail(ctx, MOTH_E_SHAPE, "groups",
                     "%lld channels cannot be split into %lld groups: %s",
                     (long long)filters, (long long)groups, moth_str(shown));
  return MOTH_OK;
}

/* Checks the filters, then the tensor of sizes x that they are applied to, then the groups. */
static int check_operands(const moth_tensor *input, const char *const *names,
                          const moth_tensor *weight, const conv_how *how, int64_t *x) {
  const moth_layout *l = &weight->l;
  if (l->ndim != how->dims + 2)
    return moth_fail(weight->ctx, MOTH_E_SHAPE, "weight", "%s is needed, got %s",
                     weight_sizes[how->dims], moth_str(weight));
  if (l->numel == 0)
    return moth_fail(weight->ctx, MOTH_E_SHAPE, "weight",
                     "filters with elements are needed, got %s",
                     moth_str(weight));
  int status = with_batch(input, "input", how->dims, names, x);
  return status ? status : check_groups(weight, how->groups, l->shape[0]);
}

/* Checks that a bias has one element for each of n channels. */
static int check_bias(const moth_tensor *bias, int64_t n) {
  if (!bias || (bias->l.ndim == 1 && bias->l.shape[0] == n)) return MOTH_OK;
  return moth_fail(bias->ctx, MOTH_E_SHAPE, "bias", "%s is needed, one for each filter, got %s",
                   moth_str_shape(bias->ctx, 1, &n), moth_str(bias));
}

static moth_window window_of(const conv_how *how, const int64_t *kernel) {
  const size_t bytes = (size_t)how->dims * sizeof *kernel;
  moth_window w = {.axes = how->dims};
  memcpy(w.kernel, kernel, bytes);
  memcpy(w.stride, how->stride, bytes);
  memcpy(w.dilation, how->dilation, bytes);
  if (how->choice == NUMBERS) memcpy(w.padding, how->padding, bytes);
  return w;
}

/* Writes the window of an image into w. The image has only a layout. `blame` is the argument that
** set the kernel size. If the border of "same" is odd, the far side gets the extra zero. */
static int fit_window(moth_window *w, const moth_tensor *image, const char *blame,
                      const int64_t *kernel, const conv_how *how) {
  moth_ctx *ctx = image->ctx;
  *w = window_of(how, kernel);
  if (how->choice == SAME) {
    int status = moth_window_check(image, w, blame);
    if (status) return status;
    for (int i = 0; i < w->axes; i++) {
      if (w->stride[i] != 1)
        return moth_fail(ctx, MOTH_E_DOMAIN, "padding", "'same' needs stride 1, got %s",
                         moth_str_axes(image, w->axes, w->stride));
      const int64_t border = w->dilation[i] * (w->kernel[i] - 1);
      w->padding[i] = border / 2;
      w->extra[i] = border % 2;
    }
  }
  return moth_window_fit(w, image, blame, false);
}

/* -- geometry of the convolution and its gradients -- */

int moth_conv_fit(const moth_tensor *input, const moth_tensor *weight, const moth_tensor *bias,
                  const conv_how *how, moth_conv *c) {
  int64_t x[5];
  const int64_t *w = weight->l.shape;
  int status = check_operands(input, input_sizes, weight, how, x);
  if (status) return status;
  if (x[1] / how->groups != w[1] || x[1] % how->groups)
    return moth_fail(input->ctx, MOTH_E_SHAPE, "input",
                     "the filters %s need %lld channels%s, got %s", moth_str(weight),
                     (long long)w[1], how->groups == 1 ? "" : " for each group", moth_str(input));
  *c = (moth_conv){.n = x[0], .channels = x[1], .filters = w[0], .groups = how->groups};
  status = fit_window(&c->w, input, "weight", w + 2, how);
  return status ? status : check_bias(bias, w[0]);
}

static bool sees(const moth_conv *c, const int64_t *size) {
  return !memcmp(size, c->w.out, (size_t)c->w.axes * sizeof *size);
}

int moth_conv_input_fit(const moth_tensor *input, const moth_tensor *weight, const int64_t *size,
                        const conv_how *how, moth_conv *c) {
  int64_t dy[5];
  const int64_t *w = weight->l.shape;
  int status = check_operands(input, result_sizes, weight, how, dy);
  if (status) return status;
  *c = (moth_conv){.n = dy[0], .filters = w[0], .groups = how->groups};
  if (moth_mul_overflow(w[1], how->groups, &c->channels))
    return moth_fail(input->ctx, MOTH_E_SHAPE, "groups", "%lld groups are too many",
                     (long long)how->groups);
  /* has no storage */
  moth_tensor image = {.ctx = input->ctx, .l = input->l, .flags = input->flags};
  take_batch(&image.l, input, c->n, c->channels, how->dims, size);
  status = fit_window(&c->w, &image, "size", w + 2, how);
  if (!status && (dy[1] != w[0] || !sees(c, dy + 2)))
    status = moth_fail(input->ctx, MOTH_E_SHAPE, "input",
                       "%s is not the result of the filters %s for %s", moth_str(input),
                       moth_str(weight), moth_str(&image));
  return status;
}

int moth_conv_weight_fit(const moth_tensor *input, const moth_tensor *output,
                         const int64_t *kernel, const conv_how *how, moth_conv *c) {
  int64_t x[5], dy[5];
  int status = with_batch(input, "input", how->dims, input_sizes, x);
  if (!status) status = with_batch(output, "output", how->dims, result_sizes, dy);
  if (!status) status = check_groups(output, how->groups, dy[1]);
  if (!status) status = check_groups(input, how->groups, x[1]);
  if (status) return status;
  *c = (moth_conv){.n = x[0], .channels = x[1], .filters = dy[1], .groups = how->groups};
  status = fit_window(&c->w, input, "kernel_size", kernel, how);
  const bool same = input->l.ndim == output->l.ndim && x[0] == dy[0];
  if (!status && (!same || !sees(c, dy + 2)))
    status = moth_fail(input->ctx, MOTH_E_SHAPE, "output",
                       "%s is not the result of a kernel of %s for %s", moth_str(output),
                       moth_str_ints(input->ctx, how->dims, kernel), moth_str(input));
  return status;
}

/* -- running -- */

static int run(int what, const moth_conv *c, const moth_tensor *a, const moth_tensor *b,
               const moth_tensor *bias, moth_tensor *y) {
  const bool deep = c->w.axes == 3;
  const int dtype = a->l.dtype;
  if (what == INPUT)
    return (deep ? moth_conv3d_input : moth_conv_input)(y->ctx, dtype, c, moth_at(a), moth_at(b),
                                                        moth_at(y));
  if (what == WEIGHT)
    return (deep ? moth_conv3d_weight : moth_conv_weight)(y->ctx, dtype, c, moth_at(a), moth_at(b),
                                                          moth_at(y));
  return (deep ? moth_conv3d_forward : moth_conv_forward)(
    y->ctx, dtype, c, moth_at(a), moth_at(b), bias ? moth_at(bias) : NULL, moth_at(y));
}

/* Converts the operands with `as` (moth_packed or moth_real), then runs a kernel. */
static int run_as(moth_tensor *(*as)(const moth_tensor *x), int what, const moth_conv *c,
                  const moth_tensor *a, const moth_tensor *b, const moth_tensor *bias,
                  moth_tensor *y) {
  moth_tensor *p = as(a), *q = as(b);
  int status = p && q ? run(what, c, p, q, bias, y) : y->ctx->error.code;
  moth_tensor_release(p);
  moth_tensor_release(q);
  return status;
}

/* bf16 operands are used without conversion if the kernels can, else all half types become f32. */
int moth_convolve(int what, const moth_conv *c, const moth_tensor *a, const moth_tensor *b,
                  const moth_tensor *bias, moth_tensor *out) {
  moth_tensor *y = moth_real_out(out), *add = bias ? moth_real(bias) : NULL;
  bool pairs = a->l.dtype == MOTH_BF16 && b->l.dtype == MOTH_BF16;
  int status = y && (add || !bias) ? MOTH_DECLINED : out->ctx->error.code;
  if (status == MOTH_DECLINED && pairs) status = run_as(moth_packed, what, c, a, b, add, y);
  if (status == MOTH_DECLINED) status = run_as(moth_real, what, c, a, b, add, y);
  moth_tensor_release(add);
  return moth_real_done(y, out, status);
}

moth_tensor *moth_sum_to_channels(moth_grad *g, moth_tensor *dy, int dims) {
  static const int64_t all[] = {0, 2, 3, 4}, unbatched[] = {1, 2, 3};
  const bool batch = dy && dy->l.ndim == dims + 2;
  return GRAD(g, sum, .input = dy, .dim = {batch ? all : unbatched, batch ? dims + 1 : dims},
              .dtype = -1);
}

/* *out := y + bias; the bias has one element per channel. Takes ownership of y. */
static int add_bias(moth_tensor *y, moth_tensor *bias, int dims, moth_tensor **out) {
  moth_tensor *column = NULL;
  if (!bias) {
    *out = y;
    return MOTH_OK;
  }
  int status = MOTH_CALL(y->ctx, &column, reshape, .input = bias,
                         .shape = {(int64_t[]){bias->l.numel, 1, 1, 1}, 1 + dims});
  if (!status)
    status = MOTH_CALL(y->ctx, out, add, .input = y, .other = column, .alpha = {.as.number = 1});
  moth_tensor_release(column);
  moth_tensor_release(y);
  return status;
}

/* -- transposed convolution -- */

/* x: the sizes of the input. w: the window, which moves over the result. */
static int transposed_fit(const moth_tensor *input, const int64_t *x, const moth_window *w,
                          const int64_t *output_padding, conv_transposed *t) {
  moth_ctx *ctx = input->ctx;
  const int dims = w->axes;
  *t = (conv_transposed){.cuts = false};
  for (int i = 0; i < dims; i++) {
    const int64_t extra = output_padding[i];
    if (extra < 0 || (extra >= w->stride[i] && extra >= w->dilation[i]))
      return moth_fail(ctx, MOTH_E_DOMAIN, "output_padding",
                       "a size less than stride or dilation is needed, got %s",
                       moth_str_axes(input, dims, output_padding));
    if (moth_mul_overflow(x[i] - 1, w->stride[i], &t->size[i]) || t->size[i] > INT64_MAX / 4)
      return moth_fail(ctx, MOTH_E_SHAPE, "stride", "the result of %s would be too large",
                       moth_str(input));
    t->size[i] += w->dilation[i] * (w->kernel[i] - 1) + 1;
    if (t->size[i] + extra - 2 * w->padding[i] < 1)
      return moth_fail(ctx, MOTH_E_SHAPE, "padding", "%s removes all of the result",
                       moth_str_axes(input, dims, w->padding));
    t->cuts |= extra >= w->stride[i];
  }
  for (int i = 0; i < dims; i++) {
    int64_t *cut = t->cut + 2 * (dims - 1 - i);
    cut[0] = -w->padding[i], cut[1] = output_padding[i] - w->padding[i];
    if (t->cuts) continue;
    t->size[i] += cut[0] + cut[1];
    t->padding[i] = w->padding[i];
  }
  return MOTH_OK;
}

int moth_conv_transposed_fit(const moth_tensor *input, const moth_tensor *weight,
                             const moth_tensor *bias, const conv_how *how,
                             const int64_t *output_padding, conv_transposed *t) {
  int64_t x[5];
  const int64_t *w = weight->l.shape;
  int status = check_operands(input, input_sizes, weight, how, x);
  if (!status && x[1] != w[0])
    status = moth_fail(input->ctx, MOTH_E_SHAPE, "input",
                       "the filters %s need %lld channels, got %s", moth_str(weight),
                       (long long)w[0], moth_str(input));
  if (!status) status = check_bias(bias, w[1] * how->groups);
  if (status) return status;
  const moth_window window = window_of(how, w + 2);
  status = moth_window_check(input, &window, "weight");
  return status ? status : transposed_fit(input, x + 2, &window, output_padding, t);
}

int moth_conv_transposed_finish(const conv_transposed *t, moth_tensor *y, moth_tensor *bias,
                                int dims, moth_tensor **out) {
  moth_tensor *part = y;
  int status = MOTH_OK;
  if (t->cuts) {
    status = MOTH_CALL(y->ctx, &part, pad, .input = y, .pad = {t->cut, 2 * dims});
    moth_tensor_release(y);
  }
  return status ? status : add_bias(part, bias, dims, out);
}
