/* sgemm.h -- whole f32 products by the tiles of matrix.h: the choice of the method, packing, and
** threads.
*/
#ifndef MOTH_KERNEL_SGEMM_H
#define MOTH_KERNEL_SGEMM_H

#include "gemm.h"
#include "matrix.h"

/* All functions need moth_matrix_here(). */
int moth_sgemm(moth_ctx *ctx, const moth_product *p);
int moth_sgemm_batch(moth_ctx *ctx, const moth_product *p, const moth_batch *batch, int64_t count);

/* Does not allocate or use threads: for use inside a job. scratch has moth_sgemm_scratch(p)
** floats. */
int64_t moth_sgemm_scratch(const moth_product *p);
void moth_sgemm_alone(const moth_product *p, float *scratch);

/* Product i of a batch whose first product is p, of any dtype. */
moth_product moth_batch_product(const moth_product *p, const moth_batch *batch, int64_t i);

#endif
