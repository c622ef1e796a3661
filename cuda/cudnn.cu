/* cudnn.cu -- convolution by cuDNN, NVIDIA's library, where it is found at run time, through its
** graph interface: what is wanted is described by descriptors with attributes, and its heuristics
** name engines for it, the best one first. Its header is not needed: the few numbers of the stable
** interface that are used stand here.
**
** The plan that comes of it is made once and kept with all that it depends on. Only engines whose
** results repeat are taken, those that narrow f32 only where that is allowed, and those with a
** moderate workspace; where there is none, or it fails, Moth's own kernels do it.
*/
#include <pthread.h>
#include <stdlib.h>

#include "conv.cuh"
#include "device.cuh"

/* -- the interface -- */

enum { DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_HALF = 2, DNN_BFLOAT16 = 9, DNN_CROSS_CORRELATION = 1,
       DNN_ADD = 0 };

enum { /* what an attribute's values are */
  DNN_IS_HANDLE = 0, DNN_IS_DATA_TYPE = 1, DNN_IS_BOOLEAN = 2, DNN_IS_INT64 = 3,
  DNN_IS_FLOAT = 4, DNN_IS_DOUBLE = 5, DNN_IS_POINTER = 6, DNN_IS_CONV_MODE = 7,
  DNN_IS_HEURISTICS_MODE = 8, DNN_IS_NOTE = 11, DNN_IS_POINTWISE_MODE = 14,
  DNN_IS_DESCRIPTOR = 15
};

enum { /* descriptors */
  DNN_POINTWISE = 0, DNN_CONVOLUTION = 1, DNN_ENGINE = 2, DNN_CONFIG = 3, DNN_HEURISTICS = 4,
  DNN_PLAN = 5, DNN_FORWARD = 10, DNN_BACKWARD_FILTER = 11, DNN_BACKWARD_DATA = 12,
  DNN_POINTWISE_OPERATION = 13, DNN_GRAPH = 15, DNN_VARIANT = 16, DNN_TENSOR = 17
};

enum { /* attributes */
  POINTWISE_MODE = 0, POINTWISE_TYPE,
  CONVOLUTION_TYPE = 100, CONVOLUTION_MODE, CONVOLUTION_DILATIONS, CONVOLUTION_STRIDES,
  CONVOLUTION_PADDINGS_AFTER, CONVOLUTION_PADDINGS, CONVOLUTION_SPATIAL_DIMS,
  HEURISTICS_MODE = 200, HEURISTICS_GRAPH, HEURISTICS_RESULTS,
  CONFIG_ENGINE = 300,
  PLAN_HANDLE = 400, PLAN_CONFIG, PLAN_ROOM,
  OPERATION_FIRST = 700, /* of forward; 6 each for the gradients of images and of filters */
  POINTWISE_HOW = 750, POINTWISE_X, POINTWISE_B, POINTWISE_Y,
  GRAPH_HANDLE = 800, GRAPH_OPERATIONS,
  TENSOR_ALIGNMENT = 900, TENSOR_TYPE, TENSOR_SHAPE, TENSOR_STRIDES, TENSOR_NAME = 906,
  TENSOR_IS_VIRTUAL,
  VARIANT_NAMES = 1000, VARIANT_POINTERS, VARIANT_ROOM = 1003,
  ENGINE_NOTES = 1303
};
enum { OPERATION_ALPHA, OPERATION_BETA, OPERATION_CONVOLUTION, OPERATION_W, OPERATION_X,
       OPERATION_Y, OPERATION_ATTRIBUTES };
enum { MODE_FALLBACK = 2, MODE_A = 3 };
enum { NOTE_TENSOR_CORES = 0, NOTE_NARROWS = 1, NOTE_NOT_REPEATABLE = 4 };

#define DNN_FUNCTIONS(F)                                                                       \
  F(Create, (void **handle))                                                                   \
  F(Destroy, (void *handle))                                                                   \
  F(SetStream, (void *handle, cudaStream_t stream))                                            \
  F(BackendCreateDescriptor, (int kind, void **desc))                                          \
  F(BackendDestroyDescriptor, (void *desc))                                                    \
  F(BackendSetAttribute, (void *desc, int name, int type, int64_t n, const void *values))      \
  F(BackendGetAttribute, (void *desc, int name, int type, int64_t most, int64_t *n, void *to)) \
  F(BackendFinalize, (void *desc))                                                             \
  F(BackendExecute, (void *handle, void *plan, void *variant))

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

enum { X, W, Y, BIAS, TENSORS, SUM = TENSORS }; /* SUM: y before the bias, never in memory */

typedef struct dnn_key { /* all that an answer depends on */
  int64_t what, type, exact, timed, images, groups, channels, filters, channels_last;
  int64_t alignment[TENSORS]; /* of BIAS 0: there is none */
  window w;
} dnn_key;

enum { MOST_MADE = 24, MOST_TIMED = 10, PLANS = 512 };

typedef struct dnn_plan {
  dnn_key key;
  void *made[MOST_MADE]; /* descriptors that it consists of */
  int count, tried;      /* of them; configurations that were gone through */
  bool taken, failed, has_run;
  void *graph, *plan; /* plan == NULL: there is none */
  size_t room;
} dnn_plan;

typedef struct dnn_state {
  void *handle;
  dnn_plan plans[PLANS];
} dnn_state;

static void drop_plan(dnn_plan *p) {
  if (p->plan) dnn.fn.BackendDestroyDescriptor(p->plan);
  while (p->count > 0) dnn.fn.BackendDestroyDescriptor(p->made[--p->count]);
  memset(p, 0, sizeof *p);
}

static void close_state(void *state) {
  dnn_state *s = (dnn_state *)state;
  for (int i = 0; i < PLANS; i++) drop_plan(&s->plans[i]);
  if (s->handle) dnn.fn.Destroy(s->handle);
  free(s);
}

static bool there;
static pthread_once_t looked = PTHREAD_ONCE_INIT;
static void look(void) {
  there = moth_library_functions(LIBRARY_DNN, dnn_names, DNN_COUNT, dnn.at);
}

/* NULL: there is no library, or it does not want to. */
static dnn_state *state_of(const moth_queue *q) {
  pthread_once(&looked, look);
  if (!there) return NULL;
  moth_library_state *kept = moth_library_state_of(q, LIBRARY_DNN);
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

/* -- descriptors of a plan: once one has failed, nothing more happens -- */

static void *begin(dnn_plan *p, int kind) {
  void *d = NULL;
  p->failed = p->failed || p->count == MOST_MADE || dnn.fn.BackendCreateDescriptor(kind, &d);
  if (p->failed) return NULL;
  p->made[p->count++] = d;
  return d;
}

static void set(dnn_plan *p, void *d, int name, int type, int64_t n, const void *values) {
  p->failed = p->failed || dnn.fn.BackendSetAttribute(d, name, type, n, values);
}

static void finish(dnn_plan *p, void *d) { p->failed = p->failed || dnn.fn.BackendFinalize(d); }

static int computed_in(const dnn_key *k) { return k->type == DNN_DOUBLE ? DNN_DOUBLE : DNN_FLOAT; }

static void *describe_tensor(dnn_plan *p, int64_t name, int64_t n, int64_t c, int64_t h,
                             int64_t w) {
  const bool channels_last = p->key.channels_last;
  const int64_t shape[4] = {n, c, h, w};
  const int64_t strides[4] = {c * h * w, channels_last ? 1 : h * w, channels_last ? w * c : w,
                              channels_last ? c : 1};
  const bool is_virtual = name == SUM;
  const int type = is_virtual ? computed_in(&p->key) : (int)p->key.type;
  const int64_t alignment = is_virtual ? 16 : p->key.alignment[name];
  void *d = begin(p, DNN_TENSOR);
  set(p, d, TENSOR_TYPE, DNN_IS_DATA_TYPE, 1, &type);
  set(p, d, TENSOR_SHAPE, DNN_IS_INT64, 4, shape);
  set(p, d, TENSOR_STRIDES, DNN_IS_INT64, 4, strides);
  set(p, d, TENSOR_NAME, DNN_IS_INT64, 1, &name);
  set(p, d, TENSOR_ALIGNMENT, DNN_IS_INT64, 1, &alignment);
  set(p, d, TENSOR_IS_VIRTUAL, DNN_IS_BOOLEAN, 1, &is_virtual);
  finish(p, d);
  return d;
}

static void *describe_convolution(dnn_plan *p) {
  const window *w = &p->key.w;
  const int64_t padding[2] = {w->padding[0], w->padding[1]};
  const int64_t stride[2] = {w->stride[0], w->stride[1]};
  const int64_t dilation[2] = {w->dilation[0], w->dilation[1]}, dims = 2;
  const int type = computed_in(&p->key), mode = DNN_CROSS_CORRELATION;
  void *d = begin(p, DNN_CONVOLUTION);
  set(p, d, CONVOLUTION_TYPE, DNN_IS_DATA_TYPE, 1, &type);
  set(p, d, CONVOLUTION_MODE, DNN_IS_CONV_MODE, 1, &mode);
  set(p, d, CONVOLUTION_SPATIAL_DIMS, DNN_IS_INT64, 1, &dims);
  set(p, d, CONVOLUTION_PADDINGS, DNN_IS_INT64, 2, padding);
  set(p, d, CONVOLUTION_PADDINGS_AFTER, DNN_IS_INT64, 2, padding);
  set(p, d, CONVOLUTION_STRIDES, DNN_IS_INT64, 2, stride);
  set(p, d, CONVOLUTION_DILATIONS, DNN_IS_INT64, 2, dilation);
  finish(p, d);
  return d;
}

/* y := sum + bias, before rounding. */
static void *describe_bias(dnn_plan *p, void *sum, void *y) {
  const int type = computed_in(&p->key), mode = DNN_ADD;
  void *bias = describe_tensor(p, BIAS, 1, p->key.filters * p->key.groups, 1, 1);
  void *how = begin(p, DNN_POINTWISE), *operation = begin(p, DNN_POINTWISE_OPERATION);
  set(p, how, POINTWISE_MODE, DNN_IS_POINTWISE_MODE, 1, &mode);
  set(p, how, POINTWISE_TYPE, DNN_IS_DATA_TYPE, 1, &type);
  finish(p, how);
  set(p, operation, POINTWISE_HOW, DNN_IS_DESCRIPTOR, 1, &how);
  set(p, operation, POINTWISE_X, DNN_IS_DESCRIPTOR, 1, &sum);
  set(p, operation, POINTWISE_B, DNN_IS_DESCRIPTOR, 1, &bias);
  set(p, operation, POINTWISE_Y, DNN_IS_DESCRIPTOR, 1, &y);
  finish(p, operation);
  return operation;
}

/* What is wanted, as a graph of one operation or two. */
static void describe(dnn_plan *p, void *handle) {
  static const int kinds[3] = {DNN_FORWARD, DNN_BACKWARD_DATA, DNN_BACKWARD_FILTER};
  const dnn_key *k = &p->key;
  const window *w = &k->w;
  const int first = OPERATION_FIRST + OPERATION_ATTRIBUTES * (int)k->what;
  const int real = k->type == DNN_DOUBLE ? DNN_IS_DOUBLE : DNN_IS_FLOAT;
  const int64_t all = k->filters * k->groups;
  const bool biased = k->alignment[BIAS] != 0;
  const double wide[2] = {1, 0};
  const float narrow[2] = {1, 0};
  void *x = describe_tensor(p, X, k->images, k->channels * k->groups, w->in[0], w->in[1]);
  void *f = describe_tensor(p, W, all, k->channels, w->kernel[0], w->kernel[1]);
  void *y = describe_tensor(p, Y, k->images, all, w->out[0], w->out[1]);
  void *sum = biased ? describe_tensor(p, SUM, k->images, all, w->out[0], w->out[1]) : y;
  void *how = describe_convolution(p), *operations[2] = {begin(p, kinds[k->what])};
  for (int i = OPERATION_ALPHA; i <= OPERATION_BETA; i++)
    set(p, operations[0], first + i, real, 1,
        real == DNN_IS_DOUBLE ? (const void *)&wide[i] : (const void *)&narrow[i]);
  set(p, operations[0], first + OPERATION_CONVOLUTION, DNN_IS_DESCRIPTOR, 1, &how);
  set(p, operations[0], first + OPERATION_W, DNN_IS_DESCRIPTOR, 1, &f);
  set(p, operations[0], first + OPERATION_X, DNN_IS_DESCRIPTOR, 1, &x);
  set(p, operations[0], first + OPERATION_Y, DNN_IS_DESCRIPTOR, 1, &sum);
  finish(p, operations[0]);
  if (biased) operations[1] = describe_bias(p, sum, y);
  p->graph = begin(p, DNN_GRAPH);
  set(p, p->graph, GRAPH_HANDLE, DNN_IS_HANDLE, 1, &handle);
  set(p, p->graph, GRAPH_OPERATIONS, DNN_IS_DESCRIPTOR, biased ? 2 : 1, operations);
  finish(p, p->graph);
}

/* -- engines -- */

/* Bytes of scratch that a plan may ask for: engines that want channels to lie side by side turn
** images and results there. */
static int64_t most_room(const dnn_key *k) {
  const window *w = &k->w;
  const int64_t images = k->images * k->groups * k->channels * w->in[0] * w->in[1];
  const int64_t results = k->images * k->groups * k->filters * w->out[0] * w->out[1];
  return ((int64_t)1 << 30) + (images + results) * 8;
}

static bool suits(const dnn_key *k, void *config) {
  enum { NOTES = 32 };
  void *engine = NULL;
  int notes[NOTES];
  int64_t n = 0;
  if (dnn.fn.BackendCreateDescriptor(DNN_ENGINE, &engine)) return false;
  bool good = !dnn.fn.BackendGetAttribute(config, CONFIG_ENGINE, DNN_IS_DESCRIPTOR, 1, &n,
                                          &engine) &&
              !dnn.fn.BackendGetAttribute(engine, ENGINE_NOTES, DNN_IS_NOTE, NOTES, &n, notes);
  for (int64_t i = 0; good && i < n && i < NOTES; i++)
    good = notes[i] != NOTE_NOT_REPEATABLE &&
           !(k->exact && (notes[i] == NOTE_TENSOR_CORES || notes[i] == NOTE_NARROWS));
  dnn.fn.BackendDestroyDescriptor(engine);
  return good;
}

/* Makes p's plan of a configuration, if it can and may. */
static bool take(dnn_plan *p, void *handle, void *config) {
  void *plan = NULL;
  int64_t room = 0, n = 0;
  if (!suits(&p->key, config) || dnn.fn.BackendCreateDescriptor(DNN_PLAN, &plan)) return false;
  if (!dnn.fn.BackendSetAttribute(plan, PLAN_HANDLE, DNN_IS_HANDLE, 1, &handle) &&
      !dnn.fn.BackendSetAttribute(plan, PLAN_CONFIG, DNN_IS_DESCRIPTOR, 1, &config) &&
      !dnn.fn.BackendFinalize(plan) &&
      !dnn.fn.BackendGetAttribute(plan, PLAN_ROOM, DNN_IS_INT64, 1, &n, &room) &&
      room >= 0 && room <= most_room(&p->key)) {
    p->plan = plan;
    p->room = (size_t)room;
    return true;
  }
  dnn.fn.BackendDestroyDescriptor(plan);
  return false;
}

/* Goes on through what the heuristics name in one of their modes; *at counts them. */
static void choose_in(dnn_plan *p, void *handle, int mode, int *at) {
  enum { MOST = 64 };
  void *heuristics = NULL, *configs[MOST];
  int64_t found = 0, made = 0;
  if (dnn.fn.BackendCreateDescriptor(DNN_HEURISTICS, &heuristics)) return;
  const bool ready =
    !dnn.fn.BackendSetAttribute(heuristics, HEURISTICS_GRAPH, DNN_IS_DESCRIPTOR, 1, &p->graph) &&
    !dnn.fn.BackendSetAttribute(heuristics, HEURISTICS_MODE, DNN_IS_HEURISTICS_MODE, 1, &mode) &&
    !dnn.fn.BackendFinalize(heuristics);
  while (ready && made < MOST && !dnn.fn.BackendCreateDescriptor(DNN_CONFIG, &configs[made]))
    made++;
  if (made && dnn.fn.BackendGetAttribute(heuristics, HEURISTICS_RESULTS, DNN_IS_DESCRIPTOR, made,
                                         &found, configs))
    found = 0;
  for (int64_t i = 0; i < found && i < made && !p->plan; i++, ++*at) {
    if (*at < p->tried) continue;
    p->tried = *at + 1;
    if (!take(p, handle, configs[i])) continue;
    void *const chosen = configs[i]; /* lives as long as the plan */
    configs[i] = configs[--made];
    p->made[p->count++] = chosen;
  }
  while (made > 0) dnn.fn.BackendDestroyDescriptor(configs[--made]);
  dnn.fn.BackendDestroyDescriptor(heuristics);
}

/* The next plan after those that were tried. */
static void choose(dnn_plan *p, void *handle) {
  int at = 0;
  if (p->plan) dnn.fn.BackendDestroyDescriptor(p->plan);
  p->plan = NULL;
  if (p->failed || p->count == MOST_MADE) return;
  choose_in(p, handle, MODE_A, &at);
  if (!p->plan) choose_in(p, handle, MODE_FALLBACK, &at);
}

static dnn_plan *plan_of(dnn_state *s, const dnn_key *k, bool *is_new) {
  dnn_plan *p = plan_for(s->plans, *k, is_new);
  if (!*is_new) return p;
  drop_plan(p);
  p->key = *k;
  p->taken = true;
  describe(p, s->handle);
  choose(p, s->handle);
  return p;
}

/* -- a convolution -- */

/* As far as engines ask. */
static int64_t alignment_of(const moth_tensor *x) { return alignment_of(moth_address(x), 0, 16); }

static bool key_of(dnn_key *k, const conv_job &j) {
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
  return c.even && j.x->l.numel < INT32_MAX && j.y->l.numel < INT32_MAX;
}

/* Whether it ran, or stands in the stream. */
static bool execute(const dnn_state *s, const dnn_plan *p, const conv_job &j, void *room) {
  const int64_t names[TENSORS] = {X, W, Y, BIAS}, n = j.bias ? TENSORS : BIAS;
  void *const at[TENSORS] = {moth_address(j.x), moth_address(j.w), moth_address(j.y),
                             j.bias ? moth_address(j.bias) : NULL};
  void *variant = NULL;
  if (dnn.fn.BackendCreateDescriptor(DNN_VARIANT, &variant)) return false;
  const bool ran =
    !dnn.fn.BackendSetAttribute(variant, VARIANT_NAMES, DNN_IS_INT64, n, names) &&
    !dnn.fn.BackendSetAttribute(variant, VARIANT_POINTERS, DNN_IS_POINTER, n, at) &&
    !dnn.fn.BackendSetAttribute(variant, VARIANT_ROOM, DNN_IS_POINTER, 1, &room) &&
    !dnn.fn.BackendFinalize(variant) && !dnn.fn.BackendExecute(s->handle, p->plan, variant);
  dnn.fn.BackendDestroyDescriptor(variant);
  return ran;
}

/* Milliseconds that a plan takes, at best of some; below 0: it does not run. */
static float time_of(const dnn_state *s, const dnn_plan *p, const conv_job &j) {
  enum { RUNS = 4 }; /* the first one also brings the kernel */
  moth_tensor *room = p->room ? conv_room(j, (int64_t)p->room, MOTH_U8) : NULL;
  void *at = room ? moth_address(room) : NULL;
  cudaEvent_t from = NULL, to = NULL;
  float best = -1, now = -1;
  bool good = (at || !p->room) && !cudaEventCreateWithFlags(&from, cudaEventDefault) &&
              !cudaEventCreateWithFlags(&to, cudaEventDefault);
  for (int i = 0; good && i < RUNS; i++) {
    good = !cudaEventRecord(from, j.q->stream) && execute(s, p, j, at) &&
           !cudaEventRecord(to, j.q->stream) && !cudaEventSynchronize(to) &&
           !cudaEventElapsedTime(&now, from, to);
    if (i > 0 && good && (best < 0 || now < best)) best = now;
  }
  if (from) cudaEventDestroy(from);
  if (to) cudaEventDestroy(to);
  moth_tensor_release(room);
  return good ? best : -1;
}

/* Whether what a stream is asked for goes into a graph: then nothing can be waited for. */
static bool is_captured(cudaStream_t stream) {
#ifdef __CUDACC__
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) || status != cudaStreamCaptureStatusNone;
#else
  (void)stream;
  return false;
#endif
}

/* Leaves the fastest of the plans that the heuristics name first. */
static void choose_fastest(const dnn_state *s, dnn_plan *p, const conv_job &j) {
  void *best = NULL;
  size_t room = 0;
  float least = 0;
  for (int i = 0; i < MOST_TIMED && p->plan; i++, choose(p, s->handle)) {
    const float time = time_of(s, p, j);
    if (time < 0 || (best && time >= least)) continue;
    if (best) dnn.fn.BackendDestroyDescriptor(best);
    best = p->plan;
    room = p->room;
    least = time;
    p->plan = NULL; /* else choose() drops it */
  }
  if (p->plan) dnn.fn.BackendDestroyDescriptor(p->plan);
  p->plan = best;
  p->room = room;
}

int moth_conv_cudnn(const conv_job &j, bool *done) {
  dnn_state *s = moth_cudnn_is(j.ctx, MOTH_CUDNN_ENABLED) ? state_of(j.q) : NULL;
  dnn_key key;
  bool is_new;
  *done = false;
  if (!s || !key_of(&key, j)) return MOTH_OK;
  dnn_plan *p = plan_of(s, &key, &is_new);
  if (is_new && key.timed && !is_captured(j.q->stream)) choose_fastest(s, p, j);
  while (p->plan && !*done) {
    moth_tensor *room = p->room ? conv_room(j, (int64_t)p->room, MOTH_U8) : NULL;
    if (p->room && !room) return MOTH_OK;
    *done = execute(s, p, j, room ? moth_address(room) : NULL);
    moth_tensor_release(room);
    if (*done) p->has_run = true;
    else if (!p->has_run) choose(p, s->handle); /* some say only now that they cannot */
    else return MOTH_OK;
  }
  return *done ? moth_launched(j.ctx, j.q, cudaSuccess) : MOTH_OK;
}
