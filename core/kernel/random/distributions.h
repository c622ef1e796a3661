/* distributions.h -- converts random words to uniform and normal numbers, for the CPU's loops and
** the GPU's kernels.
**
** Only +, -, *, / and sqrt in fixed formulas, built without contraction: every machine and device
** computes the same bits. log is the series of Cephes for f32 and of atanh for f64. The angle of
** Box and Muller is a quadrant (two bits) and a fraction within it, whose sine and cosine are
** polynomials on [-pi/4, pi/4).
*/
#ifndef MOTH_KERNEL_DISTRIBUTIONS_H
#define MOTH_KERNEL_DISTRIBUTIONS_H

#include "kernel/math/exp.h"

MOTH_INLINE uint64_t moth_word_pair(const uint32_t *words) {
  return (uint64_t)words[1] << 32 | words[0];
}

/* Uniform in [0, 1), and uniform in (0, 1). */
MOTH_INLINE double moth_unit_f64(const uint32_t *words) {
  return (double)(int64_t)(moth_word_pair(words) >> 11) * 0x1p-53;
}
MOTH_INLINE double moth_inner_unit_f64(const uint32_t *words) {
  return ((double)(int64_t)(moth_word_pair(words) >> 11) + 0.5) * 0x1p-53;
}

/* An integer below `range`; range = 0 means 2^64. */
MOTH_INLINE uint64_t moth_below(uint64_t range, const uint32_t *words) {
  if (range == 0) return moth_word_pair(words);
  if (range <= UINT32_MAX) return (words[1] * range + (words[0] * range >> 32)) >> 32;
  uint64_t low = (uint64_t)words[0] * (uint32_t)range, high = (uint64_t)words[1] * (uint32_t)range;
  uint64_t low2 = (uint64_t)words[0] * (range >> 32), high2 = (uint64_t)words[1] * (range >> 32);
  uint64_t mid = (low >> 32) + (uint32_t)high + (uint32_t)low2;
  return high2 + (high >> 32) + (low2 >> 32) + (mid >> 32);
}

/* -- f32 -- */

/* -2 log(x) for normal x in (0, 1]. */
MOTH_INLINE float moth_minus_2_log_f32(float x) {
  uint32_t shifted = moth_bits_f32(x) - 0x3f3504f3u; /* the exponent counts from sqrt(1/2) */
  float e = (float)((int32_t)shifted >> 23);
  float f = moth_float_of((shifted & 0x7fffffu) + 0x3f3504f3u) - 1.0f, z = f * f;
  float y = f * z * moth_log_series(f) + e * -2.12194440e-4f - 0.5f * z;
  return -2.0f * (f + y + e * 0.693359375f);
}

/* Two words become two normal values. */
MOTH_INLINE void moth_two_normals_f32(const uint32_t *words, float *out) {
  /* (w + 1/2) / 2^32, from halves that convert exactly */
  float high = (float)(int32_t)(words[0] >> 16), low = (float)(int32_t)(words[0] & 0xffffu);
  float u = high * 0x1p-16f + (low * 0x1p-32f + 0x1p-33f);
  uint32_t angle = words[1], quadrant = angle >> 30;
  float a = (float)((int32_t)(angle & 0x3fffffffu) - 0x20000000) * 1.4629180792671596e-9f;
  float z = a * a;
  float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
  float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) *
            z * z - 0.5f * z + 1.0f;
  float r = sqrtf(moth_minus_2_log_f32(u));
  if (quadrant & 2) r = -r;
  out[0] = r * (quadrant & 1 ? s : c);
  out[1] = r * (quadrant & 1 ? c : s);
}

/* -- f64 -- */

/* -2 log(x) for normal x in (0, 1]: log m = 2 atanh((m - 1) / (m + 1)). */
MOTH_INLINE double moth_minus_2_log_f64(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  uint64_t shifted = bits - 0x3fe6a09e667f3bcdu;
  double e = (double)(int32_t)((int64_t)shifted >> 52);
  bits = (shifted & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu;
  memcpy(&x, &bits, 8);
  double s = (x - 1.0) / (x + 1.0), z = s * s, p = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) p = p * z + 1.0 / k;
  double log = 2.0 * (s + s * z * p);
  return -2.0 * (log + e * 1.90821492927058770002e-10 + e * 6.93147180369123816490e-1);
}

/* sin a and cos a for a in [-pi/4, pi/4): Taylor to degrees 17 and 18. */
MOTH_INLINE void moth_sincos_f64(double a, double *sin_a, double *cos_a) {
  double z = a * a, s = 1.0 / 355687428096000.0, c = -1.0 / 6402373705728000.0;
  s = s * z - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  c = c * z + 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 1.0 / 2.0;
  *sin_a = s * z * a + a;
  *cos_a = c * z + 1.0;
}

/* Four words become two normal values. */
MOTH_INLINE void moth_two_normals_f64(const uint32_t *words, double *out) {
  double u = moth_inner_unit_f64(words), s, c;
  uint64_t angle = moth_word_pair(words + 2), quadrant = angle >> 62;
  int64_t fraction = (int64_t)(angle << 2 >> 11) - ((int64_t)1 << 52);
  moth_sincos_f64((double)fraction * 0x1p-52 * 0.78539816339744830962, &s, &c); /* pi / 4 */
  double r = sqrt(moth_minus_2_log_f64(u));
  if (quadrant & 2) r = -r;
  out[0] = r * (quadrant & 1 ? s : c);
  out[1] = r * (quadrant & 1 ? c : s);
}

#endif
