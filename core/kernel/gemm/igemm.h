/* igemm.h -- integer matrix products in tiles. */
#ifndef MOTH_KERNEL_IGEMM_H
#define MOTH_KERNEL_IGEMM_H

#include "base/context.h"
#include "product.h"

/* True if tiles pay: not for vectors and very small matrices. */
bool moth_igemm_pays(const moth_product *p);
/* Any integer dtype, without a bias; results wrap. */
int moth_igemm(moth_ctx *ctx, const moth_product *p);

#endif
