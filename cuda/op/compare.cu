/* compare.cu -- comparisons and logic (the list is in core/op/compare.h). */
#include "../../core/op/compare.h"

#include "lib/elementwise.cuh"

#define LISTS(ONE, TWO, THREE) \
  COMPARE_FUNCTIONS(TWO)
MOTH_CUDA_FAMILY(LISTS)

/* -- equal -- */

template <class T> static __global__ void find_difference(strided<2> w, uint8_t *same) {
  const int64_t i = thread_number();
  int64_t at[2];
  if (i >= w.n) return;
  offsets(w, i, at);
  if (get(element<T>(w.of[0], at[0])) != get(element<T>(w.of[1], at[1])))
    *(volatile uint8_t *)same = 0; /* other threads may write the result, too */
}

MOTH_CUDA(equal) {
  const moth_tensor *x = a->input, *other = a->other, *pair[2] = {x, other};
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  const bool alike = x->l.ndim == other->l.ndim &&
                     !memcmp(x->l.shape, other->l.shape, sizeof(int64_t) * (size_t)x->l.ndim);
  uint8_t *y = data<uint8_t>(out[0]);
  strided<2> w;
  if (!q) return moth_status(a->ctx);
  int status = moth_launched(a->ctx, q, cudaMemsetAsync(y, alike, 1, q->stream));
  if (status || !alike || x->l.numel == 0) return status;
  strided_over<2>(&w, a->ctx, pair);
  return with_any(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch_on(a->ctx, q, find_difference<T>, blocks_for(w.n), BLOCK, 0, w, y);
  });
}
