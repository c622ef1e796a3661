/* recurrent_back.c -- the backward pass of recurrent layers through time (Werbos 1990), and of a
** single cell.
*/
#include "vendor/blas.h"
#include "device/device.h"
#include "recurrent_step.h"
#include "base/alloc.h"

/* bytes of gate gradients of several steps, which stay in L2 until all products have read them */
#define L2_BYTES (1280 << 10)

/* -- steps -- */

/* dh (rows, n) := dgates times their rows of W_hh; beta 1 adds to dh. Runs inside a job. */
static void multiply_weight(const rnn_direction *q, int64_t rows, const char *dgates, int64_t gate,
                          int64_t gates, char *dh, int beta) {
  const char *w = (const char *)q->params[1] + gate * q->n * q->size;
  if (rnn_tiled(q)) { /* always tiles: another method would sum in another order */
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

/* dh of the previous step: dgates W_hh. For a GRU, dh already has the term of the gate z. */
static void back_state(const rnn_direction *q, int64_t rows, const char *dgates, char *dh) {
  int64_t shared = rnn_shared_gates(q);
  bool gru = shared < q->wide;
  multiply_weight(q, rows, dgates, 0, shared, dh, gru);
  if (gru) multiply_weight(q, rows, dgates + 3 * q->n * q->size, shared, q->n, dh, 1);
}

/* The times of a span of steps. They ascend in both directions. */
static rnn_span times_of(const rnn_direction *q, rnn_span steps) {
  int64_t n = q->r->steps;
  return q->direction ? (rnn_span){n - steps.last, n - steps.first} : steps;
}

/* Runs the backward steps for some rows. Fills dgates, and copies the dgates of each row's first
** step to `begun`. */
static void rows_back(const rnn_walk *w, rnn_span rows) {
  const rnn_direction *q = w->q;
  int64_t bytes = q->n * q->size, wide = q->kept * q->size, start = times_of(q, w->steps).first;
  for (int64_t i = w->steps.last - 1; i >= w->steps.first && !moth_rnn_stops(w); i--) {
    rnn_moment m = moth_rnn_moment_of(q->r, q->direction == 1, i);
    char *at = w->dgates + (m.t - start) * q->r->batch * wide;
    int64_t first;
    for (int part = 0; part < 2; part++) {
      rnn_step s;
      if (!moth_rnn_part_of(q, &m, part, rows, &first, &s)) continue;
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

/* -- gradients of the parameters, and of the input -- */

typedef struct buffers { /* buffers of the backward pass; `next` and dy alternate between layers */
  double *sums;         /* sums of the gate gradients, for the biases */
  /* dgates: of some steps; begun: of each row's first step, stored after the sums */
  char *dgates, *begun;
  char *next;
  void *x;
  int64_t dgates_bytes, sums_bytes, block;
} buffers;

/* Rows [row, row + n) of the gradient of W_hh, from the columns of dgates from `column` on. Adds
** the terms of a span of steps, except each row's first step. steps = NULL adds the terms of the
** rows' first steps, whose state is h0. */
static int state_weight(const rnn_direction *q, const buffers *w, const rnn_span *steps,
                        int64_t column, int64_t row, int64_t n, char *dw) {
  const moth_rnn *r = q->r;
  const char *dgates = w->begun + column * q->size, *y = q->h0;
  int64_t rows = r->batch, ld = q->n;
  bool add = r->steps > 1;
  dw += row * q->n * q->size;
  if (steps) {
    const rnn_span all = times_of(q, *steps);
    const rnn_span t = times_of(q, (rnn_span){steps->first > 0 ? steps->first : 1, steps->last});
    rows = (t.last - t.first) * r->batch;
    ld = q->ld;
    dgates = w->dgates + ((t.first - all.first) * r->batch * q->kept + column) * q->size;
    y = q->y + (t.first + (q->direction ? 1 : -1)) * r->batch * ld * q->size;
    add = steps->last < r->steps;
  }
  if (rows == 0) return MOTH_OK;
  return moth_gemm(q->ctx, r->dtype, n, q->n, rows, dgates, 1, q->kept, y, ld, 1, dw, q->n, add);
}

/* The whole gradient of W_hh. A GRU needs two products: its last gate has a separate gradient. */
static int state_weights(const rnn_direction *q, const buffers *w, const rnn_span *steps,
                         char *dw) {
  int64_t shared = rnn_shared_gates(q);
  int status = state_weight(q, w, steps, 0, 0, shared, dw);
  if (status || shared == q->wide) return status;
  return state_weight(q, w, steps, 3 * q->n, shared, q->n, dw);
}

/* Adds the terms of some steps to the gradients of the parameters, and computes dx of these steps,
** while dgates is in the cache. */
static int add_gradients(const rnn_direction *q, const buffers *w, rnn_span steps, const char *x,
                     char *dx, char *dw) {
  const moth_rnn *r = q->r;
  const rnn_span t = times_of(q, steps);
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

/* Converts the sums to the gradients of both biases. For a GRU the two differ in the last gate. */
static void bias_gradients(const rnn_direction *q, const double *sums, char *db) {
  int64_t shared = rnn_shared_gates(q), rest = q->wide - shared, size = q->size;
  const char *from = (const char *)sums, *own = (const char *)(sums + 3 * q->n);
  moth_convert(q->wide, MOTH_F64, from, 8, q->r->dtype, db, size);
  moth_convert(shared, MOTH_F64, from, 8, q->r->dtype, db + q->wide * size, size);
  moth_convert(rest, MOTH_F64, own, 8, q->r->dtype, db + (q->wide + shared) * size, size);
}

/* The number of backward steps whose dgates are kept before the products use them. */
static int64_t steps_at_once(const moth_rnn *r) {
  int64_t n =
      L2_BYTES / (r->batch * moth_rnn_kept(r->mode) * r->hidden * moth_dtype_size[r->dtype]);
  return n < 1 ? 1 : n < r->steps ? n : r->steps;
}

static int steps_back(rnn_walk *w, rnn_span steps) {
  const rnn_direction *q = w->q;
  int64_t bytes = (steps.last - steps.first) * q->r->batch * q->kept * q->size;
  if (q->r->sizes) memset(w->dgates, 0, (size_t)bytes);
  w->rows = rows_back;
  w->steps = steps;
  return moth_rnn_walk_batch(w);
}

static int direction_back(rnn_walk *v, const buffers *w, const char *x, char *dx, char *dw) {
  const rnn_direction *q = v->q;
  int64_t some = steps_at_once(q->r), inputs = moth_rnn_inputs(q->r, q->layer);
  char *dw_hh = dw + q->wide * inputs * q->size;
  int status = MOTH_OK;
  memset(w->sums, 0, (size_t)(q->kept * 8));
  for (int64_t i = q->r->steps; !status && i > 0; i = v->steps.first) {
    status = steps_back(v, (rnn_span){i > some ? i - some : 0, i});
    if (!status) status = add_gradients(q, w, v->steps, x, dx, dw);
  }
  if (!status) status = state_weights(q, w, NULL, dw_hh);
  if (!status && q->r->biased) bias_gradients(q, w->sums, dw_hh + q->wide * q->n * q->size);
  return status;
}

/* -- layers -- */

static int buffers_open(moth_ctx *ctx, const moth_rnn *r, buffers *w) {
  int64_t size = moth_dtype_size[r->dtype], kept = moth_rnn_kept(r->mode) * r->hidden;
  *w = (buffers){.dgates_bytes = steps_at_once(r) * r->batch * kept * size,
              .sums_bytes = kept * (8 + r->batch * size)};
  w->block = r->steps * r->batch * r->directions * r->hidden * size;
  w->dgates = moth_alloc(ctx, w->dgates_bytes);
  if (w->dgates) w->sums = moth_alloc(ctx, w->sums_bytes);
  if (w->sums) w->begun = (char *)(w->sums + kept);
  if (w->sums && r->layers > 1) w->next = moth_alloc(ctx, w->block);
  return w->sums && (w->next || r->layers == 1) ? MOTH_OK : ctx->error.code;
}

static void buffers_close(moth_ctx *ctx, buffers *w) {
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
  buffers w = {0};
  if (r->device && r->batch)
    return moth_device_call(ctx, "rnn_backward", &(moth_rnn_call){
      .ctx = ctx, .r = r, .x = x, .h0 = h0, .c0 = c0, .reserve = (void *)(uintptr_t)reserve,
      .dy = dy, .dh = dh, .dc = dc, .dx = dx, .dw = dw, .weights = moth_rnn_weights(r)});
  if (!r->batch) { /* a device's caller has cleared dw */
    if (!r->device) memset(dw, 0, (size_t)(end - (char *)dw));
    return MOTH_OK;
  }
  int status = buffers_open(ctx, r, &w);
  char *below = w.next;
  for (int64_t layer = r->layers - 1; !status && layer >= 0; layer--) {
    int64_t inputs = moth_rnn_inputs(r, layer);
    int64_t each = moth_rnn_gates(r->mode) * r->hidden * (inputs + r->hidden + 2 * r->biased);
    const void *from = x;
    char *to = layer ? below : dx;
    if (layer) status = moth_rnn_layer_input(ctx, r, reserve, layer, &w.x, &from);
    for (int64_t d = r->directions - 1; !status && d >= 0; d--) {
      rnn_direction q = moth_rnn_direction_of(ctx, r, reserve, h0, c0, layer * r->directions + d);
      end -= each * size;
      rnn_walk v = {.q = &q, .dy = above + d * q.n * size, .dgates = w.dgates, .begun = w.begun,
                    .dh = (char *)dh + q.number * states,
                    .dc = q.c0 ? (char *)dc + q.number * states : NULL};
      status = direction_back(&v, &w, from, to, end);
    }
    if (layer && r->masked && !status)
      moth_rnn_level_of(r->dtype)->mask(r->steps * r->batch * inputs, below,
                                        moth_rnn_layer_mask(r, reserve, layer - 1), below);
    below = above;
    above = to;
  }
  buffers_close(ctx, &w);
  return status;
}

/* -- one step of a cell -- */

/* Splits rows (r, z, n, m) into rows (r, z, n) and rows (r, z, m). */
static void split_gates(const rnn_direction *q, const char *from, char *to) {
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
  rnn_direction q = moth_rnn_direction_of(ctx, r, reserve, h0, c0, 0);
  int64_t bytes = states + (q.kept > q.wide ? r->batch * q.kept * size : 0);
  char *nothing = moth_alloc(ctx, bytes), *at = q.kept > q.wide ? nothing + states : dgates;
  if (!nothing) return ctx->error.code;
  memset(nothing, 0, (size_t)states);
  rnn_walk w = {.q = &q, .dy = nothing, .dh = dh, .dc = dc, .dgates = at};
  int status = steps_back(&w, (rnn_span){0, 1});
  if (!status && dx)
    status = moth_gemm(ctx, r->dtype, r->batch, r->input, q.wide, at, q.kept, 1, q.params[0],
                       r->input, 1, dx, r->input, 0);
  if (!status && at != dgates) split_gates(&q, at, dgates);
  moth_dealloc(ctx, nothing, bytes);
  return status;
}
