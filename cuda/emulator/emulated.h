/* emulated.h -- shared by the files of the emulator: kernels (emulated.cpp), memory (memory.cpp),
** and streams, which run commands (streams.cpp). */
#ifndef MOTH_EMULATED_H
#define MOTH_EMULATED_H

#include <pthread.h>

#include "cuda_runtime.h"
#include "ptx/machine.h"
#include "watch.h"

extern pthread_mutex_t moth_emulated_lock; /* held while commands are submitted or run */
extern const bool moth_emulated_null;      /* commands are not run (MOTH_EMULATED_NULL) */
extern cudaError_t moth_emulated_sticky;   /* a kernel's error, which all later calls return */
extern thread_local int moth_emulated_device; /* the current one */
int moth_emulated_devices(void);

/* How often a function of the runtime was called: moth_emulated_calls returns all counts. */
struct moth_emulated_count {
  const char *name;
  unsigned long long calls;
  moth_emulated_count *next;
  explicit moth_emulated_count(const char *of);
};
#define CALLED                                                                              \
  static moth_emulated_count called_(__func__);                                             \
  __atomic_store_n(&called_.calls, called_.calls + 1, __ATOMIC_RELAXED)
#define ASKED(stream)                                                                       \
  CALLED;                                                                                   \
  if (moth_emulated_null && !(stream)->captures) return cudaSuccess;                        \
  if (moth_emulated_sticky) return moth_emulated_error(moth_emulated_sticky)

/* The caller of the following functions holds the lock. */
void moth_emulated_open(bool open, int device);  /* allows the CPU to access a device's memory */
int moth_emulated_where(const void *at);         /* the device whose memory contains the address, or
                                                 ** -1 */
bool moth_emulated_load(const void *kernel);     /* accounts for the code on the current device;
                                                 ** false: out of memory */
cudaError_t moth_emulated_run(dim3 grid, dim3 block, size_t shared, bool together,
                              void (*run)(void *), void *arg);
size_t moth_emulated_most_shared(void);          /* largest shared memory of a block, in bytes */
bool moth_emulated_is_locked(const void *at);    /* tests if the address is in page-locked memory */
void moth_emulated_finish(void);                 /* runs all commands of all streams */
cudaError_t moth_emulated_error(cudaError_t error); /* records the error for cudaGetLastError, and
                                                   ** returns it */

int moth_emulated_card(const char *name, int usual); /* the value of an environment variable */
bool moth_emulated_knows(const void *kernel);      /* tests if the kernel can be launched */

/* -- ptx.cpp: kernels as NVIDIA's compilers compile them -- */

/* Counts the kernel's work (counts.cpp), if requested. */
void moth_counts_begin(const moth_ptx_kernel *kernel); /* a thread begins */
void moth_counts_touch(const char *kernel, int line, uint64_t at, unsigned n,
                       const char *block_shared);
unsigned long long *moth_counts_instructions(void);

/* The kernel to run in place of a kernel, or NULL; false: it is missing. */
bool moth_ptx_replacement(const void *kernel, const moth_ptx_kernel **is);
void moth_ptx_hold(const moth_ptx_kernel *kernel, char *params, void *const *args);
static inline void moth_ptx_run(const moth_ptx_kernel *kernel, size_t shared, char *params) {
  moth_counts_begin(kernel);
  kernel->run((char *)moth_emulated_shared(), shared, kernel->name, params);
}
void *moth_ptx_compile(const char *text); /* a shared object's handle, or NULL */
const void *moth_ptx_find(void *handle, const char *name); /* a kernel of it, or NULL */

#endif
