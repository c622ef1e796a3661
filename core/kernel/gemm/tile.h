/* tile.h -- the f32 tile of convolution: a few rows by a few vectors of a product whose operands
** are read in place, written in vector extensions and compiled for each level of instructions. The
** tile is that of Goto & van de Geijn 2008, with a table of offsets as in the indirect convolution
** of Dukhan 2019.
*/
#ifndef MOTH_KERNEL_TILE_H
#define MOTH_KERNEL_TILE_H

#include <stdbool.h>
#include <stdint.h>

#define MOTH_TILE_ROWS 12    /* of the tallest tile of f32 on any level, */
#define MOTH_TILE_MOST 32    /* ... and of any */
#define MOTH_TILE_COLUMNS 32 /* of the widest */
#define MOTH_TILE_LANES 16   /* of the longest vector */
#define MOTH_WINOGRAD_PATCHES 64 /* that are transformed at a time, at most */

typedef struct moth_tile {
  const char *level;
  int rows, columns;    /* of a product's tile; columns are two vectors */
  int lanes;            /* of a vector */
  int chain;            /* taps added at a time: longer sums lose digits, and these stay in L1 */
  bool by_rows;         /* product needs rows of a, with an rs */
  int vectors, taps[5]; /* of a sum: the most vectors (2 or 4), and rows by vectors (1, 2 or 4) */
  /* y[i][j] = start[i] + sum over t of a[t * m + i] * b[off[t] + j] for i < m <= rows and all
  ** columns j, or one vector of them if not wide; of a[i * rs + t], which takes 4 % longer, if
  ** there is an rs. Rows of y are ldy apart. start NULL: adds to y instead. (6 rows of 4 vectors
  ** gained nothing here: they read twice as much of b from L2.) */
  void (*product)(int m, bool wide, int64_t n, const float *a, int64_t rs, const float *b,
                  const int64_t *off, const float *start, float *y, int64_t ldy);
  /* y[i * ldb + j] := sum over q of x[off[i] + at[q]] * b[q * ldb + j], or more by that if `add`,
  ** for i < m <= taps[v] and j in v vectors. */
  void (*sum)(int m, int v, int64_t n, const float *x, const int64_t *off, const int64_t *at,
              const float *b, int64_t ldb, bool add, float *y);
  /* to[j * ldt + i] = from[i * ld + j] for i < m and j < n; i up to full vectors
  ** is written, with 0. */
  void (*turn)(int64_t m, int64_t n, const float *from, int64_t ld, float *to, int64_t ldt);
  /* Each of `rows` rows: n elements of `from`, a step apart, to to[first] and what follows; zeros
  ** around them, up to width. Rows are ld apart, and ldt in `to`. */
  void (*lower)(int64_t rows, int64_t step, int64_t first, int64_t n, int64_t width,
                const float *from, int64_t ld, float *to, int64_t ldt);
  /* Rows of no more than a vector, of images side by side: to[k * width + j] is element pick[j] of
  ** those at `from` of image k, below two vectors, or 0 if pick[j] < 0. Images are `apart`, rows as
  ** above. What follows a row in `to` is overwritten, before the next row is; nothing is read from
  ** `end` on. */
  void (*lower_few)(int64_t rows, int64_t images, int64_t width, const int32_t *pick,
                    const float *from, int64_t ld, int64_t apart, const float *end, float *to,
                    int64_t ldt);
  /* Adds `rows` rows of n elements to those of `to`, a step apart there. */
  void (*add)(int64_t rows, int64_t n, const float *from, int64_t ld, float *to, int64_t ldt,
              int64_t step);
  /* The transforms of winograd.c. Patches of 4x4, side by side two columns apart: `row` has the
  ** n columns of each row that are inside, `first` further ones stand before them and others after,
  ** with 0. Number i of patch k goes to to[i * ldt + k]; k up to full vectors is
  ** written. Data needed soon are `ahead` floats on. */
  void (*patches)(const float *const row[4], int64_t first, int64_t n, int64_t patches,
                  int64_t ahead, float *to, int64_t ldt);
  /* A vector of filters: tap t of the j-th at taps[t * lanes + j], the last tap first if `flip`;
  ** number i goes to to[i * ldt + j]. */
  void (*filters)(const float *taps, bool flip, float *to, int64_t ldt);
  /* Two rows of 2 n results, each of them plus start, up to full vectors. */
  void (*results)(const float *from, int64_t ldf, int64_t n, float start, float *upper,
                  float *lower);
} moth_tile;

/* The best level of this processor; NULL where none of them runs. */
const moth_tile *moth_tile_best(void);

/* The one whose product and sum take pairs of bf16 for numbers, in `a`, `b` and `x`; false where
** the processor does not multiply them, or no faster. */
bool moth_tile_bf16(moth_tile *to);

/* Heights of equal panels: how many of `total` rows each takes, at most `most`. */
static inline int moth_tile_height(int64_t total, int most) {
  int64_t panels = (total + most - 1) / most;
  return panels ? (int)((total + panels - 1) / panels) : most;
}

#endif
