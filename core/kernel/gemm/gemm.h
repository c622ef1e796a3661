/* gemm.h -- matrix products by our own loops: for small ones, for integers, and for everything
** where there is no BLAS.
*/
#ifndef MOTH_KERNEL_GEMM_H
#define MOTH_KERNEL_GEMM_H

#include "base/context.h"
#include "product.h"

/* Plain loops, no memory; every dtype that loops are written for. */
void moth_gemm_plain(const moth_product *p);
/* f32 and f64: blocks packed for the cache. */
int moth_gemm_tiled(moth_ctx *ctx, const moth_product *p);

#endif
