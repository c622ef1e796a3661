/* reduce.cu -- sums, products, counts, maxima and minima along dimensions, as in core/op/reduce.c.
** Half types and f32 are summed in f32, f64 in f64, integers and bool in 64 bits, wrapping. */
#include "../../core/op/reduce.h"

#include "lib/reduce.cuh"

/* Calls f(x, y) with the input as type `from`, and results of type `to`: y itself, or a tensor that
** is converted to y afterwards. */
template <class F>
static int reduced(moth_tensor *y, const moth_tensor *input, int from, int to, F f) {
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

template <class T> struct sum_reduction {
  typedef total_of<T> state;
  results to;
  bool mean;
  state count; /* the divisor of a mean */
  MEMBER state start() const { return 0; }
  MEMBER void take(state &r, real_of<T> v, int64_t) const { r = join(r, (state)v); }
  MEMBER state join(state a, state b) const {
    if constexpr (is_real<T>) return a + b;
    else return (state)((uint64_t)a + (uint64_t)b);
  }
  MEMBER void end(state r, int64_t at) const { put_result(to, at, mean ? r / count : r); }
};

static int sum_into(moth_tensor *y, const moth_tensor *input, moth_ints dims, int from, int to,
                    bool mean) {
  uint32_t mask;
  int status = moth_dim_mask(y->ctx, "dim", dims, input->l.ndim, &mask);
  if (status) return status;
  const int64_t n = input->l.numel / (y->l.numel ? y->l.numel : 1);
  return reduced(y, input, from, to, [&](const moth_tensor *x, moth_tensor *work) {
    return with_numbers(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      const sum_reduction<T> f = {{moth_address(work), work->l.dtype}, mean,
                             (total_of<T>)n};
      return reduce<T>(y->ctx, f, x, mask);
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

/* -- prod -- */

template <class T> struct prod_reduction {
  typedef total_of<T> state;
  results to;
  MEMBER state start() const { return 1; }
  MEMBER void take(state &r, real_of<T> v, int64_t) const { r = join(r, (state)v); }
  MEMBER state join(state a, state b) const { return (state)((uint64_t)a * (uint64_t)b); }
  MEMBER void end(state r, int64_t at) const { put_result(to, at, r); }
};

template <class T> struct real_prod_reduction {
  typedef ranged_product<total_of<T>> state;
  results to;
  MEMBER state start() const { return state{1, 0}; }
  MEMBER void take(state &r, real_of<T> v, int64_t) const {
    r = join(r, ranged<total_of<T>>((total_of<T>)v, 0));
  }
  MEMBER state join(state a, state b) const { return ranged_times<total_of<T>>(a, b); }
  MEMBER void end(state r, int64_t at) const { put_result(to, at, ranged_value(r)); }
};

MOTH_CUDA(prod) {
  uint32_t mask;
  const int from = moth_compute_dtype(a->dtype < 0 ? a->input->l.dtype : (int)a->dtype);
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (status) return status;
  return reduced(out[0], a->input, from, total_dtype(from),
                [&](const moth_tensor *x, moth_tensor *work) {
    return with_numbers(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      const results to = {moth_address(work), work->l.dtype};
      if constexpr (is_real<T>) return reduce<T>(a->ctx, real_prod_reduction<T>{to}, x, mask);
      else return reduce<T>(a->ctx, prod_reduction<T>{to}, x, mask);
    });
  });
}

/* -- all, any and count_nonzero -- */

enum { NONZERO_ALL, NONZERO_ANY, NONZERO_COUNT };

/* T: an unsigned integer of the elements' size. */
template <class T> struct nonzero_reduction {
  typedef int64_t state; /* the number of nonzero elements; for all: the number of zeros */
  void *y;
  int asks;
  T bits; /* mask of the bits that are 0 in a zero: for floats all but the sign */
  MEMBER state start() const { return 0; }
  MEMBER void take(state &r, T v, int64_t) const {
    r += ((v & bits) != 0) != (asks == NONZERO_ALL);
  }
  MEMBER state join(state a, state b) const { return a + b; }
  MEMBER void end(state r, int64_t at) const {
    if (asks == NONZERO_COUNT) ((int64_t *)y)[at] = r;
    else ((uint8_t *)y)[at] = (r != 0) == (asks == NONZERO_ANY);
  }
};

static int nonzero_into(moth_tensor *y, const moth_tensor *x, moth_ints dims, int asks) {
  uint32_t mask;
  int status = moth_dim_mask(y->ctx, "dim", dims, x->l.ndim, &mask);
  if (status) return status;
  return with_size(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const T all = (T)-1, bits = moth_is_float(x->l.dtype) ? (T)(all >> 1) : all;
    return reduce<T>(y->ctx, nonzero_reduction<T>{moth_address(y), asks, bits}, x, mask);
  });
}

MOTH_CUDA(all) { return nonzero_into(out[0], a->input, a->dim, NONZERO_ALL); }
MOTH_CUDA(any) { return nonzero_into(out[0], a->input, a->dim, NONZERO_ANY); }
MOTH_CUDA(count_nonzero) { return nonzero_into(out[0], a->input, a->dim, NONZERO_COUNT); }

/* -- amax, amin: NaN wins -- */

template <class T> struct extreme_reduction {
  typedef real_of<T> state;
  T *y;
  bool least;
  MEMBER state start() const { return last_of<T>(least); }
  MEMBER void take(state &r, real_of<T> v, int64_t) const { r = join(r, v); }
  MEMBER state join(state a, state b) const {
    return (least ? b < a : b > a) || b != b ? b : a;
  }
  MEMBER void end(state r, int64_t at) const { put(y + at, r); }
};

static int extreme_into(moth_tensor *y, const moth_tensor *x, moth_ints dims, bool least) {
  uint32_t mask;
  int status = moth_dim_mask(y->ctx, "dim", dims, x->l.ndim, &mask);
  if (status) return status;
  return with_numbers(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return reduce<T>(y->ctx, extreme_reduction<T>{data<T>(y), least}, x, mask);
  });
}

MOTH_CUDA(amax) { return extreme_into(out[0], a->input, a->dim, false); }
MOTH_CUDA(amin) { return extreme_into(out[0], a->input, a->dim, true); }
MOTH_CUDA(max_all) { return extreme_into(out[0], a->input, {NULL, 0}, false); }
MOTH_CUDA(min_all) { return extreme_into(out[0], a->input, {NULL, 0}, true); }
