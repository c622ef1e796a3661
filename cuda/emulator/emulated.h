/* emulated.h -- what the parts of the emulator share: kernels (emulated.cpp), memory (memory.cpp),
** and the streams that say when they run (streams.cpp).
*/
#ifndef MOTH_EMULATED_H
#define MOTH_EMULATED_H

#include <pthread.h>

#include "cuda_runtime.h"
#include "ptx/machine.h"
#include "watch.h"

extern pthread_mutex_t moth_emulated_lock; /* held by whoever asks for, or does, anything */
extern const bool moth_emulated_null;      /* nothing is done (MOTH_EMULATED_NULL) */
extern cudaError_t moth_emulated_sticky;   /* of a kernel: all that is asked later fails so */
extern thread_local int moth_emulated_device; /* the current one */
int moth_emulated_devices(void);

/* How often a function of the runtime was called: moth_emulated_calls lists all. */
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
  if (moth_emulated_sticky) return moth_emulated_told(moth_emulated_sticky)

/* What follows wants the lock. */
void moth_emulated_open(bool open, int device);  /* a device's memory, to the CPU */
int moth_emulated_where(const void *at);         /* in which one's memory it lies, or -1 */
bool moth_emulated_load(const void *kernel);     /* to the current device; false: it is full */
cudaError_t moth_emulated_run(dim3 grid, dim3 block, size_t shared, bool together,
                              void (*run)(void *), void *arg);
size_t moth_emulated_most_shared(void);          /* bytes that a block may have */
bool moth_emulated_is_locked(const void *at);    /* whether it lies in page-locked memory */
void moth_emulated_finish(void);                 /* all that was asked for, of all streams */
cudaError_t moth_emulated_told(cudaError_t error); /* for cudaGetLastError */

int moth_emulated_card(const char *name, int usual); /* what the environment says of it */
bool moth_emulated_knows(const void *kernel);      /* whether a launch may ask for it */

/* -- ptx.cpp: kernels as NVIDIA's compilers made them -- */

/* What it would take (counts.cpp), if anybody asks. */
void moth_counts_begin(const moth_ptx_kernel *kernel); /* a thread */
void moth_counts_touch(const char *kernel, int line, uint64_t at, unsigned n, const char *room);
unsigned long long *moth_counts_instructions(void);

/* What runs in place of a kernel, or NULL; false: there should be one. */
bool moth_ptx_stands_for(const void *kernel, const moth_ptx_kernel **is);
void moth_ptx_hold(const moth_ptx_kernel *kernel, char *params, void *const *args);
static inline void moth_ptx_run(const moth_ptx_kernel *kernel, size_t shared, char *params) {
  moth_counts_begin(kernel);
  kernel->run((char *)moth_emulated_shared(), shared, kernel->name, params);
}
void *moth_ptx_compile(const char *text); /* a shared object's handle, or NULL */
const void *moth_ptx_find(void *handle, const char *name); /* a kernel of it, or NULL */

#endif
