/* backward_parts.h -- declarations shared by the files of a backward pass: pending_gradients.c has
** its entries and their heap, backward.c the walk, deferred_gradients.c the deferred products,
** slice_gradients.c the gradients of slices, reached_nodes.c the nodes that a pass can leave out
** and those that must run before a hooked leaf, node_gradient.c the gradient of one node,
** backward_lua.c the functions for Lua.
*/
#ifndef MOTH_BACKWARD_PARTS_H
#define MOTH_BACKWARD_PARTS_H

#include "tape.h"
#include "call/op.h"

typedef struct task_entry {
  moth_node *node;   /* counted */
  moth_tensor **dys; /* the gradients of its nout results */
  moth_tensor *one;  /* dys points to it if nout is 1 */
  struct deferred *deferred; /* products to add to `one`, or NULL */
  struct moth_slices *slices; /* the written ranges of `one` if not all is written, or NULL */
  uint32_t edges; /* of a hooked leaf: edges to it whose nodes have not run */
  bool first;     /* runs before entries with larger ids */
} task_entry;

typedef struct task_requested { /* an input whose gradient backward returns */
  moth_node *node;         /* counted */
  uint32_t output;
  moth_tensor *grad;
} task_requested;

struct moth_task {
  struct moth_task *next;
  moth_ctx *ctx;
  uint32_t id, flags;
  task_entry *entries; /* a pool; heap has indices of the pending entries */
  uint32_t *heap, *free;
  uint32_t nentries, nheap, nfree, capacity;
  task_requested *requested;
  uint32_t nrequested, requested_capacity;
  uint64_t least; /* a lower bound of the requested inputs' ids */
  uint64_t *path; /* with requested inputs: ascending ids of the nodes in paths to them */
  int64_t npath, path_capacity;
  bool counts;    /* edges to hooked leaves are counted */
  bool strays;    /* another task has overwritten the cached entry of a pending node */
  uint32_t ndeferred; /* entries with deferred products */
  uint64_t event; /* of a profile, or 0 */
  bool stopped;   /* at `current`, until Lua continues it */
  bool gathered;  /* the leaf at `current` has its gradient; hooks after it are left */
  moth_half_copy half_copy; /* see moth_flow_keep */
  task_entry current;
  moth_tensor **dxs; /* the current.node->nin gradients that a Function returned */
};

/* -- pending_gradients.c -- */

moth_task *moth_task_new(moth_ctx *ctx, uint32_t nrequested, uint32_t flags);
moth_task *moth_task_find(moth_ctx *ctx, uint32_t id); /* returns NULL with the error set */
void moth_task_entries_free(moth_task *t);                /* frees its entries */
/* Finds or makes the entry of n. Returns NULL with the error set. */
task_entry *moth_task_enter(moth_task *t, moth_node *n);
task_entry *moth_task_entry(const moth_task *t, const moth_node *n); /* or NULL */
void moth_task_next(moth_task *t); /* removes the first entry from the heap into t->current */
void moth_task_first(moth_task *t, const task_entry *e); /* makes a pending entry the next one */
/* *at += take. Allocates nothing unless *at has other references. */
int moth_task_gather(moth_ctx *ctx, moth_tensor **at, moth_tensor *take);

/* -- node_gradient.c -- */

/* moth_flow for the gradient of a cast. An op with MOTH_OP_HALF_GRADIENT gets the gradient
** uncast. */
int moth_flow_uncast(moth_grad *g, const moth_tensor *input, moth_tensor *dx);
/* moth_flow_half returns the half type to which the gradient of input will be cast next, as the
** gradient of a summand, or MOTH_NO_HALF. moth_flow_keep keeps `half_copy`, which it takes: dx in
** that type, for the next cast of dx. */
enum { MOTH_NO_HALF = -1 };
int moth_flow_half(const moth_grad *g, const moth_tensor *input);
void moth_flow_keep(moth_grad *g, const moth_tensor *dx, moth_tensor *half_copy);

/* -- deferred_gradients.c -- */

/* Adds an entry's products to its gradient. moth_deferred_add_all does so for all entries, before
** Lua runs. */
int moth_deferred_add(moth_task *t, task_entry *e);
int moth_deferred_add_all(moth_task *t);
void moth_deferred_drop(moth_task *t, task_entry *e);

/* -- reached_nodes.c -- */

/* Counts the edges to each hooked leaf that the heap's entries lead to. */
int moth_leaves_count(moth_task *t);

/* Finds the nodes in paths from the entries of the heap to a requested input. */
int moth_requested_find(moth_task *t);
/* Is n a requested input, or in a path to one? */
bool moth_task_useful(const moth_task *t, const moth_node *n);
/* Must n's gradient run? Yes if one of its inputs is useful. */
bool moth_task_runs(const moth_task *t, const moth_node *n);

/* -- slice_gradients.c: sets the unwritten ranges of an entry's gradient to 0 -- */

int moth_slices_fill(moth_task *t, task_entry *e);
void moth_slices_drop(moth_task *t, task_entry *e);
/* Takes the sum of the gradients that have arrived for input, so that the caller adds it in its own
** pass over memory. Borrowed from g. NULL: there is none, or it cannot be taken. */
moth_tensor *moth_flow_take(moth_grad *g, const moth_tensor *input);

#endif
