/* ctc_grad.c -- the gradient of ctc_losses composed of ops, so that it is differentiable. It
** computes the forward and backward sums over all alignments of the targets, which ctc_real.h
** defines, for all samples at once. It is slow, and runs under create_graph only.
*/
#include "ctc.h"
#include "autograd/gradient.h"
#include "base/alloc.h"

#include "base/context.h"
#include "kernel/real.h"
#include "binary.h"
#include "create.h"
#include "gradient_formula.h"
#include "index.h"
#include "join.h"
#include "reduce.h"
#include "softmax.h"

#define NONE (-1e30) /* replaces log 0 */

typedef struct reading {
  moth_grad *g;
  int64_t steps, n, states;
  int64_t device;
  moth_tensor *pad;   /* (N, 2), filled with NONE */
  moth_tensor *skip;  /* (N, L): 0 where a state can be reached from two states before, else NONE */
  moth_tensor *ahead; /* (N, L): 0 where a state can be left for two states after, else NONE */
  moth_tensor *ends;  /* (N, L): 0 for the last two states of each sample, else NONE */
  moth_tensor *emits; /* (T, N, L) */
  moth_tensor *lasts; /* (N, 1): number of steps of each sample */
} reading;

#define WHOLE(value) {.type = 1, .as.integer = (value)}
#define PART(x, along, from, count) \
  GRAD(g, narrow, .input = x, .dim = along, .start = from, .length = count)
#define STEP(x, t) GRAD(g, select, .input = x, .dim = 0, .index = t)

static moth_tensor *joined(moth_grad *g, moth_tensor *a, moth_tensor *b) {
  moth_tensor *list[2] = {a, b};
  return a && b ? GRAD(g, cat, .tensors = {list, 2}, .dim = 1) : NULL;
}

static moth_tensor *filled(const reading *r, int64_t columns, double value, int dtype) {
  moth_grad *g = r->g;
  const int64_t size[2] = {r->n, columns};
  return GRAD(g, full, .size = {size, 2}, .fill_value = {.as.number = value}, .dtype = dtype,
              .device = r->device);
}

static moth_tensor *counted(const reading *r, int64_t n) {
  moth_grad *g = r->g;
  return GRAD(g, arange, .start = WHOLE(0), .stop = WHOLE(n), .step = WHOLE(1), .dtype = MOTH_I64,
              .device = r->device);
}

static moth_tensor *sum3(moth_grad *g, moth_tensor *a, moth_tensor *b, moth_tensor *c) {
  moth_tensor *ab = GRAD(g, logaddexp, .input = a, .other = b);
  return GRAD(g, logaddexp, .input = ab, .other = c);
}

/* Returns the labels of the states: blank, class, blank, class, ..., blank, (N, L). */
static moth_tensor *labels(const reading *r, const ctc_losses_args *a) {
  moth_grad *g = r->g;
  const int64_t wide[2] = {r->n, r->states - 1};
  moth_tensor *blank = filled(r, r->states / 2, (double)a->blank, MOTH_I64);
  moth_tensor *valid = GRAD(g, clamp, .input = a->targets, .min = 0,
                            .max = (double)(a->log_probs->l.shape[2] - 1));
  moth_tensor *pair[2] = {blank, valid};
  if (!blank || !valid) return NULL;
  moth_tensor *both = GRAD(g, stack, .tensors = {pair, 2}, .dim = 2);
  return joined(g, GRAD(g, reshape, .input = both, .shape = {wide, 2}),
                filled(r, 1, (double)a->blank, MOTH_I64));
}

/* Computes the tensors that do not depend on log_probs. */
static void prepare(reading *r, const ctc_losses_args *a, moth_tensor *label, int dtype) {
  moth_grad *g = r->g;
  const int64_t states = r->states;
  moth_tensor *counts = GRAD(g, unsqueeze, .input = a->target_lengths, .dim = 1);
  moth_tensor *back = MINUS(TIMES(counts, NUMBER(2)), counted(r, states)); /* from the end */
  r->pad = filled(r, 2, NONE, dtype);
  moth_tensor *zero = filled(r, states, 0, dtype), *none = filled(r, states, NONE, dtype);
  moth_tensor *either = BOTH(GRAD(g, ge, .input = back, .other = NUMBER(0)),
                             GRAD(g, le, .input = back, .other = NUMBER(1)));
  r->ends = CHOOSE(either, zero, none);
  r->lasts = GRAD(g, unsqueeze, .input = a->input_lengths, .dim = 1);
  r->skip = r->ahead = none;
  if (states < 3) return;
  moth_tensor *differs = GRAD(g, ne, .input = PART(label, 1, 2, states - 2),
                              .other = PART(label, 1, 0, states - 2));
  moth_tensor *free = CHOOSE(differs, PART(zero, 1, 2, states - 2), PART(none, 1, 2, states - 2));
  r->skip = joined(g, r->pad, free);
  r->ahead = joined(g, free, r->pad);
}

/* Returns the forward sums after step t; p has the sums before it. */
static moth_tensor *forward(const reading *r, moth_tensor *p, int64_t t) {
  moth_grad *g = r->g;
  moth_tensor *wide = joined(g, r->pad, p), *now = NUMBER((double)t);
  moth_tensor *skipped = PLUS(PART(wide, 1, 0, r->states), r->skip);
  moth_tensor *sum = sum3(g, p, PART(wide, 1, 1, r->states), skipped);
  return CHOOSE(ABOVE(r->lasts, now), PLUS(sum, STEP(r->emits, t)), p);
}

/* Returns the backward sums at step t - 1 from those at step t. */
static moth_tensor *backward(const reading *r, moth_tensor *behind, int64_t t) {
  moth_grad *g = r->g;
  moth_tensor *q = PLUS(behind, STEP(r->emits, t)), *wide = joined(g, q, r->pad);
  moth_tensor *skipped = PLUS(PART(wide, 1, 2, r->states), r->ahead);
  moth_tensor *sum = sum3(g, q, PART(wide, 1, 1, r->states), skipped);
  return CHOOSE(ABOVE(r->lasts, NUMBER((double)t)), sum, r->ends);
}

/* The posterior probability of each state at each step, (T, N, L). */
static moth_tensor *shares(const reading *r, moth_tensor **row) {
  moth_grad *g = r->g;
  const int64_t steps = r->steps, dim = 1;
  moth_tensor *first = STEP(r->emits, 0);
  row[0] = r->states < 3 ? first
                         : joined(g, PART(first, 1, 0, 2),
                                  PART(filled(r, r->states, NONE, first ? first->l.dtype : 0), 1, 2,
                                       r->states - 2));
  for (int64_t t = 1; t < steps && row[t - 1]; t++) row[t] = forward(r, row[t - 1], t);
  if (g->status) return NULL;
  moth_tensor *total = GRAD(g, logsumexp, .input = PLUS(row[steps - 1], r->ends),
                            .dim = {&dim, 1}, .keepdim = true);
  moth_tensor *before = GRAD(g, stack, .tensors = {row, steps}, .dim = 0);
  row[steps - 1] = r->ends;
  for (int64_t t = steps - 1; t > 0 && row[t]; t--) row[t - 1] = backward(r, row[t], t);
  if (g->status) return NULL;
  moth_tensor *ways = PLUS(before, GRAD(g, stack, .tensors = {row, steps}, .dim = 0));
  moth_tensor *at = counted(r, steps);
  at = GRAD(g, unsqueeze, .input = GRAD(g, unsqueeze, .input = at, .dim = 1), .dim = 1);
  moth_tensor *counts = BOTH(ABOVE(r->lasts, at), ABOVE(total, NUMBER(NONE / 2)));
  /* softmax instead of exp(ways - total): a large `total` is rounded, which loses the differences
  ** between states. */
  return CHOOSE(counts, GRAD(g, softmax, .input = ways, .dim = 2, .dtype = -1), NUMBER(0));
}

moth_tensor *moth_ctc_grad(const ctc_losses_args *a, moth_grad *g) {
  const int64_t *n = a->log_probs->l.shape;
  const int64_t states = 2 * a->targets->l.shape[1] + 1, all[3] = {n[0], n[1], states};
  reading r = {.g = g, .steps = n[0], .n = n[1], .states = states,
               .device = moth_device_of(a->log_probs)};
  moth_tensor *x = moth_grad_real(g, a->log_probs);
  if (n[0] == 0 || n[1] == 0 || !x) return ZERO_OF(a->log_probs);
  moth_tensor *label = labels(&r, a);
  moth_tensor *at = GRAD(g, expand, .input = label, .size = {all, 3});
  prepare(&r, a, label, x->l.dtype);
  moth_tensor *found = GRAD(g, gather, .input = x, .dim = 2, .index = at);
  r.emits = CHOOSE(BELOW(found, NUMBER(NONE)), NUMBER(NONE), found);
  const int64_t bytes = r.steps * (int64_t)sizeof(moth_tensor *);
  moth_tensor **row = moth_alloc(g->ctx, bytes);
  if (!row) g->status = g->ctx->error.code;
  if (g->status) {
    if (row) moth_dealloc(g->ctx, row, bytes);
    return NULL;
  }
  memset(row, 0, (size_t)bytes);
  moth_tensor *share = shares(&r, row);
  moth_dealloc(g->ctx, row, bytes);
  moth_tensor *dy = GRAD(g, unsqueeze, .input = moth_grad_real(g, g->dy), .dim = 1);
  moth_tensor *down = NEGATED(TIMES(share, dy));
  moth_tensor *zeros = GRAD(g, zeros, .size = {n, 3}, .dtype = x->l.dtype, .device = r.device);
  return GRAD(g, scatter_add, .input = zeros, .dim = 2, .index = at, .src = down);
}
