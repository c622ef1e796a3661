/* dnn.cu -- NVIDIA's library cuDNN, if it is found at run time: its functions, its state,
** descriptors, and plans that its heuristics suggest.
**
** A plan is made once and cached with its key. An engine is used if it has the requested limit of
** scratch memory, precision and repeatability; if there is none, or it fails, Moth's own kernels
** are used. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "dnn.cuh"

/* -- the interface -- */

enum { /* descriptors */
  DNN_POINTWISE = 0, DNN_ENGINE = 2, DNN_CONFIG = 3, DNN_HEURISTICS = 4, DNN_PLAN = 5,
  DNN_POINTWISE_OPERATION = 13, DNN_GRAPH = 15, DNN_VARIANT = 16, DNN_TENSOR = 17
};

enum { /* attributes */
  POINTWISE_MODE = 0, POINTWISE_TYPE, POINTWISE_AXIS = 9,
  HEURISTICS_MODE = 200, HEURISTICS_GRAPH, HEURISTICS_RESULTS,
  CONFIG_ENGINE = 300,
  PLAN_HANDLE = 400, PLAN_CONFIG, PLAN_WORKSPACE,
  POINTWISE_HOW = 750, POINTWISE_X, POINTWISE_B, POINTWISE_Y, POINTWISE_WHERE = 758,
  GRAPH_HANDLE = 800, GRAPH_OPERATIONS,
  TENSOR_ALIGNMENT = 900, TENSOR_TYPE, TENSOR_SHAPE, TENSOR_STRIDES, TENSOR_NAME = 906,
  TENSOR_IS_VIRTUAL, TENSOR_BY_VALUE,
  VARIANT_NAMES = 1000, VARIANT_POINTERS, VARIANT_WORKSPACE = 1003,
  ENGINE_NOTES = 1303
};
enum { MODE_FALLBACK = 2, MODE_A = 3 };
enum { NOTE_TENSOR_CORES = 0, NOTE_NARROWS = 1, NOTE_NOT_REPEATABLE = 4 };

#define DNN_FUNCTIONS(F)                                                                     \
  F(size_t, GetVersion, (void))                                                              \
  F(int, Create, (void **handle))                                                            \
  F(int, Destroy, (void *handle))                                                            \
  F(int, SetStream, (void *handle, cudaStream_t stream))                                     \
  F(int, BackendCreateDescriptor, (int kind, void **desc))                                   \
  F(int, BackendDestroyDescriptor, (void *desc))                                             \
  F(int, BackendSetAttribute, (void *desc, int name, int type, int64_t n, const void *from)) \
  F(int, BackendGetAttribute,                                                                \
    (void *desc, int name, int type, int64_t most, int64_t *n, void *to))                    \
  F(int, BackendFinalize, (void *desc))                                                      \
  F(int, BackendExecute, (void *handle, void *plan, void *variant))

#define DNN_MEMBER(type, name, args) type(*name) args;
#define DNN_NAME(type, name, args) "cudnn" #name,
#define DNN_ONE(type, name, args) +1
enum { DNN_COUNT = 0 DNN_FUNCTIONS(DNN_ONE) };
static union dnn_table {
  void *at[DNN_COUNT];
  struct {
    DNN_FUNCTIONS(DNN_MEMBER)
  } fn;
} dnn;
static const char *const dnn_names[] = {DNN_FUNCTIONS(DNN_NAME)};

/* -- the state of a stream -- */

enum { PLANS = 512, MOST_TIMED = 10, SUMS = 256, BEFORE_DEARER = 8 };

/* The number of flops that justifies compiling a plan: milliseconds on a GPU. It doubles after each
** BEFORE_DEARER plans, so that a program whose shapes never repeat does not always wait for the
** compiler. */
static const double WORTH = 5e11;

struct dnn_state {
  void *handle;
  const moth_queue *q;
  size_t version;
  int compiled;      /* number of plans so far that had to be worth it */
  double work[SUMS]; /* flops of keys without a plan, by their hash */
  dnn_plan plans[PLANS];
};

static void drop_plan(dnn_plan *p) {
  if (p->plan) dnn.fn.BackendDestroyDescriptor(p->plan);
  while (p->count > 0) dnn.fn.BackendDestroyDescriptor(p->descriptors[--p->count]);
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

dnn_state *dnn_state_of(const moth_queue *q) {
  pthread_once(&looked, look);
  if (!there) return NULL;
  moth_library_state *kept = moth_library_state_of(q, LIBRARY_DNN);
  dnn_state *s = (dnn_state *)kept->state;
  if (s) return s->handle ? s : NULL;
  s = (dnn_state *)calloc(1, sizeof *s);
  if (!s) return NULL;
  s->q = q;
  s->version = dnn.fn.GetVersion();
  kept->state = s;
  kept->close = close_state;
  if (dnn.fn.Create(&s->handle)) s->handle = NULL;
  if (s->handle && dnn.fn.SetStream(s->handle, q->stream)) {
    dnn.fn.Destroy(s->handle);
    s->handle = NULL;
  }
  return s->handle ? s : NULL;
}

size_t dnn_version(const dnn_state *s) { return s->version; }

static bool is_worth(dnn_state *s, const dnn_key *key, double work) {
  double *sum = &s->work[hash_of(*key) % SUMS];
  *sum += work;
  if (*sum < ldexp(WORTH, s->compiled / BEFORE_DEARER)) return false;
  s->compiled += work < INFINITY;
  *sum = 0;
  return true;
}

/* Tests if the stream has graphs, which may contain plans. */
static bool has_graphs(const moth_queue *q) {
  return ((const moth_device_stream *)q)->graphs.all != NULL;
}

dnn_plan *dnn_plan_of(dnn_state *s, const dnn_key *key, double work, bool *is_new) {
  const bool graphed = has_graphs(s->q); /* whether the plan may be part of a graph */
  dnn_plan *p = plan_for(s->plans, *key, is_new,
                         [=](const dnn_plan &old) { return !old.pinned || !graphed; });
  if (!p || !*is_new) return p;
  if (!is_worth(s, key, work)) return NULL;
  drop_plan(p);
  p->key = *key;
  p->taken = true;
  return p;
}

dnn_plan *dnn_plan_known(dnn_state *s, const dnn_key *key) {
  bool is_new;
  dnn_plan *p = plan_for(s->plans, *key, &is_new, [](const dnn_plan &) { return false; });
  return is_new ? NULL : p;
}

/* -- descriptors of a plan -- */

void *dnn_begin(dnn_plan *p, int kind) {
  void *d = NULL;
  p->failed =
      p->failed || p->count == DNN_MOST_DESCRIPTORS || dnn.fn.BackendCreateDescriptor(kind, &d);
  if (p->failed) return NULL;
  p->descriptors[p->count++] = d;
  return d;
}

void dnn_set(dnn_plan *p, void *d, int name, int type, int64_t n, const void *values) {
  p->failed = p->failed || dnn.fn.BackendSetAttribute(d, name, type, n, values);
}

void dnn_finish(dnn_plan *p, void *d) { p->failed = p->failed || dnn.fn.BackendFinalize(d); }

void *dnn_operation(dnn_plan *p, int kind) {
  void *d = dnn_begin(p, kind);
  p->failed = p->failed || p->noperations == DNN_MOST_OPERATIONS;
  if (!p->failed) p->operations[p->noperations++] = d;
  return d;
}

void *dnn_describe(dnn_plan *p, const dnn_tensor *t) {
  const bool is_virtual = t->place == DNN_VIRTUAL, by_value = t->place == DNN_BY_VALUE;
  void *d = dnn_begin(p, DNN_TENSOR);
  dnn_set(p, d, TENSOR_TYPE, DNN_IS_DATA_TYPE, 1, &t->type);
  dnn_set(p, d, TENSOR_SHAPE, DNN_IS_INT64, 4 + t->more, t->shape);
  dnn_set(p, d, TENSOR_STRIDES, DNN_IS_INT64, 4 + t->more, t->strides);
  dnn_set(p, d, TENSOR_NAME, DNN_IS_INT64, 1, &t->name);
  dnn_set(p, d, TENSOR_ALIGNMENT, DNN_IS_INT64, 1, &t->alignment);
  dnn_set(p, d, TENSOR_IS_VIRTUAL, DNN_IS_BOOLEAN, 1, &is_virtual);
  if (by_value) dnn_set(p, d, TENSOR_BY_VALUE, DNN_IS_BOOLEAN, 1, &by_value);
  dnn_finish(p, d);
  return d;
}

static void attach(dnn_plan *p, void *d, int name, void *to) {
  if (to) dnn_set(p, d, name, DNN_IS_DESCRIPTOR, 1, &to);
}

void dnn_pointwise(dnn_plan *p, const dnn_step *step) {
  void *how = dnn_begin(p, DNN_POINTWISE);
  dnn_set(p, how, POINTWISE_MODE, DNN_IS_POINTWISE_MODE, 1, &step->mode);
  dnn_set(p, how, POINTWISE_TYPE, DNN_IS_DATA_TYPE, 1, &step->type);
  if (step->mode == DNN_POSITION) dnn_set(p, how, POINTWISE_AXIS, DNN_IS_INT64, 1, &step->axis);
  dnn_finish(p, how);
  void *d = dnn_operation(p, DNN_POINTWISE_OPERATION);
  attach(p, d, POINTWISE_HOW, how);
  attach(p, d, POINTWISE_X, step->x);
  attach(p, d, POINTWISE_B, step->b);
  attach(p, d, POINTWISE_WHERE, step->where);
  attach(p, d, POINTWISE_Y, step->y);
  dnn_finish(p, d);
}

void dnn_close_graph(dnn_plan *p, const dnn_state *s) {
  p->graph = dnn_begin(p, DNN_GRAPH);
  dnn_set(p, p->graph, GRAPH_HANDLE, DNN_IS_HANDLE, 1, &s->handle);
  dnn_set(p, p->graph, GRAPH_OPERATIONS, DNN_IS_DESCRIPTOR, p->noperations, p->operations);
  dnn_finish(p, p->graph);
}

/* -- engines -- */

static bool suits(const dnn_plan *p, void *config) {
  enum { NOTES = 32 };
  void *engine = NULL;
  int notes[NOTES];
  int64_t n = 0;
  if (dnn.fn.BackendCreateDescriptor(DNN_ENGINE, &engine)) return false;
  bool good = !dnn.fn.BackendGetAttribute(config, CONFIG_ENGINE, DNN_IS_DESCRIPTOR, 1, &n,
                                          &engine) &&
              !dnn.fn.BackendGetAttribute(engine, ENGINE_NOTES, DNN_IS_NOTE, NOTES, &n, notes);
  for (int64_t i = 0; good && i < n && i < NOTES; i++)
    good = !(p->repeats && notes[i] == NOTE_NOT_REPEATABLE) &&
           !(p->exact && (notes[i] == NOTE_TENSOR_CORES || notes[i] == NOTE_NARROWS));
  dnn.fn.BackendDestroyDescriptor(engine);
  return good;
}

/* Makes p's plan from a configuration, if it is supported and allowed. */
static bool take(dnn_plan *p, void *handle, void *config) {
  void *plan = NULL;
  int64_t workspace = 0, n = 0;
  if (!suits(p, config) || dnn.fn.BackendCreateDescriptor(DNN_PLAN, &plan)) return false;
  if (!dnn.fn.BackendSetAttribute(plan, PLAN_HANDLE, DNN_IS_HANDLE, 1, &handle) &&
      !dnn.fn.BackendSetAttribute(plan, PLAN_CONFIG, DNN_IS_DESCRIPTOR, 1, &config) &&
      !dnn.fn.BackendFinalize(plan) &&
      !dnn.fn.BackendGetAttribute(plan, PLAN_WORKSPACE, DNN_IS_INT64, 1, &n, &workspace) &&
      workspace >= 0 && workspace <= p->max_workspace) {
    p->plan = plan;
    p->workspace = (size_t)workspace;
    return true;
  }
  dnn.fn.BackendDestroyDescriptor(plan);
  return false;
}

/* Continues through the suggestions of one heuristics mode; *at counts them. */
static void choose_in(dnn_plan *p, void *handle, int mode, int *at) {
  enum { MOST = 64 };
  void *heuristics = NULL, *configs[MOST];
  int64_t found = 0, descriptors = 0;
  if (dnn.fn.BackendCreateDescriptor(DNN_HEURISTICS, &heuristics)) return;
  const bool ready =
    !dnn.fn.BackendSetAttribute(heuristics, HEURISTICS_GRAPH, DNN_IS_DESCRIPTOR, 1, &p->graph) &&
    !dnn.fn.BackendSetAttribute(heuristics, HEURISTICS_MODE, DNN_IS_HEURISTICS_MODE, 1, &mode) &&
    !dnn.fn.BackendFinalize(heuristics);
  while (ready && descriptors < MOST &&
         !dnn.fn.BackendCreateDescriptor(DNN_CONFIG, &configs[descriptors]))
    descriptors++;
  if (descriptors && dnn.fn.BackendGetAttribute(heuristics, HEURISTICS_RESULTS, DNN_IS_DESCRIPTOR,
                                                descriptors, &found, configs))
    found = 0;
  for (int64_t i = 0; i < found && i < descriptors && !p->plan; i++, ++*at) {
    if (*at < p->tried) continue;
    p->tried = *at + 1;
    if (!take(p, handle, configs[i])) continue;
    void *const chosen = configs[i]; /* lives as long as the plan */
    configs[i] = configs[--descriptors];
    p->descriptors[p->count++] = chosen;
  }
  while (descriptors > 0) dnn.fn.BackendDestroyDescriptor(configs[--descriptors]);
  dnn.fn.BackendDestroyDescriptor(heuristics);
}

void dnn_choose(dnn_plan *p, const dnn_state *s) {
  int at = 0;
  if (p->plan) dnn.fn.BackendDestroyDescriptor(p->plan);
  p->plan = NULL;
  if (p->failed || p->count == DNN_MOST_DESCRIPTORS) return;
  choose_in(p, s->handle, MODE_A, &at);
  if (!p->plan) choose_in(p, s->handle, MODE_FALLBACK, &at);
}

/* -- running -- */

static moth_tensor *workspace_of(const dnn_plan *p, const dnn_call *c) {
  moth_layout l = {};
  l.ndim = 1;
  l.shape[0] = l.numel = (int64_t)p->workspace;
  l.stride[0] = 1;
  l.dtype = MOTH_U8;
  l.device = (uint8_t)c->device;
  moth_tensor *workspace = p->workspace ? moth_tensor_new(c->ctx, &l) : NULL;
  if (p->workspace && !workspace) forget_failure(c->ctx);
  return workspace;
}

/* Returns whether it ran, or was added to the stream. */
static bool execute(const dnn_state *s, const dnn_plan *p, const dnn_call *c, void *workspace) {
  void *variant = NULL;
  if (dnn.fn.BackendCreateDescriptor(DNN_VARIANT, &variant)) return false;
  const bool ran =
    !dnn.fn.BackendSetAttribute(variant, VARIANT_NAMES, DNN_IS_INT64, c->n, c->names) &&
    !dnn.fn.BackendSetAttribute(variant, VARIANT_POINTERS, DNN_IS_POINTER, c->n, c->at) &&
    !dnn.fn.BackendSetAttribute(variant, VARIANT_WORKSPACE, DNN_IS_POINTER, 1, &workspace) &&
    !dnn.fn.BackendFinalize(variant) && !dnn.fn.BackendExecute(s->handle, p->plan, variant);
  dnn.fn.BackendDestroyDescriptor(variant);
  return ran;
}

/* The milliseconds of a plan, the minimum of some runs; negative: it does not run. */
static float time_of(const dnn_state *s, const dnn_plan *p, const dnn_call *c) {
  enum { RUNS = 4 }; /* the first run also loads the kernel */
  moth_tensor *workspace = workspace_of(p, c);
  void *at = workspace ? moth_address(workspace) : NULL;
  cudaEvent_t from = NULL, to = NULL;
  float best = -1, now = -1;
  bool good = (at || !p->workspace) && !cudaEventCreateWithFlags(&from, cudaEventDefault) &&
              !cudaEventCreateWithFlags(&to, cudaEventDefault);
  for (int i = 0; good && i < RUNS; i++) {
    good = !cudaEventRecord(from, c->q->stream) && execute(s, p, c, at) &&
           !cudaEventRecord(to, c->q->stream) && !cudaEventSynchronize(to) &&
           !cudaEventElapsedTime(&now, from, to);
    if (i > 0 && good && (best < 0 || now < best)) best = now;
  }
  if (from) cudaEventDestroy(from);
  if (to) cudaEventDestroy(to);
  moth_tensor_release(workspace);
  return good ? best : -1;
}

bool dnn_is_captured(const moth_queue *q) {
  return ((const moth_device_stream *)q)->graphs.now != NULL;
}

void dnn_choose_fastest(const dnn_state *s, dnn_plan *p, const dnn_call *c) {
  void *best = NULL;
  size_t workspace = 0;
  float least = 0;
  for (int i = 0; i < MOST_TIMED && p->plan; i++, dnn_choose(p, s)) {
    const float time = time_of(s, p, c);
    if (time < 0 || (best && time >= least)) continue;
    if (best) dnn.fn.BackendDestroyDescriptor(best);
    best = p->plan;
    workspace = p->workspace;
    least = time;
    p->plan = NULL; /* so that dnn_choose() does not free it */
  }
  if (p->plan) dnn.fn.BackendDestroyDescriptor(p->plan);
  p->plan = best;
  p->workspace = workspace;
}

int dnn_run(const dnn_state *s, dnn_plan *p, const dnn_call *c, bool *done) {
  *done = false;
  while (p->plan && !*done) {
    moth_tensor *workspace = workspace_of(p, c);
    if (p->workspace && !workspace) return MOTH_OK;
    *done = execute(s, p, c, workspace ? moth_address(workspace) : NULL);
    moth_tensor_release(workspace);
    p->pinned = p->pinned || (*done && dnn_is_captured(c->q));
    if (*done) p->has_run = true;
    else if (!p->has_run) dnn_choose(p, s); /* some plans fail only when they run */
    else return MOTH_OK;
  }
  return *done ? moth_launched(c->ctx, c->q, cudaSuccess) : MOTH_OK;
}
