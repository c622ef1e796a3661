/* pointloss.c -- elementwise losses: mse_loss, l1_loss, huber_loss, smooth_l1_loss, and the losses
** of probabilities. Each loss is one pass, and so is its gradient for the input.
*/
#include "pointloss.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/pointloss.h"
#include "kernel/real.h"
#include "activation.h"
#include "binary.h"
#include "gradient_formula.h"
#include "reduce.h"

enum { MOTH_BATCH_MEAN = MOTH_EACH + 1 }; /* reduction batchmean of kl_div */

static int pair_shape(const moth_tensor *input, const moth_tensor *target, int64_t reduction,
                      moth_layout *y) {
  if (!moth_shape_same(&input->l, &target->l))
    return moth_fail(input->ctx, MOTH_E_SHAPE, "target", "the shape of %s is needed, got %s",
                     moth_str(input), moth_str(target));
  y->ndim = reduction == MOTH_EACH ? input->l.ndim : 0;
  memcpy(y->shape, input->l.shape, sizeof y->shape);
  return MOTH_OK;
}

static int pair_run(const moth_tensor *input, const moth_tensor *target, int which, double a,
                    int64_t reduction, moth_tensor *out) {
  moth_tensor *x = moth_real(input), *t = moth_real(target), *y = moth_real_out(out);
  int status = x && t && y ? MOTH_OK : input->ctx->error.code;
  bool chances = !status && which == MOTH_LOSS_CHANCES;
  if (chances && !moth_all_chances(x->l.dtype, x->l.numel, moth_at(x)))
    status = moth_fail(input->ctx, MOTH_E_DOMAIN, "input",
                       "probabilities from 0 to 1 are needed; use binary_cross_entropy_with_logits "
                       "for other numbers");
  if (!status)
    status = moth_pair_loss(input->ctx, x->l.dtype, which, a, x->l.numel, reduction, moth_at(x),
                            moth_at(t), moth_at(y));
  moth_tensor_release(x);
  moth_tensor_release(t);
  return moth_real_done(y, out, status);
}

/* Returns dy, divided by n if the loss is a mean. */
static moth_tensor *scaled(moth_grad *g, int64_t reduction, double n) {
  moth_tensor *dy = moth_grad_real(g, g->dy);
  return reduction == MOTH_MEAN && dy ? moth_grad_share(g, dy, n) : dy;
}

/* The gradient for the input: one pass, or formulas if the gradient is recorded. */
#define LOSS_GRAD(op, first, second, formula)                                                   \
  (g->ctx->grad_mode ? TIMES(up, formula)                                                   \
                     : GRAD(g, op, .grad = up, .input = x, .target = t, .a = first, .b = second))

/* x: the input, t: the target, up: the gradient of each loss. Where a loss depends on x - t only,
** the gradient for the target is the negative gradient for the input. */
#define LOSS(op, LIST, which, number, slope, of_x, of_t, ...)                               \
  static int op##_shape(const op##_args *a, moth_layout *y) {                               \
    return pair_shape(a->input, a->target, a->reduction, y);                                \
  }                                                                                         \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                              \
    return pair_run(a->input, a->target, which, number, a->reduction, out[0]);              \
  }                                                                                         \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                  \
    moth_tensor *x = moth_grad_real(g, a->input), *t = moth_grad_real(g, a->target);        \
    moth_tensor *up = scaled(g, a->reduction, (double)a->input->l.numel);                   \
    if (moth_wants(g, a->input)) moth_flow(g, a->input, LOSS_GRAD(slope, 0, 0, of_x));      \
    if (moth_wants(g, a->target)) moth_flow(g, a->target, TIMES(up, of_t));                 \
    return g->status;                                                                       \
  }                                                                                         \
  MOTH_OP(op, LIST, __VA_ARGS__)

#define FLOATS .dtypes = MOTH_FLOATS
#define PROMOTED .dtypes = MOTH_FLOATS | MOTH_PROMOTE /* targets may be integers */
#define DOC(text) .doc = text
#define SAVES .saves = "input target"
#define METHOD .flags = MOTH_OP_METHOD
#define HIDDEN .flags = MOTH_OP_HIDDEN
#define REDUCTIONS(domain)                        \
  "moth.randn(3, 4), moth.randn(3, 4)" domain     \
  "\nmoth.randn(3, 4), moth.randn(3, 4), \"sum\"" domain \
  "\nmoth.randn(3), moth.randn(3), {reduction = \"none\"}" domain

/* -- losses of the difference -- */

LOSS(mse_loss, PAIR_LOSS, MOTH_LOSS_SQUARE, 0, square_slope, TIMES(MINUS(x, t), NUMBER(2)),
     TIMES(MINUS(x, t), NUMBER(-2)), PROMOTED, SAVES, METHOD, .examples = REDUCTIONS(""),
     DOC("Squared error: (input - target)^2, reduced."), .autocast = MOTH_AUTOCAST_F32)

LOSS(l1_loss, PAIR_LOSS, MOTH_LOSS_DISTANCE, 0, distance_slope, OF(sign, MINUS(x, t)),
     OF(sign, MINUS(t, x)), PROMOTED, SAVES, METHOD, .examples = REDUCTIONS(""),
     DOC("Absolute error: |input - target|, reduced."), .autocast = MOTH_AUTOCAST_F32)

/* p - q, clamped to -most..most */
static moth_tensor *limited(moth_grad *g, moth_tensor *p, moth_tensor *q, double most) {
  return GRAD(g, clamp, .input = MINUS(p, q), .min = -most, .max = most);
}

#define HUBER_EXAMPLES(name)                                              \
  "moth.randn(3, 4), moth.randn(3, 4), {" name " = 0.6}"                  \
  "\nmoth.randn(3, 4), moth.randn(3, 4), \"sum\""                         \
  "\nmoth.randn(3), moth.randn(3), {reduction = \"none\", " name " = 2.5}"

static int huber_loss_shape(const huber_loss_args *a, moth_layout *y) {
  if (!(a->delta > 0))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "delta", "a number above 0 is needed, got %g",
                     a->delta);
  return pair_shape(a->input, a->target, a->reduction, y);
}
static int huber_loss_cpu(const huber_loss_args *a, moth_tensor **out) {
  return pair_run(a->input, a->target, MOTH_LOSS_HUBER, a->delta, a->reduction, out[0]);
}
static int huber_loss_grad(const huber_loss_args *a, moth_grad *g) {
  moth_tensor *x = moth_grad_real(g, a->input), *t = moth_grad_real(g, a->target);
  moth_tensor *up = scaled(g, a->reduction, (double)a->input->l.numel);
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, LOSS_GRAD(bounded_slope, a->delta, 1, limited(g, x, t, a->delta)));
  if (moth_wants(g, a->target)) moth_flow(g, a->target, TIMES(up, limited(g, t, x, a->delta)));
  return g->status;
}
MOTH_OP(huber_loss, HUBER_LOSS, PROMOTED, SAVES, METHOD,
        .examples = HUBER_EXAMPLES("delta"),
        DOC("With d = |input - target|: d^2 / 2 where d < delta, else delta (d - delta / 2) "
            "(Huber, 1964)."), .autocast = MOTH_AUTOCAST_F32)

static int smooth_l1_loss_shape(const smooth_l1_loss_args *a, moth_layout *y) {
  if (!(a->beta >= 0))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "beta", "a number from 0 on is needed, got %g",
                     a->beta);
  return pair_shape(a->input, a->target, a->reduction, y);
}
static int smooth_l1_loss_cpu(const smooth_l1_loss_args *a, moth_tensor **out) {
  return pair_run(a->input, a->target, MOTH_LOSS_SMOOTH, a->beta, a->reduction, out[0]);
}
static moth_tensor *smooth_slope(moth_grad *g, moth_tensor *p, moth_tensor *q, double beta) {
  if (beta == 0) return OF(sign, MINUS(p, q));
  return TIMES(limited(g, p, q, beta), NUMBER(1 / beta));
}
static int smooth_l1_loss_grad(const smooth_l1_loss_args *a, moth_grad *g) {
  moth_tensor *x = moth_grad_real(g, a->input), *t = moth_grad_real(g, a->target);
  moth_tensor *up = scaled(g, a->reduction, (double)a->input->l.numel);
  if (moth_wants(g, a->input) && a->beta == 0)
    moth_flow(g, a->input, LOSS_GRAD(distance_slope, 0, 0, OF(sign, MINUS(x, t))));
  else if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              LOSS_GRAD(bounded_slope, a->beta, 1 / a->beta, smooth_slope(g, x, t, a->beta)));
  if (moth_wants(g, a->target)) moth_flow(g, a->target, TIMES(up, smooth_slope(g, t, x, a->beta)));
  return g->status;
}
MOTH_OP(smooth_l1_loss, SMOOTH_L1_LOSS, PROMOTED, SAVES, METHOD,
        .examples = HUBER_EXAMPLES("beta"),
        DOC("With d = |input - target|: d^2 / (2 beta) where d < beta, else d - beta / 2 "
            "(Girshick, 2015)."),
        .autocast = MOTH_AUTOCAST_F32)

/* -- losses of probabilities -- */

/* (x - t) / (x (1 - x)); the divisor is at least 1e-12 */
static moth_tensor *chance_formula(moth_grad *g, moth_tensor *x, moth_tensor *t) {
  moth_tensor *q = TIMES(x, PLUS(NEGATED(x), NUMBER(1)));
  double absent = moth_absent_value();
  return OVER(MINUS(x, t), GRAD(g, clamp, .input = q, .min = 1e-12, .max = absent));
}

/* log(1 - x) - log(x); both logarithms are at least -100 */
static moth_tensor *chance_rate(moth_grad *g, moth_tensor *x) {
  double absent = moth_absent_value();
  moth_tensor *no = OF(log1p, NEGATED(x)), *yes = OF(log, x);
  return MINUS(GRAD(g, clamp, .input = no, .min = -100, .max = absent),
              GRAD(g, clamp, .input = yes, .min = -100, .max = absent));
}

LOSS(chance_loss, PAIR_LOSS, MOTH_LOSS_CHANCES, 0, chance_slope, chance_formula(g, x, t),
     chance_rate(g, x), FLOATS, SAVES, HIDDEN, DOC("binary_cross_entropy without a weight."),
     .examples = "moth.rand(3, 4), moth.rand(3, 4)  -- domain: prob\n"
                 "moth.rand(3, 4), moth.rand(3, 4), \"sum\"  -- domain: prob\n"
                 "moth.rand(3), moth.rand(3), {reduction = \"none\"}  -- domain: prob")

LOSS(logit_loss, PAIR_LOSS, MOTH_LOSS_LOGITS, 0, logit_slope, MINUS(OF(sigmoid, x), t), NEGATED(x),
     FLOATS, .saves = "input target:input", HIDDEN, .examples = REDUCTIONS(""),
     DOC("binary_cross_entropy_with_logits without weights."))

/* *out := each * weight, reduced. Releases `each`. */
static int reduce_weighted(moth_ctx *ctx, moth_tensor *each, moth_tensor *weight,
                           int64_t reduction, moth_tensor **out) {
  moth_tensor *y = NULL;
  moth_layout l = each->l;
  int status = MOTH_OK;
  if (weight && !moth_layout_broadcast(&l, &weight->l)) status = MOTH_E_SHAPE;
  if (status || !moth_shape_same(&l, &each->l)) {
    status = moth_fail(ctx, MOTH_E_SHAPE, "weight", "%s cannot be broadcast to %s",
                       moth_str(weight), moth_str_shape(ctx, each->l.ndim, each->l.shape));
  } else {
    status = weight ? MOTH_CALL(ctx, &y, mul, .input = each, .other = weight) : MOTH_OK;
    if (!weight) y = moth_tensor_retain(each);
  }
  if (!status && reduction == MOTH_EACH) *out = moth_tensor_retain(y);
  else if (!status && reduction == MOTH_SUM)
    status = MOTH_CALL(ctx, out, sum, .input = y, .dtype = -1);
  else if (!status) status = MOTH_CALL(ctx, out, mean, .input = y, .dtype = -1);
  moth_tensor_release(y);
  moth_tensor_release(each);
  return status;
}

static int binary_cross_entropy_compose(const binary_cross_entropy_args *a, moth_tensor **out) {
  moth_tensor *each = NULL;
  int status = MOTH_CALL(a->ctx, a->weight ? &each : out, chance_loss, .input = a->input,
                         .target = a->target, .reduction = a->weight ? MOTH_EACH : a->reduction);
  return status || !a->weight ? status
                              : reduce_weighted(a->ctx, each, a->weight, a->reduction, out);
}
MOTH_OP_COMPOSES(binary_cross_entropy, BCE, .dtypes = MOTH_FLOATS, METHOD,
  DOC("Binary cross entropy: -(target log(input) + (1 - target) log(1 - input)), times weight."),
  .examples =
    "moth.rand(3, 4), moth.rand(3, 4)  -- domain: prob\n"
    "moth.rand(3, 4), moth.rand(3, 4), moth.rand(4), \"sum\"  -- domain: prob\n"
    "moth.rand(3), moth.rand(3), {weight = moth.rand(3), reduction = \"none\"}  -- domain: prob",
  .autocast = MOTH_AUTOCAST_F32)

/* (1 - t) x - (1 + (p - 1) t) logsigmoid(x) */
static int logit_losses(const binary_cross_entropy_with_logits_args *a, moth_tensor **out) {
  enum { LOG, TX, PT, MORE, BY, REST, TEMPS };
  moth_tensor *t[TEMPS] = {NULL};
  moth_ctx *ctx = a->ctx;
  const moth_scalar one = {.as.number = 1}, minus_one = {.as.number = -1};
#define STEP(y, op, ...) \
  if (!status) status = MOTH_CALL(ctx, (y), op, __VA_ARGS__)
  int status = MOTH_CALL(ctx, &t[LOG], logsigmoid, .input = a->input);
  STEP(&t[TX], mul, .input = a->target, .other = a->input);
  STEP(&t[PT], mul, .input = a->target, .other = a->pos_weight);
  STEP(&t[MORE], sub, .input = t[PT], .other = a->target, .alpha = one);
  STEP(&t[BY], addcmul, .input = t[LOG], .tensor1 = t[MORE], .tensor2 = t[LOG], .value = one);
  STEP(&t[REST], sub, .input = a->input, .other = t[TX], .alpha = one);
  STEP(out, add, .input = t[REST], .other = t[BY], .alpha = minus_one);
#undef STEP
  for (int i = 0; i < TEMPS; i++) moth_tensor_release(t[i]);
  return status;
}

static int binary_cross_entropy_with_logits_compose(
    const binary_cross_entropy_with_logits_args *a, moth_tensor **out) {
  moth_tensor *each = NULL;
  moth_layout y;
  int status = pair_shape(a->input, a->target, MOTH_EACH, &y);
  if (status) return status;
  if (!a->weight && !a->pos_weight)
    return MOTH_CALL(a->ctx, out, logit_loss, .input = a->input, .target = a->target,
                     .reduction = a->reduction);
  if (a->pos_weight) {
    y = a->input->l;
    if (!moth_layout_broadcast(&y, &a->pos_weight->l) || !moth_shape_same(&y, &a->input->l))
      return moth_fail(a->ctx, MOTH_E_SHAPE, "pos_weight", "%s cannot be broadcast to %s",
                       moth_str(a->pos_weight), moth_str(a->input));
    status = logit_losses(a, &each);
  } else {
    status = MOTH_CALL(a->ctx, &each, logit_loss, .input = a->input, .target = a->target,
                       .reduction = MOTH_EACH);
  }
  return status ? status : reduce_weighted(a->ctx, each, a->weight, a->reduction, out);
}
MOTH_OP_COMPOSES(binary_cross_entropy_with_logits, BCE_WITH_LOGITS, .dtypes = MOTH_FLOATS, METHOD,
  DOC("Binary cross entropy of sigmoid(input), without overflow: -(pos_weight target "
      "log(sigmoid(input)) + (1 - target) log(1 - sigmoid(input))), times weight."),
  .examples =
    "moth.randn(3, 4), moth.rand(3, 4)\n"
    "moth.randn(3, 4), moth.rand(3, 4), moth.rand(4), \"sum\"\n"
    "moth.randn(3), moth.rand(3), {reduction = \"none\", pos_weight = moth.rand(3)}\n"
    "moth.randn(3, 2), moth.rand(3, 2), {weight = moth.rand(3, 1), pos_weight = moth.rand(2)}",
  .autocast = MOTH_AUTOCAST_F32)

/* -- kl_div -- */

static int kl_div_shape(const kl_div_args *a, moth_layout *y) {
  return pair_shape(a->input, a->target, a->reduction, y);
}

/* Returns the divisor of dy for reduction batchmean. */
static double batch_of(const kl_div_args *a) {
  return a->input->l.ndim ? (double)a->input->l.shape[0] : 1;
}

static int kl_div_cpu(const kl_div_args *a, moth_tensor **out) {
  int which = a->log_target ? MOTH_LOSS_KL_LOG : MOTH_LOSS_KL;
  int64_t reduction = a->reduction == MOTH_BATCH_MEAN ? MOTH_SUM : a->reduction;
  int status = pair_run(a->input, a->target, which, 0, reduction, out[0]);
  if (status || a->reduction != MOTH_BATCH_MEAN) return status;
  double sum;
  int dtype = out[0]->l.dtype;
  moth_convert(1, dtype, moth_at(out[0]), 8, MOTH_F64, (char *)&sum, 8);
  sum /= batch_of(a);
  moth_convert(1, MOTH_F64, (const char *)&sum, 8, dtype, moth_at(out[0]), 8);
  return MOTH_OK;
}

/* The gradient for x is -t, for t it is log t + 1 - x. If the target is a logarithm t, with e =
** exp(t):
** -e and e (t - x + 1). */
static int kl_div_grad(const kl_div_args *a, moth_grad *g) {
  moth_tensor *x = moth_grad_real(g, a->input), *t = moth_grad_real(g, a->target);
  moth_tensor *up = a->reduction == MOTH_BATCH_MEAN
                      ? scaled(g, MOTH_MEAN, batch_of(a))
                      : scaled(g, a->reduction, (double)a->input->l.numel);
  moth_tensor *p = a->log_target ? OF(exp, t) : t;
  if (moth_wants(g, a->input)) moth_flow(g, a->input, TIMES(up, NEGATED(p)));
  if (moth_wants(g, a->target)) {
    moth_tensor *slope = MINUS(PLUS(a->log_target ? t : OF(log, t), NUMBER(1)), x);
    moth_flow(g, a->target, TIMES(up, a->log_target ? TIMES(p, slope) : slope));
  }
  return g->status;
}
MOTH_OP(kl_div, KL_DIV, .dtypes = MOTH_FLOATS, SAVES, METHOD,
  DOC("The Kullback-Leibler divergence: target (log(target) - input), reduced."),
  .examples =
    "moth.randn(3, 4), moth.rand(3, 4)  -- domain: prob\n"
    "moth.randn(3, 4), moth.rand(3, 4), \"batchmean\"  -- domain: prob\n"
    "moth.randn(3), moth.rand(3), {reduction = \"sum\"}  -- domain: prob\n"
    "moth.randn(3), moth.randn(3), {reduction = \"none\", log_target = true}",
  .autocast = MOTH_AUTOCAST_F32)

/* -- gradients in one pass -- */

#define SLOPE_OP(kind, op, ...)                                                             \
  static int op##_shape(const op##_args *a, moth_layout *y) {                               \
    int status = pair_shape(a->input, a->target, MOTH_EACH, y);                             \
    if (status || a->grad->l.ndim == 0 || moth_shape_same(&a->grad->l, &a->input->l))       \
      return status;                                                                        \
    return moth_fail(a->ctx, MOTH_E_SHAPE, "grad", "the shape of %s is needed, got %s",     \
                     moth_str(a->input), moth_str(a->grad));                                \
  }                                                                                         \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                              \
    uint64_t arg[3];                                                                        \
    const moth_tensor *operands[] = {out[0], a->grad, a->input, a->target};                 \
    moth_numbers(out[0]->l.dtype, arg, a->a, a->b, 0);                                      \
    return moth_map(a->ctx, moth_pointloss.op, out[0]->l.dtype, 4, operands, arg);          \
  }                                                                                         \
  MOTH_OP_CONST(op, PAIR_SLOPE, .doc = "The gradient of a loss for its input.",             \
                .examples = "moth.randn(3, 4), moth.rand(3, 4), moth.rand(3, 4), 0.3, 1.5", \
                .dtypes = MOTH_FLOATS,                                                      \
                .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE)
PAIR_SLOPES(SLOPE_OP)

#define LISTED(kind, op, ...) &moth_op_##op,
const moth_op *const moth_pointloss_ops[] = {
  PAIR_SLOPES(LISTED)
  &moth_op_mse_loss, &moth_op_l1_loss, &moth_op_smooth_l1_loss, &moth_op_huber_loss,
  &moth_op_chance_loss, &moth_op_logit_loss, &moth_op_binary_cross_entropy,
  &moth_op_binary_cross_entropy_with_logits, &moth_op_kl_div, NULL,
};
