/* position.cu -- converts positions that count from 1 to positions that count from 0, and back. */
#include "../../core/op/position.h"

#include "lib/dtypes.cuh"

static __global__ void shift_down(int64_t n, const int64_t *from, int64_t *to,
                                  moth_kernel_error *t) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t v = from[i];
  if (v == 0) report(t, KERNEL_ERROR_ZERO, 0, 0);
  to[i] = v > 0 ? v - 1 : v;
}

static __global__ void shift_up(int64_t n, const int64_t *from, int64_t *to) {
  const int64_t i = thread_number();
  if (i < n) to[i] = from[i] + 1;
}

MOTH_CUDA(to_index) {
  const moth_tensor *x = a->input;
  const int64_t n = out[0]->l.numel;
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  if (!q) return moth_status(a->ctx);
  moth_tensor *packed = x->l.dtype == MOTH_I64 ? moth_packed(x) : moth_cast(x, MOTH_I64);
  if (!packed) return moth_status(a->ctx);
  int status = n ? launch_on(a->ctx, q, shift_down, blocks_for(n), BLOCK, 0, n,
                             data<int64_t>(packed), data<int64_t>(out[0]), q->kernel_error)
                 : MOTH_OK;
  moth_tensor_release(packed);
  return status;
}

MOTH_CUDA(from_index) {
  const int64_t n = out[0]->l.numel;
  moth_tensor *packed = moth_packed(a->input);
  if (!packed) return moth_status(a->ctx);
  int status = n ? launch(a->ctx, out[0], shift_up, blocks_for(n), BLOCK, 0, n,
                          data<int64_t>(packed), data<int64_t>(out[0]))
                 : MOTH_OK;
  moth_tensor_release(packed);
  return status;
}
