/* device.cuh -- what the files of the plugin share beside kernels: contexts on devices and their
** streams, waiting, memory, copies.
*/
#ifndef MOTH_CUDA_DEVICE_CUH
#define MOTH_CUDA_DEVICE_CUH

#include "launch.cuh"

/* -- libraries that are used where they are found, and not missed (library.cu) -- */

enum { LIBRARY_BLASLT, LIBRARY_DNN, LIBRARY_NVRTC, LIBRARIES };
enum { FFT_TABLES = LIBRARIES, KEPT }; /* what else is kept of a stream */

/* dlopen's handle, asked for once a process; NULL: it is not there. */
MOTH_LOCAL void *moth_library(int which);
/* Addresses of its functions by their names, n of them; false if one is missing. */
MOTH_LOCAL bool moth_library_functions(int which, const char *const *names, int n, void **at);
MOTH_LOCAL void moth_cuda_report(moth_ctx *ctx, char *text, size_t room);

/* What a library or fft.cu keeps of a stream; closed with it. */
typedef struct moth_library_state {
  void *state;
  void (*close)(void *state);
} moth_library_state;
MOTH_LOCAL moth_library_state *moth_library_state_of(const moth_queue *q, int whose);

template <class K> static inline uint64_t hash_of(const K &key) {
  static_assert(sizeof key % 8 == 0, "a key has no padding");
  uint64_t hash = 14695981039346656037u, word[sizeof key / 8];
  memcpy(word, &key, sizeof key);
  for (uint64_t w : word) {
    hash = (hash ^ w) * 1099511628211u;
    hash ^= hash >> 29;
  }
  return hash;
}

/* How a library does something is found out once, and kept in a table by all that it depends on.
** The plan that has this key, or one that is to be made again, to which may_go(plan) agrees; NULL:
** to none near by. `taken` and `key` are members. */
template <int SIZE, class P, class K, class F>
static inline P *plan_for(P (&plans)[SIZE], const K &key, bool *is_new, F may_go) {
  enum { NEAR = 8 };
  const uint64_t hash = hash_of(key);
  P *unused = NULL;
  for (int i = 0; i < NEAR; i++) {
    P *p = &plans[(hash + i) % SIZE];
    *is_new = !p->taken || memcmp(&p->key, &key, sizeof key) != 0;
    if (!*is_new) return p;
    if (!p->taken && !unused) unused = p;
  }
  for (int i = 0; i < NEAR && !unused; i++) { /* each key of a place drops another one's */
    P *p = &plans[(hash + ((hash >> 32) + i) % NEAR) % SIZE];
    if (may_go(*p)) unused = p;
  }
  return unused;
}

/* What an address is a multiple of, a power of two up to `most`; `steps` are added to it. */
static inline uint32_t alignment_of(const void *at, int64_t steps, uint32_t most) {
  const uint64_t bits = (uint64_t)(uintptr_t)at | (uint64_t)steps | most;
  return (uint32_t)(bits & (~bits + 1));
}

/* -- streams (stream.cu) -- */

/* A launch's record is used again RECORDS launches of its stream later; by then its kernel has
** long run. */
enum { RECORDS = 1024 };

typedef struct moth_page { /* of records, where the CPU and the device reach them */
  int any;                 /* a kernel of any stream has found something: the first one's page */
  moth_trouble of[RECORDS];
} moth_page;

typedef struct moth_asked { /* a launch */
  const char *op;
  uint64_t number; /* among all of the context on the device */
} moth_asked;

typedef struct moth_blocks moth_blocks;

typedef struct moth_graphs { /* of a stream (graph.cu) */
  moth_graph *all;     /* chained */
  moth_graph *now;     /* the one that launches go into, or NULL */
  moth_blocks *blocks; /* what their kernels work in; no tensor lies there */
} moth_graphs;

typedef struct moth_device_stream {
  moth_queue queue; /* first: what launchers see */
  struct moth_place *place;
  int number, priority;
  bool held; /* somebody has it; else it may be given to who asks for one */
  moth_blocks *blocks;
  moth_library_state kept[KEPT];
  moth_page *page, *page_there; /* as the CPU and as the device sees it */
  moth_asked asked[RECORDS];
  unsigned launches;
  uint64_t last;      /* number of the last launch or wait */
  cudaEvent_t mark;   /* recorded last behind launch `marked` */
  uint64_t marked;
  uint64_t *joined;   /* by number of another stream: this one waits for it up to that launch */
  moth_graphs graphs;
} moth_device_stream;

enum { ROOMY = 64 };

/* A context on a device. The first stream is what all begins on. */
typedef struct moth_place {
  moth_device_stream **streams;
  int nstreams, current;
  uint64_t launches;
  int copier; /* the stream of the last copy that others find done, its launch `copied` */
  uint64_t copied;
  moth_device_work work;
  /* Kernels that were given all shared memory, each at a place its address names; one may push out
  ** another. */
  const void *roomy[ROOMY];
} moth_place;

/* NULL: an error is set. The device is current then. */
MOTH_LOCAL moth_place *moth_place_of(moth_ctx *ctx, int device);
/* The same, but another device may be current: for what only looks at the place. */
MOTH_LOCAL moth_place *moth_place_seen(moth_ctx *ctx, int device);
MOTH_LOCAL moth_device_stream *moth_stream_new(moth_ctx *ctx, moth_place *p, int device,
                                              int priority);
MOTH_LOCAL cudaError_t moth_streams_finish(moth_place *p); /* waits for all */
MOTH_LOCAL void moth_streams_close(moth_place *p); /* waits for all, and frees them */
/* What is asked of `s` from here on runs after what `other` was asked for till now. */
MOTH_LOCAL cudaError_t moth_stream_join(moth_device_stream *s, moth_device_stream *other);
/* The copy that `s` was asked for last is to look done: what any stream of its place is asked for
** from here on runs after it. */
MOTH_LOCAL cudaError_t moth_stream_copied(moth_device_stream *s);
MOTH_LOCAL cudaError_t moth_stream_behind_copies(moth_device_stream *s);
MOTH_LOCAL extern const moth_stream_functions moth_cuda_streams;

static inline moth_device_stream *moth_stream_now(const moth_place *p) {
  return p->streams[p->current];
}

/* -- waiting and telling (device.cu) -- */

/* Waits for all that a stream was asked for, or the current one of a device; also tells of errors
** that came late. */
MOTH_LOCAL int moth_wait_for(moth_ctx *ctx, moth_device_stream *s);
MOTH_LOCAL int moth_wait(moth_ctx *ctx, int device);
MOTH_LOCAL int moth_fail_cuda(moth_ctx *ctx, const char *what, cudaError_t error);
/* Something was launched, for this op: if the GPU fails later, it is named. */
MOTH_LOCAL void moth_note_launch(moth_device_stream *s, const char *op);
MOTH_LOCAL bool moth_is_blocking(void); /* each launch is waited for, to see which one fails */
MOTH_LOCAL bool moth_is_forked(void); /* nothing of CUDA may be touched any more */

/* A launch may have 48 KiB of shared memory, what its kernel declares (8 KiB at most) among them. A
** kernel that needs more is asked room for once: all that a block may have, since another launch of
** it may need more than this one. */
enum { SHARED_UNASKED = 40 << 10 };
MOTH_LOCAL int moth_ask_room(moth_ctx *ctx, const moth_queue *q, const void *kernel);
/* Whether kernels of mma.cuh run on a card of this compute capability (gemm_mma.cu). */
MOTH_LOCAL cudaError_t moth_ask_tensor_cores(int major, bool *run);

MOTH_LOCAL int moth_cuda_copy(moth_tensor *y, const moth_tensor *x, bool wait);

/* -- memory of a device (block_cache.cu): blocks of a stream, kept for reuse in its order -- */

typedef struct moth_block moth_block;
MOTH_LOCAL moth_blocks *moth_blocks_new(void);
/* NULL: the device is full. */
MOTH_LOCAL moth_block *moth_blocks_take(moth_device_stream *s, int64_t nbytes);
MOTH_LOCAL void *moth_block_address(const moth_block *b);
MOTH_LOCAL void moth_block_give(moth_block *b);
/* For the graph that is being made or changed: such a block stays with the stream's graphs. */
MOTH_LOCAL moth_block *moth_blocks_take_for_graph(moth_device_stream *s, int64_t nbytes);
MOTH_LOCAL void moth_blocks_drop(moth_blocks *b); /* free ones go back to the driver */
MOTH_LOCAL void moth_blocks_trim(moth_place *p);  /* those of all streams, but of no graph */
MOTH_LOCAL int64_t moth_blocks_cached(const moth_place *p);
MOTH_LOCAL void moth_blocks_free(moth_blocks *b); /* with its free blocks; NULL is fine */

/* Size classes from 512 bytes on, up to 1 TiB: eight to an octave as in core/base/context.h, more
** where blocks are large. What is asked for may get a free block of a class up to its class's
** `reach`. */
enum { BLOCK_CLASSES = 992, BLOCK_LEAST = 512 };
MOTH_LOCAL unsigned moth_block_class(int64_t nbytes);
MOTH_LOCAL int64_t moth_block_size(unsigned c);
MOTH_LOCAL unsigned moth_block_reach(unsigned c);

/* -- graphs (graph.cu): launches written down once, and asked for together -- */

/* What moth_launch asks of the runtime. */
MOTH_LOCAL cudaError_t moth_ask(const moth_kernel_call *call, cudaStream_t stream);
/* What moth_launch and moth_launched do while there is graphs.now; call: NULL for what is no kernel
** of the plugin's own, and has come out with `error`. */
MOTH_LOCAL int moth_graph_launch(moth_ctx *ctx, moth_device_stream *s,
                                 const moth_kernel_call *call, cudaError_t error);
/* The oldest thing that kernels of graphs have found before launch *oldest, which is set to theirs;
** all of it is forgotten. NULL: nothing; else the op. */
MOTH_LOCAL const char *moth_graphs_trouble(moth_device_stream *s, uint64_t *oldest,
                                           moth_trouble *t);
MOTH_LOCAL void moth_graphs_close(moth_device_stream *s);
MOTH_LOCAL extern const moth_graph_functions moth_cuda_graphs;

/* -- page-locked memory of the CPU (pinned.cu): of the process, kept for reuse -- */

typedef struct moth_pinned moth_pinned;
/* At most `most` bytes of given blocks are under way when it returns; NULL: there is no more. */
MOTH_LOCAL moth_pinned *moth_pinned_take(int64_t nbytes, int64_t most);
MOTH_LOCAL char *moth_pinned_address(const moth_pinned *p);
/* A copy from or to it was asked of q: nobody else gets the block before that is done. */
MOTH_LOCAL cudaError_t moth_pinned_used(moth_pinned *p, const moth_queue *q);
MOTH_LOCAL void moth_pinned_give(void *p);
MOTH_LOCAL void moth_pinned_trim(void);
MOTH_LOCAL moth_pinned *moth_pinned_of(const moth_tensor *x); /* whose block x lies in, or NULL */

#endif
