/* moth.h -- the C interface of Moth for hosts: contexts, tensors, ops, autograd, files, devices.
** Example programs are in docs/guide/embedding.md.
**
** Handles. A tensor is a moth_handle: two numbers, valid in the context that made it. The caller
** owns each handle that a function fills in (`out`, `results`), until moth_free, the end of its
** scope or of the context. A tensor has at most one handle: a function that returns the tensor
** again fills in the same handle, which is freed once. Use of a freed handle is an error, never a
** crash. Memory is freed when no handle, view or graph uses it. Pointer arguments are borrowed.
**
** Errors. A function that returns int32_t returns a status unless its comment says otherwise.
** A negative status is an error: results are unchanged and moth_error has the message. Other
** statuses are MOTH_OK or a sum of MOTH_WANT and MOTH_KNOWN: test `status < 0`. A NULL context or
** pointer is an error too (MOTH_E_ARG, NULL or 0). No function prints, exits or jumps.
**
** Threads. One thread at a time may use a context; a second one usually gets an error (MOTH_E_ARG,
** NULL or 0). Contexts run in parallel. Any thread may call moth_interrupt and moth_cancel.
**
** Positions and dims count from 0. LuaJIT's ffi.cdef reads the text between the two markers.
*/
#ifndef MOTH_H
#define MOTH_H

#include <stddef.h>
#include <stdint.h>

#define MOTH_ABI 1 /* changes when a compiled host would no longer work */
#if defined(__GNUC__) && defined(MOTH_BUILD)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* ---- cdef begins ---- */
typedef struct moth_ctx moth_ctx; /* owns tensors, graphs, memory, random numbers, settings */
typedef struct moth_op moth_op;   /* an op; lives as long as the library */

typedef struct moth_handle { uint32_t _slot, _gen; } moth_handle; /* {0, 0}: no tensor */
typedef struct moth_text { const char *at; size_t size; } moth_text; /* UTF-8, may have NULs */
typedef union moth_slot { /* an argument of moth_call, an element from moth_read */
  moth_handle handle;
  double number;
  int64_t integer;
  const void *pointer;
} moth_slot;

enum { /* status */
  MOTH_OK = 0,
  MOTH_WANT = 1,  /* a host with a garbage collector should collect now */
  MOTH_KNOWN = 2, /* from moth_call and moth_result: a result already had a handle */
  MOTH_E_ARG = -1, MOTH_E_TYPE = -2, MOTH_E_DTYPE = -3, MOTH_E_SHAPE = -4, MOTH_E_INDEX = -5,
  MOTH_E_DEVICE = -6, /* tensors on different devices, or no such device */
  MOTH_E_ALIAS = -7, /* overlapping or misaligned memory */
  MOTH_E_VERSION = -8, /* a tensor that a backward pass needs was changed in place */
  MOTH_E_GRAPH = -9, /* a backward pass is not possible */
  MOTH_E_DOMAIN = -10, /* no result for these values, such as a singular matrix */
  MOTH_E_MEM = -11, MOTH_E_LIMIT = -12, /* out of memory; above moth_memory_limit */
  MOTH_E_FORMAT = -13, MOTH_E_IO = -14,
  MOTH_E_STATE = -15, /* a freed handle, a closed context, a call at the wrong time */
  MOTH_E_INTERRUPT = -16, MOTH_E_CUDA = -17, MOTH_E_UNSUPPORTED = -18, MOTH_E_PAUSED = -19
};

enum { /* dtype, in the order of promotion */
  MOTH_BOOL, MOTH_U8, MOTH_I8, MOTH_I16, MOTH_I32, MOTH_I64,
  MOTH_F16, MOTH_BF16, MOTH_F32, MOTH_F64, MOTH_DTYPES
};

/* ---- library ---- */

uint32_t moth_abi_version(void);             /* MOTH_ABI of the library */
const char *moth_version(void);              /* "0.1.0" */
const char *moth_config(moth_ctx *ctx);      /* version, instruction set, threads, BLAS, compiler */
const char *moth_dtype_name(int32_t dtype);  /* "f32"; NULL if there is no such dtype */
const char *moth_error_name(int32_t status); /* "E_SHAPE" */

/* ---- contexts and errors ---- */

moth_ctx *moth_open(void);       /* returns a new context, or NULL when out of memory */
void moth_close(moth_ctx *ctx);  /* frees it and all that it owns; ctx is then invalid */
/* The message of the last error; valid until the next call. Positions in it count from `base`. */
const char *moth_error(moth_ctx *ctx, int32_t base);
const char *moth_error_arg(moth_ctx *ctx); /* the argument that the last error names, or "" */
const char *moth_error_op(moth_ctx *ctx);  /* the op that failed, or "" */
/* Stops the current or next op of every context with E_INTERRUPT. Safe in signal handlers. */
void moth_interrupt(void);
/* The same for one context only. on = 0 withdraws the request. */
void moth_cancel(moth_ctx *ctx, int32_t on);
/* Returns 1 if such a request is pending, and clears it. For loops without ops. */
int32_t moth_interrupted(moth_ctx *ctx);
typedef void (*moth_work_function)(moth_ctx *ctx, void *data);
/* Runs work(ctx, data) for about so many seconds, on a stack of 1 MiB. Returns 1 if work has not
** ended: the next call with the same work and data continues it. Between calls the host may use
** ctx. moth_close ends the work: its ops fail with E_INTERRUPT. */
int32_t moth_run_for(moth_ctx *ctx, moth_work_function work, void *data, double seconds);

/* ---- ops ---- */

/* An argument and its slots in the array that moth_call takes. By kind:
**   tensor, mask, index, generator  .handle; a generator is i64 {seed, offset}
**   tensors, indices                .pointer to handles, then .integer, their number
**   int, dim, position, bool        .integer; a dim or position may be negative
**   int2, int3                      .integer, once per number
**   int1-or-enum, int2-or-enum ...  .integer 0, then the numbers; or the choice, from 1
**   ints, shape, dims; floats       .pointer to int64_t; double, then .integer, their number
**   float                           .number
**   scalar                          .integer: 0, 1, 2, then .number, .integer, .integer (a bool)
**   enum                            .integer: the choice, from 0
**   dtype                           .integer: MOTH_F32 ...
**   device                          .integer: 1 + the device; 0: that of the tensors
** An argument whose kind ends in ? may be absent. */
typedef struct moth_arg {
  const char *name, *kind, *fallback, *doc; /* fallback: "" if required, "none", a value, the name
                                            ** of an earlier argument, or the choices: "a|b|c" */
  uint32_t slot, nslots; /* index of its first slot; number of slots */
} moth_arg;

typedef struct moth_op_info {
  const char *name, *family, *file, *doc, *examples;
  const char *outputs; /* "y" or "values, indices: position" */
  const moth_arg *args;
  uint32_t nargs, nslots;
  uint32_t dtypes, flags; /* bit d of dtypes: accepts dtype d; flags: MOTH_OP_... */
  const char *tensors;    /* the op with tensors in place of this op's numbers, or "" */
  const char *public_name; /* of a hidden op: the Lua function that runs it, or "" */
} moth_op_info;

enum { /* flags; moth_lua.h has more */
  MOTH_OP_INPLACE = 1, MOTH_OP_OUT = 2, /* has a form `name_` that writes its input; has `out` */
  MOTH_OP_VIEW = 4, MOTH_OP_GRAD = 8,   /* the result shares the input's memory; differentiable */
  MOTH_OP_METHOD = 16, MOTH_OP_HIDDEN = 32, /* in Lua: also a method; not a function */
  MOTH_OP_RANDOM = 64, MOTH_OP_MUTATES = 128, /* draws random numbers; writes its first argument */
  MOTH_OP_LIST = 256, MOTH_OP_NUMBERS = 512 /* any number of results; accepts moth_number */
};

uint32_t moth_op_count(void);                            /* the number of ops */
const moth_op *moth_op_at(uint32_t i);                   /* op i, or NULL */
const moth_op *moth_op_find(const char *name);           /* "add", "add_"; NULL if unknown */
const moth_op_info *moth_op_describe(const moth_op *op); /* lives as long as the library */

/* Runs an op. Bit i of `given` says that argument i is in the slots; others have their defaults.
** Fills in at most nout results. moth_result returns the others until the next call. An op that
** writes its first tensor returns that tensor's handle. */
int32_t moth_call(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                  uint64_t given, moth_handle *out, uint32_t nout);
/* Sets a number operand, for the next call only. The handle {which, 0}, with which = 1 to 4, then
** takes the place of a tensor. type: 0 number, 1 integer, 2 bool. */
int32_t moth_number(moth_ctx *ctx, uint32_t which, int32_t type, const moth_slot *value);
uint32_t moth_result_count(moth_ctx *ctx); /* results that the last moth_call did not fill in */
int32_t moth_result(moth_ctx *ctx, uint32_t i, moth_handle *out); /* fills in result i, once */

/* ---- tensors ---- */

typedef struct moth_tensor_info {
  int32_t dtype, device, ndim, flags; /* flags: MOTH_IS_... */
  int64_t numel, itemsize, offset, version;
  int64_t shape[8], stride[8]; /* strides are in elements */
  uint64_t storage, node;      /* ids, for comparison; 0: none */
  uint32_t output;             /* its number among the results of its node */
} moth_tensor_info;

enum { /* flags */
  MOTH_IS_CONTIGUOUS = 1, MOTH_IS_LEAF = 2, MOTH_IS_GRAD = 4 /* requires a gradient */,
  MOTH_IS_VIEW = 8, MOTH_IS_RETAIN = 16 /* a result of an op that keeps its gradient */,
  MOTH_IS_CHANNELS_LAST = 32, MOTH_IS_SPARSE = 64, MOTH_IS_COALESCED = 128,
  MOTH_IS_SHAPELESS = 256 /* a parameter of a lazy module without a shape */
};

/* Makes a tensor from a copy of row-major bytes. size: their number, exactly that of the shape. */
int32_t moth_from_bytes(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                        const void *bytes, size_t size, moth_handle *out);
/* Makes a tensor over the caller's memory, which ops read and write. After its last use
** deleter(owner) runs, on any thread. deleter = NULL: the memory outlives the context. */
int32_t moth_from_memory(moth_ctx *ctx, int32_t dtype, const int64_t *shape, int32_t ndim,
                         void *data, size_t size, void (*deleter)(void *), void *owner,
                         moth_handle *out);
/* Describes a tensor: dtype, shape, strides, flags. */
int32_t moth_inspect(moth_ctx *ctx, const moth_handle *x, moth_tensor_info *info);
int32_t moth_alive(moth_ctx *ctx, const moth_handle *x); /* returns 1 if the handle is valid */
/* Reads `count` elements in row-major order, from element `first` on: float dtypes as .number
** (every NaN as the quiet NaN), others as .integer. Waits for a GPU. */
int32_t moth_read(moth_ctx *ctx, const moth_handle *x, int64_t first, int64_t count,
                  moth_slot *values);
/* Copies all elements as row-major bytes; size must be numel * itemsize. Waits for a GPU. */
int32_t moth_bytes(moth_ctx *ctx, const moth_handle *x, void *to, size_t size);
/* The address of the first element on the tensor's device; valid while the tensor exists. NULL if
** the tensor is not contiguous. Autograd does not see writes of the host to it. */
void *moth_data(moth_ctx *ctx, const moth_handle *x);
int32_t moth_free(moth_ctx *ctx, const moth_handle *x); /* frees the handle, not views or graphs */
uint32_t moth_scope_open(moth_ctx *ctx); /* returns its id; its end frees handles made in it */
/* Closes a scope and the scopes inside it. Frees their handles, except those that were kept. */
int32_t moth_scope_close(moth_ctx *ctx, uint32_t scope);
int32_t moth_keep(moth_ctx *ctx, const moth_handle *x); /* moves it to the enclosing scope */

/* ---- memory ---- */

typedef struct moth_memory_info { /* of the CPU */
  int64_t live_bytes, peak_bytes, cached_bytes, limit_bytes, goal_bytes, shared_bytes;
  int64_t live_tensors, live_handles, live_nodes, live_storages, live_tasks;
  int64_t allocations, collections;
  double collection_seconds;
} moth_memory_info;

void moth_memory(moth_ctx *ctx, moth_memory_info *info); /* reports what the context uses */
/* An op that would raise live_bytes above the limit fails with E_LIMIT. 0: no limit. The process
** may hold 1/8 more, since sizes of blocks are rounded up. */
void moth_memory_limit(moth_ctx *ctx, int64_t bytes);
void moth_empty_cache(moth_ctx *ctx); /* returns cached blocks to the system */

/* ---- autograd ---- */

enum { MOTH_RETAIN_GRAPH = 1, MOTH_CREATE_GRAPH = 2, MOTH_ALLOW_UNUSED = 4 };

/* Are ops recorded for backward? on: 1, 0, or -1: no change. Returns the old value, first 1. */
int32_t moth_grad_mode(moth_ctx *ctx, int32_t on);
/* Autocast to F16 or BF16 where it is safe. dtype: -1 off, -2 no change. Returns the old value. */
int32_t moth_autocast(moth_ctx *ctx, int32_t dtype);
/* Marks a leaf of a float dtype as requiring a gradient (on = 1) or not (0). */
int32_t moth_requires_grad(moth_ctx *ctx, const moth_handle *x, int32_t on);
/* The sum of gradients that backward has computed for x; {0, 0}: none. */
int32_t moth_get_grad(moth_ctx *ctx, const moth_handle *x, moth_handle *grad);
/* Replaces that gradient. NULL or {0, 0} clears it, before the next step. */
int32_t moth_set_grad(moth_ctx *ctx, const moth_handle *x, const moth_handle *grad);
/* A tensor that shares the memory of x and has no history. */
int32_t moth_detach(moth_ctx *ctx, const moth_handle *x, moth_handle *out);
/* Runs a backward pass from the roots. grads: one per root; {0, 0} or grads = NULL for scalars.
** Without inputs it adds to the gradients of the leaves. With inputs it fills in a result for each:
** for one that the graph does not use {0, 0} with ALLOW_UNUSED, else an error. flags: a sum. */
int32_t moth_backward(moth_ctx *ctx, const moth_handle *roots, const moth_handle *grads,
                      uint32_t nroots, const moth_handle *inputs, uint32_t ninputs,
                      uint32_t flags, moth_handle *results);

/* ---- safetensors files ---- */

typedef struct moth_stored { /* a tensor in a file */
  moth_text name;      /* valid until the file's handle is freed */
  const char *format;  /* its dtype as named in the file: "F32" */
  int32_t dtype, ndim; /* dtype: -1 if Moth does not have it */
  int64_t shape[8], nbytes;
} moth_stored;

/* Opens a file and checks its structure. The handle (an empty tensor) owns the file until
** moth_free; tensors from it stay valid. map = 1 maps it: pages are read at first use and writes
** are private. A mapped file must not be truncated. */
int32_t moth_safetensors_open(moth_ctx *ctx, const moth_text *path, int32_t map, moth_handle *file);
/* Opens a copy of a file's content in memory. */
int32_t moth_safetensors_open_bytes(moth_ctx *ctx, const moth_text *bytes, moth_handle *file);
int64_t moth_safetensors_count(moth_ctx *ctx, const moth_handle *file); /* or a negative status */
/* Describes tensor i without reading it. */
int32_t moth_safetensors_at(moth_ctx *ctx, const moth_handle *file, int64_t i, moth_stored *info);
/* Returns the index of the tensor of that name, or E_INDEX. */
int64_t moth_safetensors_find(moth_ctx *ctx, const moth_handle *file, const moth_text *name);
/* Reads tensor i. */
int32_t moth_safetensors_tensor(moth_ctx *ctx, const moth_handle *f, int64_t i, moth_handle *out);
/* Writes a file of n tensors and nmeta metadata entries, complete or not at all. durable = 1:
** returns after the disk has it. Tensors with the same storage and layout are written once. */
int32_t moth_safetensors_save(moth_ctx *ctx, const moth_text *path, const moth_text *names,
                              const moth_handle *tensors, uint32_t n, const moth_text *keys,
                              const moth_text *values, uint32_t nmeta, int32_t durable);

/* ---- tensors between contexts ---- */

/* Makes a token for x: a number that one other context, on any thread, can open once. */
int32_t moth_token(moth_ctx *ctx, const moth_handle *x, uint64_t *token);
/* Opens a token: the tensor shares its memory with x and has no history. */
int32_t moth_token_open(moth_ctx *ctx, uint64_t token, moth_handle *out);
int32_t moth_token_drop(moth_ctx *ctx, uint64_t token); /* for a token that will not be opened */

/* ---- random numbers, devices, settings ---- */

typedef struct moth_device_info {
  char name[64];
  int64_t live_bytes, peak_bytes, cached_bytes, limit_bytes; /* of this context */
  int64_t free_bytes, total_bytes;                           /* of the device */
  int32_t major, minor, processors; /* compute capability; multiprocessors */
} moth_device_info;

int32_t moth_seed(moth_ctx *ctx, uint64_t seed); /* seeds the context's default generator */
/* Returns the number of GPUs, or an error that says what is missing. Device 0 is the CPU, 1 + i is
** cuda:i. The first use of a GPU loads the plugin. */
int32_t moth_device_count(moth_ctx *ctx);
int32_t moth_device_synchronize(moth_ctx *ctx, int32_t device); /* waits for all its work */
/* Reports the name and the memory of a device. */
int32_t moth_device_memory(moth_ctx *ctx, int32_t device, moth_device_info *info);
/* Sets the device of new tensors; -1: no change. Returns the old one. */
int32_t moth_default_device(moth_ctx *ctx, int32_t device);
/* Sets the float dtype of new tensors, initially F32; -1: no change. Returns the old one. */
int32_t moth_default_dtype(moth_ctx *ctx, int32_t dtype);
void moth_set_num_threads(int32_t n); /* of the pool for all contexts; 1: no pool */
int32_t moth_get_num_threads(void);   /* returns that number */

/* ---- cdef ends ---- */

#ifdef __cplusplus
}
#endif
#if defined(__GNUC__) && defined(MOTH_BUILD)
#pragma GCC visibility pop
#endif
#endif
