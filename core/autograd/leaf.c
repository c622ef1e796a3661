/* leaf.c -- .requires_grad, .grad, .data and detach of a tensor. */
#include "base/alloc.h"
#include "base/error.h"
#include "call/observer.h"
#include "tape.h"
#include "tensor/handles.h"
#include "tensor/loop.h"
#include "tensor/sparse.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

/* Resolves a handle; the tensor may have no shape yet. */
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
  if (!n) return MOTH_OK; /* leaves keep it in any case */
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

/* Makes x independent of its base: it has its own bytes now. */
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
  if (x->leaf) moth_node_release(x->leaf); /* older graphs keep their leaf */
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
  if (x && x->flags & MOTH_T_SHAPELESS) x = moth_resolve(ctx, h, NULL); /* sets the error */
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
  moth_history_set(x, NULL, 0); /* views made earlier keep their history */
  x->flags &= ~(uint32_t)MOTH_T_REQUIRES;
  return MOTH_OK;
}
