/* blas.h -- matrix products: Moth's own tiles for f32, a BLAS found at run time for other dtypes,
** or Moth's own loops if there is none.
**
** The library is opened at the first product that needs it, from a list of candidates or from
** MOTH_BLAS in the environment (a path, or `builtin`). It uses one thread.
*/
#ifndef MOTH_BLAS_H
#define MOTH_BLAS_H

#include "kernel/gemm/sgemm.h"

/* C := A B + beta C, with A (m, k), B (k, n), C (m, n), and beta 0 or 1; with 0, C is not read. rs
** and cs are the steps from row to row and from column to column, in elements; they may be 0. The
** rows of C are contiguous and ldc elements apart. C overlaps neither A nor B. All dtypes except
** bool; half types are computed in f32, integers wrap. */
int moth_gemm(moth_ctx *ctx, int dtype, int64_t m, int64_t n, int64_t k, const void *a,
              int64_t rs_a, int64_t cs_a, const void *b, int64_t rs_b, int64_t cs_b, void *c,
              int64_t ldc, int beta);

/* The same, with a bias if beta is 0; and all products of a batch. */
int moth_multiply(moth_ctx *ctx, const moth_product *p);
bool moth_multiply_relus(const moth_product *p); /* can it apply relu too? */
int moth_multiply_batch(moth_ctx *ctx, const moth_product *p, const moth_batch *batch);

/* Do products of that half type need no widening? */
bool moth_half_products(int dtype);

/* A product inside a job of threads.h: f32 or f64, no bias, the rows of B contiguous. */
void moth_multiply_inside(const moth_product *p);

/* "OpenBLAS ... (libopenblas.so.0)", "builtin", or "not opened yet". Does not open the library. */
const char *moth_blas_name(void);

/* The library's handle, to look up more functions; opens the library if necessary. NULL: there is
** none. */
void *moth_blas_library(void);

#endif
