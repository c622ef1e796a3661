/* memory_format.c -- the memory order of the dimensions of new results, including channels_last:
** from the argument `memory_format`, or from the inputs.
*/
#include "memory_format.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "registry.h"
#include "tensor/loop.h"

static int64_t format_of(const moth_op *op, const void *args) {
  return op->format ? moth_arg_at(op, args, op->format - 1)->integer : MOTH_PRESERVE_FORMAT;
}

int moth_check_format(moth_ctx *ctx, const moth_op *op, const void *args, const moth_layout *y) {
  const int64_t format = format_of(op, args);
  const bool images = format == MOTH_CHANNELS_LAST, volumes = format == MOTH_CHANNELS_LAST_3D;
  if ((!images || y->ndim == 4) && (!volumes || y->ndim == 5)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, "memory_format", "%s, got %s",
                   images ? "channels_last is for (N, C, H, W)"
                          : "channels_last_3d is for (N, C, D, H, W)",
                   moth_str_shape(ctx, y->ndim, y->shape));
}

static bool broadcasts(const moth_layout *x, const moth_layout *y) {
  const int more = y->ndim - x->ndim;
  if (more < 0) return false;
  for (int d = 0; d < x->ndim; d++)
    if (x->shape[d] != y->shape[d + more] && x->shape[d] != 1) return false;
  return true;
}

/* Sets the strides of y to the memory order of the inputs' dimensions. */
static void follow_inputs(moth_call_frame *f, const moth_op *op, moth_layout *y) {
  const moth_layout *from[MOTH_LOOP_OPERANDS];
  int n = 0;
  moth_cursor c = {.op = op, .args = &f->args};
  while (n < MOTH_LOOP_OPERANDS && moth_next_input(&c)) {
    if (!*c.at || (*c.at)->l.numel < 2) continue;
    const moth_layout *x = &(*c.at)->l;
    if (!n && moth_has_strides(x, y)) return;
    if (broadcasts(x, y)) from[n++] = x;
  }
  if (n) moth_layout_follow(y, n, from);
}

static bool any_channels_last(moth_call_frame *f, const moth_op *op, const moth_layout *y) {
  moth_cursor c = {.op = op, .args = &f->args};
  while (moth_next_input(&c))
    if (*c.at && c.value && (*c.at)->l.ndim == y->ndim && moth_channels_last(*c.at)) return true;
  return false;
}

void moth_order_result(moth_call_frame *f, const moth_op *op, moth_layout *y) {
  const bool images = f->device && op->flags & MOTH_OP_CHANNELS_LAST;
  if (!images && !(op->flags & MOTH_OP_STRIDED)) return;
  const int64_t format = format_of(op, &f->args);
  const bool follows = format == MOTH_PRESERVE_FORMAT;
  if (follows && !images) follow_inputs(f, op, y);
  else if (follows ? any_channels_last(f, op, y) : format != MOTH_CONTIGUOUS_FORMAT)
    moth_layout_pack_channels_last(y);
}
