/* launch.cuh -- how kernels are launched, and how the functions that launch them become known.
**
**   static __global__ void twice(int64_t n, float *y, const float *x) {...}
**
**   MOTH_CUDA(double_it) {                   // the op's name; `a` are its arguments, `out` results
**     int64_t n = out[0]->l.numel;
**     return launch(a->ctx, out[0], twice, blocks_for(n), BLOCK, 0, n, data<float>(out[0]), ...);
**   }
**
** MOTH_CUDA puts name and function into a section of the plugin that moth_backend_init walks, so a
** kernel in a new file is found without a list that names it. Its arguments are the struct of the
** op's own header. Everything is asked of the stream that is current for its context and device, in
** order, and a launcher never waits.
*/
#ifndef MOTH_CUDA_LAUNCH_CUH
#define MOTH_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include "host.h"

/* -- registration -- */

#define MOTH_ENTRY(unique, ...)                                                             \
  static const moth_device_kernel unique = __VA_ARGS__;                                     \
  __attribute__((used, section("moth_kernels"))) static const moth_device_kernel *const     \
    unique##_at = &unique;

#define MOTH_CUDA(op)                                                                       \
  static int op##_cuda(const op##_args *a, moth_tensor **out);                              \
  static int op##_entry(const void *a, moth_tensor **out) {                                 \
    return op##_cuda((const op##_args *)a, out);                                            \
  }                                                                                         \
  MOTH_ENTRY(op##_row, {#op, op##_entry, NULL})                                             \
  static int op##_cuda(const op##_args *a, moth_tensor **out)

/* -- launching -- */

enum { WARP = 32, BLOCK = 256 };

/* A grid of so many blocks. Where there cannot be so many it is empty, which a launch refuses: cut
** off to 32 bits they would be fewer, and nobody would know. */
static inline dim3 grid_for(int64_t x, int64_t y = 1, int64_t z = 1) {
  const bool fits = x <= INT32_MAX && y <= 65535 && z <= 65535;
  return fits ? dim3((unsigned)x, (unsigned)y, (unsigned)z) : dim3(0);
}

/* Blocks of BLOCK threads for n elements, `each` a thread: at least one. */
static inline dim3 blocks_for(int64_t n, int64_t each = 1) {
  const int64_t blocks = (n + BLOCK * each - 1) / (BLOCK * each);
  return grid_for(blocks < 1 ? 1 : blocks);
}

template <class T> static inline T *data(const moth_tensor *x) { return (T *)moth_address(x); }

/* What a kernel finds wrong with the values it meets is told to the host by a record of its launch,
** in memory that both can reach: the first finding counts, and the host looks at *any. */
typedef struct moth_trouble {
  int code;        /* enum below, 0: none */
  int *any;        /* one for all launches */
  long long value; /* what was found */
  long long limit; /* what it had to be below */
} moth_trouble;
enum { TROUBLE_INDEX = 1, TROUBLE_DIVISION, TROUBLE_CLASS, TROUBLE_ZERO, TROUBLE_DOMAIN,
       TROUBLE_LENGTH, /* of a sequence, where limit is the greatest there is */
       TROUBLE_DEFINITE, /* of a matrix, value the size of the block that is not positive */
       TROUBLE_SINGULAR };

/* The current stream of a context on a device; moth_queue_of makes that device current too. */
typedef struct moth_queue {
  cudaStream_t stream;
  moth_trouble *trouble; /* of the next launch, as kernels see it */
  int device;            /* as CUDA counts */
  int processors;        /* multiprocessors */
  int major, minor;
  bool tensor_cores;     /* do kernels of mma.cuh run here? */
  size_t shared;         /* most bytes of dynamic shared memory a block may ask for */
  bool together;         /* can it launch blocks that wait for each other? */
} moth_queue;
MOTH_LOCAL const moth_queue *moth_queue_of(moth_ctx *ctx, int device); /* NULL: error set */

/* What follows a copy, a fill or a library's call on q's stream: its error, or MOTH_OK. */
MOTH_LOCAL int moth_launched(moth_ctx *ctx, const moth_queue *q, cudaError_t error);

/* Asks for a kernel; where a graph is being made or changed, there (graph.cu). */
typedef struct moth_kernel_call {
  const void *kernel;
  dim3 grid, block;
  size_t shared;
  void **args;   /* addresses of its arguments */
  bool together; /* its blocks wait for each other */
} moth_kernel_call;
MOTH_LOCAL int moth_launch(moth_ctx *ctx, const moth_queue *q, const moth_kernel_call *call);

#ifdef __CUDACC__
#define MOTH_KERNEL(kernel) ((const void *)(kernel))
#else
#define MOTH_KERNEL(kernel) moth_emulated_kernel_of(kernel)
#endif

template <class... P, class... A>
static inline int launch_on(moth_ctx *ctx, const moth_queue *q, void (*kernel)(P...), dim3 grid,
                            dim3 block, size_t shared, A... args) {
  static_assert((sizeof(P) + ... + 0) <= 4096, "a kernel's parameters have 4 KiB");
  if (!q) return moth_status(ctx);
  return [&](P... held) {
    void *at[] = {(void *)&held...};
    const moth_kernel_call call = {MOTH_KERNEL(kernel), grid, block, shared, at, false};
    return moth_launch(ctx, q, &call);
  }(args...);
}

/* Asks for a kernel on the device that y lies on. Arguments are converted to the kernel's types. */
template <class... P, class... A>
static inline int launch(moth_ctx *ctx, const moth_tensor *y, void (*kernel)(P...), dim3 grid,
                         dim3 block, size_t shared, A... args) {
  return launch_on(ctx, moth_queue_of(ctx, y->l.device), kernel, grid, block, shared, args...);
}

/* Where for want of scratch another kernel does it: that is no failure. */
static inline void forget_failure(moth_ctx *ctx) { moth_fail(ctx, MOTH_OK, NULL, "%s", ""); }

/* -- in kernels -- */

/* This thread's number among all of the grid. */
static __device__ inline int64_t thread_number() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* One thread tells for all of its warp that come here: each time is an atomic across the bus. */
static __device__ inline void report(moth_trouble *t, int code, long long value, long long limit) {
  const unsigned row = threadIdx.z * blockDim.y + threadIdx.y;
  const int lane = (int)((row * blockDim.x + threadIdx.x) % WARP);
  if (lane != __ffs((int)__activemask()) - 1) return;
  if (atomicCAS(&t->code, 0, code) != 0) return;
  t->value = value;
  t->limit = limit;
  __threadfence_system();
  *(volatile int *)t->any = 1;
}

/* Dynamic shared memory, as elements of a type. */
#ifdef __CUDACC__
template <class T> static __device__ inline T *shared_memory() {
  extern __shared__ __align__(16) unsigned char shared_room[];
  return reinterpret_cast<T *>(shared_room);
}
#else
template <class T> static inline T *shared_memory() { return (T *)moth_emulated_shared(); }
#endif

#endif
