/* product.h -- the description of a matrix product, for the CPU and for devices. */
#ifndef MOTH_KERNEL_PRODUCT_H
#define MOTH_KERNEL_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* C := A B + beta C + bias, as moth_gemm of blas.h describes it; the bias is one number for each
** column, n in a row, where beta is 0, or NULL. relu: what is below 0 then, rounded, becomes 0; for
** those that moth_multiply_relus of blas.h names. */
typedef struct moth_product {
  int dtype, beta;
  int device; /* of all operands */
  int64_t m, n, k;
  const char *a, *b;
  int64_t rs_a, cs_a, rs_b, cs_b;
  char *c;
  int64_t ldc;
  const char *bias;
  bool relu;
  /* sums: NULL, or m elements where a device may put the sum of each row of A, of one product
  ** without bias and beta; *summed: whether it did. */
  char *sums;
  bool *summed;
} moth_product;

#define MOTH_MAX_BATCH_DIMS 16

typedef struct moth_batch { /* many products: steps from one to the next in elements, may be 0 */
  int ndim;
  int64_t shape[MOTH_MAX_BATCH_DIMS], step_a[MOTH_MAX_BATCH_DIMS], step_b[MOTH_MAX_BATCH_DIMS];
  int64_t step_c; /* the results are in order */
} moth_batch;

#endif
