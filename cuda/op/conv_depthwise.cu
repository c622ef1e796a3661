/* conv_depthwise.cu -- depthwise convolution of images (a filter for each channel) with filters of
** size 3, 5 or 7. A thread walks down a column. It adds each row that it reads to all results whose
** windows contain the row. A thread has one channel of packed images, or a few channels of
** channels_last images. */
#include "conv.cuh"
#include "lib/rows.cuh"

/* How many channels a thread has at a time: as many as fit in registers. */
template <int K, bool LAST> constexpr int AT_ONCE = !LAST ? 1 : K == 3 ? 4 : K == 5 ? 2 : 1;

/* Images of `channels` channels, and their strides. */
struct plane_of {
  int size[2], step[2]; /* rows, columns */
  int64_t image, channel;
};

static plane_of planes_of(const int *size, int64_t channels, bool last) {
  const int across = last ? (int)channels : 1;
  return plane_of{{size[0], size[1]}, {size[1] * across, across},
                  channels * size[0] * size[1], last ? 1 : (int64_t)size[0] * size[1]};
}

/* The columns of a window, the ones inside the image, and the distance between them. */
template <int K, bool LAST> struct window_columns {
  int first, step;
  bool inside[K];

  __device__ inline window_columns(const plane_of &p, int left)
      : first(LAST ? left * p.step[1] : left), step(LAST ? p.step[1] : 1) {
#pragma unroll
    for (int k = 0; k < K; k++) inside[k] = (unsigned)(left + k) < (unsigned)p.size[1];
  }
};

/* to := the elements of a row in the window, zeros outside. */
template <class T, int EACH, int K, bool LAST>
static __device__ inline void read_row(real_of<T> (*to)[EACH], const T *from, const plane_of &p,
                                       int row, const window_columns<K, LAST> &columns) {
  const bool inside = (unsigned)row < (unsigned)p.size[0];
  const T *first = from + (row * p.step[0] + columns.first);
#pragma unroll
  for (int k = 0; k < K; k++) {
    vec<T, EACH> v = {};
    if (inside && columns.inside[k]) v = read_vec<T, EACH>(first + k * columns.step);
#pragma unroll
    for (int e = 0; e < EACH; e++) to[k][e] = get(&v.at[e]);
  }
}

/* -- results; and, with flipped filters, the gradient of the images -- */

template <class T> struct depthwise_job {
  const T *x, *weight, *bias;
  T *y;
  plane_of from, to;
  int padding[2];
  bool transposed;
  int64_t n;      /* number of threads; for channels_last: number of positions, each with threads
                  ** for all channels */
  divider by[3];  /* packed: columns, groups of DOWN rows, channels; channels_last: blocks of
                  ** channels, columns, rows */
};

static __device__ inline uint32_t split(uint32_t *rest, const divider &by) {
  const uint32_t over = divide(*rest, by), at = *rest - over * by.by;
  *rest = over;
  return at;
}

/* Loads this thread's filters; returns false if it has none. For channels_last, a block's filters
** are adjacent in memory, but each thread's filters are far from its neighbours'. The block
** transposes them in shared memory. Rows there have an odd length in vectors, to avoid bank
** conflicts. */
template <class T, int K, int EACH, bool LAST>
static __device__ inline bool read_filters(real_of<T> (*w)[EACH], const T *from, int64_t count,
                                           bool transposed) {
  enum { TAPS = K * K };
  if constexpr (LAST) {
    __shared__ vec<real_of<T>, EACH> by_tap[TAPS][WARP + 1];
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < count; i += blockDim.x * blockDim.y) {
      const int c = i / TAPS, t = i % TAPS;
      by_tap[transposed ? TAPS - 1 - t : t][c / EACH].at[c % EACH] = get(from + i);
    }
    __syncthreads();
    if (threadIdx.x * (EACH * TAPS) >= count) return false;
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
      const vec<real_of<T>, EACH> v = by_tap[t][threadIdx.x];
#pragma unroll
      for (int e = 0; e < EACH; e++) w[t][e] = v.at[e];
    }
  } else {
    if (transposed) from += TAPS - 1;
#pragma unroll
    for (int t = 0; t < TAPS; t++) w[t][0] = get(from + (transposed ? -t : t));
  }
  return true;
}

/* channels_last: blocks of threads (x, y); x is along the channels. */
template <class T, int K, int S, bool LAST>
static __global__ void depthwise_columns(depthwise_job<T> j) {
  typedef real_of<T> R;
  enum { EACH = AT_ONCE<K, LAST>, DOWN = 8 / S, TAPS = K * K };
  R w[TAPS][EACH], sum[DOWN][EACH];
  uint32_t rest = LAST ? blockIdx.x : (uint32_t)thread_number(), at[3];
  at[0] = split(&rest, j.by[0]);
  if constexpr (LAST) {
    const int64_t begin = (int64_t)at[0] * blockDim.x * EACH, left = j.from.step[1] - begin;
    const int64_t own = left < blockDim.x * EACH ? left : blockDim.x * EACH;
    if (!read_filters<T, K, EACH, LAST>(w, j.weight + begin * TAPS, own * TAPS, j.transposed))
      return;
    at[0] = at[0] * blockDim.x + threadIdx.x;
    rest = rest * blockDim.y + threadIdx.y;
    if (rest >= j.n) return;
  } else if (thread_number() >= j.n) {
    return;
  }
  at[1] = split(&rest, j.by[1]);
  at[2] = split(&rest, j.by[2]);
  const int64_t channel = (int64_t)at[LAST ? 0 : 2] * EACH;
  if constexpr (!LAST)
    read_filters<T, K, EACH, LAST>(w, j.weight + channel * TAPS, TAPS, j.transposed);
  const int column = (int)at[LAST], first = (int)at[1 + LAST] * DOWN;
  const int top = first * S - j.padding[0];
  const window_columns<K, LAST> columns(j.from, column * S - j.padding[1]);
  const T *from = j.x + rest * j.from.image + channel * j.from.channel;
  T *to = j.y + rest * j.to.image + channel * j.to.channel + (int64_t)column * j.to.step[1];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const R bias = j.bias ? get(j.bias + channel + e) : (R)0;
#pragma unroll
    for (int p = 0; p < DOWN; p++) sum[p][e] = bias;
  }
#pragma unroll
  for (int row = 0; row < (DOWN - 1) * S + K; row++) {
    R seen[K][EACH];
    read_row<T, EACH>(seen, from, j.from, top + row, columns);
#pragma unroll
    for (int p = 0; p < DOWN; p++)
      if (row >= p * S && row < p * S + K)
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
          for (int e = 0; e < EACH; e++)
            sum[p][e] += w[(row - p * S) * K + k][e] * seen[k][e];
  }
#pragma unroll
  for (int p = 0; p < DOWN; p++) {
    vec<T, EACH> v;
#pragma unroll
    for (int e = 0; e < EACH; e++) put(&v.at[e], sum[p][e]);
    if (first + p < j.to.size[0]) write_vec(to + (int64_t)(first + p) * j.to.step[0], v);
  }
}

/* -- the gradient of the filters -- */

template <class T> struct depthwise_sums {
  const T *x, *dy;
  T *to;
  real_of<T> *parts; /* or NULL: write to `to` directly */
  plane_of from, written;
  int stride[2], padding[2];
  int64_t channels, columns, chunk; /* columns of all images, columns of a block */
  divider by_width;
};

/* Blocks of threads (x, y): x is along the channels, and the y share the columns. */
template <class T, int K, bool LAST> static __global__ void depthwise_filters(depthwise_sums<T> j) {
  typedef real_of<T> R;
  enum { EACH = AT_ONCE<K, LAST>, TAPS = K * K };
  const int64_t channel = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * EACH;
  const int64_t first = (int64_t)blockIdx.y * j.chunk, end = first + j.chunk;
  const int64_t last = channel >= j.channels ? 0 : end < j.columns ? end : j.columns;
  R sum[TAPS][EACH] = {}, done[TAPS * EACH];
  for (int64_t i = first + threadIdx.y; i < last; i += blockDim.y) {
    const uint32_t image = divide((uint32_t)i, j.by_width);
    const int column = (int)((uint32_t)i - image * j.by_width.by);
    const window_columns<K, LAST> columns(j.from, column * j.stride[1] - j.padding[1]);
    const T *from = j.x + image * j.from.image + channel * j.from.channel;
    const T *dy = j.dy + image * j.written.image + channel * j.written.channel +
                  (int64_t)column * j.written.step[1];
    for (int y = 0; y < j.written.size[0]; y++, dy += j.written.step[0]) {
      const int top = y * j.stride[0] - j.padding[0];
      const vec<T, EACH> derivative = read_vec<T, EACH>(dy);
#pragma unroll
      for (int r = 0; r < K; r++) {
        R seen[K][EACH];
        read_row<T, EACH>(seen, from, j.from, top + r, columns);
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
          for (int e = 0; e < EACH; e++) sum[r * K + k][e] += get(&derivative.at[e]) * seen[k][e];
      }
    }
  }
#pragma unroll
  for (int t = 0; t < TAPS * EACH; t++) done[t] = sum[t % TAPS][t / TAPS];
#pragma unroll 1
  for (int t = 0; t < TAPS * EACH; t++) { /* `done` has a variable index and is in local memory;
                                          ** `sum` stays in registers */
    const R all = join_inner(adds<R>(), done[t]);
    if (threadIdx.y || channel >= j.channels) continue;
    if (j.parts) j.parts[(blockIdx.y * j.channels + channel) * TAPS + t] = all;
    else put(j.to + channel * TAPS + t, all);
  }
}

/* -- launching -- */

template <class T, int K, int S, bool LAST>
static int run_columns(const conv_job &c, depthwise_job<T> *j) {
  enum { EACH = AT_ONCE<K, LAST>, DOWN = 8 / S };
  const int64_t channels = c.c.groups / EACH, rows = (j->to.size[0] + DOWN - 1) / DOWN;
  const int64_t blocks = (channels + WARP - 1) / WARP, across = (channels + blocks - 1) / blocks;
  const int64_t count[3] = {LAST ? blocks : j->to.size[1], LAST ? j->to.size[1] : rows,
                            LAST ? rows : channels};
  for (int i = 0; i < 3; i++) j->by[i] = divider_of((uint32_t)count[i]);
  j->n = c.c.images * rows * j->to.size[1] * (LAST ? 1 : channels);
  const int64_t down = BLOCK / across;
  const dim3 grid = LAST ? grid_for(blocks * ((j->n + down - 1) / down)) : blocks_for(j->n);
  const dim3 block = LAST ? dim3((unsigned)across, (unsigned)down) : dim3(BLOCK);
  return launch_on(c.ctx, c.q, depthwise_columns<T, K, S, LAST>, grid, block, 0, *j);
}

template <class T, int K, bool LAST> static int over_columns(const conv_job &c) {
  const window &w = c.c.w;
  const bool back = c.what == CONV_INPUT;
  depthwise_job<T> j = {};
  j.x = data<T>(back ? c.y : c.x);
  j.weight = data<T>(c.w);
  j.bias = c.bias ? data<T>(c.bias) : NULL;
  j.y = data<T>(c.to);
  j.from = planes_of(back ? w.out : w.in, c.c.groups, LAST);
  j.to = planes_of(back ? w.in : w.out, c.c.groups, LAST);
  j.transposed = back;
  for (int i = 0; i < 2; i++) j.padding[i] = back ? K - 1 - w.padding[i] : w.padding[i];
  if constexpr (K < 7)
    if (!back && w.stride[0] == 2) return run_columns<T, K, 2, LAST>(c, &j);
  return run_columns<T, K, 1, LAST>(c, &j);
}

template <class T, int K, bool LAST> static int over_weights(const conv_job &c) {
  typedef real_of<T> R;
  /* Channels of a thread; blocks that fill a device; least columns of a thread. */
  enum { EACH = AT_ONCE<K, LAST>, ENOUGH_BLOCKS = 1024, LEAST_COLUMNS = 2 };
  const window &w = c.c.w;
  const int64_t channels = c.c.groups / EACH, n = c.to->l.numel;
  unsigned across = 1;
  while (LAST && across < WARP && across < channels) across *= 2;
  const int64_t blocks = (channels + across - 1) / across, lanes = BLOCK / across;
  depthwise_sums<T> j = {data<T>(c.x), data<T>(c.y), data<T>(c.to), NULL,
                         planes_of(w.in, c.c.groups, LAST), planes_of(w.out, c.c.groups, LAST),
                         {w.stride[0], w.stride[1]}, {w.padding[0], w.padding[1]}, c.c.groups,
                         c.c.images * w.out[1], 0, divider_of((uint32_t)w.out[1])};
  int64_t splits = j.columns / (lanes * LEAST_COLUMNS);
  if (splits > ENOUGH_BLOCKS / blocks) splits = ENOUGH_BLOCKS / blocks;
  if (splits < 1) splits = 1;
  j.chunk = (j.columns + splits - 1) / splits;
  moth_tensor *parts = splits > 1 ? conv_scratch(c, splits * n, MOTH_F32) : NULL;
  if (splits > 1 && !parts) return moth_status(c.ctx);
  if (parts) j.parts = data<R>(parts);
  int status = launch_on(c.ctx, c.q, depthwise_filters<T, K, LAST>, grid_for(blocks, splits),
                         dim3(across, BLOCK / across), 0, j);
  if (!status && parts) status = moth_conv_join(c, parts, splits);
  moth_tensor_release(parts);
  return status;
}

template <class T, bool LAST> static int compute_laid(const conv_job &c) {
  const auto by_size = [&](auto k) {
    constexpr int K = decltype(k)::value;
    return c.what == CONV_WEIGHT ? over_weights<T, K, LAST>(c) : over_columns<T, K, LAST>(c);
  };
  switch (c.c.w.kernel[0]) {
    case 3: return by_size(std::integral_constant<int, 3>());
    case 5: return by_size(std::integral_constant<int, 5>());
    default: return by_size(std::integral_constant<int, 7>());
  }
}

/* Tests if there is a kernel for the filter size and stride, and if channels can be read as
** vectors. */
static bool is_depthwise(const conv_job &j) {
  const conv_shape &c = j.c;
  const window &w = c.w;
  const int k = w.kernel[0], s = w.stride[0];
  if (c.channels != 1 || c.filters != 1 || c.groups < 2 || c.images < 1 || c.depth.kernel)
    return false;
  if (k != w.kernel[1] || (k != 3 && k != 5 && k != 7) || w.dilation[0] != 1 ||
      w.dilation[1] != 1)
    return false;
  if (j.what != CONV_WEIGHT && s != w.stride[1]) return false;
  if (j.what == CONV_INPUT && s != 1) return false;
  if (j.what == CONV_FORWARD && s != 1 && (s != 2 || k == 7)) return false;
  if (j.channels_last && c.groups % 4) return false;
  for (const moth_tensor *x : {j.x, j.y})
    if (x->l.numel >= INT32_MAX || (j.channels_last && !on_vec(moth_address(x)))) return false;
  return j.to->l.dtype != MOTH_F64;
}

int moth_conv_depthwise(const conv_job &j, bool *done) {
  *done = is_depthwise(j);
  if (!*done) return MOTH_OK;
  return with_float(j.to->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    if constexpr (sizeof(T) == 8) return MOTH_OK;
    else return j.channels_last ? compute_laid<T, true>(j) : compute_laid<T, false>(j);
  });
}
