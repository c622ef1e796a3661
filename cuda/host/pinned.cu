/* pinned.cu -- page-locked CPU memory, which a device copies from and to asynchronously. Locking
** pages takes longer than copying them, so blocks are cached: in one pool for the process, because
** tensors, and with them blocks, move between threads.
**
** A block that is freed while copies are in progress is queued, and becomes free when an event
** after each copy has passed. Copies from ordinary memory use blocks of the same queue as a ring
** buffer. Slow calls are made without the pool's lock: no synchronization, no locking of pages. */
#include "device.cuh"

#include <pthread.h>
#include <stdlib.h>

typedef struct use { /* a stream with copies of the block */
  cudaStream_t stream;
  int device;
  cudaEvent_t event;
  bool open; /* the event may not have passed yet */
  struct use *next;
} use;

struct moth_pinned {
  char *at;
  unsigned c; /* its size class */
  use *uses;
  moth_pinned *next; /* next in its class's list of free blocks, or in the queue */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static moth_pinned *free_of[BLOCK_CLASSES];
static moth_pinned *first, *last; /* the queue */
static int64_t under_way;         /* bytes in the queue */

char *moth_pinned_address(const moth_pinned *p) { return p->at; }

moth_pinned *moth_pinned_of(const moth_tensor *x) {
  const moth_storage *s = x->storage->root ? x->storage->root : x->storage;
  return s->deleter == moth_pinned_give ? (moth_pinned *)s->owner : NULL;
}

/* Tests if all copies from and to p are done; `wait`: waits until they are. */
static bool is_done(moth_pinned *p, bool wait) {
  for (use *u = p->uses; u; u = u->next) {
    if (!u->open) continue;
    const cudaError_t error = wait ? cudaEventSynchronize(u->event) : cudaEventQuery(u->event);
    if (error == cudaErrorNotReady) return false;
    u->open = false; /* done, or the device has failed and never accesses it again */
  }
  return true;
}

static void set_free(moth_pinned *p) {
  under_way -= moth_block_size(p->c);
  p->next = free_of[p->c];
  free_of[p->c] = p;
}

/* Blocks leave the queue in order. While this waits for the first block, other threads may take the
** lock; they do not see that block. */
static void advance(int64_t most) {
  while (first) {
    moth_pinned *p = first;
    const bool done = is_done(p, false);
    if (!done && under_way <= most) break;
    first = p->next;
    if (!first) last = NULL;
    if (!done) {
      pthread_mutex_unlock(&lock);
      is_done(p, true);
      pthread_mutex_lock(&lock);
    }
    set_free(p);
  }
  cudaGetLastError(); /* "not ready" is no error */
}

static void unlock_pages(moth_pinned *p) {
  for (use *u = p->uses, *next; u; u = next) {
    next = u->next;
    cudaEventDestroy(u->event);
    free(u);
  }
  cudaFreeHost(p->at);
  free(p);
}

static moth_pinned *lock_pages(unsigned c) {
  moth_pinned *p = (moth_pinned *)calloc(1, sizeof *p);
  if (!p) return NULL;
  p->c = c;
  if (cudaHostAlloc((void **)&p->at, (size_t)moth_block_size(c), cudaHostAllocPortable) ==
      cudaSuccess)
    return p;
  cudaGetLastError();
  free(p);
  return NULL;
}

void moth_pinned_trim(void) {
  moth_pinned *all = NULL;
  pthread_mutex_lock(&lock);
  advance(0);
  for (int c = 0; c < BLOCK_CLASSES; c++)
    while (free_of[c]) {
      moth_pinned *p = free_of[c];
      free_of[c] = p->next;
      p->next = all;
      all = p;
    }
  pthread_mutex_unlock(&lock);
  for (moth_pinned *p = all; p; p = all) {
    all = p->next;
    unlock_pages(p);
  }
}

moth_pinned *moth_pinned_take(int64_t nbytes, int64_t most) {
  const unsigned c = moth_block_class(nbytes);
  if (c >= BLOCK_CLASSES) return NULL;
  moth_pinned **from = &free_of[c], **const last = &free_of[moth_block_reach(c)];
  pthread_mutex_lock(&lock);
  advance(most);
  while (from < last && !*from) from++;
  moth_pinned *p = *from;
  if (p) *from = p->next;
  pthread_mutex_unlock(&lock);
  if (p || (p = lock_pages(c))) return p;
  moth_pinned_trim();
  return lock_pages(c);
}

cudaError_t moth_pinned_used(moth_pinned *p, const moth_queue *q) {
  cudaError_t error = cudaSuccess;
  pthread_mutex_lock(&lock);
  use *u = p->uses;
  while (u && (u->stream != q->stream || u->device != q->device)) u = u->next;
  if (!u && (u = (use *)calloc(1, sizeof *u))) {
    u->stream = q->stream;
    u->device = q->device;
    error = cudaEventCreateWithFlags(&u->event, cudaEventDisableTiming);
    u->next = error ? NULL : p->uses;
    if (!error) p->uses = u;
    else free(u), u = NULL;
  }
  if (u) error = cudaEventRecord(u->event, q->stream);
  if (u) u->open = true;
  pthread_mutex_unlock(&lock);
  /* Out of memory: wait now instead of recording the use. */
  return u && !error ? cudaSuccess : cudaStreamSynchronize(q->stream);
}

void moth_pinned_give(void *memory) {
  moth_pinned *p = (moth_pinned *)memory;
  if (moth_is_forked()) return;
  pthread_mutex_lock(&lock);
  p->next = NULL;
  if (last) last->next = p;
  else first = p;
  last = p;
  under_way += moth_block_size(p->c);
  pthread_mutex_unlock(&lock);
}
