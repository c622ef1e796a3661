/* cudnn.cu -- convolution by cuDNN (dnn.cuh): its descriptors, and the keys of its plans. Only
** engines whose results repeat are used, and engines that round f32 to TF32 only if that is
** allowed. */
#include <math.h>

#include "op/conv.cuh"
#include "dnn.cuh"

enum { DNN_CROSS_CORRELATION = 1 };
enum { /* descriptors */
  DNN_CONVOLUTION = 1, DNN_FORWARD = 10, DNN_BACKWARD_FILTER = 11, DNN_BACKWARD_DATA = 12
};
enum { /* attributes */
  CONVOLUTION_TYPE = 100, CONVOLUTION_MODE, CONVOLUTION_DILATIONS, CONVOLUTION_STRIDES,
  CONVOLUTION_PADDINGS_AFTER, CONVOLUTION_PADDINGS, CONVOLUTION_SPATIAL_DIMS,
  OPERATION_FIRST = 700 /* of forward; the gradients of images and of filters have 6 values each */
};
enum { OPERATION_ALPHA, OPERATION_BETA, OPERATION_CONVOLUTION, OPERATION_W, OPERATION_X,
       OPERATION_Y, OPERATION_ATTRIBUTES };

enum { X, W, Y, BIAS, TENSORS, SUM = TENSORS }; /* SUM: y before the bias, a virtual tensor */

typedef struct conv_key {
  int64_t what, type, exact, timed, images, groups, channels, filters, channels_last;
  int64_t alignment[TENSORS]; /* of BIAS 0: there is no bias */
  window w;
  conv_side depth;
} conv_key;

/* -- descriptors -- */

static int computed_in(const conv_key *k) { return k->type == DNN_DOUBLE ? DNN_DOUBLE : DNN_FLOAT; }

/* n images of c channels; d is the depth of volumes. */
static void *describe_tensor(dnn_plan *p, const conv_key *k, int64_t name, int64_t n, int64_t c,
                             int64_t d, int64_t h, int64_t w) {
  const bool last = k->channels_last, sum = name == SUM;
  dnn_tensor t = {name, sum ? 16 : k->alignment[name], sum ? computed_in(k) : (int)k->type,
                  sum ? DNN_VIRTUAL : DNN_IN_MEMORY, {n, c, h, w},
                  {c * h * w, last ? 1 : h * w, last ? w * c : w, last ? c : 1}, 0};
  if (k->depth.kernel) {
    const int64_t shape[5] = {n, c, d, h, w}, strides[5] = {
        c * d * h * w, last ? 1 : d * h * w, last ? h * w * c : h * w, last ? w * c : w,
        last ? c : 1};
    memcpy(t.shape, shape, sizeof shape);
    memcpy(t.strides, strides, sizeof strides);
    t.more = 1;
  }
  return dnn_describe(p, &t);
}

static void *describe_convolution(dnn_plan *p, const conv_key *k) {
  const window *w = &k->w;
  const conv_side *deep = &k->depth;
  const int64_t paddings[3] = {deep->padding, w->padding[0], w->padding[1]};
  const int64_t strides[3] = {deep->stride, w->stride[0], w->stride[1]};
  const int64_t dilations[3] = {deep->dilation, w->dilation[0], w->dilation[1]};
  const int64_t first = deep->kernel ? 0 : 1, dims = 3 - first;
  const int type = computed_in(k), mode = DNN_CROSS_CORRELATION;
  void *d = dnn_begin(p, DNN_CONVOLUTION);
  dnn_set(p, d, CONVOLUTION_TYPE, DNN_IS_DATA_TYPE, 1, &type);
  dnn_set(p, d, CONVOLUTION_MODE, DNN_IS_CONV_MODE, 1, &mode);
  dnn_set(p, d, CONVOLUTION_SPATIAL_DIMS, DNN_IS_INT64, 1, &dims);
  dnn_set(p, d, CONVOLUTION_PADDINGS, DNN_IS_INT64, dims, paddings + first);
  dnn_set(p, d, CONVOLUTION_PADDINGS_AFTER, DNN_IS_INT64, dims, paddings + first);
  dnn_set(p, d, CONVOLUTION_STRIDES, DNN_IS_INT64, dims, strides + first);
  dnn_set(p, d, CONVOLUTION_DILATIONS, DNN_IS_INT64, dims, dilations + first);
  dnn_finish(p, d);
  return d;
}

/* Describes the convolution as a graph of one or two operations. */
static void describe(dnn_plan *p, const dnn_state *s, const conv_key *k) {
  static const int kinds[3] = {DNN_FORWARD, DNN_BACKWARD_DATA, DNN_BACKWARD_FILTER};
  const window *w = &k->w;
  const conv_side *d = &k->depth;
  const int first = OPERATION_FIRST + OPERATION_ATTRIBUTES * (int)k->what;
  const int real = k->type == DNN_DOUBLE ? DNN_IS_DOUBLE : DNN_IS_FLOAT;
  const int64_t all = k->filters * k->groups;
  const bool biased = k->alignment[BIAS] != 0;
  const double wide[2] = {1, 0};
  const float narrow[2] = {1, 0};
  void *x = describe_tensor(p, k, X, k->images, k->channels * k->groups, d->in, w->in[0],
                            w->in[1]);
  void *f = describe_tensor(p, k, W, all, k->channels, d->kernel, w->kernel[0], w->kernel[1]);
  void *y = describe_tensor(p, k, Y, k->images, all, d->out, w->out[0], w->out[1]);
  void *sum = y;
  if (biased) sum = describe_tensor(p, k, SUM, k->images, all, d->out, w->out[0], w->out[1]);
  void *how = describe_convolution(p, k), *operation = dnn_operation(p, kinds[k->what]);
  for (int i = OPERATION_ALPHA; i <= OPERATION_BETA; i++)
    dnn_set(p, operation, first + i, real, 1,
            real == DNN_IS_DOUBLE ? (const void *)&wide[i] : (const void *)&narrow[i]);
  dnn_set(p, operation, first + OPERATION_CONVOLUTION, DNN_IS_DESCRIPTOR, 1, &how);
  dnn_set(p, operation, first + OPERATION_W, DNN_IS_DESCRIPTOR, 1, &f);
  dnn_set(p, operation, first + OPERATION_X, DNN_IS_DESCRIPTOR, 1, &x);
  dnn_set(p, operation, first + OPERATION_Y, DNN_IS_DESCRIPTOR, 1, &sum);
  dnn_finish(p, operation);
  if (biased) {
    void *bias = describe_tensor(p, k, BIAS, 1, all, 1, 1, 1);
    const dnn_step add = {DNN_ADD, computed_in(k), sum, bias, y, NULL, 0};
    dnn_pointwise(p, &add);
  }
  dnn_close_graph(p, s);
}

/* Limit of a plan's scratch memory in bytes: engines that need channels_last convert images and
** results there. */
static int64_t max_workspace(const conv_key *k) {
  const window *w = &k->w;
  const int64_t in = k->depth.kernel ? k->depth.in : 1, out = k->depth.kernel ? k->depth.out : 1;
  const int64_t images = in * k->images * k->groups * k->channels * w->in[0] * w->in[1];
  const int64_t results = out * k->images * k->groups * k->filters * w->out[0] * w->out[1];
  return ((int64_t)1 << 30) + (images + results) * 8;
}

/* -- a convolution -- */

/* The alignment, up to the largest value that engines check. */
static int64_t alignment_of(const moth_tensor *x) { return alignment_of(moth_address(x), 0, 16); }

static bool key_of(conv_key *k, const conv_job &j) {
  const conv_shape &c = j.c;
  const int dtype = j.to->l.dtype;
  memset(k, 0, sizeof *k);
  k->what = j.what;
  k->type = dtype == MOTH_F64 ? DNN_DOUBLE : dtype == MOTH_F16 ? DNN_HALF
            : dtype == MOTH_BF16 ? DNN_BFLOAT16 : DNN_FLOAT;
  k->exact = dtype == MOTH_F32 && !moth_cudnn_is(j.ctx, MOTH_CUDNN_TF32);
  k->timed = moth_cudnn_is(j.ctx, MOTH_CUDNN_BENCHMARK);
  k->images = c.images;
  k->groups = c.groups;
  k->channels = c.channels;
  k->filters = c.filters;
  k->channels_last = j.channels_last;
  k->alignment[X] = alignment_of(j.x);
  k->alignment[W] = alignment_of(j.w);
  k->alignment[Y] = alignment_of(j.y);
  if (j.bias) k->alignment[BIAS] = alignment_of(j.bias);
  k->w = c.w;
  k->depth = c.depth;
  return c.even && j.x->l.numel < INT32_MAX && j.y->l.numel < INT32_MAX;
}

/* During a capture, uses a plan that was timed before: nothing can be timed then. */
static dnn_plan *plan_of(dnn_state *s, conv_key *k, bool captured, bool *is_new) {
  dnn_key key = dnn_key_of(*k);
  dnn_plan *p = k->timed && captured ? dnn_plan_known(s, &key) : NULL;
  *is_new = false;
  if (p) return p;
  k->timed = k->timed && !captured;
  key = dnn_key_of(*k);
  return dnn_plan_of(s, &key, INFINITY, is_new);
}

int moth_conv_cudnn(const conv_job &j, bool *done) {
  static const int64_t names[TENSORS] = {X, W, Y, BIAS};
  void *const at[TENSORS] = {moth_address(j.x), moth_address(j.w), moth_address(j.y),
                             j.bias ? moth_address(j.bias) : NULL};
  const dnn_call c = {j.ctx, j.q, j.to->l.device, j.bias ? TENSORS : BIAS, names, at};
  dnn_state *s = moth_cudnn_is(j.ctx, MOTH_CUDNN_ENABLED) ? dnn_state_of(j.q) : NULL;
  conv_key k;
  bool is_new;
  *done = false;
  if (!s || !key_of(&k, j)) return MOTH_OK;
  dnn_plan *p = plan_of(s, &k, dnn_is_captured(j.q), &is_new);
  if (!p) return MOTH_OK;
  if (is_new) {
    p->exact = k.exact;
    p->repeats = true;
    p->max_workspace = max_workspace(&k);
    describe(p, s, &k);
    dnn_choose(p, s);
    if (k.timed) dnn_choose_fastest(s, p, &c);
  }
  return dnn_run(s, p, &c, done);
}
