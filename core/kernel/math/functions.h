/* functions.h -- elementwise functions in f32 (f_f32) without branches, so that compilers vectorize
** loops over them. exp_f64.h and inverse_f64.h have the f64 functions. Functions that are not in
** exp.h are computed in f64 and rounded once: this has an error of half a unit in the last place
** and the shortest formulas, at half the speed.
**
** In a family's list exp(x) is moth_exp_f32 or moth_exp_f64: see real_math.h.
*/
#ifndef MOTH_KERNEL_FUNCTIONS_H
#define MOTH_KERNEL_FUNCTIONS_H

#include "exp.h"
#include "inverse_f64.h"

/* -- exponentials: the f64 parts have relative errors of 1e-10 -- */

/* 2^t = (1 + q) 2^n for |t| up to 300. Returns q; the low bits of *n become n. */
MOTH_INLINE double moth_wide_exp2(double t, uint64_t *n) {
  double whole = t + 6755399441055744.0;
  *n = moth_bits_f64(whole);
  double r = t - (whole - 6755399441055744.0);
  double p = 1.5252716816162738e-05;
  p = p * r + 0.00015461329907957659;
  p = p * r + 0.0013333669462920643;
  p = p * r + 0.0096180570369668299;
  p = p * r + 0.055504107275861199;
  p = p * r + 0.2402265092005183;
  p = p * r + 0.69314718058157176;
  return p * r;
}

MOTH_INLINE double moth_wide_two_to(uint64_t n) { /* 2^n */
  return moth_double_of((n + 1023) << 52);
}

/* Clamps t to exponents of an f32 and its reciprocal. NaN propagates. */
MOTH_INLINE double moth_wide_bound(double t) {
  double low = t < -200.0 ? -200.0 : t;
  return low > 200.0 ? 200.0 : low;
}

MOTH_INLINE double moth_wide_pow2(double t) {
  uint64_t n;
  double q = moth_wide_exp2(moth_wide_bound(t), &n);
  return (1.0 + q) * moth_wide_two_to(n);
}

MOTH_INLINE double moth_wide_expm1(double x) {
  uint64_t n;
  double q = moth_wide_exp2(moth_wide_bound(x * 1.4426950408889634074), &n);
  double s = moth_wide_two_to(n);
  return s * q + (s - 1.0);
}

/* 2^x in f32: 2^n (1 + r p), 1 unit in the last place. */
MOTH_INLINE float moth_exp2_f32(float x) {
  float whole = x + 12583166.0f; /* the low bits become n + 254 */
  uint32_t n = moth_bits_f32(whole);
  float r = x - (whole - 12583166.0f);
  float p = 1.5252716816162738e-05f;
  p = p * r + 0.00015461329907957659f;
  p = p * r + 0.0013333669462920643f;
  p = p * r + 0.0096180570369668299f;
  p = p * r + 0.055504107275861199f;
  p = p * r + 0.2402265092005183f;
  p = p * r + 0.69314718058157176f;
  float y = moth_exp_join(p * r, n);
  y = x < -150.0f ? 0 : y;
  return x >= 128.0f ? INFINITY : y;
}

MOTH_INLINE float moth_expm1_f32(float x) { return x == 0 ? x : (float)moth_wide_expm1(x); }

MOTH_INLINE float moth_sinh_f32(float x) {
  float y = (float)(0.5 * (moth_wide_expm1(x) - moth_wide_expm1(-(double)x)));
  return x == 0 ? x : y;
}

MOTH_INLINE float moth_cosh_f32(float x) {
  const double turn = 1.4426950408889634074 * x;
  return (float)(0.5 * (moth_wide_pow2(turn) + moth_wide_pow2(-turn)));
}

/* -- logarithms -- */

/* f P(f) = log(1 + f), relative error 2e-11, where x = (1 + f) 2^e is positive and normal. */
MOTH_INLINE double moth_wide_log_parts(double x, double *e) {
  uint64_t shifted = moth_bits_f64(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  *e = moth_double_of((shifted >> 52) | 0x4330000000000000u) - 4503599627371519.0;
  double f = moth_double_of((shifted & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
  double p = 0.053629308190328309;
  p = p * f - 0.099009605024009115;
  p = p * f + 0.100332470341141;
  p = p * f - 0.099228385774062747;
  p = p * f + 0.11005073618014888;
  p = p * f - 0.12497485333979594;
  p = p * f + 0.14290987653964451;
  p = p * f - 0.16666943416921443;
  p = p * f + 0.1999988112406022;
  p = p * f - 0.24999994079739032;
  p = p * f + 0.3333333433393707;
  p = p * f - 0.50000000029416147;
  p = p * f + 0.99999999998595579;
  return p * f;
}

/* log(x) * by + e * whole, for any base. NaN for x < 0. */
MOTH_INLINE float moth_wide_log(double x, double by, double whole) {
  double e, y = moth_wide_log_parts(x, &e) * by + e * whole;
  y = x < INFINITY ? y : x; /* selects NaN, too */
  y = x == 0 ? -INFINITY : y;
  return (float)(x < 0 ? NAN : y);
}

MOTH_INLINE float moth_log2_f32(float x) { return moth_wide_log(x, 1.4426950408889634074, 1); }
MOTH_INLINE float moth_log10_f32(float x) {
  return moth_wide_log(x, 0.43429448190325182765, 0.30102999566398119521);
}
MOTH_INLINE float moth_log1p_f32(float x) {
  float y = moth_wide_log(1.0 + x, 1, MOTH_LN2);
  return x < 1e-4f && x > -1e-4f ? x - x * x * (0.5f - x * 0.33333333f) : y;
}

/* log(1 + t) for t from 0 to 1, in f32: 2 atanh(s) for s = t / (2 + t), as t minus a term; 1.3
** units in the last place. */
MOTH_INLINE float moth_log1p_unit_f32(float t) {
  const float s = t / (2.0f + t), z = s * s;
  float p = 0.14005966f;
  p = p * z + 0.14000909f;
  p = p * z + 0.20010763f;
  p = p * z + 0.33333208f;
  return t - s * (t - 2.0f * z * p);
}

MOTH_INLINE float moth_asinh_f32(float x) {
  double a = moth_abs_f32(x);
  float y = moth_wide_log(a + sqrt(a * a + 1.0), 1, MOTH_LN2), b = moth_abs_f32(x);
  return moth_signed_f32(b < 1e-3f ? b - b * b * b * 0.16666667f : y, x);
}

MOTH_INLINE float moth_acosh_f32(float x) {
  double a = x;
  float y = moth_wide_log(a + sqrt(a * a - 1.0), 1, MOTH_LN2);
  return x >= 1 ? y : NAN;
}

MOTH_INLINE float moth_atanh_f32(float x) {
  double a = x;
  float y = 0.5f * moth_wide_log((1.0 + a) / (1.0 - a), 1, MOTH_LN2);
  return x < 1e-3f && x > -1e-3f ? x + x * x * x * 0.33333333f : y;
}

/* -- trigonometric functions -- */

/* x = n pi/2 + r, |r| up to pi/4, for |x| below 2^29. The parts of pi/2 have 24 bits each, so that
** products with n are exact. Above MOTH_WAVE_FAR the loops call C's functions. */
#define MOTH_WAVE_FAR 1e8f

MOTH_INLINE double moth_wide_turn(double x, uint64_t *n) {
  double whole = x * 0.63661977236758134308 + 6755399441055744.0;
  *n = moth_bits_f64(whole);
  whole -= 6755399441055744.0;
  double r = x - whole * 1.57079625129699707031;
  r -= whole * 7.54978941586159635335e-08;
  return r - whole * 5.39030252995776476554e-15;
}

MOTH_INLINE double moth_wide_sin(double r) {
  double z = r * r, p = -2.5052108385441718775e-08;
  p = p * z + 2.7557319223985890653e-06;
  p = p * z - 1.9841269841269841270e-04;
  p = p * z + 8.3333333333333333333e-03;
  p = p * z - 1.6666666666666666667e-01;
  return p * z * r + r;
}

MOTH_INLINE double moth_wide_cos(double r) {
  double z = r * r, p = 2.0876756987868098979e-09;
  p = p * z - 2.7557319223985890653e-07;
  p = p * z + 2.4801587301587301587e-05;
  p = p * z - 1.3888888888888888889e-03;
  p = p * z + 4.1666666666666666667e-02;
  p = p * z - 0.5;
  return p * z + 1.0;
}

/* sin(r + n pi/2). */
MOTH_INLINE double moth_wide_wave(double r, uint64_t n) {
  double s = moth_wide_sin(r), c = moth_wide_cos(r), y = n & 1 ? c : s;
  return moth_double_of(moth_bits_f64(y) ^ (n & 2) << 62);
}

/* sin(x) for half = 0, cos(x) for half = 1/2. x = n pi + r, where n + half is an integer and |r| is
** at most slightly above pi/2. The first part of pi has 27 bits, so that its products with n are
** exact. Relative error of the series: 3e-11. */
MOTH_INLINE float moth_wide_sine(double x, double half) {
  const double over = x * 0.31830988618379067154;
  const double whole = (half == 0.0 ? over : over + half) + MOTH_SHIFT_F64;
  const double n = (whole - MOTH_SHIFT_F64) - half;
  const double r = (x - n * 3.141592651605606) - n * 1.984187159361081e-09;
  const double s = moth_double_of(moth_bits_f64(r) ^ moth_bits_f64(whole) << 63), z = r * r;
  double p = -2.388891234024916e-08;
  p = p * z + 2.752538477660368e-06;
  p = p * z - 0.00019840868221527143;
  p = p * z + 0.008333331108739695;
  p = p * z - 0.1666666662615391;
  return (float)(s * (p * z + 1.0)); /* keeps -0 */
}

MOTH_INLINE float moth_sin_f32(float x) { return moth_wide_sine(x, 0.0); }
MOTH_INLINE float moth_cos_f32(float x) { return moth_wide_sine(x, 0.5); }

MOTH_INLINE float moth_tan_f32(float x) {
  uint64_t n;
  double r = moth_wide_turn(x, &n), s = moth_wide_sin(r), c = moth_wide_cos(r);
  double over = n & 1 ? -c : s, under = n & 1 ? s : c;
  float y = (float)(over / under);
  return x == 0 ? x : y;
}

/* sin(pi x) / (pi x). The reduction of pi x is exact; from 2^24 on the result is 0. */
MOTH_INLINE float moth_sinc_f32(float x) {
  double t = x < 16777216.0f && x > -16777216.0f ? 2.0 * x : 0.0;
  double whole = t + 6755399441055744.0;
  uint64_t n = moth_bits_f64(whole);
  double r = (t - (whole - 6755399441055744.0)) * 1.57079632679489661923;
  float y = (float)(moth_wide_wave(r, n) / (3.14159265358979323846 * x));
  y = x == 0 ? 1 : y;
  return x - x == 0 ? y : x != x ? x : 0;
}

/* -- inverse trigonometric functions -- */

/* atan(s) for s from 0 to 1, in f32: 1 unit in the last place, exact at both ends. */
MOTH_INLINE float moth_arc_f32(float s) {
  float z = s * s, p = -0.0017935439245775342f;
  p = p * z + 0.010914256796240807f;
  p = p * z - 0.03117719292640686f;
  p = p * z + 0.057956937700510025f;
  p = p * z - 0.08403412252664566f;
  p = p * z + 0.10952172428369522f;
  p = p * z - 0.14264239370822906f;
  p = p * z + 0.19998547434806824f;
  p = p * z - 0.33333298563957214f;
  float y = s + s * (z * p);
  return s == 1 ? 0.785398163397448310f : y;
}
#define MOTH_PI_2_F32 1.57079637050628662f
#define MOTH_PI_2_LOW_F32 -4.37113900018624283e-8f /* pi / 2 minus its f32 */

MOTH_INLINE float moth_atan_f32(float x) {
  float a = moth_abs_f32(x), over = 1.0f / a, t = moth_arc_f32(a > 1 ? over : a);
  float far = MOTH_PI_2_F32 + (MOTH_PI_2_LOW_F32 - t);
  return moth_signed_f32(a > 1 ? far : t, x);
}

/* asin(t) for t from 0 to 1/2; z = t^2. */
MOTH_INLINE double moth_wide_asin(double t, double z) {
  double p = 0.034951502053584889;
  p = p * z + 0.0072238738099431547;
  p = p * z + 0.024711527109146904;
  p = p * z + 0.030092211933458457;
  p = p * z + 0.044662035309955106;
  p = p * z + 0.074999382000379394;
  p = p * z + 0.16666667421651343;
  return p * z * t + t;
}

MOTH_INLINE float moth_asin_f32(float x) {
  double a = moth_abs_f32(x), z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
  double t = a > 0.5 ? sqrt(z) : a, y = moth_wide_asin(t, z);
  y = a > 0.5 ? 1.57079632679489661923 - 2.0 * y : y;
  return moth_signed_f32((float)y, x);
}

MOTH_INLINE float moth_acos_f32(float x) {
  double a = moth_abs_f32(x), z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
  double t = a > 0.5 ? sqrt(z) : a, y = moth_wide_asin(t, z);
  double far = x < 0 ? 3.14159265358979323846 - 2.0 * y : 2.0 * y;
  return (float)(a > 0.5 ? far : 1.57079632679489661923 - (x < 0 ? -y : y));
}

/* The arctangent of the smaller size over the larger one, moved to the quadrant. */
MOTH_INLINE float moth_atan2_f32(float y, float x) {
  float a = moth_abs_f32(y), b = moth_abs_f32(x);
  float high = a > b ? a : b, low = a > b ? b : a, r = low / high;
  r = a == b ? 1.0f : r; /* 1 for two infinities */
  r = high == 0 ? 0.0f : r;
  uint32_t minus = moth_bits_f32(x) & 0x80000000u;
  float t = moth_arc_f32(r);
  float from_y = MOTH_PI_2_F32 + (MOTH_PI_2_LOW_F32 + (minus ? t : -t));
  float from_x = minus ? 2 * MOTH_PI_2_F32 + (2 * MOTH_PI_2_LOW_F32 - t) : t;
  float f = moth_signed_f32(a > b ? from_y : from_x, y);
  return x != x ? x : y != y ? y : f;
}

MOTH_INLINE float moth_hypot_f32(float x, float y) {
  double p = x, q = y;
  float f = (float)sqrt(p * p + q * q);
  return x - x != 0 && x == x ? INFINITY : y - y != 0 && y == y ? INFINITY : f;
}

/* -- powers and tails -- */

MOTH_INLINE float moth_pow_f32(float x, float y) {
  float a = x < 0 ? -x : x;
  double e, l = moth_wide_log_parts(a, &e) * 1.4426950408889634074 + e;
  double t = moth_wide_bound(y * l);
  float f = (float)moth_wide_pow2(t);
  /* Finds which y are integers, and even: from 2^23 on all are integers, from 2^24 on all are
  ** even. */
  float size = moth_abs_f32(y), half = 0.5f * size;
  float near = (size + 8388608.0f) - 8388608.0f, near_half = (half + 8388608.0f) - 8388608.0f;
  near = size < 8388608.0f ? near : size;
  near_half = half < 8388608.0f ? near_half : half;
  uint32_t minus = moth_bits_f32(x) & 0x80000000u;
  uint32_t odd = (near_half == half ? 0u : 0x80000000u) & (near == size ? 0x80000000u : 0u);
  /* results for x = 0 and for infinite x */
  float zero = y < 0 ? INFINITY : 0.0f, far = y < 0 ? 0.0f : INFINITY;
  float beyond = a < 1 ? zero : far; /* the result for infinite y */
  f = a == 0 ? zero : f;
  f = a == INFINITY ? far : f;
  f = size == INFINITY ? beyond : f;
  f = (size == INFINITY ? a : 0.0f) == 1 ? 1.0f : f;
  f = moth_float_of(moth_bits_f32(f) ^ (minus & odd));
  float broken = near == size ? f : NAN; /* the result for x < 0 */
  broken = a < INFINITY ? broken : f;
  f = x < 0 ? broken : f;
  f = x != x ? x : f;
  f = y != y ? y : f;
  f = y == 0 ? 1.0f : f;
  return x == 1 ? 1.0f : f;
}

/* exp(-a^2) times a polynomial in 1 / (1 + 0.4 a), relative error 2e-9. Above 10.2 the result is
** 0. */
MOTH_INLINE float moth_erfc_f32(float x) {
  double a = moth_abs_f32(x);
  a = a > 10.4 ? 10.4 : a;
  double t = 1.0 / (1.0 + 0.4 * a), p = -0.037903630880168043;
  p = p * t + 0.24578966390007079;
  p = p * t - 0.61911201567084029;
  p = p * t + 0.72180053915706033;
  p = p * t - 0.44516986297161154;
  p = p * t + 0.37048301443992904;
  p = p * t + 0.089261987094436668;
  p = p * t + 0.22590197778200502;
  p = p * t + 0.2230639837332466;
  p = p * t + 0.22589223348849696;
  p = p * t - 7.8879798669495571e-06;
  double y = p * moth_wide_pow2(-1.4426950408889634074 * a * a);
  return (float)(x < 0 ? 2.0 - y : y);
}

#endif
