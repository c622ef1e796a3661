/* half_product.h -- products of f16 and bf16: by bf16 pairs if the processor multiplies pairs, else
** by the f32 tiles, with a conversion to f32 one block at a time during packing.
*/
#ifndef MOTH_KERNEL_HALF_PRODUCT_H
#define MOTH_KERNEL_HALF_PRODUCT_H

#include "sgemm.h"

/* Both functions need moth_matrix_here(). */
int moth_half_product(moth_ctx *ctx, const moth_product *p);
int moth_half_product_batch(moth_ctx *ctx, const moth_product *p, const moth_batch *batch,
                      int64_t count);

#endif
