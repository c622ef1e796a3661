/* gradient.h -- the functions by which the gradients of ops are written. `a` has the saved
** arguments; those not in .saves have a layout but no bytes. A tensor that GRAD returns is borrowed
** from g. It is NULL after an error, and so are all later ones: formulas need no checks. */
#ifndef MOTH_GRADIENT_H
#define MOTH_GRADIENT_H

#include "call/op.h"


struct moth_grad {
  moth_ctx *ctx;
  moth_tensor *dy;   /* gradient of the first result; not NULL if it is the only one */
  moth_tensor **dys; /* of every result; NULL: none arrived */
  moth_tensor **out; /* saved results, or only their layouts */
  const bool *wants; /* for each tensor input: is its gradient needed? */
  moth_tensor **dx;  /* gradients of the inputs so far, owned */
  uint32_t nin;
  int status;
  struct moth_task *task; /* the pass; where its gradients are accumulated */
  const struct moth_edge *edges;
  moth_tensor **pool; /* temporaries, released after the gradient */
  uint32_t npool, pool_capacity;
  struct moth_node *node;
  bool last; /* no later pass needs this graph: saved tensors may be freed after their last use */
};

static inline bool moth_wants(const moth_grad *g, const moth_tensor *input) {
  return input && g->wants[input->arg];
}
moth_tensor *moth_grad_run(moth_grad *g, const moth_op *op, const void *args);
moth_tensor *moth_grad_own(moth_grad *g, moth_tensor *take); /* g releases the temporary */
#define GRAD(g, op, ...) \
  moth_grad_run((g), &moth_op_##op, &(op##_args){.ctx = (g)->ctx, __VA_ARGS__})
moth_tensor *moth_grad_number(moth_grad *g, double value); /* a number as operand */
moth_tensor *moth_grad_zeros(moth_grad *g, const moth_tensor *x); /* in the shape of x */
/* x in its compute dtype: f32 for half types, so that a formula of several steps rounds only once,
** when moth_flow casts back. Returns x itself if it is NULL or has no bytes. */
moth_tensor *moth_grad_real(moth_grad *g, moth_tensor *x);
/* dy / n, rounded once; n may be outside the range of dy's dtype. */
moth_tensor *moth_grad_share(moth_grad *g, moth_tensor *dy, double n);

/* GRAD for an elementwise op that is the last use of g->dy in a formula and has its size: writes
** the result into g->dy if it has no other references. */
moth_tensor *moth_grad_run_over(moth_grad *g, const moth_op *op, const void *args);
#define GRAD_OVER(g, op, ...) \
  moth_grad_run_over((g), &moth_op_##op, &(op##_args){.ctx = (g)->ctx, __VA_ARGS__})

/* Call after the last read of an input: frees its bytes. Its layout stays. */
void moth_spent(moth_grad *g, moth_tensor *input);

/* Adds dx (borrowed, NULL after an error) to the gradient of `input`: sums it over the dimensions
** that broadcasting added, and casts it to the input's dtype. Returns g->status. */
int moth_flow(moth_grad *g, const moth_tensor *input, moth_tensor *dx);

/* The same for a matrix whose gradient is the sum of outer products of the rows of a (..., m) and b
** (..., n). Products of few rows are deferred, as when a network's steps share a weight, and are
** computed together. */
int moth_flow_outer(moth_grad *g, const moth_tensor *input, moth_tensor *a, moth_tensor *b);
/* The gradient of the layer's bias: the sum of a's rows, which may be deferred too. */
int moth_flow_rows(moth_grad *g, const moth_tensor *bias, const moth_tensor *weight,
                   moth_tensor *a);
/* Computes both gradients in one call if the device supports it. x is the layer's input, a the
** gradient of its output. Returns false if nothing was done: then call the two functions above. */
bool moth_flow_both(moth_grad *g, const moth_tensor *weight, const moth_tensor *bias,
                    moth_tensor *a, moth_tensor *x);
/* Does only the gradient of a view, without hooks or user code, read the gradient of input? */
bool moth_flow_unseen(const moth_grad *g, const moth_tensor *input);
/* moth_flow of g->dy to a part of input, where `whole` is the layout of input. *done is false
** if there is no gradient with the layout `whole` yet to which g->dy could be added. */
int moth_flow_part(moth_grad *g, const moth_tensor *input, const moth_layout *whole,
                   const moth_layout *part, bool *done);

#endif
