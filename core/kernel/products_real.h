/* products_real.h -- the loops of products.c, for one REAL and one TARGET. Factors are multiplied
** in double. A block whose products leave 2^-500 .. 2^500 is multiplied again with explicit
** exponents.
*/
typedef double NAME(doubles) __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t NAME(longs) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(few) __attribute__((vector_size(VECTOR_BYTES / sizeof(double) * sizeof(REAL)),
                                      aligned(sizeof(REAL)), may_alias));
#define DOUBLES(p) __builtin_convertvector(*(const NAME(few) *)(const void *)(p), NAME(doubles))
#define OUTSIDE(v) MOTH_EXTENDED_OUTSIDE((NAME(longs))(v) & INT64_MAX)
#define PER ((int)(VECTOR_BYTES / sizeof(double)))

TARGET INLINED bool NAME(any_negative)(NAME(longs) v) {
  int64_t all = 0;
  UNROLL for (int k = 0; k < PER; k++) all |= v[k];
  return all < 0;
}

TARGET INLINED void NAME(times_lanes)(moth_extended *s, NAME(doubles) v) {
  UNROLL for (int k = 0; k < PER; k++) moth_extended_times(s, v[k]);
}

/* *s *= all lanes of v and w, which are within 2^-1000 .. 2^1000. If all are within 2^-60 .. 2^60,
** their product fits in a double. */
TARGET INLINED void NAME(times_all)(moth_extended *s, NAME(doubles) v, NAME(doubles) w) {
  const NAME(longs) a = (NAME(longs))v & INT64_MAX, b = (NAME(longs))w & INT64_MAX;
  const int64_t least = (int64_t)(1023 - 60) << 52, most = (int64_t)(1023 + 60) << 52;
  if (NAME(any_negative)(MOTH_BITS_OUTSIDE(a, least, most) | MOTH_BITS_OUTSIDE(b, least, most))) {
    NAME(times_lanes)(s, v);
    NAME(times_lanes)(s, w);
    return;
  }
  const NAME(doubles) p = v * w;
  double part[PER];
  memcpy(part, &p, sizeof part);
  for (int n = PER / 2; n > 0; n /= 2)
    for (int k = 0; k < n; k++) part[k] *= part[k + n];
  moth_extended_times(s, part[0]);
}

/* *s *= r elements, one by one. The product of four f32 always fits in a double. */
TARGET static void NAME(times_each)(moth_extended *s, int64_t r, const REAL *x) {
  moth_extended y = *s;
  for (; sizeof(REAL) == 4 && r >= 4; r -= 4, x += 4)
    moth_extended_times(&y, ((double)x[0] * (double)x[1]) * ((double)x[2] * (double)x[3]));
  for (; r > 0; r--) moth_extended_times(&y, (double)*x++);
  *s = y;
}

/* *s *= r contiguous elements. The products of a block are checked at its end for f32: eight
** factors that leave f64's range downwards cannot lead back to 2^-500. f64 products are all
** checked. */
TARGET static void NAME(prod_row)(moth_extended *s, int64_t r, const REAL *x) {
  enum { STEP = 4 * PER, BLOCK_STEPS = 8 };
  const NAME(doubles) one = (NAME(doubles)){0} + 1.0;
  NAME(doubles) a = one, b = one, c = one, d = one;
  const bool lanes = r >= STEP;
  while (r >= STEP) {
    const int64_t n = r < BLOCK_STEPS * STEP ? r / STEP : BLOCK_STEPS;
    NAME(doubles) p = a, q = b, u = c, v = d;
    NAME(longs) wrong = {0};
    for (int64_t k = 0; k < n * STEP; k += STEP) {
      p *= DOUBLES(x + k), q *= DOUBLES(x + k + PER);
      u *= DOUBLES(x + k + 2 * PER), v *= DOUBLES(x + k + 3 * PER);
      if (sizeof(REAL) == 8) wrong |= OUTSIDE(p) | OUTSIDE(q) | OUTSIDE(u) | OUTSIDE(v);
    }
    if (sizeof(REAL) == 4) wrong = OUTSIDE(p) | OUTSIDE(q) | OUTSIDE(u) | OUTSIDE(v);
    if (NAME(any_negative)(wrong)) {
      NAME(times_lanes)(s, a), NAME(times_lanes)(s, b);
      NAME(times_lanes)(s, c), NAME(times_lanes)(s, d);
      NAME(times_each)(s, n * STEP, x);
      a = b = c = d = one;
    } else {
      a = p, b = q, c = u, d = v;
    }
    r -= n * STEP;
    x += n * STEP;
  }
  if (lanes) NAME(times_all)(s, a * b, c * d); /* the product of two factors within 2^500 fits */
  NAME(times_each)(s, r, x);
}

/* PER short rows, `step` elements apart. */
TARGET static void NAME(prod_short)(moth_extended *s, int64_t r, const REAL *x, int64_t step) {
  NAME(doubles) p = (NAME(doubles)){0} + 1.0;
  NAME(longs) wrong = {0};
  for (int64_t i = 0; i < r; i++) {
    NAME(doubles) v;
    UNROLL for (int k = 0; k < PER; k++) v[k] = (double)x[i + k * step];
    p *= v;
    if (sizeof(REAL) == 8 || i % 8 == 7) wrong |= OUTSIDE(p);
  }
  wrong |= OUTSIDE(p);
  for (int k = 0; k < PER; k++) {
    if (wrong[k] < 0) NAME(times_each)(s + k, r, x + k * step);
    else moth_extended_times(s + k, p[k]);
  }
}

/* q := p times the elements of one row, or of six f32 rows, whose product fits. Returns a negative
** number if a product left the range. */
TARGET INLINED int64_t NAME(prod_rows)(int64_t n, bool six, const double *restrict p,
                                       double *restrict q, const REAL *restrict x, int64_t next) {
  const REAL *b = x + next, *c = b + next, *d = c + next, *e = d + next, *f = e + next;
  int64_t wrong = 0;
  MOTH_IVDEP for (int64_t j = 0; j < n; j++) {
    const double v = six ? ((double)x[j] * (double)b[j]) * ((double)c[j] * (double)d[j]) *
                             ((double)e[j] * (double)f[j])
                         : (double)x[j];
    const double y = p[j] * v;
    wrong |= MOTH_EXTENDED_OUTSIDE(moth_size_bits(y));
    q[j] = y;
  }
  return wrong;
}

/* acc[0..n) *= r rows of n elements, `next` elements apart. */
TARGET static void NAME(prod_across)(int64_t n, int64_t r, moth_extended *acc, const REAL *x,
                                     int64_t next) {
  double first[MOTH_REDUCE_BLOCK], second[MOTH_REDUCE_BLOCK], *p = first, *q = second;
  for (int64_t j = 0; j < n; j++) p[j] = acc[j].p;
  while (r > 0) {
    const bool six = sizeof(REAL) == 4 && r >= 6;
    const int64_t some = six ? 6 : 1;
    const int64_t wrong = six ? NAME(prod_rows)(n, true, p, q, x, next)
                              : NAME(prod_rows)(n, false, p, q, x, 0);
    for (int64_t j = 0; wrong < 0 && j < n; j++) {
      if (MOTH_EXTENDED_OUTSIDE(moth_size_bits(q[j])) >= 0) continue;
      acc[j].p = p[j];
      for (int64_t i = 0; i < some; i++) moth_extended_times(acc + j, (double)x[j + i * next]);
      q[j] = acc[j].p;
    }
    double *last = p;
    p = q, q = last;
    x += some * next;
    r -= some;
  }
  for (int64_t j = 0; j < n; j++) acc[j].p = p[j];
}

/* Strided elements are copied to a contiguous buffer first. */
TARGET static void NAME(prod_apart)(moth_extended *s, int64_t r, const char *x, int64_t next) {
  REAL row[256];
  while (r > 0) {
    const int64_t n = r < 256 ? r : 256;
    for (int64_t i = 0; i < n; i++, x += next) row[i] = *(const REAL *)(const void *)x;
    NAME(prod_row)(s, n, row);
    r -= n;
  }
}

TARGET static void NAME(prod_take)(int64_t n, int64_t r, void *scratch, const char *at,
                                   int64_t step, int64_t next) {
  const int64_t one = sizeof(REAL);
  moth_extended *acc = scratch;
  int64_t j = 0;
  if (next == one) {
    for (; r < 8 * PER && j + PER <= n; j += PER, at += PER * step)
      NAME(prod_short)(acc + j, r, (const REAL *)(const void *)at, step / one);
    for (; j < n; j++, at += step) NAME(prod_row)(acc + j, r, (const REAL *)(const void *)at);
  } else if (step == one && n > 1)
    NAME(prod_across)(n, r, acc, (const REAL *)(const void *)at, next / one);
  else
    for (; j < n; j++, at += step) NAME(prod_apart)(acc + j, r, at, next);
}

/* -- the gradient: dy times the product of all other elements of a row -- */

/* For rows with zeros, NaN or infinities. Counts the special elements, to know for each element
** which other elements are special. */
TARGET static void NAME(prod_back_each)(int64_t n, const REAL *x, double dy, REAL *y) {
  moth_extended s = {1, 0};
  int64_t zeros = 0, infinite = 0, nans = 0;
  double sign = 1;
  for (int64_t j = 0; j < n; j++) {
    const double v = (double)x[j];
    if (v == 0) zeros++;
    else if (v != v) nans++;
    else if (v - v != 0) infinite++;
    else moth_extended_times(&s, v);
    sign *= signbit(v) ? -1 : 1;
  }
  for (int64_t j = 0; j < n; j++) {
    const double v = (double)x[j], other = signbit(v) ? -sign : sign;
    const bool zero = zeros - (v == 0) > 0, far = infinite - ((v - v != 0) & (v == v)) > 0;
    moth_extended p = {fabs(s.p) * other, s.e};
    if (nans - (v != v) > 0 || (zero && far)) p = (moth_extended){(double)NAN, 0};
    else if (zero) p = (moth_extended){0 * other, 0};
    else if (far) p = (moth_extended){(double)INFINITY * other, 0};
    else if (v != 0 && v - v == 0) {
      int e;
      p.p /= frexp(fabs(v), &e);
      p.e -= e;
    }
    moth_extended_times(&p, dy);
    y[j] = (REAL)moth_extended_value(&p);
  }
}

/* True if all elements can be divisors in double: finite, and within 2^-500 .. 2^500. */
TARGET static bool NAME(prod_divides)(int64_t n, const REAL *x) {
  int64_t wrong = 0;
  for (int64_t j = 0; j < n; j++) wrong |= MOTH_EXTENDED_OUTSIDE(moth_size_bits((double)x[j]));
  return wrong >= 0;
}

TARGET static void NAME(prod_back_row)(int64_t n, const REAL *restrict x, double dy,
                                       REAL *restrict y) {
  if (!NAME(prod_divides)(n, x)) {
    NAME(prod_back_each)(n, x, dy, y);
    return;
  }
  moth_extended s = {1, 0};
  NAME(prod_row)(&s, n, x);
  moth_extended_times(&s, dy);
  const int64_t e = s.e > 3000 ? 3000 : s.e < -3000 ? -3000 : s.e;
  const double p = s.p;
  if (e == 0) {
    for (int64_t j = 0; j < n; j++) y[j] = (REAL)(p / (double)x[j]);
    return;
  }
  const double third = ldexp(1, (int)(e / 3)), rest = ldexp(1, (int)(e - e / 3 * 2));
  for (int64_t j = 0; j < n; j++) y[j] = (REAL)(p / (double)x[j] * third * third * rest);
}

TARGET static void NAME(prod_back)(int64_t row, int64_t end, int thread, const void *arg) {
  const moth_prod_back *b = arg;
  const int64_t n = b->length;
  (void)thread;
  for (; row < end; row++)
    NAME(prod_back_row)(n, (const REAL *)b->x + row * n, (double)((const REAL *)b->dy)[row],
                        (REAL *)b->y + row * n);
}

#undef DOUBLES
#undef OUTSIDE
#undef PER
