/* real.c -- kernels of f16 and bf16: converts operands to f32, runs the f32 kernel, and converts
** the results. */
#include "real.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "base/threads.h"

moth_tensor *moth_real(const moth_tensor *x) {
  int dtype = moth_compute_dtype(x->l.dtype);
  return dtype == x->l.dtype ? moth_packed(x) : moth_cast(x, dtype);
}

moth_tensor *moth_real_out(moth_tensor *y) {
  if (moth_compute_dtype(y->l.dtype) == y->l.dtype) return moth_tensor_retain(y);
  moth_layout l = y->l;
  l.dtype = MOTH_F32;
  return moth_tensor_new(y->ctx, &l);
}

static void clear_part(int64_t first, int64_t last, int thread, const void *arg) {
  (void)thread;
  memset(moth_at(arg) + first, 0, (size_t)(last - first));
}

int moth_real_clear(moth_tensor *y) {
  const int64_t bytes = y->l.numel * moth_dtype_size[y->l.dtype];
  moth_layout l = {.dtype = y->l.dtype, .numel = 1};
  if (y->l.numel == 0) return MOTH_OK;
  if (!y->l.device) return moth_parallel(y->ctx, bytes, 1 << 16, 0.05, clear_part, y);
  moth_tensor *zero = moth_tensor_new(y->ctx, &l);
  if (zero) memset(moth_at(zero), 0, (size_t)moth_dtype_size[l.dtype]);
  int status = zero ? moth_copy_into(y, zero) : y->ctx->error.code;
  moth_tensor_release(zero);
  return status;
}

int moth_real_alike(const char *arg, const moth_tensor *x, const moth_tensor *like) {
  if (!x || moth_compute_dtype(x->l.dtype) == moth_compute_dtype(like->l.dtype)) return MOTH_OK;
  return moth_fail(x->ctx, MOTH_E_DTYPE, arg, "%s does not match %s", moth_str(x),
                   moth_str(like));
}

int moth_real_done(moth_tensor *work, moth_tensor *y, int status) {
  if (!status && work != y) status = moth_copy_into(y, work);
  moth_tensor_release(work);
  return status;
}
