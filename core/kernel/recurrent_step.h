/* recurrent_step.h -- code that the forward and backward passes of recurrent layers share: the
** layout of buffers, the rows of each step, and the loop over steps.
**
** An rnn_direction is one layer in one direction. Sequences are sorted by descending length, so
** that the sequences that are active in a step are its first rows. The first `before` of these
** continue from the neighboring step; the rest start here, from h0. During the backward pass, dh of
** a row is the gradient of hn before the row's last step is processed, and the gradient of h0 after
** its first step.
*/
#ifndef MOTH_KERNEL_RECURRENT_STEP_H
#define MOTH_KERNEL_RECURRENT_STEP_H

#include <stdatomic.h>

#include "base/threads.h"
#include "kernel/gemm/matrix.h"
#include "recurrent.h"

typedef struct rnn_step {
  int64_t rows, n, ld, ld0;
  void *gates, *h, *c;
  const void *h0, *c0; /* the previous state; rows of h0 are ld0 apart */
  const void *dy;
  void *dgates, *dh, *dc;
} rnn_step;

typedef struct rnn_level {
  void (*forward)(int mode, const rnn_step *);
  void (*back)(int mode, const rnn_step *);
  void (*sum_rows)(int64_t, int64_t, const void *, double *);
  void (*mask)(int64_t, const void *, const void *, void *);
  void (*add_biases)(const moth_rnn *, const void *, const void *, void *);
} rnn_level;

const rnn_level *moth_rnn_level_of(int dtype);

typedef struct rnn_direction {
  moth_ctx *ctx;
  const moth_rnn *r;
  const rnn_level *level;
  /* bytes of an element; hidden size; widths of gates and of kept gates */
  int64_t size, n, wide, kept, ld;
  int64_t number, layer, direction;
  const void *const *params;
  char *gates, *cells, *y; /* y: this direction's columns of the layer's output */
  const char *h0, *c0;
} rnn_direction;

rnn_direction moth_rnn_direction_of(moth_ctx *ctx, const moth_rnn *r, const void *reserve,
                                    const void *h0, const void *c0, int64_t number);
char *moth_rnn_layer_output(const moth_rnn *r, const void *reserve, int64_t layer);
char *moth_rnn_layer_mask(const moth_rnn *r, const void *reserve, int64_t layer);
/* The input of a layer above the first: the output of the layer below, after dropout. *scratch is a
** buffer for it, allocated if NULL. */
int moth_rnn_layer_input(moth_ctx *ctx, const moth_rnn *r, const void *reserve, int64_t layer,
                         void **scratch, const void **x);

/* Rows of W_hh whose gates add the terms of state and input: all rows except those of a GRU's last
** gate. */
static inline int64_t rnn_shared_gates(const rnn_direction *q) {
  return q->r->mode == MOTH_GRU ? 2 * q->n : q->wide;
}

static inline bool rnn_tiled(const rnn_direction *q) {
  return q->r->dtype == MOTH_F32 && moth_matrix_here();
}

typedef struct rnn_span { /* rows of a batch, or steps */
  int64_t first, last;
} rnn_span;

/* The rows of a moment that have a previous step (part 0) or start here (part 1), within a span.
** For both the forward and the backward pass. */
bool moth_rnn_part_of(const rnn_direction *q, const rnn_moment *m, int part, rnn_span rows,
                      int64_t *first, rnn_step *s);

typedef struct rnn_walk { /* the steps of a direction, forward or backward */
  const rnn_direction *q;
  void (*rows)(const struct rnn_walk *w, rnn_span rows); /* runs all steps for some rows */
  rnn_span steps;
  /* transposed: transposed W_hh; NULL: the state's term is already added */
  const char *transposed, *dy;
  char *hn, *cn, *dh, *dc, *dgates, *begun; /* dgates: of these steps */
  atomic_bool *stopped; /* set when a cancel stopped some rows */
} rnn_walk;

int moth_rnn_walk_batch(rnn_walk *w);   /* divides the rows among threads */
bool moth_rnn_stops(const rnn_walk *w); /* true after a cancel; called at each step */

#endif
