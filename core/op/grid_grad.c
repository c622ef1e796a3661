/* grid_grad.c -- the gradients of grid_sample composed of ops. They gather or add elements at
** grid_positions with the weights grid_weights; the derivatives of the weights are again
** grid_weights. A point outside also has a position. Its product is set to 0 before and after the
** multiplication, so that NaN and infinity at that position have no effect.
*/
#include "grid_grad.h"

#include "kernel/grid_taps.h"
#include "kernel/real.h"
#include "create.h"
#include "gradient_formula.h"

#define SAME_HOW(a) \
  .mode = (a)->mode, .padding_mode = (a)->padding_mode, .align_corners = (a)->align_corners

typedef struct spread { /* sizes: N, C, P points of K elements, elements of an image */
  int64_t n, c, p, k, plane;
  moth_ints sides;
  moth_tensor *grid, *dy; /* dy: (N, C, P, K), 0 outside */
  moth_tensor *at;        /* (N, C, P K) */
  moth_tensor *outside;   /* (N, 1, P, K) */
} spread;

/* Returns the weights, differentiated for coordinate `side` or not at all if it is -1: (N, 1, P,
** K). */
static moth_tensor *weights(const grid_sample_args *a, moth_grad *g, const spread *s, int side) {
  moth_tensor *w = GRAD(g, grid_weights, .grid = s->grid, .size = s->sides, SAME_HOW(a),
                        .order = {side == 0, side == 1, side == 2});
  return GRAD(g, unsqueeze, .input = w, .dim = 1);
}

static bool prepare(const grid_sample_args *a, moth_grad *g, spread *s) {
  const moth_layout *x = &a->input->l;
  const int32_t sides = x->ndim - 2;
  *s = (spread){.n = x->shape[0], .c = x->shape[1], .p = 1, .plane = 1,
                .sides = {x->shape + 2, sides}, .grid = moth_grad_real(g, a->grid)};
  for (int32_t i = 0; i < sides; i++) {
    s->plane *= x->shape[2 + i];
    s->p *= a->grid->l.shape[1 + i];
  }
  moth_tensor *at = GRAD(g, grid_positions, .grid = s->grid, .size = s->sides, SAME_HOW(a));
  if (!at) return false;
  s->k = at->l.shape[2];
  const int64_t line[3] = {s->n, 1, s->p * s->k}, all[3] = {s->n, s->c, s->p * s->k};
  const int64_t dy[4] = {s->n, s->c, s->p, 1}, taps[4] = {s->n, s->c, s->p, s->k};
  moth_tensor *outside = BELOW(at, NUMBER(0));
  s->outside = GRAD(g, unsqueeze, .input = outside, .dim = 1);
  at = GRAD(g, reshape, .input = FILLED(at, outside, 0), .shape = {line, 3});
  s->at = GRAD(g, expand, .input = at, .size = {all, 3});
  s->dy = GRAD(g, reshape, .input = moth_grad_real(g, g->dy), .shape = {dy, 4});
  s->dy = FILLED(GRAD(g, expand, .input = s->dy, .size = {taps, 4}), s->outside, 0);
  return s->at && s->dy;
}

static moth_tensor *of_images(const grid_sample_args *a, moth_grad *g, const spread *s) {
  const moth_layout *x = &a->input->l;
  const int64_t planes[3] = {s->n, s->c, s->plane}, all[3] = {s->n, s->c, s->p * s->k};
  moth_tensor *parts = FILLED(TIMES(s->dy, weights(a, g, s, -1)), s->outside, 0);
  parts = GRAD(g, reshape, .input = parts, .shape = {all, 3});
  moth_tensor *zeros = GRAD(g, zeros, .size = {planes, 3}, .dtype = moth_compute_dtype(x->dtype),
                            .device = moth_device_of(a->input));
  moth_tensor *dx = GRAD(g, scatter_add, .input = zeros, .dim = 2, .index = s->at, .src = parts);
  return GRAD(g, reshape, .input = dx, .shape = {x->shape, x->ndim});
}

static moth_tensor *of_grid(const grid_sample_args *a, moth_grad *g, const spread *s) {
  const int64_t planes[3] = {s->n, s->c, s->plane}, all[4] = {s->n, s->c, s->p, s->k};
  const int64_t over[2] = {1, 3};
  moth_tensor *part[3];
  moth_tensor *x = GRAD(g, reshape, .input = moth_grad_real(g, a->input), .shape = {planes, 3});
  moth_tensor *found = GRAD(g, gather, .input = x, .dim = 2, .index = s->at);
  found = FILLED(GRAD(g, reshape, .input = found, .shape = {all, 4}), s->outside, 0);
  moth_tensor *here = TIMES(found, s->dy);
  for (int i = 0; i < s->sides.n; i++) {
    part[i] = GRAD(g, sum, .input = TIMES(here, weights(a, g, s, i)), .dim = {over, 2},
                   .dtype = -1);
    if (!part[i]) return NULL;
  }
  moth_tensor *both = GRAD(g, stack, .tensors = {part, s->sides.n}, .dim = -1);
  return GRAD(g, reshape, .input = both, .shape = {a->grid->l.shape, a->grid->l.ndim});
}

int moth_grid_grads(const grid_sample_args *a, moth_grad *g) {
  spread s;
  if (!prepare(a, g, &s)) return g->status;
  if (moth_wants(g, a->input)) moth_flow(g, a->input, of_images(a, g, &s));
  if (moth_wants(g, a->grid))
    moth_flow(g, a->grid, a->mode == MOTH_GRID_NEAREST ? ZERO_OF(a->grid) : of_grid(a, g, &s));
  return g->status;
}
