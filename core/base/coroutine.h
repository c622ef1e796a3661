/* coroutine.h -- modes and scopes that belong to one coroutine of the host (coroutine.c).
*/
#ifndef MOTH_COROUTINE_H
#define MOTH_COROUTINE_H

#include "context.h"

void moth_coroutines_settle_now(moth_ctx *ctx);
uint32_t moth_coroutines_scope_now(moth_ctx *ctx);

/* Before an entry point reads modes: those of the coroutine that runs become the context's. */
static inline void moth_settle_modes(moth_ctx *ctx) {
  if (ctx->ncoroutines) moth_coroutines_settle_now(ctx);
}
/* The innermost scope of the coroutine that runs; 0: none. */
static inline uint32_t moth_current_scope(moth_ctx *ctx) {
  return ctx->ncoroutines ? moth_coroutines_scope_now(ctx) : ctx->base.scope;
}

/* Where the running coroutine keeps the innermost of its own scopes; NULL: error set. */
uint32_t *moth_own_scope(moth_ctx *ctx);
/* The innermost scope around that one, of this coroutine or of what resumed it. */
uint32_t moth_scope_around(moth_ctx *ctx, uint32_t scope);
void moth_scope_abandon(moth_ctx *ctx, uint32_t scope); /* its tensors go to no scope (handles.c) */
/* After the running coroutine has closed a scope, or set a mode back. */
void moth_coroutines_tidy(moth_ctx *ctx);
void moth_coroutines_free(moth_ctx *ctx);

#endif
