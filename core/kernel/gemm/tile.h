/* tile.h -- the f32 tile of convolution: a few rows by a few vectors of a product whose operands
** are read in place, written in vector extensions and compiled for each level of instructions. The
** tile is that of Goto & van de Geijn 2008, with a table of offsets as in the indirect convolution
** of Dukhan 2019.
*/
#ifndef MOTH_KERNEL_TILE_H
#define MOTH_KERNEL_TILE_H

#include <stdbool.h>
#include <stdint.h>

#define MOTH_TILE_ROWS 12    /* rows of the tallest f32 tile of any level, */
#define MOTH_TILE_MOST 32    /* ... and of the tallest tile of all */
#define MOTH_TILE_COLUMNS 32 /* columns of the widest tile */
#define MOTH_TILE_LANES 16   /* floats of the longest vector */
#define MOTH_WINOGRAD_PATCHES 64 /* patches that are transformed at a time, at most */

typedef struct moth_tile {
  const char *level;
  int rows, columns;    /* of the tile of `product`; columns are two vectors */
  int lanes;            /* floats of a vector */
  int chain; /* taps added at a time: longer sums lose digits, and this many taps stay in L1 */
  bool by_rows;         /* `product` needs rows of a, with an rs */
  /* of the tile of `sum`: most vectors (2 or 4), and rows for 1, 2 or 4 vectors */
  int vectors, taps[5];
  /* y[i][j] := start[i] + sum over t of a[t * m + i] * b[off[t] + j], for i < m <= rows and all
  ** columns j, or one vector of columns if not wide. If rs is not 0, a[i * rs + t] replaces a[t * m
  ** + i]; this takes 4 % longer. Rows of y are ldy apart. start NULL: adds to y instead. (Tiles of
  ** 6 rows and 4 vectors are no faster here: they read twice as much of b from L2.) */
  void (*product)(int m, bool wide, int64_t n, const float *a, int64_t rs, const float *b,
                  const int64_t *off, const float *start, float *y, int64_t ldy);
  /* y[i * ldb + j] := sum over q of x[off[i] + at[q]] * b[q * ldb + j], for i < m <= taps[v] and j
  ** in v vectors. add: adds to y instead. */
  void (*sum)(int m, int v, int64_t n, const float *x, const int64_t *off, const int64_t *at,
              const float *b, int64_t ldb, bool add, float *y);
  /* to[j * ldt + i] := from[i * ld + j] for i < m and j < n. Rows of `to` are filled with 0 up to
  ** full vectors. */
  void (*transpose)(int64_t m, int64_t n, const float *from, int64_t ld, float *to, int64_t ldt);
  /* Copies `rows` rows of n elements, `step` apart in `from`, to to[first] and the following
  ** elements. Elements around them become 0, up to width. Rows are ld apart in `from`, and ldt in
  ** `to`. */
  void (*copy_rows)(int64_t rows, int64_t step, int64_t first, int64_t n, int64_t width,
                const float *from, int64_t ld, float *to, int64_t ldt);
  /* Copies rows of at most one vector, for images next to each other: to[k * width + j] := element
  ** column[j] of row `from` of image k, or 0 if column[j] < 0; column[j] is less than two vectors.
  ** Images are `apart` apart; rows as above. Floats after a row of `to` are overwritten before the
  ** next row is written. No float from `end` on is read. */
  void (*copy_short_rows)(int64_t rows, int64_t images, int64_t width, const int32_t *column,
                    const float *from, int64_t ld, int64_t apart, const float *end, float *to,
                    int64_t ldt);
  /* Adds `rows` rows of n elements to elements of `to` that are `step` apart. */
  void (*add)(int64_t rows, int64_t n, const float *from, int64_t ld, float *to, int64_t ldt,
              int64_t step);
  /* The transforms of winograd.c. Patches of 4x4 are two columns apart. `row` has the n columns of
  ** each of four rows that are inside; `first` zeros precede them, and zeros follow. Number i of
  ** patch k is written to to[i * ldt + k], for k up to full vectors. Prefetches data `ahead` floats
  ** further on. */
  void (*patches)(const float *const row[4], int64_t first, int64_t n, int64_t patches,
                  int64_t ahead, float *to, int64_t ldt);
  /* Transforms a vector of filters. Tap t of filter j is taps[t * lanes + j]; with `flip` the last
  ** tap is first. Number i is written to to[i * ldt + j]. */
  void (*filters)(const float *taps, bool flip, float *to, int64_t ldt);
  /* Writes two rows of 2 n results plus start, up to full vectors. */
  void (*results)(const float *from, int64_t ldf, int64_t n, float start, float *upper,
                  float *lower);
} moth_tile;

/* The tile of the best level of this processor, or NULL if it has no such level. */
const moth_tile *moth_tile_best(void);

/* The tile whose product and sum read pairs of bf16 in `a`, `b` and `x`. Returns false if the
** processor does not multiply pairs, or not faster than f32. */
bool moth_tile_bf16(moth_tile *to);

/* The height of equal panels: how many of `total` rows each has, at most `most`. */
static inline int moth_tile_height(int64_t total, int most) {
  int64_t panels = (total + most - 1) / most;
  return panels ? (int)((total + panels - 1) / panels) : most;
}

#endif
