/* grid.cu -- grid_sample. A thread computes the taps of a point (elements and weights) and uses
** them for some channels. The formulas are those of core/kernel/grid_taps.h. The gradient of the
** images sums by image element: the taps are first sorted by element, so that sums have a fixed
** order. */
#include "../../core/op/grid.h"

#include "../../core/kernel/grid_taps.h"
#include "lib/sort_keys.cuh"
#include "lib/selection.cuh"
#include "lib/equal_runs.cuh"
#include "lib/strided.cuh"

enum { CHANNELS = 8 }; /* channels of one thread */

template <class T> struct grid_job {
  moth_grid g;
  int64_t samples, channels, points, plane;
  const T *grid; /* (samples, points, sides) */
};

/* The taps of a point, N elements along each of S sides: their offsets from the first element of
** the plane, or -1 outside; their weights and the derivatives of the weights. All counts are
** compile-time constants, so that the taps stay in registers. */
template <class R, int S, int N> struct place {
  int at[S][N];
  R weight[S][N], derivative[S][N];

  /* Calls f(offset, a, b, c) for all elements inside; a is the index along x, b along y, c along z.
  ** 64 taps would not fit in registers: the loop over z is then not unrolled. */
  template <class F> __device__ __forceinline__ void each(F f) const {
#pragma unroll(S * N == 12 ? 1 : N)
    for (int c = 0; c < (S == 3 ? N : 1); c++)
#pragma unroll
      for (int b = 0; b < N; b++)
#pragma unroll
        for (int a = 0; a < N; a++) {
          const int z = S == 3 ? at[S - 1][c] : 0;
          if (at[0][a] >= 0 && at[1][b] >= 0 && z >= 0) f(at[0][a] + at[1][b] + z, a, b, c);
        }
  }
  __device__ __forceinline__ R weigh(int a, int b, int c) const {
    return weight[0][a] * weight[1][b] * (S == 3 ? weight[S - 1][c] : (R)1);
  }
  /* The derivative of the weight along a side. */
  __device__ __forceinline__ R lean(int side, int a, int b, int c) const {
    return (side == 0 ? derivative : weight)[0][a] * (side == 1 ? derivative : weight)[1][b] *
           (S == 3 ? (side == 2 ? derivative : weight)[S - 1][c] : (R)1);
  }
  __device__ __forceinline__ bool inside() const {
    bool all = true;
#pragma unroll
    for (int s = 0; s < S; s++) {
      bool any = false;
#pragma unroll
      for (int k = 0; k < N; k++) any = any || at[s][k] >= 0;
      all = all && any;
    }
    return all;
  }
};

/* The taps of point i, differentiated as j.g.order says; derivatives: differentiated once more. */
template <int S, int N, class T>
static __device__ __forceinline__ place<real_of<T>, S, N> place_of(const grid_job<T> &j, int64_t i,
                                                                   bool derivatives) {
  place<real_of<T>, S, N> of;
  moth_grid g = j.g;
  g.mode = N == 1 ? MOTH_GRID_NEAREST : N == 2 ? MOTH_GRID_LINEAR : MOTH_GRID_CUBIC;
  int64_t stride = 1;
#pragma unroll
  for (int s = 0; s < S; s++) {
    int64_t at[4];
    double w[4];
    const double where = (double)get(j.grid + i * S + s);
    moth_grid_side(&g, s, where, at, w);
#pragma unroll
    for (int k = 0; k < N; k++) {
      of.at[s][k] = at[k] < 0 ? -1 : (int)(at[k] * stride);
      of.weight[s][k] = (real_of<T>)w[k];
    }
    if (derivatives) {
      g.order[s]++;
      moth_grid_side(&g, s, where, at, w);
#pragma unroll
      for (int k = 0; k < N; k++) of.derivative[s][k] = (real_of<T>)w[k];
    }
    stride *= g.size[s];
  }
  return of;
}

/* f(sides, elements along each) */
template <class F> static int with_counts(const moth_grid &g, F f) {
  using std::integral_constant;
  const integral_constant<int, 1> one;
  const integral_constant<int, 2> two;
  const integral_constant<int, 3> three;
  const integral_constant<int, 4> four;
  if (g.sides == 2)
    return g.mode == MOTH_GRID_NEAREST ? f(two, one) : g.mode == MOTH_GRID_LINEAR ? f(two, two)
                                                                                  : f(two, four);
  return g.mode == MOTH_GRID_NEAREST ? f(three, one) : g.mode == MOTH_GRID_LINEAR ? f(three, two)
                                                                                  : f(three, four);
}

template <class T, int S, int N>
static __global__ void sample_places(grid_job<T> j, int64_t parts, const T *x, T *y) {
  typedef real_of<T> R;
  const int64_t i = thread_number();
  if (i >= j.samples * parts * j.points) return;
  const int64_t p = i % j.points, part = i / j.points % parts, n = i / j.points / parts;
  const place<R, S, N> of = place_of<S, N>(j, n * j.points + p, false);
  const int64_t first = part * CHANNELS;
  const int64_t last = first + CHANNELS < j.channels ? first + CHANNELS : j.channels;
  for (int64_t c = n * j.channels + first; c < n * j.channels + last; c++) {
    const T *from = x + c * j.plane;
    R sum = 0;
    of.each([&](int at, int a, int b, int d) { sum += of.weigh(a, b, d) * get(from + at); });
    put(y + c * j.points + p, sum);
  }
}

/* Writes weights and positions (-1 outside); one of them may be NULL. Covers `some` points of each
** sample, from `first` on. */
template <class T, int S, int N>
static __global__ void list_taps(grid_job<T> j, int64_t first, int64_t some, T *weight,
                                 int64_t *position) {
  enum { COUNT = S == 3 ? N * N * N : N * N };
  const int64_t i = thread_number();
  if (i >= j.samples * some) return;
  const place<real_of<T>, S, N> of =
      place_of<S, N>(j, i / some * j.points + first + i % some, false);
  if (weight) weight += i * COUNT;
  if (position) position += i * COUNT;
  for (int k = 0; k < COUNT; k++) {
    if (weight) put(weight + k, (real_of<T>)0);
    if (position) position[k] = -1;
  }
  of.each([&](int at, int a, int b, int c) {
    const int k = (c * N + b) * N + a;
    if (weight) put(weight + k, of.weigh(a, b, c));
    if (position) position[k] = at;
  });
}

/* A block stores the taps of WARP points to shared memory; its warps share the channels. */
template <class T, int S, int N>
static __global__ void transpose_taps(grid_job<T> j, const T *x, const T *dy, T *dgrid) {
  typedef real_of<T> R;
  __shared__ R parts[S][BLOCK];
  const int lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
  const int64_t i = (int64_t)blockIdx.x * WARP + lane;
  const bool one = i < j.samples * j.points;
  R sum[S] = {};
  if (one) {
    const int64_t n = i / j.points, p = i % j.points;
    const place<R, S, N> of = place_of<S, N>(j, i, true);
    const int64_t last = of.inside() ? j.channels : 0;
    for (int64_t c = threadIdx.x / WARP; c < last; c += warps) {
      const T *from = x + (n * j.channels + c) * j.plane;
      const R by = get(dy + (n * j.channels + c) * j.points + p);
      R own[S] = {};
      of.each([&](int at, int a, int b, int d) {
        const R v = get(from + at);
#pragma unroll
        for (int s = 0; s < S; s++) own[s] += of.lean(s, a, b, d) * v;
      });
#pragma unroll
      for (int s = 0; s < S; s++) sum[s] += own[s] * by;
    }
  }
#pragma unroll
  for (int s = 0; s < S; s++) parts[s][threadIdx.x] = sum[s];
  __syncthreads();
  if (!one || threadIdx.x >= WARP) return;
#pragma unroll
  for (int s = 0; s < S; s++) {
    for (int k = 1; k < warps; k++) sum[s] += parts[s][k * WARP + lane];
    put(dgrid + i * S + s, sum[s]);
  }
}

/* -- launching -- */

template <class A> static moth_grid grid_of(const A *a, const int64_t *sides, int n) {
  moth_grid g = {n, (int)a->mode, (int)a->padding_mode, a->align_corners != 0, {0, 0, 0},
                 {1, 1, 1}};
  for (int k = 0; k < n; k++) g.size[k] = sides[n - 1 - k];
  return g;
}

/* The job for images of a layout, sampled at a packed grid. */
template <class T, class A>
static grid_job<T> job_of(const A *a, const moth_layout *x, const moth_tensor *grid) {
  const int sides = x->ndim - 2;
  grid_job<T> j = {grid_of(a, x->shape + 2, sides), x->shape[0], x->shape[1], 1, 1,
                   data<T>(grid)};
  for (int k = 0; k < sides; k++) j.points *= grid->l.shape[1 + k], j.plane *= x->shape[2 + k];
  return j;
}

MOTH_CUDA(grid_sample) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *x = moth_packed(a->input), *grid = moth_packed(a->grid);
  int status = x && grid ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(out[0]->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      const grid_job<T> j = job_of<T>(a, &x->l, grid);
      const int64_t parts = (j.channels + CHANNELS - 1) / CHANNELS;
      return with_counts(j.g, [&](auto sides, auto n) {
        return launch(a->ctx, out[0], sample_places<T, sides(), n()>,
                      blocks_for(j.samples * parts * j.points), BLOCK, 0, j, parts, data<T>(x),
                      data<T>(out[0]));
      });
    });
  moth_tensor_release(x);
  moth_tensor_release(grid);
  return status;
}

template <class T>
static int list_launch(const moth_tensor *near, const grid_job<T> &j, int64_t first, int64_t some,
                       T *weight, int64_t *position) {
  return with_counts(j.g, [&](auto sides, auto n) {
    return launch(near->ctx, near, list_taps<T, sides(), n()>, blocks_for(j.samples * some), BLOCK,
                  0, j, first, some, weight, position);
  });
}

template <class A>
static int list_run(const A *a, const int64_t *order, bool weights, moth_tensor *y) {
  if (y->l.numel == 0) return MOTH_OK;
  moth_tensor *grid = moth_packed(a->grid);
  if (!grid) return moth_status(a->ctx);
  const int status = with_float(grid->l.dtype, [&](auto type) {
    typedef typename decltype(type)::of T;
    grid_job<T> j = {grid_of(a, a->size.at, (int)a->size.n), y->l.shape[0], 0, y->l.shape[1], 0,
                     data<T>(grid)};
    for (int k = 0; k < 3 && order; k++) j.g.order[k] = (int)order[k];
    return list_launch(y, j, 0, j.points, weights ? data<T>(y) : NULL,
                       weights ? NULL : data<int64_t>(y));
  });
  moth_tensor_release(grid);
  return status;
}

MOTH_CUDA(grid_weights) { return list_run(a, a->order, true, out[0]); }
MOTH_CUDA(grid_positions) { return list_run(a, NULL, false, out[0]); }

MOTH_CUDA(grid_sample_turn) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *x = moth_packed(a->input), *grid = moth_packed(a->grid);
  moth_tensor *dy = moth_packed(a->grad);
  const bool constant = a->mode == MOTH_GRID_NEAREST; /* except for jumps */
  int status = x && grid && dy ? MOTH_OK : moth_status(a->ctx);
  if (!status && constant) status = clear(out[0]);
  else if (!status)
    status = with_float(out[0]->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      const grid_job<T> j = job_of<T>(a, &x->l, grid);
      const int64_t blocks = (j.samples * j.points + WARP - 1) / WARP;
      const int64_t warps = j.channels < 1 ? 1 : j.channels < BLOCK / WARP ? j.channels
                                                                           : BLOCK / WARP;
      return with_counts(j.g, [&](auto sides, auto n) {
        if constexpr (n() > 1)
          return launch(a->ctx, out[0], transpose_taps<T, sides(), n()>, grid_for(blocks),
                        dim3((unsigned)(warps * WARP)), 0, j, data<T>(x), data<T>(dy),
                        data<T>(out[0]));
        else return (int)MOTH_OK;
      });
    });
  moth_tensor_release(x);
  moth_tensor_release(grid);
  moth_tensor_release(dy);
  return status;
}

/* -- the gradient of the images -- */

enum { AT_ONCE = 1 << 23 }; /* at most this many taps are sorted at once */

/* `some` points of each sample, from point `first` on; each has `count` taps. */
template <class T> struct scatter_job {
  int64_t samples, channels, points, plane;
  int64_t first, some, count;
  bool more; /* add to the values in dx */
  const uint64_t *key; /* sorted elements, grouped by sample */
  const uint32_t *from;
  const real_of<T> *weight;
  const T *dy;
  real_of<T> *part; /* [sample][channel][piece of the sample's list (equal_runs.cuh)] */
};

/* The sum over a piece of a sample's list, for up to CHANNELS channels. */
template <class T> struct scatter_grad_part {
  typedef real_of<T> R;
  const uint64_t *key;
  const uint32_t *from;
  const R *weight;
  const T *dy;
  R *part, sum[CHANNELS] = {};
  int64_t taps, pieces, points;
  uint32_t count;
  int channels;

  __device__ inline scatter_grad_part(const scatter_job<T> &s, int64_t sample, int64_t c)
      : taps(s.some * s.count), pieces(all_pieces(taps)), points(s.points),
        count((uint32_t)s.count) {
    const int64_t row = sample * s.channels + c;
    key = s.key + sample * taps;
    from = s.from + sample * taps;
    weight = s.weight + sample * taps;
    dy = s.dy + row * points + s.first;
    part = s.part + row * pieces;
    channels = s.channels - c < CHANNELS ? (int)(s.channels - c) : (int)CHANNELS;
  }
  /* f(channel, its sum) */
  template <class F> __device__ __forceinline__ void each(F f) {
#pragma unroll
    for (int k = 0; k < CHANNELS; k++)
      if (k < channels) f(k, sum[k]);
  }
  __device__ __forceinline__ void tap(int64_t at) {
    const uint32_t tap = from[at];
    const R w = weight[tap];
    const T *of = dy + tap / count;
    each([&](int k, R &v) { v += w * get(of + k * points); });
  }
  __device__ __forceinline__ void piece(int64_t i) {
    each([&](int k, R &v) { v += part[k * pieces + i]; });
  }
};

/* Sums pieces of the lists, from `first` on. */
template <class T>
static __global__ void add_pieces(scatter_job<T> s, int64_t parts, int64_t first, int64_t count) {
  typedef real_of<T> R;
  const int64_t i = thread_number(), own = first + i % count, n = i / count / parts;
  if (n >= s.samples) return;
  scatter_grad_part<T> to(s, n, i / count % parts * CHANNELS);
  const uint64_t *key = to.key, end = (uint64_t)s.plane;
  if (through_piece(own, to.taps,
                    [=](int64_t a, int64_t b) { return key[a] == key[b] && key[a] < end; },
                    [&](int64_t k) { to.tap(k); }, [&](int64_t k) { to.piece(k); }))
    to.each([&](int k, R &v) { to.part[k * to.pieces + own] = v; });
}

/* Sums the contributions to one element, in order, for some channels. */
template <class T>
static __global__ void add_runs(scatter_job<T> s, int64_t parts, real_of<T> *dx) {
  typedef real_of<T> R;
  const int64_t i = thread_number(), n = i / s.plane / parts;
  if (n >= s.samples) return;
  const int64_t element = i % s.plane, c = i / s.plane % parts * CHANNELS;
  scatter_grad_part<T> to(s, n, c);
  const uint64_t *key = to.key, own = (uint64_t)element;
  dx += (n * s.channels + c) * s.plane + element;
  if (s.more) to.each([&](int k, R &v) { v = dx[k * s.plane]; });
  through_run(rank_among(to.taps, own, false, [=](int64_t k) { return key[k]; }), to.taps,
              [=](int64_t k) { return key[k] == own; }, [&](int64_t k) { to.tap(k); },
              [&](int64_t k) { to.piece(k); });
  to.each([&](int k, R &v) { dx[k * s.plane] = v; });
}

/* j: for the samples in s; their lists are built in the scratch buffer. */
template <class T>
static int scatter_grad_some(const moth_tensor *near, const grid_job<real_of<T>> &j,
                             scatter_job<T> s, const moth_tensor *scratch, real_of<T> *dx) {
  typedef real_of<T> R;
  const int64_t n = s.some * s.count, all = s.samples * n;
  const int64_t parts = (s.channels + CHANNELS - 1) / CHANNELS;
  uint64_t *key[2] = {data<uint64_t>(scratch), data<uint64_t>(scratch) + all};
  int64_t *starts = (int64_t *)(key[1] + all);
  R *weight = (R *)(starts + radix_counts(s.samples, n) + 1);
  s.part = weight + all;
  uint32_t *next = (uint32_t *)(s.part + s.samples * s.channels * all_pieces(n));
  uint32_t *from[2] = {next, next + all};
  const radix<uint32_t> r = {s.samples, n, key[1], {key[0], key[1]}, {from[0], from[1]}, starts};
  int bits = 0, last = 0;
  while (s.plane >> bits > 0) bits++; /* so that -1 sorts after all elements */
  int status = list_launch(near, j, s.first, s.some, weight, (int64_t *)key[1]);
  if (!status) status = radix_sort(near->ctx, near, r, bits, &last);
  s.key = key[last];
  s.from = from[last];
  s.weight = weight;
  if (!status)
    status = over_pieces(n, [&](int64_t first, int64_t count) {
      return launch(near->ctx, near, add_pieces<T>, blocks_for(s.samples * parts * count), BLOCK, 0,
                    s, parts, first, count);
    });
  return status ? status
                : launch(near->ctx, near, add_runs<T>, blocks_for(s.samples * parts * s.plane),
                         BLOCK, 0, s, parts, dx);
}

/* dx: packed, in the type that T is computed in. */
template <class T>
static int scatter_grad_all(const grid_job<real_of<T>> &j, const moth_tensor *dy, moth_tensor *dx) {
  typedef real_of<T> R;
  const int64_t count = moth_grid_count(&j.g), most = AT_ONCE / count;
  const int64_t some = j.points < most ? j.points : most;
  if (some == 0) {
    const scatter_job<T> none = {j.samples, j.channels, 0, j.plane, 0, 0, count, false, NULL, NULL,
                               NULL, NULL, NULL};
    return launch(dx->ctx, dx, add_runs<T>, blocks_for(dx->l.numel), BLOCK, 0, none,
                  (j.channels + CHANNELS - 1) / CHANNELS, data<R>(dx));
  }
  const int64_t together = most / some < j.samples ? most / some : j.samples;
  const int64_t taps = together * some * count, counts = radix_counts(together, some * count) + 1;
  const int64_t parts = together * j.channels * all_pieces(some * count);
  moth_tensor *scratch = device_scratch(
      dx, taps * (24 + (int64_t)sizeof(R)) + counts * 8 + parts * (int64_t)sizeof(R));
  int status = scratch ? MOTH_OK : moth_status(dx->ctx);
  for (int64_t n = 0; n < j.samples && !status; n += together)
    for (int64_t p = 0; p < j.points && !status; p += some) {
      const int64_t samples = j.samples - n < together ? j.samples - n : together;
      const scatter_job<T> s = {samples, j.channels, j.points, j.plane, p,
                              j.points - p < some ? j.points - p : some, count, p > 0, NULL, NULL,
                              NULL, data<T>(dy) + n * j.channels * j.points, NULL};
      grid_job<R> part = j;
      part.samples = samples;
      part.grid += n * j.points * j.g.sides;
      status = scatter_grad_some(dx, part, s, scratch, data<R>(dx) + n * j.channels * j.plane);
    }
  moth_tensor_release(scratch);
  return status;
}

MOTH_CUDA(grid_sample_back) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_layout l = out[0]->l;
  l.dtype = (uint8_t)moth_compute_dtype(l.dtype);
  moth_tensor *dx = l.dtype == out[0]->l.dtype ? moth_packed(out[0]) : moth_tensor_new(a->ctx, &l);
  moth_tensor *dy = moth_packed(a->grad);
  moth_tensor *grid = a->grid->l.dtype == l.dtype ? moth_packed(a->grid)
                                                  : moth_cast(a->grid, l.dtype);
  int status = dx && dy && grid ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(out[0]->l.dtype, [&](auto type) {
      typedef typename decltype(type)::of T;
      return scatter_grad_all<T>(job_of<real_of<T>>(a, &dx->l, grid), dy, dx);
    });
  if (!status && l.dtype != out[0]->l.dtype) status = moth_copy_into(out[0], dx);
  moth_tensor_release(dx);
  moth_tensor_release(dy);
  moth_tensor_release(grid);
  return status;
}
