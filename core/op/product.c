/* product.c -- beta * input + alpha * product, and inner and Kronecker products; all are composed
** of matmul.
*/
#include "product.h"
#include "tensor/tensor.h"

#include "kernel/scalar.h"
#include "arith.h"
#include "binary.h"
#include "copy.h"
#include "create.h"
#include "matmul.h"
#include "reduce.h"
#include "view.h"

#define ADDS (MOTH_OP_INPLACE | MOTH_OP_OUT | MOTH_OP_METHOD)

static int need(const moth_tensor *x, const char *arg, int32_t ndim) {
  static const char *const names[] = {"a number", "a vector", "a matrix", "a batch of matrices"};
  if (x->l.ndim == ndim) return MOTH_OK;
  return moth_fail(x->ctx, MOTH_E_SHAPE, arg, "%s is needed, got %s", names[ndim], moth_str(x));
}

static bool is_number(moth_scalar s, double value) {
  return s.type ? (double)s.as.integer == value : s.as.number == value;
}

/* *y := s * x. Releases x. */
static int scaled(moth_tensor *x, moth_scalar s, moth_tensor **y) {
  moth_tensor *factor = NULL;
  int status = MOTH_CALL(x->ctx, &factor, full, .size = {(int64_t[]){0}, 0}, .fill_value = s,
                         .dtype = x->l.dtype, .device = moth_device_of(x));
  if (!status) status = MOTH_CALL(x->ctx, y, mul, .input = x, .other = factor);
  moth_tensor_release(factor);
  moth_tensor_release(x);
  return status;
}

static int check_factors(const moth_tensor *input, moth_scalar beta, moth_scalar alpha) {
  uint64_t element;
  int status = moth_scalar_to(input->ctx, "beta", beta, input->l.dtype, &element);
  return status ? status
                : moth_scalar_to(input->ctx, "alpha", alpha, input->l.dtype, &element);
}

/* *out := beta * input + alpha * product, in their dtype. Releases the product. */
static int summed(moth_tensor *input, moth_tensor *product, moth_scalar beta, moth_scalar alpha,
                  moth_tensor **out) {
  moth_tensor *sum = NULL;
  int status = MOTH_OK;
  if (is_number(beta, 0) && is_number(alpha, 1))
    *out = moth_tensor_retain(product);
  else if (is_number(beta, 0))
    return scaled(product, alpha, out);
  else if (is_number(beta, 1))
    status = MOTH_CALL(input->ctx, out, add, .input = input, .other = product, .alpha = alpha);
  else if (is_number(alpha, 1))
    status = MOTH_CALL(input->ctx, out, add, .input = product, .other = input, .alpha = beta);
  else if ((status = scaled(moth_tensor_retain(input), beta, &sum)) == MOTH_OK)
    status = MOTH_CALL(input->ctx, out, add, .input = sum, .other = product, .alpha = alpha);
  moth_tensor_release(sum);
  moth_tensor_release(product);
  return status;
}

/* If beta is 0, the gradient of the input is zeros instead of nil. */
static int attached(moth_tensor *input, moth_scalar beta, int status, moth_tensor **out) {
  return status || !is_number(beta, 0) ? status : moth_attach(out, input);
}

static int check_fit(const moth_tensor *input, const moth_tensor *product) {
  const moth_layout *x = &input->l, *y = &product->l;
  bool fits = x->ndim <= y->ndim;
  for (int d = 1; fits && d <= x->ndim; d++)
    fits = x->shape[x->ndim - d] == 1 || x->shape[x->ndim - d] == y->shape[y->ndim - d];
  if (fits) return MOTH_OK;
  return moth_fail(input->ctx, MOTH_E_SHAPE, "input", "%s cannot be broadcast to the product %s",
                   moth_str(input), moth_str(product));
}

/* As summed. Half types are converted to f32, so that the sum is rounded once. */
static int added(moth_tensor *input, moth_tensor *product, moth_scalar beta, moth_scalar alpha,
                 moth_tensor **out) {
  moth_ctx *ctx = input->ctx;
  moth_tensor *x = NULL, *y = NULL, *sum = NULL;
  const int dtype = input->l.dtype;
  int status = check_fit(input, product);
  if (status) {
    moth_tensor_release(product);
    return status;
  }
  const bool plain = is_number(alpha, 1) && (is_number(beta, 0) || is_number(beta, 1));
  if (!moth_is_half(dtype) || (plain && product->l.dtype == dtype))
    return attached(input, beta, summed(input, product, beta, alpha, out), out);
  status = MOTH_CALL(ctx, &x, cast, .input = input, .dtype = MOTH_F32);
  if (!status) status = MOTH_CALL(ctx, &y, cast, .input = product, .dtype = MOTH_F32);
  moth_tensor_release(product);
  if (!status) status = summed(x, y, beta, alpha, &sum);
  if (!status) status = MOTH_CALL(ctx, out, cast, .input = sum, .dtype = dtype);
  moth_tensor_release(x);
  moth_tensor_release(sum);
  return attached(input, beta, status, out);
}

/* *y := the product. Errors name the argument `other` of matmul as `name`. */
static int product_of(moth_tensor *a, moth_tensor *b, const char *name, moth_tensor **y) {
  int status = MOTH_CALL(a->ctx, y, matmul, .input = a, .other = b);
  return moth_error_as(a->ctx, status, "other", name);
}

/* Returns true if a product of half-precision matrices is computed in f32, because a summand or a
** factor follows. On a device, products are rounded to their dtype. */
static bool is_widened(const moth_tensor *input, moth_scalar beta, moth_scalar alpha) {
  return moth_is_half(input->l.dtype) && !input->l.device &&
         !(is_number(beta, 0) && is_number(alpha, 1));
}

/* *y := the product of a and b, in f32 if `widened`. */
static int term_of(moth_tensor *a, moth_tensor *b, const char *name, bool widened,
                   moth_tensor **y) {
  moth_tensor *p = NULL, *q = NULL;
  if (!widened) return product_of(a, b, name, y);
  int status = MOTH_CALL(a->ctx, &p, cast, .input = a, .dtype = MOTH_F32);
  if (!status) status = MOTH_CALL(a->ctx, &q, cast, .input = b, .dtype = MOTH_F32);
  if (!status) status = MOTH_CALL(a->ctx, y, matmul, .input = p, .other = q);
  moth_tensor_release(p);
  moth_tensor_release(q);
  /* the error shows the user's dtypes */
  return status == MOTH_E_SHAPE ? product_of(a, b, name, y) : status;
}

static int addmm_compose(const addmm_args *a, moth_tensor **out) {
  moth_tensor *y = NULL;
  int status = check_factors(a->input, a->beta, a->alpha);
  if (!status) status = need(a->mat1, "mat1", 2);
  if (!status) status = need(a->mat2, "mat2", 2);
  const bool widened = is_widened(a->input, a->beta, a->alpha);
  if (!status) status = term_of(a->mat1, a->mat2, "mat2", widened, &y);
  return status ? status : added(a->input, y, a->beta, a->alpha, out);
}
MOTH_OP_COMPOSES(addmm, ADDMM, .doc = "beta input + alpha (mat1 mat2), (M, N).",
                 .examples = "moth.randn(2, 4), moth.randn(2, 3), moth.randn(3, 4)\n"
                             "moth.randn(2, 4), moth.randn(2, 3), moth.randn(3, 4), {beta = 2,"
                             " alpha = 3}",
                 .dtypes = MOTH_NUMERIC, .flags = ADDS, .autocast = MOTH_AUTOCAST_HALF)

static int batches(moth_tensor *p, moth_tensor *q, bool widened, moth_tensor **y) {
  int status = need(p, "batch1", 3);
  if (!status) status = need(q, "batch2", 3);
  if (!status && p->l.shape[0] != q->l.shape[0])
    status = moth_fail(p->ctx, MOTH_E_SHAPE, "batch2",
                       "%s and %s have different numbers of matrices",
                       moth_str(q), moth_str(p));
  return status ? status : term_of(p, q, "batch2", widened, y);
}

static int baddbmm_compose(const baddbmm_args *a, moth_tensor **out) {
  moth_tensor *y = NULL;
  int status = check_factors(a->input, a->beta, a->alpha);
  const bool widened = is_widened(a->input, a->beta, a->alpha);
  if (!status) status = batches(a->batch1, a->batch2, widened, &y);
  return status ? status : added(a->input, y, a->beta, a->alpha, out);
}
MOTH_OP_COMPOSES(baddbmm, BADDBMM, .doc = "beta input + alpha (batch1 batch2), (B, M, N).",
                 .examples = "moth.randn(5, 2, 4), moth.randn(5, 2, 3), moth.randn(5, 3, 4)\n"
                             "moth.randn(5, 2, 4), moth.randn(5, 2, 3), moth.randn(5, 3, 4),"
                             " {beta = 0, alpha = 2}",
                 .dtypes = MOTH_NUMERIC, .flags = ADDS, .autocast = MOTH_AUTOCAST_HALF)

static int addbmm_compose(const addbmm_args *a, moth_tensor **out) {
  moth_tensor *y = NULL, *sum = NULL;
  int64_t first = 0;
  int status = check_factors(a->input, a->beta, a->alpha);
  const bool widened = is_widened(a->input, a->beta, a->alpha);
  if (!status) status = batches(a->batch1, a->batch2, widened, &y);
  if (!status)
    status = MOTH_CALL(a->ctx, &sum, sum, .input = y, .dim = {&first, 1},
                       .dtype = widened ? MOTH_F32 : a->input->l.dtype);
  moth_tensor_release(y);
  return status ? status : added(a->input, sum, a->beta, a->alpha, out);
}
MOTH_OP_COMPOSES(addbmm, ADDBMM,
                 .doc = "beta input + alpha sum over b of (batch1[b] batch2[b]), (M, N).",
                 .examples = "moth.randn(2, 4), moth.randn(5, 2, 3), moth.randn(5, 3, 4)\n"
                             "moth.randn(2, 4), moth.randn(5, 2, 3), moth.randn(5, 3, 4),"
                             " {beta = 3, alpha = 2}",
                 .dtypes = MOTH_NUMERIC, .flags = ADDS, .autocast = MOTH_AUTOCAST_HALF)

static int addmv_compose(const addmv_args *a, moth_tensor **out) {
  moth_tensor *y = NULL;
  int status = check_factors(a->input, a->beta, a->alpha);
  if (!status) status = need(a->mat, "mat", 2);
  if (!status) status = need(a->vec, "vec", 1);
  const bool widened = is_widened(a->input, a->beta, a->alpha);
  if (!status) status = term_of(a->mat, a->vec, "vec", widened, &y);
  return status ? status : added(a->input, y, a->beta, a->alpha, out);
}
MOTH_OP_COMPOSES(addmv, ADDMV, .doc = "beta input + alpha (mat vec), (M,).",
                 .examples = "moth.randn(2), moth.randn(2, 3), moth.randn(3)\n"
                             "moth.randn(2), moth.randn(2, 3), moth.randn(3), {beta = 2,"
                             " alpha = 3}",
                 .dtypes = MOTH_NUMERIC, .flags = ADDS)

/* Returns true if the input can be broadcast to a matrix of vec1 rows and vec2 columns. */
static bool is_matrix_of(const moth_layout *x, const moth_tensor *vec1, const moth_tensor *vec2) {
  const int64_t size[] = {vec2->l.numel, vec1->l.numel};
  bool fits = x->ndim <= 2;
  for (int d = 0; fits && d < x->ndim; d++) {
    int64_t n = x->shape[x->ndim - 1 - d];
    fits = n == 1 || n == size[d];
  }
  return fits;
}

static int addr_compose(const addr_args *a, moth_tensor **out) {
  moth_tensor *y = NULL;
  int status = check_factors(a->input, a->beta, a->alpha);
  if (!status) status = need(a->vec1, "vec1", 1);
  if (!status) status = need(a->vec2, "vec2", 1);
  moth_tensor *column = NULL;
  if (!status) status = MOTH_CALL(a->ctx, &column, unsqueeze, .input = a->vec1, .dim = 1);
  if (!status && is_number(a->beta, 1) && is_matrix_of(&a->input->l, a->vec1, a->vec2)) {
    status = MOTH_CALL(a->ctx, out, addcmul, .input = a->input, .tensor1 = a->vec2,
                       .tensor2 = column, .value = a->alpha);
    moth_tensor_release(column);
    return status;
  }
  if (!status && is_widened(a->input, a->beta, a->alpha)) {
    moth_tensor *row = NULL;
    status = MOTH_CALL(a->ctx, &row, unsqueeze, .input = a->vec2, .dim = 0);
    if (!status) status = term_of(column, row, "vec2", true, &y);
    moth_tensor_release(row);
  } else if (!status) {
    status = MOTH_CALL(a->ctx, &y, mul, .input = column, .other = a->vec2);
  }
  moth_tensor_release(column);
  return status ? status : added(a->input, y, a->beta, a->alpha, out);
}
MOTH_OP_COMPOSES(addr, ADDR, .doc = "beta input + alpha (outer product of vec1 and vec2), (M, N).",
                 .examples = "moth.randn(2, 3), moth.randn(2), moth.randn(3)\n"
                             "moth.randn(2, 3), moth.randn(2), moth.randn(3), {beta = 2,"
                             " alpha = 3}",
                 .dtypes = MOTH_NUMERIC, .flags = ADDS)

/* -- inner -- */

static int inner_compose(const inner_args *a, moth_tensor **out) {
  const moth_layout *p = &a->input->l, *q = &a->other->l;
  if (p->ndim == 0 || q->ndim == 0)
    return MOTH_CALL(a->ctx, out, mul, .input = a->input, .other = a->other);
  int64_t k = q->shape[q->ndim - 1], rows = 1, shape[2 * MOTH_MAX_DIMS];
  if (p->shape[p->ndim - 1] != k)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "other", "the last dimensions of %s and %s differ",
                     moth_str(a->other), moth_str(a->input));
  int32_t ndim = p->ndim + q->ndim - 2;
  if (ndim > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, "other", "%s and %s have too many dimensions",
                     moth_str(a->other), moth_str(a->input));
  for (int d = 0; d < q->ndim - 1; d++) rows *= q->shape[d];
  memcpy(shape, p->shape, (size_t)(p->ndim - 1) * sizeof *shape);
  memcpy(shape + p->ndim - 1, q->shape, (size_t)(q->ndim - 1) * sizeof *shape);
  moth_tensor *matrix = NULL, *y = NULL;
  int status = MOTH_CALL(a->ctx, &matrix, reshape, .input = a->other,
                         .shape = {(int64_t[]){rows, k}, 2});
  if (!status) status = MOTH_CALL(a->ctx, &y, linear, .input = a->input, .weight = matrix);
  if (!status) status = MOTH_CALL(a->ctx, out, reshape, .input = y, .shape = {shape, ndim});
  moth_tensor_release(matrix);
  moth_tensor_release(y);
  return status;
}
MOTH_OP_COMPOSES(inner, INNER, .doc = "The dot products of all pairs of rows: sums over the last "
                                      "dimension of both. If one operand is a number, the product.",
                 .examples = "moth.randn(2, 3), moth.randn(4, 3)\nmoth.randn(3), moth.randn(3)",
                 .dtypes = MOTH_NUMERIC, .flags = MOTH_OP_OUT | MOTH_OP_METHOD)

static int vdot_compose(const vdot_args *a, moth_tensor **out) {
  int status = need(a->input, "input", 1);
  if (!status) status = need(a->other, "other", 1);
  return status ? status : product_of(a->input, a->other, "other", out);
}
MOTH_OP_COMPOSES(vdot, VDOT, .doc = "The dot product of two vectors: sum(input * other).",
                 .examples = "moth.randn(3), moth.randn(3)",
                 .dtypes = MOTH_NUMERIC, .flags = MOTH_OP_OUT | MOTH_OP_METHOD)

/* -- kron -- */

/* y := x viewed with a dimension of size 1 before (or after) each of its dimensions, ndim in
** all. */
static int spread(moth_tensor *x, int32_t ndim, bool before, moth_tensor **y) {
  int64_t shape[MOTH_MAX_DIMS];
  for (int d = 0; d < ndim; d++) {
    int at = d - (ndim - x->l.ndim);
    shape[2 * d + before] = at < 0 ? 1 : x->l.shape[at];
    shape[2 * d + !before] = 1;
  }
  return MOTH_CALL(x->ctx, y, reshape, .input = x, .shape = {shape, 2 * ndim});
}

static int kron_compose(const kron_args *a, moth_tensor **out) {
  const moth_layout *p = &a->input->l, *q = &a->other->l;
  int32_t ndim = p->ndim > q->ndim ? p->ndim : q->ndim;
  int64_t shape[MOTH_MAX_DIMS];
  moth_tensor *x = NULL, *w = NULL, *y = NULL;
  if (2 * ndim > MOTH_MAX_DIMS)
    return moth_fail(a->ctx, MOTH_E_SHAPE, p->ndim == ndim ? "input" : "other",
                     "at most %d dimensions are possible, got %s", MOTH_MAX_DIMS / 2,
                     moth_str(p->ndim == ndim ? a->input : a->other));
  int status = spread(a->input, ndim, false, &x);
  if (!status) status = spread(a->other, ndim, true, &w);
  if (!status) status = MOTH_CALL(a->ctx, &y, mul, .input = x, .other = w);
  for (int d = 0; !status && d < ndim; d++) shape[d] = y->l.shape[2 * d] * y->l.shape[2 * d + 1];
  if (!status) status = MOTH_CALL(a->ctx, out, reshape, .input = y, .shape = {shape, ndim});
  moth_tensor_release(x);
  moth_tensor_release(w);
  moth_tensor_release(y);
  return status;
}
MOTH_OP_COMPOSES(kron, KRON, .doc = "The Kronecker product: each element of `input` becomes a "
                                    "block, the element times `other`.",
                 .examples = "moth.randn(2, 3), moth.randn(2, 2)\nmoth.randn(2), moth.randn(1, 3)",
                 .dtypes = MOTH_NUMERIC | MOTH_PROMOTE,
                 .flags = MOTH_OP_OUT | MOTH_OP_METHOD | MOTH_OP_MIXED)

const moth_op *const moth_product_ops[] = {
  &moth_op_addmm, &moth_op_baddbmm, &moth_op_addbmm, &moth_op_addmv, &moth_op_addr,
  &moth_op_inner, &moth_op_vdot, &moth_op_kron, NULL,
};
