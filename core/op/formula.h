/* formula.h -- the words that gradients are written in, inside a function with `moth_grad *g`. */
#ifndef MOTH_OP_FORMULA_H
#define MOTH_OP_FORMULA_H

#include "arith.h"
#include "compare.h"
#include "copy.h"
#include "unary.h"

#define NUMBER(value) moth_grad_number(g, value)
#define TIMES(p, q) GRAD(g, mul, .input = p, .other = q)
#define OVER(p, q) GRAD(g, div, .input = p, .other = q, .rounding_mode = MOTH_ROUND_NONE)
#define PLUS(p, q) GRAD(g, add, .input = p, .other = q, .alpha = {.as.number = 1})
#define LESS(p, q) GRAD(g, sub, .input = p, .other = q, .alpha = {.as.number = 1})
#define OF(op, x) GRAD(g, op, .input = x)
#define MINUS(p) OF(neg, p)
#define CHOOSE(mask, p, q) GRAD(g, where, .condition = mask, .input = p, .other = q)
#define ABOVE(p, q) GRAD(g, gt, .input = p, .other = q)
#define BELOW(p, q) GRAD(g, lt, .input = p, .other = q)
#define BOTH(p, q) GRAD(g, logical_and, .input = p, .other = q)
/* The gradient of what is constant almost everywhere. */
#define ZERO_OF(x) GRAD(g, spread, .input = NUMBER(0), .size = {(x)->l.shape, (x)->l.ndim})

#endif
