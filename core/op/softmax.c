/* softmax.c -- softmax and log_softmax. Each has a fused gradient, which is an op. The gradients of
** that op are composed of ops.
*/
#include "softmax.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/real.h"
#include "kernel/softmax.h"
#include "tensor/loop.h"
#include "gradient_formula.h"
#include "reduce.h"

/* The sum of x along dim, which is kept with size 1. */
static moth_tensor *sum_along(moth_grad *g, moth_tensor *x, int64_t dim) {
  return GRAD(g, sum, .input = x, .dim = {&dim, 1}, .keepdim = true, .dtype = -1);
}

/* -- shape and kernel of both gradients -- */

static int softmax_layout(const moth_tensor *input, int64_t dim, int64_t dtype, moth_layout *y) {
  int32_t at;
  moth_shape_like(input, y);
  if (dtype >= 0) y->dtype = (uint8_t)dtype;
  if (dtype >= MOTH_DTYPES || !moth_is_float(y->dtype))
    return moth_fail(input->ctx, MOTH_E_DTYPE, dtype < 0 ? "input" : "dtype",
                     "a float dtype is needed%s", dtype < 0 ? "; set {dtype = moth.float32}" : "");
  return moth_dim(input->ctx, "dim", dim, input->l.ndim, &at);
}

static int softmax_run(const moth_tensor *input, int64_t dim, bool logarithm, moth_tensor *out) {
  int32_t at;
  int status = moth_dim(input->ctx, "dim", dim, input->l.ndim, &at);
  if (status) return status;
  moth_strips lanes = moth_strips_of(&input->l, at);
  moth_tensor *y = moth_real_out(out), *x = NULL;
  if (input->l.dtype == out->l.dtype) x = moth_real(input);
  else if (y) x = moth_cast(input, y->l.dtype);
  status = !x || !y ? input->ctx->error.code
                    : moth_softmax(input->ctx, x->l.dtype, &lanes, logarithm, moth_at(x),
                                   moth_at(y));
  moth_tensor_release(x);
  return moth_real_done(y, out, status);
}

static int back_layout(const moth_tensor *input, const moth_tensor *output, int64_t dim,
                       moth_layout *dx) {
  if (!moth_shape_same(&input->l, &output->l))
    return moth_fail(input->ctx, MOTH_E_SHAPE, "output", "%s does not have the shape of %s",
                     moth_str(output), moth_str(input));
  return softmax_layout(input, dim, -1, dx);
}

static int back_run(const moth_tensor *input, const moth_tensor *output, int64_t dim,
                    bool logarithm, moth_tensor *out) {
  int32_t at;
  int status = moth_dim(input->ctx, "dim", dim, input->l.ndim, &at);
  if (status) return status;
  moth_strips lanes = moth_strips_of(&input->l, at);
  moth_tensor *dy = moth_real(input), *y = moth_real(output), *dx = moth_real_out(out);
  status = !dy || !y || !dx ? input->ctx->error.code
                            : moth_softmax_back(input->ctx, dy->l.dtype, &lanes, logarithm,
                                                moth_at(dy), moth_at(y), moth_at(dx));
  moth_tensor_release(dy);
  moth_tensor_release(y);
  return moth_real_done(dx, out, status);
}

/* -- softmax: y = exp(x) / sum(exp(x)) -- */

static int softmax_shape(const softmax_args *a, moth_layout *y) {
  return softmax_layout(a->input, a->dim, a->dtype, y);
}

static int softmax_cpu(const softmax_args *a, moth_tensor **out) {
  return softmax_run(a->input, a->dim, false, out[0]);
}

static int softmax_grad(const softmax_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, softmax_back, .input = g->dy, .output = g->out[0], .dim = a->dim));
}

MOTH_OP(softmax, SOFTMAX,
  .doc = "exp(x) / sum(exp(x)) along a dimension: numbers from 0 to 1 with sum 1.",
  .examples =
    "moth.randn(3, 5), 2\n"
    "moth.randn(3, 5, 2), {dim = -2}\n"
    "moth.randn(3, 5), 2, {dtype = moth.float64}",
  .dtypes = MOTH_ANY,
  .saves = "y",
  .flags = MOTH_OP_METHOD | MOTH_OP_OUT, .autocast = MOTH_AUTOCAST_F32)

static int softmax_back_shape(const softmax_back_args *a, moth_layout *dx) {
  return back_layout(a->input, a->output, a->dim, dx);
}

static int softmax_back_cpu(const softmax_back_args *a, moth_tensor **out) {
  return back_run(a->input, a->output, a->dim, false, out[0]);
}

/* dx = y (dy - sum(dy y)). Let v be the gradient of dx. The gradient of dy is the same formula with
** v for dy; the gradient of y is v (dy - sum(dy y)) - dy sum(v y). */
static int softmax_back_grad(const softmax_back_args *a, moth_grad *g) {
  moth_tensor *v = g->dy, *dy = a->input, *y = a->output;
  if (moth_wants(g, dy))
    moth_flow(g, dy, GRAD(g, softmax_back, .input = v, .output = y, .dim = a->dim));
  if (moth_wants(g, y)) {
    moth_tensor *centred = MINUS(dy, sum_along(g, TIMES(dy, y), a->dim));
    moth_tensor *rest = TIMES(dy, sum_along(g, TIMES(v, y), a->dim));
    moth_flow(g, y, MINUS(TIMES(v, centred), rest));
  }
  return g->status;
}

MOTH_OP(softmax_back, SOFTMAX_BACK,
  .doc = "The gradient of softmax.",
  .examples = "moth.randn(3, 5), moth.rand(3, 5), 2",
  .dtypes = MOTH_FLOATS,
  .saves = "input:output output",
  .flags = MOTH_OP_HIDDEN)

/* -- log_softmax: y = x - log(sum(exp(x))) -- */

static int log_softmax_shape(const log_softmax_args *a, moth_layout *y) {
  return softmax_layout(a->input, a->dim, a->dtype, y);
}

static int log_softmax_cpu(const log_softmax_args *a, moth_tensor **out) {
  return softmax_run(a->input, a->dim, true, out[0]);
}

static int log_softmax_grad(const log_softmax_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, log_softmax_back, .input = g->dy, .output = g->out[0], .dim = a->dim));
}

MOTH_OP(log_softmax, LOG_SOFTMAX,
  .doc = "log(softmax(x)) without overflow: x - log(sum(exp(x))) along a dimension.",
  .examples =
    "moth.randn(3, 5), 2\n"
    "moth.randn(3, 5, 2), {dim = -2}\n"
    "moth.randn(3, 5), 2, {dtype = moth.float64}",
  .dtypes = MOTH_ANY,
  .saves = "y",
  .flags = MOTH_OP_METHOD | MOTH_OP_OUT, .autocast = MOTH_AUTOCAST_F32)

static int log_softmax_back_shape(const log_softmax_back_args *a, moth_layout *dx) {
  return back_layout(a->input, a->output, a->dim, dx);
}

static int log_softmax_back_cpu(const log_softmax_back_args *a, moth_tensor **out) {
  return back_run(a->input, a->output, a->dim, true, out[0]);
}

/* dx = dy - p sum(dy), p = exp(y). Let v be the gradient of dx. The gradient of dy is v - sum(v p);
** the gradient of y is -v p sum(dy). */
static int log_softmax_back_grad(const log_softmax_back_args *a, moth_grad *g) {
  moth_tensor *vp = TIMES(g->dy, OF(exp, a->output));
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, MINUS(g->dy, sum_along(g, vp, a->dim)));
  if (moth_wants(g, a->output)) {
    moth_tensor *sum = sum_along(g, a->input, a->dim);
    moth_flow(g, a->output, NEGATED(TIMES(vp, sum)));
  }
  return g->status;
}

MOTH_OP(log_softmax_back, LOG_SOFTMAX_BACK,
  .doc = "The gradient of log_softmax.",
  .examples = "moth.randn(3, 5), moth.randn(3, 5), 2",
  .dtypes = MOTH_FLOATS,
  .saves = "input:output output",
  .flags = MOTH_OP_HIDDEN)

const moth_op *const moth_softmax_ops[] = {
  &moth_op_softmax, &moth_op_softmax_back, &moth_op_log_softmax, &moth_op_log_softmax_back, NULL,
};
