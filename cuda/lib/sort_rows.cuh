/* sort_rows.cuh -- sorts rows, or finds the first elements of a sorted row; stable (sort.cu). */
#ifndef MOTH_CUDA_SORT_ROWS_CUH
#define MOTH_CUDA_SORT_ROWS_CUH

#include "sort_keys.cuh"

enum { ALL_OF_THEM = -2, MEDIAN = -1 };

/* Packed x as rows (outer, n, inner) along n. Writes the first k of each, or the element of one
** rank. The order is stable; a NaN makes the median NaN. */
template <class T> struct sort_plan {
  const T *x;
  T *values; /* or NULL */
  int64_t *positions;
  int64_t rows, n, inner, k, rank;
  uint64_t flip; /* reverses the order */
};

/* For all types but bool. x: a tensor on the device. */
template <class T>
MOTH_LOCAL int sort_rows(moth_ctx *ctx, const moth_tensor *x, const sort_plan<T> &p);

#endif
