/* tile_level.h -- the loops of tile.c for one level: LANES floats in a vector, TARGET the attribute
** that chooses instructions, LOW, PICK and others the indices of shuffles. tile_product.h has the
** products.
*/
typedef float NAME(half) __attribute__((vector_size(2 * LANES), aligned(4), may_alias));
#define VECTOR NAME(vector)
#define LOOSE NAME(loose)
#define HALF NAME(half)
#define NUMBER float
#define NUMBERS VECTOR
#define LOOSE_NUMBERS LOOSE
#define MORE(sum, number, numbers) ((sum) + (number) * (numbers))
#include "tile_product.h"
typedef int32_t NAME(words) __attribute__((vector_size(4 * LANES)));
#define WORDS NAME(words)

/* Transposes LANES vectors. Each round interleaves vectors that are LANES / 2 apart. */
TARGET INLINED void NAME(transpose)(VECTOR *a) {
  VECTOR b[LANES];
  UNROLL for (int round = 1; round < LANES; round *= 2) {
    UNROLL for (int i = 0; i < LANES / 2; i++) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + LANES / 2], LOW);
      b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + LANES / 2], HIGH);
    }
    UNROLL for (int i = 0; i < LANES; i++) a[i] = b[i];
  }
}

TARGET static void NAME(transpose_block)(int64_t m, int64_t n, const float *from, int64_t ld,
                                         float *to, int64_t ldt) {
  for (int64_t i = 0; i < m; i += LANES)
    for (int64_t j = 0; j < n; j += LANES) {
      int64_t high = m - i < LANES ? m - i : LANES, wide = n - j < LANES ? n - j : LANES;
      VECTOR a[LANES] = {{0}};
      if (wide == LANES)
        for (int k = 0; k < high; k++)
          a[k] = *(const LOOSE *)(const void *)(from + (i + k) * ld + j);
      else
        for (int k = 0; k < high; k++)
          memcpy(&a[k], from + (i + k) * ld + j, (size_t)wide * sizeof *from);
      NAME(transpose)(a);
      if (wide == LANES)
        for (int k = 0; k < LANES; k++)
          *(LOOSE *)(void *)(to + (j + k) * ldt + i) = a[k];
      else
        for (int k = 0; k < wide; k++) *(LOOSE *)(void *)(to + (j + k) * ldt + i) = a[k];
    }
}

/* Copies n floats; the last vector may overlap the previous one. */
TARGET INLINED void NAME(copy)(const float *from, int64_t n, float *to) {
  if (n >= LANES) {
    for (int64_t i = 0; i + LANES <= n; i += LANES)
      *(LOOSE *)(void *)(to + i) = *(const LOOSE *)(const void *)(from + i);
    *(LOOSE *)(void *)(to + n - LANES) = *(const LOOSE *)(const void *)(from + n - LANES);
  } else if (n >= 8) {
    memcpy(to, from, 8 * sizeof *to);
    memcpy(to + n - 8, from + n - 8, 8 * sizeof *to);
  } else if (n >= 4) {
    memcpy(to, from, 4 * sizeof *to);
    memcpy(to + n - 4, from + n - 4, 4 * sizeof *to);
  } else
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

/* Copies every second float of 2 n - 1 floats, and reads none after them: the even floats of two
** vectors, the second of which starts one float early. */
TARGET INLINED void NAME(copy_even)(const float *from, int64_t n, float *to) {
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES) {
    VECTOR a = *(const LOOSE *)(const void *)(from + 2 * k);
    VECTOR b = *(const LOOSE *)(const void *)(from + 2 * k + LANES - 1);
    *(LOOSE *)(void *)(to + k) = __builtin_shufflevector(a, b, PICK);
  }
  if (k < n && n >= LANES / 2) {
    for (; k < n; k += LANES / 2) {
      if (k > n - LANES / 2) k = n - LANES / 2;
      HALF a = *(const HALF *)(const void *)(from + 2 * k);
      HALF b = *(const HALF *)(const void *)(from + 2 * k + LANES / 2 - 1);
      *(HALF *)(void *)(to + k) = __builtin_shufflevector(a, b, PICK_HALF);
    }
  } else
    for (; k < n; k++) to[k] = from[2 * k];
}

/* The zeros at both ends are few; loops over them would become calls of memset. */
TARGET static void NAME(copy_rows)(int64_t rows, int64_t step, int64_t first, int64_t n,
                                   int64_t width, const float *from, int64_t ld, float *restrict to,
                                   int64_t ldt) {
  const int64_t left = n < width && width >= LANES ? LANES : 0, right = width - left;
  for (int64_t i = 0; i < rows; i++, from += ld, to += ldt) {
    if (left) {
      *(LOOSE *)(void *)to = (VECTOR){0};
      *(LOOSE *)(void *)(to + right) = (VECTOR){0};
    }
    for (int64_t k = left; k < first; k++) to[k] = 0;
    for (int64_t k = first + n; k < right; k++) to[k] = 0;
    if (step == 1) NAME(copy)(from, n, to + first);
    else if (step == 2) NAME(copy_even)(from, n, to + first);
    else
      for (int64_t k = 0; k < n; k++) to[first + k] = from[step * k];
  }
}

/* two: reads two vectors; half: writes half a vector. */
TARGET INLINED void NAME(short_rows_of)(const int two, const int half, int64_t rows, int64_t images,
                                        int64_t width, const int32_t *column, const float *from,
                                        int64_t ld, int64_t apart, const float *end, float *to,
                                        int64_t ldt) {
  float padded[2 * LANES] = {0};
  WORDS from_two;
  memcpy(&from_two, column, sizeof from_two);
  const WORDS seen = from_two >= 0;
  for (int64_t i = 0; i < rows; i++, from += ld, to += ldt)
    for (int64_t k = 0; k < images; k++) {
      const float *at = from + k * apart;
      float *put = to + k * width;
      if (end - at < (two ? 2 : 1) * LANES) {
        memcpy(padded, at, (size_t)(end - at) * sizeof *padded);
        at = padded;
      }
      VECTOR a = *(const LOOSE *)(const void *)at;
      VECTOR b = *(const LOOSE *)(const void *)(at + (two ? LANES : 0));
      VECTOR row = (VECTOR)((WORDS)OF_TWO(a, b, from_two) & seen);
      if (half) *(HALF *)(void *)put = __builtin_shufflevector(row, row, FIRST_HALF);
      else *(LOOSE *)(void *)put = row;
    }
}

TARGET static void NAME(copy_short_rows)(int64_t rows, int64_t images, int64_t width,
                                   const int32_t *column, const float *from, int64_t ld,
                                   int64_t apart, const float *end, float *to, int64_t ldt) {
  int most = 0;
  const bool narrow = width <= LANES / 2;
  for (int k = 0; k < LANES; k++) most = column[k] > most ? column[k] : most;
  /* rows of a single image are copied like images */
  if (images == 1) images = rows, rows = 1, apart = ld, width = ldt;
#define FEW(two, half) \
  NAME(short_rows_of)(two, half, rows, images, width, column, from, ld, apart, end, to, ldt)
  if (!narrow && most < LANES) FEW(0, 0);
  else if (!narrow) FEW(1, 0);
  else if (most < LANES) FEW(0, 1);
  else FEW(1, 1);
#undef FEW
}

/* Rows are short: blocks of eight have constant length and take half of the time of a general
** loop. */
TARGET static void NAME(add)(int64_t rows, int64_t n, const float *from, int64_t ld, float *to,
                             int64_t ldt, int64_t step) {
  for (int64_t i = 0; i < rows; i++, from += ld, to += ldt) {
    int64_t k = 0;
    if (step == 1)
      for (; k + LANES / 2 <= n; k += LANES / 2)
        *(HALF *)(void *)(to + k) += *(const HALF *)(const void *)(from + k);
    for (; k < n; k++) to[k * step] += from[k];
  }
}

static const moth_tile NAME(tile) = {
    .level = LEVEL,
    .rows = ROWS,
    .columns = 2 * LANES,
    .lanes = LANES,
    .vectors = TAPS4 ? 4 : 2,
    .chain = 160,
    .taps = {0, TAPS1, TAPS2, 0, TAPS4},
    .product = NAME(product),
    .sum = NAME(sum),
    .transpose = NAME(transpose_block),
    .copy_rows = NAME(copy_rows),
    .copy_short_rows = NAME(copy_short_rows),
    .add = NAME(add),
    .patches = NAME(patches),
    .filters = NAME(filters),
    .results = NAME(results),
};
#undef VECTOR
#undef LOOSE
#undef HALF
#undef WORDS
#undef NUMBER
#undef NUMBERS
#undef LOOSE_NUMBERS
#undef MORE
