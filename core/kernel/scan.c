/* scan.c -- running results along rows; and the norms of rows. */
#include "scan.h"

#include <math.h>

#include "elementwise.h"
#include "inverse_f64.h"
#include "level.h"
#include "scaled.h"

/* What rows are asked for, as a moth_work's arg. */
typedef struct scan {
  const moth_rows *r, *factor;
  void *y;
  int64_t *position;
  double p;
  bool from_end, least;
} scan;

/* -- products: integers wrap; floats have a power of two of their own -- */

static void cumprod_i64(int64_t row, int64_t end, int lane, const void *arg) {
  const scan *s = arg;
  const int64_t n = s->r->length;
  (void)lane;
  for (; row < end; row++) {
    const int64_t *x = (const int64_t *)(const void *)s->r->x + row * n;
    int64_t *y = (int64_t *)s->y + row * n;
    uint64_t p = 1;
    for (int64_t j = 0; j < n; j++) y[j] = (int64_t)(p *= (uint64_t)x[j]);
  }
}

/* Four rows at a time, since each product waits for the one before. */
#define PRODUCTS(name, type)                                                   \
  static void cumprod_##name(int64_t row, int64_t end, int lane, const void *arg) { \
    const scan *s = arg;                                                       \
    const int64_t n = s->r->length;                                            \
    (void)lane;                                                                \
    while (row < end) {                                                        \
      const type *x = (const type *)(const void *)s->r->x + row * n;           \
      type *y = (type *)s->y + row * n;                                        \
      moth_scaled p[4] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}};                          \
      const int64_t some = end - row < 4 ? 1 : 4;                              \
      for (int64_t j = 0; j < n; j++)                                          \
        for (int64_t k = 0; k < some; k++) {                                   \
          moth_scaled_times(&p[k], (double)x[j + k * n]);                                  \
          y[j + k * n] = (type)moth_scaled_value(&p[k]);                                \
        }                                                                      \
      row += some;                                                             \
    }                                                                          \
  }
PRODUCTS(f32, float)
PRODUCTS(f64, double)

int moth_rows_cumprod(const moth_rows *r, char *y) {
  moth_work *work = r->dtype == MOTH_I64 ? cumprod_i64 : r->dtype == MOTH_F32 ? cumprod_f32
                                                                               : cumprod_f64;
  return moth_rows_share(r, 0.5, work, &(scan){.r = r, .y = y});
}

/* -- linear recurrences -- */

#define RECUR(name, type, wide)                                                \
  static void recur_##name(int64_t row, int64_t end, int lane, const void *arg) { \
    const scan *s = arg;                                                       \
    const int64_t n = s->r->length, step = s->from_end ? -1 : 1;               \
    const type *x = (const type *)(const void *)s->r->x;                       \
    const type *f = (const type *)(const void *)s->factor->x;                  \
    type *y = s->y;                                                            \
    (void)lane;                                                                \
    for (; row < end; row++) {                                                 \
      double last = 0;                                                         \
      int64_t at = s->from_end ? row * n + n - 1 : row * n;                    \
      for (int64_t j = 0; j < n; j++, at += step) {                            \
        last = (double)x[at] + (j ? (double)f[at] * last : 0);                 \
        y[at] = (type)last;                                                    \
      }                                                                        \
    }                                                                          \
  }
MOTH_EACH_FLOAT(RECUR)

int moth_rows_recur(const moth_rows *r, const moth_rows *factor, char *y, bool from_end) {
  return moth_rows_share(r, 2, r->dtype == MOTH_F32 ? recur_f32 : recur_f64,
                         &(scan){.r = r, .factor = factor, .y = y, .from_end = from_end});
}

/* -- extremes so far -- */

/* So many without a new extreme, as most are, are seen and written in vectors. */
enum { CALM = 16 };

#define CUMEXTREME(name, type, wide)                                           \
  static void cumextreme_##name(int64_t row, int64_t last, int lane, const void *arg) { \
    const scan *s = arg;                                                       \
    const type *x = (const type *)(const void *)s->r->x;                       \
    const bool least = s->least;                                               \
    int64_t *position = s->position;                                           \
    type *y = s->y;                                                            \
    (void)lane;                                                                \
    for (; row < last; row++) {                                                \
      const int64_t first = row * s->r->length, end = first + s->r->length;    \
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
    }                                                                          \
  }
MOTH_EACH_INT(CUMEXTREME)
MOTH_EACH_FLOAT(CUMEXTREME)

int moth_rows_cumextreme(const moth_rows *r, char *y, int64_t *position, bool least) {
  static moth_work *const loops[MOTH_DTYPES] = {
    [MOTH_BOOL] = cumextreme_u8, MOTH_INT_ROWS(cumextreme), MOTH_FLOAT_ROWS(cumextreme)};
  return moth_rows_share(r, 0.7, loops[r->dtype],
                         &(scan){.r = r, .y = y, .position = position, .least = least});
}

/* -- norms -- */

/* Sums in eight lanes of f64; TERM is what v = |x| adds. */
#define LANES(TERM)                                                            \
  do {                                                                         \
    double lane[8] = {0};                                                      \
    int64_t j = 0;                                                             \
    for (; j + 8 <= n; j += 8)                                                 \
      for (int k = 0; k < 8; k++) {                                            \
        const double v = fabs((double)x[j + k]);                               \
        lane[k] += TERM;                                                       \
      }                                                                        \
    for (int k = 0; j < n; j++, k++) {                                         \
      const double v = fabs((double)x[j]);                                     \
      lane[k] += TERM;                                                         \
    }                                                                          \
    for (int k = 0; k < 8; k++) sum += lane[k];                                \
  } while (0)

/* The norm of what is divided by its largest element, or for p below 0 by its least: powers of that
** stay in the range. */
#define SCALED_NORM(name, type)                                                \
  static double scaled_norm_##name(int64_t n, const type *x, double p) {       \
    double by = fabs((double)x[0]), sum = 0;                                   \
    for (int64_t j = 0; j < n; j++) {                                          \
      const double v = fabs((double)x[j]);                                     \
      if (v != v) return v;                                                    \
      if (p > 0 ? v > by : v < by) by = v;                                     \
    }                                                                          \
    if (by == 0 || isinf(by)) return by;                                       \
    for (int64_t j = 0; j < n; j++) sum += pow(fabs((double)x[j]) / by, p);    \
    return by * pow(sum, 1 / p);                                               \
  }
SCALED_NORM(f32, float)
SCALED_NORM(f64, double)

#define NORM(TARGET, name, type, plain)                                        \
  TARGET static double norm_of_##name(int64_t n, const type *x, double p) {    \
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
    else if (p == 3) LANES(v * v * v);                                         \
    else LANES(moth_pow_f64(v, p));                                            \
    if (p != 0 && p != 1 && n && !(sum > 1e-250 && sum < 1e250))               \
      return scaled_norm_##plain(n, x, p);                                     \
    return p == 2 ? sqrt(sum) : p == 1 || p == 0 ? sum : pow(sum, 1 / p);      \
  }                                                                            \
  TARGET static void norm_##name(int64_t row, int64_t end, int lane, const void *arg) { \
    const scan *s = arg;                                                       \
    const type *x = (const type *)(const void *)s->r->x;                       \
    type *y = s->y;                                                            \
    (void)lane;                                                                \
    for (; row < end; row++)                                                   \
      y[row] = (type)norm_of_##name(s->r->length, x + row * s->r->length, s->p); \
  }
NORM(, f32, float, f32)
NORM(, f64, double, f64)
#if MOTH_HAS_LEVELS
NORM(MOTH_AVX2, f32_avx2, float, f32)
NORM(MOTH_AVX2, f64_avx2, double, f64)
#endif

int moth_rows_norm(const moth_rows *r, double p, char *y) {
  const double each = p == 0 || p == 1 || p == 2 || p == 3 || isinf(p) ? 0.2 : 5;
  moth_work *loop = r->dtype == MOTH_F32 ? norm_f32 : norm_f64;
#if MOTH_HAS_LEVELS
  if (moth_level() != MOTH_LEVEL_PLAIN) loop = r->dtype == MOTH_F32 ? norm_f32_avx2 : norm_f64_avx2;
#endif
  return moth_rows_share(r, each, loop,
                         &(scan){.r = r, .y = y, .p = p});
}
