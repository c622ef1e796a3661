/* conv_fit.h -- what convolutions of images and of volumes, of `dims` dimensions, check alike. */
#ifndef MOTH_OP_CONV_FIT_H
#define MOTH_OP_CONV_FIT_H

#include "arith.h"
#include "view.h"

enum { NUMBERS, VALID, SAME }; /* what `padding` may be */

/* A tensor's sizes, with a batch of one put before those of a single image. */
static inline int with_batch(const moth_tensor *x, const char *arg, int dims, const char *names,
                             int64_t *size) {
  const moth_layout *l = &x->l;
  if (l->ndim != dims + 1 && l->ndim != dims + 2)
    return moth_fail(x->ctx, MOTH_E_SHAPE, arg, "(N, %s) or (%s) is needed, got %s", names, names,
                     moth_str(x));
  size[0] = 1;
  memcpy(size + (dims + 2 - l->ndim), l->shape, (size_t)l->ndim * sizeof *size);
  for (int i = 1; i < dims + 2; i++)
    if (size[i] < 1)
      return moth_fail(x->ctx, MOTH_E_SHAPE, arg, "only the batch may be empty, got %s",
                       moth_str(x));
  return MOTH_OK;
}

/* y := sizes, without the batch if `like` has none. */
static inline void take_batch(moth_layout *y, const moth_tensor *like, int dims,
                              const int64_t *size) {
  y->ndim = like->l.ndim;
  memcpy(y->shape, size + (dims + 2 - y->ndim), (size_t)y->ndim * sizeof *size);
}

static inline int check_groups(moth_ctx *ctx, int64_t groups, int64_t filters,
                               const moth_tensor *shown) {
  if (groups < 1)
    return moth_fail(ctx, MOTH_E_DOMAIN, "groups", "a number from 1 on is needed, got %lld",
                     (long long)groups);
  if (filters % groups)
    return moth_fail(ctx, MOTH_E_SHAPE, "groups", "%lld channels do not fall into %lld groups: %s",
                     (long long)filters, (long long)groups, moth_str(shown));
  return MOTH_OK;
}

static inline int check_weight(const moth_tensor *weight, int dims, const char *sizes) {
  const moth_layout *l = &weight->l;
  if (l->ndim != dims + 2)
    return moth_fail(weight->ctx, MOTH_E_SHAPE, "weight", "%s is needed, got %s", sizes,
                     moth_str(weight));
  if (l->numel == 0)
    return moth_fail(weight->ctx, MOTH_E_SHAPE, "weight", "one with elements is needed, got %s",
                     moth_str(weight));
  return MOTH_OK;
}

/* Whether a bias has one element for each of n channels. */
static inline int check_bias(const moth_tensor *bias, int64_t n) {
  if (!bias || (bias->l.ndim == 1 && bias->l.shape[0] == n)) return MOTH_OK;
  return moth_fail(bias->ctx, MOTH_E_SHAPE, "bias", "%s is needed, one for each filter, got %s",
                   moth_str_shape(bias->ctx, 1, &n), moth_str(bias));
}

/* *out := y + bias, the bias along the channels; takes y. */
static inline int add_bias(moth_tensor *y, moth_tensor *bias, int dims, moth_tensor **out) {
  moth_tensor *column = NULL;
  if (!bias) {
    *out = y;
    return MOTH_OK;
  }
  int status = MOTH_CALL(y->ctx, &column, reshape, .input = bias,
                         .shape = {(int64_t[]){bias->l.numel, 1, 1, 1}, 1 + dims});
  if (!status)
    status = MOTH_CALL(y->ctx, out, add, .input = y, .other = column, .alpha = {.as.number = 1});
  moth_tensor_release(column);
  moth_tensor_release(y);
  return status;
}

#endif
