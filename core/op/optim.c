/* optim.c -- optimizer steps: one call updates a group of parameters, with one fused loop for each.
** They write to parameters, which are leaves with gradients, so grad mode must be off.
*/
#include "optim.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"
#include "base/alloc.h"

#include <math.h>

#include "device/device.h"
#include "kernel/optim.h"
#include "tensor/sparse.h"
#include "autograd/tape.h"

/* -- code shared by all steps -- */

typedef struct list {
  const char *name;
  moth_tensors of;
} list;

/* Checks that list k matches params: the same length, and for each element the parameter's shape
** and dtype. The state of half-precision parameters may be f32: squares and small contributions to
** a mean would round to 0 in a half type. */
static int goes_with(moth_ctx *ctx, const list *lists, int k) {
  const moth_tensors params = lists[0].of;
  const list x = lists[k];
  if (x.of.n != params.n)
    return moth_fail(ctx, MOTH_E_ARG, x.name,
                     "%lld tensors are needed, one for each parameter, got %lld",
                     (long long)params.n, (long long)x.of.n);
  for (int64_t i = 0; i < params.n; i++) {
    const moth_tensor *p = params.at[i], *own = x.of.at[i];
    const bool wide = k > 1 && moth_is_half(p->l.dtype) && own->l.dtype == MOTH_F32;
    const bool fits = wide || p->l.dtype == own->l.dtype;
    const moth_tensor *first = k > 2 ? lists[2].of.at[i] : own;
    if (fits && first->l.dtype != own->l.dtype)
      return moth_fail(ctx, MOTH_E_DTYPE, x.name, "number " MOTH_POS " is %s, but %s has %s there",
                       (long long)i, moth_str(own), lists[2].name, moth_str(first));
    if (!moth_shape_same(&p->l, &own->l) || !fits)
      return moth_fail(ctx, fits ? MOTH_E_SHAPE : MOTH_E_DTYPE, x.name,
                       "number " MOTH_POS " is %s, but its parameter is %s", (long long)i,
                       moth_str(own), moth_str(p));
    if (p->l.device != own->l.device || p->l.device != params.at[0]->l.device)
      return moth_fail(ctx, MOTH_E_DEVICE, x.name,
                       "number " MOTH_POS " is on another device than the parameters",
                       (long long)i);
  }
  return MOTH_OK;
}

static int may_write(moth_ctx *ctx, list x) {
  for (int64_t i = 0; i < x.of.n; i++) {
    if (ctx->grad_mode && moth_needs_grad(x.of.at[i]))
      return moth_fail(ctx, MOTH_E_GRAPH, x.name,
                       "number " MOTH_POS " requires a gradient; run steps under no_grad",
                       (long long)i);
    int status = moth_check_write(x.of.at[i], x.name, false);
    if (status) return status;
  }
  return MOTH_OK;
}

/* Fails unless value is in a range. If `least` is -HUGE_VAL, every number is allowed. */
static void within(int *status, moth_ctx *ctx, const char *arg, double value, double least,
                   double most) {
  if (*status || least == -HUGE_VAL || (value >= least && value <= most)) return;
  if (most < HUGE_VAL)
    *status = moth_fail(ctx, MOTH_E_DOMAIN, arg, "a number from %g to %g is needed, got %g", least,
                        most, value);
  else
    *status = moth_fail(ctx, MOTH_E_DOMAIN, arg, "a number from %g on is needed, got %g", least,
                        value);
}

/* Returns the parameters' own gradients, owned, in an array of n pointers. The caller frees it. */
static moth_tensor **own_grads(moth_ctx *ctx, moth_tensors params) {
  moth_tensor **at = moth_alloc(ctx, params.n * (int64_t)sizeof *at);
  for (int64_t i = 0; at && i < params.n; i++) {
    const moth_node *leaf = params.at[i]->leaf;
    at[i] = leaf ? leaf->grad : NULL;
    if (at[i] && !moth_sparse(at[i])) {
      moth_tensor_retain(at[i]);
      continue;
    }
    moth_fail(ctx, MOTH_E_STATE, "params", "number " MOTH_POS " has no%s gradient", (long long)i,
              at[i] ? " dense" : "");
    while (i > 0) moth_tensor_release(at[--i]);
    moth_dealloc(ctx, at, params.n * (int64_t)sizeof *at);
    return NULL;
  }
  return at;
}

/* Updates all parameters in one launch, on a device other than the CPU. */
static int steps_there(moth_ctx *ctx, const moth_step *s, const list *lists, int n) {
  const int64_t count = lists[0].of.n, bytes = count * n * (int64_t)sizeof(moth_tensor *);
  const moth_steps steps = {s, n};
  const moth_tensor **x = moth_alloc(ctx, bytes);
  if (!x) return ctx->error.code;
  for (int64_t i = 0; i < count; i++)
    for (int k = 0; k < n; k++) x[i * n + k] = lists[k].of.at[i];
  int status = moth_device_map(ctx, "optimizer_step", MOTH_F32, (int)(count * n), x, &steps);
  for (int64_t i = 0; i < count && !status; i++)
    for (int k = 0; k < n; k++)
      if (k != 1 && x[i * n + k]->l.numel) moth_storage_bump(x[i * n + k]->storage);
  moth_dealloc(ctx, x, bytes);
  return status;
}

/* Checks all lists before the first write. */
static int step_lists(moth_ctx *ctx, const moth_step *s, const list *lists, int n) {
  moth_tensors params = lists[0].of;
  int status = MOTH_OK;
  for (int k = 1; !status && k < n; k++) status = goes_with(ctx, lists, k);
  for (int k = 0; !status && k < n; k++)
    if (k != 1) status = may_write(ctx, lists[k]);
  if (!status && params.n && params.at[0]->l.device) return steps_there(ctx, s, lists, n);
  for (int64_t i = 0; !status && i < params.n; i++) {
    moth_tensor *x[MOTH_STEP_OPERANDS];
    for (int k = 0; k < n; k++) {
      x[k] = lists[k].of.at[i];
      if (k != 1 && x[k]->l.numel) moth_storage_bump(x[k]->storage);
    }
    status = moth_step_run(s, x, n);
  }
  return status;
}

/* Steps every parameter. lists has params, grads and n - 2 lists of state; the lists in the set
** `without` are unused. Without grads, the parameters' own gradients are used, so they need no
** handles. */
static int step_all(moth_ctx *ctx, int status, const moth_step *s, list *lists, int n,
                    int without) {
  const moth_tensors params = lists[0].of;
  int used = 2;
  if (status) return status;
  for (int k = 2; k < n; k++)
    if (!(without >> k & 1)) lists[used++] = lists[k];
  if (lists[1].of.n || !params.n) return step_lists(ctx, s, lists, used);
  moth_tensor **own = own_grads(ctx, params);
  if (!own) return ctx->error.code;
  lists[1].of = (moth_tensors){own, params.n};
  status = step_lists(ctx, s, lists, used);
  for (int64_t i = 0; i < params.n; i++) moth_tensor_release(own[i]);
  moth_dealloc(ctx, own, params.n * (int64_t)sizeof *own);
  return status;
}

/* -- defined by the step's list of arguments -- */

/* Range of the argument of this name. */
#define RANGE_step          1, HUGE_VAL
#define RANGE_lr            0, HUGE_VAL
#define RANGE_lr_grad       -HUGE_VAL, HUGE_VAL
#define RANGE_lr_decay      0, HUGE_VAL
#define RANGE_eta           0, HUGE_VAL
#define RANGE_lambd         0, HUGE_VAL
#define RANGE_mu            0, 1
#define RANGE_beta1         0, 1
#define RANGE_beta2         0, 1
#define RANGE_alpha         0, HUGE_VAL
#define RANGE_rho           0, 1
#define RANGE_eps           0, HUGE_VAL
#define RANGE_momentum      0, HUGE_VAL
#define RANGE_dampening     -HUGE_VAL, HUGE_VAL
#define RANGE_weight_decay  0, HUGE_VAL
#define RANGE_etaminus      0, 1
#define RANGE_etaplus       1, HUGE_VAL
#define RANGE_step_size_min -HUGE_VAL, HUGE_VAL
#define RANGE_step_size_max -HUGE_VAL, HUGE_VAL

#define CHECK(kind, name, fallback, doc) CHECK_##kind(name)
#define CHECK_float(name) within(&status, a->ctx, #name, a->name, RANGE_##name);
#define CHECK_bool(name)
#define CHECK_tensors(name)

#define LIST(kind, name, fallback, doc) LIST_##kind(name)
#define LIST_float(name)
#define LIST_bool(name)
#define LIST_tensors(name) {#name, a->name},

/* Defines <op>_compose for arguments a. `checks` is code that may set status, after the checks of
** ranges. `without` is the set of unused lists. The other macro arguments are fields of
** moth_step. */
#define STEP(op, ARGS, checks, without, ...)                       \
  static int op##_compose(const op##_args *a, moth_tensor **out) { \
    int status = MOTH_OK;                                          \
    (void)out;                                                     \
    ARGS(CHECK)                                                    \
    checks;                                                        \
    const moth_step s = {__VA_ARGS__};                             \
    list lists[] = {ARGS(LIST)};                                   \
    return step_all(a->ctx, status, &s, lists, sizeof lists / sizeof *lists, without); \
  }
#define STEP_OP(op, ARGS, ...)                                    \
  MOTH_OP_COMPOSES(op, ARGS, .outputs = "", .dtypes = MOTH_FLOATS, \
                   .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED | MOTH_OP_WHOLE | MOTH_OP_PORTABLE, \
                   __VA_ARGS__)

/* -- SGD -- */

static int nesterov_fits(const sgd_step__args *a) {
  if (!a->nesterov || (a->momentum != 0 && a->dampening == 0)) return MOTH_OK;
  return moth_fail(a->ctx, MOTH_E_DOMAIN, "nesterov", "needs momentum above 0 and dampening 0");
}

STEP(sgd_step_, SGD_STEP_, if (!status) status = nesterov_fits(a), (a->momentum == 0) << 2,
     .rule = MOTH_SGD, .lr = a->lr, .momentum = a->momentum, .dampening = a->dampening,
     .weight_decay = a->weight_decay, .nesterov = a->nesterov, .maximize = a->maximize,
     .first = a->first)

STEP_OP(sgd_step_, SGD_STEP_, .public_name = "SGD",
  .doc = "A step of stochastic gradient descent. d = grad + weight_decay p; with momentum "
         "b = momentum b + (1 - dampening) d and d = b, or d + momentum b with nesterov; "
         "p = p - lr d. (Sutskever et al. 2013, in PyTorch's form)",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {}, 0.1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.randn(3)},"
    " {lr = 0.1, momentum = 0.9, dampening = 0.1, weight_decay = 0.01, maximize = true}\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)},"
    " {lr = 0.1, momentum = 0.9, nesterov = true, first = true}",
  .counts = "first")

/* -- Adam and its variants -- */

/* Fields common to Adam and its variants. With `shrunk` the weight decay is decoupled, with this
** rate. */
#define ADAPTIVE(its_rule, its_lr, shrunk, rate)                    \
  .rule = (its_rule), .lr = (its_lr), .beta1 = a->beta1, .beta2 = a->beta2, \
  .eps = a->eps, .weight_decay = (shrunk) ? 0 : a->weight_decay,    \
  .shrink = (shrunk) ? 1 - (rate) * a->weight_decay : 1, .maximize = a->maximize

STEP(adam_step_, ADAM_STEP_, , (a->max_exp_avg_sqs.n == 0) << 4,
     ADAPTIVE(MOTH_ADAM, a->lr / (1 - pow(a->beta1, a->step)), a->decoupled, a->lr),
     .root = sqrt(1 - pow(a->beta2, a->step)))

STEP_OP(adam_step_, ADAM_STEP_, .public_name = "Adam",
  .doc = "A step of Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019) or AMSGrad "
         "(Reddi et al. 2018).",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.zeros(3)}, {}, 1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.rand(3)}, {moth.rand(3)},"
    " {step = 2, lr = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 0.001, weight_decay = 0.01}\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.rand(3)}, {},"
    " {step = 2, weight_decay = 0.01, decoupled = true, maximize = true}",
  .counts = "step")

STEP(nadam_step_, NADAM_STEP_, , 0, ADAPTIVE(MOTH_NADAM, a->lr, a->decoupled, 1),
     .lr_grad = a->lr_grad, .root = sqrt(1 - pow(a->beta2, a->step)))

STEP_OP(nadam_step_, NADAM_STEP_, .public_name = "NAdam",
  .doc = "A step of NAdam (Dozat 2016): Adam with Nesterov momentum. lr and lr_grad are the "
         "factors of the running mean and of the new gradient, including bias corrections. If "
         "decoupled, weight_decay is the fraction of the parameter that is subtracted in this "
         "step.",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.zeros(3)}, 1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.rand(3)}, {step = 2, lr = 0.1,"
    " lr_grad = 0.1, beta1 = 0.8, beta2 = 0.9, eps = 0.001, weight_decay = 0.01,"
    " decoupled = true, maximize = true}",
  .counts = "step")

/* Returns RAdam's rectification factor at step t, or 0 if the variance is not yet usable. */
static double radam_factor(double beta2, double t) {
  double correction = 1 - pow(beta2, t), most = 2 / (1 - beta2) - 1;
  double now = most - 2 * t * pow(beta2, t) / correction;
  if (!(now > 5)) return 0;
  return sqrt((now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now)) * sqrt(correction);
}

STEP(radam_step_, RADAM_STEP_, , 0,
     ADAPTIVE(MOTH_RADAM, a->lr / (1 - pow(a->beta1, a->step)), a->decoupled, a->lr),
     .root = radam_factor(a->beta2, a->step))

STEP_OP(radam_step_, RADAM_STEP_, .public_name = "RAdam",
  .doc = "A step of RAdam (Liu et al. 2020): Adam with a rectified variance of the learning rate.",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.zeros(3)}, 1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.rand(3)}, {step = 20, lr = 0.1,"
    " beta1 = 0.8, beta2 = 0.9, eps = 0.001, weight_decay = 0.01, decoupled = true,"
    " maximize = true}",
  .counts = "step")

STEP(adamax_step_, ADAMAX_STEP_, , 0,
     ADAPTIVE(MOTH_ADAMAX, a->lr / (1 - pow(a->beta1, a->step)), false, 0))

STEP_OP(adamax_step_, ADAMAX_STEP_, .public_name = "Adamax",
  .doc = "A step of Adamax (Kingma & Ba 2015): Adam with the running maximum of gradients instead "
         "of the mean square.",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.zeros(3)}, 1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.zeros(3)}, {moth.rand(3)}, {step = 2, lr = 0.1,"
    " beta1 = 0.8, beta2 = 0.9, eps = 0.001, weight_decay = 0.01, maximize = true}",
  .counts = "step")

/* -- RMSprop, Adagrad, Adadelta -- */

STEP(rmsprop_step_, RMSPROP_STEP_, , (a->grad_avgs.n == 0) << 3 | (a->momentum == 0) << 4,
     .rule = MOTH_RMSPROP, .lr = a->lr, .beta2 = a->alpha, .eps = a->eps,
     .momentum = a->momentum, .weight_decay = a->weight_decay, .maximize = a->maximize,
     .centered = a->grad_avgs.n > 0)

STEP_OP(rmsprop_step_, RMSPROP_STEP_, .public_name = "RMSprop",
  .doc = "A step of RMSprop (Hinton 2012), centered as by Graves (2013).",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.rand(3)}, {}, {}\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.rand(3) + 1}, {moth.rand(3)}, {moth.rand(3)},"
    " {lr = 0.1, alpha = 0.9, eps = 0.001, momentum = 0.9, weight_decay = 0.01,"
    " maximize = true}")

STEP(adagrad_step_, ADAGRAD_STEP_, , 0, .rule = MOTH_ADAGRAD,
     .lr = a->lr / (1 + (a->step - 1) * a->lr_decay), .eps = a->eps,
     .weight_decay = a->weight_decay, .maximize = a->maximize)

STEP_OP(adagrad_step_, ADAGRAD_STEP_, .public_name = "Adagrad",
  .doc = "A step of Adagrad (Duchi et al. 2011).",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.rand(3)}, 1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.rand(3)}, {step = 3, lr = 0.1, lr_decay = 0.1,"
    " eps = 0.001, weight_decay = 0.01, maximize = true}",
  .counts = "step")

STEP(adadelta_step_, ADADELTA_STEP_, , 0, .rule = MOTH_ADADELTA, .lr = a->lr, .beta2 = a->rho,
     .eps = a->eps, .weight_decay = a->weight_decay, .maximize = a->maximize)

STEP_OP(adadelta_step_, ADADELTA_STEP_, .public_name = "Adadelta",
  .doc = "A step of Adadelta (Zeiler 2012).",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.rand(3)}, {moth.rand(3)}\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.rand(3)}, {moth.rand(3)}, {lr = 0.1, rho = 0.8,"
    " eps = 0.001, weight_decay = 0.01, maximize = true}")

/* -- Rprop, ASGD -- */

STEP(rprop_step_, RPROP_STEP_, , 0, .rule = MOTH_RPROP, .less = a->etaminus,
     .more = a->etaplus, .least = a->step_size_min, .most = a->step_size_max,
     .maximize = a->maximize)

STEP_OP(rprop_step_, RPROP_STEP_, .public_name = "Rprop",
  .doc = "A step of Rprop (Riedmiller & Braun 1993): only the gradient's sign is used, with a "
         "separate step size for each element.",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.randn(3)}, {moth.rand(3)}\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.randn(3)}, {moth.rand(3)}, {etaminus = 0.25,"
    " etaplus = 1.5, step_size_min = 0.1, step_size_max = 0.9, maximize = true}")

STEP(asgd_step_, ASGD_STEP_, , 0, .rule = MOTH_ASGD, .lr = a->eta, .momentum = a->mu,
     .shrink = 1 - a->lambd * a->eta, .weight_decay = a->weight_decay, .maximize = a->maximize)

STEP_OP(asgd_step_, ASGD_STEP_, .public_name = "ASGD",
  .doc = "A step of averaged stochastic gradient descent (Polyak & Juditsky 1992).",
  .examples =
    "{moth.randn(3)}, {moth.randn(3)}, {moth.randn(3)}, 0.1\n"
    "{moth.randn(3)}, {moth.randn(3)}, {moth.randn(3)}, {eta = 0.1, mu = 0.5, lambd = 0.1,"
    " weight_decay = 0.01, maximize = true}",
  .counts = "eta")

const moth_op *const moth_optim_ops[] = {
  &moth_op_sgd_step_,    &moth_op_adam_step_,    &moth_op_nadam_step_,   &moth_op_radam_step_,
  &moth_op_adamax_step_, &moth_op_rmsprop_step_, &moth_op_adagrad_step_, &moth_op_adadelta_step_,
  &moth_op_rprop_step_,  &moth_op_asgd_step_,    NULL,
};
