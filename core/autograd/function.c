/* function.c -- records a Function that is written in Lua: its node, inputs and results. */
#include "base/alloc.h"
#include "base/coroutine.h"
#include "base/error.h"
#include "call/observer.h"
#include "tape.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

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

/* Connects output i to the node. An output that is an input was written in place: its history
** changes. Another output with a history is replaced by an alias with a new history. */
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

#define FUNCTION_MAX 63
#define FRESH (UINT64_C(1) << FUNCTION_MAX) /* in nondiff: the outputs share no bytes with other
                                             ** tensors, so they may be written in place as results
                                             ** of ops */

int32_t moth_function(moth_ctx *ctx, const char *name, const moth_handle *inputs, uint32_t ninputs,
                      moth_handle *outputs, uint32_t noutputs, uint64_t nondiff,
                      const moth_handle *saved, uint32_t nsaved, uint64_t *node) {
  MOTH_NEED(ctx, name && (inputs || !ninputs) && (outputs || !noutputs) && (saved || !nsaved) &&
             node, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_tensor *in[FUNCTION_MAX], *out[FUNCTION_MAX], *kept[FUNCTION_MAX];
  moth_error_clear(ctx);
  moth_settle_modes(ctx);
  *node = 0;
  if (ninputs > FUNCTION_MAX || noutputs > FUNCTION_MAX || nsaved > FUNCTION_MAX)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL, "a Function with more than %d tensors",
                     FUNCTION_MAX);
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
