/* collect.h -- when a collection is due. */
#ifndef MOTH_COLLECT_H
#define MOTH_COLLECT_H

#include "base/context.h"

/* The status of a call that went well: WANT when a sweep or a collection is due, and always in
** anomaly mode, so that Lua can note where it stands. */
int moth_due_now(moth_ctx *ctx);
void moth_lower_goal(moth_ctx *ctx); /* after much was given back without a collection */
int moth_due_soon(moth_ctx *ctx); /* before memory grows for long without Lua being asked */
static inline int moth_due(moth_ctx *ctx) {
  return ctx->want || ctx->anomaly || ctx->mem.live_bytes > ctx->mem.goal_bytes ||
                 ctx->live_slots > ctx->goal_slots
             ? moth_due_now(ctx)
             : MOTH_OK;
}

#endif
