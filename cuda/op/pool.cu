/* pool.cu -- pooling: a thread for each result. Gradients are gathered, not scattered, so that they
** repeat. */
#include "../../core/op/pool.h"

#include "lib/selection.cuh"
#include "lib/window.cuh"

struct pooling {
  window w;
  int64_t n; /* number of results of the kernel */
  channels c;
  cells at;
  bool count_padding;
  int64_t divisor; /* 0: the number of elements */
};

/* Fills p: windows over `image`, with results of shape `seen`; the kernel has a thread for each
** element of `of`. */
static int pooling_of(pooling *p, const moth_layout *image, const moth_layout *seen,
                      const moth_layout *of, bool channels_last, const int64_t *kernel,
                      const int64_t *stride, const int64_t *padding, const int64_t *dilation,
                      moth_ctx *ctx) {
  const int high = image->ndim - 2;
  p->n = of->numel;
  p->c = channels_of(of, channels_last);
  p->at = cells_of(planes_of(image, p->c), of->shape[high], of->shape[high + 1]);
  p->count_padding = true;
  p->divisor = 0;
  return window_of(&p->w, ctx, image->shape + high, seen->shape + high, kernel, stride, padding,
                   dilation);
}

/* The position of result i of the kernel; returns the offset of element 0 of the plane it belongs
** to. A plane has `size` rows and columns. */
static __device__ inline int64_t place_at(const pooling &p, int64_t i, const int *size, int *y,
                                          int *x) {
  int64_t channel, plane;
  cell_of(p.at, pixel_of(p.c, i, &channel), &plane, y, x);
  return plane * size[0] * size[1] * p.c.each.by + channel;
}

/* The windows first..last-1 of an axis that contain element i. */
static __device__ inline void seen_by(const window &w, int axis, int i, int *first, int *last) {
  const int at = i + w.padding[axis], before = at - w.kernel[axis];
  *first = before >= 0 ? (int)divide((uint32_t)before, w.by_stride[axis]) + 1 : 0;
  *last = (int)divide((uint32_t)at, w.by_stride[axis]) + 1;
  if (*last > w.out[axis]) *last = w.out[axis];
}

static const int64_t ones[2] = {1, 1};

/* -- maximum -- */

template <class T>
static __global__ void max_windows(pooling p, const T *x, T *y, int64_t *index) {
  const int64_t i = thread_number();
  int oy, ox, r0, r1, c0, c1;
  if (i >= p.n) return;
  x += place_at(p, i, p.w.in, &oy, &ox);
  window_clip(p.w, 0, oy, &r0, &r1);
  window_clip(p.w, 1, ox, &c0, &c1);
  const int top = oy * p.w.stride[0] - p.w.padding[0];
  const int left = ox * p.w.stride[1] - p.w.padding[1];
  real_of<T> best = (real_of<T>)-INFINITY;
  int64_t found = -1;
  for (int r = r0; r < r1; r++)
    for (int c = c0; c < c1; c++) {
      const int64_t at = (int64_t)(top + r * p.w.dilation[0]) * p.w.in[1] + left +
                         c * p.w.dilation[1];
      const real_of<T> v = get(x + at * p.c.each.by);
      if (found < 0 || v > best || v != v) {
        best = v;
        found = at;
      }
    }
  put(y + i, best);
  index[i] = found;
}

MOTH_CUDA(max_pool2d) {
  pooling p;
  const bool channels_last = goes_channels_last(a->input, out[0]);
  int status = pooling_of(&p, &a->input->l, &out[0]->l, &out[0]->l, channels_last, a->kernel_size,
                          a->stride, a->padding, a->dilation, a->ctx);
  if (status || p.n == 0) return status;
  moth_tensor *x = moth_packed_as(a->input, channels_last);
  if (!x) return moth_status(a->ctx);
  status = with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], max_windows<T>, blocks_for(p.n), BLOCK, 0, p, data<T>(x),
                  data<T>(out[0]), data<int64_t>(out[1]));
  });
  moth_tensor_release(x);
  return status;
}

/* -- positions -- */

struct places {
  int64_t n;                /* number of positions */
  int64_t all;              /* elements of all planes */
  quotient_by each;         /* positions in a plane */
  int64_t elements;             /* elements of a plane */
  channels c;
};

static places places_of(const moth_layout *positions, int64_t elements, bool channels_last) {
  const int high = positions->ndim - 2;
  const int64_t each = positions->shape[high] * positions->shape[high + 1];
  const channels c = channels_of(positions, channels_last);
  return places{positions->numel, planes_of(positions, c) * c.each.by * elements,
                quotients(each, positions->numel), elements, c};
}

/* The element that position i names, or -1. */
static __device__ inline int64_t place_of(const places &p, const int64_t *index, int64_t i,
                                          moth_kernel_error *kernel_error) {
  const int64_t at = index[i];
  int64_t channel;
  const int64_t plane = divide(pixel_of(p.c, i, &channel), p.each);
  if (at >= 0 && at < p.elements) return (plane * p.elements + at) * p.c.each.by + channel;
  if (at != -1) report(kernel_error, KERNEL_ERROR_INDEX, at, p.elements);
  return -1;
}

static __global__ void place_keys(places p, const int64_t *index, int64_t *key,
                                  moth_kernel_error *kernel_error) {
  const int64_t i = thread_number();
  if (i >= p.n) return;
  const int64_t at = place_of(p, index, i, kernel_error);
  key[i] = at < 0 ? p.all : at;
}

/* If windows are known, each element checks the windows that contain it for its own index. */
template <class T>
static __global__ void largest_back(pooling p, const T *dy, const int64_t *index, T *dx) {
  const int64_t i = thread_number();
  int y, x, y0, y1, x0, x1;
  if (i >= p.n) return;
  const int64_t first = place_at(p, i, p.w.out, &y, &x), own = (int64_t)y * p.w.in[1] + x;
  seen_by(p.w, 0, y, &y0, &y1);
  seen_by(p.w, 1, x, &x0, &x1);
  real_of<T> sum = 0;
  for (int oy = y0; oy < y1; oy++) {
    int64_t at = first + ((int64_t)oy * p.w.out[1] + x0) * p.c.each.by;
    for (int ox = x0; ox < x1; ox++, at += p.c.each.by)
      if (index[at] == own) sum += get(dy + at);
  }
  put(dx + i, sum);
}

static int back_by_windows(const max_pool2d_back_args *a, bool channels_last, moth_tensor *dx) {
  pooling p;
  int status = pooling_of(&p, &dx->l, &a->input->l, &dx->l, channels_last, a->reach, a->stride,
                          a->padding, ones, a->ctx);
  if (status || p.n == 0) return status;
  moth_tensor *dy = moth_packed_as(a->input, channels_last);
  moth_tensor *index = moth_packed_as(a->indices, channels_last);
  status = dy && index ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(dy->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch(a->ctx, dx, largest_back<T>, blocks_for(p.n), BLOCK, 0, p, data<T>(dy),
                    data<int64_t>(index), data<T>(dx));
    });
  moth_tensor_release(dy);
  moth_tensor_release(index);
  return status;
}

/* x as one dimension, in memory order; on the caller's stack. */
static moth_tensor flat(const moth_tensor *x) {
  moth_layout l = x->l;
  l.ndim = 1;
  l.shape[0] = l.numel;
  l.stride[0] = 1;
  return seen_as(x, &l);
}

/* to := the sum of the values for each element, from two lists; half types are summed in f32. */
static int add_places(const places &p, const moth_tensor *index, moth_tensor *to,
                      moth_tensor *from) {
  const moth_queue *q = moth_queue_of(to->ctx, to->l.device);
  const int wide = moth_compute_dtype(to->l.dtype);
  const bool direct = wide == to->l.dtype;
  moth_tensor *work = direct ? moth_packed(to) : list_new(to, to->l.numel, wide);
  moth_tensor *values = direct ? moth_packed(from) : moth_cast(from, wide);
  moth_tensor *keys = list_new(to, p.n);
  int status = q && work && values && keys ? clear(work) : moth_status(to->ctx);
  if (!status && p.n) {
    selection k = selection_of_slices(work, 0, keys);
    k.limit = p.all + 1;
    k.skips = true;
    k.skip = p.all;
    status = launch_on(to->ctx, q, place_keys, blocks_for(p.n), BLOCK, 0, p, data<int64_t>(index),
                       data<int64_t>(keys), q->kernel_error);
    if (!status) status = selection_write(k, SELECT_ADD, work, values);
  }
  if (!status && !direct) status = moth_copy_into(to, work);
  moth_tensor_release(keys);
  moth_tensor_release(values);
  moth_tensor_release(work);
  return status;
}

/* For indices that may name any element, any number of times. */
static int back_by_places(const max_pool2d_back_args *a, bool channels_last, moth_tensor *dx) {
  const places p = places_of(&a->indices->l, a->size[0] * a->size[1], channels_last);
  moth_tensor *dy = moth_packed_as(a->input, channels_last);
  moth_tensor *index = moth_packed_as(a->indices, channels_last);
  int status = moth_status(a->ctx);
  if (dy && index) {
    moth_tensor to = flat(dx), from = flat(dy);
    status = add_places(p, index, &to, &from);
  }
  moth_tensor_release(index);
  moth_tensor_release(dy);
  return status;
}

MOTH_CUDA(max_pool2d_back) {
  const bool channels_last = goes_channels_last(a->input, out[0]);
  if (out[0]->l.numel == 0) return MOTH_OK;
  return (a->reach[0] > 0 ? back_by_windows : back_by_places)(a, channels_last, out[0]);
}

template <class T>
static __global__ void values_at(places p, const T *x, const int64_t *index, T *y,
                                 moth_kernel_error *kernel_error) {
  const int64_t i = thread_number();
  if (i >= p.n) return;
  const int64_t at = place_of(p, index, i, kernel_error);
  if (at < 0) put(y + i, 0);
  else y[i] = x[at];
}

MOTH_CUDA(max_pool2d_pick) {
  const moth_layout *l = &a->input->l;
  const bool channels_last = goes_channels_last(a->input, out[0]);
  const int64_t elements = l->shape[l->ndim - 2] * l->shape[l->ndim - 1];
  const places p = places_of(&a->indices->l, elements, channels_last);
  if (p.n == 0) return MOTH_OK;
  const moth_queue *q = moth_queue_of(a->ctx, out[0]->l.device);
  moth_tensor *x = moth_packed_as(a->input, channels_last);
  moth_tensor *index = moth_packed_as(a->indices, channels_last);
  int status = q && x && index ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = with_float(x->l.dtype, [&](auto t) {
      typedef typename decltype(t)::of T;
      return launch_on(a->ctx, q, values_at<T>, blocks_for(p.n), BLOCK, 0, p, data<T>(x),
                       data<int64_t>(index), data<T>(out[0]), q->kernel_error);
    });
  moth_tensor_release(x);
  moth_tensor_release(index);
  return status;
}

/* -- the mean -- */

/* The divisor of the sum over a window; 0: the window has no element. */
static __device__ inline int64_t divisor_of(const pooling &p, int oy, int ox, const int *first,
                                            const int *last) {
  const int at[2] = {oy, ox};
  int64_t n = 1;
  for (int i = 0; i < 2; i++) {
    if (first[i] >= last[i]) return 0;
    const int start = at[i] * p.w.stride[i] - p.w.padding[i];
    /* The padding at the end counts; elements beyond it do not. */
    const int rest = p.w.in[i] + p.w.padding[i] - start;
    n *= !p.count_padding ? last[i] - first[i] : rest < p.w.kernel[i] ? rest : p.w.kernel[i];
  }
  return p.divisor ? p.divisor : n;
}

template <class T> static __global__ void means(pooling p, const T *x, T *y) {
  const int64_t i = thread_number();
  int oy, ox, first[2], last[2];
  if (i >= p.n) return;
  x += place_at(p, i, p.w.in, &oy, &ox);
  window_clip(p.w, 0, oy, &first[0], &last[0]);
  window_clip(p.w, 1, ox, &first[1], &last[1]);
  real_of<T> sum = 0;
  for (int r = first[0]; r < last[0]; r++) {
    const int64_t row = (int64_t)(oy * p.w.stride[0] - p.w.padding[0] + r) * p.w.in[1];
    for (int c = first[1]; c < last[1]; c++)
      sum += get(x + (row + ox * p.w.stride[1] - p.w.padding[1] + c) * p.c.each.by);
  }
  const int64_t n = divisor_of(p, oy, ox, first, last);
  put(y + i, n ? sum / (real_of<T>)n : (real_of<T>)0);
}

template <class T> static __global__ void means_back(pooling p, const T *dy, T *dx) {
  const int64_t i = thread_number();
  int y, x, y0, y1, x0, x1;
  if (i >= p.n) return;
  dy += place_at(p, i, p.w.out, &y, &x);
  seen_by(p.w, 0, y, &y0, &y1);
  seen_by(p.w, 1, x, &x0, &x1);
  real_of<T> sum = 0;
  for (int oy = y0; oy < y1; oy++) {
    int first[2], last[2];
    int64_t at = ((int64_t)oy * p.w.out[1] + x0) * p.c.each.by;
    window_clip(p.w, 0, oy, &first[0], &last[0]);
    for (int ox = x0; ox < x1; ox++, at += p.c.each.by) {
      window_clip(p.w, 1, ox, &first[1], &last[1]);
      const int64_t n = divisor_of(p, oy, ox, first, last);
      if (n) sum += get(dy + at) / (real_of<T>)n;
    }
  }
  put(dx + i, sum);
}

MOTH_CUDA(avg_pool2d) {
  pooling p;
  const bool channels_last = goes_channels_last(a->input, out[0]);
  int status = pooling_of(&p, &a->input->l, &out[0]->l, &out[0]->l, channels_last, a->kernel_size,
                          a->stride, a->padding, ones, a->ctx);
  if (status || p.n == 0) return status;
  p.count_padding = a->count_include_pad;
  p.divisor = a->divisor_override == MOTH_NO_INT ? 0 : a->divisor_override;
  moth_tensor *x = moth_packed_as(a->input, channels_last);
  if (!x) return moth_status(a->ctx);
  status = with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], means<T>, blocks_for(p.n), BLOCK, 0, p, data<T>(x),
                  data<T>(out[0]));
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(avg_pool2d_back) {
  pooling p;
  const bool channels_last = goes_channels_last(a->input, out[0]);
  int status = pooling_of(&p, &out[0]->l, &a->input->l, &out[0]->l, channels_last, a->kernel_size,
                          a->stride, a->padding, ones, a->ctx);
  if (status || p.n == 0) return status;
  p.count_padding = a->count_include_pad;
  p.divisor = a->divisor_override == MOTH_NO_INT ? 0 : a->divisor_override;
  moth_tensor *dy = moth_packed_as(a->input, channels_last);
  if (!dy) return moth_status(a->ctx);
  status = with_float(dy->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], means_back<T>, blocks_for(p.n), BLOCK, 0, p, data<T>(dy),
                  data<T>(out[0]));
  });
  moth_tensor_release(dy);
  return status;
}
