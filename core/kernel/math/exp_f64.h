/* exp_f64.h -- functions in f64 without branches and without the C library, so that compilers
** vectorize loops over them. inverse_f64.h has more functions. NaN propagates.
**
** Errors, measured at random points, in units in the last place: exp 1.1, expm1 2.3, log 0.9, log2
** and log10 1.5, log1p 1.5, tanh 1.4, sigmoid 2.4, sinh and cosh 2.9, erf 1.5, erfc and the normal
** distribution function 11, sin and cos 1.5, tan 2.9. Methods and coefficients: Cephes (S. Moshier)
** and fdlibm (Sun Microsystems); exp's polynomial interpolates (exp(r) - 1 - r) / r^2 at Chebyshev
** points.
*/
#ifndef MOTH_KERNEL_EXP_F64_H
#define MOTH_KERNEL_EXP_F64_H

#include "exp.h"

#define MOTH_LN2 0.69314718055994530942
/* x + this has the integer nearest to x in its lowest bits */
#define MOTH_SHIFT_F64 6755399441055744.0

MOTH_INLINE uint64_t moth_bits_f64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  return bits;
}

MOTH_INLINE double moth_double_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}

MOTH_INLINE double moth_abs_f64(double x) { return fabs(x); }

/* The upper half of the bits of x. Products of two such numbers are exact. */
MOTH_INLINE double moth_high_f64(double x) {
  return moth_double_of(moth_bits_f64(x) & 0xffffffff00000000u);
}

/* y >= 0 with the sign of x. */
MOTH_INLINE double moth_signed_f64(double y, double x) {
  return moth_double_of(moth_bits_f64(y) | (moth_bits_f64(x) & 1ull << 63));
}

/* -- exp -- */

/* exp(r) - 1 for |r| up to ln(2) / 2. */
MOTH_INLINE double moth_exp_series_f64(double r) {
  double p = 2.5100424157005067e-08;
  p = p * r + 2.7620138719733994e-07;
  p = p * r + 2.7557268378684192e-06;
  p = p * r + 2.480152119021773e-05;
  p = p * r + 0.00019841269863105968;
  p = p * r + 0.0013888888917281794;
  p = p * r + 0.008333333333330051;
  p = p * r + 0.04166666666662399;
  p = p * r + 0.16666666666666669;
  p = p * r + 0.5000000000000001;
  return p * (r * r) + r;
}

/* exp(x) = (1 + t) 2^n. Returns t. The low bits of *n become n + bias. */
MOTH_INLINE double moth_exp_parts_f64(double x, uint64_t bias, uint64_t *n) {
  const double shift = MOTH_SHIFT_F64 + (double)bias;
  double whole = x * 1.4426950408889634074 + shift;
  *n = moth_bits_f64(whole);
  whole -= shift;
  return moth_exp_series_f64(x - whole * 6.93147180369123816490e-01 -
                             whole * 1.90821492927058770002e-10);
}

/* (1 + t) 2^n for any n from -1076 to 1024, with bias 2046. Multiplies by two powers, so that only
** the last product rounds. */
MOTH_INLINE double moth_exp_join_f64(double t, uint64_t n) {
  const uint64_t half = n >> 1;
  const double a = moth_double_of(half << 52);
  return (t * a + a) * moth_double_of((n - half) << 52);
}

MOTH_INLINE double moth_exp_f64(double x) {
  double low = x < -746.0 ? -746.0 : x, y = low > 710.0 ? 710.0 : low;
  uint64_t n;
  const double t = moth_exp_parts_f64(y, 2046, &n);
  return moth_exp_join_f64(t, n);
}

/* exp(x) - 1. Below -40 it is -1, above 40 exp(x). */
MOTH_INLINE double moth_expm1_f64(double x) {
  double low = x < -40.0 ? -40.0 : x, y = low > 710.0 ? 710.0 : low;
  uint64_t n;
  const double t = moth_exp_parts_f64(y, 2046, &n);
  const double far = moth_exp_join_f64(t, n);
  const double scale = moth_double_of((n - 1023) << 52); /* for x up to 40 */
  const double near = t * scale + (scale - 1.0);
  return x > 40.0 ? far : x == 0 ? x : near;
}

/* sigmoid(x); *other := 1 - sigmoid(x). */
MOTH_INLINE double moth_sigmoids_f64(double x, double *other) {
  const double e = moth_exp_f64(-moth_abs_f64(x));
  *other = (x < 0 ? 1.0 : e) / (1.0 + e);
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

MOTH_INLINE double moth_sigmoid_f64(double x) {
  double other;
  return moth_sigmoids_f64(x, &other);
}

/* Near 0 Cephes' quotient; elsewhere 1 - 2 / (exp(2 a) + 1). */
MOTH_INLINE double moth_tanh_f64(double x) {
  double a = moth_abs_f64(x), z = a * a;
  double p = (-0.964399179425052238628 * z - 99.2877231001918586564) * z - 1614.68768441708447952;
  double q = ((z + 112.811678491632931402) * z + 2235.48839060100448583) * z;
  double near = p * z / (q + 4844.06305325125486048) * a + a;
  double far = 1.0 - 2.0 / (moth_exp_f64(a + a) + 1.0);
  return moth_signed_f64(a < 0.625 ? near : far, x);
}

/* sinh(x) from expm1(a). Above 700, exp(a) may overflow although its half does not: the code
** squares exp(a / 2). */
MOTH_INLINE double moth_sinh_f64(double x) {
  const double a = moth_abs_f64(x), t = moth_expm1_f64(a > 700.0 ? a * 0.5 : a);
  const double near = 0.5 * (t + t / (t + 1.0)), far = 0.5 * t * t;
  return moth_signed_f64(a > 700.0 ? far : near, x);
}

MOTH_INLINE double moth_cosh_f64(double x) {
  const double a = moth_abs_f64(x), e = moth_exp_f64(a > 700.0 ? a * 0.5 : a);
  return a > 700.0 ? 0.5 * e * e : 0.5 * (e + 1.0 / e);
}

/* -- log -- */

/* m in [sqrt(1/2), sqrt(2)), where x = m 2^e. Denormal x are scaled up first. */
MOTH_INLINE double moth_mantissa_f64(double x, double *e) {
  const double up = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x; /* 2^54 */
  const uint64_t shifted = moth_bits_f64(up) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  const double power = moth_double_of((shifted >> 52) | 0x4330000000000000u) - 4503599627371519.0;
  *e = x < 2.2250738585072014e-308 ? power - 54.0 : power;
  return moth_double_of((shifted & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
}

/* log(1 + f) = f - *less, where x = (1 + f) 2^e; fdlibm's series in f / (2 + f). Returns f. */
MOTH_INLINE double moth_log_parts_f64(double x, double *e, double *less) {
  const double f = moth_mantissa_f64(x, e) - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double p = 1.479819860511658591e-01;
  p = p * z + 1.531383769920937332e-01;
  p = p * z + 1.818357216161805012e-01;
  p = p * z + 2.222219843214978396e-01;
  p = p * z + 2.857142874366239149e-01;
  p = p * z + 3.999999999940941908e-01;
  p = p * z + 6.666666666666735130e-01;
  *less = half - s * (half + p * z);
  return f;
}

/* y for positive finite x; the values of log(x) for other x. */
MOTH_INLINE double moth_log_ends_f64(double y, double x) {
  y = x < INFINITY ? y : x; /* selects NaN, too */
  y = x == 0 ? -INFINITY : y;
  return x < 0 ? NAN : y;
}

MOTH_INLINE double moth_log_f64(double x) {
  double e, less;
  const double f = moth_log_parts_f64(x, &e, &less);
  return moth_log_ends_f64(e * 6.93147180369123816490e-01 -
                           ((less - e * 1.90821492927058770002e-10) - f), x);
}

/* The logarithm to another base. The factors of log(x) and of e are sums of two numbers, so that
** powers of the base have integer logarithms. */
MOTH_INLINE double moth_log_by_f64(double x, double by, double by_low, double per_e,
                                   double per_e_low) {
  double e, less;
  const double f = moth_log_parts_f64(x, &e, &less);
  const double high = moth_high_f64(f - less), low = (f - high) - less;
  const double a = e * per_e, b = high * by, sum = a + b;
  const double rest = (a - sum) + b + (e * per_e_low + ((low + high) * by_low + low * by));
  return moth_log_ends_f64(sum + rest, x);
}

MOTH_INLINE double moth_log2_f64(double x) {
  return moth_log_by_f64(x, 1.4426946640014648, 3.768874985636099e-07, 1.0, 0.0);
}

MOTH_INLINE double moth_log10_f64(double x) {
  return moth_log_by_f64(x, 0.4342944622039795, 1.9699272335463627e-08, 0.30102992057800293,
                         7.508597826552624e-08);
}

/* log(1 + x), corrected for the rounding error of the sum. */
MOTH_INLINE double moth_log1p_f64(double x) {
  const double u = 1.0 + x, lost = (x - (u - 1.0)) / u, y = moth_log_f64(u);
  return x == 0 ? x : x - x == 0 && u > 0 ? y + lost : y;
}

/* -- the error function and the normal distribution -- */

/* exp(-by x^2), where by is 1 or 1/2. x^2 is a sum of two parts, since rounding it would lose
** digits. */
MOTH_INLINE double moth_bell_f64(double x, double by) {
  const double a = moth_abs_f64(x), b = a > 40.0 ? 40.0 : a;
  const double high = moth_double_of(moth_bits_f64(b) & ~0x7ffffffull);
  const double d = by * ((high - b) * (high + b));
  return moth_exp_f64(-by * (high * high)) * (1.0 + d * (1.0 + d * (0.5 + d * (1.0 / 6.0))));
}

/* erf(a) / a - 1 for a < 1. */
MOTH_INLINE double moth_erf_near_f64(double a) {
  const double z = a * a;
  double p = -z - 23.95674042487979357721;
  p = p * z - 431.3319300597684108733;
  p = p * z - 2362.31848376295808761;
  p = p * z - 15625.67492026104266987;
  p = p * z + 6324.9070401759041682;
  double q = z + 3.35617141647503099647e1;
  q = q * z + 5.21357949780152679795e2;
  q = q * z + 4.59432382970980127987e3;
  q = q * z + 2.26290000613890934246e4;
  q = q * z + 4.92673942608635921086e4;
  return p / q;
}

/* erfc(a) from erf; 1 - erf(a) would lose bits. */
MOTH_INLINE double moth_erfc_near_f64(double a) {
  return 0.5 - ((a - 0.5) + a * moth_erf_near_f64(a));
}

/* erfc(a) exp(a^2) for a >= 1. */
MOTH_INLINE double moth_erfcx_far_f64(double a) {
  double p = 2.46196981473530512524e-10;
  p = p * a + 5.64189564831068821977e-1;
  p = p * a + 7.46321056442269912687;
  p = p * a + 4.86371970985681366614e1;
  p = p * a + 1.96520832956077098242e2;
  p = p * a + 5.26445194995477358631e2;
  p = p * a + 9.34528527171957607540e2;
  p = p * a + 1.02755188689515710272e3;
  p = p * a + 5.57535335369399327526e2;
  double q = a + 1.32281951154744992508e1;
  q = q * a + 8.67072140885989742329e1;
  q = q * a + 3.54937778887819891062e2;
  q = q * a + 9.75708501743205489753e2;
  q = q * a + 1.82390916687909736289e3;
  q = q * a + 2.24633760818710981792e3;
  q = q * a + 1.65666309194161350182e3;
  q = q * a + 5.57535340817727675546e2;
  double r = 5.64189583547755073984e-1;
  r = r * a + 1.27536670759978104416;
  r = r * a + 5.01905042251180477414;
  r = r * a + 6.16021097993053585195;
  r = r * a + 7.40974269950448939160;
  r = r * a + 2.97886665372100240670;
  double s = a + 2.26052863220117276590;
  s = s * a + 9.39603524938001434673;
  s = s * a + 1.20489539808096656605e1;
  s = s * a + 1.70814450747565897222e1;
  s = s * a + 9.60896809063285878198;
  s = s * a + 3.36907645100081516050;
  return (a < 8.0 ? p : r) / (a < 8.0 ? q : s);
}

MOTH_INLINE double moth_erf_f64(double x) {
  const double a = moth_abs_f64(x), b = a > 6.0 ? 6.0 : a; /* erf is 1 from 6 on */
  const double far = 1.0 - moth_bell_f64(b, 1.0) * moth_erfcx_far_f64(b);
  return moth_signed_f64(a < 1.0 ? a + a * moth_erf_near_f64(a) : far, x);
}

MOTH_INLINE double moth_erfc_f64(double x) {
  const double a = moth_abs_f64(x), b = a > 40.0 ? 40.0 : a; /* erfc is 0 from 40 on */
  const double far = moth_bell_f64(b, 1.0) * moth_erfcx_far_f64(b);
  const double tail = a < 1.0 ? moth_erfc_near_f64(a) : far;
  return x < 0 ? 2.0 - tail : tail;
}

/* The normal distribution's tail above |x|; *bell := exp(-x^2 / 2). */
MOTH_INLINE double moth_tail_f64(double x, double *bell) {
  const double a = moth_abs_f64(x) * 0.70710678118654752440, b = a > 40.0 ? 40.0 : a;
  *bell = moth_bell_f64(x, 0.5);
  return 0.5 * (a < 1.0 ? moth_erfc_near_f64(a) : *bell * moth_erfcx_far_f64(b));
}

MOTH_INLINE double moth_share_f64(double x) {
  double bell;
  const double tail = moth_tail_f64(x, &bell);
  return x > 0 ? 1.0 - tail : tail;
}

MOTH_INLINE double moth_gelu_f64(double x) { return x * moth_share_f64(x); }

/* -- aliases with the names of the f32 functions -- */

#define moth_full_exp_f64 moth_exp_f64
#define moth_less_one_f64 moth_expm1_f64
#define moth_log1p_unit_f64 moth_log1p_f64

/* -- sin, cos, tan for |x| up to MOTH_WAVE_FAR_F64; for larger x, loops call the C library -- */

#define MOTH_WAVE_FAR_F64 1e6

/* x = n pi/2 + r, |r| up to pi/4. Returns r. The first parts of pi/2 have 33 bits each, so that
** products with n are exact. */
MOTH_INLINE double moth_turn_f64(double x, uint64_t *n) {
  double whole = x * 0.63661977236758134308 + MOTH_SHIFT_F64;
  *n = moth_bits_f64(whole);
  whole -= MOTH_SHIFT_F64;
  const double a = x - whole * 1.57079632673412561417, w = whole * 6.07710050630396597660e-11;
  const double r = a - w, lost = (a - r) - w;
  return r + (lost - whole * 2.02226624879595063154e-21);
}

MOTH_INLINE double moth_sin_series_f64(double r) {
  const double z = r * r;
  double p = 1.58969099521155010221e-10;
  p = p * z - 2.50507602534068634195e-08;
  p = p * z + 2.75573137070700676789e-06;
  p = p * z - 1.98412698298579493134e-04;
  p = p * z + 8.33333333332248946124e-03;
  p = p * z - 1.66666666666666324348e-01;
  return p * z * r + r;
}

MOTH_INLINE double moth_cos_series_f64(double r) {
  const double z = r * r, half = 0.5 * z, w = 1.0 - half;
  double p = -1.13596475577881948265e-11;
  p = p * z + 2.08757232129817482790e-09;
  p = p * z - 2.75573143513906633035e-07;
  p = p * z + 2.48015872894767294178e-05;
  p = p * z - 1.38888888888741095749e-03;
  p = p * z + 4.16666666666666019037e-02;
  return w + ((1.0 - w) - half + p * z * z);
}

/* sin(r + n pi/2). */
MOTH_INLINE double moth_wave_f64(double r, uint64_t n) {
  const double s = moth_sin_series_f64(r), c = moth_cos_series_f64(r), y = n & 1 ? c : s;
  return moth_double_of(moth_bits_f64(y) ^ (n & 2) << 62);
}

MOTH_INLINE double moth_sin_f64(double x) {
  uint64_t n;
  const double r = moth_turn_f64(x, &n), y = moth_wave_f64(r, n);
  return x == 0 ? x : y;
}

MOTH_INLINE double moth_cos_f64(double x) {
  uint64_t n;
  const double r = moth_turn_f64(x, &n);
  return moth_wave_f64(r, n + 1);
}

MOTH_INLINE double moth_tan_f64(double x) {
  uint64_t n;
  const double r = moth_turn_f64(x, &n), s = moth_sin_series_f64(r), c = moth_cos_series_f64(r);
  const double over = n & 1 ? -c : s, under = n & 1 ? s : c, y = over / under;
  return x == 0 ? x : y;
}

/* sin(pi x) / (pi x). The reduction of pi x is exact; from 2^52 on the result is 0. */
MOTH_INLINE double moth_sinc_f64(double x) {
  const double a = moth_abs_f64(x), half = a * 0.5, twos = (half + MOTH_SHIFT_F64) - MOTH_SHIFT_F64;
  const double t = a < 0x1p52 ? 2.0 * (a - 2.0 * twos) : 0.0, whole = t + MOTH_SHIFT_F64;
  const double r = (t - (whole - MOTH_SHIFT_F64)) * 1.57079632679489661923;
  const double y = moth_wave_f64(r, moth_bits_f64(whole)) / (3.14159265358979323846 * a);
  const double near = a == 0 ? 1.0 : y;
  return x - x == 0 ? near : x != x ? x : 0.0;
}

#endif
