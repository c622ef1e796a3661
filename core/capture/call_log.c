/* call_log.c -- the call log: a list of the ops that the host calls, with their arguments and
** results. From it a host can write a function in another form, such as ONNX.
**
** Only calls by moth_call are entries, not the ops that other ops call. Arguments are logged as
** they were passed, before casts. Tensors are retained, so that their handles identify them.
*/
#include "call_log.h"
#include "tensor/tensor.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/handles.h"

#include "call/observer.h"
#include "call/registry.h"

typedef struct call {
  const moth_op *op;
  moth_slot *slots; /* followed by the elements of lists of numbers */
  int64_t bytes;
  uint32_t first, nresults; /* index of its first tensor; the results come last */
  bool writes, recorded;
  uint8_t event;
} call;

typedef struct held {
  moth_tensor *x; /* counted; NULL: an empty place in a list */
  uint32_t version;
} held;

typedef struct moth_call_log {
  moth_observer observer;
  moth_ctx *ctx;
  held *held; /* the tensors of all calls */
  uint32_t nheld, held_capacity;
  call *at;
  uint32_t n, capacity, flags;
  bool lost;  /* an entry is missing because memory ran out */
  bool inside; /* an op of a backward pass runs, which is one entry */
  bool ended; /* the log can only be read */
  struct moth_call_log *outer, *outer_active; /* the enclosing log; NULL if it was paused */
} moth_call_log;

/* Copies a number operand, whose tensor the next call changes; retains other tensors. */
static moth_tensor *lasting(const moth_call_log *c, moth_tensor *x) {
  if (!x || !(x->flags & MOTH_T_NUMBER)) return x ? moth_tensor_retain(x) : NULL;
  const moth_layout l = {.numel = 1, .dtype = x->l.dtype};
  moth_tensor *y = moth_tensor_new(x->ctx, &l);
  if (!y) return NULL;
  memcpy(moth_at(y), moth_at(x), moth_dtype_size[l.dtype]);
  if (c->flags) y->flags = x->flags & (MOTH_T_NUMBER | MOTH_T_WHOLE);
  return y;
}

static int hold(moth_call_log *c, moth_tensor *x) {
  const int status = moth_grow(c->ctx, &c->held, c->nheld, &c->held_capacity, sizeof *c->held);
  moth_tensor *kept = status ? NULL : lasting(c, x);
  if (status || (x && !kept)) return c->ctx->error.code;
  const uint32_t version = !kept ? 0 : kept->flags & MOTH_T_NUMBER ? UINT32_MAX
                                     : kept->storage->version;
  c->held[c->nheld++] = (held){kept, version};
  return MOTH_OK;
}

static bool writes(const moth_op *op, const moth_slot *slots, uint32_t nslots, uint64_t given) {
  if (op->flags & MOTH_OP_MUTATES) return true;
  if (op->info.nargs == op->nrows || !(given >> op->nrows & 1u)) return false;
  const uint32_t at = op->info.args[op->nrows].slot;
  return at < nslots && slots[at].integer != 0; /* `out` or `inplace` */
}

/* Fills in the slots of one argument. Tensors are replaced by their numbers; lists are copied to
** *end. */
static int add_row(moth_call_log *c, call *to, const moth_args *args, uint32_t row,
                   moth_slot **end) {
  const moth_arg *arg = &to->op->rows[row];
  const int kind = to->op->kinds[row];
  const moth_slot *from = args->slot + arg->slot;
  moth_slot *slot = to->slots + arg->slot;
  const uint32_t number = c->nheld - to->first + 1;
  memcpy(slot, from, arg->nslots * sizeof *slot);
  if (moth_kind_is_tensor(kind)) {
    slot->integer = from->pointer ? number : 0;
    return from->pointer ? hold(c, (moth_tensor *)(uintptr_t)from->pointer) : MOTH_OK;
  }
  if (moth_kind_is_list(kind)) {
    const moth_tensors *list = (const moth_tensors *)(const void *)from;
    int status = MOTH_OK;
    slot->integer = number;
    for (int64_t i = 0; i < list->n && !status; i++) status = hold(c, list->at[i]);
    return status;
  }
  if (!moth_kind_is_ints(kind) || !from->pointer) return MOTH_OK;
  memcpy(*end, from->pointer, (size_t)from[1].integer * sizeof **end);
  slot->pointer = *end;
  *end += from[1].integer;
  return MOTH_OK;
}

static int add_call(moth_call_log *c, const moth_op *op, const moth_args *args) {
  moth_ctx *ctx = c->ctx;
  const uint32_t nslots = op->info.nslots;
  int64_t n = nslots;
  for (uint32_t row = 0; row < op->nrows; row++)
    if (moth_kind_is_ints(op->kinds[row])) n += args->slot[op->rows[row].slot + 1].integer;
  int status = moth_grow(ctx, &c->at, c->n, &c->capacity, sizeof *c->at);
  if (status) return status;
  call *to = &c->at[c->n];
  *to = (call){.op = op, .first = c->nheld, .bytes = (n ? n : 1) * (int64_t)sizeof *to->slots,
               .recorded = ctx->grad_mode};
  to->slots = moth_alloc(ctx, to->bytes);
  if (!to->slots) return ctx->error.code;
  c->n++;
  memset(to->slots, 0, (size_t)to->bytes);
  moth_slot *end = to->slots + nslots;
  for (uint32_t row = 0; row < op->nrows && !status; row++)
    status = add_row(c, to, args, row, &end);
  return status;
}

static void forget_last(moth_call_log *c) {
  call *last = &c->at[--c->n];
  while (c->nheld > last->first) moth_tensor_release(c->held[--c->nheld].x);
  moth_dealloc(c->ctx, last->slots, last->bytes);
}

static void add_event(moth_call_log *c, const moth_notice *e) {
  int status = moth_grow(c->ctx, &c->at, c->n, &c->capacity, sizeof *c->at);
  if (!status) {
    c->at[c->n++] = (call){.first = c->nheld, .event = (uint8_t)e->kind, .writes = e->value,
                           .recorded = c->ctx->grad_mode};
    if (e->x) status = hold(c, e->x);
    if (e->y && !status) status = hold(c, e->y);
  }
  if (status) c->lost = true;
}

static void add_other(moth_call_log *c) {
  if (c->flags) add_event(c, &(moth_notice){.kind = MOTH_NOTICE_OTHER});
}

/* Runs the op of the last entry and retains its results. Results of a list are in ctx->results. */
static int run_logged(moth_call_log *c, const moth_observed *run, bool lists) {
  int status = moth_observe(c->observer.next, run);
  call *last = &c->at[c->n - 1];
  const moth_results *list = &c->ctx->results;
  const uint32_t nout = last->op->nout, n = nout + (lists ? list->n : 0);
  for (uint32_t i = 0; i < n && !status; i++) {
    moth_tensor *y = i < nout ? run->out[i] : list->at[i - nout];
    if (!y) continue;
    status = hold(c, y);
    if (!status) last->nresults++;
  }
  if (status) forget_last(c);
  return status;
}

static int run_call(moth_observer *o, const moth_observed *run) {
  moth_call_log *c = (moth_call_log *)o;
  const moth_call_frame *from = run->args;
  const moth_op *op = run->op;
  moth_ctx *ctx = c->ctx;
  moth_call_frame f;
  const uint32_t n = c->n;
  if (ctx->autocast != MOTH_NO_DTYPE && !c->flags)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "the casts of autocast cannot be exported");
  const bool reshapes = op->origin && op->view; /* `t_`: its result is another tensor than x */
  if (ctx->autocast != MOTH_NO_DTYPE || reshapes) add_other(c);
  moth_frame_open(&f, ctx);
  int status = moth_read_args(&f, op, from->slots, from->nslots, from->given);
  if (!status) status = add_call(c, reshapes ? op->origin : op, &f.args);
  if (!status)
    c->at[c->n - 1].writes = !reshapes && writes(op, from->slots, from->nslots, from->given);
  else while (c->n > n) forget_last(c);
  moth_frame_close(&f);
  return status ? status : run_logged(c, run, true);
}

static int run_gradient(moth_observer *o, const moth_observed *run) {
  moth_call_log *c = (moth_call_log *)o;
  if (!(c->flags & MOTH_CALL_LOG_BACKWARD) || c->inside) return moth_observe(o->next, run);
  moth_args given = {.ctx = c->ctx};
  memcpy(&given, run->args, run->op->size);
  const uint32_t n = c->n;
  int status = add_call(c, run->op, &given);
  if (status && c->n > n) forget_last(c);
  if (status) return status;
  c->inside = true;
  status = run_logged(c, run, false);
  c->inside = false;
  return status;
}

/* Is x a result of a call in the log? */
static bool made(const moth_call_log *c, const moth_tensor *x) {
  for (uint32_t i = 0; i < c->n; i++) {
    const uint32_t end = i + 1 < c->n ? c->at[i + 1].first : c->nheld;
    for (uint32_t k = end - c->at[i].nresults; k < end; k++)
      if (c->held[k].x == x) return true;
  }
  return false;
}

static int notice(moth_observer *o, const moth_notice *e) {
  moth_call_log *c = (moth_call_log *)o;
  if (c->inside) return MOTH_OK;
  if (e->kind == MOTH_NOTICE_RESHAPE) { /* the entries refer to the old x */
    if (c->flags || made(c, e->x)) return e->x->slot != 0;
    return moth_fail(c->ctx, MOTH_E_UNSUPPORTED, e->what,
                     "an exported net cannot change the shape of a tensor from outside of it; "
                     "clone it first");
  }
  const bool read = e->kind == MOTH_NOTICE_READ;
  if (c->flags && e->kind <= MOTH_NOTICE_OTHER && (e->x || !read)) add_event(c, e);
  return MOTH_OK;
}

static void attach(moth_ctx *ctx, moth_call_log *c) {
  if (ctx->call_log) moth_observer_remove(ctx, &ctx->call_log->observer);
  if (c) moth_observer_add(ctx, &c->observer);
  ctx->call_log = c;
}

int moth_call_log_refuse(moth_ctx *ctx, const char *why) {
  if (!ctx->call_log) return MOTH_OK;
  if (!ctx->call_log->flags) return moth_fail(ctx, MOTH_E_STATE, NULL, "%s", why);
  add_other(ctx->call_log);
  attach(ctx, NULL);
  return MOTH_OK;
}

/* -- functions of moth_lua.h -- */

int32_t moth_call_log_begin(moth_ctx *ctx, uint32_t flags) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  moth_error_clear(ctx);
  if (ctx->closed) return moth_fail_closed(ctx);
  const bool nests = ctx->last_log && flags && ctx->last_log->flags;
  if ((ctx->last_log && !nests) || ctx->capture || moth_traces(ctx))
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a function is being traced or logged already");
  moth_call_log *c = moth_alloc(ctx, sizeof *c);
  if (!c) return ctx->error.code;
  *c = (moth_call_log){.ctx = ctx, .flags = flags, .outer = ctx->last_log,
                       .outer_active = ctx->call_log};
  c->observer = (moth_observer){
    .rank = MOTH_LOGS, .notice = notice,
    .run = {[MOTH_RUN_CALL] = run_call, [MOTH_RUN_GRADIENT] = run_gradient}};
  ctx->last_log = c;
  attach(ctx, c);
  return MOTH_OK;
}

void moth_call_log_end(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  if (!ctx->last_log) return;
  ctx->last_log->ended = true;
  attach(ctx, ctx->last_log->outer_active);
}

void moth_call_log_pause(moth_ctx *ctx, int32_t on) {
  MOTH_NEED(ctx, true, );
  moth_call_log *c = ctx->last_log;
  while (c && c->ended) c = c->outer;
  attach(ctx, on ? NULL : c);
}

void moth_call_log_free(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_call_log *c = ctx->last_log;
  if (!c) return;
  attach(ctx, c->outer_active);
  ctx->last_log = c->outer;
  while (c->n) forget_last(c);
  moth_dealloc(ctx, c->held, (int64_t)(c->held_capacity * sizeof *c->held));
  moth_dealloc(ctx, c->at, (int64_t)(c->capacity * sizeof *c->at));
  moth_dealloc(ctx, c, sizeof *c);
}

uint32_t moth_call_log_count(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, 0);
  const moth_call_log *c = ctx->call_log ? ctx->call_log : ctx->last_log;
  return c ? c->n : 0;
}

int32_t moth_call_log_at(moth_ctx *ctx, uint32_t i, moth_logged_call *logged) {
  MOTH_NEED(ctx, logged, MOTH_E_ARG);
  const moth_call_log *c = ctx->last_log;
  if (c && c->lost) return moth_fail(ctx, MOTH_E_MEM, NULL, "not all calls could be logged");
  if (!c || i >= c->n) return moth_fail(ctx, MOTH_E_ARG, NULL, "there is no such call");
  const call *at = &c->at[i];
  const uint32_t end = i + 1 < c->n ? at[1].first : c->nheld;
  *logged = (moth_logged_call){at->op, at->slots, end - at->first, at->nresults, at->writes,
                               at->event, at->recorded};
  return MOTH_OK;
}

int32_t moth_call_log_tensor(moth_ctx *ctx, uint32_t i, uint32_t k, moth_handle *out,
                             uint32_t *version) {
  MOTH_NEED(ctx, out && version, MOTH_E_ARG);
  moth_logged_call logged = {0};
  const int status = moth_call_log_at(ctx, i, &logged);
  *out = (moth_handle){0, 0};
  if (status || k >= logged.ntensors) return status;
  const held *at = &ctx->last_log->held[ctx->last_log->at[i].first + k];
  *version = at->version;
  return at->x ? moth_hand_out(ctx, moth_tensor_retain(at->x), out) : MOTH_OK;
}
