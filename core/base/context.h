/* context.h -- the context: all state of one engine. Global is what a process has once: the op
** registry, tokens, interrupts, threads, and the libraries that were opened.
*/
#ifndef MOTH_CONTEXT_H
#define MOTH_CONTEXT_H

#include <stdatomic.h>
#include <stdio.h>

#include "moth_lua.h"
#include "tensor/types.h"

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

#endif
