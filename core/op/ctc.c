/* ctc.c -- connectionist temporal classification: the losses of the sequences, and their gradients.
** The public function, ctc_loss, is written in Lua (nn/functional/ctc.lua).
**
** The gradient for log_probs is minus the posterior probability of a class at a step, given the
** targets. After log_softmax, the gradient of the scores equals PyTorch's. PyTorch's own gradient
** for log_probs differs: it adds the softmax.
*/
#include "ctc.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/ctc.h"
#include "kernel/real.h"
#include "gradient_formula.h"

/* Arguments shared by the ops of this file. */
typedef struct how {
  moth_ctx *ctx;
  moth_tensor *log_probs, *targets, *input_lengths, *target_lengths;
  int64_t blank;
} how;
#define HOW(a) \
  ((how){(a)->ctx, (a)->log_probs, (a)->targets, (a)->input_lengths, (a)->target_lengths, \
         (a)->blank})
#define SAME_HOW(a)                                                                         \
  .log_probs = (a)->log_probs, .targets = (a)->targets, .input_lengths = (a)->input_lengths, \
  .target_lengths = (a)->target_lengths, .blank = (a)->blank

static int check(how a) {
  const moth_layout *x = &a.log_probs->l;
  if (x->ndim != 3)
    return moth_fail(a.ctx, MOTH_E_SHAPE, "log_probs", "(T, N, C) or (T, C) is needed, got %s",
                     moth_str(a.log_probs));
  const int64_t n = x->shape[1], classes = x->shape[2];
  const moth_tensor *lengths[2] = {a.input_lengths, a.target_lengths};
  for (int i = 0; i < 2; i++)
    if (lengths[i]->l.ndim != 1 || lengths[i]->l.shape[0] != n)
      return moth_fail(a.ctx, MOTH_E_SHAPE, i ? "target_lengths" : "input_lengths",
                       "one for each of %lld sequences is needed, got %s", (long long)n,
                       moth_str(lengths[i]));
  const moth_layout *t = &a.targets->l;
  if (t->ndim != 2 || t->shape[0] != n)
    return moth_fail(a.ctx, MOTH_E_SHAPE, "targets",
                     "(N, S) for %s is needed, or one dimension with the targets of all sequences, "
                     "got %s", moth_str(a.log_probs),
                     moth_str(a.targets));
  if (a.blank < 0 || a.blank >= classes)
    return moth_fail(a.ctx, MOTH_E_INDEX, "blank", "class " MOTH_POS " is not among the %lld of %s",
                     (long long)a.blank, (long long)classes, moth_str(a.log_probs));
  return MOTH_OK;
}

typedef struct opened { /* owned */
  moth_tensor *x, *targets, *lengths[2];
} opened;

static void drop(opened *o) {
  moth_tensor_release(o->x);
  moth_tensor_release(o->targets);
  for (int i = 0; i < 2; i++) moth_tensor_release(o->lengths[i]);
}

/* Checks the arguments of sequence n that the kernels use. */
static int check_sample(how a, const moth_ctc *c, int64_t n) {
  const int64_t steps = c->steps_of[n], count = c->targets_of[n];
  if (steps < 0 || steps > c->steps)
    return moth_fail(a.ctx, MOTH_E_SHAPE, "input_lengths",
                     "sequence " MOTH_POS " has %lld steps, but 0 to %lld are possible in %s",
                     (long long)n, (long long)steps, (long long)c->steps, moth_str(a.log_probs));
  if (count < 0 || count > c->longest)
    return moth_fail(a.ctx, MOTH_E_SHAPE, "target_lengths",
                     "sequence " MOTH_POS " has %lld targets, but 0 to %lld are possible in %s",
                     (long long)n, (long long)count, (long long)c->longest, moth_str(a.targets));
  for (int64_t k = 0; k < count; k++) {
    const int64_t class = c->targets[n * c->longest + k];
    if (class < 0 || class >= c->classes)
      return moth_fail(a.ctx, MOTH_E_INDEX, "targets", "sequence " MOTH_POS " has class " MOTH_POS
                       ", but there are %lld classes", (long long)n, (long long)class,
                       (long long)c->classes);
  }
  return MOTH_OK;
}

static int open(how a, opened *o, moth_ctc *c) {
  const int64_t *n = a.log_probs->l.shape;
  o->x = moth_real(a.log_probs);
  o->targets = moth_positions(a.targets);
  o->lengths[0] = moth_positions(a.input_lengths);
  o->lengths[1] = moth_positions(a.target_lengths);
  if (!o->x || !o->targets || !o->lengths[0] || !o->lengths[1]) return a.ctx->error.code;
  *c = (moth_ctc){.steps = n[0], .samples = n[1], .classes = n[2], .blank = a.blank,
                  .longest = a.targets->l.shape[1], .log_probs = moth_at(o->x)};
  c->targets = (const int64_t *)(void *)moth_at(o->targets);
  c->steps_of = (const int64_t *)(void *)moth_at(o->lengths[0]);
  c->targets_of = (const int64_t *)(void *)moth_at(o->lengths[1]);
  int status = MOTH_OK;
  for (int64_t i = 0; i < n[1] && !status; i++) status = check_sample(a, c, i);
  return status;
}

/* -- the losses -- */

static int ctc_losses_shape(const ctc_losses_args *a, moth_layout *y) {
  int status = check(HOW(a));
  if (status) return status;
  y->ndim = 1;
  y->shape[0] = a->log_probs->l.shape[1];
  return MOTH_OK;
}

static int ctc_losses_cpu(const ctc_losses_args *a, moth_tensor **out) {
  opened o = {0};
  moth_ctc c;
  moth_tensor *y = moth_real_out(out[0]);
  int status = y ? open(HOW(a), &o, &c) : a->ctx->error.code;
  if (!status) status = moth_ctc_losses(a->ctx, o.x->l.dtype, &c, moth_at(y));
  drop(&o);
  return moth_real_done(y, out[0], status);
}

static int ctc_losses_grad(const ctc_losses_args *a, moth_grad *g) {
  return moth_flow(g, a->log_probs,
                   g->ctx->grad_mode ? moth_ctc_grad(a, g)
                                     : GRAD(g, ctc_back, .grad = g->dy, SAME_HOW(a)));
}

MOTH_OP(ctc_losses, CTC_LOSSES,
  .doc = "The connectionist temporal classification loss of each sequence.",
  .examples =
    "moth.randn(5, 2, 4), moth.tensor{{2LL, 3LL, 3LL}, {4LL, 2LL, 1LL}}, {6, 5}, {4, 3}\n"
    "moth.randn(5, 3, 3), moth.tensor{{2LL, 1LL, 1LL}, {2LL, 2LL, 2LL},"
    " {2LL, 2LL, 2LL}}, {6, 2, 4}, {4, 1, 1}, {blank = 3}",
  .dtypes = MOTH_FLOATS,
  .saves = "log_probs targets input_lengths target_lengths",
  .flags = MOTH_OP_HIDDEN, .autocast = MOTH_AUTOCAST_F32, .public_name = "ctc_loss")

/* -- their gradients -- */

static int along_samples(moth_ctx *ctx, const char *arg, const moth_tensor *x, const how *a) {
  const int64_t n = a->log_probs->l.shape[1];
  if (x->l.ndim == 1 && x->l.shape[0] == n) return MOTH_OK;
  return moth_fail(ctx, MOTH_E_SHAPE, arg, "%s is needed, got %s", moth_str_shape(ctx, 1, &n),
                   moth_str(x));
}

static int ctc_back_shape(const ctc_back_args *a, moth_layout *y) {
  const how h = HOW(a);
  int status = check(h);
  if (!status) status = along_samples(a->ctx, "grad", a->grad, &h);
  return status ? status : moth_shape_like(a->log_probs, y);
}

static int ctc_back_cpu(const ctc_back_args *a, moth_tensor **out) {
  opened o = {0};
  moth_ctc c;
  moth_tensor *dy = moth_real(a->grad), *dx = moth_real_out(out[0]);
  int status = dy && dx ? open(HOW(a), &o, &c) : a->ctx->error.code;
  if (!status) status = moth_ctc_back(a->ctx, o.x->l.dtype, &c, moth_at(dy), moth_at(dx));
  drop(&o);
  moth_tensor_release(dy);
  return moth_real_done(dx, out[0], status);
}

MOTH_OP_CONST(ctc_back, CTC_BACK,
  .doc = "The gradient of ctc_losses.",
  .examples =
    "moth.randn(2), moth.randn(5, 2, 4), moth.tensor{{2LL, 3LL, 3LL}, {4LL, 2LL, 1LL}}, {6, 5},"
    " {4, 3}\n"
    "moth.randn(3), moth.randn(5, 3, 3), moth.tensor{{2LL, 1LL, 1LL}, {2LL, 2LL, 2LL},"
    " {2LL, 2LL, 2LL}}, {6, 2, 4}, {4, 1, 1},"
    " {blank = 3}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN, .public_name = "ctc_loss")

const moth_op *const moth_ctc_ops[] = {&moth_op_ctc_losses, &moth_op_ctc_back, NULL};
