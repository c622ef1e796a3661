/* arith.c -- elementwise arithmetic of two tensors. */
#include "arith.h"
#include "autograd/gradient.h"
#include "tensor/tensor.h"

#include <math.h>

#include "capture/capture.h"
#include "kernel/math/arith.h"
#include "kernel/scalar.h"
#include "kernel/math/unary.h"
#include "gradient_formula.h"

#define BINARY_FLAGS \
  (MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_NUMBERS | \
   MOTH_OP_PORTABLE)

/* The result has the operands' dtype. Operands of one element may be f32. */
static int map2(moth_ctx *ctx, const moth_loops *loops, moth_tensor *y, const moth_tensor *a,
                const moth_tensor *b, const void *arg) {
  const moth_tensor *operands[] = {y, a, b};
  return moth_map(ctx, loops, y->l.dtype, 3, operands, arg);
}

static int map1(moth_ctx *ctx, const moth_loops *loops, moth_tensor *y, const moth_tensor *a) {
  const moth_tensor *operands[] = {y, a};
  return moth_map(ctx, loops, y->l.dtype, 2, operands, NULL);
}

/* -- add, sub -- */

static int check_alpha(moth_ctx *ctx, moth_scalar alpha, const moth_layout *y) {
  uint64_t element;
  int dtype = y->dtype;
  if (alpha.type == 2 && dtype != MOTH_BOOL)
    return moth_fail(ctx, MOTH_E_DTYPE, "alpha", "a bool needs bool tensors, got %s",
                     moth_dtype_name(dtype));
  if (dtype == MOTH_BOOL && alpha.type == 0 && alpha.as.number != rint(alpha.as.number))
    return moth_fail(ctx, MOTH_E_DTYPE, "alpha", "%.17g does not fit bool", alpha.as.number);
  return moth_scalar_to(ctx, "alpha", alpha, dtype, &element);
}

static bool is_one(moth_scalar s) { return s.type == 0 ? s.as.number == 1 : s.as.integer == 1; }

static int add_shape(const add_args *a, moth_layout *y) {
  int status = is_one(a->alpha) ? MOTH_OK : check_alpha(a->ctx, a->alpha, y);
  return status ? status : moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

static int add_cpu(const add_args *a, moth_tensor **out) {
  if (is_one(a->alpha)) return map2(a->ctx, moth_arith.add, out[0], a->input, a->other, NULL);
  uint64_t alpha[3] = {0};
  int status = moth_scalar_to(a->ctx, "alpha", a->alpha, moth_compute_dtype(a->input->l.dtype),
                              alpha);
  return status ? status : map2(a->ctx, moth_arith.more, out[0], a->input, a->other, alpha);
}

/* sign * alpha * dy */
static moth_tensor *scaled(moth_grad *g, moth_scalar alpha, double sign) {
  double by = sign * (alpha.type == 0 ? alpha.as.number : (double)alpha.as.integer);
  return by == 1 ? g->dy : by == -1 ? OF(neg, g->dy) : TIMES(g->dy, NUMBER(by));
}

static int add_grad(const add_args *a, moth_grad *g) {
  if (moth_wants(g, a->input)) moth_flow(g, a->input, g->dy);
  if (moth_wants(g, a->other)) moth_flow(g, a->other, scaled(g, a->alpha, 1));
  return g->status;
}

MOTH_OP(add, ADD, .doc = "input + alpha * other.",
        .examples = "moth.randn(2, 3), moth.randn(3)\n"
                    "moth.randn(2, 3), moth.randn(2, 1), {alpha = 2}\n"
                    "moth.randn(2, 3), 1.5",
        .dtypes = MOTH_ANY | MOTH_PROMOTE,
        .flags = BINARY_FLAGS | MOTH_OP_MIXED | MOTH_OP_PASSES_GRADIENT)

static int sub_shape(const sub_args *a, moth_layout *y) {
  int status = is_one(a->alpha) ? MOTH_OK : check_alpha(a->ctx, a->alpha, y);
  return status ? status : moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

static int sub_cpu(const sub_args *a, moth_tensor **out) {
  if (is_one(a->alpha)) return map2(a->ctx, moth_arith.sub, out[0], a->input, a->other, NULL);
  uint64_t alpha[3] = {0};
  int status = moth_scalar_to(a->ctx, "alpha", a->alpha, moth_compute_dtype(a->input->l.dtype),
                              alpha);
  return status ? status : map2(a->ctx, moth_arith.less, out[0], a->input, a->other, alpha);
}

static int sub_grad(const sub_args *a, moth_grad *g) {
  if (moth_wants(g, a->input)) moth_flow(g, a->input, g->dy);
  if (moth_wants(g, a->other)) moth_flow(g, a->other, scaled(g, a->alpha, -1));
  return g->status;
}

MOTH_OP(sub, SUB, .doc = "input - alpha * other.",
        .examples = "moth.randn(2, 3), moth.randn(3)\n"
                    "moth.randn(2, 3), moth.randn(2, 1), {alpha = 2}\n"
                    "moth.randn(2, 3), 1.5",
        .dtypes = MOTH_NUMERIC | MOTH_PROMOTE | MOTH_NO_BOOL,
        .flags = BINARY_FLAGS | MOTH_OP_MIXED)

/* -- mul -- */

static int mul_shape(const mul_args *a, moth_layout *y) {
  return moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

static int mul_cpu(const mul_args *a, moth_tensor **out) {
  return map2(a->ctx, moth_arith.mul, out[0], a->input, a->other, NULL);
}

/* The last gradient overwrites dy. */
static int mul_grad(const mul_args *a, moth_grad *g) {
  const bool both = moth_wants(g, a->input) && moth_wants(g, a->other);
  if (both) moth_flow(g, a->input, TIMES(g->dy, a->other));
  const bool other = moth_wants(g, a->other);
  return moth_flow(g, other ? a->other : a->input,
                   GRAD_OVER(g, mul, .input = g->dy, .other = other ? a->input : a->other));
}

MOTH_OP(mul, MUL, .doc = "input * other, element by element.",
        .examples = "moth.randn(2, 3), moth.randn(3)\nmoth.randn(2, 3), 1.5",
        .dtypes = MOTH_ANY | MOTH_PROMOTE, .saves = "input:other other:input",
        .flags = BINARY_FLAGS | MOTH_OP_WIDE_NUMBERS | MOTH_OP_MIXED)

/* -- division -- */

/* For integers only. Fails for x / 0, and for MIN / -1 if the quotient is used. A device kernel
** detects x / 0, which raises at the next synchronization. */
static int check_division(moth_ctx *ctx, const moth_layout *y, const moth_tensor *x,
                          const moth_tensor *by, bool quotient) {
  moth_division found = {false, false}, *arg = &found;
  const moth_tensor *operands[] = {x, by};
  moth_loop loop;
  moth_layout over;
  if (y->device) return MOTH_OK;
  over.ndim = y->ndim;
  over.numel = y->numel;
  memcpy(over.shape, y->shape, sizeof over.shape);
  moth_loop_over(&loop, ctx, &over, 2, operands);
  int status = moth_loop_run(&loop, moth_division_loops[x->l.dtype], &arg);
  if (status) return status;
  if (found.zero)
    return moth_fail(ctx, MOTH_E_DOMAIN, "other", "integers of type %s cannot be divided by 0",
                     moth_dtype_name(x->l.dtype));
  if (quotient && found.overflow)
    return moth_fail(ctx, MOTH_E_DOMAIN, "other",
                     "the smallest %s divided by -1 is too large for the type",
                     moth_dtype_name(x->l.dtype));
  return MOTH_OK;
}

static bool div_gives_floats(const void *args) {
  return ((const div_args *)args)->rounding_mode == MOTH_ROUND_NONE;
}

static int div_shape(const div_args *a, moth_layout *y) {
  if (y->dtype == MOTH_BOOL)
    return moth_fail(a->ctx, MOTH_E_DTYPE, "input", "bool cannot be divided with a rounding mode");
  return moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

static int div_cpu(const div_args *a, moth_tensor **out) {
  int status = MOTH_OK;
  const moth_loops *loops = a->rounding_mode == MOTH_ROUND_NONE    ? moth_arith.div
                            : a->rounding_mode == MOTH_ROUND_TRUNC ? moth_arith.div_trunc
                                                                   : moth_arith.div_floor;
  if (!moth_is_float(a->input->l.dtype))
    status = check_division(a->ctx, &out[0]->l, a->input, a->other, true);
  return status ? status : map2(a->ctx, loops, out[0], a->input, a->other, NULL);
}

/* The last gradient overwrites dy. */
static int div_grad(const div_args *a, moth_grad *g) {
  bool rounds = a->rounding_mode != MOTH_ROUND_NONE;
  if (moth_wants(g, a->other))
    moth_flow(g, a->other,
              rounds ? ZERO_OF(a->other)
                     : GRAD(g, neg, .input = TIMES(g->dy, OVER(g->out[0], a->other))));
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              rounds ? ZERO_OF(a->input)
                     : GRAD_OVER(g, div, .input = g->dy, .other = a->other,
                                 .rounding_mode = MOTH_ROUND_NONE));
  return g->status;
}

MOTH_OP(div, DIV, .doc = "input / other. Without a rounding mode the quotient of integers is a "
                         "float.",
        .examples = "moth.randn(2, 3), moth.rand(3)  -- domain: positive\n"
                    "moth.rand(2, 3), 1.5, {rounding_mode = \"floor\"}  -- domain: positive\n"
                    "moth.rand(2, 3), moth.rand(3), \"trunc\"  -- domain: positive",
        .dtypes = MOTH_ANY | MOTH_PROMOTE | MOTH_TO_FLOAT, .to_float = div_gives_floats,
        .saves = "other y:other", .flags = BINARY_FLAGS | MOTH_OP_WIDE_NUMBERS)

#define FLOORED(a) \
  &(div_args) { \
    .ctx = (a)->ctx, .input = (a)->input, .other = (a)->other, .rounding_mode = MOTH_ROUND_FLOOR \
  }

static int floor_divide_shape(const floor_divide_args *a, moth_layout *y) {
  return div_shape(FLOORED(a), y);
}

static int floor_divide_cpu(const floor_divide_args *a, moth_tensor **out) {
  return div_cpu(FLOORED(a), out);
}

static int floor_divide_grad(const floor_divide_args *a, moth_grad *g) {
  return div_grad(FLOORED(a), g);
}

MOTH_OP(floor_divide, REMAINDER, .doc = "floor(input / other); the result of integers is an "
                                        "integer.",
        .examples = "moth.rand(2, 3), moth.rand(3)  -- domain: positive\n"
                    "moth.rand(2, 3), 0.3  -- domain: distinct",
        .dtypes = MOTH_NUMERIC | MOTH_PROMOTE, .flags = BINARY_FLAGS | MOTH_OP_WIDE_NUMBERS)

/* -- remainder, fmod -- */

static int rest_into(moth_tensor *y, const moth_loops *loops, const moth_tensor *x,
                     const moth_tensor *by) {
  int status = MOTH_OK;
  if (!moth_is_float(x->l.dtype)) status = check_division(y->ctx, &y->l, x, by, false);
  return status ? status : map2(y->ctx, loops, y, x, by, NULL);
}

/* The dividend gets dy; the divisor gets -dy times the rounded quotient. */
static int rest_flow(moth_grad *g, moth_tensor *x, moth_tensor *by, int mode) {
  if (moth_wants(g, x)) moth_flow(g, x, g->dy);
  if (moth_wants(g, by)) {
    moth_tensor *q = GRAD(g, div, .input = x, .other = by, .rounding_mode = mode);
    moth_flow(g, by, GRAD(g, neg, .input = TIMES(g->dy, q)));
  }
  return g->status;
}

#define REST(op, mode, text)                                                                \
  static int op##_shape(const op##_args *a, moth_layout *y) {                               \
    return moth_broadcast(a->ctx, "other", y, a->input, a->other);                          \
  }                                                                                         \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                              \
    return rest_into(out[0], moth_arith.op, a->input, a->other);                            \
  }                                                                                         \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                  \
    return rest_flow(g, a->input, a->other, mode);                                          \
  }                                                                                         \
  MOTH_OP(op, REMAINDER, .doc = text,                                                       \
          .examples = "moth.rand(2, 3), moth.rand(3)  -- domain: positive\n"                \
                      "moth.rand(2, 3), 0.7  -- domain: positive",                          \
          .dtypes = MOTH_NUMERIC | MOTH_PROMOTE, .saves = "input:other other:other",        \
          .flags = BINARY_FLAGS)

REST(remainder, MOTH_ROUND_FLOOR, "input - other * floor(input / other); it has the sign of the "
                                  "divisor.")
REST(fmod, MOTH_ROUND_TRUNC,
     "input - other * trunc(input / other); it has the sign of the dividend.")

/* -- pow -- */

/* Returns the value of a one-element exponent if it can be read, else NaN. */
static double lone_exponent(const moth_tensor *e) {
  double v = NAN;
  if (e->storage && e->l.device == 0 && e->l.numel == 1)
    moth_convert(1, e->l.dtype, moth_at(e), 8, MOTH_F64, (char *)&v, 8);
  return v;
}

static int pow_shape(const pow_args *a, moth_layout *y) {
  int64_t e = 0;
  if (moth_is_int(y->dtype) && a->exponent->l.ndim == 0 && a->exponent->l.device == 0)
    moth_convert(1, y->dtype, moth_at(a->exponent), 8, MOTH_I64, (char *)&e, 8);
  if (e < 0)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "exponent",
                     "%s to the power of %lld is not an integer; convert the input to a float "
                     "dtype",
                     moth_dtype_name(y->dtype), (long long)e);
  return moth_broadcast(a->ctx, "exponent", y, a->input, a->exponent);
}

/* Returns the special loop of an exponent, or NULL. PyTorch has the same loops, also where the
** result differs from pow: sqrt(-0) is -0, and sqrt(-inf) is NaN. */
static const moth_loops *lone_loop(double e) {
  return e == 1      ? moth_unary.positive
         : e == 2    ? moth_unary.square
         : e == 3    ? moth_unary.cube
         : e == 0.5  ? moth_unary.sqrt
         : e == -0.5 ? moth_unary.rsqrt
         : e == -1   ? moth_unary.reciprocal
         : e == -2   ? moth_unary.inverse_square
                     : NULL;
}

static int pow_cpu(const pow_args *a, moth_tensor **out) {
  const double e = lone_exponent(a->exponent);
  const moth_loops *loop = e > 0 || moth_is_float(out[0]->l.dtype) ? lone_loop(e) : NULL;
  if (loop && moth_shape_same(&a->input->l, &out[0]->l))
    return map1(a->ctx, loop, out[0], a->input);
  return map2(a->ctx, moth_arith.pow, out[0], a->input, a->exponent, NULL);
}

/* exponent * input^(exponent-1); 0 where the exponent is 0 */
static moth_tensor *pow_derivative(moth_grad *g, moth_tensor *x, moth_tensor *e) {
  double value = moth_wants(g, e) || !e->storage || !moth_observe_constant(e) ? NAN
                                                                             : lone_exponent(e);
  if (value == 0) return ZERO_OF(x);
  if (value == 1) return NUMBER(1);
  if (value == 2) return TIMES(x, NUMBER(2));
  moth_tensor *less = MINUS(e, NUMBER(1));
  moth_tensor *slope = TIMES(e, GRAD(g, pow, .input = x, .exponent = less));
  if (value == value) return slope;
  return GRAD(g, where, .condition = GRAD(g, eq, .input = e, .other = NUMBER(0)),
              .input = NUMBER(0), .other = slope);
}

/* y * log(input); 0 where the input is 0 and the exponent is >= 0, since y is then constant */
static moth_tensor *pow_rate(moth_grad *g, moth_tensor *x, moth_tensor *e) {
  moth_tensor *zero = GRAD(g, eq, .input = x, .other = NUMBER(0));
  moth_tensor *up = GRAD(g, ge, .input = e, .other = NUMBER(0));
  moth_tensor *rate = TIMES(g->out[0], OF(log, x));
  return GRAD(g, where, .condition = GRAD(g, logical_and, .input = zero, .other = up),
              .input = NUMBER(0), .other = rate);
}

static int pow_grad(const pow_args *a, moth_grad *g) {
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, TIMES(g->dy, pow_derivative(g, a->input, a->exponent)));
  if (moth_wants(g, a->exponent))
    moth_flow(g, a->exponent, TIMES(g->dy, pow_rate(g, a->input, a->exponent)));
  return g->status;
}

MOTH_OP(pow, POW, .doc = "input raised to the power of exponent.",
        .examples = "moth.rand(2, 3), 2  -- domain: positive\n"
                    "moth.rand(2, 3), moth.randn(3)  -- domain: positive",
        .dtypes = MOTH_NUMERIC | MOTH_PROMOTE, .saves = "input exponent y:exponent",
        .chooses = "exponent", .flags = BINARY_FLAGS | MOTH_OP_WIDE_NUMBERS,
        .autocast = MOTH_AUTOCAST_F32)

/* -- maximum, minimum: a tie gives each side half of the gradient -- */

static int maximum_shape(const maximum_args *a, moth_layout *y) {
  return moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

static int maximum_cpu(const maximum_args *a, moth_tensor **out) {
  return map2(a->ctx, moth_arith.maximum, out[0], a->input, a->other, NULL);
}

/* Returns dy, halved where `tie` is true, 0 where `lost` is true. */
static moth_tensor *winner(moth_grad *g, moth_tensor *tie, moth_tensor *lost) {
  moth_tensor *half = TIMES(g->dy, NUMBER(0.5));
  moth_tensor *share = GRAD(g, where, .condition = tie, .input = half, .other = g->dy);
  return GRAD(g, masked_fill, .input = share, .mask = lost, .value = {.as.number = 0});
}

static int flow_extreme(moth_grad *g, moth_tensor *x, moth_tensor *y, bool largest) {
  moth_tensor *tie = GRAD(g, eq, .input = x, .other = y);
  moth_tensor *less = GRAD(g, lt, .input = x, .other = y);
  moth_tensor *more = GRAD(g, gt, .input = x, .other = y);
  if (moth_wants(g, x)) moth_flow(g, x, winner(g, tie, largest ? less : more));
  if (moth_wants(g, y)) moth_flow(g, y, winner(g, tie, largest ? more : less));
  return g->status;
}

static int maximum_grad(const maximum_args *a, moth_grad *g) {
  return flow_extreme(g, a->input, a->other, true);
}

MOTH_OP(maximum, EXTREME, .doc = "The larger of two values, element by element; NaN wins.",
        .examples = "moth.randn(2, 3), moth.randn(3)  -- domain: distinct\n"
                    "moth.randn(2, 3), 0.1  -- domain: distinct",
        .dtypes = MOTH_ANY | MOTH_PROMOTE, .saves = "input other", .flags = BINARY_FLAGS)

static int minimum_shape(const minimum_args *a, moth_layout *y) {
  return moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

static int minimum_cpu(const minimum_args *a, moth_tensor **out) {
  return map2(a->ctx, moth_arith.minimum, out[0], a->input, a->other, NULL);
}

static int minimum_grad(const minimum_args *a, moth_grad *g) {
  return flow_extreme(g, a->input, a->other, false);
}

MOTH_OP(minimum, EXTREME, .doc = "The smaller of two values, element by element; NaN wins.",
        .examples = "moth.randn(2, 3), moth.randn(3)  -- domain: distinct\n"
                    "moth.randn(2, 3), 0.1  -- domain: distinct",
        .dtypes = MOTH_ANY | MOTH_PROMOTE, .saves = "input other", .flags = BINARY_FLAGS)

/* -- clamp between tensors -- */

static int clamp_tensor_shape(const clamp_tensor_args *a, moth_layout *y) {
  if (!a->min && !a->max)
    return moth_fail(a->ctx, MOTH_E_ARG, "min", "at least one of min and max is needed");
  moth_shape_like(a->input, y);
  const moth_tensor *bounds[] = {a->min, a->max};
  for (int i = 0; i < 2; i++)
    if (bounds[i] && !moth_layout_broadcast(y, &bounds[i]->l))
      return moth_fail(a->ctx, MOTH_E_SHAPE, i ? "max" : "min", "%s cannot be broadcast with %s",
                       moth_str(bounds[i]), moth_str_shape(a->ctx, y->ndim, y->shape));
  return MOTH_OK;
}

static int clamp_tensor_cpu(const clamp_tensor_args *a, moth_tensor **out) {
  if (!a->max) return map2(a->ctx, moth_arith.maximum, out[0], a->input, a->min, NULL);
  if (!a->min) return map2(a->ctx, moth_arith.minimum, out[0], a->input, a->max, NULL);
  moth_layout l = {.dtype = a->input->l.dtype, .device = out[0]->l.device};
  l.ndim = out[0]->l.ndim;
  memcpy(l.shape, out[0]->l.shape, sizeof l.shape);
  moth_layout_pack(&l);
  moth_tensor *low = moth_tensor_new(a->ctx, &l);
  if (!low) return a->ctx->error.code;
  int status = map2(a->ctx, moth_arith.maximum, low, a->input, a->min, NULL);
  if (!status) status = map2(a->ctx, moth_arith.minimum, out[0], low, a->max, NULL);
  moth_tensor_release(low);
  return status;
}

/* In a tie with one bound, the input and the bound each get half of the gradient. Where both bounds
** equal the input, the input gets the gradient. Where the lower bound is above the upper one, the
** upper bound gets it. Where the bounds are equal elsewhere, the bound on the input's side gets
** it. */
static int clamp_tensor_grad(const clamp_tensor_args *a, moth_grad *g) {
  moth_tensor *x = a->input, *low = a->min, *high = a->max;
  if (!low || !high) return flow_extreme(g, x, low ? low : high, low != NULL);
  moth_tensor *crossed = GRAD(g, gt, .input = low, .other = high);
  moth_tensor *under = GRAD(g, lt, .input = x, .other = low);
  moth_tensor *over = GRAD(g, gt, .input = x, .other = high);
  moth_tensor *ties_low = GRAD(g, eq, .input = x, .other = low);
  moth_tensor *ties_high = GRAD(g, eq, .input = x, .other = high);
  moth_tensor *at_low = GRAD(g, gt, .input = ties_low, .other = ties_high); /* low only */
  moth_tensor *at_high = GRAD(g, gt, .input = ties_high, .other = ties_low);
  moth_tensor *out_low = GRAD(g, logical_or, .input = over, .other = crossed);
  if (moth_wants(g, x)) {
    moth_tensor *tie = GRAD(g, logical_or, .input = at_low, .other = at_high);
    moth_flow(g, x, winner(g, tie, GRAD(g, logical_or, .input = under, .other = out_low)));
  }
  if (moth_wants(g, low)) {
    moth_tensor *mine = GRAD(g, logical_or, .input = under, .other = at_low);
    moth_tensor *lost = GRAD(g, logical_or, .input = OF(logical_not, mine), .other = out_low);
    moth_flow(g, low, winner(g, at_low, lost));
  }
  if (moth_wants(g, high)) {
    moth_tensor *mine = GRAD(g, logical_or, .input = out_low, .other = at_high);
    moth_tensor *tie = GRAD(g, gt, .input = at_high, .other = crossed);
    moth_flow(g, high, winner(g, tie, OF(logical_not, mine)));
  }
  return g->status;
}

MOTH_OP(clamp_tensor, CLAMP_TENSOR, .doc = "min(max(x, min), max), element by element.",
        .examples = "moth.randn(2, 3), moth.zeros(3), moth.ones(2, 1)  -- domain: distinct\n"
                    "moth.randn(2, 3), {max = moth.randn(3)}  -- domain: distinct",
        .dtypes = MOTH_NUMERIC | MOTH_PROMOTE, .saves = "input min max",
        .flags = BINARY_FLAGS | MOTH_OP_HIDDEN, .public_name = "clamp")

/* -- where -- */

static int where_shape(const where_args *a, moth_layout *y) {
  int status = moth_broadcast(a->ctx, "other", y, a->input, a->other);
  if (status || moth_layout_broadcast(y, &a->condition->l)) return status;
  return moth_fail(a->ctx, MOTH_E_SHAPE, "condition", "%s cannot be broadcast with %s",
                   moth_str(a->condition), moth_str_shape(a->ctx, y->ndim, y->shape));
}

static int where_cpu(const where_args *a, moth_tensor **out) {
  const moth_tensor *operands[] = {out[0], a->condition, a->input, a->other};
  return moth_map_where(a->ctx, operands);
}

static int where_grad(const where_args *a, moth_grad *g) {
  moth_tensor *zero = NUMBER(0);
  if (moth_wants(g, a->input))
    moth_flow(g, a->input,
              GRAD(g, where, .condition = a->condition, .input = g->dy, .other = zero));
  if (moth_wants(g, a->other))
    moth_flow(g, a->other,
              GRAD(g, where, .condition = a->condition, .input = zero, .other = g->dy));
  return g->status;
}

MOTH_OP(where, WHERE, .doc = "Elements of `input` where the condition is true, of `other` "
                             "elsewhere.",
        .examples = "moth.randn(2, 3):gt(0), moth.randn(2, 3), moth.randn(3)\n"
                    "moth.randn(2, 3):gt(0), moth.randn(2, 3), 0.5",
        .dtypes = MOTH_ANY | MOTH_PROMOTE, .saves = "condition",
        .flags = MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_NUMBERS | MOTH_OP_PORTABLE)

const moth_op *const moth_arith_ops[] = {
  &moth_op_add, &moth_op_sub, &moth_op_mul, &moth_op_div, &moth_op_floor_divide,
  &moth_op_remainder, &moth_op_fmod,
  &moth_op_pow, &moth_op_maximum, &moth_op_minimum, &moth_op_clamp_tensor, &moth_op_where,
  NULL,
};
