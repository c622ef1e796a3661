/* reduce.c -- ops that make one value of many, along some dimensions or all. */
#include "reduce.h"

#include "../kernel/elementwise.h"
#include "../kernel/fold.h"
#include "formula.h"

#define REDUCE_FLAGS (MOTH_OP_OUT | MOTH_OP_METHOD)

/* How many elements become one. */
static int64_t reduced_count(const moth_tensor *x, uint32_t mask) {
  int64_t n = 1;
  for (int d = 0; d < x->l.ndim; d++)
    if (mask >> d & 1u) n *= x->l.shape[d];
  return n;
}

static int refuse_empty(moth_ctx *ctx, const moth_tensor *x, uint32_t mask) {
  if (reduced_count(x, mask) > 0) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, "input", "%s has no elements to choose from", moth_str(x));
}

/* -- sum, mean -- */

static int check_dtype(moth_ctx *ctx, int64_t dtype) {
  if (dtype < MOTH_DTYPES) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %lld", (long long)dtype);
}

/* Integers and bool sum up to i64. */
static int sum_dtype(int dtype) { return moth_is_float(dtype) ? dtype : MOTH_I64; }

static int sum_shape(const sum_args *a, moth_layout *y) {
  uint32_t mask;
  y->dtype = (uint8_t)(a->dtype < 0 ? sum_dtype(a->input->l.dtype) : a->dtype);
  int status = check_dtype(a->ctx, a->dtype);
  return status ? status : moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
}

static int sum_cpu(const sum_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(a->dtype < 0 ? a->input->l.dtype : (int)a->dtype);
  return moth_fold_into(moth_sum_folds, out[0], a->input, a->dim, from, sum_dtype(from));
}

static int sum_grad(const sum_args *a, moth_grad *g) {
  return moth_flow(g, a->input, SPREAD_BACK(g->dy));
}

MOTH_OP(sum, REDUCE_DTYPE, .doc = "The sum along dimensions; that of integers and bool is i64.",
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}",
        .dtypes = MOTH_ANY, .flags = REDUCE_FLAGS)

static int mean_shape(const mean_args *a, moth_layout *y) {
  uint32_t mask;
  int dtype = a->dtype < 0 ? a->input->l.dtype : (int)a->dtype;
  int status = check_dtype(a->ctx, a->dtype);
  if (status) return status;
  if (!moth_is_float(dtype))
    return moth_fail(a->ctx, MOTH_E_DTYPE, a->dtype < 0 ? "input" : "dtype",
                     "a mean is not a whole number, so %s cannot hold it; say "
                     "{dtype = moth.float32}", moth_dtype_name(dtype));
  y->dtype = (uint8_t)dtype;
  return moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
}

static int mean_cpu(const mean_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(out[0]->l.dtype);
  return moth_fold_into(moth_mean_folds, out[0], a->input, a->dim, from, from);
}

static int mean_grad(const mean_args *a, moth_grad *g) {
  double n = (double)a->input->l.numel / (double)(g->dy->l.numel ? g->dy->l.numel : 1);
  return moth_flow(g, a->input, SPREAD_BACK(OVER(g->dy, NUMBER(n))));
}

MOTH_OP(mean, REDUCE_DTYPE, .doc = "The mean along dimensions.",
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}",
        .dtypes = MOTH_ANY, .flags = REDUCE_FLAGS)

/* -- amax, amin: elements that share the extreme share the gradient -- */

#define FOLD_EXTREME(op, text)                                                               \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                \
    uint32_t mask;                                                                           \
    int status = moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);              \
    return status ? status : refuse_empty(a->ctx, a->input, mask);                           \
  }                                                                                          \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                               \
    int from = moth_compute_dtype(a->input->l.dtype);                                        \
    return moth_fold_into(moth_##op##_folds, out[0], a->input, a->dim, from, from);               \
  }                                                                                          \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                   \
    moth_tensor *chosen = GRAD(g, eq, .input = a->input, .other = SPREAD_BACK(g->out[0]));   \
    moth_tensor *n = GRAD(g, sum, .input = chosen, .dim = a->dim, .keepdim = a->keepdim,     \
                          .dtype = -1);                                                      \
    return moth_flow(g, a->input, GRAD(g, where, .condition = chosen,                        \
                                       .input = SPREAD_BACK(OVER(g->dy, n)),                 \
                                       .other = NUMBER(0)));                                 \
  }                                                                                          \
  MOTH_OP(op, REDUCE, .doc = text,                                                           \
          .examples = "moth.randn(2, 3)  -- domain: distinct\n"                              \
                      "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct",    \
          .dtypes = MOTH_ANY, .saves = "input y", .flags = REDUCE_FLAGS)

FOLD_EXTREME(amax, "The largest value along dimensions; NaN wins.")
FOLD_EXTREME(amin, "The smallest value along dimensions; NaN wins.")

static int max_all_compose(const max_all_args *a, moth_tensor **out) {
  return MOTH_CALL(a->ctx, out, amax, .input = a->input);
}
MOTH_OP_COMPOSES(max_all, ALL_EXTREME, .doc = "The largest value of all; NaN wins.",
                 .examples = "moth.randn(2, 3)  -- domain: distinct", .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_HIDDEN)

static int min_all_compose(const min_all_args *a, moth_tensor **out) {
  return MOTH_CALL(a->ctx, out, amin, .input = a->input);
}
MOTH_OP_COMPOSES(min_all, ALL_EXTREME, .doc = "The smallest value of all; NaN wins.",
                 .examples = "moth.randn(2, 3)  -- domain: distinct", .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_HIDDEN)

/* -- truth and counts -- */

#define TRUTH(op, text)                                                                      \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                \
    uint32_t mask;                                                                           \
    y->dtype = MOTH_BOOL;                                                                    \
    return moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);                    \
  }                                                                                          \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                               \
    int from = moth_compute_dtype(a->input->l.dtype);                                        \
    return moth_fold_into(moth_##op##_folds, out[0], a->input, a->dim, from, MOTH_BOOL);          \
  }                                                                                          \
  MOTH_OP_CONST(op, REDUCE, .doc = text,                                                     \
                .examples = "moth.randn(2, 3):gt(0)\n"                                       \
                            "moth.randn(2, 3):gt(0), {dim = 2, keepdim = true}",             \
                .dtypes = MOTH_ANY, .flags = REDUCE_FLAGS)

TRUTH(all, "True where no element along the dimensions is 0 or false.")
TRUTH(any, "True where some element along the dimensions is not 0 or false.")

static int count_nonzero_shape(const count_nonzero_args *a, moth_layout *y) {
  uint32_t mask;
  y->dtype = MOTH_I64;
  return moth_reduced_shape(a->ctx, a->input, a->dim, false, y, &mask);
}

static int count_nonzero_cpu(const count_nonzero_args *a, moth_tensor **out) {
  int from = moth_compute_dtype(a->input->l.dtype);
  return moth_fold_into(moth_count_folds, out[0], a->input, a->dim, from, MOTH_I64);
}

MOTH_OP_CONST(count_nonzero, COUNT_NONZERO,
              .doc = "How many elements along the dimensions are not 0 or false.",
              .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2}", .dtypes = MOTH_ANY,
              .flags = MOTH_OP_METHOD)

const moth_op *const moth_reduce_ops[] = {
  &moth_op_sum, &moth_op_mean, &moth_op_amax, &moth_op_amin, &moth_op_max_all, &moth_op_min_all,
  &moth_op_all, &moth_op_any, &moth_op_count_nonzero, &moth_op_var, &moth_op_std,
  &moth_op_logsumexp, &moth_op_argmax, &moth_op_argmin, &moth_op_max_dim, &moth_op_min_dim,
  &moth_op_cumsum, &moth_op_cumsum_back, &moth_op_row_pick, &moth_op_row_place,
  &moth_op_var_mean, &moth_op_std_mean, &moth_op_nansum, &moth_op_nanmean, &moth_op_aminmax,
  &moth_op_diff, &moth_op_dist, &moth_op_histc, NULL,
};
