/* moth_lua.h -- functions for the Lua side of Moth, beyond those of moth.h: sweeps, hooks,
** activation checkpoints, captured steps, profiles, traces, call logs, workers, streams and
** coroutines.
**
** Hosts do not need this header. It may change with every version of the Lua files, which check
** moth_lua_abi_version when they are loaded. MOTH_LUA_ABI is incremented by each change here or in
** moth.h that older Lua files do not support.
**
** moth.h explains handles, errors and threads. LuaJIT's ffi.cdef reads both headers from the built
** library (moth_header). The parts after "cdef continues" are declared at their first use, by
** lib.declare: LuaJIT's table of C types doubles at 1,024 entries.
*/
#ifndef MOTH_LUA_H
#define MOTH_LUA_H

#include "moth.h"

#define MOTH_LUA_ABI 1

#if defined(__GNUC__) && defined(MOTH_BUILD)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* ---- cdef begins ---- */

uint32_t moth_lua_abi_version(void); /* MOTH_LUA_ABI of the library */
/* Both headers without comments. A line "@NAME" begins each part that is declared at its first
** use. */
const char *moth_header(void);

/* ---- contexts ---- */

/* moth_open in the caller's memory, of moth_open_size() bytes. It must outlive every use of the
** context: calls after moth_close are errors. */
size_t moth_open_size(void);
moth_ctx *moth_open_at(void *memory);
/* The finalizer of an object that shows that Lua has collected: the next call returns MOTH_WANT. */
void moth_tick(moth_ctx **anchor);
moth_ctx *moth_tick_arm(moth_ctx *ctx); /* counts one more such object; returns ctx */

uint64_t moth_error_node(moth_ctx *ctx); /* id of the node of a backward error, or 0 */
/* After E_VERSION returns the id of the changed storage, and its version at the save; else 0. */
uint64_t moth_error_storage(moth_ctx *ctx, uint32_t *version);

int32_t moth_interrupt_pending(void);  /* 1: a moth_interrupt has not stopped an op yet */
void moth_interrupt_withdraw(void);    /* the caller has stopped the work itself */

/* ---- ops ---- */

enum { /* further flags */
  MOTH_OP_CREATES = 1024,      /* makes a tensor by sizes or like another: has requires_grad */
  MOTH_OP_STRIDED = 0x10000,   /* elementwise for any layout; in place and `out` are direct */
  MOTH_OP_FROM_ONE = 0x400000, /* also takes positions that count from 1 */
  MOTH_OP_FROM_ONE_THERE = 0x8000000 /* the same on a GPU only */
};

/* ---- tensors ---- */

/* Makes a tensor from a list of numbers (type 0), integers (1) or bools (2), which must fit. */
int32_t moth_from_slots(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                        const moth_slot *values, int64_t count, int32_t type, moth_handle *out);
uint32_t moth_died_in(moth_ctx *ctx, const moth_handle *x); /* the scope that freed x, or 0 */
int32_t moth_keep_always(moth_ctx *ctx, const moth_handle *x); /* removes it from every scope */
/* A tensor of a dtype over the bytes of a contiguous u8 tensor, from byte `from` on. Shares the
** bytes if they are aligned; else a copy. */
int32_t moth_reinterpret(moth_ctx *ctx, const moth_handle *bytes, int64_t from, int32_t dtype,
                         const int64_t *shape, int32_t ndim, moth_handle *out);
/* A copy of x in page-locked memory of the CPU, without history. Returns x if it is page-locked. */
int32_t moth_pin_memory(moth_ctx *ctx, const moth_handle *x, moth_handle *out);
int32_t moth_is_pinned(moth_ctx *ctx, const moth_handle *x);
int32_t moth_generator(moth_ctx *ctx, moth_handle *out); /* the default one: i64 {seed, offset} */

/* ---- sweeps: Lua has lost handles ---- */

uint32_t moth_slot_count(moth_ctx *ctx); /* slots 1..count may be in use */
int32_t moth_slot_used(moth_ctx *ctx, uint32_t slot);
void moth_drop(moth_ctx *ctx, uint32_t slot); /* Lua has freed the last handle of this slot */
int32_t moth_above_goal(moth_ctx *ctx); /* 1: a collection is due, and worth its time */
/* Ends a sweep. collected: it followed a full collection, so all goals are set again. seconds: this
** thread's time for the collection and the sweep; sweeping: that of the sweep alone. heap: bytes
** that the collector visited. */
void moth_swept(moth_ctx *ctx, int32_t collected, double seconds, double sweeping, double heap);
/* Fills in ids of freed nodes for which Lua has data. Returns their number. */
uint32_t moth_dead_ids(moth_ctx *ctx, uint64_t *ids, uint32_t max);

double moth_seconds(void);        /* a monotonic clock */
double moth_thread_seconds(void); /* processor time of the calling thread */

/* ---- memory ---- */

void moth_memory_reset_peak(moth_ctx *ctx);
/* The minimal growth of live bytes and handles between two collections. */
void moth_memory_floor(moth_ctx *ctx, int64_t bytes, int64_t handles);
/* Shrinks the cache to 32 MiB, after a rare task with many temporaries. With glibc it then calls
** malloc_trim(0), which walks through the free memory of the whole process. So does the cache
** whenever it frees at least 8 MiB of blocks below 1 MiB at once. */
void moth_trim_cache(moth_ctx *ctx);
void moth_fail_allocation(moth_ctx *ctx, int64_t after); /* for tests: allocation n fails; 0: off */

/* ---- autograd ---- */

/* Sets a mode of the running coroutine, and returns the value that it had set before. MOTH_ASK
** returns the value in force and changes nothing. which: MOTH_MODE_..., below. A coroutine other
** than the main one must call moth_coroutine_enter or moth_coroutine_hold first. */
int32_t moth_mode(moth_ctx *ctx, int32_t which, int32_t value);
/* Keeps the gradient of a tensor that is not a leaf, for moth_get_grad. */
int32_t moth_retain_grad(moth_ctx *ctx, const moth_handle *x);
/* Returns 1 if each of n tensors has a gradient and none is sparse. */
int32_t moth_have_grads(moth_ctx *ctx, const moth_handle *x, uint32_t n);
/* x.data: a tensor over the memory of x without history. set_data makes x use other memory, of the
** same dtype and device. */
int32_t moth_get_data(moth_ctx *ctx, const moth_handle *x, moth_handle *data);
int32_t moth_set_data(moth_ctx *ctx, const moth_handle *x, const moth_handle *data);
/* moth_set_data for a leaf, with any dtype and device. Drops its gradient. */
int32_t moth_become(moth_ctx *ctx, const moth_handle *x, const moth_handle *data);
/* Makes leaf x a tensor without shape and values until moth_become. Any other use of it is an
** error. */
int32_t moth_shapeless(moth_ctx *ctx, const moth_handle *x);
int32_t moth_detach_(moth_ctx *ctx, const moth_handle *x); /* drops the history of x */
const char *moth_node_name(moth_ctx *ctx, const moth_handle *x); /* "mul"; NULL for a leaf */
/* The id for Lua's hooks of x: that of its leaf, or of its node, which is then marked as hooked. */
int32_t moth_hook_id(moth_ctx *ctx, const moth_handle *x, uint64_t *id, uint32_t *output);

/* A backward pass that can stop for Lua. Arguments as for moth_backward. */
int32_t moth_task_begin(moth_ctx *ctx, const moth_handle *roots, const moth_handle *grads,
                        uint32_t nroots, const moth_handle *inputs, uint32_t ninputs,
                        uint32_t flags, uint32_t *task);
enum { MOTH_TASK_DONE = 0, MOTH_TASK_HOOK = 2, MOTH_TASK_FUNCTION = 3, MOTH_TASK_AGAIN = 8,
       MOTH_TASK_AFTER = 16 };
/* Runs until the end (a task without inputs is then freed), an error (it is freed), or a stop:
**   HOOK      before node *node, which has hooks. *ngiven gradients have arrived; 0: a leaf, whose
**             gradient is complete
**   FUNCTION  at a Function of Lua, which must put *nwanted gradients
**   AGAIN     before a node whose checkpoint must run again; *node is the checkpoint's id
**   AFTER     after a node that moth_node_hook marked; moth_task_taken reads the gradients of its
**             inputs, moth_task_put replaces them */
int32_t moth_task_step(moth_ctx *ctx, uint32_t task, uint64_t *node, uint32_t *ngiven,
                       uint32_t *nwanted);
/* The gradient of result i of the node; {0, 0}: none has arrived. */
int32_t moth_task_given(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
/* Zeros in the shape of result i of the node, in place of an absent gradient. */
int32_t moth_task_zeros(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
/* Sets gradient i: of a result at a HOOK, of an input at a FUNCTION or AFTER. */
int32_t moth_task_put(moth_ctx *ctx, uint32_t task, uint32_t i, const moth_handle *grad);
int32_t moth_task_wants(moth_ctx *ctx, uint32_t task, uint32_t i); /* 1: input i needs a gradient */
int32_t moth_task_saved(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *x);
int32_t moth_task_result(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
void moth_task_free(moth_ctx *ctx, uint32_t task);

/* Records a Function of Lua that has run: connects outputs to inputs by a new node. Bit i of
** nondiff: output i is not differentiable. */
int32_t moth_function(moth_ctx *ctx, const char *name, const moth_handle *inputs, uint32_t ninputs,
                      moth_handle *outputs, uint32_t noutputs, uint64_t nondiff,
                      const moth_handle *saved, uint32_t nsaved, uint64_t *node);

/* ---- files ---- */

/* Tensor i of a safetensors file as a u8 tensor, whatever its dtype. */
int32_t moth_safetensors_bytes(moth_ctx *ctx, const moth_handle *f, int64_t i, moth_handle *out);
int64_t moth_safetensors_metadata_count(moth_ctx *ctx, const moth_handle *file);
int32_t moth_safetensors_metadata(moth_ctx *ctx, const moth_handle *file, int64_t i,
                                  moth_text *key, moth_text *value);
/* Returns 1 if `path` is in the folder of `other` or below it, 0 if not, or an error. Follows
** links. A file with several hard links is in no folder. If `other` is a link, its target's folder
** counts too. */
int32_t moth_file_beside(moth_ctx *ctx, const moth_text *path, const moth_text *other);
/* A file as a u8 tensor: mapped as by moth_safetensors_open, or read if map is 0 or mapping
** fails. */
int32_t moth_file_open(moth_ctx *ctx, const moth_text *path, int32_t map, moth_handle *out);

typedef struct moth_piece { /* a part of a file: text, or a tensor's bytes, row-major */
  moth_text text;
  moth_handle tensor; /* {0, 0}: text */
} moth_piece;
/* Writes a file from n pieces, complete or not at all. durable = 1: returns after the disk has
** it. */
int32_t moth_file_save(moth_ctx *ctx, const moth_text *path, const moth_piece *pieces, uint32_t n,
                       int32_t durable);

/* ---- devices and settings ---- */

/* What the plugin found, in lines "driver\t13.0". Fails if there is no plugin. */
int32_t moth_device_report(moth_ctx *ctx, char *text, int64_t size);
int32_t moth_device_limit(moth_ctx *ctx, int32_t device, int64_t bytes); /* 0: no limit */
int32_t moth_device_reset_peak(moth_ctx *ctx, int32_t device);
int32_t moth_device_empty_cache(moth_ctx *ctx, int32_t device);
/* Matrix products of f32 on GPUs: 0 exact, 1 and 2 in TF32. -1: no change. Returns the old
** value. */
int32_t moth_float32_precision(moth_ctx *ctx, int32_t level);
/* Must libraries return the same bits each time? -1: no change. Returns the old value. */
int32_t moth_deterministic(moth_ctx *ctx, int32_t on);
enum {
  MOTH_CUDNN_ENABLED,   /* is cuDNN used? Initially 1 */
  MOTH_CUDNN_BENCHMARK, /* does it choose plans for convolutions by timing? */
  MOTH_CUDNN_TF32,      /* may convolutions multiply f32 as TF32? */
  MOTH_CUDNN_SDP        /* does it compute attention? Initially 1 */
};
int32_t moth_cudnn(moth_ctx *ctx, int32_t what, int32_t on); /* -1: no change. Returns the old */

/* ---- cdef continues: sparse ---- */

/* Sparse tensors: some rows of a tensor whose other rows are 0. Ops do not accept them. rows: i64
** (n), from 0, below `size`; values: (n, ...). Both are shared if they are contiguous. The ops that
** use a sparse tensor check its rows. */
int32_t moth_sparse_make(moth_ctx *ctx, const moth_handle *rows, const moth_handle *values,
                         int64_t size, int32_t coalesced, moth_handle *out);
/* The rows and values of x, which share its memory. */
int32_t moth_sparse_parts(moth_ctx *ctx, const moth_handle *x, moth_handle *rows,
                          moth_handle *values);
/* Adds up repeated rows and sorts the rows. Returns x if that is done already. */
int32_t moth_sparse_coalesce(moth_ctx *ctx, const moth_handle *x, moth_handle *out);

/* ---- cdef continues: nodes ---- */

typedef struct moth_node_info {
  const char *name; /* "mul"; NULL for a leaf */
  uint64_t id;      /* 0: x needs no gradient */
  uint32_t output, ninputs, noutputs; /* output: which result of the node x is */
} moth_node_info;
int32_t moth_node_inspect(moth_ctx *ctx, const moth_handle *x, moth_node_info *info);
/* The node to which the gradient of input i of x's node flows, as a tensor without elements that
** has this node; {0, 0}: none. */
int32_t moth_node_next(moth_ctx *ctx, const moth_handle *x, uint32_t i, moth_handle *next);
/* Makes passes stop before the node of x (TASK_HOOK) and, with after = 1, also after it
** (TASK_AFTER). */
int32_t moth_node_hook(moth_ctx *ctx, const moth_handle *x, int32_t after);
int32_t moth_task_taken(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);

/* An activation checkpoint is a part of a forward pass. The tensors that its ops save for backward
** are freed when it ends by CHECKPOINT_EMPTY. A pass that needs them stops with TASK_AGAIN. Then
** the host begins a checkpoint of kind AGAIN, runs the same calls with the inputs from
** moth_task_saved, and ends it by CHECKPOINT_GIVE for that task. After an error CHECKPOINT_DROP
** ends a checkpoint (0: the outermost) and those inside it. */
enum { MOTH_CHECKPOINT_FIRST = 0, MOTH_CHECKPOINT_AGAIN = 1, MOTH_CHECKPOINT_PACKS = 2 };
enum { MOTH_CHECKPOINT_EMPTY = 0, MOTH_CHECKPOINT_GIVE = 1, MOTH_CHECKPOINT_DROP = 2 };
int32_t moth_checkpoint_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                              int32_t kind, uint64_t *checkpoint);
int32_t moth_checkpoint_end(moth_ctx *ctx, uint64_t checkpoint, int32_t how, uint32_t task);
/* In a checkpoint of kind PACKS each recorded call returns WANT. Then moth_checkpoint_pack takes
** the saved tensors out of the nodes, one per call, with the node's id and the tensor's number in
** it ({0, 0}: no more). The host stores them in its own form. A pass that needs them stops with
** TASK_AGAIN; moth_task_packed returns the node, and moth_task_unpack puts a tensor back. */
int32_t moth_checkpoint_pack(moth_ctx *ctx, uint64_t checkpoint, uint64_t *node, uint32_t *slot,
                             moth_handle *x);
int32_t moth_task_packed(moth_ctx *ctx, uint32_t task, uint64_t *node);
int32_t moth_task_unpack(moth_ctx *ctx, uint32_t task, uint32_t slot, const moth_handle *x);

/* ---- cdef continues: capture ---- */

/* A captured step. Kernels that run between begin and end are recorded, and replay runs them again.
** A replay first copies its inputs into the tensors `inputs` of begin. All other numbers, and the
** host's decisions, are constants. end replaces the handles in results by handles without history,
** which replays overwrite. abort drops the recording. Reading values during a capture fails with
** E_UNSUPPORTED. */
enum { MOTH_CAPTURE_STALE = 4 }; /* the step would take another path now: nothing was done */
int32_t moth_capture_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                           uint32_t *capture);
int32_t moth_capture_end(moth_ctx *ctx, moth_handle *results, uint32_t nresults);
void moth_capture_abort(moth_ctx *ctx);
/* Returns 1 if a recorded op reads or writes bytes of x, a tensor from before the capture. */
int32_t moth_capture_uses(moth_ctx *ctx, const moth_handle *x);
/* Makes the current capture invalid: end drops it and returns CAPTURE_STALE. */
void moth_capture_void(moth_ctx *ctx);
/* The slots of the last recorded op, as for moth_call, if it is `op`; else NULL. Replays use
** numbers that the host writes to them. They are valid as long as the capture. An optimizer's step
** has an argument (`step` or `first`) that differs each time: without this call end is an error. */
moth_slot *moth_capture_slots(moth_ctx *ctx, const moth_op *op);
/* Replays a captured step with these inputs, 64 at most. CAPTURE_STALE: their number, a shape or a
** dtype differs; or modes, or the storages of parameters or gradients have changed. */
int32_t moth_capture_replay(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                            uint32_t ninputs);
/* Returns 0 if a replay with these inputs is possible, CAPTURE_STALE, or an error. */
int32_t moth_capture_fits(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                          uint32_t ninputs);
/* After CAPTURE_STALE: what differs, in words, and the tensor; NULL, {0, 0}: unknown. */
const char *moth_capture_why(moth_ctx *ctx, uint32_t capture, moth_handle *of);
void moth_capture_free(moth_ctx *ctx, uint32_t capture);
/* Returns 1 if an element of these tensors is not 0. Each replay tests them again. If one is not 0,
** it skips the instructions recorded from here to moth_capture_guard_end. */
int32_t moth_capture_guard(moth_ctx *ctx, const moth_handle *found, uint32_t nfound);
void moth_capture_guard_end(moth_ctx *ctx);
/* Returns 1 if the last replay skipped the instructions of guard number `guard`, from 0. */
int32_t moth_capture_guarded(moth_ctx *ctx, uint32_t capture, uint32_t guard);
/* Returns the number of CUDA graphs in a replay. *there: ops that run on a GPU outside of graphs;
** *here: ops that run on the CPU, or copy between the two. */
int32_t moth_capture_graphs(moth_ctx *ctx, uint32_t capture, int32_t *there, int32_t *here);
/* Compares a replay with the step itself. Call keep, which copies all that a replay may change; run
** the step; call swap, which restores the copies; replay; call differs, which returns what differs
** and frees the copies. A second swap in place of the replay restores the step's results. */
enum { MOTH_CAPTURE_VALUE = 5, MOTH_CAPTURE_GRADIENT = 6, MOTH_CAPTURE_RANDOM = 7 };
int32_t moth_capture_keep(moth_ctx *ctx, uint32_t capture);
int32_t moth_capture_swap(moth_ctx *ctx, uint32_t capture);
int32_t moth_capture_differs(moth_ctx *ctx, uint32_t capture);

/* ---- cdef continues: profile ---- */

enum { /* kind */
  MOTH_EVENT_OP,       /* an op: called by the host, by another op or in a replay */
  MOTH_EVENT_GRADIENT, /* the gradient of an op, in a backward pass */
  MOTH_EVENT_WHOLE,    /* contains others: "backward", "replay", a "graph" of a GPU */
  MOTH_EVENT_RANGE     /* from here on: kinds of the host */
};

typedef struct moth_profile_event {
  const char *name;        /* valid as long as the library; NULL: the host's, by its label */
  int32_t kind, status;
  uint32_t label, line;    /* numbers from the host, or 0 */
  int64_t parent;          /* the enclosing event, counted from 0, or -1 */
  double begin, end, self; /* microseconds; self: without inner events */
  int64_t live;            /* bytes of the CPU's tensors at its end */
  int64_t bytes, self_bytes; /* growth of these bytes; without inner events */
  int64_t device_bytes, device_self_bytes;       /* the same for all devices */
  double device_begin, device_time, device_self; /* microseconds of a device's work for it */
  int32_t device;          /* 0: none */
  int64_t sizes;           /* index of the sizes of its tensors; -1: not recorded */
  uint64_t first, last;    /* nodes made in it: ids above first, up to last. For a gradient both are
                           ** its node's id. */
} moth_profile_event;

typedef struct moth_profile_info {
  int64_t events, sizes; /* lengths of the arrays for moth_profile_take */
  int64_t dropped;       /* events above the limit */
  int64_t peak_bytes;    /* of the CPU's tensors */
  double time;           /* microseconds from start to stop */
} moth_profile_info;

/* Records the events of this context from start to stop, at most `most`. SHAPES: with sizes.
** DEVICES: with the times of devices, by their own clocks; stop waits for them. LINES: each call of
** the host returns MOTH_WANT, so that it can report its source line. */
enum { MOTH_PROFILE_SHAPES = 1, MOTH_PROFILE_DEVICES = 2, MOTH_PROFILE_LINES = 4 };
int32_t moth_profile_start(moth_ctx *ctx, uint32_t flags, int64_t most);
int32_t moth_profile_stop(moth_ctx *ctx, moth_profile_info *info); /* stops even if it fails */
/* Copies the events, in the order of their begins, and frees them. sizes: for each event the number
** of its tensors, then ndim and shape of each. Either may be NULL. */
int32_t moth_profile_take(moth_ctx *ctx, moth_profile_event *events, int64_t *sizes);
/* Begins an event of the host, until moth_profile_end. Returns 0 if no profile is running. */
uint64_t moth_profile_begin(moth_ctx *ctx, int32_t kind, uint32_t label, uint32_t line);
void moth_profile_end(moth_ctx *ctx, uint64_t range);
void moth_profile_line(moth_ctx *ctx, uint32_t line); /* source line of the host's last call */

/* ---- cdef continues: trace ---- */

/* Traces a function of elements for moth.kernel, as the elementwise functions that it calls. From
** begin to free no node is recorded. From moth_trace_inputs to end each elementwise function on the
** inputs, or on results from them, is a step; any other op fails, and so does reading values.
** Values are numbered: first the inputs, then constants and results. All inputs have one shape or
** are 0-d. After moth_trace_backward a sum of the gradients of 0-d inputs is traced as its
** argument. */
typedef struct moth_traced {
  const char *name; /* of the function; "convert" */
  int32_t function; /* its number for `fused` */
  int32_t dtype, nvalues, told; /* told: how many of the numbers are set */
  int32_t value[6];  /* the result first */
  int32_t dtypes[6]; /* of the values */
  double numbers[3];
} moth_traced;
int32_t moth_trace_begin(moth_ctx *ctx);
int32_t moth_trace_inputs(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs);
void moth_trace_backward(moth_ctx *ctx);
int32_t moth_trace_value(moth_ctx *ctx, const moth_handle *x); /* the number of x, or an error */
int32_t moth_trace_step(moth_ctx *ctx, uint32_t i, moth_traced *step); /* 1; 0 after the last */
/* A constant as a 0-d tensor; {0, 0} if the value is not a constant. */
int32_t moth_trace_constant(moth_ctx *ctx, int32_t value, moth_handle *out);
/* Ends the trace. Steps and values can be read until moth_trace_free. */
void moth_trace_end(moth_ctx *ctx);
void moth_trace_free(moth_ctx *ctx);

/* ---- cdef continues: calls ---- */

/* A call log. From begin to end each moth_call that succeeds is an entry, with all its tensors,
** which are kept until free. */
typedef struct moth_logged_call {
  const moth_op *op;
  const moth_slot *slots; /* as for moth_call, with defaults. A tensor is replaced by its number,
                          ** from 1, or 0; a list by the number of its first tensor */
  uint32_t ntensors, nresults; /* the results come last */
  int32_t writes;              /* 1: the first result is an existing tensor, which it wrote */
  int32_t event, recorded;     /* MOTH_CALL_LOG_..., below; was grad mode on? */
} moth_logged_call;
/* flags of begin. EVENTS: autocast is no error, logs nest, and access to tensors other than by
** moth_call is an entry too, with op = NULL. BACKWARD: the ops of a backward pass are entries. */
enum { MOTH_CALL_LOG_EVENTS = 1, MOTH_CALL_LOG_BACKWARD = 2 };
enum { /* event */
  MOTH_CALL_LOG_OP,       /* a call */
  MOTH_CALL_LOG_DATA,     /* tensor 0 was made from the host's values */
  MOTH_CALL_LOG_DETACH,   /* tensor 1 is tensor 0 without history */
  MOTH_CALL_LOG_REQUIRES, /* tensor 0 requires a gradient if `writes` is 1 */
  MOTH_CALL_LOG_READ,     /* the host read values of tensor 0 */
  MOTH_CALL_LOG_OTHER     /* other access, which the log cannot describe */
};
int32_t moth_call_log_begin(moth_ctx *ctx, uint32_t flags);
void moth_call_log_end(moth_ctx *ctx);
void moth_call_log_pause(moth_ctx *ctx, int32_t on); /* 1: no entries until 0 */
uint32_t moth_call_log_count(moth_ctx *ctx); /* of the running log, else of the last one */
int32_t moth_call_log_at(moth_ctx *ctx, uint32_t i, moth_logged_call *call);
/* Tensor k of call i, from 0, and the version of its storage at that time; with EVENTS, UINT32_MAX
** for a number of the host. {0, 0} for an empty place in a list. */
int32_t moth_call_log_tensor(moth_ctx *ctx, uint32_t i, uint32_t k, moth_handle *out,
                             uint32_t *version);
void moth_call_log_free(moth_ctx *ctx);

/* ---- cdef continues: workers ---- */

/* Workers are Lua states on their own threads. They run messages and send results back. The library
** links no Lua: the host passes the addresses of Lua's functions. */
typedef struct moth_lua {
  void *newstate, *openlibs, *cpcall, *loadbuffer, *pcall, *tolstring, *close;
} moth_lua;

typedef struct moth_message {
  uint64_t number;
  moth_text text;         /* valid until the next receive or the end; */
  const uint64_t *tokens; /* ... unopened tokens are dropped then */
  uint32_t ntokens;
} moth_message;

/* Starts a worker for each program, a Lua chunk with its tokens. The handle (not a tensor) owns the
** workers. When it is freed, they are stopped and queued messages are dropped; moth_close waits for
** them, at most two seconds. A forked child has no workers. */
int32_t moth_workers_start(moth_ctx *ctx, const moth_lua *lua, const moth_message *programs,
                           uint32_t n, moth_handle *out);
/* Sends a message to the first free worker. On a worker's thread, with workers = NULL, sends it to
** the host. Messages and answers with a number below `first` are dropped. The message owns its
** tokens, unless this fails. */
int32_t moth_workers_send(moth_ctx *ctx, const moth_handle *workers, const moth_message *message,
                          uint64_t first);
/* Returns 1: `message` is the answer with the number that it had; on a worker's thread, the next
** message. Returns 0: none came in so many seconds (below 0: no limit); on a worker's thread, it
** must end. moth_cancel stops the wait of a host. E_STATE: a worker failed; the message says
** why. */
int32_t moth_workers_receive(moth_ctx *ctx, const moth_handle *workers, double seconds,
                             moth_message *message);

/* ---- cdef continues: streams ---- */

/* A device runs the work of one stream in order. The work of several streams has no order, unless
** one waits for another. Each device of a context begins on stream 0. moth_stream_take returns the
** number of another stream, which the handle owns; a higher priority is a lower number.
** moth_stream_use sets the current stream and returns the old one; -1: no change. */
int32_t moth_stream_take(moth_ctx *ctx, int32_t device, int32_t priority, moth_handle *out);
int32_t moth_stream_use(moth_ctx *ctx, int32_t device, int32_t number);
int32_t moth_stream_wait(moth_ctx *ctx, int32_t device, int32_t number);
int32_t moth_stream_query(moth_ctx *ctx, int32_t device, int32_t number); /* 1: all work is done */
/* Later work of a stream waits for all present work of the other. */
int32_t moth_stream_join(moth_ctx *ctx, int32_t device, int32_t number, int32_t other_device,
                         int32_t other);
int32_t moth_event_take(moth_ctx *ctx, int32_t timed, moth_handle *out);
int32_t moth_event_record(moth_ctx *ctx, const moth_handle *event, int32_t device, int32_t number);
/* A stream waits for the event. device = 0: the caller waits. */
int32_t moth_event_wait(moth_ctx *ctx, const moth_handle *event, int32_t device, int32_t number);
int32_t moth_event_query(moth_ctx *ctx, const moth_handle *event);
int32_t moth_event_elapsed(moth_ctx *ctx, const moth_handle *start, const moth_handle *end,
                           double *ms);

/* ---- cdef continues: coroutines ---- */

/* Searches the address where the Lua state stores its running coroutine. Call it in several
** coroutines: `state` runs, `sleeper` was never resumed, `outer` (or NULL) resumed `state`. wide:
** is it a GC64 build? Returns 1 when found. */
int32_t moth_coroutine_find(moth_ctx *ctx, int32_t wide, const void *state, const void *sleeper,
                            const void *outer);
/* Returns 1 if this upvalue (debug.upvalueid) is open and has that value. */
int32_t moth_coroutine_probe(moth_ctx *ctx, const void *probe, double token);
/* Modes that the running coroutine sets after this hold at most until the upvalue is closed. */
int32_t moth_coroutine_enter(moth_ctx *ctx, const void *probe, double token);
void moth_coroutine_leave(moth_ctx *ctx);
/* ... or until moth_coroutine_forget. For a host that keeps the coroutine. */
int32_t moth_coroutine_hold(moth_ctx *ctx);
void moth_coroutine_forget(moth_ctx *ctx, const void *state);
/* Removes the modes of coroutines whose upvalue is closed. Returns how many coroutines are left. */
int32_t moth_coroutine_sweep(moth_ctx *ctx);
int32_t moth_coroutine_known(moth_ctx *ctx, double token);

/* ---- cdef continues: slices ---- */

/* on = 1: the blocks that the context holds now, in use or cached, are not returned to the system
** until on = 0. For moth.reserve. */
void moth_memory_reserve(moth_ctx *ctx, int32_t on);
/* Slices of time, for moth.budget. While a slice is current, moth_call, moth_capture_replay and
** moth_task_step return MOTH_E_PAUSED when its time is over: leave it, and later enter it and
** repeat the call. */
typedef struct moth_slice moth_slice;
moth_slice *moth_slice_new(moth_ctx *ctx); /* returns NULL after an error */
/* fresh = 1: for new work, which begins with the modes of the caller. */
int32_t moth_slice_enter(moth_ctx *ctx, moth_slice *slice, double seconds, int32_t fresh);
void moth_slice_extend(moth_ctx *ctx, double seconds); /* the current slice, from now on */
/* on = 1: calls in the current slice do not pause, until on = 0. Returns the old value. */
int32_t moth_slice_hold(moth_ctx *ctx, int32_t on);
void moth_slice_leave(moth_ctx *ctx);
void moth_slice_free(moth_ctx *ctx, moth_slice *slice); /* ends a paused call with E_INTERRUPT */

/* ---- cdef continues: swapped ---- */

/* A copy of the elements that moth_reinterpret would return, if each is stored with its bytes in
** reverse order. */
int32_t moth_from_swapped(moth_ctx *ctx, const moth_handle *bytes, int64_t from, int32_t dtype,
                          const int64_t *shape, int32_t ndim, moth_handle *out);

/* ---- cdef continues: stop ---- */

/* For loops that save their state before they end. From moth_stop_watch(1) to moth_stop_watch(0)
** the first SIGINT (Ctrl-C) or SIGTERM only sets a flag, unless the process ignores it; the second
** one acts as it did before. Watches of one process may nest. */
void moth_stop_watch(int32_t on);
int32_t moth_stop_requested(void); /* the signal's number; 0: none came */
void moth_stop_repeat(void);       /* sends that signal again, after the watch */

/* ---- cdef continues: distributed ---- */

/* Messages between processes: of CPU tensors through MPI (core/host/processes.c), of GPU tensors
** through NCCL (device_transfers.c). Ranks and groups count from 0; group 0 has all processes. One
** context of a process may use them. */
typedef struct moth_transfer moth_transfer;
enum { /* kinds of messages */
  MOTH_TRANSFER_BARRIER, MOTH_TRANSFER_BROADCAST, MOTH_TRANSFER_REDUCE, MOTH_TRANSFER_ALL_REDUCE,
  MOTH_TRANSFER_REDUCE_SCATTER, MOTH_TRANSFER_GATHER, MOTH_TRANSFER_ALL_GATHER,
  MOTH_TRANSFER_SCATTER, MOTH_TRANSFER_ALL_TO_ALL, MOTH_TRANSFER_SEND, MOTH_TRANSFER_RECV
};
enum { /* operations; of bool: or, and, and, or */
  MOTH_REDUCE_SUM, MOTH_REDUCE_PRODUCT, MOTH_REDUCE_MIN, MOTH_REDUCE_MAX, MOTH_REDUCE_BAND,
  MOTH_REDUCE_BOR, MOTH_REDUCE_BXOR, MOTH_REDUCE_MEAN
};
typedef struct moth_transfer_args {
  int32_t kind, group, op;
  int32_t peer;              /* the root, receiver or sender in the group; recv: -1 is any */
  int32_t tag;  /* of send and recv, from 0 to 32767; of a barrier 1: before the end of MPI */
  moth_handle input, output; /* contiguous, of one dtype and device; may be the same */
  const int64_t *sizes;      /* all_to_all: elements to each rank, then from each rank */
  double seconds;            /* of GPU tensors: a transfer that takes longer ends its group */
} moth_transfer_args;
/* Opens the library at `path` (NULL: the one that is installed) and calls MPI_Init, unless the host
** has. Fills in this process's rank and the number of processes. */
int32_t moth_mpi_open(moth_ctx *ctx, const char *path, int32_t *rank, int32_t *size);
int32_t moth_mpi_found(moth_ctx *ctx); /* 1 if MPI can be opened, else 0 */
const char *moth_mpi_version(moth_ctx *ctx); /* NULL if MPI is not open */
/* Leaves the groups. Calls MPI_Finalize, which waits for all processes. */
int32_t moth_mpi_close(moth_ctx *ctx);
int32_t moth_mpi_abort(moth_ctx *ctx, int32_t code); /* ends all processes */
/* A group of these ranks of group 0. All processes call it, with the same ranks. */
int32_t moth_group_new(moth_ctx *ctx, const int32_t *ranks, int32_t n, int32_t *group);
int32_t moth_group_free(moth_ctx *ctx, int32_t group);
/* Joins `size` processes without MPI: rank 0 listens at the port of `host`, the others connect to
** it. */
int32_t moth_rendezvous_open(moth_ctx *ctx, const char *host, int32_t port, int32_t rank,
                             int32_t size, double seconds);
/* Copies n bytes from rank `root` to all processes, which all call it, without MPI. */
int32_t moth_rendezvous_share(moth_ctx *ctx, int32_t root, void *bytes, int64_t n, double seconds);
/* The 128 bytes that one member of a group makes, and all members pass to moth_nccl_open. */
int32_t moth_nccl_id(moth_ctx *ctx, void *id);
/* Connects the members of a group for tensors of GPUs; `device` is that of this process. */
int32_t moth_nccl_open(moth_ctx *ctx, int32_t group, int32_t device, const void *id,
                       double seconds);
/* Starts a message, which keeps its tensors alive. Members of a group start its collectives in the
** same order. */
int32_t moth_transfer_start(moth_ctx *ctx, const moth_transfer_args *x, moth_transfer **made);
int32_t moth_transfer_done(moth_ctx *ctx, const moth_transfer *m); /* 1, 0 or an error */
/* Waits at most so many seconds. *source (or NULL): the sender of a received message. With seconds
** < 0 and GPU tensors, the current stream waits and not the CPU. */
int32_t moth_transfer_wait(moth_ctx *ctx, moth_transfer *m, double seconds, int32_t *source);
void moth_transfer_free(moth_ctx *ctx, moth_transfer *m); /* an unfinished one goes on */

/* ---- cdef continues: sandbox ---- */

/* The limits of a call by moth_sandbox_call, a C function for Lua that package.loadlib finds. */
typedef struct moth_limits {
  moth_ctx *ctx;        /* set by the caller, as the next three: */
  double seconds;
  int64_t bytes;        /* growth of Lua's heap */
  int64_t tensor_bytes; /* growth of the live bytes */
  int32_t reason, slow; /* reason: MOTH_GUARD_..., or 0: no limit was reached */
  double spent;         /* after the call: seconds, ... */
  int64_t grown, live;  /* ... growth of the heap, of the live bytes */
  struct moth_limits *outer;
  double until, last, old_deadline;
  int64_t heap, check_at, handles, old_limit;
} moth_limits;
enum { MOTH_GUARD_TIME = 1, MOTH_GUARD_MEMORY = 2 };

/* ---- cdef continues: gif ---- */

/* The first frame of a GIF file. Its rectangle is in the canvas. */
typedef struct moth_gif {
  int32_t width, height; /* of the canvas */
  int32_t x, y, frame_width, frame_height, interlaced;
  int32_t transparent;   /* the index of the transparent color, or -1 */
  int32_t colors;        /* of its palette; 0: none, indices are gray */
  int64_t palette, data; /* positions in the file */
} moth_gif;
int32_t moth_gif_read_size(moth_ctx *ctx, const moth_text *bytes, moth_gif *gif);
/* Writes width * height pixels of red, green, blue, alpha; `gif` is from moth_gif_read_size with
** the same bytes. */
int32_t moth_gif_read(moth_ctx *ctx, const moth_text *bytes, const moth_gif *gif, uint8_t *rgba);

/* ---- cdef ends ---- */

/* Not declared in Lua; lib.lua has the same numbers. */

int32_t moth_anomaly_mode(moth_ctx *ctx, int32_t on); /* as moth_grad_mode */

/* Modes for moth_mode. They belong to a coroutine, if the host is a LuaJIT state: a mode holds
** while its coroutine runs, and in coroutines that it resumes. AUTOCAST is a dtype or -1; GPU is
** the index of the device that "cuda" means. UNSET: as in the coroutine that resumed it. The main
** coroutine always has values, and UNSET does not change them. INSIDE is read only: has the
** coroutine called enter or hold? */
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
