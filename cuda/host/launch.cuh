/* launch.cuh -- launches kernels, and registers the functions that launch them.
**
**   static __global__ void twice(int64_t n, float *y, const float *x) {...}
**
**   MOTH_CUDA(double_it) {                   // the op's name; `a`: arguments, `out`: results
**     int64_t n = out[0]->l.numel;
**     return launch(a->ctx, out[0], twice, blocks_for(n), BLOCK, 0, n, data<float>(out[0]), ...);
**   }
**
** MOTH_CUDA puts name and function into a section of the plugin that moth_backend_init reads, so a
** kernel in a new file needs no central list. Its arguments are the struct of the op's own header.
** All work is submitted to the current stream of its context and device, in order, and a launcher
** never waits. */
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

/* A grid of x * y * z blocks. If there are too many, the grid is empty, and the launch fails:
** truncated to 32 bits, it would silently have too few blocks. */
static inline dim3 grid_for(int64_t x, int64_t y = 1, int64_t z = 1) {
  const bool fits = x <= INT32_MAX && y <= 65535 && z <= 65535;
  return fits ? dim3((unsigned)x, (unsigned)y, (unsigned)z) : dim3(0);
}

/* Blocks of BLOCK threads for n elements, `each` elements for a thread: at least one block. */
static inline dim3 blocks_for(int64_t n, int64_t each = 1) {
  const int64_t blocks = (n + BLOCK * each - 1) / (BLOCK * each);
  return grid_for(blocks < 1 ? 1 : blocks);
}

template <class T> static inline T *data(const moth_tensor *x) { return (T *)moth_address(x); }

/* A launch's error record, in memory that the kernel and the host share: a kernel reports invalid
** values here. The first report counts, and the host checks *any. */
typedef struct moth_kernel_error {
  int code;        /* 0: no error; else one of the enum below */
  int *any;        /* shared by all launches */
  long long value; /* the invalid value */
  long long limit; /* its upper limit (exclusive) */
} moth_kernel_error;
enum {
  KERNEL_ERROR_INDEX = 1,
  KERNEL_ERROR_DIVISION,
  KERNEL_ERROR_CLASS,
  KERNEL_ERROR_ZERO,
  KERNEL_ERROR_DOMAIN,
  KERNEL_ERROR_LENGTH,   /* of a sequence; limit is the greatest valid value */
  KERNEL_ERROR_DEFINITE, /* of a matrix; value is the order of the leading minor that is not
                          ** positive */
  KERNEL_ERROR_SINGULAR
};

/* The current stream of a context on a device; moth_queue_of also makes that device current. */
typedef struct moth_queue {
  cudaStream_t stream;
  moth_kernel_error *kernel_error; /* of the next launch; a device address */
  int device;            /* counts from 0 */
  int processors;        /* multiprocessors */
  int major, minor;
  bool tensor_cores;     /* can kernels of mma.cuh run here? */
  size_t shared;         /* maximal dynamic shared memory of a block, in bytes */
  bool together;         /* does it support cooperative launches? */
} moth_queue;
MOTH_LOCAL const moth_queue *moth_queue_of(moth_ctx *ctx, int device); /* NULL: error set */

/* Called after a copy, a fill or a library call on q's stream; returns its error, or MOTH_OK. */
MOTH_LOCAL int moth_launched(moth_ctx *ctx, const moth_queue *q, cudaError_t error);

/* Launches a kernel; while a graph is captured or updated, adds it to the graph (graph.cu). */
typedef struct moth_kernel_call {
  const void *kernel;
  dim3 grid, block;
  size_t shared;
  void **args;   /* addresses of its arguments */
  bool together; /* cooperative: its blocks wait for each other */
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

/* Launches a kernel on y's device. Arguments are converted to the kernel's types. */
template <class... P, class... A>
static inline int launch(moth_ctx *ctx, const moth_tensor *y, void (*kernel)(P...), dim3 grid,
                         dim3 block, size_t shared, A... args) {
  return launch_on(ctx, moth_queue_of(ctx, y->l.device), kernel, grid, block, shared, args...);
}

/* Clears the error if scratch memory is short and another kernel runs instead. */
static inline void forget_failure(moth_ctx *ctx) { moth_fail(ctx, MOTH_OK, NULL, "%s", ""); }

/* -- in kernels -- */

/* This thread's index in the grid. */
static __device__ inline int64_t thread_number() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* One thread reports for all active threads of its warp: each report is an atomic access over the
** bus. */
static __device__ inline void report(moth_kernel_error *t, int code, long long value,
                                     long long limit) {
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
  extern __shared__ __align__(16) unsigned char block_shared[];
  return reinterpret_cast<T *>(block_shared);
}
#else
template <class T> static inline T *shared_memory() { return (T *)moth_emulated_shared(); }
#endif

#endif
