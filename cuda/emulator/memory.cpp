/* memory.cpp -- device memory for the specs: an address range for each device, which only its
** kernels and copies can access. MOTH_EMULATED_MEMORY is the number of bytes of each device (4
** GiB), MOTH_EMULATED_CODE the number of bytes that a kernel's code takes after its first launch
** (none). */
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <new>
#include <set>

static const size_t ARENA_SIZE = (size_t)1 << 36, PAGE = 4096, GUARD = 256;
static char *arena;
static size_t share; /* bytes of a device; device i has the i-th part of the arena */

static struct memory {
  std::map<size_t, size_t> *blocks; /* offset in the arena -> requested size */
  size_t in_use, opened;            /* opened: how far the range has been used */
  int key;                          /* protection key of its pages, if the processor has protection
                                    ** keys */
} *memories;

static size_t memory_size() {
  const char *text = getenv("MOTH_EMULATED_MEMORY");
  return text ? (size_t)strtoull(text, NULL, 10) : (size_t)4 << 30;
}

/* Changing a protection key takes nanoseconds; without keys the rights of all pages are changed. */
void moth_emulated_open(bool open, int device) {
  const memory *m = memories + device;
  if (!arena) return;
  if (m->key >= 0) pkey_set(m->key, open ? 0 : PKEY_DISABLE_ACCESS);
  else if (m->opened)
    mprotect(arena + share * (size_t)device, m->opened, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

int moth_emulated_where(const void *at) {
  const char *p = (const char *)at;
  return arena && p >= arena && p < arena + ARENA_SIZE ? (int)((size_t)(p - arena) / share) : -1;
}

static bool make_arena() {
  const int n = moth_emulated_devices();
  void *range =
      mmap(NULL, ARENA_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memories = (memory *)calloc((size_t)n, sizeof *memories);
  if (range == MAP_FAILED || !memories) return false;
  share = ARENA_SIZE / (size_t)n / PAGE * PAGE;
  WATCH(moth_watch_arena(range, ARENA_SIZE));
  for (int i = 0; i < n; i++) {
    memory *m = &memories[i];
    m->blocks = new (std::nothrow) std::map<size_t, size_t>;
    m->key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (m->key >= 0 && pkey_mprotect((char *)range + share * (size_t)i, share,
                                     PROT_READ | PROT_WRITE, m->key)) {
      pkey_free(m->key);
      m->key = -1;
    }
    if (!m->blocks) return false;
  }
  arena = (char *)range;
  return true;
}

static size_t rounded(size_t n) { return (n + GUARD + GUARD - 1) / GUARD * GUARD; }

/* Guard bytes follow each block; a change of them is an error. */
static bool guard_holds(size_t at, size_t n) {
  const unsigned char *p = (const unsigned char *)arena + at + n;
  for (size_t i = 0; i < rounded(n) - n; i++)
    if (p[i] != 0xa5) return false;
  return true;
}

/* The first offset of the device's range at which n bytes are free; *fits: whether there is one. */
static size_t find_place(const memory *m, size_t begin, size_t n, bool *fits) {
  size_t at = begin;
  for (auto b = m->blocks->begin(); b != m->blocks->end(); ++b) {
    if (b->first - at >= rounded(n)) break;
    at = b->first + rounded(b->second);
  }
  *fits = m->in_use + n <= memory_size() && at + rounded(n) <= begin + share;
  return at;
}

cudaError_t cudaMalloc(void **to, size_t n) {
  CALLED;
  const int device = moth_emulated_device;
  bool fits = false;
  if (moth_emulated_sticky) return moth_emulated_error(moth_emulated_sticky);
  pthread_mutex_lock(&moth_emulated_lock);
  memory *m = arena || make_arena() ? memories + device : NULL;
  const size_t begin = share * (size_t)device, at = m ? find_place(m, begin, n, &fits) : 0;
  if (!fits) {
    pthread_mutex_unlock(&moth_emulated_lock);
    return moth_emulated_error(cudaErrorMemoryAllocation);
  }
  (*m->blocks)[at] = n;
  m->in_use += n;
  const size_t end = (at - begin + rounded(n) + PAGE - 1) / PAGE * PAGE;
  if (end > m->opened) m->opened = end;
  if (!moth_emulated_null) {
    moth_emulated_open(true, device);
    memset(arena + at, 0xff, n); /* NaN, so that reading it shows */
    memset(arena + at + n, 0xa5, rounded(n) - n);
    moth_emulated_open(false, device);
  }
  WATCH(moth_watch_memory(arena + at, n, UNWRITTEN));
  *to = arena + at;
  pthread_mutex_unlock(&moth_emulated_lock);
  return cudaSuccess;
}

bool moth_emulated_load(const void *kernel) {
  static std::set<const void *> loaded;
  const char *text = getenv("MOTH_EMULATED_CODE");
  const size_t n = text ? (size_t)strtoull(text, NULL, 10) : 0;
  memory *m = n && arena && !loaded.count(kernel) ? memories + moth_emulated_device : NULL;
  if (!m) return true;
  if (m->in_use + n > memory_size()) return false;
  m->in_use += n;
  return loaded.insert(kernel).second;
}

cudaError_t cudaFree(void *at) {
  const int device = moth_emulated_where(at);
  if (!at) return cudaSuccess;
  if (device < 0) return moth_emulated_error(cudaErrorInvalidValue);
  pthread_mutex_lock(&moth_emulated_lock);
  moth_emulated_finish();
  memory *m = &memories[device];
  auto b = m->blocks->find((size_t)((char *)at - arena));
  const bool found = b != m->blocks->end();
  if (found) {
    moth_emulated_open(true, device);
    if (!moth_emulated_null && !guard_holds(b->first, b->second)) {
      fprintf(stderr, "emulated CUDA: a kernel wrote past the end of its %zu bytes\n", b->second);
      abort();
    }
    moth_emulated_open(false, device);
    WATCH(moth_watch_memory(at, b->second, NOBODYS));
    m->in_use -= b->second;
    m->blocks->erase(b);
  }
  pthread_mutex_unlock(&moth_emulated_lock);
  return found ? cudaSuccess : moth_emulated_error(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  snprintf(p->name, sizeof p->name, "emulated on the CPU");
  p->totalGlobalMem = memory_size();
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
  const size_t in_use = arena ? memories[moth_emulated_device].in_use : 0;
  *all = memory_size();
  *left = *all > in_use ? *all - in_use : 0;
  return moth_emulated_sticky;
}
