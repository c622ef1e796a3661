/* reduce.c -- reductions along some dimensions or all. */
#include "reduce.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/math/elementwise.h"
#include "kernel/reduce.h"
#include "kernel/products.h"
#include "kernel/real.h"
#include "kernel/scan.h"
#include "gradient_formula.h"
#include "rearrange.h"
#include "scan.h"

#define REDUCE_FLAGS (MOTH_OP_OUT | MOTH_OP_METHOD)

/* Returns the number of elements that are reduced to one. */
static int64_t reduced_count(const moth_tensor *x, uint32_t mask) {
  int64_t n = 1;
  for (int d = 0; d < x->l.ndim; d++)
    if (mask >> d & 1u) n *= x->l.shape[d];
  return n;
}

static int refuse_empty(moth_ctx *ctx, const moth_tensor *x, uint32_t mask) {
  if (reduced_count(x, mask) > 0) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, "input", "%s has no elements to choose from",
                                               moth_str(x));
}

/* -- sum, mean -- */

int moth_mean_dtype(const moth_tensor *input, int64_t dtype, const char *what, moth_layout *y) {
  const int to = dtype < 0 ? input->l.dtype : (int)dtype;
  int status = moth_check_dtype(input->ctx, dtype);
  if (status) return status;
  if (!moth_is_float(to))
    return moth_fail(input->ctx, MOTH_E_DTYPE, dtype < 0 ? "input" : "dtype",
                     "a %s is not an integer, so %s cannot hold it; set {dtype = moth.float32}",
                     what, moth_dtype_name(to));
  y->dtype = (uint8_t)to;
  return MOTH_OK;
}

static int sum_shape(const sum_args *a, moth_layout *y) {
  uint32_t mask;
  y->dtype = (uint8_t)(a->dtype < 0 ? moth_sum_dtype(a->input->l.dtype) : a->dtype);
  int status = moth_check_dtype(a->ctx, a->dtype);
  return status ? status : moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
}

static int sum_cpu(const sum_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(a->dtype < 0 ? a->input->l.dtype : (int)a->dtype);
  return moth_reduce_into(moth_sum_reducers, out[0], a->input, a->dim, from, moth_sum_dtype(from));
}

static int sum_grad(const sum_args *a, moth_grad *g) {
  return moth_flow(g, a->input, SPREAD_BACK(g->dy));
}

MOTH_OP(sum, REDUCE_DTYPE, .doc = "The sum along dimensions; the sum of integers and bool is i64.",
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}",
        .dtypes = MOTH_ANY, .flags = REDUCE_FLAGS, .autocast = MOTH_AUTOCAST_F32)

static int mean_shape(const mean_args *a, moth_layout *y) {
  uint32_t mask;
  int status = moth_mean_dtype(a->input, a->dtype, "mean", y);
  return status ? status : moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
}

static int mean_cpu(const mean_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(out[0]->l.dtype);
  return moth_reduce_into(moth_mean_reducers, out[0], a->input, a->dim, from, from);
}

static int mean_grad(const mean_args *a, moth_grad *g) {
  double n = (double)a->input->l.numel / (double)(g->dy->l.numel ? g->dy->l.numel : 1);
  return moth_flow(g, a->input, SPREAD_BACK(moth_grad_share(g, g->dy, n)));
}

MOTH_OP(mean, REDUCE_DTYPE, .doc = "The mean along dimensions.",
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}",
        .dtypes = MOTH_ANY, .flags = REDUCE_FLAGS)

/* -- prod -- */

static bool has_nan(const moth_tensor *y) {
  double block[64];
  const int64_t size = moth_dtype_size[y->l.dtype];
  for (int64_t i = 0; i < y->l.numel; i += 64) {
    const int64_t n = y->l.numel - i < 64 ? y->l.numel - i : 64;
    moth_convert(n, y->l.dtype, (const char *)moth_at(y) + i * size, size, MOTH_F64,
                 (char *)block, sizeof *block);
    for (int64_t k = 0; k < n; k++)
      if (block[k] != block[k]) return true;
  }
  return false;
}

static int prod_shape(const prod_args *a, moth_layout *y) {
  uint32_t mask;
  y->dtype = (uint8_t)(a->dtype < 0 ? moth_sum_dtype(a->input->l.dtype) : a->dtype);
  int status = moth_check_dtype(a->ctx, a->dtype);
  return status ? status : moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
}

static int prod_cpu(const prod_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(a->dtype < 0 ? a->input->l.dtype : (int)a->dtype);
  return moth_reduce_into(moth_prod_reducers, out[0], a->input, a->dim, from, moth_sum_dtype(from));
}

/* Computes the order and the sizes of the input as (kept dims, one dim for all reduced dims). */
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

/* Returns, for each element, the product of all other elements. Correct also with zeros. */
static moth_tensor *product_of_others(moth_grad *g, moth_tensor *x, int64_t last) {
  moth_tensor *before = GRAD(g, cumprod, .input = moth_shifted(g, x, last, 1, false), .dim = last,
                             .dtype = -1);
  moth_tensor *behind = moth_shifted(g, x, last, 1, true);
  behind = GRAD(g, flip, .input = behind, .dims = {&last, 1});
  behind = GRAD(g, cumprod, .input = behind, .dim = last, .dtype = -1);
  return TIMES(before, GRAD(g, flip, .input = behind, .dims = {&last, 1}));
}

/* dy times the product of all other factors. The factors are scaled, x 2^-e, so that products stay
** near 1. The formula is differentiable. */
static moth_tensor *prod_back_formula(moth_grad *g, const prod_args *a, moth_tensor *x,
                                      moth_tensor *dy, int64_t last) {
  const int64_t n = x ? x->l.shape[last] : 0;
  x = moth_grad_wide(g, x);
  dy = moth_grad_wide(g, dy);
  /* a product of few f32 factors fits f64 */
  const bool few = n < 7 && a->input->l.dtype != MOTH_F64;
  if (n == 0 || few || moth_exponents_within(a->input, 900 / n, true))
    return TIMES(dy, product_of_others(g, x, last));
  moth_tensor *sums = moth_exponents(g, x, last), *e = moth_steps(g, sums, last);
  moth_tensor *dx = product_of_others(g, moth_times_two_to(g, x, NEGATED(e)), last);
  moth_tensor *all = GRAD(g, narrow, .input = sums, .dim = last, .start = n - 1, .length = 1);
  return moth_times_two_to(g, TIMES(dx, dy), MINUS(all, e));
}

static int prod_grad(const prod_args *a, moth_grad *g) {
  prod_layout r;
  uint32_t mask;
  const int64_t ndim = a->input->l.ndim;
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (status) return status;
  flatten_reduced(&r, a->input, mask);
  moth_tensor *x = GRAD(g, permute, .input = a->input, .dims = {r.order, ndim}), *dx;
  x = GRAD(g, reshape, .input = x, .shape = {r.shape, r.nkept + 1});
  r.shape[r.nkept] = 1;
  moth_tensor *dy = GRAD(g, reshape, .input = g->dy, .shape = {r.shape, r.nkept + 1});
  if (a->ctx->grad_mode || a->input->l.device) {
    dx = prod_back_formula(g, a, x, dy, r.nkept);
  } else {
    if (g->dy->l.dtype != a->input->l.dtype)
      x = GRAD(g, cast, .input = x, .dtype = g->dy->l.dtype);
    dx = GRAD(g, prod_back, .grad = dy, .input = x);
  }
  dx = GRAD(g, reshape, .input = dx, .shape = {r.moved, ndim});
  return moth_flow(g, a->input, GRAD(g, permute, .input = dx, .dims = {r.back, ndim}));
}

MOTH_OP(prod, REDUCE_DTYPE, .dtypes = MOTH_ANY, .saves = "input",
        .flags = MOTH_OP_OUT | MOTH_OP_METHOD,
        .doc = "The product along dimensions; the product of integers and bool is i64.",
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}",
        .autocast = MOTH_AUTOCAST_F32)

static int prod_back_shape(const prod_back_args *a, moth_layout *y) {
  const moth_layout *x = &a->input->l, *dy = &a->grad->l;
  bool fits = x->ndim > 0 && dy->ndim == x->ndim && dy->shape[x->ndim - 1] == 1;
  for (int d = 0; fits && d < x->ndim - 1; d++) fits = x->shape[d] == dy->shape[d];
  if (fits) return moth_shape_like(a->input, y);
  return moth_fail(a->ctx, MOTH_E_SHAPE, "grad", "one for each row of %s is needed, got %s",
                   moth_str(a->input), moth_str(a->grad));
}

static int prod_back_cpu(const prod_back_args *a, moth_tensor **out) {
  moth_rows r;
  if (out[0]->l.numel == 0) return MOTH_OK;
  const int from = moth_compute_dtype(out[0]->l.dtype);
  int status = moth_rows_of(&r, a->input, 1u << (a->input->l.ndim - 1), from);
  if (status) return status;
  moth_tensor *dy = moth_real(a->grad), *y = dy ? moth_real_out(out[0]) : NULL;
  status = y ? moth_rows_prod_back(&r, moth_at(dy), moth_at(y)) : a->ctx->error.code;
  moth_tensor_release(r.owner);
  moth_tensor_release(dy);
  return moth_real_done(y, out[0], status);
}

MOTH_OP_CONST(prod_back, PROD_BACK, .dtypes = MOTH_FLOATS,
              .flags = MOTH_OP_HIDDEN, .doc = "The gradient of the products of rows.",
              .examples = "moth.randn(2, 1), moth.randn(2, 3)")

/* -- amax, amin: elements that are equal to the extreme share the gradient -- */

/* For amax and amin: the gradient of the elements that are not equal to the extreme: NaN if the
** extreme is NaN, else 0. */
static moth_tensor *nan_or_zero(moth_grad *g) {
  moth_tensor *y = g->out[0];
  return CHOOSE(OF(isnan, y), y, NUMBER(0));
}

#define EXTREME_OP(op, text)                                                                   \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                  \
    uint32_t mask;                                                                             \
    int status = moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);           \
    return status ? status : refuse_empty(a->ctx, a->input, mask);                             \
  }                                                                                            \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                                 \
    int from = moth_compute_dtype(a->input->l.dtype);                                          \
    return moth_reduce_into(moth_##op##_reducers, out[0], a->input, a->dim, from, from);       \
  }                                                                                            \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                     \
    moth_tensor *chosen = GRAD(g, eq, .input = a->input, .other = SPREAD_BACK(g->out[0]));     \
    moth_tensor *n =                                                                           \
        GRAD(g, sum, .input = chosen, .dim = a->dim, .keepdim = a->keepdim, .dtype = -1);      \
    return moth_flow(g, a->input,                                                              \
                     GRAD(g, where, .condition = chosen, .input = SPREAD_BACK(OVER(g->dy, n)), \
                          .other = SPREAD_BACK(nan_or_zero(g))));                              \
  }                                                                                            \
  MOTH_OP(op, REDUCE, .doc = text,                                                             \
          .examples =                                                                          \
              "moth.randn(2, 3)  -- domain: distinct\n"                                        \
              "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct",              \
          .dtypes = MOTH_ANY, .saves = "input y", .flags = REDUCE_FLAGS)

EXTREME_OP(amax, "The largest value along dimensions; NaN wins.")
EXTREME_OP(amin, "The smallest value along dimensions; NaN wins.")

/* -- max_all, min_all: the largest or smallest of all elements. If it is NaN, all NaNs share the
** gradient. -- */

#define ALL_EXTREME_OP(op, reducers, shown, text)                                             \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                 \
    uint32_t mask;                                                                            \
    int status = moth_reduced_shape(a->ctx, a->input, (moth_ints){NULL, 0}, false, y, &mask); \
    return status ? status : refuse_empty(a->ctx, a->input, mask);                            \
  }                                                                                           \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                                \
    int from = moth_compute_dtype(a->input->l.dtype);                                         \
    return moth_reduce_into(reducers, out[0], a->input, (moth_ints){NULL, 0}, from, from);    \
  }                                                                                           \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                    \
    moth_tensor *x = a->input, *y = g->out[0];                                                \
    moth_tensor *nan = BOTH(OF(isnan, x), OF(isnan, y));                                      \
    moth_tensor *chosen =                                                                     \
        GRAD(g, logical_or, .input = nan, .other = GRAD(g, eq, .input = x, .other = y));      \
    moth_tensor *n = GRAD(g, sum, .input = chosen, .dtype = -1);                              \
    return moth_flow(g, x, CHOOSE(chosen, OVER(g->dy, n), NUMBER(0)));                        \
  }                                                                                           \
  MOTH_OP(op, ALL_EXTREME, .doc = text, .dtypes = MOTH_ANY, .saves = "input y",               \
          .examples = "moth.randn(2, 3)  -- domain: distinct", .flags = MOTH_OP_HIDDEN,       \
          .public_name = shown)

ALL_EXTREME_OP(max_all, moth_amax_reducers, "max", "The largest value of all elements; NaN wins.")
ALL_EXTREME_OP(min_all, moth_amin_reducers, "min", "The smallest value of all elements; NaN wins.")

/* -- bool results and counts -- */

#define BOOL_REDUCED(op, text)                                                                \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                 \
    uint32_t mask;                                                                            \
    y->dtype = MOTH_BOOL;                                                                     \
    return moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);                \
  }                                                                                           \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                                \
    int from = moth_compute_dtype(a->input->l.dtype);                                         \
    return moth_reduce_into(moth_##op##_reducers, out[0], a->input, a->dim, from, MOTH_BOOL); \
  }                                                                                           \
  MOTH_OP_CONST(op, REDUCE, .doc = text,                                                      \
                .examples =                                                                   \
                    "moth.randn(2, 3):gt(0)\n"                                                \
                    "moth.randn(2, 3):gt(0), {dim = 2, keepdim = true}",                      \
                .dtypes = MOTH_ANY, .flags = REDUCE_FLAGS)

BOOL_REDUCED(all, "True where no element along the dimensions is 0 or false.")
BOOL_REDUCED(any, "True where some element along the dimensions is not 0 or false.")

static int count_nonzero_shape(const count_nonzero_args *a, moth_layout *y) {
  uint32_t mask;
  y->dtype = MOTH_I64;
  return moth_reduced_shape(a->ctx, a->input, a->dim, false, y, &mask);
}

static int count_nonzero_cpu(const count_nonzero_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(a->input->l.dtype);
  return moth_reduce_into(moth_count_reducers, out[0], a->input, a->dim, from, MOTH_I64);
}

MOTH_OP_CONST(count_nonzero, COUNT_NONZERO,
              .doc = "The number of elements that are not 0 or false, along dimensions.",
              .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2}", .dtypes = MOTH_ANY,
              .flags = MOTH_OP_METHOD)

/* -- reductions without NaN -- */

/* *y := x with 0 for NaN; owned. *nan := a mask of the NaNs; may be NULL. */
static int without_nan(moth_ctx *ctx, moth_tensor *x, moth_tensor **y, moth_tensor **nan) {
  moth_tensor *mask = NULL;
  int status = MOTH_CALL(ctx, &mask, isnan, .input = x);
  if (!status)
    status = MOTH_CALL(ctx, y, masked_fill, .input = x, .mask = mask,
                       .value = {.type = 1, .as.integer = 0});
  if (nan && !status) *nan = mask;
  else moth_tensor_release(mask);
  return status;
}

/* If values can be read without synchronization, computes the plain sum first. If it is not NaN,
** the input has no NaN. */
static int nansum_compose(const nansum_args *a, moth_tensor **out) {
  moth_tensor *x = NULL;
  const bool real = moth_is_float(a->input->l.dtype);
  if (!real || (!a->input->l.device && !a->ctx->capture)) {
    const int status = MOTH_CALL(a->ctx, out, sum, .input = a->input, .dim = a->dim,
                                 .keepdim = a->keepdim, .dtype = a->dtype);
    if (status || !real || !has_nan(out[0])) return status;
    moth_tensor_release(out[0]);
    out[0] = NULL;
  }
  int status = without_nan(a->ctx, a->input, &x, NULL);
  if (!status)
    status = MOTH_CALL(a->ctx, out, sum, .input = x, .dim = a->dim, .keepdim = a->keepdim,
                       .dtype = a->dtype);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_COMPOSES(nansum, REDUCE_DTYPE, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The sum along dimensions of the elements that are not NaN.",
                 .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                             "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}")

/* Computes the mean with zeros for NaN, and divides it by the fraction of elements that are not
** NaN. A sum could overflow. */
static int nanmean_compose(const nanmean_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *nan = NULL, *good = NULL, *mean = NULL, *share = NULL, *y = NULL;
  int status = without_nan(a->ctx, a->input, &x, &nan);
  const int64_t dtype = a->dtype < 0 ? a->input->l.dtype : a->dtype;
  const int64_t real = moth_is_half((int)dtype) ? MOTH_F32 : dtype;
  if (!status) status = MOTH_CALL(a->ctx, &good, logical_not, .input = nan);
  if (!status)
    status = MOTH_CALL(a->ctx, &mean, mean, .input = x, .dim = a->dim, .keepdim = a->keepdim,
                       .dtype = real);
  if (!status)
    status = MOTH_CALL(a->ctx, &share, mean, .input = good, .dim = a->dim, .keepdim = a->keepdim,
                       .dtype = real);
  if (!status)
    status = MOTH_CALL(a->ctx, real == dtype ? out : &y, div, .input = mean, .other = share,
                       .rounding_mode = MOTH_ROUND_NONE);
  if (!status && y) status = MOTH_CALL(a->ctx, out, cast, .input = y, .dtype = dtype);
  moth_tensor_release(y);
  moth_tensor_release(share);
  moth_tensor_release(mean);
  moth_tensor_release(good);
  moth_tensor_release(nan);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_COMPOSES(nanmean, REDUCE_DTYPE, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_METHOD,
                 .doc = "The mean along dimensions of the elements that are not NaN.",
                 .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                             "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}")

/* -- aminmax -- */

static int aminmax_compose(const aminmax_args *a, moth_tensor **out) {
  const bool all = a->dim == MOTH_NO_INT;
  const moth_ints dim = {all ? NULL : &a->dim, all ? 0 : 1};
  int status = MOTH_CALL(a->ctx, &out[0], amin, .input = a->input, .dim = dim,
                         .keepdim = a->keepdim);
  if (status) return status;
  return MOTH_CALL(a->ctx, &out[1], amax, .input = a->input, .dim = dim, .keepdim = a->keepdim);
}

MOTH_OP_COMPOSES(aminmax, AMINMAX, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The smallest and the largest value along a dimension, or of all elements.",
                 .outputs = "min, max",
                 .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                             "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct")

/* Also the ops of rows.c and histogram.c. */
const moth_op *const moth_reduce_ops[] = {
  &moth_op_sum, &moth_op_mean, &moth_op_prod, &moth_op_prod_back, &moth_op_amax,
  &moth_op_amin, &moth_op_max_all, &moth_op_min_all,
  &moth_op_all, &moth_op_any, &moth_op_count_nonzero, &moth_op_nansum,
  &moth_op_nanmean, &moth_op_aminmax,
  &moth_op_var, &moth_op_std, &moth_op_var_mean, &moth_op_std_mean, &moth_op_norm_p, &moth_op_dist,
  &moth_op_logsumexp, &moth_op_argmax, &moth_op_argmin, &moth_op_max_dim, &moth_op_min_dim,
  &moth_op_row_pick, &moth_op_row_place,
  &moth_op_histc, &moth_op_bincount, NULL,
};
