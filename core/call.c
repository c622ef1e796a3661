/* call.c -- the road of a call: slots to arguments, dtypes, shape, memory, kernel, tape, handles.
**
** moth_call reads what the caller laid out and fills in defaults; moth_run is the same road for C,
** from a filled args struct on. Nothing is recorded or handed out unless every step went well.
*/
#include "loop.h"
#include "registry.h"
#include "tape.h"

#include "op/copy.h"

#define MOST_IN_LIST ((int64_t)1 << 31)
#define LISTS 8
#define TEMPS 16     /* cast or copied inputs held in place; more go to the allocator */

typedef struct args_buffer {
  moth_ctx *ctx;
  moth_slot slot[MOTH_MAX_SLOTS];
} args_buffer;

/* Temporaries of one call: owned tensors and blocks that die with it. */
typedef struct call_frame {
  args_buffer args;
  moth_results temps;
  moth_tensor *room[TEMPS];
  void *list[LISTS];
  int64_t list_bytes[LISTS];
  uint32_t nlists;
} call_frame;

static void frame_open(call_frame *f, moth_ctx *ctx) {
  f->temps = (moth_results){.ctx = ctx, .at = f->room, .room = TEMPS};
  f->nlists = 0;
  f->args.ctx = ctx;
}

/* Keeps an owned tensor until the call ends; the first TEMPS of them cost nothing. */
static moth_tensor *frame_keep(call_frame *f, moth_tensor *take) {
  moth_results *t = &f->temps;
  if (!take) return NULL;
  if (t->n == t->room && t->at == f->room) {
    moth_tensor **at = moth_alloc(t->ctx, (int64_t)(2 * TEMPS * sizeof *at));
    if (!at) {
      moth_tensor_release(take);
      return NULL;
    }
    memcpy(at, f->room, sizeof f->room);
    t->at = at;
    t->room = 2 * TEMPS;
  }
  return moth_results_push(t, take) ? NULL : take;
}

static void frame_close(call_frame *f) {
  moth_results_clear(&f->temps);
  if (f->temps.at != f->room)
    moth_dealloc(f->temps.ctx, f->temps.at, (int64_t)(f->temps.room * sizeof(moth_tensor *)));
  while (f->nlists) {
    f->nlists--;
    moth_dealloc(f->temps.ctx, f->list[f->nlists], f->list_bytes[f->nlists]);
  }
}

/* A block for a list of n pointers, freed with the frame. */
static moth_tensor **frame_list(call_frame *f, int64_t n) {
  int64_t bytes = (n ? n : 1) * (int64_t)sizeof(moth_tensor *);
  void *block = NULL;
  if (f->nlists < LISTS) block = moth_alloc(f->temps.ctx, bytes);
  else moth_fail(f->temps.ctx, MOTH_E_UNSUPPORTED, NULL, "more than %d lists of tensors", LISTS);
  if (!block) return NULL;
  f->list[f->nlists] = block;
  f->list_bytes[f->nlists++] = bytes;
  return block;
}

/* -- reading the slots -- */

static int read_list(call_frame *f, const moth_op *op, uint32_t row, const moth_slot *from,
                     moth_tensors *to) {
  moth_ctx *ctx = f->temps.ctx;
  const moth_handle *handles = from[0].pointer;
  int64_t n = from[1].integer;
  to->n = n;
  to->at = frame_list(f, n);
  if (!to->at) return ctx->error.code;
  for (int64_t i = 0; i < n; i++) {
    bool absent = handles[i]._slot == 0 && op->kinds[row] == MOTH_KIND_indices;
    to->at[i] = absent ? NULL : moth_resolve(ctx, &handles[i], op->rows[row].name);
    if (!to->at[i] && !absent) return ctx->error.code;
  }
  return MOTH_OK;
}

static int read_tensor(moth_ctx *ctx, const moth_op *op, uint32_t row, const moth_slot *from,
                       moth_slot *to) {
  int kind = op->kinds[row];
  bool optional = kind == MOTH_KIND_maybe_tensor || kind == MOTH_KIND_maybe_index ||
                  kind == MOTH_KIND_generator;
  to->pointer = NULL;
  if (optional && from->handle._slot == 0) return MOTH_OK;
  to->pointer = moth_resolve(ctx, &from->handle, op->rows[row].name);
  return to->pointer ? MOTH_OK : ctx->error.code;
}

/* Values that are used as sizes, counts or table places later must be sound by then. */
static int check_plain(moth_ctx *ctx, const moth_op *op, uint32_t row, const moth_slot *v) {
  int kind = op->kinds[row];
  bool good = true;
  if (moth_kind_is_ints(kind) || moth_kind_is_list(kind))
    good = v[1].integer >= 0 && v[1].integer <= MOST_IN_LIST && (v[0].pointer || !v[1].integer);
  else if (kind == MOTH_KIND_dtype) good = v->integer >= -1 && v->integer < MOTH_DTYPES;
  else if (kind == MOTH_KIND_enum)
    good = v->integer >= 0 && v->integer < op->defaults[row].choices;
  else if (kind == MOTH_KIND_device) good = v->integer == 0;
  else if (kind == MOTH_KIND_scalar) good = v->integer >= 0 && v->integer <= 2;
  if (good) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_ARG, op->rows[row].name, "this is no %s", op->rows[row].kind);
}

static int fill_default(const moth_op *op, args_buffer *args, uint32_t row) {
  const moth_default *d = &op->defaults[row];
  if (d->type == MOTH_REQUIRED)
    return moth_fail(args->ctx, MOTH_E_ARG, op->rows[row].name, "a value is needed, got nothing");
  const moth_arg *at = &op->rows[row];
  moth_slot *to = args->slot + at->slot;
  if (d->type == MOTH_EARLIER) {
    const moth_arg *e = &op->rows[d->earlier];
    for (uint32_t i = 0; i < at->nslots; i++)
      to[i] = args->slot[e->slot + (e->nslots == at->nslots ? i : 0)];
  } else {
    memcpy(to, d->value, at->nslots * sizeof *to);
  }
  return MOTH_OK;
}

static int read_args(call_frame *f, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                     uint64_t given) {
  moth_ctx *ctx = f->temps.ctx;
  for (uint32_t row = 0; row < op->nrows; row++) {
    const moth_arg *at = &op->rows[row];
    int kind = op->kinds[row], status = MOTH_OK;
    if (!(given >> row & 1u) || at->slot + at->nslots > nslots) {
      status = fill_default(op, &f->args, row);
    } else if ((status = check_plain(ctx, op, row, slots + at->slot)) != MOTH_OK) {
      return status;
    } else if (moth_kind_is_tensor(kind)) {
      status = read_tensor(ctx, op, row, slots + at->slot, f->args.slot + at->slot);
    } else if (moth_kind_is_list(kind)) {
      moth_tensors *list = (moth_tensors *)(void *)(f->args.slot + at->slot);
      status = read_list(f, op, row, slots + at->slot, list);
    } else {
      memcpy(f->args.slot + at->slot, slots + at->slot, at->nslots * sizeof(moth_slot));
    }
    if (status) return status;
  }
  return MOTH_OK;
}

/* -- dtypes --
** PyTorch's rule: tensors with dims decide, 0-d tensors and then numbers only lift the category. */

enum { NOTHING = -1 };

typedef struct dtype_votes {
  int dims, zero, number; /* the dtype of each rank of voters */
} dtype_votes;

static int lift(int higher, int lower) {
  if (higher == NOTHING) return lower;
  if (lower == NOTHING || moth_is_float(higher)) return higher;
  if (higher == MOTH_BOOL || moth_is_float(lower)) return moth_promote(higher, lower);
  return higher;
}

static int join_votes(int a, int b) { return a == NOTHING ? b : moth_promote(a, b); }

static void vote(dtype_votes *v, const moth_tensor *x) {
  int dtype = x->l.dtype;
  if (x->flags & MOTH_T_NUMBER) {
    if (dtype == MOTH_F64) dtype = (x->flags & MOTH_T_WHOLE) ? MOTH_I64 : x->ctx->default_dtype;
    v->number = join_votes(v->number, dtype);
  } else if (x->l.ndim == 0) {
    v->zero = join_votes(v->zero, dtype);
  } else {
    v->dims = join_votes(v->dims, dtype);
  }
}

static int check_dtype(const moth_op *op, moth_ctx *ctx, int dtype, const char *arg) {
  char set[64];
  if (dtype == NOTHING || (op->dtypes >> dtype & 1u)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DTYPE, arg, "%s is not supported here, wanted %s",
                   moth_dtype_name(dtype), moth_dtypes_str(op->dtypes & MOTH_ANY, set));
}

/* Replaces *at by its cast to dtype; a cast of a real tensor is recorded. */
static int cast_input(call_frame *f, const char *arg, moth_tensor **at, int dtype) {
  moth_tensor *x = *at, *y = NULL;
  if (x->l.dtype == dtype && !(x->flags & MOTH_T_NUMBER)) return MOTH_OK;
  if (x->flags & MOTH_T_NUMBER) {
    if (!moth_value_fits(x->l.dtype, moth_at(x), dtype)) {
      moth_slot v;
      memcpy(&v, moth_at(x), 8);
      if (x->l.dtype == MOTH_F64)
        return moth_fail(x->ctx, MOTH_E_DTYPE, arg, "%.17g does not fit %s", v.number,
                         moth_dtype_name(dtype));
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg, "%lld does not fit %s", (long long)v.integer,
                       moth_dtype_name(dtype));
    }
    moth_layout l = {.numel = 1, .dtype = (uint8_t)dtype};
    y = moth_tensor_new(x->ctx, &l);
    if (y) moth_convert(1, x->l.dtype, moth_at(x), 8, dtype, moth_at(y), 8);
  } else {
    int status = MOTH_CALL(x->ctx, &y, cast, .input = x, .dtype = dtype);
    if (status) return status;
  }
  *at = frame_keep(f, y);
  return *at ? MOTH_OK : x->ctx->error.code;
}

/* Without promotion all tensors must agree; the first one sets the tone. */
static int same_dtypes(const moth_op *op, moth_cursor c, int *dtype) {
  const moth_tensor *first = NULL;
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at;
    if (!x || !moth_kind_is_value(op->kinds[c.from])) continue;
    int status = check_dtype(op, x->ctx, x->l.dtype, op->rows[c.from].name);
    if (status) return status;
    if (!first) first = x;
    if (x->l.dtype != first->l.dtype && !(op->flags & MOTH_OP_MIXED))
      return moth_fail(x->ctx, MOTH_E_DTYPE, op->rows[c.from].name,
                       "%s does not go with %s; convert one of them with :to()", moth_str(x),
                       moth_str(first));
  }
  *dtype = first ? first->l.dtype : NOTHING;
  return MOTH_OK;
}

/* Finds the common dtype and casts the inputs to it. */
static int promote(call_frame *f, const moth_op *op, int *dtype) {
  moth_ctx *ctx = f->temps.ctx;
  dtype_votes v = {NOTHING, NOTHING, NOTHING};
  moth_cursor start = {.op = op, .args = &f->args}, c = start;
  bool numbers_only = true;
  while (moth_next_input(&c))
    if (*c.at && moth_kind_is_value(op->kinds[c.from])) {
      vote(&v, *c.at);
      numbers_only &= ((*c.at)->flags & MOTH_T_NUMBER) != 0;
    } else if (*c.at) {
      numbers_only = false; /* where(mask, 1, 0) */
    }
  *dtype = lift(v.dims, lift(v.zero, v.number));
  if (*dtype == NOTHING) return MOTH_OK;
  if (numbers_only)
    return moth_fail(ctx, MOTH_E_TYPE, NULL, "at least one tensor is needed, got numbers only");
  if ((op->dtypes & MOTH_TO_FLOAT) && !moth_is_float(*dtype) &&
      (!op->to_float || op->to_float(&f->args)))
    *dtype = ctx->default_dtype;
  int status = check_dtype(op, ctx, *dtype, op->rows[0].name);
  for (c = start; !status && moth_next_input(&c);)
    if (*c.at && moth_kind_is_value(op->kinds[c.from]))
      status = cast_input(f, op->rows[c.from].name, c.at, *dtype);
  return status;
}

/* Other kinds of tensor have one dtype each. */
static int check_kinds(const moth_op *op, moth_cursor c) {
  while (moth_next_input(&c)) {
    const moth_tensor *x = *c.at;
    int kind = op->kinds[c.from];
    const char *arg = op->rows[c.from].name;
    if (!x) continue;
    if (kind == MOTH_KIND_mask && x->l.dtype != MOTH_BOOL)
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg, "a mask is a bool tensor, got %s", moth_str(x));
    if ((kind == MOTH_KIND_index || kind == MOTH_KIND_maybe_index) && x->l.dtype != MOTH_I64)
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg,
                       "positions must be integers, got %s; convert with :long()", moth_str(x));
    if (kind == MOTH_KIND_indices && x->l.dtype != MOTH_I64 && x->l.dtype != MOTH_BOOL)
      return moth_fail(x->ctx, MOTH_E_DTYPE, arg,
                       "an index is an int64 or bool tensor, got %s; convert with :long() "
                       "or :bool()",
                       moth_str(x));
    if (kind == MOTH_KIND_generator &&
        (x->l.dtype != MOTH_I64 || x->l.numel != 2 || !moth_contiguous(x)))
      return moth_fail(x->ctx, MOTH_E_TYPE, arg, "not a generator: %s", moth_str(x));
  }
  return MOTH_OK;
}

static int prepare(call_frame *f, const moth_op *op, int *dtype) {
  moth_cursor c = {.op = op, .args = &f->args};
  int status = check_kinds(op, c);
  if (status) return status;
  if (op->compose || op->list) { /* what it is made of checks for itself */
    *dtype = NOTHING;
    return same_dtypes(op, c, dtype);
  }
  if (op->dtypes & (MOTH_PROMOTE | MOTH_TO_FLOAT)) return promote(f, op, dtype);
  return same_dtypes(op, c, dtype);
}

/* -- fresh results -- */

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

static int shapes_of(call_frame *f, const moth_op *op, int dtype, moth_layout *y) {
  for (uint32_t i = 0; i < op->nout + op->nhidden; i++) {
    y[i].ndim = 0;
    y[i].offset = 0;
    y[i].device = 0;
    y[i].dtype = (uint8_t)(dtype == NOTHING ? f->temps.ctx->default_dtype : dtype);
    if (op->position >> i & 1u) y[i].dtype = MOTH_I64;
  }
  return op->shape(&f->args, y);
}

static int run_fresh(call_frame *f, const moth_op *op, int dtype, moth_tensor **out) {
  moth_layout y[MOTH_MAX_OUTPUTS];
  uint32_t n = op->nout + op->nhidden, made = 0;
  int status = shapes_of(f, op, dtype, y);
  for (; !status && made < n; made++) {
    out[made] = moth_tensor_new(f->temps.ctx, &y[made]);
    if (!out[made]) {
      status = f->temps.ctx->error.code;
      break;
    }
  }
  if (!status) status = op->cpu(&f->args, out);
  if (!status) status = moth_record(op, &f->args, out);
  if (status) release_all(out, made);
  return status;
}

static int run_view(call_frame *f, const moth_op *op, moth_tensor **out) {
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

/* -- into a tensor that exists -- */

static bool may_overlap(const moth_tensor *a, const moth_tensor *b) {
  if (moth_storage_root(a->storage) != moth_storage_root(b->storage)) return false;
  int64_t alo, ahi, blo, bhi;
  moth_layout_span(&a->l, &alo, &ahi);
  moth_layout_span(&b->l, &blo, &bhi);
  return alo * moth_dtype_size[a->l.dtype] < bhi * moth_dtype_size[b->l.dtype] &&
         blo * moth_dtype_size[b->l.dtype] < ahi * moth_dtype_size[a->l.dtype];
}

/* Replaces inputs that the write would change under the kernel's or the gradient's feet by copies:
** those that overlap the target and are not the very same elements, and, if the call is recorded,
** those that the gradient reads and that share the target's storage. */
static int untangle(call_frame *f, const moth_op *op, const moth_tensor *target, bool recorded) {
  moth_cursor c = {.op = op, .args = &f->args};
  bool writes_only = op->flags & MOTH_OP_MUTATES && !op->origin;
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at, *y = NULL;
    if (!x || c.arg == 0) continue;
    if (moth_storage_root(x->storage) != moth_storage_root(target->storage)) continue;
    bool same = x->l.dtype == target->l.dtype && moth_layout_same(&x->l, &target->l);
    bool read_later = recorded && op->save_in[c.from];
    if (!read_later && (!may_overlap(x, target) || (same && !writes_only))) continue;
    int status = MOTH_CALL(x->ctx, &y, clone, .input = x);
    if (status) return status;
    *c.at = frame_keep(f, y);
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

/* The value of the target from before, if the op's gradient reads it. */
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

static int run_direct(call_frame *f, const moth_op *op, moth_tensor *target, bool in_place) {
  bool recorded = in_place && moth_records(op, &f->args);
  moth_tensor *before, *out[MOTH_MAX_OUTPUTS] = {target};
  moth_write write = {0};
  int status = untangle(f, op, target, recorded);
  if (!status) status = save_before(op, target, recorded, &before);
  if (status) return status;
  if (recorded) status = moth_record_write(op, &f->args, target, before, &write);
  moth_tensor_release(before);
  if (!status && target->l.numel) {
    status = op->cpu(&f->args, out);
    /* Kernels check what they read before they write; only these two come in the middle. */
    if (!status || status == MOTH_E_INTERRUPT || status == MOTH_E_MEM)
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

/* moth_run_into without the frame. `add_` has come down to `add`. */
static int run_into(call_frame *f, const moth_op *op, const void *args, moth_tensor *target) {
  moth_ctx *ctx = target->ctx;
  moth_layout y[MOTH_MAX_OUTPUTS];
  bool in_place = first_tensor(op, args) == target;
  const char *arg = in_place ? op->rows[0].name : "out";
  bool recorded = moth_records(op, args);
  int dtype, status;
  if (!in_place && (recorded || (ctx->grad_mode && moth_needs_grad(target))))
    return moth_fail(ctx, MOTH_E_GRAPH, "out", "gradients cannot flow through `out`; use no_grad");
  status = moth_check_write(target, arg, recorded);
  if (!status) status = prepare(f, op, &dtype);
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
  status = moth_run(op, args, fresh);
  if (status) return status;
  status = check_target(op, target, &fresh[0]->l, arg);
  if (!status) status = write_result(target, fresh[0]);
  release_all(fresh, op->nout + op->nhidden);
  return status;
}

/* An op that only writes: copy_, fill_, index_put_. */
static int run_writer(call_frame *f, const moth_op *op, moth_tensor **out) {
  moth_tensor *target = first_tensor(op, &f->args);
  bool recorded = moth_records(op, &f->args);
  moth_layout y[MOTH_MAX_OUTPUTS];
  int status = moth_check_write(target, op->rows[0].name, recorded);
  if (!status) status = shapes_of(f, op, target->l.dtype, y);
  if (!status) status = run_direct(f, op, target, true);
  if (!status) *out = moth_tensor_retain(target);
  return status;
}

/* -- the two entrances -- */

static int run_frame(call_frame *f, const moth_op *op, moth_tensor **out) {
  int dtype = NOTHING, status;
  if (op->origin) {
    moth_tensor *target = first_tensor(op, &f->args);
    args_buffer args = f->args; /* prepare may replace inputs; the fallback needs the user's */
    status = run_into(f, op->origin, &args, target);
    if (!status) out[0] = moth_tensor_retain(target);
    return status;
  }
  status = prepare(f, op, &dtype);
  if (status) return status;
  if (op->view) return run_view(f, op, out);
  if (op->compose) return op->compose(&f->args, out);
  if (op->list) return op->list(&f->args, &f->temps.ctx->results);
  if (op->flags & MOTH_OP_MUTATES) return run_writer(f, op, out);
  return run_fresh(f, op, dtype, out);
}

int moth_run(const moth_op *op, const void *args, moth_tensor **out) {
  call_frame f;
  moth_ctx *ctx = ((const args_buffer *)args)->ctx;
  frame_open(&f, ctx);
  memcpy(&f.args, args, op->size);
  int status = moth_cancelled(ctx) ? moth_poll(ctx) : run_frame(&f, op, out);
  frame_close(&f);
  return status;
}

int moth_run_into(const moth_op *op, const void *args, moth_tensor *target) {
  call_frame f;
  frame_open(&f, target->ctx);
  memcpy(&f.args, args, op->size);
  int status = run_into(&f, op, args, target);
  frame_close(&f);
  return status;
}

/* The `out` that was given, in the slot behind the op's own; NULL if none. */
static int given_out(moth_ctx *ctx, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                     uint64_t given, moth_tensor **target) {
  *target = NULL;
  if (op->info.nargs == op->nrows || !(given >> op->nrows & 1u)) return MOTH_OK;
  uint32_t at = op->info.args[op->nrows].slot;
  if (at >= nslots || slots[at].handle._slot == 0) return MOTH_OK;
  *target = moth_resolve(ctx, &slots[at].handle, "out");
  return *target ? MOTH_OK : ctx->error.code;
}

static int call(call_frame *f, const moth_op *op, const moth_slot *slots, uint32_t nslots,
                uint64_t given, moth_tensor **out) {
  moth_ctx *ctx = f->temps.ctx;
  moth_tensor *target;
  int status = read_args(f, op, slots, nslots, given);
  if (!status) status = given_out(ctx, op, slots, nslots, given, &target);
  if (status) return status;
  if (!target) return run_frame(f, op, out);
  args_buffer args = f->args;
  status = run_into(f, op, &args, target);
  if (!status) out[0] = moth_tensor_retain(target);
  return status;
}

/* Handles for the first nout results, the others into ctx->results; after an error, none. */
static int give_results(moth_ctx *ctx, const moth_op *op, int status, moth_tensor **y,
                        moth_handle *out, uint32_t nout) {
  uint32_t handed = 0;
  for (uint32_t i = 0; i < MOTH_MAX_OUTPUTS; i++) {
    if (!y[i]) continue;
    if (status || i >= op->nout) {
      moth_tensor_release(y[i]);
    } else if (i < nout) {
      status = moth_hand_out(ctx, y[i], &out[i]);
      if (!status) handed = i + 1;
    } else if (op->flags & MOTH_OP_MUTATES) {
      moth_tensor_release(y[i]);
    } else {
      status = moth_results_push(&ctx->results, y[i]);
    }
  }
  if (!status) return moth_due(ctx);
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
  call_frame f;
  moth_tensor *y[MOTH_MAX_OUTPUTS] = {NULL};
  moth_error_clear(ctx);
  moth_results_clear(&ctx->results);
  moth_error_blame(ctx, op->name);
  frame_open(&f, ctx);
  int status = moth_cancelled(ctx) ? moth_poll(ctx) : call(&f, op, slots, nslots, given, y);
  frame_close(&f);
  ctx->numbers = 0;
  return give_results(ctx, op, status, y, out, nout);
}
