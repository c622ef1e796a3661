/* device.cu -- the plugin's entrance; a context's stream, memory and troubles on each device.
**
** Nothing of CUDA is touched before the first count, and no device before its first use: then it
** gets a stream of its own, a block cache and a record for troubles. The CUDA runtime is linked in
** and opens the driver by itself; without one, or without a card, counting says so.
*/
#include "device.cuh"
#include "gemm.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A launch's record is used again RECORDS launches later; by then its kernel has long run. */
enum { MOST_DEVICES = MOTH_MAX_DEVICES, LAST_OPS = 4, RECORDS = 1024 };

typedef struct trouble_page {
  int any; /* a kernel has found something */
  moth_trouble of[RECORDS];
} trouble_page;

typedef struct device_state {
  moth_queue queue; /* queue.stream == NULL: not used yet */
  moth_blocks *blocks;
  moth_kept kept[LIBRARIES];
  trouble_page *page, *page_there; /* one page, as the CPU and as the device sees it */
  const char *op[RECORDS];         /* whose kernels were launched */
  unsigned launches;
} device_state;

typedef struct context_state {
  device_state of[MOST_DEVICES + 1];
} context_state;

const moth_host *moth_engine;

/* -- processes: CUDA does not live on in a forked child -- */

static bool used, forked;

static void in_child(void) { forked = used; }

static int check_process(moth_ctx *ctx) {
  if (!forked) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_CUDA, NULL,
                   "a forked process cannot use the GPU of its parent; start a new process");
}

static int fail_cuda(moth_ctx *ctx, const char *what, cudaError_t error) {
  cudaGetLastError(); /* what is told once need not be told again */
  return moth_fail(ctx, error == cudaErrorMemoryAllocation ? MOTH_E_MEM : MOTH_E_CUDA, NULL,
                   "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

/* -- counting -- */

static int32_t count_devices(moth_ctx *ctx) {
  int n = 0, status = check_process(ctx);
  if (status) return status;
  cudaError_t error = cudaGetDeviceCount(&n);
  if (error == cudaSuccess) return n < MOST_DEVICES ? n : MOST_DEVICES;
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

static int read_properties(moth_ctx *ctx, moth_queue *q) {
  int value[4] = {0};
  const cudaDeviceAttr asked[4] = {cudaDevAttrMultiProcessorCount,
                                   cudaDevAttrComputeCapabilityMajor,
                                   cudaDevAttrComputeCapabilityMinor,
                                   cudaDevAttrMaxSharedMemoryPerBlockOptin};
  for (int i = 0; i < 4; i++) {
    cudaError_t error = cudaDeviceGetAttribute(&value[i], asked[i], q->device);
    if (error) return fail_cuda(ctx, "the device cannot be asked", error);
  }
  q->processors = value[0];
  q->major = value[1];
  q->minor = value[2];
  q->shared = (size_t)value[3];
  return MOTH_OK;
}

static void clear_page(device_state *d) {
  memset(d->page, 0, sizeof *d->page);
  for (int i = 0; i < RECORDS; i++) d->page->of[i].any = &d->page_there->any;
}

static int open_device(moth_ctx *ctx, device_state *d, int device) {
  moth_queue *q = &d->queue;
  q->device = device - 1;
  int status = read_properties(ctx, q);
  if (status) return status;
  cudaError_t error = cudaHostAlloc((void **)&d->page, sizeof *d->page, cudaHostAllocMapped);
  if (!error) error = cudaHostGetDevicePointer((void **)&d->page_there, d->page, 0);
  if (!error) clear_page(d);
  if (!error && !d->blocks) d->blocks = moth_blocks_new();
  if (!error && !d->blocks) error = cudaErrorMemoryAllocation;
  if (!error) error = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
  if (!used) pthread_atfork(NULL, NULL, in_child);
  used = true;
  return error ? fail_cuda(ctx, "the device cannot be used", error) : MOTH_OK;
}

static device_state *device_of(moth_ctx *ctx, int device) {
  context_state *s = state_of(ctx);
  if (!s || check_process(ctx)) return NULL;
  device_state *d = &s->of[device];
  cudaError_t error = cudaSetDevice(device - 1);
  if (error) {
    fail_cuda(ctx, "the device cannot be used", error);
    return NULL;
  }
  if (!d->queue.stream && open_device(ctx, d, device)) return NULL;
  return d;
}

/* -- troubles: what kernels found, and what CUDA says late -- */

/* The oldest finding, as an error that names the op it came from. */
static int tell_trouble(moth_ctx *ctx, device_state *d) {
  unsigned at = d->launches;
  while (d->page->of[at % RECORDS].code == 0 && at - d->launches < RECORDS) at++;
  const moth_trouble t = d->page->of[at % RECORDS];
  const char *op = d->op[at % RECORDS] ? d->op[at % RECORDS] : "an op";
  cudaStreamSynchronize(d->queue.stream); /* nobody writes the page while it is cleared */
  clear_page(d);
  switch (t.code) {
    case TROUBLE_DIVISION:
      return moth_fail(ctx, MOTH_E_DOMAIN, NULL,
                       "'%s', which ran before on the GPU, divided integers by 0", op);
    case TROUBLE_INDEX:
      return moth_fail(ctx, MOTH_E_INDEX, NULL,
                       "'%s', which ran before on the GPU, met position \1%lld\2 of %lld", op,
                       t.value, t.limit);
    case TROUBLE_CLASS:
      return moth_fail(ctx, MOTH_E_INDEX, NULL,
                       "'%s', which ran before on the GPU, met class \1%lld\2 of %lld", op,
                       t.value, t.limit);
    default:
      return moth_fail(ctx, MOTH_E_DOMAIN, NULL,
                       "'%s', which ran before on the GPU, met a value outside of its domain", op);
  }
}

const moth_queue *moth_queue_of(moth_ctx *ctx, int device) {
  device_state *d = device_of(ctx, device);
  if (!d) return NULL;
  if (*(volatile int *)&d->page->any) {
    tell_trouble(ctx, d);
    return NULL;
  }
  d->queue.trouble = &d->page_there->of[d->launches % RECORDS];
  return &d->queue;
}

moth_kept *moth_kept_of(const moth_queue *q, int library) {
  return &((device_state *)(void *)q)->kept[library]; /* its first member */
}

int moth_launched(moth_ctx *ctx, const moth_queue *q, cudaError_t error) {
  device_state *d = (device_state *)(void *)q; /* its first member */
  d->op[d->launches++ % RECORDS] = moth_engine->op_under_way(ctx);
  static int waits = -1;
  if (waits < 0) waits = getenv("MOTH_CUDA_BLOCKING") != NULL;
  if (!error && waits) error = cudaStreamSynchronize(q->stream);
  return error ? fail_cuda(ctx, "a kernel could not run", error) : MOTH_OK;
}

int moth_wait(moth_ctx *ctx, int device) {
  char text[160] = "the GPU failed some time ago; launched last:";
  device_state *d = device_of(ctx, device);
  if (!d) return moth_status(ctx);
  cudaError_t error = cudaStreamSynchronize(d->queue.stream);
  if (!error) return d->page->any ? tell_trouble(ctx, d) : MOTH_OK;
  for (unsigned i = 1; i <= LAST_OPS && i <= d->launches; i++) {
    const char *op = d->op[(d->launches - i) % RECORDS];
    size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, "%s %s", i > 1 ? "," : "", op ? op : "?");
  }
  return fail_cuda(ctx, text, error);
}

/* -- memory -- */

static void *alloc(moth_ctx *ctx, int device, int64_t nbytes) {
  device_state *d = device_of(ctx, device);
  if (!d) return NULL;
  void *block = moth_blocks_take(d->blocks, nbytes);
  size_t left = 0, all = 0;
  if (block) return block;
  cudaMemGetInfo(&left, &all);
  moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory on cuda:%d: %lld bytes asked for, %lld of %lld "
            "are free", device - 1, (long long)nbytes, (long long)left, (long long)all);
  return NULL;
}

static void dealloc(moth_ctx *ctx, int device, void *block, int64_t nbytes) {
  context_state *s = state_of(ctx);
  if (s && s->of[device].blocks && !forked) moth_blocks_give(s->of[device].blocks, block, nbytes);
}

static int memory(moth_ctx *ctx, int device, moth_device_info *info) {
  device_state *d = device_of(ctx, device);
  struct cudaDeviceProp properties;
  size_t left = 0, all = 0;
  if (!d) return moth_status(ctx);
  cudaError_t error = cudaMemGetInfo(&left, &all);
  if (!error) error = cudaGetDeviceProperties(&properties, device - 1);
  if (error) return fail_cuda(ctx, "the device cannot be asked", error);
  snprintf(info->name, sizeof info->name, "%.63s", properties.name);
  info->cached_bytes = moth_blocks_cached(d->blocks);
  info->free_bytes = (int64_t)left;
  info->total_bytes = (int64_t)all;
  info->major = d->queue.major;
  info->minor = d->queue.minor;
  return MOTH_OK;
}

static void empty_cache(moth_ctx *ctx, int device) {
  device_state *d = device_of(ctx, device);
  if (d) moth_blocks_trim(d->blocks);
}

static void close_context(moth_ctx *ctx) {
  void **at = moth_engine->state(ctx);
  context_state *s = at ? (context_state *)*at : NULL;
  for (int i = 1; s && !forked && i <= MOST_DEVICES; i++) {
    device_state *d = &s->of[i];
    if (!d->queue.stream) continue;
    cudaSetDevice(d->queue.device);
    cudaStreamSynchronize(d->queue.stream);
    for (int k = 0; k < LIBRARIES; k++)
      if (d->kept[k].state) d->kept[k].close(d->kept[k].state);
    moth_blocks_free(d->blocks);
    cudaFreeHost(d->page);
    cudaStreamDestroy(d->queue.stream);
  }
  free(s);
  if (at) *at = NULL;
}

/* -- the entrance -- */

extern const moth_device_kernel *const __start_moth_kernels[] MOTH_LOCAL;
extern const moth_device_kernel *const __stop_moth_kernels[] MOTH_LOCAL;

static moth_backend plugin;

extern "C" __attribute__((visibility("default"))) const moth_backend *moth_backend_init(
    const moth_host *host) {
  if (host->version != MOTH_BACKEND_VERSION || host->size != sizeof *host ||
      host->tensor_size != sizeof(moth_tensor) || host->op_size != sizeof(moth_op))
    return NULL;
  moth_engine = host;
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
  plugin.synchronize = moth_wait;
  plugin.memory = memory;
  plugin.empty_cache = empty_cache;
  plugin.report = moth_cuda_report;
  plugin.close = close_context;
  return &plugin;
}
