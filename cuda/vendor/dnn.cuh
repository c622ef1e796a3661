/* dnn.cuh -- cuDNN's graph interface, as the files that use it share it (dnn.cu): what is wanted is
** described by descriptors with attributes, and the library's heuristics name engines for it, the
** best one first. Its header is not needed: the few numbers of the stable interface that are used
** stand here.
*/
#ifndef MOTH_CUDA_DNN_CUH
#define MOTH_CUDA_DNN_CUH

#include "host/device.cuh"

enum { DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_HALF = 2, DNN_INT32 = 4, DNN_BFLOAT16 = 9,
       DNN_BOOLEAN = 11 };

enum { /* what an attribute's values are */
  DNN_IS_HANDLE = 0, DNN_IS_DATA_TYPE = 1, DNN_IS_BOOLEAN = 2, DNN_IS_INT64 = 3,
  DNN_IS_FLOAT = 4, DNN_IS_DOUBLE = 5, DNN_IS_POINTER = 6, DNN_IS_CONV_MODE = 7,
  DNN_IS_HEURISTICS_MODE = 8, DNN_IS_NOTE = 11, DNN_IS_POINTWISE_MODE = 14,
  DNN_IS_DESCRIPTOR = 15, DNN_IS_REDUCTION = 18
};

/* -- what is kept of a stream (dnn.cu) -- */

typedef struct dnn_key { /* all that an answer depends on; the first word says of what */
  int64_t word[40];
} dnn_key;

enum { DNN_MOST_MADE = 96, DNN_MOST_OPERATIONS = 32 };

typedef struct dnn_plan {
  dnn_key key;
  void *made[DNN_MOST_MADE]; /* descriptors that it consists of */
  int count, tried;          /* of them; configurations that were gone through */
  void *operations[DNN_MOST_OPERATIONS]; /* among them; in the order of the graph */
  int noperations;
  bool taken, failed, has_run;
  bool pinned;       /* it stands in a captured graph, whose kernels go with it */
  bool exact;        /* engines that narrow f32 will not do */
  bool repeats;      /* nor those whose results do not repeat */
  int64_t most_room; /* bytes of scratch that it may ask for */
  void *graph, *plan; /* plan == NULL: there is none */
  size_t room;
} dnn_plan;

typedef struct dnn_state dnn_state;

/* NULL: there is no library, or it does not want to. */
MOTH_LOCAL dnn_state *dnn_state_of(const moth_queue *q);
/* cudnnGetVersion(): 91900 is 9.19.0. */
MOTH_LOCAL size_t dnn_version(const dnn_state *s);
/* The plan of a key; *is_new: it is to be described and chosen. Some plans are compiled when they
** are chosen, which takes seconds: NULL until the calls of a key, of `work` operations each, are
** worth that. INFINITY: always, unless graphs need all plans that it could replace. */
MOTH_LOCAL dnn_plan *dnn_plan_of(dnn_state *s, const dnn_key *key, double work, bool *is_new);
/* The same if it is there already, else NULL. */
MOTH_LOCAL dnn_plan *dnn_plan_known(dnn_state *s, const dnn_key *key);

template <class K> static inline dnn_key dnn_key_of(const K &of) {
  static_assert(sizeof of <= sizeof(dnn_key), "a key is larger than its place");
  dnn_key k = {};
  memcpy(&k, &of, sizeof of);
  return k;
}

/* -- descriptors of a plan: once one has failed, nothing more happens -- */

MOTH_LOCAL void *dnn_begin(dnn_plan *p, int kind);
MOTH_LOCAL void dnn_set(dnn_plan *p, void *d, int name, int type, int64_t n, const void *values);
MOTH_LOCAL void dnn_finish(dnn_plan *p, void *d);

/* Begins an operation of the graph, which runs after those before it. */
MOTH_LOCAL void *dnn_operation(dnn_plan *p, int kind);

enum dnn_place { DNN_IN_MEMORY, DNN_VIRTUAL /* never there */, DNN_BY_VALUE /* on the CPU */ };
typedef struct dnn_tensor {
  int64_t name, alignment;
  int type, place;
  int64_t shape[5], strides[5];
  int more = 0; /* dimensions than four */
} dnn_tensor;
MOTH_LOCAL void *dnn_describe(dnn_plan *p, const dnn_tensor *t);

enum { DNN_ADD = 0, DNN_MUL = 1, DNN_DIV = 6, DNN_SUB = 9, DNN_EXP = 13, DNN_LOG = 15,
       DNN_IDENTITY = 21, DNN_GE = 303, DNN_POSITION = 501, DNN_SELECT = 601 };
typedef struct dnn_step { /* y := mode(x, b), computed in `type`; what is not there is NULL or 0 */
  int mode, type;
  void *x, *b, *y;
  void *where;  /* DNN_SELECT: x where it holds, else b */
  int64_t axis; /* DNN_POSITION: of which y gets the positions */
} dnn_step;
MOTH_LOCAL void dnn_pointwise(dnn_plan *p, const dnn_step *step);

/* Makes p->graph of the operations. */
MOTH_LOCAL void dnn_close_graph(dnn_plan *p, const dnn_state *s);

/* -- choosing and running -- */

/* The next plan after those that were tried. */
MOTH_LOCAL void dnn_choose(dnn_plan *p, const dnn_state *s);

typedef struct dnn_call { /* where the tensors that have a name lie */
  moth_ctx *ctx;
  const moth_queue *q;
  int device; /* as tensors count */
  int n;
  const int64_t *names;
  void *const *at;
} dnn_call;

/* Leaves the fastest of the plans that the heuristics name first. */
MOTH_LOCAL void dnn_choose_fastest(const dnn_state *s, dnn_plan *p, const dnn_call *c);
/* Runs p; *done: whether it could. If not, nothing has happened. */
MOTH_LOCAL int dnn_run(const dnn_state *s, dnn_plan *p, const dnn_call *c, bool *done);

/* Whether what a stream is asked for goes into a graph: then nothing can be waited for. */
MOTH_LOCAL bool dnn_is_captured(const moth_queue *q);

#endif
