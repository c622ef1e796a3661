/* activation.c -- activation functions. Each function is one pass over memory, and so is its
** gradient `<op>_back`. The gradient of `<op>_back` uses the second derivative, written with ops.
*/
#include "activation.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/math/activation.h"
#include "gradient_formula.h"
#include "softmax.h"
#include "view.h"

static int map1(const moth_loops *loops, moth_tensor *y, const moth_tensor *x, double a, double b,
                double c) {
  uint64_t arg[3];
  const moth_tensor *operands[] = {y, x};
  moth_numbers(y->l.dtype, arg, a, b, c);
  return moth_map(y->ctx, loops, y->l.dtype, 2, operands, arg);
}

static int map2(const moth_loops *loops, moth_tensor *y, const moth_tensor *x,
                const moth_tensor *other, double a, double b, double c) {
  uint64_t arg[3];
  const moth_tensor *operands[] = {y, x, other};
  moth_numbers(y->l.dtype, arg, a, b, c);
  return moth_map(y->ctx, loops, y->l.dtype, 3, operands, arg);
}

/* -- gradients: x is the input, v the gradient of the result -- */

#define BACK(op, gradient_of_x, ...)                                                       \
  static int op##_shape(const op##_args *a, moth_layout *y) {                              \
    return moth_broadcast(a->ctx, "input", y, a->grad, a->input);                          \
  }                                                                                        \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                             \
    return map2(moth_activation.op, out[0], a->grad, a->input, a->a, a->b, a->c);          \
  }                                                                                        \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                 \
    moth_tensor *x = a->input, *v = g->dy;                                                 \
    if (moth_wants(g, a->grad))                                                            \
      moth_flow(g, a->grad,                                                                \
                GRAD(g, op, .grad = v, .input = x, .a = a->a, .b = a->b, .c = a->c));      \
    if (moth_wants(g, x)) moth_flow(g, x, gradient_of_x);                                  \
    return g->status;                                                                      \
  }                                                                                        \
  MOTH_OP(op, ACTIVATION_BACK, .doc = "The gradient of the activation function in its name.",   \
          .examples = "moth.randn(2, 3), moth.randn(2, 3), 0.3, 1.5, 0.7"                  \
                      "  -- domain: distinct",                                             \
          .dtypes = MOTH_FLOATS, \
          .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE, __VA_ARGS__)

/* STRAIGHT: piecewise linear functions. BENT: functions with a second derivative. */
#define STRAIGHT(op) BACK(op, ZERO_OF(x), .saves = "input")
#define BENT(op, bend) BACK(op, TIMES(TIMES(v, a->grad), bend), .saves = "input grad:input")

/* Returns x clamped to bounds beyond which the second derivative is 0 in every dtype. Without the
** bounds its factors could overflow. */
static moth_tensor *within(moth_grad *g, moth_tensor *x, double low, double high) {
  return GRAD(g, clamp, .input = x, .min = low, .max = high);
}

static moth_tensor *one_less(moth_grad *g, moth_tensor *x) { return PLUS(NEGATED(x), NUMBER(1)); }

/* s (1 - s), the derivative of s = sigmoid(x); 1 - s is sigmoid(-x), which keeps its precision. */
static moth_tensor *sigmoid_derivative(moth_grad *g, moth_tensor *x) {
  return TIMES(OF(sigmoid, x), OF(sigmoid, NEGATED(x)));
}

/* 1 - tanh(x)^2 = 4 sigmoid(2 x) sigmoid(-2 x), which is precise where tanh(x) is near 1, too. */
static moth_tensor *tanh_derivative(moth_grad *g, moth_tensor *x) {
  return TIMES(sigmoid_derivative(g, PLUS(x, x)), NUMBER(4));
}

/* a b c^2 exp(c x) where x < 0, else 0 */
static moth_tensor *elu_bend(moth_grad *g, const elu_back_args *a) {
  moth_tensor *below = GRAD(g, clamp, .input = a->input, .min = moth_absent_value(),
                            .max = 0);
  moth_tensor *e = OF(exp, TIMES(below, NUMBER(a->c)));
  return CHOOSE(ABOVE(a->input, NUMBER(0)), NUMBER(0), TIMES(e, NUMBER(a->a * a->b * a->c * a->c)));
}

/* (2 - x^2) exp(-x^2 / 2) / sqrt(2 pi) */
static moth_tensor *gelu_bend(moth_grad *g, moth_tensor *x) {
  x = within(g, x, -40, 40);
  moth_tensor *q = OF(square, x), *bell = OF(exp, TIMES(q, NUMBER(-0.5)));
  return TIMES(TIMES(bell, NUMBER(0.39894228040143267794)), PLUS(NEGATED(q), NUMBER(2)));
}

/* The function is x s(u), u = k (x + h x^3). Its second derivative is
** s (1 - s) (2 u' + x u'' + x u'^2 (1 - 2 s)). */
static moth_tensor *gelu_tanh_bend(moth_grad *g, moth_tensor *x) {
  const double k = 1.5957691216057307117, h = 0.044715;
  const double most = moth_is_half(x->l.dtype) ? 16 : 30; /* x u'^2 is in the range of float16 */
  x = within(g, x, -most, most);
  moth_tensor *q = OF(square, x);
  moth_tensor *u = TIMES(TIMES(x, NUMBER(k)), PLUS(TIMES(q, NUMBER(h)), NUMBER(1)));
  moth_tensor *du = PLUS(TIMES(q, NUMBER(3 * k * h)), NUMBER(k));
  moth_tensor *ddu = TIMES(x, NUMBER(6 * k * h));
  moth_tensor *s = OF(sigmoid, u), *other = OF(sigmoid, NEGATED(u));
  moth_tensor *odd = PLUS(TIMES(s, NUMBER(-2)), NUMBER(1));
  moth_tensor *sum = PLUS(PLUS(du, du), TIMES(x, PLUS(ddu, TIMES(OF(square, du), odd))));
  return TIMES(TIMES(s, other), sum);
}

/* s (1 - s) (2 + x (1 - 2 s)) */
static moth_tensor *silu_bend(moth_grad *g, moth_tensor *x) {
  x = within(g, x, -1000, 1000);
  moth_tensor *odd = PLUS(TIMES(OF(sigmoid, x), NUMBER(-2)), NUMBER(1));
  return TIMES(sigmoid_derivative(g, x), PLUS(TIMES(x, odd), NUMBER(2)));
}

/* t = tanh(softplus(x)), t' = (1 - t^2) s, t'' = t' (1 - s - 2 t s). Returns 2 t' + x t''. */
static moth_tensor *mish_bend(moth_grad *g, moth_tensor *x) {
  x = within(g, x, -1000, 1000);
  moth_tensor *p = GRAD(g, softplus, .input = x, .beta = 1, .threshold = 20);
  moth_tensor *s = OF(sigmoid, x), *t = OF(tanh, p), *dt = TIMES(tanh_derivative(g, p), s);
  moth_tensor *turn = MINUS(one_less(g, s), TIMES(TIMES(t, s), NUMBER(2)));
  return TIMES(dt, PLUS(TIMES(x, turn), NUMBER(2)));
}

static moth_tensor *softplus_bend(moth_grad *g, const softplus_back_args *a) {
  moth_tensor *u = TIMES(a->input, NUMBER(a->a));
  moth_tensor *bend = TIMES(sigmoid_derivative(g, u), NUMBER(a->a));
  return CHOOSE(ABOVE(u, NUMBER(a->b)), NUMBER(0), bend);
}

/* -2 sign(x) / (1 + |x|)^3 */
static moth_tensor *softsign_bend(moth_grad *g, moth_tensor *x) {
  moth_tensor *n = PLUS(OF(abs, x), NUMBER(1));
  return OVER(OVER(OVER(TIMES(OF(sign, x), NUMBER(-2)), n), n), n);
}

/* 2 t (1 - t^2) */
static moth_tensor *tanhshrink_bend(moth_grad *g, moth_tensor *x) {
  return TIMES(TIMES(OF(tanh, x), NUMBER(2)), tanh_derivative(g, x));
}

static moth_tensor *hardswish_bend(moth_grad *g, moth_tensor *x) {
  moth_tensor *inside = BOTH(ABOVE(x, NUMBER(-3)), BELOW(x, NUMBER(3)));
  return CHOOSE(inside, NUMBER(1.0 / 3), ZERO_OF(x));
}

STRAIGHT(leaky_relu_back)
STRAIGHT(hardtanh_back)
STRAIGHT(hardsigmoid_back)
STRAIGHT(shrink_back)
STRAIGHT(threshold_back)
BENT(elu_back, elu_bend(g, a))
BENT(gelu_back, gelu_bend(g, x))
BACK(gelu_tanh_back, TIMES(TIMES(v, a->grad), gelu_tanh_bend(g, x)), .saves = "input grad:input",
     .public_name = "gelu")
BENT(silu_back, silu_bend(g, x))
BENT(mish_back, mish_bend(g, x))
BENT(softplus_back, softplus_bend(g, a))
BENT(logsigmoid_back, NEGATED(sigmoid_derivative(g, x)))
BENT(softsign_back, softsign_bend(g, x))
BENT(tanhshrink_back, tanhshrink_bend(g, x))
BENT(hardswish_back, hardswish_bend(g, x))

/* -- the functions; A, B, C are the constants of the loops of `curve` -- */

#define FUNCTION(op, LIST, curve, back, A, B, C, ...)                                      \
  static int op##_shape(const op##_args *a, moth_layout *y) {                              \
    return moth_shape_like(a->input, y);                                                   \
  }                                                                                        \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                             \
    return map1(moth_activation.curve, out[0], a->input, A, B, C);                         \
  }                                                                                        \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                 \
    return moth_flow(g, a->input,                                                          \
                     GRAD_OVER(g, back, .grad = g->dy, .input = a->input, .a = A, .b = B,  \
                               .c = C));                                                   \
  }                                                                                        \
  MOTH_OP(op, LIST, .saves = "input", __VA_ARGS__)

#define DOC(text) .doc = text
#define ANYWHERE .examples = "moth.randn(2, 3)"
#define DISTINCT .examples = "moth.randn(2, 3)  -- domain: distinct"
#define REAL .dtypes = MOTH_FLOATS, .flags = MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE
#define ALL \
  .dtypes = MOTH_ANY | MOTH_TO_FLOAT, \
  .flags = MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE
/* Functions that have the argument `inplace` in PyTorch. */
#define IN_PLACE \
  MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_INPLACE | MOTH_OP_TAKES_INPLACE | MOTH_OP_PORTABLE
#define REAL_IN_PLACE .dtypes = MOTH_FLOATS, .flags = IN_PLACE
#define NUMERIC_IN_PLACE .dtypes = MOTH_NUMERIC, .flags = IN_PLACE

FUNCTION(leaky_relu, LEAKY_RELU, leaky_relu, leaky_relu_back, a->negative_slope, 0, 0,
         REAL_IN_PLACE, DOC("x where x >= 0, negative_slope * x elsewhere."),
         .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                     "moth.randn(2, 3), {negative_slope = 0.2}  -- domain: distinct")
FUNCTION(elu, ELU, elu, elu_back, a->alpha, 1, 1, REAL_IN_PLACE,
         DOC("x where x > 0, alpha (exp(x) - 1) elsewhere."),
         .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {alpha = 0.5}  -- domain: distinct")
FUNCTION(selu, ACTIVATION, elu, elu_back, 1.6732632423543772848, 1.0507009873554804934, 1,
         REAL_IN_PLACE, DISTINCT,
         DOC("scale * elu(x) with alpha 1.6733 and scale 1.0507, which keep mean 0 and variance 1 "
             "from layer to layer (Klambauer et al., 2017)."))
FUNCTION(silu, ACTIVATION, silu, silu_back, 0, 0, 0, REAL_IN_PLACE, ANYWHERE,
         DOC("x * sigmoid(x), also called swish."))
FUNCTION(mish, ACTIVATION, mish, mish_back, 0, 0, 0, REAL_IN_PLACE, ANYWHERE,
         DOC("x * tanh(softplus(x)) (Misra, 2019)."))
FUNCTION(softplus, SOFTPLUS, softplus, softplus_back, a->beta, a->threshold, 0, REAL,
         DOC("log(1 + exp(beta x)) / beta, a smooth form of relu."),
         .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), 2, 1.5  -- domain: distinct",
         .autocast = MOTH_AUTOCAST_F32)
FUNCTION(logsigmoid, ACTIVATION, logsigmoid, logsigmoid_back, 0, 0, 0, REAL, ANYWHERE,
         DOC("log(sigmoid(x)), without overflow."))
FUNCTION(softsign, ACTIVATION, softsign, softsign_back, 0, 0, 0, ALL, DISTINCT,
         DOC("x / (1 + |x|)."))
FUNCTION(tanhshrink, ACTIVATION, tanhshrink, tanhshrink_back, 0, 0, 0, ALL, ANYWHERE,
         DOC("x - tanh(x)."))
FUNCTION(relu6, ACTIVATION, hardtanh, hardtanh_back, 0, 6, 0, NUMERIC_IN_PLACE, DISTINCT,
         DOC("min(max(x, 0), 6)."))
FUNCTION(hardsigmoid, ACTIVATION, hardsigmoid, hardsigmoid_back, 0, 0, 0, REAL_IN_PLACE, DISTINCT,
         DOC("min(max(x + 3, 0), 6) / 6, a piecewise linear form of sigmoid."))
FUNCTION(hardswish, ACTIVATION, hardswish, hardswish_back, 0, 0, 0, REAL_IN_PLACE, DISTINCT,
         DOC("x * hardsigmoid(x)."))
FUNCTION(hardshrink, SHRINK, hardshrink, shrink_back, a->lambd, 0, 0, REAL,
         DOC("x where |x| > lambd, 0 elsewhere."),
         .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                     "moth.randn(2, 3), 0.25  -- domain: distinct")
FUNCTION(threshold, THRESHOLD, threshold, threshold_back, a->threshold, a->value, 0,
         NUMERIC_IN_PLACE, DOC("x where x > threshold, `value` elsewhere."),
         .examples = "moth.randn(2, 3), 0.1, 2  -- domain: distinct")

static int hardtanh_shape(const hardtanh_args *a, moth_layout *y) {
  if (!(a->min_val <= a->max_val))
    return moth_fail(a->ctx, MOTH_E_ARG, "min_val", "%g is greater than max_val, %g", a->min_val,
                     a->max_val);
  return moth_shape_like(a->input, y);
}
static int hardtanh_cpu(const hardtanh_args *a, moth_tensor **out) {
  return map1(moth_activation.hardtanh, out[0], a->input, a->min_val, a->max_val, 0);
}
static int hardtanh_grad(const hardtanh_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, hardtanh_back, .grad = g->dy, .input = a->input,
                                     .a = a->min_val, .b = a->max_val));
}
MOTH_OP(hardtanh, HARDTANH, .saves = "input", NUMERIC_IN_PLACE,
        DOC("min(max(x, min), max), element by element."),
        .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                    "moth.randn(2, 3), -0.5, 0.25  -- domain: distinct")

static int softshrink_shape(const softshrink_args *a, moth_layout *y) {
  if (!(a->lambd >= 0))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "lambd", "a number from 0 on is needed, got %g",
                     a->lambd);
  return moth_shape_like(a->input, y);
}
static int softshrink_cpu(const softshrink_args *a, moth_tensor **out) {
  return map1(moth_activation.softshrink, out[0], a->input, a->lambd, 0, 0);
}
static int softshrink_grad(const softshrink_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD_OVER(g, shrink_back, .grad = g->dy, .input = a->input,
                                          .a = a->lambd, .b = 0, .c = 0));
}
MOTH_OP(softshrink, SHRINK, .saves = "input", REAL, DOC("sign(x) max(|x| - lambd, 0)."),
        .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                    "moth.randn(2, 3), 0.25  -- domain: distinct")

static int celu_shape(const celu_args *a, moth_layout *y) {
  if (a->alpha == 0)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "alpha", "cannot be 0: celu divides by alpha");
  return moth_shape_like(a->input, y);
}
static int celu_cpu(const celu_args *a, moth_tensor **out) {
  return map1(moth_activation.elu, out[0], a->input, a->alpha, 1, 1 / a->alpha);
}
static int celu_grad(const celu_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, elu_back, .grad = g->dy, .input = a->input, .a = a->alpha,
                                     .b = 1, .c = 1 / a->alpha));
}
MOTH_OP(celu, ELU, .saves = "input", REAL_IN_PLACE,
        DOC("max(x, 0) + min(alpha (exp(x / alpha) - 1), 0)."),
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {alpha = 0.5}")

static int gelu_shape(const gelu_args *a, moth_layout *y) { return moth_shape_like(a->input, y); }
static int gelu_cpu(const gelu_args *a, moth_tensor **out) {
  return map1(a->approximate ? moth_activation.gelu_tanh : moth_activation.gelu, out[0], a->input,
              0, 0, 0);
}
static int gelu_grad(const gelu_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   a->approximate ? GRAD_OVER(g, gelu_tanh_back, .grad = g->dy, .input = a->input)
                                  : GRAD_OVER(g, gelu_back, .grad = g->dy, .input = a->input));
}
MOTH_OP(gelu, GELU, .saves = "input", REAL,
        DOC("x * Phi(x), where Phi is the standard normal distribution function (Hendrycks and "
            "Gimpel, 2016)."),
        .examples = "moth.randn(2, 3)\nmoth.randn(2, 3), {approximate = \"tanh\"}")

/* -- prelu: the weight has one element per channel, along dimension 1 -- */

static int prelu_spread_shape(const prelu_spread_args *a, moth_layout *y) {
  return moth_broadcast(a->ctx, "weight", y, a->input, a->weight);
}
static int prelu_spread_cpu(const prelu_spread_args *a, moth_tensor **out) {
  return map2(moth_activation.prelu, out[0], a->input, a->weight, 0, 0, 0);
}
static int prelu_spread_grad(const prelu_spread_args *a, moth_grad *g) {
  moth_tensor *up = ABOVE(a->input, NUMBER(0));
  if (moth_wants(g, a->input)) moth_flow(g, a->input, CHOOSE(up, g->dy, TIMES(g->dy, a->weight)));
  if (moth_wants(g, a->weight))
    moth_flow(g, a->weight, CHOOSE(up, NUMBER(0), TIMES(g->dy, a->input)));
  return g->status;
}
MOTH_OP(prelu_spread, PRELU, DOC("prelu with a weight that is broadcast with the input."),
        .examples = "moth.randn(2, 3), moth.rand(3)  -- domain: distinct", .dtypes = MOTH_FLOATS,
        .saves = "input weight:input",
        .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE, .public_name = "prelu")

static int prelu_compose(const prelu_args *a, moth_tensor **out) {
  const moth_layout *x = &a->input->l, *w = &a->weight->l;
  int64_t channels = x->ndim > 1 ? x->shape[1] : 1, size[MOTH_MAX_DIMS];
  if (w->ndim > 1 || (w->numel != 1 && w->numel != channels))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "weight",
                     "1 number or %lld, one per channel, is needed, " "for %s, got %s",
                     (long long)channels, moth_str(a->input), moth_str(a->weight));
  for (int32_t i = 0; i < x->ndim; i++) size[i] = i == 1 ? w->numel : 1;
  moth_tensor *lined = NULL;
  int status = MOTH_CALL(a->ctx, &lined, reshape, .input = a->weight, .shape = {size, x->ndim});
  if (!status)
    status = MOTH_CALL(a->ctx, out, prelu_spread, .input = a->input, .weight = lined);
  moth_tensor_release(lined);
  return status;
}
MOTH_OP_COMPOSES(prelu, PRELU, DOC("max(x, 0) + weight * min(x, 0), with a learned weight."),
                 .examples = "moth.randn(2, 3, 2), moth.rand(3)  -- domain: distinct\n"
                             "moth.randn(4), moth.rand(1)  -- domain: distinct",
                 .dtypes = MOTH_FLOATS, .flags = MOTH_OP_METHOD, .autocast = MOTH_AUTOCAST_HALF)

/* -- glu, softmin -- */

static int glu_compose(const glu_args *a, moth_tensor **out) {
  moth_ctx *ctx = a->ctx;
  moth_tensor *first = NULL, *second = NULL, *gate = NULL;
  int32_t dim;
  int status = moth_dim(ctx, "dim", a->dim, a->input->l.ndim, &dim);
  if (status) return status;
  if (a->input->l.ndim == 0)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "a scalar cannot be split into two halves");
  int64_t half = a->input->l.shape[dim] / 2;
  if (a->input->l.shape[dim] != 2 * half)
    return moth_fail(ctx, MOTH_E_SHAPE, "input", "%s has an odd size along dimension " MOTH_POS,
                     moth_str(a->input), (long long)dim);
  status = MOTH_CALL(ctx, &first, narrow, .input = a->input, .dim = dim, .length = half);
  if (!status)
    status = MOTH_CALL(ctx, &second, narrow, .input = a->input, .dim = dim, .start = half,
                       .length = half);
  if (!status) status = MOTH_CALL(ctx, &gate, sigmoid, .input = second);
  if (!status) status = MOTH_CALL(ctx, out, mul, .input = first, .other = gate);
  moth_tensor_release(first);
  moth_tensor_release(second);
  moth_tensor_release(gate);
  return status;
}
MOTH_OP_COMPOSES(glu, GLU, DOC("a * sigmoid(b), where a and b are the two halves of the input "
                               "along a dimension."),
                 .examples = "moth.randn(2, 4)\nmoth.randn(4, 3), {dim = 1}",
                 .dtypes = MOTH_FLOATS, .flags = MOTH_OP_METHOD)

static int softmin_compose(const softmin_args *a, moth_tensor **out) {
  moth_tensor *x = NULL, *less = NULL;
  int status = MOTH_OK;
  if (a->dtype >= 0)
    status = MOTH_CALL(a->ctx, &x, cast, .input = a->input, .dtype = a->dtype);
  if (!status) status = MOTH_CALL(a->ctx, &less, neg, .input = x ? x : a->input);
  if (!status) status = MOTH_CALL(a->ctx, out, softmax, .input = less, .dim = a->dim, .dtype = -1);
  moth_tensor_release(less);
  moth_tensor_release(x);
  return status;
}
MOTH_OP_COMPOSES(softmin, SOFTMIN, DOC("softmax(-x): exp(-x) / sum(exp(-x)) along a dimension."),
                 .examples = "moth.randn(2, 3), 2\n"
                             "moth.randn(4, 3), {dim = -1, dtype = moth.float64}",
                 .dtypes = MOTH_NUMERIC, .flags = MOTH_OP_METHOD)

#define LISTED(kind, op, ...) &moth_op_##op,
const moth_op *const moth_activation_ops[] = {
  &moth_op_leaky_relu, &moth_op_elu, &moth_op_selu, &moth_op_celu, &moth_op_gelu, &moth_op_silu,
  &moth_op_mish, &moth_op_softplus, &moth_op_logsigmoid, &moth_op_softsign, &moth_op_tanhshrink,
  &moth_op_relu6, &moth_op_hardtanh, &moth_op_hardsigmoid, &moth_op_hardswish,
  &moth_op_softshrink, &moth_op_hardshrink, &moth_op_threshold, &moth_op_prelu,
  &moth_op_prelu_spread, &moth_op_glu, &moth_op_softmin, ACTIVATION_BACKS(LISTED) NULL,
};
