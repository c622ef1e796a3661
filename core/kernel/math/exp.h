/* exp.h -- exp, log, sigmoid, tanh and erf in f32 without branches, so that compilers vectorize
** loops over them at every level of instructions. NaN propagates. functions.h has the other f32
** functions, exp_f64.h those in f64.
**
** Errors, measured over all floats in steps: exp 1.0 units in the last place, log 0.9, tanh 0.9,
** sigmoid 2.7, erf 1.5. Some polynomials are from Cephes (S. Moshier), the others are fitted to the
** range in their comment.
*/
#ifndef MOTH_KERNEL_EXP_H
#define MOTH_KERNEL_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__) /* GPU kernels include tensor/half.h and distributions.h before this file */
#define MOTH_INLINE static __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define MOTH_INLINE static inline __attribute__((always_inline))
#else
#define MOTH_INLINE static inline
#endif

MOTH_INLINE uint32_t moth_bits_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

MOTH_INLINE float moth_float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

MOTH_INLINE float moth_abs_f32(float x) { return moth_float_of(moth_bits_f32(x) & 0x7fffffffu); }

/* y >= 0 with the sign of x; the sign of -0 counts. */
MOTH_INLINE float moth_signed_f32(float y, float x) {
  return moth_float_of(moth_bits_f32(y) | (moth_bits_f32(x) & 0x80000000u));
}

/* -- exp: overflow and underflow are selected at the end, where this costs least -- */

/* exp(x) = (1 + t) 2^n for |x| up to 104. Returns t. The low bits of *n become n + bias. */
MOTH_INLINE float moth_exp_parts(float x, uint32_t bias, uint32_t *n) {
  const float shift = 12582912.0f + (float)bias; /* rounds to an integer in the low bits */
  float whole = x * 1.44269504f + shift;
  *n = moth_bits_f32(whole);
  whole -= shift;
  float r = x - whole * 0.693145751953125f - whole * 1.42860677e-6f;
  float p = 1.38145813e-3f;
  p = p * r + 8.36872589e-3f;
  p = p * r + 4.1668389e-2f;
  p = p * r + 1.66665211e-1f;
  p = p * r + 4.9999994e-1f;
  return p * (r * r) + r;
}

/* (1 + t) 2^n for any n from -150 to 128, with bias 254. Multiplies by two powers, so that only the
** last product rounds. */
MOTH_INLINE float moth_exp_join(float t, uint32_t n) {
  uint32_t half = n >> 1;
  float a = moth_float_of(half << 23);
  return (t * a + a) * moth_float_of((n - half) << 23);
}

/* exp for x up to 88, for softmax. Below -87.3 it returns 0. */
MOTH_INLINE float moth_exp_f32(float x) {
  uint32_t n;
  float t = moth_exp_parts(x, 127, &n), scale = moth_float_of(n << 23);
  float y = t * scale + scale;
  return x < -87.3f ? 0 : y;
}

/* exp for any x, with subnormal results and overflow. */
MOTH_INLINE float moth_full_exp_f32(float x) {
  uint32_t n;
  float t = moth_exp_parts(x, 254, &n), y = moth_exp_join(t, n);
  y = x < -104.0f ? 0 : y;
  return x > 88.75f ? INFINITY : y;
}

/* exp(x) - 1 for x up to 88; at most 1.5 units in the last place. */
MOTH_INLINE float moth_less_one_f32(float x) {
  uint32_t n;
  float t = moth_exp_parts(x, 127, &n), scale = moth_float_of(n << 23);
  float y = t * scale + (scale - 1.0f);
  return x < -87.3f ? -1.0f : y;
}

/* sigmoid(x); *other := sigmoid(-x). */
MOTH_INLINE float moth_sigmoids_f32(float x, float *other) {
  float e = moth_full_exp_f32(-moth_abs_f32(x)), s = 1.0f / (1.0f + e);
  *other = x < 0 ? s : e * s;
  return x < 0 ? e * s : s;
}

MOTH_INLINE float moth_sigmoid_f32(float x) {
  float other;
  return moth_sigmoids_f32(x, &other);
}

/* Near 0 Cephes' polynomial; elsewhere 1 - 2 / (exp(2 a) + 1), corrected for the errors of the sum
** and of the division. Above 10 tanh is 1; the code computes it near 10, because subnormal products
** take processors 10 times as long. (gcc would move a plain selection of 10 after the
** computation.) */
MOTH_INLINE float moth_tanh_f32(float x) {
  float a = moth_abs_f32(x), z = a * a, over = (a + a) - 20.0f;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  float near = p * z * a + a;
  uint32_t n;
  float t = moth_exp_parts((a + a) - (over > 0 ? over : 0), 127, &n);
  float scale = moth_float_of(n << 23), y = 1.0f + t, rest = t - (y - 1.0f);
  float e = y * scale, d = e + 1.0f;
  float low = 1.0f - (d - e) + rest * scale;
  float q = 2.0f / d, off = ((2.0f - q * d) - q * low) * 0.5f * q;
  float h = 1.0f - q, far = h + (((1.0f - h) - q) - off);
  far = a > 10.0f ? 1.0f : far;
  return moth_signed_f32(a < 0.625f ? near : far, x);
}

/* -- log -- */

/* log(1 + f) = f - f^2 / 2 + f^3 p(f), with Cephes' p. */
MOTH_INLINE float moth_log_series(float f) {
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  return p;
}

/* log(m 2^e) for normal x, where m = 1 + f is in [sqrt(1/2), sqrt(2)). */
MOTH_INLINE float moth_log_f32(float x) {
  float up = x < 1.17549435e-38f ? x * 8388608.0f : x;
  uint32_t shifted = moth_bits_f32(up) - 0x3f3504f3u; /* the exponent counts from sqrt(1/2) */
  float e = (float)((int32_t)shifted >> 23);
  e = x < 1.17549435e-38f ? e - 23.0f : e;
  float f = moth_float_of((shifted & 0x7fffffu) + 0x3f3504f3u) - 1.0f, z = f * f;
  float y = f * z * moth_log_series(f) + e * -2.12194440e-4f - 0.5f * z;
  y = f + y + e * 0.693359375f;
  y = x < INFINITY ? y : x; /* selects NaN, too */
  y = x == 0 ? -INFINITY : y;
  return x < 0 ? NAN : y;
}

/* -- the error function and the normal distribution -- */

/* erfc(a) exp(a^2) / 2 for a from 0 to 9.5, where exp(-a^2) underflows: a polynomial in t = 1 / (1
** + 0.4 a), relative error 1e-7. */
MOTH_INLINE float moth_half_erfcx_f32(float t) {
  float p = 0.0361530087f;
  p = p * t - 0.194335066f;
  p = p * t + 0.340736565f;
  p = p * t - 0.191609113f;
  p = p * t + 0.212808867f;
  p = p * t + 0.0635533096f;
  p = p * t + 0.120667058f;
  p = p * t + 0.111985638f;
  p = p * t + 3.9682476e-05f;
  return p;
}

MOTH_INLINE float moth_erf_f32(float x) {
  float a = moth_abs_f32(x), z = a * a;
  float p = 7.8538576828771311e-05f;
  p = p * z - 8.0101925139109591e-4f;
  p = p * z + 5.1883275592671313e-3f;
  p = p * z - 2.6853811868744731e-2f;
  p = p * z + 1.1283585147023259e-1f;
  p = p * z - 3.7612625824092843e-1f;
  float near = p * z * a + 0.12837916572669f * a + a;
  float half = moth_half_erfcx_f32(1.0f / (1.0f + 0.4f * a)) * moth_exp_f32(-a * a);
  float far = 1.0f - (half + half);
  return moth_signed_f32(a < 1.0f ? near : far, x);
}

/* The normal distribution's tail above |x|; *bell := exp(-x^2 / 2). */
MOTH_INLINE float moth_tail_f32(float x, float *bell) {
  float a = moth_abs_f32(x);
  *bell = moth_exp_f32(-0.5f * (x * x));
  return *bell * moth_half_erfcx_f32(1.0f / (1.0f + 0.28284271247461901f * a));
}

/* Returns P(x^2); *below := Q(x^2). 1/2 + x P / Q is the normal distribution function, within 2e-7.
** Fitted up to |x| = 5.2; the caller clamps to 0 and 1. */
MOTH_INLINE float moth_share_terms_f32(float x, float *below) {
  float z = x * x;
  z = z > 27.04f ? 27.04f : z;
  float p = 2.47311596e-08f;
  p = p * z + 6.40788992e-06f;
  p = p * z + 0.000156861419f;
  p = p * z + 0.00460864424f;
  p = p * z + 0.0325445362f;
  p = p * z + 0.398942261f;
  float q = 1.25886951e-06f;
  q = q * z + 7.04960578e-05f;
  q = q * z + 0.00181720166f;
  q = q * z + 0.0279266797f;
  q = q * z + 0.248243397f;
  *below = q * z + 1.0f;
  return p;
}

/* x times the normal distribution function; takes half of the steps of moth_tail_f32. For
** derivatives. */
MOTH_INLINE float moth_gelu_f32(float x) {
  float q, p = moth_share_terms_f32(x, &q), share = 0.5f + x * (p / q);
  share = share < 0 ? 0 : share;
  share = share > 1 ? 1 : share;
  return x * share;
}

#endif
