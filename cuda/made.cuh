/* made.cuh -- kernels made at run time (made.cu). */
#ifndef MOTH_CUDA_MADE_CUH
#define MOTH_CUDA_MADE_CUH

#include "device.cuh"

/* Compiles `source`, to be read behind the files that plugin.cmake lists, for q's device, which is
** the current one, and loads n kernels of it. They are launched as all others are, and never freed.
** MOTH_E_UNSUPPORTED: that cannot be done here; `why` says why. */
MOTH_LOCAL int moth_make(const moth_queue *q, const char *source, const char *const *kernels, int n,
                         const void **at, char *why, size_t room);

#endif
