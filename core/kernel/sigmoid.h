/* sigmoid.h -- the logistic function and tanh, in f32 as plain arithmetic, so that loops over them
** vectorise: a few units in the last place; NaN passes.
*/
#ifndef MOTH_KERNEL_SIGMOID_H
#define MOTH_KERNEL_SIGMOID_H

#include <math.h>

#include "exp_small.h"

static inline float moth_sigmoid_f32(float x) {
  float e = exp_small(x < 0 ? x : -x), s = 1.0f / (1.0f + e);
  return x < 0 ? e * s : s;
}

/* Cephes' polynomial near 0, elsewhere by exp. */
static inline float moth_tanh_f32(float x) {
  float a = x < 0 ? -x : x, z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  float near = p * z * x + x, far = 1.0f - 2.0f / (exp_small(a + a) + 1.0f);
  far = x < 0 ? -far : far;
  return a < 0.625f ? near : far;
}

static inline double moth_sigmoid_f64(double x) { return 1 / (1 + exp(-x)); }
static inline double moth_tanh_f64(double x) { return tanh(x); }

#endif
