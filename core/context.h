/* context.h -- the context: all state of one engine. Nothing global but the op registry, the
** token table and the interrupt flag.
*/
#ifndef MOTH_CONTEXT_H
#define MOTH_CONTEXT_H

#include <stdatomic.h>
#include <stdio.h>

#include "op.h"

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
} moth_frame;

#define MOTH_CLASSES 256   /* size classes of the block cache */
#define MOTH_STR_RING 8    /* texts for messages that may be in use at once */
#define MOTH_STR_ROOM 192
#define MOTH_NUMBER_SLOTS 4

typedef struct moth_error_state {
  int32_t code;
  uint64_t node, storage; /* of a backward error; storage: what changed since `version` */
  uint32_t version;
  char op[64];
  char arg[64];
  char text[1024]; /* positions stand between \1 and \2 */
  char shown[1024];
} moth_error_state;

struct moth_ctx {
  uint32_t refs; /* one for the owner, one for each tick */
  bool closed;
  bool lent; /* its memory is the caller's */
  moth_error_state error;
  char str[MOTH_STR_RING][MOTH_STR_ROOM];
  uint32_t str_next;
  atomic_int cancel;
  int interrupts; /* of the process, as far as this context has seen them */

  moth_entry *slots; /* 0 unused, 1..MOTH_NUMBER_SLOTS numbers as operands */
  uint32_t nslots, slot_room, free_slot, live_slots;
  uint32_t numbers; /* bit k: slot k holds a number for the next call */
  moth_frame *scopes; /* 0 unused */
  uint32_t nscopes, scope_room, scope_id;

  void *blocks[MOTH_CLASSES]; /* free blocks by size class */
  moth_memory_info mem;
  int64_t floor_bytes, floor_slots, goal_slots;
  double last_swept;
  double goal_scale; /* grows when collections take too long */
  bool want;
  int64_t fail_after;

  bool grad_mode, anomaly;
  int32_t default_dtype;
  uint64_t ids; /* of nodes and storages */
  moth_node *dead_nodes;
  moth_node *leaves; /* those with a .grad, chained: it may lead back to them */
  bool burying;
  uint64_t *dead_ids;
  uint32_t ndead_ids, dead_room;
  struct moth_task *tasks; /* chained */
  uint32_t task_ids;

  moth_results results; /* of the last call */
  moth_tensor *generator;
};

extern atomic_int moth_interrupts; /* counted, so that every context sees each of them */

/* -- errors: set the message, return the code. arg may be NULL. Positions go in by MOTH_POS. -- */

#define MOTH_POS "\1%lld\2"
int moth_fail(moth_ctx *ctx, int code, const char *arg, const char *format, ...) MOTH_FORMAT(4, 5);
void moth_error_clear(moth_ctx *ctx);
void moth_error_blame(moth_ctx *ctx, const char *op); /* the op that the user called */

/* E_INTERRUPT when a cancel is asked for; polled at op entry and inside long loops. */
static inline bool moth_cancelled(moth_ctx *ctx) {
  return atomic_load_explicit(&ctx->cancel, memory_order_relaxed) |
         (atomic_load_explicit(&moth_interrupts, memory_order_relaxed) != ctx->interrupts);
}
int moth_poll(moth_ctx *ctx);
int moth_fail_closed(moth_ctx *ctx); /* the error of whoever uses a context after its end */

/* -- memory (alloc.c): blocks of a size class, cached; 64-byte aligned, uninitialised -- */

void *moth_alloc(moth_ctx *ctx, int64_t nbytes); /* NULL: E_MEM or E_LIMIT is set */
void moth_dealloc(moth_ctx *ctx, void *block, int64_t nbytes);
/* Counted as live bytes as well: for tensor data. */
void *moth_alloc_data(moth_ctx *ctx, int64_t nbytes);
void moth_dealloc_data(moth_ctx *ctx, void *block, int64_t nbytes);

/* -- handles (slots.c) -- */

moth_tensor *moth_resolve(moth_ctx *ctx, const moth_handle *h, const char *arg); /* borrowed */
/* Takes the reference and fills h; a tensor that has a handle gives that one again. */
int moth_hand_out(moth_ctx *ctx, moth_tensor *take, moth_handle *h);

/* The status of a call that went well: WANT when a sweep or a collection is due, and always in
** anomaly mode, so that Lua can note where it stands. */
static inline int moth_due(const moth_ctx *ctx) {
  return ctx->want || ctx->anomaly || ctx->mem.live_bytes > ctx->mem.goal_bytes ||
                 ctx->live_slots > ctx->goal_slots
             ? MOTH_WANT
             : MOTH_OK;
}

void moth_results_clear(moth_results *r);
void moth_tasks_free(moth_ctx *ctx); /* every backward pass under way */
double moth_seconds(void);           /* a monotonic clock */

#endif
