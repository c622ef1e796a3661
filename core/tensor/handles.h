/* handles.h -- handles, by which hosts name tensors, and lists of results. */
#ifndef MOTH_HANDLES_H
#define MOTH_HANDLES_H

#include "base/context.h"

/* The tensor of a handle, borrowed, or NULL. */
moth_tensor *moth_lookup(const moth_ctx *ctx, const moth_handle *h);
/* The tensor of a handle, borrowed. Fails for a sparse tensor: ops that read or write elements do
** not accept them. */
moth_tensor *moth_resolve(moth_ctx *ctx, const moth_handle *h, const char *arg);
moth_tensor *moth_resolve_any(moth_ctx *ctx, const moth_handle *h, const char *arg);
/* Takes the reference and sets *h to the tensor's handle, a new one if it has none. */
int moth_hand_out(moth_ctx *ctx, moth_tensor *take, moth_handle *h);
/* Moves the handle of x to y. */
void moth_take_handle(moth_tensor *y, moth_tensor *x);

/* Takes the tensor, also on failure. */
int moth_results_push(moth_results *r, moth_tensor *take);
void moth_results_clear(moth_results *r);

#endif
