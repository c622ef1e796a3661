/* context.h -- the context: all state of one core. Only these are global to the process: the op
** registry, tokens, interrupts, threads, opened libraries.
*/
#ifndef MOTH_CONTEXT_H
#define MOTH_CONTEXT_H

#include <stdatomic.h>
#include <stdio.h>

#include "moth_lua.h"
#include "tensor/types.h"

/* A row of the slot table: one live handle, chained into the scope that will release it. */
typedef struct moth_entry {
  moth_tensor *tensor; /* counted; NULL: a free slot */
  uint32_t gen;
  uint32_t scope;      /* index of its scope frame; 0: none */
  uint32_t next, prev; /* in the scope's chain; `next` also in the free list */
  uint32_t died_in;    /* id of the scope that released the last tensor here */
} moth_entry;

typedef struct moth_frame { /* an open scope */
  uint32_t id, first;       /* first slot of its chain */
  uint32_t outer;           /* the enclosing scope of its coroutine, or 0; or the next free */
} moth_frame;

#define MOTH_CLASSES 256   /* size classes of the block cache */
#define MOTH_ALIGN 64      /* alignment of blocks and of a context */
#define MOTH_STR_RING 8    /* number of texts for one message */
#define MOTH_STR_SIZE 192
#define MOTH_NUMBER_SLOTS 4
#define MOTH_WATCHED 2 /* a slice is current */
#define MOTH_TIMED 4   /* a deadline is set */
#define MOTH_MESSAGING 8 /* MPI is open: polls let messages advance */

typedef struct moth_chain { /* free blocks of one size class; each begins with the next one */
  void *first;
  int64_t count;
} moth_chain;

/* State of the block cache, see alloc.c. A block is in use until it is freed. */
typedef struct moth_cache {
  int64_t held;         /* bytes of all blocks from the system: in use or free */
  int64_t large, small; /* free bytes above MOTH_INLINE_BLOCK; below it, at the last count */
  int64_t high, last;   /* most bytes in use in this period, and in the last */
  int64_t passed;       /* bytes handed out in this period */
  int64_t reserved;     /* bytes that the cache may hold in any case, see moth_memory_reserve */
  uint64_t clock;       /* counts large blocks that were handed out or freed */
  uint64_t used[MOTH_CLASSES]; /* per large class: the clock when a block was last handed out */
} moth_cache;

typedef struct moth_error_state {
  int32_t code;
  uint64_t node, storage; /* for backward errors; storage: changed since `version` */
  uint32_t version;
  const char *op; /* the op that the user called */
  char op_copy[64];
  char arg[64];
  char text[1024]; /* positions are between \1 and \2 */
  char shown[1024];
} moth_error_state;

typedef struct moth_modes {
  bool grad_mode;
  int32_t autocast;
} moth_modes;

typedef struct moth_half_copy { /* a half-precision copy of a tensor, for casts */
  moth_tensor *y;               /* counted, or NULL */
  uint64_t of;                  /* id of the original's storage */
  uint32_t version;             /* that storage's version at the time of the copy */
} moth_half_copy;

typedef struct moth_main_state { /* modes and innermost scope of the main coroutine */
  int32_t modes[MOTH_MODES];
  uint32_t scope;
} moth_main_state;

struct moth_ctx {
  uint32_t refs; /* one for the owner, one for each tick */
  bool closed;
  bool lent; /* the caller owns its memory */
  moth_error_state error;
  char str[MOTH_STR_RING][MOTH_STR_SIZE];
  uint32_t str_next;
  atomic_int cancel; /* bits: 1, a cancel was requested; MOTH_WATCHED ... */
  double deadline;   /* with MOTH_TIMED: ops fail from this time of moth_seconds on */
  atomic_uintptr_t thread; /* the thread that runs a call in this context, or 0: see error.h */
  int interrupts; /* the count of process interrupts that this context has seen */
  int lanes;      /* threads for a job; set when a call enters the library */
  struct moth_profile *profile, *profiled; /* running; stopped but not taken: see profile.h */

  moth_entry *slots; /* slot 0 is unused, 1..MOTH_NUMBER_SLOTS are numbers as operands */
  uint32_t nslots, slot_capacity, free_slot, live_slots;
  uint32_t numbers; /* bit k: slot k holds a number for the next call */
  moth_frame *scopes; /* scope 0 is unused */
  uint32_t nscopes, scope_capacity, scope_id, free_scope;

  moth_chain blocks[MOTH_CLASSES];
  bool keeps_blocks; /* false while closing, and where a tool checks for use after free */
  moth_memory_info mem;
  int64_t guard_bytes; /* a limit of live bytes for the running sandbox; 0: none */
  int64_t data_limit;  /* the smaller of both limits of live bytes; 0: none */
  int64_t floor_bytes, floor_slots, goal_slots;
  int64_t after_slots;            /* live handles after the last collection */
  int64_t after_bytes;            /* live bytes after the last collection */
  int64_t high_bytes;             /* a decaying maximum of the live bytes */
  int64_t found_bytes;            /* live bytes before the last collection */
  int64_t most_bytes, most_slots; /* above these a collection is due at any cost */
  double cost, credit;            /* seconds: of the last collection; the budget for more */
  double looked;                  /* when the budget last grew */
  uint32_t dropped;               /* handles dropped since the last sweep ended */
  bool want;
  int64_t fail_after;

  union {
    struct {
      bool grad_mode;
      int32_t autocast; /* the dtype that products are cast to, or -1 */
    };
    moth_modes modes; /* both */
  };
  bool anomaly;
  int32_t gpu;                        /* the index of the device that "cuda" means */
  moth_main_state base;               /* of the main coroutine; above: of the running one */
  struct moth_coroutines *coroutines; /* see coroutine.c; NULL: the host has only one */
  uint32_t ncoroutines;               /* coroutines other than the main one with modes or scopes */
  struct moth_cast *casts; /* half-precision copies of leaves, until the autocast region ends */
  uint32_t ncasts, cast_capacity;
  moth_half_copy half_copy; /* of the last normalization in that region */
  int32_t default_dtype;
  int32_t float32_precision; /* of products on devices: 0 is full precision */
  uint32_t cudnn;            /* 1 << MOTH_CUDNN_... */
  bool deterministic;        /* for libraries; Moth's own kernels always are */
  uint64_t ids; /* of nodes and storages */
  moth_node *dead_nodes;
  moth_node *leaves; /* leaves with a .grad, chained: a gradient may refer to its leaf */
  bool burying;
  uint64_t *dead_ids;
  uint32_t ndead_ids, dead_capacity;
  moth_node *checkpoint;   /* the innermost running checkpoint, counted, see checkpoint.c */
  struct moth_task *tasks; /* chained */
  uint32_t task_ids;
  bool hooked_leaves;      /* a leaf has got hooks: passes count the edges to such leaves */

  struct moth_capture *capture;  /* running, see capture.h */
  uint32_t capture_id;           /* its id, or 0 */
  struct moth_capture *captures; /* finished, chained */
  uint32_t quiet;                /* > 0: the running call is recorded as one op, or not at all */
  struct moth_observer *observer; /* the first of a chain, usually NULL: see observer.h */
  struct moth_trace *trace;      /* the last trace, see trace.c */
  struct moth_call_log *call_log, *last_log; /* running; the last: see call_log.c */
  struct moth_slice *slice, *slices; /* the current slice; all slices: see slice.h */
  struct moth_processes *processes;   /* MPI and its messages; NULL: not open */
  void (*message_poll)(moth_ctx *ctx); /* lets messages advance, or NULL */
  bool (*slice_poll)(moth_ctx *ctx); /* pauses the current slice when its time is over, or NULL */
  struct moth_fft_plan *ffts;    /* tables of FFTs, chained: see kernel/fft.c */

  moth_results results; /* of the last call */
  moth_tensor *generator;
  unsigned forks; /* moth_forks when the generator was last used */
  moth_devices *devices; /* state of the devices other than the CPU; NULL: none was used */
  moth_cache cache;
};

#endif
