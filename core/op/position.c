/* position.c -- converts positions: Lua users count from 1, the core counts from 0.
**
** Ops that read each position once accept positions that count from 1 (MOTH_OP_FROM_ONE; with
** MOTH_OP_FROM_ONE_THERE only on devices where a copy needs a launch). Such an op gets a view,
** whose layout records the number of the first position. All other ops get a copy that counts from
** 0.
**
** Values below 1 are not converted: -100 stays an ignore_index, and a 0 raises an error here,
** because the message can show the user's value.
*/
#include "position.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <stdatomic.h>

#include "kernel/copy.h"
#include "tensor/loop.h"
#include "base/threads.h"

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

typedef struct shifting { /* none: set if a thread found a 0 */
  const int64_t *from;
  int64_t *to;
  atomic_bool *none;
} shifting;

static void shift(int64_t first, int64_t last, int lane, const void *arg) {
  const shifting *s = arg;
  (void)lane;
  if (!moth_positions_shift(last - first, s->from + first, s->to + first))
    atomic_store(s->none, true);
}

static void count_up(int64_t first, int64_t last, int lane, const void *arg) {
  const shifting *s = arg;
  const int64_t *restrict from = s->from;
  int64_t *restrict to = s->to;
  (void)lane;
  for (int64_t i = first; i < last; i++) to[i] = (int64_t)((uint64_t)from[i] + 1);
}

/* y := the positions of x, converted by `run`. */
static int each_position(moth_tensor *y, const moth_tensor *x, moth_work *run, atomic_bool *none) {
  const int64_t n = y->l.numel;
  moth_tensor *packed = x->l.dtype == MOTH_I64 ? moth_packed(x) : moth_cast(x, MOTH_I64);
  if (!packed) return x->ctx->error.code;
  int status = MOTH_OK;
  const shifting s = {(const int64_t *)(const void *)moth_at(packed),
                      (int64_t *)(void *)moth_at(y), none};
  if (n < 4096) run(0, n, 0, &s);
  else status = moth_parallel(x->ctx, n, 1024, 0.3, run, &s);
  moth_tensor_release(packed);
  return status;
}

static int to_index_cpu(const to_index_args *a, moth_tensor **out) {
  atomic_bool none = false;
  int status = each_position(out[0], a->input, shift, &none);
  if (status || !atomic_load(&none)) return status;
  return moth_fail(a->ctx, MOTH_E_INDEX, NULL, "positions count from 1, got 0");
}

MOTH_OP_CONST(to_index, TO_INDEX,
              .doc = "Converts positions that count from 1 to positions that count from 0.",
              .examples = "moth.tensor{1LL, 2LL}",
              .dtypes = MOTH_ANY, .flags = MOTH_OP_HIDDEN)

static int count_from_one_view(const count_from_one_args *a, moth_layout *y) {
  (void)a;
  y->index_base = 1;
  return MOTH_OK;
}

static int count_from_one_grad(const count_from_one_args *a, moth_grad *g) {
  return moth_flow(g, a->input, g->dy);
}

MOTH_OP_VIEWS(count_from_one, COUNT_FROM_ONE,
              .doc = "The same positions as a view that is marked as counting from 1.",
              .examples = "moth.tensor{1LL, 2LL}",
              .dtypes = MOTH_BIT(MOTH_I64), .flags = MOTH_OP_HIDDEN)

static int positions_compose(const positions_args *a, moth_tensor **out) {
  if (a->input->l.dtype == MOTH_I64)
    return MOTH_CALL(a->ctx, out, count_from_one, .input = a->input);
  return MOTH_CALL(a->ctx, out, to_index, .input = a->input);
}

MOTH_OP_COMPOSES(positions, COUNT_FROM_ONE,
                 .doc = "Positions that count from 1, for an op that accepts them: a view if its "
                        "kernels can read it.",
                 .examples = "moth.tensor{1LL, 2LL}", .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_HIDDEN)

static int positions_there_compose(const positions_there_args *a, moth_tensor **out) {
  if (a->input->l.device) return MOTH_CALL(a->ctx, out, positions, .input = a->input);
  return MOTH_CALL(a->ctx, out, to_index, .input = a->input);
}

MOTH_OP_COMPOSES(positions_there, COUNT_FROM_ONE,
                 .doc = "Positions that count from 1, for an op that accepts them on devices other "
                        "than the CPU.",
                 .examples = "moth.tensor{1LL, 2LL}", .dtypes = MOTH_ANY,
                 .flags = MOTH_OP_HIDDEN)

static int from_index_shape(const from_index_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int from_index_cpu(const from_index_args *a, moth_tensor **out) {
  return each_position(out[0], a->input, count_up, NULL);
}

MOTH_OP_CONST(from_index, FROM_INDEX,
              .doc = "Converts positions that count from 0 to positions that count from 1.",
              .examples = "moth.tensor{0LL, 2LL}", .dtypes = MOTH_BIT(MOTH_I64),
              .flags = MOTH_OP_HIDDEN)

const moth_op *const moth_position_ops[] = {
  &moth_op_to_index, &moth_op_count_from_one, &moth_op_positions, &moth_op_positions_there,
  &moth_op_from_index, NULL};
