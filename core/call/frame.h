/* frame.h -- one call under way: its arguments as slots, and the temporaries that die with it.
**
** args.c fills the frame from what a caller laid out, promote.c casts the inputs to a common dtype,
** call.c runs the op.
*/
#ifndef MOTH_FRAME_H
#define MOTH_FRAME_H

#include "base/context.h"
#include "op.h"

#define MOTH_LISTS 8  /* lists of tensors among the arguments of one op */
#define MOTH_TEMPS 16 /* cast or copied inputs held in place; more go to the allocator */

typedef struct moth_args {
  moth_ctx *ctx;
  moth_slot slot[MOTH_MAX_SLOTS];
} moth_args;

/* Temporaries of one call: owned tensors and blocks that die with it. */
typedef struct moth_call_frame {
  moth_args args;
  moth_results temps;
  moth_tensor *room[MOTH_TEMPS];
  int device; /* where the tensors lie, and the results will */
  void *list[MOTH_LISTS];
  int64_t list_bytes[MOTH_LISTS];
  uint32_t nlists;
  const moth_slot *slots; /* where somebody observes: what moth_call was given */
  uint32_t nslots;
  uint64_t given;
} moth_call_frame;

void moth_frame_open(moth_call_frame *f, moth_ctx *ctx);
/* Keeps an owned tensor until the call ends; NULL after an error. */
moth_tensor *moth_frame_keep(moth_call_frame *f, moth_tensor *take);
void moth_frame_close(moth_call_frame *f);
moth_tensor **moth_frame_list(moth_call_frame *f, int64_t n); /* room for n, freed with the frame */
/* Copies the lists of f->args, which are then the frame's to change: casts replace what is in them,
** and the caller's own stay as they are. */
int moth_frame_own_lists(moth_call_frame *f, const moth_op *op);

/* Reads what moth_call was given into f->args, filling in defaults. */
int moth_read_args(moth_call_frame *f, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                   uint64_t given);

/* Checks the dtypes of the inputs and casts them where the op promotes. *dtype: the common one, or
** MOTH_NO_DTYPE without a tensor to take it from. */
#define MOTH_NO_DTYPE (-1)
int moth_prepare(moth_call_frame *f, const moth_op *op, int *dtype);
/* What a shape rule sets as `ndim` of a last result that this call does not have. */
#define MOTH_NO_RESULT (-1)
/* Casts inputs as the region of autocast says that the context is in (autocast.c). */
int moth_autocast_inputs(moth_call_frame *f, const moth_op *op);
/* A norm has written its result in the region's dtype as well: products that follow take that. */
void moth_autocast_result(const moth_op *op, moth_tensor **out);
int moth_autocast_half_copy(const moth_op *op); /* which of a norm's results that is; else 0 */

/* On a device, masks among an op's indices become the positions where they hold (op/masks.c). */
int moth_index_prepare(moth_call_frame *f, const moth_op *op);

#endif
