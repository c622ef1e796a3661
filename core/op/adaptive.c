/* adaptive.c -- adaptive pooling: the mean or the maximum of each window of an image, for a given
** output size. The windows have nearly equal sizes, and overlap where the sizes do not divide.
*/
#include "adaptive.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/pool.h"
#include "kernel/real.h"
#include "one_dimension.h"
#include "pool.h"

#define LARGEST (INT64_C(1) << 30)

/* Checks the input and fills p. Where a size is MOTH_NO_INT, the result has the input's size. */
static int shares_fit(moth_shares *p, const moth_tensor *input, const int64_t size[2]) {
  moth_ctx *ctx = input->ctx;
  const moth_layout *l = &input->l;
  if (l->ndim != 3 && l->ndim != 4)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "(N, C, H, W) or (C, H, W) is needed, got %s",
                     moth_str(input));
  p->planes = 1;
  for (int i = 0; i + 2 < l->ndim; i++) p->planes *= l->shape[i];
  for (int i = l->ndim - 3; i < l->ndim; i++)
    if (l->shape[i] == 0)
      return moth_fail(ctx, MOTH_E_SHAPE, "input", "only the batch may be empty, got %s",
                       moth_str(input));
  for (int i = 0; i < 2; i++) {
    p->in[i] = l->shape[l->ndim - 2 + i];
    p->out[i] = size[i] == MOTH_NO_INT ? p->in[i] : size[i];
  }
  if (p->out[0] < 0 || p->out[1] < 0 || p->out[0] > LARGEST || p->out[1] > LARGEST)
    return moth_fail(ctx, MOTH_E_DOMAIN, "output_size", "numbers from 0 to 2^30 are needed, got %s",
                     moth_str_axes(input, 2, p->out));
  return MOTH_OK;
}

/* y := the layout of x, but with planes of the given size. */
static void replane(moth_layout *y, const moth_layout *x, const int64_t size[2]) {
  y->ndim = x->ndim;
  memcpy(y->shape, x->shape, sizeof x->shape);
  y->shape[y->ndim - 2] = size[0];
  y->shape[y->ndim - 1] = size[1];
}

/* -- the mean -- */

static int adaptive_avg_pool2d_shape(const adaptive_avg_pool2d_args *a, moth_layout *y) {
  moth_shares p;
  int status = shares_fit(&p, a->input, a->output_size);
  if (!status) replane(y, &a->input->l, p.out);
  return status;
}

static int adaptive_avg_pool2d_cpu(const adaptive_avg_pool2d_args *a, moth_tensor **out) {
  moth_shares p;
  int status = shares_fit(&p, a->input, a->output_size);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  status = !x || !y ? a->ctx->error.code
                    : moth_mean_shares(a->ctx, x->l.dtype, &p, moth_at(x), moth_at(y));
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

static int adaptive_avg_pool2d_grad(const adaptive_avg_pool2d_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  return moth_flow(g, a->input, GRAD(g, adaptive_avg_pool2d_back, .input = g->dy,
                                     .size = {x->shape[x->ndim - 2], x->shape[x->ndim - 1]},
                                     .memory_format = moth_format_of(a->input)));
}

MOTH_OP(adaptive_avg_pool2d, ADAPTIVE_AVG_POOL2D,
  .doc = "Average pooling of images to a given size: each element is the mean of its window.",
  .examples =
    "moth.randn(2, 3, 8, 8), 2\n"
    "moth.randn(3, 7, 5), {3, 4}\n"
    "moth.randn(2, 2, 4, 3), {output_size = {6, moth.none}}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD)

/* Fills p for the plane of `size`; `input` has the gradients of its windows' means. */
static int back_fit(const adaptive_avg_pool2d_back_args *a, moth_shares *p) {
  const moth_layout *l = &a->input->l;
  if (a->size[0] < 1 || a->size[1] < 1 || a->size[0] > LARGEST || a->size[1] > LARGEST)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "size", "numbers from 1 to 2^30 are needed, got %s",
                     moth_str_ints(a->ctx, 2, a->size));
  if (l->ndim != 3 && l->ndim != 4)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "(N, C, OH, OW) or (C, OH, OW) is needed, got %s", moth_str(a->input));
  moth_tensor planes = {.ctx = a->ctx, .l = *l};
  replane(&planes.l, l, a->size);
  return shares_fit(p, &planes, &l->shape[l->ndim - 2]);
}

static int adaptive_avg_pool2d_back_shape(const adaptive_avg_pool2d_back_args *a, moth_layout *y) {
  moth_shares p;
  int status = back_fit(a, &p);
  if (!status) replane(y, &a->input->l, a->size);
  return status;
}

static int adaptive_avg_pool2d_back_cpu(const adaptive_avg_pool2d_back_args *a,
                                        moth_tensor **out) {
  moth_shares p;
  int status = back_fit(a, &p);
  if (status) return status;
  moth_tensor *dy = moth_real(a->input), *dx = moth_real_out(out[0]);
  status = !dy || !dx ? a->ctx->error.code
                      : moth_mean_shares_back(a->ctx, dy->l.dtype, &p, moth_at(dy), moth_at(dx));
  moth_tensor_release(dy);
  return moth_real_done(dx, out[0], status);
}

static int adaptive_avg_pool2d_back_grad(const adaptive_avg_pool2d_back_args *a, moth_grad *g) {
  const moth_layout *dy = &a->input->l;
  return moth_flow(g, a->input,
                   GRAD(g, adaptive_avg_pool2d, .input = g->dy,
                        .output_size = {dy->shape[dy->ndim - 2], dy->shape[dy->ndim - 1]}));
}

MOTH_OP(adaptive_avg_pool2d_back, ADAPTIVE_AVG_POOL2D_BACK,
  .doc = "The gradient of adaptive_avg_pool2d: each value is distributed evenly over its window.",
  .examples = "moth.randn(2, 3, 2, 3), {7, 5}\n"
              "moth.randn(2, 3, 2, 3), {7, 5}, \"channels_last\"",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN)

/* -- the maximum -- */

static int adaptive_max_pool2d_shape(const adaptive_max_pool2d_args *a, moth_layout *y) {
  moth_shares p;
  int status = shares_fit(&p, a->input, a->output_size);
  for (int i = 0; !status && i < 2; i++) replane(&y[i], &a->input->l, p.out);
  return status;
}

static int adaptive_max_pool2d_cpu(const adaptive_max_pool2d_args *a, moth_tensor **out) {
  moth_shares p;
  int status = shares_fit(&p, a->input, a->output_size);
  if (status) return status;
  moth_tensor *x = moth_real(a->input), *y = moth_real_out(out[0]);
  status = !x || !y ? a->ctx->error.code
                    : moth_max_shares(a->ctx, x->l.dtype, &p, moth_at(x), moth_at(y),
                                      (int64_t *)(void *)moth_at(out[1]));
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

static int adaptive_max_pool2d_grad(const adaptive_max_pool2d_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  return moth_flow(g, a->input,
                   GRAD(g, max_pool2d_back, .input = g->dy, .indices = g->out[1],
                        .size = {x->shape[x->ndim - 2], x->shape[x->ndim - 1]},
                        .memory_format = moth_format_of(a->input)));
}

MOTH_OP(adaptive_max_pool2d, ADAPTIVE_MAX_POOL2D,
  .doc = "Max pooling of images to a given size: each element is the maximum of its window.",
  .examples =
    "moth.randn(2, 3, 8, 8), 2  -- domain: distinct\n"
    "moth.randn(3, 7, 5), {output_size = {3, moth.none}, return_indices = true}"
    "  -- domain: distinct",
  .outputs = "y, indices: return_indices",
  .saves = "indices",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD)

/* -- in one dimension -- */

static int adaptive_avg_pool1d_compose(const adaptive_avg_pool1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *y = NULL;
  int status = with_height(a->input, &x);
  if (!status)
    status = MOTH_CALL(a->ctx, &y, adaptive_avg_pool2d, .input = x,
                       .output_size = {1, a->output_size[0]});
  moth_tensor_release(x);
  return status ? status : without_height(a->ctx, &y, 1, out);
}

MOTH_OP_COMPOSES(adaptive_avg_pool1d, ADAPTIVE_AVG_POOL1D,
  .doc = "Average pooling of sequences to a given length: each element is the mean of its window.",
  .examples = "moth.randn(2, 3, 8), 3\nmoth.randn(3, 4), {output_size = 6}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

static int adaptive_max_pool1d_compose(const adaptive_max_pool1d_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *y[2] = {NULL};
  int status = with_height(a->input, &x);
  if (!status)
    status = MOTH_CALL(a->ctx, y, adaptive_max_pool2d, .input = x,
                       .output_size = {1, a->output_size[0]},
                       .return_indices = a->return_indices);
  moth_tensor_release(x);
  return status ? status : without_height(a->ctx, y, 2, out);
}

MOTH_OP_COMPOSES(adaptive_max_pool1d, ADAPTIVE_MAX_POOL1D,
  .doc = "Max pooling of sequences to a given length: each element is the maximum of its window.",
  .examples =
    "moth.randn(2, 3, 8), 3  -- domain: distinct\n"
    "moth.randn(3, 4), {output_size = 6, return_indices = true}  -- domain: distinct",
  .outputs = "y, indices: return_indices",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD)

const moth_op *const moth_adaptive_ops[] = {
  &moth_op_adaptive_avg_pool2d, &moth_op_adaptive_avg_pool2d_back, &moth_op_adaptive_max_pool2d,
  &moth_op_adaptive_avg_pool1d, &moth_op_adaptive_max_pool1d, NULL,
};
