/* history.c -- how histories are read, rewritten by in-place writes, and cut: tape.h explains. */
#include "tensor/loop.h"
#include "call/observer.h"
#include "tensor/sparse.h"
#include "tape.h"

#include "op/strided.h"

static void set_history(moth_tensor *x, moth_node *take, uint32_t output) {
  moth_node *old = x->node;
  x->node = take;
  x->output = output;
  moth_node_release(old);
}

static moth_ints shape_of(const moth_layout *l) { return (moth_ints){l->shape, l->ndim}; }
static moth_ints stride_of(const moth_layout *l) { return (moth_ints){l->stride, l->ndim}; }

#define GEOMETRY(b, v)                                                              \
  .base_size = shape_of(b), .base_stride = stride_of(b), .base_offset = (b)->offset, \
  .size = shape_of(v), .stride = stride_of(v), .offset = (v)->offset

/* The history of a view whose base was written: what the view now sees of the base. */
static int refresh(moth_tensor *x) {
  moth_tensor *base = x->base;
  moth_edge edge;
  int status = moth_edge_of(base, &edge);
  if (status) return status;
  moth_node *n = NULL;
  if (edge.node) {
    strided_get_args args = {.ctx = x->ctx, .input = base, GEOMETRY(&base->l, &x->l)};
    n = moth_node_of(&moth_op_strided_get, &args, &edge, &x->l);
    if (!n) return x->ctx->error.code;
  }
  set_history(x, n, 0);
  x->base_epoch = base->epoch;
  return MOTH_OK;
}

int moth_edge_of(moth_tensor *x, moth_edge *edge) {
  const moth_tensor *base = moth_base(x);
  if (base && x->base_epoch != base->epoch) {
    int status = refresh(x);
    if (status) return status;
  }
  *edge = (moth_edge){x->node, x->output};
  if (x->node || !(x->flags & MOTH_T_REQUIRES)) return MOTH_OK;
  edge->node = moth_leaf_of(x);
  edge->output = 0;
  return edge->node ? MOTH_OK : x->ctx->error.code;
}

int moth_write_plan(moth_tensor *target, moth_node *take, uint32_t output, moth_write *w) {
  moth_tensor *base = moth_base(target);
  *w = (moth_write){.node = take, .output = output};
  if (!base) return MOTH_OK;
  moth_edge edges[2] = {{NULL, 0}, {take, output}};
  int status = moth_edge_of(base, &edges[0]);
  if (status) return status;
  strided_put_args args = {.ctx = base->ctx, .input = base, .source = target,
                           GEOMETRY(&base->l, &target->l)};
  w->put = moth_node_of(&moth_op_strided_put, &args, edges, &base->l);
  return w->put ? MOTH_OK : base->ctx->error.code;
}

void moth_write_done(moth_tensor *target, moth_write *w) {
  if (!w->node) return;
  if (w->keeps) moth_save(moth_node_out(w->node, w->output), target, true);
  if (!w->put) {
    set_history(target, w->node, w->output);
    target->epoch++;
  } else {
    set_history(moth_base(target), w->put, 0);
    moth_base(target)->epoch++;
    moth_node_release(w->node);
  }
  w->node = w->put = NULL;
}

void moth_write_drop(moth_write *w) {
  moth_node_release(w->put);
  moth_node_release(w->node);
  w->node = w->put = NULL;
}

static bool leaf_needs_grad(const moth_tensor *x) {
  return !x->node && (x->flags & MOTH_T_REQUIRES);
}

/* Whether the history of x may be rewritten. */
static int check_history(moth_tensor *x, const char *arg, bool recorded) {
  moth_ctx *ctx = x->ctx;
  if (!ctx->grad_mode) return MOTH_OK;
  if (leaf_needs_grad(x))
    return moth_fail(ctx, MOTH_E_GRAPH, arg,
                     "a leaf that requires grad cannot be written in place; "
                     "write under moth.no_grad, or to its .data");
  moth_tensor *base = moth_base(x);
  if (base && leaf_needs_grad(base))
    return moth_fail(ctx, MOTH_E_GRAPH, arg,
                     "a view of a leaf that requires grad cannot be written in place; "
                     "write under moth.no_grad, or to a view of its .data");
  if (!recorded && !moth_needs_grad(base ? base : x)) return MOTH_OK;
  if (x->flags & MOTH_T_NO_GRAD_VIEW)
    return moth_fail(ctx, MOTH_E_GRAPH, arg,
                     "a view made under no_grad cannot be written in place under grad mode");
  if (x->flags & MOTH_T_MULTI_VIEW)
    return moth_fail(ctx, MOTH_E_GRAPH, arg,
                     "one of several views (of unbind, split or chunk) cannot be written in place "
                     "under grad mode; use select or narrow");
  if (x->flags & MOTH_T_FUNCTION)
    return moth_fail(ctx, MOTH_E_GRAPH, arg,
                     "an output of a Function cannot be written in place under grad mode; "
                     "clone it first");
  return MOTH_OK;
}

int moth_check_write(moth_tensor *x, const char *arg, bool recorded) {
  if (moth_layout_overlaps(&x->l))
    return moth_fail(x->ctx, MOTH_E_ALIAS, arg,
                     "%s cannot be written in place: its elements overlap (as after expand); "
                     "clone it first",
                     moth_str(x));
  return check_history(x, arg, recorded);
}

int moth_check_become(moth_tensor *x, const char *arg, bool other) {
  moth_ctx *ctx = x->ctx;
  moth_edge edge;
  int status = check_history(x, arg, false);
  if (!status) status = moth_edge_of(x, &edge);
  if (status) return status;
  if (x->leaf && x->leaf->grad)
    return moth_fail(ctx, MOTH_E_GRAPH, arg,
                     "%s has a gradient of this shape; clear it first: x.grad = nil", moth_str(x));
  if (other && !moth_base(x) && x->refs > 1)
    return moth_fail(ctx, MOTH_E_ALIAS, arg,
                     "%s has views, or is part of a graph; use as_strided", moth_str(x));
  return MOTH_OK;
}

void moth_become_view(moth_tensor *x, moth_tensor *y) {
  x->l = y->l;
  if (y->node) set_history(x, moth_node_retain(y->node), y->output);
  if (x->leaf) moth_node_release(x->leaf); /* older graphs keep theirs, of the old shape */
  x->leaf = NULL;
}

/* -- what a user asks of a tensor -- */

/* What may still wait for its shape. */
static moth_tensor *resolve_leaf(moth_ctx *ctx, const moth_handle *h) {
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  return x && x->flags & MOTH_T_SHAPELESS ? x : moth_resolve(ctx, h, NULL);
}

int32_t moth_requires_grad(moth_ctx *ctx, const moth_handle *h, int32_t on) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  moth_tensor *x = resolve_leaf(ctx, h);
  if (!x) return ctx->error.code;
  moth_edge edge;
  int status = moth_edge_of(x, &edge);
  if (status) return status;
  if (x->node && on) return MOTH_OK;
  if (x->node)
    return moth_fail(ctx, MOTH_E_GRAPH, NULL,
                     "only a leaf's requires_grad can be turned off; use detach() for %s",
                     moth_str(x));
  if (on && !moth_is_float(x->l.dtype))
    return moth_fail(ctx, MOTH_E_DTYPE, NULL, "only floating tensors can require grad, got %s",
                     moth_str(x));
  if (on) x->flags |= MOTH_T_REQUIRES;
  else x->flags &= ~(uint32_t)MOTH_T_REQUIRES;
  MOTH_NOTICE(ctx, REQUIRES, .x = x, .value = on);
  return MOTH_OK;
}

int32_t moth_retain_grad(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  moth_edge edge;
  if (!x || moth_edge_of(x, &edge)) return ctx->error.code;
  if (!edge.node)
    return moth_fail(ctx, MOTH_E_GRAPH, NULL, "%s does not require grad", moth_str(x));
  moth_node *n = x->node;
  if (!n) return MOTH_OK; /* leaves do so anyway */
  if (!n->retains) {
    int64_t bytes = n->nout * (int64_t)sizeof *n->retains;
    n->retains = moth_alloc(ctx, bytes);
    if (!n->retains) return ctx->error.code;
    memset(n->retains, 0, (size_t)bytes);
  }
  if (n->retains[x->output]) return MOTH_OK;
  moth_node *leaf = moth_leaf_of(x);
  if (!leaf) return ctx->error.code;
  n->retains[x->output] = moth_node_retain(leaf);
  return MOTH_OK;
}

int32_t moth_get_grad(moth_ctx *ctx, const moth_handle *h, moth_handle *grad) {
  MOTH_NEED(ctx, h && grad, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  if (!x) return ctx->error.code;
  *grad = (moth_handle){0, 0};
  if (MOTH_NOTICE(ctx, READ_GRAD, .x = x)) return ctx->error.code;
  if (!x->leaf || !x->leaf->grad) return MOTH_OK;
  return moth_hand_out(ctx, moth_tensor_retain(x->leaf->grad), grad);
}

int32_t moth_have_grads(moth_ctx *ctx, const moth_handle *h, uint32_t n) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  for (uint32_t i = 0; i < n; i++) {
    const moth_tensor *x = moth_resolve(ctx, &h[i], NULL);
    if (!x || !x->leaf || !x->leaf->grad || moth_sparse(x->leaf->grad)) return 0;
  }
  return 1;
}

int32_t moth_set_grad(moth_ctx *ctx, const moth_handle *h, const moth_handle *grad) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  const bool some = grad && grad->_slot;
  moth_tensor *x = some ? moth_resolve(ctx, h, NULL) : resolve_leaf(ctx, h), *g = NULL;
  if (!x) return ctx->error.code;
  if (some) {
    g = moth_resolve_any(ctx, grad, "grad");
    if (!g || (!moth_sparse(g) && !moth_resolve(ctx, grad, "grad"))) return ctx->error.code;
    if (g == x) return moth_fail(ctx, MOTH_E_ALIAS, "grad", "a tensor cannot be its own gradient");
    if (!moth_shape_same(&g->l, &x->l) || g->l.dtype != x->l.dtype)
      return moth_fail(ctx, MOTH_E_SHAPE, "grad", "%s cannot be the gradient of %s", moth_str(g),
                       moth_str(x));
  }
  if (MOTH_NOTICE(ctx, SET_GRAD, .x = x)) return ctx->error.code;
  moth_node *leaf = g || x->leaf ? moth_leaf_of(x) : NULL;
  if (!leaf) return g || x->leaf ? ctx->error.code : MOTH_OK;
  moth_leaf_set(leaf, g ? moth_tensor_retain(g) : NULL);
  return MOTH_OK;
}

int32_t moth_get_data(moth_ctx *ctx, const moth_handle *h, moth_handle *data) {
  MOTH_NEED(ctx, h && data, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  if (!x) return ctx->error.code;
  moth_storage *s = MOTH_NOTICE(ctx, SHARE, .x = x) ? NULL : moth_storage_alias(ctx, x->storage);
  if (!s) return ctx->error.code;
  moth_tensor *y = moth_tensor_like(ctx, &x->l, s);
  moth_storage_release(ctx, s);
  return y ? moth_hand_out(ctx, y, data) : ctx->error.code;
}

/* x has bytes of its own from now on. */
static void leave_base(moth_tensor *x) {
  moth_tensor *base = x->base;
  x->base = NULL;
  x->flags &= ~(uint32_t)(MOTH_T_MULTI_VIEW | MOTH_T_NO_GRAD_VIEW);
  moth_tensor_release(base);
}

static int keep_generator(const moth_tensor *x) {
  if (x != x->ctx->generator) return MOTH_OK;
  return moth_fail(x->ctx, MOTH_E_STATE, "data", "the default generator keeps its own storage");
}

int32_t moth_set_data(moth_ctx *ctx, const moth_handle *h, const moth_handle *data) {
  MOTH_NEED(ctx, h && data, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = moth_resolve(ctx, h, NULL), *v = x ? moth_resolve(ctx, data, "data") : NULL;
  if (!v) return ctx->error.code;
  if (v->l.dtype != x->l.dtype)
    return moth_fail(ctx, MOTH_E_DTYPE, "data", "%s cannot replace the data of %s", moth_str(v),
                     moth_str(x));
  if (!moth_shape_same(&v->l, &x->l) || v->l.device != x->l.device)
    return moth_fail(ctx, MOTH_E_SHAPE, "data", "%s cannot replace the data of %s", moth_str(v),
                     moth_str(x));
  if (v == x) return MOTH_OK;
  if (keep_generator(x)) return ctx->error.code;
  moth_storage *s = MOTH_NOTICE(ctx, SHARE, .x = v) ? NULL : moth_storage_alias(ctx, v->storage);
  if (!s) return ctx->error.code;
  moth_storage_release(ctx, x->storage);
  x->storage = s;
  x->l = v->l;
  if (x->leaf) moth_saved_set(moth_node_out(x->leaf, 0), &x->l);
  leave_base(x);
  return MOTH_NOTICE(ctx, SHARE, .x = x);
}

int32_t moth_become(moth_ctx *ctx, const moth_handle *h, const moth_handle *data) {
  MOTH_NEED(ctx, h && data, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = resolve_leaf(ctx, h), *v = x ? moth_resolve(ctx, data, "data") : NULL;
  if (!v) return ctx->error.code;
  if (v == x) return MOTH_OK;
  if (keep_generator(x)) return ctx->error.code;
  if (x->node || moth_base(x))
    return moth_fail(ctx, MOTH_E_GRAPH, NULL, "only a leaf can change its dtype; an op made %s",
                     moth_str(x));
  if (!(x->flags & MOTH_T_SHAPELESS) && !moth_shape_same(&v->l, &x->l))
    return moth_fail(ctx, MOTH_E_SHAPE, "data", "%s cannot replace the data of %s", moth_str(v),
                     moth_str(x));
  if ((x->flags & MOTH_T_REQUIRES) && !moth_is_float(v->l.dtype))
    return moth_fail(ctx, MOTH_E_DTYPE, "data", "only floating tensors can require grad, got %s",
                     moth_str(v));
  moth_storage *s = MOTH_NOTICE(ctx, SHARE, .x = v) ? NULL : moth_storage_alias(ctx, v->storage);
  if (!s) return ctx->error.code;
  moth_storage_release(ctx, x->storage);
  x->storage = s;
  x->l = v->l;
  leave_base(x);
  if (x->leaf) moth_node_release(x->leaf); /* older graphs keep theirs */
  x->leaf = NULL;
  x->flags &= ~(uint32_t)MOTH_T_SHAPELESS;
  return MOTH_NOTICE(ctx, SHARE, .x = x);
}

int32_t moth_shapeless(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  if (!x) return ctx->error.code;
  if (x->node || moth_base(x))
    return moth_fail(ctx, MOTH_E_GRAPH, NULL, "only a leaf can wait for its shape; an op made %s",
                     moth_str(x));
  x->flags |= MOTH_T_SHAPELESS;
  return MOTH_OK;
}

int32_t moth_detach(moth_ctx *ctx, const moth_handle *h, moth_handle *out) {
  MOTH_NEED(ctx, h && out, MOTH_E_ARG);
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  if (x && x->flags & MOTH_T_SHAPELESS) x = moth_resolve(ctx, h, NULL); /* says so */
  if (!x) return ctx->error.code;
  moth_tensor *y = MOTH_NOTICE(ctx, SHARE, .x = x) ? NULL : moth_tensor_alias(x);
  if (y) MOTH_NOTICE(ctx, DETACH, .x = x, .y = y);
  return y ? moth_hand_out(ctx, y, out) : ctx->error.code;
}

int32_t moth_detach_(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  if (!x) return ctx->error.code;
  if (moth_base(x))
    return moth_fail(ctx, MOTH_E_GRAPH, NULL, "a view cannot be detached in place; use detach()");
  set_history(x, NULL, 0); /* views made before keep theirs */
  x->flags &= ~(uint32_t)MOTH_T_REQUIRES;
  return MOTH_OK;
}

const char *moth_node_name(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, NULL);
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  moth_edge edge;
  if (!x || moth_edge_of(x, &edge) || !x->node) return NULL;
  return x->node->op ? x->node->op->name : x->node->name;
}

int32_t moth_hook_id(moth_ctx *ctx, const moth_handle *h, uint64_t *id, uint32_t *output) {
  MOTH_NEED(ctx, h && id && output, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *x = moth_resolve(ctx, h, NULL);
  moth_edge edge;
  if (!x || moth_edge_of(x, &edge)) return ctx->error.code;
  if (!edge.node)
    return moth_fail(ctx, MOTH_E_GRAPH, NULL, "%s does not require grad, so no hook would run",
                     moth_str(x));
  edge.node->flags |= MOTH_N_HOOKED | MOTH_N_KNOWN;
  *id = edge.node->id;
  *output = edge.output;
  return MOTH_OK;
}

static moth_node *node_of(moth_ctx *ctx, const moth_handle *h, uint32_t *output) {
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  moth_edge edge;
  if (!x || moth_edge_of(x, &edge)) return NULL;
  *output = edge.output;
  return edge.node;
}

int32_t moth_node_inspect(moth_ctx *ctx, const moth_handle *h, moth_node_info *info) {
  MOTH_NEED(ctx, h && info, MOTH_E_ARG);
  moth_error_clear(ctx);
  *info = (moth_node_info){0};
  const moth_node *n = node_of(ctx, h, &info->output);
  if (!n) return ctx->error.code;
  info->name = n->flags & MOTH_N_LEAF ? NULL : n->op ? n->op->name : n->name;
  info->id = n->id;
  info->ninputs = n->nin;
  info->noutputs = n->nout;
  return MOTH_OK;
}

int32_t moth_node_next(moth_ctx *ctx, const moth_handle *h, uint32_t i, moth_handle *next) {
  MOTH_NEED(ctx, h && next, MOTH_E_ARG);
  static const moth_layout none = {.ndim = 0, .numel = 1, .dtype = MOTH_F32};
  uint32_t output;
  moth_error_clear(ctx);
  *next = (moth_handle){0, 0};
  const moth_node *n = node_of(ctx, h, &output);
  if (!n || i >= n->nin || !n->edges[i].node) return ctx->error.code;
  moth_tensor *x = moth_tensor_bare(ctx, &none);
  if (!x) return ctx->error.code;
  moth_saved_tie(x, n->edges[i].node, n->edges[i].output);
  return moth_hand_out(ctx, x, next);
}

int32_t moth_node_hook(moth_ctx *ctx, const moth_handle *h, int32_t after) {
  MOTH_NEED(ctx, h, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  uint32_t output;
  moth_error_clear(ctx);
  moth_node *n = node_of(ctx, h, &output);
  if (!n) return ctx->error.code;
  n->flags |= MOTH_N_HOOKED | MOTH_N_KNOWN;
  if (after && !(n->flags & MOTH_N_LEAF)) n->flags |= MOTH_N_AFTER;
  return MOTH_OK;
}
