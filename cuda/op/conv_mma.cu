/* conv_mma.cu -- convolution of half types on tensor cores, and of f32 as TF32 if the chosen
** precision allows it; for machines without cuDNN. The im2col matrix is never stored, as in
** conv.cu, but images, filters and results are channels_last. The 16 bytes copied to shared memory
** at once (mma_tile.cuh) are then neighbouring channels of one pixel under one tap. Other memory
** formats are converted first, if the sums are long enough to be worth it. Volumes have three axes;
** images have a further axis of length 1. */
#include "conv_tiles.cuh"
#include "host/device.cuh"
#include "lib/mma_tile.cuh"

enum { AXES = 3, NOWHERE = INT32_MIN / 2 };

/* -- positions and taps as integers: i = ((rest * n0 + at[0]) * n1 + at[1]) * n2 + at[2] -- */

struct counter {
  divider n[AXES];
};

HD divider counts_to(int n) { return divider_of(n < 1 ? 1u : (uint32_t)n); }

static __device__ inline int64_t count_down(const counter &c, uint32_t i, int *at) {
#pragma unroll
  for (int axis = AXES - 1; axis >= 0; axis--) {
    const uint32_t over = divide(i, c.n[axis]);
    at[axis] = (int)(i - over * c.n[axis].by);
    i = over;
  }
  return i;
}

/* The index in a volume of the element at + by, or -1 if it is outside. */
static __device__ inline int inside_of(const int *size, const int *at, const int *by) {
  const int z = at[0] + by[0], y = at[1] + by[1], x = at[2] + by[2];
  const bool inside = (unsigned)z < (unsigned)size[0] && (unsigned)y < (unsigned)size[1] &&
                      (unsigned)x < (unsigned)size[2];
  return inside ? (z * size[1] + y) * size[2] + x : -1;
}

HD int64_t cells_in(const int *size) { return (int64_t)size[0] * size[1] * size[2]; }

/* Stores two neighbouring sums to elements `at` and at + 1 of the result. */
template <class T>
static __device__ inline void put_sums(T *to, float *parts, int64_t at, float x, float y) {
  if (parts) put_pair(parts + at, x, y);
  else put_pair(to + at, x, y);
}

/* -- products for each pixel: rows are pixels, columns are channels; the result, or the gradient of
** the images (BACK) -- */

template <class T> struct pixels_job {
  const T *from, *weight, *bias;
  T *to;
  float *parts; /* or NULL: write to `to` directly */
  conv_tiling tiling;
  conv_side side[AXES];
  int from_size[AXES], to_size[AXES];
  int64_t images, numel;
  int summed, written; /* channels of a group: summed over, and written */
  divider by_summed;
};

/* The axes of a block's class. */
struct block_axes {
  conv_axis of[AXES];
  counter taps, pixels;
};

template <bool BACK>
static __device__ inline void enter_axes(block_axes *a, const conv_side *side, const int *number) {
  const int i = (int)threadIdx.x;
  if (i < AXES) {
    a->of[i] = axis_of(side[i], BACK, number[i]);
    a->taps.n[i] = counts_to(a->of[i].taps);
    a->pixels.n[i] = counts_to(a->of[i].pixels);
  }
  __syncthreads();
}

/* The origin of a pixel's window in its image. */
template <class T> struct conv_spot {
  const T *image;
  int at[AXES];
};

template <class T>
static __device__ inline conv_spot<T> spot_of(const pixels_job<T> &j, const block_axes &a,
                                              const T *from, int64_t pixels, int64_t i) {
  conv_spot<T> p = {from, {NOWHERE, NOWHERE, NOWHERE}};
  if (i >= pixels) return p;
  const int64_t image = count_down(a.pixels, (uint32_t)i, p.at);
  p.image = from + image * cells_in(j.from_size) * (j.tiling.groups * j.summed);
#pragma unroll
  for (int d = 0; d < AXES; d++) p.at[d] = a.of[d].at + p.at[d] * a.of[d].by;
  return p;
}

/* The offset of the first element of pixel i in the result, or -1. */
template <class T>
static __device__ inline int64_t written_at(const pixels_job<T> &j, const block_axes &a,
                                            int64_t group, int64_t pixels, int64_t i) {
  int at[AXES];
  if (i >= pixels) return -1;
  int64_t cell = count_down(a.pixels, (uint32_t)i, at);
#pragma unroll
  for (int d = 0; d < AXES; d++)
    cell = cell * j.to_size[d] + a.of[d].first + at[d] * a.of[d].next;
  return (cell * j.tiling.groups + group) * j.written;
}

/* Term k of the sums: a channel under a tap. */
struct summed_at {
  int channel, tap; /* the tap's index in the filter */
  int by[AXES];     /* the offset of its input element on each axis */
};

template <class T>
static __device__ inline summed_at summed_of(const pixels_job<T> &j, const block_axes &a,
                                             int64_t k) {
  summed_at s = {0, 0, {0, 0, 0}};
  const uint32_t tap = divide((uint32_t)k, j.by_summed);
  s.channel = (int)((uint32_t)k - tap * (uint32_t)j.summed);
  count_down(a.taps, tap, s.by);
#pragma unroll
  for (int d = 0; d < AXES; d++) {
    s.tap = s.tap * j.side[d].kernel + a.of[d].first_tap + s.by[d] * a.of[d].next_tap;
    s.by[d] = a.of[d].at_tap + s.by[d] * a.of[d].by_tap;
  }
  return s;
}

template <class T, class S, bool BACK>
static __global__ void __launch_bounds__(MMA_THREADS) pixel_tiles(pixels_job<T> j) {
  __shared__ block_axes axes;
  const conv_block b = block_of<S>(j.tiling);
  enter_axes<BACK>(&axes, j.side, b.number);
  const conv_axis *const of = axes.of;
  const int64_t pixels = j.images * of[0].pixels * of[1].pixels * of[2].pixels;
  const int64_t depth = (int64_t)of[0].taps * of[1].taps * of[2].taps * j.summed;
  const int64_t first = b.split * j.tiling.chunk, end = first + j.tiling.chunk;
  const int64_t last = end < depth ? end : depth, step = j.tiling.groups * j.summed;
  const int64_t filter_taps = (int64_t)j.side[0].kernel * j.side[1].kernel * j.side[2].kernel;
  const T *weight = j.weight + b.group * j.summed * j.written * filter_taps;
  conv_spot<T> spot[S::left::COPIES];
#pragma unroll
  for (int i = 0; i < S::left::COPIES; i++)
    spot[i] = spot_of(j, axes, j.from + b.group * j.summed, pixels,
                      b.row + S::left::line_of(i));
  const auto image_elements = [&](int64_t k) {
    const bool any = k + S::left::offset_in_line() < last;
    const summed_at s = summed_of(j, axes, k + S::left::offset_in_line());
    return [&, any, s](int i, int, int, bool *inside) {
      const int cell = inside_of(j.from_size, spot[i].at, s.by);
      *inside = any && cell >= 0;
      return *inside ? spot[i].image + cell * step + s.channel : j.from;
    };
  };
  const auto filters = [&](int64_t k) {
    return [&, k](int, int line, int along, bool *inside) {
      const int64_t at = k + (BACK ? line : along), written = b.column + (BACK ? along : line);
      *inside = at < last && written < j.written;
      if (!*inside) return weight;
      if (!BACK) return weight + written * depth + at; /* with all taps, they are contiguous */
      const summed_at s = summed_of(j, axes, at);
      return weight + (s.channel * filter_taps + s.tap) * j.written + written;
    };
  };
  float c[S::MT][S::NT][4] = {};
  add_products<S>(shared_memory<T>(), first, last, image_elements, filters, c);
  float *const parts = j.parts ? j.parts + b.split * j.numel : NULL;
  for_sums<S>(c, [&](int r) { return written_at(j, axes, b.group, pixels, b.row + r); },
              [&](int64_t at, int q, float x, float y) {
    const int64_t channel = b.column + q;
    if (at < 0 || channel >= j.written) return;
    if (j.bias && !parts) {
      x += get(j.bias + b.group * j.written + channel);
      y += get(j.bias + b.group * j.written + channel + 1);
    }
    put_sums(j.to, parts, at + channel, x, y);
  });
}

/* -- the gradient of the filters: rows are filters, columns their elements, summed over all pixels
** of y -- */

template <class T> struct weight_job {
  const T *x, *dy;
  T *to;
  float *parts;
  conv_tiling tiling;
  conv_side side[AXES];
  int x_size[AXES];
  counter results, taps;
  int64_t depth, numel; /* depth: number of pixels of y */
  int filters, channels;
  divider by_channels;
};

template <class T, class S>
static __global__ void __launch_bounds__(MMA_THREADS) weight_tiles(weight_job<T> j) {
  const conv_block b = block_of<S>(j.tiling);
  const int64_t first = b.split * j.tiling.chunk, end = first + j.tiling.chunk;
  const int64_t last = end < j.depth ? end : j.depth;
  const int64_t columns = j.channels * ((int64_t)j.side[0].kernel * j.side[1].kernel *
                                        j.side[2].kernel);
  const int64_t written = j.tiling.groups * j.filters, seen = j.tiling.groups * j.channels;
  const T *dy = j.dy + b.group * j.filters, *x = j.x + b.group * j.channels;
  const int64_t column = b.column + S::right::offset_in_line();
  const uint32_t tap = divide((uint32_t)column, j.by_channels);
  int by[AXES];
  count_down(j.taps, tap, by);
#pragma unroll
  for (int d = 0; d < AXES; d++) by[d] = by[d] * j.side[d].dilation - j.side[d].padding;
  const auto results = [&](int64_t k) {
    return [&, k](int, int line, int along, bool *inside) {
      const int64_t at = k + line, filter = b.row + along;
      *inside = at < last && filter < j.filters;
      return *inside ? dy + at * written + filter : dy;
    };
  };
  const auto image_elements = [&](int64_t k) {
    return [&, k](int, int line, int, bool *inside) {
      int at[AXES];
      const int64_t image = count_down(j.results, (uint32_t)(k + line), at);
#pragma unroll
      for (int d = 0; d < AXES; d++) at[d] *= j.side[d].stride;
      const int cell = inside_of(j.x_size, at, by);
      *inside = k + line < last && column < columns && cell >= 0;
      if (!*inside) return x;
      return x + (image * cells_in(j.x_size) + cell) * seen + column - tap * (int64_t)j.channels;
    };
  };
  float c[S::MT][S::NT][4] = {};
  add_products<S>(shared_memory<T>(), first, last, results, image_elements, c);
  float *const parts = j.parts ? j.parts + b.split * j.numel : NULL;
  for_sums<S>(c, [&](int r) { return b.row + r; }, [&](int64_t filter, int q, float u, float v) {
    if (filter < j.filters && b.column + q < columns)
      put_sums(j.to, parts, (b.group * j.filters + filter) * columns + b.column + q, u, v);
  });
}

/* -- launching -- */

enum { LARGE_GPU_TILES = 132 }; /* tiles: one for each multiprocessor of a large GPU */

static void sides_of(conv_side *side, const conv_shape &c) {
  side[0] = c.depth.kernel ? c.depth : conv_side{1, 1, 1, 1, 0, 1};
  side[1] = side_on(c.w, 0);
  side[2] = side_on(c.w, 1);
}

template <class T, class S, bool BACK>
static int run_pixels(const conv_job &c, pixels_job<T> *j, int64_t pixels, int64_t depth) {
  plan_tiles<S>(&j->tiling, pixels, j->written, depth, j->numel);
  return run_tiles<float>(c, j->tiling, [&](float *parts, dim3 grid) {
    j->parts = parts;
    return launch_on(c.ctx, c.q, pixel_tiles<T, S, BACK>, grid, MMA_THREADS, S::shared_bytes, *j);
  });
}

template <class T, bool BACK> static int over_pixels(const conv_job &c) {
  const conv_shape &s = c.c;
  pixels_job<T> j = {};
  j.from = data<T>(BACK ? c.y : c.x);
  j.weight = data<T>(c.w);
  j.bias = c.bias ? data<T>(c.bias) : NULL;
  j.to = data<T>(c.to);
  j.images = s.images;
  j.numel = c.to->l.numel;
  j.summed = BACK ? s.filters : s.channels;
  j.written = BACK ? s.channels : s.filters;
  j.by_summed = counts_to(j.summed);
  j.tiling.groups = s.groups;
  sides_of(j.side, s);
  int64_t pixels = s.images, depth = j.summed, classes = 1;
  for (int d = 0; d < AXES; d++) {
    j.from_size[d] = BACK ? j.side[d].out : j.side[d].in;
    j.to_size[d] = BACK ? j.side[d].in : j.side[d].out;
    j.tiling.classes[d] = classes_of(j.side[d], BACK);
    classes *= j.tiling.classes[d];
    pixels *= (j.to_size[d] + j.tiling.classes[d] - 1) / j.tiling.classes[d];
    depth *= j.side[d].kernel; /* an upper bound, if there are classes */
  }
  const int64_t tall = (pixels + 127) / 128 * s.groups * classes;
  if (j.written > 64 && tall * ((j.written + 127) / 128) >= LARGE_GPU_TILES)
    return run_pixels<T, mma_shape<T, 128, 128, true, !BACK>, BACK>(c, &j, pixels, depth);
  if (tall * ((j.written + 63) / 64) >= LARGE_GPU_TILES)
    return run_pixels<T, mma_shape<T, 128, 64, true, !BACK>, BACK>(c, &j, pixels, depth);
  return run_pixels<T, mma_shape<T, 64, 64, true, !BACK>, BACK>(c, &j, pixels, depth);
}

template <class T, class S> static int run_filters(const conv_job &c, weight_job<T> *j) {
  plan_tiles<S>(&j->tiling, j->filters, j->numel / (j->tiling.groups * j->filters), j->depth,
                j->numel);
  return run_tiles<float>(c, j->tiling, [&](float *parts, dim3 grid) {
    j->parts = parts;
    return launch_on(c.ctx, c.q, weight_tiles<T, S>, grid, MMA_THREADS, S::shared_bytes, *j);
  });
}

template <class T> static int over_filters(const conv_job &c) {
  const conv_shape &s = c.c;
  weight_job<T> j = {};
  j.x = data<T>(c.x);
  j.dy = data<T>(c.y);
  j.to = data<T>(c.to);
  j.numel = c.to->l.numel;
  j.filters = s.filters;
  j.channels = s.channels;
  j.by_channels = counts_to(j.channels);
  j.tiling = conv_tiling{s.groups, 0, 0, 0, 0, {1, 1, 1}};
  sides_of(j.side, s);
  j.depth = s.images;
  for (int d = 0; d < AXES; d++) {
    j.x_size[d] = j.side[d].in;
    j.results.n[d] = counts_to(j.side[d].out);
    j.taps.n[d] = counts_to(j.side[d].kernel);
    j.depth *= j.side[d].out;
  }
  if (j.filters > 64) return run_filters<T, mma_shape<T, 128, 128, false, false>>(c, &j);
  return run_filters<T, mma_shape<T, 64, 128, false, false>>(c, &j);
}

template <class T> static int compute(const conv_job &c) {
  if (c.what == CONV_WEIGHT) return over_filters<T>(c);
  return c.what == CONV_INPUT ? over_pixels<T, true>(c) : over_pixels<T, false>(c);
}

/* -- conditions -- */

/* Tests if tensor cores can be used: the dtype fits and rows can be copied 16 bytes at a time. */
static bool suits(const conv_job &j) {
  const int dtype = j.to->l.dtype, each = dtype == MOTH_F32 ? 4 : 8;
  return dtype != MOTH_F64 && (dtype != MOTH_F32 || moth_cudnn_is(j.ctx, MOTH_CUDNN_TF32)) &&
         j.q->tensor_cores &&
         j.q->shared >= mma_shape<float, 128, 128, false, false>::shared_bytes &&
         j.c.images > 0 && j.c.channels % each == 0 && j.c.filters % each == 0 &&
         j.x->l.numel < INT32_MAX && j.y->l.numel < INT32_MAX;
}

/* Tests if converting to channels_last is worth it: sums are long, and the tensors are images or
** volumes. */
static bool is_worth_converting(const conv_job &j) {
  enum { LONG = 128 }; /* with fewer products for each element, the copies take longer */
  int64_t sum = j.what == CONV_INPUT ? j.c.filters : j.c.channels;
  for (int d = 2; d < j.w->l.ndim; d++) sum *= j.w->l.shape[d];
  return sum >= LONG && j.x->l.ndim == (j.c.depth.kernel ? 5 : 4);
}

static int turn(const conv_job &j, bool *done) {
  moth_tensor *to = moth_tensor_new_channels_last(j.ctx, &j.to->l);
  if (!to) return moth_status(j.ctx);
  int status = with_layout(j, {j.x, j.w, j.y, j.bias}, to, true, [&](const conv_job &l) {
    return moth_conv_tensor_cores(l, done);
  });
  if (!status && *done) status = moth_copy_into(j.to, to);
  moth_tensor_release(to);
  return status;
}

int moth_conv_tensor_cores(const conv_job &j, bool *done) {
  *done = false;
  if (!suits(j)) return MOTH_OK;
  if (!j.channels_last) return is_worth_converting(j) ? turn(j, done) : MOTH_OK;
  for (const moth_tensor *x : {j.x, j.w, j.y})
    if (alignment_of(moth_address(x), 0, 16) < 16) return MOTH_OK;
  *done = true;
  return with_float(j.to->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    if constexpr (sizeof(T) == 8) return MOTH_OK;
    else return compute<T>(j);
  });
}
