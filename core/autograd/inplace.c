/* inplace.c -- in-place writes: their checks, and how they change histories (tape.h). */
#include "tensor/loop.h"
#include "call/observer.h"
#include "tensor/sparse.h"
#include "tape.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/handles.h"

#include "op/strided.h"

void moth_history_set(moth_tensor *x, moth_node *take, uint32_t output) {
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

/* Makes a new history for a view whose base was written: the view of the base's new value. */
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
  moth_history_set(x, n, 0);
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
    moth_history_set(target, w->node, w->output);
    target->epoch++;
  } else {
    moth_history_set(moth_base(target), w->put, 0);
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

/* May the history of x be changed? */
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
  if (y->node) moth_history_set(x, moth_node_retain(y->node), y->output);
  if (x->leaf) moth_node_release(x->leaf); /* older graphs keep the leaf of the old shape */
  x->leaf = NULL;
}

/* -- functions for tensors of the user -- */
