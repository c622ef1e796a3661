/* rejection.c -- gamma, Poisson and binomial numbers by rejection sampling. Each number uses
** separate words of the random stream. random.h declares the arguments; random.c lists the ops.
*/
#include <float.h>
#include <stdatomic.h>

#define MOTH_REJECTION_WORDS moth_philox_turn
#include "base/random.h"
#include "kernel/random/rejection.h"
#include "tensor/loop.h"
#include "base/threads.h"
#include "random.h"
#include "tensor/shape.h"
#include "base/error.h"
#include "tensor/tensor.h"

enum { BLOCK = 256 };

/* Returns the lower bound of gamma numbers in a dtype: results are never 0. */
static double least_of(int dtype) {
  return dtype == MOTH_F64 ? DBL_MIN : dtype == MOTH_F16 ? 0x1p-14 : (double)FLT_MIN;
}

static moth_tensor *as_doubles(const moth_tensor *x) {
  moth_tensor *packed = moth_packed(x), *y = packed ? moth_cast(packed, MOTH_F64) : NULL;
  moth_tensor_release(packed);
  return y;
}

typedef struct drawing {
  int which;
  moth_stream s;
  const double *p, *q; /* parameters; q may be NULL */
  double least;
  moth_tensor *y;
  atomic_bool *bad; /* set if a parameter is invalid */
} drawing;

/* Draws blocks of elements. The first words of each element are computed in vectors. */
static void draw_blocks(int64_t first, int64_t last, int lane, const void *arg) {
  const drawing *d = arg;
  const int64_t size = moth_dtype_size[d->y->l.dtype], n = d->y->l.numel;
  (void)lane;
  for (int64_t at = first * BLOCK; at < n && at < last * BLOCK; at += BLOCK) {
    double values[BLOCK];
    uint32_t words[4 * BLOCK];
    const int64_t m = n - at < BLOCK ? n - at : BLOCK;
    const uint64_t block = d->s.block + (uint64_t)at;
    bool bad = false;
    moth_stream_read(&(moth_stream){d->s.seed, block}, 4 * m, words);
    for (int64_t i = 0; i < m; i++) {
      values[i] = moth_draw_with(d->which, d->s.seed, block + (uint64_t)i, words + 4 * i,
                                 d->p[at + i], d->q ? d->q[at + i] : 0, d->least);
      bad |= values[i] != values[i];
    }
    moth_convert(m, MOTH_F64, (const char *)values, 8, d->y->l.dtype, moth_at(d->y) + at * size,
                 size);
    if (bad) atomic_store(d->bad, true);
  }
}

/* y := a number for each element of a, or of a and b. */
static int draw(int which, const char *arg, moth_tensor *a, moth_tensor *b, moth_tensor *generator,
                moth_tensor *y) {
  const int64_t n = y->l.numel;
  atomic_bool bad = false;
  drawing d = {.which = which, .least = least_of(y->l.dtype), .y = y, .bad = &bad};
  int status = moth_stream_open(y->ctx, generator, n, 4, &d.s);
  moth_tensor *first = as_doubles(a), *second = b ? as_doubles(b) : NULL;
  if (!status && (!first || (b && !second))) status = y->ctx->error.code;
  if (!status && n) {
    d.p = (const double *)(const void *)moth_at(first);
    d.q = second ? (const double *)(const void *)moth_at(second) : NULL;
    status = moth_parallel(y->ctx, (n + BLOCK - 1) / BLOCK, 1, 50.0 * BLOCK, draw_blocks, &d);
  }
  if (!status && atomic_load(&bad))
    status = moth_fail(y->ctx, MOTH_E_DOMAIN, arg, "finite numbers from 0 on%s are needed",
                       b ? ", and probabilities from 0 to 1," : "");
  moth_tensor_release(first);
  moth_tensor_release(second);
  return status;
}

static int standard_gamma_shape(const standard_gamma_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int standard_gamma_cpu(const standard_gamma_args *a, moth_tensor **out) {
  return draw(MOTH_DRAW_GAMMA, "input", a->input, NULL, a->generator, out[0]);
}

MOTH_OP_CONST(standard_gamma, STANDARD_GAMMA, .dtypes = MOTH_FLOATS,
              .flags = MOTH_OP_RANDOM | MOTH_OP_HIDDEN,
              .doc = "Random numbers from gamma distributions with rate 1.",
              .examples = "moth.rand(2, 3)  -- domain: positive\n"
                          "moth.rand(3), {generator = moth.Generator()}  -- domain: positive")

static int poisson_shape(const poisson_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int poisson_cpu(const poisson_args *a, moth_tensor **out) {
  return draw(MOTH_DRAW_POISSON, "input", a->input, NULL, a->generator, out[0]);
}

MOTH_OP_CONST(poisson, POISSON, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_RANDOM,
              .doc = "Random numbers from Poisson distributions with mean `input`. For means above "
                     "about 1e12, rounding changes their variance, even in float64.",
              .examples = "moth.rand(2, 3)  -- domain: positive\n"
                          "moth.rand(3), {generator = moth.Generator()}  -- domain: positive")

static int binomial_of_shape(const binomial_of_args *a, moth_layout *y) {
  if (!moth_shape_same(&a->count->l, &a->prob->l))
    return moth_fail(a->ctx, MOTH_E_SHAPE, "prob", "the shape of count is needed, got %s",
                     moth_str(a->prob));
  return moth_shape_like(a->count, y);
}

static int binomial_of_cpu(const binomial_of_args *a, moth_tensor **out) {
  return draw(MOTH_DRAW_BINOMIAL, "count", a->count, a->prob, a->generator, out[0]);
}

MOTH_OP_CONST(binomial_of, BINOMIAL_OF, .dtypes = MOTH_FLOATS | MOTH_PROMOTE,
              .flags = MOTH_OP_RANDOM | MOTH_OP_HIDDEN,
              .doc = "Random numbers from binomial distributions: the number of successes in "
                     "`count` trials with probability `prob`. For counts above about 1e12, "
                     "rounding changes their variance.",
              .examples = "moth.ones(3) * 4, moth.rand(3)  -- domain: prob\n"
                          "moth.ones(2), moth.rand(2), {generator = moth.Generator()}"
                          "  -- domain: prob")
