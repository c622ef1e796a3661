/* profile.h -- events that the context adds to a profile, if ctx->profile is set. The profile finds
** ops and kernels itself, as an observer.
*/
#ifndef MOTH_PROFILE_H
#define MOTH_PROFILE_H

#include "base/context.h"

/* Begins an event inside the innermost running event. Returns 0 if the profile is full. host: the
** host called it, and may report the source line. */
uint64_t moth_profile_enter(moth_ctx *ctx, int kind, const char *name, bool host);
/* Ends an event. Does nothing if it has ended or belongs to another profile. */
void moth_profile_leave(moth_ctx *ctx, uint64_t event, int status);
/* Records the shapes of an op's tensors, if SHAPES is set. */
void moth_profile_inputs(moth_ctx *ctx, uint64_t event, const moth_op *op, const void *args);
/* Begins the event of a node's gradient. */
uint64_t moth_profile_gradient(moth_ctx *ctx, const moth_node *n);

/* Between begin and end the device's current stream works for the innermost running event. */
uint32_t moth_profile_device_begin(moth_ctx *ctx, int device);
void moth_profile_device_end(moth_ctx *ctx, uint32_t span);

void moth_profile_attach(moth_ctx *ctx, struct moth_profile *p); /* NULL: removes the observer */
void moth_profiles_free(moth_ctx *ctx);

#endif
