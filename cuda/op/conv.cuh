/* conv.cuh -- shared by the files of convolution: its geometry, and the functions that compute it.
*/
#ifndef MOTH_CUDA_CONV_CUH
#define MOTH_CUDA_CONV_CUH

#include "lib/window.cuh"

struct conv_side { /* one axis */
  int in, out, kernel, stride, padding, dilation;
};

struct conv_shape {
  window w;
  conv_side depth; /* the first axis of volumes; kernel is 0 for images, which have no such axis */
  int64_t images, groups;
  int channels, filters; /* of one group */
  bool even;             /* the same padding on both sides */
};

enum conv_what { CONV_FORWARD, CONV_INPUT, CONV_WEIGHT };

/* One of the three: y from x and w, dx from dy and w, or dw from x and dy. All tensors have one
** dtype, and are all packed or all channels_last. */
struct conv_job {
  moth_ctx *ctx;
  const moth_queue *q;
  conv_what what;
  conv_shape c;
  const moth_tensor *x, *w, *y; /* images, filters, and results (or their gradients) */
  const moth_tensor *bias;      /* CONV_FORWARD only; or NULL */
  moth_tensor *to;              /* the one of the three that is computed */
  bool channels_last;           /* memory format of the images, filters and results */
};

/* The tensors of a convolution; one of them is its result. */
struct conv_tensors {
  const moth_tensor *x, *w, *y, *bias;
};

/* Copies the inputs to the job's memory format, runs f, and releases the copies. `to` has that
** format already. */
template <class F>
static int with_layout(conv_job j, const conv_tensors &given, moth_tensor *to, bool channels_last,
                       F run) {
  const moth_tensor *from[4] = {given.x, given.w, given.y, given.bias};
  const moth_tensor **place[4] = {&j.x, &j.w, &j.y, &j.bias};
  moth_tensor *packed[4] = {};
  int status = MOTH_OK;
  for (int i = 0; !status && i < 4; i++) {
    *place[i] = from[i] == j.to ? to : NULL;
    if (!from[i] || from[i] == j.to) continue;
    *place[i] = packed[i] = moth_packed_as(from[i], channels_last && i < 3);
    if (!packed[i]) status = moth_status(j.ctx);
  }
  j.to = to;
  j.channels_last = channels_last;
  if (!status) status = run(j);
  for (int i = 0; i < 4; i++) moth_tensor_release(packed[i]);
  return status;
}

/* Images (dims = 2), volumes (3) or filters in channels_last: computes in that format if `last` can
** (it sets *done); else with packed copies, and a packed result if `to` is not packed. */
template <class L, class P>
static int as_it_lies(const conv_job &j, const conv_tensors &given, int dims, L last, P packed) {
  const bool any = moth_is_channels_last(given.x) || moth_is_channels_last(given.w) ||
                   moth_is_channels_last(given.y);
  bool done = false;
  int status = MOTH_OK;
  if (any && given.x->l.ndim == dims + 2 && moth_layout_channels_last(&j.to->l))
    status = with_layout(j, given, j.to, true, [&](const conv_job &l) { return last(l, &done); });
  if (status || done) return status;
  const bool transposed = moth_is_channels_last(j.to);
  moth_tensor *to = transposed ? moth_tensor_new(j.ctx, &j.to->l) : NULL;
  if (transposed && !to) return moth_status(j.ctx);
  status = with_layout(j, given, transposed ? to : j.to, false, packed);
  if (!status && transposed) status = moth_copy_into(j.to, to);
  moth_tensor_release(to);
  return status;
}

/* Checks the ops' arguments `a` for images (dims = 2) or volumes, and fills j except for the input
** tensors. */
template <class A>
static inline int conv_job_of(conv_job *j, const A *a, int dims, conv_what what,
                              const conv_tensors &given, moth_tensor *to) {
  enum { SAME = 2 };
  const moth_layout *x = &given.x->l, *y = &given.y->l, *w = &given.w->l;
  const int64_t *in = x->shape + x->ndim - dims, *written = y->shape + y->ndim - dims;
  const int64_t *kernel = w->shape + 2;
  const int rest = dims - 2;
  int64_t padding[3], taps = 1;
  window first;
  *j = conv_job{a->ctx, moth_queue_of(a->ctx, to->l.device), what, {}, NULL, NULL, NULL, NULL, to,
                false};
  j->c.even = true;
  for (int i = 0; i < dims; i++) {
    const int64_t border = a->dilation[i] * (kernel[i] - 1);
    padding[i] = a->padding.choice == SAME ? border / 2 : a->padding.choice ? 0 : a->padding.at[i];
    j->c.even = j->c.even && (a->padding.choice != SAME || border % 2 == 0);
    taps *= kernel[i];
  }
  j->c.images = x->ndim == dims + 2 ? x->shape[0] : 1;
  j->c.groups = a->groups;
  j->c.channels = (int)w->shape[1];
  j->c.filters = (int)(w->shape[0] / a->groups);
  int status = j->q ? MOTH_OK : moth_status(a->ctx);
  if (!status)
    status = window_of(&first, a->ctx, in, written, kernel, a->stride, padding, a->dilation);
  if (!status)
    status = window_of(&j->c.w, a->ctx, in + rest, written + rest, kernel + rest, a->stride + rest,
                       padding + rest, a->dilation + rest);
  if (status) return status;
  if (rest)
    j->c.depth = conv_side{first.in[0], first.out[0], first.kernel[0], first.stride[0],
                           first.padding[0], first.dilation[0]};
  if (to->l.numel && (int64_t)j->c.channels * j->c.filters * taps >= INT32_MAX)
    return moth_fail(a->ctx, MOTH_E_UNSUPPORTED, NULL,
                     "filters of 2^31 elements and more are not supported on a GPU");
  return MOTH_OK;
}

/* A scratch tensor of n elements on the job's device. */
static inline moth_tensor *conv_scratch(const conv_job &j, int64_t n, int dtype) {
  moth_layout l = {};
  l.ndim = 1;
  l.shape[0] = l.numel = n;
  l.dtype = (uint8_t)dtype;
  l.device = j.to->l.device;
  return moth_tensor_new(j.ctx, &l);
}

/* Packed images: cuDNN, or Moth's own kernels (conv.cu). */
MOTH_LOCAL int moth_conv_packed(const conv_job &j);

/* to := the sum of `splits` partial results. Each has to's size and the dtype of sums. */
MOTH_LOCAL int moth_conv_join(const conv_job &j, const moth_tensor *parts, int64_t splits);

/* A thread or a block for each result (conv_direct.cu): for few channels in a group. */
MOTH_LOCAL int moth_conv_direct(const conv_job &j);

/* Depthwise convolution of images (conv_depthwise.cu). *done: whether a kernel exists; if not,
** nothing has been written. */
MOTH_LOCAL int moth_conv_depthwise(const conv_job &j, bool *done);

/* Tensor cores (conv_mma.cu), also for volumes. *done: whether a kernel exists; if not, nothing has
** been written. */
MOTH_LOCAL int moth_conv_tensor_cores(const conv_job &j, bool *done);

/* cuDNN (cudnn.cu), also for volumes. *done: whether cuDNN could; if not, nothing has been written.
*/
MOTH_LOCAL int moth_conv_cudnn(const conv_job &j, bool *done);

#endif
