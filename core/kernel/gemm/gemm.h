/* gemm.h -- matrix products by Moth's own loops: for small products, for integers, and for all
** products on machines without BLAS.
*/
#ifndef MOTH_KERNEL_GEMM_H
#define MOTH_KERNEL_GEMM_H

#include "base/context.h"
#include "product.h"

/* Plain loops without scratch memory, for every dtype. */
void moth_gemm_plain(const moth_product *p);
/* f32 and f64, with blocks packed for the cache. */
int moth_gemm_tiled(moth_ctx *ctx, const moth_product *p);

#endif
