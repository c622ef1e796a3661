/* special_bessel.h -- Bessel functions of order 0 and 1, and Airy functions, in f64; see
** special_rare.h for the conventions.
**
** Power series where they are short and accurate; elsewhere integrals over the path of steepest
** descent. The integrand falls like exp(-v^2 / 2), and its sum in steps of h equals the integral up
** to exp(-2 pi d / h), where d is the distance from the path to the nearest singularity (Abramowitz
** and Stegun 9.6.23, 10.4.32; Trefethen and Weideman, "The exponentially convergent trapezoidal
** rule", 2014).
*/
#ifndef MOTH_KERNEL_SPECIAL_BESSEL_H
#define MOTH_KERNEL_SPECIAL_BESSEL_H

#include "special_real.h"

/* Power series for 0 < x < 2: J_n and Y_n if sign is -1, I_n and K_n if it is 1. second = NULL
** skips the second function. */
MOTH_SPECIAL void moth_bessel_powers(int n, double sign, double x, double *first, double *second) {
  const double by[2][13] = { /* 1 / (k (k + n)) */
    {1.0 / 1, 1.0 / 4, 1.0 / 9, 1.0 / 16, 1.0 / 25, 1.0 / 36, 1.0 / 49, 1.0 / 64, 1.0 / 81,
      1.0 / 100, 1.0 / 121, 1.0 / 144, 1.0 / 169},
    {1.0 / 2, 1.0 / 6, 1.0 / 12, 1.0 / 20, 1.0 / 30, 1.0 / 42, 1.0 / 56, 1.0 / 72, 1.0 / 90,
      1.0 / 110, 1.0 / 132, 1.0 / 156, 1.0 / 182}};
  const double psi[2][14] = { /* digamma of k + 1 and of k + n + 1 */
    {-1.154431329803065721, 0.8455686701969342787, 1.8455686701969342787, 2.5122353368636009454,
      3.0122353368636009454, 3.4122353368636009454, 3.7455686701969342787, 4.0312829559112199930,
      4.2812829559112199930, 4.5035051781334422152, 4.7035051781334422152, 4.8853233599516240334,
      5.0519900266182907001, 5.2058361804644445463},
    {-0.154431329803065721, 1.3455686701969342787, 2.1789020035302676121, 2.7622353368636009454,
      3.2122353368636009454, 3.5789020035302676121, 3.8884258130540771359, 4.1562829559112199930,
      4.3923940670223311041, 4.6035051781334422152, 4.7944142690425331243, 4.9686566932849573668,
      5.1289131035413676232, 5.2772647518930159748}};
  const double square = sign * 0.25 * x * x, half = 0.5 * x;
  double term = n ? half : 1, sum = term, sums = psi[n][0] * term;
  if (!second) {
    for (int k = 0; k < 13; k++) sum += term *= square * by[n][k];
    *first = sum;
    return;
  }
  for (int k = 0; k < 13; k++) {
    term *= square * by[n][k];
    sum += term;
    sums += psi[n][k + 1] * term;
  }
  const double log_half = log(x) - 0.69314718055994530942; /* x / 2 may underflow to 0 */
  *first = sum;
  if (sign < 0) *second = (2 * log_half * sum - sums - (n ? 1 / half : 0)) / SPECIAL_PI;
  else *second = n ? 1 / x + log_half * sum - 0.5 * sums : 0.5 * sums - log_half * sum;
}

/* exp(-v^2 / 2) at the steps of the path; half of it at the first step. */
MOTH_SPECIAL double moth_bessel_weight(int k) {
  const double weights[] = {
      0.5, 0.9523447998951764, 0.82257756239866464, 0.64438872482519527, 0.45783336177161427,
      0.29502265617444284, 0.17242162389375282, 0.09139375535604724, 0.04393693362340742,
      0.019157171837129137, 0.0075756774442599355, 0.0027170647293235837, 0.00088382630693504996,
      0.00026074878466882681, 6.9769577195997096e-05, 1.6931612436129992e-05,
      3.7266531720786709e-06, 7.43923131743503e-07, 1.3468696888087105e-07,
      2.2116251758271483e-08, 3.2937141103060809e-09, 4.4488596501293526e-10,
      5.450043132884139e-11, 6.0553549177082059e-12, 6.1019366776053239e-13,
      5.5767890791115274e-14, 4.6226304054837065e-15, 3.4752220036018662e-16,
      2.3695417473401759e-17, 1.4653271804402422e-18};
  return weights[k];
}

/* exp(x) K_n(x) for x >= 2. All terms are positive. */
MOTH_SPECIAL double moth_bessel_k_far(int n, double x) {
  const double h = 0.3125;
  double sum = 0.5 / sqrt(x);
  for (int k = 1; k <= 29; k++) {
    const double a = 0.25 * k * k * h * h; /* v^2 / 4 */
    sum += moth_bessel_weight(k) * (n ? 1 + 2 * a / x : 1) / sqrt(x + a);
  }
  return h * sum;
}

/* exp(x) K_n(x) if scaled, else K_n(x). */
MOTH_SPECIAL double moth_bessel_k(int n, int scaled, double x) {
  double first, second;
  if (!(x > 0)) return x == 0 ? (double)INFINITY : (double)NAN;
  if (x >= 2) return (scaled ? 1 : exp(-x)) * (isinf(x) ? 0 : moth_bessel_k_far(n, x));
  moth_bessel_powers(n, 1, x, &first, &second);
  return (scaled ? exp(x) : 1) * second;
}

/* J_n(x) for which = 0, Y_n(x) for which = 1. They are parts of Hankel's function, which is
** K_n(-ix) times a factor. */
MOTH_SPECIAL double moth_bessel_jy(int n, int which, double x) {
  const double h = 0.3125, size = fabs(x), turn = n && x < 0 ? -1 : 1;
  if (x != x || (which && x < 0)) return (double)NAN;
  if (isinf(x)) return 0;
  if (size < 2) {
    double first, second;
    if (x == 0) return which ? -(double)INFINITY : n ? x : 1;
    moth_bessel_powers(n, -1, size, &first, which ? &second : NULL);
    return which ? second : turn * first;
  }
  double real = 0, imaginary = 0;
  for (int k = 0; k <= 29; k++) {
    const double a = 0.25 * k * k * h * h, r = size < 1e9 ? sqrt(a * a + size * size) : size;
    const double p = sqrt(0.5 * (r + a)), q = 0.5 * size / p; /* (p + iq) / r = 1 / sqrt(a - ix) */
    const double weight = moth_bessel_weight(k) / r, more = n ? 2 * a / size : 0;
    real += weight * (p - more * q);
    imaginary += weight * (q + more * p);
  }
  const double s = sin(size), c = cos(size), by = 2 * h / SPECIAL_PI;
  if (which) return by * (n ? -(c * imaginary + s * real) : s * imaginary - c * real);
  return by * turn * (n ? s * imaginary - c * real : s * real + c * imaginary);
}

/* The Airy function Ai, or its derivative. */
MOTH_SPECIAL double moth_airy(int derivative, double x) {
  const double size = fabs(x), root = sqrt(size), zeta = 2.0 / 3 * size * root, h = 0.125;
  if (x != x) return x;
  if (isinf(x)) return derivative && x < 0 ? (double)NAN : 0;
  if (size < 1) { /* the series f = 1 + x^3/6 + ... and g = x + x^4/12 + ... */
    const double cube = x * x * x;
    double f = derivative ? 0.5 * x * x : 1, g = derivative ? 1 : x, sum_f = f, sum_g = g;
    for (int k = 1; k <= 8; k++) {
      const int m = 3 * k;
      f *= cube / (derivative ? m * (m + 2.0) : m * (m - 1.0));
      g *= cube / (derivative ? m * (m - 2.0) : m * (m + 1.0));
      sum_f += f;
      sum_g += g;
    }
    return 0.35502805388781723926 * sum_f - 0.25881940379280679841 * sum_g;
  }
  /* Ai(z) = exp(-zeta) / pi int exp(-sqrt(z) s^2) cos(s^3 / 3) ds, and Ai(-x) = 2 Re(w Ai(w x))
  ** with w = exp(i pi / 3), whose square root is c + id. */
  const double c = x > 0 ? 1 : 0.86602540378443864676, d = x > 0 ? 0 : 0.5;
  const double scale = 1 / sqrt(root);
  double real = 0, imaginary = 0;
  for (int k = 0; k <= 54; k++) {
    const double v = k * h, s = v * scale, turn = d * v * v;
    const double weight = (k ? 1 : 0.5) * exp(-c * v * v) * cos(s * s * s / 3);
    const double p = derivative ? c * root + 0.5 * c * s * s / root : 1;
    const double q = derivative ? d * root - 0.5 * d * s * s / root : 0; /* 1 / (c + id) = c - id */
    real += weight * (p * cos(turn) + q * sin(turn));
    imaginary += weight * (q * cos(turn) - p * sin(turn));
  }
  const double by = h * scale / SPECIAL_PI;
  if (x > 0) return (derivative ? -by : by) * exp(-zeta) * real;
  /* w exp(-i zeta) (real + i imaginary). The derivative of Ai(wx) has another factor w and changes
  ** its sign twice. */
  const double angle = zeta - SPECIAL_PI / 3 * (derivative ? 2 : 1);
  return 2 * by * (cos(angle) * real + sin(angle) * imaginary);
}

#endif
