/* conv.cuh -- what the files of convolution share: its geometry, and the ways to compute it. */
#ifndef MOTH_CUDA_CONV_CUH
#define MOTH_CUDA_CONV_CUH

#include "lib/window.cuh"

struct conv_side { /* one axis */
  int in, out, kernel, stride, padding, dilation;
};

struct conv_shape {
  window w;
  conv_side depth; /* the first axis of volumes; kernel 0: of images, which have none */
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

/* The tensors of a convolution, one of which is its result. */
struct conv_tensors {
  const moth_tensor *x, *w, *y, *bias;
};

/* Lays out what is read, runs, and releases that again; `to` lies as the rest is to lie. */
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

/* Images (dims = 2), volumes (3) or filters that are channels_last: all of it is, where `last` can
** (it says whether it has); else packed, by way of a packed result where that is not wanted. */
template <class L, class P>
static int as_it_lies(const conv_job &j, const conv_tensors &given, int dims, L last, P packed) {
  const bool any = moth_is_channels_last(given.x) || moth_is_channels_last(given.w) ||
                   moth_is_channels_last(given.y);
  bool done = false;
  int status = MOTH_OK;
  if (any && given.x->l.ndim == dims + 2 && moth_layout_channels_last(&j.to->l))
    status = with_layout(j, given, j.to, true, [&](const conv_job &l) { return last(l, &done); });
  if (status || done) return status;
  const bool turned = moth_is_channels_last(j.to);
  moth_tensor *to = turned ? moth_tensor_new(j.ctx, &j.to->l) : NULL;
  if (turned && !to) return moth_status(j.ctx);
  status = with_layout(j, given, turned ? to : j.to, false, packed);
  if (!status && turned) status = moth_copy_into(j.to, to);
  moth_tensor_release(to);
  return status;
}

/* Checks what the ops' arguments `a` say of images (dims = 2) or volumes, and fills j but for the
** tensors that are read. */
template <class A>
static inline int conv_job_of(conv_job *j, const A *a, int dims, conv_what what,
                              const conv_tensors &given, moth_tensor *to) {
  enum { SAME = 2 };
  const moth_layout *x = &given.x->l, *y = &given.y->l, *w = &given.w->l;
  const int64_t *in = x->shape + x->ndim - dims, *made = y->shape + y->ndim - dims;
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
    status = window_of(&first, a->ctx, in, made, kernel, a->stride, padding, a->dilation);
  if (!status)
    status = window_of(&j->c.w, a->ctx, in + rest, made + rest, kernel + rest, a->stride + rest,
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

/* Scratch of n elements on the device of the job. */
static inline moth_tensor *conv_room(const conv_job &j, int64_t n, int dtype) {
  moth_layout l = {};
  l.ndim = 1;
  l.shape[0] = l.numel = n;
  l.dtype = (uint8_t)dtype;
  l.device = j.to->l.device;
  return moth_tensor_new(j.ctx, &l);
}

/* Images that are packed, by cuDNN or by Moth's own kernels (conv.cu). */
MOTH_LOCAL int moth_conv_packed(const conv_job &j);

/* to := the sums of `splits` parts, each of to's size and of the dtype it is computed in. */
MOTH_LOCAL int moth_conv_join(const conv_job &j, const moth_tensor *parts, int64_t splits);

/* A thread for each result, or a block (conv_direct.cu): for few channels in a group. */
MOTH_LOCAL int moth_conv_direct(const conv_job &j);

/* A filter for each channel (conv_depthwise.cu), of images. *done: whether there was a kernel for
** it; if not, nothing has happened. */
MOTH_LOCAL int moth_conv_depthwise(const conv_job &j, bool *done);

/* Tensor cores (conv_mma.cu), also of volumes. *done: whether they could; if not, nothing has
** happened. */
MOTH_LOCAL int moth_conv_tensor_cores(const conv_job &j, bool *done);

/* cuDNN (cudnn.cu), also of volumes. *done: whether it could; if not, nothing has happened. */
MOTH_LOCAL int moth_conv_cudnn(const conv_job &j, bool *done);

#endif
