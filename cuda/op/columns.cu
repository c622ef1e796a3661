/* columns.cu -- im2col and col2im. Each element of the result has one thread, so that sums have a
** fixed order. */
#include "../../core/op/columns.h"

#include "lib/strided.cuh"

struct windows { /* [0] along the height, [1] along the width */
  int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
  quotient_by by_in[2], by_out[2], by_kernel[2], by_stride[2];
};

/* For a kernel with n results. */
template <class A> static windows windows_of(const A *a, const int64_t *in, int64_t n) {
  windows w;
  for (int i = 0; i < 2; i++) {
    w.in[i] = in[i];
    w.kernel[i] = a->kernel_size[i];
    w.stride[i] = a->stride[i];
    w.padding[i] = a->padding[i];
    w.dilation[i] = a->dilation[i];
    w.out[i] = (in[i] + 2 * w.padding[i] - w.dilation[i] * (w.kernel[i] - 1) - 1) / w.stride[i] + 1;
    w.by_in[i] = quotients(w.in[i], n);
    w.by_out[i] = quotients(w.out[i], n);
    w.by_kernel[i] = quotients(w.kernel[i], n);
    w.by_stride[i] = quotients(w.stride[i], in[i] + w.padding[i]);
  }
  return w;
}

/* Divides *n by d and returns the remainder. */
static __device__ inline int64_t rest_of(int64_t *n, const quotient_by &by) {
  const int64_t all = *n;
  *n = divide(all, by);
  return all - *n * by.by;
}

/* y is (planes, kernel height, kernel width, out height, out width). */
template <class T> static __global__ void columns_out(windows w, int64_t n, const T *x, T *y) {
  const int64_t i = thread_number();
  if (i >= n) return;
  int64_t plane = i;
  const int64_t ox = rest_of(&plane, w.by_out[1]), oy = rest_of(&plane, w.by_out[0]);
  const int64_t kx = rest_of(&plane, w.by_kernel[1]), ky = rest_of(&plane, w.by_kernel[0]);
  const int64_t iy = oy * w.stride[0] - w.padding[0] + ky * w.dilation[0];
  const int64_t ix = ox * w.stride[1] - w.padding[1] + kx * w.dilation[1];
  T v;
  memset(&v, 0, sizeof v);
  if (iy >= 0 && iy < w.in[0] && ix >= 0 && ix < w.in[1])
    v = x[(plane * w.in[0] + iy) * w.in[1] + ix];
  y[i] = v;
}

template <class T> static __global__ void columns_in(windows w, int64_t n, const T *y, T *x) {
  const int64_t i = thread_number();
  if (i >= n) return;
  int64_t plane = i;
  const int64_t ix = rest_of(&plane, w.by_in[1]), iy = rest_of(&plane, w.by_in[0]);
  real_of<T> sum = 0;
  for (int64_t ky = 0; ky < w.kernel[0]; ky++) {
    int64_t oy = iy + w.padding[0] - ky * w.dilation[0];
    if (oy < 0) break;
    if (rest_of(&oy, w.by_stride[0]) || oy >= w.out[0]) continue;
    for (int64_t kx = 0; kx < w.kernel[1]; kx++) {
      int64_t ox = ix + w.padding[1] - kx * w.dilation[1];
      if (ox < 0) break;
      if (rest_of(&ox, w.by_stride[1]) || ox >= w.out[1]) continue;
      const int64_t tap = (plane * w.kernel[0] + ky) * w.kernel[1] + kx;
      sum += get(&y[(tap * w.out[0] + oy) * w.out[1] + ox]);
    }
  }
  put(&x[i], sum);
}

MOTH_CUDA(im2col) {
  const int64_t n = out[0]->l.numel;
  const windows w = windows_of(a, &a->input->l.shape[a->input->l.ndim - 2], n);
  moth_tensor *x = moth_packed(a->input);
  if (!x) return moth_status(a->ctx);
  int status = n == 0 ? MOTH_OK : with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], columns_out<T>, blocks_for(n), BLOCK, 0, w, n, data<T>(x),
                  data<T>(out[0]));
  });
  moth_tensor_release(x);
  return status;
}

MOTH_CUDA(fold) {
  const int64_t n = out[0]->l.numel;
  const windows w = windows_of(a, a->output_size, n);
  moth_tensor *x = moth_packed(a->input);
  if (!x) return moth_status(a->ctx);
  int status = n == 0 ? MOTH_OK : with_float(x->l.dtype, [&](auto t) {
    typedef typename decltype(t)::of T;
    return launch(a->ctx, out[0], columns_in<T>, blocks_for(n), BLOCK, 0, w, n, data<T>(x),
                  data<T>(out[0]));
  });
  moth_tensor_release(x);
  return status;
}
