/* tile.c -- the f32 tile for AVX-512 and AVX2, chosen at run time. */
#include "tile.h"

#include <string.h>

#include "kernel/level.h"

#if MOTH_HAS_LEVELS

/* OF_TWO(a, b, i): the elements i of two vectors. */
#if defined(__clang__)
#define OF_TWO(a, b, i) __builtin_ia32_vpermi2varps512(a, i, b)
#else
#define OF_TWO(a, b, i) __builtin_shuffle(a, b, i)
#endif
#define LEVEL "AVX-512"
#define TARGET MOTH_AVX512
#define NAME(f) f##_avx512
#define LANES 16
#define ROWS 12
#define TAPS1 10
#define TAPS2 8
#define TAPS4 6
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define PICK 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#define PICK_HALF 0, 2, 4, 6, 9, 11, 13, 15
#define FIRST_HALF 0, 1, 2, 3, 4, 5, 6, 7
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#include "kernel/conv/winograd_level.h"
#include "tile_level.h"
#undef LEVEL
#undef TARGET
#undef NAME
#undef LANES
#undef ROWS
#undef TAPS1
#undef TAPS2
#undef TAPS4
#undef LOW
#undef HIGH
#undef PICK
#undef PICK_HALF
#undef FIRST_HALF
#undef EVENS
#undef ODDS
#undef OF_TWO

#define OF_TWO(a, b, i)                                                        \
  (((i > 7) & (words_avx2)__builtin_ia32_permvarsf256(b, i)) |                 \
   ((i <= 7) & (words_avx2)__builtin_ia32_permvarsf256(a, i)))
#define LEVEL "AVX2"
#define TARGET MOTH_AVX2
#define NAME(f) f##_avx2
#define LANES 8
#define ROWS 6
#define TAPS1 6
#define TAPS2 6
#define TAPS4 0
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define PICK 0, 2, 4, 6, 9, 11, 13, 15
#define PICK_HALF 0, 2, 5, 7
#define FIRST_HALF 0, 1, 2, 3
#define EVENS 0, 2, 4, 6, 8, 10, 12, 14
#define ODDS 1, 3, 5, 7, 9, 11, 13, 15
#include "kernel/conv/winograd_level.h"
#include "tile_level.h"

const moth_tile *moth_tile_best(void) {
  int level = moth_level();
  return level == MOTH_LEVEL_AVX512 ? &tile_avx512 : level == MOTH_LEVEL_AVX2 ? &tile_avx2 : NULL;
}

#else

const moth_tile *moth_tile_best(void) { return NULL; }

#endif
