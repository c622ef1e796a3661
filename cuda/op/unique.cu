/* unique.cu -- searches values in sorted and unsorted sequences, as in core/op/unique.c. */
#include "../../core/op/sort.h"

#include "lib/sort_rows.cuh"

/* `n`: length of a row of the sequence; `each`: length of a row of the input. */
template <class T>
static __global__ void search_rows(int64_t all, int64_t each, int64_t n, const T *sorted,
                                   const T *x, bool right, int64_t *y) {
  const int64_t i = thread_number();
  if (i >= all) return;
  const T *row = sorted + i / each * n;
  y[i] = rank_among(n, key_of(get(x + i)), right, [=](int64_t j) { return key_of(get(row + j)); });
}

MOTH_CUDA(searchsorted) {
  moth_tensor *s = moth_packed(a->sorted_sequence), *x = moth_packed(a->input), *y = out[0];
  int status = s && x ? MOTH_OK : moth_status(a->ctx);
  const int64_t all = y->l.numel;
  if (!status && all)
    status = with_numbers(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      const int64_t n = s->l.shape[s->l.ndim - 1], rows = n ? s->l.numel / n : 1;
      return launch(a->ctx, y, search_rows<T>, blocks_for(all), BLOCK, 0, all, all / rows, n,
                    data<T>(s), data<T>(x), a->right || a->side == 1, data<int64_t>(y));
    });
  moth_tensor_release(x);
  moth_tensor_release(s);
  return status;
}

template <class T>
static __global__ void look_up(int64_t all, int64_t n, const T *sorted, const T *x, bool invert,
                               uint8_t *y) {
  const int64_t i = thread_number();
  if (i >= all) return;
  const real_of<T> v = get(x + i);
  const int64_t at = rank_among(n, key_of(v), false, [=](int64_t j) {
    return key_of(get(sorted + j));
  });
  y[i] = (at < n && get(sorted + at) == v) != invert; /* NaN is never found */
}

MOTH_CUDA(isin) {
  moth_tensor *test = moth_packed(a->test_elements), *x = moth_packed(a->elements), *y = out[0];
  const int64_t n = a->test_elements->l.numel, all = y->l.numel;
  moth_tensor *scratch = device_scratch(y, n * 16 + 16); /* values, positions */
  int status = test && x && scratch ? MOTH_OK : moth_status(a->ctx);
  if (!status && all)
    status = with_numbers(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      int64_t *positions = data<int64_t>(scratch);
      T *sorted = (T *)(void *)(positions + n);
      const sort_plan<T> p = {data<T>(test), sorted, positions, 1, n, 1, n, ALL_OF_THEM, 0};
      const int done = sort_rows(a->ctx, y, p);
      return done ? done : launch(a->ctx, y, look_up<T>, blocks_for(all), BLOCK, 0, all, n, sorted,
                                  data<T>(x), (bool)a->invert, data<uint8_t>(y));
    });
  moth_tensor_release(scratch);
  moth_tensor_release(x);
  moth_tensor_release(test);
  return status;
}
