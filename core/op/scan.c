/* scan.c -- cumulative sums, products and extremes, and diff, the inverse of a cumulative sum.
**
** No gradient of a product divides, so zeros are exact. The gradient of cumprod has a kernel on the
** CPU. Elsewhere, and under create_graph, it runs the recurrence y[i] = x[i] y[i - 1] backwards:
** G[i] = dy[i] + x[i + 1] G[i + 1], dx[i] = G[i] y[i - 1]. The factors are scaled so that their
** products stay near 1. This recurrence is the op `recur`; its gradient is a recurrence in the
** other direction.
*/
#include "scan.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <math.h>

#include "capture/capture_parts.h"
#include "kernel/real.h"
#include "kernel/scan.h"
#include "create.h"
#include "gradient_formula.h"
#include "index.h"
#include "join.h"

/* -- helpers -- */

static uint32_t along(const moth_tensor *x, int32_t dim) { return x->l.ndim ? 1u << dim : 0; }

int moth_check_dtype(moth_ctx *ctx, int64_t dtype) {
  if (dtype < MOTH_DTYPES) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %lld", (long long)dtype);
}

int moth_sum_dtype(int dtype) { return moth_is_float(dtype) ? dtype : MOTH_I64; }

moth_tensor *moth_shifted(moth_grad *g, moth_tensor *x, int64_t dim, double number, bool back) {
  int32_t d;
  if (!x || x->l.ndim == 0)
    return x ? GRAD(g, full, .size = {NULL, 0}, .dtype = x->l.dtype, .device = moth_device_of(x),
                    .fill_value = {.as.number = number}) : NULL;
  if (moth_dim(g->ctx, "dim", dim, x->l.ndim, &d) || x->l.shape[d] == 0) return x;
  moth_layout edge = x->l;
  int64_t n = x->l.shape[d];
  edge.shape[d] = 1;
  moth_tensor *in = GRAD(g, full, .size = {edge.shape, edge.ndim}, .dtype = x->l.dtype,
                         .device = moth_device_of(x), .fill_value = {.as.number = number});
  moth_tensor *rest = GRAD(g, narrow, .input = x, .dim = d, .start = back, .length = n - 1);
  moth_tensor *list[2] = {back ? rest : in, back ? in : rest};
  return in && rest ? GRAD(g, cat, .tensors = {list, 2}, .dim = d) : NULL;
}

/* -- products of factors, with separate exponents -- */

bool moth_exponents_within(const moth_tensor *x, int64_t bound, bool zeros) {
  double block[64];
  int e;
  if (x->l.device || x->ctx->capture || moth_capture_comparing(x->ctx) ||
      !moth_layout_contiguous(&x->l))
    return false;
  const int64_t size = moth_dtype_size[x->l.dtype];
  for (int64_t i = 0; i < x->l.numel; i += 64) {
    const int64_t n = x->l.numel - i < 64 ? x->l.numel - i : 64;
    moth_convert(n, x->l.dtype, (const char *)moth_at(x) + i * size, size, MOTH_F64,
                 (char *)block, sizeof *block);
    for (int64_t k = 0; k < n; k++) {
      if (block[k] - block[k] != 0 || (block[k] == 0 && !zeros)) return false;
      frexp(block[k], &e);
      if (e > bound || e < -bound) return false;
    }
  }
  return true;
}

moth_tensor *moth_grad_wide(moth_grad *g, moth_tensor *x) {
  return !x || x->l.dtype == MOTH_F64 ? x : GRAD(g, cast, .input = x, .dtype = MOTH_F64);
}

/* The exponents are computed as integers, which have no gradient. */
moth_tensor *moth_exponents(moth_grad *g, moth_tensor *x, int64_t dim) {
  moth_tensor *log = OF(log2, OF(abs, x));
  log = CHOOSE(OF(isfinite, log), log, NUMBER(0));
  moth_tensor *sum = OF(round, GRAD(g, cumsum, .input = log, .dim = dim, .dtype = -1));
  sum = GRAD(g, cast, .input = sum, .dtype = MOTH_I64);
  return GRAD(g, cast, .input = sum, .dtype = MOTH_F64);
}

moth_tensor *moth_steps(moth_grad *g, moth_tensor *sums, int64_t dim) {
  return MINUS(sums, moth_shifted(g, sums, dim, 0, false));
}

moth_tensor *moth_times_two_to(moth_grad *g, moth_tensor *x, moth_tensor *e) {
  e = GRAD(g, clamp, .input = e, .min = -3000, .max = 3000);
  for (int parts = 3; parts > 0; parts--) { /* 2^3000 is too large for a double, 2^1000 is not */
    moth_tensor *some = e;
    if (parts > 1) some = OF(trunc, TIMES(e, NUMBER(1.0 / parts)));
    x = TIMES(x, OF(exp2, some));
    if (parts > 1) e = MINUS(e, some);
  }
  return x;
}

/* -- cumsum -- */

static int cumsum_into(moth_tensor *out, const moth_tensor *x, int64_t dim, int from,
                       bool from_end) {
  moth_rows r;
  moth_row_result y;
  int32_t d;
  if (x->l.numel == 0) return MOTH_OK; /* a tensor without elements can have 2^60 rows */
  int status = moth_dim(x->ctx, "dim", dim, x->l.ndim, &d);
  if (!status) status = moth_rows_of(&r, x, along(x, d), from);
  if (status) return status;
  status = moth_row_result_open(&y, out, d, from);
  if (!status) status = moth_rows_cumsum(&r, moth_at(y.work), from_end);
  moth_tensor_release(r.owner);
  return moth_row_result_done(&y, status);
}

static int cumsum_shape(const cumsum_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, y);
  y->dtype = (uint8_t)(a->dtype < 0 ? moth_sum_dtype(a->input->l.dtype) : a->dtype);
  int status = moth_check_dtype(a->ctx, a->dtype);
  return status ? status : moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int cumsum_cpu(const cumsum_args *a, moth_tensor **out) {
  int from = moth_sum_dtype(moth_compute_dtype(out[0]->l.dtype));
  return cumsum_into(out[0], a->input, a->dim, from, false);
}

static int cumsum_grad(const cumsum_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, cumsum_back, .input = g->dy, .dim = a->dim));
}

MOTH_OP(cumsum, CUMSUM, .doc = "The cumulative sum along a dimension: y[i] = x[1] + ... + x[i].",
        .examples = "moth.randn(2, 3), 2\nmoth.randn(2, 3), 1, {dtype = moth.float64}",
        .dtypes = MOTH_ANY, .flags = MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_METHOD,
        .autocast = MOTH_AUTOCAST_F32)

static int cumsum_back_shape(const cumsum_back_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, y);
  return moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int cumsum_back_cpu(const cumsum_back_args *a, moth_tensor **out) {
  return cumsum_into(out[0], a->input, a->dim, moth_compute_dtype(out[0]->l.dtype), true);
}

static int cumsum_back_grad(const cumsum_back_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, cumsum, .input = g->dy, .dim = a->dim, .dtype = -1));
}

MOTH_OP(cumsum_back, CUMSUM_BACK,
        .doc = "The cumulative sum from the end along a dimension: y[i] = x[i] + ... + x[n].",
        .examples = "moth.randn(2, 3), 2", .dtypes = MOTH_FLOATS, .flags = MOTH_OP_HIDDEN)

/* -- cumprod -- */

static int cumprod_shape(const cumprod_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, y);
  y->dtype = (uint8_t)(a->dtype < 0 ? moth_sum_dtype(a->input->l.dtype) : a->dtype);
  int status = moth_check_dtype(a->ctx, a->dtype);
  return status ? status : moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int cumprod_cpu(const cumprod_args *a, moth_tensor **out) {
  moth_rows r;
  moth_row_result y;
  int32_t d;
  if (a->input->l.numel == 0) return MOTH_OK;
  int from = moth_sum_dtype(moth_compute_dtype(out[0]->l.dtype));
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (!status) status = moth_rows_of(&r, a->input, along(a->input, d), from);
  if (status) return status;
  status = moth_row_result_open(&y, out[0], d, from);
  if (!status) status = moth_rows_cumprod(&r, moth_at(y.work));
  moth_tensor_release(r.owner);
  return moth_row_result_done(&y, status);
}

/* With x = m 2^e and y = w 2^sum: dx[i] = G[i] w[i - 1] 2^-e[i], where
** G[i] = dy[i] 2^sum[i] + m[i + 1] G[i + 1]. If the gradient does not overflow, no part of it
** does. */
static int cumprod_grad_scaled(const cumprod_args *a, moth_grad *g) {
  moth_tensor *x = moth_grad_wide(g, a->input);
  moth_tensor *sums = moth_exponents(g, x, a->dim), *e = moth_steps(g, sums, a->dim);
  moth_tensor *back = NEGATED(e), *m = moth_times_two_to(g, x, back);
  moth_tensor *dy = moth_times_two_to(g, moth_grad_wide(g, g->dy), sums);
  moth_tensor *sum = GRAD(g, recur, .input = dy, .factor = moth_shifted(g, m, a->dim, 0, true),
                          .dim = a->dim, .from_end = true);
  moth_tensor *w = GRAD(g, cumprod, .input = moth_shifted(g, m, a->dim, 1, false), .dim = a->dim,
                        .dtype = -1);
  return moth_flow(g, a->input, moth_times_two_to(g, TIMES(sum, w), back));
}

/* If all products are near 1, computes without scales. The result has the same bits, since the
** scales are powers of 2. */
static int cumprod_grad(const cumprod_args *a, moth_grad *g) {
  moth_tensor *x = a->input, *y = g->out[0];
  if (x->l.numel == 0 || x->l.ndim == 0) return moth_flow(g, x, g->dy);
  if (!a->ctx->grad_mode && !x->l.device) { /* else by formulas, which are differentiable */
    if (x->l.dtype != g->dy->l.dtype) x = GRAD(g, cast, .input = x, .dtype = g->dy->l.dtype);
    return moth_flow(g, a->input, GRAD(g, cumprod_back, .grad = g->dy, .input = x, .dim = a->dim));
  }
  const int64_t bound = y->l.dtype == MOTH_F64 ? 450 : y->l.dtype == MOTH_F16 ? 5 : 50;
  if (!moth_exponents_within(y, bound, false)) /* behind a zero, the products are not known */
    return cumprod_grad_scaled(a, g);
  x = moth_grad_wide(g, x);
  moth_tensor *dy = moth_grad_wide(g, g->dy);
  moth_tensor *sum = GRAD(g, recur, .input = dy, .factor = moth_shifted(g, x, a->dim, 0, true),
                          .dim = a->dim, .from_end = true);
  moth_tensor *w = GRAD(g, cumprod, .input = moth_shifted(g, x, a->dim, 1, false), .dim = a->dim,
                        .dtype = -1);
  return moth_flow(g, a->input, TIMES(sum, w));
}

MOTH_OP(cumprod, CUMPROD, .dtypes = MOTH_ANY, .saves = "input y",
        .flags = MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_METHOD,
        .doc = "The cumulative product along a dimension: y[i] = x[1] * ... * x[i].",
        .examples = "moth.randn(2, 3), 2\nmoth.randn(2, 3), 1, {dtype = moth.float64}",
        .autocast = MOTH_AUTOCAST_F32)

static int cumprod_back_shape(const cumprod_back_args *a, moth_layout *y) {
  int32_t d;
  if (!moth_shape_same(&a->grad->l, &a->input->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "grad", "%s is needed, got %s", moth_str(a->input),
                     moth_str(a->grad));
  moth_shape_like(a->input, y);
  return moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int cumprod_back_cpu(const cumprod_back_args *a, moth_tensor **out) {
  moth_rows r = {.owner = NULL}, dy = {.owner = NULL};
  moth_row_result y = {.work = NULL};
  int32_t d;
  if (a->input->l.numel == 0) return MOTH_OK;
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (!status) status = moth_rows_of(&r, a->input, along(a->input, d), MOTH_F64);
  if (!status) status = moth_rows_of(&dy, a->grad, along(a->input, d), MOTH_F64);
  if (!status) status = moth_row_result_open(&y, out[0], d, MOTH_F64);
  if (!status)
    status = moth_rows_cumprod_back(&r, &dy, (double *)(void *)moth_at(y.work),
                                    out[0]->l.dtype != MOTH_F64);
  moth_tensor_release(r.owner);
  moth_tensor_release(dy.owner);
  return y.work ? moth_row_result_done(&y, status) : status;
}

MOTH_OP_CONST(cumprod_back, CUMPROD_BACK, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_HIDDEN,
              .doc = "The gradient of the cumulative product.",
              .examples = "moth.randn(2, 3), moth.randn(2, 3), 2")

/* -- recur -- */

static int recur_shape(const recur_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, y);
  if (!moth_shape_same(&a->input->l, &a->factor->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "factor", "%s is needed, got %s", moth_str(a->input),
                     moth_str(a->factor));
  return moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int recur_cpu(const recur_args *a, moth_tensor **out) {
  moth_rows r = {.owner = NULL}, f = {.owner = NULL};
  moth_row_result y = {.work = NULL};
  int32_t d;
  int from = moth_compute_dtype(out[0]->l.dtype);
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (!status) status = moth_rows_of(&r, a->input, along(a->input, d), from);
  if (!status) status = moth_rows_of(&f, a->factor, along(a->input, d), from);
  if (!status) status = moth_row_result_open(&y, out[0], d, from);
  if (!status) status = moth_rows_recur(&r, &f, moth_at(y.work), a->from_end);
  moth_tensor_release(r.owner);
  moth_tensor_release(f.owner);
  return y.work ? moth_row_result_done(&y, status) : status;
}

/* The gradients are sums in the other direction. The gradient of a factor contains the neighbour of
** y. */
static int recur_grad(const recur_args *a, moth_grad *g) {
  moth_tensor *factor = moth_shifted(g, a->factor, a->dim, 0, !a->from_end);
  moth_tensor *sum = GRAD(g, recur, .input = g->dy, .factor = factor, .dim = a->dim,
                          .from_end = !a->from_end);
  if (moth_wants(g, a->input)) moth_flow(g, a->input, sum);
  if (moth_wants(g, a->factor))
    moth_flow(g, a->factor, TIMES(sum, moth_shifted(g, g->out[0], a->dim, 0, a->from_end)));
  return g->status;
}

MOTH_OP(recur, RECUR, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_HIDDEN, .saves = "factor y",
        .doc = "A linear recurrence along a dimension: y[i] = x[i] + factor[i] y[i - 1].",
        .examples = "moth.randn(2, 3), moth.randn(2, 3), 2\n"
                    "moth.randn(3, 2), moth.randn(3, 2), 1, {from_end = true}")

/* -- cummax, cummin -- */

static int cum_into(moth_tensor **out, const moth_tensor *x, int64_t dim, bool least) {
  moth_rows r = {.owner = NULL};
  moth_row_result y = {.work = NULL}, at = {.work = NULL};
  int32_t d;
  if (x->l.numel == 0) return MOTH_OK;
  int status = moth_dim(x->ctx, "dim", dim, x->l.ndim, &d);
  if (!status) status = moth_rows_of(&r, x, along(x, d), moth_compute_dtype(x->l.dtype));
  if (!status) status = moth_row_result_open(&y, out[0], d, r.dtype);
  if (!status) status = moth_row_result_open(&at, out[1], d, MOTH_I64);
  if (!status)
    status = moth_rows_cumextreme(&r, moth_at(y.work), (int64_t *)(void *)moth_at(at.work), least);
  moth_tensor_release(r.owner);
  if (at.work) status = moth_row_result_done(&at, status);
  return y.work ? moth_row_result_done(&y, status) : status;
}

#define RUNNING(op, least, text)                                                           \
  static int op##_shape(const op##_args *a, moth_layout *y) {                              \
    int32_t d;                                                                             \
    moth_shape_like(a->input, &y[0]);                                                      \
    moth_shape_like(a->input, &y[1]);                                                      \
    return moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);                          \
  }                                                                                        \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                             \
    return cum_into(out, a->input, a->dim, least);                                         \
  }                                                                                        \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                 \
    if (!g->dys[0]) return g->status;                                                      \
    moth_tensor *zeros = GRAD(g, zeros, .size = {a->input->l.shape, a->input->l.ndim},     \
                              .dtype = a->input->l.dtype,                                  \
                              .device = moth_device_of(a->input));                         \
    return moth_flow(g, a->input, GRAD(g, scatter_add, .input = zeros, .dim = a->dim,      \
                                       .index = g->out[1], .src = g->dys[0]));             \
  }                                                                                        \
  MOTH_OP(op, CUM_EXTREME, .doc = text, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,       \
          .outputs = "values, indices: position", .saves = "indices",                      \
          .examples = "moth.randn(2, 3), 2  -- domain: distinct\n"                         \
                      "moth.randn(3, 2), 1  -- domain: distinct")

RUNNING(cummax, false, "The largest element so far along a dimension, and its position.")
RUNNING(cummin, true, "The smallest element so far along a dimension, and its position.")

/* -- diff -- */

/* Returns the differences of *x along d. Releases *x. */
static int differences(moth_ctx *ctx, moth_tensor **x, int32_t d) {
  moth_tensor *first = NULL, *second = NULL, *y = NULL;
  const int64_t size = (*x)->l.shape[d], n = size ? size - 1 : 0, from = size ? 1 : 0;
  int status = MOTH_CALL(ctx, &first, narrow, .input = *x, .dim = d, .start = 0, .length = n);
  if (!status)
    status = MOTH_CALL(ctx, &second, narrow, .input = *x, .dim = d, .start = from, .length = n);
  if (!status && (*x)->l.dtype == MOTH_BOOL)
    status = MOTH_CALL(ctx, &y, ne, .input = second, .other = first);
  else if (!status)
    status = MOTH_CALL(ctx, &y, sub, .input = second, .other = first,
                       .alpha = {.type = 1, .as.integer = 1});
  moth_tensor_release(first);
  moth_tensor_release(second);
  moth_tensor_release(*x);
  *x = y;
  return status;
}

static int diff_compose(const diff_args *a, moth_tensor **out) {
  int32_t d;
  moth_tensor *list[3], *x = NULL;
  int64_t n = 0;
  if (a->input->l.ndim == 0 || a->n < 0)
    return moth_fail(a->ctx, a->n < 0 ? MOTH_E_ARG : MOTH_E_SHAPE, a->n < 0 ? "n" : "input",
                     "a tensor with dimensions and n from 0 on are needed, got %s and %lld",
                     moth_str(a->input), (long long)a->n);
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (status) return status;
  if (a->n == 0) return MOTH_CALL(a->ctx, out, clone, .input = a->input);
  if (a->prepend) list[n++] = a->prepend;
  list[n++] = a->input;
  if (a->append) list[n++] = a->append;
  if (n > 1)
    status = moth_error_as(a->ctx, MOTH_CALL(a->ctx, &x, cat, .tensors = {list, n}, .dim = d),
                           "tensors", a->prepend ? "prepend" : "append");
  else if (a->input->l.shape[d]) x = moth_tensor_retain(a->input);
  else status = MOTH_CALL(a->ctx, &x, clone, .input = a->input);
  for (int64_t i = 0; i < a->n && !status && x->l.shape[d]; i++)
    status = differences(a->ctx, &x, d);
  if (status) moth_tensor_release(x);
  else *out = x;
  return status;
}

MOTH_OP_COMPOSES(diff, DIFF, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The n-th differences of consecutive elements along a dimension: y[i] = "
                        "x[i + 1] - x[i].",
                 .examples = "moth.randn(2, 4)\n"
                             "moth.randn(4, 2), {n = 2, dim = 1}\n"
                             "moth.randn(2, 2), {prepend = moth.randn(2, 1), "
                             "append = moth.randn(2, 1)}")

const moth_op *const moth_scan_ops[] = {
  &moth_op_cumsum, &moth_op_cumsum_back, &moth_op_cumprod, &moth_op_cumprod_back,
  &moth_op_recur,
  &moth_op_cummax, &moth_op_cummin, &moth_op_diff, NULL,
};
