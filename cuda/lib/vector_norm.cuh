/* vector_norm.cuh -- the p-norm of many numbers, as a reduction. Kernels are compiled for each kind
** of p: a branch for each element would cost more than reading it. */
#ifndef MOTH_CUDA_VECTOR_NORM_CUH
#define MOTH_CUDA_VECTOR_NORM_CUH

#include "reduce.cuh"

/* ORDER_LARGEST: p is infinity; ORDER_LEAST: p is -infinity. */
enum { ORDER_0, ORDER_1, ORDER_2, ORDER_P, ORDER_LARGEST, ORDER_LEAST };

template <class V, int ORDER> struct norm_of {
  typedef V state;
  double p;
  MEMBER V start() const { return ORDER == ORDER_LEAST ? (V)INFINITY : (V)0; }
  MEMBER V join(V a, V b) const {
    if (ORDER == ORDER_LARGEST) return b > a || b != b ? b : a;
    if (ORDER == ORDER_LEAST) return b < a || b != b ? b : a;
    return a + b;
  }
  MEMBER void add(V *sum, V v) const {
    if (ORDER == ORDER_0) *sum += v != 0 ? 1 : 0;
    else if (ORDER == ORDER_2) *sum += v * v;
    else if (ORDER == ORDER_P) *sum += pow((V)fabs(v), (V)p);
    else *sum = join(*sum, (V)fabs(v));
  }
  MEMBER V root(V sum) const {
    if (ORDER == ORDER_2) return sqrt(sum);
    return ORDER == ORDER_P ? (V)pow(sum, (V)(1 / p)) : sum;
  }
};

/* Calls f with order<ORDER>(). */
template <int ORDER> struct order {
  enum { is = ORDER };
};
template <class F> static inline int with_order(double p, F f) {
  if (p == 2) return f(order<ORDER_2>());
  if (p == 1) return f(order<ORDER_1>());
  if (p == 0) return f(order<ORDER_0>());
  if (p == (double)INFINITY) return f(order<ORDER_LARGEST>());
  if (p == -(double)INFINITY) return f(order<ORDER_LEAST>());
  return f(order<ORDER_P>());
}

#endif
