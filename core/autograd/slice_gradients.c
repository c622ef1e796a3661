/* slice_gradients.c -- sums of slice gradients: several views of one tensor have gradients for
** their own elements only. Ranges along one dimension (select, narrow, split, unbind) are written
** into a tensor without initial values. The ranges that remain are set to 0 when the sum is needed.
** All other gradients are added to the sum.
*/
#include "backward_parts.h"
#include "call/registry.h"
#include "tensor/shape.h"
#include "gradient.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include "op/arith.h"
#include "op/copy.h"
#include "op/create.h"

enum { MAX_RANGES = 16 };
#define MIN_SLICED_BYTES ((int64_t)64 << 10) /* on the CPU, smaller zeros cost less than calls */

typedef struct range {
  int64_t from, to;
} range;

struct moth_slices { /* the written ranges of an entry's gradient, sorted and disjoint */
  int32_t dim;
  uint32_t n;
  range of[MAX_RANGES];
};

bool moth_flow_unseen(const moth_grad *g, const moth_tensor *input) {
  const moth_node *n = g->edges[input->arg].node;
  if (!n || !n->op || !n->op->view || n->flags & (MOTH_N_LEAF | MOTH_N_LUA | MOTH_N_HOOKED))
    return false;
  for (uint32_t i = 0; g->task && i < g->task->nrequested; i++)
    if (g->task->requested[i].node == n) return false;
  return true;
}

void moth_slices_drop(moth_task *t, task_entry *e) {
  if (e->slices) moth_dealloc(t->ctx, e->slices, sizeof *e->slices);
  e->slices = NULL;
}

/* -- ranges -- */

/* Is `part` a range along dimension d of `whole`? */
static bool is_range(const moth_layout *whole, const moth_layout *part, int32_t d, range *r) {
  const bool selects = part->ndim == whole->ndim - 1;
  const int64_t step = whole->stride[d], offset = part->offset - whole->offset;
  if ((!selects && part->ndim != whole->ndim) || step < 1 || offset < 0 || offset % step)
    return false;
  for (int32_t k = 0; k < whole->ndim; k++) {
    const int32_t at = selects && k > d ? k - 1 : k;
    if (selects && k == d) continue;
    if (k != d && part->shape[at] != whole->shape[k]) return false;
    if (part->shape[at] > 1 && part->stride[at] != whole->stride[k]) return false;
  }
  *r = (range){offset / step, offset / step + (selects ? 1 : part->shape[d])};
  return r->from < r->to && r->to <= whole->shape[d];
}

/* Adds r. Returns false if a part of r is already written or the list is full. */
static bool join(struct moth_slices *p, range r) {
  uint32_t i = 0;
  while (i < p->n && p->of[i].to <= r.from) i++;
  if (i < p->n && p->of[i].from < r.to) return false;
  const bool before = i > 0 && p->of[i - 1].to == r.from;
  const bool behind = i < p->n && p->of[i].from == r.to;
  if (before && behind) {
    p->of[i - 1].to = p->of[i].to;
    memmove(&p->of[i], &p->of[i + 1], (--p->n - i) * sizeof *p->of);
  } else if (before) {
    p->of[i - 1].to = r.to;
  } else if (behind) {
    p->of[i].from = r.from;
  } else {
    if (p->n == MAX_RANGES) return false;
    memmove(&p->of[i + 1], &p->of[i], (p->n++ - i) * sizeof *p->of);
    p->of[i] = r;
  }
  return true;
}

/* A range along the sum's dimension as a tensor. Owned. */
static moth_tensor *range_of(const moth_tensor *sum, int32_t dim, range r) {
  moth_layout l = sum->l;
  l.offset += r.from * l.stride[dim];
  l.numel = l.numel / l.shape[dim] * (r.to - r.from);
  l.shape[dim] = r.to - r.from;
  return moth_tensor_like(sum->ctx, &l, sum->storage);
}

static int set_zero(const moth_tensor *sum, int32_t dim, range r) {
  if (r.from >= r.to) return MOTH_OK;
  moth_tensor *rest = range_of(sum, dim, r), *done = NULL;
  if (!rest) return sum->ctx->error.code;
  int status = MOTH_CALL(sum->ctx, &done, zero_, .input = rest);
  moth_tensor_release(rest);
  moth_tensor_release(done);
  return status;
}

int moth_slices_fill(moth_task *t, task_entry *e) {
  const struct moth_slices *p = e->slices;
  const moth_tensor *sum = e->dys[0];
  int64_t at = 0;
  int status = MOTH_OK;
  if (!p) return MOTH_OK;
  for (uint32_t i = 0; i < p->n && !status; at = p->of[i++].to)
    status = set_zero(sum, p->dim, (range){at, p->of[i].from});
  if (!status) status = set_zero(sum, p->dim, (range){at, sum->l.shape[p->dim]});
  moth_slices_drop(t, e);
  return status;
}

/* -- the first part, and later parts -- */

/* Copies dy to sum's elements at `part`. */
static int put(moth_tensor *sum, const moth_layout *part, moth_tensor *dy) {
  moth_tensor *at = moth_tensor_like(sum->ctx, part, sum->storage), *done = NULL;
  if (!at) return sum->ctx->error.code;
  int status = MOTH_CALL(sum->ctx, &done, copy_, .input = at, .source = dy);
  moth_tensor_release(at);
  moth_tensor_release(done);
  return status;
}

/* An uninitialized tensor with the layout `whole`. Owned. */
static int make(moth_grad *g, const moth_layout *whole, moth_tensor **y) {
  moth_tensor *row = NULL;
  moth_layout l = *whole;
  int status = MOTH_CALL(g->ctx, &row, empty, .size = {&l.numel, 1}, .dtype = g->dy->l.dtype,
                         .device = moth_device_of(g->dy));
  if (status) return status;
  l.dtype = g->dy->l.dtype;
  l.device = g->dy->l.device;
  l.offset = 0;
  *y = moth_tensor_like(g->ctx, &l, row->storage);
  moth_tensor_release(row);
  return *y ? MOTH_OK : g->ctx->error.code;
}

/* Writes dy into a new tensor, as its first part. */
static int begin(moth_grad *g, const moth_edge *to, const moth_layout *whole,
                 const moth_layout *part, bool *done) {
  moth_task *t = g->task;
  moth_tensor *sum = NULL;
  range r;
  int32_t d = 0;
  const int64_t bytes = whole->numel * moth_dtype_size[g->dy->l.dtype];
  if (to->node->nout != 1 || g->dy->l.dtype != whole->dtype || whole->offset ||
      (!g->dy->l.device && bytes < MIN_SLICED_BYTES))
    return MOTH_OK;
  while (d < whole->ndim && !(whole->shape[d] > 1 && is_range(whole, part, d, &r))) d++;
  if (d == whole->ndim) return MOTH_OK;
  task_entry *e = moth_task_enter(t, to->node);
  if (!e || !(e->slices = moth_alloc(g->ctx, sizeof *e->slices))) return g->ctx->error.code;
  *e->slices = (struct moth_slices){.dim = d, .n = 1, .of = {r}};
  int status = make(g, whole, &sum);
  if (!status) status = put(sum, part, g->dy);
  if (status) moth_tensor_release(sum);
  else e->dys[0] = sum;
  if (status || r.to - r.from == whole->shape[d]) moth_slices_drop(t, e);
  *done = !status;
  return status;
}

/* Does x have the shape and strides of `whole`? */
static bool same_layout(const moth_tensor *x, const moth_layout *whole) {
  if (!moth_shape_same(&x->l, whole)) return false;
  for (int32_t d = 0; d < whole->ndim; d++)
    if (whole->shape[d] > 1 && x->l.stride[d] != whole->stride[d]) return false;
  return true;
}

static int add_part(moth_grad *g, const moth_edge *to, task_entry *e, const moth_layout *whole,
                    const moth_layout *part, bool *done) {
  moth_ctx *ctx = g->ctx;
  moth_tensor *sum = e->dys[to->output];
  moth_layout l = *part;
  range r;
  if (e->deferred || sum->refs > 1 || !moth_storage_unique(sum->storage) ||
      !same_layout(sum, whole) || sum->l.dtype != g->dy->l.dtype)
    return MOTH_OK;
  l.dtype = sum->l.dtype;
  l.device = sum->l.device;
  l.offset += sum->l.offset;
  *done = true;
  if (e->slices && is_range(whole, part, e->slices->dim, &r) && join(e->slices, r)) {
    const range all = e->slices->of[0];
    if (all.from == 0 && all.to == whole->shape[e->slices->dim]) moth_slices_drop(g->task, e);
    return put(sum, &l, g->dy);
  }
  int status = moth_slices_fill(g->task, e);
  if (status) return status;
  moth_tensor *at = moth_tensor_like(ctx, &l, sum->storage);
  if (!at) return ctx->error.code;
  add_args args = {.ctx = ctx, .input = at, .other = g->dy, .alpha = {.as.number = 1}};
  status = moth_run_into(&moth_op_add, &args, at);
  moth_tensor_release(at);
  return status;
}

int moth_flow_part(moth_grad *g, const moth_tensor *input, const moth_layout *whole,
                   const moth_layout *part, bool *done) {
  const moth_edge *to = &g->edges[input->arg];
  moth_ctx *ctx = g->ctx;
  moth_layout l = *part;
  *done = false;
  if (g->status || !moth_wants(g, input)) return g->status;
  l.numel = g->dy->l.numel;
  if (ctx->grad_mode || ctx->anomaly || g->dx[input->arg] || l.numel == 0 ||
      moth_layout_overlaps(&l))
    return MOTH_OK;
  task_entry *e = moth_task_entry(g->task, to->node);
  if (e && e->dys[to->output]) g->status = add_part(g, to, e, whole, &l, done);
  else if (!e || !e->deferred) g->status = begin(g, to, whole, &l, done);
  return g->status;
}

moth_tensor *moth_flow_take(moth_grad *g, const moth_tensor *input) {
  const moth_edge *to = &g->edges[input->arg];
  moth_ctx *ctx = g->ctx;
  if (g->status || !g->task || !moth_wants(g, input) || ctx->grad_mode || ctx->anomaly ||
      g->dx[input->arg])
    return NULL;
  task_entry *e = moth_task_entry(g->task, to->node);
  moth_tensor *sum = e ? e->dys[to->output] : NULL;
  if (!sum || e->deferred || e->slices || sum->l.dtype != input->l.dtype ||
      !moth_shape_same(&sum->l, &input->l))
    return NULL;
  e->dys[to->output] = NULL;
  return moth_grad_own(g, sum);
}
