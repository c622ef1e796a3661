/* inverse_f64.h -- more functions like those of exp_f64.h: inverse trigonometric and hyperbolic
** functions, and powers, in f64.
**
** Errors, measured at random points, in units in the last place: asin, acos, asinh, hypot, exp2 and
** pow 1.5, atan and atan2 2.5, acosh 3, atanh 3.5. Methods and coefficients: fdlibm (Sun
** Microsystems); the series of pow's logarithm interpolates at Chebyshev points.
*/
#ifndef MOTH_KERNEL_INVERSE_F64_H
#define MOTH_KERNEL_INVERSE_F64_H

#include "exp_f64.h"

#define MOTH_PI_2_LOW 6.12323399573676603587e-17 /* pi/2 minus its f64 */

/* -- inverse trigonometric functions -- */

/* atan(a) for a >= 0, reduced to the arctangent of at most sqrt(2) - 1. */
MOTH_INLINE double moth_arc_f64(double a) {
  const double over = a > 2.41421356237309504880 ? -1.0 : a > 0.41421356237309504880 ? a - 1.0 : a;
  const double under = a > 2.41421356237309504880 ? a : a > 0.41421356237309504880 ? a + 1.0 : 1.0;
  const double eighths = a > 2.41421356237309504880 ? 2.0 : a > 0.41421356237309504880 ? 1.0 : 0.0;
  const double t = over / under, z = t * t;
  double p = 1.62858201153657823623e-02;
  p = p * z - 3.65315727442169155270e-02;
  p = p * z + 4.97687799461593236017e-02;
  p = p * z - 5.83357013379057348645e-02;
  p = p * z + 6.66107313738753120669e-02;
  p = p * z - 7.69187620504482999495e-02;
  p = p * z + 9.09088713343650656196e-02;
  p = p * z - 1.11111104054623557880e-01;
  p = p * z + 1.42857142725034663711e-01;
  p = p * z - 1.99999999998764832476e-01;
  p = p * z + 3.33333333333329318027e-01;
  return eighths * 0.78539816339744830962 - ((t * (z * p) - eighths * 0.5 * MOTH_PI_2_LOW) - t);
}

MOTH_INLINE double moth_atan_f64(double x) {
  return moth_signed_f64(moth_arc_f64(moth_abs_f64(x)), x);
}

MOTH_INLINE double moth_atan2_f64(double y, double x) {
  const double a = moth_abs_f64(y), b = moth_abs_f64(x), r = a / b;
  double t = moth_arc_f64(a == b ? 1.0 : r); /* 1 for two infinities */
  t = a == 0 ? 0.0 : t;
  t = moth_bits_f64(x) >> 63 ? 3.14159265358979323846 - (t - 2.0 * MOTH_PI_2_LOW) : t;
  t = moth_signed_f64(t, y);
  return x != x ? x : y != y ? y : t;
}

/* (asin(t) - t) / t for z = t^2 up to 1/4. */
MOTH_INLINE double moth_asin_rest_f64(double z) {
  double p = 3.47933107596021167570e-05;
  p = p * z + 7.91534994289814532176e-04;
  p = p * z - 4.00555345006794114027e-02;
  p = p * z + 2.01212532134862925881e-01;
  p = p * z - 3.25565818622400915405e-01;
  p = p * z + 1.66666666666666657415e-01;
  double q = 7.70381505559019352791e-02;
  q = q * z - 6.88283971605453293030e-01;
  q = q * z + 2.02094576023350569471e+00;
  q = q * z - 2.40339491173441421878e+00;
  return p * z / (q * z + 1.0);
}

/* The error of the upper half `high` of the root t of z. */
MOTH_INLINE double moth_root_rest_f64(double z, double t, double high) {
  return (z - high * high) / (t + high + 1e-300); /* 0 / 0 must be 0 */
}

MOTH_INLINE double moth_asin_f64(double x) {
  const double a = moth_abs_f64(x), z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
  const double t = a > 0.5 ? sqrt(z) : a, rest = moth_asin_rest_f64(z), near = t + t * rest;
  const double high = moth_high_f64(t), low = moth_root_rest_f64(z, t, high);
  const double less = 2.0 * t * rest - (MOTH_PI_2_LOW - 2.0 * low);
  const double far = 0.78539816339744830962 - (less - (0.78539816339744830962 - 2.0 * high));
  return moth_signed_f64(a > 0.5 ? far : near, x);
}

MOTH_INLINE double moth_acos_f64(double x) {
  const double a = moth_abs_f64(x), z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
  const double t = a > 0.5 ? sqrt(z) : a, rest = moth_asin_rest_f64(z);
  const double high = moth_high_f64(t), low = moth_root_rest_f64(z, t, high);
  const double near = 1.57079632679489661923 - (x - (MOTH_PI_2_LOW - x * rest));
  const double above = 2.0 * (high + (rest * t + low));
  const double below = 3.14159265358979323846 - 2.0 * (t + (rest * t - MOTH_PI_2_LOW));
  const double far = x < 0 ? below : above;
  return a > 0.5 ? far : near;
}

/* -- inverse hyperbolic functions: log(2 x) where x^2 would overflow -- */

#define MOTH_LARGE_F64 1e150

MOTH_INLINE double moth_asinh_f64(double x) {
  const double a = moth_abs_f64(x), s = a > MOTH_LARGE_F64 ? 1.0 : a, z = s * s;
  const double near = s + z / (1.0 + sqrt(z + 1.0));
  const double y = moth_log1p_f64(a > MOTH_LARGE_F64 ? a : near);
  return moth_signed_f64(a > MOTH_LARGE_F64 ? y + MOTH_LN2 : y, x);
}

MOTH_INLINE double moth_acosh_f64(double x) {
  const double a = x - 1.0, s = a > MOTH_LARGE_F64 ? 1.0 : a, near = s + sqrt(s * (s + 2.0));
  const double y = moth_log1p_f64(a > MOTH_LARGE_F64 ? x : near);
  const double z = a > MOTH_LARGE_F64 ? y + MOTH_LN2 : y;
  return x >= 1.0 ? z : NAN;
}

MOTH_INLINE double moth_atanh_f64(double x) {
  const double a = moth_abs_f64(x), twice = a + a, q = twice / (1.0 - a);
  return moth_signed_f64(0.5 * moth_log1p_f64(a < 0.5 ? twice + a * q : q), x);
}

/* -- powers -- */

/* Scales both numbers by a power of two first, so that the larger one is about 1. */
MOTH_INLINE double moth_hypot_f64(double x, double y) {
  const double a = moth_abs_f64(x), b = moth_abs_f64(y), most = a > b ? a : b;
  const double low = most < 0x1p-1020 ? 0x1p-1020 : most, near = low > 0x1p1020 ? 0x1p1020 : low;
  const uint64_t power = moth_bits_f64(near) & 0x7ff0000000000000u;
  const double down = moth_double_of(0x7fe0000000000000u - power), up = moth_double_of(power);
  const double p = x * down, q = y * down, r = sqrt(p * p + q * q) * up;
  return a == INFINITY || b == INFINITY ? INFINITY : r;
}

/* log2(x) for positive x as a sum: returns the upper half of the bits; the rest is *low. */
MOTH_INLINE double moth_log2_parts_f64(double x, double *low) {
  double e;
  const double m = moth_mantissa_f64(x, &e), f = m - 1.0, per = 1.0 / (m + 1.0), s = f * per;
  const double s_high = moth_high_f64(s), sum = moth_high_f64(m + 1.0), sum_low = m - (sum - 1.0);
  const double s_low = per * ((f - s_high * sum) - s_high * sum_low);
  const double z = s * s, z_high = s_high * s_high;
  double p = 0.19371031997466487;
  p = p * z + 0.1992888719360836;
  p = p * z + 0.2307836366651236;
  p = p * z + 0.27272712351135386;
  p = p * z + 0.33333333406776977;
  p = p * z + 0.42857142857007485;
  p = p * z + 0.6000000000000004;
  const double rest = p * (z * z) + s_low * (s_high + s);
  const double t = moth_high_f64(3.0 + z_high + rest), t_low = rest - ((t - 3.0) - z_high);
  const double u = s_high * t, v = s_low * t + t_low * s; /* 3/2 log(m) */
  const double w = moth_high_f64(u + v), w_low = v - (w - u);
  const double y = 0.9617962837219238 * w; /* times 2 / (3 log(2)), in two parts */
  const double y_low = 4.102040517767816e-07 * w + 0.9617966939259756 * w_low;
  const double high = moth_high_f64((y + y_low) + e);
  *low = y_low - ((high - e) - y);
  return high;
}

/* 2^(t + less); t is within bounds, and `less` is small. */
MOTH_INLINE double moth_exp2_sum_f64(double t, double less) {
  const double shift = MOTH_SHIFT_F64 + 2046.0, whole = t + shift, r = t - (whole - shift);
  return moth_exp_join_f64(moth_exp_series_f64(r * MOTH_LN2 + less * MOTH_LN2),
                           moth_bits_f64(whole));
}

MOTH_INLINE double moth_exp2_f64(double x) {
  const double low = x < -1080.0 ? -1080.0 : x;
  return moth_exp2_sum_f64(low > 1025.0 ? 1025.0 : low, 0.0);
}

/* a^y for positive finite a. */
MOTH_INLINE double moth_power_f64(double a, double y) {
  const double least = y < -0x1p65 ? -0x1p65 : y, by = least > 0x1p65 ? 0x1p65 : least;
  double log_low;
  const double log_high = moth_log2_parts_f64(a, &log_low), high = moth_high_f64(by);
  const double t = high * log_high, less = (by - high) * log_high + by * log_low;
  const double low = t < -1080.0 ? -1080.0 : t, near = low > 1025.0 ? 1025.0 : low;
  return moth_exp2_sum_f64(near, near == t ? less : 0.0);
}

MOTH_INLINE double moth_pow_f64(double x, double y) {
  const double a = moth_abs_f64(x), size = moth_abs_f64(y), half = 0.5 * size;
  /* Finds which y are integers, and even: from 2^52 on all are integers, from 2^53 on all are
  ** even. */
  double near = (size + 0x1p52) - 0x1p52, near_half = (half + 0x1p52) - 0x1p52;
  near = size < 0x1p52 ? near : size;
  near_half = half < 0x1p52 ? near_half : half;
  const uint64_t minus = moth_bits_f64(x) & 1ull << 63;
  const uint64_t odd = (near_half == half ? 0u : 1ull << 63) & (near == size ? 1ull << 63 : 0u);
  /* results for x = 0 and for infinite x */
  const double zero = y < 0 ? INFINITY : 0.0, far = y < 0 ? 0.0 : INFINITY;
  const double beyond = a < 1 ? zero : far; /* the result for infinite y */
  double f = moth_power_f64(a, y);
  f = a == 0 ? zero : f;
  f = a == INFINITY ? far : f;
  f = size == INFINITY ? beyond : f;
  f = (size == INFINITY ? a : 0.0) == 1 ? 1.0 : f;
  f = moth_double_of(moth_bits_f64(f) ^ (minus & odd));
  double broken = near == size ? f : NAN; /* the result for x < 0 */
  broken = a < INFINITY ? broken : f;
  f = x < 0 ? broken : f;
  f = x != x ? x : f;
  f = y != y ? y : f;
  f = y == 0 ? 1.0 : f;
  return x == 1 ? 1.0 : f;
}

#endif
