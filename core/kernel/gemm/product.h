/* product.h -- the description of a matrix product, for the CPU and for devices. */
#ifndef MOTH_KERNEL_PRODUCT_H
#define MOTH_KERNEL_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* C := A B + beta C + bias, as moth_gemm of blas.h describes it. bias is NULL, or has one number
** for each column, n in all, if beta is 0. relu: negative results become 0 after rounding; only for
** products for which moth_multiply_relus of blas.h returns true. */
typedef struct moth_product {
  int dtype, beta;
  int device; /* the device of all operands */
  int64_t m, n, k;
  const char *a, *b;
  int64_t rs_a, cs_a, rs_b, cs_b;
  char *c;
  int64_t ldc;
  const char *bias;
  bool relu;
  /* sums: NULL, or m elements to which a device may write the sum of each row of A, for a single
  ** product without bias and beta. *summed: set if it did. */
  char *sums;
  bool *summed;
} moth_product;

#define MOTH_MAX_BATCH_DIMS 16

/* many products; steps from one product to the next in elements, which may be 0 */
typedef struct moth_batch {
  int ndim;
  int64_t shape[MOTH_MAX_BATCH_DIMS], step_a[MOTH_MAX_BATCH_DIMS], step_b[MOTH_MAX_BATCH_DIMS];
  int64_t step_c; /* the results are in order */
} moth_batch;

#endif
