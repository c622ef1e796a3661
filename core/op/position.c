/* position.c -- positions of Lua users count from 1, the engine's from 0; here they are converted.
**
** Values below 1 are left alone: -100 stays an ignore_index, and a 0 is refused here, where the
** message can still say what the user wrote.
*/
#include "position.h"

#include "../loop.h"

static int to_index_shape(const to_index_args *a, moth_layout *y) {
  if (!moth_is_int(a->input->l.dtype))
    return moth_fail(a->ctx, MOTH_E_DTYPE, NULL,
                     "integers are needed as positions, got %s; convert with :long()",
                     moth_str(a->input));
  y->ndim = a->input->l.ndim;
  y->dtype = MOTH_I64;
  memcpy(y->shape, a->input->l.shape, sizeof y->shape);
  return MOTH_OK;
}

static int to_index_cpu(const to_index_args *a, moth_tensor **out) {
  const moth_tensor *x = a->input;
  moth_tensor *packed = x->l.dtype == MOTH_I64 ? moth_packed(x) : moth_cast(x, MOTH_I64);
  if (!packed) return a->ctx->error.code;
  const int64_t *from = (const int64_t *)(const void *)moth_at(packed);
  int64_t *y = (int64_t *)(void *)moth_at(out[0]);
  uint64_t all = ~(uint64_t)0;
  for (int64_t i = 0; i < out[0]->l.numel; i++) {
    const uint64_t v = (uint64_t)from[i]; /* in signs: plain vectors cannot compare 64 bits */
    all &= v | (0 - v);
    y[i] = (int64_t)(v - (((0 - v) & ~v) >> 63));
  }
  moth_tensor_release(packed);
  if (!(all >> 63)) return moth_fail(a->ctx, MOTH_E_INDEX, NULL, "positions count from 1, got 0");
  return MOTH_OK;
}

MOTH_OP_CONST(to_index, TO_INDEX,
              .doc = "Positions that count from 1 as positions that count from 0.",
              .examples = "moth.tensor{1LL, 2LL}",
              .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN)

static int from_index_shape(const from_index_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int from_index_cpu(const from_index_args *a, moth_tensor **out) {
  int status = moth_copy_into(out[0], a->input);
  int64_t *y = (int64_t *)(void *)moth_at(out[0]);
  for (int64_t i = 0; i < out[0]->l.numel && !status; i++) y[i]++;
  return status;
}

MOTH_OP_CONST(from_index, FROM_INDEX,
              .doc = "Positions that count from 0 as positions that count from 1.",
              .examples = "moth.tensor{0LL, 2LL}", .dtypes = MOTH_BIT(MOTH_I64),
              .flags = MOTH_OP_HIDDEN)

const moth_op *const moth_position_ops[] = {&moth_op_to_index, &moth_op_from_index, NULL};
