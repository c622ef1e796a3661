/* fft_level.h -- the loops of fft.c for one type and level. Parameters are REAL, TARGET, NAME(f),
** LANES, LOW, HIGH, EVENS, ODDS, BACKWARDS; this file undefines them at its end. fft_plan.h
** describes the methods.
**
** Scratch memory holds pairs of vectors: LANES real parts, then LANES imaginary parts. An inverse
** transform swaps real and imaginary parts on input and on output.
*/
typedef REAL NAME(vector) __attribute__((vector_size(sizeof(REAL) * LANES)));
typedef REAL NAME(loose)
  __attribute__((vector_size(sizeof(REAL) * LANES), aligned(sizeof(REAL)), may_alias));
#define VECTOR NAME(vector)
#define AT(p) (*(const NAME(loose) *)(const void *)(p))
#define TO(p) (*(NAME(loose) *)(void *)(p))
#define TWO (2 * LANES)

/* -- transforms of 2 to 16 numbers: r[k] + i i[k] := sum over j of number j times e^(-2 pi i j k /
** n) -- */

TARGET INLINED void NAME(add)(VECTOR *r, VECTOR *i, int a, int b) { /* a := a + b, b := a - b */
  VECTOR sr = r[a] + r[b], si = i[a] + i[b];
  r[b] = r[a] - r[b];
  i[b] = i[a] - i[b];
  r[a] = sr;
  i[a] = si;
}

/* x in all lanes. The subtraction is exact and needs no instruction. */
TARGET INLINED VECTOR NAME(all)(REAL x) {
  const VECTOR zero = {0};
  return x - zero;
}

TARGET INLINED void NAME(times)(VECTOR *r, VECTOR *i, VECTOR c, VECTOR s) {
  VECTOR t = *r * c - *i * s;
  *i = *r * s + *i * c;
  *r = t;
}

/* Numbers 0 to 3, `by` apart. Results 1 and 2 are swapped. */
TARGET INLINED void NAME(four)(VECTOR *r, VECTOR *i, int by) {
  NAME(add)(r, i, 0, 2 * by);
  NAME(add)(r, i, by, 3 * by);
  NAME(add)(r, i, 0, by);
  VECTOR ar = r[2 * by], ai = i[2 * by], br = r[3 * by], bi = i[3 * by];
  r[2 * by] = ar + bi;
  i[2 * by] = ai - br;
  r[3 * by] = ar - bi;
  i[3 * by] = ai + br;
}

/* Swaps numbers a and b. Unrolled loops need no instruction for it. */
TARGET INLINED void NAME(swap)(VECTOR *r, VECTOR *i, int a, int b) {
  VECTOR tr = r[a], ti = i[a];
  r[a] = r[b];
  i[a] = i[b];
  r[b] = tr;
  i[b] = ti;
}

TARGET INLINED void NAME(eight)(VECTOR *r, VECTOR *i) {
  const REAL h = (REAL)0.70710678118654752440;
  UNROLL for (int j = 0; j < 4; j++) NAME(add)(r, i, j, j + 4);
  VECTOR t = r[5];
  r[5] = (t + i[5]) * h; /* times (1 - i) / sqrt 2, -i, (-1 - i) / sqrt 2 */
  i[5] = (i[5] - t) * h;
  t = r[6];
  r[6] = i[6];
  i[6] = -t;
  t = r[7];
  r[7] = (i[7] - t) * h;
  i[7] = (t + i[7]) * -h;
  NAME(four)(r, i, 1);
  NAME(four)(r + 4, i + 4, 1);
  NAME(swap)(r, i, 1, 4); /* the order was 0 4 2 6 1 5 3 7 */
  NAME(swap)(r, i, 3, 6);
}

/* Sixteen numbers as four by four. */
TARGET INLINED void NAME(sixteen)(VECTOR *r, VECTOR *i) {
  const REAL c[10] = {1, (REAL)0.92387953251128675613, (REAL)0.70710678118654752440,
                      (REAL)0.38268343236508977173, 0, 0, (REAL)-0.70710678118654752440, 0, 0,
                      (REAL)-0.92387953251128675613};
  const REAL s[10] = {0, (REAL)-0.38268343236508977173, (REAL)-0.70710678118654752440,
                      (REAL)-0.92387953251128675613, -1, 0, (REAL)-0.70710678118654752440, 0, 0,
                      (REAL)0.38268343236508977173};
  const int order[4] = {0, 2, 1, 3};
  UNROLL for (int j = 0; j < 4; j++) NAME(four)(r + j, i + j, 4);
  UNROLL for (int k = 1; k < 4; k++)
    UNROLL for (int j = 1; j < 4; j++) {
      const int at = order[k] * j;
      NAME(times)(r + 4 * k + j, i + 4 * k + j, NAME(all)(c[at]), NAME(all)(s[at]));
    }
  UNROLL for (int k = 0; k < 4; k++) NAME(four)(r + 4 * k, i + 4 * k, 1);
  UNROLL for (int k = 0; k < 16; k++) {
    const int at = 4 * order[k % 4] + order[k / 4];
    if (k < at) NAME(swap)(r, i, k, at);
  }
}

/* An odd n. unit has cosines and sines of 2 pi k / n. */
TARGET INLINED void NAME(odd)(int n, VECTOR *r, VECTOR *i, const REAL *unit) {
  VECTOR yr[7], yi[7];
  yr[0] = r[0];
  yi[0] = i[0];
  UNROLL for (int j = 1; 2 * j < n; j++) {
    NAME(add)(r, i, j, n - j);
    yr[0] += r[j];
    yi[0] += i[j];
  }
  UNROLL for (int k = 1; 2 * k < n; k++) {
    VECTOR ar = r[0], ai = i[0], br = {0}, bi = {0};
    UNROLL for (int j = 1; 2 * j < n; j++) {
      const REAL c = unit[2 * (j * k % n)], s = unit[2 * (j * k % n) + 1];
      ar += c * r[j];
      ai += c * i[j];
      br += s * r[n - j];
      bi += s * i[n - j];
    }
    yr[k] = ar + bi;
    yi[k] = ai - br;
    yr[n - k] = ar - bi;
    yi[n - k] = ai + br;
  }
  UNROLL for (int k = 0; k < n; k++) r[k] = yr[k], i[k] = yi[k];
}

TARGET INLINED void NAME(few)(int n, VECTOR *r, VECTOR *i, const REAL *unit) {
  if (n == 2) NAME(add)(r, i, 0, 1);
  else if (n == 4) {
    NAME(four)(r, i, 1);
    NAME(swap)(r, i, 1, 2);
  } else if (n == 8) NAME(eight)(r, i);
  else if (n == 16) NAME(sixteen)(r, i);
  else NAME(odd)(n, r, i, unit);
}

/* -- passes -- */

/* One pass of radix n. pairs: the first pass, where x has complex numbers in the user's layout. */
TARGET INLINED void NAME(pass)(int n, bool pairs, bool inverse, int64_t m, int64_t s,
                               const REAL *x, REAL *y, const REAL *root, const REAL *unit) {
  const int64_t ldx = s * m * TWO, ldy = s * TWO;
  for (int64_t p = 0; p < m; p++, root += 2 * (n - 1), y += (n - 1) * ldy)
    for (int64_t q = 0; q < s; q++, x += TWO, y += TWO) {
      VECTOR r[16], i[16];
      UNROLL for (int k = 0; k < n; k++) {
        VECTOR a = AT(x + k * ldx), b = AT(x + k * ldx + LANES);
        if (pairs) {
          VECTOR even = __builtin_shufflevector(a, b, EVENS);
          VECTOR odd = __builtin_shufflevector(a, b, ODDS);
          a = inverse ? odd : even;
          b = inverse ? even : odd;
        }
        r[k] = a;
        i[k] = b;
      }
      NAME(few)(n, r, i, unit);
      UNROLL for (int k = 1; k < n; k++)
        if (m > 1)
          NAME(times)(r + k, i + k, NAME(all)(root[2 * k - 2]), NAME(all)(root[2 * k - 1]));
      UNROLL for (int k = 0; k < n; k++) {
        TO(y + k * ldy) = r[k];
        TO(y + k * ldy + LANES) = i[k];
      }
    }
}

#define PASS(n)                                                                              \
  TARGET ALONE static void NAME(pass##n)(int64_t m, int64_t s, const REAL *x, REAL *y,       \
                                         const REAL *root) {                                 \
    NAME(pass)(n, false, false, m, s, x, y, root, NULL);                                     \
  }
PASS(2)
PASS(4)
PASS(8)
#undef PASS

/* Results k .. k + many - 1 of any odd n, and n - k, ... of their conjugates. r and i have number
** 0, then sums and differences of numbers j and n - j. */
TARGET INLINED void NAME(some)(int n, int k, const int many, const VECTOR *r, const VECTOR *i,
                               const REAL *unit, REAL *y, int64_t ldy, const REAL *root) {
  VECTOR ar[2], ai[2], br[2], bi[2];
  int at[2];
  UNROLL for (int l = 0; l < many; l++) {
    ar[l] = r[0], ai[l] = i[0];
    br[l] = bi[l] = NAME(all)(0);
    at[l] = k + l;
  }
  ROLLED for (int j = 1; 2 * j < n; j++)
    UNROLL for (int l = 0; l < many; l++) {
      const REAL c = unit[2 * at[l]], s = unit[2 * at[l] + 1];
      ar[l] += c * r[j];
      ai[l] += c * i[j];
      br[l] += s * r[n - j];
      bi[l] += s * i[n - j];
      at[l] += k + l;
      if (at[l] >= n) at[l] -= n;
    }
  UNROLL for (int l = 0; l < many; l++) {
    VECTOR zr[2] = {ar[l] + bi[l], ar[l] - bi[l]}, zi[2] = {ai[l] - br[l], ai[l] + br[l]};
    UNROLL for (int b = 0; b < 2; b++) {
      const int to = b ? n - k - l : k + l;
      NAME(times)(zr + b, zi + b, NAME(all)(root[2 * to - 2]), NAME(all)(root[2 * to - 1]));
      TO(y + to * ldy) = zr[b];
      TO(y + to * ldy + LANES) = zi[b];
    }
  }
}

/* A pass of any odd radix n. */
TARGET ALONE static void NAME(pass_any)(int n, int64_t m, int64_t s, const REAL *x, REAL *y,
                                  const REAL *root, const REAL *unit) {
  const int64_t ldx = s * m * TWO, ldy = s * TWO;
  for (int64_t p = 0; p < m; p++, root += 2 * (n - 1), y += (n - 1) * ldy)
    for (int64_t q = 0; q < s; q++, x += TWO, y += TWO) {
      VECTOR r[MOTH_FFT_PRIME], i[MOTH_FFT_PRIME];
      VECTOR zr = r[0] = AT(x), zi = i[0] = AT(x + LANES);
      ROLLED for (int k = 1; 2 * k < n; k++) {
        const REAL *a = x + k * ldx, *b = x + (n - k) * ldx;
        zr += r[k] = AT(a) + AT(b);
        zi += i[k] = AT(a + LANES) + AT(b + LANES);
        r[n - k] = AT(a) - AT(b);
        i[n - k] = AT(a + LANES) - AT(b + LANES);
      }
      TO(y) = zr;
      TO(y + LANES) = zi;
      int k = 1;
      ROLLED for (; 2 * k + 2 < n; k += 2) NAME(some)(n, k, 2, r, i, unit, y, ldy, root);
      if (2 * k < n) NAME(some)(n, k, 1, r, i, unit, y, ldy, root);
    }
}

/* A pass of an odd radix; radices 3, 5 and 7 are unrolled. */
TARGET ALONE static void NAME(pass_odd)(int n, int64_t m, int64_t s, const REAL *x, REAL *y,
                                  const REAL *root, const REAL *unit) {
#define UNIT(c, s) (REAL)(c), (REAL)(s)
  const REAL three[6] = {1, 0, UNIT(-0.5, 0.86602540378443864676),
                         UNIT(-0.5, -0.86602540378443864676)};
  const REAL five[10] = {1, 0, UNIT(0.30901699437494742410, 0.95105651629515357212),
                         UNIT(-0.80901699437494742410, 0.58778525229247312917),
                         UNIT(-0.80901699437494742410, -0.58778525229247312917),
                         UNIT(0.30901699437494742410, -0.95105651629515357212)};
  const REAL seven[14] = {1, 0, UNIT(0.62348980185873353053, 0.78183148246802980871),
                          UNIT(-0.22252093395631440429, 0.97492791218182360702),
                          UNIT(-0.90096886790241912624, 0.43388373911755812048),
                          UNIT(-0.90096886790241912624, -0.43388373911755812048),
                          UNIT(-0.22252093395631440429, -0.97492791218182360702),
                          UNIT(0.62348980185873353053, -0.78183148246802980871)};
#undef UNIT
  if (n == 3) NAME(pass)(3, false, false, m, s, x, y, root, three);
  else if (n == 5) NAME(pass)(5, false, false, m, s, x, y, root, five);
  else if (n == 7) NAME(pass)(7, false, false, m, s, x, y, root, seven);
  else NAME(pass_any)(n, m, s, x, y, root, unit);
}

/* All passes from pass `at` on. s is the product of the radices before. Returns x or y, which has
** the result. */
TARGET ALONE static REAL *NAME(passes)(const moth_fft_plan *plan, int at, int64_t s,
                                       const REAL *root, REAL *x, REAL *y) {
  int64_t m = plan->m / s;
  for (; at < plan->passes; at++) {
    const int n = plan->radix[at];
    m /= n;
    if (n == 8) NAME(pass8)(m, s, x, y, root);
    else if (n == 4) NAME(pass4)(m, s, x, y, root);
    else if (n == 2) NAME(pass2)(m, s, x, y, root);
    else NAME(pass_odd)(n, m, s, x, y, root, plan->unit[at]);
    root += 2 * m * (n - 1);
    s *= n;
    REAL *held = x;
    x = y;
    y = held;
  }
  return x;
}

/* -- ROWS: one signal in all lanes -- */

/* Transposes LANES vectors. */
TARGET INLINED void NAME(transpose)(VECTOR *v) {
  UNROLL for (int n = 1; n < LANES; n *= 2) {
    VECTOR t[LANES];
    UNROLL for (int k = 0; k < LANES / 2; k++) {
      t[2 * k] = __builtin_shufflevector(v[k], v[k + LANES / 2], LOW);
      t[2 * k + 1] = __builtin_shufflevector(v[k], v[k + LANES / 2], HIGH);
    }
    UNROLL for (int k = 0; k < LANES; k++) v[k] = t[k];
  }
}

TARGET INLINED void NAME(put_pairs)(REAL *y, VECTOR r, VECTOR i) {
  TO(y) = __builtin_shufflevector(r, i, LOW);
  TO(y + LANES) = __builtin_shufflevector(r, i, HIGH);
}

/* The last step: transforms across lanes, from columns of m numbers to the result in the user's
** layout. */
TARGET ALONE static void NAME(across)(const moth_fft_plan *plan, const REAL *x, REAL *y,
                                      REAL scale, bool inverse) {
  const int64_t m = plan->m;
  const REAL *twiddle = plan->twiddle;
  for (int64_t k = 0; k < m; k += LANES, x += LANES * TWO, twiddle += LANES * TWO) {
    VECTOR r[LANES], i[LANES];
    UNROLL for (int j = 0; j < LANES; j++) r[j] = AT(x + j * TWO);
    NAME(transpose)(r);
    UNROLL for (int j = 0; j < LANES; j++) i[j] = AT(x + j * TWO + LANES);
    NAME(transpose)(i);
    UNROLL for (int j = 1; j < LANES; j++)
      NAME(times)(r + j, i + j, AT(twiddle + j * TWO), AT(twiddle + j * TWO + LANES));
    NAME(few)(LANES, r, i, NULL);
    REAL *to = y + 2 * k, held[LANES * TWO];
    const int64_t left = m - k, ldt = left < LANES ? TWO : 2 * m;
    if (left < LANES) to = held;
    UNROLL for (int j = 0; j < LANES; j++) {
      VECTOR a = r[j] * scale, b = i[j] * scale;
      NAME(put_pairs)(to + ldt * j, inverse ? b : a, inverse ? a : b);
    }
    for (int j = 0; left < LANES && j < LANES; j++)
      memcpy(y + 2 * (k + m * j), held + j * TWO, (size_t)(2 * left) * sizeof(REAL));
  }
}

/* One signal, from x to y in the user's layout; a and b are scratch. */
TARGET ALONE static void NAME(row)(const moth_fft_plan *plan, const REAL *x, REAL *y, REAL *a,
                                   REAL *b, REAL scale, bool inverse) {
  const int n = plan->radix[0];
  const int64_t m = plan->m / n;
  const REAL *root = plan->root;
  if (n == 8) NAME(pass)(8, true, inverse, m, 1, x, a, root, NULL);
  else if (n == 4) NAME(pass)(4, true, inverse, m, 1, x, a, root, NULL);
  else NAME(pass)(1, true, inverse, plan->m, 1, x, a, root, NULL);
  const bool done = n == 8 || n == 4;
  a = NAME(passes)(plan, done, done ? n : 1, root + (done ? 2 * m * (n - 1) : 0), a, b);
  NAME(across)(plan, a, y, scale, inverse);
}

/* y := x f, for n complex numbers. in, out: 1 swaps real and imaginary parts of x or of y. */
TARGET ALONE static void NAME(multiply)(int64_t n, const REAL *x, int in, const REAL *f, REAL *y,
                                        int out) {
  for (int64_t k = 0; k < 2 * n; k += 2) {
    const REAL r = x[k + in], i = x[k + 1 - in];
    y[k + out] = r * f[k] - i * f[k + 1];
    y[k + 1 - out] = r * f[k + 1] + i * f[k];
  }
}

/* One signal by the convolution of CHIRP. b also has space for the numbers of the convolution,
** after the scratch of its passes. */
TARGET ALONE static void NAME(chirp)(const moth_fft_plan *plan, const REAL *x, REAL *y, REAL *a,
                                     REAL *b, REAL scale, bool inverse) {
  const moth_fft_plan *wide = plan->wide;
  const int64_t n = plan->count, all = wide->count;
  REAL *z = b + 2 * (wide->m + LANES) * LANES;
  NAME(multiply)(n, x, inverse, plan->chirp, z, 0);
  memset(z + 2 * n, 0, (size_t)(2 * (all - n)) * sizeof(REAL));
  NAME(row)(wide, z, z, a, b, 1, false);
  NAME(multiply)(all, z, 0, plan->filter, z, 0);
  NAME(row)(wide, z, z, a, b, scale, true);
  NAME(multiply)(n, z, 0, plan->chirp, y, inverse);
}

/* -- real signals -- */

/* a and b are numbers k and N - k. TO_HALF: from the transform of pairs to that of the real signal.
** FROM_HALF: the opposite, with -c. */
TARGET INLINED void NAME(combine_halves)(VECTOR *ar, VECTOR *ai, VECTOR *br, VECTOR *bi, VECTOR c,
                                         VECTOR s, REAL by) {
  VECTOR sr = *ar + *br, si = *ai - *bi, dr = *ar - *br, di = *ai + *bi;
  VECTOR tr = c * di + s * dr, ti = s * di - c * dr;
  *ar = (sr + tr) * by;
  *ai = (si + ti) * by;
  *br = (sr - tr) * by;
  *bi = (ti - si) * by;
}

/* Numbers 0 and N of `wide` signals. Imaginary parts are `im` elements after real parts, numbers
** are `step` apart. flip: swaps real and imaginary parts of y. */
TARGET INLINED void NAME(ends)(const moth_fft_job *j, const REAL *x, REAL *y, int64_t step,
                               int64_t im, int wide, bool flip) {
  const int64_t n = j->plan->count * step, re = flip ? im : 0, other = im - re;
  const REAL scale = (REAL)j->f->scale;
  const bool to = j->f->kind == MOTH_FFT_TO_HALF;
  for (int l = 0; l < wide; l++) {
    const REAL a = x[l] * scale, b = (to ? x[l + im] : x[l + n]) * scale;
    y[l + re] = a + b;
    y[l + other] = to ? 0 : a - b;
    if (to) y[l + n] = a - b, y[l + n + im] = 0;
  }
}

/* True if imaginary parts of coefficients change their sign. */
#define CONJUGATE(f) ((f)->inverse == ((f)->kind == MOTH_FFT_TO_HALF))

TARGET ALONE static void NAME(combine_row)(const moth_fft_job *j, const REAL *x, REAL *y) {
  const int64_t n = j->plan->count;
  const bool to = j->f->kind == MOTH_FFT_TO_HALF;
  const REAL *c = j->plan->half, *s = c + n, sign = CONJUGATE(j->f) ? -1 : 1;
  const REAL by = (REAL)(j->f->scale * (j->f->twice ? 1 : 0.5)), toward = to ? 1 : -1;
  NAME(ends)(j, x, y, 2, 1, 1, false);
  for (int64_t at = 1; 2 * at <= n; at += LANES) {
    const int64_t k = at + LANES > n ? n - LANES : at, back = n - k - LANES + 1;
    VECTOR a = AT(x + 2 * k), b = AT(x + 2 * k + LANES);
    VECTOR ar = __builtin_shufflevector(a, b, EVENS), ai = __builtin_shufflevector(a, b, ODDS);
    a = AT(x + 2 * back);
    b = AT(x + 2 * back + LANES);
    VECTOR br = __builtin_shufflevector(a, b, EVENS), bi = __builtin_shufflevector(a, b, ODDS);
    br = __builtin_shufflevector(br, br, BACKWARDS);
    bi = __builtin_shufflevector(bi, bi, BACKWARDS);
    if (!to) ai *= sign, bi *= sign;
    NAME(combine_halves)(&ar, &ai, &br, &bi, AT(c + k) * toward, AT(s + k), by);
    if (to) ai *= sign, bi *= sign;
    NAME(put_pairs)(y + 2 * k, ar, ai);
    br = __builtin_shufflevector(br, br, BACKWARDS);
    bi = __builtin_shufflevector(bi, bi, BACKWARDS);
    NAME(put_pairs)(y + 2 * back, br, bi);
  }
}

TARGET ALONE static void NAME(combine_columns)(const moth_fft_job *j, const REAL *x, REAL *y,
                                             bool flip) {
  const int64_t n = j->plan->count;
  const bool to = j->f->kind == MOTH_FFT_TO_HALF;
  const REAL *c = j->plan->half, *s = c + n, sign = CONJUGATE(j->f) ? -1 : 1;
  const REAL by = (REAL)(j->f->scale * (j->f->twice ? 1 : 0.5)), toward = to ? 1 : -1;
  const int re = flip ? LANES : 0, im = LANES - re;
  NAME(ends)(j, x, y, TWO, LANES, LANES, flip);
  for (int64_t k = 1; 2 * k <= n; k++) {
    const REAL *a = x + k * TWO, *b = x + (n - k) * TWO;
    REAL *to_a = y + k * TWO, *to_b = y + (n - k) * TWO;
    VECTOR ar = AT(a), ai = AT(a + LANES), br = AT(b), bi = AT(b + LANES);
    if (!to) ai *= sign, bi *= sign;
    NAME(combine_halves)(&ar, &ai, &br, &bi, NAME(all)(c[k] * toward), NAME(all)(s[k]), by);
    if (to) ai *= sign, bi *= sign;
    TO(to_a + re) = ar;
    TO(to_a + im) = ai;
    TO(to_b + re) = br;
    TO(to_b + im) = bi;
  }
}

/* Real signals of odd length: fills in the conjugate numbers, or scales the kept half. Arguments as
** for ends(). */
TARGET ALONE static void NAME(mirror)(const moth_fft_job *j, const REAL *x, REAL *y, int64_t step,
                                      int64_t im, int wide, bool flip) {
  const int64_t n = j->plan->count, re = flip ? im : 0, other = im - re;
  const bool to = j->f->kind == MOTH_FFT_TO_HALF;
  const REAL scale = (REAL)j->f->scale;
  const REAL by = scale * (REAL)(to ? 1 + j->f->twice : 0.5 + 0.5 * (double)j->f->twice);
  for (int64_t k = 0; 2 * k < n; k++)
    for (int l = 0; l < wide; l++) {
      const REAL r = x[k * step + l] * (k ? by : scale);
      const REAL i = !k ? 0 : x[k * step + l + im] * (CONJUGATE(j->f) ? -by : by);
      y[k * step + l + re] = r;
      y[k * step + l + other] = i;
      if (to || !k) continue;
      y[(n - k) * step + l + re] = r;
      y[(n - k) * step + l + other] = -i;
    }
}

/* -- signals -- */

static REAL *NAME(at)(const moth_fft_side *side, int64_t signal) {
  return (REAL *)(void *)side->base + signal / side->inner * side->outer +
         signal % side->inner * side->unit;
}

static bool NAME(packed)(const moth_fft_side *side) { return side->step == 2 && side->other == 1; }

/* Items are signals, one by one. */
TARGET static void NAME(rows)(int64_t first, int64_t last, int thread, const void *arg) {
  const moth_fft_job *j = arg;
  const moth_fft *f = j->f;
  const moth_fft_plan *plan = j->plan, *inner = plan->wide ? plan->wide : plan;
  const int64_t in = j->from.n, out = j->to.n, work = 2 * (inner->m + LANES) * LANES;
  REAL *p = (REAL *)(void *)j->scratch + thread * j->scratch_size, *q = p + 2 * f->n + 2;
  REAL *z = q + 2 * f->n + 2, *a = z + 2 * f->n + 2, *b = a + work;
  const REAL scale = f->kind == MOTH_FFT_COMPLEX ? (REAL)f->scale : 1;
  const bool inverse = f->kind == MOTH_FFT_COMPLEX ? f->inverse : f->kind == MOTH_FFT_FROM_HALF;
  for (int64_t signal = first; signal < last; signal++) {
    const REAL *x = NAME(at)(&j->from, signal);
    REAL *to = NAME(at)(&j->to, signal), *y = NAME(packed)(&j->to) ? to : q;
    if (!NAME(packed)(&j->from)) {
      for (int64_t k = 0; k < in; k++) {
        p[2 * k] = x[k * j->from.step];
        p[2 * k + 1] = j->from.other ? x[k * j->from.step + j->from.other] : 0;
      }
      x = p;
    }
    if (f->kind == MOTH_FFT_FROM_HALF) {
      if (plan->halved) NAME(combine_row)(j, x, z);
      else NAME(mirror)(j, x, z, 2, 1, 1, false);
      x = z;
    }
    REAL *via = f->kind == MOTH_FFT_TO_HALF ? z : y;
    if (plan->wide) NAME(chirp)(plan, x, via, a, b, scale, inverse);
    else NAME(row)(plan, x, via, a, b, scale, inverse);
    if (f->kind == MOTH_FFT_TO_HALF) {
      if (plan->halved) NAME(combine_row)(j, z, y);
      else NAME(mirror)(j, z, y, 2, 1, 1, false);
    }
    for (int64_t k = 0; y == q && k < out; k++) {
      to[k * j->to.step] = q[2 * k];
      if (j->to.other) to[k * j->to.step + j->to.other] = q[2 * k + 1];
    }
  }
}

#define EACH (16 / (int)sizeof(REAL)) /* real numbers in 16 bytes */
#define PIECE (EACH / 2)                /* complex numbers in 16 bytes */

/* Loads PIECE complex numbers of all signals. Loads and stores move 16 bytes to their lanes, which
** leaves half of the shuffles of a full transpose. */
TARGET INLINED void NAME(load_pieces)(REAL *const *at, int64_t from, REAL *x, int re) {
  const int im = LANES - re;
  VECTOR v[EACH];
  UNROLL for (int l = 0; l < EACH; l++) v[l] = (VECTOR)PIECES(at, l, from);
#if EACH_LANES == 4
  VECTOR a = __builtin_shufflevector(v[0], v[1], LOWS);
  VECTOR b = __builtin_shufflevector(v[2], v[3], LOWS);
  TO(x + re) = __builtin_shufflevector(a, b, FRONTS);
  TO(x + im) = __builtin_shufflevector(a, b, BACKS);
  a = __builtin_shufflevector(v[0], v[1], HIGHS);
  b = __builtin_shufflevector(v[2], v[3], HIGHS);
  TO(x + TWO + re) = __builtin_shufflevector(a, b, FRONTS);
  TO(x + TWO + im) = __builtin_shufflevector(a, b, BACKS);
#else
  TO(x + re) = __builtin_shufflevector(v[0], v[1], LOWS);
  TO(x + im) = __builtin_shufflevector(v[0], v[1], HIGHS);
#endif
}

TARGET INLINED void NAME(store_pieces)(REAL *const *at, int64_t to, const REAL *x, int re,
                                       REAL scale) {
  const int im = LANES - re;
  VECTOR v[EACH], a = AT(x + re) * scale, b = AT(x + im) * scale;
#if EACH_LANES == 4
  VECTOR c = AT(x + TWO + re) * scale, d = AT(x + TWO + im) * scale;
  VECTOR front = __builtin_shufflevector(a, b, FRONTS), back = __builtin_shufflevector(a, b, BACKS);
  VECTOR more = __builtin_shufflevector(c, d, FRONTS), last = __builtin_shufflevector(c, d, BACKS);
  v[0] = __builtin_shufflevector(front, more, FIRSTS);
  v[1] = __builtin_shufflevector(front, more, SECONDS);
  v[2] = __builtin_shufflevector(back, last, FIRSTS);
  v[3] = __builtin_shufflevector(back, last, SECONDS);
#else
  v[0] = __builtin_shufflevector(a, b, LOWS);
  v[1] = __builtin_shufflevector(a, b, HIGHS);
#endif
  UNROLL for (int l = 0; l < EACH; l++) PUT_PIECES(at, l, to, v[l]);
}

/* Prefetches lines of a later signal, `next` bytes after this one: the hardware does not predict
** steps from signal to signal. Into L2, because scratch memory fills L1. Transforms of 2,400 packed
** signals of 80 numbers load_pieces 0.8 times as long. */
#define GROUPS_AHEAD 2 /* groups of signals */
#define PREFETCH(p, next)                                                       \
  UNROLL for (int line = 0; line < PIECE * TWO * (int)sizeof(REAL); line += 64) \
    __builtin_prefetch((const char *)(p) + (next) + line, 0, 2)

/* Loads one signal into each lane; real parts are written at offset re. near: the signals are
** adjacent. */
TARGET ALONE static void NAME(load)(const moth_fft_side *side, REAL *const *at, bool near,
                                    int64_t next, REAL *x, int re) {
  const int im = LANES - re;
  const int64_t n = side->n, step = side->step, other = side->other, unit = side->unit;
  int64_t k = 0;
  for (; near && k < n; k++, x += TWO) {
    const REAL *from = at[0] + k * step;
    VECTOR a = AT(from), b = {0};
    if (unit == 2) {
      VECTOR c = AT(from + LANES);
      b = __builtin_shufflevector(a, c, ODDS);
      a = __builtin_shufflevector(a, c, EVENS);
    } else if (other) b = AT(from + other);
    TO(x + re) = a;
    TO(x + im) = b;
  }
  for (; NAME(packed)(side) && n >= PIECE && k < n; k += PIECE, x += PIECE * TWO) {
    if (k + PIECE > n) k--, x -= TWO;
    PREFETCH(at[0] + k * LANES * 2, next);
    NAME(load_pieces)(at, 2 * k, x, re);
  }
  for (; k < n; k++, x += TWO)
    for (int l = 0; l < LANES; l++) {
      x[l + re] = at[l][k * step];
      x[l + im] = other ? at[l][k * step + other] : 0;
    }
}

TARGET ALONE static void NAME(store)(const moth_fft_side *side, REAL *const *at, bool near,
                                     int64_t next, const REAL *x, int re, REAL scale) {
  const int im = LANES - re;
  const int64_t n = side->n, step = side->step, other = side->other, unit = side->unit;
  int64_t k = 0;
  for (; near && k < n; k++, x += TWO) {
    REAL *to = at[0] + k * step;
    VECTOR a = AT(x + re) * scale, b = AT(x + im) * scale;
    if (unit == 2) NAME(put_pairs)(to, a, b);
    else {
      TO(to) = a;
      if (other) TO(to + other) = b;
    }
  }
  for (; NAME(packed)(side) && n >= PIECE && k < n; k += PIECE, x += PIECE * TWO) {
    if (k + PIECE > n) k--, x -= TWO;
    PREFETCH(at[0] + k * LANES * 2, next);
    NAME(store_pieces)(at, 2 * k, x, re, scale);
  }
  for (; k < n; k++, x += TWO)
    for (int l = 0; l < LANES; l++) {
      at[l][k * step] = x[l + re] * scale;
      if (other) at[l][k * step + other] = x[l + im] * scale;
    }
}

/* Items are groups of LANES signals. The last group repeats its last signal in unused lanes. */
TARGET static void NAME(columns)(int64_t first, int64_t last, int thread, const void *arg) {
  const moth_fft_job *j = arg;
  const moth_fft *f = j->f;
  const moth_fft_plan *plan = j->plan;
  REAL *a = (REAL *)(void *)j->scratch + thread * j->scratch_size, *b = a + (f->n + 1) * TWO;
  const REAL scale = f->kind == MOTH_FFT_COMPLEX ? (REAL)f->scale : 1;
  const int flip = f->kind == MOTH_FFT_COMPLEX && f->inverse ? LANES : 0;
  for (int64_t group = first; group < last; group++) {
    REAL *from[LANES], *to[LANES];
    for (int64_t l = 0; l < LANES; l++) {
      int64_t signal = group * LANES + l;
      if (signal >= j->signals) signal = j->signals - 1;
      from[l] = NAME(at)(&j->from, signal);
      to[l] = NAME(at)(&j->to, signal);
    }
    const int64_t next =
        group + GROUPS_AHEAD < last ? (group + GROUPS_AHEAD) * LANES : group * LANES;
    const int64_t next_from = (char *)NAME(at)(&j->from, next) - (char *)from[0];
    const int64_t next_to = (char *)NAME(at)(&j->to, next) - (char *)to[0];
    const bool near = f->inner > 1 && group * LANES % f->inner + LANES <= f->inner;
    REAL *x = a, *y = b;
    int back = flip;
    NAME(load)(&j->from, from, near, next_from, x, flip);
    if (f->kind == MOTH_FFT_FROM_HALF) {
      if (plan->halved) NAME(combine_columns)(j, x, y, true);
      else NAME(mirror)(j, x, y, TWO, LANES, LANES, true);
      x = b, y = a, back = LANES;
    }
    x = NAME(passes)(plan, 0, 1, plan->root, x, y);
    if (f->kind == MOTH_FFT_TO_HALF) {
      y = x == a ? b : a;
      if (plan->halved) NAME(combine_columns)(j, x, y, false);
      else NAME(mirror)(j, x, y, TWO, LANES, LANES, false);
      x = y;
    }
    NAME(store)(&j->to, to, near, next_to, x, back, scale);
  }
}

#undef VECTOR
#undef AT
#undef TO
#undef TWO
#undef CONJUGATE
#undef PREFETCH
#undef GROUPS_AHEAD
#undef EACH
#undef PIECE
#undef REAL
#undef TARGET
#undef NAME
#undef LANES
#undef LOW
#undef HIGH
#undef EVENS
#undef ODDS
#undef BACKWARDS
#undef EACH_LANES
#undef PIECES
#undef PUT_PIECES
#undef LOWS
#undef HIGHS
#undef FRONTS
#undef BACKS
#undef FIRSTS
#undef SECONDS
