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
#include "tensor/tensor.h"

#include <math.h>

#include "kernel/fft.h"
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
  &moth_op_fft_c2c, &moth_op_fft_r2c, &moth_op_fft_c2r, &moth_op_fft_covered, NULL,
};
