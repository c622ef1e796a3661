/* recurrent.c -- layers of recurrent networks, forward and back through time (Werbos 1990).
**
** A lane is one layer in one direction. Sequences are ordered by falling length, so that those
** which reach a step are its first rows; of these the first `before` go on from the neighbouring
** step and the rest, which begin here, from h0. A row's running gradient holds that of its last
** state until its last step is undone and that of its first state after its first one.
*/
#include "recurrent.h"

#include "../backend.h"
#include "../blas.h"
#include "../threads.h"
#include "elementwise.h"
#include "exp.h"
#include "matrix.h"

#define SOME_ROWS 32 /* that a library multiplies at a time */
#define HELD (1280 << 10) /* bytes of gradients of gates that stay in L2 until all have read them */

typedef struct step {
  int64_t rows, n, ld, ld0;
  void *gates, *h, *c;
  const void *h0, *c0; /* the state before; h0 lies ld0 apart */
  const void *dy;
  void *dgates, *dh, *dc;
} step;

typedef struct level {
  void (*forward)(int mode, const step *);
  void (*back)(int mode, const step *);
  void (*sum_rows)(int64_t, int64_t, const void *, double *);
  void (*mask)(int64_t, const void *, const void *, void *);
  void (*add_biases)(const moth_rnn *, const void *, const void *, void *);
} level;

#define LOOPS "recurrent_real.h"
#include "each_level.h"

static const level *level_of(int dtype) {
  return dtype == MOTH_F32 ? MOTH_BEST(&level) : &level_f64;
}

/* -- where things lie -- */

bool moth_rnn_room(const moth_rnn *r, int64_t *size, int64_t *masks) {
  const int64_t kept = moth_rnn_kept(r->mode) + (r->mode == MOTH_LSTM) + 1;
  const double units = (double)r->layers * (double)r->directions * (double)r->steps *
                       (double)r->batch * (double)r->hidden;
  if (units * (double)((kept + 1) * 8) >= 0x1p62) return false;
  const int64_t all = r->layers * r->directions * r->steps * r->batch * r->hidden;
  *masks = all * kept;
  *size = *masks + (r->masked ? all / r->layers * (r->layers - 1) : 0);
  return true;
}

int64_t moth_rnn_weights(const moth_rnn *r) {
  int64_t n = 0, wide = moth_rnn_gates(r->mode) * r->hidden;
  for (int64_t layer = 0; layer < r->layers; layer++)
    n += r->directions * wide * (moth_rnn_inputs(r, layer) + r->hidden + (r->biased ? 2 : 0));
  return n;
}

typedef struct lane {
  moth_ctx *ctx;
  const moth_rnn *r;
  const level *level;
  int64_t size, n, wide, kept, ld; /* bytes of an element; hidden; gates' and kept widths */
  int64_t number, layer, direction;
  const void *const *params;
  char *gates, *cells, *y; /* y: this direction's columns of the layer's output */
  const char *h0, *c0;
} lane;

static char *layer_output(const moth_rnn *r, const void *reserve, int64_t layer) {
  int64_t block = r->steps * r->batch * r->directions * r->hidden;
  int64_t kept = moth_rnn_kept(r->mode) + (r->mode == MOTH_LSTM);
  return (char *)(uintptr_t)reserve +
         moth_dtype_size[r->dtype] * block * (r->layers * kept + layer);
}

static char *layer_mask(const moth_rnn *r, const void *reserve, int64_t layer) {
  return layer_output(r, reserve, r->layers + layer);
}

static lane lane_of(moth_ctx *ctx, const moth_rnn *r, const void *reserve, const void *h0,
                    const void *c0, int64_t number) {
  lane q = {.ctx = ctx, .r = r, .level = level_of(r->dtype), .size = moth_dtype_size[r->dtype],
            .n = r->hidden, .number = number, .layer = number / r->directions,
            .direction = number % r->directions};
  int64_t block = r->steps * r->batch * q.n * q.size, lanes = r->layers * r->directions;
  q.wide = moth_rnn_gates(r->mode) * q.n;
  q.kept = moth_rnn_kept(r->mode) * q.n;
  q.ld = r->directions * q.n;
  q.params = r->params + number * (r->biased ? 4 : 2);
  q.gates = (char *)(uintptr_t)reserve + block * moth_rnn_kept(r->mode) * number;
  q.cells = (char *)(uintptr_t)reserve + block * (moth_rnn_kept(r->mode) * lanes + number);
  q.y = layer_output(r, reserve, q.layer) + q.direction * q.n * q.size;
  q.h0 = (const char *)h0 + number * r->batch * q.n * q.size;
  q.c0 = r->mode == MOTH_LSTM ? (const char *)c0 + number * r->batch * q.n * q.size : NULL;
  return q;
}

/* Step number s in the lane's order: when, how many rows it has, and how many of these had and
** will have a neighbour. */
typedef struct moment {
  int64_t t, rows, earlier, before, after;
} moment;

static int64_t active(const moth_rnn *r, int64_t t) {
  if (t < 0 || t >= r->steps) return 0;
  return r->sizes ? r->sizes[t] : r->batch;
}

static moment moment_of(const lane *q, int64_t s) {
  bool back = q->direction == 1;
  moment m = {.t = back ? q->r->steps - 1 - s : s};
  m.rows = active(q->r, m.t);
  m.earlier = back ? m.t + 1 : m.t - 1;
  m.before = active(q->r, m.earlier);
  m.after = active(q->r, back ? m.t - 1 : m.t + 1);
  if (m.before > m.rows) m.before = m.rows;
  if (m.after > m.rows) m.after = m.rows;
  return m;
}

typedef struct span { /* rows of a batch */
  int64_t first, last;
} span;

/* The rows of a moment that go on (part 0) or begin (part 1) and lie within a span, as far as both
** ways need them. */
static bool part_of(const lane *q, const moment *m, int part, span rows, int64_t *first, step *s) {
  int64_t end = part ? m->rows : m->before;
  *first = part ? m->before : 0;
  if (*first < rows.first) *first = rows.first;
  if (end > rows.last) end = rows.last;
  int64_t at = m->t * q->r->batch + *first, past = m->earlier * q->r->batch;
  *s = (step){.rows = end - *first, .n = q->n, .ld = q->ld};
  s->gates = q->gates + at * q->kept * q->size;
  s->h = q->y + at * q->ld * q->size;
  s->c = q->cells + at * q->n * q->size;
  if (part) {
    s->h0 = q->h0 + *first * q->n * q->size;
    s->c0 = q->c0 ? q->c0 + *first * q->n * q->size : NULL;
    s->ld0 = q->n;
  } else if (s->rows > 0) {
    s->h0 = q->y + (past + *first) * q->ld * q->size;
    s->c0 = q->cells + (past + *first) * q->n * q->size;
    s->ld0 = q->ld;
  }
  return s->rows > 0;
}

/* -- forward -- */

/* W_hh as the steps of a chain read it: turned, and in tiles where those are our own. A GRU keeps
** the last gate's share of the state apart, so that is a second block. */
static int64_t shared_gates(const lane *q) { return q->r->mode == MOTH_GRU ? 2 * q->n : q->wide; }

static bool tiled(const lane *q) { return q->r->dtype == MOTH_F32 && moth_matrix_here(); }

static void turn_block(const lane *q, int64_t from, int64_t columns, char *to) {
  int64_t n = q->n;
  const char *w = (const char *)q->params[1] + from * n * q->size;
  if (tiled(q)) {
    moth_matrix_pack((float *)(void *)to, (const float *)(const void *)w, n, columns, 1, n);
    return;
  }
  for (int64_t j = 0; j < n; j++)
    moth_convert(columns, q->r->dtype, w + j * q->size, n * q->size, q->r->dtype,
                 to + j * columns * q->size, q->size);
}

/* c (rows, columns) += a b, inside a job. */
static void add_product(const lane *q, const step *s, const char *b, int64_t columns, char *c) {
  if (tiled(q)) {
    moth_matrix_run(&(moth_matrix){
      .m = s->rows, .n = columns, .k = q->n, .a = s->h0, .rs = s->ld0, .cs = 1,
      .b = (const float *)(const void *)b, .packed = true, .c = (float *)(void *)c, .ldc = q->kept,
      .add = true});
    return;
  }
  moth_multiply_inside(&(moth_product){
    .dtype = q->r->dtype, .beta = 1, .m = s->rows, .n = columns, .k = q->n, .a = s->h0,
    .rs_a = s->ld0, .cs_a = 1, .b = b, .rs_b = columns, .cs_b = 1, .c = c, .ldc = q->kept});
}

/* gates += h0 W_hh^T */
static void add_state(const lane *q, const step *s, const char *turned) {
  int64_t shared = shared_gates(q);
  add_product(q, s, turned, shared, s->gates);
  if (shared < q->wide)
    add_product(q, s, turned + shared * q->n * q->size, q->n,
                (char *)s->gates + 3 * q->n * q->size);
}

/* The same for the only step, where nothing is worth turning. */
static int add_first_state(const lane *q) {
  const char *w = q->params[1];
  int64_t n = q->n, shared = shared_gates(q), rows = active(q->r, 0);
  int status = moth_gemm(q->ctx, q->r->dtype, rows, shared, n, q->h0, n, 1, w, 1, n, q->gates,
                         q->kept, 1);
  if (status || shared == q->wide) return status;
  return moth_gemm(q->ctx, q->r->dtype, rows, n, n, q->h0, n, 1, w + shared * n * q->size, 1, n,
                   q->gates + 3 * n * q->size, q->kept, 1);
}

/* What sequences that end here leave behind. */
static void keep_last(const lane *q, const moment *m, span rows, char *hn, char *cn) {
  int64_t bytes = q->n * q->size, first = q->number * q->r->batch;
  int64_t k = m->after > rows.first ? m->after : rows.first;
  for (int64_t end = m->rows < rows.last ? m->rows : rows.last; k < end; k++) {
    int64_t at = m->t * q->r->batch + k;
    memcpy(hn + (first + k) * bytes, q->y + at * q->ld * q->size, (size_t)bytes);
    if (q->c0) memcpy(cn + (first + k) * bytes, q->cells + at * bytes, (size_t)bytes);
  }
}

typedef struct walk { /* through the steps of a chain, either way */
  const lane *q;
  span steps;
  const char *turned, *dy; /* turned: NULL where the state was added already */
  char *hn, *cn, *dh, *dc, *dgates, *begun; /* dgates: of these steps */
  atomic_bool *stopped; /* some rows, by a cancel */
} walk;

static bool stops(const walk *w) {
  if (!moth_cancelled(w->q->ctx)) return false;
  atomic_store_explicit(w->stopped, true, memory_order_relaxed);
  return true;
}

static void rows_forward(const walk *w, span rows) {
  const lane *q = w->q;
  for (int64_t i = w->steps.first; i < w->steps.last && !stops(w); i++) {
    moment m = moment_of(q, i);
    for (int part = 0; part < 2; part++) {
      step s;
      int64_t first;
      if (!part_of(q, &m, part, rows, &first, &s)) continue;
      if (w->turned) add_state(q, &s, w->turned);
      q->level->forward(q->r->mode, &s);
    }
    keep_last(q, &m, rows, w->hn, w->cn);
  }
}

/* Rows that go through the steps together. A library's products may round a row by how many there
** are, which must not be how many a thread has. */
static int64_t rows_at_once(const lane *q) { return tiled(q) ? q->r->batch : SOME_ROWS; }

static void walk_rows(int64_t first, int64_t last, const walk *w,
                      void (*rows)(const walk *w, span rows)) {
  for (int64_t at = first, next; at < last; at = next) {
    next = last - at < rows_at_once(w->q) ? last : at + rows_at_once(w->q);
    rows(w, (span){at, next});
  }
}

static void walk_forward(int64_t first, int64_t last, int thread, const void *arg) {
  (void)thread;
  walk_rows(first, last, arg, rows_forward);
}

/* Rows of a batch are apart from each other, so each thread goes through all steps with some: with
** as many as there are for one thread, since each step reads the whole weight for them. */
static int walk_batch(const lane *q, moth_work *work, walk *w) {
  enum { TILE = 6 };
  int64_t share = (q->r->batch + moth_lanes(q->ctx) - 1) / moth_lanes(q->ctx);
  int64_t grain = tiled(q) ? (share + TILE - 1) / TILE * TILE : SOME_ROWS;
  double steps = (double)(w->steps.last - w->steps.first);
  double cost = steps * (double)(q->n * (q->wide + 200)) / 100;
  atomic_bool stopped = false;
  w->stopped = &stopped;
  int status = moth_parallel(q->ctx, q->r->batch, grain, cost, work, w);
  return !status && stopped ? moth_stopped(q->ctx) : status;
}

/* gates := x W_ih^T + the biases, of all steps; what a GRU keeps beside begins with its bias. */
static int add_inputs(const lane *q, const void *x) {
  const moth_rnn *r = q->r;
  int64_t rows = r->steps * r->batch, inputs = moth_rnn_inputs(r, q->layer);
  int64_t rest = (q->kept - q->wide) * q->size, bytes = q->kept * q->size;
  char *biases = moth_alloc(q->ctx, bytes);
  if (!biases) return q->ctx->error.code;
  q->level->add_biases(r, r->biased ? q->params[2] : NULL, r->biased ? q->params[3] : NULL, biases);
  for (int64_t i = 0; rest && i < rows; i++)
    memcpy(q->gates + i * bytes + bytes - rest, biases + bytes - rest, (size_t)rest);
  int status = moth_multiply(q->ctx, &(moth_product){
    .dtype = r->dtype, .m = rows, .n = q->wide, .k = inputs, .a = x, .rs_a = inputs, .cs_a = 1,
    .b = q->params[0], .rs_b = 1, .cs_b = inputs, .c = q->gates, .ldc = q->kept, .bias = biases});
  moth_dealloc(q->ctx, biases, bytes);
  return status;
}

static int lane_forward(const lane *q, const void *x, void *hn, void *cn) {
  const moth_rnn *r = q->r;
  int64_t bytes = r->steps > 1 ? q->wide * q->n * q->size : 0, shared = shared_gates(q);
  walk w = {.q = q, .steps = {0, r->steps}, .hn = hn, .cn = cn};
  int status = add_inputs(q, x);
  if (status) return status;
  char *turned = bytes ? moth_alloc(q->ctx, bytes) : NULL;
  if (bytes && !turned) return q->ctx->error.code;
  if (turned) {
    turn_block(q, 0, shared, turned);
    if (shared < q->wide) turn_block(q, shared, q->n, turned + shared * q->n * q->size);
  } else {
    status = add_first_state(q);
  }
  w.turned = turned;
  if (!status) status = walk_batch(q, walk_forward, &w);
  if (turned) moth_dealloc(q->ctx, turned, bytes);
  return status;
}

/* The input of a layer above the first: the output below it, through dropout. */
static int layer_input(moth_ctx *ctx, const moth_rnn *r, const void *reserve, int64_t layer,
                       void **room, const void **x) {
  int64_t n = r->steps * r->batch * r->directions * r->hidden;
  *x = layer_output(r, reserve, layer - 1);
  if (!r->masked) return MOTH_OK;
  if (!*room) *room = moth_alloc(ctx, n * moth_dtype_size[r->dtype]);
  if (!*room) return ctx->error.code;
  level_of(r->dtype)->mask(n, *x, layer_mask(r, reserve, layer - 1), *room);
  *x = *room;
  return MOTH_OK;
}

int moth_rnn_forward(moth_ctx *ctx, const moth_rnn *r, const void *x, const void *h0,
                     const void *c0, void *reserve, void *hn, void *cn, const void **y) {
  int64_t block = r->steps * r->batch * r->directions * r->hidden * moth_dtype_size[r->dtype];
  void *room = NULL;
  int status = MOTH_OK;
  *y = layer_output(r, reserve, r->layers - 1);
  if (!r->batch) return MOTH_OK;
  if (r->device)
    return moth_device_call(ctx, "rnn_forward",
                            &(moth_rnn_call){.ctx = ctx, .r = r, .x = x, .h0 = h0, .c0 = c0,
                                             .reserve = reserve, .hn = hn, .cn = cn});
  if (r->sizes) memset(layer_output(r, reserve, 0), 0, (size_t)(block * r->layers));
  for (int64_t layer = 0; !status && layer < r->layers; layer++) {
    if (layer) status = layer_input(ctx, r, reserve, layer, &room, &x);
    for (int64_t d = 0; !status && d < r->directions; d++) {
      lane q = lane_of(ctx, r, reserve, h0, c0, layer * r->directions + d);
      status = lane_forward(&q, x, hn, cn);
    }
  }
  if (room) moth_dealloc(ctx, room, block);
  return status;
}

/* -- back -- */

/* c (rows, n) := or += some gates' gradients times their rows of W_hh, inside a job. */
static void through_state(const lane *q, int64_t rows, const char *dgates, int64_t gate,
                          int64_t gates, char *dh, int beta) {
  const char *w = (const char *)q->params[1] + gate * q->n * q->size;
  if (tiled(q)) { /* not the form that suits this many rows: others take other sums */
    moth_matrix_run(&(moth_matrix){
      .m = rows, .n = q->n, .k = gates, .a = (const float *)(const void *)dgates, .rs = q->kept,
      .cs = 1, .b = (const float *)(const void *)w, .ldb = q->n, .c = (float *)(void *)dh,
      .ldc = q->n, .add = beta});
    return;
  }
  moth_multiply_inside(&(moth_product){
    .dtype = q->r->dtype, .beta = beta, .m = rows, .n = q->n, .k = gates, .a = dgates,
    .rs_a = q->kept, .cs_a = 1, .b = w, .rs_b = q->n, .cs_b = 1, .c = dh, .ldc = q->n});
}

/* dh of the step before: dgates W_hh, to which a GRU adds what z let through. */
static void back_state(const lane *q, int64_t rows, const char *dgates, char *dh) {
  int64_t shared = shared_gates(q);
  bool gru = shared < q->wide;
  through_state(q, rows, dgates, 0, shared, dh, gru);
  if (gru) through_state(q, rows, dgates + 3 * q->n * q->size, shared, q->n, dh, 1);
}

/* When the steps of a lane are: the spans of both count up. */
static span times_of(const lane *q, span steps) {
  int64_t n = q->r->steps;
  return q->direction ? (span){n - steps.last, n - steps.first} : steps;
}

/* Undoes steps: fills dgates, and those of the rows' first steps into `begun`. */
static void rows_back(const walk *w, span rows) {
  const lane *q = w->q;
  int64_t bytes = q->n * q->size, wide = q->kept * q->size, start = times_of(q, w->steps).first;
  for (int64_t i = w->steps.last - 1; i >= w->steps.first && !stops(w); i--) {
    moment m = moment_of(q, i);
    char *at = w->dgates + (m.t - start) * q->r->batch * wide;
    int64_t first;
    for (int part = 0; part < 2; part++) {
      step s;
      if (!part_of(q, &m, part, rows, &first, &s)) continue;
      s.dy = w->dy + (m.t * q->r->batch + first) * q->ld * q->size;
      s.dgates = at + first * wide;
      s.dh = w->dh + first * bytes;
      s.dc = w->dc ? w->dc + first * bytes : NULL;
      q->level->back(q->r->mode, &s);
      if (part && w->begun) memcpy(w->begun + first * wide, s.dgates, (size_t)(s.rows * wide));
    }
    int64_t end = m.rows < rows.last ? m.rows : rows.last;
    if (end > rows.first)
      back_state(q, end - rows.first, at + rows.first * wide, w->dh + rows.first * bytes);
  }
}

static void walk_back(int64_t first, int64_t last, int thread, const void *arg) {
  (void)thread;
  walk_rows(first, last, arg, rows_back);
}

typedef struct room { /* for backward; `next` takes turns with dy */
  double *sums;         /* of the gates' gradients, for the biases */
  char *dgates, *begun; /* of some steps; of the rows' first ones, behind the sums */
  char *next;
  void *x;
  int64_t dgates_bytes, sums_bytes, block;
} room;

/* Rows [row, row + n) of the gradient of W_hh, from the columns of dgates from `column` on: what
** steps after the first add; NULL stands for what the rows' first steps do. */
static int state_weight(const lane *q, const room *w, const span *steps, int64_t column,
                        int64_t row, int64_t n, char *dw) {
  const moth_rnn *r = q->r;
  const char *dgates = w->begun + column * q->size, *y = q->h0;
  int64_t rows = r->batch, ld = q->n;
  bool add = r->steps > 1;
  dw += row * q->n * q->size;
  if (steps) {
    const span all = times_of(q, *steps);
    const span t = times_of(q, (span){steps->first > 0 ? steps->first : 1, steps->last});
    rows = (t.last - t.first) * r->batch;
    ld = q->ld;
    dgates = w->dgates + ((t.first - all.first) * r->batch * q->kept + column) * q->size;
    y = q->y + (t.first + (q->direction ? 1 : -1)) * r->batch * ld * q->size;
    add = steps->last < r->steps;
  }
  if (rows == 0) return MOTH_OK;
  return moth_gemm(q->ctx, r->dtype, n, q->n, rows, dgates, 1, q->kept, y, ld, 1, dw, q->n, add);
}

/* Both parts of it for a GRU, whose last gate has its own. */
static int state_weights(const lane *q, const room *w, const span *steps, char *dw) {
  int64_t shared = shared_gates(q);
  int status = state_weight(q, w, steps, 0, 0, shared, dw);
  if (status || shared == q->wide) return status;
  return state_weight(q, w, steps, 3 * q->n, shared, q->n, dw);
}

/* What some steps add to the gradients of the parameters, and the input's own in those steps: in
** turn, while dgates is in the cache. */
static int share_out(const lane *q, const room *w, span steps, const char *x, char *dx, char *dw) {
  const moth_rnn *r = q->r;
  const span t = times_of(q, steps);
  int64_t inputs = moth_rnn_inputs(r, q->layer), rows = (t.last - t.first) * r->batch;
  int64_t at = t.first * r->batch * inputs * q->size;
  int status = moth_gemm(q->ctx, r->dtype, q->wide, inputs, rows, w->dgates, 1, q->kept, x + at,
                         inputs, 1, dw, inputs, steps.last < r->steps);
  if (dx && !status)
    status = moth_gemm(q->ctx, r->dtype, rows, inputs, q->wide, w->dgates, q->kept, 1,
                       q->params[0], inputs, 1, dx + at, inputs,
                       q->direction != r->directions - 1);
  if (!status) status = state_weights(q, w, &steps, dw + q->wide * inputs * q->size);
  if (!status && r->biased) q->level->sum_rows(rows, q->kept, w->dgates, w->sums);
  return status;
}

/* Both biases' gradients from the sums: they differ for a GRU's last gate. */
static void bias_gradients(const lane *q, const double *sums, char *db) {
  int64_t shared = shared_gates(q), rest = q->wide - shared, size = q->size;
  const char *from = (const char *)sums, *own = (const char *)(sums + 3 * q->n);
  moth_convert(q->wide, MOTH_F64, from, 8, q->r->dtype, db, size);
  moth_convert(shared, MOTH_F64, from, 8, q->r->dtype, db + q->wide * size, size);
  moth_convert(rest, MOTH_F64, own, 8, q->r->dtype, db + (q->wide + shared) * size, size);
}

/* How many steps are undone before their dgates are used. */
static int64_t steps_at_once(const moth_rnn *r) {
  int64_t n = HELD / (r->batch * moth_rnn_kept(r->mode) * r->hidden * moth_dtype_size[r->dtype]);
  return n < 1 ? 1 : n < r->steps ? n : r->steps;
}

static int undo(walk *w, span steps) {
  const lane *q = w->q;
  int64_t bytes = (steps.last - steps.first) * q->r->batch * q->kept * q->size;
  if (q->r->sizes) memset(w->dgates, 0, (size_t)bytes);
  w->steps = steps;
  return walk_batch(q, walk_back, w);
}

static int lane_back(walk *v, const room *w, const char *x, char *dx, char *dw) {
  const lane *q = v->q;
  int64_t some = steps_at_once(q->r), inputs = moth_rnn_inputs(q->r, q->layer);
  char *dw_hh = dw + q->wide * inputs * q->size;
  int status = MOTH_OK;
  memset(w->sums, 0, (size_t)(q->kept * 8));
  for (int64_t i = q->r->steps; !status && i > 0; i = v->steps.first) {
    status = undo(v, (span){i > some ? i - some : 0, i});
    if (!status) status = share_out(q, w, v->steps, x, dx, dw);
  }
  if (!status) status = state_weights(q, w, NULL, dw_hh);
  if (!status && q->r->biased) bias_gradients(q, w->sums, dw_hh + q->wide * q->n * q->size);
  return status;
}

static int room_open(moth_ctx *ctx, const moth_rnn *r, room *w) {
  int64_t size = moth_dtype_size[r->dtype], kept = moth_rnn_kept(r->mode) * r->hidden;
  *w = (room){.dgates_bytes = steps_at_once(r) * r->batch * kept * size,
              .sums_bytes = kept * (8 + r->batch * size)};
  w->block = r->steps * r->batch * r->directions * r->hidden * size;
  w->dgates = moth_alloc(ctx, w->dgates_bytes);
  if (w->dgates) w->sums = moth_alloc(ctx, w->sums_bytes);
  if (w->sums) w->begun = (char *)(w->sums + kept);
  if (w->sums && r->layers > 1) w->next = moth_alloc(ctx, w->block);
  return w->sums && (w->next || r->layers == 1) ? MOTH_OK : ctx->error.code;
}

static void room_close(moth_ctx *ctx, room *w) {
  if (w->dgates) moth_dealloc(ctx, w->dgates, w->dgates_bytes);
  if (w->sums) moth_dealloc(ctx, w->sums, w->sums_bytes);
  if (w->next) moth_dealloc(ctx, w->next, w->block);
  if (w->x) moth_dealloc(ctx, w->x, w->block);
}

int moth_rnn_backward(moth_ctx *ctx, const moth_rnn *r, const void *x, const void *h0,
                      const void *c0, const void *reserve, void *dy, void *dh, void *dc, void *dx,
                      void *dw) {
  int64_t size = moth_dtype_size[r->dtype], states = r->batch * r->hidden * size;
  char *above = dy, *end = (char *)dw + moth_rnn_weights(r) * size;
  room w = {0};
  if (r->device && r->batch)
    return moth_device_call(ctx, "rnn_backward", &(moth_rnn_call){
      .ctx = ctx, .r = r, .x = x, .h0 = h0, .c0 = c0, .reserve = (void *)(uintptr_t)reserve,
      .dy = dy, .dh = dh, .dc = dc, .dx = dx, .dw = dw, .weights = moth_rnn_weights(r)});
  if (!r->batch) { /* the caller clears what lies on a device */
    if (!r->device) memset(dw, 0, (size_t)(end - (char *)dw));
    return MOTH_OK;
  }
  int status = room_open(ctx, r, &w);
  char *below = w.next;
  for (int64_t layer = r->layers - 1; !status && layer >= 0; layer--) {
    int64_t inputs = moth_rnn_inputs(r, layer);
    int64_t each = moth_rnn_gates(r->mode) * r->hidden * (inputs + r->hidden + 2 * r->biased);
    const void *from = x;
    char *to = layer ? below : dx;
    if (layer) status = layer_input(ctx, r, reserve, layer, &w.x, &from);
    for (int64_t d = r->directions - 1; !status && d >= 0; d--) {
      lane q = lane_of(ctx, r, reserve, h0, c0, layer * r->directions + d);
      end -= each * size;
      walk v = {.q = &q, .dy = above + d * q.n * size, .dgates = w.dgates, .begun = w.begun,
                .dh = (char *)dh + q.number * states,
                .dc = q.c0 ? (char *)dc + q.number * states : NULL};
      status = lane_back(&v, &w, from, to, end);
    }
    if (layer && r->masked && !status)
      level_of(r->dtype)->mask(r->steps * r->batch * inputs, below,
                               layer_mask(r, reserve, layer - 1), below);
    below = above;
    above = to;
  }
  room_close(ctx, &w);
  return status;
}

/* -- back through one step -- */

/* What lies (r, z, n, m) in a row for each row, as (r, z, n) and as (r, z, m). */
static void part_gates(const lane *q, const char *from, char *to) {
  size_t unit = (size_t)(q->n * q->size);
  char *other = to + q->r->batch * q->wide * q->size;
  for (int64_t k = 0; k < q->r->batch; k++, from += 4 * unit, to += 3 * unit, other += 3 * unit) {
    memcpy(to, from, 3 * unit);
    memcpy(other, from, 2 * unit);
    memcpy(other + 2 * unit, from + 3 * unit, unit);
  }
}

int moth_rnn_cell_backward(moth_ctx *ctx, const moth_rnn *r, const void *h0, const void *c0,
                           const void *reserve, void *dh, void *dc, void *dx, void *dgates) {
  int64_t size = moth_dtype_size[r->dtype], states = r->batch * r->hidden * size;
  if (!r->batch) return MOTH_OK;
  if (r->device)
    return moth_device_call(ctx, "rnn_cell_backward", &(moth_rnn_call){
      .ctx = ctx, .r = r, .h0 = h0, .c0 = c0, .reserve = (void *)(uintptr_t)reserve, .dh = dh,
      .dc = dc, .dx = dx, .dw = dgates});
  lane q = lane_of(ctx, r, reserve, h0, c0, 0);
  int64_t bytes = states + (q.kept > q.wide ? r->batch * q.kept * size : 0);
  char *nothing = moth_alloc(ctx, bytes), *at = q.kept > q.wide ? nothing + states : dgates;
  if (!nothing) return ctx->error.code;
  memset(nothing, 0, (size_t)states);
  walk w = {.q = &q, .dy = nothing, .dh = dh, .dc = dc, .dgates = at};
  int status = undo(&w, (span){0, 1});
  if (!status && dx)
    status = moth_gemm(ctx, r->dtype, r->batch, r->input, q.wide, at, q.kept, 1, q.params[0],
                       r->input, 1, dx, r->input, 0);
  if (!status && at != dgates) part_gates(&q, at, dgates);
  moth_dealloc(ctx, nothing, bytes);
  return status;
}
