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
/* Whether a view in place may be noted: of an export, where x was made in it. */
bool moth_calls_allow_view(const moth_ctx *ctx, const moth_tensor *x);
/* Runs an op of a backward pass, and notes it where the log takes those. */
int moth_calls_run(moth_ctx *ctx, const moth_op *op, const void *args, moth_tensor **out);
/* What cannot be noted: an error of an export; with EVENTS the end of the log's entries. */
int moth_calls_refuse(moth_ctx *ctx, const char *why);
/* An entry without an op: event is MOTH_CALLS_DATA, ...; x and y may be NULL. */
void moth_calls_add_event(moth_ctx *ctx, int event, moth_tensor *x, moth_tensor *y, bool value);
static inline void moth_calls_event(moth_ctx *ctx, int event, moth_tensor *x, moth_tensor *y,
                                    bool value) {
  if (ctx->calls) moth_calls_add_event(ctx, event, x, y, value);
}

#endif
