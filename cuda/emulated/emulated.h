/* emulated.h -- what the parts of the stand-in share: kernels (emulated.cpp), memory (memory.cpp),
** and the streams that say when they run (streams.cpp).
*/
#ifndef MOTH_EMULATED_H
#define MOTH_EMULATED_H

#include <pthread.h>

#include "cuda_runtime.h"
#include "watch.h"

extern pthread_mutex_t moth_emulated_lock; /* held by whoever asks for, or does, anything */

/* What follows wants the lock. */
void moth_emulated_open(bool open);              /* the device's memory, to the CPU */
bool moth_emulated_on_device(const void *at);    /* whether an address lies there */
cudaError_t moth_emulated_run(dim3 grid, dim3 block, size_t shared, bool together,
                              void (*run)(void *), void *arg);
size_t moth_emulated_most_shared(void);          /* bytes that a block may have */
bool moth_emulated_is_locked(const void *at);    /* whether it lies in page-locked memory */
void moth_emulated_finish(void);                 /* all that was asked for, of all streams */
cudaError_t moth_emulated_told(cudaError_t error); /* for cudaGetLastError */

#endif
