/* recurrent_gradient.c -- gradients of the recurrent ops. Without create_graph the fused kernel
** computes them. With create_graph the steps are repeated with ops, and the backward pass through
** these ops is recorded: slow, but correct for derivatives of any order.
*/
#include "autograd/tape.h"
#include "create.h"
#include "gradient_formula.h"
#include "join.h"
#include "reduce.h"
#include "recurrent.h"
#include "recurrent_call.h"
#include "base/alloc.h"

#define PART(x, d, from, n) GRAD(g, narrow, .input = x, .dim = d, .start = from, .length = n)
#define SAME(x) GRAD(g, view, .input = x, .shape = {(x)->l.shape, (x)->l.ndim})

/* -- one step -- */

typedef struct state {
  moth_tensor *h, *c;
} state;

/* Returns the state after a step, for one layer and direction with these parameters. x, (N, gates
** H), is the contribution of the input. */
static state step(moth_grad *g, const moth_rnn *r, moth_tensor *x, state s, moth_tensor **params) {
  int64_t n = r->hidden;
  moth_tensor *h = GRAD(g, linear, .input = s.h, .weight = params[1],
                        .bias = r->biased ? params[3] : NULL);
  if (r->mode == MOTH_GRU) {
    moth_tensor *rz = OF(sigmoid, PLUS(PART(x, 1, 0, 2 * n), PART(h, 1, 0, 2 * n)));
    const double most = moth_largest(x ? x->l.dtype : MOTH_F32);
    moth_tensor *held = GRAD(g, clamp, .input = PART(h, 1, 2 * n, n), .min = -most, .max = most);
    moth_tensor *share = TIMES(PART(rz, 1, 0, n), held); /* infinity times 0 would be NaN */
    moth_tensor *new = OF(tanh, PLUS(PART(x, 1, 2 * n, n), share));
    s.h = PLUS(new, TIMES(PART(rz, 1, n, n), MINUS(s.h, new)));
    return s;
  }
  moth_tensor *all = PLUS(x, h);
  if (r->mode == MOTH_LSTM) {
    moth_tensor *in = OF(sigmoid, PART(all, 1, 0, n)), *forget = OF(sigmoid, PART(all, 1, n, n));
    moth_tensor *new = OF(tanh, PART(all, 1, 2 * n, n)), *out = OF(sigmoid, PART(all, 1, 3 * n, n));
    s.c = PLUS(TIMES(forget, s.c), TIMES(in, new));
    s.h = TIMES(out, OF(tanh, s.c));
  } else {
    s.h = r->mode == MOTH_RNN_RELU ? OF(relu, all) : OF(tanh, all);
  }
  return s;
}

/* Concatenates the rows of `first` and the rows of `rest`. */
static moth_tensor *above(moth_grad *g, moth_tensor *first, moth_tensor *rest, int64_t rows) {
  if (g->status || rows == rest->l.shape[0]) return first;
  moth_tensor *two[] = {first, PART(rest, 0, rows, rest->l.shape[0] - rows)};
  return GRAD(g, cat, .tensors = {two, 2}, .dim = 0);
}

/* -- one layer in one direction; ys receives each step's output -- */

static state lane(moth_grad *g, const moth_rnn *r, moth_tensor *x, state s, moth_tensor **params,
                  bool backward, moth_tensor **ys) {
  moth_tensor *all = GRAD(g, linear, .input = x, .weight = params[0],
                          .bias = r->biased ? params[2] : NULL);
  moth_tensor *nothing = NULL;
  if (r->sizes) nothing = GRAD(g, zeros_like, .input = s.h, .dtype = -1);
  for (int64_t i = 0; !g->status && i < r->steps; i++) {
    int64_t t = backward ? r->steps - 1 - i : i, rows = r->sizes ? r->sizes[t] : r->batch;
    moth_tensor *now = GRAD(g, select, .input = all, .dim = 0, .index = t);
    state old = s;
    if (rows < r->batch) {
      now = PART(now, 0, 0, rows);
      s.h = PART(s.h, 0, 0, rows);
      if (s.c) s.c = PART(s.c, 0, 0, rows);
    }
    s = step(g, r, now, s, params);
    ys[t] = nothing ? above(g, s.h, nothing, rows) : s.h;
    s.h = above(g, s.h, old.h, rows);
    if (old.c) s.c = above(g, s.c, old.c, rows);
  }
  return s;
}

/* Returns the dropout mask between a layer and the next one, as a constant. */
static moth_tensor *mask_above(moth_grad *g, const moth_rnn *r, moth_tensor *reserve,
                               int64_t layer, int dtype) {
  int64_t size = 0, masks = 0, shape[] = {r->steps, r->batch, r->directions * r->hidden};
  int64_t block = shape[0] * shape[1] * shape[2];
  moth_rnn_reserve_size(r, &size, &masks);
  moth_tensor *m = GRAD(g, view, .input = PART(reserve, 0, masks + layer * block, block),
                        .shape = {shape, 3});
  return dtype == reserve->l.dtype ? m : GRAD(g, cast, .input = m, .dtype = dtype);
}

static moth_tensor *stacked(moth_grad *g, moth_tensor **at, int64_t n) {
  return GRAD(g, stack, .tensors = {at, n}, .dim = 0);
}

/* Repeats all layers. `buffer` has a capacity of steps * 2 + layers * directions * 2 tensors. */
static void replay(const recurrent_call *c, const moth_rnn *r, moth_tensor *reserve, moth_grad *g,
                   moth_tensor **buffer, moth_tensor **out) {
  int64_t lanes = r->layers * r->directions, each = r->biased ? 4 : 2;
  moth_tensor **hn = buffer + 2 * r->steps, **cn = hn + lanes, *x = c->input;
  if (c->batch_first) x = GRAD(g, transpose, .input = x, .dim0 = 0, .dim1 = 1);
  for (int64_t layer = 0; layer < r->layers; layer++) {
    moth_tensor *ys[2] = {NULL};
    for (int64_t d = 0; d < r->directions; d++) {
      int64_t k = layer * r->directions + d;
      state s = {GRAD(g, select, .input = c->h0, .dim = 0, .index = k), NULL};
      if (c->c0) s.c = GRAD(g, select, .input = c->c0, .dim = 0, .index = k);
      s = lane(g, r, x, s, c->params.at + k * each, d == 1, buffer + d * r->steps);
      hn[k] = s.h;
      cn[k] = s.c;
      ys[d] = stacked(g, buffer + d * r->steps, r->steps);
    }
    x = r->directions == 2 ? GRAD(g, cat, .tensors = {ys, 2}, .dim = 2) : ys[0];
    if (r->masked && layer + 1 < r->layers)
      x = TIMES(x, mask_above(g, r, reserve, layer, c->input->l.dtype));
  }
  out[0] = c->batch_first ? GRAD(g, transpose, .input = x, .dim0 = 0, .dim1 = 1) : x;
  out[1] = stacked(g, hn, lanes);
  if (c->c0) out[2] = stacked(g, cn, lanes);
}

/* -- recorded gradients -- */

/* Gives every input that needs a gradient a new node: the backward pass ends there. */
static int64_t fresh(moth_grad *g, moth_tensor **x, moth_tensor **inputs, moth_tensor **ends,
                     int64_t n) {
  if (!*x || !moth_wants(g, *x)) return n;
  inputs[n] = *x;
  *x = ends[n] = SAME(*x);
  return n + 1;
}

static int recorded(recurrent_call *c, const moth_rnn *r, moth_grad *g, moth_tensor *reserve) {
  int64_t lanes = r->layers * r->directions, n = 0, most = c->params.n + 3;
  int64_t nbuffer = 4 * most + 2 * r->steps + 2 * lanes, bytes = nbuffer * (int64_t)sizeof(void *);
  moth_tensor **buffer = moth_alloc(g->ctx, bytes), *out[3] = {NULL};
  if (!buffer) return g->status = g->ctx->error.code;
  memset(buffer, 0, (size_t)bytes);
  moth_tensor **inputs = buffer, **ends = buffer + most, **dxs = ends + most, **params = dxs + most;
  n = fresh(g, &c->input, inputs, ends, n);
  n = fresh(g, &c->h0, inputs, ends, n);
  n = fresh(g, &c->c0, inputs, ends, n);
  for (int64_t i = 0; i < c->params.n; i++) {
    params[i] = c->params.at[i];
    n = fresh(g, &params[i], inputs, ends, n);
  }
  c->params.at = params;
  moth_tensor *dys[3] = {g->dys[0], g->dys[1], c->c0 ? g->dys[2] : NULL};
  if (!g->status && c->cell) {
    state s = {c->h0, c->c0};
    moth_tensor *x = GRAD(g, linear, .input = c->input, .weight = params[0],
                          .bias = r->biased ? params[2] : NULL);
    s = step(g, r, x, s, params);
    out[0] = s.h;
    out[1] = s.c;
    if (!c->c0) dys[1] = NULL;
    dys[2] = NULL;
  } else if (!g->status) {
    replay(c, r, reserve, g, params + most, out);
  }
  if (!g->status && n)
    g->status = moth_gradients(g->ctx, out, dys, 3, ends, (uint32_t)n, dxs);
  for (int64_t i = 0; i < n; i++)
    if (dxs[i]) moth_flow(g, inputs[i], moth_grad_own(g, dxs[i]));
  moth_dealloc(g->ctx, buffer, bytes);
  return g->status;
}

/* -- fused gradients -- */

static void flow_back(const recurrent_call *c, moth_grad *g, moth_tensor *const *dx) {
  moth_tensor *const to[] = {c->input, c->h0, c->c0};
  for (int i = 0; i < 3 && !g->status; i++)
    if (moth_wants(g, to[i])) moth_flow(g, to[i], dx[i]);
  int64_t start = 0;
  for (int64_t i = 0; i < c->params.n && !g->status; i++) {
    moth_tensor *p = c->params.at[i];
    int64_t n = p->l.numel;
    if (moth_wants(g, p))
      moth_flow(g, p, GRAD(g, view, .input = PART(dx[3], 0, start, n),
                           .shape = {p->l.shape, p->l.ndim}));
    start += n;
  }
}

/* For one step: the gradients of the weights are deferred and computed together with those of other
** steps. */
static int fused_cell(const recurrent_call *c, moth_grad *g, moth_tensor *reserve) {
  moth_tensor *states[] = {c->h0, c->c0}, *dx[MOTH_MAX_OUTPUTS] = {NULL}, *both[2];
  cell_back_args args = {
    .ctx = g->ctx, .input = c->input, .hx = {states, c->c0 ? 2 : 1}, .w_ih = c->params.at[0],
    .w_hh = c->params.at[1], .reserve = reserve, .dh = g->dys[0],
    .dc = c->c0 ? g->dys[1] : NULL, .mode = c->mode, .input_wanted = moth_wants(g, c->input)};
  g->status = moth_run(&moth_op_cell_back, &args, dx);
  if (g->status) return g->status;
  for (int i = 0; i < 4; i++) moth_grad_own(g, dx[i]);
  moth_tensor *const to[] = {c->input, c->h0, c->c0};
  for (int i = 0; i < 3; i++)
    if (moth_wants(g, to[i])) moth_flow(g, to[i], dx[i]);
  both[0] = both[1] = GRAD(g, select, .input = dx[3], .dim = 0, .index = 0);
  if (c->mode == MOTH_GRU) both[1] = GRAD(g, select, .input = dx[3], .dim = 0, .index = 1);
  moth_flow_outer(g, c->params.at[0], both[0], c->input);
  moth_flow_outer(g, c->params.at[1], both[1], c->h0);
  for (int i = 0; i < 2 && c->biased; i++)
    if (moth_wants(g, c->params.at[2 + i]))
      moth_flow_rows(g, c->params.at[2 + i], c->params.at[1], both[i]);
  return g->status;
}

static int fused(const recurrent_call *c, moth_grad *g, moth_tensor *reserve) {
  moth_tensor *states[] = {c->h0, c->c0}, *dx[MOTH_MAX_OUTPUTS] = {NULL};
  recurrent_back_args args = {
    .ctx = g->ctx, .input = c->input, .hx = {states, c->c0 ? 2 : 1}, .params = c->params,
    .reserve = reserve, .dy = g->dys[0], .dh = g->dys[1], .dc = c->c0 ? g->dys[2] : NULL,
    .mode = c->mode, .has_biases = c->biased,
    .num_layers = c->layers, .masked = c->masked, .bidirectional = c->bidirectional,
    .batch_first = c->batch_first, .batch_sizes = c->sizes,
    .input_wanted = moth_wants(g, c->input)};
  g->status = moth_run(&moth_op_recurrent_back, &args, dx);
  if (g->status) return g->status;
  for (int i = 0; i < 4; i++) moth_grad_own(g, dx[i]);
  flow_back(c, g, dx);
  return g->status;
}

int moth_recurrent_grad(const recurrent_call *c, moth_grad *g) {
  moth_rnn r;
  moth_tensor *reserve = g->out[(c->cell ? 1 : 2) + (c->c0 ? 1 : 0)];
  int status = moth_recurrent_fit(c, &r);
  if (status) return g->status = status;
  if (!g->ctx->grad_mode) return c->cell ? fused_cell(c, g, reserve) : fused(c, g, reserve);
  recurrent_call copy = *c;
  return recorded(&copy, &r, g, reserve);
}
