/* recurrent_call.h -- one struct of arguments for all recurrent ops, for the files that share their
** code. */
#ifndef MOTH_OP_RECURRENT_CALL_H
#define MOTH_OP_RECURRENT_CALL_H

#include "kernel/recurrent.h"
#include "call/op.h"

typedef struct recurrent_call {
  moth_ctx *ctx;
  int mode;
  bool cell; /* one step without dimensions for time and layers */
  moth_tensor *input, *h0, *c0;
  moth_tensors params;
  bool biased, bidirectional, batch_first, masked;
  int64_t layers;
  moth_ints sizes;
} recurrent_call;

/* Checks every shape and fills r except for its params. */
int moth_recurrent_fit(const recurrent_call *c, moth_rnn *r);
/* Fails with an error for the input, instead of the first weight, if the number of features is
** wrong. */
int moth_recurrent_features(const recurrent_call *c, const moth_rnn *r);
/* Checks the shape of one parameter: (rows, cols), or (rows,) if cols is 0. `what` describes it in
** errors. */
int moth_recurrent_param(moth_ctx *ctx, const char *arg, const char *what, const moth_tensor *x,
                         int64_t rows, int64_t cols);
/* Writes the shapes of y (none for a cell), the states, the cells and the reserve, in this
** order. */
int moth_recurrent_shape(const recurrent_call *c, moth_layout *y);
int moth_recurrent_run(const recurrent_call *c, double p, moth_tensor *generator,
                       moth_tensor **out);

typedef struct recurrent_operands { /* packed tensors in the compute dtype, for the kernels */
  moth_ctx *ctx;
  moth_tensor *x, *h0, *c0;
  moth_tensor **params; /* n tensors; the memory of the list follows */
  int64_t n, bytes;
} recurrent_operands;

/* Fills r's params. The caller must close the operands, also after an error. */
int moth_recurrent_open(const recurrent_call *c, moth_rnn *r, recurrent_operands *o);
void moth_recurrent_close(recurrent_operands *o);

/* Adds the gradients: with one fused op, or under create_graph by repeating the steps with plain
** ops and a backward pass through them. */
int moth_recurrent_grad(const recurrent_call *c, moth_grad *g);

#endif
