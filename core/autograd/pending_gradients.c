/* pending_gradients.c -- the state of a backward pass: gradients that have arrived and are not yet
** passed on. Each node that the pass reached has one entry. Entries are in a heap by descending id,
** which is a topological order (tape.h). A hooked leaf becomes the first entry as soon as all nodes
** with an edge to it have run: its hooks may exchange or free the gradient during the pass.
**
** Tasks may nest and interleave. A node caches the index of its entry in the last task that reached
** it. A task whose cached index was overwritten by another task searches its heap from then on.
*/
#include "backward_parts.h"
#include "tensor/sparse.h"
#include "tensor/tensor.h"
#include "base/error.h"
#include "base/alloc.h"

#include "op/arith.h"

#define TASK_ENTRIES 32

/* -- memory -- */

static int64_t pool_bytes(uint32_t capacity) {
  return capacity * (int64_t)(sizeof(task_entry) + 2 * sizeof(uint32_t));
}

static void pool_lay_out(moth_task *t, char *block, uint32_t capacity) {
  t->entries = (task_entry *)(void *)block;
  t->heap = (uint32_t *)(void *)(block + capacity * sizeof(task_entry));
  t->free = t->heap + capacity;
  t->capacity = capacity;
}

static int grow(moth_task *t) {
  moth_task old = *t;
  char *block = moth_alloc(t->ctx, pool_bytes(t->capacity * 2));
  if (!block) return t->ctx->error.code;
  pool_lay_out(t, block, t->capacity * 2);
  memcpy(t->entries, old.entries, old.nentries * sizeof *t->entries);
  memcpy(t->heap, old.heap, old.nheap * sizeof *t->heap);
  memcpy(t->free, old.free, old.nfree * sizeof *t->free);
  for (uint32_t i = 0; i < t->nentries; i++) /* a single gradient is stored in the entry itself */
    if (t->entries[i].dys == &old.entries[i].one) t->entries[i].dys = &t->entries[i].one;
  moth_dealloc(t->ctx, old.entries, pool_bytes(old.capacity));
  return MOTH_OK;
}

/* -- the heap: a first entry or the largest id on top -- */

static uint64_t rank_at(const moth_task *t, uint32_t place) {
  const task_entry *e = &t->entries[t->heap[place]];
  return e->first ? UINT64_MAX : e->node->id;
}

static void sift_up(moth_task *t, uint32_t i) {
  while (i && rank_at(t, (i - 1) / 2) < rank_at(t, i)) {
    uint32_t up = (i - 1) / 2, held = t->heap[i];
    t->heap[i] = t->heap[up];
    t->heap[up] = held;
    i = up;
  }
}

static uint32_t pop(moth_task *t) {
  uint32_t top = t->heap[0], i = 0;
  t->heap[0] = t->heap[--t->nheap];
  for (;;) {
    uint32_t best = i, l = 2 * i + 1;
    if (l < t->nheap && rank_at(t, l) > rank_at(t, best)) best = l;
    if (l + 1 < t->nheap && rank_at(t, l + 1) > rank_at(t, best)) best = l + 1;
    if (best == i) return top;
    uint32_t held = t->heap[i];
    t->heap[i] = t->heap[best];
    t->heap[best] = held;
    i = best;
  }
}

/* -- entries -- */

/* The index of the node's entry in the task, or UINT32_MAX. The cached index is valid unless
** another task has overwritten it, which set t->strays. */
static uint32_t find(const moth_task *t, const moth_node *n) {
  if (n->task == t->id) return n->entry;
  if (!t->strays) return UINT32_MAX;
  for (uint32_t i = 0; i < t->nheap; i++)
    if (t->entries[t->heap[i]].node == n) return t->heap[i];
  return UINT32_MAX;
}

/* Call before the node's cached index is overwritten. The task that set the index, if it still
** exists, searches for the node's entry from now on. */
static void take_over(const moth_task *t, const moth_node *n) {
  for (moth_task *other = n->task ? t->ctx->tasks : NULL; other; other = other->next)
    if (other->id == n->task) other->strays = true;
}

static uint32_t enter(moth_task *t, moth_node *n) {
  uint32_t i = find(t, n);
  if (i != UINT32_MAX) return i;
  if (!t->nfree && t->nentries == t->capacity && grow(t)) return UINT32_MAX;
  i = t->nfree ? t->free[--t->nfree] : t->nentries++;
  task_entry *e = &t->entries[i];
  *e = (task_entry){.node = n};
  e->dys = &e->one;
  if (n->nout > 1) {
    e->dys = moth_alloc(t->ctx, n->nout * (int64_t)sizeof *e->dys);
    if (!e->dys) {
      e->node = NULL;
      t->free[t->nfree++] = i;
      return UINT32_MAX;
    }
    for (uint32_t k = 0; k < n->nout; k++) e->dys[k] = NULL;
  }
  moth_node_retain(n);
  take_over(t, n);
  n->task = t->id;
  n->entry = i;
  t->heap[t->nheap++] = i;
  sift_up(t, t->nheap - 1);
  return i;
}

task_entry *moth_task_enter(moth_task *t, moth_node *n) {
  uint32_t i = enter(t, n);
  return i == UINT32_MAX ? NULL : &t->entries[i];
}

task_entry *moth_task_entry(const moth_task *t, const moth_node *n) {
  const uint32_t i = find(t, n);
  return i == UINT32_MAX ? NULL : &t->entries[i];
}

/* -- the next entry -- */

void moth_task_next(moth_task *t) {
  uint32_t i = pop(t);
  bool inside = t->entries[i].dys == &t->entries[i].one;
  t->current = t->entries[i];
  if (inside) t->current.dys = &t->current.one;
  t->entries[i].node = NULL;
  t->free[t->nfree++] = i;
  if (t->current.node->task == t->id) t->current.node->task = 0;
}

void moth_task_first(moth_task *t, const task_entry *e) {
  uint32_t place = 0;
  while (&t->entries[t->heap[place]] != e) place++;
  t->entries[t->heap[place]].first = true;
  sift_up(t, place);
}

/* -- sums -- */

int moth_task_gather(moth_ctx *ctx, moth_tensor **at, moth_tensor *take) {
  int status;
  if (!*at) {
    *at = take;
    return MOTH_OK;
  }
  add_args args = {.ctx = ctx, .input = *at, .other = take, .alpha = {.as.number = 1}};
  if (moth_sparse(*at) || moth_sparse(take)) {
    status = moth_sparse_add(at, take, !ctx->grad_mode && moth_tensor_unshared(*at));
  } else if (!ctx->grad_mode && moth_tensor_unshared(*at)) {
    status = moth_run_into(&moth_op_add, &args, *at);
  } else {
    moth_tensor *sum = NULL;
    status = moth_run_gradient(&moth_op_add, &args, &sum);
    if (!status) {
      moth_tensor_release(*at);
      *at = sum;
    }
  }
  moth_tensor_release(take);
  return status;
}

/* -- tasks -- */

moth_task *moth_task_find(moth_ctx *ctx, uint32_t id) {
  for (moth_task *t = ctx->tasks; t; t = t->next)
    if (t->id == id) return t;
  moth_fail(ctx, MOTH_E_STATE, NULL, "this backward pass has ended");
  return NULL;
}

moth_task *moth_task_new(moth_ctx *ctx, uint32_t nrequested, uint32_t flags) {
  moth_task *t = moth_alloc(ctx, sizeof *t);
  if (!t) return NULL;
  *t = (moth_task){.ctx = ctx, .flags = flags, .least = UINT64_MAX,
                   .requested_capacity = nrequested};
  char *block = moth_alloc(ctx, pool_bytes(TASK_ENTRIES));
  if (block) pool_lay_out(t, block, TASK_ENTRIES);
  if (block && nrequested)
    t->requested = moth_alloc(ctx, nrequested * (int64_t)sizeof *t->requested);
  if (!block || (nrequested && !t->requested)) {
    moth_dealloc(ctx, block, pool_bytes(TASK_ENTRIES));
    moth_dealloc(ctx, t, sizeof *t);
    return NULL;
  }
  if (++ctx->task_ids == 0) ctx->task_ids = 1; /* 0 marks nodes without a task */
  t->id = ctx->task_ids;
  t->next = ctx->tasks;
  ctx->tasks = t;
  ctx->mem.live_tasks++;
  return t;
}

void moth_task_entries_free(moth_task *t) {
  moth_dealloc(t->ctx, t->entries, pool_bytes(t->capacity));
}
