/* backward_parts.h -- what a backward pass is made of; for backward_pass.c, which keeps what has
** arrived, backward.c, which walks, deferred_gradients.c, which puts products off,
** slice_gradients.c, where gradients of views meet, requested_inputs.c, which knows what a pass
** may leave out, gradient.c, and backward_lua.c, which answers Lua where the pass has stopped.
*/
#ifndef MOTH_BACKWARD_PARTS_H
#define MOTH_BACKWARD_PARTS_H

#include "tape.h"
#include "call/op.h"

typedef struct task_entry {
  moth_node *node;   /* counted */
  moth_tensor **dys; /* nout of them */
  moth_tensor *one;  /* what dys points at when nout is 1 */
  struct deferred *deferred; /* products that are still to be added to one, or NULL */
  struct moth_slices *slices; /* what of one is written, where that is not all, or NULL */
} task_entry;

typedef struct task_requested { /* an input that backward was asked for */
  moth_node *node;         /* counted */
  uint32_t output;
  moth_tensor *grad;
} task_requested;

struct moth_task {
  struct moth_task *next;
  moth_ctx *ctx;
  uint32_t id, flags;
  task_entry *entries; /* a pool; heap holds indices of the entries that wait */
  uint32_t *heap, *free;
  uint32_t nentries, nheap, nfree, room;
  task_requested *requested;
  uint32_t nrequested, requested_room;
  uint64_t least; /* no requested input has an id below this one */
  uint64_t *path; /* with requested inputs: the ids of these and of what leads to them, rising */
  int64_t npath, path_room;
  bool strays;    /* another task has met a node that waits here, and keeps its place there now */
  uint32_t ndeferred; /* entries whose products wait */
  uint64_t event; /* of a profile, or 0 */
  bool stopped;   /* at `current`, for Lua to go on */
  bool gathered;  /* the leaf at `current` has its gradient: it stopped for hooks that come after */
  moth_half_copy half_copy; /* see moth_flow_keep */
  task_entry current;
  moth_tensor **dxs; /* what a Function gave, current.node->nin of them */
};

/* -- backward_pass.c -- */

moth_task *moth_task_new(moth_ctx *ctx, uint32_t nrequested, uint32_t flags);
moth_task *moth_task_find(moth_ctx *ctx, uint32_t id); /* NULL: error set */
void moth_task_room_free(moth_task *t);                /* of its entries */
/* The entry of n, made if need be; NULL: error set. */
task_entry *moth_task_enter(moth_task *t, moth_node *n);
task_entry *moth_task_entry(const moth_task *t, const moth_node *n); /* or NULL */
void moth_task_next(moth_task *t); /* takes the first entry off the heap as t->current */
/* *at += take. Nothing is allocated unless someone else holds *at. */
int moth_task_gather(moth_ctx *ctx, moth_tensor **at, moth_tensor *take);

/* -- gradient.c -- */

/* moth_flow for the gradient of a cast, which an op with MOTH_OP_HALF_GRADIENT gets as it is. */
int moth_flow_uncast(moth_grad *g, const moth_tensor *input, moth_tensor *dx);
/* The half type that the gradient of input is cast to next, as that of a summand, or MOTH_NO_HALF;
** and `half_copy`, taken, which is dx in that type: what casts it next gets that. */
enum { MOTH_NO_HALF = -1 };
int moth_flow_half(const moth_grad *g, const moth_tensor *input);
void moth_flow_keep(moth_grad *g, const moth_tensor *dx, moth_tensor *half_copy);

/* -- deferred_gradients.c -- */

/* Adds an entry's products to its gradient; those of all entries before Lua runs. */
int moth_deferred_add(moth_task *t, task_entry *e);
int moth_deferred_add_all(moth_task *t);
void moth_deferred_drop(moth_task *t, task_entry *e);

/* -- requested_inputs.c -- */

/* Finds the nodes that lead to a requested input; the entries of the heap are where it starts. */
int moth_requested_find(moth_task *t);
/* Whether n is a requested input or leads to one. */
bool moth_task_useful(const moth_task *t, const moth_node *n);
/* Whether n's gradient is to be run: an input of it is useful. */
bool moth_task_runs(const moth_task *t, const moth_node *n);

/* -- slice_gradients.c: zeros where nothing of an entry's gradient is written -- */

int moth_slices_fill(moth_task *t, task_entry *e);
void moth_slices_drop(moth_task *t, task_entry *e);
/* What has arrived so far where the gradient of input goes to: the caller adds it to that in its
** own pass. Borrowed from g; NULL: nothing, or nothing that can be taken. */
moth_tensor *moth_flow_take(moth_grad *g, const moth_tensor *input);

#endif
