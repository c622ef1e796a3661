/* autocast.c -- mixed precision. Inside an autocast region the field `.autocast` of an op's record
** (as PyTorch's lists for CUDA) selects the dtype: products compute in the region's dtype, ops that
** lose digits or leave the range of f16 in f32, and all others in the widest dtype of their
** tensors. Casts are recorded, so gradients reach f32 leaves. The cast of a leaf is kept until the
** outermost region ends, since weights are used many times. A normalization writes its result in
** both dtypes at once.
*/
#include "autograd/backward_parts.h"
#include "base/coroutine.h"
#include "frame.h"
#include "tensor/tensor.h"
#include "base/error.h"
#include "base/alloc.h"
#include "autocast.h"

#include "op/copy.h"

struct moth_cast {
  moth_tensor *x, *y; /* counted: a leaf and its cast */
  const moth_storage *storage; /* the leaf's storage at the cast, which .data may replace */
  uint64_t id;
  uint32_t version;   /* the storage's version at the cast */
  bool recorded;
};

void moth_autocast_forget(moth_ctx *ctx) {
  while (ctx->ncasts) {
    struct moth_cast c = ctx->casts[--ctx->ncasts];
    moth_tensor_release(c.x);
    moth_tensor_release(c.y);
  }
  if (ctx->casts) moth_dealloc(ctx, ctx->casts, ctx->cast_capacity * (int64_t)sizeof *ctx->casts);
  ctx->casts = NULL;
  ctx->cast_capacity = 0;
  moth_tensor_release(ctx->half_copy.y);
  ctx->half_copy.y = NULL;
}

int32_t moth_autocast(moth_ctx *ctx, int32_t dtype) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = moth_mode(ctx, MOTH_MODE_AUTOCAST, MOTH_ASK);
  if (dtype < MOTH_NO_DTYPE) return old;
  if (dtype >= MOTH_DTYPES)
    return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %d", dtype);
  if (dtype != MOTH_NO_DTYPE && !moth_is_half(dtype))
    return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "f16 or bf16 is needed, got %s",
                     moth_dtype_name(dtype));
  moth_mode(ctx, MOTH_MODE_AUTOCAST, dtype);
  return old;
}

/* Also true for ops that have no half types, such as linear algebra. */
static bool computes_in_f32(const moth_op *op) {
  const uint32_t halves = MOTH_BIT(MOTH_F16) | MOTH_BIT(MOTH_BF16);
  return op->autocast == MOTH_AUTOCAST_F32 ||
         (op->dtypes & MOTH_BIT(MOTH_F32) && !(op->dtypes & halves));
}

/* f64 tensors are not cast. */
static bool eligible(const moth_tensor *x) {
  return moth_is_float(x->l.dtype) && x->l.dtype != MOTH_F64 && !(x->flags & MOTH_T_NUMBER);
}

/* The widest dtype of the float tensors, if they differ and the op does not promote them itself. */
static int widest(const moth_op *op, moth_cursor c) {
  int dtype = MOTH_NO_DTYPE;
  bool mixed = false;
  if (op->flags & MOTH_OP_MUTATES || op->dtypes & (MOTH_PROMOTE | MOTH_TO_FLOAT) ||
      op->autocast == MOTH_AUTOCAST_OFF)
    return MOTH_NO_DTYPE;
  while (moth_next_input(&c)) {
    const moth_tensor *x = *c.at;
    if (!x || !c.value || !moth_is_float(x->l.dtype) || x->flags & MOTH_T_NUMBER) continue;
    if (dtype != MOTH_NO_DTYPE && dtype != x->l.dtype) mixed = true;
    dtype = dtype == MOTH_NO_DTYPE ? x->l.dtype : moth_promote(dtype, x->l.dtype);
  }
  return mixed ? dtype : MOTH_NO_DTYPE;
}

/* -- kept casts of leaves -- */

static bool worth_keeping(const moth_tensor *x, int dtype) {
  return dtype == x->ctx->autocast && x->flags & MOTH_T_REQUIRES && !moth_base(x);
}

/* Borrowed, or NULL. */
static moth_tensor *kept_cast(const moth_tensor *x, int dtype) {
  moth_ctx *ctx = x->ctx;
  for (uint32_t i = 0; i < ctx->ncasts; i++) {
    struct moth_cast *c = &ctx->casts[i];
    if (c->x != x || c->y->l.dtype != dtype) continue;
    bool used_up = c->y->node && c->y->node->flags & MOTH_N_RELEASED;
    bool same = c->storage == x->storage && c->id == x->storage->id &&
                c->version == moth_storage_version(x->storage);
    if (same && c->recorded == ctx->grad_mode && !used_up) return c->y;
    moth_tensor_release(c->x);
    moth_tensor_release(c->y);
    *c = ctx->casts[--ctx->ncasts];
    return NULL;
  }
  return NULL;
}

/* Keeps a cast, unless memory runs out. */
static void keep_cast(moth_tensor *x, moth_tensor *y) {
  moth_ctx *ctx = x->ctx;
  if (moth_grow(ctx, &ctx->casts, ctx->ncasts, &ctx->cast_capacity, sizeof *ctx->casts)) {
    moth_error_clear(ctx);
    return;
  }
  ctx->casts[ctx->ncasts++] = (struct moth_cast){
    .x = moth_tensor_retain(x), .y = moth_tensor_retain(y), .storage = x->storage,
    .id = x->storage->id, .version = moth_storage_version(x->storage),
    .recorded = ctx->grad_mode};
}

/* -- normalizations. On a device they write f32 and the region's dtype in one pass. The second
** result is kept until the next normalization, so that products of the f32 result need no cast
** -- */

void moth_half_copy_keep(moth_half_copy *b, const moth_tensor *x, moth_tensor *y) {
  moth_tensor_release(b->y);
  *b = (moth_half_copy){y, x->storage->id, moth_storage_version(x->storage)};
}

moth_tensor *moth_half_copy_find(const moth_half_copy *b, const moth_tensor *x, int dtype) {
  const bool same = b->y && b->of == x->storage->id && b->y->l.dtype == dtype &&
                    b->version == moth_storage_version(x->storage);
  return same ? b->y : NULL;
}

int moth_autocast_half_copy(const moth_op *op) {
  return op->flags & MOTH_OP_HALF_COPY ? (int)(op->nout + op->nhidden) - 1 : 0;
}

void moth_autocast_result(const moth_op *op, moth_tensor **out) {
  const int at = moth_autocast_half_copy(op);
  if (at && out[at])
    moth_half_copy_keep(&out[0]->ctx->half_copy, out[0], moth_tensor_retain(out[at]));
}

/* If x is the result of the last normalization or a view of it: sets *y to the same view of the
** half-precision copy. Otherwise *y is NULL. */
static int cast_known(moth_tensor *x, int dtype, moth_tensor **y) {
  moth_ctx *ctx = x->ctx;
  const moth_tensor *half_copy = moth_half_copy_find(&ctx->half_copy, x, dtype);
  if (!half_copy) return MOTH_OK;
  moth_layout l = x->l;
  l.dtype = (uint8_t)dtype;
  *y = moth_tensor_like(ctx, &l, half_copy->storage);
  int status = *y ? moth_record(&moth_op_cast, &(cast_args){ctx, x, dtype}, y) : ctx->error.code;
  if (status && *y) moth_tensor_release(*y);
  return status;
}

static int cast_to(moth_call_frame *f, moth_tensor **at, int dtype) {
  moth_tensor *x = *at, *y = NULL;
  bool leaf = worth_keeping(x, dtype);
  moth_tensor *known = leaf ? kept_cast(x, dtype) : NULL;
  int status = leaf ? MOTH_OK : cast_known(x, dtype, &y);
  if (status) return status;
  if (known) {
    y = moth_tensor_retain(known);
  } else if (!y) {
    status = MOTH_CALL(x->ctx, &y, cast, .input = x, .dtype = dtype);
    if (status) return status;
    if (leaf) keep_cast(x, y);
  }
  *at = moth_frame_keep(f, y);
  return *at ? MOTH_OK : x->ctx->error.code;
}

int moth_autocast_inputs(moth_call_frame *f, const moth_op *op) {
  moth_cursor c = {.op = op, .args = &f->args};
  int dtype = op->autocast == MOTH_AUTOCAST_HALF ? f->temps.ctx->autocast
              : computes_in_f32(op)              ? MOTH_F32
                                                 : widest(op, c);
  if (dtype == MOTH_NO_DTYPE) return MOTH_OK;
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at;
    if (!x || !c.value || !eligible(x) || x->l.dtype == dtype) continue;
    int status = cast_to(f, c.at, dtype);
    if (status) return status;
  }
  return MOTH_OK;
}
