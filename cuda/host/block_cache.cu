/* block_cache.cu -- the block caches of a context's streams on a device.
**
** cudaMalloc synchronizes the device, so freed blocks are kept by size class. A block belongs to
** the stream that it was allocated for. After it is freed, the same stream can reuse it at once,
** because all work that still uses it was submitted before. Other streams may use the block, too.
** When it is freed, its stream waits, by an event, for each other stream that had work submitted
** while the block was in use. That costs nothing with one stream, or if the others were idle. It
** does not wait for streams of transfers between processes: those keep their tensors, and other
** blocks would needlessly wait for the network.
**
** Until the first garbage collection each result needs a new block, so all but the largest are cut
** from slabs: one cudaMalloc serves many. A slab is returned to the driver when all of its blocks
** are free. */
#include "device.cuh"

#include <stdlib.h>

#ifdef MOTH_WATCHED /* set by the emulator, which checks accesses against the tensor's bytes in a
                    ** block */
void moth_watch_block(cudaStream_t stream, void *at, int64_t used, int64_t size);
#else
static inline void moth_watch_block(cudaStream_t, void *, int64_t, int64_t) {}
#endif

#ifdef __CUDACC__
/* The driver's mapping granularity; larger blocks share slabs of ten times that. MOTH_CUDA_SLAB=0
** disables slabs, so that compute-sanitizer sees the end of each block. */
static const int64_t SLAB = getenv("MOTH_CUDA_SLAB") ? atoll(getenv("MOTH_CUDA_SLAB")) : 2 << 20;
#else
#define SLAB moth_emulated_slab() /* 0 if the emulator watches the end of each block */
#endif

typedef struct slab {
  char *at;
  int64_t size, used; /* bytes; used from the start on */
  int out;      /* blocks in use or in caches of other streams */
  struct slab *next;
} slab;

struct moth_block { /* a block, allocated from the driver or cut from a slab */
  void *at;
  slab *from;         /* or NULL */
  moth_device_stream *of;
  uint64_t since;     /* the last launch on the device when it was allocated */
  unsigned c;         /* its size class */
  bool graphs;        /* it belongs to the stream's graphs */
  moth_block *next;   /* next free block of its class */
};

struct moth_blocks {
  moth_block *free_of[BLOCK_CLASSES];
  int64_t cached;
  slab *slabs; /* of a stream; its graphs allocate from the same slabs */
};

/* Size classes above 2^k units of BLOCK_LEAST bytes, up to twice that: the number of the first one,
** and the log2 of their count. From 32 MiB on they are finer, because unused device memory is not
** lazily mapped. */
typedef struct octave {
  unsigned first, bits;
} octave;

enum { FINE_OCTAVE = 16, FINE_CLASS = (FINE_OCTAVE - 2) * 8 };

static octave octave_of(unsigned k) {
  if (k < FINE_OCTAVE) return octave{(k - 2) * 8, 3};
  /* Steps of 2 MiB, or 64 steps. */
  const unsigned bits = k < FINE_OCTAVE + 2 ? k - FINE_OCTAVE + 4 : 6;
  const unsigned before = bits < 6 ? 0 : (k - FINE_OCTAVE - 2) * 64;
  return octave{FINE_CLASS - 16 + (1u << bits) + before, bits};
}

unsigned moth_block_class(int64_t nbytes) {
  if (nbytes <= BLOCK_LEAST) return 0;
  const uint64_t n = ((uint64_t)nbytes + BLOCK_LEAST - 1) / BLOCK_LEAST;
  const unsigned k = 63u - (unsigned)__builtin_clzll(n - 1); /* 2^k < n <= 2^(k+1) */
  if (k < 3) return (unsigned)n - 1;
  const octave o = octave_of(k);
  const uint64_t step = (uint64_t)1 << (k - o.bits);
  return o.first + (unsigned)((n - ((uint64_t)1 << k) + step - 1) / step) - 1;
}

static unsigned octave_with(unsigned c) {
  unsigned k = c < FINE_CLASS ? c / 8 + 2 : (unsigned)FINE_OCTAVE;
  while (c >= FINE_CLASS && octave_of(k + 1).first <= c) k++;
  return k;
}

int64_t moth_block_size(unsigned c) {
  if (c < 8) return (int64_t)BLOCK_LEAST * (c + 1);
  const unsigned k = octave_with(c);
  const octave o = octave_of(k);
  return (int64_t)BLOCK_LEAST *
         (((int64_t)1 << k) + ((int64_t)(c - o.first) + 1) * ((int64_t)1 << (k - o.bits)));
}

unsigned moth_block_reach(unsigned c) {
  if (c < FINE_CLASS) return c;
  const unsigned last = c + (1u << octave_of(octave_with(c)).bits) / 8;
  return last < BLOCK_CLASSES ? last : BLOCK_CLASSES - 1;
}

moth_blocks *moth_blocks_new(void) { return (moth_blocks *)calloc(1, sizeof(moth_blocks)); }
void *moth_block_address(const moth_block *b) { return b->at; }

static void *driver_alloc(const moth_device_stream *s, int64_t nbytes) {
  void *at = NULL;
  cudaError_t error = cudaSetDevice(s->queue.device);
  if (!error) error = cudaMalloc(&at, (size_t)nbytes);
  if (!error) return at;
  cudaGetLastError(); /* clear the error, or the next launch would report it */
  return NULL;
}

/* A slab with at least this many bytes left; the block is at most an eighth of a slab. NULL: there
** is none. */
static slab *slab_for(moth_device_stream *s, int64_t nbytes) {
  const int64_t least = SLAB, size = nbytes <= least / 8 ? least : 10 * least;
  if (nbytes > size / 8) return NULL;
  for (slab *on = s->blocks->slabs; on; on = on->next)
    if (on->size == size && on->used + nbytes <= size) return on;
  slab *on = (slab *)calloc(1, sizeof *on);
  if (on && (on->at = (char *)driver_alloc(s, size))) {
    on->size = size;
    on->next = s->blocks->slabs;
    return s->blocks->slabs = on;
  }
  free(on);
  return NULL;
}

static moth_block *new_block(moth_device_stream *s, unsigned c) {
  const int64_t size = moth_block_size(c);
  moth_block *b = (moth_block *)calloc(1, sizeof *b);
  if (!b) return NULL;
  b->of = s;
  b->c = c;
  b->from = slab_for(s, size);
  b->at = b->from ? b->from->at + b->from->used : driver_alloc(s, size);
  if (b->from) {
    b->from->used += size;
    b->from->out++;
  }
  if (b->at) return b;
  free(b);
  return NULL;
}

static moth_block *take_free(moth_blocks *from, unsigned c) {
  for (const unsigned last = moth_block_reach(c); c < last && !from->free_of[c];) c++;
  moth_block *b = from->free_of[c];
  if (!b) return NULL;
  from->free_of[c] = b->next;
  from->cached -= moth_block_size(c);
  if (b->from && !b->graphs) b->from->out++;
  return b;
}

/* Free blocks are not returned to make room: a capture must not synchronize, and graphs keep their
** blocks. */
moth_block *moth_blocks_take_for_graph(moth_device_stream *s, int64_t nbytes) {
  const unsigned c = moth_block_class(nbytes);
  if (c >= BLOCK_CLASSES) return NULL;
  moth_block *b = take_free(s->graphs.blocks, c);
  if (!b) b = take_free(s->blocks, c);
  if (!b) b = new_block(s, c);
  if (!b) return NULL;
  b->graphs = true;
  moth_watch_block(s->queue.stream, b->at, moth_block_size(b->c), moth_block_size(b->c));
  return b;
}

moth_block *moth_blocks_take(moth_device_stream *s, int64_t nbytes) {
  const unsigned c = moth_block_class(nbytes);
  if (c >= BLOCK_CLASSES) return NULL;
  moth_block *b = take_free(s->blocks, c);
  if (!b && !(b = new_block(s, c))) {
    moth_blocks_trim(s->device_context);
    b = new_block(s, c);
  }
  if (!b) return NULL;
  b->since = s->device_context->launches;
  moth_watch_block(s->queue.stream, b->at, nbytes, moth_block_size(b->c));
  return b;
}

static void put_free(moth_blocks *to, moth_block *b) {
  b->next = to->free_of[b->c];
  to->free_of[b->c] = b;
  to->cached += moth_block_size(b->c);
}

static void drop_slabs(moth_blocks *b, bool all) {
  for (slab **at = &b->slabs; *at;) {
    slab *on = *at;
    if (on->out && !all) {
      at = &on->next;
      continue;
    }
    *at = on->next;
    cudaFree(on->at);
    free(on);
  }
}

/* The block's stream waits for the streams that may still use it. */
static void wait_for_others(const moth_block *b) {
  moth_device_context *p = b->of->device_context;
  for (int i = 0; i < p->nstreams; i++) {
    moth_device_stream *other = p->streams[i];
    if (other == b->of || other->last <= b->since || other->carries) continue;
    if (moth_stream_join(b->of, other)) cudaStreamSynchronize(other->queue.stream);
  }
}

void moth_block_give(moth_block *b) {
  moth_blocks *to = b->graphs ? b->of->graphs.blocks : b->of->blocks;
  if (b->of->device_context->nstreams > 1 && !b->graphs) wait_for_others(b); /* graphs run in order
                                                                             */
  if (!b->graphs) moth_watch_block(b->of->queue.stream, b->at, 0, moth_block_size(b->c));
  if (!b->graphs && b->from) b->from->out--;
  put_free(to, b);
}

/* Blocks of slabs that are partly in use stay; those of graphs go back to the stream's cache. */
void moth_blocks_drop(moth_blocks *b) {
  b->cached = 0;
  for (int c = 0; c < BLOCK_CLASSES; c++) {
    moth_block *at = b->free_of[c], *next;
    b->free_of[c] = NULL;
    for (; at; at = next) {
      next = at->next;
      if (at->from && (at->graphs || at->from->out)) {
        at->from->out -= at->graphs;
        at->graphs = false;
        put_free(at->of->blocks, at);
        continue;
      }
      if (!at->from) cudaFree(at->at); /* synchronizes the device */
      free(at);
    }
  }
  drop_slabs(b, false);
}

void moth_blocks_trim(moth_device_context *p) {
  for (int i = 0; i < p->nstreams; i++) moth_blocks_drop(p->streams[i]->blocks);
}

int64_t moth_blocks_cached(const moth_device_context *p) {
  int64_t bytes = 0;
  for (int i = 0; i < p->nstreams; i++) {
    const moth_blocks *own = p->streams[i]->blocks;
    bytes += own->cached + p->streams[i]->graphs.blocks->cached;
    for (const slab *on = own->slabs; on; on = on->next) bytes += on->size - on->used;
  }
  return bytes;
}

void moth_blocks_free(moth_blocks *b) {
  if (b) moth_blocks_drop(b);
  if (b) drop_slabs(b, true);
  free(b);
}
