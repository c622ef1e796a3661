/* conv.cuh -- what the files of convolution share: its geometry, and the ways to compute it. */
#ifndef MOTH_CUDA_CONV_CUH
#define MOTH_CUDA_CONV_CUH

#include "window.cuh"

struct conv_shape {
  window w;
  int64_t images, groups;
  int channels, filters; /* of a group */
  bool even;             /* the same padding on both sides */
};

enum conv_what { CONV_FORWARD, CONV_INPUT, CONV_WEIGHT };

/* One of the three: y from x and w, dx from dy and w, dw from x and dy. All tensors are of one
** dtype, and packed or all channels_last. */
struct conv_job {
  moth_ctx *ctx;
  const moth_queue *q;
  conv_what what;
  conv_shape c;
  const moth_tensor *x, *w, *y; /* images, filters, results, or their gradients */
  const moth_tensor *bias;      /* CONV_FORWARD: or NULL */
  moth_tensor *to;              /* that of the three which is computed */
  bool channels_last;           /* how the images, filters and results lie */
};

/* Scratch of n elements on the device of the job. */
static inline moth_tensor *conv_room(const conv_job &j, int64_t n, int dtype) {
  moth_layout l = {};
  l.ndim = 1;
  l.shape[0] = l.numel = n;
  l.dtype = (uint8_t)dtype;
  l.device = j.to->l.device;
  return moth_tensor_new(j.ctx, &l);
}

/* to := the sums of `splits` parts, each of to's size and of the dtype it is computed in. */
MOTH_LOCAL int moth_conv_join(const conv_job &j, const moth_tensor *parts, int64_t splits);

/* A thread for each result, or a block (conv_direct.cu): for few channels in a group. */
MOTH_LOCAL int moth_conv_direct(const conv_job &j);

/* cuDNN (cudnn.cu). *done: whether it could; if not, nothing has happened. */
MOTH_LOCAL int moth_conv_cudnn(const conv_job &j, bool *done);

#endif
