/* pad.c -- pads tensors with a constant or with their own elements. */
#include "pad.h"
#include "autograd/gradient.h"
#include "tensor/tensor.h"

#include "kernel/pad.h"
#include "kernel/real.h"
#include "kernel/scalar.h"

static const char *const MODES[] = {"constant", "reflect", "replicate", "circular"};

/* *out := the padded size of one dimension of n elements, after the checks of its mode. */
static int pad_dim(moth_ctx *ctx, const moth_tensor *shown, int mode, int64_t n, int64_t before,
                   int64_t after, int64_t *out) {
  const int64_t border = before > after ? before : after;
  const int64_t front = before < 0 ? before : 0, back = after < 0 ? after : 0;
  const bool gone = n + front < 0 || n + back < 0; /* if false, the sum below does not overflow */
  const int64_t kept = gone ? 0 : n + front + back;
  int64_t most = mode == MOTH_PAD_REFLECT ? n - 1 : mode == MOTH_PAD_CIRCULAR ? kept : INT64_MAX;
  if (mode != MOTH_PAD_CONSTANT && border > 0 && (border > most || n == 0))
    return moth_fail(ctx, MOTH_E_SHAPE, "pad",
                     "a border of %lld in mode '%s' is too large for a dimension of %lld elements: "
                     "%s", (long long)border, MODES[mode], (long long)n,
                     moth_str(shown));
  if (moth_add_overflow(n, before, out) || moth_add_overflow(*out, after, out))
    return moth_fail(ctx, MOTH_E_SHAPE, "pad", "the result would be too large");
  if (*out < 0 || gone)
    return moth_fail(ctx, MOTH_E_SHAPE, "pad",
                     "{%lld, %lld} removes more elements than there are: %s",
                     (long long)before, (long long)after, moth_str(shown));
  return MOTH_OK;
}

/* p := the padding arguments for a tensor with these sizes. */
static int pad_fit(moth_ctx *ctx, const moth_tensor *shown, int32_t ndim, const int64_t *size,
                   moth_ints pad, int64_t mode, moth_pad *p) {
  if (pad.n % 2)
    return moth_fail(ctx, MOTH_E_SHAPE, "pad", "an even number of integers is needed, got %lld",
                     (long long)pad.n);
  if (pad.n / 2 > ndim)
    return moth_fail(ctx, MOTH_E_SHAPE, "pad", "%lld pairs exceed the number of dimensions of %s",
                     (long long)(pad.n / 2), moth_str(shown));
  *p = (moth_pad){.ndim = ndim ? ndim : 1, .mode = (int32_t)mode, .in = {1}, .out = {1}};
  for (int32_t d = 0; d < ndim; d++) {
    int64_t pair = ndim - 1 - d, after = 0;
    p->in[d] = size[d];
    if (pair < pad.n / 2) {
      p->before[d] = pad.at[2 * pair];
      after = pad.at[2 * pair + 1];
    }
    int status = pad_dim(ctx, shown, p->mode, size[d], p->before[d], after, &p->out[d]);
    if (status) return status;
  }
  return MOTH_OK;
}

static int pad_shape(const pad_args *a, moth_layout *y) {
  moth_pad p;
  uint64_t element;
  const moth_layout *l = &a->input->l;
  int status = pad_fit(a->ctx, a->input, l->ndim, l->shape, a->pad, a->mode, &p);
  if (!status) status = moth_scalar_to(a->ctx, "value", a->value, l->dtype, &element);
  y->ndim = l->ndim;
  if (!status) memcpy(y->shape, p.out, sizeof p.out);
  return status;
}

static int pad_cpu(const pad_args *a, moth_tensor **out) {
  moth_pad p;
  uint64_t element = 0;
  const moth_layout *l = &a->input->l;
  int status = pad_fit(a->ctx, a->input, l->ndim, l->shape, a->pad, a->mode, &p);
  if (!status) status = moth_scalar_to(a->ctx, "value", a->value, l->dtype, &element);
  if (status) return status;
  moth_tensor *x = moth_packed(a->input);
  if (!x) return a->ctx->error.code;
  status = moth_pad_forward(a->ctx, &p, moth_dtype_size[l->dtype], moth_at(x),
                            (const char *)&element, moth_at(out[0]));
  moth_tensor_release(x);
  return status;
}

static int pad_grad(const pad_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, pad_back, .input = g->dy,
                                     .size = {a->input->l.shape, a->input->l.ndim},
                                     .pad = a->pad, .mode = a->mode));
}

MOTH_OP(pad, PAD,
  .doc = "Pads the last dimensions of a tensor.",
  .examples =
    "moth.randn(2, 3), {1, 2}\n"
    "moth.randn(2, 3, 4), {1, 0, -1, 2}, {value = 3}\n"
    "moth.randn(2, 3, 4), {2, 1, 0, 2}, {mode = 'reflect'}\n"
    "moth.randn(2, 3, 4), {2, -1, 0, 3}, {mode = 'replicate'}\n"
    "moth.randn(2, 3, 4), {4, 2, 1, 0}, {mode = 'circular'}",
  .dtypes = MOTH_ANY,
  .flags = MOTH_OP_CHANNELS_LAST)

static int pad_back_fit(const pad_back_args *a, moth_pad *p) {
  const moth_layout *l = &a->input->l;
  bool same = a->size.n == l->ndim;
  for (int64_t d = 0; same && d < a->size.n; d++) same = a->size.at[d] >= 0;
  int status = MOTH_OK;
  if (same) status = pad_fit(a->ctx, a->input, l->ndim, a->size.at, a->pad, a->mode, p);
  for (int d = 0; !status && same && d < l->ndim; d++) same = p->out[d] == l->shape[d];
  if (!status && !same)
    status = moth_fail(a->ctx, MOTH_E_SHAPE, "size", "the padded sizes do not match %s",
                       moth_str(a->input));
  return status;
}

static int pad_back_shape(const pad_back_args *a, moth_layout *y) {
  moth_pad p;
  int status = pad_back_fit(a, &p);
  y->ndim = a->input->l.ndim;
  if (!status) memcpy(y->shape, p.in, sizeof p.in);
  return status;
}

static int pad_back_cpu(const pad_back_args *a, moth_tensor **out) {
  moth_pad p;
  int status = pad_back_fit(a, &p);
  if (status) return status;
  moth_tensor *dy = moth_real(a->input), *dx = moth_real_out(out[0]);
  status = !dy || !dx ? a->ctx->error.code
                      : moth_pad_back(a->ctx, &p, dy->l.dtype, moth_at(dy), moth_at(dx));
  moth_tensor_release(dy);
  return moth_real_done(dx, out[0], status);
}

static int pad_back_grad(const pad_back_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, pad, .input = g->dy, .pad = a->pad, .mode = a->mode));
}

MOTH_OP(pad_back, PAD_BACK,
  .doc = "The gradient of pad: each border element is added to its source element.",
  .examples =
    "moth.randn(2, 6), {2, 3}, {1, 2}\n"
    "moth.randn(2, 6), {2, 3}, {1, 2}, {mode = 'reflect'}",
  .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN)

const moth_op *const moth_pad_ops[] = {&moth_op_pad, &moth_op_pad_back, NULL};
