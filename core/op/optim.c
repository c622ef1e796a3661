/* optim.c -- optimizer steps: a whole group of parameters in one call, each in one fused loop.
** They write parameters, which are leaves that need gradients, so grad mode must be off.
*/
#include "optim.h"

#include <math.h>

#include "../kernel/optim.h"
#include "../tape.h"

/* Whether list goes with params: as long, and each element of the parameter's shape and dtype. */
static int goes_with(moth_ctx *ctx, moth_tensors params, moth_tensors list, const char *arg) {
  if (list.n != params.n)
    return moth_fail(ctx, MOTH_E_ARG, arg, "wants %lld tensors, one for each parameter, got %lld",
                     (long long)params.n, (long long)list.n);
  for (int64_t i = 0; i < params.n; i++) {
    const moth_tensor *p = params.at[i], *x = list.at[i];
    if (!moth_shape_same(&p->l, &x->l) || p->l.dtype != x->l.dtype)
      return moth_fail(ctx, p->l.dtype == x->l.dtype ? MOTH_E_SHAPE : MOTH_E_DTYPE, arg,
                       "number " MOTH_POS " is %s, but its parameter is %s", (long long)i,
                       moth_str(x), moth_str(p));
  }
  return MOTH_OK;
}

static int may_write(moth_ctx *ctx, moth_tensors list, const char *arg) {
  for (int64_t i = 0; i < list.n; i++) {
    if (ctx->grad_mode && moth_needs_grad(list.at[i]))
      return moth_fail(ctx, MOTH_E_GRAPH, arg,
                       "number " MOTH_POS " needs a gradient; steps run under no_grad",
                       (long long)i);
    int status = moth_check_write(list.at[i], arg, false);
    if (status) return status;
  }
  return MOTH_OK;
}

static int within(moth_ctx *ctx, const char *arg, double value, double least, double most) {
  if (value >= least && value <= most) return MOTH_OK;
  if (most < HUGE_VAL)
    return moth_fail(ctx, MOTH_E_DOMAIN, arg, "must be from %g to %g, got %g", least, most, value);
  return moth_fail(ctx, MOTH_E_DOMAIN, arg, "must be at least %g, got %g", least, value);
}

static void written(moth_tensor *x) {
  if (x && x->l.numel) moth_storage_bump(x->storage);
}

/* -- SGD -- */

static int sgd_step__compose(const sgd_step__args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  bool buffered = a->momentum != 0;
  (void)out;
  int status = goes_with(ctx, a->params, a->grads, "grads");
  if (!status && buffered)
    status = goes_with(ctx, a->params, a->momentum_buffers, "momentum_buffers");
  if (!status) status = may_write(ctx, a->params, "params");
  if (!status && buffered) status = may_write(ctx, a->momentum_buffers, "momentum_buffers");
  if (!status) status = within(ctx, "lr", a->lr, 0, HUGE_VAL);
  if (!status) status = within(ctx, "momentum", a->momentum, 0, HUGE_VAL);
  if (!status) status = within(ctx, "weight_decay", a->weight_decay, 0, HUGE_VAL);
  if (!status && a->nesterov && (!buffered || a->dampening != 0))
    status = moth_fail(ctx, MOTH_E_DOMAIN, "nesterov", "wants momentum above 0 and dampening 0");
  moth_sgd s = {a->lr, a->momentum, a->dampening, a->weight_decay,
                a->nesterov, a->maximize, a->first, buffered};
  for (int64_t i = 0; !status && i < a->params.n; i++) {
    moth_tensor *buffer = buffered ? a->momentum_buffers.at[i] : NULL;
    written(a->params.at[i]);
    written(buffer);
    status = moth_sgd_step(&s, a->params.at[i], a->grads.at[i], buffer);
  }
  return status;
}

MOTH_OP_COMPOSES(sgd_step_, SGD_STEP_,
  .doc = "A step of stochastic gradient descent. d = grad + weight_decay p; with momentum "
         "b = momentum b + (1 - dampening) d and d = b, or d + momentum b with nesterov; "
         "p = p - lr d. (Sutskever et al. 2013, in PyTorch's form)",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {}, 0.1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.randn(3)},"
    " {lr = 0.1, momentum = 0.9, dampening = 0.1, weight_decay = 0.01, maximize = true}\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)},"
    " {lr = 0.1, momentum = 0.9, nesterov = true, first = true}",
  .outputs = "",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED)

/* -- Adam -- */

static int adam_check(const adam_step__args *a) {
  moth_ctx *ctx = a->ctx;
  int status = goes_with(ctx, a->params, a->grads, "grads");
  if (!status) status = goes_with(ctx, a->params, a->exp_avgs, "exp_avgs");
  if (!status) status = goes_with(ctx, a->params, a->exp_avg_sqs, "exp_avg_sqs");
  if (!status) status = may_write(ctx, a->params, "params");
  if (!status) status = may_write(ctx, a->exp_avgs, "exp_avgs");
  if (!status) status = may_write(ctx, a->exp_avg_sqs, "exp_avg_sqs");
  if (!status) status = within(ctx, "step", a->step, 1, HUGE_VAL);
  if (!status) status = within(ctx, "lr", a->lr, 0, HUGE_VAL);
  if (!status) status = within(ctx, "beta1", a->beta1, 0, 1);
  if (!status) status = within(ctx, "beta2", a->beta2, 0, 1);
  if (!status) status = within(ctx, "eps", a->eps, 0, HUGE_VAL);
  if (!status) status = within(ctx, "weight_decay", a->weight_decay, 0, HUGE_VAL);
  return status;
}

static int adam_step__compose(const adam_step__args *a, moth_tensor **out) {
  int status = adam_check(a);
  (void)out;
  moth_adam s = {.step_size = a->lr / (1 - pow(a->beta1, a->step)),
                 .root_correction = sqrt(1 - pow(a->beta2, a->step)),
                 .beta1 = a->beta1, .beta2 = a->beta2, .eps = a->eps,
                 .weight_decay = a->decoupled ? 0 : a->weight_decay,
                 .shrink = a->decoupled ? 1 - a->lr * a->weight_decay : 1,
                 .maximize = a->maximize};
  for (int64_t i = 0; !status && i < a->params.n; i++) {
    moth_tensor *param = a->params.at[i], *mean = a->exp_avgs.at[i], *sq = a->exp_avg_sqs.at[i];
    written(param);
    written(mean);
    written(sq);
    status = moth_adam_step(&s, param, a->grads.at[i], mean, sq);
  }
  return status;
}

MOTH_OP_COMPOSES(adam_step_, ADAM_STEP_,
  .doc = "A step of Adam (Kingma & Ba 2015), or of AdamW (Loshchilov & Hutter 2019).",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.zeros(3)}, 1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.rand(3)},"
    " {step = 2, lr = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 0.001, weight_decay = 0.01}\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.rand(3)},"
    " {step = 2, weight_decay = 0.01, decoupled = true, maximize = true}",
  .outputs = "",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED)

const moth_op *const moth_optim_ops[] = {&moth_op_sgd_step_, &moth_op_adam_step_, NULL};
