/* special_loops.h -- erfinv, digamma, trigamma and lgamma without branches and without the C
** library, so that compilers vectorize loops over them: erfinv in f32 and f64, the others in f32.
**
** Errors, in units in the last place: f32 0.53, except lgamma near its negative roots, with an
** error of 1e-8; erfinv in f64 5. f32 formulas are computed in f64 (functions.h) and interpolate at
** Chebyshev points.
*/
#ifndef MOTH_KERNEL_SPECIAL_LOOPS_H
#define MOTH_KERNEL_SPECIAL_LOOPS_H

#include "functions.h"
#include "special_real.h"

/* erfinv(x) / x is a smooth function of w = -log(1 - x^2) for w up to 5, and of sqrt(w) above
** (Giles, Approximating the erfinv function, 2010). */
MOTH_INLINE float moth_erfinv_f32(float x) {
  const double size = moth_abs_f32(x), most = size < 1.0 ? size : 0.0;
  double e;
  const double l = moth_wide_log_parts((1.0 - most) * (1.0 + most), &e);
  const double w = -(l + e * MOTH_LN2), t = w - 2.5;
  double p = 1.2346577114502573e-10;
  p = p * t + 4.3406268038539929e-10;
  p = p * t - 1.0861761271594343e-08;
  p = p * t + 1.650364404121373e-08;
  p = p * t + 4.786897084558858e-07;
  p = p * t - 3.426266209734268e-06;
  p = p * t - 4.9960001101439555e-06;
  p = p * t + 0.0002182641252155226;
  p = p * t - 0.0012527079573557702;
  p = p * t - 0.0041773250804577627;
  p = p * t + 0.24664027674858424;
  p = p * t + 1.5014093517481764;
  const double r = sqrt(w < 0 ? 0.0 : w) - 3.1; /* near 0 rounding may make w negative */
  double q = -3.4456183690803279e-05;
  q = q * r + 0.00013381540520674572;
  q = q * r - 0.00013635278021368077;
  q = q * r - 0.00029234654412178616;
  q = q * r + 0.0013191543832188713;
  q = q * r - 0.0027183697531335508;
  q = q * r + 0.0041215767933037367;
  q = q * r - 0.0056959297976868345;
  q = q * r + 0.007460023324432878;
  q = q * r + 1.0033560929210746;
  q = q * r + 2.9332316737256058;
  const float y = (float)((w < 5.0 ? p : q) * x), far = size == 1.0 ? INFINITY : NAN;
  return size < 1.0 ? y : moth_signed_f32(far, x);
}

/* Wichura's quotients, like moth_erfinv_single. The code selects numerator and denominator, then
** divides once. */
MOTH_INLINE double moth_erfinv_f64(double x) {
  const double size = moth_abs_f64(x), most = size < 1.0 ? size : 0.0;
  const double half = 0.5 * most, a = 0.180625 - half * half;
  const double root = sqrt(-moth_log_f64((1.0 - most) * 0.5)), b = root - 1.6, c = root - 5.0;
  const double over_a = half * MOTH_QUANTILE_NEAR_OVER(a), under_a = MOTH_QUANTILE_NEAR_UNDER(a);
  const double over_b = MOTH_QUANTILE_OVER(b), under_b = MOTH_QUANTILE_UNDER(b);
  const double over_c = MOTH_QUANTILE_FAR_OVER(c), under_c = MOTH_QUANTILE_FAR_UNDER(c);
  const double over = half <= 0.425 ? over_a : root <= 5.0 ? over_b : over_c;
  const double under = half <= 0.425 ? under_a : root <= 5.0 ? under_b : under_c;
  const double y = over / under * 0.70710678118654752440, far = size == 1.0 ? INFINITY : NAN;
  return moth_signed_f64(size < 1.0 ? y : far, x);
}

/* For |x| < 10 the recurrence, ten steps in one quotient; then the asymptotic series. For x < 0
** reflection, with pi cot(pi x). All quotients share one division. */
MOTH_INLINE float moth_digamma_f32(float x) {
  const double v = x, p = v < 0.0 ? 1.0 - v : v;
  double over = 0.0, under = 1.0;
  for (int k = 0; k < 10; k++) {
    over = over * (p + k) + under;
    under *= p + k;
  }
  const double y = p < 10.0 ? p + 10.0 : p;
  over = p < 10.0 ? over : 0.0;
  under = p < 10.0 ? under : 1.0;
  const double whole = (v + 6755399441055744.0) - 6755399441055744.0, part = v - whole;
  const double size = moth_abs_f64(part);
  const double turn = 3.14159265358979323846 * (size > 0.25 ? 0.5 - size : size);
  const double s = moth_wide_sin(turn), c = moth_wide_cos(turn);
  const double side = size > 0.25 ? c : s, base = size > 0.25 ? s : c;
  const double sine = v < 0.0 ? side : 1.0;
  const double once = 1.0 / (under * y * sine), r = under * sine * once, z = r * r;
  double tail = 691.0 / 32760 - z / 12;
  tail = 1.0 / 132 - z * tail;
  tail = 1.0 / 240 - z * tail;
  tail = 1.0 / 252 - z * tail;
  tail = 1.0 / 120 - z * tail;
  tail = 1.0 / 12 - z * tail;
  const double turned = 3.14159265358979323846 * base * (under * y) * once;
  const double up = moth_log_f64(y) - (0.5 * r + z * tail) - over * (y * sine) * once;
  const double down = up - (part < 0.0 ? -turned : turned);
  float f = (float)(v < 0.0 ? down : up);
  f = v < 0.0 && part == 0.0 ? NAN : f;
  f = x - x == 0 ? f : x > 0 ? x : NAN; /* infinity and NaN */
  return x == 0 ? moth_signed_f32(INFINITY, -x) : f;
}

/* The derivative of digamma, like moth_trigamma_f64, with the recurrence up to 5. All quotients
** share one division. */
MOTH_INLINE float moth_trigamma_f32(float x) {
  const double v = x, p = v < 0.0 ? 1.0 - v : v;
  double over = 0.0, under = 1.0;
  for (int k = 0; k < 5; k++) {
    const double square = (p + k) * (p + k);
    over = over * square + under;
    under *= square;
  }
  const double y = p < 5.0 ? p + 5.0 : p;
  over = p < 5.0 ? over : 0.0;
  under = p < 5.0 ? under : 1.0;
  const double whole = (v + 6755399441055744.0) - 6755399441055744.0, part = v - whole;
  const double size = moth_abs_f64(part);
  const double turn = 3.14159265358979323846 * (size > 0.25 ? 0.5 - size : size);
  const double side = size > 0.25 ? moth_wide_cos(turn) : moth_wide_sin(turn);
  const double sine = v < 0.0 ? side * side : 1.0;
  const double once = 1.0 / (under * y * sine), r = under * sine * once, z = r * r;
  double tail = 691.0 / 2730 - z * (7.0 / 6);
  tail = 5.0 / 66 - z * tail;
  tail = 1.0 / 30 - z * tail;
  tail = 1.0 / 42 - z * tail;
  tail = 1.0 / 30 - z * tail;
  tail = z * (1.0 / 6 - z * tail);
  const double up = over * (y * sine) * once + (r + (0.5 * z + r * tail));
  const double down = 9.8696044010893586188 * (under * y) * once - up;
  float f = (float)(v < 0.0 ? down : up);
  f = v <= 0.0 && part == 0.0 ? INFINITY : f;
  return x - x == 0 ? f : x > 0 ? 0.0f : NAN; /* infinity and NaN */
}

/* From 1 to 3 a polynomial times the roots 1 and 2; below 1 lgamma(a + 1) - log(a); above 3
** Stirling's series. For x < 0 Euler's reflection. */
MOTH_INLINE float moth_lgamma_f32(float x) {
  const double a = moth_abs_f32(x), u = a < 1.0 ? a : a - 1.0, v = u - 1.0;
  double e, l = moth_wide_log_parts(a, &e);
  l += e * MOTH_LN2;
  double p = -9.059812984739259e-06;
  p = p * v + 1.9230823684436323e-05;
  p = p * v - 9.2799128160337385e-06;
  p = p * v + 2.0481894971659788e-05;
  p = p * v - 8.9252008752152613e-05;
  p = p * v + 0.00019553960620774956;
  p = p * v - 0.00040346119798873475;
  p = p * v + 0.00091063996041330944;
  p = p * v - 0.0021085141886259957;
  p = p * v + 0.0049994495117184712;
  p = p * v - 0.012384167946309749;
  p = p * v + 0.032964949496677486;
  p = p * v - 0.10031730192234673;
  p = p * v + 0.42278433562134901;
  const double near = u * v * p, per = 1.0 / a, z = per * per;
  double q = 0.00050453187173218948;
  q = q * z - 0.000567181404153005;
  q = q * z + 0.00079261127965673223;
  q = q * z - 0.0027777637763430776;
  q = q * z + 0.08333333330240195;
  const double far = (a - 0.5) * l - a + (0.91893853320467274178 + q * per);
  double y = a < 3.0 ? near : far;
  y = a < 1.0 ? near - l : y;
  y = a == 0 ? INFINITY : y;
  y = a < INFINITY ? y : a;
  /* pi / (a |sin(pi a)|); from 2^23 on all numbers are integers */
  const double turn = a < 8388608.0 ? 2.0 * a : 0.0, whole = turn + MOTH_SHIFT_F64;
  const double rest = (turn - (whole - MOTH_SHIFT_F64)) * 1.57079632679489661923;
  const double wave = moth_abs_f64(moth_wide_wave(rest, moth_bits_f64(whole)));
  const double s = moth_wide_log_parts(a * wave * 0.31830988618379067154, &e);
  const double back = wave == 0 ? INFINITY : -(s + e * MOTH_LN2) - y;
  return (float)(x < 0 ? back : y);
}

#endif
