/* unary.c -- elementwise functions of one tensor. Each function is one row here. Shape rule and
** loop are common to all; a row has the gradient as a formula.
*/
#include "unary.h"
#include "tensor/tensor.h"

#include <float.h>
#include <math.h>

#include "kernel/math/special.h"
#include "kernel/math/unary.h"
#include "kernel/scalar.h"
#include "binary.h"
#include "gradient_formula.h"
#include "special.h"

#define UNARY_FLAGS \
  (MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE)
#define IN_PLACE_FLAGS \
  (MOTH_OP_INPLACE | MOTH_OP_TAKES_INPLACE | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE)

static int map1(const moth_loops *loops, moth_tensor *y, const moth_tensor *x, const void *arg) {
  const moth_tensor *operands[] = {y, x};
  return moth_map(y->ctx, loops, x->l.dtype, 2, operands, arg);
}

#define BACK(op) GRAD_OVER(g, op##_back, .grad = dy, .output = y)
#define TIMES_DY(p) GRAD_OVER(g, mul, .input = dy, .other = p)
#define DY_OVER(p) GRAD_OVER(g, div, .input = dy, .other = p, .rounding_mode = MOTH_ROUND_NONE)
#define ZERO ZERO_OF(x)

/* The code common to all functions and gradients: x is the input, y the result, dy its gradient. */
#define CPU(op)                                                  \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {   \
    return map1(moth_unary.op, out[0], a->input, NULL);          \
  }
#define FUNCTION_FACE(op, gradient, ...)                                                   \
  static int op##_shape(const op##_args *a, moth_layout *y) {                              \
    return moth_shape_like(a->input, y);                                                   \
  }                                                                                        \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                 \
    moth_tensor *x = a->input, *y = g->out[0], *dy = g->dy;                                \
    (void)y, (void)dy;                                                                     \
    return moth_flow(g, x, gradient);                                                      \
  }                                                                                        \
  MOTH_OP(op, UNARY, __VA_ARGS__)
#define FUNCTION(op, ...) CPU(op) FUNCTION_FACE(op, __VA_ARGS__)

#define ANYWHERE .examples = "moth.randn(2, 3)"
#define DISTINCT .examples = "moth.randn(2, 3)  -- domain: distinct" /* avoids kinks and steps */
#define UNIT .examples = "moth.rand(2, 3)  -- domain: unit"
#define POSITIVE .examples = "moth.rand(2, 3)  -- domain: positive"
#define REAL .dtypes = MOTH_ANY | MOTH_TO_FLOAT, .flags = UNARY_FLAGS
#define REAL_ONLY .dtypes = MOTH_FLOATS, .flags = UNARY_FLAGS
#define NUMERIC .dtypes = MOTH_NUMERIC, .flags = UNARY_FLAGS
#define NUMERIC_NO_BOOL .dtypes = MOTH_NUMERIC | MOTH_NO_BOOL, .flags = UNARY_FLAGS
#define NUMERIC_IN_PLACE .dtypes = MOTH_NUMERIC, .flags = IN_PLACE_FLAGS
#define SAVES_X .saves = "input"
#define SAVES_Y .saves = "y"
#define DOC(text) .doc = text

/* -- absolute value and sign -- */

/* Half types change their sign bit if there is no observer: 4 times as fast as in f32. */
static int map_sign(const moth_loops *loops, const moth_loops *bits, moth_tensor *y,
                    const moth_tensor *x) {
  const bool half = x->l.dtype == MOTH_F16 || x->l.dtype == MOTH_BF16;
  if (!half || y->l.dtype != x->l.dtype || y->l.device || y->ctx->observer)
    return map1(loops, y, x, NULL);
  moth_tensor to = *y, from = *x;
  to.l.dtype = from.l.dtype = MOTH_I16;
  return map1(bits, &to, &from, NULL);
}
static int abs_cpu(const abs_args *a, moth_tensor **out) {
  return map_sign(moth_unary.abs, moth_abs_half, out[0], a->input);
}
static int neg_cpu(const neg_args *a, moth_tensor **out) {
  return map_sign(moth_unary.neg, moth_neg_half, out[0], a->input);
}

FUNCTION_FACE(abs, TIMES_DY(OF(sign, x)), NUMERIC, DISTINCT, SAVES_X,
         DOC("The absolute value of each element."))
FUNCTION_FACE(neg, GRAD_OVER(g, neg, .input = dy), NUMERIC_NO_BOOL, ANYWHERE,
         DOC("-x."))
FUNCTION(sign, ZERO, NUMERIC, DISTINCT,
         DOC("1 for positive elements, -1 for negative ones, 0 for 0, NaN for NaN."))
FUNCTION(square, TIMES_DY(TIMES(x, NUMBER(2))), NUMERIC, ANYWHERE, SAVES_X,
         DOC("x * x."), .autocast = MOTH_AUTOCAST_F32)

FUNCTION(sgn, ZERO, NUMERIC, DISTINCT, DOC("The sign of each element; the same as sign."))
FUNCTION(angle, ZERO, DISTINCT, .dtypes = MOTH_ANY | MOTH_TO_FLOAT,
         .flags = UNARY_FLAGS & ~(uint32_t)MOTH_OP_INPLACE,
         DOC("The angle of each element as a complex number: 0, pi for negative elements, NaN for "
             "NaN. For complex pairs use moth.fft.angle."))
FUNCTION(positive, dy, NUMERIC, ANYWHERE, DOC("The input unchanged."))

/* -- exponentials, logarithms, roots -- */

#define LN2 0.69314718055994530942
#define LN10 2.3025850929940456840

FUNCTION(exp, TIMES_DY(y), REAL, ANYWHERE, SAVES_Y, DOC("exp(x), e raised to x."),
         .autocast = MOTH_AUTOCAST_F32)
FUNCTION(expm1, TIMES_DY(PLUS(y, NUMBER(1))), REAL, ANYWHERE, SAVES_Y,
         DOC("exp(x) - 1, accurate near 0."), .autocast = MOTH_AUTOCAST_F32)
FUNCTION(log, DY_OVER(x), REAL, POSITIVE, SAVES_X, DOC("The natural logarithm of each element."),
         .autocast = MOTH_AUTOCAST_F32)
FUNCTION(log1p, DY_OVER(PLUS(x, NUMBER(1))), REAL, POSITIVE, SAVES_X,
         DOC("log(1 + x), accurate near 0."), .autocast = MOTH_AUTOCAST_F32)
FUNCTION(exp2, TIMES_DY(TIMES(y, NUMBER(LN2))), REAL, ANYWHERE, SAVES_Y,
         DOC("2^x."))
FUNCTION(log2, DY_OVER(TIMES(x, NUMBER(LN2))), REAL, POSITIVE, SAVES_X,
         DOC("The logarithm to base 2 of each element."), .autocast = MOTH_AUTOCAST_F32)
FUNCTION(log10, DY_OVER(TIMES(x, NUMBER(LN10))), REAL, POSITIVE, SAVES_X,
         DOC("The logarithm to base 10 of each element."), .autocast = MOTH_AUTOCAST_F32)
FUNCTION(sqrt, DY_OVER(TIMES(y, NUMBER(2))), REAL, POSITIVE, SAVES_Y, DOC("The square root of each "
                                                                          "element."))
FUNCTION(rsqrt, TIMES_DY(TIMES(TIMES(y, OF(square, y)), NUMBER(-0.5))), REAL, POSITIVE, SAVES_Y,
         DOC("1 / sqrt(x)."), .autocast = MOTH_AUTOCAST_F32)
FUNCTION(reciprocal, NEGATED(TIMES_DY(OF(square, y))), REAL, POSITIVE, SAVES_Y, DOC("1 / x."),
         .autocast = MOTH_AUTOCAST_F32)

/* -- trigonometric and hyperbolic functions -- */

FUNCTION(sin, TIMES_DY(OF(cos, x)), REAL, ANYWHERE, SAVES_X,
         DOC("The sine of each element, in radians."))
FUNCTION(cos, NEGATED(TIMES_DY(OF(sin, x))), REAL, ANYWHERE, SAVES_X,
         DOC("The cosine of each element, in radians."))
FUNCTION(tan, TIMES_DY(PLUS(OF(square, y), NUMBER(1))), REAL, ANYWHERE, SAVES_Y,
         DOC("The tangent of each element, in radians."), .autocast = MOTH_AUTOCAST_F32)
/* 1 - x^2, precise near 1 and -1 */
static moth_tensor *one_less_square(moth_grad *g, moth_tensor *x) {
  return TIMES(PLUS(NEGATED(x), NUMBER(1)), PLUS(x, NUMBER(1)));
}

/* sqrt(1 + x^2), without overflow of x^2 */
static moth_tensor *length_with_one(moth_grad *g, moth_tensor *x) {
  return GRAD(g, hypot, .input = x, .other = NUMBER(1));
}

FUNCTION(asin, TIMES_DY(OF(rsqrt, one_less_square(g, x))), REAL, UNIT, SAVES_X,
         DOC("The inverse sine in radians, from -pi/2 to pi/2."), .autocast = MOTH_AUTOCAST_F32)
FUNCTION(acos, NEGATED(TIMES_DY(OF(rsqrt, one_less_square(g, x)))), REAL, UNIT,
         SAVES_X, DOC("The inverse cosine in radians, from 0 to pi."),
         .autocast = MOTH_AUTOCAST_F32)
/* dy / (1 + x^2). If x^2 overflows, the gradient rounds to 0 in f32, but not in f16. The second
** derivative would be infinity times 0. */
static moth_tensor *over_one_and_square(moth_grad *g, moth_tensor *x, moth_tensor *dy) {
  if (!g->ctx->grad_mode && x->l.dtype != MOTH_F16)
    return DY_OVER(PLUS(OF(square, x), NUMBER(1)));
  moth_tensor *length = length_with_one(g, x);
  return OVER(DY_OVER(length), length);
}

FUNCTION(atan, over_one_and_square(g, x, dy), REAL, ANYWHERE, SAVES_X,
         DOC("The inverse tangent in radians, from -pi/2 to pi/2."))
FUNCTION(sinh, TIMES_DY(OF(cosh, x)), REAL, ANYWHERE, SAVES_X, DOC("The hyperbolic sine of each "
                                                                   "element."),
         .autocast = MOTH_AUTOCAST_F32)
FUNCTION(cosh, TIMES_DY(OF(sinh, x)), REAL, ANYWHERE, SAVES_X, DOC("The hyperbolic cosine of each "
                                                                   "element."),
         .autocast = MOTH_AUTOCAST_F32)
FUNCTION(asinh, DY_OVER(length_with_one(g, x)), REAL, ANYWHERE, SAVES_X,
         DOC("The inverse of sinh."))
FUNCTION(acosh, TIMES(TIMES_DY(OF(rsqrt, PLUS(x, NUMBER(-1)))), OF(rsqrt, PLUS(x, NUMBER(1)))),
         REAL,
         .examples = "moth.rand(2, 3) + 1  -- domain: large", SAVES_X,
         DOC("The inverse of cosh, not negative."))
FUNCTION(atanh, DY_OVER(one_less_square(g, x)), REAL, UNIT, SAVES_X,
         DOC("The inverse of tanh."))
FUNCTION(deg2rad, TIMES_DY(NUMBER(0.017453292519943295769)), REAL, ANYWHERE,
         DOC("Converts degrees to radians: x pi / 180."))
FUNCTION(rad2deg, TIMES_DY(NUMBER(57.295779513082320877)), REAL, ANYWHERE,
         DOC("Converts radians to degrees: x 180 / pi."))

FUNCTION(sinc, TIMES_DY(GRAD(g, sinc_slope, .input = x, .n = 1, .turns = true)), REAL, ANYWHERE,
         SAVES_X,
         DOC("sin(pi x) / (pi x); 1 at 0."))
FUNCTION(tanh, BACK(tanh), REAL, ANYWHERE, SAVES_Y, DOC("The hyperbolic tangent of each element."))
FUNCTION(sigmoid, BACK(sigmoid), REAL, ANYWHERE, SAVES_Y, DOC("1 / (1 + exp(-x))."))
FUNCTION(relu, BACK(relu), NUMERIC_IN_PLACE, DISTINCT, SAVES_Y, DOC("max(x, 0)."))
/* exp(-x^2). For large x its derivative is 0, although x^2 is infinite. */
static moth_tensor *bell(moth_grad *g, moth_tensor *x) {
  if (g->ctx->grad_mode) x = GRAD(g, clamp, .input = x, .min = -40, .max = 40);
  return OF(exp, NEGATED(OF(square, x)));
}

/* 2 / sqrt(pi) exp(-x^2) */
FUNCTION(erf, TIMES_DY(TIMES(bell(g, x), NUMBER(1.1283791670955125739))),
         REAL, ANYWHERE, SAVES_X, DOC("The error function: 2 / sqrt(pi) times the integral of "
                                      "exp(-t^2) from 0 to x."))

FUNCTION(erfc, TIMES_DY(TIMES(bell(g, x), NUMBER(-1.1283791670955125739))),
         REAL, ANYWHERE, SAVES_X, DOC("1 - erf(x), accurate where erf is near 1."))

/* -- rounding -- */

FUNCTION(floor, ZERO, NUMERIC, DISTINCT, DOC("The largest integer that is not greater than x."))
FUNCTION(ceil, ZERO, NUMERIC, DISTINCT, DOC("The smallest integer that is not less than x."))
FUNCTION(trunc, ZERO, NUMERIC, DISTINCT, DOC("x rounded towards 0 to an integer."))

FUNCTION(frac, dy, REAL_ONLY, DISTINCT, DOC("The fractional part: x - trunc(x)."))

static int round_shape(const round_args *a, moth_layout *y) {
  if (a->decimals != 0 && moth_is_int(y->dtype))
    return moth_fail(a->ctx, MOTH_E_DTYPE, "decimals", "other than 0 needs a float dtype, got %s",
                     moth_str(a->input));
  return moth_shape_like(a->input, y);
}

static int round_cpu(const round_args *a, moth_tensor **out) {
  uint64_t arg[3] = {0};
  if (a->decimals == 0) return map1(moth_unary.round, out[0], a->input, NULL);
  moth_numbers(out[0]->l.dtype, arg, pow(10, fabs((double)a->decimals)), 0, 0);
  return map1(a->decimals > 0 ? moth_unary.round_fine : moth_unary.round_coarse, out[0], a->input,
              arg);
}

static int round_grad(const round_args *a, moth_grad *g) {
  moth_tensor *x = a->input;
  return moth_flow(g, x, ZERO);
}

MOTH_OP(round, ROUND, NUMERIC,
        DOC("x rounded to the nearest integer, or multiple of 10^-decimals; halves are rounded to "
            "even."),
        .examples = "moth.randn(2, 3)  -- domain: distinct\n"
                    "moth.randn(2, 3), {decimals = 1}  -- domain: positive\n"
                    "moth.randn(2, 3), {decimals = -1}  -- domain: distinct")

/* -- predicates; their results are masks -- */

#define QUESTION(op, more, text)                                      \
  static int op##_shape(const op##_args *a, moth_layout *y) {         \
    y->dtype = MOTH_BOOL;                                             \
    return moth_shape_like(a->input, y);                              \
  }                                                                   \
  CPU(op)                                                             \
  MOTH_OP_CONST(op, UNARY, .doc = text, ANYWHERE, .dtypes = MOTH_ANY, \
                .flags = more | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE)

QUESTION(logical_not, MOTH_OP_INPLACE, "True where an element is 0 or false.")
QUESTION(isnan, 0, "True where an element is not a number.")
QUESTION(isinf, 0, "True where an element is infinite.")
QUESTION(isposinf, 0, "True where an element is infinity.")
QUESTION(isneginf, 0, "True where an element is -infinity.")
QUESTION(isfinite, 0, "True where an element is neither infinite nor NaN.")

QUESTION(signbit, 0, "True where the sign bit is set, also for -0.")

static int bitwise_not_shape(const bitwise_not_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}
CPU(bitwise_not)
MOTH_OP_CONST(bitwise_not, UNARY, DOC("Bitwise NOT of integers; logical NOT of bool."),
              .examples = "moth.tensor{{1LL, 0LL}, {7LL, -2LL}}\nmoth.tensor{true, false}",
              .dtypes = MOTH_INTS | MOTH_BIT(MOTH_BOOL), .flags = UNARY_FLAGS)

/* -- clamp -- */

static bool is_integer(double v) { return v - v == 0 && v == rint(v); }

static int check_bound(moth_ctx *ctx, const char *arg, double bound, int dtype) {
  uint64_t element;
  if (moth_absent(bound)) return MOTH_OK;
  return moth_scalar_to(ctx, arg, (moth_scalar){.type = 0, .as.number = bound}, dtype, &element);
}

static int clamp_shape(const clamp_args *a, moth_layout *y) {
  bool low = !moth_absent(a->min), high = !moth_absent(a->max);
  if (!low && !high)
    return moth_fail(a->ctx, MOTH_E_ARG, "min", "at least one of min and max is needed");
  if (moth_is_int(y->dtype) && ((low && !is_integer(a->min)) || (high && !is_integer(a->max))))
    y->dtype = (uint8_t)a->ctx->default_dtype; /* as with a number that is not an integer */
  int status = check_bound(a->ctx, "min", a->min, y->dtype);
  if (!status) status = check_bound(a->ctx, "max", a->max, y->dtype);
  return status ? status : moth_shape_like(a->input, y);
}

/* Writes the two bounds as elements of the dtype. An absent bound becomes the limit of the
** dtype. */
static void write_bounds(const clamp_args *a, int dtype, char *bounds) {
  double low = moth_absent(a->min) ? -INFINITY : a->min;
  double high = moth_absent(a->max) ? INFINITY : a->max;
  int64_t size = moth_dtype_size[dtype];
  moth_convert(1, MOTH_F64, (const char *)&low, 8, dtype, bounds, size);
  moth_convert(1, MOTH_F64, (const char *)&high, 8, dtype, bounds + size, size);
}

static int clamp_cpu(const clamp_args *a, moth_tensor **out) {
  uint64_t bounds[3] = {0};
  int dtype = out[0]->l.dtype;
  bool low_nan = !moth_absent(a->min) && a->min != a->min;
  bool high_nan = !moth_absent(a->max) && a->max != a->max;
  if (low_nan || high_nan) { /* if a bound is NaN, so is every result */
    moth_operand value = {.element = 0};
    double v = NAN;
    moth_convert(1, MOTH_F64, (const char *)&v, 8, dtype, (char *)&value.element, 8);
    return moth_copy_into(out[0], moth_operand_of(&value, a->ctx, dtype));
  }
  write_bounds(a, moth_compute_dtype(dtype), (char *)bounds);
  if (a->input->l.dtype == dtype) return map1(moth_unary.clamp, out[0], a->input, bounds);
  moth_tensor *x = moth_cast(a->input, dtype);
  int status = x ? map1(moth_unary.clamp, out[0], x, bounds) : a->ctx->error.code;
  moth_tensor_release(x);
  return status;
}

/* dy where the input is between the bounds; 0 at a bound, as in PyTorch since 2.15 */
static int clamp_grad(const clamp_args *a, moth_grad *g) {
  moth_tensor *inside = NULL, *below = NULL;
  if (!moth_absent(a->min)) inside = GRAD(g, gt, .input = a->input, .other = NUMBER(a->min));
  if (!moth_absent(a->max)) below = GRAD(g, lt, .input = a->input, .other = NUMBER(a->max));
  if (!inside) inside = below;
  else if (below) inside = GRAD(g, logical_and, .input = inside, .other = below);
  return moth_flow(g, a->input,
                   GRAD(g, where, .condition = inside, .input = g->dy, .other = NUMBER(0)));
}

MOTH_OP(clamp, CLAMP, .doc = "min(max(x, min), max), element by element.",
        .examples = "moth.randn(2, 3), -0.5, 0.5  -- domain: distinct\n"
                    "moth.randn(2, 3), {min = 0.1}  -- domain: distinct\n"
                    "moth.randn(2, 3), {max = 0.1}  -- domain: distinct",
        NUMERIC, .saves = "input", .tensors = &moth_op_clamp_tensor)

/* -- nan_to_num -- */

static int nan_to_num_shape(const nan_to_num_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

double moth_largest(int dtype) {
  static const double most[MOTH_DTYPES] = {
    [MOTH_F16] = 65504, [MOTH_BF16] = 0x1.fep127, [MOTH_F32] = FLT_MAX, [MOTH_F64] = DBL_MAX};
  return most[dtype];
}

static int nan_to_num_cpu(const nan_to_num_args *a, moth_tensor **out) {
  uint64_t arg[3] = {0};
  int dtype = out[0]->l.dtype;
  if (!moth_is_float(dtype)) return moth_copy_into(out[0], a->input);
  moth_numbers(dtype, arg, a->nan, moth_absent(a->posinf) ? moth_largest(dtype) : a->posinf,
                moth_absent(a->neginf) ? -moth_largest(dtype) : a->neginf);
  return map1(moth_unary.nan_to_num, out[0], a->input, arg);
}

static int nan_to_num_grad(const nan_to_num_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, where, .condition = OF(isfinite, a->input),
                                     .input = g->dy, .other = NUMBER(0)));
}

MOTH_OP(nan_to_num, NAN_TO_NUM, .dtypes = MOTH_ANY, SAVES_X, .flags = UNARY_FLAGS,
        DOC("Replaces NaN and infinities with numbers."),
        .examples = "moth.tensor{1, 0 / 0, 1 / 0}\n"
                    "moth.randn(2, 3), 1, 2, -2\n"
                    "moth.randn(2, 3), {posinf = 9}\n"
                    "moth.randn(2, 3), {neginf = -9, nan = 3}")

/* -- logit -- */

static int logit_shape(const logit_args *a, moth_layout *y) { return moth_shape_like(a->input, y); }

static int logit_cpu(const logit_args *a, moth_tensor **out) {
  uint64_t arg[3];
  bool free = moth_absent(a->eps);
  moth_numbers(out[0]->l.dtype, arg, free ? -INFINITY : a->eps, free ? INFINITY : 1 - a->eps, 0);
  return map1(moth_unary.logit, out[0], a->input, arg);
}

/* Computes the gradient of logit in one pass, if it is not recorded and there is no observer. */
static moth_tensor *logit_back(const logit_args *a, moth_grad *g) {
  const moth_tensor *x = a->input, *dy = g->dy;
  const double low = moth_absent(a->eps) ? 0 : a->eps;
  uint64_t arg[3];
  moth_tensor *dx = moth_grad_own(g, moth_tensor_new(g->ctx, &x->l));
  if (!dx) return NULL;
  moth_numbers(x->l.dtype, arg, low, 1 - low, moth_absent(a->eps) ? NAN : 0);
  const moth_tensor *operands[] = {dx, dy, x};
  g->status = moth_map(g->ctx, moth_bessel.logit_back, x->l.dtype, 3, operands, arg);
  return g->status ? NULL : dx;
}

/* dy / (x (1 - x)) where x is between the bounds, 0 elsewhere */
static int logit_grad(const logit_args *a, moth_grad *g) {
  moth_tensor *x = a->input;
  if (!g->ctx->grad_mode && !g->ctx->observer && !x->l.device && x->l.dtype == g->dy->l.dtype)
    return moth_flow(g, x, logit_back(a, g));
  double low = moth_absent(a->eps) ? 0 : a->eps;
  moth_tensor *above = GRAD(g, ge, .input = x, .other = NUMBER(low));
  moth_tensor *below = GRAD(g, le, .input = x, .other = NUMBER(1 - low));
  moth_tensor *inside = GRAD(g, logical_and, .input = above, .other = below);
  moth_tensor *beyond = NUMBER(moth_absent(a->eps) ? NAN : 0);
  moth_tensor *at = CHOOSE(inside, x, NUMBER(0.5)); /* values outside stay finite */
  moth_tensor *slope = TIMES(at, PLUS(NEGATED(at), NUMBER(1)));
  return moth_flow(g, x, CHOOSE(inside, OVER(g->dy, slope), beyond));
}

MOTH_OP(logit, LOGIT, REAL, SAVES_X,
        DOC("log(x / (1 - x)), the inverse of sigmoid."),
        .examples = "moth.rand(2, 3)  -- domain: prob\n"
                    "moth.rand(2, 3), {eps = 0.3}  -- domain: prob")

/* -- gradients computed from the result -- */

#define BACK_OP(op)                                                                     \
  static int op##_shape(const op##_args *a, moth_layout *y) {                           \
    return moth_broadcast(a->ctx, "output", y, a->grad, a->output);                     \
  }                                                                                     \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                          \
    const moth_tensor *operands[] = {out[0], a->grad, a->output};                       \
    return moth_map(a->ctx, moth_unary.op, a->grad->l.dtype, 3, operands, NULL);        \
  }
#define BACK_RECORD(op, ...)                                                            \
  MOTH_OP(op, UNARY_BACK, .doc = "The gradient of the op in its name, computed from the " \
                                 "result.", \
          .examples = "moth.randn(2, 3), moth.rand(2, 3)  -- domain: positive",         \
          .dtypes = MOTH_FLOATS, \
          .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE, __VA_ARGS__)

BACK_OP(tanh_back)
static int tanh_back_grad(const tanh_back_args *a, moth_grad *g) {
  moth_tensor *dy = g->dy;
  if (moth_wants(g, a->grad))
    moth_flow(g, a->grad, GRAD(g, tanh_back, .grad = dy, .output = a->output));
  if (moth_wants(g, a->output))
    moth_flow(g, a->output, TIMES(dy, TIMES(a->grad, TIMES(a->output, NUMBER(-2)))));
  return g->status;
}
BACK_RECORD(tanh_back, .saves = "output grad:output")

BACK_OP(sigmoid_back)
static int sigmoid_back_grad(const sigmoid_back_args *a, moth_grad *g) {
  moth_tensor *dy = g->dy;
  if (moth_wants(g, a->grad))
    moth_flow(g, a->grad, GRAD(g, sigmoid_back, .grad = dy, .output = a->output));
  if (moth_wants(g, a->output)) {
    moth_tensor *slope = PLUS(TIMES(a->output, NUMBER(-2)), NUMBER(1));
    moth_flow(g, a->output, TIMES(dy, TIMES(a->grad, slope)));
  }
  return g->status;
}
BACK_RECORD(sigmoid_back, .saves = "output grad:output")

BACK_OP(relu_back)
static int relu_back_grad(const relu_back_args *a, moth_grad *g) {
  if (moth_wants(g, a->grad))
    moth_flow(g, a->grad, GRAD(g, relu_back, .grad = g->dy, .output = a->output));
  if (moth_wants(g, a->output)) {
    moth_tensor *x = a->output;
    moth_flow(g, x, ZERO);
  }
  return g->status;
}
BACK_RECORD(relu_back, .saves = "output")

#define LISTED(kind, op, ...) &moth_op_##op,
const moth_op *const moth_unary_ops[] = {
  UNARY_FUNCTIONS(LISTED) UNARY_BACKS(LISTED) &moth_op_clamp, &moth_op_round,
  &moth_op_nan_to_num, &moth_op_logit, &moth_op_frexp_of, NULL,
};
