/* special_derivatives.h -- n-th derivatives, in f64, of functions for which division by x or
** differences of nearly equal numbers would lose digits: sin(x) / x, Bessel functions, the tails of
** the normal distribution. See special_rare.h for the conventions.
**
** sin(x) / x: powers near 0; elsewhere u f_n + n f_(n-1) = sin^(n)(u). Bessel functions: sums of
** functions of neighboring orders (Abramowitz and Stegun 9.1.31, 9.6.29). Tails: with Mills' ratio
** m(z) = exp(z^2 / 2) int_z exp(-t^2 / 2) dt = 1 / (z + r_1) and r_k = k / (z + r_(k+1)), the n-th
** derivative of m is (-1)^n m r_1 ... r_n.
*/
#ifndef MOTH_KERNEL_SPECIAL_DERIVATIVES_H
#define MOTH_KERNEL_SPECIAL_DERIVATIVES_H

#include "special_bessel.h"
#include "special_rare.h"

enum { SPECIAL_ORDERS = 16 }; /* the highest derivative */

/* -- sin(u) / u for u = x and for u = pi x -- */

/* sin(u + n pi / 2) for u = x, or for u = pi x with an exact reduction. */
MOTH_SPECIAL double moth_shifted_sine(int n, int turns, double x) {
  double sign = 1, u = x;
  if (turns) {
    const double whole = rint(x);
    sign = fmod(whole, 2.0) != 0 ? -1 : 1;
    u = SPECIAL_PI * (x - whole);
  }
  if (n & 2) sign = -sign;
  return sign * (n & 1 ? cos(u) : sin(u));
}

MOTH_SPECIAL double moth_sinc_slope_f64(double order, double turns, double x) {
  const int n = (int)order;
  const double size = fabs(x), u = turns != 0 ? SPECIAL_PI * size : size;
  const double sign = (n & 1) && x < 0 ? -1 : 1;
  double by = sign, y;
  for (int k = 0; k < n && turns != 0; k++) by *= SPECIAL_PI;
  if (x != x) return x;
  if (isinf(x)) return 0;
  if (u < 3 + n) { /* the sum of (-1)^k u^(2k - n) / ((2k + 1) (2k - n)!) */
    const int first = (n + 1) / 2;
    double term = (first & 1 ? -1.0 : 1.0) * (n & 1 ? u : 1.0);
    y = term / (2 * first + 1);
    for (int k = first + 1; k < first + 40 + n && fabs(term) > 1e-18 * fabs(y); k++) {
      const double p = 2 * k - n;
      term *= -u * u / (p * (p - 1));
      y += term / (2 * k + 1);
    }
    return by * y;
  }
  y = moth_shifted_sine(0, turns != 0, size) / u;
  for (int k = 1; k <= n; k++) y = (moth_shifted_sine(k, turns != 0, size) - k * y) / u;
  return by * y;
}

/* -- Bessel functions -- */

/* The function of order m >= 0 at x > 0; `family` chooses J, Y, K or exp(x) K. */
MOTH_SPECIAL double moth_bessel_order(int family, int m, double x) {
  if (family == 0 && x < 4) {
    const double square = -0.25 * x * x;
    double term = 1, sum = 1;
    for (int k = 1; k <= m; k++) term *= 0.5 * x / k;
    sum = term;
    for (int k = 1; k <= 24 && fabs(term) > 1e-18 * fabs(sum); k++)
      sum += term *= square / (k * (double)(k + m));
    return sum;
  }
  double below = 0, y;
  if (m != 1) below = family < 2 ? moth_bessel_jy(0, family, x) : moth_bessel_k(0, family == 3, x);
  if (m == 0) return below;
  y = family < 2 ? moth_bessel_jy(1, family, x) : moth_bessel_k(1, family == 3, x);
  for (int k = 1; k < m; k++) {
    const double next = 2 * k / x * y + (family < 2 ? -below : below);
    below = y, y = next;
  }
  return y;
}

/* The n-th derivative of exp(-x) I_m(x) for large x. */
MOTH_SPECIAL double moth_bessel_i_far(int m, int n, double x) {
  double c = 1 / sqrt(2 * SPECIAL_PI), sum = 0;
  for (int k = 0; k <= 30; k++) { /* c x^(-k - 1/2) */
    double term = c / sqrt(x);
    for (int i = 0; i < n; i++) term *= -(k + 0.5 + i) / x;
    sum += term;
    const double more = ((2 * k + 1) * (2 * k + 1) - 4.0 * m * m) / (8 * (k + 1) * x);
    if (fabs(more) >= 1) break;
    c *= more;
  }
  return sum;
}

MOTH_SPECIAL double moth_bessel_i_order(int m, double x) { /* exp(-x) I_m(x) for x >= 0. */
  if (isinf(x)) return 0;
  if (x > 30) return moth_bessel_i_far(m, 0, x);
  double term = exp(-x), sum;
  for (int k = 1; k <= m; k++) term *= 0.5 * x / k;
  sum = term;
  for (int k = 1; k <= 80 && term > 1e-18 * sum; k++)
    sum += term *= 0.25 * x * x / (k * (double)(k + m));
  return sum;
}

/* The n-th derivative, as a sum of functions of orders m - n to m + n. `family` 4 is exp(-x) I. */
MOTH_SPECIAL double moth_bessel_mix(int family, int m, int n, double x) {
  double sum = 0, choose = 1;
  if (n == 1 && m == 0)
    return family == 4 ? moth_bessel_i_order(1, x) : -moth_bessel_order(family, 1, x);
  if (n == 1 && m == 1 && family < 4) {
    const double zero = moth_bessel_order(family, 0, x), one = moth_bessel_order(family, 1, x);
    const double over = family || x > 1e-150 ? one / x : 0.5; /* for J at 0 and next to 0 */
    return (family < 2 ? zero : -zero) - over;
  }
  for (int k = 0; k <= n; k++) {
    const int order = m - n + 2 * k, at = order < 0 ? -order : order;
    double y = family == 4 ? moth_bessel_i_order(at, x) : moth_bessel_order(family, at, x);
    if (family < 2 && ((order < 0 && (at & 1)) != (k & 1))) y = -y;
    sum += choose * y;
    choose *= (n - k) / (k + 1.0);
  }
  return ldexp(family == 2 || family == 3 ? ((n & 1) ? -sum : sum) : sum, -n);
}

/* The n-th derivative of exp(x) K_m(x). From x = 2 on, differentiates each term of the integral. */
MOTH_SPECIAL double moth_bessel_k_derivative(int m, int n, double x) {
  const double h = 0.3125;
  double sum = 0, choose = 1;
  if (isinf(x)) return 0;
  if (x < 2) {
    for (int k = 0; k <= n; k++) { /* exp(x) times a derivative of K */
      sum += choose * moth_bessel_mix(3, m, k, x);
      choose *= (n - k) / (k + 1.0);
    }
    return sum;
  }
  for (int k = 0; k <= 29; k++) {
    const double a = 0.25 * k * k * h * h;
    double root = 1 / sqrt(x + a), part = 0; /* (1 + 2 a / x) (x + a)^(-1/2), by Leibniz */
    for (int i = 0; i <= n; i++) {
      double ways = 1, inner = 2 * a / x;
      for (int j = 0; j < n - i; j++) ways *= (n - j) / (j + 1.0), inner *= -(j + 1) / x;
      part += ways * root * ((n == i ? 1 : 0) + (m ? inner : 0));
      root *= -(i + 0.5) / (x + a);
    }
    sum += moth_bessel_weight(k) * part;
  }
  return h * sum;
}

/* The n-th derivative of exp(-|x|) I_m(x) if scaled, for x >= 0; else of I_m(x). */
MOTH_SPECIAL double moth_bessel_i_derivative(int m, int n, int scaled, double x) {
  if (!scaled) {
    const double half = exp(0.5 * x);
    return isinf(x) ? x : half * moth_bessel_mix(4, m, n, x) * half;
  }
  if (isinf(x)) return 0;
  if (x > 30) return moth_bessel_i_far(m, n, x);
  double sum = 0, choose = 1;
  for (int k = 0; k <= n; k++) {
    sum += ((n - k) & 1 ? -choose : choose) * moth_bessel_mix(4, m, k, x);
    choose *= (n - k) / (k + 1.0);
  }
  return sum;
}

/* The n-th derivative of a function by kind, as in op/special.h. The scaled I has a kink at 0,
** where the result is the mean of both sides. */
MOTH_SPECIAL double moth_bessel_slope(int kind, int n, double x) {
  const int m = kind & 1;
  if (x != x) return x;
  if (kind >= 10 || kind < 2) { /* even or odd functions, defined for all numbers */
    const int odd = (m + n) & 1;
    const double size = fabs(x), sign = odd && x < 0 ? -1 : 1;
    if (x == 0 && odd) return 0;
    if (kind >= 10) return sign * moth_bessel_i_derivative(m, n, kind >= 12, size);
    return isinf(x) ? 0 : sign * moth_bessel_mix(0, m, n, size);
  }
  const int family = kind >> 1;
  if (!(x > 0)) {
    if (x < 0) return (double)NAN;
    return (family == 1) == ((n & 1) == 0) ? -(double)INFINITY : (double)INFINITY;
  }
  if (isinf(x)) return 0;
  return family == 3 ? moth_bessel_k_derivative(m, n, x) : moth_bessel_mix(family, m, n, x);
}

MOTH_SPECIAL double moth_bessel_f64(double kind, double n, double x) {
  const int family = (int)kind, which = family & 1;
  if (n > 0) return moth_bessel_slope(family, (int)n, x);
  if (family == 8 || family == 9) return moth_airy(which, x);
  if (family >= 12) return which ? moth_i1e_f64(x) : moth_i0e_f64(x);
  if (family >= 10) return which ? moth_i1_f64(x) : moth_i0_f64(x);
  return family < 4 ? moth_bessel_jy(which, family >> 1, x) : moth_bessel_k(which, family > 5, x);
}

/* -- tails of the normal distribution -- */

/* r[1] to r[n] of Mills' ratio for z > 2. Returns the ratio. */
MOTH_SPECIAL double moth_mills(int n, double z, double *r) {
  double last = 0;
  for (int k = 80; k >= 1; k--) {
    last = k / (z + last);
    if (k <= n) r[k] = last;
  }
  return 1 / (z + last);
}

/* The derivative of exp(x^2) erfc(x). */
MOTH_SPECIAL double moth_erfcx_slope_f64(double order, double x) {
  const int n = (int)order < SPECIAL_ORDERS ? (int)order : SPECIAL_ORDERS;
  const double z = x * 1.41421356237309504880, root = 0.79788456080286535588; /* sqrt(2 / pi) */
  double r[SPECIAL_ORDERS + 1], m, below, scale = root;
  if (x != x) return x;
  for (int k = 0; k < n; k++) scale *= 1.41421356237309504880;
  if (z > 2) {
    m = moth_mills(n, z, r);
    for (int k = 1; k <= n; k++) m *= -r[k];
    return scale * m;
  }
  m = moth_erfcx_f64(x) / root, below = 0;
  if (isinf(m)) return n & 1 ? -m : m;
  for (int k = 0; k < n; k++) {
    const double next = k ? z * m + k * below : z * m - 1;
    below = m, m = next;
  }
  return scale * m;
}

/* The derivative of log Phi(x), for n >= 1: h = phi / Phi, h' = -h r, r = x + h. */
MOTH_SPECIAL double moth_log_ndtr_slope_f64(double order, double x) {
  const int n = (int)order < SPECIAL_ORDERS ? (int)order : SPECIAL_ORDERS;
  double h[SPECIAL_ORDERS + 1], r[SPECIAL_ORDERS + 1], k[3];
  if (x != x) return x;
  if (x > 40) return n & 1 ? 0.0 : -0.0;
  if (isinf(x)) return n == 1 ? (double)INFINITY : n == 2 ? -1 : 0;
  if (x < -2) {
    moth_mills(2, -x, k);
    h[0] = k[1] - x, r[0] = k[1], r[1] = (k[2] - k[1]) / (k[2] - x);
  } else {
    h[0] = 0.79788456080286535588 / moth_erfcx_f64(-x * SPECIAL_ROOT_HALF);
    r[0] = x + h[0], r[1] = 1 - h[0] * r[0];
  }
  for (int i = 1; i < n; i++) { /* h[i] is the i-th derivative */
    double sum = 0, choose = 1;
    for (int j = 0; j < i; j++) {
      sum -= choose * h[j] * r[i - 1 - j];
      choose *= (i - 1 - j) / (j + 1.0);
    }
    h[i] = sum;
    if (i > 1) r[i] = h[i];
  }
  return h[n - 1];
}

#endif
