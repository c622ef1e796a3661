/* streams.cpp -- streams, events, copies and graphs of the emulator.
**
** A command runs as late as CUDA allows: when the program waits for it, or for a later command. A
** missing wait then always shows, as NaN or as an old value, instead of once in a thousand runs.
** A command that waits for another process (nccl.cpp) stays at the front of its stream, and other
** streams go on.
** Copies from memory that is not page-locked read their bytes at once, and copies to such memory
** wait, as in CUDA.
**
** While a stream is captured, its commands become nodes of a graph, with copies of the kernels'
** arguments. MOTH_EMULATED_LOG names a file that gets a line for each launch, copy and fill.
** MOTH_EMULATED_GRAPHS=none emulates a driver without graphs. With MOTH_EMULATED_WAITS=n the n-th
** wait for an event fails, with MOTH_EMULATED_FAILS=n the n-th kernel and all later commands. With
** MOTH_EMULATED_NULL=1 commands are neither run nor stored: the time that remains is that of
** submitting them, in Lua, the core and the plugin. MOTH_EMULATED_SLAB is the size of the plugin's
** slabs in bytes; without it there are no slabs, so that a kernel that writes past its block is
** found. */
#include "emulated.h"
#include "submitter.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <vector>

cudaError_t moth_emulated_sticky;
const bool moth_emulated_null = getenv("MOTH_EMULATED_NULL") != NULL;

int64_t moth_emulated_slab(void) {
  const char *text = getenv("MOTH_EMULATED_SLAB");
  return text ? atoll(text) : moth_emulated_null ? 2 << 20 : 0;
}

/* -- calls, counted for specs -- */

static moth_emulated_count *counts;

moth_emulated_count::moth_emulated_count(const char *of) : name(of), calls(0), next(NULL) {
  next = __atomic_exchange_n(&counts, this, __ATOMIC_ACQ_REL);
}

/* Lines "cudaLaunchKernel 12" for this process so far. */
extern "C" __attribute__((visibility("default"))) size_t moth_emulated_calls(char *to, size_t n) {
  size_t used = 0;
  for (const moth_emulated_count *c = counts; c && used < n; c = c->next)
    used += (size_t)snprintf(to + used, n - used, "%s %llu\n", c->name, c->calls);
  return used;
}

/* -- data -- */

typedef std::function<cudaError_t()> command;

struct moth_emulated_node {
  command run;
  int device;
  bool together; /* a cooperative kernel */
};

struct moth_emulated_graph {
  std::vector<cudaGraphNode_t> nodes; /* in order; for an executable graph: the nodes of its source
                                      */
  std::vector<command> runs;          /* of an executable graph */
};

struct moth_emulated_stream : moth_emulated_submitter {
  const int device = moth_emulated_device;
  cudaGraph_t captures = NULL; /* commands become nodes of this graph */
  bool spoilt = false;         /* by a command that a capture does not allow */
  std::deque<command> todo;
  uint64_t asked = 0, done = 0; /* number of commands so far */
  bool gone = false;
};

struct moth_emulated_event {
  const int device = moth_emulated_device;
  cudaStream_t stream = NULL; /* NULL: never recorded */
  uint64_t at = 0;
  bool timed = false;
  std::shared_ptr<double> when;
};

namespace {

enum { MOST_TO_DO = 256 };

std::vector<cudaStream_t> streams; /* including destroyed ones: events may refer to them */
std::map<const char *, size_t> locked; /* page-locked memory: start -> end */

struct holds { /* holds the lock until the end of a block */
  holds() { pthread_mutex_lock(&moth_emulated_lock); }
  ~holds() { pthread_mutex_unlock(&moth_emulated_lock); }
};

/* Returns false if the command waits for another process. */
bool run_one(cudaStream_t s) {
  const cudaError_t error = moth_emulated_sticky ? cudaSuccess : s->todo.front()();
  if (error == cudaErrorNotReady) return false;
  s->todo.pop_front();
  s->done++;
  if (!moth_emulated_sticky) moth_emulated_sticky = error;
  return true;
}

/* Runs a command of the stream. If it waits for another process, each other stream runs one: that
** process may wait for it. */
void run_some(cudaStream_t s) {
  if (run_one(s)) return;
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i] != s && !streams[i]->todo.empty()) run_one(streams[i]);
  usleep(20);
}

void run_until(cudaStream_t s, uint64_t at) {
  while (s->done < at) run_some(s);
}

thread_local cudaStream_t captured; /* the stream that this thread captures */

cudaError_t spoil(cudaStream_t s) {
  s->spoilt = true;
  return moth_emulated_error(cudaErrorStreamCaptureUnsupported);
}

cudaError_t ask(cudaStream_t s, command c) {
  if (!s) return moth_emulated_error(cudaErrorInvalidValue); /* the default stream is not supported
                                                            */
  if (s->captures) {
    s->captures->nodes.push_back(new moth_emulated_node{std::move(c), s->device, false});
    return s->spoilt ? moth_emulated_error(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  }
  s->todo.push_back(std::move(c));
  s->asked++;
  while (s->todo.size() > MOST_TO_DO && run_one(s)) {
  }
  return cudaSuccess;
}

bool is_pageable(const void *at) {
  return moth_emulated_where(at) < 0 && !moth_emulated_is_locked(at);
}

/* Copies; from NULL: fills. */
cudaError_t move(void *to, const void *from, int value, size_t n) {
  const int devices[2] = {moth_emulated_where(to), moth_emulated_where(from)};
  WATCH(moth_watch_move(to, from, n));
  for (int device : devices)
    if (device >= 0) moth_emulated_open(true, device);
  if (from) memmove(to, from, n);
  else memset(to, value, n);
  for (int device : devices)
    if (device >= 0) moth_emulated_open(false, device);
  return cudaSuccess;
}

double seconds() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

} // namespace

bool moth_emulated_is_locked(const void *at) {
  auto after = locked.upper_bound((const char *)at);
  if (after == locked.begin()) return false;
  --after;
  return (const char *)at < after->first + after->second;
}

void moth_emulated_finish(void) {
  if (captured) spoil(captured);
  for (cudaStream_t s : streams) run_until(s, s->asked);
}

/* -- streams -- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
  CALLED;
  holds lock;
  *stream = new (std::nothrow) moth_emulated_stream;
  if (!*stream) return moth_emulated_error(cudaErrorMemoryAllocation);
  streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  CALLED;
  holds lock;
  run_until(stream, stream->asked);
  stream->gone = true;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  if (stream->captures) return spoil(stream);
  run_until(stream, stream->asked);
  return moth_emulated_error(moth_emulated_sticky);
}

/* Repeated queries make progress: each query runs one command. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  if (stream->captures) return spoil(stream);
  if (!stream->todo.empty()) run_some(stream);
  return stream->todo.empty() ? cudaSuccess : cudaErrorNotReady;
}

static bool fails(const char *name) {
  const char *text = getenv(name);
  char left[16];
  const int n = text ? atoi(text) : 0;
  if (n == 0) return false;
  snprintf(left, sizeof left, "%d", n - 1);
  setenv(name, left, 1);
  return n == 1;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ASKED(stream);
  holds lock;
  if (fails("MOTH_EMULATED_WAITS")) return moth_emulated_error(cudaErrorMemoryAllocation);
  cudaStream_t other = event->stream;
  const uint64_t at = event->at;
  if (stream->captures) return spoil(stream); /* the event is not part of the graph */
  if (!other || other == stream || other->done >= at) return cudaSuccess;
  return ask(stream, [=] {
    while (other->done < at)
      if (!run_one(other)) return cudaErrorNotReady;
    return cudaSuccess;
  });
}

/* -- events -- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  CALLED;
  *event = new (std::nothrow) moth_emulated_event;
  if (!*event) return moth_emulated_error(cudaErrorMemoryAllocation);
  (*event)->timed = !(flags & cudaEventDisableTiming);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  CALLED;
  return delete event, cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  std::shared_ptr<double> when = std::make_shared<double>(0.0);
  if (stream->captures) return spoil(stream); /* allowed by CUDA, but not used here */
  if (event->device != stream->device) return moth_emulated_error(cudaErrorInvalidResourceHandle);
  event->stream = stream;
  event->at = stream->asked + 1;
  event->when = when;
  return ask(stream, [=] { return *when = seconds(), cudaSuccess; });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CALLED;
  if (moth_emulated_null) return cudaSuccess;
  holds lock;
  if (event->stream) run_until(event->stream, event->at);
  return moth_emulated_error(moth_emulated_sticky);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  CALLED;
  if (moth_emulated_null) return cudaSuccess;
  holds lock;
  if (!event->stream || event->stream->done >= event->at) return cudaSuccess;
  run_some(event->stream);
  return event->stream->done >= event->at ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  CALLED;
  if (moth_emulated_null) return *ms = 0, cudaSuccess;
  holds lock;
  if (!start->timed || !end->timed || !start->stream || !end->stream ||
      start->device != end->device)
    return moth_emulated_error(cudaErrorInvalidResourceHandle);
  if (start->stream->done < start->at || end->stream->done < end->at) return cudaErrorNotReady;
  *ms = (float)((*end->when - *start->when) * 1e3);
  return cudaSuccess;
}

/* -- commands -- */

static std::map<const void *, const moth_emulated_call *> known; /* kernels by address */
bool moth_emulated_knows(const void *kernel) { return known.count(kernel) != 0; }

const void *moth_emulated_know(const void *kernel, const moth_emulated_call *how) {
  if (moth_emulated_null) return kernel;
  holds lock;
  known[kernel] = how;
  return kernel;
}

/* More than 48 KiB of dynamic shared memory must be requested, for each kernel on each device. */
static std::map<std::pair<const void *, int>, size_t> shared_of; /* bytes */

cudaError_t moth_emulated_attribute(const void *kernel, cudaFuncAttribute which, int value) {
  CALLED;
  if (moth_emulated_null) return cudaSuccess;
  holds lock;
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || (size_t)value > moth_emulated_most_shared())
    return moth_emulated_error(cudaErrorInvalidValue);
  shared_of[{kernel, moth_emulated_device}] = (size_t)value;
  return cudaSuccess;
}

static bool fits_shared(const void *kernel, size_t shared) {
  const auto own = shared_of.find({kernel, moth_emulated_device});
  return shared <= 48 << 10 || (own != shared_of.end() && shared <= own->second);
}

/* The command that runs a kernel on the current device, with copies of its arguments. */
static cudaError_t launch_of(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             bool together, int device, command *run) {
  struct bound {
    const void *kernel;
    const moth_emulated_call *how;
    const moth_ptx_kernel *ptx; /* runs instead, if not NULL */
    size_t shared;
    void *copies;
    ~bound() { free(copies); }
  };
  const unsigned n = block.x * block.y * block.z;
  if (moth_emulated_null) return cudaSuccess;
  if (device != moth_emulated_device) return moth_emulated_error(cudaErrorInvalidResourceHandle);
  if (n == 0 || n > 1024 || !grid.x || !grid.y || !grid.z || grid.x > INT32_MAX ||
      grid.y > 65535 || grid.z > 65535 || !fits_shared(kernel, shared))
    return moth_emulated_error(cudaErrorInvalidConfiguration);
  if (!known.count(kernel)) return moth_emulated_error(cudaErrorInvalidValue);
  if (!moth_emulated_load(kernel)) return moth_emulated_error(cudaErrorMemoryAllocation);
  const moth_emulated_call *how = known[kernel];
  const moth_ptx_kernel *ptx = NULL;
  if (!moth_ptx_replacement(kernel, &ptx)) return moth_emulated_error(cudaErrorLaunchFailure);
  const size_t size = ptx ? ptx->size : how->size;
  shared += ptx ? ptx->shared : 0;
  void *copies = aligned_alloc(64, (size + 63) / 64 * 64);
  std::shared_ptr<bound> held(new bound{kernel, how, ptx, shared, copies});
  if (ptx) moth_ptx_hold(ptx, (char *)copies, args);
  else how->hold(copies, args);
  *run = [=] {
    if (fails("MOTH_EMULATED_FAILS")) return cudaErrorLaunchFailure;
    WATCH(moth_watch_launch(kernel, held->copies, size));
    moth_emulated_open(true, device);
    const cudaError_t error = moth_emulated_run(grid, block, shared, together, [](void *arg) {
      bound *it = (bound *)arg;
      if (it->ptx) moth_ptx_run(it->ptx, it->shared, (char *)it->copies);
      else it->how->run(it->kernel, it->copies);
    }, held.get());
    moth_emulated_open(false, device);
    return error;
  };
  return cudaSuccess;
}

/* A line in the file that an environment variable names, for specs that count commands. */
static const char *const LOG = "MOTH_EMULATED_LOG", *const REACHED = "MOTH_EMULATED_REACHED";

static void note(const char *variable, const char *format, ...) {
  const char *path = getenv(variable);
  FILE *file = path ? fopen(path, "a") : NULL;
  va_list values;
  if (!file) return;
  va_start(values, format);
  vfprintf(file, format, values);
  va_end(values);
  fclose(file);
}

/* Writes a launch's line: number of blocks, the kernel's offset in the plugin (0: compiled at run
** time), grid, block, and bytes of dynamic shared memory. MOTH_EMULATED_REACHED: the offsets of all
** launched kernels, once each, after the plugin's path. */
static void note_launch(const void *kernel, dim3 grid, dim3 block, size_t shared) {
  static std::set<const void *> reached;
  Dl_info of, own;
  const bool ours = dladdr(kernel, &of) && dladdr((void *)(uintptr_t)&note_launch, &own) &&
                    of.dli_fbase == own.dli_fbase;
  const size_t at = ours ? (size_t)((const char *)kernel - (const char *)own.dli_fbase) : 0;
  note(LOG, "kernel %llu %zx %u %u %u %u %u %u %zu\n",
       (unsigned long long)grid.x * grid.y * grid.z, at, grid.x, grid.y, grid.z, block.x, block.y,
       block.z, shared);
  if (at && reached.insert(kernel).second)
    note(REACHED, "%s %zx\n", own.dli_fname, at);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args,
                             size_t shared, cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  command run;
  const cudaError_t error =
    launch_of(kernel, grid, block, args, shared, false, stream->device, &run);
  note_launch(kernel, grid, block, shared);
  return error ? error : ask(stream, run);
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **args,
                                        size_t shared, cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  command run;
  int held = 0, processors = 0;
  moth_emulated_occupancy(&held, (int)(block.x * block.y * block.z), shared);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  if ((uint64_t)grid.x * grid.y * grid.z > (uint64_t)(held * processors))
    return moth_emulated_error(cudaErrorCooperativeLaunchTooLarge);
  cudaError_t error = launch_of(kernel, grid, block, args, shared, true, stream->device, &run);
  note_launch(kernel, grid, block, shared);
  if (!error) error = ask(stream, run);
  if (!error && stream->captures) stream->captures->nodes.back()->together = true;
  return error;
}

/* -- further commands -- */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  const bool up = kind == cudaMemcpyHostToDevice, down = kind == cudaMemcpyDeviceToHost;
  if (up == (moth_emulated_where(from) >= 0) || down == (moth_emulated_where(to) >= 0))
    return moth_emulated_error(cudaErrorInvalidValue);
  note(LOG, "copy %zu\n", n);
  if (stream->captures && (is_pageable(to) || is_pageable(from))) return spoil(stream);
  if (is_pageable(to)) {
    run_until(stream, stream->asked);
    return moth_emulated_sticky ? moth_emulated_error(moth_emulated_sticky) : move(to, from, 0, n);
  }
  if (!is_pageable(from)) return ask(stream, [=] { return move(to, from, 0, n); });
  const char *bytes = (const char *)from;
  std::shared_ptr<std::vector<char>> held = std::make_shared<std::vector<char>>(bytes, bytes + n);
  return ask(stream, [=] { return move(to, held->data(), 0, n); });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  note(LOG, "fill %zu\n", n);
  if (moth_emulated_where(to) < 0) return moth_emulated_error(cudaErrorInvalidValue);
  return ask(stream, [=] { return move(to, NULL, value, n); });
}

/* -- for nccl.cpp -- */

static cudaError_t submit(cudaStream_t stream, std::function<cudaError_t()> run) {
  ASKED(stream);
  holds lock;
  return ask(stream, std::move(run));
}

static void copy_bytes(void *to, const void *from, size_t n) { move(to, from, 0, n); }

moth_emulated_submitter::moth_emulated_submitter() : submit(::submit), copy(copy_bytes) {}

/* -- graphs -- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  CALLED;
  holds lock;
  if (stream->captures) return moth_emulated_error(cudaErrorInvalidValue);
  stream->captures = new moth_emulated_graph;
  stream->spoilt = false;
  captured = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  CALLED;
  holds lock;
  *graph = stream->captures;
  stream->captures = NULL;
  captured = NULL;
  if (!*graph) return moth_emulated_error(cudaErrorInvalidValue);
  if (!stream->spoilt) return cudaSuccess;
  cudaGraphDestroy(*graph);
  *graph = NULL;
  return moth_emulated_error(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                     unsigned long long *, cudaGraph_t *,
                                     const cudaGraphNode_t **last, const cudaGraphEdgeData **,
                                     size_t *n) {
  CALLED;
  holds lock;
  const moth_emulated_graph *graph = stream->captures;
  *status = !graph           ? cudaStreamCaptureStatusNone
            : stream->spoilt ? cudaStreamCaptureStatusInvalidated
                             : cudaStreamCaptureStatusActive;
  *n = graph && !graph->nodes.empty();
  *last = *n ? &graph->nodes.back() : NULL;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  CALLED;
  const char *text = getenv("MOTH_EMULATED_GRAPHS");
  if (text && !strcmp(text, "none")) return moth_emulated_error(cudaErrorMemoryAllocation);
  *exec = new moth_emulated_graph{graph->nodes, {}};
  for (cudaGraphNode_t node : graph->nodes) (*exec)->runs.push_back(node->run);
  return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams *to) {
  CALLED;
  if (moth_emulated_null) return cudaSuccess;
  holds lock;
  for (size_t i = 0; i < exec->nodes.size(); i++)
    if (exec->nodes[i] == node)
      return launch_of(to->func, to->gridDim, to->blockDim, to->kernelParams, to->sharedMemBytes,
                       node->together, node->device, &exec->runs[i]);
  return moth_emulated_error(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  ASKED(stream);
  holds lock;
  if (stream->captures) return spoil(stream);
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; !error && i < exec->runs.size(); i++) error = ask(stream, exec->runs[i]);
  return error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  CALLED;
  for (cudaGraphNode_t node : graph->nodes) delete node;
  return delete graph, cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  CALLED;
  return delete exec, cudaSuccess;
}

#ifdef MOTH_WATCHED
/* In stream order; a graph that is being captured runs later. */
void moth_watch_block(cudaStream_t s, void *at, int64_t n, int64_t copies) {
  holds lock;
  s->todo.push_back([=] { return moth_watch_used(at, (size_t)n, (size_t)copies), cudaSuccess; });
  s->asked++;
}
#endif

/* -- page-locked memory -- */

cudaError_t cudaHostAlloc(void **at, size_t n, unsigned) {
  CALLED;
  holds lock;
  *at = calloc(1, n);
  if (!*at) return moth_emulated_error(cudaErrorMemoryAllocation);
  locked[(const char *)*at] = n;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at) {
  CALLED;
  holds lock;
  moth_emulated_finish();
  locked.erase((const char *)at);
  free(at);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **at, void *host, unsigned) {
  return *at = host, cudaSuccess;
}
