/* recurrent_step.c -- layout of the buffers of recurrent layers, and loops over time steps. */
#include "recurrent_step.h"
#include "base/error.h"
#include "base/alloc.h"

#include "kernel/math/elementwise.h"
#include "kernel/math/exp_f64.h"

#define SOME_ROWS 32 /* rows that BLAS multiplies at a time */

#define LOOPS "kernel/recurrent_real.h"
#include "each_level.h"

const rnn_level *moth_rnn_level_of(int dtype) {
  return dtype == MOTH_F32 ? MOTH_BEST(&level) : &level_f64;
}

/* -- layout of the buffers -- */

bool moth_rnn_reserve_size(const moth_rnn *r, int64_t *size, int64_t *masks) {
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

char *moth_rnn_layer_output(const moth_rnn *r, const void *reserve, int64_t layer) {
  int64_t block = r->steps * r->batch * r->directions * r->hidden;
  int64_t kept = moth_rnn_kept(r->mode) + (r->mode == MOTH_LSTM);
  return (char *)(uintptr_t)reserve +
         moth_dtype_size[r->dtype] * block * (r->layers * kept + layer);
}

char *moth_rnn_layer_mask(const moth_rnn *r, const void *reserve, int64_t layer) {
  return moth_rnn_layer_output(r, reserve, r->layers + layer);
}

rnn_direction moth_rnn_direction_of(moth_ctx *ctx, const moth_rnn *r, const void *reserve,
                                    const void *h0, const void *c0, int64_t number) {
  rnn_direction q = {.ctx = ctx, .r = r, .level = moth_rnn_level_of(r->dtype),
                .size = moth_dtype_size[r->dtype], .n = r->hidden, .number = number,
                .layer = number / r->directions, .direction = number % r->directions};
  int64_t block = r->steps * r->batch * q.n * q.size, lanes = r->layers * r->directions;
  q.wide = moth_rnn_gates(r->mode) * q.n;
  q.kept = moth_rnn_kept(r->mode) * q.n;
  q.ld = r->directions * q.n;
  q.params = r->params + number * (r->biased ? 4 : 2);
  q.gates = (char *)(uintptr_t)reserve + block * moth_rnn_kept(r->mode) * number;
  q.cells = (char *)(uintptr_t)reserve + block * (moth_rnn_kept(r->mode) * lanes + number);
  q.y = moth_rnn_layer_output(r, reserve, q.layer) + q.direction * q.n * q.size;
  q.h0 = (const char *)h0 + number * r->batch * q.n * q.size;
  q.c0 = r->mode == MOTH_LSTM ? (const char *)c0 + number * r->batch * q.n * q.size : NULL;
  return q;
}

int moth_rnn_layer_input(moth_ctx *ctx, const moth_rnn *r, const void *reserve, int64_t layer,
                         void **scratch, const void **x) {
  int64_t n = r->steps * r->batch * r->directions * r->hidden;
  *x = moth_rnn_layer_output(r, reserve, layer - 1);
  if (!r->masked) return MOTH_OK;
  if (!*scratch) *scratch = moth_alloc(ctx, n * moth_dtype_size[r->dtype]);
  if (!*scratch) return ctx->error.code;
  moth_rnn_level_of(r->dtype)->mask(n, *x, moth_rnn_layer_mask(r, reserve, layer - 1), *scratch);
  *x = *scratch;
  return MOTH_OK;
}

/* -- steps -- */

bool moth_rnn_part_of(const rnn_direction *q, const rnn_moment *m, int part, rnn_span rows,
                      int64_t *first, rnn_step *s) {
  int64_t end = part ? m->rows : m->before;
  *first = part ? m->before : 0;
  if (*first < rows.first) *first = rows.first;
  if (end > rows.last) end = rows.last;
  int64_t at = m->t * q->r->batch + *first, past = m->earlier * q->r->batch;
  *s = (rnn_step){.rows = end - *first, .n = q->n, .ld = q->ld};
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

/* -- walks -- */

bool moth_rnn_stops(const rnn_walk *w) {
  if (!moth_cancelled(w->q->ctx)) return false;
  atomic_store_explicit(w->stopped, true, memory_order_relaxed);
  return true;
}

/* The number of rows that go through the steps together. A BLAS product may round a row differently
** for another number of rows, so this number must not depend on the threads. */
static int64_t rows_at_once(const rnn_direction *q) {
  return rnn_tiled(q) ? q->r->batch : SOME_ROWS;
}

static void walk_some(int64_t first, int64_t last, int thread, const void *arg) {
  const rnn_walk *w = arg;
  (void)thread;
  for (int64_t at = first, next; at < last; at = next) {
    next = last - at < rows_at_once(w->q) ? last : at + rows_at_once(w->q);
    w->rows(w, (rnn_span){at, next});
  }
}

/* Rows of a batch are independent, so each thread runs all steps for some rows. Each thread has as
** many rows as possible, because each step reads the whole weight. */
int moth_rnn_walk_batch(rnn_walk *w) {
  enum { TILE_ROWS = 6 };
  const rnn_direction *q = w->q;
  int64_t share = (q->r->batch + moth_lanes(q->ctx) - 1) / moth_lanes(q->ctx);
  int64_t grain = rnn_tiled(q) ? (share + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS : SOME_ROWS;
  double steps = (double)(w->steps.last - w->steps.first);
  double cost = steps * (double)(q->n * (q->wide + 200)) / 100;
  atomic_bool stopped = false;
  w->stopped = &stopped;
  int status = moth_parallel(q->ctx, q->r->batch, grain, cost, walk_some, w);
  return !status && stopped ? moth_stopped(q->ctx) : status;
}
