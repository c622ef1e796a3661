/* capture.c -- recording a step: instructions and frozen tensors. capture.h tells how it works,
** capture_bytes.c holds the memory, capture_run.c and capture_graph.c run what was recorded.
*/
#include "capture_parts.h"
#include "lister.h"

#include "frame.h"
#include "registry.h"

#include "op/copy.h"

/* -- storages -- */

/* A storage that an instruction uses. One from before is held from now on. */
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
    moth_grow(c->ctx, &c->watched, c->nwatched, &c->watch_room, sizeof *c->watched);
  if (!status)
    c->watched[c->nwatched++] =
      (moth_watched){moth_tensor_retain(x), x->storage, x->flags & MOTH_T_REQUIRES};
  return status;
}

int moth_capture_look(moth_tensor *x) {
  moth_capture *c = x->ctx->capture;
  if (!moth_captures(x->ctx)) return MOTH_OK;
  int status = touch(c, x->storage);
  return status ? status : watch(c, x);
}

/* A number is a constant, and its bytes soon hold another. */
static moth_storage *number_of(moth_capture *c, const moth_tensor *x) {
  moth_storage *s = moth_capture_room(c, sizeof *s + 8);
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
  moth_tensor *y = moth_capture_room(c, sizeof *y);
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

/* A copy of args with frozen tensors and lists of its own. */
static void *freeze_args(moth_capture *c, const moth_op *op, const void *args) {
  char *copy = moth_capture_room(c, op->size);
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
      moth_tensor **own = moth_capture_room(c, (list->n + 1) * (int64_t)sizeof *own);
      if (!own) return NULL;
      for (int64_t i = 0; i < list->n; i++) {
        own[i] = list->at[i] ? freeze(c, list->at[i]) : NULL;
        if (list->at[i] && !own[i]) return NULL;
      }
      list->at = own;
    } else if (moth_kind_is_ints(kind) && at[0].pointer) {
      void *own = moth_capture_room(c, at[1].integer * 8 + 8);
      if (!own) return NULL;
      memcpy(own, at[0].pointer, (size_t)at[1].integer * 8);
      at[0].pointer = own;
    }
  }
  return copy;
}

/* -- instructions -- */

/* Notes that y is written. fresh: it was made for that. What no op made is put back before each
** replay even where it is written whole: it may have been read before. */
static int note_write(moth_capture *c, const moth_tensor *y, bool fresh) {
  moth_storage *s = y->storage;
  int status = fresh ? MOTH_OK : moth_capture_initial(c, moth_storage_root(s));
  if (status) return status;
  s->held |= s->held & MOTH_C_WRITTEN ? MOTH_C_AGAIN : MOTH_C_WRITTEN;
  if (s->root) s->root->held |= MOTH_C_WRITTEN | MOTH_C_AGAIN;
  return MOTH_OK;
}

/* An op that is recorded whole may write each of its tensors, and sees to their versions. */
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

/* A generator that was made here goes on where numbers are drawn from it. */
static int note_drawn(moth_capture *c, const moth_op *op, void *args) {
  moth_cursor cursor = {.op = op, .args = args};
  int status = MOTH_OK;
  while (!status && moth_next_input(&cursor))
    if (*cursor.at && op->kinds[cursor.from] == MOTH_KIND_generator &&
        (*cursor.at)->storage->capture == c->id)
      status = note_write(c, *cursor.at, false);
  return status;
}

/* Whether the op gives the same each time. */
static bool is_constant(const moth_op *op, const void *args) {
  moth_cursor cursor = {.op = op, .args = (void *)(uintptr_t)args};
  while (moth_next_input(&cursor))
    if (*cursor.at) return false;
  return !(op->flags & MOTH_OP_RANDOM);
}

static int append(moth_capture *c, const moth_op *op, moth_kernel run, const void *args,
                  moth_tensor **out, uint32_t nout, bool fresh) {
  moth_instruction in = {.op = op, .run = run};
  int status = moth_grow(c->ctx, &c->code, c->ncode, &c->code_room, sizeof *c->code);
  if (status) return status;
  in.args = freeze_args(c, op, args);
  if (!in.args) return c->ctx->error.code;
  for (uint32_t i = 0; i < nout && out[i]; i++) {
    in.out[i] = freeze(c, out[i]);
    if (!in.out[i]) return c->ctx->error.code;
    status = note_write(c, in.out[i], fresh);
    if (status) return status;
  }
  if (op->flags & MOTH_OP_RANDOM) status = note_drawn(c, op, in.args);
  if (!status && op->flags & MOTH_OP_WHOLE) status = note_whole(c, op, in.args);
  if (status) return status;
  in.once = fresh && nout == 1 && !(out[0]->storage->held & MOTH_C_POOLED) && is_constant(op, args);
  c->code[c->ncode++] = in;
  return MOTH_OK;
}

int moth_capture_run(const moth_op *op, moth_kernel run, const void *args, moth_tensor **out,
                     uint32_t nout, bool fresh) {
  moth_ctx *ctx = ((const moth_args *)args)->ctx;
  if (ctx->quiet) return run(args, out);
  moth_capture *c = ctx->capture;
  uint32_t before = c->ncode;
  int status = append(c, op, run, args, out, nout, fresh);
  if (status) return status;
  ctx->quiet++;
  status = ctx->devices ? moth_capture_observe(&c->code[before], args, out) : run(args, out);
  ctx->quiet--;
  if (status) c->ncode = before;
  return status;
}

/* -- guards -- */

static const moth_op guard_op = {.name = "step"}; /* what an error in it is blamed on */

static int add_guard(moth_capture *c, moth_tensor *const *found, uint32_t n) {
  moth_guard *guard = moth_capture_room(c, sizeof *guard);
  moth_tensor **own = guard ? moth_capture_room(c, (int64_t)(n * sizeof *own)) : NULL;
  if (!own) return c->ctx->error.code;
  for (uint32_t i = 0; i < n; i++)
    if (!(own[i] = freeze(c, found[i]))) return c->ctx->error.code;
  int status = moth_grow(c->ctx, &c->code, c->ncode, &c->code_room, sizeof *c->code);
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
    return moth_fail(ctx, MOTH_E_SHAPE, NULL, "a guard looks at one tensor of each device");
  if (c && c->guards && !c->guards->closed)
    return moth_fail(ctx, MOTH_E_STATE, NULL, "a guard is open already");
  for (uint32_t i = 0; i < nfound; i++) {
    x[i] = moth_resolve(ctx, &found[i], NULL);
    if (!x[i]) return ctx->error.code;
    if (x[i]->l.numel != 1)
      return moth_fail(ctx, MOTH_E_SHAPE, NULL, "a guard looks at single elements");
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

/* What small results without inputs hold is the same in every replay: they are no part of the pool,
** and unless something else writes them, of the replay either. */
void moth_capture_fresh(moth_ctx *ctx, const moth_op *op, const void *args, bool on) {
  if (ctx->quiet) return;
  ctx->capture->fresh = !on ? 0 : is_constant(op, args) ? MOTH_FRESH_LARGE : MOTH_FRESH_ALL;
}

/* -- what else a recording notices -- */

int moth_capture_leaf(moth_node *leaf, bool set) {
  moth_capture *c = leaf->ctx->capture;
  if (!c || ((leaf->flags & MOTH_N_YOUNG) && leaf->id > c->first)) return MOTH_OK;
  for (uint32_t i = 0; i < c->nleaves; i++)
    if (c->leaves[i].leaf == leaf) return MOTH_OK;
  int status = moth_grow(c->ctx, &c->leaves, c->nleaves, &c->leaf_room, sizeof *c->leaves);
  if (status) return status;
  moth_tensor *before = set || !leaf->grad ? NULL : moth_tensor_retain(leaf->grad);
  c->leaves[c->nleaves++] = (moth_leaf_state){
    .leaf = moth_node_retain(leaf), .before = before, .asked = !set,
    .hooked = leaf->flags & MOTH_N_HOOKED};
  return MOTH_OK;
}

int moth_capture_refuse(moth_ctx *ctx, const char *what) {
  if (ctx->lister && ctx->lister->ran)
    return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                     "%s inside a moth.kernel, which is read once for all values; choose by "
                     "moth.where", what);
  if (!moth_captures(ctx)) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                   "%s while moth.capture records the step: what it finds would be a constant "
                   "of every replay; do this outside of the captured function", what);
}

int moth_capture_refuse_shape(moth_ctx *ctx, const char *op) {
  if (!ctx->capture || ctx->quiet > 1) return MOTH_OK; /* a shape rule itself is quiet */
  return moth_fail(ctx, MOTH_E_UNSUPPORTED, NULL,
                   "the shape of what '%s' gives depends on values, so moth.capture cannot record "
                   "it; do this outside of the captured function", op);
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
