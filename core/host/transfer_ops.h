/* transfer_ops.h -- transfers between processes as ops, so that a captured step contains them. */
#ifndef MOTH_TRANSFER_OPS_H
#define MOTH_TRANSFER_OPS_H

#include "base/context.h"
#include "moth_lua.h"

/* transfer_ops.c: while a step is captured, run these in place of the functions below them. */
int moth_transfer_start_recorded(moth_ctx *ctx, const moth_transfer_args *x, moth_tensor *input,
                                 moth_tensor *output);
int moth_transfer_wait_recorded(moth_ctx *ctx, moth_tensor *x, double seconds);

/* processes.c. `replayed`: no handle refers to the transfer; moth_transfer_end frees it. */
int moth_transfer_begin(moth_ctx *ctx, const moth_transfer_args *x, const moth_tensor *input,
                        const moth_tensor *output, bool replayed);
int moth_transfer_end(moth_ctx *ctx, const moth_tensor *x, double seconds);

#endif
