/* fft.cu -- Fourier transforms along a dimension, as in core/op/fft.c.
**
** A block transforms a signal in shared memory, by passes that reorder as they compute (Stockham
** 1966). Longer signals go through global memory, with a launch for each pass. Lengths with a large
** prime factor become convolutions (Bluestein 1970). Roots of unity and the convolution filters are
** computed in f64; a stream caches the ones it used last. */
#include "../../core/op/fft.h"

#include <stdlib.h>

#include "host/device.cuh"
#include "lib/reduce.cuh"

enum { FFT_COMPLEX, FFT_TO_HALF, FFT_FROM_HALF, FFT_PRIME = 31, FFT_PASSES = 64 };

template <class R> struct pair_of {
  R re, im;
};
template <class R> HD pair_of<R> times(pair_of<R> a, pair_of<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class R> HD pair_of<R> flipped(pair_of<R> a) { return {a.im, a.re}; }

/* e^(-2 pi i k / n), 0 <= k < n; the angle is first reduced to at most pi / 4. */
template <class R> HD pair_of<R> root_of(int64_t k, int64_t n) {
  const int64_t quarter = (8 * k / n + 1) / 2;
  const double angle = 1.57079632679489661923 * (double)(4 * k - quarter * n) / (double)n;
  const double c = cos(angle), s = sin(angle);
  if (quarter == 1) return {(R)-s, (R)-c};
  if (quarter == 2) return {(R)-c, (R)s};
  return quarter == 3 ? pair_of<R>{(R)s, (R)c} : pair_of<R>{(R)c, (R)-s};
}

/* Signals of n elements, `inner` apart. `count` complex numbers are transformed: n, or n / 2 pairs
** of real ones. root: e^(-2 pi i k / n). */
template <class R> struct fft_problem {
  int kind, passes, radix[FFT_PASSES];
  int64_t n, count, signals, inner;
  bool inverse, twice, halved;
  R scale;
  const R *x;
  R *y;
  const pair_of<R> *root;

  /* The offset of element k of a signal of length `of`, with `wide` values for each element. */
  MEMBER int64_t place(int64_t signal, int64_t k, int64_t of, int wide) const {
    return ((signal / inner * of + k) * inner + signal % inner) * wide;
  }
  MEMBER pair_of<R> coefficient(int64_t signal, int64_t k) const {
    const R *at = x + place(signal, k, n / 2 + 1, 2);
    return {at[0], inverse ? at[1] : -at[1]};
  }

  /* Element k of the input; for the inverse, real and imaginary part are swapped. */
  MEMBER pair_of<R> fetch(int64_t signal, int64_t k) const {
    if (kind == FFT_COMPLEX) {
      const R *at = x + place(signal, k, n, 2);
      const pair_of<R> z = {at[0], at[1]};
      return inverse ? flipped(z) : z;
    }
    if (kind == FFT_TO_HALF)
      return {x[place(signal, halved ? 2 * k : k, n, 1)],
              halved ? x[place(signal, 2 * k + 1, n, 1)] : (R)0};
    const R by = k && !twice ? (R)0.5 : (R)1;
    if (!halved) {
      const bool mirror = 2 * k > n;
      pair_of<R> z = coefficient(signal, mirror ? n - k : k);
      return {k == 0 ? (R)0 : (mirror ? -z.im : z.im) * by, z.re * by};
    }
    pair_of<R> a = coefficient(signal, k), b = coefficient(signal, count - k), w = root[k];
    if (k == 0) a.im = b.im = 0;
    const R dr = a.re - b.re, di = a.im + b.im;
    return {(a.im - b.im + w.re * dr + w.im * di) * by,
            (a.re + b.re + w.im * dr - w.re * di) * by};
  }

  /* Writes result k, from a signal's transform. */
  MEMBER void deliver(int64_t signal, int64_t k, const pair_of<R> *z) const {
    if (kind == FFT_COMPLEX) {
      R *at = y + place(signal, k, n, 2);
      const pair_of<R> v = inverse ? flipped(z[k]) : z[k];
      at[0] = v.re * scale;
      at[1] = v.im * scale;
      return;
    }
    if (kind == FFT_FROM_HALF) {
      y[place(signal, halved ? 2 * k : k, n, 1)] = z[k].im * scale;
      if (halved) y[place(signal, 2 * k + 1, n, 1)] = z[k].re * scale;
      return;
    }
    const bool end = k == 0 || 2 * k == n;
    pair_of<R> v = z[k < count ? k : 0];
    if (halved) {
      const pair_of<R> b = z[k ? count - k : 0], w = k < count ? root[k] : pair_of<R>{-1, 0};
      const R dr = v.re - b.re, di = v.im + b.im;
      v = {(R)0.5 * (v.re + b.re + w.re * di + w.im * dr),
           (R)0.5 * (v.im - b.im + w.im * di - w.re * dr)};
    }
    const R by = twice && !end ? 2 * scale : scale;
    R *at = y + place(signal, k, n / 2 + 1, 2);
    at[0] = v.re * by;
    at[1] = end ? (R)0 : (inverse ? -v.im : v.im) * by;
  }
  MEMBER int64_t results() const { return kind == FFT_TO_HALF ? n / 2 + 1 : count; }
};

/* -- passes -- */

/* Transforms r numbers: the sums of their products with e^(-2 pi i j k / r); `step` is the distance
** between these roots in the table. */
template <int RADIX, class R>
static __device__ inline void transform_few(pair_of<R> *v, int radix, const pair_of<R> *root,
                                            int64_t step) {
  const int r = RADIX ? RADIX : radix;
  if (RADIX == 2 || RADIX == 4) {
    for (int k = 0; k < r / 2; k++) {
      const pair_of<R> a = v[k], b = v[k + r / 2];
      v[k] = {a.re + b.re, a.im + b.im};
      v[k + r / 2] = {a.re - b.re, a.im - b.im};
    }
    if (RADIX == 2) return;
    const pair_of<R> a = v[0], b = v[1], c = v[2], d = v[3];
    v[0] = {a.re + b.re, a.im + b.im};
    v[2] = {a.re - b.re, a.im - b.im};
    v[1] = {c.re + d.im, c.im - d.re};
    v[3] = {c.re - d.im, c.im + d.re};
    return;
  }
  pair_of<R> y[RADIX ? RADIX : FFT_PRIME];
  y[0] = v[0];
  for (int j = 1; j < r; j++) y[0] = {y[0].re + v[j].re, y[0].im + v[j].im};
  for (int k = 1; 2 * k < r; k++) {
    pair_of<R> a = v[0], b = {0, 0};
    for (int j = 1, at = k; 2 * j < r; j++, at += at + k < r ? k : k - r) {
      const pair_of<R> w = root[at * step];
      a.re += w.re * (v[j].re + v[r - j].re);
      a.im += w.re * (v[j].im + v[r - j].im);
      b.re += w.im * (v[j].re - v[r - j].re);
      b.im += w.im * (v[j].im - v[r - j].im);
    }
    y[k] = {a.re - b.im, a.im + b.re};
    y[r - k] = {a.re + b.im, a.im - b.re};
  }
  for (int k = 0; k < r; k++) v[k] = y[k];
}

/* Item i of the m s items of a pass; data go from [radix][m][s] to [m][radix][s]. */
template <int RADIX, class R>
static __device__ inline void pass_item(int64_t i, int radix, int64_t m, int64_t s,
                                        const pair_of<R> *x, pair_of<R> *y,
                                        const pair_of<R> *root, int64_t n) {
  pair_of<R> v[RADIX ? RADIX : FFT_PRIME];
  const int r = RADIX ? RADIX : radix;
  const int64_t p = i / s, q = i % s, step = n / (r * m);
  for (int k = 0; k < r; k++) v[k] = x[q + s * (p + m * k)];
  transform_few<RADIX>(v, r, root, n / r);
  for (int k = 0; k < r; k++) y[q + s * (r * p + k)] = times(v[k], root[p * k * step]);
}

template <class R>
static __device__ inline void pass_any(int64_t i, int radix, int64_t m, int64_t s,
                                       const pair_of<R> *x, pair_of<R> *y, const pair_of<R> *root,
                                       int64_t n) {
  if (radix == 4) pass_item<4>(i, radix, m, s, x, y, root, n);
  else if (radix == 2) pass_item<2>(i, radix, m, s, x, y, root, n);
  else if (radix == 3) pass_item<3>(i, radix, m, s, x, y, root, n);
  else if (radix == 5) pass_item<5>(i, radix, m, s, x, y, root, n);
  else pass_item<0>(i, radix, m, s, x, y, root, n);
}

/* -- kernels -- */

template <class R> static __global__ void find_roots(int64_t n, pair_of<R> *root) {
  const int64_t k = thread_number();
  if (k < n) root[k] = root_of<R>(k, n);
}

/* Each block transforms a signal. */
template <class R> static __global__ void transform_signal(fft_problem<R> p) {
  pair_of<R> *x = shared_memory<pair_of<R>>(), *y = x + p.count;
  const int64_t signal = blockIdx.x;
  for (int64_t k = threadIdx.x; k < p.count; k += blockDim.x) x[k] = p.fetch(signal, k);
  int64_t m = p.count, s = 1;
  for (int at = 0; at < p.passes; at++) {
    const int r = p.radix[at];
    m /= r;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < m * s; i += blockDim.x)
      pass_any(i, r, m, s, x, y, p.root, p.n);
    s *= r;
    pair_of<R> *held = x;
    x = y;
    y = held;
  }
  __syncthreads();
  for (int64_t k = threadIdx.x; k < p.results(); k += blockDim.x) p.deliver(signal, k, x);
}

/* The same, split into kernels; z has `count` numbers for each signal. */
template <class R> static __global__ void fetch_all(fft_problem<R> p, pair_of<R> *z) {
  const int64_t i = thread_number();
  if (i < p.signals * p.count) z[i] = p.fetch(i / p.count, i % p.count);
}
template <class R>
static __global__ void pass_all(fft_problem<R> p, int radix, int64_t m, int64_t s,
                                const pair_of<R> *x, pair_of<R> *y) {
  const int64_t i = thread_number(), signal = i / (m * s) * p.count;
  if (i < p.signals * m * s)
    pass_any(i % (m * s), radix, m, s, x + signal, y + signal, p.root, p.n);
}
template <class R> static __global__ void deliver_all(fft_problem<R> p, const pair_of<R> *z) {
  const int64_t i = thread_number(), signal = i / p.results();
  if (i < p.signals * p.results()) p.deliver(signal, i % p.results(), z + signal * p.count);
}

/* e^(-pi i k k / n). */
template <class R> static __device__ inline pair_of<R> chirp_of(int64_t k, int64_t n) {
  return root_of<R>(k * k % (2 * n), 2 * n);
}
/* z has `wide` numbers for each signal: the chirped signal and zeros. Also builds the filter, from
** conjugated chirps. */
template <class R>
static __global__ void chirp_all(fft_problem<R> p, int64_t wide, pair_of<R> *z) {
  const int64_t i = thread_number(), k = i % wide;
  if (i >= p.signals * wide) return;
  z[i] = k < p.count ? times(p.fetch(i / wide, k), chirp_of<R>(k, p.count)) : pair_of<R>{0, 0};
}
template <class R>
static __global__ void lay_filter(int64_t n, int64_t wide, pair_of<R> *filter) {
  const int64_t i = thread_number(), k = 2 * i < wide ? i : wide - i;
  if (i >= wide) return;
  const pair_of<R> c = k < n ? chirp_of<R>(k, n) : pair_of<R>{0, 0};
  filter[i] = {c.re, -c.im};
}
template <class R>
static __global__ void filter_all(int64_t all, int64_t wide, const pair_of<R> *filter,
                                  pair_of<R> *z) {
  const int64_t i = thread_number();
  if (i < all) z[i] = times(z[i], filter[i % wide]);
}
template <class R>
static __global__ void unchirp_all(fft_problem<R> p, int64_t wide, const pair_of<R> *z,
                                   pair_of<R> *to) {
  const int64_t i = thread_number(), k = i % p.count;
  if (i < p.signals * p.count) to[i] = times(z[i / p.count * wide + k], chirp_of<R>(k, p.count));
}

/* -- launching -- */

template <class R> static bool factor(fft_problem<R> *p) {
  static const int radix[] = {4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31};
  int64_t n = p->count;
  p->passes = 0;
  for (int r : radix)
    while (n % r == 0) {
      p->radix[p->passes++] = r;
      n /= r;
    }
  return n == 1;
}

/* -- tables: data that depend only on a length -- */

enum { OF_ROOTS, OF_FILTER, MOST_TABLES = 16 };
static const int64_t MOST_BYTES = 4 << 20; /* size limit of a cached table */

typedef struct fft_table {
  int what, size; /* bytes of one number */
  int64_t n;
  moth_block *block; /* NULL: empty entry */
  uint64_t used;
} fft_table;

typedef struct fft_tables {
  fft_table of[MOST_TABLES];
  uint64_t turn;
} fft_tables;

static void close_tables(void *state) {
  fft_tables *all = (fft_tables *)state;
  for (fft_table &t : all->of)
    if (t.block) moth_block_give(t.block);
  free(all);
}

/* NULL: no cache; in a graph, each launch must compute its own tables. */
static fft_tables *tables_of(const moth_tensor *like, int64_t nbytes) {
  const moth_queue *q = moth_queue_of(like->ctx, like->l.device);
  const moth_device_context *p = q ? moth_device_context_peek(like->ctx, like->l.device) : NULL;
  if (!p || moth_stream_now(p)->graphs.now || nbytes > MOST_BYTES) return NULL;
  moth_library_state *kept = moth_library_state_of(q, FFT_TABLES);
  if (!kept->state) kept->state = calloc(1, sizeof(fft_tables));
  kept->close = close_tables;
  return (fft_tables *)kept->state;
}

/* The table of `count` numbers for signals of length n; a new table is filled by fill(at). *scratch
** := its block, if the table is not cached. NULL: error set. */
template <class R, class F>
static pair_of<R> *table_for(const moth_tensor *like, int what, int64_t n, int64_t count,
                             moth_tensor **scratch, F fill) {
  const int64_t nbytes = count * (int64_t)sizeof(pair_of<R>);
  fft_tables *all = tables_of(like, nbytes);
  for (fft_table *t = all ? all->of : NULL; all && t < all->of + MOST_TABLES; t++)
    if (t->block && t->n == n && t->what == what && t->size == (int)sizeof(R)) {
      t->used = ++all->turn;
      return (pair_of<R> *)moth_block_address(t->block);
    }
  moth_device_context *p = moth_device_context_peek(like->ctx, like->l.device);
  moth_block *block = all && p ? moth_blocks_take(moth_stream_now(p), nbytes) : NULL;
  if (!block && !(*scratch = device_scratch(like, nbytes))) return NULL;
  pair_of<R> *at = (pair_of<R> *)(block ? moth_block_address(block) : moth_address(*scratch));
  if (fill(at)) {
    if (block) moth_block_give(block);
    return NULL;
  }
  if (!block) return at;
  fft_table *to = all->of; /* replace the least recently used entry */
  for (fft_table &t : all->of)
    if (t.used < to->used) to = &t;
  if (to->block) moth_block_give(to->block);
  *to = fft_table{what, (int)sizeof(R), n, block, ++all->turn};
  return at;
}

template <class R>
static pair_of<R> *roots_for(const moth_tensor *like, int64_t n, moth_tensor **scratch) {
  return table_for<R>(like, OF_ROOTS, n, n, scratch, [&](pair_of<R> *at) {
    return launch(like->ctx, like, find_roots<R>, blocks_for(n), BLOCK, 0, n, at);
  });
}

template <class R> static pair_of<R> *pairs_in(moth_tensor *scratch) {
  return scratch ? (pair_of<R> *)(void *)moth_address(scratch) : NULL;
}

template <class R> static int run_smooth(const moth_tensor *like, fft_problem<R> p) {
  moth_ctx *ctx = like->ctx;
  const moth_queue *q = moth_queue_of(ctx, like->l.device);
  const int64_t each = 2 * p.count * (int64_t)sizeof(pair_of<R>), all = p.signals * p.count;
  const bool shared = q && each <= (int64_t)q->shared;
  moth_tensor *kept = NULL;
  p.root = q ? roots_for<R>(like, p.n, &kept) : NULL;
  moth_tensor *scratch = p.root && !shared ? device_scratch(like, p.signals * each) : NULL;
  int status = p.root && (shared || scratch) ? MOTH_OK : moth_status(ctx);
  pair_of<R> *x = pairs_in<R>(scratch), *y = x + all;
  const int64_t threads = (p.count / 4 + WARP - 1) / WARP * WARP;
  if (!status && shared)
    status = launch(ctx, like, transform_signal<R>, grid_for(p.signals),
                    (unsigned)(threads < WARP ? WARP : threads > BLOCK ? BLOCK : threads),
                    (size_t)each, p);
  else if (!status) {
    status = launch(ctx, like, fetch_all<R>, blocks_for(all), BLOCK, 0, p, x);
    int64_t m = p.count, s = 1;
    for (int at = 0; at < p.passes && !status; at++) {
      const int r = p.radix[at];
      m /= r;
      status = launch(ctx, like, pass_all<R>, blocks_for(p.signals * m * s), BLOCK, 0, p, r, m, s,
                      x, y);
      s *= r;
      pair_of<R> *held = x;
      x = y;
      y = held;
    }
    if (!status)
      status = launch(ctx, like, deliver_all<R>, blocks_for(p.signals * p.results()), BLOCK, 0, p,
                      x);
  }
  moth_tensor_release(kept);
  moth_tensor_release(scratch);
  return status;
}

/* Transforms packed pairs in place. */
template <class R>
static int run_wide(const moth_tensor *like, pair_of<R> *z, int64_t n, int64_t signals,
                    bool inverse) {
  fft_problem<R> p = {};
  p.n = p.count = n;
  p.signals = signals;
  p.inner = 1;
  p.inverse = inverse;
  p.scale = inverse ? 1 / (R)n : 1;
  p.x = (const R *)z;
  p.y = (R *)z;
  factor(&p);
  return run_smooth(like, p);
}

/* The transform of the filter that chirps of n numbers are convolved with. */
template <class R>
static pair_of<R> *filter_for(const moth_tensor *like, int64_t n, int64_t wide,
                              moth_tensor **scratch) {
  return table_for<R>(like, OF_FILTER, n, wide, scratch, [&](pair_of<R> *at) {
    int status =
      launch(like->ctx, like, lay_filter<R>, blocks_for(wide), BLOCK, 0, n, wide, at);
    return status ? status : run_wide(like, at, wide, 1, false);
  });
}

template <class R> static int run_chirp(const moth_tensor *like, fft_problem<R> p) {
  moth_ctx *ctx = like->ctx;
  int64_t wide = 64;
  while (wide < 2 * p.count - 1) wide *= 2;
  const int64_t all = p.signals * wide, part = p.signals * p.count;
  moth_tensor *scratches[2] = {NULL, NULL};
  moth_tensor *scratch = device_scratch(like, (all + part) * (int64_t)sizeof(pair_of<R>));
  pair_of<R> *z = pairs_in<R>(scratch), *to = z + all;
  p.root = scratch ? roots_for<R>(like, p.n, &scratches[0]) : NULL;
  const pair_of<R> *filter = p.root ? filter_for<R>(like, p.count, wide, &scratches[1]) : NULL;
  int status = filter ? MOTH_OK : moth_status(ctx);
  if (!status) status = launch(ctx, like, chirp_all<R>, blocks_for(all), BLOCK, 0, p, wide, z);
  if (!status) status = run_wide(like, z, wide, p.signals, false);
  if (!status)
    status = launch(ctx, like, filter_all<R>, blocks_for(all), BLOCK, 0, all, wide, filter, z);
  if (!status) status = run_wide(like, z, wide, p.signals, true);
  if (!status)
    status = launch(ctx, like, unchirp_all<R>, blocks_for(part), BLOCK, 0, p, wide, z, to);
  if (!status)
    status = launch(ctx, like, deliver_all<R>, blocks_for(p.signals * p.results()), BLOCK, 0, p,
                    to);
  for (moth_tensor *held : scratches) moth_tensor_release(held);
  moth_tensor_release(scratch);
  return status;
}

struct fft_call {
  int kind;
  int64_t n, dim;
  bool inverse, twice;
  double scale;
};

template <class R>
static int run_packed(const fft_call &c, const moth_tensor *x, moth_tensor *y, int64_t signals,
                      int64_t inner) {
  fft_problem<R> p = {};
  p.kind = c.kind;
  p.n = c.n;
  p.halved = c.kind != FFT_COMPLEX && c.n % 2 == 0;
  p.count = p.halved ? c.n / 2 : c.n;
  p.signals = signals;
  p.inner = inner;
  p.inverse = c.inverse;
  p.twice = c.twice;
  p.scale = (R)c.scale;
  p.x = data<R>(x);
  p.y = data<R>(y);
  return factor(&p) ? run_smooth(y, p) : run_chirp(y, p);
}

static int fft_into(fft_call c, const moth_tensor *input, moth_tensor *out) {
  const int pairs = c.kind != FFT_TO_HALF, n = input->l.ndim - pairs;
  const int dim = (int)(c.dim < 0 ? c.dim + n : c.dim), real = moth_compute_dtype(out->l.dtype);
  int64_t signals = 1, inner = 1;
  for (int d = 0; d < n; d++) {
    if (d != dim) signals *= input->l.shape[d];
    if (d > dim) inner *= input->l.shape[d];
  }
  if (c.kind != FFT_FROM_HALF) c.n = input->l.shape[dim];
  if (signals == 0) return MOTH_OK;
  moth_layout l = out->l;
  l.dtype = (uint8_t)real;
  moth_tensor *x = input->l.dtype == real ? moth_packed(input) : moth_cast(input, real), *y = out;
  if (x && out->l.dtype != real) y = moth_tensor_new(out->ctx, &l);
  int status = x && y ? MOTH_OK : moth_status(out->ctx);
  if (!status)
    status = real == MOTH_F64 ? run_packed<double>(c, x, y, signals, inner)
                              : run_packed<float>(c, x, y, signals, inner);
  if (!status && y != out) status = moth_copy_into(out, y);
  if (y != out) moth_tensor_release(y);
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(fft_c2c) {
  return fft_into({FFT_COMPLEX, 0, a->dim, a->inverse != 0, false, a->scale}, a->input, out[0]);
}
MOTH_CUDA(fft_r2c) {
  return fft_into({FFT_TO_HALF, 0, a->dim, a->inverse != 0, a->twice != 0, a->scale}, a->input,
                  out[0]);
}
MOTH_CUDA(fft_c2r) {
  return fft_into({FFT_FROM_HALF, a->n, a->dim, a->inverse != 0, a->twice != 0, a->scale},
                  a->input, out[0]);
}

template <class T>
static __global__ void check_covered(int64_t n, const T *x, T *y, moth_kernel_error *kernel_error) {
  const int64_t i = thread_number();
  if (i >= n) return;
  const real_of<T> v = get(x + i);
  if (!(v > (real_of<T>)1e-11 || v < (real_of<T>)-1e-11))
    report(kernel_error, KERNEL_ERROR_DOMAIN, 0, 0);
  put(y + i, v);
}

MOTH_CUDA(fft_covered) {
  const int64_t n = out[0]->l.numel;
  const moth_queue *q = n ? moth_queue_of(a->ctx, out[0]->l.device) : NULL;
  moth_tensor *x = q ? moth_packed(a->input) : NULL;
  if (!x) return n ? moth_status(a->ctx) : MOTH_OK;
  int status = with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch_on(a->ctx, q, check_covered<T>, blocks_for(n), BLOCK, 0, n, data<T>(x),
                     data<T>(out[0]), q->kernel_error);
  });
  moth_tensor_release(x);
  return status;
}
