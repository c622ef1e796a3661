/* cuda_runtime.h -- the part of CUDA that the plugin uses, on the CPU. The plugin's sources include
** it when a C++ compiler builds them for specs on machines without a GPU.
**
** Device memory is ordinary memory that only kernels and copies can access. At other times it is
** protected, so that the use of a device address on the CPU ends the program at once. Kernels run
** thread by thread. A thread that waits for others (__syncthreads, a shuffle) is suspended on its
** own stack until they arrive. Commands of streams run when the program waits for them
** (streams.cpp); commands that a capture does not allow invalidate it. Races between threads are
** found by the race checker (watch.cpp). Errors that only a GPU compiler reports are not found.
** Kernels can also run by the PTX of such a compiler (ptx.cpp). */
#ifndef MOTH_EMULATED_CUDA_RUNTIME_H
#define MOTH_EMULATED_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <new>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#ifndef __align__
#define __align__(n) __attribute__((aligned(n)))
#endif

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern const int64_t moth_emulated_small; /* MOTH_EMULATED_SMALL: see strided.cuh */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* -- kernels -- */

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorStubLibrary = 34,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901
} cudaError_t;

typedef struct moth_emulated_stream *cudaStream_t;
typedef struct moth_emulated_event *cudaEvent_t;

/* How to call a kernel: its arguments are copied when it is launched. */
struct moth_emulated_call {
  size_t size; /* bytes of the copies */
  void (*hold)(void *copies, void *const *args);
  void (*run)(const void *kernel, void *copies); /* runs one thread */
};

/* Registers a kernel: a launch has only its address. */
const void *moth_emulated_know(const void *kernel, const moth_emulated_call *how);

template <class... P> struct moth_emulated_args {
  typedef std::tuple<P...> held;
  template <size_t... I>
  static void copy(void *copies, void *const *args, std::index_sequence<I...>) {
    (void)args;
    new (copies) held(*(P *)args[I]...);
  }
  static void hold(void *copies, void *const *args) {
    copy(copies, args, std::index_sequence_for<P...>());
  }
  static void run(const void *kernel, void *copies) {
    std::apply((void (*)(P...))(uintptr_t)kernel, *(held *)copies);
  }
};

template <class... P> static inline const void *moth_emulated_kernel_of(void (*kernel)(P...)) {
  typedef moth_emulated_args<P...> args;
  static const moth_emulated_call how = {sizeof(typename args::held), args::hold, args::run};
  return moth_emulated_know((const void *)(uintptr_t)kernel, &how);
}

void *moth_emulated_shared(void);

/* -- functions that threads of a block execute together -- */

void __syncthreads(void);
int __syncthreads_or(int value);
int __syncthreads_count(int value);
void __syncwarp(unsigned mask = 0xffffffffu);
void __nanosleep(unsigned); /* until other blocks have progressed */
void moth_warp_exchange(unsigned mask, const void *mine, size_t size, int from, void *theirs);
/* Each thread of a warp passes a pointer; when all have called, `act` is called once with all 32
** pointers. */
void moth_together(void *mine, void (*act)(void *const *all));
/* Queues an asynchronous copy to shared memory. from NULL: zeros; to NULL: ends a group of copies.
** moth_await_copies executes all groups except the last `left` groups. */
void moth_copy_later(void *to, const void *from, size_t n);
void moth_await_copies(int left);
unsigned __ballot_sync(unsigned mask, int value);
unsigned __activemask(void);
int moth_lane(void);

template <class T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
  const int base = moth_lane() / width * width;
  moth_warp_exchange(mask, &v, sizeof v, base + (from & (width - 1)), &v);
  return v;
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32) {
  const int lane = moth_lane(), from = lane ^ by;
  moth_warp_exchange(mask, &v, sizeof v, from / width == lane / width ? from : lane, &v);
  return v;
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, int by, int width = 32) {
  const int lane = moth_lane(), from = lane + by;
  moth_warp_exchange(mask, &v, sizeof v, from / width == lane / width ? from : lane, &v);
  return v;
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, int by, int width = 32) {
  const int lane = moth_lane(), from = lane - by;
  moth_warp_exchange(mask, &v, sizeof v, from >= lane / width * width ? from : lane, &v);
  return v;
}
static inline int __any_sync(unsigned mask, int v) { return __ballot_sync(mask, v) != 0; }
static inline int __all_sync(unsigned mask, int v) { return __ballot_sync(mask, !v) == 0; }

/* -- atomics: one thread runs at a time -- */

/* The race checker is called for atomics (watch.cpp), and for fences. */
#ifdef MOTH_WATCHED
#define MOTH_UNSEEN __attribute__((no_sanitize("thread")))
void moth_watch_atomic(const void *at, size_t n, const void *where);
void moth_watch_read(const void *at, size_t n);
void moth_watch_fence(void);
#else
#define MOTH_UNSEEN
static inline void moth_watch_atomic(const void *, size_t, const void *) {}
static inline void moth_watch_read(const void *, size_t) {}
static inline void moth_watch_fence(void) {}
#endif

template <class T, class V> MOTH_UNSEEN static inline T atomicAdd(T *at, V v) {
  moth_watch_atomic(at, sizeof *at, __builtin_return_address(0));
  T old = *at;
  *at = old + (T)v;
  return old;
}
template <class T, class V> MOTH_UNSEEN static inline T atomicMax(T *at, V v) {
  moth_watch_atomic(at, sizeof *at, __builtin_return_address(0));
  T old = *at;
  if ((T)v > old) *at = (T)v;
  return old;
}
template <class T, class V> MOTH_UNSEEN static inline T atomicMin(T *at, V v) {
  moth_watch_atomic(at, sizeof *at, __builtin_return_address(0));
  T old = *at;
  if ((T)v < old) *at = (T)v;
  return old;
}
template <class T, class V> MOTH_UNSEEN static inline T atomicExch(T *at, V v) {
  moth_watch_atomic(at, sizeof *at, __builtin_return_address(0));
  T old = *at;
  *at = (T)v;
  return old;
}
template <class T, class V> MOTH_UNSEEN static inline T atomicOr(T *at, V v) {
  moth_watch_atomic(at, sizeof *at, __builtin_return_address(0));
  T old = *at;
  *at = old | (T)v;
  return old;
}
template <class T, class V, class W> MOTH_UNSEEN static inline T atomicCAS(T *at, V wanted, W v) {
  moth_watch_atomic(at, sizeof *at, __builtin_return_address(0));
  T old = *at;
  if (old == (T)wanted) *at = (T)v;
  return old;
}
static inline void __threadfence(void) { moth_watch_fence(); }
struct alignas(16) float4 {
  float x, y, z, w;
};
template <class T> static inline T __ldcg(const T *at) { return *at; }
static inline void __threadfence_system(void) { moth_watch_fence(); }
static inline void __threadfence_block(void) {}

/* -- intrinsics -- */

template <class T> static inline T __ldg(const T *at) { return *at; }
static inline float __int_as_float(int v) {
  float x;
  memcpy(&x, &v, 4);
  return x;
}
static inline int __float_as_int(float v) {
  int x;
  memcpy(&x, &v, 4);
  return x;
}
static inline unsigned __float_as_uint(float v) { return (unsigned)__float_as_int(v); }
static inline float __uint_as_float(unsigned v) { return __int_as_float((int)v); }
static inline long long __double_as_longlong(double v) {
  long long x;
  memcpy(&x, &v, 8);
  return x;
}
static inline double __longlong_as_double(long long v) {
  double x;
  memcpy(&x, &v, 8);
  return x;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
#define __expf expf
#define __logf logf
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdividef(float x, float y) { return x / y; }
template <class A> static inline A min(A a, A b) { return a < b ? a : b; }
template <class A> static inline A max(A a, A b) { return a > b ? a : b; }

/* -- the runtime -- */

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum { cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1 };
enum { cudaEventDisableTiming = 2 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
};

/* -- the runtime: graphs -- */

#define CUDART_VERSION 13000
typedef struct moth_emulated_graph *cudaGraph_t;
typedef struct moth_emulated_graph *cudaGraphExec_t;
typedef struct moth_emulated_node *cudaGraphNode_t;
typedef struct moth_emulated_edge cudaGraphEdgeData;
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
struct cudaKernelNodeParams {
  void *func;
  dim3 gridDim, blockDim;
  unsigned sharedMemBytes;
  void **kernelParams, **extra;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **last, const cudaGraphEdgeData **edges,
                                     size_t *n);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams *to);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* -- the runtime: kernels compiled at run time -- */

typedef struct moth_emulated_library *cudaLibrary_t;
typedef const struct moth_emulated_jit *cudaKernel_t;
enum cudaJitOption { cudaJitMaxRegisters };
enum cudaLibraryOption { cudaLibraryBinaryIsPreserved = 1 };
struct cudaFuncAttributes {
  int numRegs;
  size_t sharedSizeBytes; /* static shared memory */
  int ptxVersion;         /* the architecture that it was compiled for */
};
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, cudaJitOption *,
                                void **, unsigned, cudaLibraryOption *, void **, unsigned);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name);
cudaError_t cudaLibraryUnload(cudaLibrary_t library);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *to, const void *kernel);

/* -- the runtime: other functions -- */

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaMemGetInfo(size_t *left, size_t *all);
cudaError_t cudaMalloc(void **at, size_t n);
cudaError_t cudaFree(void *at);
cudaError_t cudaHostAlloc(void **at, size_t n, unsigned flags);
cudaError_t cudaFreeHost(void *at);
cudaError_t cudaHostGetDevicePointer(void **at, void *host, unsigned flags);
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args,
                             size_t shared, cudaStream_t stream);
cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **args,
                                        size_t shared, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t moth_emulated_occupancy(int *n, int threads, size_t shared);
int64_t moth_emulated_slab(void); /* size of block_cache.cu's slabs in bytes, or 0 */
cudaError_t moth_emulated_attribute(const void *kernel, cudaFuncAttribute which, int value);
template <class F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, F *, int threads,
                                                                        size_t shared) {
  return moth_emulated_occupancy(n, threads, shared);
}
static inline cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute which,
                                               int value) {
  return moth_emulated_attribute(kernel, which, value);
}

#endif
