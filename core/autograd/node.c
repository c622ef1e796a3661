/* node.c -- nodes of the graph: creation, saved tensors and how they are opened again, leaves, and
** release.
*/
#include "call/registry.h"
#include "tape.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

/* -- checkpoints: a checkpoint lists the nodes made in it (checkpoint.c) -- */

/* Adds n to the running checkpoint. */
static int add_to_checkpoint(moth_node *n) {
  moth_ctx *ctx = n->ctx;
  moth_checkpoint *r = ctx->checkpoint->args;
  const int status = moth_grow(ctx, &r->members, r->n, &r->capacity, sizeof *r->members);
  if (status) return status;
  n->checkpoint = moth_node_retain(ctx->checkpoint);
  n->place = r->n;
  r->members[r->n++] = r->again ? moth_node_retain(n) : n;
  if (r->packs) ctx->want = true; /* calls the host after this op */
  return MOTH_OK;
}

void moth_checkpoint_leave(moth_node *n) {
  moth_node *at = n->checkpoint;
  const moth_checkpoint *r = at->args;
  n->checkpoint = NULL;
  r->members[n->place] = NULL;
  if (r->again) moth_node_release(n);
  moth_node_release(at);
}

/* -- creating and counting nodes -- */

/* Allocates one block for the node, its edges, its saved tensors and its args. All are cleared
** except the saved layouts. */
moth_node *moth_node_new(moth_ctx *ctx, uint32_t nin, uint32_t nsaved, uint32_t nout, int32_t ndim,
                         int64_t nargs) {
  const uint32_t count = nin + nsaved + nout;
  const uint32_t saved_size = (uint32_t)(sizeof(moth_saved) + 2 * (size_t)ndim * sizeof(int64_t));
  int64_t edges = sizeof(moth_node), saved = edges + nin * (int64_t)sizeof(moth_edge);
  int64_t args = saved + (int64_t)count * saved_size, bytes = args + nargs;
  char *block = moth_alloc(ctx, bytes);
  if (!block) return NULL;
  moth_node *n = (moth_node *)(void *)block;
  n->refs = 1; /* by field: for a struct of this size compilers emit a slow `rep stos` */
  n->flags = n->task = n->entry = 0;
  n->op = NULL;
  n->name = NULL;
  n->retains = NULL;
  n->grad = NULL;
  n->next_dead = NULL;
  n->checkpoint = NULL;
  n->place = 0;
  n->id = ++ctx->ids;
  n->ctx = ctx;
  n->nin = nin;
  n->nsaved = nsaved;
  n->nout = nout;
  n->saved_size = saved_size;
  n->edges = (moth_edge *)(void *)(block + edges);
  n->saved = block + saved;
  n->args = nargs ? block + args : NULL;
  n->bytes = bytes;
  for (uint32_t i = 0; i < nin; i++) n->edges[i] = (moth_edge){0};
  for (uint32_t k = 0; k < count; k++) {
    moth_saved *s = moth_node_saved(n, k);
    s->storage = NULL;
    s->present = 0;
  }
  ctx->mem.live_nodes++;
  if (!ctx->checkpoint || nin == 0 || !add_to_checkpoint(n)) return n;
  moth_node_release(n);
  return NULL;
}

void moth_node_forget(moth_node *n) {
  const uint32_t count = n->nin + n->nsaved + n->nout;
  for (uint32_t k = 0; k < count; k++) {
    moth_saved *s = moth_node_saved(n, k);
    if (!s->storage) continue;
    moth_storage_release(n->ctx, s->storage);
    s->storage = NULL;
  }
  n->flags = (n->flags | MOTH_N_RELEASED) & ~(uint32_t)MOTH_N_EMPTIED;
  if (!(n->flags & MOTH_N_LEAF) && n->checkpoint) moth_checkpoint_leave(n);
}

/* Lua keeps values under the ids of nodes that it knows. Lists the id for Lua's next sweep. */
static void list_dead(moth_ctx *ctx, uint64_t id) {
  const int32_t code = ctx->error.code;
  if (!moth_grow(ctx, &ctx->dead_ids, ctx->ndead_ids, &ctx->dead_capacity, sizeof id))
    ctx->dead_ids[ctx->ndead_ids++] = id; /* else its values stay until the context closes */
  ctx->error.code = code;
}

static void free_lists(moth_node *n) {
  if (!n->op || !n->op->ints) return;
  for (uint32_t i = 0; i < n->op->nrows; i++)
    if (moth_kind_is_ints(n->op->kinds[i])) {
      moth_ints *list = (moth_ints *)(void *)moth_arg_at(n->op, n->args, i);
      if (list->at) moth_dealloc(n->ctx, (void *)(uintptr_t)list->at, list->n * 8 + 8);
    }
}

static void bury(moth_node *n) {
  moth_ctx *ctx = n->ctx;
  if (n->flags & MOTH_N_KNOWN) list_dead(ctx, n->id);
  moth_node_forget(n);
  free_lists(n);
  if (n->flags & MOTH_N_CHECKPOINT) {
    moth_checkpoint *r = n->args;
    moth_dealloc(ctx, r->members, (int64_t)(r->capacity * sizeof *r->members));
  }
  for (uint32_t i = 0; i < n->nin; i++) moth_node_release(n->edges[i].node);
  if (n->retains) {
    for (uint32_t i = 0; i < n->nout; i++) moth_node_release(n->retains[i]);
    moth_dealloc(ctx, n->retains, n->nout * (int64_t)sizeof *n->retains);
  }
  if (n->grad) moth_leaf_set(n, NULL);
  if (n->name) moth_dealloc(ctx, n->name, (int64_t)strlen(n->name) + 1);
  ctx->mem.live_nodes--;
  moth_dealloc(ctx, n, n->bytes);
}

void moth_node_end(moth_node *n) {
  moth_ctx *ctx = n->ctx;
  n->next_dead = ctx->dead_nodes;
  ctx->dead_nodes = n;
  if (ctx->burying) return; /* the loop below, in an outer call, frees it */
  ctx->burying = true;
  while ((n = ctx->dead_nodes) != NULL) {
    ctx->dead_nodes = n->next_dead;
    bury(n);
  }
  ctx->burying = false;
}

/* -- leaves -- */

moth_node *moth_leaf_of(moth_tensor *x) {
  if (!x->leaf) {
    moth_node *n = moth_node_new(x->ctx, 0, 0, 1, x->l.ndim, 0);
    if (!n) return NULL;
    n->flags = MOTH_N_LEAF;
    if (x->capture && x->capture == x->ctx->capture_id) n->flags |= MOTH_N_YOUNG;
    moth_saved_set(moth_node_out(n, 0), &x->l);
    x->leaf = n;
  }
  return x->leaf;
}

void moth_leaf_set(moth_node *leaf, moth_tensor *take) {
  moth_tensor *old = leaf->grad;
  moth_ctx *ctx = leaf->ctx;
  if (take) take->flags |= MOTH_T_IS_GRAD;
  leaf->grad = take;
  if (take && !old) {
    leaf->prev = NULL;
    leaf->next = ctx->leaves;
    if (leaf->next) leaf->next->prev = leaf;
    ctx->leaves = leaf;
  } else if (old && !take) {
    *(leaf->prev ? &leaf->prev->next : &ctx->leaves) = leaf->next;
    if (leaf->next) leaf->next->prev = leaf->prev;
  }
  if (!old) return;
  if (old != take) old->flags &= ~(uint32_t)MOTH_T_IS_GRAD;
  moth_tensor_release(old);
}

/* -- saved tensors -- */

void moth_saved_set(moth_saved *s, const moth_layout *l) {
  const int32_t ndim = l->ndim;
  s->ndim = ndim;
  s->dtype = l->dtype;
  s->device = l->device;
  s->index_base = l->index_base;
  s->numel = l->numel;
  s->offset = l->offset;
  for (int32_t d = 0; d < ndim; d++) s->dims[d] = l->shape[d];
  for (int32_t d = 0; d < ndim; d++) s->dims[ndim + d] = l->stride[d];
}

void moth_saved_layout(const moth_saved *s, moth_layout *l) {
  const int32_t ndim = s->ndim;
  l->ndim = ndim;
  l->dtype = s->dtype;
  l->device = s->device;
  l->index_base = s->index_base;
  l->numel = s->numel;
  l->offset = s->offset;
  for (int32_t d = 0; d < ndim; d++) l->shape[d] = s->dims[d];
  for (int32_t d = 0; d < ndim; d++) l->stride[d] = s->dims[ndim + d];
}

void moth_save(moth_saved *s, const moth_tensor *x, bool bytes) {
  if (s->storage) moth_storage_release(x->ctx, s->storage);
  moth_saved_set(s, &x->l);
  s->present = bytes ? 2 : 1;
  s->from = 0;
  s->storage = bytes ? moth_storage_retain(x->storage) : NULL;
  if (bytes) s->version = moth_storage_version(x->storage);
}

moth_tensor *moth_saved_open(moth_node *n, const moth_saved *s, const char *what) {
  moth_ctx *ctx = n->ctx;
  moth_layout l;
  moth_saved_layout(s, &l);
  if (!s->storage) {
    if (s->present == 1) return moth_tensor_bare(ctx, &l);
    ctx->error.node = n->id;
    moth_fail(ctx, MOTH_E_GRAPH, NULL,
              "a second backward pass through this graph: its saved tensors are freed; "
              "pass retain_graph = true to the first backward");
    return NULL;
  }
  uint32_t now = moth_storage_version(s->storage);
  if (now == s->version) return moth_tensor_like(ctx, &l, s->storage);
  moth_fail(ctx, MOTH_E_VERSION, what,
            "%s, saved for the gradient at version %u, was changed in place and is at version %u",
            moth_str_shape(ctx, l.ndim, l.shape), s->version, now);
  ctx->error.node = n->id;
  ctx->error.storage = s->storage->id;
  ctx->error.version = s->version;
  moth_error_blame_copy(ctx, n->op ? n->op->name : n->name);
  return NULL;
}

void moth_saved_tie(moth_tensor *x, moth_node *history, uint32_t output) {
  if (history->flags & MOTH_N_LEAF) {
    x->leaf = moth_node_retain(history);
    x->flags |= MOTH_T_REQUIRES;
  } else {
    x->node = moth_node_retain(history);
    x->output = output;
  }
}

/* -- nodes for op(args), without edges -- */

/* Counts the inputs. *ndim := the largest number of dimensions among them, or *ndim if larger. */
static uint32_t count_inputs(const moth_op *op, const void *args, int32_t *ndim) {
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c))
    if (*c.at && (*c.at)->l.ndim > *ndim) *ndim = (*c.at)->l.ndim;
  return c.count;
}

/* Copies the args into the node. Lists of integers are copied too. */
static int copy_args(moth_node *n, const void *args) {
  const moth_op *op = n->op;
  memcpy(n->args, args, op->size);
  for (uint32_t i = 0; op->ints && i < op->nrows; i++) {
    if (!moth_kind_is_ints(op->kinds[i])) continue;
    moth_ints *list = (moth_ints *)(void *)moth_arg_at(op, n->args, i);
    if (!list->at) continue;
    int64_t *at = moth_alloc(n->ctx, list->n * 8 + 8);
    if (at && list->n) memcpy(at, list->at, (size_t)list->n * 8);
    list->at = at;
    if (at) continue;
    for (uint32_t k = i + 1; k < op->nrows; k++)
      if (moth_kind_is_ints(op->kinds[k]))
        ((moth_ints *)(void *)moth_arg_at(op, n->args, k))->at = NULL;
    return n->ctx->error.code;
  }
  return MOTH_OK;
}

moth_node *moth_node_for(const moth_op *op, const void *args, int32_t ndim) {
  moth_ctx *ctx = *(moth_ctx *const *)args;
  const uint32_t nin = count_inputs(op, args, &ndim);
  moth_node *n = moth_node_new(ctx, nin, 0, op->nout + op->nhidden, ndim, op->size);
  if (!n) return NULL;
  n->op = op;
  if (!copy_args(n, args)) return n;
  const int code = ctx->error.code;
  moth_node_release(n);
  ctx->error.code = code;
  return NULL;
}

moth_node *moth_node_of(const moth_op *op, const void *args, const moth_edge *edges,
                        const moth_layout *out) {
  moth_node *n = moth_node_for(op, args, out->ndim);
  if (!n) return NULL;
  moth_saved_set(moth_node_out(n, 0), out);
  moth_node_out(n, 0)->present = 1;
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c)) {
    if (edges[c.arg].node) {
      n->edges[c.arg] = edges[c.arg];
      moth_node_retain(edges[c.arg].node);
    }
    if (*c.at) moth_save(moth_node_in(n, c.arg), *c.at, false);
  }
  return n;
}
