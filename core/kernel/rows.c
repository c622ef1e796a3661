/* rows.c -- reductions that need a whole row at once. */
#include "rows.h"

#include <math.h>

#include "elementwise.h"
#include "extreme.h"
#include "fold.h"
#include "level.h"
#include "softmax.h"
#include "../threads.h"

int moth_rows_of(moth_rows *r, const moth_tensor *x, uint32_t mask, int dtype) {
  moth_tensor seen = *x; /* x with its dims in another order; never leaves this function */
  int n = 0;
  r->count = r->length = 1;
  r->dtype = dtype;
  for (int pass = 0; pass < 2; pass++)
    for (int d = 0; d < x->l.ndim; d++) {
      if ((int)(mask >> d & 1u) != pass) continue;
      seen.l.shape[n] = x->l.shape[d];
      seen.l.stride[n++] = x->l.stride[d];
      *(pass ? &r->length : &r->count) *= x->l.shape[d];
    }
  if (dtype == x->l.dtype && moth_layout_contiguous(&seen.l))
    r->owner = moth_tensor_retain((moth_tensor *)(uintptr_t)x);
  else
    r->owner = moth_cast(&seen, dtype);
  if (!r->owner) return x->ctx->error.code;
  r->x = moth_at(r->owner);
  return MOTH_OK;
}

int moth_row_result_open(moth_row_result *o, moth_tensor *y, int32_t axis, int dtype) {
  const int32_t last = y->l.ndim - 1;
  o->y = y;
  o->seen = *y;
  for (int32_t d = axis; d < last; d++) {
    o->seen.l.shape[d] = y->l.shape[d + 1];
    o->seen.l.stride[d] = y->l.stride[d + 1];
  }
  if (last >= 0) {
    o->seen.l.shape[last] = y->l.shape[axis];
    o->seen.l.stride[last] = y->l.stride[axis];
  }
  moth_layout l = o->seen.l;
  l.dtype = (uint8_t)dtype;
  bool direct = dtype == y->l.dtype && moth_layout_contiguous(&o->seen.l);
  o->work = direct ? moth_tensor_retain(y) : moth_tensor_new(y->ctx, &l);
  return o->work ? MOTH_OK : y->ctx->error.code;
}

int moth_row_result_done(moth_row_result *o, int status) {
  if (!status && o->work != o->y) status = moth_copy_into(&o->seen, o->work);
  moth_tensor_release(o->work);
  return status;
}

/* Runs the body for each row, with x and the row's number i; polls between rows. */
#define EACH_ROW(type, ...)                                                    \
  for (int64_t i = 0, since = 0; i < r->count; i++) {                          \
    const type *x = (const type *)(const void *)r->x + i * r->length;          \
    __VA_ARGS__                                                                \
    since += r->length;                                                        \
    if (since < 1 << 20) continue;                                             \
    since = 0;                                                                 \
    if (moth_cancelled(r->owner->ctx)) return moth_stopped(r->owner->ctx);  \
  }

/* -- variance: the mean first, then the squares of what is left, all in f64 -- */

static double mean_of(const moth_rows *r, const void *x) {
  const moth_fold *fold = &moth_mean_folds[r->dtype];
  double sum = 0;
  const int64_t size = moth_dtype_size[r->dtype];
  fold->take[moth_level()](1, r->length, &sum, x, 0, size);
  return sum / (double)r->length;
}

#define SQUARES(name, type, wide)                                              \
  static double squares_##name(const type *x, int64_t n, double mean) {        \
    double sum = 0, rest = 0;                                                  \
    for (int64_t i = 0; i < n; i += 1024) {                                    \
      double lane[8] = {0}, left = 0;                                          \
      const int64_t m = n - i < 1024 ? n - i : 1024;                           \
      for (int64_t j = 0; j < m; j++) {                                        \
        const double d = (double)x[i + j] - mean;                              \
        lane[j % 8] += d * d;                                                  \
        left += d;                                                             \
      }                                                                        \
      for (int k = 0; k < 8; k++) sum += lane[k];                              \
      rest += left;                                                            \
    }                                                                          \
    return sum - rest * rest / (double)n; /* what rounding left in the mean */ \
  }                                                                            \
  static int var_##name(const moth_rows *r, type *y, double by, bool root) {   \
    EACH_ROW(type, {                                                           \
      double v = squares_##name(x, r->length, mean_of(r, x)) / by;             \
      y[i] = (type)(root ? sqrt(v) : v);                                       \
    })                                                                         \
    return MOTH_OK;                                                            \
  }
MOTH_EACH_FLOAT(SQUARES)

int moth_rows_var(const moth_rows *r, char *y, int64_t correction, bool root) {
  double by = (double)r->length - (double)correction;
  if (by < 0) by = 0;
  if (r->dtype == MOTH_F32) return var_f32(r, (float *)(void *)y, by, root);
  return var_f64(r, (double *)(void *)y, by, root);
}

int moth_rows_logsumexp(const moth_rows *r, char *y) {
  return moth_logsumexp(r->owner->ctx, r->dtype, r->count, r->length, r->x, y);
}

/* -- positions -- */

#define EXTREME(name, type, wide)                                              \
  static int extreme_##name(const moth_rows *r, int64_t *y, bool least) {      \
    EACH_ROW(type, {                                                           \
      int64_t at = 0;                                                          \
      type best = x[0];                                                        \
      for (int64_t j = 1; j < r->length && best == best; j++) {                \
        const type v = x[j];                                                   \
        if ((least ? v < best : v > best) || v != v) best = v, at = j;         \
      }                                                                        \
      y[i] = at;                                                               \
    })                                                                         \
    return MOTH_OK;                                                            \
  }
MOTH_EACH_INT(EXTREME)

typedef int extreme_loop(const moth_rows *r, int64_t *y, bool least);

int moth_rows_extreme(const moth_rows *r, int64_t *position, bool least) {
  static extreme_loop *const loops[MOTH_DTYPES] = {
    [MOTH_BOOL] = extreme_u8, MOTH_INT_ROWS(extreme)};
  if (moth_is_float(r->dtype))
    return moth_extremes(r->owner->ctx, r->dtype, r->count, r->length, 1, least, r->x, position);
  return loops[r->dtype](r, position, least);
}

/* -- running sums -- */

typedef struct running {
  const void *x;
  void *y;
  int64_t length;
  bool from_end;
} running;

/* A sum waits for the one before it, so four rows go side by side. */
#define CUMSUM(name, type, wide)                                               \
  static void cumsum_##name(int64_t row, int64_t end, int lane, const void *arg) { \
    const running *r = arg;                                                    \
    const int64_t n = r->length, step = r->from_end ? -1 : 1;                  \
    (void)lane;                                                                \
    while (row < end) {                                                        \
      const int64_t first = row * n + (r->from_end ? n - 1 : 0);               \
      const type *x = (const type *)r->x + first;                              \
      type *y = (type *)r->y + first;                                          \
      if (end - row < 4) {                                                     \
        wide sum = 0;                                                          \
        for (int64_t j = 0, at = 0; j < n; j++, at += step)                    \
          sum += (wide)x[at], y[at] = (type)sum;                               \
        row++;                                                                 \
        continue;                                                              \
      }                                                                        \
      wide a = 0, b = 0, c = 0, d = 0;                                         \
      for (int64_t j = 0, at = 0; j < n; j++, at += step) {                    \
        a += (wide)x[at], b += (wide)x[at + n];                                \
        c += (wide)x[at + 2 * n], d += (wide)x[at + 3 * n];                    \
        y[at] = (type)a, y[at + n] = (type)b;                                  \
        y[at + 2 * n] = (type)c, y[at + 3 * n] = (type)d;                      \
      }                                                                        \
      row += 4;                                                                \
    }                                                                          \
  }
CUMSUM(i64, int64_t, uint64_t)
CUMSUM(f32, float, double)
CUMSUM(f64, double, double)

int moth_rows_cumsum(const moth_rows *r, char *y, bool from_end) {
  moth_work *work = r->dtype == MOTH_I64 ? cumsum_i64 : r->dtype == MOTH_F32 ? cumsum_f32
                                                                             : cumsum_f64;
  const running all = {r->x, y, r->length, from_end};
  const double cost = 5 + 0.3 * (double)r->length;
  if ((double)r->count * cost > 1000)
    return moth_parallel(r->owner->ctx, r->count, 4, cost, work, &all);
  work(0, r->count, 0, &all);
  return MOTH_OK;
}
