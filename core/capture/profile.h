/* profile.h -- events that the context adds to a profile, where ctx->profile is set. The profile
** finds ops and kernels by itself, as an observer.
*/
#ifndef MOTH_PROFILE_H
#define MOTH_PROFILE_H

#include "base/context.h"

/* The event that begins now, inside the last one that has not ended; 0 where there is no room.
** host: it is what the host called, which may say where that stands. */
uint64_t moth_profile_enter(moth_ctx *ctx, int kind, const char *name, bool host);
/* Ends it; nothing if it has ended, or is one of another profile. */
void moth_profile_leave(moth_ctx *ctx, uint64_t event, int status);
/* The shapes of an op's tensors, if they are asked for. */
void moth_profile_inputs(moth_ctx *ctx, uint64_t event, const moth_op *op, const void *args);
/* The gradient of a node begins. */
uint64_t moth_profile_gradient(moth_ctx *ctx, const moth_node *n);

/* Between the two the device's current stream works for the event that began last. */
uint32_t moth_profile_device_begin(moth_ctx *ctx, int device);
void moth_profile_device_end(moth_ctx *ctx, uint32_t span);

void moth_profile_attach(moth_ctx *ctx, struct moth_profile *p); /* NULL: nothing is observed */
void moth_profiles_free(moth_ctx *ctx);

#endif
