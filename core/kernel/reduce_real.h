/* reduce_real.h -- loops of floating-point reductions for one REAL and one TARGET: sums, sums of
** squares and of absolute values, extremes. Elements of a row are reduced in vectors; a reduction
** across rows has one accumulator for each column.
*/
#include "sums_real.h"

VECTOR_SUM(vector_sum, v)
VECTOR_SUM(vector_squares, v *v)
VECTOR_EXTREME(vector_most, >, -INFINITY)
VECTOR_EXTREME(vector_least, <, INFINITY)

/* acc += r rows of n contiguous elements, `next` elements apart. Eight rows are summed pairwise,
** eight such sums in REAL, and those sums in double. */
TARGET static void NAME(sum_rows)(int64_t n, int64_t r, double *restrict acc, const REAL *x,
                                  int64_t next) {
  REAL part[BLOCK];
  while (r >= 8) {
    const int64_t some = r < 64 ? r / 8 * 8 : 64;
    for (int64_t i = 0; i < some; i += 8, x += 8 * next) {
      const REAL *b = x + next, *c = b + next, *d = c + next, *e = d + next, *f = e + next;
      const REAL *g = f + next, *h = g + next;
      REAL *restrict s = part;
      if (i == 0)
        for (int64_t j = 0; j < n; j++)
          s[j] = ((x[j] + b[j]) + (c[j] + d[j])) + ((e[j] + f[j]) + (g[j] + h[j]));
      else
        for (int64_t j = 0; j < n; j++)
          s[j] += ((x[j] + b[j]) + (c[j] + d[j])) + ((e[j] + f[j]) + (g[j] + h[j]));
    }
    for (int64_t j = 0; j < n; j++) acc[j] += (double)part[j];
    r -= some;
  }
  for (; r > 0; r--, x += next)
    for (int64_t j = 0; j < n; j++) acc[j] += (double)x[j];
}

/* Reads several dense rows of few columns as one longer row. */
TARGET static void NAME(sum_across)(int64_t n, int64_t r, double *acc, const REAL *x,
                                    int64_t next) {
  int64_t m = next == n ? 128 / n : 1;
  if (m > 1 && r >= 2 * m) {
    double wide[128] = {0};
    NAME(sum_rows)(n * m, r / m, wide, x, n * m);
    for (int64_t k = 0; k < m; k++)
      for (int64_t j = 0; j < n; j++) acc[j] += wide[k * n + j];
    x += r / m * m * n;
    r %= m;
  }
  NAME(sum_rows)(n, r, acc, x, next);
}

/* The sum of strided elements, in eight accumulators. */
TARGET static double NAME(sum_strided)(int64_t r, const char *x, int64_t next) {
#define ELEMENT(k) (*(const REAL *)(const void *)(x + (k) * next))
  double a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  int64_t i = 0;
  for (; i + 8 <= r; i += 8, x += 8 * next) {
    a += (double)ELEMENT(0), b += (double)ELEMENT(1), c += (double)ELEMENT(2);
    d += (double)ELEMENT(3), e += (double)ELEMENT(4), f += (double)ELEMENT(5);
    g += (double)ELEMENT(6), h += (double)ELEMENT(7);
  }
  for (; i < r; i++, x += next) a += (double)ELEMENT(0);
  return ((a + b) + (c + d)) + ((e + f) + (g + h));
}

/* Sums across rows with strided elements. */
TARGET static void NAME(sum_strided_rows)(int64_t n, int64_t r, double *acc, const char *at,
                                          int64_t step, int64_t next) {
  for (int64_t i = 0; i < r; i++, at += next) {
    const char *x = at;
    for (int64_t j = 0; j < n; j++, x += step) acc[j] += (double)ELEMENT(0);
  }
}

TARGET static void NAME(sum_take)(int64_t n, int64_t r, void *scratch, const char *x, int64_t step,
                                  int64_t next) {
  const int64_t one = sizeof(REAL);
  double *acc = scratch;
  if (step == one && next != one && n > 1) {
    NAME(sum_across)(n, r, acc, (const REAL *)(const void *)x, next / one);
    return;
  }
  if (n > 1 && next != one && (step < 0 ? -step : step) < (next < 0 ? -next : next)) {
    NAME(sum_strided_rows)(n, r, acc, x, step, next);
    return;
  }
  int64_t j = 0;
  for (; next == one && r <= SHORT_ROW && j + PER <= n; j += PER, x += PER * step) {
    const VEC s = NAME(vector_sum_rows)(r, (const REAL *)(const void *)x, step / one, 0);
    for (int64_t k = 0; k < PER; k++) acc[j + k] += (double)s[k];
  }
  for (; j < n; j++, x += step)
    acc[j] += next == one ? NAME(vector_sum)(r, (const REAL *)(const void *)x, 0)
                          : NAME(sum_strided)(r, x, next);
}

/* Sums of squares may overflow f32 although their root does not; such sums are computed again in
** double. */
TARGET INLINED double NAME(squares_in_range)(REAL squares, int64_t n, const REAL *x) {
  double s = (double)squares;
  if (!(s > 1e-25 && s < 1e35))
    for (s = 0; n > 0; n--) s += (double)x[n - 1] * (double)x[n - 1];
  return s;
}

TARGET static void NAME(squares_take)(int64_t n, int64_t r, void *scratch, const char *at,
                                      int64_t step, int64_t next) {
  const int64_t one = sizeof(REAL);
  double *acc = scratch;
  if (next != one) {
    if (step == one)
      for (int64_t i = 0; i < r; i++, at += next) {
        const REAL *x = (const REAL *)(const void *)at;
        double *restrict to = acc;
        for (int64_t j = 0; j < n; j++) to[j] += (double)x[j] * (double)x[j];
      }
    else
      for (int64_t i = 0; i < r; i++, at += next) {
        const char *x = at;
        for (int64_t j = 0; j < n; j++, x += step) {
          const double v = (double)ELEMENT(0);
          acc[j] += v * v;
        }
      }
    return;
  }
  int64_t j = 0;
  for (; r <= SHORT_ROW && j + PER <= n; j += PER, at += PER * step) {
    const REAL *x = (const REAL *)(const void *)at;
    const VEC s = NAME(vector_squares_rows)(r, x, step / one, 0);
    for (int64_t k = 0; k < PER; k++)
      acc[j + k] += NAME(squares_in_range)(s[k], r, x + k * (step / one));
  }
  for (; j < n; j++, at += step) {
    const REAL *x = (const REAL *)(const void *)at;
    double sum = 0;
    for (int64_t i = 0; i < r; i += SUM_BLOCK) {
      int64_t m = r - i < SUM_BLOCK ? r - i : SUM_BLOCK;
      sum += NAME(squares_in_range)(NAME(vector_squares_block)(m, x + i, 0), m, x + i);
    }
    acc[j] += sum;
  }
}

#define EXTREME_TAKE(f, best, BETTER)                                                          \
  TARGET static void NAME(f##_across)(int64_t n, int64_t r, REAL *restrict acc, const REAL *x, \
                                      int64_t next) {                                          \
    for (int64_t i = 0; i < r; i++, x += next)                                                 \
      for (int64_t j = 0; j < n; j++) {                                                        \
        const REAL v = x[j], m = acc[j];                                                       \
        acc[j] = ((v BETTER m) | (v != v)) ? v : m;                                            \
      }                                                                                        \
  }                                                                                            \
  TARGET static void NAME(f##_take)(int64_t n, int64_t r, void *scratch, const char *x,        \
                                    int64_t step, int64_t next) {                              \
    const int64_t one = sizeof(REAL);                                                          \
    REAL *acc = scratch;                                                                       \
    if (next == one) {                                                                         \
      for (int64_t j = 0; j < n; j++, x += step) {                                             \
        bool nan;                                                                              \
        REAL v = NAME(best)(r, (const REAL *)(const void *)x, &nan);                           \
        if (nan) v = (REAL)NAN;                                                                \
        acc[j] = v BETTER acc[j] || v != v ? v : acc[j];                                       \
      }                                                                                        \
    } else if (step == one) {                                                                  \
      NAME(f##_across)(n, r, acc, (const REAL *)(const void *)x, next / one);                  \
    } else {                                                                                   \
      for (int64_t j = 0; j < n; j++, x += step) {                                             \
        REAL m = acc[j];                                                                       \
        for (int64_t i = 0; i < r; i++) {                                                      \
          const REAL v = ELEMENT(i);                                                           \
          m = ((v BETTER m) | (v != v)) ? v : m;                                               \
        }                                                                                      \
        acc[j] = m;                                                                            \
      }                                                                                        \
    }                                                                                          \
  }
EXTREME_TAKE(amax, vector_most, >)
EXTREME_TAKE(amin, vector_least, <)
#undef EXTREME_TAKE
#undef ELEMENT
