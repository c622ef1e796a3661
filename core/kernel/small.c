/* small.c -- batches of small matrices in f32 and f64, for every level of instructions. */
#include "small.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LOOPS "kernel/small_real.h"
#include "each_level.h"

#if MOTH_HAS_LEVELS
#define REAL double
#define TARGET MOTH_AVX2
#define NAME(f) f##_f64_avx2
#include "small_real.h"
#undef TARGET
#undef NAME
#define TARGET MOTH_AVX512
#define NAME(f) f##_f64_avx512
#include "small_real.h"
#endif
#define small_f64_f32 small_f64 /* the name that MOTH_BEST uses on machines without levels */

const moth_small *moth_small_loops(bool wide) {
  return wide ? MOTH_BEST(&small_f64) : MOTH_BEST(&small);
}
