/* rows.c -- reductions that need whole rows: variance, norms, logsumexp, positions of extremes.
** reduce.h declares the arguments; reduce.c lists the ops.
*/
#include <math.h>

#include "kernel/math/elementwise.h"
#include "kernel/extreme.h"
#include "kernel/reduce.h"
#include "kernel/gather.h"
#include "kernel/real.h"
#include "kernel/row_reduce.h"
#include "kernel/scan.h"
#include "create.h"
#include "gradient_formula.h"
#include "reduce.h"
#include "scan.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

static void reduced(const moth_tensor *x, uint32_t mask, bool keepdim, moth_layout *y) {
  y->ndim = 0;
  for (int d = 0; d < x->l.ndim; d++)
    if (!(mask >> d & 1u)) y->shape[y->ndim++] = x->l.shape[d];
    else if (keepdim) y->shape[y->ndim++] = 1;
}

static int64_t count_of(const moth_tensor *x, const moth_tensor *y) {
  return x->l.numel / (y->l.numel ? y->l.numel : 1);
}

/* -- var, std -- */

static int var_cpu_into(const moth_tensor *x, moth_ints dims, double correction, bool root,
                        moth_tensor *y) {
  moth_rows r;
  uint32_t mask;
  int status = moth_dim_mask(y->ctx, "dim", dims, x->l.ndim, &mask);
  if (!status) status = moth_rows_of(&r, x, mask, moth_compute_dtype(x->l.dtype));
  if (status) return status;
  moth_tensor *work = moth_real_out(y);
  status = work ? moth_rows_var(&r, moth_at(work), correction, root) : y->ctx->error.code;
  moth_tensor_release(r.owner);
  return moth_real_done(work, y, status);
}

/* Adds the gradient scale (input - mean) / unit. scale and unit have the shape of the result;
** without a unit it is 1. */
static int var_flow(moth_grad *g, moth_tensor *input, moth_ints dim, bool keepdim,
                    moth_tensor *scale, moth_tensor *unit) {
  moth_ints size = {input->l.shape, input->l.ndim};
  moth_tensor *mean = GRAD(g, mean, .input = input, .dim = dim, .keepdim = true, .dtype = -1);
  moth_tensor *by = GRAD(g, spread, .input = scale, .size = size, .dim = dim, .keepdim = keepdim);
  moth_tensor *off = MINUS(input, mean);
  if (unit)
    off = OVER(off, GRAD(g, spread, .input = unit, .size = size, .dim = dim, .keepdim = keepdim));
  return moth_flow(g, input, TIMES(by, off));
}

static double degrees(const moth_tensor *x, const moth_tensor *y, double correction) {
  double n = (double)count_of(x, y) - correction;
  return n > 0 ? n : 0;
}

#define SPREAD_OP(op, root)                                                              \
  static int op##_shape(const op##_args *a, moth_layout *y) {                            \
    uint32_t mask;                                                                       \
    int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);          \
    if (!status) reduced(a->input, mask, a->keepdim, y);                                 \
    return status;                                                                       \
  }                                                                                      \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                           \
    const double less = a->unbiased ? a->correction : 0;                                 \
    return var_cpu_into(a->input, a->dim, less, root, out[0]);                           \
  }
#define VARIANCE_OP(op, ...)                                                             \
  MOTH_OP(op, SPREAD_OF,                                                                 \
          .examples = "moth.randn(2, 3)\n"                                               \
                      "moth.randn(2, 3), {dim = 2, correction = 0.5, keepdim = true}\n"  \
                      "moth.randn(2, 3), {unbiased = false}",                            \
          .dtypes = MOTH_FLOATS, .flags = MOTH_OP_OUT | MOTH_OP_METHOD, __VA_ARGS__)

SPREAD_OP(var, false)
static int var_grad(const var_args *a, moth_grad *g) {
  double n = degrees(a->input, g->dy, a->unbiased ? a->correction : 0);
  return var_flow(g, a->input, a->dim, a->keepdim, TIMES(g->dy, NUMBER(2 / n)), NULL);
}
VARIANCE_OP(var, .doc = "The variance along dimensions: sum((x - mean)^2) / (n - "
                        "correction).", .saves = "input")

SPREAD_OP(std, true)
static int std_grad(const std_args *a, moth_grad *g) {
  double n = degrees(a->input, g->dy, a->unbiased ? a->correction : 0);
  /* where the deviation is 0, so is the gradient */
  moth_tensor *y = g->out[0], *flat = OF(logical_not, y);
  moth_tensor *scale = FILLED(TIMES(g->dy, NUMBER(1 / n)), flat, 0);
  return var_flow(g, a->input, a->dim, a->keepdim, scale, FILLED(y, flat, 1));
}
VARIANCE_OP(std, .doc = "The standard deviation along dimensions: sqrt(sum((x - mean)^2) / (n - "
                        "correction)).", .saves = "input y")

#define WITH_MEAN(op, first, text)                                                        \
  static int op##_compose(const op##_args *a, moth_tensor **out) {                        \
    int status = MOTH_CALL(a->ctx, &out[0], first, .input = a->input, .dim = a->dim,      \
                           .correction = a->correction, .keepdim = a->keepdim,            \
                           .unbiased = a->unbiased);                                      \
    if (status) return status;                                                            \
    return MOTH_CALL(a->ctx, &out[1], mean, .input = a->input, .dim = a->dim,             \
                     .keepdim = a->keepdim, .dtype = -1);                                 \
  }                                                                                       \
  MOTH_OP_COMPOSES(op, SPREAD_OF, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_METHOD,         \
                   .doc = text, .outputs = #first ", mean",                               \
                   .examples = "moth.randn(2, 3)\n"                                       \
                               "moth.randn(2, 3), {dim = 2, correction = 0.5, keepdim = true}\n" \
                               "moth.randn(2, 3), {unbiased = false}")

WITH_MEAN(var_mean, var, "The variance and the mean along dimensions.")
WITH_MEAN(std_mean, std, "The standard deviation and the mean along dimensions.")

/* -- p-norms -- */

static int norm_p_shape(const norm_p_args *a, moth_layout *y) {
  uint32_t mask;
  int status = moth_mean_dtype(a->input, a->dtype, "norm", y);
  if (status) return status;
  if (isnan(a->p)) return moth_fail(a->ctx, MOTH_E_ARG, "p", "a number is needed, got nan");
  status = moth_reduced_shape(a->ctx, a->input, a->dim, a->keepdim, y, &mask);
  int64_t n = 1;
  for (int d = 0; d < a->input->l.ndim && !status; d++)
    if (mask >> d & 1u) n *= a->input->l.shape[d];
  if (status || n > 0 || !isinf(a->p)) return status;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s has no elements to choose from",
                   moth_str(a->input));
}

/* Returns true if a root of a sum of squares may have lost precision or overflowed in f64. */
static bool squares_left_range(const moth_tensor *y) {
  if (y->l.dtype != MOTH_F64) return false; /* the squares of f32 fit f64 */
  const double *at = (const double *)(const void *)moth_at(y);
  for (int64_t i = 0; i < y->l.numel; i++)
    if (!(at[i] > 1e-140 && at[i] < 1e140) && at[i] == at[i]) return true;
  return false;
}

static int norm_p_cpu(const norm_p_args *a, moth_tensor **out) {
  moth_rows r;
  uint32_t mask;
  int from = moth_compute_dtype(out[0]->l.dtype);
  if (a->p == 2) {
    int done = moth_reduce_into(moth_length_reducers, out[0], a->input, a->dim, from, from);
    if (done || !squares_left_range(out[0])) return done;
  }
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (!status) status = moth_rows_of(&r, a->input, mask, moth_compute_dtype(out[0]->l.dtype));
  if (status) return status;
  moth_tensor *work = moth_real_out(out[0]);
  status = work ? moth_rows_norm(&r, a->p, moth_at(work)) : a->ctx->error.code;
  moth_tensor_release(r.owner);
  return moth_real_done(work, out[0], status);
}

/* The gradient is sign(x) (|x| / y)^(p-1) dy, and 0 where x or y is 0. The power is computed from
** the quotient, since powers of large and small numbers overflow or underflow. Zeros become 1
** first, so that no division gives infinity. */
static int norm_p_grad(const norm_p_args *a, moth_grad *g) {
  const moth_ints size = {a->input->l.shape, a->input->l.ndim};
  moth_tensor *x = a->input, *y = g->out[0], *dy = g->dy, *dx;
  if (dy->l.dtype != x->l.dtype) x = GRAD(g, cast, .input = x, .dtype = dy->l.dtype);
  moth_tensor *flat = OF(logical_not, y);
  if (a->p == 0) {
    dx = GRAD(g, zeros, .size = size, .dtype = a->input->l.dtype,
              .device = moth_device_of(a->input));
  } else if (a->p == 2) {
    dx = TIMES(OVER(x, SPREAD_BACK(FILLED(y, flat, 1))), SPREAD_BACK(FILLED(dy, flat, 0)));
  } else if (isinf(a->p)) {
    moth_tensor *chosen = GRAD(g, eq, .input = OF(abs, x), .other = SPREAD_BACK(y));
    moth_tensor *n = GRAD(g, sum, .input = chosen, .dim = a->dim, .keepdim = a->keepdim,
                          .dtype = -1);
    dx = TIMES(OF(sign, x), SPREAD_BACK(OVER(dy, n)));
    dx = GRAD(g, where, .condition = chosen, .input = dx, .other = NUMBER(0));
  } else if (a->p == 1) {
    dx = TIMES(OF(sign, x), SPREAD_BACK(dy));
  } else {
    x = moth_grad_wide(g, x), y = moth_grad_wide(g, y), dy = moth_grad_wide(g, dy);
    moth_tensor *zero = OF(logical_not, x), *size_of_x = OF(abs, FILLED(x, zero, 1));
    moth_tensor *share = OVER(size_of_x, SPREAD_BACK(FILLED(y, flat, 1)));
    dx = GRAD(g, pow, .input = share, .exponent = NUMBER(a->p - 1));
    dx = FILLED(TIMES(dx, OF(sign, x)), zero, 0);
    dx = TIMES(dx, SPREAD_BACK(FILLED(dy, flat, 0)));
  }
  return moth_flow(g, a->input, dx);
}

MOTH_OP(norm_p, NORM_P, .dtypes = MOTH_ANY, .saves = "input y", .flags = MOTH_OP_HIDDEN,
        .doc = "The p-norm along dimensions: sum(|x|^p)^(1 / p).",
        .examples = "moth.randn(2, 3)\n"
                    "moth.randn(2, 3), 3, {dim = 2, keepdim = true}\n"
                    "moth.randn(2, 3), math.huge, {dim = 1}  -- domain: distinct\n"
                    "moth.randn(2, 3), -math.huge  -- domain: distinct\n"
                    "moth.randn(2, 3), 0\nmoth.randn(2, 3), 1\nmoth.randn(2, 3), 0.5\n"
                    "moth.randn(2, 3, 2), 2, {1, 3}, {dtype = moth.float64}",
        .autocast = MOTH_AUTOCAST_F32, .public_name = "norm")

static int dist_compose(const dist_args *a, moth_tensor **out) {
  moth_tensor *d = NULL;
  int status = MOTH_CALL(a->ctx, &d, sub, .input = a->input, .other = a->other,
                         .alpha = {.type = 1, .as.integer = 1});
  if (!status) status = MOTH_CALL(a->ctx, out, norm_p, .input = d, .p = a->p, .dtype = -1);
  moth_tensor_release(d);
  return status;
}

MOTH_OP_COMPOSES(dist, DIST, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_METHOD,
                 .doc = "The p-norm of input - other.",
                 .examples = "moth.randn(2, 3), moth.randn(3)\n"
                             "moth.randn(2, 3), moth.randn(2, 3), 3", .autocast = MOTH_AUTOCAST_F32)

/* -- logsumexp -- */

static int logsumexp_shape(const logsumexp_args *a, moth_layout *y) {
  uint32_t mask;
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (!status) reduced(a->input, mask, a->keepdim, y);
  return status;
}

static int logsumexp_cpu(const logsumexp_args *a, moth_tensor **out) {
  moth_rows r;
  uint32_t mask;
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (!status) status = moth_rows_of(&r, a->input, mask, moth_compute_dtype(a->input->l.dtype));
  if (status) return status;
  moth_tensor *work = moth_real_out(out[0]);
  status = work ? moth_rows_logsumexp(&r, moth_at(work)) : a->ctx->error.code;
  moth_tensor_release(r.owner);
  return moth_real_done(work, out[0], status);
}

/* dy exp(x - y). Infinity is replaced with the largest number: an infinite element gets the
** gradient, finite elements in the same row get 0, and the difference of infinities does not
** occur. */
static int logsumexp_grad(const logsumexp_args *a, moth_grad *g) {
  const double most = moth_largest(g->out[0]->l.dtype);
  moth_tensor *x = a->input;
  if (!moth_is_float(x->l.dtype)) return g->status;
  x = GRAD(g, clamp, .input = x, .min = moth_absent_value(), .max = most);
  moth_tensor *y = GRAD(g, clamp, .input = g->out[0], .min = -most, .max = most);
  moth_tensor *share = GRAD(g, exp, .input = MINUS(x, SPREAD_BACK(y)));
  return moth_flow(g, a->input, TIMES(SPREAD_BACK(g->dy), share));
}

MOTH_OP(logsumexp, REDUCE, .doc = "log(sum(exp(x))) along dimensions, without overflow.",
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}",
        .dtypes = MOTH_ANY | MOTH_TO_FLOAT, .saves = "input y",
        .flags = MOTH_OP_OUT | MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_F32)

/* -- positions of extremes -- */

static int extreme_mask(moth_ctx *ctx, const moth_tensor *x, int64_t dim, uint32_t *mask) {
  int32_t d = 0;
  *mask = (1u << x->l.ndim) - 1u;
  int status = dim == MOTH_NO_INT ? MOTH_OK : moth_dim(ctx, "dim", dim, x->l.ndim, &d);
  if (status) return status;
  if (dim != MOTH_NO_INT && x->l.ndim) *mask = 1u << d;
  int64_t n = 1;
  for (d = 0; d < x->l.ndim; d++)
    if (*mask >> d & 1u) n *= x->l.shape[d];
  if (n > 0) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, "input", "%s has no elements to choose from", moth_str(x));
}

/* Finds the positions in columns of contiguous floats without a transpose. Returns -1 if x has
** another layout. */
static int columns_into(moth_tensor *y, const moth_tensor *x, uint32_t mask, bool least) {
  int64_t outer = 1, n = 1, inner = 1;
  const int dtype = x->l.dtype;
  if ((dtype != MOTH_F32 && dtype != MOTH_F64) || !moth_layout_contiguous(&x->l) || y->l.numel == 0)
    return -1;
  for (int d = 0; d < x->l.ndim; d++) {
    if (mask >> d & 1u) n *= x->l.shape[d];
    else if (n == 1 && !(mask & ((1u << d) - 1u))) outer *= x->l.shape[d];
    else inner *= x->l.shape[d];
  }
  if (inner == 1 || n > INT32_MAX) return -1;
  return moth_extremes(y->ctx, dtype, outer, n, inner, least, moth_at(x),
                       (int64_t *)(void *)moth_at(y));
}

static int positions_into(moth_tensor *y, const moth_tensor *x, int64_t dim, bool least) {
  moth_rows r;
  uint32_t mask;
  int status = extreme_mask(y->ctx, x, dim, &mask);
  if (!status && dim != MOTH_NO_INT) {
    int done = columns_into(y, x, mask, least);
    if (done >= 0) return done;
  }
  if (!status) status = moth_rows_of(&r, x, mask, moth_compute_dtype(x->l.dtype));
  if (status) return status;
  status = moth_rows_extreme(&r, (int64_t *)(void *)moth_at(y), least);
  moth_tensor_release(r.owner);
  return status;
}

#define POSITION(op, least, text)                                                        \
  static int op##_shape(const op##_args *a, moth_layout *y) {                            \
    uint32_t mask;                                                                       \
    int status = extreme_mask(a->ctx, a->input, a->dim, &mask);                          \
    if (!status) reduced(a->input, mask, a->keepdim, y);                                 \
    return status;                                                                       \
  }                                                                                      \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                           \
    return positions_into(out[0], a->input, a->dim, least);                              \
  }                                                                                      \
  MOTH_OP_CONST(op, ARG_EXTREME, .doc = text,                                            \
                .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}", \
                .outputs = "y: position", .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD)

POSITION(argmax, false,
         "The position of the largest value; the first one of equal values. NaN counts as largest.")
POSITION(argmin, true,
         "The position of the smallest value; the first one of equal values. NaN counts as "
         "smallest.")

/* -- max_dim, min_dim: value and position -- */

#define DIM_OP(op, least, shown, text)                                                   \
  static int op##_shape(const op##_args *a, moth_layout *y) {                            \
    uint32_t mask;                                                                       \
    int status = extreme_mask(a->ctx, a->input, a->dim, &mask);                          \
    if (status) return status;                                                           \
    reduced(a->input, mask, a->keepdim, &y[0]);                                          \
    reduced(a->input, mask, a->keepdim, &y[1]);                                          \
    return MOTH_OK;                                                                      \
  }                                                                                      \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                           \
    int status = positions_into(out[1], a->input, a->dim, least);                        \
    return status ? status : pick(out[0], out[1], a->input, a->dim, a->keepdim);         \
  }                                                                                      \
  static int op##_grad(const op##_args *a, moth_grad *g) {                               \
    if (!g->dys[0]) return g->status;                                                    \
    return moth_flow(g, a->input,                                                        \
                     GRAD(g, row_place, .input = g->dys[0], .index = g->out[1],          \
                          .dim = a->dim, .keepdim = a->keepdim,                          \
                          .size = {a->input->l.shape, a->input->l.ndim}));               \
  }                                                                                      \
  MOTH_OP(op, DIM_EXTREME, .doc = text,                                                  \
          .examples = "moth.randn(2, 3), 2  -- domain: distinct\n"                       \
                      "moth.randn(2, 3), 1, {keepdim = true}  -- domain: distinct",      \
          .outputs = "values, indices: position", .dtypes = MOTH_ANY, .saves = "indices", \
          .flags = MOTH_OP_HIDDEN, .public_name = shown)

typedef struct row_walk { /* for reading or writing one element of each row */
  int32_t dim;
  int64_t length, step; /* length of a row; bytes between its elements */
  int64_t size;         /* bytes of an element */
} row_walk;

/* *view := `rows` without its dim: the first element of each row. The view is on the stack. */
static int row_starts(moth_tensor *view, row_walk *w, const moth_tensor *rows, int64_t dim,
                      bool keepdim) {
  int32_t d;
  int status = moth_dim(rows->ctx, "dim", dim, rows->l.ndim, &d);
  if (status) return status;
  *view = *rows;
  *w = (row_walk){.dim = d, .size = moth_dtype_size[rows->l.dtype], .length = 1};
  if (rows->l.ndim == 0) return MOTH_OK;
  w->length = rows->l.shape[d];
  w->step = rows->l.stride[d] * w->size;
  view->l.numel = w->length ? rows->l.numel / w->length : 0;
  view->l.shape[d] = 1;
  if (keepdim) return MOTH_OK;
  for (view->l.ndim--; d < view->l.ndim; d++) {
    view->l.shape[d] = view->l.shape[d + 1];
    view->l.stride[d] = view->l.stride[d + 1];
  }
  return MOTH_OK;
}

/* The operands are positions, rows, and single values. */
static void walk_rows(int64_t n, char *const *at, const int64_t *step, const row_walk *w,
                      bool place) {
  for (int64_t i = 0; i < n; i++) {
    int64_t j = *(const int64_t *)(const void *)(at[0] + i * step[0]);
    char *row = at[1] + i * step[1] + j * w->step, *value = at[2] + i * step[2];
    memcpy(place ? row : value, place ? value : row, (size_t)w->size);
  }
}

MOTH_INNER(pick_run) { walk_rows(n, at, step, arg, false); }
MOTH_INNER(place_run) { walk_rows(n, at, step, arg, true); }

/* Runs row_pick or row_place. Releases the checked positions; NULL means an earlier error. */
static int run_rows(moth_tensor *take, const moth_tensor *starts, const moth_tensor *values,
                    const row_walk *w, moth_inner inner) {
  moth_loop loop;
  if (!take) return starts->ctx->error.code;
  moth_loop_over(&loop, take->ctx, &take->l, 3, (const moth_tensor *[]){take, starts, values});
  int status = moth_loop_run(&loop, inner, w);
  moth_tensor_release(take);
  return status;
}

static int pick(moth_tensor *y, const moth_tensor *index, const moth_tensor *x, int64_t dim,
                bool keepdim) {
  moth_tensor starts;
  row_walk w;
  int status = row_starts(&starts, &w, x, dim, keepdim);
  if (status) return status;
  moth_tensor *at = moth_gather_positions(index, &(moth_reach){x, w.dim, w.length});
  return run_rows(at, &starts, y, &w, pick_run);
}

DIM_OP(max_dim, false, "max",
       "The largest values along a dimension and their positions; NaN wins.")
DIM_OP(min_dim, true, "min",
       "The smallest values along a dimension and their positions; NaN wins.")

/* y := the shape of x without dim. Checks that `index` has this shape too. */
static int row_shape(moth_ctx *ctx, const moth_layout *x, const moth_tensor *index, int64_t dim,
                     bool keepdim, moth_layout *y) {
  int32_t d;
  int status = moth_dim(ctx, "dim", dim, x->ndim, &d);
  if (status) return status;
  y->ndim = 0;
  for (int32_t i = 0; i < x->ndim; i++)
    if (i != d) y->shape[y->ndim++] = x->shape[i];
    else if (keepdim) y->shape[y->ndim++] = 1;
  if (moth_shape_same(y, &index->l)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, "index", "one position for each row, %s, is needed, got %s",
                   moth_str_shape(ctx, y->ndim, y->shape), moth_str(index));
}

static int row_pick_shape(const row_pick_args *a, moth_layout *y) {
  return row_shape(a->ctx, &a->input->l, a->index, a->dim, a->keepdim, y);
}

static int row_pick_cpu(const row_pick_args *a, moth_tensor **out) {
  return pick(out[0], a->index, a->input, a->dim, a->keepdim);
}

static int row_pick_grad(const row_pick_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, row_place, .input = g->dy, .index = a->index, .dim = a->dim,
                        .keepdim = a->keepdim, .size = {a->input->l.shape, a->input->l.ndim}));
}

MOTH_OP(row_pick, ROW_PICK, .doc = "Reads one element of each row.",
        .examples = "moth.randn(2, 3), moth.tensor{1LL, 3LL}, 2\n"
                    "moth.randn(2, 3), moth.tensor{{1LL, 2LL, 1LL}}, 1, {keepdim = true}",
        .dtypes = MOTH_ANY, .saves = "index", .flags = MOTH_OP_HIDDEN)

static int row_place_shape(const row_place_args *a, moth_layout *y) {
  moth_layout row;
  int status = moth_shape_of(a->ctx, "size", a->size, y);
  if (!status) status = row_shape(a->ctx, y, a->index, a->dim, a->keepdim, &row);
  if (status || moth_shape_same(&row, &a->input->l)) return status;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "one value for each row, %s, is needed, got %s",
                   moth_str_shape(a->ctx, row.ndim, row.shape), moth_str(a->input));
}

static int row_place_cpu(const row_place_args *a, moth_tensor **out) {
  moth_tensor starts;
  row_walk w;
  int status = row_starts(&starts, &w, out[0], a->dim, a->keepdim);
  if (status) return status;
  moth_tensor *at = moth_gather_positions(a->index, &(moth_reach){out[0], w.dim, w.length});
  if (at && out[0]->l.numel) memset(moth_at(out[0]), 0, (size_t)(out[0]->l.numel * w.size));
  return run_rows(at, &starts, a->input, &w, place_run);
}

static int row_place_grad(const row_place_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, row_pick, .input = g->dy, .index = a->index, .dim = a->dim,
                        .keepdim = a->keepdim));
}

MOTH_OP(row_place, ROW_PLACE, .doc = "Rows of zeros, each with one value at a position.",
        .examples = "moth.randn(2), moth.tensor{1LL, 3LL}, 2, {size = {2, 3}}\n"
                    "moth.randn(2, 1), moth.tensor{{1LL}, {3LL}}, 2, "
                    "{keepdim = true, size = {2, 3}}",
        .dtypes = MOTH_ANY, .saves = "index", .flags = MOTH_OP_HIDDEN)
