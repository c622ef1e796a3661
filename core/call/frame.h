/* frame.h -- a running call: its arguments as slots, and temporaries that are freed at its end.
**
** args.c fills the frame from the caller's slots, promote.c casts the inputs to a common dtype,
** call.c runs the op.
*/
#ifndef MOTH_FRAME_H
#define MOTH_FRAME_H

#include "base/context.h"
#include "op.h"

#define MOTH_LISTS 8  /* lists of tensors in the arguments of one op */
#define MOTH_TEMPS 16 /* cast or copied inputs stored here; more are allocated */

typedef struct moth_args {
  moth_ctx *ctx;
  moth_slot slot[MOTH_MAX_SLOTS];
} moth_args;

/* Temporaries of one call: owned tensors and blocks, freed at its end. */
typedef struct moth_call_frame {
  moth_args args;
  moth_results temps;
  moth_tensor *own[MOTH_TEMPS];
  int device; /* the device of the tensors and the results */
  void *list[MOTH_LISTS];
  int64_t list_bytes[MOTH_LISTS];
  uint32_t nlists;
  const moth_slot *slots; /* for observers: the slots that moth_call received */
  uint32_t nslots;
  uint64_t given;
} moth_call_frame;

void moth_frame_open(moth_call_frame *f, moth_ctx *ctx);
/* Keeps an owned tensor until the call ends. Returns NULL after an error. */
moth_tensor *moth_frame_keep(moth_call_frame *f, moth_tensor *take);
void moth_frame_close(moth_call_frame *f);
moth_tensor **moth_frame_list(moth_call_frame *f, int64_t n); /* capacity n, freed with the frame */
/* Copies the lists in f->args, so that casts replace tensors in the copies and not in the caller's
** lists. */
int moth_frame_own_lists(moth_call_frame *f, const moth_op *op);

/* Reads the slots of moth_call into f->args and fills in defaults. */
int moth_read_args(moth_call_frame *f, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                   uint64_t given);

/* Checks the dtypes of the inputs and casts them if the op promotes. *dtype: the common dtype, or
** MOTH_NO_DTYPE if there is no tensor. */
#define MOTH_NO_DTYPE (-1)
int moth_prepare(moth_call_frame *f, const moth_op *op, int *dtype);
/* A shape rule sets `ndim` of the last result to this if the call has no such result. */
#define MOTH_NO_RESULT (-1)
/* Casts inputs as the autocast region requires (autocast.c). */
int moth_autocast_inputs(moth_call_frame *f, const moth_op *op);
/* Keeps the half-precision copy that a normalization has written, for later products. */
void moth_autocast_result(const moth_op *op, moth_tensor **out);
int moth_autocast_half_copy(const moth_op *op); /* result number of that copy, or 0 */

/* On a device, replaces masks among an op's indices by the positions of true (op/masks.c). */
int moth_index_prepare(moth_call_frame *f, const moth_op *op);

#endif
