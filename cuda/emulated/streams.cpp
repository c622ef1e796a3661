/* streams.cpp -- streams, events and copies of the CUDA that stands on the CPU.
**
** Nothing runs when it is asked for, but as late as CUDA allows: when somebody waits for it, or for
** what comes behind it. A wait that was forgotten is seen so, as NaN or as yesterday's value,
** instead of once in a thousand runs. Copies from memory that is not page-locked take their bytes
** at once, and copies to such memory wait, as CUDA's do.
*/
#include "emulated.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <vector>

typedef std::function<cudaError_t()> command;

struct moth_emulated_stream {
  std::deque<command> todo;
  uint64_t asked = 0, done = 0; /* commands so far */
  cudaError_t error = cudaSuccess; /* of what ran, until somebody waits */
  bool gone = false;
};

struct moth_emulated_event {
  cudaStream_t stream = NULL; /* NULL: never recorded */
  uint64_t at = 0;
  bool timed = false;
  std::shared_ptr<double> when;
};

namespace {

enum { MOST_TO_DO = 256 };

std::vector<cudaStream_t> streams; /* those that are gone too: events may name them */
std::map<const char *, size_t> locked; /* page-locked memory: where it ends */

struct holds { /* the lock, until the end of a block */
  holds() { pthread_mutex_lock(&moth_emulated_lock); }
  ~holds() { pthread_mutex_unlock(&moth_emulated_lock); }
};

void run_one(cudaStream_t s) {
  command c = std::move(s->todo.front());
  s->todo.pop_front();
  cudaError_t error = c();
  if (error) s->error = error;
  s->done++;
}

void run_until(cudaStream_t s, uint64_t at) {
  while (s->done < at) run_one(s);
}

cudaError_t ask(cudaStream_t s, command c) {
  if (!s) return moth_emulated_told(cudaErrorInvalidValue); /* nothing is asked of CUDA's own */
  s->todo.push_back(std::move(c));
  s->asked++;
  while (s->todo.size() > MOST_TO_DO) run_one(s);
  return cudaSuccess;
}

bool is_locked(const void *at) {
  auto after = locked.upper_bound((const char *)at);
  if (after == locked.begin()) return false;
  --after;
  return (const char *)at < after->first + after->second;
}

bool is_pageable(const void *at) { return !moth_emulated_on_device(at) && !is_locked(at); }

cudaError_t move(void *to, const void *from, size_t n) {
  moth_emulated_open(true);
  memmove(to, from, n);
  moth_emulated_open(false);
  return cudaSuccess;
}

double seconds() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

} // namespace

void moth_emulated_finish(void) {
  for (cudaStream_t s : streams) run_until(s, s->asked);
}

/* -- streams -- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) {
  holds lock;
  *stream = new (std::nothrow) moth_emulated_stream;
  if (!*stream) return moth_emulated_told(cudaErrorMemoryAllocation);
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
  holds lock;
  run_until(stream, stream->asked);
  stream->gone = true;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  holds lock;
  run_until(stream, stream->asked);
  const cudaError_t error = stream->error;
  stream->error = cudaSuccess;
  return moth_emulated_told(error);
}

/* Who asks again and again gets there: each question lets one thing be done. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  holds lock;
  if (!stream->todo.empty()) run_one(stream);
  return stream->todo.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  holds lock;
  cudaStream_t other = event->stream;
  const uint64_t at = event->at;
  if (!other || other == stream || other->done >= at) return cudaSuccess;
  return ask(stream, [=] { return run_until(other, at), cudaSuccess; });
}

/* -- events -- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  *event = new (std::nothrow) moth_emulated_event;
  if (!*event) return moth_emulated_told(cudaErrorMemoryAllocation);
  (*event)->timed = !(flags & cudaEventDisableTiming);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  holds lock;
  std::shared_ptr<double> when = std::make_shared<double>(0.0);
  event->stream = stream;
  event->at = stream->asked + 1;
  event->when = when;
  return ask(stream, [=] { return *when = seconds(), cudaSuccess; });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  holds lock;
  if (event->stream) run_until(event->stream, event->at);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  holds lock;
  if (!event->stream || event->stream->done >= event->at) return cudaSuccess;
  run_one(event->stream);
  return event->stream->done >= event->at ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  holds lock;
  if (!start->timed || !end->timed || !start->stream || !end->stream)
    return moth_emulated_told(cudaErrorInvalidResourceHandle);
  if (start->stream->done < start->at || end->stream->done < end->at) return cudaErrorNotReady;
  *ms = (float)((*end->when - *start->when) * 1e3);
  return cudaSuccess;
}

/* -- what streams are asked for -- */

cudaError_t moth_emulate(dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                         void (*run)(void *), void *arg, void (*drop)(void *)) {
  const unsigned n = block.x * block.y * block.z;
  if (n == 0 || n > 1024 || !grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 ||
      shared > moth_emulated_most_shared()) {
    drop(arg);
    return cudaErrorInvalidConfiguration;
  }
  holds lock;
  std::shared_ptr<void> held(arg, drop);
  return ask(stream, [=] { return moth_emulated_run(grid, block, shared, run, held.get()); });
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind,
                            cudaStream_t stream) {
  holds lock;
  if (is_pageable(to)) {
    run_until(stream, stream->asked);
    return move(to, from, n);
  }
  if (!is_pageable(from)) return ask(stream, [=] { return move(to, from, n); });
  const char *bytes = (const char *)from;
  std::shared_ptr<std::vector<char>> held = std::make_shared<std::vector<char>>(bytes, bytes + n);
  return ask(stream, [=] { return move(to, held->data(), n); });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t stream) {
  holds lock;
  return ask(stream, [=] {
    moth_emulated_open(true);
    memset(to, value, n);
    moth_emulated_open(false);
    return cudaSuccess;
  });
}

/* -- page-locked memory -- */

cudaError_t cudaHostAlloc(void **at, size_t n, unsigned) {
  holds lock;
  *at = calloc(1, n);
  if (!*at) return moth_emulated_told(cudaErrorMemoryAllocation);
  locked[(const char *)*at] = n;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at) {
  holds lock;
  moth_emulated_finish();
  locked.erase((const char *)at);
  free(at);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **at, void *host, unsigned) {
  return *at = host, cudaSuccess;
}
