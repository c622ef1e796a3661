/* jit.cuh -- kernels made at run time (jit.cu). */
#ifndef MOTH_CUDA_JIT_CUH
#define MOTH_CUDA_JIT_CUH

#include "device.cuh"

/* Compiles `source`, to be read behind the files that plugin.cmake lists, for q's device, which is
** the current one, and loads n kernels of it. They are launched as all others are, and never freed.
** MOTH_E_UNSUPPORTED: that cannot be done here; `why` says why. MOTH_E_MEM: not now. */
MOTH_LOCAL int moth_make(const moth_queue *q, const char *source, const char *const *kernels, int n,
                         const void **at, char *why, size_t room);
/* Brings such a kernel to the current device: not while a graph is made. */
MOTH_LOCAL cudaError_t moth_made_load(const void *kernel);

/* -- code on disk (jit_cache.cu) -- */

/* The file for the code of a source, by all that it depends on; false: nothing is kept. */
MOTH_LOCAL bool moth_cache_name(const char *target, int version, const char *source, char *to,
                                size_t room);
/* For free(); NULL: there is none, or not all of it. */
MOTH_LOCAL char *moth_cache_read(const char *name);
MOTH_LOCAL void moth_cache_write(const char *name, const char *code, size_t size);

#endif
