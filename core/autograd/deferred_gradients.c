/* deferred_gradients.c -- deferred weight gradients. If many small steps with few rows each share a
** weight, each step would read and write its gradient once. The operands of these products are kept
** instead and multiplied in one product. They take less memory than the gradient, which does not
** exist until then. The rows that such a layer's bias sums are deferred too. moth_flow_both does
** not defer: on a GPU one product computes the gradients of weight and bias.
*/
#include "backward_parts.h"
#include "call/registry.h"
#include "tensor/tensor.h"
#include "gradient.h"
#include "base/alloc.h"

#include "op/join.h"
#include "op/matmul.h"
#include "op/reduce.h"

/* MAX_DEFERRED: deferred products of a weight. A weight has at least MIN_WEIGHT_RATIO times the
** elements of its operands. */
enum { MAX_DEFERRED = 64, MIN_WEIGHT_RATIO = 8 };

struct deferred {
  uint32_t n;
  int64_t numel; /* of all operands; a bias has only `a` */
  moth_tensor *a[MAX_DEFERRED], *b[MAX_DEFERRED];
};

static void release(struct deferred *w) {
  while (w->n) {
    moth_tensor_release(w->a[--w->n]);
    if (w->b[w->n]) moth_tensor_release(w->b[w->n]);
  }
  w->numel = 0;
}

void moth_deferred_drop(moth_task *t, task_entry *e) {
  if (!e->deferred) return;
  release(e->deferred);
  moth_dealloc(t->ctx, e->deferred, sizeof *e->deferred);
  e->deferred = NULL;
  t->ndeferred--;
}

/* The sum of all deferred rows of a bias. */
static int add_rows(moth_ctx *ctx, struct deferred *w, moth_tensor **y) {
  moth_tensor *rows = NULL;
  int status = MOTH_CALL(ctx, &rows, cat, .tensors = {w->a, w->n}, .dim = 0);
  if (!status)
    status = MOTH_CALL(ctx, y, sum, .input = rows, .dim = {(const int64_t[]){0}, 1}, .dtype = -1);
  moth_tensor_release(rows);
  return status;
}

/* Computes the deferred products and adds them to the gradient. */
static int add(moth_task *t, task_entry *e) {
  struct deferred *w = e->deferred;
  moth_tensor *y = NULL;
  int status = MOTH_OK;
  if (w->n && !w->b[0]) status = add_rows(t->ctx, w, &y);
  else if (w->n == 1) status = MOTH_CALL(t->ctx, &y, outer_sum, .input = w->a[0], .other = w->b[0]);
  else if (w->n)
    status = MOTH_CALL(t->ctx, &y, outer_sums, .input = {w->a, w->n}, .other = {w->b, w->n});
  release(w);
  if (!status && y) status = moth_slices_fill(t, e);
  if (!status && y) return moth_task_gather(t->ctx, &e->dys[0], y);
  moth_tensor_release(y);
  return status;
}

int moth_deferred_add(moth_task *t, task_entry *e) {
  int status = add(t, e);
  moth_deferred_drop(t, e);
  return status;
}

int moth_deferred_add_all(moth_task *t) {
  int status = MOTH_OK;
  for (uint32_t i = 0; !status && t->ndeferred && i < t->nheap; i++) {
    task_entry *e = &t->entries[t->heap[i]];
    if (e->deferred) status = moth_deferred_add(t, e);
  }
  return status;
}

/* Is the operand small enough to be kept? */
static bool is_small(const moth_tensor *x, const moth_tensor *weight) {
  int64_t bytes = weight->l.numel * moth_dtype_size[weight->l.dtype];
  return x->l.dtype == weight->l.dtype && x->l.ndim > 0 && x->storage->nbytes <= bytes &&
         x->l.numel <= weight->l.numel / (2 * MIN_WEIGHT_RATIO);
}

/* May products for the gradient of `input` be deferred at all? */
static bool may_defer(const moth_grad *g, const moth_tensor *input) {
  const moth_edge *to = &g->edges[input->arg];
  return !g->ctx->grad_mode && !g->ctx->anomaly && to->node->nout == 1 && !g->dx[input->arg];
}

/* Defers the product of a and b, until the operands have more than `most` elements. */
static int defer(moth_grad *g, const moth_tensor *input, moth_tensor *a, moth_tensor *b,
                   int64_t most) {
  moth_task *t = g->task;
  const moth_edge *to = &g->edges[input->arg];
  task_entry *e = moth_task_enter(t, to->node);
  if (!e) return g->ctx->error.code;
  if (!e->deferred) {
    e->deferred = moth_alloc(g->ctx, sizeof *e->deferred);
    if (!e->deferred) return g->ctx->error.code;
    e->deferred->n = 0;
    e->deferred->numel = 0;
    t->ndeferred++;
  }
  struct deferred *at = e->deferred;
  int64_t numel = a->l.numel + (b ? b->l.numel : 0);
  if (at->n == MAX_DEFERRED || at->numel + numel > most || (at->n && !at->b[0] != !b)) {
    int status = add(t, e);
    if (status) return status;
  }
  at->numel += numel;
  at->a[at->n] = moth_tensor_retain(a);
  at->b[at->n++] = b ? moth_tensor_retain(b) : NULL;
  return MOTH_OK;
}

/* Is the product of a and b, for a weight, deferred? */
static bool defers(const moth_grad *g, const moth_tensor *weight, const moth_tensor *a,
                  const moth_tensor *b) {
  const moth_layout *w = &weight->l;
  return may_defer(g, weight) && w->ndim == 2 && w->numel > 0 && is_small(a, weight) &&
         is_small(b, weight) && w->shape[0] == a->l.shape[a->l.ndim - 1] &&
         w->shape[1] == b->l.shape[b->l.ndim - 1] && a->l.ndim == b->l.ndim &&
         a->l.numel / w->shape[0] == b->l.numel / w->shape[1];
}

bool moth_flow_both(moth_grad *g, const moth_tensor *weight, const moth_tensor *bias,
                    moth_tensor *a, moth_tensor *x) {
  moth_tensor *out[MOTH_MAX_OUTPUTS] = {NULL};
  if (g->status || !a || !a->l.device || !moth_is_float(a->l.dtype) || a->l.ndim < 2 ||
      a->l.dtype != x->l.dtype || g->ctx->grad_mode || !moth_wants(g, weight) ||
      !moth_wants(g, bias) || defers(g, weight, a, x))
    return false;
  g->status = moth_run(&moth_op_outer_sum_rows,
                       &(outer_sum_rows_args){.ctx = g->ctx, .input = a, .other = x}, out);
  if (g->status) return true;
  moth_flow(g, weight, moth_grad_own(g, out[0]));
  moth_flow(g, bias, moth_grad_own(g, out[1]));
  return true;
}

int moth_flow_outer(moth_grad *g, const moth_tensor *input, moth_tensor *a, moth_tensor *b) {
  if (g->status || !a || !b || !moth_wants(g, input)) return g->status;
  if (defers(g, input, a, b)) return g->status = defer(g, input, a, b, input->l.numel);
  return moth_flow(g, input, GRAD(g, outer_sum, .input = a, .other = b));
}

int moth_flow_rows(moth_grad *g, const moth_tensor *bias, const moth_tensor *weight,
                   moth_tensor *a) {
  if (g->status || !a || !moth_wants(g, bias)) return g->status;
  if (may_defer(g, bias) && bias->l.ndim == 1 && bias->l.numel > 0 && a->l.ndim == 2 &&
      a->l.shape[1] == bias->l.numel && bias->l.dtype == weight->l.dtype && is_small(a, weight))
    return g->status = defer(g, bias, a, NULL, weight->l.numel);
  return moth_flow(g, bias, a);
}
