/* sort.cu -- elements in order along a dimension, as core/op/sort.c has them: sort, topk, the k-th
** and the median.
*/
#include "../core/op/sort.h"

#include "sort.cuh"

/* The first of `positions` in order, values may be NULL; or each row's one of that rank. */
static int sort_into(moth_tensor *values, moth_tensor *positions, const moth_tensor *input,
                     int64_t dim, bool descending, int64_t rank) {
  moth_ctx *ctx = input->ctx;
  const int along = (int)(dim < 0 ? dim + input->l.ndim : dim);
  moth_tensor *x = moth_packed(input);
  if (!x) return moth_status(ctx);
  int status = with_numbers(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    order_plan<T> p = {data<T>(x), values ? data<T>(values) : NULL, data<int64_t>(positions),
                       1, 1, 1, 1, rank, descending ? last_key<T>() : 0};
    for (int d = 0; d < x->l.ndim; d++) {
      if (d == along) p.n = x->l.shape[d];
      else p.rows *= x->l.shape[d];
      if (d > along) p.inner *= x->l.shape[d];
    }
    if (p.rows && rank == ALL_OF_THEM) p.k = positions->l.numel / p.rows;
    return put_in_order(ctx, x, p);
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(sort) {
  return sort_into(out[0], out[1], a->input, a->dim, a->descending, ALL_OF_THEM);
}
MOTH_CUDA(argsort) {
  return sort_into(NULL, out[0], a->input, a->dim, a->descending, ALL_OF_THEM);
}
MOTH_CUDA(topk) {
  return sort_into(out[0], out[1], a->input, a->dim, a->largest, ALL_OF_THEM);
}
MOTH_CUDA(kthvalue) { return sort_into(out[0], out[1], a->input, a->dim, false, a->k - 1); }
MOTH_CUDA(median_dim) { return sort_into(out[0], out[1], a->input, a->dim, false, MEDIAN); }
