/* recurrent.cuh -- shared by the files of recurrent layers: the formulas of a unit in a step,
** forward and backward, and the interface of the kernels that compute all steps of a layer
** (recurrent_steps.cu). */
#ifndef MOTH_CUDA_RECURRENT_CUH
#define MOTH_CUDA_RECURRENT_CUH

#include "../../core/kernel/recurrent.h"

#include "lib/functions.cuh"
#include "host/launch.cuh"
#include "lib/dtypes.cuh"

template <class R> struct step {
  int mode;
  int64_t rows, n, ld, ld0; /* strides of h and dy: ld; of h0: ld0 */
  R *gates, *h, *c;
  const R *h0, *c0, *dy;
  R *dgates, *dh, *dc, *begun; /* begun: a second output for dgates, or NULL */
};

template <class R> HD R sigmoid_of(R x) { return 1 / (1 + (R)exp(-x)); }

/* Unit j of row k. `more`: the part of the state's product that is not yet added to the gates. */
template <class R> HD void unit_forward(const step<R> &s, int64_t k, int64_t j, const R *more) {
  const int64_t n = s.n;
  R *h = s.h + k * s.ld + j;
  if (s.mode == MOTH_LSTM) {
    R *g = s.gates + k * 4 * n + j;
    const R in = sigmoid_of(g[0] + more[0]), forget = sigmoid_of(g[n] + more[1]);
    const R fresh = (R)tanh(g[2 * n] + more[2]), out = sigmoid_of(g[3 * n] + more[3]);
    const R v = forget * s.c0[k * n + j] + in * fresh;
    g[0] = in, g[n] = forget, g[2 * n] = fresh, g[3 * n] = out;
    s.c[k * n + j] = v;
    *h = out * (R)tanh(v);
  } else if (s.mode == MOTH_GRU) {
    R *g = s.gates + k * 4 * n + j;
    const R r = sigmoid_of(g[0] + more[0]), z = sigmoid_of(g[n] + more[1]);
    const R own = g[3 * n] + more[2], fresh = (R)tanh(g[2 * n] + r * own);
    g[0] = r, g[n] = z, g[2 * n] = fresh, g[3 * n] = own;
    *h = fresh + z * (s.h0[k * s.ld0 + j] - fresh);
  } else {
    const R g = s.gates[k * n + j] + more[0];
    *h = s.mode != MOTH_RNN_RELU ? (R)tanh(g) : g < 0 ? (R)0 : g;
  }
}

/* `later`: the gradient of the unit's state from the following step. */
template <class R> HD void unit_back(const step<R> &s, int64_t k, int64_t j, R later) {
  const int64_t n = s.n;
  const R d = s.dy[k * s.ld + j] + later;
  R to[4];
  int gates = 4;
  if (s.mode == MOTH_LSTM) {
    const R *g = s.gates + k * 4 * n + j;
    const R in = g[0], forget = g[n], fresh = g[2 * n], out = g[3 * n];
    const R t = (R)tanh(s.c[k * n + j]), e = s.dc[k * n + j] + d * out * (1 - t * t);
    to[0] = e * fresh * in * (1 - in);
    to[1] = e * s.c0[k * n + j] * forget * (1 - forget);
    to[2] = e * in * (1 - fresh * fresh);
    to[3] = d * t * out * (1 - out);
    s.dc[k * n + j] = e * forget;
  } else if (s.mode == MOTH_GRU) {
    const R *g = s.gates + k * 4 * n + j;
    const R r = g[0], z = g[n], fresh = g[2 * n];
    const R e = d * (1 - z) * (1 - fresh * fresh);
    to[0] = e * (e == 0 ? 0 : g[3 * n]) * r * (1 - r); /* saturated: the second factor may be
                                                       ** infinite */
    to[1] = d * (s.h0[k * s.ld0 + j] - fresh) * z * (1 - z);
    to[2] = e;
    to[3] = e * r;
    s.dh[k * n + j] = d * z;
  } else {
    const R h = s.h[k * s.ld + j];
    gates = 1;
    to[0] = s.mode != MOTH_RNN_RELU ? d * (1 - h * h) : h <= 0 ? (R)0 : d;
  }
  for (int g = 0; g < gates; g++) {
    s.dgates[(k * gates + g) * n + j] = to[g];
    if (s.begun) s.begun[(k * gates + g) * n + j] = to[g];
  }
}

/* All steps of a layer in one direction: `steps` times `batch` rows of n units. */
template <class R> struct rnn_steps {
  int mode;
  bool reversed, tf32; /* tf32: products may round states and gates to TF32 */
  int64_t steps, batch, n, ld;
  const R *w, *h0, *c0; /* w: the recurrent weights, (gates n, n) */
  R *gates, *cells, *y;
  const R *dy; /* for backward; begun: dgates of the rows' first steps, or NULL */
  R *dh, *dc, *dgates, *begun;
};

/* For sequences of equal length. *done: whether the kernel supports it; if not, nothing has been
** written. */
typedef int rnn_run_steps(moth_ctx *ctx, const moth_queue *q, const rnn_steps<float> &s,
                          bool *done);
MOTH_LOCAL rnn_run_steps moth_rnn_steps_forward, moth_rnn_steps_back;

#endif
