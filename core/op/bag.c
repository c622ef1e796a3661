/* bag.c -- sums of the embedding vectors of bags of tokens. */
#include "kernel/bag.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#include "kernel/copy.h"
#include "tensor/loop.h"
#include "arith.h"
#include "embedding.h"
#include "gradient_formula.h"
#include "index.h"
#include "position.h"
#include "reduce.h"
#include "view.h"

static int bag_sum_shape(const bag_sum_args *a, moth_layout *y) {
  const moth_layout *x = &a->input->l, *w = &a->weight->l;
  int64_t padding;
  if (w->ndim != 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "weight", "(tokens, features) is needed, got %s",
                     moth_str(a->weight));
  if (x->ndim != (a->list ? 1 : 2) || (a->list && !moth_shape_same(x, &a->list->l)))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input",
                     "a 2D input, or a 1D input with offsets, is needed, got %s",
                     moth_str(a->input));
  if (a->per_sample_weights && !moth_shape_same(x, &a->per_sample_weights->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "per_sample_weights", "%s does not fit %s",
                     moth_str(a->per_sample_weights), moth_str(a->input));
  int64_t size[2] = {a->list ? a->bags : x->shape[0], w->shape[1]};
  int status = moth_real_padding(a->ctx, a->padding_idx, w->shape[0], &padding);
  return status ? status : moth_shape_of(a->ctx, "bags", (moth_ints){size, 2}, y);
}

/* Returns the tokens as a dense list, checked against the table's size. Owned; NULL after an
** error. */
static moth_tensor *tokens_of(const bag_sum_args *a) {
  moth_tensor *token = moth_positions(a->input), *zero = NULL;
  const int64_t rows = a->weight->l.shape[0];
  if (!token || moth_positions_within(token->l.numel, (const int64_t *)(const void *)moth_at(token),
                                      token->l.index_base, rows))
    return token;
  moth_tensor_release(token); /* the error of the check names the wrong token */
  if (!a->input->l.index_base) return moth_tokens_of(a->input, rows, "input");
  if (MOTH_CALL(a->ctx, &zero, to_index, .input = a->input)) return NULL;
  token = moth_tokens_of(zero, rows, "input");
  moth_tensor_release(zero);
  return token;
}

/* start[b], for b from 0 to bags, is the position of the first token of bag b. The bag numbers of
** the tokens must not decrease. */
static int find_starts(const moth_tensor *list, int64_t bags, int64_t *start) {
  const int64_t *at = (const int64_t *)(const void *)moth_at(list), n = list->l.numel;
  int64_t b = 0;
  for (int64_t t = 0; t < n; t++) {
    const int64_t bag = at[t] - list->l.index_base;
    if (bag >= bags || bag < 0 || bag < b - 1)
      return moth_fail(list->ctx, MOTH_E_INDEX, "list", "the bag numbers must be ascending");
    while (b <= bag) start[b++] = t;
  }
  while (b <= bags) start[b++] = n;
  return MOTH_OK;
}

static int sum_bags(const bag_sum_args *a, const moth_tensor *token, moth_tensor *y) {
  moth_tensor *list = a->list ? moth_positions(a->list) : NULL, *factor = NULL;
  moth_tensor *w = list || !a->list ? moth_packed(a->weight) : NULL;
  if (w && a->per_sample_weights) factor = moth_packed(a->per_sample_weights);
  moth_bags o = {.dtype = y->l.dtype, .bags = y->l.shape[0], .features = y->l.shape[1],
                 .token = (const int64_t *)(const void *)moth_at(token), .y = moth_at(y)};
  const int64_t bytes = a->list ? (o.bags + 1) * (int64_t)sizeof *o.start : 0;
  int64_t *start = NULL;
  int status = w && (factor || !a->per_sample_weights) ? MOTH_OK : a->ctx->error.code;
  if (!status) status = moth_real_padding(a->ctx, a->padding_idx, w->l.shape[0], &o.padding);
  if (!status && bytes && !(start = moth_alloc(a->ctx, bytes))) status = a->ctx->error.code;
  if (!status && start)
    status = find_starts(list, o.bags, start);
  if (!status) {
    o.base = token->l.index_base;
    if (o.padding >= 0) o.padding += o.base;
    o.start = start;
    o.each = start ? 0 : token->l.shape[1];
    o.weight = moth_at(w);
    o.factor = factor ? moth_at(factor) : NULL;
    status = moth_bag_sums(a->ctx, &o);
  }
  if (start) moth_dealloc(a->ctx, start, bytes);
  moth_tensor_release(factor);
  moth_tensor_release(w);
  moth_tensor_release(list);
  return status;
}

static int bag_sum_cpu(const bag_sum_args *a, moth_tensor **out) {
  if (out[0]->l.numel == 0) return MOTH_OK;
  moth_tensor *token = tokens_of(a);
  int status = token ? sum_bags(a, token, out[0]) : a->ctx->error.code;
  moth_tensor_release(token);
  return status;
}

/* Returns the gradient of each token's bag, (..., features). */
static moth_tensor *token_grads(const bag_sum_args *a, moth_grad *g) {
  if (a->list) return GRAD(g, index_select, .input = g->dy, .dim = 0, .index = a->list);
  const int64_t size[] = {a->input->l.shape[0], a->input->l.shape[1], a->weight->l.shape[1]};
  return GRAD(g, expand, .input = GRAD(g, unsqueeze, .input = g->dy, .dim = 1), .size = {size, 3});
}

static int bag_sum_grad(const bag_sum_args *a, moth_grad *g) {
  static const int64_t last = -1;
  moth_tensor *dy = token_grads(a, g), *factor = a->per_sample_weights;
  if (moth_wants(g, a->weight)) {
    moth_tensor *rows = dy;
    if (factor) rows = TIMES(dy, GRAD(g, unsqueeze, .input = factor, .dim = -1));
    moth_flow(g, a->weight,
              GRAD(g, embedding_back, .input = rows, .index = a->input,
                   .num_embeddings = a->weight->l.shape[0], .padding_idx = a->padding_idx,
                   .scale_grad_by_freq = a->scale_grad_by_freq));
  }
  if (factor && moth_wants(g, factor)) {
    const bool padded = a->padding_idx != MOTH_NO_INT;
    moth_tensor *rows = GRAD(g, embedding_rows, .weight = a->weight, .input = a->input,
                             .padding_idx = a->padding_idx, .shared = padded);
    moth_flow(g, factor, GRAD(g, sum, .input = TIMES(rows, dy), .dim = {&last, 1}, .dtype = -1));
  }
  return g->status;
}

MOTH_OP(bag_sum, BAG_SUM,
  .doc = "The sum of the embedding vectors of each bag of tokens.",
  .examples =
    "moth.tensor{{2LL, 1LL}, {4LL, 2LL}}, moth.randn(4, 3), moth.randn(2, 2)\n"
    "{2, 1, 4}, moth.randn(4, 3), nil, {1, 1, 3}, 4, {padding_idx = 1, scale_grad_by_freq = true}",
  .dtypes = MOTH_BIT(MOTH_F32) | MOTH_BIT(MOTH_F64),
  .saves = "input list weight:per_sample_weights per_sample_weights:weight",
  .flags = MOTH_OP_HIDDEN | MOTH_OP_FROM_ONE, .public_name = "embedding_bag")

const moth_op *const moth_bag_ops[] = {&moth_op_bag_sum, NULL};
