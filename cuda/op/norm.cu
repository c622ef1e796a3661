/* norm.cu -- layer_norm, rms_norm and group_norm: rows of (channels, inner) elements, normalised by
** their own mean and variance, by a warp or a block for each row. A first pass estimates the mean.
** A second one reads the row from the cache and computes mean and variance shifted by the estimate;
** f32 sums are then accurate, also for rows far from 0. Groups of channels_last images are read
** without a copy. With f32, some inputs, results and gradients may have a half type; conversion
** needs no extra pass. */
#include "../../core/op/norm.h"

#include <float.h>

#include "lib/channel_sums.cuh"

/* The parameters of all three; row r has the weights of group r % groups. */
struct row_form {
  int64_t rows, n, groups, channels;
  quotient_by inner;
  int64_t step;     /* channels_last: the stride from pixel to pixel; 0: rows are packed */
  quotient_by wide; /* number of channels */
};

static row_form form_of(int64_t rows, int64_t groups, int64_t channels, int64_t inner,
                        bool channels_last = false) {
  const int64_t n = channels * inner;
  return row_form{rows, n, groups, channels, quotients(inner, n),
                  channels_last ? groups * channels : 0, quotients(channels, n)};
}

/* The offset of a row, and of its element i from there. */
static __device__ inline int64_t row_start(const row_form &f, int64_t row) {
  const int64_t image = f.step ? row / f.groups : row;
  return f.step ? image * f.groups * f.n + (row - image * f.groups) * f.channels : row * f.n;
}
static __device__ inline int64_t place_of(const row_form &f, int64_t i) {
  return f.step ? i + divide(i, f.wide) * (f.step - f.channels) : i;
}

/* The number of adjacent elements; a run is aligned to its size if the row is. */
static int64_t run_of(const row_form &f) { return f.step ? f.channels : f.n; }

/* The factor that turns a sum over a row into its mean. */
template <class real> static real share_of(const row_form &f) { return (real)(1 / (double)f.n); }

/* The first weight of a row. */
template <class W> static __device__ inline const W *weights_of(const row_form &f, int64_t row,
                                                                const W *w) {
  return w && f.groups > 1 ? w + row % f.groups * f.channels : w;
}

/* Loads EACH weights, one for each element of a row from i on. */
template <int EACH, class W, class real>
static __device__ inline void weights_at(const row_form &f, int64_t i, const W *w, real otherwise,
                                         real *v) {
  if (!w) {
    for (int k = 0; k < EACH; k++) v[k] = otherwise;
    return;
  }
  if (f.inner.by == 1 || f.step) {
    const int64_t at = f.step ? i - divide(i, f.wide) * f.channels : i;
    const vec<W, EACH> many = *(const vec<W, EACH> *)(const void *)(w + at);
    for (int k = 0; k < EACH; k++) v[k] = get(&many.at[k]);
  } else {
    for (int k = 0; k < EACH; k++) v[k] = get(w + divide(i + k, f.inner));
  }
}

/* -- values of type T, or of a half type if T is f32 -- */

template <class T> constexpr bool is_f32 = sizeof(real_of<T>) == 4 && sizeof(T) == 4;

template <class T, int EACH, class real>
static __device__ inline void read_vec(const void *at, int64_t i, real *v) {
  const vec<T, EACH> many = *(const vec<T, EACH> *)(const void *)((const T *)at + i);
  for (int k = 0; k < EACH; k++) v[k] = get(&many.at[k]);
}

template <class T, int EACH, class real>
static __device__ inline void read_any(const void *at, int dtype, int64_t i, real *v) {
  if constexpr (is_f32<T>) {
    if (dtype == MOTH_BF16) return read_vec<bf16, EACH>(at, i, v);
    if (dtype == MOTH_F16) return read_vec<f16, EACH>(at, i, v);
  }
  read_vec<T, EACH>(at, i, v);
}

template <class T, int EACH>
static __device__ inline void write_half(void *at, int64_t i, const float *v) {
  vec<T, EACH> many;
  for (int k = 0; k < EACH; k++) put(&many.at[k], v[k]);
  write_vec((T *)at + i, many);
}

/* A second result in a half type, if it is requested. */
struct half_result {
  void *at; /* or NULL */
  int dtype;
  template <int EACH> __device__ void put_vec(int64_t i, const float *v) const {
    if (!at) return;
    if (dtype == MOTH_BF16) write_half<bf16, EACH>(at, i, v);
    else write_half<f16, EACH>(at, i, v);
  }
};

static half_result half_of(const moth_tensor *half_copy) {
  return half_copy ? half_result{moth_address(half_copy), half_copy->l.dtype}
                   : half_result{NULL, 0};
}

/* -- forward -- */

/* A thread's part of the sums over a row of x - m and of its square. Each vector is summed
** separately first: errors grow with the number of vectors, not of elements. */
template <int EACH, class T>
static __device__ inline sums_of<real_of<T>> own_sums(const team &me, const row_form &f,
                                                      const T *x, int64_t n, real_of<T> m) {
  typedef real_of<T> R;
  sums_of<R> s = {0, 0};
  for (int64_t i = (int64_t)me.lane * EACH; i < n; i += (int64_t)me.size * EACH) {
    const vec<T, EACH> in = *(const vec<T, EACH> *)(const void *)(x + place_of(f, i));
    sums_of<R> own = {0, 0};
    for (int k = 0; k < EACH; k++) {
      const R d = get(&in.at[k]) - m;
      own = added(own, sums_of<R>{d, d * d});
    }
    s = added(s, own);
  }
  return s;
}

/* The same sums of scaled differences, whose squares do not overflow. */
template <int EACH, class T>
static __device__ sums_of<real_of<T>> far_sums(const team &me, const row_form &f, const T *x,
                                               int64_t n, real_of<T> m, real_of<T> scale) {
  typedef real_of<T> R;
  sums_of<R> s = {0, 0};
  for (int64_t i = (int64_t)me.lane * EACH; i < n; i += (int64_t)me.size * EACH)
    for (int k = 0; k < EACH; k++) {
      const R d = (get(x + place_of(f, i) + k) - m) * scale;
      s = added(s, sums_of<R>{d, d * d});
    }
  return s;
}

template <class T> struct row_norm {
  row_form f;
  real_of<T> share, eps;
  const T *x, *weight, *bias;
  T *y; /* NULL: only the half type is requested */
  real_of<T> *mean, *rstd; /* mean is NULL if it is not subtracted */
  half_result half_copy;
};

template <class T, bool WIDE, int EACH> static __global__ void norm_rows(row_norm<T> p) {
  typedef real_of<T> R;
  const team me = team_of<WIDE, EACH>(p.f.n);
  const bool works = me.row < p.f.rows;
  const int64_t row = works ? me.row : 0, n = works ? p.f.n : 0;
  const int64_t start = row_start(p.f, row);
  const T *x = p.x + start;
  const T *weight = weights_of(p.f, row, p.weight), *bias = weights_of(p.f, row, p.bias);
  R near = 0;
  if (p.mean)
    near = join_team<WIDE>(me, adds<R>(), own_sums<EACH>(me, p.f, x, n, near).a) * p.share;
  const sums_of<R> s = join_team<WIDE>(me, add_sums<R>(), own_sums<EACH>(me, p.f, x, n, near));
  R off = p.mean ? s.a * p.share : 0, var = s.b * p.share - off * off;
  R rstd = 1 / sqrt((var < 0 ? 0 : var) + p.eps);
  if (!isfinite(var)) { /* the same in all threads of the team; eps is negligible then */
    const R scale = sizeof(R) == 4 ? (R)0x1p-80 : (R)0x1p-600;
    const sums_of<R> far =
      join_team<WIDE>(me, add_sums<R>(), far_sums<EACH>(me, p.f, x, n, near, scale));
    const R small = p.mean ? far.a * p.share : 0;
    off = small / scale;
    rstd = scale / sqrt(far.b * p.share - small * small);
  }
  const R mean = near + off;
  for (int64_t i = (int64_t)me.lane * EACH; i < n; i += (int64_t)me.size * EACH) {
    const vec<T, EACH> in = *(const vec<T, EACH> *)(const void *)(x + place_of(p.f, i));
    vec<T, EACH> out;
    R w[EACH], b[EACH];
    weights_at<EACH>(p.f, i, weight, (R)1, w);
    weights_at<EACH>(p.f, i, bias, (R)0, b);
    for (int k = 0; k < EACH; k++)
      put(&out.at[k], (get(&in.at[k]) - mean) * rstd * w[k] + b[k]);
    const int64_t at = start + place_of(p.f, i);
    if (p.y) write_vec(p.y + at, out);
    if constexpr (is_f32<T>) p.half_copy.template put_vec<EACH>(at, out.at);
  }
  if (!works || me.lane != 0) return;
  if (p.mean) p.mean[row] = mean;
  p.rstd[row] = rstd;
}

template <class T, int EACH> static int norm_launch(moth_tensor *out, const row_norm<T> &p) {
  const bool wide = p.f.n > ROW_OF_WARP;
  return launch(out->ctx, out, wide ? norm_rows<T, true, EACH> : norm_rows<T, false, EACH>,
                teams_for(wide, p.f.rows, p.f.n, EACH), BLOCK, 0, p);
}

static int rows_run(const moth_tensor *input, const moth_tensor *weight, const moth_tensor *bias,
                    const row_form &f, double eps, moth_tensor *out, moth_tensor *mean,
                    moth_tensor *rstd, const moth_tensor *half_copy) {
  moth_tensor *x = moth_packed_as(input, f.step != 0), *w = weight ? moth_packed(weight) : NULL;
  moth_tensor *b = bias ? moth_packed(bias) : NULL;
  int status = x && (w || !weight) && (b || !bias) ? MOTH_OK : moth_status(out->ctx);
  if (!status && f.rows)
    status = with_float(input->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      typedef real_of<T> R;
      const row_norm<T> p = {f, share_of<R>(f), (R)eps, data<T>(x), w ? data<T>(w) : NULL,
                             b ? data<T>(b) : NULL, out == half_copy ? NULL : data<T>(out),
                             mean ? data<R>(mean) : NULL, data<R>(rstd), half_of(half_copy)};
      const bool many = run_of(f) % VEC<T> == 0 && on_vec(p.x) && on_vec(p.y) &&
                        on_vec(p.weight) && on_vec(p.bias) && on_vec(p.half_copy.at);
      return many ? norm_launch<T, VEC<T>>(out, p) : norm_launch<T, 1>(out, p);
    });
  moth_tensor_release(x);
  moth_tensor_release(w);
  moth_tensor_release(b);
  return status;
}

/* Rows are the dimensions before the last ones; shape rules have checked them. */
static row_form last_dims(const moth_tensor *x, moth_ints shape) {
  int64_t rows = 1, channels = 1;
  for (int64_t i = 0; i < x->l.ndim; i++)
    if (i < x->l.ndim - shape.n) rows *= x->l.shape[i];
    else channels *= x->l.shape[i];
  return form_of(rows, 1, channels, 1);
}

MOTH_CUDA(layer_norm) {
  return rows_run(a->input, a->weight, a->bias, last_dims(a->input, a->normalized_shape), a->eps,
                  out[0], out[1], out[2], out[3]);
}

MOTH_CUDA(rms_norm) {
  const double spacing = a->input->l.dtype == MOTH_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  return rows_run(a->input, a->weight, NULL, last_dims(a->input, a->normalized_shape),
                  moth_absent(a->eps) ? spacing : a->eps, out[0], NULL, out[1], out[2]);
}

MOTH_CUDA(group_norm) {
  const moth_layout *l = &a->input->l;
  int64_t inner = 1;
  for (int32_t i = 2; i < l->ndim; i++) inner *= l->shape[i];
  return rows_run(a->input, a->weight, a->bias,
                  form_of(l->shape[0] * a->num_groups, a->num_groups, l->shape[1] / a->num_groups,
                          inner, moth_is_channels_last(out[0])),
                  a->eps, out[0], out[1], out[2], NULL);
}

/* -- backward: with g = dy weight, dx = rstd (g - mean of g - xhat mean of (g xhat)); the gradient
** of the residual path is added -- */

template <class T> struct row_back {
  row_form f;
  real_of<T> share;
  const T *x;
  const void *dy;
  int dy_dtype;
  const T *sum; /* or NULL */
  half_result half_copy;
  const real_of<T> *weight, *mean, *rstd;
  T *dx;
};

template <class T, bool WIDE, int EACH> static __global__ void back_rows(row_back<T> p) {
  typedef real_of<T> R;
  typedef vec<T, EACH> many;
  const team me = team_of<WIDE, EACH>(p.f.n);
  const bool works = me.row < p.f.rows;
  const int64_t row = works ? me.row : 0, last = works ? p.f.n : 0, at = row_start(p.f, row);
  const int64_t first = (int64_t)me.lane * EACH, step = (int64_t)me.size * EACH;
  const R mean = p.mean && works ? p.mean[row] : 0, rstd = works ? p.rstd[row] : 0;
  const R *weight = weights_of(p.f, row, p.weight);
  sums_of<R> s = {0, 0};
  R w[EACH], dy[EACH], sum[EACH];
  for (int64_t i = first; i < last; i += step) {
    const int64_t from = at + place_of(p.f, i);
    const many x = *(const many *)(const void *)(p.x + from);
    sums_of<R> own = {0, 0};
    read_any<T, EACH>(p.dy, p.dy_dtype, from, dy);
    weights_at<EACH>(p.f, i, weight, (R)1, w);
    for (int k = 0; k < EACH; k++) {
      const R g = dy[k] * w[k];
      own = added(own, sums_of<R>{g, g * (get(&x.at[k]) - mean)});
    }
    s = added(s, own);
  }
  s = join_team<WIDE>(me, add_sums<R>(), s);
  const R even = p.mean ? -rstd * s.a * p.share : 0;
  const R along = -(rstd * s.b * p.share) * rstd; /* multiply by rstd twice: its cube may underflow
                                                  */
  for (int64_t i = first; i < last; i += step) {
    const int64_t from = at + place_of(p.f, i);
    const many x = *(const many *)(const void *)(p.x + from);
    many out;
    read_any<T, EACH>(p.dy, p.dy_dtype, from, dy);
    weights_at<EACH>(p.f, i, weight, (R)1, w);
    for (int k = 0; k < EACH; k++)
      put(&out.at[k], dy[k] * w[k] * rstd + (get(&x.at[k]) - mean) * rstd * along + even);
    if (p.sum) {
      read_vec<T, EACH>(p.sum, from, sum);
      for (int k = 0; k < EACH; k++) put(&out.at[k], sum[k] + get(&out.at[k]));
    }
    write_vec(p.dx + from, out);
    if constexpr (is_f32<T>) p.half_copy.template put_vec<EACH>(from, out.at);
  }
}

template <class T, int EACH> static int back_launch(moth_tensor *out, const row_back<T> &p) {
  const bool wide = p.f.n > ROW_OF_WARP;
  return launch(out->ctx, out, wide ? back_rows<T, true, EACH> : back_rows<T, false, EACH>,
                teams_for(wide, p.f.rows, p.f.n, EACH), BLOCK, 0, p);
}

/* The gradients of weight and bias are sums over channels; rows are distributed over the groups. D:
** the dtype of dy; channels that are loaded at once are in one group. */
template <class T, class D> struct affine_sums {
  typedef real_of<T> real;
  const T *x;
  const D *dy;
  const real *mean, *rstd;
  int64_t groups;
  quotient_by channels;
  template <int EACH> struct both {
    vec<T, EACH> x;
    vec<D, EACH> dy;
    real mean, rstd;
  };
  __device__ int64_t of(int64_t c, int64_t) const { return divide(c, channels); }
  template <int EACH>
  __device__ both<EACH> load(int64_t group, int64_t sample, int64_t at) const {
    const int64_t row = sample * groups + group;
    return both<EACH>{*(const vec<T, EACH> *)(const void *)(x + at),
                      *(const vec<D, EACH> *)(const void *)(dy + at), mean ? mean[row] : 0,
                      rstd[row]};
  }
  template <int EACH>
  __device__ sums_of<real> term(int64_t, const both<EACH> &of, int k) const {
    const real d = get(&of.dy.at[k]);
    return sums_of<real>{d * ((get(&of.x.at[k]) - of.mean) * of.rstd), d};
  }
  __device__ sums_of<double> end(int64_t, int64_t, sums_of<double> s, int64_t) const { return s; }
};

template <class T>
static __global__ void put_affine(channel_form f, const sums_of<double> *parts, T *dweight,
                                  T *dbias) {
  const int64_t c = thread_number() / WARP;
  const sums_of<double> s = sum_of_parts(f, c, parts);
  if (c >= f.c || threadIdx.x % WARP) return;
  put(dweight + c, s.a);
  put(dbias + c, s.b);
}

template <class T, class D> static int affine_run(const row_back<T> &p, moth_tensor **out) {
  const int64_t weights = out[1]->l.numel;
  const int64_t samples = p.f.rows / p.f.groups, pixels = p.f.step ? p.f.inner.by : 1;
  channel_form f = channels_for(samples * pixels, weights, p.f.inner.by / pixels, pixels);
  const affine_sums<T, D> job = {p.x, (const D *)p.dy, p.mean, p.rstd, p.f.groups,
                                 quotients(p.f.channels, weights)};
  const bool alike = f.inner.by > 1 || p.f.channels % HANDFUL<T> == 0;
  moth_tensor *parts = channel_sums<HANDFUL<T>>(out[0], &f, job,
                                                alike && on_vec(p.x) && on_vec(p.dy));
  if (!parts) return moth_status(out[0]->ctx);
  int status = launch(out[0]->ctx, out[0], put_affine<T>, blocks_for(weights * WARP), BLOCK, 0, f,
                      data<sums_of<double>>(parts), data<T>(out[1]), data<T>(out[2]));
  moth_tensor_release(parts);
  return status;
}

template <class T> static int affine_by_dy(const row_back<T> &p, moth_tensor **out) {
  if (out[1]->l.numel == 0) return MOTH_OK;
  if constexpr (is_f32<T>) {
    if (p.dy_dtype == MOTH_BF16) return affine_run<T, bf16>(p, out);
    if (p.dy_dtype == MOTH_F16) return affine_run<T, f16>(p, out);
  }
  return affine_run<T, T>(p, out);
}

enum { X, DY, SUM, WEIGHT, MEAN, RSTD, INPUTS };

template <class T>
static int back_typed(const row_norm_back_args *a, moth_tensor *const *t, moth_tensor **out) {
  typedef real_of<T> R;
  const int64_t numel = a->input->l.numel, rows = numel ? a->rstd->l.numel : 0;
  const int64_t inner = rows ? numel / rows / a->channels : 1;
  const bool channels_last = moth_is_channels_last(out[0]);
  const row_form f = form_of(rows, a->groups, a->channels, inner, channels_last);
  const row_back<T> p = {f, share_of<R>(f), data<T>(t[X]), moth_address(t[DY]), t[DY]->l.dtype,
                         t[SUM] ? data<T>(t[SUM]) : NULL, half_of(out[3]),
                         t[WEIGHT] ? data<R>(t[WEIGHT]) : NULL, t[MEAN] ? data<R>(t[MEAN]) : NULL,
                         data<R>(t[RSTD]), data<T>(out[0])};
  const bool many = run_of(p.f) % VEC<T> == 0 && on_vec(p.x) && on_vec(p.dy) &&
                    on_vec(p.sum) && on_vec(p.dx) && on_vec(p.half_copy.at) &&
                    on_vec(p.weight, sizeof(R) * VEC<T>);
  int status = MOTH_OK;
  if (rows) status = many ? back_launch<T, VEC<T>>(out[0], p) : back_launch<T, 1>(out[0], p);
  return status ? status : affine_by_dy(p, out);
}

/* x in a dtype, in the memory format of the result; the caller releases it. */
static moth_tensor *laid_as(const moth_tensor *x, int dtype, bool channels_last) {
  if (!channels_last || x->l.dtype == dtype)
    return channels_last ? moth_packed_as(x, true) : packed_as(x, dtype);
  moth_tensor *cast = moth_cast(x, dtype), *y = cast ? moth_packed_as(cast, true) : NULL;
  moth_tensor_release(cast);
  return y;
}

static int row_norm_back_run(const row_norm_back_args *a, moth_tensor **out) {
  const int dtype = a->input->l.dtype, real = moth_compute_dtype(dtype);
  const moth_tensor *from[INPUTS] = {a->input, a->grad, a->sum, a->weight, a->mean, a->rstd};
  const bool half_copy = dtype == MOTH_F32 && moth_dtype_size[a->grad->l.dtype] == 2;
  const bool channels_last = moth_is_channels_last(out[0]);
  moth_tensor *t[INPUTS] = {NULL};
  int status = MOTH_OK;
  for (int i = 0; i < INPUTS && !status; i++) {
    if (!from[i]) continue;
    const int as = i >= WEIGHT ? real : i == DY && half_copy ? a->grad->l.dtype : dtype;
    t[i] = i < WEIGHT ? laid_as(from[i], as, channels_last) : packed_as(from[i], as);
    if (!t[i]) status = moth_status(a->ctx);
  }
  if (!status)
    status = with_float(dtype, [&](auto type) {
      return back_typed<typename decltype(type)::of>(a, t, out);
    });
  for (int i = 0; i < INPUTS; i++) moth_tensor_release(t[i]);
  return status;
}

/* Rows that are not channel groups of images are packed. */
MOTH_CUDA(row_norm_back) {
  const moth_layout *l = &out[0]->l;
  if (!moth_is_channels_last(out[0]) || (a->groups * a->channels == l->shape[1] &&
                                         a->rstd->l.numel == a->groups * l->shape[0]))
    return row_norm_back_run(a, out);
  moth_tensor *packed[4] = {moth_tensor_new(a->ctx, l), out[1], out[2], NULL};
  int status = packed[0] ? row_norm_back_run(a, packed) : moth_status(a->ctx);
  if (!status) status = moth_copy_into(out[0], packed[0]);
  if (!status && out[3]) status = moth_copy_into(out[3], packed[0]);
  moth_tensor_release(packed[0]);
  return status;
}
