/* wide.h -- loops of elementwise functions for AVX-512 that are not compiled from their lists. */
#ifndef MOTH_KERNEL_WIDE_H
#define MOTH_KERNEL_WIDE_H

#include <stdint.h>

#include "level.h"

#if MOTH_HAS_LEVELS
void moth_exp_wide(int64_t n, char *const *at, const int64_t *step, const void *arg);
void moth_tanh_wide(int64_t n, char *const *at, const int64_t *step, const void *arg);
#endif

#endif
