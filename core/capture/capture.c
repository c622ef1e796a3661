/* capture.c -- records the instructions and frozen tensors of a captured step (capture.h).
** capture_bytes.c has its memory, capture_run.c and capture_graph.c run it.
*/
#include "capture_parts.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/handles.h"
#include "tensor/tensor.h"

#include "call/frame.h"
#include "call/registry.h"

#include "op/copy.h"

/* -- storages -- */

/* Registers a storage that an instruction uses. A storage from before the capture is retained. */
static int touch(moth_capture *c, moth_storage *s) {
  if (s->capture == c->id) return MOTH_OK;
  if (s->root) {
    int status = touch(c, s->root);
    if (status) return status;
  }
  int status = moth_capture_adopt(c, s, 0);
  if (status) return status;
  c->stores[c->nstores - 1].how = MOTH_HELD_COUNTED;
  moth_storage_retain(s);
  return MOTH_OK;
}

/* -- frozen tensors -- */

static int watch(moth_capture *c, moth_tensor *x) {
  moth_tensor *base = moth_base(x);
  if (base) x = base;
  if (x->capture == c->id || (!x->slot && !(x->flags & MOTH_T_REQUIRES))) return MOTH_OK;
  for (uint32_t i = 0; i < c->nwatched; i++)
    if (c->watched[i].tensor == x) return MOTH_OK;
  int status =
    moth_grow(c->ctx, &c->watched, c->nwatched, &c->watch_capacity, sizeof *c->watched);
  if (!status)
    c->watched[c->nwatched++] =
      (moth_watched){moth_tensor_retain(x), x->storage, x->flags & MOTH_T_REQUIRES};
  return status;
}

/* A number operand is a constant: its bytes are copied, since the next call changes them. */
static moth_storage *number_of(moth_capture *c, const moth_tensor *x) {
  moth_storage *s = moth_capture_alloc(c, sizeof *s + 8);
  if (!s) return NULL;
  *s = (moth_storage){.refs = 1, .data = (char *)(s + 1), .nbytes = 8};
  memcpy(s->data, moth_at(x), (size_t)moth_dtype_size[x->l.dtype]);
  return s;
}

static moth_tensor *freeze(moth_capture *c, moth_tensor *x) {
  bool number = x->flags & MOTH_T_NUMBER;
  for (uint32_t i = 0; i < MOTH_FROZEN && !number; i++) {
    moth_tensor *y = c->frozen[i];
    if (y && y->storage == x->storage && y->l.dtype == x->l.dtype &&
        y->l.index_base == x->l.index_base && moth_layout_same(&y->l, &x->l))
      return moth_capture_inside(c, x->storage) || !watch(c, x) ? y : NULL;
  }
  moth_tensor *y = moth_capture_alloc(c, sizeof *y);
  if (!y) return NULL;
  *y = (moth_tensor){.refs = 1, .ctx = c->ctx, .l = x->l, .storage = x->storage,
                     .flags = x->flags & (MOTH_T_NUMBER | MOTH_T_WHOLE)};
  if (number) {
    y->l.offset = 0;
    y->storage = number_of(c, x);
    return y->storage ? y : NULL;
  }
  if (touch(c, x->storage)) return NULL;
  if (!moth_capture_inside(c, x->storage) && watch(c, x)) return NULL;
  c->frozen[c->nfrozen++ % MOTH_FROZEN] = y;
  return y;
}

/* Copies args, with frozen tensors and its own lists. */
static void *freeze_args(moth_capture *c, const moth_op *op, const void *args) {
  char *copy = moth_capture_alloc(c, op->size);
  if (!copy) return NULL;
  memcpy(copy, args, op->size);
  for (uint32_t row = 0; row < op->nrows; row++) {
    moth_slot *at = moth_arg_at(op, copy, row);
    int kind = op->kinds[row];
    if (moth_kind_is_tensor(kind)) {
      moth_tensor *x = (moth_tensor *)(uintptr_t)at->pointer;
      if (x && !(at->pointer = freeze(c, x))) return NULL;
    } else if (moth_kind_is_list(kind)) {
      moth_tensors *list = (moth_tensors *)(void *)at;
      moth_tensor **own = moth_capture_alloc(c, (list->n + 1) * (int64_t)sizeof *own);
      if (!own) return NULL;
      for (int64_t i = 0; i < list->n; i++) {
        own[i] = list->at[i] ? freeze(c, list->at[i]) : NULL;
        if (list->at[i] && !own[i]) return NULL;
      }
      list->at = own;
    } else if (moth_kind_is_ints(kind) && at[0].pointer) {
      void *own = moth_capture_alloc(c, at[1].integer * 8 + 8);
      if (!own) return NULL;
      memcpy(own, at[0].pointer, (size_t)at[1].integer * 8);
      at[0].pointer = own;
    }
  }
  return copy;
}

/* -- instructions -- */

/* Records that an instruction writes y. fresh: y was allocated for it. A storage that no op made is
** restored before each replay, even if it is completely written: it may have been read before. */
static int note_write(moth_capture *c, const moth_tensor *y, bool fresh) {
  moth_storage *s = y->storage;
  int status = fresh ? MOTH_OK : moth_capture_initial(c, moth_storage_root(s));
  if (status) return status;
  s->held |= s->held & MOTH_C_WRITTEN ? MOTH_C_AGAIN : MOTH_C_WRITTEN;
  if (s->root) s->root->held |= MOTH_C_WRITTEN | MOTH_C_AGAIN;
  return MOTH_OK;
}

/* An op with MOTH_OP_WHOLE may write each of its tensors, and updates their versions itself. */
static int note_whole(moth_capture *c, const moth_op *op, void *args) {
  moth_cursor cursor = {.op = op, .args = args};
  while (moth_next_input(&cursor)) {
    moth_storage *s = *cursor.at ? (*cursor.at)->storage : NULL;
    if (!s || s->capture != c->id || (s->held & MOTH_C_AGAIN)) continue;
    uint8_t held = s->held;
    int status = note_write(c, *cursor.at, false);
    if (status) return status;
    s->held = held | MOTH_C_AGAIN;
  }
  return MOTH_OK;
}

/* A generator that was made during the capture is advanced by instructions that draw numbers. */
static int note_drawn(moth_capture *c, const moth_op *op, void *args) {
  moth_cursor cursor = {.op = op, .args = args};
  int status = MOTH_OK;
  while (!status && moth_next_input(&cursor))
    if (*cursor.at && op->kinds[cursor.from] == MOTH_KIND_generator &&
        (*cursor.at)->storage->capture == c->id)
      status = note_write(c, *cursor.at, false);
  return status;
}

/* Does the op return the same result in each replay? */
static bool is_constant(const moth_op *op, const void *args) {
  moth_cursor cursor = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&cursor))
    if (*cursor.at) return false;
  return !(op->flags & MOTH_OP_RANDOM);
}

static int append(moth_capture *c, const moth_observed *run) {
  const moth_op *op = run->op;
  const void *args = run->args;
  moth_tensor **out = run->out;
  const uint32_t nout = run->nout;
  moth_instruction in = {.op = op, .run = run->kernel};
  int status = moth_grow(c->ctx, &c->code, c->ncode, &c->code_capacity, sizeof *c->code);
  if (status) return status;
  in.args = freeze_args(c, op, args);
  if (!in.args) return c->ctx->error.code;
  for (uint32_t i = 0; i < nout && out[i]; i++) {
    in.out[i] = freeze(c, out[i]);
    if (!in.out[i]) return c->ctx->error.code;
    status = note_write(c, in.out[i], run->fresh);
    if (status) return status;
  }
  if (op->flags & MOTH_OP_RANDOM) status = note_drawn(c, op, in.args);
  if (!status && op->flags & MOTH_OP_WHOLE) status = note_whole(c, op, in.args);
  if (status) return status;
  in.once = run->fresh && nout == 1 && !(out[0]->storage->held & MOTH_C_POOLED) &&
            is_constant(op, args);
  c->code[c->ncode++] = in;
  return MOTH_OK;
}

static int run_kernel(moth_observer *o, const moth_observed *run) {
  moth_capture *c = (moth_capture *)o;
  moth_ctx *ctx = c->ctx;
  if (!moth_capture_records(c)) return moth_observe(o->next, run);
  uint32_t before = c->ncode;
  int status = append(c, run);
  if (status) return status;
  ctx->quiet++;
  status = ctx->devices ? moth_capture_first_run(&c->code[before], run->args, run->out)
                        : moth_observe(o->next, run);
  ctx->quiet--;
  if (status) c->ncode = before;
  return status;
}

/* -- guards -- */

static const moth_op guard_op = {.name = "step"}; /* the op that errors in a guard name */

static int add_guard(moth_capture *c, moth_tensor *const *found, uint32_t n) {
  moth_guard *guard = moth_capture_alloc(c, sizeof *guard);
  moth_tensor **own = guard ? moth_capture_alloc(c, (int64_t)(n * sizeof *own)) : NULL;
  if (!own) return c->ctx->error.code;
  for (uint32_t i = 0; i < n; i++)
    if (!(own[i] = freeze(c, found[i]))) return c->ctx->error.code;
  int status = moth_grow(c->ctx, &c->code, c->ncode, &c->code_capacity, sizeof *c->code);
  if (status) return status;
  *guard = (moth_guard){.next = c->guards, .found = own, .nfound = n,
                        .number = c->guards ? c->guards->number + 1 : 0};
  c->guards = guard;
  c->code[c->ncode++] = (moth_instruction){.op = &guard_op, .args = guard};
  return MOTH_OK;
}

int32_t moth_capture_guard(moth_ctx *ctx, const moth_handle *found, uint32_t nfound) {
  MOTH_NEED(ctx, (found || !nfound), MOTH_E_ARG);
  moth_tensor *x[MOTH_MAX_DEVICES + 1];
  moth_capture *c = ctx->capture;
  moth_error_clear(ctx);
  if (nfound > MOTH_MAX_DEVICES + 1)
    return moth_fail(ctx, MOTH_E_SHAPE, NULL, "a guard reads one tensor of each device");
  if (c && c->guards && !c->guards->closed)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a guard is open already");
  for (uint32_t i = 0; i < nfound; i++) {
    x[i] = moth_resolve(ctx, &found[i], NULL);
    if (!x[i]) return ctx->error.code;
    if (x[i]->l.numel != 1)
      return moth_fail(ctx, MOTH_E_SHAPE, NULL, "a guard reads single elements");
  }
  int status = c ? add_guard(c, x, nfound) : MOTH_OK;
  return status ? status : moth_guard_look(ctx, x, nfound);
}

void moth_capture_guard_end(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  moth_capture *c = ctx->capture;
  if (!c || !c->guards || c->guards->closed) return;
  c->guards->closed = true;
  c->guards->past = c->ncode;
}

/* Small results of ops without inputs are the same in every replay. They use no pooled blocks, and
** replays do not compute them unless another instruction writes them. */
static void results(moth_observer *o, const moth_op *op, const void *args, bool on) {
  moth_capture *c = (moth_capture *)o;
  if (!moth_capture_records(c)) return;
  c->fresh = !on ? 0 : is_constant(op, args) ? MOTH_FRESH_LARGE : MOTH_FRESH_ALL;
}

/* -- notices -- */

static int meet_leaf(moth_capture *c, moth_node *leaf, bool set) {
  if (!leaf) return c->ctx->error.code;
  if ((leaf->flags & MOTH_N_YOUNG) && leaf->id > c->first) return MOTH_OK;
  for (uint32_t i = 0; i < c->nleaves; i++)
    if (c->leaves[i].leaf == leaf) return MOTH_OK;
  int status = moth_grow(c->ctx, &c->leaves, c->nleaves, &c->leaf_capacity, sizeof *c->leaves);
  if (status) return status;
  moth_tensor *before = set || !leaf->grad ? NULL : moth_tensor_retain(leaf->grad);
  c->leaves[c->nleaves++] = (moth_leaf_state){
    .leaf = moth_node_retain(leaf), .before = before, .asked = !set,
    .hooked = leaf->flags & MOTH_N_HOOKED};
  return MOTH_OK;
}

static int notice(moth_observer *o, const moth_notice *n) {
  moth_capture *c = (moth_capture *)o;
  const bool records = moth_capture_records(c);
  int status;
  if (c->ctx->capture != c) return MOTH_OK;
  switch (n->kind) {
    case MOTH_NOTICE_READ_GRAD:
    case MOTH_NOTICE_SET_GRAD:
      return meet_leaf(c, n->leaf ? n->leaf : moth_leaf_of(n->x), n->kind == MOTH_NOTICE_SET_GRAD);
    case MOTH_NOTICE_SHARE: /* replays use its bytes as long as x does */
      status = records ? touch(c, n->x->storage) : MOTH_OK;
      return status || !records ? status : watch(c, n->x);
    case MOTH_NOTICE_RESHAPE:
      if (!records || n->x->storage->capture == c->id) return MOTH_OK;
      return moth_fail(c->ctx, MOTH_E_UNSUPPORTED, n->what,
                       "a captured step cannot change the shape of a tensor from outside of it: "
                       "replays would not do it again");
    case MOTH_NOTICE_READ:
      if (!records) return MOTH_OK;
      return moth_fail(c->ctx, MOTH_E_UNSUPPORTED, NULL,
                       "%s while moth.capture records the step: the values would be constants in "
                       "every replay; do this outside of the captured function", n->what);
    default: return MOTH_OK;
  }
}

void moth_capture_attach(moth_capture *c) {
  c->observer = (moth_observer){
    .rank = MOTH_CAPTURES, .run = {[MOTH_RUN_KERNEL] = run_kernel}, .results = results,
    .born = moth_capture_born, .died = moth_capture_died, .constant = moth_capture_constant,
    .notice = notice};
  moth_observer_add(c->ctx, &c->observer);
  moth_capture_take_up(c->ctx, c);
}

void moth_capture_detach(moth_capture *c) {
  moth_capture_put_aside(c->ctx);
  moth_observer_remove(c->ctx, &c->observer);
}

int moth_capture_refuse_shape(moth_ctx *ctx, const char *op) {
  if (!ctx->capture || ctx->quiet > 1) return MOTH_OK; /* a shape rule is quiet itself */
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                   "the shape of the result of '%s' depends on values, so moth.capture cannot "
                   "record it; do this outside of the captured function", op);
}

int32_t moth_capture_uses(moth_ctx *ctx, const moth_handle *x) {
  MOTH_NEED(ctx, x, 0);
  const moth_tensor *t = ctx->capture && moth_alive(ctx, x) ? moth_resolve(ctx, x, NULL) : NULL;
  return t && moth_storage_root(t->storage)->capture == ctx->capture->id;
}

void moth_capture_void(moth_ctx *ctx) {
  MOTH_NEED(ctx, true, );
  if (ctx->capture) ctx->capture->empty = true;
}

moth_slot *moth_capture_slots(moth_ctx *ctx, const moth_op *op) {
  MOTH_NEED(ctx, op, NULL);
  moth_capture *c = ctx->capture;
  if (!c || c->ncode == 0 || c->code[c->ncode - 1].op != op) return NULL;
  c->code[c->ncode - 1].facts |= MOTH_I_VARIES;
  return moth_arg_at(op, c->code[c->ncode - 1].args, 0);
}
