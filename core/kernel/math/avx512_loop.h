/* avx512_loop.h -- loops over AVX-512 vectors, for elements with any strides. LOOP(f) defines
** moth_f_wide (avx512.h) from `vector wide_f(vector x)`.
*/
#ifndef MOTH_KERNEL_AVX512_LOOP_H
#define MOTH_KERNEL_AVX512_LOOP_H

#include "avx512.h"

#if MOTH_HAS_LEVELS

#include <immintrin.h>
#include <string.h>

#define LANES 16

typedef float vector __attribute__((vector_size(64)));
typedef float loose __attribute__((vector_size(64), aligned(4), may_alias));
#define AT(p) (*(const loose *)(const void *)(p))
#define EACH(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c) /* for files in which compilers must not fuse */
#define LOOKUP(t, i) _mm512_permutex2var_ps(AT(t), i, AT((t) + LANES)) /* t[i % 32] */

/* Strided elements, and elements after the last whole vector, are copied through a buffer. */
#define LOOP(f)                                                                               \
  MOTH_AVX512 void moth_##f##_wide(int64_t n, char *const *at, const int64_t *step,           \
                                   const void *arg) {                                         \
    char *to = at[0];                                                                         \
    const char *from = at[1];                                                                 \
    const int64_t dt = step[0], df = step[1];                                                 \
    int64_t i = 0;                                                                            \
    (void)arg;                                                                                \
    if (dt == sizeof(float) && df == sizeof(float))                                           \
      for (; i + LANES <= n; i += LANES)                                                      \
        *(loose *)(void *)(to + i * dt) = wide_##f(AT(from + i * df));                        \
    for (; i < n; i += LANES) {                                                               \
      const int64_t some = n - i < LANES ? n - i : LANES;                                     \
      float part[LANES] = {0};                                                                \
      for (int64_t j = 0; j < some; j++) memcpy(&part[j], from + (i + j) * df, sizeof *part); \
      *(loose *)(void *)part = wide_##f(AT(part));                                            \
      for (int64_t j = 0; j < some; j++) memcpy(to + (i + j) * dt, &part[j], sizeof *part);   \
    }                                                                                         \
  }

#endif

#endif
