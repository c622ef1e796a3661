/* softmax_real.h -- the loops of softmax.c for one REAL and one TARGET, the attribute that chooses
** instructions. A strip has the n elements of one (outer, inner). If inner == 1, strips are
** contiguous rows; else a block has up to COLUMNS neighboring strips, whose elements are `step`
** apart along n.
*/

#include "sums_real.h"

VECTOR_EXTREME(largest, >, -INFINITY)
VECTOR_SUM(plain_sum, v)

/* y := exp(x - m) for up to COLUMNS elements. Returns the sum. */
TARGET INLINED REAL NAME(exp_block)(int64_t n, const REAL *restrict x, REAL m, REAL *restrict y) {
  for (int64_t i = 0; i < n; i++) y[i] = MATH(row_exp)(x[i] - m);
  return NAME(plain_sum_block)(n, y, 0);
}

/* The sum of exp(x - m), where m is the maximum, returned in *most. The search for the maximum
** skips NaN; the sum is NaN then. */
TARGET INLINED REAL NAME(exp_sum)(int64_t n, const REAL *x, REAL *most) {
  bool nan;
  REAL m = NAME(largest)(n, x, &nan), block[COLUMNS];
  double sum = 0;
  for (int64_t i = 0; i < n; i += COLUMNS)
    sum += (double)NAME(exp_block)(n - i < COLUMNS ? n - i : COLUMNS, x + i, m, block);
  *most = m;
  return (REAL)sum;
}

TARGET static void NAME(row)(int64_t n, const REAL *x, REAL *restrict y) {
  bool nan;
  double sum = 0;
  REAL m = NAME(largest)(n, x, &nan);
  for (int64_t i = 0; i < n; i += COLUMNS)
    sum += (double)NAME(exp_block)(n - i < COLUMNS ? n - i : COLUMNS, x + i, m, y + i);
  REAL by = (REAL)(1 / sum);
  for (int64_t i = 0; i < n; i++) y[i] *= by;
}

/* -- rows of up to COLUMNS elements: the vector results of SHORT_ROWS rows are transposed, so that
** one vector has one element of each row. Fewer rows are computed one by one, with the same order
** of additions. -- */

#define EACH (VECTOR_BYTES / sizeof(REAL))

/* The mask of the elements of a row's last vector that no other vector has. */
TARGET INLINED VMASK NAME(fresh)(int64_t n) {
  NAME(word) a[EACH];
  VMASK fresh;
  for (int64_t l = 0; l < PER; l++) a[l] = (n < PER ? l < n : l >= PER - n % PER) ? -1 : 0;
  memcpy(&fresh, a, VECTOR_BYTES);
  return fresh;
}

/* The last vector of a row, filled with -inf; `readable` elements can be read. */
TARGET INLINED VEC NAME(ending)(int64_t n, const REAL *x, int64_t readable, const VMASK *fresh) {
  const VEC none = (VEC){0} - (REAL)INFINITY;
  REAL a[EACH];
  if (n >= PER) return VEC_AT(x + n - PER);
  if (readable >= PER) return CHOOSE(*fresh, VEC_AT(x), none);
  memcpy(a, &none, VECTOR_BYTES);
  memcpy(a, x, (size_t)n * sizeof *x);
  return VEC_AT(a);
}

/* A loop, because GCC does not vectorize the unrolled exponentials. */
TARGET INLINED VEC NAME(exps)(const VEC *v, REAL m) {
  REAL a[EACH];
  memcpy(a, v, VECTOR_BYTES);
  ROLLED for (int64_t l = 0; l < PER; l++) a[l] = MATH(row_exp)(a[l] - m);
  return VEC_AT(a);
}

TARGET INLINED void NAME(largest_part)(int64_t n, const REAL *x, int64_t readable,
                                       const VMASK *fresh, REAL *part) {
  VEC m = NAME(ending)(n, x, readable, fresh);
  for (int64_t i = 0; i + PER <= n; i += PER) {
    const VEC v = VEC_AT(x + i);
    m = CHOOSE(v > m, v, m);
  }
  memcpy(part, &m, VECTOR_BYTES);
}

/* Writes the exponentials to y if y is not NULL. Elements after a row are overwritten by the next
** row. */
TARGET INLINED void NAME(sum_part)(int64_t n, const REAL *x, int64_t readable, const VMASK *fresh,
                                   REAL m, REAL *part, REAL *y) {
  VEC sum = {0};
  for (int64_t i = 0; i + PER <= n; i += PER) {
    VEC v = VEC_AT(x + i);
    v = NAME(exps)(&v, m);
    if (y) memcpy(y + i, &v, VECTOR_BYTES);
    sum += v;
  }
  if (n % PER) {
    VEC v = NAME(ending)(n, x, readable, fresh);
    v = NAME(exps)(&v, m);
    sum += (VEC)(*fresh & (VMASK)v);
    if (y && n >= PER) memcpy(y + n - PER, &v, VECTOR_BYTES);
    else if (y && readable >= PER) memcpy(y, &v, VECTOR_BYTES);
    else if (y) memcpy(y, &v, (size_t)n * sizeof *y);
  }
  memcpy(part, &sum, VECTOR_BYTES);
}

/* all[0 .. rows - 1] := the sum, or the maximum, of the vector elements of each row. */
TARGET INLINED void NAME(join_rows)(int64_t rows, bool adds, REAL *part, REAL *all) {
  REAL transposed[EACH * SHORT_ROWS];
  if (rows < 4 || sizeof(REAL) != sizeof(float)) {
    for (int64_t k = 0; k < rows; k++, part += PER) {
      for (int64_t h = PER / 2; h > 0; h /= 2)
        for (int64_t j = 0; j < h; j++) {
          const REAL a = part[j], b = part[j + h];
          part[j] = adds ? a + b : b > a ? b : a;
        }
      all[k] = part[0];
    }
    return;
  }
  moth_transpose_block(PER, SHORT_ROWS, (const char *)part, VECTOR_BYTES, (char *)transposed,
                       SHORT_ROWS * sizeof(REAL));
  for (int64_t h = PER / 2; h > 0; h /= 2)
    for (int64_t j = 0; j < h; j++)
      for (int64_t k = 0; k < SHORT_ROWS; k++) {
        const REAL a = transposed[j * SHORT_ROWS + k], b = transposed[(j + h) * SHORT_ROWS + k];
        transposed[j * SHORT_ROWS + k] = adds ? a + b : b > a ? b : a;
      }
  for (int64_t k = 0; k < rows; k++) all[k] = transposed[k];
}

/* The maximum and the sum of exp(x - maximum), for up to SHORT_ROWS rows. */
TARGET static void NAME(short_sums)(int64_t rows, int64_t n, const REAL *x, REAL *most, REAL *sum,
                                    REAL *y) {
  REAL part[SHORT_ROWS * EACH] = {0};
  const VMASK fresh = NAME(fresh)(n);
  for (int64_t k = 0; k < rows; k++)
    NAME(largest_part)(n, x + k * n, (rows - k) * n, &fresh, part + k * PER);
  NAME(join_rows)(rows, false, part, most);
  for (int64_t k = 0; k < rows; k++)
    NAME(sum_part)(n, x + k * n, (rows - k) * n, &fresh, most[k], part + k * PER,
                   y ? y + k * n : NULL);
  NAME(join_rows)(rows, true, part, sum);
}

TARGET INLINED void NAME(sums)(int64_t rows, int64_t n, const REAL *x, REAL *most, REAL *sum) {
  if (n <= COLUMNS) NAME(short_sums)(rows, n, x, most, sum, NULL);
  else for (int64_t k = 0; k < rows; k++) sum[k] = NAME(exp_sum)(n, x + k * n, &most[k]);
}

TARGET static void NAME(rows)(int64_t rows, int64_t n, const REAL *x, REAL *restrict y) {
  for (int64_t k = 0; k < rows && n > COLUMNS; k++) NAME(row)(n, x + k * n, y + k * n);
  while (n <= COLUMNS && rows > 0) {
    int64_t some = rows < SHORT_ROWS ? rows : SHORT_ROWS;
    REAL m[SHORT_ROWS], by[SHORT_ROWS];
    NAME(short_sums)(some, n, x, m, by, y);
    for (int64_t k = 0; k < some; k++, x += n, y += n) {
      const REAL f = 1 / by[k];
      for (int64_t i = 0; i < n; i++) y[i] *= f;
    }
    rows -= some;
  }
}

/* The logarithms of SHORT_ROWS rows are computed as one vector. */
TARGET static void NAME(log_rows)(int64_t rows, int64_t n, const REAL *x, REAL *restrict y) {
  while (rows > 0) {
    int64_t some = rows < SHORT_ROWS ? rows : SHORT_ROWS;
    REAL m[SHORT_ROWS] = {0}, by[SHORT_ROWS] = {0};
    NAME(sums)(some, n, x, m, by);
    for (int k = 0; k < SHORT_ROWS; k++) by[k] = MATH(log)(by[k]);
    for (int64_t k = 0; k < some; k++, x += n, y += n)
      for (int64_t i = 0; i < n; i++) y[i] = x[i] - m[k] - by[k];
    rows -= some;
  }
}

TARGET static void NAME(block)(int64_t n, int64_t wide, int64_t step, bool logarithm,
                               const REAL *x, REAL *restrict y) {
  REAL m[COLUMNS], sum[COLUMNS];
  for (int64_t k = 0; k < wide; k++) m[k] = (REAL)-INFINITY, sum[k] = 0;
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    for (int64_t k = 0; k < wide; k++) m[k] = xi[k] > m[k] ? xi[k] : m[k];
  }
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    REAL *yi = y + i * step;
    for (int64_t k = 0; k < wide; k++) {
      yi[k] = MATH(row_exp)(xi[k] - m[k]);
      sum[k] += yi[k];
    }
  }
  for (int64_t k = 0; k < wide; k++) sum[k] = logarithm ? MATH(log)(sum[k]) : 1 / sum[k];
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    REAL *yi = y + i * step;
    if (logarithm)
      for (int64_t k = 0; k < wide; k++) yi[k] = xi[k] - m[k] - sum[k];
    else
      for (int64_t k = 0; k < wide; k++) yi[k] *= sum[k];
  }
}

TARGET INLINED REAL NAME(dot)(int64_t n, const REAL *a, const REAL *b) {
  VEC s0 = {0}, s1 = {0};
  REAL rest = 0;
  int64_t i = 0;
  for (; i + 2 * PER <= n; i += 2 * PER) {
    s0 += VEC_AT(a + i) * VEC_AT(b + i);
    s1 += VEC_AT(a + i + PER) * VEC_AT(b + i + PER);
  }
  for (; i < n; i++) rest += a[i] * b[i];
  s0 += s1;
  return NAME(total)(&s0) + rest;
}

TARGET static void NAME(row_back)(int64_t n, bool logarithm, const REAL *dy, const REAL *y,
                                  REAL *restrict dx) {
  if (logarithm) {
    REAL sum = (REAL)NAME(plain_sum)(n, dy, 0);
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - MATH(row_exp)(y[i]) * sum;
    return;
  }
  double sum = 0;
  for (int64_t i = 0; i < n; i += SUM_BLOCK)
    sum += (double)NAME(dot)(n - i < SUM_BLOCK ? n - i : SUM_BLOCK, dy + i, y + i);
  REAL by = (REAL)sum;
  for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - by);
}

TARGET static void NAME(block_back)(int64_t n, int64_t wide, int64_t step, bool logarithm,
                                    const REAL *dy, const REAL *y, REAL *restrict dx) {
  REAL sum[COLUMNS];
  for (int64_t k = 0; k < wide; k++) sum[k] = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < wide; k++) {
      int64_t at = i * step + k;
      sum[k] += logarithm ? dy[at] : dy[at] * y[at];
    }
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < wide; k++) {
      int64_t at = i * step + k;
      dx[at] = logarithm ? dy[at] - MATH(row_exp)(y[at]) * sum[k] : y[at] * (dy[at] - sum[k]);
    }
}

/* Items are strips if inner == 1, else blocks of COLUMNS strips. */
TARGET static void NAME(strips)(int64_t first, int64_t last, int thread, const void *arg) {
  const softmax_job *j = arg;
  const int64_t n = j->n, inner = j->inner, blocks = (inner + COLUMNS - 1) / COLUMNS;
  const REAL *x = j->x, *dy = j->dy;
  REAL *y = j->y;
  (void)thread;
  if (inner == 1 && !dy) {
    if (j->logarithm) NAME(log_rows)(last - first, n, x + first * n, y + first * n);
    else NAME(rows)(last - first, n, x + first * n, y + first * n);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    if (inner == 1) {
      int64_t at = i * n;
      NAME(row_back)(n, j->logarithm, dy + at, x + at, y + at);
      continue;
    }
    int64_t k = i % blocks * COLUMNS, at = i / blocks * n * inner + k;
    int64_t wide = inner - k < COLUMNS ? inner - k : COLUMNS;
    if (dy) NAME(block_back)(n, wide, inner, j->logarithm, dy + at, x + at, y + at);
    else NAME(block)(n, wide, inner, j->logarithm, x + at, y + at);
  }
}

/* -- cross entropy: the maximum and log(sum(exp(x - maximum))) of each strip -- */

TARGET static void NAME(row_parts)(int64_t rows, int64_t n, const REAL *x, REAL *most, REAL *rest) {
  for (int64_t k = 0; k < rows; k += SHORT_ROWS)
    NAME(sums)(rows - k < SHORT_ROWS ? rows - k : SHORT_ROWS, n, x + k * n, most + k, rest + k);
  for (int64_t k = 0; k < rows; k++) rest[k] = MATH(log)(rest[k]);
}

TARGET static void NAME(block_parts)(int64_t n, int64_t wide, int64_t step, const REAL *x,
                                     REAL *restrict most, REAL *restrict rest) {
  for (int64_t k = 0; k < wide; k++) most[k] = (REAL)-INFINITY, rest[k] = 0;
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    for (int64_t k = 0; k < wide; k++) most[k] = xi[k] > most[k] ? xi[k] : most[k];
  }
  for (int64_t i = 0; i < n; i++) {
    const REAL *xi = x + i * step;
    for (int64_t k = 0; k < wide; k++) rest[k] += MATH(row_exp)(xi[k] - most[k]);
  }
  for (int64_t k = 0; k < wide; k++) rest[k] = MATH(log)(rest[k]);
}

TARGET static void NAME(parts)(int64_t first, int64_t last, int thread, const void *arg) {
  const entropy_job *j = arg;
  const int64_t n = j->n, inner = j->inner, blocks = (inner + COLUMNS - 1) / COLUMNS;
  const REAL *x = j->x;
  REAL *most = j->most, *rest = j->rest;
  (void)thread;
  if (inner == 1) {
    NAME(row_parts)(last - first, n, x + first * n, most + first, rest + first);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    int64_t k = i % blocks * COLUMNS, o = i / blocks,
            wide = inner - k < COLUMNS ? inner - k : COLUMNS;
    NAME(block_parts)(n, wide, inner, x + o * n * inner + k, most + o * inner + k,
                      rest + o * inner + k);
  }
}

/* dx = factor (softmax - [target]). Ignored cases get zeros, even if x is not finite. */
TARGET static void NAME(row_entropy)(int64_t n, const REAL *x, REAL m, REAL r, REAL f,
                                     REAL *restrict dx) {
  for (int64_t i = 0; i < n; i++) dx[i] = MATH(row_exp)((x[i] - m) - r) * f;
}

TARGET static void NAME(block_entropy)(int64_t n, int64_t wide, int64_t step, const REAL *x,
                                       const REAL *m, const REAL *r, const REAL *f,
                                       REAL *restrict dx) {
  for (int64_t i = 0; i < n; i++, x += step, dx += step)
    for (int64_t k = 0; k < wide; k++) {
      const REAL v = MATH(row_exp)((x[k] - m[k]) - r[k]) * f[k];
      dx[k] = f[k] == 0 ? 0 : v;
    }
}

TARGET static void NAME(entropy_back)(int64_t first, int64_t last, int thread, const void *arg) {
  const entropy_job *j = arg;
  const int64_t n = j->n, inner = j->inner, blocks = (inner + COLUMNS - 1) / COLUMNS;
  const REAL *x = j->x, *most = j->most, *rest = j->rest, *factor = j->factor;
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    int64_t k = i % blocks * COLUMNS, o = i / blocks,
            wide = inner - k < COLUMNS ? inner - k : COLUMNS;
    int64_t at = o * n * inner + k, of = o * inner + k;
    REAL *dx = (REAL *)j->dx + at;
    if (inner > 1)
      NAME(block_entropy)(n, wide, inner, x + at, most + of, rest + of, factor + of, dx);
    else if (factor[of] == 0) memset(dx, 0, (size_t)n * sizeof *dx);
    else NAME(row_entropy)(n, x + at, most[of], rest[of], factor[of], dx);
    for (int64_t q = 0; q < wide; q++)
      if (factor[of + q] != 0) dx[j->target[of + q] * inner + q] -= factor[of + q];
  }
}

/* log(sum(exp)) of rows; infinity and NaN propagate. */
TARGET static void NAME(sum_rows)(int64_t first, int64_t last, int thread, const void *arg) {
  const softmax_job *j = arg;
  REAL *y = j->y;
  (void)thread;
  for (int64_t i = first; i < last; i++) {
    const REAL *x = (const REAL *)j->x + i * j->n;
    bool nan;
    REAL m = NAME(largest)(j->n, x, &nan);
    if (nan) y[i] = (REAL)NAN;
    else if (m - m != 0) y[i] = m;
    else y[i] = MATH(log)(NAME(exp_sum)(j->n, x, &m)) + m;
  }
}
