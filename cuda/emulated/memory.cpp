/* memory.cpp -- the device's memory as the specs need it: one range of addresses that only kernels
** and copies may touch. MOTH_EMULATED_MEMORY says how many bytes each device has (4 GiB).
*/
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>
#include <new>

static const size_t ROOM = (size_t)1 << 36, PAGE = 4096, GUARD = 256;
static char *arena;
static std::map<size_t, size_t> *blocks; /* offset -> size asked for */
static size_t in_use;

static size_t memory_size() {
  const char *text = getenv("MOTH_EMULATED_MEMORY");
  return text ? (size_t)strtoull(text, NULL, 10) : (size_t)4 << 30;
}

static size_t opened; /* how far the arena has been used */
static int key = -1;  /* of the arena's pages, where the processor has such keys */

/* Turning a key takes nanoseconds; changing the rights of all pages is what is left without. */
void moth_emulated_open(bool open) {
  if (key >= 0) pkey_set(key, open ? 0 : PKEY_DISABLE_ACCESS);
  else if (opened) mprotect(arena, opened, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool moth_emulated_on_device(const void *at) {
  return arena && (const char *)at >= arena && (const char *)at < arena + ROOM;
}

static void make_arena() {
  void *room = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  arena = room == MAP_FAILED ? NULL : (char *)room;
  blocks = new (std::nothrow) std::map<size_t, size_t>;
  WATCH(if (arena) moth_watch_arena(arena, ROOM));
  if (arena) key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (key >= 0 && pkey_mprotect(arena, ROOM, PROT_READ | PROT_WRITE, key)) {
    pkey_free(key);
    key = -1;
  }
}

static size_t rounded(size_t n) { return (n + GUARD + GUARD - 1) / GUARD * GUARD; }

/* Behind each block lie bytes that nobody may change. */
static bool guard_holds(size_t at, size_t n) {
  const unsigned char *p = (const unsigned char *)arena + at + n;
  for (size_t i = 0; i < rounded(n) - n; i++)
    if (p[i] != 0xa5) return false;
  return true;
}

cudaError_t cudaMalloc(void **to, size_t n) {
  CALLED;
  pthread_mutex_lock(&moth_emulated_lock);
  if (!arena) make_arena();
  size_t at = 0;
  bool fits = arena && blocks && in_use + n <= memory_size();
  for (auto b = fits ? blocks->begin() : std::map<size_t, size_t>::iterator();
       fits && b != blocks->end(); ++b) {
    if (b->first - at >= rounded(n)) break;
    at = b->first + rounded(b->second);
  }
  if (!fits || at + rounded(n) > ROOM) {
    pthread_mutex_unlock(&moth_emulated_lock);
    return cudaErrorMemoryAllocation;
  }
  (*blocks)[at] = n;
  in_use += n;
  const size_t end = (at + rounded(n) + PAGE - 1) / PAGE * PAGE;
  if (end > opened) opened = end;
  if (!moth_emulated_null) {
    moth_emulated_open(true);
    memset(arena + at, 0xff, n); /* NaN, to be seen if it is read */
    memset(arena + at + n, 0xa5, rounded(n) - n);
    moth_emulated_open(false);
  }
  WATCH(moth_watch_memory(arena + at, n, UNWRITTEN));
  *to = arena + at;
  pthread_mutex_unlock(&moth_emulated_lock);
  return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
  if (!memory) return cudaSuccess;
  pthread_mutex_lock(&moth_emulated_lock);
  moth_emulated_finish();
  const size_t at = (size_t)((char *)memory - arena);
  auto b = blocks->find(at);
  cudaError_t error = b == blocks->end() ? cudaErrorInvalidValue : cudaSuccess;
  if (!error) {
    moth_emulated_open(true);
    if (!moth_emulated_null && !guard_holds(at, b->second)) {
      fprintf(stderr, "emulated CUDA: a kernel wrote behind its %zu bytes\n", b->second);
      abort();
    }
    moth_emulated_open(false);
    WATCH(moth_watch_memory(memory, b->second, NOBODYS));
    in_use -= b->second;
    blocks->erase(b);
  }
  pthread_mutex_unlock(&moth_emulated_lock);
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  snprintf(p->name, sizeof p->name, "emulated on the CPU");
  p->totalGlobalMem = memory_size();
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *left, size_t *all) {
  *all = memory_size();
  *left = *all > in_use ? *all - in_use : 0;
  return cudaSuccess;
}
