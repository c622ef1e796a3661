/* slice.h -- work in slices of time. A call runs on a stack of its own (a fiber). When its time is
** over it pauses at the next poll (moth_cancelled), between kernels or inside a long one, and the
** host continues. The host repeats the call to continue it.
**
** The context's state of one call (error, results, number operands, modes) is saved with a paused
** call, so that the host may use the context meanwhile.
*/
#ifndef MOTH_SLICE_H
#define MOTH_SLICE_H

#include "base/context.h"

/* Runs an entry point in the current slice. The arguments are copied at the first call; later calls
** only say where the results go. Each returns MOTH_E_PAUSED while the work is not done. */
int32_t moth_call_sliced(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                         uint64_t given, moth_handle *out, uint32_t nout);
int32_t moth_replay_sliced(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                           uint32_t ninputs);
int32_t moth_step_sliced(moth_ctx *ctx, uint32_t task, uint64_t *node, uint32_t *ngiven,
                         uint32_t *nwanted);

/* Does an entry point have to run in slices? */
bool moth_slice_pending(const moth_ctx *ctx);
static inline bool moth_sliced(const moth_ctx *ctx) {
  return __builtin_expect(ctx->slice != NULL, 0) && moth_slice_pending(ctx);
}

bool moth_slice_inside(const moth_ctx *ctx);  /* does a fiber run the current slice? */
bool moth_slices_inside(const moth_ctx *ctx); /* does a fiber run? */
void moth_slices_free(moth_ctx *ctx);

#endif
