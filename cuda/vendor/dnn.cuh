/* dnn.cuh -- cuDNN's graph interface, for the files that use it (dnn.cu). Descriptors with
** attributes describe a graph of operations, and the library's heuristics suggest engines for it,
** the best one first. Its header is not needed: this file declares the few constants of the stable
** interface that are used. */
#ifndef MOTH_CUDA_DNN_CUH
#define MOTH_CUDA_DNN_CUH

#include "host/device.cuh"

enum { DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_HALF = 2, DNN_INT32 = 4, DNN_BFLOAT16 = 9,
       DNN_BOOLEAN = 11 };

enum { /* types of attributes */
  DNN_IS_HANDLE = 0, DNN_IS_DATA_TYPE = 1, DNN_IS_BOOLEAN = 2, DNN_IS_INT64 = 3,
  DNN_IS_FLOAT = 4, DNN_IS_DOUBLE = 5, DNN_IS_POINTER = 6, DNN_IS_CONV_MODE = 7,
  DNN_IS_HEURISTICS_MODE = 8, DNN_IS_NOTE = 11, DNN_IS_POINTWISE_MODE = 14,
  DNN_IS_DESCRIPTOR = 15, DNN_IS_REDUCTION = 18
};

/* -- the state of a stream (dnn.cu) -- */

typedef struct dnn_key { /* all that a plan depends on; the first word is the kind of operation */
  int64_t word[40];
} dnn_key;

enum { DNN_MOST_DESCRIPTORS = 96, DNN_MOST_OPERATIONS = 32 };

typedef struct dnn_plan {
  dnn_key key;
  void *descriptors[DNN_MOST_DESCRIPTORS]; /* its descriptors */
  int count, tried;          /* number of descriptors; number of configurations tried */
  void *operations[DNN_MOST_OPERATIONS]; /* the operations among them, in the order of the graph */
  int noperations;
  bool taken, failed, has_run;
  bool pinned;       /* a captured graph contains it; its kernels must not be freed */
  bool exact;        /* excludes engines that round f32 to TF32 */
  bool repeats;      /* excludes engines whose results do not repeat */
  int64_t max_workspace; /* limit of scratch memory in bytes */
  void *graph, *plan; /* plan == NULL: no engine supports it */
  size_t workspace;
} dnn_plan;

typedef struct dnn_state dnn_state;

/* NULL: the library is missing or cannot be initialized. */
MOTH_LOCAL dnn_state *dnn_state_of(const moth_queue *q);
/* cudnnGetVersion(): 91900 is 9.19.0. */
MOTH_LOCAL size_t dnn_version(const dnn_state *s);
/* The plan of a key; *is_new: the caller must describe and choose it. Some plans are compiled when
** they are chosen, which takes seconds: returns NULL until the calls of a key, of `work` flops
** each, are worth it. INFINITY: returns a plan at once, unless all plans it could replace are part
** of graphs. */
MOTH_LOCAL dnn_plan *dnn_plan_of(dnn_state *s, const dnn_key *key, double work, bool *is_new);
/* The same if it exists already, else NULL. */
MOTH_LOCAL dnn_plan *dnn_plan_known(dnn_state *s, const dnn_key *key);

template <class K> static inline dnn_key dnn_key_of(const K &of) {
  static_assert(sizeof of <= sizeof(dnn_key), "a key is larger than its place");
  dnn_key k = {};
  memcpy(&k, &of, sizeof of);
  return k;
}

/* -- descriptors of a plan: after a failure, later calls do nothing -- */

MOTH_LOCAL void *dnn_begin(dnn_plan *p, int kind);
MOTH_LOCAL void dnn_set(dnn_plan *p, void *d, int name, int type, int64_t n, const void *values);
MOTH_LOCAL void dnn_finish(dnn_plan *p, void *d);

/* Begins an operation of the graph, which runs after the earlier ones. */
MOTH_LOCAL void *dnn_operation(dnn_plan *p, int kind);

enum dnn_place { DNN_IN_MEMORY, DNN_VIRTUAL /* a virtual tensor is never stored
                                            */, DNN_BY_VALUE /* on the CPU */ };
typedef struct dnn_tensor {
  int64_t name, alignment;
  int type, place;
  int64_t shape[5], strides[5];
  int more = 0; /* number of dimensions beyond four */
} dnn_tensor;
MOTH_LOCAL void *dnn_describe(dnn_plan *p, const dnn_tensor *t);

enum { DNN_ADD = 0, DNN_MUL = 1, DNN_DIV = 6, DNN_SUB = 9, DNN_EXP = 13, DNN_LOG = 15,
       DNN_IDENTITY = 21, DNN_GE = 303, DNN_POSITION = 501, DNN_SELECT = 601 };
typedef struct dnn_step { /* y := mode(x, b), computed in `type`; unused fields are NULL or 0 */
  int mode, type;
  void *x, *b, *y;
  void *where;  /* DNN_SELECT: x where the mask is true, else b */
  int64_t axis; /* DNN_POSITION: y gets the positions along this dimension */
} dnn_step;
MOTH_LOCAL void dnn_pointwise(dnn_plan *p, const dnn_step *step);

/* Creates p->graph from the operations. */
MOTH_LOCAL void dnn_close_graph(dnn_plan *p, const dnn_state *s);

/* -- choosing and running -- */

/* Chooses the next plan after the ones tried. */
MOTH_LOCAL void dnn_choose(dnn_plan *p, const dnn_state *s);

typedef struct dnn_call { /* the addresses of the named tensors */
  moth_ctx *ctx;
  const moth_queue *q;
  int device; /* as in a tensor: 1 is the first GPU */
  int n;
  const int64_t *names;
  void *const *at;
} dnn_call;

/* Chooses the fastest of the plans that the heuristics suggest first. */
MOTH_LOCAL void dnn_choose_fastest(const dnn_state *s, dnn_plan *p, const dnn_call *c);
/* Runs p; *done: whether it could. If not, nothing has been written. */
MOTH_LOCAL int dnn_run(const dnn_state *s, dnn_plan *p, const dnn_call *c, bool *done);

/* Tests if the stream is being captured: then it cannot be synchronized. */
MOTH_LOCAL bool dnn_is_captured(const moth_queue *q);

#endif
