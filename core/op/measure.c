/* measure.c -- reductions put together from others, differences, and a histogram. Their faces, and
** the list they are in, are reduce's.
*/
#include <math.h>

#include "../loop.h"
#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "join.h"
#include "reduce.h"
#include "scan.h"
#include "unary.h"
#include "view.h"

#define POLL_AFTER (1 << 20) /* elements between two looks at the cancel flag */

#define BOTH(op, first, text)                                                             \
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
                               "moth.randn(2, 3), {dim = 2, correction = 0, keepdim = true}\n" \
                               "moth.randn(2, 3), {unbiased = false}")

BOTH(var_mean, var, "The variance and the mean along dimensions.")
BOTH(std_mean, std, "The standard deviation and the mean along dimensions.")

/* -- without NaN -- */

/* x with 0 for NaN; owned. nan (may be NULL) gets where those were. */
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

static int nansum_compose(const nansum_args *a, moth_tensor **out) {
  moth_tensor *x = NULL;
  if (!moth_is_float(a->input->l.dtype))
    return MOTH_CALL(a->ctx, out, sum, .input = a->input, .dim = a->dim, .keepdim = a->keepdim,
                     .dtype = a->dtype);
  int status = without_nan(a->ctx, a->input, &x, NULL);
  if (!status)
    status = MOTH_CALL(a->ctx, out, sum, .input = x, .dim = a->dim, .keepdim = a->keepdim,
                       .dtype = a->dtype);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_COMPOSES(nansum, REDUCE_DTYPE, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The sum along dimensions of what is not NaN.",
                 .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {dim = 2, keepdim = true}\n"
                             "moth.randn(2, 3, 2), {1, 3}, {dtype = moth.float64}")

static int nanmean_compose(const nanmean_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *nan = NULL, *good = NULL, *total = NULL, *n = NULL;
  int status = without_nan(a->ctx, a->input, &x, &nan);
  int64_t dtype = a->dtype < 0 ? a->input->l.dtype : a->dtype;
  if (!status) status = MOTH_CALL(a->ctx, &good, logical_not, .input = nan);
  if (!status)
    status = MOTH_CALL(a->ctx, &total, sum, .input = x, .dim = a->dim, .keepdim = a->keepdim,
                       .dtype = dtype);
  if (!status)
    status = MOTH_CALL(a->ctx, &n, sum, .input = good, .dim = a->dim, .keepdim = a->keepdim,
                       .dtype = -1);
  if (!status)
    status = MOTH_CALL(a->ctx, out, div, .input = total, .other = n,
                       .rounding_mode = MOTH_ROUND_NONE);
  moth_tensor_release(n);
  moth_tensor_release(total);
  moth_tensor_release(good);
  moth_tensor_release(nan);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_COMPOSES(nanmean, REDUCE_DTYPE, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_METHOD,
                 .doc = "The mean along dimensions of what is not NaN.",
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
                 .doc = "The smallest and the largest value, along a dimension or of all.",
                 .outputs = "min, max",
                 .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                             "moth.randn(2, 3), {dim = 2, keepdim = true}  -- domain: distinct")

/* -- diff, dist -- */

/* Takes *x and gives its differences along d. */
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
                     "a tensor with dimensions and a count from 0 on are needed, got %s and %lld",
                     moth_str(a->input), (long long)a->n);
  int status = moth_dim(a->ctx, "dim", a->dim, a->input->l.ndim, &d);
  if (status) return status;
  if (a->prepend) list[n++] = a->prepend;
  list[n++] = a->input;
  if (a->append) list[n++] = a->append;
  if (n > 1) status = MOTH_CALL(a->ctx, &x, cat, .tensors = {list, n}, .dim = d);
  else status = MOTH_CALL(a->ctx, &x, clone, .input = a->input);
  for (int64_t i = 0; i < a->n && !status && x->l.shape[d]; i++)
    status = differences(a->ctx, &x, d);
  if (status) moth_tensor_release(x);
  else *out = x;
  return status;
}

MOTH_OP_COMPOSES(diff, DIFF, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD,
                 .doc = "The differences of neighbours along a dimension.",
                 .examples = "moth.randn(2, 4)\n"
                             "moth.randn(4, 2), {n = 2, dim = 1}\n"
                             "moth.randn(2, 2), {prepend = moth.randn(2, 1), "
                             "append = moth.randn(2, 1)}")

static int dist_compose(const dist_args *a, moth_tensor **out) {
  moth_tensor *d = NULL;
  int status = MOTH_CALL(a->ctx, &d, sub, .input = a->input, .other = a->other,
                         .alpha = {.type = 1, .as.integer = 1});
  if (!status) status = MOTH_CALL(a->ctx, out, norm_p, .input = d, .p = a->p, .dtype = -1);
  moth_tensor_release(d);
  return status;
}

MOTH_OP_COMPOSES(dist, DIST, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_METHOD,
                 .doc = "The p-norm of the difference of two tensors.",
                 .examples = "moth.randn(2, 3), moth.randn(3)\n"
                             "moth.randn(2, 3), moth.randn(2, 3), 3")

/* -- histc -- */

static int histc_shape(const histc_args *a, moth_layout *y) {
  if (a->bins < 1)
    return moth_fail(a->ctx, MOTH_E_ARG, "bins", "at least one is needed, got %lld",
                     (long long)a->bins);
  if (!(a->min <= a->max) || !isfinite(a->max - a->min))
    return moth_fail(a->ctx, MOTH_E_ARG, "max", "%g to %g is no range", a->min, a->max);
  return moth_shape_of(a->ctx, "bins", (moth_ints){&a->bins, 1}, y);
}

/* The ends of the range: given, or else found; widened where they are the same. */
static int histc_ends(const histc_args *a, int64_t n, const double *x, double *lo, double *hi) {
  *lo = a->min;
  *hi = a->max;
  if (*lo == *hi && n > 0) {
    *lo = *hi = x[0];
    for (int64_t i = 0; i < n; i++) {
      if (x[i] < *lo) *lo = x[i];
      if (x[i] > *hi || x[i] != x[i]) *hi = x[i];
      if (x[i] != x[i]) break;
    }
  }
  if (!isfinite(*lo) || !isfinite(*hi))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "input", "%g to %g is no range; give min and max", *lo,
                     *hi);
  if (*lo == *hi) *lo -= 1, *hi += 1;
  return MOTH_OK;
}

/* The class of x, which lies in lo..hi. Differences of the largest numbers overflow. A range may be
** one number, if 1 is nothing beside it: then the class in the middle. */
static int64_t class_of(double x, double lo, double hi, int64_t bins) {
  double at = (x - lo) * (double)bins / (hi - lo);
  if (!isfinite(at)) at = (x / 2 - lo / 2) / (hi / 2 - lo / 2) * (double)bins;
  if (isnan(at)) at = (double)bins / 2;
  return at < (double)bins ? (int64_t)at : bins - 1;
}

static int histc_cpu(const histc_args *a, moth_tensor **out) {
  double lo, hi;
  const int64_t n = a->input->l.numel, bins = a->bins;
  moth_layout l = out[0]->l;
  l.dtype = MOTH_F64;
  moth_tensor *x = moth_cast(a->input, MOTH_F64), *count = x ? moth_tensor_new(a->ctx, &l) : NULL;
  int status = count ? MOTH_OK : a->ctx->error.code;
  const double *at = x ? (const double *)(const void *)moth_at(x) : NULL;
  if (!status) status = histc_ends(a, n, at, &lo, &hi);
  double *c = status ? NULL : (double *)(void *)moth_at(count);
  if (c) memset(c, 0, (size_t)bins * sizeof *c);
  for (int64_t i = 0; i < n && !status; i++) {
    if (at[i] >= lo && at[i] <= hi) c[class_of(at[i], lo, hi, bins)]++;
    if (i % POLL_AFTER == 0 && moth_cancelled(a->ctx)) status = moth_poll(a->ctx);
  }
  if (!status) status = moth_copy_into(out[0], count);
  moth_tensor_release(count);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_CONST(histc, HISTC, .dtypes = MOTH_NUMERIC, .flags = MOTH_OP_METHOD,
              .doc = "How many elements lie in each of equally wide classes.",
              .examples = "moth.randn(20), {bins = 4}\n"
                          "moth.randn(20), 5, -1, 1")
