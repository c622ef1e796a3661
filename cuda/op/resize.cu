/* resize.cu -- resampling of planes. A first kernel computes tables of taps for both axes, with the
** CPU's formulas. The taps of neighbouring results are in ascending order, so that the results that
** use one element are a run; the gradient looks up these runs. */
#include "../../core/op/resize.h"

#include "../../core/kernel/resize_taps.h"
#include "lib/window.cuh"

struct resizing {
  int64_t in[2], out[2];
  int mode, count; /* count: number of taps on an axis */
  bool align;
  double scale[2];
  channels c;
  cells at; /* the planes of the kernel's result */
};

/* -- tables: the taps of result i are at[k * n + i], with weights weight[k * n + i] -- */

template <class real>
static __global__ void make_taps(resizing r, int axis, int64_t *to, real *weights) {
  const int64_t i = thread_number(), n = r.out[axis];
  if (i >= n) return;
  const moth_axis a = {r.in[axis], n, r.mode, r.align, r.scale[axis]};
  int64_t place[MOTH_MOST_TAPS] = {0};
  double weight[MOTH_MOST_TAPS] = {0};
  moth_taps_of(&a, sizeof(real) == 4, i, place, weight);
  for (int k = 0; k < r.count; k++) {
    to[k * n + i] = place[k];
    weights[k * n + i] = (real)weight[k];
  }
}

/* The first index in n ascending numbers whose value is at least `from`. */
static __device__ inline int64_t first_of(const int64_t *at, int64_t n, int64_t from) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (at[middle] < from) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Element i of the image is a tap of the results from run[i] to run[in + i] - 1. */
static __global__ void make_runs(int64_t in, int64_t out, int count, const int64_t *to,
                                 int64_t *run) {
  const int64_t i = thread_number();
  if (i >= in) return;
  run[i] = first_of(to + (count - 1) * out, out, i);
  run[in + i] = first_of(to, out, i + 1);
}

struct tables { /* for both axes; released after use */
  moth_tensor *at[2], *weight[2], *run[2];
};

template <class real> struct taps {
  const int64_t *at[2], *run[2];
  const real *weight[2];
};

template <class real> static taps<real> taps_of(const tables &t) {
  taps<real> s = {};
  for (int i = 0; i < 2; i++) {
    s.at[i] = data<int64_t>(t.at[i]);
    s.weight[i] = data<real>(t.weight[i]);
    s.run[i] = t.run[i] ? data<int64_t>(t.run[i]) : NULL;
  }
  return s;
}

/* -- kernels -- */

template <class T>
static __global__ void resample(resizing r, int64_t n, taps<real_of<T>> t, const T *x, T *y) {
  const int64_t i = thread_number();
  int64_t plane, channel;
  int oy, ox;
  if (i >= n) return;
  cell_of(r.at, pixel_of(r.c, i, &channel), &plane, &oy, &ox);
  x += plane * r.in[0] * r.in[1] * r.c.each.by + channel;
  if (r.count == 1) { /* a copy: a weight of 0 times infinity would be NaN */
    y[i] = x[(t.at[0][oy] * r.in[1] + t.at[1][ox]) * r.c.each.by];
    return;
  }
  real_of<T> sum = 0;
  for (int k = 0; k < r.count; k++) {
    const T *row = x + t.at[0][k * r.out[0] + oy] * r.in[1] * r.c.each.by;
    real_of<T> mixed = 0;
    for (int j = 0; j < r.count; j++)
      mixed += t.weight[1][j * r.out[1] + ox] *
               get(row + t.at[1][j * r.out[1] + ox] * r.c.each.by);
    sum += t.weight[0][k * r.out[0] + oy] * mixed;
  }
  put(y + i, sum);
}

/* The weight of element i of an axis in result o. */
template <class real>
static __device__ inline real weight_in(const resizing &r, const taps<real> &t, int axis,
                                        int64_t i, int64_t o) {
  real sum = 0;
  for (int k = 0; k < r.count; k++)
    if (t.at[axis][k * r.out[axis] + o] == i) sum += t.weight[axis][k * r.out[axis] + o];
  return sum;
}

template <class T>
static __global__ void resample_back(resizing r, int64_t n, taps<real_of<T>> t, const T *dy,
                                     T *dx) {
  const int64_t i = thread_number();
  int64_t plane, channel;
  int y, x;
  if (i >= n) return;
  cell_of(r.at, pixel_of(r.c, i, &channel), &plane, &y, &x);
  const int64_t top = t.run[0][y], bottom = t.run[0][r.in[0] + y];
  const int64_t left = t.run[1][x], right = t.run[1][r.in[1] + x];
  dy += plane * r.out[0] * r.out[1] * r.c.each.by + channel;
  real_of<T> sum = 0;
  for (int64_t ox = left; ox < right; ox++) {
    real_of<T> column = 0;
    for (int64_t oy = top; oy < bottom; oy++)
      column += weight_in(r, t, 0, y, oy) * get(dy + (oy * r.out[1] + ox) * r.c.each.by);
    sum += weight_in(r, t, 1, x, ox) * column;
  }
  put(dx + i, sum);
}

/* -- launching -- */

static moth_tensor *new_scratch(moth_ctx *ctx, const moth_tensor *y, int64_t n, int dtype) {
  moth_layout l = {};
  l.ndim = 1;
  l.shape[0] = l.numel = n;
  l.dtype = (uint8_t)dtype;
  l.device = y->l.device;
  return moth_tensor_new(ctx, &l);
}

static int tables_of(tables *t, moth_ctx *ctx, const resizing &r, const moth_tensor *y,
                     bool runs) {
  const int dtype = y->l.dtype == MOTH_F64 ? MOTH_F64 : MOTH_F32;
  for (int i = 0; i < 2; i++) {
    const int64_t n = r.out[i];
    t->at[i] = new_scratch(ctx, y, n * r.count, MOTH_I64);
    t->weight[i] = new_scratch(ctx, y, n * r.count, dtype);
    if (runs) t->run[i] = new_scratch(ctx, y, 2 * r.in[i], MOTH_I64);
    if (!t->at[i] || !t->weight[i] || (runs && !t->run[i])) return moth_status(ctx);
    int64_t *at = data<int64_t>(t->at[i]);
    int status = dtype == MOTH_F64
                     ? launch(ctx, y, make_taps<double>, blocks_for(n), BLOCK, 0, r, i, at,
                              data<double>(t->weight[i]))
                     : launch(ctx, y, make_taps<float>, blocks_for(n), BLOCK, 0, r, i, at,
                              data<float>(t->weight[i]));
    if (!status && runs)
      status = launch(ctx, y, make_runs, blocks_for(r.in[i]), BLOCK, 0, r.in[i], n, r.count, at,
                      data<int64_t>(t->run[i]));
    if (status) return status;
  }
  return MOTH_OK;
}

/* y := x resampled, or the gradient; `image` and `result` are the layouts of the forward pass. */
static int run_resize(moth_ctx *ctx, resizing r, const moth_layout *image,
                      const moth_layout *result, const moth_tensor *from, moth_tensor *to,
                      bool back) {
  const moth_layout *l = &to->l;
  const bool channels_last = goes_channels_last(from, to);
  tables t = {};
  for (int i = 0; i < 2; i++) {
    r.in[i] = image->shape[2 + i];
    r.out[i] = result->shape[2 + i];
  }
  r.count = moth_taps_count(r.mode);
  r.c = channels_of(l, channels_last);
  r.at = cells_of(planes_of(l, r.c), l->shape[2], l->shape[3]);
  if (l->numel == 0) return MOTH_OK;
  moth_tensor *x = moth_packed_as(from, channels_last);
  int status = x ? tables_of(&t, ctx, r, to, back) : moth_status(ctx);
  if (!status)
    status = with_float(l->dtype, [&](auto k) {
      typedef typename decltype(k)::of T;
      return launch(ctx, to, back ? resample_back<T> : resample<T>, blocks_for(l->numel), BLOCK, 0,
                    r, l->numel, taps_of<real_of<T>>(t), data<T>(x), data<T>(to));
    });
  for (int i = 0; i < 2; i++) {
    moth_tensor_release(t.at[i]);
    moth_tensor_release(t.weight[i]);
    moth_tensor_release(t.run[i]);
  }
  moth_tensor_release(x);
  return status;
}

template <class A> static resizing how(const A *a) {
  resizing r = {};
  r.mode = (int)a->mode;
  r.align = a->align_corners;
  r.scale[0] = a->scale_h;
  r.scale[1] = a->scale_w;
  return r;
}

MOTH_CUDA(resize) {
  return run_resize(a->ctx, how(a), &a->input->l, &out[0]->l, a->input, out[0], false);
}

MOTH_CUDA(resize_back) {
  return run_resize(a->ctx, how(a), &out[0]->l, &a->input->l, a->input, out[0], true);
}
