/* memory.cu -- the block cache of one context on one device.
**
** cudaMalloc waits for the device, so blocks are kept by size class, eight to an octave as in
** core/alloc.c. One stream does all the work of a context on a device, in order: a block that was
** given back may be taken again at once, since what still reads it was asked for before.
*/
#include "device.cuh"

#include <stdlib.h>

enum { CLASSES = 256, LEAST = 512 };

typedef struct block { /* one that was taken from the driver */
  void *at;
  struct block *next; /* in its class's chain of free ones */
} block;

struct moth_blocks {
  block *free_of[CLASSES];
  block *spare; /* records without a block */
  int64_t cached;
};

/* core/context.h's classes, from LEAST bytes on. */
static unsigned class_of(int64_t nbytes) {
  if (nbytes <= LEAST) return 0;
  const uint64_t n = ((uint64_t)nbytes + LEAST - 1) / LEAST;
  const unsigned k = 63u - (unsigned)__builtin_clzll(n - 1); /* 2^k < n <= 2^(k+1) */
  if (k < 3) return (unsigned)n - 1;
  const uint64_t step = (uint64_t)1 << (k - 3);
  return (k - 2) * 8 + (unsigned)((n - ((uint64_t)1 << k) + step - 1) >> (k - 3)) - 1;
}

static int64_t size_of_class(unsigned c) {
  if (c < 8) return (int64_t)LEAST * (c + 1);
  const unsigned k = c / 8 + 2;
  return (int64_t)LEAST * (((int64_t)1 << k) + ((int64_t)(c % 8) + 1) * ((int64_t)1 << (k - 3)));
}

moth_blocks *moth_blocks_new(void) { return (moth_blocks *)calloc(1, sizeof(moth_blocks)); }

static void *from_driver(int64_t size) {
  void *at = NULL;
  if (cudaMalloc(&at, (size_t)size) == cudaSuccess) return at;
  cudaGetLastError(); /* else the next launch would report it */
  return NULL;
}

void *moth_blocks_take(moth_blocks *b, int64_t nbytes) {
  const unsigned c = class_of(nbytes);
  block *at = c < CLASSES ? b->free_of[c] : NULL;
  if (c >= CLASSES) return NULL;
  if (at) {
    b->free_of[c] = at->next;
    b->cached -= size_of_class(c);
    void *memory = at->at;
    at->at = NULL;
    at->next = b->spare;
    b->spare = at;
    return memory;
  }
  void *memory = from_driver(size_of_class(c));
  if (memory) return memory;
  moth_blocks_trim(b);
  return from_driver(size_of_class(c));
}

void moth_blocks_give(moth_blocks *b, void *memory, int64_t nbytes) {
  const unsigned c = class_of(nbytes);
  block *at = b->spare ? b->spare : (block *)calloc(1, sizeof *at);
  if (!at) {
    cudaFree(memory);
    return;
  }
  if (b->spare) b->spare = at->next;
  at->at = memory;
  at->next = b->free_of[c];
  b->free_of[c] = at;
  b->cached += size_of_class(c);
}

void moth_blocks_trim(moth_blocks *b) {
  for (int c = 0; c < CLASSES; c++)
    while (b->free_of[c]) {
      block *at = b->free_of[c];
      b->free_of[c] = at->next;
      cudaFree(at->at); /* waits for the device */
      free(at);
    }
  b->cached = 0;
}

int64_t moth_blocks_cached(const moth_blocks *b) { return b->cached; }

void moth_blocks_free(moth_blocks *b) {
  moth_blocks_trim(b);
  while (b->spare) {
    block *next = b->spare->next;
    free(b->spare);
    b->spare = next;
  }
  free(b);
}
