/* tape.c -- recording: the nodes that ops, writes in place and Functions of Lua's leave behind. */
#include "base/coroutine.h"

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

/* Without this no edge leads to x. A view may have fallen behind its base, which needs one. */
static inline bool may_need_grad(const moth_tensor *x) {
  return moth_is_float(x->l.dtype) && (x->node || x->base || (x->flags & MOTH_T_REQUIRES));
}

/* Edges to whatever needs a gradient; which arguments do, as a mask over the op's rows. Saves the
** layouts on the way. */
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

/* The bytes of the inputs that the gradients of the arguments `wanting` read. */
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
  n->id = ++ctx->ids; /* after its edges: a leaf met here for the first time got a smaller one */
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
  moth_save(moth_node_out(n, 0), target, false);
  int status = moth_write_plan(target, n, 0, w);
  w->keeps = reads_result(op, args, 0, wanting);
  if (status) moth_write_drop(w);
  return status;
}

/* -- Functions written in Lua -- */

int moth_node_function(moth_ctx *ctx, const char *name, moth_tensor **in, uint32_t nin,
                       moth_tensor **saved, uint32_t nsaved, uint32_t nout, int64_t nargs,
                       moth_node **made) {
  moth_node *n = moth_node_new(ctx, nin, nsaved, nout, MOTH_MAX_DIMS, nargs);
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
    moth_save(moth_node_in(n, i), in[i], false);
  }
  n->id = ++ctx->ids; /* after its edges, see make_node */
  for (uint32_t i = 0; i < nsaved; i++) {
    if (!saved[i]) continue;
    moth_save(moth_node_in(n, nin + i), saved[i], true);
    for (uint32_t k = 0; k < nin; k++)
      if (in[k] == saved[i]) moth_node_in(n, nin + i)->from = (int16_t)(k + 1);
  }
  return MOTH_OK;
}

/* Output i. One that is an input was written in place: its history is rewritten. Any other that
** has a history is handed on as an alias with a history of its own. */
static int tie_output(moth_ctx *ctx, moth_node *n, uint32_t i, moth_handle *h, moth_tensor *y,
                      bool is_input) {
  moth_save(moth_node_out(n, i), y, false);
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
  MOTH_NEED(ctx, name && (inputs || !ninputs) && (outputs || !noutputs) && (saved || !nsaved) &&
             node, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *in[FUNCTION_ROOM], *out[FUNCTION_ROOM], *kept[FUNCTION_ROOM];
  moth_error_clear(ctx);
  moth_settle_modes(ctx);
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
      if (kept[k] == out[i]) moth_node_in(n, ninputs + k)->from = (int16_t)(-1 - (int)i);
    status = tie_output(ctx, n, i, &outputs[i], out[i], is_input);
    if (nondiff & FRESH) out[i]->flags &= ~(uint32_t)MOTH_T_FUNCTION;
  }
  if (!status) *node = n->id;
  moth_node_release(n);
  return status;
}
