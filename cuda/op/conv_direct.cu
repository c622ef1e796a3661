/* conv_direct.cu -- convolution with few channels in a group, for example depthwise: each result is
** computed by one thread, each element of the gradient of the filters by a block. */
#include "conv.cuh"

/* -- results -- */

template <class T>
static __global__ void results(conv_shape c, cells at, int64_t n, const T *x, const T *weight,
                               const T *bias, T *y) {
  const int64_t i = thread_number();
  int64_t plane;
  int oy, ox, r0, r1, c0, c1;
  if (i >= n) return;
  cell_of(at, i, &plane, &oy, &ox);
  const int64_t all = c.filters * c.groups, image = plane / all, filter = plane - image * all;
  const int64_t group = filter / c.filters, plane_size = (int64_t)c.w.in[0] * c.w.in[1];
  window_clip(c.w, 0, oy, &r0, &r1);
  window_clip(c.w, 1, ox, &c0, &c1);
  const int top = oy * c.w.stride[0] - c.w.padding[0];
  const int left = ox * c.w.stride[1] - c.w.padding[1];
  x += (image * c.groups + group) * c.channels * plane_size;
  weight += filter * c.channels * c.w.kernel[0] * c.w.kernel[1];
  real_of<T> sum = bias ? get(bias + filter) : (real_of<T>)0;
  for (int channel = 0; channel < c.channels; channel++, x += plane_size) {
    for (int r = r0; r < r1; r++) {
      const T *row = x + (int64_t)(top + r * c.w.dilation[0]) * c.w.in[1];
      for (int k = c0; k < c1; k++)
        sum += get(weight + r * c.w.kernel[1] + k) * get(row + left + k * c.w.dilation[1]);
    }
    weight += c.w.kernel[0] * c.w.kernel[1];
  }
  put(y + i, sum);
}

/* -- the gradient of the images -- */

/* The window of an axis whose tap is at element i, or -1. */
static __device__ inline int window_at(const window &w, int axis, int i, int tap) {
  const int at = i + w.padding[axis] - tap * w.dilation[axis];
  if (at < 0) return -1;
  const int out = w.stride[axis] == 1 ? at : at / w.stride[axis];
  return out * w.stride[axis] == at && out < w.out[axis] ? out : -1;
}

template <class T>
static __global__ void pixels(conv_shape c, cells at, int64_t n, const T *dy, const T *weight,
                              T *dx) {
  const int64_t i = thread_number();
  int64_t plane;
  int y, x;
  if (i >= n) return;
  cell_of(at, i, &plane, &y, &x);
  const int64_t all = c.channels * c.groups, image = plane / all, of_all = plane - image * all;
  const int64_t group = of_all / c.channels, channel = of_all - group * c.channels;
  const int64_t plane_size = (int64_t)c.w.out[0] * c.w.out[1];
  const int64_t taps = (int64_t)c.w.kernel[0] * c.w.kernel[1];
  dy += (image * c.groups + group) * c.filters * plane_size;
  weight += (group * c.filters * c.channels + channel) * taps;
  real_of<T> sum = 0;
  for (int filter = 0; filter < c.filters; filter++, dy += plane_size, weight += c.channels * taps)
    for (int r = 0; r < c.w.kernel[0]; r++) {
      const int oy = window_at(c.w, 0, y, r);
      if (oy < 0) continue;
      for (int k = 0; k < c.w.kernel[1]; k++) {
        const int ox = window_at(c.w, 1, x, k);
        if (ox >= 0)
          sum += get(weight + r * c.w.kernel[1] + k) * get(dy + (int64_t)oy * c.w.out[1] + ox);
      }
    }
  put(dx + i, sum);
}

/* -- the gradient of the filters: block (i, s) sums chunk s of all pixels for element i -- */

template <class T>
static __global__ void filters(conv_shape c, cells at, int64_t depth, int64_t chunk, const T *x,
                               const T *dy, T *dw, real_of<T> *parts) {
  const int64_t i = blockIdx.x, taps = (int64_t)c.w.kernel[0] * c.w.kernel[1];
  const int64_t filter = i / (c.channels * taps), rest = i - filter * c.channels * taps;
  const int64_t channel = rest / taps, group = filter / c.filters;
  const int tap = (int)(rest - channel * taps), r = tap / c.w.kernel[1];
  const int down = r * c.w.dilation[0] - c.w.padding[0];
  const int right = (tap - r * c.w.kernel[1]) * c.w.dilation[1] - c.w.padding[1];
  const int64_t plane_size = (int64_t)c.w.in[0] * c.w.in[1],
                written = (int64_t)c.w.out[0] * c.w.out[1];
  const int64_t first = blockIdx.y * chunk, end = first + chunk, last = end < depth ? end : depth;
  real_of<T> sum = 0;
  x += (group * c.channels + channel) * plane_size;
  dy += filter * written;
  for (int64_t k = first + threadIdx.x; k < last; k += BLOCK) {
    int64_t image;
    int oy, ox;
    cell_of(at, k, &image, &oy, &ox);
    const int iy = oy * c.w.stride[0] + down, ix = ox * c.w.stride[1] + right;
    if ((unsigned)iy >= (unsigned)c.w.in[0] || (unsigned)ix >= (unsigned)c.w.in[1]) continue;
    sum += get(x + image * c.groups * c.channels * plane_size + (int64_t)iy * c.w.in[1] + ix) *
           get(dy + image * c.groups * c.filters * written + (int64_t)oy * c.w.out[1] + ox);
  }
  sum = join_block(adds<real_of<T>>(), sum);
  if (threadIdx.x) return;
  if (parts) parts[blockIdx.y * (int64_t)gridDim.x + i] = sum;
  else put(dw + i, sum);
}

template <class T> static int sum_filters(const conv_job &j) {
  enum { ENOUGH_BLOCKS = 1024, LEAST = 4096 };
  typedef real_of<T> R;
  const conv_shape &c = j.c;
  const int64_t n = j.to->l.numel, depth = c.images * c.w.out[0] * c.w.out[1];
  int64_t splits = ENOUGH_BLOCKS / n < depth / LEAST ? ENOUGH_BLOCKS / n : depth / LEAST;
  if (splits < 1) splits = 1;
  const int64_t chunk = (depth + splits - 1) / splits;
  moth_tensor *parts = NULL;
  if (splits > 1) {
    parts = conv_scratch(j, splits * n, sizeof(R) == 8 ? MOTH_F64 : MOTH_F32);
    if (!parts) return moth_status(j.ctx);
  }
  int status = launch_on(j.ctx, j.q, filters<T>, grid_for(n, splits), BLOCK, 0, c,
                         cells_of(c.images, c.w.out[0], c.w.out[1]), depth, chunk, data<T>(j.x),
                         data<T>(j.y), data<T>(j.to), parts ? data<R>(parts) : (R *)NULL);
  if (!status && parts) status = moth_conv_join(j, parts, splits);
  moth_tensor_release(parts);
  return status;
}

int moth_conv_direct(const conv_job &j) {
  const conv_shape &c = j.c;
  const int64_t n = j.to->l.numel;
  const int *plane = j.what == CONV_INPUT ? c.w.in : c.w.out;
  const cells at = cells_of(n / ((int64_t)plane[0] * plane[1]), plane[0], plane[1]);
  return with_float(j.to->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    if (j.what == CONV_WEIGHT) return sum_filters<T>(j);
    if (j.what == CONV_INPUT)
      return launch_on(j.ctx, j.q, pixels<T>, blocks_for(n), BLOCK, 0, c, at, n, data<T>(j.y),
                       data<T>(j.w), data<T>(j.to));
    return launch_on(j.ctx, j.q, results<T>, blocks_for(n), BLOCK, 0, c, at, n, data<T>(j.x),
                     data<T>(j.w), j.bias ? data<T>(j.bias) : (T *)NULL, data<T>(j.to));
  });
}
