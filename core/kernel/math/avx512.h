/* avx512.h -- hand-written elementwise loops for AVX-512, for functions that are not compiled from
** the families' lists.
*/
#ifndef MOTH_KERNEL_AVX512_H
#define MOTH_KERNEL_AVX512_H

#include <stdint.h>

#include "kernel/level.h"

#if MOTH_HAS_LEVELS
#define MOTH_WIDE(f) \
  void moth_##f##_wide(int64_t n, char *const *at, const int64_t *step, const void *arg);
MOTH_WIDE(exp) MOTH_WIDE(tanh) MOTH_WIDE(erfc)
MOTH_WIDE(log) MOTH_WIDE(log2) MOTH_WIDE(log10) MOTH_WIDE(log1p)
MOTH_WIDE(sin) MOTH_WIDE(cos) MOTH_WIDE(tan) MOTH_WIDE(asin) MOTH_WIDE(acos)
#endif

#endif
