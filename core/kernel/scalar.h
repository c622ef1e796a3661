/* scalar.h -- Lua numbers as elements and as operands of loops. */
#ifndef MOTH_KERNEL_SCALAR_H
#define MOTH_KERNEL_SCALAR_H

#include <string.h>

#include "tensor/loop.h"
#include "base/error.h"
#include "tensor/shape.h"

/* Writes the scalar as one element of dtype, at most 8 bytes. Raises E_DTYPE, with the name `arg`,
** if it does not fit. */
static inline int moth_scalar_to(moth_ctx *ctx, const char *arg, moth_scalar s, int dtype,
                                 void *element) {
  int from = s.type == 0 ? MOTH_F64 : MOTH_I64;
  if (moth_value_fits(from, &s.as, dtype)) {
    moth_convert(1, from, (const char *)&s.as, 8, dtype, element, 8);
    return MOTH_OK;
  }
  if (s.type == 0)
    return moth_fail(ctx, MOTH_E_DTYPE, arg, "%.17g does not fit %s", s.as.number,
                     moth_dtype_name(dtype));
  return moth_fail(ctx, MOTH_E_DTYPE, arg, "%lld does not fit %s", (long long)s.as.integer,
                   moth_dtype_name(dtype));
}

/* A 0-d tensor with one element on the caller's stack, for moth_loop_over. It has no reference
** count and must not reach an op. */
typedef struct moth_operand {
  moth_tensor tensor;
  moth_storage storage;
  uint64_t element;
} moth_operand;

static inline const moth_tensor *moth_operand_of(moth_operand *o, moth_ctx *ctx, int dtype) {
  o->storage.data = (char *)&o->element;
  o->storage.device = 0;
  o->tensor.flags = MOTH_T_NUMBER;
  o->tensor.ctx = ctx;
  o->tensor.storage = &o->storage;
  o->tensor.l.ndim = 0;
  o->tensor.l.dtype = (uint8_t)dtype;
  o->tensor.l.device = 0;
  o->tensor.l.numel = 1;
  o->tensor.l.offset = 0;
  return &o->tensor;
}

/* Sets all elements of a packed tensor to 0. All bits of 0 are zero in every dtype. */
static inline int moth_zero(moth_tensor *y) {
  moth_operand zero = {.element = 0};
  if (y->l.device) return moth_copy_into(y, moth_operand_of(&zero, y->ctx, y->l.dtype));
  if (y->l.numel) memset(moth_at(y), 0, (size_t)(y->l.numel * moth_dtype_size[y->l.dtype]));
  return MOTH_OK;
}

#endif
