/* special.c -- erfinv, and the logarithm of the gamma function with its slopes. */
#include "special.h"

#include "../kernel/special.h"
#include "formula.h"

#define FLAGS \
  (MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_STRIDED | MOTH_OP_METHOD | MOTH_OP_PORTABLE)

static int map1(const moth_loops *loops, moth_tensor *y, const moth_tensor *x, const void *arg) {
  const moth_tensor *operands[] = {y, x};
  return moth_map(y->ctx, loops, x->l.dtype, 2, operands, arg);
}

/* x is the input, y the result. */
#define FUNCTION(op, slope, ...)                                                   \
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
  MOTH_OP(op, SPECIAL, .dtypes = MOTH_ANY | MOTH_TO_FLOAT, .flags = FLAGS, __VA_ARGS__)

/* sqrt(pi) / 2 exp(y^2) */
FUNCTION(erfinv, TIMES(OF(exp, OF(square, y)), NUMBER(0.88622692545275801365)), .saves = "y",
         .examples = "moth.rand(2, 3)  -- domain: unit",
         .doc = "The number whose erf it is: infinite at 1 and -1, NaN beyond.")
FUNCTION(lgamma, OF(digamma, x), .saves = "input",
         .examples = "moth.rand(2, 3)  -- domain: positive",
         .doc = "The logarithm of the size of the gamma function, which is (x - 1)! for whole x.")
FUNCTION(digamma, GRAD(g, polygamma_of, .input = x, .n = 1), .saves = "input",
         .examples = "moth.rand(2, 3)  -- domain: positive", .doc = "The slope of lgamma.")

static int polygamma_of_shape(const polygamma_of_args *a, moth_layout *y) {
  if (a->n < 0)
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "n", "a number from 0 on is needed, got %lld",
                     (long long)a->n);
  return moth_shape_like(a->input, y);
}

static int polygamma_of_cpu(const polygamma_of_args *a, moth_tensor **out) {
  uint64_t arg[3] = {0};
  moth_numbers(out[0]->l.dtype, arg, (double)a->n, 0, 0);
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
        .doc = "The n-th slope of digamma.")

const moth_op *const moth_special_ops[] = {&moth_op_erfinv, &moth_op_lgamma, &moth_op_digamma,
                                           &moth_op_polygamma_of, NULL};
