/* cudnn.cu -- convolution by cuDNN, NVIDIA's library, where it is found at run time. Its header is
** not needed: the few types and numbers of its convolution functions that are used stand here.
**
** What describes a convolution, and the algorithm that cuDNN's heuristics name for it, is made once
** and kept. Only algorithms whose results repeat are taken, and those with a moderate workspace;
** where there is none, or anything fails, Moth's own kernels do it.
*/
#include <stdlib.h>

#include "conv.cuh"
#include "device.cuh"

/* -- the interface -- */

enum { DNN_NCHW = 0, DNN_CROSS_CORRELATION = 1, DNN_REPEATS = 1 };
enum { DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_HALF = 2, DNN_BFLOAT16 = 9 };
enum { DNN_DEFAULT_MATH = 0, DNN_TENSOR_OP_MATH = 1, DNN_FMA_MATH = 3 };

typedef struct dnn_found { /* cudnnConvolution...AlgoPerf_t */
  int algorithm, status;
  float time;
  size_t room;
  int determinism, math, reserved[3];
} dnn_found;

#define DNN_RUN(a, b, c)                                                                     \
  (void *handle, const void *alpha, void *a##_of, const void *a, void *b##_of, const void *b, \
   void *conv, int algorithm, void *room, size_t size, const void *beta, void *c##_of, void *c)
#define DNN_FIND \
  (void *handle, void *a, void *b, void *conv, void *c, int wanted, int *count, dnn_found *found)
#define DNN_ROOM (void *handle, void *a, void *b, void *conv, void *c, int algorithm, size_t *room)

#define DNN_FUNCTIONS(F)                                                                      \
  F(Create, (void **handle))                                                                  \
  F(Destroy, (void *handle))                                                                  \
  F(SetStream, (void *handle, cudaStream_t stream))                                           \
  F(CreateTensorDescriptor, (void **desc))                                                    \
  F(DestroyTensorDescriptor, (void *desc))                                                    \
  F(SetTensor4dDescriptor, (void *desc, int format, int type, int n, int c, int h, int w))    \
  F(CreateFilterDescriptor, (void **desc))                                                    \
  F(DestroyFilterDescriptor, (void *desc))                                                    \
  F(SetFilter4dDescriptor, (void *desc, int type, int format, int k, int c, int h, int w))    \
  F(CreateConvolutionDescriptor, (void **desc))                                               \
  F(DestroyConvolutionDescriptor, (void *desc))                                               \
  F(SetConvolution2dDescriptor, (void *desc, int pad_h, int pad_w, int stride_h,              \
                                 int stride_w, int dilation_h, int dilation_w, int mode,      \
                                 int type))                                                   \
  F(SetConvolutionGroupCount, (void *desc, int groups))                                       \
  F(SetConvolutionMathType, (void *desc, int math))                                           \
  F(GetConvolutionForwardAlgorithm_v7, DNN_FIND)                                              \
  F(GetConvolutionBackwardDataAlgorithm_v7, DNN_FIND)                                         \
  F(GetConvolutionBackwardFilterAlgorithm_v7, DNN_FIND)                                       \
  F(GetConvolutionForwardWorkspaceSize, DNN_ROOM)                                             \
  F(GetConvolutionBackwardDataWorkspaceSize, DNN_ROOM)                                        \
  F(GetConvolutionBackwardFilterWorkspaceSize, DNN_ROOM)                                      \
  F(ConvolutionForward, DNN_RUN(x, w, y))                                                     \
  F(ConvolutionBackwardData, DNN_RUN(w, y, x))                                                \
  F(ConvolutionBackwardFilter, DNN_RUN(x, y, w))                                              \
  F(AddTensor, (void *handle, const void *alpha, void *a_of, const void *a, const void *beta, \
                void *c_of, void *c))

#define DNN_MEMBER(name, args) int(*name) args;
#define DNN_NAME(name, args) "cudnn" #name,
#define DNN_ONE(name, args) +1
enum { DNN_COUNT = 0 DNN_FUNCTIONS(DNN_ONE) };
static union dnn_table {
  void *at[DNN_COUNT];
  struct {
    DNN_FUNCTIONS(DNN_MEMBER)
  } fn;
} dnn;
static const char *const dnn_names[] = {DNN_FUNCTIONS(DNN_NAME)};

/* -- what is kept of a context on a device -- */

typedef struct dnn_key { /* all that an answer depends on; all zero: none */
  int64_t what, type, math, images, groups, channels, filters, used;
  window w;
} dnn_key;

typedef struct dnn_plan {
  dnn_key key;
  void *x, *w, *y, *bias, *conv;
  int algorithm;
  size_t room;
  bool works;
} dnn_plan;

enum { PLANS = 512 };

typedef struct dnn_state {
  void *handle;
  dnn_plan plans[PLANS];
} dnn_state;

static void drop_plan(dnn_plan *p) {
  void *const tensors[] = {p->x, p->y, p->bias};
  for (int i = 0; i < 3; i++)
    if (tensors[i]) dnn.fn.DestroyTensorDescriptor(tensors[i]);
  if (p->w) dnn.fn.DestroyFilterDescriptor(p->w);
  if (p->conv) dnn.fn.DestroyConvolutionDescriptor(p->conv);
  memset(p, 0, sizeof *p);
}

static void close_state(void *state) {
  dnn_state *s = (dnn_state *)state;
  for (int i = 0; i < PLANS; i++) drop_plan(&s->plans[i]);
  if (s->handle) dnn.fn.Destroy(s->handle);
  free(s);
}

/* NULL: there is no library, or it does not want to. */
static dnn_state *state_of(const moth_queue *q) {
  static int there = -1;
  if (there < 0) there = moth_library_functions(LIBRARY_DNN, dnn_names, DNN_COUNT, dnn.at);
  if (!there) return NULL;
  moth_kept *kept = moth_kept_of(q, LIBRARY_DNN);
  dnn_state *s = (dnn_state *)kept->state;
  if (s) return s->handle ? s : NULL;
  s = (dnn_state *)calloc(1, sizeof *s);
  if (!s) return NULL;
  kept->state = s;
  kept->close = close_state;
  if (dnn.fn.Create(&s->handle)) s->handle = NULL;
  if (s->handle && dnn.fn.SetStream(s->handle, q->stream)) {
    dnn.fn.Destroy(s->handle);
    s->handle = NULL;
  }
  return s->handle ? s : NULL;
}

/* -- plans -- */

/* Whether all of a plan's descriptors could be made. */
static bool describe(dnn_plan *p) {
  const dnn_key *k = &p->key;
  const window *w = &k->w;
  const int type = (int)k->type, images = (int)k->images, groups = (int)k->groups;
  const int channels = (int)k->channels, all = (int)(k->filters * k->groups);
  void **const tensors[] = {&p->x, &p->y, &p->bias};
  bool failed = false;
  for (int i = 0; i < 3; i++)
    failed = failed || dnn.fn.CreateTensorDescriptor(tensors[i]);
  if (failed || dnn.fn.CreateFilterDescriptor(&p->w) ||
      dnn.fn.CreateConvolutionDescriptor(&p->conv))
    return false;
  return !dnn.fn.SetTensor4dDescriptor(p->x, DNN_NCHW, type, images, channels * groups, w->in[0],
                                       w->in[1]) &&
         !dnn.fn.SetTensor4dDescriptor(p->y, DNN_NCHW, type, images, all, w->out[0], w->out[1]) &&
         !dnn.fn.SetTensor4dDescriptor(p->bias, DNN_NCHW, type, 1, all, 1, 1) &&
         !dnn.fn.SetFilter4dDescriptor(p->w, type, DNN_NCHW, all, channels, w->kernel[0],
                                       w->kernel[1]) &&
         !dnn.fn.SetConvolution2dDescriptor(
           p->conv, w->padding[0], w->padding[1], w->stride[0], w->stride[1], w->dilation[0],
           w->dilation[1], DNN_CROSS_CORRELATION, type == DNN_DOUBLE ? DNN_DOUBLE : DNN_FLOAT) &&
         !dnn.fn.SetConvolutionGroupCount(p->conv, groups) &&
         !dnn.fn.SetConvolutionMathType(p->conv, (int)k->math);
}

/* The first algorithm that the heuristics name and that suits. */
static void choose(dnn_state *s, dnn_plan *p) {
  enum { WANTED = 8 };
  const size_t largest = (size_t)1 << 30;
  dnn_found found[WANTED];
  int count = 0, failed;
  const int what = (int)p->key.what;
  if (what == CONV_FORWARD)
    failed = dnn.fn.GetConvolutionForwardAlgorithm_v7(s->handle, p->x, p->w, p->conv, p->y, WANTED,
                                                      &count, found);
  else if (what == CONV_INPUT)
    failed = dnn.fn.GetConvolutionBackwardDataAlgorithm_v7(s->handle, p->w, p->y, p->conv, p->x,
                                                           WANTED, &count, found);
  else
    failed = dnn.fn.GetConvolutionBackwardFilterAlgorithm_v7(s->handle, p->x, p->y, p->conv, p->w,
                                                             WANTED, &count, found);
  for (int i = 0; !failed && !p->works && i < count; i++) {
    if (found[i].status || found[i].determinism != DNN_REPEATS) continue;
    p->algorithm = found[i].algorithm;
    int no = what == CONV_FORWARD
               ? dnn.fn.GetConvolutionForwardWorkspaceSize(s->handle, p->x, p->w, p->conv, p->y,
                                                           p->algorithm, &p->room)
             : what == CONV_INPUT
               ? dnn.fn.GetConvolutionBackwardDataWorkspaceSize(s->handle, p->w, p->y, p->conv,
                                                                p->x, p->algorithm, &p->room)
               : dnn.fn.GetConvolutionBackwardFilterWorkspaceSize(s->handle, p->x, p->y, p->conv,
                                                                  p->w, p->algorithm, &p->room);
    p->works = !no && p->room <= largest;
  }
}

static dnn_plan *plan_of(dnn_state *s, const dnn_key *k) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (size_t i = 0; i < sizeof *k; i++)
    hash = (hash ^ ((const unsigned char *)k)[i]) * 1099511628211u;
  dnn_plan *p = &s->plans[hash % PLANS];
  if (memcmp(&p->key, k, sizeof *k) == 0) return p;
  drop_plan(p);
  p->key = *k;
  if (describe(p)) choose(s, p);
  return p;
}

/* -- a convolution -- */

static bool key_of(dnn_key *k, const conv_job &j) {
  const conv_shape &c = j.c;
  const int dtype = j.to->l.dtype;
  memset(k, 0, sizeof *k);
  k->what = j.what;
  k->type = dtype == MOTH_F64 ? DNN_DOUBLE : dtype == MOTH_F16 ? DNN_HALF
            : dtype == MOTH_BF16 ? DNN_BFLOAT16 : DNN_FLOAT;
  k->math = dtype == MOTH_F64 ? DNN_DEFAULT_MATH
            : dtype != MOTH_F32 ? DNN_TENSOR_OP_MATH
            : moth_float32_precision(j.ctx) ? DNN_DEFAULT_MATH : DNN_FMA_MATH;
  k->images = c.images;
  k->groups = c.groups;
  k->channels = c.channels;
  k->filters = c.filters;
  k->w = c.w;
  k->used = 1;
  return c.even && j.x->l.numel < INT32_MAX && j.y->l.numel < INT32_MAX &&
         c.groups < INT32_MAX / c.filters && c.groups < INT32_MAX / c.channels;
}

int moth_conv_cudnn(const conv_job &j, bool *done) {
  const double wide[2] = {1, 0};
  const float narrow[2] = {1, 0};
  const bool is_wide = j.to->l.dtype == MOTH_F64;
  const void *one = is_wide ? (const void *)&wide[0] : &narrow[0];
  const void *zero = is_wide ? (const void *)&wide[1] : &narrow[1];
  dnn_state *s = state_of(j.q);
  dnn_key key;
  *done = false;
  if (!s || !key_of(&key, j)) return MOTH_OK;
  dnn_plan *p = plan_of(s, &key);
  if (!p->works) return MOTH_OK;
  moth_tensor *room = p->room ? conv_room(j, (int64_t)p->room, MOTH_U8) : NULL;
  if (p->room && !room) return MOTH_OK;
  void *at = room ? moth_address(room) : NULL, *x = moth_address(j.x), *w = moth_address(j.w);
  void *y = moth_address(j.y);
  int failed;
  if (j.what == CONV_FORWARD)
    failed = dnn.fn.ConvolutionForward(s->handle, one, p->x, x, p->w, w, p->conv, p->algorithm, at,
                                       p->room, zero, p->y, y);
  else if (j.what == CONV_INPUT)
    failed = dnn.fn.ConvolutionBackwardData(s->handle, one, p->w, w, p->y, y, p->conv,
                                            p->algorithm, at, p->room, zero, p->x, x);
  else
    failed = dnn.fn.ConvolutionBackwardFilter(s->handle, one, p->x, x, p->y, y, p->conv,
                                              p->algorithm, at, p->room, zero, p->w, w);
  if (!failed && j.bias)
    failed = dnn.fn.AddTensor(s->handle, one, p->bias, moth_address(j.bias), one, p->y, y);
  moth_tensor_release(room);
  p->works = !failed; /* else it is not asked again */
  *done = !failed;
  return failed ? MOTH_OK : moth_launched(j.ctx, j.q, cudaSuccess);
}
