/* device.cuh -- shared by the plugin's host code: contexts on devices and their streams,
** synchronization, memory, copies. */
#ifndef MOTH_CUDA_DEVICE_CUH
#define MOTH_CUDA_DEVICE_CUH

#include "launch.cuh"

/* -- optional libraries, opened at run time (library.cu) -- */

enum { LIBRARY_BLASLT, LIBRARY_DNN, LIBRARY_NVRTC, LIBRARY_NCCL, LIBRARIES };
enum { FFT_TABLES = LIBRARIES, KEPT }; /* further state that a stream keeps */

/* dlopen's handle, opened once in a process; NULL: not installed. */
MOTH_LOCAL void *moth_library(int which);
/* Looks up n functions by name; false if one is missing. */
MOTH_LOCAL bool moth_library_functions(int which, const char *const *names, int n, void **at);
MOTH_LOCAL void moth_cuda_report(moth_ctx *ctx, char *text, size_t capacity);

/* The state of a library, or of fft.cu, for a stream; freed with the stream. */
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

/* Searches a table of plans for the plan with this key; otherwise returns an unused or replaceable
** entry near the key's slot (may_go(plan) agrees), or NULL. `taken` and `key` are members of a
** plan. */
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
  for (int i = 0; i < NEAR && !unused; i++) { /* otherwise keys rotate over the slots */
    P *p = &plans[(hash + ((hash >> 32) + i) % NEAR) % SIZE];
    if (may_go(*p)) unused = p;
  }
  return unused;
}

/* The alignment of an address, a power of two up to `most`; `steps` (strides in bytes) reduce it,
** too. */
static inline uint32_t alignment_of(const void *at, int64_t steps, uint32_t most) {
  const uint64_t bits = (uint64_t)(uintptr_t)at | (uint64_t)steps | most;
  return (uint32_t)(bits & (~bits + 1));
}

/* -- streams (stream.cu) -- */

/* A launch's record is reused after RECORDS further launches of its stream; by then its kernel has
** finished. */
enum { RECORDS = 1024 };

typedef struct moth_page { /* error records, in memory that the CPU and the device share */
  int any;                 /* nonzero: a kernel of some stream has reported an error; in the first
                           ** stream's page */
  moth_kernel_error of[RECORDS];
} moth_page;

typedef struct moth_submitted { /* a launch */
  const char *op;
  uint64_t number; /* counted over all streams of the context on the device */
} moth_submitted;

typedef struct moth_blocks moth_blocks;

typedef struct moth_graphs { /* the graphs of a stream (graph.cu) */
  moth_graph *all;     /* a linked list */
  moth_graph *now;     /* the graph being captured or updated, or NULL */
  moth_blocks *blocks; /* scratch memory for kernels of graphs; never for tensors */
} moth_graphs;

typedef struct moth_device_stream {
  moth_queue queue; /* first member: launchers see only this */
  struct moth_device_context *device_context;
  int number, priority;
  bool held;    /* in use; else it can be handed out */
  bool carries; /* transfers between processes, whose tensors the core keeps */
  moth_blocks *blocks;
  moth_library_state kept[KEPT];
  moth_page *page, *page_there; /* its address for the CPU and for the device */
  moth_submitted asked[RECORDS];
  unsigned launches;
  uint64_t last;      /* number of the last launch or wait */
  cudaEvent_t mark;   /* last recorded after launch `marked` */
  uint64_t marked;
  uint64_t *joined;   /* for each other stream: the launch up to which this stream waits for it */
  moth_graphs graphs;
} moth_device_stream;

enum { ALL_SHARED_SLOTS = 64 };

/* A context on a device. The first stream is the default stream. */
typedef struct moth_device_context {
  moth_device_stream **streams;
  int nstreams, current;
  uint64_t launches;
  int copier; /* the stream of the last copy that others must wait for, and its launch `copied` */
  uint64_t copied;
  moth_device_work work;
  bool transfers; /* it has had transfers between processes, which may never end */
  /* Kernels that already have all shared memory, in slots by address; an entry may replace another.
  */
  const void *all_shared[ALL_SHARED_SLOTS];
} moth_device_context;

/* NULL: an error is set. Makes the device current. */
MOTH_LOCAL moth_device_context *moth_device_context_of(moth_ctx *ctx, int device);
/* Like the function above, but does not make the device current; for callers that only read. */
MOTH_LOCAL moth_device_context *moth_device_context_peek(moth_ctx *ctx, int device);
MOTH_LOCAL moth_device_stream *moth_stream_new(moth_ctx *ctx, moth_device_context *p, int device,
                                               int priority);
/* A stream that is not in use; NULL: an error is set. */
MOTH_LOCAL moth_device_stream *moth_stream_take(moth_ctx *ctx, moth_device_context *p, int device,
                                                int priority);
MOTH_LOCAL cudaError_t moth_streams_finish(moth_device_context *p); /* synchronizes all streams */
/* Synchronizes all streams and frees them. */
MOTH_LOCAL void moth_streams_close(moth_device_context *p);
/* Later work of `s` runs after all work submitted to `other` so far. */
MOTH_LOCAL cudaError_t moth_stream_join(moth_device_stream *s, moth_device_stream *other);
MOTH_LOCAL cudaError_t moth_stream_behind(moth_device_stream *s, cudaEvent_t event);
/* Called before the CPU waits for the stream, or for the event unless it is NULL: raises failures
** of transfers between processes, for which it could wait for ever. */
MOTH_LOCAL int moth_stream_settle(moth_ctx *ctx, const moth_device_stream *s,
                                  const cudaEvent_t *event);
/* The copy last submitted to `s` must appear complete: later work on any stream of its context and
** device runs after it. */
MOTH_LOCAL cudaError_t moth_stream_copied(moth_device_stream *s);
MOTH_LOCAL cudaError_t moth_stream_behind_copies(moth_device_stream *s);
MOTH_LOCAL extern const moth_stream_functions moth_cuda_streams;
MOTH_LOCAL extern const moth_transfer_functions moth_cuda_transfers; /* vendor/nccl.cu */

static inline moth_device_stream *moth_stream_now(const moth_device_context *p) {
  return p->streams[p->current];
}

/* -- synchronization and errors (device.cu) -- */

/* Synchronizes a stream, or a device's current stream; also raises asynchronous errors. */
MOTH_LOCAL int moth_wait_for(moth_ctx *ctx, moth_device_stream *s);
MOTH_LOCAL int moth_wait(moth_ctx *ctx, int device);
MOTH_LOCAL int moth_fail_cuda(moth_ctx *ctx, const char *what, cudaError_t error);
/* Records that a launch belongs to this op, which is named if the GPU fails later. */
MOTH_LOCAL void moth_note_launch(moth_device_stream *s, const char *op);
MOTH_LOCAL bool moth_is_blocking(void); /* synchronize after each launch, to find the one that fails
                                        */
MOTH_LOCAL bool moth_is_forked(void); /* no CUDA function may be called any more */

/* A launch may have 48 KiB of shared memory, including the kernel's static arrays (8 KiB at most).
** A kernel that needs more calls this once; it allows all that a block can have, since another
** launch may need more than this one. */
enum { SHARED_UNASKED = 40 << 10 };
MOTH_LOCAL int moth_allow_shared(moth_ctx *ctx, const moth_queue *q, const void *kernel);
/* Sets *run: whether kernels of mma.cuh run on a GPU of this compute capability (gemm_mma.cu). */
MOTH_LOCAL cudaError_t moth_check_tensor_cores(int major, bool *run);

MOTH_LOCAL int moth_cuda_copy(moth_tensor *y, const moth_tensor *x, bool wait);

/* -- device memory (block_cache.cu): blocks of a stream, reused in stream order -- */

typedef struct moth_block moth_block;
MOTH_LOCAL moth_blocks *moth_blocks_new(void);
/* NULL: out of device memory. */
MOTH_LOCAL moth_block *moth_blocks_take(moth_device_stream *s, int64_t nbytes);
MOTH_LOCAL void *moth_block_address(const moth_block *b);
MOTH_LOCAL void moth_block_give(moth_block *b);
/* For the graph that is being captured or updated: the block stays with the stream's graphs. */
MOTH_LOCAL moth_block *moth_blocks_take_for_graph(moth_device_stream *s, int64_t nbytes);
MOTH_LOCAL void moth_blocks_drop(moth_blocks *b); /* returns free blocks to the driver */
/* Those of all streams, except blocks of graphs. */
MOTH_LOCAL void moth_blocks_trim(moth_device_context *p);
MOTH_LOCAL int64_t moth_blocks_cached(const moth_device_context *p);
MOTH_LOCAL void moth_blocks_free(moth_blocks *b); /* including its free blocks; NULL is allowed */

/* Size classes from 512 bytes to 1 TiB: eight for each octave as in core/base/context.h, more for
** large blocks. A request may be served by a free block of a class up to its class's `reach`. */
enum { BLOCK_CLASSES = 992, BLOCK_LEAST = 512 };
MOTH_LOCAL unsigned moth_block_class(int64_t nbytes);
MOTH_LOCAL int64_t moth_block_size(unsigned c);
MOTH_LOCAL unsigned moth_block_reach(unsigned c);

/* -- graphs (graph.cu): launches captured once and submitted together -- */

/* Submits moth_launch's call to the runtime. */
MOTH_LOCAL cudaError_t moth_submit(const moth_kernel_call *call, cudaStream_t stream);
/* Does the work of moth_launch and moth_launched while graphs.now is set. call: NULL for a library
** call or copy, which returned `error`. */
MOTH_LOCAL int moth_graph_launch(moth_ctx *ctx, moth_device_stream *s,
                                 const moth_kernel_call *call, cudaError_t error);
/* Finds the oldest error that kernels of graphs reported before launch *oldest, sets *oldest to its
** launch, and clears all of them. Returns the op's name; NULL: no error. */
MOTH_LOCAL const char *moth_graphs_error(moth_device_stream *s, uint64_t *oldest,
                                         moth_kernel_error *t);
MOTH_LOCAL void moth_graphs_close(moth_device_stream *s);
MOTH_LOCAL extern const moth_graph_functions moth_cuda_graphs;

/* -- page-locked CPU memory (pinned.cu), cached for the process -- */

typedef struct moth_pinned moth_pinned;
/* Returns after at most `most` bytes of freed blocks still have copies in progress; NULL: out of
** memory. */
MOTH_LOCAL moth_pinned *moth_pinned_take(int64_t nbytes, int64_t most);
MOTH_LOCAL char *moth_pinned_address(const moth_pinned *p);
/* A copy from or to the block was submitted to q: the block is not reused before the copy is done.
*/
MOTH_LOCAL cudaError_t moth_pinned_used(moth_pinned *p, const moth_queue *q);
MOTH_LOCAL void moth_pinned_give(void *p);
MOTH_LOCAL void moth_pinned_trim(void);
/* The block that contains x's memory, or NULL. */
MOTH_LOCAL moth_pinned *moth_pinned_of(const moth_tensor *x);

#endif
