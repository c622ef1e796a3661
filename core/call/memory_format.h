/* memory_format.h -- the order of dimensions that fresh results have in memory. */
#ifndef MOTH_MEMORY_FORMAT_H
#define MOTH_MEMORY_FORMAT_H

#include "autograd/tape.h"
#include "frame.h"
#include "tensor/shape.h"

/* Whether x has y's shape and strides; numbers and smaller tensors broadcast. */
static inline bool moth_has_strides(const moth_layout *x, const moth_layout *y) {
  return x->numel == y->numel && moth_same_strides(x, y);
}

/* Whether y has the dimensions of the memory_format among args. */
int moth_check_format(moth_ctx *ctx, const moth_op *op, const void *args, const moth_layout *y);
/* Gives y, a packed result, the order that the call names, else that of the inputs where the kernel
** writes any. Devices have further kernels that know channels_last. */
void moth_order_result(moth_call_frame *f, const moth_op *op, moth_layout *y);

#endif
