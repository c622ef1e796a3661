/* recurrent_cell.c -- recurrent networks, one step at a time: runs the kernels of recurrent.c on
** one step. */
#include "kernel/real.h"
#include "recurrent.h"
#include "recurrent_call.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

/* Errors of a cell name its argument, where errors of a sequence name `params`. A cell has both
** biases or none. */
static int check_cell(const recurrent_call *c, const moth_tensor *b_ih, const moth_tensor *b_hh,
                      moth_rnn *r) {
  moth_ctx *ctx = c->ctx;
  int status = moth_recurrent_fit(c, r);
  if (status) return status;
  int64_t wide = moth_rnn_gates(r->mode) * r->hidden;
  if (!b_ih != !b_hh)
    return moth_fail(ctx, MOTH_E_ARG, b_ih ? "b_hh" : "b_ih",
                     "is needed together with the other bias");
  const int64_t *state = c->h0->l.shape;
  const bool misfits = state[0] != r->batch || state[1] != r->hidden;
  if (misfits || (c->c0 && !moth_shape_same(&c->c0->l, &c->h0->l)))
    return moth_fail(ctx, MOTH_E_SHAPE, "hx", "%s is needed for %s, got %s",
                     moth_str_shape(ctx, 2, (int64_t[]){r->batch, r->hidden}), moth_str(c->input),
                     moth_str(misfits ? c->h0 : c->c0));
  moth_tensor **p = c->params.at;
  status = moth_recurrent_features(c, r);
  if (!status)
    status = moth_recurrent_param(ctx, "w_ih", "the input's weight", p[0], wide, r->input);
  if (!status)
    status = moth_recurrent_param(ctx, "w_hh", "the state's weight", p[1], wide, r->hidden);
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
    moth_rnn r;                                                                                  \
    c.h0 = a->hx;                                                                                \
    int status = check_cell(&c, a->b_ih, a->b_hh, &r);                                           \
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
          .dtypes = MOTH_FLOATS, .saves = "input hx w_ih w_hh b_ih b_hh reserve",                \
          .flags = MOTH_OP_PORTABLE)

STATE_CELL(rnn_tanh_cell, MOTH_RNN_TANH,
           "One step of a recurrent network: tanh(W_ih x + b_ih + W_hh h + b_hh).", "3")
STATE_CELL(rnn_relu_cell, MOTH_RNN_RELU,
           "One step of a recurrent network: relu(W_ih x + b_ih + W_hh h + b_hh).", "3")
STATE_CELL(gru_cell, MOTH_GRU, "One step of gated recurrent units: r = sigmoid(i_r + h_r), z = "
                               "sigmoid(i_z + h_z), n = tanh(i_n + r h_n), h' = (1 - z) n + z "
                               "h.", "9")

static int lstm_cell_states(const lstm_cell_args *a, recurrent_call *c) {
  if (a->hx.n != 2)
    return moth_fail(a->ctx, MOTH_E_ARG, "hx",
                     "a state and a cell, {h, c}, are needed, got %lld tensor(s)",
                     (long long)a->hx.n);
  c->h0 = a->hx.at[0];
  c->c0 = a->hx.at[1];
  return MOTH_OK;
}

static int lstm_cell_shape(const lstm_cell_args *a, moth_layout *y) {
  recurrent_call c = CELL(a, MOTH_LSTM);
  moth_rnn r;
  int status = lstm_cell_states(a, &c);
  if (!status) status = check_cell(&c, a->b_ih, a->b_hh, &r);
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
  .flags = MOTH_OP_PORTABLE)

/* -- backward -- */

static int cell_back_fit(const cell_back_args *a, recurrent_call *c, moth_tensor **params,
                         moth_rnn *r) {
  int64_t size, masks;
  bool lstm = a->mode == MOTH_LSTM;
  if (a->hx.n != (lstm ? 2 : 1))
    return moth_fail(a->ctx, MOTH_E_ARG, "hx", "%d tensor(s) are needed, got %lld", lstm ? 2 : 1,
                     (long long)a->hx.n);
  *c = (recurrent_call){.ctx = a->ctx, .mode = (int)a->mode, .cell = true, .input = a->input,
                        .params = {params, 2}, .layers = 1, .h0 = a->hx.at[0],
                        .c0 = lstm ? a->hx.at[1] : NULL};
  params[0] = a->w_ih;
  params[1] = a->w_hh;
  int status = check_cell(c, NULL, NULL, r);
  if (!status) status = moth_real_alike("reserve", a->reserve, a->input);
  if (!status) status = moth_real_alike("w_ih", a->w_ih, a->input);
  if (!status) status = moth_real_alike("w_hh", a->w_hh, a->input);
  for (int64_t i = 0; !status && i < a->hx.n; i++)
    status = moth_real_alike("hx", a->hx.at[i], a->input);
  if (status) return status;
  moth_rnn_reserve_size(r, &size, &masks);
  if (a->reserve->l.ndim != 1 || a->reserve->l.shape[0] != size)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "reserve", "(%lld,) is needed, got %s",
                     (long long)size, moth_str(a->reserve));
  for (int i = 0; i < 2; i++) {
    const moth_tensor *dy = i ? a->dc : a->dh;
    if (dy && !moth_shape_same(&dy->l, &c->h0->l))
      return moth_fail(a->ctx, MOTH_E_SHAPE, i ? "dc" : "dh", "%s is needed, got %s",
                       moth_str_shape(a->ctx, 2, c->h0->l.shape), moth_str(dy));
  }
  return MOTH_OK;
}

static int cell_back_shape(const cell_back_args *a, moth_layout *y) {
  recurrent_call c;
  moth_tensor *params[2];
  moth_rnn r;
  int status = cell_back_fit(a, &c, params, &r);
  if (status) return status;
  for (int i = 0; i < 3; i++) {
    y[i].ndim = 2;
    y[i].shape[0] = (i == 0 && !a->input_wanted) || (i == 2 && !c.c0) ? 0 : r.batch;
    y[i].shape[1] = i ? r.hidden : r.input;
  }
  y[3].ndim = 3;
  y[3].shape[0] = r.mode == MOTH_GRU ? 2 : 1;
  y[3].shape[1] = r.batch;
  y[3].shape[2] = moth_rnn_gates(r.mode) * r.hidden;
  return MOTH_OK;
}

/* y := x, or 0 if x is NULL. */
static int begin_with(moth_tensor *y, const moth_tensor *x) {
  if (x) return moth_copy_into(y, x);
  return moth_real_clear(y);
}

static int cell_back_cpu(const cell_back_args *a, moth_tensor **out) {
  recurrent_call c;
  recurrent_operands o = {0};
  moth_tensor *params[2], *y[4] = {NULL}, *reserve = NULL;
  moth_rnn r;
  int status = cell_back_fit(a, &c, params, &r);
  if (status) return status;
  status = moth_recurrent_open(&c, &r, &o);
  if (!status && !(reserve = moth_real(a->reserve))) status = a->ctx->error.code;
  for (int i = 0; i < 4 && !status; i++)
    if (!(y[i] = moth_real_out(out[i]))) status = a->ctx->error.code;
  if (!status) status = begin_with(y[1], a->dh);
  if (!status && c.c0) status = begin_with(y[2], a->dc);
  if (!status)
    status = moth_rnn_cell_backward(a->ctx, &r, moth_at(o.h0), o.c0 ? moth_at(o.c0) : NULL,
                                    moth_at(reserve), moth_at(y[1]), moth_at(y[2]),
                                    a->input_wanted ? moth_at(y[0]) : NULL, moth_at(y[3]));
  moth_recurrent_close(&o);
  moth_tensor_release(reserve);
  for (int i = 0; i < 4; i++) status = moth_real_done(y[i], out[i], status);
  return status;
}

MOTH_OP_CONST(cell_back, CELL_BACK,
  .doc = "The gradients of one step of a recurrent network: for the input, the state, the cell, "
         "and the gates' parts from the input and from the state.",
  .examples =
    "moth.randn(2, 3), {moth.rand(2, 4), moth.rand(2, 4)}, moth.randn(16, 3), moth.randn(16, 4), "
    "moth.rand(48), {dh = moth.randn(2, 4), dc = moth.randn(2, 4), mode = 'lstm'}\n"
    "moth.randn(2, 3), {moth.rand(2, 4)}, moth.randn(12, 3), moth.randn(12, 4), moth.rand(40), "
    "{dh = moth.randn(2, 4), mode = 'gru', input_wanted = false}",
  .outputs = "dinput, dhx, dcx, dgates",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN | MOTH_OP_MIXED | MOTH_OP_PORTABLE)
