/* conv_fit.h -- what convolutions of images and of volumes, of `dims` dimensions, do alike: checks,
** the dtypes that kernels are run in, biases, and the fit of the transposed ones. */
#ifndef MOTH_OP_CONV_FIT_H
#define MOTH_OP_CONV_FIT_H

#include "../kernel/real.h"
#include "arith.h"
#include "pad.h"
#include "reduce.h"
#include "view.h"

enum { NUMBERS, VALID, SAME }; /* what `padding` may be */

/* A tensor's sizes, with a batch of one put before those of a single image. */
static inline int with_batch(const moth_tensor *x, const char *arg, int dims, const char *names,
                             int64_t *size) {
  const moth_layout *l = &x->l;
  if (l->ndim != dims + 1 && l->ndim != dims + 2)
    return moth_fail(x->ctx, MOTH_E_SHAPE, arg, "(N, %s) or (%s) is needed, got %s", names, names,
                     moth_str(x));
  size[0] = 1;
  memcpy(size + (dims + 2 - l->ndim), l->shape, (size_t)l->ndim * sizeof *size);
  for (int i = 1; i < dims + 2; i++)
    if (size[i] < 1)
      return moth_fail(x->ctx, MOTH_E_SHAPE, arg, "only the batch may be empty, got %s",
                       moth_str(x));
  return MOTH_OK;
}

/* y := sizes, without the batch if `like` has none. */
static inline void take_batch(moth_layout *y, const moth_tensor *like, int dims,
                              const int64_t *size) {
  y->ndim = like->l.ndim;
  memcpy(y->shape, size + (dims + 2 - y->ndim), (size_t)y->ndim * sizeof *size);
}

static inline int check_groups(moth_ctx *ctx, int64_t groups, int64_t filters,
                               const moth_tensor *shown) {
  if (groups < 1)
    return moth_fail(ctx, MOTH_E_DOMAIN, "groups", "a number from 1 on is needed, got %lld",
                     (long long)groups);
  if (filters % groups)
    return moth_fail(ctx, MOTH_E_SHAPE, "groups", "%lld channels do not fall into %lld groups: %s",
                     (long long)filters, (long long)groups, moth_str(shown));
  return MOTH_OK;
}

static inline int check_weight(const moth_tensor *weight, int dims, const char *sizes) {
  const moth_layout *l = &weight->l;
  if (l->ndim != dims + 2)
    return moth_fail(weight->ctx, MOTH_E_SHAPE, "weight", "%s is needed, got %s", sizes,
                     moth_str(weight));
  if (l->numel == 0)
    return moth_fail(weight->ctx, MOTH_E_SHAPE, "weight", "one with elements is needed, got %s",
                     moth_str(weight));
  return MOTH_OK;
}

/* Whether a bias has one element for each of n channels. */
static inline int check_bias(const moth_tensor *bias, int64_t n) {
  if (!bias || (bias->l.ndim == 1 && bias->l.shape[0] == n)) return MOTH_OK;
  return moth_fail(bias->ctx, MOTH_E_SHAPE, "bias", "%s is needed, one for each filter, got %s",
                   moth_str_shape(bias->ctx, 1, &n), moth_str(bias));
}

/* -- running: one of three kernels, y := what they make of a and b, which are packed -- */

enum { FORWARD, INPUT, WEIGHT };

typedef int conv_kernels(int what, const void *geometry, const moth_tensor *a, const moth_tensor *b,
                         const moth_tensor *bias, moth_tensor *y);

/* Of what `as` makes of the two operands: moth_packed or moth_real. */
static inline int convolve_as(moth_tensor *(*as)(const moth_tensor *x), conv_kernels *run, int what,
                              const void *geometry, const moth_tensor *a, const moth_tensor *b,
                              const moth_tensor *bias, moth_tensor *y) {
  moth_tensor *p = as(a), *q = as(b);
  int status = p && q ? run(what, geometry, p, q, bias, y) : y->ctx->error.code;
  moth_tensor_release(p);
  moth_tensor_release(q);
  return status;
}

/* bf16 as they are, where that is done; else in f32. */
static inline int convolve(conv_kernels *run, int what, const void *geometry, const moth_tensor *a,
                           const moth_tensor *b, const moth_tensor *bias, moth_tensor *out) {
  moth_tensor *y = moth_real_out(out), *add = bias ? moth_real(bias) : NULL;
  bool pairs = a->l.dtype == MOTH_BF16 && b->l.dtype == MOTH_BF16;
  int status = y && (add || !bias) ? MOTH_DECLINED : out->ctx->error.code;
  if (status == MOTH_DECLINED && pairs)
    status = convolve_as(moth_packed, run, what, geometry, a, b, add, y);
  if (status == MOTH_DECLINED)
    status = convolve_as(moth_real, run, what, geometry, a, b, add, y);
  moth_tensor_release(add);
  return moth_real_done(y, out, status);
}

/* The sum over everything but the channels: the gradient of the bias. */
static inline moth_tensor *sum_to_channels(moth_grad *g, moth_tensor *dy, int dims) {
  static const int64_t all[] = {0, 2, 3, 4}, unbatched[] = {1, 2, 3};
  const bool batch = dy && dy->l.ndim == dims + 2;
  return GRAD(g, sum, .input = dy, .dim = {batch ? all : unbatched, batch ? dims + 1 : dims},
              .dtype = -1);
}

/* *out := y + bias, the bias along the channels; takes y. */
static inline int add_bias(moth_tensor *y, moth_tensor *bias, int dims, moth_tensor **out) {
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

/* -- transposed -- */

/* How a transposed convolution is made: as the gradient of images of `size` with `padding`; where
** more is asked for on the far side than a step, of all that is reached, which then is `cut`. */
typedef struct transposed {
  int64_t size[3], padding[3], cut[6];
  bool cuts;
} transposed;

/* x, kernel: sizes of the input's and the weight's space. */
static inline int transposed_fit(const moth_tensor *input, int dims, const int64_t *x,
                                 const int64_t *kernel, const int64_t *stride,
                                 const int64_t *padding, const int64_t *output_padding,
                                 const int64_t *dilation, transposed *t) {
  moth_ctx *ctx = input->ctx;
  *t = (transposed){.cuts = false};
  for (int i = 0; i < dims; i++) {
    const int64_t extra = output_padding[i];
    if (extra < 0 || (extra >= stride[i] && extra >= dilation[i]))
      return moth_fail(ctx, MOTH_E_DOMAIN, "output_padding",
                       "less than stride or dilation is needed, got %s",
                       moth_str_ints(ctx, dims, output_padding));
    if (moth_mul_overflow(x[i] - 1, stride[i], &t->size[i]) || t->size[i] > INT64_MAX / 4)
      return moth_fail(ctx, MOTH_E_SHAPE, "stride", "the result of %s would be too large",
                       moth_str(input));
    t->size[i] += dilation[i] * (kernel[i] - 1) + 1;
    if (t->size[i] + extra - 2 * padding[i] < 1)
      return moth_fail(ctx, MOTH_E_SHAPE, "padding", "%s cuts off all of the result",
                       moth_str_ints(ctx, dims, padding));
    t->cuts |= extra >= stride[i];
  }
  for (int i = 0; i < dims; i++) {
    int64_t *cut = t->cut + 2 * (dims - 1 - i);
    cut[0] = -padding[i], cut[1] = output_padding[i] - padding[i];
    if (t->cuts) continue;
    t->size[i] += cut[0] + cut[1];
    t->padding[i] = padding[i];
  }
  return MOTH_OK;
}

/* *out := y, cut, with the bias; takes y. */
static inline int transposed_finish(const transposed *t, moth_tensor *y, moth_tensor *bias,
                                    int dims, moth_tensor **out) {
  moth_tensor *part = y;
  int status = MOTH_OK;
  if (t->cuts) {
    status = MOTH_CALL(y->ctx, &part, pad, .input = y, .pad = {t->cut, 2 * dims});
    moth_tensor_release(y);
  }
  return status ? status : add_bias(part, bias, dims, out);
}

#endif
