/* random.c -- tensors of random numbers. Element i depends only on i and on the generator's seed
** and offset. An f32 or half-precision value uses one 32-bit word; an f64 or an integer uses two.
** Further distributions are in sampling.c and rejection.c.
*/
#include "random.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/random/normal.h"
#include "tensor/loop.h"
#include "base/random.h"
#include "base/threads.h"
#include "create.h"

#define WORDS 1024 /* number of words drawn at once, on the stack */

/* -- drawing -- */

enum { UNIFORM, NORMAL };

typedef struct drawing {
  moth_stream stream;
  int what, dtype, bits;
  bool wide; /* f64: two words for each value */
  double mul, add;
  char *to;
} drawing;

/* Draws values first to last - 1; f32 is written without a buffer. */
static void draw_real(int64_t first, int64_t last, int lane, const void *arg) {
  const drawing *d = arg;
  const int64_t size = moth_dtype_size[d->dtype], each = d->wide ? 2 : 1;
  uint32_t words[WORDS];
  union {
    float f32[WORDS];
    double f64[WORDS / 2];
  } v;
  (void)lane;
  for (int64_t i = first, m; i < last; i += m) {
    m = last - i < WORDS / each ? last - i : WORDS / each;
    const int64_t even = m + (m & 1);
    char *to = d->to + i * size;
    float *x = d->dtype == MOTH_F32 && m == even ? (float *)(void *)to : v.f32;
    moth_philox_fill(d->stream.seed, d->stream.block + (uint64_t)(i * each / 4), even * each,
                     words);
    if (d->wide && d->what == UNIFORM) moth_uniform_f64(m, words, v.f64);
    else if (d->wide) moth_normal_f64(even, words, v.f64);
    else if (d->what == UNIFORM) moth_uniform_f32(m, words, d->bits, x);
    else moth_normal_f32(even, words, x);
    if (d->mul != 1 || d->add != 0) {
      if (d->wide) moth_affine_f64(m, d->mul, d->add, v.f64);
      else moth_affine_f32(m, d->mul, d->add, x);
    }
    if ((char *)x != to)
      moth_convert(m, d->wide ? MOTH_F64 : MOTH_F32, (const char *)&v, d->wide ? 8 : 4, d->dtype,
                   to, size);
  }
}

/* Fills y, which is contiguous and has a floating dtype, with add + mul * number. */
static int fill_real(int what, moth_tensor *generator, moth_tensor *y, double mul, double add) {
  const int dtype = y->l.dtype;
  const int64_t n = y->l.numel;
  drawing d = {.what = what, .dtype = dtype, .wide = dtype == MOTH_F64, .mul = mul, .add = add,
               .bits = dtype == MOTH_F16 ? 11 : dtype == MOTH_BF16 ? 8 : 24, .to = moth_at(y)};
  int status = moth_stream_open(y->ctx, generator, what == NORMAL ? n + (n & 1) : n,
                                d.wide ? 2 : 1, &d.stream);
  return status ? status
                : moth_parallel(y->ctx, n, WORDS, (what == NORMAL ? 0.6 : 0.3) * (d.wide ? 8 : 1),
                                draw_real, &d);
}

/* As fill_real, for a target with any strides. */
static int fill_target(int what, moth_tensor *generator, moth_tensor *y, double mul, double add) {
  if (moth_contiguous(y)) return fill_real(what, generator, y, mul, add);
  moth_tensor *packed = moth_tensor_new(y->ctx, &y->l);
  if (!packed) return y->ctx->error.code;
  int status = fill_real(what, generator, packed, mul, add);
  if (!status) status = moth_copy_into(y, packed);
  moth_tensor_release(packed);
  return status;
}

/* -- rand, randn, rand_like, randn_like -- */

static int real_shape(moth_ctx *ctx, moth_ints size, int64_t dtype, moth_layout *y) {
  y->dtype = (uint8_t)(dtype < 0 ? ctx->default_dtype : dtype);
  if (!moth_is_float(y->dtype))
    return moth_fail(ctx, MOTH_E_DTYPE, "dtype", "a floating dtype is needed, got %s",
                     moth_dtype_name(y->dtype));
  return moth_shape_of(ctx, "size", size, y);
}

static int real_like(const moth_tensor *input, int64_t dtype, moth_layout *y) {
  return real_shape(input->ctx, (moth_ints){input->l.shape, input->l.ndim},
                    dtype < 0 ? input->l.dtype : dtype, y);
}

/* Defines two ops for one distribution: with sizes, and with the shape of a tensor. */
#define DRAWN(op, SIZED, LIKE, kind, text)                                                    \
  static int op##_shape(const op##_args *a, moth_layout *y) {                                 \
    return real_shape(a->ctx, a->size, a->dtype, y);                                          \
  }                                                                                           \
  static int op##_cpu(const op##_args *a, moth_tensor **out) {                                \
    return fill_real(kind, a->generator, out[0], 1, 0);                                       \
  }                                                                                           \
  MOTH_OP_CONST(op, SIZED, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_CREATES | MOTH_OP_RANDOM,  \
                .doc = text ".", .examples = "{2, 3}\n{2}, " DRAWN_HOW)                       \
  static int op##_like_shape(const op##_like_args *a, moth_layout *y) {                       \
    return real_like(a->input, a->dtype, y);                                                  \
  }                                                                                           \
  static int op##_like_cpu(const op##_like_args *a, moth_tensor **out) {                      \
    return fill_target(kind, a->generator, out[0], 1, 0);                                     \
  }                                                                                           \
  MOTH_OP_CONST(op##_like, LIKE, .dtypes = MOTH_ANY,                                          \
                .flags = MOTH_OP_CREATES | MOTH_OP_RANDOM | MOTH_OP_STRIDED,                  \
                .doc = text ", in the input's shape.",                                        \
                .examples = "moth.zeros(2, 3)\nmoth.zeros(2), " DRAWN_HOW)
#define DRAWN_HOW "{generator = moth.Generator(), dtype = moth.float64, device = \"cpu\"}"

DRAWN(rand, RAND, RAND_LIKE, UNIFORM,
      "Numbers from the uniform distribution on [0, 1)")
DRAWN(randn, RANDN, RANDN_LIKE, NORMAL,
      "Numbers from the normal distribution with mean 0 and standard deviation 1")

/* -- randint, randperm -- */

static int randint_shape(const randint_args *a, moth_layout *y) {
  y->dtype = (uint8_t)(a->dtype < 0 ? MOTH_I64 : a->dtype);
  if (a->low >= a->high)
    return moth_fail(a->ctx, MOTH_E_ARG, "high", "%lld is not greater than low, %lld",
                                                 (long long)a->high,
                     (long long)a->low);
  int64_t last = a->high - 1;
  if (!moth_value_fits(MOTH_I64, &a->low, y->dtype) || !moth_value_fits(MOTH_I64, &last, y->dtype))
    return moth_fail(a->ctx, MOTH_E_DTYPE, "dtype", "%s cannot hold %lld to %lld",
                     moth_dtype_name(y->dtype), (long long)a->low, (long long)last);
  return moth_shape_of(a->ctx, "size", a->size, y);
}

typedef struct integer_drawing {
  moth_stream stream;
  int64_t low;
  uint64_t range;
  int dtype;
  char *to;
} integer_drawing;

static void draw_integers(int64_t first, int64_t last, int lane, const void *arg) {
  const integer_drawing *d = arg;
  const int64_t size = moth_dtype_size[d->dtype];
  int64_t value[WORDS / 2];
  uint32_t words[WORDS];
  (void)lane;
  for (int64_t i = first, m; i < last; i += m) {
    m = last - i < WORDS / 2 ? last - i : WORDS / 2;
    char *to = d->to + i * size;
    int64_t *v = d->dtype == MOTH_I64 ? (int64_t *)(void *)to : value;
    moth_philox_fill(d->stream.seed, d->stream.block + (uint64_t)i / 2, 2 * m, words);
    if (d->range - 1 < UINT32_MAX) /* a separate loop, which compilers vectorize */
      for (int64_t k = 0; k < m; k++)
        v[k] = (int64_t)((uint64_t)d->low + ((words[2 * k + 1] * d->range +
                                              (words[2 * k] * d->range >> 32)) >> 32));
    else
      for (int64_t k = 0; k < m; k++)
        v[k] = (int64_t)((uint64_t)d->low + moth_random_below(d->range, words + 2 * k));
    if (v == value) moth_convert(m, MOTH_I64, (const char *)v, 8, d->dtype, to, size);
  }
}

static int randint_cpu(const randint_args *a, moth_tensor **out) {
  moth_tensor *y = out[0];
  integer_drawing d = {.low = a->low, .range = (uint64_t)a->high - (uint64_t)a->low,
                       .dtype = y->l.dtype, .to = moth_at(y)};
  int status = moth_stream_open(a->ctx, a->generator, y->l.numel, 2, &d.stream);
  return status ? status : moth_parallel(a->ctx, y->l.numel, WORDS / 2, 1.2, draw_integers, &d);
}

MOTH_OP_CONST(randint, RANDINT, .dtypes = MOTH_ANY, .flags = MOTH_OP_CREATES | MOTH_OP_RANDOM,
              .doc = "Random integers from the uniform distribution on [low, high).",
              .examples = "0, 10, {2, 3}\n"
                          "-3, 4, {2}, {generator = moth.Generator(), dtype = moth.int32, "
                          "device = \"cpu\"}")

static int randperm_shape(const randperm_args *a, moth_layout *y) {
  if (a->n < 0)
    return moth_fail(a->ctx, MOTH_E_ARG, "n", "a number from 0 on is needed, got %lld",
                     (long long)a->n);
  return moth_shape_of(a->ctx, "n", (moth_ints){&a->n, 1}, y);
}

/* Fisher-Yates shuffle, from the end. */
static int randperm_cpu(const randperm_args *a, moth_tensor **out) {
  int64_t n = a->n, *y = (int64_t *)(void *)moth_at(out[0]);
  uint32_t words[WORDS];
  moth_stream s;
  int status = moth_stream_open(a->ctx, a->generator, n, 2, &s);
  for (int64_t i = 0; i < n; i++) y[i] = i;
  for (int64_t left = n; left > 1 && !status;) {
    int64_t m = left - 1 < WORDS / 2 ? left - 1 : WORDS / 2;
    moth_stream_read(&s, 2 * m, words);
    for (int64_t i = 0; i < m; i++, left--) {
      uint64_t j = moth_random_below((uint64_t)left, words + 2 * i);
      int64_t last = y[left - 1];
      y[left - 1] = y[j];
      y[j] = last;
    }
    if (moth_cancelled(a->ctx)) status = moth_stopped(a->ctx);
  }
  return status;
}

MOTH_OP_CONST(randperm, RANDPERM, .dtypes = MOTH_BIT(MOTH_I64), .flags = MOTH_OP_RANDOM,
              .outputs = "positions: position", .doc = "A random permutation of the positions 1 to "
                                                       "n.",
              .examples = "5\n"
                          "4, {generator = moth.Generator()}")

/* -- filling a tensor -- */

/* The old values do not affect the result: their gradient is 0. */
static int no_flow(moth_grad *g, const moth_tensor *input) {
  return moth_flow(g, input, GRAD(g, zeros, .size = {input->l.shape, input->l.ndim},
                                  .dtype = input->l.dtype,
                                  .device = moth_device_of(input)));
}

static int uniform__shape(const uniform__args *a, moth_layout *y) {
  if (!(a->from <= a->to) || !isfinite(a->to - a->from))
    return moth_fail(a->ctx, MOTH_E_ARG, "to", "%g to %g is no range", a->from, a->to);
  return moth_shape_like(a->input, y);
}
static int uniform__cpu(const uniform__args *a, moth_tensor **out) {
  return fill_target(UNIFORM, a->generator, out[0], a->to - a->from, a->from);
}
static int uniform__grad(const uniform__args *a, moth_grad *g) { return no_flow(g, a->input); }
MOTH_OP(uniform_, UNIFORM_, .dtypes = MOTH_FLOATS,
        .flags = MOTH_OP_RANDOM | MOTH_OP_MUTATES | MOTH_OP_STRIDED,
        .doc = "Fills a tensor with random numbers from the uniform distribution on [from, to).",
        .examples = "moth.zeros(2, 3)\n"
                    "moth.zeros(2), -1, 1, {generator = moth.Generator()}")

static int normal__shape(const normal__args *a, moth_layout *y) {
  if (!(a->std >= 0))
    return moth_fail(a->ctx, MOTH_E_ARG, "std", "cannot be negative, got %g", a->std);
  return moth_shape_like(a->input, y);
}
static int normal__cpu(const normal__args *a, moth_tensor **out) {
  return fill_target(NORMAL, a->generator, out[0], a->std, a->mean);
}
static int normal__grad(const normal__args *a, moth_grad *g) { return no_flow(g, a->input); }
MOTH_OP(normal_, NORMAL_, .dtypes = MOTH_FLOATS,
        .flags = MOTH_OP_RANDOM | MOTH_OP_MUTATES | MOTH_OP_STRIDED,
        .doc = "Fills a tensor with random numbers from the normal distribution of the given mean "
               "and std.",
        .examples = "moth.zeros(2, 3)\n"
                    "moth.zeros(2), 3, 0.5, {generator = moth.Generator()}")

/* -- bernoulli -- */

/* y (contiguous) := 1 where a random number in [0, 1) is below p, else 0. There is one p for each
** element, or one for all. */
typedef struct probabilities {
  moth_stream stream;
  const moth_tensor *p;
  double one_p;
  moth_tensor *y;
} probabilities;

static void draw_bernoulli(int64_t first, int64_t last, int lane, const void *arg) {
  const probabilities *c = arg;
  const moth_tensor *p = c->p, *y = c->y;
  const int64_t size = moth_dtype_size[y->l.dtype];
  uint32_t words[WORDS];
  double probability[WORDS];
  uint8_t ones[WORDS];
  (void)lane;
  for (int64_t i = first, m; i < last; i += m) {
    m = last - i < WORDS ? last - i : WORDS;
    moth_philox_fill(c->stream.seed, c->stream.block + (uint64_t)i / 4, m, words);
    if (p) {
      const int64_t step = moth_dtype_size[p->l.dtype];
      moth_convert(m, p->l.dtype, moth_at(p) + i * step, step, MOTH_F64, (char *)probability, 8);
      for (int64_t k = 0; k < m; k++) ones[k] = (double)words[k] * 0x1p-32 < probability[k];
    } else {
      for (int64_t k = 0; k < m; k++) ones[k] = (double)words[k] * 0x1p-32 < c->one_p;
    }
    moth_convert(m, MOTH_BOOL, (const char *)ones, 1, y->l.dtype, moth_at(y) + i * size, size);
  }
}

static int fill_bernoulli(moth_tensor *generator, const moth_tensor *p, double one_p,
                          moth_tensor *y) {
  probabilities c = {.p = p, .one_p = one_p, .y = y};
  int status = moth_stream_open(y->ctx, generator, y->l.numel, 1, &c.stream);
  return status ? status : moth_parallel(y->ctx, y->l.numel, WORDS, 1, draw_bernoulli, &c);
}

static int bernoulli_shape(const bernoulli_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int check_probabilities(const moth_tensor *p) {
  int64_t step = moth_dtype_size[p->l.dtype];
  for (int64_t i = 0; i < p->l.numel; i++) {
    double v;
    moth_convert(1, p->l.dtype, moth_at(p) + i * step, step, MOTH_F64, (char *)&v, 8);
    if (!(v >= 0 && v <= 1))
      return moth_fail(p->ctx, MOTH_E_DOMAIN, "input",
                       "probabilities from 0 to 1 are needed, got %g", v);
  }
  return MOTH_OK;
}

static int bernoulli_cpu(const bernoulli_args *a, moth_tensor **out) {
  moth_tensor *p = moth_packed(a->input);
  int status = p ? check_probabilities(p) : a->ctx->error.code;
  if (!status) status = fill_bernoulli(a->generator, p, 0, out[0]);
  moth_tensor_release(p);
  return status;
}

MOTH_OP_CONST(bernoulli, BERNOULLI, .dtypes = MOTH_FLOATS, .flags = MOTH_OP_RANDOM,
              .doc = "Random 0 and 1: 1 with the probability in the input.",
              .examples = "moth.rand(2, 3)  -- domain: prob\n"
                          "moth.rand(2), {generator = moth.Generator()}")

static int bernoulli__shape(const bernoulli__args *a, moth_layout *y) {
  if (!(a->p >= 0 && a->p <= 1))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "p", "a probability between 0 and 1 is needed, got %g",
                                                 a->p);
  return moth_shape_like(a->input, y);
}

static int bernoulli__cpu(const bernoulli__args *a, moth_tensor **out) {
  moth_tensor *y = out[0];
  if (moth_contiguous(y)) return fill_bernoulli(a->generator, NULL, a->p, y);
  moth_tensor *packed = moth_tensor_new(y->ctx, &y->l);
  if (!packed) return y->ctx->error.code;
  int status = fill_bernoulli(a->generator, NULL, a->p, packed);
  if (!status) status = moth_copy_into(y, packed);
  moth_tensor_release(packed);
  return status;
}

static int bernoulli__grad(const bernoulli__args *a, moth_grad *g) { return no_flow(g, a->input); }

MOTH_OP(bernoulli_, BERNOULLI_, .dtypes = MOTH_ANY,
        .flags = MOTH_OP_RANDOM | MOTH_OP_MUTATES | MOTH_OP_STRIDED,
        .doc = "Fills a tensor with random 0 and 1: 1 with probability p.",
        .examples = "moth.zeros(2, 3)\n"
                    "moth.zeros(2), 0.2, {generator = moth.Generator()}")

const moth_op *const moth_random_ops[] = {
  &moth_op_rand,    &moth_op_randn,     &moth_op_rand_like, &moth_op_randn_like,
  &moth_op_randint, &moth_op_randperm,  &moth_op_uniform_,  &moth_op_normal_,
  &moth_op_bernoulli, &moth_op_bernoulli_, &moth_op_randint_like, &moth_op_random_,
  &moth_op_exponential_, &moth_op_geometric_, &moth_op_multinomial, &moth_op_standard_gamma,
  &moth_op_poisson, &moth_op_binomial_of, NULL,
};
