/* curves.h -- activation functions that need more than one expression, and their derivatives, for
** f32 and f64: softplus_of_f32(x) and so on. They do not overflow unless the result does, and small
** results do not lose digits in a difference 1 - 1.
*/
#ifndef MOTH_KERNEL_CURVES_H
#define MOTH_KERNEL_CURVES_H

#include "real_math.h"

/* x, clamped to where the curves have reached their limits, so that its powers do not overflow. */
#define MOTH_WITHIN(x, bound) ((x) < -(bound) ? -(bound) : (x) > (bound) ? (bound) : (x))
/* Far below 0, x times a number that underflows must be 0, but -infinity times 0 is NaN. Clamps
** x. */
#define MOTH_FROM_BELOW(x) ((x) < -1000 ? -1000 : (x))

#define MOTH_CURVES(name, real, wide)                                                    \
  MOTH_INLINE real softplus_of_##name(real x) { /* log(1 + exp(x)) */                    \
    real more = x < 0 ? 0 : x; /* NaN stays */                                           \
    return more + moth_log1p_unit_##name(moth_full_exp_##name(-moth_abs_##name(x)));     \
  }                                                                                      \
  MOTH_INLINE real logsigmoid_of_##name(real x) { /* -softplus(-x), and 0 far above 0 */ \
    real less = x > 0 ? 0 : x;                                                           \
    return less - moth_log1p_unit_##name(moth_full_exp_##name(-moth_abs_##name(x)));     \
  }                                                                                      \
  MOTH_INLINE real gelu_slope_of_##name(real x) {                                        \
    real bell, z = MOTH_WITHIN(x, (real)100), tail = moth_tail_##name(z, &bell);         \
    return (x > 0 ? 1 - tail : tail) + z * ((real)0.39894228040143267794 * bell);        \
  }                                                                                      \
  /* gelu's tanh(u) is 2 sigmoid(2 u) - 1. This is 2 u. */                               \
  MOTH_INLINE real gelu_angle_##name(real x) {                                           \
    const real z = MOTH_WITHIN(x, (real)30);                                             \
    return (real)1.5957691216057307117 * (z + (real)0.044715 * z * z * z);               \
  }                                                                                      \
  MOTH_INLINE real gelu_tanh_slope_##name(real x) {                                      \
    real other, s = moth_sigmoids_##name(gelu_angle_##name(x), &other);                  \
    const real z = MOTH_WITHIN(x, (real)30);                                             \
    real turn = (real)1.5957691216057307117 * (1 + (real)0.134145 * z * z);              \
    return s + z * s * other * turn;                                                     \
  }                                                                                      \
  MOTH_INLINE real silu_slope_##name(real x) {                                           \
    real other, s = moth_sigmoids_##name(x, &other);                                     \
    return s * (1 + MOTH_WITHIN(x, (real)1000) * other);                                 \
  }                                                                                      \
  MOTH_INLINE real mish_of_##name(real x) { /* tanh(softplus(x)) */                      \
    real e = moth_full_exp_##name(x > 20 ? 20 : x), n = e * (e + 2);                     \
    return x > 20 ? 1 : n / (n + 2);                                                     \
  }                                                                                      \
  MOTH_INLINE real mish_slope_##name(real x) {                                           \
    real t = mish_of_##name(x);                                                          \
    return t + MOTH_WITHIN(x, (real)1000) * moth_sigmoid_##name(x) * (1 - t * t);        \
  }                                                                                      \
  MOTH_INLINE real logit_of_##name(real x) { return moth_log_##name(x / (1 - x)); }
MOTH_EACH_FLOAT(MOTH_CURVES)

#endif
