/* rejection.h -- gamma, Poisson and binomial numbers by rejection sampling, for the CPU and the
** GPU, with the same bits (see distributions.h). Each value has a separate stream of random words,
** so it may use any number of them: the first block of the stream, then blocks that differ in the
** third word of the counter.
**
** Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); Hoermann, "The
** transformed rejection method for generating Poisson random variables" and "The generation of
** binomial random variates" (1993).
*/
#ifndef MOTH_KERNEL_REJECTION_H
#define MOTH_KERNEL_REJECTION_H

#include "distributions.h"

#if defined(__CUDACC__)
#define MOTH_REJECTION MOTH_INLINE
#else
#define MOTH_REJECTION static __attribute__((noinline))
#endif

typedef struct moth_rejection {
  uint64_t seed, block;
  uint32_t turn, left, word[4];
} moth_rejection;

/* The next two words. MOTH_REJECTION_WORDS(seed, block, turn, out), which the includer defines,
** writes four. */
MOTH_INLINE const uint32_t *moth_next_two(moth_rejection *t) {
  if (t->left == 0) {
    MOTH_REJECTION_WORDS(t->seed, t->block, t->turn++, t->word);
    t->left = 2;
  }
  return t->word + 4 - 2 * t->left--;
}

MOTH_INLINE double moth_next_unit(moth_rejection *t) {
  return moth_inner_unit_f64(moth_next_two(t));
}

MOTH_REJECTION double moth_next_normal(moth_rejection *t) {
  double two[2];
  if (t->left < 2) MOTH_REJECTION_WORDS(t->seed, t->block, t->turn++, t->word);
  t->left = 0;
  moth_two_normals_f64(t->word, two);
  return two[0];
}

/* The largest integer <= x. */
MOTH_INLINE double moth_rejection_floor(double x) {
  if (!(x > -4503599627370496.0 && x < 4503599627370496.0)) return x;
  const double whole = (double)(int64_t)x;
  return whole > x ? whole - 1 : whole;
}

MOTH_REJECTION double moth_rejection_log(double x) { return -0.5 * moth_minus_2_log_f64(x); }

/* exp(x) for x <= 0: Taylor to degree 14, by even and odd powers. */
MOTH_INLINE double moth_rejection_exp(double x) {
  if (x < -745) return 0;
  const double n = moth_rejection_floor(x * 1.4426950408889634074 + 0.5);
  const double r = x - n * 6.93147180369123816490e-1 - n * 1.90821492927058770002e-10, z = r * r;
  double even = 1.0 / 87178291200.0, odd = 1.0 / 6227020800.0;
  even = even * z + 1.0 / 479001600.0;
  odd = odd * z + 1.0 / 39916800.0;
  even = even * z + 1.0 / 3628800.0;
  odd = odd * z + 1.0 / 362880.0;
  even = even * z + 1.0 / 40320.0;
  odd = odd * z + 1.0 / 5040.0;
  even = even * z + 1.0 / 720.0;
  odd = odd * z + 1.0 / 120.0;
  even = even * z + 1.0 / 24.0;
  odd = odd * z + 1.0 / 6.0;
  even = even * z + 0.5;
  const double p = (even * z + r * (odd * z)) + r + 1;
  if (n < -1000) return ldexp(p, (int)n);
  const uint64_t bits = (uint64_t)(1023 + (int64_t)n) << 52;
  double power;
  memcpy(&power, &bits, 8);
  return p * power;
}

/* log(k!) by Stirling's series. */
MOTH_REJECTION double moth_log_factorial(double k) {
  double product = 1, z = k + 1;
  for (; z < 10; z += 1) product *= z;
  const double r = 1 / (z * z);
  return (z - 0.5) * moth_rejection_log(z) - z + 0.91893853320467274178 -
         moth_rejection_log(product) +
         (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r / 1680))) / z;
}

/* A gamma number of shape a > 0 and rate 1. For a < 1, a number of shape a + 1 times a power of a
** uniform number; this may underflow to 0. */
MOTH_REJECTION double moth_draw_gamma(moth_rejection *t, double a) {
  const double d = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * d);
  for (;;) {
    const double x = moth_next_normal(t), root = 1 + c * x, v = root * root * root;
    if (root <= 0) continue;
    const double u = moth_next_unit(t);
    if (u >= 1 - 0.0331 * x * x * x * x &&
        moth_rejection_log(u) >= 0.5 * x * x + d * (1 - v + moth_rejection_log(v)))
      continue;
    return a < 1 ? d * v * moth_rejection_exp(moth_rejection_log(moth_next_unit(t)) / a) : d * v;
  }
}

/* A candidate k from a uniform u and the shape of the hat function; *size is part of the acceptance
** test. */
MOTH_INLINE double moth_hat_value(double u, double a, double b, double middle, double *size) {
  *size = 0.5 - fabs(u);
  return moth_rejection_floor((2 * a / *size + b) * u + middle);
}

MOTH_REJECTION double moth_draw_poisson(moth_rejection *t, double rate) {
  if (rate < 10) { /* by inversion: the first k whose cumulative probability reaches u */
    const double u = moth_next_unit(t);
    double probability = moth_rejection_exp(-rate), sum = probability;
    int64_t n = u > sum;
    for (int i = 1; i <= 8; i++) { /* unrolled steps without branches that depend on u */
      probability *= rate * (1.0 / i);
      sum += probability;
      n += u > sum;
    }
    for (int i = 9; i <= 16 && rate > 4; i++) {
      probability *= rate * (1.0 / i);
      sum += probability;
      n += u > sum;
    }
    for (int i = rate > 4 ? 17 : 9; i <= 200 && u > sum; i++) {
      probability *= rate / i;
      sum += probability;
      n += u > sum;
    }
    return (double)n;
  }
  const double b = 0.931 + 2.53 * sqrt(rate), a = 0.02483 * b - 0.059;
  const double sure = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = moth_next_unit(t) - 0.5, v = moth_next_unit(t);
    double size;
    const double k = moth_hat_value(u, a, b, rate + 0.43, &size);
    if (size >= 0.07 && v <= sure) return k;
    if (k < 0 || (size < 0.013 && v > size)) continue;
    const double c = 1.1239 + 1.1328 / (b - 3.4);
    if (moth_rejection_log(v * c / (a / (size * size) + b)) <=
        k * moth_rejection_log(rate) - rate - moth_log_factorial(k))
      return k;
  }
}

/* A binomial number of n trials with probability p <= 1/2. */
MOTH_REJECTION double moth_draw_few(moth_rejection *t, double n, double p) {
  if (n * p < 10) { /* by inversion: the first k whose cumulative probability reaches u */
    const double miss = p < 1e-4 ? -p * (1 + p * (0.5 + p / 3)) : moth_rejection_log(1 - p);
    const double u = moth_next_unit(t), odds = p / (1 - p);
    double probability = moth_rejection_exp(n * miss), sum = probability, few = u > sum;
    for (int i = 1; i <= 8; i++) { /* unrolled steps without branches that depend on u */
      probability *= (n + 1 - i) * odds * (1.0 / i);
      sum += probability;
      few += u > sum;
    }
    for (int i = 9; u > sum && probability > 1e-18; i++) {
      probability *= (n + 1 - i) * odds / i;
      sum += probability;
      few += u > sum;
    }
    return few < n ? few : n; /* the probabilities of more than n are 0; their sum is rounded */
  }
  const double spread = sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * spread;
  const double a = 0.0248 * b + 0.01 * p - 0.0873, c = (2.83 + 5.1 / b) * spread;
  const double most = floor((n + 1) * p), odds = moth_rejection_log(p / (1 - p));
  const double top = moth_log_factorial(most) + moth_log_factorial(n - most);
  for (;;) {
    const double u = moth_next_unit(t) - 0.5, v = moth_next_unit(t);
    double size;
    const double k = moth_hat_value(u, a, b, n * p + 0.5, &size);
    if (k < 0 || k > n) continue;
    if (size >= 0.07 && v <= 0.92 - 4.2 / b) return k;
    if (moth_rejection_log(v * c / (a / (size * size) + b)) <=
        top - moth_log_factorial(k) - moth_log_factorial(n - k) + (k - most) * odds)
      return k;
  }
}

MOTH_REJECTION double moth_draw_binomial(moth_rejection *t, double n, double p) {
  if (n < 1 || p == 0) return 0;
  if (p > 0.5) return p == 1 ? floor(n) : floor(n) - moth_draw_few(t, floor(n), 1 - p);
  return moth_draw_few(t, floor(n), p);
}

/* -- for the ops: parameters a and b; NaN if the distribution is undefined -- */

enum { MOTH_DRAW_GAMMA, MOTH_DRAW_POISSON, MOTH_DRAW_BINOMIAL };

MOTH_REJECTION double moth_draw_from(moth_rejection *t, int which, double a, double b,
                                     double least) {
  if (!(a >= 0) || a - a != 0) return (double)NAN;
  if (which == MOTH_DRAW_BINOMIAL)
    return b >= 0 && b <= 1 ? moth_draw_binomial(t, a, b) : (double)NAN;
  if (a == 0) return 0;
  if (which == MOTH_DRAW_POISSON) return moth_draw_poisson(t, a);
  const double y = moth_draw_gamma(t, a);
  return y < least ? least : y;
}

/* moth_draw_from, with the first four words given. */
MOTH_INLINE double moth_draw_with(int which, uint64_t seed, uint64_t block, const uint32_t *word,
                                  double a, double b, double least) {
  moth_rejection t = {seed, block, 1, 2, {word[0], word[1], word[2], word[3]}};
  return moth_draw_from(&t, which, a, b, least);
}

MOTH_INLINE double moth_draw_by_trial(int which, uint64_t seed, uint64_t block, double a, double b,
                                      double least) {
  moth_rejection t = {seed, block, 0, 0, {0, 0, 0, 0}};
  return moth_draw_from(&t, which, a, b, least);
}

#endif
