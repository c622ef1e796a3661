/* gradient_formula.h -- short names for gradient formulas, for functions with a parameter
** `moth_grad *g`. */
#ifndef MOTH_OP_GRADIENT_FORMULA_H
#define MOTH_OP_GRADIENT_FORMULA_H

#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "matmul.h"
#include "unary.h"
#include "view.h"
#include "autograd/gradient.h"

#define NUMBER(value) moth_grad_number(g, value)
#define TIMES(p, q) GRAD(g, mul, .input = p, .other = q)
#define OVER(p, q) GRAD(g, div, .input = p, .other = q, .rounding_mode = MOTH_ROUND_NONE)
#define PLUS(p, q) GRAD(g, add, .input = p, .other = q, .alpha = {.as.number = 1})
#define MINUS(p, q) GRAD(g, sub, .input = p, .other = q, .alpha = {.as.number = 1})
#define PRODUCT(p, q) GRAD(g, matmul, .input = p, .other = q)
#define TRANSPOSED(p) GRAD(g, transpose, .input = p, .dim0 = -2, .dim1 = -1)
#define OF(op, x) GRAD(g, op, .input = x)
#define NEGATED(p) OF(neg, p)
#define CHOOSE(mask, p, q) GRAD(g, where, .condition = mask, .input = p, .other = q)
#define ABOVE(p, q) GRAD(g, gt, .input = p, .other = q)
#define BELOW(p, q) GRAD(g, lt, .input = p, .other = q)
#define BOTH(p, q) GRAD(g, logical_and, .input = p, .other = q)
#define FILLED(p, where, with) \
  GRAD(g, masked_fill, .input = p, .mask = where, .value = {.as.number = with})
/* p is a reduced tensor. It is broadcast to the input's shape, by the arguments `a` of the
** reduction. */
#define SPREAD_BACK(p)                                                                       \
  GRAD(g, spread, .input = p, .size = {a->input->l.shape, a->input->l.ndim}, .dim = a->dim, \
       .keepdim = a->keepdim)
/* The gradient of functions that are constant almost everywhere. */
#define ZERO_OF(x) moth_grad_zeros(g, x)

#endif
