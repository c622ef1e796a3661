/* recurrent.cu -- recurrent layers on the device, forward and backward through time, as described
** in core/kernel/recurrent.h. One matrix product handles the inputs of all steps. Each step is one
** product with the recurrent weights and one kernel for its gates, or one kernel computes all steps
** and keeps the weights in shared memory (recurrent_steps.cu). core/kernel/recurrent_step.h defines
** the order of rows and the contents of the reserve. */
#include "recurrent.cuh"

#include "lib/gemm.cuh"
#include "lib/philox.cuh"

/* -- the gates of a step: a thread for each unit of each row -- */

template <class R> static __global__ void step_forward(step<R> s) {
  const int64_t i = thread_number(), k = i / s.n;
  const R nothing[4] = {0, 0, 0, 0};
  if (k < s.rows) unit_forward(s, k, i % s.n, nothing);
}

template <class R> static __global__ void step_back(step<R> s) {
  const int64_t i = thread_number(), k = i / s.n;
  if (k < s.rows) unit_back(s, k, i % s.n, s.dh[i]);
}

/* -- small kernels around the steps -- */

template <class R>
static __global__ void copy_rows(int64_t rows, int64_t n, const R *from, int64_t ld, R *to,
                                 int64_t ld_to) {
  const int64_t i = thread_number(), k = i / n, j = i % n;
  if (k < rows) to[k * ld_to + j] = from[k * ld + j];
}

template <class R> static __global__ void mask_all(int64_t n, const R *x, const R *mask, R *y) {
  const int64_t i = thread_number();
  if (i < n) y[i] = mask[i] == 0 ? (R)0 : x[i] * mask[i];
}

/* Initializes the gates with the biases; the product with the state is added later. */
template <class R>
static __global__ void add_biases(int64_t n, int64_t kept, int64_t both, const R *p, const R *q,
                                  R *to) {
  const int64_t j = thread_number();
  if (j < kept) to[j] = !p ? (R)0 : j < both ? p[j] + q[j] : j < 3 * n ? p[j] : q[j - n];
}

/* Sums of columns, 32 for each block: a thread sums every 32nd row, then these sums are added in
** order. A sum that the input's and the state's biases share is written to both. */
template <class R>
static __global__ void __launch_bounds__(1024) bias_gradients(int64_t rows, int64_t kept, int64_t n,
                                                              int64_t wide, bool gru, const R *x,
                                                              R *to) {
  __shared__ R part[32][33];
  const int line = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  const int64_t j = (int64_t)blockIdx.x * 32 + lane;
  R sum = 0;
  for (int64_t k = line; j < kept && k < rows; k += 32) sum += x[k * kept + j];
  part[line][lane] = sum;
  __syncthreads();
  if (line || j >= kept) return;
  for (int k = 1; k < 32; k++) sum += part[k][lane];
  if (j < wide) to[j] = sum;
  if (!gru || j < 2 * n) to[wide + j] = sum;
  else if (j >= 3 * n) to[wide + j - n] = sum;
}

/* splits rows of (r, z, n, m) into (r, z, n) and (r, z, m) */
template <class R>
static __global__ void part_gates(int64_t rows, int64_t n, const R *from, R *to) {
  const int64_t i = thread_number(), k = i / (3 * n), j = i % (3 * n);
  if (k >= rows) return;
  to[i] = from[k * 4 * n + j];
  to[rows * 3 * n + i] = from[k * 4 * n + (j < 2 * n ? j : j + n)];
}

/* -- a direction: one layer in one direction; offsets count elements -- */

template <class R> struct direction : rnn_steps<R> {
  moth_ctx *ctx;
  const moth_queue *q;
  const moth_rnn *r;
  int64_t wide, kept, shared; /* shared: number of gates that the state is added to directly */
  int64_t number, layer;
  const R *w_ih, *b_ih, *b_hh;
};

template <class R> static R *layer_output(const moth_rnn *r, const void *reserve, int64_t layer) {
  const int64_t block = r->steps * r->batch * r->directions * r->hidden;
  const int64_t kept = moth_rnn_kept(r->mode) + (r->mode == MOTH_LSTM);
  return (R *)reserve + block * (r->layers * kept + layer);
}

template <class R>
static direction<R> direction_of(const moth_rnn_call *c, const moth_queue *q, int64_t number) {
  const moth_rnn *r = c->r;
  const int64_t n = r->hidden, block = r->steps * r->batch * n, kept = moth_rnn_kept(r->mode);
  const void **params = r->params + number * (r->biased ? 4 : 2);
  direction<R> a = {};
  a.ctx = c->ctx, a.q = q, a.r = r;
  a.mode = r->mode, a.steps = r->steps, a.batch = r->batch;
  a.n = n, a.wide = moth_rnn_gates(r->mode) * n, a.kept = kept * n, a.ld = r->directions * n;
  a.shared = r->mode == MOTH_GRU ? 2 * n : a.wide;
  a.number = number, a.layer = number / r->directions, a.reversed = number % r->directions == 1;
  a.tf32 = r->given == MOTH_BF16 || moth_float32_precision(c->ctx);
  a.w_ih = (const R *)params[0], a.w = (const R *)params[1];
  if (r->biased) a.b_ih = (const R *)params[2], a.b_hh = (const R *)params[3];
  a.gates = (R *)c->reserve + block * kept * number;
  a.cells = (R *)c->reserve + block * (kept * r->layers * r->directions + number);
  a.y = layer_output<R>(r, c->reserve, a.layer) + (a.reversed ? n : 0);
  a.h0 = (const R *)c->h0 + number * r->batch * n;
  if (r->mode == MOTH_LSTM) a.c0 = (const R *)c->c0 + number * r->batch * n;
  return a;
}

/* Selects the rows of a time step that continue (part 0) or begin (part 1). */
template <class R>
static bool part_of(const direction<R> &a, const rnn_moment &m, int part, int64_t *first,
                    step<R> *s) {
  *first = part ? m.before : 0;
  const int64_t at = m.t * a.batch + *first, past = m.earlier * a.batch;
  *s = {};
  s->mode = a.mode;
  s->rows = (part ? m.rows : m.before) - *first;
  s->n = a.n, s->ld = a.ld, s->ld0 = part ? a.n : a.ld;
  s->gates = a.gates + at * a.kept;
  s->h = a.y + at * a.ld;
  s->c = a.cells + at * a.n;
  s->h0 = part ? a.h0 + *first * a.n : a.y + past * a.ld;
  s->c0 = part ? (a.c0 ? a.c0 + *first * a.n : NULL) : a.cells + past * a.n;
  return s->rows > 0;
}

/* -- products and scratch -- */

/* c (m, n; ldc) := a (m, k) b (k, n) + beta c + bias */
template <class R>
static int product(const direction<R> &l, int64_t m, int64_t n, int64_t k, const R *a, int64_t rs_a,
                   int64_t cs_a, const R *b, int64_t rs_b, int64_t cs_b, R *c, int64_t ldc,
                   int beta, const R *bias = NULL) {
  moth_gemm g = {};
  g.dtype = l.r->dtype, g.device = l.r->device;
  g.m = m, g.n = n, g.k = k;
  g.a = a, g.rs_a = rs_a, g.cs_a = cs_a;
  g.b = b, g.rs_b = rs_b, g.cs_b = cs_b;
  g.c = c, g.ldc = ldc, g.bias = bias;
  g.alpha = 1, g.beta = beta;
  g.tf32 = l.tf32 || moth_is_half(l.r->given); /* it represents half types exactly */
  return moth_gemm_run(l.ctx, &g);
}

template <class R> struct scratch { /* released in the destructor: the stream keeps the order */
  moth_tensor *x;
  R *at;
  scratch() : x(NULL), at(NULL) {}
  ~scratch() { moth_tensor_release(x); }
  int take(moth_ctx *ctx, const moth_rnn *r, int64_t n) {
    moth_layout l = {};
    l.dtype = (uint8_t)r->dtype;
    l.device = (uint8_t)r->device;
    l.ndim = 1;
    l.shape[0] = l.numel = n;
    l.stride[0] = 1;
    if (!x && (x = moth_tensor_new(ctx, &l))) at = data<R>(x);
    return x ? MOTH_OK : moth_status(ctx);
  }
};

template <class R> static int clear(moth_ctx *ctx, const moth_queue *q, R *at, int64_t n) {
  if (n == 0) return MOTH_OK;
  return moth_launched(ctx, q, cudaMemsetAsync(at, 0, (size_t)n * sizeof(R), q->stream));
}

template <class R>
static int copy(const direction<R> &a, int64_t rows, int64_t n, const R *from, int64_t ld, R *to,
                int64_t ld_to) {
  return launch_on(a.ctx, a.q, copy_rows<R>, blocks_for(rows * n), BLOCK, 0, rows, n, from, ld, to,
                   ld_to);
}

/* The input of a layer above the first: the output below it, through dropout. */
template <class R>
static int layer_input(const moth_rnn_call *c, const moth_queue *q, int64_t layer,
                       scratch<R> *buffer, const R **x) {
  const moth_rnn *r = c->r;
  const int64_t n = r->steps * r->batch * r->directions * r->hidden;
  const R *mask = layer_output<R>(r, c->reserve, r->layers + layer - 1);
  *x = layer_output<R>(r, c->reserve, layer - 1);
  if (!r->masked) return MOTH_OK;
  int status = buffer->take(c->ctx, r, n);
  if (status) return status;
  status = launch_on(c->ctx, q, mask_all<R>, blocks_for(n), BLOCK, 0, n, *x, mask, buffer->at);
  *x = buffer->at;
  return status;
}

/* -- forward -- */

/* gates := x W_ih^T + the biases, for all steps; a GRU's separate state term begins with its bias.
*/
template <class R> static int add_inputs(const direction<R> &a, const R *x) {
  const moth_rnn *r = a.r;
  const int64_t rows = r->steps * r->batch, inputs = moth_rnn_inputs(r, a.layer);
  scratch<R> biases;
  int status = biases.take(a.ctx, r, a.kept);
  if (!status)
    status = launch_on(a.ctx, a.q, add_biases<R>, blocks_for(a.kept), BLOCK, 0, a.n, a.kept,
                       a.shared, a.b_ih, a.b_hh, biases.at);
  if (!status && a.kept > a.wide)
    status = copy<R>(a, rows, a.kept - a.wide, biases.at + a.wide, 0, a.gates + a.wide, a.kept);
  if (status) return status;
  return product<R>(a, rows, a.wide, inputs, x, inputs, 1, a.w_ih, 1, inputs, a.gates, a.kept, 0,
                    biases.at);
}

/* All steps by recurrent_steps.cu, if it supports them. */
static int steps_at_once(const direction<float> &a, rnn_run_steps *run, bool *done) {
  return a.r->sizes ? MOTH_OK : run(a.ctx, a.q, a, done);
}
static int steps_at_once(const direction<double> &, rnn_run_steps *, bool *) { return MOTH_OK; }

template <class R> static int direction_forward(const direction<R> &a, const R *x, R *hn, R *cn) {
  const int64_t n = a.n, first_state = a.number * a.batch;
  bool done = false;
  int status = add_inputs(a, x);
  if (!status) status = steps_at_once(a, moth_rnn_steps_forward, &done);
  for (int64_t i = done ? a.steps - 1 : 0; !status && i < a.steps; i++) {
    const rnn_moment m = moth_rnn_moment_of(a.r, a.reversed, i);
    for (int part = 0; !status && !done && part < 2; part++) {
      step<R> s;
      int64_t first;
      if (!part_of(a, m, part, &first, &s)) continue;
      status = product<R>(a, s.rows, a.shared, n, s.h0, s.ld0, 1, a.w, 1, n, s.gates, a.kept, 1);
      if (!status && a.shared < a.wide)
        status = product<R>(a, s.rows, n, n, s.h0, s.ld0, 1, a.w + a.shared * n, 1, n,
                            s.gates + 3 * n, a.kept, 1);
      if (!status)
        status = launch_on(a.ctx, a.q, step_forward<R>, blocks_for(s.rows * n), BLOCK, 0, s);
    }
    const int64_t over = m.rows - m.after, at = m.t * a.batch + m.after;
    if (status || !over) continue;
    status = copy<R>(a, over, n, a.y + at * a.ld, a.ld, hn + (first_state + m.after) * n, n);
    if (!status && a.c0)
      status = copy<R>(a, over, n, a.cells + at * n, n, cn + (first_state + m.after) * n, n);
  }
  return status;
}

template <class R> static int forward(const moth_rnn_call *c, const moth_queue *q) {
  const moth_rnn *r = c->r;
  const R *x = (const R *)c->x;
  scratch<R> buffer;
  int status = MOTH_OK;
  if (r->sizes)
    status = clear(c->ctx, q, layer_output<R>(r, c->reserve, 0),
                   r->layers * r->steps * r->batch * r->directions * r->hidden);
  for (int64_t layer = 0; !status && layer < r->layers; layer++) {
    if (layer) status = layer_input(c, q, layer, &buffer, &x);
    for (int64_t d = 0; !status && d < r->directions; d++)
      status = direction_forward(direction_of<R>(c, q, layer * r->directions + d), x, (R *)c->hn,
                            (R *)c->cn);
  }
  return status;
}

/* -- backward -- */

/* The backward pass through all steps. */
template <class R> static int direction_back(const direction<R> &a) {
  const int64_t n = a.n;
  bool done = false;
  int status = steps_at_once(a, moth_rnn_steps_back, &done);
  if (!status && a.r->sizes) status = clear(a.ctx, a.q, a.dgates, a.steps * a.batch * a.kept);
  for (int64_t i = a.steps - 1; !status && !done && i >= 0; i--) {
    const rnn_moment m = moth_rnn_moment_of(a.r, a.reversed, i);
    R *at = a.dgates + m.t * a.batch * a.kept;
    for (int part = 0; !status && part < 2; part++) {
      step<R> s;
      int64_t first;
      if (!part_of(a, m, part, &first, &s)) continue;
      s.dy = a.dy + (m.t * a.batch + first) * a.ld;
      s.dgates = at + first * a.kept;
      s.begun = part && a.begun ? a.begun + first * a.kept : NULL;
      s.dh = a.dh + first * n;
      s.dc = a.dc ? a.dc + first * n : NULL;
      status = launch_on(a.ctx, a.q, step_back<R>, blocks_for(s.rows * n), BLOCK, 0, s);
    }
    const bool gru = a.shared < a.wide;
    if (!status && m.rows)
      status = product<R>(a, m.rows, n, a.shared, at, a.kept, 1, a.w, n, 1, a.dh, n, gru);
    if (!status && m.rows && gru)
      status = product<R>(a, m.rows, n, n, at + 3 * n, a.kept, 1, a.w + a.shared * n, n, 1,
                          a.dh, n, 1);
  }
  return status;
}

/* Rows [row, row + count) of the gradient of W_hh, from the columns of dgates from `column` on. */
template <class R>
static int state_weight(const direction<R> &a, int64_t column, int64_t row, int64_t count, R *dw) {
  const int64_t batch = a.batch, rows = (a.steps - 1) * batch, n = a.n;
  const R *y = a.y + (a.reversed ? batch * a.ld : 0);
  const R *dgates = a.dgates + (a.reversed ? 0 : batch * a.kept);
  int status = product<R>(a, count, n, batch, a.begun + column, 1, a.kept, a.h0, n, 1,
                          dw + row * n, n, 0);
  if (status || !rows) return status;
  return product<R>(a, count, n, rows, dgates + column, 1, a.kept, y, a.ld, 1, dw + row * n, n, 1);
}

/* The gradients of the direction's parameters, one after another from dw on. */
template <class R> static int direction_weights(const direction<R> &a, const R *x, R *dw) {
  const int64_t inputs = moth_rnn_inputs(a.r, a.layer), rows = a.steps * a.batch, n = a.n;
  const bool gru = a.mode == MOTH_GRU;
  R *dw_hh = dw + a.wide * inputs;
  int status = product<R>(a, a.wide, inputs, rows, a.dgates, 1, a.kept, x, inputs, 1, dw, inputs,
                          0);
  if (!status) status = state_weight(a, 0, 0, a.shared, dw_hh);
  if (!status && gru) status = state_weight(a, 3 * n, 2 * n, n, dw_hh);
  if (status || !a.r->biased) return status;
  return launch_on(a.ctx, a.q, bias_gradients<R>, grid_for((a.kept + 31) / 32), 1024, 0,
                   rows, a.kept, n, a.wide, gru, (const R *)a.dgates, dw_hh + a.wide * n);
}

template <class R>
static int layer_back(const moth_rnn_call *c, const moth_queue *q, int64_t layer, const R *x,
                      const R *above, R *below, R *dgates, R *begun, R **end) {
  const moth_rnn *r = c->r;
  const int64_t inputs = moth_rnn_inputs(r, layer), states = r->batch * r->hidden;
  const int64_t each = moth_rnn_gates(r->mode) * r->hidden * (inputs + r->hidden + 2 * r->biased);
  int status = MOTH_OK;
  for (int64_t d = r->directions - 1; !status && d >= 0; d--) {
    direction<R> a = direction_of<R>(c, q, layer * r->directions + d);
    a.dy = above + d * a.n, a.dgates = dgates, a.begun = begun;
    a.dh = (R *)c->dh + a.number * states;
    if (a.c0) a.dc = (R *)c->dc + a.number * states;
    *end -= each;
    status = direction_back(a);
    if (!status) status = direction_weights(a, x, *end);
    if (!status && below)
      status = product<R>(a, r->steps * r->batch, inputs, a.wide, dgates, a.kept, 1, a.w_ih,
                          inputs, 1, below, inputs, d != r->directions - 1);
  }
  return status;
}

template <class R> static int back(const moth_rnn_call *c, const moth_queue *q) {
  const moth_rnn *r = c->r;
  const int64_t kept = moth_rnn_kept(r->mode) * r->hidden, rows = r->steps * r->batch;
  const int64_t block = rows * r->directions * r->hidden;
  scratch<R> dgates, begun, next, masked;
  R *above = (R *)c->dy, *end = (R *)c->dw + c->weights;
  int status = dgates.take(c->ctx, r, rows * kept);
  if (!status) status = begun.take(c->ctx, r, r->batch * kept);
  if (!status && r->layers > 1) status = next.take(c->ctx, r, block);
  R *below = next.at;
  for (int64_t layer = r->layers - 1; !status && layer >= 0; layer--) {
    const R *x = (const R *)c->x;
    R *to = layer ? below : (R *)c->dx;
    if (layer) status = layer_input(c, q, layer, &masked, &x);
    if (!status) status = layer_back<R>(c, q, layer, x, above, to, dgates.at, begun.at, &end);
    if (layer && r->masked && !status)
      status = launch_on(c->ctx, q, mask_all<R>, blocks_for(block), BLOCK, 0, block,
                         (const R *)below,
                         (const R *)layer_output<R>(r, c->reserve, r->layers + layer - 1), below);
    below = above;
    above = to;
  }
  return status;
}

template <class R> static int cell_back(const moth_rnn_call *c, const moth_queue *q) {
  const moth_rnn *r = c->r;
  direction<R> a = direction_of<R>(c, q, 0);
  const bool gru = a.kept > a.wide;
  scratch<R> nothing, own;
  int status = nothing.take(c->ctx, r, r->batch * a.n);
  if (!status) status = clear(c->ctx, q, nothing.at, r->batch * a.n);
  if (!status && gru) status = own.take(c->ctx, r, r->batch * a.kept);
  R *at = gru ? own.at : (R *)c->dw;
  a.dy = nothing.at, a.dh = (R *)c->dh, a.dc = a.c0 ? (R *)c->dc : NULL, a.dgates = at;
  if (!status) status = direction_back(a);
  if (!status && c->dx)
    status = product<R>(a, r->batch, r->input, a.wide, at, a.kept, 1, a.w_ih, r->input, 1,
                        (R *)c->dx, r->input, 0);
  if (status || !gru) return status;
  return launch_on(c->ctx, q, part_gates<R>, blocks_for(r->batch * 3 * a.n), BLOCK, 0, r->batch,
                   a.n, (const R *)at, (R *)c->dw);
}

/* -- functions that the core calls by name -- */

#define MOTH_RNN_ENTRY(name, run)                                                              \
  static int name##_run(const void *args, moth_tensor **out) {                                 \
    const moth_rnn_call *c = (const moth_rnn_call *)args;                                      \
    const moth_queue *q = moth_queue_of(c->ctx, c->r->device);                                 \
    (void)out;                                                                                 \
    if (!q) return moth_status(c->ctx);                                                        \
    return c->r->dtype == MOTH_F64 ? run<double>(c, q) : run<float>(c, q);                     \
  }                                                                                            \
  MOTH_ENTRY(name##_row, {#name, name##_run, NULL})
MOTH_RNN_ENTRY(rnn_forward, forward)
MOTH_RNN_ENTRY(rnn_backward, back)
MOTH_RNN_ENTRY(rnn_cell_backward, cell_back)

/* -- dropout between layers, from the same random words as on the CPU -- */

template <class R>
static __global__ void draw_masks(int64_t n, stream s, uint64_t least, R scale, R *to) {
  const int64_t block = thread_number();
  if (block * 4 >= n) return;
  const words w = philox(s, (uint64_t)block);
  for (int k = 0; k < 4 && block * 4 + k < n; k++)
    to[block * 4 + k] = w.at[k] >= least ? scale : (R)0;
}

static int masks_run(const void *args, moth_tensor **out) {
  const moth_rnn_masks *m = (const moth_rnn_masks *)args;
  const moth_queue *q = moth_queue_of(m->ctx, m->r->device);
  const stream s = {m->seed, m->block};
  (void)out;
  if (m->r->dtype == MOTH_F64)
    return launch_on(m->ctx, q, draw_masks<double>, blocks_for(m->n, 4), BLOCK, 0, m->n, s,
                     m->least, m->scale, (double *)m->to);
  return launch_on(m->ctx, q, draw_masks<float>, blocks_for(m->n, 4), BLOCK, 0, m->n, s, m->least,
                   (float)m->scale, (float *)m->to);
}
MOTH_ENTRY(masks_row, {"rnn_masks", masks_run, NULL})
