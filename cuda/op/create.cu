/* create.cu -- arange, linspace, eye, tril and triu. */
#include "../../core/op/create.h"

#include "lib/rows.cuh"

/* y[i] := f(i), converted. */
template <class F, class T> static __global__ void make_each(F f, int64_t n, T *y) {
  const int64_t i = thread_number();
  if (i < n) convert_to(y + i, f(i));
}

template <class F> static int make_all(moth_tensor *y, F f) {
  const int64_t n = y->l.numel;
  if (n == 0) return MOTH_OK;
  return with_any(y->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    return launch(y->ctx, y, make_each<F, T>, blocks_for(n), BLOCK, 0, f, n, data<T>(y));
  });
}

/* -- arange: in integers if all three arguments are integers -- */

struct integer_steps {
  int64_t start, step;
  __device__ int64_t operator()(int64_t i) const {
    return (int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)step);
  }
};

struct real_steps {
  double start, step;
  __device__ double operator()(int64_t i) const { return start + (double)i * step; }
};

static double number_of(moth_scalar s) { return s.type == 0 ? s.as.number : (double)s.as.integer; }

static bool integer_of(moth_scalar s, int64_t *value) {
  const double x = s.as.number;
  *value = s.as.integer;
  if (s.type != 0) return true;
  if (!(x >= -9223372036854775808.0 && x < 9223372036854775808.0)) return false;
  *value = (int64_t)x;
  return (double)*value == x;
}

MOTH_CUDA(arange) {
  int64_t start, stop, step;
  const bool starts = integer_of(a->start, &start), stops = integer_of(a->stop, &stop);
  if (starts && stops && integer_of(a->step, &step))
    return make_all(out[0], integer_steps{start, step});
  return make_all(out[0], real_steps{number_of(a->start), number_of(a->step)});
}

/* -- linspace: the values of core/op/create.c -- */

struct between {
  double start, stop, last, unit;
  bool rounds; /* to fewer bits than f64 has */
  __device__ double operator()(int64_t at) const {
    const double i = (double)at, p = __dmul_rn(start, last - i), q = __dmul_rn(stop, i);
    const double sum = p + q;
    if (rounds) return sum / last * unit;
    const double part = sum - p, y = sum / last;
    const double rest = fma(start, last - i, -p) + fma(stop, i, -q)
                        + ((p - (sum - part)) + (q - part));
    return (y + (fma(-y, last, sum) + rest) / last) * unit;
  }
};

MOTH_CUDA(linspace) {
  const int dtype = out[0]->l.dtype;
  const double unit = fmax(fabs(a->start), fabs(a->stop)) > 0x1p900 ? 0x1p100 : 1;
  return make_all(out[0], between{a->start / unit, a->stop / unit,
                                  a->steps > 1 ? (double)(a->steps - 1) : 1, unit,
                                  moth_is_float(dtype) && dtype != MOTH_F64});
}

/* -- eye -- */

struct diagonal_ones {
  int64_t columns;
  __device__ uint8_t operator()(int64_t i) const { return i / columns == i % columns; }
};

MOTH_CUDA(eye) {
  (void)a;
  return make_all(out[0], diagonal_ones{out[0]->l.shape[1]});
}

/* -- tril, triu -- */

/* In row r, columns from r + diagonal on are above; that column is included. */
template <class T>
static __global__ void keep_triangle(int64_t n, quotient_by columns, quotient_by rows,
                                     int64_t diagonal, bool upper, const T *x, T *y) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const int64_t line = divide(i, columns), column = i - line * columns.by;
  const int64_t way = column - (line - divide(line, rows) * rows.by);
  y[i] = (upper ? way >= diagonal : way <= diagonal) ? x[i] : (T)0;
}

static int triangle(const moth_tensor *input, int64_t diagonal, bool upper, moth_tensor *y) {
  const int64_t n = y->l.numel;
  if (n == 0) return MOTH_OK;
  const quotient_by columns = quotients(y->l.shape[y->l.ndim - 1], n);
  const quotient_by rows = quotients(y->l.shape[y->l.ndim - 2], n);
  moth_tensor *x = moth_packed(input);
  if (!x) return moth_status(y->ctx);
  int status = with_size(y->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    return launch(y->ctx, y, keep_triangle<T>, blocks_for(n), BLOCK, 0, n, columns, rows, diagonal,
                  upper, data<T>(x), data<T>(y));
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(tril) { return triangle(a->input, a->diagonal, false, out[0]); }
MOTH_CUDA(triu) { return triangle(a->input, a->diagonal, true, out[0]); }
