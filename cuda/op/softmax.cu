/* softmax.cu -- softmax, log_softmax and their gradients: a warp or a part of it for each short
** row, a block for a long row. A row is read from memory once, and then again from the cache. */
#include "../../core/op/softmax.h"

#include "lib/softmax.cuh"

/* Tests if rows are read 16 bytes at a time. If rows are unaligned, elements at both ends are read
** singly, which is too slow for short rows. */
template <class T> static bool by_vecs(int64_t n, const T *a, const T *b, const T *y) {
  if (!in_step(a, y) || !in_step(b, y)) return false;
  return n >= VEC<T> * WARP / 2 || (n % VEC<T> == 0 && on_vec(y));
}

/* -- forward -- */

template <bool LOG, class real> HD real of_top(real x, const top<real> &t, real by) {
  if (LOG) return (x - t.most) - by;
  return exp(x - t.most) * by;
}

template <bool LOG, class real> HD real factor_of(const top<real> &t) {
  return LOG ? log(t.sum) : 1 / t.sum;
}

template <class T, bool LOG, bool WIDE, int EACH>
static __global__ void softmax_rows(int64_t rows, int64_t n, const T *x, T *y) {
  const team me = team_of<WIDE, EACH>(n);
  const bool works = me.row < rows;
  x += works ? me.row * n : 0;
  const top<real_of<T>> t = top_of_row<WIDE, EACH>(me, x, works ? n : 0);
  const real_of<T> by = factor_of<LOG>(t);
  if (!works) return;
  y += me.row * n;
  each_vec<EACH>(me, x, n, [=](int64_t i) {
    const vec<T, EACH> in = read_vec<T, EACH>(x + i);
    vec<T, EACH> out;
    for (int k = 0; k < EACH; k++) put(&out.at[k], of_top<LOG>(get(&in.at[k]), t, by));
    write_vec(y + i, out);
  }, [=](int64_t i) { put(y + i, of_top<LOG>(get(x + i), t, by)); });
}

template <class T, bool LOG>
static __global__ void softmax_inner(strips s, const T *x, T *y) {
  bool valid;
  const int64_t at = inner_start(s, &valid);
  top<real_of<T>> t = no_top<real_of<T>>();
  for (int64_t i = threadIdx.y; valid && i < s.n; i += blockDim.y)
    take(&t, get(x + at + i * s.inner));
  t = join_inner(join_tops<real_of<T>>(), t);
  const real_of<T> by = factor_of<LOG>(t);
  for (int64_t i = threadIdx.y; valid && i < s.n; i += blockDim.y)
    put(y + at + i * s.inner, of_top<LOG>(get(x + at + i * s.inner), t, by));
}

template <class T, bool LOG, int EACH>
static int launch_rows(moth_tensor *out, const strips &s, const T *x) {
  const bool wide = s.n > ROW_OF_WARP;
  return launch(out->ctx, out,
                wide ? softmax_rows<T, LOG, true, EACH> : softmax_rows<T, LOG, false, EACH>,
                teams_for(wide, s.outer, s.n, EACH), BLOCK, 0, s.outer, s.n, x,
                data<T>(out));
}

/* x and y have one dtype and are packed. */
template <bool LOG> static int softmax_of(const moth_tensor *x, int64_t dim, moth_tensor *y) {
  const strips s = strips_of(&y->l, dim);
  return with_float(y->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    const T *from = data<T>(x);
    const inner_form f = inner_form_of(s);
    if (s.inner > 1)
      return launch(y->ctx, y, softmax_inner<T, LOG>, f.grid, f.block, 0, s, from, data<T>(y));
    return by_vecs(s.n, from, from, data<T>(y)) ? launch_rows<T, LOG, VEC<T>>(y, s, from)
                                                 : launch_rows<T, LOG, 1>(y, s, from);
  });
}

/* If the result has another dtype: computes in f32 or f64, and rounds once. */
template <bool LOG>
static int softmax_run(const moth_tensor *input, int64_t dim, moth_tensor *out) {
  if (out->l.numel == 0) return MOTH_OK;
  moth_layout l = out->l;
  const bool same = input->l.dtype == out->l.dtype;
  if (!same) l.dtype = (uint8_t)moth_compute_dtype(l.dtype);
  const bool direct = l.dtype == out->l.dtype;
  moth_tensor *x = packed_as(input, l.dtype);
  moth_tensor *y = direct ? out : moth_tensor_new(out->ctx, &l);
  int status = x && y ? softmax_of<LOG>(x, dim, y) : moth_status(out->ctx);
  if (!direct && !status) status = moth_copy_into(out, y);
  if (!direct) moth_tensor_release(y);
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(softmax) { return softmax_run<false>(a->input, a->dim, out[0]); }
MOTH_CUDA(log_softmax) { return softmax_run<true>(a->input, a->dim, out[0]); }

/* -- backward: y (dy - sum(dy y)), or dy - exp(y) sum(dy) -- */

template <bool LOG, class real> HD real back_term(real dy, real y) { return LOG ? dy : dy * y; }
template <bool LOG, class real> HD real back_value(real dy, real y, real sum) {
  return LOG ? dy - exp(y) * sum : y * (dy - sum);
}

template <class T, bool LOG, bool WIDE, int EACH>
static __global__ void back_rows(int64_t rows, int64_t n, const T *dy, const T *y, T *dx) {
  typedef vec<T, EACH> many;
  const team me = team_of<WIDE, EACH>(n);
  const bool works = me.row < rows;
  const int64_t at = works ? me.row * n : 0;
  real_of<T> sum = 0;
  dy += at, y += at, dx += at;
  each_vec<EACH>(me, dy, works ? n : 0, [&](int64_t i) {
    const many v = read_vec<T, EACH>(dy + i), w = read_vec<T, EACH>(y + i);
    for (int k = 0; k < EACH; k++) sum += back_term<LOG>(get(&v.at[k]), get(&w.at[k]));
  }, [&](int64_t i) { sum += back_term<LOG>(get(dy + i), get(y + i)); });
  sum = join_team<WIDE>(me, adds<real_of<T>>(), sum);
  each_vec<EACH>(me, dy, works ? n : 0, [=](int64_t i) {
    const many v = read_vec<T, EACH>(dy + i), w = read_vec<T, EACH>(y + i);
    many out;
    for (int k = 0; k < EACH; k++)
      put(&out.at[k], back_value<LOG>(get(&v.at[k]), get(&w.at[k]), sum));
    write_vec(dx + i, out);
  }, [=](int64_t i) { put(dx + i, back_value<LOG>(get(dy + i), get(y + i), sum)); });
}

template <class T, bool LOG>
static __global__ void back_inner(strips s, const T *dy, const T *y, T *dx) {
  bool valid;
  const int64_t at = inner_start(s, &valid);
  real_of<T> sum = 0;
  for (int64_t i = threadIdx.y; valid && i < s.n; i += blockDim.y)
    sum += back_term<LOG>(get(dy + at + i * s.inner), get(y + at + i * s.inner));
  sum = join_inner(adds<real_of<T>>(), sum);
  for (int64_t i = threadIdx.y; valid && i < s.n; i += blockDim.y) {
    const int64_t here = at + i * s.inner;
    put(dx + here, back_value<LOG>(get(dy + here), get(y + here), sum));
  }
}

template <class T, bool LOG, int EACH>
static int launch_back(moth_tensor *out, const strips &s, const T *dy, const T *y) {
  const bool wide = s.n > ROW_OF_WARP;
  return launch(out->ctx, out,
                wide ? back_rows<T, LOG, true, EACH> : back_rows<T, LOG, false, EACH>,
                teams_for(wide, s.outer, s.n, EACH), BLOCK, 0, s.outer, s.n, dy, y,
                data<T>(out));
}

template <bool LOG>
static int back_run(const moth_tensor *input, const moth_tensor *output, int64_t dim,
                    moth_tensor *out) {
  const strips s = strips_of(&out->l, dim);
  if (out->l.numel == 0) return MOTH_OK;
  moth_tensor *dy = moth_packed(input), *y = moth_packed(output);
  int status = dy && y ? MOTH_OK : moth_status(out->ctx);
  if (!status)
    status = with_float(out->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      const T *p = data<T>(dy), *q = data<T>(y);
      const inner_form f = inner_form_of(s);
      if (s.inner > 1)
        return launch(out->ctx, out, back_inner<T, LOG>, f.grid, f.block, 0, s, p, q,
                      data<T>(out));
      return by_vecs(s.n, p, q, data<T>(out)) ? launch_back<T, LOG, VEC<T>>(out, s, p, q)
                                               : launch_back<T, LOG, 1>(out, s, p, q);
    });
  moth_tensor_release(dy);
  moth_tensor_release(y);
  return status;
}

MOTH_CUDA(softmax_back) { return back_run<false>(a->input, a->output, a->dim, out[0]); }
MOTH_CUDA(log_softmax_back) { return back_run<true>(a->input, a->output, a->dim, out[0]); }
