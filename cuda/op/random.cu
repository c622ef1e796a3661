/* random.cu -- tensors of random numbers: the same bits as on the CPU, for the same generator. The
** words are Philox's, the formulas those of core/kernel/random/distributions.h. This file is
** compiled without contraction (plugin.cmake); division and sqrt round as in IEEE 754.
**
** A thread uses one block of four words: four values of an f32, two of an f64 or of an integer. */
#include "../../core/op/random.h"

#include "lib/philox.cuh"

/* A further block of words, derived from a block of the stream. */
HD void trial_words(uint64_t seed, uint64_t block, uint32_t turn, uint32_t *out) {
  const words w = philox(stream{seed, block}, 0, turn);
  for (int k = 0; k < 4; k++) out[k] = w.at[k];
}
#define MOTH_REJECTION_WORDS trial_words
#include <float.h>

#include "../../core/kernel/random/rejection.h"
#include "lib/sort_rows.cuh"

/* -- distributions: functors that make `values` numbers from a block of words -- */

enum fills { ANY, FLOATS, NUMBERS }; /* dtypes that a distribution supports: NUMBERS are all but
                                     ** bool */

struct uniform_f32 {
  typedef float value;
  enum { values = 4 };
  static constexpr fills dtypes = FLOATS;
  int bits;
  float mul, add;
  __device__ void make(const words &w, float *v) const {
    const float unit = 1.0f / (float)(1u << bits);
    for (int k = 0; k < 4; k++) v[k] = (float)(int32_t)(w.at[k] >> (32 - bits)) * unit;
    if (mul != 1 || add != 0)
      for (int k = 0; k < 4; k++) v[k] = add + mul * v[k];
  }
};

struct normal_f32 {
  typedef float value;
  enum { values = 4 };
  static constexpr fills dtypes = FLOATS;
  float mul, add;
  __device__ void make(const words &w, float *v) const {
    moth_two_normals_f32(w.at, v);
    moth_two_normals_f32(w.at + 2, v + 2);
    if (mul != 1 || add != 0)
      for (int k = 0; k < 4; k++) v[k] = add + mul * v[k];
  }
};

struct uniform_f64 {
  typedef double value;
  enum { values = 2 };
  static constexpr fills dtypes = FLOATS;
  double mul, add;
  __device__ void make(const words &w, double *v) const {
    for (int k = 0; k < 2; k++) {
      v[k] = moth_unit_f64(w.at + 2 * k);
      if (mul != 1 || add != 0) v[k] = add + mul * v[k];
    }
  }
};

struct normal_f64 {
  typedef double value;
  enum { values = 2 };
  static constexpr fills dtypes = FLOATS;
  double mul, add;
  __device__ void make(const words &w, double *v) const {
    moth_two_normals_f64(w.at, v);
    if (mul != 1 || add != 0)
      for (int k = 0; k < 2; k++) v[k] = add + mul * v[k];
  }
};

struct uniform_integers { /* count 0: the full range of int64 */
  typedef int64_t value;
  enum { values = 2 };
  static constexpr fills dtypes = ANY;
  int64_t low;
  uint64_t count;
  __device__ void make(const words &w, int64_t *v) const {
    for (int k = 0; k < 2; k++) v[k] = (int64_t)((uint64_t)low + moth_below(count, w.at + 2 * k));
  }
};

struct exponentials {
  typedef double value;
  enum { values = 2 };
  static constexpr fills dtypes = NUMBERS;
  double rate;
  bool trials; /* geometric: the number of trials */
  __device__ void make(const words &w, double *v) const {
    for (int k = 0; k < 2; k++) {
      v[k] = 0.5 * moth_minus_2_log_f64(moth_inner_unit_f64(w.at + 2 * k)) / rate;
      if (!trials) continue;
      v[k] = ceil(v[k]);
      if (v[k] < 1) v[k] = 1;
    }
  }
};

/* -- filling -- */

template <class Maker, class T>
static __global__ void fill_from(Maker m, stream s, int64_t n, T *y) {
  const int64_t block = thread_number(), first = block * Maker::values;
  typename Maker::value v[Maker::values];
  if (first >= n) return;
  m.make(philox(s, (uint64_t)block), v);
  vec<T, Maker::values> out;
  for (int k = 0; k < Maker::values; k++) convert_to(&out.at[k], v[k]);
  if (first + Maker::values <= n && (uintptr_t)y % sizeof out == 0) {
    write_vec(y + first, out);
    return;
  }
  for (int k = 0; k < Maker::values; k++)
    if (first + k < n) y[first + k] = out.at[k];
}

/* Fills the packed y with n values; the generator advances by `counted` values. */
template <class Maker>
static int fill_packed(const Maker &m, moth_tensor *generator, int64_t counted, moth_tensor *y) {
  const int64_t n = y->l.numel;
  stream s;
  int status = stream_open(y->ctx, generator, counted, 4 / Maker::values, &s);
  if (status || n == 0) return status;
  auto fill = [&](auto type) {
    typedef typename decltype(type)::of T;
    constexpr bool wide = sizeof(typename Maker::value) == 8;
    if constexpr (Maker::dtypes != FLOATS || (sizeof(T) == 8) == wide)
      return launch(y->ctx, y, fill_from<Maker, T>, blocks_for(n, Maker::values), BLOCK, 0, m, s,
                    n, data<T>(y));
    else return (int)MOTH_OK; /* f64 has its own functors */
  };
  if constexpr (Maker::dtypes == FLOATS) return with_float(y->l.dtype, fill);
  else if constexpr (Maker::dtypes == NUMBERS) return with_numbers(y->l.dtype, fill);
  else return with_any(y->l.dtype, fill);
}

/* The same for a result with any strides. */
template <class F> static int fill_target(moth_tensor *y, F fill) {
  if (moth_layout_contiguous(&y->l)) return fill(y);
  moth_tensor *packed = moth_tensor_new(y->ctx, &y->l);
  if (!packed) return moth_status(y->ctx);
  int status = fill(packed);
  if (!status) status = moth_copy_into(y, packed);
  moth_tensor_release(packed);
  return status;
}

static int fill_uniform(moth_tensor *generator, moth_tensor *to, double mul, double add) {
  return fill_target(to, [&](moth_tensor *y) {
    const int dtype = y->l.dtype, bits = dtype == MOTH_F16 ? 11 : dtype == MOTH_BF16 ? 8 : 24;
    if (dtype == MOTH_F64)
      return fill_packed(uniform_f64{mul, add}, generator, y->l.numel, y);
    return fill_packed(uniform_f32{bits, (float)mul, (float)add}, generator, y->l.numel, y);
  });
}

/* Normal numbers are made in pairs. */
static int fill_normal(moth_tensor *generator, moth_tensor *to, double mul, double add) {
  return fill_target(to, [&](moth_tensor *y) {
    const int64_t even = y->l.numel + (y->l.numel & 1);
    if (y->l.dtype == MOTH_F64) return fill_packed(normal_f64{mul, add}, generator, even, y);
    return fill_packed(normal_f32{(float)mul, (float)add}, generator, even, y);
  });
}

MOTH_CUDA(rand) { return fill_uniform(a->generator, out[0], 1, 0); }
MOTH_CUDA(randn) { return fill_normal(a->generator, out[0], 1, 0); }
MOTH_CUDA(rand_like) { return fill_uniform(a->generator, out[0], 1, 0); }
MOTH_CUDA(randn_like) { return fill_normal(a->generator, out[0], 1, 0); }
MOTH_CUDA(uniform_) { return fill_uniform(a->generator, out[0], a->to - a->from, a->from); }
MOTH_CUDA(normal_) { return fill_normal(a->generator, out[0], a->std, a->mean); }

/* -- integers -- */

static int fill_integers(moth_tensor *generator, moth_tensor *to, int64_t low, uint64_t count) {
  return fill_target(to, [&](moth_tensor *y) {
    return fill_packed(uniform_integers{low, count}, generator, y->l.numel, y);
  });
}

/* only `low` is given and is the upper bound; shape rules have checked both */
static int fill_range(moth_tensor *generator, moth_tensor *y, int64_t low, int64_t high) {
  if (high == MOTH_NO_INT) high = low, low = 0;
  return fill_integers(generator, y, low, (uint64_t)high - (uint64_t)low);
}

MOTH_CUDA(randint) { return fill_range(a->generator, out[0], a->low, a->high); }
MOTH_CUDA(randint_like) { return fill_range(a->generator, out[0], a->low, a->high); }

MOTH_CUDA(random_) {
  /* Random bits of each dtype. */
  static const uint8_t bits[MOTH_DTYPES] = {1, 8, 7, 15, 31, 63, 11, 8, 24, 53};
  const int dtype = out[0]->l.dtype;
  if (a->from == MOTH_NO_INT && a->to == MOTH_NO_INT)
    return fill_integers(a->generator, out[0], 0,
                      ((uint64_t)1 << bits[dtype]) + (dtype >= MOTH_F16));
  if (a->from == MOTH_NO_INT) return fill_range(a->generator, out[0], 0, a->to);
  return fill_range(a->generator, out[0], a->from, a->to);
}

/* -- exponential, geometric -- */

MOTH_CUDA(exponential_) {
  return fill_target(out[0], [&](moth_tensor *y) {
    return fill_packed(exponentials{a->lambd, false}, a->generator, y->l.numel, y);
  });
}

MOTH_CUDA(geometric_) {
  return fill_target(out[0], [&](moth_tensor *y) {
    return fill_packed(exponentials{-log1p(-a->p), true}, a->generator, y->l.numel, y);
  });
}

/* -- bernoulli: 1 if a word, as a number in [0, 1), is below the probability -- */

template <class P, class T>
static __global__ void draw_bools(stream s, int64_t n, const P *p, double one_p,
                                  moth_kernel_error *kernel_error, T *y) {
  const int64_t block = thread_number(), first = block * 4;
  if (first >= n) return;
  const words w = philox(s, (uint64_t)block);
  for (int k = 0; k < 4 && first + k < n; k++) {
    const double chance = p ? (double)get(p + first + k) : one_p;
    if (!(chance >= 0 && chance <= 1)) report(kernel_error, KERNEL_ERROR_DOMAIN, 0, 0);
    convert_to(y + first + k, (uint8_t)((double)w.at[k] * 0x1p-32 < chance));
  }
}

template <class T, class P>
static int draw_chances(stream s, const P *p, double one_p, moth_tensor *y) {
  const int64_t n = y->l.numel;
  const moth_queue *q = moth_queue_of(y->ctx, y->l.device);
  if (n == 0 || !q) return q ? MOTH_OK : moth_status(y->ctx);
  return launch_on(y->ctx, q, draw_bools<P, T>, blocks_for(n, 4), BLOCK, 0, s, n, p, one_p,
                   q->kernel_error, data<T>(y));
}

MOTH_CUDA(bernoulli_) {
  return fill_target(out[0], [&](moth_tensor *y) {
    stream s;
    const float *none = NULL;
    int status = stream_open(a->ctx, a->generator, y->l.numel, 1, &s);
    return status ? status : with_any(y->l.dtype, [&](auto type) {
      return draw_chances<typename decltype(type)::of>(s, none, a->p, y);
    });
  });
}

MOTH_CUDA(bernoulli) {
  stream s;
  moth_tensor *p = moth_packed(a->input);
  int status = p ? stream_open(a->ctx, a->generator, p->l.numel, 1, &s) : moth_status(a->ctx);
  if (!status)
    status = with_float(p->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      return draw_chances<T>(s, data<T>(p), 0, out[0]);
    });
  moth_tensor_release(p);
  return status;
}

/* -- gamma, Poisson, binomial: a thread's rejection sampling repeats until it accepts -- */

template <class T>
static __global__ void draw_by_trial(int which, stream s, int64_t n, const double *p,
                                     const double *q, double least, moth_kernel_error *kernel_error,
                                     T *y) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const double v = moth_draw_by_trial(which, s.seed, s.block + (uint64_t)i, p[i], q ? q[i] : 0,
                                      least);
  if (v != v) report(kernel_error, KERNEL_ERROR_DOMAIN, 0, 0);
  convert_to(y + i, v);
}

static moth_tensor *as_doubles(const moth_tensor *x) {
  moth_tensor *packed = moth_packed(x), *y = packed ? moth_cast(packed, MOTH_F64) : NULL;
  moth_tensor_release(packed);
  return y;
}

static int draw_trials(int which, moth_tensor *a, moth_tensor *b, moth_tensor *generator,
                       moth_tensor *y) {
  const int64_t n = y->l.numel;
  const int dtype = y->l.dtype;
  const moth_queue *queue = moth_queue_of(y->ctx, y->l.device);
  stream s;
  int status = stream_open(y->ctx, generator, n, 4, &s);
  moth_tensor *p = as_doubles(a), *q = b ? as_doubles(b) : NULL;
  if (!status && (!p || !queue || (b && !q))) status = moth_status(y->ctx);
  const double least = dtype == MOTH_F64 ? DBL_MIN : dtype == MOTH_F16 ? 0x1p-14 : (double)FLT_MIN;
  if (!status && n > 0)
    status = with_float(dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      return launch_on(y->ctx, queue, draw_by_trial<T>, blocks_for(n), BLOCK, 0, which, s, n,
                       data<double>(p), q ? data<double>(q) : NULL, least, queue->kernel_error,
                       data<T>(y));
    });
  moth_tensor_release(p);
  moth_tensor_release(q);
  return status;
}

MOTH_CUDA(standard_gamma) {
  return draw_trials(MOTH_DRAW_GAMMA, a->input, NULL, a->generator, out[0]);
}
MOTH_CUDA(poisson) {
  return draw_trials(MOTH_DRAW_POISSON, a->input, NULL, a->generator, out[0]);
}
MOTH_CUDA(binomial_of) {
  return draw_trials(MOTH_DRAW_BINOMIAL, a->count, a->prob, a->generator, out[0]);
}

/* -- multinomial: a row of weights, f64 and packed, for each row of results -- */

/* Reports invalid weights, and rows with fewer nonzero weights than samples. */
static __global__ void check_weights(int64_t n, int64_t wanted, const double *w,
                                     moth_kernel_error *kernel_error) {
  int64_t some = 0;
  w += blockIdx.x * n;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
    if (!(w[i] >= 0) || w[i] - w[i] != 0) report(kernel_error, KERNEL_ERROR_DOMAIN, 0, 0);
    some += w[i] > 0;
  }
  some = join_block(adds<int64_t>(), some);
  if (threadIdx.x == 0 && some < wanted) report(kernel_error, KERNEL_ERROR_DOMAIN, 0, 0);
}

/* Replaces weights by their running sums. One thread adds, in the order of the CPU. */
static __global__ void add_up(int64_t n, double *w) {
  __shared__ double tile[BLOCK];
  double sum = 0;
  w += blockIdx.x * n;
  for (int64_t first = 0; first < n; first += BLOCK) {
    const int64_t i = first + threadIdx.x;
    tile[threadIdx.x] = i < n ? w[i] : 0;
    __syncthreads();
    for (int k = 0; threadIdx.x == 0 && k < BLOCK; k++) tile[k] = sum = tile[k] + sum;
    __syncthreads();
    if (i < n) w[i] = tile[threadIdx.x];
    __syncthreads();
  }
}

/* Finds the weight for a fraction of the sum, for each of `count` results, `each` in a row. */
static __global__ void draw_again(stream s, int64_t count, int64_t each, int64_t n,
                                  const double *sums, int64_t *y) {
  const int64_t i = thread_number();
  if (i >= count) return;
  const words w = philox(s, (uint64_t)i / 2);
  const double u = moth_unit_f64(w.at + 2 * (i & 1));
  const double *sum = sums + i / each * n, at = u * sum[n - 1];
  int64_t lo = 0, hi = n - 1;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (sum[mid] > at) hi = mid;
    else lo = mid + 1;
  }
  while (lo > 0 && sum[lo] == sum[lo - 1]) lo--; /* rounding selected a weight of 0 */
  y[i] = lo;
}

/* Replaces random times by arrival times of processes whose rates are the weights: never, for 0. */
static __global__ void arrivals(int64_t n, const double *w, double *times) {
  const int64_t i = thread_number();
  if (i < n) times[i] = w[i] > 0 ? times[i] / w[i] : (double)INFINITY;
}

static int multinomial_run(const multinomial_args *a, int64_t rows, int64_t n, double *w,
                           moth_tensor *y) {
  const int64_t each = a->num_samples;
  const dim3 grid = grid_for(rows);
  const moth_queue *q = moth_queue_of(a->ctx, y->l.device);
  stream s;
  int status = launch_on(a->ctx, q, check_weights, grid, BLOCK, 0, n, a->replacement ? 1 : each, w,
                         q ? q->kernel_error : NULL);
  if (!status && a->replacement) {
    status = stream_open(a->ctx, a->generator, rows * each, 2, &s);
    if (!status) status = launch(a->ctx, y, add_up, grid, BLOCK, 0, n, w);
    return status ? status
                  : launch(a->ctx, y, draw_again, blocks_for(rows * each), BLOCK, 0, s, rows * each,
                           each, n, w, data<int64_t>(y));
  }
  moth_tensor *times = device_scratch(y, rows * n * (int64_t)sizeof(double));
  if (!status && !times) status = moth_status(a->ctx);
  if (!status) status = stream_open(a->ctx, a->generator, rows * n, 2, &s);
  if (!status)
    status = launch(a->ctx, y, fill_from<exponentials, double>, blocks_for(rows * n, 2), BLOCK, 0,
                    exponentials{1, false}, s, rows * n, data<double>(times));
  if (!status)
    status = launch(a->ctx, y, arrivals, blocks_for(rows * n), BLOCK, 0, rows * n, w,
                    data<double>(times));
  if (!status) { /* the positions that arrive first */
    const sort_plan<double> p = {data<double>(times), NULL, data<int64_t>(y), rows, n, 1, each,
                                  ALL_OF_THEM, 0};
    status = sort_rows(a->ctx, y, p);
  }
  moth_tensor_release(times);
  return status;
}

MOTH_CUDA(multinomial) {
  const moth_layout *l = &a->input->l;
  const int64_t n = l->shape[l->ndim - 1], rows = l->ndim == 2 ? l->shape[0] : 1;
  if (rows == 0) return MOTH_OK;
  moth_tensor *w = moth_cast(a->input, MOTH_F64);
  int status = w ? multinomial_run(a, rows, n, data<double>(w), out[0]) : moth_status(a->ctx);
  moth_tensor_release(w);
  return status;
}
