/* autocast.c -- mixed precision: inside a region, products are computed in a shorter dtype and
** what is delicate in f32, as PyTorch's CUDA lists say: rounding hurts it most, or it leaves the
** range of f16. All other ops take what they are given, at the widest dtype among it, but for
** batch_norm, whose images stay short beside f32 weights, and cross_entropy, which makes an f32
** loss of short scores: of many nets they are the largest tensor. Casts are recorded, so gradients
** flow back to f32 leaves; a leaf's cast is kept until the outermost region ends, since weights are
** used again and again, and what a norm gives to products is written in both dtypes at once.
*/
#include "backward_parts.h"
#include "coroutine.h"
#include "frame.h"

#include "op/activation.h"
#include "op/arith.h"
#include "op/attention.h"
#include "op/conv.h"
#include "op/conv3d.h"
#include "op/copy.h"
#include "op/ctc.h"
#include "op/fft.h"
#include "op/loss.h"
#include "op/matmul.h"
#include "op/norm.h"
#include "op/pointloss.h"
#include "op/product.h"
#include "op/reduce.h"
#include "op/scan.h"
#include "op/softmax.h"
#include "op/special.h"
#include "op/unary.h"

struct moth_cast {
  moth_tensor *x, *y; /* counted: a leaf and its cast, */
  const moth_storage *storage; /* ... made of this one, which .data may replace, */
  uint64_t id;
  uint32_t version;   /* ... of this version */
  bool recorded;
};

void moth_autocast_forget(moth_ctx *ctx) {
  while (ctx->ncasts) {
    struct moth_cast c = ctx->casts[--ctx->ncasts];
    moth_tensor_release(c.x);
    moth_tensor_release(c.y);
  }
  if (ctx->casts) moth_dealloc(ctx, ctx->casts, ctx->cast_room * (int64_t)sizeof *ctx->casts);
  ctx->casts = NULL;
  ctx->cast_room = 0;
  moth_tensor_release(ctx->brief.y);
  ctx->brief.y = NULL;
}

int32_t moth_autocast(moth_ctx *ctx, int32_t dtype) {
  MOTH_NEED(ctx, true, MOTH_E_ARG);
  int32_t old = moth_mode(ctx, MOTH_MODE_AUTOCAST, MOTH_ASK);
  if (dtype < MOTH_NO_DTYPE) return old;
  if (dtype >= MOTH_DTYPES)
    return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "there is no dtype %d", dtype);
  moth_mode(ctx, MOTH_MODE_AUTOCAST, dtype);
  return old;
}

static bool listed(const moth_op *op, const moth_op *const *list) {
  for (; *list; list++)
    if (*list == op) return true;
  return false;
}

static bool lowers(const moth_op *op) {
  static const moth_op *const list[] = {
    &moth_op_matmul, &moth_op_linear, &moth_op_mm, &moth_op_bmm, &moth_op_mv, &moth_op_addmm,
    &moth_op_baddbmm, &moth_op_addbmm, &moth_op_conv1d, &moth_op_conv2d, &moth_op_conv3d,
    &moth_op_conv_transpose1d, &moth_op_conv_transpose2d, &moth_op_conv_transpose3d,
    &moth_op_scaled_dot_product_attention, &moth_op_attention, &moth_op_prelu, NULL};
  return listed(op, list);
}

/* What is delicate, what leaves the range of f16, and what knows no half types: linear algebra. */
static bool raises(const moth_op *op) {
  const uint32_t halves = MOTH_BIT(MOTH_F16) | MOTH_BIT(MOTH_BF16);
  if (op->dtypes & MOTH_BIT(MOTH_F32) && !(op->dtypes & halves)) return true;
  static const moth_op *const list[] = {
    &moth_op_softmax, &moth_op_log_softmax, &moth_op_nll_loss, &moth_op_cross_entropy_soft,
    &moth_op_ctc_losses, &moth_op_fft_c2c, &moth_op_fft_r2c, &moth_op_fft_c2r,
    &moth_op_mse_loss, &moth_op_l1_loss, &moth_op_smooth_l1_loss,
    &moth_op_huber_loss, &moth_op_binary_cross_entropy,
    &moth_op_binary_cross_entropy_with_logits, &moth_op_kl_div, &moth_op_layer_norm,
    &moth_op_rms_norm, &moth_op_group_norm, &moth_op_instance_norm,
    &moth_op_normalize, &moth_op_norm_p, &moth_op_dist, &moth_op_prod, &moth_op_cumprod,
    &moth_op_sum, &moth_op_cumsum, &moth_op_logsumexp, &moth_op_exp, &moth_op_expm1, &moth_op_log,
    &moth_op_log1p, &moth_op_log2, &moth_op_log10, &moth_op_pow, &moth_op_square,
    &moth_op_reciprocal, &moth_op_rsqrt, &moth_op_sinh, &moth_op_cosh, &moth_op_tan,
    &moth_op_asin, &moth_op_acos, &moth_op_erfinv, &moth_op_softplus, NULL};
  return listed(op, list);
}

/* f64 stays what it is. */
static bool eligible(const moth_tensor *x) {
  return moth_is_float(x->l.dtype) && x->l.dtype != MOTH_F64 && !(x->flags & MOTH_T_NUMBER);
}

/* The widest dtype of tensors of floats, if they differ and the op does not promote by itself. */
static int widest(const moth_op *op, moth_cursor c) {
  int dtype = MOTH_NO_DTYPE;
  bool mixed = false;
  if (op->flags & MOTH_OP_MUTATES || op->dtypes & (MOTH_PROMOTE | MOTH_TO_FLOAT) ||
      op == &moth_op_batch_norm || op == &moth_op_channel_norm)
    return MOTH_NO_DTYPE;
  while (moth_next_input(&c)) {
    const moth_tensor *x = *c.at;
    if (!x || !c.value || !moth_is_float(x->l.dtype) || x->flags & MOTH_T_NUMBER) continue;
    if (dtype != MOTH_NO_DTYPE && dtype != x->l.dtype) mixed = true;
    dtype = dtype == MOTH_NO_DTYPE ? x->l.dtype : moth_promote(dtype, x->l.dtype);
  }
  return mixed ? dtype : MOTH_NO_DTYPE;
}

/* -- casts of leaves, kept -- */

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

/* Without memory for it the cast is not kept. */
static void keep_cast(moth_tensor *x, moth_tensor *y) {
  moth_ctx *ctx = x->ctx;
  if (moth_grow(ctx, &ctx->casts, ctx->ncasts, &ctx->cast_room, sizeof *ctx->casts)) {
    moth_error_clear(ctx);
    return;
  }
  ctx->casts[ctx->ncasts++] = (struct moth_cast){
    .x = moth_tensor_retain(x), .y = moth_tensor_retain(y), .storage = x->storage,
    .id = x->storage->id, .version = moth_storage_version(x->storage),
    .recorded = ctx->grad_mode};
}

/* -- norms: on a device they write f32 and the region's dtype in one pass. The latter is kept until
** the next one comes, for products of the f32 result, whose casts need no pass then -- */

void moth_brief_keep(moth_brief *b, const moth_tensor *x, moth_tensor *y) {
  moth_tensor_release(b->y);
  *b = (moth_brief){y, x->storage->id, moth_storage_version(x->storage)};
}

moth_tensor *moth_brief_of(const moth_brief *b, const moth_tensor *x, int dtype) {
  const bool same = b->y && b->of == x->storage->id && b->y->l.dtype == dtype &&
                    b->version == moth_storage_version(x->storage);
  return same ? b->y : NULL;
}

int moth_autocast_brief(const moth_op *op) {
  return op->flags & MOTH_OP_BRIEF ? (int)(op->nout + op->nhidden) - 1 : 0;
}

void moth_autocast_result(const moth_op *op, moth_tensor **out) {
  const int at = moth_autocast_brief(op);
  if (at && out[at]) moth_brief_keep(&out[0]->ctx->brief, out[0], moth_tensor_retain(out[at]));
}

/* x, or the view of a norm's result that it is, as that was written in dtype; else *y is NULL. */
static int cast_known(moth_tensor *x, int dtype, moth_tensor **y) {
  moth_ctx *ctx = x->ctx;
  const moth_tensor *brief = moth_brief_of(&ctx->brief, x, dtype);
  if (!brief) return MOTH_OK;
  moth_layout l = x->l;
  l.dtype = (uint8_t)dtype;
  *y = moth_tensor_like(ctx, &l, brief->storage);
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
  int dtype = lowers(op) ? f->temps.ctx->autocast : raises(op) ? MOTH_F32 : widest(op, c);
  if (dtype == MOTH_NO_DTYPE) return MOTH_OK;
  while (moth_next_input(&c)) {
    moth_tensor *x = *c.at;
    if (!x || !c.value || !eligible(x) || x->l.dtype == dtype) continue;
    int status = cast_to(f, c.at, dtype);
    if (status) return status;
  }
  return MOTH_OK;
}
