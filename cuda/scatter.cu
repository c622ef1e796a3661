/* scatter.cu -- scatter_reduce: all values that go to one element are brought together in order,
** and a thread makes them one.
*/
#include "../core/op/index.h"

#include "along.cuh"

enum { SUM, PROD, MEAN, AMAX, AMIN };

template <class T> static __device__ inline T joined(int how, T a, T b) {
  if (how == SUM || how == MEAN) return (T)(a + b);
  if (how == PROD) return (T)(a * b);
  return (how == AMAX ? b > a : b < a) || b != b ? b : a;
}

/* T: float, double or int64_t, whose means are rounded down. */
template <class T>
static __global__ void reduce_runs(int64_t n, int64_t none, const int64_t *key,
                                   const int64_t *from, const T *src, int how, bool with_self,
                                   T *y) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t at = key[i];
  if (at >= none || (i > 0 && key[i - 1] == at)) return;
  int64_t k = i, seen = with_self;
  T v = with_self ? y[at] : src[from[k]];
  for (k += !with_self, seen += !with_self; k < n && key[k] == at; k++, seen++)
    v = joined(how, v, src[from[k]]);
  if (how == MEAN && seen > 1) {
    if constexpr (is_real<T>) v /= (T)seen;
    else v = v / seen - (v % seen < 0);
  }
  y[at] = v;
}

static int reduce_all(const scatter_reduce_args *a, const moth_tensor *keys, moth_tensor *src,
                      moth_tensor *y) {
  const int64_t n = keys->l.numel, none = y->l.numel;
  ordered o;
  int status = order_list(a->ctx, keys, none, &o);
  if (!status) {
    const int64_t *key = data<int64_t>(o.key), *from = data<int64_t>(o.from);
    const int how = (int)a->reduce;
    const bool self = a->include_self != 0;
    if (y->l.dtype == MOTH_F32)
      status = launch(a->ctx, y, reduce_runs<float>, blocks_for(n), BLOCK, 0, n, none, key, from,
                      data<float>(src), how, self, data<float>(y));
    else if (y->l.dtype == MOTH_F64)
      status = launch(a->ctx, y, reduce_runs<double>, blocks_for(n), BLOCK, 0, n, none, key, from,
                      data<double>(src), how, self, data<double>(y));
    else
      status = launch(a->ctx, y, reduce_runs<int64_t>, blocks_for(n), BLOCK, 0, n, none, key, from,
                      data<int64_t>(src), how, self, data<int64_t>(y));
  }
  ordered_free(&o);
  return status;
}

MOTH_CUDA(scatter_reduce) {
  const int dtype = out[0]->l.dtype, dim = real_dim(a->dim, out[0]->l.ndim);
  const int wide = dtype < MOTH_F16 ? MOTH_I64 : dtype == MOTH_F64 ? MOTH_F64 : MOTH_F32;
  const moth_tensor part = covered(a->src, a->index, -1);
  moth_tensor *y = moth_cast(a->input, wide), *src = y ? moth_cast(&part, wide) : NULL;
  moth_tensor *keys = src ? places_along(y, dim, a->index) : NULL;
  int status = keys ? MOTH_OK : moth_status(a->ctx);
  if (!status && a->index->l.numel) status = reduce_all(a, keys, src, y);
  if (!status) status = moth_copy_into(out[0], y);
  moth_tensor_release(keys);
  moth_tensor_release(src);
  moth_tensor_release(y);
  return status;
}
