/* tape.c -- nodes: what recording leaves behind, and how it goes away again. */
#include "capture.h"

#include "loop.h"
#include "registry.h"

/* -- the tensor arguments of an args struct -- */

static uint32_t count_inputs(const moth_op *op, const void *args) {
  if (!op->lists) return op->ninputs;
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c)) {}
  return c.count;
}

/* -- making and counting nodes -- */

static int64_t aligned(int64_t n) { return (n + 15) & ~(int64_t)15; }

/* One block: the node, its edges, what it saves, its args. Zeroed but for the saved layouts. */
static moth_node *node_new(moth_ctx *ctx, uint32_t nin, uint32_t nsaved, uint32_t nout,
                           int64_t nargs) {
  int64_t edges = aligned(sizeof(moth_node));
  int64_t ins = edges + aligned(nin * (int64_t)sizeof(moth_edge));
  int64_t outs = ins + (nin + nsaved) * (int64_t)sizeof(moth_saved);
  int64_t args = aligned(outs + nout * (int64_t)sizeof(moth_saved)), bytes = args + nargs;
  char *block = moth_alloc(ctx, bytes);
  if (!block) return NULL;
  memset(block, 0, (size_t)ins);
  moth_node *n = (moth_node *)(void *)block;
  n->refs = 1;
  n->id = ++ctx->ids;
  n->ctx = ctx;
  n->nin = nin;
  n->nsaved = nsaved;
  n->nout = nout;
  n->edges = (moth_edge *)(void *)(block + edges);
  n->ins = (moth_saved *)(void *)(block + ins);
  n->outs = (moth_saved *)(void *)(block + outs);
  n->args = nargs ? block + args : NULL;
  n->bytes = bytes;
  for (uint32_t i = 0; i < nin + nsaved; i++) n->ins[i].storage = NULL, n->ins[i].present = 0;
  for (uint32_t i = 0; i < nout; i++) n->outs[i].storage = NULL, n->outs[i].present = 0;
  ctx->mem.live_nodes++;
  if (!ctx->region || nin == 0 || !moth_region_add(n)) return n;
  moth_node_release(n);
  return NULL;
}

moth_node *moth_node_retain(moth_node *n) {
  n->refs++;
  return n;
}

void moth_node_forget(moth_node *n) {
  for (uint32_t i = 0; i < n->nin + n->nsaved; i++) {
    moth_storage_release(n->ctx, n->ins[i].storage);
    n->ins[i].storage = NULL;
  }
  for (uint32_t i = 0; i < n->nout; i++) {
    moth_storage_release(n->ctx, n->outs[i].storage);
    n->outs[i].storage = NULL;
  }
  n->flags = (n->flags | MOTH_N_RELEASED) & ~(uint32_t)MOTH_N_EMPTIED;
  if (!(n->flags & MOTH_N_LEAF) && n->region) moth_region_leave(n);
}

/* Lua keeps values under the id of a node it knows: it hears of the death at its next sweep. */
static void list_dead(moth_ctx *ctx, uint64_t id) {
  if (ctx->ndead_ids == ctx->dead_room) {
    int32_t code = ctx->error.code;
    uint32_t room = ctx->dead_room ? ctx->dead_room * 2 : 64;
    uint64_t *ids = moth_alloc(ctx, (int64_t)(room * sizeof *ids));
    ctx->error.code = code;
    if (!ids) return; /* its values stay until the context closes */
    if (ctx->ndead_ids) memcpy(ids, ctx->dead_ids, ctx->ndead_ids * sizeof *ids);
    moth_dealloc(ctx, ctx->dead_ids, (int64_t)(ctx->dead_room * sizeof *ids));
    ctx->dead_ids = ids;
    ctx->dead_room = room;
  }
  ctx->dead_ids[ctx->ndead_ids++] = id;
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
  if (n->flags & MOTH_N_REGION) moth_region_clear(n);
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

void moth_node_release(moth_node *n) {
  if (!n || --n->refs) return;
  moth_ctx *ctx = n->ctx;
  n->next_dead = ctx->dead_nodes;
  ctx->dead_nodes = n;
  if (ctx->burying) return; /* the loop below, further up the stack, takes it from here */
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
    moth_node *n = node_new(x->ctx, 0, 0, 1, 0);
    if (!n) return NULL;
    n->flags = MOTH_N_LEAF;
    if (x->capture && x->capture == x->ctx->capture_id) n->flags |= MOTH_N_YOUNG;
    n->leaf = x->l;
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

/* -- saving -- */

void moth_save(moth_saved *s, const moth_tensor *x, bool bytes) {
  if (s->storage) moth_storage_release(x->ctx, s->storage);
  moth_layout_copy(&s->l, &x->l);
  s->present = bytes ? 2 : 1;
  s->from = 0;
  s->storage = bytes ? moth_storage_retain(x->storage) : NULL;
  if (bytes) s->version = moth_storage_version(x->storage);
}

moth_tensor *moth_saved_open(moth_node *n, const moth_saved *s, const char *what) {
  moth_ctx *ctx = n->ctx;
  if (!s->storage) {
    if (s->present == 1) return moth_tensor_bare(ctx, &s->l);
    ctx->error.node = n->id;
    moth_fail(ctx, MOTH_E_GRAPH, NULL,
              "the graph was walked before and its saved tensors are freed; "
              "pass retain_graph = true to the first backward");
    return NULL;
  }
  uint32_t now = moth_storage_version(s->storage);
  if (now == s->version) return moth_tensor_like(ctx, &s->l, s->storage);
  moth_fail(ctx, MOTH_E_VERSION, what,
            "%s, saved for the gradient at version %u, was changed in place and is at version %u",
            moth_str_shape(ctx, s->l.ndim, s->l.shape), s->version, now);
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

/* -- recording -- */

bool moth_needs_grad(const moth_tensor *x) {
  const moth_tensor *base = moth_base(x);
  if (base && x->base_epoch != base->epoch) return moth_needs_grad(base);
  return x->node || (x->flags & MOTH_T_REQUIRES);
}

bool moth_records(const moth_op *op, const void *args) {
  moth_ctx *ctx = *(moth_ctx *const *)args;
  if (!ctx->grad_mode || !op->grad) return false;
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c))
    if (*c.at && moth_is_float((*c.at)->l.dtype) && moth_needs_grad(*c.at)) return true;
  return false;
}

/* A copy of the args in the node; lists of integers become its own. */
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

/* Edges to whatever needs a gradient; which arguments do, as a mask over the op's rows. */
static int add_edges(moth_node *n, const void *args, uint64_t *wanting) {
  moth_cursor c = {.op = n->op, .args = (void *)(uintptr_t)args};
  *wanting = 0;
  while (moth_next_input(&c)) {
    moth_edge *edge = &n->edges[c.arg];
    if (!*c.at || !moth_is_float((*c.at)->l.dtype)) continue;
    int status = moth_edge_of(*c.at, edge);
    if (status) return status;
    if (!edge->node) continue;
    moth_node_retain(edge->node);
    *wanting |= (uint64_t)1 << c.from;
  }
  return MOTH_OK;
}

static void save_inputs(moth_node *n, const void *args, uint64_t wanting, moth_tensor *before) {
  moth_cursor c = {.op = n->op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at;
    if (!x) continue;
    if (before && c.arg == 0) x = before;
    moth_save(&n->ins[c.arg], x, (n->op->save_in[c.from] & wanting) != 0);
  }
}

/* Whether a gradient reads result i: one of the arguments `wanting` it does, or it is read where an
** argument is not the first of its choices. */
static bool reads_result(const moth_op *op, const void *args, uint32_t i, uint64_t wanting) {
  const uint64_t readers = op->save_out[i];
  if (!readers || readers & wanting) return readers != 0;
  for (uint32_t row = 0; row < op->nrows; row++)
    if (readers >> row & 1u && op->kinds[row] == MOTH_KIND_enum)
      return moth_arg_at(op, args, row)->integer != 0;
  return false;
}

/* The node for op(args) = out, tied to nothing yet; NULL after an error. */
static moth_node *make_node(const moth_op *op, const void *args, moth_tensor **out,
                            moth_tensor *before, uint64_t *wanting) {
  moth_ctx *ctx = *(moth_ctx *const *)args;
  uint32_t nout = op->nout + op->nhidden;
  moth_node *n = node_new(ctx, count_inputs(op, args), 0, nout, op->size);
  if (!n) return NULL;
  n->op = op;
  if (copy_args(n, args) || add_edges(n, args, wanting)) {
    int code = ctx->error.code;
    moth_node_release(n);
    ctx->error.code = code;
    return NULL;
  }
  n->id = ++ctx->ids; /* after its edges: a leaf met here for the first time got a smaller one */
  save_inputs(n, args, *wanting, before);
  for (uint32_t i = 0; out && i < nout && out[i]; i++)
    moth_save(&n->outs[i], out[i], reads_result(op, args, i, *wanting));
  return n;
}

int moth_record(const moth_op *op, const void *args, moth_tensor **out) {
  if (!moth_records(op, args)) return MOTH_OK;
  uint64_t wanting;
  moth_node *n = make_node(op, args, out, NULL, &wanting);
  if (!n) return (*(moth_ctx *const *)args)->error.code;
  for (uint32_t i = 0; i < op->nout; i++) {
    if (!moth_is_float(out[i]->l.dtype)) continue;
    moth_node_release(out[i]->node); /* of a view made of a view: none yet */
    out[i]->node = moth_node_retain(n);
    out[i]->output = i;
  }
  moth_node_release(n);
  return MOTH_OK;
}

int moth_record_write(const moth_op *op, const void *args, moth_tensor *target,
                      moth_tensor *before, moth_write *w) {
  uint64_t wanting;
  *w = (moth_write){0};
  if (!moth_records(op, args)) return MOTH_OK;
  moth_node *n = make_node(op, args, NULL, before, &wanting);
  if (!n) return target->ctx->error.code;
  moth_save(&n->outs[0], target, false);
  int status = moth_write_plan(target, n, 0, w);
  w->keeps = reads_result(op, args, 0, wanting);
  if (status) moth_write_drop(w);
  return status;
}

moth_node *moth_node_of(const moth_op *op, const void *args, const moth_edge *edges,
                        const moth_layout *out) {
  moth_ctx *ctx = *(moth_ctx *const *)args;
  moth_node *n = node_new(ctx, count_inputs(op, args), 0, op->nout + op->nhidden, op->size);
  if (!n) return NULL;
  n->op = op;
  if (copy_args(n, args)) {
    moth_node_release(n);
    return NULL;
  }
  n->outs[0].l = *out;
  n->outs[0].present = 1;
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c)) {
    if (edges[c.arg].node) {
      n->edges[c.arg] = edges[c.arg];
      moth_node_retain(edges[c.arg].node);
    }
    if (*c.at) moth_save(&n->ins[c.arg], *c.at, false);
  }
  return n;
}

/* -- Functions written in Lua -- */

int moth_node_function(moth_ctx *ctx, const char *name, moth_tensor **in, uint32_t nin,
                       moth_tensor **saved, uint32_t nsaved, uint32_t nout, int64_t nargs,
                       moth_node **made) {
  moth_node *n = node_new(ctx, nin, nsaved, nout, nargs);
  size_t length = strlen(name) + 1;
  *made = n;
  if (!n) return ctx->error.code;
  n->flags = MOTH_N_LUA | MOTH_N_KNOWN;
  n->name = moth_alloc(ctx, (int64_t)length);
  if (!n->name) return ctx->error.code;
  memcpy(n->name, name, length);
  for (uint32_t i = 0; i < nin; i++) {
    if (!in[i]) continue;
    int status = moth_is_float(in[i]->l.dtype) ? moth_edge_of(in[i], &n->edges[i]) : MOTH_OK;
    if (status) return status;
    if (n->edges[i].node) moth_node_retain(n->edges[i].node);
    moth_save(&n->ins[i], in[i], false);
  }
  n->id = ++ctx->ids; /* after its edges, see make_node */
  for (uint32_t i = 0; i < nsaved; i++) {
    if (!saved[i]) continue;
    moth_save(&n->ins[nin + i], saved[i], true);
    for (uint32_t k = 0; k < nin; k++)
      if (in[k] == saved[i]) n->ins[nin + i].from = (int16_t)(k + 1);
  }
  return MOTH_OK;
}

/* Output i. One that is an input was written in place: its history is rewritten. Any other that
** has a history is handed on as an alias with a history of its own. */
static int tie_output(moth_ctx *ctx, moth_node *n, uint32_t i, moth_handle *h, moth_tensor *y,
                      bool is_input) {
  moth_save(&n->outs[i], y, false);
  if (is_input) {
    moth_write w = {0};
    int status = moth_check_write(y, NULL, true);
    if (!status) status = moth_write_plan(y, moth_node_retain(n), i, &w);
    if (status) moth_write_drop(&w);
    else moth_write_done(y, &w);
    return status;
  }
  if (y->node || moth_base(y) || (y->flags & MOTH_T_REQUIRES)) {
    moth_tensor *alias = moth_tensor_alias(y);
    int status = alias ? moth_hand_out(ctx, alias, h) : ctx->error.code;
    if (status) return status;
    y = alias;
  }
  y->flags |= MOTH_T_FUNCTION;
  y->node = moth_node_retain(n);
  y->output = i;
  return MOTH_OK;
}

static int resolve_all(moth_ctx *ctx, const moth_handle *h, uint32_t n, moth_tensor **to) {
  for (uint32_t i = 0; i < n; i++) {
    to[i] = h[i]._slot ? moth_resolve(ctx, &h[i], NULL) : NULL;
    if (h[i]._slot && !to[i]) return ctx->error.code;
  }
  return MOTH_OK;
}

#define FUNCTION_ROOM 63
#define FRESH (UINT64_C(1) << FUNCTION_ROOM) /* in nondiff: the outputs share bytes with nothing, so
                                             ** that they may be written as those of an op may */

int32_t moth_function(moth_ctx *ctx, const char *name, const moth_handle *inputs, uint32_t ninputs,
                      moth_handle *outputs, uint32_t noutputs, uint64_t nondiff,
                      const moth_handle *saved, uint32_t nsaved, uint64_t *node) {
  moth_tensor *in[FUNCTION_ROOM], *out[FUNCTION_ROOM], *kept[FUNCTION_ROOM];
  moth_error_clear(ctx);
  *node = 0;
  if (ninputs > FUNCTION_ROOM || noutputs > FUNCTION_ROOM || nsaved > FUNCTION_ROOM)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "a Function with more than %d tensors",
                     FUNCTION_ROOM);
  int status = resolve_all(ctx, inputs, ninputs, in);
  if (!status) status = resolve_all(ctx, outputs, noutputs, out);
  if (!status) status = resolve_all(ctx, saved, nsaved, kept);
  bool needed = false;
  for (uint32_t i = 0; !status && i < ninputs; i++)
    needed |= in[i] && moth_is_float(in[i]->l.dtype) && moth_needs_grad(in[i]);
  if (status || !needed || !ctx->grad_mode) return status;
  moth_node *n;
  status = moth_node_function(ctx, name, in, ninputs, kept, nsaved, noutputs, 0, &n);
  for (uint32_t i = 0; !status && i < noutputs; i++) {
    if (!out[i] || !moth_is_float(out[i]->l.dtype) || (nondiff >> i & 1u)) continue;
    bool is_input = false;
    for (uint32_t k = 0; k < ninputs; k++) is_input |= in[k] == out[i];
    for (uint32_t k = 0; k < nsaved; k++)
      if (kept[k] == out[i]) n->ins[ninputs + k].from = (int16_t)(-1 - (int)i);
    status = tie_output(ctx, n, i, &outputs[i], out[i], is_input);
    if (nondiff & FRESH) out[i]->flags &= ~(uint32_t)MOTH_T_FUNCTION;
  }
  if (!status) *node = n->id;
  moth_node_release(n);
  return status;
}
