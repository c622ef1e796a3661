/* sampling.c -- further distributions: integers, exponential, geometric, and multinomial. Every
** value uses two words of the random stream and is computed in f64. random.h declares the
** arguments; random.c lists the ops.
*/
#include <float.h>
#include <math.h>

#include "kernel/random/normal.h"
#include "kernel/sort.h"
#include "base/random.h"
#include "create.h"
#include "random.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/alloc.h"
#include "tensor/tensor.h"

#define WORDS 1024
#define BLOCK (WORDS / 2) /* values computed at once */

/* -- filling: values are computed in blocks of f64 or i64, then converted -- */

typedef void (*maker)(int64_t n, const uint32_t *words, const void *how, moth_slot *values);

static int fill(moth_tensor *y, moth_tensor *generator, maker make, const void *how, int from) {
  uint32_t words[WORDS];
  moth_slot values[BLOCK];
  moth_stream s;
  int64_t n = y->l.numel, size = moth_dtype_size[y->l.dtype];
  int status = moth_stream_open(y->ctx, generator, n, 2, &s);
  for (int64_t done = 0; done < n && !status;) {
    int64_t m = n - done < BLOCK ? n - done : BLOCK;
    moth_stream_read(&s, 2 * m, words);
    make(m, words, how, values);
    moth_convert(m, from, (const char *)values, 8, y->l.dtype, moth_at(y) + done * size, size);
    done += m;
    if (moth_cancelled(y->ctx)) status = moth_stopped(y->ctx);
  }
  return status;
}

/* As fill, for a target with any strides. */
static int fill_target(moth_tensor *y, moth_tensor *generator, maker make, const void *how,
                       int from) {
  if (moth_contiguous(y)) return fill(y, generator, make, how, from);
  moth_tensor *packed = moth_tensor_new(y->ctx, &y->l);
  if (!packed) return y->ctx->error.code;
  int status = fill(packed, generator, make, how, from);
  if (!status) status = moth_copy_into(y, packed);
  moth_tensor_release(packed);
  return status;
}

/* The old values do not affect the result: their gradient is 0. */
static int no_flow(moth_grad *g, const moth_tensor *input) {
  return moth_flow(g, input, GRAD(g, zeros, .size = {input->l.shape, input->l.ndim},
                                  .dtype = input->l.dtype,
                                  .device = moth_device_of(input)));
}

#define FILLS (MOTH_OP_RANDOM | MOTH_OP_MUTATES | MOTH_OP_STRIDED)

/* -- integers -- */

typedef struct integer_range { /* count 0 means all of int64 */
  int64_t low;
  uint64_t count;
} integer_range;

static void make_integers(int64_t n, const uint32_t *words, const void *how, moth_slot *values) {
  const integer_range *r = how;
  const uint64_t low = (uint64_t)r->low, count = r->count;
  if (count - 1 < UINT32_MAX) { /* moth_random_below without a call */
    for (int64_t i = 0; i < n; i++)
      values[i].integer = (int64_t)(low + ((words[2 * i + 1] * count +
                                            (words[2 * i] * count >> 32)) >> 32));
    return;
  }
  for (int64_t i = 0; i < n; i++)
    values[i].integer = (int64_t)((uint64_t)r->low + moth_random_below(r->count, words + 2 * i));
}

/* If only low is given, it is the upper bound. */
static int range_of(moth_ctx *ctx, const char *arg, int64_t low, int64_t high, int dtype,
                    integer_range *r) {
  r->low = high == MOTH_NO_INT ? 0 : low;
  if (high == MOTH_NO_INT) high = low;
  if (r->low >= high)
    return moth_fail(ctx, MOTH_E_ARG, arg, "%lld is not greater than %lld", (long long)high,
                     (long long)r->low);
  int64_t last = high - 1;
  r->count = (uint64_t)high - (uint64_t)r->low;
  if (moth_value_fits(MOTH_I64, &r->low, dtype) && moth_value_fits(MOTH_I64, &last, dtype))
    return MOTH_OK;
  return moth_fail(ctx, MOTH_E_DTYPE, arg, "%s cannot hold %lld to %lld", moth_dtype_name(dtype),
                   (long long)r->low, (long long)last);
}

static int randint_like_shape(const randint_like_args *a, moth_layout *y) {
  integer_range r;
  moth_shape_like(a->input, y);
  y->dtype = (uint8_t)(a->dtype < 0 ? a->input->l.dtype : a->dtype);
  return range_of(a->ctx, "high", a->low, a->high, y->dtype, &r);
}

static int randint_like_cpu(const randint_like_args *a, moth_tensor **out) {
  integer_range r;
  int status = range_of(a->ctx, "high", a->low, a->high, out[0]->l.dtype, &r);
  return status ? status : fill(out[0], a->generator, make_integers, &r, MOTH_I64);
}

MOTH_OP_CONST(randint_like, RANDINT_LIKE, .dtypes = MOTH_ANY, .flags = MOTH_OP_RANDOM,
              .doc = "Random integers from the uniform distribution on [low, high), with the "
                     "input's shape.",
              .examples = "moth.zeros(2, 3), 2\n"
                          "moth.zeros(2), 0, 2, {generator = moth.Generator(), "
                          "dtype = moth.int32}")

/* Returns the integers >= 0 that a dtype holds exactly. */
static integer_range all_of(int dtype) {
  static const uint8_t bits[MOTH_DTYPES] = {
    [MOTH_BOOL] = 1, [MOTH_U8] = 8,   [MOTH_I8] = 7,   [MOTH_I16] = 15, [MOTH_I32] = 31,
    [MOTH_I64] = 63, [MOTH_F16] = 11, [MOTH_BF16] = 8, [MOTH_F32] = 24, [MOTH_F64] = 53};
  return (integer_range){0, ((uint64_t)1 << bits[dtype]) + (dtype >= MOTH_F16)};
}

static int random_range(const random__args *a, integer_range *r) {
  int dtype = a->input->l.dtype;
  *r = all_of(dtype);
  if (a->from == MOTH_NO_INT && a->to == MOTH_NO_INT) return MOTH_OK;
  if (a->from == MOTH_NO_INT) return range_of(a->ctx, "to", 0, a->to, dtype, r);
  return range_of(a->ctx, a->to == MOTH_NO_INT ? "from" : "to", a->from, a->to, dtype, r);
}

static int random__shape(const random__args *a, moth_layout *y) {
  integer_range r;
  moth_shape_like(a->input, y);
  return random_range(a, &r);
}

static int random__cpu(const random__args *a, moth_tensor **out) {
  integer_range r;
  int status = random_range(a, &r);
  return status ? status : fill_target(out[0], a->generator, make_integers, &r, MOTH_I64);
}

static int random__grad(const random__args *a, moth_grad *g) { return no_flow(g, a->input); }

MOTH_OP(random_, RANDOM_, .dtypes = MOTH_ANY, .flags = FILLS,
        .doc = "Fills a tensor with random integers from the uniform distribution on [from, to).",
        .examples = "moth.zeros(2, 3)\n"
                    "moth.zeros(2), 0, 2, {generator = moth.Generator()}")

/* -- exponential, geometric -- */

static void make_exponential(int64_t n, const uint32_t *words, const void *how, moth_slot *values) {
  double x[BLOCK];
  moth_exponential_f64(n, words, x);
  for (int64_t i = 0; i < n; i++) values[i].number = x[i] / *(const double *)how;
}

static int exponential__shape(const exponential__args *a, moth_layout *y) {
  if (!(a->lambd > 0))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "lambd", "a positive number is needed, got %g",
                     a->lambd);
  return moth_shape_like(a->input, y);
}

static int exponential__cpu(const exponential__args *a, moth_tensor **out) {
  return fill_target(out[0], a->generator, make_exponential, &a->lambd, MOTH_F64);
}

static int exponential__grad(const exponential__args *a, moth_grad *g) {
  return no_flow(g, a->input);
}

MOTH_OP(exponential_, EXPONENTIAL_, .dtypes = MOTH_FLOATS, .flags = FILLS,
        .doc = "Fills a tensor with random numbers from the exponential distribution: density "
               "lambd exp(-lambd x).",
        .examples = "moth.zeros(2, 3)\n"
                    "moth.zeros(2), 3, {generator = moth.Generator()}")

/* Computes the number of trials up to the first success: an exponential number, rounded up to an
** integer. */
static void make_geometric(int64_t n, const uint32_t *words, const void *how, moth_slot *values) {
  make_exponential(n, words, how, values);
  for (int64_t i = 0; i < n; i++) {
    double trials = ceil(values[i].number);
    values[i].number = trials < 1 ? 1 : trials;
  }
}

static int geometric__shape(const geometric__args *a, moth_layout *y) {
  if (!(a->p > 0 && a->p < 1))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "p", "a probability between 0 and 1 is needed, got %g",
                     a->p);
  return moth_shape_like(a->input, y);
}

static int geometric__cpu(const geometric__args *a, moth_tensor **out) {
  const double rate = -log1p(-a->p);
  return fill_target(out[0], a->generator, make_geometric, &rate, MOTH_F64);
}

static int geometric__grad(const geometric__args *a, moth_grad *g) { return no_flow(g, a->input); }

MOTH_OP(geometric_, GEOMETRIC_, .dtypes = MOTH_NUMERIC, .flags = FILLS,
        .doc = "Fills a tensor with random numbers from the geometric distribution: k, the number "
               "of trials up to the first success, has the probability (1 - p)^(k - 1) p.",
        .examples = "moth.zeros(2, 3), 0.5\n"
                    "moth.zeros(2), 0.2, {generator = moth.Generator()}")

/* -- multinomial -- */

static int multinomial_shape(const multinomial_args *a, moth_layout *y) {
  const moth_layout *l = &a->input->l;
  int64_t n = l->ndim ? l->shape[l->ndim - 1] : 0;
  if (l->ndim < 1 || l->ndim > 2 || n == 0)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "weights (n) or (rows, n) are needed, got %s",
                     moth_str(a->input));
  if (a->num_samples < 1 || (!a->replacement && a->num_samples > n))
    return moth_fail(a->ctx, MOTH_E_ARG, "num_samples", "%lld of %lld positions cannot be drawn%s",
                     (long long)a->num_samples, (long long)n,
                     a->num_samples < 1 ? "" : "; set {replacement = true}");
  moth_shape_like(a->input, y);
  y->dtype = MOTH_I64;
  y->shape[y->ndim - 1] = a->num_samples;
  return MOTH_OK;
}

/* Checks that weights are finite and >= 0. Adds the number of weights above 0 to *s. */
static int check_weights(const multinomial_args *a, int64_t n, const double *w, int64_t *some) {
  int64_t above = 0, bad = 0;
  for (int64_t j = 0; j < n; j++) {
    above += w[j] > 0;
    bad += !((w[j] >= 0) & (w[j] <= DBL_MAX));
  }
  for (int64_t j = 0; bad; j++)
    if (!(w[j] >= 0) || isinf(w[j]))
      return moth_fail(a->ctx, MOTH_E_DOMAIN, "input",
                       "finite weights from 0 on are needed, got %g",
                       w[j]);
  *some += above;
  return MOTH_OK;
}

static int check_enough(const multinomial_args *a, int64_t row, int64_t some) {
  const int64_t wanted = a->replacement ? 1 : a->num_samples;
  if (some >= wanted) return MOTH_OK;
  return moth_fail(a->ctx, MOTH_E_DOMAIN, "input",
                   "%lld positions are drawn, but only %lld weights of row " MOTH_POS
                   " are above 0", (long long)wanted, (long long)some, (long long)row);
}

/* Replaces w with its running sums, which begin after `sum`. Returns the last one. Adds in groups
** of four, whose additions are independent. Sums stay equal where a weight is 0. */
static double run_sums(double sum, int64_t n, double *w) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const double two = w[j] + w[j + 1], three = two + w[j + 2], four = two + (w[j + 2] + w[j + 3]);
    w[j] += sum, w[j + 1] = two + sum, w[j + 2] = three + sum;
    w[j + 3] = sum = four + sum;
  }
  for (; j < n; j++) w[j] = sum += w[j];
  return sum;
}

/* Returns the position of the first of n running sums that is greater than `at`. */
static int64_t first_above(const double *sum, int64_t n, double at) {
  int64_t lo = 0, hi = n - 1;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (sum[mid] > at) hi = mid;
    else lo = mid + 1;
  }
  while (lo > 0 && sum[lo] == sum[lo - 1]) lo--; /* rounding led to a position with weight 0 */
  return lo;
}

/* u[0..n) := random numbers in [0, 1). */
static int draw_shares(const multinomial_args *a, int64_t n, double *u) {
  uint32_t words[WORDS];
  moth_stream s;
  int status = moth_stream_open(a->ctx, a->generator, n, 2, &s);
  for (int64_t i = 0; i < n && !status; i += BLOCK) {
    const int64_t m = n - i < BLOCK ? n - i : BLOCK;
    moth_stream_read(&s, 2 * m, words);
    moth_uniform_f64(m, words, u + i);
  }
  return status;
}

/* Draws with replacement: finds the position of a random fraction of the sum for each sample.
** Replaces w with its running sums. */
static int draw_again(const multinomial_args *a, int64_t rows, int64_t n, double *w, int64_t *y) {
  const int64_t k = a->num_samples;
  double *u = (double *)(void *)y; /* fractions and positions share memory */
  int status = draw_shares(a, rows * k, u);
  for (int64_t i = 0; i < rows && !status; i++, w += n) {
    const double sum = run_sums(0, n, w);
    for (int64_t c = i * k; c < (i + 1) * k; c++) y[c] = first_above(w, n, u[c] * sum);
    if (moth_cancelled(a->ctx)) status = moth_stopped(a->ctx);
  }
  return status;
}

/* weights per span; a multiple of 4, so that run_sums gives the same sums for spans */
enum { SPAN = 256 };

/* Reads a span of a row of weights as doubles. Returns their number. */
static int64_t read_span(const moth_tensor *x, int64_t row, int64_t span, double *w) {
  const moth_layout *l = &x->l;
  const int64_t last = l->ndim - 1, size = moth_dtype_size[l->dtype], first = span * SPAN;
  const int64_t n = l->shape[last] - first < SPAN ? l->shape[last] - first : SPAN;
  const int64_t at = (last ? row * l->stride[0] : 0) + first * l->stride[last];
  moth_convert(n, l->dtype, moth_at(x) + at * size, l->stride[last] * size, MOTH_F64, (char *)w, 8);
  return n;
}

/* Computes the running sums of a row at the end of each span. */
static int sum_spans(const multinomial_args *a, int64_t row, int64_t spans, double *sums) {
  double w[SPAN], sum = 0;
  int64_t some = 0;
  int status = MOTH_OK;
  for (int64_t i = 0; i < spans && !status; i++) {
    const int64_t m = read_span(a->input, row, i, w);
    status = moth_cancelled(a->ctx) ? moth_stopped(a->ctx) : check_weights(a, m, w, &some);
    sums[i] = sum = run_sums(sum, m, w);
  }
  return status ? status : check_enough(a, row, some);
}

/* As draw_again, for few samples of many weights. Only the sum of each span is stored; the sums
** within a span are computed again for each sample. */
static int draw_few(const multinomial_args *a, int64_t row, int64_t spans, const double *sums,
                    int64_t *y) {
  const double *u = (const double *)(const void *)y;
  double w[SPAN];
  for (int64_t c = 0; c < a->num_samples; c++) {
    const double at = u[c] * sums[spans - 1];
    const int64_t i = first_above(sums, spans, at), m = read_span(a->input, row, i, w);
    run_sums(i ? sums[i - 1] : 0, m, w);
    y[c] = i * SPAN + first_above(w, m, at);
    if (moth_cancelled(a->ctx)) return moth_stopped(a->ctx);
  }
  return MOTH_OK;
}

/* Checks all rows before anything is drawn: an error does not advance the generator. */
static int draw_few_rows(const multinomial_args *a, int64_t rows, int64_t n, int64_t *y) {
  const int64_t k = a->num_samples, spans = (n + SPAN - 1) / SPAN, bytes = rows * spans * 8;
  double *sums = moth_alloc(a->ctx, bytes);
  if (!sums) return a->ctx->error.code;
  int status = MOTH_OK;
  for (int64_t i = 0; i < rows && !status; i++) status = sum_spans(a, i, spans, sums + i * spans);
  if (!status) status = draw_shares(a, rows * k, (double *)(void *)y);
  for (int64_t i = 0; i < rows && !status; i++)
    status = draw_few(a, i, spans, sums + i * spans, y + i * k);
  moth_dealloc(a->ctx, sums, bytes);
  return status;
}

/* Draws without replacement. Each position gets an exponential time with its weight as rate; the
** first num_samples positions are the result. */
static int draw_once(const multinomial_args *a, moth_tensor *weights, int64_t rows, int64_t n,
                     int64_t *y) {
  moth_tensor *times = moth_tensor_new(a->ctx, &weights->l);
  if (!times) return a->ctx->error.code;
  const double one = 1, *w = (const double *)(const void *)moth_at(weights);
  double *t = (double *)(void *)moth_at(times);
  int status = fill(times, a->generator, make_exponential, &one, MOTH_F64);
  for (int64_t i = 0; i < rows * n; i++) t[i] = w[i] > 0 ? t[i] / w[i] : NAN; /* NaN sorts last */
  const moth_rows r = {.count = rows, .length = n, .dtype = MOTH_F64, .x = moth_at(times),
                       .owner = times};
  if (!status) status = moth_rows_sort(&r, a->num_samples, false, NULL, y);
  moth_tensor_release(times);
  return status;
}

static int multinomial_cpu(const multinomial_args *a, moth_tensor **out) {
  const moth_layout *l = &a->input->l;
  const int64_t n = l->shape[l->ndim - 1], rows = l->ndim == 2 ? l->shape[0] : 1;
  int64_t *y = (int64_t *)(void *)moth_at(out[0]);
  if (a->replacement && a->num_samples <= n / SPAN) return draw_few_rows(a, rows, n, y);
  moth_tensor *weights = moth_tensor_new(a->ctx, &(moth_layout){
    .ndim = 2, .dtype = MOTH_F64, .shape = {rows, n}, .stride = {n, 1}, .numel = rows * n});
  if (!weights) return a->ctx->error.code;
  moth_tensor seen = *weights;
  if (l->ndim == 1) seen.l.ndim = 1, seen.l.shape[0] = n, seen.l.stride[0] = 1;
  int status = moth_copy_into(&seen, a->input);
  double *w = (double *)(void *)moth_at(weights);
  for (int64_t i = 0; i < rows && !status; i++) {
    int64_t some = 0;
    status = check_weights(a, n, w + i * n, &some);
    if (!status) status = check_enough(a, i, some);
  }
  if (!status && rows > 0)
    status = a->replacement ? draw_again(a, rows, n, w, y) : draw_once(a, weights, rows, n, y);
  moth_tensor_release(weights);
  return status;
}

MOTH_OP_CONST(multinomial, MULTINOMIAL, .dtypes = MOTH_FLOATS,
              .flags = MOTH_OP_RANDOM | MOTH_OP_METHOD, .outputs = "positions: position",
              .doc = "Random positions in each row, with probabilities proportional to the row's "
                     "weights.",
              .examples = "moth.rand(2, 3), 2  -- domain: prob\n"
                          "moth.rand(3), 4, {replacement = true, generator = moth.Generator()}"
                          "  -- domain: prob")
