/* node_gradient.c -- runs the gradient of one node: opens the tensors that it saved, has the
** functions that gradient formulas call (GRAD, moth_flow), and collects the results.
*/
#include "backward_parts.h"
#include "device/device.h"
#include "call/registry.h"
#include "tensor/sparse.h"
#include "tape.h"
#include "tensor/shape.h"
#include "gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "call/autocast.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#include "op/arith.h"
#include "op/copy.h"
#include "op/create.h"
#include "op/reduce.h"
#include "op/unary.h"
#include "op/view.h"

/* -- functions for formulas -- */

moth_tensor *moth_grad_own(moth_grad *g, moth_tensor *take) {
  if (!take) {
    if (!g->status) g->status = g->ctx->error.code;
    return NULL;
  }
  moth_results pool = {g->ctx, g->pool, g->npool, g->pool_capacity};
  int status = moth_results_push(&pool, take);
  g->pool = pool.at;
  g->npool = pool.n;
  g->pool_capacity = pool.capacity;
  if (!status) return take;
  g->status = status;
  return NULL;
}

moth_tensor *moth_grad_run(moth_grad *g, const moth_op *op, const void *args) {
  moth_tensor *out[MOTH_MAX_OUTPUTS] = {NULL};
  if (g->status) return NULL;
  g->status = moth_run_gradient(op, args, out);
  for (uint32_t i = 1; i < MOTH_MAX_OUTPUTS; i++) moth_tensor_release(out[i]);
  return g->status ? NULL : moth_grad_own(g, out[0]);
}

moth_tensor *moth_grad_run_over(moth_grad *g, const moth_op *op, const void *args) {
  moth_tensor *dy = g->dy;
  if (g->status || !g->last || dy->refs > 1 || !moth_storage_unique(dy->storage) ||
      !moth_dense(dy))
    return moth_grad_run(g, op, args);
  g->status = moth_run_into(op, args, dy);
  return g->status ? NULL : moth_grad_own(g, moth_tensor_retain(dy));
}

#define MIN_SPENT_BYTES 4096 /* bytes */

void moth_spent(moth_grad *g, moth_tensor *input) {
  moth_saved *s = moth_node_in(g->node, input->arg);
  if (g->status || !g->last || input->refs > 1 || !input->storage || !s->storage ||
      s->storage->nbytes < MIN_SPENT_BYTES)
    return;
  moth_storage_release(g->ctx, s->storage);
  moth_storage_release(g->ctx, input->storage);
  s->storage = input->storage = NULL;
}

moth_tensor *moth_grad_number(moth_grad *g, double value) {
  moth_layout l = {.dtype = MOTH_F64, .numel = 1};
  if (g->status) return NULL;
  moth_tensor *x = moth_tensor_new(g->ctx, &l);
  if (x) {
    memcpy(moth_at(x), &value, 8);
    x->flags = MOTH_T_NUMBER;
    if (value >= -1e15 && value <= 1e15 && value == (double)(int64_t)value)
      x->flags |= MOTH_T_WHOLE;
  }
  return moth_grad_own(g, x);
}

/* A single zero, broadcast. On the CPU it is a number operand, which fits any dtype. */
moth_tensor *moth_grad_zeros(moth_grad *g, const moth_tensor *x) {
  if (g->status) return NULL; /* x may be NULL after an error */
  moth_tensor *zero = x->l.device ? GRAD(g, zeros, .size = {x->l.shape, 0}, .dtype = x->l.dtype,
                                         .device = moth_device_of(x))
                                  : moth_grad_number(g, 0);
  return GRAD(g, spread, .input = zero, .size = {x->l.shape, x->l.ndim});
}

moth_tensor *moth_grad_real(moth_grad *g, moth_tensor *x) {
  if (!x || !x->storage || moth_compute_dtype(x->l.dtype) == x->l.dtype) return x;
  return GRAD(g, cast, .input = x, .dtype = moth_compute_dtype(x->l.dtype));
}

/* The quotient of the root gradient 1 is kept for the next pass. Broadcasts of the root gradient
** share its storage but have another shape. */
moth_tensor *moth_grad_share(moth_grad *g, moth_tensor *dy, double n) {
  const int dtype = dy->l.dtype;
  moth_ones *k = dy->l.device && !g->ctx->grad_mode ? moth_ones_of(g->ctx) : NULL;
  const bool one = k && k->one && k->one->storage == dy->storage && dy->l.ndim == 0 &&
                   !moth_storage_version(dy->storage);
  moth_tensor *part = one && k->parts == n ? moth_ones_again(k->share, dy->l.device, dtype) : NULL;
  if (part) return moth_grad_own(g, part);
  part = GRAD(g, div, .input = moth_grad_real(g, dy), .other = moth_grad_number(g, n),
              .rounding_mode = MOTH_ROUND_NONE);
  if (part && part->l.dtype != dtype) part = GRAD(g, cast, .input = part, .dtype = dtype);
  if (!part || !one) return part;
  moth_tensor_release(k->share);
  k->share = moth_grad_own(g, moth_tensor_like(g->ctx, &part->l, part->storage));
  if (k->share) moth_tensor_retain(k->share);
  k->parts = n;
  return part;
}

/* Sums dx over the dimensions that broadcasting added to `input`. */
static moth_tensor *sum_to(moth_grad *g, const moth_tensor *input, moth_tensor *dx) {
  int64_t dims[MOTH_MAX_DIMS], n = 0;
  int more = dx->l.ndim - input->l.ndim;
  for (int d = 0; d < dx->l.ndim; d++)
    if (d < more || (input->l.shape[d - more] == 1 && dx->l.shape[d] != 1)) dims[n++] = d;
  if (n == 0) return dx;
  const bool drops = n == more; /* no view of the sum is needed, so it can be kept */
  dx = GRAD(g, sum, .input = dx, .dim = {dims, n}, .keepdim = !drops, .dtype = -1);
  if (!dx || more <= 0 || drops) return dx;
  return GRAD(g, view, .input = dx, .shape = {input->l.shape, input->l.ndim});
}

/* -- gradients in two dtypes -- */

int moth_flow_half(const moth_grad *g, const moth_tensor *input) {
  if (!moth_wants(g, input) || !g->task || g->ctx->grad_mode || input->l.dtype != MOTH_F32 ||
      !input->l.device)
    return MOTH_NO_HALF;
  const moth_node *n = g->edges[input->arg].node;
  if (!n->op || !(n->op->flags & MOTH_OP_PASSES_GRADIENT)) return MOTH_NO_HALF;
  for (uint32_t i = 0; i < 2; i++) {
    moth_layout l;
    moth_saved_layout(moth_node_in(n, i), &l);
    if (n->edges[i].node && moth_is_half(l.dtype) && moth_shape_same(&l, &input->l))
      return l.dtype;
  }
  return MOTH_NO_HALF;
}

void moth_flow_keep(moth_grad *g, const moth_tensor *dx, moth_tensor *half_copy) {
  moth_half_copy_keep(&g->task->half_copy, dx, half_copy);
}

static moth_tensor *cast_to(moth_grad *g, moth_tensor *dx, int dtype) {
  moth_task *t = g->task;
  moth_tensor *half_copy =
    t && !g->ctx->grad_mode ? moth_half_copy_find(&t->half_copy, dx, dtype) : NULL;
  if (!half_copy || !moth_layout_same(&half_copy->l, &dx->l))
    return GRAD(g, cast, .input = dx, .dtype = dtype);
  t->half_copy.y = NULL;
  return moth_grad_own(g, half_copy);
}

int moth_flow(moth_grad *g, const moth_tensor *input, moth_tensor *dx) {
  if (g->status || !dx || !moth_wants(g, input)) return g->status;
  if (!moth_shape_same(&dx->l, &input->l)) dx = sum_to(g, input, dx);
  if (dx && dx->l.dtype != input->l.dtype) dx = cast_to(g, dx, input->l.dtype);
  if (!dx) return g->status;
  if (!moth_shape_same(&dx->l, &input->l))
    return g->status = moth_fail(g->ctx, MOTH_E_SHAPE, NULL, "a gradient of %s has the shape of %s",
                                 moth_str(input), moth_str(dx));
  moth_tensor **at = &g->dx[input->arg];
  if (*at) {
    dx = GRAD(g, add, .input = *at, .other = dx, .alpha = {.as.number = 1});
    if (!dx) return g->status;
    moth_tensor_release(*at);
  }
  *at = moth_tensor_retain(dx);
  return MOTH_OK;
}

/* Does only the op that made input, which casts the gradient itself, read the gradient? */
static bool may_flow_uncast(const moth_grad *g, const moth_tensor *input, const moth_tensor *dx) {
  const moth_node *n = g->edges[input->arg].node;
  if (g->ctx->grad_mode || g->ctx->anomaly || !moth_is_half(dx->l.dtype) ||
      input->l.dtype != MOTH_F32 || n->flags & MOTH_N_HOOKED || n->retains || !n->op ||
      !(n->op->flags & MOTH_OP_HALF_GRADIENT) || g->edges[input->arg].output)
    return false;
  for (uint32_t i = 0; i < g->task->nrequested; i++)
    if (g->task->requested[i].node == n) return false;
  return true;
}

int moth_flow_uncast(moth_grad *g, const moth_tensor *input, moth_tensor *dx) {
  if (g->status || !g->task || !moth_wants(g, input) || g->dx[input->arg] ||
      !may_flow_uncast(g, input, dx))
    return moth_flow(g, input, dx);
  g->dx[input->arg] = moth_tensor_retain(dx);
  return MOTH_OK;
}

/* -- opening a node -- */

/* Opens a saved tensor. It has a history only if the gradient itself is recorded. */
static moth_tensor *open_saved(moth_grad *g, moth_node *n, const moth_saved *s, const char *what,
                               moth_node *history, uint32_t output) {
  moth_tensor *x = moth_grad_own(g, moth_saved_open(n, s, what));
  if (x && history && g->ctx->grad_mode) moth_saved_tie(x, history, output);
  return x;
}

static int open_inputs(moth_grad *g, moth_node *n, void *args) {
  moth_cursor c = {.op = n->op, .args = args};
  while (moth_next_input(&c)) {
    const moth_saved *s = moth_node_in(n, c.arg);
    const moth_edge *edge = &n->edges[c.arg];
    *c.at = NULL;
    if (!s->present) continue;
    *c.at = open_saved(g, n, s, n->op->rows[c.from].name, edge->node, edge->output);
    if (!*c.at) return g->status;
    (*c.at)->arg = c.arg;
  }
  return MOTH_OK;
}

static int open_outputs(moth_grad *g, moth_node *n) {
  for (uint32_t i = 0; i < n->nout; i++) {
    const moth_saved *s = moth_node_out(n, i);
    if (!s->present) continue;
    bool shown = i < n->op->nout && moth_is_float(s->dtype);
    g->out[i] = open_saved(g, n, s, "the result", shown ? n : NULL, i);
    if (!g->out[i]) return g->status;
  }
  return MOTH_OK;
}

static void grad_close(moth_grad *g, int64_t list_bytes, void *list) {
  while (g->npool) moth_tensor_release(g->pool[--g->npool]);
  moth_dealloc(g->ctx, g->pool, g->pool_capacity * (int64_t)sizeof(moth_tensor *));
  moth_dealloc(g->ctx, list, list_bytes);
}

/* Points the list arguments of `args` to memory for their tensors. */
static void place_lists(const moth_op *op, void *args, moth_tensor **space) {
  for (uint32_t i = 0; i < op->nrows; i++)
    if (moth_kind_is_list(op->kinds[i])) {
      moth_tensors *list = (moth_tensors *)(void *)moth_arg_at(op, args, i);
      list->at = space;
      space += list->n;
    }
}

/* In anomaly mode: fails at the node's op if a gradient contains NaN. */
static int refuse_nan(moth_node *n, moth_tensor **dxs) {
  moth_ctx *ctx = n->ctx;
  for (uint32_t i = 0; i < n->nin; i++) {
    moth_tensor *nan = NULL, *found = NULL, *here = NULL;
    if (!dxs[i]) continue;
    moth_tensor *held = moth_sparse(dxs[i]) ? moth_sparse_values(dxs[i]) : dxs[i];
    int status = held ? MOTH_CALL(ctx, &nan, isnan, .input = held) : ctx->error.code;
    if (held != dxs[i]) moth_tensor_release(held);
    if (!status) status = MOTH_CALL(ctx, &found, any, .input = nan);
    if (!status && !(here = moth_to_host(found))) status = ctx->error.code;
    bool bad = here && *moth_at(here);
    moth_tensor_release(nan);
    moth_tensor_release(found);
    moth_tensor_release(here);
    if (status) return status;
    if (!bad) continue;
    moth_error_blame(ctx, n->op->name);
    return moth_fail(ctx, MOTH_E_DOMAIN, NULL, "the gradient of its input " MOTH_POS " holds NaN",
                     (long long)i);
  }
  return MOTH_OK;
}

int moth_node_run(moth_node *n, moth_task *task, moth_tensor **dys, moth_tensor **dxs) {
  moth_ctx *ctx = n->ctx;
  moth_tensor *out[MOTH_MAX_OUTPUTS] = {NULL};
  union {
    moth_ctx *ctx;
    char bytes[sizeof(moth_ctx *) + MOTH_MAX_SLOTS * sizeof(moth_slot)];
  } args;
  /* memory for list arguments, then for `wants` */
  int64_t bytes = n->nin * (int64_t)(sizeof(moth_tensor *) + sizeof(bool)) + 16;
  moth_tensor **list = moth_alloc(ctx, bytes);
  if (!list) return ctx->error.code;
  bool *wants = (bool *)(list + n->nin);
  for (uint32_t i = 0; i < n->nin; i++) {
    const moth_node *to = n->edges[i].node;
    wants[i] = to && (!task || moth_task_useful(task, to));
  }
  moth_grad g = {.ctx = ctx, .dy = dys[0], .dys = dys, .out = out, .wants = wants, .dx = dxs,
                 .nin = n->nin, .task = task, .edges = n->edges, .node = n,
                 .last = task && !(task->flags & MOTH_RETAIN_GRAPH) && !ctx->grad_mode};
  memcpy(&args, n->args, n->op->size);
  place_lists(n->op, &args, list);
  if (!open_inputs(&g, n, &args) && !open_outputs(&g, n)) {
    int status = n->op->grad(&args, &g);
    if (!g.status) g.status = status;
    if (!g.status && ctx->anomaly) g.status = refuse_nan(n, dxs);
  }
  if (g.status) {
    if (!ctx->error.node) ctx->error.node = n->id;
    for (uint32_t i = 0; i < n->nin; i++) {
      moth_tensor_release(dxs[i]);
      dxs[i] = NULL;
    }
  }
  grad_close(&g, bytes, list);
  return g.status;
}
