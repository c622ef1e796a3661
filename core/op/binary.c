/* binary.c -- further functions of two and three tensors: angles, logarithms, signs, bits, addcmul
** and addcdiv.
*/
#include "binary.h"
#include "autograd/gradient.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/math/binary.h"
#include "kernel/math/compare.h"
#include "kernel/scalar.h"
#include "gradient_formula.h"

#define QUESTION_FLAGS \
  (MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_NUMBERS | MOTH_OP_PORTABLE)
#define BINARY_FLAGS (QUESTION_FLAGS | MOTH_OP_INPLACE)

static int map2(const moth_loops *loops, moth_tensor *y, const moth_tensor *a,
                const moth_tensor *b, const void *arg) {
  const moth_tensor *operands[] = {y, a, b};
  return moth_map(y->ctx, loops, a->l.dtype, 3, operands, arg);
}

#define SHAPE_AND_CPU(op)                                                     \
  static int op##_shape(const op##_args *a, moth_layout *y) {                 \
    return moth_broadcast(a->ctx, "other", y, a->input, a->other);            \
  }                                                                           \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                \
    return map2(moth_binary.op, out[0], a->input, a->other, NULL);            \
  }

/* -- of real numbers; x and y are the operands, z is the result, dz its gradient -- */

#define FUNCTION(op, of_x, of_y, ...)                                                    \
  SHAPE_AND_CPU(op)                                                                      \
  static int op##_grad(const op##_args *a, moth_grad *g) {                               \
    moth_tensor *x = a->input, *y = a->other, *z = g->out[0], *dz = g->dy;               \
    (void)z, (void)dz;                                                                   \
    if (moth_wants(g, x)) moth_flow(g, x, of_x);                                         \
    if (moth_wants(g, y)) moth_flow(g, y, of_y);                                         \
    return g->status;                                                                    \
  }                                                                                      \
  MOTH_OP(op, BINARY, .flags = BINARY_FLAGS, __VA_ARGS__)

#define DOC(text) .doc = text
#define SAVES(text) .saves = text
#define ALL .dtypes = MOTH_ANY | MOTH_PROMOTE | MOTH_TO_FLOAT
#define FLOATS .dtypes = MOTH_FLOATS | MOTH_PROMOTE
#define ANY .dtypes = MOTH_ANY | MOTH_PROMOTE
#define EXAMPLES(domain) \
  .examples = "moth.rand(2, 3), moth.rand(3)" domain "\nmoth.rand(2, 3), 0.5" domain

/* Returns sqrt(x^2 + y^2), but infinity at the origin: a division by it is then 0. */
static moth_tensor *distance(moth_grad *g, moth_tensor *x, moth_tensor *y) {
  moth_tensor *z = GRAD(g, hypot, .input = x, .other = y);
  return FILLED(z, OF(logical_not, z), HUGE_VAL);
}

/* Returns dz p / (x^2 + y^2), where p is x or y, without overflow of the squares. */
static moth_tensor *angle_rate(moth_grad *g, moth_tensor *p, moth_tensor *x, moth_tensor *y) {
  moth_tensor *z = distance(g, x, y);
  return TIMES(g->dy, OVER(OVER(p, z), z));
}

FUNCTION(atan2, angle_rate(g, y, x, y), NEGATED(angle_rate(g, x, x, y)), ALL, SAVES("input other"),
         EXAMPLES(""), DOC("atan2(input, other): the angle of the point (other, input), from -pi "
                           "to pi."))
/* Returns z, but 1 at the origin, where the gradient is 0. */
static moth_tensor *without_zeros(moth_grad *g, moth_tensor *z) {
  return FILLED(z, OF(logical_not, z), 1);
}

FUNCTION(hypot, TIMES(dz, OVER(x, without_zeros(g, z))),
         TIMES(dz, OVER(y, without_zeros(g, z))), FLOATS,
         SAVES("input:input other:other y"), EXAMPLES("  -- domain: positive"),
         DOC("sqrt(input^2 + other^2), without overflow of the squares."))
FUNCTION(copysign, TIMES(dz, TIMES(OF(sign, x), OF(sign, z))), ZERO_OF(y), ALL,
         SAVES("input:input y:input"), EXAMPLES(""),
         DOC("The absolute value of `input` with the sign of `other`; the sign of -0 counts."))

/* Returns log y, but 0 where x is 0 and y <= 0. */
static moth_tensor *xlogy_rate(moth_grad *g, moth_tensor *x, moth_tensor *y) {
  moth_tensor *zero = GRAD(g, eq, .input = x, .other = NUMBER(0));
  moth_tensor *none = GRAD(g, le, .input = y, .other = NUMBER(0));
  return CHOOSE(BOTH(zero, none), NUMBER(0), OF(log, y));
}

FUNCTION(xlogy, TIMES(dz, xlogy_rate(g, x, y)), TIMES(dz, OVER(x, y)), ALL, SAVES("input other"),
         EXAMPLES("  -- domain: positive"), DOC("input * log(other); 0 where input is 0."))
/* Returns x - y, but 0 for two equal infinities. */
static moth_tensor *apart(moth_grad *g, moth_tensor *x, moth_tensor *y) {
  const double most = moth_largest(g->out[0]->l.dtype);
  x = GRAD(g, clamp, .input = x, .min = -most, .max = most);
  y = GRAD(g, clamp, .input = y, .min = -most, .max = most);
  return MINUS(x, y);
}

/* exp(x) / (exp(x) + exp(y)) */
static moth_tensor *share_of(moth_grad *g, moth_tensor *x, moth_tensor *y) {
  return OF(sigmoid, apart(g, x, y));
}

/* 2^x / (2^x + 2^y), computed with powers below 1 */
static moth_tensor *share_of_2(moth_grad *g, moth_tensor *x, moth_tensor *y) {
  moth_tensor *d = apart(g, x, y), *above = GRAD(g, ge, .input = d, .other = NUMBER(0));
  moth_tensor *power = OF(exp2, CHOOSE(above, NEGATED(d), d));
  return OVER(CHOOSE(above, NUMBER(1), power), PLUS(power, NUMBER(1)));
}

FUNCTION(logaddexp, TIMES(dz, share_of(g, x, y)), TIMES(dz, share_of(g, y, x)), FLOATS,
         SAVES("input other"), EXAMPLES(""),
         DOC("log(exp(input) + exp(other)), without overflow."))
FUNCTION(logaddexp2, TIMES(dz, share_of_2(g, x, y)), TIMES(dz, share_of_2(g, y, x)), ALL,
         SAVES("input other"), EXAMPLES(""),
         DOC("log2(2^input + 2^other), without overflow."))

static int heaviside_shape(const heaviside_args *a, moth_layout *y) {
  return moth_broadcast(a->ctx, "values", y, a->input, a->values);
}

static int heaviside_cpu(const heaviside_args *a, moth_tensor **out) {
  return map2(moth_binary.heaviside, out[0], a->input, a->values, NULL);
}

static int heaviside_grad(const heaviside_args *a, moth_grad *g) {
  if (moth_wants(g, a->input)) moth_flow(g, a->input, ZERO_OF(a->input));
  if (moth_wants(g, a->values)) moth_flow(g, a->values, ZERO_OF(a->values));
  return g->status;
}

MOTH_OP(heaviside, HEAVISIDE, ANY, EXAMPLES(""), .flags = BINARY_FLAGS,
        DOC("The Heaviside step function: 0 where input < 0, `values` where input = 0, 1 where "
            "input > 0."))

/* The gradient of fmax or fmin for x: dz where x won, because it is `beyond` y or y is NaN; half of
** dz in a tie. */
static moth_tensor *won(moth_grad *g, moth_tensor *x, moth_tensor *y, moth_tensor *beyond) {
  moth_tensor *tie = GRAD(g, eq, .input = x, .other = y);
  moth_tensor *alone = GRAD(g, logical_or, .input = beyond, .other = OF(isnan, y));
  return CHOOSE(tie, TIMES(g->dy, NUMBER(0.5)), CHOOSE(alone, g->dy, NUMBER(0)));
}
#define MORE won(g, x, y, ABOVE(x, y))
#define LESSER won(g, x, y, BELOW(x, y))

FUNCTION(fmax, MORE, MINUS(dz, MORE), ANY, SAVES("input other"), EXAMPLES("  -- domain: distinct"),
         DOC("The larger of two values, element by element; a number wins over NaN."))
FUNCTION(fmin, LESSER, MINUS(dz, LESSER), ANY, SAVES("input other"),
         EXAMPLES("  -- domain: distinct"),
         DOC("The smaller of two values, element by element; a number wins over NaN."))

/* -- of bits -- */

#define INTEGERS .dtypes = MOTH_INTS | MOTH_PROMOTE
#define INTEGERS_AND_BOOL .dtypes = MOTH_INTS | MOTH_BIT(MOTH_BOOL) | MOTH_PROMOTE
#define BITS(op, ...)                                                                      \
  SHAPE_AND_CPU(op)                                                                        \
  MOTH_OP_CONST(op, BINARY, .flags = BINARY_FLAGS,                                         \
                .examples = "moth.tensor{6LL, 0LL, 5LL}, moth.tensor{3LL, 1LL, 2LL}\n"     \
                            "moth.tensor{6LL, 0LL, 5LL}, 3",                               \
                __VA_ARGS__)

BITS(bitwise_and, INTEGERS_AND_BOOL, DOC("Bitwise AND of integers; logical AND of bool."))
BITS(bitwise_or, INTEGERS_AND_BOOL, DOC("Bitwise OR of integers; logical OR of bool."))
BITS(bitwise_xor, INTEGERS_AND_BOOL, DOC("Bitwise XOR of integers; logical XOR of bool."))
BITS(bitwise_left_shift, INTEGERS,
     DOC("input * 2^other; 0 when other is negative or at least the number of bits."))
BITS(bitwise_right_shift, INTEGERS,
     DOC("floor(input / 2^other); a negative `other` shifts out all bits but the sign."))

BITS(gcd, INTEGERS, DOC("The greatest common divisor, not negative."))
BITS(lcm, INTEGERS, DOC("The least common multiple, not negative."))

/* -- nextafter: half types are not converted to f32, whose neighbours are closer -- */

SHAPE_AND_CPU(nextafter)
MOTH_OP_CONST(nextafter, BINARY, .flags = BINARY_FLAGS,
              .dtypes = MOTH_BIT(MOTH_F32) | MOTH_BIT(MOTH_F64) | MOTH_PROMOTE, EXAMPLES(""),
              DOC("The next number of the dtype after `input` in the direction of `other`."))

/* -- isclose -- */

static int isclose_shape(const isclose_args *a, moth_layout *y) {
  if (!(a->rtol >= 0) || !(a->atol >= 0))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, a->rtol >= 0 ? "atol" : "rtol",
                     "a number from 0 on is needed, got %g", a->rtol >= 0 ? a->atol : a->rtol);
  y->dtype = MOTH_BOOL;
  return moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

/* Integers are compared as f64, since the tolerances are f64; without tolerances as integers. */
static int isclose_cpu(const isclose_args *a, moth_tensor **out) {
  uint64_t arg[3];
  int dtype = a->input->l.dtype;
  if (!moth_is_float(dtype) && a->rtol == 0 && a->atol == 0) {
    const moth_tensor *operands[] = {out[0], a->input, a->other};
    return moth_map(a->ctx, moth_compare.eq, dtype, 3, operands, NULL);
  }
  if (!moth_is_float(dtype)) dtype = MOTH_F64;
  moth_numbers(dtype, arg, a->rtol, a->atol, (double)a->equal_nan);
  if (dtype == a->input->l.dtype)
    return map2(moth_binary.isclose, out[0], a->input, a->other, arg);
  moth_tensor *x = moth_cast(a->input, dtype), *y = moth_cast(a->other, dtype);
  int status = x && y ? map2(moth_binary.isclose, out[0], x, y, arg) : a->ctx->error.code;
  moth_tensor_release(x);
  moth_tensor_release(y);
  return status;
}

MOTH_OP_CONST(isclose, ISCLOSE, ANY, .flags = QUESTION_FLAGS,
              DOC("True where |input - other| <= atol + rtol |other|."),
              .examples = "moth.randn(2, 3), moth.randn(3)\n"
                          "moth.randn(2, 3), 0.5, {rtol = 0.1, atol = 0.5, equal_nan = true}")

/* -- of three tensors -- */

static int shape_of_three(moth_layout *y, const moth_tensor *x, const moth_tensor *p,
                          const char *first, const moth_tensor *q, const char *second) {
  int status = moth_broadcast(x->ctx, first, y, x, p);
  if (status || moth_layout_broadcast(y, &q->l)) return status;
  return moth_fail(x->ctx, MOTH_E_SHAPE, second, "%s cannot be broadcast with %s", moth_str(q),
                   moth_str_shape(x->ctx, y->ndim, y->shape));
}

static int map3(const moth_loops *loops, moth_tensor *y, const moth_tensor *x,
                const moth_tensor *p, const moth_tensor *q, const void *arg) {
  const moth_tensor *operands[] = {y, x, p, q};
  return moth_map(y->ctx, loops, y->l.dtype, 4, operands, arg);
}

static int lerp_shape(const lerp_args *a, moth_layout *y) {
  return shape_of_three(y, a->input, a->end, "end", a->weight, "weight");
}
static int lerp_cpu(const lerp_args *a, moth_tensor **out) {
  return map3(moth_binary.lerp, out[0], a->input, a->end, a->weight, NULL);
}
static int lerp_grad(const lerp_args *a, moth_grad *g) {
  moth_tensor *dy = g->dy;
  if (moth_wants(g, a->input))
    moth_flow(g, a->input, TIMES(dy, PLUS(NEGATED(a->weight), NUMBER(1))));
  if (moth_wants(g, a->end)) moth_flow(g, a->end, TIMES(dy, a->weight));
  if (moth_wants(g, a->weight)) moth_flow(g, a->weight, TIMES(dy, MINUS(a->end, a->input)));
  return g->status;
}
MOTH_OP(lerp, LERP, FLOATS, .flags = BINARY_FLAGS,
        SAVES("weight:input weight:end input:weight end:weight"),
        DOC("input + weight * (end - input)."),
        .examples = "moth.randn(2, 3), moth.randn(3), 0.25\n"
                    "moth.randn(2, 3), moth.randn(2, 3), moth.rand(2, 1)")

/* Writes `value` as the argument of the loops. */
static int value_of(moth_ctx *ctx, moth_scalar value, int dtype, uint64_t arg[3]) {
  arg[1] = arg[2] = 0;
  return moth_scalar_to(ctx, "value", value, moth_compute_dtype(dtype), arg);
}

static moth_tensor *by_value(moth_grad *g, moth_scalar value) {
  double by = value.type == 0 ? value.as.number : (double)value.as.integer;
  return by == 1 ? g->dy : TIMES(g->dy, NUMBER(by));
}

#define ADDC_SHAPE_AND_CPU(op)                                                             \
  static int op##_shape(const op##_args *a, moth_layout *y) {                              \
    uint64_t arg[3];                                                                       \
    int status = value_of(a->ctx, a->value, y->dtype, arg);                                \
    return status ? status                                                                 \
                  : shape_of_three(y, a->input, a->tensor1, "tensor1", a->tensor2, "tensor2"); \
  }                                                                                        \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                             \
    uint64_t arg[3];                                                                       \
    int status = value_of(a->ctx, a->value, out[0]->l.dtype, arg);                         \
    return status ? status                                                                 \
                  : map3(moth_binary.op, out[0], a->input, a->tensor1, a->tensor2, arg);   \
  }

ADDC_SHAPE_AND_CPU(addcmul)
static int addcmul_grad(const addcmul_args *a, moth_grad *g) {
  moth_tensor *dy = by_value(g, a->value);
  if (moth_wants(g, a->input)) moth_flow(g, a->input, g->dy);
  if (moth_wants(g, a->tensor1)) moth_flow(g, a->tensor1, TIMES(dy, a->tensor2));
  if (moth_wants(g, a->tensor2)) moth_flow(g, a->tensor2, TIMES(dy, a->tensor1));
  return g->status;
}
MOTH_OP(addcmul, ADDC, .dtypes = MOTH_NUMERIC | MOTH_PROMOTE, .flags = BINARY_FLAGS,
        SAVES("tensor1:tensor2 tensor2:tensor1"), DOC("input + value * tensor1 * tensor2."),
        .examples = "moth.randn(2, 3), moth.randn(3), moth.randn(2, 1)\n"
                    "moth.randn(2, 3), moth.randn(2, 3), moth.randn(3), {value = 2}")

ADDC_SHAPE_AND_CPU(addcdiv)
static int addcdiv_grad(const addcdiv_args *a, moth_grad *g) {
  moth_tensor *dy = by_value(g, a->value), *p = a->tensor1, *q = a->tensor2;
  if (moth_wants(g, a->input)) moth_flow(g, a->input, g->dy);
  if (moth_wants(g, p)) moth_flow(g, p, OVER(dy, q));
  if (moth_wants(g, q)) moth_flow(g, q, NEGATED(TIMES(dy, OVER(OVER(p, q), q))));
  return g->status;
}
MOTH_OP(addcdiv, ADDC, FLOATS, .flags = BINARY_FLAGS, SAVES("tensor1:tensor2 tensor2"),
        DOC("input + value * tensor1 / tensor2."),
        .examples = "moth.randn(2, 3), moth.randn(3), moth.rand(2, 1) + 1  -- domain: positive\n"
                    "moth.randn(2, 3), moth.randn(2, 3), moth.rand(3) + 1, {value = 2}"
                    "  -- domain: positive")

#define LISTED(kind, op, ...) &moth_op_##op,
const moth_op *const moth_binary_ops[] = {
  BINARY_REALS(LISTED) BINARY_BITS(LISTED) BINARY_THREES(LISTED)
  &moth_op_heaviside, &moth_op_isclose, &moth_op_nextafter, NULL,
};
