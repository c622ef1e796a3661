/* moth.h -- the whole public C ABI of Moth: contexts, tensors, ops, autograd, memory, files.
**
** Conventions, for C hosts and for the LuaJIT binding alike:
** - A tensor is a handle, two numbers that mean something only to the context that made it. A
**   handle that outlived its tensor is an error, never a crash.
** - Every fallible function returns a status, which is negative when it failed, and only then: the
**   reason is in moth_error(), results are left untouched. Else it is MOTH_OK or a sum of MOTH_WANT
**   and MOTH_KNOWN, so test `status < 0`; a few functions say what else they return.
** - NULL for a context or for a pointer that is needed is an error too: MOTH_E_ARG, 0 or NULL. A
**   list of no elements may be NULL.
** - Arguments are borrowed; handles that come out are owned by the caller until moth_free(), the
**   end of their scope, or moth_drop().
** - Positions and dimensions count from 0 here. Nothing prints, exits, aborts or jumps.
** - A context belongs to one thread at a time. Tokens carry tensors from one context to another.
**
** Between the two marker lines stands plain C without macros: LuaJIT's ffi.cdef reads the same
** text from the built library (moth_header), so header and library cannot differ.
*/
#ifndef MOTH_H
#define MOTH_H

#include <stddef.h>
#include <stdint.h>

#define MOTH_ABI 1

#if defined(__GNUC__) && defined(MOTH_BUILD)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* ---- cdef begins ---- */

typedef struct moth_ctx moth_ctx;   /* an engine: tensors, graph, memory, random numbers */
typedef struct moth_op moth_op;     /* one entry of the op registry */

typedef struct moth_handle {
  uint32_t _slot, _gen;
} moth_handle; /* {0, 0} means no tensor */

typedef union moth_slot {
  moth_handle handle;
  double number;
  int64_t integer;
  const void *pointer;
} moth_slot;

enum {
  MOTH_OK = 0,
  MOTH_WANT = 1,  /* a collection of the host's garbage is due */
  MOTH_KNOWN = 2, /* of moth_call and moth_result: a result is a tensor that had a handle before */
  MOTH_E_ARG = -1,
  MOTH_E_TYPE = -2,
  MOTH_E_DTYPE = -3,
  MOTH_E_SHAPE = -4,
  MOTH_E_INDEX = -5,
  MOTH_E_DEVICE = -6,
  MOTH_E_ALIAS = -7,
  MOTH_E_VERSION = -8,
  MOTH_E_GRAPH = -9,
  MOTH_E_DOMAIN = -10,
  MOTH_E_MEM = -11,
  MOTH_E_LIMIT = -12,
  MOTH_E_FORMAT = -13,
  MOTH_E_IO = -14,
  MOTH_E_STATE = -15,
  MOTH_E_INTERRUPT = -16,
  MOTH_E_CUDA = -17,
  MOTH_E_UNSUPPORTED = -18
};

/* The order is the order of promotion; names are in moth_dtype_name. */
enum {
  MOTH_BOOL,
  MOTH_U8,
  MOTH_I8,
  MOTH_I16,
  MOTH_I32,
  MOTH_I64,
  MOTH_F16,
  MOTH_BF16,
  MOTH_F32,
  MOTH_F64,
  MOTH_DTYPES
};

/* ---- the library ---- */

uint32_t moth_abi_version(void);
const char *moth_version(void);
const char *moth_header(void);               /* the text between the markers */
const char *moth_config(moth_ctx *ctx);      /* BLAS, build: for `moth doctor` */
const char *moth_dtype_name(int32_t dtype);  /* "f32"; NULL beyond the last */
const char *moth_error_name(int32_t status); /* "E_SHAPE" */

/* ---- contexts and errors ---- */

moth_ctx *moth_open(void);         /* NULL when out of memory */
/* The same in memory of the caller's, of moth_open_size() bytes, which outlives every use. */
size_t moth_open_size(void);
moth_ctx *moth_open_at(void *room);
/* Releases everything; the ctx goes with its last tick, unless its memory is the caller's: then
** whatever is asked of it after that is an error. */
void moth_close(moth_ctx *ctx);
void moth_tick(moth_ctx **anchor); /* finalizer of a collector's canary: asks for a sweep */
moth_ctx *moth_tick_arm(moth_ctx *ctx); /* counts one more canary, returns ctx */

const char *moth_error(moth_ctx *ctx, int32_t base); /* positions in it count from base */
const char *moth_error_arg(moth_ctx *ctx);           /* "" when no argument is to blame */
const char *moth_error_op(moth_ctx *ctx);
uint64_t moth_error_node(moth_ctx *ctx); /* id of the node a backward error came from, or 0 */
/* After E_VERSION the id of the storage that changed and the version that was saved; else 0. */
uint64_t moth_error_storage(moth_ctx *ctx, uint32_t *version);

void moth_interrupt(void);                    /* cancels in every context; signal-safe */
int32_t moth_interrupt_pending(void);         /* one was asked for and has stopped nothing yet */
void moth_interrupt_withdraw(void);           /* what asked has been stopped by other means */
void moth_cancel(moth_ctx *ctx, int32_t on);  /* cancels at the next op of this one */
int32_t moth_interrupted(moth_ctx *ctx);      /* reads and clears both flags */

/* ---- the op registry ---- */

typedef struct moth_arg {
  const char *name;
  const char *kind;     /* "tensor", "int2", "dims", ...: the closed list of op.h */
  const char *fallback; /* "" when required; "none"; a literal; an earlier argument's name */
  const char *doc;
  uint32_t slot, nslots; /* where it lies in the array that moth_call takes */
} moth_arg;

typedef struct moth_op_info {
  const char *name, *family, *file, *doc, *examples;
  const char *outputs; /* "y" or "values, indices: position" */
  const moth_arg *args;
  uint32_t nargs, nslots;
  uint32_t dtypes; /* bit d: accepts dtype d */
  uint32_t flags;  /* MOTH_OP_..., below */
  const char *tensors; /* the op that takes tensors in the place of this op's numbers, or "" */
  const char *public_name; /* of a hidden op: the function of users that runs it, or "" */
} moth_op_info;

enum {
  MOTH_OP_INPLACE = 1,  /* has a form `name_` that writes its first tensor */
  MOTH_OP_OUT = 2,      /* takes `out` */
  MOTH_OP_VIEW = 4,     /* the result shares the input's storage */
  MOTH_OP_GRAD = 8,     /* differentiable */
  MOTH_OP_METHOD = 16,  /* first argument is a tensor: also x:name() */
  MOTH_OP_HIDDEN = 32,  /* the engine's own, not in the user's namespace */
  MOTH_OP_RANDOM = 64,  /* draws random numbers */
  MOTH_OP_MUTATES = 128,/* writes its first tensor: the `name_` form, or an op that only writes */
  MOTH_OP_LIST = 256,   /* any number of results: they come as one list */
  MOTH_OP_NUMBERS = 512,/* a tensor argument may be a number, but not one that is written */
  MOTH_OP_CREATES = 1024, /* makes a tensor from sizes or as another: hosts add requires_grad */
  MOTH_OP_STRIDED = 0x10000, /* maps elements of any layout; in place and `out` are direct */
  MOTH_OP_FROM_ONE = 0x400000, /* also takes positions that count from 1 */
  MOTH_OP_FROM_ONE_THERE = 0x8000000 /* the same, but on the CPU only from 0 */
};

uint32_t moth_op_count(void);
const moth_op *moth_op_at(uint32_t i);
const moth_op *moth_op_find(const char *name); /* also "add_"; NULL when there is none */
const moth_op_info *moth_op_describe(const moth_op *op);

/* Runs an op. slots are laid out as the registry says; bit i of given tells that argument i was
** given, the others take their defaults. A list is two slots (pointer, length); a scalar is two
** (type: 0 number, 1 int64, 2 bool; value). Fills at most nout handles and returns a status;
** results beyond those wait in the context until the next call, for moth_result to take. */
int32_t moth_call(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                  uint64_t given, moth_handle *out, uint32_t nout);
uint32_t moth_result_count(moth_ctx *ctx); /* how many results the last moth_call left waiting */
int32_t moth_result(moth_ctx *ctx, uint32_t i, moth_handle *out); /* takes one of them, once */

/* A number as operand: fills one of the handles 1 to 4 that are kept for this and returns a
** status. type as in a scalar. The handle is good for one call. */
int32_t moth_number(moth_ctx *ctx, uint32_t which, int32_t type, const moth_slot *value);

/* ---- tensors ---- */

typedef struct moth_tensor_info {
  int32_t dtype, device, ndim, flags; /* MOTH_IS_... */
  int64_t numel, itemsize, offset, version;
  int64_t shape[8], stride[8]; /* in elements */
  uint64_t storage, node;      /* ids, for comparing; 0 when there is none */
  uint32_t output;             /* which result of its node it is */
} moth_tensor_info;

enum {
  MOTH_IS_CONTIGUOUS = 1,
  MOTH_IS_LEAF = 2,
  MOTH_IS_GRAD = 4, /* requires grad */
  MOTH_IS_VIEW = 8,
  MOTH_IS_RETAIN = 16, /* retains grad */
  MOTH_IS_CHANNELS_LAST = 32, /* or _3d; contiguous as well where sizes of 1 are all that differs */
  MOTH_IS_SPARSE = 64,    /* see below; strides are 0 */
  MOTH_IS_COALESCED = 128, /* ... and holds each row once, in order */
  MOTH_IS_SHAPELESS = 256  /* by moth_shapeless */
};

int32_t moth_inspect(moth_ctx *ctx, const moth_handle *x, moth_tensor_info *info);
int32_t moth_alive(moth_ctx *ctx, const moth_handle *x); /* 1 or 0 */
uint32_t moth_died_in(moth_ctx *ctx, const moth_handle *x); /* the scope that released it, or 0 */
int32_t moth_from_slots(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                        const moth_slot *values, int64_t count, int32_t type, moth_handle *out);
int32_t moth_from_bytes(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                        const void *bytes, size_t size, moth_handle *out);
int32_t moth_from_memory(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                         void *data, size_t size, void (*deleter)(void *), void *owner,
                         moth_handle *out); /* deleter: on any thread, once it was given away */
/* Elements first..first+count-1 in row-major order; numbers for float dtypes (any NaN comes out
** as the one quiet NaN), integers for the others. */
int32_t moth_read(moth_ctx *ctx, const moth_handle *x, int64_t first, int64_t count,
                  moth_slot *values);
void *moth_data(moth_ctx *ctx, const moth_handle *x); /* for C hosts; NULL if not contiguous */
int32_t moth_bytes(moth_ctx *ctx, const moth_handle *x, void *to, size_t size); /* row-major copy */

/* ---- sparse tensors: some of the rows of a tensor that is 0 elsewhere ----
** Ops take none; their parts are ordinary tensors. */

/* rows: i64 (n), from 0, of `size`; values: (n, ...). Both are shared where they are packed. What
** rows holds is checked by the ops that use it. */
int32_t moth_sparse_make(moth_ctx *ctx, const moth_handle *rows, const moth_handle *values,
                         int64_t size, int32_t coalesced, moth_handle *out);
int32_t moth_sparse_parts(moth_ctx *ctx, const moth_handle *x, moth_handle *rows,
                          moth_handle *values); /* which it shares */
/* The same with each row once, in order; x itself if it is so. */
int32_t moth_sparse_coalesce(moth_ctx *ctx, const moth_handle *x, moth_handle *out);

/* ---- lifetime: slots, scopes, sweeps ---- */

int32_t moth_free(moth_ctx *ctx, const moth_handle *x);
uint32_t moth_scope_open(moth_ctx *ctx);                /* its id; ids grow */
/* One of the running coroutine's; closes the ones that it has opened in it, too. */
int32_t moth_scope_close(moth_ctx *ctx, uint32_t scope);
int32_t moth_keep(moth_ctx *ctx, const moth_handle *x); /* moves it to the scope around */
int32_t moth_keep_always(moth_ctx *ctx, const moth_handle *x); /* out of every scope */
uint32_t moth_slot_count(moth_ctx *ctx); /* slots 1..count may be in use */
int32_t moth_slot_used(moth_ctx *ctx, uint32_t slot);
void moth_drop(moth_ctx *ctx, uint32_t slot); /* the last handle to it is gone */
int32_t moth_above_goal(moth_ctx *ctx); /* is a collection due, and worth its time? */
/* Ends a sweep. collected: it followed a full collection, and all goals are set again; seconds:
** what both took of this thread, the sweep alone `sweeping` of these; heap: what the collector had
** to walk, in bytes. */
void moth_swept(moth_ctx *ctx, int32_t collected, double seconds, double sweeping, double heap);
uint32_t moth_dead_ids(moth_ctx *ctx, uint64_t *ids, uint32_t max); /* of nodes Lua knows */

double moth_seconds(void);        /* of a clock that only goes on */
double moth_thread_seconds(void); /* of a processor's time, had by the calling thread */

/* ---- memory ---- */

typedef struct moth_memory_info {
  int64_t live_bytes, peak_bytes, cached_bytes, limit_bytes, goal_bytes, shared_bytes;
  int64_t live_tensors, live_handles, live_nodes, live_storages, live_tasks;
  int64_t allocations, collections;
  double collection_seconds;
} moth_memory_info;

void moth_memory(moth_ctx *ctx, moth_memory_info *info);
void moth_memory_reset_peak(moth_ctx *ctx);
/* Ops whose tensors would take live_bytes above the limit fail with E_LIMIT; free blocks are given
** back before. A block is up to an eighth larger than its tensor, which is not counted: the process
** may hold that much more than the limit. 0: none. */
void moth_memory_limit(moth_ctx *ctx, int64_t bytes);
void moth_memory_floor(moth_ctx *ctx, int64_t bytes, int64_t handles); /* of the goals */
void moth_empty_cache(moth_ctx *ctx);
/* To 32 MiB; for after a rare task with many temporaries. With glibc, here and wherever the cache
** gives back 8 MiB or more of blocks below 1 MiB at once (at its bound, at a limit), malloc_trim(0)
** follows: it walks through the free memory of the whole process, also that of the host. */
void moth_trim_cache(moth_ctx *ctx);
void moth_fail_allocation(moth_ctx *ctx, int64_t after); /* for tests: the n-th one fails; 0: off */

/* ---- autograd ---- */

int32_t moth_grad_mode(moth_ctx *ctx, int32_t on); /* sets it (or -1: leaves it), returns the old */
int32_t moth_autocast(moth_ctx *ctx, int32_t dtype); /* -1: off; -2: leaves it; the old one */
/* What the running coroutine of the host has set itself, see below: sets it, returns what it was.
** -2 returns what holds and sets nothing. A coroutine other than the main one that sets a mode has
** called moth_coroutine_enter or hold before. */
int32_t moth_mode(moth_ctx *ctx, int32_t which, int32_t value);
int32_t moth_requires_grad(moth_ctx *ctx, const moth_handle *x, int32_t on);
int32_t moth_retain_grad(moth_ctx *ctx, const moth_handle *x);
int32_t moth_get_grad(moth_ctx *ctx, const moth_handle *x, moth_handle *grad); /* {0,0}: none */
int32_t moth_have_grads(moth_ctx *ctx, const moth_handle *x, uint32_t n); /* all, dense ones? */
int32_t moth_set_grad(moth_ctx *ctx, const moth_handle *x, const moth_handle *grad);
int32_t moth_get_data(moth_ctx *ctx, const moth_handle *x, moth_handle *data);
int32_t moth_set_data(moth_ctx *ctx, const moth_handle *x, const moth_handle *data);
/* The same for another dtype or device: leaf x takes what data holds. Its gradient is dropped. */
int32_t moth_become(moth_ctx *ctx, const moth_handle *x, const moth_handle *data);
/* Leaf x waits for its shape and values: until moth_become gives them, whatever asks is refused. */
int32_t moth_shapeless(moth_ctx *ctx, const moth_handle *x);
int32_t moth_detach(moth_ctx *ctx, const moth_handle *x, moth_handle *out);
int32_t moth_detach_(moth_ctx *ctx, const moth_handle *x);
const char *moth_node_name(moth_ctx *ctx, const moth_handle *x); /* "mul"; NULL for a leaf */
/* The id under which Lua keeps hooks of x: its leaf's, or its node's. Marks the node as hooked. */
int32_t moth_hook_id(moth_ctx *ctx, const moth_handle *x, uint64_t *id, uint32_t *output);

/* A backward pass. grads may hold {0, 0} for a scalar root. With inputs, gradients flow to these
** alone and are handed out by moth_task_result; without, they go to the leaves' .grad. */
enum { MOTH_RETAIN_GRAPH = 1, MOTH_CREATE_GRAPH = 2, MOTH_ALLOW_UNUSED = 4 };
enum { MOTH_TASK_DONE = 0, MOTH_TASK_HOOK = 2, MOTH_TASK_FUNCTION = 3, MOTH_TASK_AGAIN = 8,
       MOTH_TASK_AFTER = 16 };

int32_t moth_task_begin(moth_ctx *ctx, const moth_handle *roots, const moth_handle *grads,
                        uint32_t nroots, const moth_handle *inputs, uint32_t ninputs,
                        uint32_t flags, uint32_t *task);
/* Runs until the end, an error, or a node that is Lua's: then TASK_HOOK or TASK_FUNCTION, with its
** id, how many gradients stand at it (TASK_HOOK, 0: a leaf's .grad has them now) and how many it
** must give; or until a node whose checkpoint is to run again: then TASK_AGAIN, that one's id; or
** after a node that moth_node_hook marked: then TASK_AFTER, and moth_task_put replaces what its
** gradient function computed, which moth_task_taken reads. */
int32_t moth_task_step(moth_ctx *ctx, uint32_t task, uint64_t *node, uint32_t *ngiven,
                       uint32_t *nwanted);
int32_t moth_task_given(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
/* Zeros like result i of the node: for a gradient that did not arrive. */
int32_t moth_task_zeros(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
int32_t moth_task_put(moth_ctx *ctx, uint32_t task, uint32_t i, const moth_handle *grad);
int32_t moth_task_wants(moth_ctx *ctx, uint32_t task, uint32_t i); /* Function: input i needs one */
int32_t moth_task_saved(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *x);
int32_t moth_task_result(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
void moth_task_free(moth_ctx *ctx, uint32_t task);

/* A Function written in Lua has run: ties outputs to inputs by a node of Lua's. */
int32_t moth_function(moth_ctx *ctx, const char *name, const moth_handle *inputs, uint32_t ninputs,
                      moth_handle *outputs, uint32_t noutputs, uint64_t nondiff,
                      const moth_handle *saved, uint32_t nsaved, uint64_t *node);

/* An activation checkpoint: what ops save for backward from begin to end is freed when it ends by
** CHECKPOINT_EMPTY. A pass that needs it stops with TASK_AGAIN; then the host begins a checkpoint
** (kind: CHECKPOINT_AGAIN), does the same once more, with the inputs as moth_task_saved opens them,
** and ends it by CHECKPOINT_GIVE for that task. CHECKPOINT_DROP ends a checkpoint (0: the
** outermost) and those inside it, after an error. */
enum { MOTH_CHECKPOINT_EMPTY = 0, MOTH_CHECKPOINT_GIVE = 1, MOTH_CHECKPOINT_DROP = 2 };
int32_t moth_checkpoint_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                              int32_t kind, uint64_t *checkpoint);
int32_t moth_checkpoint_end(moth_ctx *ctx, uint64_t checkpoint, int32_t how, uint32_t task);

/* ---- recordings: a step that is run once and then replayed ---- */

/* Between begin and end every kernel that runs is also recorded. inputs are tensors that a replay
** copies its own inputs into first; all other numbers, and the way the host's code took, are
** constants. end replaces the handles in results by ones without history, which replays overwrite;
** abort drops what was recorded. What reads values meanwhile is E_UNSUPPORTED. */
enum { MOTH_CAPTURE_STALE = 4 }; /* the step would go another way now: nothing was done */
int32_t moth_capture_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                           uint32_t *capture);
int32_t moth_capture_end(moth_ctx *ctx, moth_handle *results, uint32_t nresults);
void moth_capture_abort(moth_ctx *ctx);
/* Whether an op recorded so far reads or writes bytes of x, a tensor from before: 1 or 0. */
int32_t moth_capture_uses(moth_ctx *ctx, const moth_handle *x);
/* The recording under way will not do: end is to drop it and return CAPTURE_STALE. */
void moth_capture_void(moth_ctx *ctx);
/* The arguments of the last op recorded, if that is op, laid out as for moth_call: what numbers
** among them are changed to, replays read. They live as long as the recording. An optimizer's step
** has an argument `step`, or `first`, that is another each time: without this end is an error. */
moth_slot *moth_capture_slots(moth_ctx *ctx, const moth_op *op);
/* Runs a recording with these inputs (64 at most). CAPTURE_STALE: they have another shape, dtype or
** number, or modes, storages of parameters or gradients are not as they were. */
int32_t moth_capture_replay(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                            uint32_t ninputs);
/* Whether it would run with them: 0, CAPTURE_STALE, or an error. */
int32_t moth_capture_fits(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                          uint32_t ninputs);
/* After CAPTURE_STALE: what was another, in words, and of which tensor; NULL, {0, 0}: not known. */
const char *moth_capture_why(moth_ctx *ctx, uint32_t capture, moth_handle *of);
void moth_capture_free(moth_ctx *ctx, uint32_t capture);
/* Whether an element of these tensors is not 0. A recording looks again in each replay: what it has
** from here to moth_capture_guard_end is left out where one is. */
int32_t moth_capture_guard(moth_ctx *ctx, const moth_handle *found, uint32_t nfound);
void moth_capture_guard_end(moth_ctx *ctx);
/* Whether the last replay left out what the recording's guard, counted from 0, stands before. */
int32_t moth_capture_guarded(moth_ctx *ctx, uint32_t capture, uint32_t guard);
/* How many graphs of kernels a replay asks of a GPU. *there: ops that run on one beside them;
** *here: those that run on the CPU, or move something between the two. */
int32_t moth_capture_graphs(moth_ctx *ctx, uint32_t capture, int32_t *there, int32_t *here);
/* To compare a replay with the step itself: keep what it may change; run the step; swap, so that
** what was kept holds again; replay; differs tells what came out otherwise, and forgets. A second
** swap instead of the replay brings back what the step did. */
enum { MOTH_CAPTURE_VALUE = 5, MOTH_CAPTURE_GRADIENT = 6, MOTH_CAPTURE_RANDOM = 7 };
int32_t moth_capture_keep(moth_ctx *ctx, uint32_t capture);
int32_t moth_capture_swap(moth_ctx *ctx, uint32_t capture);
int32_t moth_capture_differs(moth_ctx *ctx, uint32_t capture);

/* ---- profiles: what was run, when, and what it took ---- */

enum {
  MOTH_EVENT_OP,       /* a call of an op, by the host, by another op or in a replay */
  MOTH_EVENT_GRADIENT, /* that of an op, in a backward pass */
  MOTH_EVENT_WHOLE,    /* what holds others: a "backward" pass, a "replay"; a "graph" of a GPU */
  MOTH_EVENT_RANGE     /* and from there on: the host's own, of any kind that it tells apart */
};

typedef struct moth_profile_event {
  const char *name;        /* lives as long as the library; NULL: the host's, by its label */
  int32_t kind, status;
  uint32_t label, line;    /* numbers that the host gave, or 0 */
  int64_t parent;          /* the event it began in, counted from 0, or -1 */
  double begin, end, self; /* in microseconds; self: the time in no other event inside it */
  int64_t live;            /* bytes of the CPU's tensors at its end, */
  int64_t bytes, self_bytes; /* ... and what it added to them; in no other event inside it */
  int64_t device_bytes, device_self_bytes;         /* the same of all devices */
  double device_begin, device_time, device_self;   /* microseconds that a device worked for it */
  int32_t device;          /* 0: none did */
  int64_t sizes;           /* where those of its tensors begin; -1: they were not asked for */
  uint64_t first, last;    /* nodes made meanwhile: ids above first, up to last. Of a gradient
                           ** both are its node's id. */
} moth_profile_event;

typedef struct moth_profile_info {
  int64_t events, sizes; /* how many of each there are to take */
  int64_t dropped;       /* events that there was no room for */
  int64_t peak_bytes;    /* of the CPU's tensors */
  double time;           /* microseconds from start to stop */
} moth_profile_info;

/* Notes all that this context runs from start to stop, at most so many events. With DEVICES also
** how long devices work for each op, by their own clocks: stop waits for them. With LINES each call
** of the host's returns MOTH_WANT, so that it can tell where it stands. */
enum { MOTH_PROFILE_SHAPES = 1, MOTH_PROFILE_DEVICES = 2, MOTH_PROFILE_LINES = 4 };
int32_t moth_profile_start(moth_ctx *ctx, uint32_t flags, int64_t most);
int32_t moth_profile_stop(moth_ctx *ctx, moth_profile_info *info); /* also stops if it fails */
/* Copies out, in the order in which they began, what stop counted, and forgets it. sizes: of each
** event how many tensors, then of each of these its ndim and its shape. Either may be NULL. */
int32_t moth_profile_take(moth_ctx *ctx, moth_profile_event *events, int64_t *sizes);
/* A range of the host's own, until it is ended; 0 when nothing is noted. */
uint64_t moth_profile_begin(moth_ctx *ctx, int32_t kind, uint32_t label, uint32_t line);
void moth_profile_end(moth_ctx *ctx, uint64_t range);
void moth_profile_line(moth_ctx *ctx, uint32_t line); /* where the host made its last call */

/* ---- reading a function of elements, as what it is made of ---- */

/* From begin to free nothing is recorded. From moth_trace_inputs to end each elementwise function
** that runs over the inputs, or over what others made of them, is noted; an op that is anything
** else fails, and so does what reads values. Values are numbered: the inputs, then constants and
** results. Inputs have one shape, or are 0-d: what sums gradients for these is noted, after
** moth_trace_backward, as if it gave what is to be summed. */
typedef struct moth_traced {
  const char *name; /* of the function; "convert" */
  int32_t function; /* its number for `fused` */
  int32_t dtype, nvalues, told; /* told: numbers are */
  int32_t value[6];  /* the result first */
  int32_t dtypes[6]; /* of these */
  double numbers[3];
} moth_traced;
int32_t moth_trace_begin(moth_ctx *ctx);
int32_t moth_trace_inputs(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs);
void moth_trace_backward(moth_ctx *ctx);
int32_t moth_trace_value(moth_ctx *ctx, const moth_handle *x); /* its number, or a status */
int32_t moth_trace_step(moth_ctx *ctx, uint32_t i, moth_traced *step); /* 1, or 0 behind the last */
/* A constant as a 0-d tensor; {0, 0} if that value is none. */
int32_t moth_trace_constant(moth_ctx *ctx, int32_t value, moth_handle *out);
/* Nothing more is noted, but steps and values can be asked for until moth_trace_free. */
void moth_trace_end(moth_ctx *ctx);
void moth_trace_free(moth_ctx *ctx);

/* ---- between contexts and threads ---- */

typedef struct moth_text { /* UTF-8, borrowed; may hold NULs */
  const char *at;
  size_t size;
} moth_text;

int32_t moth_token(moth_ctx *ctx, const moth_handle *x, uint64_t *token); /* opens once */
int32_t moth_token_open(moth_ctx *ctx, uint64_t token, moth_handle *out);
int32_t moth_token_drop(moth_ctx *ctx, uint64_t token); /* one that nobody will open */

/* Workers: Lua states on threads of their own, which do what they are sent and send what comes out.
** The engine links no Lua: the host says where its functions are. */
typedef struct moth_lua {
  void *newstate, *openlibs, *cpcall, *loadbuffer, *pcall, *tolstring, *close;
} moth_lua;

typedef struct moth_message {
  uint64_t number;
  moth_text text;         /* for the receiver it lives until the next receive or the end, */
  const uint64_t *tokens; /* ... and those of these that were not opened are dropped then */
  uint32_t ntokens;
} moth_message;

/* A worker for each program, a Lua chunk with the tokens that it opens. The handle (no tensor)
** stands for them: when it goes, they are told to end and what waits is dropped; moth_close waits
** for that, two seconds at most. In a forked child there are none. */
int32_t moth_workers_start(moth_ctx *ctx, const moth_lua *lua, const moth_message *programs,
                           uint32_t n, moth_handle *out);
/* To whichever worker is free. What was sent or came back with a number below `first` is dropped.
** On a worker's thread, workers NULL: to the host. Unless this fails, the tokens are the message's
** from here on. */
int32_t moth_workers_send(moth_ctx *ctx, const moth_handle *workers, const moth_message *message,
                          uint64_t first);
/* 1: message holds the answer with the number that stood in it; on a worker's thread, the next one
** sent. 0: there was none for so many seconds (below 0: for ever); on a worker's thread, that it is
** to end. A host that waits hears a cancel. E_STATE: a worker has failed, and why. */
int32_t moth_workers_receive(moth_ctx *ctx, const moth_handle *workers, double seconds,
                             moth_message *message);

/* ---- files ---- */

typedef struct moth_stored { /* a tensor in a file */
  moth_text name;     /* lives as long as the file's handle */
  const char *format; /* dtype as the file calls it: "F32" */
  int32_t dtype, ndim; /* dtype is -1 when Moth has none for it */
  int64_t shape[8], nbytes;
} moth_stored;

/* Opens a safetensors file and checks its structure. The handle (an empty tensor) stands for the
** file; tensors taken from it outlive it. With map they share its pages where aligned: nothing is
** read before it is used, writes stay private, the file may be replaced but not be cut short. */
int32_t moth_safetensors_open(moth_ctx *ctx, const moth_text *path, int32_t map, moth_handle *file);
/* The same of a copy of bytes in memory. */
int32_t moth_safetensors_open_bytes(moth_ctx *ctx, const moth_text *bytes, moth_handle *file);
int64_t moth_safetensors_count(moth_ctx *ctx, const moth_handle *file); /* negative: a status */
int32_t moth_safetensors_at(moth_ctx *ctx, const moth_handle *file, int64_t i, moth_stored *info);
int64_t moth_safetensors_find(moth_ctx *ctx, const moth_handle *file, const moth_text *name);
int32_t moth_safetensors_tensor(moth_ctx *ctx, const moth_handle *f, int64_t i, moth_handle *out);
/* Its bytes as they are stored, a u8 tensor, whatever the dtype. */
int32_t moth_safetensors_bytes(moth_ctx *ctx, const moth_handle *f, int64_t i, moth_handle *out);
int64_t moth_safetensors_metadata_count(moth_ctx *ctx, const moth_handle *file);
int32_t moth_safetensors_metadata(moth_ctx *ctx, const moth_handle *file, int64_t i,
                                  moth_text *key, moth_text *value);
/* Writes one: whole or not at all and, if `durable`, on the disk when this returns. What shares
** storage and layout is written once; other names stand in the metadata `moth.tied`, as JSON. */
int32_t moth_safetensors_save(moth_ctx *ctx, const moth_text *path, const moth_text *names,
                              const moth_handle *tensors, uint32_t n, const moth_text *keys,
                              const moth_text *values, uint32_t nmeta, int32_t durable);
/* Is a file in the folder of another, or below it: 1, 0 or a negative status. Links are followed; a
** file with several names (hard links) is in no folder. Where the other is a link, the folder that
** it leads to counts too. */
int32_t moth_file_beside(moth_ctx *ctx, const moth_text *path, const moth_text *other);
/* Any file as its bytes, a u8 tensor: mapped as above, or read where map is 0 or fails. */
int32_t moth_file_open(moth_ctx *ctx, const moth_text *path, int32_t map, moth_handle *out);
/* Bytes of a contiguous u8 tensor as elements of a dtype: shared where aligned, else a copy. */
int32_t moth_reinterpret(moth_ctx *ctx, const moth_handle *bytes, int64_t from, int32_t dtype,
                         const int64_t *shape, int32_t ndim, moth_handle *out);

/* A piece of a file: bytes, or those of a tensor in row-major order if its handle is one. */
typedef struct moth_piece {
  moth_text text;
  moth_handle tensor;
} moth_piece;
/* Writes a file from pieces: whole or not at all and, if `durable`, on the disk afterwards. */
int32_t moth_file_save(moth_ctx *ctx, const moth_text *path, const moth_piece *pieces, uint32_t n,
                       int32_t durable);

/* ---- random numbers ---- */

int32_t moth_seed(moth_ctx *ctx, uint64_t seed);
int32_t moth_generator(moth_ctx *ctx, moth_handle *out); /* the default one: i64 {seed, offset} */

/* ---- devices: 0 is the CPU, 1 + i is cuda:i, whose plugin is loaded at its first use ---- */

typedef struct moth_device_info {
  char name[64];
  int64_t live_bytes, peak_bytes, cached_bytes, limit_bytes; /* this context's */
  int64_t free_bytes, total_bytes;                           /* the device's */
  int32_t major, minor, processors; /* of what it can do: 8.0, 9.0; multiprocessors */
} moth_device_info;

int32_t moth_device_count(moth_ctx *ctx); /* negative: a status; the message says what is missing */
/* What the plugin found, as lines "driver\t13.0"; a status if there is no plugin. */
int32_t moth_device_report(moth_ctx *ctx, char *text, int64_t room);
int32_t moth_device_synchronize(moth_ctx *ctx, int32_t device); /* waits for all work there */
int32_t moth_device_memory(moth_ctx *ctx, int32_t device, moth_device_info *info);
int32_t moth_device_limit(moth_ctx *ctx, int32_t device, int64_t bytes); /* 0: none */
int32_t moth_device_reset_peak(moth_ctx *ctx, int32_t device);
int32_t moth_device_empty_cache(moth_ctx *ctx, int32_t device);
/* Streams: a device does what it is asked for on one stream in order, and on several in any order
** but for what they wait for. Each device of a context begins on stream 0. moth_stream_take gives
** the number of another, which is the handle's as long as that lives; a higher priority is a lower
** number. moth_stream_use makes one the current one and gives the old one; -1 leaves it. */
int32_t moth_stream_take(moth_ctx *ctx, int32_t device, int32_t priority, moth_handle *out);
int32_t moth_stream_use(moth_ctx *ctx, int32_t device, int32_t number);
int32_t moth_stream_wait(moth_ctx *ctx, int32_t device, int32_t number);
int32_t moth_stream_query(moth_ctx *ctx, int32_t device, int32_t number); /* 1: all is done */
/* What a stream is asked for from here on waits for all that the other was asked for. */
int32_t moth_stream_join(moth_ctx *ctx, int32_t device, int32_t number, int32_t other_device,
                         int32_t other);
int32_t moth_event_take(moth_ctx *ctx, int32_t timed, moth_handle *out);
int32_t moth_event_record(moth_ctx *ctx, const moth_handle *event, int32_t device, int32_t number);
/* A stream waits for it; with device 0 the caller does. */
int32_t moth_event_wait(moth_ctx *ctx, const moth_handle *event, int32_t device, int32_t number);
int32_t moth_event_query(moth_ctx *ctx, const moth_handle *event);
int32_t moth_event_elapsed(moth_ctx *ctx, const moth_handle *start, const moth_handle *end,
                           double *ms);
/* A copy of x in page-locked memory of the CPU, without history; x itself if it lies there. */
int32_t moth_pin_memory(moth_ctx *ctx, const moth_handle *x, moth_handle *out);
int32_t moth_is_pinned(moth_ctx *ctx, const moth_handle *x);
/* Where tensors are made that no other tensor has a say in; -1 leaves it. The old one. */
int32_t moth_default_device(moth_ctx *ctx, int32_t device);

/* ---- settings ---- */

void moth_set_num_threads(int32_t n); /* not on a worker's thread: those have one each */
int32_t moth_get_num_threads(void);
int32_t moth_default_dtype(moth_ctx *ctx, int32_t dtype); /* -1 leaves it; returns the old */
/* Products of f32 on GPUs: 0 in full, 1 and 2 in TF32. -1 leaves it; returns the old. */
int32_t moth_float32_precision(moth_ctx *ctx, int32_t level);
/* Whether libraries must repeat their results bit for bit. -1 leaves it; returns the old. */
int32_t moth_deterministic(moth_ctx *ctx, int32_t on);
/* How cuDNN is used. -1 leaves it; returns the old. */
enum {
  MOTH_CUDNN_ENABLED,   /* is it used? On at first */
  MOTH_CUDNN_BENCHMARK, /* are its plans for convolutions timed first? */
  MOTH_CUDNN_TF32,      /* may convolutions multiply f32 as TF32? */
  MOTH_CUDNN_SDP        /* does it do attention? On at first */
};
int32_t moth_cudnn(moth_ctx *ctx, int32_t what, int32_t on);

/* ---- nodes and saved tensors: Lua declares these when they are needed ---- */

typedef struct moth_node_info {
  const char *name; /* "mul"; NULL for a leaf */
  uint64_t id;      /* 0: x needs no gradient */
  uint32_t output, ninputs, noutputs; /* which result of the node x is */
} moth_node_info;
int32_t moth_node_inspect(moth_ctx *ctx, const moth_handle *x, moth_node_info *info);
/* Where the gradient of input i of x's node flows: a tensor without elements whose node that is;
** {0, 0}: nowhere. */
int32_t moth_node_next(moth_ctx *ctx, const moth_handle *x, uint32_t i, moth_handle *next);
/* Passes stop before (TASK_HOOK) and, if `after`, also after the node of x has run (TASK_AFTER). */
int32_t moth_node_hook(moth_ctx *ctx, const moth_handle *x, int32_t after);
int32_t moth_task_taken(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);

enum { MOTH_CHECKPOINT_FIRST = 0, MOTH_CHECKPOINT_AGAIN = 1, MOTH_CHECKPOINT_PACKS = 2 };
/* A checkpoint of kind PACKS: each call in it that records returns WANT; then moth_checkpoint_pack
** takes the saved tensors out of the nodes, one a call, with the node's id and the tensor's number
** there ({0, 0}: there are no more). The host keeps them in a form of its own. A pass that needs
** them stops with TASK_AGAIN; moth_task_packed is the node, moth_task_unpack puts one back. */
int32_t moth_checkpoint_pack(moth_ctx *ctx, uint64_t checkpoint, uint64_t *node, uint32_t *slot,
                             moth_handle *x);
int32_t moth_task_packed(moth_ctx *ctx, uint32_t task, uint64_t *node);
int32_t moth_task_unpack(moth_ctx *ctx, uint32_t task, uint32_t slot, const moth_handle *x);

/* ---- the call log: what a function calls, to write it in another form ---- */

/* From begin to end each call of moth_call that succeeds is an entry, with all its tensors, which
** are held until free. */
typedef struct moth_logged_call {
  const moth_op *op;
  const moth_slot *slots; /* as for moth_call, defaults filled in; in place of a handle stands the
                          ** number of a tensor, from 1 on, or 0; of a list, that of the first */
  uint32_t ntensors, nresults; /* the results come last */
  int32_t writes;              /* the first result is a tensor from before, which it wrote */
  int32_t event, recorded;     /* MOTH_CALL_LOG_..., below; was grad mode on? */
} moth_logged_call;
/* flags of begin. EVENTS: calls under autocast are no error, logs nest, and what reaches tensors
** by other ways than moth_call is an entry as well, with op = NULL. BACKWARD: the ops of a backward
** pass are entries. */
enum { MOTH_CALL_LOG_EVENTS = 1, MOTH_CALL_LOG_BACKWARD = 2 };
enum { /* event */
  MOTH_CALL_LOG_OP,       /* a call */
  MOTH_CALL_LOG_DATA,     /* tensor 0 was made from values of the host */
  MOTH_CALL_LOG_DETACH,   /* tensor 1 is tensor 0 without history */
  MOTH_CALL_LOG_REQUIRES, /* tensor 0 requires a gradient, or not: `writes` */
  MOTH_CALL_LOG_READ,     /* the host read values of tensor 0 */
  MOTH_CALL_LOG_OTHER     /* anything else, which the log cannot describe */
};
int32_t moth_call_log_begin(moth_ctx *ctx, uint32_t flags);
void moth_call_log_end(moth_ctx *ctx);
void moth_call_log_pause(moth_ctx *ctx, int32_t on); /* no entries until it is off again */
uint32_t moth_call_log_count(moth_ctx *ctx); /* of the log under way, else of the last one */
int32_t moth_call_log_at(moth_ctx *ctx, uint32_t i, moth_logged_call *call);
/* Tensor k of call i, counted from 0 here, and the version that its storage had then; UINT32_MAX
** for a number of the host's, with EVENTS. {0, 0} where a list has none. */
int32_t moth_call_log_tensor(moth_ctx *ctx, uint32_t i, uint32_t k, moth_handle *out,
                             uint32_t *version);
void moth_call_log_free(moth_ctx *ctx);

/* ---- coroutines of the host: Lua declares these when they are needed ---- */

/* Looks for the place where the state keeps its running coroutine. Called in several by turns:
** `state` runs, `sleeper` was made and never resumed, `outer` (or NULL) resumed `state`. wide: is
** the build a GC64 one? 1: found. */
int32_t moth_coroutine_find(moth_ctx *ctx, int32_t wide, const void *state, const void *sleeper,
                            const void *outer);
/* Is this upvalue (debug.upvalueid) open, and does it hold that number? */
int32_t moth_coroutine_probe(moth_ctx *ctx, const void *probe, double token);
/* What the running coroutine sets from here on holds as long as the upvalue does, at most. */
int32_t moth_coroutine_enter(moth_ctx *ctx, const void *probe, double token);
void moth_coroutine_leave(moth_ctx *ctx);
/* ... or until the host, which keeps the coroutine, lets go of it by forget. */
int32_t moth_coroutine_hold(moth_ctx *ctx);
void moth_coroutine_forget(moth_ctx *ctx, const void *state);
int32_t moth_coroutine_sweep(moth_ctx *ctx); /* forgets those whose upvalue is closed; those left */
int32_t moth_coroutine_known(moth_ctx *ctx, double token);

/* ---- cdef ends ---- */

/* What LuaJIT's binding does not declare. */

int32_t moth_anomaly_mode(moth_ctx *ctx, int32_t on); /* as moth_grad_mode */

/* Modes of a coroutine of the host's, where that is a LuaJIT state: what one sets holds where it
** runs and in what it resumes. Autocast's is a dtype or -1, GPU's the index of the device that the
** host means by "cuda". UNSET: it is that of whoever resumed the coroutine; the main one's are
** always set, and UNSET leaves them. INSIDE can only be read: has it called enter or hold? */
enum {
  MOTH_MODE_GRAD, MOTH_MODE_AUTOCAST, MOTH_MODE_ANOMALY, MOTH_MODE_GPU, MOTH_MODES,
  MOTH_MODE_INSIDE = MOTH_MODES,
  MOTH_ASK = -2, MOTH_UNSET = -3 /* values */
};

#ifdef __cplusplus
}
#endif
#if defined(__GNUC__) && defined(MOTH_BUILD)
#pragma GCC visibility pop
#endif
#endif
