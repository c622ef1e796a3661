/* tail_loops.h -- f32 functions without branches, so that compilers vectorize loops over them:
** erfcx, the logarithm of the normal distribution function and its quantile, their first
** derivatives, and the derivative of sin(pi x) / (pi x). Computed in f64 and rounded once;
** special_rare.h and special_derivatives.h have those of f64.
*/
#ifndef MOTH_KERNEL_TAIL_LOOPS_H
#define MOTH_KERNEL_TAIL_LOOPS_H

#include "functions.h"
#include "special_rare.h"
#include "special_derivatives.h"

#define MOTH_ROOT_PER_PI 0.56418958354775628695 /* 1 / sqrt(pi) */

/* exp(a^2) erfc(a) for a >= 0; above 50 by the asymptotic series. */
MOTH_INLINE double moth_erfcx_above(double a) {
  const double b = a > 50.0 ? 50.0 : a, c = a < 1.0 ? a : 1.0, per = 1.0 / a, s = per * per;
  const double near = moth_exp_f64(c * c) * moth_erfc_near_f64(c);
  const double beyond = per * MOTH_ROOT_PER_PI * (1.0 - s * (0.5 - s * 0.75));
  return a < 1.0 ? near : a < 50.0 ? moth_erfcx_far_f64(b) : beyond;
}

/* The same for any x; infinite far below 0. */
MOTH_INLINE double moth_erfcx_wide(double x) {
  const double y = moth_erfcx_above(moth_abs_f64(x)), low = x < 0 ? x : 0.0;
  return x < 0 ? 2.0 * moth_exp_f64(low * low) - y : y;
}

MOTH_INLINE float moth_erfcx_f32(float x) { return (float)moth_erfcx_wide(x); }

/* 2 x erfcx(x) - 2 / sqrt(pi). For large x this is a difference of nearly equal numbers, and a
** series replaces it. */
MOTH_INLINE float moth_erfcx_first_f32(float x) {
  const double a = x, per = 1.0 / a, s = per * per;
  const double near = 2.0 * a * moth_erfcx_wide(a) - 2.0 * MOTH_ROOT_PER_PI;
  return (float)(x > 50.0f ? -MOTH_ROOT_PER_PI * s * (1.0 - s * (1.5 - s * 3.75)) : near);
}

/* q is the tail above |x|. For x > 0 log(1 - q); below 0 log(q), without computing exp(-x^2 /
** 2). */
MOTH_INLINE float moth_log_ndtr_f32(float x) {
  const double a = x, half = 0.5 * moth_erfcx_above(moth_abs_f64(a) * SPECIAL_ROOT_HALF);
  const double square = 0.5 * a * a, q = half * moth_exp_f64(-square), u = 1.0 - q;
  const double y = moth_log_f64(x > 0 ? u : half), lost = ((1.0 - u) - q) / u;
  return (float)(x > 0 ? y + lost : y - square);
}

MOTH_INLINE float moth_log_ndtr_first_f32(float x) { /* sqrt(2 / pi) / erfcx(-x / sqrt(2)) */
  return (float)(0.79788456080286535588 / moth_erfcx_wide(-(double)x * SPECIAL_ROOT_HALF));
}

/* Wichura's quotients, like moth_erfinv_f64. The tail, p or 1 - p, is exact in f64. */
MOTH_INLINE float moth_ndtri_f32(float x) {
  const double p = x, tail = p < 0.5 ? p : 1.0 - p, middle = 0.5 - tail;
  const double a = 0.180625 - middle * middle;
  double e;
  const double l = moth_wide_log_parts(tail, &e), minus = -(l + e * MOTH_LN2);
  const double root = sqrt(minus < 0 ? 0.0 : minus), b = root - 1.6, c = root - 5.0;
  const double over_a = middle * MOTH_QUANTILE_NEAR_OVER(a), under_a = MOTH_QUANTILE_NEAR_UNDER(a);
  const double over_b = MOTH_QUANTILE_OVER(b), under_b = MOTH_QUANTILE_UNDER(b);
  const double over_c = MOTH_QUANTILE_FAR_OVER(c), under_c = MOTH_QUANTILE_FAR_UNDER(c);
  const double over = middle <= 0.425 ? over_a : root <= 5.0 ? over_b : over_c;
  const double under = middle <= 0.425 ? under_a : root <= 5.0 ? under_b : under_c;
  double y = over / under;
  y = tail > 0 ? y : tail == 0 ? INFINITY : NAN; /* NaN for NaN, too */
  return (float)(p < 0.5 ? -y : y);
}

/* The derivative of sin(u) / u with respect to x, for u = pi x with an exact reduction: (cos(u) -
** sin(u) / u) / x, or powers near 0. From 2^24 on, the derivative at a multiple of pi. */
MOTH_INLINE float moth_sinc_first_f32(float x) {
  const double pi = 3.14159265358979323846, t = x < 0x1p24f && x > -0x1p24f ? 2.0 * x : 0.0;
  const double whole = t + MOTH_SHIFT_F64, r = (t - (whole - MOTH_SHIFT_F64)) * (0.5 * pi);
  const uint64_t n = moth_bits_f64(whole);
  const double u = pi * x, z = u * u;
  const double far = (moth_wide_wave(r, n + 1) - moth_wide_wave(r, n) / u) / x;
  double p = -1.0 / 3991680;
  p = p * z + 1.0 / 45360;
  p = p * z - 1.0 / 840;
  p = p * z + 1.0 / 30;
  p = p * z - 1.0 / 3;
  return (float)(x < 0.16f && x > -0.16f ? pi * u * p : far);
}

static double moth_erfcx_first_f64(double x) { return moth_erfcx_slope_f64(1, x); }
static double moth_log_ndtr_first_f64(double x) { return moth_log_ndtr_slope_f64(1, x); }
static double moth_sinc_first_f64(double x) { return moth_sinc_slope_f64(1, 1, x); }

#endif
