/* record.c -- recording: makes the nodes of ops and of in-place writes. */
#include "base/error.h"

#include "tensor/loop.h"
#include "call/observer.h"
#include "call/registry.h"
#include "tape.h"

bool moth_records(const moth_op *op, const void *args) {
  moth_ctx *ctx = *(moth_ctx *const *)args;
  if (!ctx->grad_mode || !op->grad) return false;
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c))
    if (*c.at && moth_is_float((*c.at)->l.dtype) && moth_needs_grad(*c.at)) return true;
  return false;
}

/* Can x need a gradient? An outdated view may need one through its base. */
static inline bool may_need_grad(const moth_tensor *x) {
  return moth_is_float(x->l.dtype) && (x->node || x->base || (x->flags & MOTH_T_REQUIRES));
}

/* Adds edges to the inputs that need a gradient, and saves the layouts of all inputs. *wanting := a
** mask of the op's rows with such inputs. */
static int add_edges(moth_node *n, const void *args, moth_tensor *before, uint64_t *wanting) {
  moth_cursor c = {.op = n->op, .args = (void *)(uintptr_t)args};
  *wanting = 0;
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at;
    if (!x) continue;
    moth_save(moth_node_in(n, c.arg), before && c.arg == 0 ? before : x, false);
    if (!may_need_grad(x)) continue;
    moth_edge *edge = &n->edges[c.arg];
    int status = moth_edge_of(x, edge);
    if (status) return status;
    if (!edge->node) continue;
    moth_node_retain(edge->node);
    *wanting |= (uint64_t)1 << c.from;
  }
  return MOTH_OK;
}

/* Saves the bytes of the inputs that the gradients of the arguments `wanting` read. */
static void save_inputs(moth_node *n, const void *args, uint64_t wanting, moth_tensor *before) {
  const moth_op *op = n->op;
  bool any = false;
  for (uint32_t row = 0; row < op->nrows; row++) any |= (op->save_in[row] & wanting) != 0;
  if (!any) return;
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&c))
    if (*c.at && op->save_in[c.from] & wanting)
      moth_save(moth_node_in(n, c.arg), before && c.arg == 0 ? before : *c.at, true);
}

/* Does a gradient read result i? Yes if the gradient of an argument in `wanting` reads it, or if
** `saves` names it with an enum argument that is not its first choice. */
static bool reads_result(const moth_op *op, const void *args, uint32_t i, uint64_t wanting) {
  const uint64_t readers = op->save_out[i];
  if (!readers || readers & wanting) return readers != 0;
  for (uint32_t row = 0; row < op->nrows; row++)
    if (readers >> row & 1u && op->kinds[row] == MOTH_KIND_enum)
      return moth_arg_at(op, args, row)->integer != 0;
  return false;
}

/* Makes the node for op(args) = out, without connecting it. Returns NULL after an error. */
static moth_node *make_node(const moth_op *op, const void *args, moth_tensor **out,
                            moth_tensor *before, uint64_t *wanting) {
  moth_ctx *ctx = *(moth_ctx *const *)args;
  int32_t ndim = 0;
  for (uint32_t i = 0; out && i < op->nout + op->nhidden && out[i]; i++)
    if (out[i]->l.ndim > ndim) ndim = out[i]->l.ndim;
  moth_node *n = moth_node_for(op, args, ndim);
  if (!n) return NULL;
  if (add_edges(n, args, before, wanting)) {
    int code = ctx->error.code;
    moth_node_release(n);
    ctx->error.code = code;
    return NULL;
  }
  n->id = ++ctx->ids; /* set after the edges: leaf nodes that add_edges made get smaller ids */
  save_inputs(n, args, *wanting, before);
  for (uint32_t i = 0; out && i < n->nout && out[i]; i++)
    moth_save(moth_node_out(n, i), out[i], reads_result(op, args, i, *wanting));
  return n;
}

int moth_record(const moth_op *op, const void *args, moth_tensor **out) {
  if (!moth_records(op, args)) return MOTH_OK;
  uint64_t wanting;
  moth_node *n = make_node(op, args, out, NULL, &wanting);
  if (!n) return (*(moth_ctx *const *)args)->error.code;
  for (uint32_t i = 0; i < op->nout; i++) {
    if (!moth_is_float(out[i]->l.dtype)) continue;
    moth_node_release(out[i]->node); /* for a view of a view it is NULL */
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
  moth_save(moth_node_out(n, 0), target, false);
  int status = moth_write_plan(target, n, 0, w);
  w->keeps = reads_result(op, args, 0, wanting);
  if (status) moth_write_drop(w);
  return status;
}
