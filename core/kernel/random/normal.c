/* normal.c -- uniform, normal and exponential numbers from random words, by the formulas of
** distributions.h.
*/
#include "normal.h"

#include "distributions.h"
#include "kernel/level.h"

/* -- uniform -- */

MOTH_INLINE void uniform_f32(int64_t n, const uint32_t *words, int bits, float *out) {
  const float unit = 1.0f / (float)(1u << bits);
  for (int64_t i = 0; i < n; i++) out[i] = (float)(int32_t)(words[i] >> (32 - bits)) * unit;
}

void moth_uniform_f64(int64_t n, const uint32_t *words, double *out) {
  for (int64_t i = 0; i < n; i++)
    out[i] = moth_unit_f64(words + 2 * i);
}

/* -- normal -- */

MOTH_INLINE void normal_f32(int64_t n, const uint32_t *words, float *out) {
  for (int64_t i = 0; i + 1 < n; i += 2) moth_two_normals_f32(words + i, out + i);
}

MOTH_INLINE void normal_f64(int64_t n, const uint32_t *words, double *out) {
  for (int64_t i = 0; i + 1 < n; i += 2) moth_two_normals_f64(words + 2 * i, out + i);
}

/* -- for several levels of instructions; the build does not fuse multiply and add at any level
** -- */

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
    out[i] = 0.5 * moth_minus_2_log_f64(moth_inner_unit_f64(words + 2 * i));
}

/* -- scale and shift -- */

void moth_affine_f32(int64_t n, double mul, double add, float *x) {
  const float m = (float)mul, b = (float)add;
  for (int64_t i = 0; i < n; i++) x[i] = b + m * x[i];
}

void moth_affine_f64(int64_t n, double mul, double add, double *x) {
  for (int64_t i = 0; i < n; i++) x[i] = add + mul * x[i];
}
