/* call.c -- the steps of a call: slots to arguments, dtypes, shape, memory, kernel, graph, handles.
**
** moth_call reads the caller's slots and fills in defaults. moth_run does the same for C code,
** which passes a filled args struct. Nodes and handles are made only if every step succeeded.
** Captures, call logs, profiles and traces observe the calls (observer.h).
*/
#include "base/coroutine.h"
#include "device/device.h"
#include "tensor/loop.h"
#include "memory_format.h"
#include "observer.h"
#include "slice.h"
#include "registry.h"
#include "autograd/tape.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/threads.h"
#include "tensor/handles.h"
#include "tensor/collect.h"
#include "tensor/tensor.h"

#include "op/copy.h"
#include "op/view.h"

/* -- new results -- */

static moth_tensor *first_tensor(const moth_op *op, const void *args) {
  moth_cursor c = {.op = op, .args = (void *)(uintptr_t)args};
  return moth_next_input(&c) ? *c.at : NULL;
}

static void release_all(moth_tensor **at, uint32_t n) {
  while (n) {
    moth_tensor_release(at[--n]);
    at[n] = NULL;
  }
}

/* Returns true if moth_order_result would not change y, as in most calls. */
static inline bool is_ordered(const moth_call_frame *f, const moth_op *op, const moth_layout *y) {
  if (y->ndim < 2 || !(op->flags & (MOTH_OP_STRIDED | MOTH_OP_CHANNELS_LAST))) return true;
  if (op->format || op->flags & MOTH_OP_CHANNELS_LAST) return false;
  const moth_tensor *x = first_tensor(op, &f->args);
  return x && moth_has_strides(&x->l, y);
}

static int shapes_of(moth_call_frame *f, const moth_op *op, int dtype, moth_layout *y) {
  for (uint32_t i = 0; i < op->nout + op->nhidden; i++) {
    y[i].ndim = 0;
    y[i].offset = 0;
    y[i].device = (uint8_t)f->device;
    y[i].dtype = (uint8_t)(dtype == MOTH_NO_DTYPE ? f->temps.ctx->default_dtype : dtype);
    if (op->position >> i & 1u) y[i].dtype = MOTH_I64;
  }
  f->temps.ctx->quiet++; /* a capture does not record ops of a shape rule */
  int status = op->shape(&f->args, y);
  f->temps.ctx->quiet--;
  if (!status && op->format) status = moth_check_format(f->temps.ctx, op, &f->args, y);
  return status;
}

/* The kernel for a device other than the CPU. moth_prepare has checked that it exists. */
static moth_kernel kernel_there(const moth_op *op) {
  if (op->device) return op->device;
  return op->compose ? op->compose : op->cpu;
}

static __attribute__((noinline)) int observe_kernel(moth_call_frame *f, const moth_op *op,
                                                    moth_kernel kernel, moth_tensor **out,
                                                    uint32_t nout, bool fresh) {
  const moth_observed run = {MOTH_RUN_KERNEL, .op = op, .args = &f->args, .out = out,
                             .kernel = kernel, .nout = nout, .fresh = fresh, .device = f->device};
  return moth_observe(f->args.ctx->observer, &run);
}

/* here: the kernel on the CPU. `nout` results exist; `fresh`: they were allocated for this run. */
static int run_kernel(moth_call_frame *f, const moth_op *op, moth_kernel here, moth_tensor **out,
                      uint32_t nout, bool fresh) {
  const moth_kernel kernel = f->device ? kernel_there(op) : here;
  if (f->args.ctx->observer) return observe_kernel(f, op, kernel, out, nout, fresh);
  return kernel(&f->args, out);
}

/* Allocates the results. After an error none is allocated. */
static int allocate(moth_call_frame *f, const moth_op *op, const moth_layout *y,
                    moth_tensor **out) {
  moth_ctx *ctx = f->temps.ctx;
  const uint32_t n = op->nout + op->nhidden;
  uint32_t i = 0;
  if (ctx->observer) moth_observe_results(ctx, op, &f->args, true);
  for (; i < n; i++) {
    out[i] = NULL;
    if (y[i].ndim == MOTH_NO_RESULT) continue;
    out[i] = moth_tensor_new(ctx, &y[i]);
    if (!out[i]) break;
    if (!is_ordered(f, op, &out[i]->l)) moth_order_result(f, op, &out[i]->l);
  }
  if (ctx->observer) moth_observe_results(ctx, op, &f->args, false);
  if (i == n) return MOTH_OK;
  const int status = ctx->error.code;
  release_all(out, i);
  return status;
}

static int run_fresh(moth_call_frame *f, const moth_op *op, int dtype, moth_tensor **out) {
  moth_layout y[MOTH_MAX_OUTPUTS];
  const uint32_t n = op->nout + op->nhidden;
  int status = shapes_of(f, op, dtype, y);
  if (!status) status = allocate(f, op, y, out);
  if (status) return status;
  status = run_kernel(f, op, op->cpu, out, n, true);
  if (!status) status = moth_record(op, &f->args, out);
  if (status) release_all(out, n);
  else if (f->temps.ctx->autocast != MOTH_NO_DTYPE) moth_autocast_result(op, out);
  return status;
}

static int run_view(moth_call_frame *f, const moth_op *op, moth_tensor **out) {
  moth_tensor *x = first_tensor(op, &f->args);
  moth_ctx *ctx = x->ctx;
  moth_layout l = x->l;
  int status = op->view(&f->args, &l);
  if (status) return status;
  l.numel = 1;
  for (int d = 0; d < l.ndim; d++) l.numel *= l.shape[d];
  moth_tensor *y = moth_tensor_like(ctx, &l, x->storage);
  if (!y) return ctx->error.code;
  moth_tensor *base = moth_base(x);
  y->base = moth_tensor_retain(base ? base : x);
  y->base_epoch = y->base->epoch;
  y->flags = x->flags & (MOTH_T_MULTI_VIEW | MOTH_T_FUNCTION | MOTH_T_NO_GRAD_VIEW);
  if (!ctx->grad_mode) y->flags |= MOTH_T_NO_GRAD_VIEW;
  *out = y;
  status = moth_record(op, &f->args, out);
  if (status) release_all(out, 1);
  return status;
}

/* -- writing to an existing tensor -- */

static bool may_overlap(const moth_tensor *a, const moth_tensor *b) {
  if (moth_storage_root(a->storage) != moth_storage_root(b->storage)) return false;
  int64_t alo, ahi, blo, bhi;
  moth_layout_span(&a->l, &alo, &ahi);
  moth_layout_span(&b->l, &blo, &bhi);
  return alo * moth_dtype_size[a->l.dtype] < bhi * moth_dtype_size[b->l.dtype] &&
         blo * moth_dtype_size[b->l.dtype] < ahi * moth_dtype_size[a->l.dtype];
}

/* Copies inputs that the write would change before the kernel or the gradient reads them: inputs
** that overlap the target but are not the same elements, or that the op reads at other
** positions. If the call is recorded, it also copies inputs that share the target's storage and
** that the gradient reads. */
static int untangle(moth_call_frame *f, const moth_op *op, const moth_tensor *target,
                    bool in_place, bool recorded) {
  moth_cursor c = {.op = op, .args = &f->args};
  bool moves = op->others || (op->flags & MOTH_OP_MUTATES && !op->origin);
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at, *y = NULL;
    if (!x || (in_place && c.arg == 0)) continue;
    if (moth_storage_root(x->storage) != moth_storage_root(target->storage)) continue;
    bool same = x->l.dtype == target->l.dtype && moth_layout_same(&x->l, &target->l);
    bool read_later = recorded && op->save_in[c.from];
    if (!read_later && (!may_overlap(x, target) || (same && !moves))) continue;
    int status = MOTH_CALL(x->ctx, &y, clone, .input = x);
    if (status) return status;
    y->l.index_base = x->l.index_base;
    *c.at = moth_frame_keep(f, y);
    if (!*c.at) return x->ctx->error.code;
  }
  return MOTH_OK;
}

static int check_target(const moth_op *op, const moth_tensor *target, const moth_layout *y,
                        const char *arg) {
  if (!moth_shape_same(&target->l, y))
    return moth_fail(target->ctx, MOTH_E_SHAPE, arg,
                     "the result of '%s' is %s, which does not fit %s", op->name,
                     moth_str_shape(target->ctx, y->ndim, y->shape), moth_str(target));
  int from = y->dtype, to = target->l.dtype;
  if ((moth_is_float(from) && !moth_is_float(to)) || (moth_is_int(from) && to == MOTH_BOOL))
    return moth_fail(target->ctx, MOTH_E_DTYPE, arg,
                     "the result is %s and cannot be written into %s",
                     moth_dtype_name(from), moth_str(target));
  return MOTH_OK;
}

/* Copies the target before the write, if the op's gradient reads its old value. */
static int save_before(const moth_op *op, moth_tensor *target, bool recorded,
                       moth_tensor **before) {
  *before = NULL;
  if (!recorded || !op->save_in[0]) return MOTH_OK;
  bool mode = target->ctx->grad_mode;
  target->ctx->grad_mode = false;
  int status = MOTH_CALL(target->ctx, before, clone, .input = target);
  target->ctx->grad_mode = mode;
  return status;
}

static int run_direct(moth_call_frame *f, const moth_op *op, moth_tensor *target, bool in_place) {
  bool recorded = in_place && moth_records(op, &f->args);
  moth_tensor *before, *out[MOTH_MAX_OUTPUTS] = {target};
  moth_write write = {0};
  int status = untangle(f, op, target, in_place, recorded);
  if (!status) status = save_before(op, target, recorded, &before);
  if (status) return status;
  if (recorded) status = moth_record_write(op, &f->args, target, before, &write);
  moth_tensor_release(before);
  if (!status && target->l.numel) {
    status = run_kernel(f, op, op->cpu, out, 1, false);
    /* Kernels check their inputs before they write. Only an interrupt can stop a write that has
    ** begun, and on a device a lack of memory. */
    if (!status || status == MOTH_E_INTERRUPT || (status == MOTH_E_MEM && target->l.device))
      moth_storage_bump(target->storage);
  }
  if (status) moth_write_drop(&write);
  else moth_write_done(target, &write);
  return status;
}

static int write_result(moth_tensor *target, moth_tensor *y) {
  moth_tensor *written = NULL;
  int status = MOTH_CALL(target->ctx, &written, copy_, .input = target, .source = y);
  moth_tensor_release(written);
  return status;
}

static int run_op(const moth_op *op, const void *args, moth_tensor **out);

/* Runs an op on a copy of the target, because its gradient reads the value that the write replaces.
** The copy is recorded, so the gradient reaches the target's history. */
static int run_on_copy(const moth_op *op, const void *args, moth_tensor *target,
                       moth_tensor **fresh) {
  moth_args own;
  moth_tensor *copy = NULL;
  int status = MOTH_CALL(target->ctx, &copy, clone, .input = target);
  if (status) return status;
  memcpy(&own, args, op->size);
  moth_cursor c = {.op = op, .args = &own};
  while (moth_next_input(&c))
    if (c.arg == 0) *c.at = copy;
  status = run_op(op, &own, fresh);
  moth_tensor_release(copy);
  return status;
}

/* moth_run_into without the frame; op is `add` for `add_`. arg: the argument that messages name if
** the target is also the first input. */
static int run_into(moth_call_frame *f, const moth_op *op, const void *args, moth_tensor *target,
                    const char *arg) {
  moth_ctx *ctx = target->ctx;
  moth_layout y[MOTH_MAX_OUTPUTS];
  bool in_place = first_tensor(op, args) == target;
  if (!in_place) arg = "out";
  bool recorded = moth_records(op, args);
  int dtype, status;
  if (!in_place && (recorded || (ctx->grad_mode && moth_needs_grad(target))))
    return moth_fail(ctx, MOTH_E_GRAPH, "out", "gradients cannot flow through `out`; use no_grad");
  status = moth_check_write(target, arg, recorded);
  if (!status) status = moth_prepare(f, op, &dtype);
  if (!status && op->shape) {
    status = shapes_of(f, op, dtype, y);
    if (!status) status = check_target(op, target, &y[0], arg);
    bool direct = (op->flags & MOTH_OP_STRIDED) && op->nout + op->nhidden == 1 &&
                  y[0].dtype == target->l.dtype &&
                  (!in_place || first_tensor(op, &f->args) == target);
    if (!status && direct) return run_direct(f, op, target, in_place);
  }
  if (status) return status;
  moth_tensor *fresh[MOTH_MAX_OUTPUTS] = {NULL};
  status = in_place && recorded && op->save_in[0] ? run_on_copy(op, args, target, fresh)
                                                  : run_op(op, args, fresh);
  if (status) return status;
  status = check_target(op, target, &fresh[0]->l, arg);
  if (!status) status = write_result(target, fresh[0]);
  release_all(fresh, op->nout + op->nhidden);
  return status;
}

/* Runs an op that only writes: copy_, fill_, index_put_. */
static int run_writer(moth_call_frame *f, const moth_op *op, moth_tensor **out) {
  moth_tensor *target = first_tensor(op, &f->args);
  bool recorded = moth_records(op, &f->args);
  moth_layout y[MOTH_MAX_OUTPUTS];
  int status = moth_check_write(target, op->rows[0].name, recorded);
  if (!status) status = shapes_of(f, op, target->l.dtype, y);
  if (!status) status = run_direct(f, op, target, true);
  if (!status) *out = moth_tensor_retain(target);
  return status;
}

/* -- the entry points -- */

/* Runs `t_` by means of the view `t`: the first tensor becomes that view, with the view's
** history. */
static int run_view_in_place(moth_call_frame *f, const moth_op *op, moth_tensor **out) {
  moth_tensor *x = first_tensor(op, &f->args), *y = NULL;
  moth_ctx *ctx = x->ctx;
  const bool mode = ctx->grad_mode;
  int dtype, status = moth_prepare(f, op, &dtype);
  if (!status) status = moth_check_become(x, op->rows[0].name, op == &moth_op_as_strided);
  if (!status) status = MOTH_NOTICE(ctx, RESHAPE, .x = x, .what = op->rows[0].name);
  if (status < 0) return status;
  const bool stays = status > 0;
  ctx->grad_mode = x->node != NULL; /* also in no_grad mode: a history must match its tensor */
  status = run_view(f, op, &y);
  ctx->grad_mode = mode;
  if (status) return status;
  if (stays) {
    y->flags &= ~(uint32_t)MOTH_T_NO_GRAD_VIEW;
    moth_take_handle(y, x);
    *out = y;
    return MOTH_OK;
  }
  moth_become_view(x, y);
  moth_tensor_release(y);
  *out = moth_tensor_retain(x);
  return MOTH_OK;
}

static int run_frame(moth_call_frame *f, const moth_op *op, moth_tensor **out) {
  int dtype = MOTH_NO_DTYPE, status;
  if (op->origin && op->view) return run_view_in_place(f, op->origin, out);
  if (op->origin) {
    moth_tensor *target = first_tensor(op, &f->args);
    moth_args args = f->args; /* prepare may replace inputs; the fallback needs the originals */
    status = run_into(f, op->origin, &args, target, op->origin->rows[0].name);
    if (!status) out[0] = moth_tensor_retain(target);
    return status;
  }
  status = moth_prepare(f, op, &dtype);
  if (status) return status;
  if (op->view) return run_view(f, op, out);
  if (op->flags & MOTH_OP_WHOLE) return run_kernel(f, op, op->compose, out, 0, false);
  if (op->compose) return op->compose(&f->args, out);
  if (op->list) return op->list(&f->args, &f->temps.ctx->results);
  if (op->flags & MOTH_OP_MUTATES) return run_writer(f, op, out);
  return run_fresh(f, op, dtype, out);
}

static int run_op(const moth_op *op, const void *args, moth_tensor **out) {
  moth_call_frame f;
  moth_ctx *ctx = ((const moth_args *)args)->ctx;
  moth_frame_open(&f, ctx);
  memcpy(&f.args, args, op->size);
  int status = moth_cancelled(ctx) ? moth_stopped(ctx) : moth_frame_own_lists(&f, op);
  if (!status) status = run_frame(&f, op, out);
  moth_frame_close(&f);
  return status;
}

/* Runs an op with out[0] as its target. */
static int write_op(const moth_op *op, const void *args, moth_tensor **out) {
  moth_call_frame f;
  moth_frame_open(&f, out[0]->ctx);
  memcpy(&f.args, args, op->size);
  int status = moth_frame_own_lists(&f, op);
  if (!status) status = run_into(&f, op, args, out[0], op->rows[0].name);
  moth_frame_close(&f);
  return status;
}

static __attribute__((noinline)) int observe(int what, const moth_op *op, const void *args,
                                             moth_tensor **out, moth_runner run) {
  const moth_observed r = {what, .op = op, .args = args, .out = out, .run = run};
  return moth_observe(((const moth_args *)args)->ctx->observer, &r);
}

int moth_run(const moth_op *op, const void *args, moth_tensor **out) {
  if (!((const moth_args *)args)->ctx->observer) return run_op(op, args, out);
  return observe(MOTH_RUN_OP, op, args, out, run_op);
}

int moth_run_into(const moth_op *op, const void *args, moth_tensor *target) {
  if (!target->ctx->observer) return write_op(op, args, &target);
  return observe(MOTH_RUN_OP, op, args, &target, write_op);
}

int moth_run_gradient(const moth_op *op, const void *args, moth_tensor **out) {
  if (!((const moth_args *)args)->ctx->observer) return run_op(op, args, out);
  return observe(MOTH_RUN_GRADIENT, op, args, out, moth_run);
}

/* Finds the target in the slot after the op's own slots: the tensor `out`, or the first tensor if
** `inplace` is true; NULL if neither. */
static int given_target(moth_call_frame *f, const moth_op *op, const moth_slot *slots,
                        uint32_t nslots, uint64_t given, moth_tensor **target) {
  moth_ctx *ctx = f->temps.ctx;
  *target = NULL;
  if (op->info.nargs == op->nrows || !(given >> op->nrows & 1u)) return MOTH_OK;
  uint32_t at = op->info.args[op->nrows].slot;
  if (at >= nslots) return MOTH_OK;
  if (op->flags & MOTH_OP_TAKES_INPLACE) {
    if (slots[at].integer) *target = first_tensor(op, &f->args);
    return MOTH_OK;
  }
  if (slots[at].handle._slot == 0) return MOTH_OK;
  *target = moth_resolve(ctx, &slots[at].handle, "out");
  return *target ? MOTH_OK : ctx->error.code;
}

/* In a slice of time the host may free tensors, or replace their data, while the call is paused. */
static __attribute__((noinline)) int pin_inputs(moth_call_frame *f, const moth_op *op) {
  moth_cursor c = {.op = op, .args = &f->args};
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at;
    if (!x) continue;
    if (!moth_frame_keep(f, moth_tensor_retain(x))) return x->ctx->error.code;
    if (x->storage && !moth_frame_keep(f, moth_tensor_like(x->ctx, &x->l, x->storage)))
      return x->ctx->error.code;
  }
  return MOTH_OK;
}

/* watched: moth_needs_poll at the start of the call. A slice of time is watched. */
static inline int run_call(moth_call_frame *f, const moth_op *op, const moth_slot *slots,
                           uint32_t nslots, uint64_t given, bool watched, moth_tensor **out) {
  moth_tensor *target;
  int status = moth_read_args(f, op, slots, nslots, given);
  if (watched && !status && moth_slice_inside(f->temps.ctx)) status = pin_inputs(f, op);
  if (!status) status = given_target(f, op, slots, nslots, given, &target);
  if (status) return status;
  if (!target) return run_frame(f, op, out);
  moth_args args = f->args;
  const char *arg = op->flags & MOTH_OP_TAKES_INPLACE ? op->rows[0].name : "out";
  status = run_into(f, op, &args, target, arg);
  if (!status) out[0] = moth_tensor_retain(target);
  return status;
}

static int run_observed(const moth_op *op, const void *args, moth_tensor **out) {
  moth_call_frame *f = (moth_call_frame *)(uintptr_t)args;
  return run_call(f, op, f->slots, f->nslots, f->given, moth_needs_poll(f->temps.ctx), out);
}

static __attribute__((noinline)) int observe_call(moth_call_frame *f, const moth_op *op,
                                                  const moth_slot *slots, uint32_t nslots,
                                                  uint64_t given, moth_tensor **out) {
  f->slots = slots;
  f->nslots = nslots;
  f->given = given;
  return observe(MOTH_RUN_CALL, op, &f->args, out, run_observed);
}

/* Makes handles for the first nout results and keeps the others in ctx->results. After an error it
** makes none. */
static int give_results(moth_ctx *ctx, const moth_op *op, const void *args, int status,
                        moth_tensor **y, moth_handle *out, uint32_t nout) {
  uint32_t handed = 0, given = op->nout;
  int known = 0;
  if (!status && op->asked && !moth_arg_at(op, args, op->asked - 1)->integer) given--;
  for (uint32_t i = 0; i < MOTH_MAX_OUTPUTS; i++) {
    if (!y[i]) continue;
    if (status || i >= given) {
      moth_tensor_release(y[i]);
    } else if (i < nout) {
      if (y[i]->slot) known = MOTH_KNOWN;
      status = moth_hand_out(ctx, y[i], &out[i]);
      if (!status) handed = i + 1;
    } else if (op->flags & MOTH_OP_MUTATES) {
      moth_tensor_release(y[i]);
    } else {
      status = moth_results_push(&ctx->results, y[i]);
    }
  }
  if (!status) return moth_due(ctx) | known;
  moth_results_clear(&ctx->results);
  while (handed && !(op->flags & MOTH_OP_MUTATES)) {
    int code = ctx->error.code;
    moth_free(ctx, &out[--handed]);
    out[handed] = (moth_handle){0, 0};
    ctx->error.code = code;
  }
  return status;
}

int32_t moth_call(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                  uint64_t given, moth_handle *out, uint32_t nout) {
  MOTH_NEED(ctx, (slots || !nslots) && (out || !nout), MOTH_E_ARG);
  const bool watched = __builtin_expect(moth_needs_poll(ctx), 0);
  if (watched && moth_sliced(ctx))
    return moth_call_sliced(ctx, op, slots, nslots, given, out, nout);
  moth_call_frame f;
  moth_tensor *y[MOTH_MAX_OUTPUTS] = {NULL};
  moth_error_clear(ctx);
  moth_results_clear(&ctx->results);
  if (!op)
    return moth_fail(ctx, MOTH_E_ARG, "op", "is NULL: moth_op_find() knows no op of that name");
  const uintptr_t before = moth_enter(ctx);
  moth_settle_lanes(ctx);
  moth_settle_modes(ctx);
  moth_error_blame(ctx, op->name);
  moth_frame_open(&f, ctx);
  int status = watched && moth_cancelled_now(ctx) ? moth_stopped(ctx)
               : ctx->observer ? observe_call(&f, op, slots, nslots, given, y)
                               : run_call(&f, op, slots, nslots, given, watched, y);
  moth_frame_close(&f);
  ctx->numbers = 0;
  status = give_results(ctx, op, &f.args, status, y, out, nout);
  moth_leave(ctx, before);
  return status;
}
