/* random.cu -- tensors of random numbers: the same bits as on the CPU, for the same generator. The
** words are Philox's, and the formulas of core/kernel/normal.c are followed term by term; this file
** is compiled without contraction (plugin.cmake), and division and sqrt round as IEEE 754 says.
**
** A thread makes what one block of four words gives: four values of an f32, two of an f64 or of an
** integer.
*/
#include "../core/op/random.h"

#include "philox.cuh"
#include "reduce.cuh"

/* -- from words to numbers -- */

HD uint64_t pair(const uint32_t *w) { return (uint64_t)w[1] << 32 | w[0]; }

HD float log_series(float f) {
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  return p;
}

HD float minus_2_log(float x) {
  const uint32_t shifted = bits_of(x) - 0x3f3504f3u; /* exponent counts from sqrt(1/2) */
  const float e = (float)((int32_t)shifted >> 23);
  const float f = float_of((shifted & 0x7fffffu) + 0x3f3504f3u) - 1.0f, z = f * f;
  const float y = f * z * log_series(f) + e * -2.12194440e-4f - 0.5f * z;
  return -2.0f * (f + y + e * 0.693359375f);
}

HD double minus_2_log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  const uint64_t shifted = bits - 0x3fe6a09e667f3bcdu;
  const double e = (double)(int32_t)((int64_t)shifted >> 52);
  bits = (shifted & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu;
  memcpy(&x, &bits, 8);
  const double s = (x - 1.0) / (x + 1.0), z = s * s;
  double p = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) p = p * z + 1.0 / k;
  const double log = 2.0 * (s + s * z * p);
  return -2.0 * (log + e * 1.90821492927058770002e-10 + e * 6.93147180369123816490e-1);
}

HD void two_normals(const uint32_t *w, float *out) {
  const float high = (float)(int32_t)(w[0] >> 16), low = (float)(int32_t)(w[0] & 0xffffu);
  const float u = high * 0x1p-16f + (low * 0x1p-32f + 0x1p-33f);
  const uint32_t angle = w[1], quadrant = angle >> 30;
  const float a = (float)((int32_t)(angle & 0x3fffffffu) - 0x20000000) * 1.4629180792671596e-9f;
  const float z = a * a;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
  const float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z +
                   4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  float r = sqrtf(minus_2_log(u));
  if (quadrant & 2) r = -r;
  out[0] = r * (quadrant & 1 ? s : c);
  out[1] = r * (quadrant & 1 ? c : s);
}

HD void sine_and_cosine(double a, double *sin_a, double *cos_a) {
  double z = a * a, s = 1.0 / 355687428096000.0, c = -1.0 / 6402373705728000.0;
  s = s * z - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  c = c * z + 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 1.0 / 2.0;
  *sin_a = s * z * a + a;
  *cos_a = c * z + 1.0;
}

HD void two_normals(const uint32_t *w, double *out) {
  const double u = ((double)(int64_t)(pair(w) >> 11) + 0.5) * 0x1p-53;
  const uint64_t angle = pair(w + 2), quadrant = angle >> 62;
  const int64_t fraction = (int64_t)(angle << 2 >> 11) - ((int64_t)1 << 52);
  double s, c, r = sqrt(minus_2_log(u));
  sine_and_cosine((double)fraction * 0x1p-52 * 0.78539816339744830962, &s, &c);
  if (quadrant & 2) r = -r;
  out[0] = r * (quadrant & 1 ? s : c);
  out[1] = r * (quadrant & 1 ? c : s);
}

/* A whole number below `range`, or for 0 below 2^64; as moth_random_below. */
HD uint64_t below(uint64_t range, const uint32_t *w) {
  if (range == 0) return pair(w);
  if (range <= UINT32_MAX) return (w[1] * range + (w[0] * range >> 32)) >> 32;
  const uint64_t low = (uint64_t)w[0] * (uint32_t)range, high = (uint64_t)w[1] * (uint32_t)range;
  const uint64_t low2 = (uint64_t)w[0] * (range >> 32), high2 = (uint64_t)w[1] * (range >> 32);
  const uint64_t mid = (low >> 32) + (uint32_t)high + (uint32_t)low2;
  return high2 + (high >> 32) + (low2 >> 32) + (mid >> 32);
}

/* -- makers: `values` of them from a block of words; `reals`: for floating dtypes alone -- */

struct uniform_f32 {
  typedef float value;
  enum { values = 4, reals = 1 };
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
  enum { values = 4, reals = 1 };
  float mul, add;
  __device__ void make(const words &w, float *v) const {
    two_normals(w.at, v);
    two_normals(w.at + 2, v + 2);
    if (mul != 1 || add != 0)
      for (int k = 0; k < 4; k++) v[k] = add + mul * v[k];
  }
};

struct uniform_f64 {
  typedef double value;
  enum { values = 2, reals = 1 };
  double mul, add;
  __device__ void make(const words &w, double *v) const {
    for (int k = 0; k < 2; k++) {
      v[k] = (double)(int64_t)(pair(w.at + 2 * k) >> 11) * 0x1p-53;
      if (mul != 1 || add != 0) v[k] = add + mul * v[k];
    }
  }
};

struct normal_f64 {
  typedef double value;
  enum { values = 2, reals = 1 };
  double mul, add;
  __device__ void make(const words &w, double *v) const {
    two_normals(w.at, v);
    if (mul != 1 || add != 0)
      for (int k = 0; k < 2; k++) v[k] = add + mul * v[k];
  }
};

struct whole_numbers { /* count 0: all of int64 */
  typedef int64_t value;
  enum { values = 2, reals = 0 };
  int64_t low;
  uint64_t count;
  __device__ void make(const words &w, int64_t *v) const {
    for (int k = 0; k < 2; k++) v[k] = (int64_t)((uint64_t)low + below(count, w.at + 2 * k));
  }
};

struct exponentials {
  typedef double value;
  enum { values = 2, reals = 0 };
  double rate;
  bool trials; /* geometric: how many whole steps it takes */
  __device__ void make(const words &w, double *v) const {
    for (int k = 0; k < 2; k++) {
      const double u = ((double)(int64_t)(pair(w.at + 2 * k) >> 11) + 0.5) * 0x1p-53;
      v[k] = 0.5 * minus_2_log(u) / rate;
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
  lump<T, Maker::values> out;
  for (int k = 0; k < Maker::values; k++) convert_to(&out.at[k], v[k]);
  if (first + Maker::values <= n && (uintptr_t)y % sizeof out == 0) {
    *(lump<T, Maker::values> *)(void *)(y + first) = out;
    return;
  }
  for (int k = 0; k < Maker::values && first + k < n; k++) y[first + k] = out.at[k];
}

/* y, packed, gets n values, for which `counted` are taken from the generator. */
template <class Maker>
static int fill_packed(const Maker &m, moth_tensor *generator, int64_t counted, moth_tensor *y) {
  const int64_t n = y->l.numel;
  stream s;
  int status = stream_open(y->ctx, generator, counted, 4 / Maker::values, &s);
  if (status || n == 0) return status;
  auto fill = [&](auto type) {
    typedef typename decltype(type)::of T;
    return launch(y->ctx, y, fill_from<Maker, T>, blocks_for(n, Maker::values), BLOCK, 0, m, s, n,
                  data<T>(y));
  };
  if constexpr (Maker::reals != 0) return with_float(y->l.dtype, fill);
  else return with_any(y->l.dtype, fill);
}

/* The same for a target with any strides. */
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

/* Normal numbers come in pairs. */
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

/* -- whole numbers -- */

static int fill_whole(moth_tensor *generator, moth_tensor *to, int64_t low, uint64_t count) {
  return fill_target(to, [&](moth_tensor *y) {
    return fill_packed(whole_numbers{low, count}, generator, y->l.numel, y);
  });
}

/* low alone is the bound; shape rules have checked both. */
static int fill_range(moth_tensor *generator, moth_tensor *y, int64_t low, int64_t high) {
  if (high == MOTH_NO_INT) high = low, low = 0;
  return fill_whole(generator, y, low, (uint64_t)high - (uint64_t)low);
}

MOTH_CUDA(randint) { return fill_range(a->generator, out[0], a->low, a->high); }
MOTH_CUDA(randint_like) { return fill_range(a->generator, out[0], a->low, a->high); }

MOTH_CUDA(random_) {
  static const uint8_t bits[MOTH_DTYPES] = {1, 8, 7, 15, 31, 63, 11, 8, 24, 53}; /* as dtypes go */
  const int dtype = out[0]->l.dtype;
  if (a->from == MOTH_NO_INT && a->to == MOTH_NO_INT)
    return fill_whole(a->generator, out[0], 0,
                      ((uint64_t)1 << bits[dtype]) + (dtype >= MOTH_F16));
  if (a->from == MOTH_NO_INT) return fill_range(a->generator, out[0], 0, a->to);
  return fill_range(a->generator, out[0], a->from, a->to);
}

/* -- times, trials -- */

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

/* -- bernoulli: 1 where a word, as a number from 0 up to 1, lies below the chance -- */

template <class P, class T>
static __global__ void draw_truth(stream s, int64_t n, const P *p, double one_p,
                                  moth_trouble *trouble, T *y) {
  const int64_t block = thread_number(), first = block * 4;
  if (first >= n) return;
  const words w = philox(s, (uint64_t)block);
  for (int k = 0; k < 4 && first + k < n; k++) {
    const double chance = p ? (double)get(p + first + k) : one_p;
    if (!(chance >= 0 && chance <= 1)) report(trouble, TROUBLE_DOMAIN, 0, 0);
    convert_to(y + first + k, (uint8_t)((double)w.at[k] * 0x1p-32 < chance));
  }
}

template <class P> static int draw_chances(stream s, const P *p, double one_p, moth_tensor *y) {
  const int64_t n = y->l.numel;
  const moth_queue *q = moth_queue_of(y->ctx, y->l.device);
  if (n == 0 || !q) return q ? MOTH_OK : moth_status(y->ctx);
  return with_any(y->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    return launch_on(y->ctx, q, draw_truth<P, T>, blocks_for(n, 4), BLOCK, 0, s, n, p, one_p,
                     q->trouble, data<T>(y));
  });
}

MOTH_CUDA(bernoulli_) {
  return fill_target(out[0], [&](moth_tensor *y) {
    stream s;
    const float *none = NULL;
    int status = stream_open(a->ctx, a->generator, y->l.numel, 1, &s);
    return status ? status : draw_chances(s, none, a->p, y);
  });
}

MOTH_CUDA(bernoulli) {
  stream s;
  moth_tensor *p = moth_packed(a->input);
  int status = p ? stream_open(a->ctx, a->generator, p->l.numel, 1, &s) : moth_status(a->ctx);
  if (!status)
    status = with_float(p->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of P;
      return draw_chances<P>(s, data<P>(p), 0, out[0]);
    });
  moth_tensor_release(p);
  return status;
}

/* -- multinomial: a row of weights, f64 and packed, for each row of results -- */

/* Tells of weights that are none, and of rows with fewer above 0 than are drawn. */
static __global__ void check_weights(int64_t n, int64_t wanted, const double *w,
                                     moth_trouble *trouble) {
  int64_t some = 0;
  w += blockIdx.x * n;
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
    if (!(w[i] >= 0) || w[i] - w[i] != 0) report(trouble, TROUBLE_DOMAIN, 0, 0);
    some += w[i] > 0;
  }
  some = join_block(adds<int64_t>(), some);
  if (threadIdx.x == 0 && some < wanted) report(trouble, TROUBLE_DOMAIN, 0, 0);
}

/* Weights become running sums. One thread adds, in the order in which the CPU does. */
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

/* Where a share of the sum falls, for each of `count` results, `each` to a row. */
static __global__ void draw_again(stream s, int64_t count, int64_t each, int64_t n,
                                  const double *sums, int64_t *y) {
  const int64_t i = thread_number();
  if (i >= count) return;
  const words w = philox(s, (uint64_t)i / 2);
  const double u = (double)(int64_t)(pair(w.at + 2 * (i & 1)) >> 11) * 0x1p-53;
  const double *sum = sums + i / each * n, at = u * sum[n - 1];
  int64_t lo = 0, hi = n - 1;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (sum[mid] > at) hi = mid;
    else lo = mid + 1;
  }
  while (lo > 0 && sum[lo] == sum[lo - 1]) lo--; /* rounding led to a weight of 0 */
  y[i] = lo;
}

/* When a position comes, if its weight is the rate of a process: never, for 0. */
static __device__ inline double arrival(double time, double weight) {
  return weight > 0 ? time / weight : (double)INFINITY;
}

/* The positions that come first, each put where its rank among all of the row is. */
static __global__ void draw_once(int64_t n, int64_t each, const double *times, const double *w,
                                 int64_t *y) {
  __shared__ double tile[BLOCK];
  const int64_t j = (int64_t)blockIdx.y * BLOCK + threadIdx.x, row = blockIdx.x * n;
  const double own = j < n ? arrival(times[row + j], w[row + j]) : 0;
  int64_t rank = 0;
  for (int64_t first = 0; first < n; first += BLOCK) {
    const int64_t i = first + threadIdx.x;
    if (i < n) tile[threadIdx.x] = arrival(times[row + i], w[row + i]);
    __syncthreads();
    for (int k = 0; k < BLOCK && first + k < n; k++)
      rank += tile[k] < own || (tile[k] == own && first + k < j);
    __syncthreads();
  }
  if (j < n && rank < each) y[blockIdx.x * each + rank] = j;
}

static int multinomial_run(const multinomial_args *a, int64_t rows, int64_t n, double *w,
                           moth_tensor *y) {
  const int64_t each = a->num_samples;
  const dim3 grid((unsigned)rows);
  const moth_queue *q = moth_queue_of(a->ctx, y->l.device);
  stream s;
  int status = launch_on(a->ctx, q, check_weights, grid, BLOCK, 0, n, a->replacement ? 1 : each, w,
                         q ? q->trouble : NULL);
  if (!status && a->replacement) {
    status = stream_open(a->ctx, a->generator, rows * each, 2, &s);
    if (!status) status = launch(a->ctx, y, add_up, grid, BLOCK, 0, n, w);
    return status ? status
                  : launch(a->ctx, y, draw_again, blocks_for(rows * each), BLOCK, 0, s, rows * each,
                           each, n, w, data<int64_t>(y));
  }
  moth_tensor *times = device_room(y, rows * n * (int64_t)sizeof(double));
  if (!status && !times) status = moth_status(a->ctx);
  if (!status) status = stream_open(a->ctx, a->generator, rows * n, 2, &s);
  if (!status)
    status = launch(a->ctx, y, fill_from<exponentials, double>, blocks_for(rows * n, 2), BLOCK, 0,
                    exponentials{1, false}, s, rows * n, data<double>(times));
  if (!status)
    status = launch(a->ctx, y, draw_once, dim3(grid.x, (unsigned)((n + BLOCK - 1) / BLOCK)), BLOCK,
                    0, n, each, data<double>(times), w, data<int64_t>(y));
  moth_tensor_release(times);
  return status;
}

MOTH_CUDA(multinomial) {
  const moth_layout *l = &a->input->l;
  const int64_t n = l->shape[l->ndim - 1], rows = l->ndim == 2 ? l->shape[0] : 1;
  if (rows == 0) return MOTH_OK;
  if (n > (int64_t)65535 * BLOCK)
    return moth_fail(a->ctx, MOTH_E_LIMIT, "input", "%lld weights in a row are too many on a GPU",
                     (long long)n);
  moth_tensor *w = moth_cast(a->input, MOTH_F64);
  int status = w ? multinomial_run(a, rows, n, data<double>(w), out[0]) : moth_status(a->ctx);
  moth_tensor_release(w);
  return status;
}
