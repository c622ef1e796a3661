/* curves.h -- activation curves that need more than one expression, and their slopes, for f32 and
** f64: sigmoid_of_f32(x) and so on, by the C library's exp. None of them overflows where its value
** does not, nor loses a tail to 1 - 1. exp.h has faster ones.
*/
#ifndef MOTH_KERNEL_CURVES_H
#define MOTH_KERNEL_CURVES_H

#include <tgmath.h>

#include "elementwise.h"

#define MOTH_CURVES(name, real, wide)                                               \
  static inline real sigmoid_of_##name(real x) {                                    \
    real e = exp(-fabs(x));                                                         \
    return (x < 0 ? e : 1) / (1 + e);                                               \
  }                                                                                 \
  static inline real softplus_of_##name(real x) { /* log(1 + exp(x)) */             \
    return (x < 0 ? 0 : x) + log1p(exp(-fabs(x)));                                  \
  }                                                                                 \
  static inline real normal_of_##name(real x) { /* its distribution function */     \
    return (real)0.5 * erfc(x * (real)-0.70710678118654752440);                     \
  }                                                                                 \
  static inline real bell_of_##name(real x) { /* and density */                     \
    return (real)0.39894228040143267794 * exp((real)-0.5 * x * x);                  \
  }                                                                                 \
  /* gelu's tanh(u) is 2 sigmoid(2 u) - 1; this is 2 u, and below its slope */      \
  static inline real gelu_angle_##name(real x) {                                    \
    return (real)1.5957691216057307117 * (x + (real)0.044715 * x * x * x);          \
  }                                                                                 \
  static inline real gelu_slope_##name(real x) {                                    \
    real s = sigmoid_of_##name(gelu_angle_##name(x));                               \
    real turn = (real)1.5957691216057307117 * (1 + (real)0.134145 * x * x);         \
    return s + x * s * (1 - s) * turn;                                              \
  }                                                                                 \
  static inline real mish_of_##name(real x) { /* tanh(softplus(x)) */               \
    if (x > 20) return 1;                                                           \
    real e = exp(x), n = e * (e + 2);                                               \
    return n / (n + 2);                                                             \
  }                                                                                 \
  static inline real mish_slope_##name(real x) {                                    \
    real t = mish_of_##name(x);                                                     \
    return t + x * sigmoid_of_##name(x) * (1 - t * t);                              \
  }                                                                                 \
  static inline real sinc_of_##name(real x) {                                       \
    real angle = (real)3.1415926535897932385 * x;                                   \
    return x == 0 ? 1 : sin(angle) / angle;                                         \
  }                                                                                 \
  static inline real logit_of_##name(real x) { return log(x / (1 - x)); }
MOTH_EACH_FLOAT(MOTH_CURVES)

#endif
