/* blas.h -- matrix products: our own tiles for f32, a BLAS found at run time for the rest, or our
** own loops where there is none.
**
** The library is opened at the first product that needs it, from a list of candidates or
** from MOTH_BLAS in the environment (a path, or `builtin`), and told to use one thread.
*/
#ifndef MOTH_BLAS_H
#define MOTH_BLAS_H

#include "kernel/gemm/sgemm.h"

/* C := A B + beta C, with A (m, k), B (k, n), C (m, n), beta 0 or 1; with 0, C is not read.
** rs and cs are the steps from row to row and from column to column in elements, any of them may
** be 0; C has rows of n elements in a row, ldc apart, and overlaps neither A nor B. All ten dtypes
** but bool; half types go through f32, integers wrap. */
int moth_gemm(moth_ctx *ctx, int dtype, int64_t m, int64_t n, int64_t k, const void *a,
              int64_t rs_a, int64_t cs_a, const void *b, int64_t rs_b, int64_t cs_b, void *c,
              int64_t ldc, int beta);

/* The same, with a bias where beta is 0; and all products of a batch. */
int moth_multiply(moth_ctx *ctx, const moth_product *p);
bool moth_multiply_relus(const moth_product *p); /* whether it may be asked for relu as well */
int moth_multiply_batch(moth_ctx *ctx, const moth_product *p, const moth_batch *batch);

/* Whether products of that half type need no widening. */
bool moth_half_products(int dtype);

/* A product inside a job of threads.h: f32 or f64, without a bias, the rows of B contiguous. */
void moth_multiply_inside(const moth_product *p);

/* "OpenBLAS ... (libopenblas.so.0)", "builtin", or "not opened yet": asking opens nothing. */
const char *moth_blas_name(void);

/* The library's handle, opened if it was not yet, where further functions are looked up; NULL:
** there is none. */
void *moth_blas_library(void);

#endif
