/* device.cu -- the plugin's entry point, and the state and errors of a context on each device.
**
** No CUDA function is called before the first device count, and no device is initialized before its
** first use. Then the context gets its own stream there, with a block cache and error records. The
** CUDA runtime is linked statically and opens the driver itself; without a driver or a GPU, the
** count reports it. */
#include "device.cuh"
#include "lib/gemm.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAST_OPS = 4 }; /* named in a failure message */

typedef struct context_state {
  moth_device_context of[MOTH_MAX_DEVICES + 1];
} context_state;

const moth_host *moth_engine;

/* -- processes: CUDA does not work in a forked child -- */

static bool forked;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static void in_child(void) { forked = true; }
static void watch(void) { pthread_atfork(NULL, NULL, in_child); }
bool moth_is_forked(void) { return forked; }

/* Called before CUDA is used: from then on no child process can use CUDA. */
static int check_process(moth_ctx *ctx) {
  pthread_once(&watched, watch);
  if (!forked) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_CUDA, NULL,
                   "a forked process cannot use the GPU of its parent; start a new process");
}

int moth_fail_cuda(moth_ctx *ctx, const char *what, cudaError_t error) {
  cudaGetLastError(); /* a reported error need not be reported again */
  return moth_fail(ctx, error == cudaErrorMemoryAllocation ? MOTH_E_MEM : MOTH_E_CUDA, NULL,
                   "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

/* -- counting -- */

static int32_t count_devices(moth_ctx *ctx) {
  int n = 0, status = check_process(ctx);
  if (status) return status;
  cudaError_t error = cudaGetDeviceCount(&n);
  if (error == cudaSuccess) return n < MOTH_MAX_DEVICES ? n : MOTH_MAX_DEVICES;
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary)
    return moth_fail(ctx, MOTH_E_DEVICE, "device",
                     "no CUDA device: the NVIDIA driver (libcuda.so.1) is missing or older than "
                     "this build needs; everything else works on the CPU");
  return moth_fail(ctx, MOTH_E_DEVICE, "device", "no CUDA device: %s; everything else works on "
                   "the CPU", cudaGetErrorString(error));
}

/* -- a context on a device -- */

static context_state *state_of(moth_ctx *ctx) {
  void **at = moth_engine->state(ctx);
  if (at && !*at) *at = calloc(1, sizeof(context_state));
  if (at && *at) return (context_state *)*at;
  moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  return NULL;
}

moth_device_context *moth_device_context_of(moth_ctx *ctx, int device) {
  context_state *s = state_of(ctx);
  if (!s || check_process(ctx)) return NULL;
  moth_device_context *p = &s->of[device];
  cudaError_t error = cudaSetDevice(device - 1);
  if (error) {
    moth_fail_cuda(ctx, "the device cannot be used", error);
    return NULL;
  }
  return p->nstreams || moth_stream_new(ctx, p, device, 0) ? p : NULL;
}

moth_device_context *moth_device_context_peek(moth_ctx *ctx, int device) {
  context_state *s = state_of(ctx);
  return s && !forked && s->of[device].nstreams ? &s->of[device]
                                                : moth_device_context_of(ctx, device);
}

/* -- errors: reported by kernels, and asynchronous errors of CUDA -- */

/* Finds the oldest launch whose kernel reported an error. */
static const char *find_kernel_error(const moth_device_context *p, moth_kernel_error *t) {
  uint64_t oldest = UINT64_MAX;
  const char *op = NULL;
  for (int i = 0; i < p->nstreams; i++) {
    const moth_device_stream *s = p->streams[i];
    for (int k = 0; k < RECORDS; k++) {
      if (s->page->of[k].code == 0 || s->asked[k].number >= oldest) continue;
      oldest = s->asked[k].number;
      op = s->asked[k].op;
      *t = s->page->of[k];
    }
    for (int k = 0; k < RECORDS; k++) s->page->of[k].code = 0;
    const char *in_graph = moth_graphs_error(p->streams[i], &oldest, t);
    if (in_graph) op = in_graph;
  }
  p->streams[0]->page->any = 0;
  return op ? op : "an op";
}

/* Raises the error when all streams are idle: nothing writes to the pages then. */
static int raise_kernel_error(moth_ctx *ctx, moth_device_context *p) {
  moth_kernel_error t = {};
  for (int i = 0; i < p->nstreams; i++) {
    int status = moth_stream_settle(ctx, p->streams[i], NULL);
    if (status) return status;
  }
  moth_streams_finish(p);
  const char *op = find_kernel_error(p, &t);
  switch (t.code) {
    case KERNEL_ERROR_DIVISION:
      return moth_fail(ctx, MOTH_E_DOMAIN, NULL,
                       "'%s', which ran before on the GPU, divided integers by 0", op);
    case KERNEL_ERROR_INDEX:
      return moth_fail(ctx, MOTH_E_INDEX, NULL,
                       "'%s', which ran before on the GPU, got position \1%lld\2 of %lld", op,
                       t.value, t.limit);
    case KERNEL_ERROR_CLASS:
      return moth_fail(ctx, MOTH_E_INDEX, NULL,
                       "'%s', which ran before on the GPU, got class \1%lld\2 of %lld", op,
                       t.value, t.limit);
    case KERNEL_ERROR_LENGTH:
      return moth_fail(ctx, MOTH_E_SHAPE, NULL,
                       "'%s', which ran before on the GPU, got a sequence of %lld steps or "
                       "targets, where there are 0 to %lld", op, t.value, t.limit);
    case KERNEL_ERROR_DEFINITE:
      return moth_fail(ctx, MOTH_E_DOMAIN, NULL,
                       "'%s', which ran before on the GPU, got a matrix that is not finite or not "
                       "positive-definite: its leading block of size %lld is not", op, t.value);
    case KERNEL_ERROR_SINGULAR:
      return moth_fail(ctx, MOTH_E_DOMAIN, NULL, "'%s', which ran before on the GPU, got a matrix "
                       "that is singular: it has no inverse", op);
    case KERNEL_ERROR_ZERO: /* raised by to_index, which users do not call by name */
      return moth_fail(ctx, MOTH_E_INDEX, NULL,
                       "an op that ran before on the GPU: positions count from 1, got 0");
    default:
      return moth_fail(ctx, MOTH_E_DOMAIN, NULL,
                       "'%s', which ran before on the GPU, got a value outside of its domain", op);
  }
}

const moth_queue *moth_queue_of(moth_ctx *ctx, int device) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  if (!p) return NULL;
  moth_device_stream *s = moth_stream_now(p);
  if (s->graphs.now) return &s->queue; /* its parts have their own records */
  if (*(volatile int *)&p->streams[0]->page->any) {
    raise_kernel_error(ctx, p);
    return NULL;
  }
  const cudaError_t error = moth_stream_behind_copies(s);
  if (error) {
    moth_fail_cuda(ctx, "a stream cannot wait for a copy", error);
    return NULL;
  }
  s->queue.kernel_error = &s->page_there->of[s->launches % RECORDS];
  return &s->queue;
}

/* A queue is the first member of its stream. */
static moth_device_stream *stream_of(const moth_queue *q) {
  return (moth_device_stream *)(void *)(uintptr_t)q;
}

moth_library_state *moth_library_state_of(const moth_queue *q, int whose) {
  return &stream_of(q)->kept[whose];
}

static bool blocking; /* MOTH_CUDA_BLOCKING: synchronize after each launch */

bool moth_is_blocking(void) { return blocking; }

void moth_note_launch(moth_device_stream *s, const char *op) {
  s->last = ++s->device_context->launches;
  moth_submitted *asked = &s->asked[s->launches++ % RECORDS];
  asked->op = op;
  asked->number = s->last;
}

/* An asynchronous kernel failure is raised by the next call. */
static int fail_late(moth_ctx *ctx, const moth_device_stream *s, cudaError_t error) {
  char text[160] = "the GPU failed in an earlier launch; last launches:";
  for (unsigned i = 1; i <= LAST_OPS && i <= s->launches; i++) {
    const char *op = s->asked[(s->launches - i) % RECORDS].op;
    size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, "%s %s", i > 1 ? "," : "", op ? op : "?");
  }
  return moth_fail_cuda(ctx, text, error);
}

/* Called after a launch. A sticky error is from an earlier launch. */
static int finish_launch(moth_ctx *ctx, moth_device_stream *s, cudaError_t error) {
  if (error && cudaStreamQuery(s->queue.stream) == error) return fail_late(ctx, s, error);
  moth_note_launch(s, moth_engine->op_under_way(ctx));
  if (!error && blocking) error = cudaStreamSynchronize(s->queue.stream);
  return error ? moth_fail_cuda(ctx, "a kernel could not run", error) : MOTH_OK;
}

int moth_launched(moth_ctx *ctx, const moth_queue *q, cudaError_t error) {
  moth_device_stream *s = stream_of(q);
  if (s->graphs.now) return moth_graph_launch(ctx, s, NULL, error);
  s->device_context->work.others++;
  return finish_launch(ctx, s, error);
}

cudaError_t moth_submit(const moth_kernel_call *call, cudaStream_t stream) {
  if (call->together)
    return cudaLaunchCooperativeKernel(call->kernel, call->grid, call->block, call->args,
                                       call->shared, stream);
  return cudaLaunchKernel(call->kernel, call->grid, call->block, call->args, call->shared, stream);
}

int moth_allow_shared(moth_ctx *ctx, const moth_queue *q, const void *kernel) {
  const void **at =
      &stream_of(q)->device_context->all_shared[(uintptr_t)kernel / 16 % ALL_SHARED_SLOTS];
  struct cudaFuncAttributes has;
  if (*at == kernel) return MOTH_OK;
  cudaError_t error = cudaFuncGetAttributes(&has, kernel);
  if (!error)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)(q->shared - has.sharedSizeBytes));
  if (error) return moth_launched(ctx, q, error);
  *at = kernel;
  return MOTH_OK;
}

int moth_launch(moth_ctx *ctx, const moth_queue *q, const moth_kernel_call *call) {
  moth_device_stream *s = stream_of(q);
  if (call->grid.x == 0) /* grid_for found the grid too large */
    return moth_fail(ctx, MOTH_E_LIMIT, NULL, "its tensors are too large for one launch on a GPU");
  int status = call->shared > SHARED_UNASKED ? moth_allow_shared(ctx, q, call->kernel) : MOTH_OK;
  if (status) return status;
  if (s->graphs.now) return moth_graph_launch(ctx, s, call, cudaSuccess);
  s->device_context->work.kernels++;
  cudaError_t error = moth_submit(call, q->stream);
  if (error == cudaErrorMemoryAllocation) { /* loading a kernel's code at its first launch can run
                                            ** out of memory */
    cudaGetLastError();
    moth_blocks_trim(s->device_context);
    error = moth_submit(call, q->stream);
  }
  return finish_launch(ctx, s, error);
}

int moth_wait_for(moth_ctx *ctx, moth_device_stream *s) {
  if (s->graphs.now)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                     "it synchronizes with the GPU, which a CUDA graph cannot");
  s->device_context->work.waits++;
  int status = moth_stream_settle(ctx, s, NULL);
  if (status) return status;
  cudaError_t error = cudaStreamSynchronize(s->queue.stream);
  if (!error)
    return s->device_context->streams[0]->page->any ? raise_kernel_error(ctx, s->device_context)
                                                    : MOTH_OK;
  return fail_late(ctx, s, error);
}

int moth_wait(moth_ctx *ctx, int device) {
  moth_device_context *p = moth_device_context_peek(ctx, device);
  return p ? moth_wait_for(ctx, moth_stream_now(p)) : moth_status(ctx);
}

static int synchronize(moth_ctx *ctx, int device) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  int status = p ? MOTH_OK : moth_status(ctx);
  for (int i = 0; !status && i < p->nstreams; i++) status = moth_wait_for(ctx, p->streams[i]);
  return status;
}

/* -- memory -- */

static void *alloc(moth_ctx *ctx, int device, int64_t nbytes, void **owner) {
  moth_device_context *p = moth_device_context_peek(ctx, device);
  if (!p) return NULL;
  moth_device_stream *s = moth_stream_now(p);
  moth_block *block = s->graphs.now ? moth_blocks_take_for_graph(s, nbytes)
                                    : moth_blocks_take(s, nbytes);
  size_t left = 0, all = 0;
  *owner = block;
  if (block) return moth_block_address(block);
  const cudaError_t error = cudaMemGetInfo(&left, &all);
  if (error) fail_late(ctx, s, error);
  else
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory on cuda:%d: %lld bytes asked for, %lld of %lld "
              "are free", device - 1, (long long)nbytes, (long long)left, (long long)all);
  return NULL;
}

static void dealloc(void *owner) {
  if (!forked) moth_block_give((moth_block *)owner);
}

static void *pin(moth_ctx *ctx, int64_t nbytes, void **owner) {
  if (check_process(ctx)) return NULL;
  moth_pinned *p = moth_pinned_take(nbytes, INT64_MAX);
  *owner = p;
  if (p) return moth_pinned_address(p);
  moth_fail(ctx, MOTH_E_MEM, NULL, "%lld bytes of memory cannot be page-locked", (long long)nbytes);
  return NULL;
}

static int memory(moth_ctx *ctx, int device, moth_device_info *info) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  struct cudaDeviceProp properties;
  size_t left = 0, all = 0;
  if (!p) return moth_status(ctx);
  cudaError_t error = cudaMemGetInfo(&left, &all);
  if (!error) error = cudaGetDeviceProperties(&properties, device - 1);
  if (error) return moth_fail_cuda(ctx, "the properties of the device cannot be read", error);
  snprintf(info->name, sizeof info->name, "%.63s", properties.name);
  info->cached_bytes = moth_blocks_cached(p);
  info->free_bytes = (int64_t)left;
  info->total_bytes = (int64_t)all;
  info->major = p->streams[0]->queue.major;
  info->minor = p->streams[0]->queue.minor;
  info->processors = p->streams[0]->queue.processors;
  return MOTH_OK;
}

static void empty_cache(moth_ctx *ctx, int device) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  if (!p) return;
  for (int i = 0; i < p->nstreams; i++) {
    moth_library_state *kept = &p->streams[i]->kept[FFT_TABLES];
    if (kept->state) kept->close(kept->state);
    kept->state = NULL;
  }
  moth_blocks_trim(p);
  moth_pinned_trim();
}

static void close_context(moth_ctx *ctx) {
  void **at = moth_engine->state(ctx);
  context_state *s = at ? (context_state *)*at : NULL;
  for (int i = 1; s && !forked && i <= MOTH_MAX_DEVICES; i++) moth_streams_close(&s->of[i]);
  free(s);
  if (at) *at = NULL;
}

/* -- the entry point -- */

extern const moth_device_kernel *const __start_moth_kernels[] MOTH_LOCAL;
extern const moth_device_kernel *const __stop_moth_kernels[] MOTH_LOCAL;

static moth_backend plugin;

extern "C" __attribute__((visibility("default"))) const moth_backend *moth_backend_init(
    const moth_host *host) {
  if (host->version != MOTH_BACKEND_VERSION || host->size != sizeof *host ||
      host->tensor_size != sizeof(moth_tensor) || host->op_size != sizeof(moth_op))
    return NULL;
  moth_engine = host;
  const char *text = getenv("MOTH_CUDA_BLOCKING");
  blocking = text && *text && strcmp(text, "0");
  plugin.version = MOTH_BACKEND_VERSION;
  plugin.size = sizeof plugin;
  plugin.name = "cuda";
  plugin.kernels = __start_moth_kernels;
  plugin.nkernels = (uint32_t)(__stop_moth_kernels - __start_moth_kernels);
  plugin.count = count_devices;
  plugin.alloc = alloc;
  plugin.dealloc = dealloc;
  plugin.copy = moth_cuda_copy;
  plugin.multiply = moth_cuda_multiply;
  plugin.pin = pin;
  plugin.unpin = moth_pinned_give;
  plugin.streams = &moth_cuda_streams;
  plugin.graphs = &moth_cuda_graphs;
  plugin.transfers = &moth_cuda_transfers;
  plugin.synchronize = synchronize;
  plugin.memory = memory;
  plugin.empty_cache = empty_cache;
  plugin.report = moth_cuda_report;
  plugin.close = close_context;
  return &plugin;
}
