/* columns.cu -- the windows of images as columns, and columns added up to images: a thread for each
** element of the result, so that sums have one order.
*/
#include "../core/op/columns.h"

#include "numbers.cuh"

struct windows { /* [0] along the height, [1] along the width */
  int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
};

template <class A> static windows windows_of(const A *a, const int64_t *in) {
  windows w;
  for (int i = 0; i < 2; i++) {
    w.in[i] = in[i];
    w.kernel[i] = a->kernel_size[i];
    w.stride[i] = a->stride[i];
    w.padding[i] = a->padding[i];
    w.dilation[i] = a->dilation[i];
    w.out[i] = (in[i] + 2 * w.padding[i] - w.dilation[i] * (w.kernel[i] - 1) - 1) / w.stride[i] + 1;
  }
  return w;
}

/* y is (planes, kernel height, kernel width, out height, out width). */
template <class T> static __global__ void columns_out(windows w, int64_t n, const T *x, T *y) {
  const int64_t i = thread_number();
  if (i >= n) return;
  int64_t rest = i;
  const int64_t ox = rest % w.out[1];
  rest /= w.out[1];
  const int64_t oy = rest % w.out[0];
  rest /= w.out[0];
  const int64_t kx = rest % w.kernel[1];
  rest /= w.kernel[1];
  const int64_t ky = rest % w.kernel[0], plane = rest / w.kernel[0];
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
  const int64_t ix = i % w.in[1], row = i / w.in[1], iy = row % w.in[0], plane = row / w.in[0];
  real_of<T> sum = 0;
  for (int64_t ky = 0; ky < w.kernel[0]; ky++) {
    const int64_t down = iy + w.padding[0] - ky * w.dilation[0], oy = down / w.stride[0];
    if (down < 0 || down % w.stride[0] || oy >= w.out[0]) continue;
    for (int64_t kx = 0; kx < w.kernel[1]; kx++) {
      const int64_t over = ix + w.padding[1] - kx * w.dilation[1], ox = over / w.stride[1];
      if (over < 0 || over % w.stride[1] || ox >= w.out[1]) continue;
      const int64_t tap = (plane * w.kernel[0] + ky) * w.kernel[1] + kx;
      sum += get(&y[(tap * w.out[0] + oy) * w.out[1] + ox]);
    }
  }
  put(&x[i], sum);
}

MOTH_CUDA(im2col) {
  const int64_t n = out[0]->l.numel;
  const windows w = windows_of(a, &a->input->l.shape[a->input->l.ndim - 2]);
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
  const windows w = windows_of(a, a->output_size);
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
