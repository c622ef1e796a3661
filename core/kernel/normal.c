/* normal.c -- uniform and normal numbers from random words.
**
** Only +, -, *, / and sqrt on fixed formulas, built without contraction: every machine and device
** gets the same bits. log is the series of Cephes for f32 and that of atanh for f64; the angle of
** Box and Muller comes as a quadrant (two bits) and a fraction within it, whose sine and cosine
** are polynomials on [-pi/4, pi/4).
*/
#include "normal.h"

#include <math.h>
#include <string.h>

#include "exp.h"
#include "level.h"

#if defined(__GNUC__)
#define INLINE __attribute__((always_inline))
#else
#define INLINE
#endif
/* -- uniform -- */

static inline INLINE void uniform_f32(int64_t n, const uint32_t *words, int bits, float *out) {
  const float unit = 1.0f / (float)(1u << bits);
  for (int64_t i = 0; i < n; i++) out[i] = (float)(int32_t)(words[i] >> (32 - bits)) * unit;
}

static inline INLINE uint64_t pair(const uint32_t *words) {
  return (uint64_t)words[1] << 32 | words[0];
}

void moth_uniform_f64(int64_t n, const uint32_t *words, double *out) {
  for (int64_t i = 0; i < n; i++)
    out[i] = (double)(int64_t)(pair(words + 2 * i) >> 11) * 0x1p-53;
}

/* -- f32 -- */

/* -2 log(x) for normal x in (0, 1]. */
static inline INLINE float minus_2_log_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint32_t shifted = bits - 0x3f3504f3u; /* exponent counts from sqrt(1/2) */
  int32_t exponent = (int32_t)shifted >> 23;
  bits = (shifted & 0x7fffffu) + 0x3f3504f3u;
  memcpy(&x, &bits, 4);
  float f = x - 1.0f, z = f * f, e = (float)exponent;
  float y = f * z * moth_log_series(f) + e * -2.12194440e-4f - 0.5f * z;
  return -2.0f * (f + y + e * 0.693359375f);
}

static inline INLINE void normal_f32(int64_t n, const uint32_t *words, float *out) {
  for (int64_t i = 0; i + 1 < n; i += 2) {
    /* (w + 1/2) / 2^32, from halves that convert exactly */
    float high = (float)(int32_t)(words[i] >> 16), low = (float)(int32_t)(words[i] & 0xffffu);
    float u = high * 0x1p-16f + (low * 0x1p-32f + 0x1p-33f);
    uint32_t angle = words[i + 1], quadrant = angle >> 30;
    float a = (float)((int32_t)(angle & 0x3fffffffu) - 0x20000000) * 1.4629180792671596e-9f;
    float z = a * a;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
    float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) *
              z * z - 0.5f * z + 1.0f;
    float r = sqrtf(minus_2_log_f32(u));
    if (quadrant & 2) r = -r;
    out[i] = r * (quadrant & 1 ? s : c);
    out[i + 1] = r * (quadrant & 1 ? c : s);
  }
}

/* -- f64 -- */

/* -2 log(x) for normal x in (0, 1]: log m = 2 atanh((m - 1) / (m + 1)). */
static inline INLINE double minus_2_log_f64(double x) {
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
static inline INLINE void sincos_f64(double a, double *sin_a, double *cos_a) {
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

static inline INLINE void normal_f64(int64_t n, const uint32_t *words, double *out) {
  static const double quarter = 0.78539816339744830962; /* pi / 4 */
  for (int64_t i = 0; i + 1 < n; i += 2) {
    double u = ((double)(int64_t)(pair(words + 2 * i) >> 11) + 0.5) * 0x1p-53, s, c;
    uint64_t angle = pair(words + 2 * i + 2), quadrant = angle >> 62;
    int64_t fraction = (int64_t)(angle << 2 >> 11) - ((int64_t)1 << 52);
    sincos_f64((double)fraction * 0x1p-52 * quarter, &s, &c);
    double r = sqrt(minus_2_log_f64(u));
    if (quadrant & 2) r = -r;
    out[i] = r * (quadrant & 1 ? s : c);
    out[i + 1] = r * (quadrant & 1 ? c : s);
  }
}

/* -- both, for several levels of instructions; the build keeps multiply and add apart in all -- */

#if MOTH_HAS_LEVELS

#define LEVEL(name, features)                                                             \
  __attribute__((target(features))) static void normal_f32_##name(                        \
      int64_t n, const uint32_t *words, float *out) {                                     \
    normal_f32(n, words, out);                                                            \
  }                                                                                       \
  __attribute__((target(features))) static void normal_f64_##name(                        \
      int64_t n, const uint32_t *words, double *out) {                                    \
    normal_f64(n, words, out);                                                            \
  }                                                                                       \
  __attribute__((target(features))) static void uniform_f32_##name(                       \
      int64_t n, const uint32_t *words, int bits, float *out) {                           \
    uniform_f32(n, words, bits, out);                                                     \
  }
LEVEL(avx2, "avx2")
LEVEL(avx512, "avx512f,avx512dq,avx512vl,avx512bw")

void moth_normal_f32(int64_t n, const uint32_t *words, float *out) {
  int best = moth_level();
  if (best == MOTH_LEVEL_AVX512) normal_f32_avx512(n, words, out);
  else if (best == MOTH_LEVEL_AVX2) normal_f32_avx2(n, words, out);
  else normal_f32(n, words, out);
}

void moth_uniform_f32(int64_t n, const uint32_t *words, int bits, float *out) {
  int best = moth_level();
  if (best == MOTH_LEVEL_AVX512) uniform_f32_avx512(n, words, bits, out);
  else if (best == MOTH_LEVEL_AVX2) uniform_f32_avx2(n, words, bits, out);
  else uniform_f32(n, words, bits, out);
}

void moth_normal_f64(int64_t n, const uint32_t *words, double *out) {
  int best = moth_level();
  if (best == MOTH_LEVEL_AVX512) normal_f64_avx512(n, words, out);
  else if (best == MOTH_LEVEL_AVX2) normal_f64_avx2(n, words, out);
  else normal_f64(n, words, out);
}

#else

void moth_uniform_f32(int64_t n, const uint32_t *words, int bits, float *out) {
  uniform_f32(n, words, bits, out);
}
void moth_normal_f32(int64_t n, const uint32_t *words, float *out) { normal_f32(n, words, out); }
void moth_normal_f64(int64_t n, const uint32_t *words, double *out) { normal_f64(n, words, out); }

#endif

/* -- exponential -- */

void moth_exponential_f64(int64_t n, const uint32_t *words, double *out) {
  for (int64_t i = 0; i < n; i++)
    out[i] = 0.5 * minus_2_log_f64(((double)(int64_t)(pair(words + 2 * i) >> 11) + 0.5) * 0x1p-53);
}

/* -- scale and shift -- */

void moth_affine_f32(int64_t n, double mul, double add, float *x) {
  const float m = (float)mul, b = (float)add;
  for (int64_t i = 0; i < n; i++) x[i] = b + m * x[i];
}

void moth_affine_f64(int64_t n, double mul, double add, double *x) {
  for (int64_t i = 0; i < n; i++) x[i] = add + mul * x[i];
}
