/* row_reduce.c -- reductions that need a whole row: variance, logsumexp, argmax, cumsum. */
#include "row_reduce.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/math/elementwise.h"
#include "extreme.h"
#include "reduce.h"
#include "level.h"
#include "softmax.h"

int moth_rows_of(moth_rows *r, const moth_tensor *x, uint32_t mask, int dtype) {
  moth_tensor seen = *x; /* x with its dims in another order; it has no handle */
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

int moth_rows_share(const moth_rows *r, double each, moth_work *work, const void *arg) {
  const double cost = 5 + each * (double)r->length;
  if ((double)r->count * cost > 1000)
    return moth_parallel(r->owner->ctx, r->count, 4, cost, work, arg);
  work(0, r->count, 0, arg);
  return MOTH_OK;
}

/* -- variance: the mean, then the squares of the differences, all in f64 -- */

typedef struct variance {
  const moth_rows *r;
  void *y;
  double by;
  bool root;
} variance;

static double mean_of(const moth_rows *r, const void *x) {
  const moth_reducer *fold = &moth_mean_reducers[r->dtype];
  double sum = 0;
  const int64_t size = moth_dtype_size[r->dtype];
  fold->take[moth_level()](1, r->length, &sum, x, 0, size);
  return sum / (double)r->length;
}

#define LEAST_SQUARE 1e-280
#define MOST_SQUARE 1e300

#define SQUARES(name, type, wide)                                                        \
  static double squares_##name(const type *x, int64_t n, double mean) {                  \
    double sum = 0, rest = 0;                                                            \
    for (int64_t i = 0; i < n; i += 1024) {                                              \
      double lane[8] = {0}, left = 0;                                                    \
      const int64_t m = n - i < 1024 ? n - i : 1024;                                     \
      for (int64_t j = 0; j < m; j++) {                                                  \
        const double d = (double)x[i + j] - mean;                                        \
        lane[j % 8] += d * d;                                                            \
        left += d;                                                                       \
      }                                                                                  \
      for (int k = 0; k < 8; k++) sum += lane[k];                                        \
      rest += left;                                                                      \
    }                                                                                    \
    sum -= rest * rest / (double)n; /* the rounding error of the mean */                 \
    return sum < 0 ? 0 : sum;                                                            \
  }                                                                                      \
  /* For sums or squares that overflow: elements are scaled. */                          \
  static double scaled_##name(const variance *s, const type *x) {                        \
    double most = 0, sum = 0, squares = 0, rest = 0, odd = 0;                            \
    const int64_t n = s->r->length;                                                      \
    int power;                                                                           \
    for (int64_t j = 0; j < n; j++) { /* by fmax, GCC 12 for ARM fails */                \
      if (fabs((double)x[j]) > most) most = fabs((double)x[j]);                          \
      odd += (double)x[j] - (double)x[j]; /* NaN for infinities and NaN */               \
    }                                                                                    \
    if (!(most > 0 && odd == 0)) return odd / s->by;                                     \
    frexp(most, &power);                                                                 \
    for (int64_t j = 0; j < n; j++) sum += ldexp((double)x[j], -power);                  \
    for (int64_t j = 0; j < n; j++) {                                                    \
      const double d = ldexp((double)x[j], -power) - sum / (double)n;                    \
      squares += d * d;                                                                  \
      rest += d;                                                                         \
    }                                                                                    \
    squares -= rest * rest / (double)n;                                                  \
    if (squares < 0) squares = 0; /* unlike fmax, this keeps NaN */                      \
    const double v = squares / s->by;                                                    \
    return s->root ? ldexp(sqrt(v), power) : ldexp(v, 2 * power);                        \
  }                                                                                      \
  static void var_##name(int64_t row, int64_t end, int thread, const void *arg) {        \
    const variance *s = arg;                                                             \
    const int64_t n = s->r->length;                                                      \
    (void)thread;                                                                        \
    for (; row < end; row++) {                                                           \
      const type *x = (const type *)(const void *)s->r->x + row * n;                     \
      const double v = squares_##name(x, n, mean_of(s->r, x)) / s->by;                   \
      const bool near = v > LEAST_SQUARE && v < MOST_SQUARE;                             \
      ((type *)s->y)[row] = (type)(!near ? scaled_##name(s, x) : s->root ? sqrt(v) : v); \
    }                                                                                    \
  }
MOTH_EACH_FLOAT(SQUARES)

int moth_rows_var(const moth_rows *r, char *y, double correction, bool root) {
  double by = (double)r->length - correction;
  if (by < 0) by = 0;
  return moth_rows_share(r, 0.7, r->dtype == MOTH_F32 ? var_f32 : var_f64,
                         &(variance){r, y, by, root});
}

int moth_rows_logsumexp(const moth_rows *r, char *y) {
  return moth_logsumexp(r->owner->ctx, r->dtype, r->count, r->length, r->x, y);
}

/* -- positions -- */

typedef struct peaks {
  const moth_rows *r;
  int64_t *y;
  bool least;
} peaks;

#define EXTREME(name, type, wide)                                                     \
  static void extreme_##name(int64_t row, int64_t end, int thread, const void *arg) { \
    const peaks *p = arg;                                                             \
    const int64_t n = p->r->length;                                                   \
    const bool least = p->least;                                                      \
    (void)thread;                                                                     \
    for (; row < end; row++) {                                                        \
      const type *x = (const type *)(const void *)p->r->x + row * n;                  \
      int64_t at = 0;                                                                 \
      type best = x[0];                                                               \
      for (int64_t j = 1; j < n; j++)                                                 \
        if (least ? x[j] < best : x[j] > best) best = x[j], at = j;                   \
      p->y[row] = at;                                                                 \
    }                                                                                 \
  }
MOTH_EACH_INT(EXTREME)

int moth_rows_extreme(const moth_rows *r, int64_t *position, bool least) {
  static moth_work *const loops[MOTH_DTYPES] = {
    [MOTH_BOOL] = extreme_u8, MOTH_INT_ROWS(extreme)};
  if (moth_is_float(r->dtype))
    return moth_extremes(r->owner->ctx, r->dtype, r->count, r->length, 1, least, r->x, position);
  return moth_rows_share(r, 0.7, loops[r->dtype], &(peaks){r, position, least});
}

/* -- running sums -- */

typedef struct running {
  const void *x;
  void *y;
  int64_t length;
  bool from_end;
} running;

/* Each sum depends on the previous one, so four rows are computed together. */
#define CUMSUM(name, type, wide)                                                     \
  static void cumsum_##name(int64_t row, int64_t end, int thread, const void *arg) { \
    const running *r = arg;                                                          \
    const int64_t n = r->length, step = r->from_end ? -1 : 1;                        \
    (void)thread;                                                                    \
    while (row < end) {                                                              \
      const int64_t first = row * n + (r->from_end ? n - 1 : 0);                     \
      const type *x = (const type *)r->x + first;                                    \
      type *y = (type *)r->y + first;                                                \
      if (end - row < 4) {                                                           \
        wide sum = 0;                                                                \
        for (int64_t j = 0, at = 0; j < n; j++, at += step)                          \
          sum += (wide)x[at], y[at] = (type)sum;                                     \
        row++;                                                                       \
        continue;                                                                    \
      }                                                                              \
      wide a = 0, b = 0, c = 0, d = 0;                                               \
      for (int64_t j = 0, at = 0; j < n; j++, at += step) {                          \
        a += (wide)x[at], b += (wide)x[at + n];                                      \
        c += (wide)x[at + 2 * n], d += (wide)x[at + 3 * n];                          \
        y[at] = (type)a, y[at + n] = (type)b;                                        \
        y[at + 2 * n] = (type)c, y[at + 3 * n] = (type)d;                            \
      }                                                                              \
      row += 4;                                                                      \
    }                                                                                \
  }
CUMSUM(i64, int64_t, uint64_t)
CUMSUM(f32, float, double)
CUMSUM(f64, double, double)

int moth_rows_cumsum(const moth_rows *r, char *y, bool from_end) {
  moth_work *work = r->dtype == MOTH_I64 ? cumsum_i64 : r->dtype == MOTH_F32 ? cumsum_f32
                                                                             : cumsum_f64;
  const running all = {r->x, y, r->length, from_end};
  return moth_rows_share(r, 0.3, work, &all);
}
