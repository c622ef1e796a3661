/* transfer_ops.c -- transfers between processes as ops (transfer_ops.h). A captured step contains
** instructions, which are runs of ops. Each transfer is two of them: transfer_ starts it, and
** transfer_wait_ waits until it has ended. The tensors of an instruction belong to the capture; a
** transfer has tensors of its own over their storages.
*/
#include "transfer_ops.h"

#include "base/error.h"
#include "call/op.h"
#include "capture/capture.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

#define TRANSFER(ARG)                                                            \
  ARG(tensor,       target,     , "tensor that is written, or sent if none is")  \
  ARG(maybe_tensor, source, none, "tensor that is sent, if it is another")       \
  ARG(int,          kind,       , "MOTH_TRANSFER_...")                           \
  ARG(int,          group,      , "process group")                               \
  ARG(int,          reduction,  , "MOTH_REDUCE_...")                             \
  ARG(int,          peer,       , "root, sender or receiver")                    \
  ARG(int,          tag,        , "of send and recv")                            \
  ARG(int,          role,       , "READS, WRITES or both")                       \
  ARG(float,        seconds,    , "limit of tensors on a GPU")
MOTH_ARGS(transfer_, TRANSFER)

#define TRANSFER_WAIT(ARG)                              \
  ARG(tensor, target,  , "first tensor of the transfer") \
  ARG(float,  seconds, , "timeout")
MOTH_ARGS(transfer_wait_, TRANSFER_WAIT)

enum { READS = 1, WRITES = 2 }; /* what a transfer does with its target */

static int transfer__shape(const transfer__args *a, moth_layout *y) {
  moth_shape_like(a->target, y);
  y->dtype = a->target->l.dtype;
  return MOTH_OK;
}

static int transfer__cpu(const transfer__args *a, moth_tensor **out) {
  const moth_transfer_args x = {
    .kind = (int32_t)a->kind, .group = (int32_t)a->group, .op = (int32_t)a->reduction,
    .peer = (int32_t)a->peer, .tag = (int32_t)a->tag, .seconds = a->seconds};
  return moth_transfer_begin(a->ctx, &x, a->source ? a->source : a->role & READS ? out[0] : NULL,
                             a->role & WRITES ? out[0] : NULL, !a->ctx->capture);
}

MOTH_OP_CONST(transfer_, TRANSFER, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_HIDDEN | MOTH_OP_MUTATES | MOTH_OP_MIXED | MOTH_OP_PORTABLE)

static int transfer_wait__shape(const transfer_wait__args *a, moth_layout *y) {
  moth_shape_like(a->target, y);
  y->dtype = a->target->l.dtype;
  return MOTH_OK;
}

static int transfer_wait__cpu(const transfer_wait__args *a, moth_tensor **out) {
  return moth_transfer_end(a->ctx, out[0], a->seconds);
}

MOTH_OP_CONST(transfer_wait_, TRANSFER_WAIT, .dtypes = MOTH_ANY,
              .flags = MOTH_OP_HIDDEN | MOTH_OP_MUTATES | MOTH_OP_PORTABLE)

int moth_transfer_start_recorded(moth_ctx *ctx, const moth_transfer_args *x, moth_tensor *input,
                                 moth_tensor *output) {
  moth_tensor *target = output ? output : input, *result = NULL;
  if (!target || x->sizes)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                     "a captured step cannot contain %s; call it outside of the captured function",
                     target ? "an all_to_all" : "a barrier");
  const transfer__args args = {
    .ctx = ctx, .target = target, .source = input && input != target ? input : NULL,
    .kind = x->kind, .group = x->group, .reduction = x->op, .peer = x->peer, .tag = x->tag,
    .role = (input == target ? READS : 0) | (output ? WRITES : 0), .seconds = x->seconds};
  int status = moth_run(&moth_op_transfer_, &args, &result);
  moth_tensor_release(result);
  return status;
}

int moth_transfer_wait_recorded(moth_ctx *ctx, moth_tensor *x, double seconds) {
  moth_tensor *result = NULL;
  int status = MOTH_CALL(ctx, &result, transfer_wait_, .target = x, .seconds = seconds);
  moth_tensor_release(result);
  return status;
}

const moth_op *const moth_transfer_ops[] = {&moth_op_transfer_, &moth_op_transfer_wait_, NULL};
