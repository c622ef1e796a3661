/* autocast.h -- casts that a region of autocast keeps. */
#ifndef MOTH_AUTOCAST_H
#define MOTH_AUTOCAST_H

#include "base/context.h"

void moth_autocast_forget(moth_ctx *ctx); /* casts that were kept (autocast.c) */
/* What is kept becomes y, taken, which x is in a half type. */
void moth_half_copy_keep(moth_half_copy *b, const moth_tensor *x, moth_tensor *y);
/* That, borrowed, if it is of x, as x is now, in dtype; else NULL. */
moth_tensor *moth_half_copy_find(const moth_half_copy *b, const moth_tensor *x, int dtype);

#endif
