/* reduce.cu -- sums, products, counts and extremes along dimensions, as core/op/reduce.c has them.
** Half types and f32 add up in f32, f64 in f64, integers and bool in 64 bits, wrapping.
*/
#include "../core/op/reduce.h"

#include "reduce.cuh"

/* Calls f(x, y) with the input in `from` and a place for results in `to`, which is y itself or
** converted to it afterwards. */
template <class F>
static int folded(moth_tensor *y, const moth_tensor *input, int from, int to, F f) {
  moth_tensor *owned, *work = y;
  const moth_tensor *x = computed_as(input, from, &owned);
  moth_layout l = y->l;
  l.dtype = (uint8_t)to;
  const bool direct = y->l.dtype == to || moth_compute_dtype(y->l.dtype) == to;
  if (x && !direct) work = moth_tensor_new(y->ctx, &l);
  int status = x && work ? f(x, work) : moth_status(y->ctx);
  if (!status && work != y) status = moth_copy_into(y, work);
  if (work != y) moth_tensor_release(work);
  moth_tensor_release(owned);
  return status;
}

static int total_dtype(int dtype) { return moth_is_float(dtype) ? dtype : (int)MOTH_I64; }

/* -- sum, mean -- */

template <class T> struct sum_fold {
  typedef total_of<T> room;
  results to;
  bool mean;
  room count; /* what a mean is divided by */
  MEMBER room start() const { return 0; }
  MEMBER void take(room &r, real_of<T> v, int64_t) const { r = join(r, (room)v); }
  MEMBER room join(room a, room b) const {
    if constexpr (is_real<T>) return a + b;
    else return (room)((uint64_t)a + (uint64_t)b);
  }
  MEMBER void end(room r, int64_t at) const { put_result(to, at, mean ? r / count : r); }
};

static int sum_into(moth_tensor *y, const moth_tensor *input, moth_ints dims, int from, int to,
                    bool mean) {
  uint32_t mask;
  int status = moth_dim_mask(y->ctx, "dim", dims, input->l.ndim, &mask);
  if (status) return status;
  const int64_t n = input->l.numel / (y->l.numel ? y->l.numel : 1);
  return folded(y, input, from, to, [&](const moth_tensor *x, moth_tensor *work) {
    return with_numbers(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      const sum_fold<T> f = {{moth_address(work), work->l.dtype}, mean,
                             (total_of<T>)n};
      return fold<T>(y->ctx, f, x, mask);
    });
  });
}

MOTH_CUDA(sum) {
  const int from = moth_compute_dtype(a->dtype < 0 ? a->input->l.dtype : (int)a->dtype);
  return sum_into(out[0], a->input, a->dim, from, total_dtype(from), false);
}

MOTH_CUDA(mean) {
  const int from = moth_compute_dtype(out[0]->l.dtype);
  return sum_into(out[0], a->input, a->dim, from, from, true);
}
