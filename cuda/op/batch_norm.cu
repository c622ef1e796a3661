/* batch_norm.cu -- normalises channels over the batch and updates the running statistics. Sums are
** shifted by an element of the channel, so that one pass is enough for the variance: Chan and
** others, "Algorithms for computing the sample variance" (1983). */
#include "../../core/op/norm.h"

#include "lib/channel_sums.cuh"

/* The map of a channel's elements: (x - mean) scale + shift, plus dy * by in gradients. A gradient
** uses the forward maps to recompute the input of a following relu. */
template <class real> struct channel_map {
  real mean, scale, shift, by;
};

/* Rounded in one way in every kernel. */
static __device__ inline float mapped(float x, const channel_map<float> &m) {
  return fmaf(x - m.mean, m.scale, m.shift);
}
static __device__ inline double mapped(double x, const channel_map<double> &m) {
  return fma(x - m.mean, m.scale, m.shift);
}

/* Tests if the relu after a forward map passed x; the relu's input was rounded to a T. */
template <class T>
static __device__ inline bool let_through(const T *x, const channel_map<real_of<T>> &was) {
  T seen;
  put(&seen, mapped(get(x), was));
  return !(get(&seen) <= 0);
}

/* For channels_last images, the channels of each pixel are a row. */
static channel_form form_of(const moth_layout *x, bool channels_last) {
  int64_t inner = 1;
  for (int32_t i = 2; i < x->ndim; i++) inner *= x->shape[i];
  return channels_last ? channels_for(x->shape[0] * inner, x->shape[1], 1)
                       : channels_for(x->shape[0], x->shape[1], inner);
}

/* -- apply -- */

enum { FORWARD, SUMMED, BACK, BACK_RELU }; /* all but the first read a second tensor besides x */

template <class T> struct apply_job {
  const channel_map<real_of<T>> *maps, *was; /* was: the maps of the forward pass, if a relu
                                             ** followed */
  const T *x, *other;                        /* other: a summand, or dy */
  bool relu;                                 /* relu after the forward result */
  T *y;
};

template <int KIND, class T>
static __device__ inline void put_result(bool relu, const T *x, const T *other,
                                         const channel_map<real_of<T>> &m,
                                         const channel_map<real_of<T>> &was, T *y) {
  const real_of<T> v = mapped(get(x), m);
  if (KIND >= BACK) {
    const bool counts = KIND == BACK || let_through(x, was);
    put(y, v + (counts ? get(other) : 0) * m.by);
    return;
  }
  put(y, v);
  if (KIND == SUMMED) put(y, get(y) + get(other));
  if (relu && get(y) < 0) put(y, (real_of<T>)0);
}

template <class T, int EACH, int KIND>
static __global__ void apply_map(int64_t n, quotient_by inner, quotient_by channels,
                                 apply_job<T> job) {
  const int64_t first = thread_number() * EACH;
  if (first >= n) return;
  vec<T, EACH> in = *(const vec<T, EACH> *)(const void *)(job.x + first), more = in, out;
  if (KIND != FORWARD) more = *(const vec<T, EACH> *)(const void *)(job.other + first);
  const bool alike = inner.by % EACH == 0; /* one channel for the whole vector */
  channel_map<real_of<T>> m = {}, was = {};
  for (int k = 0; k < EACH; k++) {
    if (k == 0 || !alike) {
      const int64_t plane = divide(first + k, inner);
      const int64_t c = plane - divide(plane, channels) * channels.by;
      m = job.maps[c];
      if (KIND == BACK_RELU) was = job.was[c];
    }
    put_result<KIND>(job.relu, &in.at[k], &more.at[k], m, was, &out.at[k]);
  }
  write_vec(job.y + first, out);
}

/* The same for adjacent channels: each thread keeps the maps of its EACH channels. */
template <class T, int EACH, int KIND>
static __global__ void apply_columns(int64_t n, int64_t channels, column_form b,
                                     apply_job<T> job) {
  const int64_t c = ((int64_t)blockIdx.x * b.across + (int)threadIdx.x % b.across) * EACH;
  const int64_t row = (int64_t)blockIdx.y * b.down + (int)threadIdx.x / b.across;
  channel_map<real_of<T>> m[EACH], was[EACH];
  if (c >= channels) return;
#pragma unroll
  for (int k = 0; k < EACH; k++) {
    m[k] = job.maps[c + k];
    was[k] = KIND == BACK_RELU ? job.was[c + k] : m[k];
  }
#pragma unroll 2
  for (int64_t q = row; q < n; q += (int64_t)gridDim.y * b.down) {
    const int64_t at = q * channels + c;
    vec<T, EACH> in = *(const vec<T, EACH> *)(const void *)(job.x + at), more = in, out;
    if (KIND != FORWARD) more = *(const vec<T, EACH> *)(const void *)(job.other + at);
#pragma unroll
    for (int k = 0; k < EACH; k++)
      put_result<KIND>(job.relu, &in.at[k], &more.at[k], m[k], was[k], &out.at[k]);
    write_vec(job.y + at, out);
  }
}

template <class T, int EACH, int KIND>
static int apply_rows(const channel_form &f, const apply_job<T> &job, const moth_tensor *y) {
  const column_form b = columns_for(f.c, EACH);
  return launch(y->ctx, y, apply_columns<T, EACH, KIND>,
                grid_for(b.blocks, column_parts(b, f.n, 65535)), BLOCK, 0, f.n, f.c,
                b, job);
}

template <class T, int KIND>
static int apply_run(const channel_form &f, const apply_job<T> &job, const moth_tensor *y) {
  enum { EACH_VEC = VEC<T> };
  const int64_t n = y->l.numel;
  const quotient_by inner = quotients(f.inner.by, n), channels = quotients(f.c, n);
  const bool packs = on_vec(job.x) && on_vec(job.other) && on_vec(job.y);
  if (n == 0) return MOTH_OK;
  if (f.inner.by == 1)
    return packs && f.c % EACH_VEC == 0 ? apply_rows<T, EACH_VEC, KIND>(f, job, y)
                                    : apply_rows<T, 1, KIND>(f, job, y);
  if (n % EACH_VEC == 0 && packs)
    return launch(y->ctx, y, apply_map<T, EACH_VEC, KIND>, blocks_for(n, EACH_VEC), BLOCK, 0, n,
                  inner, channels, job);
  return launch(y->ctx, y, apply_map<T, 1, KIND>, blocks_for(n), BLOCK, 0, n, inner, channels, job);
}

template <class real> static moth_tensor *maps_for(const moth_tensor *near, int64_t c) {
  return device_scratch(near, c * (int64_t)sizeof(channel_map<real>));
}

/* -- channel_norm -- */

/* Sums of x - c0 and of its square; c0 is the channel's first element. A thread shifts by the first
** element it reads, and end() converts the sums to shift c0. c0 may be far from all other elements:
** with it, f32 would lose their digits. */
template <class T> struct variance_sums {
  typedef real_of<T> real;
  const T *x;
  int64_t inner;
  __device__ real of(int64_t, int64_t at) const { return get(x + at); }
  template <int EACH> __device__ vec<T, EACH> load(real, int64_t, int64_t at) const {
    return *(const vec<T, EACH> *)(const void *)(x + at);
  }
  template <int EACH>
  __device__ sums_of<real> term(real near, const vec<T, EACH> &of, int k) const {
    const real d = get(&of.at[k]) - near;
    return sums_of<real>{d, d * d};
  }
  __device__ sums_of<double> end(int64_t c, real near, sums_of<double> s, int64_t terms) const {
    const double off = (double)near - (double)get(x + c * inner), all = off * (double)terms;
    return sums_of<double>{s.a + all, s.b + off * (2 * s.a + all)};
  }
};

/* parts: sums of the input's own statistics, which are written to mean and var; or NULL. */
template <class T>
static __global__ void find_maps(channel_form f, const sums_of<double> *parts, const T *x,
                                 any_real mean, any_real var, any_real weight, any_real bias,
                                 double eps, real_of<T> *own_mean, real_of<T> *own_var,
                                 channel_map<real_of<T>> *maps) {
  typedef real_of<T> R;
  const int64_t c = thread_number() / WARP;
  const double each = (double)(f.n * f.inner.by);
  sums_of<double> s = {0, 0};
  if (parts) s = sum_of_parts(f, c, parts);
  if (c >= f.c || threadIdx.x % WARP) return;
  double m = mean[c], v = var[c];
  if (parts) {
    m = each > 0 ? s.a / each : 0;
    v = each > 0 ? s.b / each - m * m : 0;
    if (v < 0) v = 0;
    if (each > 0) m += (double)get(x + c * f.inner.by);
    own_mean[c] = (R)m;
    own_var[c] = (R)v;
  }
  const double scale = weight[c] / sqrt(v + eps);
  maps[c] = channel_map<R>{(R)m, (R)scale, (R)bias[c], 0};
}

enum { X, WEIGHT, BIAS, MEAN, VAR, RESIDUAL, INPUTS };

template <class T>
static int norm_typed(const channel_norm_args *a, moth_tensor *const *t, moth_tensor **out) {
  typedef real_of<T> R;
  channel_form f = form_of(&a->input->l, moth_is_channels_last(out[0]));
  const bool own = !t[MEAN];
  moth_tensor *scratch = out[3] ? NULL : maps_for<R>(out[0], f.c), *parts = NULL;
  const moth_tensor *maps = out[3] ? out[3] : scratch;
  if (own && maps)
    parts = channel_sums<HANDFUL<T>>(out[0], &f, variance_sums<T>{data<T>(t[X]), f.inner.by},
                                     on_vec(data<T>(t[X])));
  int status = maps && (parts || !own) ? MOTH_OK : moth_status(a->ctx);
  const sums_of<double> *sums = parts ? data<sums_of<double>>(parts) : NULL;
  if (!status && f.c)
    status = launch(a->ctx, out[0], find_maps<T>, blocks_for(f.c * WARP), BLOCK, 0, f, sums,
                    data<T>(t[X]), any_of(t[MEAN], 0), any_of(t[VAR], 0), any_of(t[WEIGHT], 1),
                    any_of(t[BIAS], 0), a->eps, data<R>(out[1]), data<R>(out[2]),
                    data<channel_map<R>>(maps));
  const T *residual = t[RESIDUAL] ? data<T>(t[RESIDUAL]) : NULL;
  if (!status) {
    const apply_job<T> job = {data<channel_map<R>>(maps), NULL, data<T>(t[X]), residual,
                              a->activation == NORM_RELU, data<T>(out[0])};
    status = residual ? apply_run<T, SUMMED>(f, job, out[0])
                      : apply_run<T, FORWARD>(f, job, out[0]);
  }
  moth_tensor_release(scratch);
  moth_tensor_release(parts);
  return status;
}

/* Packs the non-NULL ones of n tensors, images in the memory format of the result y. The caller
** releases them, also after an error. */
static int pack_all(const moth_tensor *y, int n, const moth_tensor *const *from, moth_tensor **to) {
  const bool channels_last = moth_is_channels_last(y);
  for (int i = 0; i < n; i++) {
    if (!from[i]) continue;
    to[i] = moth_packed_as(from[i], channels_last && from[i]->l.ndim == y->l.ndim);
    if (!to[i]) return moth_status(y->ctx);
  }
  return MOTH_OK;
}

MOTH_CUDA(channel_norm) {
  const moth_tensor *from[INPUTS] = {a->input, a->weight, a->bias,
                                     a->mean,  a->var,    a->residual};
  moth_tensor *t[INPUTS] = {NULL};
  int status = pack_all(out[0], INPUTS, from, t);
  if (!status)
    status = with_float(out[0]->l.dtype, [&](auto type) {
      return norm_typed<typename decltype(type)::of>(a, t, out);
    });
  for (int i = 0; i < INPUTS; i++) moth_tensor_release(t[i]);
  return status;
}

/* -- its gradients -- */

static __device__ inline float rounded_product(float x, float y) { return __fmul_rn(x, y); }
static __device__ inline double rounded_product(double x, double y) { return __dmul_rn(x, y); }

/* Sums of dy (after the relu) and of dy (x - mean). Terms are rounded before they are summed, so
** that the sums are bit-identical with a relu and without one. */
template <class T, bool RELU> struct back_sums {
  typedef real_of<T> real;
  const T *x, *dy;
  any_real mean;
  const channel_map<real> *was;
  struct known {
    real mean;
    channel_map<real> was;
  };
  __device__ known of(int64_t c, int64_t) const {
    return known{(real)mean[c], RELU ? was[c] : channel_map<real>{}};
  }
  template <int EACH>
  __device__ two_vecs<T, EACH> load(const known &, int64_t, int64_t at) const {
    return load_two<EACH>(x + at, dy + at);
  }
  template <int EACH>
  __device__ sums_of<real> term(const known &is, const two_vecs<T, EACH> &of, int k) const {
    real d = get(&of.dy.at[k]);
    if (RELU && !let_through(&of.x.at[k], is.was)) d = 0;
    return sums_of<real>{d, rounded_product(d, get(&of.x.at[k]) - is.mean)};
  }
  __device__ sums_of<double> end(int64_t, const known &, sums_of<double> s, int64_t) const {
    return s;
  }
};

template <class T>
static __global__ void find_back_maps(channel_form f, const sums_of<double> *parts, any_real mean,
                                      any_real var, any_real weight, double eps, bool training,
                                      real_of<T> *dweight, real_of<T> *dbias,
                                      channel_map<real_of<T>> *maps) {
  typedef real_of<T> R;
  const int64_t c = thread_number() / WARP;
  const double each = (double)(f.n * f.inner.by);
  const sums_of<double> s = sum_of_parts(f, c, parts);
  if (c >= f.c || threadIdx.x % WARP) return;
  const double rstd = 1 / sqrt(var[c] + eps), by = weight[c] * rstd;
  const double shift = training ? -by * s.a / each : 0;
  const double scale = training ? -by * rstd * rstd * s.b / each : 0;
  dweight[c] = (R)(s.b * rstd);
  dbias[c] = (R)s.a;
  maps[c] = channel_map<R>{(R)mean[c], (R)scale, (R)shift, (R)by};
}

enum { GRAD_X, GRAD_WEIGHT, GRAD_DY, GRAD_MEAN, GRAD_VAR, GRAD_MAP, GRAD_INPUTS };

template <class T, bool RELU>
static int back_typed(const channel_norm_back_args *a, moth_tensor *const *t, moth_tensor **out) {
  typedef real_of<T> R;
  channel_form f = form_of(&a->input->l, moth_is_channels_last(out[0]));
  const T *x = data<T>(t[GRAD_X]), *dy = data<T>(t[GRAD_DY]);
  const channel_map<R> *was = RELU ? data<channel_map<R>>(t[GRAD_MAP]) : NULL;
  const any_real mean = any_of(t[GRAD_MEAN], 0);
  moth_tensor *maps = maps_for<R>(out[0], f.c), *parts = NULL;
  if (maps)
    parts = channel_sums<HANDFUL<T>>(out[0], &f, back_sums<T, RELU>{x, dy, mean, was},
                                     on_vec(x) && on_vec(dy));
  int status = maps && parts ? MOTH_OK : moth_status(a->ctx);
  if (!status && f.c)
    status = launch(a->ctx, out[0], find_back_maps<T>, blocks_for(f.c * WARP), BLOCK, 0, f,
                    data<sums_of<double>>(parts), mean, any_of(t[GRAD_VAR], 0),
                    any_of(t[GRAD_WEIGHT], 1), a->eps, a->training, data<R>(out[1]),
                    data<R>(out[2]), data<channel_map<R>>(maps));
  if (!status)
    status = apply_run<T, RELU ? BACK_RELU : BACK>(
      f, apply_job<T>{data<channel_map<R>>(maps), was, x, dy, false, data<T>(out[0])}, out[0]);
  moth_tensor_release(maps);
  moth_tensor_release(parts);
  return status;
}

MOTH_CUDA(channel_norm_back) {
  const moth_tensor *from[GRAD_INPUTS] = {a->input, a->weight, a->grad, a->mean, a->var};
  moth_tensor *t[GRAD_INPUTS] = {NULL};
  int status = pack_all(out[0], GRAD_MAP, from, t);
  if (!status && a->activation) {
    const int dtype = out[1]->l.dtype;
    t[GRAD_MAP] = a->map->l.dtype == dtype ? moth_packed(a->map) : moth_cast(a->map, dtype);
    if (!t[GRAD_MAP]) status = moth_status(a->ctx);
  }
  if (!status)
    status = with_float(out[0]->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      return a->activation ? back_typed<T, true>(a, t, out) : back_typed<T, false>(a, t, out);
    });
  for (int i = 0; i < GRAD_INPUTS; i++) moth_tensor_release(t[i]);
  return status;
}

/* -- running statistics: r := keep r + add v, both f64 and packed; or mean and variance at once,
** all f32 -- */

static __global__ void move_statistics(int64_t n, double keep, double add, const double *v,
                                       double *r) {
  const int64_t i = thread_number();
  if (i < n) r[i] = keep * r[i] + add * v[i];
}

static __global__ void move_both(int64_t n, double keep, double add, double add_var,
                                 const float *v, float *r, const float *v_var, float *r_var) {
  const int64_t i = thread_number();
  if (i >= n) return;
  r[i] = (float)(keep * r[i] + add * v[i]);
  r_var[i] = (float)(keep * r_var[i] + add_var * v_var[i]);
}

static int move_running(moth_ctx *ctx, int dtype, int noperands,
                        const moth_tensor *const *operands, const void *arg) {
  const double *share = (const double *)arg;
  const int64_t n = operands[0]->l.numel;
  (void)noperands;
  if (n == 0) return MOTH_OK;
  if (dtype == MOTH_F32)
    return launch(ctx, operands[0], move_both, blocks_for(n), BLOCK, 0, n, share[0], share[1],
                  share[2], data<float>(operands[1]), data<float>(operands[0]),
                  data<float>(operands[3]), data<float>(operands[2]));
  return launch(ctx, operands[0], move_statistics, blocks_for(n), BLOCK, 0, n, share[0], share[1],
                data<double>(operands[1]), data<double>(operands[0]));
}
MOTH_ENTRY(move_running_map, {"move_running", NULL, move_running})
