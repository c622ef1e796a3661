/* tile.c -- the f32 tile for AVX-512 and AVX2, and the choice between them at run time. */
#include "tile.h"

#include <stddef.h>

#if defined(__x86_64__) && defined(__GNUC__)

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define LEVEL "AVX-512"
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma")))
#define NAME(f) f##_avx512
#define LANES 16
#define ROWS 12
#define TAPS 8
#include "tile_level.h"
#undef LEVEL
#undef TARGET
#undef NAME
#undef LANES
#undef ROWS
#undef TAPS

#define LEVEL "AVX2"
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(f) f##_avx2
#define LANES 8
#define ROWS 6
#define TAPS 6
#include "tile_level.h"

const moth_tile *moth_tile_best(void) {
  bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  return fma && wide ? &tile_avx512 : fma ? &tile_avx2 : NULL;
}

#else

const moth_tile *moth_tile_best(void) { return NULL; }

#endif
