/* scan.c -- running results along rows; and the norms of rows. */
#include "scan.h"

#include <math.h>

#include "elementwise.h"
#include "level.h"

/* Runs the body for each row i, which begins at element i * r->length; polls between rows. */
#define EACH_ROW(...) EACH_ROWS(1, __VA_ARGS__)
/* Or of so many rows at a time, and at the end for each of the others. */
#define EACH_ROWS(most, ...)                                                   \
  for (int64_t i = 0, since = 0, m; i < r->count; i += m) {                    \
    const int64_t first = i * r->length;                                       \
    m = r->count - i < most ? 1 : most;                                        \
    __VA_ARGS__                                                                \
    since += r->length * m;                                                    \
    if (since < 1 << 20) continue;                                             \
    since = 0;                                                                 \
    if (moth_cancelled(r->owner->ctx)) return moth_stopped(r->owner->ctx);  \
  }

/* -- products: of f32 in f64, integers wrap; four rows at a time, since each waits for itself -- */

#define CUMPROD(name, type, wide)                                              \
  static int cumprod_##name(const moth_rows *r, void *to) {                    \
    const int64_t n = r->length;                                               \
    const type *x = (const type *)(const void *)r->x;                          \
    type *y = to;                                                              \
    EACH_ROWS(4, {                                                             \
      wide p = 1, q = 1, s = 1, t = 1;                                         \
      for (int64_t j = first; j < first + n && m == 1; j++)                    \
        y[j] = (type)(p *= (wide)x[j]);                                        \
      for (int64_t j = first; j < first + n && m == 4; j++) {                  \
        y[j] = (type)(p *= (wide)x[j]);                                        \
        y[j + n] = (type)(q *= (wide)x[j + n]);                                \
        y[j + 2 * n] = (type)(s *= (wide)x[j + 2 * n]);                        \
        y[j + 3 * n] = (type)(t *= (wide)x[j + 3 * n]);                        \
      }                                                                        \
    })                                                                         \
    return MOTH_OK;                                                            \
  }
CUMPROD(i64, int64_t, uint64_t)
CUMPROD(f32, float, double)
CUMPROD(f64, double, double)

int moth_rows_cumprod(const moth_rows *r, char *y) {
  if (r->dtype == MOTH_I64) return cumprod_i64(r, y);
  return r->dtype == MOTH_F32 ? cumprod_f32(r, y) : cumprod_f64(r, y);
}

/* -- linear recurrences -- */

#define RECUR(name, type, wide)                                                \
  static int recur_##name(const moth_rows *r, const moth_rows *factor, void *to, bool from_end) { \
    const type *x = (const type *)(const void *)r->x;                          \
    const type *f = (const type *)(const void *)factor->x;                     \
    const int64_t step = from_end ? -1 : 1;                                    \
    type *y = to;                                                              \
    EACH_ROW({                                                                 \
      double last = 0;                                                         \
      int64_t at = from_end ? first + r->length - 1 : first;                   \
      for (int64_t j = 0; j < r->length; j++, at += step) {                    \
        last = (double)x[at] + (j ? (double)f[at] * last : 0);                 \
        y[at] = (type)last;                                                    \
      }                                                                        \
    })                                                                         \
    return MOTH_OK;                                                            \
  }
MOTH_EACH_FLOAT(RECUR)

int moth_rows_recur(const moth_rows *r, const moth_rows *factor, char *y, bool from_end) {
  if (r->dtype == MOTH_F32) return recur_f32(r, factor, y, from_end);
  return recur_f64(r, factor, y, from_end);
}

/* -- extremes so far -- */

/* So many without a new extreme, as most are, are seen and written in vectors. */
enum { CALM = 16 };

#define CUMEXTREME(name, type, wide)                                           \
  static int cumextreme_##name(const moth_rows *r, void *to, int64_t *position, bool least) { \
    const type *x = (const type *)(const void *)r->x;                          \
    type *y = to;                                                              \
    EACH_ROW({                                                                 \
      const int64_t end = first + r->length;                                   \
      int64_t best = first;                                                    \
      type w = end > first ? x[first] : 0;                                     \
      for (int64_t j = first; j < end;) {                                      \
        const int64_t stop = j + CALM < end ? j + CALM : end;                  \
        int beyond = stop - j < CALM;                                          \
        if (!beyond && least) {                                                \
          ROLLED for (int k = 0; k < CALM; k++) beyond |= !(x[j + k] > w);     \
        } else if (!beyond) {                                                  \
          ROLLED for (int k = 0; k < CALM; k++) beyond |= !(x[j + k] < w);     \
        }                                                                      \
        if (!beyond) {                                                         \
          for (int k = 0; k < CALM; k++) y[j + k] = w;                         \
          for (int k = 0; k < CALM; k++) position[j + k] = best - first;       \
          j = stop;                                                            \
        }                                                                      \
        for (; j < stop; j++) {                                                \
          const type v = x[j];                                                 \
          if ((least ? v <= w : v >= w) || v != v) best = j, w = v;            \
          y[j] = w;                                                            \
          position[j] = best - first;                                          \
        }                                                                      \
      }                                                                        \
    })                                                                         \
    return MOTH_OK;                                                            \
  }
MOTH_EACH_INT(CUMEXTREME)
MOTH_EACH_FLOAT(CUMEXTREME)

int moth_rows_cumextreme(const moth_rows *r, char *y, int64_t *position, bool least) {
  typedef int scan_loop(const moth_rows *r, void *y, int64_t *position, bool least);
  static scan_loop *const loops[MOTH_DTYPES] = {
    [MOTH_BOOL] = cumextreme_u8, MOTH_INT_ROWS(cumextreme), MOTH_FLOAT_ROWS(cumextreme)};
  return loops[r->dtype](r, y, position, least);
}

/* -- norms -- */

/* Sums in eight lanes of f64; TERM is what v = |x| adds. */
#define LANES(TERM)                                                            \
  do {                                                                         \
    double lane[8] = {0};                                                      \
    for (int64_t j = 0; j < n; j++) {                                          \
      const double v = fabs((double)x[j]);                                     \
      lane[j % 8] += TERM;                                                     \
    }                                                                          \
    for (int k = 0; k < 8; k++) sum += lane[k];                                \
  } while (0)

#define NORM(name, type, wide)                                                 \
  static double norm_of_##name(int64_t n, const type *x, double p) {           \
    double sum = 0;                                                            \
    if (isinf(p)) {                                                            \
      for (int64_t j = 0; j < n; j++) {                                        \
        const double v = fabs((double)x[j]);                                   \
        if (j == 0 || v != v || (p > 0 ? v > sum : v < sum)) sum = v;          \
        if (v != v) break;                                                     \
      }                                                                        \
      return sum;                                                              \
    }                                                                          \
    if (p == 0) LANES(v != 0);                                                 \
    else if (p == 1) LANES(v);                                                 \
    else if (p == 2) LANES(v * v);                                             \
    else LANES(pow(v, p));                                                     \
    return p == 2 ? sqrt(sum) : p == 1 || p == 0 ? sum : pow(sum, 1 / p);      \
  }                                                                            \
  static int norm_##name(const moth_rows *r, double p, void *to) {             \
    const type *x = (const type *)(const void *)r->x;                          \
    type *y = to;                                                              \
    EACH_ROW({ y[i] = (type)norm_of_##name(r->length, x + first, p); })        \
    return MOTH_OK;                                                            \
  }
MOTH_EACH_FLOAT(NORM)

int moth_rows_norm(const moth_rows *r, double p, char *y) {
  return r->dtype == MOTH_F32 ? norm_f32(r, p, y) : norm_f64(r, p, y);
}
