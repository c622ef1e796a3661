/* cell.c -- recurrent networks one step at a time: the kernels of recurrent.c on one step. */
#include "recurrent.h"
#include "recurrent_call.h"

/* Names the arguments where the sequences say `params`; two of four biases make no pair. */
static int check_cell(const recurrent_call *c, const moth_tensor *b_ih, const moth_tensor *b_hh) {
  moth_rnn r;
  moth_ctx *ctx = c->ctx;
  int status = moth_recurrent_fit(c, &r);
  if (status) return status;
  int64_t wide = moth_rnn_gates(r.mode) * r.hidden;
  if (!b_ih != !b_hh)
    return moth_fail(ctx, MOTH_E_ARG, b_ih ? "b_hh" : "b_ih", "is needed beside the other bias");
  if (c->h0->l.shape[0] != r.batch || (c->c0 && !moth_shape_same(&c->c0->l, &c->h0->l)))
    return moth_fail(ctx, MOTH_E_SHAPE, "hx", "%s is needed for %s, got %s",
                     moth_str_shape(ctx, 2, (int64_t[]){r.batch, r.hidden}), moth_str(c->input),
                     moth_str(c->h0->l.shape[0] != r.batch ? c->h0 : c->c0));
  moth_tensor **p = c->params.at;
  status = moth_recurrent_param(ctx, "w_ih", "the input's weight", p[0], wide, r.input);
  if (!status)
    status = moth_recurrent_param(ctx, "w_hh", "the state's weight", p[1], wide, r.hidden);
  if (!status && b_ih) status = moth_recurrent_param(ctx, "b_ih", "the bias", b_ih, wide, 0);
  if (!status && b_hh) status = moth_recurrent_param(ctx, "b_hh", "the bias", b_hh, wide, 0);
  return status;
}

#define PARAMS(a) \
  (moth_tensor *[]) { (a)->w_ih, (a)->w_hh, (a)->b_ih, (a)->b_hh }
#define CELL(a, kind)                                                                            \
  (recurrent_call) {                                                                             \
    .ctx = (a)->ctx, .mode = kind, .cell = true, .input = (a)->input,                            \
    .params = {PARAMS(a), (a)->b_ih ? 4 : 2}, .biased = (a)->b_ih != NULL, .layers = 1           \
  }

#define CELL_EXAMPLES(gates)                                                                     \
  .examples = "moth.randn(2, 4), moth.randn(2, 3), moth.randn(" gates ", 4), moth.randn(" gates  \
              ", 3)\n"                                                                           \
              "moth.randn(2, 4), moth.randn(2, 3), moth.randn(" gates ", 4), moth.randn(" gates  \
              ", 3), moth.randn(" gates "), moth.randn(" gates ")"

#define STATE_CELL(op, kind, text, gates)                                                        \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                    \
    recurrent_call c = CELL(a, kind);                                                            \
    c.h0 = a->hx;                                                                                \
    int status = check_cell(&c, a->b_ih, a->b_hh);                                               \
    return status ? status : moth_recurrent_shape(&c, y);                                        \
  }                                                                                              \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                                   \
    recurrent_call c = CELL(a, kind);                                                            \
    c.h0 = a->hx;                                                                                \
    return moth_recurrent_run(&c, 0, NULL, out);                                                 \
  }                                                                                              \
  static int op##_grad(const op##_args *a, moth_grad *g) {                                       \
    recurrent_call c = CELL(a, kind);                                                            \
    c.h0 = a->hx;                                                                                \
    return moth_recurrent_grad(&c, g);                                                           \
  }                                                                                              \
  MOTH_OP(op, RECURRENT_CELL, .doc = text, CELL_EXAMPLES(gates), .outputs = "h, reserve: hidden", \
          .dtypes = MOTH_FLOATS, .saves = "input hx w_ih w_hh b_ih b_hh reserve", .flags = 0)

STATE_CELL(rnn_tanh_cell, MOTH_RNN_TANH,
           "One step of a recurrent network: tanh(W_ih x + b_ih + W_hh h + b_hh).", "3")
STATE_CELL(rnn_relu_cell, MOTH_RNN_RELU,
           "One step of a recurrent network: relu(W_ih x + b_ih + W_hh h + b_hh).", "3")
STATE_CELL(gru_cell, MOTH_GRU, "One step of gated recurrent units: gates r, z, n.", "9")

static int lstm_cell_states(const lstm_cell_args *a, recurrent_call *c) {
  if (a->hx.n != 2)
    return moth_fail(a->ctx, MOTH_E_ARG, "hx", "states and cells, {h, c}, are needed, got %lld "
                     "tensor(s)", (long long)a->hx.n);
  c->h0 = a->hx.at[0];
  c->c0 = a->hx.at[1];
  return MOTH_OK;
}

static int lstm_cell_shape(const lstm_cell_args *a, moth_layout *y) {
  recurrent_call c = CELL(a, MOTH_LSTM);
  int status = lstm_cell_states(a, &c);
  if (!status) status = check_cell(&c, a->b_ih, a->b_hh);
  return status ? status : moth_recurrent_shape(&c, y);
}

static int lstm_cell_cpu(const lstm_cell_args *a, moth_tensor **out) {
  recurrent_call c = CELL(a, MOTH_LSTM);
  int status = lstm_cell_states(a, &c);
  return status ? status : moth_recurrent_run(&c, 0, NULL, out);
}

static int lstm_cell_grad(const lstm_cell_args *a, moth_grad *g) {
  recurrent_call c = CELL(a, MOTH_LSTM);
  int status = lstm_cell_states(a, &c);
  return status ? status : moth_recurrent_grad(&c, g);
}

MOTH_OP(lstm_cell, LSTM_CELL,
  .doc = "One step of long short-term memory: gates i, f, g, o, c = f c + i g, h = o tanh(c).",
  .examples =
    "moth.randn(2, 4), {moth.randn(2, 3), moth.randn(2, 3)}, moth.randn(12, 4), moth.randn(12, 3)\n"
    "moth.randn(2, 4), {moth.randn(2, 3), moth.randn(2, 3)}, moth.randn(12, 4), "
    "moth.randn(12, 3), moth.randn(12), moth.randn(12)",
  .outputs = "h, c, reserve: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "input hx w_ih w_hh b_ih b_hh reserve",
  .flags = 0)
