/* device.cuh -- what the files of the plugin share beside kernels: waiting, memory, copies. */
#ifndef MOTH_CUDA_DEVICE_CUH
#define MOTH_CUDA_DEVICE_CUH

#include "launch.cuh"

/* Waits for all that a context has asked of a device; raises what came late. */
MOTH_LOCAL int moth_wait(moth_ctx *ctx, int device);

MOTH_LOCAL int moth_cuda_copy(moth_tensor *y, const moth_tensor *x);

/* -- memory (memory.cu): blocks of a context on a device, kept for reuse in stream order -- */

typedef struct moth_blocks moth_blocks;
MOTH_LOCAL moth_blocks *moth_blocks_new(void);
MOTH_LOCAL void *moth_blocks_take(moth_blocks *b, int64_t nbytes); /* NULL: the device is full */
MOTH_LOCAL void moth_blocks_give(moth_blocks *b, void *block, int64_t nbytes);
MOTH_LOCAL void moth_blocks_trim(moth_blocks *b); /* free ones go back to the driver */
MOTH_LOCAL int64_t moth_blocks_cached(const moth_blocks *b);
MOTH_LOCAL void moth_blocks_free(moth_blocks *b);

#endif
