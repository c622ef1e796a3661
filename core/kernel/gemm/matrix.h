/* matrix.h -- f32 matrix products by Moth's tiles, on one thread and without allocation; jobs of
** products, attention and recurrent layers call them. sgemm.c divides whole products into parts for
** them.
**
** After Goto & van de Geijn 2008 and BLIS (Van Zee & van de Geijn 2015), except for packing. A tile
** of 6 rows and 4 vectors of columns (12 rows for up to 2 vectors) reads A in place, with any
** strides, and B if its rows are contiguous. For AVX2 a tile has 2 vectors of 8, and a panel of B
** that does not stay in a small L1 is copied before many rows of A read it. (For AVX2, unrolling a
** tile's loop makes GCC keep sums in memory.)
*/
#ifndef MOTH_KERNEL_MATRIX_H
#define MOTH_KERNEL_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#define MOTH_MATRIX_ROWS 12   /* rows of the tallest tile */
#define MOTH_MATRIX_NARROW 32 /* columns up to which tiles have more than 6 rows */
#define MOTH_MATRIX_DEPTH 320 /* rows of B at a time, at most: more leave the cache */

/* C (m, n) := A (m, k) B (k, n) [+ C] [+ bias, one number for each column]. relu: negative results
** become 0. Each element is summed in the same order in every part of C. */
typedef struct moth_matrix {
  int64_t m, n, k;
  const float *a;
  int64_t rs, cs; /* any strides */
  const float *b;
  int64_t ldb; /* rows of b are contiguous, ldb apart */
  float *c;
  int64_t ldc;
  const float *bias; /* or NULL */
  bool add, relu;
  bool packed; /* b was packed by moth_matrix_pack */
  /* A buffer of the thread with moth_matrix_scratch(k) floats, for packing tiles of an A with
  ** contiguous columns, rs = 1; for vectors of 8 floats also of an A with contiguous rows, cs = 1.
  ** NULL: no packing, which narrow products need. Packing pays for n > 64. */
  float *scratch;
} moth_matrix;

int64_t moth_matrix_scratch(int64_t k);

/* y[i * ldy + j * step] (+)= x[i] . w[j] [+ bias[i * bias_x + j * bias_w]] for i < m. relu as
** above, if step or ldy is 1. */
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

/* True if this processor has a level of instructions that these loops are compiled for. Without it,
** no function below may be called. */
bool moth_matrix_here(void);
int moth_matrix_lanes(void); /* floats in its longest vector */

/* The division of rows and columns of a product: tiles of `height` rows, and panels of columns. */
int moth_matrix_height(int64_t m, int64_t n);
int64_t moth_matrix_panels(int64_t n);

void moth_matrix_run(const moth_matrix *p);
/* Computes only tiles, or panels, `first` to `last` - 1. */
void moth_matrix_rows(const moth_matrix *p, int64_t first, int64_t last);
void moth_matrix_columns(const moth_matrix *p, int64_t first, int64_t last);

/* moth_matrix_pack copies b (k, n) with any strides to k * n floats, for products with `packed`.
** The second function copies only some panels of columns, for the part of b that starts with row t
** and has at most MOTH_MATRIX_DEPTH rows. */
void moth_matrix_pack(float *to, const float *b, int64_t k, int64_t n, int64_t rs, int64_t cs);
int64_t moth_matrix_depth(int64_t k); /* rows in such a part */
void moth_matrix_pack_panels(float *to, const float *b, int64_t k, int64_t n, int64_t rs,
                             int64_t cs, int64_t t, int64_t first, int64_t last);

/* to[t * step + j] := b[t + j * cs] for t < k and j < w. */
void moth_matrix_transpose_panel(float *to, int64_t step, const float *b, int64_t k, int64_t w,
                            int64_t cs);

/* Products of vectors, for rows or columns j from first to last - 1. Pieces start at multiples of
** 64. */
void moth_matrix_dots(const moth_dots *p, int64_t first, int64_t last);
void moth_matrix_sums(const moth_sums *p, int64_t first, int64_t last);

#endif
