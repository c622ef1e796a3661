/* inspect.c -- nodes of the graph for Lua (grad_fn), and their hooks. */
#include "base/error.h"
#include "call/observer.h"
#include "tape.h"
#include "tensor/handles.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

const char *moth_node_name(moth_ctx *ctx, const moth_handle *h) {
  MOTH_NEED(ctx, h, NULL);
  moth_tensor *x = moth_resolve_any(ctx, h, NULL);
  moth_edge edge;
  if (!x || moth_edge_of(x, &edge) || !x->node) return NULL;
  return x->node->op ? x->node->op->name : x->node->name;
}

static void mark_hooked(moth_node *n) {
  n->flags |= MOTH_N_HOOKED | MOTH_N_KNOWN;
  if (n->flags & MOTH_N_LEAF) n->ctx->hooked_leaves = true;
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
  mark_hooked(edge.node);
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
  mark_hooked(n);
  if (after && !(n->flags & MOTH_N_LEAF)) n->flags |= MOTH_N_AFTER;
  return MOTH_OK;
}
