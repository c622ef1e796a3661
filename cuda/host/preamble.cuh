/* preamble.cuh -- the beginning of the source of kernels that are compiled at run time: the few C
** library declarations that the following files (plugin.cmake lists them) need. NVRTC has no C
** library; for the compiler of the GPU emulator, CUDA's keywords are defined instead. #include
** lines are indented here: those of the other files are removed. */
#define MOTH_AT_RUN_TIME
#define MOTH_MAX_DIMS 8

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#define UINT8_MAX 255
#define INT8_MAX 127
#define INT8_MIN (-128)
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define INT64_MAX 9223372036854775807L
#define INT64_MIN (-9223372036854775807L - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

#define MOTH_JIT_KERNEL(name) extern "C" __global__ void name(const __grid_constant__ given t)
static __device__ inline int64_t thread_number() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
#else
#  include <math.h>
#  include <stdint.h>
#  include <string.h>
#define __host__
#define __device__
#define __forceinline__ inline

/* As in cuda/emulator/streams.cpp. */
struct moth_emulated_jit {
  size_t size;
  void (*hold)(void *args_at, void *const *args);
  void (*run)(const void *kernel, void *args_at);
  void (*body)(const void *args_at);
};
struct moth_emulated_index {
  unsigned x, y, z;
};
extern "C" {
struct {
  const moth_emulated_index *thread, *block, *dim;
} moth_emulated_place;
}
template <class T> static void hold_args(void *args_at, void *const *args) {
  memcpy(args_at, args[0], sizeof(T));
}
static void run_jit(const void *kernel, void *args_at) {
  ((const moth_emulated_jit *)kernel)->body(args_at);
}

#define MOTH_JIT_KERNEL(name)                                                                      \
  static void name##_body(const given &t);                                                         \
  static void name##_call(const void *args_at) { name##_body(*(const given *)args_at); }           \
  extern "C" const moth_emulated_jit name;                                                         \
  const moth_emulated_jit name = {sizeof(given), hold_args<given>, run_jit, name##_call};          \
  static void name##_body(const given &t)
static inline int64_t thread_number() {
  return (int64_t)moth_emulated_place.block->x * moth_emulated_place.dim->x +
         moth_emulated_place.thread->x;
}
#endif
