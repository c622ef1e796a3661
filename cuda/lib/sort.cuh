/* sort.cuh -- rows in order, or the first of a row in order, equal ones as they came (sort.cu). */
#ifndef MOTH_CUDA_SORT_CUH
#define MOTH_CUDA_SORT_CUH

#include "keys.cuh"

enum { ALL_OF_THEM = -2, MEDIAN = -1 };

/* Packed x as rows (outer, n, inner) along n. The first k of each go out, or one by its rank: of
** equals the first, and NaN over any median. */
template <class T> struct order_plan {
  const T *x;
  T *values; /* or NULL */
  int64_t *positions;
  int64_t rows, n, inner, k, rank;
  uint64_t flip; /* turns the order around */
};

/* For all types but truth. x tells where the work lies. */
template <class T>
MOTH_LOCAL int put_in_order(moth_ctx *ctx, const moth_tensor *x, const order_plan<T> &p);

#endif
