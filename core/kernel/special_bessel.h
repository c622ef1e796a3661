/* special_bessel.h -- Bessel's functions of order 0 and 1, and Airy's, in f64, as special_rare.h.
**
** Sums of powers where those are short and lose little. Beyond, integrals over the path on which
** the integrand falls steepest: of numbers that fall like exp(-v^2 / 2), whose sum in steps of h is
** the integral up to exp(-2 pi d / h), d the distance from the path to where they are singular
** (Abramowitz and Stegun 9.6.23, 10.4.32; Trefethen and Weideman, "The exponentially convergent
** trapezoidal rule", 2014).
*/
#ifndef MOTH_KERNEL_SPECIAL_BESSEL_H
#define MOTH_KERNEL_SPECIAL_BESSEL_H

#include "special_real.h"

#define SPECIAL_EULER 0.57721566490153286061

/* The sums of powers for 0 < x < 2: J_n and Y_n if sign is -1, I_n and K_n if it is 1. */
MOTH_SPECIAL void moth_bessel_powers(int n, double sign, double x, double *first, double *second) {
  const double square = sign * 0.25 * x * x, half = 0.5 * x;
  const double log_half = log(x) - 0.69314718055994530942; /* half of the least number is 0 */
  double term = n ? half : 1, sum = term, psi = n - 2 * SPECIAL_EULER, sums = psi * term;
  for (int k = 1; k <= 18; k++) {
    term *= square / (k * (double)(k + n));
    psi += 1.0 / k + 1.0 / (k + n);
    sum += term;
    sums += psi * term;
  }
  *first = sum;
  if (sign < 0) *second = (2 * log_half * sum - sums - (n ? 1 / half : 0)) / SPECIAL_PI;
  else *second = n ? 1 / x + log_half * sum - 0.5 * sums : 0.5 * sums - log_half * sum;
}

/* exp(x) K_n(x) for x >= 2, all terms positive. */
MOTH_SPECIAL double moth_bessel_k_far(int n, double x) {
  const double h = 0.3125;
  double sum = 0.5 / sqrt(x);
  for (int k = 1; k <= 29; k++) {
    const double a = 0.25 * k * k * h * h; /* v^2 / 4 */
    sum += exp(-2 * a) * (n ? 1 + 2 * a / x : 1) / sqrt(x + a);
  }
  return h * sum;
}

/* exp(x) K_n(x), or K_n(x) */
MOTH_SPECIAL double moth_bessel_k(int n, int scaled, double x) {
  double first, second;
  if (!(x > 0)) return x == 0 ? (double)INFINITY : (double)NAN;
  if (x >= 2) return (scaled ? 1 : exp(-x)) * (isinf(x) ? 0 : moth_bessel_k_far(n, x));
  moth_bessel_powers(n, 1, x, &first, &second);
  return (scaled ? exp(x) : 1) * second;
}

/* J_n(x) for which = 0, Y_n(x) for 1: parts of Hankel's function, K_n(-ix) but for a factor. */
MOTH_SPECIAL double moth_bessel_jy(int n, int which, double x) {
  const double h = 0.3125, size = fabs(x), turn = n && x < 0 ? -1 : 1;
  if (x != x || (which && x < 0)) return (double)NAN;
  if (isinf(x)) return 0;
  if (size < 2) {
    double first, second;
    if (x == 0) return which ? -(double)INFINITY : n ? x : 1;
    moth_bessel_powers(n, -1, size, &first, &second);
    return which ? second : turn * first;
  }
  double real = 0, imaginary = 0;
  for (int k = 0; k <= 29; k++) {
    const double a = 0.25 * k * k * h * h, r = hypot(a, size);
    const double p = sqrt(0.5 * (r + a)), q = 0.5 * size / p; /* (p + iq) / r = 1 / sqrt(a - ix) */
    const double weight = (k ? exp(-2 * a) : 0.5) / r, more = n ? 2 * a / size : 0;
    real += weight * (p - more * q);
    imaginary += weight * (q + more * p);
  }
  const double s = sin(size), c = cos(size), by = 2 * h / SPECIAL_PI;
  if (which) return by * (n ? -(c * imaginary + s * real) : s * imaginary - c * real);
  return by * turn * (n ? s * imaginary - c * real : s * real + c * imaginary);
}

/* Airy's function Ai, or its slope. */
MOTH_SPECIAL double moth_airy(int slope, double x) {
  const double size = fabs(x), root = sqrt(size), zeta = 2.0 / 3 * size * root, h = 0.125;
  if (x != x) return x;
  if (isinf(x)) return slope && x < 0 ? (double)NAN : 0;
  if (size < 1) { /* of f = 1 + x^3/6 + ... and g = x + x^4/12 + ... */
    const double cube = x * x * x;
    double f = slope ? 0.5 * x * x : 1, g = slope ? 1 : x, sum_f = f, sum_g = g;
    for (int k = 1; k <= 8; k++) {
      const int m = 3 * k;
      f *= cube / (slope ? m * (m + 2.0) : m * (m - 1.0));
      g *= cube / (slope ? m * (m - 2.0) : m * (m + 1.0));
      sum_f += f;
      sum_g += g;
    }
    return 0.35502805388781723926 * sum_f - 0.25881940379280679841 * sum_g;
  }
  /* Ai(z) = exp(-zeta) / pi int exp(-sqrt(z) s^2) cos(s^3 / 3) ds; Ai(-x) = 2 Re(w Ai(w x)) with
     w = exp(i pi / 3), whose square root is c + id. */
  const double c = x > 0 ? 1 : 0.86602540378443864676, d = x > 0 ? 0 : 0.5;
  const double scale = 1 / sqrt(root);
  double real = 0, imaginary = 0;
  for (int k = 0; k <= 54; k++) {
    const double v = k * h, s = v * scale, turn = d * v * v;
    const double weight = (k ? 1 : 0.5) * exp(-c * v * v) * cos(s * s * s / 3);
    const double p = slope ? c * root + 0.5 * c * s * s / root : 1;
    const double q = slope ? d * root - 0.5 * d * s * s / root : 0; /* 1 / (c + id) = c - id */
    real += weight * (p * cos(turn) + q * sin(turn));
    imaginary += weight * (q * cos(turn) - p * sin(turn));
  }
  const double by = h * scale / SPECIAL_PI;
  if (x > 0) return (slope ? -by : by) * exp(-zeta) * real;
  /* w exp(-i zeta) (real + i imaginary); the slope of Ai(wx) has another w, and -1 twice */
  const double angle = zeta - SPECIAL_PI / 3 * (slope ? 2 : 1);
  return 2 * by * (cos(angle) * real + sin(angle) * imaginary);
}

#endif
