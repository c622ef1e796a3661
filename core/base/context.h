/* context.h -- the context: all state of one engine. Global is what a process has once: the op
** registry, tokens, interrupts, threads, and the libraries that were opened.
*/
#ifndef MOTH_CONTEXT_H
#define MOTH_CONTEXT_H

#include <stdatomic.h>
#include <stdio.h>

#include "call/op.h"

#if defined(__GNUC__)
#define MOTH_FORMAT(f, a) __attribute__((format(printf, f, a)))
#else
#define MOTH_FORMAT(f, a)
#endif

/* A row of the slot table: one live handle each, chained into the scope that will release it. */
typedef struct moth_entry {
  moth_tensor *tensor; /* counted; NULL: free */
  uint32_t gen;
  uint32_t scope;      /* index of its scope frame, 0: none */
  uint32_t next, prev; /* in the scope's chain, or next in the free list */
  uint32_t died_in;    /* id of the scope that released the last tensor here */
} moth_entry;

typedef struct moth_frame { /* an open scope */
  uint32_t id, first;       /* first slot of its chain */
  uint32_t outer;           /* the one around it of the same coroutine, or 0; the next free one */
} moth_frame;

#define MOTH_CLASSES 256   /* size classes of the block cache */
#define MOTH_ALIGN 64      /* of blocks, and of a context */
#define MOTH_STR_RING 8    /* texts for messages that may be in use at once */
#define MOTH_STR_ROOM 192
#define MOTH_NUMBER_SLOTS 4

typedef struct moth_chain { /* free blocks of one size class; each begins with the next one */
  void *first;
  int64_t count;
} moth_chain;

/* What bounds the block cache, see alloc.c. In use: handed out and not freed yet. */
typedef struct moth_cache {
  int64_t held;         /* bytes of all blocks that the system gave: in use or free */
  int64_t large, small; /* free bytes above MOTH_INLINE_BLOCK; below, when last counted */
  int64_t high, last;   /* the most bytes in use in this period, and in the one before it */
  int64_t passed;       /* bytes handed out in this period */
  uint64_t clock;       /* large blocks that were handed out or freed */
  uint64_t used[MOTH_CLASSES]; /* the clock when a block of a large class was last handed out */
} moth_cache;

typedef struct moth_error_state {
  int32_t code;
  uint64_t node, storage; /* of a backward error; storage: what changed since `version` */
  uint32_t version;
  const char *op; /* the op that the user called */
  char op_room[64];
  char arg[64];
  char text[1024]; /* positions stand between \1 and \2 */
  char shown[1024];
} moth_error_state;

typedef struct moth_modes {
  bool grad_mode;
  int32_t autocast;
} moth_modes;

typedef struct moth_half_copy { /* a tensor in a half type, for casts of its original: */
  moth_tensor *y;               /* counted, or NULL */
  uint64_t of;                  /* the id of the original's storage, */
  uint32_t version;             /* ... and its version then */
} moth_half_copy;

struct moth_ctx {
  uint32_t refs; /* one for the owner, one for each tick */
  bool closed;
  bool lent; /* its memory is the caller's */
  moth_error_state error;
  char str[MOTH_STR_RING][MOTH_STR_ROOM];
  uint32_t str_next;
  atomic_int cancel;
  int interrupts; /* of the process, as far as this context has seen them */
  int lanes;      /* threads for a job, as of the last entrance from outside */
  struct moth_profile *profile, *profiled; /* under way, and done but not taken: see profile.h */

  moth_entry *slots; /* 0 unused, 1..MOTH_NUMBER_SLOTS numbers as operands */
  uint32_t nslots, slot_room, free_slot, live_slots;
  uint32_t numbers; /* bit k: slot k holds a number for the next call */
  moth_frame *scopes; /* 0 unused */
  uint32_t nscopes, scope_room, scope_id, free_scope;

  moth_chain blocks[MOTH_CLASSES];
  bool keeps_blocks; /* not after its end, nor where a tool looks for uses after a free */
  moth_memory_info mem;
  int64_t floor_bytes, floor_slots, goal_slots;
  int64_t after_slots;            /* handles that were live after the last collection */
  int64_t after_bytes;            /* what was live after the last collection, */
  int64_t high_bytes;             /* ... the most of it lately, fading, */
  int64_t found_bytes;            /* ... and before it */
  int64_t most_bytes, most_slots; /* a collection is due whatever it takes */
  double cost, credit;            /* seconds: of the last collection; what may be spent on more */
  double looked;                  /* when the credit was last added to */
  uint32_t dropped;               /* handles since the last sweep ended */
  bool want;
  int64_t fail_after;

  union {
    struct {
      bool grad_mode;
      int32_t autocast; /* the dtype that products are lowered to, or -1 */
    };
    moth_modes modes; /* both */
  };
  bool anomaly;
  int32_t gpu;                        /* the one that the host means by "cuda" */
  struct {                            /* of the main coroutine; the above are of the running one */
    int32_t modes[MOTH_MODES];
    uint32_t scope;
  } base;
  struct moth_coroutines *coroutines; /* see coroutine.c; NULL: the host has no others */
  uint32_t ncoroutines;               /* those other than the main one that have set something */
  struct moth_cast *casts; /* of leaves, while a region of autocast lasts */
  uint32_t ncasts, cast_room;
  moth_half_copy half_copy; /* of the norm that ran last there */
  int32_t default_dtype;
  int32_t float32_precision; /* of products on devices: 0 the whole */
  uint32_t cudnn;            /* 1 << MOTH_CUDNN_... */
  bool deterministic;        /* asked of libraries there; what is Moth's own always is */
  uint64_t ids; /* of nodes and storages */
  moth_node *dead_nodes;
  moth_node *leaves; /* those with a .grad, chained: it may lead back to them */
  bool burying;
  uint64_t *dead_ids;
  uint32_t ndead_ids, dead_room;
  moth_node *checkpoint;   /* the innermost one under way, counted, see checkpoint.c */
  struct moth_task *tasks; /* chained */
  uint32_t task_ids;

  struct moth_capture *capture;  /* under way, see capture.h */
  uint32_t capture_id;           /* its id, or 0 */
  struct moth_capture *captures; /* done, chained */
  uint32_t quiet;                /* > 0: what runs now is recorded as a whole, or not at all */
  struct moth_observer *observer; /* the first of a chain, mostly NULL: see observer.h */
  struct moth_trace *trace;      /* the last one, see trace.c */
  struct moth_call_log *call_log, *last_log; /* under way, and the last: see call_log.c */
  struct moth_fft_plan *ffts;    /* tables of transforms, chained: see kernel/fft.c */

  moth_results results; /* of the last call */
  moth_tensor *generator;
  unsigned forks; /* moth_forks when the generator was last looked at */
  moth_devices *devices; /* what is counted and kept of those beside the CPU; NULL: none was used */
  moth_cache cache;
};

void moth_fft_forget(moth_ctx *ctx);

extern atomic_int moth_interrupts; /* counted, so that every context sees each of them */
/* This thread is a DataLoader worker's: it starts no jobs on others. */
extern _Thread_local bool moth_on_worker;

/* -- errors: set the message, return the code. arg may be NULL. Positions go in by MOTH_POS. -- */

#define MOTH_POS "\1%lld\2"
int moth_fail(moth_ctx *ctx, int code, const char *arg, const char *format, ...) MOTH_FORMAT(4, 5);
int moth_fail_null(moth_ctx *ctx); /* E_ARG; the context may be the NULL */
void moth_error_clear(moth_ctx *ctx);
void moth_error_blame(moth_ctx *ctx, const char *op); /* who failed; the text outlives all */
void moth_error_blame_copy(moth_ctx *ctx, const char *op);

/* Of an op that another one is made of: its argument `from` is `to` there. Returns the status. */
int moth_error_as(moth_ctx *ctx, int status, const char *from, const char *to);

/* The first line of each public function that takes pointers: returns `value` if the context or a
** pointer that the function needs is NULL. */
#define MOTH_NEED(ctx, pointers, value)               \
  do {                                                \
    if (__builtin_expect(!(ctx) || !(pointers), 0)) { \
      moth_fail_null(ctx);                            \
      return value;                                   \
    }                                                 \
  } while (0)

/* A cancel is asked for: polled at op entry and inside long loops. */
static inline bool moth_cancelled(moth_ctx *ctx) {
  return atomic_load_explicit(&ctx->cancel, memory_order_relaxed) |
         (atomic_load_explicit(&moth_interrupts, memory_order_relaxed) != ctx->interrupts);
}
/* E_INTERRUPT, of whoever has seen a cancel and left work undone: it may be withdrawn by now. */
int moth_stopped(moth_ctx *ctx);
static inline int moth_poll(moth_ctx *ctx) {
  return moth_cancelled(ctx) ? moth_stopped(ctx) : MOTH_OK;
}
int moth_fail_closed(moth_ctx *ctx); /* the error of whoever uses a context after its end */

extern atomic_uint moth_forks; /* forks between the first process and this one */
void moth_forks_watch(void);   /* from now on they are counted */

/* What moth_set_num_threads asks for holds from here on; called where ops are run from outside. */
extern atomic_int moth_pool_lanes; /* 1 to MOTH_MAX_LANES once a context is open */
void moth_pool_ready(moth_ctx *ctx); /* reads what the environment says */
static inline void moth_settle_lanes(moth_ctx *ctx) {
  ctx->lanes = atomic_load_explicit(&moth_pool_lanes, memory_order_relaxed);
}

/* -- memory (alloc.c): blocks of a size class, cached; 64-byte aligned, uninitialised -- */

/* What the inline roads below leave: large blocks, an empty chain, a test's failure. */
void *moth_alloc_block(moth_ctx *ctx, int64_t nbytes);
void moth_dealloc_block(moth_ctx *ctx, void *block, int64_t nbytes);
#define MOTH_INLINE_BLOCK ((uint64_t)1 << 20)

/* The class of a size: eight to an octave, from 64 bytes on. */
static inline uint32_t moth_class_of(int64_t nbytes) {
  if (nbytes <= MOTH_ALIGN) return 0;
  uint64_t n = ((uint64_t)nbytes + MOTH_ALIGN - 1) / MOTH_ALIGN * MOTH_ALIGN;
  uint32_t k = 63u - (uint32_t)__builtin_clzll(n - 1); /* 2^k < n <= 2^(k+1) */
  uint64_t step = (uint64_t)1 << (k - 3);
  return (k - 6) * 8 + (uint32_t)((n - ((uint64_t)1 << k) + step - 1) >> (k - 3));
}

/* NULL: E_MEM is set. A loop that leaves its garbage to Lua's collector walks through more blocks
** than a cache holds: the block that comes next is asked for while this one is filled. */
static inline void *moth_alloc(moth_ctx *ctx, int64_t nbytes) {
  if ((uint64_t)nbytes > MOTH_INLINE_BLOCK || ctx->fail_after > 0)
    return moth_alloc_block(ctx, nbytes);
  moth_chain *c = &ctx->blocks[moth_class_of(nbytes)];
  char *block = c->first;
  if (!block) return moth_alloc_block(ctx, nbytes);
  memcpy(&c->first, block, sizeof c->first);
  c->count--;
  const char *next = c->first ? c->first : block; /* prefetching NULL is dear: 10 ns */
  __builtin_prefetch(next, 1);
  if (nbytes > 64) __builtin_prefetch(next + 64, 1);
  if (nbytes > 128) __builtin_prefetch(next + 128, 1);
  return block;
}

static inline void moth_dealloc(moth_ctx *ctx, void *block, int64_t nbytes) {
  if (!block) return;
  if (!ctx->keeps_blocks || (uint64_t)nbytes > MOTH_INLINE_BLOCK) {
    moth_dealloc_block(ctx, block, nbytes);
    return;
  }
  moth_chain *c = &ctx->blocks[moth_class_of(nbytes)];
  memcpy(block, &c->first, sizeof c->first);
  c->first = block;
  c->count++;
}

/* Makes sure that the list at *list, which holds n elements of `size` bytes, has capacity for one
** more. *list is NULL where *room is 0. */
int moth_grow(moth_ctx *ctx, void *list, uint32_t n, uint32_t *room, size_t size);

void moth_keep_blocks(moth_ctx *ctx, bool keep);
int64_t moth_cached_bytes(const moth_ctx *ctx);
void moth_age_cache(moth_ctx *ctx);                  /* after a collection */
void moth_block_left(moth_ctx *ctx, int64_t nbytes); /* another context, or none, frees the block */
void moth_block_came(moth_ctx *ctx, int64_t nbytes); /* this context frees another's block */
void moth_block_free(void *block, int64_t nbytes);   /* a block that left its context */

/* Bytes of tensor data count as live, against the limit and towards the goal: before they are
** allocated. False: E_LIMIT is set. */
void moth_refuse_data(moth_ctx *ctx, int64_t nbytes);
static inline bool moth_count_data(moth_ctx *ctx, int64_t nbytes) {
  int64_t limit = ctx->mem.limit_bytes;
  if (limit > 0 && (nbytes > limit || ctx->mem.live_bytes > limit - nbytes)) {
    moth_refuse_data(ctx, nbytes);
    return false;
  }
  ctx->mem.live_bytes += nbytes;
  if (ctx->mem.live_bytes > ctx->mem.peak_bytes) ctx->mem.peak_bytes = ctx->mem.live_bytes;
  return true;
}

void moth_autocast_forget(moth_ctx *ctx); /* casts that were kept (autocast.c) */
/* What is kept becomes y, taken, which x is in a half type. */
void moth_half_copy_keep(moth_half_copy *b, const moth_tensor *x, moth_tensor *y);
/* That, borrowed, if it is of x, as x is now, in dtype; else NULL. */
moth_tensor *moth_half_copy_find(const moth_half_copy *b, const moth_tensor *x, int dtype);

/* -- handles (handles.c) -- */

/* Borrowed; a sparse tensor is refused here, once for whatever reads or writes elements. */
moth_tensor *moth_resolve(moth_ctx *ctx, const moth_handle *h, const char *arg);
moth_tensor *moth_resolve_any(moth_ctx *ctx, const moth_handle *h, const char *arg);
/* Takes the reference and fills h; a tensor that has a handle gives that one again. */
int moth_hand_out(moth_ctx *ctx, moth_tensor *take, moth_handle *h);
/* The handle of x, which has one, is y's from now on. */
void moth_take_handle(moth_tensor *y, moth_tensor *x);

/* -- when a collection is due (collect.c) -- */

/* The status of a call that went well: WANT when a sweep or a collection is due, and always in
** anomaly mode, so that Lua can note where it stands. */
int moth_due_now(moth_ctx *ctx);
void moth_lower_goal(moth_ctx *ctx); /* after much was given back without a collection */
int moth_due_soon(moth_ctx *ctx); /* before memory grows for long without Lua being asked */
static inline int moth_due(moth_ctx *ctx) {
  return ctx->want || ctx->anomaly || ctx->mem.live_bytes > ctx->mem.goal_bytes ||
                 ctx->live_slots > ctx->goal_slots
             ? moth_due_now(ctx)
             : MOTH_OK;
}

void moth_results_clear(moth_results *r);
void moth_tasks_free(moth_ctx *ctx); /* every backward pass under way */

#endif
