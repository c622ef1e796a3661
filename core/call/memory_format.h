/* memory_format.h -- the memory order of the dimensions of new results. */
#ifndef MOTH_MEMORY_FORMAT_H
#define MOTH_MEMORY_FORMAT_H

#include "autograd/tape.h"
#include "frame.h"
#include "tensor/shape.h"

/* Does x have y's shape and strides? Numbers and smaller tensors broadcast. */
static inline bool moth_has_strides(const moth_layout *x, const moth_layout *y) {
  return x->numel == y->numel && moth_same_strides(x, y);
}

/* Checks that y has as many dimensions as the memory_format in args needs. */
int moth_check_format(moth_ctx *ctx, const moth_op *op, const void *args, const moth_layout *y);
/* Sets the memory order of y, a packed result: from the call's memory_format, or from the inputs if
** the kernel can write any order. More kernels of devices than of the CPU support channels_last. */
void moth_order_result(moth_call_frame *f, const moth_op *op, moth_layout *y);

#endif
