/* autocast.h -- the casts that an autocast region keeps. */
#ifndef MOTH_AUTOCAST_H
#define MOTH_AUTOCAST_H

#include "base/context.h"

void moth_autocast_forget(moth_ctx *ctx); /* drops the kept casts */
/* Keeps y, which it takes, as the half-precision copy of x. */
void moth_half_copy_keep(moth_half_copy *b, const moth_tensor *x, moth_tensor *y);
/* The kept copy, borrowed, if it is a copy of x's current values in dtype; else NULL. */
moth_tensor *moth_half_copy_find(const moth_half_copy *b, const moth_tensor *x, int dtype);

#endif
