/* fused_steps.cuh -- used by the source that fused.cu writes: the steps, which round each value to
** its type as if it were stored, and reads and writes of single elements. */
#ifndef MOTH_CUDA_FUSED_STEPS_CUH
#define MOTH_CUDA_FUSED_STEPS_CUH

#include "expressions.cuh"
#include "strided.cuh"

/* A launch's arguments: N operands, and three numbers for each of S steps. `zero` is 0, but
** compilers do not know that. */
template <int N, int S> struct given_of {
  strided<N> w;
  uint64_t numbers[3 * S];
  uint32_t zero[S];
};

/* -- steps -- */

/* Returns x, but no compiler can tell. Compilers can then not contract a step's product with the
** next step's sum, or share it between two steps; each step computes the same bits as its function
** alone. */
HD float apart(float x, uint32_t zero) { return float_of(bits_of(x) ^ zero); }
HD f16 apart(f16 x, uint32_t zero) { return f16{(uint16_t)(x.bits ^ zero)}; }
HD bf16 apart(bf16 x, uint32_t zero) { return bf16{(uint16_t)(x.bits ^ zero)}; }
HD double apart(double x, uint32_t zero) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits ^= zero;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* A function of one to three values, computed in T's compute type. */
template <class Form, class T, class R, class X, class Y, class Z>
HD R step(const uint64_t *numbers, X x, Y y, Z z) {
  typedef real_of<T> real;
  R result;
  put(&result, value_of<Form, T>((real)get(&x), (real)get(&y), (real)get(&z),
                                 (const real *)(const void *)numbers));
  return result;
}
template <class Form, class T, class R, class X, class Y>
HD R step(const uint64_t *numbers, X x, Y y) {
  return step<Form, T, R>(numbers, x, y, x);
}
template <class Form, class T, class R, class X> HD R step(const uint64_t *numbers, X x) {
  return step<Form, T, R>(numbers, x, x, x);
}

template <class R, class X> HD R convert(X x) {
  R result;
  convert_to(&result, get(&x));
  return result;
}

template <class X, class Y> constexpr bool are_same = false;
template <class X> constexpr bool are_same<X, X> = true;

template <class R, class X, class Y> HD R choose(bool8 condition, X x, Y y) {
  R result;
  if constexpr (are_same<R, X> && are_same<R, Y>) return condition.bits ? x : y;
  put(&result, condition.bits ? get(&x) : get(&y));
  return result;
}

/* -- reads and writes -- */

template <class T, class G>
static __device__ inline T read_one(const G &t, int k, const int64_t *at) {
  return *element<T>(t.w.of[k], at[k]);
}

template <class T, class G>
static __device__ inline void write_one(const G &t, int k, const int64_t *at, T v) {
  *(T *)(void *)(t.w.of[k].at + at[k]) = v;
}

#endif
