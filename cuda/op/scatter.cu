/* scatter.cu -- scatter_reduce: values are sorted by their target element, and a thread reduces all
** values of one element. */
#include "../../core/op/index.h"

#include "lib/gather_along.cuh"
#include "lib/equal_runs.cuh"

enum { SUM, PROD, MEAN, AMAX, AMIN };

template <class T> static __device__ inline T joined(int how, T a, T b) {
  if (how == SUM || how == MEAN) return (T)(a + b);
  if (how == PROD) return (T)(a * b);
  return (how == AMAX ? b > a : b < a) || b != b ? b : a;
}

/* T: float, double or int64_t; integer means are rounded down. */
template <class T> struct runs {
  int64_t n, none; /* none: the key of values without a target */
  const int64_t *key, *from;
  const T *src;
  int how;
  T *part; /* one for each piece */

  /* v: the result so far, valid if `any`. */
  __device__ inline void join(T *v, bool *any, T more) const {
    *v = *any ? joined(how, *v, more) : more;
    *any = true;
  }
};

template <class T> static __global__ void join_pieces(runs<T> r, int64_t first, int64_t count) {
  const int64_t i = first + thread_number();
  if (i >= first + count) return;
  T v = 0;
  bool any = false;
  if (through_piece(i, r.n,
                    [&](int64_t a, int64_t b) { return r.key[a] == r.key[b] && r.key[a] < r.none; },
                    [&](int64_t k) { r.join(&v, &any, r.src[r.from[k]]); },
                    [&](int64_t k) { r.join(&v, &any, r.part[k]); }))
    r.part[i] = v;
}

template <class T> static __global__ void reduce_runs(runs<T> r, bool with_self, T *y) {
  const int64_t i = thread_number();
  if (i >= r.n) return;
  const int64_t at = r.key[i];
  if (at >= r.none || (i > 0 && r.key[i - 1] == at)) return;
  T v = y[at];
  bool any = with_self;
  const int64_t end = through_run(i, r.n, [&](int64_t k) { return r.key[k] == at; },
                                  [&](int64_t k) { r.join(&v, &any, r.src[r.from[k]]); },
                                  [&](int64_t k) { r.join(&v, &any, r.part[k]); });
  const int64_t seen = end - i + with_self;
  if (r.how == MEAN && seen > 1) {
    if constexpr (is_real<T>) v /= (T)seen;
    else v = v / seen - (v % seen < 0);
  }
  y[at] = v;
}

template <class T>
static int reduce_as(const scatter_reduce_args *a, const sorted_list &o, const moth_tensor *src,
                     const moth_tensor *y) {
  const int64_t n = o.key->l.numel, pieces = all_pieces(n);
  moth_tensor *part = pieces ? device_scratch(y, pieces * (int64_t)sizeof(T)) : NULL;
  if (pieces && !part) return moth_status(a->ctx);
  const runs<T> r = {n, y->l.numel, data<int64_t>(o.key), data<int64_t>(o.from), data<T>(src),
                     (int)a->reduce, part ? data<T>(part) : NULL};
  int status = over_pieces(n, [&](int64_t first, int64_t count) {
    return launch(a->ctx, y, join_pieces<T>, blocks_for(count), BLOCK, 0, r, first, count);
  });
  if (!status)
    status = launch(a->ctx, y, reduce_runs<T>, blocks_for(n), BLOCK, 0, r, a->include_self != 0,
                    data<T>(y));
  moth_tensor_release(part);
  return status;
}

static int reduce_all(const scatter_reduce_args *a, const moth_tensor *keys, moth_tensor *src,
                      moth_tensor *y) {
  sorted_list o;
  int status = sort_list(a->ctx, keys, y->l.numel, &o);
  if (!status)
    status = y->l.dtype == MOTH_F32   ? reduce_as<float>(a, o, src, y)
             : y->l.dtype == MOTH_F64 ? reduce_as<double>(a, o, src, y)
                                      : reduce_as<int64_t>(a, o, src, y);
  sorted_list_free(&o);
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
