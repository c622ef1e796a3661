/* moth_lua.h -- what the Lua side of Moth calls besides moth.h: sweeps, hooks, activation
** checkpoints, captured steps, profiles, traces, call logs, workers, streams, coroutines.
**
** Hosts do not need this header, and it may change with every version of the Lua files. They check
** moth_lua_abi_version when they load. MOTH_LUA_ABI grows with each change here or in moth.h that
** older Lua files cannot take.
**
** moth.h explains handles, errors and threads. LuaJIT's ffi.cdef reads both headers from the built
** library (moth_header). The parts below "cdef continues" are declared at their first use, by
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
/* Both headers without comments. A line "@NAME" begins each part that is declared late. */
const char *moth_header(void);

/* ---- contexts ---- */

/* moth_open in memory of the caller, of moth_open_size() bytes, which must outlive every use: calls
** after moth_close are then errors. */
size_t moth_open_size(void);
moth_ctx *moth_open_at(void *room);
/* Finalizer of a collector's canary: the next call returns MOTH_WANT. */
void moth_tick(moth_ctx **anchor);
moth_ctx *moth_tick_arm(moth_ctx *ctx); /* counts one more canary; returns ctx */

uint64_t moth_error_node(moth_ctx *ctx); /* id of the node that a backward error is from, or 0 */
/* After E_VERSION the id of the storage that changed, and the version that was saved; else 0. */
uint64_t moth_error_storage(moth_ctx *ctx, uint32_t *version);

int32_t moth_interrupt_pending(void);  /* 1: a moth_interrupt has not stopped anything yet */
void moth_interrupt_withdraw(void);    /* the caller has stopped the work by other means */

/* ---- ops ---- */

enum { /* further flags */
  MOTH_OP_CREATES = 1024,      /* makes a tensor from sizes or like another: takes requires_grad */
  MOTH_OP_STRIDED = 0x10000,   /* maps elements of any layout; in place and `out` are direct */
  MOTH_OP_FROM_ONE = 0x400000, /* also takes positions that count from 1 */
  MOTH_OP_FROM_ONE_THERE = 0x8000000 /* the same on a GPU; on the CPU only from 0 */
};

/* ---- tensors ---- */

/* Makes a tensor from a list of numbers (type 0), integers (1) or bools (2), which must fit. */
int32_t moth_from_slots(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                        const moth_slot *values, int64_t count, int32_t type, moth_handle *out);
uint32_t moth_died_in(moth_ctx *ctx, const moth_handle *x); /* the scope that freed x, or 0 */
int32_t moth_keep_always(moth_ctx *ctx, const moth_handle *x); /* moves it out of every scope */
/* Elements of a dtype over the bytes of a contiguous u8 tensor, from byte `from` on: shared where
** they are aligned, else a copy. */
int32_t moth_reinterpret(moth_ctx *ctx, const moth_handle *bytes, int64_t from, int32_t dtype,
                         const int64_t *shape, int32_t ndim, moth_handle *out);
/* A copy of x in page-locked memory of the CPU, without history; x itself if it is there. */
int32_t moth_pin_memory(moth_ctx *ctx, const moth_handle *x, moth_handle *out);
int32_t moth_is_pinned(moth_ctx *ctx, const moth_handle *x);
int32_t moth_generator(moth_ctx *ctx, moth_handle *out); /* the default one: i64 {seed, offset} */

/* ---- sweeps: Lua has lost handles ---- */

uint32_t moth_slot_count(moth_ctx *ctx); /* slots 1..count may be in use */
int32_t moth_slot_used(moth_ctx *ctx, uint32_t slot);
void moth_drop(moth_ctx *ctx, uint32_t slot); /* the last handle of this slot is gone */
int32_t moth_above_goal(moth_ctx *ctx); /* 1: a collection is due, and worth its time */
/* Ends a sweep. collected: it followed a full collection, which sets all goals again. seconds: what
** collection and sweep took of this thread, of which the sweep took `sweeping`. heap: bytes that
** the collector walked through. */
void moth_swept(moth_ctx *ctx, int32_t collected, double seconds, double sweeping, double heap);
/* Ids of nodes for which Lua has data and which are gone. Returns how many it filled in. */
uint32_t moth_dead_ids(moth_ctx *ctx, uint64_t *ids, uint32_t max);

double moth_seconds(void);        /* a clock that never goes back */
double moth_thread_seconds(void); /* processor time of the calling thread */

/* ---- memory ---- */

void moth_memory_reset_peak(moth_ctx *ctx);
/* The least that live bytes and handles may grow between two collections. */
void moth_memory_floor(moth_ctx *ctx, int64_t bytes, int64_t handles);
/* Shrinks the cache to 32 MiB, after a rare task with many temporaries. With glibc, here and
** wherever the cache returns 8 MiB or more of blocks below 1 MiB at once, malloc_trim(0) follows:
** it walks through the free memory of the whole process, that of the host too. */
void moth_trim_cache(moth_ctx *ctx);
void moth_fail_allocation(moth_ctx *ctx, int64_t after); /* for tests: allocation n fails; 0: off */

/* ---- autograd ---- */

/* Sets what the running coroutine has set itself, and returns what that was; MOTH_ASK returns the
** value in force and sets nothing. which: MOTH_MODE_..., below. A coroutine other than the main one
** must have called moth_coroutine_enter or moth_coroutine_hold before it sets a mode. */
int32_t moth_mode(moth_ctx *ctx, int32_t which, int32_t value);
/* Keeps the gradient of a tensor that is no leaf, for moth_get_grad. */
int32_t moth_retain_grad(moth_ctx *ctx, const moth_handle *x);
/* Returns 1 if each of n tensors has a gradient, and none is sparse. */
int32_t moth_have_grads(moth_ctx *ctx, const moth_handle *x, uint32_t n);
/* x.data: a tensor that shares the memory of x and has no history. set_data gives x other memory
** of the same dtype and device. */
int32_t moth_get_data(moth_ctx *ctx, const moth_handle *x, moth_handle *data);
int32_t moth_set_data(moth_ctx *ctx, const moth_handle *x, const moth_handle *data);
/* moth_set_data for a leaf, of any dtype and device. Drops its gradient. */
int32_t moth_become(moth_ctx *ctx, const moth_handle *x, const moth_handle *data);
/* Leaf x has no shape and no values until moth_become; any other use of it is an error. */
int32_t moth_shapeless(moth_ctx *ctx, const moth_handle *x);
int32_t moth_detach_(moth_ctx *ctx, const moth_handle *x); /* drops the history of x */
const char *moth_node_name(moth_ctx *ctx, const moth_handle *x); /* "mul"; NULL for a leaf */
/* The id under which Lua keeps hooks of x: that of its leaf, or of its node, which it marks. */
int32_t moth_hook_id(moth_ctx *ctx, const moth_handle *x, uint64_t *id, uint32_t *output);

/* A backward pass that can stop for Lua. Arguments as for moth_backward. */
int32_t moth_task_begin(moth_ctx *ctx, const moth_handle *roots, const moth_handle *grads,
                        uint32_t nroots, const moth_handle *inputs, uint32_t ninputs,
                        uint32_t flags, uint32_t *task);
enum { MOTH_TASK_DONE = 0, MOTH_TASK_HOOK = 2, MOTH_TASK_FUNCTION = 3, MOTH_TASK_AGAIN = 8,
       MOTH_TASK_AFTER = 16 };
/* Runs until the end (without inputs the task is then freed), an error (it is freed), or a stop:
**   HOOK      before node *node, which has hooks. *ngiven gradients have arrived; 0: a leaf, whose
**             gradient is complete.
**   FUNCTION  at a Function of Lua, which must put *nwanted gradients
**   AGAIN     before a node whose checkpoint must run again; *node is that one's id
**   AFTER     after a node that moth_node_hook marked; moth_task_taken reads the gradients of its
**             inputs, moth_task_put replaces them */
int32_t moth_task_step(moth_ctx *ctx, uint32_t task, uint64_t *node, uint32_t *ngiven,
                       uint32_t *nwanted);
/* Gradient i that has arrived at the node; {0, 0}: none. */
int32_t moth_task_given(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
/* Zeros like result i of the node, in place of a gradient that did not arrive. */
int32_t moth_task_zeros(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
/* Sets gradient i: of a result at a HOOK, of an input at a FUNCTION or AFTER. */
int32_t moth_task_put(moth_ctx *ctx, uint32_t task, uint32_t i, const moth_handle *grad);
int32_t moth_task_wants(moth_ctx *ctx, uint32_t task, uint32_t i); /* 1: input i needs a gradient */
int32_t moth_task_saved(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *x);
int32_t moth_task_result(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);
void moth_task_free(moth_ctx *ctx, uint32_t task);

/* A Function written in Lua has run: connects outputs to inputs by a node of its own. Bit i of
** nondiff: output i is not differentiable. */
int32_t moth_function(moth_ctx *ctx, const char *name, const moth_handle *inputs, uint32_t ninputs,
                      moth_handle *outputs, uint32_t noutputs, uint64_t nondiff,
                      const moth_handle *saved, uint32_t nsaved, uint64_t *node);

/* ---- files ---- */

/* Entry i of a safetensors file as a u8 tensor, whatever its dtype. */
int32_t moth_safetensors_bytes(moth_ctx *ctx, const moth_handle *f, int64_t i, moth_handle *out);
int64_t moth_safetensors_metadata_count(moth_ctx *ctx, const moth_handle *file);
int32_t moth_safetensors_metadata(moth_ctx *ctx, const moth_handle *file, int64_t i,
                                  moth_text *key, moth_text *value);
/* Returns 1 if a file is in the folder of another or below it, 0 if not, or an error. Follows
** links; a file with several hard links is in no folder. If the other is a link, the folder that it
** leads to counts too. */
int32_t moth_file_beside(moth_ctx *ctx, const moth_text *path, const moth_text *other);
/* A file as a u8 tensor: mapped as by moth_safetensors_open, or read where map is 0 or fails. */
int32_t moth_file_open(moth_ctx *ctx, const moth_text *path, int32_t map, moth_handle *out);

typedef struct moth_piece { /* of a file: bytes, or those of a tensor, row-major */
  moth_text text;
  moth_handle tensor; /* {0, 0}: text */
} moth_piece;
/* Writes a file from n pieces, complete or not at all; durable = 1: it is on the disk on return. */
int32_t moth_file_save(moth_ctx *ctx, const moth_text *path, const moth_piece *pieces, uint32_t n,
                       int32_t durable);

/* ---- devices and settings ---- */

/* What the plugin found, as lines "driver\t13.0"; an error if there is no plugin. */
int32_t moth_device_report(moth_ctx *ctx, char *text, int64_t room);
int32_t moth_device_limit(moth_ctx *ctx, int32_t device, int64_t bytes); /* 0: no limit */
int32_t moth_device_reset_peak(moth_ctx *ctx, int32_t device);
int32_t moth_device_empty_cache(moth_ctx *ctx, int32_t device);
/* Matrix products of f32 on GPUs: 0 exact, 1 and 2 in TF32. -1 leaves it; returns the old one. */
int32_t moth_float32_precision(moth_ctx *ctx, int32_t level);
/* Must libraries return the same bits each time? -1 leaves it; returns the old value. */
int32_t moth_deterministic(moth_ctx *ctx, int32_t on);
enum {
  MOTH_CUDNN_ENABLED,   /* is it used? First 1 */
  MOTH_CUDNN_BENCHMARK, /* are its plans for convolutions timed first? */
  MOTH_CUDNN_TF32,      /* may convolutions multiply f32 as TF32? */
  MOTH_CUDNN_SDP        /* does it compute attention? First 1 */
};
int32_t moth_cudnn(moth_ctx *ctx, int32_t what, int32_t on); /* -1 leaves it; returns the old one */

/* ---- cdef continues: sparse ---- */

/* Sparse tensors: some of the rows of a tensor that is 0 elsewhere. Ops do not accept them.
** rows: i64 (n), from 0, of `size`; values: (n, ...). Both are shared if they are contiguous. The
** ops that use it check the rows. */
int32_t moth_sparse_make(moth_ctx *ctx, const moth_handle *rows, const moth_handle *values,
                         int64_t size, int32_t coalesced, moth_handle *out);
/* Its two tensors, which share its memory. */
int32_t moth_sparse_parts(moth_ctx *ctx, const moth_handle *x, moth_handle *rows,
                          moth_handle *values);
/* The same with each row once, in order; x itself if it is so. */
int32_t moth_sparse_coalesce(moth_ctx *ctx, const moth_handle *x, moth_handle *out);

/* ---- cdef continues: nodes ---- */

typedef struct moth_node_info {
  const char *name; /* "mul"; NULL for a leaf */
  uint64_t id;      /* 0: x needs no gradient */
  uint32_t output, ninputs, noutputs; /* output: which result of the node x is */
} moth_node_info;
int32_t moth_node_inspect(moth_ctx *ctx, const moth_handle *x, moth_node_info *info);
/* Where the gradient of input i of x's node flows: a tensor without elements, whose node that is;
** {0, 0}: nowhere. */
int32_t moth_node_next(moth_ctx *ctx, const moth_handle *x, uint32_t i, moth_handle *next);
/* Passes stop before the node of x (TASK_HOOK) and, with after = 1, also after it (TASK_AFTER). */
int32_t moth_node_hook(moth_ctx *ctx, const moth_handle *x, int32_t after);
int32_t moth_task_taken(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad);

/* An activation checkpoint is a part of a forward pass. What its ops save for backward is freed
** when it ends by CHECKPOINT_EMPTY. A pass that needs it stops with TASK_AGAIN. Then the host
** begins a checkpoint of kind AGAIN, runs the same calls with the inputs that moth_task_saved
** returns, and ends it by CHECKPOINT_GIVE for that task. After an error CHECKPOINT_DROP ends a
** checkpoint (0: the outermost) and those inside it. */
enum { MOTH_CHECKPOINT_FIRST = 0, MOTH_CHECKPOINT_AGAIN = 1, MOTH_CHECKPOINT_PACKS = 2 };
enum { MOTH_CHECKPOINT_EMPTY = 0, MOTH_CHECKPOINT_GIVE = 1, MOTH_CHECKPOINT_DROP = 2 };
int32_t moth_checkpoint_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                              int32_t kind, uint64_t *checkpoint);
int32_t moth_checkpoint_end(moth_ctx *ctx, uint64_t checkpoint, int32_t how, uint32_t task);
/* In a checkpoint of kind PACKS each call that records returns WANT. Then moth_checkpoint_pack
** takes the saved tensors out of the nodes, one per call, with the node's id and the tensor's
** number there ({0, 0}: no more). The host stores them in its own form. A pass that needs them
** stops with TASK_AGAIN; moth_task_packed returns the node, moth_task_unpack puts one back. */
int32_t moth_checkpoint_pack(moth_ctx *ctx, uint64_t checkpoint, uint64_t *node, uint32_t *slot,
                             moth_handle *x);
int32_t moth_task_packed(moth_ctx *ctx, uint32_t task, uint64_t *node);
int32_t moth_task_unpack(moth_ctx *ctx, uint32_t task, uint32_t slot, const moth_handle *x);

/* ---- cdef continues: capture ---- */

/* A captured step. Kernels that run between begin and end are recorded; replay runs them again.
** inputs are tensors into which a replay first copies its own inputs. All other numbers, and the
** path of the host's code, are constants. end replaces the handles in results by ones without
** history, which replays overwrite; abort drops what was recorded. Reading values meanwhile is
** E_UNSUPPORTED. */
enum { MOTH_CAPTURE_STALE = 4 }; /* the step would take another path now: nothing was done */
int32_t moth_capture_begin(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs,
                           uint32_t *capture);
int32_t moth_capture_end(moth_ctx *ctx, moth_handle *results, uint32_t nresults);
void moth_capture_abort(moth_ctx *ctx);
/* Returns 1 if an op recorded so far reads or writes bytes of x, a tensor from before. */
int32_t moth_capture_uses(moth_ctx *ctx, const moth_handle *x);
/* Makes the current recording invalid: end drops it and returns CAPTURE_STALE. */
void moth_capture_void(moth_ctx *ctx);
/* The arguments of the last recorded op, if that is op, laid out as for moth_call; NULL if not.
** Replays read numbers that the host changes there. They live as long as the recording. An
** optimizer's step has an argument (`step` or `first`) that differs each time: without this call
** end is an error. */
moth_slot *moth_capture_slots(moth_ctx *ctx, const moth_op *op);
/* Runs a recording with these inputs, 64 at most. CAPTURE_STALE: their number, a shape or a dtype
** differs; or modes, or storages of parameters or gradients have changed. */
int32_t moth_capture_replay(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                            uint32_t ninputs);
/* Returns 0 if it would run with them, CAPTURE_STALE, or an error. */
int32_t moth_capture_fits(moth_ctx *ctx, uint32_t capture, const moth_handle *inputs,
                          uint32_t ninputs);
/* After CAPTURE_STALE: what differs, in words, and of which tensor; NULL, {0, 0}: unknown. */
const char *moth_capture_why(moth_ctx *ctx, uint32_t capture, moth_handle *of);
void moth_capture_free(moth_ctx *ctx, uint32_t capture);
/* Returns 1 if an element of these tensors is not 0. Each replay tests them again and skips what
** was recorded from here to moth_capture_guard_end if one is not. */
int32_t moth_capture_guard(moth_ctx *ctx, const moth_handle *found, uint32_t nfound);
void moth_capture_guard_end(moth_ctx *ctx);
/* Returns 1 if the last replay skipped the part of that guard, counted from 0. */
int32_t moth_capture_guarded(moth_ctx *ctx, uint32_t capture, uint32_t guard);
/* Returns the number of CUDA graphs in a replay. *there: ops that run on a GPU outside of them;
** *here: those that run on the CPU, or copy between the two. */
int32_t moth_capture_graphs(moth_ctx *ctx, uint32_t capture, int32_t *there, int32_t *here);
/* To compare a replay with the step itself: keep what it may change; run the step; swap, which
** restores what was kept; replay; differs returns what came out differently, and forgets. A second
** swap instead of the replay restores the results of the step. */
enum { MOTH_CAPTURE_VALUE = 5, MOTH_CAPTURE_GRADIENT = 6, MOTH_CAPTURE_RANDOM = 7 };
int32_t moth_capture_keep(moth_ctx *ctx, uint32_t capture);
int32_t moth_capture_swap(moth_ctx *ctx, uint32_t capture);
int32_t moth_capture_differs(moth_ctx *ctx, uint32_t capture);

/* ---- cdef continues: profile ---- */

enum { /* kind */
  MOTH_EVENT_OP,       /* a call of an op: by the host, by another op or in a replay */
  MOTH_EVENT_GRADIENT, /* the gradient of an op, in a backward pass */
  MOTH_EVENT_WHOLE,    /* an event around others: "backward", "replay", a "graph" of a GPU */
  MOTH_EVENT_RANGE     /* from here on: the host's own, of any kinds */
};

typedef struct moth_profile_event {
  const char *name;        /* lives as long as the library; NULL: the host's, by its label */
  int32_t kind, status;
  uint32_t label, line;    /* numbers from the host, or 0 */
  int64_t parent;          /* the event it began in, counted from 0, or -1 */
  double begin, end, self; /* microseconds; self: time in no other event inside it */
  int64_t live;            /* bytes of the CPU's tensors at its end */
  int64_t bytes, self_bytes; /* what it added to them; in no other event inside it */
  int64_t device_bytes, device_self_bytes;       /* the same of all devices */
  double device_begin, device_time, device_self; /* microseconds that a device worked for it */
  int32_t device;          /* 0: none did */
  int64_t sizes;           /* where the sizes of its tensors begin; -1: not recorded */
  uint64_t first, last;    /* nodes made meanwhile: ids above first, up to last. Of a gradient
                           ** both are its node's id. */
} moth_profile_event;

typedef struct moth_profile_info {
  int64_t events, sizes; /* how many of each moth_profile_take returns */
  int64_t dropped;       /* events above the limit */
  int64_t peak_bytes;    /* of the CPU's tensors */
  double time;           /* microseconds from start to stop */
} moth_profile_info;

/* Records all that this context runs from start to stop, at most `most` events. SHAPES: with sizes.
** DEVICES: with the time that devices work for each op, by their own clocks; stop waits for them.
** LINES: each call of the host returns MOTH_WANT, so that it can report its line. */
enum { MOTH_PROFILE_SHAPES = 1, MOTH_PROFILE_DEVICES = 2, MOTH_PROFILE_LINES = 4 };
int32_t moth_profile_start(moth_ctx *ctx, uint32_t flags, int64_t most);
int32_t moth_profile_stop(moth_ctx *ctx, moth_profile_info *info); /* stops even if it fails */
/* Copies the events out, in the order in which they began, and frees them. sizes: for each event
** the number of its tensors, then ndim and shape of each. Either may be NULL. */
int32_t moth_profile_take(moth_ctx *ctx, moth_profile_event *events, int64_t *sizes);
/* A range of the host's own, until moth_profile_end; 0 if no profile is running. */
uint64_t moth_profile_begin(moth_ctx *ctx, int32_t kind, uint32_t label, uint32_t line);
void moth_profile_end(moth_ctx *ctx, uint64_t range);
void moth_profile_line(moth_ctx *ctx, uint32_t line); /* where the host made its last call */

/* ---- cdef continues: trace ---- */

/* moth.kernel reads a function of elements as the elementwise functions that it calls. From begin
** to free no node is recorded. From moth_trace_inputs to end each elementwise function that runs
** over the inputs, or over results from them, is a step; any other op fails, and so does reading
** values. Values are numbered: the inputs, then constants and results. Inputs have one shape, or
** are 0-d: after moth_trace_backward a sum of their gradients is traced as its argument. */
typedef struct moth_traced {
  const char *name; /* of the function; "convert" */
  int32_t function; /* its number for `fused` */
  int32_t dtype, nvalues, told; /* told: how many numbers */
  int32_t value[6];  /* the result first */
  int32_t dtypes[6]; /* of these */
  double numbers[3];
} moth_traced;
int32_t moth_trace_begin(moth_ctx *ctx);
int32_t moth_trace_inputs(moth_ctx *ctx, const moth_handle *inputs, uint32_t ninputs);
void moth_trace_backward(moth_ctx *ctx);
int32_t moth_trace_value(moth_ctx *ctx, const moth_handle *x); /* its number, or an error */
int32_t moth_trace_step(moth_ctx *ctx, uint32_t i, moth_traced *step); /* 1; 0 after the last */
/* A constant as a 0-d tensor; {0, 0} if that value is no constant. */
int32_t moth_trace_constant(moth_ctx *ctx, int32_t value, moth_handle *out);
/* Ends tracing; steps and values can be read until moth_trace_free. */
void moth_trace_end(moth_ctx *ctx);
void moth_trace_free(moth_ctx *ctx);

/* ---- cdef continues: calls ---- */

/* A call log. From begin to end each moth_call that succeeds is an entry, with all its tensors,
** which live until free. */
typedef struct moth_logged_call {
  const moth_op *op;
  const moth_slot *slots; /* as for moth_call, with defaults. A handle is replaced by the number of
                          ** a tensor, from 1, or 0; a list by that of its first */
  uint32_t ntensors, nresults; /* the results come last */
  int32_t writes;              /* 1: the first result is a tensor from before, which it wrote */
  int32_t event, recorded;     /* MOTH_CALL_LOG_..., below; was grad mode on? */
} moth_logged_call;
/* flags of begin. EVENTS: calls under autocast are no error, logs nest, and what reaches tensors
** other than by moth_call is an entry too, with op = NULL. BACKWARD: the ops of a backward pass are
** entries. */
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
void moth_call_log_pause(moth_ctx *ctx, int32_t on); /* 1: no entries until 0 */
uint32_t moth_call_log_count(moth_ctx *ctx); /* of the running log, else of the last one */
int32_t moth_call_log_at(moth_ctx *ctx, uint32_t i, moth_logged_call *call);
/* Tensor k of call i, counted from 0 here, and the version that its storage had then; UINT32_MAX
** for a number of the host, with EVENTS. {0, 0} where a list has none. */
int32_t moth_call_log_tensor(moth_ctx *ctx, uint32_t i, uint32_t k, moth_handle *out,
                             uint32_t *version);
void moth_call_log_free(moth_ctx *ctx);

/* ---- cdef continues: workers ---- */

/* Workers are Lua states on threads of their own; they run what they receive and send results back.
** The library links no Lua: the host passes the addresses of its functions. */
typedef struct moth_lua {
  void *newstate, *openlibs, *cpcall, *loadbuffer, *pcall, *tolstring, *close;
} moth_lua;

typedef struct moth_message {
  uint64_t number;
  moth_text text;         /* the receiver may read it until the next receive or the end; */
  const uint64_t *tokens; /* ... tokens that were not opened are dropped then */
  uint32_t ntokens;
} moth_message;

/* Starts a worker for each program, a Lua chunk with the tokens that it opens. The handle (no
** tensor) owns them: when it goes, they are asked to end and queued messages are dropped;
** moth_close waits for that, two seconds at most. A forked child has no workers. */
int32_t moth_workers_start(moth_ctx *ctx, const moth_lua *lua, const moth_message *programs,
                           uint32_t n, moth_handle *out);
/* Sends to the first free worker; on a worker's thread, with workers = NULL, to the host. Messages
** and answers with a number below `first` are dropped. The message owns its tokens from here on,
** unless this fails. */
int32_t moth_workers_send(moth_ctx *ctx, const moth_handle *workers, const moth_message *message,
                          uint64_t first);
/* Returns 1: message holds the answer with the number that was in it; on a worker's thread, the
** next message. Returns 0: none came for so many seconds (below 0: no limit); on a worker's thread,
** it is to end. A host that waits can be cancelled. E_STATE: a worker has failed, and why. */
int32_t moth_workers_receive(moth_ctx *ctx, const moth_handle *workers, double seconds,
                             moth_message *message);

/* ---- cdef continues: streams ---- */

/* A device runs the work of one stream in order, and that of several in any order except where one
** waits for another. Each device of a context begins on stream 0. moth_stream_take returns the
** number of another one, which the handle owns; a higher priority is a lower number.
** moth_stream_use makes one current and returns the old one; -1 leaves it. */
int32_t moth_stream_take(moth_ctx *ctx, int32_t device, int32_t priority, moth_handle *out);
int32_t moth_stream_use(moth_ctx *ctx, int32_t device, int32_t number);
int32_t moth_stream_wait(moth_ctx *ctx, int32_t device, int32_t number);
int32_t moth_stream_query(moth_ctx *ctx, int32_t device, int32_t number); /* 1: all is done */
/* Later work of a stream waits for all work of the other so far. */
int32_t moth_stream_join(moth_ctx *ctx, int32_t device, int32_t number, int32_t other_device,
                         int32_t other);
int32_t moth_event_take(moth_ctx *ctx, int32_t timed, moth_handle *out);
int32_t moth_event_record(moth_ctx *ctx, const moth_handle *event, int32_t device, int32_t number);
/* A stream waits for the event; with device 0 the caller does. */
int32_t moth_event_wait(moth_ctx *ctx, const moth_handle *event, int32_t device, int32_t number);
int32_t moth_event_query(moth_ctx *ctx, const moth_handle *event);
int32_t moth_event_elapsed(moth_ctx *ctx, const moth_handle *start, const moth_handle *end,
                           double *ms);

/* ---- cdef continues: coroutines ---- */

/* Finds the place where the state stores its running coroutine. Called in several by turns: `state`
** runs, `sleeper` was made and never resumed, `outer` (or NULL) resumed `state`. wide: is it a GC64
** build? Returns 1 when found. */
int32_t moth_coroutine_find(moth_ctx *ctx, int32_t wide, const void *state, const void *sleeper,
                            const void *outer);
/* Returns 1 if this upvalue (debug.upvalueid) is open and has that value. */
int32_t moth_coroutine_probe(moth_ctx *ctx, const void *probe, double token);
/* Modes that the running coroutine sets from here on hold while the upvalue is open, at most. */
int32_t moth_coroutine_enter(moth_ctx *ctx, const void *probe, double token);
void moth_coroutine_leave(moth_ctx *ctx);
/* ... or until moth_coroutine_forget, by a host that keeps the coroutine. */
int32_t moth_coroutine_hold(moth_ctx *ctx);
void moth_coroutine_forget(moth_ctx *ctx, const void *state);
/* Forgets coroutines whose upvalue is closed; returns how many are left. */
int32_t moth_coroutine_sweep(moth_ctx *ctx);
int32_t moth_coroutine_known(moth_ctx *ctx, double token);

/* ---- cdef ends ---- */

/* Not declared in Lua; lib.lua has the same numbers. */

int32_t moth_anomaly_mode(moth_ctx *ctx, int32_t on); /* as moth_grad_mode */

/* Modes for moth_mode. They belong to a coroutine of the host, if that is a LuaJIT state: what one
** sets holds where it runs and in coroutines that it resumes. AUTOCAST is a dtype or -1; GPU the
** index of the device that "cuda" means. UNSET: as in the coroutine that resumed it; the main one
** always has values, which UNSET leaves. INSIDE is read only: has the coroutine called enter or
** hold? */
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
