/* exponent.c -- the op of frexp. unary.h declares its arguments; unary.c lists it. */
#include "kernel/math/exponent.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "tensor/tensor.h"

#include "kernel/real.h"
#include "gradient_formula.h"

static int frexp_of_shape(const frexp_of_args *a, moth_layout *y) {
  moth_shape_like(a->input, &y[0]);
  moth_shape_like(a->input, &y[1]);
  y[1].dtype = MOTH_I32;
  return MOTH_OK;
}

static int frexp_of_cpu(const frexp_of_args *a, moth_tensor **out) {
  const int64_t n = out[0]->l.numel;
  if (n == 0) return MOTH_OK;
  moth_tensor *x = moth_real(a->input), *y = x ? moth_real_out(out[0]) : NULL;
  int status = y ? moth_exponents_of(a->ctx, n, x->l.dtype, moth_at(x), moth_at(y),
                                     (int32_t *)(void *)moth_at(out[1]))
                 : a->ctx->error.code;
  moth_tensor_release(x);
  return y ? moth_real_done(y, out[0], status) : status;
}

/* Returns dy 2^-exponent in two steps, because half of the power is always in range. */
static int frexp_of_grad(const frexp_of_args *a, moth_grad *g) {
  if (!g->dys[0]) return g->status;
  moth_tensor *dy = moth_grad_real(g, g->dys[0]);
  moth_tensor *e = GRAD(g, cast, .input = g->out[1], .dtype = dy ? dy->l.dtype : MOTH_F32);
  moth_tensor *some = OF(floor, TIMES(e, NUMBER(0.5))), *rest = MINUS(e, some);
  dy = TIMES(dy, OF(exp2, NEGATED(some)));
  return moth_flow(g, a->input, TIMES(dy, OF(exp2, NEGATED(rest))));
}

MOTH_OP(frexp_of, FREXP_OF, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_HIDDEN, .saves = "exponent",
        .outputs = "mantissa, exponent",
        .doc = "Mantissa and exponent of each element, on the CPU: input = mantissa * 2^exponent, "
               "|mantissa| in [1/2, 1).",
        .examples = "moth.randn(2, 3)  -- domain: positive")
