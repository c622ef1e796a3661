/* matrix.h -- f32 matrix products by Moth's tiles, on one thread and without allocation; products,
** attention and recurrent layers call them inside their jobs. sgemm.c sends whole products here, in
** parts.
**
** After Goto & van de Geijn 2008 and BLIS (Van Zee & van de Geijn 2015), except for packing: a tile
** of 6 rows and 4 vectors of columns (12 rows for up to 2 vectors) reads A in place, with any
** strides, and B if its rows are contiguous. At AVX2 it has 2 vectors of 8, and a panel of B that
** does not stay in a small L1 is copied before many rows of A read it. (There, unrolling a tile's
** loop makes GCC keep sums in memory.)
*/
#ifndef MOTH_KERNEL_MATRIX_H
#define MOTH_KERNEL_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#define MOTH_MATRIX_ROWS 12   /* of the tallest tile */
#define MOTH_MATRIX_NARROW 32 /* columns up to which there are tiles of more than 6 rows */
#define MOTH_MATRIX_DEPTH 320 /* rows of B gone through at a time, at most: more leave the cache */

/* C (m, n) := A (m, k) B (k, n) [+ C] [+ bias, one number for each column]; relu: 0 where that is
** below it. Each element is summed in the same order for any part of C. */
typedef struct moth_matrix {
  int64_t m, n, k;
  const float *a;
  int64_t rs, cs; /* any */
  const float *b;
  int64_t ldb; /* b's rows are contiguous, ldb apart */
  float *c;
  int64_t ldc;
  const float *bias; /* or NULL */
  bool add, relu;
  bool packed; /* b was packed by moth_matrix_pack */
  /* Where tiles of an A whose columns lie in a row, rs = 1, are laid out (by vectors of 8 floats
  ** also one whose rows do, cs = 1), moth_matrix_scratch(k) floats of the thread's own; or NULL, as
  ** it must be for narrow ones. It pays where n > 64. */
  float *scratch;
} moth_matrix;

int64_t moth_matrix_scratch(int64_t k);

/* y[i * ldy + j * step] (+)= x[i] . w[j] [+ bias[i * bias_x + j * bias_w]] for i < m;
** relu as above, where step or ldy is 1 */
typedef struct moth_dots {
  int m;
  int64_t k, ldx, ldw, ldy, step, bias_x, bias_w;
  const float *x, *w, *bias;
  float *y;
  bool add, relu;
} moth_dots;

typedef struct moth_sums { /* y[j] (+)= sum over t of x[t * step] b[t * ldb + j] [+ bias[j]] */
  int64_t k, step, ldb;
  const float *x, *b, *bias;
  float *y;
  bool add, relu;
} moth_sums;

/* Whether this processor has a level of instructions that these loops are compiled for; without
** it nothing below may be called. */
bool moth_matrix_here(void);
int moth_matrix_lanes(void); /* floats in its longest vector */

/* How rows and columns of a product are cut: tiles of `height` rows, and panels of columns. */
int moth_matrix_height(int64_t m, int64_t n);
int64_t moth_matrix_panels(int64_t n);

void moth_matrix_run(const moth_matrix *p);
/* Only the tiles and panels from `first` to `last` - 1. */
void moth_matrix_rows(const moth_matrix *p, int64_t first, int64_t last);
void moth_matrix_columns(const moth_matrix *p, int64_t first, int64_t last);

/* Lays b (k, n) with any strides out in k * n floats, for products that say packed; or only those
** panels of columns, of the part of at most MOTH_MATRIX_DEPTH rows of b that begins with row t. */
void moth_matrix_pack(float *to, const float *b, int64_t k, int64_t n, int64_t rs, int64_t cs);
int64_t moth_matrix_depth(int64_t k); /* rows in such a part */
void moth_matrix_pack_panels(float *to, const float *b, int64_t k, int64_t n, int64_t rs,
                             int64_t cs, int64_t t, int64_t first, int64_t last);

/* to[t * step + j] = b[t + j * cs] for t < k and j < w. */
void moth_matrix_transpose_panel(float *to, int64_t step, const float *b, int64_t k, int64_t w,
                            int64_t cs);

/* Vector products for rows or columns j from first to last - 1; pieces begin at multiples of 64. */
void moth_matrix_dots(const moth_dots *p, int64_t first, int64_t last);
void moth_matrix_sums(const moth_sums *p, int64_t first, int64_t last);

#endif
