/* coroutine.h -- modes and scopes that belong to one coroutine of the host (coroutine.c).
*/
#ifndef MOTH_COROUTINE_H
#define MOTH_COROUTINE_H

#include "context.h"

void moth_coroutines_settle_now(moth_ctx *ctx);
uint32_t moth_coroutines_scope_now(moth_ctx *ctx);

/* Loads the modes of the running coroutine into the context. Called before an entry point reads
** them. */
static inline void moth_settle_modes(moth_ctx *ctx) {
  if (ctx->ncoroutines) moth_coroutines_settle_now(ctx);
}
/* The innermost scope of the running coroutine; 0: none. */
static inline uint32_t moth_current_scope(moth_ctx *ctx) {
  return ctx->ncoroutines ? moth_coroutines_scope_now(ctx) : ctx->base.scope;
}

/* A pointer to the innermost of the running coroutine's own scopes. Returns NULL with an error
** set. */
uint32_t *moth_own_scope(moth_ctx *ctx);
/* The scope around `scope`, of this coroutine or of one that resumed it. */
uint32_t moth_scope_around(moth_ctx *ctx, uint32_t scope);
void moth_scope_abandon(moth_ctx *ctx, uint32_t scope); /* its tensors join no scope (handles.c) */
/* Called after the running coroutine has closed a scope or restored a mode. */
void moth_coroutines_tidy(moth_ctx *ctx);
void moth_coroutines_free(moth_ctx *ctx);

#endif
