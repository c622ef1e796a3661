/* conv.cu -- convolution and its two gradients as matrix products whose im2col matrix is never
** stored ("implicit GEMM", Chetlur et al. 2014). A block computes a tile of the result: rows are
** channels, columns are pixels. The tiles of its factors are gathered from the images into shared
** memory, a few taps at a time. The gradient of the images with a stride is split into classes of
** pixels that use the same taps. Sums over many pixels are split among blocks and joined in order,
** so that results repeat. conv_mma.cu computes the dtypes that tensor cores support. */
#include "../../core/op/conv.h"

#include "conv_tiles.cuh"

enum { THREADS = 256, NOWHERE = INT32_MIN / 2 };

/* -- a product over images: the result, or the gradient of the images -- */

template <class T> struct images_job {
  const T *from, *weight, *bias;
  T *to;
  real_of<T> *parts; /* or NULL: write to `to` directly */
  conv_tiling tiling;
  int64_t images, numel; /* numel: of `to` */
  int rows, depth;    /* channels of a group: written, and summed over */
  conv_side side[2];
  int plane[2], written[2]; /* planes of `from` and of `to` */
  int64_t weight_row, weight_depth; /* strides of the filters */
  bool back; /* CONV_INPUT */
};

struct conv_tap {
  int64_t from, weight; /* offset of the channel in `from`, and of the tap in the filters */
  int y, x;
};

struct conv_pixel {
  int64_t from, to;
  int y, x;
};

static __device__ inline conv_tap tap_at(const conv_axis *a, int64_t plane, int64_t weight_step,
                                         int kernel_wide, int64_t depth, int64_t k) {
  conv_tap t = {0, 0, NOWHERE, NOWHERE};
  if (k >= depth) return t;
  const unsigned wide = (unsigned)a[1].taps, each = wide * (unsigned)a[0].taps;
  const unsigned c = (unsigned)k / each, rest = (unsigned)k - c * each, row = rest / wide;
  const int ty = (int)row, tx = (int)(rest - row * wide);
  t.from = c * plane;
  t.weight = c * weight_step + (a[0].first_tap + ty * a[0].next_tap) * (int64_t)kernel_wide +
             a[1].first_tap + tx * a[1].next_tap;
  t.y = a[0].at_tap + ty * a[0].by_tap;
  t.x = a[1].at_tap + tx * a[1].by_tap;
  return t;
}

HD void split_pixel(int64_t i, const conv_axis *a, int64_t *image, int *y, int *x) {
  if (i < MOTH_SMALL) {
    const unsigned wide = (unsigned)a[1].pixels, row = (unsigned)i / wide;
    const unsigned n = row / (unsigned)a[0].pixels;
    *image = n;
    *y = (int)(row - n * (unsigned)a[0].pixels);
    *x = (int)((unsigned)i - row * wide);
    return;
  }
  const int64_t row = i / a[1].pixels;
  *image = row / a[0].pixels;
  *y = (int)(row % a[0].pixels);
  *x = (int)(i % a[1].pixels);
}

/* -- tiles in shared memory: left[k][row], right[k][column] -- */

template <class R> struct alignas(sizeof(R) * 4) four {
  R at[4];
};

template <class R> static __device__ inline void spread(const R *from, R *to) {
  const four<R> v = *(const four<R> *)(const void *)from;
  for (int i = 0; i < 4; i++) to[i] = v.at[i];
}

template <int M, int N, int K, int TM, int TN> struct tile {
  enum {
    rows = M, columns = N, depth = K, per_row = TM, per_column = TN,
    lefts = M * K / THREADS, rights = N * K / THREADS, /* elements that a thread loads */
    wide_left = M + 4, wide_right = N + 4,
    across = N / TN /* threads along a row of the tile */
  };
};
typedef tile<128, 128, 8, 8, 8> wide_tile;
typedef tile<64, 64, 16, 4, 4> square_tile;
typedef tile<32, 128, 16, 4, 4> flat_tile;

/* Index of a thread's i-th row or column: groups of four, assigned to threads in rotation. */
template <int SIDE, int PER> static __device__ inline int member(int thread, int i) {
  return i / 4 * (4 * SIDE / PER) + thread * 4 + i % 4;
}

template <class S, class R>
static __device__ inline void multiply_tile(const R *left, const R *right,
                                            R (*sum)[S::per_column]) {
  const int x = (int)threadIdx.x % S::across, y = (int)threadIdx.x / S::across;
#pragma unroll
  for (int k = 0; k < S::depth; k++) {
    R p[S::per_row], q[S::per_column];
#pragma unroll
    for (int i = 0; i < S::per_row; i += 4)
      spread(left + k * S::wide_left + member<S::rows, S::per_row>(y, i), p + i);
#pragma unroll
    for (int i = 0; i < S::per_column; i += 4)
      spread(right + k * S::wide_right + member<S::columns, S::per_column>(x, i), q + i);
#pragma unroll
    for (int i = 0; i < S::per_row; i++)
#pragma unroll
      for (int j = 0; j < S::per_column; j++) sum[i][j] += p[i] * q[j];
  }
}

template <class T>
static __device__ inline real_of<T> pixel_of(const T *from, const int *plane, const conv_pixel &p,
                                             const conv_tap &t) {
  const int y = p.y + t.y, x = p.x + t.x;
  if ((unsigned)y >= (unsigned)plane[0] || (unsigned)x >= (unsigned)plane[1]) return 0;
  return get(from + p.from + t.from + (int64_t)y * plane[1] + x);
}

template <class T>
static __device__ inline conv_pixel place_at(const images_job<T> &j, const conv_axis *a,
                                             int64_t columns, int64_t i) {
  conv_pixel p = {0, 0, NOWHERE, NOWHERE};
  if (i >= columns) return p;
  int64_t image;
  int y, x;
  split_pixel(i, a, &image, &y, &x);
  p.from = image * j.tiling.groups * j.depth * ((int64_t)j.plane[0] * j.plane[1]);
  p.to = image * j.tiling.groups * j.rows * ((int64_t)j.written[0] * j.written[1]) +
         (int64_t)(a[0].first + y * a[0].next) * j.written[1] + a[1].first + x * a[1].next;
  p.y = a[0].at + y * a[0].by;
  p.x = a[1].at + x * a[1].by;
  return p;
}

/* Stores a thread's sums: row m of column p is element p.to + m * step of `to`. */
template <class S, class T, class F>
static __device__ inline void store(const real_of<T> (*sum)[S::per_column], T *to,
                                    real_of<T> *parts, const T *bias, int64_t first_row,
                                    int64_t rows, int64_t step, F column) {
  const int x = (int)threadIdx.x % S::across, y = (int)threadIdx.x / S::across;
#pragma unroll
  for (int n = 0; n < S::per_column; n++) {
    const int64_t at = column(member<S::columns, S::per_column>(x, n));
    if (at < 0) continue;
#pragma unroll
    for (int i = 0; i < S::per_row; i++) {
      const int64_t m = first_row + member<S::rows, S::per_row>(y, i);
      if (m >= rows) continue;
      if (parts) parts[at + m * step] = sum[i][n];
      else put(to + at + m * step, bias ? sum[i][n] + get(bias + m) : sum[i][n]);
    }
  }
}

template <class T, class S>
static __global__ void __launch_bounds__(THREADS, 2) image_tiles(images_job<T> j) {
  typedef real_of<T> R;
  __shared__ __align__(32) R left[S::depth * S::wide_left], right[S::depth * S::wide_right];
  __shared__ conv_tap taps[2][S::depth];
  __shared__ conv_axis axis[2];
  const conv_block b = block_of<S>(j.tiling);
  const int t = (int)threadIdx.x, k = t % S::depth, turn = t / S::columns;
  const int wide = j.side[1].kernel;
  if (t < 2) axis[t] = axis_of(j.side[t], j.back, b.number[1 + t]);
  __syncthreads();
  const int64_t columns = j.images * axis[0].pixels * axis[1].pixels;
  const int64_t depth = (int64_t)j.depth * axis[0].taps * axis[1].taps;
  const int64_t first = b.split * j.tiling.chunk, end = first + j.tiling.chunk;
  const int64_t last = end < depth ? end : depth;
  const int64_t plane = (int64_t)j.plane[0] * j.plane[1],
                written = (int64_t)j.written[0] * j.written[1];
  const conv_pixel p = place_at(j, axis, columns, b.column + t % S::columns);
  const T *from = j.from + b.group * j.depth * plane;
  const T *weight = j.weight + b.group * ((int64_t)j.rows * j.depth) *
                                 ((int64_t)j.side[0].kernel * wide);
  R sum[S::per_row][S::per_column] = {}, lefts[S::lefts], rights[S::rights];
  if (t < S::depth)
    taps[0][t] = tap_at(axis, plane, j.weight_depth, wide, last, first + t);
  __syncthreads();
  for (int64_t at = first - S::depth, now = 1; at < last; at += S::depth, now ^= 1) {
    if (at >= first) { /* store the elements loaded in the previous round */
      for (int i = 0; i < S::lefts; i++)
        left[k * S::wide_left + t / S::depth + i * (THREADS / S::depth)] = lefts[i];
      for (int i = 0; i < S::rights; i++)
        right[(turn + i * (THREADS / S::columns)) * S::wide_right + t % S::columns] = rights[i];
      if (t < S::depth)
        taps[now ^ 1][t] = tap_at(axis, plane, j.weight_depth, wide, last, at + S::depth + t);
    }
    __syncthreads();
    const conv_tap *next = taps[now ^ 1];
    for (int i = 0; i < S::lefts && at + S::depth < last; i++) {
      const int64_t m = b.row + t / S::depth + i * (THREADS / S::depth);
      lefts[i] = m < j.rows && at + S::depth + k < last
                     ? get(weight + m * j.weight_row + next[k].weight) : (R)0;
    }
    for (int i = 0; i < S::rights && at + S::depth < last; i++)
      rights[i] = pixel_of(from, j.plane, p, next[turn + i * (THREADS / S::columns)]);
    if (at >= first) multiply_tile<S>(left, right, sum);
    __syncthreads();
  }
  store<S>(sum, j.to, j.parts ? j.parts + b.split * j.numel : NULL,
           j.bias ? j.bias + b.group * j.rows : NULL, b.row, j.rows, written, [&](int n) {
             const conv_pixel c = place_at(j, axis, columns, b.column + n);
             return b.column + n < columns ? c.to + b.group * j.rows * written : (int64_t)-1;
           });
}

/* -- the gradient of the filters: rows of filters, columns of their elements, summed over the
** pixels of all results -- */

template <class T> struct filters_job {
  const T *x, *y;
  T *to;
  real_of<T> *parts;
  conv_tiling tiling;
  int64_t images, numel, depth; /* depth: number of pixels of one channel of y, over all images */
  int rows, channels;
  window w;
  cells at; /* pixels of y */
};

template <class T>
static __device__ inline conv_pixel result_at(const filters_job<T> &j, int64_t i, int64_t last) {
  conv_pixel p = {0, 0, NOWHERE, NOWHERE};
  if (i >= last) return p;
  int64_t image;
  int y, x;
  cell_of(j.at, i, &image, &y, &x);
  p.from = image * j.tiling.groups * j.channels * ((int64_t)j.w.in[0] * j.w.in[1]);
  p.to = image * j.tiling.groups * j.rows * ((int64_t)j.w.out[0] * j.w.out[1]) +
         (int64_t)y * j.w.out[1] + x;
  p.y = y * j.w.stride[0] - j.w.padding[0];
  p.x = x * j.w.stride[1] - j.w.padding[1];
  return p;
}

template <class T, class S>
static __global__ void __launch_bounds__(THREADS, 2) filter_tiles(filters_job<T> j) {
  typedef real_of<T> R;
  __shared__ __align__(32) R left[S::depth * S::wide_left], right[S::depth * S::wide_right];
  const conv_block b = block_of<S>(j.tiling);
  const int t = (int)threadIdx.x, k = t % S::depth, turn = t / S::depth;
  const conv_axis axis[2] = {axis_of(side_on(j.w, 0), false, 0),
                             axis_of(side_on(j.w, 1), false, 0)};
  const int64_t plane = (int64_t)j.w.in[0] * j.w.in[1], written = (int64_t)j.w.out[0] * j.w.out[1];
  const int64_t columns = (int64_t)j.channels * j.w.kernel[0] * j.w.kernel[1];
  const int64_t first = b.split * j.tiling.chunk, end = first + j.tiling.chunk;
  const int64_t last = end < j.depth ? end : j.depth;
  const T *x = j.x + b.group * j.channels * plane, *y = j.y + b.group * j.rows * written;
  R sum[S::per_row][S::per_column] = {}, lefts[S::lefts], rights[S::rights];
  conv_tap taps[S::rights];
  for (int i = 0; i < S::rights; i++)
    taps[i] = tap_at(axis, plane, 0, j.w.kernel[1], columns,
                     b.column + turn + i * (THREADS / S::depth));
  for (int64_t at = first - S::depth; at < last; at += S::depth) {
    if (at >= first) {
      for (int i = 0; i < S::lefts; i++)
        left[k * S::wide_left + turn + i * (THREADS / S::depth)] = lefts[i];
      for (int i = 0; i < S::rights; i++)
        right[k * S::wide_right + turn + i * (THREADS / S::depth)] = rights[i];
    }
    __syncthreads();
    if (at + S::depth < last) {
      const conv_pixel p = result_at(j, at + S::depth + k, last);
      for (int i = 0; i < S::lefts; i++) {
        const int64_t m = b.row + turn + i * (THREADS / S::depth);
        lefts[i] = m < j.rows && p.y != NOWHERE ? get(y + p.to + m * written) : (R)0;
      }
      for (int i = 0; i < S::rights; i++) rights[i] = pixel_of(x, j.w.in, p, taps[i]);
    }
    if (at >= first) multiply_tile<S>(left, right, sum);
    __syncthreads();
  }
  store<S>(sum, j.to, j.parts ? j.parts + b.split * j.numel : NULL, (const T *)NULL, b.row, j.rows,
           columns, [&](int n) {
             return b.column + n < columns ? b.group * j.rows * columns + b.column + n
                                           : (int64_t)-1;
           });
}

/* -- partial sums -- */

template <class T>
static __global__ void join_parts(int64_t n, int64_t splits, const real_of<T> *parts,
                                  const T *bias, quotient_by plane, int64_t channels, T *to) {
  const int64_t i = thread_number();
  if (i >= n) return;
  real_of<T> sum = bias ? get(bias + divide(i, plane) % channels) : (real_of<T>)0;
  for (int64_t s = 0; s < splits; s++) sum += parts[s * n + i];
  put(to + i, sum);
}

int moth_conv_join(const conv_job &j, const moth_tensor *parts, int64_t splits) {
  const int64_t n = j.to->l.numel; /* a channel's adjacent elements: */
  const int64_t plane = j.channels_last ? 1 : (int64_t)j.c.w.out[0] * j.c.w.out[1];
  return with_float(j.to->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch_on(j.ctx, j.q, join_parts<T>, blocks_for(n), BLOCK, 0, n, splits,
                     data<real_of<T>>(parts), j.bias ? data<T>(j.bias) : (T *)NULL,
                     quotients(plane, n), j.c.filters * j.c.groups, data<T>(j.to));
  });
}

/* -- launching -- */

template <class S, class J, class T>
static int run_planned(const conv_job &c, J *j, int64_t columns, int64_t depth, T) {
  typedef typename T::of E;
  plan_tiles<S>(&j->tiling, j->rows, columns, depth, j->numel);
  return run_tiles<real_of<E>>(c, j->tiling, [&](real_of<E> *parts, dim3 grid) {
    j->parts = parts;
    if constexpr (std::is_same<J, images_job<E>>::value)
      return launch_on(c.ctx, c.q, image_tiles<E, S>, grid, THREADS, 0, *j);
    else return launch_on(c.ctx, c.q, filter_tiles<E, S>, grid, THREADS, 0, *j);
  });
}

/* Chooses tiles by the number of rows, and a number of blocks that fills the device. */
template <class J, class T>
static int choose_tiles(const conv_job &c, J *j, int64_t columns, int64_t depth, T t) {
  const conv_tiling &w = j->tiling;
  const int64_t large = (j->rows + 127) / 128 * ((columns + 127) / 128) * w.groups *
                        w.classes[1] * w.classes[2];
  if (j->rows <= 32) return run_planned<flat_tile>(c, j, columns, depth, t);
  if constexpr (sizeof(real_of<typename T::of>) == 4)
    if (j->rows > 64 && large >= 264)
      return run_planned<wide_tile>(c, j, columns, depth, t);
  return run_planned<square_tile>(c, j, columns, depth, t);
}

template <class T> static int over_images(const conv_job &c, T t) {
  typedef typename T::of E;
  const conv_shape &s = c.c;
  const bool back = c.what == CONV_INPUT;
  const int64_t taps = (int64_t)s.w.kernel[0] * s.w.kernel[1];
  images_job<E> j = {};
  j.from = data<E>(back ? c.y : c.x);
  j.weight = data<E>(c.w);
  j.bias = c.bias ? data<E>(c.bias) : NULL;
  j.to = data<E>(c.to);
  j.images = s.images;
  j.numel = c.to->l.numel;
  j.rows = back ? s.channels : s.filters;
  j.depth = back ? s.filters : s.channels;
  j.tiling = conv_tiling{s.groups, 0, 0, 0, 0, {1, 1, 1}};
  j.back = back;
  j.weight_row = back ? taps : s.channels * taps;
  j.weight_depth = back ? s.channels * taps : taps;
  int64_t columns = s.images, depth = j.depth;
  for (int i = 0; i < 2; i++) {
    const int classes = classes_of(side_on(s.w, i), back);
    j.side[i] = side_on(s.w, i);
    j.plane[i] = back ? s.w.out[i] : s.w.in[i];
    j.written[i] = back ? s.w.in[i] : s.w.out[i];
    j.tiling.classes[1 + i] = classes;
    columns *= (j.written[i] + classes - 1) / classes;
    depth *= s.w.kernel[i]; /* an upper bound, if there are classes */
  }
  return choose_tiles(c, &j, columns, depth, t);
}

template <class T> static int over_filters(const conv_job &c, T t) {
  typedef typename T::of E;
  const conv_shape &s = c.c;
  filters_job<E> j = {};
  j.x = data<E>(c.x);
  j.y = data<E>(c.y);
  j.to = data<E>(c.to);
  j.images = s.images;
  j.numel = c.to->l.numel;
  j.depth = s.images * s.w.out[0] * s.w.out[1];
  j.rows = s.filters;
  j.channels = s.channels;
  j.tiling = conv_tiling{s.groups, 0, 0, 0, 0, {1, 1, 1}};
  j.w = s.w;
  j.at = cells_of(s.images, s.w.out[0], s.w.out[1]);
  return choose_tiles(c, &j, (int64_t)s.channels * s.w.kernel[0] * s.w.kernel[1], j.depth, t);
}

/* -- the three ops -- */

enum { FEW_ROWS = 8 }; /* with at most this many rows, most of a tile is empty */

static bool few_rows(const conv_job &j) {
  const conv_shape &c = j.c;
  if (j.what == CONV_FORWARD) return c.filters <= FEW_ROWS;
  if (j.what == CONV_INPUT) return c.channels <= FEW_ROWS;
  return c.filters * (int64_t)c.channels <= 2 * FEW_ROWS;
}

/* For depthwise filters, cuDNN is no faster than Moth's own kernels. Exception: channels_last
** images, which only some of these kernels support. */
static int by_cudnn(const conv_job &j, bool *done) {
  int status = moth_conv_depthwise(j, done);
  if (*done || status || j.c.images == 0 || (j.c.channels == 1 && !j.channels_last)) return status;
  return moth_conv_cudnn(j, done);
}

/* For channels_last images. */
static int by_pixels(const conv_job &j, bool *done) {
  const int status = by_cudnn(j, done);
  return *done || status ? status : moth_conv_tensor_cores(j, done);
}

int moth_conv_packed(const conv_job &j) {
  bool done;
  int status = by_cudnn(j, &done);
  if (done || status) return status;
  if (few_rows(j)) return moth_conv_direct(j);
  status = moth_conv_tensor_cores(j, &done);
  if (done || status) return status;
  return with_float(j.to->l.dtype, [&](auto t) {
    return j.what == CONV_WEIGHT ? over_filters(j, t) : over_images(j, t);
  });
}

template <class A>
static int convolve(const A *a, conv_what what, const conv_tensors &given, moth_tensor *to) {
  conv_job j = {};
  int status = conv_job_of(&j, a, 2, what, given, to);
  if (status || to->l.numel == 0) return status;
  return as_it_lies(j, given, 2, by_pixels, moth_conv_packed);
}

MOTH_CUDA(conv2d) {
  return convolve(a, CONV_FORWARD, {a->input, a->weight, out[0], a->bias}, out[0]);
}

MOTH_CUDA(conv2d_input) {
  return convolve(a, CONV_INPUT, {out[0], a->weight, a->input, NULL}, out[0]);
}

MOTH_CUDA(conv2d_weight) {
  return convolve(a, CONV_WEIGHT, {a->input, out[0], a->output, NULL}, out[0]);
}
