/* dropout.c -- dropout: random elements, or whole channels, become 0; the others are scaled, so
** that the expected sum is unchanged. The mask is saved for the gradient.
*/
#include "dropout.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include "kernel/random/dropout.h"
#include "kernel/real.h"
#include "base/random.h"
#include "base/threads.h"

#define WORDS 1024 /* number of random words drawn at once */

/* A mask of n bytes. Each byte applies to `run` elements of a row of x. If word is set, the mask is
** drawn first. */
typedef struct masking {
  int dtype; /* f32 or f64 */
  int64_t run;
  double scale;
  const char *x;
  char *y;
  uint8_t *mask;
  bool drawn;
  uint64_t seed, block;
  uint32_t least; /* elements with a word >= least are kept */
} masking;

#define MASK_LOOPS(name, real)                                                              \
  static void mask_##name(const masking *m, int64_t first, int64_t n, const uint32_t *word) { \
    const int64_t run = m->run;                                                             \
    const real *x = (const real *)(const void *)m->x + first * run, by = (real)m->scale;    \
    real *y = (real *)(void *)m->y + first * run;                                           \
    uint8_t *mask = m->mask + first;                                                        \
    if (run == 1 && word) {                                                                 \
      moth_drop_##name(n, word, m->least, mask, x, by, y);                                  \
      return;                                                                               \
    }                                                                                       \
    for (int64_t i = 0; word && i < n; i++) mask[i] = word[i] >= m->least;                  \
    moth_apply_mask_##name(n, run, mask, x, by, y);                                         \
  }
MASK_LOOPS(f32, float)
MASK_LOOPS(f64, double)

/* Draws bytes first to last - 1 of a mask, and applies them while they are in the cache. */
static void run_masking(int64_t first, int64_t last, int lane, const void *arg) {
  const masking *m = arg;
  uint32_t word[WORDS];
  (void)lane;
  for (int64_t i = first; i < last; i += WORDS) {
    const int64_t n = last - i < WORDS ? last - i : WORDS;
    if (m->drawn) moth_philox_fill(m->seed, m->block + (uint64_t)i / 4, n, word);
    (m->dtype == MOTH_F32 ? mask_f32 : mask_f64)(m, i, n, m->drawn ? word : NULL);
  }
}

static int run_mask(const moth_tensor *input, const moth_tensor *mask, masking how,
                    moth_tensor *out) {
  moth_tensor *x = moth_real(input), *m = moth_packed(mask), *y = moth_real_out(out);
  int status = x && m && y ? MOTH_OK : input->ctx->error.code;
  int64_t n = mask->l.numel;
  if (!status && n) {
    how.dtype = x->l.dtype;
    how.run = x->l.numel / n;
    how.x = moth_at(x);
    how.y = moth_at(y);
    how.mask = (uint8_t *)moth_at(m);
    status = moth_parallel(input->ctx, n, WORDS, (how.drawn ? 0.35 : 0.05) + 0.1 * (double)how.run,
                           run_masking, &how);
  }
  moth_tensor_release(x);
  moth_tensor_release(m);
  return moth_real_done(y, out, status);
}

/* -- drawing the mask -- */

static double scale_of(double p) { return p < 1 ? 1 / (1 - p) : 0; }

/* If p is 0, the result is the input: no mask and no random numbers are needed. */
static bool draws(double p, bool training) { return training && p > 0; }

/* y has the input's shape. The mask has the shape of the first `lead` dimensions, or is empty if no
** random numbers are drawn. */
static int mask_shape(const moth_tensor *input, double p, bool training, int32_t lead,
                      moth_layout *y) {
  if (!(p >= 0 && p <= 1))
    return moth_fail(input->ctx, MOTH_E_DOMAIN, "p",
                     "a probability between 0 and 1 is needed, got %g", p);
  y[0].ndim = input->l.ndim;
  memcpy(y[0].shape, input->l.shape, sizeof y[0].shape);
  y[1].dtype = MOTH_BOOL;
  y[1].ndim = draws(p, training) ? lead : 1;
  memcpy(y[1].shape, input->l.shape, sizeof y[1].shape);
  if (!draws(p, training)) y[1].shape[0] = 0;
  return MOTH_OK;
}

/* Sets each byte of the mask with probability 1 - p: if its random word is at least p 2^32. */
static int drop(moth_tensor *input, double p, bool training, moth_tensor *generator,
                moth_tensor **out) {
  if (!draws(p, training)) return moth_copy_into(out[0], input);
  masking how = {.scale = scale_of(p), .drawn = p < 1,
                 .least = p < 1 ? (uint32_t)(p * 4294967296.0) : 0};
  int status = moth_generator_take(input->ctx, generator, (uint64_t)(out[1]->l.numel + 3) / 4,
                                   &how.seed, &how.block);
  if (p == 1) memset(moth_at(out[1]), 0, (size_t)out[1]->l.numel); /* p 2^32 does not fit a word */
  return status ? status : run_mask(input, out[1], how, out[0]);
}

static int flow_through(moth_grad *g, const moth_tensor *input, double p, bool training) {
  if (!draws(p, training)) return moth_flow(g, input, g->dy);
  return moth_flow(g, input,
                   GRAD(g, dropout_apply, .input = g->dy, .mask = g->out[1],
                        .scale = scale_of(p)));
}

/* -- dropout -- */

static int dropout_shape(const dropout_args *a, moth_layout *y) {
  return mask_shape(a->input, a->p, a->training, a->input->l.ndim, y);
}

static int dropout_cpu(const dropout_args *a, moth_tensor **out) {
  return drop(a->input, a->p, a->training, a->generator, out);
}

static int dropout_grad(const dropout_args *a, moth_grad *g) {
  return flow_through(g, a->input, a->p, a->training);
}

MOTH_OP(dropout, DROPOUT,
  .doc = "Sets random elements to 0 with probability p, and divides the others by 1 - p.",
  .examples =
    "moth.randn(3, 4)\n"
    "moth.randn(3, 4), 0\n"
    "moth.randn(3, 4), {p = 0.2, training = false}\n"
    "moth.randn(3, 4), {p = 0.2, generator = moth.Generator()}",
  .outputs = "y, mask: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "mask",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD | MOTH_OP_RANDOM | MOTH_OP_INPLACE |
           MOTH_OP_TAKES_INPLACE)

/* -- dropout2d -- */

static int dropout2d_shape(const dropout2d_args *a, moth_layout *y) {
  int32_t ndim = a->input->l.ndim;
  if (ndim != 3 && ndim != 4)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "(N, C, H, W) or (C, H, W) is needed, got %s",
                     moth_str(a->input));
  return mask_shape(a->input, a->p, a->training, ndim - 2, y);
}

static int dropout2d_cpu(const dropout2d_args *a, moth_tensor **out) {
  return drop(a->input, a->p, a->training, a->generator, out);
}

static int dropout2d_grad(const dropout2d_args *a, moth_grad *g) {
  return flow_through(g, a->input, a->p, a->training);
}

MOTH_OP(dropout2d, DROPOUT2D,
  .doc = "Sets random channels to 0 with probability p, and divides the others by 1 - p.",
  .examples =
    "moth.randn(2, 3, 2, 2)\n"
    "moth.randn(3, 2, 2), 0\n"
    "moth.randn(2, 3, 2, 2), {p = 0.2, training = false}\n"
    "moth.randn(2, 3, 2, 2), {p = 0.2, generator = moth.Generator()}",
  .outputs = "y, mask: hidden",
  .dtypes = MOTH_FLOATS,
  .saves = "mask",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_METHOD | MOTH_OP_RANDOM | MOTH_OP_INPLACE |
           MOTH_OP_TAKES_INPLACE)

/* -- the gradient of both -- */

static int dropout_apply_shape(const dropout_apply_args *a, moth_layout *y) {
  const moth_layout *x = &a->input->l, *mask = &a->mask->l;
  bool fits = mask->ndim <= x->ndim;
  for (int32_t i = 0; fits && i < mask->ndim; i++) fits = mask->shape[i] == x->shape[i];
  if (!fits)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "mask", "the first dimensions of %s differ from %s",
                                                   moth_str(a->input),
                     moth_str(a->mask));
  y->ndim = x->ndim;
  memcpy(y->shape, x->shape, sizeof y->shape);
  return MOTH_OK;
}

static int dropout_apply_cpu(const dropout_apply_args *a, moth_tensor **out) {
  return run_mask(a->input, a->mask, (masking){.scale = a->scale}, out[0]);
}

static int dropout_apply_grad(const dropout_apply_args *a, moth_grad *g) {
  return moth_flow(g, a->input,
                   GRAD(g, dropout_apply, .input = g->dy, .mask = a->mask, .scale = a->scale));
}

MOTH_OP(dropout_apply, DROPOUT_APPLY,
  .doc = "input * scale where the mask is true, 0 elsewhere: the gradient of dropout.",
  .examples =
    "moth.randn(2, 3), moth.tensor{{true, false, true}, {false, true, true}}, 2\n"
    "moth.randn(2, 3), moth.tensor{true, false}, 1.5",
  .dtypes = MOTH_FLOATS,
  .saves = "mask",
  .flags = MOTH_OP_CHANNELS_LAST | MOTH_OP_HIDDEN, .public_name = "dropout")

const moth_op *const moth_dropout_ops[] = {
  &moth_op_dropout, &moth_op_dropout2d, &moth_op_dropout_apply, NULL,
};
