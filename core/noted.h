/* noted.h -- noting the calls that come in, while ctx->calls is set: what moth_call tells of each.
*/
#ifndef MOTH_NOTED_H
#define MOTH_NOTED_H

#include "frame.h"

/* A call is about to run: a status. Unless it fails, after is to be told what came of it. */
int moth_calls_before(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                      uint64_t given);
/* Its status and its results; those of a list lie in ctx->results. */
int moth_calls_after(moth_ctx *ctx, int status, moth_tensor **out);
/* Whether x is a result of a call that was noted. */
bool moth_calls_made(const moth_ctx *ctx, const moth_tensor *x);

#endif
