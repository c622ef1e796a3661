/* transpose.c -- transposes blocks of 4-byte elements, for every level of instructions. Reads
** squares of whole cache lines and transposes them in registers: a third of the time of copies in
** tiles, element by element.
*/
#include "transpose.h"

#include <string.h>

#include "level.h"

/* -- shuffles of two vectors: vectors whose numbers differ in one bit exchange the lanes whose
** numbers differ in that bit -- */

#define LOW4_1 0, 4, 2, 6
#define HIGH4_1 1, 5, 3, 7
#define LOW4_2 0, 1, 4, 5
#define HIGH4_2 2, 3, 6, 7
#define ROUND4_1 EXCHANGE(1, LOW4_1, HIGH4_1)
#define ROUND4_2 EXCHANGE(2, LOW4_2, HIGH4_2)

#define LOW8_1 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH8_1 1, 9, 3, 11, 5, 13, 7, 15
#define LOW8_2 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH8_2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW8_4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH8_4 4, 5, 6, 7, 12, 13, 14, 15
#define ROUND8_1 EXCHANGE(1, LOW8_1, HIGH8_1)
#define ROUND8_2 EXCHANGE(2, LOW8_2, HIGH8_2)
#define ROUND8_4 EXCHANGE(4, LOW8_4, HIGH8_4)

#define LOW16_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH16_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define LOW16_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH16_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW16_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH16_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW16_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH16_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define ROUND16_1 EXCHANGE(1, LOW16_1, HIGH16_1)
#define ROUND16_2 EXCHANGE(2, LOW16_2, HIGH16_2)
#define ROUND16_4 EXCHANGE(4, LOW16_4, HIGH16_4)
#define ROUND16_8 EXCHANGE(8, LOW16_8, HIGH16_8)

#if defined(__GNUC__)

#define TARGET
#define LANES 4
#define NAME(f) f##_plain
#define ROUNDS \
  ROUND4_1 \
  ROUND4_2
#include "transpose_level.h"
#undef TARGET
#undef LANES
#undef NAME
#undef ROUNDS
#if MOTH_HAS_LEVELS
#define TARGET MOTH_AVX2
#define LANES 8
#define NAME(f) f##_avx2
#define ROUNDS \
  ROUND8_1 \
  ROUND8_2 \
  ROUND8_4
#include "transpose_level.h"
#undef TARGET
#undef LANES
#undef NAME
#undef ROUNDS
#define TARGET MOTH_AVX512
#define LANES 16
#define NAME(f) f##_avx512
#define ROUNDS \
  ROUND16_1 \
  ROUND16_2 \
  ROUND16_4 \
  ROUND16_8
#include "transpose_level.h"
#undef TARGET
#undef LANES
#undef NAME
#undef ROUNDS
#endif

typedef void square_transpose(const char *x, int64_t x_step, char *y, int64_t y_step);

void moth_transpose_block(int64_t rows, int64_t cols, const char *x, int64_t x_step, char *y,
               int64_t y_step) {
  square_transpose *run = transpose_square_plain;
  int64_t lanes = 4;
#if MOTH_HAS_LEVELS
  const int level = moth_level();
  if (level == MOTH_LEVEL_AVX512) run = transpose_square_avx512, lanes = 16;
  else if (level == MOTH_LEVEL_AVX2) run = transpose_square_avx2, lanes = 8;
#endif
  const int64_t whole_rows = rows - rows % lanes, whole_cols = cols - cols % lanes;
  for (int64_t i = 0; i < whole_rows; i += lanes)
    for (int64_t j = 0; j < whole_cols; j += lanes)
      run(x + j * x_step + i * 4, x_step, y + i * y_step + j * 4, y_step);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; j++)
      memcpy(y + i * y_step + j * 4, x + j * x_step + i * 4, 4);
}

#else

void moth_transpose_block(int64_t rows, int64_t cols, const char *x, int64_t x_step, char *y,
               int64_t y_step) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      memcpy(y + i * y_step + j * 4, x + j * x_step + i * 4, 4);
}

#endif
