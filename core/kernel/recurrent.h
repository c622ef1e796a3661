/* recurrent.h -- kernels of recurrent networks over packed f32 or f64, time first.
**
** One matrix product projects the inputs of all steps; each step then adds the product of its
** state. The gradient reads one buffer, the reserve. It has, for each layer and direction, the
** gates after their activation, (steps, batch, kept * hidden), and the cells of an LSTM; for each
** layer its output, (steps, batch, directions * hidden); between layers the dropout masks.
*/
#ifndef MOTH_KERNEL_RECURRENT_H
#define MOTH_KERNEL_RECURRENT_H

#include "call/op.h"

enum { MOTH_RNN_TANH, MOTH_RNN_RELU, MOTH_LSTM, MOTH_GRU };

typedef struct moth_rnn {
  int mode, dtype;
  int device; /* the device of all buffers */
  int64_t steps, batch, input, hidden;
  int64_t layers, directions;
  bool biased, masked;  /* masked: dropout between layers */
  int given;            /* dtype of the inputs; half types are computed in f32 */
  const int64_t *sizes; /* number of active sequences at each step, descending; NULL: all */
  const void **params;  /* w_ih, w_hh[, b_ih, b_hh] for each layer and direction */
} moth_rnn;

static inline int64_t moth_rnn_gates(int mode) {
  return mode == MOTH_LSTM ? 4 : mode == MOTH_GRU ? 3 : 1;
}
/* Gates kept per step. A GRU also keeps the state's term of its last gate. */
static inline int64_t moth_rnn_kept(int mode) {
  return mode == MOTH_LSTM || mode == MOTH_GRU ? 4 : 1;
}
static inline int64_t moth_rnn_inputs(const moth_rnn *r, int64_t layer) {
  return layer ? r->directions * r->hidden : r->input;
}

/* The number of active sequences at time t. */
static inline int64_t moth_rnn_active(const moth_rnn *r, int64_t t) {
  if (t < 0 || t >= r->steps) return 0;
  return r->sizes ? r->sizes[t] : r->batch;
}

/* Step i of a direction: its time, its rows, and how many of these have a previous step (before)
** and a next step (after). */
typedef struct rnn_moment {
  int64_t t, rows, earlier, before, after;
} rnn_moment;

static inline rnn_moment moth_rnn_moment_of(const moth_rnn *r, bool back, int64_t i) {
  rnn_moment m;
  m.t = back ? r->steps - 1 - i : i;
  m.rows = moth_rnn_active(r, m.t);
  m.earlier = back ? m.t + 1 : m.t - 1;
  m.before = moth_rnn_active(r, m.earlier);
  m.after = moth_rnn_active(r, back ? m.t - 1 : m.t + 1);
  if (m.before > m.rows) m.before = m.rows;
  if (m.after > m.rows) m.after = m.rows;
  return m;
}

/* *size := elements of the reserve, *masks := offset of its dropout masks. Returns false on
** overflow. */
bool moth_rnn_reserve_size(const moth_rnn *r, int64_t *size, int64_t *masks);
/* Elements of all parameters together. */
int64_t moth_rnn_weights(const moth_rnn *r);

/* x (steps, batch, input); h0, c0, hn, cn (layers * directions, batch, hidden). The masks must
** already be in the reserve. The last layer's output stays in the reserve; *y points to it. */
int moth_rnn_forward(moth_ctx *ctx, const moth_rnn *r, const void *x, const void *h0,
                     const void *c0, void *reserve, void *hn, void *cn, const void **y);

/* dy (steps, batch, directions * hidden) is overwritten. dh and dc are the gradients of hn and cn;
** they are replaced by those of h0 and c0. dw receives the gradients of all parameters, contiguous.
** dx may be NULL. */
int moth_rnn_backward(moth_ctx *ctx, const moth_rnn *r, const void *x, const void *h0,
                      const void *c0, const void *reserve, void *dy, void *dh, void *dc, void *dx,
                      void *dw);

/* The backward pass of one step of a cell, from dh and dc. dgates receives the gradients of the
** gates, (batch, gates * hidden); for a GRU two such arrays, for the terms of x and of h0. */
int moth_rnn_cell_backward(moth_ctx *ctx, const moth_rnn *r, const void *h0, const void *c0,
                           const void *reserve, void *dh, void *dc, void *dx, void *dgates);

/* The arguments of the three functions above, for the device kernels of the same names. dw is the
** cell's dgates. */
typedef struct moth_rnn_call {
  moth_ctx *ctx;
  const moth_rnn *r;
  const void *x, *h0, *c0;
  void *reserve, *hn, *cn, *dy, *dh, *dc, *dx, *dw;
  int64_t weights; /* elements of dw */
} moth_rnn_call;

/* The arguments of "rnn_masks": n dropout factors. A factor is 0 if its random word, from block
** `block` on, is below `least`; else it is `scale`. */
typedef struct moth_rnn_masks {
  moth_ctx *ctx;
  const moth_rnn *r;
  uint64_t seed, block, least;
  double scale;
  int64_t n;
  void *to;
} moth_rnn_masks;

#endif
