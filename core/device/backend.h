/* backend.h -- the tables of functions between the core and a plugin for other devices.
**
** A plugin, libmoth_cuda.so, exports one function, moth_backend_init. It receives the core's
** functions (moth_host) and returns its own (moth_backend). The two call each other only through
** these tables. Both include this header, the plugin as C++.
**
** A tensor's `device` is 0 on the CPU and 1 + i on the plugin's i-th device. On a device its
** storage's `data` is an address that only the plugin may use. An op runs there by the first of:
**   - a kernel of the plugin with the op's name (op->device, found when the plugin is loaded)
**   - its `_cpu` function, if the record has MOTH_OP_PORTABLE: it only calls moth_map,
**     moth_copy_into and their variants, which run on any device
** Otherwise it fails with E_UNSUPPORTED.
*/
#ifndef MOTH_BACKEND_H
#define MOTH_BACKEND_H

#include "kernel/gemm/product.h"
#include "tensor/loop.h"

#define MOTH_BACKEND_VERSION 6
#define MOTH_MAX_DEVICES 16

/* A kernel of an op, with the arguments of its `_cpu` function. */
typedef int (*moth_device_run)(const void *args, moth_tensor **out);
/* A kernel of one elementwise function, with the arguments of moth_map. */
typedef int (*moth_device_map_run)(moth_ctx *ctx, int dtype, int noperands,
                            const moth_tensor *const *operands, const void *arg);

typedef struct moth_device_kernel { /* run (name: an op) or map (name: a function) is set */
  const char *name;
  moth_device_run run;
  moth_device_map_run map;
} moth_device_kernel;

/* Streams of a context on a device, by number; 0 is the first. Functions that return a number or a
** bool return a negative status on failure. */
typedef struct moth_stream_functions {
  int (*take)(moth_ctx *ctx, int device, int priority, void **stream); /* returns its number */
  void (*drop)(void *stream);
  int (*use)(moth_ctx *ctx, int device, int number); /* -1: no change. Returns the old */
  int (*wait)(moth_ctx *ctx, int device, int number);
  int (*query)(moth_ctx *ctx, int device, int number); /* 1: all its work is done */
  int (*join)(moth_ctx *ctx, int device, int number, int other_device, int other);
  int (*take_event)(moth_ctx *ctx, bool timed, void **event);
  void (*drop_event)(void *event);
  int (*record)(moth_ctx *ctx, void *event, int device, int number);
  int (*wait_event)(moth_ctx *ctx, void *event, int device, int number); /* device 0: the CPU
                                                                         ** waits */
  int (*query_event)(moth_ctx *ctx, void *event);
  int (*elapsed)(moth_ctx *ctx, void *start, void *end, double *ms);
} moth_stream_functions;

/* The work that a context has given a device so far. */
typedef struct moth_device_work {
  uint64_t kernels; /* launches of the plugin's own kernels */
  uint64_t others;  /* copies on the device, and work of libraries */
  uint64_t waits;   /* waits for the device, and copies from and to the CPU */
} moth_device_work;

typedef struct moth_graph moth_graph; /* defined by the plugin */

/* Graphs: work that is recorded once and launched many times by one call. After `begin`, work for
** the device is not run but becomes the graph, in parts; a call of `part` comes before each. The
** first `launch` ends the recording. Before later launches, parts that vary may run again: their
** kernels then get new arguments in the graph. After an error nothing was run, and the graph must
** be dropped. `ready` returns late errors of earlier work. */
typedef struct moth_graph_functions {
  void (*work)(moth_ctx *ctx, int device, moth_device_work *so_far);
  int (*ready)(moth_ctx *ctx, int device);
  moth_graph *(*begin)(moth_ctx *ctx, int device, uint32_t parts); /* NULL: error set */
  int (*part)(moth_ctx *ctx, moth_graph *g, uint32_t part, const char *op, bool varies);
  int (*launch)(moth_ctx *ctx, moth_graph *g);
  void (*drop)(moth_ctx *ctx, moth_graph *g);
} moth_graph_functions;

typedef struct moth_transfer_functions moth_transfer_functions; /* device/transfers.h */

typedef struct moth_backend {
  uint32_t version, size; /* MOTH_BACKEND_VERSION, bytes of this struct */
  const char *name;       /* "cuda" */
  const moth_device_kernel *const *kernels;
  uint32_t nkernels;
  /* The number of devices, or a status whose message says what is missing. */
  int32_t (*count)(moth_ctx *ctx);
  /* Both are in order with the device's work so far. alloc returns NULL with E_MEM. */
  void *(*alloc)(moth_ctx *ctx, int device, int64_t nbytes, void **owner);
  void (*dealloc)(void *owner);
  /* Page-locked memory of the CPU. unpin may be called on any thread. */
  void *(*pin)(moth_ctx *ctx, int64_t nbytes, void **owner);
  void (*unpin)(void *owner);
  /* y := x, converted and broadcast. At least one is on a device. If the other is in page-locked
  ** memory of the CPU, it may return before the copy is done, unless `wait`. */
  int (*copy)(moth_tensor *y, const moth_tensor *x, bool wait);
  /* One product, or all products of a batch. */
  int (*multiply)(moth_ctx *ctx, const moth_product *p, const moth_batch *batch);
  const moth_stream_functions *streams;
  const moth_graph_functions *graphs;
  const moth_transfer_functions *transfers;
  int (*synchronize)(moth_ctx *ctx, int device); /* waits for all streams; returns late errors */
  int (*memory)(moth_ctx *ctx, int device, moth_device_info *info);
  void (*empty_cache)(moth_ctx *ctx, int device);
  /* What was found, in lines: "cuBLASLt\t13.0.2 (libcublasLt.so.13)". */
  void (*report)(moth_ctx *ctx, char *text, size_t size);
  void (*close)(moth_ctx *ctx); /* frees everything that belongs to the context, which closes */
} moth_backend;

typedef struct moth_host {
  uint32_t version, size; /* MOTH_BACKEND_VERSION, bytes of this struct */
  uint32_t tensor_size, op_size; /* a plugin built from other headers must refuse */
  const uint8_t *dtype_size;
  void **(*state)(moth_ctx *ctx); /* a pointer for the plugin's state of a context */
  int (*fail)(moth_ctx *ctx, int code, const char *arg, const char *format, ...);
  int (*status)(const moth_ctx *ctx); /* status of the last failure */
  const char *(*op_under_way)(const moth_ctx *ctx); /* called by the user; for late errors */
  const char *(*str)(const moth_tensor *x);
  const char *(*dtype_name)(int32_t dtype);
  moth_tensor *(*tensor_new)(moth_ctx *ctx, const moth_layout *l);
  moth_tensor *(*tensor_new_channels_last)(moth_ctx *ctx, const moth_layout *l);
  void (*tensor_release)(moth_tensor *x);
  moth_tensor *(*packed)(const moth_tensor *x);
  moth_tensor *(*packed_channels_last)(const moth_tensor *x);
  moth_tensor *(*cast)(const moth_tensor *x, int dtype);
  int (*copy_into)(moth_tensor *y, const moth_tensor *x);
  void (*loop_over)(moth_loop *loop, moth_ctx *ctx, const moth_layout *over, int noperands,
                    const moth_tensor *const *operands);
  bool (*layout_contiguous)(const moth_layout *l);
  bool (*layout_channels_last)(const moth_layout *l);
  void (*convert)(int64_t n, int from, const char *src, int64_t src_step, int to, char *dst,
                  int64_t dst_step);
  int (*run)(const moth_op *op, const void *args, moth_tensor **out);
  const moth_op *(*op_find)(const char *name);
  int (*generator_take)(moth_ctx *ctx, moth_tensor *generator, uint64_t nblocks, uint64_t *seed,
                        uint64_t *block);
  int (*dim_mask)(moth_ctx *ctx, const char *arg, moth_ints dims, int32_t ndim, uint32_t *mask);
  bool (*absent)(double value);
  int (*check_write)(moth_tensor *x, const char *arg, bool recorded);
  void (*storage_bump)(moth_storage *s);
  int (*float32_precision)(const moth_ctx *ctx);
  bool (*deterministic)(const moth_ctx *ctx);
  bool (*cudnn)(const moth_ctx *ctx, int what); /* no BENCHMARK if deterministic */
  void *(*alloc)(moth_ctx *ctx, int64_t nbytes); /* memory of the CPU */
  void (*dealloc)(moth_ctx *ctx, void *block, int64_t nbytes);
  const char *(*map_name)(int64_t number); /* of a function (kernel/math/maps.h) */
  int (*check_transfers)(moth_ctx *ctx); /* between processes: raises their failures */
} moth_host;

typedef const moth_backend *(*moth_backend_init_fn)(const moth_host *host);

#endif
