/* gather_along.cuh -- one position along a dimension for each element: shared by gather and the
** scatter ops. */
#ifndef MOTH_CUDA_GATHER_ALONG_CUH
#define MOTH_CUDA_GATHER_ALONG_CUH

#include "selection.cuh"
#include "strided.cuh"

/* The part of x that index covers; if dim is given, only its first slice. */
static inline moth_tensor covered(const moth_tensor *x, const moth_tensor *index, int hold) {
  moth_layout l = x->l;
  l.numel = index->l.numel;
  for (int d = 0; d < l.ndim; d++) l.shape[d] = index->l.shape[d];
  if (hold >= 0 && l.ndim > 0) l.stride[hold] = 0;
  return seen_as(x, &l);
}

static inline int64_t reach(const moth_tensor *x, int dim) {
  return x->l.ndim ? x->l.shape[dim] : 1;
}

/* Operands: the key, the position, and the base without its dimension, as if its elements had 8
** bytes; only positions are read. */
static __global__ void along_keys(strided<3> w, int64_t first, int64_t limit, int64_t step,
                                  int64_t none, moth_kernel_error *t) {
  const int64_t i = thread_number();
  int64_t at[3];
  if (i >= w.n) return;
  offsets(w, i, at);
  const int64_t position = position_of(*element<int64_t>(w.of[1], at[1]), first, 0, limit, t);
  *(int64_t *)(void *)(w.of[0].at + at[0]) = position >= 0 ? at[2] / 8 + position * step : none;
}

/* A list: for each element of index, the offset of its element of packed y, or y's size if the
** position is out of range. The caller releases it. NULL: error set. */
static inline moth_tensor *places_along(const moth_tensor *y, int dim, const moth_tensor *index) {
  const int64_t n = index->l.numel;
  const moth_queue *q = moth_queue_of(y->ctx, y->l.device);
  moth_tensor *keys = q ? list_new(y, n) : NULL;
  if (!keys || n == 0) return keys;
  moth_tensor held = covered(y, index, dim), flat = seen_as(keys, &index->l);
  flat.l.dtype = held.l.dtype = MOTH_I64;
  flat.l.offset = 0;
  int64_t step = 1;
  for (int d = index->l.ndim - 1; d >= 0; d--) {
    flat.l.stride[d] = step;
    step *= index->l.shape[d];
  }
  const moth_tensor *operands[3] = {&flat, index, &held};
  strided<3> w;
  strided_over<3>(&w, y->ctx, operands);
  if (!launch_on(y->ctx, q, along_keys, blocks_for(n), BLOCK, 0, w, index->l.index_base,
                 reach(y, dim), y->l.ndim ? y->l.stride[dim] : 0, y->l.numel, q->kernel_error))
    return keys;
  moth_tensor_release(keys);
  return NULL;
}

#endif
