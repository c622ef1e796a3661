/* stream.cu -- streams of a context on a device, and events.
**
** A stream is not destroyed before its context ends. A released stream is reused for the next
** request, as in PyTorch's pool, with its blocks and its library state. Launches are numbered over
** all streams of a context on a device, so that a stream knows which work of another it has not yet
** waited for. */
#include "device.cuh"

#include <sched.h>
#include <stdlib.h>

/* -- opening and closing -- */

static void clear_page(moth_device_stream *s) {
  memset(s->page, 0, sizeof *s->page);
  for (int i = 0; i < RECORDS; i++)
    s->page->of[i].any = &s->device_context->streams[0]->page_there->any;
}

static void stream_free(moth_device_stream *s) {
  moth_graphs_close(s); /* before the libraries whose kernels they launch */
  for (int k = 0; k < KEPT; k++)
    if (s->kept[k].state) s->kept[k].close(s->kept[k].state);
  moth_blocks_free(s->blocks);
  cudaFreeHost(s->page);
  if (s->mark) cudaEventDestroy(s->mark);
  if (s->queue.stream) cudaStreamDestroy(s->queue.stream);
  free(s->joined);
  free(s);
}

static int read_properties(moth_ctx *ctx, moth_queue *q) {
  int value[5] = {0};
  const cudaDeviceAttr asked[5] = {cudaDevAttrMultiProcessorCount,
                                   cudaDevAttrComputeCapabilityMajor,
                                   cudaDevAttrComputeCapabilityMinor,
                                   cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                   cudaDevAttrCooperativeLaunch};
  for (int i = 0; i < 5; i++) {
    cudaError_t error = cudaDeviceGetAttribute(&value[i], asked[i], q->device);
    if (error) return moth_fail_cuda(ctx, "the properties of the device cannot be read", error);
  }
  q->processors = value[0];
  q->major = value[1];
  q->minor = value[2];
  q->shared = (size_t)value[3];
  q->together = value[4] != 0;
  cudaError_t error = moth_check_tensor_cores(q->major, &q->tensor_cores);
  return error ? moth_fail_cuda(ctx, "its kernels cannot be loaded", error) : MOTH_OK;
}

/* Grows the arrays for one more stream, including each stream's array of joined launches. */
static bool grow_arrays(moth_device_context *p, moth_device_stream *s) {
  const size_t n = (size_t)p->nstreams + 1;
  moth_device_stream **grown = (moth_device_stream **)realloc(p->streams, n * sizeof *grown);
  if (grown) p->streams = grown;
  for (int i = 0; grown && i < p->nstreams; i++) {
    uint64_t *joined = (uint64_t *)realloc(p->streams[i]->joined, n * sizeof *joined);
    if (!joined) return false;
    joined[n - 1] = 0;
    p->streams[i]->joined = joined;
  }
  s->joined = (uint64_t *)calloc(n, sizeof *s->joined);
  return grown && s->joined;
}

static cudaError_t open_stream(moth_device_stream *s) {
  cudaError_t error = cudaHostAlloc((void **)&s->page, sizeof *s->page, cudaHostAllocMapped);
  if (!error) error = cudaHostGetDevicePointer((void **)&s->page_there, s->page, 0);
  if (!error) error = cudaEventCreateWithFlags(&s->mark, cudaEventDisableTiming);
  if (!error)
    error = cudaStreamCreateWithPriority(&s->queue.stream, cudaStreamNonBlocking, s->priority);
  s->blocks = moth_blocks_new();
  s->graphs.blocks = moth_blocks_new();
  return !error && !(s->blocks && s->graphs.blocks) ? cudaErrorMemoryAllocation : error;
}

moth_device_stream *moth_stream_new(moth_ctx *ctx, moth_device_context *p, int device,
                                    int priority) {
  moth_device_stream *s = (moth_device_stream *)calloc(1, sizeof *s);
  if (!s) {
    moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
    return NULL;
  }
  s->device_context = p;
  s->priority = priority;
  s->number = p->nstreams;
  s->queue.device = device - 1;
  int status = read_properties(ctx, &s->queue);
  cudaError_t error = status ? cudaSuccess : open_stream(s);
  if (!status && !error && !grow_arrays(p, s)) error = cudaErrorMemoryAllocation;
  if (error) moth_fail_cuda(ctx, "the device cannot be used", error);
  if (status || error) {
    stream_free(s);
    return NULL;
  }
  p->streams[p->nstreams++] = s;
  clear_page(s);
  return s;
}

cudaError_t moth_streams_finish(moth_device_context *p) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < p->nstreams; i++) {
    const cudaError_t record_error = cudaStreamSynchronize(p->streams[i]->queue.stream);
    if (!error) error = record_error;
  }
  return error;
}

void moth_streams_close(moth_device_context *p) {
  if (p->nstreams) cudaSetDevice(p->streams[0]->queue.device);
  moth_streams_finish(p);
  while (p->nstreams) stream_free(p->streams[--p->nstreams]);
  free(p->streams);
}

/* -- ordering streams -- */

/* A wait counts as work of the stream: streams that wait for this stream wait for it, too. */
cudaError_t moth_stream_behind(moth_device_stream *s, cudaEvent_t event) {
  const cudaError_t error = cudaStreamWaitEvent(s->queue.stream, event, 0);
  if (!error) s->last = ++s->device_context->launches;
  return error;
}

static cudaError_t set_mark(moth_device_stream *s) {
  const cudaError_t error = cudaEventRecord(s->mark, s->queue.stream);
  if (!error) s->marked = s->last;
  return error;
}

/* Waits for the work of `other` up to this launch, perhaps for more. */
static cudaError_t join_up_to(moth_device_stream *s, moth_device_stream *other, uint64_t number) {
  /* Launch numbers are comparable only on the same device. */
  const bool near = s->device_context == other->device_context;
  if (s == other || (near && s->joined[other->number] >= number)) return cudaSuccess;
  cudaError_t error = other->marked < number ? set_mark(other) : cudaSuccess;
  if (!error) error = moth_stream_behind(s, other->mark);
  if (!error && near) s->joined[other->number] = other->marked;
  return error;
}

cudaError_t moth_stream_join(moth_device_stream *s, moth_device_stream *other) {
  return join_up_to(s, other, other->last);
}

/* Streams that are created later wait for the copy, too. The event is recorded now, so that they
** wait for nothing later. */
cudaError_t moth_stream_copied(moth_device_stream *s) {
  s->device_context->copied = s->last;
  s->device_context->copier = s->number;
  return s->device_context->nstreams > 1 ? set_mark(s) : cudaSuccess;
}

/* The last copy waits for the earlier ones. */
cudaError_t moth_stream_behind_copies(moth_device_stream *s) {
  const moth_device_context *p = s->device_context;
  return join_up_to(s, p->streams[p->copier], p->copied);
}

int moth_stream_settle(moth_ctx *ctx, const moth_device_stream *s, const cudaEvent_t *event) {
  if (!s->device_context->transfers) return MOTH_OK;
  for (unsigned turn = 0;; turn++) {
    const cudaError_t error = event ? cudaEventQuery(*event) : cudaStreamQuery(s->queue.stream);
    if (error == cudaSuccess) return moth_engine->check_transfers(ctx);
    if (error != cudaErrorNotReady) return MOTH_OK; /* the caller's wait returns it */
    cudaGetLastError();
    int status = turn % 64 == 63 ? moth_engine->check_transfers(ctx) : MOTH_OK;
    if (status) return status;
    if (turn > 64) sched_yield();
  }
}

/* -- the user's functions (core/device/stream.c) -- */

static moth_device_stream *stream_of(moth_ctx *ctx, int device, int number) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  if (!p) return NULL;
  if (number >= 0 && number < p->nstreams) return p->streams[number];
  moth_fail(ctx, MOTH_E_ARG, "stream", "there is no stream %d on cuda:%d", number, device - 1);
  return NULL;
}

static int record_error(moth_ctx *ctx, cudaError_t error) {
  return error ? moth_fail_cuda(ctx, "a stream", error) : MOTH_OK;
}

moth_device_stream *moth_stream_take(moth_ctx *ctx, moth_device_context *p, int device,
                                     int priority) {
  int least = 0, greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  priority = priority < greatest ? greatest : priority > least ? least : priority;
  moth_device_stream *s = NULL;
  for (int i = 1; i < p->nstreams && !s; i++)
    if (!p->streams[i]->held && i != p->current && p->streams[i]->priority == priority)
      s = p->streams[i];
  if (!s) s = moth_stream_new(ctx, p, device, priority);
  if (s) s->held = true;
  return s;
}

static int take_stream(moth_ctx *ctx, int device, int priority, void **stream) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  moth_device_stream *s = p ? moth_stream_take(ctx, p, device, priority) : NULL;
  if (!s) return moth_status(ctx);
  *stream = s;
  return s->number;
}

static void drop_stream(void *stream) { ((moth_device_stream *)stream)->held = false; }

static int use_stream(moth_ctx *ctx, int device, int number) {
  moth_device_context *p = moth_device_context_of(ctx, device);
  if (!p) return moth_status(ctx);
  const int old = p->current;
  if (number < 0) return old;
  if (!stream_of(ctx, device, number)) return moth_status(ctx);
  p->current = number;
  return old;
}

static int wait_stream(moth_ctx *ctx, int device, int number) {
  moth_device_stream *s = stream_of(ctx, device, number);
  return s ? moth_wait_for(ctx, s) : moth_status(ctx);
}

static int query_stream(moth_ctx *ctx, int device, int number) {
  moth_device_stream *s = stream_of(ctx, device, number);
  if (!s) return moth_status(ctx);
  const cudaError_t error = cudaStreamQuery(s->queue.stream);
  if (error != cudaErrorNotReady) return error ? record_error(ctx, error) : 1;
  cudaGetLastError();
  return 0;
}

static int join_streams(moth_ctx *ctx, int device, int number, int other_device, int other) {
  moth_device_stream *behind = stream_of(ctx, other_device, other);
  moth_device_stream *s = behind ? stream_of(ctx, device, number) : NULL;
  return s ? record_error(ctx, moth_stream_join(s, behind)) : moth_status(ctx);
}

/* -- events -- */

typedef struct moth_event {
  cudaEvent_t at; /* created on the device that first records it */
  int device;     /* 0: never recorded */
  bool timed;
} moth_event;

static int take_event(moth_ctx *ctx, bool timed, void **event) {
  moth_event *e = (moth_event *)calloc(1, sizeof *e);
  if (!e) return moth_fail(ctx, MOTH_E_MEM, NULL, "out of memory");
  e->timed = timed;
  *event = e;
  return MOTH_OK;
}

static void drop_event(void *event) {
  moth_event *e = (moth_event *)event;
  if (e->device && !moth_is_forked()) cudaEventDestroy(e->at);
  free(e);
}

static int record_event(moth_ctx *ctx, void *event, int device, int number) {
  moth_event *e = (moth_event *)event;
  moth_device_stream *s = stream_of(ctx, device, number);
  if (!s) return moth_status(ctx);
  if (e->device && e->device != device)
    return moth_fail(ctx, MOTH_E_DEVICE, "stream", "the event was recorded on cuda:%d, the stream "
                     "is one of cuda:%d", e->device - 1, device - 1);
  cudaError_t error = cudaSuccess;
  if (!e->device)
    error = cudaEventCreateWithFlags(&e->at, e->timed ? 0u : (unsigned)cudaEventDisableTiming);
  if (error) return record_error(ctx, error);
  e->device = device;
  return record_error(ctx, cudaEventRecord(e->at, s->queue.stream));
}

/* Makes a stream wait for the event; with device 0 the CPU waits. */
static int wait_event(moth_ctx *ctx, void *event, int device, int number) {
  moth_event *e = (moth_event *)event;
  if (!e->device) return MOTH_OK; /* never recorded: nothing to wait for */
  if (device == 0) {
    moth_device_context *p = moth_device_context_of(ctx, e->device);
    int status = p ? moth_stream_settle(ctx, p->streams[0], &e->at) : moth_status(ctx);
    return status ? status : record_error(ctx, cudaEventSynchronize(e->at));
  }
  moth_device_stream *s = stream_of(ctx, device, number);
  return s ? record_error(ctx, moth_stream_behind(s, e->at)) : moth_status(ctx);
}

static int query_event(moth_ctx *ctx, void *event) {
  moth_event *e = (moth_event *)event;
  if (!e->device) return 1;
  if (!moth_device_context_of(ctx, e->device)) return moth_status(ctx);
  const cudaError_t error = cudaEventQuery(e->at);
  if (error != cudaErrorNotReady) return error ? record_error(ctx, error) : 1;
  cudaGetLastError();
  return 0;
}

static int elapsed(moth_ctx *ctx, void *start, void *end, double *ms) {
  moth_event *a = (moth_event *)start, *b = (moth_event *)end;
  float between = 0;
  if (!a->timed || !b->timed)
    return moth_fail(ctx, MOTH_E_STATE, "end_event", "both events must be made with enable_timing "
                     "= true");
  if (!a->device || !b->device)
    return moth_fail(ctx, MOTH_E_STATE, "end_event", "both events must be recorded before");
  if (!moth_device_context_of(ctx, a->device)) return moth_status(ctx);
  const cudaError_t error = cudaEventElapsedTime(&between, a->at, b->at);
  *ms = (double)between;
  if (error != cudaErrorNotReady) return record_error(ctx, error);
  cudaGetLastError();
  return moth_fail(ctx, MOTH_E_STATE, "end_event", "the device has not reached both events yet; "
                   "synchronize() first");
}

const moth_stream_functions moth_cuda_streams = {
  take_stream, drop_stream, use_stream, wait_stream, query_stream, join_streams,
  take_event, drop_event, record_event, wait_event, query_event, elapsed};
