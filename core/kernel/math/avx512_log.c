/* avx512_log.c -- log, log2, log10 and log1p for AVX-512, in explicit vectors. AVX-512 has
** instructions that extract exponents and mantissas, also of denormal numbers, and that look up in
** tables. log of 4,096 numbers is 1.5 times as fast as the loop compiled from functions.h, the
** others 1.9 to 2.5 times.
**
** x = 2^e m, r = c m - 1 for a c from a table: log(x) = e log(2) - log(c) + log(1 + r). Logarithms
** of c and of 2 are sums of two floats. The first float is a multiple of 2^-16, so that sums of
** these are exact. c has so few bits that r is exact too, and c is 1 next to 1. Errors are at most
** 0.54 units in the last place. Compilers must not fuse products with sums here, except FMA
** (CMakeLists.txt).
*/
#include "avx512_loop.h"

#if MOTH_HAS_LEVELS

/* Tables of c and -log(c), by the first five bits of a mantissa from 1 to 1.5, or from 3/4 to 1.
** For the latter the exponent field of x is e - 1, and log(2) is included in the table. */
static const float factor[32] = {
  1.0f, 0.953125f, 0.921875f, 0.90625f, 0.875f, 0.859375f, 0.828125f, 0.8125f, 0.796875f,
  0.765625f, 0.75f, 0.734375f, 0.71875f, 0.703125f, 0.6875f, 0.671875f, 1.3125f, 1.28125f,
  1.28125f, 1.25f, 1.21875f, 1.1875f, 1.1875f, 1.15625f, 1.125f, 1.125f, 1.09375f, 1.0625f,
  1.0625f, 1.03125f, 1.03125f, 1.0f};
static const float high[32] = {
  0.0f, 0.0480041504f, 0.0813446045f, 0.0984344482f, 0.133529663f, 0.151550293f, 0.188598633f,
  0.207641602f, 0.227050781f, 0.267059326f, 0.287689209f, 0.308731079f, 0.330245972f, 0.352218628f,
  0.374694824f, 0.397689819f, 0.421218872f, 0.4453125f, 0.4453125f, 0.470001221f, 0.495315552f,
  0.52130127f, 0.52130127f, 0.547958374f, 0.575363159f, 0.575363159f, 0.603530884f, 0.632522583f,
  0.632522583f, 0.662368774f, 0.662368774f, 0.693145752f};
static const float low[32] = {
  0.0f, 5.06879587e-06f, 1.03496177e-06f, 5.62457126e-06f, 1.72953855e-06f, -3.9484155e-07f,
  -7.46300475e-06f, -2.23678421e-06f, 6.66938513e-06f, 3.45907711e-06f, -7.13653253e-06f,
  4.40254826e-06f, -4.28480917e-06f, 1.96565975e-06f, -1.3747773e-06f, -6.8516697e-06f,
  -5.40699421e-06f, -1.4833447e-06f, -1.4833447e-06f, 2.40854251e-06f, 5.88547209e-06f,
  -4.34589811e-06f, -4.34589811e-06f, 6.79669211e-06f, 9.85723773e-07f, 9.85723773e-07f,
  4.13808129e-06f, -2.42643576e-08f, -2.42643576e-08f, 6.74747889e-06f, 6.74747889e-06f,
  1.42860677e-06f};

/* log(x) - *rest, for positive x. */
MOTH_AVX512 INLINED vector log_parts(vector x, vector *rest) {
  const vector m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
  const vector e = _mm512_getexp_ps(x);
  const __m512i i = _mm512_srli_epi32(_mm512_castps_si512(m), 18);
  const vector r = _mm512_fmsub_ps(m, LOOKUP(factor, i), EACH(1.0f));
  const vector s = FMA(e, EACH(0.693145751953125f), LOOKUP(high, i));
  const vector less = FMA(e, EACH(1.42860677e-06f), LOOKUP(low, i));
  vector p = FMA(r, EACH(0.20014587f), EACH(-0.250204504f));
  p = FMA(p, r, EACH(0.333333313f));
  p = FMA(p, r, EACH(-0.49999994f));
  const vector y = s + r;
  *rest = ((s - y) + r) + FMA(r * r, p, less);
  return y;
}

/* y for positive finite x; the values of log(x) for other x. */
MOTH_AVX512 INLINED vector with_ends(vector y, vector x) {
  enum { KEEP, SAME, QUIET, NONE, DOWN, UP };                   /* actions */
  enum { NAN0 = 0, NAN1 = 4, ZERO = 8, LEAST = 16, MOST = 20, BELOW = 24 }; /* kinds of x */
  const int table = QUIET << NAN0 | QUIET << NAN1 | DOWN << ZERO | NONE << LEAST | UP << MOST |
                    NONE << BELOW;
  return _mm512_fixupimm_ps(y, x, _mm512_set1_epi32(table), 0);
}

MOTH_AVX512 INLINED vector wide_log(vector x) {
  vector rest;
  const vector y = log_parts(x, &rest);
  return with_ends(y + rest, x);
}

/* The logarithm to another base, where 1 / log(base) is by + by_low. */
MOTH_AVX512 INLINED vector log_by(vector x, float by, float by_low) {
  vector rest;
  const vector y = log_parts(x, &rest), z = y * EACH(by);
  const vector lost = FMA(y, EACH(by_low), _mm512_fmsub_ps(y, EACH(by), z));
  return with_ends(z + FMA(rest, EACH(by), lost), x);
}

MOTH_AVX512 INLINED vector wide_log2(vector x) { return log_by(x, 1.44269502f, 1.92596303e-08f); }
MOTH_AVX512 INLINED vector wide_log10(vector x) { return log_by(x, 0.434294492f, -1.010305e-08f); }

/* log(1 + x) = log(u) + log(1 + d / u), where u + d = 1 + x; near 0 a series. */
MOTH_AVX512 INLINED vector wide_log1p(vector x) {
  const vector one = EACH(1.0f), u = x + one, more = u - one, d = (one - (u - more)) + (x - more);
  const vector about = _mm512_rcp14_ps(u);
  const vector share = d * FMA(about, _mm512_fnmadd_ps(u, about, one), about);
  vector rest;
  const vector y = log_parts(u, &rest);
  rest = rest + FMA(share * EACH(-0.5f), share, share);
  const vector near = FMA(x * x, FMA(x, EACH(0.333333343f), EACH(-0.5f)), x);
  const __mmask16 small = _mm512_cmp_ps_mask(_mm512_abs_ps(x), EACH(0x1p-10f), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(with_ends(y + rest, u), small, near);
}

LOOP(log)
LOOP(log2)
LOOP(log10)
LOOP(log1p)

#endif
