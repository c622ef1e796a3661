/* fft.c -- Fourier transforms along a dimension, of complex numbers and of real numbers.
**
** All transforms are linear, and their matrices are symmetric: the gradient is the transform with
** the opposite sign. Real signals have half of the coefficients; the others are conjugates. A
** conjugate pair counts once in one direction and twice in the other; the argument `twice` selects
** which.
*/
#include "fft.h"
#include "tensor/shape.h"
#include "autograd/gradient.h"
#include "base/error.h"
#include "base/threads.h"
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/fft.h"
#include "kernel/math/arith.h"
#include "kernel/math/binary.h"
#include "kernel/real.h"

/* *d := the dimension of the signals. With `pairs`, also checks that x has pairs. */
static int fft_dim(const moth_tensor *x, int64_t dim, bool pairs, int32_t *d) {
  const int32_t n = x->l.ndim - pairs;
  if (n < 1 || (pairs && x->l.shape[n] != 2))
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input",
                     pairs ? "complex numbers are needed, (..., 2), got %s"
                           : "a tensor with dimensions is needed, got %s",
                     moth_str(x));
  int status = moth_dim(x->ctx, "dim", dim, n, d);
  if (!status && x->l.shape[*d] == 0)
    return moth_fail(x->ctx, MOTH_E_SHAPE, "input", "signals of a length from 1 on are needed, "
                     "got %s", moth_str(x));
  return status;
}

static int fft_cpu(moth_fft *f, const moth_tensor *input, moth_tensor *out, int64_t dim) {
  int32_t d;
  const moth_layout *l = &input->l;
  const int32_t pairs = f->kind != MOTH_FFT_TO_HALF;
  int status = fft_dim(input, dim, pairs, &d);
  if (status) return status;
  f->outer = f->inner = 1;
  if (f->kind != MOTH_FFT_FROM_HALF) f->n = l->shape[d];
  for (int32_t i = 0; i < l->ndim - pairs; i++)
    if (i != d) *(i < d ? &f->outer : &f->inner) *= l->shape[i];
  moth_tensor *x = moth_real(input), *y = moth_real_out(out);
  status = !x || !y ? input->ctx->error.code
                    : moth_fft_run(input->ctx, x->l.dtype, f, moth_at(x), moth_at(y));
  moth_tensor_release(x);
  return moth_real_done(y, out, status);
}

/* -- of complex numbers -- */

static int fft_c2c_shape(const fft_c2c_args *a, moth_layout *y) {
  int32_t d;
  moth_shape_like(a->input, y);
  return fft_dim(a->input, a->dim, true, &d);
}

static int fft_c2c_cpu(const fft_c2c_args *a, moth_tensor **out) {
  moth_fft f = {.kind = MOTH_FFT_COMPLEX, .inverse = a->inverse, .scale = a->scale};
  return fft_cpu(&f, a->input, out[0], a->dim);
}

static int fft_c2c_grad(const fft_c2c_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, fft_c2c, .input = g->dy, .dim = a->dim,
                                     .inverse = !a->inverse, .scale = a->scale));
}

MOTH_OP(fft_c2c, FFT_C2C,
  .doc = "The discrete Fourier transform of complex signals along a dimension: X[k] = sum over j "
         "of x[j] exp(-2 pi i j k / n).",
  .examples = "moth.randn(3, 4, 2)\n"
              "moth.randn(5, 3, 2), {dim = 1, inverse = true, scale = 0.5}",
  .dtypes = MOTH_ANY | MOTH_TO_FLOAT, .flags = MOTH_OP_HIDDEN, .autocast = MOTH_AUTOCAST_F32,
  .public_name = "fft")

/* -- of real numbers -- */

static int fft_r2c_shape(const fft_r2c_args *a, moth_layout *y) {
  int32_t d;
  int status = fft_dim(a->input, a->dim, false, &d);
  if (status) return status;
  if (a->input->l.ndim == MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "input", "at most %d dimensions are needed, got %s",
                     MOTH_MAX_DIMS - 1, moth_str(a->input));
  moth_shape_like(a->input, y);
  y->shape[d] = y->shape[d] / 2 + 1;
  y->shape[y->ndim++] = 2;
  return MOTH_OK;
}

static int fft_r2c_cpu(const fft_r2c_args *a, moth_tensor **out) {
  moth_fft f = {.kind = MOTH_FFT_TO_HALF, .inverse = a->inverse, .scale = a->scale,
                .twice = a->twice};
  return fft_cpu(&f, a->input, out[0], a->dim);
}

/* `d` is a dimension of the input; the pairs of dy have one more dimension, the last. */
static int fft_r2c_grad(const fft_r2c_args *a, moth_grad *g) {
  int32_t d;
  if (fft_dim(a->input, a->dim, false, &d)) return a->ctx->error.code;
  return moth_flow(g, a->input, GRAD(g, fft_c2r, .input = g->dy, .n = a->input->l.shape[d],
                                     .dim = d, .inverse = !a->inverse, .scale = a->scale,
                                     .twice = a->twice));
}

MOTH_OP(fft_r2c, FFT_R2C,
  .doc = "The discrete Fourier transform of real signals along a dimension: coefficients 0 to n / "
         "2; the others are their complex conjugates.",
  .examples = "moth.randn(3, 4)\nmoth.randn(5, 3), {dim = 1, inverse = true, scale = 0.5}\n"
              "moth.randn(2, 6), {twice = true}",
  .dtypes = MOTH_ANY | MOTH_TO_FLOAT, .flags = MOTH_OP_HIDDEN, .autocast = MOTH_AUTOCAST_F32,
  .public_name = "rfft")

static int fft_c2r_shape(const fft_c2r_args *a, moth_layout *y) {
  int32_t d;
  int status = fft_dim(a->input, a->dim, true, &d);
  if (status) return status;
  if (a->n < 1 || a->input->l.shape[d] != a->n / 2 + 1)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "n", "%lld does not match the coefficients %s",
                                                (long long)a->n,
                     moth_str(a->input));
  moth_shape_like(a->input, y);
  y->ndim--;
  y->shape[d] = a->n;
  return MOTH_OK;
}

static int fft_c2r_cpu(const fft_c2r_args *a, moth_tensor **out) {
  moth_fft f = {.kind = MOTH_FFT_FROM_HALF, .n = a->n, .inverse = a->inverse, .scale = a->scale,
                .twice = a->twice};
  return fft_cpu(&f, a->input, out[0], a->dim);
}

static int fft_c2r_grad(const fft_c2r_args *a, moth_grad *g) {
  return moth_flow(g, a->input, GRAD(g, fft_r2c, .input = g->dy, .dim = a->dim,
                                     .inverse = !a->inverse, .scale = a->scale,
                                     .twice = a->twice));
}

MOTH_OP(fft_c2r, FFT_C2R,
  .doc = "The real signals of Fourier coefficients 0 to n / 2; the other coefficients are their "
         "complex conjugates.",
  .examples = "moth.randn(3, 3, 2), 4\n"
              "moth.randn(3, 2, 2), {n = 5, dim = 1, inverse = true, scale = 0.5}\n"
              "moth.randn(3, 2, 2), {n = 3, twice = false}",
  .dtypes = MOTH_ANY | MOTH_TO_FLOAT, .flags = MOTH_OP_HIDDEN, .autocast = MOTH_AUTOCAST_F32,
  .public_name = "irfft")

/* -- products -- */

static int fft_mul_shape(const fft_mul_args *a, moth_layout *y) {
  const moth_layout *p = &a->input->l, *q = &a->other->l;
  if (!p->ndim || !q->ndim || p->shape[p->ndim - 1] != 2 || q->shape[q->ndim - 1] != 2)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "other", "pairs are needed, (..., 2), got %s with %s",
                     moth_str(a->other), moth_str(a->input));
  return moth_broadcast(a->ctx, "other", y, a->input, a->other);
}

typedef struct mul_job {
  const float *a, *b;
  float *y;
  bool conj;
} mul_job;

typedef float two_pairs __attribute__((vector_size(16), aligned(4), may_alias));

static void multiply_pairs(int64_t first, int64_t last, int lane, const void *arg) {
  (void)lane;
  const mul_job *j = arg;
  const float sign = j->conj ? 1 : -1, *a = j->a, *b = j->b;
  const two_pairs signs = {sign, -sign, sign, -sign};
  int64_t i = 2 * first;
  for (; i + 4 <= 2 * last; i += 4) {
    const two_pairs p = *(const two_pairs *)(const void *)(a + i);
    const two_pairs q = *(const two_pairs *)(const void *)(b + i);
    const two_pairs swapped = __builtin_shufflevector(p, p, 1, 0, 3, 2);
    const two_pairs re = __builtin_shufflevector(q, q, 0, 0, 2, 2);
    const two_pairs im = __builtin_shufflevector(q, q, 1, 1, 3, 3);
    *(two_pairs *)(void *)(j->y + i) = p * re + swapped * (im * signs);
  }
  for (; i < 2 * last; i += 2) {
    j->y[i] = a[i] * b[i] + a[i + 1] * (b[i + 1] * sign);
    j->y[i + 1] = a[i + 1] * b[i] + a[i] * (b[i + 1] * -sign);
  }
}

/* The real (0) or the imaginary (1) parts of x, as a view. Owned. */
static moth_tensor *part_of(const moth_tensor *x, int part) {
  moth_layout l = x->l;
  l.ndim--;
  l.offset += part * l.stride[l.ndim];
  l.numel /= 2;
  return moth_tensor_like(x->ctx, &l, x->storage);
}

/* For all dtypes, layouts and devices: each part of y is a sum of two products. */
static int multiply_parts(const fft_mul_args *a, moth_tensor *y) {
  moth_tensor *p[2], *q[2], *to[2];
  bool done = true;
  for (int i = 0; i < 2; i++) {
    p[i] = part_of(a->input, i);
    q[i] = part_of(a->other, i);
    to[i] = part_of(y, i);
    done = done && p[i] && q[i] && to[i];
  }
  int status = done ? MOTH_OK : a->ctx->error.code;
  for (int i = 0; i < 2 && !status; i++) {
    const moth_tensor *first[] = {to[i], p[i], q[0]}, *rest[] = {to[i], to[i], p[1 - i], q[1]};
    uint64_t by[3] = {0};
    moth_numbers(y->l.dtype, by, a->conj == (i == 0) ? 1 : -1, 0, 0);
    status = moth_map(a->ctx, moth_arith.mul, y->l.dtype, 3, first, NULL);
    if (!status) status = moth_map(a->ctx, moth_binary.addcmul, y->l.dtype, 4, rest, by);
  }
  for (int i = 0; i < 2; i++) {
    moth_tensor_release(p[i]);
    moth_tensor_release(q[i]);
    moth_tensor_release(to[i]);
  }
  return status;
}

/* Contiguous f32 pairs need one pass: 2e5 products take 0.2 times as long. */
static int fft_mul_cpu(const fft_mul_args *a, moth_tensor **out) {
  const moth_tensor *x = a->input, *z = a->other, *y = out[0];
  if (y->l.device || y->l.dtype != MOTH_F32 || x->l.numel != y->l.numel ||
      z->l.numel != y->l.numel || !moth_contiguous(x) || !moth_contiguous(z) ||
      !moth_contiguous(y))
    return multiply_parts(a, out[0]);
  const mul_job j = {.a = (const float *)(const void *)moth_at(x),
                     .b = (const float *)(const void *)moth_at(z),
                     .y = (float *)(void *)moth_at(y), .conj = a->conj};
  return moth_parallel(a->ctx, y->l.numel / 2, 8, 1, multiply_pairs, &j);
}

static int fft_mul_grad(const fft_mul_args *a, moth_grad *g) {
  moth_tensor *x = a->input, *z = a->other, *dy = g->dy;
  if (moth_wants(g, x))
    moth_flow(g, x, GRAD(g, fft_mul, .input = dy, .other = z, .conj = !a->conj));
  if (moth_wants(g, z))
    moth_flow(g, z, GRAD(g, fft_mul, .input = a->conj ? x : dy, .other = a->conj ? dy : x,
                         .conj = true));
  return g->status;
}

MOTH_OP(fft_mul, FFT_MUL,
  .doc = "The products of complex numbers, pairs in a last dimension of 2.",
  .examples = "moth.randn(3, 2), moth.randn(3, 2)\n"
              "moth.randn(2, 3, 2), moth.randn(3, 2), {conj = true}",
  .dtypes = MOTH_NUMERIC | MOTH_PROMOTE, .saves = "input:other other:input",
  .flags = MOTH_OP_HIDDEN | MOTH_OP_STRIDED | MOTH_OP_PORTABLE, .public_name = "mul")

/* -- the check of istft: the sums of the windows' squares must not be 0 -- */

static int fft_covered_shape(const fft_covered_args *a, moth_layout *y) {
  return moth_shape_like(a->input, y);
}

static int fft_covered_cpu(const fft_covered_args *a, moth_tensor **out) {
  moth_tensor *x = moth_cast(a->input, MOTH_F64);
  if (!x) return a->ctx->error.code;
  const double *at = (const double *)(const void *)moth_at(x);
  double least = INFINITY;
  for (int64_t i = 0; i < x->l.numel; i++)
    if (least == least && !(fabs(at[i]) >= least)) least = fabs(at[i]); /* a NaN is kept */
  moth_tensor_release(x);
  if (!(least > 1e-11))
    return moth_fail(a->ctx, MOTH_E_DOMAIN, "input",
                     "windows that overlap everywhere are needed: at some position the sum of "
                     "their squares is %g", least);
  return moth_copy_into(out[0], a->input);
}

static int fft_covered_grad(const fft_covered_args *a, moth_grad *g) {
  return moth_flow(g, a->input, g->dy);
}

MOTH_OP(fft_covered, FFT_COVERED,
  .doc = "The input unchanged; an element of 0 makes istft raise an error.",
  .examples = "moth.rand(5) + 1  -- domain: positive", .dtypes = MOTH_FLOATS,
  .flags = MOTH_OP_HIDDEN, .public_name = "fft")

const moth_op *const moth_fft_ops[] = {
  &moth_op_fft_c2c, &moth_op_fft_r2c, &moth_op_fft_c2r, &moth_op_fft_mul,
  &moth_op_fft_covered, NULL,
};
