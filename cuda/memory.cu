/* memory.cu -- the block caches of a context's streams on a device.
**
** cudaMalloc waits for the device, so blocks are kept by size class. A block belongs to the stream
** that it was taken for: given back, it may be taken again at once, since what still reads it there
** was asked for before. Other streams may read it too: of those that were asked for anything while
** the block was out, its stream waits, by an event, for what they were asked for until it came
** back. That costs nothing where there is one stream, or where the others stood still meanwhile.
*/
#include "device.cuh"

#include <stdlib.h>

#ifdef MOTH_WATCHED /* by the stand-in, who must know how many bytes of a block are a tensor's */
void moth_watch_block(cudaStream_t stream, void *at, int64_t used, int64_t size);
#else
static inline void moth_watch_block(cudaStream_t, void *, int64_t, int64_t) {}
#endif

struct moth_block { /* one that was taken from the driver */
  void *at;
  moth_device_stream *of;
  uint64_t since;     /* the place's last launch when it was taken */
  unsigned c;         /* its class */
  bool graphs;        /* the stream's graphs have it */
  moth_block *next;   /* in its class's chain of free ones */
};

struct moth_blocks {
  moth_block *free_of[BLOCK_CLASSES];
  int64_t cached;
};

unsigned moth_block_class(int64_t nbytes) {
  if (nbytes <= BLOCK_LEAST) return 0;
  const uint64_t n = ((uint64_t)nbytes + BLOCK_LEAST - 1) / BLOCK_LEAST;
  const unsigned k = 63u - (unsigned)__builtin_clzll(n - 1); /* 2^k < n <= 2^(k+1) */
  if (k < 3) return (unsigned)n - 1;
  const uint64_t step = (uint64_t)1 << (k - 3);
  return (k - 2) * 8 + (unsigned)((n - ((uint64_t)1 << k) + step - 1) >> (k - 3)) - 1;
}

int64_t moth_block_size(unsigned c) {
  if (c < 8) return (int64_t)BLOCK_LEAST * (c + 1);
  const unsigned k = c / 8 + 2;
  return (int64_t)BLOCK_LEAST *
         (((int64_t)1 << k) + ((int64_t)(c % 8) + 1) * ((int64_t)1 << (k - 3)));
}

moth_blocks *moth_blocks_new(void) { return (moth_blocks *)calloc(1, sizeof(moth_blocks)); }
void *moth_block_address(const moth_block *b) { return b->at; }

static moth_block *from_driver(moth_device_stream *s, unsigned c) {
  moth_block *b = (moth_block *)calloc(1, sizeof *b);
  if (!b) return NULL;
  b->of = s;
  b->c = c;
  if (cudaMalloc(&b->at, (size_t)moth_block_size(c)) == cudaSuccess) return b;
  cudaGetLastError(); /* else the next launch would report it */
  free(b);
  return NULL;
}

static moth_block *take_free(moth_blocks *from, unsigned c) {
  moth_block *b = from->free_of[c];
  if (!b) return NULL;
  from->free_of[c] = b->next;
  from->cached -= moth_block_size(c);
  return b;
}

/* None that is free is given back for it: a capture must not wait, and graphs keep theirs. */
moth_block *moth_blocks_take_for_graph(moth_device_stream *s, int64_t nbytes) {
  const unsigned c = moth_block_class(nbytes);
  if (c >= BLOCK_CLASSES) return NULL;
  moth_block *b = take_free(s->graphs.blocks, c);
  if (!b) b = take_free(s->blocks, c);
  if (!b) b = from_driver(s, c);
  if (!b) return NULL;
  b->graphs = true;
  moth_watch_block(s->queue.stream, b->at, moth_block_size(c), moth_block_size(c));
  return b;
}

moth_block *moth_blocks_take(moth_device_stream *s, int64_t nbytes) {
  const unsigned c = moth_block_class(nbytes);
  if (c >= BLOCK_CLASSES) return NULL;
  moth_block *b = take_free(s->blocks, c);
  if (!b && !(b = from_driver(s, c))) {
    moth_blocks_trim(s->place);
    b = from_driver(s, c);
  }
  if (!b) return NULL;
  b->since = s->place->launches;
  moth_watch_block(s->queue.stream, b->at, nbytes, moth_block_size(c));
  return b;
}

/* The block's stream waits for those that may still use it. */
static void wait_for_others(const moth_block *b) {
  moth_place *p = b->of->place;
  for (int i = 0; i < p->nstreams; i++) {
    moth_device_stream *other = p->streams[i];
    if (other == b->of || other->last <= b->since) continue;
    if (moth_stream_join(b->of, other)) cudaStreamSynchronize(other->queue.stream);
  }
}

void moth_block_give(moth_block *b) {
  moth_blocks *to = b->graphs ? b->of->graphs.blocks : b->of->blocks;
  if (b->of->place->nstreams > 1 && !b->graphs) wait_for_others(b); /* graphs go in order */
  if (!b->graphs) moth_watch_block(b->of->queue.stream, b->at, 0, moth_block_size(b->c));
  b->next = to->free_of[b->c];
  to->free_of[b->c] = b;
  to->cached += moth_block_size(b->c);
}

void moth_blocks_drop(moth_blocks *b) {
  for (int c = 0; c < BLOCK_CLASSES; c++)
    while (b->free_of[c]) {
      moth_block *at = b->free_of[c];
      b->free_of[c] = at->next;
      cudaFree(at->at); /* waits for the device */
      free(at);
    }
  b->cached = 0;
}

void moth_blocks_trim(moth_place *p) {
  for (int i = 0; i < p->nstreams; i++) moth_blocks_drop(p->streams[i]->blocks);
}

int64_t moth_blocks_cached(const moth_place *p) {
  int64_t bytes = 0;
  for (int i = 0; i < p->nstreams; i++)
    bytes += p->streams[i]->blocks->cached + p->streams[i]->graphs.blocks->cached;
  return bytes;
}

void moth_blocks_free(moth_blocks *b) {
  if (b) moth_blocks_drop(b);
  free(b);
}
