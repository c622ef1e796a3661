/* recurrent.c -- the forward pass of recurrent layers; recurrent_back.c has the backward pass. */
#include "vendor/blas.h"
#include "device/device.h"
#include "recurrent_step.h"
#include "base/alloc.h"

/* -- the state's product with W_hh -- */

/* Copies rows of W_hh to the layout that the steps read: transposed, and in tiles if rnn_tiled. For
** a GRU the rows of the last gate are a second block, because the state's term of that gate is kept
** separately. */
static void transpose_block(const rnn_direction *q, int64_t from, int64_t columns, char *to) {
  int64_t n = q->n;
  const char *w = (const char *)q->params[1] + from * n * q->size;
  if (rnn_tiled(q)) {
    moth_matrix_pack((float *)(void *)to, (const float *)(const void *)w, n, columns, 1, n);
    return;
  }
  for (int64_t j = 0; j < n; j++)
    moth_convert(columns, q->r->dtype, w + j * q->size, n * q->size, q->r->dtype,
                 to + j * columns * q->size, q->size);
}

/* c (rows, columns) += h0 b, inside a job. */
static void add_product(const rnn_direction *q, const rnn_step *s, const char *b, int64_t columns,
                        char *c) {
  if (rnn_tiled(q)) {
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

/* gates += h0 W_hh^T. */
static void add_state(const rnn_direction *q, const rnn_step *s, const char *transposed) {
  int64_t shared = rnn_shared_gates(q);
  add_product(q, s, transposed, shared, s->gates);
  if (shared < q->wide)
    add_product(q, s, transposed + shared * q->n * q->size, q->n,
                (char *)s->gates + 3 * q->n * q->size);
}

/* gates += h0 W_hh^T for a single step, where no transposed copy pays. */
static int add_first_state(const rnn_direction *q) {
  const char *w = q->params[1];
  int64_t n = q->n, shared = rnn_shared_gates(q), rows = moth_rnn_active(q->r, 0);
  int status = moth_gemm(q->ctx, q->r->dtype, rows, shared, n, q->h0, n, 1, w, 1, n, q->gates,
                         q->kept, 1);
  if (status || shared == q->wide) return status;
  return moth_gemm(q->ctx, q->r->dtype, rows, n, n, q->h0, n, 1, w + shared * n * q->size, 1, n,
                   q->gates + 3 * n * q->size, q->kept, 1);
}

/* Copies the last state of the sequences that end at this step to hn and cn. */
static void keep_last(const rnn_direction *q, const rnn_moment *m, rnn_span rows, char *hn,
                      char *cn) {
  int64_t bytes = q->n * q->size, first = q->number * q->r->batch;
  int64_t k = m->after > rows.first ? m->after : rows.first;
  for (int64_t end = m->rows < rows.last ? m->rows : rows.last; k < end; k++) {
    int64_t at = m->t * q->r->batch + k;
    memcpy(hn + (first + k) * bytes, q->y + at * q->ld * q->size, (size_t)bytes);
    if (q->c0) memcpy(cn + (first + k) * bytes, q->cells + at * bytes, (size_t)bytes);
  }
}

/* -- steps -- */

static void rows_forward(const rnn_walk *w, rnn_span rows) {
  const rnn_direction *q = w->q;
  for (int64_t i = w->steps.first; i < w->steps.last && !moth_rnn_stops(w); i++) {
    rnn_moment m = moth_rnn_moment_of(q->r, q->direction == 1, i);
    for (int part = 0; part < 2; part++) {
      rnn_step s;
      int64_t first;
      if (!moth_rnn_part_of(q, &m, part, rows, &first, &s)) continue;
      if (w->transposed) add_state(q, &s, w->transposed);
      q->level->forward(q->r->mode, &s);
    }
    keep_last(q, &m, rows, w->hn, w->cn);
  }
}

/* -- layers -- */

/* gates := x W_ih^T + biases, for all steps. The extra kept gate of a GRU starts with its bias. */
static int add_inputs(const rnn_direction *q, const void *x) {
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

static int lane_forward(const rnn_direction *q, const void *x, void *hn, void *cn) {
  const moth_rnn *r = q->r;
  int64_t bytes = r->steps > 1 ? q->wide * q->n * q->size : 0, shared = rnn_shared_gates(q);
  rnn_walk w = {.q = q, .rows = rows_forward, .steps = {0, r->steps}, .hn = hn, .cn = cn};
  int status = add_inputs(q, x);
  if (status) return status;
  char *transposed = bytes ? moth_alloc(q->ctx, bytes) : NULL;
  if (bytes && !transposed) return q->ctx->error.code;
  if (transposed) {
    transpose_block(q, 0, shared, transposed);
    if (shared < q->wide) transpose_block(q, shared, q->n, transposed + shared * q->n * q->size);
  } else {
    status = add_first_state(q);
  }
  w.transposed = transposed;
  if (!status) status = moth_rnn_walk_batch(&w);
  if (transposed) moth_dealloc(q->ctx, transposed, bytes);
  return status;
}

int moth_rnn_forward(moth_ctx *ctx, const moth_rnn *r, const void *x, const void *h0,
                     const void *c0, void *reserve, void *hn, void *cn, const void **y) {
  int64_t block = r->steps * r->batch * r->directions * r->hidden * moth_dtype_size[r->dtype];
  void *scratch = NULL;
  int status = MOTH_OK;
  *y = moth_rnn_layer_output(r, reserve, r->layers - 1);
  if (!r->batch) return MOTH_OK;
  if (r->device)
    return moth_device_call(ctx, "rnn_forward",
                            &(moth_rnn_call){.ctx = ctx, .r = r, .x = x, .h0 = h0, .c0 = c0,
                                             .reserve = reserve, .hn = hn, .cn = cn});
  if (r->sizes) memset(moth_rnn_layer_output(r, reserve, 0), 0, (size_t)(block * r->layers));
  for (int64_t layer = 0; !status && layer < r->layers; layer++) {
    if (layer) status = moth_rnn_layer_input(ctx, r, reserve, layer, &scratch, &x);
    for (int64_t d = 0; !status && d < r->directions; d++) {
      rnn_direction q = moth_rnn_direction_of(ctx, r, reserve, h0, c0, layer * r->directions + d);
      status = lane_forward(&q, x, hn, cn);
    }
  }
  if (scratch) moth_dealloc(ctx, scratch, block);
  return status;
}
