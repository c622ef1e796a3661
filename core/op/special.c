/* special.c -- special functions: the logarithm of the gamma function with its derivatives and
** incomplete forms, tails of the normal distribution, Bessel functions, zeta.
*/
#include "special.h"
#include "tensor/shape.h"
#include "base/error.h"

#include <math.h>

#include "kernel/math/polynomial.h"
#include "kernel/math/special.h"
#include "call/observer.h"
#include "binary.h"
#include "gradient_formula.h"

/* flags of functions in moth.special */
#define SPACED (MOTH_OP_HIDDEN | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_PORTABLE)
#define METHOD \
  (MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE)

static int map1(const moth_loops *loops, moth_tensor *y, const moth_tensor *x, const void *arg) {
  const moth_tensor *operands[] = {y, x};
  return moth_map(y->ctx, loops, x->l.dtype, 2, operands, arg);
}

/* x is the input, y the result. */
#define FUNCTION(op, kind, slope, ...)                                             \
  static int op##_shape(const op##_args *a, moth_layout *y) {                      \
    return moth_shape_like(a->input, y);                                           \
  }                                                                                \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                     \
    return map1(moth_special.op, out[0], a->input, NULL);                          \
  }                                                                                \
  static int op##_grad(const op##_args *a, moth_grad *g) {                         \
    moth_tensor *x = a->input, *y = g->out[0];                                     \
    (void)y;                                                                       \
    return moth_flow(g, x, TIMES(g->dy, slope));                                   \
  }                                                                                \
  MOTH_OP(op, SPECIAL, .dtypes = MOTH_ANY | MOTH_TO_FLOAT, .flags = kind, __VA_ARGS__)

/* sqrt(pi) / 2 exp(y^2) */
FUNCTION(erfinv, METHOD, TIMES(OF(exp, OF(square, y)), NUMBER(0.88622692545275801365)),
         .saves = "y", .examples = "moth.rand(2, 3)  -- domain: unit",
         .doc = "The inverse of erf: infinite at 1 and -1, NaN beyond.",
         .autocast = MOTH_AUTOCAST_F32)
FUNCTION(lgamma, METHOD, OF(digamma, x), .saves = "input",
         .examples = "moth.rand(2, 3)  -- domain: positive",
         .doc = "log(|gamma(x)|), the logarithm of the absolute value of the gamma function; "
                "gamma(x) is (x - 1)! for integers.")
FUNCTION(digamma, METHOD, GRAD(g, polygamma_of, .input = x, .n = 1), .saves = "input",
         .examples = "moth.rand(2, 3)  -- domain: positive", .doc = "The derivative of lgamma.")

static int polygamma_of_shape(const polygamma_of_args *a, moth_layout *y) {
  if (a->n < 0)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "n", "a number from 0 on is needed, got %lld",
                     (long long)a->n);
  return moth_shape_like(a->input, y);
}

static int polygamma_of_cpu(const polygamma_of_args *a, moth_tensor **out) {
  uint64_t arg[3] = {0};
  moth_numbers(out[0]->l.dtype, arg, (double)a->n, 0, 0);
  if (a->n == 1 && !out[0]->l.device) return map1(moth_bessel.trigamma, out[0], a->input, arg);
  return map1(moth_special.polygamma_of, out[0], a->input, arg);
}

static int polygamma_of_grad(const polygamma_of_args *a, moth_grad *g) {
  moth_tensor *next = GRAD(g, polygamma_of, .input = a->input, .n = a->n + 1);
  return moth_flow(g, a->input, TIMES(g->dy, next));
}

MOTH_OP(polygamma_of, POLYGAMMA_OF, .saves = "input", .dtypes = MOTH_ANY | MOTH_TO_FLOAT,
        .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE,
        .examples = "moth.rand(2, 3), 0  -- domain: positive\n"
                    "moth.rand(2, 3), 2  -- domain: positive",
        .doc = "The n-th derivative of digamma.", .public_name = "polygamma")

/* -- Bessel functions -- */

#define MOST_ORDER 16 /* limit of derivatives that have a formula, SPECIAL_ORDERS */

static int bessel_of_shape(const bessel_of_args *a, moth_layout *y) {
  if (a->n < 0 || a->n > MOST_ORDER || (a->n > 0 && (a->kind | 1) == (MOTH_BESSEL_AIRY | 1)))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "n", "derivative %lld is not supported",
                                                 (long long)a->n);
  return moth_shape_like(a->input, y);
}

/* Returns true if a loop of moth_bessel computes y. Devices and moth.kernel know only the functions
** of moth_special, by number. */
static bool takes_loop(const moth_ctx *ctx, const moth_tensor *y) {
  return !y->l.device && y->l.dtype != MOTH_F64 && !moth_traces(ctx);
}

/* Returns the f32 loops of a function (n 0) or its first derivative (n 1), or NULL. */
static const moth_loops *bessel_loops(int64_t kind, int64_t n) {
  static const moth_loops *const of[2][MOTH_BESSEL_I1E + 1] = {
    {moth_bessel.bessel_j0, moth_bessel.bessel_j1, moth_bessel.bessel_y0,
     moth_bessel.bessel_y1, [MOTH_BESSEL_AIRY] = moth_bessel.bessel_airy,
     [MOTH_BESSEL_I0] = moth_special.i0, moth_special.special_i1, moth_special.special_i0e,
     moth_special.special_i1e},
    {moth_bessel.bessel_j0_slope, moth_bessel.bessel_j1_slope, moth_bessel.bessel_y0_slope,
     moth_bessel.bessel_y1_slope, [MOTH_BESSEL_I0] = moth_special.special_i1,
     moth_bessel.bessel_i1_slope, moth_bessel.bessel_i0e_slope,
     moth_bessel.bessel_i1e_slope}};
  return n < 2 ? of[n][kind] : NULL;
}

static int bessel_of_cpu(const bessel_of_args *a, moth_tensor **out) {
  uint64_t arg[3] = {0};
  const moth_loops *own = takes_loop(a->ctx, out[0]) ? bessel_loops(a->kind, a->n) : NULL;
  if (own) return map1(own, out[0], a->input, NULL);
  moth_numbers(out[0]->l.dtype, arg, (double)a->kind, (double)a->n, 0);
  return map1(moth_special.bessel_of, out[0], a->input, arg);
}

static moth_tensor *bessel_derivative(moth_grad *g, moth_tensor *x, int64_t kind, int64_t n) {
  return GRAD(g, bessel_of, .input = x, .kind = kind, .n = n);
}

/* The Airy function and its derivative have consecutive numbers; Ai'' = x Ai. */
static int bessel_of_grad(const bessel_of_args *a, moth_grad *g) {
  moth_tensor *x = a->input, *slope;
  if (a->kind == MOTH_BESSEL_AIRY) slope = bessel_derivative(g, x, a->kind + 1, 0);
  else if (a->kind == MOTH_BESSEL_AIRY + 1)
    slope = TIMES(x, bessel_derivative(g, x, a->kind - 1, 0));
  else slope = bessel_derivative(g, x, a->kind, a->n + 1);
  return moth_flow(g, x, TIMES(g->dy, slope));
}

MOTH_OP(bessel_of, BESSEL_OF, .saves = "input", .dtypes = MOTH_ANY | MOTH_TO_FLOAT,
        .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE,
        .examples = "moth.rand(2, 3)  -- domain: positive\n"
                    "moth.rand(2, 3), 'scaled_k1'  -- domain: positive\n"
                    "moth.rand(2, 3), 'j1', 2  -- domain: positive",
        .doc = "Bessel functions of order 0 and 1, also scaled by exp(x) or exp(-|x|), the Airy "
               "function, and their derivatives.")

FUNCTION(i0, METHOD, bessel_derivative(g, x, MOTH_BESSEL_I0, 1), .saves = "input",
         .examples = "moth.randn(2, 3)",
         .doc = "The modified Bessel function of the first kind of order 0.")
FUNCTION(special_i0e, SPACED, bessel_derivative(g, x, MOTH_BESSEL_I0E, 1), .saves = "input",
         .examples = "moth.rand(2, 3)  -- domain: positive",
         .doc = "exp(-|x|) times the modified Bessel function of the first kind of order 0.")
FUNCTION(special_i1, SPACED, bessel_derivative(g, x, MOTH_BESSEL_I1, 1), .saves = "input",
         .examples = "moth.rand(2, 3)  -- domain: positive",
         .doc = "The modified Bessel function of the first kind of order 1.")
FUNCTION(special_i1e, SPACED, bessel_derivative(g, x, MOTH_BESSEL_I1E, 1), .saves = "input",
         .examples = "moth.rand(2, 3)  -- domain: positive",
         .doc = "exp(-|x|) times the modified Bessel function of the first kind of order 1.")

/* -- orthogonal polynomials, on the CPU and without a gradient: polynomials.lua has the rest -- */

static int polynomial_of_shape(const polynomial_of_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int polynomial_of_cpu(const polynomial_of_args *a, moth_tensor **out) {
  uint64_t arg[3] = {0};
  moth_numbers(out[0]->l.dtype, arg, (double)a->kind, (double)a->n, (double)a->shifted);
  return map1(moth_polynomial, out[0], a->input, arg);
}

MOTH_OP_CONST(polynomial_of, POLYNOMIAL_OF, .dtypes = MOTH_FLOATS,
              .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED,
              .examples = "moth.randn(2, 3), 'laguerre_l', 3\n"
                          "moth.randn(2, 3), 'chebyshev_v', 2, {shifted = true}",
              .doc = "Orthogonal polynomials of degree n.")

/* -- n-th derivatives with separate formulas -- */

/* `own`: the f32 loops of this derivative, or NULL. */
#define NTH_DERIVATIVE(op, LIST, least, b, own, ...)                               \
  static int op##_shape(const op##_args *a, moth_layout *y) {                      \
    if (a->n < least || a->n > MOST_ORDER)                                         \
      return moth_fail(a->ctx, MOTH_E_DOMAIN, "n",                                 \
                       "derivatives of order %d to %d are supported, got %lld",    \
                       least, MOST_ORDER, (long long)a->n);                        \
    return moth_shape_like(a->input, y);                                           \
  }                                                                                \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                     \
    uint64_t arg[3] = {0};                                                         \
    moth_numbers(out[0]->l.dtype, arg, (double)a->n, (double)(b), 0);              \
    const moth_loops *loops = takes_loop(a->ctx, out[0]) ? own : NULL;             \
    if (loops) return map1(loops, out[0], a->input, NULL);                         \
    return map1(moth_special.op, out[0], a->input, arg);                           \
  }                                                                                \
  static int op##_grad(const op##_args *a, moth_grad *g) {                         \
    moth_tensor *next = GRAD(g, op, .input = a->input, __VA_ARGS__);               \
    return moth_flow(g, a->input, TIMES(g->dy, next));                             \
  }                                                                                \
  MOTH_OP(op, LIST, .saves = "input", .dtypes = MOTH_ANY | MOTH_TO_FLOAT,          \
          .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE, NTH_##op)

#define NTH_sinc_slope \
  .doc = "The n-th derivative of sin(x) / x.", \
  .examples = "moth.randn(2, 3), 2\nmoth.randn(2, 3), {turns = true}"
#define NTH_erfcx_slope \
  .doc = "The n-th derivative of exp(x^2) erfc(x).", .examples = "moth.randn(2, 3), 2"
#define NTH_log_ndtr_slope \
  .doc = "The n-th derivative of the logarithm of the standard normal distribution function.", \
  .examples = "moth.randn(2, 3), 2"
static const moth_loops *sinc_loops(int64_t n, bool turns) {
  if (turns) return n == 1 ? moth_bessel.sinc_first : NULL;
  return n == 0 ? moth_bessel.spherical_j0 : NULL;
}

NTH_DERIVATIVE(sinc_slope, SINC_SLOPE, 0, a->turns, sinc_loops(a->n, a->turns), .n = a->n + 1,
               .turns = a->turns)
NTH_DERIVATIVE(erfcx_slope, TAIL_SLOPE, 1, 0, a->n == 1 ? moth_bessel.erfcx_first : NULL,
               .n = a->n + 1)
NTH_DERIVATIVE(log_ndtr_slope, TAIL_SLOPE, 1, 0, a->n == 1 ? moth_bessel.log_ndtr_first : NULL,
               .n = a->n + 1)

/* -- tails of the normal distribution -- */

FUNCTION(special_erfcx, SPACED, GRAD(g, erfcx_slope, .input = x, .n = 1), .saves = "input",
         .examples = "moth.randn(2, 3)", .doc = "exp(x^2) erfc(x), without underflow of erfc.")
/* sqrt(2 pi) exp(y^2 / 2) */
FUNCTION(special_ndtri, SPACED, TIMES(OF(exp, TIMES(OF(square, y), NUMBER(0.5))),
                              NUMBER(2.50662827463100050242)),
         .saves = "y", .examples = "moth.rand(2, 3)  -- domain: prob",
         .doc = "The inverse of the standard normal distribution function.")
FUNCTION(special_log_ndtr, SPACED, GRAD(g, log_ndtr_slope, .input = x, .n = 1), .saves = "input",
         .examples = "moth.randn(2, 3)",
         .doc = "The logarithm of the standard normal distribution function, accurate in the "
                "tails.")

/* -- functions of two numbers; p and q are the operands -- */

static int no_derivative(moth_grad *g, const char *op) {
  return g->status = moth_fail(g->ctx, MOTH_E_UNSUPPORTED, "input",
                               "%s has no gradient for this argument; detach it", op);
}

#define PAIR(op, kind, slope, ...)                                                        \
  static int op##_shape(const op##_args *a, moth_layout *y) {                             \
    return moth_broadcast(a->ctx, "other", y, a->input, a->other);                        \
  }                                                                                       \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                            \
    const moth_tensor *operands[] = {out[0], a->input, a->other};                         \
    return moth_map(a->ctx, moth_special.op, a->input->l.dtype, 3, operands, NULL);       \
  }                                                                                       \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                \
    moth_tensor *p = a->input, *q = a->other;                                             \
    if (moth_wants(g, p)) return no_derivative(g, #op);                                   \
    return moth_flow(g, q, TIMES(g->dy, slope));                                          \
  }                                                                                       \
  MOTH_OP(op, SPECIAL_PAIR, .dtypes = MOTH_ANY | MOTH_PROMOTE | MOTH_TO_FLOAT,            \
          .flags = kind, .saves = "input other", __VA_ARGS__)

/* q^(p - 1) exp(-q) / Gamma(p) */
static moth_tensor *gamma_density(moth_grad *g, moth_tensor *p, moth_tensor *q) {
  moth_tensor *power = GRAD(g, xlogy, .input = MINUS(p, NUMBER(1)), .other = q);
  return OF(exp, MINUS(MINUS(power, q), OF(lgamma, p)));
}

PAIR(igamma, METHOD & ~(uint32_t)MOTH_OP_INPLACE, gamma_density(g, p, q),
     .examples = "moth.tensor{2LL, 3LL, 1LL}, moth.rand(2, 3)  -- domain: positive",
     .doc = "The regularized lower incomplete gamma function: the probability that a gamma "
            "variable of shape `input` is below `other`.")
PAIR(igammac, METHOD & ~(uint32_t)MOTH_OP_INPLACE, NEGATED(gamma_density(g, p, q)),
     .examples = "moth.tensor{2LL, 3LL, 1LL}, moth.rand(2, 3)  -- domain: positive",
     .doc = "The regularized upper incomplete gamma function: the probability that a gamma "
            "variable of shape `input` is above `other`.")
PAIR(special_zeta, SPACED,
     NEGATED(TIMES(p, GRAD(g, special_zeta, .input = PLUS(p, NUMBER(1)), .other = q))),
     .examples = "moth.tensor{2LL, 3LL, 4LL}, moth.rand(2, 3)  -- domain: positive",
     .doc = "The Hurwitz zeta function: the sum of (other + k)^-input over k = 0, 1, 2, ...")

static int gamma_slope_shape(const gamma_slope_args *a, moth_layout *y) {
  return moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

static int gamma_slope_cpu(const gamma_slope_args *a, moth_tensor **out) {
  const moth_tensor *operands[] = {out[0], a->input, a->other};
  return moth_map(a->ctx, moth_special.gamma_slope, a->input->l.dtype, 3, operands, NULL);
}

MOTH_OP_CONST(gamma_slope, SPECIAL_PAIR, .dtypes = MOTH_FLOATS | MOTH_PROMOTE,
              .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE,
              .examples = "moth.rand(2, 3), moth.rand(2, 3)  -- domain: positive",
              .doc = "The derivative of gamma random numbers with respect to the shape parameter.")

const moth_op *const moth_special_ops[] = {
  &moth_op_erfinv, &moth_op_lgamma, &moth_op_digamma, &moth_op_polygamma_of, &moth_op_bessel_of,
  &moth_op_polynomial_of,
  &moth_op_sinc_slope, &moth_op_erfcx_slope, &moth_op_log_ndtr_slope, &moth_op_i0,
  &moth_op_special_i0e, &moth_op_special_i1, &moth_op_special_i1e, &moth_op_special_erfcx,
  &moth_op_special_ndtri, &moth_op_special_log_ndtr, &moth_op_igamma, &moth_op_igammac,
  &moth_op_special_zeta, &moth_op_gamma_slope, NULL};
