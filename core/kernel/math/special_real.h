/* special_real.h -- digamma, polygamma and zeta in f64, for the CPU's loops and the GPU's kernels;
** also erfinv for the GPU and for single values (special_loops.h has it for loops). f32 and half
** types are computed in f64 and rounded once.
**
** erfinv is the quantile of the normal distribution by Wichura's AS 241 (1988). The others are
** Euler-Maclaurin sums with Bernoulli numbers, after a shift of the argument to where they
** converge.
*/
#ifndef MOTH_KERNEL_SPECIAL_REAL_H
#define MOTH_KERNEL_SPECIAL_REAL_H

#include <math.h>

#if defined(__CUDACC__)
#define MOTH_SPECIAL static __host__ __device__ inline
#else
/* not inlined, so that loops over these functions stay short */
#define MOTH_SPECIAL static __attribute__((noinline, unused))
#endif

#define SPECIAL_PI 3.14159265358979323846

/* A polynomial with 8 coefficients, the highest power first. */
#define MOTH_HORNER(r, a, b, c, d, e, f, g, h) \
  (((((((a * r + b) * r + c) * r + d) * r + e) * r + f) * r + g) * r + h)

/* Wichura's quotients for the quantiles of the normal distribution: near the middle, outside it,
** and far outside. */
#define MOTH_QUANTILE_NEAR_OVER(r)                                                           \
  MOTH_HORNER(r, 2509.0809287301226727, 33430.575583588128105, 67265.770927008700853,        \
              45921.953931549871457, 13731.693765509461125, 1971.5909503065514427,           \
              133.14166789178437745, 3.3871328727963666080)
#define MOTH_QUANTILE_NEAR_UNDER(r)                                                          \
  MOTH_HORNER(r, 5226.4952788528545610, 28729.085735721942674, 39307.895800092710610,        \
              21213.794301586595867, 5394.1960214247511077, 687.18700749205790830,           \
              42.313330701600911252, 1.0)
#define MOTH_QUANTILE_OVER(r)                                                                \
  MOTH_HORNER(r, 7.74545014278341407640e-4, 0.0227238449892691845833,                        \
              0.241780725177450611770, 1.27045825245236838258, 3.64784832476320460504,       \
              5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734)
#define MOTH_QUANTILE_UNDER(r)                                                               \
  MOTH_HORNER(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4,                       \
              0.0151986665636164571966, 0.148103976427480074590, 0.689767334985100004550,    \
              1.67638483018380384940, 2.05319162663775882187, 1.0)
#define MOTH_QUANTILE_FAR_OVER(r)                                                            \
  MOTH_HORNER(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5,                       \
              0.00124266094738807843860, 0.0265321895265761230930, 0.296560571828504891230,  \
              1.78482653991729133580, 5.46378491116411436990, 6.65790464350110377720)
#define MOTH_QUANTILE_FAR_UNDER(r)                                                           \
  MOTH_HORNER(r, 2.04426310338993978564e-15, 1.42151175831644588870e-7,                      \
              1.84631831751005468180e-5, 7.86869131145613259100e-4,                          \
              0.0148753612908506148525, 0.136929880922735805310,                             \
              0.599832206555887937690, 1.0)

MOTH_SPECIAL double moth_erfinv_single(double x) {
  const double size = fabs(x);
  if (!(size < 1)) return size == 1 ? x * (double)INFINITY : (double)NAN;
  const double q = x * 0.5;
  if (fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * MOTH_QUANTILE_NEAR_OVER(r) / MOTH_QUANTILE_NEAR_UNDER(r) * 0.70710678118654752440;
  }
  const double root = sqrt(-log((1 - size) * 0.5)), r = root - (root <= 5 ? 1.6 : 5);
  const double z = root <= 5 ? MOTH_QUANTILE_OVER(r) / MOTH_QUANTILE_UNDER(r)
                             : MOTH_QUANTILE_FAR_OVER(r) / MOTH_QUANTILE_FAR_UNDER(r);
  return (x < 0 ? -z : z) * 0.70710678118654752440;
}

/* The derivative of lgamma. */
MOTH_SPECIAL double moth_digamma_f64(double x) {
  double more = 0;
  if (x == 0) return copysign((double)INFINITY, -x);
  if (x < 0) {
    const double part = x - round(x); /* exact; tan has this period */
    if (part == 0) return (double)NAN;
    more = -SPECIAL_PI / tan(SPECIAL_PI * part);
    x = 1 - x;
  }
  while (x < 10) {
    more -= 1 / x;
    x += 1;
  }
  const double r = 1 / (x * x);
  const double tail = r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 -
                      r * (1.0 / 132 - r * (691.0 / 32760 - r / 12))))));
  return more + log(x) - 0.5 / x - tail;
}

/* q^-s, by products for the exponents of the first derivatives of digamma. */
MOTH_SPECIAL double moth_inverse_power(double q, double s) {
  const double square = q * q;
  return s == 2 ? 1 / square : s == 3 ? 1 / (square * q) : pow(q, -s);
}

/* The sum of (q + k)^-s over k >= 0, for q > 0 and s > 1. */
MOTH_SPECIAL double moth_zeta_above(double s, double q) {
  double sum = 0;
  for (; q < 12 || q < 2 * s; q += 1) { /* the terms below are powers of s / q */
    const double term = moth_inverse_power(q, s);
    sum += term;
    if (term <= 1e-18 * sum) return sum;
  }
  const double first = moth_inverse_power(q, s);
  sum += (first > 0 ? q * first : pow(q, 1 - s)) / (s - 1) + first * 0.5;
  /* B_2j / (2j)! s (s + 1) ... (s + 2j - 2) q^(1 - s - 2j) */
  const double by[] = {1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
                       -691.0 / 1307674368000.0, 1.0 / 74724249600.0,
                       -3617.0 / 10670622842880000.0};
  double power = s * first / q;
  for (int j = 0; j < 8; j++) {
    sum += by[j] * power;
    power *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return sum;
}

/* The derivative of digamma. The recurrence up to 10, as one quotient, then the asymptotic series.
** For x < 0 reflection: pi^2 / sin^2(pi x) - trigamma(1 - x). */
MOTH_SPECIAL double moth_trigamma_f64(double x) {
  const double p = x > 0 ? x : 1 - x;
  double over = 0, under = 1, y = p;
  for (; y < 10; y += 1) {
    const double square = y * y;
    over = over * square + under;
    under *= square;
  }
  const double r = 1 / y, z = r * r;
  const double tail = z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42 - z * (1.0 / 30 -
                      z * (5.0 / 66 - z * (691.0 / 2730 - z * (7.0 / 6)))))));
  const double above = over / under + (r + (0.5 * z + r * tail));
  if (x > 0) return above;
  const double part = x - round(x), sine = sin(3.14159265358979323846 * part); /* part: exact */
  return 9.8696044010893586188 / (sine * sine) - above;
}

/* The n-th derivative of digamma; n is an integer >= 0. */
MOTH_SPECIAL double moth_polygamma_f64(double n, double x) {
  if (n == 0) return moth_digamma_f64(x);
  if (x != x) return x;
  if (n == 1) return moth_trigamma_f64(x);
  const double s = n + 1, sign = fmod(n, 2.0) == 0 ? -1 : 1;
  double sum;
  if (x > 0) {
    sum = isinf(x) ? 0 : moth_zeta_above(s, x);
  } else {
    /* x = part - count: terms on both sides of 0; no term is 0 */
    const double count = -round(x), part = x + count; /* exact */
    if (isinf(x)) return (double)NAN;
    if (part == 0) return sign * (double)INFINITY;
    const int even = fmod(s, 2.0) == 0;
    const double nearest = moth_inverse_power(fabs(part), s);
    sum = moth_zeta_above(s, 1 - part) - moth_zeta_above(s, 1 - part + count);
    sum = moth_zeta_above(s, 1 + part) + (even ? sum : -sum);
    sum += even || part > 0 ? nearest : -nearest;
  }
  return sign * tgamma(s) * sum;
}

#endif
