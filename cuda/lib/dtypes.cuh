/* dtypes.cuh -- the ten dtypes in kernels: the storage type, the compute type, and conversions
** between them, with the results of core/tensor/dtype.c. */
#ifndef MOTH_CUDA_DTYPES_CUH
#define MOTH_CUDA_DTYPES_CUH

#include <math.h>

#include "../../core/tensor/half.h"
#include "host/launch.cuh"

#define HD static __host__ __device__ inline

/* -- half types: bits in memory, f32 in registers -- */

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};
struct bool8 { /* bool: 0 or 1 */
  uint8_t bits;
};

HD uint32_t bits_of(float x) { return moth_bits_f32(x); }
HD float float_of(uint32_t bits) { return moth_float_of(bits); }

/* By an instruction where the device has one. Rounds to nearest even; NaN stays NaN, perhaps with
** other bits. */

HD float widen(bf16 h) { return moth_widen_bf16(h.bits); }

HD float widen(f16 h) {
#ifdef __CUDA_ARCH__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
  return x;
#else
  return moth_widen_f16(h.bits);
#endif
}

HD bf16 narrow_bf16(float x) {
  bf16 h;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
#else
  h.bits = moth_narrow_bf16(x);
#endif
  return h;
}

HD f16 narrow_f16(float x) {
  f16 h;
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
#else
  h.bits = moth_narrow_f16(x);
#endif
  return h;
}

/* -- T is the storage type of an element, real_of<T> its compute type -- */

template <class T> struct real_of_ {
  typedef T type;
};
template <> struct real_of_<f16> {
  typedef float type;
};
template <> struct real_of_<bf16> {
  typedef float type;
};
template <> struct real_of_<bool8> {
  typedef uint8_t type;
};
template <class T> using real_of = typename real_of_<T>::type;

template <class T> HD T get(const T *at) { return *at; }
HD float get(const f16 *at) { return widen(*at); }
HD float get(const bf16 *at) { return widen(*at); }
HD uint8_t get(const bool8 *at) { return at->bits; }

template <class T, class V> HD void put(T *at, V v) { *at = (T)v; }
template <class V> HD void put(f16 *at, V v) { *at = narrow_f16((float)v); }
template <class V> HD void put(bf16 *at, V v) { *at = narrow_bf16((float)v); }
template <class V> HD void put(bool8 *at, V v) { at->bits = (uint8_t)v; }

template <class T> struct is_real_ {
  enum { value = 0 };
};
template <> struct is_real_<float> {
  enum { value = 1 };
};
template <> struct is_real_<double> {
  enum { value = 1 };
};
template <> struct is_real_<f16> {
  enum { value = 1 };
};
template <> struct is_real_<bf16> {
  enum { value = 1 };
};
template <class T> constexpr bool is_real = is_real_<T>::value != 0;

/* -- vectors: several elements that are read or written at once -- */

template <class T, int EACH> struct alignas(sizeof(T) * EACH) vec {
  T at[EACH];
};

/* A vector is copied as one word: nvcc may copy a struct element by element. */
template <size_t BYTES> struct word_of_; /* an integer type of BYTES bytes */
template <> struct word_of_<2> { typedef uint16_t type; };
template <> struct word_of_<4> { typedef uint32_t type; };
template <> struct word_of_<8> { typedef uint64_t type; };
template <class T, int EACH> static __device__ inline vec<T, EACH> read_vec(const T *from) {
  typedef typename word_of_<(sizeof(T) * EACH < 8 ? sizeof(T) * EACH : 8)>::type word;
  vec<T, EACH> x;
  if constexpr (sizeof x == 16) x = *(const vec<T, EACH> *)(const void *)from;
  else {
    const word w = *(const word *)(const void *)from;
    memcpy(&x, &w, sizeof x);
  }
  return x;
}
template <class T, int EACH>
static __device__ inline void write_vec(T *to, const vec<T, EACH> &x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof x == 16 || sizeof x == 8) {
    uint32_t w[sizeof x / 4];
    memcpy(w, &x, sizeof x);
    const size_t at = __cvta_generic_to_global(to);
    if constexpr (sizeof x == 16)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w[0]), "r"(w[1]),
                   "r"(w[2]), "r"(w[3]) : "memory");
    else asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(w[0]), "r"(w[1])
                      : "memory");
    return;
  }
#endif
  *(vec<T, EACH> *)(void *)to = x;
}

/* -- conversion, as moth_convert's: floats to integers saturate, NaN becomes 0 -- */

template <class To> struct integer_range;
#define MOTH_RANGE(type, least, most)                \
  template <> struct integer_range<type> {           \
    HD double low() { return (double)(least); }      \
    HD type lowest() { return (least); }             \
    HD double high() { return (double)(most); }      \
    HD type highest() { return (most); }             \
  };
MOTH_RANGE(uint8_t, 0, UINT8_MAX)
MOTH_RANGE(int8_t, INT8_MIN, INT8_MAX)
MOTH_RANGE(int16_t, INT16_MIN, INT16_MAX)
MOTH_RANGE(int32_t, INT32_MIN, INT32_MAX)
MOTH_RANGE(int64_t, INT64_MIN, INT64_MAX)

template <class To, class V> HD void convert_to(To *at, V v) {
  if constexpr (sizeof(V) >= 4 && (V)0.5 != (V)0 && !is_real<To>) { /* from a float to integers */
    const double x = (double)v;
    if (x != x) *at = 0;
    else if (x <= integer_range<To>::low()) *at = integer_range<To>::lowest();
    else if (x >= integer_range<To>::high()) *at = integer_range<To>::highest();
    else *at = (To)x;
  } else {
    put(at, v);
  }
}
template <class V> HD void convert_to(bool8 *at, V v) { at->bits = v != 0; }
HD void convert_to(f16 *at, double v) { *at = narrow_f16((float)v); }
HD void convert_to(bf16 *at, double v) { *at = narrow_bf16((float)v); }

/* -- choosing a type by a dtype: calls f with type<T>() -- */

#ifndef MOTH_AT_RUN_TIME /* kernels that NVRTC compiles (jit.cu) include this file's text */

template <class T> struct type {
  typedef T of;
};

template <class F> static inline int with_any(int dtype, F f) {
  switch (dtype) {
    case MOTH_BOOL: return f(type<bool8>());
    case MOTH_U8: return f(type<uint8_t>());
    case MOTH_I8: return f(type<int8_t>());
    case MOTH_I16: return f(type<int16_t>());
    case MOTH_I32: return f(type<int32_t>());
    case MOTH_I64: return f(type<int64_t>());
    case MOTH_F16: return f(type<f16>());
    case MOTH_BF16: return f(type<bf16>());
    case MOTH_F32: return f(type<float>());
    default: return f(type<double>());
  }
}

template <class F> static inline int with_float(int dtype, F f) {
  switch (dtype) {
    case MOTH_F16: return f(type<f16>());
    case MOTH_BF16: return f(type<bf16>());
    case MOTH_F64: return f(type<double>());
    default: return f(type<float>());
  }
}

/* For elements that are only copied: an unsigned integer of their size. */
template <class F> static inline int with_size(int dtype, F f) {
  switch (moth_dtype_size[dtype]) {
    case 1: return f(type<uint8_t>());
    case 2: return f(type<uint16_t>());
    case 4: return f(type<uint32_t>());
    default: return f(type<uint64_t>());
  }
}
#endif

#endif
