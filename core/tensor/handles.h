/* handles.h -- handles, which name tensors for the host, and lists of results. */
#ifndef MOTH_HANDLES_H
#define MOTH_HANDLES_H

#include "base/context.h"

/* Borrowed; a sparse tensor is refused here, once for whatever reads or writes elements. */
moth_tensor *moth_resolve(moth_ctx *ctx, const moth_handle *h, const char *arg);
moth_tensor *moth_resolve_any(moth_ctx *ctx, const moth_handle *h, const char *arg);
/* Takes the reference and fills h; a tensor that has a handle gives that one again. */
int moth_hand_out(moth_ctx *ctx, moth_tensor *take, moth_handle *h);
/* The handle of x, which has one, is y's from now on. */
void moth_take_handle(moth_tensor *y, moth_tensor *x);

/* Takes the tensor, also when it fails. */
int moth_results_push(moth_results *r, moth_tensor *take);
void moth_results_clear(moth_results *r);

#endif
