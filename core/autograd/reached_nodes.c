/* reached_nodes.c -- the nodes that a backward pass will reach, found before its walk.
**
** A pass for the gradients of some inputs runs only the nodes in paths to these inputs, and leaves
** the saved tensors of others to later passes. The task stores the sorted ids of these nodes. Marks
** in the nodes themselves would be lost if a Function began another task.
**
** A pass that reaches a leaf with hooks counts the edges to it. The leaf runs when the last of them
** has delivered.
*/
#include "backward_parts.h"
#include "base/alloc.h"

#include <stdlib.h>

typedef struct seen_list {
  moth_node **at;
  uint32_t n, capacity;
} seen_list;

static int see(moth_ctx *ctx, seen_list *seen, moth_node *n) {
  if (n->flags & MOTH_N_SEEN) return MOTH_OK;
  if (moth_grow(ctx, &seen->at, seen->n, &seen->capacity, sizeof n)) return ctx->error.code;
  n->flags |= MOTH_N_SEEN;
  seen->at[seen->n++] = n;
  return MOTH_OK;
}

static int by_id(const void *a, const void *b) {
  const uint64_t x = (*(moth_node *const *)a)->id, y = (*(moth_node *const *)b)->id;
  return (x > y) - (x < y);
}

static bool leads(const moth_node *n) {
  for (uint32_t i = 0; i < n->nin; i++)
    if (n->edges[i].node && n->edges[i].node->flags & MOTH_N_USEFUL) return true;
  return false;
}

/* Collects all nodes with an id from `least` on that the heap's entries lead to. */
static int collect(moth_task *t, uint64_t least, seen_list *seen) {
  int status = MOTH_OK;
  for (uint32_t i = 0; !status && i < t->nheap; i++)
    status = see(t->ctx, seen, t->entries[t->heap[i]].node);
  for (int64_t i = 0; !status && i < seen->n; i++)
    for (uint32_t k = 0; !status && k < seen->at[i]->nin; k++) {
      moth_node *to = seen->at[i]->edges[k].node;
      if (to && to->id >= least) status = see(t->ctx, seen, to);
    }
  return status;
}

int moth_requested_find(moth_task *t) {
  const uint32_t marks = MOTH_N_SEEN | MOTH_N_USEFUL;
  seen_list seen = {0};
  int status = collect(t, t->least, &seen);
  if (seen.n) qsort(seen.at, (size_t)seen.n, sizeof *seen.at, by_id);
  for (uint32_t i = 0; i < t->nrequested; i++) t->requested[i].node->flags |= MOTH_N_USEFUL;
  uint64_t *path = status ? NULL : moth_alloc(t->ctx, (seen.n + 1) * (int64_t)sizeof *path);
  if (!path && !status) status = t->ctx->error.code;
  for (int64_t i = 0; i < seen.n; i++) { /* a node's edges lead to nodes before it in the list */
    moth_node *n = seen.at[i];
    if (leads(n)) n->flags |= MOTH_N_USEFUL;
    if (path && n->flags & MOTH_N_USEFUL) path[t->npath++] = n->id;
  }
  for (int64_t i = 0; i < seen.n; i++) seen.at[i]->flags &= ~marks;
  for (uint32_t i = 0; i < t->nrequested; i++) t->requested[i].node->flags &= ~marks;
  t->path = path;
  t->path_capacity = path ? seen.n + 1 : 0;
  moth_dealloc(t->ctx, seen.at, seen.capacity * (int64_t)sizeof *seen.at);
  return status;
}

bool moth_task_useful(const moth_task *t, const moth_node *n) {
  if (!t->nrequested) return true;
  int64_t first = 0, end = t->npath;
  while (first < end) {
    const int64_t at = first + (end - first) / 2;
    if (t->path[at] == n->id) return true;
    if (t->path[at] < n->id) first = at + 1;
    else end = at;
  }
  return false;
}

bool moth_task_runs(const moth_task *t, const moth_node *n) {
  if (!t->nrequested) return true;
  for (uint32_t i = 0; i < n->nin; i++)
    if (n->edges[i].node && moth_task_useful(t, n->edges[i].node)) return true;
  return false;
}

int moth_leaves_count(moth_task *t) {
  const uint32_t hooked = MOTH_N_LEAF | MOTH_N_HOOKED;
  seen_list seen = {0};
  int status = collect(t, 0, &seen);
  for (int64_t i = 0; i < seen.n; i++) seen.at[i]->flags &= ~(uint32_t)MOTH_N_SEEN;
  for (int64_t i = 0; !status && i < seen.n; i++)
    for (uint32_t k = 0; !status && k < seen.at[i]->nin; k++) {
      moth_node *to = seen.at[i]->edges[k].node;
      if (!to || (to->flags & hooked) != hooked) continue;
      task_entry *e = moth_task_enter(t, to);
      if (e) e->edges++;
      else status = t->ctx->error.code;
    }
  moth_dealloc(t->ctx, seen.at, seen.capacity * (int64_t)sizeof *seen.at);
  return status;
}
