/* scan.c -- scans along rows (cumprod, linear recurrences, cummax, cummin), and norms of rows.
*/
#include "scan.h"
#include "base/alloc.h"

#include <math.h>

#include "kernel/math/elementwise.h"
#include "kernel/math/functions.h"
#include "kernel/math/inverse_f64.h"
#include "level.h"
#include "kernel/math/extended_range.h"

/* The argument of the moth_work functions of this file. */
typedef struct scan {
  /* factor: dy of cumprod's gradient, or the factors of a recurrence */
  const moth_rows *r, *factor;
  void *y;
  double *scratch; /* scratch buffers of a gradient: `each` doubles for each thread */
  int64_t each;
  bool narrow;  /* the gradient is rounded to f32 or less */
  int64_t *position;
  double p;
  bool from_end, least;
} scan;

/* -- running products: integers wrap; floats have a separate exponent -- */

static void cumprod_i64(int64_t row, int64_t end, int thread, const void *arg) {
  const scan *s = arg;
  const int64_t n = s->r->length;
  (void)thread;
  for (; row < end; row++) {
    const int64_t *x = (const int64_t *)(const void *)s->r->x + row * n;
    int64_t *y = (int64_t *)s->y + row * n;
    uint64_t p = 1;
    for (int64_t j = 0; j < n; j++) y[j] = (int64_t)(p *= (uint64_t)x[j]);
  }
}

/* Products are computed in blocks of eight. Eight f32 factors that leave f64's range downwards
** cannot lead back to 2^-500, so only the last product of an f32 block is checked; f64 products are
** all checked. A block that leaves the range is computed again with exponents. `some` rows, a
** constant in each call, are computed together, because each product depends on the previous
** one. */
enum { PRODUCTS_BLOCK = 8, PRODUCTS_ROWS = 4 };

#define PRODUCTS(name, type)                                                                    \
  INLINED void products_of_##name(int64_t n, int some, const type *x, type *y) {                \
    moth_extended s[PRODUCTS_ROWS] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}};                          \
    for (int64_t j = 0; j < n; j += PRODUCTS_BLOCK) {                                           \
      const int64_t m = n - j < PRODUCTS_BLOCK ? n - j : PRODUCTS_BLOCK;                        \
      double p[PRODUCTS_ROWS];                                                                  \
      int64_t wrong = 0;                                                                        \
      for (int k = 0; k < some; k++) p[k] = s[k].p, wrong |= s[k].e ? -1 : 0;                   \
      for (int64_t i = j; i < j + m && wrong >= 0; i++) UNROLL for (int k = 0; k < some; k++) { \
          p[k] *= (double)x[i + k * n];                                                         \
          y[i + k * n] = (type)p[k];                                                            \
          if (sizeof(type) == 8) wrong |= MOTH_EXTENDED_OUTSIDE(moth_size_bits(p[k]));          \
        }                                                                                       \
      for (int k = 0; k < some; k++) wrong |= MOTH_EXTENDED_OUTSIDE(moth_size_bits(p[k]));      \
      for (int k = 0; k < some; k++) {                                                          \
        if (wrong >= 0) s[k].p = p[k];                                                          \
        for (int64_t i = j; i < j + m && wrong < 0; i++) {                                      \
          moth_extended_times(&s[k], (double)x[i + k * n]);                                     \
          y[i + k * n] = (type)moth_extended_value(&s[k]);                                      \
        }                                                                                       \
      }                                                                                         \
    }                                                                                           \
  }                                                                                             \
  static void cumprod_##name(int64_t row, int64_t end, int thread, const void *arg) {           \
    const scan *s = arg;                                                                        \
    const int64_t n = s->r->length;                                                             \
    const type *x = (const type *)(const void *)s->r->x;                                        \
    type *y = s->y;                                                                             \
    (void)thread;                                                                               \
    for (; end - row >= PRODUCTS_ROWS; row += PRODUCTS_ROWS)                                    \
      products_of_##name(n, PRODUCTS_ROWS, x + row * n, y + row * n);                           \
    for (; row < end; row++) products_of_##name(n, 1, x + row * n, y + row * n);                \
  }
PRODUCTS(f32, float)
PRODUCTS(f64, double)

int moth_rows_cumprod(const moth_rows *r, char *y) {
  moth_work *work = r->dtype == MOTH_I64 ? cumprod_i64 : r->dtype == MOTH_F32 ? cumprod_f32
                                                                               : cumprod_f64;
  return moth_rows_share(r, 0.5, work, &(scan){.r = r, .y = y});
}

/* -- the gradient of running products: dx[i] = w[i - 1] g[i], where w are the products and g[i] =
** dy[i] + x[i + 1] g[i + 1]. It does not divide, so zeros are exact. -- */

/* *s := *s x + more. */
static void scaled_step(moth_extended *s, double x, double more) {
  moth_extended_times(s, x);
  if (s->e == 0 || more - more != 0 || MOTH_EXTENDED_SPECIAL(moth_size_bits(s->p)) < 0) {
    s->p += more;
    s->e = 0;
  } else if (more != 0) {
    int up, other;
    const double p = frexp(s->p, &up), q = frexp(more, &other);
    const int64_t e = s->e + up, most = e > other ? e : other;
    s->p = ldexp(p, (int)(e < most - 2000 ? -2000 : e - most)) +
           ldexp(q, (int)(other < most - 2000 ? -2000 : other - most));
    s->e = s->p == 0 ? 0 : most;
  }
}

/* The gradient of one row, with exponents. scratch: two numbers for each element. */
static void cumprod_back_each(int64_t n, const double *x, const double *dy, double *scratch,
                              double *y) {
  double *w = scratch, *e = scratch + n;
  moth_extended s = {1, 0}, g = {0, 0};
  for (int64_t j = 0; j < n; j++) {
    w[j] = s.p, e[j] = (double)s.e;
    moth_extended_times(&s, x[j]);
  }
  for (int64_t j = n - 1; j >= 0; j--) {
    if (j == n - 1) g.p = dy[j];
    else scaled_step(&g, x[j + 1], dy[j]);
    moth_extended dx = g;
    moth_extended_times(&dx, w[j]);
    dx.e += (int64_t)e[j];
    y[j] = moth_extended_value(&dx);
  }
}

/* The gradient of `some` rows in plain doubles. Returns a bit for each row that must be computed
** again with exponents. In the other rows w and g are at most 2^500, x g is 0 or at least 2^-1000,
** and w is 0 or at least 2^-500, unless a smaller w rounds the gradient to 0 anyway. */
INLINED int cumprod_back_of(const scan *s, int64_t n, int some, int64_t first, double *w) {
  const int64_t tiny = (int64_t)(1023 - 1000) << 52;
  const double *x = (const double *)(const void *)s->r->x + first;
  const double *dy = (const double *)(const void *)s->factor->x + first;
  double *y = (double *)s->y + first, g[PRODUCTS_ROWS] = {0};
  int with_exponents = 0;
  products_of_f64(n, some, x, w);
  for (int64_t j = n - 1; j >= 0; j--)
    UNROLL for (int k = 0; k < some; k++) {
      const int64_t i = j + k * n;
      const double v = j == n - 1 ? 0 : x[i + 1], before = j ? w[i - 1] : 1;
      const double q = v * g[k], more = dy[i] + q;
      const int64_t size = moth_size_bits(before);
      if ((moth_size_bits(q) < tiny && v != 0 && g[k] != 0) ||
          size > MOTH_EXTENDED_MOST || moth_size_bits(more) > MOTH_EXTENDED_MOST ||
          (!s->narrow && size < MOTH_EXTENDED_LEAST && before != 0))
        with_exponents |= 1 << k;
      g[k] = more;
      y[i] = before * more;
    }
  return with_exponents;
}

static void cumprod_back(int64_t row, int64_t end, int thread, const void *arg) {
  const scan *s = arg;
  const int64_t n = s->r->length;
  const double *x = (const double *)(const void *)s->r->x;
  const double *dy = (const double *)(const void *)s->factor->x;
  double *scratch = s->scratch + thread * s->each;
  while (row < end) {
    const int some = end - row < PRODUCTS_ROWS ? 1 : PRODUCTS_ROWS;
    const int with_exponents = some == 1 ? cumprod_back_of(s, n, 1, row * n, scratch)
                              : cumprod_back_of(s, n, PRODUCTS_ROWS, row * n, scratch);
    for (int k = 0; k < some; k++) {
      const int64_t first = (row + k) * n;
      if (with_exponents >> k & 1)
        cumprod_back_each(n, x + first, dy + first, scratch, (double *)s->y + first);
    }
    row += some;
  }
}

int moth_rows_cumprod_back(const moth_rows *r, const moth_rows *dy, double *y, bool narrow) {
  enum { MOST_DOUBLES = 1 << 25 }; /* doubles of scratch of all threads together */
  moth_ctx *ctx = r->owner->ctx;
  const int64_t each = r->length * (r->count < PRODUCTS_ROWS ? 2 : PRODUCTS_ROWS);
  const bool shared = each <= MOST_DOUBLES / moth_lanes(ctx);
  const int64_t bytes = each * (shared ? moth_lanes(ctx) : 1) * (int64_t)sizeof(double);
  scan s = {.r = r, .factor = dy, .y = y, .each = each, .narrow = narrow};
  s.scratch = moth_alloc(ctx, bytes);
  if (!s.scratch) return ctx->error.code;
  int status = MOTH_OK;
  if (shared) status = moth_rows_share(r, 2, cumprod_back, &s);
  else cumprod_back(0, r->count, 0, &s);
  moth_dealloc(ctx, s.scratch, bytes);
  return status;
}

/* -- linear recurrences -- */

#define RECUR(name, type, wide)                                                     \
  static void recur_##name(int64_t row, int64_t end, int thread, const void *arg) { \
    const scan *s = arg;                                                            \
    const int64_t n = s->r->length, step = s->from_end ? -1 : 1;                    \
    const type *x = (const type *)(const void *)s->r->x;                            \
    const type *f = (const type *)(const void *)s->factor->x;                       \
    type *y = s->y;                                                                 \
    (void)thread;                                                                   \
    for (; row < end; row++) {                                                      \
      double last = 0;                                                              \
      int64_t at = s->from_end ? row * n + n - 1 : row * n;                         \
      for (int64_t j = 0; j < n; j++, at += step) {                                 \
        last = (double)x[at] + (j ? (double)f[at] * last : 0);                      \
        y[at] = (type)last;                                                         \
      }                                                                             \
    }                                                                               \
  }
MOTH_EACH_FLOAT(RECUR)

int moth_rows_recur(const moth_rows *r, const moth_rows *factor, char *y, bool from_end) {
  return moth_rows_share(r, 2, r->dtype == MOTH_F32 ? recur_f32 : recur_f64,
                         &(scan){.r = r, .factor = factor, .y = y, .from_end = from_end});
}

/* -- running extremes -- */

/* Most elements are no new extreme. Blocks of this many elements without one are compared and
** written in vectors. */
enum { EXTREME_BLOCK = 16 };

#define CUMEXTREME(name, type, wide)                                                      \
  static void cumextreme_##name(int64_t row, int64_t last, int thread, const void *arg) { \
    const scan *s = arg;                                                                  \
    const type *x = (const type *)(const void *)s->r->x;                                  \
    const bool least = s->least;                                                          \
    int64_t *position = s->position;                                                      \
    type *y = s->y;                                                                       \
    (void)thread;                                                                         \
    for (; row < last; row++) {                                                           \
      const int64_t first = row * s->r->length, end = first + s->r->length;               \
      int64_t best = first;                                                               \
      type w = end > first ? x[first] : 0;                                                \
      for (int64_t j = first; j < end;) {                                                 \
        const int64_t stop = j + EXTREME_BLOCK < end ? j + EXTREME_BLOCK : end;           \
        int beyond = stop - j < EXTREME_BLOCK;                                            \
        if (!beyond && least) {                                                           \
          ROLLED for (int k = 0; k < EXTREME_BLOCK; k++) beyond |= !(x[j + k] > w);       \
        } else if (!beyond) {                                                             \
          ROLLED for (int k = 0; k < EXTREME_BLOCK; k++) beyond |= !(x[j + k] < w);       \
        }                                                                                 \
        if (!beyond) {                                                                    \
          for (int k = 0; k < EXTREME_BLOCK; k++) y[j + k] = w;                           \
          for (int k = 0; k < EXTREME_BLOCK; k++) position[j + k] = best - first;         \
          j = stop;                                                                       \
        }                                                                                 \
        for (; j < stop; j++) {                                                           \
          const type v = x[j];                                                            \
          if ((least ? v <= w : v >= w) || v != v) best = j, w = v;                       \
          y[j] = w;                                                                       \
          position[j] = best - first;                                                     \
        }                                                                                 \
      }                                                                                   \
    }                                                                                     \
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

/* Sums in eight accumulators of f64; TERM is the contribution of v = |x|. */
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

/* The norm, with elements divided by the largest one (by the smallest if p < 0), so that the powers
** stay in range. */
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

/* v^p of a float v >= 0, to f32 precision, if the result is between 2^-200 and 2^200. NaN stays
** NaN. */
MOTH_INLINE double power_f32(double v, double p) {
  double e, l = moth_wide_log_parts(v, &e) * 1.4426950408889634074 + e;
  double y = moth_wide_pow2(p * l);
  y = v == 0 ? (p > 0 ? 0.0 : INFINITY) : y;
  y = v == INFINITY ? (p > 0 ? INFINITY : 0.0) : y;
  return v != v ? v : y;
}

#define power_f64 moth_pow_f64
typedef int32_t int_f32;
typedef int64_t int_f64;
#define MOST_BITS_f32 INT32_MAX /* all bits except the sign */
#define MOST_BITS_f64 INT64_MAX
/* No power overflowed or underflowed if the sum is between these limits. */
#define LEAST_f32 1e-40
#define MOST_f32 1e55
#define LEAST_f64 1e-250
#define MOST_f64 1e250

#define NORM(TARGET, name, type, plain)                                                      \
  /* The largest or the least |x|, compared as integers. NaN wins over both; 0 for n = 0. */ \
  TARGET static double extreme_of_##name(int64_t n, const type *x, bool largest) {           \
    int_##plain most = 0, least = MOST_BITS_##plain;                                         \
    for (int64_t j = 0; j < n; j++) {                                                        \
      int_##plain v;                                                                         \
      memcpy(&v, x + j, sizeof v);                                                           \
      v &= MOST_BITS_##plain;                                                                \
      most = v > most ? v : most;                                                            \
      least = v < least ? v : least;                                                         \
    }                                                                                        \
    if (!n) return 0;                                                                        \
    type y, high;                                                                            \
    memcpy(&high, &most, sizeof high);                                                       \
    memcpy(&y, &least, sizeof y);                                                            \
    return (double)(largest || high != high ? high : y);                                     \
  }                                                                                          \
  TARGET static double norm_of_##name(int64_t n, const type *x, double p) {                  \
    double sum = 0;                                                                          \
    if (isinf(p)) return extreme_of_##name(n, x, p > 0);                                     \
    if (p == 0) LANES(v != 0);                                                               \
    else if (p == 1) LANES(v);                                                               \
    else if (p == 2) LANES(v * v);                                                           \
    else if (p == 3) LANES(v * v * v);                                                       \
    else LANES(power_##plain(v, p));                                                         \
    if (p != 0 && p != 1 && n && !(sum > LEAST_##plain && sum < MOST_##plain))               \
      return scaled_norm_##plain(n, x, p);                                                   \
    return p == 2 ? sqrt(sum) : p == 1 || p == 0 ? sum : pow(sum, 1 / p);                    \
  }                                                                                          \
  TARGET static void norm_##name(int64_t row, int64_t end, int thread, const void *arg) {    \
    const scan *s = arg;                                                                     \
    const type *x = (const type *)(const void *)s->r->x;                                     \
    type *y = s->y;                                                                          \
    (void)thread;                                                                            \
    for (; row < end; row++)                                                                 \
      y[row] = (type)norm_of_##name(s->r->length, x + row * s->r->length, s->p);             \
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
