/* compare.c -- comparisons and logic, element by element; and `equal`, which compares two tensors.
*/
#include "compare.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

#include "kernel/math/compare.h"

static int mask_shape(moth_ctx *ctx, moth_layout *y, const moth_tensor *a, const moth_tensor *b) {
  y->dtype = MOTH_BOOL;
  return moth_broadcast(ctx, "other", y, a, b);
}

static int map2(const moth_loops *loops, moth_tensor *y, const moth_tensor *a,
                const moth_tensor *b) {
  const moth_tensor *operands[] = {y, a, b};
  return moth_map(y->ctx, loops, a->l.dtype, 3, operands, NULL);
}

#define COMPARISON(op, text)                                                             \
  static int op##_shape(const op##_args *a, moth_layout *y) {                            \
    return mask_shape(a->ctx, y, a->input, a->other);                                    \
  }                                                                                      \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                           \
    return map2(moth_compare.op, out[0], a->input, a->other);                            \
  }                                                                                      \
  MOTH_OP_CONST(op, COMPARE, .doc = text,                                                \
                .examples = "moth.randn(2, 3), moth.randn(3)\nmoth.randn(2, 3), 0.5",    \
                .dtypes = MOTH_ANY | MOTH_PROMOTE,                                       \
                .flags = MOTH_OP_OUT | MOTH_OP_INPLACE | MOTH_OP_STRIDED | MOTH_OP_METHOD | \
                         MOTH_OP_NUMBERS | MOTH_OP_PORTABLE)

COMPARISON(eq, "True where input = other.")
COMPARISON(ne, "True where input ~= other; NaN differs from itself.")
COMPARISON(lt, "True where input < other.")
COMPARISON(le, "True where input <= other.")
COMPARISON(gt, "True where input > other.")
COMPARISON(ge, "True where input >= other.")
COMPARISON(logical_and, "True where input and other are both not 0.")
COMPARISON(logical_or, "True where input or other is not 0.")
COMPARISON(logical_xor, "True where exactly one of input and other is not 0.")

/* -- equal -- */

static int equal_shape(const equal_args *a, moth_layout *y) {
  (void)a;
  y->ndim = 0;
  y->dtype = MOTH_BOOL;
  return MOTH_OK;
}

/* The first pass writes a mask of the differences; the second pass searches it. */
static int equal_cpu(const equal_args *a, moth_tensor **out) {
  uint8_t *y = (uint8_t *)moth_at(out[0]);
  *y = moth_shape_same(&a->input->l, &a->other->l);
  if (!*y || a->input->l.numel == 0) return MOTH_OK;
  moth_layout l = a->input->l;
  l.dtype = MOTH_BOOL;
  moth_tensor *differs = moth_tensor_new(a->ctx, &l);
  int status = differs ? map2(moth_compare.ne, differs, a->input, a->other) : a->ctx->error.code;
  if (!status) *y = memchr(moth_at(differs), 1, (size_t)l.numel) == NULL;
  moth_tensor_release(differs);
  return status;
}

MOTH_OP_CONST(equal, EQUAL, .doc = "True if two tensors have the same shape and the same elements.",
              .examples = "moth.randn(2, 3), moth.randn(2, 3)", .dtypes = MOTH_ANY | MOTH_PROMOTE,
              .flags = MOTH_OP_METHOD)

#define LISTED(kind, op, ...) &moth_op_##op,
const moth_op *const moth_compare_ops[] = {COMPARE_FUNCTIONS(LISTED) &moth_op_equal, NULL};
