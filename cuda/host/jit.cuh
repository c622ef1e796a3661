/* jit.cuh -- kernels compiled at run time (jit.cu). */
#ifndef MOTH_CUDA_JIT_CUH
#define MOTH_CUDA_JIT_CUH

#include "device.cuh"

/* Compiles `source`, after the files that plugin.cmake lists, for q's device, which is current, and
** loads n kernels of it. They are launched like all others, and never freed. MOTH_E_UNSUPPORTED: it
** cannot be done here; `why` has the reason. MOTH_E_MEM: out of memory; a later call may succeed.
*/
MOTH_LOCAL int moth_jit_compile(const moth_queue *q, const char *source, const char *const *kernels,
                                int n, const void **at, char *why, size_t capacity);
/* Loads a compiled kernel on the current device: not while a graph is captured. */
MOTH_LOCAL cudaError_t moth_jit_load(const void *kernel);

/* -- the code cache on disk (jit_cache.cu) -- */

/* The cache file for a source, named by all that its code depends on; false: caching is off. */
MOTH_LOCAL bool moth_cache_name(const char *target, int version, const char *source, char *to,
                                size_t capacity);
/* The caller calls free(); NULL: missing or incomplete. */
MOTH_LOCAL char *moth_cache_read(const char *name);
MOTH_LOCAL void moth_cache_write(const char *name, const char *code, size_t size);

#endif
