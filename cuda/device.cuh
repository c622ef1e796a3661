/* device.cuh -- what the files of the plugin share beside kernels: waiting, memory, copies. */
#ifndef MOTH_CUDA_DEVICE_CUH
#define MOTH_CUDA_DEVICE_CUH

#include "launch.cuh"

/* Waits for all that a context has asked of a device; raises what came late. */
MOTH_LOCAL int moth_wait(moth_ctx *ctx, int device);

MOTH_LOCAL int moth_cuda_copy(moth_tensor *y, const moth_tensor *x);

/* -- libraries that are used where they are found, and not missed (library.cu) -- */

enum { LIBRARY_BLASLT, LIBRARY_DNN, LIBRARIES };

/* dlopen's handle, asked for once a process; NULL: it is not there. */
MOTH_LOCAL void *moth_library(int which);
/* Addresses of its functions by their names, n of them; false if one is missing. */
MOTH_LOCAL bool moth_library_functions(int which, const char *const *names, int n, void **at);
MOTH_LOCAL void moth_cuda_report(moth_ctx *ctx, char *text, size_t room);

/* What a library keeps of a context on a device; closed with the context. */
typedef struct moth_kept {
  void *state;
  void (*close)(void *state);
} moth_kept;
MOTH_LOCAL moth_kept *moth_kept_of(const moth_queue *q, int library);

/* -- memory (memory.cu): blocks of a context on a device, kept for reuse in stream order -- */

typedef struct moth_blocks moth_blocks;
MOTH_LOCAL moth_blocks *moth_blocks_new(void);
MOTH_LOCAL void *moth_blocks_take(moth_blocks *b, int64_t nbytes); /* NULL: the device is full */
MOTH_LOCAL void moth_blocks_give(moth_blocks *b, void *block, int64_t nbytes);
MOTH_LOCAL void moth_blocks_trim(moth_blocks *b); /* free ones go back to the driver */
MOTH_LOCAL int64_t moth_blocks_cached(const moth_blocks *b);
MOTH_LOCAL void moth_blocks_free(moth_blocks *b);

#endif
