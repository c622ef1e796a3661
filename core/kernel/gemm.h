/* gemm.h -- matrix products by our own loops: for small ones, for integers, and for everything
** where there is no BLAS.
*/
#ifndef MOTH_KERNEL_GEMM_H
#define MOTH_KERNEL_GEMM_H

#include "../context.h"

/* C := A B + beta C + bias, as moth_gemm of blas.h describes it; the bias is one number for each
** column, n in a row, where beta is 0, or NULL. */
typedef struct moth_product {
  int dtype, beta;
  int64_t m, n, k;
  const char *a, *b;
  int64_t rs_a, cs_a, rs_b, cs_b;
  char *c;
  int64_t ldc;
  const char *bias;
} moth_product;

/* Plain loops, no memory; every dtype that loops are written for. */
void moth_gemm_plain(const moth_product *p);
/* f32 and f64: blocks packed for the cache. */
int moth_gemm_tiled(moth_ctx *ctx, const moth_product *p);

#endif
