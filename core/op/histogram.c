/* histogram.c -- counts per bin: histc for numbers, bincount for integers >= 0. reduce.h declares
** the arguments; reduce.c lists the ops.
*/
#include <math.h>

#include "capture/capture.h"
#include "device/device.h"
#include "tensor/loop.h"
#include "copy.h"
#include "reduce.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#define POLL_AFTER (1 << 15) /* elements between two checks of the cancel flag */

static int poll_at(moth_ctx *ctx, int64_t i) {
  return i % POLL_AFTER == 0 && moth_cancelled(ctx) ? moth_stopped(ctx) : MOTH_OK;
}

/* -- histc -- */

static int histc_shape(const histc_args *a, moth_layout *y) {
  if (a->bins < 1)
    return moth_fail(a->ctx, MOTH_E_ARG, "bins", "at least one is needed, got %lld",
                     (long long)a->bins);
  if (!(a->min <= a->max) || !isfinite(a->max - a->min))
    return moth_fail(a->ctx, MOTH_E_ARG, "max", "the range from min to max, %g to %g, is not valid",
                                                a->min, a->max);
  return moth_shape_of(a->ctx, "bins", (moth_ints){&a->bins, 1}, y);
}

/* *lo, *hi := the range: the arguments, or the smallest and largest element. If both are equal, the
** range is widened. */
static int histc_ends(const histc_args *a, int64_t n, const double *x, double *lo, double *hi) {
  *lo = a->min;
  *hi = a->max;
  if (*lo == *hi && n > 0) {
    *lo = *hi = x[0];
    for (int64_t i = 0; i < n; i++) {
      if (x[i] < *lo) *lo = x[i];
      if (x[i] > *hi || x[i] != x[i]) *hi = x[i];
      if (x[i] != x[i]) break;
      if (poll_at(a->ctx, i)) return a->ctx->error.code;
    }
  }
  if (!isfinite(*lo) || !isfinite(*hi))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "input",
                     "the range of the elements, %g to %g, is not valid; set min and max", *lo,
                     *hi);
  if (*lo == *hi) *lo -= 1, *hi += 1;
  return MOTH_OK;
}

/* Returns the bin of x, which is in lo..hi. The difference of very large numbers can overflow. If 1
** is below the precision of lo, the widened range may have width 0: then the result is the middle
** bin. */
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
    status = poll_at(a->ctx, i);
  }
  if (!status) status = moth_copy_into(out[0], count);
  moth_tensor_release(count);
  moth_tensor_release(x);
  return status;
}

MOTH_OP_CONST(histc, HISTC, .dtypes = MOTH_NUMERIC, .flags = MOTH_OP_METHOD,
              .doc = "The number of elements in each of `bins` equally wide bins from min to max.",
              .examples = "moth.randn(20), {bins = 4}\n"
                          "moth.randn(20), 5, -1, 1")

/* -- bincount -- */

static int64_t *at_i64(moth_tensor *x) { return (int64_t *)(void *)moth_at(x); }

/* bounds := the smallest and the largest element. Synchronizes with a device. */
static int bounds_of(moth_tensor *x, int64_t *bounds) {
  moth_ctx *ctx = x->ctx;
  int status = MOTH_OK;
  for (int i = 0; i < 2 && x->l.numel && !status; i++) {
    moth_tensor *end = NULL, *wide = NULL, *here = NULL;
    status = i ? MOTH_CALL(ctx, &end, amax, .input = x) : MOTH_CALL(ctx, &end, amin, .input = x);
    if (!status) wide = moth_cast(end, MOTH_I64);
    if (wide) here = moth_to_host(wide);
    if (!status && !here) status = ctx->error.code;
    if (here) bounds[i] = *at_i64(here);
    moth_tensor_release(here);
    moth_tensor_release(wide);
    moth_tensor_release(end);
  }
  return status;
}

static int bincount_shape(const bincount_args *a, moth_layout *y) {
  const moth_tensor *w = a->weights;
  int64_t bounds[2] = {0, -1};
  if (moth_capture_refuse_shape(a->ctx, "bincount")) return a->ctx->error.code;
  if (!moth_is_int(a->input->l.dtype))
    return moth_fail(a->ctx, MOTH_E_DTYPE, "input", "integers are needed, got %s",
                     moth_str(a->input));
  if (a->input->l.ndim != 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "one dimension is needed, got %s",
                     moth_str(a->input));
  if (w && !moth_shape_same(&w->l, &a->input->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "weights",
                     "one weight for each element of %s is needed, got %s",
                     moth_str(a->input), moth_str(w));
  if (a->minlength < 0)
    return moth_fail(a->ctx, MOTH_E_ARG, "minlength", "a number from 0 on is needed, got %lld",
                     (long long)a->minlength);
  int status = bounds_of(a->input, bounds);
  if (status) return status;
  if (bounds[0] < 0)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "input", "values >= 0 are needed, got %lld",
                     (long long)bounds[0]);
  int64_t n = bounds[1] < INT64_MAX ? bounds[1] + 1 : bounds[1];
  if (n < a->minlength) n = a->minlength;
  y->dtype = (uint8_t)(!w ? MOTH_I64 : w->l.dtype == MOTH_F32 ? MOTH_F32 : MOTH_F64);
  return moth_shape_of(a->ctx, "input", (moth_ints){&n, 1}, y);
}

#define ADD_UP(type, one)                                        \
  for (int64_t i = first; i < last; i++) {                       \
    const int64_t at = list[i];                                  \
    if (at >= 0 && at < capacity) ((type *)counts)[at] += one;   \
  }

/* Another thread may have changed the input since the result's size was computed: values out of
** range are skipped. */
static void count(const int64_t *list, int64_t first, int64_t last, const moth_tensor *w,
                  moth_tensor *y) {
  const int64_t capacity = y->l.numel;
  void *counts = moth_at(y);
  if (!w) ADD_UP(int64_t, 1)
  else if (y->l.dtype == MOTH_F32) ADD_UP(float, ((const float *)(const void *)moth_at(w))[i])
  else ADD_UP(double, ((const double *)(const void *)moth_at(w))[i])
}

static int bincount_cpu(const bincount_args *a, moth_tensor **out) {
  moth_tensor *x = a->input, *y = out[0], *w = NULL;
  moth_tensor *list = x->l.dtype == MOTH_I64 ? moth_positions(x) : moth_cast(x, MOTH_I64);
  const int64_t n = x->l.numel;
  if (list && a->weights) w = moth_cast(a->weights, y->l.dtype);
  int status = !list || (a->weights && !w) ? a->ctx->error.code : MOTH_OK;
  if (!status && y->l.numel)
    memset(moth_at(y), 0, (size_t)(y->l.numel * moth_dtype_size[y->l.dtype]));
  for (int64_t i = 0; i < n && !status; i += POLL_AFTER) {
    count(at_i64(list), i, i + POLL_AFTER < n ? i + POLL_AFTER : n, w, y);
    status = poll_at(a->ctx, i);
  }
  moth_tensor_release(w);
  moth_tensor_release(list);
  return status;
}

MOTH_OP_CONST(bincount, BINCOUNT, .dtypes = MOTH_ANY, .flags = MOTH_OP_METHOD | MOTH_OP_MIXED,
              .doc = "The number of occurrences of each integer from 0 on, or the sum of their "
                     "weights.",
              .examples = "moth.tensor{0LL, 2LL, 2LL}\n"
                          "moth.tensor{0LL, 2LL}, {weights = moth.tensor{0.5, 2}, minlength = 5}")
