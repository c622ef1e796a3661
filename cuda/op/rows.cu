/* rows.cu -- variance, norms, logsumexp, argmax and argmin along dimensions, and reading or writing
** one element of each row, as in core/op/rows.c.
**
** Partial variances are joined as in Chan, Golub and LeVeque, "Updating formulae and a pairwise
** algorithm for computing sample variances"; logsumexp keeps a running maximum with its sum. */
#include "../../core/op/reduce.h"

#include "lib/vector_norm.cuh"

/* -- var, std -- */

template <class T> struct variance_reduction {
  typedef real_of<T> real;
  struct state {
    real n, mean, squares; /* squares: sum of squared differences from the mean */
  };
  results to;
  real by;
  bool root;
  MEMBER state start() const { return state{0, 0, 0}; }
  MEMBER void take(state &r, real v, int64_t) const {
    r.n += 1;
    const real off = v - r.mean;
    r.mean += off / r.n;
    r.squares += off * (v - r.mean);
  }
  MEMBER state join(state a, state b) const {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    const real n = a.n + b.n, off = b.mean - a.mean, share = b.n / n;
    return state{n, a.mean + off * share, a.squares + b.squares + off * off * a.n * share};
  }
  MEMBER void end(state r, int64_t at) const {
    const real v = r.squares / by;
    put_result(to, at, root ? (real)sqrt(v) : v);
  }
};

static int variance_into(moth_tensor *y, const moth_tensor *x, moth_ints dims, double correction,
                         bool root) {
  uint32_t mask;
  int status = moth_dim_mask(y->ctx, "dim", dims, x->l.ndim, &mask);
  if (status) return status;
  double by = (double)(x->l.numel / (y->l.numel ? y->l.numel : 1)) - correction;
  if (by < 0) by = 0;
  return with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const variance_reduction<T> f = {{moth_address(y), y->l.dtype}, (real_of<T>)by, root};
    return reduce<T>(y->ctx, f, x, mask);
  });
}

MOTH_CUDA(var) {
  return variance_into(out[0], a->input, a->dim, a->unbiased ? a->correction : 0, false);
}
MOTH_CUDA(std) {
  return variance_into(out[0], a->input, a->dim, a->unbiased ? a->correction : 0, true);
}

/* -- p-norms -- */

/* In f64: squares and cubes of f32 do not overflow it. */
template <class T, int ORDER> struct norm_reduction : norm_of<double, ORDER> {
  typedef double state;
  results to;
  norm_reduction(double p, const results &at) : norm_of<state, ORDER>{p}, to(at) {}
  MEMBER void take(state &r, real_of<T> v, int64_t) const { this->add(&r, (double)v); }
  MEMBER void end(state r, int64_t at) const { put_result(to, at, (real_of<T>)this->root(r)); }
};

/* For f64, divided by the largest magnitude so far: squares could overflow. */
template <int ORDER> struct norm_reduction<double, ORDER> : norm_of<double, ORDER> {
  struct state {
    double sum, most; /* most is 0 where powers are not scaled */
  };
  results to;
  bool scaled;
  norm_reduction(double p, const results &at)
      : norm_of<double, ORDER>{p}, to(at),
        scaled(ORDER == ORDER_2 || (ORDER == ORDER_P && p > 0)) {}
  MEMBER double power(double share) const {
    double sum = 0;
    this->add(&sum, share);
    return sum;
  }
  MEMBER state start() const { return state{norm_of<double, ORDER>::start(), 0}; }
  MEMBER state join(state a, state b) const {
    if (!scaled) return state{norm_of<double, ORDER>::join(a.sum, b.sum), 0};
    if (a.most == b.most) return state{a.sum + b.sum, a.most};
    if (a.most > b.most) return state{a.sum + b.sum * power(b.most / a.most), a.most};
    return state{a.sum * power(a.most / b.most) + b.sum, b.most};
  }
  MEMBER void take(state &r, double v, int64_t) const {
    if (scaled) r = join(r, state{v == 0 ? 0.0 : v == v ? 1.0 : v, v == v ? fabs(v) : r.most});
    else this->add(&r.sum, v);
  }
  MEMBER void end(state r, int64_t at) const {
    const double root = this->root(r.sum);
    put_result(to, at, scaled && root == root ? (r.most == 0 ? 0 : r.most * root) : root);
  }
};

MOTH_CUDA(norm_p) {
  uint32_t mask;
  moth_tensor *owned, *y = out[0];
  const moth_tensor *x;
  int status = moth_dim_mask(a->ctx, "dim", a->dim, a->input->l.ndim, &mask);
  if (status) return status;
  x = computed_as(a->input, moth_compute_dtype(y->l.dtype), &owned);
  if (!x) return moth_status(a->ctx);
  status = with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const results to = {moth_address(y), y->l.dtype};
    return with_order(a->p, [&](auto kind) {
      return reduce<T>(a->ctx, norm_reduction<T, decltype(kind)::is>(a->p, to), x, mask);
    });
  });
  moth_tensor_release(owned);
  return status;
}

/* -- logsumexp -- */

template <class T> struct logsumexp_reduction {
  typedef real_of<T> real;
  struct state {
    real most, sum; /* sum of exp(x - most) */
  };
  results to;
  MEMBER state start() const { return state{(real)-INFINITY, 0}; }
  MEMBER void take(state &r, real v, int64_t) const {
    if (v > r.most) {
      r.sum = r.sum * exp(r.most - v) + 1;
      r.most = v;
    } else {
      r.sum += v == r.most ? (real)1 : (real)exp(v - r.most);
    }
  }
  MEMBER state join(state a, state b) const {
    if (a.most == b.most) return state{a.most, a.sum + b.sum};
    if (a.most > b.most) return state{a.most, a.sum + b.sum * (real)exp(b.most - a.most)};
    return state{b.most, b.sum + a.sum * (real)exp(a.most - b.most)};
  }
  MEMBER void end(state r, int64_t at) const { put_result(to, at, r.most + (real)log(r.sum)); }
};

MOTH_CUDA(logsumexp) {
  uint32_t mask;
  const moth_tensor *x = a->input;
  moth_tensor *y = out[0];
  int status = moth_dim_mask(a->ctx, "dim", a->dim, x->l.ndim, &mask);
  if (status) return status;
  return with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return reduce<T>(a->ctx, logsumexp_reduction<T>{{moth_address(y), y->l.dtype}}, x, mask);
  });
}

/* -- argmax, argmin: the first of equal values; the first NaN wins -- */

template <class T> struct position_reduction {
  struct state {
    real_of<T> v;
    int64_t at; /* -1: none yet */
  };
  T *values; /* or NULL */
  int64_t *positions;
  bool least;
  MEMBER bool beats(real_of<T> v, real_of<T> old) const {
    return least ? v < old || (v != v && old == old) : v > old || (v != v && old == old);
  }
  MEMBER state start() const { return state{last_of<T>(least), -1}; }
  MEMBER void take(state &r, real_of<T> v, int64_t i) const {
    if (r.at < 0 || beats(v, r.v)) r = state{v, i};
  }
  MEMBER state join(state a, state b) const {
    if (b.at < 0) return a;
    if (a.at < 0 || beats(b.v, a.v)) return b;
    return beats(a.v, b.v) || a.at < b.at ? a : b;
  }
  MEMBER void end(state r, int64_t i) const {
    positions[i] = r.at;
    if (values) put(values + i, r.v);
  }
};

static int positions_into(moth_tensor *positions, moth_tensor *values, const moth_tensor *x,
                          int64_t dim, bool least) {
  uint32_t mask;
  const moth_ints dims = {&dim, dim == MOTH_NO_INT ? 0 : 1};
  int status = moth_dim_mask(x->ctx, "dim", dims, x->l.ndim, &mask);
  if (status) return status;
  return with_numbers(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const position_reduction<T> f = {values ? data<T>(values) : NULL, data<int64_t>(positions),
                                     least};
    return reduce<T>(x->ctx, f, x, mask, true);
  });
}

MOTH_CUDA(argmax) { return positions_into(out[0], NULL, a->input, a->dim, false); }
MOTH_CUDA(argmin) { return positions_into(out[0], NULL, a->input, a->dim, true); }
MOTH_CUDA(max_dim) { return positions_into(out[1], out[0], a->input, a->dim, false); }
MOTH_CUDA(min_dim) { return positions_into(out[1], out[0], a->input, a->dim, true); }

/* -- one element of each row -- */

/* Operands: positions, the first elements of rows, single values. */
template <class T>
static __global__ void strided_rows(strided<3> w, int64_t length, int64_t step, bool place,
                                    moth_kernel_error *kernel_error) {
  const int64_t i = thread_number();
  int64_t at[3];
  if (i >= w.n) return;
  offsets(w, i, at);
  const int64_t j = *element<int64_t>(w.of[0], at[0]);
  if (j < 0 || j >= length) {
    report(kernel_error, KERNEL_ERROR_INDEX, j, length);
    return;
  }
  T *row = (T *)(void *)(w.of[1].at + at[1] + j * step);
  T *value = (T *)(void *)(w.of[2].at + at[2]);
  if (place) *row = *value;
  else *value = *row;
}

static int run_rows(const moth_tensor *index, const moth_tensor *rows, const moth_tensor *values,
                    int64_t dim, bool keepdim, bool place) {
  moth_tensor starts = *rows; /* a view of the first element of each row; used only in this function
                              */
  const moth_tensor *operands[3] = {index, &starts, values};
  const moth_queue *q = moth_queue_of(rows->ctx, rows->l.device);
  int64_t length = 1, step = 0;
  strided<3> w;
  if (!q) return moth_status(rows->ctx);
  if (rows->l.ndim > 0) {
    int32_t d = (int32_t)(dim < 0 ? dim + rows->l.ndim : dim);
    length = rows->l.shape[d];
    step = rows->l.stride[d] * moth_dtype_size[rows->l.dtype];
    starts.l.shape[d] = 1;
    starts.l.numel = index->l.numel;
    if (!keepdim)
      for (starts.l.ndim--; d < starts.l.ndim; d++) {
        starts.l.shape[d] = starts.l.shape[d + 1];
        starts.l.stride[d] = starts.l.stride[d + 1];
      }
  }
  if (index->l.numel == 0) return MOTH_OK;
  strided_over<3>(&w, rows->ctx, operands);
  return with_size(rows->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch_on(rows->ctx, q, strided_rows<T>, blocks_for(w.n), BLOCK, 0, w, length, step,
                     place, q->kernel_error);
  });
}

MOTH_CUDA(row_pick) {
  return run_rows(a->index, a->input, out[0], a->dim, a->keepdim, false);
}

MOTH_CUDA(row_place) {
  moth_tensor *y = out[0];
  const moth_queue *q = moth_queue_of(a->ctx, y->l.device);
  if (!q) return moth_status(a->ctx);
  if (y->l.numel == 0) return MOTH_OK;
  const size_t bytes = (size_t)(y->l.numel * moth_dtype_size[y->l.dtype]);
  int status = moth_launched(a->ctx, q, cudaMemsetAsync(moth_address(y), 0, bytes, q->stream));
  return status ? status : run_rows(a->index, y, a->input, a->dim, a->keepdim, true);
}
