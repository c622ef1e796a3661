/* backward.c -- runs a backward pass. A pass is an object (a task): it can stop at a hook or a
** Function of Lua, and go on. pending_gradients.c keeps its state.
*/
#include "backward_parts.h"
#include "call/slice.h"
#include "capture/capture.h"
#include "base/coroutine.h"
#include "device/device.h"
#include "tensor/loop.h"
#include "call/observer.h"
#include "capture/profile.h"
#include "tensor/sparse.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "base/threads.h"
#include "tensor/handles.h"
#include "tensor/collect.h"
#include "tensor/tensor.h"

#include "op/arith.h"
#include "op/copy.h"
#include "op/create.h"

static void drop_entry(moth_task *t, task_entry *e) {
  moth_ctx *ctx = t->ctx;
  if (!e->node) return;
  moth_deferred_drop(t, e);
  moth_slices_drop(t, e);
  for (uint32_t k = 0; k < e->node->nout; k++) moth_tensor_release(e->dys[k]);
  if (e->node->nout > 1)
    moth_dealloc(ctx, e->dys, e->node->nout * (int64_t)sizeof *e->dys);
  moth_node_release(e->node);
  e->node = NULL;
}

/* -- accumulation -- */

/* Casts a gradient that arrived in a half type (moth_flow_uncast), before others are added to
** it. */
static int widen(moth_tensor **at, int dtype) {
  moth_tensor *wide = NULL;
  if ((*at)->l.dtype == dtype) return MOTH_OK;
  int status = MOTH_CALL((*at)->ctx, &wide, cast, .input = *at, .dtype = dtype);
  if (status) return status;
  moth_tensor_release(*at);
  *at = wide;
  return MOTH_OK;
}

static int send(moth_task *t, const moth_edge *edge, moth_tensor *take) {
  moth_node *n = edge->node;
  task_entry *e = moth_task_enter(t, n);
  if (!e) {
    moth_tensor_release(take);
    return t->ctx->error.code;
  }
  moth_tensor **at = &e->dys[edge->output];
  int status = moth_slices_fill(t, e);
  if (!status && *at && n->op) status = widen(at, moth_node_out(n, edge->output)->dtype);
  if (!status) return moth_task_gather(t->ctx, at, take);
  moth_tensor_release(take);
  return status;
}

/* gather_leaf for a sparse dy or a sparse .grad. */
static int gather_sparse(moth_node *leaf, moth_tensor **dy) {
  moth_ctx *ctx = leaf->ctx;
  moth_tensor *y = leaf->grad;
  if (!y) {
    const bool ours = (*dy)->refs == 1 && moth_storage_unique((*dy)->storage);
    y = ours ? moth_tensor_retain(*dy) : moth_sparse_clone(*dy);
    if (!y) return ctx->error.code;
  } else {
    if (moth_sparse(y) && ctx->capture && y->capture != ctx->capture_id)
      return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                       "an existing sparse gradient grows in each call, so moth.capture cannot "
                       "record this; clear it in the captured function first");
    moth_tensor_retain(y);
    int status = moth_sparse_add(&y, *dy, !ctx->grad_mode && !moth_layout_overlaps(&y->l));
    if (status) moth_tensor_release(y);
    if (status) return status;
  }
  if (y == leaf->grad) moth_tensor_release(y);
  else moth_leaf_set(leaf, y);
  return MOTH_OK;
}

/* Can dy become the first gradient of a leaf? It must have the strides of a dense leaf; for other
** leaves it must be contiguous. */
static bool fits_leaf(const moth_layout *leaf, const moth_layout *dy) {
  if (moth_layout_contiguous(leaf)) return moth_layout_contiguous(dy);
  moth_layout l = *leaf;
  l.offset = dy->offset;
  return moth_layout_dense(leaf) ? moth_layout_same(dy, &l) : moth_layout_contiguous(dy);
}

static int copy_for_leaf(const moth_layout *leaf, moth_tensor *dy, moth_tensor **y) {
  moth_ctx *ctx = dy->ctx;
  moth_tensor *written = NULL;
  if (moth_layout_contiguous(leaf) || !moth_layout_dense(leaf))
    return MOTH_CALL(ctx, y, clone, .input = dy, .memory_format = MOTH_CONTIGUOUS_FORMAT);
  int status = MOTH_CALL(ctx, y, empty, .size = {dy->l.shape, dy->l.ndim}, .dtype = dy->l.dtype,
                         .device = moth_device_of(dy));
  if (status) return status;
  moth_layout_follow(&(*y)->l, 1, &leaf);
  status = MOTH_CALL(ctx, &written, copy_, .input = *y, .source = dy);
  moth_tensor_release(written);
  return status;
}

/* Adds dy to a leaf's .grad. Takes the tensor over if nothing else refers to it; later gradients
** are added in place. */
static int gather_leaf(moth_node *leaf, moth_tensor **dy) {
  moth_ctx *ctx = leaf->ctx;
  moth_tensor *y = NULL;
  if (MOTH_NOTICE(ctx, READ_GRAD, .leaf = leaf)) return ctx->error.code;
  if (moth_sparse(*dy) || (leaf->grad && moth_sparse(leaf->grad))) return gather_sparse(leaf, dy);
  if (!leaf->grad) {
    moth_layout want;
    moth_saved_layout(moth_node_out(leaf, 0), &want);
    if (moth_tensor_unshared(*dy) && fits_leaf(&want, &(*dy)->l)) {
      moth_leaf_set(leaf, *dy);
      *dy = NULL;
      return MOTH_OK;
    }
    int status = copy_for_leaf(&want, *dy, &y);
    if (status) moth_tensor_release(y);
    else moth_leaf_set(leaf, y);
    return status;
  }
  add_args args = {.ctx = ctx, .input = leaf->grad, .other = *dy, .alpha = {.as.number = 1}};
  moth_tensor *grad = moth_tensor_retain(leaf->grad); /* a paused pass keeps it */
  if (!ctx->grad_mode && !moth_layout_overlaps(&grad->l)) {
    int status = moth_run_into(&moth_op_add, &args, grad);
    moth_tensor_release(grad);
    return status;
  }
  int status = moth_run(&moth_op_add, &args, &y);
  moth_tensor_release(grad);
  if (!status) moth_leaf_set(leaf, y);
  return status;
}

/* -- begin -- */

static int add_requested(moth_task *t, moth_tensor *x, uint32_t i) {
  moth_ctx *ctx = t->ctx;
  moth_edge edge;
  if (!x || moth_edge_of(x, &edge)) return ctx->error.code;
  if (!edge.node)
    return moth_fail(ctx, MOTH_E_GRAPH, "inputs", "input " MOTH_POS ", %s, does not require grad",
                     (long long)i, moth_str(x));
  t->requested[t->nrequested++] = (task_requested){moth_node_retain(edge.node), edge.output, NULL};
  if (edge.node->id < t->least) t->least = edge.node->id;
  return MOTH_OK;
}

/* Makes the root gradient, 1, of a pass that was given none. On a device that is a kernel launch,
** so the tensor is kept for the next pass. A captured step has its own, which replays compute again
** only if something writes to it. */
static int ones_like(moth_ctx *ctx, const moth_tensor *x, moth_tensor **y) {
  moth_ones *kept = x->l.device && !x->l.ndim ? moth_ones_of(ctx) : NULL;
  if (kept && (*y = moth_ones_again(kept->one, x->l.device, x->l.dtype))) return MOTH_OK;
  int status = MOTH_CALL(ctx, y, ones, .size = {x->l.shape, x->l.ndim}, .dtype = x->l.dtype,
                         .device = moth_device_of(x));
  if (status || !kept) return status;
  moth_tensor_release(kept->one);
  kept->one = moth_tensor_like(ctx, &(*y)->l, (*y)->storage);
  if (kept->one) return MOTH_OK;
  moth_tensor_release(*y);
  return ctx->error.code;
}

static int add_root(moth_task *t, const moth_handle *h, const moth_handle *grad) {
  moth_ctx *ctx = t->ctx;
  moth_tensor *x = moth_resolve(ctx, h, NULL), *g = NULL;
  moth_edge edge;
  if (!x || moth_edge_of(x, &edge)) return ctx->error.code;
  if (!edge.node)
    return moth_fail(ctx, MOTH_E_GRAPH, NULL,
                     "%s does not require grad: nothing that made it does", moth_str(x));
  if (grad && grad->_slot) {
    g = moth_resolve(ctx, grad, "gradient");
    if (!g) return ctx->error.code;
    if (!moth_shape_same(&g->l, &x->l) || g->l.dtype != x->l.dtype)
      return moth_fail(ctx, MOTH_E_SHAPE, "gradient", "%s cannot be the gradient of %s",
                       moth_str(g), moth_str(x));
    moth_tensor_retain(g);
  } else if (x->l.numel != 1) {
    return moth_fail(ctx, MOTH_E_SHAPE, "gradient",
                     "only a tensor of one element needs none; %s does", moth_str(x));
  } else {
    int status = ones_like(ctx, x, &g);
    if (status) return status;
  }
  return send(t, &edge, g);
}

int32_t moth_task_begin(moth_ctx *ctx, const moth_handle *roots, const moth_handle *grads,
                        uint32_t nroots, const moth_handle *inputs, uint32_t ninputs,
                        uint32_t flags, uint32_t *task) {
  MOTH_NEED(ctx, (roots || !nroots) && (inputs || !ninputs) && task, MOTH_E_ARG);
  MOTH_NOTICE(ctx, OTHER);
  moth_error_clear(ctx);
  moth_settle_modes(ctx);
  moth_error_blame(ctx, "backward");
  moth_task *t = moth_task_new(ctx, ninputs, flags);
  if (!t) return ctx->error.code;
  if (ctx->profile) t->event = moth_profile_enter(ctx, MOTH_EVENT_WHOLE, "backward", true);
  int status = MOTH_OK;
  for (uint32_t i = 0; !status && i < ninputs; i++)
    status = add_requested(t, moth_resolve(ctx, &inputs[i], "inputs"), i);
  for (uint32_t i = 0; !status && i < nroots; i++)
    status = add_root(t, &roots[i], grads ? &grads[i] : NULL);
  if (!status && ninputs) status = moth_requested_find(t);
  t->counts = ctx->hooked_leaves && !ninputs;
  if (!status && t->counts) status = moth_leaves_count(t);
  if (status) {
    moth_task_free(ctx, t->id);
    return status;
  }
  *task = t->id;
  return moth_due_soon(ctx);
}

static void free_task(moth_task *t) {
  moth_ctx *ctx = t->ctx;
  for (moth_task **at = &ctx->tasks; *at; at = &(*at)->next)
    if (*at == t) {
      *at = t->next;
      break;
    }
  if (t->dxs) {
    for (uint32_t i = 0; i < t->current.node->nin; i++) moth_tensor_release(t->dxs[i]);
    moth_dealloc(ctx, t->dxs, t->current.node->nin * (int64_t)sizeof *t->dxs + 8);
  }
  moth_tensor_release(t->half_copy.y);
  drop_entry(t, &t->current);
  while (t->nheap) drop_entry(t, &t->entries[t->heap[--t->nheap]]);
  for (uint32_t i = 0; i < t->nrequested; i++) {
    moth_tensor_release(t->requested[i].grad);
    moth_node_release(t->requested[i].node);
  }
  moth_dealloc(ctx, t->requested, t->requested_capacity * (int64_t)sizeof *t->requested);
  moth_dealloc(ctx, t->path, t->path_capacity * (int64_t)sizeof *t->path);
  moth_task_entries_free(t);
  if (ctx->profile) moth_profile_leave(ctx, t->event, ctx->error.code);
  moth_dealloc(ctx, t, sizeof *t);
  ctx->mem.live_tasks--;
}

void moth_task_free(moth_ctx *ctx, uint32_t task) {
  MOTH_NEED(ctx, true, );
  for (moth_task *t = ctx->tasks; t; t = t->next)
    if (t->id == task) {
      free_task(t);
      moth_lower_goal(ctx);
      return;
    }
}

void moth_tasks_free(moth_ctx *ctx) {
  while (ctx->tasks) free_task(ctx->tasks);
}

/* -- the walk -- */

static int hand_to_requested(moth_task *t) {
  moth_node *n = t->current.node;
  for (uint32_t i = 0; i < t->nrequested; i++) {
    task_requested *requested = &t->requested[i];
    moth_tensor *dy = requested->node == n ? t->current.dys[requested->output] : NULL;
    if (!dy) continue;
    int status = moth_task_gather(t->ctx, &requested->grad, moth_tensor_retain(dy));
    if (status) return status;
  }
  if (!n->retains) return MOTH_OK;
  for (uint32_t k = 0; k < n->nout; k++) {
    if (!n->retains[k] || !t->current.dys[k]) continue;
    moth_tensor *dy = moth_tensor_retain(t->current.dys[k]);
    int status = gather_leaf(n->retains[k], &dy);
    moth_tensor_release(dy);
    if (status) return status;
  }
  return MOTH_OK;
}

/* An edge to n has delivered. Runs a hooked leaf next if that was the last one. */
static void count_down(moth_task *t, const moth_node *n) {
  if (!(n->flags & MOTH_N_LEAF) || !(n->flags & MOTH_N_HOOKED)) return;
  task_entry *e = moth_task_entry(t, n);
  if (e && e->edges && --e->edges == 0) moth_task_first(t, e);
}

/* Passes the gradients of a node's inputs along its edges. dxs is emptied even on error. */
static int pass_on(moth_task *t, moth_node *n, moth_tensor **dxs) {
  int status = MOTH_OK;
  for (uint32_t i = 0; i < n->nin; i++) {
    moth_tensor *dx = dxs[i];
    dxs[i] = NULL;
    const moth_node *to = n->edges[i].node;
    if (dx && (status || !to || !moth_task_useful(t, to))) moth_tensor_release(dx);
    else if (dx) status = send(t, &n->edges[i], dx);
    if (to && t->counts) count_down(t, to);
  }
  return status;
}

#define DXS_ROOM 8

static int run_op(moth_task *t) {
  moth_node *n = t->current.node;
  moth_tensor *few[DXS_ROOM] = {NULL}, **dxs = few;
  int64_t bytes = n->nin * (int64_t)sizeof *dxs;
  const bool after = n->flags & MOTH_N_AFTER;
  if (n->nin > DXS_ROOM || after) {
    if (after) bytes += 8; /* end_function frees it */
    dxs = moth_alloc(t->ctx, bytes);
    if (!dxs) return t->ctx->error.code;
    memset(dxs, 0, (size_t)bytes);
  }
  const uint64_t event = t->ctx->profile ? moth_profile_gradient(t->ctx, n) : 0;
  int status = moth_node_run(n, t, t->current.dys, dxs);
  if (event) moth_profile_leave(t->ctx, event, status);
  if (after && !status) {
    t->dxs = dxs;
    return MOTH_TASK_AFTER;
  }
  /* These gradients are used; releasing them lets the next nodes overwrite gradients passed
  ** through. */
  for (uint32_t k = 0; k < n->nout; k++) {
    moth_tensor_release(t->current.dys[k]);
    t->current.dys[k] = NULL;
  }
  if (!status) status = pass_on(t, n, dxs);
  if (dxs != few) moth_dealloc(t->ctx, dxs, bytes);
  return status;
}

static void finish_node(moth_task *t) {
  moth_node *n = t->current.node;
  if (!(t->flags & MOTH_RETAIN_GRAPH) && !(n->flags & MOTH_N_LEAF)) moth_node_forget(n);
  else if (n->flags & MOTH_N_PACKED && !(n->flags & MOTH_N_RELEASED)) moth_checkpoint_repack(n);
  drop_entry(t, &t->current);
}

static bool any_gradient(const task_entry *e) {
  for (uint32_t k = 0; k < e->node->nout; k++)
    if (e->dys[k]) return true;
  return false;
}

/* Runs the current node. Returns a status above 0 if Lua must act. */
static int run_current(moth_task *t) {
  moth_node *n = t->current.node;
  const bool runs = moth_task_runs(t, n);
  if (runs && n->flags & MOTH_N_EMPTIED && any_gradient(&t->current)) return MOTH_TASK_AGAIN;
  int status = hand_to_requested(t);
  if (status) return status;
  if (!runs) {
    drop_entry(t, &t->current);
    return MOTH_OK;
  }
  if (!any_gradient(&t->current)) {
    status = MOTH_OK;
  } else if (n->flags & MOTH_N_LEAF) {
    status = gather_leaf(n, &t->current.dys[0]);
    t->gathered = !status && (n->flags & MOTH_N_HOOKED);
    if (t->gathered) return MOTH_TASK_HOOK;
  } else if (n->flags & MOTH_N_LUA) {
    t->dxs = moth_alloc(t->ctx, n->nin * (int64_t)sizeof *t->dxs + 8);
    if (!t->dxs) return t->ctx->error.code;
    for (uint32_t i = 0; i < n->nin; i++) t->dxs[i] = NULL;
    return MOTH_TASK_FUNCTION;
  } else {
    status = run_op(t);
  }
  if (!status) finish_node(t);
  return status;
}

/* Lua has run the hooks of the current leaf, whose gradient is complete. */
static int end_leaf(moth_task *t) {
  t->gathered = false;
  finish_node(t);
  return MOTH_OK;
}

/* Lua has run the current Function and set its gradients. */
static int end_function(moth_task *t) {
  moth_node *n = t->current.node;
  int status = pass_on(t, n, t->dxs);
  moth_dealloc(t->ctx, t->dxs, n->nin * (int64_t)sizeof *t->dxs + 8);
  t->dxs = NULL;
  if (!status) finish_node(t);
  return status;
}

static int walk(moth_task *t) {
  int status = MOTH_OK;
  if (t->stopped) {
    t->stopped = false;
    status = t->gathered ? end_leaf(t) : t->dxs ? end_function(t) : run_current(t);
  }
  while (status == MOTH_OK && t->nheap) {
    if ((status = moth_poll(t->ctx)) != MOTH_OK) break;
    moth_task_next(t);
    if (!moth_task_useful(t, t->current.node)) { /* a root in no path to a requested input */
      drop_entry(t, &t->current);
      continue;
    }
    if (t->current.slices && (status = moth_slices_fill(t, &t->current)) != MOTH_OK) break;
    if (t->current.deferred && (status = moth_deferred_add(t, &t->current)) != MOTH_OK) break;
    if ((t->current.node->flags & MOTH_N_HOOKED) && any_gradient(&t->current))
      status = MOTH_TASK_HOOK;
    else status = run_current(t);
  }
  t->stopped = status > 0;
  if (status <= 0) return status;
  int failed = moth_deferred_add_all(t); /* Lua may change their operands */
  return failed ? failed : status;
}

int32_t moth_task_step(moth_ctx *ctx, uint32_t task, uint64_t *node, uint32_t *ngiven,
                       uint32_t *nwanted) {
  MOTH_NEED(ctx, node && ngiven && nwanted, MOTH_E_ARG);
  if (moth_sliced(ctx)) return moth_step_sliced(ctx, task, node, ngiven, nwanted);
  moth_error_clear(ctx);
  moth_settle_lanes(ctx);
  moth_settle_modes(ctx);
  moth_error_blame(ctx, "backward");
  moth_task *t = moth_task_find(ctx, task);
  if (!t) return ctx->error.code;
  moth_modes modes = ctx->modes; /* gradients have the dtypes of their tensors */
  ctx->modes = (moth_modes){.grad_mode = (t->flags & MOTH_CREATE_GRAPH) != 0, .autocast = -1};
  const uintptr_t before = moth_enter(ctx);
  int status = walk(t);
  moth_leave(ctx, before);
  ctx->modes = modes;
  if (status > 0) {
    const moth_node *n = t->current.node;
    *node = (status == MOTH_TASK_AGAIN ? moth_checkpoint_needed(n) : n)->id;
    *ngiven = t->gathered ? 0 : t->current.node->nout;
    *nwanted = t->current.node->nin;
  } else if (status < 0 || !t->nrequested) {
    moth_task_free(ctx, task);
  }
  return status;
}

/* Fills in the gradients of all inputs. After an error frees the handles made so far. */
static int hand_out_results(moth_task *t, moth_handle *results) {
  int status = MOTH_OK;
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->nrequested && !(t->flags & MOTH_ALLOW_UNUSED); i++)
    if (!t->requested[i].grad) return moth_task_result(t->ctx, t->id, i, results); /* fails */
  for (; n < t->nrequested && status >= 0; n++) {
    moth_tensor **grad = &t->requested[n].grad;
    const bool fresh = *grad && !(*grad)->slot;
    status = moth_task_result(t->ctx, t->id, n, &results[n]);
    if (status < 0 || !fresh) continue;
    moth_tensor_release(*grad);
    *grad = NULL;
  }
  for (uint32_t i = 0; i + 1 < n && status < 0; i++)
    if (!t->requested[i].grad && results[i]._slot) moth_free(t->ctx, &results[i]);
  return status < 0 ? status : MOTH_OK;
}

int32_t moth_backward(moth_ctx *ctx, const moth_handle *roots, const moth_handle *grads,
                      uint32_t nroots, const moth_handle *inputs, uint32_t ninputs,
                      uint32_t flags, moth_handle *results) {
  MOTH_NEED(ctx, results || !ninputs, MOTH_E_ARG);
  uint32_t task = 0, ngiven = 0, nwanted = 0;
  uint64_t node = 0;
  const int32_t due = moth_task_begin(ctx, roots, grads, nroots, inputs, ninputs, flags, &task);
  if (due < 0) return due;
  const int32_t held = moth_slice_hold(ctx, 1);
  int32_t status = moth_task_step(ctx, task, &node, &ngiven, &nwanted);
  moth_slice_hold(ctx, held);
  if (status > 0)
    status = moth_fail(ctx, MOTH_E_STATE, NULL, "a Function or hook of Lua cannot run here");
  if (!status && ninputs) status = hand_out_results(moth_task_find(ctx, task), results);
  moth_task_free(ctx, task);
  return status ? status : due;
}

int moth_gradients(moth_ctx *ctx, moth_tensor *const *roots, moth_tensor *const *dys,
                   uint32_t nroots, moth_tensor *const *inputs, uint32_t ninputs,
                   moth_tensor **dxs) {
  moth_task *t = moth_task_new(ctx, ninputs, MOTH_RETAIN_GRAPH | MOTH_CREATE_GRAPH);
  if (!t) return ctx->error.code;
  int status = MOTH_OK;
  for (uint32_t i = 0; !status && i < ninputs; i++) status = add_requested(t, inputs[i], i);
  for (uint32_t i = 0; !status && i < nroots; i++) {
    moth_edge edge = {NULL, 0};
    if (dys[i]) status = moth_edge_of(roots[i], &edge);
    if (!status && edge.node) status = send(t, &edge, moth_tensor_retain(dys[i]));
  }
  if (!status && ninputs) status = moth_requested_find(t);
  if (!status) status = walk(t);
  if (status > 0) status = moth_fail(ctx, MOTH_E_STATE, NULL, "a gradient cannot wait for Lua");
  for (uint32_t i = 0; !status && i < ninputs; i++) {
    dxs[i] = t->requested[i].grad;
    t->requested[i].grad = NULL;
  }
  free_task(t);
  return status;
}
