/* backward_lua.c -- functions by which Lua reads and sets gradients while a backward pass has
** stopped at a hook or a Function, and reads the results of a finished one.
*/
#include "backward_parts.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#include "op/copy.h"
#include "op/create.h"

static moth_task *stopped_task(moth_ctx *ctx, uint32_t task) {
  moth_task *t = moth_task_find(ctx, task);
  if (t && t->stopped) return t;
  if (t) moth_fail(ctx, MOTH_E_STATE, NULL, "this backward pass has not stopped at a node");
  return NULL;
}

int32_t moth_task_given(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad) {
  MOTH_NEED(ctx, grad, MOTH_E_ARG);
  moth_task *t = stopped_task(ctx, task);
  if (!t) return ctx->error.code;
  if (i >= t->current.node->nout) return moth_fail(ctx, MOTH_E_ARG, NULL, "no gradient %u", i);
  *grad = (moth_handle){0, 0};
  moth_tensor *dy = t->current.dys[i];
  return dy ? moth_hand_out(ctx, moth_tensor_retain(dy), grad) : MOTH_OK;
}

int32_t moth_task_zeros(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad) {
  MOTH_NEED(ctx, grad, MOTH_E_ARG);
  moth_task *t = stopped_task(ctx, task);
  if (!t) return ctx->error.code;
  const moth_node *n = t->current.node;
  if (i >= n->nout || !moth_node_out(n, i)->present)
    return moth_fail(ctx, MOTH_E_ARG, NULL, "no gradient %u", i);
  const moth_saved *s = moth_node_out(n, i);
  moth_tensor *y = NULL;
  int status = MOTH_CALL(ctx, &y, zeros, .size = {s->dims, s->ndim}, .dtype = s->dtype,
                         .device = s->device + 1);
  return status ? status : moth_hand_out(ctx, y, grad);
}

int32_t moth_task_put(moth_ctx *ctx, uint32_t task, uint32_t i, const moth_handle *grad) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_task *t = stopped_task(ctx, task);
  if (!t) return ctx->error.code;
  moth_node *n = t->current.node;
  bool function = t->dxs != NULL;
  if (i >= (function ? n->nin : n->nout))
    return moth_fail(ctx, MOTH_E_ARG, NULL, "no gradient %u", i);
  moth_tensor **at = function ? &t->dxs[i] : &t->current.dys[i], *g = NULL;
  moth_layout l;
  moth_saved_layout(function ? moth_node_in(n, i) : moth_node_out(n, i), &l);
  if (grad && grad->_slot) {
    const moth_node *to = function ? n->edges[i].node : n;
    g = to && to->flags & MOTH_N_LEAF ? moth_resolve_any(ctx, grad, NULL)
                                      : moth_resolve(ctx, grad, NULL);
    if (!g) return ctx->error.code;
    const bool casts = function && moth_is_float(g->l.dtype) && moth_is_float(l.dtype);
    if (!moth_shape_same(&g->l, &l) || (g->l.dtype != l.dtype && !casts))
      return moth_fail(ctx, MOTH_E_SHAPE, NULL,
                       "gradient " MOTH_POS " is %s, but the tensor it is for is %s %s",
                       (long long)i, moth_str(g), moth_dtype_name(l.dtype),
                       moth_str_shape(ctx, l.ndim, l.shape));
    if (g->l.dtype == l.dtype) moth_tensor_retain(g);
    else if (MOTH_CALL(ctx, &g, cast, .input = g, .dtype = l.dtype)) return ctx->error.code;
  }
  moth_tensor_release(*at);
  *at = g;
  return MOTH_OK;
}

int32_t moth_task_taken(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad) {
  MOTH_NEED(ctx, grad, MOTH_E_ARG);
  moth_task *t = stopped_task(ctx, task);
  if (!t) return ctx->error.code;
  *grad = (moth_handle){0, 0};
  moth_tensor *dx = t->dxs && i < t->current.node->nin ? t->dxs[i] : NULL;
  return dx ? moth_hand_out(ctx, moth_tensor_retain(dx), grad) : MOTH_OK;
}

int32_t moth_task_wants(moth_ctx *ctx, uint32_t task, uint32_t i) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_task *t = stopped_task(ctx, task);
  const moth_node *to = t && i < t->current.node->nin ? t->current.node->edges[i].node : NULL;
  return to && moth_task_useful(t, to);
}

int32_t moth_task_saved(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *x) {
  MOTH_NEED(ctx, x, MOTH_E_ARG);
  moth_task *t = stopped_task(ctx, task);
  if (!t) return ctx->error.code;
  moth_node *n = t->current.node;
  if (n->flags & MOTH_N_EMPTIED) n = moth_checkpoint_needed(n);
  *x = (moth_handle){0, 0};
  if (i >= n->nsaved || !moth_node_in(n, n->nin + i)->present) return MOTH_OK;
  const moth_saved *s = moth_node_in(n, n->nin + i);
  moth_tensor *y = moth_saved_open(n, s, "saved_tensors");
  if (y && s->from > 0 && n->edges[s->from - 1].node)
    moth_saved_tie(y, n->edges[s->from - 1].node, n->edges[s->from - 1].output);
  else if (y && s->from < 0)
    moth_saved_tie(y, n, (uint32_t)(-1 - s->from));
  return y ? moth_hand_out(ctx, y, x) : ctx->error.code;
}

int32_t moth_task_result(moth_ctx *ctx, uint32_t task, uint32_t i, moth_handle *grad) {
  MOTH_NEED(ctx, grad, MOTH_E_ARG);
  moth_task *t = moth_task_find(ctx, task);
  if (!t) return ctx->error.code;
  if (i >= t->nrequested) return moth_fail(ctx, MOTH_E_ARG, NULL, "no input %u", i);
  *grad = (moth_handle){0, 0};
  moth_tensor *dx = t->requested[i].grad;
  if (dx) return moth_hand_out(ctx, moth_tensor_retain(dx), grad);
  if (t->flags & MOTH_ALLOW_UNUSED) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_GRAPH, "inputs",
                   "input " MOTH_POS " was not used in the graph; allow_unused = true returns nil",
                   (long long)i);
}
