/* gradient.h -- what the gradient of an op is written with.
** `a` holds the arguments as saved (those not in .saves have a layout but no bytes). What GRAD
** returns is borrowed from g and NULL after an error, which sticks: formulas need no checks. */
#ifndef MOTH_GRADIENT_H
#define MOTH_GRADIENT_H

#include "call/op.h"


struct moth_grad {
  moth_ctx *ctx;
  moth_tensor *dy;   /* gradient of the first result; never NULL when it is the only one */
  moth_tensor **dys; /* of every result; NULL where none arrived */
  moth_tensor **out; /* results as saved, layouts at least */
  const bool *wants; /* of each tensor input: does it want a gradient? */
  moth_tensor **dx;  /* what was given so far, owned */
  uint32_t nin;
  int status;
  struct moth_task *task; /* whose pass it is, and where its inputs' gradients go */
  const struct moth_edge *edges;
  moth_tensor **pool; /* temporaries, released when the gradient returns */
  uint32_t npool, pool_room;
  struct moth_node *node;
  bool last; /* the pass that keeps nothing for another one: what is used up may go at once */
};

static inline bool moth_wants(const moth_grad *g, const moth_tensor *input) {
  return input && g->wants[input->arg];
}
moth_tensor *moth_grad_run(moth_grad *g, const moth_op *op, const void *args);
moth_tensor *moth_grad_own(moth_grad *g, moth_tensor *take); /* hands a temporary to g */
#define GRAD(g, op, ...) \
  moth_grad_run((g), &moth_op_##op, &(op##_args){.ctx = (g)->ctx, __VA_ARGS__})
moth_tensor *moth_grad_number(moth_grad *g, double value); /* a number as operand */
moth_tensor *moth_grad_zeros(moth_grad *g, const moth_tensor *x); /* in the shape of x */
/* x in the dtype that its elements are computed in: f32 for half types, so that a formula of
** several steps rounds once, when moth_flow casts back. As it is if NULL or without bytes. */
moth_tensor *moth_grad_real(moth_grad *g, moth_tensor *x);
/* dy / n, rounded once; n may lie beyond dy's dtype. */
moth_tensor *moth_grad_share(moth_grad *g, moth_tensor *dy, double n);

/* GRAD for an op that maps element to element, the last use of g->dy in a formula and of its size:
** the result takes its place where nobody else has it. */
moth_tensor *moth_grad_run_over(moth_grad *g, const moth_op *op, const void *args);
#define GRAD_OVER(g, op, ...) \
  moth_grad_run_over((g), &moth_op_##op, &(op##_args){.ctx = (g)->ctx, __VA_ARGS__})

/* A formula has read an input for the last time; its layout stays. */
void moth_spent(moth_grad *g, moth_tensor *input);

/* dx (borrowed, NULL after an error) is the gradient of `input`: summed over the dimensions that
** broadcasting added and cast to the input's dtype. Returns g->status. */
int moth_flow(moth_grad *g, const moth_tensor *input, moth_tensor *dx);

/* The same for a matrix whose gradient is the sum of the outer products of the rows of a (..., m)
** and b (..., n). Where these are few, as when a network's steps share a weight, they wait for
** those to come and are multiplied together. */
int moth_flow_outer(moth_grad *g, const moth_tensor *input, moth_tensor *a, moth_tensor *b);
/* And for the bias beside that weight: the sum of a's rows, which may wait as well. */
int moth_flow_rows(moth_grad *g, const moth_tensor *bias, const moth_tensor *weight,
                   moth_tensor *a);
/* Both at once, where a device can: of a layer with input x whose output has the gradient a. False:
** nothing was done, ask for each. */
bool moth_flow_both(moth_grad *g, const moth_tensor *weight, const moth_tensor *bias,
                    moth_tensor *a, moth_tensor *x);
/* Whether nothing but the gradient of a view gets what flows to input: no hook, no user's code. */
bool moth_flow_unseen(const moth_grad *g, const moth_tensor *input);
/* moth_flow for g->dy at a part of input, where that lies as `whole`; unless *done, there is no
** gradient yet, lying so, that it could be added to. */
int moth_flow_part(moth_grad *g, const moth_tensor *input, const moth_layout *whole,
                   const moth_layout *part, bool *done);

#endif
