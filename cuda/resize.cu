/* resize.cu -- resampling of planes. Tables of taps for both axes are made by a first kernel, with
** the arithmetic of core/kernel/resize.c, in which half a step decides what `nearest` takes; those
** of a neighbouring result lie at the same places or behind, so that an element's results are a
** run, which the gradient looks up.
*/
#include "../core/op/resize.h"

#include "window.cuh"

enum { NEAREST, NEAREST_EXACT, LINEAR, CUBIC, MOST_TAPS = 4 };

struct resizing {
  int64_t in[2], out[2];
  int mode, count; /* count: taps of an axis */
  bool align;
  double scale[2];
  channels c;
  cells at; /* of the kernel's results */
};

/* Not contracted, so that every machine gets the same. */
HD float times(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
HD double times(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

/* -- tables: the taps of result i are at[k * n + i], weighed with weight[k * n + i] -- */

static __device__ inline double step_of(const resizing &r, int axis) {
  const double in = (double)r.in[axis], out = (double)r.out[axis];
  if (r.align && r.mode >= LINEAR) return out > 1 ? (in - 1) / (out - 1) : 0;
  return r.scale[axis] > 0 ? 1 / r.scale[axis] : in / out;
}

static __device__ inline int64_t nearest(const resizing &r, int axis, int64_t i) {
  const float step = (float)step_of(r, axis);
  const float at = r.mode == NEAREST ? times((float)i, step) : times((float)i + 0.5f, step);
  const int64_t last = r.in[axis] - 1;
  if (!(at < 4611686018427387904.0f)) return last; /* a tiny scale: no integer is that large */
  const int64_t found = (int64_t)floorf(at);
  return found < last ? found : last;
}

static __device__ inline void linear(int64_t last, double at, int64_t *to, double *weight) {
  at = at > 0 ? at : 0;
  if (at > (double)last + 1) at = (double)last + 1;
  to[0] = (int64_t)floor(at);
  if (to[0] > last) to[0] = last;
  to[1] = to[0] + (to[0] < last);
  weight[1] = at - (double)to[0];
  if (weight[1] > 1) weight[1] = 1;
  weight[0] = 1 - weight[1];
}

/* Keys (1981), with the coefficient -0.75. */
static __device__ inline void cubic(int64_t last, double at, int64_t *to, double *weight) {
  if (at > (double)last + 2) at = (double)last + 2;
  const double A = -0.75, whole = floor(at), t = at - whole;
  const double near[2] = {t, 1 - t}, far[2] = {t + 1, 2 - t};
  for (int k = 0; k < 2; k++) {
    weight[1 + k] = ((A + 2) * near[k] - (A + 3)) * near[k] * near[k] + 1;
    weight[3 * k] = ((A * far[k] - 5 * A) * far[k] + 8 * A) * far[k] - 4 * A;
  }
  for (int k = 0; k < 4; k++) {
    const int64_t place = (int64_t)whole - 1 + k;
    to[k] = place < 0 ? 0 : place > last ? last : place;
  }
}

template <class real>
static __global__ void make_taps(resizing r, int axis, int64_t *to, real *weights) {
  const int64_t i = thread_number(), n = r.out[axis];
  if (i >= n) return;
  int64_t place[MOST_TAPS] = {0};
  double weight[MOST_TAPS] = {1};
  const real step = (real)step_of(r, axis);
  double at = r.align ? times(step, (real)i) : times(step, (real)i + (real)0.5) - (real)0.5;
  if (r.mode == LINEAR && r.in[axis] == r.out[axis]) at = (double)i;
  if (r.mode <= NEAREST_EXACT) place[0] = nearest(r, axis, i);
  else if (r.mode == LINEAR) linear(r.in[axis] - 1, at, place, weight);
  else cubic(r.in[axis] - 1, at, place, weight);
  for (int k = 0; k < r.count; k++) {
    to[k * n + i] = place[k];
    weights[k * n + i] = (real)weight[k];
  }
}

/* The first of n ascending numbers that is `from` or more. */
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

struct tables { /* of both axes, owned */
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
  if (r.count == 1) { /* a copy: 0 * inf must not come in */
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

/* What element i of an axis weighs in result o. */
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

static moth_tensor *room_for(moth_ctx *ctx, const moth_tensor *y, int64_t n, int dtype) {
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
    t->at[i] = room_for(ctx, y, n * r.count, MOTH_I64);
    t->weight[i] = room_for(ctx, y, n * r.count, dtype);
    if (runs) t->run[i] = room_for(ctx, y, 2 * r.in[i], MOTH_I64);
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

/* y := x resampled, or the gradient of it; `image` and `result` are the layouts of before and
** after. */
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
  r.count = r.mode == LINEAR ? 2 : r.mode == CUBIC ? 4 : 1;
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
