/* recurrent_call.h -- one struct for all recurrent ops, for the files that share their code. */
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

/* Checks every shape and fills r but for its params. */
int moth_recurrent_fit(const recurrent_call *c, moth_rnn *r);
/* Blames a misfit of the features on the input, not on the first weight. */
int moth_recurrent_features(const recurrent_call *c, const moth_rnn *r);
/* One parameter: (rows, cols), or (rows,) if cols is 0; `what` describes it in the message. */
int moth_recurrent_param(moth_ctx *ctx, const char *arg, const char *what, const moth_tensor *x,
                         int64_t rows, int64_t cols);
/* Shapes of y (or of nothing for a cell), the states, the cells and the reserve, in that order. */
int moth_recurrent_shape(const recurrent_call *c, moth_layout *y);
int moth_recurrent_run(const recurrent_call *c, double p, moth_tensor *generator,
                       moth_tensor **out);

typedef struct recurrent_operands { /* packed and real, as the kernels want them */
  moth_ctx *ctx;
  moth_tensor *x, *h0, *c0;
  moth_tensor **params; /* n of them, followed by the memory that holds them */
  int64_t n, bytes;
} recurrent_operands;

/* Fills r's params; to be closed whatever the status. */
int moth_recurrent_open(const recurrent_call *c, moth_rnn *r, recurrent_operands *o);
void moth_recurrent_close(recurrent_operands *o);

/* Sends the gradients on: by one fused op, or, where they are recorded themselves, by doing the
** steps again with plain ops and walking back through those. */
int moth_recurrent_grad(const recurrent_call *c, moth_grad *g);

#endif
