/* tile.c -- the f32 tile for AVX-512 and AVX2, and the choice between them at run time. */
#include "tile.h"

#include <stddef.h>

#include "level.h"

#if MOTH_HAS_LEVELS

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define LEVEL "AVX-512"
#define TARGET MOTH_AVX512
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
#define TARGET MOTH_AVX2
#define NAME(f) f##_avx2
#define LANES 8
#define ROWS 6
#define TAPS 6
#include "tile_level.h"

const moth_tile *moth_tile_best(void) {
  int level = moth_level();
  return level == MOTH_LEVEL_AVX512 ? &tile_avx512 : level == MOTH_LEVEL_AVX2 ? &tile_avx2 : NULL;
}

#else

const moth_tile *moth_tile_best(void) { return NULL; }

#endif
