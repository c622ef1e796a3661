/* tile.h -- the f32 tile that convolution is made of: a few rows by a few vectors of a product
** whose operands lie where they are, written in vector extensions and compiled for each level of
** instructions. The tile of Goto & van de Geijn 2008, fed through a table of offsets as in the
** indirect convolution of Dukhan 2019.
*/
#ifndef MOTH_KERNEL_TILE_H
#define MOTH_KERNEL_TILE_H

#include <stdbool.h>
#include <stdint.h>

#define MOTH_TILE_ROWS 12    /* of the tallest tile on any level */
#define MOTH_TILE_COLUMNS 32 /* of the widest */

typedef struct moth_tile {
  const char *level;
  int rows, columns; /* of a product's tile */
  int taps, lanes;   /* of a sum's: rows, and the step of its columns */
  /* y[i][j] = start[i] + sum over t of a[t * m + i] * b[off[t] + j] for i < m <= rows and all
  ** columns j; rows of y are ldy apart. start NULL: adds to y instead. */
  void (*product)(int m, int64_t n, const float *a, const float *b, const int64_t *off,
                  const float *start, float *y, int64_t ldy);
  /* y[i * ldb + j] += sum over q of x[off[i] + q] * b[q * ldb + j] for i < m <= taps and j < lanes,
  ** or < 2 lanes if wide. */
  void (*sum)(int m, bool wide, int64_t n, const float *x, const int64_t *off, const float *b,
              int64_t ldb, float *y);
} moth_tile;

/* The best level of this processor; NULL where none of them runs. */
const moth_tile *moth_tile_best(void);

/* Heights of equal panels: how many of `total` rows each takes, at most `most`. */
static inline int moth_tile_height(int64_t total, int most) {
  int64_t panels = (total + most - 1) / most;
  return panels ? (int)((total + panels - 1) / panels) : most;
}

#endif
