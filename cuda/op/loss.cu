/* loss.cu -- losses of classes: nll_loss, and cross_entropy in one node. A target out of range is
** reported at the next synchronization, and does not count. */
#include "../../core/op/loss.h"

#include "lib/softmax.cuh"
#include "lib/sum_f64.cuh"

enum { MEAN, SUM, EACH_CASE }; /* the values of `reduction` in core/kernel/loss.h */

/* The target classes of cases, which count from `first`: 0, or 1 as in Lua. Values below 1 stay as
** they are: ignore_index, and a 0, which `counts` reports. */
struct targets_of {
  const int64_t *at;
  int64_t first;

  __device__ int64_t of(int64_t i) const {
    const int64_t t = at[i];
    return t > 0 ? t - first : t;
  }
};

static targets_of targets_in(const moth_tensor *packed) {
  return targets_of{data<int64_t>(packed), packed->l.index_base};
}

/* Scores (n, classes, inner), and the class of each of the n * inner cases. */
template <class T> struct classes_of {
  int64_t cases, classes, ignore;
  quotient_by inner;
  targets_of target;
  const T *weight; /* one for each class, or NULL */
  moth_kernel_error *kernel_error;

  /* Tests if case i counts; *class is its target then. */
  __device__ bool counts(int64_t i, int64_t *its) const {
    const int64_t t = target.of(i);
    *its = t;
    if (target.first && target.at[i] == 0) report(kernel_error, KERNEL_ERROR_ZERO, 0, 0);
    if (t == ignore) return false;
    if (t >= 0 && t < classes) return true;
    report(kernel_error, KERNEL_ERROR_CLASS, t, classes);
    return false;
  }
  __device__ double weight_of(int64_t c) const { return weight ? (double)get(weight + c) : 1; }
  /* The offset of the score of case i for class c. */
  __device__ int64_t place(int64_t i, int64_t c) const {
    const int64_t sample = divide(i, inner);
    return (sample * classes + c) * inner.by + (i - sample * inner.by);
  }
};

static strips class_strips(const moth_layout *x) { return strips_of(x, x->ndim == 1 ? 0 : 1); }

template <class T>
static classes_of<T> classes_for(const strips &s, const moth_tensor *target,
                                 const moth_tensor *weight, int64_t ignore, const moth_queue *q) {
  classes_of<T> c = {s.outer * s.inner, s.n, ignore, quotients(s.inner, s.outer * s.inner),
                     targets_in(target), NULL, q->kernel_error};
  if (weight) c.weight = data<T>(weight);
  return c;
}

/* -- the losses: -weight x; or from scores: weight (most - x + rest) -- */

template <class T, class Y, bool FINDS> struct class_loss { /* Y: the dtype of the loss */
  classes_of<T> c;
  int reduction;
  const T *x;
  real_of<T> *most, *rest; /* NULL: x already holds log probabilities; FINDS: they are computed here
                           */
  Y *y;

  /* const only for the struct: writes case i's loss, and if FINDS also most and rest. */
  __device__ sums_of<double> term(int64_t i) const {
    int64_t its;
    double w = 0, loss = 0;
    if constexpr (FINDS) {
      const T *from = x + c.place(i, 0);
      top<real_of<T>> t = no_top<real_of<T>>();
      for (int64_t k = 0; k < c.classes; k++) take(&t, get(from + k * c.inner.by));
      most[i] = t.most;
      rest[i] = log(t.sum);
    }
    if (c.counts(i, &its)) {
      const double score = (double)get(x + c.place(i, its));
      w = c.weight_of(its);
      loss = w * (most ? ((double)most[i] - score) + (double)rest[i] : -score);
    }
    if (reduction == EACH_CASE) put(y + i, loss);
    return sums_of<double>{loss, w};
  }
  __device__ void finish(sums_of<double> s) const {
    if (reduction != EACH_CASE) put(y, reduction == MEAN ? s.a / s.b : s.a);
  }
};

/* `parts`, most and rest, is NULL for nll_loss; both, and input, are packed. */
template <bool FINDS>
static int losses_run(const strips &s, const moth_tensor *input, const moth_tensor *target,
                      const moth_tensor *weight, int64_t ignore, int64_t reduction,
                      moth_tensor *const *parts, moth_tensor *out) {
  moth_ctx *ctx = out->ctx;
  const moth_queue *q = moth_queue_of(ctx, out->l.device);
  moth_tensor *t = moth_packed(target), *w = weight ? moth_packed(weight) : NULL;
  int status = q && t && (w || !weight) ? MOTH_OK : moth_status(ctx);
  if (!status)
    status = with_float(input->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      typedef real_of<T> R;
      const classes_of<T> c = classes_for<T>(s, t, w, ignore, q);
      R *most = parts ? data<R>(parts[0]) : NULL, *rest = parts ? data<R>(parts[1]) : NULL;
      if (out->l.dtype == input->l.dtype)
        return run_total(out, c.cases, class_loss<T, T, FINDS>{c, (int)reduction, data<T>(input),
                                                               most, rest, data<T>(out)});
      return run_total(out, c.cases, class_loss<T, R, FINDS>{c, (int)reduction, data<T>(input),
                                                             most, rest, data<R>(out)});
    });
  moth_tensor_release(t);
  moth_tensor_release(w);
  return status;
}

MOTH_CUDA(nll_loss) {
  moth_tensor *x = moth_packed(a->input);
  if (!x) return moth_status(a->ctx);
  int status = losses_run<false>(class_strips(&x->l), x, a->target, a->weight, a->ignore_index,
                                 a->reduction, NULL, out[0]);
  moth_tensor_release(x);
  return status;
}

/* -- for each case: the largest score, and log(sum(exp(x - largest))) -- */

template <class T, bool WIDE>
static __global__ void parts_of_rows(int64_t rows, int64_t n, const T *x, real_of<T> *most,
                                     real_of<T> *rest) {
  const team me = team_of<WIDE, VEC<T>>(n);
  const bool works = me.row < rows;
  const top<real_of<T>> t =
    top_of_row<WIDE, VEC<T>>(me, x + (works ? me.row * n : 0), works ? n : 0);
  if (!works || me.lane != 0) return;
  most[me.row] = t.most;
  rest[me.row] = log(t.sum);
}

template <class T>
static __global__ void parts_of_inner(strips s, const T *x, real_of<T> *most, real_of<T> *rest) {
  bool valid;
  const int64_t at = inner_start(s, &valid);
  top<real_of<T>> t = no_top<real_of<T>>();
  for (int64_t i = threadIdx.y; valid && i < s.n; i += blockDim.y)
    take(&t, get(x + at + i * s.inner));
  t = join_inner(join_tops<real_of<T>>(), t);
  if (!valid || threadIdx.y != 0) return;
  const int64_t across = (s.inner + blockDim.x - 1) / blockDim.x, o = blockIdx.x / across;
  const int64_t to = at - o * (s.n - 1) * s.inner;
  most[to] = t.most;
  rest[to] = log(t.sum);
}

static int parts_run(const strips &s, const moth_tensor *x, moth_tensor *most, moth_tensor *rest) {
  if (s.outer * s.inner == 0) return MOTH_OK;
  return with_float(x->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    const T *from = data<T>(x);
    const inner_form f = inner_form_of(s);
    if (s.inner > 1)
      return launch(x->ctx, x, parts_of_inner<T>, f.grid, f.block, 0, s, from,
                    data<real_of<T>>(most), data<real_of<T>>(rest));
    const bool wide = s.n > ROW_OF_WARP;
    return launch(x->ctx, x, wide ? parts_of_rows<T, true> : parts_of_rows<T, false>,
                  teams_for(wide, s.outer, s.n, VEC<T>), BLOCK, 0, s.outer, s.n, from,
                  data<real_of<T>>(most), data<real_of<T>>(rest));
  });
}

/* Below both limits, one thread computes a case's maximum and sum alone. */
enum { CLASSES_OF_THREAD = 32, FEW_CASES = 1024 };

MOTH_CUDA(class_entropy) {
  const strips s = class_strips(&a->input->l);
  const bool few = s.n <= CLASSES_OF_THREAD && s.outer * s.inner <= FEW_CASES;
  moth_tensor *x = moth_packed(a->input);
  int status = x ? MOTH_OK : moth_status(a->ctx);
  if (!status && !few) status = parts_run(s, x, out[1], out[2]);
  if (!status)
    status = (few ? losses_run<true> : losses_run<false>)(s, x, a->target, a->weight,
                                                          a->ignore_index, a->reduction, out + 1,
                                                          out[0]);
  moth_tensor_release(x);
  return status;
}

/* -- backward: the factor of each case's gradient; the mean needs the sum of weights first -- */

template <class T> struct weight_total {
  classes_of<T> c;
  double *to;

  __device__ sums_of<double> term(int64_t i) const {
    int64_t its;
    return sums_of<double>{0, c.counts(i, &its) ? c.weight_of(its) : 0};
  }
  __device__ void finish(sums_of<double> s) const { *to = s.b; }
};

template <class T, class U> struct case_factors { /* U: the dtype of dy */
  classes_of<T> c;
  const U *dy;
  int reduction;

  __device__ real_of<T> of(int64_t i, double total) const {
    int64_t its;
    const double up = (double)get(dy + (reduction == EACH_CASE ? i : 0));
    return c.counts(i, &its) ? (real_of<T>)(c.weight_of(its) * (up / total)) : 0;
  }
};

template <class T, class U>
static __global__ void find_factors(case_factors<T, U> f, const double *total, real_of<T> *factor) {
  const int64_t i = thread_number();
  if (i < f.c.cases) factor[i] = f.of(i, total ? *total : 1);
}

template <class T> struct class_back {
  targets_of target;
  const real_of<T> *factor;
  const T *x; /* for class_entropy, with `most` and `rest`; else NULL */
  const real_of<T> *most, *rest;
  T *dx;
};

/* The gradient of a score x of case i; `is`: the score belongs to the case's target class. */
template <class T> struct score_back {
  real_of<T> f, most, rest;
  bool reads;
  __device__ score_back(const class_back<T> &b, int64_t i) {
    f = b.factor[i];
    reads = b.x && f != 0;
    most = reads ? b.most[i] : 0;
    rest = reads ? b.rest[i] : 0;
  }
  __device__ real_of<T> operator()(real_of<T> x, bool is) const {
    if (!reads) return is ? -f : 0;
    const real_of<T> share = exp((x - most) - rest) * f;
    return is ? share - f : share;
  }
};

template <class T>
static __device__ inline void back_of(const class_back<T> &b, int64_t at, const quotient_by &inner,
                                      const quotient_by &classes) {
  const int64_t line = divide(at, inner), sample = divide(line, classes);
  const int64_t i = sample * inner.by + (at - line * inner.by);
  const score_back<T> f(b, i);
  const bool is = b.target.of(i) == line - sample * classes.by;
  put(b.dx + at, f(f.reads ? get(b.x + at) : (real_of<T>)0, is));
}

template <class T>
static __global__ void back_to_each(class_back<T> b, int64_t n, quotient_by inner,
                                    quotient_by classes) {
  const int64_t at = thread_number();
  if (at < n) back_of(b, at, inner, classes);
}

/* Few cases: each block computes all factors itself. */
template <class T, class U>
static __global__ void back_of_few(class_back<T> b, case_factors<T, U> f, int64_t n,
                                   quotient_by inner, quotient_by classes) {
  __shared__ real_of<T> factor[FEW_CASES];
  const int cases = (int)f.c.cases;
  double total = 1;
  if (f.reduction == MEAN) {
    sums_of<double> s = {0, 0};
    const weight_total<T> weights = {f.c, NULL};
    for (int i = (int)threadIdx.x; i < cases; i += BLOCK) s = added(s, weights.term(i));
    total = join_block(add_sums<double>(), s).b;
  }
  for (int i = (int)threadIdx.x; i < cases; i += BLOCK) factor[i] = f.of(i, total);
  __syncthreads();
  b.factor = factor;
  const int64_t at = thread_number();
  if (at < n) back_of(b, at, inner, classes);
}

/* A vector of scores of adjacent classes, of one case or of two. */
template <class T>
static __global__ void back_to_scores(class_back<T> b, int64_t n, quotient_by classes) {
  enum { EACH = VEC<T> };
  const int64_t at = thread_number() * EACH;
  if (at >= n) return;
  const int64_t i = divide(at, classes), c = at - i * classes.by, left = classes.by - c;
  const bool whole = at + EACH <= n, two = left < EACH && at + left < n;
  const score_back<T> f(b, i), g(b, two ? i + 1 : i);
  const int64_t its = b.target.of(i) - c, others = two ? b.target.of(i + 1) + left : -1;
  vec<T, EACH> in = {}, out;
  if (whole && (f.reads || g.reads)) in = *(const vec<T, EACH> *)(const void *)(b.x + at);
  for (int k = 0; k < EACH && !whole && (f.reads || g.reads); k++)
    if (at + k < n) in.at[k] = b.x[at + k];
  for (int k = 0; k < EACH; k++) {
    const real_of<T> x = get(&in.at[k]);
    put(&out.at[k], k < left ? f(x, its == k) : g(x, others == k));
  }
  if (whole) write_vec(b.dx + at, out);
  for (int k = 0; k < EACH && !whole; k++)
    if (at + k < n) b.dx[at + k] = out.at[k];
}

/* All tensors are packed. Computes b's factors. */
template <class T, class U>
static int back_run(const strips &s, const case_factors<T, U> &f, class_back<T> b,
                    moth_tensor *dx) {
  const int64_t n = dx->l.numel;
  moth_ctx *ctx = dx->ctx;
  const quotient_by inner = quotients(s.inner, n), classes = quotients(s.n, n);
  if (n == 0) return MOTH_OK;
  if (f.c.cases <= FEW_CASES && n <= FEW_CASES * CLASSES_OF_THREAD)
    return launch(ctx, dx, back_of_few<T, U>, blocks_for(n), BLOCK, 0, b, f, n, inner, classes);
  const bool mean = f.reduction == MEAN;
  moth_tensor *total = mean ? device_scratch(dx, sizeof(double)) : NULL;
  moth_tensor *factor = device_scratch(dx, f.c.cases * (int64_t)sizeof(real_of<T>));
  int status = factor && (total || !mean) ? MOTH_OK : moth_status(ctx);
  const double *by = total ? data<double>(total) : NULL;
  if (!status && total)
    status = run_total(dx, f.c.cases, weight_total<T>{f.c, data<double>(total)});
  if (!status)
    status = launch(ctx, dx, find_factors<T, U>, blocks_for(f.c.cases), BLOCK, 0, f, by,
                    data<real_of<T>>(factor));
  if (!status) {
    b.factor = data<real_of<T>>(factor);
    const bool many = s.inner == 1 && s.n >= VEC<T> && on_vec(b.x) && on_vec(b.dx);
    status = many ? launch(ctx, dx, back_to_scores<T>, blocks_for(n, VEC<T>), BLOCK, 0, b, n,
                           classes)
                  : launch(ctx, dx, back_to_each<T>, blocks_for(n), BLOCK, 0, b, n, inner,
                           classes);
  }
  moth_tensor_release(total);
  moth_tensor_release(factor);
  return status;
}

MOTH_CUDA(nll_loss_back) {
  const strips s = class_strips(&out[0]->l);
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  moth_tensor *t = moth_packed(a->target), *dy = moth_packed(a->input);
  moth_tensor *w = a->weight ? moth_packed(a->weight) : NULL;
  int status = q && t && dy && (w || !a->weight) ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(out[0]->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      const class_back<T> b = {targets_in(t), NULL, NULL, NULL, NULL, data<T>(out[0])};
      const classes_of<T> c = classes_for<T>(s, t, w, a->ignore_index, q);
      return back_run(s, case_factors<T, T>{c, data<T>(dy), (int)a->reduction}, b, out[0]);
    });
  moth_tensor_release(t);
  moth_tensor_release(dy);
  moth_tensor_release(w);
  return status;
}

/* The scores keep their dtype; tensors with one value for each case are converted to the compute
** type. */
MOTH_CUDA(class_entropy_back) {
  enum { DY, MOST, REST, WEIGHT, X, TARGET, ALL };
  const int dtype = a->input->l.dtype, real = moth_compute_dtype(dtype);
  const moth_tensor *from[ALL] = {a->grad, a->most, a->rest, a->weight, a->input, a->target};
  const int dtypes[ALL] = {real, real, real, dtype, dtype, MOTH_I64};
  const strips s = class_strips(&a->input->l);
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  moth_tensor *t[ALL] = {NULL};
  int status = q ? MOTH_OK : moth_status(a->ctx);
  for (int i = 0; i < ALL && !status; i++)
    if (from[i] && !(t[i] = packed_as(from[i], dtypes[i]))) status = moth_status(a->ctx);
  if (!status)
    status = with_float(dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      typedef real_of<T> R;
      const class_back<T> b = {targets_in(t[TARGET]), NULL, data<T>(t[X]), data<R>(t[MOST]),
                               data<R>(t[REST]), data<T>(out[0])};
      const classes_of<T> c = classes_for<T>(s, t[TARGET], t[WEIGHT], a->ignore_index, q);
      return back_run(s, case_factors<T, R>{c, data<R>(t[DY]), (int)a->reduction}, b, out[0]);
    });
  for (int i = 0; i < ALL; i++) moth_tensor_release(t[i]);
  return status;
}
