/* exp.h -- exp, the logistic function and tanh; in f32 as plain arithmetic, so that loops over
** them vectorise: a few units in the last place; NaN passes.
*/
#ifndef MOTH_KERNEL_EXP_H
#define MOTH_KERNEL_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* exp for results up to a few: Cephes' polynomial after reduction by ln 2 in two parts, 1 ulp;
** below -87.3 it gives 1.2e-38 at most. */
static inline float moth_exp_f32(float x) {
  float c = x < -87.3f ? -87.3f : x; /* NaN passes */
  c = c > 88.0f ? 88.0f : c;
  float n = c * 1.44269504f + 12582912.0f; /* rounds to an integer in the low bits */
  uint32_t bits;
  memcpy(&bits, &n, 4);
  n -= 12582912.0f;
  float r = c - n * 0.693145751953125f - n * 1.42860677e-6f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  float y = p * r * r + r + 1.0f;
  uint32_t scaled;
  memcpy(&scaled, &y, 4);
  scaled += bits << 23;
  memcpy(&y, &scaled, 4);
  return x < -87.3f ? 0 : x != x ? x : y;
}

static inline float moth_sigmoid_f32(float x) {
  float e = moth_exp_f32(x < 0 ? x : -x), s = 1.0f / (1.0f + e);
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
  float near = p * z * x + x, far = 1.0f - 2.0f / (moth_exp_f32(a + a) + 1.0f);
  far = x < 0 ? -far : far;
  return a < 0.625f ? near : far;
}

static inline float moth_log_f32(float x) { return logf(x); }

static inline double moth_exp_f64(double x) { return exp(x); }
static inline double moth_log_f64(double x) { return log(x); }
static inline double moth_sigmoid_f64(double x) { return 1 / (1 + exp(-x)); }
static inline double moth_tanh_f64(double x) { return tanh(x); }

#endif
