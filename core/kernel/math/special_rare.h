/* special_rare.h -- rarer functions in f64, for the CPU's loops and the GPU's kernels, like
** special_real.h: tails of the normal distribution, modified Bessel functions, Hurwitz zeta,
** incomplete gamma functions.
**
** Power series where they are short and accurate; elsewhere asymptotic series and continued
** fractions (Abramowitz and Stegun 6.5, 7.1, 9.6, 9.7).
*/
#ifndef MOTH_KERNEL_SPECIAL_RARE_H
#define MOTH_KERNEL_SPECIAL_RARE_H

#include "special_real.h"

#define SPECIAL_ROOT_HALF 0.70710678118654752440
#define SPECIAL_LOG_ROOT_2PI 0.91893853320467274178
#define SPECIAL_GAMMA_LARGE 1e4

/* -- tails of the normal distribution -- */

/* exp(x^2) erfc(x). */
MOTH_SPECIAL double moth_erfcx_f64(double x) {
  if (x < 12) {
    const double square = x * x, rest = fma(x, x, -square);
    return exp(square) * (1 + (isinf(square) ? 0 : rest)) * erfc(x);
  }
  const double t = 0.5 / x / x;
  double term = 1, sum = 1;
  for (int k = 1; k <= 10; k++) sum += term *= (1 - 2 * k) * t;
  return sum / x * 0.56418958354775628695; /* 1 / sqrt(pi) */
}

/* The logarithm of the normal distribution function. */
MOTH_SPECIAL double moth_log_ndtr_f64(double x) {
  if (x > -1) return log1p(-0.5 * erfc(x * SPECIAL_ROOT_HALF));
  return log(0.5 * moth_erfcx_f64(-x * SPECIAL_ROOT_HALF)) - 0.5 * x * x;
}

/* The quantile p of the normal distribution. For very small p, Newton's steps on the logarithm,
** which is concave. */
MOTH_SPECIAL double moth_ndtri_f64(double p) {
  if (p == 0 || p == 1) return p == 0 ? -(double)INFINITY : (double)INFINITY;
  if (!(p > 0 && p < 1)) return (double)NAN;
  if (p > 0.5) return -moth_ndtri_f64(1 - p);
  if (p > 0.02) return 2 * SPECIAL_ROOT_HALF * moth_erfinv_single(2 * p - 1);
  const double wanted = log(p);
  double x = -sqrt(-2 * wanted);
  for (int k = 0; k < 6; k++) {
    const double derivative = 0.79788456080286535588 / moth_erfcx_f64(-x * SPECIAL_ROOT_HALF);
    x -= (moth_log_ndtr_f64(x) - wanted) / derivative;
  }
  return x;
}

/* -- modified Bessel functions of the first kind, of order n: 0 or 1 -- */

/* exp(-|x|) I_n(x). */
MOTH_SPECIAL double moth_bessel_scaled(int n, double x) {
  const double size = fabs(x), sign = n == 1 && x < 0 ? -1 : 1;
  double term = 1, sum = 1;
  if (isinf(x)) return 0;
  if (size <= 20) {
    const double square = 0.25 * x * x;
    for (int k = 1; term > 1e-17 * sum; k++) sum += term *= square / (k * (double)(k + n));
    return exp(-size) * sum * (n == 1 ? 0.5 * x : 1);
  }
  for (int k = 1; k <= 30; k++)
    sum += term *= ((2 * k - 1) * (2 * k - 1) - 4 * n) / (8 * size * k);
  return sign * sum * 0.39894228040143267794 / sqrt(size); /* 1 / sqrt(2 pi) */
}

MOTH_SPECIAL double moth_i0e_f64(double x) { return moth_bessel_scaled(0, x); }
MOTH_SPECIAL double moth_i1e_f64(double x) { return moth_bessel_scaled(1, x); }
MOTH_SPECIAL double moth_i0_f64(double x) {
  const double half = exp(0.5 * fabs(x));
  return isinf(x) ? (double)INFINITY : half * moth_bessel_scaled(0, x) * half;
}
MOTH_SPECIAL double moth_i1_f64(double x) {
  const double half = exp(0.5 * fabs(x));
  return isinf(x) ? x : half * moth_bessel_scaled(1, x) * half;
}

/* -- Hurwitz zeta: the sum of (q + k)^-s -- */

MOTH_SPECIAL double moth_zeta_f64(double s, double q) {
  if (s == 1) return (double)INFINITY;
  if (!(s > 1) || q != q) return (double)NAN;
  if (q > 0) return isinf(q) || isinf(s) ? pow(q, -s) : moth_zeta_above(s, q);
  const double part = q - floor(q); /* terms on both sides of 0; no term is 0 */
  if (part == 0) return (double)INFINITY;
  if (s != floor(s) || isinf(q)) return (double)NAN;
  const double below = moth_zeta_above(s, 1 - part) - moth_zeta_above(s, 1 - q);
  return moth_zeta_above(s, part) + (fmod(s, 2.0) == 0 ? below : -below);
}

/* -- incomplete gamma functions -- */

/* log(*product Gamma(x)) for x > 0; Stirling's series for x >= 10. */
MOTH_SPECIAL double moth_log_gamma_above(double x, double *product) {
  double steps = 1;
  for (; x < 10; x += 1) steps *= x;
  *product = steps;
  const double r = 1 / (x * x);
  return (x - 0.5) * log(x) - x + SPECIAL_LOG_ROOT_2PI +
         (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r / 1188)))) / x;
}

/* lgamma(1 + a) for 0 <= a <= 0.1, accurate for small a: a power series with coefficients from
** zeta(k) - 1. */
MOTH_SPECIAL double moth_log_gamma_near(double a) {
  const double by[] = {6.44934066848226436e-1, 2.02056903159594285e-1, 8.23232337111381915e-2,
                       3.69277551433699263e-2, 1.73430619844491397e-2, 8.34927738192282684e-3,
                       4.07735619794433938e-3, 2.00839282608221442e-3, 9.94575127818085337e-4,
                       4.94188604119464559e-4};
  double sum = 0;
  for (int k = 11; k >= 2; k--) sum = by[k - 2] / k - a * sum;
  return a * (0.42278433509846713939 + a * sum) - log1p(a); /* 1 - Euler's constant */
}

/* m - log(1 + m), accurate near 0. */
MOTH_SPECIAL double moth_log_difference(double m) {
  if (!(fabs(m) < 0.5)) return m - log1p(m);
  const double r = m / (2 + m), square = r * r; /* log(1 + m) = 2 atanh(r) */
  double sum = 0;
  for (int k = 35; k >= 3; k -= 2) sum = 1.0 / k + square * sum;
  return m * r - 2 * r * square * sum;
}

/* x^a exp(-x) / Gamma(a + 1). */
MOTH_SPECIAL double moth_gamma_term(double a, double x) {
  if (a < 20) {
    double product;
    const double log_gamma = moth_log_gamma_above(a + 1, &product);
    return exp(a * log(x) - x - log_gamma) * product;
  }
  const double off = (x - a) / a, r = 1 / (a * a);
  const double rest = (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r / 1680))) / a;
  const double lag = x < 0.5 * a ? off - log(x / a) : moth_log_difference(off);
  return exp(-a * lag - rest) / sqrt(2 * SPECIAL_PI * a);
}

/* Both parts for a >= SPECIAL_GAMMA_LARGE, by an expansion that is uniform in x (Temme 1979), with
** h h / 2 = x / a - 1 - log(x / a). For |h| > 0.4 one part is 0. */
MOTH_SPECIAL void moth_gamma_parts_large(double a, double x, double *low, double *high) {
  const double by[4][14] = {
      {-1.0 / 3, 1.0 / 12, -2.0 / 135, 1.0 / 864, 1.0 / 2835, -1.787551440329218e-4,
       3.919263178522438e-5, -2.185448510679992e-6, -1.85406221071516e-6, 8.296711340953087e-7,
       -1.7665952736826078e-7, 6.707853543401498e-9, 1.0261809784240309e-8,
       -4.382036018453353e-9},
      {-1.0 / 540, -1.0 / 288, 1.0 / 378, -77.0 / 77760, 1.0 / 4860, -4.018775720164609e-7,
       -1.8098550334489977e-5, 7.64916091608111e-6, -1.6120900894563446e-6},
      {25.0 / 6048, -139.0 / 51840, 1.0 / 1296, 1.0 / 497664, -1.073665322636516e-4},
      {101.0 / 155520, 571.0 / 2488320}};
  const double off = (x - a) / a, lag = moth_log_difference(off);
  *low = x > a, *high = x < a;
  if (a * lag > 750) return;
  const double h = off < 0 ? -sqrt(2 * lag) : sqrt(2 * lag);
  double sum = 0;
  for (int k = 3; k >= 0; k--) {
    double c = 0;
    for (int i = 13; i >= 0; i--) c = by[k][i] + h * c;
    sum = c + sum / a;
  }
  const double more = exp(-a * lag) / sqrt(2 * SPECIAL_PI * a) * sum, z = sqrt(a * lag);
  *low = 0.5 * erfc(off < 0 ? z : -z) - more;
  *high = 0.5 * erfc(off < 0 ? -z : z) + more;
}

/* The part above x, for a <= 0.1 and x <= 1 + a. It is not a difference from 1, which would lose
** digits. */
MOTH_SPECIAL double moth_gamma_beyond(double a, double x) {
  const double power = expm1(a * log(x) - moth_log_gamma_near(a)); /* x^a / Gamma(1 + a) - 1 */
  double term = 1, sum = 0;
  for (int k = 1; k <= 20; k++) {
    term *= -x / k;
    sum += term / (a + k);
  }
  return -power - (1 + power) * a * sum;
}

/* *low := the incomplete gamma function P(a, x), *high := 1 - P(a, x). The series and the continued
** fraction end at a relative change of `least`. */
MOTH_SPECIAL void moth_gamma_parts(double a, double x, double least, double *low, double *high) {
  *low = *high = (double)NAN;
  if (!(a >= 0 && x >= 0) || (a == 0 && x == 0) || (isinf(a) && isinf(x))) return;
  if (x == 0 || isinf(a)) *low = 0, *high = 1;
  else if (a == 0 || isinf(x)) *low = 1, *high = 0;
  else if (a >= SPECIAL_GAMMA_LARGE) moth_gamma_parts_large(a, x, low, high);
  else if (x <= a + 1) {
    double term = 1, sum = 1;
    for (int k = 1; term > 0.1 * least * sum; k++) sum += term *= x / (a + k);
    *low = moth_gamma_term(a, x) * sum;
    *low = *low > 1 ? 1 : *low;
    *high = a <= 0.1 ? moth_gamma_beyond(a, x) : 1 - *low;
  } else { /* the convergents p / q of the continued fraction; their differences are d / (q q) */
    double b = x + 1 - a, p = 1, q = b, d = 1, last_p = 0, last_q = 1;
    for (int k = 1; k < 10000 && d > least * fabs(p * last_q); k++) {
      const double an = k * (a - k);
      b += 2;
      const double next_p = b * p + an * last_p, next_q = b * q + an * last_q;
      const double by = fabs(next_q) > 1e100 ? 1e-100 : 1;
      last_p = p * by, last_q = q * by, p = next_p * by, q = next_q * by;
      d *= fabs(an) * by * by;
    }
    const double h = p / q;
    *high = moth_gamma_term(a, x) * a * h;
    *low = 1 - *high;
  }
}

MOTH_SPECIAL double moth_igamma_f64(double a, double x) {
  double low, high;
  moth_gamma_parts(a, x, 1e-16, &low, &high);
  return low;
}
MOTH_SPECIAL double moth_igammac_f64(double a, double x) {
  double low, high;
  moth_gamma_parts(a, x, 1e-16, &low, &high);
  return high;
}

/* -- the derivative of a gamma-distributed number with respect to its shape a --
**
** A sample x moves so that P(a, x) stays constant: dx/da = -(dP/da) / (dP/dx), after Figurnov,
** Mohamed and Mnih, "Implicit reparameterization gradients" (2018). */

/* For large a, from the expansion of Cornish and Fisher, x = a + z sqrt(a) + ... for a normal z. */
MOTH_SPECIAL double moth_gamma_derivative_large(double a, double x) {
  const double root = sqrt(a);
  double z = (x - a) / root;
  for (int k = 0; k < 4; k++) {
    const double z2 = z * z;
    const double off = a + root * z + (z2 - 1) / 3 + z * (z2 - 7) / (36 * root) -
                       (3 * z2 * z2 + 7 * z2 - 16) / (810 * a) - x;
    z -= off / (root + 2 * z / 3 + (3 * z2 - 7) / (36 * root));
  }
  const double z2 = z * z;
  return 1 + z / (2 * root) - z * (z2 - 7) / (72 * a * root) +
         (3 * z2 * z2 + 7 * z2 - 16) / (810 * a * a);
}

MOTH_SPECIAL double moth_gamma_slope_f64(double a, double x) {
  if (!(a > 0 && x > 0) || isinf(a) || isinf(x)) return x == 0 && a > 0 ? 0 : (double)NAN;
  if (a > 1000) return moth_gamma_derivative_large(a, x);
  const double log_x = log(x);
  if (x > a && moth_gamma_term(a, x) * a < 1e-7) { /* the tail: (1 - P) / (dP/dx) as a series */
    double term = 1, sum = 1, derivative = 0, derivatives = 0;
    for (int k = 1; k < 10000 && fabs(term) > 1e-17 && fabs(a - k) < x; k++) {
      derivative = (derivative * (a - k) + term) / x;
      term *= (a - k) / x;
      sum += term;
      derivatives += derivative;
    }
    return sum * (log_x - moth_digamma_f64(a)) + derivatives;
  }
  double term = 1 / a, at = a + 1, psi = moth_digamma_f64(a + 1), sum = 0, most = 0;
  for (; term > 1e-18 * most; at += 1) { /* P's series, each term differentiated by a */
    sum += term * (log_x - psi);
    most = term > most ? term : most;
    psi += 1 / at;
    term *= x / at;
  }
  return -x * sum;
}

#endif
