/* loss.c -- classification losses: nll_loss and cross_entropy. Elementwise losses are in
** pointloss.c.
*/
#include "loss.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "call/frame.h"
#include "kernel/loss.h"
#include "kernel/real.h"
#include "kernel/softmax.h"
#include "create.h"
#include "gradient_formula.h"
#include "position.h"
#include "reduce.h"
#include "softmax.h"

/* -- shapes of class targets -- */

static int32_t class_dim(const moth_layout *x) { return x->ndim == 1 ? 0 : 1; }

/* y := the shape of x, (N, C, ...), without C: (N, ...). */
static void without_classes(const moth_layout *x, moth_layout *y) {
  int32_t class = class_dim(x);
  y->ndim = 0;
  for (int32_t i = 0; i < x->ndim; i++)
    if (i != class) y->shape[y->ndim++] = x->shape[i];
}

/* Checks that target and weight fit scores of layout x; `shown` is the scores' text in error
** messages. y := the loss's shape. */
static int class_shapes(const moth_layout *x, const char *shown, const moth_tensor *target,
                        const moth_tensor *weight, int64_t reduction, moth_layout *y) {
  moth_ctx *ctx = target->ctx;
  if (x->ndim < 1)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "(N, C, ...) or (C) is needed, got %s", shown);
  moth_layout cases = *x;
  without_classes(x, &cases);
  if (!moth_shape_same(&cases, &target->l))
    return moth_fail(ctx, MOTH_E_SHAPE, "target", "%s for %s is needed, got %s",
                     moth_str_shape(ctx, cases.ndim, cases.shape), shown, moth_str(target));
  int64_t classes = x->shape[class_dim(x)];
  if (weight && (weight->l.ndim != 1 || weight->l.shape[0] != classes))
    return moth_fail(ctx, MOTH_E_SHAPE, "weight",
                     "%s, one weight for each class, is needed, got %s",
                     moth_str_shape(ctx, 1, &classes), moth_str(weight));
  y->ndim = reduction == MOTH_EACH ? cases.ndim : 0;
  memcpy(y->shape, cases.shape, sizeof y->shape);
  return MOTH_OK;
}

static moth_classes classes_of(const moth_layout *x, int64_t ignore) {
  moth_classes c = {.n = x->ndim == 1 ? 1 : x->shape[0], .classes = x->shape[class_dim(x)],
                    .inner = 1, .ignore = ignore};
  for (int32_t i = 2; i < x->ndim; i++) c.inner *= x->shape[i];
  return c;
}

/* Prepares target and weight for the kernels and checks the targets. The caller owns both
** tensors. */
static int class_open(moth_classes *c, const moth_tensor *target, const moth_tensor *weight,
                      moth_tensor **packed, moth_tensor **real) {
  moth_ctx *ctx = target->ctx;
  *packed = moth_positions(target);
  *real = weight ? moth_real(weight) : NULL;
  if (!*packed || (weight && !*real)) return ctx->error.code;
  c->target = (const int64_t *)(void *)moth_at(*packed);
  c->weight = weight ? moth_at(*real) : NULL;
  int64_t bad = moth_class_check(c);
  if (bad < 0) return MOTH_OK;
  long long class = (long long)c->target[bad], classes = (long long)c->classes;
  if (class < 0)
    return moth_fail(ctx, MOTH_E_INDEX, "target",
                     "the target at position " MOTH_POS " is %lld, which is neither one of %lld "
                     "classes nor ignore_index",
                     (long long)bad, class, classes);
  return moth_fail(ctx, MOTH_E_INDEX, "target",
                   "the target at position " MOTH_POS " is class " MOTH_POS
                   ", but there are %lld classes",
                   (long long)bad, class, classes);
}

/* -- nll_loss: -weight[t] x[t] -- */

static int nll_loss_shape(const nll_loss_args *a, moth_layout *y) {
  return class_shapes(&a->input->l, moth_str(a->input), a->target, a->weight, a->reduction, y);
}

static int nll_loss_cpu(const nll_loss_args *a, moth_tensor **out) {
  moth_classes c = classes_of(&a->input->l, a->ignore_index);
  moth_tensor *target, *weight, *x = moth_real(a->input), *y = moth_real_out(out[0]);
  int status = class_open(&c, a->target, a->weight, &target, &weight);
  if (!status && (!x || !y)) status = a->ctx->error.code;
  if (!status) moth_class_loss(x->l.dtype, &c, a->reduction, moth_at(x), moth_at(y));
  moth_tensor_release(target);
  moth_tensor_release(weight);
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

/* The class weights, broadcast to the scores' layout. */
static moth_tensor *weight_everywhere(moth_grad *g, moth_tensor *weight, const moth_layout *x) {
  int64_t size[MOTH_MAX_DIMS];
  for (int32_t i = 0; i < x->ndim; i++) size[i] = i == class_dim(x) ? x->shape[i] : 1;
  moth_tensor *lined = GRAD(g, reshape, .input = weight, .shape = {size, x->ndim});
  return GRAD(g, expand, .input = lined, .size = {x->shape, x->ndim});
}

/* The gradient of the class weights, where y = nll_loss(a), and dy is the gradient of y. For each
** class it is the sum of dy (-x[t]) over its samples. For a mean it is the sum of dy (-x[t] - y) /
** W, where W is the sum of the targets' weights. */
static moth_tensor *weight_gradient(moth_grad *g, const nll_loss_args *a, moth_tensor *dy,
                                    moth_tensor *y) {
  const moth_layout *x = &a->input->l;
  moth_tensor *each = GRAD(g, nll_loss, .input = a->input, .target = a->target,
                           .ignore_index = a->ignore_index, .reduction = MOTH_EACH);
  if (a->reduction == MOTH_MEAN) {
    moth_tensor *sum = GRAD(g, nll_loss, .input = weight_everywhere(g, a->weight, x),
                            .target = a->target, .ignore_index = a->ignore_index,
                            .reduction = MOTH_SUM); /* this is -W */
    each = OVER(MINUS(y, each), sum);
  }
  moth_tensor *down = NEGATED(TIMES(each, dy));
  moth_tensor *placed = GRAD(g, nll_loss_back, .input = down, .target = a->target,
                             .size = {x->shape, x->ndim}, .ignore_index = a->ignore_index,
                             .reduction = MOTH_EACH);
  int64_t dims[MOTH_MAX_DIMS], n = 0;
  for (int32_t i = 0; i < x->ndim; i++)
    if (i != class_dim(x)) dims[n++] = i;
  return n ? GRAD(g, sum, .input = placed, .dim = {dims, n}, .dtype = -1) : placed;
}

static int nll_loss_grad(const nll_loss_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              GRAD(g, nll_loss_back, .input = g->dy, .target = a->target,
                   .size = {x->shape, x->ndim}, .weight = a->weight,
                   .ignore_index = a->ignore_index, .reduction = a->reduction));
  if (moth_wants(g, a->weight))
    moth_flow(g, a->weight, weight_gradient(g, a, g->dy, g->out[0]));
  return g->status;
}

MOTH_OP(nll_loss, NLL_LOSS,
  .doc = "Negative log likelihood: -weight[target] * input[target]. The mean divides by the sum of "
         "the weights of the targets.",
  .examples =
    "moth.randn(3, 5), moth.tensor{1LL, 5LL, 2LL}\n"
    "moth.randn(5), moth.tensor(4LL), {reduction = \"sum\"}\n"
    "moth.randn(3, 2), moth.tensor{1LL, 2LL, 2LL}, {weight = moth.tensor{0.5, 2},"
    " ignore_index = 1}\n"
    "moth.randn(2, 3, 2), moth.tensor{{1LL, 3LL}, {-100LL, 2LL}}, {weight = moth.tensor{1, 2, 3},"
    " reduction = \"none\"}",
  .dtypes = MOTH_FLOATS,
  .saves = "target weight input:weight y:weight",
  .flags = MOTH_OP_METHOD | MOTH_OP_FROM_ONE_THERE, .autocast = MOTH_AUTOCAST_F32)

/* -- the gradient of nll_loss -- */

static int nll_loss_back_shape(const nll_loss_back_args *a, moth_layout *y) {
  moth_layout loss = a->input->l;
  int status = moth_shape_of(a->ctx, "size", a->size, y);
  if (!status) {
    const char *shown = moth_str_shape(a->ctx, y->ndim, y->shape);
    status = class_shapes(y, shown, a->target, a->weight, a->reduction, &loss);
  }
  if (!status && !moth_shape_same(&loss, &a->input->l))
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "input", "%s is needed, got %s",
                       moth_str_shape(a->ctx, loss.ndim, loss.shape), moth_str(a->input));
  return status;
}

static int nll_loss_back_cpu(const nll_loss_back_args *a, moth_tensor **out) {
  moth_classes c = classes_of(&out[0]->l, a->ignore_index);
  moth_tensor *target, *weight, *dy = moth_real(a->input), *dx = moth_real_out(out[0]);
  int status = class_open(&c, a->target, a->weight, &target, &weight);
  if (!status && (!dy || !dx)) status = a->ctx->error.code;
  if (!status) moth_class_loss_back(dy->l.dtype, &c, a->reduction, moth_at(dy), moth_at(dx));
  moth_tensor_release(target);
  moth_tensor_release(weight);
  moth_tensor_release(dy);
  return moth_real_done(dx, out[0], status);
}

/* dx is linear in dy: if v is the gradient of dx, the gradients are the ones of dy nll_loss(v). */
static int nll_loss_back_grad(const nll_loss_back_args *a, moth_grad *g) {
  nll_loss_args of = {.ctx = g->ctx, .input = g->dy, .target = a->target, .weight = a->weight,
                      .ignore_index = a->ignore_index, .reduction = a->reduction};
  moth_tensor *loss = moth_grad_run(g, &moth_op_nll_loss, &of);
  if (moth_wants(g, a->input)) moth_flow(g, a->input, loss);
  if (moth_wants(g, a->weight))
    moth_flow(g, a->weight, weight_gradient(g, &of, a->input, loss));
  return g->status;
}

MOTH_OP(nll_loss_back, NLL_LOSS_BACK,
  .doc = "The gradient of nll_loss.",
  .examples =
    "moth.tensor(0.5), moth.tensor{1LL, 5LL, 2LL}, {3, 5}\n"
    "moth.tensor(0.5), moth.tensor{1LL, 2LL, 2LL}, {3, 2}, {weight = moth.tensor{0.5, 2},"
    " ignore_index = 1}\n"
    "moth.randn(3), moth.tensor{1LL, 2LL, 2LL}, {3, 2}, {reduction = \"none\"}",
  .dtypes = MOTH_FLOATS,
  .saves = "target weight input:weight",
  .flags = MOTH_OP_HIDDEN | MOTH_OP_FROM_ONE_THERE)

/* -- class_entropy: cross_entropy in one node, which saves two numbers per sample -- */

static int class_entropy_shape(const class_entropy_args *a, moth_layout *y) {
  const uint8_t real = (uint8_t)moth_compute_dtype(a->input->l.dtype);
  int status = class_shapes(&a->input->l, moth_str(a->input), a->target, a->weight, a->reduction,
                            y);
  if (a->wide) y->dtype = real;
  for (int i = 1; i < 3; i++) {
    y[i].dtype = real;
    y[i].ndim = a->target->l.ndim;
    memcpy(y[i].shape, a->target->l.shape, sizeof y[i].shape);
  }
  return status;
}

static int class_entropy_cpu(const class_entropy_args *a, moth_tensor **out) {
  moth_classes c = classes_of(&a->input->l, a->ignore_index);
  moth_strips l = moth_strips_of(&a->input->l, class_dim(&a->input->l));
  moth_tensor *target, *weight, *x = moth_real(a->input), *y = moth_real_out(out[0]);
  int status = class_open(&c, a->target, a->weight, &target, &weight);
  if (!status && (!x || !y)) status = a->ctx->error.code;
  void *most = moth_at(out[1]), *rest = moth_at(out[2]);
  if (!status) status = moth_softmax_parts(a->ctx, x->l.dtype, &l, moth_at(x), most, rest);
  if (!status)
    moth_entropy_loss(x->l.dtype, &c, a->reduction, moth_at(x), (const void *[]){most, rest},
                      moth_at(y));
  moth_tensor_release(target);
  moth_tensor_release(weight);
  moth_tensor_release(x);
  return moth_real_done(y, out[0], status);
}

/* Composes the gradient of ops under create_graph, or if the weights need a gradient. */
static int class_entropy_grad(const class_entropy_args *a, moth_grad *g) {
  const moth_layout *x = &a->input->l;
  if (!g->ctx->grad_mode && !moth_wants(g, a->weight))
    return moth_flow(g, a->input,
                     GRAD(g, class_entropy_back, .grad = g->dy, .input = a->input,
                          .most = g->out[1], .rest = g->out[2], .target = a->target,
                          .weight = a->weight, .ignore_index = a->ignore_index,
                          .reduction = a->reduction));
  const int64_t class = class_dim(x);
  moth_tensor *scores = a->wide ? moth_grad_real(g, a->input) : a->input;
  moth_tensor *weight = a->wide ? moth_grad_real(g, a->weight) : a->weight;
  moth_tensor *logp = GRAD(g, log_softmax, .input = scores, .dim = class, .dtype = -1);
  nll_loss_args of = {.ctx = g->ctx, .input = logp, .target = a->target, .weight = weight,
                      .ignore_index = a->ignore_index, .reduction = a->reduction};
  if (logp && moth_wants(g, a->input)) {
    moth_tensor *d = GRAD(g, nll_loss_back, .input = g->dy, .target = a->target,
                          .size = {x->shape, x->ndim}, .weight = weight,
                          .ignore_index = a->ignore_index, .reduction = a->reduction);
    moth_flow(g, a->input, GRAD(g, log_softmax_back, .input = d, .output = logp, .dim = class));
  }
  if (logp && moth_wants(g, a->weight))
    moth_flow(g, a->weight, weight_gradient(g, &of, g->dy, g->out[0]));
  return g->status;
}

MOTH_OP(class_entropy, CLASS_ENTROPY,
  .doc = "cross_entropy with class targets, without label smoothing.",
  .examples =
    "moth.randn(3, 5), moth.tensor{1LL, 5LL, 2LL}\n"
    "moth.randn(5), moth.tensor(4LL), {reduction = \"sum\"}\n"
    "moth.randn(3, 2), moth.tensor{1LL, 2LL, 2LL}, {weight = moth.tensor{0.5, 2},"
    " ignore_index = 1}\n"
    "moth.randn(2, 3, 2), moth.tensor{{1LL, 3LL}, {-100LL, 2LL}}, {weight = moth.tensor{1, 2, 3},"
    " reduction = \"none\", wide = true}",
  .outputs = "y, most: hidden, rest: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "input target weight most rest y:weight",
  .flags = MOTH_OP_HIDDEN | MOTH_OP_FROM_ONE_THERE, .public_name = "cross_entropy")

static int class_entropy_back_shape(const class_entropy_back_args *a, moth_layout *y) {
  moth_layout loss = a->grad->l;
  int status = class_shapes(&a->input->l, moth_str(a->input), a->target, a->weight, a->reduction,
                            &loss);
  if (!status && !moth_shape_same(&loss, &a->grad->l))
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "grad", "%s is needed, got %s",
                       moth_str_shape(a->ctx, loss.ndim, loss.shape), moth_str(a->grad));
  const moth_tensor *parts[2] = {a->most, a->rest};
  for (int i = 0; i < 2 && !status; i++)
    if (!moth_shape_same(&parts[i]->l, &a->target->l))
      status = moth_fail(a->ctx, MOTH_E_SHAPE, i ? "rest" : "most", "%s does not match %s",
                         moth_str(parts[i]), moth_str(a->target));
  y->dtype = a->input->l.dtype;
  return status ? status : moth_shape_like(a->input, y);
}

static int class_entropy_back_cpu(const class_entropy_back_args *a, moth_tensor **out) {
  enum { DY, MOST, REST, WEIGHT, ALL };
  const moth_tensor *from[ALL] = {a->grad, a->most, a->rest, a->weight};
  moth_classes c = classes_of(&a->input->l, a->ignore_index);
  moth_strips l = moth_strips_of(&a->input->l, class_dim(&a->input->l));
  moth_tensor *t[ALL] = {NULL}, *target, *weight = NULL, *factor = NULL;
  moth_tensor *x = moth_real(a->input), *dx = moth_real_out(out[0]);
  int status = x && dx ? MOTH_OK : a->ctx->error.code, dtype = x ? x->l.dtype : MOTH_F32;
  for (int i = 0; i < ALL && !status; i++)
    if (from[i] && !(t[i] = moth_cast(from[i], dtype))) status = a->ctx->error.code;
  int opened = class_open(&c, a->target, status ? NULL : t[WEIGHT], &target, &weight);
  if (!status) status = opened;
  moth_layout lay = a->target->l;
  lay.dtype = (uint8_t)dtype;
  if (!status && !(factor = moth_tensor_new(a->ctx, &lay))) status = a->ctx->error.code;
  if (!status && a->input->l.numel) {
    moth_class_factors(dtype, &c, a->reduction, moth_at(t[DY]), moth_at(factor));
    status = moth_entropy_back(a->ctx, dtype, &l, moth_at(x),
                               (const void *[]){moth_at(t[MOST]), moth_at(t[REST])}, c.target,
                               moth_at(factor), moth_at(dx));
  }
  for (int i = 0; i < ALL; i++) moth_tensor_release(t[i]);
  moth_tensor_release(factor);
  moth_tensor_release(target);
  moth_tensor_release(weight);
  moth_tensor_release(x);
  return moth_real_done(dx, out[0], status);
}

MOTH_OP_CONST(class_entropy_back, CLASS_ENTROPY_BACK,
  .doc = "The gradient of class_entropy.",
  .examples =
    "moth.tensor(0.5), moth.randn(3, 5), moth.rand(3), moth.rand(3), moth.tensor{1LL, 5LL, 2LL}\n"
    "moth.tensor(0.5), moth.randn(3, 2), moth.rand(3), moth.rand(3), moth.tensor{1LL, 2LL, 2LL},"
    " {weight = moth.tensor{0.5, 2}, ignore_index = 1}\n"
    "moth.randn(3), moth.randn(3, 2), moth.rand(3), moth.rand(3), moth.tensor{1LL, 2LL, 2LL},"
    " {reduction = \"none\"}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED | MOTH_OP_FROM_ONE_THERE, .public_name = "cross_entropy")

/* -- cross_entropy: nll_loss of log_softmax -- */

#define STEP(y, op, ...) \
  if (!status) status = MOTH_CALL(ctx, (y), op, __VA_ARGS__)

/* Returns the targets as class 0 of a single class; targets that are ignored become -1. */
static int any_class(const cross_entropy_args *a, moth_tensor **out) {
  enum { TARGET, IGNORE, IGNORED, ONES, TEMPS };
  moth_tensor *t[TEMPS] = {NULL};
  moth_ctx *ctx = a->ctx;
  int status = MOTH_OK;
  if (a->target->l.index_base) STEP(&t[TARGET], to_index, .input = a->target);
  STEP(&t[IGNORE], full, .size = {(int64_t[]){0}, 0},
       .fill_value = {.type = 1, .as.integer = a->ignore_index}, .dtype = MOTH_I64);
  STEP(&t[IGNORED], eq, .input = t[TARGET] ? t[TARGET] : a->target, .other = t[IGNORE]);
  STEP(&t[ONES], cast, .input = t[IGNORED], .dtype = MOTH_I64);
  STEP(out, neg, .input = t[ONES]);
  for (int i = 0; i < TEMPS; i++) moth_tensor_release(t[i]);
  return status;
}

/* The part of label smoothing: -sum(weight logp) of each sample, reduced as in nll_loss. It is
** computed as nll_loss of a single class with these sums as scores. */
static int evenly(const cross_entropy_args *a, moth_tensor *logp, moth_tensor **out) {
  enum { LINED, WEIGHTED, SUM, ONE, MINUS, TOTAL, ALL, CLASS, TEMPS };
  moth_tensor *t[TEMPS] = {NULL};
  moth_ctx *ctx = a->ctx;
  const moth_layout *x = &a->input->l;
  int64_t class = class_dim(x), size[MOTH_MAX_DIMS];
  bool divide = a->weight && a->reduction == MOTH_MEAN;
  int status = MOTH_OK;
  for (int32_t i = 0; i < x->ndim; i++) size[i] = i == class ? x->shape[i] : 1;
  if (a->weight) {
    STEP(&t[LINED], reshape, .input = a->weight, .shape = {size, x->ndim});
    STEP(&t[WEIGHTED], mul, .input = logp, .other = t[LINED]);
  }
  STEP(&t[SUM], sum, .input = a->weight ? t[WEIGHTED] : logp, .dim = {&class, 1},
       .keepdim = true, .dtype = -1);
  if (!status) status = any_class(a, &t[CLASS]);
  STEP(divide ? &t[ALL] : out, nll_loss, .input = t[SUM], .target = t[CLASS], .ignore_index = -1,
       .reduction = divide ? MOTH_SUM : a->reduction);
  if (divide) { /* divided by the sum of the targets' weights, as in nll_loss */
    STEP(&t[ONE], full_like, .input = logp, .fill_value = {.as.number = -1}, .dtype = -1);
    STEP(&t[TOTAL], nll_loss, .input = t[ONE], .target = a->target, .weight = a->weight,
         .ignore_index = a->ignore_index, .reduction = MOTH_SUM);
    STEP(out, div, .input = t[ALL], .other = t[TOTAL]);
  }
  for (int i = 0; i < TEMPS; i++) moth_tensor_release(t[i]);
  return status;
}

static int cross_entropy_compose(const cross_entropy_args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  moth_tensor *logp = NULL, *hard = NULL, *less = NULL, *even = NULL;
  moth_layout y = a->input->l;
  double share = a->label_smoothing;
  if (!(share >= 0 && share <= 1))
    return moth_fail(ctx, MOTH_E_DOMAIN, "label_smoothing",
                     "a number from 0 to 1 is needed, got %g", share);
  int status = class_shapes(&a->input->l, moth_str(a->input), a->target, a->weight, a->reduction,
                            &y);
  int64_t class = class_dim(&a->input->l);
  if (!status && share == 0)
    return MOTH_CALL(ctx, out, class_entropy, .input = a->input, .target = a->target,
                     .weight = a->weight, .ignore_index = a->ignore_index,
                     .reduction = a->reduction, .wide = ctx->autocast != MOTH_NO_DTYPE);
  STEP(&logp, log_softmax, .input = a->input, .dim = class, .dtype = -1);
  STEP(&hard, nll_loss, .input = logp, .target = a->target, .weight = a->weight,
       .ignore_index = a->ignore_index, .reduction = a->reduction);
  /* (1 - share) hard + share / C even */
  double each = share / (double)a->input->l.shape[class];
  if (!status) status = evenly(a, logp, &even);
  STEP(&less, add, .input = hard, .other = hard, .alpha = {.as.number = -share});
  STEP(out, add, .input = less, .other = even, .alpha = {.as.number = each});
  moth_tensor_release(logp);
  moth_tensor_release(hard);
  moth_tensor_release(less);
  moth_tensor_release(even);
  return status;
}

MOTH_OP_COMPOSES(cross_entropy, CROSS_ENTROPY,
  .doc = "Cross entropy between scores and target classes: nll_loss(log_softmax(input), target).",
  .examples =
    "moth.randn(3, 5), moth.tensor{1LL, 5LL, 2LL}\n"
    "moth.randn(5), moth.tensor(4LL), {reduction = \"sum\", label_smoothing = 0.1}\n"
    "moth.randn(3, 2), moth.tensor{1LL, 2LL, 2LL}, {weight = moth.tensor{0.5, 2},"
    " ignore_index = 1, label_smoothing = 0.2}\n"
    "moth.randn(2, 3, 2), moth.tensor{{1LL, 3LL}, {-100LL, 2LL}}, {weight = moth.tensor{1, 2, 3},"
    " reduction = \"none\", label_smoothing = 0.5}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_METHOD | MOTH_OP_FROM_ONE_THERE)

/* -- cross_entropy with probabilities: -sum(weight target log_softmax) of each sample -- */

static int soft_check(const cross_entropy_soft_args *a) {
  const moth_layout *x = &a->input->l;
  if (x->ndim < 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "(N, C, ...) or (C) is needed, got %s",
                     moth_str(a->input));
  if (!moth_shape_same(x, &a->target->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "target", "the shape of %s is needed, got %s",
                     moth_str(a->input), moth_str(a->target));
  int64_t classes = x->shape[class_dim(x)];
  if (a->weight && (a->weight->l.ndim != 1 || a->weight->l.shape[0] != classes))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "weight",
                     "%s, one weight for each class, is needed, got %s",
                     moth_str_shape(a->ctx, 1, &classes), moth_str(a->weight));
  if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "label_smoothing",
                     "a number from 0 to 1 is needed, got %g", a->label_smoothing);
  return MOTH_OK;
}

static int cross_entropy_soft_compose(const cross_entropy_soft_args *a, moth_tensor **out) {
  enum { LOGP, EVEN, SMOOTH, LINED, WEIGHTED, EACH, LOSS, MINUS, CASES, TEMPS };
  moth_tensor *t[TEMPS] = {NULL};
  moth_ctx *ctx = a->ctx;
  const moth_layout *x = &a->input->l;
  int64_t class = class_dim(x), size[MOTH_MAX_DIMS];
  int status = soft_check(a);
  if (status) return status; /* from here on x->ndim > 0 */
  int64_t classes = x->shape[class], cases = classes ? x->numel / classes : 0;
  double share = a->label_smoothing;
  for (int32_t i = 0; i < x->ndim; i++) size[i] = i == class ? classes : 1;
  STEP(&t[LOGP], log_softmax, .input = a->input, .dim = class, .dtype = -1);
  moth_tensor *target = a->target, *logp = t[LOGP];
  if (share > 0) { /* (1 - share) target + share / C */
    STEP(&t[EVEN], full_like, .input = target, .dtype = -1,
         .fill_value = {.as.number = share / (double)classes});
    STEP(&t[SMOOTH], add, .input = t[EVEN], .other = target, .alpha = {.as.number = 1 - share});
    target = t[SMOOTH];
  }
  if (a->weight) {
    STEP(&t[LINED], reshape, .input = a->weight, .shape = {size, x->ndim});
    STEP(&t[WEIGHTED], mul, .input = logp, .other = t[LINED]);
    logp = t[WEIGHTED];
  }
  STEP(&t[EACH], mul, .input = logp, .other = target);
  moth_ints dims = {&class, a->reduction == MOTH_EACH ? 1 : 0};
  if (a->reduction != MOTH_EACH) dims.at = NULL;
  STEP(&t[LOSS], sum, .input = t[EACH], .dim = dims, .dtype = -1);
  STEP(a->reduction == MOTH_MEAN ? &t[MINUS] : out, neg, .input = t[LOSS]);
  if (a->reduction == MOTH_MEAN) {
    STEP(&t[CASES], full_like, .input = t[MINUS], .dtype = -1,
         .fill_value = {.as.number = (double)cases});
    STEP(out, div, .input = t[MINUS], .other = t[CASES]);
  }
  for (int i = 0; i < TEMPS; i++) moth_tensor_release(t[i]);
  return status;
}

MOTH_OP_COMPOSES(cross_entropy_soft, CROSS_ENTROPY_SOFT,
  .doc = "Cross entropy between scores and target probabilities: -sum(weight * target * "
         "log_softmax(input)).",
  .examples =
    "moth.randn(3, 5), moth.rand(3, 5)\n"
    "moth.randn(5), moth.rand(5), {reduction = \"sum\", label_smoothing = 0.1}\n"
    "moth.randn(2, 3, 2), moth.rand(2, 3, 2), {weight = moth.tensor{1, 2, 3},"
    " reduction = \"none\", label_smoothing = 0.5}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN, .autocast = MOTH_AUTOCAST_F32, .public_name = "cross_entropy")

const moth_op *const moth_loss_ops[] = {
  &moth_op_nll_loss, &moth_op_nll_loss_back, &moth_op_class_entropy,
  &moth_op_class_entropy_back, &moth_op_cross_entropy, &moth_op_cross_entropy_soft,
  NULL,
};
