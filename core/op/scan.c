/* scan.c -- products, running products and extremes, norms.
**
** No gradient of a product divides, so zeros do no harm. That of cumprod runs the recurrence
** y[i] = x[i] y[i - 1] backwards: G[i] = dy[i] + x[i + 1] G[i + 1], dx[i] = G[i] y[i - 1]. Such a
** recurrence is an op of its own, recur, whose gradient is one in the other direction. That of
** prod multiplies what stands before and behind each element.
*/
#include "scan.h"

#include <math.h>

#include "../kernel/fold.h"
#include "../kernel/real.h"
#include "../kernel/scan.h"
#include "create.h"
#include "formula.h"
#include "index.h"
#include "join.h"
#include "rearrange.h"
#include "reduce.h"


/* -- helpers -- */

static int check_dtype(moth_ctx *ctx, int64_t dtype) {
  if (dtype < MOTH_DTYPES) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %lld", (long long)dtype);
}

static int sum_dtype(int dtype) { return moth_is_float(dtype) ? dtype : MOTH_I64; }

static uint32_t along(const moth_tensor *x, int32_t dim) { return x->l.ndim ? 1u << dim : 0; }

/* x one place further along dim, with `number` coming in; or, back, one place nearer. */
static moth_tensor *shifted(moth_grad *g, moth_tensor *x, int64_t dim, double number, bool back) {
  int32_t d;
  if (!x || x->l.ndim == 0) return x ? GRAD(g, full, .size = {NULL, 0}, .dtype = x->l.dtype,
                                            .fill_value = {.as.number = number}) : NULL;
  if (moth_dim(g->ctx, "dim", dim, x->l.ndim, &d) || x->l.shape[d] == 0) return x;
  moth_layout edge = x->l;
  int64_t n = x->l.shape[d];
  edge.shape[d] = 1;
  moth_tensor *in = GRAD(g, full, .size = {edge.shape, edge.ndim}, .dtype = x->l.dtype,
                         .fill_value = {.as.number = number});
  moth_tensor *rest = GRAD(g, narrow, .input = x, .dim = d, .start = back, .length = n - 1);
  moth_tensor *list[2] = {back ? rest : in, back ? in : rest};
  return in && rest ? GRAD(g, cat, .tensors = {list, 2}, .dim = d) : NULL;
}

/* -- prod -- */

static int prod_shape(const prod_args *a, moth_layout *y) {
  uint32_t mask;
  y->dtype = (uint8_t)(a->dtype < 0 ? sum_dtype(a->input->l.dtype) : a->dtype);
  int status = check_dtype(a->ctx, a->dtype);
  return status ? status : moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
}

static int prod_cpu(const prod_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(a->dtype < 0 ? a->input->l.dtype : (int)a->dtype);
  return moth_fold_into(moth_prod_folds, out[0], a->input, a->dim, from, sum_dtype(from));
}

/* The input as (kept dims, all reduced ones in one): order and sizes. */
typedef struct prod_layout {
  int64_t order[MOTH_MAX_DIMS], back[MOTH_MAX_DIMS], moved[MOTH_MAX_DIMS];
  int64_t shape[MOTH_MAX_DIMS + 1], nkept;
} prod_layout;

static void flatten_reduced(prod_layout *r, const moth_tensor *x, uint32_t mask) {
  int64_t n = 0, length = 1;
  for (int pass = 0; pass < 2; pass++) {
    for (int d = 0; d < x->l.ndim; d++) {
      if ((int)(mask >> d & 1u) != pass) continue;
      r->order[n] = d;
      r->back[d] = n;
      r->moved[n] = x->l.shape[d];
      if (pass) length *= x->l.shape[d];
      else r->shape[n] = x->l.shape[d];
      n++;
    }
    if (!pass) r->nkept = n;
  }
  r->shape[r->nkept] = length;
}

/* dy times the product of all that stands before and of all that stands behind. */
static int prod_grad(const prod_args *a, moth_grad *g) {
  prod_layout r;
  uint32_t mask;
  const int64_t ndim = a->input->l.ndim;
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (status) return status;
  flatten_reduced(&r, a->input, mask);
  moth_tensor *x = a->input;
  if (g->dy->l.dtype != x->l.dtype) x = GRAD(g, cast, .input = x, .dtype = g->dy->l.dtype);
  x = GRAD(g, permute, .input = x, .dims = {r.order, ndim});
  x = GRAD(g, reshape, .input = x, .shape = {r.shape, r.nkept + 1});
  const int64_t last = r.nkept;
  moth_tensor *before = GRAD(g, cumprod, .input = shifted(g, x, last, 1, false), .dim = last,
                             .dtype = -1);
  moth_tensor *behind = shifted(g, x, last, 1, true);
  behind = GRAD(g, flip, .input = behind, .dims = {&last, 1});
  behind = GRAD(g, cumprod, .input = behind, .dim = last, .dtype = -1);
  behind = GRAD(g, flip, .input = behind, .dims = {&last, 1});
  const int64_t was = r.shape[last];
  r.shape[last] = 1;
  moth_tensor *dy = GRAD(g, reshape, .input = g->dy, .shape = {r.shape, r.nkept + 1});
  r.shape[last] = was;
  moth_tensor *dx = TIMES(dy, TIMES(before, behind));
  dx = GRAD(g, reshape, .input = dx, .shape = {r.moved, ndim});
  return moth_flow(g, a->input, GRAD(g, permute, .input = dx, .dims = {r.back, ndim}));
}

MOTH_OP(prod, PROD, .dtypes = MOTH_ANY, .saves = "input",
        .flags = MOTH_OP_OUT | MOTH_OP_METHOD,
        .doc = "The product along dimensions; that of integers and bool is i64.",
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}")

/* -- cumprod -- */

static int cumprod_shape(const cumprod_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, y);
  y->dtype = (uint8_t)(a->dtype < 0 ? sum_dtype(a->input->l.dtype) : a->dtype);
  int status = check_dtype(a->ctx, a->dtype);
  return status ? status : moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
}

static int cumprod_cpu(const cumprod_args *a, moth_tensor **out) {
  moth_rows r;
  moth_row_result y;
  int32_t d;
  int from = sum_dtype(moth_compute_dtype(out[0]->l.dtype));
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (!status) status = moth_rows_of(&r, a->input, along(a->input, d), from);
  if (status) return status;
  status = moth_row_result_open(&y, out[0], d, from);
  if (!status) status = moth_rows_cumprod(&r, moth_at(y.work));
  moth_tensor_release(r.owner);
  return moth_row_result_done(&y, status);
}

static int cumprod_grad(const cumprod_args *a, moth_grad *g) {
  moth_tensor *x = a->input;
  if (g->dy->l.dtype != x->l.dtype) x = GRAD(g, cast, .input = x, .dtype = g->dy->l.dtype);
  moth_tensor *sum = GRAD(g, recur, .input = g->dy, .factor = shifted(g, x, a->dim, 0, true),
                          .dim = a->dim, .from_end = true);
  return moth_flow(g, a->input, TIMES(sum, shifted(g, g->out[0], a->dim, 1, false)));
}

MOTH_OP(cumprod, CUMPROD, .dtypes = MOTH_ANY, .saves = "input y",
        .flags = MOTH_OP_OUT | MOTH_OP_METHOD,
        .doc = "Each element multiplied with all before it along a dimension.",
        .examples = "moth.randn(2, 3), 2\nmoth.randn(2, 3), 1, {dtype = moth.float64}")

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

/* The sums run the other way; a factor gets what its neighbour was. */
static int recur_grad(const recur_args *a, moth_grad *g) {
  moth_tensor *factor = shifted(g, a->factor, a->dim, 0, !a->from_end);
  moth_tensor *sum = GRAD(g, recur, .input = g->dy, .factor = factor, .dim = a->dim,
                          .from_end = !a->from_end);
  if (moth_wants(g, a->input)) moth_flow(g, a->input, sum);
  if (moth_wants(g, a->factor))
    moth_flow(g, a->factor, TIMES(sum, shifted(g, g->out[0], a->dim, 0, a->from_end)));
  return g->status;
}

MOTH_OP(recur, RECUR, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_HIDDEN, .saves = "factor y",
        .doc = "Each element plus its factor times the result before it.",
        .examples = "moth.randn(2, 3), moth.randn(2, 3), 2\n"
                    "moth.randn(3, 2), moth.randn(3, 2), 1, {from_end = true}")

/* -- cummax, cummin -- */

static int cum_into(moth_tensor **out, const moth_tensor *x, int64_t dim, bool least) {
  moth_rows r = {.owner = NULL};
  moth_row_result y = {.work = NULL}, at = {.work = NULL};
  int32_t d;
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
    moth_shape_like(a->input, &y[0]);                                                           \
    moth_shape_like(a->input, &y[1]);                                                           \
    return moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);                          \
  }                                                                                        \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                             \
    return cum_into(out, a->input, a->dim, least);                                         \
  }                                                                                        \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                 \
    if (!g->dys[0]) return g->status;                                                      \
    moth_tensor *zeros = GRAD(g, zeros, .size = {a->input->l.shape, a->input->l.ndim},     \
                              .dtype = a->input->l.dtype);                                 \
    return moth_flow(g, a->input, GRAD(g, scatter_add, .input = zeros, .dim = a->dim,      \
                                       .index = g->out[1], .src = g->dys[0]));             \
  }                                                                                        \
  MOTH_OP(op, CUM_EXTREME, .doc = text, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,       \
          .outputs = "values, indices: position", .saves = "indices",                      \
          .examples = "moth.randn(2, 3), 2  -- domain: distinct\n"                         \
                      "moth.randn(3, 2), 1  -- domain: distinct")

RUNNING(cummax, false, "The largest element so far along a dimension, and where it stands.")
RUNNING(cummin, true, "The smallest element so far along a dimension, and where it stands.")

/* -- norm -- */

static int norm_p_shape(const norm_p_args *a, moth_layout *y) {
  uint32_t mask;
  int dtype = a->dtype < 0 ? a->input->l.dtype : (int)a->dtype;
  int status = check_dtype(a->ctx, a->dtype);
  if (status) return status;
  if (!moth_is_float(dtype))
    return moth_fail(a->ctx, MOTH_E_DTYPE, a->dtype < 0 ? "input" : "dtype",
                     "a norm is not a whole number, so %s cannot hold it; say "
                     "{dtype = moth.float32}", moth_dtype_name(dtype));
  if (isnan(a->p)) return moth_fail(a->ctx, MOTH_E_ARG, "p", "a number is needed, got nan");
  y->dtype = (uint8_t)dtype;
  status = moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
  int64_t n = 1;
  for (int d = 0; d < a->input->l.ndim && !status; d++)
    if (mask >> d & 1u) n *= a->input->l.shape[d];
  if (status || n > 0 || !isinf(a->p)) return status;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has no elements to choose from",
                   moth_str(a->input));
}

static int norm_p_cpu(const norm_p_args *a, moth_tensor **out) {
  moth_rows r;
  uint32_t mask;
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (!status) status = moth_rows_of(&r, a->input, mask, moth_compute_dtype(out[0]->l.dtype));
  if (status) return status;
  moth_tensor *work = moth_real_out(out[0]);
  status = work ? moth_rows_norm(&r, a->p, moth_at(work)) : a->ctx->error.code;
  moth_tensor_release(r.owner);
  return moth_real_done(work, out[0], status);
}

/* x |x|^(p-2) dy / y^(p-1); 0 where x or y is. Zeros are set to 1 before they can make infinity. */
static int norm_p_grad(const norm_p_args *a, moth_grad *g) {
  const moth_ints size = {a->input->l.shape, a->input->l.ndim};
  moth_tensor *x = a->input, *y = g->out[0], *dy = g->dy, *dx;
  if (dy->l.dtype != x->l.dtype) x = GRAD(g, cast, .input = x, .dtype = dy->l.dtype);
  moth_tensor *flat = OF(logical_not, y);
  if (a->p == 0) {
    dx = GRAD(g, zeros, .size = size, .dtype = a->input->l.dtype);
  } else if (a->p == 2) {
    dx = TIMES(x, SPREAD_BACK(FILLED(OVER(dy, FILLED(y, flat, 1)), flat, 0)));
  } else if (isinf(a->p)) {
    moth_tensor *chosen = GRAD(g, eq, .input = OF(abs, x), .other = SPREAD_BACK(y));
    moth_tensor *n = GRAD(g, sum, .input = chosen, .dim = a->dim, .keepdim = a->keepdim,
                          .dtype = -1);
    dx = TIMES(OF(sign, x), SPREAD_BACK(OVER(dy, n)));
    dx = GRAD(g, where, .condition = chosen, .input = dx, .other = NUMBER(0));
  } else {
    moth_tensor *zero = OF(logical_not, x);
    moth_tensor *size_of_x = GRAD(g, abs, .input = FILLED(x, zero, 1));
    dx = GRAD(g, pow, .input = size_of_x, .exponent = NUMBER(a->p - 1));
    dx = FILLED(TIMES(dx, OF(sign, x)), zero, 0);
    moth_tensor *by = GRAD(g, pow, .input = FILLED(y, flat, 1), .exponent = NUMBER(a->p - 1));
    dx = TIMES(dx, SPREAD_BACK(FILLED(OVER(dy, by), flat, 0)));
  }
  return moth_flow(g, a->input, dx);
}

MOTH_OP(norm_p, NORM_P, .dtypes = MOTH_ANY, .saves = "input y", .flags = MOTH_OP_HIDDEN,
        .doc = "The p-norm along dimensions.",
        .examples = "moth.randn(2, 3)\n"
                    "moth.randn(2, 3), 3, {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3), math.huge, {dim = 1}  -- domain: distinct\n"
                    "moth.randn(2, 3), -math.huge  -- domain: distinct\n"
                    "moth.randn(2, 3), 0\nmoth.randn(2, 3), 1\nmoth.randn(2, 3), 0.5\n"
                    "moth.randn(2, 3, 2), 2, {1, 3}, {dtype = moth.float64}")

const moth_op *const moth_scan_ops[] = {
  &moth_op_prod,   &moth_op_cumprod, &moth_op_recur, &moth_op_cummax,
  &moth_op_cummin, &moth_op_norm_p,  NULL,
};
