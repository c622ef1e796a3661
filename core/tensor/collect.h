/* collect.h -- decides when a garbage collection is due. */
#ifndef MOTH_COLLECT_H
#define MOTH_COLLECT_H

#include "base/context.h"

/* The status of a successful call: WANT when a sweep or a collection is due, and always in anomaly
** mode, so that Lua can record the position in the source. */
int moth_due_now(moth_ctx *ctx);
void moth_lower_goal(moth_ctx *ctx); /* after much memory was freed without a collection */
int moth_due_soon(moth_ctx *ctx); /* before memory grows for long without a call from Lua */
static inline int moth_due(moth_ctx *ctx) {
  return ctx->want || ctx->anomaly || ctx->mem.live_bytes > ctx->mem.goal_bytes ||
                 ctx->live_slots > ctx->goal_slots
             ? moth_due_now(ctx)
             : MOTH_OK;
}

#endif
