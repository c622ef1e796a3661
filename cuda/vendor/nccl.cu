/* nccl.cu -- transfers of tensors between processes, by NVIDIA's library NCCL, if it is found at
** run time (core/device/transfers.h).
**
** Each comm has a stream. A transfer waits there for the current stream, and an event marks its
** end. Comms do not block: a call that connects to peers returns at once, and this file asks NCCL
** until it has ended, so that a peer that is missing raises after a timeout. Bytes are moved as
** uint8. Reductions are NCCL's own: halves are reduced in their own type. */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../core/device/transfers.h"
#include "host/device.cuh"

/* -- the interface: of NCCL 2.14 or later -- */

enum { /* results */
  NCCL_SUCCESS, NCCL_CUDA_ERROR, NCCL_SYSTEM_ERROR, NCCL_INTERNAL_ERROR, NCCL_WRONG_ARGUMENT,
  NCCL_WRONG_USE, NCCL_REMOTE_ERROR, NCCL_IN_PROGRESS
};
enum { NCCL_SUM, NCCL_PRODUCT, NCCL_MAX, NCCL_MIN, NCCL_AVERAGE };
enum {
  NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_FLOAT16,
  NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16, NCCL_NO_TYPE
};
enum { NCCL_MAGIC = (int)0xcafebeef, NCCL_OLDEST = 21400 };
enum { FINALIZE_WITHIN = 30 }; /* seconds; then a comm is aborted */

typedef struct nccl_id {
  char bytes[MOTH_COMM_ID];
} nccl_id;

typedef struct nccl_config { /* as of 2.14: later versions read the rest as unset */
  size_t size;
  int magic, version, blocking, unset;
} nccl_config;

#define NCCL_FUNCTIONS(F)                                                                      \
  F(int, GetVersion, (int *version))                                                           \
  F(const char *, GetErrorString, (int result))                                                \
  F(const char *, GetLastError, (void *comm))                                                  \
  F(int, GetUniqueId, (nccl_id * id))                                                          \
  F(int, CommInitRankConfig, (void **comm, int n, nccl_id id, int rank, nccl_config *config))  \
  F(int, CommFinalize, (void *comm))                                                           \
  F(int, CommDestroy, (void *comm))                                                            \
  F(int, CommAbort, (void *comm))                                                              \
  F(int, CommGetAsyncError, (void *comm, int *result))                                         \
  F(int, GroupStart, (void))                                                                   \
  F(int, GroupEnd, (void))                                                                     \
  F(int, Broadcast, (const void *from, void *to, size_t n, int type, int root, void *comm,     \
                     cudaStream_t stream))                                                     \
  F(int, Reduce, (const void *from, void *to, size_t n, int type, int op, int root,            \
                  void *comm, cudaStream_t stream))                                            \
  F(int, AllReduce, (const void *from, void *to, size_t n, int type, int op, void *comm,       \
                     cudaStream_t stream))                                                     \
  F(int, ReduceScatter, (const void *from, void *to, size_t n, int type, int op, void *comm,   \
                         cudaStream_t stream))                                                 \
  F(int, AllGather, (const void *from, void *to, size_t n, int type, void *comm,               \
                     cudaStream_t stream))                                                     \
  F(int, Send, (const void *from, size_t n, int type, int to, void *comm, cudaStream_t stream)) \
  F(int, Recv, (void *to, size_t n, int type, int from, void *comm, cudaStream_t stream))

#define NCCL_MEMBER(type, name, args) type(*name) args;
#define NCCL_NAME(type, name, args) "nccl" #name,
#define NCCL_ONE(type, name, args) +1
enum { NCCL_COUNT = 0 NCCL_FUNCTIONS(NCCL_ONE) };
static union nccl_table {
  void *at[NCCL_COUNT];
  struct {
    NCCL_FUNCTIONS(NCCL_MEMBER)
  } fn;
} nccl;
static const char *const nccl_names[] = {NCCL_FUNCTIONS(NCCL_NAME)};

struct moth_comm {
  void *comm;
  int device, rank, n;
  moth_device_stream *stream;
};

struct moth_job {
  int device;
  cudaEvent_t end;
};

/* -- opening the library -- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int look(moth_ctx *ctx) {
  int version = 0;
  const char *named = getenv("MOTH_NCCL");
  if (!moth_library(LIBRARY_NCCL))
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                     "NCCL was not found (%s): tensors of GPUs need it. Install it (apt-get "
                     "install libnccl2, of NVIDIA's repository), or name it in MOTH_NCCL",
                     named ? named : "libnccl.so.2");
  if (nccl.fn.GetVersion) return MOTH_OK;
  union nccl_table found;
  const bool all = moth_library_functions(LIBRARY_NCCL, nccl_names, NCCL_COUNT, found.at);
  void *at = NULL;
  if (moth_library_functions(LIBRARY_NCCL, nccl_names, 1, &at)) {
    int (*get)(int *);
    memcpy(&get, &at, sizeof get);
    get(&version);
  }
  if (!all || version < NCCL_OLDEST) { /* 21803 is 2.18.3, 2708 is 2.7.8 */
    const int step = version < 10000 ? 1000 : 10000;
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "NCCL 2.14 or later is needed, and this is "
                     "%d.%d.%d", version / step, version % step / 100, version % 100);
  }
  nccl = found;
  return MOTH_OK;
}

static int find_library(moth_ctx *ctx) {
  pthread_mutex_lock(&lock);
  int status = look(ctx);
  pthread_mutex_unlock(&lock);
  return status;
}

/* -- results -- */

static int fail_nccl(moth_ctx *ctx, const moth_comm *c, int result) {
  const char *more = nccl.fn.GetLastError(c ? c->comm : NULL);
  const bool says = more && *more;
  return moth_fail(ctx, MOTH_E_IO, NULL, "NCCL: %s%s%.120s", nccl.fn.GetErrorString(result),
                   says ? ": " : "", says ? more : "");
}

static double seconds_now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits until NCCL has done a call that returned `result`. */
static int settle(moth_ctx *ctx, const moth_comm *c, int result, double seconds) {
  const double began = seconds_now();
  for (unsigned turn = 0; result == NCCL_IN_PROGRESS; turn++) {
    const int asked = nccl.fn.CommGetAsyncError(c->comm, &result);
    if (asked) result = asked;
    if (result != NCCL_IN_PROGRESS) break;
    int status = turn % 64 == 63 ? moth_engine->check_transfers(ctx) : MOTH_OK;
    if (status) return status;
    if (seconds > 0 && seconds_now() - began > seconds)
      return moth_fail(ctx, MOTH_E_IO, NULL, "NCCL: no connection to the other processes after "
                       "%g s", seconds);
    sched_yield();
  }
  return result ? fail_nccl(ctx, c, result) : MOTH_OK;
}

/* -- comms -- */

static int make_id(moth_ctx *ctx, void *to) {
  int status = find_library(ctx);
  nccl_id id;
  if (status) return status;
  const int result = nccl.fn.GetUniqueId(&id);
  if (result) return fail_nccl(ctx, NULL, result);
  memcpy(to, &id, sizeof id);
  return MOTH_OK;
}

static void close_comm(moth_comm *c, bool abort) {
  int result = NCCL_SUCCESS;
  if (!c->comm || moth_is_forked()) abort = true;
  else cudaSetDevice(c->device - 1);
  if (!abort) result = nccl.fn.CommFinalize(c->comm);
  const double until = seconds_now() + FINALIZE_WITHIN;
  while (!abort && result == NCCL_IN_PROGRESS && seconds_now() < until)
    if (nccl.fn.CommGetAsyncError(c->comm, &result)) break;
    else if (result == NCCL_IN_PROGRESS) sched_yield();
  if (c->comm && !moth_is_forked()) {
    if (abort || result) nccl.fn.CommAbort(c->comm);
    else nccl.fn.CommDestroy(c->comm);
  }
  if (c->stream) c->stream->held = c->stream->carries = false;
  free(c);
}

static moth_comm *open_comm(moth_ctx *ctx, int device, const void *id, int rank, int n,
                            double seconds) {
  if (find_library(ctx)) return NULL;
  moth_device_context *p = moth_device_context_of(ctx, device);
  if (!p) return NULL;
  moth_comm *c = (moth_comm *)calloc(1, sizeof *c);
  if (!c) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
    return NULL;
  }
  nccl_config config = {sizeof config, NCCL_MAGIC, NCCL_OLDEST, 0, INT_MIN};
  nccl_id key;
  memcpy(&key, id, sizeof key);
  c->device = device;
  c->rank = rank;
  c->n = n;
  c->stream = moth_stream_take(ctx, p, device, 0);
  int status = c->stream ? MOTH_OK : moth_status(ctx);
  if (!status) {
    c->stream->carries = true;
    status = settle(ctx, c, nccl.fn.CommInitRankConfig(&c->comm, n, key, rank, &config), seconds);
  }
  if (!status) return c;
  close_comm(c, true);
  return NULL;
}

/* -- transfers -- */

static int type_of(int dtype) {
  switch (dtype) {
    case MOTH_BOOL:
    case MOTH_U8: return NCCL_UINT8;
    case MOTH_I8: return NCCL_INT8;
    case MOTH_I32: return NCCL_INT32;
    case MOTH_I64: return NCCL_INT64;
    case MOTH_F16: return NCCL_FLOAT16;
    case MOTH_BF16: return NCCL_BFLOAT16;
    case MOTH_F32: return NCCL_FLOAT32;
    case MOTH_F64: return NCCL_FLOAT64;
    default: return NCCL_NO_TYPE;
  }
}

/* NCCL's operation, or -1. Of bool: or and and, as maximum and minimum of bytes. */
static int op_of(int op, int dtype) {
  const bool truth = dtype == MOTH_BOOL;
  switch (op) {
    case MOTH_REDUCE_SUM: return truth ? NCCL_MAX : NCCL_SUM;
    case MOTH_REDUCE_PRODUCT: return truth ? NCCL_MIN : NCCL_PRODUCT;
    case MOTH_REDUCE_MIN: return NCCL_MIN;
    case MOTH_REDUCE_MAX: return NCCL_MAX;
    case MOTH_REDUCE_MEAN: return NCCL_AVERAGE;
    case MOTH_REDUCE_BAND: return truth ? NCCL_MIN : -1;
    case MOTH_REDUCE_BOR: return truth ? NCCL_MAX : -1;
    default: return -1;
  }
}

static int check_reduction(moth_ctx *ctx, const moth_collective *x) {
  const bool reduces = x->kind == MOTH_TRANSFER_REDUCE || x->kind == MOTH_TRANSFER_ALL_REDUCE ||
                       x->kind == MOTH_TRANSFER_REDUCE_SCATTER;
  if (!reduces) return MOTH_OK;
  if (type_of(x->input->l.dtype) == NCCL_NO_TYPE)
    return moth_fail(ctx, MOTH_E_DTYPE, "tensor", "NCCL does not reduce %s; convert to int32",
                     moth_dtype_name(x->input->l.dtype));
  if (op_of(x->op, x->input->l.dtype) < 0)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, "op", "NCCL has no bitwise operations; reduce on the "
                     "CPU, or use sum, product, min, max");
  return MOTH_OK;
}

static int send_bytes(const moth_comm *c, const char *from, int64_t n, int to) {
  if (n == 0) return NCCL_SUCCESS;
  return nccl.fn.Send(from, (size_t)n, NCCL_UINT8, to, c->comm, c->stream->queue.stream);
}
static int receive_bytes(const moth_comm *c, char *to, int64_t n, int from) {
  if (n == 0) return NCCL_SUCCESS;
  return nccl.fn.Recv(to, (size_t)n, NCCL_UINT8, from, c->comm, c->stream->queue.stream);
}

static int64_t bytes_of(const moth_tensor *x) { return x->l.numel * moth_dtype_size[x->l.dtype]; }

/* Inside a group, in progress is no failure: the end of the group counts. */
static int accepted(int result) { return result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : result; }

/* The sends and receives of gather, scatter and all_to_all. */
static int exchange(const moth_comm *c, const moth_collective *x) {
  const bool root = x->peer == c->rank;
  const int64_t size = moth_dtype_size[x->input ? x->input->l.dtype : x->output->l.dtype];
  const char *from = x->input ? moth_address(x->input) : NULL;
  char *to = x->output ? moth_address(x->output) : NULL;
  int result = NCCL_SUCCESS;
  if (x->kind == MOTH_TRANSFER_GATHER) {
    const int64_t part = bytes_of(x->input);
    result = accepted(send_bytes(c, from, part, x->peer));
    for (int i = 0; root && !result && i < c->n; i++)
      result = accepted(receive_bytes(c, to + i * part, part, i));
  } else if (x->kind == MOTH_TRANSFER_SCATTER) {
    const int64_t part = bytes_of(x->output);
    for (int i = 0; root && !result && i < c->n; i++)
      result = accepted(send_bytes(c, from + i * part, part, i));
    if (!result) result = accepted(receive_bytes(c, to, part, x->peer));
  } else {
    for (int i = 0; !result && i < c->n; i++) {
      const int64_t out = x->sizes[i] * size, in = x->sizes[c->n + i] * size;
      result = accepted(send_bytes(c, from, out, i));
      if (!result) result = accepted(receive_bytes(c, to, in, i));
      from += out;
      to += in;
    }
  }
  return result;
}

/* A group of calls is always ended; its first error counts. */
static int exchange_together(const moth_comm *c, const moth_collective *x) {
  int result = nccl.fn.GroupStart();
  if (result) return result;
  result = exchange(c, x);
  const int ended = nccl.fn.GroupEnd();
  return result ? result : ended;
}

static int submit(const moth_comm *c, const moth_collective *x) {
  const moth_tensor *some = x->input ? x->input : x->output;
  const void *from = x->input ? moth_address(x->input) : NULL;
  void *to = x->output ? moth_address(x->output) : NULL;
  const int type = type_of(some->l.dtype), op = op_of(x->op, some->l.dtype);
  const size_t n = (size_t)some->l.numel, bytes = (size_t)bytes_of(some);
  cudaStream_t stream = c->stream->queue.stream;
  switch (x->kind) {
    case MOTH_TRANSFER_BROADCAST:
      return n ? nccl.fn.Broadcast(to, to, bytes, NCCL_UINT8, x->peer, c->comm, stream) : 0;
    case MOTH_TRANSFER_REDUCE:
      return n ? nccl.fn.Reduce(from, to, n, type, op, x->peer, c->comm, stream) : 0;
    case MOTH_TRANSFER_ALL_REDUCE:
      return n ? nccl.fn.AllReduce(from, to, n, type, op, c->comm, stream) : 0;
    case MOTH_TRANSFER_REDUCE_SCATTER:
      return n ? nccl.fn.ReduceScatter(from, to, (size_t)x->output->l.numel, type, op, c->comm,
                                       stream) : 0;
    case MOTH_TRANSFER_ALL_GATHER:
      return n ? nccl.fn.AllGather(from, to, bytes, NCCL_UINT8, c->comm, stream) : 0;
    case MOTH_TRANSFER_SEND: return send_bytes(c, (const char *)from, (int64_t)bytes, x->peer);
    case MOTH_TRANSFER_RECV: return receive_bytes(c, (char *)to, (int64_t)bytes, x->peer);
    default: return exchange_together(c, x);
  }
}

static void drop_work(moth_job *w) {
  if (!moth_is_forked()) cudaEventDestroy(w->end);
  free(w);
}

/* The tensors' blocks are not of this stream. They are kept until another stream waits for the
** transfer, or until it has ended (core/host/device_transfers.c). */
static int start_work(moth_ctx *ctx, moth_comm *c, const moth_collective *x, moth_job **made) {
  int status = check_reduction(ctx, x);
  moth_device_context *p = status ? NULL : moth_device_context_of(ctx, c->device);
  if (!p) return moth_status(ctx);
  moth_device_stream *now = moth_stream_now(p), *s = c->stream;
  if (now->graphs.now)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "a CUDA graph cannot contain messages between "
                     "processes");
  moth_job *w = (moth_job *)calloc(1, sizeof *w);
  if (!w) return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  w->device = c->device;
  cudaError_t error = cudaEventCreateWithFlags(&w->end, cudaEventDisableTiming);
  if (error) {
    free(w);
    return moth_fail_cuda(ctx, "an event", error);
  }
  error = moth_stream_behind_copies(s);
  if (!error) error = moth_stream_join(s, now);
  if (!error) status = settle(ctx, c, submit(c, x), x->seconds);
  moth_note_launch(s, x->name);
  p->work.waits++; /* so that no graph contains it */
  if (!error && !status) error = cudaEventRecord(w->end, s->queue.stream);
  if (error) status = moth_fail_cuda(ctx, "a transfer between processes", error);
  if (status) {
    drop_work(w);
    return status;
  }
  p->transfers = true;
  *made = w;
  return MOTH_OK;
}

static int work_done(moth_comm *c, moth_job *w, char *why, size_t size) {
  int result = NCCL_SUCCESS;
  if (moth_is_forked()) return 0;
  const cudaError_t error = cudaEventQuery(w->end);
  if (error != cudaSuccess) cudaGetLastError();
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    snprintf(why, size, "%s", cudaGetErrorString(error));
    return -1;
  }
  const int asked = nccl.fn.CommGetAsyncError(c->comm, &result); /* a failed transfer ends too */
  if (asked) result = asked;
  if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) return error == cudaSuccess;
  snprintf(why, size, "NCCL: %s", nccl.fn.GetErrorString(result));
  return -1;
}

static int join_work(moth_ctx *ctx, moth_job *w) {
  moth_device_context *p = moth_device_context_of(ctx, w->device);
  if (!p) return moth_status(ctx);
  if (moth_stream_now(p)->graphs.now)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "a CUDA graph cannot wait for messages between "
                     "processes");
  p->work.waits++;
  const cudaError_t error = moth_stream_behind(moth_stream_now(p), w->end);
  return error ? moth_fail_cuda(ctx, "a stream cannot wait for a transfer", error) : MOTH_OK;
}

const moth_transfer_functions moth_cuda_transfers = {make_id,   open_comm, close_comm, start_work,
                                                     work_done, join_work, drop_work};
