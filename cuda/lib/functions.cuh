/* functions.cuh -- functions that elementwise expressions use, besides CUDA's exp(x) and similar:
** the functions of core/kernel/math/curves.h and exp.h, for f32 and f64. */
#ifndef MOTH_CUDA_FUNCTIONS_CUH
#define MOTH_CUDA_FUNCTIONS_CUH

#include "../../core/kernel/math/special_bessel.h"
#include "../../core/kernel/math/special_rare.h"
#include "../../core/kernel/math/special_derivatives.h"
#include "dtypes.cuh"

#define FOR_REAL(f) f

/* x in the unsigned type, in which overflow wraps. */
HD float WIDE(float x) { return x; }
HD double WIDE(double x) { return x; }
HD uint64_t WIDE(int64_t x) { return (uint64_t)x; }
HD uint32_t WIDE(int32_t x) { return (uint32_t)x; }
HD uint32_t WIDE(int16_t x) { return (uint32_t)x; }
HD uint32_t WIDE(int8_t x) { return (uint32_t)x; }
HD uint32_t WIDE(uint8_t x) { return x; }

/* As in core/kernel/math/elementwise.h. */
#define TOP_BIT(x) ((x) >> (8 * sizeof(x) - 1))
#define BELOW_0(x) (0 - TOP_BIT(WIDE(x)))
#define SIGN_OF(x) (BELOW_0(x) | TOP_BIT(0 - WIDE(x)))

template <class T> struct is_bool_ {
  enum { value = 0 };
};
template <> struct is_bool_<bool8> {
  enum { value = 1 };
};
template <class T> constexpr bool is_bool = is_bool_<T>::value != 0;

/* Returns y = 1 / (1 + exp(-x)), and *other = 1 - y; both are accurate in the tails. */
template <class real> HD real moth_sigmoids(real x, real *other) {
  const real e = exp(-fabs(x)), large = 1 / (1 + e), small = e * large;
  *other = x < 0 ? large : small;
  return x < 0 ? small : large;
}
template <class real> HD real moth_sigmoid(real x) {
  real other;
  return moth_sigmoids(x, &other);
}


template <class real> HD real moth_less_one(real x) { return expm1(x); }
template <class real> HD real moth_sinc(real x) {
  const real pi = (real)3.14159265358979323846;
  real part = x - 2 * rint(x * (real)0.5); /* from -1 to 1, exact: the product with pi would not be
                                           */
  if (part > (real)0.5) part = 1 - part;
  if (part < (real)-0.5) part = -1 - part;
  return x == 0 ? (real)1 : sin(part * pi) / (x * pi);
}

/* The normal distribution function of x, from erfc so that the tails are accurate. */
template <class real> HD real moth_share(real x) {
  return (real)0.5 * erfc(-x * (real)0.70710678118654752440);
}
template <class real> HD real moth_gelu(real x) {
  return x * moth_share(x);
}
#define MOTH_WITHIN(x, bound) ((x) < -(bound) ? -(bound) : (x) > (bound) ? (bound) : (x))
/* For x below -1000, x times the distribution function is 0; -infinity times 0 would be NaN. */
#define MOTH_FROM_BELOW(x) ((x) < -1000 ? -1000 : (x))
template <class real> HD real gelu_slope_of(real x) {
  const real bell = exp(-x * x * (real)0.5) * (real)0.39894228040143267794;
  return moth_share(x) + (bell == 0 ? (real)0 : x * bell);
}
/* f32 uses the polynomials of core/kernel/math/exp.h: erfc takes three times as long. */
HD float moth_ratio(float x, float y) { /* accurate to 2 ulp; y is neither very large nor very small
                                        */
#ifdef __CUDA_ARCH__
  return __fdividef(x, y);
#else
  return x / y;
#endif
}
HD float moth_bell(float x) { /* exp(-x^2 / 2); the relative error is about x^2 2^-23 */
#ifdef __CUDA_ARCH__
  return __expf(-0.5f * (x * x));
#else
  return exp(-0.5f * (x * x));
#endif
}
HD float moth_gelu(float x) {
  float q, p = moth_share_terms_f32(x, &q), share = 0.5f + x * moth_ratio(p, q);
  share = share < 0 ? 0 : share;
  return x * (share > 1 ? 1 : share);
}
HD float gelu_slope_of(float x) {
  const float bell = moth_bell(x);
  const float tail = bell * moth_half_erfcx_f32(moth_ratio(1, 1 + 0.28284271247461901f * fabs(x)));
  const float turn = 0.39894228040143267794f * bell;
  return (x > 0 ? 1 - tail : tail) + (bell == 0 ? 0 : x * turn);
}
template <class real> HD real gelu_angle(real x) {
  const real z = MOTH_WITHIN(x, (real)30);
  return (real)1.5957691216057307117 * (z + (real)0.044715 * z * z * z);
}
template <class real> HD real gelu_tanh_slope(real x) {
  real other;
  const real s = moth_sigmoids(gelu_angle(x), &other);
  const real z = MOTH_WITHIN(x, (real)30);
  const real turn = (real)1.5957691216057307117 * (1 + (real)0.134145 * z * z);
  return s + z * s * other * turn;
}
template <class real> HD real silu_slope(real x) {
  real other;
  const real s = moth_sigmoids(x, &other);
  return s * (1 + MOTH_WITHIN(x, (real)1000) * other);
}
template <class real> HD real softplus_of(real x) { /* log(1 + exp(x)) */
  return (x < 0 ? 0 : x) + log1p(exp(-fabs(x)));
}
template <class real> HD real logsigmoid_of(real x) { /* -softplus(-x); 0 for large x */
  return (x < 0 ? x : 0) - log1p(exp(-fabs(x)));
}
template <class real> HD real mish_of(real x) { /* tanh(softplus(x)) */
  const real e = exp(x > 20 ? (real)20 : x), n = e * (e + 2);
  return x > 20 ? (real)1 : n / (n + 2);
}
template <class real> HD real mish_slope(real x) {
  const real t = mish_of(x);
  return t + MOTH_WITHIN(x, (real)1000) * moth_sigmoid(x) * (1 - t * t);
}
template <class real> HD real logit_of(real x) { return log(x / (1 - x)); }
template <class real> HD real moth_log1p_unit(real t) { return log1p(t); }

/* -- the functions of core/kernel/special_*.h, computed in f64 for every dtype -- */

template <class real> HD real moth_erfinv(real x) { return (real)moth_erfinv_single((double)x); }
template <class real> HD real moth_lgamma(real x) { return lgamma(x); }
template <class real> HD real moth_digamma(real x) { return (real)moth_digamma_f64((double)x); }
template <class real> HD real moth_polygamma(real n, real x) {
  return (real)moth_polygamma_f64((double)n, (double)x);
}
#define OF_ONE(f) \
  template <class real> HD real moth_##f(real x) { return (real)moth_##f##_f64((double)x); }
OF_ONE(erfcx) OF_ONE(log_ndtr) OF_ONE(ndtri) OF_ONE(i0) OF_ONE(i0e) OF_ONE(i1) OF_ONE(i1e)
#define OF_TWO(f)                                            \
  template <class real> HD real moth_##f(real a, real x) {   \
    return (real)moth_##f##_f64((double)a, (double)x);       \
  }
OF_TWO(erfcx_slope) OF_TWO(log_ndtr_slope) OF_TWO(zeta)
OF_TWO(igamma) OF_TWO(igammac) OF_TWO(gamma_slope)

#define OF_THREE(f)                                                      \
  template <class real> HD real moth_##f(real a, real b, real x) {       \
    return (real)moth_##f##_f64((double)a, (double)b, (double)x);        \
  }
OF_THREE(bessel) OF_THREE(sinc_slope)

/* -- quotients, remainders and powers, as in core/kernel/math/arith.c -- */

HD int64_t rest_trunc(int64_t x, int64_t y) { return y == -1 || y == 0 ? 0 : x % y; }
HD int64_t trunc_div(int64_t x, int64_t y) {
  if (y == -1) return (int64_t)(0 - (uint64_t)x);
  return y == 0 ? 0 : x / y;
}
HD int64_t floor_div(int64_t x, int64_t y) {
  if (y == -1 || y == 0) return trunc_div(x, y);
  return x / y - ((x % y != 0) & ((x < 0) != (y < 0)));
}
HD int64_t rest_floor(int64_t x, int64_t y) {
  const int64_t r = rest_trunc(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
template <class real> HD real rest(real x, real y) {
  const real r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
template <class real> HD real quotient(real x, real y) {
  if (y == 0) return x / y;
  const real r = fmod(x, y);
  real q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysign((real)0, x / y);
  const real whole = floor(q);
  return q - whole > (real)0.5 ? whole + 1 : whole;
}
HD int64_t common_divisor(int64_t x, int64_t y) {
  uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y;
  while (b) {
    const uint64_t r = a % b;
    a = b, b = r;
  }
  return (int64_t)a;
}
HD int64_t common_multiple(int64_t x, int64_t y) {
  const int64_t divisor = common_divisor(x, y);
  const uint64_t product = divisor ? (uint64_t)(x / divisor) * (uint64_t)y : 0;
  return (int64_t)product < 0 ? (int64_t)(0 - product) : (int64_t)product;
}
HD int64_t power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = (uint64_t)x;
  for (; y; y >>= 1, square *= square)
    if (y & 1) result *= square;
  return (int64_t)result;
}

#endif
